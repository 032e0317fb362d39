/* webhook.h - sends signed events to a URL and retries with back-off until they are delivered or
 * too old.
 *
 * A delivery is a POST of JSON with these headers:
 *
 *     Cove-Delivery: <id>                 the same for every try of one event
 *     Cove-Timestamp: <seconds since 1970> of this try
 *     Cove-Signature: v1=<hex of HMAC-SHA256(secret, timestamp "." body)>
 *
 * A receiver compares the signature in constant time, refuses a timestamp that is minutes old, and
 * remembers ids. An attacker can then neither forge, change nor replay events. The server connects
 * only to public addresses and listed exceptions (address.h). It checks the address when it
 * connects, and follows no redirect. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct webhook;

struct webhook_settings {
    const char *url;          /* http or https, without user name and password */
    const char *const *allow; /* allowed networks besides the public internet, NULL-terminated, or NULL */
    const char *secret;       /* signing key */
    uint64_t retry_ns;        /* delay before the second try, doubled for each further try; 0: 1 s */
    unsigned tries;           /* tries per event; 0: 6 */
    uint64_t deadline_ns;     /* time limit of one try; 0: 15 s */
};

#define WEBHOOK_QUEUE_MAX 256u /* queued events; beyond it the oldest is dropped */

int webhook_new(struct ev *ev, const struct webhook_settings *set, struct webhook **ret, struct err *err);
void webhook_free(struct webhook *w); /* drops queued events */
DEFINE_AUTO(webhook, webhook_free);

void webhook_send(struct webhook *w, const char *json, size_t len);

struct webhook_stats {
    uint64_t delivered, failed, dropped; /* events; failed: tries without success */
    uint64_t waiting;
};
void webhook_stats(const struct webhook *w, struct webhook_stats *ret);

/* For receivers and tests: the text after "v1=" in Cove-Signature. */
void webhook_signature(const char *secret, uint64_t timestamp, const char *body, size_t len, char ret[65]);
