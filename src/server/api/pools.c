/* /v1/pools, and /compat/v1/warmpools, the same with other field names: sandboxes that are
 * prepared before they are requested.
 *
 * Pools belong to the server, not to a tenant: every principal that can read templates can read
 * them, and pools:write permits changes. A change is checked against the template, then stored,
 * then applied (pool_registry.c); the response does not wait for members. */
#include "server/api/api_internal.h"

#include "server/api/pool_registry.h"
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <math.h>
#include <stdio.h>

#define DAY_MS (24ull * 3600 * 1000)
#define TIME_MAX (365 * DAY_MS)
#define MEMBERS_MAX 1000000000ull

static const struct gateway_permission permission_pools_write = { .scopes = SCOPE_BIT(POOLS_WRITE) };

const struct store_pool pool_defaults = { .max = 8,
                                          .ttl_ms = 3600 * 1000,
                                          .max_age_ms = DAY_MS,
                                          .autoscale = true,
                                          .hit_permille = 950,
                                          .scale_down_ms = 300 * 1000,
                                          .zygote_max_age_ms = 3600 * 1000,
                                          .zygote_max_members = 10000 };

/* --- responses --- */

static void api_pool_write_permille(struct jsonw *w, const char *key, uint64_t permille)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64 ".%03" PRIu64, permille / 1000, permille % 1000);
    jsonw_kraw(w, key, text);
}

/* The phase of a pool, as one word. */
static const char *api_pool_phase(const struct registered_pool *p, const struct pool_info *live)
{
    return p->problem.id == ERR_MISSING                                           ? "templateMissing"
           : p->problem.id != ERR_NONE                                            ? "refused"
           : p->row.max == 0                                                      ? "off"
           : !live                                                                ? "waiting"
           : live->zygote == POOL_ZYGOTE_FAILED                                   ? "degraded"
           : live->size + live->starting == 0 && live->target > 0 && live->failed ? "degraded"
           : live->size - live->without_interpreter < live->target                ? "filling"
                                                                                  : "ready";
}

static void api_pool_write_zygote(struct jsonw *w, const struct pool_info *live)
{
    jsonw_kobject(w, "zygote");
    jsonw_kstr(w, "state", pool_zygote_names[live->zygote]);
    if (live->zygote == POOL_ZYGOTE_FAILED)
        jsonw_kstr(w, "message", live->zygote_error);
    jsonw_ku64(w, "started", live->zygotes_started);
    jsonw_ku64(w, "renewed", live->zygotes_renewed);
    jsonw_ku64(w, "members", live->zygote_forks);
    jsonw_ku64(w, "joins", live->joins);
    jsonw_ku64(w, "joinsFailed", live->joins_failed);
    jsonw_end_object(w);
}

