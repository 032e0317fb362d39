/* runtime_exec.h - executions: EXEC, its DATA, SIGNAL and RESIZE, and the end of its processes.
 *
 * An execution ends when its main process ends. Output that is in the pipes at that moment is
 * delivered. If surviving children keep the pipes open, their output is delivered until they have
 * been silent for EXEC_GRACE_MS, and for EXEC_LINGER_MS at most; later output is discarded. */
#pragma once

#include "inside/runtime/runtime.h"

#define EXEC_GRACE_MS 50u
#define EXEC_LINGER_MS 1000u

int runtime_exec_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err);
/* On SIGCHLD: reaps a bounded number of processes. True: there may be more. */
bool runtime_exec_reap(struct runtime *rt);
uint32_t runtime_exec_count(const struct runtime *rt);
uint32_t runtime_exec_count_alive(const struct runtime *rt); /* main processes that are not reaped */
