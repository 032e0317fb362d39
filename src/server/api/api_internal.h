/* api_internal.h - declarations shared by the files of this directory. No other directory includes
 * it. */
#pragma once

#include "server/api/api.h"

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "server/gateway/audit_trail.h"
#include "server/gateway/idempotency.h"
#include "server/gateway/open_streams.h"
#include "server/gateway/security_events.h"
#include "server/gateway/unread_responses.h"
#include "core/doc/json_input.h"
#include "service/validate/code_report.h"
#include "service/stored_output.h"

struct api {
    struct api_settings settings;
    const struct http_server *server;
    uint64_t started_ns; /* monotonic clock */
    bool backing_up;
    uint64_t tier_answers[TIER_AUTO + 1]; /* answers of POST /v1/execute by tier; NONE: refused by the check */
    struct event_tail *event_tail;        /* the latest events and their listeners (events.c) */
    struct event_stream *event_streams;
    struct pool_registry *pool_registry;          /* pools (pool_registry.h) */
    struct template_cache *template_cache;        /* templates */
    struct host_modules *host_modules;            /* Python modules that templates can preload */
    uint64_t calculations[4];                     /* requests to compute an expression, by outcome (calculate.c) */
    struct socket_execution *orphaned_executions; /* executions of closed sockets that await a store or manager reply */
};

extern const struct gateway_permission permission_public, permission_authenticated, permission_sandboxes_read,
    permission_sandboxes_write, permission_sandbox_create, permission_execute, permission_executions,
    permission_executions_read, permission_executions_list, permission_files, permission_files_read,
    permission_file_download, permission_file_upload, permission_keys, permission_self, permission_admin,
    permission_metrics, permission_audit, permission_usage, permission_tenant, permission_secrets;

extern const struct http_route docs_routes[], sandbox_routes[], execution_routes[], file_routes[], capability_routes[],
    template_routes[], key_routes[], health_metrics_routes[], maintenance_routes[], event_routes[], token_routes[],
    sandbox_socket_routes[], audit_routes[], usage_routes[], budget_routes[], live_usage_routes[], tenant_routes[],
    user_routes[], context_routes[], pool_routes[], execute_routes[], validate_routes[], calculate_routes[],
    tool_routes[], script_routes[], secret_routes[], sandbox_network_routes[];

/* Frees all orphaned executions without a reply; for shutdown. */
void socket_executions_free_orphans(struct api *api);

/* --- secrets (secrets.c) --- */

void secrets_write_metrics(const struct api *api, struct buf *out);
void secrets_write_capabilities(const struct api *api, struct jsonw *w);

/* --- the calculator (calculate.c) --- */

void calculate_write_metrics(const struct api *api, struct buf *out);
void calculate_write_capabilities(struct jsonw *w);

/* --- requests --- */

/* Zeroed memory for the state of a request, freed with the request. */
#define api_request_new(req, type) ((type *)api_request_alloc((req), sizeof(type)))
void *api_request_alloc(struct http_req *req, size_t size);

/* Reads the body as a JSON object; the caller owns it. */
int api_read_body(const struct http_req *req, json_t **ret, struct err *err);
/* Reads a list of scopes under this name and ORs them into *ret. An absent list changes nothing. */
int api_read_scopes(const json_t *body, const char *name, uint32_t *ret, struct err *err);
bool api_is_valid_slug(const char *name);              /* of a tenant, a role, a pool or a template */
int api_check_slug(const char *name, struct err *err); /* the same for the field "name"; NULL: it is absent */
/* Reads limit and cursor. Query names other than these two and `names` (NULL-terminated, at most 8)
 * are refused. */
int api_read_page(const struct http_req *req, const char *const *names, struct store_list *q, struct err *err);
/* Reads a repeated parameter as a set: ?state=running&state=paused, or all but some: ?state=!ended.
 * An absent parameter leaves *ret unchanged. */
int api_read_set_query(const struct http_req *req, const char *param, const char *const *names, uint32_t *ret,
                       struct err *err);
/* For routes without query parameters. False: the request was refused. */
bool api_has_no_query(struct http_req *req);
/* The id in the path of a route without query parameters: "userId", "us", "user". NULL: the request
 * was refused. A malformed id is ERR_MISSING, like an unknown one. */
const char *api_id_or_refuse(struct http_req *req, const char *param, const char *prefix, const char *noun);

/* Reads the id in the path. A malformed id is ERR_MISSING, like an unknown one. */
int api_read_sandbox_id(const struct http_req *req, const char **ret, struct err *err);
int api_read_execution_id(const struct http_req *req, const char **ret, struct err *err);

/* Adds the rules of a network to the audit record; without rules, nothing. */
void api_record_network(const struct http_req *req, const struct network_policy *network);

/* --- responses --- */

/* State names, in the order of the store's enum; ends with NULL. */
extern const char *const api_sandbox_states[];
/* For calls whose reply has no row; arg is the request: 204, or the error. */
void api_answer_done(void *arg, const struct err *err);
/* A response that is one object; the caller writes its members between the two calls. */
void api_object_begin(struct jsonw *w, struct buf *out);
void api_object_end(struct http_req *req, int status, struct jsonw *w);
/* A page of a list: {"items": [ ..., "nextCursor": ...}. The caller writes the items between the
 * two calls; next: NULL on the last page. */
void api_page_begin(struct jsonw *w, struct buf *out);
void api_page_end(struct jsonw *w, const char *next);
/* The same as a response. False: err was sent as the response. */
bool api_list_begin(struct http_req *req, const struct err *err, struct jsonw *w, struct buf *out);
void api_list_end(struct http_req *req, struct jsonw *w, const char *next);
void api_write_time(struct jsonw *w, const char *key, uint64_t ms);          /* 0: writes nothing */
void api_write_raw_json(struct jsonw *w, const char *key, const char *json); /* an encoded JSON value; NULL: nothing */
void api_write_sandbox(const struct store_sandbox *row, struct jsonw *w);

/* --- events (events.c) --- */

void event_streams_init(struct api *api);
void event_streams_done(struct api *api);

/* --- starting an execution, in a context if the path names one (executions.c) --- */

void api_execution_create(struct http_req *req, void *ctx);

/* --- the description of an execution (execution_request.c) --- */

struct execution_request {
    json_t *body; /* owned */
    char **env;
    const char **argv;
    struct execution_spec spec; /* borrows from the fields above */
};
extern const char *const execution_request_fields[]; /* names of the JSON fields, NULL-terminated */
/* Reads "command", a list of arguments or a line for the shell: NULL if absent. The strings are
 * borrowed; the caller frees the array. */
int execution_request_read_command(const json_t *body, const char ***ret, struct err *err);
int execution_request_read(struct execution_request *l, struct api *api, struct err *err);
void execution_request_done(struct execution_request *l);
int api_read_receipt_detail(const json_t *body, enum receipt_detail *ret, struct err *err); /* "receipt" */
int api_check_operator_limits(struct api *api, uint64_t timeout_ms, uint64_t output_max,
                              struct err *err); /* 0: not given */
int execution_request_read_tty_size(const json_t *body, uint16_t *rows, uint16_t *cols,
                                    struct err *err); /* absent fields stay unchanged */

/* --- executions in contexts, from a request or a WebSocket message (contexts.c) --- */

/* Of a route without query parameters; ret_context may be NULL. */
int api_context_read_ids(const struct http_req *req, const char **ret_sandbox, const char **ret_context,
                         struct err *err);
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
    enum receipt_detail receipt;
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
                       struct execution_view view);
