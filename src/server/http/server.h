/* server.h - the HTTP server of a process: its listeners, its limits, and the hook that admits each
 * request.
 *
 * One server has any number of listeners, TCP and Unix sockets, and runs in the given event loop
 * without threads. Strings and tables in the settings are borrowed for the server's lifetime. */
#pragma once

#include "core/ev/ev.h"
#include "server/http/http.h"

struct http_server;
struct sockaddr;

struct http_limits {
    size_t line_max;       /* bytes of the request line; 414 */
    size_t head_max;       /* bytes of request line and headers; 431 */
    unsigned headers_max;  /* number of headers; 431 */
    uint64_t body_max;     /* bytes of a buffered body if its route sets no limit; 413 */
    uint64_t buffered_max; /* bytes of all buffered bodies in progress together; 503 */
    unsigned conns_max;    /* connections; further ones wait in the backlog of the socket */
    /* Connections from one address; further ones are closed at once. Unix sockets are not
     * counted. */
    unsigned conns_per_addr;
    uint64_t head_ms;        /* ms from the first byte of a request to the end of its head */
    uint64_t body_ms;        /* ms without a byte of the body while one is expected */
    uint64_t idle_ms;        /* ms that a connection may stay without a request */
    uint64_t write_ms;       /* ms in which the client reads no byte of the answer */
    unsigned ws_max;         /* WebSockets; they do not count as connections. 503 */
    unsigned ws_per_addr;    /* WebSockets from one address; 503. Unix sockets are not counted */
    uint64_t ws_message_max; /* bytes of a message; close code 1009 */
    /* ms without a frame from the client until a ping, and from the ping until the connection is
     * closed */
    uint64_t ws_ping_ms;
    unsigned ws_frames_per_second; /* frames per second; the server reads more slowly from a faster client */
};

/* A completed request, for the access log and the metrics. All strings are borrowed for the
 * call. */
struct http_request_summary {
    const char *id, *own_id, *method, *path;
    const struct http_route *route; /* NULL if it was refused before a route was found */
    bool hook_called;               /* on_request was called; otherwise the request was refused by its head alone */
    enum err_id error;              /* error of the answer; ERR_NONE if it is not an error */
    const struct http_peer *peer;
    void *user_data;              /* http_set_user_data() */
    int status;                   /* 0: the client disconnected before there was one */
    bool fully_sent;              /* the answer was sent completely */
    uint64_t bytes_in, bytes_out; /* sizes of the bodies */
    uint64_t duration_ns;         /* from the end of the head to the end of the answer */
};

struct http_settings {
    struct http_limits limits;
    const struct http_tables *tables; /* ends in an element without tables; borrowed for http_server_new */
    /* Host names (without port, "cove.example.org") that TCP clients may use, against DNS
     * rebinding. localhost and literal addresses are always allowed; "*" allows every name. Other
     * names: 421. */
    const char *const *hosts;
    /* Web origins whose pages may call the server ("https://cove.example.org"), compared as a
     * whole. A request with another Origin is refused with 403, unless it is the server's own (the
     * same as Host). NULL-terminated, like hosts. */
    const char *const *origins;
    const char *docs; /* URL prefix of the error codes in links to the docs; NULL: the docs of the project */
    void *ctx;        /* passed to the hooks */

    /* Called when the head of a request has arrived and its route is known, before any of its body,
     * for authentication, authorization and rate limits. True: continue. False: the hook answers,
     * now or later, or lets the request pass later with http_pass_to_handler(). */
    bool (*on_request)(struct http_req *req, void *ctx);
    /* Once for each request, including refused ones. */
    void (*on_done)(const struct http_request_summary *done, void *ctx);
};

/* After this call the process ignores SIGPIPE. */
int http_server_new(struct ev *ev, const struct http_settings *settings, struct http_server **ret, struct err *err);
/* Closes all connections. Requests that are not answered yet see their client as gone, and remain
 * until they are answered. */
void http_server_free(struct http_server *s);
DEFINE_AUTO(http_server, http_server_free);

/* addr: "127.0.0.1:8700" or "[::1]:8700". Port 0 selects a free port; *ret_port receives the port
 * unless ret_port is NULL. */
int http_listen_tcp(struct http_server *s, const char *addr, uint16_t *ret_port, struct err *err);
/* Replaces the socket of a dead server; fails with EXISTS if the server is alive. The mode is set
 * before clients can connect. http_server_free() removes the file. */
int http_listen_unix(struct http_server *s, const char *path, mode_t mode, struct err *err);
/* Takes a socket that already listens (from a supervisor). */
int http_listen_fd(struct http_server *s, int fd, struct err *err);

/* Adds a connection that was accepted elsewhere and from which TLS was removed; takes the
 * descriptor, a stream socket of any kind. `from` is the client's address, IPv4 or IPv6. It counts
 * towards the limits like a connection of http_listen_tcp(). */
void http_add_tls_connection(struct http_server *s, int fd, const struct sockaddr *from);

/* After on_request returned false: passes the request to its handler. Does nothing if the client is
 * gone or the hook has answered. */
void http_pass_to_handler(struct http_req *req);

/* Accepts no more connections, closes idle ones, lets every request finish and closes its
 * connection after the answer. WebSockets are closed with 1001. on_drained is called when the last
 * connection is closed, or after max_ms, when the remaining ones are aborted. */
void http_server_drain(struct http_server *s, uint64_t max_ms, void (*on_drained)(void *arg), void *arg);

struct http_stats {
    uint64_t accepted, refused_per_addr; /* connections; refused_per_addr: too many from one address */
    uint64_t requests;
    unsigned open, active; /* open connections; requests between the head and the end of the answer */
    unsigned websockets;   /* open WebSockets */
};
void http_server_stats(const struct http_server *s, struct http_stats *ret);
