/* Entries are packed into frames as they are read from the directory, so memory use does not depend
 * on their number. Names are bytes and are sent unchanged. */
#include "inside/runtime/files.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#define SLICE 100
/* There must be space for the largest entry before one is read, because an entry cannot be put
 * back. */
#define ENTRY_MAX (2u * RT_PATH_MAX + 64u)

struct dir_listing {
    DIR *dir;
    uint64_t entries_left; /* entries that may still be sent */
    uint64_t entries_sent;
};

static bool dir_list_is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static void dir_list_finish(struct runtime_stream *s, const struct dir_listing *l, bool truncated)
{
    runtime_stream_end_channel(s, 0);
    runtime_stream_done(s, &(struct rt_done){ .files = l->entries_sent, .truncated = truncated });
}

/* Packs the next entry. False at the end, or when the limit is reached. */
static bool dir_list_pack_next(struct dir_listing *l, struct pack *p, bool *truncated)
{
    static struct rt_entry e;
    struct dirent *d;
    struct stat st;

    do {
        d = readdir(l->dir);
        if (!d)
            return false;
    } while (dir_list_is_dots(d->d_name) || fstatat(dirfd(l->dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0);
    if (l->entries_left == 0) {
        *truncated = true;
        return false;
    }
    file_entry_fill(&e, &st, dirfd(l->dir), d->d_name);
    memcpy(e.name, d->d_name, strlen(d->d_name) + 1);
    rt_entry_pack(p, &e);
    l->entries_left--;
    l->entries_sent++;
    return true;
}

static bool dir_list_step(struct runtime_stream *s)
{
    struct dir_listing *l = s->obj;
    size_t room = runtime_stream_room(s);
    bool more = true, truncated = false;
    struct pack p;

    if (room < FRAME_PAYLOAD_MAX) /* needs space for a whole frame: a unit is never split */
        return false;
    pack_init(&p, runtime_scratch_buffer(), room);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= ENTRY_MAX; i++)
        more = dir_list_pack_next(l, &p, &truncated);
    if (p.len > 0)
        runtime_stream_send_unit(s, runtime_scratch_buffer(), p.len);
    if (!more)
        dir_list_finish(s, l, truncated);
    return more;
}

static void dir_list_release(struct runtime_stream *s)
{
    struct dir_listing *l = s->obj;

    if (l->dir)
        closedir(l->dir);
    free(l);
}

static const struct runtime_stream_ops dir_list_ops = { .step = dir_list_step, .release = dir_list_release };

int dir_list_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    auto_fd int fd = path_open(&rt->paths, m.path, O_RDONLY | O_DIRECTORY, err);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fd);
    if (!dir)
        return path_fail(err, "listing", m.path);
    take_fd(&fd);
    struct dir_listing *l = mem_new(struct dir_listing);
    *l = (struct dir_listing){ .dir = dir, .entries_left = m.length ? m.length : UINT64_MAX };
    s->obj = l;
    s->ops = &dir_list_ops;
    runtime_stream_wake(s);
    return 0;
}
