/* mcp_pipe.h - lines to and from an MCP server over two descriptors (stdio): one message is one
 * line.
 *
 * The server is not trusted: a line and the unsent bytes are bounded. Its process belongs to the
 * caller. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#define MCP_PIPE_UNSENT_MAX (16u * 1024u * 1024u) /* bytes that the server has not read */

struct mcp_pipe;

struct mcp_pipe_ops {
    void (*on_line)(void *arg, const char *text, size_t len); /* not empty; may end the pipe */
    /* The server closed its output, or broke a bound. The last callback. */
    void (*on_closed)(void *arg, const struct err *err);
};

/* Takes both descriptors, also on failure; they may be the same. */
int mcp_pipe_new(struct ev *ev, int in_fd, int out_fd, const struct mcp_pipe_ops *ops, void *arg, struct mcp_pipe **ret,
                 struct err *err);
void mcp_pipe_free(struct mcp_pipe *p); /* not in on_line */
/* Sends text and a line feed; -1: the server does not read. */
int mcp_pipe_send(struct mcp_pipe *p, const char *text, size_t len, struct err *err);
/* Reports nothing more, and closes the output, which asks the server to exit. */
void mcp_pipe_close(struct mcp_pipe *p);
