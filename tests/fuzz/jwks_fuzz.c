/* The key set of an identity provider, as its server sends it. Checked in addition to memory
 * errors: none of its keys accepts a signature of zeros. */
#include "server/auth/jwks.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t sig[1024];
    static const size_t lengths[] = { 0, 63, 64, 65, 256, 1024 };
    struct jwks *s = NULL;

    if (jwks_parse((const char *)data, size, &s, NULL) < 0)
        return 0;
    must(jwks_count(s) > 0 && jwks_count(s) <= JWKS_KEYS_MAX);
    for (unsigned a = 0; a < JWT_ALG_COUNT; a++) {
        const struct jwk *k = jwks_find(s, NULL, a);

        for (size_t i = 0; k && i < ARRAY_LEN(lengths); i++)
            must(!jwk_verify(k, "data", 4, sig, lengths[i]));
    }
    jwks_free(s);
    return 0;
}
