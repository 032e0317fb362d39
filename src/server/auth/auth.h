/* auth.h - authentication, authorization and rate limits of requests.
 *
 * A request is checked in two steps: auth_check finds the principal of its credential (in the
 * cache, or with one query of the store), auth_rate_take counts the request. Permissions are bits
 * of the principal (scope.h). Its owner is passed to every call of store.h, so nothing in a
 * request's path or body can reach the rows of another owner.
 *
 * A peer on the Unix socket that is root or the server's own user and sends no key is "local": all
 * scopes, its own owner, no rate limit. That is how a lost first key is rotated, and how the
 * command line logs in on its own host.
 *
 * The caller passes the time: now_ns is monotonic, now_ms is since 1970. */
#pragma once

#include "server/auth/keycache.h"
#include "server/auth/ratelimit.h"
#include "server/auth/issuer.h"
#include "server/auth/scope.h"
#include "store/tenants.h"

#define AUTH_LOCAL_OWNER STORE_LOCAL_TENANT
#define AUTH_NAME_MAX 128u

struct auth;

struct auth_settings {
    uid_t owner_uid;                    /* processes of this user are local, like those of root */
    const char *rate[AUTH_CLASS_COUNT]; /* in the format of ratelimit_parse; NULL: no limit */
    /* Called when a key was revoked or rotated, a user changed or removed, a tenant suspended or
     * removed: open streams of that key, user or tenant must end now. May be NULL. */
    void (*on_revoked)(void *arg, const char *id);
    void *arg;
    /* Issuer whose tokens are accepted in addition to keys; NULL: none. A token is for the tenant
     * that it names, or for jwt_tenant. Its user must exist, unless jwt_role is set. */
    const struct issuer_settings *jwt;
    /* jwt_role: role of users that are created at their first request; NULL: none are created. */
    const char *jwt_tenant, *jwt_role;
    /* MAC_LEN bytes; NULL: random, so that delegated tokens do not outlive the process. */
    const uint8_t *pepper;
};

int auth_new(struct ev *ev, struct store *st, const struct auth_settings *set, struct auth **ret, struct err *err);
/* Makes no further callback. Passes pending last uses of keys to the store, so it must be called
 * before store_close. */
void auth_free(struct auth *a);
DEFINE_AUTO(auth, auth_free);

/* The kind of credential that a request was authenticated with. */
enum principal_kind {
    PRINCIPAL_KEY,
    PRINCIPAL_LOCAL, /* a trusted peer on the Unix socket */
    PRINCIPAL_JWT,
    PRINCIPAL_SANDBOX_TOKEN,
    PRINCIPAL_TICKET,
    PRINCIPAL_SIGNED, /* a signed URL */
};

struct principal {
    enum principal_kind kind;
    char key_id[ID_SIZE];            /* "": no key */
    char user[ID_SIZE];              /* user of the key; "": none */
    char name[STORE_NAME_MAX + 1];   /* name of that user, if authenticated by an issuer's token */
    char owner[STORE_OWNER_MAX + 1]; /* the tenant */
    char sandbox[ID_SIZE];           /* the only sandbox it can access; "": every sandbox of its tenant */
    uint16_t port;                   /* the only port of that sandbox it can access; 0: the whole sandbox */
    uint32_t scopes;
    uint64_t expires_ms;          /* 0: never */
    uint8_t hash[STORE_HASH_LEN]; /* hash of its key, with which auth_rate_take finds its buckets */
};

static inline bool principal_is_local(const struct principal *p)
{
    return p->kind == PRINCIPAL_LOCAL;
}
static inline bool principal_has_scopes(const struct principal *p, uint32_t scopes)
{
    return (p->scopes & scopes) == scopes;
}
/* The user or the key, for records; "": the local owner. */
static inline const char *principal_id(const struct principal *p)
{
    return p->user[0] ? p->user : p->key_id;
}
/* A token, ticket or signature, which has fewer rights than the credential that made it. */
static inline bool principal_is_delegated(const struct principal *p)
{
    return p->kind == PRINCIPAL_SANDBOX_TOKEN || p->kind == PRINCIPAL_TICKET || p->kind == PRINCIPAL_SIGNED;
}
/* Fails with ERR_DENIED and the name of the missing scope. */
int principal_require(const struct principal *p, uint32_t scopes, struct err *err);

