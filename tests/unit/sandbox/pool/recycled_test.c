/* A returned sandbox, with a scripted jailer, monitor and PID 1. */
#include "tests/unit/sandbox/fake.h"

#include "sandbox/pool/pools.h"

struct scene {
    struct fake k;
    struct pools *pools;
    struct pool_loan loan;
    int monitor;
};

static const struct pool_settings set = { .min = 1, .max = 2, .recycle = true };
static const struct jail_stats clean = { .pids = 1, .memory = 600 * KIB };
static const struct rt_reset nothing = { .files = 3 };

static struct pool_info info(const struct scene *s)
{
    struct pool_info ret;

    assert_true(pools_get(s->pools, "p", &ret));
    return ret;
}

static void put_pool(struct scene *s, const struct pool_settings *as)
{
    struct sandbox_spec spec = plain_spec();
    struct err err = { 0 };

    if (pools_put(s->pools, "p", &spec, as, &err) < 0)
        fail_msg("%s", err.msg);
}

static void news(struct scene *s, bool refused)
{
    struct jail_denial_notice m = { .watched = JAIL_WATCHED, .refused = refused };
    uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(m.id, s->k.id, sizeof(m.id));
    put(s->monitor, FRAME_J_DENIAL_NOTICE, 0, 0, out, (size_t)jail_denial_notice_encode(&m, out, NULL));
    turn(&s->k);
}

/* A member of the pool: J_CREATE was taken. */
static void made(struct scene *s)
{
    struct fake *k = &s->k;
    struct rt_hello hello;

    fd_close(&k->cpu);
    fd_close(&k->oom);
    jailer_created(k, ALL_OUTSIDE);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(k, WIRE_VERSION, hello.epoch);
}

static void lend(struct scene *s, const char *owner)
{
    struct sandbox_spec spec = plain_spec();
    struct err err = { 0 };

    s->k.ready = 0;
    s->k.box = pools_lend(s->pools, &spec, owner, &s->loan);
    assert_non_null(s->k.box);
    str_copy(s->k.id, sizeof(s->k.id), sandbox_handle_id(s->k.box));
    if (sandbox_handle_claim(s->k.box, &spec, &fake_box_ops, &s->k, &err) < 0)
        fail_msg("%s", err.msg);
    pools_claim_finished(s->pools, &spec, 1);
}

/* Ann has the only member, and the monitor has sent no notice yet. */
static void begin_unseen(struct scene *s)
{
    struct err err = { 0 };
    int pair[2];

    *s = (struct scene){ .monitor = -1 };
    scene_engine(&s->k);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s->monitor = pair[1];
    assert_int_equal(engine_set_monitor(s->k.engine, pair[0], &err), 0);
    s->pools = pools_new(s->k.ev);
    pools_set_engine(s->pools, s->k.engine);
    put_pool(s, &set);
    jailer_takes(&s->k, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
    jailer_takes(&s->k, FRAME_J_CREATE);
    made(s);
    lend(s, "ann");
    assert_int_equal(s->loan.uses, 0);
    runtime_takes(&s->k, FRAME_CLAIM);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    assert_int_equal(s->k.ready, 1);
}

static void begin(struct scene *s)
{
    begin_unseen(s);
    news(s, false);
}

static void end(struct scene *s)
{
    pools_free(s->pools);
    fd_close(&s->monitor);
    scene_end(&s->k);
}

static struct pool_return ended(const struct sandbox_spec *as)
{
    return (struct pool_return){
        .owner = "ann", .claimed_spec = as, .ended_by_itself = true, .usage = { .memory_peak = MIB }
    };
}

static bool give_back(struct scene *s)
{
    struct sandbox_spec spec = plain_spec();
    struct pool_return r = ended(&spec);
    bool taken = pools_return(s->pools, s->k.box, &s->loan, &r);

    if (taken)
        s->k.box = NULL;
    return taken;
}

/* Skips the frames that the pool itself causes in between. */
static void await(struct scene *s, int fd, uint8_t type)
{
    for (int i = 0; i < 3000; i++) {
        ev_turn(s->k.ev, 20);
        if (take_any(fd) && got.f.type == type)
            return;
    }
    fail_msg("no %s", frame_name(type));
}

static void reset_says(struct scene *s, const struct rt_reset *found)
{
    uint8_t out[64];

    await(s, s->k.runtime, FRAME_RESET);
    runtime_says(&s->k, FRAME_DONE, 0, got.f.stream, out, (size_t)rt_reset_encode(found, out, NULL));
}

static void kernel_says(struct scene *s, const struct jail_stats *st)
{
    await(s, s->k.jailer, FRAME_J_STATS);
    jailer_stats(&s->k, st);
}

static void monitor_says(struct scene *s, const struct jail_denied *m)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];

    await(s, s->monitor, FRAME_J_DENIALS);
    put(s->monitor, FRAME_J_DENIED, 0, got.f.stream, out, (size_t)jail_denied_encode(m, out, NULL));
    turn(&s->k);
}

