/* destinations.h - the counters of one sandbox, by destination.
 *
 * The first EGRESS_DESTINATIONS_MAX destinations have a row each, in the order of their first use;
 * all others share one row, which reports only count. Rows stay in place until
 * destinations_reset. */
#pragma once

#include "core/wire/egress.h"
#include "policy/ip_address.h"

#define DESTINATION_ADDRESSES 8

struct destination {
    struct egress_destination count;
    /* The last answer of the resolver, so that a program that opens many connections waits for one
     * query only. The addresses are checked against the closed ranges at every connection. */
    struct ip_address addresses[DESTINATION_ADDRESSES];
    uint32_t naddresses;
    uint64_t addresses_expire; /* monotonic ns */
};

struct destinations {
    struct destination *rows[EGRESS_DESTINATIONS_MAX];
    size_t n;
    struct destination *others;
    uint64_t *seen_others; /* a set of hashes: which destinations share the row */
    uint64_t nothers;
    uint64_t connections, refused, failed, received, sent; /* sums over all rows */
};

void destinations_done(struct destinations *t);
/* The row of a normalised host (or the text of an address) and port. */
struct destination *destinations_find(struct destinations *t, const char *host, uint16_t port);
/* Each counts in the row and in the sums. The reason is kept; NULL leaves the one before. */
void destinations_count_connection(struct destinations *t, struct destination *d);
void destinations_count_refusal(struct destinations *t, struct destination *d, const char *reason);
void destinations_count_failure(struct destinations *t, struct destination *d, const char *reason);
void destinations_count_bytes(struct destinations *t, struct destination *d, uint64_t received, uint64_t sent);
/* Sets everything but the carrier. */
void destinations_report(const struct destinations *t, struct egress_reported *ret);
