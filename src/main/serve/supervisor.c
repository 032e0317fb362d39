/* Programs start in order, each after the previous program is ready, and stop in reverse order,
 * each after the next program has exited. Readiness is observed from outside: a socket that accepts
 * a connection, or a line on a pipe. The check repeats until the program is ready or dead. While
 * all programs run, no timer is set.
 *
 * This file decides which state children inherit: their descriptors, no blocked signals, and
 * SIGTERM when the supervisor dies, so that a killed supervisor leaves no process running. */
#include "main/serve/supervisor.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/wire/unix_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define CHECK_INTERVAL_NS (10 * NS_PER_MS)
#define FIRST_WAIT_NS (100 * NS_PER_MS)
#define LAST_WAIT_NS (3 * NS_PER_S)
#define NEVER_READY_FACTOR 20u /* the back-off of an optional program that was never ready is so much longer */
#define RUN_TO_WAIT 10u        /* the back-off starts anew after a run of ten times the last wait */
#define LINE_MAX_BYTES 4096

struct supervised_process {
    struct supervisor *s;
    const struct supervisor_program *prog;
    pid_t pid; /* 0: not running */
    bool ready, was_ready;
    struct ev_timer timer; /* next check of readiness, next start, or SIGKILL after stop_ms */
    struct ev_io pipe;
    char line[LINE_MAX_BYTES];
    size_t len;
    uint64_t started_at, wait_ns;
};

struct supervisor {
    struct ev *ev;
    const struct supervisor_ops *ops;
    void *arg;
    struct supervised_process *children;
    size_t n;
    bool stopping, ready_reported;
    int status;
};

/* --- child side --- */

/* Places fds at 3, 4, ...; every other descriptor is close-on-exec. */
static int supervisor_place_fds(const int *fds, size_t n)
{
    int high[16];

    if (n > ARRAY_LEN(high))
        return -1;
    for (size_t i = 0; i < n; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64)) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        if (dup2(high[i], (int)(3 + i)) < 0)
            return -1;
    return 0;
}

static int supervisor_drop_user(const struct supervisor_program *p)
{
    if (p->uid == 0 || geteuid() != 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(p->gid, p->gid, p->gid) < 0 || setresuid(p->uid, p->uid, p->uid) < 0 ||
                   prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
               ? -1
               : 0;
}

static NORETURN void supervisor_setup_failed(const struct supervisor_program *p)
{
    log_error("%s: cannot set up descriptors and user: %s", p->name, strerror(errno));
    _exit(125);
}

static NORETURN void supervisor_exec_program(const struct supervisor_program *p, int ctl_cp_stream, pid_t parent)
{
    int fds[16];
    size_t n = 0;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (; n < p->nfds && n < ARRAY_LEN(fds) - 1; n++)
        fds[n] = p->fds[n];
    if (ctl_cp_stream >= 0)
        fds[n++] = ctl_cp_stream;
    setpgid(0, 0); /* Ctrl-C must reach only the supervisor, which stops the programs in order */
    if (supervisor_place_fds(fds, n) < 0)
        supervisor_setup_failed(p);
    int program = open(p->argv[0], O_PATH | O_CLOEXEC);
    if (supervisor_drop_user(p) < 0)
        supervisor_setup_failed(p);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || getppid() != parent)
        _exit(125);
    execv(p->argv[0], (char *const *)(uintptr_t)p->argv);
    /* The program is in a directory that its user may not search, for example root's home. */
    if (errno == EACCES && program >= 0)
        fexecve(program, (char *const *)(uintptr_t)p->argv, environ);
    log_error("%s: cannot execute: %s", p->argv[0], strerror(errno));
    _exit(126);
}

/* --- starting --- */

static void supervisor_start_next(struct supervisor *s);
static void supervisor_start_process(struct supervised_process *c);

static void supervisor_process_ready(struct supervised_process *c)
{
    struct supervisor *s = c->s;

    ev_timer_clear(s->ev, &c->timer);
    c->ready = c->was_ready = true;
    log_debug("%s is ready", c->prog->name);
    supervisor_start_next(s);
}

