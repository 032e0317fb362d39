/* The kernel of a context: started, heard, interrupted, ended.
 *
 * Everything the kernel says is hostile input (kevent.c); what it says of an execution that does not run, or of nothing
 * that was asked, is counted and dropped. Output that comes while nothing runs belongs to nobody and is dropped too:
 * threads that user code left behind.
 *
 * Invariants:
 * 1. A kernel's end is seen in one place (kernel_gone), whoever brought it about; what follows is decided there by what
 *    was wanted: `gone`, `again`, or nothing, and then the context is dead.
 * 2. The clock never acts on a paused sandbox: it could not answer, and would be ended for it. */
#include "sandbox/contexts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>

#define START_NS (60 * NS_PER_S)
#define FORK_NS (30 * NS_PER_S) /* it takes a millisecond, and longer where memory is large */
#define GRACE_NS (3 * NS_PER_S) /* for an interrupt */
#define LATER_NS (1 * NS_PER_S) /* a paused sandbox is looked at again */

const char *const context_states[] = { "starting", "idle", "busy", "dead", NULL };

struct language {
    const char *name;
    const char *runtime;  /* NULL: the kernel is a program itself */
    const char *words[3]; /* behind the interpreter */
    const char *others[4];
    const char *start; /* what starts the interpreter, or NULL */
    bool forks;
};

static const struct language languages[] = {
    { "python", "python", { "-I", "/.cove/kernels/python/kernel.py" }, { "python3", "py" }, NULL, true },
    { "node",
      "node",
      { "/.cove/kernels/node/kernel.mjs" },
      { "javascript", "js", "nodejs" },
      "/.cove/kernels/node/start" },
    { "bash", NULL, { "/.cove/kernels/bash/kernel" }, { "sh", "shell" } },
};

static const struct language *find_language(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(languages); i++) {
        if (str_eq(name, languages[i].name))
            return &languages[i];
        for (size_t k = 0; k < ARRAY_LEN(languages[i].others) && languages[i].others[k]; k++)
            if (str_eq(name, languages[i].others[k]))
                return &languages[i];
    }
    return NULL;
}

const char *context_language(const char *name)
{
    const struct language *l = find_language(name);

    return l ? l->name : NULL;
}

/* --- the object --- */

struct cx *cx_find(const struct sb *sb, const char *id)
{
    struct cx *cx = sb->contexts;

    while (cx && !str_eq(cx->id, id))
        cx = cx->next;
    return cx;
}

struct cx *cx_new(struct sb *sb, const char *id, const char *language)
{
    struct cx *cx = mem_new(struct cx), **p = &sb->contexts;

    if (id)
        memcpy(cx->id, id, sizeof(cx->id));
    else
        id_new("cx", cx->id);
    cx->sb = sb;
    cx->lang = find_language(language);
    cx->created_ms = now_ms();
    while (*p)
        p = &(*p)->next;
    *p = cx;
    return cx;
}

const char *cx_language(const struct cx *cx)
{
    return cx->lang->name;
}

void cx_ask_over(struct cx_ask *a, const struct err *err, const char *json)
{
    struct cx_ask **p = &a->cx->asks;

    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
    ev_timer_clear(a->cx->sb->m->ev, &a->timer);
    a->done(a->arg, err, json);
    free(a);
}

void cx_free(struct cx *cx)
{
    struct cx **p = &cx->sb->contexts;

    while (*p != cx)
        p = &(*p)->next;
    *p = cx->next;
    ev_timer_clear(cx->sb->m->ev, &cx->clock);
    for (struct ex *ex = cx->calls; ex; ex = ex->cx_next)
        ex->cx = NULL;
    while (cx->asks) {
        struct cx_ask *a = cx->asks;

        cx->asks = a->next;
        ev_timer_clear(cx->sb->m->ev, &a->timer);
        free(a);
    }
    while (cx->waits) {
        struct cx_wait *w = cx->waits;

        cx->waits = w->next;
        free(w);
    }
    exec_free(cx->exec);
    kevent_reset(&cx->in);
    buf_done(&cx->out);
    spec_env_free(cx->env);
    free(cx->cwd);
    free(cx);
}

