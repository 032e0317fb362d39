/* A tree is removed depth-first with one open directory and, for each level above it, its device
 * and inode. Thus neither stack, descriptors nor path lengths limit the depth of a hostile tree.
 * Below DEPTH_LIFT, deeper directories are first moved to the top of the tree: Landlock checks
 * every parent directory on each access, so ten thousand levels would take half a minute. A
 * directory is first tried with rmdir; it is entered only if it is not empty. After ascending with
 * "..", the device and inode are compared with the recorded ones; a tree that was moved meanwhile
 * ends the request instead of redirecting it. After ascending, the directory is read from its
 * start: the entries before are already removed, so little is read twice.
 *
 * A directory that is only emptied is read again until a complete pass finds nothing.
 *
 * Directories without permission get it first; they belong to the sandbox's user and are about to
 * be removed. */
#include "inside/runtime/file_remove.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#define SLICE 100
#define DEPTH_MAX 1000000u
#define DEPTH_LIFT 64u

struct removal_level {
    dev_t dev;
    ino_t ino;
};

struct removal {
    int parent; /* directory that contains the tree */
    char leaf[PATH_NAME_SIZE];
    int top;                      /* the tree itself */
    DIR *dir;                     /* current directory; NULL before the first step */
    struct removal_level *levels; /* directories above `dir`, top of the tree first */
    size_t depth, cap;
    uint64_t removed;
    bool keep_top;                /* the top is emptied, not removed */
    uint64_t removed_before_pass; /* keep_top: value of `removed` when this pass started */
};

/* Changes the directory itself: a link that replaced it could lead to a file outside the
 * request. */
static int removal_grant_access(int at, const char *name)
{
    return fchmodat(at, name, 0700, AT_SYMLINK_NOFOLLOW);
}

static int removal_open_dir(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0 && errno == EACCES && removal_grant_access(at, name) == 0)
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd;
}

static int removal_enter_dir(struct removal *r, int fd)
{
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700)
        fchmod(fd, 0700);
    DIR *dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -1;
    }
    if (r->dir)
        closedir(r->dir);
    r->dir = dir;
    return 0;
}

static int removal_go_down(struct removal *r, const char *name)
{
    struct stat st;

    if (fstat(dirfd(r->dir), &st) < 0)
        return -1;
    int fd = removal_open_dir(dirfd(r->dir), name);
    if (fd < 0)
        return -1;
    if (r->depth == DEPTH_MAX) {
        close(fd);
        errno = ENAMETOOLONG;
        return -1;
    }
    if (r->depth == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 16;
        r->levels = mem_resize(r->levels, r->cap, sizeof(*r->levels));
    }
    r->levels[r->depth++] = (struct removal_level){ st.st_dev, st.st_ino };
    return removal_enter_dir(r, fd);
}

