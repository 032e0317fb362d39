/* NS: new namespaces, mounts, and the ways by which a process could enter another root. */
#include "probe.h"

#include <sys/mount.h>
#include <sys/statvfs.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef CLONE_NEWCGROUP
#define CLONE_NEWCGROUP 0x02000000
#endif
#define OPEN_TREE_CLONE_FLAG 1
#define ATTR_RDONLY 1

struct clone3_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
};

struct mount_attr_args {
    uint64_t attr_set, attr_clr, propagation, userns_fd;
};

/* A call that may return twice: the second process must exit. */
static long once(long pid)
{
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, __WALL);
    return pid;
}

static void ns01(struct outcome *o)
{
    REFUSED(o, "unshare(NEWUSER)", unshare(CLONE_NEWUSER), EPERM, ENOSPC);
}

static void ns02(struct outcome *o)
{
    struct clone3_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };

    REFUSED(o, "clone3(NEWUSER)", once(syscall(435, &args, sizeof args)), ENOSYS);
}

static void ns03(struct outcome *o)
{
    REFUSED(o, "clone(NEWUSER)", once(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0)), EPERM);
}

static void ns04(struct outcome *o)
{
    REFUSED(o, "unshare(NEWNS)", unshare(CLONE_NEWNS), EPERM);
}

static void ns05(struct outcome *o)
{
    REFUSED(o, "unshare(NEWNET)", unshare(CLONE_NEWNET), EPERM);
}

static void ns06(struct outcome *o)
{
    REFUSED(o, "unshare(NEWPID)", unshare(CLONE_NEWPID), EPERM);
    REFUSED(o, "unshare(NEWIPC)", unshare(CLONE_NEWIPC), EPERM);
    REFUSED(o, "unshare(NEWUTS)", unshare(CLONE_NEWUTS), EPERM);
    REFUSED(o, "unshare(NEWCGROUP)", unshare(CLONE_NEWCGROUP), EPERM);
    REFUSED(o, "unshare(NEWTIME)", unshare(CLONE_NEWTIME), EPERM);
}

static void ns07(struct outcome *o)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
        held(o, "the nested user namespace is refused: %s", strerror(errno));
        return;
    }
    bool mounted = mount("none", "/tmp", "tmpfs", 0, NULL) == 0;
    escaped(o, "a nested user namespace was created%s", mounted ? " and a tmpfs mounted in it" : "");
}

static void ns08(struct outcome *o)
{
    REFUSED(o, "mount(tmpfs)", mount("none", "/tmp", "tmpfs", 0, NULL), EPERM);
}

static void ns09(struct outcome *o)
{
    mkdir("/tmp/ns09", 0700);
    REFUSED(o, "bind / elsewhere", mount("/", "/tmp/ns09", NULL, MS_BIND | MS_REC, NULL), EPERM);
}

