/* /v1/pools, and /v1/warmpools, which is the same with other names: sandboxes that are made before somebody asks for
 * them.
 *
 * Pools are the server's and not a tenant's: everybody who sees templates sees them, and whoever holds pools:write
 * changes them. A change is checked against the template, then written, then kept (warm.c); the answer does not wait
 * until there are members. */
#include "api/inside.h"

#include "api/warm.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>

#define DAY_MS (24ull * 3600 * 1000)
#define TIME_MAX (365 * DAY_MS)
#define MEMBERS_MAX 1000000000ull

static const struct api_right api_pools = { .scopes = SCOPE_BIT(POOLS_WRITE) };

const struct store_pool pool_presets = { .max = 8,
                                         .ttl_ms = 3600 * 1000,
                                         .max_age_ms = DAY_MS,
                                         .autoscale = true,
                                         .hit_permille = 950,
                                         .scale_down_ms = 300 * 1000,
                                         .zygote_max_age_ms = 3600 * 1000,
                                         .zygote_max_members = 10000 };

/* --- answers --- */

static void json_permille(struct jsonw *w, const char *key, uint64_t permille)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64, permille / 1000, permille % 1000);
    jsonw_key(w, key);
    jsonw_raw(w, text);
}

/* What a pool is up to, in one word. */
static const char *phase_of(const struct warm_pool *p, const struct pool_info *live)
{
    return p->why.id == ERR_MISSING                                               ? "templateMissing"
           : p->why.id != ERR_NONE                                                ? "refused"
           : p->row.max == 0                                                      ? "off"
           : !live                                                                ? "waiting"
           : live->zygote == POOL_ZYGOTE_FAILED                                   ? "degraded"
           : live->size + live->starting == 0 && live->target > 0 && live->failed ? "degraded"
           : live->size - live->bare < live->target                               ? "filling"
                                                                                  : "ready";
}

static void json_zygote(struct jsonw *w, const struct pool_info *live)
{
    jsonw_key(w, "zygote");
    jsonw_object(w);
    jsonw_kstr(w, "state", pool_zygote_names[live->zygote]);
    if (live->zygote == POOL_ZYGOTE_FAILED)
        jsonw_kstr(w, "message", live->zygote_why);
    jsonw_ku64(w, "started", live->zygotes_started);
    jsonw_ku64(w, "renewed", live->zygotes_renewed);
    jsonw_ku64(w, "members", live->zygote_members);
    jsonw_ku64(w, "joins", live->joins);
    jsonw_ku64(w, "joinsFailed", live->joins_failed);
    jsonw_end_object(w);
}

