/* How the end of an execution reaches its clients: watches, writers, rows that are delayed, ends
 * that are acknowledged ahead of their commit, and a store that refuses. */
#include "tests/unit/service/scene_rows.h"

static const struct execution_spec plain = { 0 };

struct watcher {
    struct execution_watch *watch;
    int changes, ends;
    bool free_in_callback;
    enum store_execution_state state;
    char ended_by[16];
};

static void on_watch(void *arg, const struct store_execution *ended)
{
    struct watcher *w = arg;

    assert_int_equal(w->ends, 0); /* the end is the last call */
    if (ended) {
        w->ends++;
        w->state = ended->state;
        snprintf(w->ended_by, sizeof(w->ended_by), "%s", ended->ended_by ? ended->ended_by : "");
    } else {
        w->changes++;
    }
    if (w->free_in_callback) {
        execution_watch_free(w->watch);
        w->watch = NULL;
    }
}

static void watch(struct scene *s, const char *id, struct watcher *w)
{
    w->watch = manager_watch_execution(s->m, ME, BOX, id, on_watch, w);
    assert_non_null(w->watch);
}

/* --- watches --- */

TEST(a_watch_is_called_after_each_change_and_once_at_the_end)
{
    struct scene s;
    struct watcher w = { 0 }, gone = { .free_in_callback = true };
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    assert_null(manager_watch_execution(s.m, ME, BOX, EXECUTION, on_watch, &w));
    execute(&s, EXECUTION, &plain, &a);
    answered(&s, &a.n);
    watch(&s, EXECUTION, &w);
    watch(&s, EXECUTION, &gone);
    assert_null(manager_watch_execution(s.m, "other", BOX, EXECUTION, on_watch, &w));
    assert_false(execution_watch_has_started(w.watch));
    runtime_started(&s.k);
    assert_int_equal(w.changes, 1);
    assert_int_equal(gone.changes, 1);
    assert_true(execution_watch_has_started(w.watch));
    put(s.k.runtime, FRAME_DATA, RT_STDOUT, s.k.stream, "ab", 2);
    put(s.k.runtime, FRAME_DATA, RT_STDERR, s.k.stream, "c", 1);
    turn(&s.k); /* both arrive in one turn */
    assert_int_equal(w.changes, 2);
    assert_int_equal(execution_watch_output_bytes(w.watch, 1), 2);
    assert_int_equal(execution_watch_output_bytes(w.watch, 2), 1);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_int_equal(w.ends, 1);
    assert_string_equal(w.ended_by, "exit");
    assert_int_equal(gone.changes + gone.ends, 1);
    assert_int_equal(execution_watch_output_bytes(w.watch, 1), 0); /* inactive */
    execution_watch_kill(w.watch);
    execution_watch_free(w.watch);
    assert_null(manager_watch_execution(s.m, ME, BOX, EXECUTION, on_watch, &w));
    scene_close(&s);
}

TEST(a_signal_reaches_the_program_while_it_runs)
{
    struct scene s;
    struct watcher w = { 0 };
    struct rt_signal m;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &plain);
    watch(&s, EXECUTION, &w);
    execution_watch_signal(w.watch, SIGUSR1);
    expect_runtime(&s, FRAME_SIGNAL);
    assert_int_equal(rt_signal_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.signo, SIGUSR1);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    execution_watch_signal(w.watch, SIGUSR1);
    expect_no_runtime(&s, FRAME_SIGNAL);
    execution_watch_free(w.watch);
    scene_close(&s);
}

/* --- writers of standard input --- */

struct writer {
    struct execution_writer *writer;
    int writable, ends;
    uint64_t bytes;
};

static void on_writable_input(void *arg)
{
    ((struct writer *)arg)->writable++;
}

static void on_input_end(void *arg, uint64_t bytes)
{
    struct writer *w = arg;

    w->ends++;
    w->bytes = bytes;
}

static bool open_writer(struct scene *s, struct writer *w, struct err *err)
{
    static const struct execution_writer_ops ops = { .on_writable = on_writable_input, .on_end = on_input_end };

    *err = (struct err){ 0 };
    w->writer = manager_open_execution_input(s->m, ME, BOX, EXECUTION, &ops, w, err);
    return w->writer != NULL;
}

