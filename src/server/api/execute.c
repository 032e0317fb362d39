/* POST /v1/execute: one fresh sandbox, one response.
 *
 * The body is parsed into the executor's request, which borrows from it, so the body lives until
 * the end. The response is one JSON object, or a stream as for other executions: `started`,
 * `output`, events of the language kernel, `end`. Nothing is stored, so a broken stream cannot be
 * resumed, an Idempotency-Key is refused, and the program is killed when the client disconnects. */
#include "server/api/api_internal.h"
#include "server/api/execute_tier.h"
#include "server/api/output_response.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/execute/run_path.h"
#include "service/context.h"
#include "service/custom_policy.h"
#include "service/language_kernel.h"
#include "service/result.h"
#include "service/template_cache.h"
#include "service/template_check.h"

#include <stdio.h>

#define CWD_MAX 4000

struct execute_request {
    struct http_req *req;
    struct api *api;
    json_t *body;
    char template[STORE_NAME_MAX + 1];
    struct spec spec;
    char *policy_error_details; /* of an error in the policy or the template */
    struct run_request run_request;
    const char **argv;
    char **env;
    char *cwd;
    struct run_file files[RUN_FILES_MAX];
    struct buf decoded[RUN_FILES_MAX];
    char *outputs[RUN_OUTPUTS_MAX + 1];
    enum follow_mode mode;
    enum code_tier tier;

    struct run *active_run;
    struct open_stream open_stream;
    char id[ID_SIZE], sandbox[ID_SIZE]; /* "" before it has started */
    struct output_response stream;      /* begins when the run has started */
};

static void execute_request_free(void *arg)
{
    struct execute_request *c = arg;

    open_stream_unregister(&c->open_stream);
    message_stream_done(&c->stream.messages);
    output_pump_done(&c->stream.pump);
    json_decref(c->body);
    spec_done(&c->spec);
    free(c->policy_error_details);
    free(c->argv);
    spec_env_free(c->env);
    free(c->cwd);
    for (size_t i = 0; i < RUN_FILES_MAX; i++) {
        free(c->files[i].path);
        buf_done(&c->decoded[i]);
    }
    for (size_t i = 0; i < RUN_OUTPUTS_MAX; i++)
        free(c->outputs[i]);
    free(c);
}

static void execute_refuse(struct execute_request *c, const struct err *err)
{
    char seconds[24];

    if (err->id == ERR_EXECUTOR_FULL) {
        snprintf(seconds, sizeof(seconds), "%" PRIu64, (executor_retry_ms(c->api->settings.executor) + 999) / 1000);
        http_set_header(c->req, "Retry-After", seconds);
    }
    http_answer_err_with(c->req, err, c->policy_error_details);
    execute_request_free(c);
}

/* --- the stream --- */

static void execute_on_room(void *arg)
{
    struct execute_request *c = arg;

    if (c->active_run)
        run_pause_output(c->active_run, false);
}

static void execute_pause_if_full(struct execute_request *c)
{
    if (http_stream_room(c->req) == 0 && c->active_run)
        run_pause_output(c->active_run, true);
}

static void execute_on_started(void *arg, const char *id, const char *sandbox)
{
    struct execute_request *c = arg;
    char json[128];

    (void)str_copy(c->id, sizeof(c->id), id);
    (void)str_copy(c->sandbox, sizeof(c->sandbox), sandbox);
    snprintf(json, sizeof(json), "{\"id\":\"%s\",\"sandboxId\":\"%s\"}", c->id, c->sandbox);
    http_on_room(c->req, execute_on_room, c);
    output_response_begin(&c->stream, c->req, c->api->settings.ev, c->mode == FOLLOW_EVENTS, json);
}

static void execute_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct execute_request *c = arg;

    output_pump_add(&c->stream.pump, channel, data, len);
    execute_pause_if_full(c);
}

static void execute_on_event(void *arg, const char *type, const struct buf *json)
{
    struct execute_request *c = arg;

    output_response_send(&c->stream, type, json);
    execute_pause_if_full(c);
}

