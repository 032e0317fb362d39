/* All pools are held in memory, sorted by name, so that reads need no query. The store is read once
 * at startup; afterwards a change is first written to the store, and pool_registry_set is called
 * after its reply.
 *
 * A template is read from the store for each change. Replies of the store arrive in the order of
 * the queries, but a pool can change twice before the first reply; the change number shows which
 * reply is the latest.
 *
 * A default pool of the server is an entry without a row in the store. A stored pool of the same
 * name replaces it; when that pool is deleted, the default pool returns. */
#include "server/api/pool_registry.h"

#include "server/api/api_internal.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/metrics.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/templates.h"

struct pool_registry {
    struct api *api;
    struct registered_pool *first;
    size_t n;
    bool is_loaded;
    uint64_t last_change_number;
};

/* --- the list --- */

static struct registered_pool *pool_registry_find_mutable(const struct pool_registry *w, const char *name)
{
    struct registered_pool *p = w->first;

    while (p && !str_eq(p->row.name, name))
        p = p->next;
    return p;
}

const struct registered_pool *pool_registry_find(const struct pool_registry *w, const char *name)
{
    return pool_registry_find_mutable(w, name);
}

const struct registered_pool *pool_registry_first(const struct pool_registry *w)
{
    return w->first;
}

static struct registered_pool *pool_registry_insert(struct pool_registry *w, const char *name)
{
    struct registered_pool **at = &w->first, *p = mem_new(struct registered_pool);

    while (*at && strcmp((*at)->row.name, name) < 0)
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    w->n++;
    return p;
}

static void pool_registry_drop(struct pool_registry *w, const char *name)
{
    struct registered_pool **at = &w->first;

    while (*at && !str_eq((*at)->row.name, name))
        at = &(*at)->next;
    if (!*at)
        return;
    struct registered_pool *p = *at;
    *at = p->next;
    w->n--;
    free(p);
}

int pool_registry_check_loaded(const struct pool_registry *w, struct err *err)
{
    return w->is_loaded ? 0 : err_set(err, ERR_BUSY, "the pools are still being loaded; try again in a moment");
}

int pool_registry_check_capacity(const struct pool_registry *w, const char *name, struct err *err)
{
    if (w->n < POOLS_MAX || pool_registry_find_mutable(w, name))
        return 0;
    err_set(err, ERR_LIMIT, "a server has at most %u pools; delete one first", POOLS_MAX);
    return err_set_limit(err, "pools", w->n, POOLS_MAX);
}

/* --- from a template to a spec --- */

static int pool_registry_check_poolable(const struct spec *spec, struct err *err)
{
    if (spec->nhidden_paths > 0)
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "filesystem.hide of its policy: sandboxes with hidden paths cannot be prepared in a pool");
    if (spec->cpu_pinning)
        return err_set(
            err, ERR_NOT_SUPPORTED_YET,
            "resources.cpuPinning: CPUs are chosen when a sandbox is created, so it cannot be prepared in a pool");
    return 0;
}

static int pool_registry_finish_spec(const struct pool_registry *w, struct spec *spec, struct err *err)
{
    if (custom_policy_apply_operator_limits(spec, w->api->settings.operator_limits, err) < 0)
        return -1;
    if (!spec->runtime[0])
        return err_set(err, ERR_INVALID, "it names no runtime, which a pool needs; set runtime in the template");
    return spec_finish(spec, err) < 0 ? -1 : pool_registry_check_poolable(spec, err);
}

/* Evaluates the store's reply about a template. The caller frees the spec, also after a failure. */
static int pool_registry_resolve_template(const struct pool_registry *w, const char *name, const struct err *err,
                                          const struct store_template *row, struct spec *ret, struct err *why)
{
    spec_init(ret);
    if (spec_read_template(ret, name, err, row, why) < 0)
        return -1;
    return pool_registry_finish_spec(w, ret, why) < 0 ? err_wrap(why, "template %s", name) : 0;
}

