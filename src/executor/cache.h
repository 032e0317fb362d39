/* cache.h - answers of pure runs, by the hash of everything that they could depend on.
 *
 * Bounded by bytes: what was used longest ago goes first. An answer that is too old is none. Time is passed in. */
#pragma once

#include "base/base.h"
#include "base/buf.h"

#define CACHE_KEY 32u

struct cache;

struct cache *cache_new(uint64_t bytes_max, uint64_t age_max_ms); /* bytes_max 0: nothing is kept */
void cache_free(struct cache *c);
DEFINE_AUTO(cache, cache_free);

/* NULL: there is none. Good until the next call. */
const struct buf *cache_get(struct cache *c, const uint8_t key[CACHE_KEY], uint64_t now_ms);
/* Copies the answer, unless it takes more than an eighth of all the room. One of the same key is replaced. */
void cache_put(struct cache *c, const uint8_t key[CACHE_KEY], const struct buf *answer, uint64_t now_ms);
uint64_t cache_bytes(const struct cache *c);
uint64_t cache_entries(const struct cache *c);

/* --- the key --- */

struct run_request;
/* Over all that a run gets, part by part with its length, so that no two requests read alike. False: no hash could be
 * made, and nothing may be kept. */
bool cache_key(const struct run_request *req, uint8_t ret[CACHE_KEY]);
