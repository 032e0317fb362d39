/* executor_internal.h - what the files of this room know of one another. Nothing outside includes it. */
#pragma once

#include "service/execute/result_cache.h"
#include "service/execute/executor.h"
#include "service/ephemeral_sandbox.h"
#include "service/kernel_event.h"
#include "service/fair_queue.h"

enum run_state {
    RUN_WAITING,  /* for its turn */
    RUN_CREATING, /* its sandbox is on its way */
    RUN_STAGING,  /* its files go in */
    RUN_STARTING, /* its program is being started */
    RUN_RUNNING,
    RUN_GATHERING, /* it has ended, and its files come out */
    RUN_DONE,      /* it was told, or nobody listens; its sandbox goes */
};

struct gather; /* gather.c */

struct teardown_queue {        /* teardown.c */
    struct run *first, **last; /* the line */
    uint32_t waiting, in_progress;
    struct ev_timer timer;
};

struct run {
    struct run *next, **link;
    struct executor *executor;
    char id[ID_SIZE];
    struct run_request request;
    struct spec spec;
    const struct run_ops *ops; /* NULL: nobody listens */
    void *arg;
    enum run_state state;
    bool counted_waiting; /* it is counted among those of its tenant that wait */
    bool in_submit_call;  /* executor_run has not returned: nobody expects a callback */
    struct ephemeral_sandbox sandbox;
    struct fair_queue_slot slot;
    struct exec_handle *exec;
    struct ev_timer timer;
    struct ev_defer stop_defer, end_defer;
    bool start_reported; /* that it has started */
    uint64_t submitted_ns, dequeued_ns, started_ns, ended_ns;
    uint64_t started_real_ns;

    struct files_job *files_job;  /* STAGING */
    size_t file_index, file_sent; /* of its files, and of that one */
    size_t input_sent;

    /* code: its kernel */
    struct kernel_event_reader kernel_reader;
    struct buf kernel_out; /* on its way */
    bool interrupt_sent;
    bool exited_itself; /* it has ended itself, with: */
    int exit_status;
    bool uses_prepared_interpreter; /* it waits in the sandbox or is brought there, or: */
    bool cold_start_only;           /* that one was dead, and it is to be started */
    uint64_t cpu_base_ns;
    char stderr_head[160]; /* on standard error, the beginning: for who wants to know why it died */

    /* what came of it */
    struct buf output[2], events, exception;
    uint64_t produced_bytes[2], dropped_bytes[2], events_dropped, kept_bytes;
    struct receipt receipt;
    bool has_receipt;
    enum kernel_status kernel_status; /* of the kernel */
    enum ended_by stop_cause;         /* it was stopped for this reason */
    bool stop_requested;
    bool has_error;
    struct err error; /* it died, or could not be run */
    struct gather *gather;
    struct buf result_json;

    struct run *next_teardown;
    bool in_teardown_queue, counted_in_flight; /* in the line; taken out of it because it was its turn */

    bool has_cache_key;
    bool from_cache;
    uint8_t cache_key[RESULT_CACHE_KEY_SIZE];
};

struct executor {
    struct executor_settings settings;
    struct fair_queue queue;
    struct teardown_queue teardown;
    struct result_cache *cache;
    struct run *runs;
    uint32_t nwaiting; /* runs with counted_waiting */
    bool is_stopping;
    uint64_t mean_run_ns;       /* of a run, lately */
    uint64_t shared_held_bytes; /* of held_bytes, what runs hold beyond what is each one's own */
    struct executor_stats stats;
};

/* run.c */
void run_free(struct run *r);
void run_program_started(struct run *r); /* its program runs */
void run_program_ended(struct run *r);   /* it has a receipt, or died: what is left to do? */
void run_fail(struct run *r, const struct err *err);
/* Output and events of it, within their bound. */
void run_add_output(struct run *r, int channel, const void *data, size_t len);
void run_add_kernel_event(struct run *r, const struct kernel_event *e);
void run_complete_with_result(struct run *r); /* all that it is to tell is here */

/* run_program.c: files in, the program, and what the kernel says */
void run_stage_files(struct run *r);
void run_reset_program(struct run *r);               /* nothing of it has happened */
void run_interrupt(struct run *r, enum ended_by by); /* a clock, or somebody: it is to end now */

/* gather.c: files out */
void gather_start(struct run *r); /* run_complete_with_result follows */
void gather_json(const struct run *r, struct jsonw *w);
uint64_t gather_bytes(const struct run *r);
bool gather_is_incomplete(const struct run *r); /* something did not come out */
void gather_free(struct run *r);

/* teardown.c: its sandbox goes, when there is time */
void teardown_init(struct executor *e);
void teardown_flush(struct executor *e); /* all of them, as soon as may be */
void teardown_done(struct executor *e);
void teardown_add(struct run *r);
void teardown_remove(struct run *r); /* there is no sandbox any more */

/* run_result.c */
void run_make_receipt(struct run *r, enum ended_by by, int code, int signo); /* of code: the kernel's word */
void run_write_result_json(struct run *r);
bool run_result_is_cacheable(const struct run *r); /* it ended well by itself, and all of it is told */
