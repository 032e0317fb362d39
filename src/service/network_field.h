/* network_field.h - the field `network` of requests: JSON to canonical rules.
 *
 *     "none"
 *     {"allow": ["pypi.org", "preset:npm"], "deny": ["files.example.org"]}
 *     {"egress": ["pypi.org", {"deny": "x.example.org:*"},
 *                 {"allow": "api.example.org:80", "methods": ["GET"], "path": "/v1/images"}],
 *      "secrets": [{"name": "openai", "host": "api.openai.com"}]}
 *
 * The short form means the denials first, then the permissions. Answers have the one form of
 * policy/network_json.h, which is valid in a request too: specs are stored in it.
 * policy/egress_rules.h describes the rules. */
#pragma once

#include "core/base/err.h"
#include "core/base/jsonw.h"
#include "policy/ip_address.h"
#include "policy/network.h"

#include <jansson.h>

/* Reads the value into *ret, which owns its text: network_policy_done(). Every error begins with
 * the path of the value: "network.egress[2]". */
int network_field_read(const json_t *value, struct network_policy *ret, struct err *err);
/* Refuses rules that allow an address or a prefix which lies in a closed range as a whole, because
 * they would have no effect. `open` are the prefixes that the operator opened. */
int network_field_check_addresses(const struct network_policy *p, const struct ip_prefix *open, size_t nopen,
                                  struct err *err);
