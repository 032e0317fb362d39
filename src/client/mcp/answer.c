/* Errors of HTTP as errors of JSON-RPC: a client shows only the text, so it holds the fix as
 * well. */
#include "client/mcp/bridge_internal.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"

static char *bridge_error_data(const char *code, int status)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    if (code)
        jsonw_kstr(&w, "code", code);
    if (status)
        jsonw_ki64(&w, "status", status);
    jsonw_end_object(&w);
    return out.data;
}

void bridge_explain(const struct bridge *b, const struct exchange_result *r, char **ret_text, char **ret_data)
{
    json_t *body = json_loadb(r->body, r->len, 0, NULL);
    const json_t *e = json_object_get(body, "error");
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *fix = json_string_value(json_object_get(e, "fix"));

    if (code && message)
        *ret_text = str_printf("%.2000s%s%.1000s", message, fix ? "; " : "", fix ? fix : "");
    else
        *ret_text = str_printf("status %d; is there an MCP server at %.300s?", r->status,
                               client_endpoint(b->settings.client));
    *ret_data = bridge_error_data(code, r->status);
    json_decref(body);
}

void bridge_explain_err(const struct bridge *b, const struct err *err, char **ret_text, char **ret_data)
{
    const char *fix = err_fix(err->id);

    if (err->id == ERR_UNREACHABLE)
        *ret_text = str_printf("no server answers at %.300s; start one with 'cove serve', name another with COVE_URL, "
                               "or use 'cove mcp --local'",
                               client_endpoint(b->settings.client));
    else
        *ret_text = str_printf("%s%s%.500s", err->msg, fix ? "; " : "", fix ? fix : "");
    *ret_data = bridge_error_data(err_info(err->id)->code, 0);
}

/* A method that does not exist is answered with the same status. */
bool bridge_is_session_lost(const struct exchange_result *r)
{
    struct jsonrpc_message m;
    struct err err;
    int code;

    if (r->err || r->status != 404)
        return false;
    bool is_rpc = jsonrpc_parse(r->body, r->len, &m, &code, &err) == 0;
    bool lost = !is_rpc || m.kind != JSONRPC_ERROR || m.code != JSONRPC_METHOD_NOT_FOUND;
    jsonrpc_message_done(&m);
    return lost;
}
