/* A hash table with chains, and one list by last use. An entry costs its result plus
 * RESULT_CACHE_ENTRY_COST, so that the number of small results is limited too. */
#include "service/execute/result_cache.h"

#include "core/base/jsonw.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "service/execute/executor.h"

#include <openssl/evp.h>

#define BUCKETS 4096u
#define RESULT_CACHE_ENTRY_COST 256u
#define RESULT_CACHE_SHARE_DIVISOR 8u /* one result may take at most 1/8 of the cache */

struct result_cache_entry {
    struct result_cache_entry *next;          /* in its bucket */
    struct result_cache_entry *newer, *older; /* by last use */
    uint8_t key[RESULT_CACHE_KEY_SIZE];
    uint64_t stored_ms;
    struct buf answer;
};

struct result_cache {
    uint64_t bytes_max, age_max_ms;
    uint64_t bytes, entries;
    struct result_cache_entry *newest, *oldest;
    struct result_cache_entry *buckets[BUCKETS];
};

struct result_cache *result_cache_new(uint64_t bytes_max, uint64_t age_max_ms)
{
    struct result_cache *c = mem_new(struct result_cache);

    c->bytes_max = bytes_max;
    c->age_max_ms = age_max_ms;
    return c;
}

static struct result_cache_entry **result_cache_bucket(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE])
{
    return &c->buckets[(key[0] | (unsigned)key[1] << 8) % BUCKETS];
}

static struct result_cache_entry *result_cache_find(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE])
{
    struct result_cache_entry *e = *result_cache_bucket(c, key);

    while (e && memcmp(e->key, key, RESULT_CACHE_KEY_SIZE) != 0)
        e = e->next;
    return e;
}

static void result_cache_unlink(struct result_cache *c, struct result_cache_entry *e)
{
    *(e->newer ? &e->newer->older : &c->newest) = e->older;
    *(e->older ? &e->older->newer : &c->oldest) = e->newer;
    e->newer = e->older = NULL;
}

static void result_cache_link_newest(struct result_cache *c, struct result_cache_entry *e)
{
    e->older = c->newest;
    *(c->newest ? &c->newest->newer : &c->oldest) = e;
    c->newest = e;
}

static void result_cache_remove(struct result_cache *c, struct result_cache_entry *e)
{
    list_remove(result_cache_bucket(c, e->key), e);
    result_cache_unlink(c, e);
    c->bytes -= e->answer.len + RESULT_CACHE_ENTRY_COST;
    c->entries--;
    buf_done(&e->answer);
    free(e);
}

void result_cache_free(struct result_cache *c)
{
    if (!c)
        return;
    for (struct result_cache_entry *e = c->newest, *older; e; e = older) {
        older = e->older;
        result_cache_remove(c, e);
    }
    free(c);
}

const struct buf *result_cache_get(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], uint64_t now_ms)
{
    struct result_cache_entry *e = result_cache_find(c, key);

    if (e && (now_ms < e->stored_ms || now_ms - e->stored_ms >= c->age_max_ms)) {
        result_cache_remove(c, e);
        return NULL;
    }
    if (!e)
        return NULL;
    result_cache_unlink(c, e);
    result_cache_link_newest(c, e);
    return &e->answer;
}

void result_cache_put(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], const struct buf *answer,
                      uint64_t now_ms)
{
    struct result_cache_entry *e = result_cache_find(c, key);

    if (e)
        result_cache_remove(c, e);
    if (answer->len + RESULT_CACHE_ENTRY_COST > c->bytes_max / RESULT_CACHE_SHARE_DIVISOR)
        return;
    for (struct result_cache_entry *old = c->oldest, *newer;
         old && c->bytes + answer->len + RESULT_CACHE_ENTRY_COST > c->bytes_max; old = newer) {
        newer = old->newer;
        result_cache_remove(c, old);
    }
    e = mem_new(struct result_cache_entry);
    memcpy(e->key, key, RESULT_CACHE_KEY_SIZE);
    e->stored_ms = now_ms;
    buf_add(&e->answer, answer->data, answer->len);
    e->next = *result_cache_bucket(c, key);
    *result_cache_bucket(c, key) = e;
    result_cache_link_newest(c, e);
    c->bytes += answer->len + RESULT_CACHE_ENTRY_COST;
    c->entries++;
}

