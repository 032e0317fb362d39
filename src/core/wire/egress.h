/* egress.h - messages of the egress proxy (cove-egress).
 *
 * The jailer announces the listeners of each sandbox that may have a network, and announces them
 * again to a proxy that was restarted. The engine binds rules to a sandbox; until then its
 * listeners are not read, so connections wait and nothing is allowed. Both sides send each message
 * on a SOCK_SEQPACKET socket; the proxy accepts E_LISTEN only from the jailer's uid.
 *
 * Two sockets have no common order: E_BIND may arrive before E_LISTEN, after a restart of the proxy
 * for all sandboxes, and E_UNBIND before or after E_UNLISTEN. The proxy keeps rules without
 * listeners, and the counters of a sandbox, until E_UNBIND. E_BIND of a bound sandbox keeps its
 * counters.
 *
 * Rules are the canonical text of policy/egress_rules.h, which the proxy parses again, so that the
 * wire does not depend on policy. Decoders refuse ids that are not "sb" and 20 base32 characters,
 * unknown values, and missing or extra bytes. */
#pragma once

#include "core/base/err.h"
#include "core/base/id.h"
#include "core/base/pack.h"
#include "core/wire/frame.h"

#define EGRESS_HOST_MAX 256  /* with the NUL: a host name of 253 characters, or an address */
#define EGRESS_REASON_MAX 96 /* with the NUL */
#define EGRESS_SECRET_NAME_MAX 64
#define EGRESS_RULES_TEXT_MAX (32 * 1024)
#define EGRESS_SECRETS_MAX 16
#define EGRESS_SECRET_VALUE_MAX 1024
#define EGRESS_DESTINATIONS_MAX 64
#define EGRESS_CONNECTIONS_MAX 128

/* How programs that ignore proxy variables reach the proxy. */
enum egress_carrier {
    EGRESS_CARRIER_NONE = 0,   /* the sandbox has no listeners */
    EGRESS_CARRIER_PROXY = 1,  /* not at all: only the proxy and the resolver listen */
    EGRESS_CARRIER_TPROXY = 2, /* a netfilter rule sends every port of the invented addresses to a listener */
};

/* Descriptors of E_LISTEN, in this order; EGRESS_LISTEN_ANY only with EGRESS_CARRIER_TPROXY. */
enum egress_listener { EGRESS_LISTEN_DNS_UDP, EGRESS_LISTEN_DNS_TCP, EGRESS_LISTEN_PROXY, EGRESS_LISTEN_ANY };
#define EGRESS_LISTENERS 4

#define EGRESS_ADDRESS_FIRST 0xc6120002u /* 198.18.0.2: the first address that a name can get */
#define EGRESS_ADDRESS_LAST 0xc613fffeu  /* 198.19.255.254 */
#define EGRESS_PROXY_PORT 3128
#define EGRESS_ANY_PORT 1 /* of the transparent listener, on 127.0.0.1 */

struct egress_listen { /* E_LISTEN */
    char id[ID_SIZE];
    uint8_t carrier; /* enum egress_carrier, not NONE */
};

struct egress_id { /* E_UNLISTEN, E_UNBIND, E_REPORT, E_LIST */
    char id[ID_SIZE];
};

struct egress_bind { /* E_BIND */
    char id[ID_SIZE];
    char tenant[EGRESS_SECRET_NAME_MAX]; /* whose share of the proxy the sandbox uses; "" with `cove run` */
    uint32_t connections_max;            /* open at the same time; 0: the proxy's default */
    uint32_t connection_rate;            /* new ones each second; 0: the proxy's default */
    uint64_t bytes_max;                  /* in both directions, over the life of the sandbox; 0: no limit */
    const char *rules;                   /* canonical text, at most EGRESS_RULES_TEXT_MAX */
    /* NULL-terminated, in pairs: the name of a secret, then its value. Wipe after use. */
    const char *const *secrets;
};

struct egress_destination {
    char host[EGRESS_HOST_MAX];     /* name or address that the sandbox asked for */
    uint16_t port;                  /* 0: the name was refused by the resolver */
    uint64_t connections;           /* that were opened to it */
    uint64_t refused;               /* connections and requests, by a rule or because the destination is closed */
    uint64_t failed;                /* that were allowed, but the destination did not answer */
    uint64_t received;              /* bytes from the destination */
    uint64_t sent;                  /* bytes to the destination */
    char reason[EGRESS_REASON_MAX]; /* of the last refusal or failure; "" without one */
};

struct egress_reported {                                   /* E_REPORTED */
    uint8_t carrier;                                       /* enum egress_carrier */
    uint64_t connections, refused, failed, received, sent; /* sums over all destinations */
    uint64_t other_destinations;                           /* destinations that did not fit into the list */
    uint32_t n;
    struct egress_destination destinations[EGRESS_DESTINATIONS_MAX]; /* in the order of their first use */
};

enum egress_way { EGRESS_WAY_PROXY = 1, EGRESS_WAY_TUNNEL = 2, EGRESS_WAY_TRANSPARENT = 3, EGRESS_WAY_SECRET = 4 };
struct egress_connection {
    char host[EGRESS_HOST_MAX];
    uint16_t port;
    uint8_t way; /* enum egress_way */
    uint64_t age_ms;
    uint64_t received, sent;
};

struct egress_listed { /* E_LISTED */
    uint32_t n;
    struct egress_connection connections[EGRESS_CONNECTIONS_MAX];
    uint32_t more; /* connections that did not fit */
};

struct egress_secret_used { /* E_SECRET */
    char id[ID_SIZE];
    char name[EGRESS_SECRET_NAME_MAX];
    char host[EGRESS_HOST_MAX];
    uint32_t count;
};

int egress_listen_encode(const struct egress_listen *m, uint8_t *out, struct err *err);
int egress_listen_decode(const struct frame *f, struct egress_listen *ret, struct err *err);
int egress_id_encode(const struct egress_id *m, uint8_t *out, struct err *err);
int egress_id_decode(const struct frame *f, struct egress_id *ret, struct err *err);
int egress_bind_encode(const struct egress_bind *m, uint8_t *out, struct err *err);
/* *ret_strings holds what the pointers of *ret point to; the caller wipes and frees it. */
int egress_bind_decode(const struct frame *f, struct egress_bind *ret, void **ret_strings, struct err *err);
int egress_reported_encode(const struct egress_reported *m, uint8_t *out, struct err *err);
int egress_reported_decode(const struct frame *f, struct egress_reported *ret, struct err *err);
int egress_listed_encode(const struct egress_listed *m, uint8_t *out, struct err *err);
int egress_listed_decode(const struct frame *f, struct egress_listed *ret, struct err *err);
int egress_secret_used_encode(const struct egress_secret_used *m, uint8_t *out, struct err *err);
int egress_secret_used_decode(const struct frame *f, struct egress_secret_used *ret, struct err *err);
/* E_ERROR has the payload of ERROR: struct rt_error. E_BOUND has no payload. */
