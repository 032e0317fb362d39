/* The engine with a real jailer and a real runtime: promises that a scripted peer cannot check. */
#include "world.h"

#include "sandbox/limit_hits.h"

TEST(a_program_runs_and_its_receipt_is_complete_after_destroy)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("echo out; echo err >&2; exit 3"), .wall_ms = 10000 };

    run(&w, &spec);
    expect_end(&w, ENDED_EXIT);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_int_equal(r->exit_code, 3);
    assert_string_equal(w.out.data, "out\n");
    assert_string_equal(w.errout.data, "err\n");
    destroy(&w);
    assert_true(r->final);
    assert_null(r->wall_ns.why);
    assert_true(r->wall_ns.v > 0);
    assert_null(r->cpu_ns.why);
    assert_true(r->cpu_ns.v > 0 && r->cpu_ns.v < 5 * NS_PER_S);
    assert_true(r->memory_peak.why || r->memory_peak.v > 4096);
    assert_true(r->tasks_started.why || r->tasks_started.v >= 1);
    close_world(&w);
}

TEST(input_and_its_end_reach_the_program)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = SH("tr a-z A-Z"), .stdin_open = true, .wall_ms = 10000 };

    begin(&w, &box, &spec);
    w.input = "hello\n";
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_EXIT);
    assert_string_equal(w.out.data, "HELLO\n");
    destroy(&w);
    close_world(&w);
}

TEST(language_kernels_are_in_every_root_and_are_read_only)
{
    struct world w;
    struct exec_spec spec = {
        .argv = SH("cd /.cove/kernels && cat sh/plain && sh/run && ls -A sh deep/er && test ! -w sh/plain &&"
                   "! touch sh/new 2>/dev/null && ! grep -q kernels /proc/self/mountinfo")
    };
    auto_free char *dir = str_printf("%s/kernels", state_dir);
    auto_free char *fill = str_printf(
        "mkdir -p %s/sh %s/deep/er && cd %s && echo text >sh/plain && ln -s plain sh/link &&"
        "printf '#!/bin/sh\necho ran\n' >sh/run && chmod 755 sh/run && cp sh/run deep/er",
        dir, dir, dir);
    auto_free char *clean = str_printf("rm -r %s", dir);

    assert_int_equal(system(fill), 0);
    world_kernels = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world_kernels > 0);
    run(&w, &spec);
    fd_close(&world_kernels);
    world_kernels = 0;
    assert_int_equal(system(clean), 0);
    expect_end(&w, ENDED_EXIT);
    assert_int_equal(exec_handle_receipt(w.exec)->exit_code, 0);
    assert_string_equal(w.out.data, "text\nran\ndeep/er:\nrun\n\nsh:\nplain\nrun\n");
    destroy(&w);
    close_world(&w);
}

TEST(a_program_that_does_not_exist_is_named)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    const char *const argv[] = { "no-such-program", NULL };
    struct exec_spec spec = { .argv = argv };

    begin(&w, &box, &spec);
    for (int i = 0; i < 300 && !w.exec_failed; i++)
        ev_turn(w.ev, 100);
    assert_int_equal(w.exec_failed, 1);
    assert_int_equal(w.err.id, ERR_PROGRAM_MISSING);
    assert_non_null(strstr(w.err.msg, "no-such-program"));
    w.exec_failed = 0;
    destroy(&w);
    close_world(&w);
}

TEST(a_timeout_ends_a_tree_that_ignores_signals_and_its_daemons)
{
    struct world w;
    struct exec_spec spec = {
        .argv = SH("trap '' TERM; (setsid sleep 1000 &); echo partial; sleep 1000"),
        .wall_ms = 1500 * slow_factor(),
    };

    run(&w, &spec);
    expect_end(&w, ENDED_TIMEOUT);
    assert_non_null(w.out.data);
    assert_string_equal(w.out.data, "partial\n");
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_true(r->wall_ns.v >= spec.wall_ms * NS_PER_MS);
    destroy(&w);
    close_world(&w);
}

