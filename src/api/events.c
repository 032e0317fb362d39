/* /v1/events: what happens to every sandbox of a tenant, as a page or as it happens.
 *
 * A stream is a number: that of the last event it was told. What is new is taken from a tail of the latest events,
 * which all streams share and the store fills as it commits; who is further behind reads pages from the store until it
 * is back in the tail. So nothing waits for a slow reader and nothing is kept for it: it falls behind, and catches up
 * when it reads. What retention removed before it came is told as a gap.
 *
 * 1. An event is told after its commit, and in the order of the numbers, so the number of the last one is all that a
 *    client needs to go on without a gap and without one twice, also on a server that was restarted.
 * 2. Everything behind tail.base up to tail.last is in the tail.
 * 3. A position moves past events of others too: only then is "nothing new" known without asking the store. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define HEARTBEAT_NS (15 * NS_PER_S)
#define TAIL_MAX 1024u
#define TAIL_BYTES (1 * MIB)
#define PAGE 200u
#define KINDS_MAX 16u
#define KIND_MAX 64u

struct tail_event {
    struct store_event row; /* its texts are ours */
    size_t bytes;
};

struct api_tail {
    bool known;
    uint64_t base, last;
    struct tail_event ring[TAIL_MAX];
    size_t first, n, bytes;
};

struct stream {
    struct http_req *req;
    struct api *api;
    struct api_live live;
    struct stream *next, **at_list;
    char owner[STORE_OWNER_MAX + 1]; /* or STORE_ANY_OWNER */
    char sandbox[ID_SIZE];           /* "" for all */
    char kinds[KINDS_MAX][KIND_MAX + 1];
    size_t nkinds;
    bool sse, told_after, begun;
    uint64_t at;    /* everything up to here was told or is of no interest */
    uint64_t id;    /* of the last that was told */
    uint64_t asked; /* tail.last when the page was asked for */
    struct store_call *call;
    struct ev_timer heartbeat;
    struct ev_defer pump;
};

/* --- the tail --- */

static void tail_drop(struct api_tail *t)
{
    struct tail_event *e = &t->ring[t->first];

    t->base = e->row.seq;
    t->bytes -= e->bytes;
    free(e->row.kind);
    free(e->row.body_json);
    t->first = (t->first + 1) % TAIL_MAX;
    t->n--;
}

static void tail_add(struct api_tail *t, const struct store_event *row)
{
    size_t bytes = sizeof(*row) + (row->kind ? strlen(row->kind) : 0) + (row->body_json ? strlen(row->body_json) : 0);

    if (!t->known)
        t->base = row->seq - 1;
    t->known = true;
    while (t->n == TAIL_MAX || (t->n > 0 && t->bytes + bytes > TAIL_BYTES))
        tail_drop(t);
    struct tail_event *e = &t->ring[(t->first + t->n++) % TAIL_MAX];
    e->row = *row;
    e->row.kind = row->kind ? str_dup(row->kind) : NULL;
    e->row.body_json = row->body_json ? str_dup(row->body_json) : NULL;
    e->bytes = bytes;
    t->bytes += bytes;
    t->last = row->seq;
}

static void pump(void *arg);

static void on_event(void *arg, const struct store_event *row)
{
    struct api *api = arg;

    tail_add(api->tail, row);
    for (struct stream *s = api->streams; s; s = s->next)
        ev_defer(api->set.ev, &s->pump, pump, s);
}

void events_init(struct api *api)
{
    api->tail = mem_new(struct api_tail);
    store_on_event(api->set.store, on_event, api);
}

void events_done(struct api *api)
{
    store_on_event(api->set.store, NULL, NULL);
    while (api->tail->n > 0)
        tail_drop(api->tail);
    free(api->tail);
}

/* --- one event --- */

void api_event_json(struct jsonw *w, const struct store_event *e)
{
    auto_json *body = NULL;

    jsonw_ku64(w, "seq", e->seq);
    api_time(w, "at", e->at_ms);
    jsonw_kstr(w, "kind", e->kind ? e->kind : "");
    if (e->body_json && body_parse(e->body_json, strlen(e->body_json), &body, NULL) == 0) {
        const char *execution = json_string_value(json_object_get(body, "executionId"));

        if (execution)
            jsonw_kstr(w, "executionId", execution);
        json_object_del(body, "executionId");
        char *rest = json_dumps(body, JSON_COMPACT);
        if (rest && json_object_size(body) > 0)
            api_raw(w, "body", rest);
        free(rest);
    }
}

static void whole_event(struct jsonw *w, const struct store_event *e)
{
    jsonw_kstr(w, "tenant", e->owner);
    if (e->sandbox[0])
        jsonw_kstr(w, "sandboxId", e->sandbox);
    api_event_json(w, e);
}

static bool wants(const struct stream *s, const struct store_event *e)
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

