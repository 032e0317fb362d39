#include "tests/unit/test.h"

#include "core/wire/egress.h"
#include "host/egress/invented_names.h"

#include <stdio.h>

TEST(a_name_keeps_its_address_and_an_address_its_name)
{
    struct invented_names t = { 0 };

    assert_null(invented_names_find(&t, EGRESS_ADDRESS_FIRST));
    assert_int_equal(invented_names_add(&t, "a.test"), EGRESS_ADDRESS_FIRST);
    assert_int_equal(invented_names_add(&t, "b.test"), EGRESS_ADDRESS_FIRST + 1);
    assert_int_equal(invented_names_add(&t, "a.test"), EGRESS_ADDRESS_FIRST);
    assert_string_equal(invented_names_find(&t, EGRESS_ADDRESS_FIRST + 1), "b.test");
    assert_null(invented_names_find(&t, EGRESS_ADDRESS_FIRST + 2));
    assert_null(invented_names_find(&t, EGRESS_ADDRESS_FIRST - 1));
    assert_null(invented_names_find(&t, 0));
    invented_names_done(&t);
}

TEST(a_full_table_refuses_names_and_keeps_those_that_it_has)
{
    struct invented_names t = { 0 };
    char name[32];

    for (uint32_t i = 0; i < INVENTED_NAMES_MAX; i++) {
        snprintf(name, sizeof(name), "n%u.test", i);
        assert_int_equal(invented_names_add(&t, name), EGRESS_ADDRESS_FIRST + i);
    }
    assert_int_equal(invented_names_add(&t, "more.test"), 0);
    assert_int_equal(invented_names_add(&t, "n7.test"), EGRESS_ADDRESS_FIRST + 7);
    assert_string_equal(invented_names_find(&t, EGRESS_ADDRESS_FIRST + 4095), "n4095.test");
    invented_names_done(&t);
}

/* A process of the previous binding may still hold an address. */
TEST(addresses_are_not_given_again_after_a_reset_until_the_range_is_used_up)
{
    struct invented_names t = { 0 };
    uint32_t last = 0, restarts = 0;

    assert_int_equal(invented_names_add(&t, "a.test"), EGRESS_ADDRESS_FIRST);
    invented_names_reset(&t);
    assert_null(invented_names_find(&t, EGRESS_ADDRESS_FIRST));
    assert_int_equal(invented_names_add(&t, "b.test"), EGRESS_ADDRESS_FIRST + 1);
    for (unsigned round = 0; round < 140000; round++) {
        uint32_t a = invented_names_add(&t, "c.test");

        assert_in_range(a, EGRESS_ADDRESS_FIRST, EGRESS_ADDRESS_LAST);
        restarts += a < last;
        last = a;
        invented_names_reset(&t);
    }
    assert_int_equal(restarts, 1);
    invented_names_done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_name_keeps_its_address_and_an_address_its_name),
        RUN(a_full_table_refuses_names_and_keeps_those_that_it_has),
        RUN(addresses_are_not_given_again_after_a_reset_until_the_range_is_used_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
