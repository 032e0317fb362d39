/* An interactive bash without a terminal: only an interactive shell goes on after an interrupt, a syntax error or
 * ${x:?}, as a person expects. Its standard input carries nothing but our own short lines; the code lies in a
 * memory file, from where `read` takes it whole, and runs by `eval`, whose standard input is /dev/null. The line
 * after it says the status. Both are read even when an interrupt ended the first.
 *
 * `exit`, and `set -e`, end the shell. A trap then writes down what it knew, and the next shell begins with it; so they
 * end the cell and no more. `exec` and SIGKILL leave nothing behind.
 *
 * Descriptors 250 to 253 are inherited by what the shell starts, because bash cannot mark them otherwise. Whoever
 * writes there lies about this shell only; the kernel's socket is not among them. */
#include "shell.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define HEARD_MAX (1u << 20)

enum { FD_STDERR = 249, FD_CONTROL, FD_CODE, FD_STATE, FD_ANSWERS };

static const char set_up[] =
    "exec 2>&249 249>&-\n"
    "set +o history; set +H; unset MAILCHECK HISTFILE; export -n PS1 PS2\n"
    "coveeval='eval \"$covecode\"'\n"
    "__cove_status() { return \"$1\"; }\n"
    "__cove_said() { covecode=; builtin printf '\\0%s %s\\0' \"$1\" \"$2\" >&250; }\n"
    "__cove_take() { IFS= builtin read -r -d '' -u 251 covecode; }\n"
    "__cove_look() { __cove_take; builtin printf '\\0L%s\\0' \"$(builtin \"$@\" -- \"$covecode\" 2>/dev/null)\" "
    ">&250; }\n"
    "__cove_save() { { declare -p; declare -f; alias -p; shopt -p; builtin printf 'cd -- %q\\n' \"$PWD\"; trap -p; set "
    "+o; } >&252 2>/dev/null; }\n"
    /* Without the word that an interactive shell says at its end. */
    "exit() { builtin exit \"${1:-$?}\" 2>/dev/null; }\n"
    /* Where nothing else was given to read from, the host is asked. */
    "read() {\n"
    "  local OPTIND=1 OPTARG __cove_o __cove_p= __cove_s=0 __cove_u= __cove_a\n"
    "  while getopts ':a:d:eEi:n:N:p:rst:u:' __cove_o; do\n"
    "    case $__cove_o in p) __cove_p=$OPTARG ;; s) __cove_s=1 ;; u) __cove_u=1 ;; esac\n"
    "  done\n"
    "  if [[ $__cove_u || ! /proc/self/fd/0 -ef /dev/null ]]; then builtin read \"$@\"; return; fi\n"
    "  builtin printf '\\0I%s%s\\0' \"$__cove_s\" \"$__cove_p\" >&250\n"
    "  IFS= builtin read -r -d '' -u 253 __cove_a || return 1\n"
    "  [[ $__cove_a == T* ]] || return 1\n"
    "  builtin read \"$@\" <<< \"${__cove_a:1}\"\n"
    "}\n";
static const char restore_line[] = ". /proc/self/fd/252 >/dev/null 2>&1 </dev/null\n";
static const char last_line[] =
    "trap __cove_save EXIT; PS1= PS2=; builtin printf '\\0V%s\\0D0 0\\0' \"$BASH_VERSION\" >&250\n";

static void say(struct shell *s, const char *line)
{
    (void)fd_write_all(s->lines, line, strlen(line)); /* a shell that is gone is noticed by its end */
}

static void memory_put(int fd, const char *text)
{
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 || fd_write_all(fd, text, strlen(text) + 1) < 0 ||
        lseek(fd, 0, SEEK_SET) < 0)
        abort(); /* memory of ours: there is no code without it */
}

int shell_init(struct shell *s, struct err *err)
{
    *s = (struct shell){ .lines = -1, .control = -1, .answers = -1, .answers_in = -1, .code = -1, .state = -1 };
    s->code = memfd_create("code", MFD_CLOEXEC);
    s->state = memfd_create("state", MFD_CLOEXEC);
    if (s->code < 0 || s->state < 0)
        return err_sys(err, ERR_SYS, "memory for the shell");
    return 0;
}

static void close_pipes(struct shell *s)
{
    fd_close(&s->lines);
    fd_close(&s->control);
    fd_close(&s->answers);
    fd_close(&s->answers_in);
}

void shell_done(struct shell *s)
{
    shell_kill(s);
    fd_close(&s->code);
    fd_close(&s->state);
    buf_done(&s->heard);
}

