#include "tests/unit/test.h"

#include "core/base/child.h"
#include "core/base/fd.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>

struct told {
    char name[16];
    bool blocked, deaf_to_pipe, deaf_to_hangup;
};

static NORETURN void tell(int sock)
{
    struct told t = { 0 };
    struct sigaction sa;
    sigset_t mask;

    prctl(PR_GET_NAME, t.name);
    sigprocmask(SIG_SETMASK, NULL, &mask);
    t.blocked = sigismember(&mask, SIGTERM) == 1;
    sigaction(SIGPIPE, NULL, &sa);
    t.deaf_to_pipe = sa.sa_handler == SIG_IGN;
    sigaction(SIGHUP, NULL, &sa);
    t.deaf_to_hangup = sa.sa_handler == SIG_IGN;
    (void)!send(sock, &t, sizeof(t), 0);
    _exit(recv(sock, &t, sizeof(t), 0) == 0 ? 7 : 8); /* the parent's end is closed as soon as the parent closes it */
}

TEST(a_child_has_its_name_no_blocked_signals_and_only_its_end_of_the_socket)
{
    struct told t = { 0 };
    struct err err = { 0 };
    sigset_t term, old;
    int sock = -1, status = 0;
    pid_t pid = -1;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &old);
    assert_int_equal(child_fork("cove-child", false, &sock, &pid, &err), 0);
    if (pid == 0)
        tell(sock);
    sigprocmask(SIG_SETMASK, &old, NULL);
    assert_int_equal(recv(sock, &t, sizeof(t), 0), sizeof(t));
    close(sock);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_string_equal(t.name, "cove-child");
    assert_false(t.blocked);
    assert_true(t.deaf_to_pipe);
    assert_true(t.deaf_to_hangup);
}

TEST(the_socket_reports_end_of_file_when_the_child_dies)
{
    struct err err = { 0 };
    char b;
    int sock = -1;
    pid_t pid = -1;

    assert_int_equal(child_fork("cove-child", false, &sock, &pid, &err), 0);
    if (pid == 0)
        _exit(0);
    assert_int_equal(recv(sock, &b, 1, 0), 0);
    close(sock);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_child_has_its_name_no_blocked_signals_and_only_its_end_of_the_socket),
        RUN(the_socket_reports_end_of_file_when_the_child_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
