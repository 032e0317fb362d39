/* A path leads to a file over directories and links, and a renewal may change any of them: a file is written or renamed
 * over, certbot turns one link, Kubernetes the link to a directory of links. So each path is walked as the kernel walks
 * it, and each step is watched for what could make it lead elsewhere:
 *
 *   a directory that is passed through    that it is moved or removed; what else happens in it wakes nobody
 *   a link, the file, or what is missing  its name in the directory that holds it
 *   the file                              that it is written or its rights change
 *
 * An event is only a reason to look: the walk is made anew, with a new inotify instance, and then the files are
 * compared with what they were, by what they are and not by their names. Nothing is lost between the two, because the
 * watches stand before the comparison. While nothing happens, there is neither a timer nor a wake-up.
 *
 * Invariants:
 * 1. What a step is, is decided after its name is watched; when the two differ, there is another look.
 * 2. Where the kernel cannot tell (another machine changes the files, a directory that may be passed but not read, too
 *    many watches), the files are looked at every few seconds instead. */
#include "tls/pem_watch.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define LOOK_NS NS_PER_S
#define BLIND_LOOK_NS (5 * NS_PER_S)
#define LINKS_MAX 40 /* as the kernel has it */
#define NAME_CHANGED (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)
#define SELF_CHANGED (IN_MOVE_SELF | IN_DELETE_SELF)
#define FILE_CHANGED (SELF_CHANGED | IN_MODIFY | IN_CLOSE_WRITE | IN_ATTRIB)

struct pem_spot {
    int wd;
    char *name; /* NULL: the thing itself */
};

/* --- what the files are --- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x100000001b3u;
}

static uint64_t mark_of(const struct pem_paths *paths)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (int i = 0; i < PEM_PARTS; i++) {
        struct stat st;

        if (!paths->part[i] || !*paths->part[i])
            continue;
        if (stat(paths->part[i], &st) < 0) {
            h = mix(h, (uint64_t)errno);
            continue;
        }
        h = mix(mix(mix(h, st.st_dev), st.st_ino), (uint64_t)st.st_size);
        h = mix(mix(h, (uint64_t)st.st_mtim.tv_sec), (uint64_t)st.st_mtim.tv_nsec);
        h = mix(mix(h, (uint64_t)st.st_ctim.tv_sec), (uint64_t)st.st_ctim.tv_nsec);
    }
    return h;
}

/* --- the walk --- */

enum step { STEP_ON, STEP_END, STEP_AGAIN, STEP_BLIND };

struct walk {
    struct pem_watch *w;
    char at[PATH_MAX];   /* the directory, without links in it */
    char rest[PATH_MAX]; /* what is still to be walked */
    char name[NAME_MAX + 1];
    char next[PATH_MAX]; /* at + name */
    int links;
};

static void forget_watches(struct pem_watch *w)
{
    ev_io_del(w->ev, &w->io);
    fd_close(&w->fd);
    for (size_t i = 0; i < w->nspots; i++)
        free(w->spots[i].name);
    free(w->spots);
    w->spots = NULL;
    w->nspots = 0;
}

static enum step add(struct pem_watch *w, const char *path, const char *name, uint32_t mask)
{
    int wd = inotify_add_watch(w->fd, path, mask | IN_MASK_ADD | IN_DONT_FOLLOW);

    if (wd < 0)
        return errno == ENOENT || errno == ENOTDIR ? STEP_AGAIN : STEP_BLIND;
    w->spots = mem_resize(w->spots, w->nspots + 1, sizeof(*w->spots));
    w->spots[w->nspots++] = (struct pem_spot){ .wd = wd, .name = name ? str_dup(name) : NULL };
    return STEP_ON;
}

/* What other machines or processes do to these is not told by our kernel. */
static bool told_by_kernel(const char *path)
{
    static const uint32_t foreign[] = { NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CIFS_SUPER_MAGIC,
                                        FUSE_SUPER_MAGIC, V9FS_MAGIC,      CEPH_SUPER_MAGIC, AFS_SUPER_MAGIC };
    struct statfs fs;

    if (statfs(path, &fs) < 0)
        return true; /* whatever it is, it is looked at again */
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
        if ((uint32_t)fs.f_type == foreign[i])
            return false;
    return true;
}

/* Takes the next name off `rest`. */
static bool next_name(struct walk *k)
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

static bool join(char *to, const char *a, const char *b)
{
    return snprintf(to, PATH_MAX, "%s/%s", a, b) < PATH_MAX;
}

static enum step enter(struct walk *k)
{
    enum step s = add(k->w, k->next, NULL, SELF_CHANGED | IN_ONLYDIR);

    memcpy(k->at, k->next, sizeof(k->at));
    return s;
}

static enum step follow(struct walk *k)
{
    char target[PATH_MAX], rest[PATH_MAX];
    ssize_t n = readlink(k->next, target, sizeof(target) - 1);

