/* io_limits.h - how fast a sandbox may read from and write to the disks of the host.
 *
 * The rate holds for each disk, and every disk has it: what is lent to a sandbox may have other file systems mounted
 * below it, so the disks that it does not reach cannot be told from those that it does. */
#pragma once

#include "host/isolate/cgroup.h"

/* What the places that a sandbox reaches mean for the limits. */
struct io_limits_reach {
    bool reads_off_disk;      /* one of them is read from no disk of this host: a network, FUSE, an overlay */
    bool writes_on_disk;      /* one of them is on a disk, and may be written */
    bool writes_off_disk;     /* one of them may be written, and is on no disk of this host */
    bool writes_unattributed; /* ... is on a file system that does not say who wrote what it writes out later */
};
void io_limits_reach_add(struct io_limits_reach *r, int fd, bool writable);

/* Slows the leaf, and says how far that holds. `disks` is /sys/block; -1 counts as a host that does not show its
 * disks. */
void io_limits_apply(const struct cgroup_hierarchies *f, const char *id, int disks, const struct io_limits_reach *reach,
                     const struct limits *lim, struct limit_enforcements *held);
