/* Tenants, users and roles as calls, and the layout of their rows. */
#include "store/tenants.h"

#include "core/base/str.h"
#include "store/requests.h"

const char *const store_builtin_roles[] = { "admin", "developer", "viewer", NULL };

#define COLUMN(s, member, kind, ...)                                                 \
    {                                                                                \
        .name = #member, .type = kind, .at = offsetof(struct s, member), __VA_ARGS__ \
    }
#define FIXED(s, member, ...) COLUMN(s, member, ROW_FIXED, .cap = sizeof(((struct s *)0)->member), __VA_ARGS__)
#define QUOTA(q, column)                                                                                      \
    {                                                                                                         \
        .name = column, .type = ROW_U64, .at = offsetof(struct store_tenant, quota) + (q) * sizeof(uint64_t), \
        .set = STORE_TENANT_SET_QUOTA(q)                                                                      \
    }
#define COLUMNS(c) .columns = (c), .n = ARRAY_LEN(c)

static const struct row_column tenant_columns[] = {
    FIXED(store_tenant, name),
    COLUMN(store_tenant, created_ms, ROW_U64),
    COLUMN(store_tenant, suspended_ms, ROW_U64, .set = STORE_TENANT_SET_SUSPENDED),
    COLUMN(store_tenant, removed_ms, ROW_U64, .set = STORE_TENANT_SET_REMOVED),
    QUOTA(STORE_QUOTA_SANDBOXES, "max_sandboxes"),
    QUOTA(STORE_QUOTA_CPU, "max_cpu_millis"),
    QUOTA(STORE_QUOTA_MEMORY, "max_memory_bytes"),
    QUOTA(STORE_QUOTA_STORAGE, "max_storage_bytes"),
    QUOTA(STORE_QUOTA_EXECUTIONS, "max_executions"),
};

static const struct row_column user_columns[] = {
    FIXED(store_user, id),
    FIXED(store_user, owner),
    FIXED(store_user, name, .set = STORE_USER_SET_NAME),
    FIXED(store_user, role, .set = STORE_USER_SET_ROLE),
    COLUMN(store_user, disabled, ROW_BOOL, .set = STORE_USER_SET_DISABLED),
    COLUMN(store_user, created_ms, ROW_U64),
};

static const struct row_column role_columns[] = {
    FIXED(store_role, owner),
    FIXED(store_role, name),
    COLUMN(store_role, permissions, ROW_TEXT),
    COLUMN(store_role, created_ms, ROW_U64),
};

static const struct row_column age_columns[] = {
    FIXED(store_age, owner),
    COLUMN(store_age, minutes, ROW_U64),
    COLUMN(store_age, n, ROW_U64),
};

#define KEY(member, kind, ...)                                                                     \
    {                                                                                              \
        .name = #member, .type = kind, .at = offsetof(struct store_login, key.member), __VA_ARGS__ \
    }
#define KEY_FIXED(member) KEY(member, ROW_FIXED, .cap = sizeof(((struct store_login *)0)->key.member))

/* Composed by tenant_rules.c of the rows of a key, its user, role and tenant; not a table. */
static const struct row_column login_columns[] = {
    KEY_FIXED(id),
    KEY_FIXED(owner),
    KEY_FIXED(user),
    KEY(name, ROW_TEXT),
    KEY_FIXED(prefix),
    KEY(hash, ROW_HASH),
    KEY(scopes, ROW_TEXT),
    KEY(created_ms, ROW_U64),
    KEY(expires_ms, ROW_U64),
    KEY(last_used_ms, ROW_U64),
    KEY(revoked_ms, ROW_U64),
    FIXED(store_login, role),
    COLUMN(store_login, permissions, ROW_TEXT),
    COLUMN(store_login, disabled, ROW_BOOL),
    COLUMN(store_login, suspended_ms, ROW_U64),
    COLUMN(store_login, member, ROW_BOOL),
};

const struct row_table row_tenant = { .name = "tenants",
                                      .display_name = "tenant",
                                      .size = sizeof(struct store_tenant),
                                      .key = "name",
                                      .by_name = true,
                                      COLUMNS(tenant_columns) };
const struct row_table row_user = { .name = "users",
                                    .display_name = "user",
                                    .size = sizeof(struct store_user),
                                    .key = "id",
                                    .owned = true,
                                    COLUMNS(user_columns) };
const struct row_table row_role = { .name = "roles",
                                    .display_name = "role",
                                    .size = sizeof(struct store_role),
                                    .key = "name",
                                    .primary_key = "owner, name",
                                    .owned = true,
                                    .by_name = true,
                                    COLUMNS(role_columns) };
const struct row_table row_age = { .name = "executions",
                                   .display_name = "count",
                                   .size = sizeof(struct store_age),
                                   .key = "owner",
                                   COLUMNS(age_columns) };
const struct row_table row_login = {
    .name = "keys", .display_name = "key", .size = sizeof(struct store_login), .key = "id", COLUMNS(login_columns)
};

/* --- tenants --- */

static void store_tenant_reject(struct store_request *c, const char *why)
{
    struct err err = { 0 };

    err_set(&err, ERR_INVALID, "%s", why);
    store_request_reject(c, &err);
}

