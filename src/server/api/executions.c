/* /v1/sandboxes/{sandboxId}/executions */
#include "server/api/api_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "service/stored_output.h"
#include "service/context.h"

/* --- create --- */

struct execution_creation {
    struct http_req *req;
    struct api *api;
    const char *sandbox, *context; /* valid as long as the request; context NULL: outside of contexts */
    struct execution_request launch;
    struct context_execution_spec call; /* in a context; borrows from launch.body */
    bool background;
    enum receipt_detail receipt;
    enum follow_mode mode;
};

static void execution_creation_free(void *arg)
{
    struct execution_creation *c = arg;

    execution_request_done(&c->launch);
    free(c);
}

static void execution_creation_answer_background(struct execution_creation *c, const struct store_execution *row)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/executions/%s", row->sandbox, row->id);

    http_set_header(c->req, "Location", path);
    follow_answer_row(c->req, c->api, 202, row, (struct execution_view){ .receipt = c->receipt });
}

static void execution_creation_on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution_creation *c = arg;

    if (err) {
        idempotency_release_key(c->req, c->api->settings.gateway, err);
        http_answer_err(c->req, err);
    } else if (c->background) {
        execution_creation_answer_background(c, row);
    } else {
        follow_execution_row(c->req, c->api,
                             &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox, .receipt = c->receipt },
                             row);
    }
    execution_creation_free(c);
}

static void execution_creation_on_known(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution_creation *c = arg;

    if (!http_answer_if_err(c->req, err))
        execution_creation_answer_background(c, row);
    execution_creation_free(c);
}

static void execution_creation_on_claimed(struct http_req *req, bool fresh, const char *id, void *arg)
{
    struct execution_creation *c = arg;
    struct api *api = c->api;

    if (fresh && c->context) {
        c->call.created_by = gateway_actor_id(req);
        c->call.request_id = http_id(req);
        manager_context_execute(api->settings.manager, gateway_visible_owner(req), c->sandbox, c->context, id, &c->call,
                                execution_creation_on_accepted, c);
    } else if (fresh) {
        c->launch.spec.created_by = gateway_actor_id(req);
        c->launch.spec.request_id = http_id(req);
        manager_execute(api->settings.manager, gateway_visible_owner(req), c->sandbox, id, &c->launch.spec,
                        execution_creation_on_accepted, c);
    } else if (c->background) {
        store_execution_get(api->settings.store, gateway_visible_owner(req), id, execution_creation_on_known, c);
    } else {
        follow_execution(
            req, api,
            &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox, .execution = id, .receipt = c->receipt });
        execution_creation_free(c);
    }
}

static int execution_creation_read(struct execution_creation *c, struct err *err)
{
    bool stream = false;

    c->context = http_param(c->req, "contextId");
    if (api_context_read_ids(c->req, &c->sandbox, c->context ? &c->context : NULL, err) < 0 ||
        api_read_body(c->req, &c->launch.body, err) < 0 ||
        (c->context ? api_context_read_call(c->launch.body, c->api, &c->call, err)
                    : execution_request_read(&c->launch, c->api, err)) < 0 ||
        api_read_receipt_detail(c->launch.body, &c->receipt, err) < 0 ||
        json_input_bool(c->launch.body, "", "stream", &stream, err) < 0)
        return -1;
    if (stream && c->mode == FOLLOW_ANSWER)
        c->mode = FOLLOW_NDJSON;
    c->background = c->context ? c->call.background : c->launch.spec.background;
    return 0;
}

static void execution_creation_record(const struct execution_creation *c)
{
    const struct execution_spec *s = &c->launch.spec;
    const char *code = c->context ? c->call.code : s->code;

    if (code)
        audit_trail_add_content(c->req, "code", code, strlen(code));
    audit_trail_add_strings(c->req, "command", s->argv);
    audit_trail_add_strings(c->req, "env", s->env);
    if (s->input)
        audit_trail_add_content(c->req, "stdin", s->input, s->input_len);
}

void api_execution_create(struct http_req *req, void *ctx)
{
    struct execution_creation *c = mem_new(struct execution_creation);
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    c->mode = follow_mode_of_request(req);
    if (execution_creation_read(c, &err) < 0) {
        http_answer_err(req, &err);
        execution_creation_free(c);
    } else {
        execution_creation_record(c);
        /* With an idempotency key, or with input still to come, the execution must have a row while
         * it runs. */
        c->launch.spec.report_only_end = c->mode == FOLLOW_ANSWER && !c->launch.spec.background &&
                                         !c->launch.spec.input_open && !http_header(req, "Idempotency-Key");
        idempotency_begin(req, c->api->settings.gateway, "ex", execution_creation_on_claimed, c,
                          execution_creation_free);
    }
}

/* --- list --- */

