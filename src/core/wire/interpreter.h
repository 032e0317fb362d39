/* interpreter.h - the handshake between PID 1 and an interpreter that PID 1 did not start. It takes
 * place on the language kernel's socket before the kernel protocol begins.
 *
 * An interpreter that joined the sandbox (a fork of the zygote):
 * 1. PID 1 may send INTERPRETER_WARM_UP once, in place of a length: the interpreter has time to do
 *    the work that every claim needs.
 * 2. PID 1 sends a u32, the number of bytes of environment that follow ("NAME=value" and a zero
 *    byte each). Descriptors come with the first byte: the working directory and, if the kernel has
 *    Landlock, the ruleset to apply.
 * 3. The interpreter sends INTERPRETER_READY when all of this is done. The kernel adds the pid of
 *    the sender.
 *
 * An interpreter that is a copy of another language kernel: PID 1 sends INTERPRETER_FORK with three
 * descriptors on the other kernel's socket. The copy sends INTERPRETER_READY. If there is no copy,
 * the other kernel sends INTERPRETER_NO_PROCESSES (the process limit is reached), or
 * INTERPRETER_REFUSED and a text. */
#pragma once

#define INTERPRETER_WARM_UP UINT32_MAX
#define INTERPRETER_READY 'j'
#define INTERPRETER_NO_PROCESSES 'p'
#define INTERPRETER_REFUSED 'n'
#define INTERPRETER_REASON_MAX 160u
/* with three descriptors, the copy's ends of: kernel socket, standard output, standard error */
#define INTERPRETER_FORK "{\"op\":\"fork\",\"id\":\"fork\"}\n"
#define INTERPRETER_ENV_MAX (192u * 1024) /* fits into the default buffer of a socket */
