#include "inside/confine/caps.h"

#include "core/base/mutate.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOCKED_BITS                                                                                  \
    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | \
     SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

#define NO_CAPABILITY 64u

static int caps_limit_bounding_set(unsigned keep, struct err *err)
{
    for (unsigned long cap = 0; cap < NO_CAPABILITY && !wall_is_mutated("bounding"); cap++)
        if (cap != keep && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > 0)
                break; /* past the last capability of this kernel */
            return err_sys(err, ERR_WALL_MISSING, "drop capability %lu", cap);
        }
    return 0;
}

int caps_keep_only(unsigned cap, struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct one[2] = { { 0 } };

    one[cap / 32].effective = one[cap / 32].permitted = one[cap / 32].inheritable = 1u << cap % 32;
    if (caps_limit_bounding_set(cap, err) < 0)
        return -1;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capset, &head, one) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "drop all capabilities but one");
    return 0;
}

int caps_drop_all(struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };

    if (!wall_is_mutated("securebits") && prctl(PR_SET_SECUREBITS, LOCKED_BITS, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "lock the secure bits");
    if (caps_limit_bounding_set(NO_CAPABILITY, err) < 0)
        return -1;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "clear ambient capabilities");
    if (syscall(SYS_capset, &head, none) < 0)
        return err_sys(err, ERR_WALL_MISSING, "drop capabilities");
    if (!wall_is_mutated("no-new-privs") && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "no_new_privs");
    return 0;
}
