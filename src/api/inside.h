/* inside.h - what the files of this room share. Nothing outside includes it. */
#pragma once

#include "api/api.h"

#include "audit/flood.h"
#include "audit/security.h"
#include "base/buf.h"
#include "base/jsonw.h"
#include "sandbox/body.h"

#define API_STATUSES 6u /* by the first digit; 0 is "the client left" */
#define API_ROUTES_MAX 160u

struct api_counter {
    const struct http_route *route;
    uint64_t requests[API_STATUSES];
    uint64_t duration_ns, bytes_in, bytes_out;
};

#define API_TARGETS_MAX 6u

/* What a route does (action.c). */
struct api_action {
    const struct http_route *route;
    char name[64];
    bool changes; /* something, so it needs a record */
    bool told;    /* it is recorded also when it succeeds */
    bool relief;  /* it ends or removes something: allowed as long as there is any room for its record */
};

/* A request from the gate to its answer (record.c): http_user(). */
struct api_request {
    struct principal who; /* first: api_who() is this */
    bool known;           /* who is */
    bool admitted;        /* the gate let it in */
    struct api *api;
    struct audit *audit; /* NULL: nothing is recorded */
    bool content;
    struct http_req *req;
    struct api_request *next, **at;
    const struct api_action *action;
    uint64_t seq; /* of the record that it was accepted; 0: none */
    struct audit_wait wait;
    bool named;                         /* its target was told */
    char guest_of[STORE_OWNER_MAX + 1]; /* the tenant of the sandbox that it acts on, when that is not its own */
    struct audit_pair target[API_TARGETS_MAX];
    char *target_values[API_TARGETS_MAX];
    size_t ntarget;
    char *names[API_TARGETS_MAX]; /* of targets, where they are ours */
    size_t nnames;
    struct buf details;                     /* an object that is still open */
    struct api_request *next_due, **due_at; /* its outcome is still to be recorded */
};

struct api {
    struct api_settings set;
    const struct http_server *server;
    struct untaken *untaken;         /* untaken.c */
    uint64_t started_ns, started_ms; /* monotonic; of the calendar */
    struct api_counter counters[API_ROUTES_MAX];
    size_t ncounters;
    bool backing_up;
    struct api_live *lives; /* answers that go on (live.c) */
    struct api_tail *tail;  /* the latest events, and who listens to them (events.c) */
    struct stream *streams;
    struct api_action *actions;
    size_t nactions;
    struct api_request *requests; /* that are not over */
    struct api_request *due;      /* that were answered, and whose record is written behind the answer */
    struct ev_defer record_due;
    struct flood *flood;
    struct ev_timer flood_timer;
    struct security *security;
    uint64_t alarms[SECURITY_KINDS];
    struct warm *warm;      /* pools (warm.h) */
    struct shelf *shelf;    /* templates */
    struct attach *orphans; /* of sockets that are gone, waiting for an answer */
};

/* What a route demands: http_route.data. */
struct api_right {
    uint32_t scopes;
    enum auth_class class;
    bool open;     /* nobody is asked who they are */
    bool anywhere; /* for those too who reach one sandbox only, though it names none */
    bool by_url;   /* a signed URL may be for it */
};
extern const struct api_right api_open, api_any, api_read, api_write, api_create, api_run, api_runs, api_runs_read,
    api_files, api_files_read, api_file_get, api_file_put, api_keys, api_self, api_admin, api_metrics, api_audit,
    api_usage, api_tenant;

extern const struct http_route sandbox_routes[], execution_routes[], file_routes[], catalogue_routes[],
    template_routes[], key_routes[], service_routes[], upkeep_routes[], event_routes[], token_routes[], socket_routes[],
    audit_routes[], usage_routes[], budget_routes[], top_routes[], tenant_routes[], member_routes[], context_routes[],
    pool_routes[], execute_routes[];

/* --- the record of a request (record.c) --- */

/* For handlers. What was acted on, beside what the path names; text about it; what was run, told by hash and length
 * unless the operator wants it whole. Names are static and plain. */
void api_audit_target(const struct http_req *req, const char *name, const char *value);
void api_audit_detail(const struct http_req *req, const char *key, const char *value);
void api_audit_number(const struct http_req *req, const char *key, uint64_t value);
void api_audit_content(const struct http_req *req, const char *key, const char *data, size_t len);
/* The same of words, as they would stand in /proc: each ended by a NUL. NULL ends them, and may be all there is. */
void api_audit_words(const struct http_req *req, const char *key, const char *const *words);
/* The work begins: a first record says `accepted`, and is written while the work goes on. */
void api_audit_begin(const struct http_req *req);
/* Something that was done without a request of its own: inside a connection that stays open. */
uint64_t api_audit_act(struct api *api, const struct principal *who, const char *address, const char *action,
                       const char *outcome, const struct audit_pair *target, size_t ntarget, const char *details);

