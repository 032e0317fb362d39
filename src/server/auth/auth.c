/* Authentication of a request.
 *
 * The credential of a request is a key, a delegated token (delegated_token.h) or a token of the
 * trusted issuer (jwt_login.c). For a delegated token the delegator's key is looked up in the same
 * way, and its scopes are restricted to the delegated part.
 *
 * A key is looked up by the hash of its text, first in the cache, then in the store. The answer of
 * the store is valid for KEYCACHE_FRESH_NS, so a key that another process revoked becomes invalid
 * within that time; a key that is revoked here becomes invalid at once.
 *
 * Invalid keys are throttled per address (throttle.h). The throttle is consulted only if the key is
 * not in the cache, so a flood from an address never locks out a cached key from the same address.
 * A few keys per second that are not cached are looked up even from a throttled address: a valid
 * key gets access, and only invalid ones wait.
 *
 * Last uses of keys are collected and written after KEY_USES_QUIET_NS without a request, or at the
 * latest after KEY_USES_MAX_WAIT_NS: an idle server writes at once and needs no later wake-up. */
#include "server/auth/auth_internal.h"

#include "server/auth/apikey.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define KEY_USES_MAX_WAIT_NS (30 * NS_PER_S)
#define KEY_USES_QUIET_NS (1 * NS_PER_S)
#define KEY_USES_BATCH 256u

/* operations in progress */

void auth_op_begin(struct auth *a, struct auth_op *op, void (*free)(struct auth_op *))
{
    *op = (struct auth_op){ .auth = a, .free = free };
    linked_push(&a->ops, op);
}

void auth_op_end(struct auth_op *op)
{
    linked_remove(op);
    op->free(op);
}

/* last uses of keys */

static void auth_flush_key_uses(void *arg)
{
    struct auth *a = arg;
    struct store_key_use uses[KEY_USES_BATCH];
    size_t n;

    while ((n = keycache_take_uses(a->cache, uses, KEY_USES_BATCH)) > 0)
        store_key_touch(a->store, uses, n, NULL, NULL); /* a lost time stamp does no harm */
}

static void auth_on_uses_timer(void *arg)
{
    struct auth *a = arg;
    uint64_t due = min_u64(a->last_use_ns + KEY_USES_QUIET_NS, a->first_use_ns + KEY_USES_MAX_WAIT_NS);

    if (ev_now(a->ev) < due)
        ev_timer_set(a->ev, &a->uses_timer, due, auth_on_uses_timer, a);
    else
        auth_flush_key_uses(a);
}

static void auth_record_key_use(struct auth *a, struct keycache_entry *e, uint64_t now_ns, uint64_t now_ms)
{
    e->touched_ns = now_ns;
    if (!id_valid(e->id, "ky"))
        return; /* a principal without a key */
    e->last_used_ms = max_u64(e->last_used_ms, now_ms);
    a->last_use_ns = ev_now(a->ev);
    if (!a->uses_timer.slot) {
        a->first_use_ns = a->last_use_ns;
        ev_timer_set(a->ev, &a->uses_timer, a->last_use_ns + KEY_USES_QUIET_NS, auth_on_uses_timer, a);
    }
}

/* construction */

int auth_new(struct ev *ev, struct store *st, const struct auth_settings *set, struct auth **ret, struct err *err)
{
    struct ratelimit_rule rules[AUTH_CLASS_COUNT];

    for (size_t i = 0; i < AUTH_CLASS_COUNT; i++)
        if (ratelimit_parse(set->rate[i] ? set->rate[i] : "none", &rules[i], err) < 0)
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
        memcpy(a->pepper, set->pepper, MAC_LEN);
    else
        mac_random_bytes(a->pepper);
    if (set->jwt && issuer_new(ev, set->jwt, &a->issuer, err) < 0) {
        auth_free(a);
        return -1;
    }
    str_copy(a->jwt_tenant, sizeof(a->jwt_tenant), set->jwt_tenant ? set->jwt_tenant : AUTH_LOCAL_OWNER);
    str_copy(a->jwt_role, sizeof(a->jwt_role), set->jwt_role ? set->jwt_role : "");
    delegation_load_salt(a);
    *ret = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    auth_flush_key_uses(a);
    ev_timer_clear(a->ev, &a->uses_timer);
    issuer_free(a->issuer);
    while (a->ops) {
        if (a->ops->call)
            store_request_detach(a->ops->call);
        auth_op_end(a->ops);
    }
    keycache_free(a->cache);
    throttle_free(a->throttle);
    tickets_free(a->tickets);
    mac_key_wipe(&a->mac_key);
    free(a);
}