TEST(cpu_time_is_counted_over_the_whole_tree)
{
    struct world w;
    struct exec_spec spec = {
        .argv = SH("for i in 1 2 3 4; do (while :; do :; done) & done; wait"),
        .cpu_ms = 300,
        .wall_ms = 20000,
    };

    run(&w, &spec);
    expect_end(&w, ENDED_CPU);
    destroy(&w);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_null(r->cpu_ns.why);
    assert_true(r->cpu_ns.v >= 300 * NS_PER_MS);
    if (r->cpu_ns.v > 700 * slow_factor() * NS_PER_MS)
        fail_msg("%" PRIu64 " ms were used", r->cpu_ns.v / 1000000);
    close_world(&w);
}

TEST(the_memory_limit_ends_the_execution_whichever_process_was_killed)
{
    static const char *const scripts[] = {
        "x = bytearray(400 << 20)\n",
        /* a child is killed, and its parent hides that with its own exit code */
        "import os,sys\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    x = bytearray(400 << 20)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "sys.exit(7)\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct world w;
        struct sandbox_spec box = plain_spec();
        struct exec_spec spec = { .argv = PY(scripts[i]), .wall_ms = 20000 };

        box.limits.v[LIMIT_MEMORY] = 64 * MIB;
        limits_fit(&box.limits, LIMIT_BIT(MEMORY));
        begin(&w, &box, &spec);
        turn_until(&w, &w.exited, 30);
        expect_end(&w, ENDED_MEMORY);
        destroy(&w);
        const struct receipt *r = exec_handle_receipt(w.exec);
        /* either the kernel's kill or ours comes first; in both cases the limit was reached */
        assert_true(r->memory_peak.why || r->memory_peak.v >= 48 * MIB);
        close_world(&w);
    }
}

/* True: the bomb reached its limit within its time, which a busy machine may prevent. */
static bool bomb(uint64_t wall_ms)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = {
        .argv = PY("import os\nx = b'!'\nwhile True:\n    try: os.fork()\n"
                   "    except OSError: x = x and os.write(1, x) and b''\n"),
        .wall_ms = wall_ms,
    };

    box.limits.v[LIMIT_PIDS] = 64;
    begin(&w, &box, &spec);
    turn_until(&w, &w.exited, 120);
    expect_end(&w, ENDED_TIMEOUT);
    destroy(&w);
    const struct receipt *r = exec_handle_receipt(w.exec);
    bool off = w.out.len > 0;
    assert_true(!off || r->pids_refused.why || r->pids_refused.v > 0);
    close_world(&w);
    return off;
}

TEST(a_fork_bomb_ends_with_its_timeout_and_leaves_no_process)
{
    uint64_t wall_ms = 1000 * slow_factor();
    bool off = false;

    for (int i = 0; !off && i < 4; i++, wall_ms *= 4)
        off = bomb(wall_ms);
    assert_true(off);
}

/* Each file system is filled until it refuses; the process counter is the kernel's own, on both
 * kinds of cgroup. */
