/* Executions of a context: each waits for its turn, is one `execute` to the kernel, and ends with the kernel's word, a
 * clock's or the kernel's own end.
 *
 * Its row is written when it gets its place, so it can be followed while it waits. Its time begins with its turn. What
 * is kept of its events has the same bound as its output. */
#include "sandbox/contexts.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <signal.h>
#include <stdio.h>

uint64_t call_elapsed_ms(const struct ex *ex)
{
    const struct sb *sb = ex->sb;
    uint64_t now = sb->paused_at_ms ? sb->paused_at_ms : mono_ms(sb->m);
    uint64_t paused = sb->paused_ms > ex->paused_ms ? sb->paused_ms - ex->paused_ms : 0;

    return now > ex->created_mono_ms + paused ? now - ex->created_mono_ms - paused : 0;
}

/* --- the queue --- */

static void unlink_call(struct cx *cx, struct ex *ex)
{
    struct ex **p = &cx->calls;

    while (*p != ex)
        p = &(*p)->cx_next;
    *p = ex->cx_next;
    cx->ncalls--;
    ex->cx = NULL;
}

void call_forget(struct ex *ex)
{
    if (ex->cx)
        unlink_call(ex->cx, ex);
}

void call_name(struct ex *ex, const char *context)
{
    snprintf(ex->context, sizeof(ex->context), "%s", context);
    snprintf(ex->told, sizeof(ex->told), "{\"context\":\"%s\"}", ex->context);
}

struct ex *call_new(const char *id, const struct context_call *call, store_execution_fn *done, void *arg)
{
    struct ex *ex = ex_alloc(id);

    ex->done = done;
    ex->done_arg = arg;
    ex->code = str_dup(call->code);
    ex->background = call->background;
    ex->spec.wall_ms = call->timeout_ms;
    ex->spec.output_max = call->output_max;
    (void)str_copy(ex->created_by, sizeof(ex->created_by), call->created_by ? call->created_by : "");
    (void)str_copy(ex->request, sizeof(ex->request), call->request ? call->request : "");
    return ex;
}

static int may_add(const struct cx *cx, const struct ex *ex, struct err *err)
{
    struct sb *sb = cx->sb;

    if (cx->ncalls >= CONTEXT_CALLS_MAX)
        return err_set(err, ERR_LIMIT,
                       "context %s has %zu executions that run or wait, and takes no more until one ended", cx->id,
                       cx->ncalls);
    if (ex_find(sb, ex->id))
        return err_set(err, ERR_IDEMPOTENCY, "execution %s is being started already", ex->id);
    if (sb->nexecs >= sb->m->set.executions_max)
        return err_set(err, ERR_LIMIT, "sandbox %s runs %zu executions already, and no more at one time", sb->id,
                       sb->nexecs);
    if (budget_check(sb->m, sb->owner, true, err) < 0)
        return -1;
    return share_take_execution(sb->share, share_now(sb->m), &sb->m->refusal, err);
}

int call_add(struct cx *cx, struct ex *ex, struct err *err)
{
    struct sb *sb = cx->sb;
    struct ex **p = &cx->calls;

    if (may_add(cx, ex, err) < 0) {
        ex_free(ex);
        return -1;
    }
    ex_link(ex, sb);
    call_name(ex, cx->id);
    if (!ex->spec.wall_ms)
        ex->spec.wall_ms = sb->spec.limits.v[LIMIT_WALL];
    if (!ex->spec.output_max)
        ex->spec.output_max = sb->spec.limits.v[LIMIT_OUTPUT];
    while (*p)
        p = &(*p)->cx_next;
    *p = ex;
    ex->cx = cx;
    cx->ncalls++;
    sb->m->stats.executions++;
    ex_insert(ex);
    call_next(cx);
    return 0;
}

static bool runs(const struct ex *ex)
{
    return ex->cx && ex->cx->state == CONTEXT_BUSY && !ex->cx->left && ex->cx->calls == ex;
}

static void on_start_stored(void *arg UNUSED, const struct err *err UNUSED, const struct store_execution *row UNUSED)
{
}

