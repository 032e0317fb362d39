/* Contexts whose language kernel dies, is restarted, forked or deleted, in each state. */
#include "tests/unit/service/context_scene.h"

/* The language kernel ends; the jailer reports the counters. */
static void kernel_dies(struct scene *s, int code, int signo)
{
    runtime_exit(&s->k, code, signo);
    turn(&s->k);
    obey(s);
    settle(s);
}

static void next_kernel_starts(struct scene *s)
{
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
    runtime_started(&s->k);
}

TEST(an_idle_context_whose_kernel_dies_is_dead_until_it_is_restarted)
{
    struct scene s;
    struct context_answer a = { 0 };
    struct execution_answer refused;
    struct context_info info;

    context_open(&s);
    kernel_dies(&s, 7, 0);
    assert_true(context_read(&s, CONTEXT, &info));
    assert_int_equal(info.state, CONTEXT_DEAD);
    assert_int_equal(info.death_error.id, ERR_CONTEXT_DEAD);
    assert_non_null(strstr(info.death_error.msg, "status 7"));
    context_run(&s, EXECUTION, "x", 0, &refused);
    answered(&s, &refused.n);
    assert_int_equal(refused.err.id, ERR_CONTEXT_DEAD);
    manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_CONTEXT_DEAD);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    next_kernel_starts(&s);
    settle(&s);
    assert_int_equal(a.n, 0);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.info.restarts, 1);
    context_run_begin(&s, "x", 0);
    scene_close(&s);
}

TEST(a_kernel_that_dies_while_it_is_busy_fails_the_running_and_the_queued_execution)
{
    static const struct {
        int code, signo;
        const char *ended_by;
    } rows[] = { { 3, 0, "exit" }, { -1, SIGSEGV, "signal" } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;
        struct execution_answer queued, row;

        context_open(&s);
        context_run_begin(&s, "one", 0);
        context_run(&s, OTHER_EXECUTION, "two", 0, &queued);
        answered(&s, &queued.n);
        runtime_output(&s, RT_STDOUT, "last words");
        kernel_dies(&s, rows[i].code, rows[i].signo);
        assert_context_state(&s, CONTEXT_DEAD);
        read_execution(&s, EXECUTION, &row);
        assert_int_equal(row.state, STORE_EXECUTION_FAILED);
        assert_string_equal(row.ended_by, rows[i].ended_by);
        assert_output(&s, EXECUTION, 1, "last words");
        read_execution(&s, OTHER_EXECUTION, &row);
        assert_int_equal(row.state, STORE_EXECUTION_FAILED);
        assert_string_equal(row.ended_by, "");
        assert_int_equal(row.started_ms, 0);
        scene_close(&s);
    }
}

/* --- restart --- */

static struct scene *again_scene;
static struct execution_answer requested_again;

static void on_interrupted_execute_again(void *arg, const struct err *err, const struct context_info *info)
{
    on_context(arg, err, info);
    context_run(again_scene, OTHER_EXECUTION, "two", 0, &requested_again);
}

TEST(an_execution_that_is_requested_while_the_kernel_dies_fails_with_it)
{
    struct scene s;
    struct context_answer interrupted = { 0 };
    struct execution_answer row;

    context_open(&s);
    again_scene = &s;
    context_run_begin(&s, "one", 0);
    manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_interrupted_execute_again, &interrupted);
    settle(&s);
    kernel_dies(&s, 3, 0);
    assert_int_equal(interrupted.n, 1);
    assert_int_equal(requested_again.n, 1);
    assert_context_state(&s, CONTEXT_DEAD);
    read_execution(&s, OTHER_EXECUTION, &row);
    assert_int_equal(row.state, STORE_EXECUTION_FAILED);
    scene_close(&s);
}

TEST(a_restart_ends_the_running_execution_and_fails_the_queued_one)
{
    struct scene s;
    struct context_answer a = { 0 };
    struct execution_answer queued;

    context_open(&s);
    context_run_begin(&s, "one", 0);
    context_run(&s, OTHER_EXECUTION, "two", 0, &queued);
    answered(&s, &queued.n);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_dies(&s, -1, SIGKILL);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_FAILED, "");
    next_kernel_starts(&s);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_int_equal(a.info.state, CONTEXT_IDLE);
    assert_int_equal(a.info.restarts, 1);
    assert_int_equal(a.info.executions, 0);
    scene_close(&s);
}

