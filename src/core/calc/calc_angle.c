#include "core/calc/calc_angle.h"

static bool calc_angle_is_zero(const struct calc_value *a)
{
    return a->kind == CALC_RATIONAL && mpq_sgn(a->q) == 0;
}

static void calc_angle_set(struct calc_value *a, enum calc_kind kind, long numerator, unsigned long denominator)
{
    mpq_set_si(a->q, numerator, denominator);
    mpq_canonicalize(a->q);
    a->kind = numerator == 0 ? CALC_RATIONAL : kind;
}

/* --- degrees and radians --- */

int calc_degrees(struct calc_run *r, struct calc_value *a)
{
    struct calc_value degree;

    calc_value_init(&degree);
    calc_angle_set(&degree, CALC_PI_MULTIPLE, 1, 180);
    int rc = calc_multiply(r, a, &degree);
    calc_value_done(&degree);
    return rc;
}

int calc_angle_radians(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_degrees(r, &args[0]);
}

int calc_angle_degrees(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    struct calc_value degree;

    calc_value_init(&degree);
    calc_angle_set(&degree, CALC_PI_MULTIPLE, 1, 180);
    int rc = calc_divide(r, &args[0], &degree);
    calc_value_done(&degree);
    return rc;
}

/* --- sine, cosine, tangent --- */

/* Reduces a multiple of pi to the first turn. *ret: the angle in twelfths of a turn, or -1. */
static int calc_angle_reduce(struct calc_run *r, struct calc_value *a, long *ret)
{
    mpz_t turn;

    *ret = -1;
    if (a->kind != CALC_PI_MULTIPLE)
        return 0;
    if (calc_spend(r, 500 + 3 * calc_work_multiply(calc_bits(a->q)) +
                          calc_work_reduce(calc_bits(a->q), calc_bits(a->q))) < 0)
        return -1;
    mpz_init(turn);
    mpz_mul_2exp(turn, mpq_denref(a->q), 1);
    mpz_fdiv_r(mpq_numref(a->q), mpq_numref(a->q), turn);
    mpz_clear(turn);
    mpq_canonicalize(a->q);
    unsigned long parts = mpz_cmp_ui(mpq_denref(a->q), 6) <= 0 ? mpz_get_ui(mpq_denref(a->q)) : 0;
    if (parts > 0 && 6 % parts == 0)
        *ret = (long)(mpz_get_ui(mpq_numref(a->q)) * (6 / parts));
    return 0;
}

/* Whether the sine of this angle is rational; it becomes the value. */
static bool calc_angle_exact_sine(struct calc_value *a, long twelfths)
{
    static const struct {
        bool rational;
        signed char doubled;
    } sines[] = { { true, 0 }, { true, 1 },  { false, 0 }, { true, 2 },  { false, 0 }, { true, 1 },
                  { true, 0 }, { true, -1 }, { false, 0 }, { true, -2 }, { false, 0 }, { true, -1 } };

    if (twelfths < 0 || !sines[twelfths % 12].rational)
        return false;
    calc_angle_set(a, CALC_RATIONAL, sines[twelfths % 12].doubled, 2);
    return true;
}

/* The work of a function whose argument is reduced by a multiple of pi: large arguments need as
 * many more bits of pi. */
static int calc_angle_spend(struct calc_run *r, const struct calc_value *a)
{
    mpfr_exp_t size = 0;

    if (mpfr_regular_p(a->hi))
        size = mpfr_get_exp(a->hi) > size ? mpfr_get_exp(a->hi) : size;
    if (mpfr_regular_p(a->lo))
        size = mpfr_get_exp(a->lo) > size ? mpfr_get_exp(a->lo) : size;
    return calc_spend(r, 2 * calc_work_function(r->precision + size));
}

/* Neither sine nor cosine changes faster than its argument, so the value at one end and the width
 * of the interval enclose all values. */
