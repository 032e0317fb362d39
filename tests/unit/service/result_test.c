#include "tests/unit/test.h"

#include "core/base/str.h"
#include "service/result.h"

static void add(struct result_output *o, const char *type, const char *json, bool keep)
{
    result_output_add_event(o, type, json, strlen(json), keep);
}

static void assert_written(const struct result *r, const char *expected)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    result_write(r, &w);
    jsonw_end_object(&w);
    assert_string_equal(out.data, expected);
}

TEST(the_value_is_the_text_of_the_last_result)
{
    struct result_output o = { 0 };

    add(&o, "display", "{\"type\":\"display\",\"data\":{\"text/plain\":\"shown\"}}", true);
    assert_int_equal(o.value.len, 0);
    add(&o, "result", "{\"type\":\"result\",\"count\":1,\"data\":{\"text/plain\":\"4\\\"2\"}}", true);
    assert_string_equal(o.value.data, "\"4\\\"2\"");
    add(&o, "result", "{\"type\":\"result\",\"count\":2,\"data\":{\"image/png\":\"\"}}", true);
    assert_int_equal(o.value.len, 0);
    result_output_done(&o);
}

TEST(an_exception_has_no_type_and_the_last_one_counts)
{
    struct result_output o = { 0 };

    add(&o, "exception", "{\"type\":\"exception\",\"name\":\"A\",\"value\":\"\",\"traceback\":\"\"}", false);
    add(&o, "exception", "{\"type\":\"exception\",\"name\":\"B\",\"value\":\"v\",\"traceback\":\"x\\ny\"}", false);
    assert_string_equal(o.exception.data, "{\"name\":\"B\",\"value\":\"v\",\"traceback\":\"x\\ny\"}");
    assert_int_equal(o.results.len, 0);
    result_output_done(&o);
}

TEST(every_result_has_the_same_members)
{
    struct result_output o = { 0 };
    struct result r = { .id = "ex1",
                        .has_ended = true,
                        .ended_by = "exit",
                        .exit_code = 0,
                        .output = &o,
                        .started_ms = 1000,
                        .ended_ms = 2000 };

    add(&o, "result", "{\"type\":\"result\",\"data\":{\"text/plain\":\"42\"}}", true);
    buf_adds(&o.text[0], "out\n");
    assert_written(&r, "{\"id\":\"ex1\",\"outcome\":\"success\",\"exitCode\":0,\"signal\":null,\"endedBy\":\"exit\","
                       "\"value\":\"42\",\"results\":[{\"type\":\"result\",\"data\":{\"text/plain\":\"42\"}}],"
                       "\"stdout\":\"out\\n\",\"stderr\":\"\",\"truncated\":false,\"droppedBytes\":0,"
                       "\"startedAt\":\"1970-01-01T00:00:01.000Z\",\"endedAt\":\"1970-01-01T00:00:02.000Z\"}");
    r.was_streamed = true;
    r.hint = "try again";
    assert_written(&r, "{\"id\":\"ex1\",\"outcome\":\"success\",\"exitCode\":0,\"signal\":null,\"endedBy\":\"exit\","
                       "\"value\":\"42\",\"truncated\":false,\"droppedBytes\":0,\"hint\":\"try again\","
                       "\"startedAt\":\"1970-01-01T00:00:01.000Z\",\"endedAt\":\"1970-01-01T00:00:02.000Z\"}");
    result_output_done(&o);
}

TEST(an_execution_that_was_not_started_is_an_error)
{
    struct result r = { .id = "ex1", .has_ended = true, .exit_code = -1, .error_json = "{\"code\":\"x\"}" };

    assert_written(&r, "{\"id\":\"ex1\",\"outcome\":\"error\",\"exitCode\":null,\"signal\":null,\"droppedBytes\":0,"
                       "\"error\":{\"code\":\"x\"}}");
    r.has_ended = false;
    r.error_json = NULL;
    assert_written(&r, "{\"id\":\"ex1\",\"droppedBytes\":0}");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(the_value_is_the_text_of_the_last_result),
        RUN(an_exception_has_no_type_and_the_last_one_counts),
        RUN(every_result_has_the_same_members),
        RUN(an_execution_that_was_not_started_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
