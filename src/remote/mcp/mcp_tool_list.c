/* The tools of one server, and which of their definitions the caller has seen.
 *
 * The caller accepts definitions when it lists them. Before a call the client lists the tools
 * again if its copy is old or the server says that it has changed; such a list changes what the
 * server has, but not what the caller accepted. So a tool whose definition changed in between is
 * refused.
 *
 * Two tools of one name are both dropped: neither can be called without the risk of the other. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#define FRESH_MS_MIN 5000u
#define FRESH_MS_MAX 60000u /* also without a TTL of the server */
#define REFRESH_MS 30000u

static void mcp_tool_list_clear(struct mcp_client *c)
{
    for (size_t i = 0; i < c->tool_count; i++)
        mcp_tool_free(c->tools[i]);
    free(c->tools);
    c->tools = NULL;
    c->tool_count = 0;
    json_decref(c->dropped);
    c->dropped = NULL;
}

void mcp_tool_list_done(struct mcp_client *c)
{
    mcp_tool_list_clear(c);
    json_decref(c->accepted);
}

static void mcp_tool_list_drop(struct mcp_client *c, const json_t *definition, const char *why)
{
    const char *name = json_string_value(json_object_get(definition, "name"));
    auto_free char *clean = mcp_clean_text(name ? name : "", MCP_TOOL_NAME_MAX);
    auto_free char *reason = mcp_clean_text(why, sizeof(((struct err *)NULL)->msg));

    json_array_append_new(c->dropped, json_pack("{s:s, s:s}", "name", clean, "reason", reason));
}

static bool mcp_tool_list_is_repeated(const json_t *names, const char *name)
{
    return json_integer_value(json_object_get(names, name)) > 1;
}

static json_t *mcp_tool_list_count_names(const json_t *items)
{
    json_t *names = json_object();
    const json_t *item;
    size_t i;

    json_array_foreach(items, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));

        if (name)
            json_object_set_new(names, name, json_integer(json_integer_value(json_object_get(names, name)) + 1));
    }
    return names;
}

static void mcp_tool_list_accept(struct mcp_client *c)
{
    json_decref(c->accepted);
    c->accepted = json_object();
    for (size_t i = 0; i < c->tool_count; i++)
        json_object_set_new(c->accepted, mcp_tool_name(c->tools[i]), json_string(mcp_tool_digest(c->tools[i])));
}

void mcp_tool_list_set(struct mcp_client *c, const json_t *items, const json_t *last_page, bool is_accepted)
{
    const json_t *item, *ttl = json_object_get(last_page, "ttlMs");
    json_t *names = mcp_tool_list_count_names(items);
    size_t i;

    mcp_tool_list_clear(c);
    c->dropped = json_array();
    c->tools = mem_new_array(struct mcp_tool *, json_array_size(items) + 1);
    json_array_foreach(items, i, item)
    {
        struct mcp_tool *tool = NULL;
        struct err err = { 0 };

        if (mcp_tool_new(item, &tool, &err) < 0) {
            mcp_tool_list_drop(c, item, err.msg);
        } else if (mcp_tool_list_is_repeated(names, mcp_tool_name(tool))) {
            mcp_tool_list_drop(c, item, "the server lists several tools of this name");
            mcp_tool_free(tool);
        } else {
            c->tools[c->tool_count++] = tool;
        }
    }
    json_decref(names);
    if (is_accepted || !c->accepted)
        mcp_tool_list_accept(c);
    uint64_t ms = json_is_integer(ttl) && json_integer_value(ttl) >= 0 ? (uint64_t)json_integer_value(ttl)
                                                                       : FRESH_MS_MAX;
    ms = max_u64(FRESH_MS_MIN, min_u64(ms, FRESH_MS_MAX));
    c->tools_fresh_ns = ev_now(c->ev) + ms * NS_PER_MS;
}

json_t *mcp_tool_list_json(const struct mcp_client *c)
{
    json_t *tools = json_array();

    for (size_t i = 0; i < c->tool_count; i++) {
        json_t *tool = json_copy(mcp_tool_definition(c->tools[i]));

        json_object_set_new(tool, "digest", json_string(mcp_tool_digest(c->tools[i])));
        json_array_append_new(tools, tool);
    }
    return json_pack("{s:o, s:O}", "tools", tools, "dropped", c->dropped);
}

/* --- calls --- */

bool mcp_tool_list_is_fresh(const struct mcp_client *c)
{
    return c->tools && ev_now(c->ev) < c->tools_fresh_ns;
}

static void mcp_tool_list_on_refreshed(void *arg, const json_t *result UNUSED, const struct err *err)
{
    struct mcp_client *c = arg;

    c->is_refreshing = false;
    for (struct mcp_client_call *call = c->calls; call; call = call->next) {
        if (call->state != MCP_REQUEST_WAITING_TOOLS)
            continue;
        if (err)
            mcp_client_call_fail(call, err);
        else
            mcp_client_call_proceed(call);
    }
}

void mcp_tool_list_refresh(struct mcp_client *c)
{
    static const struct mcp_client_call_ops ops = { .on_done = mcp_tool_list_on_refreshed };

    if (c->is_refreshing)
        return;
    c->is_refreshing = true;
    mcp_client_call_start_internal(c, MCP_LIST_TOOLS, REFRESH_MS, &ops);
}

static int mcp_tool_list_missing(const struct mcp_client *c, const char *name, struct err *err)
{
    const json_t *d;
    struct suggest near;
    size_t i;

    json_array_foreach(c->dropped, i,
                       d) if (str_eq(json_string_value(json_object_get(d, "name")),
                                     name)) return err_set(err, ERR_MCP_TOOL, "tool '%s': it cannot be used: %s", name,
                                                           json_string_value(json_object_get(d, "reason")));
    suggest_init(&near, name);
    for (i = 0; i < c->tool_count; i++)
        suggest_offer(&near, mcp_tool_name(c->tools[i]));
    if (near.best)
        return err_set(err, ERR_MISSING, "tool '%.64s': the server has no tool of this name; did you mean '%s'?", name,
                       near.best);
    return err_set(err, ERR_MISSING, "tool '%.64s': the server has no tool of this name", name);
}

int mcp_tool_list_find(const struct mcp_client *c, const char *name, const struct mcp_tool **ret, struct err *err)
{
    const struct mcp_tool *tool = NULL;

    for (size_t i = 0; i < c->tool_count && !tool; i++)
        if (str_eq(mcp_tool_name(c->tools[i]), name))
            tool = c->tools[i];
    if (!tool)
        return mcp_tool_list_missing(c, name, err);
    const char *accepted = json_string_value(json_object_get(c->accepted, name));
    if (!accepted || !str_eq(accepted, mcp_tool_digest(tool)))
        return err_set(err, ERR_MCP_TOOL_CHANGED,
                       "tool '%s': the server %s its definition after the tools were listed; "
                       "list the tools again and check it",
                       name, accepted ? "changed" : "added");
    *ret = tool;
    return 0;
}
