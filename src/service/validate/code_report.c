#include "service/validate/code_report.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define LINE_MAX_NUMBER 1000000000 /* of a line or a column */

const char *const code_severity_names[] = { "low", "medium", "high", "critical", NULL };
const char *const code_tier_names[] = { "none", "calculate", "simple", "full", "auto" };

static const struct report_rule_info {
    const char *name;
    enum code_severity severity;
    const char *description, *recommendation;
} report_rules[] = {
#define RULE(id, name, severity, description, recommendation) \
    { name, SEVERITY_##severity, description, recommendation },
#define ALTERNATIVE(rule, subject, text)
#include "service/validate/rules.def"
#undef RULE
#undef ALTERNATIVE
};

static const struct report_alternative_row {
    enum report_rule rule;
    const char *subject, *text;
} report_alternatives[] = {
#define RULE(id, name, severity, description, recommendation)
#define ALTERNATIVE(rule, subject, text) { REPORT_RULE_##rule, subject, text },
#include "service/validate/rules.def"
#undef RULE
#undef ALTERNATIVE
};

const char *code_report_rule_name(enum report_rule rule)
{
    return report_rules[rule].name;
}

struct code_report *code_report_new(const char *language, enum report_depth depth)
{
    struct code_report *r = mem_new(struct code_report);

    r->language = language;
    r->depth = depth;
    return r;
}

void code_report_free(struct code_report *r)
{
    if (!r)
        return;
    json_decref(r->imports);
    free(r);
}

void code_report_add(struct code_report *r, enum report_rule rule, uint32_t line, uint32_t column, const char *subject)
{
    struct report_violation *v = &r->violations[r->nviolations];

    r->pure = false;
    if (r->nviolations == REPORT_VIOLATIONS_MAX) {
        r->omitted++;
        return;
    }
    *v = (struct report_violation){ .rule = rule, .line = line, .column = column };
    snprintf(v->subject, sizeof(v->subject), "%s", subject);
    str_strip_control_chars(v->subject);
    r->nviolations++;
}

/* --- the answer of the check --- */

static bool code_report_find_rule(const char *name, enum report_rule *ret)
{
    for (unsigned i = 0; name && i < REPORT_RULE_COUNT; i++)
        if (str_eq(name, report_rules[i].name)) {
            *ret = (enum report_rule)i;
            return true;
        }
    return false;
}

static bool code_report_read_number(const json_t *object, const char *name, uint32_t *ret)
{
    const json_t *v = json_object_get(object, name);

    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > LINE_MAX_NUMBER)
        return false;
    *ret = (uint32_t)json_integer_value(v);
    return true;
}

static bool code_report_text_fits(const json_t *v)
{
    return json_is_string(v) && strlen(json_string_value(v)) == json_string_length(v) &&
           json_string_length(v) < 4 * REPORT_SUBJECT_MAX;
}

static bool code_report_read_violation(struct code_report *r, const json_t *v)
{
    const json_t *subject = json_object_get(v, "subject");
    enum report_rule rule;
    uint32_t line, column;

    if (!code_report_find_rule(json_string_value(json_object_get(v, "rule")), &rule) ||
        !code_report_read_number(v, "line", &line) || !code_report_read_number(v, "column", &column) ||
        !code_report_text_fits(subject))
        return false;
    code_report_add(r, rule, line, column, json_string_value(subject));
    return true;
}

static bool code_report_read_imports(struct code_report *r, const json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) > REPORT_IMPORTS_MAX)
        return false;
    r->imports = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);

        if (!code_report_text_fits(name))
            return false;
        auto_free char *clean = str_dup(json_string_value(name));
        str_strip_control_chars(clean);
        json_array_append_new(r->imports, json_string(clean));
    }
    return true;
}

static bool code_report_read_all(struct code_report *r, const json_t *answer)
{
    const json_t *violations = json_object_get(answer, "violations"), *pure = json_object_get(answer, "pure");
    uint32_t omitted;

    if (!json_is_array(violations) || json_array_size(violations) > REPORT_VIOLATIONS_MAX || !json_is_boolean(pure) ||
        !code_report_read_number(answer, "complexity", &r->complexity) ||
        !code_report_read_number(answer, "omitted", &omitted) ||
        !code_report_read_imports(r, json_object_get(answer, "imports")))
        return false;
    for (size_t i = 0; i < json_array_size(violations); i++)
        if (!code_report_read_violation(r, json_array_get(violations, i)))
            return false;
    r->omitted = omitted;
    r->pure = json_is_true(pure) && r->nviolations == 0;
    return true;
}

int code_report_read(struct code_report *r, const json_t *answer, struct err *err)
{
    auto_(code_report) read = code_report_new(r->language, r->depth);

    if (!code_report_read_all(read, answer))
        return err_set(err, ERR_PROTOCOL, "the report of the check is malformed");
    json_decref(r->imports);
    read->is_arithmetic = r->is_arithmetic;
    *r = *read;
    read->imports = NULL;
    return 0;
}

/* --- text of another language --- */

bool code_report_scan(struct code_report *r, const char *code)
{
    static const char *const other[] = { "<?php",  "<!DOCTYPE", "<html",     "#include",      "package ",
                                         "const ", "let ",      "function ", "public class ", "use strict" };
    const char *p = code + strspn(code, " \t\r\n");
    const char *end = p + strcspn(p, "\n");

    if (str_starts(p, "#!") && memmem(p, (size_t)(end - p), "python", 6) == NULL) {
        auto_free char *line = str_dup_n(p, min_size((size_t)(end - p), REPORT_SUBJECT_MAX - 1));

        code_report_add(r, REPORT_RULE_NOT_PYTHON, 1, 1, line);
        return true;
    }
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        if (str_starts(p, other[i])) {
            code_report_add(r, REPORT_RULE_NOT_PYTHON, 1, 1, other[i]);
            return true;
        }
    return false;
}

