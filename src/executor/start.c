/* Files in, then the program: a command is started as it is; code goes to the kernel of its language, which waits in
 * the sandbox already or is started for it.
 *
 * Everything the kernel says is hostile input (sandbox/kevent.h); what is of no use is dropped.
 *
 * The clock of code begins when its kernel is there, so a slow start of an interpreter is not the code's. When it has
 * run out the code is interrupted first, for the sake of its traceback, and killed a moment later. Nothing has to be
 * kept here, so that moment is short. */
#include "executor/inside.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/context.h"

#include <signal.h>
#include <stdio.h>

#define START_NS (60 * NS_PER_S)
#define GRACE_NS (1 * NS_PER_S)
#define INPUT_LINE_MAX (60000u) /* what every kernel takes as one answer */

static void start(struct run *r);

/* --- files in --- */

static void stage_next(struct run *r);

static void on_stage_room(void *arg)
{
    struct run *r = arg;
    const struct run_file *f = &r->req.files[r->file];

    r->sent += files_send(r->job, f->data + r->sent, f->len - r->sent);
    if (r->sent == f->len)
        files_send_end(r->job);
}

static void on_staged(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct run *r = arg;
    struct err why;

    files_free(take_ptr(&r->job));
    if (r->state != RUN_STAGING)
        return;
    if (err) {
        err_set(&why, err->id, "files[%zu]: %.180s", r->file, err->msg);
        run_fail(r, &why);
        return;
    }
    r->file++;
    stage_next(r);
}

static const struct files_ops stage_ops = { .on_writable = on_stage_room, .on_done = on_staged };

static void stage_next(struct run *r)
{
    struct err err = { 0 };

    if (r->file == r->req.nfiles) {
        start(r);
        return;
    }
    r->sent = 0;
    if (files_write(r->guest.box, r->req.files[r->file].path, 0, FILES_PARENTS, &stage_ops, r, &r->job, &err) < 0)
        run_fail(r, &err);
    else
        on_stage_room(r);
}

void start_stage(struct run *r)
{
    stage_next(r);
}

void start_reset(struct run *r)
{
    files_free(take_ptr(&r->job));
    exec_free(take_ptr(&r->exec));
    kevent_reset(&r->in);
    buf_clear(&r->line);
    r->file = r->sent = r->input_sent = 0;
    r->interrupted = r->joined = false;
    r->said[0] = '\0';
    r->started_ns = 0;
}

/* --- to the program --- */

static void send_input(struct run *r)
{
    r->input_sent += exec_write(r->exec, r->req.input + r->input_sent, r->req.input_len - r->input_sent);
    if (r->input_sent == r->req.input_len)
        exec_write_end(r->exec);
}

static void send_line(struct run *r)
{
    size_t n = r->line.len ? exec_kernel_write(r->exec, r->line.data, r->line.len) : 0;

    if (n == r->line.len)
        buf_clear(&r->line);
    else
        buf_drop(&r->line, n);
}

static void on_writable(void *arg)
{
    struct run *r = arg;

    if (!r->exec || r->state == RUN_OVER)
        return;
    if (r->req.code)
        send_line(r);
    else if (r->req.input)
        send_input(r);
}

static void ask_kernel(struct run *r, const char *op, const char *key, const char *text)
{
    struct jsonw w;

    jsonw_init(&w, &r->line, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "op", op);
    jsonw_kstr(&w, "id", r->id);
    if (text)
        jsonw_kstr(&w, key, text);
    else
        jsonw_kbool(&w, "eof", true);
    jsonw_end_object(&w);
    buf_adds(&r->line, "\n");
    send_line(r);
}

/* One line of the standard input that the request has. Who asks has read all that was sent before: one that asks
 * without reading is no kernel, and gets no answers to pile up here. */
static void answer_input(struct run *r)
{
    const char *from = r->req.input ? r->req.input + r->input_sent : "";
    size_t left = r->req.input ? r->req.input_len - r->input_sent : 0, n = 0;

    if (r->line.len > 0)
        return;
    while (n < left && n < INPUT_LINE_MAX && from[n] != '\n')
        n++;
    if (left == 0) {
        ask_kernel(r, "input", NULL, NULL);
        return;
    }
    auto_free char *line = str_dup_n(from, n);
    r->input_sent += n + (n < left && from[n] == '\n');
    ask_kernel(r, "input", "text", line);
}

/* --- clocks --- */

static void on_clock(void *arg)
{
    struct run *r = arg;

    if (r->state == RUN_RUNNING && !r->interrupted)
        start_interrupt(r, ENDED_WALL);
    else
        exec_kill(r->exec);
}

static void set_clock(struct run *r, uint64_t ns)
{
    ev_timer_set(r->e->set.ev, &r->clock, ev_now(r->e->set.ev) + ns, on_clock, r);
}

