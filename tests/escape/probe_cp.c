/* CP: identity and privilege. */
#include "probe.h"

#include <dirent.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

/* A field of /proc/self/status as hexadecimal or decimal text. */
static const char *status_field(const char *name)
{
    static char buf[8192];
    static char value[256];

    if (slurp("/proc/self/status", buf, sizeof buf) <= 0)
        return "?";
    char *line = strstr(buf, name);
    if (!line)
        return "?";
    line += strlen(name);
    line += strspn(line, ":\t ");
    snprintf(value, sizeof value, "%.*s", (int)strcspn(line, "\n"), line);
    return value;
}

static void must_be(struct outcome *o, const char *field, const char *expected)
{
    const char *value = status_field(field);

    if (strcmp(value, expected) == 0)
        held(o, "%s is %s", field, value);
    else
        escaped(o, "%s is %s, not %s", field, value, expected);
}

#define NONE "0000000000000000"

static void cp01(struct outcome *o)
{
    must_be(o, "CapEff", NONE);
}

static void cp02(struct outcome *o)
{
    must_be(o, "CapPrm", NONE);
}

static void cp03(struct outcome *o)
{
    must_be(o, "CapBnd", NONE);
}

static void cp04(struct outcome *o)
{
    must_be(o, "CapAmb", NONE);
    must_be(o, "CapInh", NONE);
}

static void cp05(struct outcome *o)
{
    must_be(o, "NoNewPrivs", "1");
}

static void cp06(struct outcome *o)
{
    must_be(o, "Seccomp", "2");
}

static void cp07(struct outcome *o)
{
    static const char *const maps[] = { "/proc/self/uid_map", "/proc/self/gid_map" };
    /* The jailer of a plain user is uid 0 in a namespace where that is the user; the outside uid
     * is judged from there. */
    bool plain = canary_number("plain_user", 0) != 0;

    for (size_t i = 0; i < COUNT(maps); i++) {
        char buf[1024];
        if (slurp(maps[i], buf, sizeof buf) <= 0) {
            escaped(o, "%s cannot be read", maps[i]);
            return;
        }
        for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n")) {
            unsigned long inside, outside, count;
            if (sscanf(line, "%lu %lu %lu", &inside, &outside, &count) != 3 || (outside == 0 && !plain) || count > 1)
                escaped(o, "%s: %s", maps[i], line);
        }
    }
    if (getuid() == 0 || geteuid() == 0)
        escaped(o, "runs as uid 0 inside");
    held(o, "no map reaches host root");
}

static void cp08(struct outcome *o)
{
    REFUSED(o, "setresuid(0)", setresuid(0, 0, 0), EPERM, EINVAL);
    REFUSED(o, "setresgid(0)", setresgid(0, 0, 0), EPERM, EINVAL);
    REFUSED(o, "setuid(0)", setuid(0), EPERM, EINVAL);
}

static void cp09(struct outcome *o)
{
    gid_t list[64];
    int n = getgroups(64, list);

    if (n > 0 && !(n == 1 && list[0] == getgid()))
        escaped(o, "%d supplementary groups, the first %u", n, list[0]);
    gid_t root = 0;
    REFUSED(o, "setgroups", setgroups(1, &root), EPERM);
}

static void cp10(struct outcome *o)
{
    static const char *const places[] = { "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin" };
    int found = 0;

    for (size_t i = 0; i < COUNT(places); i++) {
        struct statvfs vfs;
        if (statvfs(places[i], &vfs) < 0)
            continue;
        if (!(vfs.f_flag & ST_NOSUID))
            escaped(o, "%s is mounted without nosuid", places[i]);
        DIR *dir = opendir(places[i]);
        struct dirent *entry;
        while (dir && (entry = readdir(dir))) {
            struct stat st;
            if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
                (st.st_mode & (S_ISUID | S_ISGID)))
                found++;
        }
        if (dir)
            closedir(dir);
    }
    if (strcmp(status_field("NoNewPrivs"), "1") != 0)
        escaped(o, "%d set-id programs and no_new_privs is off", found);
    held(o, "%d set-id programs, inert because of nosuid and no_new_privs", found);
}

/* No call may create a file with a set-id bit: in a directory that was lent to the sandbox, the
 * file would belong to the directory's owner, on a mount without nosuid. */
static void cp11_way(struct outcome *o, const char *way, long rc, const char *path)
{
    struct stat st;

    if (stat(path, &st) == 0 && (st.st_mode & (S_ISUID | S_ISGID)))
        escaped(o, "%s created a file of mode %o", way, st.st_mode & 07777);
    if (rc >= 0 && rc < 1000)
        close((int)rc);
    unlink(path);
}

