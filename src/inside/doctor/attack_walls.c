/* One function for each wall. If the kernel could refuse an attack for two reasons, the attack is
 * one that only the wall in question refuses in this way, or the state of that wall is checked too:
 * a wall that is covered by another must not count as held because of the other. */
#include "inside/doctor/attack.h"

#include "core/base/str.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/securebits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/utsname.h>

#define PROC_TEXT 8192
#define ATTACK_FDS_CHECKED 1024
#define CONNECT_MS 500
#define USERS_MAX 2     /* the owner of the root's files, and the user of the sandbox's programs */
#define PIDS_SEEN_MAX 4 /* the probe and the process of this attack, and one that may be ending */

extern char **environ;

/* Identity. */

/* Parses a number after optional blanks. */
static bool attack_eat_number(const char **p, uint32_t *ret)
{
    *p += strspn(*p, " ");
    return str_eat_u32(p, UINT32_MAX, ret);
}

/* Reads uid_map: the number of users that exist here, and the host uid of this process. */
static bool uid_map(unsigned *users, unsigned *outside)
{
    uint32_t in, out, count;
    char map[512];

    *users = 0;
    *outside = 0;
    if (attack_read_file("/proc/self/uid_map", map, sizeof(map)) <= 0)
        return false;
    for (const char *p = map; *p;) {
        if (!attack_eat_number(&p, &in) || !attack_eat_number(&p, &out) || !attack_eat_number(&p, &count) ||
            !str_eat(&p, "\n"))
            return false;
        *users = count > USERS_MAX ? count : *users + count;
        if (in == getuid())
            *outside = out;
    }
    return true;
}

static void attack_wall_user_namespace(struct attack *a)
{
    unsigned users, outside;

    if (!uid_map(&users, &outside))
        attack_open(a, "/proc/self/uid_map cannot be read");
    else if (users > USERS_MAX)
        attack_open(a, "%u users of the host are mapped", users);
    attack_expect_failure(a, "setuid(0)", setuid(0));
    attack_expect_failure(a, "a new user namespace", unshare(CLONE_NEWUSER));
}

static void attack_wall_plain_user(struct attack *a)
{
    if (getuid() == 0 || geteuid() == 0 || getgid() == 0)
        attack_open(a, "it runs as uid %u, gid %u", (unsigned)getuid(), (unsigned)getgid());
    attack_expect_failure(a, "setresuid(0, 0, 0)", setresuid(0, 0, 0));
    attack_expect_failure(a, "setresgid(0, 0, 0)", setresgid(0, 0, 0));
}

static void attack_wall_unique_uid(struct attack *a)
{
    unsigned users, outside;

    if (!uid_map(&users, &outside))
        attack_open(a, "/proc/self/uid_map cannot be read");
    else if (outside == 0 || outside == attack_arg_u64("uid"))
        attack_open(a, "on the host it has the uid of the user that started it");
    else
        attack_held(a, "on the host it is uid %u", outside);
}

static void attack_wall_no_groups(struct attack *a)
{
    gid_t groups[64];
    int n = getgroups(ARRAY_LEN(groups), groups);

    if (n < 0)
        attack_open(a, "getgroups: %s", strerror(errno));
    for (int i = 0; i < n; i++)
        if (groups[i] != getgid())
            attack_open(a, "it is in group %u", (unsigned)groups[i]);
    attack_expect_failure(a, "setgroups", setgroups(1, (gid_t[]){ 0 }));
}

/* Files. */

static bool attack_directory_is_empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    bool empty = true;

    while (dir && (e = readdir(dir)))
        if (e->d_name[0] != '.')
            empty = false;
    if (dir)
        closedir(dir);
    return empty;
}

static void attack_wall_mount_namespace(struct attack *a)
{
    static const char *const of_host[] = { "/root", "/home", "/boot", "/sys", "/var/lib", "/run", "/srv", "/opt" };

    for (size_t i = 0; i < ARRAY_LEN(of_host); i++)
        if (!attack_directory_is_empty(of_host[i]))
            attack_open(a, "%s is not empty", of_host[i]);
    attack_expect_failure(a, "mounting a tmpfs", mount("none", "/tmp", "tmpfs", 0, NULL));
    attack_expect_failure(a, "unmounting /proc", umount2("/proc", MNT_DETACH));
}

