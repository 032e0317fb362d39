/* underfilter - runs a command under a profile's system call filter and nothing else.
 *
 *   underfilter PROFILE COMMAND [ARG...]
 *   underfilter --time PROFILE      installs it in many children and prints the microseconds
 *
 * For trying programs against the policy without the rest of a sandbox: a failure here is caused by
 * the filter. */
#include "policy/syscalls.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/str.h"

static int install(struct sock_filter *prog, size_t len)
{
    struct sock_fprog fprog = { (unsigned short)len, prog };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &fprog);
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* A new child each time, because every installed filter is run on each call. */
static int time_install(struct sock_filter *prog, size_t len)
{
    enum { ROUNDS = 400 };
    static double us[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        int pipefd[2];

        if (pipe(pipefd) < 0)
            return 1;
        pid_t pid = fork();
        if (pid == 0) {
            double before = now_us();
            int r = install(prog, len);
            double took = r < 0 ? -1 : now_us() - before;

            _exit(write(pipefd[1], &took, sizeof(took)) != (ssize_t)sizeof(took));
        }
        close(pipefd[1]);
        if (pid < 0 || read(pipefd[0], &us[i], sizeof(us[i])) != (ssize_t)sizeof(us[i]) || us[i] < 0)
            return 1;
        close(pipefd[0]);
        waitpid(pid, NULL, 0);
    }
    qsort(us, ROUNDS, sizeof(us[0]), compare);
    printf("install of %zu instructions: p50 %.0f us, p95 %.0f us, best %.0f us (%d rounds)\n", len, us[ROUNDS / 2],
           us[ROUNDS * 95 / 100], us[0], ROUNDS);
    return 0;
}

int main(int argc, char **argv)
{
    static struct sock_filter prog[FILTER_MAX];
    bool timing = argc == 3 && str_eq(argv[1], "--time");
    struct err err = { 0 };
    struct filter_spec spec = { 0 };
    size_t len;

    if (argc < 3 || !profile_parse(argv[timing ? 2 : 1], &spec.profile)) {
        fprintf(stderr, "usage: underfilter [--time] base|python|node|shell [COMMAND...]\n");
        return 2;
    }
    if (filter_build(&spec, false, prog, &len, &err) < 0) {
        fprintf(stderr, "underfilter: %s\n", err.msg);
        return 125;
    }
    if (timing)
        return time_install(prog, len);
    if (install(prog, len) < 0) {
        perror("underfilter: seccomp");
        return 125;
    }
    execvp(argv[2], argv + 2);
    int e = errno;
    fprintf(stderr, "underfilter: %s: %s\n", argv[2], strerror(e));
    return e == ENOENT ? 127 : 126;
}
