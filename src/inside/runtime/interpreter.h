/* interpreter.h - an interpreter that joined the sandbox, or the fork of another, becomes an execution, as if it had
 * been started here. */
#pragma once

#include "inside/runtime/runtime.h"
#include "inside/runtime/spawn.h"

/* Takes the lent descriptors of one that waits from now on. The host hears when it ends before it is taken. */
int interpreter_hold(struct runtime *rt, struct err *err);
void interpreter_drop(struct runtime *rt);    /* nothing when none waits */
void interpreter_warm_up(struct runtime *rt); /* the same */
/* Tells the one that waits what is its own: environment, directory, Landlock. None waits after it, also when it fails.
 * ret->pid is 0 until interpreter_start_result. */
int interpreter_start_exec(struct runtime *rt, const struct rt_exec *req, const char *const *env,
                           struct spawned_program *ret, struct err *err);
/* Asks the kernel behind this socket, between two of its lines, for a copy of itself. ret->pid is 0 as above. */
int interpreter_fork_kernel(int kernel, struct spawned_program *ret, struct err *err);
/* 1: it is ready, and *ret its process. 0: not known yet. -1: it is gone, and *err says so. */
int interpreter_start_result(int kernel, pid_t *ret, struct err *err);
