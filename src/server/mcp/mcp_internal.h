/* mcp_internal.h - declarations shared by the files of this directory. No other directory includes
 * it. */
#pragma once

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "core/base/list.h"
#include "core/doc/json_input.h"
#include "remote/mcp/jsonrpc.h"
#include "server/gateway/audit_trail.h"
#include "server/gateway/open_streams.h"
#include "server/mcp/mcp.h"
#include "service/template_cache.h"

#define MCP_MODERN_REVISION "2026-07-28"
#define MCP_META "io.modelcontextprotocol/"
#define MCP_SECRET_SIZE 65
#define MCP_HEADER_MISMATCH (-32020)
#define MCP_CAPABILITY_MISSING (-32021)
#define MCP_VERSION_UNSUPPORTED (-32022)
#define MCP_RESOURCE_MISSING (-32002) /* legacy era */

extern const char *const mcp_legacy_revisions[]; /* newest first; NULL-terminated */

struct mcp_server_call;
struct mcp_session;
struct mcp_sandbox_job;
typedef void mcp_sandbox_fn(struct mcp_server_call *c, const char *sandbox, const struct store_sandbox *row,
                            const struct err *err);

/* A method of the protocol. The function answers the call exactly once, at once or later, with
 * mcp_server_call_result(), mcp_server_call_error() or mcp_server_call_refuse(). */
struct mcp_served_method {
    const char *name;
    void (*fn)(struct mcp_server_call *c);
    bool is_legacy, is_modern;
    const char *name_param; /* modern: member of params that the header Mcp-Name repeats; NULL: none */
};

enum mcp_outcome { MCP_ANSWERED, MCP_FAILED, MCP_CANCELLED, MCP_OUTCOMES };
#define MCP_METHODS_MAX 32u
#define MCP_BUCKETS 1024u

struct mcp {
    struct mcp_settings settings;
    struct template_cache *template_cache;
    struct mcp_server_call *calls;
    struct mcp_session *sessions;
    struct mcp_session *buckets[MCP_BUCKETS]; /* by secret */
    size_t nsessions;
    struct ev_timer expiry_timer;
    struct mcp_sandbox_job *sandbox_jobs; /* sandboxes of sessions that are being created (session_sandbox.c) */
    unsigned deletions;                   /* of sandboxes, in progress */
    void (*on_deleted)(void *arg);        /* called once when none is; NULL: none waits */
    void *on_deleted_arg;
    struct ev_defer on_deleted_defer;
    uint64_t counts[MCP_METHODS_MAX + 1][MCP_OUTCOMES]; /* by method; the last row: unknown methods */
    uint64_t sessions_opened, sessions_expired, sessions_refused;
    size_t replay_bytes;           /* kept by all sessions (replay.c) */
    struct mcp_fixtures *fixtures; /* NULL: off (conformance.c) */
};

/* --- one request in progress (server_call.c) --- */

enum mcp_answer_state {
    MCP_ANSWER_NONE,
    MCP_ANSWER_STREAM, /* an event stream was begun */
};

struct mcp_server_call {
    struct mcp *mcp;
    struct mcp_server_call *next, **link;
    struct mcp_session *session; /* NULL: none, or it ended */
    struct http_req *req;        /* NULL: the connection is gone, or the answer was sent */
    struct principal principal;
    struct jsonrpc_message message;
    size_t message_bytes; /* of memory, estimated */
    const json_t *id, *params, *meta, *progress_token;
    json_t *capabilities; /* of the client; referenced, because a bridge may initialize its session again; NULL: none */
    const struct mcp_served_method *method;
    bool is_modern, accepts_stream, is_resumable;
    int log_level; /* lowest level of log messages for this call; -1: none */
    enum mcp_answer_state state;
    struct mcp_replay *replay; /* resumable streams (replay.c) */
    struct open_stream open_stream;
    /* Stops the work. The call is freed after it returns. NULL: the work cannot be stopped; its end
     * is awaited, and the answer is dropped. */
    void (*on_cancel)(struct mcp_server_call *c);
    void *work; /* of the method */
    /* Receives the answer of the client to mcp_server_call_ask(); NULL: none is awaited. */
    void (*on_reply)(struct mcp_server_call *c, const struct jsonrpc_message *m);
    int64_t asked_id;
    struct ev_timer timer;               /* for the method */
    struct mcp_sandbox_job *sandbox_job; /* whose end the call awaits, and what it calls then */
    mcp_sandbox_fn *sandbox_fn;
    bool is_cancelled; /* the end of the work is awaited, and the answer is dropped */
};

