/* /v1/events: the events of all sandboxes of a tenant, as a page or as a stream.
 *
 * A stream's state is one number: that of the last event sent. New events come from a tail of the
 * latest events, which all streams share and the store fills as it commits. A stream that has
 * fallen behind the tail reads pages from the store until it has caught up. A slow reader therefore
 * blocks nothing and nothing is buffered for it. Events that retention removed before the reader
 * saw them are reported as a gap.
 *
 * 1. An event is sent after its commit and in the order of the numbers. The number of the last
 *    event is all that a client needs to resume without gaps and duplicates, even after a restart
 *    of the server.
 * 2. All events after tail.before_first_seq up to tail.last_seq are in the tail.
 * 3. A position also advances past events of other tenants: only then is "nothing new" known
 *    without a query to the store. */
#include "server/api/api_internal.h"
#include "server/api/message_stream.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define TAIL_MAX 1024u
#define TAIL_BYTES (1 * MIB)
#define PAGE 200u
#define KINDS_MAX 16u
#define KIND_MAX 64u

struct event_tail_entry {
    struct store_event row; /* owns its strings */
    size_t bytes;
};

struct event_tail {
    bool known;
    uint64_t before_first_seq, last_seq;
    struct event_tail_entry ring[TAIL_MAX];
    size_t first, n, bytes;
};

struct event_stream {
    struct http_req *req;
    struct api *api;
    struct open_stream open_stream;
    struct event_stream *next, **list_link;
    char owner[STORE_OWNER_MAX + 1]; /* a tenant, or STORE_ANY_OWNER */
    char sandbox[ID_SIZE];           /* "": all */
    char kinds[KINDS_MAX][KIND_MAX + 1];
    size_t nkinds;
    bool is_page;       /* one page instead of a stream */
    bool is_of_sandbox; /* the path names the sandbox, so events are written without it and the tenant */
    bool is_sse, has_start;
    struct message_stream messages;
    uint64_t position;          /* all events up to here were sent or do not match */
    uint64_t last_sent_seq;     /* number of the last event sent */
    uint64_t tail_seq_at_query; /* tail.last_seq when the page was requested */
    struct store_request *store_call;
    struct ev_defer pump_defer;
};

/* --- the tail --- */

static void event_tail_drop_first(struct event_tail *t)
{
    struct event_tail_entry *e = &t->ring[t->first];

    t->before_first_seq = e->row.seq;
    t->bytes -= e->bytes;
    free(e->row.kind);
    free(e->row.body_json);
    t->first = (t->first + 1) % TAIL_MAX;
    t->n--;
}

static void event_tail_add(struct event_tail *t, const struct store_event *row)
{
    size_t bytes = sizeof(*row) + (row->kind ? strlen(row->kind) : 0) + (row->body_json ? strlen(row->body_json) : 0);

    if (!t->known)
        t->before_first_seq = row->seq - 1;
    t->known = true;
    while (t->n == TAIL_MAX || (t->n > 0 && t->bytes + bytes > TAIL_BYTES))
        event_tail_drop_first(t);
    struct event_tail_entry *e = &t->ring[(t->first + t->n++) % TAIL_MAX];
    e->row = *row;
    e->row.kind = row->kind ? str_dup(row->kind) : NULL;
    e->row.body_json = row->body_json ? str_dup(row->body_json) : NULL;
    e->bytes = bytes;
    t->bytes += bytes;
    t->last_seq = row->seq;
}

static void event_stream_pump(void *arg);

static void event_tail_on_event(void *arg, const struct store_event *row)
{
    struct api *api = arg;

    event_tail_add(api->event_tail, row);
    for (struct event_stream *s = api->event_streams; s; s = s->next)
        ev_defer(api->settings.ev, &s->pump_defer, event_stream_pump, s);
}

void event_streams_init(struct api *api)
{
    api->event_tail = mem_new(struct event_tail);
    store_on_event(api->settings.store, event_tail_on_event, api);
}

void event_streams_done(struct api *api)
{
    store_on_event(api->settings.store, NULL, NULL);
    while (api->event_tail->n > 0)
        event_tail_drop_first(api->event_tail);
    free(api->event_tail);
}

/* --- one event --- */

