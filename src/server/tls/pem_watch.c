/* A path leads to a file through directories and symbolic links, and a renewal may change any of
 * them: a file is overwritten or replaced by rename, certbot replaces one link, Kubernetes the link
 * to a directory of links. So each path is resolved as Linux resolves it, and each step is watched
 * for events that could change its target:
 *
 *   a directory on the way             that it is moved or removed; other events in it are ignored
 *   a link, the file, a missing name   that name in its directory
 *   the file                           that it is written or its permissions change
 *
 * An event only triggers a check: the path is resolved again with a new inotify instance, and then
 * the files are compared with their previous state by identity and metadata, not by name. No change
 * between the two steps is lost, because the watches are set before the comparison. While nothing
 * happens there is no timer and no wake-up.
 *
 * Invariants:
 * 1. The type of a step is determined after its name is watched; if it changes in between, there is
 *    another check.
 * 2. Where inotify cannot report changes (another machine changes the files, a directory that
 *    may be searched but not read, too many watches), the files are checked every minute
 *    instead. SIGHUP makes a server check at once. */
#include "server/tls/pem_watch.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define CHECK_INTERVAL_NS (300 * NS_PER_MS) /* two of them pass between a change and its report */
#define PEM_POLL_NS (60 * NS_PER_S)
#define LINKS_MAX 40 /* the limit of Linux */
#define NAME_CHANGED (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define SELF_CHANGED (IN_MOVE_SELF | IN_DELETE_SELF)
#define FILE_CHANGED (SELF_CHANGED | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)

struct pem_watch_entry {
    int wd;
    char *name; /* NULL: the file or directory itself */
};

/* --- state of the files --- */

static uint64_t pem_watch_hash_mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x100000001b3u;
}

static uint64_t pem_watch_fingerprint(const struct pem_paths *paths)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (int i = 0; i < PEM_PARTS; i++) {
        struct stat st;

        if (!paths->part[i] || !*paths->part[i])
            continue;
        if (stat(paths->part[i], &st) < 0) {
            h = pem_watch_hash_mix(h, (uint64_t)errno);
            continue;
        }
        h = pem_watch_hash_mix(pem_watch_hash_mix(pem_watch_hash_mix(h, st.st_dev), st.st_ino), (uint64_t)st.st_size);
        h = pem_watch_hash_mix(pem_watch_hash_mix(h, (uint64_t)st.st_mtim.tv_sec), (uint64_t)st.st_mtim.tv_nsec);
        h = pem_watch_hash_mix(pem_watch_hash_mix(h, (uint64_t)st.st_ctim.tv_sec), (uint64_t)st.st_ctim.tv_nsec);
    }
    return h;
}

/* --- resolving a path --- */

enum pem_walk_result { PEM_WALK_CONTINUE, PEM_WALK_END, PEM_WALK_RETRY, PEM_WALK_POLL };

struct pem_path_walk {
    struct pem_watch *w;
    char at[PATH_MAX];   /* the directory so far, without links in it */
    char rest[PATH_MAX]; /* the part that is not resolved yet */
    char name[NAME_MAX + 1];
    char next[PATH_MAX]; /* at + name */
    int links;
};

static void pem_watch_clear(struct pem_watch *w)
{
    ev_io_del(w->ev, &w->io);
    fd_close(&w->fd);
    for (size_t i = 0; i < w->nentries; i++)
        free(w->entries[i].name);
    free(w->entries);
    w->entries = NULL;
    w->nentries = 0;
}

static enum pem_walk_result pem_watch_add(struct pem_watch *w, const char *path, const char *name, uint32_t mask)
{
    int wd = inotify_add_watch(w->fd, path, mask | IN_MASK_ADD | IN_DONT_FOLLOW);

    if (wd < 0)
        return errno == ENOENT || errno == ENOTDIR ? PEM_WALK_RETRY : PEM_WALK_POLL;
    w->entries = mem_resize(w->entries, w->nentries + 1, sizeof(*w->entries));
    w->entries[w->nentries++] = (struct pem_watch_entry){ .wd = wd, .name = name ? str_dup(name) : NULL };
    return PEM_WALK_CONTINUE;
}

