/* A run from its request to its result: each step, code and commands, prepared sandboxes and
 * interpreters, the cache and the limits of output. */
#include "tests/unit/service/execute/run_scene.h"

TEST(a_run_passes_through_every_step_and_its_sandbox_is_removed_after_the_result)
{
    static const struct run_request *const requests[] = { &full_command, &full_code };

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct scene s;
        struct client c;
        struct executor_stats stats;

        scene_open(&s);
        for (int step = STEP_CREATING; step <= STEP_DONE; step++) {
            run_to(&s, &c, requests[i], (enum run_step)step, NULL);
            executor_stats(s.executor, &stats);
            assert_int_equal(stats.running, step < STEP_DONE);
            assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), step < STEP_DONE);
            if (step < STEP_DONE) {
                assert_int_equal(c.ends, 0);
                run_cancel(c.run);
                if (step == STEP_CREATING)
                    jailer_made(&s);
                drain_runs(&s);
            }
        }
        run_ended(&s, &c);
        assert_int_equal(c.err.id, 0);
        assert_json(&c, "\"outcome\":\"success\"");
        assert_json(&c, "\"exitCode\":0");
        assert_json(&c, "\"files\":[{\"path\":\"out\",\"sizeBytes\":4,\"content\":\"text\"}]");
        assert_int_equal(drain_runs(&s), 1);
        executor_stats(s.executor, &stats);
        assert_int_equal(stats.cancelled, 5);
        assert_int_equal(stats.failed, 0);
        scene_close(&s);
    }
}

TEST(a_run_without_files_needs_no_staging_and_no_collection)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &plain_command, STEP_RUNNING, NULL);
    runtime_output(&s, RT_STDOUT, "out");
    runtime_output(&s, RT_STDERR, "err");
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    assert_json(&c, "\"stdout\":\"out\"");
    assert_json(&c, "\"stderr\":\"err\"");
    assert_null(strstr(c.json, "\"files\""));
    assert_int_equal(drain_runs(&s), 1);
    scene_close(&s);
}

TEST(the_input_of_a_command_is_sent_and_ended)
{
    struct scene s;
    struct client c;
    struct run_request req = { .argv = true_argv, .input = "line", .input_len = 4 };

    scene_open(&s);
    run_to(&s, &c, &req, STEP_STARTING, NULL);
    expect_runtime(&s, FRAME_DATA);
    assert_memory_equal(got.f.data, "line", 4);
    if (!(got.f.flags & RT_END)) {
        expect_runtime(&s, FRAME_DATA);
        assert_true(got.f.flags & RT_END);
    }
    scene_close(&s);
}

TEST(results_events_and_exceptions_of_code_are_in_its_result)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &plain_code, STEP_RUNNING, NULL);
    auto_free char *result = str_printf(
        "{\"event\":\"result\",\"id\":\"%s\",\"count\":1,\"data\":{\"text/plain\":\"4\"}}", run_code_id);
    auto_free char *error = str_printf(
        "{\"event\":\"error\",\"id\":\"%s\",\"name\":\"NameError\",\"value\":\"x\",\"traceback\":[]}", run_code_id);
    kernel_says(&s, result);
    kernel_says(&s, "{\"event\":\"result\",\"id\":\"" OTHER_EXECUTION "\",\"count\":1,\"data\":{}}"); /* not its own */
    runtime_output(&s, RT_STDOUT, "printed");
    kernel_says(&s, error);
    kernel_finishes(&s, run_code_id, "error");
    runtime_output(&s, RT_STDOUT, "too late");
    run_ended(&s, &c);
    assert_json(&c, "\"outcome\":\"error\"");
    assert_json(&c, "\"exitCode\":1");
    assert_json(&c, "\"stdout\":\"printed\"");
    assert_json(&c, "\"results\":[{\"type\":\"result\",\"count\":1,\"data\":{\"text/plain\":\"4\"}}]");
    assert_json(&c, "\"exception\":{\"name\":\"NameError\"");
    drain_runs(&s);
    scene_close(&s);
}

TEST(code_that_ends_itself_has_an_exit_status_and_no_exception)
{
    struct scene s;
    struct client c;

    scene_open(&s);
    run_to(&s, &c, &plain_code, STEP_RUNNING, NULL);
    auto_free char *line = str_printf(
        "{\"event\":\"error\",\"id\":\"%s\",\"name\":\"ExitStatus\",\"value\":\"3\",\"traceback\":[]}", run_code_id);
    kernel_says(&s, line);
    kernel_finishes(&s, run_code_id, "error");
    run_ended(&s, &c);
    assert_json(&c, "\"exitCode\":3");
    assert_null(strstr(c.json, "\"exception\""));
    drain_runs(&s);
    scene_close(&s);
}

