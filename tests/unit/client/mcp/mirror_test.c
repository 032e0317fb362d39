/* Headers that repeat a message. */
#include "tests/unit/test.h"

#include "client/mcp/mirror.h"
#include "core/base/str.h"

static struct mirror *mirror;

/* All headers of a request, each followed by a line feed. */
static const char *headers_of(const char *method, const char *params)
{
    static struct buf out;
    char *all[MIRROR_HEADERS_MAX];
    json_t *p = json_loads(params, JSON_ALLOW_NUL, NULL);
    size_t n = mirror_headers(mirror, method, p, "2026-07-28", all);

    buf_clear(&out);
    for (size_t i = 0; i < n; i++) {
        assert_null(strpbrk(all[i], "\r\n"));
        buf_addf(&out, "%s\n", all[i]);
        free(all[i]);
    }
    json_decref(p);
    return out.data;
}

static void learn(const char *tools)
{
    auto_free char *text = str_printf("{\"tools\":%s}", tools);
    json_t *result = json_loads(text, 0, NULL);

    assert_non_null(result);
    mirror_learn(mirror, result);
    json_decref(result);
}

#define HEAD(method) "MCP-Protocol-Version: 2026-07-28\nMcp-Method: " method "\n"

TEST(method_and_name_are_repeated)
{
    mirror = mirror_new();
    assert_string_equal(headers_of("tools/list", "{\"name\":\"x\"}"), HEAD("tools/list"));
    assert_string_equal(headers_of("tools/call", "{\"name\":\"bash\"}"), HEAD("tools/call") "Mcp-Name: bash\n");
    assert_string_equal(headers_of("prompts/get", "{\"name\":\"p\"}"), HEAD("prompts/get") "Mcp-Name: p\n");
    assert_string_equal(headers_of("resources/read", "{\"uri\":\"a://b\",\"name\":\"x\"}"),
                        HEAD("resources/read") "Mcp-Name: a://b\n");
    assert_string_equal(headers_of("tools/call", "{\"name\":7}"), HEAD("tools/call"));
    mirror_free(mirror);
}

TEST(unsafe_values_are_encoded)
{
    static const struct {
        const char *value, *written;
    } rows[] = {
        { "plain text", "plain text" },
        { "\xc3\xa9", "=?base64?w6k=?=" },
        { "a\r\nX-Evil: 1", "=?base64?YQ0KWC1FdmlsOiAx?=" },
        { " blank", "=?base64?IGJsYW5r?=" },
        { "", "=?base64?"
              "?=" },
        { "=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?=" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_buf out = { 0 };

        mirror_write_value(&out, rows[i].value, strlen(rows[i].value));
        assert_string_equal(out.data, rows[i].written);
    }
}

TEST(annotated_parameters_become_headers)
{
    mirror = mirror_new();
    learn("[{\"name\":\"t\",\"inputSchema\":{\"properties\":{"
          "\"a\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
          "\"o\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"}}},"
          "\"f\":{\"type\":\"boolean\",\"x-mcp-header\":\"Fast\"},"
          "\"l\":{\"type\":\"array\",\"items\":{\"properties\":{\"z\":{\"type\":\"string\",\"x-mcp-header\":\"Z\"}}}}}}"
          "}]");
    const char *got = headers_of("tools/call",
                                 "{\"name\":\"t\",\"arguments\":{\"a\":\"eu\",\"o\":{\"n\":-5},\"f\":true,\"l\":[]}}");

    assert_non_null(strstr(got, "Mcp-Param-Region: eu\n"));
    assert_non_null(strstr(got, "Mcp-Param-Count: -5\n"));
    assert_non_null(strstr(got, "Mcp-Param-Fast: true\n"));
    assert_null(strstr(got, "Mcp-Param-Z"));
    assert_string_equal(headers_of("tools/call", "{\"name\":\"t\",\"arguments\":{\"a\":null}}"),
                        HEAD("tools/call") "Mcp-Name: t\n");
    assert_null(strstr(headers_of("tools/call", "{\"name\":\"other\",\"arguments\":{\"a\":\"eu\"}}"), "Region"));
    assert_null(strstr(headers_of("prompts/get", "{\"name\":\"t\",\"arguments\":{\"a\":\"eu\"}}"), "Region"));
    learn("[{\"name\":\"t\",\"inputSchema\":{\"properties\":{}}}]"); /* the server changed the tool */
    assert_null(strstr(headers_of("tools/call", "{\"name\":\"t\",\"arguments\":{\"a\":\"eu\"}}"), "Region"));
    mirror_free(mirror);
}

TEST(a_tool_with_an_invalid_annotation_gets_no_headers)
{
    static const char *const properties[] = {
        "\"a\":{\"type\":\"string\",\"x-mcp-header\":\"bad name\"}",
        "\"a\":{\"type\":\"string\",\"x-mcp-header\":\"A\\r\\nB\"}",
        "\"a\":{\"type\":\"string\",\"x-mcp-header\":\"\"}",
        "\"a\":{\"type\":\"string\",\"x-mcp-header\":7}",
        "\"a\":{\"type\":\"object\",\"x-mcp-header\":\"A\"}",
        "\"a\":{\"type\":\"number\",\"x-mcp-header\":\"A\"}",
        "\"b\":{\"type\":\"string\",\"x-mcp-header\":\"Same\"},\"a\":{\"type\":\"string\",\"x-mcp-header\":\"same\"}",
    };

    for (size_t i = 0; i < ARRAY_LEN(properties); i++) {
        auto_free char *tools = str_printf("[{\"name\":\"t\",\"inputSchema\":{\"properties\":{%s}}}]", properties[i]);

        mirror = mirror_new();
        learn(tools);
        assert_string_equal(headers_of("tools/call", "{\"name\":\"t\",\"arguments\":{\"a\":\"x\",\"b\":\"y\"}}"),
                            HEAD("tools/call") "Mcp-Name: t\n");
        mirror_free(mirror);
    }
}

TEST(parameters_beyond_the_maximum_are_refused_with_their_tool)
{
    auto_buf tools = { 0 };

    mirror = mirror_new();
    buf_adds(&tools, "[{\"name\":\"t\",\"inputSchema\":{\"properties\":{");
    for (unsigned i = 0; i < 100; i++)
        buf_addf(&tools, "%s\"p%u\":{\"type\":\"string\",\"x-mcp-header\":\"H%u\"}", i ? "," : "", i, i);
    buf_adds(&tools, "}}}]");
    learn(tools.data);
    assert_string_equal(headers_of("tools/call", "{\"name\":\"t\",\"arguments\":{\"p1\":\"x\"}}"),
                        HEAD("tools/call") "Mcp-Name: t\n");
    mirror_free(mirror);
}

TEST(the_revision_is_read_from_the_metadata_of_the_message)
{
    json_t *single = json_loads("{\"_meta\":{\"" MIRROR_VERSION_KEY "\":\"2026-07-28\"}}", 0, NULL);
    json_t *session = json_loads("{\"protocolVersion\":\"2025-11-25\"}", 0, NULL);

    assert_string_equal(mirror_version(single), "2026-07-28");
    assert_null(mirror_version(session));
    assert_null(mirror_version(NULL));
    json_decref(single);
    json_decref(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(method_and_name_are_repeated),
        RUN(unsafe_values_are_encoded),
        RUN(annotated_parameters_become_headers),
        RUN(a_tool_with_an_invalid_annotation_gets_no_headers),
        RUN(parameters_beyond_the_maximum_are_refused_with_their_tool),
        RUN(the_revision_is_read_from_the_metadata_of_the_message),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