struct pool_template_query {
    struct pool_registry *registry;
    char template[STORE_NAME_MAX + 1];
    char pool[STORE_NAME_MAX + 1];
    uint64_t change_number;
    store_done_fn *done;
    void *arg;
};

static struct pool_template_query *pool_template_query_new(struct pool_registry *w, const char *template)
{
    struct pool_template_query *q = mem_new(struct pool_template_query);

    q->registry = w;
    str_copy(q->template, sizeof(q->template), template);
    return q;
}

static void pool_registry_on_template_checked(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct pool_template_query *q = arg;
    struct err why = { 0 };
    struct spec spec;

    bool good = pool_registry_resolve_template(q->registry, q->template, err, row, &spec, &why) == 0;
    q->done(q->arg, good ? NULL : &why);
    spec_done(&spec);
}

void pool_registry_check_template(struct pool_registry *w, const char *template, store_done_fn *done, void *arg)
{
    struct pool_template_query *q = pool_template_query_new(w, template);

    q->done = done;
    q->arg = arg;
    template_get(w->api->settings.store, q->template, pool_registry_on_template_checked, q);
}

/* --- passing pools on to src/sandbox/pool --- */

static void pool_registry_put_pool(struct registered_pool *p, struct pools *pools, const struct spec *spec)
{
    const struct store_pool *row = &p->row;
    struct pool_settings set = { .version = p->template_generation,
                                 .min = (uint32_t)row->min,
                                 .max = (uint32_t)row->max,
                                 .ttl_ms = row->ttl_ms,
                                 .max_age_ms = row->max_age_ms,
                                 .autoscale = row->autoscale,
                                 .target_hit_permille = (uint32_t)row->hit_permille,
                                 .scale_down_ms = row->scale_down_ms,
                                 .zygote_max_age_ms = row->zygote_max_age_ms,
                                 .zygote_max_members = row->zygote_max_members,
                                 .recycle = row->recycle };
    struct sandbox_spec sandbox;

    spec_fill_sandbox_spec(spec, &sandbox);
    p->problem = (struct err){ 0 };
    if (row->max == 0) {
        pools_remove(pools, row->name);
        return;
    }
    (void)pools_put(pools, row->name, &sandbox, &set, &p->problem);
}

static void pool_registry_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct pool_template_query *q = arg;
    struct registered_pool *p = pool_registry_find_mutable(q->registry, q->pool);
    struct spec spec;

    if (!p || p->change_number != q->change_number)
        return;
    p->problem = (struct err){ 0 };
    if (pool_registry_resolve_template(q->registry, q->template, err, row, &spec, &p->problem) == 0) {
        p->template_generation = template_is_builtin(row) ? 0 : row->generation;
        pool_registry_put_pool(p, q->registry->api->settings.pools, &spec);
    }
    spec_done(&spec);
    if (p->problem.id != ERR_NONE) {
        log_warn("cannot keep pool %s: %s", p->row.name, p->problem.msg);
        pools_remove(q->registry->api->settings.pools, p->row.name);
    }
}

static void pool_registry_apply(struct pool_registry *w, struct registered_pool *p)
{
    struct pool_template_query *q = pool_template_query_new(w, p->row.template);

    str_copy(q->pool, sizeof(q->pool), p->row.name);
    q->change_number = p->change_number = ++w->last_change_number;
    template_get(w->api->settings.store, q->template, pool_registry_on_template, q);
}

static void pool_registry_set_row(struct pool_registry *w, const struct store_pool *row, bool own)
{
    struct registered_pool *p = pool_registry_find_mutable(w, row->name);

    if (!p)
        p = pool_registry_insert(w, row->name);
    p->row = *row;
    p->is_builtin = own;
    pool_registry_apply(w, p);
}

void pool_registry_set(struct pool_registry *w, const struct store_pool *row)
{
    pool_registry_set_row(w, row, false);
}

