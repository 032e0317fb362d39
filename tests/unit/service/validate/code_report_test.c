/* code_report_test.c - reading the answer of a check, which is hostile; the judgement; JSON. */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "service/validate/code_report.h"

#define ANSWER(violations) \
    "{\"violations\":[" violations "],\"omitted\":0,\"imports\":[\"math\"],\"complexity\":3,\"pure\":true}"
#define VIOLATION(rule) "{\"rule\":\"" rule "\",\"line\":2,\"column\":5,\"subject\":\"os.listdir\"}"

static struct code_report *report_of(const char *text)
{
    struct code_report *r = code_report_new("python", REPORT_FULL);
    struct err err = { 0 };
    json_t *answer = json_loads(text, 0, NULL);

    assert_non_null(answer);
    assert_int_equal(code_report_read(r, answer, &err), 0);
    json_decref(answer);
    return r;
}

static json_t *json_of(const struct code_report *r)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    code_report_write(r, &w);
    json_t *v = json_loadb(out.data, out.len, 0, NULL);
    assert_non_null(v);
    return v;
}

TEST(code_is_judged_by_its_worst_violation)
{
    static const struct {
        const char *answer;
        bool safe, pure;
        enum code_severity risk;
        enum code_tier tier;
    } rows[] = {
        { ANSWER(""), true, true, SEVERITY_LOW, TIER_SIMPLE },
        { ANSWER(VIOLATION("call_sleep")), true, false, SEVERITY_LOW, TIER_SIMPLE },
        { ANSWER(VIOLATION("infinite_loop")), true, false, SEVERITY_MEDIUM, TIER_SIMPLE },
        { ANSWER(VIOLATION("infinite_loop") "," VIOLATION("call_open")), false, false, SEVERITY_HIGH, TIER_FULL },
        { ANSWER(VIOLATION("import_native") "," VIOLATION("call_open")), false, false, SEVERITY_CRITICAL, TIER_FULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_(code_report) r = report_of(rows[i].answer);

        if (code_report_is_safe(r) != rows[i].safe || r->pure != rows[i].pure || code_report_risk(r) != rows[i].risk ||
            code_report_tier(r) != rows[i].tier)
            fail_msg("row %zu", i);
    }
}

TEST(a_malformed_answer_is_refused_and_leaves_nothing)
{
    static const char *const answers[] = {
        "{}",
        "{\"violations\":{},\"omitted\":0,\"imports\":[],\"complexity\":1,\"pure\":true}",
        "{\"violations\":[],\"omitted\":-1,\"imports\":[],\"complexity\":1,\"pure\":true}",
        "{\"violations\":[],\"omitted\":0,\"imports\":[1],\"complexity\":1,\"pure\":true}",
        "{\"violations\":[],\"omitted\":0,\"imports\":{},\"complexity\":1,\"pure\":true}",
        "{\"violations\":[],\"omitted\":0,\"imports\":[],\"complexity\":1e3,\"pure\":true}",
        "{\"violations\":[],\"omitted\":0,\"imports\":[],\"complexity\":1,\"pure\":1}",
        "{\"violations\":[],\"omitted\":0,\"imports\":[],\"complexity\":99999999999,\"pure\":true}",
        ANSWER("1"),
        ANSWER(VIOLATION("no_such_rule")),
        ANSWER("{\"rule\":\"call_open\",\"line\":-1,\"column\":5,\"subject\":\"\"}"),
        ANSWER("{\"rule\":\"call_open\",\"line\":1,\"column\":5,\"subject\":[]}"),
        ANSWER("{\"rule\":\"call_open\",\"line\":1,\"column\":5}"),
        ANSWER(VIOLATION("call_open") ",null"),
    };

    for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
        auto_(code_report) r = code_report_new("python", REPORT_FULL);
        json_t *answer = json_loads(answers[i], 0, NULL);
        struct err err = { 0 };

        if (code_report_read(r, answer, &err) == 0 || err.id != ERR_PROTOCOL || r->nviolations || r->imports)
            fail_msg("answer %zu was accepted", i);
        json_decref(answer);
    }
}

TEST(too_many_violations_and_long_texts_are_refused)
{
    auto_(code_report) r = code_report_new("python", REPORT_FULL);
    char subject[4 * REPORT_SUBJECT_MAX + 1];
    json_t *answer = json_loads(ANSWER(""), 0, NULL), *list = json_object_get(answer, "violations");
    struct err err = { 0 };

    memset(subject, 'x', sizeof(subject) - 1);
    subject[sizeof(subject) - 1] = '\0';
    json_array_append_new(
        list, json_pack("{s:s,s:i,s:i,s:s}", "rule", "call_open", "line", 1, "column", 1, "subject", subject));
    assert_int_equal(code_report_read(r, answer, &err), -1);
    json_array_clear(list);
    for (unsigned i = 0; i <= REPORT_VIOLATIONS_MAX; i++)
        json_array_append_new(
            list, json_pack("{s:s,s:i,s:i,s:s}", "rule", "call_sleep", "line", 1, "column", 1, "subject", ""));
    assert_int_equal(code_report_read(r, answer, &err), -1);
    json_decref(answer);
}

