/* syscall_table.h - the tables of syscalls.def and syscall_args.def as data. Only the compiler
 * (filter.c), the reference evaluator (syscalls.c), their tests and the generator of
 * docs/syscalls.md include it; they share nothing else. */
#pragma once

#include "policy/syscalls.h"

#include <errno.h>

#define ALL_BITS 0xffffffffu

enum syscall_group {
#define GROUP(id, why) GROUP_##id,
#define SC(nr, name, base, python, node, shell, group)
#include "policy/syscalls.def"
#undef GROUP
#undef SC
    GROUP_COUNT,
};

enum arg_rule {
#define RULE(id, meaning) RULE_##id,
#define IF(rule, arg, mask, from, to, then)
#define ELSE(rule, then)
#include "policy/syscall_args.def"
#undef RULE
#undef IF
#undef ELSE
    RULE_COUNT,
};

/* The value of a table cell or a `then`: 0 allows, a positive number is the errno, a negative
 * number refers to an argument rule. */
enum syscall_action {
    ACTION_ALLOW = 0,
    ACTION_EPERM = EPERM,
    ACTION_ENOSYS = ENOSYS,
    ACTION_EINVAL = EINVAL,
    ACTION_ENOTTY = ENOTTY,
    ACTION_EAFNOSUPPORT = EAFNOSUPPORT,
    ACTION_ESOCKTNOSUPPORT = ESOCKTNOSUPPORT,
    ACTION_EPROTONOSUPPORT = EPROTONOSUPPORT,
#define RULE(id, meaning) ACTION_##id = -1 - RULE_##id,
#define IF(rule, arg, mask, from, to, then)
#define ELSE(rule, then)
#include "policy/syscall_args.def"
#undef RULE
#undef IF
#undef ELSE
};
#define ACTION_RULE(action) ((enum arg_rule)(-1 - (action)))

struct syscall_row {
    uint16_t nr;
    int16_t action[PROFILE_COUNT]; /* enum syscall_action */
    uint8_t group;
    const char *name;
};

struct arg_test { /* matches if from <= (args[arg] & mask) <= to; an ELSE has mask 0 and always matches */
    uint8_t rule;
    uint8_t arg;
    int16_t then; /* enum syscall_action */
    uint32_t mask, from, to;
};

struct grant_row { /* with the grant, the call has this action in every profile */
    uint8_t grant;
    uint16_t nr;
    int16_t action; /* enum syscall_action */
    const char *name;
};

extern const struct grant_row grant_rows[];
extern const size_t grant_row_count;
extern const struct syscall_row syscall_rows[];
extern const size_t syscall_row_count;
extern const struct arg_test arg_tests[]; /* the tests of a rule are adjacent and in order */
extern const size_t arg_test_count;

const char *syscall_group_name(enum syscall_group g); /* lower case */
const char *syscall_group_why(enum syscall_group g);
const char *arg_rule_meaning(enum arg_rule r);

/* The form of the table that filter_build() compiles: each range extends to the next one, and the
 * last one to the highest number. The first range starts at 0. */
struct filter_range {
    uint32_t from;
    int action; /* enum syscall_action */
};
#define FILTER_RANGES_MAX 1024
int filter_compile(const struct filter_range *ranges, size_t n, bool notify, struct sock_filter prog[FILTER_MAX],
                   size_t *ret_len, struct err *err);