/* principals */

int principal_require(const struct principal *p, uint32_t scopes, struct err *err)
{
    uint32_t missing = scopes & ~p->scopes;

    for (unsigned i = 0; i < SCOPE_COUNT; i++)
        if (missing & (1u << i))
            return err_set(err, ERR_DENIED, "this key lacks the scope %s; use a key that has it", scope_name(i));
    return 0;
}

static struct principal principal_make_local(void)
{
    return (struct principal){ .kind = PRINCIPAL_LOCAL, .owner = AUTH_LOCAL_OWNER, .scopes = SCOPE_ALL };
}

static enum auth_verdict auth_principal_from_entry(struct auth *a, struct keycache_entry *e, uint64_t now_ns,
                                                   uint64_t now_ms, struct principal *ret, struct err *err)
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
    auth_record_key_use(a, e, now_ns, now_ms);
    return AUTH_YES;
}

static enum auth_verdict auth_refuse_throttled(struct err *err)
{
    err_set(err, ERR_RATE_LIMITED, "too many invalid keys from this address");
    return AUTH_NO;
}

enum auth_verdict auth_refuse_credential(struct err *err)
{
    err_set(err, ERR_UNAUTHORIZED, "the key is not valid"); /* the same message for every reason */
    return AUTH_NO;
}

/* look-up */

static void auth_check_free(struct auth_op *op)
{
    struct auth_check *c = container_of(op, struct auth_check, op);

    free(c->peer);
    if (c->token)
        explicit_bzero(c->token, strlen(c->token));
    free(c->token);
    free(c);
}

struct auth_check *auth_check_begin(const struct auth_check_args *q, enum principal_kind kind,
                                    const struct delegated_token *p)
{
    struct auth_check *c = mem_new(struct auth_check);

    auth_op_begin(q->a, &c->op, auth_check_free);
    c->kind = kind;
    c->is_delegated = p != NULL;
    if (p)
        c->token_claims = *p;
    c->now_ns = q->req->now_ns;
    c->now_ms = q->req->now_ms;
    c->peer = q->req->peer ? str_dup(q->req->peer) : NULL;
    c->done = q->done;
    c->arg = q->arg;
    return c;
}

void auth_check_cancel(struct auth_check *c)
{
    c->done = NULL;
}

void auth_check_end(struct auth_check *c, const struct err *err, const struct principal *p)
{
    if (c->done)
        c->done(c->arg, err, err ? NULL : p);
    auth_op_end(&c->op);
}

enum auth_verdict auth_accept_entry(const struct auth_check *c, struct keycache_entry *e, struct principal *ret,
                                    struct err *err)
{
    enum auth_verdict verdict = auth_principal_from_entry(c->op.auth, e, c->now_ns, c->now_ms, ret, err);

    if (verdict == AUTH_YES && c->is_delegated && auth_restrict_to_token(&c->token_claims, c->kind, ret, err) < 0)
        return AUTH_NO;
    return verdict;
}

