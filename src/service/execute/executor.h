/* executor.h - runs: one program in one fresh sandbox, with one result.
 *
 * A run takes code or a command with its files, and returns its output, its displayed results and
 * the requested files. A run has no row, no file and no id that could be looked up later. It waits
 * in a bounded fair queue, gets a sandbox of its own, and completes when the program has ended and
 * the output files are collected; the sandbox is destroyed after the result is delivered. A run
 * that its owner cancels is removed from the queue or killed. All runs end with this process. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/histogram.h"
#include "service/result.h"
#include "core/ev/ev.h"
#include "service/manager.h"
#include "service/validate/code_report.h"

struct executor;
struct run;

#define RUN_FILES_MAX 64u     /* input files */
#define RUN_OUTPUTS_MAX 16u   /* patterns of output files */
#define RUN_GATHERED_MAX 100u /* output files */
#define RUN_GATHERED_BYTES (8 * MIB)
#define RUN_OUTPUT_MAX (16 * MIB) /* kept output and events of one run */
#define RUN_PATH_MAX 1024u

struct executor_settings { /* every number but cache_bytes is above 0; src/main/conf/settings.def has the defaults */
    struct ev *ev;
    struct ephemeral_sandboxes *ephemerals; /* borrowed */
    uint32_t running_max;                   /* runs that have a sandbox at the same time */
    uint32_t waiting_max;                   /* queued runs; one tenant may have at most half of them */
    uint64_t wait_ms;                       /* a run that waited this long fails */
    uint64_t output_bytes;                  /* kept output of all runs together */
    uint64_t cache_bytes;                   /* size of the result cache; 0: no cache */
    uint64_t cache_age_ms;                  /* TTL of a cached result */
};

struct executor *executor_new(const struct executor_settings *set);
/* For shutdown: completes every run with an error while its owner still exists. */
void executor_finish(struct executor *e);
void executor_free(struct executor *e); /* before the manager */
DEFINE_AUTO(executor, executor_free);

struct run_file {
    char *path; /* absolute */
    const char *data;
    size_t len;
};

/* Whether Python code is checked in its sandbox before it runs (service/validate/code_report.h). */
enum run_check {
    RUN_CHECK_NONE,
    RUN_CHECK_FIRST, /* code that the report refuses does not run; the result has the report */
    RUN_CHECK_ONLY,  /* the code does not run; run_result.report is the result */
};

struct run_request { /* borrowed until on_end, except the spec, which is taken */
    const char *owner, *created_by;
    const char *request_id;  /* of the HTTP request, for the receipt; may be NULL */
    struct spec *spec;       /* finished */
    const char *template;    /* its name; NULL: none */
    uint64_t generation;     /* of the template */
    const char *code;        /* NULL: run argv */
    const char *language;    /* of the code: python, node or bash */
    const char *const *argv; /* a program and its arguments, if code is NULL */
    const char *input;       /* its standard input, or NULL */
    size_t input_len;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* absolute; NULL: /workspace */
    uint64_t timeout_ms;    /* from the start of the program */
    uint64_t output_max;    /* kept or streamed output and events together */
    const struct run_file *files;
    size_t nfiles;
    /* Absolute paths, whose parts may be patterns; NULL-terminated or NULL. */
    const char *const *outputs;
    enum receipt_detail receipt;
    bool streamed; /* output and events are passed on instead of kept */
    /* The same request always has the same result: a cached result is accepted, and this one may be
     * cached. */
    bool is_cacheable;
    bool cached_if_pure; /* is_cacheable: this result may be cached only if the report says pure */
    enum run_check check;
    bool check_has_data; /* the template has NumPy, pandas and matplotlib, which the code may import */
};

/* How a run ended. */
struct run_result {
    const char *id; /* "ex..." */
    /* Members of a JSON object without its braces: id, sandboxId, status, ..., receipt. Without
     * output and events if streamed. */
    const struct buf *json;
    const struct code_report *report; /* NULL: the code was not checked, or the result is cached */
    bool is_refused;                  /* RUN_CHECK_FIRST: the code did not run */
    bool from_cache;                  /* the result of an earlier run, with its id and its receipt */
    enum pool_result pool_result;     /* HIT: its sandbox was ready before the request */
    bool recycled;                    /* its sandbox was used before by the same tenant */
    uint64_t queued_ns;
};

struct run_ops {
    /* on_started, on_output and on_event are called only for streamed runs. */
    void (*on_started)(void *arg, const char *id, const char *sandbox);
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    void (*on_event)(void *arg, const char *type, const struct buf *json);
    /* Called last, exactly once, from the loop: either err or r is NULL. The run is gone when it
     * returns. */
    void (*on_end)(void *arg, const struct err *err, const struct run_result *r);
};

/* ERR_EXECUTOR_FULL: the queue is full; try again later. */
int executor_run(struct executor *e, const struct run_request *req, const struct run_ops *ops, void *arg,
                 struct run **ret, struct err *err);
void run_cancel(struct run *r);                  /* no callback follows */
void run_pause_output(struct run *r, bool hold); /* streamed: back-pressure from a slow reader */

struct executor_stats {
    uint64_t started, refused, failed, cancelled;
    uint64_t by_pool_result[POOL_RESULT_COUNT];                /* by origin of the sandbox */
    uint64_t cache_hits, cache_misses;                         /* of cacheable runs */
    uint64_t cache_bytes, cache_entries;                       /* now */
    uint64_t waiting, running, ending;                         /* now */
    uint64_t checks_passed, checks_refused[REPORT_RULE_COUNT]; /* by the first rule that refuses */
    struct histogram checks;                                   /* duration of checks */
    struct histogram waits, runs;                              /* time in the queue; time from there to the result */
    uint64_t held_bytes;                                       /* now, kept output */
};
void executor_stats(const struct executor *e, struct executor_stats *ret);
uint64_t executor_retry_ms(const struct executor *e); /* estimated time until the queue has space */
