#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "inside/runtime/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static char top[64];
static struct paths paths;

static const char *in(const char *name)
{
    static char path[4200];

    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

static int setup(void **state UNUSED)
{
    struct err err;

    snprintf(top, sizeof(top), "/tmp/cove-path-XXXXXX");
    return mkdtemp(top) && paths_init(&paths, &err) == 0 && mkdir(in("d"), 0755) == 0 && symlink("d", in("rel")) == 0 &&
                   symlink(top, in("abs")) == 0 && symlink("../../../../../../etc", in("up")) == 0 &&
                   symlink("/proc/self/root", in("magic")) == 0 && symlink("loop", in("loop")) == 0
               ? 0
               : -1;
}

static int teardown(void **state UNUSED)
{
    static const char *const names[] = { "rel", "abs", "up", "magic", "loop" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        unlink(in(names[i]));
    rmdir(in("d/new/er"));
    rmdir(in("d/new"));
    rmdir(in("d"));
    rmdir(top);
    paths_done(&paths);
    return 0;
}

TEST(paths_that_are_not_absolute_or_too_long_are_refused)
{
    struct err err = { 0 };
    char big[5000];

    memset(big, '/', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    assert_int_equal(path_check("a/b", &err), -1);
    assert_int_equal(path_check("", &err), -1);
    assert_int_equal(path_check(big, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(path_check("/", &err), 0);
}

TEST(ordinary_links_are_followed_and_magic_links_are_not)
{
    static const struct {
        const char *name;
        int sys; /* 0: opens */
    } cases[] = {
        { "d", 0 },         { "rel", 0 },           { "abs/d", 0 },    { "d/../d", 0 },    { "up", 0 },
        { "magic", ELOOP }, { "magic/etc", ELOOP }, { "loop", ELOOP }, { "none", ENOENT },
    };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_fd int fd = path_open(&paths, in(cases[i].name), O_PATH, &err);

        if ((fd >= 0) != (cases[i].sys == 0) || (fd < 0 && err.sys != cases[i].sys))
            fail_msg("%s: %s", cases[i].name, err.msg);
    }
    auto_fd int fd = path_open(&paths, "/proc/self/fd/0", O_PATH, &err);
    assert_int_equal(fd, -1);
}

TEST(every_spelling_of_a_path_is_split_into_parent_and_name)
{
    static const struct {
        const char *path, *leaf; /* NULL: refused */
    } cases[] = {
        { "x", "x" },    { "d/x", "x" },   { "d//x//", "x" }, { "rel/x", "x" },
        { "d/.", NULL }, { "d/..", NULL }, { ".", NULL },
    };
    struct err err = { 0 };
    char leaf[PATH_NAME_SIZE], longest[400];

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_fd int fd = path_parent(&paths, in(cases[i].path), false, leaf, &err);

        if ((fd >= 0) != (cases[i].leaf != NULL))
            fail_msg("%s", cases[i].path);
        if (fd >= 0)
            assert_string_equal(leaf, cases[i].leaf);
        else
            assert_int_equal(err.id, ERR_WRONG_KIND);
    }
    assert_int_equal(path_parent(&paths, "/", false, leaf, &err), -1);
    assert_int_equal(path_parent(&paths, "//", false, leaf, &err), -1);
    memset(longest, 'n', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    assert_int_equal(path_parent(&paths, in(longest), false, leaf, &err), -1);
}

TEST(missing_parents_are_made_on_request)
{
    struct err err = { 0 };
    char leaf[PATH_NAME_SIZE];
    struct stat st;

    assert_int_equal(path_parent(&paths, in("rel/new/er/f"), false, leaf, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    auto_fd int fd = path_parent(&paths, in("rel/new/er/f"), true, leaf, &err);
    assert_true(fd >= 0);
    assert_int_equal(stat(in("d/new/er"), &st), 0); /* made in the target of the link */
}

TEST(path_beneath_follows_no_links)
{
    auto_fd int dir = open(top, O_PATH | O_DIRECTORY);
    static const char *const bad[] = { "rel", "rel/x", "abs", "up", "..", "d/../..", "/etc" };

    auto_fd int ok = path_beneath(dir, "d", O_PATH | O_DIRECTORY, true);
    assert_true(ok >= 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (path_beneath(dir, bad[i], O_PATH | O_DIRECTORY, false) >= 0)
            fail_msg("%s", bad[i]);
}

TEST(each_errno_gets_its_error_id)
{
    static const struct {
        int sys;
        enum err_id id;
    } cases[] = {
        { ENOENT, ERR_MISSING },    { EEXIST, ERR_EXISTS }, { ENOTEMPTY, ERR_EXISTS }, { EACCES, ERR_DENIED },
        { EROFS, ERR_DENIED },      { ENOSPC, ERR_LIMIT },  { EFBIG, ERR_LIMIT },      { ELOOP, ERR_WRONG_KIND },
        { EISDIR, ERR_WRONG_KIND }, { EBUSY, ERR_BUSY },    { EIO, ERR_SYS },
    };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        errno = cases[i].sys;
        assert_int_equal(path_fail(&err, "opening", "/x"), -1);
        assert_int_equal(err.id, cases[i].id);
        assert_int_equal(err.sys, cases[i].sys);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(paths_that_are_not_absolute_or_too_long_are_refused),
        RUN(ordinary_links_are_followed_and_magic_links_are_not),
        RUN(every_spelling_of_a_path_is_split_into_parent_and_name),
        RUN(missing_parents_are_made_on_request),
        RUN(path_beneath_follows_no_links),
        RUN(each_errno_gets_its_error_id),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
