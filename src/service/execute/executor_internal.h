/* executor_internal.h - types and functions shared by the files of src/service/execute. Not for
 * other directories. */
#pragma once

#include "service/execute/result_cache.h"
#include "service/execute/executor.h"
#include "service/ephemeral_sandbox.h"
#include "service/execution_state.h"
#include "service/failure_hint.h"
#include "service/language_kernel.h"
#include "service/output_stream.h"
#include "service/result.h"
#include "core/ev/fair_queue.h"

struct gather; /* gather.c */

struct teardown_queue {        /* teardown.c */
    struct run *first, **last; /* runs that wait for their teardown */
    uint32_t waiting, in_progress;
    struct ev_timer timer;
};

struct run {
    struct run *next, **link;
    struct executor *executor;
    char id[ID_SIZE];
    struct run_request request;
    struct spec spec;
    const struct run_ops *ops; /* NULL: completed or cancelled */
    void *arg;
    enum execution_state state;
    bool counted_waiting; /* included in the numbers of waiting runs, of the executor and of its tenant */
    struct ephemeral_sandbox sandbox;
    struct fair_queue_slot slot;
    struct exec_handle *exec;      /* a command */
    struct language_kernel kernel; /* code */
    struct ev_defer stop_defer, end_defer;
    bool start_reported; /* on_started was called */
    uint64_t submitted_ns, dequeued_ns, started_ns, ended_ns;
    uint64_t started_real_ns;

    struct files_job *files_job;  /* STAGING */
    size_t file_index, file_sent; /* index of the current file; bytes of it already sent */
    size_t input_sent;

    /* The interpreter waits in the sandbox already, or a zygote forks it into the sandbox. */
    bool uses_prepared_interpreter;
    bool cold_start_only; /* the prepared interpreter was dead: start a new one */
    uint64_t cpu_base_ns;

    /* the result */
    struct output_stream stream;
    struct result_output output; /* streamed: only the value and the exception */
    uint64_t held_bytes;         /* of the memory for kept output */
    uint64_t rejected_lines;     /* of the language kernel; each may have been a result */
    struct failure failure;
    char hint[HINT_MAX];
    struct receipt receipt;
    struct egress_destination *destinations; /* of the receipt of code */
    bool has_receipt;
    enum ended_by stop_cause; /* stop_requested */
    bool stop_requested;
    bool has_error;
    struct err error; /* why it died or could not run */
    struct gather *gather;
    struct buf result_json;

    struct run *next_teardown;
    /* In the teardown queue; counted in teardown_queue.in_progress. */
    bool in_teardown_queue, counted_in_flight;

    struct code_report *report; /* NULL: not checked */
    bool is_checking;           /* the check runs */
    bool is_answered_by_check;  /* the code did not run: it was refused, or only to be checked */
    uint64_t check_began_ns;

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
    uint32_t nwaiting; /* number of runs with counted_waiting */
    bool is_stopping;
    uint64_t mean_run_ns;       /* moving average of run times */
    uint64_t shared_held_bytes; /* part of stats.held_bytes beyond the guaranteed share of each run */
    struct executor_stats stats;
};

/* run.c */
void run_free(struct run *r);
void run_program_started(struct run *r);
void run_report_started(struct run *r); /* on_started of a streamed run; no effect the second time */
void run_program_ended(struct run *r);  /* the run has a receipt or an error: collects files, then completes */
void run_fail(struct run *r, const struct err *err);
void run_complete_with_result(struct run *r);

/* run_output.c */
void run_output_init(struct run *r);
void run_output_free(struct run *r); /* and the result that contains it */

/* run_program.c: input files, the program, events of the language kernel */
void run_stage_files(struct run *r);
void run_reset_program(struct run *r);                 /* as if the program had not been started */
struct exec_handle *run_get_exec(const struct run *r); /* of its program; NULL: none */

/* run_check.c: the report on code before it runs */
void run_check_start(struct run *r);
bool run_check_read_answer(struct run *r, const struct kernel_event *e); /* true: the code may run now */
void run_check_fail(struct run *r);                                      /* the interpreter ended without an answer */

/* gather.c: output files */
void gather_start(struct run *r); /* ends with run_complete_with_result */
void gather_json(const struct run *r, struct jsonw *w);
uint64_t gather_bytes(const struct run *r);
bool gather_is_incomplete(const struct run *r); /* a requested file is missing */
void gather_free(struct run *r);

/* teardown.c: deferred teardown of sandboxes */
void teardown_init(struct executor *e);
void teardown_flush(struct executor *e); /* starts as many as possible now */
void teardown_done(struct executor *e);
void teardown_add(struct run *r);
void teardown_remove(struct run *r); /* its sandbox is gone already */

/* run_result.c */
/* Code: the language kernel's result. */
void run_make_receipt(struct run *r, enum ended_by by, int code, int signo);
void run_write_result_json(struct run *r);
bool run_result_is_cacheable(const struct run *r); /* it succeeded, and its result is complete */
