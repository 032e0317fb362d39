/* Requests to a sandbox in each of its states, and the ends of a sandbox. */
#include "tests/unit/service/scene_rows.h"

enum op { PAUSE, RESUME, UPDATE, USAGE, ACQUIRE };
#define OPS 5

static const char *const op_names[OPS] = { "pause", "resume", "update", "usage", "acquire" };
static const uint8_t op_frames[OPS] = { FRAME_J_FREEZE, FRAME_J_THAW, FRAME_J_SET_LIMITS, FRAME_J_STATS, 0 };

struct op_answer {
    struct sandbox_answer row; /* n and err are used by all kinds */
    uint64_t memory;
    struct sandbox_handle *handle;
};

static void on_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    struct op_answer *a = arg;

    a->row.n++;
    assert_true(!u != !err);
    a->row.err = err ? *err : (struct err){ 0 };
    a->memory = u ? u->memory : 0;
}

static void on_acquired(void *arg, struct sandbox_handle *handle, const struct err *err)
{
    struct op_answer *a = arg;

    a->row.n++;
    a->row.err = err ? *err : (struct err){ 0 };
    a->handle = handle;
}

static void request_as(struct scene *s, const char *owner, const char *id, enum op op, struct op_answer *a)
{
    *a = (struct op_answer){ 0 };
    switch (op) {
    case PAUSE:
        manager_pause(s->m, owner, id, on_sandbox, &a->row);
        break;
    case RESUME:
        manager_resume(s->m, owner, id, on_sandbox, &a->row);
        break;
    case UPDATE:
        manager_update(s->m, owner, id, &(struct sandbox_update){ .lifetime_ms = 3600000 }, on_sandbox, &a->row);
        break;
    case USAGE:
        manager_sandbox_usage(s->m, owner, id, on_usage, a);
        break;
    case ACQUIRE:
        manager_acquire_sandbox(s->m, owner, id, on_acquired, a);
        break;
    }
}

static void request(struct scene *s, enum op op, struct op_answer *a)
{
    request_as(s, ME, BOX, op, a);
}

/* The jailer answers the request that it received last. */
static void grant(struct scene *s, enum op op)
{
    if (op == USAGE)
        jailer_stats(&s->k, &(struct jail_stats){ .memory = 77 });
    else
        jailer_ok(&s->k);
}

/* Performs a request that succeeds. */
static void perform(struct scene *s, enum op op)
{
    struct op_answer a;

    request(s, op, &a);
    expect(s, op_frames[op]);
    grant(s, op);
    answered(s, &a.row.n);
    assert_int_equal(a.row.err.id, 0);
}

TEST(requests_to_a_sandbox_that_does_not_run_are_refused)
{
    enum { UNKNOWN, INVALID, FOREIGN, CREATING, ENDING, ENDED, STATES };
    static const enum err_id refusals[STATES] = {
        [UNKNOWN] = ERR_MISSING, [INVALID] = ERR_MISSING,      [FOREIGN] = ERR_MISSING,
        [CREATING] = ERR_EXISTS, [ENDING] = ERR_SANDBOX_ENDED, [ENDED] = ERR_SANDBOX_ENDED
    };
    struct sandbox_answer created, deleted = { 0 };
    struct scene s;

    scene_open(&s);
    for (int phase = 0; phase < STATES; phase++) {
        if (phase == CREATING)
            create_to(&s, CREATE_CLAIMED, &created);
        if (phase == ENDING) {
            jailer_ok(&s.k);
            answered(&s, &created.n);
            manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
            expect(&s, FRAME_J_DESTROY);
        }
        if (phase == ENDED) {
            jailer_stats(&s.k, &zero_stats);
            answered(&s, &deleted.n);
        }
        for (int op = 0; op < OPS; op++) {
            struct op_answer a;

            request_as(&s, phase == FOREIGN ? "other" : ME,
                       phase == INVALID   ? "sb"
                       : phase == UNKNOWN ? OTHER_BOX
                                          : BOX,
                       (enum op)op, &a);
            turn_until(&s.k, &a.row.n);
            if (a.row.n != 1 || a.row.err.id != refusals[phase])
                fail_msg("%s in state %d: %d answers, error %d: %s", op_names[op], phase, a.row.n, (int)a.row.err.id,
                         a.row.err.msg);
        }
    }
    scene_close(&s);
}

