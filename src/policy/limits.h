/* limits.h - what a sandbox may use, as one table.
 *
 * A set of limits is an array indexed by enum limit; limits.def holds name, unit, default, range, flag and meaning, and
 * command line, documentation, receipt and server all print from it. 0 means "not limited" only where the table's
 * minimum is 0. */
#pragma once

#include "base/base.h"
#include "base/err.h"

enum limit_unit { UNIT_BYTES, UNIT_COUNT, UNIT_MS, UNIT_MILLICPU, UNIT_CPUSET };

enum limit {
#define LIMIT(id, name, flag, unit, dflt, min, max, action, help) LIMIT_##id,
#include "policy/limits.def"
#undef LIMIT
    LIMIT_COUNT,
};

struct limit_info {
    const char *name; /* camelCase with its unit, as in JSON: "memoryBytes" */
    const char *flag; /* long option without dashes, or NULL */
    enum limit_unit unit;
    uint64_t dflt, min, max;
    const char *action; /* what happens at the limit, for the receipt and the docs */
    const char *help;
};

struct limits {
    uint64_t v[LIMIT_COUNT];
};

const struct limit_info *limit_info(enum limit l);
void limits_default(struct limits *l);
/* Text as a person writes it: "256M", "30s", "0.5", "0-1,3". */
int limit_parse(enum limit l, const char *text, uint64_t *ret, struct err *err);
char *limit_print(enum limit l, uint64_t value, char buf[32]);
/* Ranges, and the sums that must fit: what lives in memory (workspace, /tmp, /dev/shm) against the memory limit. */
int limits_check(const struct limits *l, struct err *err);
