#include "tests/unit/test.h"

#include "host/rootless/rootless.h"

#include <errno.h>

TEST(the_error_names_the_forbidding_setting_and_its_fix)
{
    static const struct {
        struct rootless_facts clues;
        const char *names;
    } rows[] = {
        { { .unprivileged_userns_clone = "0\n", .max_user_namespaces = "100\n" }, "unprivileged_userns_clone=1" },
        { { .max_user_namespaces = "0\n" }, "user.max_user_namespaces=" },
        { { .max_user_namespaces = "100\n", .apparmor_restrict = "1\n" }, "apparmor_restrict_unprivileged_userns=0" },
        { { .max_user_namespaces = "100\n", .host_kind = HOST_KIND_CONTAINER }, "seccomp=unconfined" },
        { { .host_kind = HOST_KIND_CONTAINER, .is_root = true }, "--privileged" },
        { { .host_kind = HOST_KIND_POD }, "procMount: Unmasked" },
        { { .host_kind = HOST_KIND_POD, .is_root = true }, "privileged: true" },
        { { .host_kind = HOST_KIND_WSL1 }, "wsl --set-version" },
        { { .is_root = true }, "CAP_SYS_ADMIN" },
        /* Settings that restrict only unprivileged users do not explain a refusal of root. */
        { { .is_root = true, .unprivileged_userns_clone = "0\n", .apparmor_restrict = "1\n" }, "CAP_SYS_ADMIN" },
        { { .is_root = true, .max_user_namespaces = "0\n" }, "user.max_user_namespaces=" },
        { { .max_user_namespaces = "100\n", .apparmor_restrict = "0\n" }, "Operation not permitted" },
        { { 0 }, "Operation not permitted" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };

        rootless_explain(&rows[i].clues, EPERM, &err);
        assert_int_equal(err.id, ERR_NO_NAMESPACES);
        if (!strstr(err.msg, rows[i].names))
            fail_msg("row %zu: %s", i, err.msg);
        assert_true(strlen(err.msg) < sizeof(err.msg) - 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { RUN(the_error_names_the_forbidding_setting_and_its_fix) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
