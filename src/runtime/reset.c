/* Everybody else is killed, at once and together: what forks at that moment is killed with its parent. All who lived
 * here are our children by then, so waiting for children until there are none counts them, and waits for whatever they
 * held to be given back. The host has a clock for a process that does not die.
 *
 * Then all places that can be written to are emptied, and must be as empty as in the beginning by their own count too:
 * what has no name any more, or no place in a listing, is found that way. System V objects are removed. What a program
 * of the same user can change in PID 1 itself, and what the kernel keeps of connections, cannot be taken back: that is
 * told, and the host decides.
 *
 * A reset that fails leaves the sandbox without a claim for good. */
#include "runtime/reset.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "runtime/adopt.h"
#include "runtime/claim.h"
#include "runtime/exec.h"
#include "runtime/mark.h"
#include "runtime/remove.h"
#include "runtime/stats.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#define REAPINGS 8 /* who still ends more than these hold is left over */

static const char *const places[RESET_PLACES] = { "/workspace", "/tmp", "/dev/shm" };

struct reset {
    struct rt_reset found;
    size_t at; /* of the places */
    struct removal *removal;
};

/* --- what it has to come back to --- */

static bool look_at(const char *path, mode_t *mode, uint64_t *blocks, uint64_t *inodes)
{
    struct statvfs v;
    struct stat st;

    if (stat(path, &st) < 0 || statvfs(path, &v) < 0)
        return false;
    *mode = st.st_mode & 07777;
    *blocks = v.f_bfree;
    *inodes = v.f_ffree;
    return true;
}

static void look_at_self(struct reset_base *b)
{
    b->nice = getpriority(PRIO_PROCESS, 0);
    b->policy = sched_getscheduler(0);
    sched_getaffinity(0, sizeof(b->cpus), &b->cpus);
    for (unsigned i = 0; i < RLIM_NLIMITS; i++)
        syscall(SYS_prlimit64, 0, i, NULL, &b->rlimits[i]); /* libraries differ in the type of its number */
}

void reset_init(struct runtime *rt)
{
    struct reset_base *b = &rt->base;

    if (b->taken || rt->claimed)
        return;
    b->taken = true;
    for (size_t i = 0; i < RESET_PLACES; i++) {
        struct stat st = { 0 };

        b->known[i] = look_at(places[i], &b->mode[i], &b->blocks[i], &b->inodes[i]) && stat(places[i], &st) == 0;
        b->times[i][0] = st.st_atim;
        b->times[i][1] = st.st_mtim;
    }
    look_at_self(b);
}

static bool altered(const struct reset_base *was)
{
    struct reset_base now = { 0 };

    look_at_self(&now);
    return now.nice != was->nice || now.policy != was->policy || !CPU_EQUAL(&now.cpus, &was->cpus) ||
           memcmp(now.rlimits, was->rlimits, sizeof(now.rlimits)) != 0;
}

/* --- processes --- */

static int end_all(struct runtime *rt, struct rt_reset *found, struct err *err)
{
    for (int i = 0; i < REAPINGS && exec_reap(rt); i++) /* what had ended before is nobody's leftover */
        ;
    uint32_t ours = exec_alive(rt) + (rt->member[0] >= 0 ? 1 : 0), n = 0;
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        n++;
    if (kill(-1, 0) == 0 || errno != ESRCH)
        return err_set(err, ERR_BUSY, "a process is left that cannot be ended");
    found->processes = n > ours ? n - ours : 0;
    return 0;
}

/* --- System V objects and connections --- */

/* Lines behind the first, of a file that the kernel may not have; of those that fn is told, it counts some. -1: it
 * cannot be read. */
static int each_line(const char *path, bool (*fn)(const char *line), uint32_t *ret)
{
    auto_free char *text = mem_alloc(FRAME_PAYLOAD_MAX);
    auto_fd int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, FRAME_PAYLOAD_MAX - 1);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (n < 0)
        return -1;
    text[n] = '\0';
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
        *ret += !fn || fn(line + 1);
    return 0;
}

/* "  key  id ..." */
static int object_id(const char *line)
{
    char *end;

    strtol(line, &end, 10);
    return (int)strtol(end, NULL, 10);
}

static bool remove_memory(const char *line)
{
    return shmctl(object_id(line), IPC_RMID, NULL) == 0;
}

static bool remove_semaphores(const char *line)
{
    return semctl(object_id(line), 0, IPC_RMID) == 0;
}

static int remove_objects(struct rt_reset *found, struct err *err)
{
    for (uint32_t left = 1; left;) {
        uint32_t before = found->objects;

        left = 0;
        if (each_line("/proc/sysvipc/shm", remove_memory, &found->objects) < 0 ||
            each_line("/proc/sysvipc/sem", remove_semaphores, &found->objects) < 0 ||
            each_line("/proc/sysvipc/shm", NULL, &left) < 0 || each_line("/proc/sysvipc/sem", NULL, &left) < 0)
            return err_sys(err, ERR_SYS, "/proc/sysvipc");
        if (left && found->objects == before)
            return err_set(err, ERR_BUSY, "System V objects are left");
    }
    uint32_t queues = 0;
    if (each_line("/proc/sysvipc/msg", NULL, &queues) < 0 || queues)
        return err_set(err, ERR_BUSY, "System V queues are left");
    return 0;
}

