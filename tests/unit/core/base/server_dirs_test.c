/* The directories of a server. A client that follows another rule does not find its server, or
 * finds the server of another user. */
#include "tests/unit/test.h"

#include "core/base/server_dirs.h"
#include "core/base/str.h"

#include <stdlib.h>

TEST(directories_follow_the_user_and_the_environment)
{
    static const struct {
        struct server_dirs_env env;
        const char *state, *run;
    } cases[] = {
        { { .euid = 0, .home = "/root", .xdg_state = "/s", .xdg_runtime = "/r" }, "/var/lib/cove", "/run/cove" },
        { { .euid = 7, .home = "/h" }, "/h/.local/state/cove", "/h/.local/state/cove/run" },
        { { .euid = 7, .home = "/h", .xdg_state = "/s" }, "/s/cove", "/s/cove/run" },
        { { .euid = 7, .home = "/h", .xdg_state = "/s", .xdg_runtime = "/r" }, "/s/cove", "/r/cove" },
        { { .euid = 7, .home = "/h", .xdg_state = "rel", .xdg_runtime = "" },
          "/h/.local/state/cove",
          "/h/.local/state/cove/run" },
        { { .euid = 7, .home = "rel" }, "/tmp/cove-7/state", "/tmp/cove-7/state/run" },
        { { .euid = 7 }, "/tmp/cove-7/state", "/tmp/cove-7/state/run" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *files = server_dirs_state(&cases[i].env), *run = server_dirs_run(&cases[i].env);

        assert_string_equal(files, cases[i].state);
        assert_string_equal(run, cases[i].run);
    }
}

static void check_sockets(const struct server_dirs_env *env, const char *const expected[])
{
    char *sockets[SERVER_DIRS_SOCKETS_MAX];
    size_t n = server_dirs_find_sockets(env, sockets), i;

    for (i = 0; i < n && expected[i]; i++)
        assert_string_equal(sockets[i], expected[i]);
    assert_int_equal(i, n);
    assert_null(expected[i]);
    for (i = 0; i < n; i++)
        free(sockets[i]);
}

TEST(a_client_looks_for_servers_of_its_user_and_then_for_that_of_the_system)
{
    check_sockets(&(struct server_dirs_env){ .euid = 0, .home = "/root", .xdg_runtime = "/r" },
                  (const char *const[]){ "/run/cove/api.sock", NULL });
    check_sockets(&(struct server_dirs_env){ .euid = 7, .home = "/h", .xdg_state = "/s", .xdg_runtime = "/r" },
                  (const char *const[]){ "/r/cove/api.sock", "/s/cove/run/api.sock",
                                         "/h/.local/state/cove/run/api.sock", "/tmp/cove-7/state/run/api.sock",
                                         "/run/cove/api.sock", NULL });
    check_sockets(&(struct server_dirs_env){ .euid = 7 },
                  (const char *const[]){ "/tmp/cove-7/state/run/api.sock", "/run/cove/api.sock", NULL });
}

/* The client finds the server for every subset of its variables that the server had. */
TEST(a_client_finds_a_server_that_was_started_with_fewer_variables)
{
    const struct server_dirs_env client = { .euid = 7, .home = "/h", .xdg_state = "/s", .xdg_runtime = "/r" };
    char *sockets[SERVER_DIRS_SOCKETS_MAX];
    size_t n = server_dirs_find_sockets(&client, sockets);

    for (unsigned had = 0; had < 8; had++) {
        struct server_dirs_env server = { .euid = 7,
                                          .home = had & 1 ? client.home : NULL,
                                          .xdg_state = had & 2 ? client.xdg_state : NULL,
                                          .xdg_runtime = had & 4 ? client.xdg_runtime : NULL };
        auto_free char *run = server_dirs_run(&server), *socket = server_dirs_api_socket(run);
        bool found = false;

        for (size_t i = 0; i < n; i++)
            found |= str_eq(sockets[i], socket);
        if (!found)
            fail_msg("%s", socket);
    }
    for (size_t i = 0; i < n; i++)
        free(sockets[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(directories_follow_the_user_and_the_environment),
        RUN(a_client_looks_for_servers_of_its_user_and_then_for_that_of_the_system),
        RUN(a_client_finds_a_server_that_was_started_with_fewer_variables),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
