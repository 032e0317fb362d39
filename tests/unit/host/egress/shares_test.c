#include "tests/unit/test.h"

#include "host/egress/shares.h"

TEST(a_bucket_gives_its_burst_and_then_its_rate)
{
    struct share_bucket b = { 0 };
    uint64_t now = 1000 * NS_PER_S, at = 0;

    for (unsigned i = 0; i < 20; i++)
        assert_true(share_bucket_take(&b, 10, 20, now, &at));
    assert_false(share_bucket_take(&b, 10, 20, now, &at));
    assert_int_equal(at, now + 100 * NS_PER_MS);
    assert_false(share_bucket_take(&b, 10, 20, at - 1, &at));
    assert_true(share_bucket_take(&b, 10, 20, at, &at));
    now += 3600 * NS_PER_S; /* idle: the burst again, and no more */
    for (unsigned i = 0; i < 20; i++)
        assert_true(share_bucket_take(&b, 10, 20, now, &at));
    assert_false(share_bucket_take(&b, 10, 20, now, &at));
}

static size_t fill(struct shares *s, struct share_tenant *t)
{
    while (shares_has_room(s, t))
        shares_add_connection(s, t);
    return t->connections;
}

TEST(one_tenant_gets_two_thirds_and_the_next_one_always_some)
{
    struct shares s;

    shares_init(&s, 900, 4096);
    struct share_tenant *a = shares_join(&s, "a"), *b = shares_join(&s, "b"), *c = shares_join(&s, "c");
    assert_int_equal(fill(&s, a), 600);
    assert_int_equal(fill(&s, b), 200);
    assert_in_range(fill(&s, c), 60, 70);
    while (a->connections)
        shares_remove_connection(&s, a);
    assert_true(fill(&s, b) > 300);
    while (b->connections)
        shares_remove_connection(&s, b);
    while (c->connections)
        shares_remove_connection(&s, c);
    shares_leave(&s, a);
    shares_leave(&s, b);
    shares_leave(&s, c);
    assert_null(s.tenants);
}

TEST(a_tenant_has_a_maximum_of_its_own)
{
    struct shares s;

    shares_init(&s, 9000, 10);
    struct share_tenant *a = shares_join(&s, "a");
    assert_int_equal(fill(&s, a), 10);
    assert_ptr_equal(shares_join(&s, "a"), a);
    shares_leave(&s, a);
    shares_leave(&s, a);
    assert_non_null(s.tenants); /* its connections are still open */
    shares_done(&s);
}

TEST(a_turn_accepts_few_from_each_tenant)
{
    struct shares s;
    unsigned a_got = 0, others = 0;
    struct share_tenant *t[6];

    shares_init(&s, 900, 900);
    for (unsigned i = 0; i < ARRAY_LEN(t); i++)
        t[i] = shares_join(&s, (const char[2]){ (char)('a' + i), 0 });
    while (shares_may_accept(&s, t[0], 1))
        a_got++;
    for (unsigned i = 1; i < ARRAY_LEN(t); i++)
        while (shares_may_accept(&s, t[i], 1))
            others++;
    assert_int_equal(a_got, SHARES_TENANT_ACCEPTS_PER_TURN);
    assert_int_equal(a_got + others, SHARES_ACCEPTS_PER_TURN);
    assert_true(shares_may_accept(&s, t[0], 2));
    shares_done(&s);
}

TEST(a_tenant_that_has_moved_its_bytes_waits_for_the_next_turn)
{
    struct shares s;

    shares_init(&s, 900, 900);
    struct share_tenant *a = shares_join(&s, "a"), *b = shares_join(&s, "b");
    assert_true(shares_may_move(&s, a, 1));
    shares_count_moved(a, SHARES_TENANT_BYTES_PER_TURN);
    assert_false(shares_may_move(&s, a, 1));
    assert_true(shares_may_move(&s, b, 1));
    assert_true(shares_may_move(&s, a, 2));
    shares_done(&s);
}

TEST(full_buffers_of_one_tenant_leave_some_for_others)
{
    struct shares s;

    shares_init(&s, 900, 900);
    struct share_tenant *a = shares_join(&s, "a"), *b = shares_join(&s, "b");
    while (shares_may_buffer(&s, a))
        shares_buffer(&s, a, 65536);
    assert_true(s.buffered < SHARES_BUFFERS * 7 / 10);
    assert_false(shares_may_move(&s, a, 1));
    assert_true(shares_may_move(&s, b, 1));
    shares_unbuffer(&s, a, 2 * 65536);
    assert_true(shares_may_buffer(&s, a));
    shares_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_bucket_gives_its_burst_and_then_its_rate),
        RUN(one_tenant_gets_two_thirds_and_the_next_one_always_some),
        RUN(a_tenant_has_a_maximum_of_its_own),
        RUN(a_turn_accepts_few_from_each_tenant),
        RUN(a_tenant_that_has_moved_its_bytes_waits_for_the_next_turn),
        RUN(full_buffers_of_one_tenant_leave_some_for_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