/* Only what has happened, of the many things that may. */
static void json_recycled(struct jsonw *w, const struct pool_info *live)
{
    if (!live->settings.recycle)
        return;
    jsonw_key(w, "recycled");
    jsonw_object(w);
    jsonw_ku64(w, "ready", live->used);
    jsonw_ku64(w, "claims", live->reused);
    jsonw_ku64(w, "total", live->recycle[RECYCLE_YES]);
    jsonw_key(w, "destroyed");
    jsonw_object(w);
    for (size_t i = RECYCLE_YES + 1; i < RECYCLE_COUNT; i++)
        if (live->recycle[i])
            jsonw_ku64(w, recycle_names[i], live->recycle[i]);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void json_live(struct jsonw *w, const struct pool_info *live)
{
    jsonw_ku64(w, "ready", live->size);
    jsonw_ku64(w, "starting", live->starting);
    jsonw_ku64(w, "target", live->target);
    jsonw_ku64(w, "claims", live->claims);
    jsonw_ku64(w, "hits", live->hits);
    jsonw_ku64(w, "misses", live->misses);
    jsonw_ku64(w, "partial", live->cold);
    if (live->claims > 0)
        json_permille(w, "hitRate", live->hits * 1000 / live->claims);
    json_permille(w, "claimsPerSecond", live->arrivals_milli);
    if (live->claimed > 0)
        jsonw_ku64(w, "claimUs", live->claim_ns / live->claimed / NS_PER_US);
    if (live->refill_ns > 0)
        jsonw_ku64(w, "refillUs", live->refill_ns / NS_PER_US);
    jsonw_ku64(w, "expired", live->expired);
    jsonw_ku64(w, "replaced", live->replaced);
    jsonw_ku64(w, "failed", live->failed);
    jsonw_ku64(w, "lost", live->lost);
    json_recycled(w, live);
    json_zygote(w, live);
}

static void json_status(struct jsonw *w, struct api *api, const struct warm_pool *p, bool theirs)
{
    struct pool_info info, *live = warm_live(api->warm, p->row.name, &info) ? &info : NULL;

    jsonw_object(w);
    jsonw_kstr(w, "phase", phase_of(p, live));
    if (p->why.id != ERR_NONE)
        jsonw_kstr(w, "message", p->why.msg);
    if (live)
        jsonw_ku64(w, "generation", live->generation);
    if (p->template_generation)
        jsonw_ku64(w, "templateGeneration", p->template_generation);
    if (live)
        json_live(w, live);
    if (theirs)
        warmnames_status(w, live);
    jsonw_end_object(w);
}

/* theirs: with the names of /v1/warmpools too. */
static void json_pool(struct jsonw *w, struct api *api, const struct warm_pool *p, bool theirs)
{
    const struct store_pool *row = &p->row;

    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    jsonw_kstr(w, "template", row->template);
    jsonw_ku64(w, "min", row->min);
    jsonw_ku64(w, "max", row->max);
    jsonw_ku64(w, "ttlMs", row->ttl_ms);
    jsonw_ku64(w, "maxAgeMs", row->max_age_ms);
    jsonw_key(w, "autoscale");
    jsonw_object(w);
    jsonw_kbool(w, "enabled", row->autoscale);
    json_permille(w, "targetHitRate", row->hit_permille);
    jsonw_ku64(w, "scaleDownDelayMs", row->scale_down_ms);
    jsonw_end_object(w);
    jsonw_key(w, "zygote");
    jsonw_object(w);
    jsonw_ku64(w, "maxAgeMs", row->zygote_max_age_ms);
    jsonw_ku64(w, "maxMembers", row->zygote_max_members);
    jsonw_end_object(w);
    jsonw_kbool(w, "recycle", row->recycle);
    jsonw_kbool(w, "builtin", p->own);
    if (!p->own)
        jsonw_ku64(w, "generation", row->generation);
    api_time(w, "createdAt", row->created_ms);
    api_time(w, "updatedAt", row->updated_ms);
    if (theirs)
        warmnames_pool(w, row);
    jsonw_key(w, "status");
    json_status(w, api, p, theirs);
    jsonw_end_object(w);
}

static void answer_pool(struct http_req *req, struct api *api, int status, const char *name)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    json_pool(&w, api, warm_find(api->warm, name), warmnames_wanted(req));
    http_answer_json(req, status, &out);
}

/* --- reading --- */

/* The pool of the path. NULL: refused. */
static const struct warm_pool *pool_of(struct http_req *req, struct api *api)
{
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0 && warm_known(api->warm, &err) == 0) {
        const struct warm_pool *p = warm_find(api->warm, http_param(req, "pool"));

        if (p)
            return p;
        err_set(&err, ERR_MISSING, "there is no such pool");
    }
    http_answer_err(req, &err);
    return NULL;
}

static void list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;

    if (api_no_query(req, &err) < 0 || warm_known(api->warm, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "pools");
    jsonw_array(&w);
    for (const struct warm_pool *p = warm_first(api->warm); p; p = p->next)
        json_pool(&w, api, p, warmnames_wanted(req));
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void get(struct http_req *req, void *ctx)
{
    const struct warm_pool *p = pool_of(req, ctx);

    if (p)
        answer_pool(req, ctx, 200, p->row.name);
}

static void status(struct http_req *req, void *ctx)
{
    const struct warm_pool *p = pool_of(req, ctx);
    struct buf out = { 0 };
    struct jsonw w;

    if (!p)
        return;
    jsonw_init(&w, &out, 0);
    json_status(&w, ctx, p, warmnames_wanted(req));
    http_answer_json(req, 200, &out);
}

/* --- changing --- */

struct change {
    struct http_req *req;
    struct api *api;
    struct store_pool row;
    struct store_when when;
    bool fresh; /* it must not be there */
};

static void refuse(struct change *c, const struct err *err)
{
    http_answer_err(c->req, err);
    free(c);
}

static int read_rate(const json_t *object, uint64_t *permille, struct err *err)
{
    const json_t *v = json_object_get(object, "targetHitRate");
    double rate = json_number_value(v);

    if (!v)
        return 0;
    if (!json_is_number(v) || !(rate >= 0.5 && rate <= 0.999))
        return err_set(err, ERR_INVALID, "autoscale.targetHitRate: a number from 0.5 to 0.999 is needed");
    *permille = (uint64_t)lround(rate * 1000);
    return 0;
}

static int read_autoscale(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "enabled", "targetHitRate", "scaleDownDelayMs", NULL };
    json_t *o = NULL;

    if (body_object(body, "", "autoscale", &o, err) < 0)
        return -1;
    if (!o)
        return 0;
    return body_only(o, "autoscale.", names, err) < 0 ||
                   body_bool(o, "autoscale.", "enabled", &row->autoscale, err) < 0 ||
                   read_rate(o, &row->hit_permille, err) < 0 ||
                   body_u64(o, "autoscale.", "scaleDownDelayMs", 1000, TIME_MAX, &row->scale_down_ms, NULL, err) < 0
               ? -1
               : 0;
}

