/* POST /v1/execute: one fresh sandbox, one answer.
 *
 * The body is read into what the executor takes, which borrows from it, so the body stays until the end. Answered as
 * one JSON object, or as the stream that executions have: `started`, `output`, what code shows, `end`. Nothing is
 * stored, so a stream that broke is not taken up again, and a client that goes away takes its program along. */
#include "api/inside.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"
#include "executor/path.h"
#include "sandbox/context.h"
#include "sandbox/custom.h"
#include "sandbox/shelf.h"

#include <stdio.h>

#define CWD_MAX 4000
#define SHELL_MAX (32 * KIB)
#define HEARTBEAT_NS (15 * NS_PER_S)

struct call {
    struct http_req *req;
    struct api *api;
    json_t *body;
    char template[STORE_NAME_MAX + 1];
    struct spec spec;
    char *details; /* of an error in its policy */
    struct run_request run;
    const char **argv;
    char **env;
    char *cwd;
    struct run_file files[RUN_FILES_MAX];
    struct buf decoded[RUN_FILES_MAX];
    char *outputs[RUN_OUTPUTS_MAX + 1];
    enum follow_mode mode;

    struct run *running;
    struct api_live live;
    struct ev_timer heartbeat;
    bool streaming;
    char id[ID_SIZE], sandbox[ID_SIZE];
    uint64_t offset[2];
    struct buf carry[2]; /* the beginning of a character */
};

static void call_free(void *arg)
{
    struct call *c = arg;

    live_done(&c->live);
    ev_timer_clear(c->api->set.ev, &c->heartbeat);
    json_decref(c->body);
    spec_done(&c->spec);
    free(c->details);
    free(c->argv);
    spec_env_free(c->env);
    free(c->cwd);
    for (size_t i = 0; i < RUN_FILES_MAX; i++) {
        free(c->files[i].path);
        buf_done(&c->decoded[i]);
    }
    for (size_t i = 0; i < RUN_OUTPUTS_MAX; i++)
        free(c->outputs[i]);
    buf_done(&c->carry[0]);
    buf_done(&c->carry[1]);
    free(c);
}

static void refuse(struct call *c, const struct err *err)
{
    char seconds[24];

    if (err->id == ERR_EXECUTOR_FULL) {
        snprintf(seconds, sizeof(seconds), "%" PRIu64, (executor_retry_ms(c->api->set.executor) + 999) / 1000);
        http_set_header(c->req, "Retry-After", seconds);
    }
    if (err->id == ERR_QUOTA)
        api_refuse(c->req, c->api, err);
    else
        http_answer_err_with(c->req, err, c->details);
    call_free(c);
}

/* --- the stream --- */

static void begin_event(struct jsonw *w, struct buf *out, const char *type)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
}

static void tell(struct call *c, const char *type, const struct buf *json)
{
    bool room = c->mode == FOLLOW_NDJSON ? http_ndjson(c->req, json) : http_event(c->req, NULL, type, json->data);

    if (!room && c->running)
        run_hold(c->running, true);
}

static void on_room(void *arg)
{
    struct call *c = arg;

    if (c->running)
        run_hold(c->running, false);
}

static void on_heartbeat(void *arg)
{
    static const char text[] = "{\"type\":\"heartbeat\"}";
    struct call *c = arg;
    struct buf json = { .data = (char *)text, .len = sizeof(text) - 1, .cap = sizeof(text) };

    ev_timer_set(c->api->set.ev, &c->heartbeat, ev_now(c->api->set.ev) + HEARTBEAT_NS, on_heartbeat, c);
    http_ndjson(c->req, &json);
}

static void on_started(void *arg, const char *id, const char *sandbox)
{
    struct call *c = arg;
    auto_buf out = { 0 };
    struct jsonw w;

    (void)str_copy(c->id, sizeof(c->id), id);
    (void)str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
    c->streaming = true;
    http_on_room(c->req, on_room, c);
    if (c->mode == FOLLOW_NDJSON) {
        http_answer_ndjson(c->req, 200);
        ev_timer_set(c->api->set.ev, &c->heartbeat, ev_now(c->api->set.ev) + HEARTBEAT_NS, on_heartbeat, c);
    } else {
        http_answer_events(c->req);
    }
    begin_event(&w, &out, "started");
    jsonw_key(&w, "execution");
    jsonw_object(&w);
    jsonw_kstr(&w, "id", id);
    jsonw_kstr(&w, "sandboxId", sandbox);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    tell(c, "started", &out);
}

