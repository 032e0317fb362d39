/* custom_policy.h - the policy in a request, and the operator limits over every request.
 *
 * The document is the same as for `cove policy check`, as JSON. The policy reader reports lines,
 * but a request has paths. So the document is written out with one value per line and the path of
 * each line is recorded: every problem is reported with the path of the value. Fields that only
 * make sense for a caller on this host (paths of the host, variables of the caller) are errors. */
#pragma once

#include "policy/policy.h"
#include "service/spec.h"

/* Applies the policy to the spec. On failure *ret_details is NULL or a JSON object with all
 * problems, which the caller frees. */
int custom_policy_read(struct spec *s, const json_t *document, char **ret_details, struct err *err);

/* Explicit values beyond the operator limits are errors; defaults are lowered. A spec without
 * a driver gets the first allowed one. f may be NULL: no limits. */
int custom_policy_apply_operator_limits(struct spec *s, const struct operator_limits *f, struct err *err);
/* The same for one value of a request ("timeoutMs") that corresponds to limit l; 0: not set. */
int custom_policy_check_operator_limit(const struct operator_limits *f, enum limit l, const char *name, uint64_t value,
                                       struct err *err);
/* Refuses a network that the operator does not allow, and rules for addresses that are closed; puts
 * the operator's denials before the rules. */
int custom_policy_apply_network(const struct operator_limits *f, struct network_policy *p, struct err *err);
