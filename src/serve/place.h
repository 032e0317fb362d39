/* place.h - where a server lives: its directories, its user, and the lock that keeps a second one out. */
#pragma once

#include "base/base.h"
#include "base/err.h"

#include <sys/types.h>

/* Of coved, where there is no user of that name; beside the uids of monitor, templates and sandboxes. */
#define PLACE_UID 1900290001u

struct place {
    char *state, *run;            /* directories */
    char *output;                 /* below state */
    char *jailer, *monitor, *api; /* sockets below run */
    uid_t uid;                    /* of coved */
    gid_t gid;
};

/* Where things are. Pure but for the user's name: *_dir "" is the default for this euid, home and the XDG variables may
 * be NULL. user is looked up only for root. */
struct place_wishes {
    const char *state_dir, *run_dir, *user;
    uid_t euid;
    const char *home, *xdg_state, *xdg_runtime;
};
int place_find(const struct place_wishes *wishes, struct place *ret, struct err *err);
void place_done(struct place *p);

/* Makes the directories, with owners and modes, and refuses those that somebody else could change. */
int place_make(const struct place *p, struct err *err);
/* SERVER_RUNNING when another server has it. The lock ends with the last process that has the descriptor. */
int place_lock(const struct place *p, int *ret_fd, struct err *err);