void start_interrupt(struct run *r, enum ended_by by)
{
    r->interrupted = true;
    r->stop_by = by;
    exec_signal(r->exec, SIGINT);
    set_clock(r, GRACE_NS);
}

/* --- from the kernel --- */

/* Code that ends itself is a program with a status, and nothing was raised: kernels tell it as an error because for a
 * context it is one, whose interpreter goes on. */
static bool is_exit(const struct run *r, const struct kevent *e, int *ret)
{
    static const char *const names[][2] = { { "python", "SystemExit" }, { "node", "Exit" }, { "bash", "ExitStatus" } };
    const char *name = json_string_value(json_object_get(e->root, "name"));
    const char *value = json_string_value(json_object_get(e->root, "value"));
    uint64_t code = 0;

    if (e->kind != KEVENT_ERROR || !name || !value)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (!str_eq(r->req.language, names[i][0]) || !str_eq(name, names[i][1]))
            continue;
        bool none = i == 0 && (str_eq(value, "") || str_eq(value, "None"));
        if (!none && !str_to_u64(value, UINT32_MAX, &code))
            return false;
        *ret = (int)(code & 0xff);
        return true;
    }
    return false;
}

static void finished(struct run *r, const struct kevent *e)
{
    r->word = e->status;
    if (e->status == KEVENT_INTERRUPTED && r->interrupted)
        answer_receipt(r, r->stop_by, -1, SIGINT);
    else if (e->status == KEVENT_INTERRUPTED)
        answer_receipt(r, ENDED_SIGNAL, -1, SIGINT);
    else
        answer_receipt(r, ENDED_EXIT, e->status == KEVENT_OK ? 0 : r->exits ? r->exit_status : 1, 0);
    run_ended(r);
}

/* From here on its time counts, and what is written is the code's. */
static void begin_code(struct run *r, uint64_t cpu_base_ns)
{
    r->cpu_base_ns = cpu_base_ns;
    set_clock(r, r->req.timeout_ms * NS_PER_MS);
    run_started(r);
    ask_kernel(r, "execute", "code", r->req.code);
}

static void on_kernel_event(void *arg, const struct kevent *e)
{
    struct run *r = arg;

    if (r->has_receipt || r->state < RUN_STARTING || r->state > RUN_RUNNING)
        return;
    if (!e) {
        r->events_dropped++; /* it may have been a result */
        return;
    }
    if (e->kind == KEVENT_READY && r->state == RUN_STARTING)
        begin_code(r, box_cpu_ns(r->guest.box));
    if (r->state != RUN_RUNNING || !str_eq(e->id, r->id))
        return;
    if (is_exit(r, e, &r->exit_status)) {
        r->exits = true;
    } else if (e->kind == KEVENT_DISPLAY || e->kind == KEVENT_RESULT || e->kind == KEVENT_ERROR) {
        run_event(r, e);
    } else if (e->kind == KEVENT_INPUT) {
        answer_input(r);
    } else if (e->kind == KEVENT_FINISHED) {
        finished(r, e);
    }
}

static void on_kernel(void *arg, const void *data, size_t len)
{
    struct run *r = arg;

    if (r->state != RUN_OVER)
        kevent_feed(&r->in, data, len, on_kernel_event, r);
}

/* --- from the program --- */

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct run *r = arg;
    size_t had = strlen(r->said);

    if (r->state == RUN_RUNNING && !r->has_receipt)
        run_output(r, channel, data, len);
    if (r->req.code && channel == 2 && had < sizeof(r->said) - 1)
        snprintf(r->said + had, sizeof(r->said) - had, "%.*s", (int)min_size(len, sizeof(r->said)), (const char *)data);
}

static void on_started(void *arg)
{
    struct run *r = arg;

    if (!r->req.code)
        run_started(r);
}

static void explain(struct run *r, const struct receipt *x)
{
    r->has_why = true;
    if (r->state == RUN_STARTING && x->ended_by == ENDED_KILLED)
        err_set(&r->why, ERR_TIMEOUT, "the interpreter was not ready within %llu s", START_NS / NS_PER_S);
    else if (x->ended_by == ENDED_MEMORY)
        err_set(&r->why, ERR_CONTEXT_DEAD, "memory ran out, and the interpreter was ended for it");
    else if (x->ended_by == ENDED_EXIT)
        err_set(&r->why, ERR_CONTEXT_DEAD, "the interpreter ended with status %d%s%.120s", x->exit_code,
                r->said[0] ? ": " : "", r->said);
    else if (x->ended_by == ENDED_SIGNAL)
        err_set(&r->why, ERR_CONTEXT_DEAD, "the interpreter was ended by signal %d", x->signal);
    else if (x->ended_by == ENDED_LOST)
        err_set(&r->why, ERR_LOST, "the sandbox was lost while the code ran");
    else
        err_set(&r->why, ERR_CONTEXT_DEAD, "the interpreter was ended (%s)", ended_by_name(x->ended_by));
    str_tame(r->why.msg);
}

