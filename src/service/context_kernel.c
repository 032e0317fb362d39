/* The language kernel of a context: start, events, interrupt, end.
 *
 * Everything that the language kernel sends is hostile input (kernel_event.c). An event about an
 * execution that does not run, or not about a request, is counted and dropped. Output that arrives
 * while nothing runs is dropped too: it comes from threads that user code left.
 *
 * Invariants:
 * 1. The end of a language kernel is handled in one place (context_on_kernel_gone), whatever caused
 *    it. There the flags decide what follows: delete_requested, restart_requested, or neither, and
 *    then the context is dead.
 * 2. The timer never acts on a paused sandbox, which could not answer and would be ended for it. */
#include "service/context_internal.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#define START_NS (60 * NS_PER_S)
#define CONTEXT_FORK_TIMEOUT_NS (30 * NS_PER_S) /* usually a millisecond; longer if the process has much memory */
#define GRACE_NS (3 * NS_PER_S)                 /* after an interrupt */
#define PAUSED_RECHECK_NS (1 * NS_PER_S)        /* how often a paused sandbox is checked again */

const char *const context_states[] = { "starting", "idle", "busy", "dead", NULL };

struct language_kernel_spec {
    const char *name;
    const char *runtime; /* NULL: the language kernel is a program of its own */
    const char *args[3]; /* after the interpreter */
    const char *aliases[4];
    const char *launcher; /* the program that starts the interpreter, or NULL */
    bool can_fork;
};

static const struct language_kernel_spec language_kernels[] = {
    { "python", "python", { "-I", "/.cove/kernels/python/kernel.py" }, { "python3", "py" }, NULL, true },
    { "node",
      "node",
      { "/.cove/kernels/node/kernel.mjs" },
      { "javascript", "js", "nodejs" },
      "/.cove/kernels/node/start" },
    { "bash", NULL, { "/.cove/kernels/bash/kernel" }, { "sh", "shell" } },
};

static const struct language_kernel_spec *language_kernel_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(language_kernels); i++) {
        if (str_eq(name, language_kernels[i].name))
            return &language_kernels[i];
        for (size_t k = 0; k < ARRAY_LEN(language_kernels[i].aliases) && language_kernels[i].aliases[k]; k++)
            if (str_eq(name, language_kernels[i].aliases[k]))
                return &language_kernels[i];
    }
    return NULL;
}

const char *context_language_name(const char *name)
{
    const struct language_kernel_spec *l = language_kernel_find(name);

    return l ? l->name : NULL;
}

/* --- the object --- */

struct context *context_find(const struct sandbox *sb, const char *id)
{
    struct context *cx = sb->contexts;

    while (cx && !str_eq(cx->id, id))
        cx = cx->next;
    return cx;
}

struct context *context_new(struct sandbox *sb, const char *id, const char *language)
{
    struct context *cx = mem_new(struct context), **p = &sb->contexts;

    if (id)
        memcpy(cx->id, id, sizeof(cx->id));
    else
        id_new("cx", cx->id);
    cx->sandbox = sb;
    cx->kernel_spec = language_kernel_find(language);
    cx->created_ms = clock_real_ms();
    while (*p)
        p = &(*p)->next;
    *p = cx;
    return cx;
}

const char *context_get_language(const struct context *cx)
{
    return cx->kernel_spec->name;
}

void context_query_finish(struct context_query *a, const struct err *err, const char *json)
{
    list_remove(&a->context->queries, a);
    ev_timer_clear(a->context->sandbox->manager->ev, &a->timer);
    a->done(a->arg, err, json);
    free(a);
}

void context_free(struct context *cx)
{
    list_remove(&cx->sandbox->contexts, cx);
    ev_timer_clear(cx->sandbox->manager->ev, &cx->timer);
    for (struct execution *ex = cx->queue; ex; ex = ex->next_in_context)
        ex->running_context = NULL;
    while (cx->queries) {
        struct context_query *a = cx->queries;

        cx->queries = a->next;
        ev_timer_clear(cx->sandbox->manager->ev, &a->timer);
        free(a);
    }
    while (cx->waiters) {
        struct context_waiter *w = cx->waiters;

        cx->waiters = w->next;
        free(w);
    }
    exec_handle_free(cx->exec);
    kernel_event_reader_reset(&cx->kernel_reader);
    buf_done(&cx->kernel_out);
    spec_env_free(cx->env);
    free(cx->cwd);
    free(cx);
}

