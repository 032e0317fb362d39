/* Requests with one answer and no byte stream. */
#include "inside/runtime/files.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#endif

static uint64_t file_timespec_ns(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * NS_PER_S + (uint64_t)t->tv_nsec;
}

uint64_t file_clock_ns(void)
{
    struct timespec now = { 0 };

    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return file_timespec_ns(&now);
}

/* Every write sets ctime, and no program can set it to a chosen value. The kernel takes it from a
 * clock that advances by ticks, so two writes within one tick leave it equal (on all file systems
 * before Linux 6.13). Once that clock has passed ctime, the next write changes it. A file system
 * that stores whole seconds needs two more seconds. On tmpfs, stores to a shared mapping do not
 * update the times, so they do not change the version either. */
void file_entry_set_version(struct rt_entry *e, const struct stat *st, uint64_t looked_ns)
{
    uint64_t changed_ns = file_timespec_ns(&st->st_ctim);
    uint64_t grain_ns = st->st_ctim.tv_nsec ? 0 : 2 * NS_PER_S;

    e->version = rt_file_version(st->st_ino, e->size, e->mtime_ns, changed_ns);
    e->settled = looked_ns > changed_ns + grain_ns;
}

void file_entry_fill(struct rt_entry *e, const struct stat *st, int fd, const char *name)
{
    e->kind = path_kind(st->st_mode);
    e->mode = st->st_mode & 07777;
    e->size = (uint64_t)st->st_size;
    e->mtime_ns = file_timespec_ns(&st->st_mtim);
    e->version = e->settled = 0;
    e->target[0] = '\0';
    if (e->kind == 'l') {
        ssize_t n = readlinkat(fd, name, e->target, sizeof(e->target) - 1);

        e->target[n > 0 ? n : 0] = '\0';
    }
}

int file_stat_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    struct rt_entry e;
    struct stat st;
    struct pack p;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    auto_fd int fd = path_open(&rt->paths, m.path, O_PATH | O_NOFOLLOW, err);
    if (fd < 0)
        return -1;
    uint64_t now = file_clock_ns();
    if (fstat(fd, &st) < 0)
        return path_fail(err, "examining", m.path);
    file_entry_fill(&e, &st, fd, "");
    file_entry_set_version(&e, &st, now);
    memcpy(e.name, m.path, sizeof(e.name));
    pack_init(&p, runtime_scratch_buffer(), FRAME_PAYLOAD_MAX);
    rt_entry_pack(&p, &e);
    runtime_stream_send_last(s, FRAME_DONE, runtime_scratch_buffer(), p.len);
    return 0;
}

int dir_make_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    char leaf[PATH_NAME_SIZE];
    struct rt_path m;
    struct stat st;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    mode_t mode = m.mode ? m.mode & 0777u : 0755u;
    auto_fd int dir = path_parent(&rt->paths, m.path, m.flags & RT_PATH_PARENTS, leaf, err);
    if (dir < 0)
        return -1;
    if (mkdirat(dir, leaf, 0700) == 0) {
        if (path_set_mode(dir, leaf, mode) < 0) /* independent of the umask of PID 1 */
            return path_fail(err, "setting the mode of", m.path);
    } else {
        int sys = errno;
        bool is_dir = sys == EEXIST && fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);

        errno = sys;
        if (!is_dir || m.flags & RT_PATH_EXCL)
            return path_fail(err, "making", m.path);
    }
    runtime_stream_done(s, &(struct rt_done){ 0 });
    return 0;
}

int file_move_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    char from_leaf[PATH_NAME_SIZE], to_leaf[PATH_NAME_SIZE];
    auto_free struct rt_move *m = mem_new(struct rt_move);

    if (rt_move_decode(f, m, err) < 0)
        return -1;
    auto_fd int from = path_parent(&rt->paths, m->from, false, from_leaf, err);
    if (from < 0)
        return -1;
    auto_fd int to = path_parent(&rt->paths, m->to, m->flags & RT_PATH_PARENTS, to_leaf, err);
    if (to < 0)
        return -1;
    unsigned how = m->flags & RT_PATH_EXCL ? RENAME_NOREPLACE : 0;
    if (syscall(SYS_renameat2, from, from_leaf, to, to_leaf, how) < 0) {
        if (errno == EXDEV)
            return err_sys(err, ERR_EXISTS, "%.80s and %.80s are on different file systems; copy the file instead",
                           m->from, m->to);
        return path_fail(err, "moving to", m->to);
    }
    runtime_stream_done(s, &(struct rt_done){ 0 });
    return 0;
}
