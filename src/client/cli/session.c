/* Output is written to the sinks as it arrives. While a sink has pending bytes, no credit is
 * returned to the program: this back-pressure slows the program to the speed of the reader, and
 * nothing accumulates here.
 *
 * The first Ctrl-C is sent to the program, which may clean up or ignore it. If the program still
 * runs a while later, a note says so, and the next Ctrl-C kills it. SIGTERM and SIGHUP are usually
 * not repeated, so after them the program is killed after a fixed time. */
#include "client/cli/session.h"

#include "client/cli/report.h"
#include "client/cli/term.h"
#include "core/base/text.h"

#include "core/base/mem.h"
#include "policy/outcome.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define HINT_AFTER_NS (2 * NS_PER_S)
#define KILL_AFTER_NS (1 * NS_PER_S) /* a second Ctrl-C sooner than this is treated as part of the first */
#define GRACE_NS (5 * NS_PER_S)

static void session_finish(struct session *s)
{
    void (*on_end)(void *arg) = s->on_end;

    if (!on_end)
        return;
    s->on_end = NULL;
    ev_timer_clear(s->ev, &s->interrupt_timer);
    if (s->in)
        source_stop(s->in);
    term_restore();
    on_end(s->arg);
}

static void session_on_sink_change(void *arg)
{
    struct session *s = arg;

    if (sink_has_pending(&s->out) || sink_has_pending(&s->err))
        return;
    if (s->ended)
        session_finish(s);
    else if (s->exec)
        exec_handle_hold_credit(s->exec, false);
}

/* The reader of our standard output is gone. Without a sandbox the program would get SIGPIPE, so
 * its end is reported as SIGPIPE. */
static void session_on_output_broken(struct session *s)
{
    if (s->output_errno)
        return;
    s->output_errno = s->out.error;
    if (s->running)
        exec_handle_kill(s->exec);
}

static void session_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct session *s = arg;
    struct sink *to = channel == 2 ? &s->err : &s->out;

    if (channel == 2 || s->is_terminal)
        failure_add_output(&s->failure_texts, data, len);
    if (s->spec.capture) {
        buf_add(&s->captured[channel == 2], data, len);
        return;
    }
    sink_write(to, data, len);
    if (s->out.broken)
        session_on_output_broken(s);
    if (sink_has_pending(to))
        exec_handle_hold_credit(s->exec, true);
}

static size_t session_take_input(void *arg, const void *data, size_t len)
{
    struct session *s = arg;

    return exec_handle_write(s->exec, data, len);
}

static void session_end_input(void *arg)
{
    struct session *s = arg;

    exec_handle_write_end(s->exec);
}

static void session_on_started(void *arg)
{
    struct session *s = arg;

    s->running = true;
    if (!s->spec.input)
        return;
    s->in = mem_new(struct source);
    source_start(s->in, s->ev, STDIN_FILENO, session_take_input, session_end_input, s);
}

static void session_on_writable(void *arg)
{
    struct session *s = arg;

    if (s->in)
        source_resume(s->in);
}

static void session_on_exit(void *arg, const struct receipt *r)
{
    struct session *s = arg;

    s->receipt = r;
    s->running = false;
    s->ended = true;
    session_on_sink_change(s);
}

static void session_on_failed(void *arg, const struct err *err)
{
    struct session *s = arg;

    s->failure = *err;
    s->failed = s->ended = true;
    s->running = false;
    session_finish(s);
}

int session_start(struct session *s, struct ev *ev, struct sandbox_handle *sandbox, const struct session_spec *spec,
                  void (*on_end)(void *arg), void *arg, struct err *err)
{
    static const struct exec_handle_ops ops = { session_on_started, session_on_output, session_on_writable,
                                                session_on_exit, session_on_failed };

    *s = (struct session){ .ev = ev, .sandbox = sandbox, .spec = *spec, .on_end = on_end, .arg = arg };
    s->is_terminal = spec->exec->tty;
    failure_set_argv(&s->failure_texts, spec->exec->argv);
    sink_init(&s->out, ev, STDOUT_FILENO, session_on_sink_change, s);
    sink_init(&s->err, ev, STDERR_FILENO, session_on_sink_change, s);
    if (spec->raw && term_raw(STDIN_FILENO, err) < 0)
        return -1;
    if (sandbox_handle_exec(sandbox, spec->exec, &ops, s, &s->exec, err) < 0) {
        term_restore();
        return -1;
    }
    s->spec.exec = NULL;
    return 0;
}

