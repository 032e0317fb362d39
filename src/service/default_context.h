/* default_context.h - the context that runs code whose request names no context and does not ask
 * for a process of its own. A sandbox has one for each language, made by the first such request.
 *
 * It is an ordinary context (context.h) with three differences: it does not count towards
 * CONTEXTS_MAX; input() reads the standard input of the request, unless that is written while the
 * code runs; and if its language kernel has died, the next request restarts it instead of being
 * refused. */
#pragma once

#include "service/context.h"

/* Whether an execution with this spec runs in a default context. */
bool default_context_serves(const struct execution_spec *s);
/* As manager_execute. */
void default_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             const struct execution_spec *s, store_execution_fn *done, void *arg);
