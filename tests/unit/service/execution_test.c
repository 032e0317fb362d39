/* Executions of programs: start, output, input, and every way to end. */
#include "tests/unit/service/scene_rows.h"

static const struct execution_spec plain = { 0 };

/* Ends the program; the jailer reports the counters of a program that failed. */
static void program_ends(struct scene *s, int code, int signo)
{
    runtime_exit(&s->k, code, signo);
    turn(&s->k);
    obey(s);
    settle(s);
}

TEST(an_execution_starts_runs_and_ends_in_its_row)
{
    struct scene s;
    struct execution_answer a;
    struct manager_stats stats;

    scene_open(&s);
    create_running(&s);
    execute(&s, EXECUTION, &plain, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_string_equal(a.id, EXECUTION);
    assert_int_equal(a.state, STORE_EXECUTION_STARTING);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_STARTING, "");
    manager_stats(s.m, &stats);
    assert_int_equal(stats.executing, 1);
    runtime_started(&s.k);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_RUNNING);
    assert_true(a.started_ms > 0);
    runtime_output(&s, RT_STDOUT, "out");
    runtime_output(&s, RT_STDERR, "error");
    runtime_output(&s, RT_STDOUT, "put");
    program_ends(&s, 3, 0);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_string_equal(a.ended_by, "exit");
    assert_int_equal(a.exit_code, 3);
    assert_int_equal(a.out_bytes[0], 6);
    assert_int_equal(a.out_bytes[1], 5);
    assert_int_equal(a.dropped[0] + a.dropped[1], 0);
    assert_output(&s, EXECUTION, 1, "output");
    assert_output(&s, EXECUTION, 2, "error");
    manager_stats(s.m, &stats);
    assert_int_equal(stats.executing, 0);
    assert_int_equal(stats.executions_ended[ENDED_EXIT], 1);
    scene_close(&s);
}

TEST(a_program_that_starts_before_its_row_is_committed_is_running_in_it)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute(&s, EXECUTION, &plain, &a);
    runtime_started(&s.k);
    runtime_output(&s, RT_STDOUT, "early");
    program_ends(&s, 0, 0);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_output(&s, EXECUTION, 1, "early");
    scene_close(&s);
}

TEST(a_program_that_cannot_be_started_fails_with_the_reason)
{
    struct scene s;
    struct execution_answer a;
    struct manager_stats stats;

    scene_open(&s);
    create_running(&s);
    execute(&s, EXECUTION, &plain, &a);
    runtime_error(&s.k, s.k.stream, ERR_PROGRAM_MISSING, "true: not found");
    answered(&s, &a.n);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.state, STORE_EXECUTION_FAILED);
    assert_non_null(strstr(a.error, "true: not found"));
    assert_int_equal(a.exit_code, -1);
    manager_stats(s.m, &stats);
    assert_int_equal(stats.executions_failed, 1);
    assert_int_equal(stats.executing, 0);
    scene_close(&s);
}

TEST(output_beyond_the_limit_is_counted_and_dropped)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .output_max = 6 });
    runtime_output(&s, RT_STDOUT, "1234");
    runtime_output(&s, RT_STDERR, "5678");
    runtime_output(&s, RT_STDOUT, "9");
    program_ends(&s, 0, 0);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.out_bytes[0], 5);
    assert_int_equal(a.dropped[0], 1);
    assert_int_equal(a.out_bytes[1], 4);
    assert_int_equal(a.dropped[1], 2);
    assert_output(&s, EXECUTION, 1, "1234");
    assert_output(&s, EXECUTION, 2, "56");
    scene_close(&s);
}

/* Takes frames of standard input until none is left. Returns the bytes; *ended: the end came. */
static size_t take_input(struct scene *s, bool *ended)
{
    size_t sum = 0;

    settle(s);
    while (take_any(s->k.runtime))
        if (got.f.type == FRAME_DATA && (got.f.flags & RT_CHANNEL) == RT_STDIN) {
            sum += got.f.len;
            *ended |= (got.f.flags & RT_END) != 0;
        }
    return sum;
}

