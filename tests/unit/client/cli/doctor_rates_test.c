/* Creates and removes the directory for disk rates. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/doctor_rates.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static unsigned entries(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

TEST(rates_directory_is_created_for_its_owner_and_removed)
{
    char parent[] = "/var/tmp/rates-XXXXXX", why[128] = "";
    struct doctor_rates r;
    struct stat st;

    assert_non_null(mkdtemp(parent));
    if (doctor_rates_create(&r, parent, getuid(), getgid(), why, sizeof(why))) {
        assert_int_equal(fstatat(r.dir, DOCTOR_RATES_FILE, &st, 0), 0);
        assert_int_equal(st.st_size, DOCTOR_RATES_BYTES);
        assert_int_equal(st.st_mode & 07777, 0600);
        doctor_rates_done(&r);
    } else {
        assert_string_not_equal(why, ""); /* not on a disk, or on a busy one */
    }
    assert_int_equal(r.dir, -1);
    assert_int_equal(entries(parent), 0);
    doctor_rates_done(&r); /* a second call has no effect */
    assert_int_equal(rmdir(parent), 0);
}

static char *leave(const char *parent, const char *name, time_t age)
{
    char *path = str_printf("%s/%s", parent, name);
    auto_free char *file = str_printf("%s/" DOCTOR_RATES_FILE, path);
    const struct timespec then[2] = { { .tv_sec = time(NULL) - age }, { .tv_sec = time(NULL) - age } };

    assert_int_equal(mkdir(path, 0700), 0);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
    return path;
}

static void remove_left(const char *path)
{
    auto_free char *file = str_printf("%s/" DOCTOR_RATES_FILE, path);

    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(path), 0);
}

TEST(stale_directory_of_a_killed_doctor_is_removed_and_a_locked_one_kept)
{
    char parent[] = "/var/tmp/rates-XXXXXX", why[128] = "";
    struct doctor_rates r;

    assert_non_null(mkdtemp(parent));
    auto_free char *killed = leave(parent, "cove-doctor-killed", 3600);
    auto_free char *living = leave(parent, "cove-doctor-living", 3600);
    auto_free char *begun = leave(parent, "cove-doctor-begun", 5);
    auto_free char *other = leave(parent, "other-program", 3600);
    auto_free char *lure = str_printf("%s/cove-doctor-lure", parent);
    auto_fd int lock = open(living, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    assert_int_equal(symlink(other, lure), 0);
    (void)doctor_rates_create(&r, parent, getuid(), getgid(), why, sizeof(why));
    doctor_rates_done(&r);
    assert_int_equal(access(killed, F_OK), -1);
    assert_int_equal(unlink(lure), 0);
    remove_left(living);
    remove_left(begun);
    remove_left(other);
    assert_int_equal(rmdir(parent), 0);
}

TEST(a_directory_that_is_not_on_a_disk_is_refused_with_the_reason)
{
    static const char *const nowhere[] = { "/proc", "/dev/null", "/no-such-place-of-cove" };
    struct doctor_rates r;

    for (size_t i = 0; i < ARRAY_LEN(nowhere); i++) {
        char why[128] = "";

        assert_false(doctor_rates_create(&r, nowhere[i], getuid(), getgid(), why, sizeof(why)));
        assert_true(str_starts(why, nowhere[i]));
        assert_int_equal(r.dir, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(rates_directory_is_created_for_its_owner_and_removed),
        RUN(stale_directory_of_a_killed_doctor_is_removed_and_a_locked_one_kept),
        RUN(a_directory_that_is_not_on_a_disk_is_refused_with_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
