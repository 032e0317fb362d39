/* Results. A result without resultType is complete; "input_required" starts a round of
 * questions; any other type belongs to an extension that this client did not declare. Lists are
 * collected over their pages, which a server may not let run on without end. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/str.h"

#define CURSOR_MAX 4096u

static const char *mcp_result_list_key(enum mcp_client_call_kind m)
{
    switch (m) {
    case MCP_LIST_TOOLS:
        return "tools";
    case MCP_LIST_RESOURCES:
        return "resources";
    case MCP_LIST_TEMPLATES:
        return "resourceTemplates";
    case MCP_LIST_PROMPTS:
        return "prompts";
    default:
        return NULL;
    }
}

/* --- lists --- */

static int mcp_result_add_page(struct mcp_client_call *call, const json_t *result, const char *key, struct err *err)
{
    const char *method = mcp_client_call_method(call->method);
    json_t *items = json_object_get(result, key), *item;
    size_t i;

    if (!json_is_array(items))
        return err_set(err, ERR_MCP_PROTOCOL, "%s: the result has no list '%s'", method, key);
    if (!call->items)
        call->items = json_array();
    call->item_bytes += json_dumpb(items, NULL, 0, JSON_COMPACT);
    if (call->item_bytes > MCP_LIST_BYTES_MAX)
        return err_set(err, ERR_MCP_LIMIT, "%s: the list has more than %llu bytes", method, MCP_LIST_BYTES_MAX);
    if (json_array_size(call->items) + json_array_size(items) > MCP_ITEMS_MAX)
        return err_set(err, ERR_MCP_LIMIT, "%s: the list has more than %u entries", method, MCP_ITEMS_MAX);
    json_array_foreach(items, i, item) json_array_append(call->items, item);
    return 0;
}

/* Returns 1 if another page was asked for. */
static int mcp_result_next_page(struct mcp_client_call *call, const json_t *result, struct err *err)
{
    const json_t *next = json_object_get(result, "nextCursor");
    const char *cursor = json_string_value(next), *method = mcp_client_call_method(call->method);

    if (!next || json_is_null(next))
        return 0;
    if (!cursor || strlen(cursor) > CURSOR_MAX)
        return err_set(err, ERR_MCP_PROTOCOL, "%s: nextCursor is not a string of at most %u bytes", method, CURSOR_MAX);
    if (call->cursor && str_eq(call->cursor, cursor))
        return err_set(err, ERR_MCP_PROTOCOL, "%s: the server returned the same cursor twice", method);
    if (++call->pages >= MCP_PAGES_MAX)
        return err_set(err, ERR_MCP_LIMIT, "%s: the list has more than %u pages", method, MCP_PAGES_MAX);
    free(call->cursor);
    call->cursor = str_dup(cursor);
    mcp_exchange_cancel(take_ptr(&call->exchange));
    mcp_client_call_proceed(call);
    return 1;
}

static int mcp_result_list(struct mcp_client_call *call, const json_t *result, const char *key, struct err *err)
{
    if (mcp_result_add_page(call, result, key, err) < 0)
        return -1;
    int status = mcp_result_next_page(call, result, err);
    if (status != 0)
        return status < 0 ? -1 : 0;
    if (call->method == MCP_LIST_TOOLS) {
        mcp_tool_list_set(call->client, call->items, result, !call->is_internal);
        mcp_client_call_finish(call, mcp_tool_list_json(call->client));
    } else {
        mcp_client_call_finish(call, json_pack("{s:O}", key, call->items));
    }
    return 0;
}

/* --- content --- */

static bool mcp_result_has_string(const json_t *object, const char *key)
{
    return json_is_string(json_object_get(object, key));
}

static bool mcp_result_is_resource(const json_t *r)
{
    return json_is_object(r) && mcp_result_has_string(r, "uri") &&
           (mcp_result_has_string(r, "text") || mcp_result_has_string(r, "blob"));
}

