#include "tests/unit/test.h"

#include "core/base/str.h"
#include "sandbox/walls.h"

static const struct wall *find_wall(const char *name)
{
    size_t n;
    const struct wall *all = walls_all(&n);

    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].name, name))
            return &all[i];
    return NULL;
}

static uint32_t every_bit(bool inside)
{
    uint32_t bits = 0;
    size_t n;
    const struct wall *all = walls_all(&n);

    for (size_t i = 0; i < n; i++)
        bits |= inside ? all[i].inside : all[i].outside;
    return bits;
}

/* A wall that is not in the table of exceptions is refused when it is missing, on either side and
 * for every driver; a wall of the table is not. */
TEST(a_wall_may_be_missing_only_if_the_driver_has_an_exception)
{
    size_t n;
    const struct wall *all = walls_all(&n);

    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        struct wall_demand d = { .level = LEVEL_STANDARD, .driver = (enum driver_id)i };

        assert_int_equal(walls_check_outside(&d, every_bit(false), NULL), 0);
        assert_int_equal(walls_check_inside(&d, every_bit(true), 3, NULL), 0);
        for (size_t k = 0; k < n; k++) {
            bool required = !walls_exception_reason(&d, &all[k]);
            struct err err = { 0 };

            if (all[k].outside && (walls_check_outside(&d, every_bit(false) & ~all[k].outside, &err) < 0) != required)
                fail_msg("%s: %s outside", driver_name(d.driver), all[k].name);
            if (all[k].inside && (walls_check_inside(&d, every_bit(true) & ~all[k].inside, 3, &err) < 0) != required)
                fail_msg("%s: %s inside", driver_name(d.driver), all[k].name);
            assert_true(!all[k].inside || required == ((walls_inside_needed(&d) & all[k].inside) != 0));
        }
    }
}

TEST(native_and_bwrap_have_no_exception)
{
    size_t n, count;
    const struct wall *all = walls_all(&n);
    const enum driver_id drivers[] = { DRIVER_NATIVE, DRIVER_BWRAP };

    (void)walls_exceptions(&count);
    assert_int_equal(count, 0);
    for (size_t i = 0; i < ARRAY_LEN(drivers); i++)
        for (size_t k = 0; k < n; k++)
            assert_null(walls_exception_reason(&(struct wall_demand){ .driver = drivers[i] }, &all[k]));
}

TEST(an_exception_holds_for_its_driver_its_level_and_its_wall_alone)
{
    static const struct wall_exception table[] = { { DRIVER_BWRAP, LEVEL_CUSTOM, "landlock",
                                                     "another filter of paths" } };
    const struct wall_demand bwrap = { .driver = DRIVER_BWRAP, .level = LEVEL_CUSTOM },
                             native = { .driver = DRIVER_NATIVE, .level = LEVEL_CUSTOM },
                             standard = { .driver = DRIVER_BWRAP, .level = LEVEL_STANDARD };
    const struct wall *landlock = find_wall("landlock"), *seccomp = find_wall("seccomp");

    assert_string_equal(walls_exception_reason_in(table, 1, &bwrap, landlock), "another filter of paths");
    assert_null(walls_exception_reason_in(table, 1, &native, landlock));
    assert_null(walls_exception_reason_in(table, 1, &standard, landlock));
    assert_null(walls_exception_reason_in(table, 1, &bwrap, seccomp));
}

TEST(a_plain_user_lacks_only_the_walls_that_need_root)
{
    const struct wall_demand rootless = { .driver = DRIVER_BWRAP, .rootless = true };
    size_t n;
    const struct wall *all = walls_all(&n);

    for (size_t k = 0; k < n; k++)
        assert_true(all[k].needs_root == (walls_exception_reason(&rootless, &all[k]) != NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_wall_may_be_missing_only_if_the_driver_has_an_exception),
        RUN(native_and_bwrap_have_no_exception),
        RUN(an_exception_holds_for_its_driver_its_level_and_its_wall_alone),
        RUN(a_plain_user_lacks_only_the_walls_that_need_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