/* For the gate. */
struct api_request *api_record_new(struct api *api, struct http_req *req);
void api_record_place(struct api_request *r); /* who it is is known: where do they act? */
/* The gate's last question. ERR_AUDIT: it could not be recorded. */
int api_record_may(struct api_request *r, struct err *err);
void api_record_stray(struct api *api, const struct http_done *done);
/* Whether a record of this kind stands for itself; otherwise it was counted. */
bool api_record_single(struct api *api, const struct flood_kind *k);
void api_record_settle(struct api *api); /* those that are due are recorded */
void api_record_init(struct api *api);
void api_record_done(struct api *api);
void action_of(const struct http_route *r, struct api_action *ret);

/* --- security events (security.c) --- */

void api_security_refusal(struct api *api, const struct flood_kind *k);
void api_security_metrics(const struct api *api, struct buf *out);

/* What still waits for an answer gets none: for the end. */
void attach_done(struct api *api);

/* --- who --- */

const struct principal *api_who(const struct http_req *req);
const char *api_owner(const struct http_req *req); /* of what they make */
const char *api_by(const struct http_req *req);    /* the user or the key, for records; "": the local owner */
const char *api_sees(const struct http_req *req);  /* whose things they reach: their own, or everybody's with admin */

/* --- requests --- */

/* The body as an object; the caller owns it. */
int api_body(const struct http_req *req, json_t **ret, struct err *err);
/* A list of scopes by this name, OR'ed into *ret; nothing when there is none. */
int api_scopes(const json_t *body, const char *name, uint32_t *ret, struct err *err);
bool api_slug_ok(const char *name); /* of a tenant or a role */
/* limit and cursor, and no query name but those and `names` (NULL-terminated, at most 8). */
int api_page(const struct http_req *req, const char *const *names, struct store_list *q, struct err *err);
/* The id in the path. MISSING when it is none: nothing else is said of it. */
/* ?state=NAME as a set of one, left alone when it is not asked for. */
int api_query_state(const struct http_req *req, const char *const *names, uint32_t *ret, struct err *err);
/* For routes without query parameters: any is refused. */
int api_no_query(const struct http_req *req, struct err *err);

int api_sandbox_id(const struct http_req *req, const char **ret, struct err *err);
int api_execution_id(const struct http_req *req, const char **ret, struct err *err);

/* --- answers --- */

/* An error of the manager; with ERR_QUOTA also which, how much and until when. In its `done` only. */
void api_refuse(struct http_req *req, struct api *api, const struct err *err);

/* The names of states, in the order of the store's; NULL ends each. */
extern const char *const api_sandbox_states[], *const api_execution_states[];
/* An answer that is a page: {"key": [ ..., "nextCursor": ...}; the caller writes the members between the two. False:
 * err was the answer. */
bool api_list_begin(struct http_req *req, const struct err *err, struct jsonw *w, struct buf *out, const char *key);
void api_list_end(struct http_req *req, struct jsonw *w, const char *next);
void api_time(struct jsonw *w, const char *key, uint64_t ms);     /* nothing when it is 0 */
void api_raw(struct jsonw *w, const char *key, const char *json); /* a value that is JSON already; NULL: nothing */
void api_sandbox_json(const struct store_sandbox *row, struct jsonw *w);
bool api_is_terminal(const struct store_execution *row);
bool api_is_of_context(const struct store_execution *row, char ret_id[ID_SIZE]);
void api_execution_json(const struct store_execution *row, struct jsonw *w); /* members; the object stays open */
void api_runtimes_json(struct jsonw *w);                                     /* "runtimes": [...] */

/* --- answers that are not taken yet (untaken.c) --- */

/* ERR_EXECUTOR_FULL: the tenant has too much of them. */
int untaken_check(const struct api *api, const char *owner, struct err *err);
void untaken_add(struct http_req *req, struct api *api, const char *owner,
                 uint64_t bytes); /* until the request is over */

/* --- answers that go on (live.c) --- */

struct api_live {
    struct api *api; /* NULL when it is over */
    struct api_live *next, **at;
    char key_id[ID_SIZE], user[ID_SIZE], owner[STORE_OWNER_MAX + 1]; /* whose it is */
    bool passed;                                                     /* by something that was handed on */
    bool endless; /* nothing else would end it: a server that stops does not wait for it */
    struct ev_timer expiry;
    void (*end)(void *arg, const struct err *why);
    void *arg;
};
/* From here until live_done, `end` is called, once, when whoever asked may not hear more. */
void live_begin(struct api_live *l, struct api *api, const struct principal *who,
                void (*end)(void *arg, const struct err *why), void *arg);
void live_done(struct api_live *l);
void live_end_passed(struct api *api); /* what was handed on is worth nothing any more */

