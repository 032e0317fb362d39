/* A change has these steps: read the user, read the permissions of the old role, read those of the
 * new role, then write to the store, which checks for the last admin in the same transaction. Roles
 * never change, so their permissions remain valid after they are read; a role that is removed
 * meanwhile is refused by the store. */
#include "server/auth/tenant_users.h"

#include "server/auth/auth_internal.h"
#include "server/auth/role.h"
#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"

struct tenant_user_op {
    struct auth_op op;
    struct principal by;
    struct store_user user; /* the new row */
    struct store_role role; /* permissions are on the heap */
    struct store_tenant tenant;
    uint32_t set;
    uint64_t now_ms;
    void (*on_permissions)(struct tenant_user_op *m, uint32_t permissions);
    store_user_fn *done_user;
    store_role_fn *done_role;
    store_tenant_fn *done_tenant;
    store_done_fn *done;
    void *arg;
};

static void tenant_user_op_free(struct auth_op *op)
{
    struct tenant_user_op *m = container_of(op, struct tenant_user_op, op);

    free(m->role.permissions);
    free(m);
}

static struct tenant_user_op *tenant_user_op_new(struct auth *a, const struct principal *by, void *arg)
{
    struct tenant_user_op *m = mem_new(struct tenant_user_op);

    auth_op_begin(a, &m->op, tenant_user_op_free);
    if (by)
        m->by = *by;
    m->arg = arg;
    return m;
}

static void tenant_user_op_finish(struct tenant_user_op *m, const struct err *err)
{
    if (m->done_user)
        m->done_user(m->arg, err, err ? NULL : &m->user);
    else if (m->done_role)
        m->done_role(m->arg, err, err ? NULL : &m->role);
    else if (m->done_tenant)
        m->done_tenant(m->arg, err, err ? NULL : &m->tenant);
    else
        m->done(m->arg, err);
    auth_op_end(&m->op);
}

int auth_resolve_tenant(const struct principal *by, const char *named, const char **ret, struct err *err)
{
    if (named && !str_eq(named, by->owner) && !principal_has_scopes(by, SCOPE_BIT(ADMIN)))
        return err_set(err, ERR_DENIED, "tenant: only the operator of the server may name another tenant");
    if (named && !store_owner_valid(named))
        return err_set(err, ERR_MISSING, "there is no such tenant");
    *ret = named ? named : by->owner;
    return 0;
}

static bool principal_is_operator(const struct principal *by)
{
    return principal_has_scopes(by, SCOPE_BIT(ADMIN));
}

static const char *tenant_user_visible_owner(const struct principal *by)
{
    return principal_is_operator(by) ? STORE_ANY_OWNER : by->owner;
}

static int tenant_user_check_rights(const struct principal *by, uint32_t permissions, const char *verb, struct err *err)
{
    uint32_t more = permissions & ~by->scopes;

    if (principal_require(by, SCOPE_BIT(TENANT), err) < 0)
        return -1;
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (more & (1u << i))
            return err_set(err, ERR_DENIED, "you cannot %s the permission %s, which you do not have", verb,
                           scope_name(i));
    return 0;
}

/* --- permissions of a role --- */

static void tenant_user_on_role(void *arg, const struct err *err, const struct store_role *row)
{
    struct tenant_user_op *m = arg;

    m->op.call = NULL;
    if (err && err->id == ERR_MISSING)
        m->on_permissions(m, 0); /* the store refuses a role that does not exist */
    else if (err)
        tenant_user_op_finish(m, err);
    else
        m->on_permissions(m, role_permissions(row->name, row->permissions));
}

static void tenant_user_resolve_role(struct tenant_user_op *m, const char *owner, const char *role,
                                     void (*next)(struct tenant_user_op *m, uint32_t permissions))
{
    const struct role_info *r = role_find(role);

    m->on_permissions = next;
    if (r)
        next(m, r->permissions);
    else
        m->op.call = store_role_get(m->op.auth->store, owner, role, tenant_user_on_role, m);
}

