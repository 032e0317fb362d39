/* tenants.h - tenants, their users, and roles. Calls and rows follow the rules of store.h.
 *
 * The `owner` of every row names a tenant; nothing crosses the border between tenants. The name
 * of a removed tenant is never reused, since its tombstones and output are still stored under
 * it. A user belongs to one tenant and has one role in it: a built-in role, or a role of the
 * tenant's own, which is a list of permissions. */
#pragma once

#include "store/store.h"

#define STORE_LOCAL_TENANT "local" /* exists from the first start and cannot be removed */

/* Quotas: totals over live sandboxes, and executions started within an hour. 0: no limit. */
enum store_quota {
    STORE_QUOTA_SANDBOXES,
    STORE_QUOTA_CPU,     /* thousandths of a CPU */
    STORE_QUOTA_MEMORY,  /* bytes */
    STORE_QUOTA_STORAGE, /* bytes */
    STORE_QUOTA_EXECUTIONS,
    STORE_QUOTA_COUNT,
};

struct store_tenant {
    char name[STORE_NAME_MAX + 1];
    uint64_t created_ms;
    uint64_t suspended_ms; /* 0: not suspended */
    uint64_t removed_ms;   /* 0: not removed; no operation is possible on a removed tenant */
    uint64_t quota[STORE_QUOTA_COUNT];
};

#define STORE_TENANT_SET_SUSPENDED (1u << 0)
#define STORE_TENANT_SET_QUOTA(q) (1u << (1u + (unsigned)(q)))
#define STORE_TENANT_SET_REMOVED (1u << 6) /* only store_tenant_remove() sets it */
#define STORE_TENANT_SET_QUOTAS (((1u << STORE_QUOTA_COUNT) - 1u) << 1)

typedef void store_tenant_fn(void *arg, const struct err *err, const struct store_tenant *row);
typedef void store_tenants_fn(void *arg, const struct err *err, const struct store_tenant *rows, size_t n,
                              const char *next);

/* Removed tenants are returned too; the caller checks removed_ms. */
struct store_request *store_tenant_insert(struct store *st, const struct store_tenant *row, store_done_fn *done,
                                          void *arg);
struct store_request *store_tenant_get(struct store *st, const char *name, store_tenant_fn *done, void *arg);
struct store_request *store_tenant_update(struct store *st, const struct store_tenant *row, uint32_t set,
                                          store_tenant_fn *done, void *arg);
/* Ordered by name; only cursor and limit of q are used. */
struct store_request *store_tenant_list(struct store *st, const struct store_list *q, store_tenants_fn *done,
                                        void *arg);
/* Revokes its keys and removes its users and roles. The name is never free again. */
struct store_request *store_tenant_remove(struct store *st, const char *name, uint64_t at_ms, store_done_fn *done,
                                          void *arg);

/* --- users --- */

extern const char *const store_builtin_roles[]; /* "admin" first; NULL-terminated */

struct store_user {
    char id[ID_SIZE]; /* us... */
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1]; /* unique in the tenant */
    char role[STORE_NAME_MAX + 1];
    bool disabled;
    uint64_t created_ms;
};

#define STORE_USER_SET_NAME (1u << 0)
#define STORE_USER_SET_ROLE (1u << 1)
#define STORE_USER_SET_DISABLED (1u << 2)

typedef void store_user_fn(void *arg, const struct err *err, const struct store_user *row);
typedef void store_users_fn(void *arg, const struct err *err, const struct store_user *rows, size_t n,
                            const char *next);

/* ERR_MISSING: the tenant or the role does not exist. keep_admin: ERR_LAST_ADMIN when no enabled
 * user with the role admin would be left; checked in the transaction of the change, so two
 * admins cannot remove each other. */
struct store_request *store_user_insert(struct store *st, const struct store_user *row, store_done_fn *done, void *arg);
/* Like store_user_insert, for a user that an identity provider vouches for and no admin added:
 * ERR_USER_REMOVED when a user of that name was removed, and not inserted by store_user_insert
 * since. */
struct store_request *store_user_insert_from_provider(struct store *st, const struct store_user *row,
                                                      store_done_fn *done, void *arg);
struct store_request *store_user_get(struct store *st, const char *owner, const char *id, store_user_fn *done,
                                     void *arg);
struct store_request *store_user_update(struct store *st, const char *owner, const struct store_user *row, uint32_t set,
                                        bool keep_admin, store_user_fn *done, void *arg);
struct store_request *store_user_list(struct store *st, const struct store_list *q, store_users_fn *done, void *arg);
/* Revokes the user's keys, and records the name for store_user_insert_from_provider. */
struct store_request *store_user_remove(struct store *st, const char *owner, const char *id, uint64_t at_ms,
                                        bool keep_admin, store_done_fn *done, void *arg);

/* --- a tenant's own roles; they are immutable, so a user's permissions change only with the
 * role --- */

struct store_role {
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1];
    char *permissions; /* separated by spaces, like the scopes of keys */
    uint64_t created_ms;
};

typedef void store_role_fn(void *arg, const struct err *err, const struct store_role *row);
typedef void store_roles_fn(void *arg, const struct err *err, const struct store_role *rows, size_t n,
                            const char *next);

struct store_request *store_role_insert(struct store *st, const struct store_role *row, store_done_fn *done, void *arg);
struct store_request *store_role_get(struct store *st, const char *owner, const char *name, store_role_fn *done,
                                     void *arg);
/* Ordered by name; the owner is one tenant. */
struct store_request *store_role_list(struct store *st, const struct store_list *q, store_roles_fn *done, void *arg);
/* ERR_EXISTS: a user has this role. */
struct store_request *store_role_remove(struct store *st, const char *owner, const char *name, store_done_fn *done,
                                        void *arg);

/* --- the figures that quotas are checked with --- */

struct store_age { /* number of executions of a tenant that were created this many minutes ago */
    char owner[STORE_OWNER_MAX + 1];
    uint64_t minutes, n;
};
typedef void store_ages_fn(void *arg, const struct err *err, const struct store_age *rows, size_t n);
/* Executions of the hour before now_ms, by minutes; those after now_ms count as new. */
struct store_request *store_execution_ages(struct store *st, uint64_t now_ms, store_ages_fn *done, void *arg);

/* --- login: all data that decides about a request, read at once --- */

struct store_login {
    struct store_key key;          /* login by name: only owner and user are set */
    char role[STORE_NAME_MAX + 1]; /* "": the key belongs to no user */
    char *permissions;             /* of a role of the tenant's own; NULL for a built-in role */
    bool disabled;                 /* the user is disabled */
    uint64_t suspended_ms;         /* when the tenant was suspended; 0: it is not */
    bool member; /* the tenant exists, and so does the user if the key names one; false: treat the key as unknown */
};

typedef void store_login_fn(void *arg, const struct err *err, const struct store_login *row);
/* Login by the hash of a key. ERR_MISSING: unknown key. */
struct store_request *store_login_by_hash(struct store *st, const uint8_t hash[STORE_HASH_LEN], store_login_fn *done,
                                          void *arg);
/* Login by user name, for users that an identity provider vouches for. ERR_MISSING: the tenant
 * has no user of that name. */
struct store_request *store_login_by_name(struct store *st, const char *tenant, const char *user, store_login_fn *done,
                                          void *arg);
