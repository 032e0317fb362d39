/* cove - the command. Finds the files that were installed with it, and passes the command line
 * interface the functions that need the jailer. */
#include "core/base/err.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/cli.h"
#include "host/jailer/jailer.h"
#include "host/monitor/monitor.h"
#include "policy/denial.h"
#include "policy/policy.h"
#include "main/serve/service.h"

#include "cove_version.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char libexec_dir[PATH_MAX];

/* Finds the directory of cove-runtime and cove-VERB: COVE_LIBEXEC if it is set, ../libexec/cove in
 * an installation, or the directory of cove in a build tree. */
static int cove_open_runtime(struct err *err)
{
    static const char *const places[] = { "/../libexec/cove", "" };
    const char *said = getenv("COVE_LIBEXEC");
    char exe[PATH_MAX], path[PATH_MAX + 16];

    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < (said ? 1 : ARRAY_LEN(places)); i++) {
        int len = said ? snprintf(libexec_dir, sizeof(libexec_dir), "%s", said)
                       : snprintf(libexec_dir, sizeof(libexec_dir), "%s%s", exe, places[i]);

        if (len < 0 || (size_t)len >= sizeof(libexec_dir))
            continue;
        snprintf(path, sizeof(path), "%s/cove-runtime", libexec_dir);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            return fd;
    }
    if (said)
        return err_set(err, ERR_NO_RUNTIME_FILE, "no cove-runtime in %.120s, which COVE_LIBEXEC names", said);
    return err_set(err, ERR_NO_RUNTIME_FILE, "no cove-runtime in %.80s/../libexec/cove or next to cove", exe);
}

/* In the directory of cove-runtime, which was found before. Without language kernels only contexts
 * are unavailable. */
static int cove_open_kernels(void)
{
    char path[PATH_MAX + 16];

    snprintf(path, sizeof(path), "%s/kernels", libexec_dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? 0 : fd;
}

/* Sockets of the egress proxy until it is started: it starts after the jailer, whose work takes
 * longer, and needs no processor before the sandbox exists. */
static struct {
    int jailer_end; /* on which the jailer passes listeners */
    int listeners, requests;
    const char *open_ranges;
} pending_egress = { .jailer_end = -1, .listeners = -1, .requests = -1 };

/* The proxy speaks with servers of others: it gets neither the descriptors nor the environment of
 * the caller, which may hold keys. */
static char **cove_egress_environment(void)
{
    static const char *const kept[] = { "SSL_CERT_",      "LD_LIBRARY_PATH=", "ASAN_OPTIONS=",
                                        "UBSAN_OPTIONS=", "LSAN_OPTIONS=",    "GCOV_" };
    static char *env[32];
    size_t n = 0;

    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < ARRAY_LEN(kept) && n + 1 < ARRAY_LEN(env); i++)
            if (str_starts(*e, kept[i]))
                env[n++] = *e;
    return env;
}

static void cove_exec_egress(const char *path, int jailer_end, int engine_end)
{
    char jailer_fd[16], engine_fd[16];
    const char *resolvers = getenv("COVE_EGRESS_RESOLVERS"), *ca_file = getenv("COVE_EGRESS_CA_FILE");
    const struct {
        const char *name, *value;
    } options[] = { { "--jailer-fd", jailer_fd },
                    { "--engine-fd", engine_fd },
                    { "--open-ranges", pending_egress.open_ranges },
                    { "--resolvers", resolvers },
                    { "--ca-file", ca_file } };
    const char *words[2 * ARRAY_LEN(options) + 2] = { path };
    size_t n = 1;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    snprintf(jailer_fd, sizeof(jailer_fd), "%d", jailer_end);
    snprintf(engine_fd, sizeof(engine_fd), "%d", engine_end);
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        if (options[i].value && options[i].value[0]) {
            words[n++] = options[i].name;
            words[n++] = options[i].value;
        }
    /* In a session of its own, so that signals of the terminal do not reach it. */
    if (setsid() >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
        syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC) == 0 && fcntl(jailer_end, F_SETFD, 0) == 0 &&
        fcntl(engine_end, F_SETFD, 0) == 0)
        execve(path, (char *const *)(uintptr_t)words, cove_egress_environment());
}

