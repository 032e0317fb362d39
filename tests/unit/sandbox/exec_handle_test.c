#include "fake.h"

#include "core/base/clock.h"

static const struct jail_stats final = {
    .cpu_ns = 9000000, .memory_peak = 4096, .pids_peak = 2, .pids_refused = 1, .throttled_ns = 5
};

static void jailer_destroys(struct fake *k, const struct jail_stats *st)
{
    sandbox_handle_destroy(k->box, on_done, k);
    jailer_takes(k, FRAME_J_DESTROY);
    jailer_stats(k, st);
    assert_int_equal(k->done, 1);
}

/* Plays the kill of a faulty or silent sandbox, up to the report. */
static void jailer_kills(struct fake *k, uint64_t oom_kills)
{
    struct jail_stats st = final;

    st.oom_kills = oom_kills;
    jailer_takes(k, FRAME_J_KILL);
    jailer_ok(k);
    fd_close(&k->runtime);
    jailer_takes(k, FRAME_J_STATS);
    jailer_stats(k, &st);
}

/* Waits in real time for the frame that a clock causes. */
static void runtime_waits_for(struct fake *k, uint8_t type)
{
    for (int i = 0; i < 100; i++) {
        ev_turn(k->ev, 20);
        if (take_any(k->runtime)) {
            assert_int_equal(got.f.type, type);
            return;
        }
    }
    fail_msg("%s never came", frame_name(type));
}

static void jailer_waits_for(struct fake *k, uint8_t type)
{
    for (int i = 0; i < 100; i++) {
        ev_turn(k->ev, 20);
        if (take_any(k->jailer)) {
            assert_int_equal(got.f.type, type);
            return;
        }
    }
    fail_msg("%s never came", frame_name(type));
}

static void expect_tree_kill(void)
{
    struct rt_signal m;

    assert_int_equal(rt_signal_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.signo, SIGKILL);
    assert_int_equal(m.scope, RT_SCOPE_TREE);
}

/* --- language kernels --- */

TEST(a_language_kernel_has_its_own_channel_in_both_directions)
{
    struct exec_spec spec = { .argv = true_argv, .is_language_kernel = true };
    struct rt_exec req;
    auto_free void *strings = NULL;
    struct fake k;

    scene_ready(&k);
    scene_exec(&k, &spec);
    runtime_takes(&k, FRAME_EXEC);
    assert_int_equal(rt_exec_decode(&got.f, &req, &strings, NULL), 0);
    assert_int_equal(req.flags, RT_EXEC_KERNEL);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_says(&k, FRAME_DATA, RT_KERNEL, k.stream, "{}", 2);
    assert_string_equal(k.kernel.data, "{}");
    assert_int_equal(exec_handle_write_language_kernel(k.exec, "abc", 3), 3);
    runtime_takes(&k, FRAME_DATA);
    assert_int_equal(got.f.flags, RT_KERNEL);
    assert_memory_equal(got.f.data, "abc", 3);
    scene_end(&k);
}

TEST(kernel_data_from_an_ordinary_program_ends_the_sandbox)
{
    struct fake k;

    scene_running(&k);
    runtime_says(&k, FRAME_DATA, RT_KERNEL, k.stream, "{}", 2);
    jailer_kills(&k, 0);
    assert_int_equal(k.ended, 1);
    scene_end(&k);
}

/* --- the ordinary case --- */

TEST(an_exit_is_reported_after_its_output_and_confirmed)
{
    struct fake k;

    scene_running(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "out", 3);
    runtime_says(&k, FRAME_DATA, RT_STDERR, k.stream, "err", 3);
    runtime_says(&k, FRAME_DATA, RT_STDOUT | RT_END, k.stream, NULL, 0);
    set_cpu(&k, "4000000\n");
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_EXIT);
    assert_string_equal(k.out.data, "out");
    assert_string_equal(k.errout.data, "err");
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, k.stream);

    const struct receipt *r = exec_handle_receipt(k.exec);
    assert_string_equal(r->sandbox, k.id);
    assert_false(r->final);
    assert_int_equal(r->stdout_bytes, 3);
    assert_int_equal(r->cpu_ns.v, 3000000); /* relative to the counter at the start */
    assert_null(r->cpu_ns.why);
    assert_non_null(r->memory_peak.why); /* known only after the end of the sandbox */
    assert_int_equal(r->tasks_started.v, 3);
    jailer_destroys(&k, &final);
    assert_true(r->final);
    assert_int_equal(r->cpu_ns.v, 8000000);
    assert_int_equal(r->memory_peak.v, 4096);
    assert_int_equal(r->pids_refused.v, 1);
    assert_null(r->memory_peak.why);
    scene_end(&k);
}

