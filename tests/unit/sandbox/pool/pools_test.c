#include "tests/unit/sandbox/fake.h"

#include "sandbox/pool/pool_internal.h"

#define MEMBERS 4

struct scene {
    struct fake k;
    struct pools *pools;
    uint32_t stream[MEMBERS]; /* of J_CREATE */
    int runtime[MEMBERS];
};

static void begin(struct scene *s)
{
    *s = (struct scene){ 0 };
    scene_engine(&s->k);
    s->pools = pools_new(s->k.ev);
    pools_set_engine(s->pools, s->k.engine);
    for (size_t i = 0; i < MEMBERS; i++)
        s->runtime[i] = -1;
}

static void end(struct scene *s)
{
    pools_free(s->pools);
    for (size_t i = 0; i < MEMBERS; i++)
        fd_close(&s->runtime[i]);
    scene_end(&s->k);
}

static void take_template(struct scene *s)
{
    jailer_takes(&s->k, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
}

static void asked_to_make(struct scene *s, size_t i)
{
    jailer_takes(&s->k, FRAME_J_CREATE);
    s->stream[i] = got.f.stream;
}

static void made_by(uint32_t features, struct scene *s, size_t i, uint32_t walls)
{
    struct fake *k = &s->k;
    struct rt_hello hello;
    uint8_t out[64];

    fd_close(&k->cpu);
    fd_close(&k->oom);
    got.f.stream = s->stream[i];
    jailer_created(k, walls);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    hello.features = features;
    runtime_says(k, FRAME_HELLO, 0, 0, out, (size_t)rt_hello_encode(&hello, out, NULL));
    s->runtime[i] = take_fd(&k->runtime);
}

static void made(struct scene *s, size_t i, uint32_t walls)
{
    made_by(0, s, i, walls);
}

static struct pool_info info(const struct scene *s, const char *name)
{
    struct pool_info ret;

    assert_true(pools_get(s->pools, name, &ret));
    return ret;
}

static const struct pool_settings two = { .min = 2, .max = 2 };

static void put_pool(struct scene *s, const struct sandbox_spec *like, const struct pool_settings *set)
{
    struct err err = { 0 };

    if (pools_put(s->pools, "p", like, set, &err) < 0)
        fail_msg("%s", err.msg);
}

/* A pool with two waiting members. */
static void begin_two(struct scene *s)
{
    struct sandbox_spec spec = plain_spec();

    begin(s);
    put_pool(s, &spec, &two);
    take_template(s);
    asked_to_make(s, 0);
    asked_to_make(s, 1);
    made(s, 0, ALL_OUTSIDE);
    made(s, 1, ALL_OUTSIDE);
    assert_int_equal(info(s, "p").size, 2);
    silent(&s->k, s->k.jailer);
}

static void claim(struct scene *s, const struct sandbox_spec *spec)
{
    struct err err = { 0 };

    s->k.box = pools_take(s->pools, spec, NULL);
    assert_non_null(s->k.box);
    if (sandbox_handle_claim(s->k.box, spec, &fake_box_ops, &s->k, &err) < 0)
        fail_msg("%s", err.msg);
}

static void claimed(struct scene *s, size_t i)
{
    take(s->runtime[i], FRAME_CLAIM);
    s->k.runtime = take_fd(&s->runtime[i]);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    assert_int_equal(s->k.ready, 1);
}

/* Runs the loop until there is a frame of this type; other frames in between are skipped. */
static void await(struct scene *s, uint8_t type)
{
    uint64_t until = now_ms() + 60000;

    while (now_ms() < until) {
        ev_turn(s->k.ev, 20);
        if (take_any(s->k.jailer) && got.f.type == type)
            return;
    }
    fail_msg("no %s", frame_name(type));
}

/* --- the auto pool --- */

TEST(one_request_without_a_pool_creates_nothing)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    assert_null(pools_take(s.pools, &spec, NULL));
    pools_claim_finished(s.pools, &spec, 1);
    silent(&s.k, s.k.jailer);
    end(&s);
}

static void begin_ahead(struct scene *s)
{
    struct sandbox_spec spec = plain_spec();

    begin(s);
    for (int i = 0; i < 2; i++)
        assert_null(pools_take(s->pools, &spec, NULL));
    pools_claim_finished(s->pools, &spec, 1);
    pools_claim_finished(s->pools, &spec, 1);
    take_template(s);
    asked_to_make(s, 0);
    silent(&s->k, s->k.jailer);
}

TEST(two_requests_for_a_spec_without_a_pool_fill_the_auto_pool)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_ahead(&s);
    made(&s, 0, ALL_OUTSIDE);
    claim(&s, &spec);
    claimed(&s, 0);
    pools_claim_finished(s.pools, &spec, 1);
    asked_to_make(&s, 1); /* the next one */
    assert_int_equal(info(&s, "").hits, 1);
    end(&s);
}

TEST(the_auto_pool_changes_its_spec_after_two_requests)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_ahead(&s);
    made(&s, 0, ALL_OUTSIDE);
    spec.limits.v[LIMIT_MEMORY] -= 4096;
    assert_null(pools_take(s.pools, &spec, NULL));
    pools_claim_finished(s.pools, &spec, 1);
    silent(&s.k, s.k.jailer);
    assert_null(pools_take(s.pools, &spec, NULL));
    pools_claim_finished(s.pools, &spec, 1);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    asked_to_make(&s, 1);
    end(&s);
}

/* --- claims --- */

