/* Two rules keep every operation bounded. Work is spent before it is done (calc_spend), by a model
 * that overestimates what GMP and MPFR need. And no number has more than CALC_BITS_MAX bits: the
 * operations on numbers within the bound give at most three times as many, and calc_check() refuses
 * the result; powers, factorials and literals, which grow faster, check the size before they start.
 * GMP aborts when it has no memory, so these bounds must hold without exception. */
#include "core/calc/calc_value.h"

#include <stdarg.h>
#include <stdio.h>

void calc_value_init(struct calc_value *v)
{
    *v = (struct calc_value){ .kind = CALC_RATIONAL };
    mpq_init(v->q);
}

void calc_value_done(struct calc_value *v)
{
    mpq_clear(v->q);
    if (v->has_ends) {
        mpfr_clear(v->lo);
        mpfr_clear(v->hi);
    }
}

void calc_value_swap(struct calc_value *a, struct calc_value *b)
{
    struct calc_value t = *a;

    *a = *b;
    *b = t;
}

bool calc_value_is_integer(const struct calc_value *v)
{
    return v->kind == CALC_RATIONAL && mpz_cmp_ui(mpq_denref(v->q), 1) == 0;
}

bool calc_value_get_long(const struct calc_value *v, long *ret)
{
    if (!calc_value_is_integer(v) || !mpz_fits_slong_p(mpq_numref(v->q)))
        return false;
    *ret = mpz_get_si(mpq_numref(v->q));
    return true;
}

/* --- errors and bounds --- */

/* The position of a byte, counted in characters from 1. */
static size_t calc_character(const char *text, size_t byte)
{
    size_t n = 1;

    for (size_t i = 0; i < byte && text[i]; i++)
        n += (text[i] & 0xc0) != 0x80;
    return n;
}

