#include "tests/unit/test.h"

#include "service/quota.h"

#define MINUTE 60000ull
#define START (100 * MINUTE + 30000)

static struct err_limit why;

static enum err_id take(struct tenant_quota *s, uint64_t sandboxes, uint64_t memory)
{
    uint64_t asked[STORE_QUOTA_COUNT] = { sandboxes, 0, memory, 0, 0 };
    struct err err = { 0 };

    int rc = quota_reserve(s, asked, &err);
    why = err.limit;
    return rc < 0 ? err.id : ERR_NONE;
}

static enum err_id run(struct tenant_quota *s, uint64_t at)
{
    struct err err = { 0 };

    int rc = quota_reserve_execution(s, at, &err);
    why = err.limit;
    return rc < 0 ? err.id : ERR_NONE;
}

TEST(a_reservation_takes_all_or_nothing_and_a_release_makes_room)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { 2, 0, 100, 0, 0 } };

    assert_int_equal(take(&s, 1, 60), ERR_NONE);
    assert_int_equal(take(&s, 1, 60), ERR_QUOTA);
    assert_string_equal(why.name, "memoryBytes");
    assert_int_equal(why.used, 60);
    assert_int_equal(why.requested, 60);
    assert_int_equal(why.max, 100);
    assert_int_equal(s.used[STORE_QUOTA_SANDBOXES], 1); /* nothing is reserved for the refused one */
    assert_int_equal(take(&s, 1, 40), ERR_NONE);
    assert_int_equal(take(&s, 1, 0), ERR_QUOTA);
    assert_string_equal(why.name, "sandboxes");
    quota_release(&s, (const uint64_t[STORE_QUOTA_COUNT]){ 1, 0, 60, 0, 0 });
    assert_int_equal(take(&s, 1, 60), ERR_NONE);
    assert_int_equal(take(&s, 1, UINT64_MAX), ERR_QUOTA); /* sums do not overflow */
}

TEST(a_lowered_quota_refuses_more_and_keeps_existing_use)
{
    struct tenant_quota s = { .tenant = "acme" };

    for (int i = 0; i < 5; i++)
        assert_int_equal(take(&s, 1, 0), ERR_NONE);
    s.limit[STORE_QUOTA_SANDBOXES] = 3;
    assert_int_equal(take(&s, 1, 0), ERR_QUOTA);
    assert_int_equal(s.used[STORE_QUOTA_SANDBOXES], 5);
    s.is_suspended = true;
    s.limit[STORE_QUOTA_SANDBOXES] = 0;
    assert_int_equal(take(&s, 1, 0), ERR_TENANT_SUSPENDED);
    assert_int_equal(run(&s, START), ERR_TENANT_SUSPENDED);
}

TEST(executions_expire_by_minute_and_the_reported_retry_time_suffices)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { [STORE_QUOTA_EXECUTIONS] = 3 } };

    assert_int_equal(run(&s, START), ERR_NONE);
    assert_int_equal(run(&s, START + 10 * MINUTE), ERR_NONE);
    assert_int_equal(run(&s, START + 10 * MINUTE), ERR_NONE);
    assert_int_equal(run(&s, START + 50 * MINUTE), ERR_QUOTA);
    assert_int_equal(why.used, 3);
    uint64_t until = START + 50 * MINUTE + why.retry_ms;
    assert_int_equal(run(&s, until - 1), ERR_QUOTA);
    assert_int_equal(run(&s, until), ERR_NONE); /* one expired, one was added */
    assert_int_equal(run(&s, until), ERR_QUOTA);
    assert_int_equal(quota_executions_last_hour(&s, until), 3);
    assert_int_equal(quota_executions_last_hour(&s, until + 11 * MINUTE), 1);
    assert_int_equal(quota_executions_last_hour(&s, until + 1000 * MINUTE), 0);
}

TEST(executions_before_a_restart_count_by_their_age)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { [STORE_QUOTA_EXECUTIONS] = 10 } };

    quota_add_past_executions(&s, START, 0, 2);
    quota_add_past_executions(&s, START, 59, 4);
    quota_add_past_executions(&s, START, 60, 100); /* too old */
    assert_int_equal(quota_executions_last_hour(&s, START), 6);
    assert_int_equal(quota_executions_last_hour(&s, START + MINUTE), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reservation_takes_all_or_nothing_and_a_release_makes_room),
        cmocka_unit_test(a_lowered_quota_refuses_more_and_keeps_existing_use),
        cmocka_unit_test(executions_expire_by_minute_and_the_reported_retry_time_suffices),
        cmocka_unit_test(executions_before_a_restart_count_by_their_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
