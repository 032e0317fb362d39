#define _GNU_SOURCE 1
#include "run.h"

#include "common.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char env_path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
static char env_home[] = "HOME=/root";
static char env_lang[] = "LANG=C.UTF-8";
static char *const environment[] = { env_path, env_home, env_lang, NULL };

static void connect_fd(posix_spawn_file_actions_t *files, int fd, int to)
{
    if (fd < 0)
        posix_spawn_file_actions_addopen(files, to, "/dev/null", to == 0 ? O_RDONLY : O_WRONLY, 0);
    else
        posix_spawn_file_actions_adddup2(files, fd, to);
}

pid_t run_start(const char *name, char *const *argv, int in, int out, bool heard)
{
    static unsigned count;
    posix_spawn_file_actions_t files;
    char unique[48];
    char *words[RUN_ARGS_MAX] = { 0 };
    pid_t pid;

    snprintf(unique, sizeof(unique), "bench-%d-%u", (int)getpid(), count++);
    size_t n = 0;
    do
        words[n] = strcmp(argv[n], "{n}") == 0 ? unique : argv[n];
    while (++n < RUN_ARGS_MAX - 1 && argv[n]);
    posix_spawn_file_actions_init(&files);
    connect_fd(&files, in, 0);
    connect_fd(&files, out, 1);
    if (!heard)
        connect_fd(&files, -1, 2);
    int rc = posix_spawnp(&pid, argv[0], &files, NULL, words, environment);
    posix_spawn_file_actions_destroy(&files);
    if (rc != 0)
        die("%s: %s: %s", name, argv[0], strerror(rc));
    return pid;
}

void run_check(const char *name, int status)
{
    if (WIFSIGNALED(status))
        die("%s ended by signal %d", name, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        die("%s exited with %d", name, WEXITSTATUS(status));
}

void run_reap(const char *name, pid_t pid)
{
    int status;

    while (wait4(pid, &status, 0, NULL) < 0)
        if (errno != EINTR)
            die("%s: wait4: %s", name, strerror(errno));
    run_check(name, status);
}
