/* api_internal.h - what the files of this room share. Nothing outside includes it. */
#pragma once

#include "server/api/api.h"

#include "server/audit/refusal_aggregator.h"
#include "server/audit/security.h"
#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "service/json_input.h"

#define API_STATUSES 6u /* by the first digit; 0 is "the client left" */
#define API_ROUTES_MAX 160u

struct api_counter {
    const struct http_route *route;
    uint64_t requests[API_STATUSES];
    uint64_t duration_ns, bytes_in, bytes_out;
};

#define API_TARGETS_MAX 6u

/* What a route does (audit_actions.c). */
struct audit_action {
    const struct http_route *route;
    char name[64];
    bool is_change;       /* something, so it needs a record */
    bool record_success;  /* it is recorded also when it succeeds */
    bool frees_resources; /* it ends or removes something: allowed as long as there is any room for its record */
};

/* A request from the gate to its answer (audit_trail.c): http_user_data(). */
struct api_request {
    struct principal principal; /* first: request_principal() is this */
    bool authenticated;         /* who is */
    bool admitted;              /* the gate let it in */
    struct api *api;
    struct audit *audit; /* NULL: nothing is recorded */
    bool record_content;
    struct http_req *req;
    struct api_request *next, **list_link;
    const struct audit_action *action;
    uint64_t accepted_seq; /* of the record that it was accepted; 0: none */
    struct audit_wait record_wait;
    bool target_recorded;                      /* its target was told */
    char acted_on_tenant[STORE_OWNER_MAX + 1]; /* the tenant of the sandbox that it acts on, when that is not its own */
    struct audit_pair target[API_TARGETS_MAX];
    char *target_values[API_TARGETS_MAX];
    size_t ntarget;
    char *target_names[API_TARGETS_MAX]; /* of targets, where they are ours */
    size_t ntarget_names;
    struct buf details;                               /* an object that is still open */
    struct api_request *next_pending, **pending_link; /* its outcome is still to be recorded */
};

struct api {
    struct api_settings settings;
    const struct http_server *server;
    struct unread_quota *unread_quotas; /* unread_responses.c */
    uint64_t started_ns, started_ms;    /* monotonic; of the calendar */
    struct api_counter counters[API_ROUTES_MAX];
    size_t ncounters;
    bool backing_up;
    struct open_stream *open_streams; /* answers that go on (open_streams.c) */
    struct event_tail *event_tail;    /* the latest events, and who listens to them (events.c) */
    struct event_stream *event_streams;
    struct audit_action *actions;
    size_t nactions;
    struct api_request *requests;        /* that are not over */
    struct api_request *pending_records; /* that were answered, and whose record is written behind the answer */
    struct ev_defer pending_records_defer;
    struct refusal_aggregator *refusals;
    struct ev_timer refusal_summary_timer;
    struct security *security;
    uint64_t security_event_counts[SECURITY_KINDS];
    struct pool_registry *pool_registry;          /* pools (pool_registry.h) */
    struct template_cache *template_cache;        /* templates */
    struct host_modules *host_modules;            /* Python modules that templates can preload */
    struct socket_execution *orphaned_executions; /* of sockets that are gone, waiting for an answer */
};

/* What a route demands: http_route.data. */
struct api_permission {
    uint32_t scopes;
    enum auth_class class;
    bool is_public;                 /* nobody is asked who they are */
    bool allows_sandbox_credential; /* for those too who reach one sandbox only, though it names none */
    bool allows_signed_url;         /* a signed URL may be for it */
};
extern const struct api_permission permission_public, permission_authenticated, permission_sandboxes_read,
    permission_sandboxes_write, permission_sandbox_create, permission_execute, permission_executions,
    permission_executions_read, permission_files, permission_files_read, permission_file_download,
    permission_file_upload, permission_keys, permission_self, permission_admin, permission_metrics, permission_audit,
    permission_usage, permission_tenant;

