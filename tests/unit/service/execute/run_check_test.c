/* The check of code before it runs, with a language kernel that answers as the test says: also with
 * answers that no real kernel sends. */
#include "tests/unit/service/execute/run_scene.h"

#define PURE "{\"violations\":[],\"omitted\":0,\"imports\":[],\"complexity\":1,\"pure\":true}"
#define IMPURE "{\"violations\":[],\"omitted\":0,\"imports\":[\"random\"],\"complexity\":1,\"pure\":false}"
#define REFUSED                                                                                              \
    "{\"violations\":[{\"rule\":\"call_open\",\"line\":1,\"column\":1,\"subject\":\"open\"}],\"omitted\":0," \
    "\"imports\":[],\"complexity\":1,\"pure\":false}"

#define UNKNOWN_RULE                                                                                     \
    "{\"violations\":[{\"rule\":\"__proto__\",\"line\":1,\"column\":1,\"subject\":\"\"}],\"omitted\":0," \
    "\"imports\":[],\"complexity\":1,\"pure\":true}"

static const struct run_request checked = { .code = "x", .language = "bash", .check = RUN_CHECK_FIRST };

/* A run whose interpreter has got the request to check the code. */
static void run_to_check(struct scene *s, struct client *c, const struct run_request *req)
{
    assert_int_equal(submit(s, c, req), 0);
    expect(s, FRAME_J_CREATE);
    run_continue(s, req, STEP_STARTING);
    runtime_started(&s->k);
    kernel_ready(s);
    expect_kernel_line(s, "\"op\":\"check\"");
    auto_free char *id = taken_code_id();
    str_copy(run_code_id, sizeof(run_code_id), id);
}

static void kernel_reports(struct scene *s, const char *report)
{
    auto_free char *line = str_printf("{\"event\":\"report\",\"id\":\"%s\",\"report\":%s}", run_code_id, report);

    kernel_says(s, line);
}

static void assert_refused(struct scene *s, struct client *c, const char *rule)
{
    auto_free char *type = str_printf("\"type\":\"%s\"", rule);

    run_ended(s, c);
    expect_no_kernel_line(s);
    assert_int_equal(c->err.id, 0);
    assert_json(c, "\"outcome\":\"error\",\"exitCode\":null");
    assert_json(c, "\"error\":{\"code\":\"code_refused\"");
    assert_json(c, "\"report\":{");
    assert_json(c, type);
    assert_json(c, "\\\"tier\\\": \\\"full\\\"");
    assert_null(strstr(c->json, "\"startedAt\""));
    drain_runs(s);
}

TEST(code_that_the_report_allows_runs_in_the_same_interpreter)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    runtime_output(&s, RT_STDOUT, "of the check");
    kernel_finishes(&s, run_code_id, "ok"); /* the code did not run yet */
    kernel_reports(&s, IMPURE);
    expect_kernel_line(&s, "\"op\":\"execute\"");
    kernel_reports(&s, REFUSED); /* too late */
    runtime_output(&s, RT_STDOUT, "of the code");
    kernel_finishes(&s, run_code_id, "ok");
    run_ended(&s, &c);
    assert_json(&c, "\"outcome\":\"success\"");
    assert_json(&c, "\"stdout\":\"of the code\"");
    assert_json(&c, "\"isSafe\":true");
    assert_json(&c, "\"imports\":[\"random\"]");
    drain_runs(&s);
    scene_close(&s);
}

TEST(code_that_the_report_refuses_does_not_run)
{
    struct scene s;
    struct client c;
    struct executor_stats stats;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    kernel_reports(&s, REFUSED);
    assert_refused(&s, &c, "call_open");
    executor_stats(s.executor, &stats);
    assert_int_equal(stats.checks_refused[REPORT_RULE_CALL_OPEN], 1);
    assert_int_equal(stats.checks_passed, 0);
    scene_close(&s);
}

TEST(an_answer_that_is_no_report_refuses_the_code)
{
    static const char *const answers[] = {
        "{}",
        "{\"violations\":[],\"omitted\":0,\"imports\":[],\"complexity\":1}",
        UNKNOWN_RULE,
        "{\"violations\":[],\"omitted\":0,\"imports\":[\"\\u0000\"],\"complexity\":-1,\"pure\":\"yes\"}",
    };

    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        struct scene s;
        struct client c;

        scene_open(&s);
        run_to_check(&s, &c, &checked);
        kernel_says(&s, "garbage \xff{");
        kernel_says(&s, "{\"event\":\"report\",\"id\":\"" OTHER_EXECUTION "\",\"report\":" PURE "}"); /* not its own */
        kernel_reports(&s, answers[i]);
        assert_refused(&s, &c, "check_failed");
        scene_close(&s);
    }
}

TEST(an_interpreter_that_refuses_to_check_refuses_the_code)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    auto_free char *line = str_printf("{\"event\":\"refused\",\"id\":\"%s\",\"why\":\"no such op\"}", run_code_id);
    kernel_says(&s, line);
    assert_refused(&s, &c, "check_failed");
    scene_close(&s);
}

