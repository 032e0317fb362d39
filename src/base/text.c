#include "base/text.h"

#include "base/str.h"

#include <ctype.h>

bool text_utf8(const char *data, size_t len)
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

static void pad(struct buf *out, size_t n)
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
            pad(out, indent);
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

char *text_spell(const char *prefix, const char *name, char between, bool capitals)
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
