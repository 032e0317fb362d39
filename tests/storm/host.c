/* host.c - one jailer, one monitor and two kinds of sandbox for tests/storm/run.py: `storm-host
 * PROGRAM SEED ROUNDS MS`.
 *
 * In one sandbox a neighbour program works all the time. Next to it, round after round, a fresh
 * sandbox gets the storm of the next seed; afterwards it must still start a program, and then be
 * removed without leftovers. The jailer and the monitor are the same for all rounds, and must
 * run at the end. Prints one line for each round, and exits with 0 when all of this held. */
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"
#include "host/jailer/jailer.h"
#include "host/monitor/monitor.h"
#include "policy/denial.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct box_state {
    const char *what;
    struct sandbox_handle *box;
    struct exec_handle *exec;
    bool ready, failed, ended, started, exited, exec_failed, done;
    struct err why;
    struct buf out;
};

static struct ev *ev;
static bool lost;
static unsigned slow = 1; /* factor by which this host is slower */

static void on_lost(void *arg UNUSED, const struct err *why)
{
    printf("the jailer is gone: %s\n", why->msg);
    lost = true;
}

static void on_ready(void *arg)
{
    ((struct box_state *)arg)->ready = true;
}

static void on_failed(void *arg, const struct err *err)
{
    struct box_state *s = arg;

    s->failed = true;
    s->why = *err;
}

static void on_ended(void *arg, const struct err *why)
{
    struct box_state *s = arg;

    s->ended = true;
    s->why = *why;
}

static void on_started(void *arg)
{
    ((struct box_state *)arg)->started = true;
}

static void on_output(void *arg, int channel UNUSED, const void *data, size_t len)
{
    struct box_state *s = arg;

    if (s->out.len < 1 * MIB)
        buf_add(&s->out, data, len);
}

static void on_exit_(void *arg, const struct receipt *r UNUSED)
{
    ((struct box_state *)arg)->exited = true;
}

static void on_exec_failed(void *arg, const struct err *err)
{
    struct box_state *s = arg;

    s->exec_failed = true;
    s->why = *err;
}

static void on_done(void *arg, const struct err *err)
{
    struct box_state *s = arg;

    s->done = true;
    if (err)
        s->why = *err;
}

static const struct engine_ops engine_ops = { .on_lost = on_lost };
static const struct sandbox_handle_ops box_ops = { .on_ready = on_ready, .on_failed = on_failed, .on_ended = on_ended };
static const struct exec_handle_ops exec_ops = {
    .on_started = on_started, .on_output = on_output, .on_exit = on_exit_, .on_failed = on_exec_failed
};

/* Runs the loop until one of the two is set. */
static bool until(const bool *a, const bool *b, unsigned seconds)
{
    uint64_t end = clock_mono_ns() + slow * seconds * NS_PER_S;

    while (!*a && !*b && !lost && clock_mono_ns() < end)
        ev_turn(ev, 100);
    return *a || *b;
}

static int complain(const struct box_state *s, const char *what)
{
    printf("%s: %s%s%s\n", s->what, what, s->why.id ? ": " : "", s->why.id ? s->why.msg : "");
    return -1;
}

static int open_box(struct engine *e, int program_dir, struct box_state *s)
{
    struct sandbox_mount mount = { .kind = SANDBOX_MOUNT_BIND_RO, .fd = program_dir, .dst = "/mnt/storm" };
    struct sandbox_spec spec = { .level = LEVEL_STANDARD, .profile = PROFILE_PYTHON, .mounts = &mount, .nmounts = 1 };
    struct err err = { 0 };

    limits_default(&spec.limits);
    spec.limits.v[LIMIT_MEMORY] = 256 * MIB;
    spec.limits.v[LIMIT_LIFETIME] = 86400000;
    if (geteuid() != 0) /* the limit may hold for each process alone; all of them together must not harm the host */
        spec.limits.v[LIMIT_PIDS] = 64;
    limits_fit(&spec.limits, LIMIT_BIT(MEMORY) | LIMIT_BIT(LIFETIME));
    if (sandbox_handle_new(e, &spec, &box_ops, s, &s->box, &err) < 0) {
        s->why = err;
        return complain(s, "refused");
    }
    if (!until(&s->ready, &s->failed, 30) || s->failed)
        return complain(s, "did not start");
    return 0;
}

static int start(struct box_state *s, const char *const *argv, bool input, unsigned wall_ms)
{
    /* Not in /workspace, which the storm may lock. */
    struct exec_spec spec = { .argv = argv, .cwd = "/", .stdin_open = input, .wall_ms = wall_ms };

    exec_handle_free(s->exec);
    s->exec = NULL;
    s->started = s->exited = s->exec_failed = false;
    s->why = (struct err){ 0 };
    return sandbox_handle_exec(s->box, &spec, &exec_ops, s, &s->exec, &s->why) < 0 ? complain(s, "no execution") : 0;
}

static int close_box(struct box_state *s)
{
    int rc = 0;

    if (s->box) {
        s->why = (struct err){ 0 };
        sandbox_handle_destroy(s->box, on_done, s);
        if (!until(&s->done, &lost, 30) || s->why.id)
            rc = complain(s, "was not destroyed");
    }
    exec_handle_free(s->exec);
    sandbox_handle_free(s->box);
    buf_done(&s->out);
    return rc;
}

