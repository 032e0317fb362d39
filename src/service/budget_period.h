/* budget_period.h - the budget of a tenant per day and per month of UTC, and how much of it is
 * used.
 *
 * The caller passes the time in; nothing here reads a clock. Usage is kept in finer units than
 * limits (budget_resource_units), so that many small amounts add up. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "store/usage.h"

struct budget_period {
    char owner[STORE_OWNER_MAX + 1];
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* 0: unlimited */
    uint64_t begin_ms[STORE_PERIOD_COUNT];
    uint64_t used[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* in units of budget_resource_units */
};

extern const char *const budget_resource_names[STORE_BUDGET_RESOURCES]; /* field names in JSON */
extern const char *const budget_period_names[STORE_PERIOD_COUNT];       /* field names in JSON */
/* Units of `used` per one of `max`: us, ms, count. */
extern const uint64_t budget_resource_units[STORE_BUDGET_RESOURCES];

/* The beginning of the period that contains now_ms, and of the next period. */
uint64_t budget_period_begin_ms(enum store_period p, uint64_t now_ms);
uint64_t budget_period_end_ms(enum store_period p, uint64_t now_ms);

/* Clears the sums of every period that is over. The two functions below call it first. */
void budget_period_roll(struct budget_period *a, uint64_t now_ms);
void budget_period_add(struct budget_period *a, enum store_budget_resource what, uint64_t amount, uint64_t now_ms);
/* Adds the time from one moment to another: to each period, the part that lies in it. */
void budget_period_add_span(struct budget_period *a, uint64_t from_ms, uint64_t to_ms, uint64_t now_ms);

/* Whether a limit is reached, and in which period. `sums` is a->used, or a copy with more added. */
bool budget_period_limit_reached(const struct budget_period *a,
                                 uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                 enum store_budget_resource what, enum store_period *ret);
/* How much of one limit is used. NEAR: at least nine tenths. */
enum budget_limit_state { BUDGET_LIMIT_OPEN, BUDGET_LIMIT_NEAR, BUDGET_LIMIT_REACHED };
#define BUDGET_LIMIT_STATES 3
enum budget_limit_state budget_period_limit_state(const struct budget_period *a,
                                                  uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                                  enum store_period p, enum store_budget_resource what);
/* Sets ERR_BUDGET with the amount, the limit and the time of the renewal. */
int budget_period_set_error(const struct budget_period *a, uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                            enum store_budget_resource what, enum store_period p, uint64_t now_ms, struct err *err);
