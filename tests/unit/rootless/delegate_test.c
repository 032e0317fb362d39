/* The choice of a cgroup, from facts; that it works is proven in a virtual machine with systemd. */
#include "../test.h"

#include "rootless/delegate.h"

#define ALL "cpuset cpu io memory hugetlb pids\n"

static const char *const names[] = { "none", "here", "beside", "ask" };

static void expect(enum delegate_way way, struct delegate_facts f, int line)
{
    enum delegate_way got = delegate_choose(&f);

    if (got != way)
        fail_msg("line %d: %s instead of %s", line, names[got], names[way]);
}

#define EXPECT(way, ...) expect(way, (struct delegate_facts){ __VA_ARGS__ }, __LINE__)

TEST(a_login_session_asks_the_users_systemd)
{
    EXPECT(DELEGATE_ASK, .offered = ALL, .here = "memory pids\n", .manager = true);
    EXPECT(DELEGATE_ASK, .offered = ALL, .manager = true);
}

TEST(a_delegated_scope_of_our_own_is_used_as_it_is)
{
    EXPECT(DELEGATE_HERE, .offered = ALL, .here = ALL, .writable = true, .marked = true, .alone = true,
           .manager = true);
}

TEST(a_cgroup_that_systemd_has_not_given_away_is_left_to_it)
{
    EXPECT(DELEGATE_ASK, .offered = ALL, .here = ALL, .writable = true, .alone = true, .manager = true);
    EXPECT(DELEGATE_HERE, .offered = ALL, .here = ALL, .writable = true, .alone = true); /* a container: no systemd */
}

TEST(strangers_are_never_moved)
{
    EXPECT(DELEGATE_ASK, .offered = ALL, .here = ALL, .writable = true, .marked = true, .manager = true);
    EXPECT(DELEGATE_NONE, .offered = ALL, .here = ALL, .writable = true, .marked = true);
}

TEST(a_place_beside_us_is_used_when_the_one_above_is_delegated)
{
    EXPECT(DELEGATE_BESIDE, .offered = ALL, .here = ALL, .writable = true, .parent_marked = true,
           .parent_writable = true, .parent = "memory pids\n", .manager = true);
    EXPECT(DELEGATE_ASK, .offered = ALL, .here = ALL, .writable = true, .parent_marked = true, .parent_writable = true,
           .parent = "pids\n", .manager = true); /* it hands no memory down */
    EXPECT(DELEGATE_ASK, .offered = ALL, .here = ALL, .writable = true, .parent_writable = true, .parent = ALL,
           .manager = true); /* a slice of systemd's own */
}

TEST(controllers_that_limits_need_must_be_there)
{
    EXPECT(DELEGATE_NONE, .manager = true);
    EXPECT(DELEGATE_NONE, .offered = "\n", .manager = true); /* a hybrid host keeps them on v1 */
    EXPECT(DELEGATE_NONE, .offered = "cpu memory\n", .manager = true);
    EXPECT(DELEGATE_NONE, .offered = ALL, .here = "cpu pids\n", .writable = true, .marked = true, .alone = true);
}

TEST(the_v2_line_of_proc_is_found_and_must_be_in_sight)
{
    static const struct {
        const char *text, *path;
    } rows[] = {
        { "0::/user.slice/user-1000.slice/session-3.scope\n", "/user.slice/user-1000.slice/session-3.scope" },
        { "9:name=systemd:/x\n1:cpu:/\n0::/\n", "/" },
        { "0::/a b\n", "/a b" },
        { "0::/last", "/last" },
        { "9:name=systemd:/x\n", NULL },
        { "10::/no\n", NULL },
        { "0::/../../outside\n", NULL }, /* another cgroup namespace */
        { "0::\n", NULL },
        { "", NULL },
        { "0::/a-path-that-is-longer-than-the-thirty-two-bytes-it-is-given\n", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char path[48] = "untouched";
        bool found = delegate_own_path(rows[i].text, path, i + 1 == ARRAY_LEN(rows) ? 32 : sizeof(path));

        if (found != (rows[i].path != NULL))
            fail_msg("row %zu: %s", i, found ? path : "not found");
        assert_string_equal(path, found ? rows[i].path : "untouched");
    }
}

/* This room is not among the privileged lines that are counted, so it must never work for root. */
TEST(root_is_refused)
{
    struct cgroup_forest f;
    struct err err = { 0 };

    assert_int_equal(delegate_find(&f, 0, 0, &err), -1);
    assert_int_equal(err.id, ERR_BUG);
    assert_int_equal(f.ntrees, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_login_session_asks_the_users_systemd),
        RUN(a_delegated_scope_of_our_own_is_used_as_it_is),
        RUN(a_cgroup_that_systemd_has_not_given_away_is_left_to_it),
        RUN(strangers_are_never_moved),
        RUN(a_place_beside_us_is_used_when_the_one_above_is_delegated),
        RUN(controllers_that_limits_need_must_be_there),
        RUN(root_is_refused),
        RUN(the_v2_line_of_proc_is_found_and_must_be_in_sight),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
