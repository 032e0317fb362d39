/* http.h - what a handler sees of HTTP: a route table, a request, and ways to answer it.
 *
 * A handler is a function of a row in a static table. It is called in the loop, must not block, and may answer at once
 * or much later. The contract is short:
 *
 * 1. Every request that reaches a handler is answered exactly once: by one http_answer_*() call, or, for a streamed
 *    answer, by http_stream_end() or http_stream_break(). The request is the handler's until then and not a moment
 *    longer; all strings that it hands out go with it.
 * 2. The client may go away at any time. Answering, writing and ending are still allowed and then do nothing, so a
 *    handler that waits for something needs no special case. One that wants to stop its work sets
 * http_on_client_gone().
 * 3. No callback of a request runs inside a call that the handler makes on it: they all come from the loop.
 *
 * Before a handler is called, the server has checked the framing of the message, Host and Origin, sizes, the content
 * type that the route accepts, and the hook (server.h) has let the request pass. HEAD is answered by the GET route,
 * OPTIONS and 405 by the table, and what no route knows by 404 with the nearest route in the message. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#include <sys/types.h>

struct http_req;

/* routes */

enum http_body {
    HTTP_BODY_NONE,     /* a body is refused with 400, an empty one is not */
    HTTP_BODY_BUFFERED, /* the handler is called when all of it has come: http_body() */
    HTTP_BODY_STREAMED, /* the handler is called when the head has come, and calls http_read_body() */
};

/* A pattern is made of literal segments and {name} for one whole segment; {name*} at the end takes the rest of the
 * path, slashes included, and may be empty: "/v1/sandboxes/{id}/files/{path*}". A literal wins over a {name}. Segments
 * are matched after percent-decoding, which happens once. A request path with an empty segment, `.` or `..` is
 * answered with 400 and never rewritten; a slash at the end is one only if the pattern has it. An encoded slash (%2F)
 * inside a segment belongs to the value of {name*} or {name}, never to the structure. */
struct http_route {
    const char *method;                          /* upper case */
    const char *pattern;                         /* NULL ends a table */
    void (*fn)(struct http_req *req, void *ctx); /* ctx is what the server was given */
    enum http_body body;
    uint64_t body_max;  /* bytes; 0: the server's default for buffered bodies, no bound for streamed ones */
    const char *accept; /* content type that a body must have ("application/json"), otherwise 415; NULL: any */
    const void *data;   /* the caller's own: scopes, a class of rate limit, ... */
};

/* the request */

/* X-Request-Id if that was well-formed, else a new one. It also stands in the answer. */
const char *http_id(const struct http_req *req);
const char *http_server_assigned_id(const struct http_req *req); /* the server's own, which no client can choose */
const char *http_method(const struct http_req *req); /* "GET" for HEAD too: the body is left out by itself */
const char *http_path(const struct http_req *req);   /* as it was sent, without the query: for logs */
const struct http_route *http_route(const struct http_req *req);
const char *http_param(const struct http_req *req, const char *name);  /* of the pattern; never NULL for a name in it */
const char *http_header(const struct http_req *req, const char *name); /* NULL without it; names have no case */

/* Query values are decoded once; `+` is a space. A name given twice and a value that is no UTF-8 were refused. */
const char *http_query(const struct http_req *req, const char *name); /* NULL without it, "" without a value */
/* Takes a value out of the query, for the hook: a handler finds a query without it. It lives as long as the request. */
const char *http_query_take(struct http_req *req, const char *name);
/* Refuses names that are not in the NULL-terminated list, with the nearest that is. Ready for http_answer_err(). */
int http_query_require_known(const struct http_req *req, const char *const *names, struct err *err);
/* A number in decimal, `preset` when it is absent; -1 outside of min..max. */
int http_query_u64(const struct http_req *req, const char *name, uint64_t min, uint64_t max, uint64_t preset,
                   uint64_t *ret, struct err *err);
int http_query_bool(const struct http_req *req, const char *name, bool preset, bool *ret, struct err *err);
/* For names that the caller does not know beforehand (metadata.KEY=VALUE). */
void http_query_each(const struct http_req *req, void (*fn)(void *arg, const char *name, const char *value), void *arg);

struct http_peer {
    bool is_unix; /* over a Unix socket: uid, gid and pid are of the process that connected, told by the kernel */
    uid_t uid;
    gid_t gid;
    pid_t pid;
    bool is_tls;   /* the client came through TLS; never together with `local` */
    char addr[46]; /* otherwise: the address without its port. Forwarding headers never change it. "" when local */
};
const struct http_peer *http_peer(const struct http_req *req);

/* Something that goes with the request: freed when the request is, in the reverse order. */
void http_free_with_request(struct http_req *req, void *p, void (*free_fn)(void *p));
/* One pointer for the hook to leave what it found (who is asking); borrowed. */
void http_set_user_data(struct http_req *req, void *user);
void *http_user_data(const struct http_req *req);

/* When the client goes before the answer is complete, or wants no more of it (HEAD): at most once. While a body is read
 * it is the reader's on_fail that tells it instead. NULL unsets it. */
void http_on_client_gone(struct http_req *req, void (*fn)(void *arg), void *arg);
/* For work that is worth nothing without the client: one that closes its sending side while it waits is gone at once.
 * Without this it is not known for a minute or so whether such a client still listens, and meanwhile it is waited for.
 */
void http_require_client(struct http_req *req);
bool http_client_is_gone(const struct http_req *req);

