/* http.h - the interface of HTTP for handlers: a route table, a request, and functions that answer
 * it.
 *
 * A handler is the function of a row in a static table. It is called in the event loop, must not
 * block, and may answer at once or much later. The contract:
 *
 * 1. Every request that reaches a handler is answered exactly once: by one http_answer_*() call,
 *    or, for a streamed answer, by http_stream_end() or http_stream_break(). The handler owns the
 *    request until then; all strings that the request returns become invalid with it.
 * 2. The client may disconnect at any time. Answering, writing and ending are still allowed and
 *    then do nothing, so a handler that waits needs no special case. A handler that wants to stop
 *    its work calls http_on_client_gone().
 * 3. No callback of a request runs inside a call that the handler makes on it: all callbacks come
 *    from the event loop.
 *
 * Before a handler is called, the server has checked the framing of the message, Host and Origin,
 * sizes and the content type that the route accepts, and the hook (server.h) has let the request
 * pass. HEAD is answered by the GET route, OPTIONS and 405 by the table. A path without a route is
 * answered with 404 and the nearest route in the message. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#include <sys/types.h>

struct http_req;

/* routes */

enum http_body {
    HTTP_BODY_NONE,     /* a body is refused with 400; an empty body is accepted */
    HTTP_BODY_BUFFERED, /* the handler is called when the body is complete: http_body() */
    HTTP_BODY_STREAMED, /* the handler is called after the head, and calls http_read_body() */
};

/* A pattern consists of literal segments and {name} for one whole segment; {name*} at the end takes
 * the rest of the path, slashes included, and may be empty: "/v1/sandboxes/{id}/files/{path*}". A
 * literal takes precedence over a {name}. Segments are matched after percent-decoding, which
 * happens once. A request path with an empty segment, `.` or `..` is answered with 400 and never
 * rewritten; a slash at the end is accepted only if the pattern has one. An encoded slash (%2F)
 * inside a segment belongs to the value of {name*} or {name}, never to the structure. */
struct http_route {
    const char *method;                          /* upper case */
    const char *pattern;                         /* NULL ends a table */
    void (*fn)(struct http_req *req, void *ctx); /* ctx: of the list with the table: http_tables */
    enum http_body body;
    uint64_t body_max;  /* bytes; 0: the server's default for buffered bodies, unlimited for streamed ones */
    const char *accept; /* content type that a body must have ("application/json"), otherwise 415; NULL: any */
    const void *data;   /* for the owner of the table: scopes, a class of rate limit, ... */
};

/* A list of tables whose handlers get the same context. */
struct http_tables {
    const struct http_route *const *tables; /* NULL-terminated; each table ends in a row without pattern */
    void *ctx;
};

/* the request */

/* The client's X-Request-Id if it was well-formed, otherwise a new id. The response carries it
 * too. */
const char *http_id(const struct http_req *req);
const char *http_server_assigned_id(const struct http_req *req); /* the server's own id, which no client can choose */
const char *http_method(const struct http_req *req);             /* "GET" for HEAD too: the server omits the body */
const char *http_path(const struct http_req *req);               /* as sent, without the query: for logs */
const struct http_route *http_route(const struct http_req *req);
/* Parameter of the pattern; never NULL for a name in it. */
const char *http_param(const struct http_req *req, const char *name);
const char *http_header(const struct http_req *req, const char *name); /* NULL if absent; names ignore case */

/* Query values are decoded once; `+` is a space. The server has already refused duplicate names and
 * values that are not UTF-8. */
const char *http_query(const struct http_req *req, const char *name); /* NULL if absent, "" without a value */
/* Removes a value from the query, for the hook: the handler does not see it. The value lives as
 * long as the request. */
const char *http_query_take(struct http_req *req, const char *name);
/* Refuses names that are not in the NULL-terminated list and suggests the nearest one. The error is
 * ready for http_answer_err(). */
