#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/limits.h"

TEST(defaults_pass_their_own_check)
{
    struct limits l;
    struct err err = { 0 };

    limits_default(&l);
    assert_int_equal(limits_check(&l, &err), 0);
    assert_int_equal(l.v[LIMIT_MEMORY], 512 * MIB);
    assert_int_equal(l.v[LIMIT_PIDS], 256);
}

TEST(every_row_has_a_name_a_range_that_holds_its_default_and_texts)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);

        assert_non_null(info->name);
        assert_true(info->min <= info->dflt && info->dflt <= info->max);
        assert_true(strlen(info->action) > 0 && strlen(info->help) > 0);
        if (info->zero_unlimited)
            assert_int_equal(info->min, 0);
        for (unsigned k = 0; k < i; k++) {
            assert_string_not_equal(info->name, limit_info((enum limit)k)->name);
            if (info->flag && limit_info((enum limit)k)->flag)
                assert_string_not_equal(info->flag, limit_info((enum limit)k)->flag);
        }
    }
}

TEST(parse_accepts_each_unit_and_refuses_malformed_or_out_of_range_values)
{
    static const struct {
        enum limit limit;
        const char *text;
        int64_t value; /* -1: refused */
    } cases[] = {
        { LIMIT_MEMORY, "256M", 256 << 20 },
        { LIMIT_MEMORY, "1GiB", 1 << 30 },
        { LIMIT_MEMORY, "1M", -1 }, /* below the minimum */
        { LIMIT_MEMORY, "2048T", -1 },
        { LIMIT_MEMORY, "", -1 },
        { LIMIT_MEMORY, "-1", -1 },
        { LIMIT_MEMORY, "unlimited", -1 }, /* memory always has a limit */
        { LIMIT_SWAP, "0", 0 },
        { LIMIT_CPU, "0.5", 500 },
        { LIMIT_CPU, "2", 2000 },
        { LIMIT_CPU, "0", -1 },
        { LIMIT_CPU, "0.0001", -1 },
        { LIMIT_PIDS, "64", 64 },
        { LIMIT_PIDS, "64x", -1 },
        { LIMIT_PIDS, "18446744073709551616", -1 },
        { LIMIT_WALL, "30s", 30000 },
        { LIMIT_WALL, "1500ms", 1500 },
        { LIMIT_WALL, "30", -1 }, /* seconds or milliseconds? */
        { LIMIT_WALL, "0s", -1 },
        { LIMIT_CPU_TIME, "unlimited", 0 },
        { LIMIT_CPU_TIME, "0s", 0 },
        { LIMIT_CPUSET, "0-1,3", 0xb },
        { LIMIT_CPUSET, "3,0-1", 0xb },
        { LIMIT_CPUSET, "5", 0x20 },
        { LIMIT_CPUSET, "unlimited", 0 },
        { LIMIT_CPUSET, "64", -1 },
        { LIMIT_CPUSET, "0-64", -1 },
        { LIMIT_CPUSET, "3-1", -1 },
        { LIMIT_CPUSET, "1,", -1 },
        { LIMIT_CPUSET, ",1", -1 },
        { LIMIT_CPUSET, "1-", -1 },
        { LIMIT_CPUSET, "", -1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = { 0 };
        uint64_t v = 77;
        int r = limit_parse(cases[i].limit, cases[i].text, &v, &err);

        if (cases[i].value < 0 ? r != -1 || v != 77 || err.id != ERR_INVALID : r != 0 || v != (uint64_t)cases[i].value)
            fail_msg("%s '%s' gave %d, %" PRIu64 " %s", limit_info(cases[i].limit)->name, cases[i].text, r, v, err.msg);
    }
}

TEST(the_message_names_the_limit_and_the_expected_format)
{
    struct err err = { 0 };
    uint64_t v;

    assert_int_equal(limit_parse(LIMIT_WALL, "soon", &v, &err), -1);
    assert_string_equal(err.msg, "timeoutMs 'soon' is not a time with its unit, such as 1500ms, 30s or 5m");
    assert_int_equal(limit_parse(LIMIT_MEMORY, "1M", &v, &err), -1);
    assert_string_equal(err.msg, "memoryBytes of 1M is less than 16M");
}

TEST(a_flag_has_seconds_without_a_unit_and_suggests_the_unit_of_a_size)
{
    struct err err = { 0 };
    uint64_t v = 0;

    assert_int_equal(limit_parse_flag(LIMIT_WALL, "5", &v, &err), 0);
    assert_int_equal(v, 5000);
    assert_int_equal(limit_parse_flag(LIMIT_WALL, "0.5", &v, &err), 0);
    assert_int_equal(v, 500);
    assert_int_equal(limit_parse_flag(LIMIT_WALL, "5m", &v, &err), 0);
    assert_int_equal(v, 300000);
    assert_int_equal(limit_parse(LIMIT_WALL, "5", &v, &err), -1);
    assert_int_equal(limit_parse_flag(LIMIT_MEMORY, "64", &v, &err), -1);
    assert_string_equal(err.msg, "memoryBytes of 64 is less than 16M; did you mean 64M?");
    assert_int_equal(limit_parse_flag(LIMIT_MEMORY, "1", &v, &err), -1);
    assert_string_equal(err.msg, "memoryBytes of 1 is less than 16M");
    assert_int_equal(limit_parse_flag(LIMIT_MEMORY, "64m", &v, &err), 0);
    assert_int_equal(v, 64 * MIB);
}

TEST(all_64_processors_can_be_named_and_print_back)
{
    static const uint64_t masks[] = { 1, 3, 0xb, 1ull << 63, UINT64_MAX, 0xdb6db6db6db6db6dull, 0x5555555555555555ull };
    char text[LIMIT_TEXT];

    for (size_t i = 0; i < ARRAY_LEN(masks); i++) {
        struct err err = { 0 };
        uint64_t v = 0;

        limit_print(LIMIT_CPUSET, masks[i], text);
        assert_int_equal(limit_parse(LIMIT_CPUSET, text, &v, &err), 0);
        assert_int_equal(v, masks[i]);
    }
    assert_string_equal(limit_print(LIMIT_CPUSET, 0xb, text), "0-1,3");
}

TEST(print_writes_unlimited_only_where_zero_means_that)
{
    char text[LIMIT_TEXT];

    assert_string_equal(limit_print(LIMIT_CPU_TIME, 0, text), "unlimited");
    assert_string_equal(limit_print(LIMIT_SWAP, 0, text), "0");
    assert_string_equal(limit_print(LIMIT_CPU, 500, text), "0.500");
    assert_string_equal(limit_print(LIMIT_CPU, 2000, text), "2");
    assert_string_equal(limit_print(LIMIT_PIDS, 256, text), "256");
    assert_string_equal(limit_print(LIMIT_MEMORY, 512 * MIB, text), "512M");
    assert_string_equal(limit_print(LIMIT_WALL, 30000, text), "30s");
}

TEST(check_refuses_file_systems_larger_than_the_memory_limit)
{
    struct limits l;
    struct err err = { 0 };

    limits_default(&l);
    l.v[LIMIT_WORKSPACE] = GIB;
    assert_int_equal(limits_check(&l, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    l.v[LIMIT_MEMORY] = GIB + 128 * MIB;
    assert_int_equal(limits_check(&l, &err), 0);
}

TEST(check_refuses_each_limit_outside_its_range)
{
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);
        struct err err = { 0 };
        struct limits l;

        limits_default(&l);
        if (info->min > 0) {
            l.v[i] = info->min - 1;
            assert_int_equal(limits_check(&l, &err), -1);
            assert_non_null(strstr(err.msg, info->name));
        }
        if (info->max < UINT64_MAX) {
            l.v[i] = info->max + 1;
            assert_int_equal(limits_check(&l, &err), -1);
            assert_non_null(strstr(err.msg, info->name));
        }
    }
}

TEST(fit_shrinks_limits_that_were_not_chosen_and_keeps_chosen_ones)
{
    struct limits l;
    struct err err = { 0 };

    limits_default(&l);
    l.v[LIMIT_MEMORY] = 64 * MIB;
    limits_fit(&l, LIMIT_BIT(MEMORY));
    assert_int_equal(limits_check(&l, &err), 0);
    assert_int_equal(l.v[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(l.v[LIMIT_WORKSPACE], 32 * MIB);
    assert_int_equal(l.v[LIMIT_TMP], 8 * MIB);

    limits_default(&l);
    l.v[LIMIT_MEMORY] = 64 * MIB;
    l.v[LIMIT_WORKSPACE] = 128 * MIB;
    limits_fit(&l, LIMIT_BIT(MEMORY) | LIMIT_BIT(WORKSPACE));
    assert_int_equal(l.v[LIMIT_WORKSPACE], 128 * MIB);
    assert_int_equal(limits_check(&l, &err), -1); /* both were chosen, so the user has to decide */

    limits_default(&l);
    l.v[LIMIT_MEMORY] = 16 * MIB;
    limits_fit(&l, LIMIT_BIT(MEMORY));
    assert_int_equal(limits_check(&l, &err), 0);
}

TEST(fit_does_not_change_the_defaults_or_larger_memory)
{
    struct limits l, before;

    limits_default(&before);
    l = before;
    limits_fit(&l, 0);
    assert_memory_equal(&l, &before, sizeof(l));
    l.v[LIMIT_MEMORY] = 4 * GIB;
    limits_fit(&l, LIMIT_BIT(MEMORY));
    assert_int_equal(l.v[LIMIT_WORKSPACE], before.v[LIMIT_WORKSPACE]);
}

TEST(fit_lets_a_long_execution_outlive_the_default_lifetime)
{
    struct limits l;

    limits_default(&l);
    l.v[LIMIT_WALL] = 3600000;
    limits_fit(&l, LIMIT_BIT(WALL));
    assert_int_equal(l.v[LIMIT_LIFETIME], 3600000);
    limits_default(&l);
    l.v[LIMIT_LIFETIME] = 5000;
    limits_fit(&l, LIMIT_BIT(LIFETIME));
    assert_int_equal(l.v[LIMIT_WALL], 5000);
    l.v[LIMIT_WALL] = 9000;
    limits_fit(&l, LIMIT_BIT(LIFETIME) | LIMIT_BIT(WALL));
    assert_int_equal(l.v[LIMIT_WALL], 9000);
    assert_int_equal(l.v[LIMIT_LIFETIME], 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(defaults_pass_their_own_check),
        RUN(every_row_has_a_name_a_range_that_holds_its_default_and_texts),
        RUN(parse_accepts_each_unit_and_refuses_malformed_or_out_of_range_values),
        RUN(the_message_names_the_limit_and_the_expected_format),
        RUN(a_flag_has_seconds_without_a_unit_and_suggests_the_unit_of_a_size),
        RUN(all_64_processors_can_be_named_and_print_back),
        RUN(print_writes_unlimited_only_where_zero_means_that),
        RUN(check_refuses_file_systems_larger_than_the_memory_limit),
        RUN(check_refuses_each_limit_outside_its_range),
        RUN(fit_shrinks_limits_that_were_not_chosen_and_keeps_chosen_ones),
        RUN(fit_does_not_change_the_defaults_or_larger_memory),
        RUN(fit_lets_a_long_execution_outlive_the_default_lifetime),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
