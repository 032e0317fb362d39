/* apikey.h - the format of an API key: "cove_" and 40 hexadecimal digits, which are 160 random
 * bits.
 *
 * "e2b_" with the same digits is the same key, for clients that require that prefix. The store
 * holds only the SHA-256 of the digits: they are random, so a slow hash is not necessary, and a
 * copy of the store gives no access. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "store/store.h"

#define APIKEY_SIZE 46 /* including the NUL */

struct apikey {
    char text[APIKEY_SIZE]; /* the secret: shown once, then wiped */
    char prefix[STORE_PREFIX_SIZE];
    uint8_t hash[STORE_HASH_LEN];
};

void apikey_new(struct apikey *ret);
void apikey_wipe(struct apikey *key);

/* Computes the hash of a key with either prefix. Returns false if the text is not a key; the
 * duration does not depend on which keys exist. */
bool apikey_hash(const char *text, uint8_t ret[STORE_HASH_LEN]);
bool apikey_hash_equal(const uint8_t a[STORE_HASH_LEN], const uint8_t b[STORE_HASH_LEN]); /* in constant time */

/* The text after the scheme in `Authorization: Bearer TEXT`; NULL: another scheme. */
const char *apikey_bearer(const char *header);

/* Reads the key of a request from its headers `Authorization: Bearer KEY` or `X-API-Key: KEY`
 * (NULL: not sent). */
enum apikey_header_result {
    APIKEY_NONE, /* no credential */
    APIKEY_BAD,  /* not a key, or two different ones */
    APIKEY_OK,
};
enum apikey_header_result apikey_from_headers(const char *authorization, const char *x_api_key,
                                              uint8_t ret[STORE_HASH_LEN]);