static void nothing_was_refused(struct scene *s)
{
    static const struct jail_denied none = { .watched = JAIL_WATCHED };

    monitor_says(s, &none);
}

static void recycled(struct scene *s)
{
    assert_true(give_back(s));
    reset_says(s, &nothing);
    assert_int_equal(info(s).recycled, 0); /* the report of PID 1 is not enough */
    nothing_was_refused(s);
    kernel_says(s, &clean);
    assert_int_equal(info(s).recycled, 1);
    assert_int_equal(info(s).recycle_verdicts[RECYCLE_YES], 1);
}

static void destroyed(struct scene *s, enum recycle_verdict why)
{
    for (int i = 0; i < RECYCLE_COUNT; i++)
        assert_int_equal(info(s).recycle_verdicts[i], i == (int)why);
    assert_int_equal(info(s).recycled, 0);
    await(s, s->k.jailer, FRAME_J_DESTROY);
}

TEST(the_owner_gets_the_recycled_sandbox_and_its_use_count)
{
    struct scene s;
    char id[ID_SIZE];

    begin(&s);
    memcpy(id, s.k.id, sizeof(id));
    recycled(&s);
    lend(&s, "ann");
    assert_string_equal(s.k.id, id);
    assert_int_equal(s.loan.uses, 1);
    await(&s, s.k.runtime, FRAME_CLAIM);
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    assert_int_equal(s.k.ready, 1);
    assert_int_equal(info(&s).recycled_hits, 1);
    assert_int_equal(info(&s).recycled, 0);
    end(&s);
}

TEST(another_owner_never_gets_a_recycled_sandbox)
{
    struct sandbox_spec spec = plain_spec(), custom = spec;
    struct pool_loan loan;
    struct scene s;
    char id[ID_SIZE];

    begin(&s);
    memcpy(id, s.k.id, sizeof(id));
    recycled(&s);
    custom.level = LEVEL_CUSTOM;
    struct {
        const struct sandbox_spec *spec;
        const char *owner;
    } others[] = { { &spec, "bob" }, { &spec, "an" }, { &spec, "" }, { &custom, "ann" } };
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        struct sandbox_handle *b = pools_lend(s.pools, others[i].spec, others[i].owner, &loan);

        assert_true(!b || !str_eq(sandbox_handle_id(b), id));
        assert_int_equal(loan.uses, 0);
        sandbox_handle_free(b);
    }
    struct sandbox_handle *b = pools_take(s.pools, &spec, NULL);
    assert_true(!b || !str_eq(sandbox_handle_id(b), id));
    sandbox_handle_free(b);
    assert_int_equal(info(&s).recycled, 1);
    assert_int_equal(info(&s).recycled_hits, 0);
    end(&s);
}

TEST(a_lying_pid_1_is_detected_by_the_counters_of_the_kernel)
{
    static const struct {
        struct jail_stats st;
        enum recycle_verdict why;
    } truth[] = { { { .pids = 2, .memory = 600 * KIB }, RECYCLE_PROCESSES },
                  { { .pids = 1, .memory = RECYCLE_MEMORY_MAX + 1 }, RECYCLE_MEMORY },
                  { { .pids = 1, .memory = 1, .oom_kills = 1 }, RECYCLE_LIMIT },
                  { { .pids = 1, .memory = 1, .pids_refused = 1 }, RECYCLE_LIMIT },
                  { { .pids = JAIL_UNKNOWN, .memory = 1 }, RECYCLE_UNCOUNTED } };

    for (size_t i = 0; i < ARRAY_LEN(truth); i++) {
        struct scene s;

        begin(&s);
        assert_true(give_back(&s));
        reset_says(&s, &nothing);
        nothing_was_refused(&s);
        kernel_says(&s, &truth[i].st);
        destroyed(&s, truth[i].why);
        end(&s);
    }
}

TEST(every_finding_of_the_reset_destroys_the_sandbox)
{
    static const struct {
        struct rt_reset found;
        enum recycle_verdict why;
    } rows[] = { { { .processes = 1 }, RECYCLE_PROCESSES },
                 { { .sockets = 1 }, RECYCLE_SOCKETS },
                 { { .altered = 1 }, RECYCLE_ALTERED },
                 { { .full = 1 }, RECYCLE_LIMIT } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;

        begin(&s);
        assert_true(give_back(&s));
        reset_says(&s, &rows[i].found);
        nothing_was_refused(&s);
        kernel_says(&s, &clean);
        destroyed(&s, rows[i].why);
        end(&s);
    }
}