/* The kernel ended before it said how the code did. */
static void kernel_died(struct run *r, const struct receipt *x)
{
    bool started = r->state == RUN_RUNNING, killed = x->ended_by == ENDED_KILLED;

    if (started && killed && (r->interrupted || r->stopped)) {
        answer_receipt(r, r->stop_by, -1, 0);
        r->receipt.signal = 0;
    } else if (!started && r->stopped) {
        run_fail(r, &r->why); /* of its tenant */
        return;
    } else {
        explain(r, x);
        if (!started || x->ended_by == ENDED_LOST) {
            run_fail(r, &r->why);
            return;
        }
        answer_receipt(r, x->ended_by, x->exit_code, x->signal);
    }
    run_ended(r);
}

static void program_ended(struct run *r, const struct receipt *x)
{
    if (r->has_receipt || r->state == RUN_OVER)
        return;
    if (r->req.code) {
        kernel_died(r, x);
        return;
    }
    if (x->ended_by == ENDED_LOST) {
        explain(r, x);
        run_fail(r, &r->why);
        return;
    }
    r->receipt = *x;
    r->has_receipt = true;
    if (r->stopped && x->ended_by == ENDED_KILLED)
        r->receipt.ended_by = r->stop_by;
    run_ended(r);
}

/* An interpreter lives until its sandbox goes, behind the answer: only then is known what it was refused, and that of a
 * program for whose end nobody waited. */
static void on_exit_(void *arg, const struct receipt *x)
{
    struct run *r = arg;

    program_ended(r, x);
    if (r->req.code || !r->has_receipt)
        guest_refused(&r->guest, x);
}

/* An interpreter that died before it was claimed has run nothing: another is started. */
static void on_failed(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (r->joined && err->id == ERR_LOST && !r->stopped && r->state < RUN_GATHERING && box_takes_exec(r->guest.box)) {
        ev_timer_clear(r->e->set.ev, &r->clock);
        start_reset(r);
        r->alone = true;
        r->e->stats.found[r->guest.loan.found]--;
        r->guest.loan.found = r->guest.pooled ? POOL_PARTIAL : POOL_MISS;
        r->e->stats.found[r->guest.loan.found]++;
        start(r);
    } else {
        run_fail(r, err);
    }
}

static const struct exec_ops exec_ops = { .on_started = on_started,
                                          .on_output = on_output,
                                          .on_writable = on_writable,
                                          .on_exit = on_exit_,
                                          .on_failed = on_failed,
                                          .on_kernel = on_kernel };

/* --- starting --- */

static int start_code(struct run *r, struct err *err)
{
    static const char *const member[] = { "kernel", NULL };
    const char *zygote = r->spec.zygote.language;
    bool join = zygote && str_eq(zygote, r->req.language) && !r->alone, joined = join && box_has_member(r->guest.box);
    struct context_command command;
    struct exec_spec spec = { .id = r->id,
                              .request = r->req.request,
                              .argv = member,
                              .env = r->req.env,
                              .cwd = r->req.cwd,
                              .unmetered = true,
                              .kernel = true,
                              .joined = joined,
                              .join = join };

    if (!joined && context_command(r->req.language, &command, err) < 0)
        return -1;
    if (!joined)
        spec.argv = command.argv;
    if (box_exec(r->guest.box, &spec, &exec_ops, r, &r->exec, err) < 0)
        return -1;
    set_clock(r, START_NS);
    r->joined = join;
    if (joined) /* it reads when it can, and nobody waits until it says so */
        begin_code(r, exec_cpu_base(r->exec) ? exec_cpu_base(r->exec) : BOX_UNKNOWN);
    return 0;
}

static int start_command(struct run *r, struct err *err)
{
    struct exec_spec spec = { .id = r->id,
                              .request = r->req.request,
                              .argv = r->req.argv,
                              .env = r->req.env,
                              .cwd = r->req.cwd,
                              .stdin_open = r->req.input != NULL,
                              .wall_ms = r->req.timeout_ms };

    if (box_exec(r->guest.box, &spec, &exec_ops, r, &r->exec, err) < 0)
        return -1;
    if (r->req.input)
        send_input(r);
    return 0;
}

static void start(struct run *r)
{
    struct err err = { 0 };

    r->state = RUN_STARTING;
    if ((r->req.code ? start_code(r, &err) : start_command(r, &err)) < 0)
        run_fail(r, &err);
}