    if (n < 0)
        return STEP_AGAIN;
    target[n] = '\0';
    if (++k->links > LINKS_MAX || !join(rest, target, k->rest))
        return STEP_END; /* nobody can open it; the last name is watched */
    memcpy(k->rest, rest, sizeof(k->rest));
    if (target[0] == '/')
        k->at[0] = '\0';
    return STEP_ON;
}

static enum step named(struct walk *k)
{
    struct stat st;
    enum step s = add(k->w, *k->at ? k->at : "/", k->name, NAME_CHANGED | IN_ONLYDIR);

    if (s != STEP_ON)
        return s;
    if (lstat(k->next, &st) < 0)
        return STEP_END;
    if (S_ISDIR(st.st_mode))
        return enter(k);
    if (S_ISLNK(st.st_mode))
        return follow(k);
    s = add(k->w, k->next, NULL, FILE_CHANGED);
    return s == STEP_ON ? STEP_END : s;
}

static enum step step(struct walk *k)
{
    struct stat st;

    if (!next_name(k) || !join(k->next, k->at, k->name))
        return STEP_END;
    if (!told_by_kernel(*k->at ? k->at : "/"))
        return STEP_BLIND;
    return lstat(k->next, &st) == 0 && S_ISDIR(st.st_mode) ? enter(k) : named(k);
}

static enum step walk(struct pem_watch *w, const char *path)
{
    struct walk k = { .w = w };
    enum step s = STEP_ON;

    if (!*path || strlen(path) >= sizeof(k.rest))
        return STEP_END;
    snprintf(k.rest, sizeof(k.rest), "%s", path);
    if (*path != '/') {
        snprintf(k.at, sizeof(k.at), ".");
        s = add(w, ".", NULL, SELF_CHANGED | IN_ONLYDIR);
    }
    while (s == STEP_ON)
        s = step(&k);
    return s;
}

/* --- looking --- */

static void look(void *arg);

static void look_after(struct pem_watch *w, uint64_t ns)
{
    ev_timer_set(w->ev, &w->timer, ev_now(w->ev) + ns, look, w);
}

static bool matters(const struct pem_watch *w, const struct inotify_event *e)
{
    if (e->mask & IN_Q_OVERFLOW)
        return true;
    for (size_t i = 0; i < w->nspots; i++)
        if (w->spots[i].wd == e->wd && (e->len == 0 || (w->spots[i].name && str_eq(w->spots[i].name, e->name))))
            return true;
    return false;
}

static void on_event(void *arg, uint32_t events UNUSED)
{
    struct pem_watch *w = arg;
    _Alignas(struct inotify_event) char raw[16 * 1024];
    ssize_t n;
    bool news = false;

    while ((n = read(w->fd, raw, sizeof(raw))) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(raw + at);

            news |= matters(w, e);
            at += (ssize_t)(sizeof(*e) + e->len);
        }
    if (news && !w->timer.slot)
        look_after(w, w->look_ns);
}

/* Without watches it is blind, and says so once. */
static enum step watch(struct pem_watch *w)
{
    enum step worst = STEP_END;

    forget_watches(w);
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0 || ev_io_add(w->ev, &w->io, w->fd, EPOLLIN, on_event, w, NULL) < 0)
        worst = STEP_BLIND;
    for (int i = 0; i < PEM_PARTS && worst != STEP_BLIND; i++) {
        enum step s = walk(w, w->paths.part[i] ? w->paths.part[i] : "");

        worst = s > worst ? s : worst;
    }
    if (worst == STEP_BLIND) {
        forget_watches(w);
        if (!w->blind)
            log_info(
                "the files of the certificate are looked at every few seconds: the kernel does not tell of changes");
    }
    w->blind = worst == STEP_BLIND;
    return worst;
}

static void look(void *arg)
{
    struct pem_watch *w = arg;
    enum step s = watch(w);
    uint64_t mark = mark_of(&w->paths);
    bool quiet = mark == w->seen, news = mark != w->settled;

    w->seen = mark;
    if (s == STEP_BLIND)
        look_after(w, BLIND_LOOK_NS);
    else if (s == STEP_AGAIN || !quiet)
        look_after(w, w->look_ns);
    if (quiet && news) {
        w->settled = mark;
        w->on_change(w->arg);
    }
}

void pem_watch_init(struct pem_watch *w, struct ev *ev, const struct pem_paths *paths, void (*on_change)(void *arg),
                    void *arg)
{
    *w = (struct pem_watch){
        .ev = ev, .paths = *paths, .look_ns = LOOK_NS, .fd = -1, .on_change = on_change, .arg = arg
    };
    enum step s = watch(w);

    if (s != STEP_END)
        look_after(w, s == STEP_BLIND ? BLIND_LOOK_NS : LOOK_NS);
    w->seen = w->settled = mark_of(paths);
}

void pem_watch_note(struct pem_watch *w)
{
    w->seen = w->settled = mark_of(&w->paths);
}

void pem_watch_done(struct pem_watch *w)
{
    if (!w->ev)
        return;
    ev_timer_clear(w->ev, &w->timer);
    forget_watches(w);
}