TEST(one_writer_at_a_time_writes_the_input_of_a_program)
{
    size_t window = rt_initial_window(FRAME_EXEC);
    auto_free char *data = mem_alloc(window + 1);
    uint8_t credit[4] = { 1 };
    struct scene s;
    struct writer first = { 0 }, second = { 0 };
    struct err err;

    memset(data, 'x', window + 1);
    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .input_open = true });
    assert_true(open_writer(&s, &first, &err));
    assert_false(open_writer(&s, &second, &err));
    assert_int_equal(err.id, ERR_EXISTS);
    assert_int_equal(execution_writer_send(first.writer, data, window + 1), window);
    assert_int_equal(execution_writer_bytes(first.writer), window);
    runtime_says(&s.k, FRAME_CREDIT, 0, s.k.stream, credit, 4);
    assert_int_equal(first.writable, 1);
    execution_writer_free(first.writer);
    assert_true(open_writer(&s, &second, &err)); /* continues after the bytes of the first */
    assert_int_equal(execution_writer_bytes(second.writer), window);
    assert_int_equal(execution_writer_send(second.writer, data, 1), 1);
    execution_writer_close(second.writer);
    execution_writer_free(second.writer);
    assert_false(open_writer(&s, &first, &err));
    assert_int_equal(err.id, ERR_EXISTS);
    scene_close(&s);
}

TEST(the_end_of_a_program_ends_its_writer)
{
    struct scene s;
    struct writer w = { 0 };
    struct err err;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .input_open = true });
    assert_true(open_writer(&s, &w, &err));
    assert_int_equal(execution_writer_send(w.writer, "abc", 3), 3);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_int_equal(w.ends, 1);
    assert_int_equal(w.bytes, 3);
    assert_int_equal(execution_writer_send(w.writer, "abc", 3), 0);
    execution_writer_free(w.writer);
    scene_close(&s);
}

TEST(a_program_without_open_input_has_no_writer_and_a_terminal_has_many)
{
    struct scene s;
    struct writer first = { 0 }, second = { 0 };
    struct err err;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &plain);
    assert_false(open_writer(&s, &first, &err));
    assert_int_equal(err.id, ERR_EXISTS);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    delete_sandbox(&s, BOX);
    scene_close(&s);
    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ .input_open = true, .tty = true, .rows = 2, .cols = 2 });
    assert_true(open_writer(&s, &first, &err));
    assert_true(open_writer(&s, &second, &err));
    execution_writer_free(first.writer);
    execution_writer_free(second.writer);
    scene_close(&s);
}

/* --- a caller that needs only the end --- */

static const struct execution_spec only_end = { .report_only_end = true };

/* Starts a program for such a caller; the clock stands still, so that its row is delayed. */
static void execute_quickly(struct scene *s, const char *id, struct execution_answer *a)
{
    clock_hold(true);
    execute(s, id, &only_end, a);
}

static void end_quickly(struct scene *s)
{
    runtime_exit(&s->k, 0, 0);
    turn(&s->k);
    clock_hold(false);
}

TEST(a_quick_end_is_the_only_answer_and_precedes_the_commit)
{
    struct scene s;
    struct execution_answer a;
    struct store_stats before, after;

    scene_open(&s);
    create_running(&s);
    store_stats(s.store, &before);
    execute_quickly(&s, EXECUTION, &a);
    runtime_started(&s.k);
    runtime_output(&s, RT_STDOUT, "quick");
    assert_int_equal(a.n, 0);
    end_quickly(&s);
    store_stats(s.store, &after);
    assert_int_equal(a.n, 1);
    assert_true(after.commits <= before.commits + 1); /* at most its own commit, in the background */
    settle(&s);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.exit_code, 0);
    assert_int_equal(a.out_bytes[0], 5);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_output(&s, EXECUTION, 1, "quick");
    scene_close(&s);
}

TEST(an_end_whose_id_is_stored_already_does_not_hold_its_sandbox)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    for (int i = 0; i < 2; i++) {
        execute_quickly(&s, EXECUTION, &a);
        runtime_started(&s.k);
        end_quickly(&s);
        settle(&s);
        assert_int_equal(a.n, 1);
    }
    delete_sandbox(&s, BOX);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_slow_end_is_preceded_by_a_row_and_an_answer)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute_quickly(&s, EXECUTION, &a);
    runtime_started(&s.k);
    settle(&s);
    assert_int_equal(a.n, 0);
    clock_hold(false);
    advance(&s, 20);
    answered(&s, &a.n);
    assert_int_equal(a.state, STORE_EXECUTION_RUNNING);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_RUNNING, "");
    end_quickly(&s);
    settle(&s);
    assert_int_equal(a.n, 0);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

TEST(a_failed_start_without_a_row_is_answered_as_an_end)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute_quickly(&s, EXECUTION, &a);
    runtime_error(&s.k, s.k.stream, ERR_PROGRAM_MISSING, "true: not found");
    clock_hold(false);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, STORE_EXECUTION_FAILED);
    assert_non_null(strstr(a.error, "not found"));
    assert_execution(&s, EXECUTION, STORE_EXECUTION_FAILED, "");
    scene_close(&s);
}

