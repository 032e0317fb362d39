/* A zygote whose members become the program that the environment names: an attacker that PID 1
 * did not start. */
#include "core/base/mem.h"
#include "host/zygote/interpreter.h"
#include "host/zygote/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS_MAX 1024
#define KERNEL_FD 3

static const char attack[] = "COVE_ATTACK=";

/* Splits text into words at each `by`, in place. */
static void cut(char *text, size_t len, char by, char **words)
{
    size_t n = 0;

    for (char *at = text, *end; at < text + len && n < WORDS_MAX - 1; at = end + 1) {
        end = memchr(at, by, (size_t)(text + len - at));
        if (!end)
            end = text + len;
        *end = '\0';
        words[n++] = at;
    }
    words[n] = NULL;
}

static NORETURN void become(void)
{
    static char *env[WORDS_MAX], *argv[WORDS_MAX];
    struct err err;
    char *text;
    size_t len, n = 0;

    int rc;

    while ((rc = interpreter_wait_for_claim(KERNEL_FD, &text, &len, &err)) == 2)
        ;
    if (rc != 0)
        _exit(125);
    cut(text, len, '\0', env);
    for (size_t i = 0; env[i]; i++)
        if (strncmp(env[i], attack, sizeof(attack) - 1) == 0)
            cut(env[i] + sizeof(attack) - 1, strlen(env[i]) - sizeof(attack) + 1, '\x1f', argv);
        else
            env[n++] = env[i];
    env[n] = NULL;
    interpreter_report_ready(KERNEL_FD);
    if (argv[0])
        execvpe(argv[0], argv, env);
    int why = errno;
    dprintf(STDERR_FILENO, "%s: %s\n", argv[0] ? argv[0] : "nothing", strerror(why));
    _exit(why == ENOENT ? 127 : 126);
}

/* State that a preload may leave in its own process, and that must not enter the sandbox. */
static void make_a_mess(void)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    umask(0);
    (void)!dup2(open("/", O_RDONLY | O_DIRECTORY), 40);
    (void)!chdir("/usr");
    setenv("PRELOADED", "by the zygote", 1);
}

int main(int argc, char **argv)
{
    static struct zygote_task task;
    struct err err = { 0 };

    make_a_mess();
    if (argc > 1 && argv[1][0])
        setenv("COVE_MUTATE", argv[1], 1); /* effective in a mutation build only */
    zygote_send_event(ZYGOTE_FD, ZYGOTE_READY, NULL);
    while (zygote_receive_order(ZYGOTE_FD, &task)) {
        int rc = join_fork(&task.join, &err);

        if (rc == 1)
            become();
        zygote_answer_order(ZYGOTE_FD, &task, rc, &err);
    }
    return 0;
}
