/* inside.h - what the files of this room know of one another. Nothing outside includes it.
 *
 * Who owns what: the manager its sandboxes (sb), a sandbox its box, its operations and its executions (ex), an
 * execution its engine exec, its output files and the list of its watches; a watch belongs to whoever made it. A sb or
 * an ex goes only when its end is committed, so everything that is still to be told is told before. */
#pragma once

#include "sandbox/looks.h"
#include "sandbox/manager.h"

#include "base/buf.h"
#include "engine/receipt.h"

#include <dirent.h>

#define SB_BUCKETS 1024u
#define SHARE_BUCKETS 64u
#define RETRY_NS (1 * NS_PER_S) /* for an end that the store did not take */

enum sb_state {
    SB_LOADED,   /* known from the store; not adopted yet */
    SB_CREATING, /* box and row are on their way */
    SB_RUNNING,
    SB_PAUSED,
    SB_ENDING, /* being destroyed, or its end being written down */
};

enum op_kind { OP_PAUSE, OP_RESUME, OP_EXTEND, OP_USAGE, OP_USE };

struct op { /* something asked of a sandbox; carried out one after another */
    struct op *next;
    enum op_kind kind;
    bool active;  /* somebody is asked, and will answer */
    bool by_idle; /* OP_PAUSE: nobody asked */
    uint64_t lifetime_ms;
    store_sandbox_fn *done;
    box_usage_fn *usage;
    manager_box_fn *use;
    void *arg;
};

struct waiter { /* for an end */
    struct waiter *next;
    store_sandbox_fn *done;
    void *arg;
};

struct cx; /* contexts.h */

struct sb {
    struct sb *next;
    struct manager *m;
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    enum sb_state state;
    struct share *share;
    uint64_t holds[STORE_QUOTA_COUNT]; /* of it */
    struct turn turn;                  /* to be made */
    char *template;                    /* until its row is written */
    struct spec spec;
    struct box *box;
    uint64_t created_ms, expires_ms;  /* of the calendar, for people */
    uint64_t expires_mono_ms;         /* mono_ms(): what counts; 0: not known */
    uint64_t paused_ms, paused_at_ms; /* in all before; since when by mono_ms(), or 0 */
    bool paused_by_idle;
    struct ex *execs;
    size_t nexecs;
    struct cx *contexts;   /* oldest first */
    uint64_t contexts_seq; /* how often they were written down */
    unsigned uses;         /* manager_use without its manager_release */
    struct exec *first;    /* the first execution's, kept for its final sums */
    char first_id[ID_SIZE];
    struct op *ops;
    struct waiter *waiters;
    struct attend *attends;
    struct ev_timer idle;
    struct ev_timer retry;
    uint64_t pins;                 /* processors that were chosen for it */
    uint64_t budget_cpu_us;        /* when its tenant's time was found used up, and one more; 0: it is not */
    uint64_t budget_from_us;       /* the same when its last execution was stopped for that */
    uint64_t cpu_us, noted_cpu_us; /* its counter as last seen, and as the store knows it (meter.c) */

    /* CREATING */
    bool inserted, kept;
    bool named;                 /* its id was chosen by who asked */
    manager_named_fn *on_named; /* with created_arg; NULL: nobody needs to know */
    bool claiming;              /* pools_claimed() is to come */
    bool warm;                  /* it was ready before it was asked for */
    bool pooled;                /* its box was made ahead, and has not said yet that it lives */
    uint64_t began_ns, claim_ns;
    store_sandbox_fn *created;
    void *created_arg;
    /* ENDING */
    enum ended_by ended_by;
    bool counted; /* its time is among the sums of what has ended */
    bool unmade;  /* its creation failed, and nothing ended it */
    bool deleted; /* somebody asked for it */
    struct err why;
    uint64_t ended_ms;
    bool gone; /* nothing of the sandbox is left; only its row is to be written */
};

struct attend {
    struct attend *next;
    struct sb *sb; /* NULL when it is over */
    attend_fn *fn;
    void *arg;
};

struct watch {
    struct watch *next;
    struct ex *ex; /* NULL when it is over */
    watch_fn *fn;
    void *arg;
};

struct writer {
    struct writer *next;
    struct ex *ex; /* NULL when it is over */
    const struct writer_ops *ops;
    void *arg;
};

