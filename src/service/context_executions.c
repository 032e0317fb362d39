/* Executions of a context: each waits in the queue, is one `execute` request to the language
 * kernel, and ends with the answer of the language kernel, a timeout, or the end of the language
 * kernel.
 *
 * Its row is inserted when it is queued, so it can be followed while it waits. Its timeout starts
 * when it runs. Its events and its output share one limit. */
#include "service/context_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/kernel_receipt.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

uint64_t context_execution_elapsed_ms(const struct execution *ex)
{
    const struct sandbox *sb = ex->sandbox;
    uint64_t now = sb->paused_at_ms ? sb->paused_at_ms : sandbox_mono_ms(sb);
    uint64_t paused = sb->paused_total_ms > ex->sandbox_paused_ms ? sb->paused_total_ms - ex->sandbox_paused_ms : 0;

    return now > ex->created_mono_ms + paused ? now - ex->created_mono_ms - paused : 0;
}

/* Most executions of a context take less than a millisecond. */
static uint64_t context_execution_elapsed_ns(const struct execution *ex)
{
    const struct sandbox *sb = ex->sandbox;

    if (ex->begun_ns == 0 || sb->paused_at_ms || sb->paused_total_ms > ex->sandbox_paused_ms)
        return context_execution_elapsed_ms(ex) * NS_PER_MS;
    return clock_mono_ns() - ex->begun_ns;
}

/* --- the queue --- */

static void context_unlink_execution(struct context *cx, struct execution *ex)
{
    struct execution **p = &cx->queue;

    while (*p != ex)
        p = &(*p)->next_in_context;
    *p = ex->next_in_context;
    cx->nqueued--;
    ex->running_context = NULL;
}

void context_execution_unlink(struct execution *ex)
{
    if (ex->running_context)
        context_unlink_execution(ex->running_context, ex);
}

struct execution *context_execution_new(const char *id, const struct context_execution_spec *call,
                                        store_execution_fn *done, void *arg)
{
    struct execution *ex = execution_alloc(id);

    ex->done = done;
    ex->done_arg = arg;
    ex->code = str_dup(call->code);
    ex->env = call->env && call->env[0] ? execution_copy_list(call->env) : NULL;
    if (call->cwd)
        ex->cwd = call->cwd[0] == '/' ? str_dup(call->cwd) : str_printf("/workspace/%s", call->cwd);
    if (call->input) {
        ex->input = str_dup_n(call->input, call->input_len);
        ex->input_len = call->input_len;
    }
    ex->background = call->background;
    ex->report_only_end = call->report_only_end;
    ex->spec.wall_ms = call->timeout_ms;
    ex->spec.cpu_ms = call->cpu_ms;
    ex->spec.output_max = call->output_max;
    (void)str_copy(ex->created_by, sizeof(ex->created_by), call->created_by ? call->created_by : "");
    (void)str_copy(ex->request_id, sizeof(ex->request_id), call->request_id ? call->request_id : "");
    return ex;
}

static struct language_kernel_code context_execution_code(const struct execution *ex)
{
    return (struct language_kernel_code){
        .id = ex->id, .code = ex->code, .env = (const char *const *)ex->env, .cwd = ex->cwd
    };
}

static int context_may_add_execution(const struct context *cx, const struct execution *ex, struct err *err)
{
    struct sandbox *sb = cx->sandbox;
    struct language_kernel_code code = context_execution_code(ex);

    if (cx->nqueued >= CONTEXT_EXECUTIONS_MAX) {
        err_set(err, ERR_CONTEXT_BUSY,
                "context %s has %zu running or queued executions, which is the maximum; wait for one to end", cx->id,
                cx->nqueued);
        return err_set_limit(err, "contextExecutions", cx->nqueued, CONTEXT_EXECUTIONS_MAX);
    }
    if (!language_kernel_accepts_code(&code))
        return err_set(err, ERR_INVALID,
                       "code: with its JSON quoting, code and env are longer than one request to the language kernel "
                       "may be (%llu bytes); write the code to a file and run the file as a command",
                       KERNEL_EVENT_LINE_MAX);
    if (execution_find(sb, ex->id))
        return err_set(err, ERR_IDEMPOTENCY, "execution %s is being started already", ex->id);
    if (sandbox_check_running_executions(sb, sandbox_running_executions(sb), err) < 0 ||
        budget_check(sb->services->budgets, sb->quota, true, err) < 0)
        return -1;
    return quota_reserve_execution(sb->quota, quota_now_ms(sb->services->ev), err);
}

