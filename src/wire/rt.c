/* Each message is one walk over its fields, used by both directions (walk.h). Checks stand behind the fields they are
 * about and say what the struct's comments in rt.h promise, so neither side can be handed a value that the other was
 * not allowed to send. */
#include "wire/rt.h"

#include "wire/walk.h"

#define SIGNAL_MAX 64 /* highest of the kernel's */
#define MODE_MASK 07777u

uint32_t rt_version(uint64_t size, uint64_t mtime_ns)
{
    uint64_t x = (size ^ mtime_ns * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u; /* odd, so nothing is lost before >> */

    return (uint32_t)(x >> 32) | 1u;
}

uint32_t rt_window(uint8_t request)
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

/* connection */

static void rt_hello_walk(struct walk *w, struct rt_hello *m)
{
    walk_u32(w, &m->version); /* any: the receiver answers a wrong one with VERSION */
    walk_u64(w, &m->epoch);
    walk_u32(w, &m->features);
}
WALK_CODEC(rt_hello);

static void rt_number_walk(struct walk *w, struct rt_number *m)
{
    walk_u32(w, &m->value);
}
WALK_CODEC(rt_number);

static void rt_resume_walk(struct walk *w, struct rt_resume *m)
{
    walk_u8(w, &m->request);
    walk_u64(w, &m->out);
    walk_u64(w, &m->in);
}
WALK_CODEC(rt_resume);

static void rt_error_walk(struct walk *w, struct rt_error *m)
{
    walk_u32(w, &m->id);
    walk_check(w, m->id > ERR_NONE && m->id < ERR_COUNT, "error id");
    walk_i32(w, &m->sys);
    walk_str(w, m->msg, sizeof(m->msg), "message");
}
WALK_CODEC(rt_error);

/* the sandbox */

static bool is_access(uint8_t access)
{
    unsigned what = access & ~RT_ACCESS_OPTIONAL;

    return what >= RT_ACCESS_READ && what <= RT_ACCESS_LIST;
}

static void rt_claim_walk(struct walk *w, struct rt_claim *m)
{
    walk_str(w, m->id, sizeof(m->id), "id");
    walk_check(w, id_valid(m->id, "sb"), "id");
    walk_raw(w, m->entropy, sizeof(m->entropy));
    walk_u32(w, &m->landlock_min);
    walk_u32(w, &m->walls);
    uint32_t n = walk_count(w, &m->nrules, RT_RULES_MAX, "rules");
    for (uint32_t i = 0; i < n; i++) {
        struct rt_rule *r = &m->rules[i];

        walk_u8(w, &r->access);
        walk_check(w, is_access(r->access), "access");
        walk_text(w, &r->path, RT_RULE_PATH_MAX, "rule path");
    }
    walk_list(w, &m->env, "environment");
}

static void rt_claimed_walk(struct walk *w, struct rt_claimed *m)
{
    walk_u32(w, &m->walls);
    walk_u32(w, &m->landlock_abi);
}
WALK_CODEC(rt_claimed);

static void rt_stats_walk(struct walk *w, struct rt_stats *m)
{
    walk_u32(w, &m->processes);
    walk_u32(w, &m->executions);
    walk_u64(w, &m->workspace_bytes);
    walk_u64(w, &m->workspace_bytes_max);
    walk_u64(w, &m->workspace_files);
    walk_u64(w, &m->workspace_files_max);
    walk_u64(w, &m->tmp_bytes);
    walk_u64(w, &m->tmp_bytes_max);
}
WALK_CODEC(rt_stats);

static void rt_reset_walk(struct walk *w, struct rt_reset *m)
{
    walk_u32(w, &m->processes);
    walk_u32(w, &m->objects);
    walk_u64(w, &m->files);
    walk_u32(w, &m->sockets);
    walk_u8(w, &m->altered);
    walk_check(w, m->altered <= 1, "altered");
    walk_u8(w, &m->full);
    walk_check(w, m->full <= 1, "full");
}
WALK_CODEC(rt_reset);

/* processes */

static void rt_exec_walk(struct walk *w, struct rt_exec *m)
{
    const uint32_t started = RT_EXEC_TTY | RT_EXEC_STDIN, other = RT_EXEC_JOINED | RT_EXEC_FORKED;

    walk_u32(w, &m->flags);
    walk_check(w, (m->flags & ~(started | RT_EXEC_KERNEL | other)) == 0 && (m->flags & other) != other, "flags");
    walk_check(w, !(m->flags & RT_EXEC_KERNEL) || !(m->flags & RT_EXEC_TTY), "flags");
    walk_check(w, !(m->flags & other) || (m->flags & (RT_EXEC_KERNEL | RT_EXEC_STDIN)) == RT_EXEC_KERNEL, "flags");
    walk_u16(w, &m->rows);
    walk_u16(w, &m->cols);
    if (m->flags & RT_EXEC_FORKED)
        walk_u32(w, &m->of);
    walk_text(w, &m->cwd, RT_PATH_MAX - 1, "directory");
    walk_list(w, &m->argv, "arguments");
    walk_check(w, walk_failed(w) || (m->argv && m->argv[0]), "arguments");
    walk_list(w, &m->env, "environment");
}

static void rt_signal_walk(struct walk *w, struct rt_signal *m)
{
    walk_u32(w, &m->signo);
    walk_check(w, m->signo >= 1 && m->signo <= SIGNAL_MAX, "signal");
    walk_u8(w, &m->scope);
    walk_check(w, m->scope <= RT_SCOPE_TREE, "scope");
}
WALK_CODEC(rt_signal);

static void rt_resize_walk(struct walk *w, struct rt_resize *m)
{
    walk_u16(w, &m->rows);
    walk_u16(w, &m->cols);
}
WALK_CODEC(rt_resize);

static void rt_exit_walk(struct walk *w, struct rt_exit *m)
{
    walk_i32(w, &m->code);
    walk_i32(w, &m->signal);
    walk_check(w, m->code >= -1 && m->code <= 255, "exit code");
    walk_check(w, m->signal >= 0 && m->signal <= SIGNAL_MAX && (m->signal != 0) == (m->code == -1), "signal");
    walk_u64(w, &m->user_us);
    walk_u64(w, &m->sys_us);
    walk_u64(w, &m->max_rss);
    walk_u64(w, &m->read_bytes);
    walk_u64(w, &m->write_bytes);
    walk_u64(w, &m->tasks_started);
    walk_u64(w, &m->full);
    walk_check(w, (m->full & ~(uint64_t)RT_FULL_ALL) == 0, "full places");
}
WALK_CODEC(rt_exit);

/* files */

static bool is_file_kind(char c)
{
    return c != '\0' && strchr("fdlpscb", c);
}

static void rt_path_walk(struct walk *w, struct rt_path *m)
{
    walk_str(w, m->path, sizeof(m->path), "path");
    walk_u64(w, &m->offset);
    walk_u64(w, &m->length);
    walk_u32(w, &m->mode);
    walk_check(w, (m->mode & ~MODE_MASK) == 0, "mode");
    walk_u32(w, &m->flags);
}
WALK_CODEC(rt_path);

static void rt_move_walk(struct walk *w, struct rt_move *m)
{
    walk_str(w, m->from, sizeof(m->from), "path");
    walk_str(w, m->to, sizeof(m->to), "path");
    walk_u32(w, &m->flags);
}
WALK_CODEC(rt_move);

static void rt_done_walk(struct walk *w, struct rt_done *m)
{
    walk_u64(w, &m->bytes);
    walk_u64(w, &m->files);
    walk_u64(w, &m->added);
    walk_u64(w, &m->modified);
    walk_u64(w, &m->deleted);
    walk_u64(w, &m->skipped);
    walk_u8(w, &m->truncated);
    walk_check(w, m->truncated <= 1, "truncated");
}
WALK_CODEC(rt_done);

static void rt_entry_walk(struct walk *w, struct rt_entry *e)
{
    walk_char(w, &e->kind);
    walk_check(w, is_file_kind(e->kind), "kind");
    walk_u32(w, &e->mode);
    walk_check(w, (e->mode & ~MODE_MASK) == 0, "mode");
    walk_u64(w, &e->size);
    walk_u64(w, &e->mtime_ns);
    walk_str(w, e->name, sizeof(e->name), "name");
    walk_str(w, e->target, sizeof(e->target), "target");
}

static void rt_change_walk(struct walk *w, struct rt_change *c)
{
    walk_char(w, &c->kind);
    walk_check(w, c->kind == RT_ADDED || c->kind == RT_MODIFIED || c->kind == RT_DELETED, "kind");
    walk_char(w, &c->file);
    walk_check(w, is_file_kind(c->file), "file");
    walk_u64(w, &c->size);
    walk_str(w, c->path, sizeof(c->path), "path");
}

/* Made of names that lead downwards, or "". */
static bool is_plain(const char *path)
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

static void rt_event_walk(struct walk *w, struct rt_event *e)
{
    walk_char(w, &e->kind);
    walk_check(w, e->kind != '\0' && strchr("WCMRVO", e->kind), "kind");
    walk_u8(w, &e->dir);
    walk_check(w, e->dir <= 1, "directory");
    walk_str(w, e->path, sizeof(e->path), "path");
    walk_check(w, is_plain(e->path), "path");
    walk_str(w, e->from, sizeof(e->from), "path");
    walk_check(w, is_plain(e->from) && (e->kind == RT_MOVED) == (e->from[0] != '\0'), "path");
}

#define WALK_ITEM(m)                                    \
    void m##_pack(struct pack *p, const struct m *item) \
    {                                                   \
        struct walk w = { .out = p };                   \
        size_t start = p->len;                          \
                                                        \
        m##_walk(&w, (struct m *)(uintptr_t)item);      \
        if (p->bad)                                     \
            p->len = start; /* never half an item */    \
    }                                                   \
                                                        \
    bool m##_unpack(struct unpack *u, struct m *ret)    \
    {                                                   \
        struct walk w = { .in = u };                    \
                                                        \
        m##_walk(&w, ret);                              \
        return !u->bad;                                 \
    }                                                   \
    struct m

WALK_ITEM(rt_entry);
WALK_ITEM(rt_change);
WALK_ITEM(rt_event);

/* Messages with string lists: as WALK_CODEC, with the memory of the strings handed out. */
#define WALK_CODEC_STRINGS(m, nlists)                                                     \
    WALK_ENCODER(m, RT_ARGS_MAX)                                                          \
    int m##_decode(const struct frame *f, struct m *ret, void **strings, struct err *err) \
    {                                                                                     \
        struct unpack u;                                                                  \
        struct walk w = { .in = &u };                                                     \
        struct m msg = { 0 };                                                             \
                                                                                          \
        unpack_init(&u, f->data, f->len);                                                 \
        auto_free void *memory = walk_strings(&w, nlists, RT_ARGS_MAX);                   \
        m##_walk(&w, &msg);                                                               \
        if (walk_end_decode(&w, f, err) < 0)                                              \
            return -1;                                                                    \
        *ret = msg;                                                                       \
        *strings = take_ptr(&memory);                                                     \
        return 0;                                                                         \
    }                                                                                     \
    struct m

WALK_CODEC_STRINGS(rt_claim, 1);
WALK_CODEC_STRINGS(rt_exec, 2);
