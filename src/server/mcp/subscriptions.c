/* Streams of notifications: GET /mcp in the legacy era, subscriptions/listen in the modern one; and
 * the watches of files that feed them.
 *
 * A message goes to one stream only. A stream that its client reads too slowly loses messages, but
 * not the first one about a change: the client reads the file then, and finds its latest state. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/mcp/resource_uri.h"
#include "service/sandbox_files.h"

#define MCP_WATCHES_MAX 16u
#define MCP_WATCH_DELAY_NS (100 * NS_PER_MS) /* changes within this time are one message */

struct mcp_listener { /* GET */
    struct mcp_session *session;
    struct http_req *req;
    struct open_stream open_stream;
};

struct mcp_watch {
    struct mcp *mcp;
    struct mcp_watch *next;
    struct mcp_session *session;  /* of a legacy subscription, else NULL */
    struct mcp_server_call *call; /* of a modern one, else NULL */
    char *uri;
    struct resource_uri parsed;
    struct sandbox_files_request request;
    struct sandbox_files_job *job;
    bool is_gone; /* the file was removed or replaced, and is watched again after the delay */
    struct ev_timer timer;
};

struct mcp_listen { /* the work of subscriptions/listen */
    bool tools, prompts, resources;
    struct mcp_watch *watches;
};

/* --- GET --- */

static void mcp_listener_end(struct mcp_listener *l)
{
    l->session->listener = NULL;
    open_stream_unregister(&l->open_stream);
    http_on_client_gone(l->req, NULL, NULL);
    http_stream_end(l->req);
    free(l);
}

static void mcp_listener_on_client_gone(void *arg)
{
    mcp_listener_end(arg);
}

static void mcp_listener_on_credential_end(void *arg, const struct err *why UNUSED)
{
    mcp_listener_end(arg);
}

/* For a server that is freed: its HTTP requests are gone. */
void mcp_listener_free(struct mcp_session *s)
{
    if (s->listener)
        open_stream_unregister(&s->listener->open_stream);
    free(take_ptr(&s->listener));
}

void mcp_listener_close(struct mcp_session *s)
{
    if (s->listener)
        mcp_listener_end(s->listener);
}

void mcp_listener_open(struct http_req *req, struct mcp_session *s)
{
    struct mcp_listener *l;

    mcp_listener_close(s); /* a client that reconnects: its old connection may not be known to be broken */
    l = mem_new(struct mcp_listener);
    l->session = s;
    l->req = req;
    s->listener = l;
    http_answer_events(req);
    http_stream_write(req, ":\n\n", 3);
    open_stream_register(&l->open_stream, s->mcp->settings.gateway, gateway_principal(req),
                         mcp_listener_on_credential_end, l);
    l->open_stream.is_endless = true;
    http_on_client_gone(req, mcp_listener_on_client_gone, l);
    http_require_client(req);
}

static void mcp_listener_notify(const struct mcp_session *s, const char *method, const char *params)
{
    auto_buf out = { 0 };

    if (!s->listener || http_stream_room(s->listener->req) == 0)
        return;
    jsonrpc_write_notification(&out, method, params);
    http_stream_event(s->listener->req, NULL, NULL, out.data);
}

/* --- subscriptions/listen --- */

/* Every message carries the id of the request that opened the stream. */
static void mcp_listen_notify(struct mcp_server_call *c, const char *method, json_t *params)
{
    auto_free char *text = NULL;

    json_object_set_new(params, "_meta", json_pack("{s:O}", MCP_META "subscriptionId", (json_t *)c->id));
    text = json_dumps(params, JSON_COMPACT);
    mcp_server_call_notify(c, method, text);
    json_decref(params);
}

void mcp_notify_list_changed(struct mcp *m, const char *list)
{
    auto_free char *method = str_printf("notifications/%s/list_changed", list);
    bool is_tools = str_eq(list, "tools");

    for (const struct mcp_session *s = m->sessions; s; s = s->next)
        mcp_listener_notify(s, method, NULL);
    for (struct mcp_server_call *c = m->calls; c; c = c->next) {
        const struct mcp_listen *l = c->method && str_eq(c->method->name, "subscriptions/listen") ? c->work : NULL;

        if (l && (is_tools ? l->tools : l->prompts))
            mcp_listen_notify(c, method, json_object());
    }
}

