/* A request with an Idempotency-Key is carried out once.
 *
 * The key is bound to the id of the object that the request creates, chosen before the object is
 * created. A sandbox from a pool already has an id; the claim is updated before the sandbox gets a
 * row. No response has to be stored: a repeated request is answered with the current state of the
 * object itself.
 *
 * A claim without its object belongs to a request that is still in progress, or to one that a kill
 * interrupted. An interrupted claim may be carried out again: immediately after a restart of the
 * server, since no other request can be in progress, and otherwise after CLAIM_IN_PROGRESS_MS. A
 * sandbox that was killed before it ever ran does not count as an object; its claim is replaced by
 * a new one. */
#include "server/gateway/idempotency.h"

#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <openssl/evp.h>

#define KEY_MAX 100u
#define CLAIM_IN_PROGRESS_MS 60000u

struct idempotency_claim {
    struct http_req *req;
    struct gateway *gateway;
    idempotency_fn *fn;
    void *arg;
    void (*on_dropped)(void *arg);
    uint8_t request_hash[STORE_HASH_LEN];
    char id[ID_SIZE];
    uint64_t now_ms, claimed_ms;
    const char *key, *kind;
};

static bool idempotency_key_is_valid(const char *key)
{
    size_t n = strlen(key);

    return n >= 1 && n <= KEY_MAX &&
           strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static void idempotency_hash_request(const struct http_req *req, uint8_t ret[STORE_HASH_LEN])
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

static void idempotency_refuse(struct idempotency_claim *c, const struct err *err)
{
    if (c->on_dropped)
        c->on_dropped(c->arg);
    http_answer_err(c->req, err);
    free(c);
}

static const char *idempotency_target_name(const char *id)
{
    return str_starts(id, "sb") ? "sandbox" : str_starts(id, "cx") ? "context" : "execution";
}

static void idempotency_proceed(struct idempotency_claim *c, bool fresh)
{
    struct idempotency_claim copy = *c;

    free(c);
    if (fresh && str_starts(copy.id, "sb")) {
        copy.fn(copy.req, true, copy.id, copy.arg); /* it calls idempotency_set_resource */
        return;
    }
    audit_trail_add_target(copy.req, idempotency_target_name(copy.id), copy.id);
    if (fresh)
        audit_trail_record_accepted(copy.req);
    else
        http_set_header(copy.req, "Idempotency-Replayed", "true");
    copy.fn(copy.req, fresh, copy.id, copy.arg);
}

static void idempotency_refuse_in_progress(struct idempotency_claim *c)
{
    struct err why;

    http_set_header(c->req, "Retry-After", "1"); /* this refusal is temporary, the other one is permanent */
    err_set(&why, ERR_IDEMPOTENCY, "the first request with this Idempotency-Key is still in progress; try again later");
    idempotency_refuse(c, &why);
}

/* Compares the absolute difference: a change of the wall clock must not keep a claim in progress
 * forever. */
static bool idempotency_is_in_progress(const struct idempotency_claim *c)
{
    uint64_t apart = c->now_ms > c->claimed_ms ? c->now_ms - c->claimed_ms : c->claimed_ms - c->now_ms;

    return c->claimed_ms >= c->gateway->started_ms && apart < CLAIM_IN_PROGRESS_MS;
}

static void idempotency_on_resource(struct idempotency_claim *c, const struct err *err)
{
    if (!err)
        idempotency_proceed(c, false);
    else if (err->id != ERR_MISSING)
        idempotency_refuse(c, err);
    else if (idempotency_is_in_progress(c))
        idempotency_refuse_in_progress(c);
    else
        idempotency_proceed(c, true);
}

static void idempotency_claim_key(struct idempotency_claim *c);

static void idempotency_on_claim_dropped(void *arg, const struct err *err)
{
    if (err)
        idempotency_refuse(arg, err);
    else
        idempotency_claim_key(arg);
}

static void idempotency_on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct idempotency_claim *c = arg;

    if (!err && row->state == STORE_SANDBOX_CREATING)
        idempotency_refuse_in_progress(c);
    else if (!err && row->state == STORE_SANDBOX_ENDED && !row->expires_ms)
        store_idem_drop(c->gateway->settings.store, gateway_tenant(c->req), c->key, row->id,
                        idempotency_on_claim_dropped, c);
    else
        idempotency_on_resource(c, err);
}

static void idempotency_on_execution(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    idempotency_on_resource(arg, err);
}

