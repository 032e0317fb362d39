/* Runs that fail, time out, are cancelled or stopped, at each of their steps. */
#include "tests/unit/service/execute/run_scene.h"

/* The last step at which a run can be interrupted. */
#define LAST_STEP STEP_GATHERING

static const struct run_request *const full_requests[] = { &full_command, &full_code };

static void assert_nothing_left(struct scene *s)
{
    drain_runs(s);
    assert_int_equal(quota_used(s, ME, STORE_QUOTA_SANDBOXES), 0);
    assert_int_equal(quota_used(s, ME, STORE_QUOTA_MEMORY), 0);
}

/* --- failures --- */

enum cause { REFUSED, RUNTIME_DIES, JAILER_LOST };

TEST(a_run_that_fails_at_any_step_is_answered_once_and_leaves_nothing)
{
    static const struct {
        const char *name;
        enum run_step step;
        enum cause cause;
        enum err_id id; /* 0: it has a result */
    } rows[] = {
        { "the jailer refuses", STEP_CREATING, REFUSED, ERR_SYS },
        { "the jailer is lost while creating", STEP_CREATING, JAILER_LOST, ERR_LOST },
        { "the file is refused", STEP_STAGING, REFUSED, ERR_SYS },
        { "the runtime dies while staging", STEP_STAGING, RUNTIME_DIES, ERR_LOST },
        { "the jailer is lost while staging", STEP_STAGING, JAILER_LOST, ERR_LOST },
        { "the program is refused", STEP_STARTING, REFUSED, ERR_SYS },
        { "the runtime dies while starting", STEP_STARTING, RUNTIME_DIES, ERR_LOST },
        { "the jailer is lost while starting", STEP_STARTING, JAILER_LOST, ERR_LOST },
        { "the runtime dies while running", STEP_RUNNING, RUNTIME_DIES, ERR_LOST },
        { "the jailer is lost while running", STEP_RUNNING, JAILER_LOST, ERR_LOST },
        { "the file cannot be read", STEP_GATHERING, REFUSED, 0 },
        { "the runtime dies while collecting", STEP_GATHERING, RUNTIME_DIES, 0 },
        { "the jailer is lost while collecting", STEP_GATHERING, JAILER_LOST, 0 },
    };

    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        const struct run_request *req = full_requests[i % 2];
        const size_t row = i / 2;
        struct scene s;
        struct client c;

        scene_open(&s);
        run_to(&s, &c, req, rows[row].step, NULL);
        uint32_t stream = got.f.stream;
        if (rows[row].cause == RUNTIME_DIES)
            runtime_dies(&s);
        else if (rows[row].cause == JAILER_LOST)
            jailer_is_lost(&s);
        else if (rows[row].step == STEP_CREATING)
            jailer_error(&s.k, ERR_SYS, "refused");
        else
            runtime_error(&s.k, stream, ERR_SYS, "refused");
        obey_until(&s, &c.ends);
        settle(&s);
        if (c.ends != 1 || c.err.id != rows[row].id)
            fail_msg("%s: %d ends, error %d: %s", rows[row].name, c.ends, (int)c.err.id, c.err.msg);
        if (!rows[row].id) {
            assert_json(&c, "\"outcome\":\"success\"");
            assert_json(&c, "\"files\":[],\"omitted\":[");
        }
        assert_nothing_left(&s);
        assert_int_equal(c.ends, 1);
        scene_close(&s);
    }
}

TEST(a_file_that_cannot_be_written_is_named_in_the_error)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &full_command, STEP_STAGING, NULL);
    runtime_error(&s.k, got.f.stream, ERR_SYS, "no space");
    run_ended(&s, &c);
    assert_string_equal(c.err.msg, "files[0]: no space");
    scene_close(&s);
}

TEST(an_interpreter_that_dies_is_an_error_before_the_code_and_a_result_after_it)
{
    enum { BEFORE, AFTER, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct client c;

        scene_open(&s);
        run_to(&s, &c, &plain_code, way == BEFORE ? STEP_STARTING : STEP_RUNNING, NULL);
        if (way == BEFORE)
            runtime_started(&s.k);
        runtime_output(&s, RT_STDERR, "out of stack");
        runtime_exit(&s.k, 2, 0);
        obey_until(&s, &c.ends);
        settle(&s);
        if (way == BEFORE) {
            assert_int_equal(c.err.id, ERR_CONTEXT_DEAD);
            assert_non_null(strstr(c.err.msg, "out of stack"));
        } else {
            assert_int_equal(c.err.id, 0);
            assert_json(&c, "\"outcome\":\"error\"");
            assert_json(&c, "\"stderr\":\"out of stack\"");
            assert_json(&c, "\"code\":\"context_dead\"");
        }
        assert_nothing_left(&s);
        scene_close(&s);
    }
}

/* --- time limits --- */

