/* service_internal.h - types and functions shared by the files of src/service. Not for other
 * directories.
 *
 * Ownership: the manager owns its sandboxes; a sandbox owns its engine handle, its operations and
 * its executions; an execution owns its engine handle, its output files and the list of its
 * watches. A watch belongs to its creator. A sandbox or an execution is freed only after its end is
 * committed, so every callback that is still due runs first. */
#pragma once

#include "service/budget.h"
#include "service/end_journal.h"
#include "service/execution_state.h"
#include "service/jailer_link.h"
#include "service/manager.h"
#include "service/output_dir.h"
#include "service/output_stream.h"
#include "service/sandbox_source.h"
#include "service/tenant_quotas.h"
#include "service/usage_batch.h"
#include "service/usage_meter.h"

#include "core/base/buf.h"
#include "sandbox/receipt.h"

#define SANDBOX_BUCKETS 1024u
#define RETRY_NS (1 * NS_PER_S) /* before an end that the store refused is submitted again */

enum sandbox_state {
    SANDBOX_STATE_LOADED,   /* known from the store; not adopted yet */
    SANDBOX_STATE_CREATING, /* handle and row are being made */
    SANDBOX_STATE_RUNNING,
    SANDBOX_STATE_PAUSED,
    SANDBOX_STATE_ENDING, /* being destroyed, or the end is being committed */
};

enum sandbox_op_kind { SANDBOX_OP_PAUSE, SANDBOX_OP_RESUME, SANDBOX_OP_EXTEND, SANDBOX_OP_USAGE, SANDBOX_OP_ACQUIRE };

struct sandbox_reply { /* how the caller of a request is answered; at most one function is set */
    store_sandbox_fn *done;
    sandbox_handle_usage_fn *on_usage;
    manager_acquire_fn *on_acquired;
    store_execution_fn *on_execution;
    void *arg;
};

struct sandbox_refusal { /* an error that is reported after the call has returned */
    struct sandbox_refusal *next, **link;
    struct manager *manager;
    struct sandbox_reply reply;
    struct err why;
    struct ev_defer defer;
};

struct sandbox_op { /* one request to a sandbox; requests run one after another */
    struct sandbox_op *next;
    enum sandbox_op_kind kind;
    bool in_progress;    /* waiting for the jailer or the store */
    bool idle_initiated; /* SANDBOX_OP_PAUSE: caused by idleness, not by a request */
    uint64_t lifetime_ms;
    struct sandbox_reply reply;
};

struct sandbox_end_waiter { /* waits for the end of a sandbox */
    struct sandbox_end_waiter *next;
    store_sandbox_fn *done;
    void *arg;
};

struct context; /* context_internal.h */

struct sandbox {
    struct sandbox *next;
    struct manager *manager;
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    enum sandbox_state state;
    struct tenant_quota *quota;
    uint64_t quota_reserved[STORE_QUOTA_COUNT]; /* amounts reserved from quota */
    struct fair_queue_slot create_slot;         /* slot for the creation */
    char *template;                             /* name to record; until the row is inserted */
    struct spec spec;
    struct sandbox_handle *handle;
    uint64_t created_ms, expires_ms; /* wall clock, for display */
    uint64_t expires_mono_ms;        /* deadline on the clock of manager_mono_ms(); 0: unknown */
    /* Total of earlier pauses; start of the current pause by manager_mono_ms(), 0: not paused. */
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
    uint64_t cpu_us, committed_cpu_us; /* the counter as last read, and as last sent to the store (live_usage.c) */

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
    bool is_destroyed; /* the sandbox is destroyed; only the row must be written */
};

struct sandbox_subscription {
    struct sandbox_subscription *next;
    struct sandbox *sandbox; /* NULL after the end */
    sandbox_subscription_fn *fn;
    void *arg;
};

struct execution_watch {
    struct execution_watch *next;
    struct execution *execution; /* NULL after the end */
    execution_watch_fn *fn;
    void *arg;
};

struct execution_writer {
    struct execution_writer *next;
    struct execution *execution; /* NULL after the end */
    const struct execution_writer_ops *ops;
    void *arg;
};

/* The output files of an execution (output.c). */
struct stored_output {
    struct output_stream stream; /* kept: bytes in the files; lost: bytes that the disk refused */
    int fd[OUTPUT_CHANNELS];
    bool has_temp_name[OUTPUT_CHANNELS]; /* its file has the .new name until the row is inserted */
    uint64_t ring_bytes;                 /* terminal: size of the kept tail; 0: everything is kept */
    /* Size limit of the file of a terminal whose file system cannot punch holes; 0: unlimited. */
    uint64_t file_bytes_max;
    uint64_t discarded_bytes; /* terminal: bytes discarded from the beginning */
};

