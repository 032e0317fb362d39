/* Called between clone and exec: only system calls, no allocation. */
#include "host/isolate/sandbox_mounts.h"

#include "core/base/mutate.h"

#include <stdio.h>
#include <sys/mount.h>

static int sandbox_mounts_add_tmpfs(const char *where, uint64_t bytes, uint64_t inodes, const char *mode,
                                    unsigned long flags, struct err *err)
{
    char options[128];

    snprintf(options, sizeof(options), "size=%" PRIu64 ",nr_inodes=%" PRIu64 ",mode=%s", bytes, inodes, mode);
    if (wall_is_mutated("disk"))
        snprintf(options, sizeof(options), "mode=%s", mode);
    if (mount("tmpfs", where, "tmpfs", (wall_is_mutated("nosuid") ? 0 : MS_NOSUID | MS_NODEV) | flags, options) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount %s", where);
    return 0;
}

static bool sandbox_mounts_has_workspace(const struct native_spec *spec)
{
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE)
            return true;
    return false;
}

int sandbox_mounts_add_scratch(const struct native_spec *spec, struct err *err)
{
    const uint64_t *v = spec->limits.v;

    /* The host has a few thousand terminals for all sandboxes together; one sandbox must not
     * exhaust them. */
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /dev/pts");
    if (sandbox_mounts_add_tmpfs("/dev/shm", v[LIMIT_SHM], v[LIMIT_TMP_INODES], "1777", MS_NOEXEC, err) < 0 ||
        sandbox_mounts_add_tmpfs("/tmp", v[LIMIT_TMP], v[LIMIT_TMP_INODES], "1777", 0, err) < 0)
        return -1;
    if (sandbox_mounts_has_workspace(spec))
        return 0;
    return sandbox_mounts_add_tmpfs("/workspace", v[LIMIT_WORKSPACE], v[LIMIT_WORKSPACE_INODES], "0755", 0, err);
}

int sandbox_mounts_attach_workspace(const struct native_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_WORKSPACE && binds_attach_one(spec->mounts[i].fd, "/workspace", err) < 0)
            return -1;
    return 0;
}

size_t sandbox_mounts_get_binds(const struct native_spec *spec, struct lent_bind ret[NATIVE_MOUNTS])
{
    size_t n = 0;

    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_BIND)
            ret[n++] = (struct lent_bind){ spec->mounts[i].fd, spec->mounts[i].dst };
    return n;
}
