#include "core/calc/calc_format.h"

#include <stdio.h>

#define PLAIN_ZEROS_MAX 20 /* zeros between the point and the first digit; more are an exponent */
#define SHORT_BITS 133     /* 40 digits */
#define SHORT_DIGITS 10

/* Writes 0.DIGITS * 10 ** exponent, without trailing zeros after the point. An exponent is written
 * if the number needs zeros that are not among the digits, or many zeros after the point. */
static void calc_write_decimal(struct buf *out, bool negative, const char *digits, long exponent)
{
    long given = (long)strlen(digits), n = given;

    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (negative)
        buf_adds(out, "-");
    if (exponent > given || exponent <= -PLAIN_ZEROS_MAX) {
        buf_add(out, digits, 1);
        if (n > 1) {
            buf_adds(out, ".");
            buf_add(out, digits + 1, (size_t)n - 1);
        }
        buf_addf(out, "e%+ld", exponent - 1);
        return;
    }
    if (exponent > 0) {
        buf_add(out, digits, (size_t)exponent);
        if (n <= exponent)
            return;
        buf_adds(out, ".");
        buf_add(out, digits + exponent, (size_t)(n - exponent));
        return;
    }
    buf_adds(out, "0.");
    for (long i = exponent; i < 0; i++)
        buf_adds(out, "0");
    buf_add(out, digits, (size_t)n);
}

static void calc_write_integer(mpz_srcptr n, struct buf *out)
{
    size_t room = mpz_sizeinbase(n, 10) + 2;

    out->len += strlen(mpz_get_str(buf_room(out, room), 10, n));
}

void calc_format_fraction(mpq_srcptr q, struct buf *out)
{
    calc_write_integer(mpq_numref(q), out);
    if (mpz_cmp_ui(mpq_denref(q), 1) != 0) {
        buf_adds(out, "/");
        calc_write_integer(mpq_denref(q), out);
    }
}

static void calc_write_scaled(mpz_srcptr n, long places, bool negative, struct buf *out)
{
    auto_buf digits = { 0 };

    calc_write_integer(n, &digits);
    calc_write_decimal(out, negative, digits.data, (long)digits.len - places);
}

/* The number of decimal places of q, or -1 if its decimal does not end: the denominator has another
 * factor than 2 and 5. */
static long calc_decimal_places(mpq_srcptr q)
{
    mpz_t rest, five;
    long twos = (long)mpz_scan1(mpq_denref(q), 0), fives;

    mpz_init(rest);
    mpz_init_set_ui(five, 5);
    mpz_tdiv_q_2exp(rest, mpq_denref(q), (mp_bitcnt_t)twos);
    fives = (long)mpz_remove(rest, rest, five);
    bool ends = mpz_cmp_ui(rest, 1) == 0;
    mpz_clears(rest, five, (mpz_ptr)NULL);
    return !ends ? -1 : twos > fives ? twos : fives;
}

/* floor(log10(|q|)), or one more or less. */
static long calc_estimate_exponent(mpq_srcptr q)
{
    long bits = (long)mpz_sizeinbase(mpq_numref(q), 2) - (long)mpz_sizeinbase(mpq_denref(q), 2);

    return (long)((double)bits * 0.30102999566398119) - (bits < 0);
}

/* n = |q| * 10 ** places, rounded half to even. */
static void calc_scale(mpz_ptr n, mpq_srcptr q, long places)
{
    mpz_t power, den, rest;

    mpz_inits(power, den, rest, (mpz_ptr)NULL);
    mpz_abs(n, mpq_numref(q));
    mpz_set(den, mpq_denref(q));
    mpz_ui_pow_ui(power, 10, (unsigned long)(places < 0 ? -places : places));
    if (places >= 0)
        mpz_mul(n, n, power);
    else
        mpz_mul(den, den, power);
    mpz_fdiv_qr(n, rest, n, den);
    mpz_mul_2exp(rest, rest, 1);
    int half = mpz_cmp(rest, den);
    if (half > 0 || (half == 0 && mpz_odd_p(n)))
        mpz_add_ui(n, n, 1);
    mpz_clears(power, den, rest, (mpz_ptr)NULL);
}