extern const struct http_route sandbox_routes[], execution_routes[], file_routes[], capability_routes[],
    template_routes[], key_routes[], health_metrics_routes[], maintenance_routes[], event_routes[], token_routes[],
    sandbox_socket_routes[], audit_routes[], usage_routes[], budget_routes[], live_usage_routes[], tenant_routes[],
    user_routes[], context_routes[], pool_routes[], execute_routes[];

/* --- the record of a request (audit_trail.c) --- */

/* For handlers. What was acted on, beside what the path names; text about it; what was run, told by hash and length
 * unless the operator wants it whole. Names are static and plain. */
void audit_trail_add_target(const struct http_req *req, const char *name, const char *value);
void audit_trail_add_detail(const struct http_req *req, const char *key, const char *value);
void audit_trail_add_number(const struct http_req *req, const char *key, uint64_t value);
void audit_trail_add_content(const struct http_req *req, const char *key, const char *data, size_t len);
/* The same of words, as they would stand in /proc: each ended by a NUL. NULL ends them, and may be all there is. */
void audit_trail_add_strings(const struct http_req *req, const char *key, const char *const *words);
/* The work begins: a first record says `accepted`, and is written while the work goes on. */
void audit_trail_record_accepted(const struct http_req *req);
/* Something that was done without a request of its own: inside a connection that stays open. */
uint64_t audit_trail_record_action(struct api *api, const struct principal *who, const char *address,
                                   const char *action, const char *outcome, const struct audit_pair *target,
                                   size_t ntarget, const char *details);

/* For the gate. */
struct api_request *audit_trail_new_request(struct api *api, struct http_req *req);
void audit_trail_resolve_tenant(struct api_request *r); /* who it is is known: where do they act? */
/* The gate's last question. ERR_AUDIT: it could not be recorded. */
int audit_trail_can_record(struct api_request *r, struct err *err);
void audit_trail_unrouted_request(struct api *api, const struct http_request_summary *done);
/* Whether a record of this kind stands for itself; otherwise it was counted. */
bool audit_trail_should_record(struct api *api, const struct refusal_key *k);
void audit_trail_flush_pending(struct api *api); /* those that are due are recorded */
void audit_trail_init(struct api *api);
void audit_trail_done(struct api *api);
void audit_action_of_route(const struct http_route *r, struct audit_action *ret);

/* --- security events (security.c) --- */

void api_security_refusal(struct api *api, const struct refusal_key *k);
void api_security_metrics(const struct api *api, struct buf *out);

/* What still waits for an answer gets none: for the end. */
void socket_executions_free_orphans(struct api *api);

/* --- who --- */

const struct principal *request_principal(const struct http_req *req);
const char *request_tenant(const struct http_req *req);   /* of what they make */
const char *request_actor_id(const struct http_req *req); /* the user or the key, for records; "": the local owner */
const char *
request_visible_owner(const struct http_req *req); /* whose things they reach: their own, or everybody's with admin */

/* --- requests --- */

/* The body as an object; the caller owns it. */
int api_read_body(const struct http_req *req, json_t **ret, struct err *err);
/* A list of scopes by this name, OR'ed into *ret; nothing when there is none. */
int api_read_scopes(const json_t *body, const char *name, uint32_t *ret, struct err *err);
bool api_is_valid_slug(const char *name); /* of a tenant or a role */
/* limit and cursor, and no query name but those and `names` (NULL-terminated, at most 8). */
int api_read_page(const struct http_req *req, const char *const *names, struct store_list *q, struct err *err);
/* The id in the path. MISSING when it is none: nothing else is said of it. */
/* ?state=NAME as a set of one, left alone when it is not asked for. */
int api_read_state_query(const struct http_req *req, const char *const *names, uint32_t *ret, struct err *err);
/* For routes without query parameters: any is refused. */
int api_require_no_query(const struct http_req *req, struct err *err);