TEST(a_command_that_runs_too_long_is_killed)
{
    struct scene s;
    struct client c;
    struct run_request req = { .argv = true_argv, .timeout_ms = 100 };

    scene_open(&s);
    run_to(&s, &c, &req, STEP_RUNNING, NULL);
    runtime_output(&s, RT_STDOUT, "so far");
    advance(&s, 200);
    expect_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, -1, SIGKILL);
    run_ended(&s, &c);
    assert_json(&c, "\"outcome\":\"timeout\"");
    assert_json(&c, "\"endedBy\":\"timeout\"");
    assert_json(&c, "\"stdout\":\"so far\"");
    assert_nothing_left(&s);
    scene_close(&s);
}

TEST(code_that_runs_too_long_is_interrupted_then_killed)
{
    enum { OBEYS, IGNORES, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct client c;
        struct run_request req = { .code = "loop", .language = "bash", .timeout_ms = 100 };
        struct rt_signal m;

        scene_open(&s);
        run_to(&s, &c, &req, STEP_RUNNING, NULL);
        advance(&s, 200);
        expect_runtime(&s, FRAME_SIGNAL);
        assert_int_equal(rt_signal_decode(&got.f, &m, NULL), 0);
        assert_int_equal(m.signo, SIGINT);
        if (way == OBEYS) {
            kernel_finishes(&s, run_code_id, "interrupted");
        } else {
            advance(&s, 500);
            expect_runtime(&s, FRAME_SIGNAL);
            assert_int_equal(rt_signal_decode(&got.f, &m, NULL), 0);
            assert_int_equal(m.signo, SIGKILL);
            runtime_exit(&s.k, -1, SIGKILL);
        }
        run_ended(&s, &c);
        assert_json(&c, "\"outcome\":\"timeout\"");
        assert_json(&c, "\"endedBy\":\"timeout\"");
        assert_nothing_left(&s);
        scene_close(&s);
    }
}

TEST(an_interpreter_that_does_not_become_ready_is_a_timeout)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &plain_code, STEP_STARTING, NULL);
    runtime_started(&s.k);
    advance(&s, 60000);
    expect_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, -1, SIGKILL);
    run_ended(&s, &c);
    assert_int_equal(c.err.id, ERR_TIMEOUT);
    assert_nothing_left(&s);
    scene_close(&s);
}

TEST(a_collection_that_takes_too_long_is_left_out_of_the_result)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &full_command, STEP_GATHERING, NULL);
    advance(&s, 10000);
    run_ended(&s, &c);
    assert_json(&c, "\"outcome\":\"success\"");
    assert_json(&c, "\"reason\":\"the sandbox did not answer in time\"");
    assert_nothing_left(&s);
    scene_close(&s);
}

TEST(a_run_that_waits_too_long_in_the_queue_fails)
{
    struct scene s;
    struct client c, first;

    scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
    run_to(&s, &c, &plain_command, STEP_WAITING, &first);
    run_continue(&s, &plain_command, STEP_RUNNING); /* the first one */
    advance(&s, 9000);
    assert_int_equal(c.ends, 0);
    advance(&s, 21000);
    run_ended(&s, &c);
    assert_int_equal(c.err.id, ERR_BUSY);
    scene_close(&s);
}

/* --- cancellation --- */

TEST(a_cancelled_run_has_no_callback_and_leaves_nothing)
{
    for (int i = 0; i < 2 * (LAST_STEP + 1); i++) {
        const struct run_request *req = full_requests[i % 2];
        enum run_step step = (enum run_step)(i / 2);
        struct scene s;
        struct client c, first = { 0 }, next;

        scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
        run_to(&s, &c, req, step, &first);
        run_cancel(c.run);
        if (step == STEP_WAITING)
            run_cancel(first.run);
        settle(&s);
        if (step <= STEP_CREATING)
            jailer_made(&s); /* the answer to J_CREATE comes too late */
        assert_nothing_left(&s);
        assert_int_equal(c.ends + first.ends, 0);
        assert_int_equal(submit(&s, &next, &plain_command), 0); /* its slot is free */
        expect(&s, FRAME_J_CREATE);
        run_continue(&s, &plain_command, STEP_RUNNING);
        runtime_exit(&s.k, 0, 0);
        run_ended(&s, &next);
        assert_int_equal(next.err.id, 0);
        assert_int_equal(c.ends, 0);
        scene_close(&s);
    }
}

TEST(code_that_is_cancelled_when_it_starts_is_not_run)
{
    struct scene s;
    struct client c;
    struct run_request req = full_code;

    scene_open(&s);
    req.streamed = true;
    run_to(&s, &c, &req, STEP_STARTING, NULL);
    c.cancels_at_start = true;
    runtime_started(&s.k);
    kernel_ready(&s);
    assert_int_equal(c.starts, 1);
    expect_no_kernel_line(&s);
    kernel_finishes(&s, c.id, "ok");
    expect_no_runtime(&s, FRAME_READ);
    assert_int_equal(drain_runs(&s), 1);
    assert_int_equal(c.ends, 0);
    scene_close(&s);
}

TEST(a_run_that_is_cancelled_in_the_queue_is_never_started)
{
    struct scene s;
    struct client c, first;

    scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
    run_to(&s, &c, &plain_command, STEP_WAITING, &first);
    run_cancel(c.run);
    run_continue(&s, &plain_command, STEP_RUNNING);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &first);
    drain_runs(&s);
    expect_no(&s, FRAME_J_CREATE);
    assert_int_equal(c.ends, 0);
    scene_close(&s);
}

