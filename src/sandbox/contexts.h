/* contexts.h - what the files about contexts, and those that meet them, know of one another. Not for other rooms. */
#pragma once

#include "sandbox/context.h"
#include "sandbox/inside.h"
#include "sandbox/kevent.h"

struct cx_wait { /* somebody waits for what becomes of it */
    struct cx_wait *next;
    enum { WAIT_READY, WAIT_CALL, WAIT_GONE } what;
    context_fn *done;
    void *arg;
};

struct cx_ask {
    struct cx_ask *next;
    struct cx *cx;
    char id[24];
    bool inspect;
    context_asked_fn *done;
    void *arg;
    struct ev_timer timer;
};

struct cx {
    struct cx *next;
    struct sb *sb;
    char id[ID_SIZE];
    const struct language *lang;
    char **env;
    bool env_lost; /* it had variables, and an earlier server knew them */
    char *cwd;
    char created_by[ID_SIZE];
    char forked_from[ID_SIZE]; /* until it begins anew */
    uint64_t created_ms;

    enum context_state state;
    struct err why; /* DEAD */
    struct exec *exec;
    uint32_t stream; /* of the earlier host, until it is taken up */
    struct kevent_reader in;
    struct buf out; /* lines on their way to the kernel */
    char version[64];
    char said[160]; /* STARTING: on standard error, for who wants to know why it did not start */
    uint64_t executions, restarts, refused, asked;

    struct ex *calls; /* BUSY: the first runs, unless `left` */
    size_t ncalls;
    struct ev_timer clock; /* STARTING: until it is given up. BUSY: the time of the call, or the grace */
    bool left;             /* BUSY: with what an earlier server asked for, as far as is known; nobody hears of it */
    uint64_t left_ms;      /* how long it may go on */
    bool interrupted;      /* SIGINT was sent, and the clock is the grace */
    bool killed;           /* because it did not help */
    enum ended_by cause;   /* of the interrupt: SIGNAL, WALL or KILLED */
    bool fresh;            /* it was never ready: whoever creates it waits, and it goes when its kernel does */
    uint64_t noted;        /* how often contexts were written down when it was ready, until that is committed; 0 */
    bool again, gone;      /* when the kernel has ended: begin anew; or go */
    const char *outcome;   /* of the last call, for those who wait */
    struct cx_wait *waits;
    struct cx_ask *asks;
};

/* context.c: the kernel */
struct cx *cx_new(struct sb *sb, const char *id, const char *language);
struct cx *cx_find(const struct sb *sb, const char *id);
int cx_start(struct cx *cx, struct err *err);
int cx_fork(struct cx *cx, const struct cx *of, struct err *err);
int cx_resume(struct cx *cx, struct err *err);
void cx_end_kernel(struct cx *cx); /* its end comes later */
void cx_interrupt(struct cx *cx, enum ended_by cause);
void cx_send(struct cx *cx, const char *line, size_t len); /* with its '\n' */
void cx_set_clock(struct cx *cx, uint64_t ns);
void cx_die(struct cx *cx, const struct err *why); /* it has no kernel */
void cx_tell(struct cx *cx, int what, const struct err *err);
void cx_wait_for(struct cx *cx, int what, context_fn *done, void *arg);
void cx_free(struct cx *cx);
void cx_ask_over(struct cx_ask *a, const struct err *err, const char *json);
const char *cx_language(const struct cx *cx);
void cx_info(const struct cx *cx, struct context_info *ret);

/* calls.c: executions */
bool call_event(struct cx *cx, const struct kevent *e); /* false: it is of nothing that runs */
void call_output(struct cx *cx, int channel, const void *data, size_t len);
void call_next(struct cx *cx);
/* The one that runs. */
void call_over(struct cx *cx, enum ended_by by, int exit_code, int signo);
void call_died(struct cx *cx, const struct receipt *r, const struct err *why); /* with its kernel */
void calls_fail(struct cx *cx, const struct err *why);                         /* those that wait */
void call_kill(struct ex *ex);
void call_signal(struct ex *ex, int signo);
void call_name(struct ex *ex, const char *context); /* it is of this one */
struct ex *call_new(const char *id, const struct context_call *call, store_execution_fn *done, void *arg);
int call_add(struct cx *cx, struct ex *ex, struct err *err); /* takes ex */
void call_forget(struct ex *ex);                             /* it is being freed */
uint64_t call_elapsed_ms(const struct ex *ex);

/* contexts.c: what is asked of them, and what is written down */
void contexts_json(const struct sb *sb, struct jsonw *w); /* "contexts": [...] */
int contexts_read(struct sb *sb, const json_t *root, struct err *err);
void contexts_store(struct sb *sb);
void contexts_end(struct sb *sb, const struct err *why); /* whoever waits for one is told */
void contexts_adopt(struct sb *sb);                      /* its box is ready, and what ran was seen to */
void cx_settle(struct cx *cx); /* its kernel was taken up: it is busy until it says otherwise */
