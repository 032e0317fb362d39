/* A new scope in scopes.def needs a decision here: `admin` includes it unless it is the operator's,
 * the other roles only if it is listed. */
#include "server/auth/role.h"

#include "core/base/str.h"

#define READING (SCOPE_BIT(SANDBOXES_READ) | SCOPE_BIT(EXECUTIONS_READ) | SCOPE_BIT(FILES_READ) | SCOPE_BIT(USAGE))

const struct role_info role_builtin[] = {
    { "admin", "Everything in the tenant.", SCOPE_ALL & ~ROLE_OPERATOR_SCOPES },
    { "developer", "Everything except users, roles and the keys of others.",
      READING | SCOPE_BIT(SANDBOXES_WRITE) | SCOPE_BIT(EXECUTIONS) | SCOPE_BIT(FILES) | SCOPE_BIT(KEYS) |
          SCOPE_BIT(AUDIT) | SCOPE_BIT(SECRETS) },
    { "viewer", "Read-only access.", READING },
};
const size_t role_builtin_count = ARRAY_LEN(role_builtin);

const struct role_info *role_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(role_builtin); i++)
        if (str_eq(role_builtin[i].name, name))
            return &role_builtin[i];
    return NULL;
}

uint32_t role_permissions(const char *name, const char *own)
{
    const struct role_info *r = role_find(name);
    uint32_t set = 0;

    if (r)
        return r->permissions;
    return own && scope_parse_list(own, &set, NULL) == 0 ? set & ~ROLE_OPERATOR_SCOPES : 0;
}
