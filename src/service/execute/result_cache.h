/* result_cache.h - cached results of runs, by the hash of everything that a run depends on.
 *
 * An LRU cache with a byte limit and a TTL. The caller passes the time in. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"

#define RESULT_CACHE_KEY_SIZE 32u

struct result_cache;

struct result_cache *result_cache_new(uint64_t bytes_max, uint64_t age_max_ms); /* bytes_max 0: nothing is cached */
void result_cache_free(struct result_cache *c);
DEFINE_AUTO(result_cache, result_cache_free);

/* NULL: not cached, or expired. Valid until the next call. */
const struct buf *result_cache_get(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], uint64_t now_ms);
/* Copies the result, unless it takes more than an eighth of bytes_max. Replaces an entry with the
 * same key. */
void result_cache_put(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], const struct buf *answer,
                      uint64_t now_ms);
uint64_t result_cache_bytes(const struct result_cache *c);
uint64_t result_cache_entries(const struct result_cache *c);

/* --- the key --- */

struct run_request;
/* Hashes every input of a run, each part with its length, so that different requests never hash the
 * same bytes. False: hashing failed, and the result must not be cached. */
bool result_cache_make_key(const struct run_request *req, uint8_t ret[RESULT_CACHE_KEY_SIZE]);
