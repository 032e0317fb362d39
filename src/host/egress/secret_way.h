/* secret_way.h - how a secret is added to requests, and removed from responses.
 *
 * Inside a sandbox, http://NAME.secret.cove/ is a way to one host. The proxy adds a field with the
 * value on the way out, and replaces each byte of the value with '*' in what comes back, so that a
 * server that echoes its request does not reveal it. The replacement keeps the length, so
 * Content-Length stays right.
 *
 * Found in responses: the value itself; its percent-encoding; its form in JSON and in HTML; its
 * hexadecimal digits; and its base64 in both alphabets, also inside a longer text (credentials of
 * Basic). Anything else that a server makes of the value (a hash, a compressed or reversed text,
 * UTF-16) is not found: bind a secret only to a host that already knows it. Ways around the filter
 * are closed:
 *
 *     Accept-Encoding     always "identity"; a response with another Content-Encoding is refused
 *     Range, If-Range     removed, and a response 206 is refused: parts could be put together
 *     TRACE, CONNECT      refused
 *     Upgrade             removed: the bytes after it have no known form
 *     trailers            removed from chunked responses */
#pragma once

#include "core/base/buf.h"
#include "core/http1/body.h"
#include "core/http1/write.h"
#include "host/egress/secret_scrub.h"
#include "policy/egress_rules.h"

#define SECRET_WAY_VALUE_MAX 1024u /* bytes of a value */

struct secret_way;
/* Copies rule and value. Refuses a value that is empty, too long, or has control characters. */
int secret_way_new(const struct egress_secret_rule *rule, const char *value, struct secret_way **ret, struct err *err);
void secret_way_free(struct secret_way *w); /* wipes the value */
DEFINE_AUTO(secret_way, secret_way_free);
const struct egress_secret_rule *secret_way_rule(const struct secret_way *w);

/* Writes the head for the origin: Host is the bound host, the client's own field of that name is
 * removed. The caller has already decided that the rule allows the request. `close`: the connection
 * to the origin is not used again. `out` holds the value afterwards: wipe it (secret_way_wipe). */
int secret_way_write_request(const struct secret_way *w, const struct http1_request *r, bool close, struct buf *out,
                             struct err *err);
void secret_way_wipe(struct buf *b); /* overwrites and frees */

/* Checks a response and writes its head for the client. `request` is the one that it answers. A
 * Location on the bound host is written as http://NAME.secret.cove/... `close`: the client's
 * connection is not used again. */
int secret_way_write_response(const struct secret_way *w, const struct http1_request *request,
                              const struct http1_response *r, bool close, struct buf *out, struct err *err);

/* The whole body of a response: reads the framing of the origin with `body`, filters the content
 * and writes it with the framing that secret_way_write_response() announced. *ret_n bytes of `data`
 * belong to the response. */
struct secret_body {
    struct http1_body body;
    struct secret_scrub scrub;
    bool is_chunked;
};
void secret_body_init(struct secret_body *b, const struct secret_way *w, const struct http1_response *r);
void secret_body_done(struct secret_body *b);
enum http1_result secret_body_feed(struct secret_body *b, const char *data, size_t n, size_t *ret_n, struct buf *out,
                                   struct err *err);
/* The origin closed the connection: writes what was held back. -1: the body was not complete. */
int secret_body_close(struct secret_body *b, struct buf *out, struct err *err);