TEST(input_requests_of_code_are_answered_line_by_line)
{
    struct scene s;
    struct client c;
    struct run_request req = { .code = "read", .language = "bash", .input = "one\ntwo", .input_len = 7 };

    scene_open(&s);
    run_to(&s, &c, &req, STEP_RUNNING, NULL);
    auto_free char *ask = str_printf("{\"event\":\"input\",\"id\":\"%s\",\"prompt\":\"\",\"password\":false}",
                                     run_code_id);
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"text\":\"one\"");
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"text\":\"two\"");
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"eof\":true");
    scene_close(&s);
}

TEST(a_streamed_run_passes_its_output_on)
{
    struct scene s;
    struct client c;
    struct run_request req = { .code = "echo", .language = "bash", .streamed = true };

    scene_open(&s);
    run_to(&s, &c, &req, STEP_RUNNING, NULL);
    assert_int_equal(c.starts, 1);
    runtime_output(&s, RT_STDOUT, "now");
    assert_string_equal(c.out, "now");
    auto_free char *result = str_printf("{\"event\":\"result\",\"id\":\"%s\",\"count\":1,\"data\":{}}", run_code_id);
    kernel_says(&s, result);
    assert_string_equal(c.events, "result");
    kernel_finishes(&s, run_code_id, "ok");
    run_ended(&s, &c);
    assert_int_equal(c.starts, 1);
    assert_null(strstr(c.json, "\"stdout\""));
    assert_json(&c, "\"outcome\":\"success\"");
    drain_runs(&s);
    scene_close(&s);
}

/* --- limits of output --- */

TEST(output_beyond_the_limits_is_dropped_and_reported)
{
    enum { OF_THE_RUN, OF_THE_EXECUTOR, STREAMED, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct client c;
        struct run_request req = { .argv = true_argv,
                                   .output_max = way == OF_THE_EXECUTOR ? 1000 : 4,
                                   .streamed = way == STREAMED };

        scene_open_with(&s,
                        &(struct scene_settings){ .running_max = 1, .output_bytes = way == OF_THE_EXECUTOR ? 4 : 0 });
        run_to(&s, &c, &req, STEP_RUNNING, NULL);
        runtime_output(&s, RT_STDOUT, "123456");
        runtime_output(&s, RT_STDERR, "789");
        runtime_exit(&s.k, 0, 0);
        run_ended(&s, &c);
        if (way == STREAMED)
            assert_string_equal(c.out, "1234");
        else
            assert_json(&c, "\"stdout\":\"1234\",\"stderr\":\"\"");
        assert_json(&c, "\"truncated\":true");
        assert_json(&c, "\"droppedBytes\":5");
        drain_runs(&s);
        scene_close(&s);
    }
}

/* --- the cache --- */

TEST(a_cached_result_needs_no_sandbox)
{
    struct scene s;
    struct client first, second;
    struct executor_stats stats;
    struct run_request req = { .argv = true_argv, .is_cacheable = true };

    scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
    run_to(&s, &first, &req, STEP_RUNNING, NULL);
    runtime_output(&s, RT_STDOUT, "cached");
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &first);
    assert_false(first.from_cache);
    drain_runs(&s);
    assert_int_equal(submit(&s, &second, &req), 0);
    run_ended(&s, &second);
    assert_true(second.from_cache);
    assert_string_equal(first.json, second.json);
    expect_no(&s, FRAME_J_CREATE);
    executor_stats(s.executor, &stats);
    assert_int_equal(stats.cache_hits, 1);
    assert_int_equal(stats.cache_misses, 1);
    advance(&s, 3600001); /* the TTL */
    assert_int_equal(submit(&s, &second, &req), 0);
    expect(&s, FRAME_J_CREATE);
    scene_close(&s);
}

TEST(a_cached_result_that_is_cancelled_is_not_delivered)
{
    struct scene s;
    struct client c;
    struct run_request req = { .argv = true_argv, .is_cacheable = true };

    scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
    run_to(&s, &c, &req, STEP_RUNNING, NULL);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    drain_runs(&s);
    assert_int_equal(submit(&s, &c, &req), 0);
    run_cancel(c.run);
    settle(&s);
    assert_int_equal(c.ends, 0);
    drain_runs(&s);
    scene_close(&s);
}

