/* mcp_tool.h - definitions of tools that an MCP server lists.
 *
 * The server is not trusted. A definition is bounded in bytes, depth and number of values, its
 * name is one that every model interface accepts, and the text that people and models read has
 * no control characters. Schemas stay verbatim, and a `$ref` is never fetched. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#include <jansson.h>

#define MCP_TOOL_NAME_MAX 64u
#define MCP_TOOL_BYTES_MAX (128u * 1024u) /* one definition as compact JSON */
#define MCP_TOOL_DEPTH_MAX 32u
#define MCP_TOOL_VALUES_MAX 8192u
#define MCP_TOOL_HEADERS_MAX 32u
#define MCP_TOOL_HEADER_VALUE_MAX 4096u
#define MCP_TOOL_DIGEST_SIZE 65u /* SHA-256 in hexadecimal, with the NUL */

struct mcp_tool;

/* Reads one element of `tools`. An error says why the tool is not usable; it does not name the
 * tool. */
int mcp_tool_new(const json_t *definition, struct mcp_tool **ret, struct err *err);
void mcp_tool_free(struct mcp_tool *t);
DEFINE_AUTO(mcp_tool, mcp_tool_free);

const char *mcp_tool_name(const struct mcp_tool *t);
/* Of the definition as the server sent it, independent of the order of keys. */
const char *mcp_tool_digest(const struct mcp_tool *t);
/* The definition with cleaned text, borrowed. */
json_t *mcp_tool_definition(const struct mcp_tool *t);

/* Appends "Mcp-Param-NAME: VALUE" lines, each NUL-terminated, for the arguments that the schema
 * mirrors into headers (x-mcp-header); *ret_count of them. */
int mcp_tool_headers(const struct mcp_tool *t, const json_t *arguments, struct buf *ret, size_t *ret_count,
                     struct err *err);

bool mcp_tool_name_valid(const char *name);
/* Appends one header line, NUL-terminated. A value that a header cannot carry is encoded as
 * =?base64?...?=. */
void mcp_header_add(struct buf *out, const char *name, const char *value);
/* A copy of text of a server for people: control characters other than line feed and tab become
 * question marks, and at most `max` bytes are kept. The caller frees it. */
char *mcp_clean_text(const char *text, size_t max);
