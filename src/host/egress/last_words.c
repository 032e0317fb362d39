#include "host/egress/last_words.h"

#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/http1/head.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#define DRAIN_NS (2 * NS_PER_S)
#define SNIFF_NS (10 * NS_PER_S)
#define SNIFF_OTHER_NS (200 * NS_PER_MS) /* on ports whose clients may wait for the server's first bytes */
#define DRAIN_MAX (1024u * 1024u)
#define PHRASE_MAX 120

struct last_words {
    struct egress_conn *conn;
    struct ev_io io;
    struct ev_timer timer;
    struct ev_defer start_defer;
    struct buf words; /* to be sent */
    size_t held;      /* of the words that were there at the start, counted in shares */
    size_t drained;
    /* While the protocol of the client is not known: */
    bool is_sniffing;
    uint8_t alert[TLS_ALERT_SIZE];
    struct buf hello, response;
};

/* --- responses --- */

static const char *http_refusal_phrase(unsigned status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 403:
        return "Forbidden";
    case 408:
        return "Request Timeout";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 504:
        return "Gateway Timeout";
    default:
        return "Bad Gateway";
    }
}

static void http_refusal_add_phrase(const struct http_refusal *r, const char *reason, struct buf *out)
{
    char text[PHRASE_MAX + 1];

    if (r->status == 400 || r->status == 408)
        snprintf(text, sizeof(text), "%s", http_refusal_phrase(r->status));
    else
        snprintf(text, sizeof(text), "%s%s%s%s", r->status == 403 ? "Egress denied: " : "Egress failed: ", r->subject,
                 *r->subject ? ", " : "", reason);
    for (char *p = text; *p; p++)
        if (*p < ' ' || *p > '~')
            *p = '?';
    buf_adds(out, text);
}

/* The reason, in which "it" takes the place of the subject, which stands before it. */
static void http_refusal_add_reason(const struct http_refusal *r, struct buf *out)
{
    const char *at = *r->subject ? strstr(r->reason, r->subject) : NULL;

    if (!at) {
        buf_adds(out, r->reason);
        return;
    }
    buf_add(out, r->reason, (size_t)(at - r->reason));
    buf_addf(out, "it%s", at + strlen(r->subject));
}

void http_refusal_write(const struct http_refusal *r, bool is_head, struct buf *out)
{
    auto_buf body = { 0 };
    auto_buf message = { 0 };
    auto_buf reason = { 0 };
    struct jsonw w;

    http_refusal_add_reason(r, &reason);
    buf_addf(&message, "%s%s%s", r->subject, *r->subject ? ": " : "", reason.data);
    jsonw_init(&w, &body, 0);
    jsonw_object(&w);
    jsonw_kobject(&w, "error");
    jsonw_kstr(&w, "code", r->code);
    jsonw_kstr(&w, "message", message.data);
    jsonw_kstr_if(&w, "fix", r->fix);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    buf_adds(&body, "\n");
    buf_addf(out, "HTTP/1.1 %u ", r->status);
    http_refusal_add_phrase(r, reason.data, out);
    buf_addf(out,
             "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
             "Connection: close\r\n\r\n",
             body.len);
    if (!is_head)
        buf_add(out, body.data, body.len);
}

/* --- the end of a connection --- */

static void last_words_free(void *state)
{
    struct last_words *w = state;
    struct ev *ev = w->conn->sandbox->proxy->ev;

    ev_io_del(ev, &w->io);
    ev_timer_clear(ev, &w->timer);
    ev_defer_clear(ev, &w->start_defer);
    shares_unbuffer(&w->conn->sandbox->proxy->shares, w->conn->tenant, w->held);
    buf_done(&w->words);
    buf_done(&w->hello);
    buf_done(&w->response);
    free(w);
}

static bool last_words_is_allowed(void *state UNUSED)
{
    return true; /* nothing reaches a destination any more */
}

static const struct egress_conn_handler last_words_handler = { last_words_free, last_words_is_allowed };

static void last_words_on_deadline(void *arg)
{
    struct last_words *w = arg;

    if (w->is_sniffing)
        egress_conn_abort(w->conn);
    else
        egress_conn_close(w->conn);
}

