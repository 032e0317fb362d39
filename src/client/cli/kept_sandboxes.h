/* kept_sandboxes.h - the sandboxes of this host that `cove run --keep` left frozen. */
#pragma once

#include "client/cli/args.h"

#include "core/base/err.h"

#define KEPT_COMMAND_TIMEOUT_MS 3600000 /* of a command without --timeout */

/* The functions that know the sockets of kept sandboxes; src/main supplies them. `dir` is the state
 * directory of `cove run`. */
struct kept_access {
    /* Connects to the jailer that holds the sandbox. */
    int (*connect)(const char *dir, const char *id, int *ret_sock, struct err *err);
    /* Calls `each` for every kept sandbox, with the wall-clock time at which it was kept. */
    int (*list)(const char *dir, void (*each)(void *arg, const char *id, uint64_t since_real_ns), void *arg,
                struct err *err);
};

struct kept_command {
    const char *const *argv; /* borrowed; NULL-terminated */
    char *cwd;               /* NULL: /workspace */
    char **env;              /* "NAME=value", NULL-terminated; NULL: none */
    uint64_t wall_ms;
    bool tty, input, quiet; /* input: send standard input */
};

/* Fills in cwd, env, wall_ms and quiet from the flags. */
int kept_command_read(const struct args *a, struct kept_command *ret, struct err *err);
void kept_command_done(struct kept_command *command);

/* Thaws the sandbox, runs the command with the standard streams of this process, and freezes the
 * sandbox again. Returns the exit status, or -1 with *err. */
int kept_sandbox_exec(const struct kept_access *access, const char *dir, const char *id,
                      const struct kept_command *command, struct err *err);
int kept_sandbox_remove(const struct kept_access *access, const char *dir, const char *id, struct err *err);
