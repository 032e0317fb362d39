/* recycle.h - whether a sandbox that was used may be used again. Pure.
 *
 * Every "no" has a name, in the order in which the questions are put; the first one counts. The first part is asked
 * before anything is done to the sandbox, the second part when it was reset: `reset` says which. */
#pragma once

#include "core/base/base.h"

#define RECYCLE_USES_MAX 10u                /* each claim adds file rules to PID 1, and the kernel takes 16 of them */
#define RECYCLE_MEMORY_MAX (4 * MIB)        /* that one may hold which holds nothing but PID 1 */
#define RECYCLE_PEAK_PERMILLE UINT64_C(800) /* of the memory limit */

enum recycle_verdict {
    RECYCLE_YES,
    RECYCLE_NO_POOL, /* the pool is gone, or has another shape by now */
    RECYCLE_DISABLED,
    RECYCLE_FULL, /* the pool holds as many as it may */
    RECYCLE_AGE,
    RECYCLE_STOPPED,   /* a clock, a limit, somebody or an error ended the run, not the program itself */
    RECYCLE_REFUSED,   /* a system call was, or it is not known that none was */
    RECYCLE_LIMIT,     /* memory, processes or space ran out */
    RECYCLE_UNCOUNTED, /* this host cannot say what is to be compared */
    RECYCLE_PEAK,      /* nearly all of its memory was used */
    RECYCLE_USES,
    RECYCLE_RESET,       /* it failed, or took too long */
    RECYCLE_PROCESSES,   /* some were left, or are */
    RECYCLE_SOCKETS,     /* the kernel still knows connections */
    RECYCLE_ALTERED,     /* how its first process is scheduled or limited */
    RECYCLE_MEMORY,      /* more is in use than an empty sandbox needs */
    RECYCLE_INTERPRETER, /* none could be brought into it */
    RECYCLE_COUNT,
};
extern const char *const recycle_verdict_names[]; /* as metrics tell them; NULL-terminated */

struct recycle_facts {
    bool pool_matches, enabled;
    uint32_t pool_size, pool_max; /* what the pool holds, and may hold */
    uint64_t age_ms, max_age_ms;  /* 0: it may have any */
    bool ended_by_itself;
    bool has_denials;
    bool at_limit;
    uint64_t memory_peak, memory_limit; /* UINT64_MAX is unknown, as below */
    uint32_t uses;                      /* so far, this one included */
    bool was_reset;                     /* it was; the rest says what came of it */
    bool reset_failed;
    uint32_t processes_left; /* processes, as its first one says */
    uint64_t pids;           /* as the kernel counts from outside, its first one included */
    uint32_t sockets;
    bool init_altered;
    uint64_t memory;
};

enum recycle_verdict recycle_decide(const struct recycle_facts *f);