/* Memory may end the sandbox, including PID 1: that is a limit that works. Nothing else may. */
static bool ended_by_memory(const struct box_state *s)
{
    return s->exec && s->exited && exec_handle_receipt(s->exec)->ended_by == ENDED_MEMORY;
}

/* Processes of earlier bursts may hold all processes of the limit, or all memory. */
static int still_alive(struct box_state *s)
{
    const char *const argv[] = { "/bin/true", NULL };

    if (start(s, argv, false, 5000 * slow) < 0 || !until(&s->exited, &s->exec_failed, 30))
        return complain(s, "does not start a program any more");
    if (s->exec_failed && (s->why.id == ERR_PIDS_LIMIT || s->why.id == ERR_LIMIT))
        return 0;
    if (s->exec_failed || s->ended)
        return ended_by_memory(s) ? 0 : complain(s, "is gone after the storm");
    return 0;
}

static int one_round(struct engine *e, int program_dir, unsigned long seed, unsigned ms)
{
    char seed_text[24], ms_text[24], name[40];
    const char *const argv[] = { "/mnt/storm/storm", seed_text, ms_text, NULL };
    struct box_state s = { .what = name };
    int rc = -1;

    snprintf(name, sizeof(name), "seed %lu", seed);
    snprintf(seed_text, sizeof(seed_text), "%lu", seed);
    snprintf(ms_text, sizeof(ms_text), "%u", ms);
    if (open_box(e, program_dir, &s) == 0 && start(&s, argv, false, ms + 10000 * slow) == 0) {
        if (!until(&s.exited, &s.exec_failed, ms / 1000 + 60) || s.exec_failed) {
            complain(&s, "the storm did not end");
        } else {
            const struct receipt *r = exec_handle_receipt(s.exec);
            const char *said = s.out.data ? strstr(s.out.data, "\nstorm: ") : NULL;

            printf("seed %lu: %s; %zu kinds of call refused, %.*s\n", seed, ended_by_name(r->ended_by), r->ndenials,
                   said ? (int)strcspn(said + 8, "\n") : 16, said ? said + 8 : "no report of it");
            if (r->ended_by == ENDED_LOST)
                complain(&s, "the sandbox was lost");
            else if (s.ended && r->ended_by != ENDED_MEMORY)
                complain(&s, "PID 1 died of the storm");
            else
                rc = s.ended ? 0 : still_alive(&s);
        }
    }
    if (close_box(&s) < 0)
        rc = -1;
    fflush(stdout);
    return lost ? -1 : rc;
}

static int steady_end(struct box_state *s)
{
    exec_handle_write_end(s->exec);
    if (!until(&s->exited, &s->exec_failed, 30) || s->exec_failed)
        return complain(s, "did not end");
    const struct receipt *r = exec_handle_receipt(s->exec);
    if (r->ended_by != ENDED_EXIT || r->exit_code != 0 || !s->out.data || !strstr(s->out.data, "steady: ")) {
        printf("the neighbour was disturbed: %s, exit code %d\n", ended_by_name(r->ended_by), r->exit_code);
        return -1;
    }
    printf("%s", s->out.data);
    return 0;
}

static int serve(struct engine **ret, pid_t *monitor)
{
    struct jailer_settings jail = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                    .state_dir = getenv("COVE_STATE_DIR") };
    struct monitor_settings watch = { .significant_args = denial_significant_args };
    struct err err = { 0 };
    int sv[2], sock, host;
    pid_t pid;

    if (jail.runtime_fd < 0 || !jail.state_dir || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return -1;
    jail.monitor_fd = sv[0];
    if (jailer_fork(&jail, &sock, &pid, &err) < 0 || monitor_fork(sv[1], &watch, &host, monitor, &err) < 0)
        return -1;
    close(sv[0]);
    close(sv[1]);
    close(jail.runtime_fd);
    if (ev_new(&ev, &err) < 0 || engine_new(ev, sock, &engine_ops, NULL, ret, &err) < 0)
        return -1;
    return engine_set_monitor(*ret, host, &err);
}

int main(int argc, char **argv)
{
    const char *const neighbour[] = { "/mnt/storm/storm", "--steady", NULL };
    struct box_state steady = { .what = "the neighbour" };
    struct engine *e = NULL;
    pid_t monitor = 0;
    int rc = -1;

    if (getenv("COVE_SLOW_HOST"))
        slow = (unsigned)max_u64(1, strtoul(getenv("COVE_SLOW_HOST"), NULL, 10));
    if (argc != 5 || serve(&e, &monitor) < 0)
        return 2;
    int dir = open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC);
    unsigned long seed = strtoul(argv[2], NULL, 10), rounds = strtoul(argv[3], NULL, 10);
    if (open_box(e, dir, &steady) == 0 && start(&steady, neighbour, true, 86000000) == 0 &&
        until(&steady.started, &steady.exec_failed, 30)) {
        rc = 0;
        for (unsigned long i = 0; i < rounds && rc == 0; i++)
            rc = one_round(e, dir, seed + i, (unsigned)strtoul(argv[4], NULL, 10));
        if (steady_end(&steady) < 0)
            rc = -1;
        if (waitpid(monitor, NULL, WNOHANG) != 0) {
            printf("the monitor is gone\n");
            rc = -1;
        }
    }
    if (close_box(&steady) < 0)
        rc = -1;
    engine_free(e);
    ev_turn(ev, 0);
    ev_free(ev);
    close(dir);
    return rc < 0;
}
