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

int caps_drop_all(struct err *err)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };

    if (!wall_is_mutated("securebits") && prctl(PR_SET_SECUREBITS, LOCKED_BITS, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "lock the secure bits");
    for (unsigned long cap = 0; cap < 64 && !wall_is_mutated("bounding"); cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            if (errno == EINVAL && cap > 0)
                break; /* past the last capability of this kernel */
            return err_sys(err, ERR_WALL_MISSING, "drop capability %lu", cap);
        }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "clear ambient capabilities");
    if (syscall(SYS_capset, &head, none) < 0)
        return err_sys(err, ERR_WALL_MISSING, "drop capabilities");
    if (!wall_is_mutated("no-new-privs") && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "no_new_privs");
    return 0;
}
