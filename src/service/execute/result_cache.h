/* result_cache.h - answers of pure runs, by the hash of everything that they could depend on.
 *
 * Bounded by bytes: what was used longest ago goes first. An answer that is too old is none. Time is passed in. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"

#define RESULT_CACHE_KEY_SIZE 32u

struct result_cache;

struct result_cache *result_cache_new(uint64_t bytes_max, uint64_t age_max_ms); /* bytes_max 0: nothing is kept */
void result_cache_free(struct result_cache *c);
DEFINE_AUTO(result_cache, result_cache_free);

/* NULL: there is none. Good until the next call. */
const struct buf *result_cache_get(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], uint64_t now_ms);
/* Copies the answer, unless it takes more than an eighth of all the room. One of the same key is replaced. */
void result_cache_put(struct result_cache *c, const uint8_t key[RESULT_CACHE_KEY_SIZE], const struct buf *answer,
                      uint64_t now_ms);
uint64_t result_cache_bytes(const struct result_cache *c);
uint64_t result_cache_entries(const struct result_cache *c);

/* --- the key --- */

struct run_request;
/* Over all that a run gets, part by part with its length, so that no two requests read alike. False: no hash could be
 * made, and nothing may be kept. */
bool result_cache_make_key(const struct run_request *req, uint8_t ret[RESULT_CACHE_KEY_SIZE]);