static void attack_wall_read_only_root(struct attack *a)
{
    static const char *const places[] = { "/", "/usr", "/etc" };
    struct statvfs fs;

    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (statvfs(places[i], &fs) < 0 || !(fs.f_flag & ST_RDONLY))
            attack_open(a, "%s is not read-only", places[i]);
    attack_expect_failure(a, "a file in /", open("/cove-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    attack_expect_failure(a, "a file in /etc", open("/etc/cove-probe", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    attack_expect_failure(a, "a directory in /usr/bin", mkdir("/usr/bin/cove-probe", 0700));
}

static void attack_wall_masked_proc(struct attack *a)
{
    static const char *const hidden[] = {
        "kcore",   "keys",     "key-users",  "kmsg",    "sysrq-trigger", "timer_list", "kallsyms",
        "cmdline", "softirqs", "interrupts", "modules", "pressure/cpu",  "irq/0",      "fs/ext4",
    };
    static const char *const controls[] = { "sys/kernel/core_pattern", "sys/kernel/hostname", "sysrq-trigger" };
    char path[64], text[64];
    struct statvfs fs;

    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        snprintf(path, sizeof(path), "/proc/%s", hidden[i]);
        if (attack_read_file(path, text, sizeof(text)) > 0)
            attack_open(a, "%s can be read", path);
    }
    if (statvfs("/proc/sys", &fs) < 0 || !(fs.f_flag & ST_RDONLY))
        attack_open(a, "/proc/sys is not read-only");
    for (size_t i = 0; i < ARRAY_LEN(controls); i++) {
        snprintf(path, sizeof(path), "/proc/%s", controls[i]);
        attack_expect_failure(a, path, open(path, O_WRONLY | O_CLOEXEC));
    }
}

static void attack_wall_landlock(struct attack *a)
{
    attack_expect_error(a, "opening /.cove/runtime", open("/.cove/runtime", O_RDONLY | O_CLOEXEC), EACCES, 0);
}

static bool attack_device_is_ordinary(dev_t dev)
{
    static const struct {
        unsigned major, minor;
    } known[] = { { 1, 3 }, { 1, 5 }, { 1, 7 }, { 1, 8 }, { 1, 9 }, { 5, 0 }, { 5, 2 } };

    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (major(dev) == known[i].major && minor(dev) == known[i].minor)
            return true;
    return major(dev) == 136; /* terminals of this sandbox */
}

static void attack_wall_devices(struct attack *a)
{
    DIR *dir = opendir("/dev");
    struct dirent *e;
    struct stat st;

    while (dir && (e = readdir(dir)))
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 &&
            (S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && !attack_device_is_ordinary(st.st_rdev))))
            attack_open(a, "/dev/%.60s exists", e->d_name);
    if (dir)
        closedir(dir);
    attack_expect_failure(a, "making a device", mknod("/tmp/device", S_IFCHR | 0600, makedev(1, 1)));
}

/* Processes. */

static void attack_wall_pid_namespace(struct attack *a)
{
    pid_t host = (pid_t)attack_arg_u64("pid");
    DIR *dir = opendir("/proc");
    struct dirent *e;
    int seen = 0;

    while (dir && (e = readdir(dir)))
        seen += e->d_name[0] >= '1' && e->d_name[0] <= '9';
    if (dir)
        closedir(dir);
    if (!dir || seen > PIDS_SEEN_MAX)
        attack_open(a, "%d processes are visible", seen);
    else
        attack_held(a, "%d processes are visible, all of them in the sandbox", seen);
    if (host > 1000) /* a lower number may belong to a process of this sandbox */
        attack_expect_error(a, "a signal to cove", kill(host, 0), ESRCH, 0);
}

static void attack_wall_hidden_init(struct attack *a)
{
    static const char *const files[] = { "environ", "maps", "mem", "exe", "root", "fd" };
    char path[32];

    attack_expect_failure(a, "looking at /proc/1", access("/proc/1", F_OK));
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "/proc/1/%s", files[i]);
        attack_expect_failure(a, path, open(path, O_RDONLY | O_CLOEXEC));
    }
}