static void send_output(struct call *c, int i, bool last)
{
    struct buf *b = &c->carry[i];

    while (b->len > 0 && (last || !piece_waits(b->data, b->len))) {
        auto_buf out = { 0 };
        struct jsonw w;

        begin_event(&w, &out, "output");
        jsonw_kstr(&w, "stream", i == 0 ? "stdout" : "stderr");
        jsonw_ku64(&w, "offset", c->offset[i]);
        size_t told = piece_json(&w, "data", b->data, b->len, last);
        jsonw_end_object(&w);
        c->offset[i] += told;
        buf_drop(b, told);
        tell(c, "output", &out);
    }
}

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct call *c = arg;

    buf_add(&c->carry[channel - 1], data, len);
    send_output(c, channel - 1, false);
}

static void on_event(void *arg, const char *type, const struct buf *json)
{
    tell(arg, type, json);
}

/* --- the end --- */

static void put_rest(struct buf *out, const struct run_result *r)
{
    buf_addf(out, ",\"cached\":%s,\"queuedMs\":%" PRIu64 ",\"pool\":\"%s\"}", r->cached ? "true" : "false",
             (uint64_t)(r->queued_ns / NS_PER_MS), r->recycled ? "recycled" : pool_found_names[r->found]);
}

/* One that ran and was lost: what is known of it is the reason. */
static void put_lost(const struct call *c, const struct err *err, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "id", c->id);
    jsonw_kstr(&w, "sandboxId", c->sandbox);
    jsonw_kstr(&w, "status", "died");
    jsonw_key(&w, "error");
    jsonw_object(&w);
    jsonw_kstr(&w, "code", err_info(err->id)->code);
    jsonw_kstr(&w, "message", err->msg);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
}

static void end_stream(struct call *c, const struct err *err, const struct run_result *r)
{
    auto_buf out = { 0 };

    send_output(c, 0, true);
    send_output(c, 1, true);
    buf_adds(&out, "{\"type\":\"end\",\"execution\":");
    if (r) {
        buf_add(&out, r->body->data, r->body->len);
        put_rest(&out, r);
    } else {
        put_lost(c, err, &out);
    }
    buf_adds(&out, "}");
    tell(c, "end", &out);
    http_stream_end(c->req);
    call_free(c);
}

static void on_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct call *c = arg;
    struct buf out = { 0 };

    c->running = NULL;
    http_on_gone(c->req, NULL, NULL);
    if (c->streaming) {
        end_stream(c, err, r);
    } else if (err) {
        refuse(c, err);
    } else {
        buf_add(&out, r->body->data, r->body->len);
        put_rest(&out, r);
        untaken_add(c->req, c->api, api_owner(c->req), out.len);
        api_audit_target(c->req, "execution", r->cached ? "cached" : r->id);
        http_answer_json(c->req, 200, &out);
        call_free(c);
    }
}

static const struct run_ops ops = {
    .on_started = on_started, .on_output = on_output, .on_event = on_event, .on_end = on_end
};

static void give_up(struct call *c, const struct err *err)
{
    if (c->running)
        run_cancel(take_ptr(&c->running));
    if (!c->streaming)
        http_answer_err(c->req, err);
    else if (err->id == ERR_CLIENT_GONE)
        http_stream_end(c->req);
    else
        http_stream_break(c->req);
    call_free(c);
}

static void on_gone(void *arg)
{
    struct err err;

    err_set(&err, ERR_CLIENT_GONE, "the client went away");
    give_up(arg, &err);
}

static void on_refused(void *arg, const struct err *why)
{
    struct call *c = arg;

    http_on_gone(c->req, NULL, NULL);
    give_up(c, why);
}

/* --- reading --- */

static int read_file(struct call *c, const json_t *file, size_t i, struct err *err)
{
    static const char *const names[] = { "path", "content", "contentBase64", NULL };
    const char *path = NULL, *text = NULL, *coded = NULL;
    char at[32];

    snprintf(at, sizeof(at), "files[%zu].", i);
    if (!json_is_object(file))
        return err_set(err, ERR_INVALID, "files[%zu]: a file is an object with a path and its content", i);
    if (body_only(file, at, names, err) < 0 || body_text(file, at, "path", 1, RUN_PATH_MAX, &path, err) < 0 ||
        body_text(file, at, "content", 0, BODY_SIZE_MAX, &text, err) < 0 ||
        body_text(file, at, "contentBase64", 0, BODY_SIZE_MAX, &coded, err) < 0)
        return -1;
    if (!path || !text == !coded)
        return err_set(err, ERR_INVALID, "files[%zu]: a file has a path, and either content or contentBase64", i);
    if (coded && !text_unbase64(&c->decoded[i], coded, strlen(coded)))
        return err_set(err, ERR_INVALID, "files[%zu].contentBase64: it is no base64", i);
    snprintf(at, sizeof(at), "files[%zu].path", i);
    if (path_resolve(path, at, &c->files[i].path, err) < 0)
        return -1;
    c->files[i].data = text ? text : c->decoded[i].data ? c->decoded[i].data : "";
    c->files[i].len = text ? strlen(text) : c->decoded[i].len;
    return 0;
}

