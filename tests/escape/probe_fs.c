/* FS: files and devices. */
#include "probe.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#define MIB (1024l * 1024)

static void fs01(struct outcome *o)
{
    static const char *const places[] = { "/",     "/usr",  "/usr/bin", "/usr/lib", "/etc",     "/bin",
                                          "/sbin", "/lib",  "/lib64",   "/opt",     "/var",     "/srv",
                                          "/home", "/root", "/run",     "/boot",    "/mnt",     "/proc",
                                          "/sys",  "/dev",  "/dev/pts", "/.cove",   "/etc/ssl", "/skills" };

    for (size_t i = 0; i < COUNT(places); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/cove-probe", places[i]);
        must_not_open(o, path, O_WRONLY | O_CREAT);
        unlink(path);
        if (mkdir(path, 0700) == 0) {
            escaped(o, "%s was made", path);
            rmdir(path);
        }
    }
}

static void fs02(struct outcome *o)
{
    static const char *const files[] = { "/etc/passwd",
                                         "/etc/group",
                                         "/etc/hosts",
                                         "/etc/resolv.conf",
                                         "/etc/ld.so.cache",
                                         "/usr/bin/env",
                                         "/bin/sh",
                                         "/lib64/ld-linux-x86-64.so.2",
                                         "/proc/self/root/etc/passwd" };

    for (size_t i = 0; i < COUNT(files); i++) {
        must_not_open(o, files[i], O_WRONLY);
        if (access(files[i], W_OK) == 0)
            escaped(o, "%s is writable", files[i]);
    }
    must_not_open(o, "/etc/ld.so.preload", O_WRONLY | O_CREAT | O_EXCL);
}

static void must_be_absent(struct outcome *o, const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0) {
        if (access(path, R_OK) == 0)
            escaped(o, "%s exists and is readable", path);
        else
            escaped(o, "%s is there", path);
    } else {
        held(o, "%s: %s", path, strerror(errno));
    }
}

static void fs03(struct outcome *o)
{
    static const char *const files[] = {
        "/etc/shadow",
        "/etc/gshadow",
        "/etc/sudoers",
        "/root/.ssh/id_rsa",
        "/root/.ssh/authorized_keys",
        "/root/.aws/credentials",
        "/root/.config/gcloud/credentials.db",
        "/root/.kube/config",
        "/root/.docker/config.json",
        "/root/.netrc",
        "/root/.npmrc",
        "/etc/ssh/ssh_host_rsa_key",
        "/etc/ssh/ssh_host_ed25519_key",
        "/etc/kubernetes/admin.conf",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "/run/secrets",
        "/etc/cove/cove.yaml",
        "/var/lib/cove",
        "/run/cove",
        "/etc/ssl/private",
        "/etc/apt/auth.conf",
    };

    for (size_t i = 0; i < COUNT(files); i++)
        must_be_absent(o, files[i]);
}

static void must_be_bare(struct outcome *o, const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            escaped(o, "%s holds %s", path, entry->d_name);
    if (dir)
        closedir(dir);
    held(o, "%s is absent or empty", path);
}

static void fs04(struct outcome *o)
{
    static const char *const dirs[] = { "/root",
                                        "/home",
                                        "/var/log",
                                        "/boot",
                                        "/var/lib/docker",
                                        "/var/lib/containerd",
                                        "/var/lib/containers",
                                        "/var/lib/kubelet",
                                        "/var/spool",
                                        "/srv",
                                        "/media",
                                        "/lost+found",
                                        "/var/backups",
                                        "/var/mail",
                                        "/run" };

    for (size_t i = 0; i < COUNT(dirs); i++)
        must_be_bare(o, dirs[i]);
}

static void fs05(struct outcome *o)
{
    static const char *const devices[] = { "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg" };

    for (size_t i = 0; i < COUNT(devices); i++)
        must_be_absent(o, devices[i]);
}

static void fs06(struct outcome *o)
{
    static const char *const devices[] = {
        "/dev/kvm",         "/dev/fuse",        "/dev/net/tun",       "/dev/vhost-net",
        "/dev/vhost-vsock", "/dev/vsock",       "/dev/loop-control",  "/dev/uinput",
        "/dev/dri",         "/dev/rtc0",        "/dev/snd",           "/dev/input",
        "/dev/hpet",        "/dev/userfaultfd", "/dev/btrfs-control", "/dev/mapper/control",
        "/dev/hwrng",       "/dev/nvram",       "/dev/watchdog",      "/dev/cpu_dma_latency"
    };

    for (size_t i = 0; i < COUNT(devices); i++)
        must_be_absent(o, devices[i]);
}