static void cp11(struct outcome *o)
{
    static const char *const places[] = { "/tmp", "/workspace", "/dev/shm" };
    const char *f = "/workspace/.cp11";
    struct {
        uint64_t flags, mode, resolve;
    } how = { O_CREAT | O_WRONLY, 04755, 0 };

    for (size_t i = 0; i < COUNT(places); i++) {
        struct statvfs vfs;
        if (statvfs(places[i], &vfs) == 0 && !(vfs.f_flag & ST_NOSUID))
            escaped(o, "%s is mounted without nosuid", places[i]);
    }
    umask(0);
    cp11_way(o, "open", syscall(SYS_open, f, O_CREAT | O_WRONLY, 04755), f);
    cp11_way(o, "creat", syscall(SYS_creat, f, 02755), f);
    cp11_way(o, "openat", syscall(SYS_openat, AT_FDCWD, f, O_CREAT | O_WRONLY, 06755), f);
    cp11_way(o, "openat2", syscall(437, AT_FDCWD, f, &how, sizeof how), f);
    cp11_way(o, "mknod", syscall(SYS_mknod, f, S_IFREG | 04755, 0), f);
    cp11_way(o, "mknodat", syscall(SYS_mknodat, AT_FDCWD, f, S_IFREG | 02755, 0), f);
    int fd = open(f, O_CREAT | O_RDWR, 0755);
    if (fd < 0)
        escaped(o, "an ordinary file could not be created: %s", strerror(errno));
    syscall(SYS_chmod, f, 04755);
    syscall(SYS_fchmod, fd, 04755);
    syscall(SYS_fchmodat, AT_FDCWD, f, 04755);
    syscall(452 /* fchmodat2 */, AT_FDCWD, f, 02755, 0);
    cp11_way(o, "chmod", fd, f);
    fd = open("/workspace", O_TMPFILE | O_RDWR, 04755);
    if (fd >= 0)
        escaped(o, "O_TMPFILE took a set-id mode");
    held(o, "scratch is nosuid, and no call creates a set-id file");
}

static void cp12(struct outcome *o)
{
    REFUSED(o, "setpriority(-5)", setpriority(PRIO_PROCESS, 0, -5), EACCES, EPERM);
}

static void cp13(struct outcome *o)
{
    struct sched_param param = { .sched_priority = 1 };
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = { 48, 6 /* DEADLINE */, 0, 0, 0, 10000000, 30000000, 30000000 };

    REFUSED(o, "SCHED_FIFO", syscall(SYS_sched_setscheduler, 0, 1, &param), EPERM, ENOSYS);
    REFUSED(o, "SCHED_DEADLINE", syscall(SYS_sched_setattr, 0, &attr, 0), EPERM, ENOSYS);
}

static void cp14(struct outcome *o)
{
    struct rlimit lim, up;

    if (getrlimit(RLIMIT_NOFILE, &lim) < 0) {
        skipped(o, "getrlimit: %s", strerror(errno));
        return;
    }
    if (lim.rlim_max == RLIM_INFINITY) {
        escaped(o, "the descriptor limit is infinite");
        return;
    }
    up = lim;
    up.rlim_max++;
    REFUSED(o, "raising a hard limit", setrlimit(RLIMIT_NOFILE, &up), EPERM);
    if (probe_pid() != 1)
        REFUSED(o, "prlimit of PID 1", syscall(SYS_prlimit64, 1, RLIMIT_CORE, NULL, &lim), EPERM);
}

static void cp15(struct outcome *o)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        held(o, "oom_score_adj: %s", strerror(errno));
    else
        REFUSED(o, "oom_score_adj -1000", write(fd, "-1000", 5), EACCES, EPERM);
}

static void cp16(struct outcome *o)
{
    struct rlimit lim;
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    waitpid(pid, &status, 0);
    if (WCOREDUMP(status))
        escaped(o, "a crash dumped core");
    if (getrlimit(RLIMIT_CORE, &lim) == 0 && lim.rlim_max != 0)
        escaped(o, "the hard limit for core dumps is not 0");
    held(o, "no core dump, hard limit 0");
}

static void cp17(struct outcome *o)
{
    /* VFS_CAP_REVISION_2 with cap_sys_admin permitted */
    static const uint32_t cap[5] = { 0x02000001, 1u << 21, 0, 0, 0 };
    int fd = open("/tmp/cp17", O_RDWR | O_CREAT | O_CLOEXEC, 0755);

    if (fd < 0) {
        escaped(o, "/tmp is not writable: %s", strerror(errno));
        return;
    }
    REFUSED(o, "security.capability", fsetxattr(fd, "security.capability", cap, sizeof cap, 0), EPERM, EOPNOTSUPP,
            ENOSYS, EACCES);
}

const struct probe_case cp_cases[] = {
    { "CP01", cp01 }, { "CP02", cp02 }, { "CP03", cp03 }, { "CP04", cp04 }, { "CP05", cp05 }, { "CP06", cp06 },
    { "CP07", cp07 }, { "CP08", cp08 }, { "CP09", cp09 }, { "CP10", cp10 }, { "CP11", cp11 }, { "CP12", cp12 },
    { "CP13", cp13 }, { "CP14", cp14 }, { "CP15", cp15 }, { "CP16", cp16 }, { "CP17", cp17 }, { NULL, NULL },
};
