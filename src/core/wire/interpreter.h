/* interpreter.h - the first words between PID 1 and an interpreter that it did not start, on the kernel's socket before
 * its protocol begins. One that has joined the sandbox:
 *
 * PID 1, once or not at all: INTERPRETER_WARM_UP in place of a length. There is time to do what every claim needs.
 * PID 1: a u32, so many bytes of environment ("NAME=value" and a zero byte each); with the first byte come descriptors:
 * the directory to work in, and, where the kernel has Landlock, the ruleset to live under.
 * The interpreter, when all of this is done: INTERPRETER_READY. The kernel stamps it with the number of its process.
 *
 * One that is a copy of another kernel, which got our three descriptors with INTERPRETER_FORK on its own socket: the
 * copy says INTERPRETER_READY, or the other says in its place why there is none: INTERPRETER_NO_PROCESSES, no more
 * processes are allowed; INTERPRETER_REFUSED and a text. */
#pragma once

#define INTERPRETER_WARM_UP UINT32_MAX
#define INTERPRETER_READY 'j'
#define INTERPRETER_NO_PROCESSES 'p'
#define INTERPRETER_REFUSED 'n'
#define INTERPRETER_REASON_MAX 160u
#define INTERPRETER_FORK \
    "{\"op\":\"fork\",\"id\":\"fork\"}\n" /* with kernel socket, standard output, standard error: its ends */
#define INTERPRETER_ENV_MAX (192u * 1024) /* what a socket's default buffer takes at once */
