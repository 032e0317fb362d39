/* mcp_config.h - a file that lists MCP servers, in the form that Claude Code, Cursor and others
 * use:
 *
 *     {"mcpServers": {"NAME": {"command": "npx", "args": ["..."], "env": {"KEY": "${KEY}"},
 *                              "cwd": "..."},
 *                     "NAME": {"url": "https://...",
 *                              "headers": {"Authorization": "Bearer ${TOKEN}"}}}}
 *
 * ${NAME}, ${env:NAME} and ${NAME:-default} are replaced from the environment. A server with
 * "disabled": true is left out, and keys that only other programs know are ignored. */
#pragma once

#include "core/base/err.h"

#include <stddef.h>

#define MCP_CONFIG_BYTES_MAX (256u * 1024u)
#define MCP_CONFIG_WORDS_MAX 256u /* of one command, or headers, or variables */

struct mcp_config_server { /* all lists end with NULL */
    char *name;
    char *url;      /* NULL: a program */
    char **headers; /* "Name: value" */
    char **command; /* the program and its arguments */
    char **env;     /* "NAME=value" */
    char *cwd;      /* NULL: that of the caller */
};

struct mcp_config {
    struct mcp_config_server *servers;
    size_t n;
};

/* `getenv_fn` is the environment. An error names the server and the key. */
int mcp_config_parse(const char *text, size_t len, char *(*getenv_fn)(const char *name), struct mcp_config *ret,
                     struct err *err);
void mcp_config_done(struct mcp_config *c);
