/* Denied system calls of real sandboxes: named, counted, bounded, and denied whatever happens to
 * the monitor. */
#include "world.h"

#include "host/monitor/monitor.h"
#include "host/monitor/denial_tally.h"
#include "policy/denial.h"

#include <dirent.h>
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

static pid_t monitor;
static int to_monitor = -1; /* the jailer's end of their socket, kept by tests that fill it */

static void open_watched(struct world *w)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct monitor_settings watch = { .significant_args = denial_significant_args, .may_outlive_parent = true };
    struct err err = { 0 };
    int sv[2], jailer, host;

    *w = (struct world){ 0 };
    assert_true(s.runtime_fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    s.monitor_fd = sv[0];
    assert_int_equal(jailer_fork(&s, &jailer, &w->jailer, &err), 0);
    assert_int_equal(monitor_fork(sv[1], &watch, &host, &monitor, &err), 0);
    close(s.runtime_fd);
    to_monitor = sv[0];
    close(sv[1]);
    assert_int_equal(ev_new(&w->ev, &err), 0);
    assert_int_equal(engine_new(w->ev, jailer, &engine_ops, w, &w->engine, &err), 0);
    assert_int_equal(engine_set_monitor(w->engine, host, &err), 0);
}

static void start_box(struct world *w, struct engine *e, const struct exec_spec *spec)
{
    struct sandbox_spec box = plain_spec();
    struct err err = { 0 };

    w->spec = spec;
    if (sandbox_handle_new(e, &box, &box_ops, w, &w->box, &err) < 0)
        fail_msg("sandbox_handle_new: %s", err.msg);
}

static void begin_watched(struct world *w, const struct exec_spec *spec)
{
    open_watched(w);
    start_box(w, w->engine, spec);
}

/* The monitor is gone when client and jailer are. */
static void close_watched(struct world *w)
{
    fd_close(&to_monitor);
    close_world(w);
    if (monitor > 0)
        assert_int_equal(waitpid(monitor, NULL, 0), monitor);
    monitor = 0;
}

static void kill_monitor(void)
{
    kill(monitor, SIGKILL);
    assert_int_equal(waitpid(monitor, NULL, 0), monitor);
    monitor = 0;
}

static const struct denial_count *find(const struct receipt *r, const char *call)
{
    for (size_t i = 0; i < r->ndenials; i++)
        if (str_eq(r->denials[i].denial.call, call))
            return &r->denials[i];
    return NULL;
}

#define CALLS                                      \
    "import ctypes, os, signal, sys, time\n"       \
    "libc = ctypes.CDLL(None, use_errno=True)\n"   \
    "def call(*args):\n"                           \
    "    if libc.syscall(*args) != -1: return 0\n" \
    "    return ctypes.get_errno()\n"

TEST(denials_have_the_call_with_its_arguments_the_rule_and_the_fix)
{
    struct world w;
    struct exec_spec spec = {
        .argv = PY(CALLS "print(call(165, b'a', b'b', b'c', 0, 0), call(272, 0x10000000), call(250, 3, 0),\n"
                         "      *[call(101, 16, 1, 0, 0) for i in range(3)],\n"
                         "      *[call(41, 2, 3, 1) for i in range(2)], call(157, 35, 1, 0, 0, 0))\n"
                         "print(call(41, 40, 1, 0), call(435, 0, 0))\n"),
        .wall_ms = 20000,
    };
    static const struct {
        const char *call;
        uint64_t count;
        const char *rule, *fix;
    } want[] = {
        { "mount(...)", 1, "not allowed (profile python): mounts", "there is no way to allow it" },
        { "unshare(0x10000000)", 1, "not allowed (profile python): a new namespace", "there is no way to allow it" },
        { "keyctl(3)", 1, "not allowed (profile python): key rings", "there is no way to allow it" },
        { "ptrace(16)", 3, "not allowed (profile python): ", "allow with --policy debug" },
        { "socket(2, 3, 1)", 2, "not allowed (profile python): ", "the call is allowed, but not with these arguments" },
        { "prctl(35)", 1, "not allowed (profile python): ", "the call is allowed, but not with these arguments" },
    };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_EXIT);
    /* the program sees EPERM; calls that only look missing (AF_VSOCK, clone3) are neither EPERM nor
     * reported */
    assert_string_equal(w.out.data, "1 1 1 1 1 1 1 1 1\n97 38\n");
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_null(r->denials_why);
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct denial_count *d = find(r, want[i].call);

        if (!d)
            fail_msg("%s is not in the receipt", want[i].call);
        assert_int_equal(d->count, want[i].count);
        assert_true(str_starts(d->denial.rule, want[i].rule));
        assert_string_equal(d->denial.fix, want[i].fix);
    }
    assert_int_equal(r->ndenials, ARRAY_LEN(want));
    assert_int_equal(r->denials_more, 0);
    destroy(&w);
    close_watched(&w);
}

