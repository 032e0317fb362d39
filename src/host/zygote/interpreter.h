/* interpreter.h - the time between fork and first protocol line, in which PID 1 of the sandbox
 * sends the claim. */
#pragma once

#include "core/base/err.h"

/* Waits for the claim, then enters the given directory and applies Landlock if the kernel has it.
 * *ret is the environment: "NAME=value" strings, each with a zero byte; the caller frees it.
 * Returns 0: claimed. 1: PID 1 closed the socket. -1: a wall is missing. 2: no claim yet; the
 * caller may warm up. */
int interpreter_wait_for_claim(int kernel, char **ret, size_t *ret_len, struct err *err);
void interpreter_report_ready(int kernel); /* the claim is applied */
