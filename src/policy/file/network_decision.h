/* network_decision.h - whether rules allow a URL, and why: the answer that the egress proxy would
 * give. Nothing is resolved or sent. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"
#include "policy/egress_rules.h"
#include "policy/network.h"

#define NETWORK_URL_MAX 4096

struct network_decision {
    char host[HOSTNAME_MAX + 1]; /* normalised; an address without brackets */
    uint16_t port;
    bool is_allowed;
    const char *method;       /* of the request, borrowed; NULL: the proxy does not see it */
    const char *closed_range; /* of a literal address; NULL: none */
    struct buf rule;          /* that decides; empty: none */
    struct buf reason, fix;   /* empty: it is allowed */
};

/* The URL is "http://...", "https://...", "tcp://HOST:PORT" or HOST[:PORT]. `method` may be NULL:
 * GET. The caller calls network_decision_done, also after a failure. */
int network_decide(const struct network_policy *p, const struct ip_prefix *open, size_t nopen, const char *url,
                   const char *method, struct network_decision *ret, struct err *err);
void network_decision_done(struct network_decision *d);
void network_decision_write(const struct network_decision *d, const char *url, struct jsonw *w);
