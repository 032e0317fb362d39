/* The headers with the key of a request: Authorization in the first line, X-API-Key in the
 * second.
 *
 * Checked in addition to memory errors: an accepted credential is a complete key, has the same
 * hash in both headers and in both of its forms, and is not a key with one letter more. */
#include "server/auth/apikey.h"

#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_key(const char *text, const uint8_t hash[STORE_HASH_LEN])
{
    const char *digits = strchr(text, '_') + 1;
    auto_free char *e2b = str_printf("e2b_%s", digits);
    auto_free char *more = str_printf("%s0", text);
    uint8_t again[STORE_HASH_LEN];

    must(strlen(digits) == 40);
    must(apikey_hash(e2b, again) && apikey_hash_equal(hash, again));
    must(!apikey_hash(more, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *line = size ? memchr(data, '\n', size) : NULL;
    auto_free char *first = str_dup_n((const char *)data, line ? (size_t)(line - data) : size);
    auto_free char *second = line ? str_dup_n((const char *)line + 1, size - (size_t)(line - data) - 1) : NULL;
    uint8_t hash[STORE_HASH_LEN];

    if (apikey_from_headers(first, second, hash) == APIKEY_OK && second)
        check_key(second, hash);
    if (apikey_from_headers(first, NULL, hash) == APIKEY_OK)
        check_key(strrchr(first, ' ') + 1, hash);
    if (apikey_from_headers(NULL, first, hash) == APIKEY_OK)
        check_key(first, hash);
    must(apikey_from_headers(NULL, NULL, hash) == APIKEY_NONE);
    return 0;
}
