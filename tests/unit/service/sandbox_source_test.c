/* Where sandboxes come from, with a scripted jailer: members that live, members that die, and the
 * reports to the pools. */
#include "tests/unit/sandbox/fake.h"

#include "sandbox/pool/pool_internal.h"
#include "service/sandbox_source.h"

#define OTHERS 3u /* claims of other requests that are in flight */

struct scene {
    struct fake k;
    struct pools *pools;
    struct sandbox_supply supply;
    struct spec spec;
    struct sandbox_handle *handle;
    struct sandbox_source source;
    char dir[32];
    int ready, failed; /* callbacks of the sandbox that were not followed by a replacement */
    struct err err;
};

static void owner_on_ready(void *arg)
{
    struct scene *s = arg;

    s->ready++;
    sandbox_source_finish(&s->source, true);
}

static void owner_on_failed(void *arg, const struct err *err)
{
    struct scene *s = arg;

    s->err = *err;
    if (sandbox_source_member_died(&s->source, err) && sandbox_source_replace(&s->source, &s->err) == 0)
        return;
    s->failed++;
    sandbox_source_finish(&s->source, false);
}

static void owner_on_ended(void *arg, const struct err *why)
{
    struct scene *s = arg;

    assert_false(sandbox_source_member_died(&s->source, why));
    s->failed++;
}

static const struct sandbox_handle_ops owner_ops = { .on_ready = owner_on_ready,
                                                     .on_failed = owner_on_failed,
                                                     .on_ended = owner_on_ended };

static void begin(struct scene *s)
{
    struct err err = { 0 };

    *s = (struct scene){ 0 };
    scene_engine(&s->k);
    s->pools = pools_new(s->k.ev);
    pools_set_engine(s->pools, s->k.engine);
    str_copy(s->dir, sizeof(s->dir), "/tmp/cove-unit-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->supply = (struct sandbox_supply){ .ev = s->k.ev,
                                         .pools = s->pools,
                                         .engine = s->k.engine,
                                         .hidden_dir = open(s->dir, O_DIRECTORY | O_RDONLY | O_CLOEXEC),
                                         .require_all_walls = true };
    spec_init(&s->spec);
    str_copy(s->spec.runtime, sizeof(s->spec.runtime), "sh");
    assert_int_equal(spec_finish(&s->spec, &err), 0);
    s->source = (struct sandbox_source){
        .supply = &s->supply, .spec = &s->spec, .handle = &s->handle, .ops = &owner_ops, .arg = s
    };
}

static void end(struct scene *s)
{
    char command[64];

    sandbox_source_finish(&s->source, false);
    sandbox_handle_free(s->handle);
    pools_free(s->pools);
    spec_done(&s->spec);
    close(s->supply.hidden_dir);
    snprintf(command, sizeof(command), "rm -rf %s", s->dir);
    assert_int_equal(system(command), 0);
    scene_end(&s->k);
}

