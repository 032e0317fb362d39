/* A child is started in one of two ways. While PID 1 is the only process that ever existed, it
 * shares its memory with the child and sleeps until the child has called exec: no page tables are
 * copied, and the result is known at once. No other process exists that could stop the child and
 * thereby PID 1. Later any process of the sandbox could do that, so the child is a plain fork: it
 * reports an error through a pipe that a successful exec closes. In both cases the host gets
 * STARTED only after exec.
 *
 * Until exec the child is still the runtime: it is not dumpable, so no process in the sandbox can
 * read its memory, and it holds only the descriptors 0, 1, 2, the socket of a language kernel and
 * that pipe. */
#include "inside/runtime/spawn.h"

#include "core/base/fd.h"
#include "core/base/deny_openat2.h"
#include "core/base/str.h"
#include "inside/runtime/env.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <termios.h>

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif
#define PATH_DEFAULT "/usr/local/bin:/usr/bin:/bin"
#define KERNEL_FD 3
#define SPAWN_ERROR_FD 4
#define SPAWN_CHILD_STACK (64 * KIB) /* two paths are built at a time */
#define WORKSPACE "/workspace"

struct spawn_child_fds { /* become 0, 1, 2 and 3 of the child */
    int in, out, err, kernel;
};

struct spawn_request { /* input of the child; shared with the parent if error_pipe is -1 */
    const struct rt_exec *req;
    const char *const *env;
    struct spawn_child_fds child_fds;
    int cwd;
    int error_pipe;   /* write end of the pipe; -1: memory is shared */
    struct err error; /* shared memory: ERR_NONE if exec succeeded */
};

static NORETURN void spawn_child_fail(struct spawn_request *b, const struct err *why)
{
    ssize_t n = 0;

    if (b->error_pipe < 0)
        b->error = *why;
    else
        n = write(SPAWN_ERROR_FD, why, sizeof(*why)); /* less than PIPE_BUF: all or nothing */
    _exit(n < 0 ? 126 : 127);
}

/* "#!/no/such/thing" fails with ENOENT although the script exists: finds out which of the two is
 * missing. */
static bool spawn_find_missing_interpreter(const char *path, char *name, size_t cap)
{
    char line[256];
    auto_fd int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, line, sizeof(line) - 1);

    if (n <= 0 && access(path, F_OK) < 0)
        return false;
    snprintf(name, cap, "its loader");
    if (n < 3 || line[0] != '#' || line[1] != '!')
        return true;
    line[n] = '\0';
    char *p = line + 2 + strspn(line + 2, " \t");
    p[strcspn(p, " \t\r\n")] = '\0';
    snprintf(name, cap, "'%.100s'", p);
    return true;
}

static void spawn_explain_exec_error(struct err *err, const char *path, int sys)
{
    char interp[128];

    errno = sys;
    if (sys == ENOENT && spawn_find_missing_interpreter(path, interp, sizeof(interp)))
        err_set(err, ERR_PROGRAM_DENIED, "%.100s cannot run: %s does not exist in the sandbox", path, interp);
    else if (sys == ENOENT || sys == ENOTDIR)
        err_set(err, ERR_PROGRAM_MISSING, "%.160s does not exist in the sandbox", path);
    else if (sys == ENOEXEC)
        err_set(err, ERR_PROGRAM_DENIED, "%.160s is neither a program nor a script with a #! line", path);
    else if (sys == E2BIG)
        err_set(err, ERR_LIMIT, "arguments and environment are too long for %.160s", path);
    else if (sys == ENOMEM || sys == EAGAIN)
        err_sys(err, ERR_LIMIT, "%.160s", path);
    else
        err_sys(err, ERR_PROGRAM_DENIED, "%.160s", path);
    err->sys = sys;
}

/* Like execvp: EACCES continues the search and is remembered, a missing file continues, any other
 * error is final. A file that exists but lacks its interpreter is final too, because the caller
 * meant that file. */
