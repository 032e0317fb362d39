/* /v1/sandboxes */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/custom.h"
#include "sandbox/shelf.h"

#include <stdio.h>

static void answer_row(struct http_req *req, int status, const struct store_sandbox *row)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_sandbox_json(row, &w);
    http_answer_json(req, status, &out);
}

static void on_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    if (err)
        http_answer_err(arg, err);
    else
        answer_row(arg, 200, row);
}

/* --- create --- */

struct creation {
    struct http_req *req;
    struct api *api;
    json_t *body;
    char template[STORE_NAME_MAX + 1];
    char id[ID_SIZE]; /* that was chosen */
    struct spec spec;
    char *details; /* of an error in its policy */
};

static void creation_free(void *arg)
{
    struct creation *c = arg;

    json_decref(c->body);
    spec_done(&c->spec);
    free(c->details);
    free(c);
}

static void on_created(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct creation *c = arg;

    if (err) {
        idem_undo(c->req, c->api, err);
        api_refuse(c->req, c->api, err);
    } else {
        auto_free char *path = str_printf("/v1/sandboxes/%s", row->id);

        http_set_header(c->req, "Location", path);
        answer_row(c->req, 201, row);
    }
    creation_free(c);
}

static void on_known(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct creation *c = arg;

    if (err)
        http_answer_err(c->req, err);
    else
        answer_row(c->req, 201, row);
    creation_free(c);
}

static void on_named(void *arg, const char *id)
{
    struct creation *c = arg;

    idem_named(c->req, c->api, c->id, id);
}

static void on_claimed(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg)
{
    struct creation *c = arg;

    str_copy(c->spec.created_by, sizeof(c->spec.created_by), api_by(req));
    str_copy(c->id, sizeof(c->id), id);
    if (fresh)
        manager_create(api->set.manager, api_owner(req), id, &c->spec, c->template[0] ? c->template : NULL, on_named,
                       on_created, c);
    else
        store_sandbox_get(api->set.store, api_sees(req), id, on_known, c);
}

static void refuse(struct creation *c, const struct err *err)
{
    http_answer_err_with(c->req, err, c->details);
    creation_free(c);
}

static void create_from_request(struct creation *c)
{
    struct err err = { 0 };

    if (spec_read(&c->spec, c->body, SPEC_OF_SANDBOX, &c->details, &err) < 0 ||
        custom_floor(&c->spec, c->api->set.floor, &err) < 0 || spec_finish(&c->spec, &err) < 0)
        refuse(c, &err);
    else
        idem_begin(c->req, c->api, "sb", on_claimed, c, creation_free);
}

static int read_template(struct creation *c, const struct store_template *row, struct err *err)
{
    auto_json *spec = NULL;

    if (body_parse(row->spec_json, strlen(row->spec_json), &spec, err) < 0 ||
        spec_read(&c->spec, spec, SPEC_OF_TEMPLATE, NULL, err) < 0)
        return err_wrap(err, "template %s", row->name);
    return 0;
}

static void on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct creation *c = arg;
    struct err why = { 0 };

    if (err && err->id == ERR_MISSING) {
        template_missing(&why, c->template);
        refuse(c, &why);
    } else if (err) {
        refuse(c, err);
    } else if (read_template(c, row, &why) < 0) {
        refuse(c, &why);
    } else {
        create_from_request(c);
    }
}

static void create(struct http_req *req, void *ctx)
{
    struct creation *c = mem_new(struct creation);
    const char *template = NULL;
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    spec_init(&c->spec);
    if (api_no_query(req, &err) < 0 || api_body(req, &c->body, &err) < 0 ||
        body_text(c->body, "", "template", 1, STORE_NAME_MAX, &template, &err) < 0) {
        refuse(c, &err);
    } else if (template) {
        str_copy(c->template, sizeof(c->template), template);
        shelf_get(c->api->shelf, template, ev_now(c->api->set.ev), on_template, c);
    } else {
        create_from_request(c);
    }
}

/* --- list --- */

static void on_rows(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n, const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out, "sandboxes"))
        return;
    for (size_t i = 0; i < n; i++)
        api_sandbox_json(&rows[i], &w);
    api_list_end(req, &w, next);
}

static void list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    const char *meta = http_query(req, "metadata"), *pairs[3] = { NULL };
    auto_free char *key = NULL;
    struct err err = { 0 };

    if (api_page(req, (const char *const[]){ "state", "metadata", NULL }, &q, &err) < 0 ||
        api_query_state(req, api_sandbox_states, &q.states, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    if (meta) {
        size_t n = strcspn(meta, "=");

        if (n == 0 || meta[n] != '=') {
            err_set(&err, ERR_INVALID, "metadata: write key=value");
            http_answer_err(req, &err);
            return;
        }
        key = str_dup_n(meta, n);
        pairs[0] = key;
        pairs[1] = meta + n + 1;
        q.meta = pairs;
    }
    store_sandbox_list(api->set.store, &q, on_rows, req);
}

/* --- one --- */

static const char *id_or_refuse(struct http_req *req)
{
    struct err err = { 0 };
    const char *id;

    if (api_no_query(req, &err) == 0 && api_sandbox_id(req, &id, &err) == 0)
        return id;
    http_answer_err(req, &err);
    return NULL;
}

static void get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = id_or_refuse(req);

    if (id)
        store_sandbox_get(api->set.store, api_sees(req), id, on_row, req);
}

static void delete_(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = id_or_refuse(req);

    if (id)
        manager_delete(api->set.manager, api_sees(req), id, on_row, req);
}

static void pause_(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = id_or_refuse(req);

    if (id)
        manager_pause(api->set.manager, api_sees(req), id, on_row, req);
}

