/* Contexts: creation, the queue of executions, events, input requests, interrupts and queries. */
#include "tests/unit/service/context_scene.h"

TEST(a_context_is_reported_when_its_kernel_is_ready_and_it_is_committed)
{
    struct scene s;
    struct context_answer a;
    struct context_info info;

    scene_open(&s);
    create_running(&s);
    context_request(&s, &a);
    runtime_started(&s.k);
    settle(&s);
    assert_int_equal(a.n, 0);
    assert_context_state(&s, CONTEXT_STARTING);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_string_equal(a.info.id, CONTEXT);
    assert_string_equal(a.info.version, "5.2");
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.state, CONTEXT_IDLE);
    assert_string_equal(info.language, "bash");
    assert_int_equal(info.executions, 0);
    scene_close(&s);
}

TEST(a_context_that_is_refused_does_not_exist)
{
    struct scene s;
    struct context_answer a = { 0 }, first, others[CONTEXTS_MAX] = { 0 }; /* others: never ready */
    struct context_info info;

    scene_open(&s);
    manager_context_create(s.m, ME, BOX, CONTEXT, &(struct context_spec){ .language = "bash" }, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_MISSING);
    create_running(&s);
    context_request(&s, &first);
    manager_context_create(s.m, ME, BOX, CONTEXT, &(struct context_spec){ .language = "bash" }, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_IDEMPOTENCY);
    for (unsigned i = 1; i < CONTEXTS_MAX; i++)
        manager_context_create(s.m, ME, BOX, NULL, &(struct context_spec){ .language = "bash" }, on_context,
                               &others[i]);
    manager_context_create(s.m, ME, BOX, FORK, &(struct context_spec){ .language = "bash" }, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_LIMIT);
    assert_false(context_read(&s, FORK, &info));
    scene_close(&s);
}

TEST(a_kernel_that_does_not_become_ready_leaves_no_context)
{
    enum { REFUSED, EXITED, SILENT, WAYS };
    static const enum err_id ids[WAYS] = { ERR_RUNTIME_MISSING, ERR_CONTEXT_DEAD, ERR_TIMEOUT };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct context_answer a;
        struct context_info info;

        scene_open(&s);
        create_running(&s);
        context_request(&s, &a);
        if (way == REFUSED) {
            runtime_error(&s.k, s.k.stream, ERR_PROGRAM_MISSING, "kernel: not found");
        } else if (way == EXITED) {
            runtime_started(&s.k);
            runtime_output(&s, RT_STDERR, "syntax error");
            runtime_exit(&s.k, 1, 0);
        } else {
            runtime_started(&s.k);
            advance(&s, 60000);
            expect_runtime(&s, FRAME_SIGNAL);
            runtime_exit(&s.k, -1, SIGKILL);
        }
        obey_until(&s, &a.n);
        settle(&s);
        if (a.n != 1 || a.err.id != ids[way])
            fail_msg("way %d: %d answers, error %d: %s", way, a.n, (int)a.err.id, a.err.msg);
        if (way == EXITED)
            assert_non_null(strstr(a.err.msg, "syntax error"));
        assert_false(context_read(&s, CONTEXT, &info));
        scene_close(&s);
    }
}

/* --- executions --- */

TEST(executions_run_in_order_and_one_at_a_time)
{
    struct scene s;
    struct execution_answer first, second;
    struct context_info info;

    context_open(&s);
    context_run(&s, EXECUTION, "one", 0, &first);
    context_run(&s, OTHER_EXECUTION, "two", 0, &second);
    expect_kernel_line(&s, "\"code\":\"one\"");
    answered(&s, &first.n);
    assert_int_equal(second.n, 1);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_RUNNING, "");
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_STARTING, "");
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.state, CONTEXT_BUSY);
    assert_string_equal(info.running, EXECUTION);
    assert_int_equal(info.queued, 1);
    expect_no_kernel_line(&s);
    kernel_finishes(&s, EXECUTION, "ok");
    expect_kernel_line(&s, "\"code\":\"two\"");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    kernel_finishes(&s, OTHER_EXECUTION, "error");
    settle(&s);
    read_execution(&s, OTHER_EXECUTION, &second);
    assert_int_equal(second.state, STORE_EXECUTION_ENDED);
    assert_int_equal(second.exit_code, 1);
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.state, CONTEXT_IDLE);
    assert_int_equal(info.executions, 2);
    scene_close(&s);
}

