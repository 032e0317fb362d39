/* The half of the seal that lies in the store is read when the server starts, and made with the first start. */
#include "auth/passes.h"

#include "auth/inside.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/text.h"

#define SALT "auth.seal" /* meta */

/* --- the seal --- */

struct seal_op {
    struct auth_op op;
    char *salt;
    store_done_fn *done;
    void *arg;
};

static void seal_op_free(struct auth_op *op)
{
    struct seal_op *s = container_of(op, struct seal_op, op);

    free(s->salt);
    free(s);
}

static void use_salt(struct auth *a, const char *salt)
{
    seal_init(&a->seal, a->pepper, salt);
    a->sealed = true;
}

static void on_salt_put(void *arg, const struct err *err)
{
    struct seal_op *s = arg;

    if (!err) {
        use_salt(s->op.auth, s->salt);
        tickets_drop_all(s->op.auth->tickets);
    }
    if (s->done)
        s->done(s->arg, err);
    else if (err)
        log_error("the seal of tokens: %s", err->msg);
    auth_op_end(&s->op);
}

static void put_salt(struct seal_op *s)
{
    uint8_t random[SEAL_LEN];
    struct buf text = { 0 };

    seal_random(random);
    text_base64url(&text, random, sizeof(random));
    s->salt = text.data;
    s->op.call = store_meta_put(s->op.auth->store, SALT, s->salt, on_salt_put, s);
}

static void on_salt(void *arg, const struct err *err, const char *salt)
{
    struct seal_op *s = arg;

    if (!err && !salt) {
        put_salt(s);
        return;
    }
    if (err)
        log_error("the seal of tokens: %s", err->msg);
    else
        use_salt(s->op.auth, salt);
    auth_op_end(&s->op);
}

static struct seal_op *seal_op_new(struct auth *a, store_done_fn *done, void *arg)
{
    struct seal_op *s = mem_new(struct seal_op);

    auth_op_begin(a, &s->op, seal_op_free);
    s->done = done;
    s->arg = arg;
    return s;
}

void auth_seal_load(struct auth *a)
{
    struct seal_op *s = seal_op_new(a, NULL, NULL);

    s->op.call = store_meta_get(a->store, SALT, on_salt, s);
}

void auth_passes_end(struct auth *a, store_done_fn *done, void *arg)
{
    put_salt(seal_op_new(a, done, arg));
}

/* --- handing on --- */

static void name_maker(const struct principal *by, struct pass *g)
{
    g->by = by->name[0] ? PASS_BY_USER : by->key_id[0] ? PASS_BY_KEY : PASS_BY_LOCAL;
    if (g->by == PASS_BY_KEY)
        memcpy(g->key, by->hash, sizeof(g->key));
    if (g->by == PASS_BY_USER) {
        str_copy(g->user, sizeof(g->user), by->user);
        str_copy(g->name, sizeof(g->name), by->name);
    }
}

static int begin(const struct auth *a, const struct principal *by, const struct pass_spec *spec, uint64_t usual_ms,
                 uint64_t now_ms, struct pass *ret, struct err *err)
{
    uint64_t ttl = spec->ttl_ms ? spec->ttl_ms : usual_ms;
    uint32_t more = spec->scopes & ~by->scopes;

    if (by->kind != PRINCIPAL_KEY && by->kind != PRINCIPAL_LOCAL && by->kind != PRINCIPAL_JWT)
        return err_set(err, ERR_DENIED, "what was handed on cannot be handed on again; use a key");
    if (!a->sealed)
        return err_set(err, ERR_BUSY, "the server is starting");
    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (more & (1u << i))
            return err_set(err, ERR_DENIED, "a key cannot hand on the scope %s, which it does not have", scope_name(i));
    if (ttl > PASS_TTL_MAX_MS)
        return err_set(err, ERR_INVALID, "ttlMs: it is at most %llu, a day", PASS_TTL_MAX_MS);
    uint64_t until = now_ms + ttl;
    if (by->expires_ms && until > by->expires_ms) {
        if (spec->ttl_ms)
            return err_set(err, ERR_DENIED, "ttlMs: it would outlive the credential that makes it");
        until = by->expires_ms;
    }
    *ret = (struct pass){ .scopes = spec->scopes, .port = spec->port, .expires_ms = until };
    id_new("tk", ret->id);
    name_maker(by, ret);
    str_copy(ret->owner, sizeof(ret->owner), spec->owner);
    str_copy(ret->sandbox, sizeof(ret->sandbox), spec->sandbox);
    return 0;
}

int auth_token_make(struct auth *a, const struct principal *by, const struct pass_spec *spec, uint64_t now_ms,
                    struct buf *out, struct pass *ret, struct err *err)
{
    if (spec->scopes == 0)
        return err_set(err, ERR_INVALID, "operations: say what the token may do");
    if (spec->scopes & ~PASS_OPERATIONS)
        return err_set(err, ERR_INVALID, "operations: a token is for one sandbox, and this is not about one");
    if (begin(a, by, spec, PASS_TOKEN_TTL_MS, now_ms, ret, err) < 0)
        return -1;
    pass_write(&a->seal, PASS_SANDBOX_TOKEN, NULL, ret, out);
    return 0;
}

int auth_url_sign(struct auth *a, const struct principal *by, const struct pass_spec *spec, const char *method,
                  const char *path, uint64_t now_ms, struct buf *out, struct pass *ret, struct err *err)
{
    struct pass_spec files = *spec;
    auto_free char *bound = pass_bound(method, path);

    files.scopes = str_eq(method, "GET") ? SCOPE_BIT(FILES_READ) : scope_whole(SCOPE_BIT(FILES));
    files.port = 0;
    if (begin(a, by, &files, PASS_URL_TTL_MS, now_ms, ret, err) < 0)
        return -1;
    pass_write(&a->seal, PASS_FILE_URL, bound, ret, out);
    return 0;
}

int auth_ticket_make(struct auth *a, const struct principal *by, const char *method, const char *path, uint64_t now_ns,
                     char ret[TICKET_SIZE], struct err *err)
{
    struct pass g = { .scopes = by->scopes, .port = by->port, .expires_ms = by->expires_ms };

    if (by->kind == PRINCIPAL_TICKET || by->kind == PRINCIPAL_SIGNED)
        return err_set(err, ERR_DENIED, "what was handed on cannot be handed on again; use a key");
    id_new("tk", g.id);
    name_maker(by, &g);
    str_copy(g.owner, sizeof(g.owner), by->owner);
    str_copy(g.sandbox, sizeof(g.sandbox), by->sandbox);
    return tickets_make(a->tickets, &g, method, path, now_ns, ret, err);
}

int auth_narrow(const struct pass *g, enum principal_kind kind, struct principal *p, struct err *err)
{
    if (!str_eq(g->owner, p->owner) && !principal_may(p, SCOPE_BIT(ADMIN)))
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
