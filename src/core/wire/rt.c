/* Each message is one list of its fields, used in both directions (codec.h). A check follows the
 * field it applies to and enforces the comment of that field in rt.h, so neither side can receive a
 * value that the other was not allowed to send. */
#include "core/wire/rt.h"

#include "core/base/str.h"
#include "core/wire/codec.h"

#define SIGNAL_MAX 64 /* the kernel's highest signal */
#define MODE_MASK 07777u

uint64_t rt_file_version(uint64_t inode, uint64_t size, uint64_t mtime_ns, uint64_t ctime_ns)
{
    const uint64_t parts[] = { inode, size, mtime_ns, ctime_ns };
    uint64_t x = 0;

    for (size_t i = 0; i < ARRAY_LEN(parts); i++) { /* splitmix64: every step is reversible */
        x = (x ^ parts[i]) + 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return x;
}

uint32_t rt_file_version_check(uint64_t version)
{
    return (uint32_t)(version >> 32) | 1u;
}

uint32_t rt_initial_window(uint8_t request)
{
    switch (request) {
    case FRAME_READ:
    case FRAME_WRITE:
    case FRAME_TAR_OUT:
    case FRAME_TAR_IN:
        return WIRE_WINDOW_BULK;
    default:
        return WIRE_WINDOW;
    }
}

/* Connection. */

static void rt_hello_walk(struct codec *w, struct rt_hello *m)
{
    codec_u32(w, &m->version); /* any: the receiver answers a wrong version with VERSION */
    codec_u64(w, &m->epoch);
    codec_u32(w, &m->features);
}
CODEC_DEFINE(rt_hello);

static void rt_number_walk(struct codec *w, struct rt_number *m)
{
    codec_u32(w, &m->value);
}
CODEC_DEFINE(rt_number);

static void rt_resume_walk(struct codec *w, struct rt_resume *m)
{
    codec_u8(w, &m->request);
    codec_u64(w, &m->out);
    codec_u64(w, &m->in);
}
CODEC_DEFINE(rt_resume);

static void rt_error_walk(struct codec *w, struct rt_error *m)
{
    codec_u32(w, &m->id);
    codec_check(w, m->id > ERR_NONE && m->id < ERR_COUNT, "error id");
    codec_i32(w, &m->sys);
    codec_str(w, m->msg, sizeof(m->msg), "message");
}
CODEC_DEFINE(rt_error);

void rt_error_to_err(const struct rt_error *m, struct err *ret)
{
    enum err_id id = m->id > ERR_NONE && m->id < ERR_COUNT ? (enum err_id)m->id : ERR_BUG;

    err_set(ret, id, "%s", m->msg);
    ret->sys = m->sys;
    str_strip_control_chars(ret->msg);
}

/* The sandbox. */

static bool rt_access_valid(uint8_t access)
{
    unsigned what = access & ~RT_ACCESS_OPTIONAL;

    return what >= RT_ACCESS_READ && what <= RT_ACCESS_LIST;
}

static void rt_claim_walk(struct codec *w, struct rt_claim *m)
{
    codec_str(w, m->id, sizeof(m->id), "id");
    codec_check(w, id_valid(m->id, "sb"), "id");
    codec_raw(w, m->entropy, sizeof(m->entropy));
    codec_u32(w, &m->landlock_min);
    codec_u32(w, &m->walls);
    uint32_t n = codec_count(w, &m->nrules, RT_RULES_MAX, "rules");
    for (uint32_t i = 0; i < n; i++) {
        struct rt_rule *r = &m->rules[i];

        codec_u8(w, &r->access);
        codec_check(w, rt_access_valid(r->access), "access");
        codec_text(w, &r->path, RT_RULE_PATH_MAX, "rule path");
    }
    codec_list(w, &m->env, "environment");
}

static void rt_claimed_walk(struct codec *w, struct rt_claimed *m)
{
    codec_u32(w, &m->walls);
    codec_u32(w, &m->landlock_abi);
}
CODEC_DEFINE(rt_claimed);

static void rt_stats_walk(struct codec *w, struct rt_stats *m)
{
    codec_u32(w, &m->processes);
    codec_u32(w, &m->executions);
    codec_u64(w, &m->workspace_bytes);
    codec_u64(w, &m->workspace_bytes_max);
    codec_u64(w, &m->workspace_files);
    codec_u64(w, &m->workspace_files_max);
    codec_u64(w, &m->tmp_bytes);
    codec_u64(w, &m->tmp_bytes_max);
}
CODEC_DEFINE(rt_stats);

static void rt_reset_walk(struct codec *w, struct rt_reset *m)
{
    codec_u32(w, &m->processes);
    codec_u32(w, &m->objects);
    codec_u64(w, &m->files);
    codec_u32(w, &m->sockets);
    codec_u8(w, &m->altered);
    codec_check(w, m->altered <= 1, "altered");
    codec_u8(w, &m->full);
    codec_check(w, m->full <= 1, "full");
}
CODEC_DEFINE(rt_reset);

/* Processes. */

static void rt_exec_walk(struct codec *w, struct rt_exec *m)
{
    const uint32_t started = RT_EXEC_TTY | RT_EXEC_STDIN, other = RT_EXEC_JOINED | RT_EXEC_FORKED;

    codec_u32(w, &m->flags);
    codec_check(w, (m->flags & ~(started | RT_EXEC_KERNEL | other)) == 0 && (m->flags & other) != other, "flags");
    codec_check(w, !(m->flags & RT_EXEC_KERNEL) || !(m->flags & RT_EXEC_TTY), "flags");
    codec_check(w, !(m->flags & other) || (m->flags & (RT_EXEC_KERNEL | RT_EXEC_STDIN)) == RT_EXEC_KERNEL, "flags");
    codec_u16(w, &m->rows);
    codec_u16(w, &m->cols);
    if (m->flags & RT_EXEC_FORKED)
        codec_u32(w, &m->forked_stream);
    codec_text(w, &m->cwd, RT_PATH_MAX - 1, "directory");
    codec_list(w, &m->argv, "arguments");
    codec_check(w, codec_failed(w) || (m->argv && m->argv[0]), "arguments");
    codec_list(w, &m->env, "environment");
}

static void rt_signal_walk(struct codec *w, struct rt_signal *m)
{
    codec_u32(w, &m->signo);
    codec_check(w, m->signo >= 1 && m->signo <= SIGNAL_MAX, "signal");
    codec_u8(w, &m->scope);
    codec_check(w, m->scope <= RT_SCOPE_TREE, "scope");
}
CODEC_DEFINE(rt_signal);

static void rt_resize_walk(struct codec *w, struct rt_resize *m)
{
    codec_u16(w, &m->rows);
    codec_u16(w, &m->cols);
}
CODEC_DEFINE(rt_resize);

static void rt_exit_walk(struct codec *w, struct rt_exit *m)
{
    codec_i32(w, &m->code);
    codec_i32(w, &m->signal);
    codec_check(w, m->code >= -1 && m->code <= 255, "exit code");
    codec_check(w, m->signal >= 0 && m->signal <= SIGNAL_MAX && (m->signal != 0) == (m->code == -1), "signal");
    codec_u64(w, &m->user_us);
    codec_u64(w, &m->sys_us);
    codec_u64(w, &m->max_rss);
    codec_u64(w, &m->read_bytes);
    codec_u64(w, &m->write_bytes);
    codec_u64(w, &m->tasks_started);
    codec_u64(w, &m->full);
    codec_check(w, (m->full & ~(uint64_t)RT_FULL_ALL) == 0, "full file systems");
}
CODEC_DEFINE(rt_exit);

/* Files. */

static bool rt_file_kind_valid(char c)
{
    return c != '\0' && strchr("fdlpscb", c);
}

static void rt_path_walk(struct codec *w, struct rt_path *m)
{
    codec_str(w, m->path, sizeof(m->path), "path");
    codec_u64(w, &m->offset);
    codec_u64(w, &m->length);
    codec_u32(w, &m->mode);
    codec_check(w, (m->mode & ~MODE_MASK) == 0, "mode");
    codec_u32(w, &m->flags);
}
CODEC_DEFINE(rt_path);

static void rt_move_walk(struct codec *w, struct rt_move *m)
{
    codec_str(w, m->from, sizeof(m->from), "path");
    codec_str(w, m->to, sizeof(m->to), "path");
    codec_u32(w, &m->flags);
}
CODEC_DEFINE(rt_move);

static void rt_done_walk(struct codec *w, struct rt_done *m)
{
    codec_u64(w, &m->bytes);
    codec_u64(w, &m->files);
    codec_u64(w, &m->added);
    codec_u64(w, &m->modified);
    codec_u64(w, &m->deleted);
    codec_u64(w, &m->skipped);
    codec_u8(w, &m->truncated);
    codec_check(w, m->truncated <= 1, "truncated");
}
CODEC_DEFINE(rt_done);

static void rt_entry_walk(struct codec *w, struct rt_entry *e)
{
    codec_char(w, &e->kind);
    codec_check(w, rt_file_kind_valid(e->kind), "kind");
    codec_u32(w, &e->mode);
    codec_check(w, (e->mode & ~MODE_MASK) == 0, "mode");
    codec_u64(w, &e->size);
    codec_u64(w, &e->mtime_ns);
    codec_u64(w, &e->version);
    codec_u8(w, &e->settled);
    codec_check(w, e->settled <= 1, "settled");
    codec_str(w, e->name, sizeof(e->name), "name");
    codec_str(w, e->target, sizeof(e->target), "target");
}

static void rt_change_walk(struct codec *w, struct rt_change *c)
{
    codec_char(w, &c->kind);
    codec_check(w, c->kind == RT_ADDED || c->kind == RT_MODIFIED || c->kind == RT_DELETED, "kind");
    codec_char(w, &c->file);
    codec_check(w, rt_file_kind_valid(c->file), "file");
    codec_u64(w, &c->size);
    codec_str(w, c->path, sizeof(c->path), "path");
}

/* True for "" and for a relative path without empty, "." or ".." components. */
static bool rt_path_is_plain(const char *path)
{
    for (bool last = path[0] == '\0'; !last; path++) {
        size_t n = strcspn(path, "/");

        if (n == 0 || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += n;
        last = *path == '\0';
    }
    return true;
}

static void rt_event_walk(struct codec *w, struct rt_event *e)
{
    codec_char(w, &e->kind);
    codec_check(w, e->kind != '\0' && strchr("WCMRVO", e->kind), "kind");
    codec_u8(w, &e->dir);
    codec_check(w, e->dir <= 1, "directory");
    codec_str(w, e->path, sizeof(e->path), "path");
    codec_check(w, rt_path_is_plain(e->path), "path");
    codec_str(w, e->from, sizeof(e->from), "path");
    codec_check(w, rt_path_is_plain(e->from) && (e->kind == RT_MOVED) == (e->from[0] != '\0'), "path");
}

#define CODEC_DEFINE_ITEM(m)                            \
    void m##_pack(struct pack *p, const struct m *item) \
    {                                                   \
        struct codec w = { .out = p };                  \
        size_t start = p->len;                          \
                                                        \
        m##_walk(&w, (struct m *)(uintptr_t)item);      \
        if (p->bad)                                     \
            p->len = start; /* never a partial item */  \
    }                                                   \
                                                        \
    bool m##_unpack(struct unpack *u, struct m *ret)    \
    {                                                   \
        struct codec w = { .in = u };                   \
                                                        \
        m##_walk(&w, ret);                              \
        return !u->bad;                                 \
    }                                                   \
    struct m

CODEC_DEFINE_ITEM(rt_entry);
CODEC_DEFINE_ITEM(rt_change);
CODEC_DEFINE_ITEM(rt_event);

/* Messages with string lists: as CODEC_DEFINE, and also returns the memory of the strings. */
#define CODEC_DEFINE_WITH_STRINGS(m, nlists)                                              \
    CODEC_DEFINE_ENCODER(m, RT_ARGS_MAX)                                                  \
    int m##_decode(const struct frame *f, struct m *ret, void **strings, struct err *err) \
    {                                                                                     \
        struct unpack u;                                                                  \
        struct codec w = { .in = &u };                                                    \
        struct m msg = { 0 };                                                             \
                                                                                          \
        unpack_init(&u, f->data, f->len);                                                 \
        auto_free void *memory = codec_strings(&w, nlists, RT_ARGS_MAX);                  \
        m##_walk(&w, &msg);                                                               \
        if (codec_end_decode(&w, f, err) < 0)                                             \
            return -1;                                                                    \
        *ret = msg;                                                                       \
        *strings = take_ptr(&memory);                                                     \
        return 0;                                                                         \
    }                                                                                     \
    struct m

CODEC_DEFINE_WITH_STRINGS(rt_claim, 1);
CODEC_DEFINE_WITH_STRINGS(rt_exec, 2);
