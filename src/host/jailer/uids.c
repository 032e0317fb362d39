/* The search starts at a random slot and wraps around, so that a uid is reused as late as possible:
 * after a kill -9 of the jailer, the lock is free before the kernel has ended the last process of
 * its sandboxes. */
#include "host/jailer/uids.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/mutate.h"
#include "host/isolate/native.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>

#define UID_SLOTS (NATIVE_UID_COUNT + NATIVE_OWNER_COUNT) /* slots of owners follow those of sandboxes */

static struct flock uids_lock_byte(uint32_t slot, short type)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1 };
}

static bool uids_slot_is_taken(const struct uids *u, uint32_t slot)
{
    return u->taken_bits[slot / 8] >> (slot % 8) & 1;
}

int uids_open(struct uids *u, int file, struct err *err)
{
    u->fd = file;
    u->taken_bits = NULL;
    if (getrandom(&u->next, sizeof(u->next), 0) != (ssize_t)sizeof(u->next)) {
        uids_done(u);
        return err_sys(err, ERR_SYS, "getrandom");
    }
    u->taken_bits = mem_alloc((UID_SLOTS + 7) / 8);
    return 0;
}

void uids_done(struct uids *u)
{
    free(u->taken_bits);
    u->taken_bits = NULL;
    fd_close(&u->fd);
}

/* Takes a free slot of [first, first + count). */
static int uids_take_slot(struct uids *u, uint32_t first, uint32_t count, uint32_t *ret, struct err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t slot = first + (u->next++ % count);

        if (wall_is_mutated("unique-uid"))
            slot = first;
        else if (uids_slot_is_taken(u, slot))
            continue;
        struct flock lock = uids_lock_byte(slot, F_WRLCK);
        if (wall_is_mutated("unique-uid") || fcntl(u->fd, F_OFD_SETLK, &lock) == 0) {
            u->taken_bits[slot / 8] = (uint8_t)(u->taken_bits[slot / 8] | 1u << (slot % 8));
            *ret = slot;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES)
            return err_sys(err, ERR_SYS, "cannot lock a uid");
    }
    return err_set(err, ERR_LIMIT, "all %u sandbox uids of this host are in use; destroy sandboxes", count);
}

int uids_take(struct uids *u, uid_t *ret, struct err *err)
{
    uint32_t slot;

    if (uids_take_slot(u, 0, NATIVE_UID_COUNT, &slot, err) < 0)
        return -1;
    *ret = NATIVE_UID_FIRST + slot;
    return 0;
}

int uids_take_owner(struct uids *u, uid_t *ret, struct err *err)
{
    uint32_t slot;

    if (uids_take_slot(u, NATIVE_UID_COUNT, NATIVE_OWNER_COUNT, &slot, err) < 0)
        return -1;
    *ret = NATIVE_UID_OWNER + (slot - NATIVE_UID_COUNT);
    return 0;
}

void uids_release(struct uids *u, uid_t uid)
{
    bool owner = uid - NATIVE_UID_OWNER < NATIVE_OWNER_COUNT;
    uint32_t slot = owner ? uid - NATIVE_UID_OWNER + NATIVE_UID_COUNT : uid - NATIVE_UID_FIRST;
    struct flock lock = uids_lock_byte(slot, F_UNLCK);

    if ((!owner && slot >= NATIVE_UID_COUNT) || !uids_slot_is_taken(u, slot))
        return;
    (void)fcntl(u->fd, F_OFD_SETLK, &lock);
    u->taken_bits[slot / 8] = (uint8_t)(u->taken_bits[slot / 8] & ~(1u << (slot % 8)));
}

bool uids_in_use(const struct uids *u, uid_t uid)
{
    uint32_t slot = uid - NATIVE_UID_FIRST;
    struct flock lock = uids_lock_byte(slot, F_WRLCK);

    if (slot >= NATIVE_UID_COUNT)
        return false;
    return uids_slot_is_taken(u, slot) || fcntl(u->fd, F_OFD_GETLK, &lock) < 0 || lock.l_type != F_UNLCK;
}

bool uids_is_own(const struct uids *u, uid_t uid)
{
    uint32_t slot = uid - NATIVE_UID_FIRST;

    return slot < NATIVE_UID_COUNT && uids_slot_is_taken(u, slot);
}
