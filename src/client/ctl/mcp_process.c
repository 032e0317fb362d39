/* The child is in a process group of its own: Ctrl-C is for cove, which then stops the server. The
 * kernel sends SIGTERM to it when cove dies, also after SIGKILL. A signal goes to the whole group,
 * because a server is often started by another program. */
#include "client/ctl/mcp_process.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_tool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LAST_WORDS_MAX 4096u
#define EXIT_WAIT_MS 500u

struct mcp_process {
    struct ev *ev;
    pid_t pid; /* 0: it was reaped */
    int pidfd, errors;
    int status; /* of wait(), when pid is 0 */
    struct ev_io io;
    struct buf tail; /* of standard error */
    char *words;
};

static void mcp_process_read_errors(struct mcp_process *p)
{
    char data[16384];
    ssize_t n = read(p->errors, data, sizeof(data));

    if (n > 0) {
        buf_add(&p->tail, data, (size_t)n);
        if (p->tail.len > LAST_WORDS_MAX)
            buf_drop(&p->tail, p->tail.len - LAST_WORDS_MAX);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        ev_io_del(p->ev, &p->io);
        fd_close(&p->errors);
    }
}

static void mcp_process_on_errors(void *arg, uint32_t events UNUSED)
{
    mcp_process_read_errors(arg);
}

/* --- the start --- */

struct mcp_process_pipes {
    int in[2], out[2], errors[2], failed[2]; /* `failed`: errno of the child, if exec fails */
};

static void NORETURN mcp_process_exec(const struct mcp_process_spec *spec, const struct mcp_process_pipes *pipes,
                                      pid_t parent)
{
    sigset_t none;
    int failed = pipes->failed[1];

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0);
    bool ready = dup2(pipes->out[0], STDIN_FILENO) >= 0 && dup2(pipes->in[1], STDOUT_FILENO) >= 0 &&
                 dup2(pipes->errors[1], STDERR_FILENO) >= 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 &&
                 getppid() == parent && (!spec->cwd || chdir(spec->cwd) == 0);
    for (const char *const *line = spec->env; ready && line && *line; line++)
        ready = putenv((char *)*line) == 0;
    if (ready)
        execvp(spec->argv[0], (char **)spec->argv);
    int number = errno;
    (void)fd_write_all(failed, &number, sizeof(number));
    _exit(127);
}

static int mcp_process_open_pipes(struct mcp_process_pipes *p)
{
    if (pipe2(p->in, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(p->out, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(p->errors, O_CLOEXEC) < 0)
        return -1;
    return pipe2(p->failed, O_CLOEXEC);
}

static void mcp_process_close_pipes(struct mcp_process_pipes *p)
{
    for (int i = 0; i < 2; i++) {
        fd_close(&p->in[i]);
        fd_close(&p->out[i]);
        fd_close(&p->errors[i]);
        fd_close(&p->failed[i]);
    }
}

/* The pipe closes at exec; a number in it is why exec failed. */
static int mcp_process_wait_for_exec(const struct mcp_process_spec *spec, struct mcp_process_pipes *pipes,
                                     struct err *err)
{
    int number = 0;

    fd_close(&pipes->failed[1]);
    if (fd_read_full(pipes->failed[0], &number, sizeof(number)) != sizeof(number))
        return 0;
    errno = number;
    return err_sys(err, number == ENOENT ? ERR_PROGRAM_MISSING : ERR_MCP_UNREACHABLE, "%.160s", spec->argv[0]);
}

static int mcp_process_fork(struct mcp_process *p, const struct mcp_process_spec *spec, struct mcp_process_pipes *pipes,
                            struct err *err)
{
    pid_t parent = getpid();

    p->pid = fork();
    if (p->pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    if (p->pid == 0)
        mcp_process_exec(spec, pipes, parent);
    setpgid(p->pid, p->pid);
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    if (mcp_process_wait_for_exec(spec, pipes, err) < 0)
        return -1;
    p->errors = take_fd(&pipes->errors[0]);
    if (p->pidfd < 0 || fd_nonblock(p->errors, true) < 0)
        return err_sys(err, ERR_SYS, "%.100s", spec->argv[0]);
    return ev_io_add(p->ev, &p->io, p->errors, EPOLLIN, mcp_process_on_errors, p, err);
}

int mcp_process_start(struct ev *ev, const struct mcp_process_spec *spec, struct mcp_process **ret, int *ret_in,
                      int *ret_out, struct err *err)
{
    struct mcp_process_pipes pipes = { { -1, -1 }, { -1, -1 }, { -1, -1 }, { -1, -1 } };
    auto_(mcp_process) p = mem_new(struct mcp_process);

    p->ev = ev;
    p->pidfd = p->errors = -1;
    int status = mcp_process_open_pipes(&pipes) < 0 ? err_sys(err, ERR_SYS, "a pipe")
                                                    : mcp_process_fork(p, spec, &pipes, err);
    if (status == 0) {
        *ret_in = take_fd(&pipes.in[0]);
        *ret_out = take_fd(&pipes.out[1]);
        *ret = take_ptr(&p);
    }
    mcp_process_close_pipes(&pipes);
    return status;
}

/* --- the end --- */

/* Reads its errors meanwhile: a program that cannot write them does not exit. */
static bool mcp_process_wait(struct mcp_process *p, unsigned wait_ms)
{
    uint64_t end = clock_mono_ns() + wait_ms * NS_PER_MS;
    uint64_t now;

    while (p->pid && (now = clock_mono_ns()) <= end) {
        struct pollfd fds[] = { { .fd = p->pidfd, .events = POLLIN }, { .fd = p->errors, .events = POLLIN } };

        (void)poll(fds, 2, (int)((end - now) / NS_PER_MS));
        if (fds[1].revents)
            mcp_process_read_errors(p);
        if (waitpid(p->pid, &p->status, WNOHANG) == p->pid)
            p->pid = 0;
        else if (now == end || wait_ms == 0)
            break;
    }
    return p->pid == 0;
}

void mcp_process_stop(struct mcp_process *p, unsigned grace_ms)
{
    pid_t group = p->pid;

    if (!group || mcp_process_wait(p, grace_ms))
        return;
    kill(-group, SIGTERM);
    if (mcp_process_wait(p, grace_ms))
        return;
    kill(-group, SIGKILL);
    if (waitpid(p->pid, &p->status, 0) == p->pid)
        p->pid = 0;
}

void mcp_process_free(struct mcp_process *p)
{
    if (!p)
        return;
    mcp_process_stop(p, 0);
    ev_io_del(p->ev, &p->io);
    fd_close(&p->errors);
    fd_close(&p->pidfd);
    buf_done(&p->tail);
    free(p->words);
    free(p);
}

int mcp_process_exit_status(struct mcp_process *p)
{
    if (!mcp_process_wait(p, EXIT_WAIT_MS))
        return -1;
    return WIFSIGNALED(p->status) ? 128 + WTERMSIG(p->status) : WEXITSTATUS(p->status);
}

const char *mcp_process_last_words(struct mcp_process *p)
{
    free(p->words);
    p->words = mcp_clean_text(p->tail.data ? p->tail.data : "", LAST_WORDS_MAX);
    size_t n = strlen(p->words);
    while (n > 0 && p->words[n - 1] == '\n')
        p->words[--n] = '\0';
    return p->words;
}