TEST(an_acknowledged_end_is_flushed_before_the_next_request)
{
    struct scene s;
    struct execution_answer a, row = { 0 };

    scene_open(&s);
    create_running(&s);
    execute_quickly(&s, EXECUTION, &a);
    runtime_started(&s.k);
    end_quickly(&s);
    turn_until(&s.k, &a.n);
    manager_flush_acknowledged_ends(s.m);
    store_execution_get(s.store, ME, EXECUTION, on_execution, &row);
    answered(&s, &row.n);
    assert_int_equal(row.state, STORE_EXECUTION_ENDED);
    assert_int_equal(a.n, 1);
    scene_close(&s);
}

TEST(an_acknowledged_end_that_the_store_refuses_is_committed_later_and_not_repeated)
{
    static const char *const refused[] = { EXECUTION_INSERT, EXECUTION_UPDATE };

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct scene s;
        struct execution_answer a;

        scene_open(&s);
        create_running(&s);
        store_refuse(refused[i], 1);
        execute_quickly(&s, EXECUTION, &a);
        runtime_started(&s.k);
        runtime_output(&s, RT_STDOUT, "kept");
        end_quickly(&s);
        answered(&s, &a.n);
        assert_store_refused();
        assert_int_equal(a.err.id, 0);
        assert_int_equal(a.state, STORE_EXECUTION_ENDED);
        advance(&s, 1000);
        assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
        assert_output(&s, EXECUTION, 1, "kept");
        assert_int_equal(a.n, 0);
        scene_close(&s);
    }
}

TEST(without_the_journal_an_answer_waits_for_the_commit)
{
    struct scene s;
    struct execution_answer a;

    scene_open_with(&s, &(struct scene_settings){ .sync_full = true });
    create_running(&s);
    store_refuse(EXECUTION_INSERT, 1);
    execute_quickly(&s, EXECUTION, &a);
    runtime_started(&s.k);
    end_quickly(&s);
    answered(&s, &a.n);
    assert_store_refused();
    assert_int_equal(a.err.id, ERR_STORE_FAILED);
    read_execution(&s, EXECUTION, &a);
    assert_int_equal(a.err.id, ERR_MISSING);
    execute_quickly(&s, OTHER_EXECUTION, &a);
    runtime_started(&s.k);
    end_quickly(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

/* --- an end that the store refuses --- */

TEST(an_end_that_the_store_refuses_is_retried_until_it_is_committed)
{
    struct scene s;
    struct watcher w = { 0 };

    scene_open_with(&s, &(struct scene_settings){ .sync_full = true });
    create_running(&s);
    execute_running(&s, OTHER_EXECUTION, &plain); /* the first one stays in the runtime */
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    execute_running(&s, EXECUTION, &plain);
    watch(&s, EXECUTION, &w);
    store_refuse(EXECUTION_UPDATE, 2);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_int_equal(w.ends, 0);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_RUNNING, "");
    expect_no_runtime(&s, FRAME_CLOSE); /* the runtime keeps the end */
    advance(&s, 1000);
    assert_int_equal(w.ends, 0);
    assert_store_refused();
    advance(&s, 1000);
    assert_int_equal(w.ends, 1);
    assert_int_equal(w.state, STORE_EXECUTION_ENDED);
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    expect_runtime(&s, FRAME_CLOSE);
    execution_watch_free(w.watch);
    scene_close(&s);
}

TEST(an_execution_whose_end_is_not_committed_yet_leaves_room_for_the_next)
{
    struct scene s;

    scene_open_with(&s, &(struct scene_settings){ .sync_full = true, .executions_max = 1 });
    create_running(&s);
    execute_running(&s, OTHER_EXECUTION, &plain);
    store_refuse(EXECUTION_UPDATE, 1);
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    assert_store_refused();
    execute_running(&s, EXECUTION, &plain);
    runtime_exit(&s.k, 0, 0);
    advance(&s, 1000);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "exit");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
    scene_close(&s);
}

static void on_subscription(void *arg, const struct err *ended)
{
    *(int *)arg += ended != NULL;
}

TEST(a_sandbox_that_ends_during_the_retry_does_not_lose_the_end_of_its_execution)
{
    for (int journal = 0; journal < 2; journal++) {
        struct scene s;
        struct watcher w = { 0 };
        struct sandbox_answer deleted = { 0 };
        struct execution_answer row;
        struct err err = { 0 };
        int ended = 0;

        scene_open_with(&s, &(struct scene_settings){ .sync_full = !journal });
        create_running(&s);
        execute_running(&s, EXECUTION, &plain);
        watch(&s, EXECUTION, &w);
        auto_(sandbox_subscription) sub = sandbox_subscribe(s.m, ME, BOX, on_subscription, &ended, &err);
        assert_non_null(sub);
        store_refuse(EXECUTION_UPDATE, 2);
        runtime_exit(&s.k, 0, 0);
        settle(&s);
        assert_int_equal(w.ends, journal); /* in the journal: acknowledged */
        manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
        obey_until(&s, &deleted.n);
        answered(&s, &deleted.n);
        assert_int_equal(deleted.err.id, 0);
        assert_int_equal(ended, 0); /* it follows the ends of the executions */
        advance(&s, 1000);
        assert_store_refused();
        advance(&s, 1000);
        advance(&s, 1000);
        assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "exit");
        read_execution(&s, EXECUTION, &row);
        assert_non_null(strstr(row.receipt, "\"final\":true"));
        assert_int_equal(w.ends, 1);
        assert_int_equal(ended, 1);
        assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
        execution_watch_free(w.watch);
        scene_close(&s);
    }
}