static void walk_dev(struct outcome *o, const char *path, bool blocks_only, int depth)
{
    static const char *const known[] = { "null", "zero", "full", "random", "urandom", "tty",    "ptmx",
                                         "pts",  "shm",  "fd",   "stdin",  "stdout",  "stderr", "mqueue" };
    DIR *dir = opendir(path);
    struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        struct stat st;
        bool expected = depth > 0;
        if (entry->d_name[0] == '.' || fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        for (size_t i = 0; i < COUNT(known); i++)
            expected |= strcmp(known[i], entry->d_name) == 0;
        if (S_ISBLK(st.st_mode))
            escaped(o, "%s/%s is a block device", path, entry->d_name);
        if (!blocks_only && !expected)
            escaped(o, "%s/%s is there", path, entry->d_name);
        if (S_ISDIR(st.st_mode) && depth < 3) {
            char child[512];
            snprintf(child, sizeof child, "%.200s/%.255s", path, entry->d_name);
            walk_dev(o, child, blocks_only, depth + 1);
        }
    }
    if (dir)
        closedir(dir);
}

static void fs07(struct outcome *o)
{
    static const char *const devices[] = { "/dev/sda",  "/dev/vda",  "/dev/nvme0n1", "/dev/loop0",
                                           "/dev/dm-0", "/dev/xvda", "/dev/ram0",    "/dev/zram0" };

    for (size_t i = 0; i < COUNT(devices); i++)
        must_be_absent(o, devices[i]);
    walk_dev(o, "/dev", true, 0);
}

static void fs08(struct outcome *o)
{
    walk_dev(o, "/dev", false, 0);
    held(o, "/dev holds the ordinary nodes only");
}

static void fs09(struct outcome *o)
{
    REFUSED(o, "mknod(c 1:1)", mknod("/tmp/fs09", S_IFCHR | 0600, makedev(1, 1)), EPERM);
}

static void fs10(struct outcome *o)
{
    struct statvfs vfs;

    REFUSED(o, "mknod(b 8:0)", mknod("/tmp/fs10", S_IFBLK | 0600, makedev(8, 0)), EPERM);
    if (statvfs("/tmp", &vfs) == 0 && !(vfs.f_flag & ST_NODEV))
        escaped(o, "/tmp is mounted without nodev");
}

static void fs11(struct outcome *o)
{
    static const char *const files[] = {
        "/sys/kernel/mm/ksm/run",         "/sys/power/state",
        "/sys/kernel/uevent_helper",      "/sys/module/printk/parameters/time",
        "/sys/block/vda/queue/scheduler", "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/fs/cgroup/cgroup.procs",    "/sys/devices/system/cpu/cpu1/online"
    };

    for (size_t i = 0; i < COUNT(files); i++)
        must_not_open(o, files[i], O_WRONLY);
}

static void fs12(struct outcome *o)
{
    static const char *const dirs[] = { "/sys/kernel/debug",  "/sys/kernel/tracing",     "/sys/kernel/security",
                                        "/sys/fs/bpf",        "/sys/firmware/efi",       "/sys/fs/pstore",
                                        "/sys/kernel/config", "/proc/sys/fs/binfmt_misc" };

    for (size_t i = 0; i < COUNT(dirs); i++)
        must_be_bare(o, dirs[i]);
}

/* Calls `look` with mount point, mount options, optional fields, type and super options of every
 * visible mount. */
static int each_mount(struct outcome *o, void (*look)(struct outcome *, const char *, const char *, const char *,
                                                      const char *, const char *))
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    int n = 0;

    while (f && fgets(line, sizeof line, f)) {
        char where[512], options[512], rest[2048], type[64], source[512], super[512];
        char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*d %*d %*s %*s %511s %511s %2047[^\n]", where, options, rest) != 3 ||
            sscanf(dash, " - %63s %511s %511s", type, source, super) != 3)
            continue;
        n++;
        look(o, where, options, rest, type, super);
    }
    if (f)
        fclose(f);
    return n;
}

static bool has_option(const char *options, const char *name)
{
    size_t len = strlen(name);

    for (const char *p = options; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == '\0'))
            return true;
    return false;
}

static void no_cgroup(struct outcome *o, const char *where, const char *options, const char *rest, const char *type,
                      const char *super)
{
    (void)options, (void)rest, (void)super;
    if (strncmp(type, "cgroup", 6) == 0) {
        char path[600];
        snprintf(path, sizeof path, "%s/cove-probe", where);
        escaped(o, "a cgroup file system is mounted on %s%s", where,
                mkdir(path, 0700) == 0 ? ", and it is writable" : "");
    }
}

static void fs13(struct outcome *o)
{
    if (each_mount(o, no_cgroup) == 0)
        escaped(o, "/proc/self/mountinfo cannot be read");
    must_not_open(o, "/sys/fs/cgroup/release_agent", O_WRONLY);
    must_not_open(o, "/sys/fs/cgroup/memory/release_agent", O_WRONLY);
    must_not_open(o, "/sys/fs/cgroup/pids/cgroup.procs", O_WRONLY);
}