TEST(input_is_sent_in_parts_as_the_program_reads_it)
{
    size_t window = rt_initial_window(FRAME_EXEC), len = window + 1000;
    auto_free char *input = mem_alloc(len);
    struct scene s;
    struct execution_answer a;
    uint8_t credit[4] = { 0xe8, 0x03 }; /* 1000 */
    bool ended = false;

    memset(input, 'x', len);
    scene_open(&s);
    create_running(&s);
    execute(&s, EXECUTION, &(struct execution_spec){ .input = input, .input_len = len }, &a);
    runtime_started(&s.k);
    assert_int_equal(take_input(&s, &ended), window);
    assert_false(ended);
    runtime_says(&s.k, FRAME_CREDIT, 0, s.k.stream, credit, 4);
    assert_int_equal(take_input(&s, &ended), 1000);
    assert_true(ended);
    program_ends(&s, 0, 0);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

/* --- ends that are not the program's own --- */

enum stop { TIMEOUT, KILL, DELETE, RUNTIME_DIES, JAILER_LOST, SUSPEND, LIFETIME };

static void on_watch(void *arg, const struct store_execution *ended)
{
    int *calls = arg;

    calls[ended ? 1 : 0]++;
}

TEST(an_execution_that_is_stopped_ends_once_with_the_cause)
{
    static const struct {
        const char *name;
        enum stop by;
        bool started;
        enum store_execution_state state;
        const char *ended_by;
    } rows[] = {
        { "timeout while running", TIMEOUT, true, STORE_EXECUTION_ENDED, "timeout" },
        { "killed while running", KILL, true, STORE_EXECUTION_ENDED, "killed" },
        { "deleted while starting", DELETE, false, STORE_EXECUTION_ENDED, "killed" },
        { "deleted while running", DELETE, true, STORE_EXECUTION_ENDED, "killed" },
        { "runtime dies while starting", RUNTIME_DIES, false, STORE_EXECUTION_FAILED, "lost" },
        { "runtime dies while running", RUNTIME_DIES, true, STORE_EXECUTION_FAILED, "lost" },
        { "jailer lost while starting", JAILER_LOST, false, STORE_EXECUTION_FAILED, "lost" },
        { "jailer lost while running", JAILER_LOST, true, STORE_EXECUTION_FAILED, "lost" },
        { "tenant suspended while starting", SUSPEND, false, STORE_EXECUTION_ENDED, "killed" },
        { "tenant suspended while running", SUSPEND, true, STORE_EXECUTION_ENDED, "killed" },
        { "lifetime while running", LIFETIME, true, STORE_EXECUTION_ENDED, "lifetime" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;
        struct execution_answer a;
        struct sandbox_answer deleted = { 0 };
        int calls[2] = { 0, 0 };

        scene_open(&s);
        create_running(&s);
        execute(&s, EXECUTION, &(struct execution_spec){ .timeout_ms = rows[i].by == TIMEOUT ? 100 : 100000000 }, &a);
        if (rows[i].started)
            runtime_started(&s.k);
        answered(&s, &a.n);
        auto_(execution_watch) watch = manager_watch_execution(s.m, ME, BOX, EXECUTION, on_watch, calls);
        assert_non_null(watch);
        if (rows[i].by == TIMEOUT)
            advance(&s, 200);
        else if (rows[i].by == KILL)
            execution_watch_kill(watch);
        else if (rows[i].by == DELETE)
            manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
        else if (rows[i].by == RUNTIME_DIES)
            runtime_dies(&s);
        else if (rows[i].by == JAILER_LOST)
            jailer_is_lost(&s);
        else if (rows[i].by == SUSPEND)
            suspend(&s, ME);
        else
            advance(&s, 300000);
        if (rows[i].by == TIMEOUT || rows[i].by == KILL || rows[i].by == LIFETIME) {
            expect_runtime(&s, FRAME_SIGNAL);
            runtime_exit(&s.k, -1, SIGKILL);
        }
        obey_until(&s, &calls[1]);
        settle(&s);
        struct execution_answer row;
        read_execution(&s, EXECUTION, &row);
        if (calls[1] != 1 || a.n != 0 || row.state != rows[i].state || !str_eq(row.ended_by, rows[i].ended_by))
            fail_msg("%s: %d ends, row %d '%s' %s", rows[i].name, calls[1], (int)row.state, row.ended_by, row.error);
        scene_close(&s);
    }
}

TEST(a_program_that_cannot_be_killed_ends_its_sandbox)
{
    struct scene s;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .timeout_ms = 100 });
    advance(&s, 200);
    expect_runtime(&s, FRAME_SIGNAL);
    advance(&s, 10000);
    assert_int_equal(obey_until(&s, &s.ends), 1);
    settle(&s);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "timeout");
    scene_close(&s);
}

