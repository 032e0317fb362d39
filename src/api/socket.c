/* GET /v1/sandboxes/{sandboxId}/stream: a WebSocket on which executions of a sandbox are started, followed, typed to
 * and ended, as many at a time as one likes. docs/streaming.md has the messages.
 *
 * 1. Every message of ours has the next `seq` of its socket. Where a client goes on after a break is not told by it but
 *    by the offsets of each execution: they mean the same on every socket, and after a restart of the server.
 * 2. A message that cannot be carried out is answered with `error`, and the socket stays. It is closed when whoever
 *    opened it may not hear more (4401), when the sandbox has ended (4410), and when the server stops (1001).
 * 3. Executions do not end with the socket that started them. */
#include "api/socket.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#include <stdio.h>

#define ATTACHES_MAX 64u
#define INPUT_HIGH (256 * KIB) /* of one execution: the socket is not read from beyond it */
#define DATA_MAX (1 * MIB)
#define LAST_NS (30 * NS_PER_S)
#define CLOSE_UNAUTHORIZED 4401
#define CLOSE_ENDED 4410

/* --- messages of ours --- */

void socket_begin(struct socket *so, struct jsonw *w, struct buf *out, const char *type, const struct attach *a)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
    jsonw_ku64(w, "seq", ++so->seq);
    jsonw_ku64(w, "timestamp", clock_real_ns() / NS_PER_MS);
    if (a)
        jsonw_kstr(w, "executionId", a->name);
}

bool socket_send(struct socket *so, struct jsonw *w)
{
    jsonw_end_object(w);
    return !so->ws || ws_send(so->ws, w->out->data, w->out->len);
}

void socket_error(struct socket *so, const char *name, const char *code, const struct err *err)
{
    const struct err_info *info = err_info(err->id);
    bool hidden = info->kind == ERR_KIND_SYS || info->kind == ERR_KIND_BUG;
    auto_buf out = { 0 };
    struct jsonw w;

    socket_begin(so, &w, &out, "error", NULL);
    if (name)
        jsonw_kstr(&w, "executionId", name);
    jsonw_kstr(&w, "code", code ? code : info->code);
    jsonw_kstr(&w, "message", hidden ? "the server could not do this; its log has the reason" : err->msg);
    jsonw_kstr(&w, "fix", info->fix);
    (void)socket_send(so, &w);
}

uint64_t socket_record(struct socket *so, const char *action, const char *outcome, const char *execution,
                       const char *details)
{
    struct audit_pair target[2] = { { "sandbox", so->sandbox }, { "execution", execution } };

    return api_audit_act(so->api, &so->who, so->address, action, outcome, target, execution[0] ? 2 : 1, details);
}

/* --- status --- */

struct usage_ask {
    struct socket *so; /* NULL: nobody waits */
};

static void say_status(struct socket *so, const struct box_usage *u)
{
    auto_buf out = { 0 };
    struct jsonw w;

    socket_begin(so, &w, &out, "status_update", NULL);
    jsonw_kstr(&w, "status", api_sandbox_states[attend_state(so->attend)]);
    if (u) {
        jsonw_key(&w, "resources");
        jsonw_object(&w);
        if (u->cpu_ns != BOX_UNKNOWN)
            jsonw_ku64(&w, "cpuUsage", u->cpu_ns / NS_PER_MS);
        if (u->memory != BOX_UNKNOWN)
            jsonw_ku64(&w, "memoryUsage", u->memory);
        jsonw_end_object(&w);
    }
    (void)socket_send(so, &w);
}

static void on_usage(void *arg, const struct box_usage *u, const struct err *err)
{
    auto_free struct usage_ask *ask = arg;

    if (!ask->so)
        return;
    ask->so->asking = NULL;
    if (!err)
        say_status(ask->so, u);
}

static void on_status(void *arg)
{
    struct socket *so = arg;

    ev_timer_set(so->api->set.ev, &so->status, ev_now(so->api->set.ev) + so->status_ms * NS_PER_MS, on_status, so);
    if (so->asking || ws_room(so->ws) == 0 || attend_state(so->attend) != STORE_SB_RUNNING)
        return;
    so->asking = mem_new(struct usage_ask);
    so->asking->so = so;
    manager_usage(so->api->set.manager, so->owner, so->sandbox, on_usage, so->asking);
}

/* --- messages of the client --- */

struct message {
    struct socket *so;
    json_t *body;
    const char *name; /* executionId, in `held`: an error names it when the body has lost it; NULL without it */
    char held[ATTACH_NAME_MAX + 1];
};

