/* calc.h - an exact calculator: formulas and simple problems in English words.
 *
 * Rational arithmetic is exact. Functions such as sin() are computed with intervals whose ends
 * enclose the true value, and the precision rises until all printed digits are certain. Input,
 * depth, size of every intermediate value and total work are bounded before any work is done, so no
 * expression can exhaust memory or time. No input is ever guessed: text with two readings is
 * refused. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/jsonw.h"

#define CALC_INPUT_MAX 4096u         /* bytes of an expression or problem */
#define CALC_DIGITS_DEFAULT 34u      /* significant digits of a rounded decimal */
#define CALC_DIGITS_MAX 1000u        /* the same, at most */
#define CALC_VALUE_DIGITS_MAX 10000u /* decimal digits of a numerator, a denominator or an exponent */
#define CALC_DEPTH_MAX 100u          /* nested parentheses, signs, powers and calls */
#define CALC_ARGUMENTS_MAX 256u      /* of one call, such as max(...) */
#define CALC_STEPS_MAX 64u           /* further reductions are counted and not listed */

/* Units of work, about one nanosecond each on a machine of 2020. A model, so the same expression is
 * accepted on every machine. */
#define CALC_WORK_SERVER 1500000ull     /* of a thread that must not block */
#define CALC_WORK_COMMAND 2000000000ull /* of a program of its own */

struct calc_settings {
    unsigned digits; /* of a rounded decimal, 1 to CALC_DIGITS_MAX; 0: CALC_DIGITS_DEFAULT */
    uint64_t work;   /* units of work; 0: CALC_WORK_SERVER */
    bool steps;      /* list the reductions */
    bool words;      /* accept a problem in words, not only a formula */
};

enum calc_type { CALC_ARITHMETIC, CALC_PERCENTAGE, CALC_FUNCTION, CALC_COMPARISON, CALC_UNKNOWN };
enum calc_method { CALC_BY_EXPRESSION, CALC_BY_WORDS, CALC_BY_NONE };

struct calc_result {
    enum calc_type type;
    enum calc_method method;
    char *expression;   /* the formula that was computed; differs from the input if that was in words */
    char *answer;       /* exact if possible: a decimal that ends, else a fraction; else `decimal`; or true, false */
    char *fraction;     /* the exact value as "n" or "n/d" in lowest terms; NULL: not exact, or a comparison */
    char *decimal;      /* NULL: a comparison */
    bool exact;         /* `answer` is the value itself and not rounded */
    bool decimal_exact; /* `decimal` is */
    unsigned digits;    /* significant digits to which `decimal` was rounded; 0: not rounded */
    char *error_bound;  /* the value is 0 within this bound, as far as it could be computed; NULL: no such case */
    char **steps;       /* NULL without calc_settings.steps */
    size_t nsteps, omitted_steps;
    char *explanation; /* CALC_UNKNOWN: why the problem was not understood */
};

/* Errors: ERR_CALC_SYNTAX, ERR_CALC_DIVISION, ERR_CALC_UNDEFINED, ERR_CALC_LIMIT, ERR_INVALID (not
 * UTF-8). Messages name the position as a character of the text. With `words`, text that is neither
 * a formula nor a known problem is a result of type CALC_UNKNOWN without an answer. */
int calc_solve(const char *text, size_t len, const struct calc_settings *set, struct calc_result *ret, struct err *err);
void calc_result_done(struct calc_result *c);

/* From 0 to 1: 0.95 formula, 0.85 words, 0.1 not understood. As JSON text. */
const char *calc_confidence(const struct calc_result *c);
const char *calc_type_name(enum calc_type t);
const char *calc_method_name(enum calc_method m);
/* Adds the members of the result to an open object. */
void calc_result_json(const struct calc_result *c, struct jsonw *w);

/* The names of functions and constants, for documentation and capabilities; NULL-terminated. */
const char *const *calc_function_names(void);
