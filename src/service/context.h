/* context.h - contexts: language kernels that live in a sandbox and keep their state between
 * executions.
 *
 * A context is a language kernel (one process of a language in the sandbox) and a queue. Executions
 * run one after another; each is an ordinary execution of the sandbox with a row, output, a receipt
 * and watches. Events of the language kernel other than output (displays, results, exceptions) are
 * kept in a third file of the execution, one JSON object per line.
 *
 * A language kernel that ignores an interrupt is killed and restarted; the result reports that its
 * state is lost. A language kernel that dies leaves its context dead, with the reason, until the
 * context is restarted or deleted. A context survives a restart of the server with its state; the
 * execution that ran at that time is reported as lost, and the context is busy until its language
 * kernel has finished that execution. */
#pragma once

#include "service/manager.h"

/* The request with its JSON quoting must fit into one line to the language kernel. */
#define CONTEXT_CODE_MAX (512 * KIB)
#define CONTEXT_INPUT_MAX (64 * KIB)
#define CONTEXTS_MAX 8u /* in one sandbox, without its default contexts */
#define CONTEXTS_LISTED_MAX 16u
#define CONTEXT_EXECUTIONS_MAX 16u
#define CONTEXT_EVENTS 3 /* the channel for manager_open_output() and execution_watch_output_bytes() */

enum context_state { CONTEXT_STARTING, CONTEXT_IDLE, CONTEXT_BUSY, CONTEXT_DEAD };
extern const char *const context_states[]; /* NULL-terminated */

struct context_info {
    char id[ID_SIZE]; /* cx... */
    bool is_default;  /* default_context.h */
    char sandbox[ID_SIZE];
    char language[16];
    char version[64]; /* of the interpreter; "": not known yet */
    char cwd[256];    /* "": /workspace; a longer path is cut */
    char created_by[ID_SIZE];
    char forked_from[ID_SIZE]; /* the context that it was forked from; "": none, or restarted since then */
    uint64_t created_ms;
    enum context_state state;
    char running[ID_SIZE]; /* the execution that runs, or "" */
    size_t queued;         /* executions waiting behind the running one */
    uint64_t executions;   /* since the language kernel started */
    uint64_t restarts;
    /* Rejected lines of the language kernel: not a valid event, or not about a pending request. */
    uint64_t rejected_lines;
    struct err death_error; /* state CONTEXT_DEAD: the reason */
    const char *outcome;    /* after an interrupt: "idle", "finished", "interrupted" or "killed"; otherwise NULL */
};

struct context_spec {
    const char *language;   /* python, node or bash */
    const char *cwd;        /* absolute, or relative to /workspace; NULL: /workspace */
    const char *const *env; /* may be NULL */
    const char *created_by;
};

typedef void context_fn(void *arg, const struct err *err, const struct context_info *info);

/* `done` runs when the language kernel is ready for the first execution and the context is
 * committed. */
void manager_context_create(struct manager *m, const char *owner, const char *sandbox, const char *id,
                            const struct context_spec *spec, context_fn *done, void *arg);
/* Lists the contexts of a live sandbox, oldest first. ERR_MISSING: no live sandbox has this id. */
int manager_contexts(const struct manager *m, const char *owner, const char *sandbox,
                     struct context_info ret[CONTEXTS_LISTED_MAX], size_t *ret_n, struct err *err);
/* Interrupts the running execution. `done` runs when it has stopped, or was killed with its
 * language kernel. */
void manager_context_interrupt(struct manager *m, const char *owner, const char *sandbox, const char *id,
                               context_fn *done, void *arg);
/* Starts a new language kernel; running and waiting executions are ended. `done` runs when it is
 * ready. */
void manager_context_restart(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             context_fn *done, void *arg);
/* Creates a context whose language kernel is a fork of this one: with its current variables,
 * modules and open files, independent from then on. Requires an idle context, a language that
 * supports forks (Python) and a single thread. `done`: as for manager_context_create. */
void manager_context_fork(struct manager *m, const char *owner, const char *sandbox, const char *of, const char *id,
                          const char *created_by, context_fn *done, void *arg);
void manager_context_delete(struct manager *m, const char *owner, const char *sandbox, const char *id, context_fn *done,
                            void *arg);

struct context_execution_spec {
    const char *code;
    uint64_t timeout_ms;    /* from the start of the execution, without its time in the queue; 0: the sandbox's */
    uint64_t cpu_ms;        /* CPU time limit; 0: the sandbox's */
    uint64_t output_max;    /* 0: the sandbox's limit */
    const char *const *env; /* for this code only; may be NULL */
    const char *cwd;        /* for this code only, absolute or relative to /workspace; NULL: unchanged */
    /* Answers the code's input requests, line by line. NULL: they are events, which
     * manager_context_input() answers. */
    const char *input;
    size_t input_len;
    bool background, report_only_end; /* as in struct execution_spec */
    const char *created_by;
    const char *request_id; /* as in struct execution_spec */
};
/* `done` runs when the row is committed; the execution is queued or runs. */
void manager_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *context,
                             const char *id, const struct context_execution_spec *call, store_execution_fn *done,
                             void *arg);
/* Answers an execution that requests a line of input; text NULL: end of input. */
int manager_context_input(struct manager *m, const char *owner, const char *sandbox, const char *execution,
                          const char *text, struct err *err);

/* Completions at the cursor, or information about the expression there, as JSON. Requires an idle
 * context. */
typedef void context_query_fn(void *arg, const struct err *err, const char *json);
void manager_context_query(struct manager *m, const char *owner, const char *sandbox, const char *id, bool inspect,
                           const char *code, uint64_t cursor, context_query_fn *done, void *arg);