TEST(a_member_has_no_owner_until_it_is_claimed)
{
    static const char *const env[] = { "WHOSE=mine", NULL };
    struct sandbox_spec spec = plain_spec();
    auto_free void *strings = NULL;
    struct rt_claim m;
    bool found = false;
    struct scene s;

    begin_two(&s);
    silent(&s.k, s.runtime[0]);
    spec.env = env;
    claim(&s, &spec);
    turn(&s.k);
    take(s.runtime[0], FRAME_CLAIM); /* the oldest */
    assert_int_equal(rt_claim_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.id, sandbox_handle_id(s.k.box));
    for (const char *const *e = m.env; *e; e++)
        found = found || strcmp(*e, env[0]) == 0;
    assert_true(found);
    end(&s);
}

/* The execution is sent before the sandbox answered CLAIMED. */
static void run_behind(struct scene *s)
{
    struct exec_spec exec = { .argv = true_argv };
    struct sandbox_spec spec = plain_spec();
    auto_free void *strings = NULL;
    struct rt_claim m;

    begin_two(s);
    claim(s, &spec);
    assert_true(sandbox_handle_accepts_exec(s->k.box));
    scene_exec(&s->k, &exec);
    turn(&s->k);
    s->k.runtime = take_fd(&s->runtime[0]);
    take(s->k.runtime, FRAME_CLAIM);
    assert_int_equal(rt_claim_decode(&got.f, &m, &strings, NULL), 0);
    /* The runtime refuses the claim and all frames after it if a wall is missing. */
    assert_int_equal(m.walls, ALL_INSIDE);
    take(s->k.runtime, FRAME_EXEC);
    s->k.stream = got.f.stream;
}

TEST(a_member_with_listeners_gets_the_rules_of_its_claim)
{
    struct sandbox_spec like = plain_spec(), want = plain_spec(), none = plain_spec();
    struct jail_template template;
    struct egress_bind m;
    struct err err = { 0 };
    void *strings;
    struct scene s;
    int proxy[2];

    like.network = (struct network_policy){ .mode = NETWORK_EGRESS, .rules = "allow pypi.org" };
    want.network = (struct network_policy){ .mode = NETWORK_EGRESS, .rules = "allow example.org" };
    begin(&s);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, proxy), 0);
    assert_int_equal(engine_set_egress(s.k.engine, proxy[0], &err), 0);
    put_pool(&s, &like, &two);
    jailer_takes(&s.k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &template, NULL), 0);
    assert_int_equal(template.egress, 1);
    jailer_ok(&s.k);
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    made(&s, 0, ALL_OUTSIDE);
    made(&s, 1, ALL_OUTSIDE);
    silent(&s.k, proxy[1]); /* an unclaimed member has no rules */
    assert_null(pools_take(s.pools, &none, NULL));
    claim(&s, &want);
    turn(&s.k);
    take(proxy[1], FRAME_E_BIND);
    assert_int_equal(egress_bind_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.rules, "allow example.org");
    free(strings);
    put(proxy[1], FRAME_E_BOUND, 0, got.f.stream, NULL, 0);
    turn(&s.k);
    claimed(&s, 0);
    close(proxy[1]);
    end(&s);
}

TEST(an_execution_may_follow_the_claim_without_waiting)
{
    struct scene s;

    run_behind(&s);
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    assert_int_equal(s.k.ready, 1);
    runtime_started(&s.k);
    runtime_exit(&s.k, 0, 0);
    assert_int_equal(s.k.exited, 1);
    assert_int_equal(exec_handle_receipt(s.k.exec)->inside_walls, ALL_INSIDE);
    end(&s);
}

TEST(a_refused_claim_fails_the_execution_that_followed_it)
{
    struct scene s;

    run_behind(&s);
    runtime_error(&s.k, 0, ERR_WALL_MISSING, "of the walls 1 is missing");
    await(&s, FRAME_J_DESTROY);
    jailer_error(&s.k, ERR_MISSING, "it is gone");
    assert_int_equal(s.k.exec_failed, 1);
    assert_int_equal(s.k.failed, 1);
    assert_int_equal(s.k.ready + s.k.started + s.k.exited, 0);
    assert_int_equal(s.k.err.id, ERR_WALL_MISSING);
    end(&s);
}

TEST(no_execution_is_sent_while_limits_are_being_set)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    spec.limits.v[LIMIT_MEMORY] += MIB;
    claim(&s, &spec);
    assert_false(sandbox_handle_accepts_exec(s.k.box));
    end(&s);
}

TEST(a_member_can_be_taken_while_it_is_being_created)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_ahead(&s);
    claim(&s, &spec);
    made(&s, 0, ALL_OUTSIDE);
    claimed(&s, 0);
    assert_int_equal(info(&s, "").cold, 1);
    assert_int_equal(info(&s, "").hits, 0);
    end(&s);
}

TEST(a_spec_that_differs_for_the_jailer_is_a_miss)
{
    static const struct sandbox_mount mount = { .kind = SANDBOX_MOUNT_BIND_RO, .fd = 0, .dst = "/mnt/x" };
    static const struct zygote_spec zygote = { "python", "" };
    struct sandbox_spec specs[7];
    struct scene s;

    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        specs[i] = plain_spec();
    specs[0].limits.v[LIMIT_PIDS]++; /* a lower limit would be possible */
    specs[1].hostname = "elsewhere";
    specs[2].mounts = &mount;
    specs[2].nmounts = 1;
    specs[3].grants = GRANT_BIT(DEBUG);
    specs[4].zygote = &zygote;
    specs[5].level = LEVEL_CUSTOM; /* with the same walls */
    specs[6].driver = DRIVER_BWRAP;
    begin_two(&s);
    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        if (pools_take(s.pools, &specs[i], NULL))
            fail_msg("spec %zu was given a member of another spec", i);
    assert_int_equal(info(&s, "p").claims, 0);
    end(&s);
}