static void spawn_exec_from_path(const char *name, const char *const *argv, const char *const *env, struct err *err)
{
    const char *dirs = env_get(env, "PATH");
    char path[RT_PATH_MAX];
    bool denied = false;

    if (!dirs)
        dirs = PATH_DEFAULT;
    for (const char *p = dirs; p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        size_t len = strcspn(p, ":");
        int n = snprintf(path, sizeof(path), "%.*s%s%s", (int)len, p, len ? "/" : "", name);

        if (n < 0 || (size_t)n >= sizeof(path))
            continue;
        execve(path, (char *const *)argv, (char *const *)env);
        int sys = errno;
        if (sys == EACCES && access(path, F_OK) == 0) {
            denied = true;
            spawn_explain_exec_error(err, path, sys);
        } else if ((sys != ENOENT && sys != ENOTDIR && sys != EACCES) || (sys == ENOENT && access(path, F_OK) == 0)) {
            spawn_explain_exec_error(err, path, sys);
            return;
        }
    }
    if (!denied)
        err_set(err, ERR_PROGRAM_MISSING, "program '%.100s' was not found in %.100s%s", name, dirs,
                str_eq(name, "python") ? "; did you mean python3?" : "");
}

static bool spawn_dup_to(int from, int at, int flags)
{
    if (from < 0) {
        close(at);
        return true;
    }
    return dup3(from, at, flags) >= 0;
}

/* The descriptors may have any number, so they are first moved away from 0 to 4. */
static bool spawn_place_descriptors(const struct spawn_request *b, int *dir)
{
    int in = fcntl(b->child_fds.in, F_DUPFD, 8), out = fcntl(b->child_fds.out, F_DUPFD, 8),
        er = fcntl(b->child_fds.err, F_DUPFD, 8);
    int word = b->error_pipe < 0 ? -1 : fcntl(b->error_pipe, F_DUPFD, 8);
    int kernel = b->child_fds.kernel < 0 ? -1 : fcntl(b->child_fds.kernel, F_DUPFD, 8);

    *dir = fcntl(b->cwd, F_DUPFD, 8);
    return in >= 0 && out >= 0 && er >= 0 && *dir >= 0 && (word >= 0) == (b->error_pipe >= 0) &&
           (kernel >= 0) == (b->child_fds.kernel >= 0) && spawn_dup_to(word, SPAWN_ERROR_FD, O_CLOEXEC) &&
           spawn_dup_to(kernel, KERNEL_FD, 0) && dup2(in, 0) >= 0 && dup2(out, 1) >= 0 && dup2(er, 2) >= 0;
}

