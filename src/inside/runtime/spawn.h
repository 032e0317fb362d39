/* spawn.h - starts one program: pipes or a terminal, a clean child, and a report whether exec
 * succeeded. */
#pragma once

#include "core/base/err.h"
#include "inside/runtime/path.h"
#include "core/wire/rt.h"

/* Descriptors of the runtime's side, non-blocking; -1: none. */
struct spawned_program {
    pid_t pid;
    int in;        /* writes to standard input */
    int out;       /* reads standard output, or the terminal */
    int err;       /* reads standard error */
    int kernel;    /* reads from the language kernel */
    int kernel_in; /* writes to the language kernel */
    /* Readable when exec succeeded (end of file) or failed (see spawn_start_result); -1: it
     * succeeded. */
    int start_result;
};

/* `env` is complete. `alone`: no other process ever existed in the sandbox. Fails with
 * ERR_PIDS_LIMIT if the sandbox is at its process limit. */
int spawn_start(const struct paths *paths, const struct rt_exec *req, const char *const *env, bool alone,
                struct spawned_program *ret, struct err *err);
/* Opens the descriptors of a language kernel that is not started here: ours in *ret, its own in
 * `theirs` (socket, stdout, stderr). */
#define SPAWN_KERNEL_FDS 3
int spawn_open_kernel_fds(struct spawned_program *ret, int theirs[SPAWN_KERNEL_FDS], struct err *err);
void spawn_close(struct spawned_program *sp); /* our descriptors */
/* 1: the program runs. 0: not known yet. -1: it could not be started, and err is set. */
int spawn_start_result(int verdict, struct err *err);