/* A pool whose only member is being created: J_CREATE was taken. */
static void begin_pool(struct scene *s, bool recycle)
{
    struct pool_settings one = { .min = 1, .max = 2, .recycle = recycle };
    struct sandbox_spec like;
    struct err err = { 0 };

    begin(s);
    spec_fill_sandbox_spec(&s->spec, &like);
    like.require_all_walls = true;
    if (pools_put(s->pools, "p", &like, &one, &err) < 0)
        fail_msg("%s", err.msg);
    jailer_takes(&s->k, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
    jailer_takes(&s->k, FRAME_J_CREATE);
}

/* The jailer answers J_CREATE, and the runtime HELLO. */
static void made(struct scene *s)
{
    struct rt_hello hello;

    fd_close(&s->k.runtime);
    fd_close(&s->k.cpu);
    fd_close(&s->k.oom);
    jailer_created(&s->k, ALL_OUTSIDE);
    runtime_takes(&s->k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&s->k, WIRE_VERSION, hello.epoch);
}

static void begin_member(struct scene *s, bool recycle)
{
    begin_pool(s, recycle);
    made(s);
}

/* Asks the pools and starts, in the loop iteration of one request. */
static void start(struct scene *s, enum pool_result found, enum sandbox_source_state state)
{
    struct err err = { 0 };

    s->pools->claims_in_flight = OTHERS;
    sandbox_source_take(&s->source, "ann");
    assert_int_equal(s->source.loan.result, found);
    if (sandbox_source_start(&s->source, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(s->source.state, state);
}

/* Waits for this request for the sandbox with this id. The refill of the pool sends requests too,
 * which are not answered. */
static void await(struct scene *s, uint8_t type, const char *id)
{
    uint64_t until = now_ms() + 5000;

    while (now_ms() < until) {
        ev_turn(s->k.ev, 5);
        while (take_any(s->k.jailer)) {
            struct jail_create create;
            struct jail_id other;

            if (got.f.type == FRAME_J_TEMPLATE)
                jailer_ok(&s->k);
            if (got.f.type != type)
                continue;
            if (type == FRAME_J_CREATE && jail_create_decode(&got.f, &create, NULL) == 0 && str_eq(create.id, id))
                return;
            if (type != FRAME_J_CREATE && jail_id_decode(&got.f, &other, NULL) == 0 && str_eq(other.id, id))
                return;
        }
    }
    fail_msg("no %s for %s", frame_name(type), id);
}

static void new_sandbox_becomes_ready(struct scene *s)
{
    await(s, FRAME_J_CREATE, sandbox_handle_id(s->handle));
    made(s);
    runtime_takes(&s->k, FRAME_CLAIM);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    assert_int_equal(s->ready, 1);
    assert_int_equal(s->source.state, SANDBOX_SOURCE_NEW);
    assert_false(sandbox_source_is_member(&s->source));
}

static void member_confirms(struct scene *s)
{
    runtime_takes(&s->k, FRAME_CLAIM);
    assert_true(sandbox_source_is_pending(&s->source));
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    assert_int_equal(s->ready, 1);
    assert_int_equal(s->source.state, SANDBOX_SOURCE_CLAIMED);
    assert_true(sandbox_source_is_member(&s->source));
}

/* The pools were asked once and got one report, however often the owner ends its claim. */
static void check_reported_once(struct scene *s, bool ready)
{
    struct pool_info info;

    for (int i = 0; i < 3; i++) {
        assert_int_equal(s->pools->claims_in_flight, OTHERS);
        assert_false(sandbox_source_is_pending(&s->source));
        if (pools_get(s->pools, "p", &info))
            assert_int_equal(info.claims_ready, ready);
        sandbox_source_finish(&s->source, i == 0);
    }
}

TEST(a_member_that_waits_is_claimed)
{
    struct scene s;

    begin_member(&s, false);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    member_confirms(&s);
    check_reported_once(&s, true);
    end(&s);
}

TEST(a_member_that_is_being_created_is_claimed_when_it_is_ready)
{
    struct scene s;
    uint32_t stream;

    begin_pool(&s, false);
    stream = got.f.stream;
    start(&s, POOL_PARTIAL, SANDBOX_SOURCE_CLAIMING);
    got.f.stream = stream;
    made(&s);
    member_confirms(&s);
    check_reported_once(&s, true);
    end(&s);
}

TEST(without_a_member_a_new_sandbox_is_made)
{
    struct scene s;

    begin(&s);
    start(&s, POOL_MISS, SANDBOX_SOURCE_MISSED);
    assert_int_equal(s.pools->claims_in_flight, OTHERS + 1);
    new_sandbox_becomes_ready(&s);
    check_reported_once(&s, true);
    end(&s);
}

TEST(a_new_sandbox_that_fails_is_reported_to_the_pools)
{
    struct scene s;

    begin(&s);
    start(&s, POOL_MISS, SANDBOX_SOURCE_MISSED);
    await(&s, FRAME_J_CREATE, sandbox_handle_id(s.handle));
    jailer_error(&s.k, ERR_LOST, "no spawner");
    assert_int_equal(s.failed, 1); /* only a member is replaced */
    assert_int_equal(s.source.state, SANDBOX_SOURCE_FAILED);
    check_reported_once(&s, false);
    end(&s);
}

TEST(a_member_that_is_dead_when_it_is_taken_is_replaced)
{
    char id[ID_SIZE];
    struct scene s;

    begin_member(&s, true);
    fd_close(&s.k.runtime);
    jailer_takes(&s.k, FRAME_J_DESTROY); /* not answered, so the pool does not know of the end yet */
    s.pools->claims_in_flight = OTHERS;
    sandbox_source_take(&s.source, NULL);
    str_copy(id, sizeof(id), sandbox_handle_id(s.handle));
    s.source.id = id; /* as for a sandbox that keeps the member and its id */
    assert_int_equal(sandbox_source_start(&s.source, &s.err), 0);
    assert_string_equal(sandbox_handle_id(s.handle), id);
    assert_int_equal(s.source.state, SANDBOX_SOURCE_NEW);
    assert_int_equal(s.source.loan.result, POOL_MISS);
    assert_false(sandbox_source_accepts_return(&s.source));
    check_reported_once(&s, false);
    new_sandbox_becomes_ready(&s);
    check_reported_once(&s, false);
    end(&s);
}

TEST(a_member_that_dies_during_the_claim_is_replaced_once)
{
    struct scene s;

    begin_member(&s, true);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    runtime_takes(&s.k, FRAME_CLAIM);
    fd_close(&s.k.runtime);
    await(&s, FRAME_J_DESTROY, sandbox_handle_id(s.handle));
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(s.failed, 0);
    assert_int_equal(s.source.state, SANDBOX_SOURCE_NEW);
    assert_int_equal(s.source.loan.result, POOL_MISS);
    assert_false(sandbox_source_accepts_return(&s.source));
    check_reported_once(&s, false);
    await(&s, FRAME_J_CREATE, sandbox_handle_id(s.handle));
    jailer_error(&s.k, ERR_LOST, "no spawner");
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.ready, 0);
    check_reported_once(&s, false);
    end(&s);
}

TEST(a_member_that_refuses_the_claim_is_not_replaced)
{
    struct scene s;

    begin_member(&s, false);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    runtime_takes(&s.k, FRAME_CLAIM);
    runtime_error(&s.k, 0, ERR_SYS, "no file rules");
    await(&s, FRAME_J_DESTROY, sandbox_handle_id(s.handle));
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.source.state, SANDBOX_SOURCE_FAILED);
    check_reported_once(&s, false);
    end(&s);
}

/* The pool has given the member away, and the new owner does not get it. */
TEST(a_member_whose_claim_is_refused_here_reports_to_nothing)
{
    static char text[] = "a variable without a value";
    char *no_value[] = { text, NULL };
    struct scene s;
    struct err err = { 0 };
    char id[ID_SIZE];

    begin_pool(&s, false);
    uint32_t stream = got.f.stream;
    s.spec.env = no_value;
    s.pools->claims_in_flight = OTHERS;
    sandbox_source_take(&s.source, "ann");
    assert_int_equal(s.source.loan.result, POOL_PARTIAL);
    memcpy(id, sandbox_handle_id(s.handle), sizeof(id));
    assert_int_equal(sandbox_source_start(&s.source, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_null(s.handle);
    sandbox_source_finish(&s.source, false);
    got.f.stream = stream;
    jailer_created(&s.k, ALL_OUTSIDE);
    await(&s, FRAME_J_DESTROY, id);
    jailer_stats(&s.k, &no_oom);
    assert_int_equal(s.ready, 0);
    s.spec.env = NULL;
    end(&s);
}

TEST(a_member_that_dies_after_the_claim_is_not_replaced)
{
    struct scene s;

    begin_member(&s, false);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    member_confirms(&s);
    fd_close(&s.k.runtime);
    for (uint64_t until = now_ms() + 5000; !s.failed && now_ms() < until;) {
        ev_turn(s.k.ev, 5);
        while (take_any(s.k.jailer))
            if (got.f.type == FRAME_J_KILL)
                jailer_ok(&s.k);
            else if (got.f.type == FRAME_J_STATS)
                jailer_stats(&s.k, &no_oom);
    }
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.source.state, SANDBOX_SOURCE_CLAIMED);
    check_reported_once(&s, true);
    end(&s);
}

TEST(a_replacement_that_cannot_be_requested_is_a_failure)
{
    struct scene s;

    begin_member(&s, false);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    fd_close(&s.k.jailer);
    for (uint64_t until = now_ms() + 5000; !s.failed && now_ms() < until;)
        ev_turn(s.k.ev, 5);
    assert_int_equal(s.failed, 1);
    assert_null(s.handle);
    assert_int_equal(s.source.state, SANDBOX_SOURCE_FAILED);
    check_reported_once(&s, false);
    end(&s);
}

TEST(hidden_paths_are_mounted_in_a_new_sandbox_without_asking_the_pools)
{
    struct scene s;

    begin_member(&s, false);
    str_copy(s.spec.hidden_paths[s.spec.nhidden_paths++], sizeof(s.spec.hidden_paths[0]), "/etc/hosts");
    str_copy(s.spec.hidden_paths[s.spec.nhidden_paths++], sizeof(s.spec.hidden_paths[0]), "/nonexistent");
    start(&s, POOL_MISS, SANDBOX_SOURCE_NEW);
    check_reported_once(&s, false);
    await(&s, FRAME_J_CREATE, sandbox_handle_id(s.handle));
    assert_int_equal(got.nfds, 1); /* a path that does not exist needs no mount */
    made(&s);
    runtime_takes(&s.k, FRAME_CLAIM);
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    assert_int_equal(s.ready, 1);
    check_reported_once(&s, false);
    end(&s); /* checks that no descriptor of a mount is open */
}

TEST(a_borrowed_member_can_be_returned)
{
    struct scene s;
    struct pool_info info;

    begin_member(&s, true);
    start(&s, POOL_HIT, SANDBOX_SOURCE_CLAIMING);
    member_confirms(&s);
    assert_true(sandbox_source_accepts_return(&s.source));
    assert_false(sandbox_source_return(&s.source, (struct pool_return){ .owner = "ann" }));
    assert_non_null(s.handle); /* refused, because the program was stopped */
    assert_true(pools_get(s.pools, "p", &info));
    assert_int_equal(info.recycle_verdicts[RECYCLE_STOPPED], 1);
    check_reported_once(&s, true);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_member_that_waits_is_claimed),
        RUN(a_member_that_is_being_created_is_claimed_when_it_is_ready),
        RUN(without_a_member_a_new_sandbox_is_made),
        RUN(a_new_sandbox_that_fails_is_reported_to_the_pools),
        RUN(a_member_that_is_dead_when_it_is_taken_is_replaced),
        RUN(a_member_that_dies_during_the_claim_is_replaced_once),
        RUN(a_member_that_refuses_the_claim_is_not_replaced),
        RUN(a_member_whose_claim_is_refused_here_reports_to_nothing),
        RUN(a_member_that_dies_after_the_claim_is_not_replaced),
        RUN(a_replacement_that_cannot_be_requested_is_a_failure),
        RUN(hidden_paths_are_mounted_in_a_new_sandbox_without_asking_the_pools),
        RUN(a_borrowed_member_can_be_returned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
