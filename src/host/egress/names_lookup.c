/* c-ares owns the sockets and names those that it waits for; they are sources of the loop here. It
 * may answer within ares_getaddrinfo() itself, so every answer is stored and passed on in a
 * deferred call. A query cannot be withdrawn from c-ares: a cancelled one stays until its
 * answer. */
#include "host/egress/names_lookup.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/host_addresses.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>

#define TIMEOUT_MS 2000 /* of the first try; the second may take twice as long */
#define TRIES 2
#define ADDRESSES_MAX 64u /* of one answer */

struct names_socket {
    struct names_socket *next;
    struct names_lookup *lookup;
    struct ev_io io;
};

struct names_lookup {
    struct ev *ev;
    ares_channel channel;
    size_t nqueries; /* that c-ares has not answered */
    char *servers;
    struct timespec resolv_conf; /* its time of modification when the channel was made */
    struct names_socket *sockets;
    struct ev_timer timer;
    struct ev_defer free_sockets;
    struct names_socket *closed_sockets;
};

struct names_query {
    struct names_lookup *lookup;
    names_lookup_fn *fn; /* NULL: cancelled */
    void *arg;
    struct ev_defer answer_defer;
    struct ip_address addresses[ADDRESSES_MAX];
    struct names_answer answer;
};

/* --- sockets --- */

static void names_lookup_set_timer(struct names_lookup *l);

