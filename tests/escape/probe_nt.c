/* NT: the network. A sandbox without network has loopback and nothing else; every attempt must
 * be refused immediately, and a timeout that only looks like a refusal does not count. */
#include "probe.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static socklen_t address(struct sockaddr_storage *ss, const char *ip, int port)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ss;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ss;

    memset(ss, 0, sizeof *ss);
    if (inet_pton(AF_INET, ip, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof *v4;
    }
    inet_pton(AF_INET6, ip, &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)port);
    return sizeof *v6;
}

/* 0 after an answer, ETIMEDOUT after a second of silence, else the error of the refusal. */
static int try_connect(const char *ip, int port)
{
    struct sockaddr_storage ss;
    socklen_t len = address(&ss, ip, port);
    int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int error = 0;
    socklen_t size = sizeof error;

    if (fd < 0)
        return errno;
    if (connect(fd, (struct sockaddr *)&ss, len) < 0) {
        error = errno;
        struct pollfd p = { fd, POLLOUT, 0 };
        if (error == EINPROGRESS && poll(&p, 1, 1000) > 0)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        else if (error == EINPROGRESS)
            error = ETIMEDOUT;
    }
    /* Loopback may choose the tested port as the local port, and connect the socket to itself. */
    struct sockaddr_storage self;
    socklen_t self_len = sizeof self;
    if (error == 0 && getsockname(fd, (struct sockaddr *)&self, &self_len) == 0 && memcmp(&self, &ss, 4) == 0)
        error = ECONNREFUSED;
    close(fd);
    return error;
}

static void unreachable(struct outcome *o, const char *ip, int port)
{
    int error = try_connect(ip, port);

    if (error == 0)
        escaped(o, "%s port %d answers", ip, port);
    else if (error == ETIMEDOUT || error == ECONNRESET)
        escaped(o, "%s port %d: %s, so packets had a route", ip, port, strerror(error));
    else
        held(o, "%s port %d: %s", ip, port, strerror(error));
}

