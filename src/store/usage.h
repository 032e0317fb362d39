/* usage.h - what tenants used, by the hour, and what they may use.
 *
 * Usage is written by the store itself, in the transaction of the end that it comes from: an execution is counted in
 * the hour in which it ended, when its row becomes one that has ended; the time of a sandbox in every hour that it
 * lived in, when its row becomes a tombstone. So nothing of these is counted twice or lost, however often a server is
 * killed. Sandboxes without a row are counted by whoever made them (store_usage_add). Processor time is what the
 * sandbox's own counter says: an end, or a note in between, brings the counter as it stands, and what it is above the
 * highest that came before is added. The same figure again adds nothing.
 *
 * Rows outlive the sandboxes that they tell of. */
#pragma once

#include "store/store.h"

#define STORE_HOUR_MS UINT64_C(3600000)
#define STORE_USAGE_MAX 10000u /* rows in one answer */

enum { STORE_USAGE_BY_TENANT = 1, STORE_USAGE_BY_USER = 2, STORE_USAGE_BY_SANDBOX = 4, STORE_USAGE_BY_HOUR = 8 };

struct store_usage {
    char owner[STORE_OWNER_MAX + 1]; /* of these four, those that were not asked for are "" and 0 */
    char created_by[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE];
    uint64_t hour_ms;
    uint64_t executions, failed; /* failed: of them, could not start or were lost */
    uint64_t cpu_us;
    uint64_t execution_ms;                  /* from start to end, summed */
    uint64_t output_bytes;                  /* kept */
    uint64_t sandbox_ms;                    /* alive */
    uint64_t memory_mib_ms, storage_mib_ms; /* what they were allowed, for as long as they lived */
    uint64_t memory_peak;                   /* bytes; the largest of a sandbox that has ended */
};

struct store_usage_query {
    const char *owner;
    uint64_t from_ms, to_ms;          /* whole hours: those that begin at or after from_ms and before to_ms */
    uint64_t now_ms;                  /* sandboxes that live are counted until then; 0: only what has ended */
    unsigned by;                      /* set of STORE_USAGE_BY_; 0 is one row for all of it */
    const char *sandbox, *created_by; /* only theirs; NULL: all */
};

/* In the order of hour, tenant, user, sandbox. more: there were more than STORE_USAGE_MAX. */
typedef void store_usage_fn(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more);
struct store_request *store_usage_list(struct store *st, const struct store_usage_query *q, store_usage_fn *done,
                                       void *arg);

/* The counter of a sandbox that lives, as it stands. One that has ended or is not known is passed over. */
struct store_cpu_reading {
    char sandbox[ID_SIZE];
    char created_by[STORE_OWNER_MAX + 1]; /* whose it is; "": nobody knows */
    uint64_t cpu_us;
    uint64_t at_ms;
};
struct store_request *store_usage_record_cpu(struct store *st, const struct store_cpu_reading *notes, size_t n,
                                             store_done_fn *done, void *arg);

/* What was used by sandboxes that have no row: sums, each added to those of its hour, tenant and user. */
struct store_request *store_usage_add(struct store *st, const struct store_usage *sums, size_t n, store_done_fn *done,
                                      void *arg);

/* --- budgets --- */

enum store_period { STORE_PERIOD_DAY, STORE_PERIOD_MONTH };
#define STORE_PERIOD_COUNT 2
enum store_budget_resource { STORE_BUDGET_CPU_SECONDS, STORE_BUDGET_SANDBOX_SECONDS, STORE_BUDGET_EXECUTIONS };
#define STORE_BUDGET_RESOURCES 3

struct store_budget {
    char owner[STORE_OWNER_MAX + 1];
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* 0: no bound */
    uint64_t updated_ms;
};
typedef void store_budgets_fn(void *arg, const struct err *err, const struct store_budget *rows, size_t n);

/* Without any bound the row is removed. */
struct store_request *store_budget_put(struct store *st, const struct store_budget *row, store_done_fn *done,
                                       void *arg);
/* All of them (STORE_ANY_OWNER), or that of one, who may have none. */
struct store_request *store_budget_list(struct store *st, const char *owner, store_budgets_fn *done, void *arg);
