/* /v1/sandboxes/{sandboxId}/executions */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"

/* --- create --- */

struct creation {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* lives as long as the request */
    struct launch launch;
    enum follow_mode mode;
};

static void creation_free(void *arg)
{
    struct creation *c = arg;

    launch_done(&c->launch);
    free(c);
}

static void answer_background(struct creation *c, const struct store_execution *row)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/executions/%s", row->sandbox, row->id);

    http_set_header(c->req, "Location", path);
    follow_answer(c->req, c->api, 202, row, false);
}

static void on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct creation *c = arg;

    if (err) {
        idem_undo(c->req, c->api, err);
        api_refuse(c->req, c->api, err);
    } else if (c->launch.spec.background) {
        answer_background(c, row);
    } else {
        follow_row(c->req, c->api, &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox }, row);
    }
    creation_free(c);
}

static void on_known(void *arg, const struct err *err, const struct store_execution *row)
{
    struct creation *c = arg;

    if (err)
        http_answer_err(c->req, err);
    else
        answer_background(c, row);
    creation_free(c);
}

static void on_claimed(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg)
{
    struct creation *c = arg;

    if (fresh) {
        c->launch.spec.created_by = api_by(req);
        c->launch.spec.request = http_id(req);
        manager_execute(api->set.manager, api_sees(req), c->sandbox, id, &c->launch.spec, on_accepted, c);
    } else if (c->launch.spec.background) {
        store_execution_get(api->set.store, api_sees(req), id, on_known, c);
    } else {
        follow(req, api, &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox, .execution = id });
        creation_free(c);
    }
}

static int read_request(struct creation *c, struct err *err)
{
    if (api_no_query(c->req, err) < 0 || api_sandbox_id(c->req, &c->sandbox, err) < 0 ||
        api_body(c->req, &c->launch.body, err) < 0)
        return -1;
    return launch_read(&c->launch, c->api, err);
}

static void tell(const struct creation *c)
{
    const struct execution_spec *s = &c->launch.spec;

    if (s->code)
        api_audit_content(c->req, "code", s->code, strlen(s->code));
    api_audit_words(c->req, "command", s->argv);
    api_audit_words(c->req, "env", s->env);
    if (s->input)
        api_audit_content(c->req, "stdin", s->input, s->input_len);
}

static void create(struct http_req *req, void *ctx)
{
    struct creation *c = mem_new(struct creation);
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    c->mode = follow_mode(req);
    if (read_request(c, &err) < 0) {
        http_answer_err(req, &err);
        creation_free(c);
    } else {
        tell(c);
        /* With a key, or with input still to come, it has to be found while it runs. */
        c->launch.spec.at_end = c->mode == FOLLOW_ANSWER && !c->launch.spec.background && !c->launch.spec.input_open &&
                                !http_header(req, "Idempotency-Key");
        idem_begin(req, ctx, "ex", on_claimed, c, creation_free);
    }
}

/* --- list --- */

static void on_rows(void *arg, const struct err *err, const struct store_execution *rows, size_t n, const char *next)
{
    struct http_req *req = arg;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out, "executions"))
        return;
    for (size_t i = 0; i < n; i++) {
        api_execution_json(&rows[i], &w);
        jsonw_end_object(&w);
    }
    api_list_end(req, &w, next);
}

struct listing {
    struct http_req *req;
    struct api *api;
    struct store_list q;
};

static void on_list_of(void *arg, const struct err *err, const struct store_sandbox *row)
{
    auto_free struct listing *l = arg;

    if (err) {
        http_answer_err(l->req, err);
        return;
    }
    l->q.sandbox = row->id;
    store_execution_list(l->api->set.store, &l->q, on_rows, l->req);
}

static void list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct listing *l = mem_new(struct listing);
    struct err err = { 0 };
    const char *id;

    l->req = req;
    l->api = api;
    if (api_page(req, (const char *const[]){ "state", NULL }, &l->q, &err) < 0 ||
        api_query_state(req, api_execution_states, &l->q.states, &err) < 0 || api_sandbox_id(req, &id, &err) < 0) {
        http_answer_err(req, &err);
        free(l);
        return;
    }
    store_sandbox_get(api->set.store, api_sees(req), id, on_list_of, l);
}

/* --- one --- */

static bool ids_or_refuse(struct http_req *req, const char *const *query, struct follow_spec *ret)
{
    struct err err = { 0 };

    if (http_query_only(req, query, &err) == 0 && api_sandbox_id(req, &ret->sandbox, &err) == 0 &&
        api_execution_id(req, &ret->execution, &err) == 0)
        return true;
    http_answer_err(req, &err);
    return false;
}

struct single {
    struct http_req *req;
    struct api *api;
    const char *sandbox;
    bool receipt;
};