TEST(a_result_of_a_failed_or_truncated_run_is_not_cached)
{
    enum { FAILED, TRUNCATED, WAYS };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct client c;
        struct run_request req = { .argv = true_argv, .is_cacheable = true, .output_max = 2 };

        scene_open_with(&s, &(struct scene_settings){ .cache_bytes = MIB });
        run_to(&s, &c, &req, STEP_RUNNING, NULL);
        if (way == TRUNCATED)
            runtime_output(&s, RT_STDOUT, "long");
        runtime_exit(&s.k, way == FAILED, 0);
        obey_until(&s, &c.ends);
        assert_int_equal(c.err.id, 0);
        drain_runs(&s);
        assert_int_equal(submit(&s, &c, &req), 0);
        expect(&s, FRAME_J_CREATE);
        scene_close(&s);
    }
}

/* --- prepared sandboxes --- */

/* Opens a scene with a pool of one member that waits, and submits a run that takes it. */
static void run_with_member(struct scene *s, struct client *c, const struct run_request *req)
{
    struct sandbox_spec like;
    struct spec spec;
    struct err err = { 0 };

    scene_open_with(s, &(struct scene_settings){ .with_pools = true });
    scene_spec(&spec);
    spec_fill_sandbox_spec(&spec, &like);
    if (pools_put(s->pools, "p", &like, &(struct pool_settings){ .min = 1, .max = 1 }, &err) < 0)
        fail_msg("%s", err.msg);
    spec_done(&spec);
    expect(s, FRAME_J_CREATE);
    jailer_made(s);
    runtime_greets(s);
    settle(s);
    assert_int_equal(submit(s, c, req), 0);
    pools_remove(s->pools, "p"); /* so that it requests no other member */
    expect_runtime(s, FRAME_CLAIM);
}

TEST(a_run_in_a_pool_member_does_not_wait_for_the_claim)
{
    struct scene s;
    struct client c;
    struct run_request req = { .argv = true_argv, .streamed = true };

    run_with_member(&s, &c, &req);
    expect_runtime(&s, FRAME_EXEC); /* before CLAIMED */
    s.k.stream = got.f.stream;
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    runtime_started(&s.k);
    assert_int_equal(c.starts, 1);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    assert_int_equal(c.err.id, 0);
    assert_int_equal(c.pool_result, POOL_HIT);
    scene_close(&s);
}

/* The member dies when it is claimed; returns at the J_CREATE of its replacement. */
static void replace_member(struct scene *s, struct client *c)
{
    run_with_member(s, c, &plain_command);
    runtime_dies(s);
    expect(s, FRAME_J_DESTROY);
    jailer_stats(&s->k, &zero_stats);
    expect(s, FRAME_J_CREATE);
    assert_int_equal(c->ends, 0);
}

TEST(a_pool_member_that_dies_before_the_claim_is_replaced_once)
{
    struct scene s;
    struct client c;
    struct executor_stats stats;

    replace_member(&s, &c);
    run_continue(&s, &plain_command, STEP_RUNNING);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &c);
    assert_int_equal(c.err.id, 0);
    assert_int_equal(c.pool_result, POOL_MISS);
    executor_stats(s.executor, &stats);
    assert_int_equal(stats.by_pool_result[POOL_HIT], 0);
    assert_int_equal(stats.by_pool_result[POOL_MISS], 1);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 1);
    scene_close(&s);
}