static int count_sockets(struct rt_reset *found, struct err *err)
{
    if (each_line("/proc/self/net/tcp", NULL, &found->sockets) < 0 ||
        each_line("/proc/self/net/tcp6", NULL, &found->sockets) < 0)
        return err_sys(err, ERR_SYS, "/proc/self/net");
    return 0;
}

/* --- places --- */

/* The directory itself, when it is empty. */
static int restore(const struct reset_base *b, size_t i, struct err *err)
{
    auto_fd int fd = openat(AT_FDCWD, places[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t blocks = 0, inodes = 0;
    mode_t mode = 0;
    char names[1024];
    ssize_t n = fd < 0 ? -1 : flistxattr(fd, names, sizeof(names));

    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1)
        fremovexattr(fd, names + at);
    if (fd < 0 || fchmod(fd, b->mode[i]) < 0 || futimens(fd, b->times[i]) < 0 ||
        (n != 0 && flistxattr(fd, NULL, 0) > 0))
        return path_fail(err, "restoring", places[i]);
    if (!look_at(places[i], &mode, &blocks, &inodes) || mode != b->mode[i] || blocks != b->blocks[i] ||
        inodes != b->inodes[i])
        return err_set(err, ERR_BUSY, "%s is not as empty as it was", places[i]);
    return 0;
}

static int next_place(struct runtime *rt, struct reset *r, struct err *err)
{
    const struct reset_base *b = &rt->base;

    if (r->removal)
        removal_free(take_ptr(&r->removal));
    for (; r->at < RESET_PLACES; r->at++) {
        if (!b->known[r->at])
            continue; /* it does not exist */
        r->removal = removal_of_all_in(places[r->at]);
        return r->removal ? 1 : path_fail(err, "emptying", places[r->at]);
    }
    return 0;
}

/* 1: there is more to do. */
static int empty_places(struct runtime *rt, struct reset *r, struct err *err)
{
    uint64_t removed = 0;

    if (!r->removal)
        return next_place(rt, r, err);
    int more = removal_step(r->removal, &removed);
    if (more < 0)
        return path_fail(err, "emptying", places[r->at]);
    if (more > 0)
        return 1;
    r->found.files += removed;
    if (restore(&rt->base, r->at, err) < 0)
        return -1;
    r->at++;
    return next_place(rt, r, err);
}

/* --- the request --- */

static int finish(struct runtime *rt, struct reset *r, struct err *err)
{
    if (remove_objects(&r->found, err) < 0 || count_sockets(&r->found, err) < 0)
        return -1;
    r->found.altered = altered(&rt->base);
    mark_free(take_ptr(&rt->mark));
    claim_forget(rt);
    explicit_bzero(stream_scratch(), FRAME_PAYLOAD_MAX);
    rt->resetting = false;
    return 0;
}

static bool reset_step(struct stream *s)
{
    struct runtime *rt = runtime_of(s);
    struct reset *r = s->obj;
    struct err err = { 0 };
    int more = empty_places(rt, r, &err);

    if (more > 0)
        return true;
    if (more < 0 || finish(rt, r, &err) < 0) {
        stream_fail(s, &err);
        return false;
    }
    int n = rt_reset_encode(&r->found, stream_scratch(), NULL);
    assert(n >= 0);
    stream_last(s, FRAME_DONE, stream_scratch(), (size_t)n);
    return false;
}

static void reset_release(struct stream *s)
{
    struct reset *r = s->obj;

    removal_free(r->removal);
    free(r);
}

static const struct stream_ops reset_ops = { .step = reset_step, .release = reset_release };

int reset_open(struct runtime *rt, struct stream *s, const struct frame *f, struct err *err)
{
    struct rt_reset found = { 0 };

    if (f->len != 0)
        return err_set(err, ERR_PROTOCOL, "RESET has no payload");
    if (~rt->measured & (RT_WALL_PID_NS | RT_WALL_ROOT_RO)) /* it would end and remove what is not the sandbox's */
        return err_set(err, ERR_DENIED, "only the first process of a sandbox can be reset");
    if (!rt->base.taken)
        return err_set(err, ERR_DENIED, "nobody looked at this sandbox before it was claimed");
    rt->resetting = true;
    rt->claimed = false;
    found.full = stats_full() != 0;
    if (end_all(rt, &found, err) < 0)
        return -1;
    adopt_drop(rt);
    for (struct stream *o = rt->streams.first, *next; o; o = next) {
        next = o->next;
        if (o != s)
            stream_close(o);
    }
    struct reset *r = mem_new(struct reset);
    r->found = found;
    s->obj = r;
    s->ops = &reset_ops;
    stream_wake(s);
    return 0;
}
