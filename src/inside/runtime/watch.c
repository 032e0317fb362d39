/* Turns inotify into events that a client can use: paths instead of descriptors, a move as one
 * event, and new directories watched before their contents are reported.
 *
 * A watch descriptor belongs to a directory, not to its path. It is made by entering the directory
 * and watching ".", which neither a link nor a concurrent rename can redirect; /proc is not needed.
 * No directory is kept open: the kernel reports the removal of a directory only when no process
 * holds it.
 *
 * The kernel's queue is the only queue. While the host takes nothing, nothing is read, and events
 * that do not fit into the queue are reported as one OVERFLOW. OVERFLOW is sent after the tree was
 * scanned again, so a client that lists the tree after it misses no later event.
 *
 * Invariants
 * 1. A directory is watched before it is read. An entry made in between may be seen twice;
 *    `reported` holds the names found by reading, so that each is reported once: a CREATE event of
 *    such a name must be a duplicate.
 * 2. While directories are still to be read, no event is processed: events refer to a known tree.
 * 3. Events arrive late, so a directory they refer to, or one above it, may have moved. It is
 *    recorded as missed until the move is reported, and is then looked up in the new place.
 * 4. Events are reported in the order of the kernel. The second half of a move follows the first
 *    half directly or never; a first half without it therefore delays all events by PATIENCE_NS at
 *    most, and then counts as a removal. */
#include "inside/runtime/watch.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "inside/runtime/reported_names.h"
#include "inside/runtime/watch_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>

#define SLICE 200
#define PATIENCE_NS (50 * NS_PER_MS)
#define ITEM_MAX (2u * RT_PATH_MAX + 64u)
#define RAW_MAX (sizeof(struct inotify_event) + PATH_NAME_SIZE)
#define WATCH_EVENT_MASK (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define WATCH_SELF_GONE_MASK (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)

struct watch_request {
    struct runtime *rt;
    struct runtime_stream *stream;
    int fd;
    struct ev_io io;
    char root[RT_PATH_MAX];
    char leaf[PATH_NAME_SIZE]; /* the only name that is reported; "": all */
    dev_t dev;                 /* device and inode of the root */
    ino_t ino;
    bool recursive;
    bool watching_reported; /* WATCHING was sent */
    bool overflow_pending;  /* send OVERFLOW when all directories are read */
    bool root_gone;         /* the root was removed or moved */
    struct err err;         /* if its id is set, the watch fails */
    uint32_t scan_round;
    struct watch_tree tree;
    DIR *dir; /* being read */
    struct watch_node *read_node;
    struct reported_names reported; /* cleared when no events are pending */

    size_t at, len;              /* unprocessed events in raw */
    size_t complete_until;       /* up to this offset a first half stays alone */
    size_t complete_until_timer; /* becomes complete_until when the timer fires */
    struct ev_timer move_timer;
    _Alignas(struct inotify_event) char raw[16 * 1024];
};

/* --- reporting --- */

static void watch_pack_event(struct watch_request *w, struct pack *p, const struct rt_event *e)
{
    rt_event_pack(p, e);
    if (p->bad) { /* the wire format cannot carry this name */
        p->bad = false;
        w->overflow_pending = true;
    }
}

static void watch_report(struct watch_request *w, struct pack *p, char kind, bool dir, const struct watch_node *n,
                         const char *name)
{
    static struct rt_event e;

    e.kind = kind;
    e.dir = dir;
    e.from[0] = '\0';
    if (watch_tree_path(n, name, e.path, sizeof(e.path)))
        watch_pack_event(w, p, &e);
    else
        w->overflow_pending = true;
}

static void watch_report_move(struct watch_request *w, struct pack *p, bool dir, const struct watch_node *from,
                              const char *from_name, const struct watch_node *to, const char *to_name)
{
    static struct rt_event e;

    e.kind = RT_MOVED;
    e.dir = dir;
    if (watch_tree_path(from, from_name, e.from, sizeof(e.from)) &&
        watch_tree_path(to, to_name, e.path, sizeof(e.path)))
        watch_pack_event(w, p, &e);
    else
        w->overflow_pending = true;
}

/* --- directories --- */

