#include "server/api/execute_tier.h"

#include "core/base/clock.h"
#include "core/base/id.h"
#include "core/base/str.h"
#include "core/calc/calc.h"
#include "service/language_kernel.h"
#include "service/result.h"

#include <ctype.h>

const char tier_template[] = "snippet";
const char tier_data_template[] = "python-data";

int execute_tier_read(const json_t *body, enum code_tier *ret, struct err *err)
{
    static const char *const names[] = { "simple", "full", "auto", NULL };
    static const enum code_tier tiers[] = { TIER_SIMPLE, TIER_FULL, TIER_AUTO };
    unsigned i = 0;

    *ret = TIER_NONE;
    if (!json_object_get(body, "tier"))
        return 0;
    if (json_input_enum(body, "", "tier", names, &i, err) < 0)
        return -1;
    *ret = tiers[i];
    return 0;
}

bool execute_tier_has_data(const char *template)
{
    return template && str_eq(template, tier_data_template);
}

static int execute_tier_check_fields(const json_t *body, enum code_tier tier, struct err *err)
{
    static const char *const full_only[] = { "command", "files",  "outputs",   "env",    "cwd",
                                             "level",   "driver", "resources", "policy", "network" };

    for (size_t i = 0; i < ARRAY_LEN(full_only); i++)
        if (json_object_get(body, full_only[i]))
            return err_set(err, ERR_NOT_SUPPORTED_YET,
                           "%s: tier %s does not have it; omit it, or use \"tier\": \"full\"", full_only[i],
                           code_tier_names[tier]);
    return 0;
}

int execute_tier_apply(const json_t *body, enum code_tier tier, struct run_request *r, const char **template,
                       struct err *err)
{
    bool said_cache = json_object_get(body, "cache") != NULL;

    if (tier != TIER_SIMPLE && tier != TIER_AUTO)
        return 0;
    if (execute_tier_check_fields(body, tier, err) < 0)
        return -1;
    if (r->language && !str_eq(r->language, "python"))
        return err_set(err, ERR_CODE_LANGUAGE,
                       "language: tier %s runs Python, not %s; repeat POST /v1/execute with \"tier\": \"full\"",
                       code_tier_names[tier], r->language);
    if (*template && !str_eq(*template, tier_template) && !execute_tier_has_data(*template))
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "template: tier %s runs code in snippet or python-data; use one of them, or "
                       "\"tier\": \"full\"",
                       code_tier_names[tier]);
    if (strlen(r->code) > TIER_CODE_MAX)
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "code: %zu bytes; tier %s takes at most %llu, so use \"tier\": \"full\"", strlen(r->code),
                       code_tier_names[tier], TIER_CODE_MAX);
    if (r->timeout_ms > TIER_TIMEOUT_MAX_MS)
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "timeoutMs: at most %d with tier %s; use \"tier\": \"full\" for more", TIER_TIMEOUT_MAX_MS,
                       code_tier_names[tier]);
    if (!*template)
        *template = tier_template;
    if (!r->timeout_ms)
        r->timeout_ms = TIER_TIMEOUT_MAX_MS;
    r->language = "python";
    r->check = RUN_CHECK_FIRST;
    r->check_has_data = execute_tier_has_data(*template);
    r->cached_if_pure = !said_cache;
    r->is_cacheable = (r->is_cacheable || !said_cache) && !r->streamed;
    return 0;
}

/* --- the calculator --- */

/* Whether the text may be Python with another meaning than it has for the calculator: `^` is not a
 * power there, 1,000 is a pair, and lines are statements. Two words side by side are not Python. */
static bool execute_tier_is_ambiguous(const char *code, size_t len)
{
    bool has_other_meaning = false, has_words = false;

    for (size_t i = 0; i < len; i++) {
        if (code[i] == '\n' || code[i] == '\r')
            return true;
        has_other_meaning |= code[i] == '^' || (code[i] == ',' && isdigit((unsigned char)code[i + 1]));
        if (i > 0 && strchr(" \t", code[i]) && isalnum((unsigned char)code[i - 1]))
            has_words |= isalnum((unsigned char)code[i + strspn(code + i, " \t")]) != 0;
    }
    return has_other_meaning && !has_words;
}

/* Only numbers: the answer to a comparison is spelled differently in Python. */
static bool execute_tier_solve(const char *code, struct calc_result *ret)
{
    struct calc_settings set = { .words = true };
    struct err err = { 0 };
    size_t len = strlen(code);

    while (len > 0 && strchr(" \t\r\n", code[len - 1]))
        len--;
    if (len == 0 || len > CALC_INPUT_MAX || execute_tier_is_ambiguous(code, len) ||
        calc_solve(code, len, &set, ret, &err) < 0)
        return false;
    if (ret->answer && (ret->type == CALC_ARITHMETIC || ret->type == CALC_PERCENTAGE || ret->type == CALC_FUNCTION))
        return true;
    calc_result_done(ret);
    return false;
}

bool execute_tier_is_arithmetic(const char *code)
{
    struct calc_result r = { 0 };

    if (!execute_tier_solve(code, &r))
        return false;
    calc_result_done(&r);
    return true;
}

/* {"type":"result","count":1,"data":{"text/plain":...},"meta":{}} */
static void execute_tier_add_value(struct result_output *output, const char *answer)
{
    auto_buf event = { 0 };
    struct jsonw w;

    jsonw_init(&w, &event, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "result");
    jsonw_ku64(&w, "count", 1);
    jsonw_kobject(&w, "data");
    jsonw_kstr(&w, "text/plain", answer);
    jsonw_end_object(&w);
    jsonw_kobject(&w, "meta");
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    result_output_add_event(output, "result", event.data, event.len, true);
}

static void execute_tier_write_calculation(const struct calc_result *r, struct jsonw *w)
{
    struct result_output output = { 0 };
    uint64_t now = clock_real_ms();
    char id[ID_SIZE];

    id_new("ex", id);
    execute_tier_add_value(&output, r->answer);
    result_write(&(struct result){ .id = id,
                                   .has_ended = true,
                                   .ended_by = ended_by_name(ENDED_EXIT),
                                   .output = &output,
                                   .started_ms = now,
                                   .ended_ms = now },
                 w);
    result_output_done(&output);
}

bool execute_tier_calculate(const char *code, struct buf *ret)
{
    struct calc_result r = { 0 };
    struct jsonw w;

    if (!execute_tier_solve(code, &r))
        return false;
    jsonw_init(&w, ret, 0);
    jsonw_object(&w);
    execute_tier_write_calculation(&r, &w);
    jsonw_kbool(&w, "cached", false);
    jsonw_ku64(&w, "queuedMs", 0);
    jsonw_kstr(&w, "answeredBy", code_tier_names[TIER_CALCULATE]);
    jsonw_kobject(&w, "calculation");
    calc_result_json(&r, &w);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    calc_result_done(&r);
    return true;
}

/* --- answers --- */

const char *execute_tier_name(enum code_tier answered_by)
{
    return answered_by == TIER_NONE ? "check" : code_tier_names[answered_by];
}

void execute_tier_count(struct api *api, enum code_tier tier)
{
    api->tier_answers[tier]++;
}
