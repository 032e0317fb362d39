/* A second manager on the store of the first: sandboxes, executions and contexts are adopted, or
 * their loss is recorded. */
#include "tests/unit/service/context_scene.h"

/* The manager is killed, and another one starts. */
static void restart(struct scene *s)
{
    scene_kill(s);
    fd_close(&s->k.runtime); /* the jailer holds the other end */
    s->ends = 0;
    scene_start(s);
}

/* The jailer passes the living sandbox to the new manager. */
static void adopt(struct scene *s)
{
    expect(s, FRAME_J_ADOPT);
    jailer_made(s);
    runtime_greets(s);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
}

/* The runtime lists a stream from before the restart. */
static void runtime_resumes(struct scene *s, uint32_t stream, uint64_t out, uint64_t in)
{
    struct rt_resume m = { .request = FRAME_EXEC, .out = out, .in = in };
    uint8_t bytes[FRAME_PAYLOAD_MAX];
    int len = rt_resume_encode(&m, bytes, NULL);

    s->k.stream = stream;
    runtime_says(&s->k, FRAME_RESUME, 0, stream, bytes, (size_t)len);
}

/* The runtime has listed all streams. */
static void runtime_resumed_all(struct scene *s, uint32_t fence)
{
    struct rt_stats m = { 0 };
    uint8_t bytes[FRAME_PAYLOAD_MAX];
    int len = rt_stats_encode(&m, bytes, NULL);

    runtime_says(&s->k, FRAME_DONE, 0, fence, bytes, (size_t)len);
}

static uint32_t expect_fence(struct scene *s)
{
    expect_runtime(s, FRAME_STATS);
    return got.f.stream;
}

TEST(a_running_sandbox_is_adopted_with_its_quota)
{
    struct scene s;
    struct sandbox_answer a = { 0 };
    struct manager_stats stats;

    scene_open(&s);
    create_running(&s);
    restart(&s);
    assert_false(manager_ready(s.m, NULL));
    manager_pause(s.m, ME, BOX, on_sandbox, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_BUSY); /* not recovered yet */
    create_as(&s, ME, OTHER_BOX, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_BUSY);
    adopt(&s);
    scene_await_ready(&s);
    manager_stats(s.m, &stats);
    assert_int_equal(stats.adopted, 1);
    assert_int_equal(stats.running, 1);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    assert_sandbox(&s, BOX, STORE_SANDBOX_RUNNING, "");
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    delete_sandbox(&s, BOX);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_sandbox_that_the_jailer_does_not_know_has_ended_meanwhile)
{
    enum { LOST, EXPIRED, WAYS };
    static const char *const causes[WAYS] = { "lost", "lifetime" };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;

        scene_open(&s);
        create_running(&s);
        scene_kill(&s);
        fd_close(&s.k.runtime);
        if (way == EXPIRED)
            atomic_fetch_add(&clock_ahead_ns, 400 * NS_PER_S);
        scene_start(&s);
        expect(&s, FRAME_J_ADOPT);
        jailer_error(&s.k, ERR_MISSING, "no such sandbox");
        scene_await_ready(&s);
        settle(&s);
        assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, causes[way]);
        assert_int_equal(s.ends, 1);
        assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
        scene_close(&s);
    }
}

TEST(a_sandbox_that_was_being_created_is_removed_and_its_row_is_ended)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    create_to(&s, CREATE_CLAIMED, &a);
    restart(&s);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &zero_stats);
    scene_await_ready(&s);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "lost");
    assert_int_equal(a.n, 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_sandbox_of_the_jailer_without_a_row_is_destroyed)
{
    struct scene s;
    struct jail_id m;

    scene_open(&s);
    scene_kill(&s);
    s.stray = OTHER_BOX;
    scene_start(&s);
    expect(&s, FRAME_J_DESTROY);
    assert_int_equal(jail_id_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.id, OTHER_BOX);
    scene_close(&s);
}

