/* cove exec -t and cove attach: connects our terminal to a terminal in a sandbox.
 *
 * The terminal is an execution that outlives this process, which is only a viewer. Output has
 * offsets, so a broken connection or a restart of the server is resumed without a gap. Input is
 * sent once: keys in flight when the connection breaks may be lost, but no key is sent twice.
 *
 * Our terminal is in raw mode meanwhile, and every exit restores it (client/cli/term.c). All keys
 * go to the program, also Ctrl-C; Ctrl-P Ctrl-Q detaches. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "client/cli/report.h"
#include "client/cli/term.h"
#include "remote/fetch/wsock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define TAIL_BYTES 65536 /* of earlier output; 'cove logs' prints more */
#define PATIENCE_NS (60 * NS_PER_S)
#define PAUSE_NS (300 * NS_PER_MS)
#define TYPED_MAX (64 * KIB)
#define KEY_PREFIX 0x10 /* Ctrl-P */
#define KEY_LEAVE 0x11  /* Ctrl-Q */

struct ctl_terminal_view {
    struct ctl *c;
    const char *sandbox, *execution;
    char *path;
    struct wsock *ws;
    bool joined;       /* started was received */
    bool offset_known; /* `offset` is valid */
    uint64_t offset;
    struct ev_io in;
    struct buf typed;    /* not sent yet */
    bool prefix_pressed; /* the last key was KEY_PREFIX */
    struct ev_timer retry_timer;
    uint64_t lost_at; /* time at which the connection was lost; 0: connected */
    bool done, is_detached;
    int end_signal;
    json_t *ended_execution;
    struct err err;
};

static void ctl_terminal_finish(struct ctl_terminal_view *v)
{
    v->done = true;
    ev_stop(v->c->ev);
}

static void ctl_terminal_send_message(struct ctl_terminal_view *v, json_t *m)
{
    auto_free char *text = json_dumps(m, JSON_COMPACT);

    json_decref(m);
    if (v->ws && text)
        wsock_send(v->ws, text, strlen(text));
}

static void ctl_terminal_send_size(struct ctl_terminal_view *v)
{
    uint16_t rows, cols;

    if (v->joined && term_size(STDIN_FILENO, &rows, &cols))
        ctl_terminal_send_message(v, json_pack("{s:s,s:s,s:i,s:i}", "type", "resize", "executionId", v->execution,
                                               "rows", (int)rows, "cols", (int)cols));
}

/* --- input --- */

static void ctl_terminal_send_typed(struct ctl_terminal_view *v)
{
    auto_buf coded = { 0 };

    if (!v->joined || v->typed.len == 0)
        return;
    text_base64(&coded, v->typed.data, v->typed.len);
    buf_clear(&v->typed);
    ctl_terminal_send_message(
        v, json_pack("{s:s,s:s,s:s}", "type", "stdin", "executionId", v->execution, "base64", coded.data));
}

static void ctl_terminal_on_keys(void *arg, uint32_t events UNUSED)
{
    struct ctl_terminal_view *v = arg;
    char keys[4096];
    ssize_t n = read(STDIN_FILENO, keys, sizeof(keys));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) { /* our terminal is closed */
        v->is_detached = true;
        ctl_terminal_finish(v);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (v->prefix_pressed && keys[i] == KEY_LEAVE) {
            ctl_terminal_send_typed(v); /* keys before the detach sequence */
            v->is_detached = true;
            ctl_terminal_finish(v);
            return;
        }
        if (v->prefix_pressed)
            buf_add(&v->typed, (const char[]){ KEY_PREFIX }, 1);
        v->prefix_pressed = keys[i] == KEY_PREFIX;
        if (!v->prefix_pressed && v->typed.len < TYPED_MAX)
            buf_add(&v->typed, &keys[i], 1);
    }
    ctl_terminal_send_typed(v);
}

/* --- output --- */

