/* context_internal.h - types and functions shared by the files about contexts and their callers in
 * src/service. Not for other directories. */
#pragma once

#include "service/context.h"
#include "service/execution_internal.h"
#include "service/language_kernel.h"

struct context_waiter { /* a caller that waits for an event of the context */
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
    struct language_kernel kernel;
    char **env;
    bool env_lost;   /* it had variables, which only an earlier server knew */
    bool is_default; /* default_context.h */
    /* The language kernel was restarted because it was dead, and no execution has reported that. */
    bool reset_unreported;
    char *cwd;
    char created_by[ID_SIZE];
    char forked_from[ID_SIZE]; /* "" after a restart of the language kernel */
    uint64_t created_ms;

    struct err death_error; /* CONTEXT_DEAD */
    uint32_t resume_stream; /* stream id of the language kernel from before a restart of the server; 0: none */
    char version[64];
    uint64_t executions_run, restarts, rejected_lines, query_seq;

    struct execution *queue; /* the first one runs if language_kernel_is_executing() */
    size_t nqueued;
    /* The language kernel was never ready: the creator still waits, and the context is freed when
     * its kernel ends. */
    bool never_ready;
    /* sandbox.contexts_write_seq of the commit that its creator waits for; 0: none. */
    uint64_t ready_write_seq;
    /* When the language kernel has ended: restart it; remove the context. */
    bool restart_requested, delete_requested;
    const char *outcome; /* of the last execution, for waiters; NULL: none */
    struct context_waiter *waiters;
    struct context_query *queries;
};

/* context_kernel.c: the language kernel */
struct context *context_new(struct sandbox *sb, const char *id, const char *language, bool is_default);
struct context *context_find(const struct sandbox *sb, const char *id);
int context_start_kernel(struct context *cx, struct err *err);
int context_start_kernel_again(struct context *cx, struct err *err); /* after its end */
int context_fork_kernel(struct context *cx, const struct context *of, struct err *err);
int context_resume_kernel(struct context *cx, uint64_t busy_ms, struct err *err);
void context_mark_dead(struct context *cx, const struct err *why); /* it has no language kernel */
void context_notify_waiters(struct context *cx, int what, const struct err *err);
/* Answers the waiters for the end of an execution. */
void context_notify_outcome(struct context *cx, const char *outcome, const struct err *err);
void context_add_waiter(struct context *cx, int what, context_fn *done, void *arg);
void context_free(struct context *cx);
void context_query_finish(struct context_query *a, const struct err *err, const char *json);
enum context_state context_get_state(const struct context *cx);
void context_fill_info(const struct context *cx, struct context_info *ret);

/* context_executions.c: executions */
/* False: not about the running execution. */
bool context_execution_event(struct context *cx, const struct kernel_event *e);
void context_execution_output(void *arg, int channel, const void *data, size_t len);
void context_execution_on_finished(void *arg, const struct language_kernel_result *result);
void context_start_next_execution(struct context *cx);
/* Ends the running execution. */
void context_execution_over(struct context *cx, enum ended_by by, int exit_code, int signo);
/* Ends the running execution together with its language kernel. */
void context_execution_kernel_died(struct context *cx, const struct receipt *r, const struct err *why);
void context_fail_executions(struct context *cx, const struct err *why); /* fails all executions of the queue */
void context_execution_kill(struct execution *ex);
void context_execution_signal(struct execution *ex, int signo);
struct execution *context_execution_new(const char *id, const struct context_execution_spec *call,
                                        store_execution_fn *done, void *arg);
int context_add_execution(struct context *cx, struct execution *ex, struct err *err); /* takes ex */
void context_execution_unlink(struct execution *ex);                                  /* before it is freed */
uint64_t context_execution_elapsed_ms(const struct execution *ex);
