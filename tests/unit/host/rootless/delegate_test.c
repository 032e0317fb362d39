/* The choice of a cgroup, from facts; that it works is proven in a virtual machine with systemd. */
#include "tests/unit/test.h"

#include "host/rootless/delegate.h"

#define ALL "cpuset cpu io memory hugetlb pids\n"

static const char *const names[] = { "none", "here", "beside", "ask" };

static void expect(enum delegate_method way, struct delegate_facts f, int line)
{
    enum delegate_method got = delegate_choose_method(&f);

    if (got != way)
        fail_msg("line %d: %s instead of %s", line, names[got], names[way]);
}

#define EXPECT(way, ...) expect(way, (struct delegate_facts){ __VA_ARGS__ }, __LINE__)

TEST(a_login_session_asks_the_users_systemd)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = "memory pids\n",
           .has_user_manager = true);
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .has_user_manager = true);
}

TEST(a_delegated_scope_of_our_own_is_used_as_it_is)
{
    EXPECT(DELEGATE_OWN_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .is_delegated = true, .has_only_own_processes = true, .has_user_manager = true);
}

TEST(a_cgroup_that_systemd_has_not_given_away_is_left_to_it)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .has_only_own_processes = true, .has_user_manager = true);
    EXPECT(DELEGATE_OWN_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .has_only_own_processes = true); /* a container: no systemd */
}

TEST(strangers_are_never_moved)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .is_delegated = true, .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true, .is_delegated = true);
}

TEST(a_place_beside_us_is_used_when_the_one_above_is_delegated)
{
    EXPECT(DELEGATE_PARENT_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_delegated = true, .parent_is_writable = true, .parent_controllers = "memory pids\n",
           .has_user_manager = true);
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_delegated = true, .parent_is_writable = true, .parent_controllers = "pids\n",
           .has_user_manager = true); /* it hands no memory down */
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_writable = true, .parent_controllers = ALL,
           .has_user_manager = true); /* a slice of systemd's own */
}

TEST(controllers_that_limits_need_must_be_there)
{
    EXPECT(DELEGATE_NONE, .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = "\n", .has_user_manager = true); /* a hybrid host keeps them on v1 */
    EXPECT(DELEGATE_NONE, .root_controllers = "cpu memory\n", .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = ALL, .own_controllers = "cpu pids\n", .is_writable = true,
           .is_delegated = true, .has_only_own_processes = true);
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
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    assert_int_equal(delegate_find_cgroup(&f, 0, 0, &err), -1);
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
