/* budget_period.h - what may be used in a day and in a month of UTC, and what of it is.
 *
 * Time is passed in; nothing here reads a clock. Figures are kept finer than they are bounded (budget_resource_units),
 * so that a bound is met by what many small things add up to. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "store/usage.h"

struct budget_period {
    char owner[STORE_OWNER_MAX + 1];
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* 0: no bound */
    uint64_t begin_ms[STORE_PERIOD_COUNT];
    uint64_t used[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* in units */
};

/* The time of one sandbox, which counts as sandboxSeconds; zeroed has not begun. */
struct budget_span {
    bool running;
    uint64_t from_ms; /* while it runs */
};

extern const char *const budget_resource_names[STORE_BUDGET_RESOURCES]; /* as in JSON */
extern const char *const budget_period_names[STORE_PERIOD_COUNT];       /* likewise */
extern const uint64_t budget_resource_units[STORE_BUDGET_RESOURCES];    /* of `used` in one of `max`: us, ms, one */

/* The moment at which the period that `now_ms` lies in began, or at which the next one does. */
uint64_t budget_period_begin_ms(enum store_period p, uint64_t now_ms);
uint64_t budget_period_end_ms(enum store_period p, uint64_t now_ms);

/* A period that is over takes its sums with it. The other two do it first. */
void budget_period_roll(struct budget_period *a, uint64_t now_ms);
void budget_period_add(struct budget_period *a, enum store_budget_resource what, uint64_t amount, uint64_t now_ms);
/* Something that lived from one moment to another: in each period, what of it lay in there. */
void budget_period_add_span(struct budget_period *a, uint64_t from_ms, uint64_t to_ms, uint64_t now_ms);

/* Which bound, if any, these figures reach; `sums` is a.used, or a copy with something added to it. */
bool budget_period_limit_reached(const struct budget_period *a,
                                 uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                 enum store_budget_resource what, enum store_period *ret);
/* How far one bound is used up. */
enum budget_limit_state { BUDGET_LIMIT_OPEN, BUDGET_LIMIT_NEAR, BUDGET_LIMIT_REACHED }; /* near: nine tenths */
#define BUDGET_LIMIT_STATES 3
enum budget_limit_state budget_period_limit_state(const struct budget_period *a,
                                                  uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                                                  enum store_period p, enum store_budget_resource what);
/* ERR_BUDGET, with how much of what, and until when. */
int budget_period_set_error(const struct budget_period *a, uint64_t sums[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES],
                            enum store_budget_resource what, enum store_period p, uint64_t now_ms, struct err *err);
