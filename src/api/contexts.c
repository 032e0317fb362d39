/* /v1/sandboxes/{sandboxId}/contexts, and the answer to an execution of theirs that asks for a line. */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"
#include "sandbox/context.h"

#define CWD_MAX 4000

/* --- in JSON --- */

static void context_json(const struct context_info *c, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", c->id);
    jsonw_kstr(w, "sandboxId", c->sandbox);
    jsonw_kstr(w, "language", c->language);
    if (c->version[0])
        jsonw_kstr(w, "version", c->version);
    jsonw_kstr(w, "state", context_states[c->state]);
    jsonw_kstr(w, "cwd", c->cwd[0] ? c->cwd : "/workspace");
    if (c->created_by[0])
        jsonw_kstr(w, "createdBy", c->created_by);
    if (c->forked_from[0])
        jsonw_kstr(w, "forkedFrom", c->forked_from);
    api_time(w, "createdAt", c->created_ms);
    if (c->running[0])
        jsonw_kstr(w, "executionId", c->running);
    jsonw_ku64(w, "queued", c->queued);
    jsonw_ku64(w, "executions", c->executions);
    jsonw_ku64(w, "restarts", c->restarts);
    jsonw_ku64(w, "refusedEvents", c->refused);
    if (c->state == CONTEXT_DEAD) {
        jsonw_key(w, "reason");
        jsonw_object(w);
        jsonw_kstr(w, "code", err_info(c->why.id)->code);
        jsonw_kstr(w, "message", c->why.msg);
        jsonw_end_object(w);
    }
    if (c->outcome)
        jsonw_kstr(w, "outcome", c->outcome);
    jsonw_end_object(w);
}

static void answer(struct http_req *req, int status, const struct context_info *info)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    context_json(info, &w);
    http_answer_json(req, status, &out);
}

static void on_context(void *arg, const struct err *err, const struct context_info *info)
{
    if (err)
        http_answer_err(arg, err);
    else
        answer(arg, 200, info);
}

/* --- requests --- */

static int ids(struct http_req *req, const char **sandbox, const char **context, struct err *err)
{
    if (api_no_query(req, err) < 0 || api_sandbox_id(req, sandbox, err) < 0)
        return -1;
    if (!context)
        return 0;
    *context = http_param(req, "contextId");
    return id_valid(*context, "cx") ? 0 : err_set(err, ERR_MISSING, "there is no such context in this sandbox");
}

struct making { /* a context, anew or from another */
    struct http_req *req;
    struct api *api;
    const char *sandbox, *of; /* live as long as the request; of NULL: anew */
    json_t *body;
    char **env;
    struct context_spec spec;
};

static void making_free(void *arg)
{
    struct making *m = arg;

    json_decref(m->body);
    spec_env_free(m->env);
    free(m);
}

static void answer_made(struct http_req *req, const struct context_info *info)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/contexts/%s", info->sandbox, info->id);

    http_set_header(req, "Location", path);
    answer(req, 201, info);
}

static void on_made(void *arg, const struct err *err, const struct context_info *info)
{
    struct making *m = arg;

    if (err) {
        idem_undo(m->req, m->api, err);
        http_answer_err(m->req, err);
    } else {
        answer_made(m->req, info);
    }
    making_free(m);
}

/* One that was made by an earlier request with the same key. */
static void show_made(struct making *m, const char *id)
{
    struct context_info all[CONTEXTS_MAX];
    struct err err = { 0 };
    size_t n = 0, i = 0;

    if (manager_contexts(m->api->set.manager, api_sees(m->req), m->sandbox, all, &n, &err) == 0) {
        while (i < n && !str_eq(all[i].id, id))
            i++;
        if (i == n)
            err_set(&err, ERR_MISSING, "there is no such context in this sandbox");
    }
    if (err.id != ERR_NONE)
        http_answer_err(m->req, &err);
    else
        answer_made(m->req, &all[i]);
    making_free(m);
}

static void on_make(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg)
{
    struct making *m = arg;

    m->spec.created_by = api_by(req);
    if (!fresh)
        show_made(m, id);
    else if (m->of)
        manager_context_fork(api->set.manager, api_sees(req), m->sandbox, m->of, id, m->spec.created_by, on_made, m);
    else
        manager_context_create(api->set.manager, api_sees(req), m->sandbox, id, &m->spec, on_made, m);
}