TEST(a_restart_of_an_idle_context_accepts_executions_for_the_next_kernel)
{
    struct scene s;
    struct context_answer a = { 0 };
    struct execution_answer queued;

    context_open(&s);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_dies(&s, -1, SIGKILL);
    next_kernel_starts(&s);
    context_run(&s, EXECUTION, "next", 0, &queued);
    answered(&s, &queued.n);
    kernel_ready(&s);
    expect_kernel_line(&s, "\"code\":\"next\"");
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    scene_close(&s);
}

TEST(a_restart_during_the_start_waits_for_that_kernel)
{
    struct scene s;
    struct context_answer created, a = { 0 };

    scene_open(&s);
    create_running(&s);
    context_request(&s, &created);
    runtime_started(&s.k);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    expect_no_runtime(&s, FRAME_SIGNAL);
    kernel_ready(&s);
    answered(&s, &created.n);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, 0);
    scene_close(&s);
}

TEST(a_restart_whose_kernel_cannot_start_leaves_the_context_dead)
{
    struct scene s;
    struct context_answer a = { 0 };

    context_open(&s);
    kernel_dies(&s, 0, 0);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    expect_runtime(&s, FRAME_EXEC);
    s.k.stream = got.f.stream;
    runtime_error(&s.k, s.k.stream, ERR_PROGRAM_MISSING, "kernel: not found");
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_RUNTIME_MISSING);
    assert_context_state(&s, CONTEXT_DEAD);
    scene_close(&s);
}

/* --- deletion --- */

TEST(a_context_is_deleted_in_any_state)
{
    enum { STARTING, IDLE, BUSY, DEAD, STATES };

    for (int phase = 0; phase < STATES; phase++) {
        struct scene s;
        struct context_answer created = { 0 }, deleted = { 0 }, again = { 0 };
        struct context_info info;

        if (phase == STARTING) {
            scene_open(&s);
            create_running(&s);
            context_request(&s, &created);
            runtime_started(&s.k);
        } else {
            context_open(&s);
        }
        if (phase == BUSY)
            context_run_begin(&s, "one", 0);
        if (phase == DEAD)
            kernel_dies(&s, 0, 0);
        manager_context_delete(s.m, ME, BOX, CONTEXT, on_context, &deleted);
        manager_context_delete(s.m, ME, BOX, CONTEXT, on_context, &again);
        answered(&s, &again.n);
        assert_int_equal(again.err.id, ERR_MISSING);
        if (phase != DEAD) {
            assert_int_equal(deleted.n, 0);
            expect_runtime(&s, FRAME_SIGNAL);
            kernel_dies(&s, -1, SIGKILL);
        }
        answered(&s, &deleted.n);
        assert_int_equal(deleted.err.id, 0);
        assert_false(context_read(&s, CONTEXT, &info));
        if (phase == BUSY)
            assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
        if (phase == STARTING) {
            answered(&s, &created.n);
            assert_int_equal(created.err.id, ERR_CONTEXT_DEAD);
        }
        expect_no_runtime(&s, FRAME_EXEC); /* no other kernel is started */
        scene_close(&s);
    }
}

/* --- forks --- */

TEST(a_context_that_cannot_be_forked_is_refused)
{
    struct scene s;
    struct context_answer a = { 0 };
    struct context_info info;

    context_open(&s);
    manager_context_fork(s.m, ME, BOX, CONTEXT, FORK, NULL, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_FORK_UNSUPPORTED); /* bash */
    context_run_begin(&s, "one", 0);
    manager_context_fork(s.m, ME, BOX, CONTEXT, FORK, NULL, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_EXISTS);
    manager_context_fork(s.m, ME, BOX, FORK, CONTEXT, NULL, on_context, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_MISSING);
    assert_false(context_read(&s, FORK, &info));
    scene_close(&s);
}

/* Opens a scene with an idle python context and requests a fork of it. */
static void fork_begin(struct scene *s, struct context_answer *a)
{
    struct context_answer created = { 0 };

    scene_open(s);
    create_running(s);
    manager_context_create(s->m, ME, BOX, CONTEXT, &(struct context_spec){ .language = "python" }, on_context,
                           &created);
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
    runtime_started(&s->k);
    kernel_ready(s);
    answered(s, &created.n);
    assert_int_equal(created.err.id, 0);
    *a = (struct context_answer){ 0 };
    manager_context_fork(s->m, ME, BOX, CONTEXT, FORK, NULL, on_context, a);
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
}

