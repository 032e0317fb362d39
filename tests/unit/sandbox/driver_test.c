/* The engine over a driver that has nothing in common with the jailer: it answers from a list. */
#include "fake.h"

#include "sandbox/drivers.h"
#include "sandbox/engine_internal.h"

struct plain_request {
    struct driver_request base;
    struct ev_defer defer;
    struct plain_link *link;
    void (*answer)(struct plain_request *r);
};

static struct plain_link {
    struct driver_link base;
    struct ev *ev;
    struct fake *fake;
    int created, destroyed, killed, stats;
    const char (*ids)[ID_SIZE]; /* of list */
    size_t nids;
    uint64_t cpu_ns; /* as stats reports it */
    uint32_t walls;
    struct sandbox_kind kind;
    bool is_closed; /* no answer follows */
} plain;

static void plain_answer(void *arg)
{
    struct plain_request *r = arg;

    driver_callback_begin();
    if (!r->link->is_closed)
        r->answer(r);
    driver_callback_end();
    free(r);
}

static struct plain_request *plain_request(struct driver_link *l, void (*answer)(struct plain_request *r), void *owner)
{
    struct plain_request *r = mem_new(struct plain_request);

    r->link = (struct plain_link *)l;
    r->answer = answer;
    r->base.owner = owner;
    ev_defer(r->link->ev, &r->defer, plain_answer, r);
    return r;
}

static void plain_answer_created(struct plain_request *r)
{
    struct driver_created c = { .walls = r->link->walls, .cgroup = "none", .pidfd = -1, .cpu_fd = -1, .oom_fd = -1 };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    c.control_fd = pair[0];
    r->link->fake->runtime = pair[1];
    r->link->created++;
    r->base.on.created(&r->base, &c, NULL);
    fd_close(&c.control_fd);
}

static struct driver_request *plain_create(struct driver_link *l, const char *id UNUSED,
                                           const struct sandbox_kind *kind, const struct sandbox_spec *spec UNUSED,
                                           driver_created_fn *fn, void *owner, struct err *err UNUSED)
{
    struct plain_request *r = plain_request(l, plain_answer_created, owner);

    plain.kind = *kind;
    r->base.on.created = fn;
    return &r->base;
}

static void plain_answer_stats(struct plain_request *r)
{
    const struct sandbox_handle_usage u = { .cpu_ns = 5, .oom_kills = 0 };

    r->link->destroyed++;
    if (r->base.on.stats)
        r->base.on.stats(&r->base, &u, NULL);
}

static void plain_answer_usage(struct plain_request *r)
{
    const struct sandbox_handle_usage u = { .cpu_ns = r->link->cpu_ns };

    if (r->base.on.stats)
        r->base.on.stats(&r->base, &u, NULL);
}

static struct driver_request *plain_stats(struct driver_link *l, const char *id UNUSED, driver_stats_fn *fn,
                                          void *owner)
{
    struct plain_request *r = plain_request(l, plain_answer_usage, owner);

    plain.stats++;
    r->base.on.stats = fn;
    return &r->base;
}

static struct driver_request *plain_destroy(struct driver_link *l, const char *id UNUSED, driver_stats_fn *fn,
                                            void *owner)
{
    struct plain_request *r = plain_request(l, plain_answer_stats, owner);

    r->base.on.stats = fn;
    return &r->base;
}

static void plain_answer_list(struct plain_request *r)
{
    r->base.on.list(&r->base, r->link->ids, r->link->nids, NULL);
}

static struct driver_request *plain_list(struct driver_link *l, const char *after UNUSED, driver_list_fn *fn,
                                         void *owner)
{
    struct plain_request *r = plain_request(l, plain_answer_list, owner);

    r->base.on.list = fn;
    return &r->base;
}

static void plain_forget(struct driver_link *l UNUSED, const void *owner UNUSED)
{
}

static void plain_close(struct driver_link *l)
{
    ((struct plain_link *)l)->is_closed = true;
}

static const struct driver_ops plain_ops = { .create = plain_create,
                                             .destroy = plain_destroy,
                                             .stats = plain_stats,
                                             .list = plain_list,
                                             .forget = plain_forget,
                                             .close = plain_close };

static void begin(struct fake *k)
{
    scene_engine(k);
    k->engine->links[DRIVER_NATIVE]->ops->close(k->engine->links[DRIVER_NATIVE]);
    plain = (struct plain_link){ .base = { .ops = &plain_ops, .denials_absent_why = "this driver does not count" },
                                 .ev = k->ev,
                                 .fake = k,
                                 .walls = ALL_OUTSIDE };
    for (unsigned i = 0; i < DRIVER_COUNT; i++)
        k->engine->links[i] = &plain.base;
}

