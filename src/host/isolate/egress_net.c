/* The steps are: listeners; one nftables rule, which sends TCP connections to addresses outside of
 * 127.0.0.0/8 to the listener EGRESS_NET_ANY; then the address 198.18.0.1/15, which makes the range
 * local. The address comes last: before the rule is in effect, a connection to the range fails.
 *
 * TPROXY changes no address, so getsockname on an accepted socket is the original destination, and
 * the kernel tracks no connection. A rule without an address looks for its listener on the first
 * address of lo, 127.0.0.1.
 *
 * The nftables messages are written by hand: libnftnl would be a library in a privileged process,
 * and `nft` a program that a host need not have. */
#include "host/isolate/egress_net.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "host/isolate/net.h"

#include <arpa/inet.h>
#include <assert.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>

#define NFT_TABLE "cove"
#define NFT_CHAIN "in"

/* --- nftables --- */

struct nft_batch {
    uint8_t bytes[768] __attribute__((aligned(8)));
    size_t len, message; /* where the current message begins */
    uint32_t seq;
};

static void nft_append(struct nft_batch *b, const void *data, size_t len)
{
    assert(b->len + NLMSG_ALIGN(len) <= sizeof(b->bytes));
    memcpy(b->bytes + b->len, data, len);
    b->len += NLMSG_ALIGN(len); /* the buffer is zeroed */
}

static void nft_begin_message(struct nft_batch *b, uint16_t type, uint16_t flags, uint8_t family, uint16_t resource)
{
    struct nlmsghdr h = { .nlmsg_type = type, .nlmsg_flags = NLM_F_REQUEST | flags, .nlmsg_seq = ++b->seq };
    struct nfgenmsg g = { .nfgen_family = family, .version = NFNETLINK_V0, .res_id = htons(resource) };

    b->message = b->len;
    nft_append(b, &h, sizeof(h));
    nft_append(b, &g, sizeof(g));
}

static void nft_end_message(struct nft_batch *b)
{
    ((struct nlmsghdr *)(void *)(b->bytes + b->message))->nlmsg_len = (uint32_t)(b->len - b->message);
}

static void nft_put(struct nft_batch *b, uint16_t type, const void *data, size_t len)
{
    struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + len), .nla_type = type };

    nft_append(b, &a, sizeof(a));
    nft_append(b, data, len);
}

static void nft_put_u32(struct nft_batch *b, uint16_t type, uint32_t value)
{
    uint32_t be = htonl(value);

    nft_put(b, type, &be, sizeof(be));
}

static size_t nft_begin_nested(struct nft_batch *b, uint16_t type)
{
    struct nlattr a = { .nla_type = NLA_F_NESTED | type };
    size_t at = b->len;

    nft_append(b, &a, sizeof(a));
    return at;
}

static void nft_end_nested(struct nft_batch *b, size_t at)
{
    ((struct nlattr *)(void *)(b->bytes + at))->nla_len = (uint16_t)(b->len - at);
}

/* The rule: TCP to an address outside of 127.0.0.0/8 goes to the listener. Established connections
 * and their replies pass it too: the kernel finds their sockets first. */
static const struct nft_expression {
    const char *name;
    struct {
        uint16_t type; /* 0: none */
        uint32_t value;
    } numbers[4];
    uint16_t data_type; /* 0: no data */
    uint8_t data[2], data_len;
} nft_rule[] = {
    { "payload",
      { { NFTA_PAYLOAD_DREG, NFT_REG_1 },
        { NFTA_PAYLOAD_BASE, NFT_PAYLOAD_NETWORK_HEADER },
        { NFTA_PAYLOAD_OFFSET, 16 }, /* of the destination address */
        { NFTA_PAYLOAD_LEN, 1 } } },
    { "cmp", { { NFTA_CMP_SREG, NFT_REG_1 }, { NFTA_CMP_OP, NFT_CMP_NEQ } }, NFTA_CMP_DATA, { 127 }, 1 },
    { "meta", { { NFTA_META_DREG, NFT_REG_1 }, { NFTA_META_KEY, NFT_META_L4PROTO } } },
    { "cmp", { { NFTA_CMP_SREG, NFT_REG_1 }, { NFTA_CMP_OP, NFT_CMP_EQ } }, NFTA_CMP_DATA, { IPPROTO_TCP }, 1 },
    { "immediate", { { NFTA_IMMEDIATE_DREG, NFT_REG_1 } }, NFTA_IMMEDIATE_DATA, { 0, EGRESS_NET_ANY_PORT }, 2 },
    { "tproxy", { { NFTA_TPROXY_FAMILY, NFPROTO_IPV4 }, { NFTA_TPROXY_REG_PORT, NFT_REG_1 } } },
};

static void nft_put_expression(struct nft_batch *b, const struct nft_expression *e)
{
    size_t element = nft_begin_nested(b, NFTA_LIST_ELEM);

    nft_put(b, NFTA_EXPR_NAME, e->name, strlen(e->name) + 1);
    size_t data = nft_begin_nested(b, NFTA_EXPR_DATA);
    for (size_t i = 0; i < ARRAY_LEN(e->numbers) && e->numbers[i].type; i++)
        nft_put_u32(b, e->numbers[i].type, e->numbers[i].value);
    if (e->data_type) {
        size_t value = nft_begin_nested(b, e->data_type);

        nft_put(b, NFTA_DATA_VALUE, e->data, e->data_len);
        nft_end_nested(b, value);
    }
    nft_end_nested(b, data);
    nft_end_nested(b, element);
}

