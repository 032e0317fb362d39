/* The proxy between a hostile client and a hostile destination. The first byte selects the
 * listener, the next two the number of bytes that are the client's; the rest are those of the
 * destination. "#PORT" stands for the destination's port. Every connection must end, and give back
 * what it has taken. */
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/wire/egress.h"
#include "host/egress/egress_conn.h"
#include "host/egress/http_front.h"
#include "host/egress/tunnel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>

#define TURNS 60

static struct ev *loop;
static struct egress_proxy proxy;
static struct egress_sandbox *sandbox;
static int origin;
static char port_text[8];
static uint16_t port;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void ignore_secret(void *arg, struct egress_sandbox *s)
{
    (void)arg;
    (void)s;
}

static void start(void)
{
    static struct ip_prefix open;
    static struct egress_settings settings = {
        .jailer_fd = -1, .engine_fd = -1, .sandbox_connections = 256, .tenant_connections = 4096
    };
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(sa);
    struct egress_bind bind_message = { .connection_rate = 1000 };
    struct err err = { 0 };
    char rules[512];

    must(ip_prefix_parse("127.0.0.1", 9, &open));
    settings.upstream = (struct upstream_settings){ .resolvers = "127.0.0.1:9", .open = &open, .nopen = 1 };
    origin = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(bind(origin, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(origin, 64) == 0 &&
         getsockname(origin, (struct sockaddr *)&sa, &len) == 0);
    port = ntohs(sa.sin_port);
    snprintf(port_text, sizeof(port_text), "%05u", port);
    must(ev_new(&loop, &err) == 0 && egress_proxy_init(&proxy, loop, &settings, &err) == 0);
    proxy.on_secret_used = ignore_secret;
    snprintf(rules, sizeof(rules),
             "deny 127.0.0.1:%u methods=DELETE path=/no/*\nallow 127.0.0.1:%u\nallow origin.test:%u\nallow "
             "read.test:80 methods=GET path=/*\n",
             port, port, port);
    (void)str_copy(bind_message.id, sizeof(bind_message.id), "sbaaaaaaaaaaaaaaaaaaaa");
    bind_message.rules = rules;
    must(egress_sandbox_bind(&proxy, &bind_message, &proxy, &err) == 0);
    sandbox = egress_sandbox_find(&proxy, bind_message.id);
}

/* A copy in which every "#PORT" is the port. */
static void add_bytes(struct buf *to, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (n - i >= 5 && memcmp(data + i, "#PORT", 5) == 0) {
            buf_add(to, port_text, 5);
            i += 4;
        } else {
            buf_add(to, data + i, 1);
        }
}

static void write_some(int fd, struct buf *b, size_t max)
{
    ssize_t n = b->len && fd >= 0 ? send(fd, b->data, min_size(b->len, max), MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    if (n > 0)
        buf_drop(b, (size_t)n);
}

static void read_some(int fd)
{
    char bytes[4096];

    if (fd >= 0)
        (void)recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
}

static void open_client(int fd, uint8_t kind)
{
    struct ip_address a = { .family = 4, .bytes = { 127, 0, 0, 1 } };
    struct egress_conn *c = egress_conn_new(sandbox, fd, EGRESS_WAY_PROXY);

    if (kind % 4 == 0) {
        http_front_start(c, HTTP_FRONT_PROXY, NULL);
        return;
    }
    const char *host = kind % 8 < 4 ? "" : "origin.test";
    egress_conn_set_target(c, host, &a, port);
    c->destination->addresses[0] = a; /* no name server is asked */
    c->destination->naddresses = 1;
    c->destination->addresses_expire = UINT64_MAX;
    if (kind % 4 == 1)
        http_front_start(c, HTTP_FRONT_BOUND, host);
    else
        tunnel_start(c, kind % 4 == 2, NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf client_bytes = { 0 }, origin_bytes = { 0 };
    int pair[2], theirs = -1;
    size_t step = size > 0 && data[0] & 16 ? 100000 : 700; /* in pieces, or as much as the socket takes */

    if (!loop)
        start();
    if (size < 3)
        return 0;
    size_t n = min_size((size_t)data[1] | (size_t)data[2] << 8, size - 3);
    add_bytes(&client_bytes, data + 3, n);
    add_bytes(&origin_bytes, data + 3 + n, size - 3 - n);
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    open_client(pair[0], data[0]);
    for (int i = 0; i < TURNS; i++) {
        write_some(pair[1], &client_bytes, step);
        ev_turn(loop, 0);
        if (theirs < 0)
            theirs = accept4(origin, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        write_some(theirs, &origin_bytes, step);
        read_some(pair[1]);
        read_some(theirs);
        if (i == TURNS / 2 && client_bytes.len == 0)
            (void)shutdown(pair[1], SHUT_WR);
        if (i == TURNS - 10)
            fd_close(&theirs);
    }
    fd_close(&pair[1]);
    fd_close(&theirs);
    ev_turn(loop, 0);
    while (sandbox->conns)
        egress_conn_close(sandbox->conns);
    ev_turn(loop, 0);
    while ((theirs = accept4(origin, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        close(theirs);
    must(proxy.shares.connections == 0 && proxy.shares.buffered == 0 && sandbox->nconns == 0);
    buf_done(&client_bytes);
    buf_done(&origin_bytes);
    return 0;
}
