/* Executions that a second server process resumes: which data is repeated, what continues, and
 * what is reported as lost. */
#include "fake.h"

#include "sandbox/engine_internal.h"

static const char box_name[] = "sbaaaaaaaaaaaaaaaaaaaa";
static const char exec_name[] = "exaaaaaaaaaaaaaaaaaaaa";

/* An adopted sandbox that is ready and has not received RESUME yet. */
static void scene_adopted(struct fake *k)
{
    struct sandbox_spec spec = plain_spec();
    struct rt_hello hello;

    scene_engine(k);
    assert_int_equal(sandbox_handle_adopt(k->engine, box_name, &spec, &fake_box_ops, k, &k->box, NULL), 0);
    jailer_takes(k, FRAME_J_ADOPT);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(k, WIRE_VERSION, hello.epoch);
    runtime_claimed(k, ALL_INSIDE, 3);
    assert_int_equal(k->ready, 1);
}

static void take_up(struct fake *k, uint64_t out, uint64_t err, uint64_t elapsed_ms, uint64_t wall_ms, uint64_t cap)
{
    struct exec_spec spec = { .id = exec_name, .wall_ms = wall_ms, .output_max = cap, .confirm_end = true };
    struct exec_resume resume = { .stream_id = 2, .stored_bytes = { out, err }, .elapsed_ms = elapsed_ms };
    struct err why = { 0 };

    k->stream = 2;
    if (sandbox_handle_exec_resume(k->box, &spec, &resume, &fake_exec_ops, k, &k->exec, &why) < 0)
        fail_msg("%s", why.msg);
    sandbox_handle_resume_finish(k->box);
}

static void runtime_resumes_request(struct fake *k, uint8_t request, uint32_t stream, uint64_t out, uint64_t in)
{
    struct rt_resume m = { .request = request, .out = out, .in = in };
    uint8_t bytes[FRAME_PAYLOAD_MAX];
    int len = rt_resume_encode(&m, bytes, NULL);

    runtime_says(k, FRAME_RESUME, 0, stream, bytes, (size_t)len);
}

static void runtime_resumes(struct fake *k, uint32_t stream, uint64_t out, uint64_t in)
{
    runtime_resumes_request(k, FRAME_EXEC, stream, out, in);
}

static void fence_answers(struct fake *k, uint32_t stream)
{
    struct rt_stats m = { 0 };
    uint8_t bytes[FRAME_PAYLOAD_MAX];
    int len = rt_stats_encode(&m, bytes, NULL);

    runtime_says(k, FRAME_DONE, 0, stream, bytes, (size_t)len);
}

TEST(stored_bytes_are_skipped_once_over_both_channels)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 4, 2, 0, 60000, 0); /* "abcd" and "xy" are stored; two bytes were credited to the runtime */
    runtime_takes(&k, FRAME_STATS);
    uint32_t fence = got.f.stream;
    runtime_resumes(&k, 2, 2, 0);
    runtime_started(&k);
    assert_int_equal(k.started, 1);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "cd", 2);
    runtime_says(&k, FRAME_DATA, RT_STDERR, 2, "xyz", 3);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "efg", 3);
    fence_answers(&k, fence);
    assert_string_equal(k.out.data, "efg");
    assert_string_equal(k.errout.data, "z");
    runtime_exit(&k, 3, 0);
    runtime_takes(&k, FRAME_CLOSE); /* of the fence */
    assert_int_equal(got.f.stream, fence);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &(struct jail_stats){ 0 });
    assert_int_equal(k.exited, 1);
    const struct receipt *r = exec_handle_receipt(k.exec);
    assert_string_equal(r->execution, exec_name);
    assert_int_equal(r->exit_code, 3);
    assert_int_equal(r->stdout_bytes, 7);
    assert_int_equal(r->stderr_bytes, 3);
    assert_int_equal(r->dropped_bytes, 0);
    assert_non_null(r->cpu_ns.why);
    assert_non_null(r->denials_why);
    assert_null(r->wall_ns.why);
    scene_end(&k);
}