/* --- requests --- */

struct auth_request {
    const char *authorization, *x_api_key; /* headers; NULL: not sent */
    const char *peer;                      /* address of the client; NULL on the Unix socket */
    bool over_socket;
    uid_t peer_uid; /* over_socket: SO_PEERCRED */
    /* Query parameters; NULL: absent. A ticket is valid for the method and the path of the request,
     * a signature for the method and the path of the requested file (delegation.h). */
    const char *ticket, *signature;
    const char *method, *path, *file;
    uint64_t now_ns, now_ms;
};

enum auth_verdict {
    AUTH_YES, /* *ret is set */
    /* err is ERR_UNAUTHORIZED, ERR_TENANT_SUSPENDED, ERR_ISSUER_DOWN, or ERR_RATE_LIMITED with
     * *retry_ns */
    AUTH_NO,
    /* done is called later, never from inside the call; *retry_ns is for an ERR_RATE_LIMITED that
     * done reports */
    AUTH_LATER,
};
struct auth_check; /* a check that is in progress */

/* err NULL: p is the principal, borrowed. Otherwise an error as with AUTH_NO, or an error of the
 * store. */
typedef void auth_done_fn(void *arg, const struct err *err, const struct principal *p);

enum auth_verdict auth_check(struct auth *a, const struct auth_request *req, struct principal *ret, uint64_t *retry_ns,
                             struct err *err, auth_done_fn *done, void *arg, struct auth_check **ret_later);
void auth_check_cancel(struct auth_check *c); /* done will not be called */

/* Counts a request of this class. Returns false with ERR_RATE_LIMITED; *ret has the time of the
 * next attempt. */
bool auth_rate_take(struct auth *a, const struct principal *p, enum auth_class class, uint64_t now_ns,
                    struct ratelimit_answer *ret);

/* --- keys --- */

struct auth_key_spec {
    const char *name;    /* for users; NULL: none */
    uint32_t scopes;     /* at least one; 0 for a user's key: all scopes that its creator may give to a user */
    uint64_t expires_ms; /* 0: never */
    const char *owner;   /* tenant; NULL: that of the creator; another one requires `admin` */
    /* User of the key. NULL: the creator's user; "": no user. Any value but the creator's own user
     * requires `tenant`. */
    const char *user;
};

/* secret: the complete key, passed only here and wiped when done returns; row: the rest of the
 * key. */
typedef void auth_key_fn(void *arg, const struct err *err, const struct store_key *row, const char *secret);

/* Fails with ERR_DENIED if the key would have more scopes than its creator or live longer. */
void auth_key_create(struct auth *a, const struct principal *by, const struct auth_key_spec *spec, uint64_t now_ms,
                     auth_key_fn *done, void *arg);
/* Replaces the secret of a key; the old secret is invalid from then on. Only for keys with no more
 * scopes than `by`: otherwise rotation would be a privilege escalation. */
void auth_key_rotate(struct auth *a, const struct principal *by, const char *id, auth_key_fn *done, void *arg);
/* Revokes a key permanently. */
void auth_key_revoke(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_key_fn *done,
                     void *arg);
/* The tenant whose keys `by` can see: its own, or NULL for all of them with `admin`. For
 * store_key_list and store_key_get. */
const char *auth_key_visible_owner(const struct principal *by);
/* The user whose keys `by` can see: a user without `tenant` sees only its own. NULL: all users. For
 * store_key_list. */
const char *auth_key_visible_user(const struct principal *by);
bool auth_key_is_visible(const struct principal *by, const struct store_key *row);

/* Creates the first key of a server, with all scopes, owned by AUTH_LOCAL_OWNER. Fails with
 * ERR_EXISTS if there is a key, so it succeeds only once. */
void auth_key_create_first(struct auth *a, uint64_t now_ms, auth_key_fn *done, void *arg);