static int calc_angle_interval_sine(struct calc_run *r, struct calc_value *a, bool cosine)
{
    int (*f)(mpfr_t, const mpfr_t, mpfr_rnd_t) = cosine ? mpfr_cos : mpfr_sin;
    mpfr_t width, low, high;

    if (calc_enclose(r, a) < 0 || calc_angle_spend(r, a) < 0)
        return -1;
    mpfr_inits2(r->precision, width, low, high, (mpfr_ptr)NULL);
    mpfr_sub(width, a->hi, a->lo, MPFR_RNDU);
    f(low, a->lo, MPFR_RNDD);
    mpfr_set(high, low, MPFR_RNDU);
    mpfr_nextabove(high);
    mpfr_sub(low, low, width, MPFR_RNDD);
    mpfr_add(high, high, width, MPFR_RNDU);
    if (mpfr_cmp_si(low, -1) < 0)
        mpfr_set_si(low, -1, MPFR_RNDD);
    if (mpfr_cmp_si(high, 1) > 0)
        mpfr_set_si(high, 1, MPFR_RNDU);
    mpfr_swap(a->lo, low);
    mpfr_swap(a->hi, high);
    mpfr_clears(width, low, high, (mpfr_ptr)NULL);
    return calc_check(r, a);
}

int calc_angle_sin(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    long twelfths;

    if (calc_angle_is_zero(&args[0]))
        return 0;
    if (calc_angle_reduce(r, &args[0], &twelfths) < 0)
        return -1;
    return calc_angle_exact_sine(&args[0], twelfths) ? 0 : calc_angle_interval_sine(r, &args[0], false);
}

int calc_angle_cos(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    long twelfths;

    if (calc_angle_is_zero(&args[0])) {
        calc_angle_set(&args[0], CALC_RATIONAL, 1, 1);
        return 0;
    }
    if (calc_angle_reduce(r, &args[0], &twelfths) < 0)
        return -1;
    return calc_angle_exact_sine(&args[0], twelfths < 0 ? -1 : twelfths + 3)
               ? 0
               : calc_angle_interval_sine(r, &args[0], true);
}

/* Whether an interval lies between two poles of the tangent: no zero of the cosine is inside. */
static int calc_angle_check_poles(struct calc_run *r, const struct calc_value *a)
{
    struct calc_value copy;

    calc_value_init(&copy);
    calc_value_make_interval(r, &copy);
    mpfr_set(copy.lo, a->lo, MPFR_RNDD);
    mpfr_set(copy.hi, a->hi, MPFR_RNDU);
    int rc = calc_angle_interval_sine(r, &copy, true);
    bool inside = rc == 0 && mpfr_sgn(copy.lo) <= 0 && mpfr_sgn(copy.hi) >= 0;
    calc_value_done(&copy);
    return inside ? calc_fail_undecided(r, "the tangent cannot be distinguished from infinity; simplify the angle")
                  : rc;
}