TEST(a_member_has_the_level_of_its_pool)
{
    struct sandbox_spec custom = plain_spec(), standard = plain_spec();
    struct err err = { 0 };
    struct scene s;

    custom.level = LEVEL_CUSTOM;
    begin(&s);
    put_pool(&s, &custom, &two);
    take_template(&s);
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    made(&s, 0, ALL_OUTSIDE);
    made(&s, 1, ALL_OUTSIDE);
    assert_null(pools_take(s.pools, &standard, NULL));
    standard.limits.v[LIMIT_PIDS]--; /* a claim may set it */
    assert_null(pools_take(s.pools, &standard, NULL));
    s.k.box = pools_take(s.pools, &custom, NULL);
    assert_non_null(s.k.box);
    assert_int_equal(sandbox_handle_claim(s.k.box, &standard, &fake_box_ops, &s.k, &err), -1);
    assert_int_equal(err.id, ERR_BUG);
    if (sandbox_handle_claim(s.k.box, &custom, &fake_box_ops, &s.k, &err) < 0)
        fail_msg("%s", err.msg);
    put_pool(&s, &standard, &two); /* another level is another spec */
    assert_int_equal(info(&s, "p").generation, 2);
    end(&s);
}

TEST(a_member_has_the_driver_of_its_pool)
{
    struct sandbox_spec bwrap = plain_spec(), native = plain_spec();
    struct scene s;

    bwrap.driver = DRIVER_BWRAP;
    begin(&s);
    put_pool(&s, &bwrap, &two);
    take_template(&s);
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    made(&s, 0, ALL_OUTSIDE);
    made(&s, 1, ALL_OUTSIDE);
    assert_null(pools_take(s.pools, &native, NULL));
    s.k.box = pools_take(s.pools, &bwrap, NULL);
    assert_non_null(s.k.box);
    end(&s);
}

TEST(limits_of_the_engine_come_with_the_claim)
{
    struct sandbox_spec spec = plain_spec();
    struct jail_set_limits m;
    struct scene s;

    begin_two(&s);
    spec.level = LEVEL_STANDARD;
    spec.limits.v[LIMIT_WALL] = 1234;
    spec.limits.v[LIMIT_LIFETIME] = 60000;
    claim(&s, &spec);
    turn(&s.k);
    claimed(&s, 0);
    jailer_takes(&s.k, FRAME_J_SET_LIMITS); /* the jailer enforces the lifetime while no server runs */
    assert_int_equal(jail_set_limits_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.lifetime_ms, 60000);
    end(&s);
}

TEST(limits_of_memory_cpu_and_processes_are_set_before_the_claim)
{
    struct sandbox_spec spec = plain_spec();
    struct jail_set_limits m;
    struct scene s;

    begin_two(&s);
    spec.limits.v[LIMIT_MEMORY] += MIB;
    spec.limits.v[LIMIT_CPU] = 250;
    spec.limits.v[LIMIT_PIDS] -= 1;
    claim(&s, &spec);
    jailer_takes(&s.k, FRAME_J_SET_LIMITS);
    assert_int_equal(jail_set_limits_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.memory, spec.limits.v[LIMIT_MEMORY]);
    assert_int_equal(m.swap, spec.limits.v[LIMIT_SWAP]);
    assert_int_equal(m.cpu, 250);
    assert_int_equal(m.pids, spec.limits.v[LIMIT_PIDS]);
    silent(&s.k, s.runtime[0]); /* no part of the claim reaches it before */
    jailer_ok(&s.k);
    claimed(&s, 0);
    assert_int_equal(info(&s, "p").hits, 1);
    end(&s);
}

TEST(a_claim_fails_when_its_limits_cannot_be_set)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    spec.limits.v[LIMIT_MEMORY] += MIB;
    claim(&s, &spec);
    jailer_takes(&s.k, FRAME_J_SET_LIMITS);
    silent(&s.k, s.runtime[0]);
    jailer_error(&s.k, ERR_NO_CGROUP, "memory limit");
    await(&s, FRAME_J_DESTROY); /* the next member may be requested before */
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(s.k.failed, 1);
    end(&s);
}

TEST(a_member_with_a_missing_wall_fails_its_claim)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_ahead(&s);
    made(&s, 0, ALL_OUTSIDE & ~JAIL_WALL_SECCOMP);
    claim(&s, &spec);
    assert_int_equal(s.k.failed, 0);
    jailer_removes(&s.k);
    assert_int_equal(s.k.failed, 1);
    assert_int_equal(s.k.err.id, ERR_WALL_MISSING);
    end(&s);
}

TEST(a_dead_member_is_not_given_out_and_is_replaced)
{
    struct scene s;

    begin_two(&s);
    fd_close(&s.runtime[0]);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(info(&s, "p").lost, 1);
    assert_int_equal(info(&s, "p").size, 1);
    asked_to_make(&s, 2);
    end(&s);
}

TEST(a_member_that_sends_claimed_unasked_is_ended)
{
    struct scene s;

    begin_two(&s);
    s.k.runtime = take_fd(&s.runtime[0]);
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    end(&s);
}

/* --- refill and eviction --- */

