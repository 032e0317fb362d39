/* It was not started by us, so it has neither our Landlock domain nor the environment of the claim, and we do not know
 * its number. The first two it is told before it runs anything of others; the last we take from the kernel's stamp on
 * its answer, for it could say what it likes.
 *
 * The fork of a kernel has walls, limits, directory and environment from its birth. It gets the descriptors of a
 * process of its own by way of the kernel that is forked, which runs the code of strangers: that may keep them, answer
 * in the other's place or never. All of this harms nobody but itself; who answers must be a child of ours, or its end
 * would never be heard of. */
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
        return err_set(err, ERR_LIMIT, "an environment of %u bytes, %u are possible", len, INTERPRETER_ENV_MAX);
    buf_add(&text, &len, sizeof(len));
    for (size_t i = 0; env[i]; i++)
        buf_add(&text, env[i], strlen(env[i]) + 1);
    ssize_t n = fd_send(kernel, text.data, text.len, fds, nfds, MSG_DONTWAIT);
    if (n < 0)
        return err_sys(err, ERR_LOST, "the interpreter");
    return (size_t)n == text.len ? 0 : err_set(err, ERR_LOST, "the interpreter takes no orders");
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
        return err_sys(err, ERR_SYS, "credentials");
    return interpreter_send_claim(kernel, env, given, (size_t)n, err);
}

static int interpreter_set_nonblocking(int fd, int *ret, struct err *err)
{
    *ret = fd;
    return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? err_sys(err, ERR_SYS, "descriptor of an interpreter") : 0;
}

static int interpreter_dup_fd(int fd, int *ret, struct err *err)
{
    *ret = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return *ret < 0 ? err_sys(err, ERR_SYS, "descriptor of an interpreter") : 0;
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

/* It says nothing before it is asked, so what there is to hear is its end. */
static void interpreter_on_end(void *arg, uint32_t events UNUSED)
{
    struct runtime *rt = arg;

    interpreter_drop(rt);
    chan_send(&rt->chan, &(struct frame){ .type = FRAME_INTERPRETER_LOST });
}

int interpreter_hold(struct runtime *rt, struct err *err)
{
    if (rt->nframe_fds != RT_INTERPRETER_FDS)
        return err_set(err, ERR_PROTOCOL, "an interpreter comes with %u descriptors", RT_INTERPRETER_FDS);
    if (rt->interpreter_fds[0] >= 0)
        return err_set(err, ERR_EXISTS, "an interpreter waits already");
    if (ev_io_add(rt->ev, &rt->interpreter_io, rt->frame_fds[0], 0, interpreter_on_end, rt, err) < 0)
        return -1;
    for (size_t i = 0; i < RT_INTERPRETER_FDS; i++)
        rt->interpreter_fds[i] = take_fd(&rt->frame_fds[i]);
    return 0;
}

void interpreter_warm_up(struct runtime *rt)
{
    uint32_t word = INTERPRETER_WARM_UP;

    if (rt->interpreter_fds[0] >= 0) /* one that takes no orders is found by the claim */
        (void)send(rt->interpreter_fds[0], &word, sizeof(word), MSG_DONTWAIT | MSG_NOSIGNAL);
}

int interpreter_start_exec(struct runtime *rt, const struct rt_exec *req, const char *const *env,
                           struct spawned_program *ret, struct err *err)
{
    int fds[RT_INTERPRETER_FDS];

    if (rt->interpreter_fds[0] < 0)
        return err_set(err, ERR_LOST, "no interpreter waits in the sandbox");
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
                  ? err_sys(err, ERR_SYS, "credentials")
                  : interpreter_dup_fd(sp.kernel, &sp.start_result, err);
    if (!bad) {
        n = fd_send(kernel, line, sizeof(line) - 1, theirs, ARRAY_LEN(theirs), MSG_DONTWAIT);
        if (n != (ssize_t)sizeof(line) - 1) /* a few bytes into an empty buffer: all or nothing */
            bad = err_sys(err, errno == EAGAIN ? ERR_BUSY : ERR_LOST, "the kernel takes no orders");
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

/* What it says is for a person to read: text of one line, or nothing. */
static int interpreter_read_refusal(int kernel, struct err *err)
{
    char why[INTERPRETER_REASON_MAX + 1];
    ssize_t n = recv(kernel, why, sizeof(why) - 1, MSG_DONTWAIT);

    why[n > 0 ? n : 0] = '\0';
    str_strip_control_chars(why);
    return err_set(err, ERR_FORK_UNSUPPORTED, "%s", why[0] ? why : "its kernel refuses");
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
    struct ucred who = { 0 };
    ssize_t n = recvmsg(kernel, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    const struct cmsghdr *h = n == 1 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS)
        memcpy(&who, CMSG_DATA(h), sizeof(who));
    if (c == INTERPRETER_NO_PROCESSES)
        return err_set(err, ERR_PIDS_LIMIT, "no process more is allowed in the sandbox");
    if (c == INTERPRETER_REFUSED)
        return interpreter_read_refusal(kernel, err);
    if (c != INTERPRETER_READY || who.pid <= 1)
        return err_set(err, ERR_LOST, "the interpreter ended before it could begin");
    *ret = who.pid;
    return 1;
}
