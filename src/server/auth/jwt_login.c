/* Users of an issuer: the token contains a user name and a tenant, and this server decides about
 * permissions.
 *
 * A token alone never grants membership. The user of that name must currently exist in that tenant
 * in the store; the role determines the permissions. So a removed or disabled user has no access,
 * whatever the issuer says, and the name of a tenant in a token gives nothing to a user outside of
 * that tenant. Only if the operator configured it, users are created at their first request, with a
 * role from the token if it names an existing one, and otherwise the operator's default role.
 * Tenants are never created, and removed users are not created again: an admin must add them.
 *
 * The store's answer about a user is cached like that of a key, under a hash of tenant and name
 * that no key can have. Rate limits count per user, across all tokens. */
#include "server/auth/auth_internal.h"

#include "server/auth/role.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <openssl/evp.h>

static void jwt_login_hash_user(const char *tenant, const char *name, uint8_t ret[STORE_HASH_LEN])
{
    auto_buf text = { 0 };
    unsigned n = 0;

    buf_addf(&text, "user %s ", tenant);
    buf_adds(&text, name);
    if (EVP_Digest(text.data, text.len, ret, &n, EVP_sha256(), NULL) != 1 || n != STORE_HASH_LEN)
        abort();
}

/* --- users in the store --- */

static int jwt_login_accept_entry(struct auth_check *c, struct keycache_entry *e, struct principal *ret,
                                  struct err *err)
{
    if (c->is_delegated && !str_eq(e->user, c->token_claims.user))
        return err_set(err, ERR_UNAUTHORIZED, "the key is not valid"); /* another user has the name now */
    if (auth_accept_entry(c, e, ret, err) != AUTH_YES)
        return -1;
    ret->key_id[0] = '\0';
    str_copy(ret->name, sizeof(ret->name), c->claims.user);
    if (!c->is_delegated) {
        ret->kind = PRINCIPAL_JWT;
        ret->expires_ms = c->claims.expires_ms;
    }
    return 0;
}

static void jwt_login_query_user(struct auth_check *c);

static void jwt_login_on_user_created(void *arg, const struct err *err)
{
    struct auth_check *c = arg;
    struct err why = { 0 };

    c->op.call = NULL;
    if (!err)
        log_info("created user %s in tenant %s for a token of the issuer", c->created_user, c->claims.tenant);
    if (!err || err->id == ERR_EXISTS) { /* created by a concurrent request */
        jwt_login_query_user(c);
        return;
    }
    if (err->id == ERR_MISSING)
        err_set(&why, ERR_UNAUTHORIZED, "the token is valid, but its tenant does not exist on this server");
    auth_check_end(c, err->id == ERR_MISSING ? &why : err, NULL);
}

static const char *jwt_login_choose_role(const struct auth_check *c)
{
    for (size_t i = 0; i < c->claims.nroles; i++)
        if (role_find(c->claims.roles[i]))
            return c->claims.roles[i];
    return c->op.auth->jwt_role;
}

static void jwt_login_create_user(struct auth_check *c)
{
    struct store_user row = { .created_ms = c->now_ms };

    id_new("us", row.id);
    memcpy(c->created_user, row.id, sizeof(c->created_user));
    str_copy(row.owner, sizeof(row.owner), c->claims.tenant);
    str_copy(row.name, sizeof(row.name), c->claims.user);
    str_copy(row.role, sizeof(row.role), jwt_login_choose_role(c));
    c->op.call = store_user_insert_from_provider(c->op.auth->store, &row, jwt_login_on_user_created, c);
}

static void jwt_login_on_row(void *arg, const struct err *failed, const struct store_login *row)
{
    struct auth_check *c = arg;
    struct auth *a = c->op.auth;
    struct store_login known;
    struct store_key_use lost;
    struct principal p = { 0 };
    struct err err = { 0 };

    c->op.call = NULL;
    if (failed && failed->id == ERR_MISSING && a->jwt_role[0] && !c->created_user[0] && !c->is_delegated) {
        jwt_login_create_user(c);
        return;
    }
    if (failed && failed->id != ERR_MISSING) {
        auth_check_end(c, failed, NULL);
        return;
    }
    if (failed || !row->member) {
        err_set(&err, ERR_UNAUTHORIZED, "the token is valid, but its user does not exist in this tenant");
        auth_check_end(c, &err, NULL);
        return;
    }
    known = *row;
    known.key.scopes = (char *)(uintptr_t) "admin"; /* restricted by the role */
    memcpy(known.key.hash, c->hash, STORE_HASH_LEN);
    str_copy(known.key.id, sizeof(known.key.id), row->key.user);
    struct keycache_entry *e = keycache_put(a->cache, &known, c->now_ns, &lost);
    if (lost.at_ms)
        store_key_touch(a->store, &lost, 1, NULL, NULL);
    int rc = jwt_login_accept_entry(c, e, &p, &err);
    auth_check_end(c, rc < 0 ? &err : NULL, &p);
}