static NORETURN void spawn_child_exec(struct spawn_request *b)
{
    /* Exec resets handlers by itself; only ignored signals would be inherited. */
    static const int may_be_ignored[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD,
                                          SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ, SIGUSR1, SIGUSR2 };
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    struct err err = { 0 };
    sigset_t none;
    char where[RT_PATH_MAX];
    const struct rt_exec *req = b->req;
    int dir;

    if (!spawn_place_descriptors(b, &dir)) {
        err_sys(&err, ERR_SYS, "cannot set up descriptors");
        b->error = err;
        _exit(126);
    }
    if (fchdir(dir) < 0 || !getcwd(where, sizeof(where)) || where[0] != '/') {
        err_sys(&err, ERR_INVALID, "directory %.160s", req->cwd);
        spawn_child_fail(b, &err);
    }
    if (syscall(SYS_close_range, SPAWN_ERROR_FD + 1, ~0u, 0u) < 0) {
        err_sys(&err, ERR_SYS, "closing descriptors");
        spawn_child_fail(b, &err);
    }
    setsid();
    if (req->flags & RT_EXEC_TTY && ioctl(0, TIOCSCTTY, 0) < 0) {
        err_sys(&err, ERR_SYS, "taking the terminal");
        spawn_child_fail(b, &err);
    }
    for (size_t i = 0; i < ARRAY_LEN(may_be_ignored); i++)
        sigaction(may_be_ignored[i], &dfl, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    if (deny_openat2() < 0) {
        err_sys(&err, ERR_WALL_MISSING, "cannot install the openat2 filter");
        spawn_child_fail(b, &err);
    }

    const char *name = req->argv[0];
    if (strchr(name, '/')) {
        execve(name, (char *const *)req->argv, (char *const *)b->env);
        spawn_explain_exec_error(&err, name, errno);
    } else {
        spawn_exec_from_path(name, req->argv, b->env, &err);
    }
    spawn_child_fail(b, &err);
}

static int spawn_child_entry(void *arg)
{
    spawn_child_exec(arg);
}

/* The child has its own stack, so it cannot overwrite the parent's. */
static pid_t spawn_vfork_child(struct spawn_request *b)
{
    static char stack[SPAWN_CHILD_STACK] __attribute__((aligned(16)));

    return clone(spawn_child_entry, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, b);
}

static int spawn_open_pipe(int *ours, int *theirs, bool we_write, struct err *err)
{
    int p[2];

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(err, errno == EMFILE || errno == ENFILE ? ERR_LIMIT : ERR_SYS, "pipe");
    *ours = p[we_write ? 1 : 0];
    *theirs = p[we_write ? 0 : 1];
    return fd_nonblock(*ours, true) < 0 ? err_sys(err, ERR_SYS, "pipe") : 0;
}

static int spawn_open_terminal(const struct rt_exec *req, struct spawned_program *sp, struct spawn_child_fds *end,
                               struct err *err)
{
    struct winsize size = { .ws_row = req->rows, .ws_col = req->cols };
    int unlock = 0;

    sp->out = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (sp->out < 0) /* the multiplexer in devpts may be inaccessible where the host's is open */
        sp->out = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (sp->out < 0)
        return err_sys(err, errno == ENOSPC || errno == EMFILE ? ERR_LIMIT : ERR_SYS, "opening a terminal");
    if (ioctl(sp->out, TIOCSPTLCK, &unlock) < 0 || ioctl(sp->out, TIOCSWINSZ, &size) < 0)
        return err_sys(err, ERR_SYS, "preparing the terminal");
    end->in = ioctl(sp->out, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (end->in < 0)
        return err_sys(err, ERR_SYS, "opening the terminal's peer");
    end->out = end->err = end->in;
    if (req->flags & RT_EXEC_STDIN && (sp->in = fcntl(sp->out, F_DUPFD_CLOEXEC, 0)) < 0)
        return err_sys(err, ERR_LIMIT, "terminal");
    return 0;
}

static int spawn_open_pipes(const struct rt_exec *req, struct spawned_program *sp, struct spawn_child_fds *end,
                            struct err *err)
{
    if (!(req->flags & RT_EXEC_STDIN)) {
        end->in = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (end->in < 0)
            return err_sys(err, ERR_SYS, "/dev/null");
    } else if (spawn_open_pipe(&sp->in, &end->in, true, err) < 0) {
        return -1;
    }
    if (spawn_open_pipe(&sp->out, &end->out, false, err) < 0)
        return -1;
    return spawn_open_pipe(&sp->err, &end->err, false, err);
}

/* Writing has its own descriptor, so that each direction can be polled separately. */
static int spawn_open_kernel_socket(struct spawned_program *sp, struct spawn_child_fds *end, struct err *err)
{
    int sv[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, errno == EMFILE || errno == ENFILE ? ERR_LIMIT : ERR_SYS, "socketpair");
    sp->kernel = sv[0];
    end->kernel = sv[1];
    sp->kernel_in = fcntl(sv[0], F_DUPFD_CLOEXEC, 0);
    return sp->kernel_in < 0 || fd_nonblock(sv[0], true) < 0 ? err_sys(err, ERR_SYS, "socketpair") : 0;
}

static int spawn_open_child_fds(const struct rt_exec *req, struct spawned_program *sp, struct spawn_child_fds *end,
                                struct err *err)
{
    if (req->flags & RT_EXEC_TTY)
        return spawn_open_terminal(req, sp, end, err);
    if (spawn_open_pipes(req, sp, end, err) < 0)
        return -1;
    return req->flags & RT_EXEC_KERNEL ? spawn_open_kernel_socket(sp, end, err) : 0;
}

static void spawn_close_child_fds(struct spawn_child_fds *end)
{
    if (end->out == end->in)
        end->out = end->err = -1;
    fd_close(&end->kernel);
    fd_close(&end->in);
    fd_close(&end->out);
    fd_close(&end->err);
}

void spawn_close(struct spawned_program *sp)
{
    fd_close(&sp->in);
    fd_close(&sp->out);
    fd_close(&sp->err);
    fd_close(&sp->kernel);
    fd_close(&sp->kernel_in);
    fd_close(&sp->start_result);
}

int spawn_open_kernel_fds(struct spawned_program *ret, int theirs[SPAWN_KERNEL_FDS], struct err *err)
{
    struct spawned_program sp = { .in = -1, .out = -1, .err = -1, .kernel = -1, .kernel_in = -1, .start_result = -1 };
    struct spawn_child_fds end = { -1, -1, -1, -1 };

    if (spawn_open_pipe(&sp.out, &end.out, false, err) < 0 || spawn_open_pipe(&sp.err, &end.err, false, err) < 0 ||
        spawn_open_kernel_socket(&sp, &end, err) < 0) {
        spawn_close_child_fds(&end);
        spawn_close(&sp);
        return -1;
    }
    *ret = sp;
    theirs[0] = end.kernel;
    theirs[1] = end.out;
    theirs[2] = end.err;
    return 0;
}

static int spawn_fork_error(const struct rt_exec *req, struct err *err)
{
    return err_sys(err, errno == EAGAIN ? ERR_PIDS_LIMIT : ERR_LIMIT, "starting '%.100s'", req->argv[0]);
}

int spawn_start(const struct paths *paths, const struct rt_exec *req, const char *const *env, bool alone,
                struct spawned_program *ret, struct err *err)
{
    struct spawned_program sp = { .in = -1, .out = -1, .err = -1, .kernel = -1, .kernel_in = -1, .start_result = -1 };
    struct spawn_request b = { .req = req, .env = env, .child_fds = { -1, -1, -1, -1 }, .cwd = -1, .error_pipe = -1 };
    auto_fd int cwd = -1, word = -1;

    if (!req->argv[0] || req->argv[0][0] == '\0')
        return err_set(err, ERR_INVALID, "the command is empty; name a program");
    b.cwd = cwd = path_open(paths, req->cwd[0] ? req->cwd : WORKSPACE, O_PATH | O_DIRECTORY, err);
    if (cwd < 0)
        return err_wrap(err, "working directory");
    if (spawn_open_child_fds(req, &sp, &b.child_fds, err) < 0 ||
        (!alone && spawn_open_pipe(&sp.start_result, &word, false, err) < 0))
        goto failed;
    b.error_pipe = word;
    sp.pid = alone ? spawn_vfork_child(&b) : fork();
    if (sp.pid == 0)
        spawn_child_exec(&b);
    if (sp.pid < 0) {
        (void)spawn_fork_error(req, err);
        goto failed;
    }
    if (b.error.id != ERR_NONE) { /* the child has exited and is reaped like any other */
        *err = b.error;
        goto failed;
    }
    spawn_close_child_fds(&b.child_fds);
    *ret = sp;
    return 0;

failed:
    spawn_close_child_fds(&b.child_fds);
    spawn_close(&sp);
    return -1;
}

int spawn_start_result(int verdict, struct err *err)
{
    struct err why;
    ssize_t n = read(verdict, &why, sizeof(why));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        return 1;
    if (n != sizeof(why))
        return err_set(err, ERR_BUG, "the error report of the child is truncated");
    *err = why;
    return -1;
}
