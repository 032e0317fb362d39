/* fetch.h - HTTP requests to somebody else's server. The only room that knows libcurl.
 *
 * A call is started and lives in the loop: on_head once, on_data as bytes come, on_done exactly once and last. Only
 * http and https are spoken, no redirect is followed, no proxy or credential is taken from the environment, and the
 * answer's head is bounded: whoever answers is not trusted. What the caller does with the bytes is bounded by the
 * caller, who can hold a call at any time. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <sys/socket.h>

struct fetch;
struct fetch_call;

int fetch_new(struct ev *ev, struct fetch **ret, struct err *err);
void fetch_free(struct fetch *f); /* ends its calls without a word */
DEFINE_AUTO(fetch, fetch_free);

struct fetch_ops {
    void (*on_head)(void *arg, int status);                   /* headers: fetch_header() */
    void (*on_data)(void *arg, const void *data, size_t len); /* after fetch_hold() no more until it is lifted */
    void (*on_done)(void *arg, const struct err *err);        /* NULL: the answer was whole. Not the place for
                                                               * fetch_free() */
    ssize_t (*on_read)(void *arg, void *to, size_t room);     /* the body to send: bytes, 0 at its end, FETCH_LATER
                                                               * until fetch_resume(), FETCH_STOP to give up */
};
#define FETCH_LATER (-1)
#define FETCH_STOP (-2)
#define FETCH_UNTIL_END UINT64_MAX

struct fetch_spec {
    const char *method; /* NULL is GET */
    const char *url;
    const char *unix_socket;    /* connect there whatever the host in the URL is; NULL is TCP */
    const char *cacert;         /* PEM file of authorities to trust instead of this machine's; NULL: those */
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const void *body;           /* copied; with on_read instead, body is NULL */
    size_t body_len;
    uint64_t upload;     /* with on_read: its length, or FETCH_UNTIL_END */
    uint32_t connect_ms; /* 0 is 10 s */
    uint32_t silence_ms; /* give up when nothing came or went for so long; 0 is never */
    /* Asked with each address before it is connected to, whatever name led there; false refuses it. `arg` is that of
     * the ops. NULL: any. */
    bool (*may_connect)(void *arg, const struct sockaddr *addr);
};

int fetch_start(struct fetch *f, const struct fetch_spec *spec, const struct fetch_ops *ops, void *arg,
                struct fetch_call **ret, struct err *err);
/* Ends it at once, without on_done. After on_done a call is gone by itself. */
void fetch_cancel(struct fetch_call *c);
void fetch_hold(struct fetch_call *c, bool hold);
void fetch_resume(struct fetch_call *c); /* on_read has something again */
/* Of the answer, from on_head to on_done; NULL without it. */
const char *fetch_header(struct fetch_call *c, const char *name);

/* Whether what goes to this URL and comes from it stays between the two: https, or http without leaving this host. */
bool fetch_is_safe(const char *url);
/* As in a path segment or a query value; the caller frees it. */
char *fetch_escape(const char *text);