static void begin(struct ex *ex)
{
    struct store_execution row = { .state = STORE_EX_RUNNING };

    ex->started = true;
    row.started_ms = ex->started_ms = now_ms();
    ex->created_mono_ms = mono_ms(ex->sb->m);
    ex->paused_ms = ex->sb->paused_ms;
    ex->cpu_base_ns = box_cpu_ns(ex->sb->box);
    ex->alone = ex->sb->nexecs == 1;
    memcpy(row.id, ex->id, sizeof(row.id));
    store_execution_update(ex->sb->m->store, ex->sb->owner, &row, STORE_EX_SET_STATE | STORE_EX_SET_STARTED,
                           &(struct store_when){ .states = STORE_BIT(STORE_EX_STARTING) }, on_start_stored, NULL);
    ex_tell(ex);
}

void call_next(struct cx *cx)
{
    struct ex *ex = cx->calls;
    struct buf line = { 0 };
    struct jsonw w;

    if (cx->state != CONTEXT_IDLE || !ex || cx->sb->state == SB_ENDING)
        return;
    cx->state = CONTEXT_BUSY;
    cx->interrupted = false;
    cx->executions++;
    begin(ex);
    jsonw_init(&w, &line, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "op", "execute");
    jsonw_kstr(&w, "id", ex->id);
    jsonw_kstr(&w, "code", ex->code);
    jsonw_end_object(&w);
    buf_adds(&line, "\n");
    cx_send(cx, line.data, line.len);
    buf_done(&line);
    free(take_ptr(&ex->code));
    cx_set_clock(cx, ex->spec.wall_ms * NS_PER_MS);
}

/* --- the end --- */

static struct figure shared(void)
{
    return (struct figure){ .why = "the kernel of a context is one process for all its executions" };
}

static void make_receipt(const struct cx *cx, const struct ex *ex, enum ended_by by, int code, int signo,
                         struct receipt *r)
{
    uint64_t cpu = box_cpu_ns(ex->sb->box);

    *r = *exec_receipt(cx->exec);
    r->changes = NULL;
    r->denials = NULL;
    r->nchanges = r->ndenials = 0;
    memcpy(r->execution, ex->id, sizeof(r->execution));
    memcpy(r->request, ex->request, sizeof(r->request));
    r->final = true; /* of sums that are its kernel's or the sandbox's, it has none to wait for */
    r->ended_by = by;
    r->exit_code = code;
    r->signal = signo;
    r->started_real_ns = ex->started_ms * NS_PER_MS;
    r->wall_ns = (struct figure){ .v = call_elapsed_ms(ex) * NS_PER_MS };
    r->cpu_ns = shared();
    if (ex->alone && cpu != BOX_UNKNOWN && ex->cpu_base_ns != BOX_UNKNOWN && cpu >= ex->cpu_base_ns)
        r->cpu_ns = (struct figure){ .v = cpu - ex->cpu_base_ns };
    r->memory_peak = r->read_bytes = r->write_bytes = r->tasks_started = r->pids_peak = shared();
    r->pids_refused = r->oom_kills = r->throttled_ns = shared();
    r->denials_why = r->full_why = shared().why;
    r->limits.v[LIMIT_WALL] = ex->spec.wall_ms;
    r->limits.v[LIMIT_OUTPUT] = ex->spec.output_max;
    r->stdout_bytes = ex->len[0] + ex->dropped[0];
    r->stderr_bytes = ex->len[1] + ex->dropped[1];
    r->dropped_bytes = ex->dropped[0] + ex->dropped[1] + ex->dropped[2];
}

static void end(struct cx *cx, struct ex *ex, enum ended_by by, int code, int signo)
{
    struct receipt r;

    make_receipt(cx, ex, by, code, signo, &r);
    unlink_call(cx, ex);
    ex_end(ex, STORE_EX_ENDED, &r, NULL);
}

void call_over(struct cx *cx, enum ended_by by, int code, int signo)
{
    ev_timer_clear(cx->sb->m->ev, &cx->clock);
    cx->state = CONTEXT_IDLE;
    end(cx, cx->calls, by, code, signo);
}

void call_died(struct cx *cx, const struct receipt *kernel, const struct err *why)
{
    struct ex *ex = cx->calls;
    struct receipt r;

    cx->state = CONTEXT_IDLE;
    make_receipt(cx, ex, kernel->ended_by, kernel->exit_code, kernel->signal, &r);
    unlink_call(cx, ex);
    ex_end(ex, STORE_EX_FAILED, &r, why);
}

void calls_fail(struct cx *cx, const struct err *why)
{
    while (cx->calls) {
        struct ex *ex = cx->calls;

        unlink_call(cx, ex);
        ex_end(ex, STORE_EX_FAILED, NULL, why);
    }
}

