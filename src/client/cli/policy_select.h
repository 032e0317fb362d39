/* policy_select.h - loads the policy of a run, from --policy, and the operator limits
 * of the host. */
#pragma once

#include "client/cli/args.h"
#include "client/cli/cli.h"

#include "policy/policy.h"

/* Returns 0; -1 with err; or an exit status if the error has already been printed. On 0 the caller
 * frees both. */
int policy_select(const struct args *a, const struct cli_settings *settings, struct policy *ret,
                  struct operator_limits *ret_floor, struct err *err);
