/* A message of JSON-RPC from a client or a server of others.
 *
 * Checked in addition to memory errors: an error has a message without control characters; an
 * accepted message, written again, is one line and is accepted with the same kind. */
#include "core/base/mem.h"
#include "remote/mcp/jsonrpc.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static char *json_of(const json_t *j)
{
    return j ? json_dumps(j, JSON_ENCODE_ANY | JSON_INDENT(1)) : NULL;
}

static void write_again(const struct jsonrpc_message *m, struct buf *out)
{
    auto_free char *params = json_of(m->params);
    auto_free char *result = json_of(m->result);
    auto_free char *data = json_of(m->data);

    if (m->kind == JSONRPC_REQUEST)
        jsonrpc_write_request(out, m->id, m->method, params);
    else if (m->kind == JSONRPC_NOTIFICATION)
        jsonrpc_write_notification(out, m->method, params);
    else if (m->kind == JSONRPC_RESULT)
        jsonrpc_write_result(out, m->id, result);
    else
        jsonrpc_write_error(out, m->id, m->code, m->text, data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonrpc_message one, two;
    struct err err = { 0 };
    auto_buf out = { 0 };
    int code;

    if (jsonrpc_parse((const char *)data, size, &one, &code, &err) < 0) {
        must(code == JSONRPC_PARSE_ERROR || code == JSONRPC_INVALID_REQUEST);
        must(err.id != ERR_NONE && err.msg[0]);
        for (const char *p = err.msg; *p; p++)
            must((unsigned char)*p >= ' ' && *p != 0x7f);
        jsonrpc_message_done(&one);
        return 0;
    }
    write_again(&one, &out);
    must(!memchr(out.data, '\n', out.len) && !memchr(out.data, '\r', out.len));
    must(jsonrpc_parse(out.data, out.len, &two, &code, &err) == 0 && two.kind == one.kind);
    must(json_equal((json_t *)one.id, (json_t *)two.id) || (!one.id && !two.id));
    jsonrpc_message_done(&one);
    jsonrpc_message_done(&two);
    return 0;
}