static bool plain(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

    return name[0] && name[strspn(name, letters)] == '\0';
}

static int room_for(const struct message *m, struct err *err)
{
    if (m->so->nattaches >= ATTACHES_MAX)
        return err_set(err, ERR_LIMIT, "%u executions are followed on this socket already", ATTACHES_MAX);
    if (m->name && attach_find(m->so, m->name))
        return err_set(err, ERR_EXISTS, "execution %s is followed on this socket already", m->name);
    return 0;
}

/* {mode, content, language} as clients of other servers write it, into {code} or {command}. */
static int translate(const struct message *m, bool context, struct err *err)
{
    static const char *const modes[] = { "code", "command", NULL };
    const char *language = NULL;
    const struct spec *spec = attend_spec(m->so->attend);
    unsigned mode = 0;
    json_t *content = json_incref(json_object_get(m->body, "content"));
    bool has_mode = json_object_get(m->body, "mode") != NULL;

    if (body_word(m->body, "", "mode", modes, &mode, err) < 0 ||
        body_text(m->body, "", "language", 1, 40, &language, err) < 0) {
        json_decref(content);
        return -1;
    }
    if (language && (context || (spec && !str_eq(language, spec->runtime)))) {
        json_decref(content);
        return context ? err_set(err, ERR_INVALID, "language: a context has its own, leave it out")
                       : err_set(err, ERR_INVALID, "language: this sandbox speaks %.40s", spec->runtime);
    }
    json_object_del(m->body, "mode");
    json_object_del(m->body, "language");
    json_object_del(m->body, "content");
    if (content && (json_object_get(m->body, "code") || json_object_get(m->body, "command"))) {
        json_decref(content);
        return err_set(err, ERR_INVALID, "content does not go together with code or command");
    }
    if (!content != !has_mode) {
        json_decref(content);
        return err_set(err, ERR_INVALID, "mode and content go together");
    }
    if (mode == 1 && json_is_string(content)) {
        json_t *shell = json_pack("[sso]", "/bin/sh", "-c", content);

        json_object_set_new(m->body, "command", shell);
    } else if (content) {
        json_object_set_new(m->body, modes[mode], content);
    }
    return 0;
}

/* Which context it is to run in, if any; "": none. */
static int read_context(const struct message *m, char ret[ID_SIZE], struct err *err)
{
    const char *id = NULL;

    ret[0] = '\0';
    if (body_text(m->body, "", "contextId", 1, 64, &id, err) < 0)
        return -1;
    if (id && !id_valid(id, "cx"))
        return err_set(err, ERR_MISSING, "contextId: there is no such context in this sandbox");
    if (id)
        (void)str_copy(ret, ID_SIZE, id);
    json_object_del(m->body, "contextId");
    return 0;
}

static int on_execute(struct message *m, struct err *err)
{
    struct socket *so = m->so;
    struct launch launch = { 0 };
    struct context_call call = { 0 };
    struct ratelimit_answer rate;
    char context[ID_SIZE];

    if (room_for(m, err) < 0)
        return -1;
    if (so->api->set.audit && audit_state(so->api->set.audit, NULL) != AUDIT_OPEN)
        return err_set(err, ERR_AUDIT, "what is started could not be recorded");
    if (!auth_rate(so->api->set.auth, &so->who, AUTH_CLASS_EXECUTE, ev_now(so->api->set.ev), &rate))
        return err_set(err, ERR_RATE_LIMITED, "this key has started too many executions");
    const char *name = m->name ? m->name : "";
    json_object_del(m->body, "type");
    json_object_del(m->body, "executionId");
    if (read_context(m, context, err) < 0 || translate(m, context[0], err) < 0)
        return -1;
    launch.body = json_incref(m->body);
    if ((context[0] ? context_call_read(launch.body, so->api, &call, err) : launch_read(&launch, so->api, err)) < 0) {
        launch_done(&launch);
        return -1;
    }
    attach_execute(so, name, id_valid(name, "ex") ? name : "", &launch, context, &call);
    return 0;
}