void cx_info(const struct cx *cx, struct context_info *ret)
{
    *ret = (struct context_info){ .created_ms = cx->created_ms,
                                  .state = cx->state,
                                  .executions = cx->executions,
                                  .restarts = cx->restarts,
                                  .refused = cx->refused,
                                  .why = cx->why,
                                  .outcome = cx->outcome };
    memcpy(ret->id, cx->id, sizeof(ret->id));
    memcpy(ret->sandbox, cx->sb->id, sizeof(ret->sandbox));
    memcpy(ret->created_by, cx->created_by, sizeof(ret->created_by));
    memcpy(ret->forked_from, cx->forked_from, sizeof(ret->forked_from));
    memcpy(ret->version, cx->version, sizeof(ret->version));
    (void)str_copy(ret->language, sizeof(ret->language), cx->lang->name);
    snprintf(ret->cwd, sizeof(ret->cwd), "%s", cx->cwd ? cx->cwd : "");
    if (cx->state == CONTEXT_BUSY && !cx->left && cx->calls)
        memcpy(ret->running, cx->calls->id, sizeof(ret->running));
    ret->queued = cx->ncalls - (ret->running[0] != '\0');
}

/* --- those who wait --- */

void cx_wait_for(struct cx *cx, int what, context_fn *done, void *arg)
{
    struct cx_wait *w = mem_new(struct cx_wait), **p = &cx->waits;

    w->what = (typeof(w->what))what;
    w->done = done;
    w->arg = arg;
    while (*p)
        p = &(*p)->next;
    *p = w;
}

void cx_tell(struct cx *cx, int what, const struct err *err)
{
    struct cx_wait *told = NULL, **p = &cx->waits;
    struct context_info info;

    cx_info(cx, &info);
    while (*p) { /* first all of them are taken: any may ask for something new */
        struct cx_wait *w = *p;

        if ((int)w->what != what) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        w->next = told;
        told = w;
    }
    while (told) {
        struct cx_wait *w = told;

        told = w->next;
        w->done(w->arg, err, err ? NULL : &info);
        free(w);
    }
}

/* --- to the kernel --- */

static void flush(void *arg)
{
    struct cx *cx = arg;
    size_t n = cx->exec && cx->out.len ? exec_kernel_write(cx->exec, cx->out.data, cx->out.len) : 0;

    if (n == cx->out.len)
        buf_done(&cx->out);
    else
        buf_drop(&cx->out, n);
}

void cx_send(struct cx *cx, const char *line, size_t len)
{
    buf_add(&cx->out, line, len);
    flush(cx);
}

void cx_end_kernel(struct cx *cx)
{
    exec_kill(cx->exec);
}

void cx_interrupt(struct cx *cx, enum ended_by cause)
{
    if (cx->state != CONTEXT_BUSY || cx->interrupted)
        return;
    cx->interrupted = true;
    cx->cause = cause;
    exec_signal(cx->exec, SIGINT);
    cx_set_clock(cx, GRACE_NS);
}

static void on_clock(void *arg)
{
    struct cx *cx = arg;
    const struct ex *ex = cx->calls;

    if (cx->sb->state != SB_RUNNING) {
        cx_set_clock(cx, LATER_NS);
    } else if (cx->left && !cx->interrupted) {
        cx_interrupt(cx, ENDED_WALL);
    } else if (cx->state == CONTEXT_BUSY && !cx->interrupted) {
        uint64_t elapsed = call_elapsed_ms(ex);

        if (elapsed < ex->spec.wall_ms)
            cx_set_clock(cx, (ex->spec.wall_ms - elapsed) * NS_PER_MS);
        else
            cx_interrupt(cx, ENDED_WALL);
    } else {
        cx->killed = true;
        cx->again = cx->state == CONTEXT_BUSY;
        cx_end_kernel(cx);
    }
}

