/* Addresses are tried one after the other, and a further one is tried while an earlier one has not
 * answered within ATTEMPT_NS (RFC 8305, without its sorting): IPv6 first if this host has a global
 * IPv6 address, then families in turn. At most ATTEMPTS_RUNNING run at a time, so that addresses
 * that never answer do not use up the descriptors of all tenants; the oldest one ends then. */
#include "host/egress/upstream.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/closed_ranges.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

#define ATTEMPT_NS (250 * NS_PER_MS)
#define ATTEMPTS_RUNNING 2                 /* see DESCRIPTORS_PER_CONNECTION */
#define ATTEMPTS_MAX DESTINATION_ADDRESSES /* addresses that are tried; all are checked */
#define CACHE_MAX_S 30u

struct upstream_attempt {
    struct upstream_open *open;
    struct ev_io io;
};

struct upstream_open {
    struct upstream *upstream;
    upstream_denies_fn *denies;
    upstream_fn *fn;
    void *arg;
    struct destination *cache;
    uint16_t port;
    struct names_query *query;
    struct ip_address addresses[ATTEMPTS_MAX];
    size_t n, next;
    struct upstream_attempt attempts[ATTEMPTS_MAX];
    size_t running;
    int last_errno;
    struct ev_timer attempt_timer, deadline_timer;
    struct ev_defer start_defer, finish_defer;
    struct upstream_result result;
};

int upstream_init(struct upstream *u, struct ev *ev, const struct upstream_settings *settings, struct err *err)
{
    *u = (struct upstream){ .ev = ev, .settings = *settings };
    if (host_addresses_init(&u->host_addresses, err) < 0)
        return -1;
    if (names_lookup_new(ev, settings->resolvers, &u->lookup, err) < 0) {
        host_addresses_done(&u->host_addresses);
        return -1;
    }
    return 0;
}

void upstream_done(struct upstream *u)
{
    names_lookup_free(u->lookup);
    host_addresses_done(&u->host_addresses);
}

/* --- the end --- */

static void upstream_stop(struct upstream_open *o)
{
    struct ev *ev = o->upstream->ev;

    for (size_t i = 0; i < o->next; i++)
        if (o->attempts[i].io.on) {
            ev_io_del(ev, &o->attempts[i].io);
            close(o->attempts[i].io.fd);
        }
    if (o->query)
        names_lookup_cancel(o->query);
    o->query = NULL;
    o->running = 0;
    ev_timer_clear(ev, &o->attempt_timer);
    ev_timer_clear(ev, &o->deadline_timer);
    ev_defer_clear(ev, &o->start_defer);
}

void upstream_cancel(struct upstream_open *o)
{
    if (!o)
        return;
    upstream_stop(o);
    ev_defer_clear(o->upstream->ev, &o->finish_defer);
    fd_close(&o->result.fd);
    free(o);
}

static void upstream_call_back(void *arg)
{
    struct upstream_open *o = arg;

    o->fn(o->arg, &o->result);
    free(o);
}

static void upstream_finish(struct upstream_open *o, int fd, enum upstream_failure failure, const char *reason)
{
    upstream_stop(o);
    o->result = (struct upstream_result){ .fd = fd, .failure = failure };
    snprintf(o->result.reason, sizeof(o->result.reason), "%s", reason);
    ev_defer(o->upstream->ev, &o->finish_defer, upstream_call_back, o);
}

static void upstream_finish_unreachable(struct upstream_open *o)
{
    char reason[EGRESS_REASON_MAX];

    snprintf(reason, sizeof(reason), "the destination cannot be reached: %s", strerror(o->last_errno));
    upstream_finish(o, -1, o->last_errno == ETIMEDOUT ? UPSTREAM_TIMEOUT : UPSTREAM_UNREACHABLE, reason);
}

static void upstream_on_deadline(void *arg)
{
    upstream_finish(arg, -1, UPSTREAM_TIMEOUT, "the destination did not answer within 10 s");
}

/* --- attempts --- */

static void upstream_try_next(void *arg);

