/* The salt of the MAC key is read from the store when the server starts, and created at the first
 * start. */
#include "server/auth/delegation.h"

#include "server/auth/auth_internal.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#define DELEGATION_SALT_META_KEY "auth.seal" /* key in the meta table */

/* --- the salt --- */

struct delegation_salt_op {
    struct auth_op op;
    char *salt;
    store_done_fn *done;
    void *arg;
};

static void delegation_salt_op_free(struct auth_op *op)
{
    struct delegation_salt_op *s = container_of(op, struct delegation_salt_op, op);

    free(s->salt);
    free(s);
}

static void delegation_set_salt(struct auth *a, const char *salt)
{
    mac_key_init(&a->mac_key, a->pepper, salt);
    a->mac_key_ready = true;
}

static void delegation_on_salt_stored(void *arg, const struct err *err)
{
    struct delegation_salt_op *s = arg;

    if (!err) {
        delegation_set_salt(s->op.auth, s->salt);
        tickets_drop_all(s->op.auth->tickets);
    }
    if (s->done)
        s->done(s->arg, err);
    else if (err)
        log_error("cannot store the key of delegated tokens: %s", err->msg);
    auth_op_end(&s->op);
}

static void delegation_store_new_salt(struct delegation_salt_op *s)
{
    uint8_t random[MAC_LEN];
    struct buf text = { 0 };

    mac_random_bytes(random);
    text_base64url(&text, random, sizeof(random));
    s->salt = text.data;
    s->op.call = store_meta_put(s->op.auth->store, DELEGATION_SALT_META_KEY, s->salt, delegation_on_salt_stored, s);
}

static void delegation_on_salt(void *arg, const struct err *err, const char *salt)
{
    struct delegation_salt_op *s = arg;

    if (!err && !salt) {
        delegation_store_new_salt(s);
        return;
    }
    if (err)
        log_error("cannot read the key of delegated tokens: %s", err->msg);
    else
        delegation_set_salt(s->op.auth, salt);
    auth_op_end(&s->op);
}

static struct delegation_salt_op *delegation_salt_op_new(struct auth *a, store_done_fn *done, void *arg)
{
    struct delegation_salt_op *s = mem_new(struct delegation_salt_op);

    auth_op_begin(a, &s->op, delegation_salt_op_free);
    s->done = done;
    s->arg = arg;
    return s;
}

void delegation_load_salt(struct auth *a)
{
    struct delegation_salt_op *s = delegation_salt_op_new(a, NULL, NULL);

    s->op.call = store_meta_get(a->store, DELEGATION_SALT_META_KEY, delegation_on_salt, s);
}

void delegation_revoke_all(struct auth *a, store_done_fn *done, void *arg)
{
    delegation_store_new_salt(delegation_salt_op_new(a, done, arg));
}

/* --- delegation --- */

static void delegation_set_delegator(const struct principal *by, struct delegated_token *g)
{
    g->delegator = by->name[0] ? DELEGATOR_USER : by->key_id[0] ? DELEGATOR_KEY : DELEGATOR_LOCAL;
    if (g->delegator == DELEGATOR_KEY)
        memcpy(g->key_hash, by->hash, sizeof(g->key_hash));
    if (g->delegator == DELEGATOR_USER) {
        str_copy(g->user, sizeof(g->user), by->user);
        str_copy(g->name, sizeof(g->name), by->name);
    }
}

