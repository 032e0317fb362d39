/* A joined interpreter was not started by the runtime, so it has neither the runtime's Landlock
 * domain nor the environment of the claim, and its pid is unknown. The runtime sends it the first
 * two before it runs any untrusted code. The pid is taken from the credentials that the kernel
 * attaches to its answer, because the interpreter could send any number.
 *
 * The fork of a language kernel inherits walls, limits, directory and environment. It gets its
 * descriptors through the language kernel that is forked, which runs untrusted code and may keep
 * them, answer in its place, or never answer. All of this harms only its own sandbox. The answering
 * process must be a child of the runtime; otherwise the runtime would never notice its end. */
#include "inside/runtime/interpreter.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "core/wire/interpreter.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define WORKSPACE "/workspace"

static int interpreter_send_claim(int kernel, const char *const *env, const int *fds, size_t nfds, struct err *err)
{
    auto_buf text = { 0 };
    uint32_t len = 0;

    for (size_t i = 0; env[i]; i++)
        len += (uint32_t)strlen(env[i]) + 1;
    if (len > INTERPRETER_ENV_MAX)
        return err_set(err, ERR_LIMIT, "the environment has %u bytes, at most %u are possible", len,
                       INTERPRETER_ENV_MAX);
    buf_add(&text, &len, sizeof(len));
    for (size_t i = 0; env[i]; i++)
        buf_add(&text, env[i], strlen(env[i]) + 1);
    ssize_t n = fd_send(kernel, text.data, text.len, fds, nfds, MSG_DONTWAIT);
    if (n < 0)
        return err_sys(err, ERR_LOST, "cannot send to the interpreter");
    return (size_t)n == text.len ? 0 : err_set(err, ERR_LOST, "the interpreter does not read its claim");
}

static int interpreter_hand_over(struct runtime *rt, const struct rt_exec *req, const char *const *env, int kernel,
                                 struct err *err)
{
    int on = 1, given[2], n = 0;
    auto_fd int cwd = path_open(&rt->paths, req->cwd[0] ? req->cwd : WORKSPACE, O_PATH | O_DIRECTORY, err);

