/* mounts.h - turns the directories and files that a caller lends to a sandbox into detached
 * mounts. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"
#include "core/wire/jail.h"

/* `fds` came with the request. On success ret[0..nmounts) hold detached mounts that the caller
 * closes with mounts_close. */
int mounts_prepare(const struct jail_create *req, const int *fds, size_t nfds, bool rootless, uid_t host_uid,
                   const struct limits *limits, struct native_mount *ret, struct err *err);
/* Refuses a descriptor on which even stat() could block forever because another process or machine
 * must answer: FUSE, NFS and similar. Call it before any other operation on a descriptor that an
 * untrusted client lent. */
int mounts_check_local_filesystem(int fd, struct err *err);
void mounts_close(struct native_mount *m, size_t n);
