/* spawn.h - starting one program: pipes or a terminal, a clean child, and a word about whether exec worked. */
#pragma once

#include "base/err.h"
#include "runtime/path.h"
#include "wire/rt.h"

struct spawned { /* descriptors of the runtime's side, non-blocking, -1 where there is none */
    pid_t pid;
    int in;        /* writes to standard input */
    int out;       /* reads standard output, or the terminal */
    int err;       /* reads standard error */
    int kernel;    /* reads a kernel's channel, */
    int kernel_in; /* and writes it */
    int verdict;   /* becomes readable when exec worked (end of file) or failed (see spawn_verdict); -1: it worked */
};

/* env is complete. `alone`: no process but this one was ever in the sandbox. Fails with PIDS_LIMIT when the sandbox is
 * at its process limit. */
int spawn_start(const struct paths *paths, const struct rt_exec *req, const char *const *env, bool alone,
                struct spawned *ret, struct err *err);
/* The descriptors of a kernel that is not started here: ours, and its own (socket, output, errors). */
#define SPAWN_KERNEL_ENDS 3
int spawn_kernel_ends(struct spawned *ret, int theirs[SPAWN_KERNEL_ENDS], struct err *err);
void spawn_close(struct spawned *sp); /* our descriptors */
/* 1: the program runs. 0: not known yet. -1: it could not be started, and *err says why. */
int spawn_verdict(int verdict, struct err *err);
