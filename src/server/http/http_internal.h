/* http_internal.h - internal interface of the HTTP server. Only files that include mhd_callbacks.h
 * know libmicrohttpd (MHD, "the daemon"); all others see only requests.
 *
 * server.c             runs the daemon in the event loop; drain
 * listen.c             listening sockets, admission of connections, pauses of accept
 * conn.c               one connection: timeouts, suspension, disconnected clients
 * request_lifecycle.c  one request from its head to its answer
 * recv_shim.c          passes all received bytes through the scanner before the daemon reads them
 * request_scanner.c    finds the boundaries of requests in the received bytes
 * head_verify.c        checks that the head of a request conforms to the standard
 * request_policy.c     admission of a request: Host, Origin, route, body, hook
 * req.c                the parts of a request that handlers read
 * answer.c             the answers that handlers give
 * stream.c             bodies that are produced while they are sent
 * mhd_response.c       converts answers to responses of libmicrohttpd
 * ws_handshake.c       upgrades a request to a WebSocket
 * ws.c                 one WebSocket; the only file that knows wslay */
#pragma once

#include "server/http/request_scanner.h"
#include "server/http/route.h"
#include "server/http/server.h"
#include "server/http/uri.h"
#include "server/http/ws.h"

#include "core/base/id.h"

#include <netinet/in.h>

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;

#define REQUEST_ID_MAX 64
/* Bytes of an unwanted body that are read and discarded so that the connection can be reused. */
#define BODY_DISCARD_MAX (256 * KIB)
/* Bytes that are read and discarded after an answer that was sent before the end of the body. */
#define LINGER_MAX (4 * MIB)
#define LINGER_MS 2000

struct http_listener {
    struct http_server *s;
    struct http_listener *next;
    struct ev_io io;
    int fd;
    char *path; /* path of a Unix socket that the server must remove; NULL otherwise */
    bool is_unix;
};

struct http_server {
    struct ev *ev;
    struct http_settings settings;
    struct router *router;
    struct MHD_Daemon *mhd;
    struct ev_io io;           /* the daemon's epoll descriptor */
    struct ev_defer run_again; /* runs the daemon again in the next iteration of the loop */
    struct http_listener *listeners;
    bool accept_paused;                  /* no connection is accepted */
    struct ev_timer accept_resume_timer; /* set after a shortage of descriptors */
    struct http_conn *conn_being_added;  /* only while it is passed to the daemon */
    struct http_conn *conns;
    struct http_conn **conns_by_fd; /* index: descriptor */
    size_t nconns_by_fd;
    struct http_conn *idle_first, *idle_last; /* the longest idle connection is first */
    struct http_conn *half_closed;            /* connections whose clients have closed their sending side */
    struct http_ws *websockets;               /* WebSockets; they no longer count as connections */
    struct http_stats stats;
    uint64_t buffered_bytes; /* bytes of buffered bodies in memory */
    char id[ID_SIZE];        /* prefix of the ids of its requests */
    bool draining;
    struct ev_timer drain_timer;
    struct ev_defer drained_defer;
    void (*on_drained)(void *arg);
    void *drain_arg;
};

/* The part of a request that the timer of a connection limits. */
enum http_conn_phase {
    CONN_IDLE,   /* no request: from the last answer to the request line of the next request */
    CONN_HEAD,   /* from the request line, or from accept, to the end of the head */
    CONN_BODY,   /* waits for bytes of a body */
    CONN_WAIT,   /* a handler has the request: no timeout */
    CONN_WRITE,  /* waits until the client reads */
    CONN_LINGER, /* answered in the middle of the body: the rest is discarded for LINGER_MS */
};

