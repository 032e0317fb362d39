#include "sandbox/network_usage.h"

#include "core/base/mem.h"
#include "core/base/str.h"

_Static_assert(EGRESS_DESTINATIONS_MAX <= 64, "destinations are found by a linear search");

void network_usage_done(struct network_usage *u)
{
    free(u->destinations);
    *u = (struct network_usage){ 0 };
}

void network_usage_copy(struct network_usage *to, const struct network_usage *from)
{
    struct egress_destination *old = to->destinations;

    *to = *from;
    if (from->n)
        to->destinations = mem_copy(from->destinations, from->n * sizeof(*from->destinations));
    else
        to->destinations = NULL;
    free(old);
}

static struct egress_destination *network_usage_find(const struct network_usage *u, const struct egress_destination *d)
{
    for (size_t i = 0; i < u->n; i++)
        if (u->destinations[i].port == d->port && str_eq(u->destinations[i].host, d->host))
            return &u->destinations[i];
    return NULL;
}

static void network_usage_append(struct network_usage *u, const struct egress_destination *d)
{
    u->destinations = mem_resize(u->destinations, u->n + 1, sizeof(*u->destinations));
    u->destinations[u->n++] = *d;
}

static void network_usage_add(struct network_usage *u, const struct egress_destination *d)
{
    struct egress_destination *to = network_usage_find(u, d);

    if (!to && u->n == EGRESS_DESTINATIONS_MAX) {
        u->other_destinations++;
    } else if (!to) {
        network_usage_append(u, d);
    } else {
        to->connections += d->connections;
        to->refused += d->refused;
        to->failed += d->failed;
        to->received += d->received;
        to->sent += d->sent;
        if (d->reason[0])
            memcpy(to->reason, d->reason, sizeof(to->reason));
    }
}

void network_usage_set(struct network_usage *u, const struct network_usage *before, const struct egress_reported *r)
{
    struct network_usage sum = { 0 };

    network_usage_copy(&sum, before);
    sum.connections += r->connections;
    sum.refused += r->refused;
    sum.failed += r->failed;
    sum.received += r->received;
    sum.sent += r->sent;
    sum.other_destinations += r->other_destinations;
    for (uint32_t i = 0; i < r->n; i++)
        network_usage_add(&sum, &r->destinations[i]);
    network_usage_done(u);
    *u = sum;
}

/* A difference is never negative, also if the proxy counts backwards. */
static uint64_t network_usage_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static bool network_usage_subtract(struct egress_destination *d, const struct egress_destination *before)
{
    if (before) {
        d->connections = network_usage_minus(d->connections, before->connections);
        d->refused = network_usage_minus(d->refused, before->refused);
        d->failed = network_usage_minus(d->failed, before->failed);
        d->received = network_usage_minus(d->received, before->received);
        d->sent = network_usage_minus(d->sent, before->sent);
    }
    if (!d->refused && !d->failed)
        d->reason[0] = '\0';
    return d->connections || d->refused || d->failed || d->received || d->sent;
}

void network_usage_difference(const struct network_usage *now, const struct network_usage *before,
                              struct network_usage *ret)
{
    *ret = (struct network_usage){
        .connections = network_usage_minus(now->connections, before->connections),
        .refused = network_usage_minus(now->refused, before->refused),
        .failed = network_usage_minus(now->failed, before->failed),
        .received = network_usage_minus(now->received, before->received),
        .sent = network_usage_minus(now->sent, before->sent),
        .other_destinations = network_usage_minus(now->other_destinations, before->other_destinations),
    };
    for (size_t i = 0; i < now->n; i++) {
        struct egress_destination d = now->destinations[i];

        if (network_usage_subtract(&d, network_usage_find(before, &d)))
            network_usage_append(ret, &d);
    }
}

void network_usage_report(const struct network_usage *u, uint8_t carrier, struct egress_reported *ret)
{
    *ret = (struct egress_reported){ .carrier = carrier,
                                     .connections = u->connections,
                                     .refused = u->refused,
                                     .failed = u->failed,
                                     .received = u->received,
                                     .sent = u->sent,
                                     .other_destinations = u->other_destinations,
                                     .n = (uint32_t)u->n };
    if (u->n)
        memcpy(ret->destinations, u->destinations, u->n * sizeof(*u->destinations));
}
