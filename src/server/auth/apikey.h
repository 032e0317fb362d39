/* apikey.h - the form of an API key: "cove_" and 40 hexadecimal digits, which are 160 random bits.
 *
 * "e2b_" with the same digits is the same key, for clients that insist on that form. What is kept of a key is the
 * SHA-256 of its digits: it is random, so nothing slower is needed, and a copy of the store opens no door. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "store/store.h"

#define APIKEY_SIZE 46 /* with the NUL */

struct apikey {
    char text[APIKEY_SIZE]; /* the secret: shown once, then wiped */
    char prefix[STORE_PREFIX_SIZE];
    uint8_t hash[STORE_HASH_LEN];
};

void apikey_new(struct apikey *ret);
void apikey_wipe(struct apikey *key);

/* The hash of a key of either form. False: it is none; nothing about it depends on which keys exist. */
bool apikey_hash(const char *text, uint8_t ret[STORE_HASH_LEN]);
bool apikey_hash_equal(const uint8_t a[STORE_HASH_LEN], const uint8_t b[STORE_HASH_LEN]); /* in constant time */

/* What stands behind the scheme in `Authorization: Bearer TEXT`; NULL: it is another scheme. */
const char *apikey_bearer(const char *header);

/* The key that a request carries in its headers `Authorization: Bearer KEY` or `X-API-Key: KEY` (NULL: not sent). */
enum apikey_header_result {
    APIKEY_NONE, /* no credential at all */
    APIKEY_BAD,  /* one that is no key, or two that differ */
    APIKEY_OK,
};
enum apikey_header_result apikey_from_headers(const char *authorization, const char *x_api_key,
                                              uint8_t ret[STORE_HASH_LEN]);
