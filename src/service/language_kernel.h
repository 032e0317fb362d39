/* language_kernel.h - one language kernel: the interpreter process in a sandbox that executes code
 * requests, which are lines of JSON in both directions (docs/kernel-protocol.md).
 *
 * Its owner is a context, which sends many requests, or a run, which sends one. The language kernel
 * is embedded in its owner and reports by language_kernel_ops. One code request runs at a time. A
 * request that exceeds its timeout is interrupted; a language kernel that ignores the interrupt for
 * the grace period is killed. Code that ends itself (sys.exit) has an exit status and no exception,
 * though the interpreter continues. */
#pragma once

#include "core/base/buf.h"
#include "core/ev/ev.h"
#include "sandbox/engine.h"
#include "service/kernel_event.h"

#define LANGUAGE_KERNEL_START_NS (60 * NS_PER_S)
#define LANGUAGE_KERNEL_TIMEOUT_GRACE_NS (500 * NS_PER_MS)
#define LANGUAGE_KERNEL_CHECK_NS (5 * NS_PER_S) /* usually a millisecond */
#define LANGUAGE_KERNEL_FORK_NS (30 * NS_PER_S) /* usually a millisecond; longer if the process has much memory */

enum language_kernel_state {
    LANGUAGE_KERNEL_DEAD, /* there is no process */
    LANGUAGE_KERNEL_STARTING,
    LANGUAGE_KERNEL_IDLE,
    LANGUAGE_KERNEL_CHECKING,    /* checks code without executing it */
    LANGUAGE_KERNEL_BUSY,        /* executes a request */
    LANGUAGE_KERNEL_INTERRUPTED, /* executes a request and was interrupted: its grace period runs */
    LANGUAGE_KERNEL_COLLECTING,  /* the request has finished; its denials are being collected */
    LANGUAGE_KERNEL_STOPPING,    /* was killed while it was idle */
    LANGUAGE_KERNEL_CLOSED,      /* the owner needs no result any more: what it sends is discarded */
    LANGUAGE_KERNEL_ENDED,       /* its process has ended; until language_kernel_reset */
};

/* How a code request ended. */
struct language_kernel_result {
    enum kernel_status status;
    enum ended_by ended_by;
    int exit_code; /* -1: it was interrupted */
    int signal;
};

/* How a language kernel ended. */
struct language_kernel_death {
    const struct receipt *receipt; /* NULL: see error */
    const struct err *error;       /* why it could not be started or was lost */
    bool was_starting;             /* it was not ready yet */
    bool was_checking;             /* the request of language_kernel_check has no answer */
    bool was_executing;            /* the request of language_kernel_execute has not finished */
};

struct language_kernel_ops {
    uint64_t grace_ns; /* from an interrupt to the kill; after a timeout it is LANGUAGE_KERNEL_TIMEOUT_GRACE_NS */
    /* A request finishes when its denials are known: kernel_receipt_set_denials. */
    bool collects_denials;
    bool keeps_code_stderr; /* the error of its death quotes stderr of the code, not only of the start */

    void (*on_ready)(void *arg, const struct kernel_event *e);
    /* An event of the running request except its end, or the answer to a query. False: the event is
     * not expected. */
    bool (*on_event)(void *arg, const struct kernel_event *e);
    void (*on_output)(void *arg, int channel, const void *data, size_t len); /* of the running request */
    void (*on_finished)(void *arg, const struct language_kernel_result *result);
    /* A resumed language kernel has finished what an earlier server requested. May be NULL. */
    void (*on_idle)(void *arg);
    /* The process has ended. The owner calls language_kernel_reset, now or later. */
    void (*on_died)(void *arg, const struct language_kernel_death *death);
    /* A line that is not an event (e is NULL), or an event that is not expected. */
    void (*on_rejected)(void *arg, const struct kernel_event *e);
    /* How long the timer must still wait before it interrupts or kills; 0: not at all. May be
     * NULL. */
    uint64_t (*timer_delay_ns)(void *arg);
};