/* the body of the request */

const char *http_body(const struct http_req *req,
                      size_t *ret_len); /* buffered; NUL-terminated, "" when there is none */
bool http_body_declared(const struct http_req *req, uint64_t *ret); /* its Content-Length; false when it is chunked */

/* The last thing that a handler does: on_fail may come before http_read_body returns, when the client is gone already.
 * on_data takes some or all of the bytes and returns how many. Less than len holds the body, and with it the client,
 * until http_resume_body(). One of on_end and on_fail comes last, on_fail also when the client is gone: it says why
 * there will be no more, and the request is still to be answered, as always. */
struct http_reader {
    size_t (*on_data)(void *arg, const void *data, size_t len);
    void (*on_end)(void *arg);
    void (*on_fail)(void *arg, const struct err *err);
};
void http_read_body(struct http_req *req, const struct http_reader *reader,
                    void *arg); /* `reader` is kept, not copied */
void http_resume_body(struct http_req *req);
/* No more of it is wanted; no callback of the reader comes after this. The connection ends with the answer. */
void http_discard_body(struct http_req *req);

/* answering */

/* For the hook of server.h: fn is called when the request is answered, with its status known and before a byte of the
 * answer goes out; also when the client is gone by then. It only looks. False holds the answer back until
 * http_release_answer(), which must come, and never from inside fn. */
void http_on_answer(struct http_req *req, bool (*fn)(struct http_req *req, void *arg), void *arg);
void http_release_answer(struct http_req *req);
int http_answer_status(const struct http_req *req);           /* of its answer; 0 before there is one */
enum err_id http_answer_error_id(const struct http_req *req); /* that it was answered with; ERR_NONE */

/* A header for the answer that is to come; the last value of a name wins. What could split the header (CR, LF, other
 * control characters) is replaced by a space, so a name from outside can be put in. */
void http_set_header(struct http_req *req, const char *name, const char *value);
void http_drop_header(struct http_req *req, const char *name); /* that was set */
/* Content-Disposition for a name from outside, with the encoding that it needs. */
void http_set_filename(struct http_req *req, const char *name);

void http_answer(struct http_req *req, int status, const char *type, const void *data, size_t len); /* copies */
void http_answer_json(struct http_req *req, int status, struct buf *body); /* takes the memory */
void http_answer_empty(struct http_req *req, int status);
/* Status and body of the error's row in errors.def, with http_id() in it:
 *     {"error":{"code","message","cause","fix","docs","requestId","details"}}
 * A 401 gets WWW-Authenticate and a 503 Retry-After, unless they are set. `details` is a JSON value in text, or NULL. A
 * system error's text goes to the log and not to the client. */
void http_answer_err(struct http_req *req, const struct err *err);
void http_answer_err_with(struct http_req *req, const struct err *err, const char *details);
void http_error_json(const struct err *err, const char *request_id, const char *docs, const char *details,
                     struct buf *out); /* the same body, for errors inside a stream */

/* A body made while it is sent. `len` is its length, or HTTP_UNTIL_END: then it is chunked. */
#define HTTP_UNTIL_END UINT64_MAX
#define HTTP_STREAM_HIGH_WATER (256 * 1024) /* bytes waiting at which a writer should stop */
void http_answer_stream(struct http_req *req, int status, const char *type, uint64_t len);
/* Copies all of it. False: HTTP_STREAM_HIGH_WATER is reached, wait for on_room. Memory is bounded only by writers who
 * do. */
bool http_stream_write(struct http_req *req, const void *data, size_t len);
size_t
http_stream_room(const struct http_req *req); /* bytes until then; HTTP_STREAM_HIGH_WATER when the client is gone */
void http_on_room(struct http_req *req, void (*fn)(void *arg), void *arg); /* each time half of it has been sent */
void http_stream_end(struct http_req *req);
void http_stream_break(struct http_req *req); /* ends it so that the client can tell that something is missing */

/* Byte ranges and conditions (Range, If-Range, If-Match, If-None-Match) for a thing of `size` bytes with an entity tag
 * (quoted; NULL for none). True: send exactly *ret_len bytes from *ret_from with status *ret_status; the headers are
 * set. False: it was answered (304, 412 or 416). Several ranges in one header are answered with the whole. */
bool http_select_range(struct http_req *req, uint64_t size, const char *etag, int *ret_status, uint64_t *ret_from,
                       uint64_t *ret_len);
/* The same for a file that stays as it is while it is sent; the descriptor is taken. */
void http_answer_file(struct http_req *req, const char *type, int fd, uint64_t size, const char *etag);
/* An entity tag for a file of the host: size and time of change. buf needs 64 bytes and is returned. */
char *http_etag(uint64_t size, uint64_t version, char buf[64]);

/* Streams of messages. NDJSON: one JSON text a line (application/x-ndjson). SSE: events (text/event-stream), with a
 * comment every 15 s in which nothing else was sent, so that both sides notice when the other is gone. Both are written
 * with the calls below and ended like any stream. */
void http_answer_ndjson(struct http_req *req, int status);
bool http_stream_ndjson(struct http_req *req,
                        const struct buf *json); /* one text without line ends, as jsonw writes it */
void http_answer_events(struct http_req *req);
bool http_stream_event(struct http_req *req, const char *id, const char *event,
                       const char *data); /* id, event may be NULL */
/* True when the client prefers `type` over JSON by its Accept header ("text/event-stream"). */
bool http_prefers_type(const struct http_req *req, const char *type);
