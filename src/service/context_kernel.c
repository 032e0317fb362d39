/* The reactions of a context when its language kernel (language_kernel.c) is ready, answers or
 * ends.
 *
 * Invariant: the end of a language kernel is handled in one place, context_on_kernel_died, for
 * every cause. There the flags decide what follows: delete_requested, restart_requested, or
 * neither, and then the context is dead. */
#include "service/context_internal.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define CONTEXT_GRACE_NS (3 * NS_PER_S)  /* after an interrupt */
#define PAUSED_RECHECK_NS (1 * NS_PER_S) /* how often a paused sandbox is checked again */

const char *const context_states[] = { "starting", "idle", "busy", "dead", NULL };

static const struct language_kernel_ops context_kernel_ops;

/* --- the object --- */

struct context *context_find(const struct sandbox *sb, const char *id)
{
    struct context *cx = sb->contexts;

    while (cx && !str_eq(cx->id, id))
        cx = cx->next;
    return cx;
}

struct context *context_new(struct sandbox *sb, const char *id, const char *language, bool is_default)
{
    struct context *cx = mem_new(struct context), **p = &sb->contexts;

    if (id)
        memcpy(cx->id, id, sizeof(cx->id));
    else
        id_new("cx", cx->id);
    cx->sandbox = sb;
    cx->is_default = is_default;
    language_kernel_init(&cx->kernel, sb->services->ev, cx->id, language, &context_kernel_ops, cx);
    cx->created_ms = clock_real_ms();
    while (*p)
        p = &(*p)->next;
    *p = cx;
    return cx;
}

enum context_state context_get_state(const struct context *cx)
{
    switch (cx->kernel.state) {
    case LANGUAGE_KERNEL_STARTING:
    case LANGUAGE_KERNEL_STOPPING:
        return CONTEXT_STARTING;
    case LANGUAGE_KERNEL_CHECKING: /* contexts do not check code */
    case LANGUAGE_KERNEL_BUSY:
    case LANGUAGE_KERNEL_INTERRUPTED:
    case LANGUAGE_KERNEL_COLLECTING:
        return CONTEXT_BUSY;
    case LANGUAGE_KERNEL_DEAD:
        return CONTEXT_DEAD;
    case LANGUAGE_KERNEL_IDLE:
    case LANGUAGE_KERNEL_CLOSED:
    case LANGUAGE_KERNEL_ENDED: /* its execution has ended too, and what follows is not decided yet */
        break;
    }
    return CONTEXT_IDLE;
}

void context_query_finish(struct context_query *a, const struct err *err, const char *json)
{
    list_remove(&a->context->queries, a);
    ev_timer_clear(a->context->sandbox->services->ev, &a->timer);
    a->done(a->arg, err, json);
    free(a);
}

void context_free(struct context *cx)
{
    list_remove(&cx->sandbox->contexts, cx);
    for (struct execution *ex = cx->queue; ex; ex = ex->next_in_context)
        ex->running_context = NULL;
    while (cx->queries) {
        struct context_query *a = cx->queries;

        cx->queries = a->next;
        ev_timer_clear(cx->sandbox->services->ev, &a->timer);
        free(a);
    }
    while (cx->waiters) {
        struct context_waiter *w = cx->waiters;

        cx->waiters = w->next;
        free(w);
    }
    language_kernel_reset(&cx->kernel);
    spec_env_free(cx->env);
    free(cx->cwd);
    free(cx);
}

