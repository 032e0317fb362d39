/* request_scanner.h - where each request on a connection begins and ends, by the letter of the standard.
 *
 * Bytes are told to it in whatever pieces they come, before anybody else reads them. What could be read in two ways is
 * refused; nothing else is decided here, and nothing is kept but the line that has not ended. */
#pragma once

#include "server/http/server.h"

#include "core/base/buf.h"

enum request_scanner_state {
    SCAN_REQUEST_LINE,    /* the request line, or empty lines before it */
    SCAN_HEADERS,         /* up to the empty line */
    SCAN_BODY,            /* `bytes_left` bytes */
    SCAN_CHUNK_HEADER,    /* the header of a chunk */
    SCAN_CHUNK_DATA,      /* `bytes_left` bytes of a chunk */
    SCAN_CHUNK_END,       /* CR LF after them */
    SCAN_TRAILER,         /* up to the empty line */
    SCAN_UPGRADE_PENDING, /* after a request to speak something else: whatever comes is passed on */
    SCAN_AFTER_LAST,      /* after the last request of the connection: whatever comes is dropped */
    SCAN_REFUSED,
};

struct request_scanner {
    const struct http_limits *lim;
    enum request_scanner_state state;
    struct buf partial_line; /* the beginning of a line whose end has not come */
    uint64_t bytes_left;
    uint64_t requests_ended; /* requests whose last byte has come */
    size_t head_bytes;       /* bytes of this head, or of its trailer, in whole lines */
    unsigned nheaders;
    bool is_http10, is_last_request, upgrade_requested, is_chunked, has_length;
    bool trailing_bytes; /* SCAN_UPGRADE_PENDING: something came */
};

void request_scanner_init(struct request_scanner *f, const struct http_limits *lim);
void request_scanner_done(struct request_scanner *f);

/* The next n bytes. *ret_n of them, from the first, may be read by the server. -1: the request that begins or goes on
 * behind those must be refused, and nothing after it can be told apart any more. */
int request_scanner_scan(struct request_scanner *f, const char *data, size_t n, size_t *ret_n, struct err *err);

/* The request after which anything may come was answered, and nothing was agreed on. False: something came. */
bool request_scanner_upgrade_declined(struct request_scanner *f);

/* The grammar of the parts. */
bool request_scanner_is_token(const char *s, size_t n);
bool request_scanner_is_value(const char *s, size_t n);
bool request_scanner_is_target(const char *s, size_t n);