void mcp_server_call_start(struct mcp_server_call *c);
/* Members of the result as JSON text of an object: in the modern era resultType and serverInfo are
 * added. Ends the call. */
void mcp_server_call_result(struct mcp_server_call *c, const char *object);
void mcp_server_call_error(struct mcp_server_call *c, int64_t code, const char *text, const char *data);
void mcp_server_call_error_status(struct mcp_server_call *c, int status, int64_t code, const char *text,
                                  const char *data);
/* Answers with an error of HTTP, as REST does: for missing permission. Ends the call. */
void mcp_server_call_refuse(struct mcp_server_call *c, const struct err *err);
/* Ends the call that the gateway has already answered. */
void mcp_server_call_end_refused(struct mcp_server_call *c);
/* Sends a notification before the result; begins an event stream. Dropped if the client reads too
 * slowly or accepts no stream. */
void mcp_server_call_notify(struct mcp_server_call *c, const char *method, const char *params);
/* The same with progress; `message` may be NULL. */
void mcp_server_call_progress(struct mcp_server_call *c, uint64_t progress, uint64_t total, const char *message);
/* Asks the client (legacy era); false: it accepts no stream. */
bool mcp_server_call_ask(struct mcp_server_call *c, const char *method, const char *params,
                         void (*on_reply)(struct mcp_server_call *c, const struct jsonrpc_message *m));
/* Continues the event stream of the call on another request; ends the earlier one. */
void mcp_server_call_attach(struct mcp_server_call *c, struct http_req *req);
/* Begins the event stream now. False: the client accepts none. */
bool mcp_server_call_begin_stream(struct mcp_server_call *c);
/* Ends the call without an answer. */
void mcp_server_call_cancel(struct mcp_server_call *c);
void mcp_calls_free(struct mcp *m);
/* The owner whose objects the call may see. */
const char *mcp_server_call_visible_owner(const struct mcp_server_call *c);
static inline const char *mcp_server_call_tenant(const struct mcp_server_call *c)
{
    return c->principal.owner;
}
/* A member of params; NULL: absent or not a string. */
const char *mcp_server_call_text(const struct mcp_server_call *c, const char *name);
/* Scopes, rate limit and audit of what the call does, before anything else is answered. False: the
 * call is refused and ended. */
bool mcp_server_call_authorize(struct mcp_server_call *c, uint32_t scopes, enum auth_class class,
                               const struct gateway_action *action);
/* Writes ttlMs and cacheScope in the modern era. */
void mcp_server_call_write_cache_hints(const struct mcp_server_call *c, struct jsonw *w, uint64_t ttl_ms,
                                       bool is_public);

/* --- requests (dispatch.c) --- */

void mcp_dispatch(struct http_req *req, struct mcp *m);
extern const struct mcp_served_method mcp_methods[]; /* ends with a row without name */
/* Opaque cursors of lists: a position. False: the call was answered. */
bool mcp_read_cursor(struct mcp_server_call *c, const char *list, size_t *ret);
void mcp_write_cursor(struct jsonw *w, const char *list, size_t position);

/* --- eras (legacy.c, modern.c) --- */

