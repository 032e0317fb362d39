/* probe.h - the frame of escape-probe, the program that attacks a sandbox from inside.
 *
 * One function per case of the catalogue, named by its id. It makes the real attempt and reports
 * the result. HELD means that the wall answered as it should; an answer that only shows another
 * error (a bad argument, a missing file where the call itself should have been refused) is not
 * HELD. Each case runs in its own process. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum verdict { NO_VERDICT, HELD, ESCAPED, SKIPPED };

struct outcome {
    enum verdict verdict;
    char why[300];
};

struct probe_case {
    const char *id;
    void (*run)(struct outcome *o);
};

/* Each family is an array that ends with a NULL id. */
extern const struct probe_case ns_cases[], pr_cases[], sc_cases[], cp_cases[], fs_cases[], lk_cases[], nt_cases[],
    rs_cases[], table_cases[];

/* The first verdict that is not HELD is kept; a later HELD does not hide it. */
void held(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void escaped(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void skipped(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A call that must be refused with one of the listed errors. Any other answer, including
 * success, is ESCAPED. */
#define REFUSED(o, what, call, ...)                                                      \
    do {                                                                                 \
        errno = 0;                                                                       \
        long refused_rc_ = (long)(call);                                                 \
        judge_refused((o), (what), refused_rc_, errno, (const int[]){ __VA_ARGS__, 0 }); \
    } while (0)
void judge_refused(struct outcome *o, const char *what, long rc, int err, const int *expected);

/* Opening must fail, for any reason. */
void must_not_open(struct outcome *o, const char *path, int flags);
/* Opening fails, or the file is empty: the appearance of a masked file. */
void must_be_empty(struct outcome *o, const char *path);

/* Up to size - 1 bytes, terminated; -1 when it cannot be opened or read. */
ssize_t slurp(const char *path, char *buf, size_t size);
bool holds(const char *buf, ssize_t len, const char *word);

/* The value that the driver planted on the host under this name, from the file `canary` next to
 * the program; "" if there is none. */
const char *canary(const char *name);
long canary_number(const char *name, long otherwise);

pid_t probe_pid(void);             /* the pid of the process that runs the cases, the parent of a case's own process */
uint64_t inherited_fds(void);      /* bit n: descriptor n was open when the probe started, n from 3 to 63 */
int inherited_beyond(void);        /* the first open descriptor beyond 63, or 0 */
const char *start_directory(void); /* getcwd at the start, or the error */
double now_s(void);
