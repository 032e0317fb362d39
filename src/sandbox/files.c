/* Every job is one stream: a request, bytes in at most one direction, and a last frame. A table
 * lists the allowed answers of each request, so that an answer of the wrong kind is detected and
 * ends the sandbox.
 *
 * Invariants:
 * 1. on_done is called once, or never after files_free.
 * 2. A name from a list cannot lead anywhere: it is not empty, contains no slash, and is neither
 *    "." nor "..". The path of an event always leads downwards from the watched path; the
 *    decoder ensures that. */
#include "sandbox/files.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine_internal.h"

enum files_answer_kind { FILES_ANSWER_COUNTS, FILES_ANSWER_ENTRY };
enum files_data_kind { FILES_DATA_NONE, FILES_DATA_BYTES, FILES_DATA_ENTRIES, FILES_DATA_EVENTS };

struct files_protocol {
    uint8_t type;
    bool sends; /* DATA goes to the sandbox */
    enum files_data_kind data;
    enum files_answer_kind answer;
};

static const struct files_protocol files_protocols[] = {
    [FILES_OP_READ] = { FRAME_READ, false, FILES_DATA_BYTES, FILES_ANSWER_ENTRY },
    [FILES_OP_WRITE] = { FRAME_WRITE, true, FILES_DATA_NONE, FILES_ANSWER_COUNTS },
    [FILES_OP_LIST] = { FRAME_LIST, false, FILES_DATA_ENTRIES, FILES_ANSWER_COUNTS },
    [FILES_OP_STAT] = { FRAME_STAT, false, FILES_DATA_NONE, FILES_ANSWER_ENTRY },
    [FILES_OP_MKDIR] = { FRAME_MKDIR, false, FILES_DATA_NONE, FILES_ANSWER_COUNTS },
    [FILES_OP_MOVE] = { FRAME_MOVE, false, FILES_DATA_NONE, FILES_ANSWER_COUNTS },
    [FILES_OP_REMOVE] = { FRAME_REMOVE, false, FILES_DATA_NONE, FILES_ANSWER_COUNTS },
    [FILES_OP_TAR_OUT] = { FRAME_TAR_OUT, false, FILES_DATA_BYTES, FILES_ANSWER_COUNTS },
    [FILES_OP_TAR_IN] = { FRAME_TAR_IN, true, FILES_DATA_NONE, FILES_ANSWER_COUNTS },
    [FILES_OP_WATCH] = { FRAME_WATCH, false, FILES_DATA_EVENTS, FILES_ANSWER_COUNTS },
};

struct files_job {
    const struct files_protocol *protocol; /* of its operation */
    struct sandbox_stream *stream;         /* NULL after the last frame */
    struct ev *ev;
    const struct files_ops *ops; /* NULL after files_free */
    void *arg;
    bool credit_held, write_wanted, send_ended;
    size_t uncredited_bytes;
    uint64_t bytes, entries;
    char *watch_base; /* watch: the directory that event paths are relative to, without a trailing slash */
    bool watching;
    struct ev_defer defer;
};

/* --- frames --- */

static void files_job_finish(struct files_job *j, const struct files_done *d, const struct err *err)
{
    j->stream = NULL;
    if (j->ops && j->ops->on_done)
        j->ops->on_done(j->arg, d, err);
}

static bool files_kind_is_known(char kind)
{
    return kind != '\0' && strchr("fdlpscb", kind) != NULL;
}

static bool files_name_is_plain(const char *name)
{
    return name[0] != '\0' && !strchr(name, '/') && !str_eq(name, ".") && !str_eq(name, "..");
}

static void files_deliver_entry(struct files_job *j, const struct rt_entry *e)
{
    struct files_entry out = { .kind = e->kind,
                               .mode = e->mode & 07777,
                               .size = e->size,
                               .mtime_ns = e->mtime_ns,
                               .version = e->version,
                               .settled = e->settled,
                               .name = e->name,
                               .target = e->target };

    if (j->ops && j->ops->on_entry)
        j->ops->on_entry(j->arg, &out);
}

static bool files_on_entries(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_entry *e = mem_new(struct rt_entry);
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    while (u.pos < u.len && j->ops) {
        if (!rt_entry_unpack(&u, e) || !files_kind_is_known(e->kind) || !files_name_is_plain(e->name))
            return false;
        j->entries++;
        files_deliver_entry(j, e);
    }
    return true;
}

static char *files_absolute_path(const struct files_job *j, const char *path)
{
    return path[0] || !j->watch_base[0] ? str_printf("%s/%s", j->watch_base, path) : str_printf("%s", j->watch_base);
}

