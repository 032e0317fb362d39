/* SHA-1 of the key and a constant, in base64 (RFC 6455, 4.2.2). The hash is not a secret and
 * protects nothing: it shows that the server understood the handshake. It is computed here so that
 * neither server nor client needs a cryptographic library for it. */
#include "core/base/wskey.h"

#include "core/base/buf.h"
#include "core/base/text.h"

#include <stdio.h>

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define KEY_LEN 24

static uint32_t wskey_rotl(uint32_t x, unsigned n)
{
    return (x << n) | (x >> (32 - n));
}

static void wskey_sha1_block(uint32_t h[5], const uint8_t *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];

    for (unsigned i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (unsigned i = 16; i < 80; i++)
        w[i] = wskey_rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (unsigned i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t k = i < 20 ? 0x5a827999u : i < 40 ? 0x6ed9eba1u : i < 60 ? 0x8f1bbcdcu : 0xca62c1d6u;
        uint32_t t = wskey_rotl(a, 5) + f + e + k + w[i];

        e = d;
        d = c;
        c = wskey_rotl(b, 30);
        b = a;
        a = t;
    }
    h[0] += a;
    h[1] += b;
    h[2] += c;
    h[3] += d;
    h[4] += e;
}

bool wskey_valid(const char *key)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    /* Only four bits of the last digit before the padding count; the others are zero. */
    return strlen(key) == KEY_LEN && strspn(key, letters) == KEY_LEN - 2 && key[KEY_LEN - 2] == '=' &&
           key[KEY_LEN - 1] == '=' && strchr("AQgw", key[KEY_LEN - 3]) != NULL;
}

void wskey_accept(const char *key, char ret[WSKEY_ACCEPT])
{
    uint32_t h[5] = { 0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u, 0xc3d2e1f0u };
    uint8_t text[128] = { 0 };
    char sum[20];
    auto_buf coded = { 0 };
    size_t n = (size_t)snprintf((char *)text, sizeof(text), "%.*s" GUID, KEY_LEN, key);

    text[n] = 0x80;
    text[126] = (uint8_t)(n * 8 >> 8);
    text[127] = (uint8_t)(n * 8);
    wskey_sha1_block(h, text);
    wskey_sha1_block(h, text + 64);
    for (unsigned i = 0; i < 20; i++)
        sum[i] = (char)(uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
    text_base64(&coded, sum, sizeof(sum));
    memcpy(ret, coded.data, WSKEY_ACCEPT - 1);
    ret[WSKEY_ACCEPT - 1] = '\0';
}
