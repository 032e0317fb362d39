/* The kernel throttles whole disks by device number and refuses partitions, so the disks are listed
 * from /sys/block, which has no partitions. A disk of size 0 has no medium (an empty loop device,
 * an empty drive) and is skipped.
 *
 * Reads are throttled in the reading process. A write usually ends in the page cache, and the
 * kernel writes it to disk later. Only v2 can then attribute the write to a cgroup, and only where
 * memory is accounted in the same tree and the file system supports it. Elsewhere only synchronous
 * writes (fsync, O_DIRECT) are throttled, and the reported enforcement is partial. */
#include "host/isolate/io_limits.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#define FUSE_MAGIC 0x65735546
#define XFS_MAGIC 0x58465342

void io_limits_reach_add(struct io_limits_reach *r, int fd, bool writable)
{
    struct statfs fs;
    struct stat st;

    if (fd < 0 || fstatfs(fd, &fs) < 0 || fstat(fd, &st) < 0) {
        r->reads_off_disk = true;
        r->writes_off_disk = r->writes_off_disk || writable;
        return;
    }
    uint32_t type = (uint32_t)fs.f_type;
    if (type == TMPFS_MAGIC || type == RAMFS_MAGIC)
        return;
    /* btrfs has its own device numbers; with FUSE a process of the host reads the disk. */
    bool disk = type == BTRFS_SUPER_MAGIC || (major(st.st_dev) != 0 && type != FUSE_MAGIC);
    bool named = type == EXT4_SUPER_MAGIC || type == XFS_MAGIC || type == BTRFS_SUPER_MAGIC || type == F2FS_SUPER_MAGIC;
    r->reads_off_disk = r->reads_off_disk || !disk;
    r->writes_on_disk = r->writes_on_disk || (writable && disk);
    r->writes_off_disk = r->writes_off_disk || (writable && !disk);
    r->writes_unattributed = r->writes_unattributed || (writable && !named);
}

/* --- disks --- */

struct io_limits_counts {
    unsigned tried, refused;
};

static void io_limits_throttle_v1(const struct cgroup_hierarchies *f, const char *id, const char *disk,
                                  const char *file, uint64_t rate, struct io_limits_counts *t)
{
    char text[64];

    if (!rate)
        return;
    snprintf(text, sizeof(text), "%s %" PRIu64, disk, rate);
    t->tried++;
    t->refused += cgroup_write_file(f, CGROUP_IO, id, file, NULL, text) < 0;
}

static void io_limits_throttle_v2(const struct cgroup_hierarchies *f, const char *id, const char *disk, const char *key,
                                  uint64_t rate, struct io_limits_counts *t)
{
    char text[64];

    if (!rate)
        return;
    snprintf(text, sizeof(text), "%s %s=%" PRIu64, disk, key, rate);
    t->tried++;
    t->refused += cgroup_write_file(f, CGROUP_IO, id, NULL, "io.max", text) < 0;
}

/* Returns the number of the disk with this name, for example "254:0". False if the disk is
 * empty. */
static bool io_limits_disk_number(int disks, const char *name, char ret[24])
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

static void io_limits_throttle_disks(const struct cgroup_hierarchies *f, const char *id, int disks,
                                     const struct limits *lim, struct io_limits_counts *reads,
                                     struct io_limits_counts *writes)
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
        if (e->d_name[0] == '.' || !io_limits_disk_number(disks, e->d_name, disk))
            continue;
        if (v2) {
            io_limits_throttle_v2(f, id, disk, "rbps", read, reads);
            io_limits_throttle_v2(f, id, disk, "wbps", write, writes);
        } else {
            io_limits_throttle_v1(f, id, disk, "blkio.throttle.read_bps_device", read, reads);
            io_limits_throttle_v1(f, id, disk, "blkio.throttle.write_bps_device", write, writes);
        }
    }
    closedir(d);
}

/* --- enforcement --- */

static void io_limits_report(struct limit_enforcements *held, enum limit l, const struct io_limits_counts *t,
                             bool elsewhere, bool late)
{
    if (t->tried == t->refused)
        limit_set_enforcement(held, l, ENFORCEMENT_NONE, REASON_DISK_REFUSED);
    else if (t->refused)
        limit_set_enforcement(held, l, ENFORCEMENT_PARTIAL, REASON_DISK_REFUSED);
    else if (elsewhere)
        limit_set_enforcement(held, l, ENFORCEMENT_PARTIAL, REASON_NO_DISK);
    else if (late)
        limit_set_enforcement(held, l, ENFORCEMENT_PARTIAL, REASON_LATE_WRITES);
    else
        limit_set_enforcement(held, l, ENFORCEMENT_FULL, REASON_NONE);
}

void io_limits_apply(const struct cgroup_hierarchies *f, const char *id, int disks, const struct io_limits_reach *reach,
                     const struct limits *lim, struct limit_enforcements *held)
{
    struct io_limits_counts reads = { 0 }, writes = { 0 };
    int tree = f->job[CGROUP_IO];

    limit_set_enforcement(held, LIMIT_IO_READ, ENFORCEMENT_NONE, REASON_NO_CONTROLLER);
    limit_set_enforcement(held, LIMIT_IO_WRITE, ENFORCEMENT_NONE, REASON_NO_CONTROLLER);
    if (tree < 0)
        return;
    bool late = reach->writes_on_disk && (!f->v2[tree] || f->job[CGROUP_MEMORY] != tree || reach->writes_unattributed);
    io_limits_throttle_disks(f, id, disks, lim, &reads, &writes);
    io_limits_report(held, LIMIT_IO_READ, &reads, reach->reads_off_disk, false);
    io_limits_report(held, LIMIT_IO_WRITE, &writes, reach->writes_off_disk, late);
}