static void stream_free(struct stream *s)
{
    struct ev *ev = s->api->set.ev;

    live_done(&s->live);
    if (s->call)
        store_forget(s->call);
    if (s->at_list) {
        *s->at_list = s->next;
        if (s->next)
            s->next->at_list = s->at_list;
    }
    ev_timer_clear(ev, &s->heartbeat);
    ev_defer_clear(ev, &s->pump);
    free(s);
}

static bool say(struct stream *s, const char *event, const struct buf *json)
{
    char id[24];

    if (!s->sse)
        return http_ndjson(s->req, json);
    snprintf(id, sizeof(id), "%" PRIu64, s->id);
    return http_event(s->req, id, event, json->data);
}

static bool say_event(struct stream *s, const struct store_event *e)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "event");
    whole_event(&w, e);
    jsonw_end_object(&w);
    s->id = e->seq;
    return say(s, e->kind, &out);
}

static void say_number(struct stream *s, const char *type, const char *name, uint64_t n)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", type);
    jsonw_ku64(&w, name, n);
    jsonw_end_object(&w);
    say(s, type, &out);
}

static void finish(void *arg, const struct err *why)
{
    struct stream *s = arg;
    auto_buf out = { 0 }, error = { 0 };

    http_error_json(why, http_id(s->req), NULL, NULL, &error);
    buf_addf(&out, "{\"type\":\"end\",%s", error.data + 1); /* {"error":{...}} becomes a member */
    say(s, "end", &out);
    http_on_gone(s->req, NULL, NULL);
    http_on_room(s->req, NULL, NULL);
    http_stream_end(s->req);
    stream_free(s);
}

static void on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct stream *s = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(s->api->set.ev, &s->heartbeat, ev_now(s->api->set.ev) + HEARTBEAT_NS, on_heartbeat, s);
    if (http_stream_room(s->req) > 0)
        http_ndjson(s->req, &json);
}

static void on_page(void *arg, const struct err *err, const struct store_event *rows, size_t n)
{
    struct stream *s = arg;

    s->call = NULL;
    if (err) {
        finish(s, err);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        s->at = rows[i].seq;
        if (wants(s, &rows[i]))
            say_event(s, &rows[i]);
    }
    if (n < PAGE)
        s->at = max_u64(s->at, s->asked);
    ev_defer(s->api->set.ev, &s->pump, pump, s);
}

static void pump_tail(struct stream *s)
{
    struct api_tail *t = s->api->tail;

    for (size_t i = 0; i < t->n; i++) {
        const struct store_event *e = &t->ring[(t->first + i) % TAIL_MAX].row;

        if (e->seq <= s->at)
            continue;
        if (http_stream_room(s->req) == 0)
            return;
        s->at = e->seq;
        if (wants(s, e))
            say_event(s, e);
    }
    s->at = t->last;
}

static void pump(void *arg)
{
    struct stream *s = arg;
    struct api_tail *t = s->api->tail;

    if (s->call || http_stream_room(s->req) == 0 || s->at >= t->last)
        return;
    if (s->at >= t->base) {
        pump_tail(s);
        return;
    }
    s->asked = t->last;
    s->call = store_event_list(s->api->set.store, s->owner, s->sandbox[0] ? s->sandbox : NULL, s->at, PAGE, on_page, s);
}

static void begin(struct stream *s, uint64_t first, uint64_t last)
{
    struct api *api = s->api;
    struct api_tail *t = api->tail;
    bool gap = s->told_after && s->at > 0 && (s->at > last || s->at + 1 < first);

    if (!t->known) {
        t->known = true;
        t->base = t->last = last;
    }
    if (!s->told_after || s->at > last)
        s->at = last;
    s->id = s->at;
    s->begun = true;
    s->next = api->streams;
    s->at_list = &api->streams;
    if (s->next)
        s->next->at_list = &s->next;
    api->streams = s;
    live_begin(&s->live, api, api_who(s->req), finish, s);
    s->live.endless = true;
    http_on_room(s->req, pump, s);
    if (s->sse) {
        http_answer_events(s->req);
    } else {
        http_answer_ndjson(s->req, 200);
        ev_timer_set(api->set.ev, &s->heartbeat, ev_now(api->set.ev) + HEARTBEAT_NS, on_heartbeat, s);
    }
    say_number(s, "ready", "after", s->at);
    if (gap)
        say_number(s, "gap", "next", min_u64(first, last + 1));
    pump(s);
}

static void on_range(void *arg, const struct err *err, uint64_t first, uint64_t last)
{
    struct stream *s = arg;

    s->call = NULL;
    if (err) {
        http_on_gone(s->req, NULL, NULL);
        http_answer_err(s->req, err);
        stream_free(s);
        return;
    }
    begin(s, first, last);
}

