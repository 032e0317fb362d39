/* All other processes are killed at once, so a process that forks at that moment is killed with its
 * parent. All remaining processes are then children of PID 1, so waiting until no children are left
 * both counts them and waits until their resources are released. The host has a timeout for a
 * process that does not die.
 *
 * Then all writable directories are emptied, and their counts of free blocks and inodes must match
 * the baseline: this detects files that have no name or do not appear in a listing. System V
 * objects are removed. Changes that a program of the same user made to PID 1 itself, and
 * connections that the kernel still holds, cannot be undone: they are reported, and the host
 * decides.
 *
 * A reset that fails leaves the sandbox unclaimed and unusable. */
#include "inside/runtime/runtime_reset.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "inside/runtime/interpreter.h"
#include "inside/runtime/runtime_claim.h"
#include "inside/runtime/runtime_exec.h"
#include "inside/runtime/snapshot.h"
#include "inside/runtime/file_remove.h"
#include "inside/runtime/stats.h"

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

#define RESET_REAP_ROUNDS 8 /* processes that end after these rounds count as left over */

static const char *const runtime_reset_dirs[RESET_DIRS] = { "/workspace", "/tmp", "/dev/shm" };

struct runtime_reset {
    struct rt_reset found;
    size_t dir_index; /* index into runtime_reset_dirs */
    struct removal *removal;
};

/* --- counting --- */

/* Counts the lines after the first one of a file that may not exist; with `fn`, only those for
 * which it returns true. -1: the file cannot be read. */
static int runtime_reset_count_lines(const char *path, bool (*fn)(const char *line), uint32_t *ret)
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

static int runtime_reset_count_sockets(uint32_t *ret)
{
    *ret = 0;
    return runtime_reset_count_lines("/proc/self/net/tcp", NULL, ret) < 0
               ? -1
               : runtime_reset_count_lines("/proc/self/net/tcp6", NULL, ret);
}

/* --- baseline --- */

static bool runtime_reset_stat_dir(const char *path, mode_t *mode, uint64_t *blocks, uint64_t *inodes)
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

static void runtime_reset_record_self(struct runtime_reset_baseline *b)
{
    b->nice = getpriority(PRIO_PROCESS, 0);
    b->policy = sched_getscheduler(0);
    sched_getaffinity(0, sizeof(b->cpus), &b->cpus);
    for (unsigned i = 0; i < RLIM_NLIMITS; i++)
        syscall(SYS_prlimit64, 0, i, NULL, &b->rlimits[i]); /* C libraries disagree on the type of its first argument */
}

void runtime_reset_record_baseline(struct runtime *rt)
{
    struct runtime_reset_baseline *b = &rt->reset_baseline;

    if (b->is_recorded || rt->claimed)
        return;
    b->is_recorded = true;
    (void)runtime_reset_count_sockets(&b->sockets);
    for (size_t i = 0; i < RESET_DIRS; i++) {
        struct stat st = { 0 };

        b->dir_exists[i] = runtime_reset_stat_dir(runtime_reset_dirs[i], &b->mode[i], &b->blocks[i], &b->inodes[i]) &&
                           stat(runtime_reset_dirs[i], &st) == 0;
        b->times[i][0] = st.st_atim;
        b->times[i][1] = st.st_mtim;
    }
    runtime_reset_record_self(b);
}

static bool runtime_reset_self_altered(const struct runtime_reset_baseline *was)
{
    struct runtime_reset_baseline now = { 0 };

    runtime_reset_record_self(&now);
    return now.nice != was->nice || now.policy != was->policy || !CPU_EQUAL(&now.cpus, &was->cpus) ||
           memcmp(now.rlimits, was->rlimits, sizeof(now.rlimits)) != 0;
}

/* --- processes --- */

static int runtime_reset_kill_all(struct runtime *rt, struct rt_reset *found, struct err *err)
{
    for (int i = 0; i < RESET_REAP_ROUNDS && runtime_exec_reap(rt);
         /* Processes that had ended before do not count as left over. */
         i++)
        ;
    uint32_t ours = runtime_exec_count_alive(rt) + (rt->interpreter_fds[0] >= 0 ? 1 : 0), n = 0;
    kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        n++;
    if (kill(-1, 0) == 0 || errno != ESRCH)
        return err_set(err, ERR_BUSY, "a process could not be killed");
    found->processes = n > ours ? n - ours : 0;
    return 0;
}

/* --- System V objects and connections --- */

/* "  key  id ..." */
static int runtime_reset_sysv_id(const char *line)
{
    char *end;

    strtol(line, &end, 10);
    return (int)strtol(end, NULL, 10);
}

static bool runtime_reset_remove_shm(const char *line)
{
    return shmctl(runtime_reset_sysv_id(line), IPC_RMID, NULL) == 0;
}

static bool runtime_reset_remove_sem(const char *line)
{
    return semctl(runtime_reset_sysv_id(line), 0, IPC_RMID) == 0;
}

static int runtime_reset_remove_sysv(struct rt_reset *found, struct err *err)
{
    for (uint32_t left = 1; left;) {
        uint32_t before = found->objects;

        left = 0;
        if (runtime_reset_count_lines("/proc/sysvipc/shm", runtime_reset_remove_shm, &found->objects) < 0 ||
            runtime_reset_count_lines("/proc/sysvipc/sem", runtime_reset_remove_sem, &found->objects) < 0 ||
            runtime_reset_count_lines("/proc/sysvipc/shm", NULL, &left) < 0 ||
            runtime_reset_count_lines("/proc/sysvipc/sem", NULL, &left) < 0)
            return err_sys(err, ERR_SYS, "/proc/sysvipc");
        if (left && found->objects == before)
            return err_set(err, ERR_BUSY, "System V objects could not be removed");
    }
    uint32_t queues = 0;
    if (runtime_reset_count_lines("/proc/sysvipc/msg", NULL, &queues) < 0 || queues)
        return err_set(err, ERR_BUSY, "System V message queues could not be removed");
    return 0;
}

