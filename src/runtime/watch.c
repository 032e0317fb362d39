/* inotify, turned into events that somebody else can follow: paths instead of descriptors, moves in one piece, and new
 * directories watched before what is in them is told.
 *
 * A descriptor belongs to a directory and not to its path. It is made by stepping into the directory and watching ".",
 * which neither a link nor a rename in between can turn elsewhere; /proc is not needed. No directory is kept open: the
 * kernel tells that one was removed only when nobody holds it.
 *
 * The kernel's queue is the only one. When the host takes nothing, nothing is read, and what does not fit into the
 * queue then is told as one OVERFLOW. That is said after the tree was looked through again, so whoever looks for
 * themselves when they hear it misses nothing that happens later.
 *
 * Invariants:
 * 1. A directory is watched before it is read. What is made in between may be seen twice, and `told` remembers what was
 *    found by reading, so that it is told once: a CREATE of a name that is there already can be nothing else.
 * 2. While directories are to be read, no event is looked at: an event speaks of a tree that we know.
 * 3. Events come late, so a directory of which they tell may have moved on, or one above it. It is missed until the
 * move is told, and then looked for in the new place.
 * 4. Events are told in the order of the kernel. The second half of a move follows the first at once, or never; so a
 *    first half without it holds up everything for PATIENCE_NS at most, and then is a removal. */
#include "runtime/watch.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/told.h"
#include "runtime/wtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/inotify.h>

#define SLICE 200
#define PATIENCE_NS (50 * NS_PER_MS)
#define ITEM_MAX (2u * RT_PATH_MAX + 64u)
#define RAW_MAX (sizeof(struct inotify_event) + PATH_NAME_SIZE)
#define HAPPENED (IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define SELF_GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)

struct watching {
    struct runtime *rt;
    struct stream *stream;
    int fd;
    struct ev_io io;
    char root[RT_PATH_MAX];
    char leaf[PATH_NAME_SIZE]; /* the only name that matters, or "" */
    dev_t dev;                 /* of the root */
    ino_t ino;
    bool recursive;
    bool said;      /* WATCHING */
    bool lost;      /* OVERFLOW is to be told when everything was read */
    bool gone;      /* the root is */
    struct err err; /* with an id: there is no going on */
    uint32_t round;
    struct wtree tree;
    DIR *dir; /* being read */
    struct wnode *reading;
    struct told told; /* since there was last nothing more to read */

    size_t at, len; /* of raw: events that were not looked at */
    size_t settled; /* up to here, what is alone stays alone */
    size_t patient; /* settled when the timer comes */
    struct ev_timer patience;
    _Alignas(struct inotify_event) char raw[16 * 1024];
};

/* --- telling --- */

static void put_event(struct watching *w, struct pack *p, const struct rt_event *e)
{
    rt_event_pack(p, e);
    if (p->bad) { /* a name that the wire does not take */
        p->bad = false;
        w->lost = true;
    }
}

static void tell(struct watching *w, struct pack *p, char kind, bool dir, const struct wnode *n, const char *name)
{
    static struct rt_event e;

    e.kind = kind;
    e.dir = dir;
    e.from[0] = '\0';
    if (wtree_path(n, name, e.path, sizeof(e.path)))
        put_event(w, p, &e);
    else
        w->lost = true;
}

static void tell_move(struct watching *w, struct pack *p, bool dir, const struct wnode *from, const char *from_name,
                      const struct wnode *to, const char *to_name)
{
    static struct rt_event e;

    e.kind = RT_MOVED;
    e.dir = dir;
    if (wtree_path(from, from_name, e.from, sizeof(e.from)) && wtree_path(to, to_name, e.path, sizeof(e.path)))
        put_event(w, p, &e);
    else
        w->lost = true;
}

/* --- directories --- */

static void forget(void *arg, int wd)
{
    struct watching *w = arg;

    inotify_rm_watch(w->fd, wd); /* of one that was removed it is gone already */
}

static void drop(struct watching *w, struct wnode *n)
{
    wtree_drop(&w->tree, n, forget, w);
}

/* What we know of the tree is not to be trusted: look through all of it. */
static void look_again(struct watching *w)
{
    told_clear(&w->told);
    w->lost = true;
    if (!w->recursive)
        return;
    w->tree.root->round = ++w->round;
    wtree_queue(&w->tree, w->tree.root, false);
}

/* A directory that is not there any more, became something else or may not be read is nothing to watch; running out of
 * something is the end, because nobody could rely on the rest. */