static int read_language(const json_t *body, const char **ret, struct err *err)
{
    const char *said = NULL;

    if (body_text(body, "", "language", 1, 40, &said, err) < 0)
        return -1;
    *ret = context_language(said ? said : "python");
    if (!*ret)
        return err_set(err, ERR_INVALID, "language: it is python, node or bash");
    return 0;
}

static int read_making(struct making *m, struct err *err)
{
    static const char *const names[] = { "language", "cwd", "env", NULL };
    json_t *env = NULL;
    size_t n = 0;

    if (ids(m->req, &m->sandbox, NULL, err) < 0 || api_body(m->req, &m->body, err) < 0 ||
        body_only(m->body, "", names, err) < 0 || read_language(m->body, &m->spec.language, err) < 0 ||
        body_text(m->body, "", "cwd", 1, CWD_MAX, &m->spec.cwd, err) < 0 ||
        body_object(m->body, "", "env", &env, err) < 0 || (env && spec_read_env(env, "env", &m->env, &n, err) < 0))
        return -1;
    m->spec.env = (const char *const *)m->env;
    return 0;
}

static struct making *making_new(struct http_req *req, struct api *api)
{
    struct making *m = mem_new(struct making);

    m->req = req;
    m->api = api;
    return m;
}

static void create(struct http_req *req, void *ctx)
{
    struct making *m = making_new(req, ctx);
    struct err err = { 0 };

    if (read_making(m, &err) < 0) {
        http_answer_err(req, &err);
        making_free(m);
        return;
    }
    api_audit_detail(req, "language", m->spec.language);
    idem_begin(req, ctx, "cx", on_make, m, making_free);
}

static void fork_(struct http_req *req, void *ctx)
{
    struct making *m = making_new(req, ctx);
    struct err err = { 0 };

    if (ids(req, &m->sandbox, &m->of, &err) < 0) {
        http_answer_err(req, &err);
        making_free(m);
        return;
    }
    api_audit_detail(req, "forkedFrom", m->of);
    idem_begin(req, ctx, "cx", on_make, m, making_free);
}

static void list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct context_info all[CONTEXTS_MAX];
    struct err err = { 0 };
    struct buf out = { 0 };
    struct jsonw w;
    const char *sandbox;
    size_t n = 0;

    if (ids(req, &sandbox, NULL, &err) < 0 ||
        manager_contexts(api->set.manager, api_sees(req), sandbox, all, &n, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "contexts");
    jsonw_array(&w);
    for (size_t i = 0; i < n; i++)
        context_json(&all[i], &w);
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct context_info all[CONTEXTS_MAX];
    struct err err = { 0 };
    const char *sandbox, *id;
    size_t n = 0;

    if (ids(req, &sandbox, &id, &err) < 0 ||
        manager_contexts(api->set.manager, api_sees(req), sandbox, all, &n, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].id, id)) {
            answer(req, 200, &all[i]);
            return;
        }
    err_set(&err, ERR_MISSING, "there is no such context in this sandbox");
    http_answer_err(req, &err);
}

typedef void order_fn(struct manager *m, const char *owner, const char *sandbox, const char *id, context_fn *done,
                      void *arg);

static void order(struct http_req *req, struct api *api, order_fn *fn)
{
    struct err err = { 0 };
    const char *sandbox, *id;

    if (ids(req, &sandbox, &id, &err) < 0)
        http_answer_err(req, &err);
    else
        fn(api->set.manager, api_sees(req), sandbox, id, on_context, req);
}

static void delete_(struct http_req *req, void *ctx)
{
    order(req, ctx, manager_context_delete);
}

static void interrupt(struct http_req *req, void *ctx)
{
    order(req, ctx, manager_context_interrupt);
}

static void restart(struct http_req *req, void *ctx)
{
    order(req, ctx, manager_context_restart);
}

/* --- execute --- */

struct call {
    struct http_req *req;
    struct api *api;
    const char *sandbox, *context; /* live as long as the request */
    json_t *body;
    struct context_call spec;
    enum follow_mode mode;
};

