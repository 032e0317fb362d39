/* Each bit is read from the kernel by a system call about this process where one exists, because a
 * file under /proc could be wrong if the root was built wrongly. A check that fails leaves its bit
 * unset: the host compares the bits with the required walls, so an unknown state counts as a
 * missing wall. */
#include "inside/runtime/runtime_walls.h"

#include "core/base/fd.h"
#include "core/wire/rt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#define CAP_LIMIT 64
/* root has no special meaning, uid changes move no capability, and neither can be undone */
#define SECUREBITS_LOCKED                                                                            \
    (SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED | \
     SECBIT_KEEP_CAPS_LOCKED)

static bool runtime_walls_no_capability(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct data[2] = { 0 };

    if (syscall(SYS_capget, &head, data) < 0)
        return false;
    for (int i = 0; i < 2; i++)
        if (data[i].effective | data[i].permitted | data[i].inheritable)
            return false;
    /* The ambient set needs no check: the kernel only keeps capabilities in it that are also
     * permitted. */
    for (unsigned long cap = 0; cap < CAP_LIMIT; cap++) {
        int bounding = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

        if (bounding < 0)
            return cap > 0 && errno == EINVAL; /* past the kernel's last capability */
        if (bounding > 0)
            return false;
    }
    return true;
}

static bool runtime_walls_plain_user(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg;

    if (getresuid(&r, &e, &s) < 0 || getresgid(&rg, &eg, &sg) < 0)
        return false;
    return r != 0 && e != 0 && s != 0 && rg != 0 && eg != 0 && sg != 0;
}

bool runtime_walls_only_loopback(const char *net_dev)
{
    bool lo = false;

    /* Two header lines, then "  name: numbers" for each interface. */
    for (const char *line = net_dev; *line;) {
        const char *end = strchr(line, '\n');
        size_t len = end ? (size_t)(end - line) : strlen(line);
        const char *colon = memchr(line, ':', len);

        if (colon) {
            while (*line == ' ')
                line++, len--;
            if (colon - line != 2 || memcmp(line, "lo", 2) != 0)
                return false;
            lo = true;
        }
        line += len + (end ? 1 : 0);
    }
    return lo;
}

static bool runtime_walls_no_network(void)
{
    char text[4096];
    auto_fd int fd = open("/proc/self/net/dev", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text) - 1);

    if (n < 0 || (size_t)n == sizeof(text) - 1)
        return false;
    text[n] = '\0';
    return runtime_walls_only_loopback(text);
}

static bool runtime_walls_root_read_only(void)
{
    struct statvfs vfs;

    return statvfs("/", &vfs) == 0 && vfs.f_flag & ST_RDONLY;
}

uint32_t runtime_walls_measure(void)
{
    uint32_t walls = 0;

    if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == SECCOMP_MODE_FILTER)
        walls |= RT_WALL_SECCOMP;
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
        walls |= RT_WALL_NO_NEW_PRIVS;
    if (runtime_walls_no_capability())
        walls |= RT_WALL_CAPS;
    if ((prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) & SECUREBITS_LOCKED) == SECUREBITS_LOCKED)
        walls |= RT_WALL_SECUREBITS;
    if (runtime_walls_plain_user())
        walls |= RT_WALL_UID;
    if (getgroups(0, NULL) == 0)
        walls |= RT_WALL_GROUPS;
    if (getpid() == 1)
        walls |= RT_WALL_PID_NS;
    if (runtime_walls_root_read_only())
        walls |= RT_WALL_ROOT_RO;
    if (runtime_walls_no_network())
        walls |= RT_WALL_NET;
    return walls;
}