static void supervisor_check_socket(void *arg)
{
    struct supervised_process *c = arg;
    int sock = -1;

    if (unix_connect(c->prog->ready_socket, &sock, NULL, NULL) == 0) {
        close(sock);
        supervisor_process_ready(c);
    } else {
        ev_timer_set(c->s->ev, &c->timer, ev_now(c->s->ev) + CHECK_INTERVAL_NS, supervisor_check_socket, c);
    }
}

static void supervisor_close_pipe(struct supervised_process *c)
{
    if (!c->pipe.on)
        return;
    ev_io_del(c->s->ev, &c->pipe);
    close(c->pipe.fd);
}

static void supervisor_read_lines(struct supervised_process *c)
{
    char *at = c->line, *end;

    while ((end = memchr(at, '\n', c->len - (size_t)(at - c->line)))) {
        *end = '\0';
        if (str_eq(at, "ready"))
            supervisor_process_ready(c);
        else if (c->s->ops->on_line)
            c->s->ops->on_line(c->s->arg, c->prog->name, at);
        at = end + 1;
    }
    c->len -= (size_t)(at - c->line);
    memmove(c->line, at, c->len);
}

static void supervisor_on_pipe(void *arg, uint32_t events UNUSED)
{
    struct supervised_process *c = arg;
    ssize_t n = read(c->pipe.fd, c->line + c->len, sizeof(c->line) - c->len);

    if (n <= 0) {
        supervisor_close_pipe(c);
        return;
    }
    c->len += (size_t)n;
    supervisor_read_lines(c);
    if (c->len == sizeof(c->line))
        c->len = 0; /* a line this long is invalid and is dropped */
}

static int supervisor_open_pipe(struct supervised_process *c, int *ret_far)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    (void)fd_nonblock(p[0], true);
    supervisor_close_pipe(c);
    c->len = 0;
    if (ev_io_add(c->s->ev, &c->pipe, p[0], EPOLLIN, supervisor_on_pipe, c, NULL) < 0) {
        close(p[0]);
        close(p[1]);
        return -1;
    }
    *ret_far = p[1];
    return 0;
}

static void supervisor_restart_later(struct supervised_process *c);

static void supervisor_start_process(struct supervised_process *c)
{
    struct supervisor *s = c->s;
    auto_fd int far = -1;
    pid_t parent = getpid();

    c->ready = false;
    if (!c->prog->ready_socket && supervisor_open_pipe(c, &far) < 0) {
        supervisor_restart_later(c);
        return;
    }
    c->started_at = ev_now(s->ev);
    c->pid = fork();
    if (c->pid == 0)
        supervisor_exec_program(c->prog, far, parent);
    if (c->pid < 0) {
        c->pid = 0;
        supervisor_restart_later(c);
        return;
    }
    if (c->prog->ready_socket)
        ev_timer_set(s->ev, &c->timer, ev_now(s->ev) + CHECK_INTERVAL_NS, supervisor_check_socket, c);
}

static void supervisor_on_restart_timer(void *arg)
{
    supervisor_start_process(arg);
}

uint64_t supervisor_backoff_ns(uint64_t before_ns, uint64_t ran_ns)
{
    if (before_ns == 0 || ran_ns / RUN_TO_WAIT > before_ns)
        return FIRST_WAIT_NS;
    return ran_ns > before_ns ? max_u64(before_ns / 2, FIRST_WAIT_NS) : min_u64(before_ns * 2, LAST_WAIT_NS);
}

static void supervisor_restart_later(struct supervised_process *c)
{
    struct ev *ev = c->s->ev;

    c->wait_ns = supervisor_backoff_ns(c->wait_ns, ev_now(ev) - c->started_at);
    if (!c->was_ready && c->prog->optional)
        c->wait_ns *= NEVER_READY_FACTOR;
    log_warn("%s restarts in %u ms", c->prog->name, (unsigned)(c->wait_ns / NS_PER_MS));
    ev_timer_set(ev, &c->timer, ev_now(ev) + c->wait_ns, supervisor_on_restart_timer, c);
}

