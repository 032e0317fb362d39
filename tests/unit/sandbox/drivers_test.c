#include "tests/unit/test.h"

#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

static char root[64];

static int setup(void **state UNUSED)
{
    strcpy(root, "/tmp/cove-drivers-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, const char *text, mode_t mode)
{
    auto_free char *path = str_printf("%s%s", root, name);

    for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0755) < 0)
            assert_int_equal(errno, EEXIST);
        *p = '/';
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static struct driver_availability bwrap(void)
{
    struct driver_availability a;

    drivers_check_host(DRIVER_BWRAP, root, &a);
    assert_int_equal(a.available, a.why[0] == '\0');
    assert_int_equal(a.available, a.fix[0] == '\0');
    return a;
}

TEST(native_needs_nothing_of_the_host)
{
    struct driver_availability a;

    drivers_check_host(DRIVER_NATIVE, root, &a);
    assert_true(a.available);
}

TEST(bwrap_must_be_an_executable_program)
{
    assert_false(bwrap().available);
    assert_non_null(strstr(bwrap().why, "not installed"));
    assert_string_equal(bwrap().fix, "apt install bubblewrap");
    put("/usr/bin/bwrap", "", 0644);
    assert_false(bwrap().available);
    assert_string_equal(bwrap().path, "");
    put("/usr/bin/bwrap", "", 0755);
    assert_true(bwrap().available);
    assert_string_equal(bwrap().path, "/usr/bin/bwrap");
}

TEST(each_kernel_setting_that_forbids_user_namespaces_is_reported_with_its_fix)
{
    static const struct {
        const char *path, *permits, *forbids, *fix;
    } cases[] = {
        { "/proc/sys/kernel/unprivileged_userns_clone", "1\n", "0\n", "sysctl -w kernel.unprivileged_userns_clone=1" },
        { "/proc/sys/user/max_user_namespaces", "63000\n", "0\n", "sysctl -w user.max_user_namespaces=" },
        { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "0\n", "1\n",
          "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0" },
    };

    put("/usr/bin/bwrap", "", 0755);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put(cases[i].path, cases[i].forbids, 0644);
        assert_false(bwrap().available);
        assert_non_null(strstr(bwrap().fix, cases[i].fix));
        put(cases[i].path, cases[i].permits, 0644);
        assert_true(bwrap().available);
    }
}

TEST(an_apparmor_profile_for_bwrap_lifts_the_restriction)
{
    put("/usr/bin/bwrap", "", 0755);
    put("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", 0644);
    assert_false(bwrap().available);
    put("/etc/apparmor.d/bwrap-userns-restrict", "", 0644);
    assert_true(bwrap().available);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(native_needs_nothing_of_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(bwrap_must_be_an_executable_program, setup, teardown),
        cmocka_unit_test_setup_teardown(each_kernel_setting_that_forbids_user_namespaces_is_reported_with_its_fix,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_apparmor_profile_for_bwrap_lifts_the_restriction, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