int context_add_execution(struct context *cx, struct execution *ex, struct err *err)
{
    struct sandbox *sb = cx->sandbox;
    struct execution **p = &cx->queue;

    if (context_may_add_execution(cx, ex, err) < 0) {
        execution_free(ex);
        return -1;
    }
    execution_link(ex, sb);
    memcpy(ex->context_id, cx->id, sizeof(ex->context_id));
    if (!ex->spec.wall_ms)
        ex->spec.wall_ms = sb->spec.limits.v[LIMIT_WALL];
    if (!ex->spec.cpu_ms)
        ex->spec.cpu_ms = sb->spec.limits.v[LIMIT_CPU_TIME];
    if (!ex->spec.output_max)
        ex->spec.output_max = sb->spec.limits.v[LIMIT_OUTPUT];
    if (ex->spec.output_max)
        ex->output.stream.limit = ex->spec.output_max;
    while (*p)
        p = &(*p)->next_in_context;
    *p = ex;
    ex->running_context = cx;
    cx->nqueued++;
    sb->services->stats->executions++;
    if (ex->report_only_end)
        execution_insert_row_later(ex);
    else
        execution_insert_row(ex);
    context_start_next_execution(cx);
    return 0;
}

static bool context_execution_is_running(const struct execution *ex)
{
    const struct context *cx = ex->running_context;

    return cx && language_kernel_is_executing(&cx->kernel) && cx->queue == ex;
}

/* Not while its denials are collected: a signal would reach the idle language kernel. */
static bool context_execution_runs_code(const struct execution *ex)
{
    return context_execution_is_running(ex) && ex->running_context->kernel.state != LANGUAGE_KERNEL_COLLECTING;
}

static void context_execution_on_cpu_timer(void *arg)
{
    struct execution *ex = arg;
    struct ev *ev = ex->sandbox->services->ev;
    enum ended_by by;

    if (!context_execution_is_running(ex))
        return;
    if (exec_clocks_check(&ex->cpu_clock, ev_now(ev), sandbox_handle_cpu_sample(ex->sandbox->handle), &by))
        language_kernel_interrupt(&ex->running_context->kernel, by);
    else
        ev_timer_set(ev, &ex->cpu_timer, exec_clocks_next(&ex->cpu_clock), context_execution_on_cpu_timer, ex);
}

/* As for a program, the CPU time of the whole sandbox counts from here on. A paused sandbox uses
 * none, so the clock needs no pause. */
static void context_execution_start_cpu_clock(struct execution *ex)
{
    struct ev *ev = ex->sandbox->services->ev;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct cpu_rate rate = { .quota_milli = ex->sandbox->spec.limits.v[LIMIT_CPU],
                             .cores = cores > 0 ? (uint32_t)cores : 1 };

    if (!ex->spec.cpu_ms)
        return;
    exec_clocks_start(&ex->cpu_clock, 0, ex->spec.cpu_ms, rate, ev_now(ev), ex->cpu_base_ns);
    if (exec_clocks_next(&ex->cpu_clock) != CLOCKS_NEVER)
        ev_timer_set(ev, &ex->cpu_timer, exec_clocks_next(&ex->cpu_clock), context_execution_on_cpu_timer, ex);
}