void cx_set_clock(struct cx *cx, uint64_t ns)
{
    ev_timer_set(cx->sb->m->ev, &cx->clock, ev_now(cx->sb->m->ev) + ns, on_clock, cx);
}

/* --- from the kernel --- */

/* Once: it holds for every kernel of its kind on this host. */
static void log_note(const struct cx *cx, const char *note)
{
    static bool told;
    char text[200];

    if (told || !*note)
        return;
    told = true;
    snprintf(text, sizeof(text), "%s", note);
    str_tame(text);
    log_about(LOG_WARN, &(struct log_about){ .sandbox = cx->sb->id }, "%s kernels start slower than they could: %s",
              cx->lang->name, text);
}

static void ready(struct cx *cx, const struct kevent *e)
{
    ev_timer_clear(cx->sb->m->ev, &cx->clock);
    snprintf(cx->version, sizeof(cx->version), "%s", e->version);
    str_tame(cx->version);
    cx->state = CONTEXT_IDLE;
    cx->fresh = false;
    cx->said[0] = '\0';
    log_note(cx, e->note);
    contexts_store(cx->sb);
    cx->noted = cx->sb->contexts_seq;
    call_next(cx);
}

static bool answer(struct cx *cx, const struct kevent *e)
{
    auto_buf told = { 0 };
    struct err err;

    for (struct cx_ask *a = cx->asks; a; a = a->next) {
        if (!str_eq(a->id, e->id))
            continue;
        if (e->kind == (a->inspect ? KEVENT_INSPECTION : KEVENT_COMPLETIONS)) {
            kevent_json(e, &told);
            cx_ask_over(a, NULL, told.data);
            return true;
        }
        if (e->kind != KEVENT_REFUSED)
            return false;
        err_set(&err, ERR_INVALID, "the kernel refused the question");
        cx_ask_over(a, &err, NULL);
        return true;
    }
    return false;
}

static void on_event(void *arg, const struct kevent *e)
{
    struct cx *cx = arg;

    if (e && e->kind == KEVENT_READY && cx->state == CONTEXT_STARTING)
        ready(cx, e);
    else if (!e || (!call_event(cx, e) && !answer(cx, e)))
        cx->refused++;
}

static void on_kernel(void *arg, const void *data, size_t len)
{
    struct cx *cx = arg;

    kevent_feed(&cx->in, data, len, on_event, cx);
}

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct cx *cx = arg;
    size_t had = strlen(cx->said);

    if (cx->state == CONTEXT_STARTING && channel == 2 && had < sizeof(cx->said) - 1)
        snprintf(cx->said + had, sizeof(cx->said) - had, "%.*s", (int)min_size(len, sizeof(cx->said)),
                 (const char *)data);
    call_output(cx, channel, data, len);
}

/* --- its end --- */

void cx_die(struct cx *cx, const struct err *why)
{
    auto_buf body = { 0 };

    cx->state = CONTEXT_DEAD;
    cx->why = *why;
    buf_addf(&body, "\"contextId\":\"%s\"", cx->id);
    if (cx->sb->state != SB_ENDING)
        sb_event(cx->sb, "context_died", NULL, body.data);
    cx_tell(cx, WAIT_READY, why);
}