TEST(two_members_are_created_at_a_time)
{
    static const struct pool_settings four = { .min = 4, .max = 4 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &four);
    take_template(&s);
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    silent(&s.k, s.k.jailer);
    made(&s, 0, ALL_OUTSIDE);
    asked_to_make(&s, 2);
    silent(&s.k, s.k.jailer);
    end(&s);
}

TEST(a_large_idle_pool_is_filled_faster)
{
    static const struct pool_settings many = { .min = 300, .max = 300 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &many);
    take_template(&s);
    for (unsigned i = 0; i < POOLS_STARTING_MAX_IDLE; i++)
        asked_to_make(&s, i % MEMBERS);
    silent(&s.k, s.k.jailer);
    s.k.box = pools_take(s.pools, &spec, NULL); /* the oldest that is being created */
    assert_non_null(s.k.box);
    silent(&s.k, s.k.jailer); /* one creation less in progress, and no other is started */
    end(&s);
}

static void begin_with_three(struct scene *s, const struct sandbox_spec *spec)
{
    static const struct pool_settings three = { .min = 3, .max = 3 };

    begin(s);
    put_pool(s, spec, &three);
    take_template(s);
    for (size_t i = 0; i < 3; i++) {
        asked_to_make(s, i);
        if (i > 0)
            made(s, i - 1, ALL_OUTSIDE);
    }
    made(s, 2, ALL_OUTSIDE);
    assert_int_equal(info(s, "p").size, 3);
}

TEST(no_member_is_created_during_a_claim_unless_the_pool_runs_low)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_with_three(&s, &spec);
    claim(&s, &spec);
    turn(&s.k);
    bool waited = !take_any(s.k.jailer); /* unless this machine was stalled for longer than a claim takes */
    pools_claim_finished(s.pools, &spec, 5);
    if (waited)
        await(&s, FRAME_J_CREATE);
    assert_int_equal(info(&s, "p").claims_ready, 1);
    assert_int_equal(info(&s, "p").claim_ns, 5);
    sandbox_handle_free(take_ptr(&s.k.box));
    jailer_takes(&s.k, FRAME_J_DESTROY);
    sandbox_handle_free(pools_take(s.pools, &spec, NULL)); /* one of three is left: the next is created at once */
    sandbox_handle_free(pools_take(s.pools, &spec, NULL));
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_takes(&s.k, FRAME_J_CREATE);
    end(&s);
}

TEST(no_member_is_created_while_ready_members_cover_the_queue)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_with_three(&s, &spec);
    pools_adjust_queue_length(s.pools, 1);
    for (size_t i = 0; i < 2; i++) {
        sandbox_handle_free(pools_take(s.pools, &spec, NULL));
        jailer_takes(&s.k, FRAME_J_DESTROY);
    }
    turn(&s.k);
    bool waited = !take_any(s.k.jailer); /* unless this machine was stalled for longer than a claim takes */
    pools_adjust_queue_length(s.pools, -1);
    pools_claim_finished(s.pools, &spec, 0);
    pools_claim_finished(s.pools, &spec, 0);
    if (waited)
        await(&s, FRAME_J_CREATE);
    end(&s);
}

TEST(an_empty_pool_is_a_miss)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    sandbox_handle_free(pools_take(s.pools, &spec, NULL));
    sandbox_handle_free(pools_take(s.pools, &spec, NULL));
    assert_null(pools_take(s.pools, &spec, NULL));
    assert_int_equal(info(&s, "p").claims, 3);
    assert_int_equal(info(&s, "p").hits, 2);
    assert_int_equal(info(&s, "p").misses, 1);
    end(&s);
}

TEST(new_sizes_keep_the_members_of_a_pool)
{
    static const struct pool_settings three = { .min = 3, .max = 3 }, one = { .min = 1, .max = 1 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    put_pool(&s, &spec, &three);
    assert_int_equal(info(&s, "p").generation, 1);
    assert_int_equal(info(&s, "p").size, 2);
    asked_to_make(&s, 2);
    silent(&s.k, s.k.jailer);
    made(&s, 2, ALL_OUTSIDE);
    spec.limits.v[LIMIT_LIFETIME] /= 2; /* a claim sets it */
    put_pool(&s, &spec, &one);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    silent(&s.k, s.k.jailer);
    assert_int_equal(info(&s, "p").size, 1);
    claim(&s, &spec);
    claimed(&s, 2);
    end(&s);
}

TEST(new_limits_start_a_new_generation_of_a_pool)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    spec.limits.v[LIMIT_MEMORY] -= 4096;
    put_pool(&s, &spec, &two);
    assert_int_equal(info(&s, "p").generation, 2);
    assert_int_equal(info(&s, "p").size, 0);
    end(&s);
}

TEST(a_new_version_starts_a_new_generation_of_a_pool)
{
    static const struct pool_settings later = { .version = 1, .min = 2, .max = 2 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    assert_int_equal(info(&s, "p").generation, 1);
    put_pool(&s, &spec, &later);
    assert_int_equal(info(&s, "p").generation, 2);
    assert_int_equal(info(&s, "p").size, 0);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    asked_to_make(&s, 2);
    end(&s);
}

TEST(removing_a_pool_destroys_its_members)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    assert_true(pools_remove(s.pools, "p"));
    assert_false(pools_remove(s.pools, "p"));
    jailer_takes(&s.k, FRAME_J_DESTROY);
    jailer_takes(&s.k, FRAME_J_DESTROY);
    silent(&s.k, s.k.jailer);
    assert_null(pools_take(s.pools, &spec, NULL));
    end(&s);
}

