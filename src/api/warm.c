/* Everything that is known of pools is held here, in the order of their names, so that reading them asks nobody. The
 * store is read once; after that it is written first, and warm_set follows its answer.
 *
 * A template is read from the store for each change. Answers of the store come in the order of the questions, but a
 * pool can change twice before the first one is there; the number of the change tells which answer is the latest.
 *
 * The pool that a server has without being told is a row like the others that is not in the store. One of the same name
 * in the store takes its place, and gives it back when it is removed. */
#include "api/warm.h"

#include "api/inside.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/custom.h"
#include "sandbox/templates.h"

struct warm {
    struct api *api;
    struct warm_pool *first;
    size_t n;
    bool known;
    uint64_t orders;
};

/* --- the list --- */

static struct warm_pool *find(const struct warm *w, const char *name)
{
    struct warm_pool *p = w->first;

    while (p && !str_eq(p->row.name, name))
        p = p->next;
    return p;
}

const struct warm_pool *warm_find(const struct warm *w, const char *name)
{
    return find(w, name);
}

const struct warm_pool *warm_first(const struct warm *w)
{
    return w->first;
}

static struct warm_pool *add(struct warm *w, const char *name)
{
    struct warm_pool **at = &w->first, *p = mem_new(struct warm_pool);

    while (*at && strcmp((*at)->row.name, name) < 0)
        at = &(*at)->next;
    p->next = *at;
    *at = p;
    w->n++;
    return p;
}

static void drop(struct warm *w, const char *name)
{
    struct warm_pool **at = &w->first;

    while (*at && !str_eq((*at)->row.name, name))
        at = &(*at)->next;
    if (!*at)
        return;
    struct warm_pool *p = *at;
    *at = p->next;
    w->n--;
    free(p);
}

int warm_known(const struct warm *w, struct err *err)
{
    return w->known ? 0 : err_set(err, ERR_BUSY, "the pools are being read; try again in a moment");
}

int warm_room(const struct warm *w, const char *name, struct err *err)
{
    if (w->n < POOLS_MAX || find(w, name))
        return 0;
    return err_set(err, ERR_LIMIT, "a server has at most %u pools", POOLS_MAX);
}

/* --- from a template to a sandbox --- */

static int pooled(const struct spec *spec, struct err *err)
{
    if (spec->nhide > 0)
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "filesystem.hide of its policy: sandboxes with hidden paths cannot be made beforehand");
    if (spec->pinning)
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "resources.cpuPinning: processors are chosen for a sandbox when it is made");
    return 0;
}

static int read_spec(const struct warm *w, const char *text, struct spec *spec, struct err *err)
{
    auto_json *body = NULL;

    if (body_parse(text, strlen(text), &body, err) < 0 || spec_read(spec, body, SPEC_OF_TEMPLATE, NULL, err) < 0 ||
        custom_floor(spec, w->api->set.floor, err) < 0)
        return -1;
    if (!spec->runtime[0])
        return err_set(err, ERR_INVALID, "it names no runtime, so nobody knows what to make beforehand");
    return spec_finish(spec, err) < 0 ? -1 : pooled(spec, err);
}

/* What the store said about a template. The spec is the caller's to end, also after a
 * failure. */
static int resolve(const struct warm *w, const char *name, const struct err *err, const struct store_template *row,
                   struct spec *ret, struct err *why)
{
    spec_init(ret);
    if (err && err->id == ERR_MISSING)
        return template_missing(why, name);
    if (err) {
        *why = *err;
        return -1;
    }
    return read_spec(w, row->spec_json, ret, why) < 0 ? err_wrap(why, "template %s", name) : 0;
}

struct question {
    struct warm *w;
    char template[STORE_NAME_MAX + 1];
    char pool[STORE_NAME_MAX + 1];
    uint64_t order;
    store_done_fn *done;
    void *arg;
};

static struct question *question_new(struct warm *w, const char *template)
{
    struct question *q = mem_new(struct question);

    q->w = w;
    str_copy(q->template, sizeof(q->template), template);
    return q;
}

static void on_checked(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct question *q = arg;
    struct err why = { 0 };
    struct spec spec;

    bool good = resolve(q->w, q->template, err, row, &spec, &why) == 0;
    q->done(q->arg, good ? NULL : &why);
    spec_done(&spec);
}

void warm_check(struct warm *w, const char *template, store_done_fn *done, void *arg)
{
    struct question *q = question_new(w, template);

    q->done = done;
    q->arg = arg;
    template_get(w->api->set.store, q->template, on_checked, q);
}

/* --- what is kept --- */

