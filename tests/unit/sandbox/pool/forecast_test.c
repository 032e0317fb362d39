#include "tests/unit/test.h"

#include "sandbox/pool/forecast.h"

#include <math.h>

#define MS NS_PER_MS
#define S NS_PER_S

static const struct forecast_settings usual = {
    .min = 0, .max = 100, .target_hit_permille = 950, .scale_down_ns = 60 * S
};

/* --- a simulated pool: one order for each missing member --- */

#define ORDERS_MAX 512

struct play {
    struct forecast f;
    struct forecast_settings set;
    uint64_t refill_ns;
    uint64_t due[ORDERS_MAX]; /* when the orders are completed */
    uint32_t orders, ready, target;
    uint64_t asked, hits, targets;
    uint64_t seed;
};

static void play_init(struct play *p, const struct forecast_settings *set, uint64_t refill_ns)
{
    *p = (struct play){ .set = *set, .refill_ns = refill_ns, .seed = 42 };
    forecast_init(&p->f, 0);
}

static double play_random(struct play *p)
{
    p->seed = p->seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)((p->seed >> 11) + 1) / (double)(1ull << 53);
}

static void play_until(struct play *p, uint64_t now)
{
    for (uint32_t i = 0; i < p->orders;) {
        if (p->due[i] > now) {
            i++;
            continue;
        }
        p->due[i] = p->due[--p->orders];
        p->ready++;
    }
    p->target = forecast_target(&p->f, now, p->refill_ns, &p->set);
    while (p->ready + p->orders < p->target && p->orders < ORDERS_MAX)
        p->due[p->orders++] = now + p->refill_ns;
    if (p->ready > p->target)
        p->ready = p->target;
}

static void play_ask(struct play *p, uint64_t now)
{
    play_until(p, now); /* orders that are due are completed before the arrival */
    p->asked++;
    if (p->ready > 0) {
        p->ready--;
        p->hits++;
    }
    forecast_arrival(&p->f, now);
    play_until(p, now);
    p->targets += p->target;
}

static uint64_t play_poisson(struct play *p, uint64_t now, uint64_t interval_ns, unsigned n)
{
    while (n-- > 0) {
        now += (uint64_t)(-log(play_random(p)) * (double)interval_ns);
        play_ask(p, now);
    }
    return now;
}

static void play_forget_counts(struct play *p)
{
    p->asked = p->hits = p->targets = 0;
}

