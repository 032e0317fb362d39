/* quota.h - what each tenant has of the server, and may have.
 *
 * The table of living sandboxes is in this process whole, and everything that adds to it passes through its loop. So a
 * quota is one comparison and one addition with nothing in between, whoever asks at the same time, and nothing has to
 * be built to find out that it may not be. */
#pragma once

#include "service/fair_queue.h"
#include "store/tenants.h"

#define QUOTA_MINUTES 60u

struct tenant_budget;

struct tenant_quota {
    struct tenant_quota *next;
    struct tenant_budget *budget; /* budget.c; NULL: the tenant has none */
    char tenant[STORE_OWNER_MAX + 1];
    uint64_t limit[STORE_QUOTA_COUNT];            /* 0: no bound */
    uint64_t used[STORE_QUOTA_COUNT];             /* but executions */
    bool is_suspended;                            /* suspended or removed: nothing new is begun */
    uint64_t newest_minute;                       /* of the newest count */
    uint32_t executions_by_minute[QUOTA_MINUTES]; /* executions, by minute modulo QUOTA_MINUTES */
    struct fair_queue_line create_line, start_line, ephemeral_line;
    uint32_t ephemeral_waiting; /* in the last of them */
};

extern const char *const quota_names[STORE_QUOTA_COUNT]; /* as in JSON */

/* Takes what is asked for, all of it or nothing: ERR_QUOTA with err->limit, or ERR_TENANT_SUSPENDED. */
int quota_reserve(struct tenant_quota *s, const uint64_t asked[STORE_QUOTA_COUNT], struct err *err);
void quota_add_reserved(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT]); /* what is there already */
void quota_release(struct tenant_quota *s, const uint64_t amounts[STORE_QUOTA_COUNT]);
/* One execution more within the hour that ends now. Times are of any clock that only goes forwards and is past its
 * first hour. */
int quota_reserve_execution(struct tenant_quota *s, uint64_t now_ms, struct err *err);
void quota_add_past_executions(struct tenant_quota *s, uint64_t now_ms, uint64_t age_minutes, uint64_t n);
uint64_t quota_executions_last_hour(struct tenant_quota *s, uint64_t now_ms);