TEST(a_request_of_another_tenant_sees_no_sandbox)
{
    struct scene s;
    struct sandbox_answer deleted = { 0 };

    scene_open(&s);
    create_running(&s);
    for (int op = 0; op < OPS; op++) {
        struct op_answer a;

        request_as(&s, "other", BOX, (enum op)op, &a);
        answered(&s, &a.row.n);
        assert_int_equal(a.row.err.id, ERR_MISSING);
    }
    manager_delete(s.m, "other", BOX, on_sandbox, &deleted);
    answered(&s, &deleted.n);
    assert_int_equal(deleted.err.id, ERR_MISSING);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    assert_false(manager_sandbox_is_live(s.m, "other", BOX));
    scene_close(&s);
}

TEST(a_sandbox_is_paused_and_resumed_by_the_jailer_and_in_its_row)
{
    struct scene s;
    struct op_answer a;
    struct manager_stats stats;

    scene_open(&s);
    create_running(&s);
    request(&s, PAUSE, &a);
    expect(&s, FRAME_J_FREEZE);
    settle(&s);
    assert_int_equal(a.row.n, 0);
    jailer_ok(&s.k);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.state, STORE_SANDBOX_PAUSED);
    assert_sandbox(&s, BOX, STORE_SANDBOX_PAUSED, "");
    manager_stats(s.m, &stats);
    assert_int_equal(stats.paused, 1);
    request(&s, PAUSE, &a); /* again: nothing to do for the jailer */
    answered(&s, &a.row.n);
    assert_int_equal(a.row.state, STORE_SANDBOX_PAUSED);
    expect_no(&s, FRAME_J_FREEZE);
    request(&s, ACQUIRE, &a);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.err.id, ERR_SANDBOX_PAUSED);
    perform(&s, UPDATE);
    perform(&s, USAGE);
    perform(&s, RESUME);
    assert_sandbox(&s, BOX, STORE_SANDBOX_RUNNING, "");
    request(&s, RESUME, &a);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.state, STORE_SANDBOX_RUNNING);
    expect_no(&s, FRAME_J_THAW);
    scene_close(&s);
}

TEST(a_sandbox_without_a_network_gets_none_by_an_update)
{
    struct sandbox_update rules = { .sets_network = true,
                                    .lifetime_ms = 3600000,
                                    .network = { NETWORK_EGRESS, "allow pypi.org" } };
    struct sandbox_update none = { .sets_network = true };
    struct sandbox_answer before, after;
    struct op_answer a = { 0 };
    struct scene s;

    scene_open(&s);
    create_running(&s);
    read_sandbox(&s, BOX, &before);
    manager_update(s.m, ME, BOX, &rules, on_sandbox, &a.row);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.err.id, ERR_NETWORK_NOT_ENABLED);
    expect_no(&s, FRAME_J_SET_LIMITS); /* nothing of the update is applied */
    a = (struct op_answer){ 0 };
    manager_update(s.m, ME, BOX, &none, on_sandbox, &a.row);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.err.id, 0);
    read_sandbox(&s, BOX, &after);
    assert_true(before.expires_ms == after.expires_ms);
    scene_close(&s);
}

static void on_connections(void *arg, const struct egress_listed *l, const struct err *err)
{
    struct op_answer *a = arg;

    a->row.n++;
    assert_null(err);
    assert_int_equal(l->n, 0);
}

TEST(a_sandbox_without_a_network_has_no_connections)
{
    struct op_answer a = { 0 };
    struct scene s;

    scene_open(&s);
    create_running(&s);
    manager_sandbox_connections(s.m, ME, BOX, on_connections, &a);
    answered(&s, &a.row.n);
    scene_close(&s);
}

TEST(usage_and_a_new_lifetime_are_returned)
{
    struct scene s;
    struct op_answer a;
    struct sandbox_answer before, after;

    scene_open(&s);
    create_running(&s);
    read_sandbox(&s, BOX, &before);
    request(&s, USAGE, &a);
    expect(&s, FRAME_J_STATS);
    grant(&s, USAGE);
    answered(&s, &a.row.n);
    assert_int_equal(a.memory, 77);
    perform(&s, UPDATE);
    read_sandbox(&s, BOX, &after);
    assert_true(after.expires_ms > before.expires_ms + 3000000);
    scene_close(&s);
}

