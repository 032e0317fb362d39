#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "sandbox/python_modules.h"
#include "sandbox/template_availability.h"
#include "sandbox/template_builtins.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];

static int setup(void **state UNUSED)
{
    strcpy(dir, "/tmp/cove-modules-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes a file below the test's directory, with its directories; a name that ends with '/' is a
 * directory. */
static void put(const char *name, const char *text)
{
    auto_free char *path = str_printf("%s/%s", dir, name);

    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0755) < 0)
            assert_int_equal(errno, EEXIST);
        *p = '/';
    }
    if (str_ends(path, "/"))
        return;
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static struct python_modules *scan(void)
{
    auto_free char *program = str_printf("%s/bin/python3.11", dir);

    return python_modules_scan_program(program);
}

static void expect_missing(const char *list, const char *expected)
{
    auto_(python_modules) m = scan();
    auto_buf missing = { 0 };

    (void)python_modules_missing(m, list, &missing);
    assert_string_equal(missing.len ? missing.data : "", expected);
}

TEST(every_kind_of_module_in_every_directory_is_found)
{
    put("lib/python3.11/json/__init__.py", "");
    put("lib/python3.11/re.py", "");
    put("lib/python3.11/lib-dynload/audio.cpython-311-x86_64-linux-gnu.so", "");
    put("lib/python3.11/site-packages/compiled.pyc", "");
    put("lib/python3/dist-packages/numpy/", "");
    put("local/lib/python3.11/dist-packages/yaml/", "");
    expect_missing("json,re,audio,compiled,numpy,yaml,math,sys,_ctypes,itertools", "");
}

TEST(missing_modules_are_named_once_and_without_their_submodules)
{
    put("lib/python3.11/os.py", "");
    put("lib/python3/dist-packages/numpy-1.24.dist-info/", "");
    put("lib/python3/dist-packages/pandas.txt", "");
    expect_missing("os,os.path,numpy,matplotlib,matplotlib.pyplot,pandas", "numpy,matplotlib,pandas");
}

TEST(package_that_is_installed_later_is_found_by_the_next_scan)
{
    put("lib/python3.11/os.py", "");
    expect_missing("numpy", "numpy");
    put("lib/python3/dist-packages/numpy/__init__.py", "");
    expect_missing("numpy", "");
}

TEST(directories_of_pth_files_count_if_a_sandbox_sees_them)
{
    put("lib/python3.11/os.py", "");
    put("lib/python3/dist-packages/more.pth", "# a comment\nimport sys\n/usr/share\n");
    auto_free char *line = str_printf("%s\n", dir);
    put("lib/python3/dist-packages/hidden.pth", line);
    put("hidden_module.py", "");
    expect_missing("doc,hidden_module", "hidden_module"); /* /usr/share/doc; nothing of /tmp */
}

TEST(unknown_layouts_and_editable_installations_miss_nothing)
{
    expect_missing("numpy", ""); /* there is no library */
    put("lib/python3.11/os.py", "");
    expect_missing("numpy", "numpy");
    put("lib/python3/dist-packages/__editable__.mine-1.0.pth", "import __editable___mine_finder\n");
    expect_missing("numpy", "");
    auto_buf missing = { 0 };
    assert_int_equal(python_modules_missing(NULL, "numpy", &missing), 0);
}

TEST(install_command_names_debian_packages)
{
    auto_buf command = { 0 };

    python_modules_install_command("numpy,PIL,cv2,typing_extensions", &command);
    assert_string_equal(command.data,
                        "apt-get install python3-numpy python3-pil python3-opencv python3-typing-extensions");
}

TEST(template_with_missing_modules_is_unavailable_with_reason_and_fix)
{
    put("lib/python3.11/os.py", "");
    put("lib/python3/dist-packages/pandas/", "");
    auto_(python_modules) m = scan();
    auto_template_availability a, good;

    template_availability_init(&a, DRIVER_NATIVE, "", "os,numpy,pandas,matplotlib,matplotlib.pyplot", m);
    assert_false(a.available);
    assert_string_equal(a.missing.data, "numpy,matplotlib");
    assert_string_equal(a.reason.data, "this host does not have the Python modules numpy and matplotlib");
    assert_string_equal(a.fix.data, "apt-get install python3-numpy python3-matplotlib");
    template_availability_init(&good, DRIVER_NATIVE, "", "os,pandas", m);
    assert_true(good.available);
}

/* The usual modules are of the standard library, which every interpreter has. */
TEST(template_python_is_available_where_python_is)
{
    auto_(python_modules) m = python_modules_scan();
    auto_buf missing = { 0 };

    (void)python_modules_missing(m, template_python_preload, &missing);
    assert_string_equal(missing.len ? missing.data : "", "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        CASE(every_kind_of_module_in_every_directory_is_found),
        CASE(missing_modules_are_named_once_and_without_their_submodules),
        CASE(package_that_is_installed_later_is_found_by_the_next_scan),
        CASE(directories_of_pth_files_count_if_a_sandbox_sees_them),
        CASE(unknown_layouts_and_editable_installations_miss_nothing),
        CASE(install_command_names_debian_packages),
        CASE(template_with_missing_modules_is_unavailable_with_reason_and_fix),
        CASE(template_python_is_available_where_python_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
