/* body.h - finds the end of the body of one HTTP/1 message while its bytes pass, and which of them
 * are content. Stores no bytes. */
#pragma once

#include "core/http1/head.h"

#define HTTP1_CHUNK_LINE_MAX 256u    /* the size of a chunk with its extensions, which are ignored */
#define HTTP1_TRAILER_MAX (8 * KIB)  /* all trailer fields together */
#define HTTP1_CHUNK_HEAD_MAX 20      /* of http1_chunk_head */
#define HTTP1_CHUNKS_END "0\r\n\r\n" /* after the last chunk; no trailer */

enum http1_body_state {
    HTTP1_BODY_LENGTH,
    HTTP1_BODY_UNTIL_CLOSE,
    HTTP1_BODY_CHUNK_SIZE,
    HTTP1_BODY_CHUNK_EXTENSION,
    HTTP1_BODY_CHUNK_SIZE_LF,
    HTTP1_BODY_CHUNK_DATA,
    HTTP1_BODY_CHUNK_END_CR,
    HTTP1_BODY_CHUNK_END_LF,
    HTTP1_BODY_TRAILER_START,
    HTTP1_BODY_TRAILER_NAME,
    HTTP1_BODY_TRAILER_VALUE,
    HTTP1_BODY_TRAILER_LF,
    HTTP1_BODY_LAST_LF,
    HTTP1_BODY_ENDED,
    HTTP1_BODY_REFUSED,
};

struct http1_body {
    enum http1_body_state state;
    uint64_t left;       /* bytes of the body or of the chunk that have not passed */
    uint32_t line_bytes; /* of the size line or of the trailer so far */
    bool has_digit;      /* CHUNK_SIZE: a digit was read */
};

void http1_body_init(struct http1_body *b, enum http1_framing framing, uint64_t length);

/* Passes the next n bytes. *ret_n of them belong to the message (all of them, unless it ends here).
 * HTTP1_DONE: the message has ended; also with n 0 if it has no body. */
enum http1_result http1_body_pass(struct http1_body *b, const char *data, size_t n, size_t *ret_n, struct err *err);

/* The same, but stops after each piece of content, so that the caller can see it without its
 * framing: *ret_content points into `data`, and may be empty. Call again with the rest while the
 * result is HTTP1_MORE and *ret_n is less than n. */
enum http1_result http1_body_read(struct http1_body *b, const char *data, size_t n, size_t *ret_n,
                                  struct http1_text *ret_content, struct err *err);

/* Whether a connection that ends now ends the message correctly. */
bool http1_body_may_close(const struct http1_body *b);

/* Writes the line before a chunk of n > 0 bytes and returns its length. CR LF follows the chunk. */
size_t http1_chunk_head(size_t n, char ret[HTTP1_CHUNK_HEAD_MAX]);
