/* Uses paths and mount(2): the caller is the only process of the sandbox, so no path can change
 * meanwhile, and the newer calls are slower because each makes a namespace for the detached
 * mount. */
#include "inside/confine/proc_mount.h"

#include "core/base/mutate.h"

#include <stdio.h>
#include <sys/mount.h>

static int proc_mount_cover(const struct proc_mask *m, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%s", m->name);
    if (mount(m->is_dir ? "/.cove/empty" : "/dev/null", path, NULL, MS_BIND, NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mask %s", path);
    return 0;
}

int proc_mount(const struct proc_mask *masks, size_t nmasks, struct err *err)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;

    if (wall_is_mutated("proc"))
        return 0;
    if (mount("proc", "/proc", "proc", flags, wall_is_mutated("hidepid") ? NULL : "hidepid=invisible") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /proc");
    if (mount("/proc/sys", "/proc/sys", NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND | flags | (wall_is_mutated("proc-sys") ? 0 : MS_RDONLY),
              NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /proc/sys read-only");
    for (size_t i = 0; i < nmasks && !wall_is_mutated("masks"); i++)
        if (proc_mount_cover(&masks[i], err) < 0)
            return -1;
    return 0;
}
