/* An expression whose value is rational is evaluated once. Otherwise the value is an interval; if
 * its ends do not round to the same digits, or an operation needed to know more (the sign of a
 * number close to 0), the evaluation is repeated with twice the precision. A number that is 0, but
 * is computed from numbers that are not rational, cannot be distinguished from a very small one:
 * after the last evaluation it is reported as 0 with the bound that was reached. */
#include "core/calc/calc.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/calc/calc_format.h"
#include "core/calc/calc_steps.h"
#include "core/calc/calc_words.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

#define EVALUATIONS_MAX 4
#define GUARD_BITS 64

struct calc_solution {
    struct calc_program program;
    struct calc_run run;
    struct calc_steps steps;
    struct calc_value value;
    struct err err;   /* of the last evaluation */
    uint64_t reserve; /* work for the text of the result */
    unsigned digits;
    bool lists_steps;
    struct calc_result *result;
};

static char *calc_take_text(struct buf *b)
{
    return str_dup(b->data ? b->data : "");
}

/* --- the text of the result --- */

static int calc_describe_rational(struct calc_solution *s)
{
    struct calc_result *c = s->result;
    auto_buf fraction = { 0 }, decimal = { 0 };

    if (calc_format_rational(&s->run, s->value.q, s->digits, &decimal, &c->decimal_exact) < 0)
        return -1;
    calc_format_fraction(s->value.q, &fraction);
    c->exact = true;
    c->fraction = calc_take_text(&fraction);
    c->decimal = calc_take_text(&decimal);
    c->answer = str_dup(c->decimal_exact ? c->decimal : c->fraction);
    c->digits = c->decimal_exact ? 0 : s->digits;
    return 0;
}

/* 1: described; 0: the ends of the interval round to different numbers. */
static int calc_describe_interval(struct calc_solution *s, unsigned digits)
{
    struct calc_result *c = s->result;
    auto_buf decimal = { 0 };
    bool agree;

    if (calc_format_interval(&s->run, &s->value, digits, &decimal, &agree) < 0)
        return -1;
    if (!agree)
        return 0;
    c->decimal = calc_take_text(&decimal);
    c->answer = str_dup(c->decimal);
    c->digits = digits;
    return 1;
}

/* The last evaluation left an interval that is too wide for the digits, or contains 0. */
static int calc_describe_uncertain(struct calc_solution *s)
{
    struct calc_result *c = s->result;
    char digits[8];
    mpfr_exp_t exponent;

    for (unsigned n = s->digits; n > 1 && mpfr_sgn(s->value.lo) * mpfr_sgn(s->value.hi) > 0; n = n / 2) {
        int described = calc_describe_interval(s, n);

        if (described != 0)
            return described < 0 ? -1 : 0;
    }
    bool below = mpfr_cmpabs(s->value.lo, s->value.hi) > 0;
    mpfr_get_str(digits, &exponent, 10, 2, below ? s->value.lo : s->value.hi, MPFR_RNDA);
    const char *first = digits + (digits[0] == '-');
    if (exponent > -10) {
        s->run.position = 0;
        return calc_fail(&s->run, ERR_CALC_UNDEFINED,
                         "the result cannot be computed with certainty; simplify the expression");
    }
    c->decimal = str_dup("0");
    c->answer = str_dup("0");
    c->error_bound = str_printf("%c.%ce%ld", first[0], first[1], (long)exponent - 1);
    return 0;
}

/* --- evaluation --- */

static int calc_solution_evaluate(struct calc_solution *s, mpfr_prec_t precision)
{
    struct calc_value value;

    calc_steps_clear(&s->steps);
    calc_value_init(&value);
    s->run.precision = precision;
    int rc = calc_program_run(&s->program, &s->run, s->lists_steps ? &s->steps : NULL, &value);
    if (rc == 0)
        calc_value_swap(&s->value, &value);
    calc_value_done(&value);
    return rc;
}

/* 1: described; 0: a higher precision is needed. */
static int calc_describe(struct calc_solution *s)
{
    s->run.position = 0;
    if (s->value.kind == CALC_TRUTH) {
        s->result->answer = str_dup(s->value.truth ? "true" : "false");
        s->result->exact = true;
        return 1;
    }
    if (s->value.kind == CALC_RATIONAL)
        return calc_describe_rational(s) < 0 ? -1 : 1;
    if (calc_enclose(&s->run, &s->value) < 0)
        return -1;
    return calc_describe_interval(s, s->digits);
}

static int calc_solution_run(struct calc_solution *s)
{
    mpfr_prec_t precision = (mpfr_prec_t)(s->digits * 10 / 3) + GUARD_BITS;
    bool has_value = false;

    for (int i = 0; i < EVALUATIONS_MAX; i++, precision *= 2) {
        int rc = calc_solution_evaluate(s, precision);

        if (rc == 0) {
            has_value = true;
            rc = calc_describe(s);
            if (rc != 0)
                return rc < 0 ? -1 : 0;
        } else if (!s->run.undecided) {
            if (has_value && s->err.id == ERR_CALC_LIMIT)
                break; /* no work left; the value of the evaluation before is still known */
            return -1;
        }
    }
    if (!has_value)
        return -1;
    s->run.work_left += s->reserve;
    return calc_describe_uncertain(s);
}

