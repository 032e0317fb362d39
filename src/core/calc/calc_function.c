/* Each function of the table checks its domain and the size of its result before it computes. */
#include "core/calc/calc_angle.h"

#include <strings.h>

/* --- powers, exponentials and logarithms --- */

static int calc_call_sqrt(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_root(r, &args[0], 2);
}

static int calc_call_cbrt(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_root(r, &args[0], 3);
}

static int calc_call_root(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    long degree;

    return calc_root(r, &args[0], calc_value_get_long(&args[1], &degree) && degree > 0 ? (unsigned long)degree : 0);
}

static int calc_call_exp(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_exponential(r, &args[0]);
}

static int calc_call_power(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_power(r, &args[0], &args[1]);
}

/* Whether x = base ** n for an integer n, which is then the exact logarithm. */
static bool calc_find_exact_logarithm(struct calc_run *r, mpq_srcptr x, mpq_srcptr base, long *ret)
{
    mpfr_t a, b;
    bool found = false;

    if (mpq_sgn(x) <= 0 || mpq_sgn(base) <= 0 || mpq_cmp_ui(base, 1, 1) == 0 ||
        calc_spend(r, 8000 + 4 * calc_work_multiply(2 * calc_bits(x) + calc_bits(base))) < 0)
        return false;
    mpfr_inits2(96, a, b, (mpfr_ptr)NULL);
    mpfr_set_q(a, x, MPFR_RNDN);
    mpfr_set_q(b, base, MPFR_RNDN);
    mpfr_log(a, a, MPFR_RNDN);
    mpfr_log(b, b, MPFR_RNDN);
    mpfr_div(a, a, b, MPFR_RNDN);
    mpfr_round(b, a);
    mpfr_sub(a, a, b, MPFR_RNDN);
    long n = mpfr_fits_slong_p(b, MPFR_RNDN) ? mpfr_get_si(b, MPFR_RNDN) : 0;
    bool close = mpfr_zero_p(a) || mpfr_get_exp(a) < -20;
    mpfr_clears(a, b, (mpfr_ptr)NULL);
    unsigned long count = n < 0 ? 0ul - (unsigned long)n : (unsigned long)n;
    /* Close to base ** n means that the power is about as large as x, which is in bounds. */
    if (close && count <= CALC_BITS_MAX && count * (calc_bits(base) - 1) <= calc_bits(x) + 1) {
        mpq_t power;

        mpq_init(power);
        mpz_pow_ui(mpq_numref(power), mpq_numref(base), count);
        mpz_pow_ui(mpq_denref(power), mpq_denref(base), count);
        if (n < 0)
            mpq_inv(power, power);
        found = mpq_equal(power, x) != 0;
        mpq_clear(power);
    }
    if (found)
        *ret = n;
    return found;
}

static int calc_logarithm_to_base(struct calc_run *r, struct calc_value *x, struct calc_value *base)
{
    long n;

    if (x->kind == CALC_RATIONAL && base->kind == CALC_RATIONAL && calc_find_exact_logarithm(r, x->q, base->q, &n)) {
        mpq_set_si(x->q, n, 1);
        return 0;
    }
    if (base->kind == CALC_RATIONAL && mpq_cmp_ui(base->q, 1, 1) == 0)
        return calc_fail(r, ERR_CALC_UNDEFINED, "the base of a logarithm must not be 1; use another base");
    if (calc_logarithm(r, x) < 0 || calc_logarithm(r, base) < 0)
        return -1;
    return calc_divide(r, x, base);
}

static int calc_call_log(struct calc_run *r, struct calc_value *args, size_t n)
{
    return n == 1 ? calc_logarithm(r, &args[0]) : calc_logarithm_to_base(r, &args[0], &args[1]);
}

static int calc_logarithm_to_integer(struct calc_run *r, struct calc_value *x, unsigned long base)
{
    struct calc_value b;

    calc_value_init(&b);
    mpq_set_ui(b.q, base, 1);
    int rc = calc_logarithm_to_base(r, x, &b);
    calc_value_done(&b);
    return rc;
}

static int calc_call_log2(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_logarithm_to_integer(r, &args[0], 2);
}

static int calc_call_log10(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_logarithm_to_integer(r, &args[0], 10);
}

/* --- rounding --- */

static int calc_call_floor(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_round(r, &args[0], CALC_FLOOR);
}

static int calc_call_ceil(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_round(r, &args[0], CALC_CEILING);
}

static int calc_call_trunc(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_round(r, &args[0], CALC_TRUNCATE);
}