static void make_ready(struct fake *k)
{
    struct sandbox_spec spec = plain_spec();
    struct rt_hello hello;

    scene_asked(k, &spec);
    assert_int_equal(plain.created, 0); /* the answer never comes inside the call */
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_takes(k, FRAME_CLAIM);
    runtime_hello(k, WIRE_VERSION, hello.epoch);
    runtime_claimed(k, ALL_INSIDE, 3);
    assert_int_equal(k->ready, 1);
}

TEST(a_sandbox_of_another_driver_runs_programs_and_is_destroyed)
{
    struct exec_spec spec = { .argv = true_argv };
    struct fake k;

    begin(&k);
    make_ready(&k);
    assert_int_equal(plain.kind.driver, DRIVER_NATIVE);
    scene_running_with(&k, &spec);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_string_equal(exec_handle_receipt(k.exec)->denials_why, "this driver does not count");
    assert_false(sandbox_handle_can_freeze(k.box)); /* no cgroup */
    sandbox_handle_destroy(k.box, on_done, &k);
    assert_int_equal(k.done, 0);
    turn(&k);
    assert_int_equal(k.done, 1);
    assert_int_equal(plain.destroyed, 1);
    assert_int_equal(sandbox_handle_cpu_ns(k.box), 5);
    scene_end(&k);
}

/* This driver has no file with the counter. */
TEST(cpu_time_is_the_last_sample_of_a_driver_that_has_to_be_asked)
{
    struct fake k;

    begin(&k);
    plain.cpu_ns = 7;
    make_ready(&k);
    turn(&k);
    struct cpu_sample first = sandbox_handle_cpu_sample(k.box);
    while (first.ns == SANDBOX_USAGE_UNKNOWN) { /* the answer never comes inside the call */
        turn(&k);
        first = sandbox_handle_cpu_sample(k.box);
    }
    assert_int_equal(first.ns, 7);
    assert_true(first.at != 0);
    int asked = plain.stats;
    plain.cpu_ns = 9;
    assert_int_equal(sandbox_handle_cpu_sample(k.box).ns, 7); /* young enough */
    assert_int_equal(plain.stats, asked);
    usleep(30000);
    turn(&k);
    assert_int_equal(sandbox_handle_cpu_sample(k.box).at, first.at); /* old, and a newer one is requested */
    assert_int_equal(plain.stats, asked + 1);
    turn(&k);
    struct cpu_sample second = sandbox_handle_cpu_sample(k.box);
    assert_int_equal(second.ns, 9);
    assert_true(second.at > first.at);
    sandbox_handle_destroy(k.box, on_done, &k);
    turn(&k);
    assert_int_equal(sandbox_handle_cpu_ns(k.box), 5);
    scene_end(&k);
}

TEST(a_driver_that_cannot_measure_is_asked_once)
{
    struct fake k;

    begin(&k);
    plain.cpu_ns = SANDBOX_USAGE_UNKNOWN;
    make_ready(&k);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sandbox_handle_cpu_ns(k.box), SANDBOX_USAGE_UNKNOWN);
        usleep(25000);
        turn(&k);
    }
    assert_int_equal(plain.stats, 1);
    sandbox_handle_destroy(k.box, on_done, &k);
    turn(&k);
    scene_end(&k);
}

TEST(a_driver_that_does_not_attest_a_wall_makes_no_sandbox)
{
    struct sandbox_spec spec = plain_spec();
    struct fake k;

    begin(&k);
    plain.walls = ALL_OUTSIDE & ~JAIL_WALL_SECCOMP;
    scene_asked(&k, &spec);
    turn(&k);
    turn(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_WALL_MISSING);
    assert_int_equal(plain.destroyed, 1);
    scene_end(&k);
}

TEST(a_link_that_is_lost_takes_no_sandbox)
{
    struct sandbox_spec spec = plain_spec();
    struct fake k;
    struct err err = { 0 };

    begin(&k);
    plain.base.lost = true;
    err_set(&plain.base.why, ERR_LOST, "the other side is gone");
    if (sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err) == 0)
        fail_msg("a lost link made a sandbox");
    assert_string_equal(err.msg, "the other side is gone");
    scene_end(&k);
}

/* --- two links: that of the jailer for native, the plain one for bwrap --- */

static void begin_two(struct fake *k)
{
    scene_engine(k);
    plain = (struct plain_link){ .base = { .ops = &plain_ops, .denials_absent_why = "this driver does not count" },
                                 .ev = k->ev,
                                 .fake = k,
                                 .walls = ALL_OUTSIDE };
    k->engine->links[DRIVER_BWRAP] = &plain.base;
}

static struct {
    char ids[4][ID_SIZE];
    size_t n;
    int answers;
    struct err err;
} listed;

static void on_listed(void *arg UNUSED, const char (*ids)[ID_SIZE], size_t n, const struct err *err)
{
    assert_true(n <= ARRAY_LEN(listed.ids));
    listed.answers++;
    listed.n = n;
    if (n)
        memcpy(listed.ids, ids, n * sizeof(*ids));
    listed.err = err ? *err : (struct err){ 0 };
}

