/* The engine and a scripted monitor: when the monitor is asked, how long its answer is awaited,
 * and what a receipt may claim. */
#include "fake.h"

static int monitor; /* the monitor's end of its socket */

static void monitor_comes(struct fake *k)
{
    struct err err = { 0 };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    monitor = pair[1];
    assert_int_equal(engine_set_monitor(k->engine, pair[0], &err), 0);
}

static void scene_watched(struct fake *k, const struct exec_spec *spec)
{
    scene_ready(k);
    monitor_comes(k);
    scene_running_with(k, spec);
}

static void scene_leave(struct fake *k)
{
    fd_close(&monitor);
    scene_end(k);
}

static void news(struct fake *k, enum jail_watched watched, bool refused)
{
    struct jail_denial_notice m = { .watched = (uint8_t)watched, .refused = refused };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(m.id, k->id, sizeof(m.id));
    int len = jail_denial_notice_encode(&m, out, NULL);
    put(monitor, FRAME_J_DENIAL_NOTICE, 0, 0, out, (size_t)len);
}

static void answer(uint32_t stream, const struct jail_denied *d)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    int len = jail_denied_encode(d, out, NULL);

    assert_true(len > 0);
    put(monitor, FRAME_J_DENIED, 0, stream, out, (size_t)len);
}

static const struct exec_spec plain_exec = { .argv = true_argv };
static const struct jail_denied two_mounts = { .watched = JAIL_WATCHED,
                                               .entries = { { .nr = 165, .count = 2 } },
                                               .n = 1 };

TEST(an_execution_without_denials_does_not_wait_for_the_monitor)
{
    struct fake k;

    scene_watched(&k, &plain_exec);
    news(&k, JAIL_WATCHED, false);
    turn(&k);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    silent(&k, monitor);
    assert_null(exec_handle_receipt(k.exec)->denials_why);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 0);
    scene_leave(&k);
}

/* The notice may be unread in its socket when the exit is seen. */
TEST(a_notice_that_came_before_the_exit_is_never_missed)
{
    struct fake k;

    scene_watched(&k, &plain_exec);
    news(&k, JAIL_WATCHED, false);
    turn(&k);
    news(&k, JAIL_WATCHED, true);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 0);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &two_mounts);
    turn(&k);
    assert_int_equal(k.exited, 1);
    const struct receipt *r = exec_handle_receipt(k.exec);
    assert_int_equal(r->ndenials, 1);
    assert_int_equal(r->denials[0].count, 2);
    assert_string_equal(r->denials[0].denial.name, "mount");
    scene_leave(&k);
}

TEST(the_monitor_is_asked_before_its_first_notice)
{
    struct fake k;
    struct jail_denied none = { .watched = JAIL_UNWATCHABLE, .sys = EBUSY };

    scene_watched(&k, &plain_exec);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 0);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &none);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "another program on this host"));
    scene_leave(&k);
}

/* A compromised monitor may send anything; the receipt must stay valid. */
TEST(shrinking_counts_do_not_underflow)
{
    struct fake k;
    struct exec_spec again = { .argv = true_argv };
    struct jail_denied many = {
        .watched = JAIL_WATCHED, .overflow_count = 9, .entries = { { .nr = 165, .count = 5 } }, .n = 1
    };
    struct jail_denied less = {
        .watched = JAIL_WATCHED, .overflow_count = 3, .entries = { { .nr = 165, .count = 4 } }, .n = 1
    };

    scene_watched(&k, &plain_exec);
    runtime_exit(&k, 0, 0);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &many);
    turn(&k);
    assert_int_equal(exec_handle_receipt(k.exec)->denials_more, 9);
    exec_handle_free(k.exec);
    k.exec = NULL;
    k.exited = k.started = 0;
    runtime_takes(&k, FRAME_CLOSE); /* of the stream that ended */
    scene_running_with(&k, &again);
    runtime_exit(&k, 0, 0);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &less);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 0);
    assert_int_equal(exec_handle_receipt(k.exec)->denials_more, 0);
    scene_leave(&k);
}

TEST(a_full_monitor_is_not_reported_as_a_missing_kernel_feature)
{
    struct fake k;
    struct jail_denied none = { .watched = JAIL_UNWATCHED };

    scene_watched(&k, &plain_exec);
    runtime_exit(&k, 0, 0);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &none);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "its maximum of sandboxes"));
    scene_leave(&k);
}