int calc_fail(struct calc_run *r, enum err_id id, const char *fmt, ...)
{
    char what[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(r->err, id, "character %zu: %s", calc_character(r->text, r->position), what);
}

int calc_fail_undecided(struct calc_run *r, const char *fmt, ...)
{
    char what[160];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    r->undecided = true;
    return calc_fail(r, ERR_CALC_UNDEFINED, "%s", what);
}

int calc_fail_size(struct calc_run *r)
{
    return calc_fail(r, ERR_CALC_LIMIT,
                     "a number has more than %u digits; use smaller numbers, or exp and ln for an approximate result",
                     CALC_VALUE_DIGITS_MAX);
}

int calc_spend(struct calc_run *r, uint64_t work)
{
    if (work > r->work_left) {
        r->work_left = 0;
        return calc_fail(r, ERR_CALC_LIMIT,
                         "the calculation needs too much work; ask for fewer digits, or split it into parts");
    }
    r->work_left -= work;
    return 0;
}

static uint64_t calc_square_root(uint64_t n)
{
    uint64_t x = 1;

    while (x * x < n)
        x++;
    return x;
}

uint64_t calc_work_multiply(uint64_t bits)
{
    uint64_t limbs = bits / 64 + 1;

    return 20 + limbs * calc_square_root(limbs) * 3;
}

uint64_t calc_work_reduce(uint64_t bits, uint64_t other_bits)
{
    uint64_t limbs = bits / 64 + 1, other_limbs = other_bits / 64 + 1;

    return 60 + 35 * (limbs + other_limbs) + 2 * limbs * other_limbs;
}

uint64_t calc_work_function(mpfr_prec_t precision)
{
    uint64_t limbs = (uint64_t)precision / 64 + 1;

    return 1500 + 150 * limbs + 12 * limbs * limbs;
}

size_t calc_bits(mpq_srcptr q)
{
    size_t n = mpz_sizeinbase(mpq_numref(q), 2), d = mpz_sizeinbase(mpq_denref(q), 2);

    return n > d ? n : d;
}

int calc_check(struct calc_run *r, struct calc_value *v)
{
    if (v->kind == CALC_INTERVAL) {
        if (mpfr_nan_p(v->lo) || mpfr_nan_p(v->hi))
            return calc_fail(r, ERR_BUG, "an interval without ends");
        const mpfr_t *ends[] = { &v->lo, &v->hi };
        for (size_t i = 0; i < ARRAY_LEN(ends); i++)
            if (mpfr_inf_p(*ends[i]) || (mpfr_regular_p(*ends[i]) && mpfr_get_exp(*ends[i]) > CALC_BITS_MAX))
                return calc_fail_size(r);
        /* An interval around 0 may end close to it; a number of its own may not. */
        if (mpfr_sgn(v->lo) * mpfr_sgn(v->hi) > 0 && mpfr_get_exp(v->hi) < -CALC_BITS_MAX &&
            mpfr_get_exp(v->lo) < -CALC_BITS_MAX)
            return calc_fail_size(r);
        return 0;
    }
    if (v->kind == CALC_PI_MULTIPLE && mpq_sgn(v->q) == 0)
        v->kind = CALC_RATIONAL;
    return v->kind != CALC_TRUTH && calc_bits(v->q) > CALC_BITS_MAX ? calc_fail_size(r) : 0;
}

/* --- intervals --- */

void calc_value_make_interval(struct calc_run *r, struct calc_value *v)
{
    if (v->has_ends) {
        mpfr_set_prec(v->lo, r->precision);
        mpfr_set_prec(v->hi, r->precision);
    } else {
        mpfr_init2(v->lo, r->precision);
        mpfr_init2(v->hi, r->precision);
    }
    v->has_ends = true;
    v->kind = CALC_INTERVAL;
}

static void calc_value_copy(struct calc_run *r, struct calc_value *to, const struct calc_value *from)
{
    mpq_set(to->q, from->q);
    to->kind = from->kind;
    if (from->kind == CALC_INTERVAL) {
        calc_value_make_interval(r, to);
        mpfr_set(to->lo, from->lo, MPFR_RNDD);
        mpfr_set(to->hi, from->hi, MPFR_RNDU);
    }
}

int calc_enclose(struct calc_run *r, struct calc_value *v)
{
    bool multiple = v->kind == CALC_PI_MULTIPLE;

    if (v->kind == CALC_INTERVAL)
        return 0;
    if (calc_spend(r, 300 + 2 * calc_work_multiply(calc_bits(v->q) + (uint64_t)r->precision) +
                          (multiple ? calc_work_function(r->precision) : 0)) < 0)
        return -1;
    calc_value_make_interval(r, v);
    mpfr_set_q(v->lo, v->q, MPFR_RNDD);
    mpfr_set_q(v->hi, v->q, MPFR_RNDU);
    if (!multiple)
        return 0;
    mpfr_t pi;
    bool negative = mpq_sgn(v->q) < 0;
    mpfr_init2(pi, r->precision);
    mpfr_const_pi(pi, negative ? MPFR_RNDU : MPFR_RNDD);
    mpfr_mul(v->lo, v->lo, pi, MPFR_RNDD);
    mpfr_const_pi(pi, negative ? MPFR_RNDD : MPFR_RNDU);
    mpfr_mul(v->hi, v->hi, pi, MPFR_RNDU);
    mpfr_clear(pi);
    return 0;
}

static int calc_enclose_both(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    if (calc_enclose(r, a) < 0 || calc_enclose(r, b) < 0)
        return -1;
    return calc_spend(r, 300 + 8 * calc_work_multiply((uint64_t)r->precision));
}

static bool calc_contains_zero(const struct calc_value *v)
{
    return mpfr_sgn(v->lo) <= 0 && mpfr_sgn(v->hi) >= 0;
}

typedef int calc_end_fn(mpfr_t, const mpfr_t, const mpfr_t, mpfr_rnd_t);

/* The interval of a product or quotient: the least and the largest result of the four pairs of
 * ends. */
static void calc_combine_ends(struct calc_value *a, const struct calc_value *b, calc_end_fn *combine)
{
    mpfr_prec_t precision = mpfr_get_prec(a->lo);
    mpfr_t lo, hi, t;

    mpfr_inits2(precision, lo, hi, t, (mpfr_ptr)NULL);
    for (int i = 0; i < 4; i++) {
        const mpfr_t *x = i & 1 ? &a->hi : &a->lo, *y = i & 2 ? &b->hi : &b->lo;

        combine(t, *x, *y, MPFR_RNDD);
        if (i == 0 || mpfr_less_p(t, lo))
            mpfr_set(lo, t, MPFR_RNDD);
        combine(t, *x, *y, MPFR_RNDU);
        if (i == 0 || mpfr_greater_p(t, hi))
            mpfr_set(hi, t, MPFR_RNDU);
    }
    mpfr_swap(a->lo, lo);
    mpfr_swap(a->hi, hi);
    mpfr_clears(lo, hi, t, (mpfr_ptr)NULL);
}

/* --- arithmetic --- */

static int calc_spend_rational(struct calc_run *r, const struct calc_value *a, const struct calc_value *b)
{
    uint64_t bits = calc_bits(a->q), other = calc_bits(b->q);
    bool integers = calc_value_is_integer(a) && calc_value_is_integer(b);

    return calc_spend(r, 3 * calc_work_multiply(bits > other ? bits : other) +
                             (integers ? 0 : 2 * calc_work_reduce(bits, other)));
}

int calc_add(struct calc_run *r, struct calc_value *a, struct calc_value *b, bool subtract)
{
    if (a->kind == b->kind && (a->kind == CALC_RATIONAL || a->kind == CALC_PI_MULTIPLE)) {
        if (calc_spend_rational(r, a, b) < 0)
            return -1;
        if (subtract)
            mpq_sub(a->q, a->q, b->q);
        else
            mpq_add(a->q, a->q, b->q);
        return calc_check(r, a);
    }
    if (calc_enclose_both(r, a, b) < 0)
        return -1;
    if (subtract)
        calc_negate(b);
    mpfr_add(a->lo, a->lo, b->lo, MPFR_RNDD);
    mpfr_add(a->hi, a->hi, b->hi, MPFR_RNDU);
    return calc_check(r, a);
}

int calc_multiply(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    if (a->kind <= CALC_PI_MULTIPLE && b->kind <= CALC_PI_MULTIPLE &&
        (a->kind == CALC_RATIONAL || b->kind == CALC_RATIONAL)) {
        if (calc_spend_rational(r, a, b) < 0)
            return -1;
        a->kind = a->kind == CALC_RATIONAL ? b->kind : a->kind;
        mpq_mul(a->q, a->q, b->q);
        return calc_check(r, a);
    }
    if ((a->kind == CALC_RATIONAL && mpq_sgn(a->q) == 0) || (b->kind == CALC_RATIONAL && mpq_sgn(b->q) == 0)) {
        mpq_set_ui(a->q, 0, 1);
        a->kind = CALC_RATIONAL;
        return 0;
    }
    if (calc_enclose_both(r, a, b) < 0)
        return -1;
    calc_combine_ends(a, b, mpfr_mul);
    return calc_check(r, a);
}

int calc_divide(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    if (b->kind == CALC_RATIONAL && mpq_sgn(b->q) == 0)
        return calc_fail(r, ERR_CALC_DIVISION, "division by zero; use a divisor that is not zero");
    if (a->kind <= CALC_PI_MULTIPLE && (b->kind == CALC_RATIONAL || (a->kind == b->kind))) {
        if (calc_spend_rational(r, a, b) < 0 ||
            calc_spend(r, 2 * calc_work_reduce(calc_bits(a->q), calc_bits(b->q))) < 0)
            return -1;
        a->kind = b->kind == CALC_RATIONAL ? a->kind : CALC_RATIONAL; /* pi / pi is rational */
        mpq_div(a->q, a->q, b->q);
        return calc_check(r, a);
    }
    if (a->kind == CALC_RATIONAL && mpq_sgn(a->q) == 0 && b->kind == CALC_PI_MULTIPLE)
        return 0;
    if (calc_enclose_both(r, a, b) < 0)
        return -1;
    if (calc_contains_zero(b))
        return calc_fail_undecided(r, "the divisor cannot be distinguished from zero; simplify the expression");
    calc_combine_ends(a, b, mpfr_div);
    return calc_check(r, a);
}

int calc_floor_divide(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    return calc_divide(r, a, b) < 0 ? -1 : calc_round(r, a, CALC_FLOOR);
}

/* a - b * floor(a / b). The result has the sign of the divisor, as in Python. */
int calc_modulo(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    struct calc_value whole, divisor;

    calc_value_init(&whole);
    calc_value_init(&divisor);
    calc_value_copy(r, &whole, a);
    calc_value_copy(r, &divisor, b);
    int rc = calc_floor_divide(r, &whole, b) < 0 || calc_multiply(r, &whole, &divisor) < 0 ? -1 : 0;
    if (rc == 0)
        rc = calc_add(r, a, &whole, true);
    calc_value_done(&whole);
    calc_value_done(&divisor);
    return rc;
}

void calc_negate(struct calc_value *a)
{
    mpq_neg(a->q, a->q);
    if (a->kind == CALC_INTERVAL) {
        mpfr_swap(a->lo, a->hi);
        mpfr_neg(a->lo, a->lo, MPFR_RNDD);
        mpfr_neg(a->hi, a->hi, MPFR_RNDU);
    }
}

/* Of two numbers that are not of the same exact kind; the copies become intervals. */
static int calc_compare_intervals(struct calc_run *r, struct calc_value *a, struct calc_value *b, int *ret)
{
    if (calc_enclose_both(r, a, b) < 0)
        return -1;
    if (!mpfr_less_p(a->hi, b->lo) && !mpfr_less_p(b->hi, a->lo))
        return calc_fail_undecided(r, "the two numbers cannot be distinguished; simplify or round them");
    *ret = mpfr_less_p(a->hi, b->lo) ? -1 : 1;
    return 0;
}

int calc_compare(struct calc_run *r, const struct calc_value *a, const struct calc_value *b, int *ret)
{
    struct calc_value copy_a, copy_b;

    if (a->kind == b->kind && a->kind <= CALC_PI_MULTIPLE) {
        if (calc_spend(r, 2 * calc_work_multiply(calc_bits(a->q) + calc_bits(b->q))) < 0)
            return -1;
        *ret = mpq_cmp(a->q, b->q);
        return 0;
    }
    calc_value_init(&copy_a);
    calc_value_init(&copy_b);
    calc_value_copy(r, &copy_a, a);
    calc_value_copy(r, &copy_b, b);
    int rc = calc_compare_intervals(r, &copy_a, &copy_b, ret);
    calc_value_done(&copy_a);
    calc_value_done(&copy_b);
    return rc;
}

/* --- rounding to an integer --- */

static void calc_round_rational(mpq_ptr q, enum calc_rounding how)
{
    mpz_ptr n = mpq_numref(q), d = mpq_denref(q);

    switch (how) {
    case CALC_FLOOR:
        mpz_fdiv_q(n, n, d);
        break;
    case CALC_CEILING:
        mpz_cdiv_q(n, n, d);
        break;
    case CALC_TRUNCATE:
        mpz_tdiv_q(n, n, d);
        break;
    case CALC_HALF_AWAY: {
        bool negative = mpz_sgn(n) < 0;

        mpz_abs(n, n);
        mpz_mul_2exp(n, n, 1);
        mpz_add(n, n, d);
        mpz_mul_2exp(d, d, 1);
        mpz_fdiv_q(n, n, d);
        if (negative)
            mpz_neg(n, n);
        break;
    }
    }
    mpz_set_ui(d, 1);
}

int calc_round(struct calc_run *r, struct calc_value *a, enum calc_rounding how)
{
    static const mpfr_rnd_t nearest[] = { MPFR_RNDD, MPFR_RNDU, MPFR_RNDZ, MPFR_RNDZ };
    mpz_t lo, hi;

    if (a->kind == CALC_RATIONAL) {
        if (calc_spend(r, 200 + 4 * calc_work_multiply(calc_bits(a->q))) < 0)
            return -1;
        calc_round_rational(a->q, how);
        return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_spend(r, 500 + calc_work_multiply((uint64_t)r->precision)) < 0)
        return -1;
    mpz_inits(lo, hi, (mpz_ptr)NULL);
    if (how == CALC_HALF_AWAY) {
        mpfr_round(a->lo, a->lo);
        mpfr_round(a->hi, a->hi);
    }
    mpfr_get_z(lo, a->lo, nearest[how]);
    mpfr_get_z(hi, a->hi, nearest[how]);
    bool decided = mpz_cmp(lo, hi) == 0;
    mpq_set_z(a->q, lo);
    a->kind = CALC_RATIONAL;
    mpz_clears(lo, hi, (mpz_ptr)NULL);
    return decided ? 0 : calc_fail_undecided(r, "the number is too close to a border of rounding; simplify it");
}
