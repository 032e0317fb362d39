#include "tests/unit/test.h"

#include "main/serve/no_fork_filter.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(x)                       \
    do {                               \
        if (!(x))                      \
            _exit(__LINE__ % 200 + 1); \
    } while (0)

/* Runs fn in a child process, whose exit status reports failed conditions. */
static void when_alone(void (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = { 0 };

        HOLDS(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        HOLDS(no_fork_filter_install(false, &err) == 0);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("%s %d", WIFEXITED(status) ? "line" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static void starts_nothing(void)
{
    char *argv[] = { (char *)(uintptr_t) "true", NULL };
    pid_t pid;

    HOLDS(fork() == -1 && errno == EPERM);
    HOLDS(syscall(SYS_fork) == -1 && errno == EPERM);
    HOLDS(syscall(SYS_vfork) == -1 && errno == EPERM);
    HOLDS(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0) == -1 && errno == EPERM);
    HOLDS(syscall(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL, NULL, NULL, 0) == -1 && errno == EPERM);
    HOLDS(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS);
    HOLDS(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, NULL) != 0);
    HOLDS(execv("/bin/true", argv) == -1 && errno == EPERM);
    HOLDS(system("true") != 0);
}

TEST(no_process_and_no_program_can_be_started)
{
    when_alone(starts_nothing);
}

static void *in_thread(void *arg)
{
    return fork() == -1 && errno == EPERM ? arg : NULL;
}

static void has_threads(void)
{
    pthread_t threads[8];
    int mine[ARRAY_LEN(threads)];
    struct addrinfo *found = NULL;
    void *got;

    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        HOLDS(pthread_create(&threads[i], NULL, in_thread, &mine[i]) == 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        HOLDS(pthread_join(threads[i], &got) == 0 && got == &mine[i]);
    HOLDS(getaddrinfo("localhost", NULL, NULL, &found) == 0);
    freeaddrinfo(found);
}

TEST(threads_can_start_and_are_filtered_too)
{
    when_alone(has_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(no_process_and_no_program_can_be_started),
        RUN(threads_can_start_and_are_filtered_too),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