static void supervisor_start_next(struct supervisor *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->children[i].was_ready)
            continue;
        if (s->children[i].started_at == 0)
            supervisor_start_process(&s->children[i]);
        if (!s->children[i].prog->optional)
            return;
    }
    if (!s->ready_reported && !s->stopping && s->ops->on_ready) {
        s->ready_reported = true;
        s->ops->on_ready(s->arg);
    }
}

/* --- stopping --- */

static void supervisor_on_stop_timeout(void *arg)
{
    struct supervised_process *c = arg;

    log_warn("%s did not stop in time; sending SIGKILL", c->prog->name);
    kill(c->pid, SIGKILL);
}

static void supervisor_stop_last(struct supervisor *s)
{
    for (size_t i = s->n; i-- > 0;) {
        struct supervised_process *c = &s->children[i];

        ev_timer_clear(s->ev, &c->timer);
        if (c->pid == 0)
            continue;
        kill(c->pid, c->prog->stop_signal ? c->prog->stop_signal : SIGTERM);
        ev_timer_set(s->ev, &c->timer, ev_now(s->ev) + c->prog->stop_ms * NS_PER_MS, supervisor_on_stop_timeout, c);
        return;
    }
    ev_stop(s->ev);
}

void supervisor_stop(struct supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    supervisor_stop_last(s);
}

void supervisor_kill_last(struct supervisor *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->children[i].pid) {
            kill(s->children[i].pid, SIGKILL);
            return;
        }
}

/* --- exits --- */

static void supervisor_log_exit(const struct supervised_process *c, int status)
{
    if (c->s->stopping)
        log_debug("%s has exited", c->prog->name);
    else if (WIFSIGNALED(status))
        log_error("%s was killed by signal %d", c->prog->name, WTERMSIG(status));
    else
        log_error("%s exited with status %d", c->prog->name, WEXITSTATUS(status));
}

static void supervisor_on_exit(struct supervised_process *c, int status)
{
    struct supervisor *s = c->s;

    c->pid = 0;
    ev_timer_clear(s->ev, &c->timer);
    if (c->pipe.on)
        supervisor_on_pipe(c, EPOLLIN); /* lines that it wrote before it exited */
    supervisor_close_pipe(c);
    supervisor_log_exit(c, status);
    if (s->stopping) {
        supervisor_stop_last(s);
    } else if (!c->was_ready && !c->prog->optional) {
        s->status = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 125;
        supervisor_stop(s);
    } else {
        supervisor_restart_later(c);
    }
}

void supervisor_reap(struct supervisor *s)
{
    for (size_t i = 0; i < s->n; i++) {
        int status;

        if (s->children[i].pid && waitpid(s->children[i].pid, &status, WNOHANG) == s->children[i].pid)
            supervisor_on_exit(&s->children[i], status);
    }
}

/* --- construction --- */

int supervisor_new(struct ev *ev, const struct supervisor_program *programs, size_t n, const struct supervisor_ops *ops,
                   void *arg, struct supervisor **ret, struct err *err UNUSED)
{
    struct supervisor *s = mem_new(struct supervisor);

    s->ev = ev;
    s->ops = ops;
    s->arg = arg;
    s->n = n;
    s->children = mem_alloc(n * sizeof(*s->children));
    for (size_t i = 0; i < n; i++)
        s->children[i] = (struct supervised_process){ .s = s, .prog = &programs[i], .was_ready = !programs[i].argv[0] };
    *ret = s;
    supervisor_start_next(s);
    return 0;
}

int supervisor_status(const struct supervisor *s)
{
    return s->status;
}

void supervisor_free(struct supervisor *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++) {
        ev_timer_clear(s->ev, &s->children[i].timer);
        supervisor_close_pipe(&s->children[i]);
    }
    free(s->children);
    free(s);
}
