/* The default context: made by the first code, shared by all code of one language, restarted when
 * its language kernel has died. */
#include "tests/unit/service/context_scene.h"

static void run_code(struct scene *s, const char *id, const struct execution_spec *spec, struct execution_answer *a)
{
    *a = (struct execution_answer){ 0 };
    manager_execute(s->m, ME, BOX, id, spec, on_execution, a);
}

static void kernel_starts(struct scene *s)
{
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
    runtime_started(&s->k);
    kernel_ready(s);
}

static void kernel_dies(struct scene *s, int code, int signo)
{
    runtime_exit(&s->k, code, signo);
    turn(&s->k);
    obey(s);
    settle(s);
}

/* Opens a scene in whose default context EXECUTION runs. */
static void default_open(struct scene *s, const struct execution_spec *spec, struct execution_answer *a)
{
    scene_open(s);
    create_running(s);
    run_code(s, EXECUTION, spec, a);
    kernel_starts(s);
    expect_kernel_line(s, "\"op\":\"execute\",\"id\":\"" EXECUTION "\"");
    if (!spec->report_only_end)
        answered(s, &a->n);
}

static bool read_default(struct scene *s, struct context_info *ret)
{
    static struct context_info all[CONTEXTS_LISTED_MAX];
    struct err err = { 0 };
    size_t n = 0, defaults = 0;

    assert_int_equal(manager_contexts(s->m, ME, BOX, all, &n, &err), 0);
    for (size_t i = 0; i < n; i++)
        if (all[i].is_default) {
            defaults++;
            *ret = all[i];
        }
    assert_true(defaults <= 1);
    return defaults == 1;
}

TEST(the_first_code_makes_the_context_and_the_next_code_uses_it)
{
    struct scene s;
    struct execution_answer first, second;
    struct context_info info, later;

    default_open(&s, &(struct execution_spec){ .code = "x=1" }, &first);
    assert_int_equal(first.err.id, 0);
    assert_true(read_default(&s, &info));
    assert_int_equal(info.state, CONTEXT_BUSY);
    assert_string_equal(info.language, "bash"); /* the kernel of sh */
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "echo $x" }, &second);
    expect_no_kernel_line(&s);
    kernel_finishes(&s, EXECUTION, "ok");
    expect_kernel_line(&s, "echo $x");
    kernel_finishes(&s, OTHER_EXECUTION, "ok");
    answered(&s, &second.n);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_true(read_default(&s, &later));
    assert_string_equal(later.id, info.id);
    assert_int_equal(later.executions, 2);
    scene_close(&s);
}

TEST(another_language_has_another_default_context)
{
    struct scene s;
    struct execution_answer first, second;
    struct context_info all[CONTEXTS_LISTED_MAX];
    struct err err = { 0 };
    size_t n = 0;

    default_open(&s, &(struct execution_spec){ .code = "x=1" }, &first);
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "x = 2", .language = "python" }, &second);
    kernel_starts(&s);
    expect_kernel_line(&s, "x = 2");
    assert_int_equal(manager_contexts(s.m, ME, BOX, all, &n, &err), 0);
    assert_int_equal(n, 2);
    assert_true(all[0].is_default && all[1].is_default);
    assert_string_equal(all[1].language, "python");
    scene_close(&s);
}

TEST(isolated_code_and_commands_run_beside_it)
{
    struct scene s;
    struct execution_answer a, beside;
    struct context_info info;

    default_open(&s, &(struct execution_spec){ .code = "x=1" }, &a);
    execute(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "echo 1", .isolated = true }, &beside);
    runtime_started(&s.k);
    answered(&s, &beside.n);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_true(read_default(&s, &info));
    assert_int_equal(info.executions, 1);
    scene_close(&s);
}

TEST(a_request_that_a_default_context_cannot_serve_is_refused)
{
    static char code[1200000];
    static const struct {
        struct execution_spec spec;
        enum err_id id;
        const char *text;
    } rows[] = {
        { { .code = "x", .changes = true }, ERR_INVALID, "isolated" },
        { { .code = "x", .language = "ruby" }, ERR_RUNTIME_MISSING, "python, node or bash" },
        { { .code = code }, ERR_INVALID, "file" },
    };
    struct scene s;
    struct context_info info;

    memset(code, 'x', sizeof(code) - 1);
    scene_open(&s);
    create_running(&s);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct execution_answer a;

        run_code(&s, EXECUTION, &rows[i].spec, &a);
        assert_int_equal(a.n, 0); /* never inside the call */
        answered(&s, &a.n);
        if (a.err.id != rows[i].id || !strstr(a.err.msg, rows[i].text))
            fail_msg("row %zu: error %d: %s", i, (int)a.err.id, a.err.msg);
        settle(&s);
        assert_false(read_default(&s, &info));
    }
    scene_close(&s);
}

