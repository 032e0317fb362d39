/* role.h - roles: named sets of permissions, which have the names and bits of scopes.
 *
 * Three roles are built in; a tenant's own roles are lists in the store. Neither contains the
 * operator's permissions. */
#pragma once

#include "server/auth/scope.h"

/* Permissions over the whole server, which no role grants. */
#define ROLE_OPERATOR_SCOPES (SCOPE_BIT(ADMIN) | SCOPE_BIT(METRICS) | SCOPE_BIT(POOLS_WRITE))

struct role_info {
    const char *name, *help;
    uint32_t permissions;
};
extern const struct role_info role_builtin[];
extern const size_t role_builtin_count;

const struct role_info *role_find(const char *name); /* a built-in role, or NULL */
/* own: permissions as the store keeps them, if the role is not built in. A list that cannot be
 * parsed grants nothing. */
uint32_t role_permissions(const char *name, const char *own);
