/* code_report.h - the report of a check: what code would use that the simple tier does not give it.
 *
 * The check runs in the sandbox (runtimes/python/covekernel/check.py) and reports places; texts and
 * the judgement are from rules.def. Its answer is hostile input, because the code that it parses
 * may exploit a defect of the parser: unknown rules, wrong types and long texts make the answer
 * invalid. The check gives an early and friendly answer. The walls of the sandbox are the boundary,
 * and nothing relies on the check. Pure: values in, JSON out. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

#include <jansson.h>

#define REPORT_VIOLATIONS_MAX 50u
#define REPORT_IMPORTS_MAX 100u
#define REPORT_SUBJECT_MAX 160u /* bytes of a subject */

enum code_severity { SEVERITY_LOW, SEVERITY_MEDIUM, SEVERITY_HIGH, SEVERITY_CRITICAL };
extern const char *const code_severity_names[]; /* ends with NULL */

enum report_rule {
#define RULE(id, name, severity, description, recommendation) REPORT_RULE_##id,
#define ALTERNATIVE(rule, subject, text)
#include "service/validate/rules.def"
#undef RULE
#undef ALTERNATIVE
    REPORT_RULE_COUNT,
};
const char *code_report_rule_name(enum report_rule rule);

enum report_depth {
    REPORT_FULL,   /* Python: syntax and rules */
    REPORT_SYNTAX, /* another language: syntax only, no judgement */
};

enum code_tier { TIER_NONE, TIER_CALCULATE, TIER_SIMPLE, TIER_FULL, TIER_AUTO };
extern const char *const code_tier_names[]; /* by enum code_tier, without a NULL at the end */

struct report_violation {
    enum report_rule rule;
    uint32_t line, column; /* from 1; 0: unknown */
    char subject[REPORT_SUBJECT_MAX];
};

struct code_report {
    const char *language; /* static */
    enum report_depth depth;
    bool is_arithmetic;  /* the calculator can answer the code */
    bool pure;           /* nothing in it differs between two runs, as far as the check sees */
    uint32_t complexity; /* cyclomatic; 0: unknown */
    uint64_t omitted;    /* violations beyond the maximum */
    size_t nviolations;
    json_t *imports; /* names of modules; NULL: none */
    struct report_violation violations[REPORT_VIOLATIONS_MAX];
};

struct code_report *code_report_new(const char *language, enum report_depth depth);
void code_report_free(struct code_report *r);
DEFINE_AUTO(code_report, code_report_free);

void code_report_add(struct code_report *r, enum report_rule rule, uint32_t line, uint32_t column, const char *subject);
/* Reads the answer of the check. On failure nothing of it is kept. */
int code_report_read(struct code_report *r, const json_t *answer, struct err *err);
/* Finds text that is not Python by its first bytes, without a sandbox. True: it was added. */
bool code_report_scan(struct code_report *r, const char *code);

bool code_report_is_safe(const struct code_report *r); /* the simple tier runs it */
enum code_severity code_report_risk(const struct code_report *r);
enum code_tier code_report_tier(const struct code_report *r); /* the tier that fits the code */
/* The first violation that refuses the code; NULL: none. */
const struct report_violation *code_report_first_refusal(const struct code_report *r);
const char *code_report_alternative(const struct code_report *r); /* NULL: none */
/* ERR_CODE_REFUSED with the place and the fix. */
int code_report_refusal(const struct code_report *r, struct err *err);
void code_report_write(const struct code_report *r, struct jsonw *w); /* one object */
