/* mcp_process.h - a program that is an MCP server, started with pipes for its input and output.
 *
 * Its standard error is read as it arrives, so it cannot fill a pipe, and the end of it is kept for
 * messages. */
#pragma once

#include "core/base/err.h"
#include "core/ev/ev.h"

struct mcp_process;

struct mcp_process_spec {
    const char *const *argv; /* the program is searched in PATH */
    const char *const *env;  /* "NAME=value" in addition to the environment, or NULL */
    const char *cwd;         /* NULL: the current directory */
};

/* *ret_in and *ret_out: its output and its input; the caller closes them. */
int mcp_process_start(struct ev *ev, const struct mcp_process_spec *spec, struct mcp_process **ret, int *ret_in,
                      int *ret_out, struct err *err);
/* Ends the program, if it has not ended since its input was closed: after `grace_ms` with SIGTERM,
 * after the same time again with SIGKILL. Blocks for at most twice that time. */
void mcp_process_stop(struct mcp_process *p, unsigned grace_ms);
void mcp_process_free(struct mcp_process *p); /* stops it without a grace time */
DEFINE_AUTO(mcp_process, mcp_process_free);

/* Waits a moment for a program that closed its output; -1: it still runs. 128 + N: signal N. */
int mcp_process_exit_status(struct mcp_process *p);
/* The last lines on standard error, cleaned; "" if there are none. */
const char *mcp_process_last_words(struct mcp_process *p);