struct http_conn {
    struct http_server *s;
    struct http_conn *prev, *next;
    struct http_conn *idle_prev, *idle_next;
    bool listed_idle;
    struct http_conn *half_closed_next;
    bool half_closed;
    int fd; /* owned by the daemon */
    struct MHD_Connection *mhd;
    struct http_peer peer;
    uint8_t addr[16]; /* unit of the limit per address: the IPv4 address, or the upper half of the IPv6 address */
    struct http_req *req;
    enum http_conn_phase phase;
    struct ev_timer timer;
    uint64_t last_progress_ns;      /* time of the last progress in this phase */
    uint64_t write_progress;        /* CONN_WRITE: the client's progress that Linux reported at the last check */
    struct ev_io eof_watch;         /* detects that the client has closed its side */
    struct request_scanner scanner; /* state of the scanner over the received bytes */
    uint64_t requests_answered;     /* number of requests */
    bool input_refused;             /* received bytes are no longer read */
    struct err pending_refusal;     /* why the input was refused, until the earlier requests are answered */
    size_t discarded_bytes;         /* bytes discarded after a refusal */
    bool suspended;
    bool shut_down; /* closed by the server; the next function that uses the connection frees it */
    bool upgraded;  /* the socket belongs to a WebSocket now */
};

struct http_header_field {
    const char *name, *value;
};

struct http_answer_header {
    struct http_answer_header *next;
    const char *value;
    char name[]; /* followed by the value */
};

struct http_req_cleanup {
    struct http_req_cleanup *next;
    void *p;
    void (*free_fn)(void *p);
};

enum http_answer_kind { ANSWER_BUFFER, ANSWER_FILE, ANSWER_STREAM, ANSWER_UPGRADE };

struct http_req {
    bool requires_client;   /* a client that has closed its sending side counts as gone */
    struct http_server *s;  /* NULL after the server was freed */
    struct http_conn *conn; /* NULL after the client is gone or everything was sent */
    struct http_peer peer;
    char id[REQUEST_ID_MAX + 1];
    char own_id[ID_SIZE];
    uint64_t began_ns;

    /* the head */
    char *target, *path; /* as received */
    char *uri_memory;    /* memory of target, path and `uri`, in one block */
    char *header_memory; /* memory of `headers` */
    struct http_header_field *headers;
    size_t nheaders;
    char method[8];
    bool is_head;   /* HEAD; `method` is GET */
    bool is_http10; /* HTTP/1.0 */
    struct uri uri;
    struct route_match match;
    char *rest_param;  /* value of {name*} */
    bool cors_allowed; /* the Origin is allowed, and the response must say so */

    /* progress */
    bool head_processed;     /* the head was checked */
    bool at_head;            /* the daemon has not yet continued to the body */
    bool waiting_for_hook;   /* on_request has not decided yet */
    bool hook_called;        /* on_request was called */
    bool hook_passed;        /* on_request has let the request pass */
    bool handler_called;     /* the handler was called */
    bool in_daemon_callback; /* inside a callback of the daemon: results take effect when it returns */
    bool has_answer;         /* there is an answer */
    bool answer_held;        /* the answer waits for http_release_answer() */
    bool answer_complete;    /* nothing will be added to the answer: the handler no longer owns the request */
    bool response_queued;    /* the daemon has the answer */
    bool sent_raw;           /* the answer was sent without the daemon, in the middle of the body */
    bool close_after_answer; /* the connection closes after this answer */
    bool head_malformed;     /* the framing cannot be trusted */

    /* the body of the request */
    bool has_body, is_chunked, expects_continue, body_done, body_discarded, body_end_reported;
    uint64_t content_length, body_max, body_received, body_discarded_bytes;
    struct buf body;
    const struct http_reader *reader;
    void *reader_arg;

    /* the answer */
    enum http_answer_kind answer_kind;
    int status;
    enum err_id error;
    bool (*on_answer)(struct http_req *req, void *arg);
    void *answer_arg;
    struct http_answer_header *answer_headers;
    struct buf content;
    struct http_ws *ws; /* ANSWER_UPGRADE: the WebSocket, until it has the connection */
    int fd;
    uint64_t file_offset, answer_len, answer_sent;
    struct buf stream_buf; /* ANSWER_STREAM: bytes from stream_offset on are to be sent */
    size_t stream_offset;
    bool writer_paused; /* http_stream_write() has returned false */
    bool stream_broken;
    void (*on_room)(void *arg);
    void *room_arg;
    struct ev_timer keepalive_timer; /* for an event stream */

