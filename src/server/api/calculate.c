/* POST /v1/calculate: the exact calculator (core/calc). It is computed on the loop: the work of an
 * accepted expression is bounded before it begins. Nothing changes, so no success is recorded. */
#include "server/api/api_internal.h"

#include "core/base/metrics.h"
#include "core/calc/calc.h"

#define CALCULATE_BODY_MAX (32 * KIB) /* the longest expression with every byte escaped */

static const char *const calculate_fields[] = { "expression", "problem", "digits", "steps", NULL };
static const char *const calculate_outcomes[] = { "success", "not_understood", "refused", "too_large" };

enum calculate_outcome {
    CALCULATE_SUCCESS,
    CALCULATE_NOT_UNDERSTOOD,
    CALCULATE_REFUSED,
    CALCULATE_TOO_LARGE,
};

/* *ret borrows from the body. */
static int calculate_read(const json_t *body, struct calc_settings *set, const char **ret, struct err *err)
{
    const char *expression = NULL, *problem = NULL;
    uint64_t digits = CALC_DIGITS_DEFAULT;

    if (json_input_require_known_fields(body, "", calculate_fields, err) < 0 ||
        json_input_text(body, "", "expression", 1, CALC_INPUT_MAX, &expression, err) < 0 ||
        json_input_text(body, "", "problem", 1, CALC_INPUT_MAX, &problem, err) < 0 ||
        json_input_u64(body, "", "digits", 1, CALC_DIGITS_MAX, &digits, NULL, err) < 0 ||
        json_input_bool(body, "", "steps", &set->steps, err) < 0)
        return -1;
    if (!expression == !problem)
        return err_set(err, ERR_INVALID, "give either expression, a formula, or problem, text in words");
    set->digits = (unsigned)digits;
    set->words = problem != NULL;
    *ret = problem ? problem : expression;
    return 0;
}

static void calculate_answer(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct calc_settings set = { .work = CALC_WORK_SERVER };
    auto_json *body = NULL;
    const char *text = NULL;
    struct calc_result result;
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    if (api_read_body(req, &body, &err) < 0 || calculate_read(body, &set, &text, &err) < 0) {
        api->calculations[CALCULATE_REFUSED]++;
        http_answer_err(req, &err);
        return;
    }
    if (calc_solve(text, strlen(text), &set, &result, &err) < 0) {
        api->calculations[err.id == ERR_CALC_LIMIT ? CALCULATE_TOO_LARGE : CALCULATE_REFUSED]++;
        err_sanitize(&err); /* the message quotes the text */
        http_answer_err(req, &err);
        return;
    }
    api->calculations[result.answer ? CALCULATE_SUCCESS : CALCULATE_NOT_UNDERSTOOD]++;
    api_object_begin(&w, &out);
    calc_result_json(&result, &w);
    api_object_end(req, 200, &w);
    calc_result_done(&result);
}

void calculate_write_metrics(const struct api *api, struct buf *out)
{
    metrics_family(out, "calculate_total", NULL, "Requests to compute an expression, by outcome.");
    for (size_t i = 0; i < ARRAY_LEN(calculate_outcomes); i++)
        buf_addf(out, "cove_calculate_total{outcome=\"%s\"} %" PRIu64 "\n", calculate_outcomes[i],
                 api->calculations[i]);
}

void calculate_write_capabilities(struct jsonw *w)
{
    jsonw_kobject(w, "calculator");
    jsonw_ku64(w, "maxBytes", CALC_INPUT_MAX);
    jsonw_ku64(w, "maxDigits", CALC_DIGITS_MAX);
    jsonw_ku64(w, "maxValueDigits", CALC_VALUE_DIGITS_MAX);
    jsonw_karray(w, "functions");
    for (const char *const *name = calc_function_names(); *name; name++)
        jsonw_str(w, *name);
    jsonw_end_array(w);
    jsonw_end_object(w);
}

const struct http_route calculate_routes[] = {
    { "POST", "/v1/calculate", calculate_answer, HTTP_BODY_BUFFERED, CALCULATE_BODY_MAX, "application/json",
      &permission_executions },
    { 0 },
};
