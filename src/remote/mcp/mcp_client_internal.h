/* mcp_client_internal.h - shared by the files of the client of one MCP server. */
#pragma once

#include "remote/mcp/mcp_client.h"
#include "core/base/buf.h"
#include "remote/mcp/jsonrpc.h"
#include "remote/mcp/mcp_http.h"
#include "remote/mcp/mcp_pipe.h"
#include "remote/mcp/mcp_tool.h"

#define MCP_VERSION_MODERN "2026-07-28"
#define MCP_VERSION_LEGACY "2025-11-25"

/* Errors of a modern server. */
#define MCP_HEADER_MISMATCH (-32020)
#define MCP_MISSING_CAPABILITY (-32021)
#define MCP_UNSUPPORTED_VERSION (-32022)

enum mcp_client_state {
    MCP_CLIENT_OPENING, /* a handshake runs */
    MCP_CLIENT_READY,
    MCP_CLIENT_CLOSED,
};

enum mcp_client_call_state {
    MCP_REQUEST_WAITING,       /* for the handshake */
    MCP_REQUEST_WAITING_TOOLS, /* for the list of tools */
    MCP_REQUEST_SENT,
    MCP_REQUEST_ASKING, /* for answers to the questions of the server */
    MCP_REQUEST_ENDED,  /* on_done follows */
};

struct mcp_client_call {
    struct mcp_client_call *next;
    struct mcp_client *client;
    struct mcp_client_call_ops ops;
    void *arg;
    enum mcp_client_call_kind method;
    char *name;
    json_t *arguments;
    enum mcp_client_call_state state;
    json_int_t id; /* of the request that is open; each round and page has its own */
    struct mcp_exchange *exchange;
    struct ev_timer deadline;
    struct ev_defer end_defer;
    size_t bytes; /* received in its messages */
    double last_progress;
    bool is_reopened; /* its session had expired once */
    bool is_internal; /* a list of tools that the client itself needs */
    /* Lists. */
    json_t *items;
    size_t item_bytes;
    unsigned pages;
    char *cursor;
    /* Questions. */
    unsigned rounds;
    size_t open_questions;
    json_t *input_responses, *request_state;
    /* The end. */
    json_t *result;
    struct err err;
    json_int_t error_code; /* of JSON-RPC; 0: none */
    json_t *error_data;
};

struct mcp_question {
    struct mcp_question *next;
    struct mcp_client *client;    /* NULL: the answer is not wanted any more */
    struct mcp_client_call *call; /* NULL: legacy, not on the stream of a call */
    char *method;
    json_t *params;
    json_t *id; /* legacy: of the request */
    char *key;  /* modern: in inputRequests */
};

/* A notification, or an answer to a request of the server, over HTTP. */
struct mcp_post {
    struct mcp_post *next;
    struct mcp_client *client;
    struct mcp_exchange *exchange;
    void (*on_sent)(struct mcp_client *c, int status); /* NULL: nothing follows */
};

struct mcp_client {
    struct ev *ev;
    struct mcp_client_ops ops;
    void *arg;
    struct mcp_http *http; /* NULL: stdio */
    struct mcp_pipe *pipe; /* NULL: HTTP */
    enum mcp_client_state state;
    enum mcp_era era;
    bool is_announced;   /* on_ready was called */
    bool has_discovered; /* server/discover was tried in this handshake */
    bool has_initialized;
    unsigned discover_tries;
    uint32_t open_ms, discover_ms;
    bool answers_elicitation, answers_sampling, answers_roots, watches_tools;
    char version[16]; /* of the protocol */
    char *session;    /* legacy HTTP; NULL: none */
    char *instructions;
    json_t *capabilities;
    json_int_t last_id;
    struct mcp_client_call *calls;
    size_t call_count;
    struct mcp_question *questions;
    struct mcp_post *posts;
    size_t post_count;
    unsigned noise;
    size_t bytes; /* of messages since the last answer, over stdio */
    /* Tools. */
    struct mcp_tool **tools;
    size_t tool_count;
    json_t *dropped;         /* [{"name", "reason"}] */
    json_t *accepted;        /* name: digest, as last listed by the caller; NULL: never listed */
    uint64_t tools_fresh_ns; /* until then the list is not asked for again; 0: it is stale */
    bool is_refreshing;
    /* Notifications over HTTP of a legacy server. */
    struct mcp_exchange *listen;
    struct ev_timer listen_timer;
    uint64_t listen_wait_ns;
    void (*on_listening)(struct mcp_client *c); /* once: the stream is open, or there is none */
    struct err err;                             /* MCP_CLIENT_CLOSED */
    struct ev_defer start_defer, state_defer;
};

