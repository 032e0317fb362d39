/* Follows the XDG base directory specification, with a directory in /tmp for a user without a home.
 * A relative path in a variable is ignored, as the specification requires. */
#include "core/base/server_dirs.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static bool server_dirs_is_absolute(const char *path)
{
    return path && path[0] == '/';
}

char *server_dirs_state(const struct server_dirs_env *env)
{
    if (env->euid == 0)
        return str_dup("/var/lib/cove");
    if (server_dirs_is_absolute(env->xdg_state))
        return str_printf("%s/cove", env->xdg_state);
    if (server_dirs_is_absolute(env->home))
        return str_printf("%s/.local/state/cove", env->home);
    return str_printf("/tmp/cove-%u/state", env->euid);
}

char *server_dirs_run(const struct server_dirs_env *env)
{
    if (env->euid == 0)
        return str_dup(SERVER_DIRS_SYSTEM_RUN);
    if (server_dirs_is_absolute(env->xdg_runtime))
        return str_printf("%s/cove", env->xdg_runtime);
    auto_free char *state = server_dirs_state(env);
    return str_printf("%s/run", state);
}

char *server_dirs_api_socket(const char *run_dir)
{
    return str_printf("%s/" SERVER_DIRS_API_SOCKET, run_dir);
}

size_t server_dirs_find_sockets(const struct server_dirs_env *env, char *ret[SERVER_DIRS_SOCKETS_MAX])
{
    const struct server_dirs_env tried[SERVER_DIRS_SOCKETS_MAX] = {
        *env,
        { .euid = env->euid, .home = env->home, .xdg_state = env->xdg_state },
        { .euid = env->euid, .home = env->home },
        { .euid = env->euid },
        { .euid = 0 },
    };
    size_t n = 0;

    for (size_t i = 0; i < SERVER_DIRS_SOCKETS_MAX; i++) {
        auto_free char *run = server_dirs_run(&tried[i]);
        auto_free char *socket = server_dirs_api_socket(run);
        bool is_new = true;

        for (size_t k = 0; k < n; k++)
            is_new &= !str_eq(ret[k], socket);
        if (is_new)
            ret[n++] = take_ptr(&socket);
    }
    return n;
}
