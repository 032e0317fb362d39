/* One after the other: a program is started when the one before it is ready, and stopped when the one behind it is
 * gone. Ready is what can be seen from outside, a socket that answers or a line on a pipe, looked for until it is there
 * or the program is dead. When all run there is no timer left.
 *
 * What the children inherit is decided here: their descriptors, no blocked signal, and death by SIGTERM when this
 * process dies, so that a killed supervisor leaves nothing behind either. */
#include "serve/supervisor.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "wire/door.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define LOOK_NS (10 * NS_PER_MS)
#define FIRST_WAIT_NS (100 * NS_PER_MS)
#define LAST_WAIT_NS (3 * NS_PER_S)
#define RUN_TO_WAIT 10u /* who ran ten times as long as it was waited for has proven itself */
#define LINE_MAX_BYTES 4096

struct child {
    struct supervisor *s;
    const struct program *prog;
    pid_t pid; /* 0: does not run */
    bool ready, was_ready;
    struct ev_timer timer; /* a look whether it is ready, the next start, or the end of patience */
    struct ev_io pipe;
    char line[LINE_MAX_BYTES];
    size_t len;
    uint64_t started_at, wait_ns;
};

struct supervisor {
    struct ev *ev;
    const struct supervisor_ops *ops;
    void *arg;
    struct child *children;
    size_t n;
    bool stopping, told;
    int status;
};

/* --- the child's side --- */

/* Puts fds at 3, 4, ...; all others go at exec, since everything here is close-on-exec. */
static int place_fds(const int *fds, size_t n)
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

static int become(const struct program *p)
{
    if (p->uid == 0 || geteuid() != 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(p->gid, p->gid, p->gid) < 0 || setresuid(p->uid, p->uid, p->uid) < 0 ||
                   prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0
               ? -1
               : 0;
}

static NORETURN void misplaced(const struct program *p)
{
    log_error("%s cannot be given its place: %s", p->name, strerror(errno));
    _exit(125);
}

static NORETURN void run_program(const struct program *p, int pipe_end, pid_t parent)
{
    int fds[16];
    size_t n = 0;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (; n < p->nfds && n < ARRAY_LEN(fds) - 1; n++)
        fds[n] = p->fds[n];
    if (pipe_end >= 0)
        fds[n++] = pipe_end;
    setpgid(0, 0); /* Ctrl-C is for the supervisor, which stops them in order */
    if (place_fds(fds, n) < 0)
        misplaced(p);
    int program = open(p->argv[0], O_PATH | O_CLOEXEC);
    if (become(p) < 0)
        misplaced(p);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || getppid() != parent)
        _exit(125);
    execv(p->argv[0], (char *const *)(uintptr_t)p->argv);
    if (errno == EACCES && program >= 0) /* it lies where its user may not go, as in the home of root */
        fexecve(program, (char *const *)(uintptr_t)p->argv, environ);
    log_error("%s cannot be executed: %s", p->argv[0], strerror(errno));
    _exit(126);
}

/* --- starting --- */

static void start_next(struct supervisor *s);
static void start(struct child *c);

static void became_ready(struct child *c)
{
    struct supervisor *s = c->s;

    ev_timer_clear(s->ev, &c->timer);
    c->ready = c->was_ready = true;
    log_debug("%s is ready", c->prog->name);
    start_next(s);
}

static void look(void *arg)
{
    struct child *c = arg;
    int sock = -1;

    if (door_knock(c->prog->door, &sock, NULL, NULL) == 0) {
        close(sock);
        became_ready(c);
    } else {
        ev_timer_set(c->s->ev, &c->timer, ev_now(c->s->ev) + LOOK_NS, look, c);
    }
}

static void close_pipe(struct child *c)
{
    if (!c->pipe.on)
        return;
    ev_io_del(c->s->ev, &c->pipe);
    close(c->pipe.fd);
}

static void take_lines(struct child *c)
{
    char *at = c->line, *end;

    while ((end = memchr(at, '\n', c->len - (size_t)(at - c->line)))) {
        *end = '\0';
        if (str_eq(at, "ready"))
            became_ready(c);
        else if (c->s->ops->on_line)
            c->s->ops->on_line(c->s->arg, c->prog->name, at);
        at = end + 1;
    }
    c->len -= (size_t)(at - c->line);
    memmove(c->line, at, c->len);
}

static void on_pipe(void *arg, uint32_t events UNUSED)
{
    struct child *c = arg;
    ssize_t n = read(c->pipe.fd, c->line + c->len, sizeof(c->line) - c->len);

    if (n <= 0) {
        close_pipe(c);
        return;
    }
    c->len += (size_t)n;
    take_lines(c);
    if (c->len == sizeof(c->line))
        c->len = 0; /* nobody says so much in one line */
}

