/* calc_format.h - values as text: exact decimals, fractions, correctly rounded decimals. */
#pragma once

#include "core/base/buf.h"
#include "core/calc/calc_value.h"

#define CALC_SHORT_MAX 100 /* bytes of the short form of a value */

/* A decimal: exact if it ends after at most CALC_DIGITS_MAX significant digits, or if it is an
 * integer; otherwise rounded half to even to `digits` significant digits. */
int calc_format_rational(struct calc_run *r, mpq_srcptr q, unsigned digits, struct buf *out, bool *ret_exact);
void calc_format_fraction(mpq_srcptr q, struct buf *out); /* "n" or "n/d" */
/* Rounds to `digits` significant digits. False: the ends of the interval round to different
 * numbers. */
int calc_format_interval(struct calc_run *r, const struct calc_value *v, unsigned digits, struct buf *out, bool *ret);
/* For reasoning steps; ret_rounded: the text is not the exact value. */
void calc_format_short(const struct calc_value *v, char ret[CALC_SHORT_MAX], bool *ret_rounded);
