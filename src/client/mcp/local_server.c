/* The kernel sends SIGTERM to the server when this process dies, so no server outlives its user,
 * even after SIGKILL. Only the directory is left then; the next start removes it. Two locks say
 * that a directory is in use: ours, and the server's own, which it holds until its processes
 * have ended. */
#include "client/mcp/local_server.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/server_dirs.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LOCAL_PREFIX "cove-local-"
#define LOCAL_OWN_LOCK "bridge.lock"
#define LOCAL_SERVER_LOCK "run/serve.lock"
#define START_MS 60000
#define STOP_MS 30000
#define STALE_S 60
#define SOCKET_DIR_MAX 60u /* of the directory for temporary files: the path of a socket has 107 bytes */

struct local_server {
    char *dir, *socket;
    int lock;
    int output; /* standard output of the server */
    pid_t pid;  /* 0: not running */
};

/* --- directories --- */

static const char *local_temporary_dir(void)
{
    const char *given = getenv("TMPDIR");

    return given && given[0] == '/' && strlen(given) <= SOCKET_DIR_MAX ? given : "/tmp";
}

static int local_remove_one(const char *path, const struct stat *st UNUSED, int type UNUSED, struct FTW *at UNUSED)
{
    (void)remove(path);
    return 0;
}

/* All processes that could write there have ended. */
static void local_remove(const char *dir)
{
    (void)nftw(dir, local_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

/* -1: another process has it locked. A missing file is not locked. */
static int local_take_lock(const char *dir, const char *name, int *ret)
{
    auto_free char *path = str_printf("%s/%s", dir, name);
    auto_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return -1;
    *ret = take_fd(&fd);
    return 0;
}

/* A new directory is not locked in its first moment. */
static void local_remove_stale(const char *dir)
{
    struct stat st;
    auto_fd int own = -1;
    auto_fd int server = -1;

    if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
        clock_real_ns() / NS_PER_S < (uint64_t)st.st_mtime + STALE_S)
        return;
    if (local_take_lock(dir, LOCAL_OWN_LOCK, &own) == 0 && local_take_lock(dir, LOCAL_SERVER_LOCK, &server) == 0)
        local_remove(dir);
}

static void local_sweep(const char *parent)
{
    DIR *d = opendir(parent);
    const struct dirent *entry;

    while (d && (entry = readdir(d))) {
        auto_free char *dir = str_printf("%s/%s", parent, entry->d_name);

        if (str_starts(entry->d_name, LOCAL_PREFIX))
            local_remove_stale(dir);
    }
    if (d)
        closedir(d);
}

static int local_make_dir(struct local_server *s, struct err *err)
{
    s->dir = str_printf("%s/" LOCAL_PREFIX "XXXXXX", local_temporary_dir());
    if (!mkdtemp(s->dir)) {
        err_sys(err, ERR_STATE_DIR, "%.160s", s->dir);
        free(take_ptr(&s->dir));
        return -1;
    }
    auto_free char *lock = str_printf("%s/" LOCAL_OWN_LOCK, s->dir);
    s->lock = open(lock, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    /* coved of root has its own user and must reach its state below */
    if (s->lock < 0 || flock(s->lock, LOCK_EX | LOCK_NB) < 0 || (geteuid() == 0 && chmod(s->dir, 0711) < 0))
        return err_sys(err, ERR_STATE_DIR, "%.160s", s->dir);
    s->socket = str_printf("%s/run/" SERVER_DIRS_API_SOCKET, s->dir);
    return 0;
}

/* --- the process --- */

static void NORETURN local_exec(const struct local_server *s, const char *program, pid_t parent, int output)
{
    auto_free char *state = str_printf("%s/state", s->dir);
    auto_free char *run = str_printf("%s/run", s->dir);
    const char *argv[] = { program, "--listen",    "off",  "--state-dir", state,   "--run-dir",
                           run,     "--log-level", "warn", NULL,          "false", NULL };
    sigset_t none;
    int in = open("/dev/null", O_RDONLY);

    if (geteuid() != 0)
        argv[9] = "--limits-enforced";
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* Ctrl-C on a terminal is for the bridge, which then stops the server */
    if (in < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(125);
    execv(program, (char **)argv);
    dprintf(STDERR_FILENO, "cove: %s: %s\n", program, strerror(errno));
    _exit(125);
}

static int local_spawn(struct local_server *s, const char *program, struct err *err)
{
    int out[2];
    pid_t parent = getpid();

    if (access(program, X_OK) < 0)
        return err_sys(err, ERR_CTL_PROGRAM, "%.160s", program);
    if (pipe2(out, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->pid = fork();
    if (s->pid == 0)
        local_exec(s, program, parent, out[1]);
    close(out[1]);
    s->output = out[0];
    if (s->pid < 0) {
        s->pid = 0;
        return err_sys(err, ERR_SYS, "fork");
    }
    return 0;
}

/* The server prints a text with a line "... is ready" once; the key in it is not needed on a
 * socket. */
static int local_wait_ready(struct local_server *s, struct err *err)
{
    char text[4096];
    size_t len = 0;
    struct pollfd p = { .fd = s->output, .events = POLLIN };

    for (;;) {
        int n = poll(&p, 1, START_MS);
        ssize_t got = n > 0 ? read(s->output, text + len, sizeof(text) - 1 - len) : 0;

        if ((n < 0 || got < 0) && errno == EINTR)
            continue;
        if (n == 0)
            return err_set(err, ERR_TIMEOUT, "the private server did not start within %d s", START_MS / 1000);
        if (got <= 0)
            return err_set(err, ERR_UNREACHABLE,
                           "the private server did not start; its messages are above, and 'cove doctor' checks this "
                           "host");
        len += (size_t)got;
        text[len] = '\0';
        bool ready = strstr(text, " is ready") && strstr(text, "state");
        if (ready || len == sizeof(text) - 1) {
            explicit_bzero(text, sizeof(text));
            return 0;
        }
    }
}

int local_server_start(const char *program, struct local_server **ret, struct err *err)
{
    struct local_server *s = mem_new(struct local_server);

    s->lock = s->output = -1;
    local_sweep(local_temporary_dir());
    if (local_make_dir(s, err) < 0 || local_spawn(s, program, err) < 0 || local_wait_ready(s, err) < 0) {
        local_server_stop(s);
        return -1;
    }
    *ret = s;
    return 0;
}

static bool local_wait_end(pid_t pid, int max_ms)
{
    for (int waited = 0; waited < max_ms; waited += 10) {
        pid_t got = waitpid(pid, NULL, WNOHANG);

        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        (void)poll(NULL, 0, 10);
    }
    return false;
}

void local_server_stop(struct local_server *s)
{
    if (!s)
        return;
    if (s->pid > 0 && kill(s->pid, SIGTERM) == 0 && !local_wait_end(s->pid, STOP_MS)) {
        kill(s->pid, SIGKILL);
        (void)local_wait_end(s->pid, STOP_MS);
    }
    fd_close(&s->output);
    if (s->dir)
        local_remove(s->dir);
    fd_close(&s->lock);
    free(s->dir);
    free(s->socket);
    free(s);
}

const char *local_server_socket(const struct local_server *s)
{
    return s->socket;
}
