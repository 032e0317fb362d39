/* Every wall is verified twice where possible: the driver attests the walls that it raised, and
 * PID 1 reports the walls that it sees. Both are required. Every existing level requires all
 * walls, so the table is the requirement, and an exception needs a reason. */
#include "sandbox/walls.h"

#include "core/base/str.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#define WALL(name, outside, inside, needs_root, description, effect, attack) \
    { outside, inside, #name, description, effect, attack, needs_root },
static const struct wall walls_table[] = {
#include "policy/walls.def"
};
#undef WALL

const struct wall *walls_all(size_t *count)
{
    *count = ARRAY_LEN(walls_table);
    return walls_table;
}

#define WALL_EXCEPTION(driver, level, wall, reason) { DRIVER_##driver, LEVEL_##level, #wall, reason },
static const struct wall_exception walls_exception_table[] = {
#include "policy/wall_exceptions.def"
    { DRIVER_COUNT, LEVEL_STANDARD, NULL, NULL },
};
#undef WALL_EXCEPTION

const struct wall_exception *walls_exceptions(size_t *count)
{
    *count = ARRAY_LEN(walls_exception_table) - 1;
    return walls_exception_table;
}

const char *walls_exception_reason_in(const struct wall_exception *table, size_t n, const struct wall_demand *d,
                                      const struct wall *w)
{
    if (d->rootless && w->needs_root)
        return "an unprivileged user cannot raise it";
    for (size_t i = 0; i < n; i++)
        if (table[i].driver == d->driver && table[i].level == d->level && str_eq(table[i].wall, w->name))
            return table[i].reason;
    return NULL;
}

const char *walls_exception_reason(const struct wall_demand *d, const struct wall *w)
{
    return walls_exception_reason_in(walls_exception_table, ARRAY_LEN(walls_exception_table) - 1, d, w);
}

static int walls_check(bool inside, const struct wall_demand *d, uint32_t found, const char *finding, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(walls_table); i++) {
        const struct wall *w = &walls_table[i];
        uint32_t bit = inside ? w->inside : w->outside;

        if (bit && !(found & bit) && !walls_exception_reason(d, w))
            return err_set(err, ERR_WALL_MISSING, "level %s needs the wall %s (%s), and %s%s", level_name(d->level),
                           w->name, w->description, finding, w->needs_root ? "; it takes root" : "");
    }
    return 0;
}

int walls_check_outside(const struct wall_demand *d, uint32_t found, struct err *err)
{
    return walls_check(false, d, found, "it could not be raised on this host", err);
}

int walls_check_inside(const struct wall_demand *d, uint32_t found, uint32_t landlock_abi, struct err *err)
{
    if (walls_check(true, d, found, "it was not seen from inside the sandbox", err) < 0)
        return -1;
    if (landlock_abi < walls_landlock_min(d))
        return err_set(err, ERR_WALL_MISSING, "level %s needs the wall landlock at ABI %u, and the kernel has %u",
                       level_name(d->level), walls_landlock_min(d), landlock_abi);
    return 0;
}

uint32_t walls_inside_needed(const struct wall_demand *d)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < ARRAY_LEN(walls_table); i++)
        if (!walls_exception_reason(d, &walls_table[i]))
            bits |= walls_table[i].inside;
    return bits;
}

/* Every existing level accepts the oldest ABI. */
uint32_t walls_landlock_min(const struct wall_demand *d)
{
    return walls_inside_needed(d) & RT_WALL_LANDLOCK ? 1 : 0;
}
