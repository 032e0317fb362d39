/* server.h - the HTTP server of a process: where it listens, what it bounds, and who looks at each request first.
 *
 * One server has any number of listeners, TCP and Unix sockets, and lives in the loop it was given; there is no thread.
 * Strings and tables in the settings are borrowed for the server's life. */
#pragma once

#include "core/ev/ev.h"
#include "server/http/http.h"

struct http_server;
struct sockaddr;

struct http_limits {
    size_t line_max;         /* bytes of the request line; 414 */
    size_t head_max;         /* bytes of request line and headers; 431 */
    unsigned headers_max;    /* their number; 431 */
    uint64_t body_max;       /* bytes of a buffered body whose route says nothing else; 413 */
    uint64_t buffered_max;   /* bytes of all buffered bodies under way together; 503 */
    unsigned conns_max;      /* connections in all; beyond it, new ones wait in the kernel's queue */
    unsigned conns_per_addr; /* connections of one address; one more is closed at once. Unix sockets are not counted */
    uint64_t head_ms;        /* from the first byte of a request to the end of its head */
    uint64_t body_ms;        /* without a byte of the body while one is awaited */
    uint64_t idle_ms;        /* a connection without a request */
    uint64_t write_ms;       /* without a byte of the answer taken by the client */
    unsigned ws_max;         /* WebSockets in all; they are not connections any more. 503 */
    unsigned ws_per_addr;    /* of one address; 503. Unix sockets are not counted */
    uint64_t ws_message_max; /* bytes of a message; close code 1009 */
    uint64_t ws_ping_ms;     /* without a sign of life, until a ping; and from there to the end */
    unsigned ws_frames_per_second; /* frames a second; who sends more is read from more slowly */
};

/* What was done with a request, for the access log and the metrics. All strings are borrowed for the call. */
struct http_request_summary {
    const char *id, *own_id, *method, *path;
    const struct http_route *route; /* NULL when it was refused before one was found */
    bool hook_called;               /* on_request saw it; otherwise it was refused by its head alone */
    enum err_id error;              /* that it was answered with; ERR_NONE */
    const struct http_peer *peer;
    void *user_data;              /* http_set_user_data() */
    int status;                   /* 0: the client left before there was one */
    bool fully_sent;              /* the answer was sent to its end */
    uint64_t bytes_in, bytes_out; /* of bodies */
    uint64_t duration_ns;         /* from the end of the head to the end of the answer */
};

struct http_settings {
    struct http_limits limits;
    const struct http_route *const *tables; /* NULL-terminated list of tables, each ending in a row without pattern */
    /* Names under which TCP clients may address the server (DNS rebinding), without port: "cove.example.org".
     * localhost and literal addresses are always allowed, "*" allows every name. Others: 421. */
    const char *const *hosts;
    /* Web origins whose pages may call the server ("https://cove.example.org"), compared whole. A request with another
     * Origin is refused with 403, unless it is the server's own (the same as Host). NULL-terminated, like hosts. */
    const char *const *origins;
    const char *docs; /* put before the code in links of errors; NULL: those of the project */
    void *ctx;        /* for handlers and hooks */

    /* Called when the head of a request has come and its route is known, before any of its body: who is it, may they,
     * how often. True: go on. False: the hook answers, now or later, or lets it pass later with http_pass_to_handler().
     */
    bool (*on_request)(struct http_req *req, void *ctx);
    void (*on_done)(const struct http_request_summary *done, void *ctx); /* each request once, refused ones too */
};

/* The process ignores SIGPIPE from here on. */
int http_server_new(struct ev *ev, const struct http_settings *settings, struct http_server **ret, struct err *err);
/* Ends all connections. Requests not yet answered are told that the client is gone, and stay until they are answered.
 */
void http_server_free(struct http_server *s);
DEFINE_AUTO(http_server, http_server_free);

/* "127.0.0.1:8700", "[::1]:8700"; port 0 takes a free one, and *ret_port (or NULL) says which. */
int http_listen_tcp(struct http_server *s, const char *addr, uint16_t *ret_port, struct err *err);
/* A socket left by a dead server is replaced, a live one is EXISTS. The mode is set before anybody can connect; the
 * file is removed by http_server_free(). */
int http_listen_unix(struct http_server *s, const char *path, mode_t mode, struct err *err);
/* A socket that listens already (from a supervisor); taken. */
int http_listen_fd(struct http_server *s, int fd, struct err *err);

/* A connection that somebody else has accepted and taken out of TLS; the descriptor, a stream socket of any kind, is
 * taken. `from` is the client's address, IPv4 or IPv6. It counts like one of http_listen_tcp(). */
void http_add_tls_connection(struct http_server *s, int fd, const struct sockaddr *from);

/* After false from on_request: the request goes to its handler. Nothing happens when the client is gone or the hook has
 * answered. */
void http_pass_to_handler(struct http_req *req);

/* Accepts no more, closes what is idle, lets every request finish and ends its connection with the answer. WebSockets
 * are closed with 1001. on_drained comes when the last one is gone, or after max_ms, when those left are cut off. */
void http_server_drain(struct http_server *s, uint64_t max_ms, void (*on_drained)(void *arg), void *arg);

struct http_stats {
    uint64_t accepted, refused_per_addr; /* connections; refused: too many of one address */
    uint64_t requests;
    unsigned open, active; /* connections; requests between head and end of answer */
    unsigned websockets;   /* WebSockets */
};
void http_server_stats(const struct http_server *s, struct http_stats *ret);
