/* The creation of a sandbox: its steps, a failure at each of them, and members of pools. */
#include "tests/unit/service/scene_rows.h"

TEST(a_row_precedes_the_sandbox_and_running_follows_it)
{
    struct scene s;
    struct sandbox_answer a;
    struct manager_stats stats;

    scene_open(&s);
    create_to(&s, CREATE_ASKED, &a);
    assert_sandbox(&s, BOX, STORE_SANDBOX_CREATING, "");
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    assert_int_equal(live_sandboxes(&s), 0); /* it does not run yet */
    create_continue(&s, CREATE_CLAIMED);
    settle(&s);
    assert_int_equal(a.n, 0); /* the jailer has not promised to keep it */
    jailer_ok(&s.k);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, STORE_SANDBOX_RUNNING);
    assert_true(a.expires_ms > 0);
    assert_int_equal(live_sandboxes(&s), 1);
    manager_stats(s.m, &stats);
    assert_int_equal(stats.created, 1);
    assert_int_equal(stats.running, 1);
    scene_close(&s);
}

TEST(an_id_that_is_in_use_is_refused_and_the_first_creation_continues)
{
    struct scene s;
    struct sandbox_answer first, second;

    scene_open(&s);
    create_to(&s, CREATE_ASKED, &first);
    create_as(&s, ME, BOX, &second);
    answered(&s, &second.n);
    assert_int_equal(second.err.id, ERR_IDEMPOTENCY);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &first.n);
    assert_int_equal(first.err.id, 0);
    scene_close(&s);
}

TEST(creations_beyond_the_concurrency_limit_wait_their_turn)
{
    struct scene s;
    struct sandbox_answer first, second;

    scene_open_with(&s, &(struct scene_settings){ .creating_max = 1 });
    create_to(&s, CREATE_ASKED, &first);
    create_as(&s, "other", OTHER_BOX, &second);
    expect_no(&s, FRAME_J_CREATE);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &first.n);
    fd_close(&s.k.runtime);
    expect(&s, FRAME_J_CREATE);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &second.n);
    assert_int_equal(second.err.id, 0);
    scene_close(&s);
}

TEST(a_creation_that_waits_for_its_turn_can_be_deleted)
{
    struct scene s;
    struct sandbox_answer first, second, deleted = { 0 };

    scene_open_with(&s, &(struct scene_settings){ .creating_max = 1 });
    create_to(&s, CREATE_ASKED, &first);
    create_as(&s, ME, OTHER_BOX, &second);
    manager_delete(s.m, ME, OTHER_BOX, on_sandbox, &deleted);
    answered(&s, &second.n);
    assert_int_equal(second.err.id, ERR_SANDBOX_ENDED);
    answered(&s, &deleted.n); /* it has no row */
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &first.n);
    expect_no(&s, FRAME_J_CREATE);
    scene_close(&s);
}

