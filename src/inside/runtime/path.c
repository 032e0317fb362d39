/* Paths are resolved by openat2 with RESOLVE_IN_ROOT and RESOLVE_NO_MAGICLINKS in one lookup, so a
 * hostile process cannot swap a directory for a link in between. Operations on a name (unlink,
 * rename, mkdir) use the last component below a directory opened that way, and those calls never
 * follow it. */
#include "inside/runtime/path.h"

#include "core/base/fd.h"
#include "core/wire/rt.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/syscall.h>

#define TRIES 32 /* a lookup that races with a rename fails with EAGAIN */

int paths_init(struct paths *p, struct err *err)
{
    p->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return p->root < 0 ? err_sys(err, ERR_SYS, "opening /") : 0;
}

void paths_done(struct paths *p)
{
    fd_close(&p->root);
}

static enum err_id path_error_id(int sys)
{
    switch (sys) {
    case ENOENT:
        return ERR_MISSING;
    case EEXIST:
    case ENOTEMPTY:
    case EXDEV:
        return ERR_EXISTS;
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
    case ENXIO:
    case ENODEV:
        return ERR_WRONG_KIND;
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY:
        return ERR_DENIED;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EMLINK:
        return ERR_LIMIT;
    case EBUSY:
    case EAGAIN:
        return ERR_BUSY;
    case EINVAL:
    case ENAMETOOLONG:
        return ERR_INVALID;
    default:
        return ERR_SYS;
    }
}

int path_fail(struct err *err, const char *what, const char *path)
{
    return err_sys(err, path_error_id(errno), "%s %.120s", what, path);
}

int path_check(const char *path, struct err *err)
{
    if (path[0] != '/')
        return err_set(err, ERR_INVALID, "path '%.120s' is not absolute", path);
    if (strlen(path) >= RT_PATH_MAX)
        return err_set(err, ERR_INVALID, "path is longer than %d bytes", RT_PATH_MAX - 1);
    return 0;
}

static int path_resolve(int dirfd, const char *path, int flags, uint64_t how)
{
    struct open_how oh = {
        .flags = (unsigned)(flags | O_CLOEXEC),
        .resolve = how | RESOLVE_NO_MAGICLINKS,
    };
    long fd = -1;

    for (int i = 0; i < TRIES; i++) {
        fd = syscall(SYS_openat2, dirfd, path, &oh, sizeof(oh));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return (int)fd;
}

int path_open(const struct paths *p, const char *path, int flags, struct err *err)
{
    if (path_check(path, err) < 0)
        return -1;
    int fd = path_resolve(p->root, path, flags, RESOLVE_IN_ROOT);
    return fd < 0 ? path_fail(err, "opening", path) : fd;
}

int path_beneath(int dirfd, const char *path, int flags, bool one_mount)
{
    return path_resolve(dirfd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | (one_mount ? RESOLVE_NO_XDEV : 0));
}

int path_set_mode(int dirfd, const char *name, mode_t mode)
{
    auto_fd int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? -1 : fchmod(fd, mode);
}

/* Splits "/a/b//c/" into "/a/b" and "c", in place. */
static int path_split(char *path, const char *asked, char leaf[PATH_NAME_SIZE], struct err *err)
{
    size_t len = strlen(path);

    while (len > 1 && path[len - 1] == '/')
        path[--len] = '\0';
    char *slash = strrchr(path, '/');
    const char *name = slash + 1;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return err_set(err, ERR_WRONG_KIND, "path '%.120s' does not name a directory entry", asked);
    if (strlen(name) >= PATH_NAME_SIZE)
        return err_set(err, ERR_INVALID, "the last component of '%.120s' is longer than 255 bytes", asked);
    memcpy(leaf, name, strlen(name) + 1);
    slash[slash == path ? 1 : 0] = '\0';
    return 0;
}

/* Makes each missing directory of `dir`, from the top. An existing prefix may contain links; a new
 * directory cannot. */
static int path_make_dirs(const struct paths *p, char *dir)
{
    for (char *end = dir + 1;; end++) {
        if (*end != '/' && *end != '\0')
            continue;
        char saved = *end, *name = end;
        *end = '\0';
        while (name > dir && name[-1] != '/')
            name--;
        auto_fd int fd = path_resolve(p->root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
        if (fd < 0 && errno == ENOENT) {
            char first = *name;

            *name = '\0';
            auto_fd int parent = path_resolve(p->root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
            *name = first;
            if (parent < 0 || (mkdirat(parent, name, 0755) < 0 && errno != EEXIST))
                return -1;
        } else if (fd < 0) {
            return -1;
        }
        *end = saved;
        if (saved == '\0')
            return 0;
    }
}

int path_parent(const struct paths *p, const char *path, bool make, char leaf[PATH_NAME_SIZE], struct err *err)
{
    char dir[RT_PATH_MAX];

    if (path_check(path, err) < 0)
        return -1;
    memcpy(dir, path, strlen(path) + 1);
    if (path_split(dir, path, leaf, err) < 0)
        return -1;
    int fd = path_resolve(p->root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
    if (fd < 0 && errno == ENOENT && make) {
        if (path_make_dirs(p, dir) < 0)
            return path_fail(err, "making the directories of", path);
        fd = path_resolve(p->root, dir, O_PATH | O_DIRECTORY, RESOLVE_IN_ROOT);
    }
    return fd < 0 ? path_fail(err, "opening the directory of", path) : fd;
}

char path_kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 'f';
    case S_IFDIR:
        return 'd';
    case S_IFLNK:
        return 'l';
    case S_IFIFO:
        return 'p';
    case S_IFSOCK:
        return 's';
    case S_IFCHR:
        return 'c';
    default:
        return 'b';
    }
}

void path_temp_name(char out[PATH_NAME_SIZE])
{
    uint64_t r[2] = { 0 };

    if (getrandom(r, sizeof(r), 0) != sizeof(r))
        r[0] = (uint64_t)(uintptr_t)out; /* O_EXCL refuses a used name; randomness only avoids a second try */
    snprintf(out, PATH_NAME_SIZE, ".cove-%016" PRIx64 "%016" PRIx64, r[0], r[1]);
}
