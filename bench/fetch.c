/* bench-fetch - measures HTTP requests from where it runs: on the host, or inside a sandbox.
 *
 *     bench-fetch [--proxy HOST:PORT] new N HOST PORT PATH     a connection for each request
 *     bench-fetch [--proxy HOST:PORT] kept N HOST PORT PATH    N requests on one connection
 *     bench-fetch [--proxy HOST:PORT] stream HOST PORT PATH    one large answer
 *     bench-fetch hold N HOST PORT                             N idle connections, until a signal
 *
 * new and kept print the nanoseconds of each request, one per line: for `new` from the look-up of
 * the name to the last byte. stream prints bytes and nanoseconds. Requests have the absolute form
 * if there is a proxy. Bodies must have a Content-Length. */
#include "common.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *proxy_host, *proxy_port;

static int fetch_connect(const char *host, const char *port)
{
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
    int one = 1;

    int rc = getaddrinfo(proxy_host ? proxy_host : host, proxy_port ? proxy_port : port, &hints, &found);
    if (rc != 0)
        die("%s: %s", host, gai_strerror(rc));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0)
        die("cannot connect to %s:%s: %m", host, port);
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd;
}

static void fetch_send(int fd, const char *host, const char *port, const char *path)
{
    char request[1024], origin[512] = "";

    if (proxy_host)
        snprintf(origin, sizeof(origin), "http://%s:%s", host, port);
    int len = snprintf(request, sizeof(request), "GET %s%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n", origin, path, host, port);
    if (write(fd, request, (size_t)len) != len)
        die("cannot send a request: %m");
}

/* Reads one answer; returns the size of its body. */
static uint64_t fetch_receive(int fd)
{
    static char buf[256 * 1024];
    size_t have = 0;
    char *end;

    do {
        ssize_t n = read(fd, buf + have, sizeof(buf) - 1 - have);
        if (n <= 0)
            die("the connection ended in the head of an answer");
        have += (size_t)n;
        buf[have] = '\0';
        end = strstr(buf, "\r\n\r\n");
    } while (!end && have < sizeof(buf) - 1);
    if (!end || strncmp(buf, "HTTP/1.1 200", 12) != 0)
        die("the answer is not a success: %.60s", buf);
    char *length = strcasestr(buf, "\r\nContent-Length:");
    if (!length || length > end)
        die("the answer has no Content-Length");
    uint64_t size = strtoull(length + 17, NULL, 10), got = have - (size_t)(end + 4 - buf);
    while (got < size) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n <= 0)
            die("the connection ended in the body of an answer");
        got += (uint64_t)n;
    }
    return size;
}

static void fetch_new(uint32_t n, const char *host, const char *port, const char *path)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t begin = now_ns();
        int fd = fetch_connect(host, port);

        fetch_send(fd, host, port, path);
        fetch_receive(fd);
        printf("%" PRIu64 "\n", now_ns() - begin);
        close(fd);
    }
}

static void fetch_kept(uint32_t n, const char *host, const char *port, const char *path)
{
    int fd = fetch_connect(host, port);

    for (uint32_t i = 0; i <= n; i++) {
        uint64_t begin = now_ns();

        fetch_send(fd, host, port, path);
        fetch_receive(fd);
        if (i > 0) /* the first request also waits for the connection */
            printf("%" PRIu64 "\n", now_ns() - begin);
    }
}

static void fetch_stream(const char *host, const char *port, const char *path)
{
    int fd = fetch_connect(host, port);
    uint64_t begin = now_ns();

    fetch_send(fd, host, port, path);
    uint64_t size = fetch_receive(fd);
    printf("%" PRIu64 " %" PRIu64 "\n", size, now_ns() - begin);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--proxy") == 0) {
        char *colon = strrchr(argv[2], ':');

        if (!colon)
            die("--proxy needs HOST:PORT");
        *colon = '\0';
        proxy_host = argv[2];
        proxy_port = colon + 1;
        argv += 2;
        argc -= 2;
    }
    if (argc == 6 && strcmp(argv[1], "new") == 0) {
        fetch_new(number(argv[2], 1000000), argv[3], argv[4], argv[5]);
    } else if (argc == 6 && strcmp(argv[1], "kept") == 0) {
        fetch_kept(number(argv[2], 1000000), argv[3], argv[4], argv[5]);
    } else if (argc == 5 && strcmp(argv[1], "stream") == 0) {
        fetch_stream(argv[2], argv[3], argv[4]);
    } else if (argc == 5 && strcmp(argv[1], "hold") == 0) {
        for (uint32_t i = number(argv[2], 100000); i > 0; i--)
            (void)fetch_connect(argv[3], argv[4]);
        printf("held\n");
        fflush(stdout);
        pause();
    } else {
        die("usage: bench-fetch [--proxy HOST:PORT] new|kept N HOST PORT PATH | stream HOST PORT PATH | hold N HOST "
            "PORT");
    }
    return 0;
}