int calc_angle_tan(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    struct calc_value *a = &args[0];

    if (calc_angle_is_zero(a))
        return 0;
    if (a->kind == CALC_PI_MULTIPLE) { /* the first half turn, in quarters */
        if (calc_spend(r, 500 + 3 * calc_work_multiply(calc_bits(a->q)) +
                              calc_work_reduce(calc_bits(a->q), calc_bits(a->q))) < 0)
            return -1;
        mpz_fdiv_r(mpq_numref(a->q), mpq_numref(a->q), mpq_denref(a->q));
        mpq_canonicalize(a->q);
        if (mpq_cmp_ui(a->q, 1, 2) == 0)
            return calc_fail(r, ERR_CALC_UNDEFINED, "the tangent of a right angle is not defined; use another angle");
        bool exact = true;
        if (mpq_sgn(a->q) == 0)
            calc_angle_set(a, CALC_RATIONAL, 0, 1);
        else if (mpq_cmp_ui(a->q, 1, 4) == 0)
            calc_angle_set(a, CALC_RATIONAL, 1, 1);
        else if (mpq_cmp_ui(a->q, 3, 4) == 0)
            calc_angle_set(a, CALC_RATIONAL, -1, 1);
        else
            exact = false;
        if (exact)
            return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_angle_check_poles(r, a) < 0 || calc_angle_spend(r, a) < 0 ||
        calc_angle_spend(r, a) < 0)
        return -1;
    mpfr_tan(a->lo, a->lo, MPFR_RNDD);
    mpfr_tan(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}

/* --- inverse functions --- */

/* *ret: twice the value if that is -2, -1, 0, 1 or 2; otherwise 3. */
static int calc_angle_check_sine(struct calc_run *r, struct calc_value *a, long *ret)
{
    *ret = 3;
    if (a->kind == CALC_RATIONAL) {
        if (mpq_cmp_si(a->q, -1, 1) < 0 || mpq_cmp_si(a->q, 1, 1) > 0)
            return calc_fail(r, ERR_CALC_UNDEFINED, "asin and acos are defined from -1 to 1; use an argument in it");
        if (mpz_cmp_ui(mpq_denref(a->q), 2) <= 0)
            *ret = mpz_get_si(mpq_numref(a->q)) * (mpz_get_ui(mpq_denref(a->q)) == 1 ? 2 : 1);
        if (*ret != 3)
            return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_spend(r, 6000 + 4 * calc_work_function(r->precision)) < 0)
        return -1;
    if (mpfr_cmp_si(a->lo, 1) > 0 || mpfr_cmp_si(a->hi, -1) < 0)
        return calc_fail(r, ERR_CALC_UNDEFINED, "asin and acos are defined from -1 to 1; use an argument in it");
    if (mpfr_cmp_si(a->hi, 1) > 0 || mpfr_cmp_si(a->lo, -1) < 0)
        return calc_fail_undecided(r, "the argument cannot be distinguished from 1 or -1; simplify it");
    return 0;
}

int calc_angle_asin(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    struct calc_value *a = &args[0];
    long doubled;

    if (calc_angle_check_sine(r, a, &doubled) < 0)
        return -1;
    if (doubled != 3) {
        calc_angle_set(a, CALC_PI_MULTIPLE, doubled == 2 ? 3 : doubled == -2 ? -3 : doubled, 6);
        return 0;
    }
    mpfr_asin(a->lo, a->lo, MPFR_RNDD);
    mpfr_asin(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}

int calc_angle_acos(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    static const long sixths[] = { 6, 4, 3, 2, 0 }; /* of half a turn, for -1, -1/2, 0, 1/2, 1 */
    struct calc_value *a = &args[0];
    long doubled;

    if (calc_angle_check_sine(r, a, &doubled) < 0)
        return -1;
    if (doubled != 3) {
        calc_angle_set(a, CALC_PI_MULTIPLE, sixths[doubled + 2], 6);
        return 0;
    }
    mpfr_swap(a->lo, a->hi); /* the function falls */
    mpfr_acos(a->lo, a->lo, MPFR_RNDD);
    mpfr_acos(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}

int calc_angle_atan(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    struct calc_value *a = &args[0];

    if (calc_angle_is_zero(a))
        return 0;
    if (a->kind == CALC_RATIONAL && mpz_cmp_ui(mpq_denref(a->q), 1) == 0 && mpz_cmpabs_ui(mpq_numref(a->q), 1) == 0) {
        calc_angle_set(a, CALC_PI_MULTIPLE, mpq_sgn(a->q), 4);
        return 0;
    }
    if (calc_enclose(r, a) < 0 || calc_spend(r, 6000 + 4 * calc_work_function(r->precision)) < 0)
        return -1;
    mpfr_atan(a->lo, a->lo, MPFR_RNDD);
    mpfr_atan(a->hi, a->hi, MPFR_RNDU);
    return calc_check(r, a);
}