static void nft_put_chain(struct nft_batch *b)
{
    nft_put(b, NFTA_CHAIN_TABLE, NFT_TABLE, sizeof(NFT_TABLE));
    nft_put(b, NFTA_CHAIN_NAME, NFT_CHAIN, sizeof(NFT_CHAIN));
    size_t hook = nft_begin_nested(b, NFTA_CHAIN_HOOK);
    nft_put_u32(b, NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING);
    nft_put_u32(b, NFTA_HOOK_PRIORITY, (uint32_t)-150); /* "mangle", where TPROXY belongs */
    nft_end_nested(b, hook);
    nft_put(b, NFTA_CHAIN_TYPE, "filter", sizeof("filter"));
}

static void nft_put_rule(struct nft_batch *b)
{
    nft_put(b, NFTA_RULE_TABLE, NFT_TABLE, sizeof(NFT_TABLE));
    nft_put(b, NFTA_RULE_CHAIN, NFT_CHAIN, sizeof(NFT_CHAIN));
    size_t list = nft_begin_nested(b, NFTA_RULE_EXPRESSIONS);
    for (size_t i = 0; i < ARRAY_LEN(nft_rule); i++)
        nft_put_expression(b, &nft_rule[i]);
    nft_end_nested(b, list);
}

/* Returns -1 if the kernel has no nftables or no TPROXY. */
static int egress_net_add_rule(void)
{
    struct nft_batch b = { 0 };
    uint16_t subsystem = NFNL_SUBSYS_NFTABLES << 8, create = NLM_F_CREATE | NLM_F_ACK;

    nft_begin_message(&b, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    nft_end_message(&b);
    nft_begin_message(&b, subsystem | NFT_MSG_NEWTABLE, create, NFPROTO_IPV4, 0);
    nft_put(&b, NFTA_TABLE_NAME, NFT_TABLE, sizeof(NFT_TABLE));
    nft_end_message(&b);
    nft_begin_message(&b, subsystem | NFT_MSG_NEWCHAIN, create, NFPROTO_IPV4, 0);
    nft_put_chain(&b);
    nft_end_message(&b);
    nft_begin_message(&b, subsystem | NFT_MSG_NEWRULE, create | NLM_F_APPEND, NFPROTO_IPV4, 0);
    nft_put_rule(&b);
    nft_end_message(&b);
    nft_begin_message(&b, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    nft_end_message(&b);
    return net_request(NETLINK_NETFILTER, &(struct iovec){ b.bytes, b.len }, 1, 3, 0);
}

/* --- the address --- */

static int egress_net_add_address(void)
{
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg ifa;
        struct rtattr local_attr;
        uint32_t local;
    } m = {
        .h = { .nlmsg_len = sizeof(m),
               .nlmsg_type = RTM_NEWADDR,
               .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
               .nlmsg_seq = 1 },
        .ifa = { .ifa_family = AF_INET,
                 .ifa_prefixlen = EGRESS_NET_PREFIX,
                 .ifa_scope = RT_SCOPE_HOST,
                 .ifa_index = 1 }, /* lo */
        .local_attr = { .rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = IFA_LOCAL },
        .local = htonl(EGRESS_NET_ADDRESS),
    };

    return net_request(NETLINK_ROUTE, &(struct iovec){ &m, sizeof(m) }, 1, 1, 0);
}

/* --- listeners --- */

static int egress_net_listen(int type, uint16_t port, int backlog, bool transparent)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int on = 1;
    auto_fd int sock = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (sock < 0 || (transparent && setsockopt(sock, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on)) < 0) ||
        bind(sock, (struct sockaddr *)&at, sizeof(at)) < 0 || (backlog && listen(sock, backlog) < 0))
        return -1;
    return take_fd(&sock);
}

void egress_net_close(struct egress_net *n)
{
    while (n->n)
        fd_close(&n->fds[--n->n]);
}

int egress_net_open(struct egress_net *ret, struct err *err)
{
    static const struct {
        int type;
        uint16_t port;
        int backlog;
    } sockets[] = {
        [EGRESS_NET_DNS_UDP] = { SOCK_DGRAM, EGRESS_NET_DNS_PORT, 0 },
        [EGRESS_NET_DNS_TCP] = { SOCK_STREAM, EGRESS_NET_DNS_PORT, 16 },
        [EGRESS_NET_PROXY] = { SOCK_STREAM, EGRESS_NET_PROXY_PORT, 128 },
        [EGRESS_NET_ANY] = { SOCK_STREAM, EGRESS_NET_ANY_PORT, 128 },
    };
    struct egress_net made = { .n = 0 };

    for (; made.n < EGRESS_NET_ANY; made.n++) {
        made.fds[made.n] = egress_net_listen(sockets[made.n].type, sockets[made.n].port, sockets[made.n].backlog,
                                             false);
        if (made.fds[made.n] < 0) {
            err_sys(err, ERR_NETWORK_UNAVAILABLE, "cannot listen on port %u of the sandbox", sockets[made.n].port);
            egress_net_close(&made);
            return -1;
        }
    }
    int any = egress_net_listen(SOCK_STREAM, EGRESS_NET_ANY_PORT, sockets[EGRESS_NET_ANY].backlog, true);
    if (any >= 0 && (wall_is_mutated("transparent") || egress_net_add_rule() == 0) && egress_net_add_address() == 0)
        made.fds[made.n++] = take_fd(&any);
    fd_close(&any);
    *ret = made;
    return 0;
}
