/* inside.h - what the files of this room share. libmicrohttpd is known to those that include daemon.h;
 * the rest of the room sees requests only.
 *
 *     server.c  the daemon in our loop, drain           listen.c  sockets, who may connect, when accepting pauses
 *     conn.c    one connection: clocks, waiting, gone   serve.c   a request from its head to its answer
 *     frame.c   the first reader of all bytes           guard.c   sees to it that it is
 *     screen.c  is the head what the standard allows    check.c   may it come in: Host, Origin, route, body, hook
 *     req.c     what a handler reads                    answer.c  what it answers     stream.c  bodies made while sent
 *     send.c    answers turned into responses           handshake.c  from a request to a WebSocket
 *     ws.c      one WebSocket; wslay is known to it alone */
#pragma once

#include "http/frame.h"
#include "http/route.h"
#include "http/server.h"
#include "http/uri.h"
#include "http/ws.h"

#include "base/id.h"

#include <netinet/in.h>

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;

#define REQUEST_ID_MAX 64
#define DISCARD_MAX (256 * KIB) /* of a body that nobody wants is read, so that the connection can be used again */
#define LINGER_MAX (4 * MIB)    /* is read and thrown away after an answer that came before the end of the body */
#define LINGER_MS 2000

struct listener {
    struct http_server *s;
    struct listener *next;
    struct ev_io io;
    int fd;
    char *path; /* of a Unix socket that is ours to remove; NULL otherwise */
    bool local;
};

struct http_server {
    struct ev *ev;
    struct http_settings set;
    struct router *router;
    struct MHD_Daemon *mhd;
    struct ev_io io;       /* the daemon's epoll set */
    struct ev_defer again; /* it has more to do in the next turn */
    struct listener *listeners;
    bool paused;             /* accepting */
    struct ev_timer unpause; /* after a shortage of descriptors */
    struct conn *adding;     /* while it is handed to the daemon */
    struct conn *conns;
    struct conn **guarded; /* by descriptor */
    size_t nguarded;
    struct conn *idle_first, *idle_last; /* longest idle first */
    struct conn *ended;                  /* whose clients will send no more */
    struct http_ws *sockets;             /* WebSockets; no connections any more */
    struct http_stats stats;
    uint64_t buffered; /* bytes of bodies in memory */
    char id[ID_SIZE];  /* beginning of the ids of its requests */
    bool draining;
    struct ev_timer drain_end;
    struct ev_defer drained;
    void (*on_drained)(void *arg);
    void *drain_arg;
};

/* What the clock of a connection is about. */
enum conn_phase {
    CONN_IDLE,   /* no request: from the last answer to the first line of the next request */
    CONN_HEAD,   /* from the first line, or from accept, to the end of the head */
    CONN_BODY,   /* bytes of a body are awaited */
    CONN_WAIT,   /* a handler has the request: no clock of ours */
    CONN_WRITE,  /* the client must take bytes */
    CONN_LINGER, /* answered in the middle of the body: the rest is thrown away for a moment */
};

struct conn {
    struct http_server *s;
    struct conn *prev, *next;
    struct conn *idle_prev, *idle_next;
    bool listed_idle;
    struct conn *ended_next;
    bool ended;
    int fd; /* the daemon's */
    struct MHD_Connection *mhd;
    struct http_peer peer;
    uint8_t addr[16]; /* what counts as one address: IPv4, or the upper half of IPv6 */
    struct http_req *req;
    enum conn_phase phase;
    struct ev_timer timer;
    uint64_t since;     /* of the last progress in this phase */
    uint64_t acked;     /* CONN_WRITE: what the kernel said about the client's progress at the last look */
    struct ev_io watch; /* for the end of the client */
    struct frame frame; /* of what was read */
    uint64_t answered;  /* requests */
    bool refused;       /* what comes is not read any more */
    struct err refusal; /* and why, until the requests before have their answers */
    size_t thrown_away; /* bytes after a refusal */
    bool suspended;
    bool cut;      /* ended by us; whoever touches it next lets it go */
    bool upgraded; /* the socket is a WebSocket's now, and none of our business */
};

struct header {
    const char *name, *value;
};

struct out_header {
    struct out_header *next;
    const char *value;
    char name[]; /* and the value after it */
};

struct keep {
    struct keep *next;
    void *p;
    void (*free_fn)(void *p);
};

enum answer_kind { ANSWER_BUFFER, ANSWER_FILE, ANSWER_STREAM, ANSWER_UPGRADE };

struct http_req {
    bool needs_client;     /* whoever sends no more is gone */
    struct http_server *s; /* NULL once the server is freed */
    struct conn *conn;     /* NULL once the client is gone, or all was sent */
    struct http_peer peer;
    char id[REQUEST_ID_MAX + 1];
    char own_id[ID_SIZE];
    uint64_t began;

    /* the head */
    char *target, *path; /* as they came */
    char *decoded;       /* memory of `uri`; all three in one piece */
    char *head;          /* memory of `headers` */
    struct header *headers;
    size_t nheaders;
    char method[8];
    bool is_head; /* HEAD; method says GET */
    bool old;     /* HTTP/1.0 */
    struct uri uri;
    struct route_match match;
    char *rest; /* of {name*} */
    bool cors;  /* the Origin is allowed and wants to be told so */

