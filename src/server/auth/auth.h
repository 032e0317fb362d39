/* auth.h - who makes a request, what they may do, and how often.
 *
 * A request is checked in two steps: auth_check finds the principal behind its key (from memory, or with one look into
 * the store), auth_rate_take counts it. Rights are bits of the principal (scope.h); the owner in it is what every call
 * of store.h is made with, so nothing in a request's path or body can reach another owner's rows.
 *
 * Over the Unix socket, a peer that is root or the server's own user and shows no key is "local": all rights, its own
 * owner, no rate limit. That is how the first key is rotated when it was lost, and how the command line logs itself
 * in.
 *
 * Times are handed in: now_ns monotonic, now_ms since 1970. */
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
    uid_t owner_uid;                    /* whose processes are local besides root's */
    const char *rate[AUTH_CLASS_COUNT]; /* as ratelimit_parse reads them; NULL: no limit */
    /* A key was revoked or rotated, a user changed or removed, a tenant suspended or removed: whatever that key, user
     * or tenant has open (streams) should end now. May be NULL. */
    void (*on_revoked)(void *arg, const char *id);
    void *arg;
    /* Whose tokens are accepted besides keys; NULL: nobody's. A token is for the tenant that it names, or for
     * jwt_tenant; its user must be there, unless jwt_role says which role a user who is new gets. */
    const struct issuer_settings *jwt;
    const char *jwt_tenant, *jwt_role; /* NULL: users are not made */
    const uint8_t *pepper; /* MAC_LEN bytes; NULL: random, so that nothing that is handed out outlives the process */
};

int auth_new(struct ev *ev, struct store *st, const struct auth_settings *set, struct auth **ret, struct err *err);
/* Makes no further callback. Last uses that were not written yet are handed to the store, so this comes before
 * store_close. */
void auth_free(struct auth *a);
DEFINE_AUTO(auth, auth_free);

/* By what a request showed who makes it. */
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
    char key_id[ID_SIZE];            /* "": without a key */
    char user[ID_SIZE];              /* whose key it is; "": nobody's */
    char name[STORE_NAME_MAX + 1];   /* of that user, when an issuer vouched for them */
    char owner[STORE_OWNER_MAX + 1]; /* the tenant */
    char sandbox[ID_SIZE];           /* the only one it reaches; "": any of its tenant */
    uint16_t port;                   /* of that sandbox, and nothing but it; 0: all of it */
    uint32_t scopes;
    uint64_t expires_ms;          /* 0: never */
    uint8_t hash[STORE_HASH_LEN]; /* of its key, by which auth_rate_take finds its buckets */
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
/* ERR_DENIED naming the scope that is missing. */
int principal_require(const struct principal *p, uint32_t scopes, struct err *err);

/* --- one request --- */

struct auth_request {
    const char *authorization, *x_api_key; /* headers; NULL: not sent */
    const char *peer;                      /* address; NULL on the Unix socket */
    bool over_socket;
    uid_t peer_uid; /* over_socket: SO_PEERCRED */
    /* Of the query; NULL: not there. A ticket is held against the method and the path of the request, a signature
     * against the method and the path of the file that is asked for (delegation.h). */
    const char *ticket, *signature;
    const char *method, *path, *file;
    uint64_t now_ns, now_ms;
};

enum auth_verdict {
    AUTH_YES,   /* *ret is filled */
    AUTH_NO,    /* err is ERR_UNAUTHORIZED, ERR_TENANT_SUSPENDED, ERR_ISSUER_DOWN, or ERR_RATE_LIMITED with *retry_ns */
    AUTH_LATER, /* done follows, never from inside the call; *retry_ns is for an ERR_RATE_LIMITED that it brings */
};
struct auth_check; /* one that was not answered yet */

/* err NULL: p is who it is, borrowed. Otherwise as with AUTH_NO, or what is wrong with the store. */
typedef void auth_done_fn(void *arg, const struct err *err, const struct principal *p);

enum auth_verdict auth_check(struct auth *a, const struct auth_request *req, struct principal *ret, uint64_t *retry_ns,
                             struct err *err, auth_done_fn *done, void *arg, struct auth_check **ret_later);
void auth_check_cancel(struct auth_check *c); /* done will not be called */

/* Counts a request of this class. False: ERR_RATE_LIMITED, and ret tells when to come back. */
bool auth_rate_take(struct auth *a, const struct principal *p, enum auth_class class, uint64_t now_ns,
                    struct ratelimit_answer *ret);

/* --- keys --- */

struct auth_key_spec {
    const char *name;    /* for people; NULL is none */
    uint32_t scopes;     /* at least one; 0 for a user's key: all that its maker may give a user */
    uint64_t expires_ms; /* 0: never */
    const char *owner;   /* the tenant; NULL: that of the one who makes it; another one's needs `admin` */
    const char *user;    /* whose it is. NULL: its maker's; "": nobody's. But their own it takes `tenant` */
};

/* secret: the whole key, shown this once and wiped when done returns; row is the rest of it. */
typedef void auth_key_fn(void *arg, const struct err *err, const struct store_key *row, const char *secret);

/* Nobody makes a key that may do more than they may, or that lives longer: ERR_DENIED. */
void auth_key_create(struct auth *a, const struct principal *by, const struct auth_key_spec *spec, uint64_t now_ms,
                     auth_key_fn *done, void *arg);
/* A new secret for the same key; the old one is worth nothing from then on. Only for keys that may do no more than
 * `by`: otherwise this were a way to more rights. */
void auth_key_rotate(struct auth *a, const struct principal *by, const char *id, auth_key_fn *done, void *arg);
/* For ever. */
void auth_key_revoke(struct auth *a, const struct principal *by, const char *id, uint64_t now_ms, store_key_fn *done,
                     void *arg);
/* Which tenant's keys `by` sees: its own, or all of them with `admin`. For store_key_list and store_key_get. */
const char *auth_key_visible_owner(const struct principal *by);
/* Of these, whose: a user without `tenant` sees only their own. NULL: everybody's. For store_key_list. */
const char *auth_key_visible_user(const struct principal *by);
bool auth_key_is_visible(const struct principal *by, const struct store_key *row);

/* The first key of a server: made when there is none, with all rights, owned by AUTH_LOCAL_OWNER. ERR_EXISTS: there is
 * one, so this door is shut for good. */
void auth_key_create_first(struct auth *a, uint64_t now_ms, auth_key_fn *done, void *arg);
