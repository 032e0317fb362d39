/* The choice of a cgroup from given facts. The check against a real systemd runs in a virtual
 * machine. */
#include "tests/unit/test.h"

#include "host/rootless/delegate.h"

#define ALL "cpuset cpu io memory hugetlb pids\n"

static const char *const names[] = { "none", "own cgroup", "parent cgroup", "systemd scope" };

static void expect(enum delegate_method way, struct delegate_facts f, int line)
{
    enum delegate_method got = delegate_choose_method(&f);

    if (got != way)
        fail_msg("line %d: %s instead of %s", line, names[got], names[way]);
}

#define EXPECT(way, ...) expect(way, (struct delegate_facts){ __VA_ARGS__ }, __LINE__)

TEST(a_login_session_asks_the_users_systemd_for_a_scope)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = "memory pids\n",
           .has_user_manager = true);
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .has_user_manager = true);
}

TEST(a_delegated_cgroup_with_only_own_processes_is_used_directly)
{
    EXPECT(DELEGATE_OWN_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .is_delegated = true, .has_only_own_processes = true, .has_user_manager = true);
}

TEST(a_cgroup_that_systemd_has_not_delegated_is_not_used)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .has_only_own_processes = true, .has_user_manager = true);
    EXPECT(DELEGATE_OWN_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .has_only_own_processes = true); /* a container: no systemd */
}

TEST(a_cgroup_with_processes_of_others_is_not_used)
{
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .is_delegated = true, .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true, .is_delegated = true);
}

TEST(a_delegated_parent_cgroup_with_the_controllers_is_used)
{
    EXPECT(DELEGATE_PARENT_CGROUP, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_delegated = true, .parent_is_writable = true, .parent_controllers = "memory pids\n",
           .has_user_manager = true);
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_delegated = true, .parent_is_writable = true, .parent_controllers = "pids\n",
           .has_user_manager = true); /* the parent does not enable memory */
    EXPECT(DELEGATE_SYSTEMD_SCOPE, .root_controllers = ALL, .own_controllers = ALL, .is_writable = true,
           .parent_is_writable = true, .parent_controllers = ALL,
           .has_user_manager = true); /* a slice that belongs to systemd */
}

TEST(missing_memory_or_pids_controllers_rule_out_delegation)
{
    EXPECT(DELEGATE_NONE, .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = "\n", .has_user_manager = true); /* a hybrid host keeps them on v1 */
    EXPECT(DELEGATE_NONE, .root_controllers = "cpu memory\n", .has_user_manager = true);
    EXPECT(DELEGATE_NONE, .root_controllers = ALL, .own_controllers = "cpu pids\n", .is_writable = true,
           .is_delegated = true, .has_only_own_processes = true);
}

TEST(the_v2_path_is_found_unless_it_is_outside_the_visible_tree)
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

/* This component does not count as privileged code, so it must never work for root. */
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
        RUN(a_login_session_asks_the_users_systemd_for_a_scope),
        RUN(a_delegated_cgroup_with_only_own_processes_is_used_directly),
        RUN(a_cgroup_that_systemd_has_not_delegated_is_not_used),
        RUN(a_cgroup_with_processes_of_others_is_not_used),
        RUN(a_delegated_parent_cgroup_with_the_controllers_is_used),
        RUN(missing_memory_or_pids_controllers_rule_out_delegation),
        RUN(root_is_refused),
        RUN(the_v2_path_is_found_unless_it_is_outside_the_visible_tree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
