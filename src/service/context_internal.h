/* context_internal.h - what the files about contexts, and those that meet them, know of one another. Not for other
 * rooms. */
#pragma once

#include "service/context.h"
#include "service/service_internal.h"
#include "service/kernel_event.h"

struct context_waiter { /* somebody waits for what becomes of it */
    struct context_waiter *next;
    enum { CONTEXT_WAIT_READY, CONTEXT_WAIT_EXECUTION, CONTEXT_WAIT_DELETED } event;
    context_fn *done;
    void *arg;
};

struct context_query {
    struct context_query *next;
    struct context *context;
    char id[24];
    bool inspect;
    context_query_fn *done;
    void *arg;
    struct ev_timer timer;
};

struct context {
    struct context *next;
    struct sandbox *sandbox;
    char id[ID_SIZE];
    const struct language_kernel_spec *kernel_spec;
    char **env;
    bool env_lost; /* it had variables, and an earlier server knew them */
    char *cwd;
    char created_by[ID_SIZE];
    char forked_from[ID_SIZE]; /* until it begins anew */
    uint64_t created_ms;

    enum context_state state;
    struct err death_error; /* DEAD */
    struct exec_handle *exec;
    uint32_t resume_stream; /* of the earlier host, until it is taken up */
    struct kernel_event_reader kernel_reader;
    struct buf kernel_out; /* lines on their way to the kernel */
    char version[64];
    char stderr_head[160]; /* STARTING: on standard error, for who wants to know why it did not start */
    uint64_t executions_run, restarts, rejected_lines, query_seq;

    struct execution *queue; /* BUSY: the first runs, unless `left` */
    size_t nqueued;
    struct ev_timer timer;    /* STARTING: until it is given up. BUSY: the time of the call, or the grace */
    bool resumed_busy;        /* BUSY: with what an earlier server asked for, as far as is known; nobody hears of it */
    uint64_t resumed_busy_ms; /* how long it may go on */
    bool interrupt_sent;      /* SIGINT was sent, and the clock is the grace */
    bool kill_sent;           /* because it did not help */
    enum ended_by interrupt_cause; /* of the interrupt: SIGNAL, WALL or KILLED */
    bool never_ready;              /* it was never ready: whoever creates it waits, and it goes when its kernel does */
    uint64_t ready_write_seq; /* how often contexts were written down when it was ready, until that is committed; 0 */
    bool restart_requested, delete_requested; /* when the kernel has ended: begin anew; or go */
    const char *outcome;                      /* of the last call, for those who wait */
    struct context_waiter *waiters;
    struct context_query *queries;
};

/* context_kernel.c: the kernel */
struct context *context_new(struct sandbox *sb, const char *id, const char *language);
struct context *context_find(const struct sandbox *sb, const char *id);
int context_start_kernel(struct context *cx, struct err *err);
int context_fork_kernel(struct context *cx, const struct context *of, struct err *err);
int context_resume_kernel(struct context *cx, struct err *err);
void context_kill_kernel(struct context *cx); /* its end comes later */
void context_interrupt(struct context *cx, enum ended_by cause);
void context_send_kernel(struct context *cx, const char *line, size_t len); /* with its '\n' */
void context_set_timer(struct context *cx, uint64_t ns);
void context_mark_dead(struct context *cx, const struct err *why); /* it has no kernel */
void context_notify_waiters(struct context *cx, int what, const struct err *err);
void context_add_waiter(struct context *cx, int what, context_fn *done, void *arg);
void context_free(struct context *cx);
void context_query_finish(struct context_query *a, const struct err *err, const char *json);
const char *context_get_language(const struct context *cx);
void context_fill_info(const struct context *cx, struct context_info *ret);

/* context_executions.c: executions */
bool context_execution_event(struct context *cx, const struct kernel_event *e); /* false: it is of nothing that runs */
void context_execution_output(struct context *cx, int channel, const void *data, size_t len);
void context_start_next_execution(struct context *cx);
/* The one that runs. */
void context_execution_over(struct context *cx, enum ended_by by, int exit_code, int signo);
void context_execution_kernel_died(struct context *cx, const struct receipt *r,
                                   const struct err *why);               /* with its kernel */
void context_fail_executions(struct context *cx, const struct err *why); /* those that wait */
void context_execution_kill(struct execution *ex);
void context_execution_signal(struct execution *ex, int signo);
struct execution *context_execution_new(const char *id, const struct context_execution_spec *call,
                                        store_execution_fn *done, void *arg);
int context_add_execution(struct context *cx, struct execution *ex, struct err *err); /* takes ex */
void context_execution_unlink(struct execution *ex);                                  /* it is being freed */
uint64_t context_execution_elapsed_ms(const struct execution *ex);

/* context_api.c: what is asked of them, and what is written down */
void contexts_json(const struct sandbox *sb, struct jsonw *w); /* "contexts": [...] */
int contexts_read(struct sandbox *sb, const json_t *root, struct err *err);
void contexts_commit(struct sandbox *sb);
void contexts_fail_waiters(struct sandbox *sb, const struct err *why); /* whoever waits for one is told */
void contexts_adopt(struct sandbox *sb);                               /* its box is ready, and what ran was seen to */
void context_await_idle(struct context *cx); /* its kernel was taken up: it is busy until it says otherwise */
