/* bridge_internal.h - shared by the files of the bridge, private to this directory. */
#pragma once

#include "core/base/buf.h"
#include "core/base/list.h"
#include "client/cli/report.h"
#include "client/mcp/bridge.h"
#include "client/mcp/exchange.h"
#include "client/mcp/line_reader.h"
#include "client/mcp/line_writer.h"
#include "client/mcp/mirror.h"
#include "remote/mcp/sse.h"

#define BRIDGE_PATH "/mcp"
#define BRIDGE_SERVER_ERROR (-32000)
#define BRIDGE_MESSAGES_MAX 256u
#define BRIDGE_BYTES_MAX (64 * MIB)

enum bridge_message_state {
    BRIDGE_MESSAGE_WAITING, /* for the link, or for a message before it */
    BRIDGE_MESSAGE_SENT,
    BRIDGE_MESSAGE_BROKEN, /* its stream ended early; it is resumed when the timer expires */
};

/* A message of the client, until the server has answered it. */
struct bridge_message {
    struct bridge_message *next;
    struct bridge *bridge;
    struct jsonrpc_message rpc;
    char *text;
    size_t len;
    enum bridge_message_state state;
    char *version; /* era of single requests: the revision; NULL: era of sessions */
    struct exchange *exchange;
    struct ev_timer resume_timer;
    char last_id[SSE_ID_MAX + 1]; /* of the last event of a stream that was resumed */
    unsigned resumes;             /* attempts since the last event */
    unsigned link_generation;     /* of the link when the message was sent */
    bool is_answered, is_cancelled;
    bool was_repeated; /* after the session or the connection was lost */
};

/* The session with the server. */
enum bridge_link_state {
    BRIDGE_LINK_CLOSED,
    BRIDGE_LINK_OPENING,      /* POST /v1/mcp/sessions */
    BRIDGE_LINK_INITIALIZING, /* a lost session of the protocol is opened again */
    BRIDGE_LINK_CONFIRMING,   /* the notification after it */
    BRIDGE_LINK_READY,
    BRIDGE_LINK_CLOSING,
};

struct bridge_link {
    enum bridge_link_state state;
    unsigned generation; /* counts openings */
    struct exchange *exchange;
    bool is_foreign;  /* not a server of cove: it has no /v1/mcp/sessions */
    char *secret;     /* of the session of cove, as the header Cove-Session: ...; NULL: none */
    char *session;    /* header Mcp-Session-Id: ... of the era of sessions; NULL: none */
    char *version;    /* header MCP-Protocol-Version: ... of the same; NULL: not initialized */
    char *initialize; /* the client's own message, to repeat it */
    bool must_initialize;
    struct buf body; /* of the request of the link */
};

/* The stream for messages of the server without a request (GET). */
struct bridge_listener {
    struct exchange *exchange;
    struct ev_timer timer;
    char last_id[SSE_ID_MAX + 1];
    uint32_t wait_ms;
    bool is_refused; /* the server has none */
};

struct bridge {
    struct bridge_settings settings;
    struct line_reader *reader;
    struct line_writer *writer;
    struct mirror *mirror;
    struct bridge_message *messages; /* in the order of their arrival */
    size_t nmessages, bytes;
    struct bridge_message *barrier; /* later messages wait until it is answered */
    struct bridge_link link;
    struct bridge_listener listener;
    char *last_version; /* revision of the last single request; for notifications, which name none */
    struct ev_defer pump_defer;
    struct ev_timer end_timer;
    bool is_held, input_ended, is_stopping;
};

/* --- bridge.c --- */

void bridge_write_error(struct bridge *b, const json_t *id, int64_t code, const char *text, const char *data);
/* Sends waiting messages and detects the end, later. */
void bridge_pump_later(struct bridge *b);
void bridge_finish(struct bridge *b); /* the session is closed: stop when the output is written */

/* --- message.c --- */

/* Takes the parsed message; `text` is copied. */
void bridge_message_add(struct bridge *b, struct jsonrpc_message *rpc, const char *text, size_t len);
void bridge_message_free(struct bridge_message *m);
void bridge_message_send(struct bridge_message *m);
/* Ends it with an error for the client, if it waits for an answer. */
void bridge_message_fail(struct bridge_message *m, const struct err *err);
bool bridge_message_is_awaited(const struct bridge_message *m); /* the client waits for an answer */
bool bridge_message_is_barrier(const struct bridge_message *m);
struct bridge_message *bridge_message_find(struct bridge *b, const json_t *id); /* NULL: none with this id */
/* Writes a message of the server, if it is one. */
void bridge_forward(struct bridge *b, const char *data, size_t len);

/* --- answer.c --- */

/* An error of the server's HTTP interface as text and data of a JSON-RPC error. The caller frees
 * both. */
void bridge_explain(const struct bridge *b, const struct exchange_result *r, char **ret_text, char **ret_data);
void bridge_explain_err(const struct bridge *b, const struct err *err, char **ret_text, char **ret_data);
/* An answer that says that the session has ended. */
bool bridge_is_session_lost(const struct exchange_result *r);

/* --- link.c --- */

void bridge_link_open(struct bridge *b); /* bridge_pump_later() follows */
void bridge_link_lost(struct bridge *b, unsigned generation);
void bridge_link_close(struct bridge *b); /* bridge_finish() follows */
void bridge_link_done(struct bridge_link *l);
void bridge_link_initialized(struct bridge_link *l, const struct bridge_message *m, const json_t *result);
void bridge_link_set_session(struct bridge_link *l, const char *session);

/* --- listener.c --- */

void bridge_listener_start(struct bridge *b);
void bridge_listener_stop(struct bridge *b);