TEST(a_failed_reset_destroys_the_sandbox)
{
    for (int dies = 0; dies < 2; dies++) {
        struct scene s;

        begin(&s);
        assert_true(give_back(&s));
        await(&s, s.k.runtime, FRAME_RESET);
        if (dies)
            fd_close(&s.k.runtime);
        else
            runtime_error(&s.k, got.f.stream, ERR_BUSY, "a process is left");
        await(&s, s.k.jailer, FRAME_J_DESTROY);
        jailer_stats(&s.k, &no_oom);
        assert_int_equal(info(&s).recycle_verdicts[RECYCLE_RESET], 1);
        assert_int_equal(info(&s).recycled, 0);
        end(&s);
    }
}

TEST(frames_sent_before_the_reset_are_ignored)
{
    struct scene s;

    begin(&s);
    assert_true(give_back(&s));
    await(&s, s.k.runtime, FRAME_RESET);
    uint32_t stream = got.f.stream;
    runtime_says(&s.k, FRAME_DATA, RT_STDOUT, stream + 2, "late", 4);
    uint8_t out[64];
    runtime_says(&s.k, FRAME_DONE, 0, stream, out, (size_t)rt_reset_encode(&nothing, out, NULL));
    nothing_was_refused(&s);
    kernel_says(&s, &clean);
    assert_int_equal(info(&s).recycled, 1);
    /* A frame after the answer to RESET is a violation. */
    runtime_says(&s.k, FRAME_DATA, RT_STDOUT, stream + 2, "later", 5);
    await(&s, s.k.jailer, FRAME_J_DESTROY);
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(info(&s).recycled, 0);
    assert_int_equal(info(&s).lost, 1);
    end(&s);
}

TEST(a_refused_return_leaves_the_sandbox_to_its_owner)
{
    struct sandbox_spec spec = plain_spec(), other = spec;
    struct scene s;

    begin(&s);
    other.limits.v[LIMIT_PIDS]--;
    struct pool_return rows[] = { ended(&spec), ended(&spec), ended(&spec), ended(&spec), ended(&spec), ended(&other) };
    static const enum recycle_verdict why[] = { RECYCLE_STOPPED, RECYCLE_LIMIT, RECYCLE_LIMIT,
                                                RECYCLE_LIMIT,   RECYCLE_PEAK,  RECYCLE_NO_POOL };
    rows[0].ended_by_itself = false;
    rows[1].space_ran_out = true;
    rows[2].usage.oom_kills = 1;
    rows[3].usage.pids_refused = 1;
    rows[4].usage.memory_peak = spec.limits.v[LIMIT_MEMORY];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t before = info(&s).recycle_verdicts[why[i]];

        assert_false(pools_return(s.pools, s.k.box, &s.loan, &rows[i]));
        assert_int_equal(info(&s).recycle_verdicts[why[i]], before + 1);
    }
    news(&s, true);
    assert_false(give_back(&s));
    assert_int_equal(info(&s).recycle_verdicts[RECYCLE_REFUSED], 1);
    end(&s);
}

TEST(a_denial_during_the_reset_prevents_recycling)
{
    static const struct jail_denied one = { .watched = JAIL_WATCHED, .entries = { { .nr = 165, .count = 1 } }, .n = 1 };
    struct scene s;

    begin(&s);
    assert_true(give_back(&s));
    news(&s, true);
    reset_says(&s, &nothing);
    monitor_says(&s, &one);
    kernel_says(&s, &clean);
    destroyed(&s, RECYCLE_REFUSED);
    end(&s);
}

/* A notice for another sandbox may be in the socket, or the first notice for this one under way:
 * not a reason to give up the sandbox. */
TEST(the_monitor_is_asked_for_denials_even_without_a_notice)
{
    static const struct jail_denied none = { .watched = JAIL_WATCHED }, never = { .watched = JAIL_UNWATCHED };

    for (int watched = 0; watched < 2; watched++) {
        struct scene s;

        begin_unseen(&s);
        assert_true(give_back(&s));
        reset_says(&s, &nothing);
        monitor_says(&s, watched ? &none : &never);
        kernel_says(&s, &clean);
        if (watched)
            assert_int_equal(info(&s).recycled, 1);
        else
            destroyed(&s, RECYCLE_REFUSED);
        end(&s);
    }
}

