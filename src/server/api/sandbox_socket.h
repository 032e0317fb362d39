/* sandbox_socket.h - shared by sandbox_socket.c and socket_execution.c: a WebSocket of a sandbox,
 * and one execution attached to it.
 *
 * The socket owns its executions. An execution that waits for the store or the manager outlives the
 * socket: `socket` is then NULL, and the reply frees it. */
#pragma once

#include "server/api/api_internal.h"
#include "server/api/message_stream.h"
#include "server/api/output_pump.h"
#include "service/stored_output.h"
#include "server/http/ws.h"

#define SOCKET_EXECUTION_LABEL_MAX 64u
#define SOCKET_END_REASON_MAX 124u

struct sandbox_socket {
    struct api *api;
    struct http_ws *ws;
    struct principal principal;
    char owner[STORE_OWNER_MAX + 1]; /* tenant whose executions it may use */
    char sandbox[ID_SIZE];
    char address[46];
    /* Id of the request that opened the socket; receipts of executions started here carry it. */
    char request_id[RECEIPT_REQUEST_MAX + 1];
    struct sandbox_subscription *subscription;
    struct open_stream open_stream;
    uint64_t seq;
    struct buf message; /* being written, by `writer` */
    struct jsonw writer;
    struct socket_execution *executions;
    size_t nexecutions;
    struct ev_defer pump_defer;
    struct ev_timer status_timer;
    uint64_t status_ms;
    struct socket_usage_query *usage_query;
    bool sandbox_ended;
    char end_reason[SOCKET_END_REASON_MAX];
};

struct socket_execution {
    struct socket_execution *next;
    struct api *api;
    struct sandbox_socket *socket; /* NULL: the socket is closed, and this is in api->orphaned_executions */
    char label[SOCKET_EXECUTION_LABEL_MAX + 1]; /* chosen by the client; "": none */
    char id[ID_SIZE];                           /* of the execution; "" until known */
    bool awaiting_reply;                        /* the store or the manager owes a reply */
    struct audit_wait record_wait;
    struct execution_request request;
    char context[ID_SIZE]; /* context to run in; "": none */
    /* The code to run in the context; borrows from the body of `request`. */
    struct context_execution_spec context_call;
    struct output_join join; /* where its output begins on this socket */
    struct output_pump pump; /* joins when the reply has arrived */
    uint16_t rows, cols;     /* terminal size last set */
    struct execution_writer *writer;
    struct buf pending_input;   /* received, not yet accepted by the sandbox */
    uint64_t acked_input_bytes; /* input bytes acknowledged to the client */
    bool input_eof_received, input_closed, input_recorded;
};

/* sandbox_socket.c */
/* Begins the next message, of which there is one at a time; the caller adds members. id, label: of
 * the execution, or "". */
struct jsonw *sandbox_socket_begin_message(struct sandbox_socket *so, const char *type, const char *id,
                                           const char *label);
void sandbox_socket_send_message(struct sandbox_socket *so); /* closes the object */
void sandbox_socket_send_error(struct sandbox_socket *so, const char *id, const char *label, const struct err *err);
/* Writes an audit record; returns its number, or 0. */
uint64_t sandbox_socket_record_action(struct sandbox_socket *so, const char *action, const char *outcome,
                                      const char *execution, const char *details);
void sandbox_socket_schedule_pump(struct sandbox_socket *so); /* runs the pump from the loop */

/* socket_execution.c */
/* By its label or its id, of which one may be NULL. */
struct socket_execution *socket_execution_find(const struct sandbox_socket *so, const char *id, const char *label);
/* Takes ownership of the launch. id: chosen by the client, or "". context: the context to run in;
 * then `call` describes the code and the launch does not. */
void socket_execution_start(struct sandbox_socket *so, const char *label, const char *id,
                            struct execution_request *launch, const char *context,
                            const struct context_execution_spec *call);
void socket_execution_resume(struct sandbox_socket *so, const char *label, const char *id,
                             const struct output_join *join);
void socket_execution_detach(struct socket_execution *a); /* also while it awaits a reply */
void socket_execution_add_input(struct socket_execution *a, const char *data, size_t len, const uint64_t *offset,
                                bool ends);
bool socket_execution_pump(struct socket_execution *a); /* False: call it again from the loop. May free `a`. */
size_t socket_execution_pending_input(const struct socket_execution *a);
