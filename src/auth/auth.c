/* The check of a request.
 *
 * What a request shows is a key, or something that was handed out by somebody who had one (pass.h): then the maker's
 * key is looked up in the same way, and its rights are narrowed to the part that was handed on.
 *
 * A key is looked up by the hash of its text, first among the keys seen lately, then in the store. What the store says
 * is believed for KEYCACHE_FRESH_NS, so a key that another process revoked dies within that time; one that is revoked
 * here dies at once.
 *
 * Wrong keys cost the one who tries them: their address has a bucket of failures (throttle.h). It is asked only when
 * the key is not known, so a flood from an address never shuts out a known key that comes from there too.
 *
 * Last uses are gathered and written once in USES_EVERY; the timer runs only when there is something to write. */
#include "auth/inside.h"

#include "auth/apikey.h"
#include "auth/throttle.h"
#include "base/mem.h"
#include "base/str.h"

#define USES_EVERY (30 * NS_PER_S)
#define USES_AT_ONCE 256u

struct auth_check {
    struct auth_op op;
    enum principal_kind kind;
    struct pass pass; /* of other kinds than a key */
    uint8_t hash[STORE_HASH_LEN];
    uint64_t now_ns, now_ms;
    char *peer;
    auth_done_fn *done;
    void *arg;
};

/* things under way */

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *))
{
    *op = (struct auth_op){ .next = a->ops, .at = &a->ops, .auth = a, .free = free };
    if (a->ops)
        a->ops->at = &op->next;
    a->ops = op;
}

void auth_op_end(struct auth_op *op)
{
    *op->at = op->next;
    if (op->next)
        op->next->at = op->at;
    op->free(op);
}

/* last uses */

static void flush_uses(void *arg)
{
    struct auth *a = arg;
    struct store_key_use uses[USES_AT_ONCE];
    size_t n;

    while ((n = keycache_take_uses(a->cache, uses, USES_AT_ONCE)) > 0)
        store_key_touch(a->store, uses, n, NULL, NULL); /* a use that is not noted harms nobody */
}

static void note_use(struct auth *a, struct keycache_entry *e, uint64_t now_ns, uint64_t now_ms)
{
    e->touched_ns = now_ns;
    e->last_used_ms = max_u64(e->last_used_ms, now_ms);
    if (!a->uses.slot)
        ev_timer_set(a->ev, &a->uses, ev_now(a->ev) + USES_EVERY, flush_uses, a);
}

/* life */

int auth_new(struct ev *ev, struct store *st, const struct auth_settings *set, struct auth **ret, struct err *err)
{
    static const char *const defaults[AUTH_CLASS_COUNT] = { AUTH_RATE_DEFAULT, AUTH_RATE_CREATE, AUTH_RATE_EXECUTE };
    struct ratelimit_rule rules[AUTH_CLASS_COUNT];

    for (size_t i = 0; i < AUTH_CLASS_COUNT; i++)
        if (ratelimit_parse(set->rate[i] ? set->rate[i] : defaults[i], &rules[i], err) < 0)
            return -1;
    struct auth *a = mem_new(struct auth);
    a->ev = ev;
    a->store = st;
    a->owner_uid = set->owner_uid;
    a->on_revoked = set->on_revoked;
    a->arg = set->arg;
    memcpy(a->rules, rules, sizeof(rules));
    a->cache = keycache_new();
    a->throttle = throttle_new();
    a->tickets = tickets_new();
    if (set->pepper)
        memcpy(a->pepper, set->pepper, SEAL_LEN);
    else
        seal_random(a->pepper);
    auth_seal_load(a);
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    flush_uses(a);
    ev_timer_clear(a->ev, &a->uses);
    while (a->ops) {
        store_forget(a->ops->call);
        auth_op_end(a->ops);
    }
    keycache_free(a->cache);
    throttle_free(a->throttle);
    tickets_free(a->tickets);
    seal_wipe(&a->seal);
    free(a);
}

/* principals */

int principal_require(const struct principal *p, uint32_t scopes, struct err *err)
{
    uint32_t missing = scopes & ~p->scopes;

    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (missing & (1u << i))
            return err_set(err, ERR_DENIED, "this key lacks the scope %s", scope_name(i));
    return 0;
}

static struct principal local_principal(void)
{
    return (struct principal){ .kind = PRINCIPAL_LOCAL, .owner = AUTH_LOCAL_OWNER, .scopes = SCOPE_ALL };
}