TEST(the_output_cap_includes_stored_bytes)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 4, 0, 0, 60000, 6);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 4, 0);
    runtime_started(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "12345", 5);
    assert_string_equal(k.out.data, "12");
    assert_int_equal(exec_handle_receipt(k.exec)->dropped_bytes, 3);
    scene_end(&k);
}

TEST(thawing_a_sandbox_does_not_end_executions_that_await_resume)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 0, 0, 0, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    exec_handle_pause(k.exec, false); /* as when the sandbox is thawed */
    turn(&k);
    turn(&k);
    assert_false(take_any(k.jailer)); /* the jailer is not asked to end it */
    runtime_resumes(&k, 2, 0, 0);
    runtime_started(&k);
    assert_int_equal(k.started, 1);
    scene_end(&k);
}

TEST(a_language_kernel_repeats_all_uncredited_data)
{
    struct exec_spec spec = { .id = exec_name, .is_language_kernel = true, .confirm_end = true };
    struct exec_resume resume = { .stream_id = 2 };
    struct fake k;

    scene_adopted(&k);
    k.stream = 2;
    assert_int_equal(sandbox_handle_exec_resume(k.box, &spec, &resume, &fake_exec_ops, &k, &k.exec, NULL), 0);
    sandbox_handle_resume_finish(k.box);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 1000, 7);
    runtime_started(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "out", 3);
    runtime_says(&k, FRAME_DATA, RT_KERNEL, 2, "{}", 2);
    assert_string_equal(k.out.data, "out");
    assert_string_equal(k.kernel.data, "{}");
    scene_end(&k);
}

TEST(the_end_is_confirmed_when_the_execution_is_freed)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 0, 0, 0, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 0, 0);
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    turn(&k);
    assert_false(take_any(k.runtime)); /* a third server process would get it again */
    exec_handle_free(k.exec);
    k.exec = NULL;
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, 2);
    scene_end(&k);
}

TEST(an_execution_that_ended_before_the_resume_is_reported_completely)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 0, 0, 0, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 0, 0);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "last", 4);
    assert_int_equal(k.started, 1);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_string_equal(k.out.data, "last");
    assert_int_equal(k.ended_by, ENDED_EXIT);
    scene_end(&k);

    scene_adopted(&k);
    take_up(&k, 0, 0, 0, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 0, 0);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended, 0);
    scene_end(&k);
}

TEST(an_execution_that_the_sandbox_does_not_know_is_lost)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 0, 0, 0, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    fence_answers(&k, got.f.stream);
    assert_int_equal(k.exec_failed, 1);
    assert_int_equal(k.err.id, ERR_LOST);
    scene_end(&k);
}

TEST(an_execution_that_is_not_resumed_is_killed)
{
    struct fake k;

    scene_adopted(&k);
    sandbox_handle_resume_finish(k.box);
    runtime_takes(&k, FRAME_STATS);
    uint32_t fence = got.f.stream;
    runtime_resumes(&k, 6, 0, 0);
    fence_answers(&k, fence);
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, fence);
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, 6); /* before its last frame: cancelled, with all that it started */
    scene_end(&k);
}

TEST(a_watch_and_an_upload_of_the_previous_server_are_cancelled)
{
    struct fake k;

    scene_adopted(&k);
    sandbox_handle_resume_finish(k.box);
    runtime_takes(&k, FRAME_STATS);
    uint32_t fence = got.f.stream;
    runtime_resumes_request(&k, FRAME_WATCH, 6, 0, 0);
    runtime_resumes_request(&k, FRAME_WRITE, 8, 0, 0);
    fence_answers(&k, fence);
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, fence);
    uint32_t given_up = 0;
    for (int i = 0; i < 2; i++) {
        runtime_takes(&k, FRAME_CLOSE);
        given_up |= 1u << got.f.stream;
        runtime_takes(&k, FRAME_STATS); /* no frame of the stream may follow it */
    }
    assert_int_equal(given_up, 1u << 6 | 1u << 8);
    scene_end(&k);
}

