/* attack.h - the attacks that `cove doctor` makes from inside a sandbox, and their results.
 *
 * An attack really tries the operation and prints one line, "name TAB held|open TAB observation".
 * Held means that the wall or limit answered as it should. Any other answer is open, also an error
 * that has another cause. Each attack runs in its own process, so an attack that is killed does not
 * affect the results of others. */
#pragma once

#include "core/base/base.h"

#include <unistd.h>

#define ATTACK_OBSERVATION_MAX 160

struct attack {
    const char *name; /* as in a receipt */
    void (*run)(struct attack *a);
    bool is_open, was_tried;
    char observation[ATTACK_OBSERVATION_MAX];
};

/* The first attack_open is kept; later calls do not hide it. */
void attack_held(struct attack *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void attack_open(struct attack *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A call that must fail, with `error` or `other`; `other` is 0 if there is only one error. */
void attack_expect_error(struct attack *a, const char *what, long rc, int error, int other);
/* A call that must fail with any error. */
void attack_expect_failure(struct attack *a, const char *what, long rc);

/* The arguments NAME=VALUE that the doctor passed on the command line: "" or 0 if missing. */
void attack_set_args(int argc, char **argv);
const char *attack_arg(const char *name);
uint64_t attack_arg_u64(const char *name);

/* Reads up to cap - 1 bytes of a file and adds a NUL; -1 if it cannot be opened or read. */
ssize_t attack_read_file(const char *path, char *buf, size_t cap);

/* Runs one attack in a child, which prints its result. */
void attack_run(struct attack *a);

struct attack *attack_walls(size_t *count);
struct attack *attack_find_wall(const char *wall, size_t *count); /* NULL and 0 if there is none */
struct attack *attack_limits(size_t *count);
struct attack *attack_egress(size_t *count); /* in a sandbox with a network whose rules allow nothing */
/* These do not return if their limit holds; the doctor sees the result in the receipt. */
/* uses much more than memory= bytes; prints a result if the allocation was refused or granted */
void attack_memory(void);
void attack_cpu(void);    /* several processes that only compute */
void attack_output(void); /* writes four times outputBytes */
/* Writes and reads rateBytes of /workspace/rates, bypassing the cache; held if that takes at least
 * rateMs. */
void attack_io_rates(void);
