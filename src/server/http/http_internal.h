/* http_internal.h - what the files of this room share. libmicrohttpd is known to those that include mhd_callbacks.h;
 * the rest of the room sees requests only.
 *
 *     server.c  the daemon in our loop, drain           listen.c  sockets, who may connect, when accepting pauses
 *     conn.c    one connection: clocks, waiting, gone   request_lifecycle.c   a request from its head to its answer
 *     request_scanner.c   the first reader of all bytes           recv_shim.c   sees to it that it is
 *     head_verify.c  is the head what the standard allows    request_policy.c   may it come in: Host, Origin, route,
 * body, hook req.c     what a handler reads                    answer.c  what it answers     stream.c  bodies made
 * while sent mhd_response.c    answers turned into responses           ws_handshake.c  from a request to a WebSocket
 *     ws.c      one WebSocket; wslay is known to it alone */
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
#define BODY_DISCARD_MAX                                                                                      \
    (256 * KIB)              /* of a body that nobody wants is read, so that the connection can be used again \
                              */
#define LINGER_MAX (4 * MIB) /* is read and thrown away after an answer that came before the end of the body */
#define LINGER_MS 2000

struct http_listener {
    struct http_server *s;
    struct http_listener *next;
    struct ev_io io;
    int fd;
    char *path; /* of a Unix socket that is ours to remove; NULL otherwise */
    bool is_unix;
};

struct http_server {
    struct ev *ev;
    struct http_settings settings;
    struct router *router;
    struct MHD_Daemon *mhd;
    struct ev_io io;           /* the daemon's epoll set */
    struct ev_defer run_again; /* it has more to do in the next turn */
    struct http_listener *listeners;
    bool accept_paused;                  /* accepting */
    struct ev_timer accept_resume_timer; /* after a shortage of descriptors */
    struct http_conn *conn_being_added;  /* while it is handed to the daemon */
    struct http_conn *conns;
    struct http_conn **conns_by_fd; /* by descriptor */
    size_t nconns_by_fd;
    struct http_conn *idle_first, *idle_last; /* longest idle first */
    struct http_conn *half_closed;            /* whose clients will send no more */
    struct http_ws *websockets;               /* WebSockets; no connections any more */
    struct http_stats stats;
    uint64_t buffered_bytes; /* bytes of bodies in memory */
    char id[ID_SIZE];        /* beginning of the ids of its requests */
    bool draining;
    struct ev_timer drain_timer;
    struct ev_defer drained_defer;
    void (*on_drained)(void *arg);
    void *drain_arg;
};

/* What the clock of a connection is about. */
enum http_conn_phase {
    CONN_IDLE,   /* no request: from the last answer to the first line of the next request */
    CONN_HEAD,   /* from the first line, or from accept, to the end of the head */
    CONN_BODY,   /* bytes of a body are awaited */
    CONN_WAIT,   /* a handler has the request: no clock of ours */
    CONN_WRITE,  /* the client must take bytes */
    CONN_LINGER, /* answered in the middle of the body: the rest is thrown away for a moment */
};

struct http_conn {
    struct http_server *s;
    struct http_conn *prev, *next;
    struct http_conn *idle_prev, *idle_next;
    bool listed_idle;
    struct http_conn *half_closed_next;
    bool half_closed;
    int fd; /* the daemon's */
    struct MHD_Connection *mhd;
    struct http_peer peer;
    uint8_t addr[16]; /* what counts as one address: IPv4, or the upper half of IPv6 */
    struct http_req *req;
    enum http_conn_phase phase;
    struct ev_timer timer;
    uint64_t last_progress_ns;      /* of the last progress in this phase */
    uint64_t write_progress;        /* CONN_WRITE: what the kernel said about the client's progress at the last look */
    struct ev_io eof_watch;         /* for the end of the client */
    struct request_scanner scanner; /* of what was read */
    uint64_t requests_answered;     /* requests */
    bool input_refused;             /* what comes is not read any more */
    struct err pending_refusal;     /* and why, until the requests before have their answers */
    size_t discarded_bytes;         /* bytes after a refusal */
    bool suspended;
    bool shut_down; /* ended by us; whoever touches it next lets it go */
    bool upgraded;  /* the socket is a WebSocket's now, and none of our business */
};

struct http_header_field {
    const char *name, *value;
};

struct http_answer_header {
    struct http_answer_header *next;
    const char *value;
    char name[]; /* and the value after it */
};

struct http_req_cleanup {
    struct http_req_cleanup *next;
    void *p;
    void (*free_fn)(void *p);
};

enum http_answer_kind { ANSWER_BUFFER, ANSWER_FILE, ANSWER_STREAM, ANSWER_UPGRADE };

struct http_req {
    bool requires_client;   /* whoever sends no more is gone */
    struct http_server *s;  /* NULL once the server is freed */
    struct http_conn *conn; /* NULL once the client is gone, or all was sent */
    struct http_peer peer;
    char id[REQUEST_ID_MAX + 1];
    char own_id[ID_SIZE];
    uint64_t began_ns;

    /* the head */
    char *target, *path; /* as they came */
    char *uri_memory;    /* memory of `uri`; all three in one piece */
    char *header_memory; /* memory of `headers` */
    struct http_header_field *headers;
    size_t nheaders;
    char method[8];
    bool is_head;   /* HEAD; method says GET */
    bool is_http10; /* HTTP/1.0 */
    struct uri uri;
    struct route_match match;
    char *rest_param;  /* of {name*} */
    bool cors_allowed; /* the Origin is allowed and wants to be told so */

