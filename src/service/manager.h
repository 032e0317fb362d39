/* manager.h - many sandboxes over one jailer and one store: their life, their executions, their ends.
 *
 * The manager owns nothing that a kill could take away. Sandboxes belong to the jailer and outlive this process, rows
 * belong to the store, output lies in files; what is held here is found again by the next manager, which adopts what
 * lives and tells the truth about what does not.
 *
 * Calls answer through `done`, exactly once, in the loop; that may be before the call returns. Success means committed:
 * it survives kill -9 of this process. Rows are borrowed for the call. Every call names an owner and sees only what is
 * theirs (STORE_ANY_OWNER: everything); another's id is ERR_MISSING. A sandbox that has ended answers
 * ERR_SANDBOX_ENDED with the reason of its end. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "sandbox/engine.h"
#include "sandbox/files.h"
#include "core/ev/ev.h"
#include "sandbox/pool/pools.h"
#include "service/budget_period.h"
#include "service/quota.h"
#include "service/spec.h"
#include "store/usage.h"

struct manager;

struct manager_settings {
    struct store *store;    /* borrowed */
    const char *output_dir; /* an existing directory for what executions write; borrowed for manager_new */
    /* A socket to the jailer, and one to the monitor or -1: then the jailer is asked for the way to it. Both are taken.
     * Called at the start, and again after the jailer was lost. */
    int (*connect)(void *arg, int *ret_jailer, int *ret_monitor, struct err *err);
    /* A sandbox ended that nobody deleted: by a limit, or because it was lost. May be NULL. */
    void (*on_end)(void *arg, const char *id, const char *owner, enum ended_by by, const struct err *why);
    /* What an execution was refused, when it has ended; or the interpreter of a context, whose receipt names no
     * execution. May be NULL. */
    void (*on_denials)(void *arg, const char *owner, const struct receipt *r);
    void *arg;
    struct pools *pools; /* borrowed: where sandboxes are taken from; NULL: its own, with what was asked for twice */
    uint32_t live_max;   /* sandboxes of a tenant that has no quota for them; 0 is no bound */
    uint32_t executions_max;  /* executions of one sandbox at one time; 0 is 64 */
    uint32_t creating_max;    /* sandboxes being made at one time; what is more waits, in turn by tenant; 0 is 16 */
    uint32_t starting_max;    /* executions being started at one time, likewise; 0 is 64 */
    uint64_t required_limits; /* bit per limit: refuse a host that cannot enforce it whole */
    bool require_all_walls;   /* refuse sandboxes without the walls that only root can raise */
    bool sync_full;           /* what is acknowledged survives the loss of power: the store's setting */
};

/* Begins at once to load what the store knows and to adopt what lives. */
int manager_new(struct ev *ev, const struct manager_settings *set, struct manager **ret, struct err *err);
/* For the end: calls under way are answered with an error, while those who made them are there to hear it. Nothing may
 * be asked afterwards. */
void manager_finish(struct manager *m);
/* Lets go of everything; sandboxes live on. Calls under way are not answered. Before the store is closed. */
void manager_free(struct manager *m);
DEFINE_AUTO(manager, manager_free);

/* Ends every sandbox for this reason, as if each had been deleted. done: nothing of them is left, and their rows say
 * so. For a server that stops for good, after the last request. */
void manager_end_all(struct manager *m, const struct err *why, void (*done)(void *arg), void *arg);

/* Whether sandboxes can be made; otherwise *ret_why says what is missing. */
bool manager_ready(const struct manager *m, const char **ret_why);

/* --- sandboxes --- */

/* id: chosen before ("sb..."), or NULL. named: it may be one that was made ahead, which has a name already; its name is
 * told before anything is written under it, unless nothing comes of it. NULL: the id that was chosen stays. Takes the
 * finished spec, which is empty after it. template: a name to note, or NULL. */
typedef void manager_id_assigned_fn(void *arg, const char *id);
void manager_create(struct manager *m, const char *owner, const char *id, struct spec *spec, const char *template,
                    manager_id_assigned_fn *named, store_sandbox_fn *done, void *arg);