/* The proxy sees the end of both sockets, and dies with this process. */
static int cove_fork_egress(struct err *err)
{
    auto_fd int listeners = take_fd(&pending_egress.listeners), requests = take_fd(&pending_egress.requests);
    char path[PATH_MAX + 16];

    if (requests < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/cove-egress", libexec_dir);
    pid_t pid = fork();
    if (pid == 0) {
        cove_exec_egress(path, listeners, requests);
        _exit(126);
    }
    return pid < 0 ? err_sys(err, ERR_SYS, "fork") : 0;
}

static int cove_start_egress(const char *open_ranges, int *ret_engine, struct err *err)
{
    auto_fd int runtime_fd = cove_open_runtime(err);
    char path[PATH_MAX + 16];
    int listeners[2], engine[2];

    if (runtime_fd < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/cove-egress", libexec_dir);
    if (access(path, X_OK) < 0)
        return err_sys(err, ERR_NETWORK_UNAVAILABLE, "the egress proxy %.160s cannot be started; reinstall cove", path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, listeners) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    pending_egress.jailer_end = listeners[0];
    pending_egress.listeners = listeners[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, engine) < 0)
        return err_sys(err, ERR_SYS, "socketpair"); /* the exit of the process closes the others */
    pending_egress.requests = engine[1];
    pending_egress.open_ranges = str_dup(open_ranges); /* until the exit of the process */
    *ret_engine = engine[0];
    return 0;
}

static struct {
    int intake; /* the monitor's end of the socket on which sandboxes pass their seccomp listeners */
    bool keep;
} pending_monitor = { .intake = -1 };

/* Forks the jailer before the monitor: the jailer must not hold the monitor's end of the socket,
 * and it closes every descriptor that it does not know. */
static int cove_start_jailer(const char *state_dir, bool keep, int *ret_jailer, struct err *err)
{
    auto_fd int runtime_fd = cove_open_runtime(err);
    auto_fd int jailer = -1, egress = take_fd(&pending_egress.jailer_end);
    int sv[2];
    pid_t pid;

    if (runtime_fd < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    auto_fd int listeners = sv[0], intake = sv[1];
    /* Without the language kernels, which only a server uses: copying them takes time. */
    struct jailer_settings jail = {
        .runtime_fd = runtime_fd, .state_dir = state_dir, .monitor_fd = listeners, .egress_fd = egress < 0 ? 0 : egress
    };
    if (jailer_fork(&jail, &jailer, &pid, err) < 0 || cove_fork_egress(err) < 0)
        return -1;
    pending_monitor.intake = take_fd(&intake);
    pending_monitor.keep = keep;
    *ret_jailer = take_fd(&jailer);
    return 0;
}

/* After this call this process holds neither end of the socket, so the jailer and the monitor each
 * see when the other dies. */
static int cove_start_monitor(int *ret_monitor, struct err *err)
{
    auto_fd int intake = take_fd(&pending_monitor.intake);
    struct monitor_settings watch = { .significant_args = denial_significant_args,
                                      .may_outlive_parent = pending_monitor.keep };
    pid_t pid;

    return monitor_fork(intake, &watch, ret_monitor, &pid, err);
}

/* The child writes the policy to a pipe; its messages for the user go to standard error
 * unchanged. */
static int cove_compile_policy(const char *name, bool json, struct buf *ret, struct err *err)
{
    auto_fd int runtime_fd = cove_open_runtime(err);
    char path[PATH_MAX + 16], chunk[4096];
    int pipefd[2], status;
    ssize_t n;

    if (runtime_fd < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/cove-policy", libexec_dir);
    if (pipe2(pipefd, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    auto_fd int from = pipefd[0];
    pid_t pid = fork();
    if (pid == 0) {
        const char *const words[] = { "cove-policy", "compile", "--", name, NULL };
        const char *const words_json[] = { "cove-policy", "compile", "--json", "--", name, NULL };

        if (dup2(pipefd[1], STDOUT_FILENO) >= 0)
            execv(path, (char *const *)(uintptr_t)(json ? words_json : words));
        _exit(126);
    }
    close(pipefd[1]);
    if (pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    while ((n = read(from, chunk, sizeof(chunk))) > 0 && ret->len <= CANON_MAX)
        buf_add(ret, chunk, (size_t)n);
    fd_close(&from);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 126)
        return err_set(err, ERR_POLICY_PROGRAM, "%.200s: cannot execute", path);
    if (!WIFEXITED(status))
        return err_set(err, ERR_BUG, "cove-policy was killed by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

/* A verb that is a separate program is looked up only if there is no built-in verb of that name. */
static const char *cove_find_libexec(void)
{
    auto_fd int fd = cove_open_runtime(NULL);

    return fd < 0 ? "" : libexec_dir;
}

static const struct cli_setting server_settings[] = {
#define SETTING(id, name, kind, def, least, most, choices, help) { name, help },
#include "main/conf/settings.def"
#undef SETTING
    { NULL, NULL },
};

int main(int argc, char **argv)
{
    const struct cli_settings settings = {
        .version = COVE_VERSION,
        .start_jailer = cove_start_jailer,
        .start_egress = cove_start_egress,
        .start_monitor = cove_start_monitor,
        .compile_policy = cove_compile_policy,
        .find_libexec = cove_find_libexec,
        .server = server_settings,
    };

    if (argc > 1 && (str_eq(argv[1], "__jailer") || str_eq(argv[1], "__monitor")))
        return service_main(argc - 1, argv + 1, cove_open_runtime, cove_open_kernels);
    return cli_main(argc, argv, &settings);
}