static void attack_wall_cgroup_namespace(struct attack *a)
{
    char text[PROC_TEXT];
    ssize_t n = attack_read_file("/proc/self/cgroup", text, sizeof(text));

    if (n < 0)
        attack_open(a, "/proc/self/cgroup cannot be read");
    for (char *line = text; n > 0 && *line;) {
        char *end = strchr(line, '\n');

        if (!end || end - line < 2 || strncmp(end - 2, ":/", 2) != 0)
            attack_open(a, "a path of the host is visible: %.*s", (int)(end ? end - line : 80), line);
        line = end ? end + 1 : line + strlen(line);
    }
    attack_held(a, "/proc/self/cgroup shows only /");
}

static void attack_wall_ipc_namespace(struct attack *a)
{
    char text[PROC_TEXT];
    const char *end = attack_read_file("/proc/sysvipc/shm", text, sizeof(text)) < 0 ? NULL : strchr(text, '\n');

    if (end && end[1])
        attack_open(a, "shared memory of the host is visible");
    else
        attack_held(a, "no shared memory of the host is visible");
}

static void attack_wall_uts_namespace(struct attack *a)
{
    struct utsname u;

    if (uname(&u) < 0 || !str_eq(u.nodename, attack_arg("hostname")))
        attack_open(a, "the host name of the host is visible");
    attack_expect_failure(a, "sethostname", sethostname("probe", 5));
}

/* Privileges. */

static bool attack_read_status_line(const char *key, char value[64])
{
    char text[PROC_TEXT], find[32];

    snprintf(find, sizeof(find), "\n%s:\t", key);
    const char *at = attack_read_file("/proc/self/status", text, sizeof(text)) > 0 ? strstr(text, find) : NULL;
    if (!at)
        return false;
    at += strlen(find);
    snprintf(value, 64, "%.*s", (int)min_size(strcspn(at, "\n"), 60), at);
    return true;
}

static void attack_wall_no_capabilities(struct attack *a)
{
    static const char *const sets[] = { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" };
    char value[64];

    for (size_t i = 0; i < ARRAY_LEN(sets); i++)
        if (!attack_read_status_line(sets[i], value) || strspn(value, "0") != strlen(value))
            attack_open(a, "%s is not empty", sets[i]);
    attack_expect_failure(a, "chroot", chroot("/tmp"));
}

static void attack_wall_secure_bits(struct attack *a)
{
    unsigned all = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED;
    long bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);

    if (bits < 0 || ((unsigned)bits & all) != all)
        attack_open(a, "securebits are %ld", bits);
    else
        attack_held(a, "uid 0 has no privileges, and that is locked");
    attack_expect_failure(a, "PR_SET_SECUREBITS", prctl(PR_SET_SECUREBITS, 0, 0, 0, 0));
}