/* Open streams are ended by the id of the user or tenant, because the list of affected keys in the
 * cache may be incomplete. */
static void tenant_user_end_open_streams(const struct auth *a, const char *id)
{
    if (a->on_revoked)
        a->on_revoked(a->arg, id);
}

/* Ends open requests of the user; later requests query the store again. */
static void tenant_user_drop_cached(struct auth *a, const char *user)
{
    keycache_mark_user_stale(a->cache, user);
    tenant_user_end_open_streams(a, user);
}

/* --- users --- */

static void tenant_user_on_created(void *arg, const struct err *err)
{
    tenant_user_op_finish(arg, err);
}

static void tenant_user_insert(struct tenant_user_op *m, uint32_t permissions)
{
    struct err err = { 0 };

    if (tenant_user_check_rights(&m->by, permissions, "give", &err) < 0)
        tenant_user_op_finish(m, &err);
    else
        m->op.call = store_user_insert(m->op.auth->store, &m->user, tenant_user_on_created, m);
}

void auth_user_create(struct auth *a, const struct principal *by, const struct store_user *row, store_user_fn *done,
                      void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, by, arg);

    m->done_user = done;
    m->user = *row;
    id_new("us", m->user.id);
    tenant_user_resolve_role(m, m->user.owner, m->user.role, tenant_user_insert);
}

static void tenant_user_on_updated(void *arg, const struct err *err, const struct store_user *row)
{
    struct tenant_user_op *m = arg;

    if (!err) {
        m->user = *row;
        tenant_user_drop_cached(m->op.auth, row->id);
    }
    tenant_user_op_finish(m, err);
}

static void tenant_user_update(struct tenant_user_op *m, uint32_t permissions)
{
    struct err err = { 0 };

    if (tenant_user_check_rights(&m->by, permissions, "give", &err) < 0)
        tenant_user_op_finish(m, &err);
    else
        m->op.call = store_user_update(m->op.auth->store, m->user.owner, &m->user, m->set,
                                       !principal_is_operator(&m->by), tenant_user_on_updated, m);
}

static void tenant_user_check_old_role(struct tenant_user_op *m, uint32_t permissions)
{
    struct err err = { 0 };

    if (tenant_user_check_rights(&m->by, permissions, "take away", &err) < 0)
        tenant_user_op_finish(m, &err);
    else if (m->set & STORE_USER_SET_ROLE)
        tenant_user_resolve_role(m, m->user.owner, m->user.role, tenant_user_update);
    else
        tenant_user_update(m, 0);
}

static void tenant_user_on_update_row(void *arg, const struct err *err, const struct store_user *row)
{
    struct tenant_user_op *m = arg;

    if (err) {
        tenant_user_op_finish(m, err);
        return;
    }
    str_copy(m->user.owner, sizeof(m->user.owner), row->owner);
    tenant_user_resolve_role(m, row->owner, row->role, tenant_user_check_old_role);
}

void auth_user_set(struct auth *a, const struct principal *by, const struct store_user *row, uint32_t set,
                   store_user_fn *done, void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, by, arg);

    m->done_user = done;
    m->user = *row;
    m->set = set;
    m->op.call = store_user_get(a->store, tenant_user_visible_owner(by), row->id, tenant_user_on_update_row, m);
}

static void tenant_user_on_removed(void *arg, const struct err *err)
{
    struct tenant_user_op *m = arg;

    if (!err)
        tenant_user_drop_cached(m->op.auth, m->user.id);
    tenant_user_op_finish(m, err);
}

static void tenant_user_remove(struct tenant_user_op *m, uint32_t permissions)
{
    struct err err = { 0 };

    if (tenant_user_check_rights(&m->by, permissions, "take away", &err) < 0)
        tenant_user_op_finish(m, &err);
    else
        m->op.call = store_user_remove(m->op.auth->store, m->user.owner, m->user.id, m->now_ms,
                                       !principal_is_operator(&m->by), tenant_user_on_removed, m);
}