/* File systems on which other machines or processes can make changes that inotify does not
 * report. */
static bool pem_watch_has_inotify(const char *path)
{
    static const uint32_t foreign[] = { NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC,
                                        FUSE_SUPER_MAGIC, V9FS_MAGIC,      CEPH_SUPER_MAGIC, AFS_SUPER_MAGIC };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return true; /* the following steps notice the problem */
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        if ((uint32_t)fs.f_type == foreign[i])
            return false;
    return true;
}

/* Moves the next name from `rest` to the name of the step. */
static bool pem_walk_next_name(struct pem_path_walk *k)
{
    const char *p = k->rest + strspn(k->rest, "/");
    size_t n = strcspn(p, "/");

    if (n == 0 || n > NAME_MAX)
        return false;
    memcpy(k->name, p, n);
    k->name[n] = '\0';
    memmove(k->rest, p + n, strlen(p + n) + 1);
    return true;
}

static bool pem_walk_join(char *to, const char *a, const char *b)
{
    return snprintf(to, PATH_MAX, "%s/%s", a, b) < PATH_MAX;
}

static enum pem_walk_result pem_walk_enter(struct pem_path_walk *k)
{
    enum pem_walk_result s = pem_watch_add(k->w, k->next, NULL, SELF_CHANGED | IN_ONLYDIR);

    memcpy(k->at, k->next, sizeof(k->at));
    return s;
}

static enum pem_walk_result pem_walk_follow_link(struct pem_path_walk *k)
{
    char target[PATH_MAX], rest[PATH_MAX];
    ssize_t n = readlink(k->next, target, sizeof(target) - 1);

    if (n < 0)
        return PEM_WALK_RETRY;
    target[n] = '\0';
    if (++k->links > LINKS_MAX || !pem_walk_join(rest, target, k->rest))
        return PEM_WALK_END; /* the path cannot be opened; the last name is watched */
    memcpy(k->rest, rest, sizeof(k->rest));
    if (target[0] == '/')
        k->at[0] = '\0';
    return PEM_WALK_CONTINUE;
}

static enum pem_walk_result pem_walk_name(struct pem_path_walk *k)
{
    struct stat st;
    enum pem_walk_result s = pem_watch_add(k->w, *k->at ? k->at : "/", k->name, NAME_CHANGED | IN_ONLYDIR);

    if (s != PEM_WALK_CONTINUE)
        return s;
    if (lstat(k->next, &st) < 0)
        return PEM_WALK_END;
    if (S_ISDIR(st.st_mode))
        return pem_walk_enter(k);
    if (S_ISLNK(st.st_mode))
        return pem_walk_follow_link(k);
    s = pem_watch_add(k->w, k->next, NULL, FILE_CHANGED);
    return s == PEM_WALK_CONTINUE ? PEM_WALK_END : s;
}

static enum pem_walk_result pem_walk_step(struct pem_path_walk *k)
{
    struct stat st;

    if (!pem_walk_next_name(k) || !pem_walk_join(k->next, k->at, k->name))
        return PEM_WALK_END;
    if (!pem_watch_has_inotify(*k->at ? k->at : "/"))
        return PEM_WALK_POLL;
    return lstat(k->next, &st) == 0 && S_ISDIR(st.st_mode) ? pem_walk_enter(k) : pem_walk_name(k);
}

static enum pem_walk_result pem_walk_path(struct pem_watch *w, const char *path)
{
    struct pem_path_walk k = { .w = w };
    enum pem_walk_result s = PEM_WALK_CONTINUE;

    if (!*path || strlen(path) >= sizeof(k.rest))
        return PEM_WALK_END;
    snprintf(k.rest, sizeof(k.rest), "%s", path);
    if (*path != '/') {
        snprintf(k.at, sizeof(k.at), ".");
        s = pem_watch_add(w, ".", NULL, SELF_CHANGED | IN_ONLYDIR);
    }
    while (s == PEM_WALK_CONTINUE)
        s = pem_walk_step(&k);
    return s;
}