TEST(a_member_is_replaced_at_its_maximum_age)
{
    static const struct pool_settings old = { .min = 1, .max = 1, .max_age_ms = 200 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &old);
    take_template(&s);
    asked_to_make(&s, 0);
    made(&s, 0, ALL_OUTSIDE);
    await(&s, FRAME_J_CREATE); /* before the old member must go */
    while (info(&s, "p").replaced == 0)
        await(&s, FRAME_J_DESTROY);
    end(&s);
}

/* Answers requests for members until there are n. */
static void fill(struct scene *s, uint32_t n)
{
    size_t next = 1;

    while (info(s, "p").size < n) {
        await(s, FRAME_J_CREATE);
        s->stream[next] = got.f.stream;
        made(s, next++, ALL_OUTSIDE);
    }
}

TEST(an_unused_member_beyond_min_is_evicted_after_its_ttl)
{
    static const struct pool_settings idle = {
        .min = 1, .max = 2, .autoscale = true, .target_hit_permille = 990, .scale_down_ms = 600000, .ttl_ms = 1000
    };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &idle);
    take_template(&s);
    asked_to_make(&s, 0);
    made(&s, 0, ALL_OUTSIDE);
    for (int i = 0; i < 8; i++) /* the target is the maximum */
        sandbox_handle_free(pools_take(s.pools, &spec, NULL));
    uint64_t began = now_ms();
    fill(&s, 2);
    assert_int_equal(info(&s, "p").expired, 0);
    while (info(&s, "p").expired == 0)
        await(&s, FRAME_J_DESTROY);
    assert_true(now_ms() - began >= 990);
    assert_int_equal(info(&s, "p").expired, 1); /* the remaining member is within min */
    assert_int_equal(info(&s, "p").size, 1);
    assert_int_equal(info(&s, "p").replaced, 0);
    end(&s);
}

TEST(a_failed_creation_is_retried_with_back_off)
{
    static const struct pool_settings one = { .min = 1, .max = 1 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &one);
    take_template(&s);
    asked_to_make(&s, 0);
    uint64_t began = now_ms();
    jailer_error(&s.k, ERR_LIMIT, "no");
    assert_int_equal(info(&s, "p").failed, 1);
    await(&s, FRAME_J_CREATE);
    assert_true(now_ms() - began >= 90);
    end(&s);
}

TEST(invalid_pool_settings_are_refused)
{
    struct sandbox_spec spec = plain_spec();
    struct err err = { 0 };
    static const struct {
        struct pool_settings set;
        enum err_id id;
    } rows[] = {
        { { .min = 3, .max = 2, .autoscale = true, .target_hit_permille = 900 }, ERR_INVALID },
        { { .min = 1, .max = 2, .autoscale = true, .target_hit_permille = 1000 }, ERR_INVALID },
        { { .min = POOL_SIZE_MAX + 1 }, ERR_INVALID },
        { { .min = 1, .max = 1, .recycle = true }, ERR_INVALID },
    };
    struct scene s;

    begin(&s);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(pools_put(s.pools, "p", &spec, &rows[i].set, &err), -1);
        assert_int_equal(err.id, rows[i].id);
    }
    assert_int_equal(pools_put(s.pools, "", &spec, &two, &err), -1);
    assert_int_equal(pools_list(s.pools, NULL, 0), 0);
    silent(&s.k, s.k.jailer);
    end(&s);
}

TEST(members_do_not_delay_the_report_of_a_lost_jailer)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_two(&s);
    fd_close(&s.k.jailer);
    turn_until(&s.k, &s.k.lost);
    pools_set_engine(s.pools, NULL);
    assert_int_equal(info(&s, "p").size, 0);
    assert_null(pools_take(s.pools, &spec, NULL));
    end(&s);
}

/* --- zygotes --- */

static const struct zygote_spec python = { "python", "json" };

static void begin_zygote_with(struct scene *s, const struct pool_settings *set, uint64_t zygote_ns)
{
    struct sandbox_spec spec = plain_spec();
    struct jail_zygote m;

    spec.zygote = &python;
    begin(s);
    if (zygote_ns)
        s->pools->zygote_start_timeout_ns = zygote_ns;
    put_pool(s, &spec, set);
    take_template(s);
    jailer_takes(&s->k, FRAME_J_ZYGOTE);
    assert_int_equal(jail_zygote_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.preload, "json");
    s->stream[1] = got.f.stream;
    asked_to_make(s, 0);
    assert_int_equal(info(s, "p").zygote, POOL_ZYGOTE_STARTING);
}

TEST(a_pool_of_a_driver_without_zygotes_has_members_whose_interpreters_start_cold)
{
    static const struct pool_settings one = { .min = 1, .max = 1 };
    struct sandbox_spec spec = plain_spec();
    struct jail_template m;
    struct scene s;

    spec.driver = DRIVER_BWRAP;
    spec.zygote = &python;
    begin(&s);
    put_pool(&s, &spec, &one);
    jailer_takes(&s.k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.driver, DRIVER_BWRAP);
    assert_false(m.joinable);
    jailer_ok(&s.k);
    asked_to_make(&s, 0);
    made(&s, 0, ALL_OUTSIDE);
    silent(&s.k, s.k.jailer); /* neither J_ZYGOTE nor J_JOIN */
    assert_int_equal(info(&s, "p").zygote, POOL_ZYGOTE_UNSUPPORTED);
    assert_int_equal(info(&s, "p").size, 1);
    assert_int_equal(info(&s, "p").without_interpreter, 0);
    end(&s);
}

static void begin_zygote(struct scene *s)
{
    static const struct pool_settings one = { .min = 1, .max = 1 };

    begin_zygote_with(s, &one, 0);
}

