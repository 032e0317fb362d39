/* interpreter.h - turns an interpreter that joined the sandbox, or the fork of a language kernel,
 * into an execution, as if the runtime had started it. */
#pragma once

#include "inside/runtime/runtime.h"
#include "inside/runtime/spawn.h"

/* Takes the descriptors of an interpreter that waits from now on. If it ends before it is used, the
 * host is notified. */
int interpreter_hold(struct runtime *rt, struct err *err);
void interpreter_drop(struct runtime *rt);    /* does nothing if none waits */
void interpreter_warm_up(struct runtime *rt); /* does nothing if none waits */
/* Sends the claim to the waiting interpreter: environment, directory, Landlock. Afterwards none
 * waits, even on failure. ret->pid is 0 until interpreter_start_result. */
int interpreter_start_exec(struct runtime *rt, const struct rt_exec *req, const char *const *env,
                           struct spawned_program *ret, struct err *err);
/* Asks the language kernel on this socket, between two of its lines, to fork itself. ret->pid is 0
 * until interpreter_start_result. */
int interpreter_fork_kernel(int kernel, struct spawned_program *ret, struct err *err);
/* 1: it is ready, and *ret is its pid. 0: not known yet. -1: it failed, and err is set. */
int interpreter_start_result(int kernel, pid_t *ret, struct err *err);
