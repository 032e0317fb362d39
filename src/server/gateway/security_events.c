/* Security events: activity that looks like an attack is counted, recorded and sent to the webhook.
 *
 * Events are ordinary audit records with actions of their own. An attacker decides how often they
 * occur, so they pass the same aggregator as refusals: only the first few of a kind are reported
 * one by one. */
#include "server/gateway/security_events.h"

#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/metrics.h"
#include "core/base/str.h"
#include "policy/syscalls.h"

#include <stdio.h>

#define CALLS_MAX 8u
#define DESTINATIONS_MAX 8u

/* --- reporting --- */

static void security_event_send(struct gateway *gateway, uint64_t seq, const struct audit_record *r)
{
    auto_buf out = { 0 };
    struct jsonw w;
    char at[32];

    if (!gateway->settings.webhook)
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "type", "security_event");
    jsonw_kstr(&w, "at", clock_rfc3339(clock_real_ns(), at));
    jsonw_ku64(&w, "seq", seq);
    jsonw_kstr(&w, "action", r->action);
    jsonw_kstr(&w, "tenant", r->tenant);
    if (r->key && *r->key)
        jsonw_kstr(&w, "key", r->key);
    if (r->address && *r->address)
        jsonw_kstr(&w, "address", r->address);
    jsonw_key(&w, "target");
    jsonw_object(&w);
    for (size_t i = 0; i < r->ntarget; i++)
        jsonw_kstr(&w, r->target[i].name, r->target[i].value);
    jsonw_end_object(&w);
    if (r->details) {
        jsonw_key(&w, "details");
        jsonw_raw(&w, r->details);
    }
    jsonw_end_object(&w);
    webhook_send(gateway->settings.webhook, out.data, out.len);
}

static void security_event_raise(struct gateway *gateway, enum security_kind kind, struct audit_record *r,
                                 const struct refusal_key *key)
{
    struct refusal_key k = *key;

    gateway->security_event_counts[kind]++;
    r->action = security_name(kind);
    r->outcome = "refused";
    snprintf(k.action, sizeof(k.action), "%s", r->action);
    k.error[0] = '\0';
    k.status = 0;
    if (!gateway->settings.audit || !audit_trail_should_record(gateway, &k))
        return;
    uint64_t seq = audit_append(gateway->settings.audit, r, true);
    security_event_send(gateway, seq, r);
}

/* --- refusals --- */

void security_events_count_refusal(struct gateway *gateway, const struct refusal_key *k)
{
    const char *subject = *k->actor ? k->actor : *k->user ? k->user : k->address;
    enum security_kind kind;
    unsigned count;

    if (str_eq(subject, "local") ||
        !security_count_refusal(gateway->security, subject, k->status, ev_now(gateway->settings.ev), &kind, &count))
        return;
    auto_free char *details = str_printf("{\"count\":%u,\"seconds\":%llu,\"lastAction\":\"%s\"}", count,
                                         SECURITY_WINDOW_NS / NS_PER_S, k->action);
    struct audit_record r = { .tenant = k->tenant,
                              .kind = k->kind,
                              .key = k->actor,
                              .user = k->user,
                              .address = k->address,
                              .details = details };
    security_event_raise(gateway, kind, &r, k);
}

/* --- denials of programs --- */

static bool security_events_is_attack_call(const char *name)
{
    int nr = syscall_number(name);

    return nr >= 0 && syscall_is_attack((unsigned)nr);
}

void security_events_count_denials(struct gateway *gateway, const char *owner, const char *sandbox,
                                   const char *execution, const struct denial_count *denials, size_t ndenials)
{
    struct audit_pair target[] = { { "sandbox", sandbox }, { "execution", execution } };
    struct refusal_key k = { .kind = "server" };
    auto_buf details = { 0 };
    struct jsonw w;
    uint64_t total = 0;
    unsigned listed = 0;

    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_key(&w, "calls");
    jsonw_object(&w);
    for (size_t i = 0; i < ndenials; i++) {
        if (!security_events_is_attack_call(denials[i].denial.name))
            continue;
        total += denials[i].count;
        if (listed++ < CALLS_MAX)
            jsonw_ku64(&w, denials[i].denial.call, denials[i].count);
    }
    jsonw_end_object(&w);
    jsonw_ku64(&w, "count", total);
    jsonw_end_object(&w);
    if (total == 0)
        return;
    struct audit_record r = {
        .tenant = owner, .kind = "sandbox", .target = target, .ntarget = *execution ? 2 : 1, .details = details.data
    };
    snprintf(k.tenant, sizeof(k.tenant), "%s", owner);
    security_event_raise(gateway, SECURITY_ESCAPE, &r, &k);
}

void security_events_count_destinations(struct gateway *gateway, const char *owner, const char *sandbox,
                                        const char *execution, const struct security_destination *list, size_t n,
                                        uint64_t total)
{
    struct audit_pair target[] = { { "sandbox", sandbox }, { "execution", execution } };
    struct refusal_key k = { .kind = "server" };
    auto_buf details = { 0 };
    struct jsonw w;

    jsonw_init(&w, &details, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "destinations");
    for (size_t i = 0; i < n && i < DESTINATIONS_MAX; i++) {
        jsonw_object(&w);
        jsonw_kstr(&w, "host", list[i].host);
        jsonw_ku64(&w, "port", list[i].port);
        jsonw_ku64(&w, "refused", list[i].refused);
        jsonw_kstr_if(&w, "reason", list[i].reason);
        jsonw_end_object(&w);
    }
    jsonw_end_array(&w);
    jsonw_ku64(&w, "count", total);
    jsonw_end_object(&w);
    struct audit_record r = {
        .tenant = owner, .kind = "sandbox", .target = target, .ntarget = *execution ? 2 : 1, .details = details.data
    };
    snprintf(k.tenant, sizeof(k.tenant), "%s", owner);
    security_event_raise(gateway, SECURITY_EGRESS, &r, &k);
}

void security_events_report_damage(struct gateway *gateway)
{
    struct audit_record r = { .tenant = "", .action = security_name(SECURITY_DAMAGE) };

    gateway->security_event_counts[SECURITY_DAMAGE]++; /* the record was written when the trail was opened */
    security_event_send(gateway, 0, &r);
}

void security_events_write_metrics(const struct gateway *gateway, struct buf *out)
{
    struct webhook_stats s;

    metrics_family(out, "security_events_total", NULL, "Security events, by kind.");
    for (unsigned i = 0; i < SECURITY_KINDS; i++)
        buf_addf(out, "cove_security_events_total{kind=\"%s\"} %" PRIu64 "\n", security_name(i) + strlen("security."),
                 gateway->security_event_counts[i]);
    if (!gateway->settings.webhook)
        return;
    webhook_stats(gateway->settings.webhook, &s);
    metrics_family(out, "webhook_events_total", NULL, "Security events for the webhook, by outcome.");
    metrics_value(out, "webhook_events_total", "{outcome=\"delivered\"}", s.delivered);
    metrics_value(out, "webhook_events_total", "{outcome=\"dropped\"}", s.dropped);
    metrics_number(out, "webhook_failures_total", "Failed delivery attempts of the webhook.", s.failed);
    metrics_number(out, "webhook_waiting", "Events that wait for delivery.", s.waiting);
}