static void event_write(struct jsonw *w, const struct store_event *e)
{
    auto_json *body = NULL;

    jsonw_ku64(w, "seq", e->seq);
    api_write_time(w, "at", e->at_ms);
    jsonw_kstr(w, "kind", e->kind ? e->kind : "");
    if (e->body_json && json_input_parse(e->body_json, strlen(e->body_json), &body, NULL) == 0) {
        const char *execution = json_string_value(json_object_get(body, "executionId"));

        if (execution)
            jsonw_kstr(w, "executionId", execution);
        json_object_del(body, "executionId");
        char *rest = json_dumps(body, JSON_COMPACT);
        if (rest && json_object_size(body) > 0)
            api_write_raw_json(w, "body", rest);
        free(rest);
    }
}

static void event_write_owner(struct jsonw *w, const struct store_event *e)
{
    jsonw_kstr(w, "tenant", e->owner);
    jsonw_kstr_if(w, "sandboxId", e->sandbox);
}

static bool event_stream_matches(const struct event_stream *s, const struct store_event *e)
{
    bool kind = s->nkinds == 0;

    if (!str_eq(s->owner, STORE_ANY_OWNER) && !str_eq(s->owner, e->owner))
        return false;
    if (s->sandbox[0] && !str_eq(s->sandbox, e->sandbox))
        return false;
    for (size_t i = 0; !kind && i < s->nkinds; i++)
        kind = e->kind && str_eq(s->kinds[i], e->kind);
    return kind;
}

/* --- the stream --- */

static void event_stream_free(struct event_stream *s)
{
    struct ev *ev = s->api->settings.ev;

    open_stream_unregister(&s->open_stream);
    if (s->store_call)
        store_request_detach(s->store_call);
    if (s->list_link) {
        *s->list_link = s->next;
        if (s->next)
            s->next->list_link = s->list_link;
    }
    message_stream_done(&s->messages);
    ev_defer_clear(ev, &s->pump_defer);
    free(s);
}

static bool event_stream_send(struct event_stream *s, const char *event, const struct buf *json)
{
    char id[24];

    snprintf(id, sizeof(id), "%" PRIu64, s->last_sent_seq);
    return message_stream_send(&s->messages, id, event, json);
}

static bool event_stream_send_event(struct event_stream *s, const struct store_event *e)
{
    auto_buf out = { 0 };
    struct jsonw w;

    message_begin(&w, &out, "event");
    event_write_owner(&w, e);
    event_write(&w, e);
    jsonw_end_object(&w);
    s->last_sent_seq = e->seq;
    return event_stream_send(s, e->kind, &out);
}

static void event_stream_send_number(struct event_stream *s, const char *type, const char *name, uint64_t n)
{
    auto_buf out = { 0 };
    struct jsonw w;

    message_begin(&w, &out, type);
    jsonw_ku64(&w, name, n);
    jsonw_end_object(&w);
    event_stream_send(s, type, &out);
}

static void event_stream_end(void *arg, const struct err *why)
{
    struct event_stream *s = arg;
    char id[24];

    snprintf(id, sizeof(id), "%" PRIu64, s->last_sent_seq);
    message_stream_end(&s->messages, id, why);
    event_stream_free(s);
}

