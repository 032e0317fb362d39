/* warm.h - the pools that a server has been told to keep, and what src/pool keeps of them.
 *
 * A pool names a template and says how many; what a member looks like follows from the template, as it would for a
 * sandbox of that template of which nothing else was asked. So a pool is put anew when its row or its template changes.
 * What cannot be kept now is remembered with its reason, and tried again with the next change. */
#pragma once

#include "api/api.h"
#include "base/buf.h"
#include "pool/pools.h"
#include "store/pools.h"

struct warm;

struct warm_pool {
    struct warm_pool *next; /* by name */
    struct store_pool row;
    bool own;                     /* the server's: it is not in the store */
    uint64_t order;               /* of the latest change; an answer to an older question is of no use */
    uint64_t template_generation; /* 0: it is built in */
    struct err why;               /* id ERR_NONE: it is kept; otherwise why it is not */
};

struct warm *warm_new(struct api *api); /* begins to read the store */
void warm_free(struct warm *w);
DEFINE_AUTO(warm, warm_free);

/* Whether it is known yet what there is; otherwise ERR_BUSY. */
int warm_known(const struct warm *w, struct err *err);
const struct warm_pool *warm_first(const struct warm *w);
const struct warm_pool *warm_find(const struct warm *w, const char *name); /* NULL: there is none */

/* Whether a pool of this template could be kept, as far as the template is concerned. */
void warm_check(struct warm *w, const char *template, store_done_fn *done, void *arg);
/* Whether one more of this name may be made; ERR_LIMIT. */
int warm_room(const struct warm *w, const char *name, struct err *err);
void warm_set(struct warm *w, const struct store_pool *row); /* the store has it so */
void warm_remove(struct warm *w, const char *name);          /* the store has it no more */
void warm_template(struct warm *w, const char *name);        /* it has changed */

/* False: src/pool keeps none of that name. */
bool warm_live(const struct warm *w, const char *name, struct pool_info *ret);
void warm_metrics(const struct warm *w, struct buf *out);

/* --- the names of /v1/warmpools (warmnames.c) --- */

bool warmnames_wanted(const struct http_req *req);
int warmnames_read(json_t *body, struct err *err);                    /* their fields become ours */
void warmnames_pool(struct jsonw *w, const struct store_pool *row);   /* members of an object, beside ours */
void warmnames_status(struct jsonw *w, const struct pool_info *live); /* live may be NULL */