static void zygote_answers(struct scene *s, enum err_id id, const char *msg)
{
    got.f.stream = s->stream[1];
    if (id == ERR_NONE)
        jailer_ok(&s->k);
    else
        jailer_error(&s->k, id, msg);
}

/* The interpreter of member i; PID 1 gets its descriptors. */
static void joined(struct scene *s, size_t i)
{
    int fds[3], before = count_fds();

    for (size_t n = 0; n < 3; n++)
        fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    put_fds(s->k.jailer, FRAME_J_OK, 0, got.f.stream, NULL, 0, fds, 3);
    turn(&s->k);
    for (size_t n = 0; n < 3; n++)
        close(fds[n]);
    assert_int_equal(count_fds(), before); /* the engine keeps none of them */
    take(s->runtime[i], FRAME_INTERPRETER);
    assert_int_equal(got.nfds, 3);
}

TEST(a_member_waits_with_an_interpreter)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    assert_int_equal(info(&s, "p").size, 0);
    joined(&s, 0);
    struct pool_info i = info(&s, "p");
    assert_int_equal(i.size, 1);
    assert_int_equal(i.without_interpreter, 0);
    assert_int_equal(i.zygote_forks, 1);
    spec.zygote = &python;
    claim(&s, &spec);
    assert_true(sandbox_handle_has_interpreter(s.k.box));
    assert_int_equal(info(&s, "p").hits, 1);
    end(&s);
}

TEST(a_waiting_interpreter_warms_up_once)
{
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made_by(RT_FEATURE_WARM_UP, &s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    turn(&s.k);
    take(s.runtime[0], FRAME_WARM_UP);
    turn(&s.k);
    silent(&s.k, s.runtime[0]);
    put(s.runtime[0], FRAME_INTERPRETER_LOST, 0, 0, NULL, 0);
    await(&s, FRAME_J_JOIN);
    joined(&s, 0);
    for (uint64_t until = now_ms() + 60000;
         !take_any(s.runtime[0]) && now_ms() < until;) /* the previous one takes time */
        ev_turn(s.k.ev, 20);
    assert_int_equal(got.f.type, FRAME_WARM_UP);
    end(&s);
}

/* A warm-up would do in vain what the first cell does a moment later, and take CPU time from
 * waiting requests. */
TEST(no_interpreter_warms_up_while_requests_are_queued)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made_by(RT_FEATURE_WARM_UP, &s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    pools_adjust_queue_length(s.pools, 1);
    joined(&s, 0);
    turn(&s.k);
    silent(&s.k, s.runtime[0]);
    pools_adjust_queue_length(s.pools, -1);
    spec.profile = PROFILE_NODE; /* the claim of another request finished */
    pools_claim_finished(s.pools, &spec, 1);
    turn(&s.k);
    take(s.runtime[0], FRAME_WARM_UP);
    end(&s);
}

static enum pool_result found(struct scene *s)
{
    struct sandbox_spec spec = plain_spec();
    enum pool_result ret;

    spec.zygote = &python;
    sandbox_handle_free(pools_take(s->pools, &spec, &ret));
    return ret;
}

TEST(only_a_member_with_its_interpreter_is_a_hit)
{
    static const struct {
        bool made, zygote, joined;
        enum pool_result found;
    } rows[] = {
        { false, false, false, POOL_PARTIAL }, /* being created */
        { true, false, false, POOL_PARTIAL },  /* without an interpreter */
        { true, true, false, POOL_PARTIAL },   /* its interpreter is on its way */
        { true, true, true, POOL_HIT },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;

        begin_zygote(&s);
        if (rows[i].zygote)
            zygote_answers(&s, ERR_NONE, NULL);
        if (rows[i].made)
            made(&s, 0, ALL_OUTSIDE);
        if (rows[i].zygote)
            jailer_takes(&s.k, FRAME_J_JOIN);
        if (rows[i].joined)
            joined(&s, 0);
        if (found(&s) != rows[i].found)
            fail_msg("row %zu", i);
        assert_int_equal(found(&s), POOL_MISS); /* there was only one */
        struct pool_info got_info = info(&s, "p");
        assert_int_equal(got_info.hits, rows[i].found == POOL_HIT);
        assert_int_equal(got_info.cold, rows[i].found == POOL_PARTIAL);
        end(&s);
    }
}

TEST(a_waiting_interpreter_that_ends_is_replaced)
{
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    put(s.runtime[0], FRAME_INTERPRETER_LOST, 0, 0, NULL, 0);
    await(&s, FRAME_J_JOIN);
    assert_int_equal(info(&s, "p").lost, 1);
    joined(&s, 0);
    assert_int_equal(info(&s, "p").size, 1);
    assert_int_equal(info(&s, "p").without_interpreter, 0);
    end(&s);
}

TEST(an_invalid_interpreter_lost_frame_ends_the_member)
{
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    put(s.runtime[0], FRAME_INTERPRETER_LOST, 0, 0, "x", 1);
    await(&s, FRAME_J_DESTROY);
    end(&s);
}

TEST(members_older_than_the_zygote_get_their_interpreter_later)
{
    struct scene s;

    begin_zygote(&s);
    made(&s, 0, ALL_OUTSIDE);
    assert_int_equal(info(&s, "p").without_interpreter, 1);
    zygote_answers(&s, ERR_NONE, NULL);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    assert_int_equal(info(&s, "p").size, 1);
    assert_int_equal(info(&s, "p").without_interpreter, 0);
    end(&s);
}

TEST(a_failing_preload_is_reported_and_not_retried)
{
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_INVALID, "preload json starts threads");
    made(&s, 0, ALL_OUTSIDE);
    struct pool_info i = info(&s, "p");
    assert_int_equal(i.zygote, POOL_ZYGOTE_FAILED);
    assert_non_null(strstr(i.zygote_error, "preload json starts threads"));
    assert_int_equal(i.size, 1);
    spec.zygote = &python;
    claim(&s, &spec); /* without an interpreter */
    assert_false(sandbox_handle_has_interpreter(s.k.box));
    assert_int_equal(info(&s, "p").cold, 1);
    pools_claim_finished(s.pools, &spec, 1);
    await(&s, FRAME_J_CREATE);
    silent(&s.k, s.k.jailer);
    end(&s);
}

