/* A table of chains and one list by last use. An entry costs its answer and ENTRY_COST, so that many small answers are
 * bounded too. */
#include "executor/cache.h"

#include "base/jsonw.h"
#include "base/mem.h"
#include "executor/executor.h"

#include <openssl/evp.h>

#define BUCKETS 4096u
#define ENTRY_COST 256u
#define SHARE_MAX 8u /* of the room, for one answer */

struct entry {
    struct entry *next;          /* of its bucket */
    struct entry *newer, *older; /* by last use */
    uint8_t key[CACHE_KEY];
    uint64_t at_ms;
    struct buf answer;
};

struct cache {
    uint64_t bytes_max, age_max_ms;
    uint64_t bytes, entries;
    struct entry *newest, *oldest;
    struct entry *buckets[BUCKETS];
};

struct cache *cache_new(uint64_t bytes_max, uint64_t age_max_ms)
{
    struct cache *c = mem_new(struct cache);

    c->bytes_max = bytes_max;
    c->age_max_ms = age_max_ms;
    return c;
}

static struct entry **bucket(struct cache *c, const uint8_t key[CACHE_KEY])
{
    return &c->buckets[(key[0] | (unsigned)key[1] << 8) % BUCKETS];
}

static struct entry *find(struct cache *c, const uint8_t key[CACHE_KEY])
{
    struct entry *e = *bucket(c, key);

    while (e && memcmp(e->key, key, CACHE_KEY) != 0)
        e = e->next;
    return e;
}

static void leave_list(struct cache *c, struct entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void join_list(struct cache *c, struct entry *e)
{
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void drop(struct cache *c, struct entry *e)
{
    struct entry **p = bucket(c, e->key);

    while (*p != e)
        p = &(*p)->next;
    *p = e->next;
    leave_list(c, e);
    c->bytes -= e->answer.len + ENTRY_COST;
    c->entries--;
    buf_done(&e->answer);
    free(e);
}

void cache_free(struct cache *c)
{
    if (!c)
        return;
    for (struct entry *e = c->newest, *older; e; e = older) {
        older = e->older;
        drop(c, e);
    }
    free(c);
}

const struct buf *cache_get(struct cache *c, const uint8_t key[CACHE_KEY], uint64_t now_ms)
{
    struct entry *e = find(c, key);

    if (e && (now_ms < e->at_ms || now_ms - e->at_ms >= c->age_max_ms)) {
        drop(c, e);
        return NULL;
    }
    if (!e)
        return NULL;
    leave_list(c, e);
    join_list(c, e);
    return &e->answer;
}

void cache_put(struct cache *c, const uint8_t key[CACHE_KEY], const struct buf *answer, uint64_t now_ms)
{
    struct entry *e = find(c, key);

    if (e)
        drop(c, e);
    if (answer->len + ENTRY_COST > c->bytes_max / SHARE_MAX)
        return;
    for (struct entry *old = c->oldest, *newer; old && c->bytes + answer->len + ENTRY_COST > c->bytes_max;
         old = newer) {
        newer = old->newer;
        drop(c, old);
    }
    e = mem_new(struct entry);
    memcpy(e->key, key, CACHE_KEY);
    e->at_ms = now_ms;
    buf_add(&e->answer, answer->data, answer->len);
    e->next = *bucket(c, key);
    *bucket(c, key) = e;
    join_list(c, e);
    c->bytes += answer->len + ENTRY_COST;
    c->entries++;
}

uint64_t cache_bytes(const struct cache *c)
{
    return c->bytes;
}

uint64_t cache_entries(const struct cache *c)
{
    return c->entries;
}

/* --- the key --- */

struct hash {
    EVP_MD_CTX *ctx;
    bool ok;
};

static void put(struct hash *h, const void *data, size_t len)
{
    uint64_t n = data ? len : UINT64_MAX; /* what is not there is not what is empty */

    h->ok = h->ok && EVP_DigestUpdate(h->ctx, &n, sizeof(n)) == 1 &&
            (!data || EVP_DigestUpdate(h->ctx, data, len) == 1);
}

static void put_text(struct hash *h, const char *text)
{
    put(h, text, text ? strlen(text) : 0);
}

static void put_number(struct hash *h, uint64_t n)
{
    put(h, &n, sizeof(n));
}

static void put_words(struct hash *h, const char *const *words)
{
    for (; words && *words; words++)
        put_text(h, *words);
    put(h, NULL, 0);
}

static void put_spec(struct hash *h, const struct spec *s)
{
    auto_buf text = { 0 };
    struct jsonw w;

    jsonw_init(&w, &text, 0);
    jsonw_object(&w);
    spec_json(s, &w);
    jsonw_end_object(&w);
    put(h, text.data, text.len);
    put(h, s->limits.v, sizeof(s->limits.v));
    put_number(h, s->grants);
    put_number(h, s->has_profile ? (uint64_t)s->profile + 1 : 0);
    put(h, s->deny, sizeof(s->deny));
    put_number(h, s->nhide);
    for (size_t i = 0; i < s->nhide; i++)
        put_text(h, s->hide[i]);
    put_words(h, (const char *const *)s->env);
    put_text(h, s->preload);
}

static void put_request(struct hash *h, const struct run_request *r)
{
    put_text(h, r->owner);
    put_text(h, r->code);
    put_text(h, r->language);
    put_words(h, r->argv);
    put(h, r->input, r->input_len);
    put_words(h, r->env);
    put_text(h, r->cwd);
    put_number(h, r->timeout_ms);
    put_number(h, r->output_max);
    put_text(h, r->template);
    put_number(h, r->generation);
    put_number(h, r->nfiles);
    for (size_t i = 0; i < r->nfiles; i++) {
        put_text(h, r->files[i].path);
        put(h, r->files[i].data, r->files[i].len);
    }
    put_words(h, r->outputs);
    put_spec(h, r->spec);
}

bool cache_key(const struct run_request *req, uint8_t ret[CACHE_KEY])
{
    struct hash h = { .ctx = EVP_MD_CTX_new() };
    unsigned n = 0;

    h.ok = h.ctx && EVP_DigestInit_ex(h.ctx, EVP_sha256(), NULL) == 1;
    if (h.ok)
        put_request(&h, req);
    h.ok = h.ok && EVP_DigestFinal_ex(h.ctx, ret, &n) == 1 && n == CACHE_KEY;
    EVP_MD_CTX_free(h.ctx);
    return h.ok;
}