static int removal_go_up(struct removal *r)
{
    struct stat st;
    int fd = openat(dirfd(r->dir), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -1;
    const struct removal_level *l = &r->levels[--r->depth];
    if (fstat(fd, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino) {
        close(fd);
        errno = EBUSY;
        return -1;
    }
    return removal_enter_dir(r, fd);
}

/* 1: removed. 0: a directory that is not empty. -1: error, with errno. */
static int removal_remove_name(int at, const char *name, bool is_dir)
{
    if (!is_dir) {
        if (unlinkat(at, name, 0) == 0)
            return 1;
        if (errno != EISDIR)
            return -1;
    }
    if (unlinkat(at, name, AT_REMOVEDIR) == 0)
        return 1;
    return errno == ENOTEMPTY || errno == EEXIST ? 0 : -1;
}

/* Moves a directory to the top of the tree, where it is found again later. A kernel whose Landlock
 * does not support moves between directories refuses; the directory is then entered instead. */
static bool removal_lift_to_top(struct removal *r, const char *name)
{
    char temp[PATH_NAME_SIZE];

    if (r->depth < DEPTH_LIFT)
        return false;
    path_temp_name(temp);
    if (renameat(dirfd(r->dir), name, r->top, temp) == 0)
        return true;
    return errno == EACCES && removal_grant_access(dirfd(r->dir), name) == 0 &&
           renameat(dirfd(r->dir), name, r->top, temp) == 0;
}

/* Handles one entry of the current directory. 1: continue. 0: the tree is removed. -1: error, with
 * errno. */
static int removal_advance(struct removal *r)
{
    errno = 0;
    struct dirent *d = readdir(r->dir);

    if (!d && errno)
        return -1;
    if (d) {
        const char *n = d->d_name;

        if (n[0] == '.' && (n[1] == '\0' || (n[1] == '.' && n[2] == '\0')))
            return 1;
        int done = removal_remove_name(dirfd(r->dir), n, d->d_type == DT_DIR);
        if (done < 0 && errno != ENOENT)
            return -1;
        r->removed += done > 0;
        return done == 0 && !removal_lift_to_top(r, n) && removal_go_down(r, n) < 0 ? -1 : 1;
    }
    if (r->depth > 0)
        return removal_go_up(r) < 0 ? -1 : 1;
    if (r->keep_top && r->removed == r->removed_before_pass)
        return 0;
    if (r->keep_top) {
        r->removed_before_pass = r->removed;
        rewinddir(r->dir);
        return 1;
    }
    int done = removal_remove_name(r->parent, r->leaf, true);
    if (done < 0)
        return -1;
    if (done == 0) { /* a process keeps adding files */
        rewinddir(r->dir);
        return 1;
    }
    r->removed++;
    return 0;
}

static int removal_run_slice(struct removal *r)
{
    int more = 1;

    for (int i = 0; more > 0 && i < SLICE; i++)
        more = removal_advance(r);
    return more;
}

static bool file_remove_step(struct runtime_stream *s)
{
    struct removal *r = s->obj;
    int more = removal_run_slice(r);

    if (more < 0) {
        struct err err;

        path_fail(&err, "removing the contents of", r->leaf);
        runtime_stream_fail(s, &err);
    } else if (more == 0) {
        runtime_stream_done(s, &(struct rt_done){ .files = r->removed });
    }
    return more > 0;
}

void removal_free(struct removal *r)
{
    if (!r)
        return;
    if (r->dir)
        closedir(r->dir);
    fd_close(&r->top);
    fd_close(&r->parent);
    free(r->levels);
    free(r);
}

static void file_remove_release(struct runtime_stream *s)
{
    removal_free(s->obj);
}

struct removal *removal_of_contents(const char *dir)
{
    struct removal *r = mem_new(struct removal);

    r->parent = -1;
    r->keep_top = true;
    r->top = openat(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (r->top >= 0 && removal_enter_dir(r, fcntl(r->top, F_DUPFD_CLOEXEC, 0)) == 0)
        return r;
    removal_free(r);
    return NULL;
}

int removal_step(struct removal *r, uint64_t *removed)
{
    int more = removal_run_slice(r);

    *removed = r->removed;
    return more;
}

static const struct runtime_stream_ops file_remove_ops = { .step = file_remove_step, .release = file_remove_release };

static int file_remove_begin(struct removal *r, struct runtime_stream *s, const struct rt_path *m, struct err *err)
{
    int done = removal_remove_name(r->parent, r->leaf, false);

    if (done == 0 && m->flags & RT_PATH_RECURSIVE) {
        r->top = removal_open_dir(r->parent, r->leaf);
        if (r->top < 0 || removal_enter_dir(r, fcntl(r->top, F_DUPFD_CLOEXEC, 0)) < 0)
            return path_fail(err, "removing", m->path);
        runtime_stream_wake(s);
        return 0;
    }
    if (done <= 0 && !(errno == ENOENT && m->flags & RT_PATH_MISSING_OK))
        return path_fail(err, "removing", m->path);
    runtime_stream_done(s, &(struct rt_done){ .files = done > 0 ? 1 : 0 });
    return 0;
}

int file_remove_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    struct removal *r = mem_new(struct removal);
    r->top = -1;
    s->obj = r;
    s->ops = &file_remove_ops;
    r->parent = path_parent(&rt->paths, m.path, false, r->leaf, err);
    if (r->parent >= 0)
        return file_remove_begin(r, s, &m, err);
    if (err->id != ERR_MISSING || !(m.flags & RT_PATH_MISSING_OK))
        return -1;
    /* The parent directory does not exist, so the name does not exist either. */
    runtime_stream_done(s, &(struct rt_done){ 0 });
    return 0;
}
