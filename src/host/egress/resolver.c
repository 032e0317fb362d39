#include "host/egress/resolver.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "host/egress/dns_message.h"

#include <netinet/in.h>

#define DATAGRAMS_PER_TURN 16u
#define CONNECTIONS_MAX 16u
#define CONNECTION_NS (10 * NS_PER_S)

static size_t resolver_answer_name(struct egress_sandbox *s, const struct dns_query *q, uint8_t *ret)
{
    auto_buf reason = { 0 };
    auto_buf fix = { 0 };

    if (egress_rules_may_resolve(s->rules, q->name) || egress_rules_find_secret(s->rules, q->name)) {
        uint32_t address = q->type == DNS_TYPE_A ? invented_names_add(&s->names, q->name) : 0;

        if (address)
            return dns_answer_write(q, DNS_ANSWER_ADDRESS, address, NULL, ret);
        if (q->type != DNS_TYPE_A)
            return dns_answer_write(q, DNS_ANSWER_NODATA, 0, NULL, ret);
        buf_adds(&reason, "the sandbox has used too many names");
    } else {
        struct egress_target t = { .host = q->name, .port = 443 };

        egress_rules_explain(s->rules, &t, (struct egress_decision){ .verdict = EGRESS_REFUSED, .rule = -1 }, &reason,
                             &fix);
    }
    /* Programs ask for both addresses; one refusal is counted. */
    if (q->type != DNS_TYPE_AAAA)
        destinations_count_refusal(&s->destinations, destinations_find(&s->destinations, q->name, 0), reason.data);
    return dns_answer_write(q, DNS_ANSWER_NXDOMAIN, 0, reason.data, ret);
}

size_t resolver_answer(struct egress_sandbox *s, const uint8_t *data, size_t len, uint8_t *ret)
{
    struct dns_query q;

    switch (dns_query_read(data, len, &q)) {
    case DNS_QUERY_DROPPED:
        return 0;
    case DNS_QUERY_MALFORMED:
        return dns_answer_write(&q, DNS_ANSWER_FORMERR, 0, NULL, ret);
    case DNS_QUERY_UNKNOWN:
        return dns_answer_write(&q, DNS_ANSWER_NOTIMP, 0, NULL, ret);
    case DNS_QUERY_VERSION:
        return dns_answer_write(&q, DNS_ANSWER_BADVERS, 0, NULL, ret);
    case DNS_QUERY_READ:
        break;
    }
    if (!q.is_hostname)
        return dns_answer_write(&q, DNS_ANSWER_NXDOMAIN, 0, NULL, ret);
    return resolver_answer_name(s, &q, ret);
}

/* Above its rate the listener is not read; the kernel drops what does not fit into its queue. */
static bool resolver_may_answer(struct egress_sandbox *s, enum egress_listener which)
{
    uint64_t at;

    if (!s->rules)
        return false;
    if (share_bucket_take(&s->query_bucket, SHARES_QUERY_RATE, SHARES_QUERY_BURST, ev_now(s->proxy->ev), &at))
        return true;
    egress_sandbox_pause(&s->listeners[which], at);
    return false;
}

void resolver_on_datagrams(void *arg, uint32_t events UNUSED)
{
    struct egress_listener_source *l = arg;
    static uint8_t query[DNS_QUERY_MAX], answer[DNS_ANSWER_MAX];

    for (unsigned i = 0; i < DATAGRAMS_PER_TURN; i++) {
        struct sockaddr_storage from;
        socklen_t fromlen = sizeof(from);

        if (!resolver_may_answer(l->sandbox, EGRESS_LISTEN_DNS_UDP))
            return;
        ssize_t n = recvfrom(l->io.fd, query, sizeof(query), MSG_DONTWAIT, (struct sockaddr *)&from, &fromlen);
        if (n < 0)
            return;
        size_t len = resolver_answer(l->sandbox, query, (size_t)n, answer);
        if (len)
            (void)sendto(l->io.fd, answer, len, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&from, fromlen);
    }
}

/* --- TCP --- */