static void event_stream_on_page(void *arg, const struct err *err, const struct store_event *rows, size_t n)
{
    struct event_stream *s = arg;

    s->store_call = NULL;
    if (err) {
        event_stream_end(s, err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        s->position = rows[i].seq;
        if (event_stream_matches(s, &rows[i]))
            event_stream_send_event(s, &rows[i]);
    }
    if (n < PAGE)
        s->position = max_u64(s->position, s->tail_seq_at_query);
    ev_defer(s->api->settings.ev, &s->pump_defer, event_stream_pump, s);
}

static void event_stream_pump_tail(struct event_stream *s)
{
    struct event_tail *t = s->api->event_tail;

    for (size_t i = 0; i < t->n; i++) {
        const struct store_event *e = &t->ring[(t->first + i) % TAIL_MAX].row;

        if (e->seq <= s->position)
            continue;
        if (http_stream_room(s->req) == 0)
            return;
        s->position = e->seq;
        if (event_stream_matches(s, e))
            event_stream_send_event(s, e);
    }
    s->position = t->last_seq;
}

static void event_stream_pump(void *arg)
{
    struct event_stream *s = arg;
    struct event_tail *t = s->api->event_tail;

    if (s->store_call || http_stream_room(s->req) == 0 || s->position >= t->last_seq)
        return;
    if (s->position >= t->before_first_seq) {
        event_stream_pump_tail(s);
        return;
    }
    s->tail_seq_at_query = t->last_seq;
    s->store_call = store_event_list(s->api->settings.store, s->owner, s->sandbox[0] ? s->sandbox : NULL, s->position,
                                     PAGE, event_stream_on_page, s);
}

static void event_stream_begin(struct event_stream *s, uint64_t first, uint64_t last)
{
    struct api *api = s->api;
    struct event_tail *t = api->event_tail;
    bool gap = s->has_start && s->position > 0 && (s->position > last || s->position + 1 < first);

    if (!t->known) {
        t->known = true;
        t->before_first_seq = t->last_seq = last;
    }
    if (!s->has_start || s->position > last)
        s->position = last;
    s->last_sent_seq = s->position;
    s->next = api->event_streams;
    s->list_link = &api->event_streams;
    if (s->next)
        s->next->list_link = &s->next;
    api->event_streams = s;
    open_stream_register(&s->open_stream, api->settings.gateway, gateway_principal(s->req), event_stream_end, s);
    s->open_stream.is_endless = true;
    http_on_room(s->req, event_stream_pump, s);
    message_stream_begin(&s->messages, s->req, api->settings.ev, s->is_sse);
    event_stream_send_number(s, "ready", "after", s->position);
    if (gap)
        event_stream_send_number(s, "gap", "next", min_u64(first, last + 1));
    event_stream_pump(s);
}

static void event_stream_on_range(void *arg, const struct err *err, uint64_t first, uint64_t last)
{
    struct event_stream *s = arg;

    s->store_call = NULL;
    if (!err) {
        event_stream_begin(s, first, last);
        return;
    }
    message_stream_abort(&s->messages, s->req, err);
    event_stream_free(s);
}

static void event_stream_on_client_gone(void *arg)
{
    struct event_stream *s = arg;

    message_stream_abort(&s->messages, s->req, NULL);
    event_stream_free(s);
}

/* --- a page --- */

static void event_page_on_rows(void *arg, const struct err *err, const struct store_event *rows, size_t n)
{
    struct event_stream *s = arg;
    struct buf out = { 0 };
    struct jsonw w;
    char cursor[24];

    s->store_call = NULL;
    if (!api_list_begin(s->req, err, &w, &out)) {
        event_stream_free(s);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!event_stream_matches(s, &rows[i]))
            continue;
        jsonw_object(&w);
        if (!s->is_of_sandbox)
            event_write_owner(&w, &rows[i]);
        event_write(&w, &rows[i]);
        jsonw_end_object(&w);
    }
    if (n == s->tail_seq_at_query)
        snprintf(cursor, sizeof(cursor), "%" PRIu64, rows[n - 1].seq);
    api_list_end(s->req, &w, n == s->tail_seq_at_query ? cursor : NULL);
    event_stream_free(s);
}

/* --- parameters --- */