TEST(without_a_monitor_nothing_is_recycled)
{
    struct scene s;

    begin(&s);
    fd_close(&s.monitor);
    turn(&s.k);
    assert_false(give_back(&s));
    assert_int_equal(info(&s).recycle_verdicts[RECYCLE_REFUSED], 1);
    end(&s);
}

TEST(a_pool_that_does_not_recycle_refuses_returns)
{
    static const struct pool_settings off = { .min = 1, .max = 2 };
    struct scene s;

    begin(&s);
    put_pool(&s, &off);
    assert_false(pools_accepts_return(s.pools, &s.loan));
    assert_false(give_back(&s));
    pools_remove(s.pools, "p");
    assert_false(pools_accepts_return(s.pools, &s.loan));
    assert_false(give_back(&s));
    end(&s);
}

/* As when its tenant is suspended. */
TEST(dropping_an_owner_destroys_its_recycled_sandboxes)
{
    struct scene s;

    begin(&s);
    recycled(&s);
    pools_drop_owner(s.pools, "bob");
    assert_int_equal(info(&s).recycled, 1);
    pools_drop_owner(s.pools, "ann");
    assert_int_equal(info(&s).recycled, 0);
    await(&s, s.k.jailer, FRAME_J_DESTROY);
    end(&s);
}

/* Its generation starts again at 1, and sandboxes lent by the previous pool do not belong to it. */
TEST(a_recreated_pool_refuses_sandboxes_of_the_previous_one)
{
    static const struct pool_settings on = { .version = 2, .min = 1, .max = 2, .recycle = true };
    struct scene s;

    begin(&s);
    pools_remove(s.pools, "p");
    put_pool(&s, &on);
    assert_false(give_back(&s));
    assert_int_equal(info(&s).recycle_verdicts[RECYCLE_NO_POOL], 1);
    end(&s);
}

TEST(a_pool_with_a_new_spec_evicts_its_recycled_sandboxes)
{
    struct sandbox_spec other = plain_spec();
    struct err err = { 0 };
    struct scene s;

    begin(&s);
    recycled(&s);
    other.limits.v[LIMIT_PIDS]--;
    assert_int_equal(pools_put(s.pools, "p", &other, &set, &err), 0);
    assert_int_equal(info(&s).recycled, 0);
    end(&s);
}

TEST(a_pool_that_stops_recycling_evicts_them_at_once)
{
    static const struct pool_settings off = { .min = 1, .max = 2 };
    struct sandbox_spec spec = plain_spec();
    struct pool_loan loan;
    struct scene s;

    begin(&s);
    recycled(&s);
    put_pool(&s, &off);
    assert_int_equal(info(&s).recycled, 0);
    sandbox_handle_free(pools_lend(s.pools, &spec, "ann", &loan));
    assert_int_equal(loan.uses, 0);
    end(&s);
}

TEST(recycled_sandboxes_expire_after_the_ttl_of_the_pool)
{
    static const struct pool_settings brief = { .min = 1, .max = 2, .recycle = true, .ttl_ms = 1 };
    struct scene s;

    begin(&s);
    recycled(&s);
    put_pool(&s, &brief);
    for (int i = 0; i < 3000 && info(&s).recycled; i++)
        ev_turn(s.k.ev, 20);
    assert_int_equal(info(&s).recycled, 0);
    assert_true(info(&s).expired >= 1);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_owner_gets_the_recycled_sandbox_and_its_use_count),
        RUN(another_owner_never_gets_a_recycled_sandbox),
        RUN(a_lying_pid_1_is_detected_by_the_counters_of_the_kernel),
        RUN(every_finding_of_the_reset_destroys_the_sandbox),
        RUN(a_failed_reset_destroys_the_sandbox),
        RUN(frames_sent_before_the_reset_are_ignored),
        RUN(a_refused_return_leaves_the_sandbox_to_its_owner),
        RUN(a_denial_during_the_reset_prevents_recycling),
        RUN(the_monitor_is_asked_for_denials_even_without_a_notice),
        RUN(without_a_monitor_nothing_is_recycled),
        RUN(a_pool_that_does_not_recycle_refuses_returns),
        RUN(dropping_an_owner_destroys_its_recycled_sandboxes),
        RUN(a_recreated_pool_refuses_sandboxes_of_the_previous_one),
        RUN(a_pool_with_a_new_spec_evicts_its_recycled_sandboxes),
        RUN(a_pool_that_stops_recycling_evicts_them_at_once),
        RUN(recycled_sandboxes_expire_after_the_ttl_of_the_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
