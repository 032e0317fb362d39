/* pools.h - warm pools of the whole server: their template and size. Calls and rows follow the
 * rules of store.h. */
#pragma once

#include "store/store.h"

struct store_pool {
    char name[STORE_NAME_MAX + 1];
    char template[STORE_NAME_MAX + 1]; /* stored, or built into the server */
    uint64_t min, max;
    uint64_t ttl_ms;     /* an unused member beyond min is evicted after this time; 0: never */
    uint64_t max_age_ms; /* an older member is replaced; 0: never */
    bool autoscale;
    uint64_t hit_permille;  /* wanted share of requests that find a member, in thousandths */
    uint64_t scale_down_ms; /* how long a size that is no longer needed is kept */
    /* A replacement is started after this age or number of forks; 0: never. */
    uint64_t zygote_max_age_ms, zygote_max_members;
    bool recycle;
    uint64_t generation;
    uint64_t created_ms;
    uint64_t updated_ms;
};

typedef void store_pool_fn(void *arg, const struct err *err, const struct store_pool *row);
typedef void store_pools_fn(void *arg, const struct err *err, const struct store_pool *rows, size_t n,
                            const char *next);

/* Creates the pool or replaces all its fields, and returns the row. If `when` names a
 * generation, the pool must exist and have it. created_ms is set only at creation. */
struct store_request *store_pool_put(struct store *st, const struct store_pool *row, const struct store_condition *when,
                                     store_pool_fn *done, void *arg);
/* ERR_EXISTS: the pool exists. */
struct store_request *store_pool_insert(struct store *st, const struct store_pool *row, store_done_fn *done, void *arg);
struct store_request *store_pool_get(struct store *st, const char *name, store_pool_fn *done, void *arg);
struct store_request *store_pool_delete(struct store *st, const char *name, store_done_fn *done, void *arg);
/* Ordered by name; only cursor and limit of q are used. */
struct store_request *store_pool_list(struct store *st, const struct store_list *q, store_pools_fn *done, void *arg);
