/* The child prints the result itself, in one write: for a parent to print it, the child would have
 * to pass its findings, and a killed child cannot. The doctor counts an attack without a result as
 * open, because it was never made. */
#include "inside/doctor/attack.h"

#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

#define ATTACK_SECONDS 8

static int attack_argc;
static char **attack_argv;

static void PRINTF_LIKE(2, 0) attack_observe(struct attack *a, const char *fmt, va_list ap)
{
    a->was_tried = true;
    vsnprintf(a->observation, sizeof(a->observation), fmt, ap);
}

void attack_held(struct attack *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (!a->is_open)
        attack_observe(a, fmt, ap);
    va_end(ap);
}

void attack_open(struct attack *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (!a->is_open)
        attack_observe(a, fmt, ap);
    va_end(ap);
    a->is_open = true;
}

void attack_expect_error(struct attack *a, const char *what, long rc, int error, int other)
{
    int got = errno;

    if (rc >= 0)
        attack_open(a, "%s succeeded", what);
    else if (got == error || (other && got == other))
        attack_held(a, "%s: %s", what, strerror(got));
    else
        attack_open(a, "%s was not refused, but failed with: %s", what, strerror(got));
}

void attack_expect_failure(struct attack *a, const char *what, long rc)
{
    if (rc >= 0)
        attack_open(a, "%s succeeded", what);
    else
        attack_held(a, "%s: %s", what, strerror(errno));
}

void attack_set_args(int argc, char **argv)
{
    attack_argc = argc;
    attack_argv = argv;
}

const char *attack_arg(const char *name)
{
    size_t len = strlen(name);

    for (int i = 0; i < attack_argc; i++)
        if (strncmp(attack_argv[i], name, len) == 0 && attack_argv[i][len] == '=')
            return attack_argv[i] + len + 1;
    return "";
}

uint64_t attack_arg_u64(const char *name)
{
    uint64_t v = 0;

    return str_to_u64(attack_arg(name), UINT64_MAX, &v) ? v : 0;
}

ssize_t attack_read_file(const char *path, char *buf, size_t cap)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = -1;

    buf[0] = '\0';
    if (fd < 0)
        return -1;
    while (have < cap - 1 && (n = read(fd, buf + have, cap - 1 - have)) > 0)
        have += (size_t)n;
    close(fd);
    buf[have] = '\0';
    return n < 0 && have == 0 ? -1 : (ssize_t)have;
}

void attack_run(struct attack *a)
{
    char line[ATTACK_OBSERVATION_MAX + 64];
    pid_t pid = fork();

    if (pid == 0) {
        alarm(ATTACK_SECONDS);
        a->run(a);
        int n = snprintf(line, sizeof(line), "%s\t%s\t%s\n", a->name, a->was_tried && !a->is_open ? "held" : "open",
                         a->was_tried ? a->observation : "the attack was not made");
        (void)!write(STDOUT_FILENO, line, (size_t)n);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
