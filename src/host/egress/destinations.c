#include "host/egress/destinations.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define SEEN_BITS 8192u

void destinations_done(struct destinations *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->rows[i]);
    free(t->others);
    free(t->seen_others);
    *t = (struct destinations){ 0 };
}

/* The number of different destinations is approximate: two with the same hash count once. */
static struct destination *destinations_share_row(struct destinations *t, const char *host, uint16_t port)
{
    uint64_t bit = hash_fold(hash_bytes(hash_str(HASH_INIT, host), &port, sizeof(port))) % SEEN_BITS;

    if (!t->seen_others) {
        t->seen_others = mem_alloc(SEEN_BITS / 8);
        t->others = mem_new(struct destination);
    }
    if (!(t->seen_others[bit / 64] >> bit % 64 & 1))
        t->nothers++;
    t->seen_others[bit / 64] |= 1ull << bit % 64;
    return t->others;
}

struct destination *destinations_find(struct destinations *t, const char *host, uint16_t port)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i]->count.port == port && str_eq(t->rows[i]->count.host, host))
            return t->rows[i];
    if (t->n == ARRAY_LEN(t->rows))
        return destinations_share_row(t, host, port);
    struct destination *d = mem_new(struct destination);
    (void)str_copy(d->count.host, sizeof(d->count.host), host);
    d->count.port = port;
    t->rows[t->n++] = d;
    return d;
}

static void destination_set_reason(struct destination *d, const char *reason)
{
    if (reason)
        snprintf(d->count.reason, sizeof(d->count.reason), "%s", reason);
}

void destinations_count_connection(struct destinations *t, struct destination *d)
{
    d->count.connections++;
    t->connections++;
}

void destinations_count_refusal(struct destinations *t, struct destination *d, const char *reason)
{
    d->count.refused++;
    t->refused++;
    destination_set_reason(d, reason);
}

void destinations_count_failure(struct destinations *t, struct destination *d, const char *reason)
{
    d->count.failed++;
    t->failed++;
    destination_set_reason(d, reason);
}

void destinations_count_bytes(struct destinations *t, struct destination *d, uint64_t received, uint64_t sent)
{
    d->count.received += received;
    d->count.sent += sent;
    t->received += received;
    t->sent += sent;
}

void destinations_report(const struct destinations *t, struct egress_reported *ret)
{
    ret->connections = t->connections;
    ret->refused = t->refused;
    ret->failed = t->failed;
    ret->received = t->received;
    ret->sent = t->sent;
    ret->other_destinations = t->nothers;
    ret->n = (uint32_t)t->n;
    for (size_t i = 0; i < t->n; i++)
        ret->destinations[i] = t->rows[i]->count;
}