TEST(a_creation_that_waits_for_its_turn_fails_when_the_jailer_is_lost)
{
    struct scene s;
    struct sandbox_answer first, second;

    scene_open_with(&s, &(struct scene_settings){ .creating_max = 1 });
    create_to(&s, CREATE_ASKED, &first);
    create_as(&s, ME, OTHER_BOX, &second);
    jailer_is_lost(&s);
    answered(&s, &first.n);
    answered(&s, &second.n);
    assert_int_equal(second.err.id, ERR_BUSY);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

/* --- failures --- */

enum cause {
    JAILER_REFUSES,
    JAILER_LOST,
    RUNTIME_DIES,
    RUNTIME_REFUSES,
    NO_ANSWER, /* the jailer or the runtime does not answer in time */
    DELETED,
    SUSPENDED, /* the tenant */
};

static const struct {
    const char *name;
    enum create_step step;
    enum cause cause;
    enum err_id id;
    const char *ended_by; /* "": the sandbox never existed for its owner */
    int destroyed;        /* requests to remove it */
    bool reported;        /* on_end is called */
} failures[] = {
    { "the jailer refuses to create it", CREATE_ASKED, JAILER_REFUSES, ERR_SYS, "", 0, false },
    { "the jailer refuses to keep it", CREATE_CLAIMED, JAILER_REFUSES, ERR_SYS, "", 1, false },
    { "the jailer is lost before it created it", CREATE_ASKED, JAILER_LOST, ERR_LOST, "lost", 0, true },
    { "the jailer is lost before HELLO", CREATE_MADE, JAILER_LOST, ERR_LOST, "lost", 0, true },
    { "the jailer is lost before CLAIMED", CREATE_GREETED, JAILER_LOST, ERR_LOST, "lost", 0, true },
    { "the jailer is lost before it keeps it", CREATE_CLAIMED, JAILER_LOST, ERR_LOST, "lost", 0, true },
    { "the runtime dies before HELLO", CREATE_MADE, RUNTIME_DIES, ERR_LOST, "lost", 1, true },
    { "the runtime dies before CLAIMED", CREATE_GREETED, RUNTIME_DIES, ERR_LOST, "lost", 1, true },
    { "the runtime dies before it is kept", CREATE_CLAIMED, RUNTIME_DIES, ERR_LOST, "lost", 1, true },
    { "the runtime reports an error before HELLO", CREATE_MADE, RUNTIME_REFUSES, ERR_DENIED, "", 1, false },
    { "the runtime refuses the claim", CREATE_GREETED, RUNTIME_REFUSES, ERR_DENIED, "", 1, false },
    { "the jailer does not answer", CREATE_ASKED, NO_ANSWER, ERR_TIMEOUT, "", 0, false },
    { "HELLO is not answered", CREATE_MADE, NO_ANSWER, ERR_TIMEOUT, "", 1, false },
    { "CLAIM is not answered", CREATE_GREETED, NO_ANSWER, ERR_TIMEOUT, "", 1, false },
    { "deleted before it is created", CREATE_ASKED, DELETED, ERR_SANDBOX_ENDED, "killed", 1, false },
    { "deleted before HELLO", CREATE_MADE, DELETED, ERR_SANDBOX_ENDED, "killed", 1, false },
    { "deleted before CLAIMED", CREATE_GREETED, DELETED, ERR_SANDBOX_ENDED, "killed", 1, false },
    { "deleted before it is kept", CREATE_CLAIMED, DELETED, ERR_SANDBOX_ENDED, "killed", 1, false },
    { "tenant suspended before it is created", CREATE_ASKED, SUSPENDED, ERR_TENANT_SUSPENDED, "killed", 1, true },
    { "tenant suspended before HELLO", CREATE_MADE, SUSPENDED, ERR_TENANT_SUSPENDED, "killed", 1, true },
    { "tenant suspended before CLAIMED", CREATE_GREETED, SUSPENDED, ERR_TENANT_SUSPENDED, "killed", 1, true },
    { "tenant suspended before it is kept", CREATE_CLAIMED, SUSPENDED, ERR_TENANT_SUSPENDED, "killed", 1, true },
};

static void cause_failure(struct scene *s, enum cause cause, enum create_step step, struct sandbox_answer *deleted)
{
    switch (cause) {
    case JAILER_REFUSES:
        jailer_error(&s->k, ERR_SYS, "refused");
        break;
    case JAILER_LOST:
        jailer_is_lost(s);
        break;
    case RUNTIME_DIES:
        runtime_dies(s);
        break;
    case RUNTIME_REFUSES:
        runtime_error(&s->k, 0, ERR_DENIED, "refused");
        break;
    case NO_ANSWER:
        advance(s, 20000);
        break;
    case DELETED:
        manager_delete(s->m, ME, BOX, on_sandbox, deleted);
        break;
    case SUSPENDED:
        suspend(s, ME);
        break;
    }
    if (step == CREATE_ASKED && (cause == DELETED || cause == SUSPENDED))
        jailer_made(s); /* the answer to J_CREATE comes too late */
}

TEST(a_creation_that_fails_at_any_step_leaves_nothing_and_is_answered_once)
{
    for (size_t i = 0; i < ARRAY_LEN(failures); i++) {
        struct scene s;
        struct sandbox_answer a, deleted = { 0 };

        scene_open(&s);
        create_to(&s, failures[i].step, &a);
        cause_failure(&s, failures[i].cause, failures[i].step, &deleted);
        int destroyed = obey_until(&s, &a.n);
        settle(&s);
        struct sandbox_answer row;
        read_sandbox(&s, BOX, &row);
        if (a.n != 1 || a.err.id != failures[i].id || destroyed != failures[i].destroyed ||
            row.state != STORE_SANDBOX_ENDED || !str_eq(row.ended_by, failures[i].ended_by) ||
            s.ends != failures[i].reported)
            fail_msg("%s: %d answers, error %d (%s), %d destroyed, row %d '%s', %d ends", failures[i].name, a.n,
                     (int)a.err.id, a.err.msg, destroyed, (int)row.state, row.ended_by, s.ends);
        assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
        assert_int_equal(quota_used(&s, ME, STORE_QUOTA_MEMORY), 0);
        assert_false(manager_sandbox_is_live(s.m, ME, BOX));
        if (failures[i].cause == DELETED) {
            assert_int_equal(deleted.n, 1);
            assert_int_equal(deleted.err.id, 0);
            assert_int_equal(deleted.state, STORE_SANDBOX_ENDED);
        }
        scene_close(&s);
    }
}

TEST(after_a_lost_jailer_the_next_one_creates_again)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    create_to(&s, CREATE_MADE, &a);
    jailer_is_lost(&s);
    answered(&s, &a.n);
    create_as(&s, ME, OTHER_BOX, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_BUSY); /* not connected again yet */
    advance(&s, 5000);
    assert_int_equal(s.connects, 2);
    create_as(&s, ME, OTHER_BOX, &a);
    expect(&s, FRAME_J_CREATE);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    scene_close(&s);
}