static void context_execution_begin(struct execution *ex)
{
    execution_begin_running(ex);
    ex->created_mono_ms = sandbox_mono_ms(ex->sandbox);
    ex->begun_ns = clock_mono_ns();
    ex->sandbox_paused_ms = ex->sandbox->paused_total_ms;
    ex->cpu_base_ns = sandbox_handle_cpu_ns(ex->sandbox->handle);
    ex->is_only_execution = sandbox_running_executions(ex->sandbox) == 1;
    context_execution_start_cpu_clock(ex);
    execution_notify(ex);
}

void context_start_next_execution(struct context *cx)
{
    struct execution *ex = cx->queue;

    if (cx->kernel.state != LANGUAGE_KERNEL_IDLE || !ex || cx->sandbox->state == SANDBOX_STATE_ENDING)
        return;
    cx->executions_run++;
    ex->context_reset = cx->reset_unreported;
    cx->reset_unreported = false;
    context_execution_begin(ex);
    struct language_kernel_code code = context_execution_code(ex);
    language_kernel_execute(&cx->kernel, &code, ex->spec.wall_ms * NS_PER_MS);
    failure_set_code(&ex->failure, language_kernel_name(&cx->kernel), ex->code);
    free(take_ptr(&ex->code));
}

/* --- the end --- */

/* Its language kernel has ended, and a new one follows. */
static bool context_is_restarting(const struct context *cx)
{
    return cx->kernel.state == LANGUAGE_KERNEL_ENDED && cx->restart_requested &&
           cx->sandbox->state != SANDBOX_STATE_ENDING;
}

static void context_execution_make_receipt(const struct context *cx, const struct execution *ex, enum ended_by by,
                                           int code, int signo, struct receipt *r)
{
    static const char why[] = "the language kernel of a context is one process for all its executions";
    const struct output_stream *s = &ex->output.stream;
    struct kernel_figures f = {
        .execution = ex->id,
        .request = ex->request_id,
        .final = true,
        .started_real_ns = ex->started_ms * NS_PER_MS,
        .wall_ns = context_execution_elapsed_ns(ex),
        .cpu_base_ns = ex->is_only_execution ? ex->cpu_base_ns : SANDBOX_USAGE_UNKNOWN,
        .cpu_why = why,
        .other_why = why,
        .wall_limit_ms = ex->spec.wall_ms,
        .cpu_limit_ms = ex->spec.cpu_ms,
        .output_limit = ex->spec.output_max,
        .stdout_bytes = s->kept[0] + s->dropped[0],
        .stderr_bytes = s->kept[1] + s->dropped[1],
        .dropped_bytes = s->dropped[0] + s->dropped[1] + s->dropped[2],
    };

    kernel_receipt_make(&cx->kernel, &f, by, code, signo, r);
    if (ex->state == EXECUTION_RUNNING)
        kernel_receipt_set_denials(&cx->kernel, r);
    else
        r->denials_why = "its code was never started";
    r->context_reset = ex->context_reset || context_is_restarting(cx);
}

static void context_execution_end(struct context *cx, struct execution *ex, enum ended_by by, int code, int signo)
{
    struct receipt r;

    context_execution_make_receipt(cx, ex, by, code, signo, &r);
    context_unlink_execution(cx, ex);
    execution_end(ex, STORE_EXECUTION_ENDED, &r, NULL);
}

void context_execution_over(struct context *cx, enum ended_by by, int code, int signo)
{
    context_execution_end(cx, cx->queue, by, code, signo);
}

void context_execution_kernel_died(struct context *cx, const struct receipt *kernel, const struct err *why)
{
    struct execution *ex = cx->queue;
    struct receipt r;

    context_execution_make_receipt(cx, ex, kernel->ended_by, kernel->exit_code, kernel->signal, &r);
    context_unlink_execution(cx, ex);
    execution_end(ex, STORE_EXECUTION_FAILED, &r, why);
}

