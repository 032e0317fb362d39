/* A request with an Idempotency-Key is carried out once.
 *
 * What the key claims is the id of the thing that the request makes, chosen before anything is made; a sandbox that was
 * made ahead has its own, and the claim is corrected before there is a row of it. So nothing has to
 * be remembered of an answer: who asks again is shown the thing itself, as it is now. A claim without its thing was
 * made by a request that is still under way, or by one that a kill cut off. The latter is as good as new: at once after
 * a restart, since nobody else can be at it, and otherwise after a while. A sandbox that a kill ended before it ever
 * ran is no thing to show either; its claim is given up for a new one. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/context.h"

#include <openssl/evp.h>

#define KEY_MAX 100u
#define UNDER_WAY_MS 60000u

struct claim {
    struct http_req *req;
    struct api *api;
    idem_fn *fn;
    void *arg;
    void (*dropped)(void *arg);
    uint8_t hash[STORE_HASH_LEN];
    char id[ID_SIZE];
    uint64_t now_ms, claimed_ms;
    const char *key, *kind;
};

static bool key_ok(const char *key)
{
    size_t n = strlen(key);

    return n >= 1 && n <= KEY_MAX &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static void hash_request(const struct http_req *req, uint8_t ret[STORE_HASH_LEN])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    size_t len;
    const char *body = http_body(req, &len);

    if (!ctx || EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) != 1 ||
        EVP_DigestUpdate(ctx, http_path(req), strlen(http_path(req)) + 1) != 1 ||
        EVP_DigestUpdate(ctx, body, len) != 1 || EVP_DigestFinal_ex(ctx, ret, NULL) != 1)
        abort();
    EVP_MD_CTX_free(ctx);
}

static void refuse(struct claim *c, const struct err *err)
{
    c->dropped(c->arg);
    http_answer_err(c->req, err);
    free(c);
}

static const char *target_of(const char *id)
{
    return str_starts(id, "sb") ? "sandbox" : str_starts(id, "cx") ? "context" : "execution";
}

static void go(struct claim *c, bool fresh)
{
    struct claim copy = *c;

    free(c);
    if (fresh && str_starts(copy.id, "sb")) {
        copy.fn(copy.req, copy.api, true, copy.id, copy.arg); /* idem_named follows */
        return;
    }
    api_audit_target(copy.req, target_of(copy.id), copy.id);
    if (fresh)
        api_audit_begin(copy.req);
    else
        http_set_header(copy.req, "Idempotency-Replayed", "true");
    copy.fn(copy.req, copy.api, fresh, copy.id, copy.arg);
}

static void refuse_under_way(struct claim *c)
{
    struct err why;

    http_set_header(c->req, "Retry-After", "1"); /* this refusal is for now, the other one for good */
    err_set(&why, ERR_IDEMPOTENCY, "the first request with this Idempotency-Key is still being worked on");
    refuse(c, &why);
}

/* A clock that was set back or forth must not keep a claim under way for ever. */
static bool under_way(const struct claim *c)
{
    uint64_t apart = c->now_ms > c->claimed_ms ? c->now_ms - c->claimed_ms : c->claimed_ms - c->now_ms;

    return c->claimed_ms >= c->api->started_ms && apart < UNDER_WAY_MS;
}

static void found_thing(struct claim *c, const struct err *err)
{
    if (!err)
        go(c, false);
    else if (err->id != ERR_MISSING)
        refuse(c, err);
    else if (under_way(c))
        refuse_under_way(c);
    else
        go(c, true);
}

static void claim_key(struct claim *c);

static void on_given_up(void *arg, const struct err *err)
{
    if (err)
        refuse(arg, err);
    else
        claim_key(arg);
}

static void on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct claim *c = arg;

    if (!err && row->state == STORE_SB_CREATING)
        refuse_under_way(c);
    else if (!err && row->state == STORE_SB_ENDED && !row->expires_ms)
        store_idem_drop(c->api->set.store, api_owner(c->req), c->key, row->id, on_given_up, c);
    else
        found_thing(c, err);
}

