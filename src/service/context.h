/* context.h - contexts: interpreters that live in a sandbox and keep their state between executions.
 *
 * A context is a kernel (one process of a language in the sandbox) and a queue: executions run one after another, each
 * an ordinary execution of the sandbox with a row, output, a receipt and watches. What a kernel tells beside output
 * (displays, results, exceptions) is kept as a third file of the execution, one JSON object a line.
 *
 * A kernel that does not heed an interrupt is killed and started anew, and that is what is told: its state is gone. One
 * that dies by itself leaves its context dead, with the reason, until somebody restarts or deletes it. A context
 * survives a restart of the server with its state; what ran in it then is told as lost, and the context is busy until
 * its kernel is through with it. */
#pragma once

#include "service/manager.h"

#include <limits.h>

#define CONTEXT_CODE_MAX (512 * KIB) /* with everything around it, it has to fit into one line to the kernel */
#define CONTEXT_INPUT_MAX (64 * KIB)
#define CONTEXTS_MAX 8u /* in one sandbox */
#define CONTEXT_EXECUTIONS_MAX 16u
#define CONTEXT_EVENTS 3 /* the channel for manager_open_output() and execution_watch_output_bytes() */

enum context_state { CONTEXT_STARTING, CONTEXT_IDLE, CONTEXT_BUSY, CONTEXT_DEAD };
extern const char *const context_states[]; /* NULL-terminated */

struct context_info {
    char id[ID_SIZE]; /* cx... */
    char sandbox[ID_SIZE];
    char language[16];
    char version[64]; /* of the interpreter; "" while it is not known */
    char cwd[256];    /* "" is /workspace; a longer one is cut */
    char created_by[ID_SIZE];
    char forked_from[ID_SIZE]; /* the context whose state it began with; "": none, or it was restarted since */
    uint64_t created_ms;
    enum context_state state;
    char running[ID_SIZE]; /* the execution that runs, or "" */
    size_t queued;         /* behind it */
    uint64_t executions;   /* since the kernel began */
    uint64_t restarts;
    uint64_t rejected_lines; /* lines of the kernel that were no events, or of nothing that was asked */
    struct err death_error;  /* of a dead one */
    const char *outcome;     /* of an interrupt: "idle", "finished", "interrupted" or "killed"; else NULL */
};

struct context_spec {
    const char *language;   /* python, node or bash */
    const char *cwd;        /* as of an execution; NULL is /workspace */
    const char *const *env; /* may be NULL */
    const char *created_by;
};

typedef void context_fn(void *arg, const struct err *err, const struct context_info *info);

const char *context_language_name(const char *name); /* by its name or another that is usual; NULL: there is none */

/* The words that start its kernel in a sandbox. */
struct context_command {
    const char *argv[5];
    char path[PATH_MAX];
};
int context_kernel_command(const char *language, struct context_command *ret, struct err *err);

/* done: its kernel is ready for the first execution, and that it exists is committed. */
void manager_context_create(struct manager *m, const char *owner, const char *sandbox, const char *id,
                            const struct context_spec *spec, context_fn *done, void *arg);
/* Those of a sandbox, oldest first; how many were written to ret. MISSING when nobody knows the sandbox among the
 * living. */
int manager_contexts(const struct manager *m, const char *owner, const char *sandbox,
                     struct context_info ret[CONTEXTS_MAX], size_t *ret_n, struct err *err);
/* The execution that runs is told to stop; done when it did, or was killed with its kernel. */
void manager_context_interrupt(struct manager *m, const char *owner, const char *sandbox, const char *id,
                               context_fn *done, void *arg);
/* A new kernel; what ran or waited is ended. done: it is ready. */
void manager_context_restart(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             context_fn *done, void *arg);
/* Another context whose kernel is a fork of this one's: variables, modules and open files as they are now, each on its
 * own from then on. Only of one that is idle, in a language that can (Python), with one thread. done: as of create. */
void manager_context_fork(struct manager *m, const char *owner, const char *sandbox, const char *of, const char *id,
                          const char *created_by, context_fn *done, void *arg);
void manager_context_delete(struct manager *m, const char *owner, const char *sandbox, const char *id, context_fn *done,
                            void *arg);

struct context_execution_spec {
    const char *code;
    uint64_t timeout_ms; /* from its turn on; 0: the sandbox's */
    uint64_t output_max; /* 0: the sandbox's */
    bool background;
    const char *created_by;
    const char *request_id; /* as of an execution_spec */
};
/* done: its row is committed; it has a place in the queue, or runs. */
void manager_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *context,
                             const char *id, const struct context_execution_spec *call, store_execution_fn *done,
                             void *arg);
/* The answer to an execution that asks for a line; text NULL: end of input. */
int manager_context_input(struct manager *m, const char *owner, const char *sandbox, const char *execution,
                          const char *text, struct err *err);

/* What could stand at the cursor, or what is known about it: JSON. Only of one that is idle. */
typedef void context_query_fn(void *arg, const struct err *err, const char *json);
void manager_context_query(struct manager *m, const char *owner, const char *sandbox, const char *id, bool inspect,
                           const char *code, uint64_t cursor, context_query_fn *done, void *arg);
