/* server_dirs.h - the default directories of a server, and where clients search for its socket.
 *
 * `cove serve` and every client on the same machine follow this one rule. Nothing here reads the
 * environment or the disk. */
#pragma once

#include "core/base/base.h"

#include <sys/types.h>

#define SERVER_DIRS_SYSTEM_RUN "/run/cove" /* the run directory of root's server */
#define SERVER_DIRS_API_SOCKET "api.sock"  /* in the run directory */
#define SERVER_DIRS_SOCKETS_MAX 5u

struct server_dirs_env {
    uid_t euid;
    const char *home, *xdg_state, *xdg_runtime; /* values of HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR; NULL: not set */
};

/* The caller frees the results. */
char *server_dirs_state(const struct server_dirs_env *env);
char *server_dirs_run(const struct server_dirs_env *env);
char *server_dirs_api_socket(const char *run_dir);

/* The sockets at which a client with this environment may find a server, in order of preference:
 * those of its own user, then the system's. A server may have been started with fewer variables
 * than the client has, so the rule is also applied without them. Returns how many of `ret` are set;
 * the caller frees each. */
size_t server_dirs_find_sockets(const struct server_dirs_env *env, char *ret[SERVER_DIRS_SOCKETS_MAX]);