static void files_trim_watch_base(char *path, bool leaf)
{
    size_t len = strlen(path);

    while (len > 0 && path[len - 1] == '/')
        path[--len] = '\0';
    if (leaf && len > 0)
        *strrchr(path, '/') = '\0';
}

static void files_deliver_event(struct files_job *j, const struct rt_event *e)
{
    static const char kinds[] = { RT_WATCHING, RT_CREATED, RT_WRITTEN, RT_REMOVED, RT_MOVED, RT_OVERFLOW, '\0' };
    auto_free char *path = files_absolute_path(j, e->path);
    auto_free char *from = e->kind == RT_MOVED ? files_absolute_path(j, e->from) : NULL;
    struct files_event out = { .kind = (enum files_event_kind)(strchr(kinds, e->kind) - kinds),
                               .is_directory = e->dir,
                               .path = path,
                               .from = from };

    if (j->ops && j->ops->on_event)
        j->ops->on_event(j->arg, &out);
}

static bool files_on_events(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_event *e = mem_new(struct rt_event);
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    while (u.pos < u.len && j->ops && j->watch_base) { /* both become NULL when a callback frees the job */
        if (!rt_event_unpack(&u, e) || j->watching == (e->kind == RT_WATCHING))
            return false;
        files_deliver_event(j, e);
        if (e->kind == RT_WATCHING && j->watch_base)
            files_trim_watch_base(j->watch_base, !e->dir);
        j->watching = true;
    }
    return true;
}

static bool files_on_data(struct files_job *j, const struct frame *f)
{
    if (j->protocol->data == FILES_DATA_NONE || (f->flags & RT_CHANNEL) != 0)
        return false;
    j->bytes += f->len;
    if (j->protocol->data == FILES_DATA_ENTRIES) {
        if (!files_on_entries(j, f))
            return false;
    } else if (j->protocol->data == FILES_DATA_EVENTS) {
        if (!files_on_events(j, f))
            return false;
    } else if (f->len > 0 && j->ops && j->ops->on_data) {
        j->ops->on_data(j->arg, f->data, f->len);
    }
    if (!j->stream)
        return true; /* freed by the callback */
    if (j->credit_held)
        j->uncredited_bytes += f->len;
    else
        sandbox_stream_consumed(j->stream, f->len);
    return true;
}

static bool files_on_done_entry(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_entry *e = mem_new(struct rt_entry);
    struct files_done done = { .bytes = j->bytes, .files = 1 };
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    if (!rt_entry_unpack(&u, e) || !unpack_end(&u) || !files_kind_is_known(e->kind))
        return false;
    files_deliver_entry(j, e);
    files_job_finish(j, &done, NULL);
    return true;
}

static bool files_on_done_counts(struct files_job *j, const struct frame *f)
{
    struct rt_done m;

    if (rt_done_decode(f, &m, NULL) < 0)
        return false;
    struct files_done done = { .bytes = m.bytes, .files = m.files, .truncated = m.truncated };
    if (j->protocol->data != FILES_DATA_NONE)
        done.bytes = j->bytes; /* what arrived, not what the sandbox reported */
    if (j->protocol->data == FILES_DATA_ENTRIES)
        done.files = j->entries;
    files_job_finish(j, &done, NULL);
    return true;
}

static bool files_on_error(struct files_job *j, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    if (rt_error_decode(f, &m, NULL) < 0)
        return false;
    rt_error_to_err(&m, &err);
    files_job_finish(j, NULL, &err);
    return true;
}

static bool files_on_last_frame(struct files_job *j, const struct frame *f)
{
    j->stream = NULL;
    if (f->type == FRAME_ERROR)
        return files_on_error(j, f);
    if (f->type != FRAME_DONE)
        return false;
    return j->protocol->answer == FILES_ANSWER_ENTRY ? files_on_done_entry(j, f) : files_on_done_counts(j, f);
}

static bool files_on_frame(void *arg, const struct frame *f)
{
    struct files_job *j = arg;
    struct err err;

    if (f->type == FRAME_DATA)
        return files_on_data(j, f);
    if (f->type == FRAME_STARTED)
        return false;
    if (files_on_last_frame(j, f))
        return true;
    err_set(&err, ERR_PROTOCOL, "the sandbox gave an invalid answer to %s", frame_name(j->protocol->type));
    files_job_finish(j, NULL, &err);
    return false;
}

