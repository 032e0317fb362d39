/* usage.h - what tenants used, by the hour, and what they may use.
 *
 * The store itself writes usage, in the transaction of the end that it comes from: an execution
 * is counted in the hour in which it ended, when its row becomes ended; the time of a sandbox is
 * counted in every hour that it lived in, when its row becomes a tombstone. So no usage is
 * counted twice or lost, however often a server is killed. Sandboxes without a row are counted
 * by their creator (store_usage_add). CPU time is a difference of counters: an end, or a reading
 * in between, passes the sandbox's counter, and the part above the highest value so far is
 * added. Repeating a value adds nothing.
 *
 * Usage rows outlive their sandboxes. */
#pragma once

#include "store/store.h"

#define STORE_HOUR_MS UINT64_C(3600000)
#define STORE_USAGE_MAX 10000u /* rows in one answer */

enum { STORE_USAGE_BY_TENANT = 1, STORE_USAGE_BY_USER = 2, STORE_USAGE_BY_SANDBOX = 4, STORE_USAGE_BY_HOUR = 8 };

struct store_usage {
    char owner[STORE_OWNER_MAX + 1]; /* the fields owner to hour_ms are "" or 0 unless the query groups by them */
    char created_by[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE];
    uint64_t hour_ms;
    uint64_t executions, failed; /* failed: executions that could not start or were lost */
    uint64_t cpu_us;
    uint64_t execution_ms;                  /* sum of the times from start to end */
    uint64_t output_bytes;                  /* stored output */
    uint64_t sandbox_ms;                    /* sum of the lifetimes */
    uint64_t memory_mib_ms, storage_mib_ms; /* limit of memory and storage multiplied by the lifetime */
    uint64_t memory_peak;                   /* bytes; the maximum over ended sandboxes */
};

struct store_usage_query {
    const char *owner;
    uint64_t from_ms, to_ms;          /* whole hours that begin at or after from_ms and before to_ms */
    uint64_t now_ms;                  /* live sandboxes are counted until then; 0: only ended ones are counted */
    unsigned by;                      /* set of STORE_USAGE_BY_; 0: one row for everything */
    const char *sandbox, *created_by; /* only usage of these; NULL: all */
};

/* Ordered by hour, tenant, user, sandbox. more: the result has more than STORE_USAGE_MAX rows. */
typedef void store_usage_fn(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more);
struct store_request *store_usage_list(struct store *st, const struct store_usage_query *q, store_usage_fn *done,
                                       void *arg);

/* The current CPU counter of a live sandbox. Sandboxes that have ended or are unknown are
 * skipped. */
struct store_cpu_reading {
    char sandbox[ID_SIZE];
    char created_by[STORE_OWNER_MAX + 1]; /* the user that is charged; "": unknown */
    uint64_t cpu_us;
    uint64_t at_ms;
};
struct store_request *store_usage_record_cpu(struct store *st, const struct store_cpu_reading *notes, size_t n,
                                             store_done_fn *done, void *arg);

/* Usage of sandboxes without a row: each entry is added to the row of its hour, tenant and user. */
struct store_request *store_usage_add(struct store *st, const struct store_usage *sums, size_t n, store_done_fn *done,
                                      void *arg);

/* --- budgets --- */

enum store_period { STORE_PERIOD_DAY, STORE_PERIOD_MONTH };
#define STORE_PERIOD_COUNT 2
enum store_budget_resource { STORE_BUDGET_CPU_TIME, STORE_BUDGET_SANDBOX_TIME, STORE_BUDGET_EXECUTIONS };
#define STORE_BUDGET_RESOURCES 3

struct store_budget {
    char owner[STORE_OWNER_MAX + 1];
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]; /* ms, ms, count; 0: no limit */
    uint64_t updated_ms;
};
typedef void store_budgets_fn(void *arg, const struct err *err, const struct store_budget *rows, size_t n);

/* Removes the row if it contains no limit. */
struct store_request *store_budget_put(struct store *st, const struct store_budget *row, store_done_fn *done,
                                       void *arg);
/* All budgets (STORE_ANY_OWNER), or the budget of one tenant, which may have none. */
struct store_request *store_budget_list(struct store *st, const char *owner, store_budgets_fn *done, void *arg);
