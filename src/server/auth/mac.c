/* The purpose with its NUL precedes the data, so that two pairs of purpose and data never form the
 * same input. */
#include "server/auth/mac.h"

#include "core/base/buf.h"
#include "core/base/key_file.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static void mac_hmac_sha256(const void *key, size_t key_len, const void *data, size_t len, uint8_t ret[MAC_LEN])
{
    unsigned n = 0;

    if (!HMAC(EVP_sha256(), key, (int)key_len, data, len, ret, &n) || n != MAC_LEN)
        abort(); /* if HMAC fails, the machine cannot be trusted with keys */
}

void mac_random_bytes(uint8_t ret[MAC_LEN])
{
    _Static_assert(MAC_LEN == KEY_FILE_LEN, "a pepper is the content of a key file");
    key_file_random(ret);
}

int mac_load_pepper(const char *path, uint8_t ret[MAC_LEN], struct err *err)
{
    return key_file_load(path, "this invalidates all delegated tokens", ret, err);
}

void mac_key_init(struct mac_key *s, const uint8_t pepper[MAC_LEN], const char *salt)
{
    mac_hmac_sha256(pepper, MAC_LEN, salt, strlen(salt), s->key);
}

void mac_key_wipe(struct mac_key *s)
{
    OPENSSL_cleanse(s, sizeof(*s));
}

void mac_compute(const struct mac_key *s, const char *purpose, const char *data, size_t len, uint8_t ret[MAC_LEN])
{
    auto_buf all = { 0 };

    buf_add(&all, purpose, strlen(purpose) + 1);
    buf_add(&all, data, len);
    mac_hmac_sha256(s->key, sizeof(s->key), all.data, all.len, ret);
}

bool mac_verify(const struct mac_key *s, const char *purpose, const char *data, size_t len,
                const uint8_t given[MAC_LEN])
{
    uint8_t right[MAC_LEN];

    mac_compute(s, purpose, data, len, right);
    return CRYPTO_memcmp(right, given, MAC_LEN) == 0;
}
