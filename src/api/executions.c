/* /v1/sandboxes/{sandboxId}/executions */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"
#include "sandbox/custom.h"

#define COMMAND_MAX 1024
#define WORD_MAX (32 * KIB)
#define CWD_MAX 4000

/* --- create --- */

struct launch {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* lives as long as the request */
    json_t *body;
    char **env;
    const char **argv;
    struct execution_spec spec;
    enum follow_mode mode;
};

static void launch_free(void *arg)
{
    struct launch *l = arg;

    json_decref(l->body);
    spec_env_free(l->env);
    free(l->argv);
    free(l);
}

static void answer_background(struct launch *l, const struct store_execution *row)
{
    auto_free char *path = str_printf("/v1/sandboxes/%s/executions/%s", row->sandbox, row->id);

    http_set_header(l->req, "Location", path);
    follow_answer(l->req, l->api, 202, row, false);
}

static void on_accepted(void *arg, const struct err *err, const struct store_execution *row)
{
    struct launch *l = arg;

    if (err) {
        idem_undo(l->req, l->api, err);
        http_answer_err(l->req, err);
    } else if (l->spec.background) {
        answer_background(l, row);
    } else {
        follow_row(l->req, l->api, &(struct follow_spec){ .mode = l->mode, .sandbox = l->sandbox }, row);
    }
    launch_free(l);
}

static void on_known(void *arg, const struct err *err, const struct store_execution *row)
{
    struct launch *l = arg;

    if (err)
        http_answer_err(l->req, err);
    else
        answer_background(l, row);
    launch_free(l);
}

static void on_claimed(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg)
{
    struct launch *l = arg;

    if (fresh) {
        manager_execute(api->set.manager, api_sees(req), l->sandbox, id, &l->spec, on_accepted, l);
    } else if (l->spec.background) {
        store_execution_get(api->set.store, api_sees(req), id, on_known, l);
    } else {
        follow(req, api, &(struct follow_spec){ .mode = l->mode, .sandbox = l->sandbox, .execution = id });
        launch_free(l);
    }
}

static int read_command(struct launch *l, struct err *err)
{
    json_t *list = NULL;

    if (body_array(l->body, "", "command", COMMAND_MAX, &list, err) < 0)
        return -1;
    if (!list)
        return 0;
    size_t n = json_array_size(list);
    if (n == 0)
        return err_set(err, ERR_INVALID, "command: it has no word");
    l->argv = mem_new_array(const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_string(v) || json_string_length(v) > WORD_MAX)
            return err_set(err, ERR_INVALID, "command[%zu]: a word is a text of at most %llu bytes", i, WORD_MAX);
        l->argv[i] = json_string_value(v);
    }
    l->argv[n] = NULL;
    if (!l->argv[0][0])
        return err_set(err, ERR_INVALID, "command[0]: the name of the program is empty");
    l->spec.argv = l->argv;
    return 0;
}

static int read_what(struct launch *l, struct err *err)
{
    struct execution_spec *s = &l->spec;

    if (body_text(l->body, "", "code", 1, EXECUTION_CODE_MAX, &s->code, err) < 0 || read_command(l, err) < 0)
        return -1;
    if (!s->code == !s->argv)
        return err_set(err, ERR_INVALID,
                       s->code ? "code and command do not go together: give one of them"
                               : "give code or command: there is nothing to run");
    return 0;
}

static int read_limits(struct launch *l, struct err *err)
{
    const struct limit_info *wall = limit_info(LIMIT_WALL), *cpu = limit_info(LIMIT_CPU_TIME);
    struct execution_spec *s = &l->spec;

    if (body_u64(l->body, "", "timeoutMs", wall->min, wall->max, &s->timeout_ms, NULL, err) < 0 ||
        body_u64(l->body, "", "cpuTimeMs", 1, cpu->max, &s->cpu_ms, NULL, err) < 0 ||
        body_u64(l->body, "", "outputBytes", 1, EXECUTION_OUTPUT_MAX, &s->output_max, NULL, err) < 0)
        return -1;
    const struct floor *f = l->api->set.floor;
    if (custom_floor_value(f, LIMIT_WALL, "timeoutMs", s->timeout_ms, err) < 0 ||
        custom_floor_value(f, LIMIT_CPU_TIME, "cpuTimeMs", s->cpu_ms, err) < 0)
        return -1;
    return custom_floor_value(f, LIMIT_OUTPUT, "outputBytes", s->output_max, err);
}