static void not_watched(struct watching *w, int sys, const char *name)
{
    switch (sys) {
    case ENOSPC:
        err_set(&w->err, ERR_LIMIT,
                "the kernel watches no more directories for one user (fs.inotify.max_user_watches)");
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

static int open_root(struct watching *w)
{
    struct err err = { 0 };
    struct stat st;
    auto_fd int fd = path_open(&w->rt->paths, w->root, O_PATH | O_DIRECTORY, &err);

    if (fd < 0 && err.id == ERR_LIMIT)
        w->err = err;
    else if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino)
        w->gone = true;
    return w->err.id || w->gone ? -1 : take_fd(&fd);
}

static int open_below(struct watching *w, const struct wnode *n, const char *name, int flags)
{
    static char path[RT_PATH_MAX];
    auto_fd int root = open_root(w);

    if (root < 0)
        return -1;
    if (!wtree_path(n, name, path, sizeof(path))) {
        w->lost = true;
        return -1;
    }
    int fd = path_beneath(root, path[0] ? path : ".", flags | O_DIRECTORY, true);
    if (fd < 0)
        not_watched(w, errno, path);
    return fd;
}

static int add_watch(const struct watching *w, int dir, uint32_t mask)
{
    int wd = -1;

    if (fchdir(dir) == 0)
        wd = inotify_add_watch(w->fd, ".", mask | IN_ONLYDIR | IN_EXCL_UNLINK);
    int sys = errno;
    (void)!fchdir(w->rt->paths.root);
    errno = sys;
    return wd;
}

static void adopt(struct watching *w, struct wnode *parent, const char *name, bool announce)
{
    auto_fd int fd = open_below(w, parent, name, O_PATH);

    wtree_unmiss(&w->tree, parent, name);
    if (fd < 0) {
        if (!wtree_miss(&w->tree, parent, name, announce))
            look_again(w);
        return;
    }
    int wd = add_watch(w, fd, HAPPENED);
    if (wd < 0) {
        not_watched(w, errno, name);
        return;
    }
    struct wnode *n = wtree_find(&w->tree, wd), *old = wtree_child(parent, name);
    bool known = n && n->round == w->round;
    if (n && !wtree_move(n, parent, name)) {
        look_again(w);
        return;
    }
    if (old && old != n)
        drop(w, old);
    if (!n)
        n = wtree_add(&w->tree, parent, name, wd);
    if (!n) {
        err_set(&w->err, ERR_LIMIT, "there are more than %u directories to watch below %.120s", WTREE_MAX, w->root);
        return;
    }
    n->round = w->round;
    if (!known)
        wtree_queue(&w->tree, n, announce);
}

static void begin_reading(struct watching *w, struct wnode *n)
{
    auto_fd int fd = open_below(w, n, "", O_RDONLY);

    if (fd < 0)
        return;
    w->dir = fdopendir(fd);
    if (!w->dir) {
        not_watched(w, errno, n->name);
        return;
    }
    take_fd(&fd);
    w->reading = n;
    n->unread = false;
    for (struct wmissed *m; (m = wtree_missed(&w->tree, n));)
        free(m); /* whatever is there is found now */
}

static void look_for_missed(struct watching *w, struct wnode *n)
{
    struct wmissed *all = NULL, *m;

    while ((m = wtree_missed(&w->tree, n))) {
        m->next = all;
        all = m;
    }
    while ((m = all)) {
        all = m->next;
        adopt(w, n, m->name, m->announce);
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

static void read_one(struct watching *w, struct pack *p)
{
    const struct dirent *d = readdir(w->dir);
    struct wnode *n = w->reading;

    if (!d) {
        closedir(take_ptr(&w->dir));
        return;
    }
    if (str_eq(d->d_name, ".") || str_eq(d->d_name, ".."))
        return;
    bool dir = is_dir(dirfd(w->dir), d);
    if (n->announce) {
        tell(w, p, RT_CREATED, dir, n, d->d_name);
        told_put(&w->told, n->wd, d->d_name);
    }
    if (dir)
        adopt(w, n, d->d_name, n->announce);
}

/* --- events --- */

static bool cares(const struct watching *w, const char *name)
{
    return w->leaf[0] == '\0' || str_eq(w->leaf, name);
}

static void created(struct watching *w, struct pack *p, struct wnode *n, const char *name, bool dir)
{
    if (!cares(w, name) || told_take(&w->told, n->wd, name))
        return;
    tell(w, p, RT_CREATED, dir, n, name);
    if (dir && w->recursive)
        adopt(w, n, name, true);
}

static void removed(struct watching *w, struct pack *p, struct wnode *n, const char *name, bool dir)
{
    struct wnode *child = dir ? wtree_child(n, name) : NULL;

    told_take(&w->told, n->wd, name);
    if (dir)
        wtree_unmiss(&w->tree, n, name);
    if (child)
        drop(w, child);
    if (cares(w, name))
        tell(w, p, RT_REMOVED, dir, n, name);
}

static void moved(struct watching *w, struct pack *p, struct wnode *n, const char *name, struct wnode *to,
                  const char *to_name, bool dir)
{
    struct wnode *child = wtree_child(n, name), *there = wtree_child(to, to_name);

    told_take(&w->told, n->wd, name);
    told_take(&w->told, to->wd, to_name);
    if (!cares(w, name) && !cares(w, to_name))
        return;
    tell_move(w, p, dir, n, name, to, to_name);
    if (!dir || !w->recursive)
        return;
    wtree_unmiss(&w->tree, n, name);
    wtree_unmiss(&w->tree, to, to_name);
    if (!child && !there) {
        adopt(w, to, to_name, true);
    } else if (child && !wtree_move(child, to, to_name)) {
        look_again(w);
    } else if (child) {
        if (there && there != child)
            drop(w, there);
        wtree_found(&w->tree, child);
    }
}

static void on_event(struct watching *w, struct pack *p, const struct inotify_event *e, struct inotify_event *to)
{
    struct wnode *n = wtree_find(&w->tree, e->wd), *other = to ? wtree_find(&w->tree, to->wd) : NULL;
    const char *name = e->len ? e->name : "";
    bool dir = e->mask & IN_ISDIR;

    if (e->mask & IN_Q_OVERFLOW) {
        look_again(w);
    } else if (!n) {
        return; /* of a directory that we let go */
    } else if (e->mask & SELF_GONE) {
        w->gone = w->gone || n == w->tree.root;
        if (n != w->tree.root)
            drop(w, n);
    } else if (other) {
        moved(w, p, n, name, other, to->len ? to->name : "", dir);
        to->mask = 0;
    } else if (e->mask & (IN_CREATE | IN_MOVED_TO)) {
        created(w, p, n, name, dir);
    } else if (e->mask & (IN_DELETE | IN_MOVED_FROM)) {
        removed(w, p, n, name, dir);
    } else if (cares(w, name) && (e->len || n == w->tree.root)) { /* a directory below tells of itself twice */
        tell(w, p, RT_WRITTEN, dir, n, name);
    }
}

static struct inotify_event *raw_at(struct watching *w, size_t at)
{
    return (void *)(w->raw + at);
}

static size_t raw_size(const struct inotify_event *e)
{
    return sizeof(*e) + e->len;
}

/* Reads on behind what is there. False: there is nothing more, or no room. */
static bool fill(struct watching *w)
{
    memmove(w->raw, w->raw + w->at, w->len - w->at);
    w->len -= w->at;
    w->settled -= min_size(w->settled, w->at);
    w->patient -= min_size(w->patient, w->at);
    w->at = 0;
    ssize_t n = read(w->fd, w->raw + w->len, sizeof(w->raw) - w->len);
    w->len += n > 0 ? (size_t)n : 0;
    return n > 0;
}

static struct inotify_event *find_partner(struct watching *w)
{
    uint32_t cookie = raw_at(w, w->at)->cookie;

    for (size_t at = w->at; at < w->len; at += raw_size(raw_at(w, at))) {
        struct inotify_event *e = raw_at(w, at);

        if (e->mask & IN_MOVED_TO && e->cookie == cookie)
            return e;
    }
    return NULL;
}

static void on_patience(void *arg)
{
    struct watching *w = arg;

    w->settled = w->patient;
    stream_wake(w->stream);
}

/* Whether the event in front can be told: a first half whose second is not here may have to wait. */
static bool is_whole(struct watching *w, struct inotify_event **ret_partner)
{
    *ret_partner = NULL;
    if (!(raw_at(w, w->at)->mask & IN_MOVED_FROM))
        return true;
    do
        *ret_partner = find_partner(w);
    while (!*ret_partner && fill(w));
    if (*ret_partner || w->at < w->settled || sizeof(w->raw) - w->len < RAW_MAX)
        return true;
    if (!w->patience.slot) {
        w->patient = w->len;
        ev_timer_set(w->rt->ev, &w->patience, ev_now(w->rt->ev) + PATIENCE_NS, on_patience, w);
    }
    return false;
}

static bool next_event(struct watching *w, struct pack *p)
{
    struct inotify_event *partner;

    if (w->at == w->len && !fill(w)) {
        told_clear(&w->told);
        return false;
    }
    if (!is_whole(w, &partner))
        return false;
    const struct inotify_event *e = raw_at(w, w->at);
    w->at += raw_size(e);
    if (e->mask)
        on_event(w, p, e, partner);
    return true;
}

/* --- the stream --- */

/* One thing; false when there is nothing to be done now. */
static bool advance(struct watching *w, struct pack *p)
{
    struct wnode *n;

    if (w->gone || w->err.id)
        return false;
    if (w->dir) {
        read_one(w, p);
    } else if ((n = wtree_next(&w->tree))) {
        (n->unread ? begin_reading : look_for_missed)(w, n);
    } else if (!w->said) {
        w->said = true;
        tell(w, p, RT_WATCHING, w->leaf[0] == '\0', w->tree.root, "");
    } else if (w->lost) {
        w->lost = false;
        wtree_sweep(&w->tree, w->round, forget, w);
        tell(w, p, RT_OVERFLOW, false, w->tree.root, "");
    } else {
        return next_event(w, p);
    }
    return true;
}

static bool watch_step(struct stream *s)
{
    struct watching *w = s->obj;
    struct pack p;
    bool more = true;

    if (stream_room(s) < FRAME_PAYLOAD_MAX) {
        ev_io_set(w->rt->ev, &w->io, 0); /* a credit wakes us */
        return false;
    }
    pack_init(&p, stream_scratch(), FRAME_PAYLOAD_MAX);
    for (int i = 0; more && i < SLICE && p.cap - p.len >= 2 * ITEM_MAX; i++)
        more = advance(w, &p);
    if (w->gone)
        tell(w, &p, RT_REMOVED, w->leaf[0] == '\0', w->tree.root, w->leaf);
    if (p.len > 0)
        stream_send_unit(s, stream_scratch(), p.len);
    if (w->err.id)
        stream_fail(s, &w->err);
    else if (w->gone)
        stream_done(s, &(struct rt_done){ 0 });
    else if (!more)
        ev_io_set(w->rt->ev, &w->io, EPOLLIN);
    return more;
}

static void on_readable(void *arg, uint32_t events UNUSED)
{
    struct watching *w = arg;

    stream_wake(w->stream);
}

static void watch_release(struct stream *s)
{
    struct watching *w = s->obj;

    ev_io_del(w->rt->ev, &w->io);
    ev_timer_clear(w->rt->ev, &w->patience);
    if (w->dir)
        closedir(w->dir);
    wtree_done(&w->tree);
    told_clear(&w->told);
    fd_close(&w->fd);
    free(w);
}

static const struct stream_ops watch_ops = { .step = watch_step, .release = watch_release };

/* The directory to watch. What is none is a name in its directory: w->leaf. */
static int open_place(struct watching *w, struct err *err)
{
    const struct paths *paths = &w->rt->paths;
    int fd = path_open(paths, w->root, O_PATH | O_DIRECTORY, err);

    if (fd >= 0 || err->sys != ENOTDIR)
        return fd;
    auto_fd int there = path_open(paths, w->root, O_PATH | O_NOFOLLOW, err);
    return there < 0 ? -1 : path_parent(paths, w->root, false, w->leaf, err);
}

static int begin(struct watching *w, uint32_t flags, struct err *err)
{
    struct stat st;
    auto_fd int dir = open_place(w, err);

    if (dir < 0)
        return -1;
    if (fstat(dir, &st) < 0)
        return path_fail(err, "looking at", w->root);
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    w->recursive = flags & RT_PATH_RECURSIVE && w->leaf[0] == '\0';
    w->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (w->fd < 0)
        return path_fail(err, "watching", w->root);
    int wd = add_watch(w, dir, HAPPENED | IN_DELETE_SELF | IN_MOVE_SELF);
    if (wd < 0)
        return path_fail(err, "watching", w->root);
    struct wnode *root = wtree_add(&w->tree, NULL, "", wd);
    if (w->recursive)
        wtree_queue(&w->tree, root, false);
    return ev_io_add(w->rt->ev, &w->io, w->fd, EPOLLIN, on_readable, w, err);
}

int watch_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    unsigned open = 0;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    for (const struct stream *o = rt->streams.first; o; o = o->next)
        open += o != s && o->request == FRAME_WATCH && !o->over;
    if (open >= WATCHES_MAX)
        return err_set(err, ERR_LIMIT, "%u paths of the sandbox are watched already", open);

    struct watching *w = mem_new(struct watching);
    w->rt = rt;
    w->stream = s;
    w->fd = -1;
    memcpy(w->root, m.path, sizeof(w->root));
    s->obj = w;
    s->ops = &watch_ops;
    if (begin(w, m.flags, err) < 0)
        return -1; /* released with the last word */
    stream_wake(s);
    return 0;
}
