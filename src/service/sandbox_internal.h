/* sandbox_internal.h - struct sandbox, and the functions on it that the files of src/service share.
 * Not for other directories.
 *
 * Ownership: the registry lists the sandboxes; a sandbox owns its engine handle, its operations and
 * its executions; an execution owns its engine handle, its output files and the list of its
 * watches. A watch belongs to its creator. A sandbox or an execution is freed only after its end is
 * committed, so every callback that is still due runs first. */
#pragma once

#include "service/budget.h"
#include "service/jailer_link.h"
#include "service/manager.h"
#include "service/recovery.h"
#include "service/registry.h"
#include "service/sandbox_source.h"
#include "service/tenant_quotas.h"
#include "service/usage_meter.h"

#include "core/base/buf.h"

#define RETRY_NS (1 * NS_PER_S) /* before an end that the store refused is submitted again */

struct context;
struct execution;
struct executions;

/* Shared by all sandboxes; the manager fills it. All pointers are borrowed, except the refusals. */
struct sandbox_services {
    struct ev *ev;
    struct store *store;
    struct registry *registry;
    struct tenant_quotas *quotas;
    struct budgets *budgets;
    struct usage_meter *usage_meter;
    struct jailer_link *jailer_link;
    const struct sandbox_supply *supply;
    struct recovery *recovery;
    struct executions *executions;
    struct manager_stats *stats;
    struct fair_queue create_queue;
    struct sandbox_refusal *refusals;
    uint32_t live_max; /* as in struct manager_settings */
    void (*on_end)(void *arg, const char *id, const char *owner, enum ended_by by, const struct err *why);
    void *on_end_arg;
};
struct sandbox_services *manager_sandbox_services(const struct manager *m);

enum sandbox_state {
    SANDBOX_STATE_LOADED,   /* known from the store; not adopted yet */
    SANDBOX_STATE_CREATING, /* handle and row are being made */
    SANDBOX_STATE_RUNNING,
    SANDBOX_STATE_PAUSED,
    SANDBOX_STATE_ENDING, /* being destroyed, or the end is being committed */
};

enum sandbox_op_kind {
    SANDBOX_OP_PAUSE,
    SANDBOX_OP_RESUME,
    SANDBOX_OP_UPDATE,
    SANDBOX_OP_USAGE,
    SANDBOX_OP_CONNECTIONS,
    SANDBOX_OP_ACQUIRE
};

struct sandbox_reply { /* how the caller of a request is answered; at most one function is set */
    store_sandbox_fn *done;
    sandbox_handle_usage_fn *on_usage;
    sandbox_handle_connections_fn *on_connections;
    manager_acquire_fn *on_acquired;
    store_execution_fn *on_execution;
    void *arg;
};

struct sandbox_refusal { /* an error that is reported after the call has returned */
    struct sandbox_refusal *next, **link;
    struct ev *ev;
    struct sandbox_reply reply;
    struct err why;
    struct ev_defer defer;
};

struct sandbox_op { /* one request to a sandbox; requests run one after another */
    struct sandbox_op *next;
    enum sandbox_op_kind kind;
    bool in_progress;              /* waiting for the jailer or the store */
    bool idle_initiated;           /* SANDBOX_OP_PAUSE: caused by idleness, not by a request */
    struct sandbox_update *update; /* SANDBOX_OP_UPDATE; owned */
    struct sandbox_reply reply;
};

struct sandbox_end_waiter { /* waits for the end of a sandbox */
    struct sandbox_end_waiter *next;
    store_sandbox_fn *done;
    void *arg;
};

struct sandbox {
    struct sandbox *next;
    struct sandbox_services *services;
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    enum sandbox_state state;
    struct tenant_quota *quota;
    uint64_t quota_reserved[STORE_QUOTA_COUNT]; /* amounts reserved from quota */
    struct fair_queue_slot create_slot;         /* slot for the creation */
    char *template;                             /* its name; NULL: none */
    struct spec spec;
    struct sandbox_handle *handle;
    uint64_t created_ms, expires_ms; /* wall clock, for display */
    uint64_t expires_mono_ms;        /* deadline on the clock of sandbox_mono_ms(); 0: unknown */
    /* Total of earlier pauses; start of the current pause by sandbox_mono_ms(), 0: not paused. */
    uint64_t paused_total_ms, paused_at_ms;
    bool paused_by_idle;
    struct execution *executions;
    size_t nexecutions;
    size_t nuncommitted;            /* of them, executions that have ended and whose end is not committed yet */
    struct context *contexts;       /* oldest first */
    uint64_t contexts_write_seq;    /* number of commits of the context list */
    unsigned use_count;             /* manager_acquire_sandbox without manager_release_sandbox */
    struct exec_handle *first_exec; /* handle of the first execution, kept for its final sums */
    char first_execution_id[ID_SIZE];
    enum ended_by first_exec_ended_by; /* as in its row; the engine does not know budgets, so its receipt may differ */
    struct sandbox_op *ops;
    struct ev_defer ops_defer; /* begins the first of ops */
    struct sandbox_end_waiter *end_waiters;
    struct sandbox_subscription *subscriptions;
    struct ev_timer idle_timer;
    struct ev_timer retry_timer;
    uint64_t pinned_cpus;    /* CPUs chosen for it, bit per CPU */
    struct budget_span span; /* its lifetime, from its creation to its end */
    /* CPU counter + 1 at the last tick on which the tenant's CPU budget was used up; 0: not over
     * budget. */
    uint64_t over_budget_cpu_us;
    uint64_t budget_stop_cpu_us;       /* CPU counter when the last execution was stopped for the budget */
    uint64_t cpu_us, committed_cpu_us; /* the counter as last read, and as last sent to the store (live_sandboxes.c) */