static void ctl_terminal_show_output(struct ctl_terminal_view *v, const json_t *m)
{
    const char *text = json_string_value(json_object_get(m, "data")), *coded = ctl_field_text(m, "base64");
    uint64_t offset = ctl_field_number(m, "offset");
    auto_buf bytes = { 0 };

    if (text)
        buf_add(&bytes, text, json_string_length(json_object_get(m, "data")));
    else if (!text_from_base64(&bytes, coded, strlen(coded)))
        return;
    v->offset = offset + bytes.len;
    v->offset_known = true;
    if (bytes.len && fd_write_all(STDOUT_FILENO, bytes.data, bytes.len) < 0) {
        v->is_detached = true;
        ctl_terminal_finish(v);
    }
}

static void ctl_terminal_on_error(struct ctl_terminal_view *v, const json_t *m)
{
    const json_t *why = json_object_get(m, "error");
    enum err_id id = err_by_code(ctl_field_text(why, "code"));

    if (id == ERR_BUSY)
        return; /* right after a restart of the server: retry */
    err_set(&v->err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
    ctl_terminal_finish(v);
}

static void ctl_terminal_join(struct ctl_terminal_view *v)
{
    json_t *m = json_pack("{s:s,s:s}", "type", "resume", "executionId", v->execution);

    if (v->offset_known)
        json_object_set_new(m, "stdoutOffset", json_integer((json_int_t)v->offset));
    else
        json_object_set_new(m, "tailBytes", json_integer(TAIL_BYTES));
    ctl_terminal_send_message(v, m);
}

static void ctl_terminal_on_join_timer(void *arg)
{
    struct ctl_terminal_view *v = arg;

    if (v->ws && !v->joined)
        ctl_terminal_join(v);
}

static void ctl_terminal_on_message(void *arg, const char *text, size_t len)
{
    struct ctl_terminal_view *v = arg;
    json_t *m = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    const char *type = ctl_field_text(m, "type");

    if (str_eq(type, "started")) {
        v->joined = true;
        v->offset = ctl_field_number(m, "stdoutOffset");
        v->offset_known = true;
        ctl_terminal_send_size(v);
        ctl_terminal_send_typed(v);
    } else if (str_eq(type, "output")) {
        ctl_terminal_show_output(v, m);
    } else if (str_eq(type, "end")) {
        v->ended_execution = json_deep_copy(json_object_get(m, "execution"));
        ctl_terminal_finish(v);
    } else if (str_eq(type, "error")) {
        ctl_terminal_on_error(v, m);
        if (!v->done && !v->joined)
            ev_timer_set(v->c->ev, &v->retry_timer, ev_now(v->c->ev) + PAUSE_NS, ctl_terminal_on_join_timer, v);
    }
    json_decref(m);
}

/* --- the connection --- */

static void ctl_terminal_on_closed(void *arg, unsigned code, const char *reason);

static void ctl_terminal_connect(void *arg)
{
    static const struct wsock_ops ops = { ctl_terminal_on_message, ctl_terminal_on_closed };
    struct ctl_terminal_view *v = arg;
    uint64_t now = ev_now(v->c->ev);
    struct err err = { 0 };

    if (client_websocket(v->c->client, v->path, &ops, v, &v->ws, &err) == 0) {
        v->lost_at = 0;
        ctl_terminal_join(v);
        return;
    }
    bool passing = err.id == ERR_UNREACHABLE || err.id == ERR_CUT_OFF || err.id == ERR_BUSY;
    if (passing && v->lost_at && now - v->lost_at < PATIENCE_NS) {
        ev_timer_set(v->c->ev, &v->retry_timer, now + PAUSE_NS, ctl_terminal_connect, v);
        return;
    }
    v->err = err;
    ctl_terminal_finish(v);
}

static void ctl_terminal_on_closed(void *arg, unsigned code, const char *reason)
{
    struct ctl_terminal_view *v = arg;

    wsock_free(take_ptr(&v->ws));
    v->joined = false;
    if (v->done)
        return;
    if (code >= 4000) { /* final: the server sends the reason, and a retry would not help */
        err_set(&v->err, code == 4401 ? ERR_UNAUTHORIZED : ERR_SANDBOX_ENDED, "%.120s", reason);
        ctl_terminal_finish(v);
        return;
    }
    v->lost_at = ev_now(v->c->ev);
    ev_timer_set(v->c->ev, &v->retry_timer, v->lost_at + PAUSE_NS, ctl_terminal_connect, v);
}

static void ctl_terminal_on_signal(void *arg, int signo)
{
    struct ctl_terminal_view *v = arg;

    if (signo == SIGWINCH) {
        ctl_terminal_send_size(v);
        return;
    }
    v->end_signal = signo;
    v->is_detached = true;
    ctl_terminal_finish(v);
}

static int ctl_terminal_catch_signals(struct ctl_terminal_view *v, struct err *err)
{
    static const int wanted[] = { SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
        sigaddset(&set, wanted[i]);
    signal(SIGPIPE, SIG_IGN);
    return ev_signals(v->c->ev, &set, ctl_terminal_on_signal, v, err);
}

static int ctl_terminal_exit_status(const struct ctl_terminal_view *v, struct err *err)
{
    const json_t *why = json_object_get(v->ended_execution, "error");

    if (why) {
        enum err_id id = err_by_code(ctl_field_text(why, "code"));

        return err_set(err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
    }
    if (v->ended_execution) {
        ctl_note_end(v->c, v->ended_execution);
        return ctl_exit_status(v->ended_execution);
    }
    if (v->err.id != ERR_NONE) {
        *err = v->err;
        return -1;
    }
    if (!v->c->quiet)
        report_note("detached; it is still running; reattach with: cove attach %s %s", v->sandbox, v->execution);
    return v->end_signal ? 128 + v->end_signal : 0;
}

int ctl_terminal(struct ctl *c, const char *sandbox, const char *execution, struct err *err)
{
    struct ctl_terminal_view v = { .c = c, .sandbox = sandbox, .execution = execution };
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/stream", sandbox);

    v.path = path;
    if (ctl_terminal_catch_signals(&v, err) < 0 ||
        ev_io_add(c->ev, &v.in, STDIN_FILENO, EPOLLIN, ctl_terminal_on_keys, &v, err) < 0)
        return -1;
    ctl_terminal_connect(&v);
    if (!v.done && term_raw(STDIN_FILENO, &v.err) == 0)
        ev_run(c->ev);
    term_restore();
    ev_io_del(c->ev, &v.in);
    ev_timer_clear(c->ev, &v.retry_timer);
    wsock_free(v.ws);
    buf_done(&v.typed);
    int status = ctl_terminal_exit_status(&v, err);
    json_decref(v.ended_execution);
    return status;
}

int ctl_require_terminal(const char *verb, const char *instead, struct err *err)
{
    if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
        return 0;
    return err_set(err, ERR_USAGE, "%s: standard input and output are not a terminal; %s", verb, instead);
}

/* --- cove attach --- */

struct ctl_terminal_search {
    char found[ID_SIZE];
    size_t n;
};

static void ctl_terminal_search_add(void *arg, const json_t *x)
{
    struct ctl_terminal_search *r = arg;

    if (!json_is_true(json_object_get(x, "tty")))
        return;
    (void)str_copy(r->found, sizeof(r->found), ctl_field_text(x, "id"));
    r->n++;
}

int ctl_attach(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;
    struct ctl_terminal_search r = { 0 };

    if (ctl_require_args(c, 1, 2, "attach [FLAGS] SANDBOX [EXECUTION]", err) < 0 ||
        ctl_require_terminal("cove attach", "run it in a terminal", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    if (c->args.nrest > 1)
        return ctl_terminal(c, sandbox, c->args.rest[1], err);
    auto_free char *list = ctl_api_path("/v1/sandboxes/%s/executions?state=running", sandbox);
    if (ctl_for_each_item(c, list, ctl_terminal_search_add, &r, err) < 0)
        return -1;
    if (r.n == 1)
        return ctl_terminal(c, sandbox, r.found, err);
    if (r.n == 0)
        return err_set(err, ERR_MISSING, "no terminal is open in %s; 'cove exec -t %s' opens one", sandbox, sandbox);
    return err_set(err, ERR_INVALID, "%zu terminals are open in %s; add the EXECUTION, which 'cove ps' lists", r.n,
                   sandbox);
}