/* --- watches --- */

static void mcp_watch_free(struct mcp_watch *w)
{
    sandbox_files_free(w->job);
    ev_timer_clear(w->mcp->settings.ev, &w->timer);
    free(w->uri);
    free(w);
}

void mcp_watches_free(struct mcp_session *s)
{
    while (s->watches) {
        struct mcp_watch *w = s->watches;

        s->watches = w->next;
        mcp_watch_free(w);
    }
}

static void mcp_watch_start(struct mcp_watch *w);

static void mcp_watch_on_delay(void *arg)
{
    struct mcp_watch *w = arg;
    json_t *params = json_pack("{s:s}", "uri", w->uri);

    if (w->is_gone)
        mcp_watch_start(w);

    if (w->call) {
        mcp_listen_notify(w->call, "notifications/resources/updated", params);
        return;
    }
    auto_free char *text = json_dumps(params, JSON_COMPACT);
    json_decref(params);
    mcp_listener_notify(w->session, "notifications/resources/updated", text);
}

static void mcp_watch_on_event(void *arg, const struct files_event *e)
{
    struct mcp_watch *w = arg;

    if (e->kind != FILES_WATCHING && !w->timer.slot)
        ev_timer_set(w->mcp->settings.ev, &w->timer, ev_now(w->mcp->settings.ev) + MCP_WATCH_DELAY_NS,
                     mcp_watch_on_delay, w);
}

/* The file was removed or replaced, or its sandbox has ended: a change too. */
static void mcp_watch_on_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct mcp_watch *w = arg;

    w->is_gone = !err;

    ev_timer_set(w->mcp->settings.ev, &w->timer, ev_now(w->mcp->settings.ev) + MCP_WATCH_DELAY_NS, mcp_watch_on_delay,
                 w);
}

static const struct sandbox_files_ops mcp_watch_ops = { .files = { .on_event = mcp_watch_on_event,
                                                                   .on_done = mcp_watch_on_done } };

static struct mcp_watch *mcp_watch_new(struct mcp_server_call *c, const char *uri, struct mcp_watch **list)
{
    struct mcp_watch *w = mem_new(struct mcp_watch);

    w->mcp = c->mcp;
    w->uri = str_dup(uri);
    list_push(list, w);
    if (!resource_uri_parse(uri, &w->parsed) || !w->parsed.sandbox[0])
        return w; /* a resource that never changes */
    w->request = (struct sandbox_files_request){ .owner = mcp_server_call_visible_owner(c),
                                                 .sandbox = w->parsed.sandbox,
                                                 .files = { .operation = FILES_OP_WATCH, .path = w->parsed.path } };
    return w;
}

/* The owner that the request names lives as long as the call or the session. */
static void mcp_watch_start(struct mcp_watch *w)
{
    w->is_gone = false;
    sandbox_files_free(take_ptr(&w->job));
    if (w->request.sandbox)
        sandbox_files_open(w->mcp->settings.manager, &w->request, &mcp_watch_ops, w, &w->job);
}

static size_t mcp_watches_count(const struct mcp_watch *list)
{
    size_t n = 0;

    for (; list; list = list->next)
        n++;
    return n;
}

static bool mcp_may_watch(struct mcp_server_call *c, const char *uri, const struct mcp_watch *list)
{
    struct resource_uri parsed;
    bool is_file = uri && resource_uri_parse(uri, &parsed) && parsed.sandbox[0];

    if (!uri)
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "uri: required", NULL);
    else if (mcp_watches_count(list) >= MCP_WATCHES_MAX)
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "too many subscriptions; the maximum is 16", NULL);
    else if (!is_file && !c->mcp->fixtures)
        mcp_resource_missing(c, uri, "uri: only files of sandboxes can be subscribed to");
    else
        return !is_file ||
               mcp_server_call_authorize(c, SCOPE_BIT(FILES_READ), AUTH_CLASS_DEFAULT,
                                         &(struct gateway_action){ .name = "file.watch", .sandbox = parsed.sandbox });
    return false;
}

