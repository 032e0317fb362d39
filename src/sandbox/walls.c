/* Every wall is verified twice where possible: the jailer reports the walls that it raised, and
 * PID 1 reports the walls that it sees. Both are required. Every existing level requires all
 * walls, so the tables are the requirement. */
#include "sandbox/walls.h"

#include "core/wire/jail.h"
#include "core/wire/rt.h"

static const struct wall walls_outside_table[] = {
    { JAIL_WALL_USER_NS, "user_namespace", "a user namespace of its own" },
    { JAIL_WALL_MOUNT_NS, "mount_namespace", "a mount namespace of its own" },
    { JAIL_WALL_PID_NS, "pid_namespace", "a pid namespace of its own" },
    { JAIL_WALL_NET_NS, "network_namespace", "a network namespace of its own" },
    { JAIL_WALL_IPC_NS, "ipc_namespace", "an IPC namespace of its own" },
    { JAIL_WALL_UTS_NS, "uts_namespace", "a UTS namespace of its own" },
    { JAIL_WALL_CGROUP_NS, "cgroup_namespace", "a cgroup namespace of its own" },
    { JAIL_WALL_ROOT, "read_only_root", "a fresh read-only root" },
    { JAIL_WALL_PROC, "masked_proc", "a fresh /proc with its sensitive files masked" },
    { JAIL_WALL_CAPS, "no_capabilities", "the loss of every capability" },
    { JAIL_WALL_SECCOMP, "seccomp", "the system call filter" },
    { JAIL_WALL_KEYRING, "own_keyring", "a session keyring of its own" },
    { JAIL_WALL_ROUTES, "no_routes", "a network with nothing but loopback" },
    { JAIL_WALL_UNIQUE_UID, "unique_uid", "a host uid that no other sandbox or user has", .needs_root = true },
};

static const struct wall walls_inside_table[] = {
    { RT_WALL_SECCOMP, "seccomp", "the system call filter" },
    { RT_WALL_NO_NEW_PRIVS, "no_new_privileges", "no_new_privs" },
    { RT_WALL_CAPS, "no_capabilities", "the loss of every capability" },
    { RT_WALL_SECUREBITS, "secure_bits", "locked securebits" },
    { RT_WALL_UID, "plain_user", "a user that is not root" },
    { RT_WALL_GROUPS, "no_groups", "no groups but its own", .needs_root = true },
    { RT_WALL_LANDLOCK, "landlock", "the Landlock file rules" },
    { RT_WALL_PID_NS, "pid_namespace", "a pid namespace of its own" },
    { RT_WALL_ROOT_RO, "read_only_root", "a read-only root" },
    { RT_WALL_NET, "no_interfaces", "a network with no interface but loopback" },
};

const struct wall *walls_outside(size_t *count)
{
    *count = ARRAY_LEN(walls_outside_table);
    return walls_outside_table;
}

const struct wall *walls_inside(size_t *count)
{
    *count = ARRAY_LEN(walls_inside_table);
    return walls_inside_table;
}

static int walls_check(const struct wall *walls, size_t n, bool rootless, uint32_t found, const char *finding,
                       enum level l, struct err *err)
{
    for (size_t i = 0; i < n; i++)
        if (!(found & walls[i].bit) && !(rootless && walls[i].needs_root))
            return err_set(err, ERR_WALL_MISSING, "level %s needs the wall %s (%s), and %s%s", level_name(l),
                           walls[i].name, walls[i].description, finding, walls[i].needs_root ? "; it takes root" : "");
    return 0;
}

int walls_check_outside(enum level l, bool rootless, uint32_t found, struct err *err)
{
    return walls_check(walls_outside_table, ARRAY_LEN(walls_outside_table), rootless, found,
                       "it could not be raised on this host", l, err);
}

int walls_check_inside(enum level l, bool rootless, uint32_t found, uint32_t landlock_abi, struct err *err)
{
    if (walls_check(walls_inside_table, ARRAY_LEN(walls_inside_table), rootless, found,
                    "it was not seen from inside the sandbox", l, err) < 0)
        return -1;
    if (landlock_abi < walls_landlock_min(l))
        return err_set(err, ERR_WALL_MISSING, "level %s needs the wall landlock at ABI %u, and the kernel has %u",
                       level_name(l), walls_landlock_min(l), landlock_abi);
    return 0;
}

uint32_t walls_inside_needed(bool rootless)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < ARRAY_LEN(walls_inside_table); i++)
        if (!(rootless && walls_inside_table[i].needs_root))
            bits |= walls_inside_table[i].bit;
    return bits;
}

uint32_t walls_landlock_min(enum level l UNUSED)
{
    return 1;
}
