/* runtime_claim.h - CLAIM: measures the walls, raises the last one, and keeps the environment for executions. */
#pragma once

#include "inside/runtime/runtime.h"

int runtime_claim_open(struct runtime *rt, const struct frame *f, struct err *err); /* rt->walls is set on success */
void runtime_claim_forget(struct runtime *rt); /* but for the rules that hold PID 1 */
int runtime_claim_preload_rules(struct runtime *rt, const struct frame *f, struct err *err);
