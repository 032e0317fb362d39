/* SNAPSHOT scans the tree and records it; CHANGES scans it again and compares. Both run in slices.
 * When the list of changes is full, counting continues, so that the totals are correct and the flag
 * shows that the list is incomplete. */
#include "inside/runtime/snapshot.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "inside/runtime/tree_scan.h"

#include <fcntl.h>

#define SLICE 100
#define WORKSPACE "/workspace"
#define CHANGE_MAX (RT_PATH_MAX + 64u)

struct snapshot_request {
    struct tree_scan scan;
    struct tree_scan_item item;
    struct snapshot *snapshot; /* SNAPSHOT: being made, owned. CHANGES: the runtime's */
    bool scanned;              /* CHANGES: the scan is complete, deletions follow */
    size_t deleted_at;
    uint64_t entries_left; /* changes that may still be listed */
    struct rt_done done;
};

static void snapshot_describe_file(const struct stat *st, struct snapshot_file *f)
{
    f->kind = path_kind(st->st_mode);
    f->ino = st->st_ino;
    f->ctime_ns = (uint64_t)st->st_ctim.tv_sec * NS_PER_S + (uint64_t)st->st_ctim.tv_nsec;
    f->size = f->kind == 'd' ? 0 : (uint64_t)st->st_size;
}

static int snapshot_open_root(struct runtime *rt, const struct frame *f, struct rt_path *m, int *ret, struct err *err)
{
    if (rt_path_decode(f, m, err) < 0)
        return -1;
    *ret = path_open(&rt->paths, m->path[0] ? m->path : WORKSPACE, O_RDONLY | O_DIRECTORY, err);
    return *ret < 0 ? -1 : 0;
}

static bool snapshot_step(struct runtime_stream *s)
{
    struct snapshot_request *l = s->obj;
    struct runtime *rt = runtime_of_stream(s);
    struct snapshot_file f;

    for (int i = 0; i < SLICE; i++) {
        bool more = tree_scan_next(&l->scan, &l->item);

        if (more) {
            snapshot_describe_file(&l->item.st, &f);
            more = snapshot_add(l->snapshot, l->item.path, &f);
        }
        if (!more) {
            snapshot_free(rt->snapshot);
            rt->snapshot = take_ptr(&l->snapshot);
            runtime_stream_done(
                s, &(struct rt_done){ .files = snapshot_count(rt->snapshot),
                                      .truncated = snapshot_truncated(rt->snapshot) || l->scan.skipped > 0 });
            return false;
        }
    }
    return true;
}

static void snapshot_release(struct runtime_stream *s)
{
    struct snapshot_request *l = s->obj;

    tree_scan_done(&l->scan);
    snapshot_free(l->snapshot);
    free(l);
    runtime_of_stream(s)->snapshot_busy = false;
}

static const struct runtime_stream_ops snapshot_stream_ops = { .step = snapshot_step, .release = snapshot_release };

static struct snapshot_request *snapshot_request_new(struct runtime *rt, struct runtime_stream *s,
                                                     const struct runtime_stream_ops *ops, int fd)
{
    struct snapshot_request *l = mem_new(struct snapshot_request);

    tree_scan_init(&l->scan, fd);
    rt->snapshot_busy = true;
    s->obj = l;
    s->ops = ops;
    runtime_stream_wake(s);
    return l;
}

static int snapshot_check_busy(const struct runtime *rt, struct err *err)
{
    return rt->snapshot_busy ? err_set(err, ERR_BUSY, "another SNAPSHOT or CHANGES is in progress; try again later")
                             : 0;
}

int snapshot_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    int fd;

    if (snapshot_check_busy(rt, err) < 0 || snapshot_open_root(rt, f, &m, &fd, err) < 0)
        return -1;
    snapshot_request_new(rt, s, &snapshot_stream_ops, fd)->snapshot = snapshot_new();
    return 0;
}

static void changes_report(struct snapshot_request *l, struct pack *p, char kind, const char *path,
                           const struct snapshot_file *f)
{
    static struct rt_change c;

    if (kind == RT_ADDED)
        l->done.added++;
    else if (kind == RT_MODIFIED)
        l->done.modified++;
    else
        l->done.deleted++;
    if (l->entries_left == 0) {
        l->done.truncated = 1;
        return;
    }
    l->entries_left--;
    c.kind = kind;
    c.file = f->kind;
    c.size = f->size;
    memcpy(c.path, path, strlen(path) + 1);
    rt_change_pack(p, &c);
}

/* Compares one entry, or finds one deletion. False at the end. */
static bool changes_compare_one(struct snapshot_request *l, struct pack *p)
{
    struct snapshot_file f;

    if (!l->scanned) {
        if (tree_scan_next(&l->scan, &l->item)) {
            snapshot_describe_file(&l->item.st, &f);
            char kind = snapshot_compare(l->snapshot, l->item.path, &f);

            if (kind)
                changes_report(l, p, kind, l->item.path, &f);
            return true;
        }
        l->scanned = true;
    }
    const char *gone = snapshot_next_deleted(l->snapshot, &l->deleted_at, &f);
    if (gone)
        changes_report(l, p, RT_DELETED, gone, &f);
    return gone;
}

static bool changes_step(struct runtime_stream *s)
{
    struct snapshot_request *l = s->obj;
    size_t room = runtime_stream_room(s);
    bool more = true;
    struct pack p;

    if (room < FRAME_PAYLOAD_MAX)
        return false;
    pack_init(&p, runtime_scratch_buffer(), room);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= CHANGE_MAX; i++)
        more = changes_compare_one(l, &p);
    if (p.len > 0)
        runtime_stream_send_unit(s, runtime_scratch_buffer(), p.len);
    if (more)
        return true;
    if (snapshot_truncated(l->snapshot) || l->scan.skipped > 0)
        l->done.truncated = 1;
    runtime_stream_end_channel(s, 0);
    runtime_stream_done(s, &l->done);
    return false;
}

static void changes_release(struct runtime_stream *s)
{
    struct snapshot_request *l = s->obj;

    l->snapshot = NULL; /* the runtime owns it */
    snapshot_release(s);
}

static const struct runtime_stream_ops changes_stream_ops = { .step = changes_step, .release = changes_release };

int changes_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    int fd;

    if (snapshot_check_busy(rt, err) < 0)
        return -1;
    if (!rt->snapshot)
        return err_set(err, ERR_INVALID, "CHANGES needs an earlier SNAPSHOT");
    if (snapshot_open_root(rt, f, &m, &fd, err) < 0)
        return -1;
    struct snapshot_request *l = snapshot_request_new(rt, s, &changes_stream_ops, fd);
    l->snapshot = rt->snapshot;
    l->entries_left = m.length ? m.length : UINT64_MAX;
    snapshot_begin_compare(rt->snapshot);
    return 0;
}
