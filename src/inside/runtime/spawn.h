/* spawn.h - starting one program: pipes or a terminal, a clean child, and a word about whether exec worked. */
#pragma once

#include "core/base/err.h"
#include "inside/runtime/path.h"
#include "core/wire/rt.h"

struct spawned_program { /* descriptors of the runtime's side, non-blocking, -1 where there is none */
    pid_t pid;
    int in;           /* writes to standard input */
    int out;          /* reads standard output, or the terminal */
    int err;          /* reads standard error */
    int kernel;       /* reads a kernel's channel, */
    int kernel_in;    /* and writes it */
    int start_result; /* becomes readable when exec worked (end of file) or failed (see spawn_start_result); -1: it
                         worked */
};

/* env is complete. `alone`: no process but this one was ever in the sandbox. Fails with PIDS_LIMIT when the sandbox is
 * at its process limit. */
int spawn_start(const struct paths *paths, const struct rt_exec *req, const char *const *env, bool alone,
                struct spawned_program *ret, struct err *err);
/* The descriptors of a kernel that is not started here: ours, and its own (socket, output, errors). */
#define SPAWN_KERNEL_FDS 3
int spawn_open_kernel_fds(struct spawned_program *ret, int theirs[SPAWN_KERNEL_FDS], struct err *err);
void spawn_close(struct spawned_program *sp); /* our descriptors */
/* 1: the program runs. 0: not known yet. -1: it could not be started, and *err says why. */
int spawn_start_result(int verdict, struct err *err);