/* Types that this client does not know pass: a later revision may add some. */
static bool mcp_result_is_block(const json_t *block)
{
    const char *type = json_string_value(json_object_get(block, "type"));

    if (!type)
        return false;
    if (str_eq(type, "text"))
        return mcp_result_has_string(block, "text");
    if (str_eq(type, "image") || str_eq(type, "audio"))
        return mcp_result_has_string(block, "data") && mcp_result_has_string(block, "mimeType");
    if (str_eq(type, "resource_link"))
        return mcp_result_has_string(block, "uri");
    return !str_eq(type, "resource") || mcp_result_is_resource(json_object_get(block, "resource"));
}

static int mcp_result_check_tool(const json_t *result, struct err *err)
{
    const json_t *content = json_object_get(result, "content"), *flag = json_object_get(result, "isError"), *block;
    size_t i;

    if (!json_is_array(content))
        return err_set(err, ERR_MCP_PROTOCOL, "tools/call: the result has no list 'content'");
    json_array_foreach(content, i, block) if (!mcp_result_is_block(block)) return err_set(
        err, ERR_MCP_PROTOCOL, "tools/call: content[%zu] is not complete for its type", i);
    if (flag && !json_is_boolean(flag))
        return err_set(err, ERR_MCP_PROTOCOL, "tools/call: isError is not true or false");
    return 0;
}

static int mcp_result_check_resource(const json_t *result, struct err *err)
{
    const json_t *contents = json_object_get(result, "contents"), *r;
    size_t i;

    if (!json_is_array(contents))
        return err_set(err, ERR_MCP_PROTOCOL, "resources/read: the result has no list 'contents'");
    json_array_foreach(contents, i, r) if (!mcp_result_is_resource(r)) return err_set(
        err, ERR_MCP_PROTOCOL, "resources/read: contents[%zu] has no uri, or neither text nor blob", i);
    return 0;
}

static int mcp_result_check_prompt(const json_t *result, struct err *err)
{
    const json_t *messages = json_object_get(result, "messages"), *m;
    size_t i;

    if (!json_is_array(messages))
        return err_set(err, ERR_MCP_PROTOCOL, "prompts/get: the result has no list 'messages'");
    json_array_foreach(messages, i,
                       m) if (!mcp_result_has_string(m, "role") ||
                              !mcp_result_is_block(json_object_get(
                                  m, "content"))) return err_set(err, ERR_MCP_PROTOCOL,
                                                                 "prompts/get: messages[%zu] has no role or no content",
                                                                 i);
    return 0;
}

static int mcp_result_check(const struct mcp_client_call *call, const json_t *result, struct err *err)
{
    switch (call->method) {
    case MCP_CALL_TOOL:
        return mcp_result_check_tool(result, err);
    case MCP_READ_RESOURCE:
        return mcp_result_check_resource(result, err);
    case MCP_GET_PROMPT:
        return mcp_result_check_prompt(result, err);
    default:
        return 0;
    }
}

static int mcp_result_read(struct mcp_client_call *call, const json_t *result, struct err *err)
{
    const json_t *kind = json_object_get(result, "resultType");
    const char *type = json_string_value(kind), *key = mcp_result_list_key(call->method);
    bool is_modern = call->client->era == MCP_ERA_MODERN;

    if (!json_is_object(result) || (kind && !type))
        return err_set(err, ERR_MCP_PROTOCOL, "%s: the result is not an object", mcp_client_call_method(call->method));
    if (is_modern && type && str_eq(type, "input_required"))
        return mcp_question_start_round(call, result, err);
    if (is_modern && type && !str_eq(type, "complete"))
        return err_set(err, ERR_MCP_UNSUPPORTED,
                       "%s: the result has the type '%.40s', which this client did not ask for",
                       mcp_client_call_method(call->method), type);
    if (key)
        return mcp_result_list(call, result, key, err);
    if (mcp_result_check(call, result, err) < 0)
        return -1;
    mcp_client_call_finish(call, json_incref((json_t *)result));
    return 0;
}

void mcp_result_accept(struct mcp_client_call *call, const json_t *result)
{
    struct err err = { 0 };

    if (mcp_result_read(call, result, &err) < 0)
        mcp_client_call_fail(call, &err);
}