struct store_request *store_tenant_insert(struct store *st, const struct store_tenant *row, store_done_fn *done,
                                          void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_INSERT, &row_tenant, row, ANY(done), arg);

    if (!c->rejected && !store_owner_valid(row->name))
        store_tenant_reject(c, "name: only letters, digits, '-', '_' and '.' are allowed");
    return store_request_submit(st, c);
}

struct store_request *store_tenant_get(struct store *st, const char *name, store_tenant_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_tenant, NULL, name, ANY(done), arg));
}

struct store_request *store_tenant_update(struct store *st, const struct store_tenant *row, uint32_t set,
                                          store_tenant_fn *done, void *arg)
{
    return store_request_submit(st, store_update_request(&row_tenant, STORE_ANY_OWNER, row, set, NULL, ANY(done), arg));
}

struct store_request *store_tenant_list(struct store *st, const struct store_list *q, store_tenants_fn *done, void *arg)
{
    const struct store_list by_name = { .cursor = q->cursor, .limit = q->limit, .oldest_first = true };

    return store_list_request(st, &row_tenant, &by_name, NULL, ANY(done), arg);
}

struct store_request *store_tenant_remove(struct store *st, const char *name, uint64_t at_ms, store_done_fn *done,
                                          void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_REMOVE, &row_tenant, NULL, name, ANY(done), arg);

    c->now_ms = at_ms ? at_ms : 1;
    return store_request_submit(st, c);
}

/* --- users --- */

struct store_request *store_user_insert(struct store *st, const struct store_user *row, store_done_fn *done, void *arg)
{
    return store_request_submit(st, store_row_request(STORE_OP_INSERT, &row_user, row, ANY(done), arg));
}

struct store_request *store_user_insert_from_provider(struct store *st, const struct store_user *row,
                                                      store_done_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_INSERT, &row_user, row, ANY(done), arg);

    c->from_identity_provider = true;
    return store_request_submit(st, c);
}

struct store_request *store_user_get(struct store *st, const char *owner, const char *id, store_user_fn *done,
                                     void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_user, owner, id, ANY(done), arg));
}

struct store_request *store_user_update(struct store *st, const char *owner, const struct store_user *row, uint32_t set,
                                        bool keep_admin, store_user_fn *done, void *arg)
{
    struct store_request *c = store_update_request(&row_user, owner, row, set, NULL, ANY(done), arg);

    c->keep_admin = keep_admin;
    return store_request_submit(st, c);
}

struct store_request *store_user_list(struct store *st, const struct store_list *q, store_users_fn *done, void *arg)
{
    return store_list_request(st, &row_user, q, "us", ANY(done), arg);
}

struct store_request *store_user_remove(struct store *st, const char *owner, const char *id, uint64_t at_ms,
                                        bool keep_admin, store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_REMOVE, &row_user, owner, id, ANY(done), arg);

    c->keep_admin = keep_admin;
    c->now_ms = at_ms ? at_ms : 1;
    return store_request_submit(st, c);
}

/* --- roles --- */

struct store_request *store_role_insert(struct store *st, const struct store_role *row, store_done_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_INSERT, &row_role, row, ANY(done), arg);

    for (size_t i = 0; store_builtin_roles[i] && !c->rejected; i++)
        if (str_eq(row->name, store_builtin_roles[i])) {
            struct err err = { 0 };

            err_set(&err, ERR_EXISTS, "role %s: built in; choose another name", row->name);
            store_request_reject(c, &err);
        }
    if (!c->rejected && !store_owner_valid(row->name))
        store_tenant_reject(c, "name: only letters, digits, '-', '_' and '.' are allowed");
    return store_request_submit(st, c);
}

struct store_request *store_role_get(struct store *st, const char *owner, const char *name, store_role_fn *done,
                                     void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_role, owner, name, ANY(done), arg));
}

struct store_request *store_role_list(struct store *st, const struct store_list *q, store_roles_fn *done, void *arg)
{
    const struct store_list by_name = {
        .owner = q->owner, .cursor = q->cursor, .limit = q->limit, .oldest_first = true
    };

    return store_list_request(st, &row_role, &by_name, NULL, ANY(done), arg);
}

struct store_request *store_role_remove(struct store *st, const char *owner, const char *name, store_done_fn *done,
                                        void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_REMOVE, &row_role, owner, name, ANY(done), arg));
}

/* --- counts --- */

struct store_request *store_execution_ages(struct store *st, uint64_t now_ms, store_ages_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_EXECUTION_AGES, &row_age, ANY(done), arg);

    c->now_ms = min_u64(now_ms, INT64_MAX);
    return store_request_submit(st, c);
}

/* --- login --- */

struct store_request *store_login_by_hash(struct store *st, const uint8_t hash[STORE_HASH_LEN], store_login_fn *done,
                                          void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_LOGIN, &row_login, ANY(done), arg);

    memcpy(c->hash, hash, STORE_HASH_LEN);
    return store_request_submit(st, c);
}

struct store_request *store_login_by_name(struct store *st, const char *tenant, const char *user, store_login_fn *done,
                                          void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_LOGIN, &row_login, tenant, user, ANY(done), arg));
}
