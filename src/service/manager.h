/* manager.h - the sandboxes of one server: creation, executions, ends.
 *
 * The manager owns no state that a kill of this process could destroy. Sandboxes belong to the
 * jailer and outlive this process, rows belong to the store, output is in files. The next manager
 * adopts the sandboxes that still live and records the end of the others.
 *
 * Every call answers through `done`, exactly once, in the loop, after the call has returned.
 * Success means committed: the result survives kill -9 of this process. Rows are borrowed for the
 * duration of the callback. Every call names an owner and sees only that owner's objects
 * (STORE_ANY_OWNER: all objects); the id of an object of another owner is ERR_MISSING. A call on a
 * sandbox that has ended fails with ERR_SANDBOX_ENDED and the reason of the end. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/histogram.h"
#include "core/base/id.h"
#include "sandbox/engine.h"
#include "sandbox/files.h"
#include "core/ev/ev.h"
#include "sandbox/pool/pools.h"
#include "service/budget.h"
#include "service/quota.h"
#include "service/retention.h"
#include "service/secrets.h"
#include "service/sandbox_update.h"
#include "service/spec.h"
#include "store/usage.h"

struct manager;

struct manager_settings {
    struct store *store;    /* borrowed */
    const char *output_dir; /* an existing directory for the output of executions; borrowed for manager_new */
    /* Connects to the jailer and to the monitor. *ret_monitor may be -1: then the jailer is asked
     * for a connection to the monitor. The manager takes both sockets. Called at the start and
     * again after the connection to the jailer was lost. */
    int (*connect)(void *arg, int *ret_jailer, int *ret_monitor, struct err *err);
    /* Reports a sandbox that ended without being deleted: it reached a limit or was lost. May be
     * NULL. */
    void (*on_end)(void *arg, const char *id, const char *owner, enum ended_by by, const struct err *why);
    /* Reports the denials of an execution that has ended, or of a context's language kernel, whose
     * receipt names no execution. May be NULL. */
    void (*on_denials)(void *arg, const char *owner, const struct receipt *r);
    /* Reports the receipt of an execution for which the egress proxy refused destinations. May be
     * NULL. */
    void (*on_refused_destinations)(void *arg, const char *owner, const struct receipt *r);
    /* Reports that the egress proxy added a secret to requests of a sandbox. May be NULL. */
    void (*on_secret_used)(void *arg, const char *owner, const char *sandbox, const char *name, const char *host,
                           uint32_t count);
    void *arg;
    struct secrets *secrets;          /* borrowed; NULL: rules that name secrets are refused */
    const char *egress_socket;        /* of the egress proxy; borrowed; NULL: sandboxes have no network */
    struct egress_share egress_share; /* of the proxy, for each sandbox */
    struct pools *pools;              /* borrowed; prepared sandboxes come from it. NULL: the manager makes its own */
    uint32_t live_max;                /* live sandboxes per tenant without a quota for them; 0: unlimited */
    uint32_t executions_max;          /* concurrent executions per sandbox; above 0 */
    uint32_t creating_max;            /* sandboxes created at the same time; more wait in a fair queue; above 0 */
    uint32_t starting_max;            /* executions started at the same time; more wait in a fair queue; above 0 */
    uint64_t required_limits;         /* bit per limit: refuse a host that cannot enforce it completely */
    bool require_all_walls;           /* refuse sandboxes without the walls that only root can raise */
    bool sync_full;                   /* acknowledged changes survive a power loss: the store's setting */
};

/* Immediately begins to load the live rows of the store and to adopt the live sandboxes. */
int manager_new(struct ev *ev, const struct manager_settings *set, struct manager **ret, struct err *err);
/* For shutdown: answers every pending call with an error while its caller still exists. No call may
 * be made afterwards. */
void manager_finish(struct manager *m);
/* Frees the manager; sandboxes live on. Pending calls are not answered. Call it before the store is
 * closed. */
void manager_free(struct manager *m);
DEFINE_AUTO(manager, manager_free);

/* Ends every sandbox with this reason, as if each had been deleted. `done` runs when all sandboxes
 * are destroyed and their ends are committed. For a server that stops permanently, after the last
 * request. */
void manager_end_all(struct manager *m, const struct err *why, void (*done)(void *arg), void *arg);

/* Whether sandboxes can be created. If not, *ret_why says why. */
bool manager_ready(const struct manager *m, const char **ret_why);

/* Why sandboxes cannot have a network now; NULL: they can. */
const char *manager_egress_absent_why(const struct manager *m);

/* Its objects, which live as long as the manager. */
struct host_modules *manager_host_modules(struct manager *m);
struct tenant_quotas *manager_quotas(const struct manager *m);
struct budgets *manager_budgets(const struct manager *m);
struct retention *manager_retention(const struct manager *m);
struct ephemeral_sandboxes *manager_ephemerals(struct manager *m);
struct live_sandboxes *manager_live_sandboxes(struct manager *m);

