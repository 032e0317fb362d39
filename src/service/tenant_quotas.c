/* The quotas of all tenants: read at the start, before anything that counts against them, and
 * updated when they change.
 *
 * An entry is created for every name that is used and is never removed: there are as many as
 * tenants, and the executions of the last hour must not be forgotten with the last sandbox of a
 * tenant. */
#include "service/service_internal.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define HOUR_MS 3600000u

struct tenant_quota *tenant_quota_get(struct manager *m, const char *name)
{
    struct tenant_quota **bucket = &m->quotas[hash_str(HASH_INIT, name) % TENANT_QUOTA_BUCKETS];

    for (struct tenant_quota *s = *bucket; s; s = s->next)
        if (str_eq(s->tenant, name))
            return s;
    struct tenant_quota *s = mem_new(struct tenant_quota);
    str_copy(s->tenant, sizeof(s->tenant), name);
    list_push(bucket, s);
    return s;
}

void tenant_quotas_free(struct manager *m)
{
    for (size_t i = 0; i < TENANT_QUOTA_BUCKETS; i++)
        while (m->quotas[i]) {
            struct tenant_quota *s = m->quotas[i];

            m->quotas[i] = s->next;
            free(s);
        }
}

/* One hour is added, so that the clock is past its first hour even right after boot. */
uint64_t quota_now_ms(const struct manager *m)
{
    return manager_mono_ms(m) + HOUR_MS;
}

void quota_amounts_for_spec(const struct spec *spec, uint64_t ret[STORE_QUOTA_COUNT])
{
    const uint64_t *v = spec->limits.v;

    ret[STORE_QUOTA_SANDBOXES] = 1;
    ret[STORE_QUOTA_CPU] = v[LIMIT_CPU];
    ret[STORE_QUOTA_MEMORY] = v[LIMIT_MEMORY];
    ret[STORE_QUOTA_STORAGE] = v[LIMIT_WORKSPACE];
    ret[STORE_QUOTA_EXECUTIONS] = 0;
}

void sandbox_end_suspended(struct sandbox *sb)
{
    struct err why;

    err_set(&why, ERR_TENANT_SUSPENDED, "its tenant, %s, was suspended or removed", sb->quota->tenant);
    sandbox_end(sb, ENDED_KILLED, &why);
}

/* Sandboxes that are still to be adopted are ended at their adoption. */
static void tenant_end_all_sandboxes(struct manager *m, const struct tenant_quota *s)
{
    struct err why;
    size_t n = 0;
    struct sandbox **all = mem_new_array(struct sandbox *, m->nsandboxes + 1);

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == s && sb->state != SANDBOX_STATE_LOADED)
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        sandbox_end_suspended(all[i]);
    free(all);
    err_set(&why, ERR_TENANT_SUSPENDED, "the tenant %s was suspended or removed", s->tenant);
    ephemeral_sandboxes_stop(m, s->tenant, ENDED_KILLED, &why);
    if (m->pools)
        pools_drop_owner(m->pools, s->tenant);
}

void manager_set_tenant(struct manager *m, const struct store_tenant *row)
{
    struct tenant_quota *s = tenant_quota_get(m, row->name);

    memcpy(s->limit, row->quota, sizeof(s->limit));
    s->is_suspended = row->suspended_ms || row->removed_ms;
    if (s->is_suspended)
        tenant_end_all_sandboxes(m, s);
}

bool manager_tenant_is_suspended(struct manager *m, const char *tenant)
{
    return tenant_quota_get(m, tenant)->is_suspended;
}

const char *manager_sandbox_owner(const struct manager *m, const char *sandbox)
{
    const struct sandbox *sb = sandbox_find(m, STORE_ANY_OWNER, sandbox);

    return sb ? sb->owner : NULL;
}

void manager_tenant_quota_used(struct manager *m, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT])
{
    struct tenant_quota *s = tenant_quota_get(m, tenant);

    memcpy(ret, s->used, sizeof(s->used));
    ret[STORE_QUOTA_EXECUTIONS] = quota_executions_last_hour(s, quota_now_ms(m));
}

/* --- at the start --- */

struct tenant_quotas_load_job {
    struct manager *manager;
    void (*done)(struct manager *m);
    void (*on_failed)(struct manager *m, const struct err *err);
};

static void tenant_quotas_on_execution_ages(void *arg, const struct err *err, const struct store_age *rows, size_t n)
{
    auto_free struct tenant_quotas_load_job *l = arg;

    if (err) {
        l->on_failed(l->manager, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        quota_add_past_executions(tenant_quota_get(l->manager, rows[i].owner), quota_now_ms(l->manager),
                                  rows[i].minutes, rows[i].n);
    l->done(l->manager);
}

static void tenant_quotas_load_page(struct tenant_quotas_load_job *l, const char *cursor);

static void tenant_quotas_on_page(void *arg, const struct err *err, const struct store_tenant *rows, size_t n,
                                  const char *next)
{
    struct tenant_quotas_load_job *l = arg;

    if (err) {
        l->on_failed(l->manager, err);
        free(l);
        return;
    }
    for (size_t i = 0; i < n; i++)
        manager_set_tenant(l->manager, &rows[i]);
    if (next)
        tenant_quotas_load_page(l, next);
    else
        store_execution_ages(l->manager->store, clock_real_ms(), tenant_quotas_on_execution_ages, l);
}

static void tenant_quotas_load_page(struct tenant_quotas_load_job *l, const char *cursor)
{
    store_tenant_list(l->manager->store, &(struct store_list){ .cursor = cursor, .limit = STORE_LIST_MAX },
                      tenant_quotas_on_page, l);
}

void tenant_quotas_load(struct manager *m, void (*done)(struct manager *m),
                        void (*failed)(struct manager *m, const struct err *err))
{
    struct tenant_quotas_load_job *l = mem_new(struct tenant_quotas_load_job);

    *l = (struct tenant_quotas_load_job){ m, done, failed };
    tenant_quotas_load_page(l, NULL);
}
