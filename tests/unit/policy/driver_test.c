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

TEST(the_weaknesses_of_a_driver_are_printed_and_listed)
{
    auto_buf text = { 0 }, json = { 0 };
    struct jsonw w;

    driver_weaknesses_print(DRIVER_NATIVE, "weaker   ", &text);
    assert_int_equal(text.len, 0);
    driver_weaknesses_print(DRIVER_BWRAP, "weaker   ", &text);
    assert_non_null(strstr(text.data, "weaker   zygote: each context starts its own interpreter"));
    assert_non_null(strstr(text.data, "\nweaker   pids: "));
    jsonw_init(&w, &json, 0);
    jsonw_object(&w);
    driver_weaknesses_json(DRIVER_NATIVE, &w);
    jsonw_end_object(&w);
    assert_string_equal(json.data, "{\"weaker\":[]}");
    buf_clear(&json);
    jsonw_init(&w, &json, 0);
    jsonw_object(&w);
    driver_weaknesses_json(DRIVER_BWRAP, &w);
    jsonw_end_object(&w);
    assert_non_null(strstr(json.data, "{\"weaker\":[{\"name\":\"zygote\",\"description\":\"each context"));
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
        RUN(the_weaknesses_of_a_driver_are_printed_and_listed),
        RUN(network_modes_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
