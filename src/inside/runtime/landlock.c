/* One ruleset, applied at CLAIM by PID 1 and inherited by every process it starts. It handles every
 * right that the running ABI supports, so a right that no rule grants is denied; devices can never
 * be made, because no access grants that right.
 *
 * Scope bits (ABI 6: signals, abstract sockets) are left out on purpose. A scope covers one domain,
 * and each process that restricts itself starts a new domain. On PID 1 the scope would stop it from
 * signalling interpreters that join the sandbox from outside its domain; in each execution it would
 * separate executions from each other: an execution could not `kill` a server that an earlier one
 * started, nor read its /proc entry. The scope's protection exists already: the pid namespace hides
 * all outside processes and makes PID 1 immune to signals from inside, the network namespace owns
 * its abstract sockets, and PID 1 is not dumpable. */
#include "inside/runtime/landlock.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The headers of the build host may be older than the running kernel, so the interface is defined
 * here. */
#define FS_EXECUTE (1ull << 0)
#define FS_WRITE_FILE (1ull << 1)
#define FS_READ_FILE (1ull << 2)
#define FS_READ_DIR (1ull << 3)
#define FS_REMOVE_DIR (1ull << 4)
#define FS_REMOVE_FILE (1ull << 5)
#define FS_MAKE_CHAR (1ull << 6)
#define FS_MAKE_DIR (1ull << 7)
#define FS_MAKE_REG (1ull << 8)
#define FS_MAKE_SOCK (1ull << 9)
#define FS_MAKE_FIFO (1ull << 10)
#define FS_MAKE_BLOCK (1ull << 11)
#define FS_MAKE_SYM (1ull << 12)
#define FS_REFER (1ull << 13)        /* ABI 2 */
#define FS_TRUNCATE (1ull << 14)     /* ABI 3 */
#define FS_IOCTL_DEV (1ull << 15)    /* ABI 5 */
#define FS_RESOLVE_UNIX (1ull << 16) /* ABI 9 */

#define FOR_FILES (FS_EXECUTE | FS_WRITE_FILE | FS_READ_FILE | FS_TRUNCATE | FS_IOCTL_DEV | FS_RESOLVE_UNIX)
#define READING (FS_READ_FILE | FS_READ_DIR)
#define WRITING                                                                                                 \
    (FS_WRITE_FILE | FS_REMOVE_DIR | FS_REMOVE_FILE | FS_MAKE_DIR | FS_MAKE_REG | FS_MAKE_SOCK | FS_MAKE_FIFO | \
     FS_MAKE_SYM | FS_REFER | FS_TRUNCATE | FS_RESOLVE_UNIX)

#define CREATE_RULESET_VERSION 1u
#define RULE_PATH_BENEATH 1
#define ABI_MAX 64

struct ruleset_attr {
    uint64_t handled_access_fs;
};

struct path_beneath_attr {
    uint64_t allowed_access;
    int32_t parent_fd;
} __attribute__((packed));

uint64_t landlock_handled(int abi)
{
    static const struct {
        int since;
        uint64_t rights;
    } known[] = {
        { 1, (FS_MAKE_SYM << 1) - 1 }, { 2, FS_REFER }, { 3, FS_TRUNCATE }, { 5, FS_IOCTL_DEV }, { 9, FS_RESOLVE_UNIX },
    };
    uint64_t all = 0;

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (abi >= known[i].since)
            all |= known[i].rights;
    return all;
}

uint64_t landlock_rights(int abi, enum rt_access access, bool is_dir)
{
    uint64_t rights = 0;

    switch (access) {
    case RT_ACCESS_READ:
        rights = READING;
        break;
    case RT_ACCESS_READ_EXEC:
        rights = READING | FS_EXECUTE;
        break;
    /* Programs are compiled and run there; a noexec mount forbids that where wanted. */
    case RT_ACCESS_READ_WRITE:
        rights = READING | WRITING | FS_EXECUTE;
        break;
    case RT_ACCESS_DEVICE:
        rights = READING | FS_WRITE_FILE | FS_IOCTL_DEV;
        break;
    case RT_ACCESS_LIST:
        rights = FS_READ_DIR;
        break;
    }
    return rights & landlock_handled(abi) & (is_dir ? UINT64_MAX : FOR_FILES);
}

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, (size_t)0, CREATE_RULESET_VERSION);

    if (abi < 0)
        return 0;
    return abi > ABI_MAX ? ABI_MAX : (int)abi;
}

static int landlock_new_ruleset(int *abi, struct err *err)
{
    struct ruleset_attr attr = { .handled_access_fs = landlock_handled(*abi) };
    long fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0u);

    if (fd < 0 && errno == EINVAL && *abi > 8) { /* the newest right has another meaning in this kernel: omit it */
        *abi = 8;
        attr.handled_access_fs = landlock_handled(*abi);
        fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0u);
    }
    if (fd < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot make a Landlock ruleset");
    return (int)fd;
}

static int landlock_add_path_rule(int ruleset, int abi, const struct rt_rule *rule, struct err *err)
{
    auto_fd int fd = openat(AT_FDCWD, rule->path,
                            O_PATH | O_CLOEXEC); /* open() of musl sets the flag with an extra call */
    struct stat st;

    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR) && rule->access & RT_ACCESS_OPTIONAL)
        return 0;
    if (fd < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot add a Landlock rule for %s", rule->path);
    if (fstat(fd, &st) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot add a Landlock rule for %s", rule->path);
    struct path_beneath_attr attr = {
        .allowed_access = landlock_rights(abi, (enum rt_access)(rule->access & ~RT_ACCESS_OPTIONAL),
                                          S_ISDIR(st.st_mode)),
        .parent_fd = fd,
    };
    if (attr.allowed_access == 0)
        return err_set(err, ERR_INVALID, "rule for %s: unknown access %u", rule->path, rule->access);
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &attr, 0u) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot add a Landlock rule for %s", rule->path);
    return 0;
}

int landlock_build(int abi, const struct rt_rule *rules, size_t n, int *ret, struct err *err)
{
    auto_fd int fd = landlock_new_ruleset(&abi, err);

    if (fd < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (landlock_add_path_rule(fd, abi, &rules[i], err) < 0)
            return -1;
    *ret = take_fd(&fd);
    return 0;
}

int landlock_restrict(int ruleset, struct err *err)
{
    return syscall(SYS_landlock_restrict_self, ruleset, 0u) < 0
               ? err_sys(err, ERR_WALL_MISSING, "cannot apply Landlock")
               : 0;
}
