/* The listening sockets of coved: inherited from the supervisor or opened here, with TLS on the TCP
 * sockets if there is a certificate. */
#include "main/coved.h"

#include "core/base/str.h"
#include "main/serve/sockets.h"

#include <sys/socket.h>

#define LISTENERS_MAX 16u
#define HANDSHAKES_MAX 256u /* TLS handshakes in progress at the same time */

static void coved_on_tls_connection(void *arg, int fd, const union tls_addr *from)
{
    struct coved *d = arg;

    http_add_tls_connection(d->http, fd, &from->any);
}

static const char *coved_plain_http_answer(struct coved *d)
{
    auto_buf body = { 0 };
    struct err err;

    err_set(&err, ERR_TLS_NEEDED, "this address requires TLS, but the request is plain HTTP");
    http_error_json(&err, "", NULL, NULL, &body);
    buf_addf(&d->plain_http_answer,
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             body.len, body.data);
    return d->plain_http_answer.data;
}

static int coved_open_tls(struct coved *d, const int *listeners, size_t n, struct err *err)
{
    const struct tls_server_settings set = {
        .paths = { { [PEM_CERTIFICATE] = conf_text(&d->conf, SETTING_TLS_CERT),
                     [PEM_KEY] = conf_text(&d->conf, SETTING_TLS_KEY),
                     [PEM_CLIENT_CA] = conf_text(&d->conf, SETTING_TLS_CLIENT_CA) } },
        .source = d->tls_source,
        .front = { .listeners = listeners,
                   .nlisteners = n,
                   .conns_max = (unsigned)(conf_number(&d->conf, SETTING_HTTP_CONNS) +
                                           conf_number(&d->conf, SETTING_WS_MAX)),
                   .handshakes_max = (unsigned)min_u64(HANDSHAKES_MAX, conf_number(&d->conf, SETTING_HTTP_CONNS)),
                   .handshake_ms = conf_number(&d->conf, SETTING_TLS_HANDSHAKE),
                   .write_ms = conf_number(&d->conf, SETTING_HTTP_WRITE),
                   .plain = coved_plain_http_answer(d),
                   .on_conn = coved_on_tls_connection,
                   .arg = d },
    };

    return tls_server_new(d->ev, &set, &d->tls, err);
}

static bool coved_is_tcp(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);

    return getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.ss_family != AF_UNIX;
}

/* Uses the supervisor's sockets, or opens its own. If there is a certificate, TCP sockets use TLS;
 * the Unix socket never does. A client that came over TLS is never taken for a local peer of the
 * Unix socket: http_add_tls_connection() passes the peer explicitly, and the kind of the descriptor
 * is not consulted. */
int coved_open_listeners(struct coved *d, struct err *err)
{
    const char *listen = conf_text(&d->conf, SETTING_LISTEN);
    bool tls = *conf_text(&d->conf, SETTING_TLS_CERT);
    int fds[LISTENERS_MAX];
    size_t n = 0;

    for (uint64_t i = 0; i < d->nsockets; i++) {
        int fd = COVED_FIRST_SOCKET + (int)i;

        if (tls && coved_is_tcp(fd)) {
            if (n == ARRAY_LEN(fds))
                return err_set(err, ERR_LIMIT, "too many sockets for TLS; the maximum is %u", LISTENERS_MAX);
            fds[n++] = fd;
        } else if (http_listen_fd(d->http, fd, err) < 0) {
            return -1;
        }
    }
    if (!d->nsockets && !str_eq(listen, "off")) {
        if (tls ? sockets_listen_tcp(listen, &fds[n++], err) < 0 : http_listen_tcp(d->http, listen, NULL, err) < 0)
            return -1;
    }
    if (!d->nsockets && http_listen_unix(d->http, d->paths.api_socket, 0600, err) < 0)
        return -1;
    return n ? coved_open_tls(d, fds, n, err) : 0;
}
