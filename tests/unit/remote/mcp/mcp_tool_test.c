/* Definitions of tools, the headers that they ask for, and answers made of defaults. */
#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_elicit.h"
#include "remote/mcp/mcp_tool.h"

static int read_tool(const char *text, struct mcp_tool **ret, struct err *err)
{
    json_t *definition = json_loads(text, 0, NULL);

    assert_non_null(definition);
    int status = mcp_tool_new(definition, ret, err);
    json_decref(definition);
    return status;
}

static int read_schema(const char *schema, struct mcp_tool **ret, struct err *err)
{
    auto_free char *text = str_printf("{\"name\":\"t\",\"inputSchema\":%s}", schema);

    return read_tool(text, ret, err);
}

TEST(names_that_models_or_terminals_cannot_take_are_refused)
{
    static const struct {
        const char *name;
        bool valid;
    } rows[] = {
        { "add_numbers", true },
        { "a.b-C_9", true },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", true },
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false },
        { "", false },
        { "a b", false },
        { "a/b", false },
        { "a\033[2J", false },
        { "a\nb", false },
        { "na\xc3\xafve", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (mcp_tool_name_valid(rows[i].name) != rows[i].valid)
            fail_msg("row %zu", i);
}

TEST(large_deep_or_incomplete_definitions_are_refused)
{
    auto_buf deep = { 0 }, wide = { 0 };
    auto_(mcp_tool) t = NULL;
    struct err err = { 0 };

    for (unsigned i = 0; i < 33; i++)
        buf_adds(&deep, "{\"items\":");
    buf_adds(&deep, "{}");
    for (unsigned i = 0; i < 33; i++)
        buf_adds(&deep, "}");
    assert_int_equal(read_schema(deep.data, &t, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);

    buf_adds(&wide, "{\"enum\":[1");
    for (unsigned i = 0; i < 9000; i++)
        buf_adds(&wide, ",1");
    buf_adds(&wide, "]}");
    assert_int_equal(read_schema(wide.data, &t, &err), -1);

    auto_free char *text = mem_alloc(MCP_TOOL_BYTES_MAX + 1);
    memset(text, 'x', MCP_TOOL_BYTES_MAX);
    auto_free char *large = str_printf("{\"description\":\"%s\"}", text);
    assert_int_equal(read_schema(large, &t, &err), -1);
    assert_non_null(strstr(err.msg, "bytes"));

    assert_int_equal(read_tool("{\"name\":\"t\"}", &t, &err), -1);
    assert_int_equal(read_tool("{\"name\":7,\"inputSchema\":{}}", &t, &err), -1);
    assert_int_equal(read_tool("[]", &t, &err), -1);
}

TEST(text_for_people_is_cleaned_and_the_schema_stays_verbatim)
{
    auto_(mcp_tool) t = NULL;
    struct err err = { 0 };

    assert_int_equal(read_tool("{\"name\":\"t\",\"description\":\"one\\ntwo\\tx \\u001b[2Jthree\\u202e\",\"title\":7,"
                               "\"inputSchema\":{\"$defs\":{\"a\":{\"$ref\":\"http://x/y\"}},\"if\":{}}}",
                               &t, &err),
                     0);
    assert_string_equal(json_string_value(json_object_get(mcp_tool_definition(t), "description")),
                        "one\ntwo\tx ?[2Jthree???");
    assert_null(json_object_get(mcp_tool_definition(t), "title"));
    auto_free char *schema = json_dumps(json_object_get(mcp_tool_definition(t), "inputSchema"), JSON_COMPACT);
    assert_string_equal(schema, "{\"$defs\":{\"a\":{\"$ref\":\"http://x/y\"}},\"if\":{}}");
}

TEST(the_digest_changes_with_every_value_and_not_with_the_order_of_keys)
{
    static const char *const same = "{\"inputSchema\":{\"b\":1,\"a\":2},\"name\":\"t\"}";
    auto_(mcp_tool) a = NULL;
    auto_(mcp_tool) b = NULL;
    auto_(mcp_tool) c = NULL;
    struct err err = { 0 };

    assert_int_equal(read_tool("{\"name\":\"t\",\"inputSchema\":{\"a\":2,\"b\":1}}", &a, &err), 0);
    assert_int_equal(read_tool(same, &b, &err), 0);
    assert_int_equal(read_tool("{\"name\":\"t\",\"inputSchema\":{\"a\":2,\"b\":1},\"x\":\"\\u001b\"}", &c, &err), 0);
    assert_string_equal(mcp_tool_digest(a), mcp_tool_digest(b));
    assert_string_not_equal(mcp_tool_digest(a), mcp_tool_digest(c));
    assert_int_equal(strlen(mcp_tool_digest(a)), 64);
}

#define PROPERTY(name, type, header) "\"" name "\":{\"type\":\"" type "\",\"x-mcp-header\":\"" header "\"}"

TEST(a_header_annotation_is_valid_only_on_a_scalar_property)
{
    static const struct {
        const char *schema;
        bool valid;
    } rows[] = {
        { "{\"properties\":{" PROPERTY("a", "string", "Region") "}}", true },
        { "{\"properties\":{" PROPERTY("a", "integer", "A") "," PROPERTY("b", "boolean", "B") "}}", true },
        { "{\"properties\":{\"o\":{\"type\":\"object\",\"properties\":{" PROPERTY("a", "string", "A") "}}}}", true },
        { "{\"properties\":{\"x-mcp-header\":{\"type\":\"object\"}}}", true },     /* the name of a property */
        { "{\"properties\":{\"a\":{\"enum\":[{\"x-mcp-header\":\"\"}]}}}", true }, /* data */
        { "{\"properties\":{" PROPERTY("a", "number", "A") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "object", "A") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "null", "A") "}}", false },
        { "{\"properties\":{\"a\":{\"type\":[\"string\"],\"x-mcp-header\":\"A\"}}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "My Region") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "R:P") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "R\\u00e9") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "R\\r\\nX") "}}", false },
        { "{\"properties\":{" PROPERTY("a", "string", "Same") "," PROPERTY("b", "string", "same") "}}", false },
        { "{\"properties\":{\"a\":{\"type\":\"string\",\"x-mcp-header\":7}}}", false },
        { "{\"type\":\"string\",\"x-mcp-header\":\"A\"}", false },
        { "{\"properties\":{\"l\":{\"items\":{\"type\":\"string\",\"x-mcp-header\":\"A\"}}}}", false },
        { "{\"anyOf\":[{\"properties\":{" PROPERTY("a", "string", "A") "}}]}", false },
        { "{\"$defs\":{" PROPERTY("a", "string", "A") "}}", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_(mcp_tool) t = NULL;
        struct err err = { 0 };

        if ((read_schema(rows[i].schema, &t, &err) == 0) != rows[i].valid)
            fail_msg("row %zu: %s", i, err.msg);
    }
}