TEST(exec_carries_argv_env_directory_and_terminal)
{
    static const char *const argv[] = { "python3", "-c", "print(1)", NULL };
    static const char *const env[] = { "A=b", NULL };
    struct fake k;
    struct exec_spec spec = { .argv = argv, .env = env, .cwd = "/tmp", .tty = true, .rows = 24, .cols = 80 };
    struct rt_exec m;
    void *strings = NULL;

    scene_ready(&k);
    scene_exec(&k, &spec);
    runtime_takes(&k, FRAME_EXEC);
    assert_int_equal(got.f.stream % 2, 0);
    assert_int_equal(rt_exec_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.argv[2], "print(1)");
    assert_string_equal(m.env[0], "A=b");
    assert_string_equal(m.cwd, "/tmp");
    assert_int_equal(m.flags, RT_EXEC_TTY);
    assert_int_equal(m.cols, 80);
    free(strings);
    scene_end(&k);
}

TEST(a_receipt_has_the_start_time_and_not_the_request_time)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv };

    scene_ready(&k);
    scene_exec(&k, &spec);
    runtime_takes(&k, FRAME_EXEC);
    k.stream = got.f.stream;
    assert_int_equal(exec_handle_receipt(k.exec)->started_real_ns, 0);
    uint64_t asked = clock_real_ns();
    runtime_started(&k);
    assert_true(exec_handle_receipt(k.exec)->started_real_ns >= asked);
    scene_end(&k);
}

TEST(a_program_that_cannot_start_fails_without_an_exit)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv };

    scene_ready(&k);
    scene_exec(&k, &spec);
    runtime_takes(&k, FRAME_EXEC);
    runtime_error(&k, got.f.stream, ERR_PROGRAM_MISSING, "true: No such file or directory");
    assert_int_equal(k.exec_failed, 1);
    assert_int_equal(k.exited, 0);
    assert_int_equal(k.err.id, ERR_PROGRAM_MISSING);
    runtime_takes(&k, FRAME_CLOSE);
    exec_handle_free(k.exec);
    scene_running_with(&k, &spec); /* the sandbox is still usable */
    scene_end(&k);
}

TEST(a_spec_without_a_program_or_with_too_much_is_refused_at_once)
{
    static char big[70000];
    const char *const none[] = { NULL }, *const huge[] = { big, NULL };
    struct fake k;
    struct exec_spec spec = { .argv = none };
    struct err err = { 0 };

    memset(big, 'x', sizeof(big) - 1);
    scene_ready(&k);
    assert_int_equal(sandbox_handle_exec(k.box, &spec, &fake_exec_ops, &k, &k.exec, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    spec.argv = huge;
    assert_int_equal(sandbox_handle_exec(k.box, &spec, &fake_exec_ops, &k, &k.exec, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    silent(&k, k.runtime);
    scene_end(&k);
}

TEST(a_sandbox_that_is_not_ready_accepts_no_execution)
{
    struct fake k;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = true_argv };
    struct err err = { 0 };

    scene_created(&k, &box);
    assert_int_equal(sandbox_handle_exec(k.box, &spec, &fake_exec_ops, &k, &k.exec, &err), -1);
    assert_int_equal(err.id, ERR_BUSY);
    scene_end(&k);
}

/* --- windows --- */

TEST(credit_is_returned_in_halves_of_the_window)
{
    struct fake k;
    static uint8_t chunk[65536];
    struct unpack u;

    scene_running(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, chunk, sizeof(chunk));
    silent(&k, k.runtime);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, chunk, sizeof(chunk));
    runtime_takes(&k, FRAME_CREDIT);
    unpack_init(&u, got.f.data, got.f.len);
    assert_int_equal(unpack_u32(&u), 131072);
    scene_end(&k);
}

TEST(held_output_is_credited_only_when_released)
{
    struct fake k;
    static uint8_t chunk[65536];

    scene_running(&k);
    k.hold = true;
    for (int i = 0; i < 4; i++)
        runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, chunk, sizeof(chunk));
    assert_int_equal(k.out.len, WIRE_WINDOW);
    silent(&k, k.runtime);
    k.hold = false;
    exec_handle_hold_credit(k.exec, false);
    runtime_takes(&k, FRAME_CREDIT);
    scene_end(&k);
}

TEST(output_beyond_the_cap_is_dropped_counted_and_credited)
{
    struct fake k;
    static uint8_t chunk[65536];
    struct exec_spec spec = { .argv = true_argv, .output_max = 70000 };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    for (int i = 0; i < 3; i++)
        runtime_says(&k, FRAME_DATA, i == 1 ? RT_STDERR : RT_STDOUT, k.stream, chunk, sizeof(chunk));
    runtime_takes(&k, FRAME_CREDIT);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.out.len + k.errout.len, 70000);
    const struct receipt *r = exec_handle_receipt(k.exec);
    assert_int_equal(r->stdout_bytes, 2 * 65536);
    assert_int_equal(r->stderr_bytes, 65536);
    assert_int_equal(r->dropped_bytes, 3 * 65536 - 70000);
    scene_end(&k);
}

