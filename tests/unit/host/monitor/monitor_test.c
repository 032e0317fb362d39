/* The monitor between tasks with denied calls and a client that queries, both simulated by the
 * test. The tasks are real processes under a real filter, which denies one call and allows the
 * rest. */
#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/monitor/monitor.h"
#include "core/wire/frame.h"
#include "core/wire/jail.h"

#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define REFUSED SYS_acct

static struct {
    pid_t pid;
    int intake, host;
} mon;

static struct {
    uint8_t bytes[FRAME_MAX];
    struct frame f;
} got;

static uint8_t first_argument(unsigned nr UNUSED)
{
    return 1;
}

static void begin(void)
{
    static const struct monitor_settings settings = { .significant_args = first_argument };
    int in[2], host[2], small = 1;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, in), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, host), 0);
    assert_int_equal(setsockopt(host[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0); /* room for a few packets */
    mon.pid = fork();
    assert_true(mon.pid >= 0);
    if (mon.pid == 0) {
        close(in[0]);
        close(host[0]);
        _exit(monitor_serve(in[1], host[1], &settings));
    }
    close(in[1]);
    close(host[1]);
    mon.intake = in[0];
    mon.host = host[0];
}

/* The monitor exits by itself, with 0, when its intake and client are closed. */
static void finish(void)
{
    int status;

    fd_close(&mon.intake);
    fd_close(&mon.host);
    assert_int_equal(waitpid(mon.pid, &status, 0), mon.pid);
    assert_int_equal(status, 0);
}

static void id_of(unsigned n, char id[ID_SIZE])
{
    snprintf(id, ID_SIZE, "sb%020u", n);
    for (char *c = id + 2; *c; c++)
        *c = (char)('a' + (*c - '0'));
}

static void watch_packet(unsigned n, int listener)
{
    uint8_t packet[FRAME_HEADER + 128];
    struct jail_watch w = { 0 };
    int len;

    id_of(n, w.id);
    len = jail_watch_encode(&w, packet + FRAME_HEADER, NULL);
    assert_true(len > 0);
    frame_header(packet, &(struct frame){ .type = FRAME_J_WATCH, .len = (uint32_t)len });
    assert_true(fd_send(mon.intake, packet, FRAME_HEADER + (size_t)len, &listener, 1, 0) > 0);
}

struct task {
    pid_t pid;
    int go, tell; /* a byte written to go triggers a call; the other pipe receives the errno of each call */
};

static int listen_to(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, REFUSED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { .len = ARRAY_LEN(code), .filter = code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
}

static NORETURN void task_main(int listener_to, int go, int tell, bool flood)
{
    int listener = listen_to();
    char byte = 0;

    if (listener < 0 || fd_send(listener_to, &byte, 1, &listener, 1, 0) != 1)
        _exit(1);
    close(listener);
    close(listener_to);
    while (flood || read(go, &byte, 1) == 1) {
        long rc = syscall(REFUSED, (long)byte);
        char why = rc < 0 ? (char)errno : 0;

        if (write(tell, &why, 1) != 1)
            break;
    }
    _exit(0);
}

static struct task task_new(unsigned n, bool flood)
{
    int go[2], tell[2], sv[2], listener = -1;
    size_t nfds = 1;
    struct task t;
    char byte;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(tell), 0);
    t.pid = fork();
    assert_true(t.pid >= 0);
    if (t.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(go[1]);
        close(tell[0]);
        task_main(sv[1], go[0], tell[1], flood);
    }
    close(go[0]);
    close(tell[1]);
    close(sv[1]);
    t.go = go[1];
    t.tell = tell[0];
    assert_int_equal(fd_recv(sv[0], &byte, 1, &listener, &nfds, 0), 1);
    close(sv[0]);
    watch_packet(n, listener);
    close(listener);
    return t;
}

static void task_call(const struct task *t, char arg)
{
    assert_int_equal(write(t->go, &arg, 1), 1);
}

/* The errno of a denied call, or -1 if none came in time. */
static int task_told(const struct task *t, int ms)
{
    struct pollfd p = { .fd = t->tell, .events = POLLIN };
    char why;

    if (poll(&p, 1, ms) != 1 || read(t->tell, &why, 1) != 1)
        return -1;
    return why;
}

static void task_end(struct task *t)
{
    kill(t->pid, SIGKILL);
    close(t->go);
    close(t->tell);
    assert_int_equal(waitpid(t->pid, NULL, 0), t->pid);
}

static bool hear(int ms)
{
    struct pollfd p = { .fd = mon.host, .events = POLLIN };

    if (poll(&p, 1, ms) != 1)
        return false;
    ssize_t n = recv(mon.host, got.bytes, sizeof(got.bytes), MSG_DONTWAIT);
    assert_true(n > 0);
    assert_int_equal(frame_parse(got.bytes, (size_t)n, &got.f, NULL), 0);
    return true;
}

static const struct jail_denied *ask(unsigned n)
{
    static struct jail_denied d;
    uint8_t packet[FRAME_HEADER + 128];
    struct jail_id q = { { 0 } };

    id_of(n, q.id);
    int len = jail_id_encode(&q, packet + FRAME_HEADER, NULL);
    frame_header(packet, &(struct frame){ .type = FRAME_J_DENIALS, .stream = 2, .len = (uint32_t)len });
    assert_true(send(mon.host, packet, FRAME_HEADER + (size_t)len, 0) > 0);
    do
        assert_true(hear(10000));
    while (got.f.type != FRAME_J_DENIED);
    assert_int_equal(jail_denied_decode(&got.f, &d, NULL), 0);
    return &d;
}

static unsigned descriptors(void)
{
    char path[64];
    unsigned n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", mon.pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static unsigned settled_descriptors(unsigned wanted)
{
    unsigned n = descriptors();

    for (int i = 0; n != wanted && i < 200; i++) {
        poll(NULL, 0, 10);
        n = descriptors();
    }
    return n;
}

/* A client queries only after a notice. If a denied call returned before its notice could be sent,
 * the program might end, and its receipt would report no denials. */
TEST(no_call_returns_before_its_notice_could_be_sent)
{
    struct task tasks[40];
    unsigned told = 0, news = 0;

    begin();
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        tasks[i] = task_new(i, false);
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        task_call(&tasks[i], 1);
    /* No notice is read. Every call that has returned by now must have its notice in the socket. */
    poll(NULL, 0, 300);
    bool returned[ARRAY_LEN(tasks)];
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        told += returned[i] = task_told(&tasks[i], 0) == EPERM;
    assert_true(told < ARRAY_LEN(tasks)); /* otherwise the socket buffer is too large for this test */
    bool heard[ARRAY_LEN(tasks)] = { 0 };
    for (unsigned most = 0; most < told + ARRAY_LEN(tasks) && hear(0); most++) {
        struct jail_denial_notice m;
        char id[ID_SIZE];

        assert_int_equal(got.f.type, FRAME_J_DENIAL_NOTICE);
        assert_int_equal(jail_denial_notice_decode(&got.f, &m, NULL), 0);
        for (unsigned i = 0; i < ARRAY_LEN(tasks); i++) {
            id_of(i, id);
            heard[i] |= m.refused && str_eq(m.id, id);
        }
    }
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        assert_true(heard[i] || !returned[i]);
    /* The other calls return as soon as the client reads. */
    while (hear(500))
        news++;
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        if (!returned[i])
            assert_int_equal(task_told(&tasks[i], 5000), EPERM);
    assert_true(news > 0);
    for (unsigned i = 0; i < ARRAY_LEN(tasks); i++)
        task_end(&tasks[i]);
    finish();
}

/* Tasks die before their call is received, between receipt and answer, and after it. */
TEST(callers_that_die_during_a_call_do_not_affect_others)
{
    struct task steady;

    begin();
    steady = task_new(0, false);
    assert_int_equal(ask(0)->n, 0); /* the answer shows that the listener is registered */
    unsigned before = descriptors();
    for (unsigned i = 1; i < 60; i++) {
        struct task t = task_new(i, true);

        poll(NULL, 0, (int)(i % 4));
        task_end(&t);
    }
    task_call(&steady, 7);
    while (hear(50))
        ;
    assert_int_equal(task_told(&steady, 5000), EPERM);
    const struct jail_denied *d = ask(0);
    assert_int_equal(d->watched, JAIL_WATCHED);
    assert_int_equal(d->n, 1);
    assert_int_equal(d->entries[0].args[0], 7);
    assert_int_equal(settled_descriptors(before), before); /* each listener was closed when its last task died */
    task_end(&steady);
    finish();
}

TEST(a_descriptor_that_is_not_a_listener_is_closed)
{
    struct task t;
    int pair[2];

    begin();
    t = task_new(0, false);
    assert_int_equal(ask(0)->n, 0); /* the answer shows that the listener is registered */
    unsigned before = descriptors();
    assert_int_equal(pipe(pair), 0);
    /* Junk with a descriptor; junk with two of them; a frame that is too long; a valid frame with a
     * useless descriptor. */
    assert_true(fd_send(mon.intake, "junk", 4, pair, 1, 0) > 0);
    assert_true(fd_send(mon.intake, "junk", 4, pair, 2, 0) > 0);
    static uint8_t huge[4096];
    assert_true(fd_send(mon.intake, huge, sizeof(huge), pair, 1, 0) > 0);
    watch_packet(1, pair[0]);
    close(pair[0]); /* its end is noticed like that of a listener */
    close(pair[1]);
    task_call(&t, 1);
    while (hear(50))
        ;
    assert_int_equal(task_told(&t, 5000), EPERM);
    assert_int_equal(ask(0)->n, 1);
    assert_int_equal(settled_descriptors(before), before);
    task_end(&t);
    finish();
}

TEST(a_sandbox_without_a_listener_is_not_reported_as_watched)
{
    begin();
    assert_int_equal(ask(5)->watched, JAIL_UNWATCHED);
    finish();
}

/* Sends the other end of a new socket to the monitor and makes it our client socket. Returns the
 * old one. */
static int move_in(void)
{
    uint8_t packet[FRAME_HEADER];
    int sv[2], old = mon.host;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    frame_header(packet, &(struct frame){ .type = FRAME_J_NEW_CLIENT });
    assert_true(fd_send(mon.intake, packet, sizeof(packet), &sv[1], 1, 0) > 0);
    close(sv[1]);
    mon.host = sv[0];
    return old;
}

TEST(a_new_client_replaces_the_old_one_and_gets_only_later_denials)
{
    struct task t;
    struct jail_denial_notice news;

    begin();
    t = task_new(0, false);
    task_call(&t, 1);
    assert_int_equal(task_told(&t, 5000), EPERM);
    assert_int_equal(ask(0)->n, 1);
    int old = move_in();
    assert_true(hear(5000)); /* it gets a notice for each watched sandbox at once */
    assert_int_equal(got.f.type, FRAME_J_DENIAL_NOTICE);
    assert_int_equal(jail_denial_notice_decode(&got.f, &news, NULL), 0);
    assert_int_equal(news.watched, JAIL_WATCHED);
    assert_false(news.refused);
    assert_int_equal(ask(0)->n, 0);
    task_call(&t, 2);
    assert_int_equal(task_told(&t, 5000), EPERM);
    assert_true(hear(5000));
    assert_int_equal(got.f.type, FRAME_J_DENIAL_NOTICE);
    assert_int_equal(ask(0)->n, 1);
    struct pollfd gone = { .fd = old, .events = POLLIN };
    assert_int_equal(poll(&gone, 1, 5000), 1);
    char rest[FRAME_MAX];
    while (recv(old, rest, sizeof(rest), MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(recv(old, rest, sizeof(rest), MSG_DONTWAIT), 0); /* closed */
    close(old);
    fd_close(&mon.host); /* and again after a time without a client */
    task_call(&t, 3);
    assert_int_equal(task_told(&t, 5000), EPERM);
    mon.host = -1;
    assert_int_equal(move_in(), -1);
    assert_int_equal(ask(0)->n, 0);
    task_end(&t);
    finish();
}

/* Listeners are sent again after the connection to a jailer was lost. A client that then gets a
 * notice without a denial does not query, so the next denial must be reported, even if an earlier
 * client already got a notice. */
TEST(a_denial_after_a_notice_without_denial_is_reported)
{
    struct task first, second;
    struct jail_denial_notice news = { 0 };

    begin();
    first = task_new(0, false);
    task_call(&first, 1);
    assert_int_equal(task_told(&first, 5000), EPERM);
    second = task_new(0, false); /* no query came meanwhile */
    for (int i = 0; i < 3; i++) {
        assert_true(hear(5000)); /* watched; denied; watched */
        assert_int_equal(jail_denial_notice_decode(&got.f, &news, NULL), 0);
    }
    assert_false(news.refused);
    task_call(&second, 2);
    assert_int_equal(task_told(&second, 5000), EPERM);
    assert_true(hear(5000));
    assert_int_equal(got.f.type, FRAME_J_DENIAL_NOTICE);
    assert_int_equal(jail_denial_notice_decode(&got.f, &news, NULL), 0);
    assert_true(news.refused);
    assert_int_equal(ask(0)->n, 2);
    task_end(&first);
    task_end(&second);
    finish();
}

/* The query is in the old socket while the new client is registered: it must not be answered on the
 * new one. */
TEST(a_query_of_the_old_client_is_not_answered_to_the_new_one)
{
    uint8_t packet[FRAME_HEADER + 128];
    struct jail_id q = { { 0 } };
    struct task t;

    begin();
    t = task_new(0, false);
    assert_int_equal(ask(0)->n, 0);
    kill(mon.pid, SIGSTOP);
    id_of(0, q.id);
    int len = jail_id_encode(&q, packet + FRAME_HEADER, NULL);
    frame_header(packet, &(struct frame){ .type = FRAME_J_DENIALS, .stream = 98, .len = (uint32_t)len });
    assert_true(send(mon.host, packet, FRAME_HEADER + (size_t)len, 0) > 0);
    int old = move_in();
    kill(mon.pid, SIGCONT);
    while (hear(200))
        assert_int_not_equal(got.f.stream, 98);
    assert_int_equal(ask(0)->watched, JAIL_WATCHED);
    close(old);
    task_end(&t);
    finish();
}

TEST(calls_are_answered_after_the_client_disconnects)
{
    struct task t;

    begin();
    t = task_new(0, false);
    fd_close(&mon.host);
    for (int i = 0; i < 3; i++) {
        task_call(&t, (char)i);
        assert_int_equal(task_told(&t, 5000), EPERM);
    }
    fd_close(&mon.intake);
    assert_int_equal(waitpid(mon.pid, NULL, WNOHANG), 0); /* it stays while a task may still call */
    task_end(&t);
    finish();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(no_call_returns_before_its_notice_could_be_sent),
        RUN(callers_that_die_during_a_call_do_not_affect_others),
        RUN(a_descriptor_that_is_not_a_listener_is_closed),
        RUN(a_sandbox_without_a_listener_is_not_reported_as_watched),
        RUN(a_new_client_replaces_the_old_one_and_gets_only_later_denials),
        RUN(a_denial_after_a_notice_without_denial_is_reported),
        RUN(a_query_of_the_old_client_is_not_answered_to_the_new_one),
        RUN(calls_are_answered_after_the_client_disconnects),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