TEST(a_replacement_that_dies_too_is_an_error)
{
    struct scene s;
    struct client c;

    replace_member(&s, &c);
    jailer_made(&s);
    runtime_greets(&s);
    runtime_dies(&s);
    obey_until(&s, &c.ends);
    settle(&s);
    assert_int_equal(c.ends, 1);
    assert_int_equal(c.err.id, ERR_LOST);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

/* --- prepared interpreters --- */

/* Opens a scene with a python member in which an interpreter waits, and submits code to it; returns
 * at the EXEC that takes the interpreter. */
static void run_with_interpreter(struct scene *s, struct client *c, bool has_files)
{
    struct run_request req = { .code = "1", .language = "python", .files = &input_file, .nfiles = has_files };
    int fds[3] = { open("/dev/null", O_RDONLY | O_CLOEXEC), open("/dev/null", O_RDONLY | O_CLOEXEC),
                   open("/dev/null", O_RDONLY | O_CLOEXEC) };
    struct sandbox_spec like;
    struct pool_info info;
    struct spec spec;
    struct rt_exec m;
    void *strings = NULL;

    scene_open_with(s, &(struct scene_settings){ .with_pools = true });
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "python");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    spec_fill_sandbox_spec(&spec, &like);
    assert_int_equal(pools_put(s->pools, "p", &like, &(struct pool_settings){ .min = 1, .max = 1 }, NULL), 0);
    for (int steps = 0; steps < 3;) { /* the zygote, the member and its interpreter, in any order */
        ev_turn(s->k.ev, 5);
        while (take_request(s))
            if (got.f.type == FRAME_J_ZYGOTE) {
                put(s->k.jailer, FRAME_J_OK, 0, got.f.stream, NULL, 0);
                steps++;
            } else if (got.f.type == FRAME_J_CREATE) {
                jailer_made(s);
                runtime_greets(s);
                steps++;
            } else if (got.f.type == FRAME_J_JOIN) {
                put_fds(s->k.jailer, FRAME_J_OK, 0, got.f.stream, NULL, 0, fds, 3);
                steps++;
            }
    }
    for (int i = 0; i < 3; i++)
        fd_close(&fds[i]);
    settle(s);
    assert_true(pools_get(s->pools, "p", &info));
    assert_int_equal(info.size, 1);
    assert_int_equal(info.without_interpreter, 0);
    assert_int_equal(submit_spec(s, c, &req, &spec), 0);
    expect_runtime(s, FRAME_CLAIM);
    if (has_files) {
        runtime_claimed(&s->k, ALL_INSIDE, 3);
        expect_runtime(s, FRAME_WRITE);
        runtime_done(&s->k, got.f.stream, &(struct rt_done){ .bytes = 4, .files = 1 });
    }
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
    assert_int_equal(rt_exec_decode(&got.f, &m, &strings, NULL), 0);
    assert_true(m.flags & RT_EXEC_JOINED);
    free(strings);
    if (!has_files)
        runtime_claimed(&s->k, ALL_INSIDE, 3);
}

TEST(a_prepared_interpreter_gets_the_code_without_a_start)
{
    struct scene s;
    struct client c;

    run_with_interpreter(&s, &c, false);
    expect_kernel_line(&s, "\"op\":\"execute\"");
    auto_free char *id = taken_code_id();
    runtime_started(&s.k);
    kernel_finishes(&s, id, "ok");
    run_ended(&s, &c);
    assert_int_equal(c.err.id, 0);
    assert_int_equal(c.pool_result, POOL_HIT);
    scene_close(&s);
}

TEST(a_prepared_interpreter_that_is_dead_is_replaced_by_a_cold_start)
{
    for (int has_files = 0; has_files < 2; has_files++) {
        struct scene s;
        struct client c;
        struct rt_exec m;
        void *strings = NULL;

        run_with_interpreter(&s, &c, has_files);
        runtime_error(&s.k, s.k.stream, ERR_LOST, "the interpreter has ended");
        expect_runtime(&s, FRAME_EXEC);
        s.k.stream = got.f.stream;
        assert_int_equal(rt_exec_decode(&got.f, &m, &strings, NULL), 0);
        assert_false(m.flags & RT_EXEC_JOINED);
        free(strings);
        runtime_started(&s.k);
        kernel_ready(&s);
        expect_kernel_line(&s, "\"op\":\"execute\"");
        auto_free char *id = taken_code_id();
        kernel_finishes(&s, id, "ok");
        run_ended(&s, &c);
        assert_int_equal(c.err.id, 0);
        assert_json(&c, "\"outcome\":\"success\"");
        assert_int_equal(c.pool_result, POOL_PARTIAL);
        scene_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_run_passes_through_every_step_and_its_sandbox_is_removed_after_the_result),
        RUN(a_run_without_files_needs_no_staging_and_no_collection),
        RUN(the_input_of_a_command_is_sent_and_ended),
        RUN(results_events_and_exceptions_of_code_are_in_its_result),
        RUN(code_that_ends_itself_has_an_exit_status_and_no_exception),
        RUN(input_requests_of_code_are_answered_line_by_line),
        RUN(a_streamed_run_passes_its_output_on),
        RUN(output_beyond_the_limits_is_dropped_and_reported),
        RUN(a_cached_result_needs_no_sandbox),
        RUN(a_cached_result_that_is_cancelled_is_not_delivered),
        RUN(a_result_of_a_failed_or_truncated_run_is_not_cached),
        RUN(a_run_in_a_pool_member_does_not_wait_for_the_claim),
        RUN(a_pool_member_that_dies_before_the_claim_is_replaced_once),
        RUN(a_replacement_that_dies_too_is_an_error),
        RUN(a_prepared_interpreter_gets_the_code_without_a_start),
        RUN(a_prepared_interpreter_that_is_dead_is_replaced_by_a_cold_start),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