TEST(the_receipt_names_exactly_the_limits_that_were_hit)
{
    static const struct {
        enum limit limit;
        const char *script;
    } rows[] = {
        { LIMIT_TMP, "head -c 2000000 /dev/zero > /tmp/x; exit 1" },
        { LIMIT_WORKSPACE, "head -c 2000000 /dev/zero > /workspace/x; exit 1" },
        { LIMIT_SHM, "head -c 2000000 /dev/zero > /dev/shm/x; exit 1" },
        { LIMIT_TMP_INODES, "i=0; while mkdir /tmp/$i; do i=$((i + 1)); done; exit 1" },
        { LIMIT_PIDS, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 9 & done; exit 1" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct sandbox_spec box = plain_spec();
        struct exec_spec spec = { .argv = SH(rows[i].script), .wall_ms = 20000 };
        struct limit_hit met[LIMIT_COUNT];
        struct world w;

        box.limits.v[LIMIT_TMP] = box.limits.v[LIMIT_WORKSPACE] = box.limits.v[LIMIT_SHM] = MIB;
        box.limits.v[LIMIT_TMP_INODES] = 64;
        box.limits.v[LIMIT_PIDS] = 16;
        begin(&w, &box, &spec);
        turn_until(&w, &w.exited, 30);
        const struct receipt *r = exec_handle_receipt(w.exec);
        size_t n = limit_hits_list(r, met);
        if (rows[i].limit == LIMIT_PIDS && r->pids_refused.why) {
            assert_int_equal(n, 0); /* this host does not count, and the receipt says so */
            assert_non_null(limit_hit_unobservable(r, LIMIT_PIDS));
        } else if (n != 1 || met[0].limit != rows[i].limit) {
            fail_msg("row %zu: %zu limits, the first is %s", i, n, n ? limit_info(met[0].limit)->name : "none");
        }
        destroy(&w);
        close_world(&w);
    }
}

TEST(output_beyond_the_limit_is_dropped_and_counted_and_never_blocks)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("head -c 3000000 /dev/zero; echo end >&2"),
                              .output_max = 1000000,
                              .wall_ms = 20000 };

    run(&w, &spec);
    expect_end(&w, ENDED_EXIT);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_int_equal(r->stdout_bytes, 3000000);
    assert_int_equal(r->stderr_bytes, 4);
    assert_int_equal(w.out.len + w.errout.len, 1000000);
    assert_int_equal(r->dropped_bytes, 2000004);
    destroy(&w);
    close_world(&w);
}

TEST(a_killed_jailer_makes_the_execution_lost_and_leaves_no_process)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = SH("echo before; sleep 1000") };

    begin(&w, &box, &spec);
    w.kill_after_bytes = 7;
    turn_until(&w, &w.lost, 30);
    assert_int_equal(w.exited, 1);
    expect_end(&w, ENDED_LOST);
    assert_string_equal(w.out.data, "before\n");
    assert_int_equal(w.ended, 1);
    assert_true(w.exit_order < w.ended_order);
    close_world(&w);
}

TEST(lifetime_ends_execution_and_sandbox)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = SH("sleep 1000") };

    box.limits.v[LIMIT_LIFETIME] = 1000;
    box.limits.v[LIMIT_WALL] = 1000;
    begin(&w, &box, &spec);
    turn_until(&w, &w.ended, 30);
    expect_end(&w, ENDED_LIFETIME);
    assert_int_equal(w.err.id, ERR_TIMEOUT);
    destroy(&w);
    close_world(&w);
}

TEST(time_while_frozen_does_not_count_against_the_timeout)
{
    struct world w;
    struct sandbox_spec box = plain_spec();
    struct exec_spec spec = { .argv = SH("sleep 0.3; echo done"), .wall_ms = 4000 };

    begin(&w, &box, &spec);
    turn_until(&w, &w.started, 30);
    sandbox_handle_freeze(w.box, on_done, &w);
    turn_until(&w, &w.done, 10);
    assert_true(w.done_ok);
    uint64_t end = clock_mono_ns() + 4200 * NS_PER_MS;
    while (clock_mono_ns() < end)
        ev_turn(w.ev, 100);
    assert_int_equal(w.exited, 0);
    w.done = 0;
    sandbox_handle_thaw(w.box, on_done, &w);
    turn_until(&w, &w.exited, 10);
    expect_end(&w, ENDED_EXIT);
    assert_string_equal(w.out.data, "done\n");
    w.done = 0;
    destroy(&w);
    close_world(&w);
}

TEST(one_engine_runs_many_sandboxes_in_sequence_and_concurrently)
{
    struct world w[8];
    struct exec_spec spec = { .argv = SH("echo $$"), .wall_ms = 20000 };
    struct sandbox_spec box = plain_spec();
    struct err err = { 0 };

    open_world(&w[0]);
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        if (i > 0)
            w[i] = (struct world){ .ev = w[0].ev, .engine = w[0].engine };
        w[i].spec = &spec;
        assert_int_equal(sandbox_handle_new(w[0].engine, &box, &box_ops, &w[i], &w[i].box, &err), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(w); i++) {
        turn_until(&w[i], &w[i].exited, 30);
        expect_end(&w[i], ENDED_EXIT);
        assert_true(w[i].out.len > 0);
        destroy(&w[i]);
    }
    for (size_t i = ARRAY_LEN(w) - 1; i > 0; i--) {
        exec_handle_free(w[i].exec);
        sandbox_handle_free(w[i].box);
        buf_done(&w[i].out);
        buf_done(&w[i].errout);
    }
    close_world(&w[0]);
}