    /* how far it is */
    bool begun;      /* its head was looked at */
    bool in_head;    /* the daemon has not yet gone on to the body */
    bool waits_hook; /* on_request has it */
    bool asked;      /* on_request had it */
    bool passed;     /* it may go to its handler */
    bool dispatched; /* the handler has it */
    bool in_call;    /* the daemon called: what happens now it is told on return */
    bool answered;   /* there is an answer */
    bool held;       /* and it waits for http_release() */
    bool finished;   /* and nobody will add to it: the request is no longer the handler's */
    bool queued;     /* the daemon has the answer */
    bool raw;        /* it was sent around the daemon, in the middle of the body */
    bool close;      /* the connection ends with this answer */
    bool head_bad;   /* the framing cannot be trusted */

    /* its body */
    bool has_body, chunked, expects, body_done, body_dropped, body_told;
    uint64_t declared, body_max, received, discarded;
    struct buf body;
    const struct http_reader *reader;
    void *reader_arg;

    /* its answer */
    enum answer_kind kind;
    int status;
    enum err_id error;
    bool (*on_answer)(struct http_req *req, void *arg);
    void *answer_arg;
    struct out_header *out_headers;
    struct buf content;
    struct http_ws *ws; /* ANSWER_UPGRADE, until it has the connection */
    int fd;
    uint64_t from, len, sent;
    struct buf out; /* ANSWER_STREAM: bytes from out_at on are to be sent */
    size_t out_at;
    bool full; /* the writer was told to wait */
    bool broken;
    void (*on_room)(void *arg);
    void *room_arg;
    struct ev_timer beat; /* of an event stream */

    void (*on_gone)(void *arg);
    void *gone_arg;
    void *user;
    struct keep *keeps;
};

/* server.c */
void server_kick(struct http_server *s);      /* the daemon has something to do in this turn */
void server_conn_gone(struct http_server *s); /* a connection ended: room for another */

/* listen.c */
void listen_pause(struct http_server *s, uint64_t ms); /* 0: until a connection ends */
void listen_resume(struct http_server *s);
void listen_close(struct http_server *s);

/* conn.c */
struct conn *conn_new(struct http_server *s, int fd);
void conn_free(struct conn *c);
void conn_phase(struct conn *c, enum conn_phase phase); /* and its clock begins anew */
void conn_progress(struct conn *c);
void conn_suspend(struct conn *c); /* from inside a callback of the daemon only */
void conn_resume(struct conn *c);
void conn_cut(struct conn *c);
void conn_leave(struct conn *c);       /* it goes on as something else: the daemon lets go of it, and we do now */
void conn_probe(const struct conn *c); /* ask now and then whether the client is still there */
void conn_watch(struct conn *c);       /* for the end of the client */
void conn_look_for_ends(struct http_server *s);
void conn_send_raw(struct conn *c,
                   const struct buf *text); /* what fits into the socket; then the writing side closes */

/* guard.c */
void guard_run(struct http_server *s); /* the daemon */
void guard_add(struct conn *c);
void guard_del(struct conn *c);

/* screen.c: 0 when the head has one meaning only. Copies it into the request. */
int screen_head(struct http_req *req, struct MHD_Connection *mhd, const char *url, const char *method,
                const char *version, struct err *err);

/* check.c */
int check_request(struct http_req *req, struct err *err); /* routing and all that can be refused before the body */
bool check_preflight(struct http_req *req);               /* OPTIONS: answered */

/* serve.c */
void serve_body_late(struct http_req *req);               /* the clock of the body ran out */
void serve_refuse(struct conn *c, const struct err *err); /* what comes is no request; once */
void serve_answered(struct http_req *req);                /* an answer came, and is not held: get it on its way */
void serve_more(struct http_req *req);                    /* a stream has more, or its end */

/* req.c */
struct http_req *req_new(struct http_server *s, struct conn *c, const char *target);
void req_release(struct http_req *req); /* frees it if neither side has it any more */
void req_gone(struct http_req *req);    /* the connection is done with it */

/* send.c */
bool send_queue(struct http_req *req); /* false: the connection cannot be saved */
bool send_raw(struct http_req *req);   /* false: this kind of answer cannot go around the daemon */

/* handshake.c */
struct MHD_Response *handshake_response(struct http_req *req);

/* ws.c */
int ws_room_for_one(const struct http_server *s, const struct conn *c, struct err *err);
struct http_ws *ws_new(struct http_server *s, const struct conn *c, const struct ws_ops *ops, void *arg);
/* Takes the descriptor, or -1. `early` came right behind the handshake. */
void ws_opened(struct http_ws *ws, int fd, const char *early, size_t n);
void ws_lost(struct http_ws *ws);         /* it will never open, or is to end at once */
void ws_close_all(struct http_server *s); /* with a farewell */
void ws_cut_all(struct http_server *s);   /* without */
void ws_end_all(struct http_server *s);   /* and frees them, now */

/* answer.c */
void answer_ws(struct http_req *req, struct http_ws *ws);
void answer_error(struct http_req *req,
                  const struct err *err); /* by the server itself: before or instead of a handler */
