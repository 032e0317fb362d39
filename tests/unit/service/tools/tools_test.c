#include "tests/unit/test.h"

#include "core/base/str.h"
#include "service/tools/tool_internal.h"

static json_t *parse_schema(const struct tool *tool, const char *text)
{
    json_error_t why;
    json_t *schema = json_loads(text, JSON_REJECT_DUPLICATES, &why);

    if (!schema)
        fail_msg("%s: line %d, column %d: %s", tool->name, why.line, why.column, why.text);
    if (!str_eq(json_string_value(json_object_get(schema, "type")), "object"))
        fail_msg("%s: the schema is not one of an object", tool->name);
    return schema;
}

static void check_schema(const struct tool *tool, const char *text, bool is_input)
{
    auto_json *schema = parse_schema(tool, text);
    const json_t *properties = json_object_get(schema, "properties"), *name;
    size_t i;

    json_array_foreach(json_object_get(schema, "required"), i,
                       name) if (!json_object_get(properties, json_string_value(name)))
        fail_msg("%s: %s is required and not described", tool->name, json_string_value(name));
    if (is_input && !json_is_false(json_object_get(schema, "additionalProperties")))
        fail_msg("%s: the input schema accepts unknown arguments", tool->name);
}

TEST(every_tool_has_a_name_of_its_own_and_schemas_that_parse)
{
    size_t n;
    const struct tool *all = tools_all(&n);

    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(all[i].name);

        if (len == 0 || len > 64 || strspn(all[i].name, "abcdefghijklmnopqrstuvwxyz_") != len)
            fail_msg("'%s' is not a name", all[i].name);
        if (tool_find(all[i].name) != &all[i])
            fail_msg("%s is twice in the table", all[i].name);
        check_schema(&all[i], all[i].input_schema, true);
        check_schema(&all[i], all[i].output_schema, false);
        if (!all[i].title || strlen(all[i].description) < 100 || (!all[i].rights && all[i].place != TOOL_ON_SERVER))
            fail_msg("%s: title, description and rights are required", all[i].name);
    }
    assert_null(tool_find("bas"));
    assert_null(tool_find(""));
}

static void on_end(void *arg UNUSED, const struct err *err UNUSED, const struct tool_result *r UNUSED)
{
    fail_msg("a call that is refused at once ends");
}

static void refused(struct tools *t, const char *name, const char *arguments, const char *said)
{
    static const struct tool_ops ops = { .on_end = on_end };
    auto_json *j = json_loads(arguments, 0, NULL);
    struct tool_request request = {
        .tool = tool_find(name), .owner = "o", .tenant = "o", .sandbox = "sb", .arguments = j
    };
    struct tool_call *c = NULL;
    struct err err = { 0 };

    assert_non_null(request.tool);
    if (tool_call_start(t, &request, &ops, NULL, &c, &err) == 0)
        fail_msg("%s %s was accepted", name, arguments);
    if (!strstr(err.msg, said))
        fail_msg("%s %s: %s", name, arguments, err.msg);
}

TEST(wrong_arguments_are_refused_before_any_work)
{
    static const struct {
        const char *tool, *arguments, *said;
    } rows[] = {
        { "bash", "{}", "command: required" },
        { "bash", "{\"comand\": \"x\"}", "did you mean command" },
        { "bash", "{\"command\": \"\"}", "command" },
        { "bash", "{\"command\": \"x\", \"timeout_ms\": 0}", "timeout_ms" },
        { "bash", "[]", "must be a JSON object" },
        { "exec", "{\"argv\": []}", "argv" },
        { "exec", "{\"argv\": [\"\"]}", "argv" },
        { "exec", "{\"argv\": [\"a\", 1]}", "argv[1]" },
        { "run_code", "{\"code\": \"1\", \"language\": \"cobol\"}", "language" },
        { "run_code", "{\"code\": \"1\", \"context\": \"x\"}", "context" },
        { "read_file", "{\"file_path\": \"a\", \"offset\": 0}", "offset" },
        { "read_file", "{\"file_path\": \"a\", \"limit\": 1.5}", "limit" },
        { "write_file", "{\"file_path\": \"a\"}", "content: required" },
        { "edit_file", "{\"file_path\": \"a\", \"old_string\": \"x\", \"new_string\": \"x\"}", "equals old_string" },
        { "edit_file", "{\"file_path\": \"a\", \"old_string\": \"\", \"new_string\": \"x\"}", "old_string" },
        { "glob", "{\"pattern\": \"../*\"}", "'..'" },
        { "grep", "{\"pattern\": \"x\", \"output_mode\": \"line\"}", "output_mode" },
        { "stage_files", "{\"files\": []}", "at least one" },
        { "stage_files", "{\"files\": [{\"name\": \"../x\", \"content\": \"\"}]}", "files[0].name" },
        { "return_files", "{\"paths\": [\"/etc/passwd\"]}", "paths[0]" },
        { "code_executor", "{\"code\": \"1\", \"execution_id\": \"exaaaaaaaaaaaaaaaaaaaa\"}", "create a sandbox" },
        { "code_executor", "{\"code\": \"1\"}", "no executor" },
    };
    struct ev *ev = NULL;
    struct err err;
    size_t n;

    assert_int_equal(ev_new(&ev, &err), 0);
    struct tools *t = tools_new(&(struct tools_settings){ .ev = ev, .output_bytes = 1024, .timeout_ms = 1000 });
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        refused(t, rows[i].tool, rows[i].arguments, rows[i].said);
    assert_int_equal(tools_get_stats(t)->refused[tool_find("exec") - tools_all(&n)], 3);
    tools_free(t);
    ev_free(ev);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tool_has_a_name_of_its_own_and_schemas_that_parse),
        cmocka_unit_test(wrong_arguments_are_refused_before_any_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
