/* limits.h - the resource limits of a sandbox, as one table.
 *
 * A set of limits is an array indexed by enum limit. limits.def holds name, unit, default, range,
 * flag and meaning; command line, documentation, receipt and server all print from it. A column of
 * the table defines the meaning of 0: no swap is a limit of 0 bytes, no CPU time limit is
 * "unlimited". */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

enum limit_unit { UNIT_BYTES, UNIT_COUNT, UNIT_MS, UNIT_MILLICPU, UNIT_CPUSET };

enum limit {
#define LIMIT(id, name, flag, unit, dflt, min, max, zero, action, help) LIMIT_##id,
#include "policy/limits.def"
#undef LIMIT
    LIMIT_COUNT,
};

struct limit_info {
    const char *name; /* camelCase with its unit, as in JSON: "memoryBytes" */
    const char *flag; /* long option without dashes, or NULL */
    enum limit_unit unit;
    uint64_t dflt, min, max;
    bool zero_unlimited; /* 0 means "unlimited"; otherwise 0 is an ordinary value */
    const char *action;  /* the effect of reaching the limit, for the receipt and the docs */
    const char *help;
};

struct limits {
    uint64_t v[LIMIT_COUNT];
};

/* To which degree a host enforces a limit, and why not fully. The numbers are part of the wire
 * format: append only. */
enum limit_enforcement { ENFORCEMENT_NONE, ENFORCEMENT_PARTIAL, ENFORCEMENT_FULL };
enum limit_reason {
    REASON_NONE,
    REASON_NO_CGROUP,
    REASON_EACH_PROCESS,
    REASON_NO_CONTROLLER,
    REASON_SWAP_UNCOUNTED,
    REASON_LENT_DIRECTORY,
    REASON_LATE_WRITES,
    REASON_NO_DISK,
    REASON_DISK_REFUSED,
    REASON_COUNT,
};
struct limit_enforcements {
    uint8_t enforcement[LIMIT_COUNT], reason[LIMIT_COUNT];
};
void limit_set_enforcement(struct limit_enforcements *s, enum limit l, enum limit_enforcement hold,
                           enum limit_reason why);
const char *limit_reason_text(unsigned why); /* a clause for people; NULL if there is no reason */

#define LIMIT_TEXT 192 /* the longest text of limit_print: every third of 64 processors left out */
#define LIMIT_BIT(id) (1ull << LIMIT_##id)

const struct limit_info *limit_info(enum limit l);
bool limit_is_unlimited(enum limit l, uint64_t value);
void limits_default(struct limits *l);
/* Parses text as a user writes it: "256M", "30s", "0.5", "0-1,3"; "unlimited" where the table
 * allows it. */
int limit_parse(enum limit l, const char *text, uint64_t *ret, struct err *err);
/* The same for a flag of a command line: a time without a unit is in seconds, and the error of a
 * size that lacks its unit suggests one. */
int limit_parse_flag(enum limit l, const char *text, uint64_t *ret, struct err *err);
/* Prints a value for people; a size may be rounded to one decimal. Returns buf. */
char *limit_print(enum limit l, uint64_t value, char buf[LIMIT_TEXT]);
/* Adjusts the limits that the user did not choose (bit not in `chosen`) to those that the user
 * chose: a small memory limit shrinks /workspace, /tmp and /dev/shm, and a long timeout extends the
 * lifetime of the sandbox. */
void limits_fit(struct limits *l, uint64_t chosen);
/* Checks the ranges, and that the memory-backed file systems (/workspace, /tmp, /dev/shm) together
 * fit into the memory limit. */
int limits_check(const struct limits *l, struct err *err);
