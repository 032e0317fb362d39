/* Numbers are parsed by hand rather than with strtoull: no locale, no sign, no leading space, no
 * silent overflow. A unit is part of the grammar, so "1e3", "0x10" and "5 M" are refused rather
 * than guessed. */
#include "core/base/str.h"

#include "core/base/mem.h"

#include <stdarg.h>
#include <stdio.h>

char *str_printf(const char *fmt, ...)
{
    va_list ap;
    char *s;

    va_start(ap, fmt);
    int n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        abort();
    return s;
}

char *str_dup(const char *s)
{
    return mem_copy(s, strlen(s) + 1);
}

char *str_dup_n(const char *s, size_t n)
{
    char *d = mem_alloc(n + 1);

    memcpy(d, s, n);
    return d;
}

bool str_copy(char *dst, size_t cap, const char *src)
{
    size_t n = strlen(src);

    if (n >= cap) {
        if (cap)
            dst[0] = '\0';
        return false;
    }
    memcpy(dst, src, n + 1);
    return true;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t a = strlen(s), b = strlen(suffix);

    return a >= b && memcmp(s + a - b, suffix, b) == 0;
}

bool str_eat(const char **p, const char *literal)
{
    size_t n = strlen(literal);

    if (strncmp(*p, literal, n) != 0)
        return false;
    *p += n;
    return true;
}

bool str_eat_u64(const char **p, uint64_t max, uint64_t *ret)
{
    const char *s = *p;
    uint64_t v = 0;

    if (*s < '0' || *s > '9')
        return false;
    for (; *s >= '0' && *s <= '9'; s++)
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
            return false;
    if (v > max)
        return false;
    *p = s;
    *ret = v;
    return true;
}

bool str_eat_u32(const char **p, uint32_t max, uint32_t *ret)
{
    uint64_t v;

    if (!str_eat_u64(p, max, &v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

bool str_to_u64(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t v;

    if (!str_eat_u64(&s, max, &v) || *s)
        return false;
    *ret = v;
    return true;
}

/* Parses a number with up to three decimals, in thousandths. */
static bool str_eat_thousandths(const char **p, uint64_t *ret)
{
    const char *s = *p;
    uint64_t whole, part = 0;

    if (!str_eat_u64(&s, UINT64_MAX / 1000 - 1, &whole))
        return false;
    if (*s == '.') {
        unsigned scale = 100;

        s++;
        if (*s < '0' || *s > '9')
            return false;
        for (; *s >= '0' && *s <= '9'; s++, scale /= 10) {
            if (!scale)
                return false;
            part += (uint64_t)(*s - '0') * scale;
        }
    }
    *p = s;
    *ret = whole * 1000 + part;
    return true;
}

bool str_to_millis(const char *s, uint64_t *ret)
{
    uint64_t v;

    if (!str_eat_thousandths(&s, &v) || *s)
        return false;
    *ret = v;
    return true;
}

bool str_to_bytes(const char *s, uint64_t *ret)
{
    static const char units[] = "KMGT";
    uint64_t v, factor = 1;

    if (!str_eat_thousandths(&s, &v))
        return false;
    const char *u = *s ? strchr(units, *s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s) : NULL;
    if (u) {
        factor = 1ull << (10 * (unsigned)(u - units + 1));
        s++;
        if (*s == 'i' && (s[1] == 'B' || s[1] == 'b'))
            s++;
        if (*s == 'B' || *s == 'b')
            s++;
    }
    if (*s || (factor == 1 && v % 1000))
        return false;
    unsigned __int128 bytes = (unsigned __int128)v * factor / 1000;
    if (bytes > UINT64_MAX)
        return false;
    *ret = (uint64_t)bytes;
    return true;
}

bool str_to_ms(const char *s, uint64_t *ret)
{
    static const struct {
        const char *unit;
        uint64_t us_per_thousandth;
    } units[] = { { "ms", 1 }, { "s", 1000 }, { "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };
    uint64_t v;

    if (!str_eat_thousandths(&s, &v))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (!str_eq(s, units[i].unit))
            continue;
        unsigned __int128 us = (unsigned __int128)v * units[i].us_per_thousandth;
        if (us % 1000 || us / 1000 > UINT64_MAX)
            return false;
        *ret = (uint64_t)(us / 1000);
        return true;
    }
    return false;
}

char *str_bytes(uint64_t bytes, char buf[32])
{
    static const char units[] = "\0KMGTPE";
    unsigned u = 0;
    uint64_t rest = bytes;

    while (rest >= 1024 && u < 6) {
        rest >>= 10;
        u++;
    }
    uint64_t tenths = u ? (bytes >> (10 * (u - 1))) * 10 / 1024 : bytes * 10;
    if (!u)
        snprintf(buf, 32, "%" PRIu64, bytes);
    else if (tenths % 10)
        snprintf(buf, 32, "%" PRIu64 ".%" PRIu64 "%c", tenths / 10, tenths % 10, units[u]);
    else
        snprintf(buf, 32, "%" PRIu64 "%c", tenths / 10, units[u]);
    return buf;
}

char *str_size(uint64_t bytes, char buf[32])
{
    if (bytes >= 1024)
        return str_bytes(bytes, buf);
    snprintf(buf, 32, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    return buf;
}

char *str_ms(uint64_t ms, char buf[32])
{
    uint64_t s = ms / 1000;

    if (ms < 1000)
        snprintf(buf, 32, "%" PRIu64 "ms", ms);
    else if (ms % 1000 && ms < 60000)
        snprintf(buf, 32, "%" PRIu64 ".%03" PRIu64 "s", s, ms % 1000);
    else if (s < 60 || (s < 3600 && s % 60))
        s < 60 ? snprintf(buf, 32, "%" PRIu64 "s", s) : snprintf(buf, 32, "%" PRIu64 "m%" PRIu64 "s", s / 60, s % 60);
    else if (s < 3600 || s % 3600)
        s < 3600 ? snprintf(buf, 32, "%" PRIu64 "m", s / 60)
                 : snprintf(buf, 32, "%" PRIu64 "h%" PRIu64 "m", s / 3600, s % 3600 / 60);
    else
        snprintf(buf, 32, "%" PRIu64 "h", s / 3600);
    return buf;
}

size_t str_utf8(const char *text, size_t n, uint32_t *ret)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *s = (const unsigned char *)text;
    size_t len = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;

    if (len == 0 || len > n || s[0] > 0xf4)
        return 0;
    uint32_t c = len == 1 ? s[0] : s[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *ret = c;
    return len;
}

/* C0 and C1 control characters, line and paragraph separators, and bidirectional formatting
 * characters. */
static bool str_is_control_char(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void str_strip_control_chars(char *s)
{
    for (size_t n = strlen(s), len; n > 0; s += len, n -= len) {
        uint32_t c;

        len = str_utf8(s, n, &c);
        if (len > 0 && !str_is_control_char(c))
            continue;
        len = len ? len : 1;
        memset(s, '?', len);
    }
}
