/* tenant_users.h - changes of the users and roles of a tenant.
 *
 * Rule: a principal cannot grant or revoke permissions that it does not have. A user gets a role,
 * and a role its permissions, only from a principal with all of these permissions; a user with more
 * permissions than `by` cannot be changed or removed by it. Only the operator can remove the last
 * admin of a tenant. A change takes effect with the next request, regardless of caches.
 *
 * done is called once, possibly before the call returns. */
#pragma once

#include "server/auth/auth.h"

/* Returns the tenant of a request: `by`'s own, or the named one, which only the operator may name.
 * The error for others does not depend on whether the tenant exists. */
int auth_resolve_tenant(const struct principal *by, const char *named, const char **ret, struct err *err);

/* Sets id and created_ms itself. */
void auth_user_create(struct auth *a, const struct principal *by, const struct store_user *row, store_user_fn *done,
                      void *arg);
/* Sets the columns `set` (STORE_USER_SET_...) of the user row->id. */
void auth_user_set(struct auth *a, const struct principal *by, const struct store_user *row, uint32_t set,
                   store_user_fn *done, void *arg);
void auth_user_remove(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_done_fn *done,
                      void *arg);

void auth_role_create(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      uint32_t permissions, uint64_t now_ms, store_role_fn *done, void *arg);
void auth_role_remove(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      store_done_fn *done, void *arg);

/* For the operator; the caller has checked the permission. */
void auth_tenant_set(struct auth *a, const struct store_tenant *row, uint32_t set, store_tenant_fn *done, void *arg);
void auth_tenant_remove(struct auth *a, const char *name, uint64_t now_ms, store_done_fn *done, void *arg);