TEST(executions_that_are_queued_before_the_kernel_is_ready_run_when_it_is)
{
    struct scene s;
    struct context_answer created;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    context_request(&s, &created);
    runtime_started(&s.k);
    context_run(&s, EXECUTION, "early", 0, &a);
    answered(&s, &a.n);
    expect_no_kernel_line(&s);
    kernel_ready(&s);
    expect_kernel_line(&s, "\"code\":\"early\"");
    answered(&s, &created.n);
    scene_close(&s);
}

TEST(output_and_events_of_an_execution_are_kept_within_its_limit)
{
    struct scene s;
    struct execution_answer a = { 0 };
    struct context_info info;

    context_open(&s);
    runtime_output(&s, RT_STDOUT, "from a thread"); /* nothing runs: dropped */
    manager_context_execute(s.m, ME, BOX, CONTEXT, EXECUTION,
                            &(struct context_execution_spec){ .code = "x", .output_max = 100 }, on_execution, &a);
    expect_kernel_line(&s, "execute");
    answered(&s, &a.n);
    runtime_output(&s, RT_STDOUT, "out");
    runtime_output(&s, RT_STDERR, "err");
    kernel_says(&s, "{\"event\":\"result\",\"id\":\"" EXECUTION "\",\"count\":1,\"data\":{\"text/plain\":\"4\"}}");
    kernel_says(&s, "{\"event\":\"result\",\"id\":\"" OTHER_EXECUTION "\",\"count\":1,\"data\":{}}");
    kernel_says(&s, "not an event");
    kernel_says(&s,
                "{\"event\":\"error\",\"id\":\"" EXECUTION "\",\"name\":\"E\",\"value\":\"a value that does not fit "
                "into the rest of the limit\",\"traceback\":[]}");
    runtime_output(&s, RT_STDOUT, "0123456789012345678901234567890123456789012345678901234567890123456789");
    kernel_finishes(&s, EXECUTION, "ok");
    settle(&s);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.out_bytes[0], 73);
    assert_true(a.dropped[0] > 0);
    assert_int_equal(a.dropped[1], 0);
    assert_true(a.dropped[2] > 0);
    assert_output(&s, EXECUTION, 2, "err");
    assert_output(&s, EXECUTION, CONTEXT_EVENTS, "{\"type\":\"result\",\"count\":1,\"data\":{\"text/plain\":\"4\"}}\n");
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.rejected_lines, 2);
    scene_close(&s);
}

TEST(an_input_request_is_answered_once)
{
    struct scene s;
    struct err err = { 0 };

    context_open(&s);
    assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, "x", &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    context_run_begin(&s, "read", 0);
    assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, "x", &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    kernel_says(&s, "{\"event\":\"input\",\"id\":\"" EXECUTION "\",\"prompt\":\"? \",\"password\":false}");
    assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, "line", &err), 0);
    expect_kernel_line(&s, "\"op\":\"input\",\"id\":\"" EXECUTION "\",\"text\":\"line\"");
    assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, "x", &err), -1);
    kernel_says(&s, "{\"event\":\"input\",\"id\":\"" EXECUTION "\",\"prompt\":\"? \",\"password\":false}");
    assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, NULL, &err), 0);
    expect_kernel_line(&s, "\"eof\":true");
    scene_close(&s);
}

TEST(an_execution_beyond_the_limits_of_a_context_is_refused)
{
    struct scene s;
    struct execution_answer all[CONTEXT_EXECUTIONS_MAX], late;

    context_open(&s);
    context_run(&s, EXECUTION, "first", 0, &all[0]);
    answered(&s, &all[0].n);
    context_run(&s, EXECUTION, "again", 0, &late);
    answered(&s, &late.n);
    assert_int_equal(late.err.id, ERR_IDEMPOTENCY);
    for (unsigned i = 1; i < CONTEXT_EXECUTIONS_MAX; i++)
        context_run(&s, NULL, "x", 0, &all[i]);
    context_run(&s, OTHER_EXECUTION, "late", 0, &late);
    answered(&s, &late.n);
    assert_int_equal(late.err.id, ERR_CONTEXT_BUSY);
    read_execution(&s, OTHER_EXECUTION, &late);
    assert_int_equal(late.err.id, ERR_MISSING);
    for (unsigned i = 1; i < CONTEXT_EXECUTIONS_MAX; i++)
        assert_int_equal(all[i].n, 1);
    scene_close(&s);
}

/* --- interrupts and timeouts --- */