TEST(a_paused_sandbox_is_paused_again_after_its_adoption)
{
    enum { GRANTED, REFUSED, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct sandbox_answer a = { 0 };
        struct manager_stats stats;

        scene_open(&s);
        create_running(&s);
        manager_pause(s.m, ME, BOX, on_sandbox, &a);
        expect(&s, FRAME_J_FREEZE);
        jailer_ok(&s.k);
        answered(&s, &a.n);
        restart(&s);
        expect(&s, FRAME_J_ADOPT);
        expect(&s, FRAME_J_THAW); /* a frozen sandbox could not answer */
        jailer_ok(&s.k);
        jailer_made(&s);
        runtime_greets(&s);
        runtime_claimed(&s.k, ALL_INSIDE, 3);
        expect(&s, FRAME_J_FREEZE);
        assert_false(manager_ready(s.m, NULL));
        if (way == GRANTED)
            jailer_ok(&s.k);
        else
            jailer_error(&s.k, ERR_SYS, "refused");
        scene_await_ready(&s);
        manager_stats(s.m, &stats);
        assert_int_equal(stats.paused, way == GRANTED);
        assert_int_equal(stats.running, way == REFUSED);
        scene_close(&s);
    }
}

TEST(a_sandbox_of_a_tenant_that_was_suspended_meanwhile_is_ended)
{
    struct scene s;
    struct store_tenant row = { .name = ME, .created_ms = 1, .suspended_ms = 1 };

    scene_open(&s);
    create_running(&s);
    store_tenant_insert(s.store, &row, NULL, NULL);
    restart(&s);
    adopt(&s);
    assert_int_equal(obey_until(&s, &s.ends), 1);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "killed");
    assert_true(tenant_quotas_get(manager_quotas(s.m), ME)->is_suspended);
    scene_close(&s);
}

TEST(a_runtime_that_dies_during_the_adoption_is_lost)
{
    struct scene s;

    scene_open(&s);
    create_running(&s);
    restart(&s);
    expect(&s, FRAME_J_ADOPT);
    jailer_made(&s);
    runtime_dies(&s);
    obey_until(&s, &s.ends);
    scene_await_ready(&s);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "lost");
    scene_close(&s);
}

/* --- executions --- */

/* Restarts while an execution runs that has written "abc"; returns its stream. */
static uint32_t restart_with_execution(struct scene *s, const struct execution_spec *spec)
{
    scene_open(s);
    create_running(s);
    execute_running(s, EXECUTION, spec);
    runtime_output(s, RT_STDOUT, "abc");
    uint32_t stream = s->k.stream;
    restart(s);
    return stream;
}

static void count_end(void *arg, const struct store_execution *ended)
{
    *(int *)arg += ended != NULL;
}

TEST(a_running_execution_is_resumed_without_a_gap_in_its_output)
{
    struct scene s;
    struct execution_answer a;
    int ends = 0;
    uint32_t stream = restart_with_execution(&s, &(struct execution_spec){ 0 });

    adopt(&s);
    uint32_t fence = expect_fence(&s);
    runtime_resumes(&s, stream, 0, 0);
    runtime_started(&s.k);
    runtime_output(&s, RT_STDOUT, "abcdef"); /* what was not credited is repeated */
    runtime_resumed_all(&s, fence);
    scene_await_ready(&s);
    auto_(execution_watch) watch = manager_watch_execution(s.m, ME, BOX, EXECUTION, count_end, &ends);
    assert_non_null(watch);
    assert_true(execution_watch_has_started(watch));
    assert_int_equal(execution_watch_output_bytes(watch, 1), 6);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_int_equal(ends, 1);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.exit_code, 0);
    assert_int_equal(a.out_bytes[0], 6);
    assert_output(&s, EXECUTION, 1, "abcdef");
    scene_close(&s);
}

TEST(an_execution_that_ended_during_the_restart_is_recorded_completely)
{
    struct scene s;
    uint32_t stream = restart_with_execution(&s, &(struct execution_spec){ 0 });

    adopt(&s);
    uint32_t fence = expect_fence(&s);
    runtime_resumes(&s, stream, 3, 0);
    runtime_output(&s, RT_STDOUT, "d");
    runtime_exit(&s.k, 0, 0);
    runtime_resumed_all(&s, fence);
    settle(&s);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_output(&s, EXECUTION, 1, "abcd");
    scene_close(&s);
}

TEST(the_timeout_of_a_resumed_execution_goes_on)
{
    struct scene s;
    uint32_t stream = restart_with_execution(&s, &(struct execution_spec){ .timeout_ms = 10000 });

    adopt(&s);
    uint32_t fence = expect_fence(&s);
    runtime_resumes(&s, stream, 3, 0);
    runtime_started(&s.k);
    runtime_resumed_all(&s, fence);
    advance(&s, 9000);
    expect_no_runtime(&s, FRAME_SIGNAL);
    advance(&s, 1500);
    expect_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, -1, SIGKILL);
    settle(&s);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "timeout");
    scene_close(&s);
}

