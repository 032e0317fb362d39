/* walls.h - the names of the walls, and which of them a level demands. Data only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/level.h"

struct wall {
    uint32_t bit;
    const char *name;        /* snake_case, as in a receipt */
    const char *description; /* for the message when it is missing */
    bool needs_root;         /* a plain user cannot raise it */
};

const struct wall *walls_outside(size_t *count); /* JAIL_WALL_*: raised by the jailer */
const struct wall *walls_inside(size_t *count);  /* RT_WALL_*: seen by PID 1 of the sandbox itself */

/* Fails with WALL_MISSING and the name of the first wall of the level that is not among those found. A plain user
 * cannot have the walls that are made of other users' ids; `rootless` does not ask for those. */
int walls_check_outside(enum level l, bool rootless, uint32_t found, struct err *err);
int walls_check_inside(enum level l, bool rootless, uint32_t found, uint32_t landlock_abi, struct err *err);
uint32_t walls_inside_needed(bool rootless); /* what walls_check_inside looks for: RT_WALL_* bits */
uint32_t walls_landlock_min(enum level l);   /* Landlock ABI that the level needs */
