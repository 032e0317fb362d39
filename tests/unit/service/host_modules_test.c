#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "service/host_modules.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define NOW (1000 * NS_PER_S)

static struct ev *loop;
static struct host_modules *modules;
static char root[64];
static atomic_int scans;

static int nanswers;
static size_t missing; /* of the names "numpy", by the last answer */

static struct python_modules *scan_root(void)
{
    auto_free char *program = str_printf("%s/bin/python3.11", root);

    scans++;
    return python_modules_scan_program(program);
}

static void make_directory(const char *name)
{
    auto_free char *path = str_printf("%s/%s", root, name);

    if (mkdir(path, 0755) < 0)
        assert_int_equal(errno, EEXIST);
}

static void remove_directory(const char *name)
{
    auto_free char *path = str_printf("%s/%s", root, name);

    (void)rmdir(path);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(root, "/tmp/cove-host-modules-XXXXXX");
    if (!mkdtemp(root) || ev_new(&loop, &err) < 0)
        return -1;
    make_directory("lib");
    make_directory("lib/python3.11");
    scans = nanswers = 0;
    modules = host_modules_new(loop, scan_root);
    return 0;
}

static int teardown(void **state UNUSED)
{
    host_modules_free(modules);
    ev_free(loop);
    remove_directory("lib/python3.11/numpy");
    remove_directory("lib/python3.11");
    remove_directory("lib");
    return rmdir(root);
}

static void on_modules(void *arg UNUSED, const struct python_modules *found)
{
    auto_buf names = { 0 };

    missing = python_modules_missing(found, "numpy", &names);
    nanswers++;
}

/* Asks at the given time and waits for the answer. Returns whether it came at once. */
static bool ask(const char *preload, uint64_t at_ns)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;
    int before = nanswers;

    host_modules_get(modules, preload, at_ns, on_modules, NULL);
    bool at_once = nanswers > before;
    while (nanswers == before && clock_mono_ns() < end)
        ev_turn(loop, 1000);
    assert_int_equal(nanswers, before + 1);
    return at_once;
}

TEST(first_answer_waits_for_a_scan_and_the_next_one_does_not)
{
    assert_false(ask("numpy", NOW));
    assert_int_equal(missing, 1);
    assert_true(ask("numpy", NOW + HOST_MODULES_TTL_NS - 1));
    assert_int_equal(scans, 1);
}

TEST(module_that_is_installed_meanwhile_is_seen_after_a_few_seconds)
{
    assert_false(ask("numpy", NOW));
    make_directory("lib/python3.11/numpy");
    assert_true(ask("numpy", NOW + 1));
    assert_int_equal(missing, 1);
    assert_false(ask("numpy", NOW + HOST_MODULES_TTL_NS));
    assert_int_equal(missing, 0);
    assert_int_equal(scans, 2);
}

TEST(request_whose_modules_were_there_is_not_delayed_by_a_new_scan)
{
    make_directory("lib/python3.11/numpy");
    assert_false(ask("numpy", NOW));
    remove_directory("lib/python3.11/numpy");
    assert_true(ask("numpy", NOW + HOST_MODULES_TTL_NS)); /* an old list, renewed beside it */
    assert_int_equal(missing, 0);
    assert_false(ask(NULL, NOW + HOST_MODULES_TTL_NS));
    assert_int_equal(missing, 1);
    assert_int_equal(scans, 2);
}

TEST(requests_that_come_during_a_scan_share_it)
{
    host_modules_get(modules, "numpy", NOW, on_modules, NULL);
    host_modules_get(modules, NULL, NOW, on_modules, NULL);
    assert_int_equal(nanswers, 0);
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;
    while (nanswers < 2 && clock_mono_ns() < end)
        ev_turn(loop, 1000);
    assert_int_equal(nanswers, 2);
    assert_int_equal(scans, 1);
}

TEST(waiting_requests_are_dropped_with_it)
{
    host_modules_get(modules, NULL, NOW, on_modules, NULL);
    host_modules_free(take_ptr(&modules));
    assert_int_equal(nanswers, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(first_answer_waits_for_a_scan_and_the_next_one_does_not),
        CASE(module_that_is_installed_meanwhile_is_seen_after_a_few_seconds),
        CASE(request_whose_modules_were_there_is_not_delayed_by_a_new_scan),
        CASE(requests_that_come_during_a_scan_share_it),
        CASE(waiting_requests_are_dropped_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
