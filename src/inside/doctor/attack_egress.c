/* Attacks on the network of a sandbox whose egress rules allow nothing. An address, a port or a
 * privilege past the proxy is open; so is a proxy that does not refuse. */
#include "inside/doctor/attack.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#define DNS_PORT 53
#define PROXY_PORT 3128
#define INVENTED "198.18.0.2" /* of the range whose connections arrive at the proxy */
#define ANSWER_MS 3000
#define NXDOMAIN 3

static struct sockaddr_in attack_address(const char *ip, uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    (void)inet_pton(AF_INET, ip, &a.sin_addr);
    return a;
}

/* Returns the socket, or -1 with errno. */
static int attack_connect(int type, const char *ip, uint16_t port)
{
    struct sockaddr_in to = attack_address(ip, port);
    auto_fd int sock = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    return sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof(to)) < 0 ? -1 : take_fd(&sock);
}

static int attack_connect_v6(const char *ip, uint16_t port)
{
    struct sockaddr_in6 to = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    auto_fd int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)inet_pton(AF_INET6, ip, &to.sin6_addr);
    return sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof(to)) < 0 ? -1 : take_fd(&sock);
}

static void attack_expect_no_connection(struct attack *a, const char *to, int sock, int error, int other)
{
    char what[80];

    snprintf(what, sizeof(what), "connecting to %s", to);
    attack_expect_error(a, what, sock, error, other);
    if (sock >= 0)
        close(sock);
}

/* Bytes of an answer; 0: the end; -1: an error or no answer. */
static ssize_t attack_receive(int sock, char *text, size_t cap)
{
    struct pollfd p = { .fd = sock, .events = POLLIN };

    return poll(&p, 1, ANSWER_MS) == 1 ? recv(sock, text, cap, 0) : -1;
}

static void attack_egress_addresses(struct attack *a)
{
    static const char *const far[] = { "192.0.2.1", "169.254.169.254", "10.0.0.1", "198.20.0.1", "8.8.8.8" };

    for (size_t i = 0; i < ARRAY_LEN(far); i++) {
        char mapped[64];

        snprintf(mapped, sizeof(mapped), "::ffff:%s", far[i]);
        attack_expect_no_connection(a, far[i], attack_connect(SOCK_STREAM, far[i], 443), EACCES, 0);
        attack_expect_no_connection(a, mapped, attack_connect_v6(mapped, 443), EACCES, EAFNOSUPPORT);
        attack_expect_no_connection(a, "port 53 over UDP", attack_connect(SOCK_DGRAM, far[i], DNS_PORT), EACCES, 0);
    }
    attack_expect_no_connection(a, "2001:db8::1", attack_connect_v6("2001:db8::1", 443), EACCES, EAFNOSUPPORT);
    attack_expect_no_connection(a, "::1", attack_connect_v6("::1", PROXY_PORT), ECONNREFUSED, EAFNOSUPPORT);
}

static void attack_egress_privileges(struct attack *a)
{
    static const uint16_t ours[] = { DNS_PORT, PROXY_PORT };
    int on = 1;
    auto_fd int raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_TCP);
    attack_expect_failure(a, "a raw socket", raw);
    auto_fd int packet = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    attack_expect_failure(a, "a packet socket", packet);
    auto_fd int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    attack_expect_failure(a, "a transparent socket", setsockopt(sock, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on)));
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        struct sockaddr_in at = attack_address("127.0.0.1", ours[i]);

        attack_expect_error(a, "binding a port of the proxy", bind(sock, (struct sockaddr *)&at, sizeof(at)),
                            EADDRINUSE, 0);
    }
}

static void attack_egress_names(struct attack *a)
{
    static const char query[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07"
                                "example\x03org\x00\x00\x01\x00\x01"; /* A of example.org */
    char answer[512];
    auto_fd int sock = attack_connect(SOCK_DGRAM, "127.0.0.1", DNS_PORT);

    if (sock < 0 || send(sock, query, sizeof(query) - 1, 0) < 0) {
        attack_open(a, "the resolver: %s", strerror(errno));
        return;
    }
    ssize_t n = attack_receive(sock, answer, sizeof(answer));
    if (n < 12)
        attack_open(a, "the resolver gave no answer");
    else if ((answer[3] & 15) != NXDOMAIN)
        attack_open(a, "the resolver answered a name with code %d", answer[3] & 15);
    else
        attack_held(a, "example.org does not exist");
}

static void attack_egress_proxy(struct attack *a)
{
    static const char request[] = "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n";
    char answer[128] = "";
    auto_fd int sock = attack_connect(SOCK_STREAM, "127.0.0.1", PROXY_PORT);

    if (sock < 0 || send(sock, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
        attack_open(a, "the proxy: %s", strerror(errno));
    else if (attack_receive(sock, answer, sizeof(answer) - 1) <= 0)
        attack_open(a, "the proxy gave no answer");
    else if (!str_starts(answer, "HTTP/1.1 403 "))
        attack_open(a, "the proxy answered: %.*s", (int)min_size(strcspn(answer, "\r\n"), 60), answer);
    else
        attack_held(a, "CONNECT example.org:443 is refused");
}

/* The doctor compares the observation with the carrier that the sandbox reports. */
static void attack_egress_carrier(struct attack *a)
{
    char c;
    auto_fd int sock = attack_connect(SOCK_STREAM, INVENTED, 443);

    if (sock < 0 && errno == EACCES)
        attack_held(a, "proxy");
    else if (sock < 0)
        attack_open(a, "connecting to an invented address: %s", strerror(errno));
    else if (attack_receive(sock, &c, 1) > 0)
        attack_open(a, "an address that no name has was answered");
    else
        attack_held(a, "tproxy");
}

static struct attack attack_egress_table[] = {
    { "egress_addresses", attack_egress_addresses }, { "egress_privileges", attack_egress_privileges },
    { "egress_names", attack_egress_names },         { "egress_proxy", attack_egress_proxy },
    { "egress_carrier", attack_egress_carrier },
};

struct attack *attack_egress(size_t *count)
{
    *count = ARRAY_LEN(attack_egress_table);
    return attack_egress_table;
}