struct execution {
    struct execution *next;
    struct sandbox *sandbox;
    char id[ID_SIZE];
    enum execution_state state;
    enum { EXECUTION_ROW_NONE, EXECUTION_ROW_SUBMITTED, EXECUTION_ROW_COMMITTED } row; /* its insertion */
    struct exec_handle *exec;
    struct context *running_context;   /* the context whose queue it is in; NULL after that */
    struct execution *next_in_context; /* the next one in that queue */
    char context_id[ID_SIZE];          /* "": not of a context */
    bool awaits_input, is_only_execution;
    struct fair_queue_slot start_slot; /* slot for the start */
    struct files_job *files_job;       /* while its code file is written or removed */
    char *code;
    size_t code_sent;
    bool code_in_file;
    char **argv, **env;
    char *cwd;
    char *input;
    size_t input_len, input_sent;
    bool input_open, input_closed; /* accepts writers; a writer sent the end of input */
    struct execution_writer *input_writers;
    struct exec_spec spec;
    uint32_t resume_stream; /* stream id from before a restart of the server; 0: not resumed */
    uint64_t created_ms, started_ms, ended_ms;
    uint64_t created_mono_ms; /* 0: unknown */
    char created_by[ID_SIZE];
    char request_id[RECEIPT_REQUEST_MAX + 1]; /* of the HTTP request; "": none */
    uint64_t cpu_base_ns;                     /* CPU counter of the sandbox when it began */
    uint64_t sandbox_paused_ms;               /* paused_total_ms of the sandbox when it began */
    bool background;
    struct stored_output output;
    bool report_only_end; /* the caller needs no answer before the end */
    bool end_journaled;   /* its end is in the journal and was acknowledged */
    struct execution_watch *watches;
    struct ev_timer retry_timer, insert_timer;
    struct ev_defer notify_defer, cancel_defer;
    /* List of ends that were acknowledged ahead of their commit; the link is NULL outside of it. */
    struct execution *next_pending_commit, **pending_commit_link;

    /* the end */
    enum store_execution_state end_state;
    bool has_receipt;
    int exit_code, signal;
    enum ended_by ended_by;
    bool has_ended_by;
    char *receipt_json, *error_json;
    bool over_budget;    /* killed because a budget is used up */
    uint64_t end_cpu_us; /* CPU counter of the sandbox at the end, for usage; 0: unknown */

    struct store_request *insert_request, *end_request; /* pending */
    store_execution_fn *done;
    void *done_arg;
};

struct ephemeral_sandbox;

struct manager {
    struct ev *ev;
    struct store *store;
    struct manager_settings settings;
    struct output_dir *output_dir;
    struct end_journal *end_journal;
    struct jailer_link *jailer_link;
    struct pools *pools;
    struct sandbox_supply supply;
    struct sandbox *sandboxes[SANDBOX_BUCKETS];
    size_t nsandboxes;
    struct sandbox_refusal *refusals;
    struct tenant_quotas *quotas;
    struct fair_queue create_queue, start_queue;
    bool loaded;                 /* all live rows of the store are loaded */
    size_t nadopting;            /* sandboxes still to be adopted */
    char load_error[160];        /* why the rows cannot be loaded; "": no error */
    unsigned pinned_per_cpu[64]; /* sandboxes pinned to each CPU */
    struct manager_stats stats;
    struct retention *retention;
    /* Ends that were acknowledged and must still be submitted to the store. */
    struct execution *pending_commits, **pending_commits_last;
    struct ev_defer flush_defer;
    struct usage_meter *usage_meter;
    struct budgets *budgets;
    struct ephemeral_sandbox *ephemeral_sandboxes;
    struct usage_batch *ephemeral_usage;
    void (*on_empty)(void *arg); /* called when the last sandbox is gone; may be NULL */
    void *on_empty_arg;
};

/* manager.c */
struct sandbox *sandbox_find(const struct manager *m, const char *owner, const char *id);
struct sandbox *sandbox_new(struct manager *m, const char *id, const char *owner);
void sandbox_set_id(struct sandbox *sb, const char *id); /* only while the old id is unknown to all clients */
void sandbox_free(struct sandbox *sb);
/* Call once: counts the sandbox on these CPUs until it is freed. */
void sandbox_set_pinned_cpus(struct sandbox *sb, uint64_t pins);
/* Milliseconds since boot. A sandbox does not survive a reboot, so stored values of a live sandbox
 * stay comparable after a restart of the server, even if the wall clock was changed meanwhile. */
uint64_t manager_mono_ms(const struct manager *m);
bool sandbox_lifetime_expired(const struct sandbox *sb, uint64_t slack_ms);
void sandbox_append_event(struct sandbox *sb, const char *kind, const char *execution, const char *body_json);
char *manager_error_json(const struct err *why);
char *sandbox_stored_json(const struct sandbox *sb); /* as stored in the row */
int sandbox_read_stored_json(struct sandbox *sb, const char *spec_json, struct err *err);

