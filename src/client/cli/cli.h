/* cli.h - the `cove` command: one table of verbs, one of options, and what each verb does.
 *
 * This room never raises a wall and never forks: the program in src/main hands it functions for
 * that, so that the command line can be tested without privilege and the privileged code stays out
 * of its reach. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

struct cli_setting { /* of the server, which has a flag for each */
    const char *name, *help;
};

struct cli_settings {
    const char *version;
    /* Starts a jailer and returns the socket to it. With `keep` it and its monitor may outlive
     * us. */
    int (*start_jailer)(const char *state_dir, bool keep, int *ret_jailer, struct err *err);
    /* Starts the monitor of what the sandboxes of that jailer are refused. What they tell it before
     * waits for it. */
    int (*start_monitor)(int *ret_monitor, struct err *err);
    /* The socket of the jailer that holds a kept sandbox. */
    int (*connect_kept)(const char *state_dir, const char *id, int *ret_sock, struct err *err);
    /* Calls `each` for every kept sandbox, with the time since which it is kept. */
    int (*list_kept)(const char *state_dir, void (*each)(void *arg, const char *id, uint64_t since_real_ns), void *arg,
                     struct err *err);
    /* Reads a policy by running cove-policy: its canonical form in *ret, which the caller frees.
     * Returns 0, or -1 with err, or the exit status when cove-policy has told the user itself what
     * is wrong. */
    int (*compile_policy)(const char *name, bool json, struct buf *ret, struct err *err);
    /* Where `cove-VERB` programs are installed: verbs that this program does not know are looked
     * for there. "" when there is no such place. */
    const char *(*find_libexec)(void);
    const struct cli_setting *server; /* for completion; ends with a NULL name */
};

/* Returns the exit status of the process. */
int cli_main(int argc, char **argv, const struct cli_settings *settings);