static void explain(const struct cx *cx, const struct receipt *r, const struct err *failed, struct err *ret)
{
    const char *id = cx->id;

    if (cx->sb->state == SB_ENDING)
        sb_ended_error(cx->sb, ret);
    else if (failed && cx->fresh && cx->forked_from[0])
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s cannot be forked: %.160s",
                cx->forked_from, failed->msg);
    else if (cx->killed && cx->fresh && cx->forked_from[0])
        err_set(ret, ERR_TIMEOUT, "context %s was not forked within %llu s: its kernel does not answer",
                cx->forked_from, FORK_NS / NS_PER_S);
    else if (failed && failed->id == ERR_PROGRAM_MISSING)
        err_set(ret, ERR_RUNTIME_MISSING, "context %s: %.160s", id, failed->msg);
    else if (failed)
        err_set(ret, failed->id == ERR_LOST ? ERR_CONTEXT_DEAD : failed->id, "context %s: %.160s", id, failed->msg);
    else if (!r)
        err_set(ret, ERR_BUG, "context %s: its kernel ended without a word", id);
    else if (cx->killed && cx->state == CONTEXT_STARTING)
        err_set(ret, ERR_TIMEOUT, "context %s: its kernel was not ready within %llu s", id, START_NS / NS_PER_S);
    else if (cx->killed)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was restarted: its kernel did not heed an interrupt", id);
    else if (cx->again || cx->gone)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s was %s", id, cx->gone ? "deleted" : "restarted");
    else if (r->ended_by == ENDED_MEMORY)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: memory ran out, and its kernel was ended for it", id);
    else if (r->ended_by == ENDED_EXIT)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its kernel ended with status %d%s%.120s", id, r->exit_code,
                cx->said[0] ? ": " : "", cx->said);
    else if (r->ended_by == ENDED_SIGNAL)
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its kernel was ended by signal %d", id, r->signal);
    else
        err_set(ret, ERR_CONTEXT_DEAD, "context %s: its kernel was ended (%s)", id, ended_by_name(r->ended_by));
}

static void end_call(struct cx *cx, const struct receipt *r, const struct err *why)
{
    if (!r || r->ended_by == ENDED_LOST)
        cx->state = CONTEXT_IDLE; /* it fails with the others */
    else if (cx->killed || cx->again || cx->gone)
        call_over(cx, cx->interrupted && cx->cause == ENDED_WALL ? ENDED_WALL : ENDED_KILLED, -1, 0);
    else
        call_died(cx, r, why);
}

static void begin_anew(struct cx *cx)
{
    struct err err = { 0 };

    cx->again = cx->killed = cx->interrupted = false;
    cx->restarts++;
    cx->executions = 0;
    cx->forked_from[0] = '\0';
    if (cx_start(cx, &err) < 0)
        cx_die(cx, &err);
}

/* Receipts of its executions cannot say what was refused, because the interpreter is one process for all of them. */
static void tell_refusals(const struct cx *cx, const struct receipt *r)
{
    struct receipt told = *r;

    told.execution[0] = '\0'; /* the interpreter's own, which nobody knows */
    refusals_count(cx->sb->m, cx->sb->owner, &told);
}

static void kernel_gone(struct cx *cx, const struct receipt *r, const struct err *failed)
{
    struct sb *sb = cx->sb;
    struct err why;

    if (r)
        tell_refusals(cx, r);
    explain(cx, r, failed, &why);
    str_tame(why.msg);
    ev_timer_clear(sb->m->ev, &cx->clock);
    cx->outcome = "killed";
    if (cx->state == CONTEXT_BUSY && !cx->left)
        end_call(cx, r, &why);
    cx->left = false;
    calls_fail(cx, &why);
    cx->said[0] = '\0';
    exec_free(take_ptr(&cx->exec));
    kevent_reset(&cx->in);
    buf_done(&cx->out);
    for (struct cx_ask *a = cx->asks, *next; a; a = next) {
        next = a->next;
        cx_ask_over(a, &why, NULL);
    }
    cx_tell(cx, WAIT_CALL, sb->state == SB_ENDING ? &why : NULL);
    cx->outcome = NULL;
    if (cx->gone && sb->state != SB_ENDING) {
        cx_tell(cx, WAIT_READY, &why);
        cx->state = CONTEXT_DEAD;
        cx_tell(cx, WAIT_GONE, NULL);
        cx_free(cx);
        contexts_store(sb);
    } else if (cx->again && sb->state != SB_ENDING) {
        begin_anew(cx);
    } else if (cx->fresh) {
        cx_tell(cx, WAIT_READY, &why);
        cx_free(cx);
    } else {
        cx->killed = cx->interrupted = false;
        cx_tell(cx, WAIT_GONE, &why);
        cx_die(cx, &why);
    }
}

