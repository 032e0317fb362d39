/* network_usage.h - counters of a sandbox's connections through the egress proxy. A proxy that is
 * restarted counts from 0, so totals are sums over the proxies that served the sandbox. */
#pragma once

#include "core/base/base.h"
#include "core/wire/egress.h"

struct network_usage {
    uint64_t connections, refused, failed, received, sent;
    struct egress_destination *destinations; /* in the order of their first use */
    size_t n;                                /* at most EGRESS_DESTINATIONS_MAX */
    uint64_t other_destinations;             /* that did not fit into the list */
};

void network_usage_done(struct network_usage *u); /* leaves zeroes */
/* *u becomes before + r. u must be zeroed or set, and may be `before`. */
void network_usage_set(struct network_usage *u, const struct network_usage *before, const struct egress_reported *r);
/* *ret becomes now - before: the destinations whose counters have changed. `ret` must be zeroed. */
void network_usage_difference(const struct network_usage *now, const struct network_usage *before,
                              struct network_usage *ret);
void network_usage_copy(struct network_usage *to, const struct network_usage *from); /* `to` must be zeroed or set */
/* The same as a message of the proxy. */
void network_usage_report(const struct network_usage *u, uint8_t carrier, struct egress_reported *ret);
