/* A listing keeps one slot for each server that it asked, in the order in which the servers were
 * added, so its result does not depend on which server answered first. A server that is removed
 * during a listing has an error in its slot. */
#include "remote/mcp/mcp_servers.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_tool.h"

struct mcp_server {
    struct mcp_servers *set;
    char name[MCP_SERVER_NAME_MAX + 1];
    struct mcp_client *client;
};

struct mcp_listing;

struct mcp_listing_slot {
    struct mcp_listing *listing;
    char name[MCP_SERVER_NAME_MAX + 1];
    const struct mcp_server *server; /* NULL: removed, or its answer is known */
    struct mcp_client_call *call;    /* NULL: its answer is known */
    char version[16];
    json_t *result;
    struct err err;
};

struct mcp_listing {
    struct mcp_listing *next;
    struct mcp_servers *set;
    void (*on_done)(void *arg, const json_t *result);
    void *arg;
    struct mcp_listing_slot slots[MCP_SERVERS_MAX];
    size_t n, pending;
    struct ev_defer done_defer;
};

struct mcp_servers {
    struct ev *ev;
    struct mcp_servers_ops ops;
    void *arg;
    struct mcp_server *servers[MCP_SERVERS_MAX];
    size_t n;
    json_t *eras; /* name: enum mcp_era of an earlier server of this name */
    struct mcp_listing *listings;
};

/* --- names --- */

bool mcp_server_name_valid(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= MCP_SERVER_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n &&
           !strstr(name, "__") && name[0] != '_' && name[n - 1] != '_';
}

static struct mcp_server *mcp_servers_find_name(const struct mcp_servers *s, const char *name, size_t len)
{
    for (size_t i = 0; i < s->n; i++)
        if (strlen(s->servers[i]->name) == len && memcmp(s->servers[i]->name, name, len) == 0)
            return s->servers[i];
    return NULL;
}

struct mcp_client *mcp_servers_find(const struct mcp_servers *s, const char *name)
{
    const struct mcp_server *server = mcp_servers_find_name(s, name, strlen(name));

    return server ? server->client : NULL;
}

void mcp_servers_end_sessions(struct mcp_servers *s)
{
    for (size_t i = 0; i < s->n; i++)
        mcp_client_end_session(s->servers[i]->client);
}

bool mcp_servers_are_sending(const struct mcp_servers *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (mcp_client_is_sending(s->servers[i]->client))
            return true;
    return false;
}

size_t mcp_servers_count(const struct mcp_servers *s)
{
    return s->n;
}

int mcp_servers_resolve(const struct mcp_servers *s, const char *name, struct mcp_client **ret, const char **ret_tool,
                        struct err *err)
{
    const char *sep = strstr(name, "__");
    const struct mcp_server *server = sep ? mcp_servers_find_name(s, name, (size_t)(sep - name)) : NULL;

    if (server) {
        *ret = server->client;
        *ret_tool = sep + 2;
        return 0;
    }
    if (s->n == 1) {
        *ret = s->servers[0]->client;
        *ret_tool = name;
        return 0;
    }
    err_set(err, ERR_MISSING,
            "tool '%.100s': there are %zu servers, and the name begins with none of them; name it "
            "SERVER__TOOL",
            name, s->n);
    if (err)
        str_strip_control_chars(err->msg);
    return -1;
}

/* --- listings --- */

static void mcp_listing_free(struct mcp_listing *l)
{
    list_remove(&l->set->listings, l);
    ev_defer_clear(l->set->ev, &l->done_defer);
    for (size_t i = 0; i < l->n; i++) {
        mcp_client_call_cancel(l->slots[i].call);
        json_decref(l->slots[i].result);
    }
    free(l);
}

static void mcp_listing_add_tools(const struct mcp_listing *l, const struct mcp_listing_slot *slot, json_t *tools,
                                  json_t *dropped)
{
    const json_t *tool;
    size_t i;

    json_array_foreach(json_object_get(slot->result, "tools"), i, tool)
    {
        const char *own = json_string_value(json_object_get(tool, "name"));
        auto_free char *name = l->n == 1 ? str_dup(own) : str_printf("%s__%s", slot->name, own);

        if (!mcp_tool_name_valid(name)) {
            json_array_append_new(dropped, json_pack("{s:s, s:s, s:s}", "server", slot->name, "name", own, "reason",
                                                     "its name with that of the server has more than 64 characters"));
            continue;
        }
        json_t *copy = json_copy((json_t *)tool);
        json_object_set_new(copy, "name", json_string(name));
        json_object_set_new(copy, "server", json_string(slot->name));
        json_object_set_new(copy, "tool", json_string(own));
        json_array_append_new(tools, copy);
    }
    json_array_foreach(json_object_get(slot->result, "dropped"), i, tool)
    {
        json_t *copy = json_copy((json_t *)tool);

        json_object_set_new(copy, "server", json_string(slot->name));
        json_array_append_new(dropped, copy);
    }
}

