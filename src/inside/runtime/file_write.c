/* The bytes are written to a new file with a temporary name in the same directory, which is renamed
 * into place after the last byte: a reader sees the old file or the new one, never a partial one,
 * and a file that an attacker planted at the name is never opened. A request that fails or is
 * cancelled removes its unfinished file. */
#include "inside/runtime/files.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#endif

struct file_write_job {
    int dir, fd;
    char leaf[PATH_NAME_SIZE], temp[PATH_NAME_SIZE]; /* temp is "" if there is no file to remove */
    mode_t mode;
    bool excl;
    uint64_t bytes;
};

static int file_write_rename(struct file_write_job *w)
{
    if (!w->excl)
        return renameat(w->dir, w->temp, w->dir, w->leaf);
    if (syscall(SYS_renameat2, w->dir, w->temp, w->dir, w->leaf, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL) /* EINVAL: the file system does not support the flag */
        return -1;
    if (linkat(w->dir, w->temp, w->dir, w->leaf, 0) < 0)
        return -1;
    unlinkat(w->dir, w->temp, 0);
    return 0;
}

static void file_write_on_data(struct runtime_stream *s, const struct frame *f)
{
    struct file_write_job *w = s->obj;
    struct err err;

    if (fd_write_all(w->fd, f->data, f->len) < 0)
        goto failed;
    w->bytes += f->len;
    runtime_stream_consumed(s, f->len);
    if (!(f->flags & RT_END))
        return;
    if (fchmod(w->fd, w->mode) < 0 || file_write_rename(w) < 0)
        goto failed;
    w->temp[0] = '\0';
    runtime_stream_done(s, &(struct rt_done){ .bytes = w->bytes, .files = 1 });
    return;

failed:
    path_fail(&err, "writing", w->leaf);
    runtime_stream_fail(s, &err);
}

static void file_write_release(struct runtime_stream *s)
{
    struct file_write_job *w = s->obj;

    if (w->temp[0])
        unlinkat(w->dir, w->temp, 0);
    fd_close(&w->fd);
    fd_close(&w->dir);
    free(w);
}

static const struct runtime_stream_ops file_write_ops = { .on_data = file_write_on_data,
                                                          .release = file_write_release };

static int file_write_check_target(const struct file_write_job *w, const char *path, struct err *err)
{
    struct stat st;

    if (fstatat(w->dir, w->leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : path_fail(err, "writing", path);
    if (w->excl)
        errno = EEXIST;
    else if (S_ISDIR(st.st_mode))
        errno = EISDIR;
    else
        return 0;
    return path_fail(err, "writing", path);
}

int file_write_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    struct file_write_job *w = mem_new(struct file_write_job);
    w->fd = -1;
    w->mode = m.mode ? m.mode & 0777u : 0644u;
    w->excl = m.flags & RT_PATH_EXCL;
    w->dir = path_parent(&rt->paths, m.path, m.flags & RT_PATH_PARENTS, w->leaf, err);
    s->obj = w;
    s->ops = &file_write_ops;
    if (w->dir < 0 || file_write_check_target(w, m.path, err) < 0)
        return -1;
    path_temp_name(w->temp);
    w->fd = openat(w->dir, w->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (w->fd < 0) {
        w->temp[0] = '\0';
        return path_fail(err, "writing", m.path);
    }
    return 0;
}