TEST(a_preload_that_does_not_finish_is_ended_and_reported)
{
    static const struct pool_settings one = { .min = 1, .max = 1 };
    struct scene s;
    struct jail_zygote m;

    begin_zygote_with(&s, &one, NS_PER_MS);
    await(&s, FRAME_J_ZYGOTE);
    assert_int_equal(jail_zygote_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.language, ""); /* an empty language ends the zygote */
    jailer_ok(&s.k);
    struct pool_info i = info(&s, "p");
    assert_int_equal(i.zygote, POOL_ZYGOTE_FAILED);
    assert_non_null(strstr(i.zygote_error, "preload json did not finish within"));
    zygote_answers(&s, ERR_LOST, "the zygote is not wanted any more");
    made(&s, 0, ALL_OUTSIDE);
    i = info(&s, "p");
    assert_non_null(strstr(i.zygote_error, "preload json did not finish within"));
    assert_int_equal(i.size, 1);
    assert_int_equal(i.without_interpreter, 1);
    silent(&s.k, s.k.jailer); /* it would not finish the next time either */
    end(&s);
}

TEST(a_dead_zygote_is_restarted)
{
    struct scene s;

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    jailer_error(&s.k, ERR_LOST, "the zygote ended");
    assert_int_equal(info(&s, "p").without_interpreter, 1); /* it can be taken meanwhile */
    assert_int_equal(info(&s, "p").joins_failed, 1);
    assert_int_not_equal(info(&s, "p").zygote, POOL_ZYGOTE_READY);
    await(&s, FRAME_J_ZYGOTE);
    s.stream[1] = got.f.stream;
    zygote_answers(&s, ERR_NONE, NULL);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    struct pool_info i = info(&s, "p");
    assert_int_equal(i.without_interpreter, 0);
    assert_int_equal(i.zygotes_started, 2);
    assert_int_equal(i.zygote, POOL_ZYGOTE_READY);
    end(&s);
}