static void last_words_send(struct last_words *w)
{
    struct ev *ev = w->conn->sandbox->proxy->ev;

    while (w->words.len > 0) {
        ssize_t n = send(w->conn->fd, w->words.data, w->words.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            egress_conn_close(w->conn);
            return;
        }
        if (n <= 0) {
            ev_io_set(ev, &w->io, EPOLLOUT);
            return;
        }
        buf_drop(&w->words, (size_t)n);
    }
    (void)shutdown(w->conn->fd, SHUT_WR);
    ev_io_set(ev, &w->io, EPOLLIN);
    ev_timer_set(ev, &w->timer, ev_now(ev) + DRAIN_NS, last_words_on_deadline, w);
}

bool last_words_is_http(const char *data, size_t n)
{
    size_t i = 0;

    while (i < n && i < 16 && data[i] >= 'A' && data[i] <= 'Z')
        i++;
    return i >= 3 && (i == n || data[i] == ' ');
}

static void last_words_sniff(struct last_words *w)
{
    struct client_hello hello;
    enum client_hello_result rc = client_hello_read(w->hello.data, w->hello.len, &hello, NULL);

    if (rc == CLIENT_HELLO_MORE && w->hello.len < CLIENT_HELLO_MAX)
        return;
    w->is_sniffing = false;
    if (rc != CLIENT_HELLO_NOT_TLS)
        buf_add(&w->words, w->alert, sizeof(w->alert));
    else if (last_words_is_http(w->hello.data, w->hello.len))
        buf_add(&w->words, w->response.data, w->response.len);
    if (w->words.len == 0) {
        egress_conn_abort(w->conn);
        return;
    }
    struct ev *ev = w->conn->sandbox->proxy->ev;
    ev_timer_set(ev, &w->timer, ev_now(ev) + DRAIN_NS, last_words_on_deadline, w);
    last_words_send(w);
}

static void last_words_on_ready(void *arg, uint32_t events)
{
    struct last_words *w = arg;
    char *scratch = (char *)w->conn->sandbox->proxy->relays.scratch;

    if (events & EPOLLOUT && !w->is_sniffing && w->words.len > 0) {
        last_words_send(w);
        return;
    }
    ssize_t n = recv(w->conn->fd, scratch, w->is_sniffing ? CLIENT_HELLO_MAX - w->hello.len : RELAY_BUFFER,
                     MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    w->drained += n > 0 ? (size_t)n : 0;
    if (n <= 0 || w->drained > DRAIN_MAX) {
        egress_conn_close(w->conn);
        return;
    }
    if (!w->is_sniffing)
        return;
    buf_add(&w->hello, scratch, (size_t)n);
    last_words_sniff(w);
}

static void last_words_start(void *arg)
{
    last_words_send(arg);
}

static struct last_words *last_words_new(struct egress_conn *c, uint64_t wait_ns)
{
    struct last_words *w = mem_new(struct last_words);
    struct ev *ev = c->sandbox->proxy->ev;

    w->conn = c;
    egress_conn_set_handler(c, &last_words_handler, w);
    if (ev_io_add(ev, &w->io, c->fd, 0, last_words_on_ready, w, NULL) < 0)
        wait_ns = 0;
    ev_timer_set(ev, &w->timer, ev_now(ev) + wait_ns, last_words_on_deadline, w);
    return w;
}

void last_words_say(struct egress_conn *c, const void *data, size_t n)
{
    /* The end of an answer may be among them, and its client as slow as before. */
    struct last_words *w = last_words_new(c, RELAY_IDLE_NS);

    buf_add(&w->words, data, n);
    w->held = n;
    shares_buffer(&c->sandbox->proxy->shares, c->tenant, n);
    ev_defer(c->sandbox->proxy->ev, &w->start_defer, last_words_start, w);
}

void last_words_refuse_http(struct egress_conn *c, const struct http_refusal *r, bool is_head)
{
    auto_buf out = { 0 };

    http_refusal_write(r, is_head, &out);
    last_words_say(c, out.data, out.len);
}

void last_words_refuse_any(struct egress_conn *c, enum tls_alert alert, const struct http_refusal *r)
{
    bool is_web = c->port == 443 || c->port == 80;
    auto_buf response = { 0 };

    http_refusal_write(r, false, &response); /* before the texts of the caller may go with its state */
    struct last_words *w = last_words_new(c, is_web ? SNIFF_NS : SNIFF_OTHER_NS);
    w->is_sniffing = true;
    tls_alert_write(alert, w->alert);
    w->response = response;
    response = (struct buf){ 0 };
    ev_io_set(c->sandbox->proxy->ev, &w->io, EPOLLIN);
}
