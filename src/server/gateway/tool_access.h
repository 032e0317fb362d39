/* tool_access.h - which scopes and which rate limit a tool call needs, and what the audit trail
 * records of it, for every interface through which tools are called. */
#pragma once

#include "server/gateway/gateway.h"
#include "service/tools/tools.h"

/* The scopes for bits of enum tool_right. */
uint32_t tool_access_scopes(unsigned rights);
/* Checks the scopes of the request's principal, and counts a tool that executes against the rate
 * limit of executions (with Retry-After if it is exceeded). Call it once for each call. */
int tool_access_require(struct http_req *req, const struct tool *tool, struct err *err);
/* Adds the tool as a target of the request's audit record, and its arguments as content. */
void tool_access_record(const struct http_req *req, const struct tool *tool, const json_t *arguments);
