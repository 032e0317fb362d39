/* allowance.h - what may be used in a day and in a month of UTC, and what of it is.
 *
 * Time is passed in; nothing here reads a clock. Figures are kept finer than they are bounded (allowance_units), so
 * that a bound is met by what many small things add up to. */
#pragma once

#include "base/base.h"
#include "base/err.h"
#include "store/usage.h"

struct allowance {
    char owner[STORE_OWNER_MAX + 1];
    uint64_t max[STORE_PERIODS][STORE_BUDGETED]; /* 0: no bound */
    uint64_t begin_ms[STORE_PERIODS];
    uint64_t used[STORE_PERIODS][STORE_BUDGETED]; /* in units */
};

extern const char *const allowance_names[STORE_BUDGETED];  /* as in JSON */
extern const char *const allowance_periods[STORE_PERIODS]; /* likewise */
extern const uint64_t allowance_units[STORE_BUDGETED];     /* of `used` in one of `max`: us, ms, one */

/* The moment at which the period that `now_ms` lies in began, or at which the next one does. */
uint64_t allowance_begin(enum store_period p, uint64_t now_ms);
uint64_t allowance_renews(enum store_period p, uint64_t now_ms);

/* A period that is over takes its sums with it. The other two do it first. */
void allowance_turn(struct allowance *a, uint64_t now_ms);
void allowance_add(struct allowance *a, enum store_budgeted what, uint64_t amount, uint64_t now_ms);
/* Something that lived from one moment to another: in each period, what of it lay in there. */
void allowance_add_span(struct allowance *a, uint64_t from_ms, uint64_t to_ms, uint64_t now_ms);

/* Which bound, if any, these figures reach; `sums` is a.used, or a copy with something added to it. */
bool allowance_reached(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED],
                       enum store_budgeted what, enum store_period *ret);
/* How far one bound is used up. */
enum allowance_state { ALLOWANCE_OPEN, ALLOWANCE_NEAR, ALLOWANCE_SPENT }; /* near: nine tenths */
#define ALLOWANCE_STATES 3
enum allowance_state allowance_state(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED],
                                     enum store_period p, enum store_budgeted what);
/* ERR_BUDGET, with how much of what, and until when. */
int allowance_explain(const struct allowance *a, uint64_t sums[STORE_PERIODS][STORE_BUDGETED], enum store_budgeted what,
                      enum store_period p, uint64_t now_ms, struct err *err);