/* --- the end --- */

static void execute_write_run_facts(const struct execute_request *c, struct buf *out, const struct run_result *r)
{
    buf_addf(out, ",\"cached\":%s,\"queuedMs\":%" PRIu64 ",\"pool\":\"%s\"", r->from_cache ? "true" : "false",
             (uint64_t)(r->queued_ns / NS_PER_MS), r->recycled ? "recycled" : pool_result_names[r->pool_result]);
    if (c->tier != TIER_NONE) {
        enum code_tier answered_by = r->is_refused ? TIER_NONE : c->tier == TIER_FULL ? TIER_FULL : TIER_SIMPLE;

        buf_addf(out, ",\"answeredBy\":\"%s\"", execute_tier_name(answered_by));
        execute_tier_count(c->api, answered_by);
    }
    buf_adds(out, "}");
}

/* An execution that started and was lost: only the reason is known. */
static void execute_write_lost(const struct execute_request *c, const struct err *err, struct buf *out)
{
    auto_free char *error = result_error_json(err);
    struct result r = { .id = c->id,
                        .has_ended = true,
                        .ended_by = ended_by_name(ENDED_LOST),
                        .exit_code = -1,
                        .ended_ms = clock_real_ms(),
                        .error_json = error };
    struct jsonw w;

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    result_write(&r, &w);
    jsonw_kstr(&w, "sandboxId", c->sandbox);
    jsonw_end_object(&w);
}

static void execute_end_stream(struct execute_request *c, const struct err *err, const struct run_result *r)
{
    auto_buf out = { 0 };

    output_pump_flush(&c->stream.pump);
    buf_adds(&out, "{\"type\":\"end\",\"execution\":");
    if (r) {
        buf_add(&out, r->json->data, r->json->len);
        execute_write_run_facts(c, &out, r);
    } else {
        execute_write_lost(c, err, &out);
    }
    buf_adds(&out, "}");
    output_response_send(&c->stream, "end", &out);
    http_stream_end(c->req);
    execute_request_free(c);
}

static void execute_on_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct execute_request *c = arg;
    struct buf out = { 0 };

    c->active_run = NULL;
    http_on_client_gone(c->req, NULL, NULL);
    if (c->stream.messages.req) {
        execute_end_stream(c, err, r);
    } else if (err) {
        execute_refuse(c, err);
    } else {
        buf_add(&out, r->json->data, r->json->len);
        execute_write_run_facts(c, &out, r);
        unread_responses_add(c->req, c->api->settings.gateway, gateway_tenant(c->req), out.len);
        audit_trail_add_target(c->req, "execution", r->from_cache ? "cached" : r->id);
        http_answer_json(c->req, 200, &out);
        execute_request_free(c);
    }
}

static const struct run_ops execute_run_ops = { .on_started = execute_on_started,
                                                .on_output = execute_on_output,
                                                .on_event = execute_on_event,
                                                .on_end = execute_on_end };

/* why: NULL if the client is gone. */
static void execute_abort(void *arg, const struct err *why)
{
    struct execute_request *c = arg;

    if (c->active_run)
        run_cancel(take_ptr(&c->active_run));
    message_stream_abort(&c->stream.messages, c->req, why);
    execute_request_free(c);
}

static void execute_on_client_gone(void *arg)
{
    execute_abort(arg, NULL);
}

/* --- reading --- */