TEST(requests_run_one_after_another)
{
    struct scene s;
    struct op_answer pause, resume, usage;

    scene_open(&s);
    create_running(&s);
    request(&s, PAUSE, &pause);
    request(&s, RESUME, &resume);
    request(&s, USAGE, &usage);
    expect(&s, FRAME_J_FREEZE);
    uint32_t freeze = got.f.stream;
    expect_no(&s, FRAME_J_THAW);
    put(s.k.jailer, FRAME_J_OK, 0, freeze, NULL, 0);
    expect(&s, FRAME_J_THAW);
    assert_int_equal(pause.row.n, 1);
    uint32_t thaw = got.f.stream;
    expect_no(&s, FRAME_J_STATS);
    put(s.k.jailer, FRAME_J_OK, 0, thaw, NULL, 0);
    expect(&s, FRAME_J_STATS);
    assert_int_equal(resume.row.n, 1);
    grant(&s, USAGE);
    answered(&s, &usage.row.n);
    assert_int_equal(pause.row.n + resume.row.n, 2);
    scene_close(&s);
}

/* Interruptions of a request that waits for the jailer. */
enum interruption { REFUSED, LOST, DELETED, RUNTIME_DIED, STOPPED };

TEST(a_request_that_is_interrupted_is_answered_once_with_an_error)
{
    static const struct {
        enum interruption by;
        enum err_id id;
    } rows[] = { { REFUSED, ERR_SYS },
                 { LOST, ERR_LOST },
                 { DELETED, ERR_SANDBOX_ENDED },
                 { RUNTIME_DIED, ERR_SANDBOX_ENDED },
                 { STOPPED, ERR_BUSY } };

    for (int op = PAUSE; op < ACQUIRE; op++)
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
            struct scene s;
            struct op_answer a;
            struct sandbox_answer deleted = { 0 };

            scene_open(&s);
            create_running(&s);
            if (op == RESUME)
                perform(&s, PAUSE);
            request(&s, (enum op)op, &a);
            expect(&s, op_frames[op]);
            if (rows[i].by == REFUSED)
                jailer_error(&s.k, ERR_SYS, "refused");
            else if (rows[i].by == LOST)
                jailer_is_lost(&s);
            else if (rows[i].by == DELETED)
                manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
            else if (rows[i].by == RUNTIME_DIED)
                runtime_dies(&s);
            else
                manager_finish(s.m);
            obey_until(&s, &a.row.n);
            settle(&s);
            if (a.row.n != 1 || a.row.err.id != rows[i].id)
                fail_msg("%s, interruption %d: %d answers, error %d: %s", op_names[op], (int)rows[i].by, a.row.n,
                         (int)a.row.err.id, a.row.err.msg);
            if (rows[i].by == REFUSED) /* the sandbox is as before */
                assert_sandbox(&s, BOX, op == RESUME ? STORE_SANDBOX_PAUSED : STORE_SANDBOX_RUNNING, "");
            scene_close(&s);
        }
}