TEST(the_loss_of_an_execution_is_recorded)
{
    enum { UNKNOWN_TO_RUNTIME, SANDBOX_GONE, ORPHAN, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct execution_answer a;

        scene_open(&s);
        create_running(&s);
        execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
        runtime_output(&s, RT_STDOUT, "abc");
        settle(&s);
        if (way == ORPHAN) { /* the end of its sandbox was committed, its own was not */
            struct store_sandbox row = { .state = STORE_SANDBOX_ENDED, .ended_ms = 1 };

            str_copy(row.id, sizeof(row.id), BOX);
            store_sandbox_update(s.store, ME, &row, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, NULL, NULL,
                                 NULL);
        }
        restart(&s);
        if (way == UNKNOWN_TO_RUNTIME) {
            adopt(&s);
            runtime_resumed_all(&s, expect_fence(&s));
        } else if (way == SANDBOX_GONE) {
            expect(&s, FRAME_J_ADOPT);
            jailer_error(&s.k, ERR_MISSING, "no such sandbox");
        }
        scene_await_ready(&s);
        settle(&s);
        read_execution(&s, EXECUTION, &a);
        if (a.state != STORE_EXECUTION_FAILED || !str_eq(a.ended_by, "lost") || a.out_bytes[0] != 3)
            fail_msg("way %d: %d '%s' %s, %d bytes", way, (int)a.state, a.ended_by, a.error, (int)a.out_bytes[0]);
        assert_output(&s, EXECUTION, 1, "abc");
        scene_close(&s);
    }
}

TEST(an_end_that_was_acknowledged_but_not_committed_is_replayed)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    store_refuse(EXECUTION_INSERT, 1000);
    clock_hold(true);
    execute(&s, EXECUTION, &(struct execution_spec){ .report_only_end = true }, &a);
    runtime_started(&s.k);
    runtime_output(&s, RT_STDOUT, "kept");
    runtime_exit(&s.k, 0, 0);
    turn(&s.k);
    clock_hold(false);
    answered(&s, &a.n);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.exit_code, 0);
    scene_kill(&s);
    store_refuse(NULL, 0);
    fd_close(&s.k.runtime);
    scene_start(&s);
    settle(&s);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.exit_code, 0);
    assert_output(&s, EXECUTION, 1, "kept");
    scene_close(&s);
}

TEST(executions_of_the_last_hour_count_after_a_restart)
{
    struct scene s;
    struct execution_answer a = { 0 };
    uint32_t stream = restart_with_execution(&s, &(struct execution_spec){ 0 });

    adopt(&s);
    uint32_t fence = expect_fence(&s);
    runtime_resumes(&s, stream, 3, 0);
    runtime_resumed_all(&s, fence);
    scene_await_ready(&s);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 1);
    set_quota(&s, ME, STORE_QUOTA_EXECUTIONS, 1);
    manager_execute(s.m, ME, BOX, OTHER_EXECUTION, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_QUOTA);
    scene_close(&s);
}

TEST(input_continues_after_the_bytes_that_the_program_has)
{
    struct scene s;
    uint32_t stream = restart_with_execution(&s, &(struct execution_spec){ .input = "0123456789", .input_len = 10 });
    uint8_t credit[4] = { 0, 1 };

    adopt(&s);
    uint32_t fence = expect_fence(&s);
    runtime_resumes(&s, stream, 3, 4);
    runtime_started(&s.k);
    runtime_resumed_all(&s, fence);
    runtime_says(&s.k, FRAME_CREDIT, 0, stream, credit, 4);
    expect_runtime(&s, FRAME_DATA);
    assert_int_equal(got.f.len, 6);
    assert_memory_equal(got.f.data, "456789", 6);
    scene_close(&s);
}

/* --- contexts --- */