/* Writes only the outcomes that occurred. */
static void api_pool_write_recycled(struct jsonw *w, const struct pool_info *live)
{
    if (!live->settings.recycle)
        return;
    jsonw_kobject(w, "recycled");
    jsonw_ku64(w, "ready", live->recycled);
    jsonw_ku64(w, "claims", live->recycled_hits);
    jsonw_ku64(w, "total", live->recycle_verdicts[RECYCLE_YES]);
    jsonw_kobject(w, "destroyed");
    for (size_t i = RECYCLE_YES + 1; i < RECYCLE_COUNT; i++)
        if (live->recycle_verdicts[i])
            jsonw_ku64(w, recycle_verdict_names[i], live->recycle_verdicts[i]);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void api_pool_write_live(struct jsonw *w, const struct pool_info *live)
{
    jsonw_ku64(w, "ready", live->size);
    jsonw_ku64(w, "starting", live->starting);
    jsonw_ku64(w, "target", live->target);
    jsonw_ku64(w, "claims", live->claims);
    jsonw_ku64(w, "hits", live->hits);
    jsonw_ku64(w, "misses", live->misses);
    jsonw_ku64(w, "partial", live->cold);
    if (live->claims > 0)
        api_pool_write_permille(w, "hitRate", live->hits * 1000 / live->claims);
    api_pool_write_permille(w, "claimsPerSecond", live->arrivals_milli);
    if (live->claims_ready > 0)
        jsonw_kms(w, "claimMs", live->claim_ns / live->claims_ready);
    if (live->refill_ns > 0)
        jsonw_kms(w, "refillMs", live->refill_ns);
    jsonw_ku64(w, "expired", live->expired);
    jsonw_ku64(w, "replaced", live->replaced);
    jsonw_ku64(w, "failed", live->failed);
    jsonw_ku64(w, "lost", live->lost);
    api_pool_write_recycled(w, live);
    api_pool_write_zygote(w, live);
}

static void api_pool_write_status(struct jsonw *w, struct api *api, const struct registered_pool *p, bool theirs)
{
    struct pool_info info, *live = pool_registry_live_info(api->pool_registry, p->row.name, &info) ? &info : NULL;

    jsonw_object(w);
    jsonw_kstr(w, "phase", api_pool_phase(p, live));
    if (p->problem.id != ERR_NONE)
        jsonw_kstr(w, "message", p->problem.msg);
    if (live)
        jsonw_ku64(w, "generation", live->generation);
    if (p->template_generation)
        jsonw_ku64(w, "templateGeneration", p->template_generation);
    if (live)
        api_pool_write_live(w, live);
    if (theirs)
        warmpools_compat_write_status(w, live);
    jsonw_end_object(w);
}

/* theirs: also write the field names of /compat/v1/warmpools. */
static void api_pool_write_json(struct jsonw *w, struct api *api, const struct registered_pool *p, bool theirs)
{
    const struct store_pool *row = &p->row;

    jsonw_object(w);
    jsonw_kstr(w, "name", row->name);
    jsonw_kstr(w, "template", row->template);
    jsonw_ku64(w, "min", row->min);
    jsonw_ku64(w, "max", row->max);
    jsonw_ku64(w, "ttlMs", row->ttl_ms);
    jsonw_ku64(w, "maxAgeMs", row->max_age_ms);
    jsonw_kobject(w, "autoscale");
    jsonw_kbool(w, "enabled", row->autoscale);
    api_pool_write_permille(w, "targetHitRate", row->hit_permille);
    jsonw_ku64(w, "scaleDownDelayMs", row->scale_down_ms);
    jsonw_end_object(w);
    jsonw_kobject(w, "zygote");
    jsonw_ku64(w, "maxAgeMs", row->zygote_max_age_ms);
    jsonw_ku64(w, "maxMembers", row->zygote_max_members);
    jsonw_end_object(w);
    jsonw_kbool(w, "recycle", row->recycle);
    jsonw_kbool(w, "builtin", p->is_builtin);
    if (!p->is_builtin)
        jsonw_ku64(w, "generation", row->generation);
    api_write_time(w, "createdAt", row->created_ms);
    api_write_time(w, "updatedAt", row->updated_ms);
    if (theirs)
        warmpools_compat_write_pool(w, row);
    jsonw_key(w, "status");
    api_pool_write_status(w, api, p, theirs);
    jsonw_end_object(w);
}

static void api_pool_answer(struct http_req *req, struct api *api, int status, const char *name)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    api_pool_write_json(&w, api, pool_registry_find(api->pool_registry, name), warmpools_compat_is_requested(req));
    http_answer_json(req, status, &out);
}

/* --- reading --- */

/* Returns the pool in the path. NULL: the request was refused. */
static const struct registered_pool *api_pool_find_or_refuse(struct http_req *req, struct api *api)
{
    struct err err = { 0 };

    if (http_query_require_none(req, &err) == 0 && pool_registry_check_loaded(api->pool_registry, &err) == 0) {
        const struct registered_pool *p = pool_registry_find(api->pool_registry, http_param(req, "pool"));

        if (p)
            return p;
        err_set(&err, ERR_MISSING, "there is no such pool");
    }
    http_answer_err(req, &err);
    return NULL;
}

