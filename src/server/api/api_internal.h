/* api_internal.h - declarations shared by the files of this directory. No other directory includes
 * it. */
#pragma once

#include "server/api/api.h"

#include "server/audit/refusal_aggregator.h"
#include "server/audit/security.h"
#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "service/json_input.h"

#define API_STATUSES 6u /* index: first digit of the status; 0: the client disconnected */
#define API_ROUTES_MAX 160u

struct api_counter {
    const struct http_route *route;
    uint64_t requests[API_STATUSES];
    uint64_t duration_ns, bytes_in, bytes_out;
};

#define API_TARGETS_MAX 6u

/* The audit properties of a route (audit_actions.c). */
struct audit_action {
    const struct http_route *route;
    char name[64];
    bool is_change;       /* the route changes state, so a request must be recorded */
    bool record_success;  /* a successful request is recorded too */
    bool frees_resources; /* the route ends or removes an object: allowed in AUDIT_FULL */
};

/* The state of a request from authorization to response (audit_trail.c): http_user_data(). */
struct api_request {
    struct principal principal; /* first member: request_principal() returns its address */
    bool authenticated;         /* `principal` is filled in */
    bool admitted;              /* authorization succeeded */
    struct api *api;
    struct audit *audit; /* NULL: nothing is recorded */
    bool record_content;
    struct http_req *req;
    struct api_request *next, **list_link;
    const struct audit_action *action;
    uint64_t accepted_seq; /* number of its `accepted` record; 0: none */
    struct audit_wait record_wait;
    bool target_recorded; /* the targets in the path were added */
    /* Tenant of the sandbox that the request acts on, if it differs from the principal's; "": the
     * same. */
    char acted_on_tenant[STORE_OWNER_MAX + 1];
    struct audit_pair target[API_TARGETS_MAX];
    char *target_values[API_TARGETS_MAX];
    size_t ntarget;
    char *target_names[API_TARGETS_MAX]; /* copies of target names, owned by this request */
    size_t ntarget_names;
    struct buf details;                               /* a JSON object that is not closed yet */
    struct api_request *next_pending, **pending_link; /* list of requests whose outcome is not recorded yet */
};

struct api {
    struct api_settings settings;
    const struct http_server *server;
    struct unread_quota *unread_quotas; /* unread_responses.c */
    uint64_t started_ns, started_ms;    /* monotonic clock; wall clock */
    struct api_counter counters[API_ROUTES_MAX];
    size_t ncounters;
    bool backing_up;
    struct open_stream *open_streams; /* responses without a known end (open_streams.c) */
    struct event_tail *event_tail;    /* the latest events and their listeners (events.c) */
    struct event_stream *event_streams;
    struct audit_action *actions;
    size_t nactions;
    struct api_request *requests; /* requests in progress */
    /* Answered requests whose audit record is written after the response. */
    struct api_request *pending_records;
    struct ev_defer pending_records_defer;
    struct refusal_aggregator *refusals;
    struct ev_timer refusal_summary_timer;
    struct security *security;
    uint64_t security_event_counts[SECURITY_KINDS];
    struct pool_registry *pool_registry;          /* pools (pool_registry.h) */
    struct template_cache *template_cache;        /* templates */
    struct host_modules *host_modules;            /* Python modules that templates can preload */
    struct socket_execution *orphaned_executions; /* executions of closed sockets that await a store or manager reply */
};

