/* LK: leaks from the host or from another sandbox. */
#include "probe.h"

#include <dirent.h>
#include <mqueue.h>
#include <sys/ioctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/utsname.h>

extern char **environ;

static void lk01(struct outcome *o)
{
    uint64_t fds = inherited_fds();

    for (int fd = 3; fd < 64; fd++)
        if (fds & 1ull << fd) {
            char link[64], target[256] = "?";
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            ssize_t n = readlink(link, target, sizeof target - 1);
            target[n > 0 ? n : 0] = '\0';
            escaped(o, "descriptor %d was inherited: %s", fd, target);
        }
    if (inherited_beyond())
        escaped(o, "descriptor %d was inherited", inherited_beyond());
    held(o, "nothing but 0, 1 and 2");
}

static void lk02(struct outcome *o)
{
    uint64_t fds = inherited_fds() | 7;

    for (int fd = 0; fd < 64; fd++) {
        struct stat st;
        if (!(fds & 1ull << fd) || fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        int up = openat(fd, "../../../..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        escaped(o, "descriptor %d is a directory%s", fd, up >= 0 ? ", and dot-dot works from it" : "");
    }
    held(o, "no directory was inherited");
}

static void lk03(struct outcome *o)
{
    static const char *const known[] = { "PATH",
                                         "HOME",
                                         "USER",
                                         "LOGNAME",
                                         "SHELL",
                                         "LANG",
                                         "TMPDIR",
                                         "TERM",
                                         "PWD",
                                         "PIP_NO_INDEX",
                                         "PIP_BREAK_SYSTEM_PACKAGES",
                                         "PIP_DISABLE_PIP_VERSION_CHECK",
                                         "UV_OFFLINE",
                                         "npm_config_offline" };

    for (char **e = environ; e && *e; e++) {
        size_t len = strcspn(*e, "=");
        bool expected = false;
        for (size_t i = 0; i < COUNT(known); i++)
            expected |= strlen(known[i]) == len && strncmp(known[i], *e, len) == 0;
        if (!expected)
            escaped(o, "the variable %.*s came in", (int)len, *e);
    }
    held(o, "only names of the allow list");
}

static void lk04(struct outcome *o)
{
    static const char *const files[] = { "/proc/self/environ", "/proc/self/cmdline", "/proc/self/mountinfo",
                                         "/proc/self/maps",    "/proc/self/auxv",    "/proc/1/environ",
                                         "/proc/1/cmdline",    "/proc/1/mountinfo",  "/proc/self/status",
                                         "/proc/mounts",       "/etc/hosts",         "/etc/passwd",
                                         "/etc/resolv.conf",   "/proc/self/cgroup" };
    static char buf[65536];
    char secret[128];

    snprintf(secret, sizeof secret, "%s", canary("secret"));
    if (!*secret) {
        skipped(o, "nothing was planted");
        return;
    }
    for (size_t i = 0; i < COUNT(files); i++) {
        ssize_t n = slurp(files[i], buf, sizeof buf);
        if (holds(buf, n, secret))
            escaped(o, "%s holds the planted secret", files[i]);
    }
    held(o, "the planted secret is not visible");
}

static void lk05(struct outcome *o)
{
    for (int fd = 0; fd < 3; fd++) {
        char link[64];
        struct stat st;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
            continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int again = open(link, O_RDWR | O_CLOEXEC);
        escaped(o, "descriptor %d is a file of the host%s", fd,
                again >= 0 ? ", and can be opened again for writing" : "");
    }
    held(o, "standard streams are pipes, sockets or a private terminal");
}

static void lk06(struct outcome *o)
{
    long key = canary_number("shm_key", 0);

    if (!key)
        skipped(o, "nothing was planted");
    else
        REFUSED(o, "shmget(planted key)", shmget((key_t)key, 1, 0), ENOENT, EPERM, ENOSYS);
    long id = canary_number("shm_id", -1);
    if (id < 0)
        return;
    /* Ids are small on a host that has just started, and an earlier case may have created a
     * segment in here. */
    const char *secret = canary("secret");
    char *segment = shmat((int)id, NULL, SHM_RDONLY);
    int error = errno;
    if (segment != (void *)-1 && memcmp(segment, secret, strlen(secret)) != 0)
        held(o, "the planted id belongs to another segment here");
    else
        judge_refused(o, "shmat(planted id)", (long)segment, error,
                      (const int[]){ EINVAL, EPERM, ENOSYS, EACCES, EIDRM, 0 });
}

static void lk07(struct outcome *o)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *entry;
    char name[128];

    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            escaped(o, "/dev/shm holds %s", entry->d_name);
    if (dir)
        closedir(dir);
    snprintf(name, sizeof name, "%s", canary("mqueue"));
    if (*name && mq_open(name, O_RDONLY) != (mqd_t)-1)
        escaped(o, "the planted message queue was opened");
    held(o, "/dev/shm is empty and the planted queue is not visible");
}

/* A terminal of the sandbox: it is needed to see whether the request itself is refused. */
static int own_terminal(void)
{
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlock = 0;
    unsigned number = 0;
    char path[32];

    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &number) < 0)
        return -1;
    snprintf(path, sizeof path, "/dev/pts/%u", number);
    return open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static void lk08(struct outcome *o)
{
    int tty = own_terminal();
    char byte = 'x', paste = 3;

    if (tty < 0)
        escaped(o, "no terminal could be created: %s", strerror(errno));
    REFUSED(o, "TIOCSTI", ioctl(tty, TIOCSTI, &byte), EPERM, EACCES);
    REFUSED(o, "TIOCLINUX", ioctl(tty, TIOCLINUX, &paste), EPERM, EACCES);
    if (canary_number("with_tty", 0) == 0) {
        int controlling = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
        if (controlling >= 0)
            escaped(o, "a controlling terminal was inherited");
        for (int fd = 0; fd < 3; fd++)
            if (isatty(fd))
                escaped(o, "descriptor %d is a terminal of the host", fd);
    }
}