static const struct store_pool *pool_registry_find_builtin(const struct pool_registry *w, const char *name)
{
    for (size_t i = 0; i < w->api->settings.nbuiltin_pools; i++)
        if (str_eq(w->api->settings.builtin_pools[i].name, name))
            return &w->api->settings.builtin_pools[i];
    return NULL;
}

void pool_registry_remove(struct pool_registry *w, const char *name)
{
    const struct store_pool *own = pool_registry_find_builtin(w, name);

    pools_remove(w->api->settings.pools, name);
    if (own)
        pool_registry_set_row(w, own, true);
    else
        pool_registry_drop(w, name);
}

void pool_registry_template_changed(struct pool_registry *w, const char *name)
{
    for (struct registered_pool *p = w->first; p; p = p->next)
        if (str_eq(p->row.template, name))
            pool_registry_apply(w, p);
}

bool pool_registry_live_info(const struct pool_registry *w, const char *name, struct pool_info *ret)
{
    return pools_get(w->api->settings.pools, name, ret);
}

/* --- start and end --- */

static void pool_registry_on_rows(void *arg, const struct err *err, const struct store_pool *rows, size_t n,
                                  const char *next UNUSED)
{
    struct pool_registry *w = arg;

    if (err) { /* without pools every request is a cold start */
        log_error("cannot read the pools, so none is kept: %s", err->msg);
        return;
    }
    w->is_loaded = true;
    for (size_t i = 0; i < n; i++)
        pool_registry_set_row(w, &rows[i], false);
    for (size_t i = 0; i < w->api->settings.nbuiltin_pools; i++)
        if (!pool_registry_find_mutable(w, w->api->settings.builtin_pools[i].name))
            pool_registry_set_row(w, &w->api->settings.builtin_pools[i], true);
}

struct pool_registry *pool_registry_new(struct api *api)
{
    struct pool_registry *w = mem_new(struct pool_registry);

    w->api = api;
    store_pool_list(api->settings.store, &(struct store_list){ .limit = STORE_LIST_MAX }, pool_registry_on_rows, w);
    return w;
}

void pool_registry_free(struct pool_registry *w)
{
    while (w && w->first)
        pool_registry_drop(w, w->first->row.name);
    free(w);
}

/* --- metrics --- */

static const struct pool_metric {
    const char *name, *labels, *help; /* help NULL: another series of the previous family */
    size_t offset;
    bool is_64bit;    /* the member is a uint64_t, otherwise a uint32_t */
    bool is_duration; /* the member is in nanoseconds */
} pool_metrics[] = {
#define WIDE(member) offsetof(struct pool_info, member), true
#define DURATION(member) WIDE(member), true
#define NARROW(member) offsetof(struct pool_info, member), false
    { "pool_size", "", "Ready members.", NARROW(size) },
    { "pool_bare", "", "Ready members without the interpreter that they should have.", NARROW(without_interpreter) },
    { "pool_starting", "", "Members that are being created.", NARROW(starting) },
    { "pool_target", "", "Target number of members.", NARROW(target) },
    { "pool_min", "", "Lower bound of the target.", NARROW(settings.min) },
    { "pool_max", "", "Upper bound of the target.", NARROW(settings.max) },
    { "pool_claims_total", "", "Requests for a sandbox of the pool's spec.", WIDE(claims) },
    { "pool_hits_total", "", "Claims served by a ready member.", WIDE(hits) },
    { "pool_misses_total", "", "Claims that found no member: cold starts.", WIDE(misses) },
    { "pool_partial_total", "", "Claims served by a member that was not ready yet or lacked its interpreter.",
      WIDE(cold) },
    { "pool_claim_seconds_sum", "", "Time from a claim to a ready sandbox.", DURATION(claim_ns) },
    { "pool_claim_seconds_count", "", NULL, WIDE(claims_ready) },
    { "pool_refill_seconds", "", "Average time to create a member.", DURATION(refill_ns) },
    { "pool_removed_total", ",reason=\"expired\"", "Members that were removed unused.", WIDE(expired) },
    { "pool_removed_total", ",reason=\"age\"", NULL, WIDE(replaced) },
    { "pool_removed_total", ",reason=\"lost\"", NULL, WIDE(lost) },
    { "pool_recycled", "", "Recycled members that wait for their next use.", NARROW(recycled) },
    { "pool_recycled_claims_total", "", "Claims served by a recycled member.", WIDE(recycled_hits) },
    { "pool_failures_total", "", "Members that could not be created.", WIDE(failed) },
    { "pool_joins_total", "", "Interpreters that joined a member.", WIDE(joins) },
    { "pool_join_failures_total", "", "Interpreters that could not join a member.", WIDE(joins_failed) },
    { "pool_zygote_starts_total", "", "Zygotes started.", WIDE(zygotes_started) },
    { "pool_zygote_renewals_total", "", "Zygotes started to replace one that was too old or had forked too often.",
      WIDE(zygotes_renewed) },
#undef WIDE
#undef DURATION
#undef NARROW
};

