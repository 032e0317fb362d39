/* A zygote for tests: it forks like an interpreter's zygote, and its forks answer lines of one
 * letter. The preload selects its behaviour: "plain", "fails", "dies", "lies", "late", or one of
 * those in misuse(). */
#include "core/wire/seccomp_listener.h"
#include "host/zygote/serve.h"

#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

static NORETURN void member(void)
{
    char c;

    dprintf(3, "ready %d\n", (int)getpid());
    while (read(3, &c, 1) == 1) {
        if (c == 'p')
            printf("printed\n");
        if (c == 'm')
            dprintf(3, "mount %d\n", mount("a", "/tmp", "tmpfs", 0, NULL));
        while (c == 'f' && fork() >= 0) /* all processes that the sandbox may have, and some that try forever */
            ;
        if (c == 'f')
            dprintf(3, "full\n");
        if (c == 'u')
            dprintf(3, "uid %d\n", (int)getuid());
        fflush(stdout);
    }
    _exit(0);
}

/* Misuses the socket to the monitor that a zygote is lent. True: done, and no answer follows. */
static bool misuse(const char *how, const struct zygote_task *task)
{
    int way = task->join.monitor;

    if (strncmp(how, "announces ", 10) == 0) {
        char id[ID_SIZE] = "";

        (void)snprintf(id, sizeof(id), "%s", how + 10);
        return seccomp_listener_send(way, id, STDIN_FILENO, 0) == 0;
    }
    for (int i = 0; strcmp(how, "repeats") == 0; i++)
        if (i == 2 || seccomp_listener_send(way, task->spec.id, STDIN_FILENO, 0) < 0)
            return true;
    return strcmp(how, "shuts") == 0 && shutdown(way, SHUT_RDWR) == 0;
}

static int watch_later(int sock, const char *id, int listener, int sys)
{
    char c;

    return read(3, &c, 1) == 1 ? seccomp_listener_send(sock, id, listener, sys) : -1;
}

int main(int argc, char **argv)
{
    static struct zygote_task task;
    const char *how = argc > 1 ? argv[1] : "";
    struct err err = { 0 };

    if (strcmp(how, "dies") == 0)
        return 1;
    if (strcmp(how, "fails") == 0) {
        err_set(&err, ERR_INVALID, "no module named 'nonsense'");
        zygote_send_event(ZYGOTE_FD, ZYGOTE_FAILED, &err);
        return 1;
    }
    zygote_send_event(ZYGOTE_FD, ZYGOTE_READY, NULL);
    while (zygote_receive_order(ZYGOTE_FD, &task)) {
        int rc = 0;

        if (misuse(how, &task))
            continue;
        if (strcmp(how, "late") == 0)
            task.spec.send_listener = watch_later;
        if (strcmp(how, "lies") == 0)
            task.token += 100;
        else
            rc = join_fork(&task.join, &err);
        if (rc == 1)
            member();
        zygote_answer_order(ZYGOTE_FD, &task, rc, &err);
    }
    return 0;
}