static int read_files(struct call *c, struct err *err)
{
    json_t *list = NULL, *patterns = NULL;
    char what[32];

    if (body_array(c->body, "", "files", RUN_FILES_MAX, &list, err) < 0 ||
        body_array(c->body, "", "outputs", RUN_OUTPUTS_MAX, &patterns, err) < 0)
        return -1;
    c->run.nfiles = json_array_size(list);
    c->run.files = c->files;
    for (size_t i = 0; i < c->run.nfiles; i++)
        if (read_file(c, json_array_get(list, i), i, err) < 0)
            return -1;
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const json_t *v = json_array_get(patterns, i);

        snprintf(what, sizeof(what), "outputs[%zu]", i);
        if (!json_is_string(v))
            return err_set(err, ERR_INVALID, "%s: it is a path, or a pattern of paths", what);
        if (path_resolve(json_string_value(v), what, &c->outputs[i], err) < 0)
            return -1;
    }
    c->run.outputs = patterns ? (const char *const *)c->outputs : NULL;
    return 0;
}

/* A command is a list of words, or one line for the shell. */
static int read_command(struct call *c, struct err *err)
{
    const char *line = NULL;

    if (!json_is_string(json_object_get(c->body, "command")))
        return launch_words(c->body, &c->argv, err);
    if (body_text(c->body, "", "command", 1, SHELL_MAX, &line, err) < 0)
        return -1;
    c->argv = mem_new_array(const char *, 4);
    c->argv[0] = "/bin/sh";
    c->argv[1] = "-c";
    c->argv[2] = line;
    c->argv[3] = NULL;
    return 0;
}

static int read_what(struct call *c, struct err *err)
{
    struct run_request *r = &c->run;
    const char *language = NULL;

    if (body_text(c->body, "", "code", 1, CONTEXT_CODE_MAX, &r->code, err) < 0 || read_command(c, err) < 0 ||
        body_text(c->body, "", "language", 1, 40, &language, err) < 0)
        return -1;
    r->argv = c->argv;
    if (!r->code == !r->argv)
        return err_set(err, ERR_INVALID,
                       r->code ? "code and command do not go together: give one of them"
                               : "give code or command: there is nothing to run");
    if (!language)
        return 0;
    r->language = context_language(language);
    if (!r->language) {
        err_set(err, ERR_RUNTIME_MISSING, "language: there is no '%.40s'; there is python, node and bash", language);
        body_tame(err);
        return -1;
    }
    return 0;
}

static int read_rest(struct call *c, struct err *err)
{
    const struct limit_info *wall = limit_info(LIMIT_WALL);
    struct run_request *r = &c->run;
    const char *cwd = NULL;
    json_t *env = NULL;
    bool stream = false;
    size_t n = 0;

    if (body_text(c->body, "", "stdin", 0, EXECUTION_STDIN_MAX, &r->input, err) < 0 ||
        body_text(c->body, "", "cwd", 1, CWD_MAX, &cwd, err) < 0 || body_object(c->body, "", "env", &env, err) < 0 ||
        (env && spec_read_env(env, "env", &c->env, &n, err) < 0) ||
        body_u64(c->body, "", "timeoutMs", wall->min, wall->max, &r->timeout_ms, NULL, err) < 0 ||
        body_u64(c->body, "", "outputBytes", 1, RUN_OUTPUT_MAX, &r->output_max, NULL, err) < 0 ||
        body_bool(c->body, "", "stream", &stream, err) < 0 || body_bool(c->body, "", "cache", &r->pure, err) < 0)
        return -1;
    if (stream && c->mode == FOLLOW_ANSWER)
        c->mode = FOLLOW_NDJSON;
    r->streamed = c->mode != FOLLOW_ANSWER;
    r->pure = r->pure && !r->streamed;
    r->input_len = r->input ? strlen(r->input) : 0;
    r->env = (const char *const *)c->env;
    c->cwd = !cwd ? NULL : cwd[0] == '/' ? str_dup(cwd) : str_printf("/workspace/%s", cwd);
    r->cwd = c->cwd;
    return api_floor(c->api, r->timeout_ms, r->output_max, err);
}

