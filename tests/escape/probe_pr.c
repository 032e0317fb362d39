/* PR: other processes, above all PID 1, and the files of /proc that reveal or change state. */
#include "probe.h"

#include <dirent.h>
#include <sys/ptrace.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

static bool alone(struct outcome *o)
{
    if (probe_pid() == 1)
        skipped(o, "the probe is PID 1 itself");
    return probe_pid() == 1;
}

static void pr01(struct outcome *o)
{
    if (!alone(o))
        REFUSED(o, "ptrace(SEIZE, 1)", ptrace(0x4206, 1, 0, 0), EPERM, EACCES);
}

static void pr02(struct outcome *o)
{
    static char mine[16];
    struct iovec here = { mine, sizeof mine };
    struct iovec there = { mine, sizeof mine };

    if (alone(o))
        return;
    REFUSED(o, "process_vm_readv(1)", process_vm_readv(1, &here, 1, &there, 1, 0), EPERM);
    REFUSED(o, "process_vm_writev(1)", process_vm_writev(1, &here, 1, &there, 1, 0), EPERM);
}

static void pr03(struct outcome *o)
{
    if (alone(o))
        return;
    int pidfd = (int)syscall(434, 1, 0);
    if (pidfd < 0)
        held(o, "pidfd_open(1): %s", strerror(errno));
    else
        REFUSED(o, "pidfd_getfd(1, 0)", syscall(438, pidfd, 0, 0), EPERM, ENOSYS);
}

static void pr04(struct outcome *o)
{
    char buf[4096];

    if (alone(o))
        return;
    ssize_t n = slurp("/proc/1/environ", buf, sizeof buf);
    if (n > 0)
        escaped(o, "/proc/1/environ shows %zd bytes%s", n,
                holds(buf, n, canary("secret")) ? ", our secret among them" : "");
    else
        held(o, "/proc/1/environ: %s", n < 0 ? strerror(errno) : "empty");
}

static void pr05(struct outcome *o)
{
    static const char *const links[] = { "/proc/1/root/.", "/proc/1/cwd/." };
    struct stat root, there;

    stat("/", &root);
    if (stat(links[0], &there) == 0 && (there.st_ino != root.st_ino || there.st_dev != root.st_dev))
        escaped(o, "/proc/1/root is another root");
    if (stat(links[1], &there) == 0) {
        char target[512] = "";
        if (readlink("/proc/1/cwd", target, sizeof target - 1) > 0 && stat(target, &root) < 0)
            escaped(o, "/proc/1/cwd is %s, which is not inside", target);
    }
    held(o, "/proc/1 leads to no other root");
}

/* Calls `look` for every process in /proc that is neither PID 1 nor our own. */
static int strangers(void (*look)(struct outcome *, int), struct outcome *o)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    if (!dir)
        return 0;
    while ((entry = readdir(dir))) {
        int pid = atoi(entry->d_name);
        if (pid > 1 && pid != getpid() && pid != probe_pid()) {
            n++;
            if (look)
                look(o, pid);
        }
    }
    closedir(dir);
    return n;
}

static void peek(struct outcome *o, int pid)
{
    char path[64], buf[64];

    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    if (slurp(path, buf, sizeof buf) > 0)
        escaped(o, "environment of process %d is readable", pid);
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    slurp(path, buf, sizeof buf);
    escaped(o, "process %d (%.20s) is visible", pid, buf);
}

static void pr06(struct outcome *o)
{
    strangers(peek, o);
    held(o, "no process except PID 1 and our own is visible");
}

static void pr07(struct outcome *o)
{
    for (int pid = 2; pid < 32768; pid++)
        if (pid != getpid() && pid != probe_pid() && kill(pid, 0) == 0)
            escaped(o, "kill(%d, 0) reaches a process", pid);
    long planted = canary_number("pid", 0);
    if (planted > 1 && kill((pid_t)planted, 0) == 0)
        escaped(o, "the planted host process can be signalled");
    kill(-1, SIGUSR1); /* the probe ignores the signal; PID 1 must survive it */
    usleep(20000);
    if (kill(1, 0) < 0 && errno != EPERM)
        escaped(o, "PID 1 did not survive kill(-1): %s", strerror(errno));
    held(o, "only our own processes can be reached");
}

static void pr08(struct outcome *o)
{
    char buf[64], self[32];
    ssize_t n = readlink("/proc/self", self, sizeof self - 1);

    if (slurp("/proc/2/comm", buf, sizeof buf) > 0 && strncmp(buf, "kthreadd", 8) == 0)
        escaped(o, "kernel threads are visible");
    self[n > 0 ? n : 0] = '\0';
    if (atoi(self) != getpid())
        escaped(o, "/proc belongs to another pid namespace: there our pid is %s", self);
    held(o, "own pid namespace with its own /proc");
}

static void pr09(struct outcome *o)
{
    if (alone(o))
        return;
    must_not_open(o, "/proc/1/exe", O_WRONLY);
    must_not_open(o, "/proc/1/exe", O_RDWR);
    must_not_open(o, "/.cove/runtime", O_WRONLY);
    if (access("/.cove", W_OK) == 0 || access("/", W_OK) == 0)
        escaped(o, "the runtime program can be replaced");
}

