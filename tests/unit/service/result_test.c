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

static void assert_same_summary(const struct receipt *r)
{
    auto_buf full = { 0 }, summary = { 0 }, stored = { 0 };
    struct jsonw w;

    jsonw_init(&w, &full, 0);
    receipt_json(r, &w);
    jsonw_init(&w, &summary, 0);
    jsonw_object(&w);
    result_write_receipt(r, RECEIPT_SUMMARY, &w);
    jsonw_end_object(&w);
    jsonw_init(&w, &stored, 0);
    jsonw_object(&w);
    result_write_stored_receipt(full.data, RECEIPT_SUMMARY, &w);
    jsonw_end_object(&w);
    assert_string_equal(summary.data, stored.data);
}

TEST(a_summary_of_a_stored_receipt_has_the_network_if_it_was_used)
{
    struct egress_destination d = { .host = "pypi.org", .port = 443, .refused = 2, .reason = "no rule allows it" };
    struct receipt r = { .network = { NETWORK_EGRESS, "allow example.org" },
                         .egress = { .carrier = EGRESS_CARRIER_TPROXY },
                         .changes_why = "not requested",
                         .denials_why = "not counted" };

    assert_same_summary(&r);
    r.egress.refused = 2;
    r.egress.destinations = &d;
    r.egress.ndestinations = 1;
    assert_same_summary(&r);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(the_value_is_the_text_of_the_last_result),
        RUN(an_exception_has_no_type_and_the_last_one_counts),
        RUN(every_result_has_the_same_members),
        RUN(an_execution_that_was_not_started_is_an_error),
        RUN(a_summary_of_a_stored_receipt_has_the_network_if_it_was_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
