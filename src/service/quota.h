/* quota.h - the quotas of a tenant and how much of each is in use.
 *
 * All live sandboxes are in one table of this process, and everything that adds to it runs in the
 * loop. So a quota check is one comparison and one addition with nothing in between, however many
 * requests compete, and nothing is created before it is admitted. */
#pragma once

#include "core/ev/fair_queue.h"
#include "store/tenants.h"

#define QUOTA_MINUTES 60u

struct budget_span;
struct spec;
struct tenant_budget;

struct tenant_quota {
    struct tenant_quota *next;
    struct tenant_budget *budget; /* budget.c; NULL: the tenant has none */
    struct budget_span *spans;    /* lifetimes of sandboxes that are not in the store yet (budget.c) */
    uint64_t nexecutions;         /* executions that have begun and not ended (budget.c) */
    char tenant[STORE_OWNER_MAX + 1];
    uint64_t limit[STORE_QUOTA_COUNT];            /* 0: unlimited */
    uint64_t used[STORE_QUOTA_COUNT];             /* except executions */
    bool is_suspended;                            /* suspended or removed: nothing new starts */
    uint64_t newest_minute;                       /* minute of the newest count */
    uint32_t executions_by_minute[QUOTA_MINUTES]; /* at index minute modulo QUOTA_MINUTES */
    struct fair_queue_line create_line, start_line, ephemeral_line;
    uint32_t ephemeral_waiting; /* runs in ephemeral_line */
};

extern const char *const quota_names[STORE_QUOTA_COUNT]; /* as in JSON */

/* Reserves all amounts or none: ERR_QUOTA with err->limit, or ERR_TENANT_SUSPENDED. */
int quota_reserve(struct tenant_quota *s, const uint64_t asked[STORE_QUOTA_COUNT], struct err *err);
/* Adds amounts that are in use already, without a check. */
void quota_add_reserved(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT]);
void quota_release(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT]);
/* Counts one more execution in the past hour. now_ms comes from any monotonic clock that is past
 * its first hour. */
int quota_reserve_execution(struct tenant_quota *s, uint64_t now_ms, struct err *err);
void quota_add_past_executions(struct tenant_quota *s, uint64_t now_ms, uint64_t age_minutes, uint64_t n);
uint64_t quota_executions_last_hour(struct tenant_quota *s, uint64_t now_ms);
uint64_t quota_now_ms(const struct ev *ev); /* now_ms of the functions above */
/* The amounts that a sandbox reserves. */
void quota_amounts_for_spec(const struct spec *spec, uint64_t ret[STORE_QUOTA_COUNT]);
