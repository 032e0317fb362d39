/* runtime_claim.h - CLAIM: checks the walls, raises the last one, and keeps the environment for
 * executions. */
#pragma once

#include "inside/runtime/runtime.h"

int runtime_claim_open(struct runtime *rt, const struct frame *f, struct err *err); /* sets rt->claimed_walls */
void runtime_claim_forget(struct runtime *rt); /* except for the rules that restrict PID 1 */
int runtime_claim_preload_rules(struct runtime *rt, const struct frame *f, struct err *err);