/* An execution that failed has ended, too. */
static int api_execution_read_filters(const struct http_req *req, struct store_list *q, struct err *err)
{
    static const char *const states[] = { "starting", "running", "ended", NULL };
    const char *outcomes[OUTCOME_COUNT + 1] = { NULL };

    for (unsigned i = 0; i < OUTCOME_COUNT; i++)
        outcomes[i] = outcome_name((enum outcome)i);
    if (api_read_set_query(req, "state", states, &q->states, err) < 0 ||
        api_read_set_query(req, "outcome", outcomes, &q->outcomes, err) < 0)
        return -1;
    if (q->states & STORE_BIT(STORE_EXECUTION_ENDED))
        q->states |= STORE_BIT(STORE_EXECUTION_FAILED);
    return 0;
}

static void api_execution_on_rows(void *arg, const struct err *err, const struct store_execution *rows, size_t n,
                                  const char *next)
{
    struct http_req *req = arg;
    const struct api *api = http_route_ctx(req);
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_list_begin(req, err, &w, &out))
        return;
    for (size_t i = 0; i < n; i++)
        stored_output_write_execution(api->settings.manager, &rows[i],
                                      (struct execution_view){ .receipt = RECEIPT_NONE }, &w);
    api_list_end(req, &w, next);
}

struct execution_list_query {
    struct http_req *req;
    struct api *api;
    struct store_list q;
};

static void api_execution_on_list_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct execution_list_query *l = arg;

    if (http_answer_if_err(l->req, err))
        return;
    l->q.sandbox = row->id;
    store_execution_list(l->api->settings.store, &l->q, api_execution_on_rows, l->req);
}

static void api_execution_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct execution_list_query *l = api_request_new(req, struct execution_list_query);
    struct err err = { 0 };
    const char *id;

    l->req = req;
    l->api = api;
    if (api_read_page(req, (const char *const[]){ "state", "outcome", NULL }, &l->q, &err) < 0 ||
        api_execution_read_filters(req, &l->q, &err) < 0 || api_read_sandbox_id(req, &id, &err) < 0)
        http_answer_err(req, &err);
    else
        store_sandbox_get(api->settings.store, gateway_visible_owner(req), id, api_execution_on_list_sandbox, l);
}

/* A credential of one sandbox sees only that sandbox. */
static int api_execution_read_sandbox_filter(const struct http_req *req, struct store_list *q, struct err *err)
{
    const char *own = gateway_principal(req)->sandbox;

    q->sandbox = http_query(req, "sandboxId");
    if (q->sandbox && !id_valid(q->sandbox, "sb"))
        return err_set(err, ERR_INVALID, "sandboxId: must be the id of a sandbox; GET /v1/sandboxes lists them");
    if (!own[0])
        return 0;
    if (q->sandbox && !str_eq(q->sandbox, own))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    q->sandbox = own;
    return 0;
}

static void api_execution_list_all(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "state", "outcome", "sandboxId", NULL };
    struct api *api = ctx;
    struct store_list q = { 0 };
    struct err err = { 0 };

    if (api_read_page(req, names, &q, &err) < 0 || api_execution_read_filters(req, &q, &err) < 0 ||
        api_execution_read_sandbox_filter(req, &q, &err) < 0)
        http_answer_err(req, &err);
    else
        store_execution_list(api->settings.store, &q, api_execution_on_rows, req);
}

/* --- one execution --- */

static bool api_execution_ids_or_refuse(struct http_req *req, const char *const *query, struct follow_spec *ret)
{
    struct err err = { 0 };

    if (http_query_require_known(req, query, &err) == 0 && api_read_sandbox_id(req, &ret->sandbox, &err) == 0 &&
        api_read_execution_id(req, &ret->execution, &err) == 0)
        return true;
    http_answer_err(req, &err);
    return false;
}

static void api_execution_answer_receipt(struct http_req *req, const struct store_execution *row)
{
    if (row->receipt_json)
        http_answer(req, 200, "application/json", row->receipt_json, strlen(row->receipt_json));
    else if (row->ended_ms)
        http_refuse(req, ERR_MISSING, "execution %s was not run to its end, so it has no receipt", row->id);
    else
        http_refuse(req, ERR_EXISTS, "execution %s has not ended yet; its receipt is available after the end", row->id);
}

/* True: the row is an execution of the sandbox in the path. False: the request was refused. */
static bool api_execution_row_or_refuse(struct http_req *req, const struct err *err, const struct store_execution *row)
{
    if (http_answer_if_err(req, err))
        return false;
    if (str_eq(row->sandbox, http_param(req, "sandboxId")))
        return true;
    http_refuse(req, ERR_MISSING, "there is no such execution in this sandbox");
    return false;
}

static int api_execution_query_receipt(const struct http_req *req, enum receipt_detail *ret, struct err *err)
{
    const char *text = http_query(req, "receipt");

    for (unsigned i = 0; text && receipt_detail_names[i]; i++)
        if (str_eq(text, receipt_detail_names[i])) {
            *ret = (enum receipt_detail)i;
            return 0;
        }
    return text ? err_set(err, ERR_INVALID, "receipt: must be none, summary or full") : 0;
}

