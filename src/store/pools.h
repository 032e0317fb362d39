/* pools.h - warm pools of the whole server: of which template, how many. The rules of calls and rows are those of
 * store.h. */
#pragma once

#include "store/store.h"

struct store_pool {
    char name[STORE_NAME_MAX + 1];
    char template[STORE_NAME_MAX + 1]; /* stored, or built into the server */
    uint64_t min, max;
    uint64_t ttl_ms;     /* a member beyond min that nobody takes goes after it; 0: never */
    uint64_t max_age_ms; /* an older member is replaced; 0: never */
    bool autoscale;
    uint64_t hit_permille;                          /* of those who ask, so many should find a member */
    uint64_t scale_down_ms;                         /* a size that is not needed any more is kept for so long */
    uint64_t zygote_max_age_ms, zygote_max_members; /* then another takes its place; 0: never */
    bool recycle;
    uint64_t generation;
    uint64_t created_ms;
    uint64_t updated_ms;
};

typedef void store_pool_fn(void *arg, const struct err *err, const struct store_pool *row);
typedef void store_pools_fn(void *arg, const struct err *err, const struct store_pool *rows, size_t n,
                            const char *next);

/* Makes it, or replaces all of it; brings the row back. When a generation is named, the pool must exist and have it.
 * created_ms is kept from the first time. */
struct store_request *store_pool_put(struct store *st, const struct store_pool *row, const struct store_condition *when,
                                     store_pool_fn *done, void *arg);
/* ERR_EXISTS: there is one. */
struct store_request *store_pool_insert(struct store *st, const struct store_pool *row, store_done_fn *done, void *arg);
struct store_request *store_pool_get(struct store *st, const char *name, store_pool_fn *done, void *arg);
struct store_request *store_pool_delete(struct store *st, const char *name, store_done_fn *done, void *arg);
/* By name; of q only cursor and limit count. */
struct store_request *store_pool_list(struct store *st, const struct store_list *q, store_pools_fn *done, void *arg);