static void auth_on_key_row(void *arg, const struct err *failed, const struct store_login *row)
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
        if (!c->is_delegated && !c->is_throttled)
            throttle_record_failure(a->throttle, c->peer, c->now_ns);
        if (!failed)
            keycache_drop_id(a->cache, row->key.id);
        (void)(c->is_throttled ? auth_refuse_throttled(&err) : auth_refuse_credential(&err));
    } else {
        struct store_key_use lost;
        struct keycache_entry *e = keycache_put(a->cache, row, c->now_ns, &lost);

        if (lost.at_ms)
            store_key_touch(a->store, &lost, 1, NULL, NULL);
        verdict = auth_accept_entry(c, e, &p, &err);
    }
    auth_check_end(c, verdict == AUTH_YES ? NULL : &err, &p);
}

/* Looks up the hash of a key: the key of the request, or the delegator's key of a delegated
 * token. */
static enum auth_verdict auth_look_up_key(const struct auth_check_args *q, const uint8_t hash[STORE_HASH_LEN],
                                          enum principal_kind kind, const struct delegated_token *p)
{
    struct auth_check *c = auth_check_begin(q, kind, p);
    struct keycache_entry *e = keycache_find(q->a->cache, hash);

    memcpy(c->hash, hash, STORE_HASH_LEN);
    if (e && !e->stale && c->now_ns - e->checked_ns < KEYCACHE_FRESH_NS) {
        enum auth_verdict verdict = auth_accept_entry(c, e, q->ret, q->err);

        auth_op_end(&c->op);
        return verdict;
    }
    c->op.call = store_login_by_hash(q->a->store, hash, auth_on_key_row, c);
    *q->ret_later = c;
    return AUTH_LATER;
}

/* credentials of a request */

bool auth_count_failed_attempt(const struct auth_check_args *q)
{
    if (!throttle_may_try(q->a->throttle, q->req->peer, q->req->now_ns, q->retry_ns)) {
        (void)auth_refuse_throttled(q->err);
        return false;
    }
    throttle_record_failure(q->a->throttle, q->req->peer, q->req->now_ns);
    return true;
}

static enum auth_verdict auth_check_key(const struct auth_check_args *q, const uint8_t hash[STORE_HASH_LEN])
{
    struct auth *a = q->a;

    if (keycache_find(a->cache, hash))
        return auth_look_up_key(q, hash, PRINCIPAL_KEY, NULL);
    if (keycache_is_wrong(a->cache, hash, q->req->now_ns))
        return auth_count_failed_attempt(q) ? auth_refuse_credential(q->err) : AUTH_NO;
    bool late = !throttle_may_try(a->throttle, q->req->peer, q->req->now_ns, q->retry_ns);
    if (late && !throttle_may_look_up(a->throttle, q->req->now_ns))
        return auth_refuse_throttled(q->err);
    enum auth_verdict verdict = auth_look_up_key(q, hash, PRINCIPAL_KEY, NULL);
    if (verdict == AUTH_LATER)
        (*q->ret_later)->is_throttled = late;
    return verdict;
}

/* delegated tokens: the delegator is looked up as if it had sent the request */

/* For a credential that was forged or modified. */
static enum auth_verdict auth_refuse_forged(const struct auth_check_args *q)
{
    return auth_count_failed_attempt(q) ? auth_refuse_credential(q->err) : AUTH_NO;
}

static enum auth_verdict auth_check_delegated_token(const struct auth_check_args *q, enum principal_kind kind,
                                                    const struct delegated_token *p)
{
    if (p->expires_ms && q->req->now_ms >= p->expires_ms) {
        err_set(q->err, ERR_UNAUTHORIZED, "the token or signature has expired");
        return AUTH_NO;
    }
    switch (p->delegator) {
    case DELEGATOR_LOCAL:
        *q->ret = principal_make_local();
        return auth_restrict_to_token(p, kind, q->ret, q->err) < 0 ? AUTH_NO : AUTH_YES;
    case DELEGATOR_USER:
        return auth_check_delegated_user(q, kind, p);
    default:
        if (keycache_is_wrong(q->a->cache, p->key_hash, q->req->now_ns))
            return auth_refuse_credential(q->err); /* the delegator is gone: the store was queried a moment ago */
        return auth_look_up_key(q, p->key_hash, kind, p);
    }
}