static int read_zygote(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "maxAgeMs", "maxMembers", NULL };
    json_t *o = NULL;

    if (body_object(body, "", "zygote", &o, err) < 0)
        return -1;
    if (!o)
        return 0;
    return body_only(o, "zygote.", names, err) < 0 ||
                   body_u64(o, "zygote.", "maxAgeMs", 0, TIME_MAX, &row->zygote_max_age_ms, NULL, err) < 0 ||
                   body_u64(o, "zygote.", "maxMembers", 0, MEMBERS_MAX, &row->zygote_max_members, NULL, err) < 0
               ? -1
               : 0;
}

static int read_row(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "name",     "template",  "min",    "max",     "ttlMs",
                                         "maxAgeMs", "autoscale", "zygote", "recycle", NULL };
    const char *template = row->template;
    bool max_said = false;

    if (body_only(body, "", names, err) < 0 ||
        body_text(body, "", "template", 1, STORE_NAME_MAX - 1, &template, err) < 0 ||
        body_u64(body, "", "min", 0, POOL_SIZE_MAX, &row->min, NULL, err) < 0 ||
        body_u64(body, "", "max", 0, POOL_SIZE_MAX, &row->max, &max_said, err) < 0 ||
        body_u64(body, "", "ttlMs", 0, TIME_MAX, &row->ttl_ms, NULL, err) < 0 ||
        body_u64(body, "", "maxAgeMs", 0, TIME_MAX, &row->max_age_ms, NULL, err) < 0 ||
        read_autoscale(body, row, err) < 0 || read_zygote(body, row, err) < 0 ||
        body_bool(body, "", "recycle", &row->recycle, err) < 0)
        return -1;
    if (template != row->template)
        str_copy(row->template, sizeof(row->template), template);
    if (!api_slug_ok(row->template))
        return err_set(err, ERR_INVALID, "template: the name of the template that the pool is made of is needed");
    if (row->max < row->min && !max_said)
        row->max = row->min;
    if (row->max < row->min)
        return err_set(err, ERR_INVALID, "min: %" PRIu64 " is more than max, which is %" PRIu64, row->min, row->max);
    if (row->recycle && row->max && row->max == row->min)
        return err_set(err, ERR_INVALID,
                       "max: a pool that recycles needs it to be more than min, which is %" PRIu64
                       ": used sandboxes wait between the two",
                       row->min);
    return 0;
}

static void on_written(void *arg, const struct err *err, const struct store_pool *row)
{
    auto_free struct change *c = arg;

    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    warm_set(c->api->warm, row);
    answer_pool(c->req, c->api, 200, row->name);
}

static void on_inserted(void *arg, const struct err *err)
{
    auto_free struct change *c = arg;
    auto_free char *path = str_printf("/v1/pools/%s", c->row.name);
    struct err why = { 0 };

    if (err && err->id == ERR_EXISTS)
        err = (err_set(&why, ERR_EXISTS, "name: there is a pool '%s'", c->row.name), &why);
    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    c->row.generation = 1;
    warm_set(c->api->warm, &c->row);
    http_set_header(c->req, "Location", path);
    answer_pool(c->req, c->api, 201, c->row.name);
}

static void on_checked(void *arg, const struct err *err)
{
    struct change *c = arg;
    struct err why = { 0 };

    if (!err && warm_room(c->api->warm, c->row.name, &why) < 0)
        err = &why;
    if (err)
        refuse(c, err);
    else if (c->fresh)
        store_pool_insert(c->api->set.store, &c->row, on_inserted, c);
    else
        store_pool_put(c->api->set.store, &c->row, &c->when, on_written, c);
}

static void record_and_check(struct change *c)
{
    if (c->fresh)
        api_audit_target(c->req, "pool", c->row.name); /* otherwise the path names it */
    api_audit_target(c->req, "template", c->row.template);
    api_audit_number(c->req, "min", c->row.min);
    api_audit_number(c->req, "max", c->row.max);
    c->row.updated_ms = clock_real_ns() / NS_PER_MS;
    if (!c->row.created_ms)
        c->row.created_ms = c->row.updated_ms;
    warm_check(c->api->warm, c->row.template, on_checked, c);
}

static int read_body(const struct http_req *req, json_t **ret, struct err *err)
{
    if (api_body(req, ret, err) < 0)
        return -1;
    return warmnames_wanted(req) ? warmnames_read(*ret, err) : 0;
}

static struct change *change_new(struct http_req *req, struct api *api, const struct store_pool *from)
{
    struct change *c = mem_new(struct change);

    c->req = req;
    c->api = api;
    c->row = *from;
    return c;
}