int api_read_sandbox_id(const struct http_req *req, const char **ret, struct err *err);
int api_read_execution_id(const struct http_req *req, const char **ret, struct err *err);

/* --- answers --- */

/* An error of the manager; with ERR_QUOTA also which, how much and until when. In its `done` only. */
void api_answer_err(struct http_req *req, struct api *api, const struct err *err);

/* The names of states, in the order of the store's; NULL ends each. */
extern const char *const api_sandbox_states[], *const api_execution_states[];
/* An answer that is a page: {"key": [ ..., "nextCursor": ...}; the caller writes the members between the two. False:
 * err was the answer. */
bool api_list_begin(struct http_req *req, const struct err *err, struct jsonw *w, struct buf *out, const char *key);
void api_list_end(struct http_req *req, struct jsonw *w, const char *next);
void api_write_time(struct jsonw *w, const char *key, uint64_t ms); /* nothing when it is 0 */
void api_write_raw_json(struct jsonw *w, const char *key,
                        const char *json); /* a value that is JSON already; NULL: nothing */
void api_write_sandbox(const struct store_sandbox *row, struct jsonw *w);
bool api_is_terminal(const struct store_execution *row);
bool api_is_context_execution(const struct store_execution *row, char ret_id[ID_SIZE]);
void api_write_execution(const struct store_execution *row, struct jsonw *w); /* members; the object stays open */
void api_write_runtimes(struct jsonw *w);                                     /* "runtimes": [...] */

/* --- answers that are not taken yet (unread_responses.c) --- */

/* ERR_EXECUTOR_FULL: the tenant has too much of them. */
int unread_responses_check(const struct api *api, const char *owner, struct err *err);
void unread_responses_add(struct http_req *req, struct api *api, const char *owner,
                          uint64_t bytes); /* until the request is over */

/* --- answers that go on (open_streams.c) --- */

struct open_stream {
    struct api *api; /* NULL when it is over */
    struct open_stream *next, **list_link;
    char key_id[ID_SIZE], user[ID_SIZE], owner[STORE_OWNER_MAX + 1]; /* whose it is */
    bool is_delegated;                                               /* by something that was handed on */
    bool is_endless; /* nothing else would end it: a server that stops does not wait for it */
    struct ev_timer expiry_timer;
    void (*on_end)(void *arg, const struct err *why);
    void *arg;
};
/* From here until open_stream_unregister, `end` is called, once, when whoever asked may not hear more. */
void open_stream_register(struct open_stream *l, struct api *api, const struct principal *who,
                          void (*end)(void *arg, const struct err *why), void *arg);
void open_stream_unregister(struct open_stream *l);
void open_streams_end_delegated(struct api *api); /* what was handed on is worth nothing any more */

/* --- events (events.c) --- */

void event_streams_init(struct api *api);
void event_streams_done(struct api *api);
void api_write_event(struct jsonw *w, const struct store_event *e); /* members; without whose it is */

/* --- idempotency (idempotency.c) --- */

/* Decides whether a request that makes something is carried out. fresh: it is, with `id` for what it makes. Otherwise
 * `id` was made by an earlier request with the same key and body; look at it. On an error the request is answered. */
typedef void idempotency_fn(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg);
void idempotency_begin(struct http_req *req, struct api *api, const char kind[2], idempotency_fn *fn, void *arg,
                       void (*dropped)(void *arg));
/* What a fresh request makes is `now`, though `id` was chosen for it: a sandbox, whose work begins with this. */
void idempotency_set_resource(struct http_req *req, struct api *api, const char *id, const char *now);
void idempotency_release_key(struct http_req *req, struct api *api,
                             const struct err *why); /* it was refused: the key may be used again */

/* --- what is to be executed (execution_request.c) --- */

