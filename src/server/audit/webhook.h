/* webhook.h - tells a URL about events, signed, again and again until it has them or they are too old.
 *
 * A delivery is a POST of JSON with these headers:
 *
 *     Cove-Delivery: <id>                 the same for every try of one event
 *     Cove-Timestamp: <seconds since 1970> of this try
 *     Cove-Signature: v1=<hex of HMAC-SHA256(secret, timestamp "." body)>
 *
 * A receiver checks the signature in constant time, refuses a timestamp that is minutes old, and remembers ids: then
 * nobody can make events up, change them, or send them again. The server goes only to public addresses and those that
 * were named as exceptions (address.h), checked when it connects, and follows no redirect. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct webhook;

struct webhook_settings {
    const char *url;          /* http or https, without name and password */
    const char *const *allow; /* networks beside the public internet, NULL-terminated, or NULL */
    const char *secret;       /* what signs */
    uint64_t retry_ns;        /* before the second try; it doubles from there. 0 is 1 s */
    unsigned tries;           /* 0 is 6 */
    uint64_t deadline_ns;     /* of one try; 0 is 15 s */
};

#define WEBHOOK_QUEUE_MAX 256u /* events that wait; beyond it the oldest is dropped */

int webhook_new(struct ev *ev, const struct webhook_settings *set, struct webhook **ret, struct err *err);
void webhook_free(struct webhook *w); /* what waits is not delivered */
DEFINE_AUTO(webhook, webhook_free);

void webhook_send(struct webhook *w, const char *json, size_t len);

struct webhook_stats {
    uint64_t delivered, failed, dropped; /* events; failed: tries that did not succeed */
    uint64_t waiting;
};
void webhook_stats(const struct webhook *w, struct webhook_stats *ret);

/* For receivers, and for tests: what Cove-Signature has behind v1=. */
void webhook_signature(const char *secret, uint64_t timestamp, const char *body, size_t len, char ret[65]);