static int execute_read_file(struct execute_request *c, const json_t *file, size_t i, struct err *err)
{
    static const char *const names[] = { "path", "content", "contentBase64", NULL };
    const char *path = NULL, *text = NULL, *coded = NULL;
    char at[32];

    snprintf(at, sizeof(at), "files[%zu].", i);
    if (!json_is_object(file))
        return err_set(err, ERR_INVALID, "files[%zu]: must be an object with path and either content or contentBase64",
                       i);
    if (json_input_require_known_fields(file, at, names, err) < 0 ||
        json_input_text(file, at, "path", 1, RUN_PATH_MAX, &path, err) < 0 ||
        json_input_text(file, at, "content", 0, JSON_INPUT_SIZE_MAX, &text, err) < 0 ||
        json_input_text(file, at, "contentBase64", 0, JSON_INPUT_SIZE_MAX, &coded, err) < 0)
        return -1;
    if (!path || !text == !coded)
        return err_set(err, ERR_INVALID, "files[%zu]: path and either content or contentBase64 are required", i);
    if (coded && !text_from_base64(&c->decoded[i], coded, strlen(coded)))
        return err_set(err, ERR_INVALID, "files[%zu].contentBase64: not valid base64", i);
    snprintf(at, sizeof(at), "files[%zu].path", i);
    if (run_path_resolve(path, at, &c->files[i].path, err) < 0)
        return -1;
    c->files[i].data = text ? text : c->decoded[i].data ? c->decoded[i].data : "";
    c->files[i].len = text ? strlen(text) : c->decoded[i].len;
    return 0;
}

static int execute_read_files(struct execute_request *c, struct err *err)
{
    json_t *list = NULL, *patterns = NULL;
    char what[32];

    if (json_input_array(c->body, "", "files", RUN_FILES_MAX, &list, err) < 0 ||
        json_input_array(c->body, "", "outputs", RUN_OUTPUTS_MAX, &patterns, err) < 0)
        return -1;
    c->run_request.nfiles = json_array_size(list);
    c->run_request.files = c->files;
    for (size_t i = 0; i < c->run_request.nfiles; i++)
        if (execute_read_file(c, json_array_get(list, i), i, err) < 0)
            return -1;
    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const json_t *v = json_array_get(patterns, i);

        snprintf(what, sizeof(what), "outputs[%zu]", i);
        if (!json_is_string(v))
            return err_set(err, ERR_INVALID, "%s: must be a path or a pattern of paths", what);
        if (run_path_resolve(json_string_value(v), what, &c->outputs[i], err) < 0)
            return -1;
    }
    c->run_request.outputs = patterns ? (const char *const *)c->outputs : NULL;
    return 0;
}

static int execute_read_program(struct execute_request *c, struct err *err)
{
    struct run_request *r = &c->run_request;
    const char *language = NULL;

    if (json_input_text(c->body, "", "code", 1, CONTEXT_CODE_MAX, &r->code, err) < 0 ||
        execution_request_read_command(c->body, &c->argv, err) < 0 ||
        json_input_text(c->body, "", "language", 1, 40, &language, err) < 0)
        return -1;
    r->argv = c->argv;
    if (!r->code == !r->argv)
        return err_set(err, ERR_INVALID,
                       r->code ? "code and command cannot be combined; give one of them"
                               : "code or command is required");
    if (!language)
        return 0;
    r->language = language_kernel_language(language);
    if (!r->language) {
        err_set(err, ERR_RUNTIME_MISSING, "language: unknown language '%.40s'; use python, node or bash", language);
        err_sanitize(err);
        return -1;
    }
    return 0;
}

static int execute_read_options(struct execute_request *c, struct err *err)
{
    const struct limit_info *wall = limit_info(LIMIT_WALL);
    struct run_request *r = &c->run_request;
    const char *cwd = NULL;
    json_t *env = NULL;
    bool stream = false;
    size_t n = 0;

    if (json_input_text(c->body, "", "stdin", 0, EXECUTION_STDIN_MAX, &r->input, err) < 0 ||
        json_input_text(c->body, "", "cwd", 1, CWD_MAX, &cwd, err) < 0 ||
        json_input_object(c->body, "", "env", &env, err) < 0 ||
        (env && spec_read_env(env, "env", &c->env, &n, err) < 0) ||
        json_input_u64(c->body, "", "timeoutMs", wall->min, wall->max, &r->timeout_ms, NULL, err) < 0 ||
        json_input_u64(c->body, "", "outputBytes", 1, RUN_OUTPUT_MAX, &r->output_max, NULL, err) < 0 ||
        api_read_receipt_detail(c->body, &r->receipt, err) < 0 ||
        json_input_bool(c->body, "", "stream", &stream, err) < 0 ||
        json_input_bool(c->body, "", "cache", &r->is_cacheable, err) < 0)
        return -1;
    if (stream && c->mode == FOLLOW_ANSWER)
        c->mode = FOLLOW_NDJSON;
    r->streamed = c->mode != FOLLOW_ANSWER;
    r->is_cacheable = r->is_cacheable && !r->streamed;
    r->input_len = r->input ? strlen(r->input) : 0;
    r->env = (const char *const *)c->env;
    c->cwd = !cwd ? NULL : cwd[0] == '/' ? str_dup(cwd) : str_printf("/workspace/%s", cwd);
    r->cwd = c->cwd;
    return api_check_operator_limits(c->api, r->timeout_ms, r->output_max, err);
}

