/* uids.h - allocates host uids so that no two sandboxes of this machine share one, whichever jailer
 * made them.
 *
 * Every jailer of the host opens the same file and locks one byte of it for each uid it uses. The
 * locks belong to the open file, so they end with the last process that holds it, however it dies.
 * A locked byte also shows other jailers that the owner of a leftover is alive. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct uids {
    int fd;
    uint32_t next;       /* slot at which the next search starts */
    uint8_t *taken_bits; /* bit set: taken by this process, whose own locks do not conflict */
};

int uids_open(struct uids *u, int file, struct err *err); /* takes `file`, open for writing, even on failure */
void uids_done(struct uids *u);
int uids_take(struct uids *u, uid_t *ret, struct err *err); /* for a sandbox */
void uids_release(struct uids *u, uid_t uid);
/* Takes a uid that owns the user namespaces of a template; held until uids_done. */
int uids_take_owner(struct uids *u, uid_t *ret, struct err *err);
bool uids_in_use(const struct uids *u, uid_t uid); /* by this process or another */
bool uids_is_own(const struct uids *u, uid_t uid); /* in use by this process */
