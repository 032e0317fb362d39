/* mcp_print.h - prints what an MCP server answered, on standard output. The server is not
 * trusted, so its text has no control characters on a terminal or in a pipe. */
#pragma once

#include "core/base/err.h"

#include <jansson.h>

/* Blocks of content. Pictures are written to files in the directory `save`; NULL: they are not. */
int mcp_print_blocks(const json_t *blocks, const char *save, bool quiet, struct err *err);
/* The contents of a resource. */
int mcp_print_contents(const json_t *contents, const char *save, bool quiet, struct err *err);
int mcp_print_resource_list(const json_t *resources);