static int name_ok(const char *name, struct err *err)
{
    if (name && api_slug_ok(name))
        return 0;
    return err_set(err, ERR_INVALID, "name: a pool's name has 1 to 63 of a-z, 0-9, '.', '_' and '-'");
}

static void create(struct http_req *req, void *ctx)
{
    struct change *c = change_new(req, ctx, &pool_presets);
    auto_json *body = NULL;
    const char *name = NULL;
    struct err err = { 0 };

    c->fresh = true;
    if (api_no_query(req, &err) < 0 || read_body(req, &body, &err) < 0 ||
        body_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 || read_row(body, &c->row, &err) < 0 ||
        name_ok(name, &err) < 0 || warm_known(c->api->warm, &err) < 0) {
        refuse(c, &err);
        return;
    }
    str_copy(c->row.name, sizeof(c->row.name), name);
    record_and_check(c);
}

/* A body may repeat the name of the path, as the answers have it, and no other. */
static int read_named(const json_t *body, const char *name, struct store_pool *row, struct err *err)
{
    const char *said = name;

    if (body_text(body, "", "name", 1, STORE_NAME_MAX, &said, err) < 0 || read_row(body, row, err) < 0 ||
        name_ok(name, err) < 0)
        return -1;
    if (!str_eq(said, name))
        return err_set(err, ERR_INVALID, "name: a pool keeps its name, which the path says");
    str_copy(row->name, sizeof(row->name), name);
    return 0;
}

static void put(struct http_req *req, void *ctx)
{
    struct change *c = change_new(req, ctx, &pool_presets);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (api_no_query(req, &err) < 0 || read_body(req, &body, &err) < 0 ||
        read_named(body, http_param(req, "pool"), &c->row, &err) < 0 || warm_known(c->api->warm, &err) < 0)
        refuse(c, &err);
    else
        record_and_check(c);
}

static void patch(struct http_req *req, void *ctx)
{
    const struct warm_pool *p = pool_of(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!p)
        return;
    struct change *c = change_new(req, ctx, &p->row);
    c->when.generation = p->own ? 0 : p->row.generation;
    if (read_body(req, &body, &err) < 0 || read_named(body, p->row.name, &c->row, &err) < 0) {
        refuse(c, &err);
    } else if (json_object_size(body) == 0) {
        err_set(&err, ERR_INVALID, "say what to change: template, min, max, ttlMs, maxAgeMs, autoscale or zygote");
        refuse(c, &err);
    } else {
        record_and_check(c);
    }
}

static void on_deleted(void *arg, const struct err *err)
{
    auto_free struct change *c = arg;

    if (err) {
        http_answer_err(c->req, err);
        return;
    }
    warm_remove(c->api->warm, c->row.name);
    http_answer_empty(c->req, 204);
}

static void delete_(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const struct warm_pool *p = pool_of(req, ctx);
    struct err err;

    if (!p)
        return;
    if (p->own) {
        err_set(&err, ERR_EXISTS,
                "the pool %s is the server's own: set its min and max to 0, or the setting pools.default to off",
                p->row.name);
        http_answer_err(req, &err);
        return;
    }
    store_pool_delete(api->set.store, p->row.name, on_deleted, change_new(req, ctx, &p->row));
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route pool_routes[] = {
    { "GET", "/v1/pools", list, HTTP_BODY_NONE, .data = &api_read },
    { "POST", "/v1/pools", create, JSON_BODY, &api_pools },
    { "GET", "/v1/pools/{pool}", get, HTTP_BODY_NONE, .data = &api_read },
    { "PUT", "/v1/pools/{pool}", put, JSON_BODY, &api_pools },
    { "PATCH", "/v1/pools/{pool}", patch, JSON_BODY, &api_pools },
    { "DELETE", "/v1/pools/{pool}", delete_, HTTP_BODY_NONE, .data = &api_pools },
    { "GET", "/v1/pools/{pool}/status", status, HTTP_BODY_NONE, .data = &api_read },
    { "GET", "/v1/warmpools", list, HTTP_BODY_NONE, .data = &api_read }, /* the same under another name */
    { "POST", "/v1/warmpools", create, JSON_BODY, &api_pools },
    { "GET", "/v1/warmpools/{pool}", get, HTTP_BODY_NONE, .data = &api_read },
    { "PUT", "/v1/warmpools/{pool}", put, JSON_BODY, &api_pools },
    { "PATCH", "/v1/warmpools/{pool}", patch, JSON_BODY, &api_pools },
    { "DELETE", "/v1/warmpools/{pool}", delete_, HTTP_BODY_NONE, .data = &api_pools },
    { "GET", "/v1/warmpools/{pool}/status", status, HTTP_BODY_NONE, .data = &api_read },
    { 0 },
};