TEST(input_stops_at_the_window_and_continues_with_credit)
{
    struct fake k;
    static uint8_t big[WIRE_WINDOW + 1000];
    struct exec_spec spec = { .argv = true_argv, .stdin_open = true };
    uint8_t credit[4] = { 0xe8, 0x03 }; /* 1000 */

    scene_ready(&k);
    scene_running_with(&k, &spec);
    assert_int_equal(exec_handle_write(k.exec, big, sizeof(big)), WIRE_WINDOW);
    assert_int_equal(exec_handle_write(k.exec, big, 1000), 0);
    for (int i = 0; i < 4; i++)
        runtime_takes(&k, FRAME_DATA);
    assert_int_equal(k.writable, 0);
    runtime_says(&k, FRAME_CREDIT, 0, k.stream, credit, 4);
    assert_int_equal(k.writable, 1);
    assert_int_equal(exec_handle_write(k.exec, big, 1000), 1000);
    exec_handle_write_end(k.exec);
    runtime_takes(&k, FRAME_DATA);
    runtime_takes(&k, FRAME_DATA);
    assert_int_equal(got.f.flags, RT_STDIN | RT_END);
    assert_int_equal(exec_handle_write(k.exec, big, 1), 0); /* nothing is accepted after the end */
    scene_end(&k);
}

TEST(a_program_without_standard_input_gets_none)
{
    struct fake k;

    scene_running(&k);
    assert_int_equal(exec_handle_write(k.exec, "x", 1), 0);
    exec_handle_write_end(k.exec);
    silent(&k, k.runtime);
    scene_end(&k);
}

TEST(signals_go_to_the_group_and_sizes_to_the_terminal)
{
    struct fake k;
    struct rt_signal sig;
    struct rt_resize size;

    scene_running(&k);
    exec_handle_signal(k.exec, SIGINT);
    runtime_takes(&k, FRAME_SIGNAL);
    assert_int_equal(rt_signal_decode(&got.f, &sig, NULL), 0);
    assert_int_equal(sig.signo, SIGINT);
    assert_int_equal(sig.scope, RT_SCOPE_GROUP);
    exec_handle_resize(k.exec, 50, 132);
    runtime_takes(&k, FRAME_RESIZE);
    assert_int_equal(rt_resize_decode(&got.f, &size, NULL), 0);
    assert_int_equal(size.cols, 132);
    scene_end(&k);
}

/* --- ends that the program did not cause --- */

TEST(the_wall_clock_kills_the_process_tree_and_keeps_the_last_output)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .wall_ms = 5 };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    runtime_waits_for(&k, FRAME_SIGNAL);
    expect_tree_kill();
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "last words", 10);
    runtime_exit(&k, -1, SIGKILL);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_TIMEOUT);
    assert_int_equal(k.signal, SIGKILL);
    assert_string_equal(k.out.data, "last words");
    assert_int_equal(k.ended, 0); /* the sandbox stays alive */
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(a_process_tree_that_cannot_be_killed_ends_the_sandbox)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .wall_ms = 1 };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    jailer_waits_for(&k, FRAME_J_KILL);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "late", 4);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &final);
    assert_int_equal(k.exited, 0); /* its stream is not read to the end yet */
    fd_close(&k.runtime);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_TIMEOUT);
    assert_string_equal(k.out.data, "late");
    assert_int_equal(k.ended, 1);
    assert_non_null(exec_handle_receipt(k.exec)->tasks_started.why);
    jailer_destroys(&k, &final);
    assert_true(exec_handle_receipt(k.exec)->final);
    scene_end(&k);
}

TEST(cpu_time_is_that_of_the_whole_process_tree)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .cpu_ms = 10 };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    for (int i = 0; i < 3; i++)
        ev_turn(k.ev, 20);
    silent(&k, k.runtime); /* the counter has not moved */
    set_cpu(&k, "11000000\n");
    runtime_waits_for(&k, FRAME_SIGNAL);
    runtime_exit(&k, -1, SIGKILL);
    assert_int_equal(k.ended_by, ENDED_CPU);
    assert_int_equal(exec_handle_receipt(k.exec)->cpu_ns.v, 10000000);
    scene_end(&k);
}

TEST(out_of_memory_ends_the_execution_even_if_its_main_process_survived)
{
    struct fake k;
    struct jail_stats st = final;

    scene_running(&k);
    jailer_event(&k, JAIL_EVENT_OOM, 0);
    runtime_takes(&k, FRAME_SIGNAL);
    expect_tree_kill();
    runtime_exit(&k, 1, 0); /* it was about to exit by itself */
    jailer_takes(&k, FRAME_J_STATS);
    st.oom_kills = 1;
    jailer_stats(&k, &st);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_MEMORY);
    scene_end(&k);
}

/* Linux reports the shortage before it kills, and the engine may be faster. */
TEST(an_end_by_memory_never_reports_zero_kills)
{
    struct fake k;
    struct jail_stats st = final;

    scene_running(&k);
    jailer_event(&k, JAIL_EVENT_OOM, 0);
    runtime_takes(&k, FRAME_SIGNAL);
    runtime_exit(&k, -1, SIGKILL);
    jailer_takes(&k, FRAME_J_STATS);
    st.oom_kills = 0;
    jailer_stats(&k, &st);
    assert_int_equal(k.ended_by, ENDED_MEMORY);
    assert_non_null(exec_handle_receipt(k.exec)->oom_kills.why);
    jailer_destroys(&k, &st);
    assert_true(exec_handle_receipt(k.exec)->final);
    assert_non_null(exec_handle_receipt(k.exec)->oom_kills.why);
    scene_end(&k);
}

