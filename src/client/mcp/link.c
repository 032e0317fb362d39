/* The session with the server has two parts: that of cove, which owns the sandbox and exists in
 * both eras, and that of the protocol in the era of sessions. A server that was restarted knows
 * neither; both are then opened again with the client's own `initialize`, without notice to the
 * client. */
#include "client/mcp/bridge_internal.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define LINK_TIMEOUT_MS 30000u
#define LINK_SESSIONS "/v1/mcp/sessions"
#define LINK_SECRET "Cove-Session: "
#define LINK_INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"

static void bridge_link_forget(struct bridge_link *l)
{
    free(take_ptr(&l->secret));
    free(take_ptr(&l->session));
}

void bridge_link_done(struct bridge_link *l)
{
    exchange_cancel(take_ptr(&l->exchange));
    bridge_link_forget(l);
    free(take_ptr(&l->version));
    free(take_ptr(&l->initialize));
    buf_done(&l->body);
}

void bridge_link_set_session(struct bridge_link *l, const char *session)
{
    free(l->session);
    l->session = session ? str_printf("Mcp-Session-Id: %s", session) : NULL;
}

void bridge_link_initialized(struct bridge_link *l, const struct bridge_message *m UNUSED, const json_t *result)
{
    const char *version = json_string_value(json_object_get(result, "protocolVersion"));

    free(l->version);
    l->version = version ? str_printf("MCP-Protocol-Version: %.60s", version) : NULL;
    if (l->version)
        str_strip_control_chars(l->version);
}

void bridge_link_lost(struct bridge *b, unsigned generation)
{
    struct bridge_link *l = &b->link;

    if (l->generation != generation || l->state != BRIDGE_LINK_READY)
        return;
    l->must_initialize = l->session != NULL;
    bridge_link_forget(l);
    bridge_listener_stop(b);
    l->state = BRIDGE_LINK_CLOSED;
}

/* --- opening --- */

static void bridge_link_step(struct bridge *b);

static void bridge_link_fail(struct bridge *b, int64_t code, const char *text, const char *data)
{
    struct bridge_message *next;

    b->link.state = BRIDGE_LINK_CLOSED;
    for (struct bridge_message *m = b->messages; m; m = next) {
        next = m->next;
        if (m->state != BRIDGE_MESSAGE_WAITING)
            continue;
        if (bridge_message_is_awaited(m))
            bridge_write_error(b, m->rpc.id, code, text, data);
        bridge_message_free(m);
    }
    report_note("%.600s", text);
}

static void bridge_link_fail_err(struct bridge *b, const struct err *err)
{
    auto_free char *text = NULL, *data = NULL;

    bridge_explain_err(b, err, &text, &data);
    bridge_link_fail(b, BRIDGE_SERVER_ERROR, text, data);
}

static void bridge_link_refused(struct bridge *b, const struct exchange_result *r)
{
    auto_free char *text = NULL, *data = NULL;

    if (r->err) {
        bridge_link_fail_err(b, r->err);
        return;
    }
    bridge_explain(b, r, &text, &data);
    bridge_link_fail(b, BRIDGE_SERVER_ERROR, text, data);
}

static bool bridge_link_on_event(void *arg, const char *data, size_t len)
{
    struct bridge *b = arg;

    buf_clear(&b->link.body); /* the request was sent */
    buf_add(&b->link.body, data, len);
    return false; /* only the answer to initialize can arrive here */
}

static void bridge_link_start(struct bridge *b, enum bridge_link_state state, const struct exchange_spec *spec,
                              const struct exchange_ops *ops)
{
    struct err err = { 0 };

    b->link.state = state;
    if (exchange_start(b->settings.client, spec, ops, b, &b->link.exchange, &err) < 0)
        bridge_link_fail_err(b, &err);
}

static bool bridge_link_read_session(struct bridge_link *l, const struct exchange_result *r)
{
    json_t *body = json_loadb(r->body, r->len, 0, NULL);
    const char *secret = json_string_value(json_object_get(body, "secret"));

    if (secret) {
        l->secret = str_printf(LINK_SECRET "%s", secret);
        str_strip_control_chars(l->secret);
    }
    json_decref(body);
    return l->secret != NULL;
}

/* An error of cove has a code; a server of others knows nothing of the path. */
static bool bridge_link_is_foreign(const struct exchange_result *r)
{
    json_t *body = json_loadb(r->body, r->len, 0, NULL);
    bool foreign = !r->err && r->status < 500 && r->status != 401 && r->status != 403 &&
                   !json_is_string(json_object_get(json_object_get(body, "error"), "code"));

    json_decref(body);
    return foreign;
}

static void bridge_link_on_opened(void *arg, const struct exchange_result *r)
{
    struct bridge *b = arg;
    bool wants_sandbox = b->settings.sandbox || b->settings.template;

    b->link.exchange = NULL;
    if (!r->err && r->status < 300 && bridge_link_read_session(&b->link, r)) {
        bridge_link_step(b);
    } else if (bridge_link_is_foreign(r) && !wants_sandbox) {
        b->link.is_foreign = true;
        bridge_link_step(b);
    } else {
        bridge_link_refused(b, r);
        if (b->is_stopping)
            bridge_finish(b);
    }
}

static const struct exchange_ops opened_ops = { .on_event = bridge_link_on_event, .on_end = bridge_link_on_opened };

