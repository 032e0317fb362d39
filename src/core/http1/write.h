/* write.h - writes the head of a message again after http1_read_*, for the next hop.
 *
 * Fields with a meaning for one connection only are not copied: Connection and the fields that it
 * names, Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding and Upgrade. The framing is written
 * from the parsed values, so both hops find the same end. The body is not changed: chunks are
 * passed on as they are. */
#pragma once

#include "core/base/buf.h"
#include "core/http1/head.h"

struct http1_added_field {
    const char *name;
    struct http1_text value; /* no control characters */
};

struct http1_rewrite {
    struct http1_text host;  /* value of Host; empty: the authority of an absolute target, else Host as it is */
    const char *const *drop; /* NULL-terminated names of fields to leave out; NULL: none */
    const struct http1_added_field *added; /* `nadded` fields after the others */
    size_t nadded;
    bool keep_upgrade;        /* write Upgrade and Connection: upgrade */
    bool drop_expect;         /* leave out Expect */
    bool close;               /* write Connection: close */
    bool framing_from_caller; /* leave out Content-Length and Transfer-Encoding: they are among `added` */
};

/* The target is written in origin form ("/" if it has no path, "*" in asterisk form), and the
 * version is that of `r`, so that the response to a client of HTTP/1.0 has no chunks. Not for
 * CONNECT. */
void http1_write_request(const struct http1_request *r, const struct http1_rewrite *w, struct buf *out);
/* Always HTTP/1.1. `Connection: keep-alive` is written without `close` for a client of HTTP/1.0
 * (`to_http10`). */
void http1_write_response(const struct http1_response *r, const struct http1_rewrite *w, bool to_http10,
                          struct buf *out);