TEST(full_file_systems_are_known_only_if_they_were_checked)
{
    struct rt_exit m = { .code = 1, .full = RT_FULL_TMP };
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct fake k;

    scene_running(&k);
    assert_non_null(exec_handle_receipt(k.exec)->full_filesystems_why);
    runtime_says(&k, FRAME_EXIT, 0, k.stream, out, (size_t)rt_exit_encode(&m, out, NULL));
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &final);
    assert_null(exec_handle_receipt(k.exec)->full_filesystems_why);
    assert_int_equal(exec_handle_receipt(k.exec)->full_filesystems, RT_FULL_TMP);
    scene_end(&k);

    scene_running(&k);
    fd_close(&k.runtime);
    turn(&k);
    jailer_kills(&k, 0);
    assert_non_null(exec_handle_receipt(k.exec)->full_filesystems_why);
    scene_end(&k);
}

TEST(a_failed_exit_is_memory_when_the_kernel_counted_a_kill_and_only_then)
{
    static const struct {
        int code, signal;
        uint64_t oom;
        enum ended_by by;
    } rows[] = {
        { -1, SIGKILL, 1, ENDED_MEMORY }, { -1, SIGKILL, 0, ENDED_SIGNAL },   { 1, 0, 1, ENDED_MEMORY },
        { 1, 0, 0, ENDED_EXIT },          { 1, 0, JAIL_UNKNOWN, ENDED_EXIT },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;
        struct jail_stats st = final;

        scene_running(&k);
        runtime_exit(&k, rows[i].code, rows[i].signal);
        assert_int_equal(k.exited, 0);
        st.oom_kills = rows[i].oom;
        jailer_takes(&k, FRAME_J_STATS);
        jailer_stats(&k, &st);
        if (k.exited != 1 || k.ended_by != rows[i].by)
            fail_msg("row %zu: %s", i, ended_by_name(k.ended_by));
        scene_end(&k);
    }
}

TEST(a_program_that_exits_0_after_an_oom_kill_of_a_child_ended_by_memory)
{
    struct fake k;

    scene_running(&k);
    assert_int_equal(pwrite(k.oom, "under_oom 0\noom_kill 1\n", 23, 0), 23);
    runtime_exit(&k, 0, 0);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &(struct jail_stats){ .oom_kills = 1 });
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_MEMORY);
    assert_int_equal(exec_handle_receipt(k.exec)->oom_kills.v, 1);
    scene_end(&k);
}

TEST(an_oom_kill_is_attributed_to_one_execution_only)
{
    struct fake k;
    struct jail_stats st = final;
    struct exec_spec spec = { .argv = true_argv };

    st.oom_kills = 1;
    scene_running(&k);
    runtime_exit(&k, -1, SIGKILL);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &st);
    assert_int_equal(k.ended_by, ENDED_MEMORY);
    exec_handle_free(k.exec);
    k.started = 0;
    runtime_takes(&k, FRAME_CLOSE);
    scene_running_with(&k, &spec);
    runtime_exit(&k, 3, 0);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &st);
    assert_int_equal(k.ended_by, ENDED_EXIT);
    assert_non_null(exec_handle_receipt(k.exec)->memory_peak.why); /* a common peak belongs to neither execution */
    scene_end(&k);
}

TEST(lifetime_ends_the_execution_and_then_the_sandbox)
{
    struct fake k;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = true_argv };

    box.limits.v[LIMIT_LIFETIME] = 300;
    box.limits.v[LIMIT_WALL] = 300;
    scene_ready_with(&k, &box);
    scene_running_with(&k, &spec);
    runtime_waits_for(&k, FRAME_SIGNAL);
    struct exec_handle *second;
    struct err err = { 0 };
    assert_int_equal(sandbox_handle_exec(k.box, &spec, &fake_exec_ops, &k, &second, &err), -1);
    runtime_exit(&k, -1, SIGKILL);
    assert_int_equal(k.ended_by, ENDED_LIFETIME);
    jailer_kills(&k, 0);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_TIMEOUT);
    scene_end(&k);
}

TEST(a_kill_on_request_is_reported_as_killed)
{
    struct fake k;

    scene_running(&k);
    exec_handle_kill(k.exec);
    runtime_takes(&k, FRAME_SIGNAL);
    expect_tree_kill();
    exec_handle_kill(k.exec); /* a second kill changes nothing */
    silent(&k, k.runtime);
    runtime_exit(&k, -1, SIGKILL);
    assert_int_equal(k.ended_by, ENDED_KILLED);
    scene_end(&k);
}

TEST(a_clock_and_an_exit_at_the_same_time_give_one_result)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .wall_ms = 300 };

    for (int exit_first = 0; exit_first < 2; exit_first++) {
        scene_ready(&k);
        scene_running_with(&k, &spec);
        uint64_t end = now_ms() + 310;
        while (now_ms() < end)
            continue; /* both are due before the next loop iteration */
        if (exit_first)
            runtime_exit(&k, 0, 0);
        else
            runtime_waits_for(&k, FRAME_SIGNAL), runtime_exit(&k, 0, 0);
        assert_int_equal(k.exited, 1);
        assert_int_equal(k.ended_by, exit_first ? ENDED_EXIT : ENDED_TIMEOUT);
        turn(&k);
        assert_int_equal(k.exited, 1);
        assert_int_equal(exec_handle_receipt(k.exec)->ended_by, k.ended_by);
        scene_end(&k);
    }
}

