/* IPv6 has many spellings of an IPv4 address whose destination depends on a gateway: all of them
 * are closed. If the operator opens the prefix of such a gateway, the inner address decides;
 * otherwise opening NAT64 would open 64:ff9b::127.0.0.1 too. */
#include "policy/closed_ranges.h"

#include "core/base/str.h"

#define EMBEDDED "embedded-ipv4"
#define HIGH(g) (uint8_t)((g) >> 8)
#define LOW(g) (uint8_t)((g)&0xff)

static const struct {
    struct ip_prefix prefix;
    const char *name;
} closed_range_table[] = {
#define CLOSED_V4(a, b, c, d, bits, name) { { { 4, { a, b, c, d } }, bits }, name },
#define CLOSED_V6(a, b, c, d, e, f, g, h, bits, name)                                                             \
    { { { 6,                                                                                                      \
          { HIGH(a), LOW(a), HIGH(b), LOW(b), HIGH(c), LOW(c), HIGH(d), LOW(d), HIGH(e), LOW(e), HIGH(f), LOW(f), \
            HIGH(g), LOW(g), HIGH(h), LOW(h) } },                                                                 \
        bits },                                                                                                   \
      name },
#include "policy/closed_ranges.def"
#undef CLOSED_V4
#undef CLOSED_V6
};

static struct ip_address closed_range_inner_at(const struct ip_address *a, unsigned at, uint8_t invert)
{
    struct ip_address v4 = { .family = 4 };

    for (unsigned i = 0; i < 4; i++)
        v4.bytes[i] = a->bytes[at + i] ^ invert;
    return v4;
}

/* The addresses of ISATAP have this interface identifier in any prefix. */
static bool closed_range_is_isatap(const struct ip_address *a)
{
    return a->family == 6 && (a->bytes[8] & 0xfd) == 0 && a->bytes[9] == 0 && a->bytes[10] == 0x5e &&
           a->bytes[11] == 0xfe;
}

/* The IPv4 address inside an IPv6 address. */
static bool closed_range_inner(const struct ip_address *a, struct ip_address *ret)
{
    static const uint8_t zeros[8], nat64[12] = { 0, 0x64, 0xff, 0x9b };
    const uint8_t *b = a->bytes;

    if (a->family != 6)
        return false;
    if (b[0] == 0x20 && b[1] == 0x02) /* 6to4 */
        *ret = closed_range_inner_at(a, 2, 0);
    else if (b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0) /* Teredo: the client, inverted */
        *ret = closed_range_inner_at(a, 12, 0xff);
    else if (memcmp(b, nat64, sizeof(nat64)) == 0 || memcmp(b, zeros, sizeof(zeros)) == 0 || closed_range_is_isatap(a))
        *ret = closed_range_inner_at(a, 12, 0);
    else
        return false;
    return true;
}

static bool closed_range_is_open(const struct ip_address *a, const struct ip_prefix *open, size_t nopen)
{
    for (size_t i = 0; i < nopen; i++)
        if (ip_prefix_contains(&open[i], a))
            return true;
    return false;
}

static const char *closed_range_name(const struct ip_address *a)
{
    for (size_t i = 0; i < ARRAY_LEN(closed_range_table); i++)
        if (ip_prefix_contains(&closed_range_table[i].prefix, a))
            return closed_range_table[i].name;
    if (closed_range_is_isatap(a))
        return EMBEDDED;
    if (a->family == 6 && (a->bytes[0] & 0xe0) != 0x20)
        return "reserved";
    return a->family == 4 || a->family == 6 ? NULL : "unknown";
}

const char *closed_range_of(const struct ip_address *a, const struct ip_prefix *open, size_t nopen)
{
    const char *name = closed_range_name(a);
    struct ip_address inner;

    if (!name || !closed_range_is_open(a, open, nopen))
        return name;
    if (!str_eq(name, EMBEDDED) || !closed_range_inner(a, &inner))
        return NULL;
    name = closed_range_name(&inner);
    return name && !closed_range_is_open(&inner, open, nopen) ? name : NULL;
}
