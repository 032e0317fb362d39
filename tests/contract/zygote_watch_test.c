/* Which process may announce the listeners of denied calls: a zygote for the interpreters that it
 * was asked for and for no others. An announced listener reaches this monitor and the next one. */
#include "zygote_host.h"

#include "core/wire/unix_listener.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static int told = -1; /* the monitor's end of the socket of a forked jailer */

static void start_watched(struct host *h)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .kernels_fd = open(getenv("COVE_TEST_KERNELS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct err err = { 0 };
    int sv[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    told = sv[0];
    s.monitor_fd = sv[1];
    h->stream = 0;
    if (jailer_fork(&s, &h->sock, &h->jailer, &err) < 0)
        fail_msg("%s", err.msg);
    close(s.runtime_fd);
    close(s.kernels_fd);
    close(s.monitor_fd);
}

static void stop_watched(struct host *h)
{
    host_stop(h);
    fd_close(&told);
}

/* The next announcement: the sandbox of the listener. The caller owns the descriptor. */
static int heard(int from, char id[ID_SIZE])
{
    uint8_t packet[FRAME_MAX];
    struct frame f;
    struct jail_watch w;
    int fd = -1;

    do {
        size_t nfds = 1;

        assert_true(readable_within(from, 60000));
        ssize_t n = fd_recv(from, packet, sizeof(packet), &fd, &nfds, 0);
        assert_true(n > 0);
        assert_int_equal(frame_parse(packet, (size_t)n, &f, NULL), 0);
    } while (f.type == FRAME_HELLO);
    assert_int_equal(f.type, FRAME_J_WATCH);
    assert_int_equal(jail_watch_decode(&f, &w, NULL), 0);
    assert_int_equal(w.sys, 0);
    assert_true(fd >= 0);
    memcpy(id, w.id, ID_SIZE);
    return fd;
}

static void expect_heard(int from, const char *id)
{
    char who[ID_SIZE];

    close(heard(from, who));
    assert_string_equal(who, id);
}

static void make_in(struct host *h, const char *template, char id[ID_SIZE], struct reply *r)
{
    struct jail_create c = a_request();

    assert_true(str_copy(c.template, sizeof(c.template), template));
    ask_create(h, &c, NULL, 0);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_CREATED);
    memcpy(id, c.id, ID_SIZE);
    greet(r->fds[0]);
}

TEST(the_listener_of_an_interpreter_reaches_the_monitor_through_the_jailer)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    start_watched(&h);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    make_in(&h, "t", id, &r);
    expect_heard(told, id); /* of PID 1 */
    join(&h, id, &m);
    expect_heard(told, id); /* of the interpreter */
    drop_fds(&m);
    drop_fds(&r);
    stop_watched(&h);
}

/* Two templates; the zygote of the second announces a listener for a sandbox of the first. */
TEST(a_zygote_that_announces_for_another_template_is_ended)
{
    struct host h;
    struct reply r[2];
    char id[2][ID_SIZE], how[64];

    start_watched(&h);
    ask_joinable(&h, "t", true);
    ask_joinable(&h, "u", true);
    make_in(&h, "t", id[0], &r[0]);
    expect_heard(told, id[0]);
    snprintf(how, sizeof(how), "announces %s", id[0]);
    ask_zygote(&h, "u", "test", how);
    expect(&h, FRAME_J_OK);
    make_in(&h, "u", id[1], &r[1]);
    expect_heard(told, id[1]);
    ask(&h, FRAME_J_JOIN, id[1]);
    expect_error(&h, ERR_LOST);
    ask(&h, FRAME_J_JOIN, id[1]);
    expect_error(&h, ERR_MISSING); /* it is gone */
    assert_false(readable_within(told, 0));
    drop_fds(&r[0]);
    drop_fds(&r[1]);
    stop_watched(&h);
}

TEST(a_zygote_announces_no_more_listeners_than_it_has_join_requests)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    start_watched(&h);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "repeats");
    expect(&h, FRAME_J_OK);
    make_in(&h, "t", id, &r);
    expect_heard(told, id);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_LOST);
    expect_heard(told, id); /* one listener for the one request */
    assert_false(readable_within(told, 0));
    drop_fds(&r);
    stop_watched(&h);
}