TEST(the_wall_clock_includes_the_time_before_the_resume)
{
    struct fake k;

    scene_adopted(&k);
    take_up(&k, 0, 0, 59990, 60000, 0);
    runtime_takes(&k, FRAME_STATS);
    runtime_resumes(&k, 2, 0, 0);
    runtime_started(&k);
    uint64_t end = now_ms() + 5000;
    while (!take_any(k.runtime) && now_ms() < end)
        ev_turn(k.ev, 10);
    assert_int_equal(got.f.type, FRAME_SIGNAL);
    runtime_exit(&k, -1, SIGKILL);
    turn_until(&k, &k.exited);
    assert_int_equal(k.ended_by, ENDED_TIMEOUT);
    assert_true(exec_handle_receipt(k.exec)->wall_ns.v >= 59990 * NS_PER_MS);
    scene_end(&k);
}

TEST(standard_input_continues_at_its_old_offset)
{
    struct exec_spec spec = { .id = exec_name, .stdin_open = true };
    struct exec_resume resume = { .stream_id = 2 };
    uint8_t credit[4] = { 10 };
    struct fake k;

    scene_adopted(&k);
    k.stream = 2;
    assert_int_equal(sandbox_handle_exec_resume(k.box, &spec, &resume, &fake_exec_ops, &k, &k.exec, NULL), 0);
    runtime_resumes(&k, 2, 0, 3);
    runtime_started(&k);
    assert_int_equal(exec_handle_stdin_received(k.exec), 3);
    assert_int_equal(exec_handle_write(k.exec, "defg", 4), 0); /* no credit yet */
    runtime_says(&k, FRAME_CREDIT, 0, 2, credit, 4);
    assert_int_equal(k.writable, 1);
    assert_int_equal(exec_handle_write(k.exec, "defg", 4), 4);
    runtime_takes(&k, FRAME_DATA);
    assert_memory_equal(got.f.data, "defg", 4);
    scene_end(&k);
}

TEST(only_an_adopted_sandbox_can_resume_executions)
{
    struct exec_spec spec = { .id = exec_name };
    struct exec_resume resume = { .stream_id = 2 };
    struct err err = { 0 };
    struct fake k;

    scene_ready(&k);
    assert_int_equal(sandbox_handle_exec_resume(k.box, &spec, &resume, &fake_exec_ops, &k, &k.exec, &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    scene_end(&k);
}

/* --- requests of a server --- */

static struct sandbox_handle_usage used;
static int told;

static void on_usage(void *arg UNUSED, const struct sandbox_handle_usage *u, const struct err *err)
{
    told++;
    if (!err)
        used = *u;
}

TEST(usage_is_read_by_the_jailer_at_the_time_of_the_request)
{
    struct fake k;

    told = 0;
    scene_ready(&k);
    sandbox_handle_usage(k.box, on_usage, &k);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &(struct jail_stats){ .cpu_ns = 5, .memory = 6, .pids = 7, .io_write = JAIL_UNKNOWN });
    assert_int_equal(told, 1);
    assert_int_equal(used.cpu_ns, 5);
    assert_int_equal(used.memory, 6);
    assert_int_equal(used.pids, 7);
    assert_true(used.io_write == SANDBOX_USAGE_UNKNOWN);
    scene_end(&k);
}

TEST(a_new_lifetime_applies_in_the_jailer_and_in_the_engine)
{
    struct jail_set_limits m;
    struct fake k;

    scene_ready(&k);
    sandbox_handle_set_lifetime(k.box, 30, on_done, &k);
    jailer_takes(&k, FRAME_J_SET_LIMITS);
    assert_int_equal(jail_set_limits_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.id, k.id);
    assert_int_equal(m.lifetime_ms, 30);
    jailer_ok(&k);
    assert_int_equal(k.done, 1);
    assert_true(k.done_ok);
    uint64_t end = now_ms() + 5000;
    while (!take_any(k.jailer) && now_ms() < end)
        ev_turn(k.ev, 10);
    assert_int_equal(got.f.type, FRAME_J_KILL);
    assert_int_equal(sandbox_handle_ended_by(k.box), ENDED_LIFETIME);
    scene_end(&k);
}

TEST(a_lifetime_that_the_jailer_refuses_changes_nothing)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_set_lifetime(k.box, 1, on_done, &k);
    jailer_takes(&k, FRAME_J_SET_LIMITS);
    jailer_error(&k, ERR_EXISTS, "it is dead");
    assert_int_equal(k.done_err.id, ERR_EXISTS);
    for (int i = 0; i < 5; i++)
        ev_turn(k.ev, 2);
    assert_false(take_any(k.jailer));
    scene_end(&k);
}