/* --- sandboxes --- */

/* Creates a sandbox. id: chosen by the caller ("sb..."), or NULL. named: if not NULL, the sandbox
 * may be a pool member, which already has an id; `named` receives that id before anything is stored
 * under it, unless the creation fails earlier. named NULL: a chosen id is kept. spec: finished; the
 * call takes it and leaves it empty. template: a name to record, or NULL. */
typedef void manager_id_assigned_fn(void *arg, const char *id);
void manager_create(struct manager *m, const char *owner, const char *id, struct spec *spec, const char *template,
                    manager_id_assigned_fn *named, store_sandbox_fn *done, void *arg);
void manager_pause(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
void manager_resume(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
/* The call copies the update. ERR_EXISTS: another sandbox has the name, and nothing is changed. */
void manager_update(struct manager *m, const char *owner, const char *id, const struct sandbox_update *update,
                    store_sandbox_fn *done, void *arg);
/* A sandbox that has already ended is a success: `done` receives its row. */
void manager_delete(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
void manager_sandbox_usage(struct manager *m, const char *owner, const char *id, sandbox_handle_usage_fn *done,
                           void *arg);
/* The open connections of a sandbox to hosts outside. */
void manager_sandbox_connections(struct manager *m, const char *owner, const char *id,
                                 sandbox_handle_connections_fn *done, void *arg);

/* Returns the handle of a running sandbox, for requests of sandbox/files.h that begin before `done`
 * returns. A sandbox that was paused because it was idle is resumed; a sandbox that was paused by a
 * request answers ERR_SANDBOX_PAUSED. The sandbox is not idle until manager_release_sandbox. */
typedef void manager_acquire_fn(void *arg, struct sandbox_handle *sandbox, const struct err *err);
void manager_acquire_sandbox(struct manager *m, const char *owner, const char *id, manager_acquire_fn *done, void *arg);
void manager_release_sandbox(struct manager *m, const char *id); /* once per success; the sandbox may be gone */
/* Whether the sandbox lives. True for an unknown id while the store is still being read. */
bool manager_sandbox_is_live(const struct manager *m, const char *owner, const char *id);

/* Reads the spec from row->spec_json. The caller calls spec_done. */
int manager_read_stored_spec(const struct store_sandbox *row, struct spec *ret, struct err *err);

/* Observes a sandbox that has not ended. `fn` runs from the loop: with `ended` NULL when the
 * sandbox was paused or resumed; with the reason when its end is committed, after the ends of its
 * executions. After that the subscription is inactive, but its owner still frees it. */
struct sandbox_subscription;
typedef void sandbox_subscription_fn(void *arg, const struct err *ended);
/* NULL with *err: no live sandbox has this id, or the sandbox is not recovered yet. */
struct sandbox_subscription *sandbox_subscribe(struct manager *m, const char *owner, const char *id,
                                               sandbox_subscription_fn *fn, void *arg, struct err *err);
void sandbox_subscription_free(struct sandbox_subscription *a);
DEFINE_AUTO(sandbox_subscription, sandbox_subscription_free);
enum store_sandbox_state sandbox_subscription_state(const struct sandbox_subscription *a);
const struct spec *sandbox_subscription_spec(const struct sandbox_subscription *a); /* NULL after the end */

/* --- executions --- */

#define EXECUTION_CODE_MAX (1 * MIB)
#define EXECUTION_STDIN_MAX (1 * MIB)
#define EXECUTION_OUTPUT_MAX (1 * GIB)

struct execution_spec {
    /* Runs in the sandbox's default context of its language (default_context.h), unless `isolated`
     * asks for a process of its own; so does a terminal. NULL: run argv. */
    const char *code;
    const char *language; /* of the code; NULL: the sandbox's */
    bool isolated;
    const char *const *argv; /* a program and its arguments, if code is NULL */
    const char *input;       /* its standard input, or NULL */
    size_t input_len;
    bool input_open; /* standard input is written through manager_open_execution_input(); input is NULL */
    bool tty;        /* a terminal of rows x cols; requires input_open. output_max is then the size of the kept tail */
    uint16_t rows, cols;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* absolute, or relative to /workspace; NULL is /workspace */
    uint64_t timeout_ms;    /* 0: the sandbox's */
    uint64_t cpu_ms;        /* CPU time limit in ms; 0: no limit */
    uint64_t output_max;    /* 0: the default */
    bool background, changes;
    bool report_only_end;    /* the caller needs no answer before the end: `done` may run at the end only */
    const char *idempotency; /* idempotency key to record, or NULL */
    const char *created_by;  /* the user or key that requests it, for the row; NULL or "": the local owner */
    const char *request_id;  /* the id of the HTTP request, for the receipt; may be NULL */
};

/* `done` runs when the row is committed and the program is being started; with report_only_end the
 * execution may have ended by then. id: as for manager_create. */
void manager_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                     const struct execution_spec *spec, store_execution_fn *done, void *arg);

/* Observes an execution that has not ended. `fn` runs from the loop after every change. With a row,
 * the execution has ended and the end is committed; the watch is then inactive, but its owner still
 * frees it. */
struct execution_watch;
typedef void execution_watch_fn(void *arg, const struct store_execution *ended);
/* NULL: no live execution has this id. In the `done` of manager_execute it exists, unless the row
 * has ended. */
struct execution_watch *manager_watch_execution(struct manager *m, const char *owner, const char *sandbox,
                                                const char *id, execution_watch_fn *fn, void *arg);
void execution_watch_free(struct execution_watch *w);
DEFINE_AUTO(execution_watch, execution_watch_free);
/* Bytes written to its file so far. */
uint64_t execution_watch_output_bytes(const struct execution_watch *w, int channel);
/* Terminal: the offset of the oldest kept byte. */
uint64_t execution_watch_first_kept_offset(const struct execution_watch *w);
/* Bytes of standard input that the execution accepted. */
uint64_t execution_watch_input_bytes(const struct execution_watch *w);
bool execution_watch_has_started(const struct execution_watch *w);
/* Kills the whole process tree; the end is reported as usual. */
void execution_watch_kill(struct execution_watch *w);
void execution_watch_signal(struct execution_watch *w, int signo);
/* Resizes a terminal and notifies all of its watches. False, with no effect, if the execution is
 * not a terminal. */
bool execution_watch_resize(struct execution_watch *w, uint16_t rows, uint16_t cols);
bool execution_watch_terminal_size(const struct execution_watch *w, uint16_t *rows, uint16_t *cols);

/* Writes the standard input of an execution with input_open. One writer at a time, except for a
 * terminal. NULL with *err: ERR_EXISTS if the execution does not accept input. */
struct execution_writer;
struct execution_writer_ops {
    void (*on_writable)(void *arg); /* execution_writer_send took less than was offered; try again */
    /* The execution has ended after it received `bytes`; the writer is inactive. */
    void (*on_end)(void *arg, uint64_t bytes);
};
struct execution_writer *manager_open_execution_input(struct manager *m, const char *owner, const char *sandbox,
                                                      const char *id, const struct execution_writer_ops *ops, void *arg,
                                                      struct err *err);
void execution_writer_free(struct execution_writer *w);
DEFINE_AUTO(execution_writer, execution_writer_free);
uint64_t execution_writer_bytes(const struct execution_writer *w); /* bytes sent so far by all writers */
size_t execution_writer_send(struct execution_writer *w, const void *data, size_t len);
void execution_writer_close(struct execution_writer *w); /* end of input */

/* Opens the output of channel 1 or 2 for pread. -1 with errno; ENOENT: the execution wrote
 * nothing. */
int manager_open_output(struct manager *m, const char *id, int channel);
/* Returns the offset of the first kept byte at or after `offset`. A terminal discards the beginning
 * of its file. */
uint64_t output_first_kept_offset(int fd, uint64_t offset);

/* --- tenants --- */

/* Returns the owner of a live sandbox; NULL: no live sandbox has this id. Valid until the next turn
 * of the loop. */
const char *manager_sandbox_owner(const struct manager *m, const char *sandbox);

/* --- housekeeping --- */

#define MANAGER_END_CAUSES 10    /* enum ended_by */
#define MANAGER_LANGUAGES_MAX 16 /* in the order of languages_all() */
struct manager_stats {           /* counters since the start, except the fields marked "now" */
    uint64_t created, create_failed;
    /* By language, and by whether the sandbox came from a pool. */
    struct histogram starts[MANAGER_LANGUAGES_MAX][2];
    uint64_t ended[MANAGER_END_CAUSES];
    uint64_t executions, executions_failed;
    uint64_t executions_ended[MANAGER_END_CAUSES];
    uint64_t with_receipt, wall_ns, cpu_ns;                     /* number of receipts; sums of their values */
    uint64_t denied_syscalls;                                   /* system calls that the filter denied */
    uint64_t limit_hits[LIMIT_COUNT];                           /* executions that reached each limit */
    uint64_t output_bytes, output_lost_bytes;                   /* stored; not stored because the disk refused */
    uint64_t egress_connections, egress_refused, egress_failed; /* of executions that have a receipt */
    uint64_t egress_received_bytes, egress_sent_bytes;
    uint64_t adopted, reconnects;
    uint64_t running, paused, executing; /* now */
};
void manager_stats(const struct manager *m, struct manager_stats *ret);

/* Submits every end that was acknowledged ahead of its commit, so that later calls to the store
 * find it. Call it before the next request of a client is served: a client that received such an
 * end can send another request within the same turn of the loop. */
void manager_flush_acknowledged_ends(struct manager *m);
