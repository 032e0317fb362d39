#include "client/cli/doctor_drivers.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define VERSION_MS 2000

/* Reads the first line of the child's output. */
static void doctor_drivers_read_line(int fd, char *ret, size_t size)
{
    uint64_t end = clock_mono_ns() / NS_PER_MS + VERSION_MS;
    size_t n = 0;

    while (n < size - 1 && !memchr(ret, '\n', n)) {
        uint64_t now = clock_mono_ns() / NS_PER_MS;
        struct pollfd p = { .fd = fd, .events = POLLIN };

        if (now >= end || poll(&p, 1, (int)(end - now)) <= 0)
            break;
        ssize_t got = read(fd, ret + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    ret[n] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    str_strip_control_chars(ret);
}

#define NOBODY 65534u

/* No program of a driver is executed as root, or with a descriptor of cove. */
static NORETURN void doctor_drivers_exec(const char *program, int out)
{
    char *argv[] = { (char *)(uintptr_t)program, (char *)(uintptr_t) "--version", NULL };
    char *none[] = { NULL };
    int nul = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (nul < 0 || dup2(nul, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(nul, STDERR_FILENO) < 0 ||
        fd_keep_only(NULL, 0) < 0 || setsid() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(125);
    if (geteuid() == 0 &&
        (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0))
        _exit(125);
    execve(program, argv, none);
    _exit(127);
}

static void doctor_drivers_ask_version(const char *program, char *ret, size_t size)
{
    int pipe_fds[2];

    if (pipe2(pipe_fds, O_CLOEXEC) < 0)
        return;
    auto_fd int near = pipe_fds[0], far = pipe_fds[1];
    pid_t pid = fork();
    if (pid == 0)
        doctor_drivers_exec(program, far);
    if (pid < 0)
        return;
    fd_close(&far);
    doctor_drivers_read_line(near, ret, size);
    kill(pid, SIGKILL); /* it has written its line, or does not answer */
    waitpid(pid, NULL, 0);
}

void doctor_drivers_collect(struct doctor_drivers *d, enum driver_id tested, uint32_t forbidden)
{
    *d = (struct doctor_drivers){ .tested = tested };
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        struct doctor_driver *one = &d->v[i];

        drivers_check_host((enum driver_id)i, "", &one->host);
        one->allowed = !(forbidden & DRIVER_BIT(i));
        if (one->host.path[0])
            doctor_drivers_ask_version(one->host.path, one->version, sizeof(one->version));
    }
}

void doctor_drivers_print(const struct doctor_drivers *d, struct buf *out)
{
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        const struct doctor_driver *one = &d->v[i];
        const char *name = driver_name((enum driver_id)i);

        buf_addf(out, "also     driver %-11s ", name);
        if (!one->host.available) {
            buf_addf(out, "not available: %s\n         fix:  %s\n", one->host.why, one->host.fix);
            continue;
        }
        buf_addf(out, "available%s%s%s%s\n", one->version[0] ? ": " : "", one->version,
                 one->allowed ? "" : "; not allowed by the floor", i == d->tested ? "; tested above" : "");
        driver_weaknesses_print((enum driver_id)i, "         weaker: ", out);
    }
}

void doctor_drivers_json(const struct doctor_drivers *d, struct jsonw *w)
{
    jsonw_kstr(w, "driver", driver_name(d->tested));
    jsonw_karray(w, "drivers");
    for (unsigned i = 0; i < DRIVER_COUNT; i++) {
        const struct doctor_driver *one = &d->v[i];

        jsonw_object(w);
        jsonw_kstr(w, "name", driver_name((enum driver_id)i));
        jsonw_kbool(w, "allowed", one->allowed);
        jsonw_kbool(w, "available", one->host.available);
        jsonw_kbool(w, "tested", i == d->tested);
        jsonw_kbool(w, "zygote", drivers_caps((enum driver_id)i)->zygote);
        driver_weaknesses_json((enum driver_id)i, w);
        if (one->version[0])
            jsonw_kstr(w, "version", one->version);
        if (!one->host.available) {
            jsonw_kstr(w, "reason", one->host.why);
            jsonw_kstr(w, "fix", one->host.fix);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}