TEST(steady_arrivals_reach_the_target_hit_rate)
{
    static const struct {
        uint64_t interval_ns, refill_ns;
        uint32_t permille;
        double most; /* maximum of members on average: more would be a waste */
    } cases[] = {
        { 1 * S, 20 * MS, 950, 2 },     { 100 * MS, 100 * MS, 950, 6 }, { 10 * MS, 100 * MS, 950, 28 },
        { 10 * MS, 100 * MS, 990, 32 }, { 10 * MS, 100 * MS, 500, 22 }, { 2 * MS, 200 * MS, 950, 190 },
        { 5 * S, 1 * S, 950, 4 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct forecast_settings set = usual;
        struct play p;

        set.max = 400;
        set.target_hit_permille = cases[i].permille;
        play_init(&p, &set, cases[i].refill_ns);
        uint64_t now = play_poisson(&p, 0, cases[i].interval_ns, 200);
        play_forget_counts(&p);
        play_poisson(&p, now, cases[i].interval_ns, 5000);
        if (p.hits * 1000 < p.asked * cases[i].permille)
            fail_msg("case %zu: %" PRIu64 " of %" PRIu64 " found a member", i, p.hits, p.asked);
        if ((double)p.targets / (double)p.asked > cases[i].most)
            fail_msg("case %zu: %.1f members on average", i, (double)p.targets / (double)p.asked);
    }
}

TEST(a_repeated_burst_finds_enough_members)
{
    struct play p;

    play_init(&p, &usual, 50 * MS);
    for (unsigned i = 0; i < 40; i++)
        play_ask(&p, 1 * S + i * 100 * NS_PER_US);
    assert_true(p.target >= 39); /* the window slides, and its edge is an estimate */
    play_until(&p, 2 * S);
    play_until(&p, 3 * S);
    play_forget_counts(&p);
    for (unsigned i = 0; i < 40; i++)
        play_ask(&p, 30 * S + i * 100 * NS_PER_US);
    assert_true(p.hits >= 39);
}

TEST(a_few_simultaneous_arrivals_raise_the_target_only_by_their_number)
{
    struct play p;

    play_init(&p, &usual, 500 * MS);
    for (unsigned i = 1; i <= 5; i++) {
        play_ask(&p, 10 * S + i);
        assert_int_equal(p.target, i);
    }
}

TEST(a_target_falls_after_the_delay_and_not_before)
{
    struct play p;

    play_init(&p, &usual, 50 * MS);
    for (unsigned i = 0; i < 20; i++)
        play_ask(&p, 10 * S);
    play_until(&p, 10 * S + 59 * S);
    assert_int_equal(p.target, 20);
    assert_int_equal(forecast_next_ns(&p.f, &usual), 70 * S);
    play_until(&p, 70 * S);
    assert_int_equal(p.target, 0);
    assert_int_equal(forecast_next_ns(&p.f, &usual), 0); /* permanently idle: no timer */
}

TEST(after_a_burst_the_target_falls_to_the_remaining_demand)
{
    struct play p;

    play_init(&p, &usual, 50 * MS);
    for (unsigned i = 0; i < 50; i++)
        play_ask(&p, 10 * S);
    for (unsigned i = 1; i <= 200; i++)
        play_ask(&p, 10 * S + i * S);
    assert_true(p.target >= 1);
    assert_true(p.target <= 3);
    assert_true(forecast_next_ns(&p.f, &usual) > 210 * S);
}

TEST(an_idle_pool_needs_few_timers_and_finally_none)
{
    struct play p;
    unsigned looks = 0;
    uint64_t next, now = play_poisson((play_init(&p, &usual, 100 * MS), &p), 0, 10 * MS, 2000);

    while ((next = forecast_next_ns(&p.f, &usual)) != 0) {
        assert_true(next > now);
        now = next;
        play_until(&p, now);
        assert_true(++looks <= 3);
    }
    assert_int_equal(p.target, 0);
}

TEST(the_target_stays_between_min_and_max)
{
    const struct forecast_settings set = { .min = 3, .max = 7, .target_hit_permille = 999, .scale_down_ns = 10 * S };
    struct play p;

    play_init(&p, &set, 1 * S);
    play_until(&p, 0);
    assert_int_equal(p.target, 3);
    assert_int_equal(forecast_next_ns(&p.f, &set), 0);
    for (unsigned i = 0; i < 1000; i++) {
        play_ask(&p, 5 * S + i * MS);
        assert_in_range(p.target, 3, 7);
    }
    assert_int_equal(p.target, 7);
    play_until(&p, 100 * S);
    assert_int_equal(p.target, 3);
}

TEST(changed_settings_apply_at_once)
{
    struct forecast_settings set = usual;
    struct forecast f;

    forecast_init(&f, 0);
    for (unsigned i = 0; i < 50; i++)
        forecast_arrival(&f, 1 * S);
    assert_int_equal(forecast_target(&f, 1 * S, 100 * MS, &set), 50);
    set.max = 4;
    assert_int_equal(forecast_target(&f, 1 * S, 100 * MS, &set), 4);
    set.max = set.min = 9;
    assert_int_equal(forecast_target(&f, 1 * S, 100 * MS, &set), 9);
    set.max = set.min = 0;
    assert_int_equal(forecast_target(&f, 1 * S, 100 * MS, &set), 0);
}

TEST(the_reported_rate_falls_without_arrivals)
{
    struct forecast f;

    forecast_init(&f, 0);
    assert_int_equal(forecast_rate_milli(&f, 0), 0);
    for (unsigned i = 0; i < 100; i++)
        forecast_arrival(&f, i * 100 * MS);
    forecast_target(&f, 10 * S, 20 * MS, &usual);
    assert_in_range(forecast_rate_milli(&f, 10 * S), 9000, 11000);
    assert_in_range(forecast_rate_milli(&f, 40 * S), 1, 5000);
    assert_int_equal(forecast_rate_milli(&f, 100 * S), 0);
}

TEST(a_pause_does_not_count_as_an_interval)
{
    struct play p;

    play_init(&p, &usual, 1 * S);
    uint64_t now = play_poisson(&p, 0, 100 * MS, 100);

    now = play_poisson(&p, now + 24 * 3600 * S, 100 * MS, 20);
    assert_in_range(forecast_rate_milli(&p.f, now), 4000, 25000);
}

TEST(times_from_a_broken_clock_do_no_harm)
{
    static const uint64_t times[] = { 0, UINT64_MAX, 1, UINT64_MAX - 1, UINT64_MAX / 2, 0, 5, UINT64_MAX };
    static const uint64_t refills[] = { 0, 1, UINT64_MAX, 60 * S };
    struct forecast_settings set = usual;
    struct forecast f;

    forecast_init(&f, UINT64_MAX);
    for (unsigned round = 0; round < 1000; round++) {
        uint64_t now = times[round % ARRAY_LEN(times)];

        set.scale_down_ns = round % 3 == 0 ? 0 : round % 3 == 1 ? UINT64_MAX : 60 * S;
        set.target_hit_permille = round % 999 + 1;
        set.max = round % 5 == 0 ? UINT32_MAX : 100;
        forecast_arrival(&f, now);
        assert_in_range(forecast_target(&f, now, refills[round % ARRAY_LEN(refills)], &set), 0, set.max);
        (void)forecast_next_ns(&f, &set);
        (void)forecast_rate_milli(&f, now);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(steady_arrivals_reach_the_target_hit_rate),
        RUN(a_repeated_burst_finds_enough_members),
        RUN(a_few_simultaneous_arrivals_raise_the_target_only_by_their_number),
        RUN(a_target_falls_after_the_delay_and_not_before),
        RUN(after_a_burst_the_target_falls_to_the_remaining_demand),
        RUN(an_idle_pool_needs_few_timers_and_finally_none),
        RUN(the_target_stays_between_min_and_max),
        RUN(changed_settings_apply_at_once),
        RUN(the_reported_rate_falls_without_arrivals),
        RUN(a_pause_does_not_count_as_an_interval),
        RUN(times_from_a_broken_clock_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