static void put(struct warm_pool *p, struct pools *pools, const struct spec *spec)
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
    struct box_spec box;

    spec_box(spec, &box);
    p->why = (struct err){ 0 };
    if (row->max == 0) {
        pools_remove(pools, row->name);
        return;
    }
    (void)pools_put(pools, row->name, &box, &set, &p->why);
}

static void on_template(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct question *q = arg;
    struct warm_pool *p = find(q->w, q->pool);
    struct spec spec;

    if (!p || p->order != q->order)
        return;
    p->why = (struct err){ 0 };
    if (resolve(q->w, q->template, err, row, &spec, &p->why) == 0) {
        p->template_generation = template_is_builtin(row) ? 0 : row->generation;
        put(p, q->w->api->set.pools, &spec);
    }
    spec_done(&spec);
    if (p->why.id != ERR_NONE) {
        log_warn("the pool %s is not kept: %s", p->row.name, p->why.msg);
        pools_remove(q->w->api->set.pools, p->row.name);
    }
}

static void apply(struct warm *w, struct warm_pool *p)
{
    struct question *q = question_new(w, p->row.template);

    str_copy(q->pool, sizeof(q->pool), p->row.name);
    q->order = p->order = ++w->orders;
    template_get(w->api->set.store, q->template, on_template, q);
}

static void set(struct warm *w, const struct store_pool *row, bool own)
{
    struct warm_pool *p = find(w, row->name);

    if (!p)
        p = add(w, row->name);
    p->row = *row;
    p->own = own;
    apply(w, p);
}

void warm_set(struct warm *w, const struct store_pool *row)
{
    set(w, row, false);
}

void warm_remove(struct warm *w, const char *name)
{
    const struct store_pool *own = w->api->set.own_pool;

    pools_remove(w->api->set.pools, name);
    if (own && str_eq(own->name, name))
        set(w, own, true);
    else
        drop(w, name);
}

void warm_template(struct warm *w, const char *name)
{
    for (struct warm_pool *p = w->first; p; p = p->next)
        if (str_eq(p->row.template, name))
            apply(w, p);
}

bool warm_live(const struct warm *w, const char *name, struct pool_info *ret)
{
    return pools_get(w->api->set.pools, name, ret);
}

/* --- the beginning and the end --- */

static void on_pools(void *arg, const struct err *err, const struct store_pool *rows, size_t n, const char *next UNUSED)
{
    struct warm *w = arg;

    if (err) { /* nothing is lost: what is asked for is made when it is asked for */
        log_error("the pools could not be read, and none is kept: %s", err->msg);
        return;
    }
    w->known = true;
    for (size_t i = 0; i < n; i++)
        set(w, &rows[i], false);
    if (w->api->set.own_pool && !find(w, w->api->set.own_pool->name))
        set(w, w->api->set.own_pool, true);
}

struct warm *warm_new(struct api *api)
{
    struct warm *w = mem_new(struct warm);

    w->api = api;
    store_pool_list(api->set.store, &(struct store_list){ .limit = STORE_LIST_MAX }, on_pools, w);
    return w;
}

void warm_free(struct warm *w)
{
    while (w && w->first)
        drop(w, w->first->row.name);
    free(w);
}

/* --- figures --- */

enum figure_kind { GAUGE, COUNTER, SECONDS };

