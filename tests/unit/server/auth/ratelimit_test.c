#include "tests/unit/test.h"

#include "server/auth/ratelimit.h"

static struct ratelimit_rule rule(const char *text)
{
    struct ratelimit_rule r = { 0 };
    struct err err = { 0 };

    if (ratelimit_parse(text, &r, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    return r;
}

TEST(take_spends_burst_then_refills_at_rate)
{
    static const struct {
        uint64_t at_ms;
        bool granted;
        uint32_t remaining;
        uint64_t retry_ms;
    } steps[] = {
        { 0, true, 1, 0 },       { 0, true, 0, 0 },
        { 0, false, 0, 100 }, /* the burst of two is used up */
        { 99, false, 0, 1 },     { 100, true, 0, 0 },
        { 100, false, 0, 100 }, /* 10/s: a token per 100 ms */
        { 5000, true, 1, 0 },    { 5000, true, 0, 0 },
        { 5000, false, 0, 100 }, /* an idle bucket refills to two, not more */
    };
    struct ratelimit_rule r = rule("10/s burst 2");
    struct ratelimit rl = { 0 };
    struct ratelimit_answer a;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        uint64_t now = (1000 + steps[i].at_ms) * NS_PER_MS;

        if (ratelimit_has_token(&r, &rl, now) != steps[i].granted ||
            ratelimit_take(&r, &rl, now, &a) != steps[i].granted)
            fail_msg("step %zu, at %" PRIu64 " ms", i, steps[i].at_ms);
        assert_int_equal(a.limit, 2);
        assert_int_equal(a.remaining, steps[i].remaining);
        assert_int_equal(a.retry_ns, steps[i].retry_ms * NS_PER_MS);
    }
    assert_int_equal(a.reset_ns, 200 * NS_PER_MS);
}

TEST(a_token_is_available_after_the_reported_wait)
{
    struct ratelimit_rule r = rule("7/m burst 3");
    struct ratelimit rl = { 0 };
    struct ratelimit_answer a;
    uint64_t now = 5 * NS_PER_S;

    for (int i = 0; i < 50; i++) {
        while (ratelimit_take(&r, &rl, now, &a))
            ;
        assert_false(ratelimit_has_token(&r, &rl, now + a.retry_ns - 1));
        now += a.retry_ns;
        assert_true(ratelimit_take(&r, &rl, now, &a));
    }
}

TEST(rates_are_per_second_minute_or_hour_and_none_never_refuses)
{
    struct ratelimit_rule none = rule("none");
    struct ratelimit rl = { 0 };
    struct ratelimit_answer a;

    assert_int_equal(rule("1000/h").interval_ns, 3600 * NS_PER_MS);
    assert_int_equal(rule("1000/h").burst, 1000);
    assert_int_equal(rule("60/m").interval_ns, NS_PER_S);
    assert_int_equal(rule("1/h burst 1000000").window_ns, 3600ull * 1000000 * NS_PER_S);
    for (int i = 0; i < 1000; i++)
        assert_true(ratelimit_take(&none, &rl, 1, &a));
    assert_int_equal(a.limit, 0);
}

TEST(malformed_rate_limits_are_refused)
{
    static const char *const bad[] = {
        "",
        "10",
        "/s",
        "0/s",
        "10/d",
        "-1/s",
        "10/s ",
        "10/sburst2",
        "10/s burst",
        "10/s burst ",
        "10/s burst 0",
        "10/s burst -1",
        "1000001/s",
        "10/s burst 1000001",
        "1e3/s",
        "10/s burst 2x",
        "None",
        " 10/s",
        "10 /s",
        "99999999999/s",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct ratelimit_rule r;
        struct err err = { 0 };

        if (ratelimit_parse(bad[i], &r, &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(err.id, ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(take_spends_burst_then_refills_at_rate),
        RUN(a_token_is_available_after_the_reported_wait),
        RUN(rates_are_per_second_minute_or_hour_and_none_never_refuses),
        RUN(malformed_rate_limits_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
