#include "tests/unit/test.h"

#include "policy/driver.h"
#include "policy/network.h"

TEST(each_driver_is_found_by_its_name_and_has_a_summary)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        enum driver_id d = DRIVER_COUNT;

        assert_true(driver_parse(driver_name((enum driver_id)i), &d));
        assert_int_equal(d, i);
        assert_true(strlen(driver_summary(d)) > 0);
    }
}

TEST(an_unknown_driver_is_reported_with_the_nearest_name_or_all_names)
{
    struct err err = { 0 };
    enum driver_id d;

    assert_false(driver_parse("Native", &d));
    assert_int_equal(driver_unknown_error("--driver", "nativ", &err), -1);
    assert_int_equal(err.id, ERR_DRIVER_MISSING);
    assert_string_equal(err.msg, "--driver: unknown driver 'nativ'; did you mean native?");
    assert_int_equal(driver_unknown_error("--driver", "firecracker", &err), -1);
    assert_string_equal(err.msg, "--driver: unknown driver 'firecracker'; use native, bwrap");
}

TEST(the_default_driver_is_the_first_that_is_not_forbidden)
{
    struct err err = { 0 };

    assert_int_equal(driver_default(0), DRIVER_NATIVE);
    assert_int_equal(driver_default(DRIVER_BIT(DRIVER_NATIVE)), DRIVER_BWRAP);
    assert_int_equal(driver_check_allowed(0, DRIVER_BWRAP, "driver", "x", &err), 0);
    assert_int_equal(driver_check_allowed(DRIVER_BIT(DRIVER_BWRAP), DRIVER_BWRAP, "driver", "f.yaml", &err), -1);
    assert_int_equal(err.id, ERR_DRIVER_REFUSED);
    assert_string_equal(err.msg, "driver: f.yaml does not allow driver bwrap; it allows native");
    assert_int_equal(driver_default(DRIVERS_ALL), DRIVER_NATIVE);
    assert_int_equal(driver_check_allowed(DRIVERS_ALL, DRIVER_NATIVE, "driver", "f.yaml", &err), -1);
}

TEST(network_modes_are_found_by_name)
{
    enum network_mode m = NETWORK_MODES;
    struct network_policy a = { NETWORK_NONE }, b = { NETWORK_NONE };

    assert_true(network_mode_parse("none", &m));
    assert_int_equal(m, NETWORK_NONE);
    assert_string_equal(network_mode_name(m), "none");
    assert_false(network_mode_parse("all", &m));
    assert_true(network_policy_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(each_driver_is_found_by_its_name_and_has_a_summary),
        RUN(an_unknown_driver_is_reported_with_the_nearest_name_or_all_names),
        RUN(the_default_driver_is_the_first_that_is_not_forbidden),
        RUN(network_modes_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
