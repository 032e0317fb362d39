/* Jailer and monitor as two services: denied calls are counted even after a restart of the monitor,
 * and never allowed. */
#include "world.h"

#include "host/monitor/monitor.h"
#include "policy/denial.h"
#include "core/wire/unix_listener.h"
#include "core/wire/frame.h"
#include "core/wire/jail.h"

#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define STRANGER_UID 64322u

static pid_t monitor, jailer;
static char jailer_door[96], monitor_door[96];
static const char *monitor_log; /* a file for its log; NULL: the test's own stderr */

static pid_t start(int (*serve)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(serve());
    }
    return pid;
}

static int serve_monitor(void)
{
    struct monitor_settings s = { .significant_args = denial_significant_args, .socket = monitor_door };

    if (monitor_log && !freopen(monitor_log, "w", stderr))
        return 1;
    return monitor_service(&s, getppid());
}

static int serve_jailer(void)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir,
                                 .socket = jailer_door,
                                 .monitor = monitor_door };

    return jailer_service(&s);
}

static int knock(const char *door)
{
    int sock = -1;

    for (int i = 0; i < 500 && unix_connect(door, &sock, NULL, NULL) < 0; i++)
        poll(NULL, 0, 10);
    assert_true(sock >= 0);
    return sock;
}

static void begin_in_services(struct world *w, const struct exec_spec *spec)
{
    struct sandbox_spec box = plain_spec();
    struct err err = { 0 };

    snprintf(jailer_door, sizeof(jailer_door), "%s/jailer.sock", state_dir);
    snprintf(monitor_door, sizeof(monitor_door), "%s/monitor.sock", state_dir);
    *w = (struct world){ .spec = spec };
    monitor = start(serve_monitor);
    close(knock(monitor_door));
    jailer = start(serve_jailer);
    assert_int_equal(ev_new(&w->ev, &err), 0);
    assert_int_equal(engine_new(w->ev, knock(jailer_door), &engine_ops, w, &w->engine, &err), 0);
    engine_connect_monitor(w->engine);
    assert_int_equal(sandbox_handle_new(w->engine, &box, &box_ops, w, &w->box, &err), 0);
}

static void end_process(pid_t *pid, int signo)
{
    kill(*pid, signo);
    assert_int_equal(waitpid(*pid, NULL, 0), *pid);
    *pid = 0;
}

static void close_services(struct world *w)
{
    exec_handle_free(w->exec);
    sandbox_handle_free(w->box);
    engine_free(w->engine);
    ev_turn(w->ev, 0);
    ev_free(w->ev);
    end_process(&jailer, SIGTERM);
    if (monitor)
        end_process(&monitor, SIGTERM);
    unlink(monitor_door); /* it has no permission left to do that itself */
    buf_done(&w->out);
    buf_done(&w->errout);
}

static uint64_t counted(const struct world *w, const char *call)
{
    const struct receipt *r = exec_handle_receipt(w->exec);

    for (size_t i = 0; i < r->ndenials; i++)
        if (str_eq(r->denials[i].denial.call, call))
            return r->denials[i].count;
    return 0;
}

static void await_output(struct world *w, size_t len)
{
    while (w->out.len < len && !w->exited && !w->failed)
        ev_turn(w->ev, 100);
}

#define CALLS                                      \
    "import ctypes, sys\n"                         \
    "libc = ctypes.CDLL(None, use_errno=True)\n"   \
    "def call(*args):\n"                           \
    "    if libc.syscall(*args) != -1: return 0\n" \
    "    return ctypes.get_errno()\n"

TEST(denied_calls_are_counted_through_the_jailer)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print(call(165, 0, 0, 0, 0, 0), call(165, 0, 0, 0, 0, 0))"),
                              .wall_ms = 20000 };

    begin_in_services(&w, &spec);
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "1 1\n");
    assert_null(exec_handle_receipt(w.exec)->denials_why);
    assert_int_equal(counted(&w, "mount(...)"), 2);
    destroy(&w);
    close_services(&w);
}

TEST(the_next_monitor_takes_over_and_a_waiting_call_is_denied)
{
    struct world w;
    struct err err = { 0 };
    struct exec_spec spec = { .argv = PY(CALLS "print('up', flush=True)\n"
                                               "sys.stdin.readline()\n"
                                               "print(call(165, 0, 0, 0, 0, 0), flush=True)\n"),
                              .stdin_open = true,
                              .wall_ms = 20000 };
    struct exec_spec again = { .argv = PY(CALLS "print(call(165, 0, 0, 0, 0, 0))"), .wall_ms = 20000 };

    begin_in_services(&w, &spec);
    await_output(&w, 3);
    end_process(&monitor, SIGKILL);
    assert_int_equal(exec_handle_write(w.exec, "go\n", 3), 3);
    exec_handle_write_end(w.exec);
    for (int i = 0; i < 5; i++)
        ev_turn(w.ev, 50);
    assert_int_equal(w.out.len, 3); /* no monitor answers it, and it is not allowed */
    monitor = start(serve_monitor);
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "up\n1\n");
    /* The counts of the first monitor are lost, and the receipt says so. */
    assert_non_null(exec_handle_receipt(w.exec)->denials_why);
    /* The engine reconnects to the next monitor by itself, without a promise of how soon: an
     * earlier execution says so. */
    for (int tries = 0; tries < 50 && exec_handle_receipt(w.exec)->denials_why; tries++) {
        exec_handle_free(w.exec);
        w.exited = 0;
        buf_clear(&w.out);
        assert_int_equal(sandbox_handle_exec(w.box, &again, &exec_ops, &w, &w.exec, &err), 0);
        turn_until(&w, &w.exited, 30);
        assert_string_equal(w.out.data, "1\n");
    }
    assert_null(exec_handle_receipt(w.exec)->denials_why);
    assert_int_equal(counted(&w, "mount(...)"), 1);
    destroy(&w);
    close_services(&w);
}