TEST(a_row_that_the_store_refuses_fails_the_creation_and_removes_the_sandbox)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    store_refuse(SANDBOX_INSERT, 1);
    create_to(&s, CREATE_ASKED, &a);
    settle(&s);
    assert_store_refused();
    assert_int_equal(a.n, 0); /* the sandbox is not removed yet */
    jailer_made(&s);
    assert_int_equal(obey_until(&s, &a.n), 1);
    settle(&s);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_STORE_FAILED);
    read_sandbox(&s, BOX, &a);
    assert_int_equal(a.err.id, ERR_MISSING);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_sandbox_whose_state_cannot_be_stored_is_removed)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    create_to(&s, CREATE_CLAIMED, &a);
    store_refuse(SANDBOX_STATE_UPDATE, 1);
    jailer_ok(&s.k);
    assert_int_equal(obey_until(&s, &a.n), 1);
    settle(&s);
    assert_store_refused();
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_STORE_FAILED);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "");
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_failed_creation_is_answered_when_its_end_is_committed_after_a_retry)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    create_to(&s, CREATE_ASKED, &a);
    store_refuse(SANDBOX_STATE_UPDATE, 2);
    jailer_error(&s.k, ERR_SYS, "refused");
    settle(&s);
    assert_int_equal(a.n, 0);
    advance(&s, 1000);
    assert_int_equal(a.n, 0);
    assert_store_refused();
    advance(&s, 1000);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_SYS);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "");
    scene_close(&s);
}

/* --- members of pools --- */

static char assigned_id[ID_SIZE];
static int assigned;

static void on_id_assigned(void *arg UNUSED, const char *id)
{
    assigned++;
    str_copy(assigned_id, sizeof(assigned_id), id);
}

/* Waits for J_CREATE of this sandbox; others are those of the pool. */
static void expect_create_of(struct scene *s, const char *id)
{
    struct jail_create m;

    do {
        expect(s, FRAME_J_CREATE);
        assert_int_equal(jail_create_decode(&got.f, &m, NULL), 0);
    } while (!str_eq(m.id, id));
    s->create_stream = got.f.stream;
}

/* A pool of the usual spec with one member that waits. Its id is written to member. */
static void open_with_member(struct scene *s, char member[ID_SIZE])
{
    struct sandbox_spec like;
    struct jail_create m;
    struct pool_info info;
    struct spec spec;
    struct err err = { 0 };

    scene_open_with(s, &(struct scene_settings){ .with_pools = true });
    scene_spec(&spec);
    spec_fill_sandbox_spec(&spec, &like);
    if (pools_put(s->pools, "p", &like, &(struct pool_settings){ .min = 1, .max = 1 }, &err) < 0)
        fail_msg("%s", err.msg);
    spec_done(&spec);
    expect(s, FRAME_J_CREATE);
    assert_int_equal(jail_create_decode(&got.f, &m, NULL), 0);
    memcpy(member, m.id, ID_SIZE);
    jailer_made(s);
    runtime_greets(s);
    assert_true(pools_get(s->pools, "p", &info));
    assert_int_equal(info.size, 1);
    assigned = 0;
}

/* Creates a sandbox that may be a member. */
static void create_any(struct scene *s, struct sandbox_answer *a)
{
    struct spec spec;

    scene_spec(&spec);
    *a = (struct sandbox_answer){ 0 };
    manager_create(s->m, ME, NULL, &spec, NULL, on_id_assigned, on_sandbox, a);
}

TEST(a_pool_member_is_claimed_under_its_own_id)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;
    struct pool_info info;

    open_with_member(&s, member);
    create_any(&s, &a);
    expect_runtime(&s, FRAME_CLAIM);
    assert_int_equal(assigned, 1);
    assert_string_equal(assigned_id, member);
    runtime_claimed(&s.k, ALL_INSIDE, 3);
    expect(&s, FRAME_J_KEEP);
    jailer_ok(&s.k);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_string_equal(a.id, member);
    assert_true(pools_get(s.pools, "p", &info));
    assert_int_equal(info.hits, 1);
    scene_close(&s);
}