TEST(the_death_of_a_sandbox_is_never_a_success)
{
    static const struct {
        uint64_t oom;
        enum ended_by by;
    } rows[] = { { 0, ENDED_LOST }, { 1, ENDED_MEMORY } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;

        scene_running(&k);
        put(k.runtime, FRAME_DATA, RT_STDOUT, k.stream, "before", 6);
        fd_close(&k.runtime);
        jailer_kills(&k, rows[i].oom);
        assert_int_equal(k.exited, 1);
        assert_int_equal(k.ended_by, rows[i].by);
        assert_int_equal(k.exit_code, -1);
        assert_string_equal(k.out.data, "before");
        assert_int_equal(k.ended, 1);
        scene_end(&k);
    }
}

TEST(a_death_by_memory_is_known_even_if_its_event_comes_last)
{
    struct fake k;
    struct jail_stats st = { .oom_kills = JAIL_UNKNOWN };

    scene_running(&k);
    fd_close(&k.runtime);
    jailer_takes(&k, FRAME_J_KILL);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_STATS);
    uint32_t stream = got.f.stream;
    jailer_event(&k, JAIL_EVENT_OOM, 0);
    got.f.stream = stream;
    jailer_stats(&k, &st);
    assert_int_equal(k.ended_by, ENDED_MEMORY);
    scene_end(&k);
}

TEST(the_death_of_a_sandbox_before_the_start_fails_the_execution)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv };

    scene_ready(&k);
    scene_exec(&k, &spec);
    fd_close(&k.runtime);
    jailer_kills(&k, 0);
    assert_int_equal(k.exec_failed, 1);
    assert_int_equal(k.exited, 0);
    scene_end(&k);
}

TEST(executions_of_a_lost_jailer_are_lost_after_their_output)
{
    struct fake k;

    scene_running(&k);
    fd_close(&k.jailer);
    turn(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "still", 5);
    fd_close(&k.runtime);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_LOST);
    assert_string_equal(k.out.data, "still");
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.lost, 1);
    scene_end(&k);
}

TEST(destroying_a_sandbox_kills_its_execution_and_completes_the_receipt)
{
    struct fake k;

    scene_running(&k);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_DESTROY);
    put(k.runtime, FRAME_DATA, RT_STDOUT, k.stream, "bye", 3);
    fd_close(&k.runtime);
    jailer_stats(&k, &final);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_KILLED);
    assert_string_equal(k.out.data, "bye");
    assert_int_equal(k.done, 1);
    assert_true(exec_handle_receipt(k.exec)->final);
    assert_int_equal(exec_handle_receipt(k.exec)->cpu_ns.v, 8000000);
    scene_end(&k);
}

TEST(destroying_after_the_exit_keeps_the_exit_code)
{
    struct fake k;

    scene_running(&k);
    runtime_exit(&k, 7, 0);
    jailer_takes(&k, FRAME_J_STATS); /* never answered */
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_DESTROY);
    jailer_stats(&k, &final);
    fd_close(&k.runtime);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_EXIT);
    assert_int_equal(k.exit_code, 7);
    scene_end(&k);
}

TEST(the_owner_may_destroy_and_free_everything_in_on_exit)
{
    struct fake k;

    scene_running(&k);
    k.destroy_in_exit = true;
    runtime_exit(&k, 0, 0);
    jailer_takes(&k, FRAME_J_DESTROY);
    jailer_stats(&k, &final);
    assert_int_equal(k.done, 1);
    scene_end(&k);

    scene_running(&k);
    k.free_all_in_exit = true;
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    scene_end(&k);

    scene_running(&k); /* the same when the sandbox died during the execution */
    k.free_all_in_exit = true;
    fd_close(&k.runtime);
    jailer_kills(&k, 0);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended, 0);
    scene_end(&k);
}

TEST(freeing_a_running_execution_kills_it_without_a_callback)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv };

    scene_running(&k);
    k.free_exec_in_output = true;
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "x", 1);
    runtime_takes(&k, FRAME_SIGNAL);
    expect_tree_kill();
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "unheard", 7);
    runtime_exit(&k, -1, SIGKILL);
    assert_int_equal(k.exited, 0);
    assert_int_equal(k.out.len, 1);
    runtime_takes(&k, FRAME_CLOSE);
    k.started = 0;
    k.free_exec_in_output = false;
    scene_running_with(&k, &spec);
    scene_end(&k);
}