TEST(a_fork_is_a_context_of_its_own)
{
    struct scene s;
    struct context_answer a;
    struct context_info info;

    fork_begin(&s, &a);
    runtime_started(&s.k);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_string_equal(a.info.id, FORK);
    assert_string_equal(a.info.forked_from, CONTEXT);
    kernel_dies(&s, 0, 0);
    assert_true(context_read(&s, FORK, &info));
    assert_int_equal(info.state, CONTEXT_DEAD);
    assert_context_state(&s, CONTEXT_IDLE);
    scene_close(&s);
}

TEST(a_fork_that_fails_leaves_the_original)
{
    enum { REFUSED, SILENT, WAYS };
    static const enum err_id ids[WAYS] = { ERR_FORK_UNSUPPORTED, ERR_TIMEOUT };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct context_answer a;
        struct context_info info;

        fork_begin(&s, &a);
        if (way == REFUSED) {
            runtime_error(&s.k, s.k.stream, ERR_FORK_UNSUPPORTED, "it has two threads");
        } else {
            runtime_started(&s.k);
            advance(&s, 30000);
            expect_runtime(&s, FRAME_SIGNAL);
            kernel_dies(&s, -1, SIGKILL);
        }
        answered(&s, &a.n);
        assert_int_equal(a.err.id, ids[way]);
        assert_false(context_read(&s, FORK, &info));
        assert_context_state(&s, CONTEXT_IDLE);
        scene_close(&s);
    }
}

/* --- the sandbox ends --- */

enum sandbox_end { DELETED, RUNTIME_DIED, JAILER_LOST, SANDBOX_ENDS };

static void end_sandbox(struct scene *s, enum sandbox_end way, const int *counter)
{
    struct sandbox_answer deleted = { 0 };

    if (way == DELETED)
        manager_delete(s->m, ME, BOX, on_sandbox, &deleted);
    else if (way == JAILER_LOST)
        jailer_is_lost(s);
    else
        runtime_dies(s);
    obey_until(s, counter);
    obey_until(s, way == DELETED ? &deleted.n : &s->ends);
    settle(s);
    assert_false(manager_sandbox_is_live(s->m, ME, BOX));
}

TEST(the_end_of_a_sandbox_answers_everything_that_waits_for_its_contexts)
{
    for (int way = 0; way < SANDBOX_ENDS; way++) {
        struct scene s;
        struct context_answer interrupted = { 0 }, removed = { 0 };

        context_open(&s);
        context_run_begin(&s, "one", 0);
        manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &interrupted);
        manager_context_delete(s.m, ME, BOX, CONTEXT, on_context, &removed);
        settle(&s);
        assert_int_equal(interrupted.n + removed.n, 0);
        end_sandbox(&s, (enum sandbox_end)way, &removed.n);
        assert_int_equal(interrupted.n, 1);
        assert_int_equal(removed.n, 1);
        assert_int_equal(removed.err.id == 0, way != DELETED); /* its kernel is gone, as requested */
        assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
        scene_close(&s);
    }
}

static void count_end(void *arg, const struct store_execution *ended)
{
    *(int *)arg += ended != NULL;
}

TEST(the_end_of_a_sandbox_ends_the_executions_of_its_contexts)
{
    static const struct {
        enum store_execution_state running;
        const char *ended_by;
    } rows[SANDBOX_ENDS] = { [DELETED] = { STORE_EXECUTION_FAILED, "killed" },
                             [RUNTIME_DIED] = { STORE_EXECUTION_FAILED, "" },
                             [JAILER_LOST] = { STORE_EXECUTION_FAILED, "" } };

    for (int way = 0; way < SANDBOX_ENDS; way++) {
        struct scene s;
        struct execution_answer queued, row;
        int ends = 0;

        context_open(&s);
        context_run_begin(&s, "one", 0);
        context_run(&s, OTHER_EXECUTION, "two", 0, &queued);
        answered(&s, &queued.n);
        auto_(execution_watch) watch = manager_watch_execution(s.m, ME, BOX, EXECUTION, count_end, &ends);
        assert_non_null(watch);
        end_sandbox(&s, (enum sandbox_end)way, &ends);
        assert_int_equal(ends, 1);
        read_execution(&s, EXECUTION, &row);
        if (row.state != rows[way].running || !str_eq(row.ended_by, rows[way].ended_by))
            fail_msg("way %d: %d '%s' %s", way, (int)row.state, row.ended_by, row.error);
        read_execution(&s, OTHER_EXECUTION, &row);
        assert_int_equal(row.state, STORE_EXECUTION_FAILED);
        scene_close(&s);
    }
}