struct ex {
    struct ex *next;
    struct sb *sb;
    char id[ID_SIZE];
    struct exec *exec;
    struct cx *cx;         /* its kernel runs it; NULL when that is over */
    struct ex *cx_next;    /* behind it */
    char context[ID_SIZE]; /* of one; or "" */
    char told[48];         /* of its request, see ex_told_request() */
    bool awaits_input, alone;
    struct turn turn;      /* to be started */
    struct files_job *job; /* while its code is written to a file, or that is removed */
    char *code;
    size_t code_sent;
    bool by_file;
    char **argv, **env;
    char *cwd;
    char *input;
    size_t input_len, input_sent;
    bool input_open, input_closed; /* for a writer; closed by one */
    struct writer *writers;
    struct exec_spec spec;
    uint32_t stream; /* of the earlier host, when it is taken up again */
    uint64_t created_ms, started_ms, ended_ms;
    uint64_t created_mono_ms; /* 0: not known */
    char created_by[ID_SIZE];
    char request[RECEIPT_REQUEST_MAX + 1]; /* that asked for it, or "" */
    uint64_t cpu_base_ns;                  /* of the earlier host's */
    uint64_t paused_ms;                    /* of the sandbox, when it was created */
    bool background;
    int fd[3]; /* output, and the events of a context */
    uint64_t len[3];
    uint64_t ring;       /* bytes that are kept of a terminal, the last ones; 0: all */
    uint64_t whole_max;  /* where the beginning cannot be given back: of its file, and no more; 0: no bound */
    uint64_t forgotten;  /* bytes of a terminal from its beginning that are not kept any more */
    uint64_t lost[3];    /* bytes not stored because the disk refused */
    bool unnamed[3];     /* its file waits for the row */
    bool started, ended; /* ended: its end is being written down */
    bool at_end;         /* nobody is told of it before its end */
    bool submitted;      /* the row is on its way */
    bool inserted;       /* the row is there */
    bool noted;          /* its end is safe, and was told */
    struct watch *watches;
    struct ev_timer retry, note;
    struct ev_defer tell, cancel;
    struct ex *next_told, **told_at; /* told_at NULL: its end is not told ahead of its row */

    /* the end */
    enum store_execution_state end_state;
    bool has_receipt;
    int exit_code, signal;
    uint64_t dropped[3]; /* past the limit of output, or lost */
    enum ended_by ended_by;
    bool has_ended_by;
    char *receipt_json, *error_json;
    bool over_budget;    /* killed for that */
    uint64_t end_cpu_us; /* for its usage; 0: unknown */

    struct store_call *inserting, *ending; /* not answered yet */
    store_execution_fn *done;
    void *done_arg;
};

struct guest;

struct guest_sums { /* what guests used (guest.c) */
    struct store_usage *rows, *flushing;
    size_t n, nflushing;
    struct store_call *call;
    struct ev_timer timer;
};

struct manager {
    struct ev *ev;
    struct store *store;
    struct manager_settings set;
    int output_dir;
    struct {
        int fd; /* or -1 */
        uint64_t size;
        size_t waiting; /* noted, not committed */
        struct replay *replays;
        struct ev_timer timer;
    } ends;
    struct engine *engine;
    struct pools *pools;
    struct ev_timer reconnect;
    uint64_t backoff_ns;
    struct sb *sbs[SB_BUCKETS];
    size_t nsbs;
    struct share *shares[SHARE_BUCKETS];
    struct turns creates, starts;
    struct share_refusal refusal;
    bool loaded;     /* the store's living rows are all here */
    size_t adopting; /* still to be adopted */
    char not_ready[160];
    unsigned pinned[64]; /* sandboxes that were confined to each processor */
    struct manager_stats stats;
    bool collecting, strays;
    DIR *gc_dir; /* being looked through for strays */
    char gc_name[ID_SIZE + 8];
    struct store_retention keep;
    struct manager_gc removed;
    manager_gc_fn *gc_done;
    void *gc_arg;
    struct ev_defer defer;
    struct ex *told, **told_last; /* ends that were told and are still to be submitted to the store */
    struct ev_defer settle;
    struct ev_timer meter;
    struct looks looks;
    uint64_t began_ms;              /* of the calendar */
    uint64_t spent[STORE_BUDGETED]; /* since then, by what has ended, and processor time: in us, ms and ones */
    uint64_t budget_refused;
    struct budget *budgets;
    struct store_call *budgets_call;
    bool budgets_known;
    struct ev_timer budget_tick;
    struct guest *guests;
    struct guest_sums guest_sums;
    void (*emptied)(void *arg); /* when the last sandbox is gone; NULL: nobody waits for that */
    void *emptied_arg;
};

/* manager.c */
struct sb *sb_find(const struct manager *m, const char *owner, const char *id);
struct sb *sb_new(struct manager *m, const char *id, const char *owner);
void sb_rename(struct sb *sb, const char *id); /* nobody knows it by its name yet */
void sb_free(struct sb *sb);
void sb_pinned(struct sb *sb, uint64_t pins); /* once: counts it on these processors until it is freed */
uint64_t now_ms(void);
/* Since the machine was started. Sandboxes do not outlive that, so what is written down of a living one can be compared
 * after a restart of the server too, however the calendar was set meanwhile. */
uint64_t mono_ms(const struct manager *m);
bool sb_lifetime_over(const struct sb *sb, uint64_t slack_ms);
void sb_event(struct sb *sb, const char *kind, const char *execution, const char *body_json);
char *why_json(const struct err *why);
char *sb_spec_json(const struct sb *sb); /* as it is stored */
int sb_read_spec(struct sb *sb, const char *spec_json, struct err *err);
void manager_down(struct manager *m, const struct err *why);
void manager_connect(struct manager *m);