static enum auth_verdict auth_check_ticket(const struct auth_check_args *q)
{
    const struct auth_request *r = q->req;
    struct delegated_token g;

    if (!tickets_take(q->a->tickets, r->ticket, r->method, r->path, r->now_ns, &g))
        return auth_refuse_forged(q);
    return auth_check_delegated_token(q, PRINCIPAL_TICKET, &g);
}

static enum auth_verdict auth_check_signed_text(const struct auth_check_args *q, enum delegated_token_kind kind,
                                                const char *bound, const char *text)
{
    struct delegated_token g;

    if (!q->a->mac_key_ready) {
        err_set(q->err, ERR_BUSY, "the server is starting; try again in a moment");
        return AUTH_NO;
    }
    if (!delegated_token_read(&q->a->mac_key, kind, bound, text, &g))
        return auth_refuse_forged(q);
    return auth_check_delegated_token(q, kind == DELEGATED_FILE_URL ? PRINCIPAL_SIGNED : PRINCIPAL_SANDBOX_TOKEN, &g);
}

static enum auth_verdict auth_check_url_signature(const struct auth_check_args *q)
{
    auto_free char *bound = delegated_token_url_binding(q->req->method, q->req->file ? q->req->file : "");

    return auth_check_signed_text(q, DELEGATED_FILE_URL, bound, q->req->signature);
}

static enum auth_verdict auth_check_headers(const struct auth_check_args *q)
{
    const struct auth_request *r = q->req;
    const char *bearer = r->authorization ? apikey_bearer(r->authorization) : NULL;
    uint8_t hash[STORE_HASH_LEN];

    if (bearer && !r->x_api_key && str_starts(bearer, DELEGATED_TOKEN_PREFIX))
        return auth_check_signed_text(q, DELEGATED_SANDBOX_TOKEN, NULL, bearer);
    if (bearer && !r->x_api_key && q->a->issuer && strchr(bearer, '.'))
        return auth_check_jwt(q, bearer);
    switch (apikey_from_headers(r->authorization, r->x_api_key, hash)) {
    case APIKEY_NONE:
        if (r->over_socket && (r->peer_uid == 0 || r->peer_uid == q->a->owner_uid)) {
            *q->ret = principal_make_local();
            return AUTH_YES;
        }
        err_set(q->err, ERR_UNAUTHORIZED, "no key was sent");
        return AUTH_NO;
    case APIKEY_BAD:
        return auth_refuse_credential(q->err);
    case APIKEY_OK:
        break;
    }
    return auth_check_key(q, hash);
}

enum auth_verdict auth_check(struct auth *a, const struct auth_request *req, struct principal *ret, uint64_t *retry_ns,
                             struct err *err, auth_done_fn *done, void *arg, struct auth_check **ret_later)
{
    struct auth_check_args q = { a, req, ret, retry_ns, err, done, arg, ret_later };
    int shown = (req->authorization || req->x_api_key) + (req->ticket != NULL) + (req->signature != NULL);

    *retry_ns = 0;
    if (shown > 1) {
        err_set(err, ERR_UNAUTHORIZED, "more than one credential was sent");
        return AUTH_NO;
    }
    if (req->ticket)
        return auth_check_ticket(&q);
    if (req->signature)
        return auth_check_url_signature(&q);
    return auth_check_headers(&q);
}

bool auth_rate_take(struct auth *a, const struct principal *p, enum auth_class class, uint64_t now_ns,
                    struct ratelimit_answer *ret)
{
    struct keycache_entry *e = principal_is_local(p) ? NULL : keycache_find(a->cache, p->hash);

    if (principal_is_local(p)) {
        *ret = (struct ratelimit_answer){ 0 };
        return true;
    }
    return ratelimit_take(&a->rules[class], e ? &e->buckets[class] : &a->local_delegated_buckets[class], now_ns, ret);
}
