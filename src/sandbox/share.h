/* share.h - what each tenant has of the server, and may have.
 *
 * The table of living sandboxes is in this process whole, and everything that adds to it passes through its loop. So a
 * quota is one comparison and one addition with nothing in between, whoever asks at the same time, and nothing has to
 * be built to find out that it may not be. */
#pragma once

#include "sandbox/turns.h"
#include "store/tenants.h"

#define SHARE_MINUTES 60u

struct share {
    struct share *next;
    char name[STORE_OWNER_MAX + 1];
    uint64_t quota[STORE_QUOTA_COUNT]; /* 0: no bound */
    uint64_t used[STORE_QUOTA_COUNT];  /* but executions */
    bool barred;                       /* suspended or removed: nothing new is begun */
    uint64_t minute;                   /* of the newest count */
    uint32_t begun[SHARE_MINUTES];     /* executions, by minute modulo SHARE_MINUTES */
    struct turn_line creates, starts, guests;
    uint32_t guests_waiting; /* in the last of them */
};

/* Why something was refused. */
struct share_refusal {
    enum store_quota quota;
    uint64_t used, asked, limit;
    uint64_t retry_ms; /* until there is room again by itself; 0: not by itself */
};

extern const char *const share_quota_names[STORE_QUOTA_COUNT]; /* as in JSON */

/* Takes what is asked for, all of it or nothing: ERR_QUOTA, or ERR_TENANT_SUSPENDED. */
int share_take(struct share *s, const uint64_t asked[STORE_QUOTA_COUNT], struct share_refusal *ret, struct err *err);
void share_hold(struct share *s, const uint64_t amounts[STORE_QUOTA_COUNT]); /* what is there already */
void share_give(struct share *s, const uint64_t amounts[STORE_QUOTA_COUNT]);
/* One execution more within the hour that ends now. Times are of any clock that only goes forwards and is past its
 * first hour. */
int share_take_execution(struct share *s, uint64_t now_ms, struct share_refusal *ret, struct err *err);
void share_note_executions(struct share *s, uint64_t now_ms, uint64_t age_minutes, uint64_t n);
uint64_t share_executions(struct share *s, uint64_t now_ms);