struct execution_request {
    json_t *body; /* owned */
    char **env;
    const char **argv;
    struct execution_spec spec; /* borrows from all of these */
};
extern const char *const execution_request_fields[]; /* of the fields; NULL ends it */
/* "command", a list of words: NULL when there is none; the words are borrowed, the caller frees the list. */
int execution_request_read_command(const json_t *body, const char ***ret, struct err *err);
int execution_request_read(struct execution_request *l, struct api *api, struct err *err);
void execution_request_done(struct execution_request *l);
int api_check_operator_limits(struct api *api, uint64_t timeout_ms, uint64_t output_max,
                              struct err *err); /* 0: not said */
int execution_request_read_tty_size(const json_t *body, uint16_t *rows, uint16_t *cols,
                                    struct err *err); /* what is absent stays */

/* --- executions of contexts, as a request and as a message (contexts.c) --- */

struct context_execution_spec;
/* What it reads is borrowed from the body. */
int api_context_read_call(const json_t *body, struct api *api, struct context_execution_spec *ret, struct err *err);
/* The answer to one that asks for a line: text, or NULL for the end of input. */
int api_context_read_input_line(const json_t *body, const char **ret, struct err *err);

/* --- output in JSON (output_chunk.c) --- */

/* A file of output to read: 1 with a descriptor in *ret; 0 when there is none, because nothing was written or it was
 * removed since; -1 when it is there and could not be opened, ERR_DESCRIPTORS or ERR_SYS. */
int output_chunk_open_file(struct api *api, const char *execution, int channel, int *ret, struct err *err);

/* Writes the bytes as a member: under text_key as far as they are text, otherwise all of them under "base64". Returns
 * how many it was. last: no more follows. */
size_t output_chunk_write_json(struct jsonw *w, const char *text_key, const char *data, size_t n, bool last);
bool output_chunk_is_partial_utf8(const char *data, size_t n); /* they are the beginning of a character, and no more */

/* --- what the kernel of a context told (kernel_events.c) --- */

/* The line at the offset without its end, and its type. False: there is none, or not all of it. */
bool kernel_events_read_line(int fd, uint64_t offset, struct buf *ret, char ret_type[16]);
/* "results": [...] and, if there was one, "exception": {...}. True: there is more than fits into an answer. */
bool kernel_events_write_results(struct api *api, const char *execution, struct jsonw *w);

/* --- terminals and signals (terminals.c) --- */

void terminal_resize(struct http_req *req, void *ctx);
void terminal_signal(struct http_req *req, void *ctx);
int terminal_read_signal(const json_t *body, int *ret, struct err *err); /* "signal": a name or a number */

/* --- standard input of an execution (stdin_upload.c) --- */

void stdin_upload_start(struct http_req *req, void *ctx);

/* --- following an execution (follow.c) --- */

enum follow_mode { FOLLOW_ANSWER, FOLLOW_NDJSON, FOLLOW_EVENTS, FOLLOW_RAW };
struct follow_spec {
    enum follow_mode mode;
    const char *sandbox, *execution;
    uint64_t offset[3]; /* of output, and of the events of a context */
    int channel;        /* FOLLOW_RAW: 1 or 2 */
    bool existing_only; /* FOLLOW_RAW: what is there now, and no more */
    bool cancel_first;  /* FOLLOW_ANSWER: end it first */
};
enum follow_mode follow_mode_of_request(const struct http_req *req);
/* Last-Event-ID of an execution's stream, NULL or "": none. */
int follow_read_offsets(const char *text, uint64_t offset[3], struct err *err);
/* Answers the request, now or when the execution has ended. */
void follow_execution(struct http_req *req, struct api *api, const struct follow_spec *spec);
/* The same for who has its row; of the spec, `execution` is not looked at. */
void follow_execution_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                          const struct store_execution *row);
/* The whole answer about an execution that has ended, or runs and is not followed. */
void follow_answer_row(struct http_req *req, struct api *api, int status, const struct store_execution *row,
                       bool output);
