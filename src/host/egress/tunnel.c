#include "host/egress/tunnel.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/http_front.h"
#include "host/egress/last_words.h"
#include "host/egress/relay.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#define HELLO_NS (10 * NS_PER_S)
#define METHOD_MAX 32u

struct tunnel {
    struct egress_conn *conn;
    bool is_connect, is_upgraded;
    bool server_spoke; /* bytes of the server were passed on */
    bool is_http;      /* the client's first bytes are a request, which http_front has to read */
    struct buf first;  /* of the client, read before the tunnel started, or for http_front */
    struct upstream_open *open;
    int server; /* -1: not connected */
    struct relay *relay;
    struct ev_timer hello_timer; /* port 443: the first message of TLS has to arrive */
    enum tls_alert alert;        /* of a refusal by tunnel_inspect */
    char reason[EGRESS_REASON_MAX];
};

static void tunnel_free(void *state)
{
    struct tunnel *t = state;

    ev_timer_clear(t->conn->sandbox->proxy->ev, &t->hello_timer);
    upstream_cancel(t->open);
    relay_free(t->relay);
    fd_close(&t->server);
    buf_done(&t->first);
    free(t);
}

/* A rule that asks for the request does not allow what cannot be read. */
static bool tunnel_is_allowed(void *state)
{
    const struct tunnel *t = state;

    return egress_conn_decide(t->conn, NULL, NULL).verdict == EGRESS_ALLOWED &&
           !egress_conn_denies_peer(t->conn, t->server);
}

static const struct egress_conn_handler tunnel_handler = { tunnel_free, tunnel_is_allowed };

/* --- passing bytes --- */

static enum relay_verdict tunnel_refuse(struct tunnel *t, enum tls_alert alert, const char *reason)
{
    t->alert = alert;
    snprintf(t->reason, sizeof(t->reason), "%s", reason);
    return RELAY_REFUSE;
}

/* Whether the bytes after a method begin a target that a server of HTTP reads: RELAY_REFUSE. Other
 * protocols have lines of capitals too (RTSP, SIP, gRPC without TLS), and pass. */
static enum relay_verdict tunnel_inspect_target(const char *data, size_t n)
{
    static const char *const forms[] = { " /", " http://", " https://", " * HTTP/1." };
    enum relay_verdict v = RELAY_PASS;

    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        size_t len = strlen(forms[i]);

        if (strncasecmp(data, forms[i], min_size(n, len)) == 0)
            v = n >= len ? RELAY_REFUSE : v == RELAY_PASS ? RELAY_MORE : v;
    }
    return v;
}

/* HTTP on another port than 80. Its requests have to name the host of the connection, as in TLS;
 * only http_front can check each of them. Servers skip empty lines before a request. */
static enum relay_verdict tunnel_inspect_plain(struct tunnel *t, const char *data, size_t n, bool ended)
{
    size_t from = 0, to;

    if (t->server_spoke)
        return RELAY_PASS;
    while (from < n && (data[from] == '\r' || data[from] == '\n'))
        from++;
    for (to = from; to < n && to - from < METHOD_MAX; to++)
        if ((data[to] < 'A' || data[to] > 'Z') && data[to] != '-' && data[to] != '_')
            break;
    enum relay_verdict v = RELAY_PASS;
    if (to < n && to > from)
        v = tunnel_inspect_target(data + to, n - to);
    else if (to == n)
        v = RELAY_MORE;
    if (v != RELAY_REFUSE)
        return v == RELAY_MORE && !ended ? RELAY_MORE : RELAY_PASS;
    t->is_http = true;
    buf_clear(&t->first);
    buf_add(&t->first, data, n);
    return RELAY_REFUSE;
}

static enum relay_verdict tunnel_inspect(void *arg, const uint8_t *data, size_t n, bool ended)
{
    struct tunnel *t = arg;
    struct client_hello hello;
    struct err err = { 0 };
    enum client_hello_result rc = client_hello_read(data, n, &hello, &err);
    bool must_be_tls = t->conn->port == 443 && *t->conn->host;

    if (rc == CLIENT_HELLO_MORE && !ended)
        return RELAY_MORE;
    ev_timer_clear(t->conn->sandbox->proxy->ev, &t->hello_timer);
    if (n == 0)
        return RELAY_PASS;
    if (rc == CLIENT_HELLO_NOT_TLS && must_be_tls)
        return tunnel_refuse(t, 0, "the connection to port 443 is not TLS");
    if (rc == CLIENT_HELLO_NOT_TLS)
        return *t->conn->host ? tunnel_inspect_plain(t, (const char *)data, n, ended) : RELAY_PASS;
    if (rc != CLIENT_HELLO_READ)
        return tunnel_refuse(t, TLS_ALERT_ACCESS_DENIED, "the first TLS message is malformed");
    /* An address that a rule names has no name to agree with. */
    if (*t->conn->host && *hello.name && !str_eq(hello.name, t->conn->host))
        return tunnel_refuse(t, TLS_ALERT_UNRECOGNIZED_NAME, "TLS asks for another host (SNI)");
    return RELAY_PASS;
}

