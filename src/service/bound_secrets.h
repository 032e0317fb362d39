/* bound_secrets.h - the values of the secrets that the rules of a sandbox name, in clear for as
 * long as it takes to hand them to the engine. */
#pragma once

#include "policy/egress_rules.h"
#include "policy/network.h"
#include "sandbox/engine.h"
#include "service/secrets.h"

struct bound_secrets {
    struct egress_rules *rules; /* holds the names */
    struct sandbox_secret entries[EGRESS_RULE_SECRETS_MAX];
    size_t n;
};

/* Fails if the tenant has no secret of a name, or its value does not decrypt. With `missing_ok`
 * such secrets are left out, and the proxy refuses their use: for a sandbox that lives already.
 * secrets: NULL is a server without secrets. Call bound_secrets_wipe afterwards in every case. */
int bound_secrets_fill(struct secrets *secrets, const char *tenant, const struct network_policy *network,
                       bool missing_ok, struct bound_secrets *ret, struct err *err);
void bound_secrets_wipe(struct bound_secrets *b);
