/* inside.h - what the files of this room know of one another. Nothing outside includes it. */
#pragma once

#include "executor/cache.h"
#include "executor/executor.h"
#include "sandbox/guest.h"
#include "sandbox/kevent.h"
#include "sandbox/turns.h"

enum run_state {
    RUN_WAITING,  /* for its turn */
    RUN_MAKING,   /* its sandbox is on its way */
    RUN_STAGING,  /* its files go in */
    RUN_STARTING, /* its program is being started */
    RUN_RUNNING,
    RUN_GATHERING, /* it has ended, and its files come out */
    RUN_OVER,      /* it was told, or nobody listens; its sandbox goes */
};

struct gather; /* gather.c */

struct graves {                /* graves.c */
    struct run *first, **last; /* the line */
    uint32_t waiting, under_way;
    struct ev_timer timer;
};

struct run {
    struct run *next, **at;
    struct executor *e;
    char id[ID_SIZE];
    struct run_request req;
    struct spec spec;
    const struct run_ops *ops; /* NULL: nobody listens */
    void *arg;
    enum run_state state;
    bool queued; /* it is counted among those of its tenant that wait */
    bool young;  /* executor_run has not returned: nobody expects a callback */
    struct guest guest;
    struct turn turn;
    struct exec *exec;
    struct ev_timer clock;
    struct ev_defer stopping, end;
    bool told; /* that it has started */
    uint64_t asked_ns, begun_ns, started_ns, ended_ns;
    uint64_t started_real_ns;

    struct files_job *job; /* STAGING */
    size_t file, sent;     /* of its files, and of that one */
    size_t input_sent;

    /* code: its kernel */
    struct kevent_reader in;
    struct buf line; /* on its way */
    bool interrupted;
    bool exits; /* it has ended itself, with: */
    int exit_status;
    bool joined; /* it waits in the sandbox or is brought there, or: */
    bool alone;  /* that one was dead, and it is to be started */
    uint64_t cpu_base_ns;
    char said[160]; /* on standard error, the beginning: for who wants to know why it died */

    /* what came of it */
    struct buf out[2], events, exception;
    uint64_t produced[2], dropped[2], events_dropped, kept;
    struct receipt receipt;
    bool has_receipt;
    enum kevent_status word; /* of the kernel */
    enum ended_by stop_by;   /* it was stopped for this reason */
    bool stopped;
    bool has_why;
    struct err why; /* it died, or could not be run */
    struct gather *gather;
    struct buf body;

    struct run *next_grave;
    bool standing, in_turn; /* in the line; taken out of it because it was its turn */

    bool keyed;
    bool cached;
    uint8_t key[CACHE_KEY];
};

struct executor {
    struct executor_settings set;
    struct turns turns;
    struct graves graves;
    struct cache *cache;
    struct run *runs;
    bool finished;
    uint64_t mean_ns;    /* of a run, lately */
    uint64_t held_extra; /* of held_bytes, what runs hold beyond what is each one's own */
    struct executor_stats stats;
};

/* run.c */
void run_free(struct run *r);
void run_started(struct run *r); /* its program runs */
void run_ended(struct run *r);   /* it has a receipt, or died: what is left to do? */
void run_fail(struct run *r, const struct err *err);
/* Output and events of it, within their bound. */
void run_output(struct run *r, int channel, const void *data, size_t len);
void run_event(struct run *r, const struct kevent *e);
void run_told(struct run *r); /* all that it is to tell is here */

/* start.c: files in, the program, and what the kernel says */
void start_stage(struct run *r);
void start_reset(struct run *r);                       /* nothing of it has happened */
void start_interrupt(struct run *r, enum ended_by by); /* a clock, or somebody: it is to end now */

/* gather.c: files out */
void gather_begin(struct run *r); /* run_told follows */
void gather_json(const struct run *r, struct jsonw *w);
uint64_t gather_bytes(const struct run *r);
bool gather_short(const struct run *r); /* something did not come out */
void gather_free(struct run *r);

/* graves.c: its sandbox goes, when there is time */
void graves_init(struct executor *e);
void graves_finish(struct executor *e); /* all of them, as soon as may be */
void graves_done(struct executor *e);
void graves_add(struct run *r);
void graves_gone(struct run *r); /* there is no sandbox any more */

/* answer.c */
void answer_receipt(struct run *r, enum ended_by by, int code, int signo); /* of code: the kernel's word */
void answer_body(struct run *r);
bool answer_is_good(const struct run *r); /* it ended well by itself, and all of it is told */
