/* POST /v1/validate: what code would use that the tier simple does not give it.
 *
 * Python is parsed by its own parser in a fresh sandbox of the template snippet, because a parser
 * of hostile text belongs behind walls. Of other languages only the syntax is checked, by their own
 * programs in a sandbox. The code is not executed. */
#include "server/api/execute_tier.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/language_kernel.h"
#include "service/template_cache.h"
#include "service/template_check.h"

struct validate_request {
    struct http_req *req;
    struct api *api;
    json_t *body;
    char template[STORE_NAME_MAX + 1];
    struct spec spec;
    struct run_request run_request;
    struct run *active_run;
    struct open_stream open_stream;
    bool is_arithmetic;
};

static void validate_request_free(struct validate_request *c)
{
    open_stream_unregister(&c->open_stream);
    json_decref(c->body);
    spec_done(&c->spec);
    free(c);
}

static void validate_refuse(struct validate_request *c, const struct err *err)
{
    char seconds[24];

    if (err->id == ERR_EXECUTOR_FULL) {
        snprintf(seconds, sizeof(seconds), "%" PRIu64, (executor_retry_ms(c->api->settings.executor) + 999) / 1000);
        http_set_header(c->req, "Retry-After", seconds);
    }
    http_answer_err(c->req, err);
    validate_request_free(c);
}

static void validate_answer(struct validate_request *c, const struct code_report *r)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    code_report_write(r, &w);
    http_answer_json(c->req, 200, &out);
    validate_request_free(c);
}

/* --- other languages --- */

static const struct validate_program {
    const char *language;
    const char *argv[4];
} validate_programs[] = {
    { "bash", { "bash", "-n", NULL } },
    { "node", { "node", "--check", "-", NULL } },
};

static const char *const *validate_find_program(const char *language)
{
    for (size_t i = 0; i < ARRAY_LEN(validate_programs); i++)
        if (str_eq(validate_programs[i].language, language))
            return validate_programs[i].argv;
    return NULL;
}

/* "bash: line 3: ..." or "[stdin]:3". 0: there is none. */
static uint32_t validate_error_line(const char *text)
{
    static const char *const marks[] = { "line ", "[stdin]:" };
    uint64_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
        const char *p = strstr(text, marks[i]);

        if (p && (p += strlen(marks[i]), str_eat_u64(&p, 1000000, &n)))
            return (uint32_t)n;
    }
    return 0;
}

/* The line that says what is wrong: the last with "rror". */
static char *validate_error_text(const char *text)
{
    const char *found = text;

    for (const char *p = text; (p = strstr(p, "rror")) != NULL; p++)
        found = p;
    while (found > text && found[-1] != '\n')
        found--;
    return str_dup_n(found, min_size(strcspn(found, "\n"), REPORT_SUBJECT_MAX - 1));
}

/* Output of a sandbox: hostile input. */
static void validate_read_syntax(const struct run_result *r, struct code_report *report)
{
    auto_buf text = { 0 };
    auto_json *result = NULL;
    struct err err = { 0 };

    buf_add(&text, r->json->data, r->json->len);
    buf_adds(&text, "}");
    if (json_input_parse(text.data, text.len, &result, &err) < 0) {
        code_report_add(report, REPORT_RULE_CHECK_FAILED, 0, 0, "");
        return;
    }
    const char *outcome = json_string_value(json_object_get(result, "outcome"));
    const char *said = json_string_value(json_object_get(result, "stderr"));
    if (outcome && str_eq(outcome, "success"))
        return;
    bool ended = json_is_integer(json_object_get(result, "exitCode"));
    auto_free char *line = validate_error_text(said ? said : "");
    code_report_add(report, ended ? REPORT_RULE_SYNTAX : REPORT_RULE_CHECK_FAILED, said ? validate_error_line(said) : 0,
                    0, line);
}

/* --- the run --- */

static void validate_on_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct validate_request *c = arg;

    c->active_run = NULL;
    http_on_client_gone(c->req, NULL, NULL);
    if (err) {
        validate_refuse(c, err);
        return;
    }
    audit_trail_add_target(c->req, "execution", r->id);
    if (r->report) {
        struct code_report report = *r->report;

        report.is_arithmetic = c->is_arithmetic;
        validate_answer(c, &report);
    } else {
        auto_(code_report) report = code_report_new(c->run_request.language, REPORT_SYNTAX);

        validate_read_syntax(r, report);
        validate_answer(c, report);
    }
}

static const struct run_ops validate_run_ops = { .on_end = validate_on_end };

static void validate_abort(void *arg, const struct err *why)
{
    struct validate_request *c = arg;

    if (c->active_run)
        run_cancel(take_ptr(&c->active_run));
    if (why)
        http_answer_err(c->req, why);
    validate_request_free(c);
}

static void validate_on_client_gone(void *arg)
{
    validate_abort(arg, NULL);
}