void session_done(struct session *s)
{
    if (!s->ev)
        return;
    ev_timer_clear(s->ev, &s->interrupt_timer);
    if (s->in)
        source_stop(s->in);
    free(s->in);
    sink_done(&s->out);
    sink_done(&s->err);
    buf_done(&s->captured[0]);
    buf_done(&s->captured[1]);
    failure_done(&s->failure_texts);
    exec_handle_free(s->exec);
    s->exec = NULL;
}

static void session_on_hint_timer(void *arg)
{
    struct session *s = arg;

    if (s->running && !s->spec.quiet)
        report_note("the program is still running; press Ctrl-C again to kill it");
}

static void session_on_grace_over(void *arg)
{
    struct session *s = arg;

    if (s->running)
        exec_handle_kill(s->exec);
}

static void session_interrupt(struct session *s, int signo)
{
    uint64_t now = ev_now(s->ev);

    s->interrupts++;
    if (s->interrupts > 2 || (s->interrupts == 2 && now - s->interrupted_at >= KILL_AFTER_NS)) {
        exec_handle_kill(s->exec);
        return;
    }
    if (s->interrupts == 1)
        s->interrupted_at = now;
    exec_handle_signal(s->exec, signo);
    if (signo == SIGTERM || signo == SIGHUP)
        ev_timer_set(s->ev, &s->interrupt_timer, now + GRACE_NS, session_on_grace_over, s);
    else if (s->interrupts == 1)
        ev_timer_set(s->ev, &s->interrupt_timer, now + HINT_AFTER_NS, session_on_hint_timer, s);
}

static void session_on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void session_on_frozen(void *arg, const struct err *err)
{
    struct session *s = arg;

    kill(getpid(), SIGSTOP); /* returns after `fg` in the shell */
    if (!err && s->sandbox)
        sandbox_handle_thaw(s->sandbox, session_on_thawed, s);
}

int session_catch_signals(struct ev *ev, void (*fn)(void *arg, int signo), void *arg, struct err *err)
{
    static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP };
    struct sigaction old;
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        if (sigaction(wanted[i], NULL, &old) < 0 || old.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    signal(SIGPIPE, SIG_IGN);
    return ev_signals(ev, &set, fn, arg, err);
}

void session_on_signal(struct session *s, int signo)
{
    uint16_t rows, cols;

    switch (signo) {
    case SIGWINCH:
        if (s->spec.raw && s->exec && !s->ended && term_size(STDIN_FILENO, &rows, &cols))
            exec_handle_resize(s->exec, rows, cols);
        return;
    case SIGTSTP:
        if (s->running)
            sandbox_handle_freeze(s->sandbox, session_on_frozen, s);
        return;
    default:
        if (s->ended)
            session_finish(s); /* the program has ended; only a slow reader was left */
        else if (s->exec)
            session_interrupt(s, signo);
    }
}

static void session_output_json(struct jsonw *w, const char *key, const char *key64, const struct buf *b)
{
    if (text_is_utf8(b->data, b->len)) {
        jsonw_key(w, key);
        jsonw_strn(w, b->data ? b->data : "", b->len);
        return;
    }
    auto_buf coded = { 0 };
    text_base64(&coded, b->data, b->len);
    jsonw_kstr(w, key64, coded.data);
}

void session_json(const struct session *s, bool failed, struct jsonw *w)
{
    const struct receipt *r = s->receipt;

    if (r) {
        jsonw_kstr(w, "outcome", outcome_name(outcome_of(r->ended_by, r->exit_code, failed)));
        receipt_json_end(r, w);
    }
    session_output_json(w, "stdout", "stdoutBase64", &s->captured[0]);
    session_output_json(w, "stderr", "stderrBase64", &s->captured[1]);
    if (r)
        jsonw_kbool(w, "truncated", r->dropped_bytes > 0);
}
