/* kevent.h - what a kernel says, read from the bytes of its channel.
 *
 * A kernel runs with the code of strangers, who can write to its channel themselves. So a line is taken only if it is
 * one JSON object of at most KEVENT_LINE_MAX bytes and KEVENT_DEPTH_MAX levels, with at most KEVENT_HEAVY_MAX in it, of
 * a kind that exists, with every field of its kind; all else is refused and the next line is read. What is told of an
 * event is written anew from the fields that are known. Pure: bytes in, events out. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

#define KEVENT_LINE_MAX (1 * MIB) /* with its end */
#define KEVENT_DEPTH_MAX 32
#define KEVENT_HEAVY_MAX (512 * KIB) /* body_shape_ok() */
#define KEVENT_ID_MAX 64

enum kevent_kind {
    KEVENT_READY,
    KEVENT_STARTED,
    KEVENT_DISPLAY,
    KEVENT_RESULT,
    KEVENT_ERROR,
    KEVENT_INPUT,
    KEVENT_FINISHED,
    KEVENT_COMPLETIONS,
    KEVENT_INSPECTION,
    KEVENT_REFUSED,
};
enum kevent_status { KEVENT_OK, KEVENT_RAISED, KEVENT_INTERRUPTED };

struct kevent {
    enum kevent_kind kind;
    const char *id; /* "": of nothing that was asked */
    enum kevent_status status;
    uint64_t count;
    const char *version; /* of READY */
    const char *note;    /* of READY, for the log: why it did not start as it should; "" */
    json_t *root;        /* what the others are borrowed from */
};

/* One line without its end. */
int kevent_parse(const char *line, size_t len, struct kevent *ret, struct err *err);
void kevent_done(struct kevent *e);
/* As it is told: one object that begins with its type, without the id. */
void kevent_json(const struct kevent *e, struct buf *out);

struct kevent_reader {
    struct buf line;
    bool skips; /* the rest of a line that is too long */
};
/* Calls fn for each line that is complete by now; e is NULL for one that was refused. fn must not free the reader. */
typedef void kevent_fn(void *arg, const struct kevent *e);
void kevent_feed(struct kevent_reader *r, const void *data, size_t len, kevent_fn *fn, void *arg);
void kevent_reset(struct kevent_reader *r);
