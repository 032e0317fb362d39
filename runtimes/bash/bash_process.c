/* An interactive bash without a terminal: only an interactive shell continues after an interrupt, a
 * syntax error or ${x:?}, as users expect. Its standard input carries only short command lines of
 * the kernel. The code is in a memory file, from which `read` takes it as a whole, and runs by
 * `eval`, whose standard input is /dev/null. The next command line reports the status. Both lines
 * are read even if an interrupt ended the first.
 *
 * `exit` and `set -e` end the shell. A trap then saves the state of the shell, and the next shell
 * restores it, so they only end the cell. After `exec` and SIGKILL no state is left.
 *
 * Variables and a directory for one run are set by commands that run before the code, in the same
 * way. Before that they store in __cove_former the commands that restore what was there. The next
 * run or query evaluates those first, also in a new shell, to which the variable is saved like
 * every other.
 *
 * Programs that the shell starts inherit descriptors 250 to 253, because bash cannot set
 * close-on-exec on them. A program that writes to them can only falsify messages of this shell; the
 * kernel's socket is not among them. */
#include "bash_process.h"

#include "core/base/fd.h"

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

static const char bash_setup_script[] =
    "exec 2>&249 249>&-\n"
    "set +o history; set +H; unset MAILCHECK HISTFILE; export -n PS1 PS2\n"
    "coveeval='eval \"$covecode\"'\n"
    "coverestore='eval \"$__cove_former\"'\n"
    "__cove_status() { return \"$1\"; }\n"
    "__cove_said() { covecode=; builtin printf '\\0%s %s\\0' \"$1\" \"$2\" >&250; }\n"
    "__cove_take() { IFS= builtin read -r -d '' -u 251 covecode; }\n"
    "__cove_look() { __cove_take; builtin printf '\\0L%s\\0' \"$(builtin \"$@\" -- \"$covecode\" 2>/dev/null)\" "
    ">&250; }\n"
    "__cove_save() { { declare -p; declare -f; alias -p; shopt -p; builtin printf 'cd -- %q\\n' \"$PWD\"; trap -p; set "
    "+o; } >&252 2>/dev/null; }\n"
    /* Without the message that an interactive shell prints at its end. */
    "exit() { builtin exit \"${1:-$?}\" 2>/dev/null; }\n"
    /* If stdin was not redirected, asks the server for input. */
    "read() {\n"
    "  local OPTIND=1 OPTARG __cove_o __cove_p= __cove_s=0 __cove_u= __cove_a __cove_l=\n"
    "  while getopts ':a:d:eEi:n:N:p:rst:u:' __cove_o; do\n"
    "    case $__cove_o in p) __cove_p=$OPTARG ;; s) __cove_s=1 ;; u) __cove_u=1 ;; esac\n"
    "  done\n"
    "  if [[ $__cove_u || ! /proc/self/fd/0 -ef /dev/null ]]; then builtin read \"$@\"; return; fi\n"
    "  while :; do\n"
    "    builtin printf '\\0I%s%s\\0' \"$__cove_s\" \"$__cove_p\" >&250\n"
    "    IFS= builtin read -r -d '' -u 253 __cove_a || return 1\n"
    "    __cove_l+=${__cove_a:1} __cove_p=\n"
    "    [[ $__cove_a == M* ]] || break\n"
    "  done\n"
    "  if [[ $__cove_a == E && ! $__cove_l ]]; then builtin read \"$@\" </dev/null; return 1; fi\n"
    "  builtin read \"$@\" <<< \"$__cove_l\"\n"
    "}\n";
static const char bash_former_line[] =
    "eval $coverestore >/dev/null 2>&1 </dev/null || __cove_status 0; unset -v __cove_former\n";
static const char bash_restore_line[] = ". /proc/self/fd/252 >/dev/null 2>&1 </dev/null\n";
static const char bash_last_line[] =
    "trap __cove_save EXIT; PS1= PS2=; builtin printf '\\0V%s\\0D0 0\\0' \"$BASH_VERSION\" >&250\n";

static void bash_process_write_line(struct bash_process *s, const char *line)
{
    (void)fd_write_all(s->command_fd, line, strlen(line)); /* if the shell is gone, its end is noticed elsewhere */
}