int http_query_require_known(const struct http_req *req, const char *const *names, struct err *err);
int http_query_require_none(const struct http_req *req, struct err *err);
/* A decimal number; `preset` if it is absent. Returns -1 outside of min..max. */
int http_query_u64(const struct http_req *req, const char *name, uint64_t min, uint64_t max, uint64_t preset,
                   uint64_t *ret, struct err *err);
int http_query_bool(const struct http_req *req, const char *name, bool preset, bool *ret, struct err *err);
/* For names that the caller does not know in advance (metadata.KEY=VALUE). */
void http_query_each(const struct http_req *req, void (*fn)(void *arg, const char *name, const char *value), void *arg);

struct http_peer {
    /* The client uses a Unix socket: uid, gid and pid are those of the process that connected, as
     * reported by Linux. */
    bool is_unix;
    uid_t uid;
    gid_t gid;
    pid_t pid;
    bool is_tls; /* the client uses TLS; never together with `is_unix` */
    /* Address without port, "" if is_unix. Forwarding headers never change it. */
    char addr[46];
};
const struct http_peer *http_peer(const struct http_req *req);

/* Frees p together with the request; several are freed in reverse order. */
void http_free_with_request(struct http_req *req, void *p, void (*free_fn)(void *p));
void *http_route_ctx(const struct http_req *req); /* what the handler received as ctx */
/* One pointer in which the hook stores its result, for example the principal; borrowed. */
void http_set_user_data(struct http_req *req, void *user);
void *http_user_data(const struct http_req *req);

/* Calls fn at most once, when the client disconnects before the answer is complete or needs no more
 * of it (HEAD). While a body is read, on_fail of the reader is called instead. NULL removes the
 * callback. */
void http_on_client_gone(struct http_req *req, void (*fn)(void *arg), void *arg);
/* For work that is useless without the client: a client that closes its sending side while it waits
 * is treated as disconnected at once. Without this call the server waits for such a client, because
 * it takes about a minute to find out whether it still reads. */
void http_require_client(struct http_req *req);
bool http_client_is_gone(const struct http_req *req);

/* the body of the request */

/* The buffered body, NUL-terminated; "" if there is none. */
const char *http_body(const struct http_req *req, size_t *ret_len);
/* The Content-Length; false if the body is chunked. */
bool http_body_declared(const struct http_req *req, uint64_t *ret);

/* Must be the last call of a handler: if the client is already gone, on_fail is called before
 * http_read_body() returns. on_data consumes some or all of the bytes and returns how many. A value
 * less than len pauses the body, and with it the client, until http_resume_body(). The last
 * callback is either on_end or on_fail, which also reports that the client is gone; the request
 * must still be answered. */
struct http_reader {
    size_t (*on_data)(void *arg, const void *data, size_t len);
    void (*on_end)(void *arg);
    void (*on_fail)(void *arg, const struct err *err);
};
/* `reader` is borrowed, not copied. */
void http_read_body(struct http_req *req, const struct http_reader *reader, void *arg);
void http_resume_body(struct http_req *req);
/* The handler needs no more of the body; no callback of the reader comes after this. The connection
 * closes after the answer. */
void http_discard_body(struct http_req *req);

/* answering */

/* For the hook of server.h: fn is called when the request is answered, after the status is known
 * and before a byte of the answer is sent, even if the client is gone. fn must not change the
 * answer. If it returns false, the answer is held back until http_release_answer(), which must
 * follow and must not be called from fn. */
void http_on_answer(struct http_req *req, bool (*fn)(struct http_req *req, void *arg), void *arg);
void http_release_answer(struct http_req *req);
int http_answer_status(const struct http_req *req);           /* status of the answer; 0 before there is one */
enum err_id http_answer_error_id(const struct http_req *req); /* error of the answer; ERR_NONE if it is not an error */

/* Sets a header of the answer; the last value of a name is used. Bytes that could split the header
 * (CR, LF, other control characters) are replaced by spaces, so untrusted values are safe. */
void http_set_header(struct http_req *req, const char *name, const char *value);
void http_drop_header(struct http_req *req, const char *name); /* removes a header that was set */
/* Sets Content-Disposition for an untrusted file name, with the necessary encoding. */
void http_set_filename(struct http_req *req, const char *name);

