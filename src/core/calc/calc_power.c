/* Powers, roots, exp and ln. A result that is rational stays exact: sqrt(16/9) is 4/3 and
 * 8 ** (2/3) is 4. Sizes of exact results are computed from the sizes of the operands before GMP is
 * called. */
#include "core/calc/calc_value.h"

#define EXP_ARGUMENT_MAX 23026 /* exp of it has CALC_VALUE_DIGITS_MAX digits */
#define ROOT_MAX 10000u
#define DIRECT_ROOT_MAX 5u
#define POWER_MAX 1000000l /* larger integer powers of intervals are computed as exp(n * ln x) */

/* exp(ln(a) / n). MPFR computes a high root from a number of n times the precision. */
static int calc_logarithmic_root(struct calc_run *r, struct calc_value *a, unsigned long n)
{
    struct calc_value degree;
    bool negative = mpfr_sgn(a->hi) < 0;

    if (negative)
        calc_negate(a);
    calc_value_init(&degree);
    mpq_set_ui(degree.q, n, 1);
    int rc = calc_logarithm(r, a);
    if (rc == 0)
        rc = calc_divide(r, a, &degree);
    if (rc == 0)
        rc = calc_exponential(r, a);
    calc_value_done(&degree);
    if (negative)
        calc_negate(a);
    return rc;
}

static int calc_interval_root(struct calc_run *r, struct calc_value *a, unsigned long n)
{
    if (calc_enclose(r, a) < 0 || calc_spend(r, 1500 + 16 * calc_work_multiply((uint64_t)r->precision)) < 0)
        return -1;
    if (n % 2 == 0 && mpfr_sgn(a->lo) < 0) {
        if (mpfr_sgn(a->hi) >= 0)
            return calc_fail_undecided(r, "the sign of the number under the root cannot be decided; simplify it");
        return calc_fail(r, ERR_CALC_UNDEFINED,
                         "an even root of a negative number is not a real number; use a number that is not negative");
    }
    if (n > DIRECT_ROOT_MAX)
        return calc_logarithmic_root(r, a, n);
    mpfr_rootn_ui(a->lo, a->lo, n, MPFR_RNDD);
    mpfr_rootn_ui(a->hi, a->hi, n, MPFR_RNDU);
    return calc_check(r, a);
}

/* Replaces q by its n-th root if that is rational: the roots of numerator and denominator are
 * integers, because the fraction is in lowest terms. Not for a negative q and an even n. 1: it is;
 * 0: it is not, and q is unchanged. */
static int calc_exact_root(struct calc_run *r, mpq_ptr q, unsigned long n)
{
    mpz_t num, den;

    if (calc_spend(r, 500 + 3 * calc_work_multiply(calc_bits(q))) < 0)
        return -1;
    mpz_inits(num, den, (mpz_ptr)NULL);
    bool exact = mpz_root(num, mpq_numref(q), n) != 0 && mpz_root(den, mpq_denref(q), n) != 0;
    if (exact) {
        mpz_set(mpq_numref(q), num);
        mpz_set(mpq_denref(q), den);
    }
    mpz_clears(num, den, (mpz_ptr)NULL);
    return exact;
}

int calc_root(struct calc_run *r, struct calc_value *a, unsigned long n)
{
    if (n == 0 || n > ROOT_MAX)
        return calc_fail(r, ERR_CALC_UNDEFINED, "the degree of a root must be an integer from 1 to %u", ROOT_MAX);
    if (a->kind != CALC_RATIONAL || (mpq_sgn(a->q) < 0 && n % 2 == 0))
        return calc_interval_root(r, a, n);
    int exact = calc_exact_root(r, a->q, n);
    return exact > 0 ? 0 : exact < 0 ? -1 : calc_interval_root(r, a, n);
}

