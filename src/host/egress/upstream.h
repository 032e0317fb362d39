/* upstream.h - opens a TCP connection to an allowed destination.
 *
 * The name is looked up now, and every address of the answer must be open to sandboxes: one that is
 * in a closed range, or is an address of this host, refuses the whole answer. The connection goes
 * to an address that was checked, and no name is looked up a second time. The rules were asked by
 * the caller. */
#pragma once

#include "core/ev/ev.h"
#include "host/egress/destinations.h"
#include "host/egress/host_addresses.h"
#include "host/egress/names_lookup.h"

#define UPSTREAM_CONNECT_NS (10 * NS_PER_S)

struct upstream_settings {
    const char *resolvers; /* as of names_lookup_new() */
    const struct ip_prefix *open;
    size_t nopen;
};

struct upstream {
    struct ev *ev;
    struct upstream_settings settings;
    struct host_addresses host_addresses;
    struct names_lookup *lookup;
};

enum upstream_failure {
    UPSTREAM_OPEN,        /* no failure */
    UPSTREAM_CLOSED,      /* an address may not be reached: a refusal */
    UPSTREAM_NO_NAME,     /* the name has no address */
    UPSTREAM_UNREACHABLE, /* refused, or no route */
    UPSTREAM_TIMEOUT,
};

struct upstream_result {
    int fd; /* -1: failed. The callee owns it; non-blocking */
    enum upstream_failure failure;
    char reason[EGRESS_REASON_MAX];
};
typedef void upstream_fn(void *arg, const struct upstream_result *r);

int upstream_init(struct upstream *u, struct ev *ev, const struct upstream_settings *settings, struct err *err);
void upstream_done(struct upstream *u);

/* Whether a rule denies an address to which the name is resolved. */
typedef bool upstream_denies_fn(void *arg, const struct ip_address *a);

struct upstream_open;
/* `host` is a normalised name; "": `address` is the destination. `cache` keeps the answer of the
 * resolver and lives longer. Calls fn once, never before this function has returned. */
struct upstream_open *upstream_open(struct upstream *u, const char *host, const struct ip_address *address,
                                    uint16_t port, struct destination *cache, upstream_denies_fn *denies,
                                    upstream_fn *fn, void *arg);
void upstream_cancel(struct upstream_open *o); /* fn is not called; not from fn; NULL is accepted */