/* In the child. The numbers may overlap with those that are given, so they are moved out of the way first. */
static void become_shell(int in, int control, int code, int state, int answers)
{
    static const struct {
        int to;
    } places[] = { { STDIN_FILENO }, { FD_CONTROL }, { FD_CODE }, { FD_STATE }, { FD_ANSWERS }, { FD_STDERR } };
    int from[] = { in, control, code, state, answers, STDERR_FILENO };
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, FD_ANSWERS + 1);
    for (size_t i = 0; i < ARRAY_LEN(from); i++)
        if (from[i] < 0 || dup2(from[i], places[i].to) < 0)
            _exit(127);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, STDERR_FILENO) < 0) /* what it says about the terminal that it misses */
        _exit(127);
    setenv("PS1", "", 1);
    setenv("PS2", "", 1);
    execlp("bash", "bash", "--noprofile", "--norc", "--noediting", "-i", (char *)NULL);
    _exit(127);
}

int shell_start(struct shell *s, bool restore, struct err *err)
{
    int lines[2], control[2], answers[2];

    shell_kill(s);
    if (pipe2(lines, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->lines = lines[1];
    auto_fd int in = lines[0];
    if (pipe2(control, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->control = control[0];
    auto_fd int out = control[1];
    if (pipe2(answers, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->answers = answers[1];
    s->answers_in = answers[0];

    s->pid = fork();
    if (s->pid == 0)
        become_shell(in, out, s->code, s->state, s->answers_in);
    if (s->pid < 0) {
        s->pid = 0;
        return err_sys(err, ERR_SYS, "fork");
    }
    buf_clear(&s->heard);
    s->last = 0;
    say(s, set_up);
    if (restore)
        say(s, restore_line);
    say(s, last_line);
    return 0;
}

void shell_kill(struct shell *s)
{
    if (s->pid > 0) {
        kill(-s->pid, SIGKILL);
        kill(s->pid, SIGKILL); /* before its setsid there is no group */
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    s->pid = 0;
    close_pipes(s);
}

static void ask_status(struct shell *s)
{
    char line[64];

    snprintf(line, sizeof(line), "__cove_said D%u $? 2>/dev/null\n", s->seq);
    say(s, line);
}

/* An interrupt can reach the shell while it reads a line, or wait in it until it reads the next: then it loses the
 * beginning of that line, and takes the rest for a command. So empty lines follow, to be lost, and a question; when
 * that is answered the interrupt is over. Our lines hold no quotes, which would swallow what follows, and code that has
 * run is forgotten, lest it run again. */
void shell_interrupt(struct shell *s)
{
    char line[64];

    kill(-s->pid, SIGINT);
    s->pokes++;
    snprintf(line, sizeof(line), "\n\n__cove_said X%u 130 2>/dev/null\n", s->pokes);
    say(s, line);
}

void shell_run(struct shell *s, const char *code)
{
    char line[256];

    /* What an earlier end saved has been taken up by now. */
    if (ftruncate(s->state, 0) < 0 || lseek(s->state, 0, SEEK_SET) < 0)
        abort();
    memory_put(s->code, code);
    s->seq++;
    say(s, "__cove_take");
    if (s->last != 0) {
        snprintf(line, sizeof(line), "; __cove_status %d || ", s->last); /* false, and `set -e` does not mind here */
        say(s, line);
    }
    say(s, s->last ? "" : "; ");
    say(s, "eval $coveeval </dev/null\n");
    ask_status(s);
}

void shell_look(struct shell *s, const char *command, const char *word)
{
    char line[128];

    memory_put(s->code, word);
    s->seq++;
    snprintf(line, sizeof(line), "__cove_look %s\n", command);
    say(s, line);
    ask_status(s);
}

void shell_answer(struct shell *s, const char *text)
{
    if (text) {
        (void)fd_write_all(s->answers, "T", 1);
        (void)fd_write_all(s->answers, text, strlen(text) + 1);
    } else {
        (void)fd_write_all(s->answers, "E", 2);
    }
}

void shell_unanswer(struct shell *s)
{
    struct pollfd p = { .fd = s->answers_in, .events = POLLIN };
    char lost[4096];

    while (s->answers_in >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN) &&
           read(s->answers_in, lost, sizeof(lost)) > 0)
        ;
}

void shell_hear(struct shell *s)
{
    struct pollfd p = { .fd = s->control, .events = POLLIN };
    char part[4096];

    while (s->control >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN)) {
        ssize_t n = read(s->control, part, sizeof(part));

        if (n <= 0)
            return;
        if (s->heard.len + (size_t)n > HEARD_MAX)
            buf_clear(&s->heard); /* a message without end is not the shell's */
        buf_add(&s->heard, part, (size_t)n);
    }
}

bool shell_message(struct shell *s, struct buf *ret)
{
    const char *end = s->heard.len ? memchr(s->heard.data, '\0', s->heard.len) : NULL;

    if (!end)
        return false;
    size_t len = (size_t)(end - s->heard.data);
    buf_clear(ret);
    buf_add(ret, s->heard.data, len);
    buf_drop(&s->heard, len + 1);
    return true;
}

bool shell_saved(const struct shell *s)
{
    struct stat st;

    return fstat(s->state, &st) == 0 && st.st_size > 0;
}