void context_fill_info(const struct context *cx, struct context_info *ret)
{
    *ret = (struct context_info){ .created_ms = cx->created_ms,
                                  .state = cx->state,
                                  .executions = cx->executions_run,
                                  .restarts = cx->restarts,
                                  .rejected_lines = cx->rejected_lines,
                                  .death_error = cx->death_error,
                                  .outcome = cx->outcome };
    memcpy(ret->id, cx->id, sizeof(ret->id));
    memcpy(ret->sandbox, cx->sandbox->id, sizeof(ret->sandbox));
    memcpy(ret->created_by, cx->created_by, sizeof(ret->created_by));
    memcpy(ret->forked_from, cx->forked_from, sizeof(ret->forked_from));
    memcpy(ret->version, cx->version, sizeof(ret->version));
    (void)str_copy(ret->language, sizeof(ret->language), cx->kernel_spec->name);
    snprintf(ret->cwd, sizeof(ret->cwd), "%s", cx->cwd ? cx->cwd : "");
    if (cx->state == CONTEXT_BUSY && !cx->resumed_busy && cx->queue)
        memcpy(ret->running, cx->queue->id, sizeof(ret->running));
    ret->queued = cx->nqueued - (ret->running[0] != '\0');
}

/* --- waiters --- */

void context_add_waiter(struct context *cx, int what, context_fn *done, void *arg)
{
    struct context_waiter *w = mem_new(struct context_waiter), **p = &cx->waiters;

    w->event = (typeof(w->event))what;
    w->done = done;
    w->arg = arg;
    while (*p)
        p = &(*p)->next;
    *p = w;
}

void context_notify_waiters(struct context *cx, int what, const struct err *err)
{
    struct context_waiter *ready = NULL, **p = &cx->waiters;
    struct context_info info;

    context_fill_info(cx, &info);
    while (*p) { /* takes all of them first: a callback may add new ones */
        struct context_waiter *w = *p;

        if ((int)w->event != what) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        w->next = ready;
        ready = w;
    }
    while (ready) {
        struct context_waiter *w = ready;

        ready = w->next;
        w->done(w->arg, err, err ? NULL : &info);
        free(w);
    }
}

/* --- to the language kernel --- */

static void context_flush_kernel_out(void *arg)
{
    struct context *cx = arg;
    size_t n = cx->exec && cx->kernel_out.len
                   ? exec_handle_write_language_kernel(cx->exec, cx->kernel_out.data, cx->kernel_out.len)
                   : 0;

    if (n == cx->kernel_out.len)
        buf_done(&cx->kernel_out);
    else
        buf_drop(&cx->kernel_out, n);
}

void context_send_kernel(struct context *cx, const char *line, size_t len)
{
    buf_add(&cx->kernel_out, line, len);
    context_flush_kernel_out(cx);
}

void context_kill_kernel(struct context *cx)
{
    exec_handle_kill(cx->exec);
}

void context_interrupt(struct context *cx, enum ended_by cause)
{
    if (cx->state != CONTEXT_BUSY || cx->interrupt_sent)
        return;
    cx->interrupt_sent = true;
    cx->interrupt_cause = cause;
    exec_handle_signal(cx->exec, SIGINT);
    context_set_timer(cx, GRACE_NS);
}

static void context_on_timer(void *arg)
{
    struct context *cx = arg;
    const struct execution *ex = cx->queue;

    if (cx->sandbox->state != SANDBOX_STATE_RUNNING) {
        context_set_timer(cx, PAUSED_RECHECK_NS);
    } else if (cx->resumed_busy && !cx->interrupt_sent) {
        context_interrupt(cx, ENDED_WALL);
    } else if (cx->state == CONTEXT_BUSY && !cx->interrupt_sent) {
        uint64_t elapsed = context_execution_elapsed_ms(ex);

        if (elapsed < ex->spec.wall_ms)
            context_set_timer(cx, (ex->spec.wall_ms - elapsed) * NS_PER_MS);
        else
            context_interrupt(cx, ENDED_WALL);
    } else {
        cx->kill_sent = true;
        cx->restart_requested = cx->state == CONTEXT_BUSY;
        context_kill_kernel(cx);
    }
}

void context_set_timer(struct context *cx, uint64_t ns)
{
    ev_timer_set(cx->sandbox->manager->ev, &cx->timer, ev_now(cx->sandbox->manager->ev) + ns, context_on_timer, cx);
}

/* --- from the language kernel --- */

