/* The root is one small tmpfs with the system directories bound into it. It is built through
 * descriptors: every name is resolved below the descriptor of the new root, and files of the host
 * are opened first and attached afterwards, so a symbolic link planted on either side has no
 * effect.
 *
 * The root has few mounts, because the mount namespace of each sandbox copies all of them: devices
 * are nodes on the root itself, and small files of /etc are written or copied instead of bound.
 *
 * Invariants
 * 1. Everything in the template is read-only and nosuid before the first sandbox is made.
 * 2. The template's /proc is mounted while the host's is visible, stays unmasked, and is covered by
 *    the /proc of each sandbox: the kernel lets a user namespace mount proc only where a fully
 *    visible one exists.
 * 3. Of the host's /etc, only the files that policy/root_layout.h names are included. */
#include "host/isolate/template_root.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "host/isolate/sys.h"
#include "inside/confine/mount_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define COPY_MAX (16u << 20)

static int template_root_write_file(int root, const char *path, const void *data, size_t len, struct err *err)
{
    auto_fd int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0 || fd_write_all(fd, data, len) < 0)
        return err_sys(err, ERR_SYS, "/%s", path);
    return 0;
}

/* Copies the `size` bytes of an open file within the kernel. */
static int template_root_copy_file(int root, const char *path, int from, off_t size, mode_t mode, struct err *err)
{
    auto_fd int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    off_t at = 0;

    if (fd < 0)
        return err_sys(err, ERR_SYS, "/%s", path);
    while (at < size) {
        ssize_t n = sendfile(fd, from, &at, (size_t)(size - at));

        if (n <= 0)
            return err_sys(err, ERR_SYS, "copy /%s", path);
    }
    return 0;
}