    /* CREATING */
    bool row_inserted, kept_by_jailer;
    bool id_chosen_by_caller;               /* the caller insists on its own id */
    manager_id_assigned_fn *on_id_assigned; /* called with on_created_arg; may be NULL */
    struct sandbox_source source;
    uint64_t create_began_ns;
    store_sandbox_fn *on_created;
    void *on_created_arg;
    /* ENDING */
    enum ended_by ended_by;
    bool creation_failed;  /* it never ran, so it has no cause of end */
    bool delete_requested; /* ended by a delete request */
    struct err end_error;
    uint64_t ended_ms;
    bool is_destroyed;     /* the sandbox is destroyed; only the row must be written */
    bool is_end_committed; /* the row is written; the end of an execution is not */
};

struct sandbox_subscription {
    struct sandbox_subscription *next;
    struct sandbox *sandbox; /* NULL after the end */
    sandbox_subscription_fn *fn;
    void *arg;
};

/* sandbox.c */
struct sandbox *sandbox_new(struct sandbox_services *s, const char *id, const char *owner);
void sandbox_free(struct sandbox *sb);
/* Milliseconds since boot. A sandbox does not survive a reboot, so stored values of a live sandbox
 * stay comparable after a restart of the server, even if the wall clock was changed meanwhile. */
uint64_t sandbox_mono_ms(const struct sandbox *sb);
void sandbox_append_event(struct sandbox *sb, const char *kind, const char *execution, const char *body_json);
/* Fills id, spec_json, memory_bytes and storage_bytes. The caller frees row->spec_json. */
void sandbox_fill_spec_row(const struct sandbox *sb, struct store_sandbox *row);
int sandbox_read_stored_json(struct sandbox *sb, const char *spec_json, struct err *err);
void sandbox_fail_callers(struct sandbox *sb, const struct err *why); /* answers every pending call with why */

/* sandbox_lifecycle.c */
extern const struct sandbox_handle_ops sandbox_engine_ops;
void sandbox_set_state(struct sandbox *sb, enum sandbox_state state);
void sandbox_end(struct sandbox *sb, enum ended_by by, const struct err *why);
void sandbox_end_suspended(struct sandbox *sb); /* because its tenant is suspended */
void sandbox_ended_error(const struct sandbox *sb, struct err *ret);
/* Completes the receipt of the first execution, if the sandbox is destroyed and the end of the
 * execution is committed. */
void sandbox_commit_first_receipt(struct sandbox *sb);
bool sandbox_lifetime_expired(const struct sandbox *sb, uint64_t slack_ms);

/* sandbox_ops.c */
void sandbox_op_free(struct sandbox_op *op);
/* Call it when something begins or ends in the sandbox: the idle period starts again. */
void sandbox_restart_idle_timer(struct sandbox *sb);
void sandbox_answer_end_waiters(struct sandbox *sb, const struct err *err, const struct store_sandbox *row);
void sandbox_fail_ops(struct sandbox *sb, const struct err *err);

/* sandbox_refusal.c */
/* Answers a request. A success of `done` has a row; the others are answered here only with an
 * error. */
void sandbox_reply_send(const struct sandbox_reply *r, const struct err *err, const struct store_sandbox *row);
/* Answers a request with an error at the end of this loop iteration. */
void sandbox_refuse(struct sandbox_services *s, const struct sandbox_reply *reply, const struct err *why);
void sandbox_refusals_report_all(struct sandbox_services *s); /* now */
void sandbox_refusals_free(struct sandbox_services *s);       /* without a report */
/* Like manager_acquire_sandbox, but a success is reported before the call returns if possible: it
 * saves executions the wait for the end of the loop iteration. */
void sandbox_acquire_at_once(struct sandbox_services *s, const char *owner, const char *id, manager_acquire_fn *done,
                             void *arg);
void sandbox_release(struct sandbox *sb);

/* subscription.c */
void sandbox_notify_subscribers(struct sandbox *sb); /* it was paused or resumed */
void sandbox_notify_end(struct sandbox *sb);         /* its end is committed */

/* live_sandboxes.c */
uint64_t sandbox_read_cpu_us(struct sandbox *sb); /* its CPU counter in us; 0: unknown */

/* execution.c, execution_end.c and execution_stored.c: the executions of a sandbox */
size_t sandbox_running_executions(const struct sandbox *sb);
void sandbox_load_execution(struct sandbox *sb, const struct store_execution *row); /* after a restart */
void sandbox_resume_executions(struct sandbox *sb); /* its handle is ready after a restart */
void sandbox_end_executions(struct sandbox *sb);    /* it has ended */
void sandbox_fail_execution_callers(struct sandbox *sb, const struct err *why);
void sandbox_kill_executions_over_budget(struct sandbox *sb);
/* The user of the CPU time: the user of the only running execution. With several or none, "": the
 * creator of the sandbox. */
const char *sandbox_cpu_user(const struct sandbox *sb);
void sandbox_free_executions(struct sandbox *sb);
void executions_flush_acknowledged(struct executions *x); /* as manager_flush_acknowledged_ends() */

/* context_api.c: the contexts of a sandbox */
void contexts_json(const struct sandbox *sb, struct jsonw *w); /* "contexts": [...] */
int contexts_read(struct sandbox *sb, const json_t *root, struct err *err);
void contexts_commit(struct sandbox *sb);
void contexts_fail_waiters(struct sandbox *sb, const struct err *why); /* answers all waiters with why */
void contexts_adopt(struct sandbox *sb); /* its handle is ready; executions of contexts are ended as lost */
void contexts_free(struct sandbox *sb);
