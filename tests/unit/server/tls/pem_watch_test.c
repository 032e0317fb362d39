#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/tls/pem_watch.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PATIENCE_NS (60 * NS_PER_S)

static char dir[64];
static struct ev *ev;
static struct pem_watch watch;
static int told;
static char *cert, *key;

static char *in(const char *name)
{
    return str_printf("%s/%s", dir, name);
}

static void write_file(const char *name, const char *text)
{
    auto_free char *path = in(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_dir(const char *name)
{
    auto_free char *path = in(name);

    assert_int_equal(mkdir(path, 0755), 0);
}

static void make_link(const char *target, const char *name)
{
    auto_free char *path = in(name);

    assert_int_equal(symlink(target, path), 0);
}

static void move(const char *from, const char *to)
{
    auto_free char *a = in(from), *b = in(to);

    assert_int_equal(rename(a, b), 0);
}

static void on_change(void *arg UNUSED)
{
    told++;
}

static int set_up(void **state UNUSED)
{
    struct err err = { 0 };

    snprintf(dir, sizeof(dir), "/tmp/cove-pemw-XXXXXX");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(ev_new(&ev, &err), 0);
    cert = in("cert");
    key = in("key");
    told = 0;
    return 0;
}

static int unlink_one(const char *path, const struct stat *st UNUSED, int flag UNUSED, struct FTW *at UNUSED)
{
    return remove(path);
}

static int tear_down(void **state UNUSED)
{
    pem_watch_done(&watch);
    ev_free(ev);
    free(cert);
    free(key);
    return nftw(dir, unlink_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* check_ns 0: that of a server. */
static void begin_at_speed(const char *certificate, const char *of_key, uint64_t check_ns)
{
    const struct pem_paths paths = { { certificate, of_key, "" } };

    pem_watch_init(&watch, ev, &paths, on_change, NULL);
    if (check_ns)
        watch.check_ns = check_ns;
}

static void begin(const char *certificate, const char *of_key)
{
    begin_at_speed(certificate, of_key, 20 * NS_PER_MS);
}

static bool asleep(void)
{
    return watch.fd >= 0 && !watch.timer.slot;
}

/* Runs the loop until the change was reported and no check is pending. */
static void assert_told(int times)
{
    uint64_t end = clock_mono_ns() + PATIENCE_NS;

    while ((told < times || !asleep()) && clock_mono_ns() < end)
        ev_turn(ev, 100);
    assert_int_equal(told, times);
    assert_true(asleep());
}

/* Events are in the inotify queue at once, so one loop iteration reads all of them. */
static void assert_woken(bool woken)
{
    ev_turn(ev, 0);
    assert_int_equal(watch.timer.slot != 0, woken);
}

TEST(no_timer_is_set_while_nothing_changes)
{
    write_file("cert", "1");
    write_file("key", "1");
    begin(cert, key);
    assert_true(asleep());
    assert_woken(false);
}

TEST(changes_of_other_files_cause_no_check)
{
    auto_free char *deep = in("d/e/cert");

    make_dir("d");
    make_dir("d/e");
    write_file("d/e/cert", "1");
    begin(deep, "");
    write_file("other", "1"); /* no event at all: only the directory itself is watched, not its content */
    write_file("d/e/other", "1");
    move("d/e/other", "d/e/third");
    assert_woken(false);
}

TEST(a_file_written_in_place_is_reported_once)
{
    write_file("cert", "1");
    write_file("key", "1");
    begin(cert, key);
    write_file("cert", "22");
    assert_told(1);
    write_file("key", "22");
    assert_told(2);
}

TEST(every_rename_over_the_old_files_is_reported)
{
    write_file("cert", "1");
    write_file("key", "1");
    begin(cert, key);
    for (int i = 1; i <= 3; i++) {
        write_file("new", "2");
        move("new", "cert");
        write_file("new", "2");
        move("new", "key");
        assert_told(i);
    }
}

TEST(a_link_changed_to_another_file_is_reported)
{
    auto_free char *path = in("live/cert");

    make_dir("live");
    make_dir("archive");
    write_file("archive/cert1", "1");
    write_file("archive/cert2", "2");
    make_link("../archive/cert1", "live/cert");
    begin(path, "");
    make_link("../archive/cert2", "live/cert.new");
    move("live/cert.new", "live/cert");
    assert_told(1);
    write_file("archive/cert1", "unrelated"); /* no longer the target of the link */
    assert_woken(false);
    write_file("archive/cert2", "22");
    assert_told(2);
}

TEST(a_swapped_directory_of_links_is_reported)
{
    make_dir("..1");
    make_dir("..2");
    write_file("..1/cert", "1");
    write_file("..2/cert", "2");
    make_link("..1", "..data");
    make_link("..data/cert", "cert");
    begin(cert, "");
    make_link("..2", "..data_tmp");
    move("..data_tmp", "..data");
    assert_told(1);
    auto_free char *old = in("..1/cert"), *place = in("..1");
    assert_int_equal(unlink(old), 0);
    assert_int_equal(rmdir(place), 0);
    assert_woken(false);
}

TEST(an_absolute_link_is_followed)
{
    auto_free char *target = in("far/cert");

    make_dir("far");
    write_file("far/cert", "1");
    make_link(target, "cert");
    begin(cert, "");
    write_file("far/cert", "22");
    assert_told(1);
}

TEST(a_replaced_directory_is_reported)
{
    auto_free char *path = in("a/b/cert");

    make_dir("a");
    make_dir("a/b");
    make_dir("c");
    make_dir("c/b");
    write_file("a/b/cert", "1");
    write_file("c/b/cert", "2");
    begin(path, "");
    move("a", "old");
    move("c", "a");
    assert_told(1);
}

TEST(a_file_is_reported_when_it_appears_and_when_it_disappears)
{
    auto_free char *path = in("later/cert");

    begin(path, "");
    assert_true(asleep());
    make_dir("later");
    while (!watch.timer.slot)
        ev_turn(ev, 100);
    while (watch.timer.slot)
        ev_turn(ev, 100); /* a directory is not reported, but it is watched now */
    assert_int_equal(told, 0);
    write_file("later/cert", "1");
    assert_told(1);
    assert_int_equal(unlink(path), 0);
    assert_told(2);
}

TEST(circular_links_do_not_loop_for_ever)
{
    make_link("b", "a");
    make_link("a", "b");
    make_link("a", "cert");
    begin(cert, "");
    assert_true(asleep());
    write_file("new", "1");
    move("new", "b");
    assert_told(1);
}

TEST(a_relative_path_starts_at_the_working_directory)
{
    auto_fd int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    write_file("cert", "1");
    assert_int_equal(chdir(dir), 0);
    begin("cert", "");
    write_file("cert", "22");
    assert_told(1);
    assert_int_equal(fchdir(here), 0);
}

TEST(a_state_marked_as_read_is_not_reported)
{
    write_file("cert", "1");
    begin(cert, "");
    write_file("cert", "22");
    pem_watch_mark_read(&watch);
    assert_woken(true);
    while (watch.timer.slot)
        ev_turn(ev, 100);
    assert_int_equal(told, 0);
}

TEST(without_inotify_the_files_are_polled)
{
    write_file("cert", "1");
    begin(cert, "");
    struct rlimit saved, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = saved.rlim_max };
    write_file("cert", "22");
    assert_woken(true);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    while (!watch.is_polling)
        ev_turn(ev, 100);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
    assert_int_equal(watch.fd, -1);
    assert_int_not_equal(watch.timer.slot, 0);
    ev_timer_set(ev, &watch.timer, 0, watch.timer.fn, watch.timer.arg); /* as if the polling interval had passed */
    assert_told(1);
    assert_false(watch.is_polling);
}

/* With the intervals of a server. A loaded machine may be late, so one of a few rounds has to be
 * in time. */
TEST(a_replaced_certificate_is_reported_within_a_second_without_the_poll)
{
    uint64_t best = UINT64_MAX;

    write_file("cert", "1");
    write_file("key", "1");
    begin_at_speed(cert, key, 0);
    assert_true(asleep());
    for (int i = 1; i <= 5 && best >= NS_PER_S; i++) {
        uint64_t began = clock_mono_ns();

        write_file("new", "2");
        move("new", "cert");
        write_file("new", "2");
        move("new", "key");
        while (told < i && clock_mono_ns() < began + PATIENCE_NS)
            ev_turn(ev, 100);
        assert_int_equal(told, i);
        best = min_u64(best, clock_mono_ns() - began);
        assert_true(asleep()); /* no poll is set: the kernel reported */
    }
    assert_true(best < NS_PER_S);
}

/* Without descriptors there is no inotify. */
TEST(without_inotify_a_change_is_reported_soon_after_the_poll_that_saw_it)
{
    struct rlimit saved, none;

    write_file("cert", "1");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = saved.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    begin(cert, "");
    uint64_t first = watch.timer.at - ev_now(ev);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
    write_file("cert", "22");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    bool polls = watch.is_polling;
    ev_timer_set(ev, &watch.timer, 0, watch.timer.fn, watch.timer.arg); /* as if the minute had passed */
    ev_turn(ev, 0);
    uint64_t second = watch.timer.at - ev_now(ev);
    for (int i = 0; i < 1000 && !told; i++)
        ev_turn(ev, 100);
    uint64_t third = watch.timer.at - ev_now(ev);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
    assert_true(polls);
    assert_true(first > 30 * NS_PER_S && second <= watch.check_ns && third > 30 * NS_PER_S);
    assert_int_equal(told, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_timer_is_set_while_nothing_changes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(changes_of_other_files_cause_no_check, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_written_in_place_is_reported_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(every_rename_over_the_old_files_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_link_changed_to_another_file_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_swapped_directory_of_links_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_absolute_link_is_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replaced_directory_is_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_file_is_reported_when_it_appears_and_when_it_disappears, set_up, tear_down),
        cmocka_unit_test_setup_teardown(circular_links_do_not_loop_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_relative_path_starts_at_the_working_directory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_marked_as_read_is_not_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_inotify_the_files_are_polled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replaced_certificate_is_reported_within_a_second_without_the_poll, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_inotify_a_change_is_reported_soon_after_the_poll_that_saw_it, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