TEST(freeing_the_sandbox_handle_leaves_receipts_readable)
{
    struct fake k;

    scene_running(&k);
    sandbox_handle_free(k.box);
    k.box = NULL;
    turn(&k);
    assert_int_equal(k.exited, 0);
    assert_string_equal(exec_handle_receipt(k.exec)->sandbox, k.id);
    exec_handle_signal(k.exec, SIGINT);
    exec_handle_kill(k.exec);
    exec_handle_hold_credit(k.exec, false);
    assert_int_equal(exec_handle_write(k.exec, "x", 1), 0);
    scene_end(&k);
}

TEST(paused_time_does_not_count_as_wall_clock_time)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .wall_ms = 300 };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    sandbox_handle_freeze(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_FREEZE);
    jailer_ok(&k);
    uint64_t end = now_ms() + 400;
    while (now_ms() < end)
        ev_turn(k.ev, 10);
    silent(&k, k.runtime);
    sandbox_handle_thaw(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_THAW);
    jailer_ok(&k);
    runtime_waits_for(&k, FRAME_SIGNAL);
    scene_end(&k);
}

/* --- two executions at a time --- */

TEST(concurrent_executions_have_no_cpu_figure)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv };
    struct exec_handle *second;

    scene_running(&k);
    uint32_t first = k.stream;
    assert_int_equal(sandbox_handle_exec(k.box, &spec, &fake_exec_ops, &k, &second, NULL), 0);
    runtime_takes(&k, FRAME_EXEC);
    assert_int_not_equal(got.f.stream, first);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    k.stream = first;
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 2);
    assert_non_null(exec_handle_receipt(k.exec)->cpu_ns.why);
    assert_non_null(exec_handle_receipt(second)->cpu_ns.why);
    jailer_destroys(&k, &final);
    assert_true(exec_handle_receipt(second)->final);
    assert_non_null(exec_handle_receipt(second)->cpu_ns.why);
    exec_handle_free(second);
    scene_end(&k);
}

/* --- changes --- */

static void put_change(struct fake *k, uint32_t stream, char kind, const char *path)
{
    static struct rt_change c;
    uint8_t out[8192];
    struct pack p;

    c = (struct rt_change){ .kind = kind, .file = 'f', .size = 12 };
    str_copy(c.path, sizeof(c.path), path);
    pack_init(&p, out, sizeof(out));
    rt_change_pack(&p, &c);
    assert_false(p.bad);
    runtime_says(k, FRAME_DATA, 0, stream, out, p.len);
}

static const struct rt_done nothing;
static const struct exec_spec changes_spec = { .argv = true_argv, .changes = true, .stdin_open = true };

TEST(the_snapshot_precedes_the_start_and_changes_follow_the_exit)
{
    struct fake k;
    struct rt_done counts = { .added = 1, .modified = 5, .truncated = 1 };

    scene_ready(&k);
    scene_exec(&k, &changes_spec);
    assert_int_equal(exec_handle_write(k.exec, "in", 2), 0); /* nothing runs yet */
    runtime_takes(&k, FRAME_SNAPSHOT);
    uint32_t mark = got.f.stream;
    silent(&k, k.runtime);
    runtime_done(&k, mark, &nothing);
    assert_int_equal(k.writable, 1);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_EXEC);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(k.exited, 0);
    runtime_takes(&k, FRAME_CHANGES);
    uint32_t stream = got.f.stream;
    put_change(&k, stream, 'A', "new.txt");
    put_change(&k, stream, 'M', "old.txt");
    runtime_done(&k, stream, &counts);
    assert_int_equal(k.exited, 1);
    const struct receipt *r = exec_handle_receipt(k.exec);
    assert_null(r->changes_why);
    assert_int_equal(r->nchanges, 2);
    assert_string_equal(r->changes[0].path, "new.txt");
    assert_int_equal(r->modified, 5);
    assert_true(r->changes_truncated);
    scene_end(&k);
}

TEST(unavailable_changes_carry_a_reason)
{
    struct fake k;

    scene_ready(&k); /* SNAPSHOT fails */
    scene_exec(&k, &changes_spec);
    runtime_takes(&k, FRAME_SNAPSHOT);
    runtime_error(&k, got.f.stream, ERR_LIMIT, "too many files");
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_EXEC);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_non_null(exec_handle_receipt(k.exec)->changes_why);
    scene_end(&k);

    scene_ready(&k); /* the sandbox dies before CHANGES is answered */
    scene_exec(&k, &changes_spec);
    runtime_takes(&k, FRAME_SNAPSHOT);
    runtime_done(&k, got.f.stream, &nothing);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_EXEC);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    fd_close(&k.runtime);
    jailer_kills(&k, 0);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_EXIT);
    assert_non_null(exec_handle_receipt(k.exec)->changes_why);
    scene_end(&k);
}

TEST(killing_before_the_start_never_starts_it)
{
    struct fake k;

    scene_ready(&k);
    scene_exec(&k, &changes_spec);
    runtime_takes(&k, FRAME_SNAPSHOT);
    uint32_t mark = got.f.stream;
    exec_handle_kill(k.exec);
    assert_int_equal(k.exited, 0); /* never from inside the call */
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_KILLED);
    assert_non_null(exec_handle_receipt(k.exec)->wall_ns.why);
    runtime_done(&k, mark, &nothing);
    runtime_takes(&k, FRAME_CLOSE);
    silent(&k, k.runtime);
    scene_end(&k);
}