    if (cwd < 0)
        return -1;
    given[n++] = cwd;
    if (rt->ruleset >= 0)
        given[n++] = rt->ruleset;
    if (setsockopt(kernel, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
        return err_sys(err, ERR_SYS, "cannot enable SO_PASSCRED");
    return interpreter_send_claim(kernel, env, given, (size_t)n, err);
}

static int interpreter_set_nonblocking(int fd, int *ret, struct err *err)
{
    *ret = fd;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? err_sys(err, ERR_SYS, "cannot set up a descriptor of the interpreter")
                                              : 0;
}

static int interpreter_dup_fd(int fd, int *ret, struct err *err)
{
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? err_sys(err, ERR_SYS, "cannot set up a descriptor of the interpreter") : 0;
}

static void interpreter_release_fds(struct runtime *rt, int ret[RT_INTERPRETER_FDS])
{
    ev_io_del(rt->ev, &rt->interpreter_io);
    for (size_t i = 0; i < RT_INTERPRETER_FDS; i++)
        ret[i] = take_fd(&rt->interpreter_fds[i]);
}

void interpreter_drop(struct runtime *rt)
{
    int fds[RT_INTERPRETER_FDS];

    interpreter_release_fds(rt, fds);
    for (size_t i = 0; i < RT_INTERPRETER_FDS; i++)
        fd_close(&fds[i]);
}

/* It sends nothing before it is claimed, so any event is its end. */
static void interpreter_on_end(void *arg, uint32_t events UNUSED)
{
    struct runtime *rt = arg;

    interpreter_drop(rt);
    chan_send(&rt->chan, &(struct frame){ .type = FRAME_INTERPRETER_LOST });
}

int interpreter_hold(struct runtime *rt, struct err *err)
{
    if (rt->nframe_fds != RT_INTERPRETER_FDS)
        return err_set(err, ERR_PROTOCOL, "INTERPRETER needs %u descriptors", RT_INTERPRETER_FDS);
    if (rt->interpreter_fds[0] >= 0)
        return err_set(err, ERR_EXISTS, "an interpreter is already waiting");
    if (ev_io_add(rt->ev, &rt->interpreter_io, rt->frame_fds[0], 0, interpreter_on_end, rt, err) < 0)
        return -1;
    for (size_t i = 0; i < RT_INTERPRETER_FDS; i++)
        rt->interpreter_fds[i] = take_fd(&rt->frame_fds[i]);
    return 0;
}

void interpreter_warm_up(struct runtime *rt)
{
    uint32_t word = INTERPRETER_WARM_UP;

    if (rt->interpreter_fds[0] >= 0) /* an interpreter that does not read fails at the claim */
        (void)send(rt->interpreter_fds[0], &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL);
}

int interpreter_start_exec(struct runtime *rt, const struct rt_exec *req, const char *const *env,
                           struct spawned_program *ret, struct err *err)
{
    int fds[RT_INTERPRETER_FDS];

    if (rt->interpreter_fds[0] < 0)
        return err_set(err, ERR_LOST, "no interpreter is waiting in the sandbox");
    interpreter_release_fds(rt, fds);
    *ret = (struct spawned_program){ .in = -1, .kernel_in = -1, .start_result = -1 };
    int bad = interpreter_set_nonblocking(take_fd(&fds[0]), &ret->kernel, err) < 0;
    bad = interpreter_set_nonblocking(take_fd(&fds[1]), &ret->out, err) < 0 || bad;
    bad = interpreter_set_nonblocking(take_fd(&fds[2]), &ret->err, err) < 0 || bad;
    if (!bad && interpreter_dup_fd(ret->kernel, &ret->kernel_in, err) == 0 &&
        interpreter_dup_fd(ret->kernel, &ret->start_result, err) == 0 &&
        interpreter_hand_over(rt, req, env, ret->kernel, err) == 0)
        return 0;
    int *all[] = { &ret->kernel, &ret->out, &ret->err, &ret->kernel_in, &ret->start_result };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        fd_close(all[i]);
    return -1;
}

int interpreter_fork_kernel(int kernel, struct spawned_program *ret, struct err *err)
{
    static const char line[] = INTERPRETER_FORK;
    int theirs[SPAWN_KERNEL_FDS], on = 1;
    struct spawned_program sp;
    ssize_t n = -1;

    if (spawn_open_kernel_fds(&sp, theirs, err) < 0)
        return -1;
    int bad = setsockopt(sp.kernel, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0
                  ? err_sys(err, ERR_SYS, "cannot enable SO_PASSCRED")
                  : interpreter_dup_fd(sp.kernel, &sp.start_result, err);
    if (!bad) {
        n = fd_send(kernel, line, sizeof(line) - 1, theirs, ARRAY_LEN(theirs), MSG_DONTWAIT);
        if (n != (ssize_t)sizeof(line) - 1) /* a few bytes into an empty buffer: all or nothing */
            bad = err_sys(err, errno == EAGAIN ? ERR_BUSY : ERR_LOST, "the language kernel does not read its socket");
    }
    for (size_t i = 0; i < ARRAY_LEN(theirs); i++)
        fd_close(&theirs[i]);
    if (bad) {
        spawn_close(&sp);
        return -1;
    }
    *ret = sp;
    return 0;
}

/* The reason is shown to users: one line of text, or nothing. */
static int interpreter_read_refusal(int kernel, struct err *err)
{
    char why[INTERPRETER_REASON_MAX + 1];
    ssize_t n = recv(kernel, why, sizeof(why) - 1, MSG_DONTWAIT);

    why[n > 0 ? n : 0] = '\0';
    str_strip_control_chars(why);
    return err_set(err, ERR_FORK_UNSUPPORTED, "%s", why[0] ? why : "the language kernel refuses to fork");
}

int interpreter_start_result(int kernel, pid_t *ret, struct err *err)
{
    char c = 0;
    struct iovec iov = { &c, 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    struct ucred peer = { 0 };
    ssize_t n = recvmsg(kernel, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    const struct cmsghdr *h = n == 1 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
        memcpy(&peer, CMSG_DATA(h), sizeof(peer));
    if (c == INTERPRETER_NO_PROCESSES)
        return err_set(err, ERR_PIDS_LIMIT, "the sandbox is at its process limit");
    if (c == INTERPRETER_REFUSED)
        return interpreter_read_refusal(kernel, err);
    if (c != INTERPRETER_READY || peer.pid <= 1)
        return err_set(err, ERR_LOST, "the interpreter ended before it was ready");
    *ret = peer.pid;
    return 1;
}