static void writable_is_harmless(struct outcome *o, const char *where, const char *options, const char *rest,
                                 const char *type, const char *super)
{
    struct stat st;

    (void)rest;
    if (!has_option(options, "rw") || !has_option(super, "rw"))
        return;
    if (!has_option(options, "nosuid"))
        escaped(o, "%s is writable without nosuid", where);
    /* Device mounts and devpts are exempt: device nodes are their purpose. */
    bool device = strcmp(type, "devpts") == 0 || (stat(where, &st) == 0 && S_ISCHR(st.st_mode));
    if (!device && !has_option(options, "nodev"))
        escaped(o, "%s is writable without nodev", where);
}

static void fs14(struct outcome *o)
{
    int n = each_mount(o, writable_is_harmless);

    held(o, "%d mounts, every writable one nosuid and nodev", n);
}

static void fs15(struct outcome *o)
{
    char path[512];

    snprintf(path, sizeof path, "%s", canary("host_file"));
    if (!*path)
        skipped(o, "nothing was planted");
    else
        must_be_absent(o, path);
}

static void fs16(struct outcome *o)
{
    static const char *const prefixes[] = {
        "/proc/self/root",          "/proc/1/root",     "/proc/self/cwd/../../../../../../..",
        "/proc/1/cwd/../../../..",  "/../../../..",     "/dev/fd/../../../../../..",
        "/proc/self/root/../../..", "/tmp/../../../..", "/proc/thread-self/root/.."
    };
    char host[512];

    snprintf(host, sizeof host, "%s", canary("host_file"));
    if (!*host) {
        skipped(o, "nothing was planted");
        return;
    }
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s%s", prefixes[i], host);
        must_be_absent(o, path);
    }
    if (symlink(host, "/tmp/fs16") == 0) {
        char buf[64];
        if (slurp("/tmp/fs16", buf, sizeof buf) > 0)
            escaped(o, "a link leads to the host's file");
    }
}

static void not_shared(struct outcome *o, const char *where, const char *options, const char *rest, const char *type,
                       const char *super)
{
    (void)options, (void)type, (void)super;
    char *dash = strstr(rest, "- ");
    char *shared = strstr(rest, "shared:");
    if (shared && shared < dash)
        escaped(o, "%s is shared with another namespace", where);
}

static void fs17(struct outcome *o)
{
    held(o, "%d mounts, none shared", each_mount(o, not_shared));
}

static void fs18(struct outcome *o)
{
    REFUSED(o, "link(/usr/bin/env, /tmp)", link("/usr/bin/env", "/tmp/fs18"), EXDEV, EPERM, EACCES);
    REFUSED(o, "link(/usr/bin/env, /workspace)", link("/usr/bin/env", "/workspace/fs18"), EXDEV, EPERM, EACCES, ENOENT);
}

static void fs22(struct outcome *o)
{
    int fd = open("/tmp/fs22", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

    signal(SIGXFSZ, SIG_IGN);
    if (fd < 0) {
        escaped(o, "/tmp is not writable: %s", strerror(errno));
        return;
    }
    REFUSED(o, "ftruncate(1 EiB)", ftruncate(fd, 1l << 60), EFBIG, EINVAL, ENOSPC);
    REFUSED(o, "fallocate(1 EiB)", fallocate(fd, 0, 0, 1l << 60), EFBIG, ENOSPC);
    REFUSED(o, "fallocate(8 GiB)", fallocate(fd, 0, 0, 8192 * MIB), EFBIG, ENOSPC);
    REFUSED(o, "write at 1 EiB", pwrite(fd, "x", 1, 1l << 60), EFBIG, EINVAL);
    unlink("/tmp/fs22");
}

static void fs27(struct outcome *o)
{
    static char value[32768];
    int fd = open("/tmp/fs27", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    long n = 0;

    memset(value, 'x', sizeof value);
    while (fd >= 0 && n < 8192) {
        char name[64];
        snprintf(name, sizeof name, "user.bloat%ld", n);
        if (fsetxattr(fd, name, value, sizeof value, 0) < 0)
            break;
        n++;
    }
    int why = errno;
    unlink("/tmp/fs27");
    if (n >= 8192)
        escaped(o, "256 MiB of extended attributes were stored");
    held(o, "after %ld attributes of 32 KiB: %s", n, strerror(why));
}

const struct probe_case fs_cases[] = {
    { "FS01", fs01 }, { "FS02", fs02 }, { "FS03", fs03 }, { "FS04", fs04 }, { "FS05", fs05 }, { "FS06", fs06 },
    { "FS07", fs07 }, { "FS08", fs08 }, { "FS09", fs09 }, { "FS10", fs10 }, { "FS11", fs11 }, { "FS12", fs12 },
    { "FS13", fs13 }, { "FS14", fs14 }, { "FS15", fs15 }, { "FS16", fs16 }, { "FS17", fs17 }, { "FS18", fs18 },
    { "FS22", fs22 }, { "FS27", fs27 }, { NULL, NULL },
};
