/* egress_link.h - the engine's connection to the egress proxy (cove-egress): requests with answers,
 * and a new connection when one is lost.
 *
 * Every request is answered exactly once, and never inside the call that makes it, unless it is
 * forgotten first: with the proxy's answer, with network_unavailable when there is no connection or
 * it ends, or with a timeout. So callers have one code path and no clock of their own.
 *
 * The link does not remember bindings. After on_connected nothing is bound for certain, and the
 * owner binds every sandbox again. */
#pragma once

#include "core/base/backoff.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "core/wire/chan.h"
#include "core/wire/egress.h"

struct egress_link_ops {
    void (*on_connected)(void *arg); /* the proxy may be another process than before */
    void (*on_answered)(void *arg);  /* after the callback of a request that was sent */
    void (*on_lost)(void *arg);      /* after the answers to all requests */
    void (*on_secret_used)(void *arg, const struct egress_secret_used *used);
};

/* Each result is NULL when err is set. */
struct egress_request;
typedef void egress_link_done_fn(struct egress_request *r, const struct err *err);
typedef void egress_link_report_fn(struct egress_request *r, const struct egress_reported *m, const struct err *err);
typedef void egress_link_list_fn(struct egress_request *r, const struct egress_listed *m, const struct err *err);

struct egress_request { /* allocated by the link; valid until it is answered */
    struct egress_request *next;
    uint32_t stream;
    uint8_t answer; /* type of the frame that answers it */
    uint64_t deadline;
    bool sent;
    struct err why; /* not sent: the answer */
    union {
        egress_link_done_fn *done;
        egress_link_report_fn *report;
        egress_link_list_fn *list;
    } on;        /* NULL: nothing waits for the answer */
    void *owner; /* egress_link_forget() finds requests by it */
    /* Set by the caller after the request was made, for its own callback. */
    union {
        void (*done)(void *arg, const struct err *err);
        void (*report)(void *arg, const struct egress_reported *r, const struct err *err);
        void (*list)(void *arg, const struct egress_listed *l, const struct err *err);
    } then;
    void *then_arg;
};

struct egress_link {
    struct ev *ev;
    const struct egress_link_ops *ops;
    void *arg;
    struct chan chan;
    bool connected;
    char *path; /* of the proxy's socket; NULL: a connection that is lost does not come back */
    struct backoff backoff;
    struct ev_timer retry_timer, answer_timer;
    uint32_t next_stream;
    struct egress_request *head, *tail; /* in the order in which they were made, so of their deadlines */
    uint32_t nsent;                     /* requests that wait for the proxy's answer */
    struct err why;                     /* not connected: the reason */
};

void egress_link_init(struct egress_link *l, struct ev *ev, const struct egress_link_ops *ops, void *arg);
void egress_link_done(struct egress_link *l); /* no callback follows */
/* Uses this socket; when it is lost, it stays lost. Takes it, also on failure. on_connected is not
 * called. */
int egress_link_set(struct egress_link *l, int fd, struct err *err);
/* Connects to the proxy's socket, now and after each loss, until egress_link_done. */
void egress_link_connect(struct egress_link *l, const char *path);
/* NULL: connected. */
const char *egress_link_absent_why(const struct egress_link *l);
bool egress_link_reconnects(const struct egress_link *l);

/* Payload of E_BIND (egress_bind_encode), borrowed for the call. */
struct egress_request *egress_link_bind(struct egress_link *l, const uint8_t *payload, uint32_t len,
                                        egress_link_done_fn *fn, void *owner);
/* The final counters. fn may be NULL. */
struct egress_request *egress_link_unbind(struct egress_link *l, const char *id, egress_link_report_fn *fn,
                                          void *owner);
struct egress_request *egress_link_report(struct egress_link *l, const char *id, egress_link_report_fn *fn,
                                          void *owner);
struct egress_request *egress_link_list(struct egress_link *l, const char *id, egress_link_list_fn *fn, void *owner);
/* Sends nothing, and answers with `why` like any other request. */
struct egress_request *egress_link_refuse(struct egress_link *l, const struct err *why, egress_link_done_fn *fn,
                                          void *owner);
void egress_request_forget(struct egress_request *r);
void egress_link_forget(struct egress_link *l, const void *owner); /* no callback follows for this owner */