static void api_pool_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct err err = { 0 };
    struct jsonw w;

    if (http_query_require_none(req, &err) < 0 || pool_registry_check_loaded(api->pool_registry, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    (void)api_list_begin(req, NULL, &w, &out);
    for (const struct registered_pool *p = pool_registry_first(api->pool_registry); p; p = p->next)
        api_pool_write_json(&w, api, p, warmpools_compat_is_requested(req));
    api_list_end(req, &w, NULL);
}

static void api_pool_get(struct http_req *req, void *ctx)
{
    const struct registered_pool *p = api_pool_find_or_refuse(req, ctx);

    if (p)
        api_pool_answer(req, ctx, 200, p->row.name);
}

static void api_pool_status(struct http_req *req, void *ctx)
{
    const struct registered_pool *p = api_pool_find_or_refuse(req, ctx);
    struct buf out = { 0 };
    struct jsonw w;

    if (!p)
        return;
    jsonw_init(&w, &out, 0);
    api_pool_write_status(&w, ctx, p, warmpools_compat_is_requested(req));
    http_answer_json(req, 200, &out);
}

/* --- changes --- */

struct pool_change {
    struct http_req *req;
    struct api *api;
    struct store_pool row;
    struct store_condition precondition;
    bool must_be_new; /* the pool must not exist yet */
};

static int pool_change_read_hit_rate(const json_t *object, uint64_t *permille, struct err *err)
{
    const json_t *v = json_object_get(object, "targetHitRate");
    double rate = json_number_value(v);

    if (!v)
        return 0;
    if (!json_is_number(v) || !(rate >= 0.5 && rate <= 0.999))
        return err_set(err, ERR_INVALID, "autoscale.targetHitRate: must be a number from 0.5 to 0.999");
    *permille = (uint64_t)lround(rate * 1000);
    return 0;
}

static int pool_change_read_autoscale(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "enabled", "targetHitRate", "scaleDownDelayMs", NULL };
    json_t *o = NULL;

    if (json_input_object(body, "", "autoscale", &o, err) < 0)
        return -1;
    if (!o)
        return 0;
    return json_input_require_known_fields(o, "autoscale.", names, err) < 0 ||
                   json_input_bool(o, "autoscale.", "enabled", &row->autoscale, err) < 0 ||
                   pool_change_read_hit_rate(o, &row->hit_permille, err) < 0 ||
                   json_input_u64(o, "autoscale.", "scaleDownDelayMs", 1000, TIME_MAX, &row->scale_down_ms, NULL, err) <
                       0
               ? -1
               : 0;
}

static int pool_change_read_zygote(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "maxAgeMs", "maxMembers", NULL };
    json_t *o = NULL;

    if (json_input_object(body, "", "zygote", &o, err) < 0)
        return -1;
    if (!o)
        return 0;
    return json_input_require_known_fields(o, "zygote.", names, err) < 0 ||
                   json_input_u64(o, "zygote.", "maxAgeMs", 0, TIME_MAX, &row->zygote_max_age_ms, NULL, err) < 0 ||
                   json_input_u64(o, "zygote.", "maxMembers", 0, MEMBERS_MAX, &row->zygote_max_members, NULL, err) < 0
               ? -1
               : 0;
}

static int pool_change_read_row(const json_t *body, struct store_pool *row, struct err *err)
{
    static const char *const names[] = { "name",     "template",  "min",    "max",     "ttlMs",
                                         "maxAgeMs", "autoscale", "zygote", "recycle", NULL };
    const char *template = row->template;
    bool max_said = false;

    if (json_input_require_known_fields(body, "", names, err) < 0 ||
        json_input_text(body, "", "template", 1, STORE_NAME_MAX - 1, &template, err) < 0 ||
        json_input_u64(body, "", "min", 0, POOL_SIZE_MAX, &row->min, NULL, err) < 0 ||
        json_input_u64(body, "", "max", 0, POOL_SIZE_MAX, &row->max, &max_said, err) < 0 ||
        json_input_u64(body, "", "ttlMs", 0, TIME_MAX, &row->ttl_ms, NULL, err) < 0 ||
        json_input_u64(body, "", "maxAgeMs", 0, TIME_MAX, &row->max_age_ms, NULL, err) < 0 ||
        pool_change_read_autoscale(body, row, err) < 0 || pool_change_read_zygote(body, row, err) < 0 ||
        json_input_bool(body, "", "recycle", &row->recycle, err) < 0)
        return -1;
    if (template != row->template)
        str_copy(row->template, sizeof(row->template), template);
    if (!api_is_valid_slug(row->template))
        return err_set(err, ERR_INVALID, "template: required; give the name of the pool's template");
    if (row->max < row->min && !max_said)
        row->max = row->min;
    if (row->max < row->min)
        return err_set(err, ERR_INVALID, "min: %" PRIu64 " is greater than max, which is %" PRIu64, row->min, row->max);
    if (row->recycle && row->max && row->max == row->min)
        return err_set(err, ERR_INVALID,
                       "max: must be greater than min, which is %" PRIu64
                       ", if the pool recycles: recycled sandboxes use the difference",
                       row->min);
    return 0;
}