static void calc_result_take_steps(struct calc_result *c, struct calc_steps *steps)
{
    c->steps = mem_new_array(char *, steps->n + 1);
    for (size_t i = 0; i < steps->n; i++)
        c->steps[i] = steps->items[i];
    c->nsteps = steps->n;
    c->omitted_steps = steps->omitted;
    steps->n = 0;
}

static int calc_solve_formula(const char *formula, const struct calc_settings *set, struct calc_result *c,
                              struct err *err)
{
    uint64_t work = set->work ? set->work : CALC_WORK_SERVER;
    struct calc_solution s = { .digits = set->digits ? set->digits : CALC_DIGITS_DEFAULT,
                               .lists_steps = set->steps,
                               .reserve = work / 8,
                               .result = c };

    if (calc_program_parse(formula, &s.program, err) < 0)
        return -1;
    s.run = (struct calc_run){ .work_left = work - s.reserve, .text = formula, .err = &s.err };
    calc_value_init(&s.value);
    int rc = calc_solution_run(&s);
    if (rc < 0) {
        *err = s.err;
        calc_result_done(c);
    } else {
        c->type = s.program.type;
        c->expression = str_dup(formula + strspn(formula, " \t\r\n"));
        if (set->steps)
            calc_result_take_steps(c, &s.steps);
    }
    calc_steps_clear(&s.steps);
    calc_value_done(&s.value);
    calc_program_done(&s.program);
    return rc;
}

/* --- problems in words --- */

/* Whether the text has a word that is neither a function nor a part of a formula: then the error of
 * its translation is more helpful than that of the formula. */
static bool calc_text_has_words(const char *text)
{
    for (; *text; text++)
        if ((text[0] == 'x' || text[0] == 'X') && !isalpha((unsigned char)text[1]))
            return true; /* 3 x 4 */
        else if (isalpha((unsigned char)text[0]) && isalpha((unsigned char)text[1])) {
            size_t n = 0;

            while (isalnum((unsigned char)text[n]))
                n++;
            if (!calc_function_find(text, n) && !(n == 2 && strncasecmp(text, "of", 2) == 0) &&
                !(n == 3 && strncasecmp(text, "mod", 3) == 0))
                return true;
            text += n - 1;
        }
    return false;
}

static int calc_not_understood(struct calc_result *c, const char *explanation)
{
    *c = (struct calc_result){ .type = CALC_UNKNOWN, .method = CALC_BY_NONE, .explanation = str_dup(explanation) };
    return 0;
}

static int calc_solve_problem(char *text, const struct calc_settings *set, struct calc_result *c, struct err *err)
{
    size_t lead = calc_words_lead(text);
    auto_buf formula = { 0 };
    struct err why = { 0 };

    text[calc_words_end(text, strlen(text))] = '\0';
    lead = lead < strlen(text) ? lead : strlen(text);
    memset(text, ' ', lead); /* the positions in messages stay those of the problem */
    if (calc_solve_formula(text, set, c, &why) == 0)
        return 0;
    if (why.id != ERR_CALC_SYNTAX) {
        *err = why;
        return -1;
    }
    if (!calc_text_has_words(text + lead))
        return calc_not_understood(c, why.msg);
    if (calc_words_translate(text + lead, &formula, &why) < 0)
        return calc_not_understood(c, why.msg);
    if (formula.len > CALC_INPUT_MAX)
        return calc_not_understood(c, "the problem is too long; write it as a formula");
    if (calc_solve_formula(formula.data, set, c, &why) == 0) {
        c->method = CALC_BY_WORDS;
        return 0;
    }
    if (why.id == ERR_CALC_SYNTAX)
        return calc_not_understood(c, "the problem is not understood; write it as a formula");
    *err = why;
    return err_wrap(err, "read as %.80s", formula.data);
}

/* --- the interface --- */

static int calc_check_text(const char *text, size_t len, struct err *err)
{
    uint32_t character;

    if (len > CALC_INPUT_MAX)
        return err_set(err, ERR_CALC_LIMIT, "the expression has %zu bytes; at most %u are allowed", len,
                       CALC_INPUT_MAX);
    for (size_t i = 0; i < len;) {
        size_t n = str_utf8(text + i, len - i, &character);

        if (n == 0 || character == 0)
            return err_set(err, ERR_CALC_SYNTAX, "the expression is not UTF-8 text at byte %zu; send text", i + 1);
        i += n;
    }
    return 0;
}

int calc_solve(const char *text, size_t len, const struct calc_settings *set, struct calc_result *ret, struct err *err)
{
    *ret = (struct calc_result){ 0 };
    if (set->digits > CALC_DIGITS_MAX)
        return err_set(err, ERR_INVALID, "digits: must be from 1 to %u", CALC_DIGITS_MAX);
    if (calc_check_text(text, len, err) < 0)
        return -1;
    auto_free char *copy = str_dup_n(text, len);
    return set->words ? calc_solve_problem(copy, set, ret, err) : calc_solve_formula(copy, set, ret, err);
}

void calc_result_done(struct calc_result *c)
{
    free(c->expression);
    free(c->answer);
    free(c->fraction);
    free(c->decimal);
    free(c->error_bound);
    free(c->explanation);
    for (size_t i = 0; i < c->nsteps; i++)
        free(c->steps[i]);
    free(c->steps);
    *c = (struct calc_result){ 0 };
}