/* tenants.c */
struct share *share_of(struct manager *m, const char *name); /* made when there is none */
void shares_free(struct manager *m);
uint64_t share_now(const struct manager *m);
void sb_end_barred(struct sb *sb); /* its tenant is */
void sb_amounts(const struct spec *spec, uint64_t ret[STORE_QUOTA_COUNT]);
void tenants_load(struct manager *m, void (*done)(struct manager *m),
                  void (*failed)(struct manager *m, const struct err *err));

/* life.c */
extern const struct box_ops sb_box_ops;
void sb_end(struct sb *sb, enum ended_by by, const struct err *why);
void sb_ended_error(const struct sb *sb, struct err *ret);
/* A box that nobody made ahead; its mounts are made here, as the spec says. */
int manager_new_box(struct manager *m, const struct spec *spec, struct box_spec *box, const struct box_ops *ops,
                    void *arg, struct box **ret, struct err *err);

/* ops.c */
void sb_busy(struct sb *sb); /* something runs in it, or just did: idleness begins anew */
void sb_answer_waiters(struct sb *sb, const struct err *err, const struct store_sandbox *row); /* for its end */
void sb_fail_ops(struct sb *sb, const struct err *err);

/* execution.c */
extern const struct exec_ops ex_exec_ops;
struct ex *ex_new(struct sb *sb, const char *id);
struct ex *ex_alloc(const char *id);
void ex_link(struct ex *ex, struct sb *sb);
void ex_kill(struct ex *ex);
char **ex_copy_list(const char *const *list); /* NULL-terminated; spec_env_free() */
void ex_free(struct ex *ex);
void ex_insert(struct ex *ex); /* its row */
char *
ex_told_request(const struct ex *ex); /* of its request, what a row that is told has of it: whether it is a terminal */
int ex_resume(struct ex *ex, struct err *err);

/* input.c */
void input_room(struct ex *ex); /* its standard input may take more */
void input_over(struct ex *ex); /* it takes no more */

/* finish.c */
void stats_count(struct manager_stats *s, const struct receipt *r);
void refusals_count(struct manager *m, const char *owner, const struct receipt *r); /* of it, and told */
void ex_not_told(struct ex *ex); /* takes it from the list of manager_settle */
void ex_end(struct ex *ex, enum store_execution_state state, const struct receipt *r, const struct err *why);

/* attend.c */
void sb_tell(struct sb *sb);     /* it was paused, or runs again */
void sb_tell_end(struct sb *sb); /* its end is committed */

/* budget.c */
void budget_start(struct manager *m);
void budget_stop(struct manager *m);
/* Whether a sandbox, or an execution, may begin: ERR_BUDGET. */
int budget_check(struct manager *m, const char *owner, bool execution, struct err *err);
void budget_cpu(const struct sb *sb, uint64_t us); /* its counter grew */
void budget_execution(const struct sb *sb);        /* one of its has ended */
void budget_sandbox(struct sb *sb);                /* it has ended */
/* The same of guests. */
void budget_add_cpu(struct manager *m, const char *owner, uint64_t us);
void budget_add_execution(struct manager *m, const char *owner);
void budget_add_span(struct manager *m, const char *owner, uint64_t from_ms, uint64_t to_ms);

/* guest.c */
uint64_t guest_meter(struct guest *g); /* its processor counter in us; 0: unknown */
void guests_stop(struct manager *m, const char *owner, enum ended_by by, const struct err *why);
void guests_flush(struct manager *m); /* what is gathered goes to the store */
void guests_free(struct manager *m);

/* meter.c */
uint64_t meter_read(struct sb *sb); /* its processor counter in us; 0: unknown */
void meter_stir(struct manager *m); /* something began or ended */
void meter_stop(struct manager *m);

/* watch.c */
struct ex *ex_find(const struct sb *sb, const char *id);
void ex_tell(struct ex *ex);                                        /* something changed */
void ex_tell_end(struct ex *ex, const struct store_execution *row); /* its end is committed */

/* output.c */
void output_append(struct ex *ex, int channel, const void *data, size_t len);
void output_close(struct ex *ex);
int output_load(struct ex *ex); /* what an earlier manager stored; again is nothing */
void output_name(struct ex *ex, bool has_row);
void output_remove(const struct manager *m, const char *id);
bool output_is_name(const char *name, char ret_id[ID_SIZE]); /* of a file whose execution has a row */
void output_sizes(const struct manager *m, const char *id, uint64_t ret[3]);
void output_sweep(struct manager *m); /* files of executions that never got a row */

/* ends.c */
#define EX_SET_ALL \
    (STORE_EX_SET_STATE | STORE_EX_SET_STARTED | STORE_EX_SET_OUTPUT | STORE_EX_SET_END | STORE_EX_SET_RECEIPT)
void ends_open(struct manager *m);
void ends_close(struct manager *m);
bool ends_note(struct manager *m, const struct store_execution *row); /* true: it may be told */
void ends_stored(struct manager *m);                                  /* one that was noted is committed */
void ends_replay(struct manager *m);                                  /* before anything is read from the store */

/* recover.c */
void recover_start(struct manager *m);
void recover_adopt(struct manager *m); /* connected, and everything is loaded */
void recover_adopted(struct sb *sb);   /* its box is ready */
void recover_resolved(struct manager *m);