    void (*on_gone)(void *arg);
    void *gone_arg;
    void *user_data;
    struct http_req_cleanup *cleanups;
};

/* server.c */
void http_server_schedule_run(struct http_server *s); /* runs the daemon in this iteration of the loop */
void http_server_conn_closed(struct http_server *s);  /* a connection has closed, so another can be accepted */

/* listen.c */
void http_listeners_pause(struct http_server *s, uint64_t ms); /* 0: until a connection closes */
void http_listeners_resume(struct http_server *s);
void http_listeners_close(struct http_server *s);

/* conn.c */
struct http_conn *http_conn_new(struct http_server *s, int fd);
void http_conn_free(struct http_conn *c);
void http_conn_set_phase(struct http_conn *c, enum http_conn_phase phase); /* also restarts its timer */
void http_conn_note_progress(struct http_conn *c);
void http_conn_suspend(struct http_conn *c); /* only from inside a callback of the daemon */
void http_conn_resume(struct http_conn *c);
void http_conn_shut_down(struct http_conn *c);
/* The socket changes its protocol: the daemon and the connection both release it. */
void http_conn_detach_socket(struct http_conn *c);
/* TCP keep-alive, to find out whether the client is still there */
void http_conn_enable_keepalive(const struct http_conn *c);
void http_conn_watch_eof(struct http_conn *c); /* detects that the client has closed its side */
void http_conns_close_half_closed(struct http_server *s);
/* Sends the part that fits into the socket buffer, then closes the sending side. */
void http_conn_send_raw(struct http_conn *c, const struct buf *text);

/* recv_shim.c */
void recv_shim_run_daemon(struct http_server *s);
void recv_shim_add_conn(struct http_conn *c);
void recv_shim_remove_conn(struct http_conn *c);

/* head_verify.c: returns 0 if the head is unambiguous, and copies it into the request. */
int head_verify(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                const char *version, struct err *err);

/* request_policy.c */
/* Routing, and all checks that are possible before the body. */
int request_policy_check(struct http_req *req, struct err *err);
bool request_policy_answer_preflight(struct http_req *req); /* OPTIONS: answers the request */

/* request_lifecycle.c */
void request_body_timed_out(struct http_req *req); /* the timeout of the body expired */
/* The input is not a valid request; called once per connection. */
void request_refuse_input(struct http_conn *c, const struct err *err);
void request_answer_ready(struct http_req *req);    /* an answer exists and is not held back: send it */
void request_stream_has_more(struct http_req *req); /* a stream has more bytes, or has ended */

/* req.c */
struct http_req *http_req_new(struct http_server *s, struct http_conn *c, const char *target);
void http_req_free_if_done(struct http_req *req); /* frees it if neither the handler nor the connection uses it */
void http_req_detach_conn(struct http_req *req);  /* the connection no longer uses it */

/* mhd_response.c */
bool mhd_response_queue(struct http_req *req);    /* false: the connection must be closed */
bool mhd_response_send_raw(struct http_req *req); /* false: this kind of answer cannot be sent without the daemon */

/* ws_handshake.c */
struct MHD_Response *ws_handshake_response(struct http_req *req);

/* ws.c */
int ws_check_capacity(const struct http_server *s, const struct http_conn *c, struct err *err);
struct http_ws *ws_new(struct http_server *s, const struct http_conn *c, const struct ws_ops *ops, void *arg);
/* Takes the descriptor, or -1. `early` are the bytes that arrived directly after the handshake. */
void ws_attach_fd(struct http_ws *ws, int fd, const char *early, size_t n);
void ws_abort(struct http_ws *ws);        /* it will never open, or must end at once */
void ws_close_all(struct http_server *s); /* with a close frame */
void ws_abort_all(struct http_server *s); /* without a close frame */
void ws_free_all(struct http_server *s);  /* frees them immediately */

/* answer.c */
void http_answer_upgrade(struct http_req *req, struct http_ws *ws);
/* An answer of the server itself: before or instead of a handler. */
void http_answer_refusal(struct http_req *req, const struct err *err);