TEST(a_request_that_insists_on_its_id_does_not_take_a_pool_member)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;

    open_with_member(&s, member);
    create_as(&s, ME, BOX, &a);
    expect_create_of(&s, BOX);
    expect_no_runtime(&s, FRAME_CLAIM);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &a.n);
    assert_string_equal(a.id, BOX);
    scene_close(&s);
}

/* Creates a sandbox from a member that dies when it is claimed; returns at the J_CREATE of its
 * replacement. */
static void replace_member(struct scene *s, char member[ID_SIZE], struct sandbox_answer *a)
{
    open_with_member(s, member);
    create_any(s, a);
    expect_runtime(s, FRAME_CLAIM);
    runtime_dies(s);
    expect(s, FRAME_J_DESTROY);
    jailer_stats(&s->k, &zero_stats);
    expect_create_of(s, member);
    assert_int_equal(a->n, 0);
}

TEST(a_pool_member_that_dies_before_the_claim_is_replaced_once)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;

    replace_member(&s, member, &a);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    assert_string_equal(a.id, member);
    assert_int_equal(assigned, 1);
    assert_int_equal(s.ends, 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    scene_close(&s);
}

TEST(a_replacement_that_dies_too_is_an_error)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;

    replace_member(&s, member, &a);
    create_continue(&s, CREATE_GREETED);
    runtime_dies(&s);
    assert_true(obey_until(&s, &a.n) >= 1);
    settle(&s);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_LOST);
    assert_sandbox(&s, member, STORE_SANDBOX_ENDED, "lost");
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    scene_close(&s);
}

TEST(a_pool_member_that_refuses_the_claim_is_not_replaced)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;

    open_with_member(&s, member);
    create_any(&s, &a);
    expect_runtime(&s, FRAME_CLAIM);
    runtime_error(&s.k, 0, ERR_DENIED, "no Landlock");
    assert_true(obey_until(&s, &a.n) >= 1);
    settle(&s);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_DENIED);
    assert_sandbox(&s, member, STORE_SANDBOX_ENDED, "");
    scene_close(&s);
}

TEST(a_pool_member_is_not_replaced_when_the_jailer_is_lost)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a;

    open_with_member(&s, member);
    create_any(&s, &a);
    expect_runtime(&s, FRAME_CLAIM);
    jailer_is_lost(&s);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_LOST);
    assert_sandbox(&s, member, STORE_SANDBOX_ENDED, "lost");
    scene_close(&s);
}

TEST(a_pool_member_whose_creation_is_deleted_is_not_replaced)
{
    char member[ID_SIZE];
    struct scene s;
    struct sandbox_answer a, deleted = { 0 };

    open_with_member(&s, member);
    create_any(&s, &a);
    expect_runtime(&s, FRAME_CLAIM);
    manager_delete(s.m, ME, member, on_sandbox, &deleted);
    runtime_dies(&s);
    obey_until(&s, &deleted.n);
    settle(&s);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.err.id, ERR_SANDBOX_ENDED);
    assert_int_equal(deleted.n, 1);
    assert_sandbox(&s, member, STORE_SANDBOX_ENDED, "killed");
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_row_precedes_the_sandbox_and_running_follows_it),
        RUN(an_id_that_is_in_use_is_refused_and_the_first_creation_continues),
        RUN(creations_beyond_the_concurrency_limit_wait_their_turn),
        RUN(a_creation_that_waits_for_its_turn_can_be_deleted),
        RUN(a_creation_that_waits_for_its_turn_fails_when_the_jailer_is_lost),
        RUN(a_creation_that_fails_at_any_step_leaves_nothing_and_is_answered_once),
        RUN(after_a_lost_jailer_the_next_one_creates_again),
        RUN(a_row_that_the_store_refuses_fails_the_creation_and_removes_the_sandbox),
        RUN(a_sandbox_whose_state_cannot_be_stored_is_removed),
        RUN(a_failed_creation_is_answered_when_its_end_is_committed_after_a_retry),
        RUN(a_pool_member_is_claimed_under_its_own_id),
        RUN(a_request_that_insists_on_its_id_does_not_take_a_pool_member),
        RUN(a_pool_member_that_dies_before_the_claim_is_replaced_once),
        RUN(a_replacement_that_dies_too_is_an_error),
        RUN(a_pool_member_that_refuses_the_claim_is_not_replaced),
        RUN(a_pool_member_is_not_replaced_when_the_jailer_is_lost),
        RUN(a_pool_member_whose_creation_is_deleted_is_not_replaced),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
