/* recycle.h - decides whether a used sandbox may be used again. A pure function.
 *
 * Every refusal has a name; the enum lists them in the order of the checks, and the first that
 * applies counts. The checks up to RECYCLE_USES are made before the reset, the others after it
 * (`was_reset`), where RECYCLE_UNCOUNTED can occur once more. */
#pragma once

#include "core/base/base.h"

/* Each claim adds file rules to PID 1, and Linux allows 16 layers of them. */
#define RECYCLE_USES_MAX 10u
#define RECYCLE_MEMORY_MAX (4 * MIB)        /* memory that a sandbox with nothing but PID 1 may hold */
#define RECYCLE_PEAK_PERMILLE UINT64_C(800) /* of the memory limit */

enum recycle_verdict {
    RECYCLE_YES,
    RECYCLE_NO_POOL, /* the pool is gone, or has another spec now */
    RECYCLE_DISABLED,
    RECYCLE_FULL, /* the pool holds its maximum */
    RECYCLE_AGE,
    RECYCLE_STOPPED,   /* a clock, a limit, a request or an error ended the execution, not the program itself */
    RECYCLE_REFUSED,   /* a system call was denied, or it is not known that none was */
    RECYCLE_LIMIT,     /* memory, processes or space ran out */
    RECYCLE_UNCOUNTED, /* this host does not measure a figure that the check needs */
    RECYCLE_PEAK,      /* nearly all of the memory limit was used */
    RECYCLE_USES,
    RECYCLE_RESET,       /* the reset failed or timed out */
    RECYCLE_PROCESSES,   /* processes were left by the execution, or still exist */
    RECYCLE_SOCKETS,     /* connections are left in the kernel */
    RECYCLE_ALTERED,     /* the scheduling or the rlimits of PID 1 were changed */
    RECYCLE_MEMORY,      /* more is in use than an empty sandbox needs */
    RECYCLE_INTERPRETER, /* no interpreter could be brought into the sandbox */
    RECYCLE_COUNT,
};
extern const char *const recycle_verdict_names[]; /* as in metrics; NULL-terminated */

struct recycle_facts {
    bool pool_matches, enabled;
    uint32_t pool_size, pool_max; /* members the pool holds, and its maximum */
    uint64_t age_ms, max_age_ms;  /* max_age_ms 0: any age */
    bool ended_by_itself;
    bool has_denials;
    bool at_limit;
    uint64_t memory_peak, memory_limit; /* UINT64_MAX: unknown, here and below */
    uint32_t uses;                      /* uses so far, including this one */
    bool was_reset;                     /* the sandbox was reset; the fields below are valid */
    bool reset_failed;
    uint32_t processes_left; /* processes killed by the reset, as reported by PID 1 */
    uint64_t pids;           /* as counted by Linux from outside, including PID 1 */
    uint32_t sockets;
    bool init_altered;
    uint64_t memory;
};

enum recycle_verdict recycle_decide(const struct recycle_facts *f);