static void watch_remove_descriptor(void *arg, int wd)
{
    struct watch_request *w = arg;

    inotify_rm_watch(w->fd, wd); /* fails harmlessly for a removed directory */
}

static void watch_drop_dir(struct watch_request *w, struct watch_node *n)
{
    watch_tree_drop(&w->tree, n, watch_remove_descriptor, w);
}

/* Our view of the tree is not reliable any more: scans all of it. */
static void watch_rescan(struct watch_request *w)
{
    reported_names_clear(&w->reported);
    w->overflow_pending = true;
    if (!w->recursive)
        return;
    w->tree.root->scan_round = ++w->scan_round;
    watch_tree_queue_read(&w->tree, w->tree.root, false);
}

/* A directory that was removed, replaced or is unreadable is skipped; running out of a resource
 * ends the watch, because the rest would be unreliable. */
static void watch_on_dir_error(struct watch_request *w, int sys, const char *name)
{
    switch (sys) {
    case ENOSPC:
        err_set(&w->err, ERR_LIMIT,
                "the kernel's limit of watched directories per user is reached; raise fs.inotify.max_user_watches");
        break;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        errno = sys;
        path_fail(&w->err, "watching", name);
        break;
    default:
        break;
    }
}

static int watch_open_root(struct watch_request *w)
{
    struct err err = { 0 };
    struct stat st;
    auto_fd int fd = path_open(&w->rt->paths, w->root, O_PATH | O_DIRECTORY, &err);

    if (fd < 0 && err.id == ERR_LIMIT)
        w->err = err;
    else if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
        w->root_gone = true;
    return w->err.id || w->root_gone ? -1 : take_fd(&fd);
}

static int watch_open_below(struct watch_request *w, const struct watch_node *n, const char *name, int flags)
{
    static char path[RT_PATH_MAX];
    auto_fd int root = watch_open_root(w);

    if (root < 0)
        return -1;
    if (!watch_tree_path(n, name, path, sizeof(path))) {
        w->overflow_pending = true;
        return -1;
    }
    int fd = path_beneath(root, path[0] ? path : ".", flags | O_DIRECTORY, true);
    if (fd < 0)
        watch_on_dir_error(w, errno, path);
    return fd;
}

static int watch_add_descriptor(const struct watch_request *w, int dir, uint32_t mask)
{
    int wd = -1;

    if (fchdir(dir) == 0)
        wd = inotify_add_watch(w->fd, ".", mask | IN_ONLYDIR | IN_EXCL_UNLINK);
    int sys = errno;
    (void)!fchdir(w->rt->paths.root);
    errno = sys;
    return wd;
}

static void watch_add_dir(struct watch_request *w, struct watch_node *parent, const char *name, bool announce)
{
    auto_fd int fd = watch_open_below(w, parent, name, O_PATH);

    watch_tree_remove_missed(&w->tree, parent, name);
    if (fd < 0) {
        if (!watch_tree_add_missed(&w->tree, parent, name, announce))
            watch_rescan(w);
        return;
    }
    int wd = watch_add_descriptor(w, fd, WATCH_EVENT_MASK);
    if (wd < 0) {
        watch_on_dir_error(w, errno, name);
        return;
    }
    struct watch_node *n = watch_tree_find(&w->tree, wd), *old = watch_tree_child(parent, name);
    bool known = n && n->scan_round == w->scan_round;
    if (n && !watch_tree_move(n, parent, name)) {
        watch_rescan(w);
        return;
    }
    if (old && old != n)
        watch_drop_dir(w, old);
    if (!n)
        n = watch_tree_add(&w->tree, parent, name, wd);
    if (!n) {
        err_set(&w->err, ERR_LIMIT, "more than %u directories are below %.120s; watch a smaller tree", WATCH_TREE_MAX,
                w->root);
        return;
    }
    n->scan_round = w->scan_round;
    if (!known)
        watch_tree_queue_read(&w->tree, n, announce);
}

static void watch_begin_reading(struct watch_request *w, struct watch_node *n)
{
    auto_fd int fd = watch_open_below(w, n, "", O_RDONLY);

    if (fd < 0)
        return;
    w->dir = fdopendir(fd);
    if (!w->dir) {
        watch_on_dir_error(w, errno, n->name);
        return;
    }
    take_fd(&fd);
    w->read_node = n;
    n->unread = false;
    for (struct watch_missed_dir *m; (m = watch_tree_take_missed(&w->tree, n));)
        free(m); /* reading the directory finds them again */
}

