#include "host/egress/host_addresses.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#define ADDRESSES_MAX 65536u /* of one host */

int host_addresses_init(struct host_addresses *h, struct err *err)
{
    struct sockaddr_nl sa = { .nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR };

    *h = (struct host_addresses){ .netlink = -1 };
    auto_fd int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        return err_sys(err, ERR_SYS, "cannot follow the addresses of this host");
    h->netlink = take_fd(&fd);
    return 0;
}

void host_addresses_done(struct host_addresses *h)
{
    fd_close(&h->netlink);
    free(h->list);
    *h = (struct host_addresses){ .netlink = -1 };
}

bool host_address_from(const struct sockaddr *sa, struct ip_address *ret)
{
    *ret = (struct ip_address){ 0 };
    if (sa->sa_family == AF_INET) {
        ret->family = 4;
        memcpy(ret->bytes, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
        return true;
    }
    if (sa->sa_family == AF_INET6) {
        ret->family = 6;
        memcpy(ret->bytes, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
        return true;
    }
    return false;
}

/* ENOBUFS means that messages were lost: that is a change too. */
static void host_addresses_follow(struct host_addresses *h)
{
    char message[4096];

    if (h->netlink < 0)
        h->is_read = false;
    else
        while (recv(h->netlink, message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC) >= 0 || errno == ENOBUFS ||
               errno == EINTR)
            h->is_read = false;
}

static bool host_addresses_is_global_ipv6(const struct ip_address *a)
{
    return a->family == 6 && (a->bytes[0] & 0xe0) == 0x20;
}

/* If the addresses cannot be read, the previous ones stay, and the next question tries again. */
static void host_addresses_read(struct host_addresses *h)
{
    struct ifaddrs *all = NULL;
    struct ip_address a;

    host_addresses_follow(h);
    if (h->is_read || getifaddrs(&all) < 0)
        return;
    h->n = 0;
    h->has_ipv6 = false;
    for (const struct ifaddrs *i = all; i && h->n < ADDRESSES_MAX; i = i->ifa_next) {
        if (!i->ifa_addr || !host_address_from(i->ifa_addr, &a))
            continue;
        if ((h->n & (h->n - 1)) == 0)
            h->list = mem_resize(h->list, h->n ? 2 * h->n : 1, sizeof(*h->list));
        h->list[h->n++] = a;
        h->has_ipv6 = h->has_ipv6 || host_addresses_is_global_ipv6(&a);
    }
    freeifaddrs(all);
    h->is_read = true;
}

bool host_addresses_has(struct host_addresses *h, const struct ip_address *a)
{
    host_addresses_read(h);
    for (size_t i = 0; i < h->n; i++)
        if (ip_address_equal(&h->list[i], a))
            return true;
    return false;
}

bool host_addresses_has_ipv6(struct host_addresses *h)
{
    host_addresses_read(h);
    return h->has_ipv6;
}
