/* The engine and zygotes: an interpreter waits in a sandbox until an execution takes it, and its
 * receipt is like any other. */
#include "world.h"

static struct buf said; /* sent by the language kernel */

static void on_kernel(void *arg UNUSED, const void *data, size_t len)
{
    buf_add(&said, data, len);
}

static const struct exec_handle_ops kernel_ops = { .on_started = on_started,
                                                   .on_output = on_output,
                                                   .on_exit = on_exit_,
                                                   .on_failed = on_exec_failed,
                                                   .on_language_kernel_data = on_kernel };
static const char *const python[] = { "python3", NULL };
static const struct exec_spec taken = {
    .argv = python, .is_language_kernel = true, .use_waiting_interpreter = true, .wall_ms = 60000
};

static struct sandbox_spec joinable(const struct zygote_spec *zygote)
{
    struct sandbox_spec spec = plain_spec();

    spec.zygote = zygote;
    return spec;
}

/* A sandbox with a waiting interpreter of a Python zygote. */
static void begin_joined(struct world *w, const char *preload)
{
    struct zygote_spec zygote = { "python", preload };
    struct sandbox_spec box = joinable(&zygote);
    struct err err = { 0 };

    world_kernels = open(getenv("COVE_KERNELS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world_kernels > 0);
    begin(w, &box, NULL);
    close(world_kernels);
    world_kernels = 0;
    assert_int_equal(engine_start_zygote(w->engine, &box, on_done, w, &err), 0);
    turn_until(w, &w->done, 60);
    assert_true(w->done_ok);
    turn_until(w, &w->ready, 30);
    w->done = 0;
    sandbox_handle_join_interpreter(w->box, on_done, w);
    turn_until(w, &w->done, 30);
    assert_true(w->done_ok);
    assert_true(sandbox_handle_has_interpreter(w->box));
}

static void await(struct world *w, const char *what)
{
    for (int i = 0; i < 600 && !(said.len && memmem(said.data, said.len, what, strlen(what))); i++)
        ev_turn(w->ev, 100);
    if (!said.len || !memmem(said.data, said.len, what, strlen(what)))
        fail_msg("no %s in: %.*s", what, (int)said.len, said.len ? said.data : "");
}

static void execute(struct world *w, const char *line)
{
    buf_clear(&said);
    assert_int_equal(exec_handle_write_language_kernel(w->exec, line, strlen(line)), strlen(line));
}

static void leave(struct world *w)
{
    buf_done(&said);
    w->done = 0;
    destroy(w);
    close_world(w);
}

TEST(a_waiting_interpreter_runs_cells_and_has_a_receipt)
{
    struct world w;
    struct err err = { 0 };

    begin_joined(&w, "json");
    assert_int_equal(sandbox_handle_exec(w.box, &taken, &kernel_ops, &w, &w.exec, &err), 0);
    assert_false(sandbox_handle_has_interpreter(w.box));
    await(&w, "\"ready\"");
    execute(&w, "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"print('out'); 6 * 7\"}\n");
    await(&w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"42\"", 4));
    assert_string_equal(w.out.data, "out\n");
    execute(&w, "{\"op\":\"execute\",\"id\":\"b\",\"code\":\"import ctypes; ctypes.CDLL(None).mount(None, None, None, "
                "0, None)\"}\n");
    await(&w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"-1\"", 4));
    exec_handle_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_KILLED);
    assert_int_equal(w.started, 1);
    leave(&w);
}