static void validate_run(struct validate_request *c)
{
    struct err err = { 0 };

    c->run_request.owner = gateway_tenant(c->req);
    c->run_request.created_by = gateway_actor_id(c->req);
    c->run_request.request_id = http_id(c->req);
    c->run_request.spec = &c->spec;
    c->run_request.template = c->template;
    c->run_request.timeout_ms = TIER_TIMEOUT_MAX_MS;
    c->run_request.output_max = 64 * KIB;
    c->run_request.receipt = RECEIPT_NONE;
    if (custom_policy_apply_operator_limits(&c->spec, c->api->settings.operator_limits, &err) < 0 ||
        spec_finish(&c->spec, &err) < 0 ||
        executor_run(c->api->settings.executor, &c->run_request, &validate_run_ops, c, &c->active_run, &err) < 0) {
        validate_refuse(c, &err);
        return;
    }
    audit_trail_record_accepted(c->req);
    http_on_client_gone(c->req, validate_on_client_gone, c);
    http_require_client(c->req);
    open_stream_register(&c->open_stream, c->api->settings.gateway, gateway_principal(c->req), validate_abort, c);
}

static void validate_on_template_checked(void *arg, const struct err *err, const char *details UNUSED)
{
    if (err)
        validate_refuse(arg, err);
    else
        validate_run(arg);
}

static void validate_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct validate_request *c = arg;
    struct err why = { 0 };

    if (spec_read_template(&c->spec, c->template, err, row, &why) < 0) {
        validate_refuse(c, &why);
        return;
    }
    c->run_request.generation = row->generation;
    template_check_modules(c->api->host_modules, c->template, &c->spec, ev_now(c->api->settings.ev),
                           validate_on_template_checked, c);
}

/* --- the request --- */

static int validate_read(struct validate_request *c, struct err *err)
{
    static const char *const names[] = { "code", "language", "template", NULL };
    const char *language = "python", *template = NULL;
    struct run_request *r = &c->run_request;

    if (json_input_require_known_fields(c->body, "", names, err) < 0 ||
        json_input_text(c->body, "", "code", 1, TIER_CODE_MAX, &r->code, err) < 0 ||
        json_input_text(c->body, "", "language", 1, 40, &language, err) < 0 ||
        json_input_text(c->body, "", "template", 1, STORE_NAME_MAX, &template, err) < 0)
        return -1;
    if (!r->code)
        return err_set(err, ERR_INVALID, "code is required");
    r->language = language_kernel_language(language);
    if (!r->language) {
        err_set(err, ERR_CODE_LANGUAGE, "language: '%.40s' cannot be checked; use python, node or bash", language);
        err_sanitize(err);
        return -1;
    }
    bool python = str_eq(r->language, "python");
    if (template && (!python || (!str_eq(template, tier_template) && !execute_tier_has_data(template))))
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "template: Python is checked for snippet or python-data; name one of them");
    (void)str_copy(c->template, sizeof(c->template), !python ? r->language : template ? template : tier_template);
    r->check = python ? RUN_CHECK_ONLY : RUN_CHECK_NONE;
    r->check_has_data = execute_tier_has_data(template);
    return 0;
}

static bool validate_scan(struct validate_request *c)
{
    auto_(code_report) report = code_report_new("python", REPORT_FULL);

    if (!code_report_scan(report, c->run_request.code))
        return false;
    validate_answer(c, report);
    return true;
}

static void api_validate(struct http_req *req, void *ctx)
{
    struct validate_request *c = mem_new(struct validate_request);
    struct run_request *r = &c->run_request;
    struct err err = { 0 };

    c->req = req;
    c->api = ctx;
    spec_init(&c->spec);
    if (!c->api->settings.executor)
        err_set(&err, ERR_BUSY, "this server has no executor");
    if (err.id || http_query_require_none(req, &err) < 0 || api_read_body(req, &c->body, &err) < 0 ||
        validate_read(c, &err) < 0) {
        validate_refuse(c, &err);
        return;
    }
    audit_trail_add_content(req, "code", r->code, strlen(r->code));
    c->is_arithmetic = r->check == RUN_CHECK_ONLY && execute_tier_is_arithmetic(r->code);
    if (r->check == RUN_CHECK_ONLY && !c->is_arithmetic && validate_scan(c))
        return;
    if (r->check == RUN_CHECK_NONE) {
        r->argv = validate_find_program(r->language);
        r->input = r->code;
        r->input_len = strlen(r->code);
        r->code = NULL;
    }
    template_cache_get(c->api->template_cache, c->template, ev_now(c->api->settings.ev), validate_on_template, c);
}

const struct http_route validate_routes[] = {
    { "POST", "/v1/validate", api_validate, HTTP_BODY_BUFFERED, 256 * KIB, "application/json", &permission_execute },
    { 0 },
};
