#define _GNU_SOURCE 1
#include "web.h"

#include "common.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

void web_open(struct web *w, uint32_t port, const char *key)
{
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int yes = 1;

    w->key = key;
    w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0 || connect(w->fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        die("port %" PRIu32 ": %s", port, strerror(errno));
    setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

void web_close(struct web *w)
{
    close(w->fd);
}

static int format_head(struct web *w, const char *method, const char *path, uint64_t length)
{
    int n = snprintf(w->head, sizeof(w->head),
                     "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s%sContent-Type: application/json\r\n"
                     "Content-Length: %" PRIu64 "\r\n\r\n",
                     method, path, w->key[0] ? "Authorization: Bearer " : "", w->key, w->key[0] ? "\r\n" : "", length);

    if (n >= (int)sizeof(w->head))
        die("the head of the request is too long");
    w->len = 0;
    return n;
}

void web_send(const struct web *w, const void *data, size_t len)
{
    const char *p = data;

    while (len > 0) {
        ssize_t n = send(w->fd, p, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            die("sending: %s", strerror(errno));
        p += n;
        len -= (size_t)n;
    }
}

void web_send_head(struct web *w, const char *method, const char *path, uint64_t length)
{
    web_send(w, w->head, (size_t)format_head(w, method, path, length));
}

static void read_more(struct web *w)
{
    if (w->len + 1 >= sizeof(w->in))
        die("the answer is too long");
    ssize_t n = recv(w->fd, w->in + w->len, sizeof(w->in) - 1 - w->len, 0);
    if (n <= 0)
        die("receiving: %s", n < 0 ? strerror(errno) : "the server closed the connection");
    w->len += (size_t)n;
    w->in[w->len] = '\0';
}

void web_read_head(struct web *w)
{
    const char *end = NULL, *length;

    while (!end) {
        read_more(w);
        end = strstr(w->in, "\r\n\r\n");
    }
    w->body = (size_t)(end - w->in) + 4;
    if (strncmp(w->in, "HTTP/1.1 ", 9) != 0)
        die("not an HTTP answer: %.60s", w->in);
    w->status = (uint32_t)strtoul(w->in + 9, NULL, 10);
    length = strcasestr(w->in, "\r\nContent-Length:");
    if (!length || length > end)
        die("an answer without Content-Length: %.200s", w->in);
    w->length = strtoull(length + strlen("\r\nContent-Length:"), NULL, 10);
}

void web_ask(struct web *w, const char *method, const char *path, const char *body)
{
    int head = format_head(w, method, path, strlen(body));
    struct iovec iov[2] = { { w->head, (size_t)head }, { (void *)(uintptr_t)body, strlen(body) } };

    if (writev(w->fd, iov, 2) != (ssize_t)((size_t)head + strlen(body)))
        die("%s %s: sending: %s", method, path, strerror(errno));
}

const char *web_answer(struct web *w)
{
    web_read_head(w);
    while (w->len < w->body + w->length)
        read_more(w);
    return w->in + w->body;
}

const char *web_call(struct web *w, const char *method, const char *path, const char *body, uint32_t status)
{
    web_ask(w, method, path, body);
    web_answer(w);
    if (w->status != status)
        die("%s %s was answered %" PRIu32 ": %s", method, path, w->status, w->in + w->body);
    return w->in + w->body;
}
