/* Orders come from the jailer, which is trusted: an order that cannot be decoded comes from another
 * build and ends the zygote. */
#include "host/zygote/serve.h"

#include "core/base/fd.h"
#include "core/wire/seccomp_listener.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

/* Sends the failure of an interpreter as its first and last event. */
static void zygote_report_failure(int kernel, const struct err *err)
{
    char line[512];
    int n = snprintf(line, sizeof(line), "{\"event\":\"failed\",\"error\":\"%s\",\"why\":\"", err_info(err->id)->code);

    for (const char *p = err->msg; *p && (size_t)n < sizeof(line) - 8; p++)
        line[n++] = *p == '"' || *p == '\\' || (unsigned char)*p < ' ' ? '_' : *p;
    n += snprintf(line + n, sizeof(line) - (size_t)n, "\"}\n");
    (void)!write(kernel, line, (size_t)n);
}

/* Uses a kernel signal, which also ends a process that spins, sleeps or has blocked all other
 * signals. The jailer sends nothing before it has received READY, so the only event on the socket
 * until then is its end. */
int zygote_die_with_socket(int sock, struct err *err)
{
    pid_t self = getpid();

    if (fcntl(sock, F_SETSIG, SIGKILL) < 0 || fcntl(sock, F_SETOWN, getpgrp() == self ? -self : self) < 0 ||
        fcntl(sock, F_SETFL, fcntl(sock, F_GETFL) | O_ASYNC) < 0)
        return err_sys(err, ERR_SYS, "cannot request a signal for the end of the socket");
    return 0;
}

void zygote_send_event(int sock, enum zygote_event_kind kind, const struct err *err)
{
    struct zygote_event note = { .kind = kind };

    if (kind == ZYGOTE_READY)
        (void)fcntl(sock, F_SETFL, fcntl(sock, F_GETFL) & ~O_ASYNC);
    if (err)
        note.err = *err;
    (void)fd_send(sock, &note, sizeof(note), NULL, 0, 0); /* if the jailer is gone, the next receive ends us */
}

static void zygote_close_fds(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

bool zygote_receive_order(int sock, struct zygote_task *ret)
{
    struct zygote_fork_order o;
    int fds[FD_PASS_MAX];
    size_t nfds = FD_PASS_MAX, i = 4;

    if (fd_recv(sock, &o, sizeof(o), fds, &nfds, 0) != (ssize_t)sizeof(o))
        return false;
    *ret = (struct zygote_task){ .token = o.token, .template = { .calls = o.calls, .rootless = o.rootless } };
    ret->template.monitor = o.has_monitor ? 0 : -1; /* only the presence of a monitor matters here */
    if (o.nprocs > CGROUP_TREES || nfds != 4u + o.nprocs + (o.has_monitor ? 1u : 0u) ||
        filter_build(&o.calls, o.has_monitor, ret->template.filter.prog, &ret->template.filter.len, NULL) < 0) {
        zygote_close_fds(fds, nfds);
        return false;
    }
    memcpy(ret->spec.id, o.id, sizeof(ret->spec.id));
    ret->spec.limits = o.limits;
    ret->spec.report_failure = zygote_report_failure;
    ret->spec.send_listener = seccomp_listener_send;
    ret->spec.cgroup.v2_dir = -1;
    for (size_t p = 0; p < o.nprocs; p++)
        ret->spec.cgroup.procs[ret->spec.cgroup.nprocs++] = fds[i++];
    ret->join = (struct join_request){ .template = &ret->template,
                                       .spec = &ret->spec,
                                       .pidfd = fds[0],
                                       .kernel = fds[1],
                                       .out = fds[2],
                                       .err_out = fds[3],
                                       .monitor = o.has_monitor ? fds[i] : -1 };
    return true;
}

void zygote_answer_order(int sock, struct zygote_task *task, int rc, const struct err *err)
{
    struct zygote_event note = { .kind = rc == 0 ? ZYGOTE_JOINED : ZYGOTE_REFUSED, .token = task->token };
    const struct join_request *j = &task->join;
    int fds[] = { j->pidfd, j->kernel, j->out, j->err_out };

    if (rc != 0)
        note.err = *err;
    zygote_close_fds(fds, ARRAY_LEN(fds));
    zygote_close_fds(task->spec.cgroup.procs, task->spec.cgroup.nprocs);
    if (j->monitor >= 0)
        close(j->monitor);
    (void)fd_send(sock, &note, sizeof(note), NULL, 0, 0);
}