int calc_format_rational(struct calc_run *r, mpq_srcptr q, unsigned digits, struct buf *out, bool *ret_exact)
{
    bool negative = mpq_sgn(q) < 0;
    long estimate = calc_estimate_exponent(q), places;
    mpz_t n;

    bool integer = mpz_cmp_ui(mpq_denref(q), 1) == 0;
    /* The conversion of an integer; or of numerator and denominator, and twice a power of ten, a
     * product and a quotient. */
    if (calc_spend(r, integer ? 500 + 8 * calc_work_multiply(calc_bits(q))
                              : 2000 + 14 * calc_work_multiply(calc_bits(q) + 4u * digits)) < 0)
        return -1;
    *ret_exact = true;
    if (integer) {
        calc_write_integer(mpq_numref(q), out);
        return 0;
    }
    mpz_init(n);
    places = calc_decimal_places(q);
    if (places >= 0 && places + estimate < (long)CALC_DIGITS_MAX) {
        calc_scale(n, q, places);
        calc_write_scaled(n, places, negative, out);
        mpz_clear(n);
        return 0;
    }
    *ret_exact = false;
    /* One digit more, because the estimate may be one too large; then the right number of them. */
    places = (long)digits - estimate;
    calc_scale(n, q, places);
    auto_buf more = { 0 };
    calc_write_integer(n, &more);
    if (more.len > digits) {
        places -= (long)more.len - (long)digits;
        calc_scale(n, q, places);
    }
    calc_write_scaled(n, places, negative, out);
    mpz_clear(n);
    return 0;
}

int calc_format_interval(struct calc_run *r, const struct calc_value *v, unsigned digits, struct buf *out, bool *ret)
{
    char low[CALC_DIGITS_MAX + 8], high[CALC_DIGITS_MAX + 8];
    mpfr_exp_t low_exponent, high_exponent;

    *ret = false;
    if (calc_spend(r, 2000 + 6 * calc_work_multiply((uint64_t)r->precision + 4u * digits)) < 0)
        return -1;
    if (mpfr_sgn(v->lo) * mpfr_sgn(v->hi) <= 0)
        return 0;
    mpfr_get_str(low, &low_exponent, 10, digits, v->lo, MPFR_RNDN);
    mpfr_get_str(high, &high_exponent, 10, digits, v->hi, MPFR_RNDN);
    if (low_exponent != high_exponent || strcmp(low, high) != 0)
        return 0;
    calc_write_decimal(out, low[0] == '-', low + (low[0] == '-'), (long)low_exponent);
    *ret = true;
    return 0;
}

/* --- the short form --- */

static void calc_format_approximate(const struct calc_value *v, char ret[CALC_SHORT_MAX])
{
    char digits[SHORT_DIGITS + 8];
    auto_buf out = { 0 };
    mpfr_exp_t exponent;
    mpfr_t x;

    mpfr_init2(x, 64);
    if (v->kind == CALC_INTERVAL) {
        mpfr_set(x, v->lo, MPFR_RNDN);
    } else {
        mpfr_set_q(x, v->q, MPFR_RNDN);
        if (v->kind == CALC_PI_MULTIPLE) {
            mpfr_t pi;

            mpfr_init2(pi, 64);
            mpfr_const_pi(pi, MPFR_RNDN);
            mpfr_mul(x, x, pi, MPFR_RNDN);
            mpfr_clear(pi);
        }
    }
    if (mpfr_zero_p(x)) {
        buf_adds(&out, "0");
    } else {
        mpfr_get_str(digits, &exponent, 10, SHORT_DIGITS, x, MPFR_RNDN);
        calc_write_decimal(&out, digits[0] == '-', digits + (digits[0] == '-'), (long)exponent);
    }
    mpfr_clear(x);
    snprintf(ret, CALC_SHORT_MAX, "%s", out.data);
}

void calc_format_short(const struct calc_value *v, char ret[CALC_SHORT_MAX], bool *ret_rounded)
{
    auto_buf out = { 0 };

    *ret_rounded = v->kind == CALC_INTERVAL || (v->kind != CALC_TRUTH && calc_bits(v->q) > SHORT_BITS);
    if (v->kind == CALC_TRUTH) {
        buf_adds(&out, v->truth ? "true" : "false");
    } else if (*ret_rounded) {
        calc_format_approximate(v, ret);
        return;
    } else if (v->kind == CALC_PI_MULTIPLE) {
        bool one = mpz_cmpabs_ui(mpq_numref(v->q), 1) == 0;

        if (one) {
            buf_adds(&out, mpq_sgn(v->q) < 0 ? "-" : "");
        } else {
            calc_write_integer(mpq_numref(v->q), &out);
            buf_adds(&out, " * ");
        }
        buf_adds(&out, "pi");
        if (mpz_cmp_ui(mpq_denref(v->q), 1) != 0) {
            buf_adds(&out, "/");
            calc_write_integer(mpq_denref(v->q), &out);
        }
    } else {
        long places = calc_decimal_places(v->q);

        if (places > 0 && places <= PLAIN_ZEROS_MAX) {
            mpz_t n;

            mpz_init(n);
            calc_scale(n, v->q, places);
            calc_write_scaled(n, places, mpq_sgn(v->q) < 0, &out);
            mpz_clear(n);
        } else {
            calc_format_fraction(v->q, &out);
        }
    }
    snprintf(ret, CALC_SHORT_MAX, "%s", out.data);
}