static json_t *mcp_listing_result(const struct mcp_listing *l)
{
    json_t *tools = json_array(), *dropped = json_array(), *servers = json_array();

    for (size_t i = 0; i < l->n; i++) {
        const struct mcp_listing_slot *slot = &l->slots[i];

        mcp_listing_add_tools(l, slot, tools, dropped);
        if (slot->result)
            json_array_append_new(servers,
                                  json_pack("{s:s, s:s, s:I}", "name", slot->name, "version", slot->version, "tools",
                                            (json_int_t)json_array_size(json_object_get(slot->result, "tools"))));
        else
            json_array_append_new(servers, json_pack("{s:s, s:{s:s, s:s}}", "name", slot->name, "error", "code",
                                                     err_info(slot->err.id)->code, "message", slot->err.msg));
    }
    return json_pack("{s:o, s:o, s:o}", "tools", tools, "dropped", dropped, "servers", servers);
}

static void mcp_listing_on_done(void *arg)
{
    struct mcp_listing *l = arg;
    void (*on_done)(void *, const json_t *) = l->on_done;
    void *done_arg = l->arg;
    json_t *result = mcp_listing_result(l);

    mcp_listing_free(l);
    on_done(done_arg, result);
    json_decref(result);
}

static void mcp_listing_settle(struct mcp_listing_slot *slot)
{
    struct mcp_listing *l = slot->listing;

    slot->call = NULL;
    slot->server = NULL;
    if (--l->pending == 0)
        ev_defer(l->set->ev, &l->done_defer, mcp_listing_on_done, l);
}

static void mcp_listing_on_answer(void *arg, const json_t *result, const struct err *err)
{
    struct mcp_listing_slot *slot = arg;

    if (err)
        slot->err = *err;
    slot->result = result ? json_incref((json_t *)result) : NULL;
    str_copy(slot->version, sizeof(slot->version), mcp_client_version(slot->server->client));
    mcp_listing_settle(slot);
}

void mcp_servers_list_tools(struct mcp_servers *s, uint32_t timeout_ms,
                            void (*on_done)(void *arg, const json_t *result), void *arg)
{
    static const struct mcp_client_call_ops ops = { .on_done = mcp_listing_on_answer };
    const struct mcp_client_call_spec spec = { .method = MCP_LIST_TOOLS, .timeout_ms = timeout_ms };
    struct mcp_listing *l = mem_new(struct mcp_listing);

    l->set = s;
    l->on_done = on_done;
    l->arg = arg;
    l->n = s->n;
    l->pending = s->n + 1;
    list_push(&s->listings, l);
    for (size_t i = 0; i < s->n; i++) {
        struct mcp_listing_slot *slot = &l->slots[i];

        slot->listing = l;
        slot->server = s->servers[i];
        str_copy(slot->name, sizeof(slot->name), slot->server->name);
        if (mcp_client_call_start(slot->server->client, &spec, &ops, slot, &slot->call, &slot->err) < 0)
            mcp_listing_settle(slot);
    }
    if (--l->pending == 0)
        ev_defer(s->ev, &l->done_defer, mcp_listing_on_done, l);
}

static void mcp_listing_drop_server(struct mcp_listing *l, const struct mcp_server *server)
{
    for (size_t i = 0; i < l->n; i++) {
        struct mcp_listing_slot *slot = &l->slots[i];

        if (slot->server != server)
            continue;
        mcp_client_call_cancel(slot->call);
        err_set(&slot->err, ERR_MCP_ENDED, "the server was removed");
        mcp_listing_settle(slot);
    }
}

/* --- events of the servers --- */

