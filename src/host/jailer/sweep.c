/* A killed jailer takes its processes with it but leaves directories. The next jailer removes them.
 * A leaf identifies its owner itself: its group is the sandbox's uid, and that uid is locked while
 * its jailer or spawner lives. There is no list on disk that could become wrong. */
#include "host/jailer/sweep.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/isolate/mountinfo.h"
#include "host/isolate/native.h"
#include "host/jailer/jailer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* The directory must belong to us alone: its files are locks that other users must not hold. */
int sweep_open_state(const char *path, int *ret, struct err *err)
{
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "%s", path);
    auto_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, ERR_DENIED, "%s belongs to another user or is writable by others; choose another directory",
                       path);
    *ret = take_fd(&fd);
    return 0;
}

int sweep_check_parent(const char *name, struct err *err)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    if (str_starts(name, SWEEP_PARENT) && !name[len] && len <= SWEEP_PARENT_MAX)
        return 0;
    return err_set(err, ERR_INVALID,
                   SWEEP_PARENT_VARIABLE ": '%.40s' is not a cgroup parent; use \"" SWEEP_PARENT
                                         "\" followed by a-z, 0-9 and '-', at most %d characters in total",
                   name, SWEEP_PARENT_MAX);
}

/* The uid locks are always below SWEEP_PARENT: jailers with different parents share the uids of the
 * host. */
int sweep_open_host(struct cgroup_hierarchies *hierarchies, struct uids *uids, struct err *err)
{
    auto_free char *mountinfo = mountinfo_read();
    const char *parent = secure_getenv(SWEEP_PARENT_VARIABLE);

    if (parent && sweep_check_parent(parent, err) < 0)
        return -1;
    if (cgroup_find_hierarchies(hierarchies, mountinfo, SWEEP_PARENT, false, err) < 0)
        return -1;
    auto_fd int locks = cgroup_lock_file(hierarchies);
    if (locks < 0) {
        if (errno == EROFS)
            err_set(
                err, ERR_NO_CGROUP,
                "the cgroup tree is mounted read-only, as containers do: start it with --privileged, or run cove on "
                "the host");
        else
            err_sys(err, ERR_NO_CGROUP, "cannot open the uid locks in the cgroup tree");
        cgroup_close_hierarchies(hierarchies);
        return -1;
    }
    if (parent && !str_eq(parent, SWEEP_PARENT)) {
        cgroup_close_hierarchies(hierarchies);
        if (cgroup_find_hierarchies(hierarchies, mountinfo, parent, false, err) < 0)
            return -1;
    }
    return uids_open(uids, take_fd(&locks), err);
}

struct sweep_pass {
    const struct cgroup_hierarchies *hierarchies;
    const struct uids *uids;
    struct sweep_count count;
};

static void sweep_leaf(void *arg, const char *id, gid_t gid)
{
    struct sweep_pass *s = arg;

    if (gid < NATIVE_UID_FIRST || gid >= NATIVE_UID_FIRST + NATIVE_UID_COUNT)
        return;
    if (uids_in_use(s->uids, gid)) {
        s->count.held += !uids_is_own(s->uids, gid);
        return;
    }
    if (cgroup_remove(s->hierarchies, id) == 0 || errno != EBUSY) {
        s->count.removed++;
        return;
    }
    (void)cgroup_kill(s->hierarchies, id); /* killed processes may not have exited yet */
    s->count.busy++;
}

struct sweep_count sweep_once(const struct cgroup_hierarchies *hierarchies, const struct uids *uids)
{
    struct sweep_pass s = { .hierarchies = hierarchies, .uids = uids };

    cgroup_each_leaf(hierarchies, sweep_leaf, &s);
    return s.count;
}

int sweep_until_idle(const struct cgroup_hierarchies *hierarchies, const struct uids *uids)
{
    int removed = 0;

    for (int i = 0; i < 200; i++) {
        struct sweep_count n = sweep_once(hierarchies, uids);

        removed += n.removed;
        if (n.busy == 0)
            break;
        nanosleep(&(struct timespec){ .tv_nsec = 5 * (long)NS_PER_MS }, NULL);
    }
    return removed;
}

int jailer_sweep(const char *state_dir, struct err *err)
{
    struct cgroup_hierarchies hierarchies;
    struct uids uids = { .fd = -1 };
    auto_fd int dir = -1;

    if (sweep_open_state(state_dir, &dir, err) < 0)
        return -1;
    /* Leftovers of a rootless jailer are removed by the user's systemd or by the next jailer. */
    if (geteuid() != 0)
        return 0;
    if (sweep_open_host(&hierarchies, &uids, err) < 0)
        return -1;
    int n = sweep_until_idle(&hierarchies, &uids);
    cgroup_close_hierarchies(&hierarchies);
    uids_done(&uids);
    return n;
}