void mcp_legacy_initialize(struct mcp_server_call *c);
void mcp_legacy_ping(struct mcp_server_call *c);
void mcp_legacy_set_level(struct mcp_server_call *c);
void mcp_legacy_get(struct http_req *req, struct mcp *m);
void mcp_legacy_delete(struct http_req *req, struct mcp *m);
void mcp_legacy_notification(struct mcp_session *s, const struct jsonrpc_message *message);
void mcp_legacy_reply(struct mcp_session *s, const struct jsonrpc_message *message);
/* Checks version and headers of a modern request. False: the call was answered. */
bool mcp_modern_check(struct mcp_server_call *c);
bool mcp_is_modern(const struct http_req *req, const struct jsonrpc_message *message);
void mcp_modern_discover(struct mcp_server_call *c);
void mcp_write_capabilities(const struct mcp *m, bool is_modern, struct jsonw *w);
void mcp_write_server_info(const struct mcp *m, struct jsonw *w);
extern const char mcp_instructions[];
int mcp_log_level(const char *name); /* -1: unknown */

/* --- sessions (session.c) --- */

struct mcp_session {
    struct mcp *mcp;
    struct mcp_session *next, **link; /* all sessions */
    struct mcp_session *bucket_next;
    char secret[MCP_SECRET_SIZE];
    char id[ID_SIZE]; /* public */
    uint64_t number;  /* in the order of their creation */
    char owner[STORE_OWNER_MAX + 1], key_id[ID_SIZE], user[ID_SIZE];
    char credential_sandbox[ID_SIZE]; /* the only one that its credential can access; "": all */
    enum principal_kind principal_kind;
    bool is_bridge;       /* opened through POST /v1/mcp/sessions */
    const char *revision; /* "": not initialized */
    char client_name[64], client_version[32];
    json_t *capabilities; /* of the client; NULL: none */
    int log_level;
    uint64_t created_ms, used_ns, used_ms;
    uint64_t calls;
    char template[STORE_NAME_MAX + 1]; /* of its sandbox; "": that of the settings */
    /* The sandbox of the session: "" before the first call that needs it. */
    char sandbox[ID_SIZE];
    bool borrows_sandbox; /* the sandbox existed before the session, and outlives it */
    uint64_t sandbox_expires_ms;
    struct mcp_sandbox_job *sandbox_job; /* creates it; NULL: not now */
    int64_t asked;                       /* requests to the client so far */
    uint64_t streams;
    struct mcp_replay *replays;    /* newest first */
    struct mcp_listener *listener; /* the GET stream; NULL: none */
    struct mcp_watch *watches;     /* files to which the client subscribed */
};

/* NULL with *err: the tenant has too many. */
struct mcp_session *mcp_session_open(struct mcp *m, const struct principal *p, struct err *err);
/* Ends the session and its calls, and deletes its sandbox. */
void mcp_session_end(struct mcp_session *s);
void mcp_session_free(struct mcp_session *s);
/* NULL: unknown secret, or the session of another principal. Renews the session. */
struct mcp_session *mcp_session_find(struct mcp *m, const struct principal *p, const char *secret);
void mcp_session_touch(struct mcp_session *s);
void mcp_sessions_schedule_expiry(struct mcp *m);
extern const struct http_route mcp_session_routes[]; /* session_routes.c */

/* --- the sandbox of a session (session_sandbox.c) --- */

/* Called at once or later. row: of a new sandbox, else NULL. err: not NULL: there is no sandbox. */
void mcp_session_sandbox(struct mcp_server_call *c, mcp_sandbox_fn *fn);
/* Creates a sandbox for a tool of the call. */
struct mcp_sandbox_spec {
    const char *template; /* NULL: the default */
    const char *name;     /* NULL: none */
    uint64_t lifetime_ms; /* 0: the template's */
};
/* session: whose sandbox it becomes; NULL: none. */
void mcp_create_sandbox(struct mcp_server_call *c, const struct mcp_sandbox_spec *spec, struct mcp_session *session,
                        mcp_sandbox_fn *fn);
void mcp_sandbox_jobs_free(struct mcp *m);
void mcp_session_sandbox_lost(struct mcp_session *s, const char *sandbox);
/* Less than half of the idle timeout is left of the lifetime of its own sandbox. */
bool mcp_session_sandbox_ends_soon(const struct mcp_session *s);
/* The sandbox of a session lives as long as the session is in use. */
void mcp_session_extend_sandbox(struct mcp_session *s);
void mcp_session_delete_sandbox(struct mcp_session *s);
void mcp_deletions_check(struct mcp *m); /* calls on_deleted if it is due */

