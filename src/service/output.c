/* Output of executions, in plain files: <id>.1 and <id>.2 for stdout and stderr, <id>.3 for the
 * events of a context.
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
 * terminal that shows no new output is noticed.
 *
 * A program may write before its row is committed, and a kill in between would leave files that no
 * retention ever finds. So until then the files are called <id>.1.new and <id>.2.new, and the next
 * manager looks up what became of each. */
#include "service/service_internal.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NAME_SIZE (ID_SIZE + sizeof(".1.new"))
#define UNPUNCHED_RINGS 16u

static void output_file_name(char ret[NAME_SIZE], const char *id, int channel, bool unnamed)
{
    snprintf(ret, NAME_SIZE, "%s.%d%s", id, channel, unnamed ? ".new" : "");
}

static int output_open_file(const struct manager *m, const char *id, int channel, bool unnamed, int flags)
{
    char name[NAME_SIZE];

    output_file_name(name, id, channel, unnamed);
    return openat(m->output_dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int manager_open_output(struct manager *m, const char *id, int channel)
{
    if (!id_valid(id, "ex")) {
        errno = ENOENT;
        return -1;
    }
    int fd = output_open_file(m, id, channel, false, O_RDONLY);
    return fd >= 0 || errno != ENOENT ? fd : output_open_file(m, id, channel, true, O_RDONLY);
}

/* --- names --- */

static int output_set_final_name(const struct manager *m, const char *id, int channel)
{
    char from[NAME_SIZE], to[NAME_SIZE];

    output_file_name(from, id, channel, true);
    output_file_name(to, id, channel, false);
    return renameat(m->output_dir, from, m->output_dir, to);
}

static void output_remove_file(const struct manager *m, const char *id, int channel, bool unnamed)
{
    char name[NAME_SIZE];

    output_file_name(name, id, channel, unnamed);
    if (unlinkat(m->output_dir, name, 0) < 0 && errno != ENOENT)
        log_warn("output %s: %s", name, strerror(errno));
}

void output_set_final_names(struct execution *ex, bool has_row)
{
    const struct manager *m = ex->sandbox->manager;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        if (!ex->output.has_temp_name[i])
            continue;
        ex->output.has_temp_name[i] = false;
        if (!has_row)
            output_remove_file(m, ex->id, i + 1, true);
        else if (output_set_final_name(m, ex->id, i + 1) < 0)
            log_error("output %s.%d: cannot rename it from its .new name: %s", ex->id, i + 1, strerror(errno));
    }
}

struct output_temp_lookup {
    struct manager *manager;
    char id[ID_SIZE];
};

static void output_on_temp_looked_up(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    auto_free struct output_temp_lookup *s = arg;

    for (int i = 1; i <= OUTPUT_CHANNELS; i++)
        if (!err)
            (void)output_set_final_name(s->manager, s->id, i);
        else if (err->id == ERR_MISSING)
            output_remove_file(s->manager, s->id, i, true);
}

void output_resolve_temp_files(struct manager *m)
{
    int fd = openat(m->output_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        char id[ID_SIZE] = { 0 };

        if (strlen(e->d_name) != NAME_SIZE - 2 || !str_ends(e->d_name, ".new"))
            continue;
        memcpy(id, e->d_name, ID_SIZE - 1);
        if (!id_valid(id, "ex"))
            continue;
        struct output_temp_lookup *s = mem_new(struct output_temp_lookup);
        s->manager = m;
        memcpy(s->id, id, sizeof(s->id));
        store_execution_get(m->store, STORE_ANY_OWNER, id, output_on_temp_looked_up, s);
    }
    if (dir)
        closedir(dir);
    else
        fd_close(&fd);
}

/* --- bytes --- */

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
    struct manager *m = ex->sandbox->manager;
    int *fd = &o->fd[channel - 1];
    bool refused = o->stream.lost[0] + o->stream.lost[1] + o->stream.lost[2] > 0;
    uint64_t size = o->stream.kept[channel - 1];
    size_t done = 0, room;

    if (*fd < 0 && !refused) {
        *fd = output_open_file(m, ex->id, channel, !ex->row_inserted, O_WRONLY | O_CREAT | O_APPEND);
        o->has_temp_name[channel - 1] = *fd >= 0 && !ex->row_inserted;
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
    m->stats.output_bytes += done;
    m->stats.output_lost_bytes += len - done;
    if (done < len && !refused)
        log_error("output of %s: no more is stored: %s", ex->id, strerror(errno));
    if (o->ring_bytes && channel == 1)
        output_punch_old(ex, size + done);
    return done;
}

static size_t output_write_event(void *arg, const struct kernel_event *e UNUSED, const struct buf *json)
{
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
    struct stat st;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        if (ex->output.fd[i] >= 0)
            continue;
        /* In case it was not renamed before the kill. */
        (void)output_set_final_name(ex->sandbox->manager, ex->id, i + 1);
        ex->output.fd[i] = output_open_file(ex->sandbox->manager, ex->id, i + 1, false, O_WRONLY | O_APPEND);
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

void output_remove(const struct manager *m, const char *id)
{
    for (int i = 1; i <= OUTPUT_CHANNELS; i++)
        output_remove_file(m, id, i, false);
}

bool output_parse_file_name(const char *name, char ret_id[ID_SIZE])
{
    size_t len = strlen(name);

    if (len != ID_SIZE + 1 || (!str_ends(name, ".1") && !str_ends(name, ".2") && !str_ends(name, ".3")))
        return false;
    memcpy(ret_id, name, ID_SIZE - 1);
    ret_id[ID_SIZE - 1] = '\0';
    return id_valid(ret_id, "ex");
}

void output_file_sizes(const struct manager *m, const char *id, uint64_t ret[3])
{
    char name[NAME_SIZE];
    struct stat st;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        (void)output_set_final_name(m, id, i + 1);
        output_file_name(name, id, i + 1, false);
        ret[i] = fstatat(m->output_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
    }
}