static int read_request(struct launch *l, struct err *err)
{
    static const char *const names[] = { "code",      "command",   "stdin",       "stdinOpen",  "env",     "cwd",
                                         "timeoutMs", "cpuTimeMs", "outputBytes", "background", "changes", NULL };
    struct execution_spec *s = &l->spec;
    json_t *env = NULL;
    size_t nenv = 0;

    if (http_query_only(l->req, (const char *const[]){ NULL }, err) < 0 ||
        api_sandbox_id(l->req, &l->sandbox, err) < 0 || api_body(l->req, &l->body, err) < 0 ||
        body_only(l->body, "", names, err) < 0 || read_what(l, err) < 0 || read_limits(l, err) < 0 ||
        body_text(l->body, "", "stdin", 0, EXECUTION_STDIN_MAX, &s->input, err) < 0 ||
        body_bool(l->body, "", "stdinOpen", &s->input_open, err) < 0 ||
        body_text(l->body, "", "cwd", 1, CWD_MAX, &s->cwd, err) < 0 || body_object(l->body, "", "env", &env, err) < 0 ||
        body_bool(l->body, "", "background", &s->background, err) < 0 ||
        body_bool(l->body, "", "changes", &s->changes, err) < 0)
        return -1;
    if (s->input && s->input_open)
        return err_set(err, ERR_INVALID, "stdin and stdinOpen do not go together: write all of it, or send all of it");
    if (s->input)
        s->input_len = strlen(s->input);
    if (env && spec_read_env(env, "env", &l->env, &nenv, err) < 0)
        return -1;
    s->env = (const char *const *)l->env;
    return 0;
}

/* Words are told as they would stand in /proc: each ended by a NUL. */
static void tell_words(const struct http_req *req, const char *key, const char *const *words)
{
    auto_buf text = { 0 };

    for (; words && *words; words++)
        buf_add(&text, *words, strlen(*words) + 1);
    if (text.len > 0)
        api_audit_content(req, key, text.data, text.len);
}

static void tell(const struct launch *l)
{
    const struct execution_spec *s = &l->spec;

    if (s->code)
        api_audit_content(l->req, "code", s->code, strlen(s->code));
    tell_words(l->req, "command", s->argv);
    tell_words(l->req, "env", s->env);
    if (s->input)
        api_audit_content(l->req, "stdin", s->input, s->input_len);
}

static void create(struct http_req *req, void *ctx)
{
    struct launch *l = mem_new(struct launch);
    struct err err = { 0 };

    l->req = req;
    l->api = ctx;
    l->mode = follow_mode(req);
    if (read_request(l, &err) < 0) {
        http_answer_err(req, &err);
        launch_free(l);
    } else {
        tell(l);
        /* With a key, or with input still to come, it has to be found while it runs. */
        l->spec.at_end = l->mode == FOLLOW_ANSWER && !l->spec.background && !l->spec.input_open &&
                         !http_header(req, "Idempotency-Key");
        idem_begin(req, ctx, "ex", on_claimed, l, launch_free);
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

static int last_event(const struct http_req *req, uint64_t offset[2], struct err *err)
{
    const char *p = http_header(req, "Last-Event-ID");

    if (!p || !*p)
        return 0;
    if (!str_eat_u64(&p, INT64_MAX, &offset[0]) || !str_eat(&p, "-") || !str_eat_u64(&p, INT64_MAX, &offset[1]) || *p)
        return err_set(err, ERR_INVALID, "Last-Event-ID: it is two offsets with a '-' between them");
    return 0;
}

static void stream(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "stdoutOffset", "stderrOffset", NULL };
    struct follow_spec spec = { .mode = follow_mode(req) };
    struct err err = { 0 };

    if (!ids_or_refuse(req, names, &spec))
        return;
    if (spec.mode == FOLLOW_ANSWER)
        spec.mode = FOLLOW_NDJSON;
    if (http_query_u64(req, "stdoutOffset", 0, INT64_MAX, 0, &spec.offset[0], &err) < 0 ||
        http_query_u64(req, "stderrOffset", 0, INT64_MAX, 0, &spec.offset[1], &err) < 0 ||
        last_event(req, spec.offset, &err) < 0)
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
    { "GET", ONE "/output", output, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE "/stream", stream, HTTP_BODY_NONE, .data = &api_runs_read },
    { "GET", ONE "/receipt", receipt, HTTP_BODY_NONE, .data = &api_runs_read },
    { 0 },
};
