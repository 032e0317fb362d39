/* An IPv4-mapped IPv6 address is read as the IPv4 address, because the kernel connects to that one.
 * Which addresses are closed is the table of policy/closed_ranges.def. */
#include "server/audit/address.h"

#include "core/base/str.h"
#include "policy/closed_ranges.h"

#include <arpa/inet.h>
#include <string.h>

static bool address_of_sockaddr(const struct sockaddr *addr, struct ip_address *ret)
{
    *ret = (struct ip_address){ 0 };
    if (addr->sa_family == AF_INET) {
        ret->family = 4;
        memcpy(ret->bytes, &((const struct sockaddr_in *)(const void *)addr)->sin_addr, 4);
        return true;
    }
    if (addr->sa_family != AF_INET6)
        return false;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)addr)->sin6_addr;
    bool mapped = IN6_IS_ADDR_V4MAPPED(six);
    ret->family = mapped ? 4 : 6;
    memcpy(ret->bytes, six->s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    return true;
}

bool address_is_public(const struct sockaddr *addr)
{
    return address_is_allowed(addr, NULL, 0);
}

bool address_is_allowed(const struct sockaddr *addr, const struct ip_prefix *nets, size_t nnets)
{
    struct ip_address a;

    return address_of_sockaddr(addr, &a) && !closed_range_of(&a, nets, nnets);
}

int address_net_parse(const char *text, struct ip_prefix *ret, struct err *err)
{
    const char *slash = strchr(text, '/');
    struct ip_prefix net = { 0 };
    uint64_t bits;

    if (!ip_address_parse(text, slash ? (size_t)(slash - text) : strlen(text), &net.address))
        return err_set(err, ERR_INVALID, "'%.60s' is neither an address nor a network such as 10.0.0.0/8", text);
    uint64_t bits_max = net.address.family == 4 ? 32 : 128;
    if (!slash)
        bits = bits_max;
    else if (!str_to_u64(slash + 1, bits_max, &bits))
        return err_set(err, ERR_INVALID, "'%.60s': the prefix length after '/' is invalid", text);
    for (uint64_t bit = bits; bit < bits_max; bit++)
        net.address.bytes[bit / 8] &= (uint8_t) ~(0x80u >> bit % 8);
    net.bits = (uint8_t)bits;
    *ret = net;
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