/* --- events (events.c) --- */

void events_init(struct api *api);
void events_done(struct api *api);
void api_event_json(struct jsonw *w, const struct store_event *e); /* members; without whose it is */

/* --- idempotency (idem.c) --- */

/* Decides whether a request that makes something is carried out. fresh: it is, with `id` for what it makes. Otherwise
 * `id` was made by an earlier request with the same key and body; look at it. On an error the request is answered. */
typedef void idem_fn(struct http_req *req, struct api *api, bool fresh, const char *id, void *arg);
void idem_begin(struct http_req *req, struct api *api, const char kind[2], idem_fn *fn, void *arg,
                void (*dropped)(void *arg));
/* What a fresh request makes is `now`, though `id` was chosen for it: a sandbox, whose work begins with this. */
void idem_named(struct http_req *req, struct api *api, const char *id, const char *now);
void idem_undo(struct http_req *req, struct api *api,
               const struct err *why); /* it was refused: the key may be used again */

/* --- what is to be executed (launch.c) --- */

struct launch {
    json_t *body; /* owned */
    char **env;
    const char **argv;
    struct execution_spec spec; /* borrows from all of these */
};
extern const char *const launch_names[]; /* of the fields; NULL ends it */
/* "command", a list of words: NULL when there is none; the words are borrowed, the caller frees the list. */
int launch_words(const json_t *body, const char ***ret, struct err *err);
int launch_read(struct launch *l, struct api *api, struct err *err);
void launch_done(struct launch *l);
int api_floor(struct api *api, uint64_t timeout_ms, uint64_t output_max, struct err *err); /* 0: not said */
int launch_size(const json_t *body, uint16_t *rows, uint16_t *cols, struct err *err);      /* what is absent stays */

/* --- executions of contexts, as a request and as a message (contexts.c) --- */

struct context_call;
/* What it reads is borrowed from the body. */
int context_call_read(const json_t *body, struct api *api, struct context_call *ret, struct err *err);
/* The answer to one that asks for a line: text, or NULL for the end of input. */
int context_line_read(const json_t *body, const char **ret, struct err *err);

/* --- output in JSON (piece.c) --- */

/* A file of output to read: 1 with a descriptor in *ret; 0 when there is none, because nothing was written or it was
 * removed since; -1 when it is there and could not be opened, ERR_DESCRIPTORS or ERR_SYS. */
int piece_open(struct api *api, const char *execution, int channel, int *ret, struct err *err);

/* Writes the bytes as a member: under text_key as far as they are text, otherwise all of them under "base64". Returns
 * how many it was. last: no more follows. */
size_t piece_json(struct jsonw *w, const char *text_key, const char *data, size_t n, bool last);
bool piece_waits(const char *data, size_t n); /* they are the beginning of a character, and no more */

/* --- what the kernel of a context told (told.c) --- */

/* The line at the offset without its end, and its type. False: there is none, or not all of it. */
bool told_line(int fd, uint64_t offset, struct buf *ret, char ret_type[16]);
/* "results": [...] and, if there was one, "exception": {...}. True: there is more than fits into an answer. */
bool told_results(struct api *api, const char *execution, struct jsonw *w);

/* --- terminals and signals (terminals.c) --- */

void terminal_resize(struct http_req *req, void *ctx);
void terminal_signal(struct http_req *req, void *ctx);
int terminal_signo(const json_t *body, int *ret, struct err *err); /* "signal": a name or a number */

/* --- standard input of an execution (input.c) --- */

void input_write(struct http_req *req, void *ctx);

/* --- following an execution (follow.c) --- */

enum follow_mode { FOLLOW_ANSWER, FOLLOW_NDJSON, FOLLOW_EVENTS, FOLLOW_RAW };
struct follow_spec {
    enum follow_mode mode;
    const char *sandbox, *execution;
    uint64_t offset[3]; /* of output, and of the events of a context */
    int channel;        /* FOLLOW_RAW: 1 or 2 */
    bool once;          /* FOLLOW_RAW: what is there now, and no more */
    bool kill;          /* FOLLOW_ANSWER: end it first */
};
enum follow_mode follow_mode(const struct http_req *req);
/* Last-Event-ID of an execution's stream, NULL or "": none. */
int follow_offsets(const char *text, uint64_t offset[3], struct err *err);
/* Answers the request, now or when the execution has ended. */
void follow(struct http_req *req, struct api *api, const struct follow_spec *spec);
/* The same for who has its row; of the spec, `execution` is not looked at. */
void follow_row(struct http_req *req, struct api *api, const struct follow_spec *spec,
                const struct store_execution *row);
/* The whole answer about an execution that has ended, or runs and is not followed. */
void follow_answer(struct http_req *req, struct api *api, int status, const struct store_execution *row, bool output);
