/* mcp_elicit.h - answers to a question that an MCP server asks with a schema (elicitation). */
#pragma once

#include "core/base/err.h"

#include <jansson.h>

/* The content that accepts every default of `params.requestedSchema`. An error names the first
 * required property without a default. The caller owns *ret. */
int mcp_elicit_defaults(const json_t *params, json_t **ret, struct err *err);
