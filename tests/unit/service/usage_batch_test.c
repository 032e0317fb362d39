/* Collected usage with a real store. */
#include "store_scene.h"

#include "service/usage_batch.h"

#define HOUR STORE_HOUR_MS
#define AT (500000 * HOUR + 1234)

struct sums {
    int answers;
    struct store_usage rows[8];
    size_t n;
};

static void on_usage(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more UNUSED)
{
    struct sums *s = arg;

    assert_null(err);
    assert_true(n <= ARRAY_LEN(s->rows));
    s->answers++;
    s->n = n;
    for (size_t i = 0; i < n; i++)
        s->rows[i] = rows[i];
}

static struct sums stored(struct store_scene *s, unsigned by)
{
    struct store_usage_query q = { .owner = STORE_ANY_OWNER, .from_ms = 0, .to_ms = AT + 10 * HOUR, .by = by };
    struct sums sums = { 0 };

    store_usage_list(s->store, &q, on_usage, &sums);
    store_scene_wait(s, &sums.answers);
    return sums;
}

TEST(amounts_are_summed_by_tenant_user_and_hour)
{
    struct store_scene s;

    store_scene_open(&s);
    auto_(usage_batch) b = usage_batch_new(s.ev, s.store);
    usage_batch_row(b, "acme", "anna", AT)->executions += 2;
    usage_batch_row(b, "acme", "anna", AT + 1)->executions += 3;
    usage_batch_row(b, "acme", "", AT)->executions += 10;
    usage_batch_row(b, "acme", "anna", AT + HOUR)->executions += 20;
    usage_batch_row(b, "bert", "anna", AT)->executions += 40;
    usage_batch_flush(b);
    struct sums got = stored(&s, STORE_USAGE_BY_TENANT | STORE_USAGE_BY_USER | STORE_USAGE_BY_HOUR);
    assert_int_equal(got.n, 4);
    assert_string_equal(got.rows[0].owner, "acme");
    assert_int_equal(got.rows[0].executions + got.rows[1].executions, 15);
    assert_string_equal(got.rows[2].owner, "bert");
    assert_int_equal(got.rows[2].executions, 40);
    assert_int_equal(got.rows[3].hour_ms, AT / HOUR * HOUR + HOUR);
    assert_int_equal(got.rows[3].executions, 20);
    usage_batch_free(take_ptr(&b));
    store_scene_close(&s);
}

TEST(amounts_are_committed_without_a_flush_and_each_once)
{
    struct store_scene s;

    store_scene_open(&s);
    auto_(usage_batch) b = usage_batch_new(s.ev, s.store);
    usage_batch_row(b, "acme", "", AT)->cpu_us += 5;
    usage_batch_flush(b);
    usage_batch_row(b, "acme", "", AT)->cpu_us += 7; /* while the first ones are pending */
    usage_batch_flush(b);                            /* has to wait for them */
    store_scene_settle(&s);
    assert_int_equal(stored(&s, 0).rows[0].cpu_us, 5);
    uint64_t end = clock_mono_ns() + 5 * NS_PER_S, sum = 0;
    while (sum < 12 && clock_mono_ns() < end) {
        ev_turn(s.ev, 20);
        sum = stored(&s, 0).rows[0].cpu_us;
    }
    assert_int_equal(sum, 12);
    usage_batch_flush(b); /* nothing is left */
    assert_int_equal(stored(&s, 0).rows[0].cpu_us, 12);
    usage_batch_free(take_ptr(&b));
    store_scene_close(&s);
}

TEST(the_last_flush_does_not_wait_for_a_pending_one)
{
    struct store_scene s;

    store_scene_open(&s);
    auto_(usage_batch) b = usage_batch_new(s.ev, s.store);
    usage_batch_row(b, "acme", "", AT)->failed += 1;
    usage_batch_flush(b);
    usage_batch_row(b, "acme", "", AT)->failed += 2;
    usage_batch_flush_last(b);
    usage_batch_free(take_ptr(&b));
    assert_int_equal(stored(&s, 0).rows[0].failed, 3);
    store_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(amounts_are_summed_by_tenant_user_and_hour),
        RUN(amounts_are_committed_without_a_flush_and_each_once),
        RUN(the_last_flush_does_not_wait_for_a_pending_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
