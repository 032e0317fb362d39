/* Every job is one stream: a request, bytes in one direction at most, a last word. What a request may be answered with
 * is a table, so that an answer of the wrong kind is seen for what it is and ends the sandbox.
 *
 * Invariants:
 * 1. on_done once, or never after files_free.
 * 2. A name from a list cannot lead anywhere: it is not empty, holds no slash, and is neither "." nor "..". The path of
 *    an event leads downwards from what is watched; the decoder sees to that. */
#include "engine/files.h"

#include "base/mem.h"
#include "base/str.h"
#include "engine/inside.h"

enum answer_kind { ANSWER_COUNTS, ANSWER_ENTRY };
enum data_kind { DATA_NONE, DATA_BYTES, DATA_ENTRIES, DATA_EVENTS };

struct request {
    uint8_t type;
    bool sends; /* DATA from us */
    enum data_kind data;
    enum answer_kind answer;
};

static const struct request requests[] = {
    { FRAME_READ, false, DATA_BYTES, ANSWER_ENTRY },    { FRAME_WRITE, true, DATA_NONE, ANSWER_COUNTS },
    { FRAME_LIST, false, DATA_ENTRIES, ANSWER_COUNTS }, { FRAME_STAT, false, DATA_NONE, ANSWER_ENTRY },
    { FRAME_MKDIR, false, DATA_NONE, ANSWER_COUNTS },   { FRAME_MOVE, false, DATA_NONE, ANSWER_COUNTS },
    { FRAME_REMOVE, false, DATA_NONE, ANSWER_COUNTS },  { FRAME_TAR_OUT, false, DATA_BYTES, ANSWER_COUNTS },
    { FRAME_TAR_IN, true, DATA_NONE, ANSWER_COUNTS },   { FRAME_WATCH, false, DATA_EVENTS, ANSWER_COUNTS },
};

struct files_job {
    const struct request *req;
    struct stream *stream; /* NULL after the last word */
    struct ev *ev;
    const struct files_ops *ops; /* NULL after files_free */
    void *arg;
    bool hold, write_wanted, send_ended;
    size_t held;
    uint64_t bytes, entries;
    char *base; /* watch: the directory that paths of events are relative to, without a slash at its end */
    bool watching;
    struct ev_defer defer;
};

/* --- frames --- */

static void tell(struct files_job *j, const struct files_done *d, const struct err *err)
{
    j->stream = NULL;
    if (j->ops && j->ops->on_done)
        j->ops->on_done(j->arg, d, err);
}

static bool kind_known(char kind)
{
    return kind != '\0' && strchr("fdlpscb", kind) != NULL;
}

static bool name_plain(const char *name)
{
    return name[0] != '\0' && !strchr(name, '/') && !str_eq(name, ".") && !str_eq(name, "..");
}

static void give_entry(struct files_job *j, const struct rt_entry *e)
{
    struct files_entry out = { .kind = e->kind,
                               .mode = e->mode & 07777,
                               .size = e->size,
                               .mtime_ns = e->mtime_ns,
                               .name = e->name,
                               .target = e->target };

    if (j->ops && j->ops->on_entry)
        j->ops->on_entry(j->arg, &out);
}

static bool on_entries(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_entry *e = mem_new(struct rt_entry);
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    while (u.pos < u.len && j->ops) {
        if (!rt_entry_unpack(&u, e) || !kind_known(e->kind) || !name_plain(e->name))
            return false;
        j->entries++;
        give_entry(j, e);
    }
    return true;
}

static char *absolute(const struct files_job *j, const char *path)
{
    return path[0] || !j->base[0] ? str_printf("%s/%s", j->base, path) : str_printf("%s", j->base);
}

static void cut_slash(char *path, bool leaf)
{
    size_t len = strlen(path);

    while (len > 0 && path[len - 1] == '/')
        path[--len] = '\0';
    if (leaf && len > 0)
        *strrchr(path, '/') = '\0';
}

static void give_event(struct files_job *j, const struct rt_event *e)
{
    static const char kinds[] = { RT_WATCHING, RT_CREATED, RT_WRITTEN, RT_REMOVED, RT_MOVED, RT_OVERFLOW, '\0' };
    auto_free char *path = absolute(j, e->path);
    auto_free char *from = e->kind == RT_MOVED ? absolute(j, e->from) : NULL;
    struct files_event out = {
        .kind = (enum files_event_kind)(strchr(kinds, e->kind) - kinds), .dir = e->dir, .path = path, .from = from
    };

    if (j->ops && j->ops->on_event)
        j->ops->on_event(j->arg, &out);
}

static bool on_events(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_event *e = mem_new(struct rt_event);
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    while (u.pos < u.len && j->ops && j->base) { /* both go when a callback frees the job */
        if (!rt_event_unpack(&u, e) || j->watching == (e->kind == RT_WATCHING))
            return false;
        give_event(j, e);
        if (e->kind == RT_WATCHING && j->base)
            cut_slash(j->base, !e->dir);
        j->watching = true;
    }
    return true;
}

