/* Three rtnetlink messages in one packet, each acknowledged. They are fixed bytes, so code for a
 * netlink library would be longer than this file. */
#include "host/isolate/net.h"

#include "core/base/fd.h"

#include <errno.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>

struct net_route_message {
    struct nlmsghdr h;
    struct rtmsg rt;
    struct rtattr oif_attr;
    uint32_t oif;
};

struct net_route_batch {
    struct {
        struct nlmsghdr h;
        struct ifinfomsg link;
    } up;
    struct net_route_message v4, v6;
};

static struct net_route_message net_prohibit_route(unsigned char family, uint32_t seq)
{
    return (struct net_route_message){
        .h = { .nlmsg_len = sizeof(struct net_route_message),
               .nlmsg_type = RTM_NEWROUTE,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE,
               .nlmsg_seq = seq },
        .rt = { .rtm_family = family,
                .rtm_table = RT_TABLE_MAIN,
                .rtm_protocol = RTPROT_STATIC,
                .rtm_scope = RT_SCOPE_UNIVERSE,
                .rtm_type = RTN_PROHIBIT },
        .oif_attr = { .rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_OIF },
        .oif = 1, /* lo */
    };
}

static int net_read_acks(int sock, int wanted, uint32_t optional_seq)
{
    char answer[4096] __attribute__((aligned(8)));
    int got = 0;

    while (got < wanted) {
        ssize_t n = recv(sock, answer, sizeof(answer), MSG_DONTWAIT);

        if (n < 0)
            return -1;
        size_t left = (size_t)n;
        for (struct nlmsghdr *h = (struct nlmsghdr *)(void *)answer; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            const struct nlmsgerr *e = NLMSG_DATA(h);

            errno = EPROTO;
            if (h->nlmsg_type != NLMSG_ERROR || h->nlmsg_len < NLMSG_LENGTH(sizeof(*e)))
                return -1;
            errno = -e->error;
            if (e->error && !(e->msg.nlmsg_seq == optional_seq && (errno == EAFNOSUPPORT || errno == EOPNOTSUPP)))
                return -1;
            got++;
        }
    }
    return 0;
}

int net_request(int protocol, struct iovec *iov, size_t niov, int acks, uint32_t optional_seq)
{
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    struct msghdr msg = { .msg_name = &kernel, .msg_namelen = sizeof(kernel), .msg_iov = iov, .msg_iovlen = niov };
    auto_fd int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);

    return sock < 0 || sendmsg(sock, &msg, 0) < 0 ? -1 : net_read_acks(sock, acks, optional_seq);
}

int net_loopback_only(struct err *err)
{
    struct net_route_batch b = {
        .up = { .h = { .nlmsg_len = sizeof(b.up),
                       .nlmsg_type = RTM_NEWLINK,
                       .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                       .nlmsg_seq = 1 },
                .link = { .ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_flags = IFF_UP, .ifi_change = IFF_UP } },
        .v4 = net_prohibit_route(AF_INET, 2),
        .v6 = net_prohibit_route(AF_INET6, 3),
    };

    /* IPv4 refuses a prohibit route that names a device; IPv6 requires one. */
    b.v4.h.nlmsg_len = offsetof(struct net_route_message, oif_attr);
    struct iovec iov[] = { { &b.up, sizeof(b.up) }, { &b.v4, b.v4.h.nlmsg_len }, { &b.v6, b.v6.h.nlmsg_len } };
    /* A host without IPv6 needs no IPv6 route. */
    if (net_request(NETLINK_ROUTE, iov, 3, 3, b.v6.h.nlmsg_seq) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot set up loopback and prohibit routes");
    return 0;
}