static void call_free(void *arg)
{
    struct call *c = arg;

    json_decref(c->body);
    free(c);
}

static void answer_background(struct call *c, const struct store_execution *row)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/executions/%s", row->sandbox, row->id);

    http_set_header(c->req, "Location", path);
    follow_answer(c->req, c->api, 202, row, false);
}

static void on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct call *c = arg;

    if (err) {
        idem_undo(c->req, c->api, err);
        api_refuse(c->req, c->api, err);
    } else if (c->spec.background) {
        answer_background(c, row);
    } else {
        follow_row(c->req, c->api, &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox }, row);
    }
    call_free(c);
}

static void on_known(void *arg, const struct err *err, const struct store_execution *row)
{
    struct call *c = arg;

    if (err)
        http_answer_err(c->req, err);
    else
        answer_background(c, row);
    call_free(c);
}

static void on_claimed(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg)
{
    struct call *c = arg;

    if (fresh) {
        c->spec.created_by = api_by(req);
        c->spec.request = http_id(req);
        manager_context_execute(api->set.manager, api_sees(req), c->sandbox, c->context, id, &c->spec, on_accepted, c);
    } else if (c->spec.background) {
        store_execution_get(api->set.store, api_sees(req), id, on_known, c);
    } else {
        follow(req, api, &(struct follow_spec){ .mode = c->mode, .sandbox = c->sandbox, .execution = id });
        call_free(c);
    }
}

int context_call_read(const json_t *body, struct api *api, struct context_call *ret, struct err *err)
{
    static const char *const names[] = { "code", "timeoutMs", "outputBytes", "background", NULL };
    const struct limit_info *wall = limit_info(LIMIT_WALL);

    if (body_only(body, "", names, err) < 0 || body_text(body, "", "code", 0, CONTEXT_CODE_MAX, &ret->code, err) < 0 ||
        body_u64(body, "", "timeoutMs", wall->min, wall->max, &ret->timeout_ms, NULL, err) < 0 ||
        body_u64(body, "", "outputBytes", 1, EXECUTION_OUTPUT_MAX, &ret->output_max, NULL, err) < 0 ||
        body_bool(body, "", "background", &ret->background, err) < 0)
        return -1;
    if (!ret->code)
        return err_set(err, ERR_INVALID, "code: there is nothing to run");
    return api_floor(api, ret->timeout_ms, ret->output_max, err);
}

static int read_call(struct call *c, struct err *err)
{
    if (ids(c->req, &c->sandbox, &c->context, err) < 0 || api_body(c->req, &c->body, err) < 0)
        return -1;
    return context_call_read(c->body, c->api, &c->spec, err);
}

static void execute(struct http_req *req, void *ctx)
{
    struct call *c = mem_new(struct call);
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    c->mode = follow_mode(req);
    if (read_call(c, &err) < 0) {
        http_answer_err(req, &err);
        call_free(c);
        return;
    }
    api_audit_content(req, "code", c->spec.code, strlen(c->spec.code));
    idem_begin(req, ctx, "ex", on_claimed, c, call_free);
}

/* --- complete and inspect --- */

static void on_asked(void *arg, const struct err *err, const char *json)
{
    struct http_req *req = arg;

    if (err)
        http_answer_err(req, err);
    else
        http_answer(req, 200, "application/json", json, strlen(json));
}

