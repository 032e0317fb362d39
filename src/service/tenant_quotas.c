/* An entry is created for every name that is used and is never removed: there are as many as
 * tenants, and the executions of the last hour must not be forgotten with the last sandbox of a
 * tenant. */
#include "service/tenant_quotas.h"

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <string.h>

#define TENANT_QUOTA_BUCKETS 64u

struct tenant_quotas {
    struct ev *ev;
    struct store *store;
    struct tenant_quota *buckets[TENANT_QUOTA_BUCKETS];
    void (*on_suspended)(void *arg, const struct tenant_quota *q);
    void *arg;
    store_done_fn *on_loaded;
    void *on_loaded_arg;
};

struct tenant_quotas *tenant_quotas_new(struct ev *ev, struct store *store,
                                        void (*on_suspended)(void *arg, const struct tenant_quota *q), void *arg)
{
    struct tenant_quotas *t = mem_new(struct tenant_quotas);

    *t = (struct tenant_quotas){ .ev = ev, .store = store, .on_suspended = on_suspended, .arg = arg };
    return t;
}

void tenant_quotas_free(struct tenant_quotas *t)
{
    for (size_t i = 0; t && i < TENANT_QUOTA_BUCKETS; i++)
        while (t->buckets[i]) {
            struct tenant_quota *q = t->buckets[i];

            t->buckets[i] = q->next;
            free(q);
        }
    free(t);
}

struct tenant_quota *tenant_quotas_get(struct tenant_quotas *t, const char *tenant)
{
    struct tenant_quota **bucket = &t->buckets[hash_str(HASH_INIT, tenant) % TENANT_QUOTA_BUCKETS];

    for (struct tenant_quota *q = *bucket; q; q = q->next)
        if (str_eq(q->tenant, tenant))
            return q;
    struct tenant_quota *q = mem_new(struct tenant_quota);
    str_copy(q->tenant, sizeof(q->tenant), tenant);
    list_push(bucket, q);
    return q;
}

void tenant_quotas_set(struct tenant_quotas *t, const struct store_tenant *row)
{
    struct tenant_quota *q = tenant_quotas_get(t, row->name);

    memcpy(q->limit, row->quota, sizeof(q->limit));
    q->is_suspended = row->suspended_ms || row->removed_ms;
    if (q->is_suspended)
        t->on_suspended(t->arg, q);
}

/* --- at the start --- */

static void tenant_quotas_on_execution_ages(void *arg, const struct err *err, const struct store_age *rows, size_t n)
{
    struct tenant_quotas *t = arg;

    for (size_t i = 0; !err && i < n; i++)
        quota_add_past_executions(tenant_quotas_get(t, rows[i].owner), quota_now_ms(t->ev), rows[i].minutes, rows[i].n);
    t->on_loaded(t->on_loaded_arg, err);
}

static void tenant_quotas_load_page(struct tenant_quotas *t, const char *cursor);

static void tenant_quotas_on_page(void *arg, const struct err *err, const struct store_tenant *rows, size_t n,
                                  const char *next)
{
    struct tenant_quotas *t = arg;

    if (err) {
        t->on_loaded(t->on_loaded_arg, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        tenant_quotas_set(t, &rows[i]);
    if (next)
        tenant_quotas_load_page(t, next);
    else
        store_execution_ages(t->store, clock_real_ms(), tenant_quotas_on_execution_ages, t);
}

static void tenant_quotas_load_page(struct tenant_quotas *t, const char *cursor)
{
    store_tenant_list(t->store, &(struct store_list){ .cursor = cursor, .limit = STORE_LIST_MAX },
                      tenant_quotas_on_page, t);
}

void tenant_quotas_load(struct tenant_quotas *t, store_done_fn *done, void *arg)
{
    t->on_loaded = done;
    t->on_loaded_arg = arg;
    tenant_quotas_load_page(t, NULL);
}

void tenant_quotas_used(struct tenant_quotas *t, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT])
{
    struct tenant_quota *q = tenant_quotas_get(t, tenant);

    memcpy(ret, q->used, sizeof(q->used));
    ret[STORE_QUOTA_EXECUTIONS] = quota_executions_last_hour(q, quota_now_ms(t->ev));
}
