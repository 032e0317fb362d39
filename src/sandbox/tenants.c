/* The shares of all tenants: read at the start, before anything that counts against them, and changed when they are.
 *
 * A share is made for any name that comes along and stays: there are as many as tenants, and what one has begun within
 * the hour must not be forgotten with its last sandbox. */
#include "sandbox/inside.h"

#include "base/mem.h"
#include "base/str.h"

#define HOUR_MS 3600000u

struct share *share_of(struct manager *m, const char *name)
{
    uint32_t h = 2166136261u;

    for (const char *p = name; *p; p++)
        h = (h ^ (uint8_t)*p) * 16777619u;
    struct share **bucket = &m->shares[h % SHARE_BUCKETS];
    for (struct share *s = *bucket; s; s = s->next)
        if (str_eq(s->name, name))
            return s;
    struct share *s = mem_new(struct share);
    str_copy(s->name, sizeof(s->name), name);
    s->next = *bucket;
    *bucket = s;
    return s;
}

void shares_free(struct manager *m)
{
    for (size_t i = 0; i < SHARE_BUCKETS; i++)
        while (m->shares[i]) {
            struct share *s = m->shares[i];

            m->shares[i] = s->next;
            free(s);
        }
}

/* The hour before the machine was started is one, too. */
uint64_t share_now(const struct manager *m)
{
    return mono_ms(m) + HOUR_MS;
}

void sb_amounts(const struct spec *spec, uint64_t ret[STORE_QUOTA_COUNT])
{
    const uint64_t *v = spec->limits.v;

    ret[STORE_QUOTA_SANDBOXES] = 1;
    ret[STORE_QUOTA_CPU] = v[LIMIT_CPU];
    ret[STORE_QUOTA_MEMORY] = v[LIMIT_MEMORY];
    ret[STORE_QUOTA_STORAGE] = v[LIMIT_WORKSPACE];
    ret[STORE_QUOTA_EXECUTIONS] = 0;
}

void sb_end_barred(struct sb *sb)
{
    struct err why;

    err_set(&why, ERR_TENANT_SUSPENDED, "its tenant, %s, was suspended or removed", sb->share->name);
    sb_end(sb, ENDED_KILLED, &why);
}

/* Those that are still to be adopted are ended when they are. */
static void end_all_of(struct manager *m, const struct share *s)
{
    struct err why;
    size_t n = 0;
    struct sb **all = mem_new_array(struct sb *, m->nsbs + 1);

    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
            if (sb->share == s && sb->state != SB_LOADED)
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* each may be gone when this returns, but only itself */
        sb_end_barred(all[i]);
    free(all);
    err_set(&why, ERR_TENANT_SUSPENDED, "the tenant %s was suspended or removed", s->name);
    guests_stop(m, s->name, ENDED_KILLED, &why);
    if (m->pools)
        pools_forget_owner(m->pools, s->name);
}

void manager_tenant(struct manager *m, const struct store_tenant *row)
{
    struct share *s = share_of(m, row->name);

    memcpy(s->quota, row->quota, sizeof(s->quota));
    s->barred = row->suspended_ms || row->removed_ms;
    if (s->barred)
        end_all_of(m, s);
}

bool manager_tenant_barred(struct manager *m, const char *tenant)
{
    return share_of(m, tenant)->barred;
}

const char *manager_owner(const struct manager *m, const char *sandbox)
{
    const struct sb *sb = sb_find(m, STORE_ANY_OWNER, sandbox);

    return sb ? sb->owner : NULL;
}

void manager_tenant_use(struct manager *m, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT])
{
    struct share *s = share_of(m, tenant);

    memcpy(ret, s->used, sizeof(s->used));
    ret[STORE_QUOTA_EXECUTIONS] = share_executions(s, share_now(m));
}

const struct share_refusal *manager_refusal(const struct manager *m)
{
    return &m->refusal;
}

/* --- at the start --- */

struct load {
    struct manager *m;
    void (*done)(struct manager *m);
    void (*failed)(struct manager *m, const struct err *err);
};

static void on_ages(void *arg, const struct err *err, const struct store_age *rows, size_t n)
{
    auto_free struct load *l = arg;

    if (err) {
        l->failed(l->m, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        share_note_executions(share_of(l->m, rows[i].owner), share_now(l->m), rows[i].minutes, rows[i].n);
    l->done(l->m);
}

static void load_page(struct load *l, const char *cursor);

static void on_tenants(void *arg, const struct err *err, const struct store_tenant *rows, size_t n, const char *next)
{
    struct load *l = arg;

    if (err) {
        l->failed(l->m, err);
        free(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        manager_tenant(l->m, &rows[i]);
    if (next)
        load_page(l, next);
    else
        store_execution_ages(l->m->store, now_ms(), on_ages, l);
}

static void load_page(struct load *l, const char *cursor)
{
    store_tenant_list(l->m->store, &(struct store_list){ .cursor = cursor, .limit = STORE_LIST_MAX }, on_tenants, l);
}

void tenants_load(struct manager *m, void (*done)(struct manager *m),
                  void (*failed)(struct manager *m, const struct err *err))
{
    struct load *l = mem_new(struct load);

    *l = (struct load){ m, done, failed };
    load_page(l, NULL);
}
