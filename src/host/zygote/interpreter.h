/* interpreter.h - from the fork to the first line of its protocol: what the sandbox's PID 1 has to say. */
#pragma once

#include "core/base/err.h"

/* Waits for it, then stands in the given directory, behind Landlock where the kernel has it. *ret is the environment:
 * "NAME=value" and a zero byte each; the caller frees it. 0: done. 1: PID 1 wants nothing of us. -1: a wall is missing.
 */
/* 2: nobody yet, and there is time until then to do what every claim needs. */
int interpreter_wait_for_claim(int kernel, char **ret, size_t *ret_len, struct err *err);
void interpreter_report_ready(int kernel); /* everything is as it was told */