/* first: NULL, or a text before the other. */
static void bash_process_write_memory(int fd, const char *first, const char *text)
{
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 ||
        (first && fd_write_all(fd, first, strlen(first) + 1) < 0) || fd_write_all(fd, text, strlen(text) + 1) < 0 ||
        lseek(fd, 0, SEEK_SET) < 0)
        abort(); /* our own memory: without it no code can run */
}

int bash_process_init(struct bash_process *s, struct err *err)
{
    *s = (struct bash_process){
        .command_fd = -1, .message_fd = -1, .answer_fd = -1, .answer_read_fd = -1, .code_fd = -1, .state_fd = -1
    };
    s->code_fd = memfd_create("code", MFD_CLOEXEC);
    s->state_fd = memfd_create("state", MFD_CLOEXEC);
    if (s->code_fd < 0 || s->state_fd < 0)
        return err_sys(err, ERR_SYS, "cannot create a memory file for the shell");
    return 0;
}

static void bash_process_close_pipes(struct bash_process *s)
{
    fd_close(&s->command_fd);
    fd_close(&s->message_fd);
    fd_close(&s->answer_fd);
    fd_close(&s->answer_read_fd);
}

void bash_process_done(struct bash_process *s)
{
    bash_process_kill(s);
    fd_close(&s->code_fd);
    fd_close(&s->state_fd);
    buf_done(&s->received);
}

/* In the child. The target numbers may overlap with the given ones, so those are moved away first.
 */
static void bash_process_exec(int in, int control, int code, int state, int answers)
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
    if (null < 0 || dup2(null, STDERR_FILENO) < 0) /* discards bash's messages about the missing terminal */
        _exit(127);
    setenv("PS1", "", 1);
    setenv("PS2", "", 1);
    execlp("bash", "bash", "--noprofile", "--norc", "--noediting", "-i", (char *)NULL);
    _exit(127);
}

