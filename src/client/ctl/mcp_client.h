/* mcp_client.h - cove mcp tools, call and read. */
#pragma once

#include "client/ctl/ctl_internal.h"

int ctl_mcp_client(struct ctl *c, const char *what, struct err *err);
/* An error if a flag of the client was given to another command of `cove mcp`, or the reverse. */
int ctl_mcp_check_flags(const struct ctl *c, bool is_client, struct err *err);
/* The program `cove`, for a command line; the caller frees it. */
char *ctl_mcp_command(void);
