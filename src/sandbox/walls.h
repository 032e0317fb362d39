/* walls.h - the names of the walls, and which walls a level requires of a driver. Data only. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/driver.h"
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

/* The sandbox of which walls are required. */
struct wall_demand {
    enum level level;
    enum driver_id driver;
    bool rootless; /* made by an unprivileged user, and without require_all_walls */
};

/* A row of policy/wall_exceptions.def. */
struct wall_exception {
    enum driver_id driver;
    enum level level;
    const char *wall, *reason;
};
const struct wall_exception *walls_exceptions(size_t *count);

/* NULL: the wall is required. Otherwise the reason why the sandbox may lack it. */
const char *walls_exception_reason(const struct wall_demand *d, const struct wall *w);
/* The same with another table, for its test. */
const char *walls_exception_reason_in(const struct wall_exception *table, size_t n, const struct wall_demand *d,
                                      const struct wall *w);

/* Fails with WALL_MISSING and the name of the first required wall that is not in `found`. */
int walls_check_outside(const struct wall_demand *d, uint32_t found, struct err *err);
int walls_check_inside(const struct wall_demand *d, uint32_t found, uint32_t landlock_abi, struct err *err);
uint32_t walls_inside_needed(const struct wall_demand *d); /* RT_WALL_* bits that walls_check_inside requires */
uint32_t
walls_landlock_min(const struct wall_demand *d); /* the lowest Landlock ABI that is accepted; 0: none is needed */
