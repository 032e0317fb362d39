/* mounts.h - turns the directories and files that a caller lends to a sandbox into detached mounts. */
#pragma once

#include "core/base/err.h"
#include "host/isolate/native.h"
#include "core/wire/jail.h"

/* fds are the descriptors that came with the request. On success ret[0..nmounts) hold detached mounts that the caller
 * closes with mounts_close. */
int mounts_prepare(const struct jail_create *req, const int *fds, size_t nfds, bool rootless, uid_t host_uid,
                   const struct limits *limits, struct native_mount *ret, struct err *err);
/* Refuses a descriptor at which even a look could take for ever, because another process or another machine would have
 * to answer: FUSE, NFS and their kin. To be asked before anything else is done with what a stranger lent. */
int mounts_check_local_filesystem(int fd, struct err *err);
void mounts_close(struct native_mount *m, size_t n);
