/* fetch.h - HTTP requests to external servers. The only component that uses libcurl.
 *
 * A call is started and runs in the loop: on_head once, on_data as bytes arrive, on_done exactly
 * once and last. Only http and https are spoken, redirects are not followed, no proxy or
 * credential is taken from the environment, and the size of the response head is limited: the
 * server is not trusted. The caller limits the size of the body, and can pause a call at any
 * time. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/socket.h>

struct fetch;
struct fetch_call;

int fetch_new(struct ev *ev, struct fetch **ret, struct err *err);
void fetch_free(struct fetch *f); /* cancels its calls; no callback follows */
DEFINE_AUTO(fetch, fetch_free);

struct fetch_ops {
    void (*on_head)(void *arg, int status); /* headers: fetch_header() */
    /* Not called between fetch_hold(c, true) and fetch_hold(c, false). */
    void (*on_data)(void *arg, const void *data, size_t len);
    /* NULL: the response is complete; must not call fetch_free(). */
    void (*on_done)(void *arg, const struct err *err);
    /* The request body: returns bytes, 0 at its end, FETCH_LATER until fetch_resume(),
     * FETCH_STOP to give up. */
    ssize_t (*on_read)(void *arg, void *to, size_t room);
};
#define FETCH_LATER (-1)
#define FETCH_STOP (-2)
#define FETCH_UNTIL_END UINT64_MAX

struct fetch_spec {
    const char *method; /* NULL is GET */
    const char *url;
    const char *unix_socket; /* connect to it whatever the host in the URL is; NULL: TCP */
    /* PEM file of certificate authorities, instead of those of this host; NULL: those of this
     * host. */
    const char *cacert;
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* copied; NULL with on_read */
    size_t body_len;
    uint64_t upload;     /* with on_read: length in bytes, or FETCH_UNTIL_END */
    uint32_t connect_ms; /* 0: 10 s */
    uint32_t silence_ms; /* give up when no byte was sent or received for this long; 0: never */
    /* Called with each address before connecting to it, whatever name led there; false refuses
     * the address. `arg` is that of the ops. NULL: any address. */
    bool (*may_connect)(void *arg, const struct sockaddr *addr);
};

int fetch_start(struct fetch *f, const struct fetch_spec *spec, const struct fetch_ops *ops, void *arg,
                struct fetch_call **ret, struct err *err);
/* Ends the call at once, without on_done. After on_done the call is already freed. */
void fetch_cancel(struct fetch_call *c);
void fetch_hold(struct fetch_call *c, bool hold);
void fetch_resume(struct fetch_call *c); /* on_read has data again */
/* A header of the response; valid from on_head to on_done. NULL: absent. */
const char *fetch_header(struct fetch_call *c, const char *name);

/* Whether traffic to this URL cannot be read by others: https, or http that stays on this host. */
bool fetch_is_safe(const char *url);
/* Percent-encodes text for a path segment or a query value; the caller frees the result. */
char *fetch_escape(const char *text);