void http_answer(struct http_req *req, int status, const char *type, const void *data, size_t len); /* copies */
void http_answer_json(struct http_req *req, int status, struct buf *body); /* takes ownership of the memory */
void http_answer_empty(struct http_req *req, int status);
/* Answers with the status and body of the error's row in errors.def, with http_id() in it:
 *     {"error":{"code","message","cause","fix","docs","requestId","details"}}
 * without cause and fix if the row is GENERIC.
 * A 401 gets WWW-Authenticate and a 503 Retry-After, unless they are set. `details` is a JSON value
 * as text, or NULL. The text of a system error goes to the log and not to the client. */
void http_answer_err(struct http_req *req, const struct err *err);
void http_answer_err_with(struct http_req *req, const struct err *err, const char *details);
/* For the reply of an asynchronous call. True: err is not NULL and was sent as the answer. */
bool http_answer_if_err(struct http_req *req, const struct err *err);
/* Answers with an error that is made here: err_set() and http_answer_err(). */
void http_refuse(struct http_req *req, enum err_id id, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Writes the same body, for errors inside a stream. */
void http_error_json(const struct err *err, const char *request_id, const char *docs, const char *details,
                     struct buf *out);

/* A body that is produced while it is sent. `len` is its length, or HTTP_UNTIL_END: then it is
 * chunked. */
#define HTTP_UNTIL_END UINT64_MAX
#define HTTP_STREAM_HIGH_WATER (256 * 1024) /* queued bytes at which a writer should stop */
void http_answer_stream(struct http_req *req, int status, const char *type, uint64_t len);
/* Copies all bytes. Returns false if HTTP_STREAM_HIGH_WATER is reached: wait for on_room. Memory is
 * bounded only if writers wait. */
bool http_stream_write(struct http_req *req, const void *data, size_t len);
size_t
/* Bytes until HTTP_STREAM_HIGH_WATER is reached; HTTP_STREAM_HIGH_WATER if the client is gone. */
http_stream_room(const struct http_req *req);
/* Called each time the queue has drained to half of HTTP_STREAM_HIGH_WATER. */
void http_on_room(struct http_req *req, void (*fn)(void *arg), void *arg);
void http_stream_end(struct http_req *req);
void http_stream_break(struct http_req *req); /* ends the stream so that the client can see that data is missing */

/* Evaluates byte ranges and conditions (Range, If-Range, If-Match, If-None-Match) for a resource of
 * `size` bytes with an entity tag (quoted; NULL for none). Returns true if exactly *ret_len bytes
 * from *ret_from must be sent with status *ret_status; the headers are set. Returns false if the
 * request was answered (304, 412 or 416). A header with several ranges is answered with the whole
 * resource. */
bool http_select_range(struct http_req *req, uint64_t size, const char *etag, int *ret_status, uint64_t *ret_from,
                       uint64_t *ret_len);
/* The same for a file that does not change while it is sent; takes the descriptor. */
void http_answer_file(struct http_req *req, const char *type, int fd, uint64_t size, const char *etag);
/* Entity tag of a file of a sandbox, from files_entry.size and files_entry.version. buf needs 64
 * bytes and is returned. */
char *http_etag(uint64_t size, uint64_t version, char buf[64]);

/* Message streams. NDJSON: one JSON text per line (application/x-ndjson). SSE: events
 * (text/event-stream), with a comment after every 15 s of silence, so that both sides notice a
 * broken connection. Both are written with the calls below and ended like any stream. */
void http_answer_ndjson(struct http_req *req, int status);
/* `json` is one text without line breaks, as jsonw writes it. */
bool http_stream_ndjson(struct http_req *req, const struct buf *json);
void http_answer_events(struct http_req *req);
/* id and event may be NULL. */
bool http_stream_event(struct http_req *req, const char *id, const char *event, const char *data);
/* Returns whether the client's Accept header prefers `type` ("text/event-stream") to JSON. */
bool http_prefers_type(const struct http_req *req, const char *type);