#define ID_A "sbaaaaaaaaaaaaaaaaaaaa"
#define ID_B "sbbbbbbbbbbbbbbbbbbbbb"
#define ID_C "sbcccccccccccccccccccc"

static void jailer_lists_b(struct fake *k)
{
    static const struct jail_list m = { .n = 1, .ids = { ID_B } };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    jailer_takes(k, FRAME_J_LIST);
    int len = jail_list_encode(&m, out, NULL);
    assert_true(len > 0);
    put(k->jailer, FRAME_DONE, 0, got.f.stream, out, (size_t)len);
}

TEST(a_list_has_the_sandboxes_of_every_driver_in_order)
{
    static const char theirs[][ID_SIZE] = { ID_A, ID_C };
    struct fake k;

    begin_two(&k);
    plain.ids = theirs;
    plain.nids = 2;
    listed.answers = 0;
    engine_list_sandboxes(k.engine, NULL, on_listed, NULL);
    turn(&k);
    assert_int_equal(listed.answers, 0); /* the jailer has not answered */
    jailer_lists_b(&k);
    turn(&k);
    assert_int_equal(listed.answers, 1);
    assert_int_equal(listed.n, 3);
    assert_string_equal(listed.ids[0], ID_A);
    assert_string_equal(listed.ids[1], ID_B);
    assert_string_equal(listed.ids[2], ID_C);
    engine_list_sandboxes(k.engine, NULL, on_listed, NULL);
    scene_end(&k); /* an unanswered list is freed with the engine */
    assert_int_equal(listed.answers, 1);
}

TEST(an_unknown_sandbox_is_destroyed_by_the_driver_that_has_it)
{
    struct fake k;

    begin_two(&k);
    engine_destroy_sandbox(k.engine, ID_A);
    turn(&k);
    assert_int_equal(plain.destroyed, 1);
    jailer_takes(&k, FRAME_J_DESTROY);
    scene_end(&k);
}

TEST(a_sandbox_is_made_by_the_link_of_its_driver)
{
    struct sandbox_spec spec = plain_spec();
    struct fake k;

    begin_two(&k);
    spec.driver = DRIVER_BWRAP;
    scene_asked(&k, &spec);
    turn(&k);
    assert_int_equal(plain.created, 1);
    assert_int_equal(plain.kind.driver, DRIVER_BWRAP);
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(the_loss_of_either_link_is_reported_once_its_sandboxes_have_ended)
{
    struct sandbox_spec spec = plain_spec();
    struct fake k;

    begin_two(&k);
    spec.driver = DRIVER_BWRAP;
    scene_asked(&k, &spec);
    turn(&k);
    plain.base.lost = true;
    err_set(&plain.base.why, ERR_LOST, "the other side is gone");
    sandbox_handle_free(take_ptr(&k.box));
    turn(&k);
    assert_int_equal(k.lost, 1);
    assert_string_equal(k.err.msg, "the other side is gone");
    scene_end(&k);
}

/* Every row is usable: a capability that needs another has it, and optional operations exist. */
TEST(the_table_of_drivers_is_consistent)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        const struct driver_caps *c = drivers_caps((enum driver_id)i);
        const struct driver_ops *ops = drivers_ops((enum driver_id)i);

        assert_true(c->levels != 0 && ops->open && ops->close && ops->forget && ops->create && ops->destroy &&
                    ops->find_language);
        assert_true(ops->kill && ops->stats && ops->set_limits && ops->list);
        assert_true(ops->freeze && ops->thaw && ops->keep && ops->adopt);
        assert_true(!c->zygote || (c->fd_passing && ops->start_zygote && ops->stop_zygote && ops->join));
        assert_true(!c->denials || (ops->denials && ops->has_unread_denials));
        assert_true(!c->reset || c->prepare);
    }
    assert_true(drivers_caps(DRIVER_NATIVE)->zygote);
    assert_false(drivers_caps(DRIVER_BWRAP)->zygote);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_sandbox_of_another_driver_runs_programs_and_is_destroyed),
        RUN(cpu_time_is_the_last_sample_of_a_driver_that_has_to_be_asked),
        RUN(a_driver_that_cannot_measure_is_asked_once),
        RUN(a_driver_that_does_not_attest_a_wall_makes_no_sandbox),
        RUN(a_link_that_is_lost_takes_no_sandbox),
        RUN(a_list_has_the_sandboxes_of_every_driver_in_order),
        RUN(an_unknown_sandbox_is_destroyed_by_the_driver_that_has_it),
        RUN(a_sandbox_is_made_by_the_link_of_its_driver),
        RUN(the_loss_of_either_link_is_reported_once_its_sandboxes_have_ended),
        RUN(the_table_of_drivers_is_consistent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