static void lk09(struct outcome *o)
{
    int tty = own_terminal();
    char byte = 'x';

    REFUSED(o, "TIOCSTI with high bits", syscall(SYS_ioctl, tty, (unsigned long)TIOCSTI | 1ul << 32, &byte), EPERM,
            EACCES);
    REFUSED(o, "TIOCSTI with the top bit", syscall(SYS_ioctl, tty, (unsigned long)TIOCSTI | 1ul << 63, &byte), EPERM,
            EACCES);
}

static void lk10(struct outcome *o)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    int n = 0;

    while (f && fgets(line, sizeof line, f)) {
        char root[1024], where[1024];
        if (sscanf(line, "%*d %*d %*s %1023s %1023s", root, where) != 2)
            continue;
        n++;
        /* The kernel reports the source of a bind mount. A path that the caller bound by name,
         * and a system directory mounted at its own path, reveal nothing new; any other is a
         * private path of cove on the host. */
        if (strcmp(root, "/") == 0 || strcmp(root, where) == 0 || strncmp(where, "/mnt/", 5) == 0 ||
            strncmp(where, "/proc/", 6) == 0 || strncmp(where, "/dev/", 5) == 0)
            continue;
        if (strstr(root, "cove") || strstr(root, "/var/lib") || strstr(root, "/home") || strstr(root, "/root"))
            escaped(o, "%s comes from %s", where, root);
    }
    if (f)
        fclose(f);
    held(o, "%d mounts, none reveals a private path of the host", n);
}

static void lk11(struct outcome *o)
{
    static const char *const files[] = { "/etc/machine-id",
                                         "/var/lib/dbus/machine-id",
                                         "/sys/class/dmi/id/product_serial",
                                         "/sys/class/dmi/id/product_uuid",
                                         "/var/lib/cloud/data/instance-id",
                                         "/run/cloud-init/instance-data.json",
                                         "/sys/hypervisor/uuid" };
    struct utsname uts;

    for (size_t i = 0; i < COUNT(files); i++)
        must_be_empty(o, files[i]);
    if (uname(&uts) == 0 && *canary("hostname") && strcmp(uts.nodename, canary("hostname")) == 0)
        escaped(o, "the host's name is %s", uts.nodename);
}

static void lk15(struct outcome *o)
{
    for (int fd = 0; fd < 3; fd++) {
        int type = 0;
        socklen_t len = sizeof type;
        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0)
            continue;
        char control[CMSG_SPACE(sizeof(int))] = { 0 };
        struct iovec iov = { "", 1 };
        struct msghdr msg = {
            .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control
        };
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
        if (sendmsg(fd, &msg, MSG_DONTWAIT) >= 0)
            escaped(o, "descriptor %d is a socket that accepts descriptors", fd);
    }
    must_not_open(o, "/proc/1/fd", O_RDONLY | O_DIRECTORY);
}

const struct probe_case lk_cases[] = {
    { "LK01", lk01 }, { "LK02", lk02 }, { "LK03", lk03 }, { "LK04", lk04 }, { "LK05", lk05 },
    { "LK06", lk06 }, { "LK07", lk07 }, { "LK08", lk08 }, { "LK09", lk09 }, { "LK10", lk10 },
    { "LK11", lk11 }, { "LK15", lk15 }, { NULL, NULL },
};
