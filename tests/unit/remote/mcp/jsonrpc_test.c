/* Messages of JSON-RPC as MCP restricts them. */
#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/jsonrpc.h"

static struct jsonrpc_message message;
static struct err last;

/* 0, or the code of the error. */
static int parse(const char *text)
{
    int code;

    jsonrpc_message_done(&message);
    last = (struct err){ 0 };
    return jsonrpc_parse(text, strlen(text), &message, &code, &last) < 0 ? code : 0;
}

TEST(four_kinds_of_messages_are_read)
{
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\",\"params\":{\"a\":1}}"), 0);
    assert_int_equal(message.kind, JSONRPC_REQUEST);
    assert_int_equal(json_integer_value(message.id), 7);
    assert_string_equal(message.method, "ping");
    assert_int_equal(json_integer_value(json_object_get(message.params, "a")), 1);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"), 0);
    assert_int_equal(message.kind, JSONRPC_NOTIFICATION);
    assert_null(message.params);
    assert_int_equal(parse("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":null}"), 0);
    assert_int_equal(message.kind, JSONRPC_RESULT);
    assert_true(json_is_null(message.result));
    assert_int_equal(
        parse("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32601,\"message\":\"m\",\"data\":[1]}}"), 0);
    assert_int_equal(message.kind, JSONRPC_ERROR);
    assert_int_equal(message.code, -32601);
    assert_string_equal(message.text, "m");
    assert_int_equal(json_array_size(message.data), 1);
    assert_null(message.id);
    jsonrpc_message_done(&message);
}

TEST(a_wrong_message_names_the_member_and_keeps_the_id)
{
    static const struct {
        const char *text;
        int code;
        bool has_id;
        const char *reason;
    } rows[] = {
        { "", JSONRPC_PARSE_ERROR, false, "not JSON" },
        { "{", JSONRPC_PARSE_ERROR, false, "not JSON" },
        { "{\"id\":1,\"id\":2}", JSONRPC_PARSE_ERROR, false, "duplicate" },
        { "[]", JSONRPC_INVALID_REQUEST, false, "batch" },
        { "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", JSONRPC_INVALID_REQUEST, false, "batch" },
        { "1", JSONRPC_INVALID_REQUEST, false, "object" },
        { "{\"id\":1,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST, true, "jsonrpc" },
        { "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST, true, "jsonrpc" },
        { "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST, false, "id" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST, false, "id" },
        { "{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"ping\"}", JSONRPC_INVALID_REQUEST, false, "id" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\"}", JSONRPC_INVALID_REQUEST, true, "method" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}", JSONRPC_INVALID_REQUEST, true, "method" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":[1]}", JSONRPC_INVALID_REQUEST, true, "params" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"result\":{}}", JSONRPC_INVALID_REQUEST, true,
          "exactly one" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1}", JSONRPC_INVALID_REQUEST, true, "exactly one" },
        { "{\"jsonrpc\":\"2.0\",\"result\":{}}", JSONRPC_INVALID_REQUEST, false, "id" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"no\"}", JSONRPC_INVALID_REQUEST, true, "error" },
        { "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":\"1\",\"message\":\"\"}}", JSONRPC_INVALID_REQUEST, true,
          "error" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (parse(rows[i].text) != rows[i].code || (message.id != NULL) != rows[i].has_id ||
            !strstr(last.msg, rows[i].reason))
            fail_msg("%s: %s", rows[i].text, last.msg);
    }
    jsonrpc_message_done(&message);
}

TEST(size_depth_values_and_ids_are_bounded)
{
    auto_buf text = { 0 };
    auto_buf id = { 0 };

    buf_adds(&text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"params\":{\"x\":");
    size_t head = text.len;

    for (unsigned i = 0; i < JSONRPC_DEPTH_MAX; i++)
        buf_adds(&text, "[");
    assert_int_equal(parse(text.data), JSONRPC_PARSE_ERROR);
    assert_non_null(strstr(last.msg, "deeper"));
    text.len = head;
    for (unsigned i = 0; i < 70000; i++)
        buf_adds(&text, "[],");
    assert_int_equal(parse(text.data), JSONRPC_PARSE_ERROR);
    assert_non_null(strstr(last.msg, "values"));
    memset(buf_room(&text, JSONRPC_MESSAGE_MAX), ' ', JSONRPC_MESSAGE_MAX);
    text.len += JSONRPC_MESSAGE_MAX;
    text.data[text.len] = '\0';
    assert_int_equal(parse(text.data), JSONRPC_PARSE_ERROR);
    assert_non_null(strstr(last.msg, "bytes"));
    for (unsigned n = JSONRPC_ID_MAX; n <= JSONRPC_ID_MAX + 1; n++) {
        buf_clear(&id);
        buf_addf(&id, "{\"jsonrpc\":\"2.0\",\"method\":\"a\",\"id\":\"%0*d\"}", (int)n, 0);
        assert_int_equal(parse(id.data), n > JSONRPC_ID_MAX ? JSONRPC_INVALID_REQUEST : 0);
    }
    jsonrpc_message_done(&message);
}

TEST(a_written_message_is_one_line_and_is_read_again)
{
    auto_buf out = { 0 };
    json_t *id = json_string("a\n\"b");

    jsonrpc_write_request(&out, id, "tools/call", "{\n \"x\": \"\\n\"\r\n}");
    assert_null(strpbrk(out.data, "\r\n"));
    assert_int_equal(parse(out.data), 0);
    assert_int_equal(message.kind, JSONRPC_REQUEST);
    assert_string_equal(json_string_value(message.id), "a\n\"b");
    assert_string_equal(json_string_value(json_object_get(message.params, "x")), "\n");
    buf_clear(&out);
    jsonrpc_write_error(&out, NULL, -32700, "bad \"text\"", "{\"k\":1}");
    assert_string_equal(out.data,
                        "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"bad \\\"text\\\"\","
                        "\"data\":{\"k\":1}}}");
    assert_int_equal(parse(out.data), 0);
    buf_clear(&out);
    jsonrpc_write_notification(&out, "notifications/progress", NULL);
    assert_string_equal(out.data, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}");
    buf_clear(&out);
    jsonrpc_write_result(&out, id, "{}");
    assert_int_equal(parse(out.data), 0);
    assert_int_equal(message.kind, JSONRPC_RESULT);
    json_decref(id);
    jsonrpc_message_done(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(four_kinds_of_messages_are_read),
        RUN(a_wrong_message_names_the_member_and_keeps_the_id),
        RUN(size_depth_values_and_ids_are_bounded),
        RUN(a_written_message_is_one_line_and_is_read_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
