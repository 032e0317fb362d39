/* tenant_users.h - who belongs to a tenant: its users and roles, changed by those who may.
 *
 * Rule: nobody gives or takes what they do not have themselves. A user gets a role, and a role permissions, only from
 * somebody who may do all of it; and one who may do more than `by` is not theirs to change or to remove. The last admin
 * of a tenant goes only by the hand of the operator. A change holds from the next request on, whatever was remembered.
 *
 * done comes once, possibly before the call returns. */
#pragma once

#include "server/auth/auth.h"

/* Which tenant a request is about: `by`'s own, or the one that is named, which is the operator's right alone. The
 * answer to others does not depend on what there is. */
int auth_resolve_tenant(const struct principal *by, const char *named, const char **ret, struct err *err);

void auth_user_create(struct auth *a, const struct principal *by, const struct store_user *row, store_user_fn *done,
                      void *arg); /* id and created_ms are made here */
/* Sets the columns `set` (STORE_USER_SET_...) of the user row->id. */
void auth_user_set(struct auth *a, const struct principal *by, const struct store_user *row, uint32_t set,
                   store_user_fn *done, void *arg);
void auth_user_remove(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_done_fn *done,
                      void *arg);

void auth_role_create(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      uint32_t permissions, uint64_t now_ms, store_role_fn *done, void *arg);
void auth_role_remove(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      store_done_fn *done, void *arg);

/* For the operator, whose right was asked for before. */
void auth_tenant_set(struct auth *a, const struct store_tenant *row, uint32_t set, store_tenant_fn *done, void *arg);
void auth_tenant_remove(struct auth *a, const char *name, uint64_t now_ms, store_done_fn *done, void *arg);
