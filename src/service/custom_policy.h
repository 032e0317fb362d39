/* custom_policy.h - the policy that a request carries, and the operator's floor over every request.
 *
 * The document is the one of `cove policy check`, as JSON. Its reader knows lines; a request has paths. So the document
 * is written out with one value a line, and the path of each line is remembered: every problem is told with the path of
 * what is wrong. What only a caller on this host could mean (paths of the host, variables of the caller) is refused,
 * as the server has no caller on this host. */
#pragma once

#include "policy/policy.h"
#include "service/spec.h"

/* Reads it over the spec. On failure *ret_details is a JSON object with all that is wrong, which the caller frees, or
 * NULL. */
int custom_policy_read(struct spec *s, const json_t *document, char **ret_details, struct err *err);

/* What was chosen beyond the floor is refused; what nobody chose is lowered. NULL: there is no floor. */
int custom_policy_apply_operator_limits(struct spec *s, const struct operator_limits *f, struct err *err);
/* The same for one value of a request ("timeoutMs") whose limit this is; 0 is not chosen. */
int custom_policy_check_operator_limit(const struct operator_limits *f, enum limit l, const char *name, uint64_t value,
                                       struct err *err);
