/* kernel_event.h - events of a language kernel, parsed from the bytes of its channel.
 *
 * A language kernel runs untrusted code, which can write to the channel itself. A line is accepted
 * only if it is one JSON object of at most KERNEL_EVENT_LINE_MAX bytes, KERNEL_EVENT_DEPTH_MAX
 * levels and KERNEL_EVENT_WEIGHT_MAX weight, of a known kind, with every field of that kind. All
 * other lines are rejected, and reading continues with the next line. Clients receive a copy that
 * is written from the known fields only. Pure: bytes in, events out. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

#include <jansson.h>

#define KERNEL_EVENT_LINE_MAX (1 * MIB) /* including the newline */
#define KERNEL_EVENT_DEPTH_MAX 32
#define KERNEL_EVENT_WEIGHT_MAX (512 * KIB) /* see json_input_within_limits() */
#define KERNEL_EVENT_ID_MAX 64

enum kernel_event_kind {
    KERNEL_EVENT_READY,
    KERNEL_EVENT_STARTED,
    KERNEL_EVENT_DISPLAY,
    KERNEL_EVENT_RESULT,
    KERNEL_EVENT_ERROR,
    KERNEL_EVENT_INPUT,
    KERNEL_EVENT_FINISHED,
    KERNEL_EVENT_COMPLETIONS,
    KERNEL_EVENT_INSPECTION,
    KERNEL_EVENT_REFUSED,
    KERNEL_EVENT_REPORT, /* of a check */
};
enum kernel_status { KERNEL_STATUS_OK, KERNEL_STATUS_ERROR, KERNEL_STATUS_INTERRUPTED };

struct kernel_event {
    enum kernel_event_kind kind;
    const char *id; /* "": not about a request */
    enum kernel_status status;
    uint64_t count;
    const char *version; /* READY */
    const char *note;    /* READY: why the start was slower than possible, for the log; "": none */
    json_t *root;        /* the strings above point into it */
};

/* Parses one line without its newline. */
int kernel_event_parse(const char *line, size_t len, struct kernel_event *ret, struct err *err);
void kernel_event_done(struct kernel_event *e);
/* Writes the event as clients see it: an object that begins with its type, without the id. */
void kernel_event_json(const struct kernel_event *e, struct buf *out);

struct kernel_event_reader {
    struct buf line;
    bool skipping_long_line; /* discarding the rest of a line that is too long */
};
/* Calls fn for each complete line; e is NULL for a rejected line. fn must not free the reader. */
typedef void kernel_event_fn(void *arg, const struct kernel_event *e);
void kernel_event_reader_feed(struct kernel_event_reader *r, const void *data, size_t len, kernel_event_fn *fn,
                              void *arg);
void kernel_event_reader_reset(struct kernel_event_reader *r);