static int event_stream_read_kinds(const char *text, char kinds[][KIND_MAX + 1], size_t *ret_n, struct err *err)
{
    size_t n = 0;

    while (text) {
        size_t len = strcspn(text, ",");

        if (len == 0 || len > KIND_MAX || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") < len)
            return err_set(err, ERR_INVALID, "kind: must be event kinds such as sandbox_ended, separated by commas");
        if (n == KINDS_MAX)
            return err_set(err, ERR_INVALID, "kind: at most %u names", KINDS_MAX);
        memcpy(kinds[n], text, len);
        kinds[n++][len] = '\0';
        text = text[len] ? text + len + 1 : NULL;
    }
    *ret_n = n;
    return 0;
}

static int event_stream_read_after(struct event_stream *s, struct err *err)
{
    const char *header = s->is_sse ? http_header(s->req, "Last-Event-ID") : NULL, *query = http_query(s->req, "after");
    /* A browser that reconnects sends both, and the query is the older one. */
    const char *text = header && *header ? header : query;

    if (!text)
        return 0;
    s->has_start = true;
    if (str_to_u64(text, INT64_MAX, &s->position))
        return 0;
    return err_set(err, ERR_INVALID, "%s: must be the seq of an event", text == query ? "after" : "Last-Event-ID");
}

static int event_stream_read_page(struct event_stream *s, const struct store_list *q, struct err *err)
{
    s->tail_seq_at_query = q->limit;
    str_copy(s->owner, sizeof(s->owner), q->owner);
    if (q->cursor && !str_to_u64(q->cursor, INT64_MAX, &s->position))
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; pass the nextCursor of the previous page");
    return 0;
}

static int event_stream_read_request(struct event_stream *s, struct err *err)
{
    static const char *const names[] = { "after", "sandbox", "kind", NULL };
    struct store_list q = { 0 };
    const char *sandbox = http_query(s->req, "sandbox");

    if (api_read_page(s->req, names, &q, err) < 0)
        return -1;
    if (!s->is_page && (q.cursor || http_query(s->req, "limit")))
        return err_set(err, ERR_INVALID, "limit and cursor apply only to pages; use after to start a stream");
    if (event_stream_read_page(s, &q, err) < 0)
        return -1;
    if (sandbox && (!id_valid(sandbox, "sb") || !str_copy(s->sandbox, sizeof(s->sandbox), sandbox)))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (event_stream_read_kinds(http_query(s->req, "kind"), s->kinds, &s->nkinds, err) < 0)
        return -1;
    return q.cursor ? 0 : event_stream_read_after(s, err);
}

static void event_stream_start(struct event_stream *s)
{
    struct store *st = s->api->settings.store;

    if (s->is_page) {
        s->store_call = store_event_list(st, s->owner, s->sandbox[0] ? s->sandbox : NULL, s->position,
                                         (uint32_t)s->tail_seq_at_query, event_page_on_rows, s);
        return;
    }
    if (http_client_is_gone(s->req)) {
        event_stream_on_client_gone(s);
        return;
    }
    http_on_client_gone(s->req, event_stream_on_client_gone, s);
    s->store_call = store_event_range(st, event_stream_on_range, s);
}

/* A sandbox of another tenant is reported as missing. */
static void event_stream_on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    struct event_stream *s = arg;

    s->store_call = NULL;
    if (!err) {
        event_stream_start(s);
        return;
    }
    http_answer_err(s->req, err);
    event_stream_free(s);
}

static struct event_stream *event_stream_new(struct http_req *req, struct api *api)
{
    struct event_stream *s = mem_new(struct event_stream);

    s->req = req;
    s->api = api;
    s->is_sse = follow_mode_of_request(req) == FOLLOW_EVENTS;
    s->is_page = follow_mode_of_request(req) == FOLLOW_ANSWER;
    return s;
}

static void api_sandbox_events(struct http_req *req, void *ctx)
{
    struct event_stream *s = event_stream_new(req, ctx);
    struct store_list q = { 0 };
    struct err err = { 0 };
    const char *id;

    s->is_page = s->is_of_sandbox = true;
    if (api_read_page(req, NULL, &q, &err) < 0 || api_read_sandbox_id(req, &id, &err) < 0 ||
        event_stream_read_page(s, &q, &err) < 0) {
        http_answer_err(req, &err);
        event_stream_free(s);
        return;
    }
    str_copy(s->sandbox, sizeof(s->sandbox), id);
    s->store_call = store_sandbox_get(s->api->settings.store, s->owner, s->sandbox, event_stream_on_sandbox, s);
}

static void api_events(struct http_req *req, void *ctx)
{
    struct event_stream *s = event_stream_new(req, ctx);
    struct err err = { 0 };

    if (event_stream_read_request(s, &err) < 0) {
        http_answer_err(req, &err);
        event_stream_free(s);
    } else if (s->sandbox[0]) {
        s->store_call = store_sandbox_get(s->api->settings.store, s->owner, s->sandbox, event_stream_on_sandbox, s);
    } else {
        event_stream_start(s);
    }
}

const struct http_route event_routes[] = {
    { "GET", "/v1/events", api_events, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/v1/sandboxes/{sandboxId}/events", api_sandbox_events, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read },
    { 0 },
};
