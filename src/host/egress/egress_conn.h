/* egress_conn.h - one connection that a program in a sandbox has made to the proxy.
 *
 * The connection holds what every kind has in common: the descriptor, the destination, the shares
 * and the counters. A handler acts on it: http_front reads HTTP requests, tunnel passes bytes,
 * last_words says why the answer is no. A handler may hand the connection over to another. */
#pragma once

#include "host/egress/egress_sandbox.h"

struct egress_conn_handler {
    void (*free)(void *state);
    /* The rules have changed. Returns false if they refuse what the connection does now. */
    bool (*is_allowed)(void *state);
};

struct egress_conn {
    struct egress_conn *next, **link; /* in its sandbox */
    struct egress_sandbox *sandbox;
    struct share_tenant *tenant;
    int fd; /* non-blocking */
    uint8_t way;
    uint64_t started_at;
    const struct egress_conn_handler *handler;
    void *state;
    /* The current destination; NULL: not known yet. */
    struct destination *destination;
    char *host; /* "": only the address is known */
    struct ip_address address;
    uint16_t port;
    bool is_counted; /* as a connection to the current destination */
    uint64_t received, sent;
};

/* Listener callbacks; arg is a struct egress_listener_source. */
void egress_conn_on_proxy_listener(void *arg, uint32_t events);
void egress_conn_on_any_listener(void *arg, uint32_t events);

/* A connection of a bound sandbox, which has no handler yet. Takes the descriptor, non-blocking. */
struct egress_conn *egress_conn_new(struct egress_sandbox *s, int fd, uint8_t way);
/* Ends it, without any more words. Frees it. */
void egress_conn_close(struct egress_conn *c);
void egress_conn_abort(struct egress_conn *c); /* the same; the client sees a reset */
void egress_conn_recheck(struct egress_conn *c);
void egress_conn_describe(const struct egress_conn *c, struct egress_connection *ret);

/* The next handler takes the connection; the state of the one before is freed unless it is NULL.
 * The descriptor must be in no loop. */
void egress_conn_set_handler(struct egress_conn *c, const struct egress_conn_handler *h, void *state);

/* `host` is a normalised name; "": only the address is known. */
void egress_conn_set_target(struct egress_conn *c, const char *host, const struct ip_address *address, uint16_t port);
/* The name of the target, or its address as text. */
const char *egress_conn_host(const struct egress_conn *c, char text[IP_ADDRESS_TEXT]);
/* "HOST:PORT", with an IPv6 address in brackets; "" without a target. Returns ret. */
#define EGRESS_CONN_SUBJECT (EGRESS_HOST_MAX + 10)
char *egress_conn_subject(const struct egress_conn *c, char ret[EGRESS_CONN_SUBJECT]);
bool egress_conn_has_target(const struct egress_conn *c, const char *host, uint16_t port);
/* Asks the rules about the target. Method and path may be NULL, as in egress_rules.h. A refusal is
 * not counted. */
/* Whether a rule denies an address of the target. */
bool egress_conn_denies_address(const struct egress_conn *c, const struct ip_address *a);
/* The same for the peer of a connected socket; false for -1. */
bool egress_conn_denies_peer(const struct egress_conn *c, int server);
struct egress_decision egress_conn_decide(const struct egress_conn *c, const char *method, const char *path);
/* Whether the sandbox may move more bytes, and why not. */
#define EGRESS_CONN_BYTES_REASON "the sandbox has reached its limit of transferred bytes"
bool egress_conn_has_bytes_left(const struct egress_conn *c);

/* Counters of the current target. */
void egress_conn_count_open(struct egress_conn *c);
void egress_conn_count_refusal(struct egress_conn *c, const char *reason);
void egress_conn_count_failure(struct egress_conn *c, const char *reason);
/* False: the sandbox has used up its bytes, and the connection has to end. */
bool egress_conn_count_bytes(struct egress_conn *c, size_t sent, size_t received);
