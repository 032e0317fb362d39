/* run.h - starts every program in the same way: posix_spawn (no copy of page tables), three
 * environment variables. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define RUN_ARGS_MAX 64

/* argv ends with NULL and has at most RUN_ARGS_MAX entries; an argument "{n}" becomes a unique
 * name. A descriptor below 0 is /dev/null; standard error is /dev/null too, unless it is
 * `heard`. */
pid_t run_start(const char *name, char *const *argv, int in, int out, bool heard);

/* Both end the measurement unless the program exited with 0: a failed start is fast, and would
 * look like a good figure. */
void run_check(const char *name, int status);
void run_reap(const char *name, pid_t pid);