struct language_kernel {
    struct ev *ev;
    const char *owner_id;
    const struct language_kernel_spec *spec;
    const struct language_kernel_ops *ops; /* NULL: not initialized */
    void *arg;
    bool collects_denials; /* as in ops, unless the owner changes it before the first request */
    enum language_kernel_state state;
    struct sandbox_handle *sandbox;
    struct exec_handle *exec;
    struct kernel_event_reader reader;
    struct buf unsent;                    /* lines that the process has not taken yet */
    struct ev_timer timer;                /* STARTING, CHECKING: deadline; BUSY: timeout; INTERRUPTED: grace period */
    char request_id[KERNEL_EVENT_ID_MAX]; /* of the running request */
    char stderr_head[160];                /* beginning of stderr, for the error message */
    /* The running request is one of an earlier server; request_id is a query that is answered
     * after it. */
    bool resumed;
    uint64_t resumed_busy_ns;      /* how long that request may still run */
    bool was_interrupted;          /* the running or last request was interrupted */
    enum ended_by interrupt_cause; /* was_interrupted */
    bool killed_by_timer;          /* it missed the deadline of its start or of a check, or ignored an interrupt */
    bool was_killed;               /* language_kernel_kill was called */
    struct language_kernel_result result; /* COLLECTING */
    uint64_t timeout_ms;                  /* of the running or last request */
    bool exited_itself;                   /* the code ended itself with exit_status */
    int exit_status;
};

/* Resolves the name of a language or one of its aliases; NULL: unknown. */
const char *language_kernel_language(const char *name);

/* owner_id is for log lines. The strings are borrowed. */
void language_kernel_init(struct language_kernel *k, struct ev *ev, const char *owner_id, const char *language,
                          const struct language_kernel_ops *ops, void *arg);
const char *language_kernel_name(const struct language_kernel *k);
bool language_kernel_can_fork(const struct language_kernel *k);

/* The caller fills env, cwd, id, request, confirm_end and the choice of interpreter in spec. With
 * use_waiting_interpreter the caller sends its request at once: the interpreter reads it when it is
 * ready. template: the name of the sandbox's template, or NULL. */
int language_kernel_start(struct language_kernel *k, struct sandbox_handle *sandbox, const char *template,
                          struct exec_spec *spec, struct err *err);
int language_kernel_fork(struct language_kernel *k, const struct language_kernel *of, struct exec_spec *spec,
                         struct err *err);
/* The language kernel of an earlier server: busy for at most busy_ms, then on_idle. */
int language_kernel_resume(struct language_kernel *k, struct sandbox_handle *sandbox, struct exec_spec *spec,
                           uint32_t stream, uint64_t busy_ms, struct err *err);
/* Back to DEAD, without on_died: a process that still runs is killed. */
void language_kernel_reset(struct language_kernel *k);
void language_kernel_close(struct language_kernel *k); /* only on_died may follow */
void language_kernel_kill(struct language_kernel *k);  /* on_died follows */

struct language_kernel_code {
    const char *id, *code;
    const char *const *env; /* NAME=VALUE, set for this code only; may be NULL */
    const char *cwd;        /* for this code only; NULL: unchanged */
};
/* Whether it fits into one request, with its JSON quoting. */
bool language_kernel_accepts_code(const struct language_kernel_code *c);
void language_kernel_execute(struct language_kernel *k, const struct language_kernel_code *c, uint64_t timeout_ns);
/* Checks the syntax tree of c->code; env and cwd are ignored. on_event follows with
 * KERNEL_EVENT_REPORT or KERNEL_EVENT_REFUSED. An interpreter that does not answer in time is
 * killed. has_data: the template has NumPy, pandas and matplotlib. */
void language_kernel_check(struct language_kernel *k, const struct language_kernel_code *c, bool has_data);
void language_kernel_send_input(struct language_kernel *k, const char *text); /* NULL: end of input */
/* Answers an input request with the next line of `input`, or its end; *sent counts the bytes. */
void language_kernel_send_input_line(struct language_kernel *k, const char *input, size_t len, size_t *sent);
void language_kernel_send_query(struct language_kernel *k, bool inspect, const char *id, const char *code,
                                uint64_t cursor);
bool language_kernel_has_unsent(const struct language_kernel *k);
bool language_kernel_is_executing(const struct language_kernel *k); /* a request of language_kernel_execute */
/* No effect unless a request runs that was not interrupted yet. */
void language_kernel_interrupt(struct language_kernel *k, enum ended_by cause);

/* Why it died; subject begins the message. The death must have a receipt. */
void language_kernel_death_error(const struct language_kernel *k, const struct language_kernel_death *death,
                                 const char *subject, struct err *ret);
