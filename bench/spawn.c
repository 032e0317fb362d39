/* bench-spawn - starts commands and says how long each took, from the call that starts it to the call that reaps it.
 *
 * Runners are compared in one interleaved run: every round starts each of them once, in an order drawn anew for the
 * round, so that a noisy neighbour, a slow cleanup in the kernel and the warmth of caches hit all of them alike. All
 * get the same start: posix_spawn (no copy of page tables), /dev/null on 0, 1 and 2, three environment variables.
 *
 * A runner is a line of the plan on standard input, its fields separated by tabs:
 *
 *     run  NAME  EVERY  PROGRAM  ARG...     started once in every EVERY-th round
 *     ask  NAME  EVERY  PROGRAM  ARG...     started once at the beginning; asked by a newline, answers with a line
 *
 * An argument "{n}" becomes a name that no other run has, for runners that want one.
 *
 * `bench-spawn rounds N WARMUP SEED` prints "NAME<tab>nanoseconds" for each run after the first WARMUP rounds.
 * `bench-spawn burst SECONDS WORKERS NAME` keeps WORKERS runs of one runner going and prints how many a second ended.
 *
 * A run that does not exit with 0 ends the whole thing: a failed start is quick, and would look like a good figure. */
#define _GNU_SOURCE 1
#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUNNERS_MAX 16
#define ARGS_MAX 64
#define WORKERS_MAX 64

struct runner {
    bool ask;
    char *name;
    uint32_t every;
    char *argv[ARGS_MAX];
    pid_t pid; /* ask: the resident program and its two pipes */
    int to, from;
};

static struct runner runners[RUNNERS_MAX];
static size_t nrunners;
static char env_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
static char env_home[] = "HOME=/root";
static char env_lang[] = "LANG=C.UTF-8";
static char *const environment[] = { env_path, env_home, env_lang, NULL };

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
        if (n + 1 == ARGS_MAX)
            die("%s has more than %d arguments", name, ARGS_MAX - 1);
        r->argv[n++] = arg;
    }
    if (n == 0)
        die("%s names no program", name);
    r->ask = strcmp(kind, "ask") == 0;
    r->name = name;
    r->every = number(every, 1000000);
    if (r->every == 0)
        die("%s runs in every 0th round", name);
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

static pid_t start(const struct runner *r, int in, int out)
{
    static unsigned count;
    posix_spawn_file_actions_t files;
    char unique[48];
    char *argv[ARGS_MAX];
    pid_t pid;

    snprintf(unique, sizeof(unique), "bench-%d-%u", (int)getpid(), count++);
    for (size_t i = 0; i < ARGS_MAX; i++)
        argv[i] = r->argv[i] != NULL && strcmp(r->argv[i], "{n}") == 0 ? unique : r->argv[i];

    posix_spawn_file_actions_init(&files);
    if (in < 0)
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&files, in, 0);
    if (out < 0)
        posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    else
        posix_spawn_file_actions_adddup2(&files, out, 1);
    if (!r->ask)
        posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, argv[0], &files, NULL, argv, environment);
    posix_spawn_file_actions_destroy(&files);
    if (rc != 0)
        die("%s: %s: %s", r->name, r->argv[0], strerror(rc));
    return pid;
}

static void check_status(const struct runner *r, int status)
{
    if (WIFSIGNALED(status))
        die("%s ended by signal %d", r->name, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        die("%s exited with %d", r->name, WEXITSTATUS(status));
}

static void reap(const struct runner *r, pid_t pid)
{
    int status;

    while (wait4(pid, &status, 0, NULL) < 0)
        if (errno != EINTR)
            die("%s: wait4: %s", r->name, strerror(errno));
    check_status(r, status);
}

static void ask_start(struct runner *r)
{
    int to[2], from[2];

    if (pipe2(to, O_CLOEXEC) < 0 || pipe2(from, O_CLOEXEC) < 0)
        die("pipe: %s", strerror(errno));
    r->pid = start(r, to[0], from[1]);
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
        die("%s does not listen: %s", r->name, strerror(errno));
    do {
        n = read(r->from, answer, sizeof(answer));
        if (n <= 0)
            die("%s went away without an answer", r->name);
    } while (answer[n - 1] != '\n');
}

static uint64_t run_once(const struct runner *r)
{
    uint64_t began = now_ns();

    if (r->ask)
        ask_once(r);
    else
        reap(r, start(r, -1, -1));
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
            reap(&runners[i], runners[i].pid);
        }
}

static void burst(uint32_t seconds, uint32_t workers, const char *name)
{
    const struct runner *r = NULL;
    uint64_t done = 0, began, end;
    uint32_t alive = 0;
    int status;

    for (size_t i = 0; i < nrunners; i++)
        if (strcmp(runners[i].name, name) == 0)
            r = &runners[i];
    if (r == NULL || r->ask)
        die("the plan has no runner '%s' that can be started many times", name);
    began = now_ns();
    end = began + seconds * NS_PER_S;
    while (alive < workers) {
        start(r, -1, -1);
        alive++;
    }
    while (alive > 0) {
        if (wait4(-1, &status, 0, NULL) < 0)
            die("wait4: %s", strerror(errno));
        check_status(r, status);
        done++;
        if (now_ns() < end)
            start(r, -1, -1);
        else
            alive--;
    }
    printf("%.1f\n", (double)done * (double)NS_PER_S / (double)(now_ns() - began));
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
