/* Lines are written with their members in one fixed order, so that they can be read without a JSON
 * parser: the reader parses the members it needs from both ends and relies on the hash for the part
 * between them. Only the exact form that this file writes is accepted; a line that means the same
 * in another form is rejected on purpose.
 *
 * 1. `prev` and `hash` are the last members, of fixed length.
 * 2. The `details` of a checkpoint contain only its key and signature. */
#include "server/audit/chain.h"

#include "server/audit/sign.h"
#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/str.h"

#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>

#define HEX (2u * CHAIN_HASH)
#define HASH_MEMBER ",\"hash\":\""
#define PREV_MEMBER ",\"prev\":\""
#define HASH_TAIL (sizeof(HASH_MEMBER) - 1 + HEX + 2) /* includes the closing quote and brace */
#define PREV_TAIL (sizeof(PREV_MEMBER) - 1 + HEX + 1)

/* --- bytes --- */

void chain_hex(const uint8_t *data, size_t len, char *ret)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        ret[2 * i] = digits[data[i] >> 4];
        ret[2 * i + 1] = digits[data[i] & 15];
    }
    ret[2 * len] = '\0';
}

static int chain_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool chain_unhex(const char *text, size_t len, uint8_t *ret)
{
    for (size_t i = 0; i < len; i++) {
        int high = chain_hex_digit(text[2 * i]), low = high < 0 ? -1 : chain_hex_digit(text[2 * i + 1]);

        if (low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* Fetched once: the lookup of the algorithm costs many times more than hashing a line. */
static const EVP_MD *chain_sha256_md(void)
{
    static _Atomic(EVP_MD *) found;
    EVP_MD *md = atomic_load(&found), *none = NULL;

    if (md)
        return md;
    md = EVP_MD_fetch(NULL, "SHA256", NULL);
    if (!md)
        abort();
    if (atomic_compare_exchange_strong(&found, &none, md))
        return md;
    EVP_MD_free(md);
    return none;
}

void chain_sha256(const void *data, size_t len, uint8_t ret[CHAIN_HASH])
{
    if (EVP_Digest(data, len, ret, NULL, chain_sha256_md(), NULL) != 1)
        abort(); /* if SHA-256 fails, the machine cannot be trusted */
}

/* Hashes prev, the body of the line and its closing brace. */
static void chain_hash_line(const uint8_t prev[CHAIN_HASH], const char *body, size_t len, uint8_t ret[CHAIN_HASH])
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();

    if (!ctx || EVP_DigestInit_ex(ctx, chain_sha256_md(), NULL) != 1 || EVP_DigestUpdate(ctx, prev, CHAIN_HASH) != 1 ||
        EVP_DigestUpdate(ctx, body, len) != 1 || EVP_DigestUpdate(ctx, "}", 1) != 1 ||
        EVP_DigestFinal_ex(ctx, ret, NULL) != 1)
        abort();
    EVP_MD_CTX_free(ctx);
}

/* --- writing --- */

static void chain_put_member(struct jsonw *w, const char *name, const char *value)
{
    if (value && *value)
        jsonw_kstr(w, name, value);
}

static void chain_begin_line(struct jsonw *w, struct buf *out, uint64_t seq, uint64_t now_ms, const char *tenant,
                             const char *action, const char *outcome)
{
    char at[32];

    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_ku64(w, "seq", seq);
    jsonw_kstr(w, "at", clock_rfc3339(now_ms * NS_PER_MS, at));
    jsonw_kstr(w, "tenant", tenant ? tenant : "");
    jsonw_kstr(w, "action", action);
    jsonw_kstr(w, "outcome", outcome);
}

/* `from` is the offset of the line in `out`; its object is still open. */
static void chain_finish_line(struct chain_link *at, struct buf *out, size_t from)
{
    char hex[HEX + 1];
    uint8_t hash[CHAIN_HASH];

    chain_hex(at->hash, CHAIN_HASH, hex);
    buf_adds(out, PREV_MEMBER);
    buf_add(out, hex, HEX);
    buf_adds(out, "\"");
    chain_hash_line(at->hash, out->data + from, out->len - from, hash);
    chain_hex(hash, CHAIN_HASH, hex);
    buf_adds(out, HASH_MEMBER);
    buf_add(out, hex, HEX);
    buf_adds(out, "\"}\n");
    at->seq++;
    memcpy(at->hash, hash, CHAIN_HASH);
}

static void chain_put_actor(struct jsonw *w, const struct audit_record *r)
{
    jsonw_key(w, "actor");
    jsonw_object(w);
    jsonw_kstr(w, "kind", r->kind ? r->kind : "server");
    chain_put_member(w, "key", r->key);
    chain_put_member(w, "user", r->user);
    chain_put_member(w, "address", r->address);
    jsonw_end_object(w);
}

void chain_append(struct chain_link *at, const struct audit_record *r, uint64_t now_ms, struct buf *out)
{
    size_t from = out->len;
    struct jsonw w;

    chain_begin_line(&w, out, at->seq + 1, now_ms, r->tenant, r->action, r->outcome);
    if (r->status)
        jsonw_ki64(&w, "status", r->status);
    chain_put_member(&w, "error", r->error);
    chain_put_actor(&w, r);
    if (r->ntarget > 0) {
        jsonw_key(&w, "target");
        jsonw_object(&w);
        for (size_t i = 0; i < r->ntarget; i++)
            chain_put_member(&w, r->target[i].name, r->target[i].value);
        jsonw_end_object(&w);
    }
    chain_put_member(&w, "requestId", r->request);
    chain_put_member(&w, "clientRequestId", r->client_request);
    if (r->details) {
        jsonw_key(&w, "details");
        jsonw_raw(&w, r->details);
    }
    chain_finish_line(at, out, from);
}

#define SIGNED_KEY ",\"actor\":{\"kind\":\"server\"},\"details\":{\"key\":\""
#define SIGNED_SIGNATURE "\",\"signature\":\""
#define SIGNED_LAST "\",\"last\":true}"
#define SIGNED_END "\"}"

void chain_sign(struct chain_link *at, const struct sign_key *key, bool last, uint64_t now_ms, struct buf *out)
{
    size_t from = out->len;
    char hex[2 * CHAIN_SIGNATURE + 1];
    uint8_t signature[CHAIN_SIGNATURE];
    struct jsonw w;

    chain_begin_line(&w, out, at->seq + 1, now_ms, "", CHAIN_CHECKPOINT, "success");
    sign_checkpoint(key, at->seq + 1, at->hash, signature);
    chain_hex(signature, CHAIN_SIGNATURE, hex);
    buf_adds(out, SIGNED_KEY);
    buf_adds(out, sign_id(key));
    buf_adds(out, SIGNED_SIGNATURE);
    buf_adds(out, hex);
    buf_adds(out, last ? SIGNED_LAST : SIGNED_END);
    chain_finish_line(at, out, from);
}

/* --- reading --- */

static bool chain_eat_literal(struct chain_text *t, const char *literal)
{
    size_t n = strlen(literal);

    if (t->n < n || memcmp(t->p, literal, n) != 0)
        return false;
    t->p += n;
    t->n -= n;
    return true;
}

static bool chain_eat_bytes(struct chain_text *t, size_t n, const char **ret)
{
    if (t->n < n)
        return false;
    *ret = t->p;
    t->p += n;
    t->n -= n;
    return true;
}

/* Reads up to the next quote; names of tenants and actions never need escaping. */
static bool chain_eat_word(struct chain_text *t, size_t max, struct chain_text *ret)
{
    size_t n = 0;

    while (n < t->n && n <= max && t->p[n] != '"' && t->p[n] != '\\')
        n++;
    if (n > max || n == t->n || t->p[n] != '"')
        return false;
    *ret = (struct chain_text){ t->p, n };
    t->p += n;
    t->n -= n;
    return true;
}

static bool chain_eat_seq(struct chain_text *t, uint64_t *ret)
{
    uint64_t v = 0;
    size_t n = 0;

    while (n < t->n && n < 19 && t->p[n] >= '0' && t->p[n] <= '9')
        v = v * 10 + (uint64_t)(t->p[n++] - '0');
    if (n == 0 || (n > 1 && t->p[0] == '0'))
        return false;
    t->p += n;
    t->n -= n;
    *ret = v;
    return true;
}

static bool chain_eat_time(struct chain_text *t, uint64_t *ret)
{
    struct chain_text word;
    char text[32];

    if (!chain_eat_word(t, sizeof(text) - 1, &word))
        return false;
    memcpy(text, word.p, word.n);
    text[word.n] = '\0';
    return clock_from_rfc3339(text, ret);
}

static bool chain_eat_front(struct chain_text *t, struct chain_line *l)
{
    return chain_eat_literal(t, "{\"seq\":") && chain_eat_seq(t, &l->seq) && chain_eat_literal(t, ",\"at\":\"") &&
           chain_eat_time(t, &l->at_ms) && chain_eat_literal(t, "\",\"tenant\":\"") &&
           chain_eat_word(t, 64, &l->tenant) && chain_eat_literal(t, "\",\"action\":\"") &&
           chain_eat_word(t, 64, &l->action) && chain_eat_literal(t, "\"");
}

bool chain_peek(const char *line, size_t len, struct chain_line *ret)
{
    struct chain_text t = { line, len };

    *ret = (struct chain_line){ 0 };
    return chain_eat_front(&t, ret);
}

static bool chain_read_tail(const char *line, size_t len, struct chain_line *l)
{
    struct chain_text t = { line + len - HASH_TAIL - PREV_TAIL, HASH_TAIL + PREV_TAIL };
    const char *prev, *hash;

    return chain_eat_literal(&t, PREV_MEMBER) && chain_eat_bytes(&t, HEX, &prev) &&
           chain_eat_literal(&t, "\"" HASH_MEMBER) && chain_eat_bytes(&t, HEX, &hash) && chain_eat_literal(&t, "\"}") &&
           t.n == 0 && chain_unhex(prev, CHAIN_HASH, l->prev) && chain_unhex(hash, CHAIN_HASH, l->hash);
}

/* `t` is the text after the action of a checkpoint, up to `prev`. */
static bool chain_read_signature(struct chain_text *t, struct chain_line *l)
{
    const char *id, *hex;

    if (!chain_eat_literal(t, ",\"outcome\":\"success\"" SIGNED_KEY) || !chain_eat_bytes(t, CHAIN_KEY_ID, &id) ||
        !chain_eat_literal(t, SIGNED_SIGNATURE) || !chain_eat_bytes(t, (size_t)2 * CHAIN_SIGNATURE, &hex) ||
        !chain_unhex(hex, CHAIN_SIGNATURE, l->signature))
        return false;
    memcpy(l->key, id, CHAIN_KEY_ID);
    l->key[CHAIN_KEY_ID] = '\0';
    l->last = chain_eat_literal(t, SIGNED_LAST);
    return (l->last || chain_eat_literal(t, SIGNED_END)) && t->n == 0;
}

int chain_parse_line(const char *line, size_t len, struct chain_line *ret, struct err *err)
{
    struct chain_text t = { line, len };

    *ret = (struct chain_line){ 0 };
    if (len > CHAIN_LINE_MAX || memchr(line, '\0', len) || memchr(line, '\n', len) || !chain_eat_front(&t, ret) ||
        t.n < HASH_TAIL + PREV_TAIL || !chain_read_tail(line, len, ret))
        return err_set(err, ERR_INVALID, "not an audit record");
    t.n -= HASH_TAIL + PREV_TAIL;
    ret->checkpoint = ret->action.n == strlen(CHAIN_CHECKPOINT) &&
                      memcmp(ret->action.p, CHAIN_CHECKPOINT, ret->action.n) == 0;
    if (ret->checkpoint && !chain_read_signature(&t, ret))
        return err_set(err, ERR_INVALID, "a checkpoint without a valid signature field");
    return 0;
}

bool chain_hash_matches(const char *line, size_t len, const struct chain_line *l)
{
    uint8_t hash[CHAIN_HASH];

    chain_hash_line(l->prev, line, len - HASH_TAIL, hash);
    return memcmp(hash, l->hash, CHAIN_HASH) == 0;
}
