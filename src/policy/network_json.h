/* network_json.h - a network policy as JSON: "none", or {"mode": "egress", "egress": ["allow
 * pypi.org", ...], "secrets": [{"name": ..., ...}]} with canonical rules. The form is valid in
 * requests and policies too, and specs are stored in it. */
#pragma once

#include "core/base/jsonw.h"
#include "policy/network.h"

void network_json_write(struct jsonw *w, const struct network_policy *n); /* a value */