static void nt01(struct outcome *o)
{
    REFUSED(o, "raw ICMP", socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    REFUSED(o, "raw ICMPv6", socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    REFUSED(o, "raw IP", socket(AF_INET, SOCK_RAW, IPPROTO_RAW), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
}

static void nt02(struct outcome *o)
{
    REFUSED(o, "packet socket", socket(AF_PACKET, SOCK_RAW, htons(3)), EPERM, EACCES, EAFNOSUPPORT);
}

static void nt03(struct outcome *o)
{
    for (int port = 1; port < 65536; port++) {
        int error = try_connect("127.0.0.1", port);
        if (error == 0)
            escaped(o, "127.0.0.1 port %d answers", port);
        else if (error != ECONNREFUSED) {
            /* No loopback at all is as good, and the same for every port. */
            held(o, "127.0.0.1: %s", strerror(error));
            return;
        }
    }
    held(o, "none of 65535 ports of 127.0.0.1 answers");
}

static void nt04(struct outcome *o)
{
    static const int ports[] = { 22,   25,   53,   80,   443,  631,  2375, 2379, 3306,
                                 5432, 6379, 6443, 8080, 8443, 8700, 9000, 10250 };

    for (size_t i = 0; i < COUNT(ports); i++)
        if (try_connect("::1", ports[i]) == 0)
            escaped(o, "::1 port %d answers", ports[i]);
    int planted = (int)canary_number("tcp_port", 0);
    if (planted && (try_connect("127.0.0.1", planted) == 0 || try_connect("::1", planted) == 0))
        escaped(o, "the host's listener on port %d answers", planted);
    held(o, "no listener of the host answers on loopback");
}

static void nt05(struct outcome *o)
{
    unreachable(o, "169.254.169.254", 80);
    unreachable(o, "169.254.170.2", 80);
    unreachable(o, "100.100.100.200", 80);
    unreachable(o, "fd00:ec2::254", 80);
}

static void nt06(struct outcome *o)
{
    unreachable(o, "1.1.1.1", 443);
    unreachable(o, "8.8.8.8", 53);
    unreachable(o, "10.0.0.1", 80);
    unreachable(o, "192.168.0.1", 80);
}

static void nt07(struct outcome *o)
{
    unreachable(o, "2606:4700:4700::1111", 443);
    unreachable(o, "fe80::1", 80);
}

static void ask_dns(struct outcome *o, const char *ip)
{
    static const uint8_t query[] = { 0x12, 0x34, 1,   0,   0,   1, 0,   0,   0,   0, 0, 0, 7, 'e', 'x',
                                     'a',  'm',  'p', 'l', 'e', 3, 'c', 'o', 'm', 0, 0, 1, 0, 1 };
    struct sockaddr_storage ss;
    socklen_t len = address(&ss, ip, 53);
    int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char reply[64];

    if (fd < 0 || connect(fd, (struct sockaddr *)&ss, len) < 0 || send(fd, query, sizeof query, 0) < 0) {
        held(o, "DNS at %s: %s", ip, strerror(errno));
    } else {
        struct pollfd p = { fd, POLLIN, 0 };
        if (poll(&p, 1, 300) > 0 && recv(fd, reply, sizeof reply, 0) > 0)
            escaped(o, "the resolver at %s answers", ip);
        else if (strncmp(ip, "127.", 4) != 0)
            escaped(o, "a query was sent to %s", ip);
        else
            held(o, "DNS at %s: no answer", ip);
    }
    if (fd >= 0)
        close(fd);
}

static void nt08(struct outcome *o)
{
    char buf[2048], host[128];

    ask_dns(o, "1.1.1.1");
    ask_dns(o, "127.0.0.1");
    ask_dns(o, "127.0.0.53");
    snprintf(host, sizeof host, "%s", canary("resolver"));
    if (*host)
        ask_dns(o, host);
    ssize_t n = slurp("/etc/resolv.conf", buf, sizeof buf);
    for (char *line = strtok(buf, "\n"); n > 0 && line; line = strtok(NULL, "\n")) {
        char ip[64];
        if (sscanf(line, "nameserver %63s", ip) == 1)
            ask_dns(o, ip);
    }
}

static void nt09(struct outcome *o)
{
    struct if_nameindex *list = if_nameindex();

    for (struct if_nameindex *i = list; i && i->if_index; i++)
        if (strcmp(i->if_name, "lo") != 0)
            escaped(o, "there is an interface %s", i->if_name);
    char buf[4096];
    if (slurp("/proc/net/dev", buf, sizeof buf) > 0)
        for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
            if (strchr(line, ':') && !strstr(line, "lo:"))
                escaped(o, "/proc/net/dev shows %.20s", line);
    held(o, "no interface except lo");
}

static void nt10(struct outcome *o)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    static char buf[65536];
    char name[100];

    snprintf(name, sizeof name, "%s", canary("abstract"));
    if (!*name) {
        skipped(o, "nothing was planted");
        return;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(un.sun_path + 1, name, strlen(name));
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    REFUSED(o, "connect to the planted abstract socket", connect(fd, (struct sockaddr *)&un, len), ECONNREFUSED, EPERM,
            EACCES, EBADF);
    if (holds(buf, slurp("/proc/net/unix", buf, sizeof buf), name))
        escaped(o, "/proc/net/unix lists the planted socket");
}

static void nt11(struct outcome *o)
{
    static const char *const paths[] = { "/var/run/docker.sock",
                                         "/run/docker.sock",
                                         "/run/containerd/containerd.sock",
                                         "/run/podman/podman.sock",
                                         "/run/dbus/system_bus_socket",
                                         "/run/systemd/private",
                                         "/run/systemd/journal/socket",
                                         "/run/crio/crio.sock",
                                         "/dev/log",
                                         "/run/cove/api.sock",
                                         "/run/cove/jailer.sock",
                                         "/run/snapd.socket",
                                         "/tmp/.X11-unix/X0" };

    for (size_t i = 0; i < COUNT(paths); i++) {
        struct stat st;
        if (lstat(paths[i], &st) == 0)
            escaped(o, "%s is there", paths[i]);
    }
    held(o, "no socket of a service");
}

static void nt12(struct outcome *o)
{
    char buf[4096];
    int routes = 0;

    if (slurp("/proc/net/route", buf, sizeof buf) > 0)
        for (char *line = strtok(buf, "\n"); line; line = strtok(NULL, "\n"))
            if (strncmp(line, "Iface", 5) != 0 && strncmp(line, "lo\t", 3) != 0 && line[0] != '*')
                routes++;
    if (routes)
        escaped(o, "%d routes lead outside", routes);
    held(o, "there is no gateway");
}

static void nt13(struct outcome *o)
{
    struct sockaddr_storage ss;
    socklen_t len = address(&ss, "127.0.0.1", 80);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (bind(fd, (struct sockaddr *)&ss, len) == 0)
        held(o, "a port below 1024 can be bound, in the sandbox's own network");
    else
        held(o, "a port below 1024: %s", strerror(errno));
}

static void send_to(struct outcome *o, const char *ip, int port)
{
    struct sockaddr_storage ss;
    socklen_t len = address(&ss, ip, port);
    int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    REFUSED(o, ip, sendto(fd, "x", 1, 0, (struct sockaddr *)&ss, len), EPERM, EACCES, ENETUNREACH, EHOSTUNREACH,
            EADDRNOTAVAIL, EINVAL, EBADF);
    if (fd >= 0)
        close(fd);
}

static void nt14(struct outcome *o)
{
    send_to(o, "1.1.1.1", 443);
    send_to(o, "255.255.255.255", 9);
    send_to(o, "224.0.0.251", 5353);
    send_to(o, "ff02::1", 9);
    send_to(o, "2606:4700:4700::1111", 443);
    struct sockaddr_storage ss;
    socklen_t len = address(&ss, "1.1.1.1", 0);
    int ping = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_ICMP);
    static const uint8_t echo[8] = { 8, 0, 0xf7, 0xff };
    if (ping >= 0)
        REFUSED(o, "ping", sendto(ping, echo, sizeof echo, 0, (struct sockaddr *)&ss, len), EPERM, EACCES, ENETUNREACH,
                EHOSTUNREACH);
}

const struct probe_case nt_cases[] = {
    { "NT01", nt01 }, { "NT02", nt02 }, { "NT03", nt03 }, { "NT04", nt04 }, { "NT05", nt05 },
    { "NT06", nt06 }, { "NT07", nt07 }, { "NT08", nt08 }, { "NT09", nt09 }, { "NT10", nt10 },
    { "NT11", nt11 }, { "NT12", nt12 }, { "NT13", nt13 }, { "NT14", nt14 }, { NULL, NULL },
};