/* --- refusals --- */

TEST(an_execution_that_is_refused_is_not_started_and_leaves_no_row)
{
    static char word[60 * KIB];
    const char *const long_argv[] = { word, NULL };
    struct scene s;
    struct execution_answer a = { 0 }, first;
    struct sandbox_answer paused = { 0 };

    memset(word, 'x', sizeof(word) - 1);
    scene_open_with(&s, &(struct scene_settings){ .executions_max = 1 });
    manager_execute(s.m, ME, BOX, EXECUTION, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_MISSING);
    create_running(&s);
    manager_execute(s.m, ME, BOX, EXECUTION, &(struct execution_spec){ .argv = long_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_INVALID);
    execute(&s, EXECUTION, &plain, &first);
    answered(&s, &first.n);
    manager_execute(s.m, ME, BOX, EXECUTION, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_IDEMPOTENCY);
    manager_execute(s.m, ME, BOX, OTHER_EXECUTION, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_LIMIT);
    runtime_started(&s.k);
    program_ends(&s, 0, 0);
    manager_pause(s.m, ME, BOX, on_sandbox, &paused);
    expect(&s, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    answered(&s, &paused.n);
    manager_execute(s.m, ME, BOX, OTHER_EXECUTION, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_SANDBOX_PAUSED);
    expect_no_runtime(&s, FRAME_EXEC);
    read_execution(&s, OTHER_EXECUTION, &a);
    assert_int_equal(a.err.id, ERR_MISSING);
    scene_close(&s);
}

TEST(a_program_whose_row_is_refused_is_killed_and_its_output_removed)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    store_refuse(EXECUTION_INSERT, 1);
    clock_hold(true); /* its row is delayed, so that the output comes first */
    execute(&s, EXECUTION, &(struct execution_spec){ .report_only_end = true }, &a);
    runtime_started(&s.k);
    runtime_output(&s, RT_STDOUT, "lost");
    clock_hold(false);
    advance(&s, 20);
    answered(&s, &a.n);
    assert_store_refused();
    assert_int_equal(a.err.id, ERR_STORE_FAILED);
    expect_runtime(&s, FRAME_SIGNAL);
    program_ends(&s, -1, SIGKILL);
    assert_int_equal(a.n, 0);
    assert_true(manager_open_output(s.m, EXECUTION, 1) < 0);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.err.id, ERR_MISSING);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    execute_running(&s, OTHER_EXECUTION, &plain); /* the sandbox is usable */
    scene_close(&s);
}

/* --- code --- */

TEST(code_is_an_argument_of_its_interpreter)
{
    struct scene s;
    struct execution_answer a;
    struct rt_exec m;
    void *strings = NULL;

    scene_open(&s);
    create_running(&s);
    execute(&s, EXECUTION, &(struct execution_spec){ .code = "echo 1", .isolated = true }, &a);
    assert_int_equal(rt_exec_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.argv[1], "-c");
    assert_string_equal(m.argv[2], "echo 1");
    free(strings);
    answered(&s, &a.n);
    scene_close(&s);
}

/* Requests long code; returns at the WRITE of its file. */
static void execute_long_code(struct scene *s, struct execution_answer *a)
{
    static char code[20 * KIB];

    memset(code, ' ', sizeof(code) - 1);
    *a = (struct execution_answer){ 0 };
    manager_execute(s->m, ME, BOX, EXECUTION, &(struct execution_spec){ .code = code, .isolated = true }, on_execution,
                    a);
    expect_runtime(s, FRAME_WRITE);
    s->k.stream = got.f.stream;
}

TEST(long_code_is_written_to_a_file_and_removed_after_the_end)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute_long_code(&s, &a);
    settle(&s);
    assert_int_equal(a.n, 0);
    runtime_done(&s.k, s.k.stream, &(struct rt_done){ .bytes = 20 * KIB - 1, .files = 1 });
    expect_runtime(&s, FRAME_EXEC);
    s.k.stream = got.f.stream;
    runtime_started(&s.k);
    answered(&s, &a.n);
    runtime_exit(&s.k, 0, 0);
    expect_runtime(&s, FRAME_REMOVE);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

