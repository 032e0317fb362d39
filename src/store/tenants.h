/* tenants.h - who shares a server: tenants, the users in them, and roles. The rules of calls and rows are those of
 * store.h.
 *
 * A tenant is what every row's `owner` names; nobody looks across its border. Its name is never used again, since what
 * it left behind (tombstones, output) is still there under it. A user belongs to one tenant and has one role in it: one
 * of the built-in ones, or one of the tenant's own, which is a list of permissions. */
#pragma once

#include "store/store.h"

#define STORE_LOCAL_TENANT "local" /* is there from the first start, and cannot go */

/* Quotas: sums over what lives, and executions begun within an hour. 0 is no bound. */
enum store_quota {
    STORE_QUOTA_SANDBOXES,
    STORE_QUOTA_CPU,     /* thousandths of a processor */
    STORE_QUOTA_MEMORY,  /* bytes */
    STORE_QUOTA_STORAGE, /* bytes */
    STORE_QUOTA_EXECUTIONS,
    STORE_QUOTA_COUNT,
};

struct store_tenant {
    char name[STORE_NAME_MAX + 1];
    uint64_t created_ms;
    uint64_t suspended_ms; /* 0: it is not */
    uint64_t removed_ms;   /* nothing is done with it any more */
    uint64_t quota[STORE_QUOTA_COUNT];
};

#define STORE_TENANT_SET_SUSPENDED (1u << 0)
#define STORE_TENANT_SET_QUOTA(q) (1u << (1u + (unsigned)(q)))
#define STORE_TENANT_SET_QUOTAS (((1u << STORE_QUOTA_COUNT) - 1u) << 1)

typedef void store_tenant_fn(void *arg, const struct err *err, const struct store_tenant *row);
typedef void store_tenants_fn(void *arg, const struct err *err, const struct store_tenant *rows, size_t n,
                              const char *next);

/* Removed ones are told as what they are; whoever asks looks at removed_ms. */
struct store_request *store_tenant_insert(struct store *st, const struct store_tenant *row, store_done_fn *done,
                                          void *arg);
struct store_request *store_tenant_get(struct store *st, const char *name, store_tenant_fn *done, void *arg);
struct store_request *store_tenant_update(struct store *st, const struct store_tenant *row, uint32_t set,
                                          store_tenant_fn *done, void *arg);
/* By name; of q only cursor and limit count. */
struct store_request *store_tenant_list(struct store *st, const struct store_list *q, store_tenants_fn *done,
                                        void *arg);
/* Its keys are revoked, its users and roles are gone, and its name is taken for ever. */
struct store_request *store_tenant_remove(struct store *st, const char *name, uint64_t at_ms, store_done_fn *done,
                                          void *arg);

/* --- users --- */

extern const char *const store_builtin_roles[]; /* "admin" first; NULL ends them */

struct store_user {
    char id[ID_SIZE]; /* us... */
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1]; /* one of its kind in the tenant */
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

/* ERR_MISSING: there is no such tenant or role. keep_admin: ERR_LAST_ADMIN when no enabled user with the role admin
 * would be left; decided in one step with the change, so two of them cannot remove each other. */
struct store_request *store_user_insert(struct store *st, const struct store_user *row, store_done_fn *done, void *arg);
/* The same for somebody whom no admin adds: ERR_USER_REMOVED when one of that name was removed, and not inserted by the
 * call above since. */
struct store_request *store_user_insert_from_provider(struct store *st, const struct store_user *row,
                                                      store_done_fn *done, void *arg);
struct store_request *store_user_get(struct store *st, const char *owner, const char *id, store_user_fn *done,
                                     void *arg);
struct store_request *store_user_update(struct store *st, const char *owner, const struct store_user *row, uint32_t set,
                                        bool keep_admin, store_user_fn *done, void *arg);
struct store_request *store_user_list(struct store *st, const struct store_list *q, store_users_fn *done, void *arg);
/* Their keys are revoked with them, and the name is remembered for store_user_insert_from_provider. */
struct store_request *store_user_remove(struct store *st, const char *owner, const char *id, uint64_t at_ms,
                                        bool keep_admin, store_done_fn *done, void *arg);

/* --- roles of a tenant's own; they do not change, so what a user may do changes only with their role --- */

struct store_role {
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1];
    char *permissions; /* separated by spaces, as those of keys */
    uint64_t created_ms;
};

typedef void store_role_fn(void *arg, const struct err *err, const struct store_role *row);
typedef void store_roles_fn(void *arg, const struct err *err, const struct store_role *rows, size_t n,
                            const char *next);

struct store_request *store_role_insert(struct store *st, const struct store_role *row, store_done_fn *done, void *arg);
struct store_request *store_role_get(struct store *st, const char *owner, const char *name, store_role_fn *done,
                                     void *arg);
/* By name; the owner is one tenant. */
struct store_request *store_role_list(struct store *st, const struct store_list *q, store_roles_fn *done, void *arg);
/* ERR_EXISTS: somebody has it. */
struct store_request *store_role_remove(struct store *st, const char *owner, const char *name, store_done_fn *done,
                                        void *arg);

/* --- what quotas are counted from --- */

struct store_age { /* how many executions of a tenant were created so many minutes ago */
    char owner[STORE_OWNER_MAX + 1];
    uint64_t minutes, n;
};
typedef void store_ages_fn(void *arg, const struct err *err, const struct store_age *rows, size_t n);
/* Those of the last hour before now_ms, by minutes; what lies behind now_ms counts as new. */
struct store_request *store_execution_ages(struct store *st, uint64_t now_ms, store_ages_fn *done, void *arg);

/* --- logging in: everything that decides about a request, in one look --- */

struct store_login {
    struct store_key key;          /* of a login by name: only its owner and user */
    char role[STORE_NAME_MAX + 1]; /* "": the key is nobody's */
    char *permissions;             /* of a role of the tenant's own; NULL for a built-in one */
    bool disabled;                 /* the user is */
    uint64_t suspended_ms;         /* the tenant is */
    bool member; /* the tenant is there, and so is the user if the key names one; false: as good as no key */
};

typedef void store_login_fn(void *arg, const struct err *err, const struct store_login *row);
/* By the hash of a key. ERR_MISSING: there is no such key. */
struct store_request *store_login_by_hash(struct store *st, const uint8_t hash[STORE_HASH_LEN], store_login_fn *done,
                                          void *arg);
/* A user by name, for those whom somebody else vouches for. ERR_MISSING: this tenant has none of that name. */
struct store_request *store_login_by_name(struct store *st, const char *tenant, const char *user, store_login_fn *done,
                                          void *arg);
