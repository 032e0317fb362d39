/* pool_registry.h - the pools that a server is configured to keep, passed on to src/sandbox/pool.
 *
 * A pool names a template and a number of members. The spec of a member follows from the template,
 * as for a sandbox created from that template with no other fields. The registry therefore updates
 * a pool when its row or its template changes. If a pool cannot be kept now, the registry stores
 * the reason and retries at the next change. */
#pragma once

#include "server/api/api.h"
#include "core/base/buf.h"
#include "sandbox/pool/pools.h"
#include "store/pools.h"

struct pool_registry;

struct registered_pool {
    struct registered_pool *next; /* sorted by name */
    struct store_pool row;
    bool is_builtin; /* the server's default pool: it has no row in the store */
    /* Number of the latest change; replies to queries made before that change are dropped. */
    uint64_t change_number;
    uint64_t template_generation; /* 0: the pool is built in */
    struct err problem;           /* why the pool is not kept; ERR_NONE: it is kept */
};

struct pool_registry *pool_registry_new(struct api *api); /* starts to load from the store */
void pool_registry_free(struct pool_registry *w);
DEFINE_AUTO(pool_registry, pool_registry_free);

/* ERR_BUSY until the pools are loaded from the store. */
int pool_registry_check_loaded(const struct pool_registry *w, struct err *err);
const struct registered_pool *pool_registry_first(const struct pool_registry *w);
const struct registered_pool *pool_registry_find(const struct pool_registry *w,
                                                 const char *name); /* NULL: there is no such pool */

/* Checks that the template exists and suits a pool. */
void pool_registry_check_template(struct pool_registry *w, const char *template, store_done_fn *done, void *arg);
/* ERR_LIMIT: no further pool may be created under this name. */
int pool_registry_check_capacity(const struct pool_registry *w, const char *name, struct err *err);
void pool_registry_set(struct pool_registry *w, const struct store_pool *row);  /* the row was stored */
void pool_registry_remove(struct pool_registry *w, const char *name);           /* the row was deleted */
void pool_registry_template_changed(struct pool_registry *w, const char *name); /* re-reads it and updates its pools */

/* False: src/sandbox/pool keeps no pool of that name. */
bool pool_registry_live_info(const struct pool_registry *w, const char *name, struct pool_info *ret);
void pool_registry_write_metrics(const struct pool_registry *w, struct buf *out);

/* --- field names of /compat/v1/warmpools (warmpools_compat.c) --- */

bool warmpools_compat_is_requested(const struct http_req *req);
int warmpools_compat_read(json_t *body, struct err *err); /* renames fields to those of /v1/pools */
/* Adds members to those of /v1/pools. */
void warmpools_compat_write_pool(struct jsonw *w, const struct store_pool *row);
void warmpools_compat_write_status(struct jsonw *w, const struct pool_info *live); /* live may be NULL */
