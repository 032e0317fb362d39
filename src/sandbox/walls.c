/* Every wall is verified twice where possible: the jailer reports the walls that it raised, and
 * PID 1 reports the walls that it sees. Both are required. Every existing level requires all
 * walls, so the table is the requirement. */
#include "sandbox/walls.h"

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

static int walls_check(bool inside, bool rootless, uint32_t found, const char *finding, enum level l, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(walls_table); i++) {
        const struct wall *w = &walls_table[i];
        uint32_t bit = inside ? w->inside : w->outside;

        if (bit && !(found & bit) && !(rootless && w->needs_root))
            return err_set(err, ERR_WALL_MISSING, "level %s needs the wall %s (%s), and %s%s", level_name(l), w->name,
                           w->description, finding, w->needs_root ? "; it takes root" : "");
    }
    return 0;
}

int walls_check_outside(enum level l, bool rootless, uint32_t found, struct err *err)
{
    return walls_check(false, rootless, found, "it could not be raised on this host", l, err);
}

int walls_check_inside(enum level l, bool rootless, uint32_t found, uint32_t landlock_abi, struct err *err)
{
    if (walls_check(true, rootless, found, "it was not seen from inside the sandbox", l, err) < 0)
        return -1;
    if (landlock_abi < walls_landlock_min(l))
        return err_set(err, ERR_WALL_MISSING, "level %s needs the wall landlock at ABI %u, and the kernel has %u",
                       level_name(l), walls_landlock_min(l), landlock_abi);
    return 0;
}

uint32_t walls_inside_needed(bool rootless)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < ARRAY_LEN(walls_table); i++)
        if (!(rootless && walls_table[i].needs_root))
            bits |= walls_table[i].inside;
    return bits;
}

uint32_t walls_landlock_min(enum level l UNUSED)
{
    return 1;
}