static enum auth_verdict believe(struct auth *a, struct keycache_entry *e, uint64_t now_ns, uint64_t now_ms,
                                 struct principal *ret, struct err *err)
{
    if (e->expires_ms && now_ms >= e->expires_ms) {
        err_set(err, ERR_UNAUTHORIZED, "the key has expired");
        return AUTH_NO;
    }
    if (e->disabled) {
        err_set(err, ERR_UNAUTHORIZED, "the user of this key is disabled");
        return AUTH_NO;
    }
    if (e->suspended) {
        err_set(err, ERR_TENANT_SUSPENDED, "the tenant %s is suspended", e->owner);
        return AUTH_NO;
    }
    *ret = (struct principal){ .kind = PRINCIPAL_KEY, .scopes = e->scopes, .expires_ms = e->expires_ms };
    str_copy(ret->user, sizeof(ret->user), e->user);
    str_copy(ret->key_id, sizeof(ret->key_id), e->id);
    str_copy(ret->owner, sizeof(ret->owner), e->owner);
    memcpy(ret->hash, e->hash, STORE_HASH_LEN);
    note_use(a, e, now_ns, now_ms);
    return AUTH_YES;
}

static enum auth_verdict refuse(struct err *err)
{
    err_set(err, ERR_UNAUTHORIZED, "the key is not valid"); /* the same for every reason */
    return AUTH_NO;
}

/* looking up */

static void check_free(struct auth_op *op)
{
    struct auth_check *c = container_of(op, struct auth_check, op);

    free(c->peer);
    free(c);
}

void auth_check_forget(struct auth_check *c)
{
    c->done = NULL;
}

static enum auth_verdict believe_pass(struct auth *a, struct keycache_entry *e, const struct auth_check *c,
                                      struct principal *ret, struct err *err)
{
    enum auth_verdict verdict = believe(a, e, c->now_ns, c->now_ms, ret, err);

    if (verdict == AUTH_YES && c->kind != PRINCIPAL_KEY && auth_narrow(&c->pass, c->kind, ret, err) < 0)
        return AUTH_NO;
    return verdict;
}

static void on_looked_up(void *arg, const struct err *failed, const struct store_login *row)
{
    struct auth_check *c = arg;
    struct auth *a = c->op.auth;
    struct principal p = { 0 };
    struct err err = { 0 };
    enum auth_verdict verdict = AUTH_NO;

    if (failed && failed->id != ERR_MISSING) {
        err = *failed;
    } else if (failed || row->key.revoked_ms || !row->member) {
        keycache_put_wrong(a->cache, c->hash, c->now_ns);
        if (c->kind == PRINCIPAL_KEY)
            throttle_failed(a->throttle, c->peer, c->now_ns);
        if (!failed)
            keycache_drop_id(a->cache, row->key.id);
        refuse(&err);
    } else {
        struct store_key_use lost;
        struct keycache_entry *e = keycache_put(a->cache, row, c->now_ns, &lost);

        if (lost.at_ms)
            store_key_touch(a->store, &lost, 1, NULL, NULL);
        verdict = believe_pass(a, e, c, &p, &err);
    }
    if (c->done)
        c->done(c->arg, verdict == AUTH_YES ? NULL : &err, verdict == AUTH_YES ? &p : NULL);
    auth_op_end(&c->op);
}

/* --- what a request shows --- */

struct ask { /* one call of auth_check */
    struct auth *a;
    const struct auth_request *req;
    struct principal *ret;
    uint64_t *retry_ns;
    struct err *err;
    auth_done_fn *done;
    void *arg;
    struct auth_check **ret_later;
};

static enum auth_verdict look_up(const struct ask *q, const uint8_t hash[STORE_HASH_LEN], enum principal_kind kind,
                                 const struct pass *g)
{
    struct auth_check *c = mem_new(struct auth_check);

    auth_op_begin(q->a, &c->op, check_free);
    c->kind = kind;
    if (g)
        c->pass = *g;
    memcpy(c->hash, hash, STORE_HASH_LEN);
    c->now_ns = q->req->now_ns;
    c->now_ms = q->req->now_ms;
    c->peer = q->req->peer ? str_dup(q->req->peer) : NULL;
    c->done = q->done;
    c->arg = q->arg;
    c->op.call = store_login_by_hash(q->a->store, hash, on_looked_up, c);
    *q->ret_later = c;
    return AUTH_LATER;
}

static enum auth_verdict too_many_wrong(const struct ask *q)
{
    err_set(q->err, ERR_RATE_LIMITED, "too many wrong keys came from this address");
    return AUTH_NO;
}

static enum auth_verdict check_key(const struct ask *q, const uint8_t hash[STORE_HASH_LEN])
{
    struct auth *a = q->a;
    struct keycache_entry *e = keycache_find(a->cache, hash);

    if (e && !e->stale && q->req->now_ns - e->checked_ns < KEYCACHE_FRESH_NS)
        return believe(a, e, q->req->now_ns, q->req->now_ms, q->ret, q->err);
    if (!e && !throttle_may_try(a->throttle, q->req->peer, q->req->now_ns, q->retry_ns))
        return too_many_wrong(q);
    if (!e && keycache_is_wrong(a->cache, hash, q->req->now_ns)) {
        throttle_failed(a->throttle, q->req->peer, q->req->now_ns);
        return refuse(q->err);
    }
    return look_up(q, hash, PRINCIPAL_KEY, NULL);
}

