/* The scan returns entries; each step packs as many entries and bytes of their content as fit into
 * one frame. The size in a header is fixed: a file that shrinks meanwhile is padded with zeros, and
 * a file that grows is cut. */
#include "inside/runtime/archive.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "inside/runtime/tree_scan.h"
#include "inside/runtime/tar.h"

#include <errno.h>
#include <fcntl.h>

#define SLICE 100

struct tar_out_job {
    struct tree_scan scan;
    struct tree_scan_item item;
    struct tar_entry entry;
    bool one_file;         /* the path names a file: no scan */
    int fd;                /* file whose content is being sent, or -1 */
    uint64_t content_left; /* content bytes still to send */
    size_t padding;
    bool scan_finished; /* only the end marker is missing */
    struct rt_done done;
};

static size_t tar_out_fill_content(struct tar_out_job *p, uint8_t *out, size_t room)
{
    size_t want = (size_t)min_u64(room, p->content_left);
    ssize_t n = want ? read(p->fd, out, want) : 0;

    if (want > 0 && n <= 0) { /* it shrank or became unreadable: pad to the size in its header */
        memset(out, 0, want);
        n = (ssize_t)want;
    }
    p->content_left -= (uint64_t)n;
    if (p->content_left > 0)
        return (size_t)n;
    fd_close(&p->fd);
    return (size_t)n;
}

static bool tar_out_describe(struct tar_out_job *p, const struct stat *st, int dirfd, const char *name)
{
    struct tar_entry *e = &p->entry;
    char kind = path_kind(st->st_mode);

    e->kind = kind;
    e->mode = st->st_mode & 0777u;
    e->mtime = st->st_mtim.tv_sec > 0 ? (uint64_t)st->st_mtim.tv_sec : 0;
    e->size = kind == 'f' ? (uint64_t)st->st_size : 0;
    e->link[0] = '\0';
    if (kind == 'l') {
        ssize_t n = readlinkat(dirfd, name, e->link, sizeof(e->link) - 1);

        e->link[n > 0 ? n : 0] = '\0';
        return n > 0;
    }
    return kind == 'f' || kind == 'd';
}

/* Writes the header of the next entry; a file's content follows. Returns 0 if it is skipped. */
static size_t tar_out_next_entry(struct tar_out_job *p, uint8_t *out)
{
    struct tree_scan_item *it = &p->item;
    struct stat st;

    memcpy(p->entry.path, it->path, sizeof(p->entry.path));
    if (S_ISREG(it->st.st_mode)) {
        p->fd = openat(it->dirfd, it->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (p->fd < 0 || fstat(p->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
            fd_close(&p->fd);
            p->done.skipped++;
            return 0;
        }
        it->st = st;
    }
    if (!tar_out_describe(p, &it->st, it->dirfd, it->name)) {
        p->done.skipped++;
        return 0;
    }
    p->content_left = p->entry.size;
    p->padding = (size_t)((TAR_BLOCK - p->content_left % TAR_BLOCK) % TAR_BLOCK);
    if (p->content_left == 0)
        fd_close(&p->fd);
    p->done.files++;
    p->done.bytes += p->entry.size;
    return tar_write_headers(out, &p->entry);
}

static bool tar_out_advance(struct tar_out_job *p)
{
    if (p->one_file || !tree_scan_next(&p->scan, &p->item)) {
        p->scan_finished = true;
        return false;
    }
    return true;
}

/* Appends one piece to out. False if the frame has no space for the next one. */
static bool tar_out_pack_piece(struct tar_out_job *p, uint8_t *out, size_t *len, size_t room)
{
    if (p->fd >= 0) {
        *len += tar_out_fill_content(p, out + *len, room - *len);
    } else if (p->padding > 0) {
        size_t n = min_size(p->padding, room - *len);

        memset(out + *len, 0, n);
        *len += n;
        p->padding -= n;
    } else if (room - *len < TAR_HEADERS_MAX) {
        return false;
    } else if (tar_out_advance(p)) {
        *len += tar_out_next_entry(p, out + *len);
    } else {
        memset(out + *len, 0, 2 * TAR_BLOCK);
        *len += 2 * TAR_BLOCK;
    }
    return *len < room;
}

static bool tar_out_step(struct runtime_stream *s)
{
    struct tar_out_job *p = s->obj;
    size_t room = runtime_stream_room(s), len = 0;
    bool more = true;

    if (room < TAR_HEADERS_MAX)
        return false;
    for (int i = 0; more && !p->scan_finished && i < SLICE; i++)
        more = tar_out_pack_piece(p, runtime_scratch_buffer(), &len, room);
    if (len > 0)
        runtime_stream_send_data(s, 0, runtime_scratch_buffer(), len);
    if (!p->scan_finished)
        return true;
    p->done.skipped += p->scan.skipped;
    runtime_stream_end_channel(s, 0);
    runtime_stream_done(s, &p->done);
    return false;
}

static void tar_out_release(struct runtime_stream *s)
{
    struct tar_out_job *p = s->obj;

    fd_close(&p->fd);
    tree_scan_done(&p->scan);
    free(p);
}

static const struct runtime_stream_ops tar_out_ops = { .step = tar_out_step, .release = tar_out_release };

/* A single file: its header is sent first, then there is nothing to scan. */
static int tar_out_open_file(struct runtime *rt, struct runtime_stream *s, struct tar_out_job *p,
                             const struct rt_path *m, struct err *err)
{
    auto_fd int dir = path_parent(&rt->paths, m->path, false, p->item.path, err);

    if (dir < 0)
        return -1;
    p->item.name = p->item.path;
    p->item.dirfd = dir;
    p->one_file = true;
    if (fstatat(dir, p->item.name, &p->item.st, AT_SYMLINK_NOFOLLOW) < 0)
        return path_fail(err, "archiving", m->path);
    size_t n = tar_out_next_entry(p, runtime_scratch_buffer());
    if (n == 0)
        return err_set(err, ERR_WRONG_KIND, "%.160s is not a file, directory or link", m->path);
    runtime_stream_send_data(s, 0, runtime_scratch_buffer(), n);
    return 0;
}

int tar_out_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    struct tar_out_job *p = mem_new(struct tar_out_job);
    p->fd = p->scan.root = -1;
    s->obj = p;
    s->ops = &tar_out_ops;
    int fd = path_open(&rt->paths, m.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, err);
    if (fd >= 0)
        tree_scan_init(&p->scan, fd);
    else if ((err->sys != ENOTDIR && err->sys != ELOOP) || tar_out_open_file(rt, s, p, &m, err) < 0)
        return -1;
    runtime_stream_wake(s);
    return 0;
}
