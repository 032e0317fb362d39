/* security_events.h - security events: refusals, denials and damage that indicate an attack. */
#pragma once

#include "policy/denial.h"
#include "server/gateway/gateway.h"

/* For manager_settings.on_denials: counts the denials of a program; some of them raise an event.
 * execution: "" for a context's language kernel. */
void security_events_count_denials(struct gateway *gateway, const char *owner, const char *sandbox,
                                   const char *execution, const struct denial_count *denials, size_t ndenials);
/* The audit trail does not match its known checkpoint. */
void security_events_report_damage(struct gateway *gateway);
/* Appends the metrics in the Prometheus text format. */
void security_events_write_metrics(const struct gateway *gateway, struct buf *out);
