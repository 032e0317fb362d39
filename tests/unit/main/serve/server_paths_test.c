/* Paths and user of a server: an error here would use another user's directory, or give coved
 * control over root's sockets. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "main/serve/server_paths.h"
#include "main/serve/sockets.h"

#include <sys/stat.h>

TEST(directories_follow_the_settings_then_the_user)
{
    static const struct {
        struct server_paths_settings w;
        const char *state, *run;
    } cases[] = {
        { { .user = "cove", .euid = 0, .home = "/root" }, "/var/lib/cove", "/run/cove" },
        { { .user = "cove", .euid = 0, .state_dir = "/x" }, "/x/state", "/x/run" },
        { { .user = "cove", .euid = 0, .state_dir = "/x", .run_dir = "/y" }, "/x", "/y" },
        { { .user = "cove", .euid = 0, .run_dir = "/y" }, "/var/lib/cove", "/y" },
        { { .euid = 7, .home = "/h" }, "/h/.local/state/cove", "/h/.local/state/cove/run" },
        { { .euid = 7, .home = "/h", .xdg_state = "/s", .xdg_runtime = "/r" }, "/s/cove", "/r/cove" },
        { { .euid = 7, .home = "/h", .xdg_state = "rel", .xdg_runtime = "" },
          "/h/.local/state/cove",
          "/h/.local/state/cove/run" },
        { { .euid = 7 }, "/tmp/cove-7/state", "/tmp/cove-7/state/run" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct server_paths p;
        struct err err = { 0 };

        assert_int_equal(server_paths_resolve(&cases[i].w, &p, &err), 0);
        assert_string_equal(p.state_dir, cases[i].state);
        assert_string_equal(p.run_dir, cases[i].run);
        assert_true(str_starts(p.api_socket, p.run_dir) && str_starts(p.output_dir, p.state_dir));
        assert_true(p.uid != 0);
        server_paths_done(&p);
    }
}

TEST(relative_or_overlong_paths_and_invalid_users_are_refused)
{
    char deep[200];
    static const char *const users[] = { "root", "0", "no-such-user-here" };
    struct server_paths p;
    struct err err = { 0 };

    memset(deep, 'a', sizeof(deep) - 1);
    deep[0] = '/';
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(server_paths_resolve(&(struct server_paths_settings){ .euid = 7, .run_dir = deep }, &p, &err), -1);
    assert_int_equal(server_paths_resolve(&(struct server_paths_settings){ .euid = 7, .state_dir = "rel" }, &p, &err),
                     -1);
    for (size_t i = 0; i < ARRAY_LEN(users); i++) { /* coved never runs as root, and an unknown user is an error */
        assert_int_equal(server_paths_resolve(&(struct server_paths_settings){ .euid = 0, .user = users[i] }, &p, &err),
                         -1);
        assert_int_equal(err.id, ERR_CONF_VALUE);
    }
}

TEST(the_directory_of_the_store_is_created_for_its_user_alone_and_that_of_another_user_is_refused)
{
    char dir[] = "/tmp/cove-paths-XXXXXX";
    struct server_paths p;
    struct stat st;
    struct err err = { 0 };

    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    auto_free char *base = str_printf("%s/base", dir), *file = str_printf("%s/db/deep/my.db", dir);
    auto_free char *deep = str_printf("%s/db/deep", dir);
    struct server_paths_settings w = { .user = "12345", .euid = geteuid(), .state_dir = base };
    assert_int_equal(server_paths_resolve(&w, &p, &err), 0);
    if (server_paths_create(&p, file, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(stat(deep, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(st.st_uid, p.uid);
    assert_int_equal(server_paths_create(&p, NULL, &err), 0);
    assert_int_equal(server_paths_create(&p, "/proc/my.db", &err), -1);
    if (geteuid() == 0)
        assert_non_null(strstr(err.msg, "/proc belongs to uid 0"));
    assert_int_equal(server_paths_create(&p, "/my.db", &err), -1);
    if (geteuid() == 0)
        assert_non_null(strstr(err.msg, "/ belongs to uid 0"));
    server_paths_done(&p);
    auto_free char *command = str_printf("rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

TEST(only_literal_addresses_with_a_port_are_accepted)
{
    static const char *const good[] = { "127.0.0.1:0", "localhost:0" };
    static const char *const bad[] = {
        "",  ":",   "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "example.org:80", "::1:80", "[127.0.0.1]:80",
        "[", "]:1", "1.2.3.4:8x"
    };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        auto_fd int fd = -1;

        assert_int_equal(sockets_listen_tcp(good[i], &fd, &err), 0);
        auto_free char *name = sockets_local_address(fd);
        assert_true(str_starts(name, "127.0.0.1:") && !str_ends(name, ":0"));
        auto_fd int again = -1;
        assert_int_equal(sockets_listen_tcp(name, &again, &err), -1);
        assert_int_equal(err.id, ERR_ADDRESS_USED);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int fd;

        if (sockets_listen_tcp(bad[i], &fd, &err) != -1 || err.id != ERR_CONF_VALUE)
            fail_msg("'%s' was accepted", bad[i]);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(directories_follow_the_settings_then_the_user),
        RUN(relative_or_overlong_paths_and_invalid_users_are_refused),
        RUN(the_directory_of_the_store_is_created_for_its_user_alone_and_that_of_another_user_is_refused),
        RUN(only_literal_addresses_with_a_port_are_accepted),
    };

    return cmocka_run_group_tests_name("place", tests, NULL, NULL);
}