/* --- hostile frames --- */

static void kill_for_protocol(struct fake *k, const char *what)
{
    jailer_kills(k, 0);
    if (k->ended != 1 || k->err.id != ERR_PROTOCOL)
        fail_msg("%s: ended %d, %s", what, k->ended, k->err.msg);
}

TEST(every_unexpected_frame_kills_the_sandbox)
{
    static const struct {
        const char *what;
        uint8_t type, flags;
        uint32_t len;
        bool started;
    } rows[] = {
        { "DATA before STARTED", FRAME_DATA, RT_STDOUT, 1, false },
        { "EXIT before STARTED", FRAME_EXIT, 0, 48, false },
        { "STARTED twice", FRAME_STARTED, 0, 4, true },
        { "STARTED too long", FRAME_STARTED, 0, 5, false },
        { "DATA on standard input", FRAME_DATA, RT_STDIN, 1, true },
        { "DATA on channel 3", FRAME_DATA, 3, 1, true },
        { "DATA with unknown flags", FRAME_DATA, RT_STDOUT | 0x10, 1, true },
        { "DATA without bytes", FRAME_DATA, RT_STDOUT, 0, true },
        { "EXIT that cannot be decoded", FRAME_EXIT, 0, 1, true },
        { "ERROR after STARTED", FRAME_ERROR, 0, 1, true },
        { "ERROR that cannot be decoded", FRAME_ERROR, 0, 1, false },
        { "DONE for a program", FRAME_DONE, 0, 1, true },
        { "credit for nothing", FRAME_CREDIT, 0, 4, true },
        { "credit of three bytes", FRAME_CREDIT, 0, 3, true },
        { "a frame of the server", FRAME_SIGNAL, 0, 1, true },
        { "a jailer's frame", FRAME_J_OK, 0, 0, true },
    };
    static const uint8_t ones[64] = { 1, 1, 1, 1 };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;
        struct exec_spec spec = { .argv = true_argv };

        scene_ready(&k);
        scene_exec(&k, &spec);
        runtime_takes(&k, FRAME_EXEC);
        k.stream = got.f.stream;
        if (rows[i].started)
            runtime_started(&k);
        runtime_says(&k, rows[i].type, rows[i].flags, k.stream, ones, rows[i].len);
        kill_for_protocol(&k, rows[i].what);
        assert_int_equal(k.exited + k.exec_failed, 1);
        assert_true(k.exec_failed || k.ended_by == ENDED_LOST);
        scene_end(&k);
    }
}

TEST(an_unrequested_started_frame_kills_the_sandbox_and_leaves_no_stream)
{
    for (int after_exit = 0; after_exit < 2; after_exit++) {
        struct fake k;

        scene_ready(&k);
        scene_exec(&k, &changes_spec);
        runtime_takes(&k, FRAME_SNAPSHOT);
        k.stream = got.f.stream;
        if (after_exit) {
            runtime_done(&k, k.stream, &nothing);
            runtime_takes(&k, FRAME_CLOSE);
            runtime_takes(&k, FRAME_EXEC);
            k.stream = got.f.stream;
            runtime_started(&k);
            runtime_exit(&k, 0, 0);
            runtime_takes(&k, FRAME_CLOSE);
            runtime_takes(&k, FRAME_CHANGES);
            k.stream = got.f.stream;
        }
        runtime_started(&k);
        exec_handle_free(k.exec);
        k.exec = NULL;
        turn(&k);
        kill_for_protocol(&k, "STARTED");
        scene_end(&k);
    }
}

TEST(a_second_exit_kills_the_sandbox_and_keeps_the_first_report)
{
    struct fake k;

    scene_running(&k);
    runtime_exit(&k, 0, 0);
    runtime_exit(&k, 1, 0);
    kill_for_protocol(&k, "second EXIT");
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.exit_code, 0);
    scene_end(&k);
}

TEST(impossible_exit_codes_kill_the_sandbox)
{
    static const struct {
        int code, signal;
    } rows[] = { { 256, 0 }, { -2, 0 }, { -1, 0 }, { 0, 9 }, { -1, 200 }, { -1, -9 } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;

        struct rt_exit m = { .code = 1 };
        uint8_t out[FRAME_PAYLOAD_MAX];
        int len = rt_exit_encode(&m, out, NULL);

        memcpy(out, &rows[i].code, 4); /* without the encoder, which would refuse some of them */
        memcpy(out + 4, &rows[i].signal, 4);
        scene_running(&k);
        runtime_says(&k, FRAME_EXIT, 0, k.stream, out, (size_t)len);
        kill_for_protocol(&k, "exit");
        assert_int_equal(k.ended_by, ENDED_LOST);
        scene_end(&k);
    }
}

TEST(data_beyond_the_window_kills_the_sandbox)
{
    struct fake k;
    static uint8_t chunk[65536];

    scene_running(&k);
    k.hold = true;
    for (int i = 0; i < 5; i++)
        runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, chunk, sizeof(chunk));
    kill_for_protocol(&k, "window");
    assert_int_equal(k.out.len, WIRE_WINDOW);
    scene_end(&k);
}

