/* mathematical_solve: the exact calculator. The work of an accepted problem is bounded, so it is
 * computed inside of the call that starts it. */
#include "service/tools/tool_internal.h"

#include "core/base/str.h"
#include "core/calc/calc.h"

/* clang-format off */
static const char mathematical_solve_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "problem": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "A formula such as (1/3 + 1/6) * 12 or sqrt(2) ** 3, or a short problem in English words such as: What is 15 percent of 80?"}
    },
    "required": ["problem"],
    "additionalProperties": false
});
static const char mathematical_solve_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "answer": {"type": ["string", "null"], "description": "Exact if possible: a decimal that ends, else a fraction; a value that is not rational is rounded. null: the problem has no answer."},
        "reasoning_steps": {"type": "array", "items": {"type": "string"}},
        "confidence": {"type": "number", "description": "0.95 for a formula, 0.85 for words, 0.1 without an answer."},
        "problem_type": {"enum": ["arithmetic", "percentage", "function", "comparison", "unknown"]},
        "solution_method": {"enum": ["expression", "words", "none"]},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "required": ["answer", "reasoning_steps", "confidence", "problem_type", "solution_method"]
});
/* clang-format on */

static void mathematical_solve_write_steps(const struct calc_result *r, struct jsonw *w)
{
    jsonw_karray(w, "reasoning_steps");
    if (r->method == CALC_BY_WORDS) {
        auto_free char *read = str_printf("The problem means %.300s", r->expression);

        jsonw_str(w, read);
    }
    for (size_t i = 0; i < r->nsteps; i++)
        jsonw_str(w, r->steps[i]);
    if (r->omitted_steps) {
        auto_free char *omitted = str_printf("%zu more steps", r->omitted_steps);

        jsonw_str(w, omitted);
    }
    if (r->exact && r->decimal && !r->decimal_exact) {
        auto_free char *rounded = str_printf("%.300s \u2248 %s", r->answer, r->decimal);

        jsonw_str(w, rounded);
    }
    if (r->explanation)
        jsonw_str(w, r->explanation);
    jsonw_end_array(w);
}

static void mathematical_solve_write(struct tool_call *c, const struct calc_result *r, const struct err *err)
{
    struct jsonw w;

    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_key(&w, "answer");
    if (r->answer)
        jsonw_str(&w, r->answer);
    else
        jsonw_null(&w);
    mathematical_solve_write_steps(r, &w);
    jsonw_kraw(&w, "confidence", calc_confidence(r));
    jsonw_kstr(&w, "problem_type", calc_type_name(r->type));
    jsonw_kstr(&w, "solution_method", calc_method_name(r->method));
    if (err) {
        jsonw_kobject(&w, "error");
        jsonw_kstr(&w, "code", err_info(err->id)->code);
        jsonw_kstr(&w, "message", err->msg);
        jsonw_end_object(&w);
    }
    jsonw_end_object(&w);
}

static void mathematical_solve_write_text(struct tool_call *c, const struct calc_result *r)
{
    struct buf *text = &c->answer.text;

    if (!r->answer)
        buf_adds(text, r->explanation);
    else if (r->exact)
        buf_adds(text, r->answer);
    else
        buf_addf(text, "\u2248 %s", r->answer);
    if (r->exact && r->decimal && !r->decimal_exact)
        buf_addf(text, " \u2248 %s", r->decimal);
    if (r->error_bound)
        buf_addf(text, " (within %s)", r->error_bound);
    if (r->method == CALC_BY_WORDS)
        buf_addf(text, "\nThe problem was read as: %s", r->expression);
}

static int mathematical_solve_start(struct tool_call *c, struct err *err)
{
    struct calc_settings set = { .work = CALC_WORK_SERVER, .steps = true, .words = true };
    const char *problem = NULL;
    struct calc_result r = { 0 };
    struct err failed = { 0 };

    if (json_input_text(c->request.arguments, "", "problem", 1, CALC_INPUT_MAX, &problem, err) < 0)
        return -1;
    if (calc_solve(problem, strlen(problem), &set, &r, &failed) < 0) {
        err_sanitize(&failed);
        c->answer.is_error = true;
        r = (struct calc_result){ .type = CALC_UNKNOWN, .method = CALC_BY_NONE };
        mathematical_solve_write(c, &r, &failed);
        buf_adds(&c->answer.text, failed.msg);
    } else {
        c->answer.is_error = !r.answer;
        mathematical_solve_write(c, &r, NULL);
        mathematical_solve_write_text(c, &r);
    }
    calc_result_done(&r);
    tool_call_finish(c);
    return 0;
}

const struct tool_definition tool_mathematical_solve = {
    .tool = { .name = "mathematical_solve",
              .title = "Calculate exactly",
              .description =
                  "Computes a formula or a short arithmetic problem in English words with exact fractions, without a "
                  "sandbox. Knows + - * / // % ** !, percentages, fractions, roots, logarithms, angles, gcd, "
                  "binomial, mean, median and comparisons. Results that are not rational are correctly rounded. A text "
                  "with more than one reading is refused; write it as a formula with parentheses. Numbers have at "
                  "most 10,000 digits. Use run_code for variables, equations, algebra and larger calculations.",
              .input_schema = mathematical_solve_input,
              .output_schema = mathematical_solve_output,
              .place = TOOL_ON_SERVER,
              .rights = TOOL_EXECUTES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = mathematical_solve_start,
};
