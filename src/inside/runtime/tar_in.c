/* The parser has refused everything that an archive must not contain; here each entry is made below
 * the target directory by openat2, which follows no link. A link that the archive (or a concurrent
 * process) puts into the path therefore causes an error and cannot redirect the entry. An existing
 * file is unlinked, never opened: the target of a planted link stays untouched. If an archive fails
 * half way, the entries unpacked before remain; the error names the entry at which it stopped. */
#include "inside/runtime/archive.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "inside/runtime/tar.h"

#include <errno.h>
#include <fcntl.h>

struct tar_in_job {
    int top;
    struct tar_parser tar;
    int parent; /* directory of the last entry, because archives list directory by directory; -1: none */
    char parent_path[TAR_PATH_MAX];
    int fd; /* file being written, or -1 */
    char leaf[PATH_NAME_SIZE];
    mode_t mode;
    uint64_t mtime;
    uint64_t files;
};

static int tar_in_fail(struct err *err, const char *path)
{
    return path_fail(err, "unpacking", path);
}

/* Opens a directory below the top and makes missing ones. -1 with errno. */
static int tar_in_make_path(struct tar_in_job *u, const char *path)
{
    char part[TAR_PATH_MAX];
    int at = fcntl(u->top, F_DUPFD_CLOEXEC, 0);

    for (const char *p = path; at >= 0 && *p;) {
        size_t len = strcspn(p, "/");

        memcpy(part, p, len);
        part[len] = '\0';
        if (mkdirat(at, part, 0755) < 0 && errno != EEXIST) {
            close(at);
            return -1;
        }
        int next = path_beneath(at, part, O_PATH | O_DIRECTORY, false);
        close(at);
        at = next;
        p += len;
        p += *p == '/';
    }
    return at;
}

/* Opens the directory of an entry and copies its last component to u->leaf. The job owns the
 * descriptor. */
static int tar_in_open_parent(struct tar_in_job *u, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    const char *leaf = slash ? slash + 1 : path;

    memcpy(u->leaf, leaf, strlen(leaf) + 1); /* tar_clean_path limits the length of names */
    if (u->parent >= 0 && strlen(u->parent_path) == len && memcmp(u->parent_path, path, len) == 0)
        return u->parent;
    fd_close(&u->parent);
    memcpy(u->parent_path, path, len);
    u->parent_path[len] = '\0';
    u->parent = tar_in_make_path(u, u->parent_path);
    return u->parent;
}

static int tar_in_make_dir(struct tar_in_job *u, const struct tar_entry *e)
{
    struct stat st;

    if (e->path[0] == '\0')
        return 0; /* the top exists, and the archive must not change its mode */
    if (tar_in_open_parent(u, e->path) < 0)
        return -1;
    mode_t mode = e->mode | 0700; /* otherwise its entries could not be made */
    if (mkdirat(u->parent, u->leaf, mode) == 0)
        return path_set_mode(u->parent, u->leaf, mode);
    if (errno != EEXIST || fstatat(u->parent, u->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    errno = EEXIST;
    return S_ISDIR(st.st_mode) ? 0 : -1;
}

static int tar_in_make_file(struct tar_in_job *u, const struct tar_entry *e)
{
    if (unlinkat(u->parent, u->leaf, 0) < 0 && errno != ENOENT)
        return -1;
    u->fd = openat(u->parent, u->leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    u->mode = e->mode;
    u->mtime = e->mtime;
    return u->fd < 0 ? -1 : 0;
}

static int tar_in_make_symlink(struct tar_in_job *u, const struct tar_entry *e)
{
    if (unlinkat(u->parent, u->leaf, 0) < 0 && errno != ENOENT)
        return -1;
    return symlinkat(e->link, u->parent, u->leaf);
}

static int tar_in_make_hard_link(struct tar_in_job *u, const struct tar_entry *e)
{
    char dir[TAR_PATH_MAX];
    struct stat st;

    memcpy(dir, e->link, sizeof(dir));
    char *slash = strrchr(dir, '/');
    const char *leaf = slash ? slash + 1 : e->link;
    if (slash)
        *slash = '\0';
    auto_fd int from = path_beneath(u->top, slash ? dir : ".", O_PATH | O_DIRECTORY, false);
    if (from < 0 || fstatat(from, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = EPERM;
        return -1;
    }
    if (unlinkat(u->parent, u->leaf, 0) < 0 && errno != ENOENT)
        return -1;
    return linkat(from, leaf, u->parent, u->leaf, 0);
}

static int tar_in_on_entry(void *arg, const struct tar_entry *e, struct err *err)
{
    struct tar_in_job *u = arg;
    int r = -1;

    if (e->kind == 'd')
        r = tar_in_make_dir(u, e);
    else if (tar_in_open_parent(u, e->path) < 0)
        r = -1;
    else if (e->kind == 'f')
        r = tar_in_make_file(u, e);
    else if (e->kind == 'l')
        r = tar_in_make_symlink(u, e);
    else
        r = tar_in_make_hard_link(u, e);
    if (r < 0)
        return tar_in_fail(err, e->path);
    u->files++;
    return 0;
}

static int tar_in_on_bytes(void *arg, const void *data, size_t len, struct err *err)
{
    struct tar_in_job *u = arg;

    return fd_write_all(u->fd, data, len) < 0 ? tar_in_fail(err, u->leaf) : 0;
}

static int tar_in_on_entry_end(void *arg, struct err *err)
{
    struct tar_in_job *u = arg;
    struct timespec times[2] = { { .tv_nsec = UTIME_NOW }, { .tv_sec = (time_t)u->mtime } };

    if (fchmod(u->fd, u->mode) < 0)
        return tar_in_fail(err, u->leaf);
    futimens(u->fd, times); /* a time that the file system cannot store must not lose the file */
    fd_close(&u->fd);
    return 0;
}

static void tar_in_on_data(struct runtime_stream *s, const struct frame *f)
{
    struct tar_in_job *u = s->obj;
    struct err err;

    if (tar_parser_feed(&u->tar, f->data, f->len, &err) < 0 ||
        (f->flags & RT_END && tar_parser_finish(&u->tar, &err) < 0)) {
        runtime_stream_fail(s, &err);
        return;
    }
    runtime_stream_consumed(s, f->len);
    if (f->flags & RT_END)
        runtime_stream_done(s, &(struct rt_done){ .bytes = u->tar.bytes, .files = u->files });
}

static void tar_in_release(struct runtime_stream *s)
{
    struct tar_in_job *u = s->obj;

    if (u->fd >= 0)
        unlinkat(u->parent, u->leaf, 0); /* partial file */
    fd_close(&u->fd);
    fd_close(&u->parent);
    fd_close(&u->top);
    tar_parser_done(&u->tar);
    free(u);
}

static const struct runtime_stream_ops tar_in_ops = { .on_data = tar_in_on_data, .release = tar_in_release };
static const struct tar_ops tar_in_parser_ops = { tar_in_on_entry, tar_in_on_bytes, tar_in_on_entry_end };

int tar_in_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    int top = path_open(&rt->paths, m.path, O_PATH | O_DIRECTORY, err);
    if (top < 0)
        return -1;
    struct tar_in_job *u = mem_new(struct tar_in_job);
    u->top = top;
    u->parent = u->fd = -1;
    tar_parser_init(&u->tar, TAR_IN_BYTES_MAX, &tar_in_parser_ops, u);
    s->obj = u;
    s->ops = &tar_in_ops;
    return 0;
}
