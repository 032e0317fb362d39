/* security_events.h - security events: refusals, denials and damage that indicate an attack. */
#pragma once

#include "policy/denial.h"
#include "server/gateway/gateway.h"

/* For manager_settings.on_denials: counts the denials of a program; some of them raise an event.
 * execution: "" for a context's language kernel. */
void security_events_count_denials(struct gateway *gateway, const char *owner, const char *sandbox,
                                   const char *execution, const struct denial_count *denials, size_t ndenials);
/* A destination that the egress proxy refused. */
struct security_destination {
    const char *host;
    uint16_t port;
    uint64_t refused; /* how often */
    const char *reason;
};
/* For manager_settings.on_refused_destinations: raises an event for one execution. At most 8
 * destinations are recorded; total counts the refusals of all. */
void security_events_count_destinations(struct gateway *gateway, const char *owner, const char *sandbox,
                                        const char *execution, const struct security_destination *list, size_t n,
                                        uint64_t total);
/* The audit trail does not match its known checkpoint. */
void security_events_report_damage(struct gateway *gateway);
/* Appends the metrics in the Prometheus text format. */
void security_events_write_metrics(const struct gateway *gateway, struct buf *out);
