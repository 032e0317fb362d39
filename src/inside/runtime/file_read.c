/* A file is read in slices as the host takes them. The number of bytes is fixed at open: a file
 * that grows meanwhile does not extend the request, and a file that shrinks ends it early. Only
 * regular files are read, because others could block or never end. The pseudo-files of /proc are
 * refused too, because a link in the workspace could point to those of PID 1. */
#include "inside/runtime/files.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/vfs.h>

#define PROC_MAGIC 0x9fa0

struct file_read_job {
    int fd;
    uint64_t at, end;
    struct rt_entry entry;
};

static void file_read_finish(struct runtime_stream *s, struct file_read_job *r)
{
    struct pack p;

    runtime_stream_end_channel(s, 0);
    pack_init(&p, runtime_scratch_buffer(), FRAME_PAYLOAD_MAX);
    rt_entry_pack(&p, &r->entry);
    runtime_stream_send_last(s, FRAME_DONE, runtime_scratch_buffer(), p.len);
}

static bool file_read_step(struct runtime_stream *s)
{
    struct file_read_job *r = s->obj;
    size_t room = (size_t)min_u64(runtime_stream_room(s), r->end - r->at);
    struct err err;

    if (r->at == r->end) {
        file_read_finish(s, r);
        return false;
    }
    if (room == 0)
        return false; /* a CREDIT wakes us */
    ssize_t n = pread(r->fd, runtime_scratch_buffer(), room, (off_t)r->at);
    if (n < 0) {
        path_fail(&err, "reading", r->entry.name);
        runtime_stream_fail(s, &err);
        return false;
    }
    if (n == 0)
        r->end = r->at;
    r->at += (uint64_t)n;
    if (n > 0)
        runtime_stream_send_data(s, 0, runtime_scratch_buffer(), (size_t)n);
    return true;
}

static void file_read_release(struct runtime_stream *s)
{
    struct file_read_job *r = s->obj;

    fd_close(&r->fd);
    free(r);
}

static void file_read_rewind(struct runtime_stream *s, size_t n)
{
    ((struct file_read_job *)s->obj)->at -= n;
}

static const struct runtime_stream_ops file_read_ops = { .step = file_read_step,
                                                         .rewind = file_read_rewind,
                                                         .release = file_read_release };

int file_read_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_path m;
    struct statfs fs;
    struct stat st;

    if (rt_path_decode(f, &m, err) < 0)
        return -1;
    auto_fd int fd = path_open(&rt->paths, m.path, O_RDONLY | O_NONBLOCK | O_NOCTTY, err);
    if (fd < 0)
        return -1;
    uint64_t now = file_clock_ns();
    if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
        return path_fail(err, "examining", m.path);
    if (!S_ISREG(st.st_mode) || fs.f_type == PROC_MAGIC)
        return err_set(err, ERR_WRONG_KIND, "%.160s is not a regular file", m.path);

    struct file_read_job *r = mem_new(struct file_read_job);
    uint64_t size = (uint64_t)st.st_size;
    r->at = min_u64(m.offset, size);
    r->end = m.length && m.length < size - r->at ? r->at + m.length : size;
    file_entry_fill(&r->entry, &st, fd, "");
    file_entry_set_version(&r->entry, &st, now);
    memcpy(r->entry.name, m.path, sizeof(r->entry.name));
    r->fd = take_fd(&fd);
    s->obj = r;
    s->ops = &file_read_ops;
    if (m.flags && m.flags != rt_file_version_check(r->entry.version))
        return err_set(err, ERR_BUSY, "%.160s has changed since its version was read; read it again", m.path);
    runtime_stream_wake(s);
    return 0;
}