TEST(without_a_next_monitor_denied_calls_return_enosys_after_a_while)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print('up', flush=True)\n"
                                               "sys.stdin.readline()\n"
                                               "print(call(165, 0, 0, 0, 0, 0))\n"),
                              .stdin_open = true,
                              .wall_ms = 20000 };

    begin_in_services(&w, &spec);
    await_output(&w, 3);
    end_process(&monitor, SIGKILL);
    exec_handle_write_end(w.exec);
    turn_until(&w, &w.exited, 30);
    assert_string_equal(w.out.data, "up\n38\n");
    expect_end(&w, ENDED_EXIT);
    assert_non_null(exec_handle_receipt(w.exec)->denials_why);
    destroy(&w);
    close_services(&w);
}

/* A client that sends requests and never reads the answers. */
static int stalled_host(const char *id)
{
    uint8_t packet[FRAME_MAX];
    int sock = knock(jailer_door), way = -1;
    size_t nfds = 1;
    struct jail_id m = { { 0 } };

    frame_header(packet, &(struct frame){ .type = FRAME_J_MONITOR, .stream = 2 });
    assert_true(fd_send(sock, packet, FRAME_HEADER, NULL, 0, 0) > 0);
    assert_true(fd_recv(sock, packet, sizeof(packet), &way, &nfds, 0) > 0);
    assert_int_equal(nfds, 1);
    close(sock);
    memcpy(m.id, id, sizeof(m.id));
    struct frame f = { .type = FRAME_J_DENIALS, .stream = 2 };
    f.len = (uint32_t)jail_id_encode(&m, packet + FRAME_HEADER, NULL);
    frame_header(packet, &f);
    for (int i = 0; i < 4000; i++)
        if (fd_send(way, packet, FRAME_HEADER + f.len, NULL, 0, MSG_DONTWAIT) < 0)
            poll(NULL, 0, 1);
    return way;
}

static bool said(const char *log, const char *what)
{
    char text[1024];
    FILE *f = fopen(log, "r");

    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    return strstr(text, what) != NULL;
}

/* The log is a file here, to check that no resource limit of the monitor truncates it. */
TEST(a_client_that_does_not_read_is_disconnected_and_others_are_served)
{
    struct world w;
    struct exec_spec spec = { .argv = PY(CALLS "print('up', flush=True)\n"
                                               "sys.stdin.readline()\n"
                                               "print(call(165, 0, 0, 0, 0, 0))\n"),
                              .stdin_open = true,
                              .wall_ms = 60000 };
    char c, log[96];

    snprintf(log, sizeof(log), "%s/monitor.log", state_dir);
    monitor_log = log;
    begin_in_services(&w, &spec);
    monitor_log = NULL;
    await_output(&w, 3);
    int stalled = stalled_host(sandbox_handle_id(w.box));
    exec_handle_write_end(w.exec);
    turn_until(&w, &w.exited, 60);
    assert_string_equal(w.out.data, "up\n1\n");
    assert_null(exec_handle_receipt(w.exec)->denials_why);
    while (recv(stalled, &c, 1, 0) > 0) /* earlier answers, and then the end */
        ;
    close(stalled);
    assert_true(said(log, "disconnecting a client"));
    destroy(&w);
    close_services(&w);
    unlink(log);
}

TEST(a_foreign_process_cannot_connect_to_the_monitor)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("echo fine"), .wall_ms = 20000 };
    int status;

    begin_in_services(&w, &spec);
    turn_until(&w, &w.exited, 30);
    assert_int_equal(chmod(state_dir, 0755), 0);
    assert_int_equal(chmod(monitor_door, 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int sock = -1;
        char c;

        if (setgroups(0, NULL) < 0 || setresgid(STRANGER_UID, STRANGER_UID, STRANGER_UID) < 0 ||
            setresuid(STRANGER_UID, STRANGER_UID, STRANGER_UID) < 0 ||
            unix_connect(monitor_door, &sock, NULL, NULL) < 0)
            _exit(1);
        struct pollfd p = { .fd = sock, .events = POLLIN };
        _exit(poll(&p, 1, 5000) == 1 && recv(sock, &c, 1, 0) <= 0 ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    destroy(&w);
    close_services(&w);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(denied_calls_are_counted_through_the_jailer, make_state_dir, remove_state_dir),
        cmocka_unit_test_setup_teardown(the_next_monitor_takes_over_and_a_waiting_call_is_denied, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(without_a_next_monitor_denied_calls_return_enosys_after_a_while, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_is_disconnected_and_others_are_served,
                                        make_state_dir, remove_state_dir),
        cmocka_unit_test_setup_teardown(a_foreign_process_cannot_connect_to_the_monitor, make_state_dir,
                                        remove_state_dir),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("monitor as a service", tests, NULL, NULL);
}