/* --- checks --- */

static void pem_watch_check(void *arg);

static void pem_watch_check_after(struct pem_watch *w, uint64_t ns)
{
    ev_timer_set(w->ev, &w->timer, ev_now(w->ev) + ns, pem_watch_check, w);
}

static bool pem_watch_event_matters(const struct pem_watch *w, const struct inotify_event *e)
{
    if (e->mask & IN_Q_OVERFLOW)
        return true;
    for (size_t i = 0; i < w->nentries; i++)
        if (w->entries[i].wd == e->wd && (e->len == 0 || (w->entries[i].name && str_eq(w->entries[i].name, e->name))))
            return true;
    return false;
}

static void pem_watch_on_event(void *arg, uint32_t events UNUSED)
{
    struct pem_watch *w = arg;
    _Alignas(struct inotify_event) char raw[16 * 1024];
    ssize_t n;
    bool news = false;

    while ((n = read(w->fd, raw, sizeof(raw))) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(raw + at);

            news |= pem_watch_event_matters(w, e);
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    if (news && !w->timer.slot)
        pem_watch_check_after(w, w->check_ns);
}

/* Falls back to polling if the watches cannot be set, and logs that once. */
static enum pem_walk_result pem_watch_rebuild(struct pem_watch *w)
{
    enum pem_walk_result worst = PEM_WALK_END;

    pem_watch_clear(w);
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0 || ev_io_add(w->ev, &w->io, w->fd, EPOLLIN, pem_watch_on_event, w, NULL) < 0)
        worst = PEM_WALK_POLL;
    for (int i = 0; i < PEM_PARTS && worst != PEM_WALK_POLL; i++) {
        enum pem_walk_result s = pem_walk_path(w, w->paths.part[i] ? w->paths.part[i] : "");

        worst = s > worst ? s : worst;
    }
    if (worst == PEM_WALK_POLL) {
        pem_watch_clear(w);
        if (!w->is_polling)
            log_info("inotify cannot watch the certificate files; checking them every minute instead");
    }
    w->is_polling = worst == PEM_WALK_POLL;
    return worst;
}

static void pem_watch_check(void *arg)
{
    struct pem_watch *w = arg;
    enum pem_walk_result s = pem_watch_rebuild(w);
    uint64_t mark = pem_watch_fingerprint(&w->paths);
    bool quiet = mark == w->last_fingerprint, news = mark != w->reported_fingerprint;

    w->last_fingerprint = mark;
    if (s == PEM_WALK_RETRY || !quiet)
        pem_watch_check_after(w, w->check_ns);
    else if (s == PEM_WALK_POLL)
        pem_watch_check_after(w, PEM_POLL_NS);
    if (quiet && news) {
        w->reported_fingerprint = mark;
        w->on_change(w->arg);
    }
}

void pem_watch_init(struct pem_watch *w, struct ev *ev, const struct pem_paths *paths, void (*on_change)(void *arg),
                    void *arg)
{
    *w = (struct pem_watch){
        .ev = ev, .paths = *paths, .check_ns = CHECK_INTERVAL_NS, .fd = -1, .on_change = on_change, .arg = arg
    };
    enum pem_walk_result s = pem_watch_rebuild(w);

    if (s != PEM_WALK_END)
        pem_watch_check_after(w, s == PEM_WALK_POLL ? PEM_POLL_NS : CHECK_INTERVAL_NS);
    w->last_fingerprint = w->reported_fingerprint = pem_watch_fingerprint(paths);
}

void pem_watch_mark_read(struct pem_watch *w)
{
    w->last_fingerprint = w->reported_fingerprint = pem_watch_fingerprint(&w->paths);
}

void pem_watch_done(struct pem_watch *w)
{
    if (!w->ev)
        return;
    ev_timer_clear(w->ev, &w->timer);
    pem_watch_clear(w);
}