TEST(an_interrupt_waits_until_the_execution_has_stopped)
{
    static const struct {
        const char *status, *outcome, *ended_by;
        int exit_code;
    } rows[] = { { "interrupted", "interrupted", "killed", -1 },
                 { "ok", "finished", "exit", 0 },
                 { "error", "finished", "exit", 1 } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;
        struct context_answer a = { 0 };
        struct execution_answer row;

        context_open(&s);
        context_run_begin(&s, "sleep", 0);
        manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &a);
        expect_runtime(&s, FRAME_SIGNAL);
        settle(&s);
        assert_int_equal(a.n, 0);
        kernel_finishes(&s, EXECUTION, rows[i].status);
        answered(&s, &a.n);
        assert_int_equal(a.err.id, 0);
        assert_string_equal(a.outcome, rows[i].outcome);
        read_execution(&s, EXECUTION, &row);
        assert_string_equal(row.ended_by, rows[i].ended_by);
        assert_int_equal(row.exit_code, rows[i].exit_code);
        scene_close(&s);
    }
}

TEST(an_interrupt_of_an_idle_context_is_answered_at_once)
{
    struct scene s;
    struct context_answer a = { 0 };

    context_open(&s);
    manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &a);
    answered(&s, &a.n);
    assert_string_equal(a.outcome, "idle");
    expect_no_runtime(&s, FRAME_SIGNAL);
    scene_close(&s);
}

TEST(a_timeout_interrupts_and_a_kernel_that_obeys_keeps_its_state)
{
    struct scene s;
    struct context_info info;

    context_open(&s);
    context_run_begin(&s, "sleep", 100);
    advance(&s, 200);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_finishes(&s, EXECUTION, "interrupted");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "timeout");
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.state, CONTEXT_IDLE);
    assert_int_equal(info.restarts, 0);
    scene_close(&s);
}

TEST(a_kernel_that_ignores_an_interrupt_is_killed_and_restarted)
{
    enum { BY_TIMEOUT, BY_REQUEST, WAYS };
    static const char *const causes[WAYS] = { "timeout", "killed" };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct context_answer a = { 0 };
        struct execution_answer queued;
        struct context_info info;

        context_open(&s);
        context_run_begin(&s, "loop", way == BY_TIMEOUT ? 100 : 0);
        context_run(&s, OTHER_EXECUTION, "next", 0, &queued);
        answered(&s, &queued.n);
        if (way == BY_REQUEST)
            manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &a);
        else
            advance(&s, 200);
        expect_runtime(&s, FRAME_SIGNAL);
        advance(&s, 3000);
        expect_runtime(&s, FRAME_SIGNAL);
        runtime_exit(&s.k, -1, SIGKILL);
        expect_runtime(&s, FRAME_EXEC); /* the next language kernel */
        s.k.stream = got.f.stream;
        if (way == BY_REQUEST) {
            answered(&s, &a.n);
            assert_string_equal(a.outcome, "killed");
        }
        assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, causes[way]);
        runtime_started(&s.k);
        kernel_ready(&s);
        expect_kernel_line(&s, "\"op\":\"execute\",\"id\":\"" OTHER_EXECUTION "\"");
        kernel_finishes(&s, OTHER_EXECUTION, "ok");
        assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
        assert_true(context_read(&s, CONTEXT, &info));
        assert_int_equal(info.state, CONTEXT_IDLE);
        assert_int_equal(info.restarts, 1);
        assert_int_equal(info.executions, 1);
        scene_close(&s);
    }
}

static void ignore_watch(void *arg UNUSED, const struct store_execution *ended UNUSED)
{
}

TEST(a_cancelled_execution_leaves_the_queue_or_is_interrupted)
{
    struct scene s;
    struct execution_answer queued;

    context_open(&s);
    context_run_begin(&s, "one", 0);
    context_run(&s, OTHER_EXECUTION, "two", 0, &queued);
    answered(&s, &queued.n);
    auto_(execution_watch) second = manager_watch_execution(s.m, ME, BOX, OTHER_EXECUTION, ignore_watch, NULL);
    execution_watch_kill(second);
    settle(&s);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "killed");
    expect_no_runtime(&s, FRAME_SIGNAL);
    auto_(execution_watch) first = manager_watch_execution(s.m, ME, BOX, EXECUTION, ignore_watch, NULL);
    execution_watch_kill(first);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_finishes(&s, EXECUTION, "interrupted");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
    assert_context_state(&s, CONTEXT_IDLE);
    scene_close(&s);
}

