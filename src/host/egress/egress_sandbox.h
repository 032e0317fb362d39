/* egress_sandbox.h - what the proxy knows of one sandbox: its listeners, the rules that are bound
 * to it, its names, counters and open connections.
 *
 * A sandbox is known while it has listeners or rules. The two arrive from different processes, in
 * either order. Listeners of a sandbox without rules are not read. */
#pragma once

#include "core/wire/egress.h"
#include "host/egress/destinations.h"
#include "host/egress/egress_proxy.h"
#include "host/egress/invented_names.h"
#include "policy/egress_rules.h"

struct egress_conn;
struct secret_way;
struct resolver_conn;

struct egress_secret { /* of one binding; connections that use it hold a reference */
    unsigned refs;
    struct secret_way *way;
    char *value;
    char name[EGRESS_SECRET_NAME_MAX], host[EGRESS_HOST_MAX];
    uint32_t used; /* since the last E_SECRET */
    struct egress_sandbox *sandbox;
};

struct egress_sandbox {
    struct egress_sandbox *next, **link; /* in its bucket */
    struct egress_proxy *proxy;
    char id[ID_SIZE];

    const void *jailer; /* the link that its listeners came from; NULL: it has none */
    uint8_t carrier;
    struct egress_listener_source {
        struct egress_sandbox *sandbox;
        struct ev_io io; /* on: the descriptor is ours */
        bool is_full;    /* waits for the end of a connection */
        bool is_paused;  /* until the timer */
    } listeners[EGRESS_LISTENERS];
    struct ev_timer resume_timer;

    const void *engine;         /* the link that bound it last; NULL: that link is lost */
    struct egress_rules *rules; /* NULL: not bound */
    struct egress_secret *secrets[EGRESS_RULE_SECRETS_MAX];
    size_t nsecrets;
    struct share_tenant *tenant; /* NULL: not bound */
    uint32_t connections_max, connection_rate;
    uint64_t bytes_max;

    struct invented_names names;
    struct destinations destinations;
    struct share_bucket connection_bucket, query_bucket;
    struct egress_conn *conns;
    size_t nconns;
    struct resolver_conn *resolver_conns;
    size_t nresolver_conns;
};

struct egress_sandbox *egress_sandbox_find(struct egress_proxy *p, const char *id);
/* Takes the descriptors (EGRESS_LISTENERS, or one less without the transparent listener). Earlier
 * listeners of the sandbox are closed. */
int egress_sandbox_listen(struct egress_proxy *p, const struct egress_listen *m, int *fds, size_t nfds,
                          const void *jailer, struct err *err);
/* Closes the listeners and connections. */
void egress_sandbox_unlisten(struct egress_sandbox *s);
/* Either all of the message is in effect afterwards, or nothing has changed. */
int egress_sandbox_bind(struct egress_proxy *p, const struct egress_bind *m, const void *engine, struct err *err);
/* Ends the connections, and forgets rules, names and counters. May free the sandbox. */
void egress_sandbox_unbind(struct egress_sandbox *s);
void egress_sandbox_report(const struct egress_sandbox *s, struct egress_reported *ret);
void egress_sandbox_list(const struct egress_sandbox *s, struct egress_listed *ret);
/* A link is gone: its listeners are closed, its bindings stay for sandboxes that have listeners. */
void egress_sandboxes_lose_jailer(struct egress_proxy *p, const void *jailer);
void egress_sandboxes_lose_engine(struct egress_proxy *p, const void *engine);
void egress_sandboxes_free(struct egress_proxy *p);

/* For listeners: whether its limits allow one more connection; otherwise the listener is not
 * read until there is. */
bool egress_sandbox_may_accept(struct egress_listener_source *l);
void egress_sandbox_pause(struct egress_listener_source *l, uint64_t until);
/* Whether a connection that was accepted may lead to one more destination, by the same rates.
 * False: ask again at *ret_at. */
bool egress_sandbox_may_open(struct egress_sandbox *s, uint64_t *ret_at);
/* After accept4() has failed: pauses if it lacked descriptors or memory, because it would fail
 * again at once. */
void egress_sandbox_pause_if_short(struct egress_listener_source *l);
void egress_sandbox_resume(struct egress_sandbox *s); /* a connection has ended */

struct egress_secret *egress_sandbox_find_secret(const struct egress_sandbox *s, const char *host);
void egress_secret_use(struct egress_secret *secret); /* counts, and has it reported */
void egress_secret_unref(struct egress_secret *secret);