TEST(arguments_are_mirrored_into_headers_and_unsafe_values_are_encoded)
{
    static const struct {
        const char *arguments, *lines;
    } rows[] = {
        { "{\"s\":\"us-west1\"}", "Mcp-Param-S: us-west1|" },
        { "{\"s\":\"us west\",\"other\":\"x\"}", "Mcp-Param-S: us west|" },
        { "{\"s\":\"\"}", "Mcp-Param-S;|" },
        { "{\"s\":\" padded\"}", "Mcp-Param-S: =?base64?IHBhZGRlZA==?=|" },
        { "{\"s\":\"a\\r\\nX: y\"}", "Mcp-Param-S: =?base64?YQ0KWDogeQ==?=|" },
        { "{\"s\":\"\\u4e16\"}", "Mcp-Param-S: =?base64?5LiW?=|" },
        { "{\"s\":\"=?base64?eA==?=\"}", "Mcp-Param-S: =?base64?PT9iYXNlNjQ/ZUE9PT89?=|" },
        { "{\"i\":-42,\"b\":false}", "Mcp-Param-I: -42|Mcp-Param-B: false|" },
        { "{\"s\":null,\"o\":{\"n\":\"deep\"}}", "Mcp-Param-N: deep|" },
        { "{\"s\":{\"not\":\"scalar\"}}", "" },
        { "{}", "" },
    };
    auto_(mcp_tool) t = NULL;
    struct err err = { 0 };

    assert_int_equal(
        read_schema(
            "{\"properties\":{" PROPERTY("s", "string", "S") "," PROPERTY("i", "integer", "I") "," PROPERTY(
                "b", "boolean", "B") ",\"o\":{\"properties\":{" PROPERTY("n", "string", "N") "}},\"other\":{}}}",
            &t, &err),
        0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *arguments = json_loads(rows[i].arguments, 0, NULL);
        auto_buf lines = { 0 };
        size_t count = 0;

        buf_adds(&lines, "");
        assert_int_equal(mcp_tool_headers(t, arguments, &lines, &count, &err), 0);
        for (size_t k = 0; k < lines.len; k++)
            if (!lines.data[k])
                lines.data[k] = '|';
        assert_string_equal(lines.data, rows[i].lines);
        json_decref(arguments);
    }
}

