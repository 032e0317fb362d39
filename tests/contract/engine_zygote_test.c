/* The engine and zygotes: a member waits in a box until an execution takes it, and a receipt tells of it as of any
 * other. */
#include "world.h"

static struct buf said; /* by the kernel */

static void on_kernel(void *arg UNUSED, const void *data, size_t len)
{
    buf_add(&said, data, len);
}

static const struct exec_ops kernel_ops = { .on_started = on_started,
                                            .on_output = on_output,
                                            .on_exit = on_exit_,
                                            .on_failed = on_exec_failed,
                                            .on_kernel = on_kernel };
static const char *const python[] = { "python3", NULL };
static const struct exec_spec taken = { .argv = python, .kernel = true, .joined = true, .wall_ms = 60000 };

static struct box_spec joinable(void)
{
    struct box_spec spec = plain_spec();

    spec.joinable = true;
    return spec;
}

/* A box with a member of a Python zygote in it. */
static void begin_joined(struct world *w, const char *preload)
{
    struct box_spec box = joinable();
    struct err err = { 0 };

    world_kernels = open(getenv("COVE_KERNELS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world_kernels > 0);
    begin(w, &box, NULL);
    close(world_kernels);
    world_kernels = 0;
    assert_int_equal(engine_zygote(w->engine, &box, "python", preload, on_done, w, &err), 0);
    turn_until(w, &w->done, 60);
    assert_true(w->done_ok);
    turn_until(w, &w->ready, 30);
    w->done = 0;
    box_join(w->box, on_done, w);
    turn_until(w, &w->done, 30);
    assert_true(w->done_ok);
    assert_true(box_has_member(w->box));
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
    assert_int_equal(exec_kernel_write(w->exec, line, strlen(line)), strlen(line));
}

static void leave(struct world *w)
{
    buf_done(&said);
    w->done = 0;
    destroy(w);
    close_world(w);
}

TEST(a_member_that_waited_runs_cells_and_has_a_receipt)
{
    struct world w;
    struct err err = { 0 };

    begin_joined(&w, "json");
    assert_int_equal(box_exec(w.box, &taken, &kernel_ops, &w, &w.exec, &err), 0);
    assert_false(box_has_member(w.box));
    await(&w, "\"ready\"");
    execute(&w, "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"print('out'); 6 * 7\"}\n");
    await(&w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"42\"", 4));
    assert_string_equal(w.out.data, "out\n");
    execute(&w, "{\"op\":\"execute\",\"id\":\"b\",\"code\":\"import ctypes; ctypes.CDLL(None).mount(None, None, None, "
                "0, None)\"}\n");
    await(&w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"-1\"", 4));
    exec_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_KILLED);
    assert_int_equal(w.started, 1);
    leave(&w);
}

TEST(no_execution_takes_a_member_that_is_not_there)
{
    struct world w;
    struct err err = { 0 };

    begin_joined(&w, "");
    w.done = 0;
    box_join(w.box, on_done, &w); /* a second one */
    turn_until(&w, &w.done, 30);
    assert_false(w.done_ok);
    assert_int_equal(w.err.id, ERR_EXISTS);
    assert_int_equal(box_exec(w.box, &taken, &kernel_ops, &w, &w.exec, &err), 0);
    await(&w, "\"ready\"");
    struct exec *none;
    assert_int_equal(box_exec(w.box, &taken, &kernel_ops, &w, &none, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    exec_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    leave(&w);
}

/* Whatever waits in it, a sandbox that ends leaves nothing; a member that nobody took is no execution. */
TEST(a_box_that_goes_with_its_member_leaves_nothing)
{
    struct world w;

    begin_joined(&w, "");
    leave(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_member_that_waited_runs_cells_and_has_a_receipt, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(no_execution_takes_a_member_that_is_not_there, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_box_that_goes_with_its_member_leaves_nothing, make_state_dir,
                                        remove_state_dir),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("engine and zygotes", tests, NULL, NULL);
}