static void watch_retry_missed(struct watch_request *w, struct watch_node *n)
{
    struct watch_missed_dir *all = NULL, *m;

    while ((m = watch_tree_take_missed(&w->tree, n))) {
        m->next = all;
        all = m;
    }
    while ((m = all)) {
        all = m->next;
        watch_add_dir(w, n, m->name, m->report_entries);
        free(m);
    }
}

static bool is_dir(int dirfd, const struct dirent *d)
{
    struct stat st;

    if (d->d_type != DT_UNKNOWN)
        return d->d_type == DT_DIR;
    return fstatat(dirfd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void watch_read_entry(struct watch_request *w, struct pack *p)
{
    const struct dirent *d = readdir(w->dir);
    struct watch_node *n = w->read_node;

    if (!d) {
        closedir(take_ptr(&w->dir));
        return;
    }
    if (str_eq(d->d_name, ".") || str_eq(d->d_name, ".."))
        return;
    bool dir = is_dir(dirfd(w->dir), d);
    if (n->report_entries) {
        watch_report(w, p, RT_CREATED, dir, n, d->d_name);
        reported_names_add(&w->reported, n->wd, d->d_name);
    }
    if (dir)
        watch_add_dir(w, n, d->d_name, n->report_entries);
}

/* --- events --- */

static bool watch_wants_name(const struct watch_request *w, const char *name)
{
    return w->leaf[0] == '\0' || str_eq(w->leaf, name);
}

static void watch_on_created(struct watch_request *w, struct pack *p, struct watch_node *n, const char *name, bool dir)
{
    if (!watch_wants_name(w, name) || reported_names_remove(&w->reported, n->wd, name))
        return;
    watch_report(w, p, RT_CREATED, dir, n, name);
    if (dir && w->recursive)
        watch_add_dir(w, n, name, true);
}

static void watch_on_removed(struct watch_request *w, struct pack *p, struct watch_node *n, const char *name, bool dir)
{
    struct watch_node *child = dir ? watch_tree_child(n, name) : NULL;

    reported_names_remove(&w->reported, n->wd, name);
    if (dir)
        watch_tree_remove_missed(&w->tree, n, name);
    if (child)
        watch_drop_dir(w, child);
    if (watch_wants_name(w, name))
        watch_report(w, p, RT_REMOVED, dir, n, name);
}

static void watch_on_moved(struct watch_request *w, struct pack *p, struct watch_node *n, const char *name,
                           struct watch_node *to, const char *to_name, bool dir)
{
    struct watch_node *child = watch_tree_child(n, name), *there = watch_tree_child(to, to_name);

    reported_names_remove(&w->reported, n->wd, name);
    reported_names_remove(&w->reported, to->wd, to_name);
    if (!watch_wants_name(w, name) && !watch_wants_name(w, to_name))
        return;
    watch_report_move(w, p, dir, n, name, to, to_name);
    if (!dir || !w->recursive)
        return;
    watch_tree_remove_missed(&w->tree, n, name);
    watch_tree_remove_missed(&w->tree, to, to_name);
    if (!child && !there) {
        watch_add_dir(w, to, to_name, true);
    } else if (child && !watch_tree_move(child, to, to_name)) {
        watch_rescan(w);
    } else if (child) {
        if (there && there != child)
            watch_drop_dir(w, there);
        watch_tree_requeue_below(&w->tree, child);
    }
}

static void watch_on_event(struct watch_request *w, struct pack *p, const struct inotify_event *e,
                           struct inotify_event *to)
{
    struct watch_node *n = watch_tree_find(&w->tree, e->wd), *other = to ? watch_tree_find(&w->tree, to->wd) : NULL;
    const char *name = e->len ? e->name : "";
    bool dir = e->mask & IN_ISDIR;

    if (e->mask & IN_Q_OVERFLOW) {
        watch_rescan(w);
    } else if (!n) {
        return; /* of a directory that we dropped */
    } else if (e->mask & WATCH_SELF_GONE_MASK) {
        w->root_gone = w->root_gone || n == w->tree.root;
        if (n != w->tree.root)
            watch_drop_dir(w, n);
    } else if (other) {
        watch_on_moved(w, p, n, name, other, to->len ? to->name : "", dir);
        to->mask = 0;
    } else if (e->mask & (IN_CREATE | IN_MOVED_TO)) {
        watch_on_created(w, p, n, name, dir);
    } else if (e->mask & (IN_DELETE | IN_MOVED_FROM)) {
        watch_on_removed(w, p, n, name, dir);
        /* A directory below the root reports its own changes twice. */
    } else if (watch_wants_name(w, name) && (e->len || n == w->tree.root)) {
        watch_report(w, p, RT_WRITTEN, dir, n, name);
    }
}

static struct inotify_event *watch_raw_event(struct watch_request *w, size_t at)
{
    return (void *)(w->raw + at);
}

static size_t watch_raw_event_size(const struct inotify_event *e)
{
    return sizeof(*e) + e->len;
}

/* Reads more events after those in the buffer. False: no events, or no space. */
static bool watch_fill_raw(struct watch_request *w)
{
    memmove(w->raw, w->raw + w->at, w->len - w->at);
    w->len -= w->at;
    w->complete_until -= min_size(w->complete_until, w->at);
    w->complete_until_timer -= min_size(w->complete_until_timer, w->at);
    w->at = 0;
    ssize_t n = read(w->fd, w->raw + w->len, sizeof(w->raw) - w->len);
    w->len += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static struct inotify_event *watch_find_move_target(struct watch_request *w)
{
    uint32_t cookie = watch_raw_event(w, w->at)->cookie;

    for (size_t at = w->at; at < w->len; at += watch_raw_event_size(watch_raw_event(w, at))) {
        struct inotify_event *e = watch_raw_event(w, at);

        if (e->mask & IN_MOVED_TO && e->cookie == cookie)
            return e;
    }
    return NULL;
}

static void watch_on_move_timeout(void *arg)
{
    struct watch_request *w = arg;

    w->complete_until = w->complete_until_timer;
    runtime_stream_wake(w->stream);
}

/* Whether the first event can be processed: the first half of a move may have to wait for its
 * second half. */
static bool watch_event_is_complete(struct watch_request *w, struct inotify_event **ret_partner)
{
    *ret_partner = NULL;
    if (!(watch_raw_event(w, w->at)->mask & IN_MOVED_FROM))
        return true;
    do
        *ret_partner = watch_find_move_target(w);
    while (!*ret_partner && watch_fill_raw(w));
    if (*ret_partner || w->at < w->complete_until || sizeof(w->raw) - w->len < RAW_MAX)
        return true;
    if (!w->move_timer.slot) {
        w->complete_until_timer = w->len;
        ev_timer_set(w->rt->ev, &w->move_timer, ev_now(w->rt->ev) + PATIENCE_NS, watch_on_move_timeout, w);
    }
    return false;
}

static bool watch_next_event(struct watch_request *w, struct pack *p)
{
    struct inotify_event *partner;

    if (w->at == w->len && !watch_fill_raw(w)) {
        reported_names_clear(&w->reported);
        return false;
    }
    if (!watch_event_is_complete(w, &partner))
        return false;
    const struct inotify_event *e = watch_raw_event(w, w->at);
    w->at += watch_raw_event_size(e);
    if (e->mask)
        watch_on_event(w, p, e, partner);
    return true;
}

/* --- stream --- */

/* Does one unit of work. False if there is nothing to do now. */
static bool watch_advance(struct watch_request *w, struct pack *p)
{
    struct watch_node *n;

    if (w->root_gone || w->err.id)
        return false;
    if (w->dir) {
        watch_read_entry(w, p);
    } else if ((n = watch_tree_next(&w->tree))) {
        (n->unread ? watch_begin_reading : watch_retry_missed)(w, n);
    } else if (!w->watching_reported) {
        w->watching_reported = true;
        watch_report(w, p, RT_WATCHING, w->leaf[0] == '\0', w->tree.root, "");
    } else if (w->overflow_pending) {
        w->overflow_pending = false;
        watch_tree_drop_stale(&w->tree, w->scan_round, watch_remove_descriptor, w);
        watch_report(w, p, RT_OVERFLOW, false, w->tree.root, "");
    } else {
        return watch_next_event(w, p);
    }
    return true;
}

static bool watch_step(struct runtime_stream *s)
{
    struct watch_request *w = s->obj;
    struct pack p;
    bool more = true;

    if (runtime_stream_room(s) < FRAME_PAYLOAD_MAX) {
        ev_io_set(w->rt->ev, &w->io, 0); /* a CREDIT wakes us */
        return false;
    }
    pack_init(&p, runtime_scratch_buffer(), FRAME_PAYLOAD_MAX);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= 2 * ITEM_MAX; i++)
        more = watch_advance(w, &p);
    if (w->root_gone)
        watch_report(w, &p, RT_REMOVED, w->leaf[0] == '\0', w->tree.root, w->leaf);
    if (p.len > 0)
        runtime_stream_send_unit(s, runtime_scratch_buffer(), p.len);
    if (w->err.id)
        runtime_stream_fail(s, &w->err);
    else if (w->root_gone)
        runtime_stream_done(s, &(struct rt_done){ 0 });
    else if (!more)
        ev_io_set(w->rt->ev, &w->io, EPOLLIN);
    return more;
}

static void watch_on_readable(void *arg, uint32_t events UNUSED)
{
    struct watch_request *w = arg;

    runtime_stream_wake(w->stream);
}

static void watch_release(struct runtime_stream *s)
{
    struct watch_request *w = s->obj;

    ev_io_del(w->rt->ev, &w->io);
    ev_timer_clear(w->rt->ev, &w->move_timer);
    if (w->dir)
        closedir(w->dir);
    watch_tree_done(&w->tree);
    reported_names_clear(&w->reported);
    fd_close(&w->fd);
    free(w);
}

static const struct runtime_stream_ops watch_stream_ops = { .step = watch_step, .release = watch_release };

/* Opens the directory to watch. A path that is not a directory is watched as a name in its parent:
 * w->leaf. */
static int watch_open_target(struct watch_request *w, struct err *err)
{
    const struct paths *paths = &w->rt->paths;
    int fd = path_open(paths, w->root, O_PATH | O_DIRECTORY, err);

    if (fd >= 0 || err->sys != ENOTDIR)
        return fd;
    auto_fd int there = path_open(paths, w->root, O_PATH | O_NOFOLLOW, err);
    return there < 0 ? -1 : path_parent(paths, w->root, false, w->leaf, err);
}

static int watch_begin(struct watch_request *w, uint32_t flags, struct err *err)
{
    struct stat st;
    auto_fd int dir = watch_open_target(w, err);

    if (dir < 0)
        return -1;
    if (fstat(dir, &st) < 0)
        return path_fail(err, "examining", w->root);
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    w->recursive = flags & RT_PATH_RECURSIVE && w->leaf[0] == '\0';
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->fd < 0)
        return path_fail(err, "watching", w->root);
    int wd = watch_add_descriptor(w, dir, WATCH_EVENT_MASK | IN_DELETE_SELF | IN_MOVE_SELF);
    if (wd < 0)
        return path_fail(err, "watching", w->root);
    struct watch_node *root = watch_tree_add(&w->tree, NULL, "", wd);
    if (w->recursive)
        watch_tree_queue_read(&w->tree, root, false);
    return ev_io_add(w->rt->ev, &w->io, w->fd, EPOLLIN, watch_on_readable, w, err);
}

int watch_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    unsigned open = 0;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    for (const struct runtime_stream *o = rt->streams.first; o; o = o->next)
        open += o != s && o->request == FRAME_WATCH && !o->is_finished;
    if (open >= WATCHES_MAX)
        return err_set(err, ERR_LIMIT,
                       "%u paths of the sandbox are already watched, which is the maximum; close a watch", open);

    struct watch_request *w = mem_new(struct watch_request);
    w->rt = rt;
    w->stream = s;
    w->fd = -1;
    memcpy(w->root, m.path, sizeof(w->root));
    s->obj = w;
    s->ops = &watch_stream_ops;
    if (watch_begin(w, m.flags, err) < 0)
        return -1; /* released with the last frame */
    runtime_stream_wake(s);
    return 0;
}