/* --- the judgement --- */

enum code_severity code_report_risk(const struct code_report *r)
{
    enum code_severity risk = SEVERITY_LOW;

    for (size_t i = 0; i < r->nviolations; i++)
        if (report_rules[r->violations[i].rule].severity > risk)
            risk = report_rules[r->violations[i].rule].severity;
    return risk;
}

/* Violations beyond the maximum are unknown, so they refuse the code. */
bool code_report_is_safe(const struct code_report *r)
{
    return r->depth == REPORT_FULL && code_report_risk(r) < SEVERITY_HIGH && r->omitted == 0;
}

enum code_tier code_report_tier(const struct code_report *r)
{
    return r->is_arithmetic ? TIER_CALCULATE : code_report_is_safe(r) ? TIER_SIMPLE : TIER_FULL;
}

const struct report_violation *code_report_first_refusal(const struct code_report *r)
{
    for (size_t i = 0; i < r->nviolations; i++)
        if (report_rules[r->violations[i].rule].severity >= SEVERITY_HIGH)
            return &r->violations[i];
    return NULL;
}

static const char *code_report_violation_alternative(const struct report_violation *v)
{
    for (size_t i = 0; i < ARRAY_LEN(report_alternatives); i++)
        if (report_alternatives[i].rule == v->rule && str_starts(v->subject, report_alternatives[i].subject))
            return report_alternatives[i].text;
    return NULL;
}

const char *code_report_alternative(const struct code_report *r)
{
    const struct report_violation *first = code_report_first_refusal(r);
    const char *text = first ? code_report_violation_alternative(first) : NULL;

    for (size_t i = 0; !text && i < r->nviolations; i++)
        text = code_report_violation_alternative(&r->violations[i]);
    return text;
}

int code_report_refusal(const struct code_report *r, struct err *err)
{
    const struct report_violation *v = code_report_first_refusal(r);

    if (!v)
        return err_set(err, ERR_CODE_REFUSED, "code: more violations than the report holds; use tier full");
    const struct report_rule_info *rule = &report_rules[v->rule];
    return err_set(err, ERR_CODE_REFUSED, "code: line %" PRIu32 ": %s%s%.60s; %s", v->line, rule->name,
                   v->subject[0] ? ": " : "", v->subject, rule->recommendation);
}

/* --- JSON --- */

static void code_report_write_violation(const struct report_violation *v, struct jsonw *w)
{
    const struct report_rule_info *rule = &report_rules[v->rule];
    auto_free char *description = v->subject[0] ? str_printf("%s: %s", rule->description, v->subject)
                                                : str_dup(rule->description);

    jsonw_object(w);
    jsonw_kstr(w, "type", rule->name);
    jsonw_kstr(w, "description", description);
    jsonw_kstr(w, "severity", code_severity_names[rule->severity]);
    jsonw_ki64_or_null(w, "line", v->line > 0, v->line);
    jsonw_ki64_or_null(w, "column", v->column > 0, v->column);
    jsonw_kstr(w, "recommendation", rule->recommendation);
    jsonw_end_object(w);
}

static void code_report_write_recommendations(const struct code_report *r, struct jsonw *w)
{
    bool written[REPORT_RULE_COUNT] = { false };

    jsonw_karray(w, "recommendations");
    for (size_t i = 0; i < r->nviolations; i++) {
        enum report_rule rule = r->violations[i].rule;

        if (!written[rule])
            jsonw_str(w, report_rules[rule].recommendation);
        written[rule] = true;
    }
    jsonw_end_array(w);
}

static void code_report_write_judgement(const struct code_report *r, struct jsonw *w)
{
    bool judged = r->depth == REPORT_FULL;

    jsonw_key(w, "isSafe");
    if (judged)
        jsonw_bool(w, code_report_is_safe(r));
    else
        jsonw_null(w);
    jsonw_key(w, "risk");
    if (judged)
        jsonw_str(w, code_severity_names[code_report_risk(r)]);
    else
        jsonw_null(w);
    jsonw_kstr(w, "tier", code_tier_names[code_report_tier(r)]);
}

void code_report_write(const struct code_report *r, struct jsonw *w)
{
    jsonw_object(w);
    jsonw_kstr(w, "language", r->language);
    jsonw_kstr(w, "checked", r->depth == REPORT_FULL ? "rules" : "syntax");
    code_report_write_judgement(r, w);
    jsonw_karray(w, "violations");
    for (size_t i = 0; i < r->nviolations; i++)
        code_report_write_violation(&r->violations[i], w);
    jsonw_end_array(w);
    jsonw_ku64(w, "omittedViolations", r->omitted);
    code_report_write_recommendations(r, w);
    jsonw_kstr_if(w, "safeAlternative", code_report_alternative(r));
    jsonw_karray(w, "imports");
    for (size_t i = 0; i < json_array_size(r->imports); i++)
        jsonw_str(w, json_string_value(json_array_get(r->imports, i)));
    jsonw_end_array(w);
    jsonw_ki64_or_null(w, "complexity", r->complexity > 0, r->complexity);
    jsonw_kbool(w, "pure", r->pure);
    jsonw_kstr(w, "note", "The check reports early. The walls of the sandbox are the boundary.");
    jsonw_end_object(w);
}