/* Contexts have no rows in the store: the service knows the live ones. */
static void idempotency_find_context(struct idempotency_claim *c)
{
    const struct gateway_hooks *hooks = &c->gateway->settings.hooks;
    bool starting = false;
    struct err err = { 0 };
    int rc = hooks->find_context(hooks->arg, gateway_visible_owner(c->req), http_param(c->req, "sandboxId"), c->id,
                                 &starting, &err);

    if (starting)
        idempotency_refuse_in_progress(c);
    else
        idempotency_on_resource(c, rc < 0 ? &err : NULL);
}

static void idempotency_on_claim(void *arg, const struct err *err, bool fresh, const struct store_idem *row)
{
    struct idempotency_claim *c = arg;
    struct err why;

    if (err) {
        idempotency_refuse(c, err);
        return;
    }
    if (fresh) {
        idempotency_proceed(c, true);
        return;
    }
    if (memcmp(row->request_hash, c->request_hash, sizeof(c->request_hash)) != 0) {
        err_set(&why, ERR_IDEMPOTENCY, "this Idempotency-Key was used with a different request; use a new key");
        idempotency_refuse(c, &why);
        return;
    }
    memcpy(c->id, row->resource, sizeof(c->id));
    c->claimed_ms = row->at_ms;
    if (str_starts(c->id, "sb"))
        store_sandbox_get(c->gateway->settings.store, gateway_visible_owner(c->req), c->id, idempotency_on_sandbox, c);
    else if (str_starts(c->id, "cx"))
        idempotency_find_context(c);
    else
        store_execution_get(c->gateway->settings.store, gateway_visible_owner(c->req), c->id, idempotency_on_execution,
                            c);
}

static void idempotency_claim_key(struct idempotency_claim *c)
{
    struct store_idem row = { .key = (char *)c->key, .at_ms = c->now_ms };

    id_new(c->kind, c->id);
    memcpy(row.request_hash, c->request_hash, sizeof(row.request_hash));
    memcpy(row.resource, c->id, sizeof(row.resource));
    str_copy(row.owner, sizeof(row.owner), gateway_tenant(c->req));
    store_idem_claim(c->gateway->settings.store, &row, idempotency_on_claim, c);
}

void idempotency_begin(struct http_req *req, struct gateway *gateway, const char kind[2], idempotency_fn *fn, void *arg,
                       void (*dropped)(void *arg))
{
    const char *key = http_header(req, "Idempotency-Key");
    struct idempotency_claim *c = mem_new(struct idempotency_claim);
    struct err err;

    *c = (struct idempotency_claim){
        .req = req, .gateway = gateway, .fn = fn, .arg = arg, .on_dropped = dropped, .key = key, .kind = kind
    };
    c->now_ms = clock_real_ms();
    if (!key) {
        id_new(kind, c->id);
        idempotency_proceed(c, true);
        return;
    }
    if (!idempotency_key_is_valid(key)) {
        err_set(&err, ERR_INVALID, "Idempotency-Key: must be 1 to %u letters, digits, '.', '_' and '-'", KEY_MAX);
        idempotency_refuse(c, &err);
        return;
    }
    idempotency_hash_request(req, c->request_hash);
    idempotency_claim_key(c);
}

static void idempotency_on_renamed(void *arg UNUSED, const struct err *err)
{
    if (err) /* a repeated request is refused as in progress, and later creates another sandbox */
        log_warn("cannot record which sandbox an idempotency key created: %s", err->msg);
}

void idempotency_set_resource(struct http_req *req, struct gateway *gateway, const char *id, const char *now)
{
    const char *key = http_header(req, "Idempotency-Key");

    if (key && !str_eq(id, now))
        store_idem_rename(gateway->settings.store, gateway_tenant(req), key, id, now, idempotency_on_renamed, NULL);
    audit_trail_add_target(req, "sandbox", now);
    audit_trail_record_accepted(req);
}

static void idempotency_on_key_released(void *arg UNUSED, const struct err *err UNUSED)
{
}

void idempotency_release_key(struct http_req *req, struct gateway *gateway, const struct err *why)
{
    const char *key = http_header(req, "Idempotency-Key");

    if (key && why->id != ERR_IDEMPOTENCY) /* then another request holds the key and is still in progress */
        store_idem_drop(gateway->settings.store, gateway_tenant(req), key, NULL, idempotency_on_key_released, NULL);
}