static void on_execution(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    found_thing(arg, err);
}

/* Contexts are no rows: the sandbox knows those that live. */
static void find_context(struct claim *c)
{
    struct context_info all[CONTEXTS_MAX];
    struct err err = { 0 };
    size_t n = 0, i = 0;

    if (manager_contexts(c->api->set.manager, api_sees(c->req), http_param(c->req, "sandboxId"), all, &n, &err) < 0) {
        found_thing(c, &err);
        return;
    }
    while (i < n && !str_eq(all[i].id, c->id))
        i++;
    if (i == n)
        err_set(&err, ERR_MISSING, "there is no such context");
    if (i < n && all[i].state == CONTEXT_STARTING)
        refuse_under_way(c);
    else
        found_thing(c, i < n ? NULL : &err);
}

static void on_claim(void *arg, const struct err *err, bool fresh, const struct store_idem *row)
{
    struct claim *c = arg;
    struct err why;

    if (err) {
        refuse(c, err);
        return;
    }
    if (fresh) {
        go(c, true);
        return;
    }
    if (memcmp(row->request_hash, c->hash, sizeof(c->hash)) != 0) {
        err_set(&why, ERR_IDEMPOTENCY, "this Idempotency-Key was used with another request");
        refuse(c, &why);
        return;
    }
    memcpy(c->id, row->resource, sizeof(c->id));
    c->claimed_ms = row->at_ms;
    if (str_starts(c->id, "sb"))
        store_sandbox_get(c->api->set.store, api_sees(c->req), c->id, on_sandbox, c);
    else if (str_starts(c->id, "cx"))
        find_context(c);
    else
        store_execution_get(c->api->set.store, api_sees(c->req), c->id, on_execution, c);
}

static void claim_key(struct claim *c)
{
    struct store_idem row = { .key = (char *)c->key, .at_ms = c->now_ms };

    id_new(c->kind, c->id);
    memcpy(row.request_hash, c->hash, sizeof(row.request_hash));
    memcpy(row.resource, c->id, sizeof(row.resource));
    str_copy(row.owner, sizeof(row.owner), api_owner(c->req));
    store_idem_claim(c->api->set.store, &row, on_claim, c);
}

void idem_begin(struct http_req *req, struct api *api, const char kind[2], idem_fn *fn, void *arg,
                void (*dropped)(void *arg))
{
    const char *key = http_header(req, "Idempotency-Key");
    struct claim *c = mem_new(struct claim);
    struct err err;

    *c = (struct claim){ .req = req, .api = api, .fn = fn, .arg = arg, .dropped = dropped, .key = key, .kind = kind };
    c->now_ms = clock_real_ns() / NS_PER_MS;
    if (!key) {
        id_new(kind, c->id);
        go(c, true);
        return;
    }
    if (!key_ok(key)) {
        err_set(&err, ERR_INVALID, "Idempotency-Key: it has 1 to %u letters, digits, '.', '_' and '-'", KEY_MAX);
        refuse(c, &err);
        return;
    }
    hash_request(req, c->hash);
    claim_key(c);
}

static void on_renamed(void *arg UNUSED, const struct err *err)
{
    if (err) /* who asks again is told that it is being worked on, and then gets another */
        log_warn("an idempotency key does not name what it made: %s", err->msg);
}

void idem_named(struct http_req *req, struct api *api, const char *id, const char *now)
{
    const char *key = http_header(req, "Idempotency-Key");

    if (key && !str_eq(id, now))
        store_idem_rename(api->set.store, api_owner(req), key, id, now, on_renamed, NULL);
    api_audit_target(req, "sandbox", now);
    api_audit_begin(req);
}

static void on_dropped(void *arg UNUSED, const struct err *err UNUSED)
{
}

void idem_undo(struct http_req *req, struct api *api, const struct err *why)
{
    const char *key = http_header(req, "Idempotency-Key");

    if (key && why->id != ERR_IDEMPOTENCY) /* that is another's, who is still at it */
        store_idem_drop(api->set.store, api_owner(req), key, NULL, on_dropped, NULL);
}