static int delegation_prepare(const struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                              uint64_t usual_ms, uint64_t now_ms, struct delegated_token *ret, struct err *err)
{
    uint64_t ttl = spec->ttl_ms ? spec->ttl_ms : usual_ms;
    uint32_t more = spec->scopes & ~by->scopes;

    if (by->kind != PRINCIPAL_KEY && by->kind != PRINCIPAL_LOCAL && by->kind != PRINCIPAL_JWT)
        return err_set(err, ERR_DENIED, "a delegated credential cannot be delegated again; use a key");
    if (!a->mac_key_ready)
        return err_set(err, ERR_BUSY, "the server is starting; try again in a moment");
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (more & (1u << i))
            return err_set(err, ERR_DENIED, "a key cannot delegate the scope %s, which it does not have",
                           scope_name(i));
    if (ttl > DELEGATION_TTL_MAX_MS)
        return err_set(err, ERR_INVALID, "ttlMs: must be at most %llu (one day)", DELEGATION_TTL_MAX_MS);
    uint64_t until = now_ms + ttl;
    if (by->expires_ms && until > by->expires_ms) {
        if (spec->ttl_ms)
            return err_set(err, ERR_DENIED, "ttlMs: the token would outlive the credential that creates it");
        until = by->expires_ms;
    }
    *ret = (struct delegated_token){ .scopes = spec->scopes, .port = spec->port, .expires_ms = until };
    id_new("tk", ret->id);
    delegation_set_delegator(by, ret);
    str_copy(ret->owner, sizeof(ret->owner), spec->owner);
    str_copy(ret->sandbox, sizeof(ret->sandbox), spec->sandbox);
    return 0;
}

int delegation_make_token(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                          uint64_t now_ms, struct buf *out, struct delegated_token *ret, struct err *err)
{
    if (spec->scopes == 0)
        return err_set(err, ERR_INVALID, "operations: must contain at least one operation");
    if (spec->scopes & ~DELEGATION_SCOPES)
        return err_set(err, ERR_INVALID, "operations: a sandbox token allows only operations on its sandbox");
    if (delegation_prepare(a, by, spec, DELEGATION_TOKEN_TTL_MS, now_ms, ret, err) < 0)
        return -1;
    delegated_token_write(&a->mac_key, DELEGATED_SANDBOX_TOKEN, NULL, ret, out);
    return 0;
}

int delegation_sign_url(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                        const char *method, const char *path, uint64_t now_ms, struct buf *out,
                        struct delegated_token *ret, struct err *err)
{
    struct delegation_spec files = *spec;
    auto_free char *bound = delegated_token_url_binding(method, path);

    files.scopes = str_eq(method, "GET") ? SCOPE_BIT(FILES_READ) : scope_expand(SCOPE_BIT(FILES));
    files.port = 0;
    if (delegation_prepare(a, by, &files, DELEGATION_URL_TTL_MS, now_ms, ret, err) < 0)
        return -1;
    delegated_token_write(&a->mac_key, DELEGATED_FILE_URL, bound, ret, out);
    return 0;
}

int delegation_make_ticket(struct auth *a, const struct principal *by, const char *method, const char *path,
                           uint64_t now_ns, char ret[TICKET_SIZE], struct err *err)
{
    struct delegated_token g = { .scopes = by->scopes, .port = by->port, .expires_ms = by->expires_ms };

    if (by->kind == PRINCIPAL_TICKET || by->kind == PRINCIPAL_SIGNED)
        return err_set(err, ERR_DENIED, "a delegated credential cannot be delegated again; use a key");
    id_new("tk", g.id);
    delegation_set_delegator(by, &g);
    str_copy(g.owner, sizeof(g.owner), by->owner);
    str_copy(g.sandbox, sizeof(g.sandbox), by->sandbox);
    return tickets_make(a->tickets, &g, method, path, now_ns, ret, err);
}

int auth_restrict_to_token(const struct delegated_token *g, enum principal_kind kind, struct principal *p,
                           struct err *err)
{
    if (!str_eq(g->owner, p->owner) && !principal_has_scopes(p, SCOPE_BIT(ADMIN)))
        return err_set(err, ERR_UNAUTHORIZED, "the key is not valid");
    p->kind = kind;
    str_copy(p->owner, sizeof(p->owner), g->owner);
    str_copy(p->sandbox, sizeof(p->sandbox), g->sandbox);
    p->port = g->port;
    p->scopes &= g->scopes;
    if (g->expires_ms && (!p->expires_ms || g->expires_ms < p->expires_ms))
        p->expires_ms = g->expires_ms;
    return 0;
}