static int on_resume(struct message *m, struct err *err)
{
    static const char *const names[] = { "type",         "executionId",  "name",      "stdoutOffset",
                                         "stderrOffset", "eventsOffset", "tailBytes", NULL };
    uint64_t offset[3] = { 0 }, tail = UINT64_MAX;
    const char *name = m->name;

    if (!m->name || !id_valid(m->name, "ex"))
        return err_set(err, ERR_INVALID,
                       "executionId: to resume, it is the id that execution_start told (execution.id)");
    if (body_only(m->body, "", names, err) < 0 || room_for(m, err) < 0 ||
        body_text(m->body, "", "name", 1, ATTACH_NAME_MAX, &name, err) < 0 ||
        body_u64(m->body, "", "stdoutOffset", 0, INT64_MAX, &offset[0], NULL, err) < 0 ||
        body_u64(m->body, "", "stderrOffset", 0, INT64_MAX, &offset[1], NULL, err) < 0 ||
        body_u64(m->body, "", "eventsOffset", 0, INT64_MAX, &offset[2], NULL, err) < 0 ||
        body_u64(m->body, "", "tailBytes", 0, INT64_MAX, &tail, NULL, err) < 0)
        return -1;
    if (!plain(name))
        return err_set(err, ERR_INVALID, "name: letters, digits, '-', '_' and '.'");
    if (attach_find(m->so, name))
        return err_set(err, ERR_EXISTS, "execution %s is followed on this socket already", name);
    attach_resume(m->so, name, m->name, offset, tail);
    return 0;
}

/* The execution that the message is about, as far as it is followed here. */
static struct attach *about(const struct message *m, const char *const *names, struct err *err)
{
    struct attach *a = m->name ? attach_find(m->so, m->name) : NULL;

    if (body_only(m->body, "", names, err) < 0)
        return NULL;
    if (!a)
        err_set(err, ERR_MISSING, "executionId: no such execution is followed on this socket; resume it first");
    return a;
}

static int on_cancel(struct message *m, struct err *err)
{
    struct attach *a = about(m, (const char *const[]){ "type", "executionId", NULL }, err);

    if (a && a->watch) {
        (void)socket_record(m->so, "execution.cancel", "success", a->id, NULL);
        watch_kill(a->watch);
    }
    return a ? 0 : -1;
}

static int on_detach(struct message *m, struct err *err)
{
    struct attach *a = about(m, (const char *const[]){ "type", "executionId", NULL }, err);

    if (a)
        attach_drop(a);
    return a ? 0 : -1;
}

static int on_signal(struct message *m, struct err *err)
{
    const struct attach *a = about(m, (const char *const[]){ "type", "executionId", "signal", NULL }, err);
    int signo;

    if (!a || terminal_signo(m->body, &signo, err) < 0)
        return -1;
    if (a->watch) {
        (void)socket_record(m->so, "execution.signal", "success", a->id, NULL);
        watch_signal(a->watch, signo);
    }
    return 0;
}

static int on_resize(struct message *m, struct err *err)
{
    struct attach *a = about(m, (const char *const[]){ "type", "executionId", "rows", "cols", NULL }, err);
    uint16_t rows = 0, cols = 0;

    if (!a || launch_size(m->body, &rows, &cols, err) < 0)
        return -1;
    if (!rows || !cols)
        return err_set(err, ERR_INVALID, "a size is rows and cols");
    if (a->watch && !watch_resize(a->watch, rows, cols))
        return err_set(err, ERR_EXISTS, "execution %s is no terminal: it was started without tty", a->name);
    a->rows = rows; /* who asked for it is not told */
    a->cols = cols;
    return 0;
}

static int on_stdin(struct message *m, struct err *err)
{
    static const char *const names[] = { "type", "executionId", "content", "base64", "offset", "close", NULL };
    struct attach *a = about(m, names, err);
    const char *text = NULL, *coded = NULL;
    auto_buf bytes = { 0 };
    uint64_t offset = 0;
    bool placed = false, ends = false;

    if (!a || body_text(m->body, "", "content", 0, DATA_MAX, &text, err) < 0 ||
        body_text(m->body, "", "base64", 0, 2 * DATA_MAX, &coded, err) < 0 ||
        body_u64(m->body, "", "offset", 0, INT64_MAX, &offset, &placed, err) < 0 ||
        body_bool(m->body, "", "close", &ends, err) < 0)
        return -1;
    if (text && coded)
        return err_set(err, ERR_INVALID, "content and base64 do not go together");
    if (coded && !text_unbase64(&bytes, coded, strlen(coded)))
        return err_set(err, ERR_INVALID, "base64: it is not");
    attach_input(a,
                 coded  ? (bytes.data ? bytes.data : "")
                 : text ? text
                        : "",
                 coded  ? bytes.len
                 : text ? strlen(text)
                        : 0,
                 placed ? &offset : NULL, ends);
    return 0;
}