static bool tunnel_on_bytes(void *arg, size_t sent, size_t received)
{
    struct tunnel *t = arg;

    t->server_spoke = t->server_spoke || received;
    return egress_conn_count_bytes(t->conn, sent, received);
}

static void tunnel_on_end(void *arg, enum relay_end why)
{
    struct tunnel *t = arg;
    struct egress_conn *c = t->conn;
    uint8_t alert[TLS_ALERT_SIZE];

    if (why == RELAY_REFUSED && t->is_http) {
        http_front_continue(c, t->first.data, t->first.len);
        return;
    }
    if (why == RELAY_REFUSED)
        egress_conn_count_refusal(c, t->reason);
    if (why == RELAY_REFUSED && t->alert) {
        tls_alert_write(t->alert, alert);
        last_words_say(c, alert, sizeof(alert));
    } else if (why == RELAY_FINISHED) {
        egress_conn_close(c);
    } else {
        egress_conn_abort(c);
    }
}

static void tunnel_on_silence(void *arg)
{
    struct tunnel *t = arg;

    egress_conn_count_refusal(t->conn, "no TLS message arrived within 10 s");
    egress_conn_abort(t->conn);
}

static void tunnel_run(struct tunnel *t)
{
    static const struct relay_ops inspecting = { tunnel_inspect, tunnel_on_bytes, tunnel_on_end };
    static const struct relay_ops plain = { NULL, tunnel_on_bytes, tunnel_on_end };
    struct egress_conn *c = t->conn;
    struct egress_proxy *p = c->sandbox->proxy;

    egress_conn_count_open(c);
    if (relay_new(&p->relays, c->tenant, c->fd, t->server, t->first.data, t->first.len,
                  t->is_upgraded ? &plain : &inspecting, t, &t->relay, NULL) < 0) {
        egress_conn_abort(c);
        return;
    }
    buf_done(&t->first);
    if (!t->is_upgraded && c->port == 443 && *c->host)
        ev_timer_set(p->ev, &t->hello_timer, ev_now(p->ev) + HELLO_NS, tunnel_on_silence, t);
}

/* --- opening --- */

static void tunnel_fail(struct tunnel *t, const struct upstream_result *r)
{
    struct egress_conn *c = t->conn;
    char subject[EGRESS_CONN_SUBJECT];
    bool is_refusal = r->failure == UPSTREAM_CLOSED;
    struct http_refusal words = { .status = is_refusal                       ? 403
                                            : r->failure == UPSTREAM_TIMEOUT ? 504
                                                                             : 502,
                                  .code = is_refusal                       ? "egress_denied"
                                          : r->failure == UPSTREAM_TIMEOUT ? "destination_timeout"
                                                                           : "destination_unreachable",
                                  .reason = r->reason,
                                  .fix = "",
                                  .subject = subject };

    (void)egress_conn_subject(c, subject);
    if (is_refusal)
        egress_conn_count_refusal(c, r->reason);
    else
        egress_conn_count_failure(c, r->reason);
    if (t->is_connect)
        last_words_refuse_http(c, &words, false);
    else
        last_words_refuse_any(c, is_refusal ? TLS_ALERT_ACCESS_DENIED : TLS_ALERT_INTERNAL_ERROR, &words);
}

static void tunnel_on_open(void *arg, const struct upstream_result *r)
{
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct tunnel *t = arg;
    size_t n = sizeof(established) - 1;

    t->open = NULL;
    t->server = r->fd;
    if (r->fd < 0)
        tunnel_fail(t, r);
    else if (egress_conn_denies_peer(t->conn, r->fd)) /* the rules changed meanwhile */
        egress_conn_abort(t->conn);
    /* The first bytes on an idle connection: they fit into its send buffer. */
    else if (t->is_connect && send(t->conn->fd, established, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
        egress_conn_abort(t->conn);
    else
        tunnel_run(t);
}

static struct tunnel *tunnel_new(struct egress_conn *c, const void *first, size_t nfirst)
{
    struct tunnel *t = mem_new(struct tunnel);

    t->conn = c;
    t->server = -1;
    if (nfirst)
        buf_add(&t->first, first, nfirst);
    egress_conn_set_handler(c, &tunnel_handler, t);
    return t;
}

static bool tunnel_denies_address(void *arg, const struct ip_address *a)
{
    const struct tunnel *t = arg;

    return egress_conn_denies_address(t->conn, a);
}

void tunnel_start(struct egress_conn *c, bool is_connect, const void *first, size_t nfirst)
{
    struct tunnel *t = tunnel_new(c, first, nfirst);

    t->is_connect = is_connect;
    if (is_connect)
        c->way = EGRESS_WAY_TUNNEL;
    t->open = upstream_open(&c->sandbox->proxy->upstream, c->host, &c->address, c->port, c->destination,
                            tunnel_denies_address, tunnel_on_open, t);
}

void tunnel_start_upgraded(struct egress_conn *c, int server, const void *first, size_t nfirst)
{
    struct tunnel *t = tunnel_new(c, first, nfirst);

    t->is_upgraded = true;
    t->server = server;
    tunnel_run(t);
}