void mcp_resources_subscribe(struct mcp_server_call *c)
{
    const char *uri = mcp_server_call_text(c, "uri");
    struct mcp_session *s = c->session;
    struct mcp_watch *w = s->watches;

    while (w && uri && !str_eq(w->uri, uri))
        w = w->next;
    if (!w) {
        if (!mcp_may_watch(c, uri, s->watches))
            return;
        w = mcp_watch_new(c, uri, &s->watches);
        w->session = s;
        if (w->request.owner != NULL && !str_eq(w->request.owner, STORE_ANY_OWNER))
            w->request.owner = s->owner;
        mcp_watch_start(w);
    }
    mcp_server_call_result(c, "{}");
}

void mcp_resources_unsubscribe(struct mcp_server_call *c)
{
    const char *uri = mcp_server_call_text(c, "uri");
    struct mcp_watch *w = c->session->watches;

    while (w && uri && !str_eq(w->uri, uri))
        w = w->next;
    if (w && uri) {
        list_remove(&c->session->watches, w);
        mcp_watch_free(w);
    }
    mcp_server_call_result(c, "{}");
}

/* --- subscriptions/listen --- */

static void mcp_listen_cancel(struct mcp_server_call *c)
{
    struct mcp_listen *l = take_ptr(&c->work);

    while (l->watches) {
        struct mcp_watch *w = l->watches;

        l->watches = w->next;
        mcp_watch_free(w);
    }
    free(l);
}

static bool mcp_listen_wants(const json_t *filter, const char *name)
{
    return json_is_true(json_object_get(filter, name));
}

/* At most one sandbox per stream, because its permission is checked once. */
static bool mcp_listen_check(struct mcp_server_call *c, const json_t *uris)
{
    struct resource_uri first, other;
    size_t n = json_array_size(uris);

    if (n > MCP_WATCHES_MAX) {
        mcp_server_call_error(c, JSONRPC_INVALID_PARAMS, "resourceSubscriptions: too many; the maximum is 16", NULL);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *uri = json_string_value(json_array_get(uris, i));
        bool is_file = uri && resource_uri_parse(uri, i == 0 ? &first : &other);

        if (!is_file || (i > 0 && !str_eq(first.sandbox, other.sandbox)) || !first.sandbox[0]) {
            mcp_resource_missing(c, uri ? uri : "",
                                 "resourceSubscriptions: must be the URIs of files of one sandbox; open another stream "
                                 "for another sandbox");
            return false;
        }
    }
    return n == 0 ||
           mcp_server_call_authorize(c, SCOPE_BIT(FILES_READ), AUTH_CLASS_DEFAULT,
                                     &(struct gateway_action){ .name = "file.watch", .sandbox = first.sandbox });
}

void mcp_subscriptions_listen(struct mcp_server_call *c)
{
    const json_t *filter = json_object_get(c->params, "notifications");
    const json_t *uris = json_object_get(filter, "resourceSubscriptions");
    struct mcp_listen *l;
    json_t *accepted = json_object();

    if (!c->accepts_stream) {
        json_decref(accepted);
        mcp_server_call_error(c, JSONRPC_INVALID_REQUEST, "Accept: must contain text/event-stream", NULL);
        return;
    }
    if (!mcp_listen_check(c, uris)) {
        json_decref(accepted);
        return;
    }
    l = mem_new(struct mcp_listen);
    l->tools = c->mcp->fixtures && mcp_listen_wants(filter, "toolsListChanged");
    l->prompts = c->mcp->fixtures && mcp_listen_wants(filter, "promptsListChanged");
    c->work = l;
    c->on_cancel = mcp_listen_cancel;
    c->open_stream.is_endless = true;
    if (l->tools)
        json_object_set_new(accepted, "toolsListChanged", json_true());
    if (l->prompts)
        json_object_set_new(accepted, "promptsListChanged", json_true());
    if (json_array_size(uris) > 0)
        json_object_set(accepted, "resourceSubscriptions", (json_t *)uris);
    mcp_listen_notify(c, "notifications/subscriptions/acknowledged", json_pack("{s:o}", "notifications", accepted));
    for (size_t i = 0; i < json_array_size(uris); i++)
        mcp_watch_new(c, json_string_value(json_array_get(uris, i)), &l->watches)->call = c;
    for (struct mcp_watch *w = l->watches; w; w = w->next)
        mcp_watch_start(w);
}