TEST(the_timeout_of_an_execution_does_not_run_while_its_sandbox_is_paused)
{
    struct scene s;
    struct sandbox_answer a = { 0 };

    context_open(&s);
    context_run_begin(&s, "sleep", 1000);
    manager_pause(s.m, ME, BOX, on_sandbox, &a);
    expect(&s, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    answered(&s, &a.n);
    advance(&s, 60000);
    expect_no_runtime(&s, FRAME_SIGNAL);
    manager_resume(s.m, ME, BOX, on_sandbox, &a);
    expect(&s, FRAME_J_THAW);
    jailer_ok(&s.k);
    answered(&s, &a.n);
    advance(&s, 500);
    expect_no_runtime(&s, FRAME_SIGNAL);
    advance(&s, 2000);
    expect_runtime(&s, FRAME_SIGNAL);
    scene_close(&s);
}

/* --- queries --- */

struct query_answer {
    int n;
    struct err err;
    char json[200];
};

static void on_query(void *arg, const struct err *err, const char *json)
{
    struct query_answer *a = arg;

    a->n++;
    a->err = err ? *err : (struct err){ 0 };
    snprintf(a->json, sizeof(a->json), "%s", json ? json : "");
}

TEST(a_query_is_answered_by_the_kernel_once)
{
    enum { ANSWERED, REFUSED, SILENT, KERNEL_DIED, SANDBOX_DELETED, STOPPED, WAYS };
    static const enum err_id ids[WAYS] = { 0, ERR_INVALID, ERR_TIMEOUT, ERR_CONTEXT_DEAD, ERR_SANDBOX_ENDED, ERR_BUSY };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct query_answer a = { 0 };
        struct sandbox_answer deleted = { 0 };

        context_open(&s);
        manager_context_query(s.m, ME, BOX, CONTEXT, false, "pri", 3, on_query, &a);
        expect_kernel_line(&s, "\"op\":\"complete\",\"id\":\"q1\"");
        if (way == ANSWERED)
            kernel_says(&s, "{\"event\":\"completions\",\"id\":\"q1\",\"matches\":[\"printf\"],\"start\":0,\"end\":3}");
        else if (way == REFUSED)
            kernel_says(&s, "{\"event\":\"refused\",\"id\":\"q1\",\"why\":\"no\"}");
        else if (way == SILENT)
            advance(&s, 10000);
        else if (way == KERNEL_DIED)
            runtime_exit(&s.k, 1, 0);
        else if (way == SANDBOX_DELETED)
            manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
        else
            manager_finish(s.m);
        obey_until(&s, &a.n);
        settle(&s);
        if (a.n != 1 || a.err.id != ids[way])
            fail_msg("way %d: %d answers, error %d: %s", way, a.n, (int)a.err.id, a.err.msg);
        if (way == ANSWERED)
            assert_non_null(strstr(a.json, "printf"));
        scene_close(&s);
        assert_int_equal(a.n, 1);
    }
}

TEST(a_query_to_a_context_that_is_not_idle_is_refused)
{
    struct scene s;
    struct query_answer a = { 0 };

    context_open(&s);
    manager_context_query(s.m, ME, BOX, FORK, true, "x", 0, on_query, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_MISSING);
    context_run_begin(&s, "busy", 0);
    manager_context_query(s.m, ME, BOX, CONTEXT, true, "x", 0, on_query, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_EXISTS);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_context_is_reported_when_its_kernel_is_ready_and_it_is_committed),
        RUN(a_context_that_is_refused_does_not_exist),
        RUN(a_kernel_that_does_not_become_ready_leaves_no_context),
        RUN(executions_run_in_order_and_one_at_a_time),
        RUN(executions_that_are_queued_before_the_kernel_is_ready_run_when_it_is),
        RUN(output_and_events_of_an_execution_are_kept_within_its_limit),
        RUN(an_input_request_is_answered_once),
        RUN(an_execution_beyond_the_limits_of_a_context_is_refused),
        RUN(an_interrupt_waits_until_the_execution_has_stopped),
        RUN(an_interrupt_of_an_idle_context_is_answered_at_once),
        RUN(a_timeout_interrupts_and_a_kernel_that_obeys_keeps_its_state),
        RUN(a_kernel_that_ignores_an_interrupt_is_killed_and_restarted),
        RUN(a_cancelled_execution_leaves_the_queue_or_is_interrupted),
        RUN(the_timeout_of_an_execution_does_not_run_while_its_sandbox_is_paused),
        RUN(a_query_is_answered_by_the_kernel_once),
        RUN(a_query_to_a_context_that_is_not_idle_is_refused),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
