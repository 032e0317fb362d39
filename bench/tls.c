/* tls.c - one small request, over connections that are fresh or kept, with and without TLS.
 *
 *     bench-tls ROUNDS SEED PLAIN-PORT TLS-PORT
 *
 * Prints "name<TAB>nanoseconds" for each. A fresh connection is measured from connect() to the
 * last byte of the answer, a kept one from the first byte of the request. The kinds alternate in
 * an order that changes from round to round, so that other load on the machine affects all of
 * them. */
#define _GNU_SOURCE 1
#include "common.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define WARM_UP 5

enum kind { PLAIN_FRESH, PLAIN_KEPT, TLS_EXPIRES_LATER, TLS_RESUMED, TLS_KEPT, KINDS };
static const char *const names[KINDS] = { "plainFresh", "plainKept", "tlsFresh", "tlsResumed", "tlsKept" };

struct line {
    int fd;
    SSL *ssl; /* NULL: without TLS */
};

static SSL_CTX *context;
static uint16_t ports[2]; /* without TLS, with TLS */

static int new_socket(uint16_t port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("port %u: %s", (unsigned)port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

static struct line line_open(bool tls, SSL_SESSION *ticket)
{
    struct line l = { .fd = new_socket(ports[tls]) };

    if (!tls)
        return l;
    l.ssl = SSL_new(context);
    if (!l.ssl || SSL_set_fd(l.ssl, l.fd) != 1)
        die("no memory for a connection");
    if (ticket)
        SSL_set_session(l.ssl, ticket);
    if (SSL_connect(l.ssl) != 1)
        die("the handshake failed");
    if (ticket && !SSL_session_reused(l.ssl))
        die("the ticket was not accepted");
    return l;
}

static void line_close(struct line *l)
{
    if (l->ssl)
        (void)SSL_shutdown(l->ssl);
    SSL_free(l->ssl);
    close(l->fd);
}

static void ask(const struct line *l)
{
    char in[4096];
    size_t len = 0;
    ssize_t n = l->ssl ? SSL_write(l->ssl, REQUEST, (int)strlen(REQUEST)) : send(l->fd, REQUEST, strlen(REQUEST), 0);

    if (n != (ssize_t)strlen(REQUEST))
        die("sending failed");
    do {
        n = l->ssl ? SSL_read(l->ssl, in + len, (int)(sizeof(in) - 1 - len))
                   : recv(l->fd, in + len, sizeof(in) - 1 - len, 0);
        if (n <= 0)
            die("the server closed the connection");
        len += (size_t)n;
        in[len] = '\0';
    } while (!strstr(in, "\r\n\r\n{") || in[len - 1] != '}');
    if (strncmp(in, "HTTP/1.1 200", 12) != 0)
        die("answered: %.100s", in);
}

static uint64_t measure(enum kind kind, const struct line kept[2], SSL_SESSION **ticket)
{
    uint64_t began = now_ns();

    if (kind == PLAIN_KEPT || kind == TLS_KEPT) {
        ask(&kept[kind == TLS_KEPT]);
        return now_ns() - began;
    }
    struct line l = line_open(kind != PLAIN_FRESH, kind == TLS_RESUMED ? *ticket : NULL);
    ask(&l);
    uint64_t took = now_ns() - began;
    if (kind == TLS_EXPIRES_LATER) { /* a ticket arrives with the first bytes of the answer */
        SSL_SESSION_free(*ticket);
        *ticket = SSL_get1_session(l.ssl);
    }
    line_close(&l);
    return took;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        die("usage: bench-tls ROUNDS SEED PLAIN-PORT TLS-PORT");
    uint32_t rounds = number(argv[1], 1000000), seed = number(argv[2], UINT32_MAX);
    ports[0] = (uint16_t)number(argv[3], UINT16_MAX);
    ports[1] = (uint16_t)number(argv[4], UINT16_MAX);
    context = SSL_CTX_new(TLS_client_method());
    if (!context)
        die("no TLS");
    struct line kept[2] = { line_open(false, NULL), line_open(true, NULL) };
    SSL_SESSION *ticket = NULL;
    (void)measure(TLS_EXPIRES_LATER, kept, &ticket); /* receives the first ticket */
    for (uint32_t i = 0; i < rounds + WARM_UP; i++) {
        size_t order[KINDS] = { PLAIN_FRESH, PLAIN_KEPT, TLS_EXPIRES_LATER, TLS_RESUMED, TLS_KEPT };

        shuffle(order, KINDS, &seed);
        for (size_t k = 0; k < KINDS; k++) {
            uint64_t took = measure((enum kind)order[k], kept, &ticket);

            if (i >= WARM_UP)
                printf("%s\t%" PRIu64 "\n", names[order[k]], took);
        }
    }
    for (size_t i = 0; i < 2; i++)
        line_close(&kept[i]);
    SSL_SESSION_free(ticket);
    SSL_CTX_free(context);
    return 0;
}