static void files_on_writable(void *arg)
{
    struct files_job *j = arg;

    if (!j->write_wanted)
        return;
    j->write_wanted = false;
    if (j->ops && j->ops->on_writable)
        j->ops->on_writable(j->arg);
}

static void files_on_stream_gone(void *arg, const struct err *why)
{
    struct files_job *j = arg;
    struct err ended;

    j->stream = NULL;
    err_set(&ended, ERR_SANDBOX_ENDED, "the sandbox was ended on request");
    if (why) /* why is empty for an end on request */
        files_job_finish(j, NULL, why->id ? why : &ended);
}

static const struct sandbox_stream_ops files_stream_ops = { .on_frame = files_on_frame,
                                                            .on_writable = files_on_writable,
                                                            .on_gone = files_on_stream_gone };

/* --- requests --- */

static int files_encode_path(const struct files_request *r, uint8_t *payload, struct err *err)
{
    struct rt_path m = { .offset = r->offset, .length = r->length, .mode = r->mode, .flags = r->flags };

    if (r->seen)
        m.flags |= rt_file_version_check(r->seen->version);
    if (r->path[0] != '/' || !str_copy(m.path, sizeof(m.path), r->path))
        return err_set(err, ERR_INVALID, "'%.80s' is not an absolute path of at most %d bytes", r->path,
                       RT_PATH_MAX - 1);
    return rt_path_encode(&m, payload, err);
}

static int files_encode_move(const struct files_request *r, uint8_t *payload, struct err *err)
{
    auto_free struct rt_move *m = mem_new(struct rt_move);

    m->flags = r->flags;
    if (r->path[0] != '/' || r->move_to[0] != '/' || !str_copy(m->from, sizeof(m->from), r->path) ||
        !str_copy(m->to, sizeof(m->to), r->move_to))
        return err_set(err, ERR_INVALID, "'%.80s' and '%.80s' are not both absolute paths of at most %d bytes", r->path,
                       r->move_to, RT_PATH_MAX - 1);
    return rt_move_encode(m, payload, err);
}

int files_open(struct sandbox_handle *b, const struct files_request *r, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err)
{
    PAYLOAD(payload);
    int len = r->operation == FILES_OP_MOVE ? files_encode_move(r, payload, err) : files_encode_path(r, payload, err);

    if (len < 0)
        return -1;
    if (b->state != SANDBOX_HANDLE_READY || !b->is_connected)
        return err_set(err, ERR_BUSY, "sandbox %s answers no requests now; it may just have ended", b->id);

    struct files_job *j = mem_new(struct files_job);
    j->protocol = &files_protocols[r->operation];
    j->ev = b->ev;
    j->ops = ops;
    j->arg = arg;
    if (r->operation == FILES_OP_WATCH) {
        j->watch_base = str_dup(r->path);
        files_trim_watch_base(j->watch_base, false);
    }
    j->stream = sandbox_stream_open(b, j->protocol->type, payload, (uint32_t)len, &files_stream_ops, j);
    *ret = j;
    return 0;
}

/* --- operations on a job --- */

_Static_assert(FILES_PARENTS == RT_PATH_PARENTS && FILES_EXCL == RT_PATH_EXCL, "same flags on the wire");
_Static_assert(FILES_RECURSIVE == RT_PATH_RECURSIVE && FILES_MISSING_OK == RT_PATH_MISSING_OK,
               "same flags on the wire");

size_t files_send(struct files_job *j, const void *data, size_t len)
{
    if (!j->stream || !j->protocol->sends || j->send_ended)
        return 0;
    size_t n = sandbox_stream_write(j->stream, 0, data, len);
    j->write_wanted = n < len;
    return n;
}

void files_send_end(struct files_job *j)
{
    if (!j->stream || !j->protocol->sends || j->send_ended)
        return;
    j->send_ended = true;
    sandbox_stream_send_frame(j->stream, FRAME_DATA, RT_END, NULL, 0);
}

void files_hold_credit(struct files_job *j, bool hold)
{
    size_t n = hold ? 0 : j->uncredited_bytes;

    j->credit_held = hold;
    if (n == 0)
        return;
    j->uncredited_bytes = 0;
    if (j->stream)
        sandbox_stream_consumed(j->stream, n);
}

void files_free(struct files_job *j)
{
    if (!j)
        return;
    j->ops = NULL;
    free(take_ptr(&j->watch_base));
    if (j->stream)
        sandbox_stream_cancel(j->stream);
    j->stream = NULL;
    driver_free_deferred(j->ev, &j->defer, j);
}