/* --- what was handed out: its maker is asked for, as if they had come themselves --- */

/* Somebody made it up, or changed it. */
static enum auth_verdict forged(const struct ask *q)
{
    if (!throttle_may_try(q->a->throttle, q->req->peer, q->req->now_ns, q->retry_ns))
        return too_many_wrong(q);
    throttle_failed(q->a->throttle, q->req->peer, q->req->now_ns);
    return refuse(q->err);
}

static enum auth_verdict check_pass(const struct ask *q, enum principal_kind kind, const struct pass *g)
{
    struct auth *a = q->a;
    struct auth_check c = { .kind = kind, .pass = *g, .now_ns = q->req->now_ns, .now_ms = q->req->now_ms };

    if (g->expires_ms && q->req->now_ms >= g->expires_ms) {
        err_set(q->err, ERR_UNAUTHORIZED, "the token or signature has expired");
        return AUTH_NO;
    }
    if (g->by == PASS_BY_LOCAL) {
        *q->ret = local_principal();
        return auth_narrow(g, kind, q->ret, q->err) < 0 ? AUTH_NO : AUTH_YES;
    }
    struct keycache_entry *e = keycache_find(a->cache, g->key);
    if (e && !e->stale && q->req->now_ns - e->checked_ns < KEYCACHE_FRESH_NS)
        return believe_pass(a, e, &c, q->ret, q->err);
    return look_up(q, g->key, kind, g);
}

static enum auth_verdict check_ticket(const struct ask *q)
{
    const struct auth_request *r = q->req;
    struct pass g;

    if (!tickets_take(q->a->tickets, r->ticket, r->method, r->path, r->now_ns, &g))
        return forged(q);
    return check_pass(q, PRINCIPAL_TICKET, &g);
}

static enum auth_verdict check_sealed(const struct ask *q, enum pass_kind kind, const char *bound, const char *text)
{
    struct pass g;

    if (!q->a->sealed) {
        err_set(q->err, ERR_BUSY, "the server is starting");
        return AUTH_NO;
    }
    if (!pass_read(&q->a->seal, kind, bound, text, &g))
        return forged(q);
    return check_pass(q, kind == PASS_FILE_URL ? PRINCIPAL_SIGNED : PRINCIPAL_SANDBOX_TOKEN, &g);
}

static enum auth_verdict check_signature(const struct ask *q)
{
    auto_free char *bound = pass_bound(q->req->method, q->req->file ? q->req->file : "");

    return check_sealed(q, PASS_FILE_URL, bound, q->req->signature);
}

static enum auth_verdict check_headers(const struct ask *q)
{
    const struct auth_request *r = q->req;
    const char *bearer = r->authorization ? apikey_bearer(r->authorization) : NULL;
    uint8_t hash[STORE_HASH_LEN];

    if (bearer && !r->x_api_key && str_starts(bearer, PASS_TOKEN_PREFIX))
        return check_sealed(q, PASS_SANDBOX_TOKEN, NULL, bearer);
    switch (apikey_from_headers(r->authorization, r->x_api_key, hash)) {
    case APIKEY_NONE:
        if (r->over_socket && (r->peer_uid == 0 || r->peer_uid == q->a->owner_uid)) {
            *q->ret = local_principal();
            return AUTH_YES;
        }
        err_set(q->err, ERR_UNAUTHORIZED, "no key was sent");
        return AUTH_NO;
    case APIKEY_BAD:
        return refuse(q->err);
    case APIKEY_OK:
        break;
    }
    return check_key(q, hash);
}

enum auth_verdict auth_check(struct auth *a, const struct auth_request *req, struct principal *ret, uint64_t *retry_ns,
                             struct err *err, auth_done_fn *done, void *arg, struct auth_check **ret_later)
{
    struct ask q = { a, req, ret, retry_ns, err, done, arg, ret_later };
    int shown = (req->authorization || req->x_api_key) + (req->ticket != NULL) + (req->signature != NULL);

    *retry_ns = 0;
    if (shown > 1) {
        err_set(err, ERR_UNAUTHORIZED, "more than one credential was sent");
        return AUTH_NO;
    }
    if (req->ticket)
        return check_ticket(&q);
    if (req->signature)
        return check_signature(&q);
    return check_headers(&q);
}

bool auth_rate(struct auth *a, const struct principal *p, enum auth_class class, uint64_t now_ns,
               struct ratelimit_answer *ret)
{
    struct keycache_entry *e = principal_local(p) ? NULL : keycache_find(a->cache, p->hash);

    if (principal_local(p)) {
        *ret = (struct ratelimit_answer){ 0 };
        return true;
    }
    return ratelimit_take(&a->rules[class], e ? &e->buckets[class] : &a->others[class], now_ns, ret);
}
