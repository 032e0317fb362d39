/* cli.h - the `cove` command: a table of verbs, a table of options, and the implementation of each
 * verb.
 *
 * This component never raises a wall and never forks: the program in src/main passes
 * functions for that, so that the command line can be tested without privileges and does not
 * link privileged code. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

struct cli_setting { /* a setting of the server; `cove serve` has a flag for each */
    const char *name, *help;
};

struct cli_settings {
    const char *version;
    /* Starts a jailer and returns the socket to it. With `keep` the jailer and its monitor may
     * outlive this process. */
    int (*start_jailer)(const char *state_dir, bool keep, int *ret_jailer, struct err *err);
    /* Prepares an egress proxy for the sandboxes of the jailer that is started next, which starts
     * it too, and returns the engine's socket to it. Addresses of the ranges ("10.0.0.0/8,...") are
     * open. */
    int (*start_egress)(const char *open_ranges, int *ret_engine, struct err *err);
    /* Starts the monitor, which counts the denials in the sandboxes of that jailer. Denials before
     * its start are queued for it. */
    int (*start_monitor)(int *ret_monitor, struct err *err);
    /* Reads a policy by running cove-policy; *ret gets its canonical form, which the caller frees.
     * Returns 0; -1 with err; or an exit status if cove-policy has already printed the error. */
    int (*compile_policy)(const char *name, bool json, struct buf *ret, struct err *err);
    /* Directory of the `cove-VERB` programs, which implement verbs that are not built in; "" if
     * there is none. */
    const char *(*find_libexec)(void);
    const struct cli_setting *server; /* for completion; ends with a NULL name */
};

/* Returns the exit status of the process. */
int cli_main(int argc, char **argv, const struct cli_settings *settings);
