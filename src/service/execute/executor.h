/* executor.h - one program, one fresh sandbox, one answer: code or a command with its files goes in, what it wrote,
 * showed and left behind comes out, and nothing stays.
 *
 * A run has no row, no file and no name that anybody could ask for later. It waits its turn in a bounded queue, in
 * which tenants take turns, gets a sandbox that nobody had before, and is answered when its program has ended and its
 * outputs are here; the sandbox is destroyed behind the answer. A run whose owner lets go of it is taken out of the
 * queue, or killed. All of them end with this process. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/histogram.h"
#include "sandbox/receipt.h"
#include "core/ev/ev.h"
#include "service/manager.h"

struct executor;
struct run;

#define RUN_FILES_MAX 64u     /* that go in */
#define RUN_OUTPUTS_MAX 16u   /* patterns of what is to come out */
#define RUN_GATHERED_MAX 100u /* files that come out */
#define RUN_GATHERED_BYTES (8 * MIB)
#define RUN_OUTPUT_MAX (16 * MIB) /* output and events that are kept of one */
#define RUN_PATH_MAX 1024u

struct executor_settings { /* every number but cache_bytes is above 0; src/main/conf/settings.def has the defaults */
    struct ev *ev;
    struct manager *manager;
    uint32_t running_max;  /* runs that have a sandbox at one time */
    uint32_t waiting_max;  /* those behind them; one tenant has at most half of these places */
    uint64_t wait_ms;      /* who waited for so long is refused */
    uint64_t output_bytes; /* that are held of all runs together */
    uint64_t cache_bytes;  /* of kept answers; 0: none is kept */
    uint64_t cache_age_ms; /* until an answer is too old */
};

struct executor *executor_new(const struct executor_settings *set);
/* For the end: every run is ended with an error, while those who wait for it are there to hear it. */
void executor_finish(struct executor *e);
void executor_free(struct executor *e); /* before the manager */
DEFINE_AUTO(executor, executor_free);

struct run_file {
    char *path; /* absolute */
    const char *data;
    size_t len;
};

struct run_request { /* borrowed until on_end, except the spec, which is taken */
    const char *owner, *created_by;
    const char *request_id; /* its id, for the receipt; may be NULL */
    struct spec *spec;      /* finished */
    const char *template;   /* its name; NULL: none */
    uint64_t generation;    /* of the template */
    const char *code;       /* with its language (python, node, bash), or NULL: */
    const char *language;
    const char *const *argv; /* a program and its arguments */
    const char *input;       /* for its standard input, or NULL */
    size_t input_len;
    const char *const *env; /* may be NULL */
    const char *cwd;        /* absolute; NULL is /workspace */
    uint64_t timeout_ms;    /* from its start on */
    uint64_t output_max;    /* of output and events together that is kept, or told by a stream */
    const struct run_file *files;
    size_t nfiles;
    const char *const *outputs; /* absolute paths, the last part may be a pattern; NULL-terminated or NULL */
    bool streamed;              /* output and events are handed on instead of kept */
    bool is_cacheable;          /* the same request has the same answer: a kept one will do, and this one may be kept */
};

/* How a run ended. What is JSON is a list of members of an object, without its braces. */
struct run_result {
    const char *id;         /* "ex..." */
    const struct buf *json; /* id, sandboxId, status, ..., receipt; of a streamed one without what was handed on */
    bool from_cache;        /* the answer of an earlier run, with its id and its receipt */
    enum pool_result pool_result; /* HIT: its sandbox was ready before it was asked for */
    bool recycled;                /* and is no fresh one: the same tenant had it before */
    uint64_t queued_ns;
};

struct run_ops {
    void (*on_started)(void *arg, const char *id, const char *sandbox); /* these three: only of streamed ones */
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    void (*on_event)(void *arg, const char *type, const struct buf *json);
    /* Last, exactly once, from the loop: one of err and r is NULL. The run is gone when it returns. */
    void (*on_end)(void *arg, const struct err *err, const struct run_result *r);
};

/* ERR_EXECUTOR_FULL: there is no place in the queue, ask again a little later. */
int executor_run(struct executor *e, const struct run_request *req, const struct run_ops *ops, void *arg,
                 struct run **ret, struct err *err);
void run_cancel(struct run *r);                  /* nobody wants it any more: no further callback */
void run_pause_output(struct run *r, bool hold); /* of a streamed one: whoever reads it is slower than it writes */

struct executor_stats {
    uint64_t started, refused, failed, cancelled;
    uint64_t by_pool_result[POOL_RESULT_COUNT]; /* sandboxes, by where they came from */
    uint64_t cache_hits, cache_misses;          /* of runs that were said to be pure */
    uint64_t cache_bytes, cache_entries;        /* now */
    uint64_t waiting, running, ending;          /* now */
    struct histogram waits, runs;               /* in the queue; from there to the answer */
    uint64_t held_bytes;                        /* now, of output */
};
void executor_stats(const struct executor *e, struct executor_stats *ret);
uint64_t executor_retry_ms(const struct executor *e); /* when there may be a place again */
