/* socket.h - what socket.c and attach.c share: a WebSocket of a sandbox, and one execution on it.
 *
 * The socket owns its attaches. One that waits for the store or the manager outlives it: then `so` is NULL, and it goes
 * when it is answered. */
#pragma once

#include "api/inside.h"
#include "http/ws.h"
#include "sandbox/context.h"

#define ATTACH_NAME_MAX 64u
#define ATTACH_REASON_MAX 124u

struct socket {
    struct api *api;
    struct http_ws *ws; /* NULL when it is closed */
    struct principal who;
    char owner[STORE_OWNER_MAX + 1]; /* whose executions it reaches */
    char sandbox[ID_SIZE];
    char address[46];
    char request[RECEIPT_REQUEST_MAX + 1]; /* that opened it: what it starts was asked for by that */
    struct attend *attend;
    struct api_live live;
    uint64_t seq;
    struct attach *attaches;
    size_t nattaches;
    struct ev_defer again;
    struct ev_timer status;
    uint64_t status_ms;
    struct usage_ask *asking;
    bool ended; /* the sandbox has */
    char reason[ATTACH_REASON_MAX];
};

struct attach {
    struct attach *next;
    struct api *api;
    struct socket *so; /* NULL: nobody listens any more, and it is among the orphans of the api */
    char name[ATTACH_NAME_MAX + 1];
    char id[ID_SIZE]; /* of the execution; "" until it is known */
    bool waiting;     /* for an answer that is to come to it */
    struct audit_wait recorded;
    struct launch launch;
    char context[ID_SIZE];    /* where it is to be started; "": by itself */
    struct context_call call; /* what; borrows from the launch's body */
    int fd[3];
    uint64_t offset[3], end[3]; /* of stdout, stderr, events */
    uint64_t tail;              /* begin so many bytes before the end; UINT64_MAX: no */
    struct watch *watch;
    bool started; /* execution_start was said */
    bool tty;
    bool tells;          /* events beside output: it is of a context */
    uint16_t rows, cols; /* as they were told */
    struct writer *writer;
    struct buf input; /* came, and is not taken yet */
    uint64_t acked;   /* input as it was told */
    bool input_ends, input_ended, input_told;
    struct buf last; /* its last message, without the head; there when it has ended */
    const char *clock_error;
};

/* socket.c */
void socket_begin(struct socket *so, struct jsonw *w, struct buf *out, const char *type, const struct attach *a);
bool socket_send(struct socket *so, struct jsonw *w); /* ends the object; false: wait for room */
void socket_error(struct socket *so, const char *name, const char *code, const struct err *err);
/* For the audit log; returns the number of the record, or 0. */
uint64_t socket_record(struct socket *so, const char *action, const char *outcome, const char *execution,
                       const char *details);
void socket_pump(struct socket *so); /* something changed; soon, not now */

/* attach.c */
struct attach *attach_find(const struct socket *so, const char *name);
/* Takes the launch. id: chosen by the client, or "". context: where it is to run; then call is what, not the launch. */
void attach_execute(struct socket *so, const char *name, const char *id, struct launch *launch, const char *context,
                    const struct context_call *call);
void attach_resume(struct socket *so, const char *name, const char *id, const uint64_t offset[3], uint64_t tail);
void attach_drop(struct attach *a); /* whatever it waits for */
void attach_input(struct attach *a, const char *data, size_t len, const uint64_t *offset, bool ends);
bool attach_pump(struct attach *a); /* false: there is more to send. It may be gone after this */
size_t attach_pending(const struct attach *a);
