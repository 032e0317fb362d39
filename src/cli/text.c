#include "cli/text.h"

/* Length of the well-formed sequence at the front, or 0. The second byte's range depends on the first: that is where
 * overlong forms, surrogates and numbers past U+10FFFF are told apart. */
static size_t sequence(const unsigned char *s, size_t len)
{
    unsigned char lo = 0x80, hi = 0xbf;
    size_t n;

    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf)
        n = 2;
    else if (s[0] >= 0xe0 && s[0] <= 0xef)
        n = 3;
    else if (s[0] >= 0xf0 && s[0] <= 0xf4)
        n = 4;
    else
        return 0;
    if (s[0] == 0xe0)
        lo = 0xa0;
    if (s[0] == 0xed)
        hi = 0x9f;
    if (s[0] == 0xf0)
        lo = 0x90;
    if (s[0] == 0xf4)
        hi = 0x8f;
    if (n > len || s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool text_utf8(const char *data, size_t len)
{
    const unsigned char *s = (const unsigned char *)data;

    for (size_t i = 0; i < len;) {
        size_t n = sequence(s + i, len - i);

        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

void text_base64(struct buf *out, const char *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *s = (const unsigned char *)data;

    for (size_t i = 0; i < len; i += 3) {
        size_t n = min_size(len - i, 3);
        unsigned v = (unsigned)s[i] << 16 | (n > 1 ? (unsigned)s[i + 1] << 8 : 0) | (n > 2 ? s[i + 2] : 0);
        char four[4] = { digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                         n > 2 ? digits[v & 63] : '=' };

        buf_add(out, four, 4);
    }
    buf_adds(out, "");
}