static struct exec_resume resume; /* the second client's knowledge of the first one's execution */

static void on_adopted(void *arg)
{
    struct exec_spec spec = { .wall_ms = 20000, .confirm_end = true };
    struct world *w = arg;

    w->ready++;
    assert_int_equal(sandbox_handle_exec_resume(w->box, &spec, &resume, &exec_ops, w, &w->exec, NULL), 0);
    sandbox_handle_resume_finish(w->box);
}

/* The first client stores "one" and disappears; later output and the end of the program are not
 * lost. */
TEST(a_second_client_resumes_an_execution_without_loss)
{
    static const struct sandbox_handle_ops adopted_ops = { .on_ready = on_adopted,
                                                           .on_failed = on_failed,
                                                           .on_ended = on_ended };
    struct exec_spec spec = { .argv = SH("echo one; sleep 0.3; echo two; echo three >&2; exit 7"), .wall_ms = 20000 };
    struct sandbox_spec box = plain_spec();
    char id[ID_SIZE];
    struct world w;
    int sock;

    spec.confirm_end = true;
    begin(&w, &box, &spec);
    turn_until(&w, &w.started, 20);
    while (w.out.len < 4)
        ev_turn(w.ev, 100);
    assert_string_equal(w.out.data, "one\n");
    sandbox_handle_keep(w.box, on_done, &w);
    turn_until(&w, &w.done, 10);
    str_copy(id, sizeof(id), sandbox_handle_id(w.box));
    resume = (struct exec_resume){ .stream_id = exec_handle_stream_id(w.exec),
                                   .stored_bytes = { 4, 0 },
                                   .elapsed_ms = 10 };
    assert_int_equal(jailer_connect_kept(state_dir, id, &sock, NULL), 0);
    engine_free(w.engine); /* as after a kill: every connection just ends */
    exec_handle_free(w.exec);
    sandbox_handle_free(w.box);
    buf_clear(&w.out);
    w.exited = w.started = w.done = 0;
    w.exec = NULL;
    assert_int_equal(engine_new(w.ev, sock, &engine_ops, &w, &w.engine, NULL), 0);
    assert_int_equal(sandbox_handle_adopt(w.engine, id, &box, &adopted_ops, &w, &w.box, NULL), 0);
    turn_until(&w, &w.exited, 20);
    expect_end(&w, ENDED_EXIT);
    assert_int_equal(exec_handle_receipt(w.exec)->exit_code, 7);
    assert_string_equal(w.out.data, "two\n");
    assert_string_equal(w.errout.data, "three\n");
    assert_int_equal(exec_handle_receipt(w.exec)->stdout_bytes, 8);
    destroy(&w);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_program_runs_and_its_receipt_is_complete_after_destroy),
        RUN(input_and_its_end_reach_the_program),
        RUN(language_kernels_are_in_every_root_and_are_read_only),
        RUN(a_program_that_does_not_exist_is_named),
        RUN(a_timeout_ends_a_tree_that_ignores_signals_and_its_daemons),
        RUN(cpu_time_is_counted_over_the_whole_tree),
        RUN(the_memory_limit_ends_the_execution_whichever_process_was_killed),
        RUN(a_fork_bomb_ends_with_its_timeout_and_leaves_no_process),
        RUN(the_receipt_names_exactly_the_limits_that_were_hit),
        RUN(output_beyond_the_limit_is_dropped_and_counted_and_never_blocks),
        RUN(a_killed_jailer_makes_the_execution_lost_and_leaves_no_process),
        RUN(lifetime_ends_execution_and_sandbox),
        RUN(time_while_frozen_does_not_count_against_the_timeout),
        RUN(a_second_client_resumes_an_execution_without_loss),
        RUN(one_engine_runs_many_sandboxes_in_sequence_and_concurrently),
    };

    return cmocka_run_group_tests(tests, make_state_dir, remove_state_dir);
}