/* mcp_client.c */
void mcp_client_close(struct mcp_client *c, const struct err *err); /* ends everything with this error */
void mcp_client_reopen(struct mcp_client *c);                       /* the session has expired */
void mcp_client_add_noise(struct mcp_client *c, struct mcp_client_call *call);
/* The handshake: the answers to server/discover and initialize. */
void mcp_client_on_discover(struct mcp_client *c, const struct mcp_client_call *call);
void mcp_client_on_initialize(struct mcp_client *c, const struct mcp_client_call *call);
json_t *mcp_client_own_capabilities(const struct mcp_client *c);
json_t *mcp_client_own_info(void);

/* mcp_client_call.c */
const char *mcp_client_call_method(enum mcp_client_call_kind m);
/* Without ops: one of the handshake or MCP_LISTEN. A timeout of 0: none. */
void mcp_client_call_start_internal(struct mcp_client *c, enum mcp_client_call_kind method, uint32_t timeout_ms,
                                    const struct mcp_client_call_ops *ops);
void mcp_client_call_proceed(struct mcp_client_call *call); /* sends it if nothing is missing any more */
void mcp_client_call_fail(struct mcp_client_call *call, const struct err *err);
void mcp_client_call_finish(struct mcp_client_call *call, json_t *result); /* takes result */
void mcp_client_call_free(struct mcp_client_call *call);
struct mcp_client_call *mcp_client_call_find(const struct mcp_client *c, json_int_t id);

/* mcp_send.c */
int mcp_send_request(struct mcp_client_call *call, struct err *err);
void mcp_send_cancel(struct mcp_client_call *call);
int mcp_send_notification(struct mcp_client *c, const char *method, const char *params,
                          void (*on_sent)(struct mcp_client *c, int status), struct err *err);
void mcp_send_answer(struct mcp_client *c, const json_t *id, const json_t *result); /* NULL: refuse */
void mcp_post_free_all(struct mcp_client *c);

/* mcp_incoming.c */
extern const struct mcp_exchange_ops mcp_client_call_exchange_ops;
extern const struct mcp_pipe_ops mcp_client_pipe_ops;
void mcp_incoming(struct mcp_client *c, struct mcp_client_call *call, const char *text, size_t len);

/* mcp_result.c */
void mcp_result_accept(struct mcp_client_call *call, const json_t *result);

/* mcp_question.c */
/* Asks for the input that the result of a modern server requires. */
int mcp_question_start_round(struct mcp_client_call *call, const json_t *result, struct err *err);
bool mcp_question_is_enabled(const struct mcp_client *c, const char *method);
void mcp_question_add(struct mcp_client *c, struct mcp_client_call *call, const char *method, const json_t *params,
                      const json_t *id, const char *key);
void mcp_question_drop_all(struct mcp_client *c, const struct mcp_client_call *call); /* NULL: of the client */

/* mcp_tool_list.c */
bool mcp_tool_list_is_fresh(const struct mcp_client *c);
void mcp_tool_list_refresh(struct mcp_client *c);
void mcp_tool_list_set(struct mcp_client *c, const json_t *items, const json_t *last_page, bool is_accepted);
json_t *mcp_tool_list_json(const struct mcp_client *c);
/* The tool of a call, if it may be called. */
int mcp_tool_list_find(const struct mcp_client *c, const char *name, const struct mcp_tool **ret, struct err *err);
void mcp_tool_list_done(struct mcp_client *c);

/* mcp_listen.c */
/* Calls on_listening, possibly at once, when the stream is open or is not needed. */
void mcp_listen_start(struct mcp_client *c, void (*on_listening)(struct mcp_client *c));
void mcp_listen_retry(struct mcp_client *c); /* its stream has ended */
void mcp_listen_stop(struct mcp_client *c);
