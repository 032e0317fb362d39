/* policy_select.h - the policy and the floor that a run is to be held to, from --policy and from
 * the host. */
#pragma once

#include "client/cli/args.h"
#include "client/cli/cli.h"

#include "policy/policy.h"

/* Returns 0; or -1 with err; or the exit status when the user has been told already. On 0 the
 * caller frees both. */
int policy_select(const struct args *a, const struct cli_settings *settings, struct policy *ret,
                  struct operator_limits *ret_floor, struct err *err);