static bool on_data(struct files_job *j, const struct frame *f)
{
    if (j->req->data == DATA_NONE || (f->flags & RT_CHANNEL) != 0)
        return false;
    j->bytes += f->len;
    if (j->req->data == DATA_ENTRIES) {
        if (!on_entries(j, f))
            return false;
    } else if (j->req->data == DATA_EVENTS) {
        if (!on_events(j, f))
            return false;
    } else if (f->len > 0 && j->ops && j->ops->on_data) {
        j->ops->on_data(j->arg, f->data, f->len);
    }
    if (!j->stream)
        return true; /* given up by the callback */
    if (j->hold)
        j->held += f->len;
    else
        stream_consumed(j->stream, f->len);
    return true;
}

static bool on_done_entry(struct files_job *j, const struct frame *f)
{
    auto_free struct rt_entry *e = mem_new(struct rt_entry);
    struct files_done done = { .bytes = j->bytes, .files = 1 };
    struct unpack u;

    unpack_init(&u, f->data, f->len);
    if (!rt_entry_unpack(&u, e) || !unpack_end(&u) || !kind_known(e->kind))
        return false;
    give_entry(j, e);
    tell(j, &done, NULL);
    return true;
}

static bool on_done_counts(struct files_job *j, const struct frame *f)
{
    struct rt_done m;

    if (rt_done_decode(f, &m, NULL) < 0)
        return false;
    struct files_done done = { .bytes = m.bytes, .files = m.files, .truncated = m.truncated };
    if (j->req->data != DATA_NONE)
        done.bytes = j->bytes; /* what arrived, not what was said */
    if (j->req->data == DATA_ENTRIES)
        done.files = j->entries;
    tell(j, &done, NULL);
    return true;
}

static bool on_error(struct files_job *j, const struct frame *f)
{
    struct rt_error m;
    struct err err = { 0 };

    if (rt_error_decode(f, &m, NULL) < 0)
        return false;
    engine_error(&m, &err);
    tell(j, NULL, &err);
    return true;
}

static bool on_last_word(struct files_job *j, const struct frame *f)
{
    j->stream = NULL;
    if (f->type == FRAME_ERROR)
        return on_error(j, f);
    if (f->type != FRAME_DONE)
        return false;
    return j->req->answer == ANSWER_ENTRY ? on_done_entry(j, f) : on_done_counts(j, f);
}

static bool on_frame(void *arg, const struct frame *f)
{
    struct files_job *j = arg;
    struct err err;

    if (f->type == FRAME_DATA)
        return on_data(j, f);
    if (f->type == FRAME_STARTED)
        return false;
    if (on_last_word(j, f))
        return true;
    err_set(&err, ERR_PROTOCOL, "the sandbox answered %s with something else", frame_name(j->req->type));
    tell(j, NULL, &err);
    return false;
}

static void on_writable(void *arg)
{
    struct files_job *j = arg;

    if (!j->write_wanted)
        return;
    j->write_wanted = false;
    if (j->ops && j->ops->on_writable)
        j->ops->on_writable(j->arg);
}

static void on_gone(void *arg, const struct err *why)
{
    struct files_job *j = arg;
    struct err ended;

    j->stream = NULL;
    err_set(&ended, ERR_SANDBOX_ENDED, "the sandbox was ended on request");
    if (why) /* an end that somebody asked for has no other reason */
        tell(j, NULL, why->id ? why : &ended);
}

static const struct stream_ops stream_ops = { .on_frame = on_frame, .on_writable = on_writable, .on_gone = on_gone };

/* --- requests --- */

static int open_job(struct box *b, uint8_t type, const uint8_t *payload, int len, const struct files_ops *ops,
                    void *arg, struct files_job **ret, struct err *err)
{
    if (len < 0)
        return -1;
    if (b->state != BOX_READY || !b->wired)
        return err_set(err, ERR_BUSY, "sandbox %s answers no requests at this moment; it may just have ended", b->id);

    struct files_job *j = mem_new(struct files_job);
    j->req = requests;
    while (j->req->type != type)
        j->req++;
    j->ev = b->ev;
    j->ops = ops;
    j->arg = arg;
    j->stream = stream_open(b, type, payload, (uint32_t)len, &stream_ops, j);
    *ret = j;
    return 0;
}

static int open_path(struct box *b, uint8_t type, const char *path, struct rt_path *m, const struct files_ops *ops,
                     void *arg, struct files_job **ret, struct err *err)
{
    PAYLOAD(payload);

    if (path[0] != '/' || !str_copy(m->path, sizeof(m->path), path))
        return err_set(err, ERR_INVALID, "'%.80s' is not an absolute path of at most %d bytes", path, RT_PATH_MAX - 1);
    return open_job(b, type, payload, rt_path_encode(m, payload, err), ops, arg, ret, err);
}

int files_read(struct box *b, const char *path, uint64_t offset, uint64_t length, const struct files_ops *ops,
               void *arg, struct files_job **ret, struct err *err)
{
    struct rt_path m = { .offset = offset, .length = length };

    return open_path(b, FRAME_READ, path, &m, ops, arg, ret, err);
}