TEST(a_program_without_denials_has_a_receipt_that_says_so)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("echo fine"), .wall_ms = 20000 };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 30);
    assert_null(exec_handle_receipt(w.exec)->denials_why);
    assert_int_equal(exec_handle_receipt(w.exec)->ndenials, 0);
    destroy(&w);
    close_watched(&w);
}

TEST(without_a_monitor_the_receipt_says_that_denials_are_unknown)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print(call(165, 0, 0, 0, 0, 0))"), .wall_ms = 20000 };

    run(&w, &spec);
    assert_string_equal(w.out.data, "1\n");
    assert_non_null(exec_handle_receipt(w.exec)->denials_why);
    destroy(&w);
    close_world(&w);
}

TEST(a_second_execution_reports_only_its_own_denials)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "call(165, 0, 0, 0, 0, 0); call(101, 16, 1, 0, 0)"), .wall_ms = 20000 };
    struct exec_spec again = { .argv = PY(CALLS "call(165, 0, 0, 0, 0, 0); call(165, 0, 0, 0, 0, 0)"),
                               .wall_ms = 20000 };
    struct err err = { 0 };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 30);
    assert_int_equal(exec_handle_receipt(w.exec)->ndenials, 2);
    exec_handle_free(w.exec);
    w.exited = 0;
    assert_int_equal(sandbox_handle_exec(w.box, &again, &exec_ops, &w, &w.exec, &err), 0);
    turn_until(&w, &w.exited, 30);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_int_equal(r->ndenials, 1);
    assert_int_equal(find(r, "mount(...)")->count, 2);
    destroy(&w);
    close_watched(&w);
}

/* The sandbox is killed during a denied call: by its timeout, and by the jailer if PID 1 does not
 * react. */
TEST(denials_before_a_kill_are_reported)
{
    struct world w;
    struct exec_spec spec = {
        .argv = PY(CALLS "call(165, 0, 0, 0, 0, 0)\n"
                         "while True:\n"
                         "    try: os.fork()\n"
                         "    except OSError: pass\n"),
        .wall_ms = 1500 * slow_factor(),
    };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 60);
    expect_end(&w, ENDED_TIMEOUT);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_null(r->denials_why);
    assert_non_null(find(r, "mount(...)"));
    destroy(&w);
    close_watched(&w);
}

static uint64_t cpu_of(pid_t pid)
{
    clockid_t clock;
    struct timespec t;

    assert_int_equal(clock_getcpuclockid(pid, &clock), 0);
    assert_int_equal(clock_gettime(clock, &t), 0);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

TEST(a_flood_of_denials_is_cheap_and_does_not_slow_another_sandbox)
{
    struct world w, other;
    struct exec_spec flood = {
        .argv = PY(CALLS "for i in range(4): os.fork()\n" /* 16 of them */
                         "print('up', flush=True)\n"
                         "for i in range(100000): call(165, 0, 0, 0, 0, 0)\n"),
        .wall_ms = 4000 * slow_factor(),
    };
    struct exec_spec one = { .argv = PY(CALLS "t = time.monotonic()\n"
                                              "e = call(272, 0x20000)\n"
                                              "print(e, int((time.monotonic() - t) * 1000))\n"),
                             .wall_ms = 20000 };
    int refused = 0, ms = -1;

    begin_watched(&w, &flood);
    turn_until(&w, &w.started, 30);
    while (w.out.len < 3 && !w.exited)
        ev_turn(w.ev, 100);
    uint64_t began = clock_mono_ns(), cpu = cpu_of(monitor);
    other = (struct world){ .ev = w.ev, .engine = w.engine };
    start_box(&other, w.engine, &one);
    turn_until(&other, &other.exited, 30);
    assert_int_equal(w.exited, 0); /* the flood continues */
    assert_int_equal(sscanf(other.out.data, "%d %d", &refused, &ms), 2);
    assert_int_equal(refused, EPERM);
    if (ms > (int)(500 * slow_factor())) /* short even on a busy machine; the flood would last for minutes */
        fail_msg("the other sandbox waited %d ms for its denial", ms);
    assert_non_null(find(exec_handle_receipt(other.exec), "unshare(0x20000)"));
    turn_until(&w, &w.exited, 60);
    uint64_t took = clock_mono_ns() - began;
    cpu = cpu_of(monitor) - cpu;
    print_message("# monitor: %u us of CPU time in %u ms of flood\n", (unsigned)(cpu / NS_PER_US),
                  (unsigned)(took / NS_PER_MS));
    expect_end(&w, ENDED_TIMEOUT);
    assert_true(cpu < took / 10 * slow_factor());
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_null(r->denials_why);
    assert_non_null(find(r, "mount(...)"));
    assert_in_range(find(r, "mount(...)")->count, PACE_ANSWERS,
                    (4500 * NS_PER_MS / PACE_TICK_NS + 20) * PACE_ANSWERS * slow_factor());
    destroy(&other);
    exec_handle_free(other.exec);
    sandbox_handle_free(other.box);
    buf_done(&other.out);
    buf_done(&other.errout);
    destroy(&w);
    close_watched(&w);
}

TEST(more_kinds_than_the_list_holds_are_counted)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "for i in range(100): call(101, 1000 + i, 0, 0, 0)\n"),
                              .wall_ms = 20000 };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 30);
    const struct receipt *r = exec_handle_receipt(w.exec);
    assert_int_equal(r->ndenials, JAIL_DENIALS_MAX);
    assert_int_equal(r->denials_more, 100 - JAIL_DENIALS_MAX);
    destroy(&w);
    close_watched(&w);
}