/* What the sandbox is to be, over what its template says. */
static int read_spec(struct call *c, struct err *err)
{
    static const char *const names[] = { "level", "policy", "resources" };
    auto_json *over = json_object();

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *v = json_object_get(c->body, names[i]);

        if (v)
            json_object_set(over, names[i], v);
    }
    if (json_object_size(over) > 0 && spec_read(&c->spec, over, SPEC_OF_SANDBOX, &c->details, err) < 0)
        return -1;
    if (c->spec.pinning)
        return err_set(err, ERR_INVALID, "resources.cpuPinning: a sandbox for one execution is not pinned");
    if (!c->spec.runtime[0])
        (void)str_copy(c->spec.runtime, sizeof(c->spec.runtime), c->run.language ? c->run.language : "python");
    if (c->run.code && !c->run.language)
        c->run.language = context_language(c->spec.runtime);
    if (c->run.code && !c->run.language)
        return err_set(err, ERR_INVALID,
                       "language: the template is of %s, which runs no code here; say python, node or bash",
                       c->spec.runtime);
    if (custom_floor(&c->spec, c->api->set.floor, err) < 0)
        return -1;
    if (!c->run.timeout_ms)
        c->run.timeout_ms = c->spec.limits.v[LIMIT_WALL];
    if (!c->run.output_max)
        c->run.output_max = min_u64(c->spec.limits.v[LIMIT_OUTPUT], RUN_OUTPUT_MAX);
    return spec_finish(&c->spec, err);
}

/* A sandbox lives as long as its program may, and not less than those that are made ahead: another lifetime would be
 * another sandbox. */
static void fit_lifetime(struct call *c)
{
    uint64_t *lifetime = &c->spec.limits.v[LIMIT_LIFETIME];

    if (c->run.timeout_ms >= *lifetime)
        *lifetime = min_u64(c->run.timeout_ms + 60000, limit_info(LIMIT_LIFETIME)->max);
}

/* --- beginning --- */

static void record(const struct call *c)
{
    const struct run_request *r = &c->run;

    if (r->code)
        api_audit_content(c->req, "code", r->code, strlen(r->code));
    api_audit_words(c->req, "command", r->argv);
    api_audit_words(c->req, "env", r->env);
    if (r->input)
        api_audit_content(c->req, "stdin", r->input, r->input_len);
    for (size_t i = 0; i < r->nfiles; i++)
        api_audit_content(c->req, "file", r->files[i].data, r->files[i].len);
    api_audit_begin(c->req);
}

static void run(struct call *c)
{
    struct err err = { 0 };

    if (read_spec(c, &err) < 0) {
        refuse(c, &err);
        return;
    }
    fit_lifetime(c);
    c->run.owner = api_owner(c->req);
    c->run.created_by = api_by(c->req);
    c->run.request = http_id(c->req);
    c->run.spec = &c->spec;
    c->run.template = c->template[0] ? c->template : NULL;
    if (executor_run(c->api->set.executor, &c->run, &ops, c, &c->running, &err) < 0) {
        refuse(c, &err);
        return;
    }
    record(c);
    http_on_gone(c->req, on_gone, c);
    http_needs_client(c->req);
    live_begin(&c->live, c->api, api_who(c->req), on_refused, c);
}

static void on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct call *c = arg;
    struct err why = { 0 };
    auto_json *spec = NULL;

    if (err && err->id == ERR_MISSING) {
        template_missing(&why, c->template);
        refuse(c, &why);
    } else if (err) {
        refuse(c, err);
    } else if (body_parse(row->spec_json, strlen(row->spec_json), &spec, &why) < 0 ||
               spec_read(&c->spec, spec, SPEC_OF_TEMPLATE, NULL, &why) < 0) {
        err_wrap(&why, "template %s", row->name);
        refuse(c, &why);
    } else {
        c->run.generation = row->generation;
        run(c);
    }
}

static void execute(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "code",  "command", "language",  "template",    "level", "policy",
                                         "env",   "cwd",     "resources", "files",       "stdin", "outputs",
                                         "cache", "stream",  "timeoutMs", "outputBytes", NULL };
    struct call *c = mem_new(struct call);
    const char *template = NULL;
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    c->mode = follow_mode(req);
    spec_init(&c->spec);
    if (!c->api->set.executor)
        err_set(&err, ERR_BUSY, "this server has no executor");
    if (err.id || untaken_check(c->api, api_owner(req), &err) < 0 || api_no_query(req, &err) < 0 ||
        api_body(req, &c->body, &err) < 0 || body_only(c->body, "", names, &err) < 0 || read_what(c, &err) < 0 ||
        read_files(c, &err) < 0 || read_rest(c, &err) < 0 ||
        body_text(c->body, "", "template", 1, STORE_NAME_MAX, &template, &err) < 0) {
        refuse(c, &err);
    } else if (template) {
        (void)str_copy(c->template, sizeof(c->template), template);
        shelf_get(c->api->shelf, template, ev_now(c->api->set.ev), on_template, c);
    } else {
        run(c);
    }
}

const struct http_route execute_routes[] = {
    { "POST", "/v1/execute", execute, HTTP_BODY_BUFFERED, BODY_SIZE_MAX, "application/json", &api_run },
    { 0 },
};
