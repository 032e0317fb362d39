/* The kernel slows whole disks, by number; partitions it refuses, so the list is /sys/block, which has none. A disk
 * without a size has nothing in it (an empty loop device, a drive without a medium).
 *
 * Reading is slowed for whoever reads. A write usually ends in memory and is carried out later, by the kernel itself.
 * Only v2 knows then whose write it was, where memory is counted in the same tree and the file system takes part;
 * elsewhere only what a program waits for (fsync, O_DIRECT) is slowed, and the state says so. */
#include "isolate/io.h"

#include "base/fd.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define FUSE_MAGIC 0x65735546
#define XFS_MAGIC 0x58465342

void io_reach_add(struct io_reach *r, int fd, bool writable)
{
    struct statfs fs;
    struct stat st;

    if (fd < 0 || fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0) {
        r->elsewhere = true;
        r->writes_elsewhere = r->writes_elsewhere || writable;
        return;
    }
    uint32_t type = (uint32_t)fs.f_type;
    if (type == TMPFS_MAGIC || type == RAMFS_MAGIC)
        return;
    /* btrfs has numbers of its own; with FUSE the one who reads the disk is a process of the host. */
    bool disk = type == BTRFS_SUPER_MAGIC || (major(st.st_dev) != 0 && type != FUSE_MAGIC);
    bool named = type == EXT4_SUPER_MAGIC || type == XFS_MAGIC || type == BTRFS_SUPER_MAGIC || type == F2FS_SUPER_MAGIC;
    r->elsewhere = r->elsewhere || !disk;
    r->writes = r->writes || (writable && disk);
    r->writes_elsewhere = r->writes_elsewhere || (writable && !disk);
    r->writes_unnamed = r->writes_unnamed || (writable && !named);
}

/* --- the disks --- */

struct tally {
    unsigned tried, refused;
};

static void slow_v1(const struct cgroup_forest *f, const char *id, const char *disk, const char *file, uint64_t rate,
                    struct tally *t)
{
    char text[64];

    if (!rate)
        return;
    snprintf(text, sizeof(text), "%s %" PRIu64, disk, rate);
    t->tried++;
    t->refused += cgroup_put(f, CGROUP_IO, id, file, NULL, text) < 0;
}

static void slow_v2(const struct cgroup_forest *f, const char *id, const char *disk, const char *key, uint64_t rate,
                    struct tally *t)
{
    char text[64];

    if (!rate)
        return;
    snprintf(text, sizeof(text), "%s %s=%" PRIu64, disk, key, rate);
    t->tried++;
    t->refused += cgroup_put(f, CGROUP_IO, id, NULL, "io.max", text) < 0;
}

/* "254:0" of the disk with this name, or false when it holds nothing. */
static bool disk_number(int disks, const char *name, char ret[24])
{
    char file[300];
    uint64_t sectors = 0;

    snprintf(file, sizeof(file), "%.255s/size", name);
    if (fd_get_u64_at(disks, file, &sectors) < 0 || sectors == 0)
        return false;
    snprintf(file, sizeof(file), "%.255s/dev", name);
    if (fd_get_at(disks, file, ret, 24) < 0)
        return false;
    ret[strspn(ret, "0123456789:")] = '\0';
    return strchr(ret, ':') != NULL;
}

static void slow_disks(const struct cgroup_forest *f, const char *id, int disks, const struct limits *lim,
                       struct tally *reads, struct tally *writes)
{
    bool v2 = f->v2[f->job[CGROUP_IO]];
    uint64_t read = lim->v[LIMIT_IO_READ], write = lim->v[LIMIT_IO_WRITE];
    int fd = openat(disks, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    char disk[24];

    if (!d) {
        fd_close(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.' || !disk_number(disks, e->d_name, disk))
            continue;
        if (v2) {
            slow_v2(f, id, disk, "rbps", read, reads);
            slow_v2(f, id, disk, "wbps", write, writes);
        } else {
            slow_v1(f, id, disk, "blkio.throttle.read_bps_device", read, reads);
            slow_v1(f, id, disk, "blkio.throttle.write_bps_device", write, writes);
        }
    }
    closedir(d);
}

/* --- how far it holds --- */

static void judge(struct limit_states *held, enum limit l, const struct tally *t, bool elsewhere, bool late)
{
    if (t->tried == t->refused)
        limit_held(held, l, HOLD_NONE, WHY_DISK_REFUSED);
    else if (t->refused)
        limit_held(held, l, HOLD_PARTIAL, WHY_DISK_REFUSED);
    else if (elsewhere)
        limit_held(held, l, HOLD_PARTIAL, WHY_NO_DISK);
    else if (late)
        limit_held(held, l, HOLD_PARTIAL, WHY_LATE_WRITES);
    else
        limit_held(held, l, HOLD_WHOLE, WHY_UNSAID);
}

void io_limit(const struct cgroup_forest *f, const char *id, int disks, const struct io_reach *reach,
              const struct limits *lim, struct limit_states *held)
{
    struct tally reads = { 0 }, writes = { 0 };
    int tree = f->job[CGROUP_IO];

    limit_held(held, LIMIT_IO_READ, HOLD_NONE, WHY_NO_CONTROLLER);
    limit_held(held, LIMIT_IO_WRITE, HOLD_NONE, WHY_NO_CONTROLLER);
    if (tree < 0)
        return;
    bool late = reach->writes && (!f->v2[tree] || f->job[CGROUP_MEMORY] != tree || reach->writes_unnamed);
    slow_disks(f, id, disks, lim, &reads, &writes);
    judge(held, LIMIT_IO_READ, &reads, reach->elsewhere, false);
    judge(held, LIMIT_IO_WRITE, &writes, reach->writes_elsewhere, late);
}