/* Restarts with a context that is idle or busy; returns the stream of its language kernel. */
static uint32_t restart_with_context(struct scene *s, bool busy)
{
    context_open(s);
    if (busy)
        context_run_begin(s, "sleep", 10000);
    uint32_t stream = s->k.stream;
    restart(s);
    adopt(s);
    uint32_t fence = expect_fence(s);
    runtime_resumes(s, stream, 0, 0);
    runtime_started(&s->k);
    runtime_resumed_all(s, fence);
    runtime_says(&s->k, FRAME_CREDIT, 0, stream, (uint8_t[]){ 0, 0, 1, 0 }, 4);
    scene_await_ready(s);
    return stream;
}

/* The language kernel answers the query with which the manager learns that it is idle. */
static void kernel_answers_query(struct scene *s)
{
    const char key[] = "\"id\":\"";

    do
        expect_runtime(s, FRAME_DATA);
    while ((got.f.flags & RT_CHANNEL) != RT_KERNEL || got.f.len <= 1);
    auto_free char *line = str_dup_n((const char *)got.f.data, got.f.len);
    char *id = strstr(line, key);
    assert_non_null(strstr(line, "\"op\":\"complete\""));
    assert_non_null(id);
    id += strlen(key);
    *strchr(id, '"') = '\0';
    auto_free char *reply = str_printf("{\"event\":\"completions\",\"id\":\"%s\",\"matches\":[],\"start\":0,\"end\":0}",
                                       id);
    kernel_says(s, reply);
}

TEST(a_context_is_busy_after_a_restart_until_its_kernel_answers)
{
    struct scene s;
    struct execution_answer queued;

    restart_with_context(&s, false);
    assert_context_state(&s, CONTEXT_BUSY);
    context_run(&s, OTHER_EXECUTION, "next", 0, &queued);
    answered(&s, &queued.n);
    kernel_answers_query(&s);
    expect_kernel_line(&s, "\"code\":\"next\"");
    kernel_finishes(&s, OTHER_EXECUTION, "ok");
    settle(&s);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

TEST(the_execution_that_a_context_ran_is_lost_but_the_context_is_not)
{
    struct scene s;
    struct execution_answer a;
    struct context_answer interrupted = { 0 };

    restart_with_context(&s, true);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_FAILED);
    assert_string_equal(a.ended_by, "lost");
    assert_context_state(&s, CONTEXT_BUSY);
    manager_context_interrupt(s.m, ME, BOX, CONTEXT, on_context, &interrupted);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_finishes(&s, EXECUTION, "interrupted"); /* not reported any more */
    settle(&s);
    assert_int_equal(interrupted.n, 0);
    scene_close(&s);
}

TEST(a_context_whose_kernel_is_gone_is_dead_after_a_restart)
{
    struct scene s;
    struct context_answer a = { 0 };

    context_open(&s);
    restart(&s);
    adopt(&s);
    runtime_resumed_all(&s, expect_fence(&s));
    scene_await_ready(&s);
    assert_context_state(&s, CONTEXT_DEAD);
    manager_context_restart(s.m, ME, BOX, CONTEXT, on_context, &a);
    expect_runtime(&s, FRAME_EXEC);
    s.k.stream = got.f.stream;
    runtime_started(&s.k);
    kernel_ready(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_running_sandbox_is_adopted_with_its_quota),
        RUN(a_sandbox_that_the_jailer_does_not_know_has_ended_meanwhile),
        RUN(a_sandbox_that_was_being_created_is_removed_and_its_row_is_ended),
        RUN(a_sandbox_of_the_jailer_without_a_row_is_destroyed),
        RUN(a_paused_sandbox_is_paused_again_after_its_adoption),
        RUN(a_sandbox_of_a_tenant_that_was_suspended_meanwhile_is_ended),
        RUN(a_runtime_that_dies_during_the_adoption_is_lost),
        RUN(a_running_execution_is_resumed_without_a_gap_in_its_output),
        RUN(an_execution_that_ended_during_the_restart_is_recorded_completely),
        RUN(the_timeout_of_a_resumed_execution_goes_on),
        RUN(the_loss_of_an_execution_is_recorded),
        RUN(an_end_that_was_acknowledged_but_not_committed_is_replayed),
        RUN(executions_of_the_last_hour_count_after_a_restart),
        RUN(input_continues_after_the_bytes_that_the_program_has),
        RUN(a_context_is_busy_after_a_restart_until_its_kernel_answers),
        RUN(the_execution_that_a_context_ran_is_lost_but_the_context_is_not),
        RUN(a_context_whose_kernel_is_gone_is_dead_after_a_restart),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