TEST(the_journal_is_empty_after_a_sandbox_ended_with_a_watched_execution)
{
    struct scene s;
    struct watcher w = { 0 };
    struct sandbox_answer deleted = { 0 };
    struct stat st;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &plain);
    watch(&s, EXECUTION, &w);
    manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
    obey_until(&s, &deleted.n);
    assert_int_equal(deleted.err.id, 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    settle(&s);
    assert_int_equal(w.ends, 1);
    advance(&s, 1000);
    advance(&s, 1000);
    auto_free char *journal = str_printf("%s/ends", scene_dir);
    assert_int_equal(stat(journal, &st), 0);
    assert_int_equal(st.st_size, 0);
    execution_watch_free(w.watch);
    scene_close(&s);
}

/* --- the final receipt --- */

TEST(the_receipt_of_the_only_execution_is_completed_at_the_end_of_its_sandbox)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &plain);
    runtime_exit(&s.k, 0, 0);
    read_execution(&s, EXECUTION, &a);
    assert_non_null(strstr(a.receipt, "\"final\":false"));
    delete_sandbox(&s, BOX);
    read_execution(&s, EXECUTION, &a);
    assert_non_null(strstr(a.receipt, "\"final\":true"));
    assert_string_equal(a.ended_by, "exit");
    scene_close(&s);
}

/* --- a server that stops --- */

TEST(a_stop_of_the_server_answers_a_pending_execution_once_and_leaves_the_program)
{
    static const struct execution_spec *const specs[] = { &plain, &only_end };

    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        struct scene s;
        struct execution_answer a;

        scene_open(&s);
        create_running(&s);
        execute(&s, EXECUTION, specs[i], &a);
        int before = a.n;
        manager_finish(s.m);
        settle(&s);
        assert_int_equal(a.n, 1);
        if (!before)
            assert_int_equal(a.err.id, ERR_BUSY);
        expect_no_runtime(&s, FRAME_SIGNAL);
        scene_close(&s);
        assert_int_equal(a.n, 1);
    }
}

TEST(a_row_that_is_refused_after_the_stop_of_the_server_is_not_answered_again)
{
    struct scene s;
    struct execution_answer a;

    scene_open(&s);
    create_running(&s);
    store_refuse(EXECUTION_INSERT, 1);
    execute_quickly(&s, EXECUTION, &a);
    manager_finish(s.m);
    settle(&s);
    assert_int_equal(a.n, 1);
    clock_hold(false);
    advance(&s, 20); /* the delayed row is inserted now */
    assert_store_refused();
    assert_int_equal(a.n, 1);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_watch_is_called_after_each_change_and_once_at_the_end),
        RUN(a_signal_reaches_the_program_while_it_runs),
        RUN(one_writer_at_a_time_writes_the_input_of_a_program),
        RUN(the_end_of_a_program_ends_its_writer),
        RUN(a_program_without_open_input_has_no_writer_and_a_terminal_has_many),
        RUN(a_quick_end_is_the_only_answer_and_precedes_the_commit),
        RUN(an_end_whose_id_is_stored_already_does_not_hold_its_sandbox),
        RUN(a_slow_end_is_preceded_by_a_row_and_an_answer),
        RUN(a_failed_start_without_a_row_is_answered_as_an_end),
        RUN(an_acknowledged_end_is_flushed_before_the_next_request),
        RUN(an_acknowledged_end_that_the_store_refuses_is_committed_later_and_not_repeated),
        RUN(without_the_journal_an_answer_waits_for_the_commit),
        RUN(an_end_that_the_store_refuses_is_retried_until_it_is_committed),
        RUN(an_execution_whose_end_is_not_committed_yet_leaves_room_for_the_next),
        RUN(a_sandbox_that_ends_during_the_retry_does_not_lose_the_end_of_its_execution),
        RUN(the_journal_is_empty_after_a_sandbox_ended_with_a_watched_execution),
        RUN(the_receipt_of_the_only_execution_is_completed_at_the_end_of_its_sandbox),
        RUN(a_stop_of_the_server_answers_a_pending_execution_once_and_leaves_the_program),
        RUN(a_row_that_is_refused_after_the_stop_of_the_server_is_not_answered_again),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