TEST(data_after_the_end_of_a_channel_kills_the_sandbox)
{
    struct fake k;

    scene_running(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT | RT_END, k.stream, "x", 1);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, k.stream, "y", 1);
    kill_for_protocol(&k, "end");
    scene_end(&k);
}

TEST(a_terminal_has_no_standard_error)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .tty = true };

    scene_ready(&k);
    scene_running_with(&k, &spec);
    runtime_says(&k, FRAME_DATA, RT_STDERR, k.stream, "x", 1);
    kill_for_protocol(&k, "tty");
    scene_end(&k);
}

TEST(more_changes_than_requested_kill_the_sandbox)
{
    struct fake k;
    static uint8_t out[65536];
    static struct rt_change c = { .kind = 'A', .file = 'f', .path = "x" };
    struct pack p;

    scene_ready(&k);
    scene_exec(&k, &changes_spec);
    runtime_takes(&k, FRAME_SNAPSHOT);
    runtime_done(&k, got.f.stream, &nothing);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_EXEC);
    k.stream = got.f.stream;
    runtime_started(&k);
    runtime_exit(&k, 0, 0);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_CHANGES);
    pack_init(&p, out, sizeof(out));
    for (int i = 0; i < 1001; i++)
        rt_change_pack(&p, &c);
    assert_false(p.bad);
    runtime_says(&k, FRAME_DATA, 0, got.f.stream, out, p.len);
    kill_for_protocol(&k, "changes");
    scene_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_language_kernel_has_its_own_channel_in_both_directions),
        RUN(kernel_data_from_an_ordinary_program_ends_the_sandbox),
        RUN(an_exit_is_reported_after_its_output_and_confirmed),
        RUN(exec_carries_argv_env_directory_and_terminal),
        RUN(a_receipt_has_the_start_time_and_not_the_request_time),
        RUN(a_program_that_cannot_start_fails_without_an_exit),
        RUN(a_spec_without_a_program_or_with_too_much_is_refused_at_once),
        RUN(a_sandbox_that_is_not_ready_accepts_no_execution),
        RUN(credit_is_returned_in_halves_of_the_window),
        RUN(held_output_is_credited_only_when_released),
        RUN(output_beyond_the_cap_is_dropped_counted_and_credited),
        RUN(input_stops_at_the_window_and_continues_with_credit),
        RUN(a_program_without_standard_input_gets_none),
        RUN(signals_go_to_the_group_and_sizes_to_the_terminal),
        RUN(the_wall_clock_kills_the_process_tree_and_keeps_the_last_output),
        RUN(a_process_tree_that_cannot_be_killed_ends_the_sandbox),
        RUN(cpu_time_is_that_of_the_whole_process_tree),
        RUN(out_of_memory_ends_the_execution_even_if_its_main_process_survived),
        RUN(an_end_by_memory_never_reports_zero_kills),
        RUN(full_file_systems_are_known_only_if_they_were_checked),
        RUN(a_failed_exit_is_memory_when_the_kernel_counted_a_kill_and_only_then),
        RUN(a_program_that_exits_0_after_an_oom_kill_of_a_child_ended_by_memory),
        RUN(an_oom_kill_is_attributed_to_one_execution_only),
        RUN(lifetime_ends_the_execution_and_then_the_sandbox),
        RUN(a_kill_on_request_is_reported_as_killed),
        RUN(a_clock_and_an_exit_at_the_same_time_give_one_result),
        RUN(the_death_of_a_sandbox_is_never_a_success),
        RUN(a_death_by_memory_is_known_even_if_its_event_comes_last),
        RUN(the_death_of_a_sandbox_before_the_start_fails_the_execution),
        RUN(executions_of_a_lost_jailer_are_lost_after_their_output),
        RUN(destroying_a_sandbox_kills_its_execution_and_completes_the_receipt),
        RUN(destroying_after_the_exit_keeps_the_exit_code),
        RUN(the_owner_may_destroy_and_free_everything_in_on_exit),
        RUN(freeing_a_running_execution_kills_it_without_a_callback),
        RUN(freeing_the_sandbox_handle_leaves_receipts_readable),
        RUN(paused_time_does_not_count_as_wall_clock_time),
        RUN(concurrent_executions_have_no_cpu_figure),
        RUN(the_snapshot_precedes_the_start_and_changes_follow_the_exit),
        RUN(unavailable_changes_carry_a_reason),
        RUN(killing_before_the_start_never_starts_it),
        RUN(every_unexpected_frame_kills_the_sandbox),
        RUN(an_unrequested_started_frame_kills_the_sandbox_and_leaves_no_stream),
        RUN(a_second_exit_kills_the_sandbox_and_keeps_the_first_report),
        RUN(impossible_exit_codes_kill_the_sandbox),
        RUN(data_beyond_the_window_kills_the_sandbox),
        RUN(data_after_the_end_of_a_channel_kills_the_sandbox),
        RUN(a_terminal_has_no_standard_error),
        RUN(more_changes_than_requested_kill_the_sandbox),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
