/* Uses paths and mount(2), like proc_mount.c. */
#include "inside/confine/binds.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "inside/confine/mount_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>

/* Makes the missing components of `path`, which is below /mnt or /workspace; the last one is a file
 * if `file` is set. */
static int binds_make_target(const char *path, bool file, struct err *err)
{
    char part[256];
    auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    for (const char *p = strchr(path + 1, '/'); root >= 0; p = strchr(p + 1, '/')) {
        size_t n = p ? (size_t)(p - path - 1) : strlen(path) - 1;

        memcpy(part, path + 1, n);
        part[n] = '\0';
        auto_fd int there = mount_call_open_beneath(root, part, O_PATH, 0);
        if (there >= 0) {
            if (!p)
                return 0;
            continue;
        }
        char *name = strrchr(part, '/');
        if (errno != ENOENT || !name)
            break;
        *name++ = '\0';
        auto_fd int parent = mount_call_open_beneath(root, part, O_PATH | O_DIRECTORY, 0);
        if (parent < 0)
            break;
        if (p || !file) {
            if (mkdirat(parent, name, 0755) < 0)
                break;
        } else {
            auto_fd int made = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

            if (made < 0)
                break;
        }
        if (!p)
            return 0;
    }
    return err_sys(err, ERR_BIND_TARGET, "%s", path);
}

int binds_attach_one(int fd, const char *dst, struct err *err)
{
    auto_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    auto_fd int to = mount_call_open_beneath(root, dst + 1, O_PATH, 0);

    if (to < 0 && errno == ENOENT)
        return err_set(
            err, ERR_BIND_TARGET,
            "%s: does not exist in the sandbox and cannot be created there; use a path below /mnt or /workspace", dst);
    if (to < 0)
        return err_sys(err, ERR_BIND_TARGET, "%s", dst);
    if (mount_call_move(fd, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return err_sys(err, errno == ENOTDIR || errno == EINVAL ? ERR_BIND_TARGET : ERR_WALL_MISSING, "mount %s", dst);
    return 0;
}

static int binds_add_mnt(struct err *err)
{
    const unsigned long flags = wall_is_mutated("nosuid") ? 0 : MS_NOSUID | MS_NODEV;

    if (mount("tmpfs", "/mnt", "tmpfs", flags, "size=65536,nr_inodes=256,mode=0755") < 0)
        return err_sys(err, ERR_WALL_MISSING, "mount /mnt");
    return 0;
}

int binds_attach(const struct lent_bind *binds, size_t n, struct err *err)
{
    struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };
    bool mnt = false;

    for (size_t i = 0; i < n; i++) {
        const char *dst = binds[i].dst;
        struct stat st;

        if (!mnt && str_starts(dst, "/mnt/")) {
            if (binds_add_mnt(err) < 0)
                return -1;
            mnt = true;
        }
        if (fstat(binds[i].fd, &st) < 0)
            return err_sys(err, ERR_BIND_SOURCE, "%s", dst);
        if ((str_starts(dst, "/mnt/") || str_starts(dst, "/workspace/")) &&
            binds_make_target(dst, !S_ISDIR(st.st_mode), err) < 0)
            return -1;
        if (binds_attach_one(binds[i].fd, dst, err) < 0)
            return -1;
    }
    if (mnt && mount_call_setattr(AT_FDCWD, "/mnt", 0, &ro) < 0)
        return err_sys(err, ERR_WALL_MISSING, "make /mnt read-only");
    return 0;
}