static void pool_change_on_written(void *arg, const struct err *err, const struct store_pool *row)
{
    struct pool_change *c = arg;

    if (http_answer_if_err(c->req, err))
        return;
    pool_registry_set(c->api->pool_registry, row);
    api_pool_answer(c->req, c->api, 200, row->name);
}

static void pool_change_on_inserted(void *arg, const struct err *err)
{
    struct pool_change *c = arg;
    auto_free char *path = str_printf("/v1/pools/%s", c->row.name);
    struct err why = { 0 };

    if (err && err->id == ERR_EXISTS)
        err = (err_set(&why, ERR_EXISTS, "name: a pool named '%s' already exists", c->row.name), &why);
    if (http_answer_if_err(c->req, err))
        return;
    c->row.generation = 1;
    pool_registry_set(c->api->pool_registry, &c->row);
    http_set_header(c->req, "Location", path);
    api_pool_answer(c->req, c->api, 201, c->row.name);
}

static void pool_change_on_checked(void *arg, const struct err *err)
{
    struct pool_change *c = arg;
    struct err why = { 0 };

    if (!err && pool_registry_check_capacity(c->api->pool_registry, c->row.name, &why) < 0)
        err = &why;
    if (err)
        http_answer_err(c->req, err);
    else if (c->must_be_new)
        store_pool_insert(c->api->settings.store, &c->row, pool_change_on_inserted, c);
    else
        store_pool_put(c->api->settings.store, &c->row, &c->precondition, pool_change_on_written, c);
}

static void pool_change_record_and_check(struct pool_change *c)
{
    if (c->must_be_new)
        audit_trail_add_target(c->req, "pool", c->row.name); /* otherwise the path names it */
    audit_trail_add_target(c->req, "template", c->row.template);
    audit_trail_add_number(c->req, "min", c->row.min);
    audit_trail_add_number(c->req, "max", c->row.max);
    c->row.updated_ms = clock_real_ms();
    if (!c->row.created_ms)
        c->row.created_ms = c->row.updated_ms;
    pool_registry_check_template(c->api->pool_registry, c->row.template, pool_change_on_checked, c);
}

static int pool_change_read_body(const struct http_req *req, json_t **ret, struct err *err)
{
    if (api_read_body(req, ret, err) < 0)
        return -1;
    return warmpools_compat_is_requested(req) ? warmpools_compat_read(*ret, err) : 0;
}

static struct pool_change *pool_change_new(struct http_req *req, struct api *api, const struct store_pool *from)
{
    struct pool_change *c = api_request_new(req, struct pool_change);

    c->req = req;
    c->api = api;
    c->row = *from;
    return c;
}

