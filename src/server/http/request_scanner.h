/* request_scanner.h - finds where each request on a connection begins and ends, strictly by the
 * standard.
 *
 * The scanner receives all bytes, in pieces of any size, before any other code reads them. Input
 * that could be read in two ways is refused. The scanner decides nothing else, and stores only the
 * line that has not ended. */
#pragma once

#include "server/http/server.h"

#include "core/base/buf.h"

enum request_scanner_state {
    SCAN_REQUEST_LINE,    /* the request line, or empty lines before it */
    SCAN_HEADERS,         /* up to the empty line */
    SCAN_BODY,            /* `bytes_left` bytes */
    SCAN_CHUNK_HEADER,    /* the size line of a chunk */
    SCAN_CHUNK_DATA,      /* `bytes_left` bytes of a chunk */
    SCAN_CHUNK_END,       /* CR LF after the data of a chunk */
    SCAN_TRAILER,         /* up to the empty line */
    SCAN_UPGRADE_PENDING, /* after a request for a protocol upgrade: all bytes are passed on */
    SCAN_AFTER_LAST,      /* after the last request of the connection: all bytes are dropped */
    SCAN_REFUSED,
};

struct request_scanner {
    const struct http_limits *lim;
    enum request_scanner_state state;
    struct buf partial_line; /* beginning of a line that is not complete */
    uint64_t bytes_left;
    uint64_t requests_ended; /* number of requests that are complete */
    size_t head_bytes;       /* bytes of complete lines in this head, or in its trailer */
    unsigned nheaders;
    bool is_http10, is_last_request, upgrade_requested, is_chunked, has_length;
    bool trailing_bytes; /* SCAN_UPGRADE_PENDING: bytes have arrived after the request */
};

void request_scanner_init(struct request_scanner *f, const struct http_limits *lim);
void request_scanner_done(struct request_scanner *f);

/* Scans the next n bytes. The server may read the first *ret_n of them. Returns -1 if the request
 * that begins or continues after those bytes must be refused; nothing after it can be parsed any
 * more. */
int request_scanner_scan(struct request_scanner *f, const char *data, size_t n, size_t *ret_n, struct err *err);

/* Call after a request for an upgrade was answered without one. Returns false if bytes have arrived
 * after the request. */
bool request_scanner_upgrade_declined(struct request_scanner *f);

/* The grammar of tokens, field values and request targets. */
bool request_scanner_is_token(const char *s, size_t n);
bool request_scanner_is_value(const char *s, size_t n);
bool request_scanner_is_target(const char *s, size_t n);
