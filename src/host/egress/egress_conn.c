#include "host/egress/egress_conn.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/host_addresses.h"
#include "host/egress/http_front.h"
#include "host/egress/transparent.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

#define KEEPALIVE_S 60

/* A client that has only shut down its sending side answers probes; the remains of a process that
 * is gone do not, and without probes its connection would stay as long as the destination is
 * silent. */
static void egress_conn_set_options(int fd)
{
    const struct {
        int level, name, value;
    } options[] = {
        { IPPROTO_TCP, TCP_NODELAY, 1 },    { SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S },
        { IPPROTO_TCP, TCP_KEEPINTVL, 15 }, { IPPROTO_TCP, TCP_KEEPCNT, 4 },
    };

    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

struct egress_conn *egress_conn_new(struct egress_sandbox *s, int fd, uint8_t way)
{
    struct egress_conn *c = mem_new(struct egress_conn);

    c->sandbox = s;
    c->tenant = s->tenant;
    c->fd = fd;
    c->way = way;
    c->started_at = ev_now(s->proxy->ev);
    linked_push(&s->conns, c);
    s->nconns++;
    shares_add_connection(&s->proxy->shares, c->tenant);
    return c;
}

static struct egress_conn *egress_conn_accept(struct egress_listener_source *l, uint8_t way)
{
    if (!egress_sandbox_may_accept(l))
        return NULL;
    int fd = accept4(l->io.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        egress_sandbox_pause_if_short(l);
        return NULL;
    }
    egress_conn_set_options(fd);
    return egress_conn_new(l->sandbox, fd, way);
}

void egress_conn_on_proxy_listener(void *arg, uint32_t events UNUSED)
{
    struct egress_conn *c = egress_conn_accept(arg, EGRESS_WAY_PROXY);

    if (c)
        http_front_start(c, HTTP_FRONT_PROXY, NULL);
}

void egress_conn_on_any_listener(void *arg, uint32_t events UNUSED)
{
    struct egress_conn *c = egress_conn_accept(arg, EGRESS_WAY_TRANSPARENT);

    if (c)
        transparent_start(c);
}

void egress_conn_set_handler(struct egress_conn *c, const struct egress_conn_handler *h, void *state)
{
    const struct egress_conn_handler *before = c->handler;
    void *old = c->state;

    c->handler = h;
    c->state = state;
    if (before)
        before->free(old);
}

void egress_conn_close(struct egress_conn *c)
{
    struct egress_sandbox *s = c->sandbox;

    egress_conn_set_handler(c, NULL, NULL);
    close(c->fd);
    linked_remove(c);
    s->nconns--;
    shares_remove_connection(&s->proxy->shares, c->tenant);
    free(c->host);
    free(c);
    egress_sandbox_resume(s);
}

void egress_conn_abort(struct egress_conn *c)
{
    const struct linger reset = { .l_onoff = 1 };

    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    egress_conn_close(c);
}

void egress_conn_recheck(struct egress_conn *c)
{
    if (c->handler->is_allowed(c->state))
        return;
    egress_conn_count_refusal(c, "the rules of the sandbox were changed");
    egress_conn_abort(c);
}

void egress_conn_describe(const struct egress_conn *c, struct egress_connection *ret)
{
    *ret = (struct egress_connection){ .port = c->port,
                                       .way = c->way,
                                       .age_ms = (ev_now(c->sandbox->proxy->ev) - c->started_at) / NS_PER_MS,
                                       .received = c->received,
                                       .sent = c->sent };
    if (*c->host)
        (void)str_copy(ret->host, sizeof(ret->host), c->host);
    else
        (void)ip_address_format(&c->address, ret->host);
}

/* --- target --- */

void egress_conn_set_target(struct egress_conn *c, const char *host, const struct ip_address *address, uint16_t port)
{
    char text[IP_ADDRESS_TEXT];

    if (c->destination && egress_conn_has_target(c, host, port) && *host)
        return;
    free(c->host);
    c->host = str_dup(host);
    c->address = address ? *address : (struct ip_address){ 0 };
    c->port = port;
    c->is_counted = false;
    c->destination = destinations_find(&c->sandbox->destinations, *host ? host : ip_address_format(address, text),
                                       port);
}

const char *egress_conn_host(const struct egress_conn *c, char text[IP_ADDRESS_TEXT])
{
    return *c->host ? c->host : ip_address_format(&c->address, text);
}

char *egress_conn_subject(const struct egress_conn *c, char ret[EGRESS_CONN_SUBJECT])
{
    bool is_ipv6 = c->destination && !*c->host && c->address.family == 6;
    char text[IP_ADDRESS_TEXT];

    *ret = '\0';
    if (c->destination)
        snprintf(ret, EGRESS_CONN_SUBJECT, is_ipv6 ? "[%s]:%u" : "%s:%u", egress_conn_host(c, text), c->port);
    return ret;
}

bool egress_conn_has_target(const struct egress_conn *c, const char *host, uint16_t port)
{
    return c->destination && c->port == port && str_eq(c->host, host);
}

struct egress_decision egress_conn_decide(const struct egress_conn *c, const char *method, const char *path)
{
    struct egress_target t = { .host = c->host, .address = c->address, .port = c->port };

    return egress_rules_decide(c->sandbox->rules, &t, method, path);
}

bool egress_conn_denies_address(const struct egress_conn *c, const struct ip_address *a)
{
    struct egress_target t = { .host = c->host, .address = c->address, .port = c->port };

    return egress_rules_deny_of_address(c->sandbox->rules, &t, a) >= 0;
}

bool egress_conn_denies_peer(const struct egress_conn *c, int server)
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof(sa);
    struct ip_address address;

    return server >= 0 && *c->host && getpeername(server, (struct sockaddr *)&sa, &len) == 0 &&
           host_address_from((const struct sockaddr *)&sa, &address) && egress_conn_denies_address(c, &address);
}

bool egress_conn_has_bytes_left(const struct egress_conn *c)
{
    const struct egress_sandbox *s = c->sandbox;

    return !s->bytes_max || s->destinations.received + s->destinations.sent < s->bytes_max;
}

/* --- counters --- */

void egress_conn_count_open(struct egress_conn *c)
{
    if (!c->is_counted)
        destinations_count_connection(&c->sandbox->destinations, c->destination);
    c->is_counted = true;
}

void egress_conn_count_refusal(struct egress_conn *c, const char *reason)
{
    const struct log_ids ids = { .sandbox = c->sandbox->id };
    char text[IP_ADDRESS_TEXT];

    if (!c->destination)
        return;
    destinations_count_refusal(&c->sandbox->destinations, c->destination, reason);
    log_write_with_ids(LOG_DEBUG, &ids, "refused %s:%u: %s", egress_conn_host(c, text), c->port, reason);
}

void egress_conn_count_failure(struct egress_conn *c, const char *reason)
{
    if (c->destination)
        destinations_count_failure(&c->sandbox->destinations, c->destination, reason);
}

bool egress_conn_count_bytes(struct egress_conn *c, size_t sent, size_t received)
{
    c->sent += sent;
    c->received += received;
    destinations_count_bytes(&c->sandbox->destinations, c->destination, received, sent);
    if (egress_conn_has_bytes_left(c))
        return true;
    egress_conn_count_refusal(c, EGRESS_CONN_BYTES_REASON);
    return false;
}
