#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "host/isolate/native.h"
#include "host/jailer/uids.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int scratch(void)
{
    char dir[] = "/tmp/cove-uids-XXXXXX";

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int lock_file(int dir)
{
    return openat(dir, "uids", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static void clean(int dir)
{
    char path[64], link[64];

    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    assert_true(n > 0);
    path[n] = '\0';
    unlinkat(dir, "uids", 0);
    close(dir);
    rmdir(path);
}

TEST(two_jailers_never_get_the_same_uid)
{
    int dir = scratch();
    struct uids a = { .fd = -1 }, b = { .fd = -1 };
    struct err err;
    uid_t ua, ub;

    assert_int_equal(uids_open(&a, lock_file(dir), &err), 0);
    assert_int_equal(uids_open(&b, lock_file(dir), &err), 0);
    a.next = b.next = 7; /* both start at the same slot */
    for (int i = 0; i < 50; i++) {
        assert_int_equal(uids_take(&a, &ua, &err), 0);
        assert_int_equal(uids_take(&b, &ub, &err), 0);
        assert_int_not_equal(ua, ub);
        assert_true(ua >= NATIVE_UID_FIRST && ua < NATIVE_UID_FIRST + NATIVE_UID_COUNT);
    }
    assert_true(uids_in_use(&a, ub));
    assert_true(uids_in_use(&b, ub));
    assert_false(uids_is_own(&a, ub));
    assert_true(uids_is_own(&b, ub));
    uids_release(&b, ub);
    assert_false(uids_in_use(&a, ub));
    uids_done(&a);
    uids_done(&b);
    clean(dir);
}

TEST(one_jailer_never_hands_out_a_uid_twice)
{
    int dir = scratch();
    struct uids u = { .fd = -1 };
    struct err err;
    uid_t first, second;

    assert_int_equal(uids_open(&u, lock_file(dir), &err), 0);
    assert_int_equal(uids_take(&u, &first, &err), 0);
    u.next--; /* its own lock does not conflict with itself */
    assert_int_equal(uids_take(&u, &second, &err), 0);
    assert_int_not_equal(first, second);
    uids_done(&u);
    clean(dir);
}

TEST(a_lock_ends_with_the_last_process_that_holds_the_file)
{
    int dir = scratch(), ready[2];
    struct uids u = { .fd = -1 };
    struct err err;

    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        struct uids mine = { .fd = -1 };
        uid_t uid = 0;

        if (uids_open(&mine, lock_file(dir), &err) == 0 && uids_take(&mine, &uid, &err) == 0)
            (void)!write(ready[1], &uid, sizeof(uid));
        pause();
    }
    uid_t theirs = 0;
    assert_int_equal(read(ready[0], &theirs, sizeof(theirs)), sizeof(theirs));
    assert_int_equal(uids_open(&u, lock_file(dir), &err), 0);
    assert_true(uids_in_use(&u, theirs));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_false(uids_in_use(&u, theirs));
    uids_done(&u);
    close(ready[0]);
    close(ready[1]);
    clean(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(two_jailers_never_get_the_same_uid),
        RUN(one_jailer_never_hands_out_a_uid_twice),
        RUN(a_lock_ends_with_the_last_process_that_holds_the_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
