/* sandbox_socket.h - what sandbox_socket.c and socket_execution.c share: a WebSocket of a sandbox, and one execution on
 * it.
 *
 * The socket owns its attaches. One that waits for the store or the manager outlives it: then `so` is NULL, and it goes
 * when it is answered. */
#pragma once

#include "server/api/api_internal.h"
#include "server/http/ws.h"
#include "service/context.h"

#define SOCKET_EXECUTION_NAME_MAX 64u
#define SOCKET_END_REASON_MAX 124u

struct sandbox_socket {
    struct api *api;
    struct http_ws *ws; /* NULL when it is closed */
    struct principal principal;
    char owner[STORE_OWNER_MAX + 1]; /* whose executions it reaches */
    char sandbox[ID_SIZE];
    char address[46];
    char request_id[RECEIPT_REQUEST_MAX + 1]; /* that opened it: what it starts was asked for by that */
    struct sandbox_subscription *subscription;
    struct open_stream open_stream;
    uint64_t seq;
    struct socket_execution *executions;
    size_t nexecutions;
    struct ev_defer pump_defer;
    struct ev_timer status_timer;
    uint64_t status_ms;
    struct socket_usage_query *usage_query;
    bool sandbox_ended; /* the sandbox has */
    char end_reason[SOCKET_END_REASON_MAX];
};

struct socket_execution {
    struct socket_execution *next;
    struct api *api;
    struct sandbox_socket *socket; /* NULL: nobody listens any more, and it is among the orphans of the api */
    char name[SOCKET_EXECUTION_NAME_MAX + 1];
    char id[ID_SIZE];    /* of the execution; "" until it is known */
    bool awaiting_reply; /* for an answer that is to come to it */
    struct audit_wait record_wait;
    struct execution_request request;
    char context[ID_SIZE];                      /* where it is to be started; "": by itself */
    struct context_execution_spec context_call; /* what; borrows from the launch's body */
    int fd[3];
    uint64_t offset[3], end[3]; /* of stdout, stderr, events */
    uint64_t tail_bytes;        /* begin so many bytes before the end; UINT64_MAX: no */
    struct execution_watch *watch;
    bool start_sent; /* execution_start was said */
    bool tty;
    bool has_events;     /* events beside output: it is of a context */
    uint16_t rows, cols; /* as they were told */
    struct execution_writer *writer;
    struct buf pending_input;   /* came, and is not taken yet */
    uint64_t acked_input_bytes; /* input as it was told */
    bool input_eof_received, input_closed, input_recorded;
    struct buf end_json; /* its last message, without the head; there when it has ended */
    const char *end_error_code;
};

/* sandbox_socket.c */
void sandbox_socket_begin_message(struct sandbox_socket *so, struct jsonw *w, struct buf *out, const char *type,
                                  const struct socket_execution *a);
bool sandbox_socket_send_message(struct sandbox_socket *so,
                                 struct jsonw *w); /* ends the object; false: wait for room */
void sandbox_socket_send_error(struct sandbox_socket *so, const char *name, const char *code, const struct err *err);
/* For the audit log; returns the number of the record, or 0. */
uint64_t sandbox_socket_record_action(struct sandbox_socket *so, const char *action, const char *outcome,
                                      const char *execution, const char *details);
void sandbox_socket_schedule_pump(struct sandbox_socket *so); /* something changed; soon, not now */

/* socket_execution.c */
struct socket_execution *socket_execution_find(const struct sandbox_socket *so, const char *name);
/* Takes the launch. id: chosen by the client, or "". context: where it is to run; then call is what, not the launch. */
void socket_execution_start(struct sandbox_socket *so, const char *name, const char *id,
                            struct execution_request *launch, const char *context,
                            const struct context_execution_spec *call);
void socket_execution_resume(struct sandbox_socket *so, const char *name, const char *id, const uint64_t offset[3],
                             uint64_t tail);
void socket_execution_detach(struct socket_execution *a); /* whatever it waits for */
void socket_execution_add_input(struct socket_execution *a, const char *data, size_t len, const uint64_t *offset,
                                bool ends);
bool socket_execution_pump(struct socket_execution *a); /* false: there is more to send. It may be gone after this */
size_t socket_execution_pending_input(const struct socket_execution *a);
