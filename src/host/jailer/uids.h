/* uids.h - host uids that no two sandboxes of this machine share, whoever started them.
 *
 * Every jailer of the host opens the same file and locks one byte of it for each uid it uses. The locks belong to the
 * open file, so they end with the last process that holds it, however it dies. A locked byte is also how others see
 * that the owner of a leftover is alive. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct uids {
    int fd;
    uint32_t next;       /* where the search for a free one starts */
    uint8_t *taken_bits; /* bit set: taken by this process, whose own locks do not stop it */
};

int uids_open(struct uids *u, int file, struct err *err); /* takes the file, open for writing, also when it fails */
void uids_done(struct uids *u);
int uids_take(struct uids *u, uid_t *ret, struct err *err); /* for a sandbox */
void uids_release(struct uids *u, uid_t uid);
/* One for the user namespaces of a template; it is kept until uids_done. */
int uids_take_owner(struct uids *u, uid_t *ret, struct err *err);
bool uids_in_use(const struct uids *u, uid_t uid); /* by this process or another */
bool uids_is_own(const struct uids *u, uid_t uid); /* in use by this process */