/* --- tools (tools.c, sandbox_tools.c) --- */

void mcp_tools_list(struct mcp_server_call *c);
void mcp_tools_call(struct mcp_server_call *c);
/* Ends the call with a result that says that the tool failed. */
void mcp_tool_failed(struct mcp_server_call *c, const struct err *err);
void mcp_tool_failed_text(struct mcp_server_call *c, const char *text);
/* A tool of this interface that is not in the table of tools.h. */
struct mcp_own_tool {
    const char *definition; /* JSON text of its row in tools/list */
    const char *name;
    uint32_t scopes;
    enum auth_class class;
    void (*fn)(struct mcp_server_call *c, const json_t *arguments);
};
extern const struct mcp_own_tool mcp_sandbox_tools[]; /* ends with a row without name */
void mcp_write_definition(struct jsonw *w, const char *json, bool with_output_schema);

/* --- resources, prompts, completion (resources.c, prompts.c) --- */

/* Both end the call. type: NULL: by the name. */
void mcp_answer_resource(struct mcp_server_call *c, const char *uri, const char *type, const char *data, size_t len);
void mcp_resource_missing(struct mcp_server_call *c, const char *uri, const char *reason);
void mcp_resources_list(struct mcp_server_call *c);
void mcp_resource_templates_list(struct mcp_server_call *c);
void mcp_resources_read(struct mcp_server_call *c);
void mcp_prompts_list(struct mcp_server_call *c);
void mcp_prompts_get(struct mcp_server_call *c);
void mcp_complete(struct mcp_server_call *c);

/* --- streams without a request (subscriptions.c) --- */

void mcp_listener_open(struct http_req *req, struct mcp_session *s); /* GET */
void mcp_listener_close(struct mcp_session *s);
void mcp_listener_free(struct mcp_session *s);
void mcp_watches_free(struct mcp_session *s);
void mcp_resources_subscribe(struct mcp_server_call *c);
void mcp_resources_unsubscribe(struct mcp_server_call *c);
void mcp_subscriptions_listen(struct mcp_server_call *c);
/* Reports to every listener that a list changed: "tools" or "prompts". */
void mcp_notify_list_changed(struct mcp *m, const char *list);

/* --- streams that a client can resume (replay.c) --- */

#define MCP_EVENT_ID_SIZE 48
struct mcp_replay *mcp_replay_new(struct mcp_server_call *c); /* for c->replay */
void mcp_replay_free(struct mcp_replay *r);
/* Keeps a message of the call. It may clear c->replay: the message did not fit. */
void mcp_replay_add(struct mcp_server_call *c, const char *message, char ret_id[MCP_EVENT_ID_SIZE]);
void mcp_replay_finish(struct mcp_server_call *c); /* no message follows */
void mcp_replays_expire(struct mcp_session *s, uint64_t now_ns);
/* Answers GET with Last-Event-ID. */
void mcp_replay_resume(struct http_req *req, struct mcp_session *s, const char *last_event_id);

/* --- fixtures of the conformance suite (conformance.c) --- */

struct mcp_fixtures *mcp_fixtures_new(void);
void mcp_fixtures_free(struct mcp_fixtures *f);
void mcp_fixtures_write_tools(struct jsonw *w);
void mcp_fixtures_write_resources(struct jsonw *w);
void mcp_fixtures_write_templates(struct jsonw *w);
void mcp_fixtures_write_prompts(struct jsonw *w);
/* True: the fixture exists and answers the call. */
bool mcp_fixtures_call_tool(struct mcp_server_call *c, const char *name, const json_t *arguments);
bool mcp_fixtures_read_resource(struct mcp_server_call *c, const char *uri);
bool mcp_fixtures_get_prompt(struct mcp_server_call *c, const char *name, const json_t *arguments);