static void upstream_attempt_failed(struct upstream_open *o, int sys)
{
    o->last_errno = sys;
    if (o->next < o->n)
        upstream_try_next(o);
    else if (o->running == 0)
        upstream_finish_unreachable(o);
}

static void upstream_on_connected(void *arg, uint32_t events UNUSED)
{
    struct upstream_attempt *a = arg;
    struct upstream_open *o = a->open;
    int fd = a->io.fd, sys = 0;
    socklen_t len = sizeof(sys);

    ev_io_del(o->upstream->ev, &a->io);
    o->running--;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys, &len) < 0)
        sys = errno;
    if (sys == 0) {
        upstream_finish(o, fd, UPSTREAM_OPEN, "");
        return;
    }
    close(fd);
    upstream_attempt_failed(o, sys);
}

static socklen_t upstream_sockaddr(const struct ip_address *a, uint16_t port, struct sockaddr_storage *ret)
{
    struct sockaddr_in *v4 = (void *)ret;
    struct sockaddr_in6 *v6 = (void *)ret;

    memset(ret, 0, sizeof(*ret));
    if (a->family == 4) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, a->bytes, 4);
        return sizeof(*v4);
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    memcpy(&v6->sin6_addr, a->bytes, 16);
    return sizeof(*v6);
}

/* Returns 0, or an errno. */
static int upstream_connect(struct upstream_open *o, struct upstream_attempt *a, const struct ip_address *address)
{
    struct sockaddr_storage sa;
    socklen_t len = upstream_sockaddr(address, o->port, &sa);
    int one = 1;
    auto_fd int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);

    if (fd < 0)
        return errno;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&sa, len) < 0 && errno != EINPROGRESS)
        return errno;
    a->open = o;
    if (ev_io_add(o->upstream->ev, &a->io, fd, EPOLLOUT, upstream_on_connected, a, NULL) < 0)
        return ENOMEM;
    take_fd(&fd);
    o->running++;
    return 0;
}

static void upstream_end_oldest(struct upstream_open *o)
{
    size_t i = 0;

    while (!o->attempts[i].io.on)
        i++;
    ev_io_del(o->upstream->ev, &o->attempts[i].io);
    close(o->attempts[i].io.fd);
    o->running--;
    o->last_errno = ETIMEDOUT;
}

static void upstream_try_next(void *arg)
{
    struct upstream_open *o = arg;
    struct ev *ev = o->upstream->ev;

    if (o->running == ATTEMPTS_RUNNING && o->next < o->n)
        upstream_end_oldest(o);
    while (o->next < o->n) {
        size_t i = o->next++;

        o->attempts[i].io.on = false;
        int sys = upstream_connect(o, &o->attempts[i], &o->addresses[i]);
        if (sys == 0) {
            if (o->next < o->n)
                ev_timer_set(ev, &o->attempt_timer, ev_now(ev) + ATTEMPT_NS, upstream_try_next, o);
            return;
        }
        o->last_errno = sys;
    }
    if (o->running == 0)
        upstream_finish_unreachable(o);
}

/* --- addresses --- */

static bool upstream_is_exempt(const struct upstream *u, const struct ip_address *a)
{
    for (size_t i = 0; i < u->settings.nopen; i++)
        if (ip_prefix_contains(&u->settings.open[i], a))
            return true;
    return false;
}

/* Why the address may not be reached; NULL: it may. */
static const char *upstream_closed_why(struct upstream *u, const struct ip_address *a)
{
    const char *range = closed_range_of(a, u->settings.open, u->settings.nopen);

    if (range)
        return range;
    return !upstream_is_exempt(u, a) && host_addresses_has(&u->host_addresses, a) ? "this host" : NULL;
}

/* Takes one address of each family in turn, as long as both have some. */
static void upstream_order(struct upstream_open *o, const struct ip_address *list, size_t n)
{
    uint8_t family = host_addresses_has_ipv6(&o->upstream->host_addresses) ? 6 : 4;
    size_t at[2] = { 0, 0 }; /* the next candidate of `family`, and of the other */

    o->n = 0;
    for (unsigned turn = 0; o->n < ATTEMPTS_MAX && (at[0] < n || at[1] < n); turn++) {
        size_t *i = &at[turn % 2];
        bool wants_first = turn % 2 == 0;

        while (*i < n && (list[*i].family == family) != wants_first)
            ++*i;
        if (*i < n)
            o->addresses[o->n++] = list[(*i)++];
    }
}

