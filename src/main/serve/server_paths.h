/* server_paths.h - the directories and the user of a server, and the lock against a second
 * server. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

/* uid of coved if the user "cove" does not exist; next to the reserved uids of the monitor,
 * templates and sandboxes. */
#define SERVER_DEFAULT_UID 1900290001u

struct server_paths {
    char *state_dir, *run_dir;
    char *output_dir;                                                  /* in state_dir */
    char *jailer_socket, *monitor_socket, *egress_socket, *api_socket; /* in run_dir */
    uid_t uid;                                                         /* user of coved */
    gid_t gid;
};

/* Input of server_paths_resolve(). state_dir and run_dir "" select the default for this euid; home
 * and the XDG variables may be NULL. The user is looked up only if euid is 0; that lookup is the
 * only side effect. */
struct server_paths_settings {
    const char *state_dir, *run_dir, *user;
    uid_t euid;
    const char *home, *xdg_state, *xdg_runtime;
};
int server_paths_resolve(const struct server_paths_settings *wishes, struct server_paths *ret, struct err *err);
void server_paths_done(struct server_paths *p);

/* Creates the directories with their owners and modes, and that of store_file (NULL: the store is
 * not a file) for coved. Refuses existing directories of another owner. */
int server_paths_create(const struct server_paths *p, const char *store_file, struct err *err);
/* Fails with SERVER_RUNNING if another server holds the lock. The lock lasts until the last process
 * closes the descriptor. */
int server_paths_lock(const struct server_paths *p, int *ret_fd, struct err *err);