static void jwt_login_query_user(struct auth_check *c)
{
    c->op.call = store_login_by_name(c->op.auth->store, c->claims.tenant, c->claims.user, jwt_login_on_row, c);
}

/* Returns true if the cache has the answer, in *ret or *err. */
static bool jwt_login_from_cache(struct auth_check *c, struct principal *ret, enum auth_verdict *ret_verdict,
                                 struct err *err)
{
    jwt_login_hash_user(c->claims.tenant, c->claims.user, c->hash);
    struct keycache_entry *e = keycache_find(c->op.auth->cache, c->hash);
    if (!e || e->stale || c->now_ns - e->checked_ns >= KEYCACHE_FRESH_NS)
        return false;
    *ret_verdict = jwt_login_accept_entry(c, e, ret, err) < 0 ? AUTH_NO : AUTH_YES;
    return true;
}

/* Refuses names that the store cannot contain, without a query. */
static int jwt_login_check_names(const struct auth *a, struct issuer_claims *claims, struct err *err)
{
    if (!claims->tenant[0])
        str_copy(claims->tenant, sizeof(claims->tenant), a->jwt_tenant);
    if (!store_owner_valid(claims->tenant) || strlen(claims->user) > STORE_NAME_MAX)
        return err_set(err, ERR_UNAUTHORIZED, "the token is valid, but its user does not exist in this tenant");
    return 0;
}

static enum auth_verdict jwt_login_start(const struct auth_check_args *q, struct auth_check *c)
{
    enum auth_verdict verdict;

    if (jwt_login_from_cache(c, q->ret, &verdict, q->err)) {
        auth_op_end(&c->op);
        return verdict;
    }
    jwt_login_query_user(c);
    *q->ret_later = c;
    return AUTH_LATER;
}

enum auth_verdict auth_check_delegated_user(const struct auth_check_args *q, enum principal_kind kind,
                                            const struct delegated_token *p)
{
    struct auth_check *c = auth_check_begin(q, kind, p);

    str_copy(c->claims.tenant, sizeof(c->claims.tenant), p->owner);
    str_copy(c->claims.user, sizeof(c->claims.user), p->name);
    return jwt_login_start(q, c);
}

/* --- tokens --- */

/* The keys have arrived or the fetch has failed: check the token again. */
static void jwt_login_on_keys(void *arg)
{
    struct auth_check *c = arg;
    struct auth *a = c->op.auth;
    struct principal p = { 0 };
    struct err err = { 0 };
    enum auth_verdict verdict;

    c->wait = NULL;
    enum issuer_verdict v = issuer_check(a->issuer, c->token, c->now_ms, &c->claims, &err, NULL, NULL, NULL);
    if (v == ISSUER_FORGED)
        throttle_record_failure(a->throttle, c->peer, c->now_ns);
    if (v != ISSUER_YES || jwt_login_check_names(a, &c->claims, &err) < 0)
        auth_check_end(c, &err, NULL);
    else if (jwt_login_from_cache(c, &p, &verdict, &err))
        auth_check_end(c, verdict == AUTH_YES ? NULL : &err, &p);
    else
        jwt_login_query_user(c);
}

enum auth_verdict auth_check_jwt(const struct auth_check_args *q, const char *token)
{
    struct auth_check *c = auth_check_begin(q, PRINCIPAL_JWT, NULL);

    switch (issuer_check(q->a->issuer, token, c->now_ms, &c->claims, q->err, jwt_login_on_keys, c, &c->wait)) {
    case ISSUER_YES:
        if (jwt_login_check_names(q->a, &c->claims, q->err) == 0)
            return jwt_login_start(q, c);
        break;
    case ISSUER_LATER:
        c->token = str_dup(token);
        *q->ret_later = c;
        return AUTH_LATER;
    case ISSUER_FORGED:
        (void)auth_count_failed_attempt(q);
        break;
    case ISSUER_NO:
        break;
    }
    auth_op_end(&c->op);
    return AUTH_NO;
}