TEST(more_executions_than_it_may_queue_are_refused)
{
    struct scene s;
    struct execution_answer all[CONTEXT_EXECUTIONS_MAX] = { 0 }, late;

    default_open(&s, &(struct execution_spec){ .code = "first" }, &all[0]);
    for (unsigned i = 1; i < CONTEXT_EXECUTIONS_MAX; i++)
        run_code(&s, NULL, &(struct execution_spec){ .code = "x" }, &all[i]);
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "late" }, &late);
    answered(&s, &late.n);
    assert_int_equal(late.err.id, ERR_CONTEXT_BUSY);
    scene_close(&s);
}

TEST(it_does_not_count_as_one_of_the_contexts)
{
    struct scene s;
    struct execution_answer a;
    struct context_answer others[CONTEXTS_MAX + 1] = { 0 };

    default_open(&s, &(struct execution_spec){ .code = "x" }, &a);
    for (unsigned i = 0; i <= CONTEXTS_MAX; i++)
        manager_context_create(s.m, ME, BOX, NULL, &(struct context_spec){ .language = "bash" }, on_context,
                               &others[i]);
    answered(&s, &others[CONTEXTS_MAX].n);
    assert_int_equal(others[CONTEXTS_MAX].err.id, ERR_LIMIT);
    for (unsigned i = 0; i < CONTEXTS_MAX; i++)
        assert_int_equal(others[i].n, 0); /* their kernels start */
    scene_close(&s);
}

TEST(env_and_cwd_go_to_the_kernel_with_the_code)
{
    struct scene s;
    struct execution_answer a;
    static const char *const env[] = { "A=1=2", "B=", NULL };

    scene_open(&s);
    create_running(&s);
    run_code(&s, EXECUTION, &(struct execution_spec){ .code = "x", .env = env, .cwd = "sub" }, &a);
    kernel_starts(&s);
    expect_kernel_line(&s, "\"cwd\":\"/workspace/sub\",\"env\":{\"A\":\"1=2\",\"B\":\"\"}");
    scene_close(&s);
}

TEST(input_is_read_from_the_request_line_by_line_and_then_ends)
{
    static const char ask[] = "{\"event\":\"input\",\"id\":\"" EXECUTION "\",\"prompt\":\"\",\"password\":false}";
    struct scene s;
    struct execution_answer a;

    default_open(&s, &(struct execution_spec){ .code = "read", .input = "one\ntwo", .input_len = 7 }, &a);
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"text\":\"one\"");
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"text\":\"two\"");
    kernel_says(&s, ask);
    expect_kernel_line(&s, "\"eof\":true");
    scene_close(&s);
}

TEST(without_input_input_ends_at_once_and_with_open_input_it_is_an_event)
{
    static const char ask[] = "{\"event\":\"input\",\"id\":\"" EXECUTION "\",\"prompt\":\"\",\"password\":false}";
    static const struct execution_writer_ops no_ops = { 0 };

    for (int open = 0; open < 2; open++) {
        struct scene s;
        struct execution_answer a;
        struct err err = { 0 };

        default_open(&s, &(struct execution_spec){ .code = "read", .input_open = open }, &a);
        kernel_says(&s, ask);
        if (!open) {
            expect_kernel_line(&s, "\"eof\":true");
        } else {
            expect_no_kernel_line(&s);
            assert_null(manager_open_execution_input(s.m, ME, BOX, EXECUTION, &no_ops, NULL, &err));
            assert_non_null(strstr(err.msg, "input"));
            assert_int_equal(manager_context_input(s.m, ME, BOX, EXECUTION, "ada", &err), 0);
            expect_kernel_line(&s, "\"text\":\"ada\"");
        }
        scene_close(&s);
    }
}

TEST(code_that_ignores_its_timeout_is_killed_after_half_a_second)
{
    struct scene s;
    struct execution_answer a;
    struct context_info info;

    default_open(&s, &(struct execution_spec){ .code = "loop", .timeout_ms = 100 }, &a);
    advance(&s, 150);
    expect_runtime(&s, FRAME_SIGNAL);
    advance(&s, 550);
    expect_runtime(&s, FRAME_SIGNAL);
    kernel_dies(&s, -1, SIGKILL);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "timeout");
    kernel_starts(&s);
    settle(&s);
    assert_true(read_default(&s, &info));
    assert_int_equal(info.state, CONTEXT_IDLE);
    assert_int_equal(info.restarts, 1);
    scene_close(&s);
}