/* Makes a detached tree read-only, then attaches it at `path` of the root. */
static int template_root_attach_ro(int tree, int root, const char *path, uint64_t more, struct err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | more, .propagation = MS_PRIVATE };

    if (wall_is_mutated("system"))
        attr.attr_set &= ~(uint64_t)MOUNT_ATTR_RDONLY;
    if (mount_call_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /%s read-only", path);
    if (mount_call_move(tree, "", root, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /%s", path);
    return 0;
}

/* `from` is the host's file or directory, already opened: a link was followed once, at that
 * time. */
static int template_root_bind_ro(int root, const char *path, int from, bool dir, uint64_t more, struct err *err)
{
    auto_fd int tree = sys_open_tree(from, "", OPEN_TREE_CLONE | AT_RECURSIVE | AT_EMPTY_PATH);
    if (tree < 0)
        return err_sys(err, ERR_WALL_MISSING, "clone /%s", path);
    if (dir ? mkdirat(root, path, 0755) < 0 && errno != EEXIST : template_root_write_file(root, path, "", 0, err) < 0)
        return err_sys(err, ERR_SYS, "/%s", path);
    return template_root_attach_ro(tree, root, path, more, err);
}

static int template_root_add_system_dir(int root, const char *name, struct err *err)
{
    char host[64], target[256];
    struct stat st;

    snprintf(host, sizeof(host), "/%s", name);
    if (lstat(host, &st) < 0)
        return 0;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(host, target, sizeof(target) - 1);

        if (n < 0)
            return err_sys(err, ERR_SYS, "%s", host);
        target[n] = '\0';
        if (symlinkat(target, root, name) < 0)
            return err_sys(err, ERR_SYS, "/%s", name);
        return 0;
    }
    if (!S_ISDIR(st.st_mode))
        return 0;
    auto_fd int fd = open(host, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, ERR_WALL_MISSING, "open %s", host);
    return template_root_bind_ro(root, name, fd, true, MOUNT_ATTR_NODEV, err);
}

static int template_root_add_host_etc(int root, const char *path, struct err *err)
{
    char host[128];
    struct stat st;

    snprintf(host, sizeof(host), "/%s", path);
    auto_fd int fd = open(host, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return template_root_bind_ro(root, path, fd, true, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > COPY_MAX)
        return 0;
    return template_root_copy_file(root, path, fd, st.st_size, 0644, err);
}

/* The time zone is a link into /usr on most hosts and a copy on others. */
static int template_root_add_localtime(int root, struct err *err)
{
    char target[256];
    ssize_t n = readlink("/etc/localtime", target, sizeof(target) - 1);

    if (n < 0)
        return template_root_add_host_etc(root, "etc/localtime", err);
    target[n] = '\0';
    if (symlinkat(target, root, "etc/localtime") < 0)
        return err_sys(err, ERR_SYS, "/etc/localtime");
    return 0;
}

static int template_root_add_device(int root, const char *path, dev_t dev, struct err *err)
{
    mode_t mask = umask(0);
    int made = mknodat(root, path, S_IFCHR | 0666, dev);

    (void)umask(mask);
    if (made == 0)
        return 0;
    if (errno != EPERM)
        return err_sys(err, ERR_SYS, "/%s", path);
    /* A container that may not make device nodes can bind its own, if they really are these
     * devices. */
    struct stat st;
    char host[32];

    snprintf(host, sizeof(host), "/%s", path);
    auto_fd int fd = open(host, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != dev)
        return err_set(err, ERR_WALL_MISSING, "%s is not the expected device, and device nodes cannot be made here",
                       host);
    return template_root_bind_ro(root, path, fd, false, 0, err);
}

static int template_root_mount_tmpfs(const char *scratch, int *ret, struct err *err)
{
    auto_fd int fs = sys_fsopen("tmpfs");

    if (fs < 0 || sys_fsconfig_str(fs, "size", "8m") < 0 || sys_fsconfig_str(fs, "nr_inodes", "512") < 0 ||
        sys_fsconfig_str(fs, "mode", "0755") < 0 || sys_fsconfig_create(fs) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot mount a tmpfs for the root");
    auto_fd int mnt = sys_fsmount(fs, MOUNT_ATTR_NOSUID);
    if (mnt < 0 || mount_call_move(mnt, "", AT_FDCWD, scratch, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount the root on %s", scratch);
    *ret = take_fd(&mnt);
    return 0;
}

/* The runtime is copied, not bound: a bind would show cove's path on the host in the mount table
 * inside, and replacing the file there must not change an existing template. */
static int template_root_add_runtime(int root, int runtime_fd, struct err *err)
{
    struct stat st;

    if (fstat(runtime_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0 || (uint64_t)st.st_size > COPY_MAX)
        return err_set(err, ERR_NO_RUNTIME_FILE, "cove-runtime is empty, unreadable or too large");
    return template_root_copy_file(root, ".cove/runtime", runtime_fd, st.st_size, 0555, err);
}

/* Copies directories and regular files. Does not follow links. */
static int template_root_copy_dir(int root, const char *path, int from, int depth, struct err *err)
{
    DIR *dir = fdopendir(from);
    const struct dirent *e;
    struct stat st;
    int bad = 0;

    if (mkdirat(root, path, 0755) < 0)
        bad = err_sys(err, ERR_SYS, "/%s", path);
    while (!bad && dir && (e = readdir(dir))) {
        char to[1024];
        int fd = e->d_name[0] == '.' ? -1 : openat(from, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (fd < 0)
            continue;
        snprintf(to, sizeof(to), "%s/%s", path, e->d_name);
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= COPY_MAX)
            bad = template_root_copy_file(root, to, fd, st.st_size, st.st_mode & 0100 ? 0555 : 0444, err);
        else if (depth > 0 && S_ISDIR(st.st_mode))
            bad = template_root_copy_dir(root, to, take_fd(&fd), depth - 1, err);
        fd_close(&fd);
    }
    if (dir)
        closedir(dir);
    else
        close(from);
    return bad;
}

static int template_root_add_kernels(int root, int kernels, struct err *err)
{
    int from = openat(kernels, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return from < 0 ? 0 : template_root_copy_dir(root, ".cove/kernels", from, 2, err);
}

static int template_root_fill(int root, const struct template_root_files *files, struct err *err)
{
    for (size_t i = 0; root_empty_dirs[i]; i++)
        if (mkdirat(root, root_empty_dirs[i], 0755) < 0)
            return err_sys(err, ERR_SYS, "/%s", root_empty_dirs[i]);
    for (size_t i = 0; root_system_dirs[i]; i++)
        if (template_root_add_system_dir(root, root_system_dirs[i], err) < 0)
            return -1;
    for (size_t i = 0; root_links[i].path; i++)
        if (symlinkat(root_links[i].target, root, root_links[i].path) < 0)
            return err_sys(err, ERR_SYS, "/%s", root_links[i].path);
    for (size_t i = 0; root_devices[i].path; i++)
        if (template_root_add_device(root, root_devices[i].path, makedev(root_devices[i].major, root_devices[i].minor),
                                     err) < 0)
            return -1;
    for (size_t i = 0; root_text_files[i].path; i++)
        if (template_root_write_file(root, root_text_files[i].path, root_text_files[i].text,
                                     strlen(root_text_files[i].text), err) < 0)
            return -1;
    for (size_t i = 0; root_host_files[i]; i++)
        if (template_root_add_host_etc(root, root_host_files[i], err) < 0)
            return -1;
    if (template_root_add_localtime(root, err) < 0)
        return -1;
    if (template_root_add_kernels(root, files->kernels, err) < 0)
        return -1;
    return template_root_add_runtime(root, files->runtime, err);
}

static void template_root_add_mask(struct template_root *r, const char *name, bool dir)
{
    for (size_t i = 0; root_proc_masks[i]; i++)
        if (strcmp(name, root_proc_masks[i]) == 0) {
            struct proc_mask *m = &r->masks[r->nmasks++];

            m->is_dir = dir;
            (void)str_copy(m->name, sizeof(m->name), name);
        }
}

struct template_root_dirent { /* record of getdents64 */
    uint64_t ino, next;
    unsigned short len;
    unsigned char type;
    char name[];
};

/* Listing is much faster than a stat of each entry, because in a new proc every lookup allocates a
 * dentry. */
static int template_root_find_masks(struct template_root *r)
{
    char list[4096] __attribute__((aligned(8)));
    long n;

    while ((n = syscall(SYS_getdents64, r->proc, list, sizeof(list))) > 0)
        for (const char *p = list; p < list + n; p += ((const struct template_root_dirent *)(const void *)p)->len) {
            const struct template_root_dirent *e = (const void *)p;

            if (e->type == DT_UNKNOWN)
                return -1;
            template_root_add_mask(r, e->name, e->type == DT_DIR);
        }
    return n < 0 || r->nmasks == 0 ? -1 : 0;
}

/* Mounts proc of this pid namespace and finds the entries that must be covered. */
static int template_root_mount_proc(struct template_root *r, struct err *err)
{
    struct statfs sf;

    auto_fd int fs = sys_fsopen("proc");
    auto_fd int mnt = fs < 0 || sys_fsconfig_create(fs) < 0
                          ? -1
                          : sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (mnt < 0 && errno == EPERM)
        return err_set(err, ERR_WALL_MISSING,
                       "mount /proc: the kernel allows it only where the host's own /proc is not covered; in a "
                       "container, start it with --security-opt systempaths=unconfined (Podman: unmask=ALL; a pod: "
                       "procMount: Unmasked)");
    if (mnt < 0 || mount_call_move(mnt, "", r->fd, "proc", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /proc");
    r->proc = openat(r->fd, "proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->proc < 0 || fstatfs(r->proc, &sf) < 0 || sf.f_type != PROC_SUPER_MAGIC)
        return err_set(err, ERR_WALL_MISSING, "/proc is not procfs");
    if (template_root_find_masks(r) < 0)
        return err_set(err, ERR_WALL_MISSING, "cannot list /proc");
    return 0;
}

static int template_root_set_read_only(const struct template_root *r, bool on, struct err *err)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_NOSUID };

    *(on ? &attr.attr_set : &attr.attr_clr) |= MOUNT_ATTR_RDONLY;
    if (!wall_is_mutated("root") && mount_call_setattr(r->fd, "", AT_EMPTY_PATH, &attr) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make the root %s", on ? "read-only" : "writable");
    return 0;
}

int template_root_set_egress(struct template_root *r, struct err *err)
{
    if (template_root_set_read_only(r, false, err) < 0)
        return -1;
    for (size_t i = 0; root_egress_files[i].path; i++)
        if (unlinkat(r->fd, root_egress_files[i].path, 0) < 0 ||
            template_root_write_file(r->fd, root_egress_files[i].path, root_egress_files[i].text,
                                     strlen(root_egress_files[i].text), err) < 0)
            return err_sys(err, ERR_SYS, "/%s", root_egress_files[i].path);
    return template_root_set_read_only(r, true, err);
}

int template_root_build(struct template_root *r, const char *scratch, const struct template_root_files *files,
                        struct err *err)
{
    *r = (struct template_root){ .fd = -1, .proc = -1 };
    umask(022);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make mounts private");
    if (template_root_mount_tmpfs(scratch, &r->fd, err) < 0 || template_root_fill(r->fd, files, err) < 0 ||
        template_root_mount_proc(r, err) < 0)
        return -1;
    if (fchdir(r->fd) < 0 || sys_pivot_root(".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot enter the new root");
    return template_root_set_read_only(r, true, err);
}
