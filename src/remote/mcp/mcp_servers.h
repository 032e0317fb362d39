/* mcp_servers.h - several MCP servers with one namespace of tools.
 *
 * With one server its tools keep their names. With several, every tool is named SERVER__TOOL,
 * also if no other server has it: otherwise the meaning of a name would depend on which servers
 * answer. Names of servers contain no "__", so a name belongs to one server only. Servers are
 * independent: a slow or dead one delays its own calls only. */
#pragma once

#include "remote/mcp/mcp_client.h"

#define MCP_SERVERS_MAX 32u
#define MCP_SERVER_NAME_MAX 32u

struct mcp_servers;

struct mcp_servers_ops { /* each may be NULL; as in mcp_client.h, with the name of the server */
    void (*on_ready)(void *arg, const char *server, const struct err *err);
    void (*on_closed)(void *arg, const char *server, const struct err *err);
    void (*on_tools_changed)(void *arg, const char *server);
    void (*on_log)(void *arg, const char *server, const char *level, const char *text);
    void (*on_question)(void *arg, const char *server, struct mcp_question *q);
};

struct mcp_servers *mcp_servers_new(struct ev *ev, const struct mcp_servers_ops *ops, void *arg);
void mcp_servers_free(struct mcp_servers *s); /* no callback follows */
DEFINE_AUTO(mcp_servers, mcp_servers_free);

/* 1 to 32 of A-Z a-z 0-9 _ -, without "__" and without '_' at either end. */
bool mcp_server_name_valid(const char *name);
int mcp_servers_add(struct mcp_servers *s, const char *name, const struct mcp_client_spec *spec, struct err *err);
/* The next server of this name is opened in the same era. */
void mcp_servers_remove(struct mcp_servers *s, const char *name);
/* The same as for one client. */
void mcp_servers_end_sessions(struct mcp_servers *s);
bool mcp_servers_are_sending(const struct mcp_servers *s);
size_t mcp_servers_count(const struct mcp_servers *s);
struct mcp_client *mcp_servers_find(const struct mcp_servers *s, const char *name); /* NULL: none */

/* Lists the tools of all servers. on_done gets, once all have answered or failed: {"tools": [a
 * definition with the name of the namespace, "server" and "tool"], "dropped": [{"server",
 * "name", "reason"}], "servers": [{"name", "version", "tools"} or {"name", "error": {"code",
 * "message"}}]}. */
void mcp_servers_list_tools(struct mcp_servers *s, uint32_t timeout_ms,
                            void (*on_done)(void *arg, const json_t *result), void *arg);

/* The server of a tool, and the tool's name there, borrowed from `name`. */
int mcp_servers_resolve(const struct mcp_servers *s, const char *name, struct mcp_client **ret, const char **ret_tool,
                        struct err *err);
