/* Entries are packed into frames as they come from the directory, so ten entries and a million cost the same memory.
 * Names are bytes: whatever a process put into them arrives unchanged. */
#include "runtime/files.h"

#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#define SLICE 100
/* Room for the largest entry must be left before one is read, since a directory cannot be put back. */
#define ENTRY_MAX (2u * RT_PATH_MAX + 64u)

struct listing {
    DIR *dir;
    uint64_t left; /* entries that may still be sent */
    uint64_t sent;
};

static bool is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static void finish(struct stream *s, const struct listing *l, bool truncated)
{
    stream_end(s, 0);
    stream_done(s, &(struct rt_done){ .files = l->sent, .truncated = truncated });
}

/* Packs the next entry; false at the end, or when the limit is passed. */
static bool next(struct listing *l, struct pack *p, bool *truncated)
{
    static struct rt_entry e;
    struct dirent *d;
    struct stat st;

    do {
        d = readdir(l->dir);
        if (!d)
            return false;
    } while (is_dots(d->d_name) || fstatat(dirfd(l->dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0);
    if (l->left == 0) {
        *truncated = true;
        return false;
    }
    entry_fill(&e, &st, dirfd(l->dir), d->d_name);
    memcpy(e.name, d->d_name, strlen(d->d_name) + 1);
    rt_entry_pack(p, &e);
    l->left--;
    l->sent++;
    return true;
}

static bool list_step(struct stream *s)
{
    struct listing *l = s->obj;
    size_t room = stream_room(s);
    bool more = true, truncated = false;
    struct pack p;

    if (room < FRAME_PAYLOAD_MAX) /* whole frames only: a unit is never split */
        return false;
    pack_init(&p, stream_scratch(), room);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= ENTRY_MAX; i++)
        more = next(l, &p, &truncated);
    if (p.len > 0)
        stream_send_unit(s, stream_scratch(), p.len);
    if (!more)
        finish(s, l, truncated);
    return more;
}

static void list_release(struct stream *s)
{
    struct listing *l = s->obj;

    if (l->dir)
        closedir(l->dir);
    free(l);
}

static const struct stream_ops list_ops = { .step = list_step, .release = list_release };

int list_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
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
    struct listing *l = mem_new(struct listing);
    *l = (struct listing){ .dir = dir, .left = m.length ? m.length : UINT64_MAX };
    s->obj = l;
    s->ops = &list_ops;
    stream_wake(s);
    return 0;
}