static void bridge_link_post_session(struct bridge *b)
{
    struct jsonw w;

    buf_clear(&b->link.body);
    jsonw_init(&w, &b->link.body, 0);
    jsonw_object(&w);
    if (b->settings.sandbox)
        jsonw_kstr(&w, "sandbox", b->settings.sandbox);
    if (b->settings.template)
        jsonw_kstr(&w, "template", b->settings.template);
    jsonw_end_object(&w);
    const struct exchange_spec spec = { .method = "POST",
                                        .path = LINK_SESSIONS,
                                        .body = b->link.body.data,
                                        .len = b->link.body.len,
                                        .silence_ms = LINK_TIMEOUT_MS };
    bridge_link_start(b, BRIDGE_LINK_OPENING, &spec, &opened_ops);
}

static void bridge_link_on_confirmed(void *arg, const struct exchange_result *r)
{
    struct bridge *b = arg;

    b->link.exchange = NULL;
    if (r->err || r->status >= 300) {
        bridge_link_refused(b, r);
        return;
    }
    b->link.must_initialize = false;
    bridge_link_step(b);
    bridge_listener_start(b);
}

static const struct exchange_ops confirmed_ops = { .on_event = bridge_link_on_event,
                                                   .on_end = bridge_link_on_confirmed };

static void bridge_link_confirm(struct bridge *b)
{
    const char *headers[] = { b->link.version, b->link.session, b->link.secret, NULL };

    if (!b->link.session && b->link.secret) {
        headers[1] = b->link.secret;
        headers[2] = NULL;
    }
    const struct exchange_spec spec = { .method = "POST",
                                        .path = BRIDGE_PATH,
                                        .headers = headers,
                                        .body = LINK_INITIALIZED,
                                        .len = strlen(LINK_INITIALIZED),
                                        .silence_ms = LINK_TIMEOUT_MS };
    bridge_link_start(b, BRIDGE_LINK_CONFIRMING, &spec, &confirmed_ops);
}

static void bridge_link_on_initialized(void *arg, const struct exchange_result *r)
{
    struct bridge *b = arg;
    struct jsonrpc_message rpc;
    struct err err = { 0 };
    int code;
    const char *text = r->is_stream ? b->link.body.data : r->body;

    b->link.exchange = NULL;
    if ((r->err && !r->is_stream) || r->status >= 300) {
        bridge_link_refused(b, r);
        return;
    }
    bool ok = jsonrpc_parse(text, strlen(text), &rpc, &code, &err) == 0 && rpc.kind == JSONRPC_RESULT;
    if (ok) {
        bridge_link_set_session(&b->link, r->session);
        bridge_link_initialized(&b->link, NULL, rpc.result);
        bridge_link_confirm(b);
    } else {
        bridge_link_fail(b, BRIDGE_SERVER_ERROR,
                         "the server was restarted and refuses a new session; start the "
                         "client again",
                         NULL);
    }
    jsonrpc_message_done(&rpc);
}

static const struct exchange_ops initialized_ops = { .on_event = bridge_link_on_event,
                                                     .on_end = bridge_link_on_initialized };

static void bridge_link_initialize(struct bridge *b)
{
    const char *headers[] = { b->link.secret, NULL };

    buf_clear(&b->link.body);
    const struct exchange_spec spec = { .method = "POST",
                                        .path = BRIDGE_PATH,
                                        .headers = headers,
                                        .body = b->link.initialize,
                                        .len = strlen(b->link.initialize),
                                        .silence_ms = LINK_TIMEOUT_MS };
    bridge_link_start(b, BRIDGE_LINK_INITIALIZING, &spec, &initialized_ops);
}

static void bridge_link_step(struct bridge *b)
{
    struct bridge_link *l = &b->link;

    if (b->is_stopping) {
        bridge_link_close(b);
    } else if (!l->secret && !l->is_foreign) {
        bridge_link_post_session(b);
    } else if (l->must_initialize && l->initialize) {
        bridge_link_initialize(b);
    } else {
        l->state = BRIDGE_LINK_READY;
        l->generation++;
        bridge_pump_later(b);
    }
}

void bridge_link_open(struct bridge *b)
{
    if (b->link.state == BRIDGE_LINK_CLOSED)
        bridge_link_step(b);
}

/* --- closing --- */

static void bridge_link_on_closed(void *arg, const struct exchange_result *r UNUSED)
{
    struct bridge *b = arg;

    b->link.exchange = NULL;
    bridge_finish(b);
}

static const struct exchange_ops closed_ops = { .on_event = bridge_link_on_event, .on_end = bridge_link_on_closed };

/* The session of cove includes that of the protocol. Its secret closes it, whatever the scopes of
 * the key. */
void bridge_link_close(struct bridge *b)
{
    struct bridge_link *l = &b->link;
    auto_free char *own = l->secret ? str_printf("Mcp-Session-Id: %s", l->secret + strlen(LINK_SECRET)) : NULL;
    const char *headers[] = { own ? own : l->session, l->version, NULL };
    const struct exchange_spec spec = {
        .method = "DELETE", .path = BRIDGE_PATH, .headers = headers, .silence_ms = LINK_TIMEOUT_MS
    };

    if (l->state == BRIDGE_LINK_OPENING && l->exchange)
        return; /* the session that is being opened is closed then */
    exchange_cancel(take_ptr(&l->exchange));
    if (!own && !l->session) {
        bridge_finish(b);
        return;
    }
    bridge_link_start(b, BRIDGE_LINK_CLOSING, &spec, &closed_ops);
    if (l->state == BRIDGE_LINK_CLOSED)
        bridge_finish(b);
}