static void answer_receipt(struct http_req *req, const struct store_execution *row)
{
    struct err err;

    if (row->receipt_json) {
        http_answer(req, 200, "application/json", row->receipt_json, strlen(row->receipt_json));
        return;
    }
    if (row->ended_ms)
        err_set(&err, ERR_MISSING, "execution %s was not run to its end, so it has no receipt", row->id);
    else
        err_set(&err, ERR_EXISTS, "execution %s has not ended; it gets a receipt when it does", row->id);
    http_answer_err(req, &err);
}

static void on_single(void *arg, const struct err *err, const struct store_execution *row)
{
    auto_free struct single *s = arg;
    struct err why;

    if (!err && !str_eq(row->sandbox, s->sandbox))
        err = (err_set(&why, ERR_MISSING, "there is no such execution in this sandbox"), &why);
    if (err)
        http_answer_err(s->req, err);
    else if (s->receipt)
        answer_receipt(s->req, row);
    else
        follow_answer(s->req, s->api, 200, row, true);
}

static void read_one(struct http_req *req, struct api *api, bool receipt)
{
    struct follow_spec spec = { 0 };

    if (!ids_or_refuse(req, (const char *const[]){ NULL }, &spec))
        return;
    struct single *s = mem_new(struct single);
    *s = (struct single){ req, api, spec.sandbox, receipt };
    store_execution_get(api->set.store, api_sees(req), spec.execution, on_single, s);
}

static void get(struct http_req *req, void *ctx)
{
    read_one(req, ctx, false);
}

static void receipt(struct http_req *req, void *ctx)
{
    read_one(req, ctx, true);
}

static void cancel(struct http_req *req, void *ctx)
{
    struct follow_spec spec = { .mode = FOLLOW_ANSWER, .kill = true };

    if (ids_or_refuse(req, (const char *const[]){ NULL }, &spec))
        follow(req, ctx, &spec);
}

static void output(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "stream", "offset", "follow", NULL };
    struct follow_spec spec = { .mode = FOLLOW_RAW, .channel = 1 };
    const char *stream = http_query(req, "stream");
    struct err err = { 0 };
    uint64_t offset;
    bool live;

    if (!ids_or_refuse(req, names, &spec))
        return;
    if (stream && !str_eq(stream, "stdout") && !str_eq(stream, "stderr")) {
        err_set(&err, ERR_INVALID, "stream: it is stdout or stderr");
        http_answer_err(req, &err);
    } else if (http_query_u64(req, "offset", 0, INT64_MAX, 0, &offset, &err) < 0 ||
               http_query_bool(req, "follow", false, &live, &err) < 0) {
        http_answer_err(req, &err);
    } else {
        spec.channel = stream && str_eq(stream, "stderr") ? 2 : 1;
        spec.offset[spec.channel - 1] = offset;
        spec.once = !live;
        follow(req, ctx, &spec);
    }
}

static void stream(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "stdoutOffset", "stderrOffset", "eventsOffset", NULL };
    struct follow_spec spec = { .mode = follow_mode(req) };
    struct err err = { 0 };

    if (!ids_or_refuse(req, names, &spec))
        return;
    if (spec.mode == FOLLOW_ANSWER)
        spec.mode = FOLLOW_NDJSON;
    if (http_query_u64(req, "stdoutOffset", 0, INT64_MAX, 0, &spec.offset[0], &err) < 0 ||
        http_query_u64(req, "stderrOffset", 0, INT64_MAX, 0, &spec.offset[1], &err) < 0 ||
        http_query_u64(req, "eventsOffset", 0, INT64_MAX, 0, &spec.offset[2], &err) < 0 ||
        follow_offsets(http_header(req, "Last-Event-ID"), spec.offset, &err) < 0)
        http_answer_err(req, &err);
    else
        follow(req, ctx, &spec);
}

#define ALL "/v1/sandboxes/{sandboxId}/executions"
#define ONE ALL "/{executionId}"

const struct http_route execution_routes[] = {
    { "POST", ALL, create, HTTP_BODY_BUFFERED, BODY_SIZE_MAX, "application/json", &api_run },
    { "GET", ALL, list, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE, get, HTTP_BODY_NONE, .data = &api_runs_read },
    { "POST", ONE "/cancel", cancel, HTTP_BODY_NONE, .data = &api_runs },
    { "POST", ONE "/stdin", input_write, HTTP_BODY_STREAMED, .data = &api_runs },
    { "POST", ONE "/resize", terminal_resize, HTTP_BODY_BUFFERED, 4096, "application/json", &api_runs },
    { "POST", ONE "/signal", terminal_signal, HTTP_BODY_BUFFERED, 4096, "application/json", &api_runs },
    { "GET", ONE "/output", output, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE "/stream", stream, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE "/receipt", receipt, HTTP_BODY_NONE, .data = &api_runs_read },
    { 0 },
};