static size_t listed;

static void on_list(void *arg UNUSED, const char (*ids)[ID_SIZE], size_t n, const struct err *err)
{
    told++;
    assert_null(err);
    listed = n;
    assert_string_equal(ids[0], box_name);
}

TEST(the_list_of_the_jailer_includes_sandboxes_without_a_handle)
{
    static struct jail_list m = { .n = 1 };
    uint8_t bytes[FRAME_PAYLOAD_MAX];
    struct fake k;

    told = 0;
    memcpy(m.ids[0], box_name, sizeof(box_name));
    scene_engine(&k);
    engine_list_sandboxes(k.engine, NULL, on_list, &k);
    jailer_takes(&k, FRAME_J_LIST);
    int len = jail_list_encode(&m, bytes, NULL);
    put(k.jailer, FRAME_DONE, 0, got.f.stream, bytes, (size_t)len);
    turn(&k);
    assert_int_equal(told, 1);
    assert_int_equal(listed, 1);
    engine_destroy_sandbox(k.engine, box_name);
    jailer_takes(&k, FRAME_J_DESTROY);
    scene_end(&k);
}

TEST(ids_can_be_chosen_and_are_checked)
{
    struct sandbox_spec box = plain_spec();
    struct err err = { 0 };
    struct fake k;

    scene_engine(&k);
    box.id = "../../etc";
    assert_int_equal(sandbox_handle_new(k.engine, &box, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    box.id = box_name;
    assert_int_equal(sandbox_handle_new(k.engine, &box, &fake_box_ops, &k, &k.box, &err), 0);
    assert_string_equal(sandbox_handle_id(k.box), box_name);
    scene_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(stored_bytes_are_skipped_once_over_both_channels),
        RUN(the_output_cap_includes_stored_bytes),
        RUN(thawing_a_sandbox_does_not_end_executions_that_await_resume),
        RUN(a_language_kernel_repeats_all_uncredited_data),
        RUN(the_end_is_confirmed_when_the_execution_is_freed),
        RUN(an_execution_that_ended_before_the_resume_is_reported_completely),
        RUN(an_execution_that_the_sandbox_does_not_know_is_lost),
        RUN(an_execution_that_is_not_resumed_is_killed),
        RUN(a_watch_and_an_upload_of_the_previous_server_are_cancelled),
        RUN(the_wall_clock_includes_the_time_before_the_resume),
        RUN(standard_input_continues_at_its_old_offset),
        RUN(only_an_adopted_sandbox_can_resume_executions),
        RUN(usage_is_read_by_the_jailer_at_the_time_of_the_request),
        RUN(a_new_lifetime_applies_in_the_jailer_and_in_the_engine),
        RUN(a_lifetime_that_the_jailer_refuses_changes_nothing),
        RUN(the_list_of_the_jailer_includes_sandboxes_without_a_handle),
        RUN(ids_can_be_chosen_and_are_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