TEST(a_question_is_answered_with_the_defaults_of_its_schema)
{
    static const struct {
        const char *schema, *content;
    } rows[] = {
        { "{\"properties\":{\"name\":{\"type\":\"string\",\"default\":\"John\"},\"age\":{\"type\":\"integer\","
          "\"default\":30},\"score\":{\"type\":\"number\",\"default\":95.5},\"ok\":{\"type\":\"boolean\","
          "\"default\":true},\"l\":{\"type\":\"array\",\"default\":[\"a\"]}}}",
          "{\"age\":30,\"l\":[\"a\"],\"name\":\"John\",\"ok\":true,\"score\":95.5}" },
        { "{\"properties\":{\"s\":{\"type\":\"string\",\"enum\":[\"a\"],\"default\":\"a\"}},\"required\":[\"s\"]}",
          "{\"s\":\"a\"}" },
        { "{\"properties\":{\"s\":{\"type\":\"string\",\"enum\":[\"a\"],\"default\":\"b\"}}}", "{}" },
        { "{\"properties\":{\"s\":{\"type\":\"string\",\"default\":7},\"i\":{\"type\":\"integer\",\"default\":1.5}}}",
          "{}" },
        { "{\"properties\":{\"s\":{\"type\":\"string\"}},\"required\":[\"s\"]}", NULL },
        { "{\"properties\":{\"s\":{\"type\":\"string\"}}}", "{}" },
        { "7", "{}" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *params = json_pack("{s:o}", "requestedSchema", json_loads(rows[i].schema, JSON_DECODE_ANY, NULL));
        json_t *content = NULL;
        struct err err = { 0 };
        int status = mcp_elicit_defaults(params, &content, &err);
        auto_free char *text = content ? json_dumps(content, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

        assert_int_equal(status, rows[i].content ? 0 : -1);
        if (rows[i].content)
            assert_string_equal(text, rows[i].content);
        json_decref(content);
        json_decref(params);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(names_that_models_or_terminals_cannot_take_are_refused),
        RUN(large_deep_or_incomplete_definitions_are_refused),
        RUN(text_for_people_is_cleaned_and_the_schema_stays_verbatim),
        RUN(the_digest_changes_with_every_value_and_not_with_the_order_of_keys),
        RUN(a_header_annotation_is_valid_only_on_a_scalar_property),
        RUN(arguments_are_mirrored_into_headers_and_unsafe_values_are_encoded),
        RUN(a_question_is_answered_with_the_defaults_of_its_schema),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
