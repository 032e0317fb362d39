/* claim.h - CLAIM: measures the walls, raises the last one, and keeps the environment for executions. */
#pragma once

#include "runtime/runtime.h"

int claim_open(struct runtime *rt, const struct frame *f, struct err *err); /* rt->walls is set on success */
void claim_forget(struct runtime *rt);                                      /* but for the rules that hold PID 1 */
int claim_expect(struct runtime *rt, const struct frame *f, struct err *err);
