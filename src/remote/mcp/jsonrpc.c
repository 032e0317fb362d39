/* A message is checked in three steps: bounds on the text, before the parser allocates anything;
 * JSON; and the members. The order of the last step decides what an error answer can carry: the id
 * is read first, so that every later error names it.
 *
 * Invariants: 1. a message that was accepted is written back as a message that is accepted;
 * 2. a written message has no line break, because one line is one message on stdio. */
#include "remote/mcp/jsonrpc.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/doc/json_input.h"

#define JSONRPC_WEIGHT_MAX (128u * 1024u)
#define JSONRPC_METHOD_MAX 128u

static int jsonrpc_parse_text(const char *text, size_t len, struct jsonrpc_message *ret, struct err *err)
{
    json_error_t why;

    if (len > JSONRPC_MESSAGE_MAX)
        return err_set(err, ERR_INVALID, "the message has %zu bytes; the maximum is %llu", len, JSONRPC_MESSAGE_MAX);
    if (!json_input_within_limits(text, len, JSONRPC_DEPTH_MAX, SIZE_MAX))
        return err_set(err, ERR_INVALID, "the message is nested deeper than %u levels", JSONRPC_DEPTH_MAX);
    if (!json_input_within_limits(text, len, JSONRPC_DEPTH_MAX, JSONRPC_WEIGHT_MAX))
        return err_set(err, ERR_INVALID, "the message has more than %u values", JSONRPC_WEIGHT_MAX);
    ret->document = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    if (ret->document)
        return 0;
    err_set(err, ERR_INVALID, "the message is not JSON: line %d, column %d: %.120s", why.line, why.column, why.text);
    err_sanitize(err);
    return -1;
}

static bool jsonrpc_id_valid(const json_t *id)
{
    if (json_is_string(id))
        return json_string_length(id) <= JSONRPC_ID_MAX;
    return json_is_integer(id);
}

/* An error may lack its id, or have null: its sender could not read ours. */
static int jsonrpc_read_id(struct jsonrpc_message *m, bool nullable, struct err *err)
{
    const json_t *id = json_object_get(m->document, "id");

    if (!id || (nullable && json_is_null(id)))
        return 0;
    if (!jsonrpc_id_valid(id))
        return err_set(err, ERR_INVALID, "id: must be a string of at most %u bytes or an integer", JSONRPC_ID_MAX);
    m->id = id;
    return 0;
}

static int jsonrpc_read_call(struct jsonrpc_message *m, struct err *err)
{
    const json_t *method = json_object_get(m->document, "method");
    const json_t *params = json_object_get(m->document, "params");
    size_t len = json_string_length(method);

    if (!json_is_string(method) || len == 0 || len > JSONRPC_METHOD_MAX)
        return err_set(err, ERR_INVALID, "method: must be a string of 1 to %u bytes", JSONRPC_METHOD_MAX);
    if (params && !json_is_object(params))
        return err_set(err, ERR_INVALID, "params: must be an object");
    m->kind = m->id ? JSONRPC_REQUEST : JSONRPC_NOTIFICATION;
    m->method = json_string_value(method);
    m->params = params;
    return 0;
}

static int jsonrpc_read_error(struct jsonrpc_message *m, const json_t *error, struct err *err)
{
    const json_t *code = json_object_get(error, "code"), *text = json_object_get(error, "message");

    if (!json_is_integer(code) || !json_is_string(text))
        return err_set(err, ERR_INVALID, "error: must be an object with an integer code and a string message");
    m->kind = JSONRPC_ERROR;
    m->code = json_integer_value(code);
    m->text = json_string_value(text);
    m->data = json_object_get(error, "data");
    return 0;
}

static int jsonrpc_read_members(struct jsonrpc_message *m, struct err *err)
{
    const json_t *root = m->document, *version = json_object_get(root, "jsonrpc");
    const json_t *error = json_object_get(root, "error"), *result = json_object_get(root, "result");

    if (json_is_array(root))
        return err_set(err, ERR_INVALID, "the message is a batch; send each message by itself");
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "the message must be a JSON object");
    if (jsonrpc_read_id(m, error != NULL, err) < 0)
        return -1;
    if (!json_is_string(version) || !str_eq(json_string_value(version), "2.0"))
        return err_set(err, ERR_INVALID, "jsonrpc: must be \"2.0\"");
    if ((json_object_get(root, "method") != NULL) + (result != NULL) + (error != NULL) != 1)
        return err_set(err, ERR_INVALID, "the message must have exactly one of method, result and error");
    if (error)
        return jsonrpc_read_error(m, error, err);
    if (!result)
        return jsonrpc_read_call(m, err);
    if (!m->id)
        return err_set(err, ERR_INVALID, "id: a result must have the id of its request");
    m->kind = JSONRPC_RESULT;
    m->result = result;
    return 0;
}

int jsonrpc_parse(const char *text, size_t len, struct jsonrpc_message *ret, int *ret_code, struct err *err)
{
    *ret = (struct jsonrpc_message){ 0 };
    *ret_code = JSONRPC_PARSE_ERROR;
    if (jsonrpc_parse_text(text, len, ret, err) < 0)
        return -1;
    *ret_code = JSONRPC_INVALID_REQUEST;
    return jsonrpc_read_members(ret, err);
}

void jsonrpc_message_done(struct jsonrpc_message *m)
{
    json_decref(m->document);
    *m = (struct jsonrpc_message){ 0 };
}

static void jsonrpc_write_id(struct jsonw *w, const json_t *id)
{
    jsonw_key(w, "id");
    if (json_is_string(id))
        jsonw_strn(w, json_string_value(id), json_string_length(id));
    else if (json_is_integer(id))
        jsonw_i64(w, json_integer_value(id));
    else
        jsonw_null(w);
}

/* JSON text may be indented: a line break is only whitespace there, because strings escape it. */
static void jsonrpc_write_json(struct jsonw *w, const char *key, const char *json)
{
    if (!json)
        return;
    size_t at = w->out->len;

    jsonw_kraw(w, key, json);
    for (char *p = w->out->data + at; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
}

static void jsonrpc_begin(struct jsonw *w, struct buf *out)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "jsonrpc", "2.0");
}

void jsonrpc_write_request(struct buf *out, const json_t *id, const char *method, const char *params)
{
    struct jsonw w;

    jsonrpc_begin(&w, out);
    jsonrpc_write_id(&w, id);
    jsonw_kstr(&w, "method", method);
    jsonrpc_write_json(&w, "params", params);
    jsonw_end_object(&w);
}

void jsonrpc_write_notification(struct buf *out, const char *method, const char *params)
{
    struct jsonw w;

    jsonrpc_begin(&w, out);
    jsonw_kstr(&w, "method", method);
    jsonrpc_write_json(&w, "params", params);
    jsonw_end_object(&w);
}

void jsonrpc_write_result(struct buf *out, const json_t *id, const char *result)
{
    struct jsonw w;

    jsonrpc_begin(&w, out);
    jsonrpc_write_id(&w, id);
    jsonrpc_write_json(&w, "result", result);
    jsonw_end_object(&w);
}

void jsonrpc_write_error(struct buf *out, const json_t *id, int64_t code, const char *text, const char *data)
{
    struct jsonw w;

    jsonrpc_begin(&w, out);
    jsonrpc_write_id(&w, id);
    jsonw_kobject(&w, "error");
    jsonw_ki64(&w, "code", code);
    jsonw_kstr(&w, "message", text);
    jsonrpc_write_json(&w, "data", data);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
}