TEST(only_one_interpreter_waits_and_only_one_execution_takes_it)
{
    struct world w;
    struct err err = { 0 };

    begin_joined(&w, "");
    w.done = 0;
    sandbox_handle_join_interpreter(w.box, on_done, &w); /* a second one */
    turn_until(&w, &w.done, 30);
    assert_false(w.done_ok);
    assert_int_equal(w.err.id, ERR_EXISTS);
    assert_int_equal(sandbox_handle_exec(w.box, &taken, &kernel_ops, &w, &w.exec, &err), 0);
    await(&w, "\"ready\"");
    struct exec_handle *none;
    assert_int_equal(sandbox_handle_exec(w.box, &taken, &kernel_ops, &w, &none, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    exec_handle_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    leave(&w);
}

static const struct sandbox_spec *bare(const struct zygote_spec *zygote)
{
    static struct sandbox_spec spec;

    spec = joinable(zygote);
    return &spec;
}

static void begin_kernels(struct world *w)
{
    world_kernels = open(getenv("COVE_KERNELS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world_kernels > 0);
    open_world(w);
    close(world_kernels);
    world_kernels = 0;
}

static void zygote_of(struct world *w, const struct zygote_spec *zygote)
{
    struct err err = { 0 };

    w->done = 0;
    assert_int_equal(engine_start_zygote(w->engine, bare(zygote), on_done, w, &err), 0);
    turn_until(w, &w->done, 60);
    assert_true(w->done_ok);
}

static void prepare_joined(struct world *w, const struct zygote_spec *zygote)
{
    struct err err = { 0 };

    w->ready = 0;
    assert_int_equal(sandbox_handle_prepare(w->engine, bare(zygote), &box_ops, w, &w->box, &err), 0);
    turn_until(w, &w->ready, 30);
    w->done = 0;
    sandbox_handle_join_interpreter(w->box, on_done, w);
    turn_until(w, &w->done, 30);
    if (!w->done_ok)
        fail_msg("join: %s", w->err.msg);
}

static void claim_and_run(struct world *w, const struct zygote_spec *zygote)
{
    struct err err = { 0 };

    w->ready = 0;
    assert_int_equal(sandbox_handle_claim(w->box, bare(zygote), &box_ops, w, &err), 0);
    turn_until(w, &w->ready, 30);
    assert_true(sandbox_handle_has_interpreter(w->box));
    assert_int_equal(sandbox_handle_exec(w->box, &taken, &kernel_ops, w, &w->exec, &err), 0);
    await(w, "\"ready\"");
}

/* Each kind of sandbox has its own zygote: modules loaded by one are not loaded by the other. */
TEST(a_prepared_sandbox_is_claimed_with_an_interpreter_of_its_kind)
{
    static const struct zygote_spec with = { "python", "colorsys" }, without = { "python", "" };
    static const char ask_for[] = "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"import sys; 'colorsys' in "
                                  "sys.modules\"}\n";
    struct world w;

    begin_kernels(&w);
    zygote_of(&w, &with);
    zygote_of(&w, &without);
    for (int i = 0; i < 2; i++) {
        prepare_joined(&w, i ? &without : &with);
        claim_and_run(&w, i ? &without : &with);
        execute(&w, ask_for);
        await(&w, "\"finished\"");
        assert_non_null(memmem(said.data, said.len, i ? "\"False\"" : "\"True\"", i ? 7 : 6));
        exec_handle_free(w.exec);
        w.exec = NULL;
        w.done = 0;
        destroy(&w);
        sandbox_handle_free(w.box);
        w.box = NULL;
        buf_clear(&said);
    }
    buf_done(&said);
    close_world(&w);
}

TEST(a_prepared_sandbox_is_refused_for_a_different_spec)
{
    static const struct zygote_spec mine = { "python", "" }, other = { "python", "json" };
    struct sandbox_spec wants = joinable(&other);
    struct world w;
    struct err err = { 0 };

    begin_kernels(&w);
    zygote_of(&w, &mine);
    prepare_joined(&w, &mine);
    assert_int_equal(sandbox_handle_claim(w.box, &wants, &box_ops, &w, &err), -1);
    assert_int_equal(err.id, ERR_BUG);
    wants.zygote = &mine;
    wants.limits.v[LIMIT_PIDS]++;
    assert_int_equal(sandbox_handle_claim(w.box, &wants, &box_ops, &w, &err), -1);
    claim_and_run(&w, &mine); /* it is unchanged */
    assert_int_equal(sandbox_handle_claim(w.box, bare(&mine), &box_ops, &w, &err), -1);
    assert_int_equal(err.id, ERR_LOST);
    exec_handle_free(w.exec);
    w.exec = NULL;
    leave(&w);
}

TEST(a_prepared_sandbox_has_the_limits_of_its_claim)
{
    static const char *const hungry[] = { "/usr/bin/python3", "-c", "print(len(b'x' * (450 << 20)))", NULL };
    struct exec_spec eats = { .argv = hungry, .wall_ms = 60000 };
    struct sandbox_spec wants = plain_spec();
    struct world w;
    struct err err = { 0 };

    begin_kernels(&w);
    for (int i = 0; i < 2; i++) { /* less than it was prepared with, and then more */
        struct sandbox_spec like = plain_spec();

        like.limits.v[LIMIT_MEMORY] = (i ? 400 : 600) * MIB;
        wants.limits.v[LIMIT_MEMORY] = (i ? 600 : 400) * MIB;
        wants.limits.v[LIMIT_PIDS] = 20;
        w.ready = w.exited = w.done = 0;
        assert_int_equal(sandbox_handle_prepare(w.engine, &like, &box_ops, &w, &w.box, &err), 0);
        turn_until(&w, &w.ready, 30);
        w.ready = 0;
        assert_int_equal(sandbox_handle_claim(w.box, &wants, &box_ops, &w, &err), 0);
        turn_until(&w, &w.ready, 30);
        assert_int_equal(sandbox_handle_exec(w.box, &eats, &exec_ops, &w, &w.exec, &err), 0);
        turn_until(&w, &w.exited, 90);
        const struct receipt *r = exec_handle_receipt(w.exec);
        assert_int_equal(r->ended_by, i ? ENDED_EXIT : ENDED_MEMORY);
        assert_int_equal(r->limits.v[LIMIT_MEMORY], wants.limits.v[LIMIT_MEMORY]);
        assert_int_equal(r->limits.v[LIMIT_PIDS], 20);
        exec_handle_free(w.exec);
        w.exec = NULL;
        destroy(&w);
        sandbox_handle_free(w.box);
        w.box = NULL;
        buf_clear(&w.out);
    }
    close_world(&w);
}

/* The interpreter is still being forked when the sandbox is claimed: the new owner is notified, not
 * the previous one. */
TEST(a_pending_join_ends_with_its_sandbox)
{
    static const struct zygote_spec mine = { "python", "" };
    struct world w, unheard = { 0 };
    struct err err = { 0 };

    begin_kernels(&w);
    zygote_of(&w, &mine);
    assert_int_equal(sandbox_handle_prepare(w.engine, bare(&mine), &box_ops, &w, &w.box, &err), 0);
    turn_until(&w, &w.ready, 30);
    sandbox_handle_join_interpreter(w.box, on_done, &unheard);
    w.ready = w.done = 0;
    assert_int_equal(sandbox_handle_claim(w.box, bare(&mine), &box_ops, &w, &err), 0);
    sandbox_handle_join_interpreter(w.box, on_done, &w);
    turn_until(&w, &w.done, 30);
    assert_true(w.done_ok);
    assert_int_equal(unheard.done, 0);
    turn_until(&w, &w.ready, 30);
    leave(&w);
}

/* argv is only used if the language kernel has to be started. */
static const struct exec_spec wanted = { .argv = (const char *const[]){ "/usr/bin/python3", "-I",
                                                                        "/.cove/kernels/python/kernel.py", NULL },
                                         .is_language_kernel = true,
                                         .prefer_interpreter = true,
                                         .wall_ms = 60000 };

static void run_wanted(struct world *w, bool preloaded)
{
    struct err err = { 0 };

    buf_clear(&said);
    assert_int_equal(sandbox_handle_exec(w->box, &wanted, &kernel_ops, w, &w->exec, &err), 0);
    await(w, "\"ready\"");
    execute(w, "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"import sys; 'colorsys' in sys.modules\"}\n");
    await(w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, preloaded ? "\"True\"" : "\"False\"", preloaded ? 6 : 7));
    exec_handle_free(take_ptr(&w->exec));
}

TEST(an_interpreter_is_forked_on_request_or_started_without_a_zygote)
{
    static const struct zygote_spec zygote = { "python", "colorsys" };
    struct sandbox_spec spec = joinable(&zygote);
    struct world w;
    struct err err = { 0 };

    begin_kernels(&w);
    assert_int_equal(sandbox_handle_new(w.engine, &spec, &box_ops, &w, &w.box, &err), 0);
    turn_until(&w, &w.ready, 30);
    run_wanted(&w, false); /* there is no zygote */
    zygote_of(&w, &zygote);
    run_wanted(&w, true);
    run_wanted(&w, true); /* the next one, in the same sandbox */
    leave(&w);
}

TEST(a_cancelled_execution_gets_no_callback_for_a_pending_interpreter)
{
    static const struct zygote_spec zygote = { "python", "" };
    struct sandbox_spec spec = joinable(&zygote);
    struct world w;
    struct err err = { 0 };

    begin_kernels(&w);
    zygote_of(&w, &zygote);
    assert_int_equal(sandbox_handle_new(w.engine, &spec, &box_ops, &w, &w.box, &err), 0);
    turn_until(&w, &w.ready, 30);
    assert_int_equal(sandbox_handle_exec(w.box, &wanted, &kernel_ops, &w, &w.exec, &err), 0);
    exec_handle_free(take_ptr(&w.exec));
    w.done = 0;
    /* It arrives, and waits for another execution. */
    for (int i = 0; i < 600 && !sandbox_handle_has_interpreter(w.box); i++)
        ev_turn(w.ev, 100);
    assert_true(sandbox_handle_has_interpreter(w.box));
    assert_int_equal(w.exited + w.exec_failed, 0);
    leave(&w);
}

/* A sandbox that ends leaves nothing, whatever waits in it; an interpreter that was not taken is
 * not an execution. */
TEST(a_sandbox_that_ends_with_its_interpreter_leaves_nothing)
{
    struct world w;

    begin_joined(&w, "");
    leave(&w);
}

/* Whether forked from a zygote or from an interpreter: PID 1 is its parent, so it sees its end and
 * reads its output. */
TEST(an_interpreter_can_be_forked_and_the_fork_outlives_it)
{
    static const char cell[] = "{\"op\":\"execute\",\"id\":\"b\",\"code\":\"print('forked'); x + 1\"}\n";
    struct world w;
    struct err err = { 0 };
    struct exec_handle *copy = NULL;

    begin_joined(&w, "json");
    assert_int_equal(sandbox_handle_exec(w.box, &taken, &kernel_ops, &w, &w.exec, &err), 0);
    await(&w, "\"ready\"");
    execute(&w, "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"x = 41\"}\n");
    await(&w, "\"finished\"");
    buf_clear(&said);
    struct exec_spec forked = { .argv = python, .is_language_kernel = true, .fork_of = w.exec };
    assert_int_equal(sandbox_handle_exec(w.box, &forked, &kernel_ops, &w, &copy, &err), 0);
    await(&w, "\"ready\"");
    exec_handle_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_KILLED);
    buf_clear(&said);
    assert_int_equal(exec_handle_write_language_kernel(copy, cell, strlen(cell)), strlen(cell));
    await(&w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"42\"", 4));
    assert_string_equal(w.out.data, "forked\n");
    exec_handle_free(copy);
    leave(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_waiting_interpreter_runs_cells_and_has_a_receipt, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(only_one_interpreter_waits_and_only_one_execution_takes_it, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_prepared_sandbox_is_claimed_with_an_interpreter_of_its_kind, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_prepared_sandbox_is_refused_for_a_different_spec, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_prepared_sandbox_has_the_limits_of_its_claim, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_pending_join_ends_with_its_sandbox, make_state_dir, remove_state_dir),
        cmocka_unit_test_setup_teardown(an_interpreter_is_forked_on_request_or_started_without_a_zygote, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_cancelled_execution_gets_no_callback_for_a_pending_interpreter,
                                        make_state_dir, remove_state_dir),
        cmocka_unit_test_setup_teardown(an_interpreter_can_be_forked_and_the_fork_outlives_it, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_sandbox_that_ends_with_its_interpreter_leaves_nothing, make_state_dir,
                                        remove_state_dir),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("engine and zygotes", tests, NULL, NULL);
}