TEST(a_run_that_waits_starts_when_another_has_its_result)
{
    struct scene s;
    struct client c, first;

    scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
    run_to(&s, &c, &plain_command, STEP_WAITING, &first);
    expect_no(&s, FRAME_J_CREATE);
    run_continue(&s, &plain_command, STEP_RUNNING);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &first);
    expect(&s, FRAME_J_CREATE);
    run_continue(&s, &plain_command, STEP_RUNNING);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    assert_int_equal(c.err.id, 0);
    scene_close(&s);
}

/* --- a tenant that is stopped --- */

TEST(a_stop_of_the_tenant_ends_a_run_at_any_step)
{
    for (int i = 0; i < 2 * (LAST_STEP + 1); i++) {
        const struct run_request *req = full_requests[i % 2];
        enum run_step step = (enum run_step)(i / 2);
        struct scene s;
        struct client c, first = { 0 };

        scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
        run_to(&s, &c, req, step, &first);
        if (step == STEP_WAITING)
            run_cancel(first.run);
        suspend(&s, ME);
        suspend(&s, ME); /* twice is not more */
        settle(&s);
        if (step <= STEP_CREATING)
            jailer_made(&s);
        if (step == STEP_STARTING || step == STEP_RUNNING) {
            assert_int_equal(c.ends, 0); /* until the program is dead */
            expect_runtime(&s, FRAME_SIGNAL);
            if (step == STEP_STARTING)
                runtime_started(&s.k);
            runtime_exit(&s.k, -1, SIGKILL);
        }
        bool has_result = step == STEP_RUNNING || step == STEP_GATHERING || (step == STEP_STARTING && !req->code);
        if (has_result && step != STEP_GATHERING) { /* files of a killed program are collected */
            expect_runtime(&s, FRAME_READ);
            runtime_error(&s.k, got.f.stream, ERR_MISSING, "no such file");
        }
        obey_until(&s, &c.ends);
        settle(&s);
        if (c.ends != 1 || c.err.id != (has_result ? 0 : ERR_TENANT_SUSPENDED))
            fail_msg("step %d: %d ends, error %d: %s %s", (int)step, c.ends, (int)c.err.id, c.err.msg, c.json);
        if (has_result)
            assert_json(&c, step == STEP_GATHERING ? "\"endedBy\":\"exit\"" : "\"endedBy\":\"killed\"");
        assert_nothing_left(&s);
        assert_int_equal(c.ends, 1);
        assert_int_equal(submit(&s, &c, req), -1); /* nothing new starts */
        assert_int_equal(c.err.id, ERR_TENANT_SUSPENDED);
        scene_close(&s);
    }
}

TEST(a_stop_of_a_tenant_does_not_touch_another)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &plain_command, STEP_RUNNING, NULL);
    suspend(&s, "other");
    settle(&s);
    expect_no_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    assert_json(&c, "\"outcome\":\"success\"");
    scene_close(&s);
}

/* --- the server stops --- */

TEST(a_stop_of_the_server_answers_a_run_at_any_step_once)
{
    for (int step = STEP_WAITING; step <= STEP_DONE; step++) {
        struct scene s;
        struct client c, first = { 0 };

        scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
        run_to(&s, &c, &full_command, (enum run_step)step, &first);
        executor_finish(s.executor);
        settle(&s);
        assert_int_equal(c.ends, 1);
        assert_int_equal(c.err.id, step == STEP_DONE ? 0 : ERR_BUSY);
        assert_int_equal(first.ends, step == STEP_WAITING);
        struct client late;
        assert_int_equal(submit(&s, &late, &plain_command), -1);
        assert_int_equal(late.err.id, ERR_BUSY);
        scene_close(&s);
        assert_int_equal(c.ends, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_run_that_fails_at_any_step_is_answered_once_and_leaves_nothing),
        RUN(a_file_that_cannot_be_written_is_named_in_the_error),
        RUN(an_interpreter_that_dies_is_an_error_before_the_code_and_a_result_after_it),
        RUN(a_command_that_runs_too_long_is_killed),
        RUN(code_that_runs_too_long_is_interrupted_then_killed),
        RUN(an_interpreter_that_does_not_become_ready_is_a_timeout),
        RUN(a_collection_that_takes_too_long_is_left_out_of_the_result),
        RUN(a_run_that_waits_too_long_in_the_queue_fails),
        RUN(a_cancelled_run_has_no_callback_and_leaves_nothing),
        RUN(code_that_is_cancelled_when_it_starts_is_not_run),
        RUN(a_run_that_is_cancelled_in_the_queue_is_never_started),
        RUN(a_run_that_waits_starts_when_another_has_its_result),
        RUN(a_stop_of_the_tenant_ends_a_run_at_any_step),
        RUN(a_stop_of_a_tenant_does_not_touch_another),
        RUN(a_stop_of_the_server_answers_a_run_at_any_step_once),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