uint64_t result_cache_bytes(const struct result_cache *c)
{
    return c->bytes;
}

uint64_t result_cache_entries(const struct result_cache *c)
{
    return c->entries;
}

/* --- the key --- */

struct result_key_hash {
    EVP_MD_CTX *ctx;
    bool ok;
};

static void result_key_add(struct result_key_hash *h, const void *data, size_t len)
{
    uint64_t n = data ? len : UINT64_MAX; /* NULL and "" hash differently */

    h->ok = h->ok && EVP_DigestUpdate(h->ctx, &n, sizeof(n)) == 1 &&
            (!data || EVP_DigestUpdate(h->ctx, data, len) == 1);
}

static void result_key_add_text(struct result_key_hash *h, const char *text)
{
    result_key_add(h, text, text ? strlen(text) : 0);
}

static void result_key_add_number(struct result_key_hash *h, uint64_t n)
{
    result_key_add(h, &n, sizeof(n));
}

static void result_key_add_list(struct result_key_hash *h, const char *const *words)
{
    for (; words && *words; words++)
        result_key_add_text(h, *words);
    result_key_add(h, NULL, 0);
}

static void result_key_add_spec(struct result_key_hash *h, const struct spec *s)
{
    auto_buf text = { 0 };
    struct jsonw w;

    jsonw_init(&w, &text, 0);
    jsonw_object(&w);
    spec_json(s, &w);
    jsonw_end_object(&w);
    result_key_add(h, text.data, text.len);
    result_key_add(h, s->limits.v, sizeof(s->limits.v));
    result_key_add_number(h, s->grants);
    result_key_add_number(h, s->has_profile ? (uint64_t)s->profile + 1 : 0);
    result_key_add(h, s->deny, sizeof(s->deny));
    result_key_add_number(h, s->nhidden_paths);
    for (size_t i = 0; i < s->nhidden_paths; i++)
        result_key_add_text(h, s->hidden_paths[i]);
    result_key_add_list(h, (const char *const *)s->env);
    result_key_add_text(h, s->preload);
}

static void result_key_add_request(struct result_key_hash *h, const struct run_request *r)
{
    result_key_add_text(h, r->owner);
    result_key_add_text(h, r->code);
    result_key_add_text(h, r->language);
    result_key_add_list(h, r->argv);
    result_key_add(h, r->input, r->input_len);
    result_key_add_list(h, r->env);
    result_key_add_text(h, r->cwd);
    result_key_add_number(h, r->timeout_ms);
    result_key_add_number(h, r->output_max);
    result_key_add_number(h, (uint64_t)r->receipt);
    result_key_add_number(h, (uint64_t)r->check << 2 | (uint64_t)r->check_has_data << 1 | r->cached_if_pure);
    result_key_add_text(h, r->template);
    result_key_add_number(h, r->generation);
    result_key_add_number(h, r->nfiles);
    for (size_t i = 0; i < r->nfiles; i++) {
        result_key_add_text(h, r->files[i].path);
        result_key_add(h, r->files[i].data, r->files[i].len);
    }
    result_key_add_list(h, r->outputs);
    result_key_add_spec(h, r->spec);
}

bool result_cache_make_key(const struct run_request *req, uint8_t ret[RESULT_CACHE_KEY_SIZE])
{
    struct result_key_hash h = { .ctx = EVP_MD_CTX_new() };
    unsigned n = 0;

    h.ok = h.ctx && EVP_DigestInit_ex(h.ctx, EVP_sha256(), NULL) == 1;
    if (h.ok)
        result_key_add_request(&h, req);
    h.ok = h.ok && EVP_DigestFinal_ex(h.ctx, ret, &n) == 1 && n == RESULT_CACHE_KEY_SIZE;
    EVP_MD_CTX_free(h.ctx);
    return h.ok;
}
