/* Requests to contexts, and their stored state: a list in the row of their sandbox, without
 * variables, which may be secrets. */
#include "service/context_internal.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define CONTEXT_QUERY_TIMEOUT_NS (10 * NS_PER_S)
#define CONTEXT_QUERIES_MAX 8u

/* --- stored state --- */

void contexts_json(const struct sandbox *sb, struct jsonw *w)
{
    jsonw_key(w, "contexts");
    jsonw_array(w);
    for (const struct context *cx = sb->contexts; cx; cx = cx->next) {
        if (cx->delete_requested)
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "id", cx->id);
        jsonw_kstr(w, "language", language_kernel_name(&cx->kernel));
        if (cx->is_default)
            jsonw_kbool(w, "default", true);
        jsonw_kstr(w, "version", cx->version);
        jsonw_ku64(w, "stream", cx->kernel.exec ? exec_handle_stream_id(cx->kernel.exec) : 0);
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

static int context_read_json(struct sandbox *sb, const json_t *o, struct err *err)
{
    const char *id = NULL, *language = NULL, *version = NULL, *by = NULL, *cwd = NULL, *from = NULL;
    uint64_t stream = 0, created = 0;
    bool had_env = false, is_default = false;

    if (!json_is_object(o) || json_input_text(o, "", "id", 1, ID_SIZE - 1, &id, err) < 0 ||
        json_input_text(o, "", "language", 1, 16, &language, err) < 0 ||
        json_input_text(o, "", "version", 0, 63, &version, err) < 0 ||
        json_input_text(o, "", "createdBy", 0, ID_SIZE - 1, &by, err) < 0 ||
        json_input_text(o, "", "cwd", 1, 4096, &cwd, err) < 0 ||
        json_input_text(o, "", "forkedFrom", 1, ID_SIZE - 1, &from, err) < 0 ||
        json_input_u64(o, "", "stream", 0, UINT32_MAX, &stream, NULL, err) < 0 ||
        json_input_u64(o, "", "createdMs", 0, UINT64_MAX, &created, NULL, err) < 0 ||
        json_input_bool(o, "", "hadEnv", &had_env, err) < 0 || json_input_bool(o, "", "default", &is_default, err) < 0)
        return -1;
    if (!id || !id_valid(id, "cx") || !language || !language_kernel_language(language))
        return err_set(err, ERR_STORE_CORRUPT, "invalid context");
    struct context *cx = context_new(sb, id, language, is_default);
    cx->resume_stream = (uint32_t)stream;
    cx->created_ms = created;
    cx->env_lost = had_env;
    cx->cwd = cwd ? str_dup(cwd) : NULL;
    snprintf(cx->version, sizeof(cx->version), "%s", version ? version : "");
    snprintf(cx->created_by, sizeof(cx->created_by), "%s", by ? by : "");
    snprintf(cx->forked_from, sizeof(cx->forked_from), "%s", from ? from : "");
    return 0;
}

int contexts_read(struct sandbox *sb, const json_t *root, struct err *err)
{
    json_t *list = NULL;

    if (json_input_array(root, "", "contexts", CONTEXTS_LISTED_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (context_read_json(sb, json_array_get(list, i), err) < 0)
            return -1;
    return 0;
}

struct context_write {
    struct sandbox *sandbox;
    uint64_t seq;
};

static void contexts_on_committed(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    auto_free struct context_write *n = arg;
    struct context *next;

    if (err)
        log_warn("cannot store the contexts of %s: %s", n->sandbox->id, err->msg);
    for (struct context *cx = n->sandbox->contexts; cx; cx = next) {
        next = cx->next;
        if (cx->ready_write_seq && cx->ready_write_seq <= n->seq) {
            cx->ready_write_seq = 0;
            context_notify_waiters(cx, CONTEXT_WAIT_READY, err);
        }
    }
}

/* A sandbox is freed after its last row was committed, and the store answers in order: it still
 * exists when this commit is answered. */
void contexts_commit(struct sandbox *sb)
{
    struct store_sandbox row = { 0 };
    struct context_write *n = mem_new(struct context_write);

    if (sb->state == SANDBOX_STATE_ENDING || !sb->row_inserted) {
        free(n);
        return;
    }
    sandbox_fill_spec_row(sb, &row);
    n->sandbox = sb;
    n->seq = ++sb->contexts_write_seq;
    store_sandbox_update(sb->services->store, sb->owner, &row, STORE_SANDBOX_SET_SPEC,
                         &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, contexts_on_committed, n);
    free(row.spec_json);
}

/* --- after a restart of the server --- */

/* How long the current execution may still run: the rest of its own timeout, or the sandbox's if no
 * execution is known to have started. */
static uint64_t context_time_left_ms(const struct context *cx)
{
    uint64_t left = cx->sandbox->spec.limits.v[LIMIT_WALL];

    for (const struct execution *ex = cx->sandbox->executions; ex; ex = ex->next) {
        uint64_t now = clock_real_ms(), since = now > ex->started_ms ? now - ex->started_ms : 0;
        /* The first includes pauses, the second the time in the queue. */
        uint64_t ran = min_u64(since, context_execution_elapsed_ms(ex));

        if (str_eq(ex->context_id, cx->id) && ex->started_ms)
            left = ex->spec.wall_ms > ran ? ex->spec.wall_ms - ran : 1;
    }
    return left;
}

/* Output up to the kill is kept. Later output cannot be distinguished from the kept part. */
static void context_lose_execution(struct execution *ex)
{
    struct err lost;

    if (ex->started_ms)
        err_set(&lost, ERR_LOST,
                "the server was restarted while it ran: it continues in its context, but its result is lost");
    else
        err_set(&lost, ERR_LOST, "the server was restarted before it was known to have begun");
    execution_end(ex, STORE_EXECUTION_FAILED, NULL, &lost);
}

void contexts_adopt(struct sandbox *sb)
{
    for (struct context *cx = sb->contexts; cx; cx = cx->next) {
        struct err err = { 0 };

        if (!cx->resume_stream)
            err_set(&err, ERR_CONTEXT_DEAD, "context %s had no kernel when the server was restarted", cx->id);
        if (!cx->resume_stream || context_resume_kernel(cx, context_time_left_ms(cx), &err) < 0)
            context_mark_dead(cx, &err);
    }
    for (struct execution *ex = sb->executions, *next; ex; ex = next) {
        next = ex->next;
        if (ex->context_id[0])
            context_lose_execution(ex);
    }
}

void contexts_fail_waiters(struct sandbox *sb, const struct err *why)
{
    for (struct context *cx = sb->contexts; cx; cx = cx->next) {
        while (cx->queries)
            context_query_finish(cx->queries, why, NULL);
        for (int what = CONTEXT_WAIT_READY; what <= CONTEXT_WAIT_DELETED; what++)
            context_notify_waiters(cx, what, why);
    }
}

void contexts_free(struct sandbox *sb)
{
    while (sb->contexts)
        context_free(sb->contexts);
}

/* --- requests --- */

int manager_contexts(const struct manager *m, const char *owner, const char *sandbox,
                     struct context_info ret[CONTEXTS_LISTED_MAX], size_t *ret_n, struct err *err)
{
    const struct sandbox_services *s = manager_sandbox_services(m);
    const struct sandbox *sb = registry_find(s->registry, owner, sandbox);

    if (!sb && !recovery_is_loaded(s->recovery))
        return err_set(err, ERR_BUSY,
                       "the server has just started and is still finding its sandboxes; try again in a moment");
    if (!sb)
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (sb->state == SANDBOX_STATE_ENDING) {
        sandbox_ended_error(sb, err);
        return -1;
    }
    *ret_n = 0;
    for (const struct context *cx = sb->contexts; cx && *ret_n < CONTEXTS_LISTED_MAX; cx = cx->next)
        context_fill_info(cx, &ret[(*ret_n)++]);
    return 0;
}

enum context_request_kind {
    CONTEXT_REQUEST_CREATE,
    CONTEXT_REQUEST_FORK,
    CONTEXT_REQUEST_EXECUTE,
    CONTEXT_REQUEST_INTERRUPT,
    CONTEXT_REQUEST_RESTART,
    CONTEXT_REQUEST_DELETE,
    CONTEXT_REQUEST_QUERY
};

struct context_request { /* until the sandbox is running */
    struct sandbox_services *services;
    char owner[STORE_OWNER_MAX + 1], sandbox[ID_SIZE], id[ID_SIZE], new_id[ID_SIZE];
    enum context_request_kind kind;
    char language[16];
    char *cwd, *code;
    char **env;
    char created_by[ID_SIZE];
    struct execution *execution;
    bool inspect;
    uint64_t cursor;
    context_fn *done;
    store_execution_fn *on_executed;
    context_query_fn *on_query;
    void *arg;
};

static void context_request_free(struct context_request *o)
{
    free(o->cwd);
    free(o->code);
    spec_env_free(o->env);
    free(o);
}

/* Only an execution may be refused before its call has returned. */
static void context_request_fail(const struct context_request *o, const struct err *err)
{
    if (o->on_executed)
        sandbox_refuse(o->services, &(struct sandbox_reply){ .on_execution = o->on_executed, .arg = o->arg }, err);
    else if (o->on_query)
        o->on_query(o->arg, err, NULL);
    else
        o->done(o->arg, err, NULL);
}

/* Whether another context may be added, with this id unless it is "". */
static int context_may_add(const struct sandbox *sb, const char *id, struct err *err)
{
    size_t n = 0;

    for (const struct context *cx = sb->contexts; cx; cx = cx->next)
        n += !cx->is_default;
    if (n >= CONTEXTS_MAX) {
        err_set(err, ERR_LIMIT, "sandbox %s has %zu contexts already, which is the maximum; delete one", sb->id, n);
        return err_set_limit(err, "contexts", n, CONTEXTS_MAX);
    }
    if (id[0] && context_find(sb, id))
        return err_set(err, ERR_IDEMPOTENCY, "context %s is being created already", id);
    return 0;
}

static int context_request_create(struct context_request *o, struct sandbox *sb, struct err *err)
{
    if (context_may_add(sb, o->id, err) < 0)
        return -1;
    struct context *cx = context_new(sb, o->id[0] ? o->id : NULL, o->language, false);
    cx->env = take_ptr(&o->env);
    cx->cwd = take_ptr(&o->cwd);
    memcpy(cx->created_by, o->created_by, sizeof(cx->created_by));
    if (context_start_kernel(cx, err) < 0) {
        context_free(cx);
        return -1;
    }
    cx->never_ready = true;
    context_add_waiter(cx, CONTEXT_WAIT_READY, o->done, o->arg);
    return 0;
}

/* Does not wait for running or queued executions: the caller means the state that it knows. */
static int context_request_fork(struct context_request *o, struct context *of, struct err *err)
{
    struct sandbox *sb = of->sandbox;

    enum context_state state = context_get_state(of);

    if (state != CONTEXT_IDLE || of->queries || language_kernel_has_unsent(&of->kernel))
        return err_set(err, ERR_EXISTS, "context %s is %s; fork it when it is idle", of->id,
                       state == CONTEXT_IDLE ? "answering a query" : context_states[state]);
    if (context_may_add(sb, o->new_id, err) < 0)
        return -1;
    struct context *cx = context_new(sb, o->new_id[0] ? o->new_id : NULL, language_kernel_name(&of->kernel), false);
    cx->env = execution_copy_list((const char *const *)of->env);
    cx->env_lost = of->env_lost;
    cx->cwd = of->cwd ? str_dup(of->cwd) : NULL;
    memcpy(cx->created_by, o->created_by, sizeof(cx->created_by));
    memcpy(cx->forked_from, of->id, sizeof(cx->forked_from));
    if (context_fork_kernel(cx, of, err) < 0) {
        context_free(cx);
        return -1;
    }
    cx->never_ready = true;
    context_add_waiter(cx, CONTEXT_WAIT_READY, o->done, o->arg);
    return 0;
}

static void context_query_on_timeout(void *arg)
{
    struct context_query *a = arg;
    struct err err;

    err_set(&err, ERR_TIMEOUT, "context %s did not answer within %llu s", a->context->id,
            CONTEXT_QUERY_TIMEOUT_NS / NS_PER_S);
    context_query_finish(a, &err, NULL);
}

static int context_request_query(struct context_request *o, struct context *cx, struct err *err)
{
    size_t n = 0;

    for (const struct context_query *a = cx->queries; a; a = a->next)
        n++;
    if (cx->kernel.state != LANGUAGE_KERNEL_IDLE || n >= CONTEXT_QUERIES_MAX)
        return err_set(err, ERR_EXISTS, "context %s is %s; try again when it is idle", cx->id,
                       context_states[context_get_state(cx)]);
    struct context_query *a = mem_new(struct context_query);
    *a = (struct context_query){ .context = cx, .inspect = o->inspect, .done = o->on_query, .arg = o->arg };
    snprintf(a->id, sizeof(a->id), "q%" PRIu64, ++cx->query_seq);
    ev_timer_set(cx->sandbox->services->ev, &a->timer, ev_now(cx->sandbox->services->ev) + CONTEXT_QUERY_TIMEOUT_NS,
                 context_query_on_timeout, a);
    list_push(&cx->queries, a);
    language_kernel_send_query(&cx->kernel, a->inspect, a->id, o->code, o->cursor);
    return 0;
}

static int context_request_interrupt(struct context_request *o, struct context *cx)
{
    struct context_info info;

    if (context_get_state(cx) == CONTEXT_BUSY) {
        context_add_waiter(cx, CONTEXT_WAIT_EXECUTION, o->done, o->arg);
        language_kernel_interrupt(&cx->kernel, ENDED_KILLED);
        return 0;
    }
    context_fill_info(cx, &info);
    info.outcome = "idle";
    o->done(o->arg, NULL, &info);
    return 0;
}

static int context_request_restart(struct context_request *o, struct context *cx, struct err *err)
{
    if (!cx->kernel.exec) {
        if (context_start_kernel_again(cx, err) < 0)
            return -1;
    } else if (context_get_state(cx) != CONTEXT_STARTING) {
        cx->restart_requested = true;
        language_kernel_kill(&cx->kernel);
    }
    context_add_waiter(cx, CONTEXT_WAIT_READY, o->done, o->arg);
    return 0;
}

static int context_request_delete(struct context_request *o, struct context *cx)
{
    struct sandbox *sb = cx->sandbox;

    cx->delete_requested = true;
    context_add_waiter(cx, CONTEXT_WAIT_DELETED, o->done, o->arg);
    if (cx->kernel.exec) {
        language_kernel_kill(&cx->kernel);
        return 0;
    }
    context_notify_waiters(cx, CONTEXT_WAIT_DELETED, NULL);
    context_free(cx);
    contexts_commit(sb);
    return 0;
}

static int context_request_run(struct context_request *o, struct sandbox *sb, struct err *err)
{
    if (o->kind == CONTEXT_REQUEST_CREATE)
        return context_request_create(o, sb, err);
    struct context *cx = context_find(sb, o->id);
    if (!cx || cx->delete_requested)
        return err_set(err, ERR_MISSING, "there is no such context in this sandbox");
    if (context_get_state(cx) == CONTEXT_DEAD && o->kind != CONTEXT_REQUEST_RESTART &&
        o->kind != CONTEXT_REQUEST_DELETE) {
        *err = cx->death_error;
        return -1;
    }
    switch (o->kind) {
    case CONTEXT_REQUEST_CREATE:
        break;
    case CONTEXT_REQUEST_FORK:
        return context_request_fork(o, cx, err);
    case CONTEXT_REQUEST_EXECUTE:
        return context_add_execution(cx, take_ptr(&o->execution), err);
    case CONTEXT_REQUEST_INTERRUPT:
        return context_request_interrupt(o, cx);
    case CONTEXT_REQUEST_RESTART:
        return context_request_restart(o, cx, err);
    case CONTEXT_REQUEST_DELETE:
        return context_request_delete(o, cx);
    case CONTEXT_REQUEST_QUERY:
        return context_request_query(o, cx, err);
    }
    return 0;
}

static void context_request_on_sandbox(void *arg, struct sandbox_handle *sandbox UNUSED, const struct err *err)
{
    struct context_request *o = arg;
    struct err why = { 0 };

    if (err) {
        context_request_fail(o, err);
    } else {
        struct sandbox *sb = registry_find(o->services->registry, o->owner, o->sandbox);

        if (!sb)
            err_set(&why, ERR_MISSING, "there is no such sandbox");
        if (!sb || context_request_run(o, sb, &why) < 0)
            context_request_fail(o, &why);
        if (sb)
            sandbox_release(sb);
    }
    if (o->execution)
        execution_free(o->execution);
    context_request_free(o);
}

static struct context_request *context_request_new(struct manager *m, const char *owner, const char *sandbox,
                                                   const char *id, enum context_request_kind kind, void *arg)
{
    struct context_request *o = mem_new(struct context_request);

    o->services = manager_sandbox_services(m);
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
    struct context_request *o = context_request_new(m, owner, sandbox, id, CONTEXT_REQUEST_CREATE, arg);

    o->done = done;
    snprintf(o->language, sizeof(o->language), "%s", spec->language);
    if (spec->cwd)
        o->cwd = spec->cwd[0] == '/' ? str_dup(spec->cwd) : str_printf("/workspace/%s", spec->cwd);
    o->env = execution_copy_list(spec->env);
    snprintf(o->created_by, sizeof(o->created_by), "%s", spec->created_by ? spec->created_by : "");
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_fork(struct manager *m, const char *owner, const char *sandbox, const char *of, const char *id,
                          const char *created_by, context_fn *done, void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, of, CONTEXT_REQUEST_FORK, arg);

    o->done = done;
    snprintf(o->new_id, sizeof(o->new_id), "%s", id ? id : "");
    snprintf(o->created_by, sizeof(o->created_by), "%s", created_by ? created_by : "");
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_interrupt(struct manager *m, const char *owner, const char *sandbox, const char *id,
                               context_fn *done, void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, id, CONTEXT_REQUEST_INTERRUPT, arg);

    o->done = done;
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_restart(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             context_fn *done, void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, id, CONTEXT_REQUEST_RESTART, arg);

    o->done = done;
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_delete(struct manager *m, const char *owner, const char *sandbox, const char *id, context_fn *done,
                            void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, id, CONTEXT_REQUEST_DELETE, arg);

    o->done = done;
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *context,
                             const char *id, const struct context_execution_spec *call, store_execution_fn *done,
                             void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, context, CONTEXT_REQUEST_EXECUTE, arg);

    o->on_executed = done;
    o->execution = context_execution_new(id, call, done, arg);
    sandbox_acquire_at_once(o->services, owner, sandbox, context_request_on_sandbox, o);
}

void manager_context_query(struct manager *m, const char *owner, const char *sandbox, const char *id, bool inspect,
                           const char *code, uint64_t cursor, context_query_fn *done, void *arg)
{
    struct context_request *o = context_request_new(m, owner, sandbox, id, CONTEXT_REQUEST_QUERY, arg);

    o->on_query = done;
    o->inspect = inspect;
    o->code = str_dup(code);
    o->cursor = cursor;
    manager_acquire_sandbox(m, owner, sandbox, context_request_on_sandbox, o);
}