TEST(a_zygote_that_closes_its_monitor_socket_affects_only_itself)
{
    struct host h;
    struct reply r[2], m;
    char id[2][ID_SIZE];

    start_watched(&h);
    ask_joinable(&h, "t", true);
    ask_joinable(&h, "u", true);
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    ask_zygote(&h, "u", "test", "shuts");
    expect(&h, FRAME_J_OK);
    make_in(&h, "t", id[0], &r[0]);
    expect_heard(told, id[0]);
    make_in(&h, "u", id[1], &r[1]);
    expect_heard(told, id[1]);
    ask(&h, FRAME_J_JOIN, id[1]);
    expect_error(&h, ERR_LOST);
    join(&h, id[0], &m);
    expect_heard(told, id[0]);
    drop_fds(&m);
    drop_fds(&r[0]);
    drop_fds(&r[1]);
    stop_watched(&h);
}

/* A new generation takes over while an interpreter of the old one has not announced its listener
 * yet. */
TEST(a_listener_arrives_even_if_its_zygote_was_replaced_meanwhile)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE], c = 'g';

    start_watched(&h);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "late");
    expect(&h, FRAME_J_OK);
    make_in(&h, "t", id, &r);
    expect_heard(told, id);
    join(&h, id, &m); /* its interpreter waits for a letter before it raises its walls */
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    assert_false(readable_within(told, 0));
    assert_int_equal(write(m.fds[0], &c, 1), 1);
    expect_heard(told, id);
    drop_fds(&m);
    drop_fds(&r);
    stop_watched(&h);
}

/* --- a monitor that is restarted --- */

static char jailer_door[96], monitor_door[96];

static pid_t start_service(void)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                     .kernels_fd = open(getenv("COVE_TEST_KERNELS"),
                                                        O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                     .state_dir = state_dir,
                                     .socket = jailer_door,
                                     .monitor = monitor_door };

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(jailer_service(&s));
    }
    return pid;
}

static int open_monitor(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path, sizeof(at.sun_path), "%s", monitor_door);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static int accept_jailer(int listening)
{
    assert_true(readable_within(listening, 60000));
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

TEST(both_listeners_of_a_sandbox_are_passed_to_the_next_monitor)
{
    struct host h = { .sock = -1 };
    struct reply r, m;
    char id[ID_SIZE];
    int status;

    snprintf(jailer_door, sizeof(jailer_door), "%s/jailer.sock", state_dir);
    snprintf(monitor_door, sizeof(monitor_door), "%s/monitor.sock", state_dir);
    int listening = open_monitor();
    pid_t service = start_service();
    int first = accept_jailer(listening);
    for (int i = 0; i < 3000 && unix_connect(jailer_door, &h.sock, NULL, NULL) < 0; i++)
        poll(NULL, 0, 10);
    assert_true(h.sock >= 0);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    make_in(&h, "t", id, &r);
    expect_heard(first, id);
    join(&h, id, &m);
    expect_heard(first, id);
    close(first);
    int second = accept_jailer(listening);
    expect_heard(second, id);
    expect_heard(second, id);
    close(second);
    drop_fds(&m);
    drop_fds(&r);
    close(h.sock);
    kill(service, SIGTERM);
    assert_int_equal(waitpid(service, &status, 0), service);
    assert_int_equal(status, 0);
    close(listening);
    unlink(monitor_door);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        CASE(the_listener_of_an_interpreter_reaches_the_monitor_through_the_jailer),
        CASE(a_zygote_that_announces_for_another_template_is_ended),
        CASE(a_zygote_announces_no_more_listeners_than_it_has_join_requests),
        CASE(a_zygote_that_closes_its_monitor_socket_affects_only_itself),
        CASE(a_listener_arrives_even_if_its_zygote_was_replaced_meanwhile),
        CASE(both_listeners_of_a_sandbox_are_passed_to_the_next_monitor),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("listeners of zygotes", tests, NULL, NULL);
}