static void resume(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = id_or_refuse(req);

    if (id)
        manager_resume(api->set.manager, api_sees(req), id, on_row, req);
}

static void extend(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "lifetimeMs", NULL };
    const struct limit_info *info = limit_info(LIMIT_LIFETIME);
    struct api *api = ctx;
    const char *id = id_or_refuse(req);
    auto_json *body = NULL;
    uint64_t ms = 0;
    struct err err = { 0 };

    if (!id)
        return;
    if (api_body(req, &body, &err) < 0 || body_only(body, "", names, &err) < 0 ||
        body_u64(body, "", "lifetimeMs", info->min, info->max, &ms, NULL, &err) < 0) {
        http_answer_err(req, &err);
    } else if (ms == 0) {
        err_set(&err, ERR_INVALID, "lifetimeMs: say how much longer it lives");
        http_answer_err(req, &err);
    } else if (custom_floor_value(api->set.floor, LIMIT_LIFETIME, "lifetimeMs", ms, &err) < 0) {
        http_answer_err(req, &err);
    } else {
        manager_extend(api->set.manager, api_sees(req), id, ms, on_row, req);
    }
}

/* --- usage --- */

static void on_usage(void *arg, const struct box_usage *u, const struct err *err)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (err) {
        http_answer_err(req, err);
        return;
    }
    const struct {
        const char *name;
        uint64_t v, unit;
    } figures[] = {
        { "cpuUs", u->cpu_ns, NS_PER_US }, { "throttledUs", u->throttled_ns, NS_PER_US },
        { "memoryBytes", u->memory, 1 },   { "memoryPeakBytes", u->memory_peak, 1 },
        { "oomKills", u->oom_kills, 1 },   { "pids", u->pids, 1 },
        { "pidsPeak", u->pids_peak, 1 },   { "pidsRefused", u->pids_refused, 1 },
        { "ioReadBytes", u->io_read, 1 },  { "ioWrittenBytes", u->io_write, 1 },
    };
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "sandboxId", http_param(req, "sandboxId"));
    api_time(&w, "at", clock_real_ns() / NS_PER_MS);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        if (figures[i].v != BOX_UNKNOWN)
            jsonw_ku64(&w, figures[i].name, figures[i].v / figures[i].unit);
    jsonw_key(&w, "absent");
    jsonw_object(&w);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        if (figures[i].v == BOX_UNKNOWN)
            jsonw_kstr(&w, figures[i].name, "this host's cgroups do not count it");
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void usage(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const char *id = id_or_refuse(req);

    if (id)
        manager_usage(api->set.manager, api_sees(req), id, on_usage, req);
}

/* --- events --- */

struct event_page {
    struct http_req *req;
    struct api *api;
    uint64_t after, limit;
};

static void on_events(void *arg, const struct err *err, const struct store_event *rows, size_t n)
{
    auto_free struct event_page *p = arg;
    struct buf out = { 0 };
    struct jsonw w;
    char cursor[24];

    if (err) {
        http_answer_err(p->req, err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "events");
    jsonw_array(&w);
    for (size_t i = 0; i < n; i++) {
        jsonw_object(&w);
        api_event_json(&w, &rows[i]);
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    if (n == p->limit) {
        snprintf(cursor, sizeof(cursor), "%" PRIu64, rows[n - 1].seq);
        jsonw_kstr(&w, "nextCursor", cursor);
    }
    jsonw_end_object(&w);
    http_answer_json(p->req, 200, &out);
}

static void on_events_of(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct event_page *p = arg;

    if (err) {
        http_answer_err(p->req, err);
        free(p);
        return;
    }
    store_event_list(p->api->set.store, api_sees(p->req), row->id, p->after, (uint32_t)p->limit, on_events, p);
}

static void events(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };
    uint64_t after = 0;
    const char *id;

    if (api_page(req, NULL, &q, &err) < 0 || api_sandbox_id(req, &id, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    if (q.cursor && !str_to_u64(q.cursor, INT64_MAX, &after)) {
        err_set(&err, ERR_INVALID, "cursor: it is not one of this list");
        http_answer_err(req, &err);
        return;
    }
    struct event_page *p = mem_new(struct event_page);
    *p = (struct event_page){ req, api, after, q.limit };
    store_sandbox_get(api->set.store, api_sees(req), id, on_events_of, p); /* a stranger's is not there */
}

#define JSON_BODY HTTP_BODY_BUFFERED, 256 * KIB, "application/json"

const struct http_route sandbox_routes[] = {
    { "POST", "/v1/sandboxes", create, JSON_BODY, &api_create },
    { "GET", "/v1/sandboxes", list, HTTP_BODY_NONE, .data = &api_read },
    { "GET", "/v1/sandboxes/{sandboxId}", get, HTTP_BODY_NONE, .data = &api_read },
    { "DELETE", "/v1/sandboxes/{sandboxId}", delete_, HTTP_BODY_NONE, .data = &api_write },
    { "GET", "/v1/sandboxes/{sandboxId}/usage", usage, HTTP_BODY_NONE, .data = &api_read },
    { "POST", "/v1/sandboxes/{sandboxId}/extend", extend, JSON_BODY, &api_write },
    { "POST", "/v1/sandboxes/{sandboxId}/pause", pause_, HTTP_BODY_NONE, .data = &api_write },
    { "POST", "/v1/sandboxes/{sandboxId}/resume", resume, HTTP_BODY_NONE, .data = &api_write },
    { "GET", "/v1/sandboxes/{sandboxId}/events", events, HTTP_BODY_NONE, .data = &api_read },
    { 0 },
};