TEST(a_pause_that_the_store_refuses_is_an_error_and_can_be_undone)
{
    struct scene s;
    struct op_answer a;

    scene_open(&s);
    create_running(&s);
    store_refuse(SANDBOX_STATE_UPDATE, 1);
    request(&s, PAUSE, &a);
    expect(&s, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    answered(&s, &a.row.n);
    assert_store_refused();
    assert_int_equal(a.row.err.id, ERR_STORE_FAILED);
    perform(&s, RESUME); /* the jailer did pause it */
    assert_sandbox(&s, BOX, STORE_SANDBOX_RUNNING, "");
    scene_close(&s);
}

/* --- idleness and lifetime --- */

static void create_with_limit(struct scene *s, enum limit limit, uint64_t ms, enum idle_action action)
{
    struct spec spec;

    scene_spec(&spec);
    spec.limits.v[limit] = ms;
    spec.limits.v[LIMIT_WALL] = limit == LIMIT_LIFETIME ? ms : spec.limits.v[LIMIT_WALL];
    spec.idle_action = action;
    create_running_spec(s, &spec);
}

/* The jailer ends the sandbox, and its row says why. */
static void assert_ends_by(struct scene *s, const char *cause)
{
    assert_int_equal(obey_until(s, &s->ends), 1);
    settle(s);
    assert_sandbox(s, BOX, STORE_SANDBOX_ENDED, cause);
    assert_int_equal(s->ends, 1);
    assert_int_equal(quota_used(s, ME, STORE_QUOTA_SANDBOXES), 0);
}

TEST(an_idle_sandbox_ends_and_use_of_it_restarts_the_clock)
{
    struct scene s;
    struct op_answer a;

    scene_open(&s);
    create_with_limit(&s, LIMIT_IDLE, 1000, IDLE_END);
    advance(&s, 900);
    request(&s, ACQUIRE, &a);
    answered(&s, &a.row.n);
    assert_non_null(a.handle);
    advance(&s, 5000); /* it is in use */
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    manager_release_sandbox(s.m, BOX);
    advance(&s, 900);
    perform(&s, USAGE); /* reading usage is not use */
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    advance(&s, 200);
    assert_false(manager_sandbox_is_live(s.m, ME, BOX));
    assert_ends_by(&s, "idle");
    assert_int_equal(s.end_cause, ENDED_IDLE);
    scene_close(&s);
}

TEST(a_running_execution_keeps_a_sandbox_from_being_idle)
{
    struct scene s;

    scene_open(&s);
    create_with_limit(&s, LIMIT_IDLE, 1000, IDLE_END);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    advance(&s, 5000);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    advance(&s, 1100);
    assert_ends_by(&s, "idle");
    scene_close(&s);
}

TEST(a_sandbox_that_is_paused_for_idleness_is_resumed_by_its_next_use)
{
    struct scene s;
    struct op_answer a;

    scene_open(&s);
    create_with_limit(&s, LIMIT_IDLE, 1000, IDLE_PAUSE);
    advance(&s, 1100);
    expect(&s, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    assert_sandbox(&s, BOX, STORE_SANDBOX_PAUSED, "");
    request(&s, ACQUIRE, &a);
    expect(&s, FRAME_J_THAW);
    settle(&s);
    assert_int_equal(a.row.n, 0);
    jailer_ok(&s.k);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.err.id, 0);
    assert_non_null(a.handle);
    assert_sandbox(&s, BOX, STORE_SANDBOX_RUNNING, "");
    scene_close(&s);
}

TEST(a_request_to_pause_replaces_a_pause_for_idleness)
{
    struct scene s;
    struct op_answer a;

    scene_open(&s);
    create_with_limit(&s, LIMIT_IDLE, 1000, IDLE_PAUSE);
    advance(&s, 1100);
    expect(&s, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    settle(&s);
    request(&s, PAUSE, &a);
    answered(&s, &a.row.n);
    request(&s, ACQUIRE, &a);
    answered(&s, &a.row.n);
    assert_int_equal(a.row.err.id, ERR_SANDBOX_PAUSED);
    scene_close(&s);
}

TEST(the_lifetime_ends_a_sandbox_and_an_extension_moves_it)
{
    struct scene s;

    scene_open(&s);
    create_with_limit(&s, LIMIT_LIFETIME, 5000, IDLE_END);
    advance(&s, 4000);
    perform(&s, UPDATE);
    advance(&s, 3000000);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    advance(&s, 700000);
    expect(&s, FRAME_J_KILL);
    jailer_ok(&s.k);
    assert_ends_by(&s, "lifetime");
    scene_close(&s);
}

TEST(a_sandbox_whose_runtime_dies_is_lost)
{
    struct scene s;

    scene_open(&s);
    create_running(&s);
    runtime_dies(&s);
    assert_ends_by(&s, "lost");
    assert_int_equal(s.end_cause, ENDED_LOST);
    scene_close(&s);
}

TEST(a_lost_jailer_loses_all_sandboxes_and_a_paused_one_too)
{
    struct scene s;

    scene_open(&s);
    create_running(&s);
    perform(&s, PAUSE);
    jailer_is_lost(&s);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "lost");
    assert_int_equal(s.ends, 1);
    assert_int_equal(live_sandboxes(&s), 0);
    scene_close(&s);
}

/* --- deletion --- */

TEST(deletions_of_one_sandbox_are_all_answered_by_its_one_end)
{
    struct scene s;
    struct sandbox_answer first = { 0 }, second = { 0 }, late = { 0 };

    scene_open(&s);
    create_running(&s);
    manager_delete(s.m, ME, BOX, on_sandbox, &first);
    expect(&s, FRAME_J_DESTROY);
    manager_delete(s.m, ME, BOX, on_sandbox, &second);
    settle(&s);
    assert_int_equal(first.n + second.n, 0);
    jailer_stats(&s.k, &zero_stats);
    answered(&s, &first.n);
    assert_int_equal(second.n, 1);
    assert_int_equal(first.state, STORE_SANDBOX_ENDED);
    assert_string_equal(second.ended_by, "killed");
    manager_delete(s.m, ME, BOX, on_sandbox, &late);
    answered(&s, &late.n);
    assert_int_equal(late.err.id, 0);
    assert_int_equal(late.state, STORE_SANDBOX_ENDED);
    expect_no(&s, FRAME_J_DESTROY);
    assert_int_equal(s.ends, 0); /* its owner knows */
    scene_close(&s);
}

static void on_subscription(void *arg, const struct err *ended)
{
    int *calls = arg;

    calls[ended ? 1 : 0]++;
}

TEST(a_refused_end_is_reported_retried_and_committed_once)
{
    struct scene s;
    struct sandbox_answer first = { 0 }, second = { 0 };
    int calls[2] = { 0, 0 };
    struct err err = { 0 };

    scene_open(&s);
    create_running(&s);
    auto_(sandbox_subscription) watch = sandbox_subscribe(s.m, ME, BOX, on_subscription, calls, &err);
    assert_non_null(watch);
    store_refuse(SANDBOX_STATE_UPDATE, 1);
    manager_delete(s.m, ME, BOX, on_sandbox, &first);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &zero_stats);
    answered(&s, &first.n);
    assert_store_refused();
    assert_int_equal(first.err.id, ERR_STORE_FAILED);
    assert_int_equal(calls[1], 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 1);
    manager_delete(s.m, ME, BOX, on_sandbox, &second);
    settle(&s);
    assert_int_equal(second.n, 0);
    advance(&s, 1000);
    answered(&s, &second.n);
    assert_int_equal(second.err.id, 0);
    assert_string_equal(second.ended_by, "killed");
    assert_int_equal(calls[1], 1);
    assert_int_equal(first.n, 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_SANDBOXES), 0);
    expect_no(&s, FRAME_J_DESTROY);
    scene_close(&s);
}