/* The fields of the request override those of the template. */
static int execute_read_spec(struct execute_request *c, struct err *err)
{
    static const char *const names[] = { "level", "policy", "resources", "driver", "network" };
    auto_json *over = json_object();

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        json_t *v = json_object_get(c->body, names[i]);

        if (v)
            json_object_set(over, names[i], v);
    }
    if (json_object_size(over) > 0 && spec_read(&c->spec, over, SPEC_OF_SANDBOX, &c->policy_error_details, err) < 0)
        return -1;
    if (c->spec.cpu_pinning)
        return err_set(err, ERR_INVALID,
                       "resources.cpuPinning: not available for POST /v1/execute; create a sandbox instead");
    if (!c->spec.runtime[0])
        (void)str_copy(c->spec.runtime, sizeof(c->spec.runtime),
                       c->run_request.language ? c->run_request.language : "python");
    if (c->run_request.code && !c->run_request.language)
        c->run_request.language = language_kernel_language(c->spec.runtime);
    if (c->run_request.code && !c->run_request.language)
        return err_set(err, ERR_INVALID,
                       "language: the runtime %s of the template cannot run code; set language to python, node or bash",
                       c->spec.runtime);
    if (custom_policy_apply_operator_limits(&c->spec, c->api->settings.operator_limits, err) < 0)
        return -1;
    if (!c->run_request.timeout_ms)
        c->run_request.timeout_ms = c->spec.limits.v[LIMIT_WALL];
    if (!c->run_request.output_max)
        c->run_request.output_max = min_u64(c->spec.limits.v[LIMIT_OUTPUT], RUN_OUTPUT_MAX);
    return spec_finish(&c->spec, err);
}

/* A sandbox lives at least as long as its program may run, and at least as long as members of the
 * pools: another lifetime would be another spec. */
static void execute_fit_lifetime(struct execute_request *c)
{
    uint64_t *lifetime = &c->spec.limits.v[LIMIT_LIFETIME];

    if (c->run_request.timeout_ms >= *lifetime)
        *lifetime = min_u64(c->run_request.timeout_ms + 60000, limit_info(LIMIT_LIFETIME)->max);
}

/* --- start --- */

static void execute_record(const struct execute_request *c)
{
    const struct run_request *r = &c->run_request;

    if (r->code)
        audit_trail_add_content(c->req, "code", r->code, strlen(r->code));
    audit_trail_add_strings(c->req, "command", r->argv);
    audit_trail_add_strings(c->req, "env", r->env);
    if (r->input)
        audit_trail_add_content(c->req, "stdin", r->input, r->input_len);
    for (size_t i = 0; i < r->nfiles; i++) {
        char key[32];

        snprintf(key, sizeof(key), "file%zu", i + 1);
        audit_trail_add_content(c->req, key, r->files[i].data, r->files[i].len);
    }
    audit_trail_record_accepted(c->req);
}