static int on_input(struct message *m, struct err *err)
{
    struct socket *so = m->so;
    const struct attach *a = about(m, (const char *const[]){ "type", "executionId", "text", "eof", NULL }, err);
    const char *text = NULL;

    if (!a || context_line_read(m->body, &text, err) < 0 ||
        manager_context_input(so->api->set.manager, so->owner, so->sandbox, a->id, text, err) < 0)
        return -1;
    (void)socket_record(so, "execution.input", "success", a->id, NULL);
    return 0;
}

static int on_ping(struct message *m, struct err *err)
{
    auto_buf out = { 0 };
    struct jsonw w;
    const json_t *sent = json_object_get(m->body, "timestamp");

    if (body_only(m->body, "", (const char *const[]){ "type", "timestamp", NULL }, err) < 0)
        return -1;
    socket_begin(m->so, &w, &out, "pong", NULL);
    if (json_is_integer(sent))
        jsonw_ki64(&w, "pingTimestamp", json_integer_value(sent));
    (void)socket_send(m->so, &w);
    return 0;
}

static const struct {
    const char *type;
    int (*fn)(struct message *m, struct err *err);
    bool looks;   /* changes nothing: who may only read may */
    bool counted; /* it asks the store or leaves a record: the rate of requests is its rate too */
} handlers[] = { { "execute", on_execute },
                 { "resume", on_resume, .looks = true, .counted = true },
                 { "stdin", on_stdin },
                 { "input", on_input, .counted = true },
                 { "resize", on_resize },
                 { "signal", on_signal, .counted = true },
                 { "cancel", on_cancel, .counted = true },
                 { "detach", on_detach, .looks = true },
                 { "ping", on_ping, .looks = true } };

static bool count(const struct socket *so)
{
    struct ratelimit_answer rate;

    return auth_rate(so->api->set.auth, &so->who, AUTH_CLASS_DEFAULT, ev_now(so->api->set.ev), &rate);
}

static int dispatch(struct message *m, struct err *err)
{
    const char *type = NULL, *name = NULL;

    if (body_text(m->body, "", "executionId", 1, ATTACH_NAME_MAX, &name, err) < 0 ||
        body_text(m->body, "", "type", 1, 40, &type, err) < 0)
        return -1;
    if (name && (!plain(name) || !str_copy(m->held, sizeof(m->held), name)))
        return err_set(err, ERR_INVALID, "executionId: letters, digits, '-', '_' and '.'");
    m->name = name ? m->held : NULL;
    for (size_t i = 0; type && i < ARRAY_LEN(handlers); i++)
        if (str_eq(type, handlers[i].type)) {
            if (!handlers[i].looks && principal_require(&m->so->who, SCOPE_BIT(EXECUTIONS), err) < 0)
                return -1;
            if (handlers[i].counted && !count(m->so))
                return err_set(err, ERR_RATE_LIMITED, "this key has made too many requests of this kind");
            return handlers[i].fn(m, err);
        }
    return err_set(err, ERR_INVALID,
                   "type: it is execute, resume, stdin, input, resize, signal, cancel, detach or ping");
}

static void regulate(struct socket *so)
{
    size_t most = 0;

    for (const struct attach *a = so->attaches; a; a = a->next)
        most = attach_pending(a) > most ? attach_pending(a) : most;
    if (so->ws)
        ws_hold(so->ws, most > INPUT_HIGH);
}

static void on_message(void *arg, bool text, const char *data, size_t len)
{
    struct socket *so = arg;
    auto_json *body = NULL;
    struct message m = { .so = so };
    struct err err = { 0 };

    if (!text) {
        ws_close(so->ws, WS_UNSUPPORTED, "messages are JSON texts");
        return;
    }
    if (body_parse(data, len, &body, &err) < 0) {
        socket_error(so, NULL, NULL, &err);
        return;
    }
    m.body = body;
    manager_settle(so->api->set.manager); /* it may ask for what it was told of a moment ago */
    if (dispatch(&m, &err) < 0)
        socket_error(so, m.name, NULL, &err);
    regulate(so);
}

/* --- its life --- */

static void socket_free(struct socket *so)
{
    live_done(&so->live);
    ev_defer_clear(so->api->set.ev, &so->again);
    ev_timer_clear(so->api->set.ev, &so->status);
    if (so->asking)
        so->asking->so = NULL;
    while (so->attaches)
        attach_drop(so->attaches);
    attend_free(so->attend);
    free(so);
}

