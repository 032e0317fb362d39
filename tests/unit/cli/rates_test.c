/* The place for disk rates, made and removed. */
#include "../test.h"

#include "base/str.h"
#include "cli/rates.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>
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

TEST(it_is_made_for_its_owner_and_leaves_nothing)
{
    char parent[] = "/var/tmp/rates-XXXXXX", why[128] = "";
    struct rates r;
    struct stat st;

    assert_non_null(mkdtemp(parent));
    if (rates_plant(&r, parent, getuid(), getgid(), why, sizeof(why))) {
        assert_int_equal(fstatat(r.dir, RATES_FILE, &st, 0), 0);
        assert_int_equal(st.st_size, RATES_BYTES);
        assert_int_equal(st.st_mode & 07777, 0600);
        rates_done(&r);
    } else {
        assert_string_not_equal(why, ""); /* no disk, or a busy one */
    }
    assert_int_equal(r.dir, -1);
    assert_int_equal(entries(parent), 0);
    rates_done(&r); /* twice is once */
    assert_int_equal(rmdir(parent), 0);
}

TEST(a_place_on_no_disk_is_refused_with_the_reason)
{
    static const char *const nowhere[] = { "/proc", "/dev/null", "/nonexistent" };
    struct rates r;

    for (size_t i = 0; i < ARRAY_LEN(nowhere); i++) {
        char why[128] = "";

        assert_false(rates_plant(&r, nowhere[i], getuid(), getgid(), why, sizeof(why)));
        assert_true(str_starts(why, nowhere[i]));
        assert_int_equal(r.dir, -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(it_is_made_for_its_owner_and_leaves_nothing),
        RUN(a_place_on_no_disk_is_refused_with_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