static void api_pool_create(struct http_req *req, void *ctx)
{
    struct pool_change *c = pool_change_new(req, ctx, &pool_defaults);
    auto_json *body = NULL;
    const char *name = NULL;
    struct err err = { 0 };

    c->must_be_new = true;
    if (http_query_require_none(req, &err) < 0 || pool_change_read_body(req, &body, &err) < 0 ||
        json_input_text(body, "", "name", 1, STORE_NAME_MAX, &name, &err) < 0 ||
        pool_change_read_row(body, &c->row, &err) < 0 || api_check_slug(name, &err) < 0 ||
        pool_registry_check_loaded(c->api->pool_registry, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    str_copy(c->row.name, sizeof(c->row.name), name);
    pool_change_record_and_check(c);
}

/* The body may repeat the name in the path, as responses do, but may not change it. */
static int pool_change_read_named(const json_t *body, const char *name, struct store_pool *row, struct err *err)
{
    const char *said = name;

    if (json_input_text(body, "", "name", 1, STORE_NAME_MAX, &said, err) < 0 ||
        pool_change_read_row(body, row, err) < 0 || api_check_slug(name, err) < 0)
        return -1;
    if (!str_eq(said, name))
        return err_set(err, ERR_INVALID, "name: must be the name in the path; a pool cannot be renamed");
    str_copy(row->name, sizeof(row->name), name);
    return 0;
}

static void api_pool_put(struct http_req *req, void *ctx)
{
    struct pool_change *c = pool_change_new(req, ctx, &pool_defaults);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (http_query_require_none(req, &err) < 0 || pool_change_read_body(req, &body, &err) < 0 ||
        pool_change_read_named(body, http_param(req, "pool"), &c->row, &err) < 0 ||
        pool_registry_check_loaded(c->api->pool_registry, &err) < 0)
        http_answer_err(req, &err);
    else
        pool_change_record_and_check(c);
}

static void api_pool_patch(struct http_req *req, void *ctx)
{
    const struct registered_pool *p = api_pool_find_or_refuse(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!p)
        return;
    struct pool_change *c = pool_change_new(req, ctx, &p->row);
    c->precondition.generation = p->is_builtin ? 0 : p->row.generation;
    if (pool_change_read_body(req, &body, &err) < 0 || pool_change_read_named(body, p->row.name, &c->row, &err) < 0)
        http_answer_err(req, &err);
    else if (json_object_size(body) == 0)
        http_refuse(req, ERR_INVALID,
                    "nothing to change; give at least one of template, min, max, ttlMs, maxAgeMs, autoscale, zygote "
                    "and recycle");
    else
        pool_change_record_and_check(c);
}

static void pool_change_on_deleted(void *arg, const struct err *err)
{
    struct pool_change *c = arg;

    if (!err)
        pool_registry_remove(c->api->pool_registry, c->row.name);
    api_answer_done(c->req, err);
}

static void api_pool_delete(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const struct registered_pool *p = api_pool_find_or_refuse(req, ctx);

    if (!p)
        return;
    if (p->is_builtin) {
        http_refuse(req, ERR_EXISTS,
                    "%s is the server's default pool and cannot be deleted; set its min and max to 0, or the setting "
                    "pools.default to off",
                    p->row.name);
        return;
    }
    store_pool_delete(api->settings.store, p->row.name, pool_change_on_deleted, pool_change_new(req, ctx, &p->row));
}

#define JSON_BODY HTTP_BODY_BUFFERED, 16 * KIB, "application/json"

const struct http_route pool_routes[] = {
    { "GET", "/v1/pools", api_pool_list, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "POST", "/v1/pools", api_pool_create, JSON_BODY, &permission_pools_write },
    { "GET", "/v1/pools/{pool}", api_pool_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "PUT", "/v1/pools/{pool}", api_pool_put, JSON_BODY, &permission_pools_write },
    { "PATCH", "/v1/pools/{pool}", api_pool_patch, JSON_BODY, &permission_pools_write },
    { "DELETE", "/v1/pools/{pool}", api_pool_delete, HTTP_BODY_NONE, .data = &permission_pools_write },
    { "GET", "/v1/pools/{pool}/status", api_pool_status, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "GET", "/compat/v1/warmpools", api_pool_list, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read }, /* the same under another name */
    { "POST", "/compat/v1/warmpools", api_pool_create, JSON_BODY, &permission_pools_write },
    { "GET", "/compat/v1/warmpools/{pool}", api_pool_get, HTTP_BODY_NONE, .data = &permission_sandboxes_read },
    { "PUT", "/compat/v1/warmpools/{pool}", api_pool_put, JSON_BODY, &permission_pools_write },
    { "PATCH", "/compat/v1/warmpools/{pool}", api_pool_patch, JSON_BODY, &permission_pools_write },
    { "DELETE", "/compat/v1/warmpools/{pool}", api_pool_delete, HTTP_BODY_NONE, .data = &permission_pools_write },
    { "GET", "/compat/v1/warmpools/{pool}/status", api_pool_status, HTTP_BODY_NONE,
      .data = &permission_sandboxes_read },
    { 0 },
};