int calc_exponential(struct calc_run *r, struct calc_value *a)
{
    if (a->kind == CALC_RATIONAL && mpq_sgn(a->q) == 0) {
        mpq_set_ui(a->q, 1, 1);
        return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_spend(r, 2 * calc_work_function(r->precision)) < 0)
        return -1;
    if (mpfr_cmp_si(a->hi, EXP_ARGUMENT_MAX) > 0 || mpfr_cmp_si(a->lo, -EXP_ARGUMENT_MAX) < 0)
        return calc_fail_size(r);
    mpfr_exp(a->lo, a->lo, MPFR_RNDD);
    mpfr_exp(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}

int calc_logarithm(struct calc_run *r, struct calc_value *a)
{
    if (a->kind == CALC_RATIONAL && mpq_cmp_ui(a->q, 1, 1) == 0) {
        mpq_set_ui(a->q, 0, 1);
        return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_spend(r, 2 * calc_work_function(r->precision)) < 0)
        return -1;
    if (mpfr_sgn(a->lo) <= 0) {
        if (mpfr_sgn(a->hi) > 0)
            return calc_fail_undecided(r, "the sign of the argument of the logarithm cannot be decided; simplify it");
        return calc_fail(r, ERR_CALC_UNDEFINED,
                         "the logarithm is defined for positive numbers only; use a positive argument");
    }
    mpfr_log(a->lo, a->lo, MPFR_RNDD);
    mpfr_log(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}

/* --- powers --- */

/* q ** n for an integer n. The result has at most |n| times the bits of q. */
static int calc_integer_power(struct calc_run *r, mpq_ptr q, long n)
{
    unsigned long count = n < 0 ? 0ul - (unsigned long)n : (unsigned long)n;
    bool unit = mpz_cmpabs_ui(mpq_numref(q), 1) <= 0 && mpz_cmp_ui(mpq_denref(q), 1) == 0;

    if (n < 0 && mpq_sgn(q) == 0)
        return calc_fail(r, ERR_CALC_DIVISION, "zero to a negative power divides by zero; use a base that is not zero");
    if (unit) { /* 0, 1 or -1, to any power */
        if (count == 0 || (mpz_sgn(mpq_numref(q)) < 0 && count % 2 == 0))
            mpq_set_ui(q, 1, 1);
        return 0;
    }
    /* A number of b bits is at least 2 ** (b - 1), so the first test refuses only results that are
     * too large, and the second bounds the result that is computed. */
    size_t bits = calc_bits(q);
    if (count > CALC_BITS_MAX || (bits > 1 && (bits - 1) * count > CALC_BITS_MAX))
        return calc_fail_size(r);
    if (calc_spend(r, 100 + 3 * calc_work_multiply(bits * count)) < 0)
        return -1;
    mpz_pow_ui(mpq_numref(q), mpq_numref(q), count);
    mpz_pow_ui(mpq_denref(q), mpq_denref(q), count);
    if (n < 0)
        mpq_inv(q, q);
    return 0;
}

/* a ** b = exp(b * ln a), for a positive interval a. */
static int calc_interval_power(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    if (calc_logarithm(r, a) < 0 || calc_multiply(r, a, b) < 0)
        return -1;
    return calc_exponential(r, a);
}

/* An interval to an integer power. Monotonic on each side of zero. */
static int calc_interval_integer_power(struct calc_run *r, struct calc_value *a, long n)
{
    bool below = mpfr_sgn(a->hi) < 0, around = mpfr_sgn(a->lo) <= 0 && mpfr_sgn(a->hi) >= 0;

    if (n < 0 && around)
        return calc_fail_undecided(r, "the base cannot be distinguished from zero; simplify it");
    uint64_t squarings = 2;
    for (long rest = n; rest != 0; rest /= 2)
        squarings++;
    if (calc_spend(r, 500 + 4 * squarings * calc_work_multiply((uint64_t)r->precision)) < 0)
        return -1;
    if (around && n % 2 == 0) { /* from 0 to the power of the end that is farther away */
        mpfr_neg(a->lo, a->lo, MPFR_RNDU);
        mpfr_max(a->hi, a->lo, a->hi, MPFR_RNDU);
        mpfr_set_zero(a->lo, 1);
        mpfr_pow_si(a->hi, a->hi, n, MPFR_RNDU);
        return calc_check(r, a);
    }
    if (around) {
        mpfr_pow_si(a->lo, a->lo, n, MPFR_RNDD);
        mpfr_pow_si(a->hi, a->hi, n, MPFR_RNDU);
        return calc_check(r, a);
    }
    /* Of the absolute value, which rises with n > 0 and falls with n < 0. */
    if (below)
        calc_negate(a);
    if (n < 0)
        mpfr_swap(a->lo, a->hi);
    mpfr_pow_si(a->lo, a->lo, n, MPFR_RNDD);
    mpfr_pow_si(a->hi, a->hi, n, MPFR_RNDU);
    if (below && n % 2 != 0)
        calc_negate(a);
    return calc_check(r, a);
}

static int calc_rational_power(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    long n;

    if (calc_value_is_integer(b)) {
        if (calc_value_get_long(b, &n))
            return calc_integer_power(r, a->q, n) < 0 ? -1 : calc_check(r, a);
        bool unit = calc_value_is_integer(a) && mpz_cmpabs_ui(mpq_numref(a->q), 1) <= 0;
        return unit ? calc_integer_power(r, a->q, mpq_sgn(b->q) * (mpz_odd_p(mpq_numref(b->q)) ? 1 : 2))
                    : calc_fail_size(r);
    }
    if (mpq_sgn(a->q) < 0)
        return calc_fail(
            r, ERR_CALC_UNDEFINED,
            "a negative number to a fractional power is not a real number; for an odd root use root(x, n)");
    if (mpq_sgn(a->q) == 0)
        return mpq_sgn(b->q) > 0 ? 0 : calc_fail(r, ERR_CALC_DIVISION, "zero to a negative power divides by zero");
    if (mpz_cmp_ui(mpq_denref(b->q), ROOT_MAX) <= 0 && mpz_fits_slong_p(mpq_numref(b->q))) {
        int exact = calc_exact_root(r, a->q, mpz_get_ui(mpq_denref(b->q)));
        if (exact < 0)
            return -1;
        if (exact)
            return calc_integer_power(r, a->q, mpz_get_si(mpq_numref(b->q))) < 0 ? -1 : calc_check(r, a);
    }
    return calc_interval_power(r, a, b);
}

int calc_power(struct calc_run *r, struct calc_value *a, struct calc_value *b)
{
    long n;

    if (a->kind == CALC_RATIONAL && b->kind == CALC_RATIONAL)
        return calc_rational_power(r, a, b);
    if (b->kind == CALC_RATIONAL && calc_value_get_long(b, &n)) {
        if (n == 0) {
            mpq_set_ui(a->q, 1, 1);
            a->kind = CALC_RATIONAL;
            return 0;
        }
        if (calc_enclose(r, a) < 0)
            return -1;
        if (n <= POWER_MAX && n >= -POWER_MAX)
            return calc_interval_integer_power(r, a, n);
    }
    if (calc_enclose(r, a) < 0)
        return -1;
    if (mpfr_sgn(a->hi) < 0)
        return calc_fail(r, ERR_CALC_UNDEFINED,
                         "a negative number to a power that is not an integer is not a real number");
    return calc_interval_power(r, a, b);
}