/* round(x, places): x scaled by a power of ten, rounded and scaled back. */
static int calc_call_round(struct calc_run *r, struct calc_value *args, size_t n)
{
    struct calc_value ten;
    int rc = -1;

    if (n == 1)
        return calc_round(r, &args[0], CALC_HALF_AWAY);
    if (!calc_value_is_integer(&args[1]))
        return calc_fail(r, ERR_CALC_UNDEFINED, "the number of decimal places must be an integer");
    calc_value_init(&ten);
    mpq_set_ui(ten.q, 10, 1);
    if (calc_power(r, &ten, &args[1]) == 0) {
        mpq_set(args[1].q, ten.q);
        if (calc_multiply(r, &args[0], &ten) == 0 && calc_round(r, &args[0], CALC_HALF_AWAY) == 0)
            rc = calc_divide(r, &args[0], &args[1]);
    }
    calc_value_done(&ten);
    return rc;
}

static int calc_call_abs(struct calc_run *r UNUSED, struct calc_value *args, size_t n UNUSED)
{
    struct calc_value *a = &args[0];

    if (a->kind != CALC_INTERVAL) {
        mpq_abs(a->q, a->q);
    } else if (mpfr_sgn(a->hi) <= 0) {
        calc_negate(a);
    } else if (mpfr_sgn(a->lo) < 0) {
        mpfr_neg(a->lo, a->lo, MPFR_RNDU);
        mpfr_max(a->hi, a->lo, a->hi, MPFR_RNDU);
        mpfr_set_zero(a->lo, 1);
    }
    return 0;
}

/* --- lists --- */

/* The extreme of intervals is the interval of the extremes of their ends, so it is never
 * undecided. */
static int calc_find_extreme(struct calc_run *r, struct calc_value *args, size_t n, bool largest)
{
    for (size_t i = 1; i < n; i++) {
        struct calc_value *a = &args[0], *b = &args[i];
        int order;

        if (a->kind == b->kind && a->kind <= CALC_PI_MULTIPLE) {
            if (calc_compare(r, a, b, &order) < 0)
                return -1;
            if (largest ? order < 0 : order > 0)
                calc_value_swap(a, b);
            continue;
        }
        if (calc_enclose(r, a) < 0 || calc_enclose(r, b) < 0 || calc_spend(r, 500) < 0)
            return -1;
        (largest ? mpfr_max : mpfr_min)(a->lo, a->lo, b->lo, MPFR_RNDD);
        (largest ? mpfr_max : mpfr_min)(a->hi, a->hi, b->hi, MPFR_RNDU);
    }
    return 0;
}

static int calc_call_min(struct calc_run *r, struct calc_value *args, size_t n)
{
    return calc_find_extreme(r, args, n, false);
}

static int calc_call_max(struct calc_run *r, struct calc_value *args, size_t n)
{
    return calc_find_extreme(r, args, n, true);
}

static int calc_call_sum(struct calc_run *r, struct calc_value *args, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (calc_add(r, &args[0], &args[i], false) < 0)
            return -1;
    return 0;
}

static int calc_divide_by(struct calc_run *r, struct calc_value *a, unsigned long n)
{
    struct calc_value divisor;

    calc_value_init(&divisor);
    mpq_set_ui(divisor.q, n, 1);
    int rc = calc_divide(r, a, &divisor);
    calc_value_done(&divisor);
    return rc;
}

static int calc_call_mean(struct calc_run *r, struct calc_value *args, size_t n)
{
    return calc_call_sum(r, args, n) < 0 ? -1 : calc_divide_by(r, &args[0], n);
}

/* Sorts by insertion; the place is found by bisection. */
static int calc_call_median(struct calc_run *r, struct calc_value *args, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        size_t from = 0, to = i;

        while (from < to) {
            size_t middle = (from + to) / 2;
            int order;

            if (calc_compare(r, &args[middle], &args[i], &order) < 0)
                return -1;
            if (order <= 0)
                from = middle + 1;
            else
                to = middle;
        }
        for (size_t k = i; k > from; k--)
            calc_value_swap(&args[k - 1], &args[k]);
    }
    calc_value_swap(&args[0], &args[n / 2]);
    if (n % 2 != 0)
        return 0;
    /* The swap moved the other middle number only if n is 2. */
    size_t other = n == 2 ? 1 : n / 2 - 1;
    return calc_add(r, &args[0], &args[other], false) < 0 ? -1 : calc_divide_by(r, &args[0], 2);
}

/* --- integers --- */