void context_fill_info(const struct context *cx, struct context_info *ret)
{
    *ret = (struct context_info){ .is_default = cx->is_default,
                                  .created_ms = cx->created_ms,
                                  .state = context_get_state(cx),
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
    (void)str_copy(ret->language, sizeof(ret->language), language_kernel_name(&cx->kernel));
    snprintf(ret->cwd, sizeof(ret->cwd), "%s", cx->cwd ? cx->cwd : "");
    if (language_kernel_is_executing(&cx->kernel) && cx->queue)
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

/* A paused sandbox could not answer, and its pauses do not count for the timeout. */
static uint64_t context_timer_delay_ns(void *arg)
{
    struct context *cx = arg;
    const struct execution *ex = cx->queue;

    if (cx->sandbox->state != SANDBOX_STATE_RUNNING)
        return PAUSED_RECHECK_NS;
    if (cx->kernel.state != LANGUAGE_KERNEL_BUSY || cx->kernel.resumed)
        return 0;
    return (ex->spec.wall_ms - min_u64(ex->spec.wall_ms, context_execution_elapsed_ms(ex))) * NS_PER_MS;
}

void context_notify_outcome(struct context *cx, const char *outcome, const struct err *err)
{
    cx->outcome = outcome;
    context_notify_waiters(cx, CONTEXT_WAIT_EXECUTION, err);
    cx->outcome = NULL;
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
                       "%s language kernels start slowly: %s", language_kernel_name(&cx->kernel), text);
}

static void context_on_kernel_ready(void *arg, const struct kernel_event *e)
{
    struct context *cx = arg;

    snprintf(cx->version, sizeof(cx->version), "%s", e->version);
    str_strip_control_chars(cx->version);
    cx->never_ready = false;
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

static bool context_on_kernel_event(void *arg, const struct kernel_event *e)
{
    return context_execution_event(arg, e) || context_answer_query(arg, e);
}

static void context_on_kernel_rejected(void *arg, const struct kernel_event *e UNUSED)
{
    struct context *cx = arg;

    cx->rejected_lines++;
}

/* The requests of an earlier server are finished. */
static void context_on_kernel_idle(void *arg)
{
    struct context *cx = arg;

    context_notify_outcome(cx, cx->kernel.was_interrupted ? "interrupted" : "finished", NULL);
    context_start_next_execution(cx);
}

/* --- the end --- */

void context_mark_dead(struct context *cx, const struct err *why)
{
    auto_buf body = { 0 };

    cx->death_error = *why;
    buf_addf(&body, "\"contextId\":\"%s\"", cx->id);
    if (cx->sandbox->state != SANDBOX_STATE_ENDING)
        sandbox_append_event(cx->sandbox, "context_died", NULL, body.data);
    context_notify_waiters(cx, CONTEXT_WAIT_READY, why);
}

static void context_set_death_error(const struct context *cx, const struct language_kernel_death *d, struct err *ret)
{
    const struct err *failed = d->error;
    bool late = cx->kernel.killed_by_timer, fork = cx->never_ready && cx->forked_from[0];
    char subject[ID_SIZE + 40];

    snprintf(subject, sizeof(subject), "context %s: its language kernel", cx->id);
    if (cx->sandbox->state == SANDBOX_STATE_ENDING)
        sandbox_ended_error(cx->sandbox, ret);
    else if (failed && fork)
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s cannot be forked: %.160s",
                cx->forked_from, failed->msg);
    else if (late && fork)
        err_set(ret, ERR_TIMEOUT, "context %s was not forked within %llu s: its language kernel does not answer",
                cx->forked_from, LANGUAGE_KERNEL_FORK_NS / NS_PER_S);
    else if (failed && failed->id == ERR_PROGRAM_MISSING && cx->is_default)
        err_set(ret, ERR_RUNTIME_MISSING,
                "the sandbox cannot run %s code: %.120s; set another language, or run a command",
                language_kernel_name(&cx->kernel), failed->msg);
    else if (failed && failed->id == ERR_PROGRAM_MISSING)
        err_set(ret, ERR_RUNTIME_MISSING, "context %s: %.160s", cx->id, failed->msg);
    else if (failed)
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s: %.160s", cx->id, failed->msg);
    else if (late && !d->was_starting)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was restarted: its language kernel ignored an interrupt", cx->id);
    else if (!late && (cx->restart_requested || cx->delete_requested))
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was %s", cx->id, cx->delete_requested ? "deleted" : "restarted");
    else
        language_kernel_death_error(&cx->kernel, d, subject, ret);
    str_strip_control_chars(ret->msg);
}

static void context_end_running_execution(struct context *cx, const struct receipt *r, const struct err *why)
{
    const struct language_kernel *k = &cx->kernel;
    bool clock = k->interrupt_cause == ENDED_TIMEOUT || k->interrupt_cause == ENDED_CPU;

    if (!r || r->ended_by == ENDED_LOST)
        return; /* the execution fails with the queued ones */
    if (r->ended_by == ENDED_MEMORY)
        context_execution_over(cx, ENDED_MEMORY, -1, r->signal);
    else if (cx->restart_requested || cx->delete_requested)
        context_execution_over(cx, k->was_interrupted && clock ? k->interrupt_cause : ENDED_KILLED, -1, 0);
    else
        context_execution_kernel_died(cx, r, why);
}

static void context_restart_kernel(struct context *cx)
{
    struct err err = { 0 };

    cx->restart_requested = false;
    if (context_start_kernel_again(cx, &err) < 0) {
        context_fail_executions(cx, &err);
        context_mark_dead(cx, &err);
    }
}

/* Whether only the state of a context is lost, after a limit or an ignored interrupt: it continues
 * with another kernel. */
static bool context_survives_death(const struct context *cx, const struct language_kernel_death *d)
{
    return !d->was_starting && (cx->kernel.killed_by_timer || (d->receipt && d->receipt->ended_by == ENDED_MEMORY));
}

/* Whether queued executions run in the next kernel. Without a receipt, the execution that was
 * running is among them, and fails with them. */
static bool context_keeps_queue(const struct context *cx, const struct language_kernel_death *d)
{
    return context_survives_death(cx, d) && d->receipt && d->receipt->ended_by != ENDED_LOST &&
           !cx->restart_requested && !cx->delete_requested && cx->sandbox->state != SANDBOX_STATE_ENDING;
}

/* Whether the running execution ends with a receipt, which contains the denials. */
static bool context_death_ends_execution(const struct language_kernel_death *d)
{
    return d->was_executing && d->receipt && d->receipt->ended_by != ENDED_LOST;
}

/* Denials after its last execution: threads and processes of earlier code may still run. */
static void context_count_kernel_denials(const struct context *cx, const struct receipt *r)
{
    struct receipt reported = *r;

    reported.execution[0] = '\0'; /* the interpreter's own id, which clients do not know */
    executions_count_denials(cx->sandbox->services->executions, cx->sandbox->owner, &reported);
}

static void context_on_kernel_died(void *arg, const struct language_kernel_death *d)
{
    struct context *cx = arg;
    struct sandbox *sb = cx->sandbox;
    bool keeps_queue = context_keeps_queue(cx, d);
    struct err why;

    if (d->receipt && !context_death_ends_execution(d))
        context_count_kernel_denials(cx, d->receipt);
    context_set_death_error(cx, d, &why);
    if (context_survives_death(cx, d))
        cx->restart_requested = true;
    if (d->was_executing)
        context_end_running_execution(cx, d->receipt, &why);
    if (keeps_queue)
        cx->reset_unreported = cx->queue != NULL;
    else
        context_fail_executions(cx, &why);
    for (struct context_query *a = cx->queries, *next; a; a = next) {
        next = a->next;
        context_query_finish(a, &why, NULL);
    }
    context_notify_outcome(cx, "killed", sb->state == SANDBOX_STATE_ENDING ? &why : NULL);
    language_kernel_reset(&cx->kernel);
    if (cx->delete_requested && sb->state != SANDBOX_STATE_ENDING) {
        context_notify_waiters(cx, CONTEXT_WAIT_READY, &why);
        context_notify_waiters(cx, CONTEXT_WAIT_DELETED, NULL);
        context_free(cx);
        contexts_commit(sb);
    } else if (cx->restart_requested && sb->state != SANDBOX_STATE_ENDING) {
        context_restart_kernel(cx);
    } else if (cx->never_ready) {
        context_notify_waiters(cx, CONTEXT_WAIT_READY, &why);
        context_notify_waiters(cx, CONTEXT_WAIT_DELETED, &why); /* its sandbox ended first */
        context_free(cx);
    } else {
        context_fail_executions(cx, &why); /* that the callbacks above requested */
        context_notify_waiters(cx, CONTEXT_WAIT_DELETED, &why);
        context_mark_dead(cx, &why);
    }
}

static const struct language_kernel_ops context_kernel_ops = { .grace_ns = CONTEXT_GRACE_NS,
                                                               .collects_denials = true,
                                                               .on_ready = context_on_kernel_ready,
                                                               .on_event = context_on_kernel_event,
                                                               .on_output = context_execution_output,
                                                               .on_finished = context_execution_on_finished,
                                                               .on_idle = context_on_kernel_idle,
                                                               .on_died = context_on_kernel_died,
                                                               .on_rejected = context_on_kernel_rejected,
                                                               .timer_delay_ns = context_timer_delay_ns };

/* --- start --- */

int context_start_kernel(struct context *cx, struct err *err)
{
    const char *zygote = cx->sandbox->spec.zygote.language;
    struct exec_spec spec = { .env = (const char *const *)cx->env, .cwd = cx->cwd, .confirm_end = true };

    if (cx->env_lost)
        return err_set(err, ERR_CONTEXT_DEAD,
                       "context %s had variables that are not stored, so it cannot be restarted; delete it and "
                       "create another",
                       cx->id);
    spec.prefer_interpreter = zygote && str_eq(zygote, language_kernel_name(&cx->kernel));
    return language_kernel_start(&cx->kernel, cx->sandbox->handle, cx->sandbox->template, &spec, err);
}

int context_start_kernel_again(struct context *cx, struct err *err)
{
    if (context_start_kernel(cx, err) < 0)
        return -1;
    cx->restarts++;
    cx->executions_run = 0;
    cx->forked_from[0] = '\0';
    return 0;
}

/* The fork has the current directory and environment of the original; cx->cwd and cx->env are for a
 * later restart. */
int context_fork_kernel(struct context *cx, const struct context *of, struct err *err)
{
    if (!language_kernel_can_fork(&cx->kernel))
        return err_set(err, ERR_FORK_UNSUPPORTED, "context %s: a %s context cannot be forked; only python contexts can",
                       of->id, language_kernel_name(&cx->kernel));
    return language_kernel_fork(&cx->kernel, &of->kernel, &(struct exec_spec){ .confirm_end = true }, err);
}

int context_resume_kernel(struct context *cx, uint64_t busy_ms, struct err *err)
{
    struct exec_spec spec = { .env = (const char *const *)cx->env, .cwd = cx->cwd, .confirm_end = true };

    return language_kernel_resume(&cx->kernel, cx->sandbox->handle, &spec, cx->resume_stream, busy_ms, err);
}