TEST(subscribers_see_pauses_and_the_end)
{
    struct scene s;
    int calls[2] = { 0, 0 };
    struct err err = { 0 };

    scene_open(&s);
    assert_null(sandbox_subscribe(s.m, ME, BOX, on_subscription, calls, &err));
    assert_int_equal(err.id, ERR_MISSING);
    create_running(&s);
    auto_(sandbox_subscription) watch = sandbox_subscribe(s.m, ME, BOX, on_subscription, calls, &err);
    assert_int_equal(sandbox_subscription_state(watch), STORE_SANDBOX_RUNNING);
    perform(&s, PAUSE);
    assert_int_equal(calls[0], 1);
    assert_int_equal(sandbox_subscription_state(watch), STORE_SANDBOX_PAUSED);
    perform(&s, RESUME);
    assert_int_equal(calls[0], 2);
    delete_sandbox(&s, BOX);
    assert_int_equal(calls[0], 2);
    assert_int_equal(calls[1], 1);
    assert_int_equal(sandbox_subscription_state(watch), STORE_SANDBOX_ENDED);
    assert_null(sandbox_subscription_spec(watch));
    scene_close(&s);
}

TEST(a_stop_of_the_server_answers_a_creation_and_a_deletion_once)
{
    struct scene s;
    struct sandbox_answer created, deleted = { 0 };

    scene_open(&s);
    create_to(&s, CREATE_CLAIMED, &created);
    manager_delete(s.m, ME, BOX, on_sandbox, &deleted);
    manager_finish(s.m);
    settle(&s);
    assert_int_equal(created.n, 1);
    assert_int_equal(created.err.id, ERR_BUSY);
    assert_int_equal(deleted.n, 1);
    assert_int_equal(deleted.err.id, ERR_BUSY);
    scene_close(&s);
    assert_int_equal(created.n + deleted.n, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(requests_to_a_sandbox_that_does_not_run_are_refused),
        RUN(a_request_of_another_tenant_sees_no_sandbox),
        RUN(a_sandbox_is_paused_and_resumed_by_the_jailer_and_in_its_row),
        RUN(a_sandbox_without_a_network_gets_none_by_an_update),
        RUN(a_sandbox_without_a_network_has_no_connections),
        RUN(usage_and_a_new_lifetime_are_returned),
        RUN(requests_run_one_after_another),
        RUN(a_request_that_is_interrupted_is_answered_once_with_an_error),
        RUN(a_pause_that_the_store_refuses_is_an_error_and_can_be_undone),
        RUN(an_idle_sandbox_ends_and_use_of_it_restarts_the_clock),
        RUN(a_running_execution_keeps_a_sandbox_from_being_idle),
        RUN(a_sandbox_that_is_paused_for_idleness_is_resumed_by_its_next_use),
        RUN(a_request_to_pause_replaces_a_pause_for_idleness),
        RUN(the_lifetime_ends_a_sandbox_and_an_extension_moves_it),
        RUN(a_sandbox_whose_runtime_dies_is_lost),
        RUN(a_lost_jailer_loses_all_sandboxes_and_a_paused_one_too),
        RUN(deletions_of_one_sandbox_are_all_answered_by_its_one_end),
        RUN(a_refused_end_is_reported_retried_and_committed_once),
        RUN(subscribers_see_pauses_and_the_end),
        RUN(a_stop_of_the_server_answers_a_creation_and_a_deletion_once),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
