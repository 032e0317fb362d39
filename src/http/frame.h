/* frame.h - where each request on a connection begins and ends, by the letter of the standard.
 *
 * Bytes are told to it in whatever pieces they come, before anybody else reads them. What could be read in two ways is
 * refused; nothing else is decided here, and nothing is kept but the line that has not ended. */
#pragma once

#include "http/server.h"

#include "base/buf.h"

enum frame_state {
    FRAME_LINE,      /* the request line, or empty lines before it */
    FRAME_HEADERS,   /* up to the empty line */
    FRAME_BODY,      /* `left` bytes */
    FRAME_CHUNK,     /* the header of a chunk */
    FRAME_DATA,      /* `left` bytes of a chunk */
    FRAME_DATA_END,  /* CR LF after them */
    FRAME_TRAILER,   /* up to the empty line */
    FRAME_AGREEMENT, /* after a request to speak something else: whatever comes is passed on */
    FRAME_PAST,      /* after the last request of the connection: whatever comes is dropped */
    FRAME_REFUSED,
};

struct frame {
    const struct http_limits *lim;
    enum frame_state state;
    struct buf line; /* the beginning of a line whose end has not come */
    uint64_t left;
    uint64_t ended; /* requests whose last byte has come */
    size_t head;    /* bytes of this head, or of its trailer, in whole lines */
    unsigned headers;
    bool old, last, upgrade, chunked, has_length;
    bool beyond; /* FRAME_AGREEMENT: something came */
};

void frame_init(struct frame *f, const struct http_limits *lim);
void frame_done(struct frame *f);

/* The next n bytes. *ret_n of them, from the first, may be read by the server. -1: the request that begins or goes on
 * behind those must be refused, and nothing after it can be told apart any more. */
int frame_scan(struct frame *f, const char *data, size_t n, size_t *ret_n, struct err *err);

/* The request after which anything may come was answered, and nothing was agreed on. False: something came. */
bool frame_declined(struct frame *f);

/* The grammar of the parts. */
bool frame_is_token(const char *s, size_t n);
bool frame_is_value(const char *s, size_t n);
bool frame_is_target(const char *s, size_t n);
