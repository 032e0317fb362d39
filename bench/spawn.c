/* bench-spawn - starts commands and prints how long each took, from the call that starts it to
 * the call that reaps it.
 *
 * Runners are compared in one interleaved run: every round starts each of them once, in an order
 * drawn anew for the round, so that other load, a slow cleanup in the kernel and warm caches
 * affect all of them alike. All get the same start: posix_spawn (no copy of page tables),
 * /dev/null on 0, 1 and 2, three environment variables.
 *
 * A runner is a line of the plan on standard input, its fields separated by tabs:
 *
 *     run  NAME  EVERY  PROGRAM  ARG...     started once in every EVERY-th round
 *     ask  NAME  EVERY  PROGRAM  ARG...     started once; answers a newline with a line
 *
 * An argument "{n}" becomes a unique name, for runners that need one.
 *
 * `bench-spawn rounds N WARMUP SEED` prints "NAME<tab>nanoseconds" for each run after the first
 * WARMUP rounds. `bench-spawn burst SECONDS WORKERS NAME` keeps WORKERS runs of one runner going
 * and prints how long they took and, last, how many ended per second.
 *
 * A run that does not exit with 0 ends the whole measurement: a failed start is fast, and would
 * look like a good figure. */
#define _GNU_SOURCE 1
#include "common.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNNERS_MAX 16
#define WORKERS_MAX 64
#define SAMPLES_MAX 100000u

struct runner {
    bool ask;
    char *name;
    uint32_t every;
    char *argv[RUN_ARGS_MAX];
    pid_t pid; /* ask: the resident program and its two pipes */
    int to, from;
};

static struct runner runners[RUNNERS_MAX];
static size_t nrunners;

/* --- the plan --- */

static void runner_parse(char *line)
{
    if (nrunners == RUNNERS_MAX)
        die("more than %d runners", RUNNERS_MAX);
    struct runner *r = &runners[nrunners];
    char *save = NULL;
    const char *kind = strtok_r(line, "\t", &save);
    char *name = strtok_r(NULL, "\t", &save);
    const char *every = strtok_r(NULL, "\t", &save);
    size_t n = 0;

    if (kind == NULL || name == NULL || every == NULL || (strcmp(kind, "run") != 0 && strcmp(kind, "ask") != 0))
        die("runner %zu does not begin with run or ask, a name and a number", nrunners + 1);
    for (char *arg; (arg = strtok_r(NULL, "\t", &save)) != NULL;) {
        if (n + 1 == RUN_ARGS_MAX)
            die("%s has more than %d arguments", name, RUN_ARGS_MAX - 1);
        r->argv[n++] = arg;
    }
    if (n == 0)
        die("%s names no program", name);
    r->ask = strcmp(kind, "ask") == 0;
    r->name = name;
    r->every = number(every, 1000000);
    if (r->every == 0)
        die("%s: EVERY must not be 0", name);
    nrunners++;
}

static void plan_read(void)
{
    static char text[65536]; /* runners point into it */
    size_t len = fread(text, 1, sizeof(text) - 1, stdin);
    char *save = NULL;

    if (len == sizeof(text) - 1)
        die("the plan is too long");
    for (char *line = strtok_r(text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save))
        runner_parse(line);
    if (nrunners == 0)
        die("the plan is empty");
}

/* --- one run --- */

static void ask_start(struct runner *r)
{
    int to[2], from[2];

    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
        die("pipe: %s", strerror(errno));
    r->pid = run_start(r->name, r->argv, to[0], from[1], true);
    close(to[0]);
    close(from[1]);
    r->to = to[1];
    r->from = from[0];
}

static void ask_once(const struct runner *r)
{
    char answer[256];
    ssize_t n;

    if (write(r->to, "\n", 1) != 1)
        die("%s does not read its input: %s", r->name, strerror(errno));
    do {
        n = read(r->from, answer, sizeof(answer));
        if (n <= 0)
            die("%s ended without an answer", r->name);
    } while (answer[n - 1] != '\n');
}

static uint64_t run_once(const struct runner *r)
{
    uint64_t began = now_ns();

    if (r->ask)
        ask_once(r);
    else
        run_reap(r->name, run_start(r->name, r->argv, -1, -1, false));
    return now_ns() - began;
}

/* --- the two modes --- */

static void rounds(uint32_t count, uint32_t warmup, uint32_t seed)
{
    uint32_t state = seed != 0 ? seed : 1;
    size_t order[RUNNERS_MAX];

    for (size_t i = 0; i < nrunners; i++) {
        order[i] = i;
        if (runners[i].ask)
            ask_start(&runners[i]);
    }
    for (uint32_t round = 0; round < warmup + count; round++) {
        shuffle(order, nrunners, &state);
        for (size_t i = 0; i < nrunners; i++) {
            const struct runner *r = &runners[order[i]];

            if (round % r->every != 0)
                continue;
            uint64_t ns = run_once(r);
            if (round >= warmup)
                printf("%s\t%" PRIu64 "\n", r->name, ns);
        }
    }
    for (size_t i = 0; i < nrunners; i++)
        if (runners[i].ask) {
            close(runners[i].to);
            run_reap(runners[i].name, runners[i].pid);
        }
}

static void burst(uint32_t seconds, uint32_t workers, const char *name)
{
    static struct {
        pid_t pid;
        uint64_t began;
    } alive[WORKERS_MAX];
    static uint64_t samples[SAMPLES_MAX];
    const struct runner *r = NULL;
    uint64_t began, end, now;
    size_t done = 0;
    int status;

    for (size_t i = 0; i < nrunners; i++)
        if (strcmp(runners[i].name, name) == 0)
            r = &runners[i];
    if (r == NULL || r->ask)
        die("the plan has no runner '%s' that can be started many times", name);
    began = now_ns();
    end = began + seconds * NS_PER_S;
    for (uint32_t i = 0; i < workers; i++) {
        alive[i].began = now_ns();
        alive[i].pid = run_start(r->name, r->argv, -1, -1, false);
    }
    for (uint32_t left = workers; left > 0;) {
        uint32_t i = 0;
        pid_t pid = wait4(-1, &status, 0, NULL);

        if (pid < 0)
            die("wait4: %s", strerror(errno));
        run_check(r->name, status);
        while (i < workers && alive[i].pid != pid)
            i++;
        if (i == workers || done == SAMPLES_MAX)
            continue; /* a grandchild whose parent has ended, reaped by this process */
        now = now_ns();
        samples[done++] = now - alive[i].began;
        alive[i].pid = 0;
        if (now < end) {
            alive[i].began = now;
            alive[i].pid = run_start(r->name, r->argv, -1, -1, false);
        } else
            left--;
    }
    now = now_ns();
    print_times(samples, done);
    printf("%.1f\n", (double)done * (double)NS_PER_S / (double)(now - began));
}

int main(int argc, char **argv)
{
    plan_read();
    if (argc == 5 && strcmp(argv[1], "rounds") == 0)
        rounds(number(argv[2], 1000000), number(argv[3], 1000000), number(argv[4], UINT32_MAX));
    else if (argc == 5 && strcmp(argv[1], "burst") == 0)
        burst(number(argv[2], 3600), number(argv[3], WORKERS_MAX), argv[4]);
    else
        die("usage: bench-spawn rounds N WARMUP SEED | burst SECONDS WORKERS NAME, the plan on standard input");
    return 0;
}