static void on_cancelled(void *arg)
{
    struct ex *ex = arg;

    if (ex->ended)
        return;
    if (runs(ex))
        cx_interrupt(ex->cx, ENDED_KILLED);
    else if (ex->cx && ex->cx->exec)
        end(ex->cx, ex, ENDED_KILLED, -1, 0);
}

/* One that waits would be over at once, and whoever asks for it is not prepared for that. */
void call_kill(struct ex *ex)
{
    ev_defer(ex->sb->m->ev, &ex->cancel, on_cancelled, ex);
}

void call_signal(struct ex *ex, int signo)
{
    if (runs(ex) && signo == SIGINT)
        cx_interrupt(ex->cx, ENDED_SIGNAL);
    else if (runs(ex))
        exec_signal(ex->cx->exec, signo);
}

/* --- what the kernel says of it --- */

static size_t room(const struct ex *ex)
{
    uint64_t kept = ex->len[0] + ex->len[1] + ex->len[2];

    if (!ex->spec.output_max)
        return SIZE_MAX;
    return (size_t)(ex->spec.output_max > kept ? ex->spec.output_max - kept : 0);
}

static struct ex *running(const struct cx *cx)
{
    return cx->state == CONTEXT_BUSY && !cx->left ? cx->calls : NULL;
}

void call_output(struct cx *cx, int channel, const void *data, size_t len)
{
    struct ex *ex = running(cx);

    if (!ex)
        return;
    size_t n = min_size(len, room(ex));
    ex->dropped[channel - 1] += len - n;
    if (n > 0)
        output_append(ex, channel, data, n);
    ex_tell(ex);
}

static void keep(struct ex *ex, const struct kevent *e)
{
    auto_buf line = { 0 };

    kevent_json(e, &line);
    buf_adds(&line, "\n");
    if (line.len <= room(ex))
        output_append(ex, CONTEXT_EVENTS, line.data, line.len);
    else
        ex->dropped[CONTEXT_EVENTS - 1] += line.len;
    ex_tell(ex);
}

static void finished(struct cx *cx, const struct kevent *e)
{
    enum ended_by cause = cx->cause;
    bool stopped = cx->interrupted && e->status == KEVENT_INTERRUPTED;

    cx->outcome = e->status == KEVENT_INTERRUPTED ? "interrupted" : "finished";
    if (stopped && cause != ENDED_SIGNAL)
        call_over(cx, cause, -1, SIGINT); /* a clock, or a cancel, that it heeded */
    else if (e->status == KEVENT_INTERRUPTED)
        call_over(cx, ENDED_SIGNAL, -1, SIGINT);
    else
        call_over(cx, ENDED_EXIT, e->status == KEVENT_OK ? 0 : 1, 0);
    cx_tell(cx, WAIT_CALL, NULL);
    cx->outcome = NULL;
    call_next(cx);
}

bool call_event(struct cx *cx, const struct kevent *e)
{
    struct ex *ex = running(cx);

    if (!ex || !str_eq(e->id, ex->id))
        return false;
    switch (e->kind) {
    case KEVENT_DISPLAY:
    case KEVENT_RESULT:
    case KEVENT_ERROR:
        keep(ex, e);
        return true;
    case KEVENT_INPUT:
        ex->awaits_input = true;
        keep(ex, e);
        return true;
    case KEVENT_STARTED:
        return true;
    case KEVENT_FINISHED:
        finished(cx, e);
        return true;
    case KEVENT_READY:
    case KEVENT_COMPLETIONS:
    case KEVENT_INSPECTION:
    case KEVENT_REFUSED:
        break;
    }
    return false;
}

int manager_context_input(struct manager *m, const char *owner, const char *sandbox, const char *execution,
                          const char *text, struct err *err)
{
    struct sb *sb = sb_find(m, owner, sandbox);
    struct ex *ex = sb ? ex_find(sb, execution) : NULL;
    auto_buf line = { 0 };
    struct jsonw w;

    if (!ex)
        return err_set(err, ERR_MISSING, "there is no such execution that runs");
    if (!runs(ex) || !ex->awaits_input)
        return err_set(err, ERR_EXISTS, "execution %s does not wait for input", ex->id);
    ex->awaits_input = false;
    jsonw_init(&w, &line, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "op", "input");
    jsonw_kstr(&w, "id", ex->id);
    if (text)
        jsonw_kstr(&w, "text", text);
    else
        jsonw_kbool(&w, "eof", true);
    jsonw_end_object(&w);
    buf_adds(&line, "\n");
    cx_send(ex->cx, line.data, line.len);
    return 0;
}