TEST(a_zygote_is_replaced_after_its_maximum_of_forks_and_serves_until_then)
{
    static const struct pool_settings few = { .min = 2, .max = 2, .zygote_max_members = 1 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;

    spec.zygote = &python;
    begin(&s);
    put_pool(&s, &spec, &few);
    take_template(&s);
    jailer_takes(&s.k, FRAME_J_ZYGOTE);
    s.stream[3] = s.stream[1] = got.f.stream;
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    got.f.stream = s.stream[3];
    jailer_ok(&s.k);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    made(&s, 1, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_ZYGOTE); /* the replacement */
    s.stream[3] = got.f.stream;
    jailer_takes(&s.k, FRAME_J_JOIN); /* from the current zygote */
    joined(&s, 1);
    got.f.stream = s.stream[3];
    jailer_ok(&s.k);
    struct pool_info i = info(&s, "p");
    assert_int_equal(i.zygotes_started, 2);
    assert_int_equal(i.zygotes_renewed, 1);
    assert_int_equal(i.zygote_forks, 0);
    assert_int_equal(i.size, 2);
    silent(&s.k, s.k.jailer);
    end(&s);
}

TEST(an_old_zygote_is_replaced_when_needed_and_serves_until_then)
{
    static const struct pool_settings brief = { .min = 1, .max = 1, .zygote_max_age_ms = 1000 };
    struct scene s;
    uint64_t began;

    begin_zygote_with(&s, &brief, 0);
    zygote_answers(&s, ERR_NONE, NULL);
    began = now_ms();
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    while (now_ms() < began + 1010)
        ev_turn(s.k.ev, 20);
    silent(&s.k, s.k.jailer); /* it is not needed */
    assert_int_equal(found(&s), POOL_HIT);
    await(&s, FRAME_J_ZYGOTE);
    s.stream[1] = got.f.stream;
    asked_to_make(&s, 2);
    made(&s, 2, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN); /* from the old zygote */
    joined(&s, 2);
    assert_int_equal(info(&s, "p").zygote, POOL_ZYGOTE_READY);
    assert_int_equal(info(&s, "p").zygotes_renewed, 0);
    zygote_answers(&s, ERR_NONE, NULL);
    assert_int_equal(info(&s, "p").zygotes_renewed, 1);
    assert_int_equal(info(&s, "p").zygote_forks, 0);
    end(&s);
}

static void asked_to_end_zygote(struct scene *s)
{
    struct jail_zygote m;

    jailer_takes(&s->k, FRAME_J_ZYGOTE);
    assert_int_equal(jail_zygote_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.language, "");
    assert_string_equal(m.preload, "");
    jailer_ok(&s->k);
}

TEST(a_zygote_ends_with_the_last_pool_of_its_kind)
{
    static const struct pool_settings none = { .min = 0, .max = 1 };
    struct sandbox_spec spec = plain_spec();
    struct scene s;
    struct err err = { 0 };

    begin_zygote(&s);
    zygote_answers(&s, ERR_NONE, NULL);
    made(&s, 0, ALL_OUTSIDE);
    jailer_takes(&s.k, FRAME_J_JOIN);
    joined(&s, 0);
    spec.zygote = &python;
    assert_int_equal(pools_put(s.pools, "q", &spec, &none, &err), 0); /* another pool of the same kind */
    turn(&s.k);
    assert_true(pools_remove(s.pools, "p"));
    jailer_takes(&s.k, FRAME_J_DESTROY);
    silent(&s.k, s.k.jailer);
    assert_true(pools_remove(s.pools, "q"));
    asked_to_end_zygote(&s);
    silent(&s.k, s.k.jailer);
    end(&s);
}

/* An older runtime does not know PRELOAD_RULES; a newer one prepares the file rules of a claim
 * of the usual level. */
TEST(a_waiting_member_gets_the_file_rules_of_most_claims)
{
    struct sandbox_spec spec = plain_spec();
    auto_free void *strings = NULL, *expected = NULL;
    struct rt_claim m, e;
    struct scene s;

    begin(&s);
    put_pool(&s, &spec, &two);
    take_template(&s);
    asked_to_make(&s, 0);
    asked_to_make(&s, 1);
    made_by(RT_FEATURE_PRELOAD_RULES, &s, 0, ALL_OUTSIDE);
    made_by(0, &s, 1, ALL_OUTSIDE);
    take(s.runtime[0], FRAME_PRELOAD_RULES);
    assert_int_equal(rt_claim_decode(&got.f, &e, &expected, NULL), 0);
    assert_true(e.nrules > 0);
    silent(&s.k, s.runtime[1]);
    claim(&s, &spec);
    turn(&s.k);
    take(s.runtime[0], FRAME_CLAIM);
    assert_int_equal(rt_claim_decode(&got.f, &m, &strings, NULL), 0);
    assert_int_equal(e.nrules, m.nrules);
    for (uint32_t i = 0; i < m.nrules; i++) {
        assert_int_equal(e.rules[i].access, m.rules[i].access);
        assert_string_equal(e.rules[i].path, m.rules[i].path);
    }
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_zygote_ends_with_the_last_pool_of_its_kind),
        RUN(a_waiting_member_gets_the_file_rules_of_most_claims),
        RUN(one_request_without_a_pool_creates_nothing),
        RUN(two_requests_for_a_spec_without_a_pool_fill_the_auto_pool),
        RUN(the_auto_pool_changes_its_spec_after_two_requests),
        RUN(a_member_has_no_owner_until_it_is_claimed),
        RUN(a_waiting_interpreter_warms_up_once),
        RUN(no_interpreter_warms_up_while_requests_are_queued),
        RUN(a_waiting_interpreter_that_ends_is_replaced),
        RUN(a_member_with_listeners_gets_the_rules_of_its_claim),
        RUN(an_execution_may_follow_the_claim_without_waiting),
        RUN(a_refused_claim_fails_the_execution_that_followed_it),
        RUN(no_execution_is_sent_while_limits_are_being_set),
        RUN(a_member_can_be_taken_while_it_is_being_created),
        RUN(a_spec_that_differs_for_the_jailer_is_a_miss),
        RUN(a_member_has_the_level_of_its_pool),
        RUN(a_member_has_the_driver_of_its_pool),
        RUN(limits_of_the_engine_come_with_the_claim),
        RUN(limits_of_memory_cpu_and_processes_are_set_before_the_claim),
        RUN(a_claim_fails_when_its_limits_cannot_be_set),
        RUN(a_member_with_a_missing_wall_fails_its_claim),
        RUN(a_dead_member_is_not_given_out_and_is_replaced),
        RUN(a_member_that_sends_claimed_unasked_is_ended),
        RUN(two_members_are_created_at_a_time),
        RUN(a_large_idle_pool_is_filled_faster),
        RUN(no_member_is_created_during_a_claim_unless_the_pool_runs_low),
        RUN(no_member_is_created_while_ready_members_cover_the_queue),
        RUN(an_empty_pool_is_a_miss),
        RUN(new_sizes_keep_the_members_of_a_pool),
        RUN(new_limits_start_a_new_generation_of_a_pool),
        RUN(a_new_version_starts_a_new_generation_of_a_pool),
        RUN(removing_a_pool_destroys_its_members),
        RUN(a_member_is_replaced_at_its_maximum_age),
        RUN(an_unused_member_beyond_min_is_evicted_after_its_ttl),
        RUN(a_failed_creation_is_retried_with_back_off),
        RUN(invalid_pool_settings_are_refused),
        RUN(members_do_not_delay_the_report_of_a_lost_jailer),
        RUN(a_member_waits_with_an_interpreter),
        RUN(only_a_member_with_its_interpreter_is_a_hit),
        RUN(an_invalid_interpreter_lost_frame_ends_the_member),
        RUN(members_older_than_the_zygote_get_their_interpreter_later),
        RUN(a_failing_preload_is_reported_and_not_retried),
        RUN(a_preload_that_does_not_finish_is_ended_and_reported),
        RUN(a_dead_zygote_is_restarted),
        RUN(a_zygote_is_replaced_after_its_maximum_of_forks_and_serves_until_then),
        RUN(an_old_zygote_is_replaced_when_needed_and_serves_until_then),
        RUN(a_pool_of_a_driver_without_zygotes_has_members_whose_interpreters_start_cold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
