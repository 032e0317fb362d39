/* gateway_internal.h - declarations shared by the files of this directory. No other directory
 * includes it. */
#pragma once

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "server/audit/refusal_aggregator.h"
#include "server/audit/security.h"
#include "server/gateway/audit_trail.h"
#include "server/gateway/gateway.h"

#define GATEWAY_ROUTES_MAX 160u
#define GATEWAY_TARGETS_MAX 6u

/* The audit properties of a route (audit_actions.c). */
struct audit_action {
    const struct http_route *route;
    char name[64];
    bool is_change;       /* the route changes state, so a request must be recorded */
    bool record_success;  /* a successful request is recorded too */
    bool frees_resources; /* the route ends or removes an object: allowed in AUDIT_FULL */
};
void audit_action_of_route(const struct http_route *r, struct audit_action *ret);

/* The state of a request from authorization to response (audit_trail.c): http_user_data(). */
struct gateway_request {
    struct principal principal;
    bool authenticated; /* `principal` is filled in */
    bool admitted;      /* authorization succeeded */
    struct gateway *gateway;
    struct audit *audit; /* NULL: nothing is recorded */
    bool record_content;
    struct http_req *req;
    struct gateway_request *next, **list_link;
    const struct audit_action *action;
    struct audit_action body_action; /* that the body named; `action` points to it */
    enum err_id body_error;          /* of an action whose answer is 200 in spite of it */
    uint64_t accepted_seq;           /* number of its `accepted` record; 0: none */
    struct audit_wait record_wait;
    bool target_recorded; /* the targets in the path were added */
    /* Tenant of the sandbox that the request acts on, if it differs from the principal's; "": the
     * same. */
    char acted_on_tenant[STORE_OWNER_MAX + 1];
    struct audit_pair target[GATEWAY_TARGETS_MAX];
    char *target_values[GATEWAY_TARGETS_MAX];
    size_t ntarget;
    char *target_names[GATEWAY_TARGETS_MAX]; /* copies of target names, owned by this request */
    size_t ntarget_names;
    struct buf details;                                   /* a JSON object that is not closed yet */
    struct gateway_request *next_pending, **pending_link; /* list of requests whose outcome is not recorded yet */
};

struct gateway {
    struct gateway_settings settings;
    uint64_t started_ms;                /* wall clock */
    struct unread_quota *unread_quotas; /* unread_responses.c */
    struct gateway_counter counters[GATEWAY_ROUTES_MAX];
    size_t ncounters;
    struct open_stream *open_streams; /* responses without a known end (open_streams.c) */
    struct audit_action *actions;
    size_t nactions;
    struct gateway_request *requests; /* requests in progress */
    /* Answered requests whose audit record is written after the response. */
    struct gateway_request *pending_records;
    struct ev_defer pending_records_defer;
    struct refusal_aggregator *refusals;
    struct ev_timer refusal_summary_timer;
    struct security *security;
    uint64_t security_event_counts[SECURITY_KINDS];
};

/* --- the audit record of a request (audit_trail.c) --- */

void audit_trail_init(struct gateway *gateway);
void audit_trail_done(struct gateway *gateway);
void audit_trail_add_routes(struct gateway *gateway, const struct http_route *routes);
struct gateway_request *audit_trail_new_request(struct gateway *gateway, struct http_req *req);
void audit_trail_resolve_tenant(struct gateway_request *r); /* sets `acted_on_tenant`; the principal is known */
/* The body named the action that the record is about. */
void audit_trail_set_action(struct gateway_request *r, const struct gateway_action *action);
/* The last check of authorization. ERR_AUDIT: the request cannot be recorded. */
int audit_trail_can_record(struct gateway_request *r, struct err *err);
void audit_trail_unrouted_request(struct gateway *gateway, const struct http_request_summary *done);
/* True: write a record for this refusal. False: the refusal was added to a counter. */
bool audit_trail_should_record(struct gateway *gateway, const struct refusal_key *k);
void audit_trail_flush_pending(struct gateway *gateway); /* records the pending outcomes that are due */

/* --- security events (security_events.c) --- */

void security_events_count_refusal(struct gateway *gateway, const struct refusal_key *k);