TEST(a_stop_of_the_server_answers_requests_to_contexts_once)
{
    struct scene s;
    struct context_answer created, interrupted = { 0 };

    context_open(&s);
    context_run_begin(&s, "one", 0);
    manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &interrupted);
    created = (struct context_answer){ 0 };
    manager_context_create(s.m, ME, BOX, FORK, &(struct context_spec){ .language = "bash" }, on_context, &created);
    settle(&s);
    manager_finish(s.m);
    settle(&s);
    assert_int_equal(interrupted.n, 1);
    assert_int_equal(interrupted.err.id, ERR_BUSY);
    assert_int_equal(created.n, 1);
    assert_int_equal(created.err.id, ERR_BUSY);
    scene_close(&s);
    assert_int_equal(created.n + interrupted.n, 2);
}

TEST(a_stop_of_the_server_answers_an_execution_that_waits_for_its_sandbox)
{
    struct scene s;
    struct sandbox_answer paused = { 0 };
    struct execution_answer a;

    context_open(&s);
    manager_pause(s.m, ME, BOX, on_sandbox, &paused);
    context_run(&s, EXECUTION, "x", 0, &a);
    settle(&s);
    assert_int_equal(a.n, 0);
    manager_finish(s.m); /* the loop does not turn any more */
    assert_int_equal(paused.n, 1);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_BUSY);
    scene_close(&s);
    assert_int_equal(a.n, 1);
}

TEST(the_end_of_a_sandbox_answers_the_deletion_of_a_context_that_was_never_ready)
{
    struct scene s;
    struct context_answer created, deleted = { 0 };
    struct sandbox_answer ended = { 0 };

    scene_open(&s);
    create_running(&s);
    context_request(&s, &created);
    manager_context_delete(s.m, ME, BOX, CONTEXT, on_context, &deleted);
    settle(&s);
    manager_delete(s.m, ME, BOX, on_sandbox, &ended);
    obey_until(&s, &ended.n);
    settle(&s);
    assert_int_equal(created.n, 1);
    assert_int_equal(created.err.id, ERR_SANDBOX_ENDED);
    assert_int_equal(deleted.n, 1);
    assert_int_equal(deleted.err.id, ERR_SANDBOX_ENDED);
    scene_close(&s);
}

TEST(a_context_whose_commit_is_refused_is_reported_as_an_error)
{
    struct scene s;
    struct context_answer a;

    scene_open(&s);
    create_running(&s);
    context_request(&s, &a);
    runtime_started(&s.k);
    store_refuse(SANDBOX_SPEC_UPDATE, 1);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_store_refused();
    assert_int_equal(a.err.id, ERR_STORE_FAILED);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_idle_context_whose_kernel_dies_is_dead_until_it_is_restarted),
        RUN(a_kernel_that_dies_while_it_is_busy_fails_the_running_and_the_queued_execution),
        RUN(an_execution_that_is_requested_while_the_kernel_dies_fails_with_it),
        RUN(a_restart_ends_the_running_execution_and_fails_the_queued_one),
        RUN(a_restart_of_an_idle_context_accepts_executions_for_the_next_kernel),
        RUN(a_restart_during_the_start_waits_for_that_kernel),
        RUN(a_restart_whose_kernel_cannot_start_leaves_the_context_dead),
        RUN(a_context_is_deleted_in_any_state),
        RUN(a_context_that_cannot_be_forked_is_refused),
        RUN(a_fork_is_a_context_of_its_own),
        RUN(a_fork_that_fails_leaves_the_original),
        RUN(the_end_of_a_sandbox_answers_everything_that_waits_for_its_contexts),
        RUN(the_end_of_a_sandbox_ends_the_executions_of_its_contexts),
        RUN(a_stop_of_the_server_answers_requests_to_contexts_once),
        RUN(a_stop_of_the_server_answers_an_execution_that_waits_for_its_sandbox),
        RUN(the_end_of_a_sandbox_answers_the_deletion_of_a_context_that_was_never_ready),
        RUN(a_context_whose_commit_is_refused_is_reported_as_an_error),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