void context_fail_executions(struct context *cx, const struct err *why)
{
    while (cx->queue) {
        struct execution *ex = cx->queue;

        context_unlink_execution(cx, ex);
        execution_end(ex, STORE_EXECUTION_FAILED, NULL, why);
    }
}

static void context_execution_on_cancel_deferred(void *arg)
{
    struct execution *ex = arg;

    if (ex->state == EXECUTION_ENDED)
        return;
    if (context_execution_is_running(ex))
        language_kernel_interrupt(&ex->running_context->kernel, ENDED_KILLED);
    else if (ex->running_context && ex->running_context->kernel.exec)
        context_execution_end(ex->running_context, ex, ENDED_KILLED, -1, 0);
}

/* Deferred: a queued execution would end immediately, inside the caller's call. */
void context_execution_kill(struct execution *ex)
{
    ev_defer(ex->sandbox->services->ev, &ex->cancel_defer, context_execution_on_cancel_deferred, ex);
}

void context_execution_signal(struct execution *ex, int signo)
{
    if (context_execution_runs_code(ex) && signo == SIGINT)
        language_kernel_interrupt(&ex->running_context->kernel, ENDED_KILLED);
    else if (context_execution_runs_code(ex))
        exec_handle_signal(ex->running_context->kernel.exec, signo);
}

/* --- from the language kernel --- */

void context_execution_output(void *arg, int channel, const void *data, size_t len)
{
    struct context *cx = arg;
    struct execution *ex = cx->queue;

    if (!ex)
        return;
    output_stream_write(&ex->output.stream, channel, data, len);
    execution_notify(ex);
}

static void context_execution_keep_event(struct execution *ex, const struct kernel_event *e)
{
    output_stream_write_event(&ex->output.stream, e);
    execution_notify(ex);
}

void context_execution_on_finished(void *arg, const struct language_kernel_result *result)
{
    struct context *cx = arg;

    if (cx->queue)
        context_execution_over(cx, result->ended_by, result->exit_code, result->signal);
    context_notify_outcome(cx, result->status == KERNEL_STATUS_INTERRUPTED ? "interrupted" : "finished", NULL);
    context_start_next_execution(cx);
}

bool context_execution_event(struct context *cx, const struct kernel_event *e)
{
    struct execution *ex = language_kernel_is_executing(&cx->kernel) ? cx->queue : NULL;

    if (!ex || !str_eq(e->id, ex->id))
        return false;
    switch (e->kind) {
    case KERNEL_EVENT_DISPLAY:
    case KERNEL_EVENT_RESULT:
    case KERNEL_EVENT_ERROR:
        context_execution_keep_event(ex, e);
        return true;
    case KERNEL_EVENT_INPUT:
        if (ex->input) {
            language_kernel_send_input_line(&cx->kernel, ex->input, ex->input_len, &ex->input_sent);
            return true;
        }
        ex->awaits_input = true;
        context_execution_keep_event(ex, e);
        return true;
    case KERNEL_EVENT_STARTED:
        return true;
    case KERNEL_EVENT_FINISHED:
    case KERNEL_EVENT_READY:
    case KERNEL_EVENT_COMPLETIONS:
    case KERNEL_EVENT_INSPECTION:
    case KERNEL_EVENT_REFUSED:
    case KERNEL_EVENT_REPORT:
        break;
    }
    return false;
}

int manager_context_input(struct manager *m, const char *owner, const char *sandbox, const char *execution,
                          const char *text, struct err *err)
{
    struct sandbox *sb = registry_find(manager_sandbox_services(m)->registry, owner, sandbox);
    struct execution *ex = sb ? execution_find(sb, execution) : NULL;

    if (!ex)
        return err_set(err, ERR_MISSING, "there is no such running execution");
    if (!context_execution_runs_code(ex) || !ex->awaits_input)
        return err_set(err, ERR_EXISTS, "execution %s does not wait for input", ex->id);
    ex->awaits_input = false;
    language_kernel_send_input(&ex->running_context->kernel, text);
    return 0;
}