static void tenant_user_on_remove_row(void *arg, const struct err *err, const struct store_user *row)
{
    struct tenant_user_op *m = arg;

    if (err) {
        tenant_user_op_finish(m, err);
        return;
    }
    m->user = *row;
    tenant_user_resolve_role(m, row->owner, row->role, tenant_user_remove);
}

void auth_user_remove(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_done_fn *done,
                      void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, by, arg);

    m->done = done;
    m->now_ms = now_ms;
    m->op.call = store_user_get(a->store, tenant_user_visible_owner(by), id, tenant_user_on_remove_row, m);
}

/* --- roles --- */

void auth_role_create(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      uint32_t permissions, uint64_t now_ms, store_role_fn *done, void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, by, arg);
    struct buf list = { 0 };
    struct err err = { 0 };

    m->done_role = done;
    str_copy(m->role.owner, sizeof(m->role.owner), tenant);
    str_copy(m->role.name, sizeof(m->role.name), name);
    scope_write_list(permissions, &list);
    m->role.permissions = list.data;
    m->role.created_ms = now_ms;
    if (tenant_user_check_rights(by, permissions, "give", &err) < 0)
        tenant_user_op_finish(m, &err);
    else if (permissions == 0 || (permissions & ROLE_OPERATOR_SCOPES))
        tenant_user_op_finish(
            m, (err_set(&err, ERR_INVALID,
                        "a role must have at least one permission, and none that is reserved for the operator"),
                &err));
    else
        m->op.call = store_role_insert(a->store, &m->role, tenant_user_on_created, m);
}

static void tenant_role_remove(struct tenant_user_op *m, uint32_t permissions)
{
    struct err err = { 0 };

    if (tenant_user_check_rights(&m->by, permissions, "take away", &err) < 0)
        tenant_user_op_finish(m, &err);
    else
        m->op.call = store_role_remove(m->op.auth->store, m->role.owner, m->role.name, tenant_user_on_created, m);
}

void auth_role_remove(struct auth *a, const struct principal *by, const char *tenant, const char *name,
                      store_done_fn *done, void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, by, arg);
    struct err err = { 0 };

    m->done = done;
    str_copy(m->role.owner, sizeof(m->role.owner), tenant);
    str_copy(m->role.name, sizeof(m->role.name), name);
    if (role_find(name))
        err_set(&err, ERR_DENIED, "the role %s is built in and cannot be removed", name);
    if (err.id || tenant_user_check_rights(by, 0, "take away", &err) < 0)
        tenant_user_op_finish(m, &err);
    else
        tenant_user_resolve_role(m, m->role.owner, m->role.name, tenant_role_remove);
}

/* --- tenants --- */

static void tenant_on_updated(void *arg, const struct err *err, const struct store_tenant *row)
{
    struct tenant_user_op *m = arg;

    if (!err) {
        m->tenant = *row;
        keycache_mark_owner_stale(m->op.auth->cache, row->name);
        if (row->suspended_ms)
            tenant_user_end_open_streams(m->op.auth, row->name);
    }
    tenant_user_op_finish(m, err);
}

void auth_tenant_set(struct auth *a, const struct store_tenant *row, uint32_t set, store_tenant_fn *done, void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, NULL, arg);

    m->done_tenant = done;
    m->op.call = store_tenant_update(a->store, row, set, tenant_on_updated, m);
}

static void tenant_on_removed(void *arg, const struct err *err)
{
    struct tenant_user_op *m = arg;

    if (!err) {
        keycache_mark_owner_stale(m->op.auth->cache, m->tenant.name);
        tenant_user_end_open_streams(m->op.auth, m->tenant.name);
    }
    tenant_user_op_finish(m, err);
}

void auth_tenant_remove(struct auth *a, const char *name, uint64_t now_ms, store_done_fn *done, void *arg)
{
    struct tenant_user_op *m = tenant_user_op_new(a, NULL, arg);

    m->done = done;
    str_copy(m->tenant.name, sizeof(m->tenant.name), name);
    m->op.call = store_tenant_remove(a->store, name, now_ms, tenant_on_removed, m);
}
