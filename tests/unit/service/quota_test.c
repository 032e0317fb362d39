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

TEST(all_or_nothing_is_taken_and_what_is_given_back_can_be_taken_again)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { 2, 0, 100, 0, 0 } };

    assert_int_equal(take(&s, 1, 60), ERR_NONE);
    assert_int_equal(take(&s, 1, 60), ERR_QUOTA);
    assert_string_equal(why.name, "memoryBytes");
    assert_int_equal(why.used, 60);
    assert_int_equal(why.requested, 60);
    assert_int_equal(why.limit, 100);
    assert_int_equal(s.used[STORE_QUOTA_SANDBOXES], 1); /* nothing of the one that was refused */
    assert_int_equal(take(&s, 1, 40), ERR_NONE);
    assert_int_equal(take(&s, 1, 0), ERR_QUOTA);
    assert_string_equal(why.name, "sandboxes");
    quota_release(&s, (const uint64_t[STORE_QUOTA_COUNT]){ 1, 0, 60, 0, 0 });
    assert_int_equal(take(&s, 1, 60), ERR_NONE);
    assert_int_equal(take(&s, 1, UINT64_MAX), ERR_QUOTA); /* no sum runs over */
}

TEST(a_quota_below_what_is_there_refuses_more_and_takes_nothing_away)
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

TEST(executions_fall_out_of_the_hour_by_the_minute_and_the_wait_that_is_told_is_enough)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { [STORE_QUOTA_EXECUTIONS] = 3 } };

    assert_int_equal(run(&s, START), ERR_NONE);
    assert_int_equal(run(&s, START + 10 * MINUTE), ERR_NONE);
    assert_int_equal(run(&s, START + 10 * MINUTE), ERR_NONE);
    assert_int_equal(run(&s, START + 50 * MINUTE), ERR_QUOTA);
    assert_int_equal(why.used, 3);
    uint64_t until = START + 50 * MINUTE + why.retry_ms;
    assert_int_equal(run(&s, until - 1), ERR_QUOTA);
    assert_int_equal(run(&s, until), ERR_NONE); /* one is out, one is in */
    assert_int_equal(run(&s, until), ERR_QUOTA);
    assert_int_equal(quota_executions_last_hour(&s, until), 3);
    assert_int_equal(quota_executions_last_hour(&s, until + 11 * MINUTE), 1);
    assert_int_equal(quota_executions_last_hour(&s, until + 1000 * MINUTE), 0);
}

TEST(what_was_begun_before_a_restart_counts_by_its_age)
{
    struct tenant_quota s = { .tenant = "acme", .limit = { [STORE_QUOTA_EXECUTIONS] = 10 } };

    quota_add_past_executions(&s, START, 0, 2);
    quota_add_past_executions(&s, START, 59, 4);
    quota_add_past_executions(&s, START, 60, 100); /* over */
    assert_int_equal(quota_executions_last_hour(&s, START), 6);
    assert_int_equal(quota_executions_last_hour(&s, START + MINUTE), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_or_nothing_is_taken_and_what_is_given_back_can_be_taken_again),
        cmocka_unit_test(a_quota_below_what_is_there_refuses_more_and_takes_nothing_away),
        cmocka_unit_test(executions_fall_out_of_the_hour_by_the_minute_and_the_wait_that_is_told_is_enough),
        cmocka_unit_test(what_was_begun_before_a_restart_counts_by_its_age),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
