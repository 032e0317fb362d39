/* network_file.h - the key `network` of policies and operator limits. */
#pragma once

#include "core/doc/doc.h"
#include "policy/policy.h"

/* "none", {allow: [...], deny: [...]} or {egress: [...], secrets: [...]}. On success *ret owns its
 * text; otherwise a problem is reported and *ret is unchanged. */
bool network_file_read(struct problems *pr, const struct doc *d, struct network_policy *ret);
/* "none", or {deny: [...], openRanges: [...]}. With `narrow`, the ranges can only become fewer. */
void network_file_read_operator(struct problems *pr, const struct doc *d, bool narrow, struct operator_limits *ret);