/* Logged once: the note holds for every language kernel of this kind on the host. */
static void context_log_kernel_note(const struct context *cx, const char *note)
{
    static bool logged;
    char text[200];

    if (logged || !*note)
        return;
    logged = true;
    snprintf(text, sizeof(text), "%s", note);
    str_strip_control_chars(text);
    log_write_with_ids(LOG_WARN, &(struct log_ids){ .sandbox = cx->sandbox->id },
                       "%s language kernels start slowly: %s", cx->kernel_spec->name, text);
}

static void context_on_kernel_ready(struct context *cx, const struct kernel_event *e)
{
    ev_timer_clear(cx->sandbox->manager->ev, &cx->timer);
    snprintf(cx->version, sizeof(cx->version), "%s", e->version);
    str_strip_control_chars(cx->version);
    cx->state = CONTEXT_IDLE;
    cx->never_ready = false;
    cx->stderr_head[0] = '\0';
    context_log_kernel_note(cx, e->note);
    contexts_commit(cx->sandbox);
    cx->ready_write_seq = cx->sandbox->contexts_write_seq;
    context_start_next_execution(cx);
}

static bool context_answer_query(struct context *cx, const struct kernel_event *e)
{
    auto_buf json = { 0 };
    struct err err;

    for (struct context_query *a = cx->queries; a; a = a->next) {
        if (!str_eq(a->id, e->id))
            continue;
        if (e->kind == (a->inspect ? KERNEL_EVENT_INSPECTION : KERNEL_EVENT_COMPLETIONS)) {
            kernel_event_json(e, &json);
            context_query_finish(a, NULL, json.data);
            return true;
        }
        if (e->kind != KERNEL_EVENT_REFUSED)
            return false;
        err_set(&err, ERR_INVALID, "the language kernel refused the request");
        context_query_finish(a, &err, NULL);
        return true;
    }
    return false;
}

static void context_on_kernel_event(void *arg, const struct kernel_event *e)
{
    struct context *cx = arg;

    if (e && e->kind == KERNEL_EVENT_READY && cx->state == CONTEXT_STARTING)
        context_on_kernel_ready(cx, e);
    else if (!e || (!context_execution_event(cx, e) && !context_answer_query(cx, e)))
        cx->rejected_lines++;
}

static void context_on_kernel_bytes(void *arg, const void *data, size_t len)
{
    struct context *cx = arg;

    kernel_event_reader_feed(&cx->kernel_reader, data, len, context_on_kernel_event, cx);
}

static void context_on_kernel_output(void *arg, int channel, const void *data, size_t len)
{
    struct context *cx = arg;
    size_t had = strlen(cx->stderr_head);

    if (cx->state == CONTEXT_STARTING && channel == 2 && had < sizeof(cx->stderr_head) - 1)
        snprintf(cx->stderr_head + had, sizeof(cx->stderr_head) - had, "%.*s",
                 (int)min_size(len, sizeof(cx->stderr_head)), (const char *)data);
    context_execution_output(cx, channel, data, len);
}

/* --- the end --- */

void context_mark_dead(struct context *cx, const struct err *why)
{
    auto_buf body = { 0 };

    cx->state = CONTEXT_DEAD;
    cx->death_error = *why;
    buf_addf(&body, "\"contextId\":\"%s\"", cx->id);
    if (cx->sandbox->state != SANDBOX_STATE_ENDING)
        sandbox_append_event(cx->sandbox, "context_died", NULL, body.data);
    context_notify_waiters(cx, CONTEXT_WAIT_READY, why);
}

static void context_set_death_error(const struct context *cx, const struct receipt *r, const struct err *failed,
                                    struct err *ret)
{
    const char *id = cx->id;