TEST(an_execution_whose_code_cannot_be_written_is_refused)
{
    enum { REFUSED, DIED, GONE, WAYS };
    static const enum err_id ids[WAYS] = { ERR_SYS, ERR_LOST, ERR_SANDBOX_ENDED };

    for (int way = 0; way < WAYS; way++) {
        struct scene s;
        struct execution_answer a;
        struct sandbox_answer deleted = { 0 };

        scene_open(&s);
        create_running(&s);
        execute_long_code(&s, &a);
        if (way == REFUSED)
            runtime_error(&s.k, s.k.stream, ERR_SYS, "no space");
        else if (way == DIED)
            runtime_dies(&s);
        else
            manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
        obey_until(&s, &a.n);
        settle(&s);
        if (a.n != 1 || a.err.id != ids[way])
            fail_msg("way %d: %d answers, error %d: %s", way, a.n, (int)a.err.id, a.err.msg);
        read_execution(&s, EXECUTION, &a);
        assert_int_equal(a.err.id, ERR_MISSING);
        scene_close(&s);
    }
}

TEST(a_stop_of_the_server_during_an_execution_leaves_no_idle_timer)
{
    struct scene s;
    struct spec spec;

    scene_open(&s);
    scene_spec(&spec);
    spec.limits.v[LIMIT_IDLE] = 1000;
    create_running_spec(&s, &spec);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    scene_close(&s); /* the loop still turns after the sandbox is freed */
}

TEST(a_deletion_succeeds_while_the_end_of_an_execution_is_retried)
{
    struct scene s;
    struct sandbox_answer a = { 0 };

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    store_refuse(EXECUTION_UPDATE, 1);
    delete_sandbox(&s, BOX);
    assert_store_refused();
    manager_delete(s.m, ME, BOX, on_sandbox, &a); /* the end of the execution is not stored yet */
    settle(&s);
    advance(&s, 1100);
    advance(&s, 1100);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, STORE_SANDBOX_ENDED);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

/* --- terminals --- */

TEST(a_terminal_is_resized_by_any_watch_and_all_of_them_see_it)
{
    struct scene s;
    int first[2] = { 0, 0 }, second[2] = { 0, 0 };
    uint16_t rows = 0, cols = 0;
    struct rt_resize m;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .tty = true, .input_open = true, .rows = 24, .cols = 80 });
    auto_(execution_watch) a = manager_watch_execution(s.m, ME, BOX, EXECUTION, on_watch, first);
    auto_(execution_watch) b = manager_watch_execution(s.m, ME, BOX, EXECUTION, on_watch, second);
    assert_true(execution_watch_resize(a, 30, 90));
    expect_runtime(&s, FRAME_RESIZE);
    assert_int_equal(rt_resize_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.cols, 90);
    settle(&s);
    assert_int_equal(first[0], 1);
    assert_int_equal(second[0], 1);
    assert_true(execution_watch_terminal_size(b, &rows, &cols));
    assert_int_equal(rows, 30);
    assert_true(execution_watch_resize(b, 30, 90)); /* unchanged */
    expect_no_runtime(&s, FRAME_RESIZE);
    program_ends(&s, 0, 0);
    assert_int_equal(first[1] + second[1], 2);
    assert_false(execution_watch_resize(a, 1, 1));
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_execution_starts_runs_and_ends_in_its_row),
        RUN(a_program_that_starts_before_its_row_is_committed_is_running_in_it),
        RUN(a_program_that_cannot_be_started_fails_with_the_reason),
        RUN(output_beyond_the_limit_is_counted_and_dropped),
        RUN(input_is_sent_in_parts_as_the_program_reads_it),
        RUN(an_execution_that_is_stopped_ends_once_with_the_cause),
        RUN(a_program_that_cannot_be_killed_ends_its_sandbox),
        RUN(an_execution_that_is_refused_is_not_started_and_leaves_no_row),
        RUN(a_program_whose_row_is_refused_is_killed_and_its_output_removed),
        RUN(code_is_an_argument_of_its_interpreter),
        RUN(long_code_is_written_to_a_file_and_removed_after_the_end),
        RUN(an_execution_whose_code_cannot_be_written_is_refused),
        RUN(a_stop_of_the_server_during_an_execution_leaves_no_idle_timer),
        RUN(a_deletion_succeeds_while_the_end_of_an_execution_is_retried),
        RUN(a_terminal_is_resized_by_any_watch_and_all_of_them_see_it),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