static void upstream_use(struct upstream_open *o, const struct ip_address *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char reason[EGRESS_REASON_MAX], text[IP_ADDRESS_TEXT];
        const char *why = upstream_closed_why(o->upstream, &list[i]);

        if (why) {
            snprintf(reason, sizeof(reason), "resolves to a closed range: %s (%s)", ip_address_format(&list[i], text),
                     why);
            upstream_finish(o, -1, UPSTREAM_CLOSED, reason);
            return;
        }
        if (o->denies(o->arg, &list[i])) {
            snprintf(reason, sizeof(reason), "resolves to %s, which a rule denies", ip_address_format(&list[i], text));
            upstream_finish(o, -1, UPSTREAM_CLOSED, reason);
            return;
        }
    }
    upstream_order(o, list, n);
    upstream_try_next(o);
}

static void upstream_remember(struct upstream_open *o, const struct names_answer *a)
{
    struct destination *d = o->cache;

    if (a->n > ARRAY_LEN(d->addresses) || a->ttl_s == 0 ||
        d->count.port == 0) /* port 0: several destinations share it */
        return;
    memcpy(d->addresses, a->addresses, a->n * sizeof(d->addresses[0]));
    d->naddresses = (uint32_t)a->n;
    d->addresses_expire = ev_now(o->upstream->ev) + min_u64(a->ttl_s, CACHE_MAX_S) * NS_PER_S;
}

static void upstream_on_answer(void *arg, const struct names_answer *a)
{
    struct upstream_open *o = arg;

    o->query = NULL;
    if (a->n == 0) {
        upstream_finish(o, -1, a->is_timeout ? UPSTREAM_TIMEOUT : UPSTREAM_NO_NAME, a->why);
        return;
    }
    upstream_remember(o, a);
    upstream_use(o, a->addresses, a->n);
}

static void upstream_use_given(void *arg)
{
    struct upstream_open *o = arg;
    struct ip_address given[DESTINATION_ADDRESSES];
    size_t n = o->n;

    memcpy(given, o->addresses, n * sizeof(given[0]));
    upstream_use(o, given, n);
}

/* These names are loopback by definition (RFC 6761); no resolver is asked for them. */
static bool upstream_is_loopback_name(const char *host)
{
    return str_eq(host, "localhost") || str_ends(host, ".localhost");
}

struct upstream_open *upstream_open(struct upstream *u, const char *host, const struct ip_address *address,
                                    uint16_t port, struct destination *cache, upstream_denies_fn *denies,
                                    upstream_fn *fn, void *arg)
{
    static const struct ip_address loopback = { .family = 4, .bytes = { 127, 0, 0, 1 } };
    struct upstream_open *o = mem_new(struct upstream_open);
    const struct ip_address *given = address;
    size_t n = 1;

    o->upstream = u;
    o->denies = denies;
    o->fn = fn;
    o->arg = arg;
    o->cache = cache;
    o->port = port;
    o->result.fd = -1;
    o->last_errno = ENETUNREACH;
    ev_timer_set(u->ev, &o->deadline_timer, ev_now(u->ev) + UPSTREAM_CONNECT_NS, upstream_on_deadline, o);
    if (upstream_is_loopback_name(host)) {
        given = &loopback;
    } else if (*host) {
        given = cache->addresses;
        n = ev_now(u->ev) < cache->addresses_expire ? cache->naddresses : 0;
    }
    if (n == 0) {
        o->query = names_lookup_start(u->lookup, host, upstream_on_answer, o);
    } else {
        memcpy(o->addresses, given, n * sizeof(*given));
        o->n = n;
        ev_defer(u->ev, &o->start_defer, upstream_use_given, o);
    }
    return o;
}
