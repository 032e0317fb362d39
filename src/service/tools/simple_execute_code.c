/* simple_execute_code: Python in the lightweight tier. The code is checked by Python's own parser
 * in a fresh sandbox of the template snippet and then runs there; refused code does not run, and
 * the answer has the report and a safe alternative. The keys are those of the tool of this name
 * that agents already know. */
#include "service/tools/tool_result.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/execute/executor.h"
#include "service/language_kernel.h"
#include "service/template_cache.h"

#define SIMPLE_CODE_MAX (64 * KIB)
#define SIMPLE_TIMEOUT_MS 10000u

/* clang-format off */
static const char simple_execute_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "code": {"type": "string", "minLength": 1, "maxLength": 65536, "description": "Python code. The value of its last expression is returned."},
        "language": {"type": "string", "description": "Only python. Default: python."}
    },
    "required": ["code"],
    "additionalProperties": false
});

static const char simple_execute_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "output": {"type": "string", "description": "Standard output."},
        "error": {"type": "string", "description": "The traceback, standard error, or why the code was refused; empty after success."},
        "success": {"type": "boolean"},
        "exit_code": {"type": ["integer", "null"], "description": "Null: nothing ran, or it was stopped."},
        "execution_mode": {"enum": ["sandbox", "cache", "refused"]},
        "value": {"type": ["string", "null"], "description": "The value of the last expression."},
        "security_note": {"type": "string"},
        "safe_alternative": {"type": "string"},
        "report": {"type": "object", "description": "The report of the check, as POST /v1/validate returns it."},
        "truncated": {"type": "boolean"}
    },
    "required": ["output", "error", "success", "exit_code", "execution_mode"]
});
/* clang-format on */

struct simple_execute {
    struct tool_call *call; /* NULL: cancelled while the template is being looked up */
    bool is_looking_up;
    const char *code;
    struct spec spec;
    struct run *run;
};

static void simple_execute_free(struct simple_execute *x)
{
    spec_done(&x->spec);
    free(x);
}

static void simple_execute_stop(void *work)
{
    struct simple_execute *x = work;

    if (x->run)
        run_cancel(take_ptr(&x->run));
    x->call = NULL;
    if (!x->is_looking_up)
        simple_execute_free(x);
}

/* --- the answer --- */

static void simple_execute_finish(struct tool_call *c, json_t *answer)
{
    auto_json *owned = answer;
    auto_free char *text = json_dumps(owned, JSON_COMPACT);

    buf_clear(&c->answer.json);
    buf_adds(&c->answer.json, text ? text : "{}");
    tool_call_finish(c);
}

static json_t *simple_execute_answer(const char *output, const char *error, bool success, const char *mode)
{
    json_t *a = json_object();

    json_object_set_new(a, "output", json_string(output));
    json_object_set_new(a, "error", json_string(error));
    json_object_set_new(a, "success", json_boolean(success));
    json_object_set_new(a, "exit_code", json_null());
    json_object_set_new(a, "execution_mode", json_string(mode));
    return a;
}

static void simple_execute_refuse(struct simple_execute *x, const struct code_report *report)
{
    const struct report_violation *first = code_report_first_refusal(report);
    const char *alternative = code_report_alternative(report);
    struct tool_answer *a = &x->call->answer;
    struct err err = { 0 };
    auto_buf text = { 0 };
    struct jsonw w;

    (void)code_report_refusal(report, &err);
    json_t *answer = simple_execute_answer("", err.msg, false, "refused");
    if (first && first->rule == REPORT_RULE_SYNTAX)
        json_object_set_new(answer, "exit_code", json_integer(1));
    json_object_set_new(answer, "security_note",
                        json_string("Nothing of the code ran. The check reports early; the walls of the sandbox are "
                                    "the boundary. code_executor runs the code as it is in a full sandbox."));
    if (alternative)
        json_object_set_new(answer, "safe_alternative", json_string(alternative));
    jsonw_init(&w, &text, 0);
    code_report_write(report, &w);
    json_object_set_new(answer, "report", tool_text_load_json(&text));
    a->is_error = true;
    buf_addf(&a->text, "Refused, nothing ran: %s\n", err.msg);
    if (alternative)
        buf_addf(&a->text, "Safe alternative: %s\n", alternative);
    if (!first || first->rule != REPORT_RULE_SYNTAX)
        buf_adds(&a->text, "To run it as it is, call code_executor.");
    simple_execute_finish(x->call, answer);
}

static const char *simple_execute_text(const json_t *object, const char *name)
{
    const char *s = json_string_value(json_object_get(object, name));

    return s ? s : "";
}

static const char *simple_execute_error(const json_t *result)
{
    const char *traceback = simple_execute_text(json_object_get(result, "exception"), "traceback");
    const char *why = simple_execute_text(json_object_get(result, "error"), "message");

    return *traceback ? traceback : *why ? why : simple_execute_text(result, "stderr");
}