int bash_process_start(struct bash_process *s, bool restore, struct err *err)
{
    int lines[2], control[2], answers[2];

    bash_process_kill(s);
    if (pipe2(lines, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->command_fd = lines[1];
    auto_fd int in = lines[0];
    if (pipe2(control, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->message_fd = control[0];
    auto_fd int out = control[1];
    if (pipe2(answers, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    s->answer_fd = answers[1];
    s->answer_read_fd = answers[0];

    s->pid = fork();
    if (s->pid == 0)
        bash_process_exec(in, out, s->code_fd, s->state_fd, s->answer_read_fd);
    if (s->pid < 0) {
        s->pid = 0;
        return err_sys(err, ERR_SYS, "fork");
    }
    buf_clear(&s->received);
    s->last_status = 0;
    s->overrides_set = s->overrides_set && restore;
    bash_process_write_line(s, bash_setup_script);
    if (restore)
        bash_process_write_line(s, bash_restore_line);
    bash_process_write_line(s, bash_last_line);
    return 0;
}

void bash_process_kill(struct bash_process *s)
{
    if (s->pid > 0) {
        kill(-s->pid, SIGKILL);
        kill(s->pid, SIGKILL); /* before its setsid there is no group */
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    s->pid = 0;
    bash_process_close_pipes(s);
}

static void bash_process_request_status(struct bash_process *s)
{
    char line[64];

    snprintf(line, sizeof(line), "__cove_said D%u $? 2>/dev/null\n", s->seq);
    bash_process_write_line(s, line);
}

/* An interrupt can reach the shell while it reads a line, or stay pending until it reads the next:
 * then bash drops the beginning of that line and executes the rest as a command. So empty lines
 * follow, which may be dropped, and then a query; the reply shows that the interrupt is over. Our
 * lines contain no quotes, which would swallow the following text, and code that has run is deleted
 * so that it cannot run again. */
void bash_process_interrupt(struct bash_process *s)
{
    char line[64];

    kill(-s->pid, SIGINT);
    s->interrupts_sent++;
    snprintf(line, sizeof(line), "\n\n__cove_said X%u 130 2>/dev/null\n", s->interrupts_sent);
    bash_process_write_line(s, line);
}

static void bash_process_add_quoted(const char *text, struct buf *out)
{
    buf_adds(out, "'");
    for (; *text; text++)
        if (*text == '\'')
            buf_adds(out, "'\\''");
        else
            buf_add(out, text, 1);
    buf_adds(out, "'");
}

/* All that is replaced is remembered before anything is set: an interrupt may come in between. */
void bash_process_write_overrides(const struct bash_variable *env, size_t n, const char *cwd, struct buf *out)
{
    buf_adds(out, "__cove_former=");
    for (size_t i = 0; i < n; i++)
        buf_addf(out, "\"unset -v %s\n$(builtin declare -p %s 2>/dev/null)\n\"", env[i].name, env[i].name);
    if (cwd)
        buf_adds(out, "\"builtin cd -- $(builtin printf %q \"$PWD\")\"");
    buf_adds(out, "\n");
    if (cwd) {
        buf_adds(out, "builtin cd -- ");
        bash_process_add_quoted(cwd, out);
        buf_adds(out, n ? " &&\n" : "\n");
    }
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%s%s=", i ? " " : "builtin export ", env[i].name);
        bash_process_add_quoted(env[i].value, out);
    }
}

static void bash_process_restore_former(struct bash_process *s)
{
    if (s->overrides_set)
        bash_process_write_line(s, bash_former_line);
    s->overrides_set = false;
}

void bash_process_run(struct bash_process *s, const char *overrides, const char *code)
{
    char line[256];

    /* The shell has already restored the state that an earlier end saved. */
    if (ftruncate(s->state_fd, 0) < 0 || lseek(s->state_fd, 0, SEEK_SET) < 0)
        abort();
    bash_process_restore_former(s);
    bash_process_write_memory(s->code_fd, overrides, code);
    s->seq++;
    if (overrides) {
        s->overrides_set = true;
        bash_process_write_line(s, "__cove_take; eval $coveeval </dev/null && { ");
    }
    bash_process_write_line(s, "__cove_take");
    if (s->last_status != 0) {
        snprintf(line, sizeof(line), "; __cove_status %d || ",
                 s->last_status); /* false, and `set -e` has no effect here */
        bash_process_write_line(s, line);
    }
    bash_process_write_line(s, s->last_status ? "" : "; ");
    bash_process_write_line(s, overrides ? "eval $coveeval </dev/null; }\n" : "eval $coveeval </dev/null\n");
    bash_process_request_status(s);
}

void bash_process_query(struct bash_process *s, const char *command, const char *word)
{
    char line[128];

    bash_process_restore_former(s);
    bash_process_write_memory(s->code_fd, NULL, word);
    s->seq++;
    snprintf(line, sizeof(line), "__cove_look %s\n", command);
    bash_process_write_line(s, line);
    bash_process_request_status(s);
}

void bash_process_send_input(struct bash_process *s, const char *text, bool more)
{
    if (text) {
        (void)fd_write_all(s->answer_fd, more ? "M" : "T", 1);
        (void)fd_write_all(s->answer_fd, text, strlen(text) + 1);
    } else {
        (void)fd_write_all(s->answer_fd, "E", 2);
    }
}

void bash_process_drop_input(struct bash_process *s)
{
    struct pollfd p = { .fd = s->answer_read_fd, .events = POLLIN };
    char lost[4096];

    while (s->answer_read_fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN) &&
           read(s->answer_read_fd, lost, sizeof(lost)) > 0)
        ;
}

void bash_process_receive(struct bash_process *s)
{
    struct pollfd p = { .fd = s->message_fd, .events = POLLIN };
    char part[4096];

    while (s->message_fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & POLLIN)) {
        ssize_t n = read(s->message_fd, part, sizeof(part));

        if (n <= 0)
            return;
        if (s->received.len + (size_t)n > HEARD_MAX)
            buf_clear(&s->received); /* a message without end does not come from the shell */
        buf_add(&s->received, part, (size_t)n);
    }
}

bool bash_process_next_message(struct bash_process *s, struct buf *ret)
{
    const char *end = s->received.len ? memchr(s->received.data, '\0', s->received.len) : NULL;

    if (!end)
        return false;
    size_t len = (size_t)(end - s->received.data);
    buf_clear(ret);
    buf_add(ret, s->received.data, len);
    buf_drop(&s->received, len + 1);
    return true;
}

bool bash_process_has_saved_state(const struct bash_process *s)
{
    struct stat st;

    return fstat(s->state_fd, &st) == 0 && st.st_size > 0;
}