TEST(an_interpreter_that_ends_during_the_check_refuses_the_code)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    runtime_exit(&s.k, -1, SIGSEGV);
    assert_refused(&s, &c, "check_failed");
    scene_close(&s);
}

TEST(a_check_that_does_not_end_is_killed_and_refuses_the_code)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    settle(&s);
    advance(&s, 5001);
    expect_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, -1, SIGKILL);
    assert_refused(&s, &c, "check_failed");
    scene_close(&s);
}

TEST(a_check_alone_answers_with_its_report_and_runs_nothing)
{
    static const char *const reports[] = { PURE, REFUSED };

    for (size_t i = 0; i < ARRAY_LEN(reports); i++) {
        struct run_request req = checked;
        struct scene s;
        struct client c;

        req.check = RUN_CHECK_ONLY;
        scene_open(&s);
        run_to_check(&s, &c, &req);
        kernel_reports(&s, reports[i]);
        run_ended(&s, &c);
        expect_no_kernel_line(&s);
        assert_int_equal(c.err.id, 0);
        assert_json(&c, i == 0 ? "\"isSafe\":true" : "\"isSafe\":false");
        assert_null(strstr(c.json, "code_refused"));
        drain_runs(&s);
        scene_close(&s);
    }
}

TEST(a_result_is_cached_without_a_wish_only_if_the_code_is_pure)
{
    static const struct {
        const char *report;
        bool if_pure, cached;
    } rows[] = { { PURE, true, true }, { IMPURE, true, false }, { IMPURE, false, true } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct run_request req = checked;
        struct scene s;
        struct client c;

        req.is_cacheable = true;
        req.cached_if_pure = rows[i].if_pure;
        scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
        run_to_check(&s, &c, &req);
        kernel_reports(&s, rows[i].report);
        expect_kernel_line(&s, "\"op\":\"execute\"");
        kernel_finishes(&s, run_code_id, "ok");
        run_ended(&s, &c);
        drain_runs(&s);
        assert_int_equal(submit(&s, &c, &req), 0);
        if (rows[i].cached) {
            run_ended(&s, &c);
            assert_true(c.from_cache);
            assert_json(&c, "\"report\":{");
        } else {
            expect(&s, FRAME_J_CREATE);
        }
        scene_close(&s);
    }
}

TEST(refused_code_is_not_cached)
{
    struct run_request req = checked;
    struct scene s;
    struct client c;

    req.is_cacheable = true;
    scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
    run_to_check(&s, &c, &req);
    kernel_reports(&s, REFUSED);
    assert_refused(&s, &c, "call_open");
    assert_int_equal(submit(&s, &c, &req), 0);
    expect(&s, FRAME_J_CREATE);
    scene_close(&s);
}

TEST(a_checked_and_an_unchecked_run_share_no_cached_result)
{
    struct run_request req = checked;
    struct scene s;
    struct client c;

    req.is_cacheable = true;
    scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
    run_to_check(&s, &c, &req);
    kernel_reports(&s, PURE);
    expect_kernel_line(&s, "\"op\":\"execute\"");
    kernel_finishes(&s, run_code_id, "ok");
    run_ended(&s, &c);
    drain_runs(&s);
    req.check = RUN_CHECK_NONE;
    assert_int_equal(submit(&s, &c, &req), 0);
    expect(&s, FRAME_J_CREATE);
    scene_close(&s);
}

TEST(a_run_can_be_cancelled_during_its_check)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to_check(&s, &c, &checked);
    run_cancel(take_ptr(&c.run));
    kernel_reports(&s, PURE);
    expect_no_kernel_line(&s);
    assert_int_equal(drain_runs(&s), 1);
    assert_int_equal(c.ends, 0);
    scene_close(&s);
}

TEST(a_streamed_run_that_is_refused_has_a_start_and_an_end)
{
    struct run_request req = checked;
    struct scene s;
    struct client c;

    req.streamed = true;
    scene_open(&s);
    run_to_check(&s, &c, &req);
    kernel_reports(&s, REFUSED);
    run_ended(&s, &c);
    assert_int_equal(c.starts, 1);
    assert_json(&c, "\"code_refused\"");
    drain_runs(&s);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(code_that_the_report_allows_runs_in_the_same_interpreter),
        RUN(code_that_the_report_refuses_does_not_run),
        RUN(an_answer_that_is_no_report_refuses_the_code),
        RUN(an_interpreter_that_refuses_to_check_refuses_the_code),
        RUN(an_interpreter_that_ends_during_the_check_refuses_the_code),
        RUN(a_check_that_does_not_end_is_killed_and_refuses_the_code),
        RUN(a_check_alone_answers_with_its_report_and_runs_nothing),
        RUN(a_result_is_cached_without_a_wish_only_if_the_code_is_pure),
        RUN(refused_code_is_not_cached),
        RUN(a_checked_and_an_unchecked_run_share_no_cached_result),
        RUN(a_run_can_be_cancelled_during_its_check),
        RUN(a_streamed_run_that_is_refused_has_a_start_and_an_end),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
