/* tenant_quotas.h - the quotas of all tenants: read at the start, before anything that counts
 * against them, and updated when they change. */
#pragma once

#include "core/ev/ev.h"
#include "service/quota.h"

struct tenant_quotas;

/* on_suspended: the tenant is suspended or removed, so everything that it runs must end. */
struct tenant_quotas *tenant_quotas_new(struct ev *ev, struct store *store,
                                        void (*on_suspended)(void *arg, const struct tenant_quota *q), void *arg);
void tenant_quotas_free(struct tenant_quotas *t);
DEFINE_AUTO(tenant_quotas, tenant_quotas_free);

/* The entry of a tenant, created on first use; it lives as long as the table. A tenant without a
 * row has no limits. */
struct tenant_quota *tenant_quotas_get(struct tenant_quotas *t, const char *tenant);
/* Applies the quotas and the state of a tenant from now on. A suspended or removed tenant starts
 * nothing new, and on_suspended follows. */
void tenant_quotas_set(struct tenant_quotas *t, const struct store_tenant *row);
void tenant_quotas_used(struct tenant_quotas *t, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT]);
/* Reads all tenants and the executions of the last hour; then calls `done`, with the error if that
 * failed. One call at a time. */
void tenant_quotas_load(struct tenant_quotas *t, store_done_fn *done, void *arg);
