/* calc_value.h - the values of the calculator and their arithmetic.
 *
 * A value is a rational number, a rational multiple of pi, an interval that encloses a real number,
 * or the truth of a comparison, which is never an operand. Every operation spends its estimated
 * work before it starts and checks the size of its result before that is computed. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/calc/calc.h"

#include <gmp.h>
#include <mpfr.h>

#define CALC_BITS_MAX 33220 /* CALC_VALUE_DIGITS_MAX decimal digits */

enum calc_kind { CALC_RATIONAL, CALC_PI_MULTIPLE, CALC_INTERVAL, CALC_TRUTH };

struct calc_value {
    enum calc_kind kind;
    bool truth;    /* CALC_TRUTH */
    bool has_ends; /* lo and hi are initialized */
    mpq_t q;       /* CALC_RATIONAL, CALC_PI_MULTIPLE */
    mpfr_t lo, hi; /* CALC_INTERVAL */
};

/* One evaluation. */
struct calc_run {
    uint64_t work_left;
    mpfr_prec_t precision; /* bits of the ends of intervals */
    const char *text;      /* for the position in messages */
    size_t position;       /* byte of the operation in progress */
    bool undecided;        /* the error may vanish with a higher precision */
    struct err *err;
};

void calc_value_init(struct calc_value *v); /* 0 */
void calc_value_done(struct calc_value *v);
void calc_value_swap(struct calc_value *a, struct calc_value *b);
bool calc_value_is_integer(const struct calc_value *v); /* an exact one */
bool calc_value_get_long(const struct calc_value *v, long *ret);

/* All return -1, so that a caller can write `return calc_fail(...)`. */
int calc_fail(struct calc_run *r, enum err_id id, const char *fmt, ...) PRINTF_LIKE(3, 4);
int calc_fail_undecided(struct calc_run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
int calc_fail_size(struct calc_run *r);
int calc_spend(struct calc_run *r, uint64_t work);
/* Estimated work: a product of two numbers of this size; reduction of a fraction; one elementary
 * function. */
uint64_t calc_work_multiply(uint64_t bits);
uint64_t calc_work_reduce(uint64_t bits, uint64_t other_bits);
uint64_t calc_work_function(mpfr_prec_t precision);
size_t calc_bits(mpq_srcptr q); /* of the larger of numerator and denominator */

/* Makes an interval of any number. */
int calc_enclose(struct calc_run *r, struct calc_value *v);
/* Initializes the ends of an interval, which the caller sets. */
void calc_value_make_interval(struct calc_run *r, struct calc_value *v);
/* The result of an operation, in range; a rational in lowest terms. */
int calc_check(struct calc_run *r, struct calc_value *v);

/* These replace a by the result; b is changed too. */
int calc_add(struct calc_run *r, struct calc_value *a, struct calc_value *b, bool subtract);
int calc_multiply(struct calc_run *r, struct calc_value *a, struct calc_value *b);
int calc_divide(struct calc_run *r, struct calc_value *a, struct calc_value *b);
int calc_floor_divide(struct calc_run *r, struct calc_value *a, struct calc_value *b);
int calc_modulo(struct calc_run *r, struct calc_value *a, struct calc_value *b);
int calc_power(struct calc_run *r, struct calc_value *a, struct calc_value *b); /* calc_power.c */
int calc_root(struct calc_run *r, struct calc_value *a, unsigned long n);       /* calc_power.c */
int calc_exponential(struct calc_run *r, struct calc_value *a);                 /* calc_power.c */
int calc_logarithm(struct calc_run *r, struct calc_value *a);                   /* calc_power.c */
void calc_negate(struct calc_value *a);
int calc_compare(struct calc_run *r, const struct calc_value *a, const struct calc_value *b, int *ret);

enum calc_rounding { CALC_FLOOR, CALC_CEILING, CALC_TRUNCATE, CALC_HALF_AWAY };
/* An integer; an interval must contain numbers of one rounding only. */
int calc_round(struct calc_run *r, struct calc_value *a, enum calc_rounding how);