TEST(a_monitor_that_dies_during_a_request_lets_the_execution_end)
{
    struct fake k;

    scene_watched(&k, &plain_exec);
    news(&k, JAIL_WATCHED, true);
    turn(&k);
    runtime_exit(&k, 0, 0);
    take(monitor, FRAME_J_DENIALS);
    fd_close(&monitor);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.lost, 0);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "lost"));
    scene_leave(&k);
}

/* Denials between the launch and the connection of the monitor are not counted, and "unknown" is
 * not an empty list. */
TEST(an_execution_older_than_the_monitor_has_no_denial_count)
{
    struct fake k;

    scene_ready(&k);
    scene_running_with(&k, &plain_exec);
    monitor_comes(&k);
    news(&k, JAIL_WATCHED, false);
    turn(&k);
    runtime_exit(&k, 0, 0);
    assert_int_equal(k.exited, 1);
    assert_non_null(exec_handle_receipt(k.exec)->denials_why);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "not available for a part"));
    scene_leave(&k);
}

TEST(the_wait_for_a_silent_monitor_has_a_limit)
{
    struct fake k;

    scene_watched(&k, &plain_exec);
    news(&k, JAIL_WATCHED, true);
    turn(&k);
    runtime_exit(&k, 0, 0);
    uint64_t began = now_ms();
    turn_until(&k, &k.exited);
    assert_in_range(now_ms() - began, 3900, 60000);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "did not answer"));
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &two_mounts); /* too late, and ignored */
    turn(&k);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 0);
    scene_leave(&k);
}

/* The clock ends a program that sleeps in a denied call; only the monitor knows whether it does. */
TEST(the_monitor_is_asked_about_a_killed_execution_even_without_a_notice)
{
    struct fake k;
    struct exec_spec spec = { .argv = true_argv, .wall_ms = 30 };

    scene_watched(&k, &spec);
    news(&k, JAIL_WATCHED, false);
    for (uint64_t end = now_ms() + 60; now_ms() < end;)
        ev_turn(k.ev, 10);
    runtime_takes(&k, FRAME_SIGNAL);
    runtime_exit(&k, -1, SIGKILL);
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &two_mounts);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_TIMEOUT);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 1);
    scene_leave(&k);
}

/* An unprivileged process must not be able to answer for the jailer. */
TEST(a_monitor_cannot_answer_a_request_to_the_jailer)
{
    static const uint8_t types[] = { FRAME_J_OK, FRAME_J_DENIED, FRAME_J_ERROR, FRAME_J_EVENT, FRAME_DATA };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct fake k;

        scene_watched(&k, &plain_exec);
        sandbox_handle_freeze(k.box, on_done, &k);
        jailer_takes(&k, FRAME_J_FREEZE);
        put(monitor, types[i], 0, got.f.stream, NULL, 0);
        turn(&k);
        assert_int_equal(k.done, 0);
        assert_int_equal(k.lost, 0);
        jailer_ok(&k);
        assert_int_equal(k.done, 1);
        runtime_exit(&k, 0, 0);
        assert_int_equal(k.exited, 1);
        /* A process that violates the protocol is disconnected. */
        assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "lost"));
        scene_leave(&k);
    }
}

TEST(a_freed_sandbox_handle_is_unwatched_by_the_monitor)
{
    struct fake k;

    scene_watched(&k, &plain_exec);
    news(&k, JAIL_WATCHED, false);
    turn(&k);
    runtime_exit(&k, 0, 0);
    exec_handle_free(k.exec);
    sandbox_handle_free(k.box);
    k.exec = NULL;
    k.box = NULL;
    turn(&k);
    take(monitor, FRAME_J_UNWATCH);
    scene_leave(&k);
}

/* --- executions of a language kernel --- */

static void scene_kernel(struct fake *k)
{
    struct exec_spec spec = plain_exec;

    spec.is_language_kernel = true;
    scene_watched(k, &spec);
    news(k, JAIL_WATCHED, false);
    turn(k);
}

TEST(a_collection_without_denials_asks_nothing)
{
    struct fake k;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    assert_true(exec_handle_collect_denials(k.exec, false));
    silent(&k, monitor);
    assert_null(exec_handle_receipt(k.exec)->denials_why);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 0);
    assert_int_equal(k.collected, 0);
    scene_leave(&k);
}