static void on_gone(void *arg)
{
    struct stream *s = arg;
    struct err err;

    err_set(&err, ERR_CLIENT_GONE, "the client went away");
    if (s->begun)
        http_stream_end(s->req);
    else
        http_answer_err(s->req, &err);
    stream_free(s);
}

/* --- a page --- */

static void on_rows(void *arg, const struct err *err, const struct store_event *rows, size_t n)
{
    struct stream *s = arg;
    struct buf out = { 0 };
    struct jsonw w;
    char cursor[24];

    s->call = NULL;
    if (!api_list_begin(s->req, err, &w, &out, "events")) {
        stream_free(s);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (!wants(s, &rows[i]))
            continue;
        jsonw_object(&w);
        whole_event(&w, &rows[i]);
        jsonw_end_object(&w);
    }
    if (n == s->asked)
        snprintf(cursor, sizeof(cursor), "%" PRIu64, rows[n - 1].seq);
    api_list_end(s->req, &w, n == s->asked ? cursor : NULL);
    stream_free(s);
}

/* --- what was asked --- */

static int read_kinds(const char *text, char kinds[][KIND_MAX + 1], size_t *ret_n, struct err *err)
{
    size_t n = 0;

    while (text) {
        size_t len = strcspn(text, ",");

        if (len == 0 || len > KIND_MAX || strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_") < len)
            return err_set(err, ERR_INVALID, "kind: names like sandbox_ended, separated by commas");
        if (n == KINDS_MAX)
            return err_set(err, ERR_INVALID, "kind: at most %u names", KINDS_MAX);
        memcpy(kinds[n], text, len);
        kinds[n++][len] = '\0';
        text = text[len] ? text + len + 1 : NULL;
    }
    *ret_n = n;
    return 0;
}

static int read_after(struct stream *s, struct err *err)
{
    const char *header = s->sse ? http_header(s->req, "Last-Event-ID") : NULL, *query = http_query(s->req, "after");
    const char *text = header && *header ? header : query; /* a browser that comes back sends both, and the old query */

    if (!text)
        return 0;
    s->told_after = true;
    if (str_to_u64(text, INT64_MAX, &s->at))
        return 0;
    return err_set(err, ERR_INVALID, "%s: the number of an event, as an event told it",
                   text == query ? "after" : "Last-Event-ID");
}

static int read_request(struct stream *s, bool page, struct err *err)
{
    static const char *const names[] = { "after", "sandbox", "kind", NULL };
    struct store_list q = { 0 };
    const char *sandbox = http_query(s->req, "sandbox");

    if (api_page(s->req, names, &q, err) < 0)
        return -1;
    s->asked = q.limit;
    if (!page && (q.cursor || http_query(s->req, "limit")))
        return err_set(err, ERR_INVALID, "limit and cursor are for pages; a stream begins with after");
    if (q.cursor && !str_to_u64(q.cursor, INT64_MAX, &s->at))
        return err_set(err, ERR_INVALID, "cursor: it is not one of this list");
    if (sandbox && (!id_valid(sandbox, "sb") || !str_copy(s->sandbox, sizeof(s->sandbox), sandbox)))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    str_copy(s->owner, sizeof(s->owner), q.owner);
    if (read_kinds(http_query(s->req, "kind"), s->kinds, &s->nkinds, err) < 0)
        return -1;
    return q.cursor ? 0 : read_after(s, err);
}

static void start(struct stream *s)
{
    struct store *st = s->api->set.store;

    if (follow_mode(s->req) == FOLLOW_ANSWER) {
        s->call = store_event_list(st, s->owner, s->sandbox[0] ? s->sandbox : NULL, s->at, (uint32_t)s->asked, on_rows,
                                   s);
        return;
    }
    if (http_is_gone(s->req)) {
        on_gone(s);
        return;
    }
    http_on_gone(s->req, on_gone, s);
    s->call = store_event_range(st, on_range, s);
}

/* A stranger's is not there. */
static void on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    struct stream *s = arg;

    s->call = NULL;
    if (!err) {
        start(s);
        return;
    }
    http_answer_err(s->req, err);
    stream_free(s);
}

static void events(struct http_req *req, void *ctx)
{
    struct stream *s = mem_new(struct stream);
    struct err err = { 0 };

    s->req = req;
    s->api = ctx;
    s->sse = follow_mode(req) == FOLLOW_EVENTS;
    if (read_request(s, follow_mode(req) == FOLLOW_ANSWER, &err) < 0) {
        http_answer_err(req, &err);
        stream_free(s);
    } else if (s->sandbox[0]) {
        s->call = store_sandbox_get(s->api->set.store, s->owner, s->sandbox, on_sandbox, s);
    } else {
        start(s);
    }
}

const struct http_route event_routes[] = {
    { "GET", "/v1/events", events, HTTP_BODY_NONE, .data = &api_read },
    { 0 },
};