static void names_lookup_on_timer(void *arg)
{
    struct names_lookup *l = arg;

    ares_process_fd(l->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    names_lookup_set_timer(l);
}

static void names_lookup_set_timer(struct names_lookup *l)
{
    struct timeval tv;

    if (!ares_timeout(l->channel, NULL, &tv))
        ev_timer_clear(l->ev, &l->timer);
    else
        ev_timer_set(l->ev, &l->timer,
                     ev_now(l->ev) + (uint64_t)tv.tv_sec * NS_PER_S + (uint64_t)tv.tv_usec * NS_PER_US + NS_PER_MS,
                     names_lookup_on_timer, l);
}

static void names_socket_on_ready(void *arg, uint32_t events)
{
    struct names_socket *s = arg;
    struct names_lookup *l = s->lookup;
    ares_socket_t fd = s->io.fd;

    ares_process_fd(l->channel, events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
    names_lookup_set_timer(l);
}

static void names_lookup_free_sockets(void *arg)
{
    struct names_lookup *l = arg;

    while (l->closed_sockets) {
        struct names_socket *s = l->closed_sockets;

        l->closed_sockets = s->next;
        free(s);
    }
}

static void names_lookup_on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct names_lookup *l = arg;
    struct names_socket *s = l->sockets;
    uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

    while (s && s->io.fd != fd)
        s = s->next;
    if (!s && events) {
        s = mem_new(struct names_socket);
        s->lookup = l;
        if (ev_io_add(l->ev, &s->io, fd, events, names_socket_on_ready, s, NULL) < 0) {
            free(s); /* the query times out */
            return;
        }
        list_push(&l->sockets, s);
    } else if (s && events) {
        ev_io_set(l->ev, &s->io, events);
    } else if (s) {
        ev_io_del(l->ev, &s->io);
        list_remove(&l->sockets, s);
        list_push(&l->closed_sockets, s);
        ev_defer(l->ev, &l->free_sockets, names_lookup_free_sockets, l);
    }
}

/* --- the channel --- */

static struct timespec names_lookup_resolv_conf_time(void)
{
    struct stat st = { 0 };

    (void)stat("/etc/resolv.conf", &st);
    return st.st_mtim;
}

static int names_lookup_make_channel(struct names_lookup *l, struct err *err)
{
    char lookups[] = "b"; /* no file: an entry of /etc/hosts would be a name of this host alone */
    struct ares_options o = { .timeout = TIMEOUT_MS,
                              .tries = TRIES,
                              .lookups = lookups,
                              .flags = ARES_FLAG_NOSEARCH,
                              .sock_state_cb = names_lookup_on_socket_state,
                              .sock_state_cb_data = l };
    int flags = ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_FLAGS | ARES_OPT_SOCK_STATE_CB;
    ares_channel channel;

    l->resolv_conf = names_lookup_resolv_conf_time();
    int rc = ares_init_options(&channel, &o, flags);
    if (rc == ARES_SUCCESS && *l->servers) {
        rc = ares_set_servers_ports_csv(channel, l->servers);
        if (rc != ARES_SUCCESS)
            ares_destroy(channel);
    }
    if (rc != ARES_SUCCESS)
        return err_set(err, ERR_INVALID, "cannot use the resolvers '%.120s': %s", l->servers, ares_strerror(rc));
    if (l->channel)
        ares_destroy(l->channel);
    l->channel = channel;
    return 0;
}

/* The host may have moved to another network. A channel with queries is replaced after them. */
static void names_lookup_follow_resolv_conf(struct names_lookup *l)
{
    struct timespec t;

    if (*l->servers || l->nqueries)
        return;
    t = names_lookup_resolv_conf_time();
    if (t.tv_sec != l->resolv_conf.tv_sec || t.tv_nsec != l->resolv_conf.tv_nsec)
        (void)names_lookup_make_channel(l, NULL); /* on failure the previous servers stay */
}

int names_lookup_new(struct ev *ev, const char *servers, struct names_lookup **ret, struct err *err)
{
    auto_(names_lookup) l = mem_new(struct names_lookup);
    int rc = ares_library_init(ARES_LIB_INIT_ALL);

    l->ev = ev;
    l->servers = str_dup(servers);
    if (rc != ARES_SUCCESS)
        return err_set(err, ERR_SYS, "cannot start the resolver: %s", ares_strerror(rc));
    if (names_lookup_make_channel(l, err) < 0)
        return -1;
    *ret = take_ptr(&l);
    return 0;
}

void names_lookup_free(struct names_lookup *l)
{
    if (!l)
        return;
    if (l->channel)
        ares_destroy(l->channel); /* answers every query */
    ev_timer_clear(l->ev, &l->timer);
    ev_defer_clear(l->ev, &l->free_sockets);
    names_lookup_free_sockets(l);
    free(l->servers);
    free(l);
}

/* --- queries --- */

static void names_query_answer(void *arg)
{
    struct names_query *q = arg;

    if (q->fn)
        q->fn(q->arg, &q->answer);
    free(q);
}

static void names_query_add_addresses(struct names_query *q, const struct ares_addrinfo *info)
{
    uint32_t ttl = 60;

    for (const struct ares_addrinfo_node *n = info->nodes; n; n = n->ai_next) {
        if (q->answer.n == ADDRESSES_MAX) { /* not all could be checked, so none is used */
            q->answer.n = 0;
            q->answer.why = "the answer has too many addresses";
            return;
        }
        if (!host_address_from(n->ai_addr, &q->addresses[q->answer.n]))
            continue;
        q->answer.n++;
        if (n->ai_ttl >= 0 && (uint32_t)n->ai_ttl < ttl)
            ttl = (uint32_t)n->ai_ttl;
    }
    q->answer.ttl_s = ttl;
}

static void names_query_on_result(void *arg, int status, int timeouts UNUSED, struct ares_addrinfo *info)
{
    struct names_query *q = arg;

    q->lookup->nqueries--;
    q->answer.addresses = q->addresses;
    q->answer.why = "the name does not exist";
    q->answer.is_timeout = status == ARES_ETIMEOUT;
    if (status == ARES_SUCCESS)
        names_query_add_addresses(q, info);
    else if (status == ARES_ETIMEOUT)
        q->answer.why = "the resolver did not answer in time";
    else if (status != ARES_ENOTFOUND && status != ARES_ENODATA)
        q->answer.why = "the name could not be resolved";
    if (info)
        ares_freeaddrinfo(info);
    if (status == ARES_EDESTRUCTION)
        free(q);
    else
        ev_defer(q->lookup->ev, &q->answer_defer, names_query_answer, q);
}

struct names_query *names_lookup_start(struct names_lookup *l, const char *host, names_lookup_fn *fn, void *arg)
{
    const struct ares_addrinfo_hints hints = { .ai_flags = ARES_AI_NOSORT,
                                               .ai_family = AF_UNSPEC,
                                               .ai_socktype = SOCK_STREAM };
    struct names_query *q = mem_new(struct names_query);
    /* The dot at the end keeps c-ares from trying search domains. */
    auto_free char *name = str_printf("%s.", host);

    names_lookup_follow_resolv_conf(l);
    q->lookup = l;
    q->fn = fn;
    q->arg = arg;
    l->nqueries++;
    ares_getaddrinfo(l->channel, name, NULL, &hints, names_query_on_result, q);
    names_lookup_set_timer(l);
    return q;
}

void names_lookup_cancel(struct names_query *q)
{
    q->fn = NULL;
}