static const struct pool_figure {
    const char *name, *labels, *help; /* no help: one more of the family before */
    enum figure_kind kind;
    size_t at;
    bool wide; /* 64 bits */
} pool_figures[] = {
#define WIDE(member) offsetof(struct pool_info, member), true
#define NARROW(member) offsetof(struct pool_info, member), false
    { "pool_size", "", "Members that are ready.", GAUGE, NARROW(size) },
    { "pool_bare", "", "Of these, members without the interpreter that they should have.", GAUGE, NARROW(bare) },
    { "pool_starting", "", "Members that are being made.", GAUGE, NARROW(starting) },
    { "pool_target", "", "Members that the pool wants to have.", GAUGE, NARROW(target) },
    { "pool_min", "", "The least that it wants.", GAUGE, NARROW(settings.min) },
    { "pool_max", "", "The most that it may want.", GAUGE, NARROW(settings.max) },
    { "pool_claims_total", "", "Sandboxes of its shape that were asked for.", COUNTER, WIDE(claims) },
    { "pool_hits_total", "", "Claims that a ready member served.", COUNTER, WIDE(hits) },
    { "pool_misses_total", "", "Claims that found no member: cold starts.", COUNTER, WIDE(misses) },
    { "pool_partial_total", "", "Claims that a member served which was not ready yet, or lacked its interpreter.",
      COUNTER, WIDE(cold) },
    { "pool_claim_seconds_sum", "", "From a claim to a sandbox that is ready.", SECONDS, WIDE(claim_ns) },
    { "pool_claim_seconds_count", "", NULL, COUNTER, WIDE(claimed) },
    { "pool_refill_seconds", "", "How long making a member takes, on average.", SECONDS, WIDE(refill_ns) },
    { "pool_removed_total", ",reason=\"expired\"", "Members that were let go unused.", COUNTER, WIDE(expired) },
    { "pool_removed_total", ",reason=\"age\"", NULL, COUNTER, WIDE(replaced) },
    { "pool_removed_total", ",reason=\"lost\"", NULL, COUNTER, WIDE(lost) },
    { "pool_recycled", "", "Recycled members that wait for those who had them.", GAUGE, NARROW(used) },
    { "pool_recycled_claims_total", "", "Claims that a recycled member served.", COUNTER, WIDE(reused) },
    { "pool_failures_total", "", "Members that could not be made.", COUNTER, WIDE(failed) },
    { "pool_joins_total", "", "Interpreters that joined a member.", COUNTER, WIDE(joins) },
    { "pool_join_failures_total", "", "Interpreters that could not join.", COUNTER, WIDE(joins_failed) },
    { "pool_zygote_starts_total", "", "Zygotes that were started.", COUNTER, WIDE(zygotes_started) },
    { "pool_zygote_renewals_total", "", "Of these, in the place of one too old or forked too often.", COUNTER,
      WIDE(zygotes_renewed) },
#undef WIDE
#undef NARROW
};

static uint64_t figure_of(const struct pool_figure *f, const struct pool_info *i)
{
    const char *at = (const char *)i + f->at;

    return f->wide ? *(const uint64_t *)(const void *)at : *(const uint32_t *)(const void *)at;
}

static void family(struct buf *out, const struct pool_figure *f)
{
    size_t n = strlen(f->name);
    bool sum = n > 4 && str_eq(f->name + n - 4, "_sum");

    n -= sum ? 4 : 0;
    buf_addf(out, "# HELP cove_%.*s %s\n# TYPE cove_%.*s %s\n", (int)n, f->name, f->help, (int)n, f->name,
             sum                  ? "summary"
             : f->kind == COUNTER ? "counter"
                                  : "gauge");
}

/* One of its states has a 1. */
static void zygote_metrics(struct buf *out, const struct pool_info *live, size_t n)
{
    buf_adds(out, "# HELP cove_pool_zygote What the process is up to that interpreters are forked from.\n"
                  "# TYPE cove_pool_zygote gauge\n");
    for (size_t i = 0; i < n; i++)
        for (unsigned state = 0; pool_zygote_names[state]; state++)
            buf_addf(out, "cove_pool_zygote{pool=\"%s\",state=\"%s\"} %d\n", live[i].name, pool_zygote_names[state],
                     live[i].zygote == state);
}

static void put_recycled(struct buf *out, const struct pool_info *live, size_t n)
{
    buf_adds(out, "# HELP cove_pool_recycle_total Sandboxes that were given back to a pool that recycles, by what came "
                  "of it.\n# TYPE cove_pool_recycle_total counter\n");
    for (size_t i = 0; i < n; i++)
        for (size_t why = 0; why < RECYCLE_COUNT; why++)
            if (why != RECYCLE_DISABLED) /* then it is not given back */
                buf_addf(out, "cove_pool_recycle_total{pool=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", live[i].name,
                         recycle_names[why], live[i].recycle[why]);
}

void warm_metrics(const struct warm *w, struct buf *out)
{
    struct pool_info *live = mem_new_array(struct pool_info, POOLS_MAX);
    size_t n = pools_list(w->api->set.pools, live, POOLS_MAX);

    for (const struct pool_figure *f = pool_figures; n > 0 && f < pool_figures + ARRAY_LEN(pool_figures); f++) {
        if (f->help)
            family(out, f);
        for (size_t i = 0; i < n; i++) {
            uint64_t v = figure_of(f, &live[i]);

            buf_addf(out, "cove_%s{pool=\"%s\"%s} ", f->name, live[i].name, f->labels);
            if (f->kind == SECONDS)
                buf_addf(out, "%" PRIu64 ".%09" PRIu64 "\n", v / (uint64_t)NS_PER_S, v % (uint64_t)NS_PER_S);
            else
                buf_addf(out, "%" PRIu64 "\n", v);
        }
    }
    if (n > 0) {
        zygote_metrics(out, live, n);
        put_recycled(out, live, n);
    }
    free(live);
}
