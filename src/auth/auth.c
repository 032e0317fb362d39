/* The check of a request.
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
        throttle_failed(a->throttle, c->peer, c->now_ns);
        if (!failed)
            keycache_drop_id(a->cache, row->key.id);
        refuse(&err);
    } else {
        struct store_key_use lost;
        struct keycache_entry *e = keycache_put(a->cache, row, c->now_ns, &lost);

        if (lost.at_ms)
            store_key_touch(a->store, &lost, 1, NULL, NULL);
        verdict = believe(a, e, c->now_ns, c->now_ms, &p, &err);
    }
    if (c->done)
        c->done(c->arg, verdict == AUTH_YES ? NULL : &err, verdict == AUTH_YES ? &p : NULL);
    auth_op_end(&c->op);
}

static struct auth_check *look_up(struct auth *a, const struct auth_request *req, const uint8_t hash[STORE_HASH_LEN],
                                  auth_done_fn *done, void *arg)
{
    struct auth_check *c = mem_new(struct auth_check);

    auth_op_begin(a, &c->op, check_free);
    memcpy(c->hash, hash, STORE_HASH_LEN);
    c->now_ns = req->now_ns;
    c->now_ms = req->now_ms;
    c->peer = req->peer ? str_dup(req->peer) : NULL;
    c->done = done;
    c->arg = arg;
    c->op.call = store_login_by_hash(a->store, hash, on_looked_up, c);
    return c;
}

enum auth_verdict auth_check(struct auth *a, const struct auth_request *req, struct principal *ret, uint64_t *retry_ns,
                             struct err *err, auth_done_fn *done, void *arg, struct auth_check **ret_later)
{
    uint8_t hash[STORE_HASH_LEN];

    *retry_ns = 0;
    switch (apikey_from_headers(req->authorization, req->x_api_key, hash)) {
    case APIKEY_NONE:
        if (req->over_socket && (req->peer_uid == 0 || req->peer_uid == a->owner_uid)) {
            *ret = local_principal();
            return AUTH_YES;
        }
        err_set(err, ERR_UNAUTHORIZED, "no key was sent");
        return AUTH_NO;
    case APIKEY_BAD:
        return refuse(err);
    case APIKEY_OK:
        break;
    }
    struct keycache_entry *e = keycache_find(a->cache, hash);
    if (e && !e->stale && req->now_ns - e->checked_ns < KEYCACHE_FRESH_NS)
        return believe(a, e, req->now_ns, req->now_ms, ret, err);
    if (!e && !throttle_may_try(a->throttle, req->peer, req->now_ns, retry_ns)) {
        err_set(err, ERR_RATE_LIMITED, "too many wrong keys came from this address");
        return AUTH_NO;
    }
    if (!e && keycache_is_wrong(a->cache, hash, req->now_ns)) {
        throttle_failed(a->throttle, req->peer, req->now_ns);
        return refuse(err);
    }
    *ret_later = look_up(a, req, hash, done, arg);
    return AUTH_LATER;
}

bool auth_rate(struct auth *a, const struct principal *p, enum auth_class class, uint64_t now_ns,
               struct ratelimit_answer *ret)
{
    struct keycache_entry *e = principal_local(p) ? NULL : keycache_find(a->cache, p->hash);
    struct ratelimit full = { 0 };

    if (principal_local(p)) {
        *ret = (struct ratelimit_answer){ 0 };
        return true;
    }
    return ratelimit_take(&a->rules[class], e ? &e->buckets[class] : &full, now_ns, ret);
}
