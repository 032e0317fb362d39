/* MARK walks the tree and remembers it; CHANGES walks it again and compares. Both go in slices. Counts go on when the
 * list is full, so that the totals are true and the flag says that the list is not all. */
#include "runtime/mark.h"

#include "base/fd.h"
#include "base/mem.h"
#include "runtime/scan.h"

#include <fcntl.h>

#define SLICE 100
#define WORKSPACE "/workspace"
#define CHANGE_MAX (RT_PATH_MAX + 64u)

struct looking {
    struct scan scan;
    struct scan_item item;
    struct mark *mark; /* MARK: being made, ours. CHANGES: the runtime's */
    bool scanned;      /* CHANGES: the tree was walked, deletions follow */
    size_t deleted_at;
    uint64_t left; /* changes that may still be listed */
    struct rt_done done;
};

static void describe(const struct stat *st, struct mark_file *f)
{
    f->kind = path_kind(st->st_mode);
    f->ino = st->st_ino;
    f->ctime_ns = (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
    f->size = f->kind == 'd' ? 0 : (uint64_t)st->st_size;
}

static int look_open(struct runtime *rt, const struct frame *f, struct rt_path *m, int *ret, struct err *err)
{
    if (rt_path_decode(f, m, err) < 0)
        return -1;
    *ret = path_open(&rt->paths, m->path[0] ? m->path : WORKSPACE, O_RDONLY | O_DIRECTORY, err);
    return *ret < 0 ? -1 : 0;
}

static bool mark_step(struct stream *s)
{
    struct looking *l = s->obj;
    struct runtime *rt = runtime_of(s);
    struct mark_file f;

    for (int i = 0; i < SLICE; i++) {
        bool more = scan_next(&l->scan, &l->item);

        if (more) {
            describe(&l->item.st, &f);
            more = mark_add(l->mark, l->item.path, &f);
        }
        if (!more) {
            mark_free(rt->mark);
            rt->mark = take_ptr(&l->mark);
            stream_done(s, &(struct rt_done){ .files = mark_count(rt->mark),
                                              .truncated = mark_truncated(rt->mark) || l->scan.skipped > 0 });
            return false;
        }
    }
    return true;
}

static void mark_release(struct stream *s)
{
    struct looking *l = s->obj;

    scan_done(&l->scan);
    mark_free(l->mark);
    free(l);
    runtime_of(s)->looking = false;
}

static const struct stream_ops mark_ops = { .step = mark_step, .release = mark_release };

static struct looking *look_new(struct runtime *rt, struct stream *s, const struct stream_ops *ops, int fd)
{
    struct looking *l = mem_new(struct looking);

    scan_init(&l->scan, fd);
    rt->looking = true;
    s->obj = l;
    s->ops = ops;
    stream_wake(s);
    return l;
}

static int look_busy(const struct runtime *rt, struct err *err)
{
    return rt->looking ? err_set(err, ERR_BUSY, "another MARK or CHANGES is under way") : 0;
}

int mark_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    int fd;

    if (look_busy(rt, err) < 0 || look_open(rt, f, &m, &fd, err) < 0)
        return -1;
    look_new(rt, s, &mark_ops, fd)->mark = mark_new();
    return 0;
}

static void report(struct looking *l, struct pack *p, char kind, const char *path, const struct mark_file *f)
{
    static struct rt_change c;

    if (kind == RT_ADDED)
        l->done.added++;
    else if (kind == RT_MODIFIED)
        l->done.modified++;
    else
        l->done.deleted++;
    if (l->left == 0) {
        l->done.truncated = 1;
        return;
    }
    l->left--;
    c.kind = kind;
    c.file = f->kind;
    c.size = f->size;
    memcpy(c.path, path, strlen(path) + 1);
    rt_change_pack(p, &c);
}

/* One entry compared, or one deletion found. False at the end. */
static bool compare_one(struct looking *l, struct pack *p)
{
    struct mark_file f;

    if (!l->scanned) {
        if (scan_next(&l->scan, &l->item)) {
            describe(&l->item.st, &f);
            char kind = mark_compare(l->mark, l->item.path, &f);

            if (kind)
                report(l, p, kind, l->item.path, &f);
            return true;
        }
        l->scanned = true;
    }
    const char *gone = mark_deleted(l->mark, &l->deleted_at, &f);
    if (gone)
        report(l, p, RT_DELETED, gone, &f);
    return gone;
}

static bool changes_step(struct stream *s)
{
    struct looking *l = s->obj;
    size_t room = stream_room(s);
    bool more = true;
    struct pack p;

    if (room < FRAME_PAYLOAD_MAX)
        return false;
    pack_init(&p, stream_scratch(), room);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= CHANGE_MAX; i++)
        more = compare_one(l, &p);
    if (p.len > 0)
        stream_send_unit(s, stream_scratch(), p.len);
    if (more)
        return true;
    if (mark_truncated(l->mark) || l->scan.skipped > 0)
        l->done.truncated = 1;
    stream_end(s, 0);
    stream_done(s, &l->done);
    return false;
}

static void changes_release(struct stream *s)
{
    struct looking *l = s->obj;

    l->mark = NULL; /* the runtime's */
    mark_release(s);
}

static const struct stream_ops changes_ops = { .step = changes_step, .release = changes_release };

int changes_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    int fd;

    if (look_busy(rt, err) < 0)
        return -1;
    if (!rt->mark)
        return err_set(err, ERR_INVALID, "CHANGES without a MARK to compare with");
    if (look_open(rt, f, &m, &fd, err) < 0)
        return -1;
    struct looking *l = look_new(rt, s, &changes_ops, fd);
    l->mark = rt->mark;
    l->left = m.length ? m.length : UINT64_MAX;
    mark_begin(rt->mark);
    return 0;
}