    if (cx->sandbox->state == SANDBOX_STATE_ENDING)
        sandbox_ended_error(cx->sandbox, ret);
    else if (failed && cx->never_ready && cx->forked_from[0])
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s cannot be forked: %.160s",
                cx->forked_from, failed->msg);
    else if (cx->kill_sent && cx->never_ready && cx->forked_from[0])
        err_set(ret, ERR_TIMEOUT, "context %s was not forked within %llu s: its language kernel does not answer",
                cx->forked_from, CONTEXT_FORK_TIMEOUT_NS / NS_PER_S);
    else if (failed && failed->id == ERR_PROGRAM_MISSING)
        err_set(ret, ERR_RUNTIME_MISSING, "context %s: %.160s", id, failed->msg);
    else if (failed)
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s: %.160s", id, failed->msg);
    else if (!r)
        err_set(ret, ERR_BUG, "context %s: its language kernel ended without a receipt", id);
    else if (cx->kill_sent && cx->state == CONTEXT_STARTING)
        err_set(ret, ERR_TIMEOUT, "context %s: its language kernel was not ready within %llu s", id,
                START_NS / NS_PER_S);
    else if (cx->kill_sent)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was restarted: its language kernel ignored an interrupt", id);
    else if (cx->restart_requested || cx->delete_requested)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was %s", id, cx->delete_requested ? "deleted" : "restarted");
    else if (r->ended_by == ENDED_MEMORY)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its language kernel was killed because it reached the memory limit",
                id);
    else if (r->ended_by == ENDED_EXIT)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its language kernel ended with status %d%s%.120s", id, r->exit_code,
                cx->stderr_head[0] ? ": " : "", cx->stderr_head);
    else if (r->ended_by == ENDED_SIGNAL)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its language kernel was ended by signal %d", id, r->signal);
    else
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its language kernel was ended (%s)", id,
                ended_by_name(r->ended_by));
}

static void context_end_running_execution(struct context *cx, const struct receipt *r, const struct err *why)
{
    if (!r || r->ended_by == ENDED_LOST)
        cx->state = CONTEXT_IDLE; /* the execution fails with the queued ones */
    else if (cx->kill_sent || cx->restart_requested || cx->delete_requested)
        context_execution_over(cx, cx->interrupt_sent && cx->interrupt_cause == ENDED_WALL ? ENDED_WALL : ENDED_KILLED,
                               -1, 0);
    else
        context_execution_kernel_died(cx, r, why);
}

static void context_restart_kernel(struct context *cx)
{
    struct err err = { 0 };

    cx->restart_requested = cx->kill_sent = cx->interrupt_sent = false;
    cx->restarts++;
    cx->executions_run = 0;
    cx->forked_from[0] = '\0';
    if (context_start_kernel(cx, &err) < 0)
        context_mark_dead(cx, &err);
}

/* Receipts of its executions cannot contain denials, because the interpreter is one process for all
 * of them. */
static void context_count_kernel_denials(const struct context *cx, const struct receipt *r)
{
    struct receipt reported = *r;

    reported.execution[0] = '\0'; /* the interpreter's own id, which clients do not know */
    manager_count_denials(cx->sandbox->manager, cx->sandbox->owner, &reported);
}

static void context_on_kernel_gone(struct context *cx, const struct receipt *r, const struct err *failed)
{
    struct sandbox *sb = cx->sandbox;
    struct err why;

    if (r)
        context_count_kernel_denials(cx, r);
    context_set_death_error(cx, r, failed, &why);
    str_strip_control_chars(why.msg);
    ev_timer_clear(sb->manager->ev, &cx->timer);
    cx->outcome = "killed";
    if (cx->state == CONTEXT_BUSY && !cx->resumed_busy)
        context_end_running_execution(cx, r, &why);
    cx->resumed_busy = false;
    context_fail_executions(cx, &why);
    cx->stderr_head[0] = '\0';
    exec_handle_free(take_ptr(&cx->exec));
    kernel_event_reader_reset(&cx->kernel_reader);
    buf_done(&cx->kernel_out);
    for (struct context_query *a = cx->queries, *next; a; a = next) {
        next = a->next;
        context_query_finish(a, &why, NULL);
    }
    context_notify_waiters(cx, CONTEXT_WAIT_EXECUTION, sb->state == SANDBOX_STATE_ENDING ? &why : NULL);
    cx->outcome = NULL;
    if (cx->delete_requested && sb->state != SANDBOX_STATE_ENDING) {
        context_notify_waiters(cx, CONTEXT_WAIT_READY, &why);
        cx->state = CONTEXT_DEAD;
        context_notify_waiters(cx, CONTEXT_WAIT_DELETED, NULL);
        context_free(cx);
        contexts_commit(sb);
    } else if (cx->restart_requested && sb->state != SANDBOX_STATE_ENDING) {
        context_restart_kernel(cx);
    } else if (cx->never_ready) {
        context_notify_waiters(cx, CONTEXT_WAIT_READY, &why);
        context_free(cx);
    } else {
        cx->kill_sent = cx->interrupt_sent = false;
        context_notify_waiters(cx, CONTEXT_WAIT_DELETED, &why);
        context_mark_dead(cx, &why);
    }
}