TEST(a_signal_to_a_waiting_caller_does_not_count_its_call_twice)
{
    struct world w;
    struct exec_spec spec = {
        .argv = PY(CALLS "ticks = 0\n"
                         "def tick(*_):\n"
                         "    global ticks\n"
                         "    ticks += 1\n"
                         "signal.signal(signal.SIGALRM, tick)\n"
                         "signal.siginterrupt(signal.SIGALRM, False)\n"
                         "signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)\n"
                         "print(sum(call(165, 0, 0, 0, 0, 0) == 1 for i in range(250)), ticks > 0)\n"),
        .wall_ms = 20000,
    };

    begin_watched(&w, &spec);
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "250 True\n");
    assert_int_equal(find(exec_handle_receipt(w.exec), "mount(...)")->count, 250);
    destroy(&w);
    close_watched(&w);
}

TEST(a_killed_monitor_causes_enosys_and_the_receipt_says_so)
{
    struct world w;
    struct exec_spec spec = {
        .argv = PY(CALLS "print('up', flush=True); sys.stdin.read(); print(call(165, 0, 0, 0, 0, 0))"),
        .stdin_open = true,
        .wall_ms = 20000,
    };

    begin_watched(&w, &spec);
    turn_until(&w, &w.started, 30);
    while (w.out.len < 3 && !w.exited)
        ev_turn(w.ev, 100);
    kill_monitor();
    exec_handle_write_end(w.exec);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_EXIT);
    assert_string_equal(w.out.data, "up\n38\n"); /* never allowed */
    assert_non_null(exec_handle_receipt(w.exec)->denials_why);
    assert_non_null(strstr(exec_handle_receipt(w.exec)->denials_why, "lost"));
    destroy(&w);
    close_watched(&w);
}

TEST(a_monitor_that_dies_during_a_call_releases_the_caller)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print('up', flush=True); print(call(165, 0, 0, 0, 0, 0))"),
                              .wall_ms = 20000 };

    open_watched(&w);
    start_box(&w, w.engine, &spec);
    turn_until(&w, &w.ready, 30);
    kill(monitor, SIGSTOP);
    turn_until(&w, &w.started, 30);
    while (w.out.len < 3)
        ev_turn(w.ev, 100);
    for (int i = 0; i < 3; i++)
        ev_turn(w.ev, 100);
    assert_int_equal(w.exited, 0);
    kill_monitor();
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "up\n38\n");
    destroy(&w);
    close_watched(&w);
}

TEST(a_stopped_monitor_blocks_the_caller_but_not_the_timeout)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print(call(165, 0, 0, 0, 0, 0))"), .wall_ms = 1000 };

    begin_watched(&w, &spec);
    turn_until(&w, &w.ready, 30);
    kill(monitor, SIGSTOP);
    turn_until(&w, &w.exited, 10);
    expect_end(&w, ENDED_TIMEOUT);
    assert_int_equal(w.out.len, 0);
    assert_non_null(strstr(exec_handle_receipt(w.exec)->denials_why, "did not answer"));
    destroy(&w);
    kill(monitor, SIGCONT);
    close_watched(&w);
}

TEST(a_sandbox_is_not_started_when_its_listener_is_not_accepted)
{
    struct world w;

    open_watched(&w);
    kill_monitor();
    start_box(&w, w.engine, NULL);
    for (int i = 0; i < 300 && !w.failed && !w.ready; i++)
        ev_turn(w.ev, 100);
    assert_int_equal(w.ready, 0);
    assert_int_equal(w.failed, 1);
    assert_non_null(strstr(w.err.msg, "monitor"));
    close_watched(&w);
}

/* The listener would have to wait in a socket that is never read, and no timeout runs before a
 * sandbox has started. */