static void execute_run(struct execute_request *c)
{
    struct err err = { 0 };

    if (execute_read_spec(c, &err) < 0) {
        execute_refuse(c, &err);
        return;
    }
    api_record_network(c->req, &c->spec.network);
    execute_fit_lifetime(c);
    c->run_request.owner = gateway_tenant(c->req);
    c->run_request.created_by = gateway_actor_id(c->req);
    c->run_request.request_id = http_id(c->req);
    c->run_request.spec = &c->spec;
    c->run_request.template = c->template[0] ? c->template : NULL;
    if (executor_run(c->api->settings.executor, &c->run_request, &execute_run_ops, c, &c->active_run, &err) < 0) {
        execute_refuse(c, &err);
        return;
    }
    execute_record(c);
    http_on_client_gone(c->req, execute_on_client_gone, c);
    http_require_client(c->req);
    open_stream_register(&c->open_stream, c->api->settings.gateway, gateway_principal(c->req), execute_abort, c);
}

static void execute_on_template_checked(void *arg, const struct err *err, const char *details)
{
    struct execute_request *c = arg;

    if (!err) {
        execute_run(c);
        return;
    }
    c->policy_error_details = str_dup(details);
    execute_refuse(c, err);
}

static void execute_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct execute_request *c = arg;
    struct err why = { 0 };

    if (spec_read_template(&c->spec, c->template, err, row, &why) < 0) {
        execute_refuse(c, &why);
    } else {
        c->run_request.generation = row->generation;
        template_check_modules(c->api->host_modules, c->template, &c->spec, ev_now(c->api->settings.ev),
                               execute_on_template_checked, c);
    }
}

static bool execute_answer_by_calculator(const struct execute_request *c)
{
    struct buf out = { 0 };

    if (!execute_tier_calculate(c->run_request.code, &out))
        return false;
    execute_tier_count(c->api, TIER_CALCULATE);
    execute_record(c);
    http_answer_json(c->req, 200, &out);
    return true;
}

static void api_execute(struct http_req *req, void *ctx)
{
    static const char *const names[] = { "code",  "command", "language",  "template",    "level",   "policy",
                                         "env",   "cwd",     "resources", "files",       "stdin",   "outputs",
                                         "cache", "stream",  "timeoutMs", "outputBytes", "receipt", "driver",
                                         "tier",  "network", NULL };
    struct execute_request *c = mem_new(struct execute_request);
    const char *template = NULL;
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    c->mode = follow_mode_of_request(req);
    spec_init(&c->spec);
    output_pump_init(&c->stream.pump, NULL, &output_response_message_ops, &c->stream, NULL, NULL);
    if (!c->api->settings.executor)
        err_set(&err, ERR_BUSY, "this server has no executor");
    else if (http_header(req, "Idempotency-Key"))
        err_set(&err, ERR_INVALID,
                "Idempotency-Key: POST /v1/execute stores nothing that the same request could find again; omit it, or "
                "use POST /v1/sandboxes/{id}/executions, which accepts it");
    if (err.id || unread_responses_check(c->api->settings.gateway, gateway_tenant(req), &err) < 0 ||
        http_query_require_none(req, &err) < 0 || api_read_body(req, &c->body, &err) < 0 ||
        json_input_require_known_fields(c->body, "", names, &err) < 0 || execute_read_program(c, &err) < 0 ||
        execute_read_files(c, &err) < 0 || execute_read_options(c, &err) < 0 ||
        json_input_text(c->body, "", "template", 1, STORE_NAME_MAX, &template, &err) < 0 ||
        execute_tier_read(c->body, &c->tier, &err) < 0 ||
        execute_tier_apply(c->body, c->tier, &c->run_request, &template, &err) < 0) {
        execute_refuse(c, &err);
    } else if (c->tier == TIER_AUTO && c->mode == FOLLOW_ANSWER && execute_answer_by_calculator(c)) {
        execute_request_free(c);
    } else if (template) {
        (void)str_copy(c->template, sizeof(c->template), template);
        template_cache_get(c->api->template_cache, template, ev_now(c->api->settings.ev), execute_on_template, c);
    } else {
        execute_run(c);
    }
}

const struct http_route execute_routes[] = {
    { "POST", "/v1/execute", api_execute, HTTP_BODY_BUFFERED, JSON_INPUT_SIZE_MAX, "application/json",
      &permission_execute },
    { 0 },
};
