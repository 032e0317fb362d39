/* io_limits.h - limits how fast a sandbox may read from and write to the disks of the host.
 *
 * The rate applies to each disk, and all disks are limited: a directory that is lent to a sandbox
 * may have other file systems mounted below it, so the disks that a sandbox reaches cannot be
 * determined. */
#pragma once

#include "host/isolate/cgroup.h"

/* Properties of the directories that a sandbox reaches, which decide how far the limits hold. */
struct io_limits_reach {
    bool reads_off_disk;      /* a directory is not read from a disk of this host: network, FUSE, overlay */
    bool writes_on_disk;      /* a writable directory is on a disk */
    bool writes_off_disk;     /* a writable directory is not on a disk of this host */
    bool writes_unattributed; /* a writable directory is on a file system that does not attribute delayed writes */
};
void io_limits_reach_add(struct io_limits_reach *r, int fd, bool writable);

/* Throttles the leaf and records in *held how far the limits hold. `disks` is a descriptor of
 * /sys/block; -1: the host does not show its disks. */
void io_limits_apply(const struct cgroup_hierarchies *f, const char *id, int disks, const struct io_limits_reach *reach,
                     const struct limits *lim, struct limit_enforcements *held);
