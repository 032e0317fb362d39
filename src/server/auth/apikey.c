/* Only lower-case digits are accepted: a key has one spelling, so that users see, search for and
 * revoke the same text everywhere. The scheme of Authorization ignores case, as HTTP requires;
 * everything else is strict. A request with two different keys is refused, because two readers of
 * it might choose differently. */
#include "server/auth/apikey.h"

#include "core/base/str.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <sys/random.h>

#define RANDOM_BYTES 20
#define DIGITS (2 * RANDOM_BYTES)
#define PREFIX_DIGITS 8

/* Fetched once: fetching the algorithm costs many times as much as hashing a key, and every request
 * hashes one. */
static const EVP_MD *apikey_sha256(void)
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

static void apikey_hash_digits(const char *digits, uint8_t ret[STORE_HASH_LEN])
{
    unsigned n = 0;

    if (EVP_Digest(digits, DIGITS, ret, &n, apikey_sha256(), NULL) != 1 || n != STORE_HASH_LEN)
        abort(); /* if SHA-256 fails, the machine cannot be trusted with keys */
}

void apikey_new(struct apikey *ret)
{
    uint8_t random[RANDOM_BYTES];
    ssize_t n;

    do
        n = getrandom(random, sizeof(random), 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof(random))
        abort();
    strcpy(ret->text, "cove_");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(ret->text + 5 + 2 * i, 3, "%02x", random[i]);
    snprintf(ret->prefix, sizeof(ret->prefix), "%.*s", 5 + PREFIX_DIGITS, ret->text);
    apikey_hash_digits(ret->text + 5, ret->hash);
    OPENSSL_cleanse(random, sizeof(random));
}

void apikey_wipe(struct apikey *key)
{
    OPENSSL_cleanse(key, sizeof(*key));
}

bool apikey_hash(const char *text, uint8_t ret[STORE_HASH_LEN])
{
    if (!str_eat(&text, "cove_") && !str_eat(&text, "e2b_"))
        return false;
    if (strnlen(text, DIGITS + 1) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS)
        return false;
    apikey_hash_digits(text, ret);
    return true;
}

bool apikey_hash_equal(const uint8_t a[STORE_HASH_LEN], const uint8_t b[STORE_HASH_LEN])
{
    return CRYPTO_memcmp(a, b, STORE_HASH_LEN) == 0;
}

const char *apikey_bearer(const char *header)
{
    if (strncasecmp(header, "bearer ", 7) != 0)
        return NULL;
    header += 7;
    while (*header == ' ')
        header++;
    return header;
}

static bool apikey_read_bearer(const char *header, uint8_t ret[STORE_HASH_LEN])
{
    const char *text = apikey_bearer(header);

    return text && apikey_hash(text, ret);
}

enum apikey_header_result apikey_from_headers(const char *authorization, const char *x_api_key,
                                              uint8_t ret[STORE_HASH_LEN])
{
    uint8_t first[STORE_HASH_LEN], second[STORE_HASH_LEN];

    if (!authorization && !x_api_key)
        return APIKEY_NONE;
    if (authorization && !apikey_read_bearer(authorization, first))
        return APIKEY_BAD;
    if (x_api_key && !apikey_hash(x_api_key, second))
        return APIKEY_BAD;
    if (authorization && x_api_key && !apikey_hash_equal(first, second))
        return APIKEY_BAD;
    memcpy(ret, authorization ? first : second, STORE_HASH_LEN);
    return APIKEY_OK;
}