static void simple_execute_reshape(struct simple_execute *x, const struct run_result *r)
{
    struct tool_answer *a = &x->call->answer;
    auto_json *result = json_loadb(a->json.data, a->json.len, 0, NULL);
    bool success = str_eq(simple_execute_text(result, "outcome"), "success");
    json_t *answer = simple_execute_answer(simple_execute_text(result, "stdout"),
                                           success ? "" : simple_execute_error(result), success,
                                           r->from_cache ? "cache" : "sandbox");
    static const char *const same[][2] = {
        { "exit_code", "exitCode" }, { "value", "value" }, { "truncated", "truncated" }, { "report", "report" }
    };

    if (json_array_size(json_object_get(json_object_get(result, "report"), "violations")) == 0)
        json_object_del(result, "report");
    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        if (json_object_get(result, same[i][1]))
            json_object_set(answer, same[i][0], json_object_get(result, same[i][1]));
    simple_execute_finish(x->call, answer);
}

static void simple_execute_read_member(const void *arg, int channel, uint64_t offset, size_t len, struct buf *out)
{
    const json_t *text = ((const json_t *const *)arg)[channel - 1];

    buf_add(out, json_string_value(text) + offset, len);
}

static void simple_execute_on_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct simple_execute *x = arg;
    auto_buf text = { 0 };

    x->run = NULL;
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    (void)str_copy(x->call->answer.execution, sizeof(x->call->answer.execution), r->id);
    if (r->is_refused) {
        simple_execute_refuse(x, r->report);
        return;
    }
    buf_add(&text, r->json->data, r->json->len);
    buf_adds(&text, "}");
    json_t *result = tool_text_load_json(&text);
    json_t *output[2] = { json_incref(json_object_get(result, "stdout")),
                          json_incref(json_object_get(result, "stderr")) };
    struct tool_streams streams = { .bytes = { json_string_length(output[0]), json_string_length(output[1]) },
                                    .read = simple_execute_read_member,
                                    .arg = output };

    tool_result_make(&x->call->answer, result, &streams, x->call->tools->settings.output_bytes, "Print less.");
    json_decref(output[0]);
    json_decref(output[1]);
    simple_execute_reshape(x, r);
}

/* --- the start --- */

static int simple_execute_run(struct simple_execute *x, const struct store_template *row, struct err *err)
{
    static const struct run_ops ops = { .on_end = simple_execute_on_end };
    const struct tool_call *c = x->call;
    struct run_request request = { .owner = c->request.tenant,
                                   .created_by = c->request.created_by,
                                   .request_id = c->request.request_id,
                                   .spec = &x->spec,
                                   .template = row->name,
                                   .generation = row->generation,
                                   .code = x->code,
                                   .language = "python",
                                   .timeout_ms = SIMPLE_TIMEOUT_MS,
                                   .receipt = RECEIPT_NONE,
                                   .is_cacheable = true,
                                   .cached_if_pure = true,
                                   .check = RUN_CHECK_FIRST };

    if (custom_policy_apply_operator_limits(&x->spec, c->tools->settings.operator_limits, err) < 0 ||
        spec_finish(&x->spec, err) < 0)
        return -1;
    request.output_max = min_u64(x->spec.limits.v[LIMIT_OUTPUT], RUN_OUTPUT_MAX);
    return executor_run(c->tools->settings.executor, &request, &ops, x, &x->run, err);
}

static void simple_execute_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct simple_execute *x = arg;
    struct err why = { 0 };

    x->is_looking_up = false;
    if (!x->call)
        simple_execute_free(x);
    else if (spec_read_template(&x->spec, "snippet", err, row, &why) < 0 || simple_execute_run(x, row, &why) < 0)
        tool_call_fail(x->call, &why);
}

static void simple_execute_refuse_language(struct tool_call *c, const char *language)
{
    auto_free char *why = str_printf("only Python is supported, not %.40s; code_executor runs node and bash", language);

    str_strip_control_chars(why);
    c->answer.is_error = true;
    buf_adds(&c->answer.text, why);
    simple_execute_finish(c, simple_execute_answer("", why, false, "refused"));
}

static int simple_execute_start(struct tool_call *c, struct err *err)
{
    const json_t *a = c->request.arguments;
    const char *language = "python", *known;
    struct simple_execute *x;

    if (json_input_text(a, "", "language", 1, 40, &language, err) < 0)
        return -1;
    x = mem_new(struct simple_execute);
    x->call = c;
    spec_init(&x->spec);
    c->work = x;
    c->stop = simple_execute_stop;
    if (json_input_text(a, "", "code", 1, SIMPLE_CODE_MAX, &x->code, err) < 0)
        return -1;
    if (!c->tools->settings.executor)
        return err_set(err, ERR_BUSY, "this server has no executor");
    known = language_kernel_language(language);
    if (!known || !str_eq(known, "python")) {
        simple_execute_refuse_language(c, language);
        return 0;
    }
    x->is_looking_up = true;
    template_cache_get(c->tools->settings.template_cache, "snippet", ev_now(c->tools->settings.ev),
                       simple_execute_on_template, x);
    return 0;
}

const struct tool_definition tool_simple_execute_code = {
    .tool = { .name = "simple_execute_code",
              .title = "Execute simple Python",
              .description =
                  "Runs a short piece of Python for calculations, data structures, strings and algorithms, and returns "
                  "its output. Standard library modules without files, network and processes are allowed. 10 seconds, "
                  "100 MiB, no files, no network. Code that uses more is refused before it runs, with a safe "
                  "alternative. Use code_executor for files, other modules and other languages.",
              .input_schema = simple_execute_input,
              .output_schema = simple_execute_output,
              .place = TOOL_IN_FRESH,
              .rights = TOOL_EXECUTES },
    .start = simple_execute_start,
};