/* The sandbox has ended, and all of it was told; or whoever should hear it takes too long. */
static void end_socket(void *arg)
{
    struct socket *so = arg;

    ev_timer_clear(so->api->set.ev, &so->status);
    say_status(so, NULL);
    ws_close(so->ws, CLOSE_ENDED, so->reason);
}

/* Each in its turn, so that one that floods does not keep the others waiting: the first goes to the end. */
static void pump(void *arg)
{
    struct socket *so = arg;
    size_t n = so->nattaches;
    bool more = false;

    for (size_t i = 0; i < n && so->attaches; i++) {
        struct attach *a = so->attaches, **end = &so->attaches;

        so->attaches = a->next;
        a->next = NULL;
        while (*end)
            end = &(*end)->next;
        *end = a;
        more = !attach_pump(a) || more;
    }
    regulate(so);
    if (so->ended && !so->attaches)
        end_socket(so);
    else if (more && ws_room(so->ws) > 0)
        ev_defer(so->api->set.ev, &so->again, pump, so);
}

void socket_pump(struct socket *so)
{
    if (so->ws)
        ev_defer(so->api->set.ev, &so->again, pump, so);
}

static void on_room(void *arg)
{
    socket_pump(arg);
}

static void on_closed(void *arg, unsigned code UNUSED)
{
    struct socket *so = arg;

    so->ws = NULL;
    socket_free(so);
}

static void on_refused(void *arg, const struct err *why)
{
    struct socket *so = arg;

    socket_error(so, NULL, NULL, why);
    ws_close(so->ws, CLOSE_UNAUTHORIZED, why->msg);
}

static void on_attend(void *arg, const struct err *ended)
{
    struct socket *so = arg;

    if (!ended) {
        say_status(so, NULL);
        return;
    }
    so->ended = true;
    snprintf(so->reason, sizeof(so->reason), "%s", ended->msg);
    ev_timer_set(so->api->set.ev, &so->status, ev_now(so->api->set.ev) + LAST_NS, end_socket, so);
    socket_pump(so);
}

static void refuse_ended(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct http_req *req = arg;
    struct err why;

    if (!err && row->state == STORE_SB_ENDED)
        err_set(&why, ERR_SANDBOX_ENDED, "sandbox %s has ended (%s)", row->id,
                row->ended_by ? row->ended_by : "unmade");
    else if (!err)
        err_set(&why, ERR_BUSY, "the sandbox is not settled yet; ask again");
    http_answer_err(req, err ? err : &why);
}

static void open_socket(struct http_req *req, void *ctx)
{
    static const struct ws_ops ops = { on_message, on_room, on_closed };
    static const char *const protocols[] = { "cove.v1", NULL };
    struct api *api = ctx;
    struct err err = { 0 };
    const char *id;
    uint64_t status_ms;

    if (http_query_only(req, (const char *const[]){ "statusIntervalMs", "ticket", NULL }, &err) < 0 ||
        http_query_u64(req, "statusIntervalMs", 500, 3600000, 0, &status_ms, &err) < 0 ||
        api_sandbox_id(req, &id, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    struct socket *so = mem_new(struct socket);
    so->api = api;
    so->who = *api_who(req);
    so->status_ms = status_ms;
    (void)str_copy(so->owner, sizeof(so->owner), api_sees(req));
    (void)str_copy(so->sandbox, sizeof(so->sandbox), id);
    (void)str_copy(so->request, sizeof(so->request), http_id(req));
    (void)str_copy(so->address, sizeof(so->address), http_peer(req)->local ? "local" : http_peer(req)->addr);
    so->attend = manager_attend(api->set.manager, so->owner, id, on_attend, so, &err);
    if (!so->attend) {
        free(so);
        if (err.id == ERR_MISSING)
            store_sandbox_get(api->set.store, api_sees(req), id, refuse_ended, req);
        else
            http_answer_err(req, &err);
        return;
    }
    so->ws = http_answer_ws(req, protocols, &ops, so);
    if (!so->ws) {
        socket_free(so);
        return;
    }
    live_begin(&so->live, api, &so->who, on_refused, so);
    say_status(so, NULL);
    if (status_ms)
        on_status(so);
}

const struct http_route socket_routes[] = {
    { "GET", "/v1/sandboxes/{sandboxId}/stream", open_socket, HTTP_BODY_NONE, .data = &api_runs_read },
    { 0 },
};
