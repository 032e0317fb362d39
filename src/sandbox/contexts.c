/* What is asked of contexts, and what is written down of them: a list in the row of their sandbox, without variables,
 * which may be secrets. */
#include "sandbox/contexts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define ASK_NS (10 * NS_PER_S)
#define ASKS_MAX 8u

/* --- written down --- */

void contexts_json(const struct sb *sb, struct jsonw *w)
{
    jsonw_key(w, "contexts");
    jsonw_array(w);
    for (const struct cx *cx = sb->contexts; cx; cx = cx->next) {
        jsonw_object(w);
        jsonw_kstr(w, "id", cx->id);
        jsonw_kstr(w, "language", cx_language(cx));
        jsonw_kstr(w, "version", cx->version);
        jsonw_ku64(w, "stream", cx->exec ? exec_stream(cx->exec) : 0);
        jsonw_ku64(w, "createdMs", cx->created_ms);
        jsonw_kstr(w, "createdBy", cx->created_by);
        if (cx->cwd)
            jsonw_kstr(w, "cwd", cx->cwd);
        if (cx->forked_from[0])
            jsonw_kstr(w, "forkedFrom", cx->forked_from);
        jsonw_kbool(w, "hadEnv", cx->env_lost || (cx->env && cx->env[0]));
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static int read_one(struct sb *sb, const json_t *o, struct err *err)
{
    const char *id = NULL, *language = NULL, *version = NULL, *by = NULL, *cwd = NULL, *from = NULL;
    uint64_t stream = 0, created = 0;
    bool had_env = false;

    if (!json_is_object(o) || body_text(o, "", "id", 1, ID_SIZE - 1, &id, err) < 0 ||
        body_text(o, "", "language", 1, 16, &language, err) < 0 ||
        body_text(o, "", "version", 0, 63, &version, err) < 0 ||
        body_text(o, "", "createdBy", 0, ID_SIZE - 1, &by, err) < 0 ||
        body_text(o, "", "cwd", 1, 4096, &cwd, err) < 0 ||
        body_text(o, "", "forkedFrom", 1, ID_SIZE - 1, &from, err) < 0 ||
        body_u64(o, "", "stream", 0, UINT32_MAX, &stream, NULL, err) < 0 ||
        body_u64(o, "", "createdMs", 0, UINT64_MAX, &created, NULL, err) < 0 ||
        body_bool(o, "", "hadEnv", &had_env, err) < 0)
        return -1;
    if (!id || !id_valid(id, "cx") || !language || !context_language(language))
        return err_set(err, ERR_STORE_CORRUPT, "a context that cannot be read");
    struct cx *cx = cx_new(sb, id, language);
    cx->stream = (uint32_t)stream;
    cx->created_ms = created;
    cx->env_lost = had_env;
    cx->cwd = cwd ? str_dup(cwd) : NULL;
    snprintf(cx->version, sizeof(cx->version), "%s", version ? version : "");
    snprintf(cx->created_by, sizeof(cx->created_by), "%s", by ? by : "");
    snprintf(cx->forked_from, sizeof(cx->forked_from), "%s", from ? from : "");
    cx->state = CONTEXT_DEAD;
    return 0;
}

int contexts_read(struct sb *sb, const json_t *root, struct err *err)
{
    json_t *list = NULL;

    if (body_array(root, "", "contexts", CONTEXTS_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (read_one(sb, json_array_get(list, i), err) < 0)
            return -1;
    return 0;
}

struct note {
    struct sb *sb;
    uint64_t seq;
};

static void on_noted(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    auto_free struct note *n = arg;
    struct cx *next;

    if (err)
        log_warn("contexts of %s were not written down: %s", n->sb->id, err->msg);
    for (struct cx *cx = n->sb->contexts; cx; cx = next) {
        next = cx->next;
        if (cx->noted && cx->noted <= n->seq) {
            cx->noted = 0;
            cx_tell(cx, WAIT_READY, err);
        }
    }
}

/* A sandbox goes after its last row was written, and calls are answered in their order: it is there when this is. */
void contexts_store(struct sb *sb)
{
    struct store_sandbox row = { 0 };
    struct note *n = mem_new(struct note);

    if (sb->state == SB_ENDING || !sb->inserted) {
        free(n);
        return;
    }
    auto_free char *spec = sb_spec_json(sb);
    memcpy(row.id, sb->id, sizeof(row.id));
    row.spec_json = spec;
    n->sb = sb;
    n->seq = ++sb->contexts_seq;
    store_sandbox_update(sb->m->store, sb->owner, &row, STORE_SB_SET_SPEC,
                         &(struct store_when){ .states = STORE_SB_LIVE }, on_noted, n);
}

/* --- after a restart of the server --- */

/* How long what runs in it may still run: a call's own time, or a sandbox's where none is known to have begun. */
static uint64_t time_left_ms(const struct cx *cx)
{
    uint64_t left = cx->sb->spec.limits.v[LIMIT_WALL];

    for (const struct ex *ex = cx->sb->execs; ex; ex = ex->next) {
        uint64_t now = now_ms(), since = now > ex->started_ms ? now - ex->started_ms : 0;
        uint64_t ran = min_u64(since, call_elapsed_ms(ex)); /* the one counts pauses, the other its time in the queue */

        if (str_eq(ex->context, cx->id) && ex->started_ms)
            left = ex->spec.wall_ms > ran ? ex->spec.wall_ms - ran : 1;
    }
    return left;
}

/* What it wrote, up to the kill, is kept. What comes from now on cannot be told from what is kept already. */
static void lose(struct ex *ex)
{
    struct err lost;

    if (ex->started_ms)
        err_set(&lost, ERR_LOST,
                "the server was restarted while it ran: its context goes on with it, but how it ends is not told");
    else
        err_set(&lost, ERR_LOST, "the server was restarted before it was known to have begun");
    ex_end(ex, STORE_EX_FAILED, NULL, &lost);
}

void contexts_adopt(struct sb *sb)
{
    for (struct cx *cx = sb->contexts; cx; cx = cx->next) {
        struct err err = { 0 };

        cx->left_ms = time_left_ms(cx);
        if (!cx->stream)
            err_set(&err, ERR_CONTEXT_DEAD, "context %s had no kernel when the server was restarted", cx->id);
        if (!cx->stream || cx_resume(cx, &err) < 0)
            cx_die(cx, &err);
    }
    for (struct ex *ex = sb->execs, *next; ex; ex = next) {
        next = ex->next;
        if (ex->context[0])
            lose(ex);
    }
}

void contexts_end(struct sb *sb, const struct err *why)
{
    for (struct cx *cx = sb->contexts; cx; cx = cx->next) {
        while (cx->asks)
            cx_ask_over(cx->asks, why, NULL);
        for (int what = WAIT_READY; what <= WAIT_GONE; what++)
            cx_tell(cx, what, why);
    }
}

/* --- asking --- */

int manager_contexts(const struct manager *m, const char *owner, const char *sandbox,
                     struct context_info ret[CONTEXTS_MAX], size_t *ret_n, struct err *err)
{
    const struct sb *sb = sb_find(m, owner, sandbox);

    if (!sb && !m->loaded)
        return err_set(err, ERR_BUSY, "the server has just started and is still finding its sandboxes");
    if (!sb)
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (sb->state == SB_ENDING) {
        sb_ended_error(sb, err);
        return -1;
    }
    *ret_n = 0;
    for (const struct cx *cx = sb->contexts; cx && *ret_n < CONTEXTS_MAX; cx = cx->next)
        cx_info(cx, &ret[(*ret_n)++]);
    return 0;
}

enum order_kind { ORDER_CREATE, ORDER_FORK, ORDER_EXECUTE, ORDER_INTERRUPT, ORDER_RESTART, ORDER_DELETE, ORDER_ASK };

struct order { /* until the sandbox is awake */
    struct manager *m;
    char owner[STORE_OWNER_MAX + 1], sandbox[ID_SIZE], id[ID_SIZE], new_id[ID_SIZE];
    enum order_kind kind;
    char language[16];
    char *cwd, *code;
    char **env;
    char created_by[ID_SIZE];
    struct ex *ex;
    bool inspect;
    uint64_t cursor;
    context_fn *done;
    store_execution_fn *executed;
    context_asked_fn *asked;
    void *arg;
};

static void order_free(struct order *o)
{
    free(o->cwd);
    free(o->code);
    spec_env_free(o->env);
    free(o);
}

static void refuse(const struct order *o, const struct err *err)
{
    if (o->executed)
        o->executed(o->arg, err, NULL);
    else if (o->asked)
        o->asked(o->arg, err, NULL);
    else
        o->done(o->arg, err, NULL);
}

/* There is room for one more, of this id unless it is "". */
static int may_add(const struct sb *sb, const char *id, struct err *err)
{
    size_t n = 0;

    for (const struct cx *cx = sb->contexts; cx; cx = cx->next)
        n++;
    if (n >= CONTEXTS_MAX)
        return err_set(err, ERR_LIMIT, "sandbox %s has %zu contexts already, and no more at one time: delete one",
                       sb->id, n);
    if (id[0] && cx_find(sb, id))
        return err_set(err, ERR_IDEMPOTENCY, "context %s is being made already", id);
    return 0;
}

static int create(struct order *o, struct sb *sb, struct err *err)
{
    if (may_add(sb, o->id, err) < 0)
        return -1;
    struct cx *cx = cx_new(sb, o->id[0] ? o->id : NULL, o->language);
    cx->env = take_ptr(&o->env);
    cx->cwd = take_ptr(&o->cwd);
    memcpy(cx->created_by, o->created_by, sizeof(cx->created_by));
    if (cx_start(cx, err) < 0) {
        cx_free(cx);
        return -1;
    }
    cx->fresh = true;
    cx_wait_for(cx, WAIT_READY, o->done, o->arg);
    return 0;
}

/* Not behind what runs or waits: whoever asks means the state that they know. */
static int fork_(struct order *o, struct cx *of, struct err *err)
{
    struct sb *sb = of->sb;

    if (of->state != CONTEXT_IDLE || of->asks || of->out.len > 0)
        return err_set(err, ERR_EXISTS, "context %s is %s: fork it when it is idle", of->id,
                       of->state == CONTEXT_IDLE ? "answering a question" : context_states[of->state]);
    if (may_add(sb, o->new_id, err) < 0)
        return -1;
    struct cx *cx = cx_new(sb, o->new_id[0] ? o->new_id : NULL, cx_language(of));
    cx->env = ex_copy_list((const char *const *)of->env);
    cx->env_lost = of->env_lost;
    cx->cwd = of->cwd ? str_dup(of->cwd) : NULL;
    memcpy(cx->created_by, o->created_by, sizeof(cx->created_by));
    memcpy(cx->forked_from, of->id, sizeof(cx->forked_from));
    if (cx_fork(cx, of, err) < 0) {
        cx_free(cx);
        return -1;
    }
    cx->fresh = true;
    cx_wait_for(cx, WAIT_READY, o->done, o->arg);
    return 0;
}

static void on_late_answer(void *arg)
{
    struct cx_ask *a = arg;
    struct err err;

    err_set(&err, ERR_TIMEOUT, "context %s did not answer within %llu s", a->cx->id, ASK_NS / NS_PER_S);
    cx_ask_over(a, &err, NULL);
}

static void ask_kernel(struct cx_ask *a, const char *code, uint64_t cursor)
{
    auto_buf line = { 0 };
    struct jsonw w;

    a->next = a->cx->asks;
    a->cx->asks = a;
    jsonw_init(&w, &line, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "op", a->inspect ? "inspect" : "complete");
    jsonw_kstr(&w, "id", a->id);
    jsonw_kstr(&w, "code", code);
    jsonw_ku64(&w, "cursor", cursor);
    jsonw_end_object(&w);
    buf_adds(&line, "\n");
    cx_send(a->cx, line.data, line.len);
}

static int ask(struct order *o, struct cx *cx, struct err *err)
{
    size_t n = 0;

    for (const struct cx_ask *a = cx->asks; a; a = a->next)
        n++;
    if (cx->state != CONTEXT_IDLE || n >= ASKS_MAX)
        return err_set(err, ERR_EXISTS, "context %s is %s: ask when it is idle", cx->id, context_states[cx->state]);
    struct cx_ask *a = mem_new(struct cx_ask);
    *a = (struct cx_ask){ .cx = cx, .inspect = o->inspect, .done = o->asked, .arg = o->arg };
    snprintf(a->id, sizeof(a->id), "q%" PRIu64, ++cx->asked);
    ev_timer_set(cx->sb->m->ev, &a->timer, ev_now(cx->sb->m->ev) + ASK_NS, on_late_answer, a);
    ask_kernel(a, o->code, o->cursor);
    return 0;
}

static void on_settled(void *arg, const struct err *err UNUSED, const char *json UNUSED)
{
    struct cx *cx = arg;

    if (!cx->left || cx->sb->state == SB_ENDING)
        return; /* no answer: its kernel has ended */
    ev_timer_clear(cx->sb->m->ev, &cx->clock);
    cx->state = CONTEXT_IDLE;
    cx->outcome = cx->interrupted ? "interrupted" : "finished";
    cx->left = cx->interrupted = false;
    cx_tell(cx, WAIT_CALL, NULL);
    cx->outcome = NULL;
    call_next(cx);
}

/* What it does is not known: rows are written a moment behind it. But it does one thing after another, so when a
 * question is answered it is through with all that was asked before. The id is one that no earlier server took. */
void cx_settle(struct cx *cx)
{
    struct cx_ask *a = mem_new(struct cx_ask);

    *a = (struct cx_ask){ .cx = cx, .done = on_settled, .arg = cx };
    id_new("qs", a->id);
    cx->state = CONTEXT_BUSY;
    cx->left = true;
    cx_send(cx, "\n", 1); /* ends whatever line the earlier server was writing */
    ask_kernel(a, "", 0);
    cx_set_clock(cx, cx->left_ms * NS_PER_MS);
}

static int interrupt(struct order *o, struct cx *cx)
{
    struct context_info info;

    if (cx->state == CONTEXT_BUSY) {
        cx_wait_for(cx, WAIT_CALL, o->done, o->arg);
        cx_interrupt(cx, ENDED_SIGNAL);
        return 0;
    }
    cx_info(cx, &info);
    info.outcome = "idle";
    o->done(o->arg, NULL, &info);
    return 0;
}

/* From here on it takes nothing more. */
static void end_kernel(struct cx *cx)
{
    if (cx->state == CONTEXT_IDLE)
        cx->state = CONTEXT_STARTING;
    cx_end_kernel(cx);
}

static int restart(struct order *o, struct cx *cx, struct err *err)
{
    if (!cx->exec) {
        if (cx_start(cx, err) < 0)
            return -1;
        cx->restarts++;
        cx->executions = 0;
        cx->forked_from[0] = '\0';
    } else if (cx->state != CONTEXT_STARTING) {
        cx->again = true;
        end_kernel(cx);
    }
    cx_wait_for(cx, WAIT_READY, o->done, o->arg);
    return 0;
}

static int delete (struct order *o, struct cx *cx)
{
    struct sb *sb = cx->sb;

    cx->gone = true;
    cx_wait_for(cx, WAIT_GONE, o->done, o->arg);
    if (cx->exec) {
        end_kernel(cx);
        return 0;
    }
    cx_tell(cx, WAIT_GONE, NULL);
    cx_free(cx);
    contexts_store(sb);
    return 0;
}

static int carry_out(struct order *o, struct sb *sb, struct err *err)
{
    if (o->kind == ORDER_CREATE)
        return create(o, sb, err);
    struct cx *cx = cx_find(sb, o->id);
    if (!cx || cx->gone)
        return err_set(err, ERR_MISSING, "there is no such context in this sandbox");
    if (cx->state == CONTEXT_DEAD && o->kind != ORDER_RESTART && o->kind != ORDER_DELETE) {
        *err = cx->why;
        return -1;
    }
    switch (o->kind) {
    case ORDER_CREATE:
        break;
    case ORDER_FORK:
        return fork_(o, cx, err);
    case ORDER_EXECUTE:
        return call_add(cx, take_ptr(&o->ex), err);
    case ORDER_INTERRUPT:
        return interrupt(o, cx);
    case ORDER_RESTART:
        return restart(o, cx, err);
    case ORDER_DELETE:
        return delete (o, cx);
    case ORDER_ASK:
        return ask(o, cx, err);
    }
    return 0;
}

static void on_box(void *arg, struct box *box UNUSED, const struct err *err)
{
    struct order *o = arg;
    struct err why = { 0 };

    if (err) {
        refuse(o, err);
    } else {
        struct sb *sb = sb_find(o->m, o->owner, o->sandbox);

        if (!sb)
            err_set(&why, ERR_MISSING, "there is no such sandbox");
        if (!sb || carry_out(o, sb, &why) < 0)
            refuse(o, &why);
        manager_release(o->m, o->sandbox);
    }
    if (o->ex)
        ex_free(o->ex);
    order_free(o);
}

static struct order *order_new(struct manager *m, const char *owner, const char *sandbox, const char *id,
                               enum order_kind kind, void *arg)
{
    struct order *o = mem_new(struct order);

    o->m = m;
    o->kind = kind;
    o->arg = arg;
    snprintf(o->owner, sizeof(o->owner), "%s", owner);
    snprintf(o->sandbox, sizeof(o->sandbox), "%s", sandbox);
    snprintf(o->id, sizeof(o->id), "%s", id ? id : "");
    return o;
}

void manager_context_create(struct manager *m, const char *owner, const char *sandbox, const char *id,
                            const struct context_spec *spec, context_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, id, ORDER_CREATE, arg);

    o->done = done;
    snprintf(o->language, sizeof(o->language), "%s", spec->language);
    if (spec->cwd)
        o->cwd = spec->cwd[0] == '/' ? str_dup(spec->cwd) : str_printf("/workspace/%s", spec->cwd);
    o->env = ex_copy_list(spec->env);
    snprintf(o->created_by, sizeof(o->created_by), "%s", spec->created_by ? spec->created_by : "");
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_fork(struct manager *m, const char *owner, const char *sandbox, const char *of, const char *id,
                          const char *created_by, context_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, of, ORDER_FORK, arg);

    o->done = done;
    snprintf(o->new_id, sizeof(o->new_id), "%s", id ? id : "");
    snprintf(o->created_by, sizeof(o->created_by), "%s", created_by ? created_by : "");
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_interrupt(struct manager *m, const char *owner, const char *sandbox, const char *id,
                               context_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, id, ORDER_INTERRUPT, arg);

    o->done = done;
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_restart(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             context_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, id, ORDER_RESTART, arg);

    o->done = done;
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_delete(struct manager *m, const char *owner, const char *sandbox, const char *id, context_fn *done,
                            void *arg)
{
    struct order *o = order_new(m, owner, sandbox, id, ORDER_DELETE, arg);

    o->done = done;
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *context,
                             const char *id, const struct context_call *call, store_execution_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, context, ORDER_EXECUTE, arg);

    o->executed = done;
    o->ex = call_new(id, call, done, arg);
    manager_use(m, owner, sandbox, on_box, o);
}

void manager_context_ask(struct manager *m, const char *owner, const char *sandbox, const char *id, bool inspect,
                         const char *code, uint64_t cursor, context_asked_fn *done, void *arg)
{
    struct order *o = order_new(m, owner, sandbox, id, ORDER_ASK, arg);

    o->asked = done;
    o->inspect = inspect;
    o->code = str_dup(code);
    o->cursor = cursor;
    manager_use(m, owner, sandbox, on_box, o);
}