static int calc_require_integers(struct calc_run *r, const struct calc_value *args, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (!calc_value_is_integer(&args[i]))
            return calc_fail(r, ERR_CALC_UNDEFINED, "%s is defined for integers only; round the argument first", name);
    return 0;
}

static int calc_call_gcd(struct calc_run *r, struct calc_value *args, size_t n)
{
    if (calc_require_integers(r, args, n, "gcd") < 0)
        return -1;
    mpz_abs(mpq_numref(args[0].q), mpq_numref(args[0].q));
    for (size_t i = 1; i < n; i++) {
        if (calc_spend(r, calc_work_reduce(calc_bits(args[0].q), calc_bits(args[i].q))) < 0)
            return -1;
        mpz_gcd(mpq_numref(args[0].q), mpq_numref(args[0].q), mpq_numref(args[i].q));
    }
    return 0;
}

static int calc_call_lcm(struct calc_run *r, struct calc_value *args, size_t n)
{
    if (calc_require_integers(r, args, n, "lcm") < 0)
        return -1;
    mpz_abs(mpq_numref(args[0].q), mpq_numref(args[0].q));
    for (size_t i = 1; i < n; i++) {
        if (calc_spend(r, 3 * calc_work_reduce(calc_bits(args[0].q), calc_bits(args[i].q))) < 0)
            return -1;
        mpz_lcm(mpq_numref(args[0].q), mpq_numref(args[0].q), mpq_numref(args[i].q));
        if (calc_check(r, &args[0]) < 0)
            return -1;
    }
    return 0;
}

/* The product of `count` factors from `first` upwards, of which each has at most `bits` bits. The
 * size of the result is checked before each product. */
static int calc_rising_product(struct calc_run *r, struct calc_value *a, mpz_ptr first, unsigned long count)
{
    mpz_set_ui(mpq_numref(a->q), 1);
    for (unsigned long i = 0; i < count; i++) {
        size_t bits = calc_bits(a->q);

        if (bits > CALC_BITS_MAX)
            return calc_fail_size(r);
        if (calc_spend(r, 50 + (bits / 64 + 1) * (mpz_sizeinbase(first, 2) / 64 + 1) / 2) < 0)
            return -1;
        mpz_mul(mpq_numref(a->q), mpq_numref(a->q), first);
        mpz_add_ui(first, first, 1);
    }
    return calc_check(r, a);
}

int calc_factorial(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    long count;

    if (!calc_value_is_integer(&args[0]) || mpq_sgn(args[0].q) < 0)
        return calc_fail(r, ERR_CALC_UNDEFINED, "the factorial is defined for integers from 0 only");
    /* 3300! has more than CALC_VALUE_DIGITS_MAX digits. */
    if (!calc_value_get_long(&args[0], &count) || count > 3300)
        return calc_fail_size(r);
    if (calc_spend(r, 200 + 10 * (uint64_t)count) < 0)
        return -1;
    mpz_fac_ui(mpq_numref(args[0].q), (unsigned long)count);
    return calc_check(r, &args[0]);
}

/* n * (n - 1) * ... of k factors, and if `choose`, divided by k!. */
static int calc_arrangements(struct calc_run *r, struct calc_value *args, bool choose)
{
    struct calc_value *n = &args[0], *k = &args[1];
    long count;

    if (calc_require_integers(r, args, 2, choose ? "binomial" : "perm") < 0)
        return -1;
    if (mpq_sgn(n->q) < 0 || mpq_sgn(k->q) < 0)
        return calc_fail(r, ERR_CALC_UNDEFINED, "%s is defined for integers from 0 only", choose ? "binomial" : "perm");
    if (mpq_cmp(k->q, n->q) > 0) {
        mpq_set_ui(n->q, 0, 1);
        return 0;
    }
    mpz_t first;
    int rc = -1;
    mpz_init(first);
    mpz_sub(first, mpq_numref(n->q), mpq_numref(k->q));
    if (choose && mpz_cmp(first, mpq_numref(k->q)) < 0)
        mpz_swap(first, mpq_numref(k->q));
    /* Each factor is at least 2, except one, and a binomial of k up to n/2 is at least 2 ** k. */
    if (!calc_value_get_long(k, &count) || count > CALC_BITS_MAX + 1) {
        rc = calc_fail_size(r);
    } else if (choose) {
        /* A binomial is at least (n/k)^k, which has more than k * (bits of n/k - 1) bits, and at
         * most (e * n/k)^k. The first refuses only results that are too large; the second
         * bounds the result that is computed. */
        uint64_t each = calc_bits(n->q) > calc_bits(k->q) ? calc_bits(n->q) - calc_bits(k->q) : 0;
        if (each > 1 && (each - 1) * (uint64_t)count > CALC_BITS_MAX)
            rc = calc_fail_size(r);
        else if (calc_spend(r, 1000 + (uint64_t)count * (100 + (each + 3) * (uint64_t)count / 64)) == 0) {
            mpz_bin_ui(mpq_numref(n->q), mpq_numref(n->q), (unsigned long)count);
            rc = calc_check(r, n);
        }
    } else {
        mpz_add_ui(first, first, 1);
        rc = calc_rising_product(r, n, first, (unsigned long)count);
    }
    mpz_clear(first);
    return rc;
}

