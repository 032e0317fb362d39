/* walls.h - the names of the walls, and which walls a level requires. Data only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/level.h"

struct wall {
    uint32_t outside;        /* JAIL_WALL_*: raised by the jailer; 0: it cannot know */
    uint32_t inside;         /* RT_WALL_*: verified by PID 1 inside the sandbox; 0: it cannot know */
    const char *name;        /* snake_case, as in a receipt */
    const char *description; /* for the error message when the wall is missing */
    const char *effect;      /* what a program meets */
    const char *attack;      /* what `cove doctor` tries */
    bool needs_root;         /* an unprivileged user cannot raise it */
};

const struct wall *walls_all(size_t *count); /* policy/walls.def */

/* Fails with WALL_MISSING and the name of the first wall of the level that is not in `found`. An
 * unprivileged user cannot have the walls that need other users' ids; `rootless` skips those. */
int walls_check_outside(enum level l, bool rootless, uint32_t found, struct err *err);
int walls_check_inside(enum level l, bool rootless, uint32_t found, uint32_t landlock_abi, struct err *err);
uint32_t walls_inside_needed(bool rootless); /* RT_WALL_* bits that walls_check_inside requires */
uint32_t walls_landlock_min(enum level l);   /* the lowest Landlock ABI that the level accepts */
