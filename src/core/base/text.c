#include "core/base/text.h"

#include "core/base/str.h"

#include <ctype.h>

bool text_is_utf8(const char *data, size_t len)
{
    uint32_t c;

    for (size_t i = 0; i < len;) {
        size_t n = str_utf8(data + i, len - i, &c);

        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static int text_base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

bool text_from_base64(struct buf *out, const char *text, size_t len)
{
    size_t before = out->len, pad = len >= 2 && text[len - 1] == '=' ? (text[len - 2] == '=' ? 2 : 1) : 0;
    unsigned v = 0;

    if (len % 4 != 0)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool padding = i >= len - pad;
        int d = padding ? 0 : text_base64_digit(text[i]);

        if (d < 0) {
            out->len = before;
            return false;
        }
        v = v << 6 | (unsigned)d;
        if (i % 4 < 3)
            continue;
        size_t n = i + 1 == len ? 3 - pad : 3;
        char three[3] = { (char)(v >> 16 & 255), (char)(v >> 8 & 255), (char)(v & 255) };
        if ((n < 3 && three[2]) || (n < 2 && three[1])) {
            out->len = before;
            return false;
        }
        buf_add(out, three, n);
        v = 0;
    }
    return true;
}

static const char text_base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char text_base64url_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void text_encode_base64(struct buf *out, const unsigned char *s, size_t len, const char *digits, bool padded)
{
    for (size_t i = 0; i < len; i += 3) {
        size_t n = min_size(len - i, 3);
        unsigned v = (unsigned)s[i] << 16 | (n > 1 ? (unsigned)s[i + 1] << 8 : 0) | (n > 2 ? s[i + 2] : 0);
        char four[4] = { digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                         n > 2 ? digits[v & 63] : '=' };

        buf_add(out, four, padded ? 4 : n + 1);
    }
    buf_adds(out, "");
}

void text_base64(struct buf *out, const char *data, size_t len)
{
    text_encode_base64(out, (const unsigned char *)data, len, text_base64_digits, true);
}

void text_base64url(struct buf *out, const void *data, size_t len)
{
    text_encode_base64(out, data, len, text_base64url_digits, false);
}

bool text_from_base64url(const char *text, size_t len, uint8_t *out, size_t *ret_len)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t n = 0;

    if (len % 4 == 1)
        return false;
    for (size_t i = 0; i < len; i++) {
        const char *at = text[i] ? strchr(text_base64url_digits, text[i]) : NULL;

        if (!at)
            return false;
        bits = bits << 6 | (uint32_t)(at - text_base64url_digits);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[n++] = (uint8_t)(bits >> have);
            bits &= (1u << have) - 1;
        }
    }
    *ret_len = n;
    return bits == 0;
}

void text_percent_encode(struct buf *out, const char *text)
{
    for (const char *p = text; *p; p++)
        if (isalnum((unsigned char)*p) || strchr("-._~/", *p))
            buf_add(out, p, 1);
        else
            buf_addf(out, "%%%02X", (unsigned char)*p);
    buf_adds(out, "");
}

static void text_put_blanks(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_add(out, " ", 1);
}

void text_wrap(struct buf *out, const char *text, size_t at, size_t indent, size_t width)
{
    size_t col = at;
    bool fresh = true;

    while (*text) {
        size_t len = strcspn(text, " ");

        if (!fresh && col + 1 + len > width) {
            buf_adds(out, "\n");
            text_put_blanks(out, indent);
            col = indent;
            fresh = true;
        }
        if (!fresh) {
            buf_adds(out, " ");
            col++;
        }
        buf_add(out, text, len);
        col += len;
        fresh = false;
        text += len;
        text += strspn(text, " ");
    }
    buf_adds(out, "\n");
}

char *text_respell_name(const char *prefix, const char *name, char between, bool capitals)
{
    struct buf out = { 0 };

    buf_adds(&out, prefix);
    for (const char *p = name; *p; p++) {
        char c = (char)(capitals ? toupper((unsigned char)*p) : tolower((unsigned char)*p));

        if (*p == '.' || isupper((unsigned char)*p))
            buf_add(&out, &between, 1);
        if (*p != '.')
            buf_add(&out, &c, 1);
    }
    return out.data;
}