static uint64_t pool_metric_value(const struct pool_metric *f, const struct pool_info *i)
{
    const char *at = (const char *)i + f->offset;

    return f->is_64bit ? *(const uint64_t *)(const void *)at : *(const uint32_t *)(const void *)at;
}

static void pool_metric_write_family(struct buf *out, const struct pool_metric *f)
{
    size_t n = strlen(f->name);
    bool sum = n > 4 && str_eq(f->name + n - 4, "_sum");

    auto_free char *name = str_dup_n(f->name, sum ? n - 4 : n);
    metrics_family(out, name, sum ? "summary" : NULL, f->help);
}

/* The current state has the value 1, the others 0. */
static void pool_metric_write_zygotes(struct buf *out, const struct pool_info *live, size_t n)
{
    metrics_family(out, "pool_zygote", NULL, "State of the zygote, the process from which interpreters are forked.");
    for (size_t i = 0; i < n; i++)
        for (unsigned state = 0; pool_zygote_names[state]; state++)
            buf_addf(out, "cove_pool_zygote{pool=\"%s\",state=\"%s\"} %d\n", live[i].name, pool_zygote_names[state],
                     live[i].zygote == state);
}

static void pool_metric_write_recycled(struct buf *out, const struct pool_info *live, size_t n)
{
    metrics_family(out, "pool_recycle_total", NULL, "Sandboxes returned to a pool that recycles, by outcome.");
    for (size_t i = 0; i < n; i++)
        for (size_t why = 0; why < RECYCLE_COUNT; why++)
            if (why != RECYCLE_DISABLED) /* then sandboxes are not returned */
                buf_addf(out, "cove_pool_recycle_total{pool=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", live[i].name,
                         recycle_verdict_names[why], live[i].recycle_verdicts[why]);
}

void pool_registry_write_metrics(const struct pool_registry *w, struct buf *out)
{
    struct pool_info *live = mem_new_array(struct pool_info, POOLS_MAX);
    size_t n = pools_list(w->api->settings.pools, live, POOLS_MAX);

    for (const struct pool_metric *f = pool_metrics; n > 0 && f < pool_metrics + ARRAY_LEN(pool_metrics); f++) {
        if (f->help)
            pool_metric_write_family(out, f);
        for (size_t i = 0; i < n; i++) {
            auto_free char *labels = str_printf("{pool=\"%s\"%s}", live[i].name, f->labels);

            (f->is_duration ? metrics_seconds : metrics_value)(out, f->name, labels, pool_metric_value(f, &live[i]));
        }
    }
    if (n > 0) {
        pool_metric_write_zygotes(out, live, n);
        pool_metric_write_recycled(out, live, n);
    }
    free(live);
}