static void context_on_kernel_exit(void *arg, const struct receipt *r)
{
    context_on_kernel_gone(arg, r, NULL);
}

static void context_on_kernel_failed(void *arg, const struct err *err)
{
    context_on_kernel_gone(arg, NULL, err);
}

static void context_on_kernel_started(void *arg)
{
    struct context *cx = arg;

    if (!cx->resume_stream)
        return;
    cx->resume_stream = 0;
    context_await_idle(cx);
}

static const struct exec_handle_ops context_kernel_ops = { .on_started = context_on_kernel_started,
                                                           .on_output = context_on_kernel_output,
                                                           .on_writable = context_flush_kernel_out,
                                                           .on_exit = context_on_kernel_exit,
                                                           .on_failed = context_on_kernel_failed,
                                                           .on_language_kernel_data = context_on_kernel_bytes };

/* --- start --- */

static struct exec_spec context_kernel_exec_spec(const struct context *cx)
{
    return (struct exec_spec){ .env = (const char *const *)cx->env,
                               .cwd = cx->cwd,
                               .unmetered = true,
                               .confirm_end = true,
                               .is_language_kernel = true };
}

int context_kernel_command(const char *language, struct context_command *ret, struct err *err)
{
    const struct language_kernel_spec *lang = language_kernel_find(language);
    const struct language *rt = lang && lang->runtime ? language_by_name(lang->runtime) : NULL;
    size_t n = 0;

    if (!lang)
        return err_set(err, ERR_RUNTIME_MISSING, "no language kernel for this language; use python, node or bash");
    if (rt && language_find_program(rt, language_dirs, ret->path, sizeof(ret->path), err) < 0)
        return -1;
    if (lang->launcher)
        ret->argv[n++] = lang->launcher;
    if (rt)
        ret->argv[n++] = ret->path;
    for (size_t i = 0; i < ARRAY_LEN(lang->args) && lang->args[i]; i++)
        ret->argv[n++] = lang->args[i];
    ret->argv[n] = NULL;
    return 0;
}

int context_start_kernel(struct context *cx, struct err *err)
{
    struct exec_spec spec = context_kernel_exec_spec(cx);
    struct context_command command;

    if (cx->env_lost)
        return err_set(err, ERR_CONTEXT_DEAD,
                       "context %s had variables that are not stored, so it cannot be restarted; delete it and "
                       "create another",
                       cx->id);
    if (context_kernel_command(cx->kernel_spec->name, &command, err) < 0)
        return -1;
    spec.argv = command.argv;
    spec.prefer_interpreter = cx->sandbox->spec.zygote.language &&
                              str_eq(cx->sandbox->spec.zygote.language, cx->kernel_spec->name);
    cx->resume_stream = 0;
    if (sandbox_handle_exec(cx->sandbox->handle, &spec, &context_kernel_ops, cx, &cx->exec, err) < 0)
        return -1;
    cx->state = CONTEXT_STARTING;
    context_set_timer(cx, START_NS);
    return 0;
}

/* The fork has the current directory and environment of the original; cx->cwd and cx->env are for a
 * later restart. */
int context_fork_kernel(struct context *cx, const struct context *of, struct err *err)
{
    const char *const argv[] = { cx->kernel_spec->name, NULL };
    struct exec_spec spec = context_kernel_exec_spec(cx);

    if (!cx->kernel_spec->can_fork)
        return err_set(err, ERR_FORK_UNSUPPORTED, "context %s: a %s context cannot be forked; only python contexts can",
                       of->id, cx->kernel_spec->name);
    spec.argv = argv;
    spec.env = NULL;
    spec.cwd = NULL;
    spec.fork_of = of->exec;
    if (sandbox_handle_exec(cx->sandbox->handle, &spec, &context_kernel_ops, cx, &cx->exec, err) < 0)
        return -1;
    cx->state = CONTEXT_STARTING;
    context_set_timer(cx, CONTEXT_FORK_TIMEOUT_NS);
    return 0;
}

int context_resume_kernel(struct context *cx, struct err *err)
{
    struct exec_spec spec = context_kernel_exec_spec(cx);
    struct exec_resume resume = { .stream_id = cx->resume_stream };

    cx->state = CONTEXT_STARTING;
    return sandbox_handle_exec_resume(cx->sandbox->handle, &spec, &resume, &context_kernel_ops, cx, &cx->exec, err);
}