/* tenant_stop.c */
void sandbox_end_suspended(struct sandbox *sb); /* because its tenant is suspended */
/* Ends all live work of the tenant. arg: the manager. */
void tenant_stop_suspended(void *arg, const struct tenant_quota *q);
/* Members of struct budgets_ops; arg: the manager. */
void tenant_stop_over_budget(void *arg, const struct tenant_quota *q, bool end_sandboxes, const struct err *why);
void tenant_budget_renewed(void *arg, const struct tenant_quota *q); /* programs left running before are forgotten */

/* sandbox_lifecycle.c */
extern const struct sandbox_handle_ops sandbox_engine_ops;
void sandbox_set_state(struct sandbox *sb, enum sandbox_state state);
void sandbox_end(struct sandbox *sb, enum ended_by by, const struct err *why);
void sandbox_ended_error(const struct sandbox *sb, struct err *ret);

/* sandbox_ops.c */
/* Call it when something begins or ends in the sandbox: the idle period starts again. */
void sandbox_restart_idle_timer(struct sandbox *sb);
void sandbox_answer_end_waiters(struct sandbox *sb, const struct err *err, const struct store_sandbox *row);
void sandbox_fail_ops(struct sandbox *sb, const struct err *err);
/* Answers a request with an error at the end of this loop iteration. */
void sandbox_refuse(struct manager *m, const struct sandbox_reply *reply, const struct err *why);
void sandbox_refusals_report_all(struct manager *m); /* now */
void sandbox_refusals_free(struct manager *m);       /* without a report */
/* Like manager_acquire_sandbox, but a success is reported before the call returns if possible: it
 * saves executions the wait for the end of the loop iteration. */
void sandbox_acquire_at_once(struct manager *m, const char *owner, const char *id, manager_acquire_fn *done, void *arg);

/* execution.c */
#define EXECUTIONS_UNCOMMITTED_MAX 1024u /* per sandbox */
size_t sandbox_running_executions(const struct sandbox *sb);
/* Whether another execution may begin beside those that run. */
int sandbox_check_running_executions(const struct sandbox *sb, size_t running, struct err *err);
extern const struct exec_handle_ops execution_engine_ops;
struct execution *execution_new_from_row(struct sandbox *sb, const char *id);
struct execution *execution_alloc(const char *id);
void execution_link(struct execution *ex, struct sandbox *sb);
void execution_kill(struct execution *ex);
char **execution_copy_list(const char *const *list); /* NULL-terminated; free with spec_env_free() */
void execution_free(struct execution *ex);
void execution_insert_row(struct execution *ex);
int execution_resume(struct execution *ex, struct err *err);

/* execution_input.c */
void execution_input_writable(struct execution *ex); /* its standard input accepts more */
void execution_input_end(struct execution *ex);      /* no more input is accepted */

/* execution_end.c */
void manager_stats_count_receipt(struct manager_stats *s, const struct receipt *r);
/* Adds the denials to the statistics and calls on_denials. */
void manager_count_denials(struct manager *m, const char *owner, const struct receipt *r);
void execution_unqueue_commit(struct execution *ex); /* removes it from pending_commits */
void execution_end(struct execution *ex, enum store_execution_state state, const struct receipt *r,
                   const struct err *why);

/* subscription.c */
void sandbox_notify_subscribers(struct sandbox *sb); /* it was paused or resumed */
void sandbox_notify_end(struct sandbox *sb);         /* its end is committed */

/* ephemeral_sandbox.c */
uint64_t ephemeral_sandbox_read_cpu_us(struct ephemeral_sandbox *g); /* its CPU counter in us; 0: unknown */
void ephemeral_sandboxes_stop(struct manager *m, const char *owner, enum ended_by by, const struct err *why);
void ephemeral_sandboxes_free(struct manager *m);

/* live_usage.c */
uint64_t sandbox_read_cpu_us(struct sandbox *sb);     /* its CPU counter in us; 0: unknown */
bool live_usage_sample(void *arg, uint64_t since_ns); /* for usage_meter_new(); arg: the manager */
/* Members of struct budgets_ops; arg: the manager. */
void live_usage_read_cpu(void *arg, const struct tenant_quota *q);
void live_usage_commit(void *arg, const struct tenant_quota *q);

/* execution_watch.c */
struct execution *execution_find(const struct sandbox *sb, const char *id);
void execution_notify(struct execution *ex);                                        /* something changed */
void execution_notify_end(struct execution *ex, const struct store_execution *row); /* its end is committed */

/* output.c */
void output_init(struct execution *ex);
void output_close(struct execution *ex);
int output_open_existing(struct execution *ex); /* files of an earlier server; may be called twice */
void output_set_final_names(struct execution *ex, bool has_row);

/* recovery.c */
void recovery_start(struct manager *m);
void recovery_adopt_all(struct manager *m);      /* requires a connection and loaded rows */
void recovery_sandbox_ready(struct sandbox *sb); /* its handle is ready */
void recovery_sandbox_resolved(struct manager *m);
