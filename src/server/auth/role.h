/* role.h - what a user may do: a named set of permissions, which have the names and bits of scopes.
 *
 * Three are built in; a tenant's own are lists in the store. Neither holds what is the operator's. */
#pragma once

#include "server/auth/scope.h"

/* Rights over the whole server, which no role gives. */
#define ROLE_OPERATOR_SCOPES (SCOPE_BIT(ADMIN) | SCOPE_BIT(METRICS) | SCOPE_BIT(POOLS_WRITE))

struct role_info {
    const char *name, *help;
    uint32_t permissions;
};
extern const struct role_info role_builtin[];
extern const size_t role_builtin_count;

const struct role_info *role_find(const char *name); /* a built-in one, or NULL */
/* own: permissions as a tenant keeps them, when the role is none of the built-in ones. What cannot be read is none. */
uint32_t role_permissions(const char *name, const char *own);