void manager_pause(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
void manager_resume(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
void manager_extend(struct manager *m, const char *owner, const char *id, uint64_t lifetime_ms, store_sandbox_fn *done,
                    void *arg);
/* One that has ended is brought as it is. */
void manager_delete(struct manager *m, const char *owner, const char *id, store_sandbox_fn *done, void *arg);
void manager_sandbox_usage(struct manager *m, const char *owner, const char *id, sandbox_handle_usage_fn *done,
                           void *arg);

/* The box of a running sandbox, for requests of sandbox/files.h that are begun before `done` returns. A sandbox that was
 * paused for being idle is woken up; one that somebody paused answers ERR_SANDBOX_PAUSED. It is not idle until
 * manager_release_sandbox. */
typedef void manager_acquire_fn(void *arg, struct sandbox_handle *box, const struct err *err);
void manager_acquire_sandbox(struct manager *m, const char *owner, const char *id, manager_acquire_fn *done, void *arg);
void manager_release_sandbox(struct manager *m, const char *id); /* once for each success; the sandbox may be gone */
/* Whether it lives, or may: until the store has been read nobody can say. */
bool manager_sandbox_is_live(const struct manager *m, const char *owner, const char *id);

/* The sandboxes of the owner that run or are paused, oldest first; how many of them were written to ret, at most max.
 */
struct manager_live_sandbox {
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    bool paused;
    uint64_t created_ms;
    size_t executions;
    uint64_t cpu_millis, memory_bytes, pids; /* what it is allowed */
};
size_t manager_list_live_sandboxes(const struct manager *m, const char *owner, struct manager_live_sandbox *ret,
                                   size_t max);
/* Has the store know what every living sandbox of the owner used by now, in front of calls that are made after this. */
void manager_commit_cpu_usage(struct manager *m, const char *owner);

/* What is known of a sandbox beside its row. Parses row->spec_json; the caller calls spec_done. */
int manager_read_stored_spec(const struct store_sandbox *row, struct spec *ret, struct err *err);

/* A sandbox that has not ended, as those see it who stay with it. `fn` comes from the loop: when it was paused or runs
 * again, and with `ended` when its end is committed, after those of its executions; then it is over, and still freed by
 * its owner. */
struct sandbox_subscription;
typedef void sandbox_subscription_fn(void *arg, const struct err *ended);
/* NULL with *err: there is none of that name that lives, or it is not found again yet. */
struct sandbox_subscription *sandbox_subscribe(struct manager *m, const char *owner, const char *id,
                                               sandbox_subscription_fn *fn, void *arg, struct err *err);
void sandbox_subscription_free(struct sandbox_subscription *a);
DEFINE_AUTO(sandbox_subscription, sandbox_subscription_free);
enum store_sandbox_state sandbox_subscription_state(const struct sandbox_subscription *a);
const struct spec *sandbox_subscription_spec(const struct sandbox_subscription *a); /* NULL when it is over */

/* --- executions --- */

#define EXECUTION_CODE_MAX (1 * MIB)
#define EXECUTION_STDIN_MAX (1 * MIB)
#define EXECUTION_OUTPUT_MAX (1 * GIB)

struct execution_spec {
    const char *code;        /* in the sandbox's language, or NULL: */
    const char *const *argv; /* a program and its arguments */
    const char *input;       /* for its standard input, or NULL */
    size_t input_len;
    bool input_open; /* instead: it is written with manager_open_execution_input() */
    bool tty;        /* a terminal of rows x cols, with input_open; output_max is what is kept of its end */
    uint16_t rows, cols;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* absolute, or relative to /workspace; NULL is /workspace */
    uint64_t timeout_ms;    /* 0: the sandbox's */
    uint64_t cpu_ms;        /* 0: none */
    uint64_t output_max;    /* 0: the default */
    bool background, changes;
    bool report_only_end;    /* `done` may come with the end alone: whoever asked is told nothing before that */
    const char *idempotency; /* to note, or NULL */
    const char *created_by;  /* the user or the key that asks for it, for the row; NULL or "": the local owner */
    const char *request_id;  /* the id of the request, for the receipt; may be NULL */
};

/* done: the row is committed, and the program is being started; with at_end, it may also have ended. id as with
 * manager_create. */
void manager_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                     const struct execution_spec *spec, store_execution_fn *done, void *arg);

/* An execution that has not ended, as its readers see it. `fn` comes after every change, from the loop; with a row it
 * has ended, that is committed, and the watch is over (it is still freed by its owner). */
struct execution_watch;
typedef void execution_watch_fn(void *arg, const struct store_execution *ended);
/* NULL: there is none of that name that lives. In the `done` of manager_execute there is, unless the row has ended. */
struct execution_watch *manager_watch_execution(struct manager *m, const char *owner, const char *sandbox,
                                                const char *id, execution_watch_fn *fn, void *arg);
void execution_watch_free(struct execution_watch *w);
DEFINE_AUTO(execution_watch, execution_watch_free);
uint64_t execution_watch_output_bytes(const struct execution_watch *w, int channel); /* written to its file by now */
uint64_t
execution_watch_first_kept_offset(const struct execution_watch *w);    /* of a terminal: before this, nothing is left */
uint64_t execution_watch_input_bytes(const struct execution_watch *w); /* of its standard input, taken by now */
bool execution_watch_has_started(const struct execution_watch *w);
void execution_watch_kill(struct execution_watch *w); /* its whole tree; the end follows as for any other */
void execution_watch_signal(struct execution_watch *w, int signo);
/* Of a terminal, otherwise nothing happens and false is the answer. All who watch it are told. */
bool execution_watch_resize(struct execution_watch *w, uint16_t rows, uint16_t cols);
bool execution_watch_terminal_size(const struct execution_watch *w, uint16_t *rows, uint16_t *cols);

/* Standard input of an execution with input_open; one writer at a time, except for a terminal. NULL with *err: EXISTS
 * when it takes none. */
struct execution_writer;
struct execution_writer_ops {
    void (*on_writable)(void *arg);            /* execution_writer_send took less than it was given; try again */
    void (*on_end)(void *arg, uint64_t bytes); /* it has ended, having been given so many; the writer is of no use */
};
struct execution_writer *manager_open_execution_input(struct manager *m, const char *owner, const char *sandbox,
                                                      const char *id, const struct execution_writer_ops *ops, void *arg,
                                                      struct err *err);
void execution_writer_free(struct execution_writer *w);
DEFINE_AUTO(execution_writer, execution_writer_free);
uint64_t execution_writer_bytes(const struct execution_writer *w); /* given to it so far, by all its writers */
size_t execution_writer_send(struct execution_writer *w, const void *data, size_t len);
void execution_writer_close(struct execution_writer *w); /* nothing follows */

/* What it wrote to channel 1 or 2, to be read with pread; -1 with errno, ENOENT when it wrote nothing. */
int manager_open_output(struct manager *m, const char *id, int channel);
/* The first byte at or behind `offset` of such a file that is kept: of a terminal, the beginning goes. */
uint64_t output_first_kept_offset(int fd, uint64_t offset);

/* --- tenants --- */

/* Whose a sandbox is that this manager holds; NULL: it holds none of that id. Good until the next turn of the loop. */
const char *manager_sandbox_owner(const struct manager *m, const char *sandbox);

/* What a tenant may have from now on. What there is of tenants at the start is read from the store. One that is
 * suspended or removed begins nothing more, and all that lives in it is ended. */
void manager_set_tenant(struct manager *m, const struct store_tenant *row);
bool manager_tenant_is_suspended(struct manager *m, const char *tenant); /* suspended or removed */
void manager_tenant_quota_used(struct manager *m, const char *tenant, uint64_t ret[STORE_QUOTA_COUNT]);

/* --- budgets --- */

/* What the store was given: holds from now on. */
void manager_set_budget(struct manager *m, const struct store_budget *row);
struct manager_budget {
    uint64_t max[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES], used[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES];
    uint64_t renews_ms[STORE_PERIOD_COUNT];
};
/* False: there is none, or it is still being read. */
bool manager_get_budget(struct manager *m, const char *owner, struct manager_budget *ret);
/* Of all tenants together. */
struct manager_usage_totals {
    uint64_t
        used[STORE_BUDGET_RESOURCES]; /* since the manager began, with what lives: microseconds, milliseconds, ones */
    uint64_t refused;                 /* work that a budget did not let begin */
    uint64_t bounds[STORE_PERIOD_COUNT][STORE_BUDGET_RESOURCES]
                   [BUDGET_LIMIT_STATES]; /* of tenants, by how much of them is used */
};
void manager_usage_totals(struct manager *m, struct manager_usage_totals *ret);

/* --- housekeeping --- */

struct manager_gc {
    uint64_t executions, sandboxes, events, idem;
    uint64_t usage;                    /* rows of it that were removed, or became part of another */
    uint64_t output_bytes;             /* of these executions */
    uint64_t stray_files, stray_bytes; /* output of executions that nobody knows */
};
typedef void manager_gc_fn(void *arg, const struct err *err, const struct manager_gc *removed);
/* Removes what the retention says, rows and output, and with `strays` also output files that belong to no execution,
 * for which every file is looked up. With keep->rehearse it only counts. One at a time: ERR_BUSY. */
void manager_gc(struct manager *m, const struct store_retention *keep, bool strays, manager_gc_fn *done, void *arg);

#define MANAGER_END_CAUSES 10    /* enum ended_by */
#define MANAGER_LANGUAGES_MAX 16 /* as languages_all() tells them */
#define MANAGER_START_BUCKETS 14u
struct manager_start_histogram {       /* times from request to running */
    uint64_t n[MANAGER_START_BUCKETS]; /* below 1, 2, 4, ... 4096 ms, and the rest */
    uint64_t sum_ns;
};
struct manager_stats { /* since the start, except those that are of this moment */
    uint64_t created, create_failed;
    struct manager_start_histogram starts[MANAGER_LANGUAGES_MAX][2]; /* by runtime; ready before it was asked for */
    uint64_t ended[MANAGER_END_CAUSES];
    uint64_t executions, executions_failed;
    uint64_t executions_ended[MANAGER_END_CAUSES];
    uint64_t with_receipt, wall_ns, cpu_ns;   /* executions with a receipt, and the sums of what theirs say */
    uint64_t denied_syscalls;                 /* system calls that the filter refused */
    uint64_t limit_hits[LIMIT_COUNT];         /* executions that it refused something */
    uint64_t output_bytes, output_lost_bytes; /* stored; not stored because the disk refused */
    uint64_t adopted, reconnects;
    uint64_t running, paused, executing; /* now */
};
void manager_stats(const struct manager *m, struct manager_stats *ret);

/* Submits to the store every end that was already told, so that a call to the store made after it finds them. For
 * whoever lets somebody in who may have been told: a client can ask again before this turn of the loop is over. */
void manager_flush_acknowledged_ends(struct manager *m);
