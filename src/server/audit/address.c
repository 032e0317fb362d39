/* One table for both families: an IPv4 address is looked up as ::ffff:a.b.c.d, so that both
 * notations are treated alike. IPv6 addresses with an embedded IPv4 address (NAT64, 6to4, Teredo)
 * are all refused: their destination depends on a gateway. */
#include "server/audit/address.h"

#include "core/base/str.h"

#include <arpa/inet.h>
#include <string.h>

static const struct {
    const char *net;
    unsigned bits;
} address_closed_nets[] = {
    /* IPv4, RFC 6890 and later additions */
    { "::ffff:0.0.0.0", 96 + 8 },
    { "::ffff:10.0.0.0", 96 + 8 },
    { "::ffff:100.64.0.0", 96 + 10 },
    { "::ffff:127.0.0.0", 96 + 8 },
    { "::ffff:169.254.0.0", 96 + 16 },
    { "::ffff:172.16.0.0", 96 + 12 },
    { "::ffff:192.0.0.0", 96 + 24 },
    { "::ffff:192.0.2.0", 96 + 24 },
    { "::ffff:192.88.99.0", 96 + 24 },
    { "::ffff:192.168.0.0", 96 + 16 },
    { "::ffff:198.18.0.0", 96 + 15 },
    { "::ffff:198.51.100.0", 96 + 24 },
    { "::ffff:203.0.113.0", 96 + 24 },
    { "::ffff:224.0.0.0", 96 + 4 },
    { "::ffff:240.0.0.0", 96 + 4 },
    /* IPv6 within 2000::/3 */
    { "2001::", 23 },
    { "2001:db8::", 32 },
    { "2002::", 16 },
    { "3fff::", 20 },
};
static const struct {
    const char *net;
    unsigned bits;
} address_public_nets[] = { { "::ffff:0.0.0.0", 96 }, { "2000::", 3 } };

static bool address_in_net(const struct in6_addr *a, const struct in6_addr *net, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;

    if (memcmp(a->s6_addr, net->s6_addr, whole) != 0)
        return false;
    return rest == 0 || ((a->s6_addr[whole] ^ net->s6_addr[whole]) & (0xff00u >> rest & 0xff)) == 0;
}

static void address_map_v4(struct in_addr v4, struct in6_addr *ret)
{
    *ret = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
    memcpy(ret->s6_addr + 12, &v4, 4);
}

static bool address_as_v6(const struct sockaddr *addr, struct in6_addr *ret)
{
    if (addr->sa_family == AF_INET)
        address_map_v4(((const struct sockaddr_in *)(const void *)addr)->sin_addr, ret);
    else if (addr->sa_family == AF_INET6)
        *ret = ((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
    else
        return false;
    return true;
}

static bool address_in_net_text(const struct in6_addr *a, const char *net, unsigned bits)
{
    struct in6_addr n;

    return inet_pton(AF_INET6, net, &n) == 1 && address_in_net(a, &n, bits);
}

bool address_is_public(const struct sockaddr *addr)
{
    struct in6_addr a;
    bool inside = false;

    if (!address_as_v6(addr, &a))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(address_public_nets); i++)
        inside |= address_in_net_text(&a, address_public_nets[i].net, address_public_nets[i].bits);
    for (size_t i = 0; i < ARRAY_LEN(address_closed_nets) && inside; i++)
        inside = !address_in_net_text(&a, address_closed_nets[i].net, address_closed_nets[i].bits);
    return inside;
}

bool address_is_allowed(const struct sockaddr *addr, const struct address_net *nets, size_t nnets)
{
    struct in6_addr a;

    if (!address_as_v6(addr, &a))
        return false;
    for (size_t i = 0; i < nnets; i++)
        if (address_in_net(&a, &nets[i].addr, nets[i].bits))
            return true;
    return address_is_public(addr);
}

int address_net_parse(const char *text, struct address_net *ret, struct err *err)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    char addr[INET6_ADDRSTRLEN];
    struct in_addr v4;
    uint64_t bits = 128;

    if (n >= sizeof(addr))
        return err_set(err, ERR_INVALID, "'%.60s' is not an address", text);
    memcpy(addr, text, n);
    addr[n] = '\0';
    bool is_v4 = inet_pton(AF_INET, addr, &v4) == 1;
    if (is_v4)
        address_map_v4(v4, &ret->addr);
    else if (inet_pton(AF_INET6, addr, &ret->addr) != 1)
        return err_set(err, ERR_INVALID, "'%.60s' is neither an address nor a network such as 10.0.0.0/8", text);
    if (slash && !str_to_u64(slash + 1, is_v4 ? 32 : 128, &bits))
        return err_set(err, ERR_INVALID, "'%.60s': the prefix length after '/' is invalid", text);
    ret->bits = (unsigned)(slash && is_v4 ? bits + 96 : bits);
    return 0;
}

int address_literal(const char *host, struct sockaddr_storage *ret, struct err *err)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ret;
    char inner[INET6_ADDRSTRLEN];
    size_t n = strlen(host);

    *ret = (struct sockaddr_storage){ 0 };
    if (host[0] == '[') {
        if (n < 3 || n - 2 >= sizeof(inner) || host[n - 1] != ']')
            return err_set(err, ERR_INVALID, "'%.60s' is not an address", host);
        memcpy(inner, host + 1, n - 2);
        inner[n - 2] = '\0';
        ret->ss_family = AF_INET6;
        return inet_pton(AF_INET6, inner, &v6->sin6_addr) == 1
                   ? 1
                   : err_set(err, ERR_INVALID, "'%.60s' is not an address", host);
    }
    ret->ss_family = AF_INET;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1)
        return 1;
    /* Some programs take a host with a numeric last label for an address: 127.1, 2130706433,
     * 0x7f.1, 127.0.0.1. */
    const char *last = host + n;
    while (last > host && last[-1] == '.')
        last--;
    const char *end = last;
    while (last > host && last[-1] != '.')
        last--;
    size_t len = (size_t)(end - last);
    if (len > 0 && (strspn(last, "0123456789") >= len || ((last[0] == '0') && (last[1] == 'x' || last[1] == 'X'))))
        return err_set(err, ERR_INVALID, "'%.60s': this form of an address is not accepted; write it like 192.0.2.1",
                       host);
    return 0;
}