int files_read_seen(struct box *b, const char *path, const struct files_entry *seen, uint64_t offset, uint64_t length,
                    const struct files_ops *ops, void *arg, struct files_job **ret, struct err *err)
{
    struct rt_path m = { .offset = offset, .length = length, .flags = rt_version(seen->size, seen->mtime_ns) };

    return open_path(b, FRAME_READ, path, &m, ops, arg, ret, err);
}

int files_write(struct box *b, const char *path, uint32_t mode, uint32_t flags, const struct files_ops *ops, void *arg,
                struct files_job **ret, struct err *err)
{
    struct rt_path m = { .mode = mode, .flags = flags };

    return open_path(b, FRAME_WRITE, path, &m, ops, arg, ret, err);
}

int files_list(struct box *b, const char *path, uint64_t limit, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err)
{
    struct rt_path m = { .length = limit };

    return open_path(b, FRAME_LIST, path, &m, ops, arg, ret, err);
}

int files_stat(struct box *b, const char *path, const struct files_ops *ops, void *arg, struct files_job **ret,
               struct err *err)
{
    struct rt_path m = { 0 };

    return open_path(b, FRAME_STAT, path, &m, ops, arg, ret, err);
}

int files_mkdir(struct box *b, const char *path, uint32_t mode, uint32_t flags, const struct files_ops *ops, void *arg,
                struct files_job **ret, struct err *err)
{
    struct rt_path m = { .mode = mode, .flags = flags };

    return open_path(b, FRAME_MKDIR, path, &m, ops, arg, ret, err);
}

int files_move(struct box *b, const char *from, const char *to, uint32_t flags, const struct files_ops *ops, void *arg,
               struct files_job **ret, struct err *err)
{
    auto_free struct rt_move *m = mem_new(struct rt_move);
    PAYLOAD(payload);

    m->flags = flags;
    if (from[0] != '/' || to[0] != '/' || !str_copy(m->from, sizeof(m->from), from) ||
        !str_copy(m->to, sizeof(m->to), to))
        return err_set(err, ERR_INVALID, "'%.80s' and '%.80s' are not both absolute paths of at most %d bytes", from,
                       to, RT_PATH_MAX - 1);
    return open_job(b, FRAME_MOVE, payload, rt_move_encode(m, payload, err), ops, arg, ret, err);
}

int files_remove(struct box *b, const char *path, uint32_t flags, const struct files_ops *ops, void *arg,
                 struct files_job **ret, struct err *err)
{
    struct rt_path m = { .flags = flags };

    return open_path(b, FRAME_REMOVE, path, &m, ops, arg, ret, err);
}

int files_tar_out(struct box *b, const char *path, const struct files_ops *ops, void *arg, struct files_job **ret,
                  struct err *err)
{
    struct rt_path m = { 0 };

    return open_path(b, FRAME_TAR_OUT, path, &m, ops, arg, ret, err);
}

int files_tar_in(struct box *b, const char *path, const struct files_ops *ops, void *arg, struct files_job **ret,
                 struct err *err)
{
    struct rt_path m = { 0 };

    return open_path(b, FRAME_TAR_IN, path, &m, ops, arg, ret, err);
}

int files_watch(struct box *b, const char *path, uint32_t flags, const struct files_ops *ops, void *arg,
                struct files_job **ret, struct err *err)
{
    struct rt_path m = { .flags = flags };

    if (open_path(b, FRAME_WATCH, path, &m, ops, arg, ret, err) < 0)
        return -1;
    (*ret)->base = str_printf("%s", path);
    cut_slash((*ret)->base, false);
    return 0;
}

/* --- what the caller does with a job --- */

_Static_assert(FILES_PARENTS == RT_PATH_PARENTS && FILES_EXCL == RT_PATH_EXCL, "flags travel as they are");
_Static_assert(FILES_RECURSIVE == RT_PATH_RECURSIVE && FILES_MISSING_OK == RT_PATH_MISSING_OK, "likewise");

size_t files_send(struct files_job *j, const void *data, size_t len)
{
    if (!j->stream || !j->req->sends || j->send_ended)
        return 0;
    size_t n = stream_write(j->stream, 0, data, len);
    j->write_wanted = n < len;
    return n;
}

void files_send_end(struct files_job *j)
{
    if (!j->stream || !j->req->sends || j->send_ended)
        return;
    j->send_ended = true;
    stream_send(j->stream, FRAME_DATA, RT_END, NULL, 0);
}

void files_hold(struct files_job *j, bool hold)
{
    size_t n = hold ? 0 : j->held;

    j->hold = hold;
    if (n == 0)
        return;
    j->held = 0;
    if (j->stream)
        stream_consumed(j->stream, n);
}

void files_free(struct files_job *j)
{
    if (!j)
        return;
    j->ops = NULL;
    free(take_ptr(&j->base));
    if (j->stream)
        stream_cancel(j->stream);
    j->stream = NULL;
    engine_release(j->ev, &j->defer, j);
}
