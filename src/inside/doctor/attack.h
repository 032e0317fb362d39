/* attack.h - the attacks that `cove doctor` makes from inside a sandbox, and how they answer.
 *
 * An attack tries the thing for real and answers one line, "name TAB held|open TAB what was seen". Held means that the
 * wall or limit answered as it should; any other answer is open, an error that only shows that something else was wrong
 * included. Each attack runs in a process of its own, so one that is killed costs no other its answer. */
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

/* The first opening stays; nothing said later hides it. */
void attack_held(struct attack *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void attack_open(struct attack *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* A call that must fail, by the error given or one of two; 0 for `other` when there is but one. */
void attack_expect_error(struct attack *a, const char *what, long rc, int error, int other);
/* A call that must fail, whatever the reason. */
void attack_expect_failure(struct attack *a, const char *what, long rc);

/* What the doctor said on the command line as NAME=VALUE: "" or 0 when it said nothing. */
void attack_set_args(int argc, char **argv);
const char *attack_arg(const char *name);
uint64_t attack_arg_u64(const char *name);

/* Up to cap - 1 bytes of a file, terminated; -1 when it cannot be opened or read. */
ssize_t attack_read_file(const char *path, char *buf, size_t cap);

/* Runs one attack in a child and lets it print its answer. */
void attack_run(struct attack *a);

struct attack *attack_walls(size_t *count);
struct attack *attack_find_wall(const char *wall, size_t *count); /* NULL and 0 when there is none */
struct attack *attack_limits(size_t *count);
/* These do not come back when their limit holds; the doctor knows it from the receipt. */
void attack_memory(void); /* needs much more than memory= bytes; answers when that was refused or given */
void attack_cpu(void);    /* several processes that only compute */
void attack_output(void); /* writes four times outputBytes */
/* Writes and reads rateBytes of /workspace/rates past the cache; held when that takes rateMs at least. */
void attack_io_rates(void);