static void on_exit_(void *arg, const struct receipt *r)
{
    kernel_gone(arg, r, NULL);
}

static void on_failed(void *arg, const struct err *err)
{
    kernel_gone(arg, NULL, err);
}

static void on_started(void *arg)
{
    struct cx *cx = arg;

    if (!cx->stream)
        return;
    cx->stream = 0;
    cx_settle(cx);
}

static const struct exec_ops kernel_ops = { .on_started = on_started,
                                            .on_output = on_output,
                                            .on_writable = flush,
                                            .on_exit = on_exit_,
                                            .on_failed = on_failed,
                                            .on_kernel = on_kernel };

/* --- its beginning --- */

static struct exec_spec kernel_spec(const struct cx *cx)
{
    return (struct exec_spec){
        .env = (const char *const *)cx->env, .cwd = cx->cwd, .unmetered = true, .confirm = true, .kernel = true
    };
}

int context_command(const char *language, struct context_command *ret, struct err *err)
{
    const struct language *lang = find_language(language);
    const struct runtime *rt = lang && lang->runtime ? runtime_by_name(lang->runtime) : NULL;
    size_t n = 0;

    if (!lang)
        return err_set(err, ERR_RUNTIME_MISSING, "there is no kernel of this language");
    if (rt && runtime_find(rt, runtime_dirs, ret->path, sizeof(ret->path), err) < 0)
        return -1;
    if (lang->start)
        ret->argv[n++] = lang->start;
    if (rt)
        ret->argv[n++] = ret->path;
    for (size_t i = 0; i < ARRAY_LEN(lang->words) && lang->words[i]; i++)
        ret->argv[n++] = lang->words[i];
    ret->argv[n] = NULL;
    return 0;
}

int cx_start(struct cx *cx, struct err *err)
{
    struct exec_spec spec = kernel_spec(cx);
    struct context_command command;

    if (cx->env_lost)
        return err_set(err, ERR_CONTEXT_DEAD,
                       "context %s had variables that were not written down, so it cannot begin anew: delete it, and "
                       "create another",
                       cx->id);
    if (context_command(cx->lang->name, &command, err) < 0)
        return -1;
    spec.argv = command.argv;
    spec.join = cx->sb->spec.zygote.language && str_eq(cx->sb->spec.zygote.language, cx->lang->name);
    cx->stream = 0;
    if (box_exec(cx->sb->box, &spec, &kernel_ops, cx, &cx->exec, err) < 0)
        return -1;
    cx->state = CONTEXT_STARTING;
    cx_set_clock(cx, START_NS);
    return 0;
}

/* Directory and environment are those that the other has by now; its own are for a kernel that begins anew. */
int cx_fork(struct cx *cx, const struct cx *of, struct err *err)
{
    const char *const argv[] = { cx->lang->name, NULL };
    struct exec_spec spec = kernel_spec(cx);

    if (!cx->lang->forks)
        return err_set(err, ERR_FORK_UNSUPPORTED,
                       "context %s is of %s, which cannot be forked with its state; python can", of->id,
                       cx->lang->name);
    spec.argv = argv;
    spec.env = NULL;
    spec.cwd = NULL;
    spec.fork_of = of->exec;
    if (box_exec(cx->sb->box, &spec, &kernel_ops, cx, &cx->exec, err) < 0)
        return -1;
    cx->state = CONTEXT_STARTING;
    cx_set_clock(cx, FORK_NS);
    return 0;
}

int cx_resume(struct cx *cx, struct err *err)
{
    struct exec_spec spec = kernel_spec(cx);
    struct exec_resume resume = { .stream = cx->stream };

    cx->state = CONTEXT_STARTING;
    return box_exec_resume(cx->sb->box, &spec, &resume, &kernel_ops, cx, &cx->exec, err);
}