static void pr10(struct outcome *o)
{
    must_not_open(o, "/proc/self/exe", O_WRONLY);
    must_not_open(o, "/bin/sh", O_WRONLY);
    must_not_open(o, "/usr/bin/env", O_RDWR);
}

static void pr11(struct outcome *o)
{
    static const char *const masked[] = { "/proc/kcore",       "/proc/kmsg",        "/proc/kpagecount",
                                          "/proc/kpageflags",  "/proc/kpagecgroup", "/proc/timer_list",
                                          "/proc/vmallocinfo", "/proc/slabinfo",    "/proc/latency_stats",
                                          "/proc/sched_debug" };

    for (size_t i = 0; i < COUNT(masked); i++)
        must_be_empty(o, masked[i]);
}

/* Writing into the mask (a bound /dev/null) is as good as a refusal. */
static void must_not_write(struct outcome *o, const char *path)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0) {
        held(o, "%s: %s", path, strerror(errno));
        return;
    }
    if (fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
        held(o, "%s is masked", path);
    else
        escaped(o, "%s was opened for writing", path);
    close(fd);
}

static void pr12(struct outcome *o)
{
    must_not_write(o, "/proc/sysrq-trigger");
}

static void pr13(struct outcome *o)
{
    must_not_write(o, "/proc/sys/kernel/core_pattern");
    must_not_write(o, "/proc/sys/kernel/modprobe");
    must_not_write(o, "/proc/sys/fs/binfmt_misc/register");
    must_not_write(o, "/proc/sys/kernel/hotplug");
}

static void walk_sysctls(struct outcome *o, const char *path, int depth, int *seen)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    if (!dir || depth > 6) {
        if (dir)
            closedir(dir);
        return;
    }
    while ((entry = readdir(dir))) {
        char child[1024];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(child, sizeof child, "%.600s/%.255s", path, entry->d_name);
        if (entry->d_type == DT_DIR) {
            walk_sysctls(o, child, depth + 1, seen);
        } else {
            ++*seen;
            must_not_write(o, child);
        }
    }
    closedir(dir);
}

static void pr14(struct outcome *o)
{
    int seen = 0;

    walk_sysctls(o, "/proc/sys", 0, &seen);
    held(o, "none of %d sysctls can be opened for writing", seen);
    if (o->verdict == HELD)
        snprintf(o->why, sizeof o->why, "none of %d sysctls can be opened for writing", seen);
}

static void pr15(struct outcome *o)
{
    char buf[8192];
    ssize_t n = slurp("/proc/kallsyms", buf, sizeof buf);

    for (char *line = buf; n > 0 && line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strlen(line) > 16 && strncmp(line, "0000000000000000", 16) != 0) {
            escaped(o, "a kernel address: %.30s", line);
            return;
        }
    held(o, "no kernel address");
}

static void pr16(struct outcome *o)
{
    must_be_empty(o, "/proc/keys");
    must_be_empty(o, "/proc/key-users");
}

static void pr17(struct outcome *o)
{
    static const char *const files[] = { "/proc/interrupts", "/proc/softirqs", "/proc/schedstat" };
    static const char *const dirs[] = { "/proc/acpi", "/proc/scsi", "/proc/asound", "/proc/irq", "/proc/bus" };

    for (size_t i = 0; i < COUNT(files); i++)
        must_be_empty(o, files[i]);
    for (size_t i = 0; i < COUNT(dirs); i++) {
        DIR *dir = opendir(dirs[i]);
        struct dirent *entry;
        while (dir && (entry = readdir(dir)))
            if (entry->d_name[0] != '.')
                escaped(o, "%s shows %s", dirs[i], entry->d_name);
        if (dir)
            closedir(dir);
    }
}

static void pr18(struct outcome *o)
{
    char buf[4096];
    ssize_t n = slurp("/proc/self/cgroup", buf, sizeof buf);

    for (char *line = strtok(buf, "\n"); n > 0 && line; line = strtok(NULL, "\n"))
        if (strcmp(strrchr(line, ':') ? strrchr(line, ':') : "", ":/") != 0)
            escaped(o, "the cgroup path is %s", line);
    held(o, n > 0 ? "every line ends in :/" : "/proc/self/cgroup cannot be read");
}

static void pr20(struct outcome *o)
{
    if (alone(o))
        return;
    must_not_open(o, "/proc/1/mem", O_RDONLY);
    must_not_open(o, "/proc/1/mem", O_RDWR);
    must_not_open(o, "/proc/1/maps", O_RDONLY);
    must_not_open(o, "/proc/1/fd/0", O_RDONLY);
    must_not_open(o, "/proc/1/fd/3", O_RDONLY);
    must_not_open(o, "/proc/1/task/1/mem", O_RDWR);
}

const struct probe_case pr_cases[] = {
    { "PR01", pr01 }, { "PR02", pr02 }, { "PR03", pr03 }, { "PR04", pr04 }, { "PR05", pr05 },
    { "PR06", pr06 }, { "PR07", pr07 }, { "PR08", pr08 }, { "PR09", pr09 }, { "PR10", pr10 },
    { "PR11", pr11 }, { "PR12", pr12 }, { "PR13", pr13 }, { "PR14", pr14 }, { "PR15", pr15 },
    { "PR16", pr16 }, { "PR17", pr17 }, { "PR18", pr18 }, { "PR20", pr20 }, { NULL, NULL },
};