/* --- directories --- */

/* Restores the emptied directory itself. */
static int runtime_reset_restore_dir(const struct runtime_reset_baseline *b, size_t i, struct err *err)
{
    auto_fd int fd = openat(AT_FDCWD, runtime_reset_dirs[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t blocks = 0, inodes = 0;
    mode_t mode = 0;
    char names[1024];
    ssize_t n = fd < 0 ? -1 : flistxattr(fd, names, sizeof(names));

    for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1)
        fremovexattr(fd, names + at);
    if (fd < 0 || fchmod(fd, b->mode[i]) < 0 || futimens(fd, b->times[i]) < 0 ||
        (n != 0 && flistxattr(fd, NULL, 0) > 0))
        return path_fail(err, "restoring", runtime_reset_dirs[i]);
    if (!runtime_reset_stat_dir(runtime_reset_dirs[i], &mode, &blocks, &inodes) || mode != b->mode[i] ||
        blocks != b->blocks[i] || inodes != b->inodes[i])
        return err_set(err, ERR_BUSY, "%s: its free space or inodes differ from before the claim",
                       runtime_reset_dirs[i]);
    return 0;
}

static int runtime_reset_next_dir(struct runtime *rt, struct runtime_reset *r, struct err *err)
{
    const struct runtime_reset_baseline *b = &rt->reset_baseline;

    if (r->removal)
        removal_free(take_ptr(&r->removal));
    for (; r->dir_index < RESET_DIRS; r->dir_index++) {
        if (!b->dir_exists[r->dir_index])
            continue; /* it does not exist */
        r->removal = removal_of_contents(runtime_reset_dirs[r->dir_index]);
        return r->removal ? 1 : path_fail(err, "emptying", runtime_reset_dirs[r->dir_index]);
    }
    return 0;
}

/* 1: there is more to do. */
static int runtime_reset_empty_dirs(struct runtime *rt, struct runtime_reset *r, struct err *err)
{
    uint64_t removed = 0;

    if (!r->removal)
        return runtime_reset_next_dir(rt, r, err);
    int more = removal_step(r->removal, &removed);
    if (more < 0)
        return path_fail(err, "emptying", runtime_reset_dirs[r->dir_index]);
    if (more > 0)
        return 1;
    r->found.files += removed;
    if (runtime_reset_restore_dir(&rt->reset_baseline, r->dir_index, err) < 0)
        return -1;
    r->dir_index++;
    return runtime_reset_next_dir(rt, r, err);
}

/* --- request --- */

static int runtime_reset_finish(struct runtime *rt, struct runtime_reset *r, struct err *err)
{
    uint32_t sockets, known = rt->reset_baseline.sockets;

    if (runtime_reset_remove_sysv(&r->found, err) < 0)
        return -1;
    if (runtime_reset_count_sockets(&sockets) < 0)
        return err_sys(err, ERR_SYS, "/proc/self/net");
    r->found.sockets = sockets > known ? sockets - known : 0;
    r->found.altered = runtime_reset_self_altered(&rt->reset_baseline);
    snapshot_free(take_ptr(&rt->snapshot));
    runtime_claim_forget(rt);
    explicit_bzero(runtime_scratch_buffer(), FRAME_PAYLOAD_MAX);
    rt->resetting = false;
    return 0;
}

static bool runtime_reset_step(struct runtime_stream *s)
{
    struct runtime *rt = runtime_of_stream(s);
    struct runtime_reset *r = s->obj;
    struct err err = { 0 };
    int more = runtime_reset_empty_dirs(rt, r, &err);

    if (more > 0)
        return true;
    if (more < 0 || runtime_reset_finish(rt, r, &err) < 0) {
        runtime_stream_fail(s, &err);
        return false;
    }
    int n = rt_reset_encode(&r->found, runtime_scratch_buffer(), NULL);
    assert(n >= 0);
    runtime_stream_send_last(s, FRAME_DONE, runtime_scratch_buffer(), (size_t)n);
    return false;
}

static void runtime_reset_release(struct runtime_stream *s)
{
    struct runtime_reset *r = s->obj;

    removal_free(r->removal);
    free(r);
}

static const struct runtime_stream_ops runtime_reset_ops = { .step = runtime_reset_step,
                                                             .release = runtime_reset_release };

int runtime_reset_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_reset found = { 0 };

    if (f->len != 0)
        return err_set(err, ERR_PROTOCOL, "RESET has no payload");
    /* Otherwise it would kill processes and remove files outside the sandbox. */
    if (~rt->measured_walls & (RT_WALL_PID_NS | RT_WALL_ROOT_RO))
        return err_set(err, ERR_DENIED, "RESET is only possible in PID 1 of a sandbox with a read-only root");
    if (!rt->reset_baseline.is_recorded)
        return err_set(err, ERR_DENIED, "this sandbox has no baseline from before its claim");
    rt->resetting = true;
    rt->claimed = false;
    found.full = stats_full_filesystems() != 0;
    if (runtime_reset_kill_all(rt, &found, err) < 0)
        return -1;
    interpreter_drop(rt);
    for (struct runtime_stream *o = rt->streams.first, *next; o; o = next) {
        next = o->next;
        if (o != s)
            runtime_stream_close(o);
    }
    struct runtime_reset *r = mem_new(struct runtime_reset);
    r->found = found;
    s->obj = r;
    s->ops = &runtime_reset_ops;
    runtime_stream_wake(s);
    return 0;
}