    /* how far it is */
    bool head_processed;     /* its head was looked at */
    bool at_head;            /* the daemon has not yet gone on to the body */
    bool waiting_for_hook;   /* on_request has it */
    bool hook_called;        /* on_request had it */
    bool hook_passed;        /* it may go to its handler */
    bool handler_called;     /* the handler has it */
    bool in_daemon_callback; /* the daemon called: what happens now it is told on return */
    bool has_answer;         /* there is an answer */
    bool answer_held;        /* and it waits for http_release_answer() */
    bool answer_complete;    /* and nobody will add to it: the request is no longer the handler's */
    bool response_queued;    /* the daemon has the answer */
    bool sent_raw;           /* it was sent around the daemon, in the middle of the body */
    bool close_after_answer; /* the connection ends with this answer */
    bool head_malformed;     /* the framing cannot be trusted */

    /* its body */
    bool has_body, is_chunked, expects_continue, body_done, body_discarded, body_end_reported;
    uint64_t content_length, body_max, body_received, body_discarded_bytes;
    struct buf body;
    const struct http_reader *reader;
    void *reader_arg;

    /* its answer */
    enum http_answer_kind answer_kind;
    int status;
    enum err_id error;
    bool (*on_answer)(struct http_req *req, void *arg);
    void *answer_arg;
    struct http_answer_header *answer_headers;
    struct buf content;
    struct http_ws *ws; /* ANSWER_UPGRADE, until it has the connection */
    int fd;
    uint64_t file_offset, answer_len, answer_sent;
    struct buf stream_buf; /* ANSWER_STREAM: bytes from out_at on are to be sent */
    size_t stream_offset;
    bool writer_paused; /* the writer was told to wait */
    bool stream_broken;
    void (*on_room)(void *arg);
    void *room_arg;
    struct ev_timer keepalive_timer; /* of an event stream */

    void (*on_gone)(void *arg);
    void *gone_arg;
    void *user_data;
    struct http_req_cleanup *cleanups;
};

/* server.c */
void http_server_schedule_run(struct http_server *s); /* the daemon has something to do in this turn */
void http_server_conn_closed(struct http_server *s);  /* a connection ended: room for another */

/* listen.c */
void http_listeners_pause(struct http_server *s, uint64_t ms); /* 0: until a connection ends */
void http_listeners_resume(struct http_server *s);
void http_listeners_close(struct http_server *s);

/* conn.c */
struct http_conn *http_conn_new(struct http_server *s, int fd);
void http_conn_free(struct http_conn *c);
void http_conn_set_phase(struct http_conn *c, enum http_conn_phase phase); /* and its clock begins anew */
void http_conn_note_progress(struct http_conn *c);
void http_conn_suspend(struct http_conn *c); /* from inside a callback of the daemon only */
void http_conn_resume(struct http_conn *c);
void http_conn_shut_down(struct http_conn *c);
void http_conn_detach_socket(
    struct http_conn *c); /* it goes on as something else: the daemon lets go of it, and we do now */
void http_conn_enable_keepalive(const struct http_conn *c); /* ask now and then whether the client is still there */
void http_conn_watch_eof(struct http_conn *c);              /* for the end of the client */
void http_conns_close_half_closed(struct http_server *s);
void http_conn_send_raw(struct http_conn *c,
                        const struct buf *text); /* what fits into the socket; then the writing side closes */

/* recv_shim.c */
void recv_shim_run_daemon(struct http_server *s); /* the daemon */
void recv_shim_add_conn(struct http_conn *c);
void recv_shim_remove_conn(struct http_conn *c);

/* head_verify.c: 0 when the head has one meaning only. Copies it into the request. */
int head_verify(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                const char *version, struct err *err);

/* request_policy.c */
int request_policy_check(struct http_req *req,
                         struct err *err);                  /* routing and all that can be refused before the body */
bool request_policy_answer_preflight(struct http_req *req); /* OPTIONS: answered */

/* request_lifecycle.c */
void request_body_timed_out(struct http_req *req);                     /* the clock of the body ran out */
void request_refuse_input(struct http_conn *c, const struct err *err); /* what comes is no request; once */
void request_answer_ready(struct http_req *req);    /* an answer came, and is not held: get it on its way */
void request_stream_has_more(struct http_req *req); /* a stream has more, or its end */

/* req.c */
struct http_req *http_req_new(struct http_server *s, struct http_conn *c, const char *target);
void http_req_free_if_done(struct http_req *req); /* frees it if neither side has it any more */
void http_req_detach_conn(struct http_req *req);  /* the connection is done with it */

/* mhd_response.c */
bool mhd_response_queue(struct http_req *req);    /* false: the connection cannot be saved */
bool mhd_response_send_raw(struct http_req *req); /* false: this kind of answer cannot go around the daemon */

/* ws_handshake.c */
struct MHD_Response *ws_handshake_response(struct http_req *req);

/* ws.c */
int ws_check_capacity(const struct http_server *s, const struct http_conn *c, struct err *err);
struct http_ws *ws_new(struct http_server *s, const struct http_conn *c, const struct ws_ops *ops, void *arg);
/* Takes the descriptor, or -1. `early` came right behind the handshake. */
void ws_attach_fd(struct http_ws *ws, int fd, const char *early, size_t n);
void ws_abort(struct http_ws *ws);        /* it will never open, or is to end at once */
void ws_close_all(struct http_server *s); /* with a farewell */
void ws_abort_all(struct http_server *s); /* without */
void ws_free_all(struct http_server *s);  /* and frees them, now */

/* answer.c */
void http_answer_upgrade(struct http_req *req, struct http_ws *ws);
void http_answer_refusal(struct http_req *req,
                         const struct err *err); /* by the server itself: before or instead of a handler */