static void attack_wall_no_new_privileges(struct attack *a)
{
    static const char *const places[] = { "/", "/usr", "/tmp", "/workspace", "/dev/shm" };
    char value[64];
    struct statvfs fs;

    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || !attack_read_status_line("NoNewPrivs", value) ||
        !str_eq(value, "1"))
        attack_open(a, "no_new_privs is not set");
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (statvfs(places[i], &fs) < 0 || !(fs.f_flag & ST_NOSUID))
            attack_open(a, "set-id bits take effect in %s", places[i]);
    attack_expect_failure(a, "clearing no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

/* Without a filter, unshare of nothing succeeds, and the other calls fail because of their
 * arguments. */
static void attack_wall_seccomp(struct attack *a)
{
    char value[64];

    if (!attack_read_status_line("Seccomp", value) || !str_eq(value, "2"))
        attack_open(a, "there is no filter");
    attack_expect_error(a, "unshare(0)", unshare(0), EPERM, ENOSYS);
    attack_expect_error(a, "io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL), EPERM, ENOSYS);
    attack_expect_error(a, "perf_event_open", syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0), EPERM, ENOSYS);
}

static void attack_wall_own_keyring(struct attack *a)
{
    attack_expect_error(a, "add_key", syscall(SYS_add_key, "user", "cove-probe", "x", 1, -3), EPERM, ENOSYS);
    attack_expect_error(a, "keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0), EPERM, ENOSYS);
}

/* Inherited state. */

static void attack_wall_descriptors(struct attack *a)
{
    for (int fd = 3; fd < ATTACK_FDS_CHECKED; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            attack_open(a, "descriptor %d is open", fd);
    attack_held(a, "only descriptors 0, 1 and 2 are open");
}

/* The doctor passes the names of the allowed variables in one argument, each followed by a comma.
 */
static void attack_wall_environment(struct attack *a)
{
    const char *allowed = attack_arg("environment");
    char name[64];

    for (char **e = environ; *e; e++) {
        snprintf(name, sizeof(name), "%.*s,", (int)min_size(strcspn(*e, "="), 60), *e);
        const char *at = strstr(allowed, name);
        if (!at || (at != allowed && at[-1] != ','))
            attack_open(a, "an unexpected variable: %s", name);
    }
    attack_held(a, "only the variables of the level");
}

/* Network. */

/* Returns the error of a connection, 0 if it was made. */
static int try_connect(const struct sockaddr *to, socklen_t len)
{
    int fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = 0;
    socklen_t size = sizeof(error);

    if (fd < 0)
        return errno;
    struct pollfd p = { fd, POLLOUT, 0 };
    if (connect(fd, to, len) < 0)
        error = errno;
    if (error == EINPROGRESS && poll(&p, 1, CONNECT_MS) > 0)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    close(fd);
    return error;
}

static int attack_try_inet(const char *ip, uint64_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

    inet_pton(AF_INET, ip, &to.sin_addr);
    return try_connect((struct sockaddr *)&to, sizeof(to));
}

static void attack_wall_network_namespace(struct attack *a)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    const char *name = attack_arg("socket");
    size_t len = min_size(strlen(name), sizeof(un.sun_path) - 1);
    int error;

    memcpy(un.sun_path + 1, name, len);
    if (attack_arg_u64("port")) {
        error = attack_try_inet("127.0.0.1", attack_arg_u64("port"));
        if (error != ECONNREFUSED && error != EACCES)
            attack_open(a, "a port of the host's loopback: %s", error ? strerror(error) : "connected");
    }
    error = try_connect((struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len));
    if (error == 0 || error == EINPROGRESS)
        attack_open(a, "an abstract socket of the host answered");
    attack_held(a, "ports and sockets of the host: %s", strerror(error));
}

/* After two header lines, one line per interface: "    lo: 0 0 ...". */
static void attack_wall_no_interfaces(struct attack *a)
{
    char text[PROC_TEXT];
    const char *line = attack_read_file("/proc/self/net/dev", text, sizeof(text)) < 0 ? NULL : strchr(text, '\n');

    line = line ? strchr(line + 1, '\n') : NULL;
    if (!line)
        attack_open(a, "/proc/self/net/dev cannot be read");
    for (; line && line[1]; line = strchr(line + 1, '\n')) {
        const char *name = line + 1 + strspn(line + 1, " ");

        if (!str_starts(name, "lo:"))
            attack_open(a, "there is an interface %.*s", (int)min_size(strcspn(name, ":\n"), 20), name);
    }
    attack_held(a, "no interface except lo");
}

static void attack_wall_no_routes(struct attack *a)
{
    static const char *const far[] = { "192.0.2.1", "169.254.169.254", "10.0.0.1" };

    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        int error = attack_try_inet(far[i], 80);

        if (error == EACCES)
            attack_held(a, "connecting to %s: %s", far[i], strerror(error));
        else
            attack_open(a, "connecting to %s: %s", far[i], error ? strerror(error) : "connected");
    }
}

#define WALL(name, outside, inside, needs_root, description, effect, attack) { #name, attack_wall_##name },
static struct attack attack_wall_table[] = {
#include "policy/walls.def"
};
#undef WALL

struct attack *attack_walls(size_t *count)
{
    *count = ARRAY_LEN(attack_wall_table);
    return attack_wall_table;
}

struct attack *attack_find_wall(const char *wall, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < ARRAY_LEN(attack_wall_table); i++)
        if (str_eq(attack_wall_table[i].name, wall)) {
            *count = 1;
            return &attack_wall_table[i];
        }
    return NULL;
}