static void mcp_server_on_ready(void *arg, const struct err *err)
{
    struct mcp_server *server = arg;
    struct mcp_servers *s = server->set;

    if (!err)
        json_object_set_new(s->eras, server->name, json_integer(mcp_client_era(server->client)));
    if (s->ops.on_ready)
        s->ops.on_ready(s->arg, server->name, err);
}

static void mcp_server_on_closed(void *arg, const struct err *err)
{
    struct mcp_server *server = arg;

    if (server->set->ops.on_closed)
        server->set->ops.on_closed(server->set->arg, server->name, err);
}

static void mcp_server_on_tools_changed(void *arg)
{
    struct mcp_server *server = arg;

    if (server->set->ops.on_tools_changed)
        server->set->ops.on_tools_changed(server->set->arg, server->name);
}

static void mcp_server_on_log(void *arg, const char *level, const char *text)
{
    struct mcp_server *server = arg;

    if (server->set->ops.on_log)
        server->set->ops.on_log(server->set->arg, server->name, level, text);
}

static void mcp_server_on_question(void *arg, struct mcp_question *q)
{
    struct mcp_server *server = arg;

    if (server->set->ops.on_question)
        server->set->ops.on_question(server->set->arg, server->name, q);
    else
        mcp_question_refuse(q);
}

/* --- the set --- */

struct mcp_servers *mcp_servers_new(struct ev *ev, const struct mcp_servers_ops *ops, void *arg)
{
    struct mcp_servers *s = mem_new(struct mcp_servers);

    s->ev = ev;
    s->ops = *ops;
    s->arg = arg;
    s->eras = json_object();
    return s;
}

static void mcp_server_free(struct mcp_server *server)
{
    mcp_client_free(server->client);
    free(server);
}

void mcp_servers_free(struct mcp_servers *s)
{
    if (!s)
        return;
    while (s->listings)
        mcp_listing_free(s->listings);
    for (size_t i = 0; i < s->n; i++)
        mcp_server_free(s->servers[i]);
    json_decref(s->eras);
    free(s);
}

static int mcp_servers_check(const struct mcp_servers *s, const char *name, struct err *err)
{
    if (!mcp_server_name_valid(name)) {
        err_set(err, ERR_INVALID, "server '%.60s': the name is not valid; use 1 to %u of A-Z a-z 0-9 _ -, without '__'",
                name, MCP_SERVER_NAME_MAX);
        if (err)
            str_strip_control_chars(err->msg);
        return -1;
    }
    if (mcp_servers_find_name(s, name, strlen(name)))
        return err_set(err, ERR_EXISTS, "server '%s': there is another server of this name; choose another name", name);
    if (s->n == MCP_SERVERS_MAX)
        return err_set(err, ERR_LIMIT, "server '%s': there are %u servers already, which is the maximum", name,
                       MCP_SERVERS_MAX);
    return 0;
}

int mcp_servers_add(struct mcp_servers *s, const char *name, const struct mcp_client_spec *spec, struct err *err)
{
    static const struct mcp_client_ops ops = { .on_ready = mcp_server_on_ready,
                                               .on_closed = mcp_server_on_closed,
                                               .on_tools_changed = mcp_server_on_tools_changed,
                                               .on_log = mcp_server_on_log,
                                               .on_question = mcp_server_on_question };
    struct mcp_client_spec own = *spec;

    if (mcp_servers_check(s, name, err) < 0)
        return -1;
    struct mcp_server *server = mem_new(struct mcp_server);
    server->set = s;
    str_copy(server->name, sizeof(server->name), name);
    if (own.era == MCP_ERA_UNKNOWN)
        own.era = (enum mcp_era)json_integer_value(json_object_get(s->eras, name));
    if (mcp_client_new(s->ev, &own, &ops, server, &server->client, err) < 0) {
        free(server);
        return err_wrap(err, "server '%s'", name);
    }
    s->servers[s->n++] = server;
    return 0;
}

void mcp_servers_remove(struct mcp_servers *s, const char *name)
{
    struct mcp_server *server = mcp_servers_find_name(s, name, strlen(name));
    size_t i = 0;

    if (!server)
        return;
    for (struct mcp_listing *l = s->listings; l; l = l->next)
        mcp_listing_drop_server(l, server);
    while (s->servers[i] != server)
        i++;
    memmove(&s->servers[i], &s->servers[i + 1], (s->n - i - 1) * sizeof(struct mcp_server *));
    s->n--;
    mcp_server_free(server);
}