static void ns10(struct outcome *o)
{
    struct statvfs st;

    REFUSED(o, "remount / rw", mount("none", "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    REFUSED(o, "remount /usr rw", mount("none", "/usr", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM);
    if (statvfs("/", &st) == 0 && !(st.f_flag & ST_RDONLY))
        escaped(o, "/ is writable");
}

static void ns11(struct outcome *o)
{
    static const char *const covered[] = { "/proc/kcore", "/proc/keys",          "/proc/sys", "/proc/timer_list",
                                           "/proc/acpi",  "/proc/sysrq-trigger", "/proc",     "/dev/null",
                                           "/tmp",        "/workspace" };

    for (size_t i = 0; i < COUNT(covered); i++)
        REFUSED(o, covered[i], umount2(covered[i], MNT_DETACH), EPERM);
}

static void ns12(struct outcome *o)
{
    REFUSED(o, "fsopen(tmpfs)", syscall(430, "tmpfs", 0), EPERM, ENOSYS);
}

static void ns13(struct outcome *o)
{
    REFUSED(o, "open_tree(CLONE)", syscall(428, AT_FDCWD, "/", OPEN_TREE_CLONE_FLAG), EPERM, ENOSYS);
}

static void ns14(struct outcome *o)
{
    struct mount_attr_args attr = { .attr_clr = ATTR_RDONLY };

    REFUSED(o, "mount_setattr", syscall(442, AT_FDCWD, "/", 0, &attr, sizeof attr), EPERM, ENOSYS);
    REFUSED(o, "move_mount", syscall(429, AT_FDCWD, "/tmp", AT_FDCWD, "/workspace", 0), EPERM, ENOSYS);
}

static void ns15(struct outcome *o)
{
    REFUSED(o, "pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"), EPERM);
}

static void ns16(struct outcome *o)
{
    REFUSED(o, "chroot", chroot("/tmp"), EPERM);
}

static void ns17(struct outcome *o)
{
    static const char *const names[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time" };

    for (size_t i = 0; i < COUNT(names); i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/1/ns/%s", names[i]);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            held(o, "%s: %s", path, strerror(errno));
        else
            REFUSED(o, path, setns(fd, 0), EPERM);
    }
    int pidfd = (int)syscall(434, 1, 0);
    if (pidfd >= 0)
        REFUSED(o, "setns(pidfd of 1)", setns(pidfd, CLONE_NEWNS), EPERM);
}

static void ns18(struct outcome *o)
{
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        held(o, "/proc/self/ns/net: %s", strerror(errno));
    else
        REFUSED(o, "setns(own net)", setns(fd, CLONE_NEWNET), EPERM);
}

static void ns19(struct outcome *o)
{
    struct {
        unsigned bytes;
        int type;
        uint32_t ino, gen;
    } handle = { 8, 1, 2, 0 };
    int fd = open("/usr", O_RDONLY | O_CLOEXEC);

    REFUSED(o, "open_by_handle_at", syscall(SYS_open_by_handle_at, fd, &handle, O_RDONLY), EPERM, ENOSYS);
}

static void ns20(struct outcome *o)
{
    struct stat root, here, up;
    int fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (start_directory()[0] != '/')
        escaped(o, "the working directory at the start was %s", start_directory());
    if (fd < 0 || stat("/", &root) < 0 || fstat(fd, &here) < 0) {
        escaped(o, "the working directory cannot be read: %s", strerror(errno));
        return;
    }
    /* The topmost directory must be the root of the sandbox. */
    for (int i = 0; i < 100; i++) {
        int next = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (next < 0 || fstat(next, &up) < 0)
            break;
        bool top = up.st_ino == here.st_ino && up.st_dev == here.st_dev;
        close(fd);
        fd = next;
        if (top)
            break;
        here = up;
    }
    if (here.st_ino != root.st_ino || here.st_dev != root.st_dev)
        escaped(o, "dot-dot from the working directory leads to another root");
    held(o, "starts in %s, below its own root", start_directory());
}

/* Needs a host that mounts after the start, so it runs only when the driver requests it. */
static void ns24(struct outcome *o)
{
    const char *path = canary("late_mount");

    if (!*path) {
        skipped(o, "the driver announced no late mount");
        return;
    }
    char late[512];
    snprintf(late, sizeof late, "%s", path);
    for (int i = 0; i < 30; i++) {
        if (access(late, F_OK) == 0) {
            escaped(o, "a mount made after the start is visible: %s", late);
            return;
        }
        usleep(100000);
    }
    held(o, "a mount made on the host after the start is not visible");
}

const struct probe_case ns_cases[] = {
    { "NS01", ns01 }, { "NS02", ns02 }, { "NS03", ns03 }, { "NS04", ns04 }, { "NS05", ns05 }, { "NS06", ns06 },
    { "NS07", ns07 }, { "NS08", ns08 }, { "NS09", ns09 }, { "NS10", ns10 }, { "NS11", ns11 }, { "NS12", ns12 },
    { "NS13", ns13 }, { "NS14", ns14 }, { "NS15", ns15 }, { "NS16", ns16 }, { "NS17", ns17 }, { "NS18", ns18 },
    { "NS19", ns19 }, { "NS20", ns20 }, { "NS24", ns24 }, { NULL, NULL },
};