/* Of text that was found to be UTF-8. */
static size_t characters(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void ask(struct http_req *req, struct api *api, bool inspect)
{
    static const char *const names[] = { "code", "cursor", NULL };
    auto_json *body = NULL;
    struct err err = { 0 };
    const char *sandbox = NULL, *id = NULL, *code = NULL;
    uint64_t cursor = 0;
    bool placed = false;

    if (ids(req, &sandbox, &id, &err) == 0 && api_body(req, &body, &err) == 0 &&
        body_only(body, "", names, &err) == 0 && body_text(body, "", "code", 0, CONTEXT_CODE_MAX, &code, &err) == 0 &&
        body_u64(body, "", "cursor", 0, CONTEXT_CODE_MAX, &cursor, &placed, &err) == 0 && (!code || !placed))
        err_set(&err, ERR_INVALID, "a question is code and cursor");
    if (err.id == ERR_NONE && code && cursor > characters(code))
        err_set(&err, ERR_INVALID, "cursor: the code has only %zu characters", characters(code));
    if (err.id != ERR_NONE)
        http_answer_err(req, &err);
    else
        manager_context_ask(api->set.manager, api_sees(req), sandbox, id, inspect, code, cursor, on_asked, req);
}

static void complete(struct http_req *req, void *ctx)
{
    ask(req, ctx, false);
}

static void inspect(struct http_req *req, void *ctx)
{
    ask(req, ctx, true);
}

/* --- the answer to input() --- */

struct line {
    struct http_req *req;
    struct api *api;
    const char *sandbox;
    char *text; /* NULL: end of input */
};

static void line_free(void *arg)
{
    struct line *l = arg;

    free(l->text);
    free(l);
}

static void on_line_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct line *l = arg;
    struct err why = { 0 };

    if (!err && !str_eq(row->sandbox, l->sandbox))
        err = (err_set(&why, ERR_MISSING, "there is no such execution in this sandbox"), &why);
    if (!err && row->ended_ms)
        err = (err_set(&why, ERR_EXISTS, "execution %s has ended", row->id), &why);
    if (!err && manager_context_input(l->api->set.manager, api_sees(l->req), l->sandbox, row->id, l->text, &why) < 0)
        err = &why;
    if (err)
        http_answer_err(l->req, err);
    else
        follow_answer(l->req, l->api, 200, row, false);
}

int context_line_read(const json_t *body, const char **ret, struct err *err)
{
    const char *text = NULL;
    bool eof = false;

    if (body_text(body, "", "text", 0, CONTEXT_INPUT_MAX, &text, err) < 0 || body_bool(body, "", "eof", &eof, err) < 0)
        return -1;
    if (!text == !eof)
        return err_set(err, ERR_INVALID, "give text, or eof: true for the end of input");
    *ret = text;
    return 0;
}

static int read_line(struct line *l, const json_t *body, struct err *err)
{
    static const char *const names[] = { "text", "eof", NULL };
    const char *text = NULL;

    if (body_only(body, "", names, err) < 0 || context_line_read(body, &text, err) < 0)
        return -1;
    l->text = text ? str_dup(text) : NULL;
    return 0;
}

static void input(struct http_req *req, void *ctx)
{
    struct line *l = mem_new(struct line);
    auto_json *body = NULL;
    struct err err = { 0 };
    const char *id;

    l->req = req;
    l->api = ctx;
    http_keep(req, l, line_free);
    if (ids(req, &l->sandbox, NULL, &err) < 0 || api_execution_id(req, &id, &err) < 0 ||
        api_body(req, &body, &err) < 0 || read_line(l, body, &err) < 0)
        http_answer_err(req, &err);
    else
        store_execution_get(l->api->set.store, api_sees(req), id, on_line_row, l);
}

#define ALL "/v1/sandboxes/{sandboxId}/contexts"
#define ONE ALL "/{contextId}"
#define JSON_BODY HTTP_BODY_BUFFERED, BODY_SIZE_MAX, "application/json"

const struct http_route context_routes[] = {
    { "POST", ALL, create, JSON_BODY, &api_run },
    { "GET", ALL, list, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE, get, HTTP_BODY_NONE, .data = &api_runs_read },
    { "DELETE", ONE, delete_, HTTP_BODY_NONE, .data = &api_runs },
    { "POST", ONE "/execute", execute, JSON_BODY, &api_run },
    { "POST", ONE "/interrupt", interrupt, HTTP_BODY_NONE, .data = &api_runs },
    { "POST", ONE "/restart", restart, HTTP_BODY_NONE, .data = &api_runs },
    { "POST", ONE "/fork", fork_, HTTP_BODY_NONE, .data = &api_run },
    { "POST", ONE "/complete", complete, JSON_BODY, &api_runs },
    { "POST", ONE "/inspect", inspect, JSON_BODY, &api_runs },
    { "POST", "/v1/sandboxes/{sandboxId}/executions/{executionId}/input", input, JSON_BODY, &api_runs },
    { 0 },
};
