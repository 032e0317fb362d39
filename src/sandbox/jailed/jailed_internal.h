/* jailed_internal.h - what the files of this directory know of one another: the connection to the
 * jailer, and the requests on it. Only this directory includes it. */
#pragma once

#include "core/base/backoff.h"
#include "core/wire/chan.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"
#include "sandbox/jailed/jailed.h"

/* f is NULL when err is set. Descriptors that the callback does not take out of `fds` are closed
 * after it. */
struct jailed_reply {
    const struct frame *f;
    int *fds;
    size_t nfds;
};

struct jailed_link;
struct jailed_request;
typedef void jailed_reply_fn(struct jailed_link *l, struct jailed_request *a, const struct jailed_reply *reply,
                             const struct err *err);

struct jailed_request {
    struct driver_request base;
    struct jailed_request *next;
    jailed_reply_fn *on_reply;
    uint32_t stream;
    uint8_t type;
    char id[ID_SIZE];         /* the sandbox of the request, or "" */
    struct sandbox_kind kind; /* J_TEMPLATE, J_CREATE: the requested kind */
};

#define JAILED_REQUEST_BUCKETS 64u

struct jailed_link {
    struct driver_link base;
    struct ev *ev;
    struct chan chan;
    struct chan monitor;
    struct ev_timer monitor_timer;
    struct backoff monitor_backoff; /* between requests for the monitor; zero: do not ask for it */
    struct ev_timer lost_timer;
    uint32_t next_stream;
    struct sandbox_kind *templates; /* requested, and not refused */
    size_t ntemplates;
    struct jailed_request *requests[JAILED_REQUEST_BUCKETS];
    struct ev_defer defer;
};

static inline struct jailed_link *jailed_link(struct driver_link *l)
{
    return (struct jailed_link *)l;
}

/* --- link.c --- */

int jailed_open(struct ev *ev, const struct driver_settings *s, const struct driver_events *events, void *arg,
                struct driver_link **ret, struct err *err);
void jailed_close(struct driver_link *l);
void jailed_forget(struct driver_link *l, const void *owner);
/* Sends a request to the jailer, or J_DENIALS to the monitor. The caller sets base.on. */
struct jailed_request *jailed_send(struct jailed_link *l, uint8_t type, const uint8_t *data, uint32_t len,
                                   const int *fds, size_t nfds, jailed_reply_fn *on_reply, void *owner);
struct jailed_request *jailed_send_id(struct jailed_link *l, uint8_t type, const char *id, jailed_reply_fn *on_reply,
                                      void *owner);
void jailed_on_done(struct jailed_link *l, struct jailed_request *a, const struct jailed_reply *reply,
                    const struct err *err);
/* Completes the request of a reply; -1: the sender violated the protocol. */
int jailed_take_reply(struct jailed_link *l, bool from_monitor, const struct jailed_reply *reply, struct err *err);
/* Fails the open requests to the monitor, or all. */
void jailed_fail_requests(struct jailed_link *l, bool monitor_only, const struct err *why);

/* --- template.c --- */

/* Requests the template unless that was done. A sandbox may be requested immediately after: the
 * jailer handles requests in order, and a template that fails also fails the sandboxes requested
 * in the meantime. */
void jailed_request_template(struct jailed_link *l, const struct sandbox_kind *kind);
void jailed_forget_template(struct jailed_link *l, const struct sandbox_kind *kind); /* to request it again */
void jailed_template_name(const struct sandbox_kind *kind, char ret[JAIL_NAME_MAX]);

/* --- create.c --- */

struct driver_request *jailed_create(struct driver_link *l, const char *id, const struct sandbox_kind *kind,
                                     const struct sandbox_spec *spec, driver_created_fn *fn, void *owner,
                                     struct err *err);
struct driver_request *jailed_adopt(struct driver_link *l, const char *id, driver_created_fn *fn, void *owner);
/* The template of this kind failed: answers the requests for sandboxes of this kind with `why`. */
void jailed_fail_creations(struct jailed_link *l, const struct sandbox_kind *kind, const struct err *why);

/* --- monitor.c --- */

struct driver_request *jailed_denials(struct driver_link *l, const char *id, driver_denials_fn *fn, void *owner);
bool jailed_has_unread_denials(struct driver_link *l);
void jailed_forget_denials(struct driver_link *l, const char *id);
int jailed_set_monitor(struct driver_link *l, int monitor_fd, struct err *err);
void jailed_connect_monitor(struct driver_link *l);

/* --- zygote.c --- */

struct driver_request *jailed_start_zygote(struct driver_link *l, const struct sandbox_kind *kind, const char *preload,
                                           driver_done_fn *fn, void *owner, struct err *err);
void jailed_stop_zygote(struct driver_link *l, const struct sandbox_kind *kind);
struct driver_request *jailed_join(struct driver_link *l, const char *id, driver_joined_fn *fn, void *owner);
