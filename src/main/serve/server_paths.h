/* server_paths.h - where a server lives: its directories, its user, and the lock that keeps a second one out. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/types.h>

/* Of coved, where there is no user of that name; beside the uids of monitor, templates and sandboxes. */
#define SERVER_DEFAULT_UID 1900290001u

struct server_paths {
    char *state_dir, *run_dir;                         /* directories */
    char *output_dir;                                  /* below state */
    char *jailer_socket, *monitor_socket, *api_socket; /* sockets below run */
    uid_t uid;                                         /* of coved */
    gid_t gid;
};

/* Where things are. Pure but for the user's name: *_dir "" is the default for this euid, home and the XDG variables may
 * be NULL. user is looked up only for root. */
struct server_paths_settings {
    const char *state_dir, *run_dir, *user;
    uid_t euid;
    const char *home, *xdg_state, *xdg_runtime;
};
int server_paths_resolve(const struct server_paths_settings *wishes, struct server_paths *ret, struct err *err);
void server_paths_done(struct server_paths *p);

/* Makes the directories, with owners and modes, and refuses those that somebody else could change. */
int server_paths_create(const struct server_paths *p, struct err *err);
/* SERVER_RUNNING when another server has it. The lock ends with the last process that has the descriptor. */
int server_paths_lock(const struct server_paths *p, int *ret_fd, struct err *err);