TEST(violations_that_the_report_omits_refuse_the_code)
{
    auto_(code_report) r = code_report_new("python", REPORT_FULL);
    struct err err = { 0 };

    for (unsigned i = 0; i <= REPORT_VIOLATIONS_MAX; i++)
        code_report_add(r, REPORT_RULE_CALL_SLEEP, i, 1, "");
    assert_int_equal(r->omitted, 1);
    assert_false(code_report_is_safe(r));
    assert_null(code_report_first_refusal(r));
    assert_int_equal(code_report_refusal(r, &err), -1);
    assert_int_equal(err.id, ERR_CODE_REFUSED);
}

TEST(control_characters_of_a_subject_do_not_reach_a_terminal)
{
    auto_(code_report) r = code_report_new("python", REPORT_FULL);

    code_report_add(r, REPORT_RULE_SYNTAX, 1, 1, "\033[2J\nx");
    assert_string_equal(r->violations[0].subject, "?[2J?x");
}

TEST(the_alternative_belongs_to_the_first_refusal)
{
    auto_(code_report) r = report_of(ANSWER(VIOLATION("call_sleep") "," VIOLATION("import_process")));
    auto_(code_report) low = report_of(ANSWER(VIOLATION("call_sleep")));
    auto_(code_report) none = report_of(ANSWER(""));

    assert_non_null(strstr(code_report_alternative(r), "list the names in the code"));
    assert_non_null(strstr(code_report_alternative(low), "leave it out"));
    assert_null(code_report_alternative(none));
}

TEST(json_has_the_judgement_and_each_recommendation_once)
{
    auto_(code_report) r = report_of(ANSWER(VIOLATION("call_open") "," VIOLATION("call_open")));
    json_t *v = json_of(r);
    const json_t *first = json_array_get(json_object_get(v, "violations"), 0);

    assert_true(json_is_false(json_object_get(v, "isSafe")));
    assert_string_equal(json_string_value(json_object_get(v, "risk")), "high");
    assert_string_equal(json_string_value(json_object_get(v, "tier")), "full");
    assert_int_equal(json_array_size(json_object_get(v, "violations")), 2);
    assert_int_equal(json_array_size(json_object_get(v, "recommendations")), 1);
    assert_string_equal(json_string_value(json_object_get(first, "type")), "call_open");
    assert_string_equal(json_string_value(json_object_get(first, "severity")), "high");
    assert_int_equal(json_integer_value(json_object_get(first, "line")), 2);
    assert_non_null(json_object_get(v, "safeAlternative"));
    json_decref(v);
}

TEST(a_check_of_syntax_alone_judges_nothing)
{
    auto_(code_report) r = code_report_new("bash", REPORT_SYNTAX);
    json_t *v = json_of(r);

    assert_true(json_is_null(json_object_get(v, "isSafe")));
    assert_true(json_is_null(json_object_get(v, "risk")));
    assert_string_equal(json_string_value(json_object_get(v, "tier")), "full");
    json_decref(v);
}

TEST(text_that_is_no_python_is_found_by_its_beginning)
{
    static const struct {
        const char *code;
        bool found;
    } rows[] = {
        { "#!/bin/bash\necho", true },      { "#!/usr/bin/env python3\nprint(1)", false },
        { "  \n#include <stdio.h>", true }, { "function f() {}", true },
        { "constant = 1", false },          { "letter = 'let '", false },
        { "'#!/bin/sh'", false },           { "", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_(code_report) r = code_report_new("python", REPORT_FULL);

        if (code_report_scan(r, rows[i].code) != rows[i].found || (r->nviolations == 1) != rows[i].found)
            fail_msg("row %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(code_is_judged_by_its_worst_violation),
        RUN(a_malformed_answer_is_refused_and_leaves_nothing),
        RUN(too_many_violations_and_long_texts_are_refused),
        RUN(violations_that_the_report_omits_refuse_the_code),
        RUN(control_characters_of_a_subject_do_not_reach_a_terminal),
        RUN(the_alternative_belongs_to_the_first_refusal),
        RUN(json_has_the_judgement_and_each_recommendation_once),
        RUN(a_check_of_syntax_alone_judges_nothing),
        RUN(text_that_is_no_python_is_found_by_its_beginning),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
