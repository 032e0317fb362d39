/* The parsers are written out because libc's accept other forms than a rule expects, and differ
 * between glibc and musl. */
#include "policy/ip_address.h"

#include "core/base/str.h"

#include <stdio.h>

static bool ip_address_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Four decimal numbers without leading zeros. */
static bool ip_address_parse_v4(const char *text, size_t len, uint8_t ret[4])
{
    size_t at = 0;

    for (unsigned part = 0; part < 4; part++) {
        unsigned value = 0;
        size_t first = at;

        if (part > 0 && (at >= len || text[at] != '.'))
            return false;
        if (part > 0)
            first = ++at;
        while (at < len && at - first < 3 && ip_address_digit(text[at]))
            value = value * 10 + (unsigned)(text[at++] - '0');
        if (at == first || value > 255 || (text[first] == '0' && at - first > 1))
            return false;
        ret[part] = (uint8_t)value;
    }
    return at == len;
}

static int ip_address_hex(char c)
{
    if (ip_address_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool ip_address_parse_v6(const char *text, size_t len, uint8_t ret[16])
{
    uint8_t bytes[16] = { 0 };
    size_t at = 0, n = 0; /* read characters, written bytes */
    size_t gap = 17;      /* where "::" stood in `bytes`; 17: nowhere */

    if (len >= 2 && text[0] == ':' && text[1] == ':') {
        gap = 0;
        at = 2;
    }
    while (at < len) {
        unsigned value = 0, digits = 0;
        size_t first = at;

        if (n == 16)
            return false;
        while (at < len && digits < 4 && ip_address_hex(text[at]) >= 0) {
            value = value << 4 | (unsigned)ip_address_hex(text[at++]);
            digits++;
        }
        if (at < len && text[at] == '.') { /* an IPv4 address is the last part */
            if (n > 12 || !ip_address_parse_v4(text + first, len - first, bytes + n))
                return false;
            n += 4;
            break;
        }
        if (digits == 0)
            return false;
        bytes[n++] = (uint8_t)(value >> 8);
        bytes[n++] = (uint8_t)value;
        if (at == len)
            break;
        if (text[at++] != ':')
            return false;
        if (at < len && text[at] == ':') {
            if (gap != 17)
                return false;
            gap = n;
            at++;
        } else if (at == len)
            return false; /* a single colon at the end */
    }
    if (gap == 17 ? n != 16 : n > 14)
        return false;
    if (gap != 17) {
        memmove(bytes + 16 - (n - gap), bytes + gap, n - gap);
        memset(bytes + gap, 0, 16 - n);
    }
    memcpy(ret, bytes, 16);
    return true;
}

bool ip_address_parse(const char *text, size_t len, struct ip_address *ret)
{
    struct ip_address a = { 0 };

    if (len >= IP_ADDRESS_TEXT)
        return false;
    if (memchr(text, ':', len)) {
        a.family = 6;
        if (!ip_address_parse_v6(text, len, a.bytes))
            return false;
    } else {
        a.family = 4;
        if (!ip_address_parse_v4(text, len, a.bytes))
            return false;
    }
    *ret = a;
    return true;
}

static unsigned ip_address_group(const struct ip_address *a, unsigned i)
{
    return (unsigned)a->bytes[2 * i] << 8 | a->bytes[2 * i + 1];
}

/* The longest run of zero groups, the first of equal ones; RFC 5952 shortens no single group. */
static void ip_address_longest_zeros(const struct ip_address *a, unsigned *ret_at, unsigned *ret_len)
{
    *ret_at = 8;
    *ret_len = 1;
    for (unsigned i = 0; i < 8;) {
        unsigned end = i;

        while (end < 8 && ip_address_group(a, end) == 0)
            end++;
        if (end - i > *ret_len) {
            *ret_at = i;
            *ret_len = end - i;
        }
        i = end + 1;
    }
}

char *ip_address_format(const struct ip_address *a, char ret[IP_ADDRESS_TEXT])
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
    const uint8_t *b = a->bytes;
    unsigned zeros, nzeros;
    size_t n = 0;

    if (a->family == 4) {
        snprintf(ret, IP_ADDRESS_TEXT, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
        return ret;
    }
    if (memcmp(b, mapped, sizeof(mapped)) == 0) {
        snprintf(ret, IP_ADDRESS_TEXT, "::ffff:%u.%u.%u.%u", b[12], b[13], b[14], b[15]);
        return ret;
    }
    ip_address_longest_zeros(a, &zeros, &nzeros);
    ret[0] = '\0';
    for (unsigned i = 0; i < 8; i++) {
        if (i == zeros) {
            n += (size_t)snprintf(ret + n, IP_ADDRESS_TEXT - n, "::");
            i += nzeros - 1;
            continue;
        }
        bool colon = i > 0 && i != zeros + nzeros;
        n += (size_t)snprintf(ret + n, IP_ADDRESS_TEXT - n, "%s%x", colon ? ":" : "", ip_address_group(a, i));
    }
    return ret;
}

bool ip_endpoint_is_valid(const char *text)
{
    bool bracketed = text[0] == '[';
    const char *end = bracketed ? strchr(text, ']') : strrchr(text, ':');
    struct ip_address address;
    uint64_t port;

    if (ip_address_parse(text, strlen(text), &address))
        return true;
    if (!end || !ip_address_parse(text + bracketed, (size_t)(end - text) - bracketed, &address))
        return false;
    end += bracketed;
    return *end == ':' && bracketed == (address.family == 6) && str_to_u64(end + 1, UINT16_MAX, &port) && port > 0;
}

bool ip_address_equal(const struct ip_address *a, const struct ip_address *b)
{
    return a->family == b->family && memcmp(a->bytes, b->bytes, a->family == 4 ? 4 : 16) == 0;
}

static bool ip_prefix_same_bits(const uint8_t *a, const uint8_t *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    return memcmp(a, b, whole) == 0 && (rest == 0 || ((a[whole] ^ b[whole]) & (0xff00u >> rest & 0xff)) == 0);
}

bool ip_prefix_parse(const char *text, size_t len, struct ip_prefix *ret)
{
    const char *slash = memchr(text, '/', len);
    size_t n = slash ? (size_t)(slash - text) : len;
    struct ip_prefix p = { 0 };

    if (!ip_address_parse(text, n, &p.address))
        return false;
    unsigned bits_max = p.address.family == 4 ? 32 : 128, bits = 0;
    if (!slash)
        bits = bits_max;
    else {
        const char *digits = slash + 1;
        size_t ndigits = len - n - 1;

        if (ndigits == 0 || ndigits > 3 || (ndigits > 1 && digits[0] == '0'))
            return false;
        for (size_t i = 0; i < ndigits; i++) {
            if (!ip_address_digit(digits[i]))
                return false;
            bits = bits * 10 + (unsigned)(digits[i] - '0');
        }
        if (bits > bits_max)
            return false;
    }
    for (unsigned bit = bits; bit < bits_max; bit++)
        if (p.address.bytes[bit / 8] & 0x80u >> bit % 8)
            return false;
    p.bits = (uint8_t)bits;
    *ret = p;
    return true;
}

bool ip_prefix_contains(const struct ip_prefix *p, const struct ip_address *a)
{
    return p->address.family == a->family && ip_prefix_same_bits(p->address.bytes, a->bytes, p->bits);
}