/* The permission that a route requires: http_route.data. */
struct api_permission {
    uint32_t scopes;
    enum auth_class class;
    bool is_public; /* no credential is required */
    /* A credential limited to one sandbox may use the route although its path names no sandbox. */
    bool allows_sandbox_credential;
    bool allows_signed_url; /* a signed URL can grant access to the route */
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

/* --- the audit record of a request (audit_trail.c) --- */

/* For handlers. They add to the record: objects acted on besides those in the path; text; numbers;
 * the executed code or input, as a hash and a length unless api_settings.audit_content is set.
 * `name` and `key` are static strings that need no escaping. */
void audit_trail_add_target(const struct http_req *req, const char *name, const char *value);
void audit_trail_add_detail(const struct http_req *req, const char *key, const char *value);
void audit_trail_add_number(const struct http_req *req, const char *key, uint64_t value);
void audit_trail_add_content(const struct http_req *req, const char *key, const char *data, size_t len);
/* The same for an array of strings, stored as in /proc/PID/cmdline: each ends with a NUL. The array
 * ends with NULL and may be empty. */
void audit_trail_add_strings(const struct http_req *req, const char *key, const char *const *words);
/* Records `accepted` when the work begins; the record is written while the work goes on. */
void audit_trail_record_accepted(const struct http_req *req);
/* Records an action that has no HTTP request of its own, such as a message on a WebSocket. */
uint64_t audit_trail_record_action(struct api *api, const struct principal *principal, const char *address,
                                   const char *action, const char *outcome, const struct audit_pair *target,
                                   size_t ntarget, const char *details);

/* For authorization. */
struct api_request *audit_trail_new_request(struct api *api, struct http_req *req);
void audit_trail_resolve_tenant(struct api_request *r); /* sets `acted_on_tenant`; the principal is known */
/* The last check of authorization. ERR_AUDIT: the request cannot be recorded. */
int audit_trail_can_record(struct api_request *r, struct err *err);
void audit_trail_unrouted_request(struct api *api, const struct http_request_summary *done);
/* True: write a record for this refusal. False: the refusal was added to a counter. */
bool audit_trail_should_record(struct api *api, const struct refusal_key *k);
void audit_trail_flush_pending(struct api *api); /* records the pending outcomes that are due */
void audit_trail_init(struct api *api);
void audit_trail_done(struct api *api);
void audit_action_of_route(const struct http_route *r, struct audit_action *ret);

/* --- security events (security.c) --- */

void api_security_refusal(struct api *api, const struct refusal_key *k);
void api_security_metrics(const struct api *api, struct buf *out);

/* Frees all orphaned executions without a reply; for shutdown. */
void socket_executions_free_orphans(struct api *api);

/* --- the principal of a request --- */

const struct principal *request_principal(const struct http_req *req);
const char *request_tenant(const struct http_req *req);        /* the tenant that owns new objects */
const char *request_actor_id(const struct http_req *req);      /* user or key id, for records; "": the local owner */
const char *request_visible_owner(const struct http_req *req); /* visible tenant; STORE_ANY_OWNER for admin */

/* --- requests --- */

/* Reads the body as a JSON object; the caller owns it. */
int api_read_body(const struct http_req *req, json_t **ret, struct err *err);
/* Reads a list of scopes under this name and ORs them into *ret. An absent list changes nothing. */
int api_read_scopes(const json_t *body, const char *name, uint32_t *ret, struct err *err);
bool api_is_valid_slug(const char *name); /* of a tenant or a role */
/* Reads limit and cursor. Query names other than these two and `names` (NULL-terminated, at most 8)
 * are refused. */
int api_read_page(const struct http_req *req, const char *const *names, struct store_list *q, struct err *err);
/* Reads ?state=NAME as a set with one element; an absent parameter leaves *ret unchanged. */
int api_read_state_query(const struct http_req *req, const char *const *names, uint32_t *ret, struct err *err);
/* For routes without query parameters: refuses any. */
int api_require_no_query(const struct http_req *req, struct err *err);

/* Reads the id in the path. A malformed id is ERR_MISSING, like an unknown one. */
int api_read_sandbox_id(const struct http_req *req, const char **ret, struct err *err);
int api_read_execution_id(const struct http_req *req, const char **ret, struct err *err);

/* --- responses --- */

/* Answers with an error of the manager; ERR_QUOTA adds the quota, its value and the retry time of
 * err->limit. */
void api_answer_err(struct http_req *req, const struct err *err);

/* State names, in the order of the store's enums; each array ends with NULL. */
extern const char *const api_sandbox_states[], *const api_execution_states[];
/* A response that is a page: {"key": [ ..., "nextCursor": ...}. The caller writes the list items
 * between the two calls. False: err was sent as the response. */
bool api_list_begin(struct http_req *req, const struct err *err, struct jsonw *w, struct buf *out, const char *key);
void api_list_end(struct http_req *req, struct jsonw *w, const char *next);
void api_write_time(struct jsonw *w, const char *key, uint64_t ms);          /* 0: writes nothing */
void api_write_raw_json(struct jsonw *w, const char *key, const char *json); /* an encoded JSON value; NULL: nothing */
void api_write_sandbox(const struct store_sandbox *row, struct jsonw *w);
void api_write_execution(const struct store_execution *row, struct jsonw *w); /* the caller closes the object */
void api_write_runtimes(struct jsonw *w);                                     /* "runtimes": [...] */

/* --- responses that clients have not read yet (unread_responses.c) --- */

/* ERR_EXECUTOR_FULL: the tenant has too many unread bytes. */
int unread_responses_check(const struct api *api, const char *owner, struct err *err);
void unread_responses_add(struct http_req *req, struct api *api, const char *owner,
                          uint64_t bytes); /* counted until the request ends */

/* --- responses without a known end (open_streams.c) --- */

struct open_stream {
    struct api *api; /* NULL after the end */
    struct open_stream *next, **list_link;
    char key_id[ID_SIZE], user[ID_SIZE], owner[STORE_OWNER_MAX + 1]; /* credential and tenant */
    bool is_delegated;                                               /* opened with a delegated token */
    bool is_endless; /* ends only when closed: a draining server closes it instead of waiting */
    struct ev_timer expiry_timer;
    void (*on_end)(void *arg, const struct err *why);
    void *arg;
};
/* From this call until open_stream_unregister, `end` is called at most once: when the credential is
 * revoked or expires, or when the server stops. */
void open_stream_register(struct open_stream *l, struct api *api, const struct principal *principal,
                          void (*end)(void *arg, const struct err *why), void *arg);
void open_stream_unregister(struct open_stream *l);
void open_streams_end_delegated(struct api *api); /* after all delegated tokens were revoked */

/* --- events (events.c) --- */

void event_streams_init(struct api *api);
void event_streams_done(struct api *api);
void api_write_event(struct jsonw *w, const struct store_event *e); /* writes members, without the tenant */

/* --- idempotency (idempotency.c) --- */

/* Decides whether a request that creates an object is carried out. fresh: it is, and the new object
 * gets `id`. Otherwise an earlier request with the same key and body created `id`; answer with that
 * object. After an error, the request is already answered. */
typedef void idempotency_fn(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg);
void idempotency_begin(struct http_req *req, struct api *api, const char kind[2], idempotency_fn *fn, void *arg,
                       void (*dropped)(void *arg));
/* Records that a fresh request creates `now` instead of the chosen `id`. Used when the object is an
 * existing sandbox, whose execution starts with this request. */
void idempotency_set_resource(struct http_req *req, struct api *api, const char *id, const char *now);
void idempotency_release_key(struct http_req *req, struct api *api,
                             const struct err *why); /* refused: the key becomes free again */

/* --- the description of an execution (execution_request.c) --- */

struct execution_request {
    json_t *body; /* owned */
    char **env;
    const char **argv;
    struct execution_spec spec; /* borrows from the fields above */
};
extern const char *const execution_request_fields[]; /* names of the JSON fields, NULL-terminated */
/* Reads "command", a list of arguments: NULL if absent. The strings are borrowed; the caller frees
 * the array. */
int execution_request_read_command(const json_t *body, const char ***ret, struct err *err);
int execution_request_read(struct execution_request *l, struct api *api, struct err *err);
void execution_request_done(struct execution_request *l);
int api_check_operator_limits(struct api *api, uint64_t timeout_ms, uint64_t output_max,
                              struct err *err); /* 0: not given */
int execution_request_read_tty_size(const json_t *body, uint16_t *rows, uint16_t *cols,
                                    struct err *err); /* absent fields stay unchanged */

/* --- executions in contexts, from a request or a WebSocket message (contexts.c) --- */

struct context_execution_spec;
/* *ret borrows from the body. */
int api_context_read_call(const json_t *body, struct api *api, struct context_execution_spec *ret, struct err *err);
/* Reads the reply to an execution that requested a line of input: text, or NULL for end of
 * input. */
int api_context_read_input_line(const json_t *body, const char **ret, struct err *err);

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
    uint64_t offset[3]; /* of stdout, stderr and context events */
    int channel;        /* FOLLOW_RAW: 1 or 2 */
    bool existing_only; /* FOLLOW_RAW: end at the bytes that exist now */
    bool cancel_first;  /* FOLLOW_ANSWER: cancel the execution first */
};
enum follow_mode follow_mode_of_request(const struct http_req *req);
/* Reads the Last-Event-ID of an execution's stream; NULL or "": none. */
int follow_read_offsets(const char *text, uint64_t offset[3], struct err *err);
/* Answers the request now, or after the execution has ended. */
void follow_execution(struct http_req *req, struct api *api, const struct follow_spec *spec);
/* The same for a caller that already has the row; spec->execution is ignored. */
void follow_execution_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                          const struct store_execution *row);
/* Sends the complete response for an execution that has ended, or that runs and is not followed. */
void follow_answer_row(struct http_req *req, struct api *api, int status, const struct store_execution *row,
                       bool output);
