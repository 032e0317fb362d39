/* network_json.h - a network policy as JSON, in the form in which policies, requests and answers
 * have it: "none", or {"egress": [{"allow": "pypi.org"}, ...], "secrets": [...]}. */
#pragma once

#include "core/base/jsonw.h"
#include "policy/network.h"

/* Writes a value. `mode`: also "mode": "egress", which answers have. */
void network_json_write(struct jsonw *w, const struct network_policy *n, bool mode);