TEST(a_stopped_monitor_whose_socket_is_full_does_not_hang_the_start)
{
    struct world w;

    open_watched(&w);
    kill(monitor, SIGSTOP);
    while (fd_send(to_monitor, "junk", 4, NULL, 0, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
    uint64_t began = clock_mono_ns();
    start_box(&w, w.engine, NULL);
    for (int i = 0; i < 600 && !w.failed && !w.ready; i++)
        ev_turn(w.ev, 100);
    assert_int_equal(w.ready, 0);
    assert_int_equal(w.failed, 1);
    assert_true(clock_mono_ns() - began < 60 * NS_PER_S);
    assert_non_null(strstr(w.err.msg, "monitor"));
    kill(monitor, SIGCONT);
    close_watched(&w);
}

/* --- which processes hold a listener --- */

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    int parent = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    sscanf(strrchr(text, ')') + 1, " %*c %d", &parent);
    return parent;
}

static bool descends(pid_t pid, pid_t from)
{
    while (pid > 1 && pid != from)
        pid = parent_of(pid);
    return pid == from;
}

static unsigned listeners_of(pid_t pid)
{
    char path[64], link[128];
    struct dirent *e;
    unsigned n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    while (dir && (e = readdir(dir))) {
        ssize_t len = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

        link[len < 0 ? 0 : len] = '\0';
        n += strstr(link, "seccomp notify") != NULL;
    }
    if (dir)
        closedir(dir);
    return n;
}

TEST(only_the_monitor_holds_a_listener_and_it_holds_no_privilege)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("ls /proc/self/fd; echo; sleep 30"), .wall_ms = 20000 };
    char path[64], status[4096];
    struct dirent *e;
    unsigned seen = 0;

    begin_watched(&w, &spec);
    turn_until(&w, &w.started, 30);
    while (w.out.len < 9 && !w.exited)
        ev_turn(w.ev, 100);
    assert_string_equal(w.out.data, "0\n1\n2\n3\n\n"); /* 3 is the directory that ls reads */
    bool root = geteuid() == 0;                        /* only root can see the descriptors of other processes */
    assert_int_equal(listeners_of(monitor), root ? 1 : 0);
    DIR *dir = opendir("/proc");
    while ((e = readdir(dir))) {
        pid_t pid = atoi(e->d_name);

        if (pid <= 0 || !descends(pid, w.jailer))
            continue;
        seen++;
        if (listeners_of(pid))
            fail_msg("process %d, of the jailer or inside, holds a listener", pid);
    }
    closedir(dir);
    assert_true(seen >= 4); /* jailer, spawner, PID 1, the program */

    snprintf(path, sizeof(path), "/proc/%d/status", monitor);
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd_read_full(fd, status, sizeof(status) - 1);
    assert_true(n > 0);
    status[n] = '\0';
    if (root) { /* an unprivileged user has no other uid to give it */
        assert_non_null(strstr(status, "Uid:\t1900290000\t1900290000\t1900290000\t1900290000"));
        assert_non_null(strstr(status, "Groups:\t \n"));
    }
    assert_non_null(strstr(status, "CapPrm:\t0000000000000000"));
    assert_non_null(strstr(status, "CapEff:\t0000000000000000"));
    assert_non_null(strstr(status, "NoNewPrivs:\t1"));
    exec_handle_kill(w.exec);
    turn_until(&w, &w.exited, 30);
    destroy(&w);
    close_watched(&w);
}

TEST(a_killed_jailer_leaves_no_monitor)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("echo before; sleep 1000") };

    begin_watched(&w, &spec);
    w.kill_after_bytes = 7;
    turn_until(&w, &w.lost, 30);
    close_watched(&w); /* waits for both */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(denials_have_the_call_with_its_arguments_the_rule_and_the_fix),
        RUN(a_program_without_denials_has_a_receipt_that_says_so),
        RUN(without_a_monitor_the_receipt_says_that_denials_are_unknown),
        RUN(a_second_execution_reports_only_its_own_denials),
        RUN(denials_before_a_kill_are_reported),
        RUN(a_flood_of_denials_is_cheap_and_does_not_slow_another_sandbox),
        RUN(more_kinds_than_the_list_holds_are_counted),
        RUN(a_signal_to_a_waiting_caller_does_not_count_its_call_twice),
        RUN(a_killed_monitor_causes_enosys_and_the_receipt_says_so),
        RUN(a_monitor_that_dies_during_a_call_releases_the_caller),
        RUN(a_stopped_monitor_blocks_the_caller_but_not_the_timeout),
        RUN(a_sandbox_is_not_started_when_its_listener_is_not_accepted),
        RUN(a_stopped_monitor_whose_socket_is_full_does_not_hang_the_start),
        RUN(only_the_monitor_holds_a_listener_and_it_holds_no_privilege),
        RUN(a_killed_jailer_leaves_no_monitor),
    };

    return cmocka_run_group_tests(tests, make_state_dir, remove_state_dir);
}