TEST(a_dead_one_is_restarted_by_the_next_code)
{
    struct scene s;
    struct execution_answer a, next;
    struct context_info info, later;

    default_open(&s, &(struct execution_spec){ .code = "exit" }, &a);
    kernel_dies(&s, 7, 0);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_FAILED, "exit");
    assert_true(read_default(&s, &info));
    assert_int_equal(info.state, CONTEXT_DEAD);
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "next" }, &next);
    kernel_starts(&s);
    expect_kernel_line(&s, "next");
    answered(&s, &next.n);
    assert_int_equal(next.err.id, 0);
    kernel_finishes(&s, OTHER_EXECUTION, "ok");
    settle(&s);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_true(read_default(&s, &later));
    assert_string_equal(later.id, info.id);
    assert_int_equal(later.restarts, 1);
    scene_close(&s);
}

TEST(a_kernel_that_never_becomes_ready_fails_its_code_and_leaves_no_context)
{
    struct scene s;
    struct execution_answer a, row;
    struct context_info info;

    scene_open(&s);
    create_running(&s);
    run_code(&s, EXECUTION, &(struct execution_spec){ .code = "x" }, &a);
    expect_runtime(&s, FRAME_EXEC);
    s.k.stream = got.f.stream;
    runtime_error(&s.k, s.k.stream, ERR_PROGRAM_MISSING, "kernel: not found");
    answered(&s, &a.n);
    settle(&s);
    read_execution(&s, EXECUTION, &row);
    assert_int_equal(row.state, STORE_EXECUTION_FAILED);
    assert_non_null(strstr(row.error, "runtime_not_found"));
    assert_non_null(strstr(row.error, "run a command"));
    assert_false(read_default(&s, &info));
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "again" }, &a);
    kernel_starts(&s);
    expect_kernel_line(&s, "again");
    scene_close(&s);
}

TEST(after_its_deletion_the_next_code_makes_another)
{
    struct scene s;
    struct execution_answer a, next;
    struct context_answer removed = { 0 };
    struct context_info info, later;

    default_open(&s, &(struct execution_spec){ .code = "x" }, &a);
    kernel_finishes(&s, EXECUTION, "ok");
    settle(&s);
    assert_true(read_default(&s, &info));
    manager_context_delete(s.m, ME, BOX, info.id, on_context, &removed);
    settle(&s);
    uint32_t old = s.k.stream;
    run_code(&s, OTHER_EXECUTION, &(struct execution_spec){ .code = "next" }, &next); /* the old one still ends */
    expect_runtime(&s, FRAME_EXEC);
    uint32_t made = got.f.stream;
    s.k.stream = old;
    kernel_dies(&s, -1, SIGKILL);
    answered(&s, &removed.n);
    assert_int_equal(removed.err.id, 0);
    s.k.stream = made;
    runtime_started(&s.k);
    kernel_ready(&s);
    expect_kernel_line(&s, "next");
    assert_true(read_default(&s, &later));
    assert_string_not_equal(later.id, info.id);
    scene_close(&s);
}

TEST(a_short_execution_is_reported_with_its_end)
{
    struct scene s;
    struct execution_answer a;

    default_open(&s, &(struct execution_spec){ .code = "x", .report_only_end = true }, &a);
    assert_int_equal(a.n, 0);
    kernel_finishes(&s, EXECUTION, "ok");
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    settle(&s);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_first_code_makes_the_context_and_the_next_code_uses_it),
        RUN(another_language_has_another_default_context),
        RUN(isolated_code_and_commands_run_beside_it),
        RUN(a_request_that_a_default_context_cannot_serve_is_refused),
        RUN(more_executions_than_it_may_queue_are_refused),
        RUN(it_does_not_count_as_one_of_the_contexts),
        RUN(env_and_cwd_go_to_the_kernel_with_the_code),
        RUN(input_is_read_from_the_request_line_by_line_and_then_ends),
        RUN(without_input_input_ends_at_once_and_with_open_input_it_is_an_event),
        RUN(code_that_ignores_its_timeout_is_killed_after_half_a_second),
        RUN(a_dead_one_is_restarted_by_the_next_code),
        RUN(a_kernel_that_never_becomes_ready_fails_its_code_and_leaves_no_context),
        RUN(after_its_deletion_the_next_code_makes_another),
        RUN(a_short_execution_is_reported_with_its_end),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