struct resolver_conn {
    struct resolver_conn *next, **link;
    struct egress_sandbox *sandbox;
    struct ev_io io;
    struct ev_timer timer;
    struct buf in;
};

static void resolver_conn_close(struct resolver_conn *c)
{
    struct egress_sandbox *s = c->sandbox;

    linked_remove(c);
    s->nresolver_conns--;
    ev_io_del(s->proxy->ev, &c->io);
    close(c->io.fd);
    ev_timer_clear(s->proxy->ev, &c->timer);
    buf_done(&c->in);
    free(c);
    if (s->listeners[EGRESS_LISTEN_DNS_TCP].is_full)
        egress_sandbox_resume(s);
}

void resolver_end_all(struct egress_sandbox *s)
{
    for (struct resolver_conn *c = s->resolver_conns, *next; c; c = next) {
        next = c->next;
        resolver_conn_close(c);
    }
}

static void resolver_conn_on_deadline(void *arg)
{
    resolver_conn_close(arg);
}

/* Answers one message, if one is complete. Returns false if the connection has to end: its client
 * does not read, or sent something else than DNS. */
static bool resolver_conn_answer(struct resolver_conn *c, bool *ret_more)
{
    static uint8_t answer[2 + DNS_ANSWER_MAX];
    const uint8_t *query;
    size_t len, used;
    enum dns_tcp_result rc = dns_tcp_read((const uint8_t *)c->in.data, c->in.len, &query, &len, &used);

    *ret_more = rc == DNS_TCP_MESSAGE;
    if (rc != DNS_TCP_MESSAGE)
        return rc == DNS_TCP_MORE;
    size_t n = resolver_answer(c->sandbox, query, len, answer + 2);
    buf_drop(&c->in, used);
    if (n == 0)
        return true;
    dns_tcp_prefix(n, answer);
    return send(c->io.fd, answer, n + 2, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(n + 2);
}

static void resolver_conn_on_ready(void *arg, uint32_t events UNUSED)
{
    struct resolver_conn *c = arg;
    bool more = true;
    uint64_t at;

    char *room = buf_room(&c->in, 2 + DNS_QUERY_MAX - min_size(c->in.len, 1 + DNS_QUERY_MAX));
    ssize_t n = recv(c->io.fd, room, 2 + DNS_QUERY_MAX - min_size(c->in.len, 1 + DNS_QUERY_MAX), MSG_DONTWAIT);
    if (n <= 0) {
        resolver_conn_close(c);
        return;
    }
    c->in.len += (size_t)n;
    c->in.data[c->in.len] = '\0';
    while (more) {
        if (!c->sandbox->rules ||
            !share_bucket_take(&c->sandbox->query_bucket, SHARES_QUERY_RATE, SHARES_QUERY_BURST,
                               ev_now(c->sandbox->proxy->ev), &at) ||
            !resolver_conn_answer(c, &more)) {
            resolver_conn_close(c);
            return;
        }
    }
}

void resolver_on_connection(void *arg, uint32_t events UNUSED)
{
    struct egress_listener_source *l = arg;
    struct egress_sandbox *s = l->sandbox;
    struct ev *ev = s->proxy->ev;

    if (s->nresolver_conns == CONNECTIONS_MAX) {
        l->is_full = true;
        ev_io_set(ev, &l->io, 0);
        return;
    }
    if (!resolver_may_answer(s, EGRESS_LISTEN_DNS_TCP))
        return;
    auto_fd int fd = accept4(l->io.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        egress_sandbox_pause_if_short(l);
        return;
    }
    struct resolver_conn *c = mem_new(struct resolver_conn);
    c->sandbox = s;
    if (ev_io_add(ev, &c->io, fd, EPOLLIN, resolver_conn_on_ready, c, NULL) < 0) {
        free(c);
        return;
    }
    take_fd(&fd);
    linked_push(&s->resolver_conns, c);
    s->nresolver_conns++;
    ev_timer_set(ev, &c->timer, ev_now(ev) + CONNECTION_NS, resolver_conn_on_deadline, c);
}