TEST(each_collection_has_the_denials_since_its_mark_and_the_end_has_the_rest)
{
    struct fake k;
    struct jail_denied more = two_mounts;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    assert_false(exec_handle_collect_denials(k.exec, false)); /* the notice is unread in its socket */
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &two_mounts);
    assert_int_equal(k.collected, 0);
    turn(&k);
    assert_int_equal(k.collected, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->denials[0].count, 2);

    exec_handle_mark_denials(k.exec);
    assert_true(exec_handle_collect_denials(k.exec, false));
    assert_int_equal(exec_handle_receipt(k.exec)->ndenials, 0);

    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    turn(&k);
    runtime_exit(&k, 0, 0);
    take(monitor, FRAME_J_DENIALS);
    more.entries[0].count = 5;
    answer(got.f.stream, &more);
    turn(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.collected, 1);
    assert_int_equal(exec_handle_receipt(k.exec)->denials[0].count, 3);
    scene_leave(&k);
}

TEST(a_collection_from_a_monitor_that_dies_ends_with_the_reason)
{
    struct fake k;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    assert_false(exec_handle_collect_denials(k.exec, false));
    take(monitor, FRAME_J_DENIALS);
    fd_close(&monitor);
    turn(&k);
    assert_int_equal(k.collected, 1);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "lost"));
    exec_handle_mark_denials(k.exec);
    assert_true(exec_handle_collect_denials(k.exec, false));
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "lost"));
    scene_leave(&k);
}

/* A late answer must not be that of the next collection, which may have more to report. */
TEST(a_collection_from_a_silent_monitor_has_a_limit)
{
    struct fake k;
    struct jail_denied more = two_mounts;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    assert_false(exec_handle_collect_denials(k.exec, false));
    turn_until(&k, &k.collected);
    assert_non_null(strstr(exec_handle_receipt(k.exec)->denials_why, "did not answer"));
    exec_handle_mark_denials(k.exec);
    assert_false(exec_handle_collect_denials(k.exec, false));
    take(monitor, FRAME_J_DENIALS);
    answer(got.f.stream, &two_mounts);
    turn(&k);
    assert_int_equal(k.collected, 1);
    take(monitor, FRAME_J_DENIALS);
    more.entries[0].count = 3;
    answer(got.f.stream, &more);
    turn(&k);
    assert_int_equal(k.collected, 2);
    assert_int_equal(exec_handle_receipt(k.exec)->denials[0].count, 3);
    scene_leave(&k);
}

TEST(a_sandbox_that_is_lost_ends_a_collection_before_its_execution)
{
    struct fake k;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    assert_false(exec_handle_collect_denials(k.exec, false));
    turn(&k);
    fd_close(&k.jailer);
    turn_until(&k, &k.exited);
    assert_int_equal(k.collected, 1);
    scene_leave(&k);
}

/* The owner may free the execution or the sandbox while the monitor is asked. */
TEST(a_freed_collection_is_not_reported)
{
    struct fake k;

    scene_kernel(&k);
    exec_handle_mark_denials(k.exec);
    news(&k, JAIL_WATCHED, true);
    assert_false(exec_handle_collect_denials(k.exec, false));
    take(monitor, FRAME_J_DENIALS);
    exec_handle_free(k.exec);
    sandbox_handle_free(k.box);
    k.exec = NULL;
    k.box = NULL;
    answer(got.f.stream, &two_mounts);
    turn(&k);
    assert_int_equal(k.collected, 0);
    scene_leave(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_execution_without_denials_does_not_wait_for_the_monitor),
        RUN(a_notice_that_came_before_the_exit_is_never_missed),
        RUN(the_monitor_is_asked_before_its_first_notice),
        RUN(shrinking_counts_do_not_underflow),
        RUN(a_full_monitor_is_not_reported_as_a_missing_kernel_feature),
        RUN(a_monitor_that_dies_during_a_request_lets_the_execution_end),
        RUN(an_execution_older_than_the_monitor_has_no_denial_count),
        RUN(the_wait_for_a_silent_monitor_has_a_limit),
        RUN(the_monitor_is_asked_about_a_killed_execution_even_without_a_notice),
        RUN(a_monitor_cannot_answer_a_request_to_the_jailer),
        RUN(a_freed_sandbox_handle_is_unwatched_by_the_monitor),
        RUN(a_collection_without_denials_asks_nothing),
        RUN(each_collection_has_the_denials_since_its_mark_and_the_end_has_the_rest),
        RUN(a_collection_from_a_monitor_that_dies_ends_with_the_reason),
        RUN(a_collection_from_a_silent_monitor_has_a_limit),
        RUN(a_sandbox_that_is_lost_ends_a_collection_before_its_execution),
        RUN(a_freed_collection_is_not_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