static int calc_call_binomial(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_arrangements(r, args, true);
}

static int calc_call_perm(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_arrangements(r, args, false);
}

static int calc_call_mod(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    return calc_modulo(r, &args[0], &args[1]);
}

/* --- constants --- */

static int calc_call_pi(struct calc_run *r UNUSED, struct calc_value *args, size_t n UNUSED)
{
    mpq_set_ui(args[0].q, 1, 1);
    args[0].kind = CALC_PI_MULTIPLE;
    return 0;
}

static int calc_call_tau(struct calc_run *r UNUSED, struct calc_value *args, size_t n UNUSED)
{
    mpq_set_ui(args[0].q, 2, 1);
    args[0].kind = CALC_PI_MULTIPLE;
    return 0;
}

static int calc_call_e(struct calc_run *r, struct calc_value *args, size_t n UNUSED)
{
    mpq_set_ui(args[0].q, 1, 1);
    return calc_exponential(r, &args[0]);
}

static const struct calc_function calc_functions[] = {
    { "sqrt", 1, 1, calc_call_sqrt },
    { "cbrt", 1, 1, calc_call_cbrt },
    { "root", 2, 2, calc_call_root },
    { "exp", 1, 1, calc_call_exp },
    { "ln", 1, 1, calc_call_log },
    { "log", 1, 2, calc_call_log },
    { "log2", 1, 1, calc_call_log2 },
    { "log10", 1, 1, calc_call_log10 },
    { "pow", 2, 2, calc_call_power },
    { "sin", 1, 1, calc_angle_sin },
    { "cos", 1, 1, calc_angle_cos },
    { "tan", 1, 1, calc_angle_tan },
    { "asin", 1, 1, calc_angle_asin },
    { "acos", 1, 1, calc_angle_acos },
    { "atan", 1, 1, calc_angle_atan },
    { "degrees", 1, 1, calc_angle_degrees },
    { "radians", 1, 1, calc_angle_radians },
    { "floor", 1, 1, calc_call_floor },
    { "ceil", 1, 1, calc_call_ceil },
    { "trunc", 1, 1, calc_call_trunc },
    { "round", 1, 2, calc_call_round },
    { "abs", 1, 1, calc_call_abs },
    { "min", 1, CALC_ARGUMENTS_MAX, calc_call_min },
    { "max", 1, CALC_ARGUMENTS_MAX, calc_call_max },
    { "sum", 1, CALC_ARGUMENTS_MAX, calc_call_sum },
    { "avg", 1, CALC_ARGUMENTS_MAX, calc_call_mean },
    { "mean", 1, CALC_ARGUMENTS_MAX, calc_call_mean },
    { "median", 1, CALC_ARGUMENTS_MAX, calc_call_median },
    { "gcd", 1, CALC_ARGUMENTS_MAX, calc_call_gcd },
    { "lcm", 1, CALC_ARGUMENTS_MAX, calc_call_lcm },
    { "factorial", 1, 1, calc_factorial },
    { "binomial", 2, 2, calc_call_binomial },
    { "comb", 2, 2, calc_call_binomial },
    { "perm", 2, 2, calc_call_perm },
    { "mod", 2, 2, calc_call_mod },
    { "pi", 0, 0, calc_call_pi },
    { "tau", 0, 0, calc_call_tau },
    { "e", 0, 0, calc_call_e },
};

const struct calc_function *calc_function_find(const char *name, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(calc_functions); i++)
        if (strlen(calc_functions[i].name) == len && strncasecmp(calc_functions[i].name, name, len) == 0)
            return &calc_functions[i];
    return NULL;
}

const char *const *calc_function_names(void)
{
    static const char *names[ARRAY_LEN(calc_functions) + 1];

    for (size_t i = 0; i < ARRAY_LEN(calc_functions); i++)
        names[i] = calc_functions[i].name;
    return names;
}
