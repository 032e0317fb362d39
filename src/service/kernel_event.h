/* kernel_event.h - what a kernel says, read from the bytes of its channel.
 *
 * A kernel runs with the code of strangers, who can write to its channel themselves. So a line is taken only if it is
 * one JSON object of at most KERNEL_EVENT_LINE_MAX bytes and KERNEL_EVENT_DEPTH_MAX levels, with at most
 * KERNEL_EVENT_WEIGHT_MAX in it, of a kind that exists, with every field of its kind; all else is refused and the next
 * line is read. What is told of an event is written anew from the fields that are known. Pure: bytes in, events out. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

#include <jansson.h>

#define KERNEL_EVENT_LINE_MAX (1 * MIB) /* with its end */
#define KERNEL_EVENT_DEPTH_MAX 32
#define KERNEL_EVENT_WEIGHT_MAX (512 * KIB) /* json_input_within_limits() */
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
};
enum kernel_status { KERNEL_STATUS_OK, KERNEL_STATUS_ERROR, KERNEL_STATUS_INTERRUPTED };

struct kernel_event {
    enum kernel_event_kind kind;
    const char *id; /* "": of nothing that was asked */
    enum kernel_status status;
    uint64_t count;
    const char *version; /* of READY */
    const char *note;    /* of READY, for the log: why it did not start as it should; "" */
    json_t *root;        /* what the others are borrowed from */
};

/* One line without its end. */
int kernel_event_parse(const char *line, size_t len, struct kernel_event *ret, struct err *err);
void kernel_event_done(struct kernel_event *e);
/* As it is told: one object that begins with its type, without the id. */
void kernel_event_json(const struct kernel_event *e, struct buf *out);

struct kernel_event_reader {
    struct buf line;
    bool skipping_long_line; /* the rest of a line that is too long */
};
/* Calls fn for each line that is complete by now; e is NULL for one that was refused. fn must not free the reader. */
typedef void kernel_event_fn(void *arg, const struct kernel_event *e);
void kernel_event_reader_feed(struct kernel_event_reader *r, const void *data, size_t len, kernel_event_fn *fn,
                              void *arg);
void kernel_event_reader_reset(struct kernel_event_reader *r);