static void api_execution_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution_view view = { .output = EXECUTION_OUTPUT_EMBEDDED };

    (void)api_execution_query_receipt(arg, &view.receipt, NULL); /* checked before */
    if (api_execution_row_or_refuse(arg, err, row))
        follow_answer_row(arg, http_route_ctx(arg), 200, row, view);
}

static void api_execution_on_receipt_row(void *arg, const struct err *err, const struct store_execution *row)
{
    if (api_execution_row_or_refuse(arg, err, row))
        api_execution_answer_receipt(arg, row);
}

static void api_execution_get(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "receipt", NULL };
    struct api *api = ctx;
    struct follow_spec spec = { 0 };
    struct err err = { 0 };

    if (!api_execution_ids_or_refuse(req, names, &spec))
        return;
    if (api_execution_query_receipt(req, &spec.receipt, &err) < 0)
        http_answer_err(req, &err);
    else
        store_execution_get(api->settings.store, gateway_visible_owner(req), spec.execution, api_execution_on_row, req);
}

static void api_execution_receipt(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct follow_spec spec = { 0 };

    if (api_execution_ids_or_refuse(req, (const char *const[]){ NULL }, &spec))
        store_execution_get(api->settings.store, gateway_visible_owner(req), spec.execution,
                            api_execution_on_receipt_row, req);
}

static void api_execution_cancel(struct http_req *req, void *ctx)
{
    struct follow_spec spec = { .mode = FOLLOW_ANSWER, .cancel_first = true };

    if (api_execution_ids_or_refuse(req, (const char *const[]){ NULL }, &spec))
        follow_execution(req, ctx, &spec);
}

static void api_execution_output(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "stream", "offset", "follow", NULL };
    struct follow_spec spec = { .mode = FOLLOW_RAW, .channel = 1 };
    const char *stream = http_query(req, "stream");
    struct err err = { 0 };
    uint64_t offset;
    bool live;

    if (!api_execution_ids_or_refuse(req, names, &spec))
        return;
    if (stream && !str_eq(stream, "stdout") && !str_eq(stream, "stderr")) {
        http_refuse(req, ERR_INVALID, "stream: must be stdout or stderr");
    } else if (http_query_u64(req, "offset", 0, INT64_MAX, 0, &offset, &err) < 0 ||
               http_query_bool(req, "follow", false, &live, &err) < 0) {
        http_answer_err(req, &err);
    } else {
        spec.channel = stream && str_eq(stream, "stderr") ? 2 : 1;
        spec.offset[spec.channel - 1] = offset;
        spec.existing_only = !live;
        follow_execution(req, ctx, &spec);
    }
}

static void api_execution_stream(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "stdoutOffset", "stderrOffset", "eventsOffset", "receipt", NULL };
    struct follow_spec spec = { .mode = follow_mode_of_request(req) };
    struct err err = { 0 };

    if (!api_execution_ids_or_refuse(req, names, &spec))
        return;
    if (spec.mode == FOLLOW_ANSWER)
        spec.mode = FOLLOW_NDJSON;
    if (http_query_u64(req, "stdoutOffset", 0, INT64_MAX, 0, &spec.offset[0], &err) < 0 ||
        http_query_u64(req, "stderrOffset", 0, INT64_MAX, 0, &spec.offset[1], &err) < 0 ||
        http_query_u64(req, "eventsOffset", 0, INT64_MAX, 0, &spec.offset[2], &err) < 0 ||
        api_execution_query_receipt(req, &spec.receipt, &err) < 0 ||
        follow_read_offsets(http_header(req, "Last-Event-ID"), spec.offset, &err) < 0)
        http_answer_err(req, &err);
    else
        follow_execution(req, ctx, &spec);
}

#define ALL "/v1/sandboxes/{sandboxId}/executions"
#define ONE ALL "/{executionId}"

const struct http_route execution_routes[] = {
    { "POST", ALL, api_execution_create, HTTP_BODY_BUFFERED, JSON_INPUT_SIZE_MAX, "application/json",
      &permission_execute },
    { "GET", "/v1/executions", api_execution_list_all, HTTP_BODY_NONE, .data = &permission_executions_list },
    { "GET", ALL, api_execution_list, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "GET", ONE, api_execution_get, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "POST", ONE "/cancel", api_execution_cancel, HTTP_BODY_NONE, .data = &permission_executions },
    { "POST", ONE "/stdin", stdin_upload_start, HTTP_BODY_STREAMED, .data = &permission_executions },
    { "POST", ONE "/resize", terminal_resize, HTTP_BODY_BUFFERED, 4096, "application/json", &permission_executions },
    { "POST", ONE "/signal", terminal_signal, HTTP_BODY_BUFFERED, 4096, "application/json", &permission_executions },
    { "GET", ONE "/output", api_execution_output, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "GET", ONE "/stream", api_execution_stream, HTTP_BODY_NONE, .data = &permission_executions_read },
    { "GET", ONE "/receipt", api_execution_receipt, HTTP_BODY_NONE, .data = &permission_executions_read },
    { 0 },
};
