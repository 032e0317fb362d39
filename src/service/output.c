/* Output of executions, in the plain files of output_dir.h.
 *
 * A byte is in its file before the sandbox gets credit for it, and a file only grows. So everything
 * that a reader was shown is there after a kill, and the lengths of the files say exactly where a
 * resumed execution continues. If the disk refuses, the bytes are lost but the execution continues:
 * lost bytes are counted and reported.
 *
 * A terminal may write for days. The beginning of its file is given back to the disk (a hole is
 * punched), so that offsets stay valid and about the last ring_bytes bytes are kept. The file
 * itself shows where data begins. A file system that cannot punch holes keeps the beginning, up to
 * a limit, and later output is lost as on a full disk: a sandbox must not fill the host, and a
 * terminal that shows no new output is noticed. */
#include "service/execution_internal.h"

#include "core/base/fd.h"
#include "core/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/stat.h>

#define UNPUNCHED_RINGS 16u

int manager_open_output(struct manager *m, const char *id, int channel)
{
    return output_dir_open_for_read(manager_sandbox_services(m)->executions->output_dir, id, channel);
}

void output_set_final_names(struct execution *ex, bool has_row)
{
    const struct output_dir *dir = ex->sandbox->services->executions->output_dir;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        if (!ex->output.has_temp_name[i])
            continue;
        ex->output.has_temp_name[i] = false;
        if (!has_row)
            output_dir_remove_temp_file(dir, ex->id, i + 1);
        else if (output_dir_set_final_name(dir, ex->id, i + 1) < 0)
            log_error("output %s.%d: cannot rename it from its .new name: %s", ex->id, i + 1, strerror(errno));
    }
}

static void output_punch_old(struct execution *ex, uint64_t size)
{
    struct stored_output *o = &ex->output;
    uint64_t from = o->discarded_bytes, to = (size - o->ring_bytes) & ~(uint64_t)4095;

    if (size < from + o->ring_bytes + o->ring_bytes / 4)
        return;
    if (fallocate(o->fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) == 0) {
        o->discarded_bytes = to;
        return;
    }
    o->file_bytes_max = max_u64(o->ring_bytes * UNPUNCHED_RINGS, size);
    log_warn("output of terminal %s: the file system cannot punch holes, so output after %" PRIu64 " bytes is lost: %s",
             ex->id, o->file_bytes_max, strerror(errno));
    o->ring_bytes = 0;
}

/* How much of the data may be stored in a file that has this size. */
static size_t output_writable_bytes(const struct stored_output *o, int channel, uint64_t size, size_t len)
{
    if (channel != 1 || !o->file_bytes_max)
        return len;
    errno = EFBIG; /* for the log line of the caller */
    return (size_t)min_u64(len, o->file_bytes_max - min_u64(o->file_bytes_max, size));
}

uint64_t output_first_kept_offset(int fd, uint64_t offset)
{
    off_t data = lseek(fd, (off_t)offset, SEEK_DATA);

    /* -1 at the end of the file, or without support for holes. */
    return data > (off_t)offset ? (uint64_t)data : offset;
}

/* The sink of the stream. */
static size_t output_write(void *arg, int channel, const void *data, size_t len)
{
    struct execution *ex = arg;
    struct stored_output *o = &ex->output;
    const struct executions *x = ex->sandbox->services->executions;
    int *fd = &o->fd[channel - 1];
    bool refused = o->stream.lost[0] + o->stream.lost[1] + o->stream.lost[2] > 0;
    uint64_t size = o->stream.kept[channel - 1];
    bool temp = ex->row != EXECUTION_ROW_COMMITTED;
    size_t done = 0, room;

    if (channel == 2 || (channel == 1 && ex->spec.tty))
        failure_add_output(&ex->failure, data, len);
    if (*fd < 0 && !refused) {
        *fd = output_dir_open_file(x->output_dir, ex->id, channel, temp, O_WRONLY | O_CREAT | O_APPEND);
        o->has_temp_name[channel - 1] = *fd >= 0 && temp;
    }
    while (done < len && *fd >= 0 && !refused &&
           (room = output_writable_bytes(o, channel, size + done, len - done)) > 0) {
        ssize_t n = write(*fd, (const char *)data + done, room);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    x->stats->output_bytes += done;
    x->stats->output_lost_bytes += len - done;
    if (done < len && !refused)
        log_error("output of %s: no more is stored: %s", ex->id, strerror(errno));
    if (o->ring_bytes && channel == 1)
        output_punch_old(ex, size + done);
    return done;
}

static size_t output_write_event(void *arg, const struct kernel_event *e, const struct buf *json)
{
    struct execution *ex = arg;

    if (e->kind == KERNEL_EVENT_ERROR)
        failure_hint_add_event(&ex->failure, e);
    return output_write(arg, OUTPUT_EVENTS, json->data, json->len);
}

void output_init(struct execution *ex)
{
    static const struct output_sink sink = { .event_end = "\n",
                                             .write = output_write,
                                             .write_event = output_write_event };

    ex->output = (struct stored_output){ .stream = { .sink = &sink, .arg = ex, .limit = OUTPUT_UNLIMITED },
                                         .fd = { -1, -1, -1 } };
}

int output_open_existing(struct execution *ex)
{
    const struct output_dir *dir = ex->sandbox->services->executions->output_dir;
    struct stat st;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        if (ex->output.fd[i] >= 0)
            continue;
        /* In case it was not renamed before the kill. */
        (void)output_dir_set_final_name(dir, ex->id, i + 1);
        ex->output.fd[i] = output_dir_open_file(dir, ex->id, i + 1, false, O_WRONLY | O_APPEND);
        if (ex->output.fd[i] < 0 && errno == ENOENT)
            continue;
        if (ex->output.fd[i] < 0 || fstat(ex->output.fd[i], &st) < 0)
            return -1;
        ex->output.stream.kept[i] = (uint64_t)st.st_size;
        if (i == 0)
            ex->output.discarded_bytes = output_first_kept_offset(ex->output.fd[0], 0);
    }
    return 0;
}

void output_close(struct execution *ex)
{
    for (int i = 0; i < OUTPUT_CHANNELS; i++)
        fd_close(&ex->output.fd[i]);
}
