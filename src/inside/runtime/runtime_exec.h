/* runtime_exec.h - executions: EXEC, its DATA, SIGNAL and RESIZE, and the end of its processes.
 *
 * An execution ends when its main process ends. What the pipes hold at that moment is delivered; if children that
 * outlive it keep the pipes open, they are listened to until they have been silent for EXEC_GRACE_MS, and for
 * EXEC_LINGER_MS at the longest, and then their output goes nowhere. */
#pragma once

#include "inside/runtime/runtime.h"

#define EXEC_GRACE_MS 50u
#define EXEC_LINGER_MS 1000u

int runtime_exec_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err);
/* SIGCHLD: reaps a bounded number of processes, whoever they are. True: there may be more. */
bool runtime_exec_reap(struct runtime *rt);
uint32_t runtime_exec_count(const struct runtime *rt);
uint32_t runtime_exec_count_alive(const struct runtime *rt); /* main processes that were not reaped */
