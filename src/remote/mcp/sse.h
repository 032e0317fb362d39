/* sse.h - reads a stream of server-sent events (text/event-stream) in pieces of any size.
 *
 * Lines end with LF, CR or CRLF, one byte order mark at the start is skipped, and comments and
 * unknown fields are ignored. An event that is incomplete at the end of the stream is dropped
 * with the reader. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define SSE_ID_MAX 1024u  /* bytes of an id */
#define SSE_TYPE_MAX 128u /* bytes of an event's name */

struct sse;

struct sse_event {    /* borrowed for the call */
    const char *type; /* "message" if the event has no name */
    const char *data; /* its lines, joined by line feeds; NUL-terminated, and may contain NULs */
    size_t len;
    const char *id; /* the last id of the stream so far, also of an earlier event; "": none */
};

/* Returns false to stop: the rest of the stream is ignored. Must not free the reader. Events
 * without data are not reported; their id and retry count all the same. */
typedef bool sse_event_fn(void *arg, const struct sse_event *e);

struct sse *sse_new(size_t event_max, sse_event_fn *on_event, void *arg);
void sse_free(struct sse *s);
DEFINE_AUTO(sse, sse_free);

/* Calls on_event for each event that these bytes complete. -1: an event is larger than
 * event_max, or its id or name is too long; the stream cannot be continued. */
int sse_feed(struct sse *s, const void *data, size_t len, struct err *err);

/* For a reconnection: the id of the last complete event, "" if none, and the time to wait before.
 * false: the stream named no time. */
const char *sse_last_id(const struct sse *s);
bool sse_retry_ms(const struct sse *s, uint32_t *ret);