static int open_pipe(struct child *c, int *ret_far)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    (void)fd_nonblock(p[0], true);
    close_pipe(c);
    c->len = 0;
    if (ev_io_add(c->s->ev, &c->pipe, p[0], EPOLLIN, on_pipe, c, NULL) < 0) {
        close(p[0]);
        close(p[1]);
        return -1;
    }
    *ret_far = p[1];
    return 0;
}

static void start_later(struct child *c);

static void start(struct child *c)
{
    struct supervisor *s = c->s;
    auto_fd int far = -1;
    pid_t parent = getpid();

    c->ready = false;
    if (!c->prog->door && open_pipe(c, &far) < 0) {
        start_later(c);
        return;
    }
    c->started_at = ev_now(s->ev);
    c->pid = fork();
    if (c->pid == 0)
        run_program(c->prog, far, parent);
    if (c->pid < 0) {
        c->pid = 0;
        start_later(c);
        return;
    }
    if (c->prog->door)
        ev_timer_set(s->ev, &c->timer, ev_now(s->ev) + LOOK_NS, look, c);
}

static void start_again(void *arg)
{
    start(arg);
}

uint64_t supervisor_wait_ns(uint64_t before_ns, uint64_t ran_ns)
{
    if (before_ns == 0 || ran_ns / RUN_TO_WAIT > before_ns)
        return FIRST_WAIT_NS;
    return ran_ns > before_ns ? max_u64(before_ns / 2, FIRST_WAIT_NS) : min_u64(before_ns * 2, LAST_WAIT_NS);
}

static void start_later(struct child *c)
{
    struct ev *ev = c->s->ev;

    c->wait_ns = supervisor_wait_ns(c->wait_ns, ev_now(ev) - c->started_at);
    log_warn("%s is started again in %u ms", c->prog->name, (unsigned)(c->wait_ns / NS_PER_MS));
    ev_timer_set(ev, &c->timer, ev_now(ev) + c->wait_ns, start_again, c);
}

static void start_next(struct supervisor *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->children[i].was_ready)
            continue;
        if (s->children[i].pid == 0)
            start(&s->children[i]);
        return;
    }
    if (!s->told && !s->stopping && s->ops->on_ready) {
        s->told = true;
        s->ops->on_ready(s->arg);
    }
}

/* --- stopping --- */

static void lose_patience(void *arg)
{
    struct child *c = arg;

    log_warn("%s did not end in time and is killed", c->prog->name);
    kill(c->pid, SIGKILL);
}

static void stop_last(struct supervisor *s)
{
    for (size_t i = s->n; i-- > 0;) {
        struct child *c = &s->children[i];

        ev_timer_clear(s->ev, &c->timer);
        if (c->pid == 0)
            continue;
        kill(c->pid, c->prog->stop_signal ? c->prog->stop_signal : SIGTERM);
        ev_timer_set(s->ev, &c->timer, ev_now(s->ev) + c->prog->stop_ms * NS_PER_MS, lose_patience, c);
        return;
    }
    ev_stop(s->ev);
}

void supervisor_stop(struct supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    stop_last(s);
}

void supervisor_hurry(struct supervisor *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->children[i].pid) {
            kill(s->children[i].pid, SIGKILL);
            return;
        }
}

/* --- deaths --- */

static void say_death(const struct child *c, int status)
{
    if (c->s->stopping)
        log_debug("%s has ended", c->prog->name);
    else if (WIFSIGNALED(status))
        log_error("%s was ended by signal %d", c->prog->name, WTERMSIG(status));
    else
        log_error("%s ended with status %d", c->prog->name, WEXITSTATUS(status));
}

static void on_death(struct child *c, int status)
{
    struct supervisor *s = c->s;

    c->pid = 0;
    ev_timer_clear(s->ev, &c->timer);
    if (c->pipe.on)
        on_pipe(c, EPOLLIN); /* its last words */
    close_pipe(c);
    say_death(c, status);
    if (s->stopping) {
        stop_last(s);
    } else if (!c->was_ready) {
        s->status = WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 125;
        supervisor_stop(s);
    } else {
        start_later(c);
    }
}

void supervisor_child(struct supervisor *s)
{
    for (size_t i = 0; i < s->n; i++) {
        int status;

        if (s->children[i].pid && waitpid(s->children[i].pid, &status, WNOHANG) == s->children[i].pid)
            on_death(&s->children[i], status);
    }
}

/* --- life --- */

int supervisor_new(struct ev *ev, const struct program *programs, size_t n, const struct supervisor_ops *ops, void *arg,
                   struct supervisor **ret, struct err *err UNUSED)
{
    struct supervisor *s = mem_new(struct supervisor);

    s->ev = ev;
    s->ops = ops;
    s->arg = arg;
    s->n = n;
    s->children = mem_alloc(n * sizeof(*s->children));
    for (size_t i = 0; i < n; i++)
        s->children[i] = (struct child){ .s = s, .prog = &programs[i] };
    *ret = s;
    start_next(s);
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
        close_pipe(&s->children[i]);
    }
    free(s->children);
    free(s);
}
