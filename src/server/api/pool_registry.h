/* pool_registry.h - the pools that a server has been told to keep, and what src/sandbox/pool keeps of them.
 *
 * A pool names a template and says how many; what a member looks like follows from the template, as it would for a
 * sandbox of that template of which nothing else was asked. So a pool is put anew when its row or its template changes.
 * What cannot be kept now is remembered with its reason, and tried again with the next change. */
#pragma once

#include "server/api/api.h"
#include "core/base/buf.h"
#include "sandbox/pool/pools.h"
#include "store/pools.h"

struct pool_registry;

struct registered_pool {
    struct registered_pool *next; /* by name */
    struct store_pool row;
    bool is_builtin;              /* the server's: it is not in the store */
    uint64_t change_number;       /* of the latest change; an answer to an older question is of no use */
    uint64_t template_generation; /* 0: it is built in */
    struct err problem;           /* id ERR_NONE: it is kept; otherwise why it is not */
};

struct pool_registry *pool_registry_new(struct api *api); /* begins to read the store */
void pool_registry_free(struct pool_registry *w);
DEFINE_AUTO(pool_registry, pool_registry_free);

/* Whether it is known yet what there is; otherwise ERR_BUSY. */
int pool_registry_check_loaded(const struct pool_registry *w, struct err *err);
const struct registered_pool *pool_registry_first(const struct pool_registry *w);
const struct registered_pool *pool_registry_find(const struct pool_registry *w,
                                                 const char *name); /* NULL: there is none */

/* Whether a pool of this template could be kept, as far as the template is concerned. */
void pool_registry_check_template(struct pool_registry *w, const char *template, store_done_fn *done, void *arg);
/* Whether one more of this name may be made; ERR_LIMIT. */
int pool_registry_check_capacity(const struct pool_registry *w, const char *name, struct err *err);
void pool_registry_set(struct pool_registry *w, const struct store_pool *row);  /* the store has it so */
void pool_registry_remove(struct pool_registry *w, const char *name);           /* the store has it no more */
void pool_registry_template_changed(struct pool_registry *w, const char *name); /* it has changed */

/* False: src/sandbox/pool keeps none of that name. */
bool pool_registry_live_info(const struct pool_registry *w, const char *name, struct pool_info *ret);
void pool_registry_write_metrics(const struct pool_registry *w, struct buf *out);

/* --- the names of /v1/warmpools (warmpools_compat.c) --- */

bool warmpools_compat_is_requested(const struct http_req *req);
int warmpools_compat_read(json_t *body, struct err *err);                        /* their fields become ours */
void warmpools_compat_write_pool(struct jsonw *w, const struct store_pool *row); /* members of an object, beside ours */
void warmpools_compat_write_status(struct jsonw *w, const struct pool_info *live); /* live may be NULL */
