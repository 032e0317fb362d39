/* The bash kernel of a context: requests on fd 3, a shell that lives on, events on fd 3.
 *
 * A program of its own and not a script: a script would have to read JSON in bash, or need another interpreter, which a
 * sandbox may not have. It is static and needs nothing but bash. One loop over the socket, the shell's messages and two
 * signals; while a cell runs, requests wait in order, but for the answers to its questions.
 *
 * 1. Every `execute` and `reset` gets one `finished`, also when the shell ends in it.
 * 2. What the shell says is as untrusted as the code in it: it is bounded, and what does not fit is ignored.
 * 3. A line is ASCII, of at most LINE_MAX bytes. */
#include "shell.h"

#include "base/fd.h"
#include "base/jsonr.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#define SOCKET_FD 3
#define LINE_MAX_BYTES (1u << 20)
#define ID_MAX 64
#define QUEUE_MAX 256
#define MATCHES_MAX 500
#define TEXT_MAX (32u << 10)
#define ANSWER_MAX 60000u /* what a pipe takes at once */

enum doing { IDLE, STARTING, EXECUTING, COMPLETING, INSPECTING, SETTLING };

struct kernel {
    struct shell shell;
    struct buf in;
    bool ready;             /* the first shell has begun */
    bool dropping;          /* inside a line that is too long */
    char *queue[QUEUE_MAX]; /* lines that wait */
    size_t queued;
    enum doing doing;
    char *id; /* of what is being done */
    uint64_t count;
    bool interrupted;
    bool unsettled; /* the shell has not yet got over an interrupt */
    bool asking;
    uint64_t start, end; /* of the word that is completed */
    struct buf looked;
};

/* --- events --- */

static void ascii(const char *utf8, size_t len, struct buf *out)
{
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)utf8[i];
        uint32_t point = c;
        size_t more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;

        if (c < 0x7f) {
            buf_add(out, utf8 + i++, 1);
            continue;
        }
        if (more)
            point = c & (0x3fu >> more);
        for (size_t k = 1; k <= more && i + k < len; k++)
            point = point << 6 | ((unsigned char)utf8[i + k] & 0x3fu);
        i += 1 + more;
        if (point >= 0x10000)
            buf_addf(out, "\\u%04x\\u%04x", 0xd800 + ((point - 0x10000) >> 10), 0xdc00 + ((point - 0x10000) & 0x3ff));
        else
            buf_addf(out, "\\u%04x", point);
    }
}

static void begin(struct jsonw *w, struct buf *out, const char *event, const char *id)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "event", event);
    if (id)
        jsonw_kstr(w, "id", id);
}

static void finish(struct jsonw *w)
{
    auto_buf line = { 0 };

    jsonw_end_object(w);
    ascii(w->out->data, w->out->len, &line);
    buf_adds(&line, "\n");
    if (line.len <= LINE_MAX_BYTES && fd_write_all(SOCKET_FD, line.data, line.len) < 0)
        exit(0); /* nobody listens */
}

static void refuse(const char *id, const char *why)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin(&w, &out, "refused", id);
    if (!id) {
        jsonw_key(&w, "id");
        jsonw_null(&w);
    }
    jsonw_kstr(&w, "why", why);
    finish(&w);
}

static void send_error(struct kernel *k, const char *name, const char *value)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin(&w, &out, "error", k->id);
    jsonw_kstr(&w, "name", name);
    jsonw_kstr(&w, "value", value);
    jsonw_key(&w, "traceback");
    jsonw_array(&w);
    jsonw_end_array(&w);
    finish(&w);
}

static void send_status(struct kernel *k, const char *status)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin(&w, &out, "finished", k->id);
    jsonw_kstr(&w, "status", status);
    finish(&w);
}

static void send_ready(const char *version)
{
    auto_buf out = { 0 };
    struct jsonw w;

    begin(&w, &out, "ready", NULL);
    jsonw_kstr(&w, "language", "bash");
    jsonw_key(&w, "version");
    jsonw_strn(&w, version, strspn(version, "0123456789."));
    jsonw_ku64(&w, "protocol", 1);
    finish(&w);
}

/* --- what the shell says --- */

static void send_completions(struct kernel *k)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t n = 0;

    begin(&w, &out, "completions", k->id);
    jsonw_key(&w, "matches");
    jsonw_array(&w);
    for (char *p = k->looked.data, *next; p && *p && n < MATCHES_MAX && out.len < LINE_MAX_BYTES / 8; p = next) {
        size_t len = strcspn(p, "\n");

        next = p + len + (p[len] == '\n');
        const char *seen = k->looked.data; /* the lists of commands, functions and builtins overlap */
        while (seen < p && (strncmp(seen, p, len) != 0 || seen[len] != '\n'))
            seen += strcspn(seen, "\n") + 1;
        bool ours = strncmp(p, "__cove", 6) == 0 ||
                    (len == 8 && strncmp(p, "cove", 4) == 0 &&
                     (strncmp(p + 4, "code", 4) == 0 || strncmp(p + 4, "eval", 4) == 0));
        if (ours || seen < p || len == 0 || len > 1000)
            continue;
        jsonw_strn(&w, p, len);
        n++;
    }
    jsonw_end_array(&w);
    jsonw_ku64(&w, "start", k->start);
    jsonw_ku64(&w, "end", k->end);
    finish(&w);
}

static void send_inspection(struct kernel *k)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t len = k->looked.len < TEXT_MAX ? k->looked.len : TEXT_MAX;

    begin(&w, &out, "inspection", k->id);
    jsonw_kbool(&w, "found", len > 0);
    jsonw_key(&w, "data");
    jsonw_object(&w);
    if (len > 0) {
        jsonw_key(&w, "text/plain");
        jsonw_strn(&w, k->looked.data, len);
    }
    jsonw_end_object(&w);
    finish(&w);
}

static void end_execution(struct kernel *k, int status)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", status);
    if (k->interrupted && status == 128 + SIGINT) {
        send_error(k, "Interrupted", "the cell was interrupted");
        send_status(k, "interrupted");
    } else if (status != 0) {
        send_error(k, "ExitStatus", text);
        send_status(k, "error");
    } else {
        send_status(k, "ok");
    }
}

static void become_idle(struct kernel *k)
{
    shell_unanswer(&k->shell);
    k->doing = k->unsettled ? SETTLING : IDLE;
    k->asking = false;
    free(k->id);
    k->id = NULL;
}

static void end_request(struct kernel *k, int status)
{
    if (k->doing == EXECUTING) {
        k->shell.last = status;
        end_execution(k, status);
    } else if (k->doing == COMPLETING) {
        send_completions(k);
    } else if (k->doing == INSPECTING) {
        send_inspection(k);
    }
    become_idle(k);
}

static bool numbers(const char *text, uint32_t *ret_seq, uint32_t *ret_status)
{
    return str_eat_u32(&text, UINT32_MAX, ret_seq) && str_eat(&text, " ") && str_eat_u32(&text, 255, ret_status) &&
           !*text;
}

static void on_done(struct kernel *k, const char *text)
{
    uint32_t seq, status;

    if (!numbers(text, &seq, &status))
        return;
    if (k->doing == STARTING && seq == 0)
        become_idle(k);
    else if (seq == k->shell.seq && k->doing != IDLE && k->doing != STARTING && k->doing != SETTLING)
        end_request(k, (int)status);
}

/* The shell has got over the last interrupt. If it did not say how the cell ended, it was the interrupt that ended it.
 */
static void on_settled(struct kernel *k, const char *text)
{
    uint32_t poke, status;

    if (!numbers(text, &poke, &status) || poke != k->shell.pokes || !k->unsettled)
        return;
    k->unsettled = false;
    if (k->doing != STARTING)
        end_request(k, 128 + SIGINT);
}

static void on_question(struct kernel *k, const char *text)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (k->doing != EXECUTING || k->asking || (text[0] != '0' && text[0] != '1'))
        return;
    k->asking = true;
    begin(&w, &out, "input", k->id);
    jsonw_key(&w, "prompt");
    jsonw_strn(&w, text + 1, strnlen(text + 1, TEXT_MAX));
    jsonw_kbool(&w, "password", text[0] == '1');
    finish(&w);
}

static void on_messages(struct kernel *k)
{
    auto_buf message = { 0 };

    shell_hear(&k->shell);
    while (shell_message(&k->shell, &message)) {
        const char *text = message.len ? message.data + 1 : "";

        switch (message.len ? message.data[0] : 0) {
        case 'D':
            on_done(k, text);
            break;
        case 'X':
            on_settled(k, text);
            break;
        case 'I':
            on_question(k, text);
            break;
        case 'V':
            if (!k->ready)
                send_ready(text);
            k->ready = true;
            break;
        case 'L':
            buf_clear(&k->looked);
            buf_adds(&k->looked, text);
            break;
        default:
            break;
        }
    }
}

static void start_shell(struct kernel *k, bool restore)
{
    struct err err = { 0 };

    if (shell_start(&k->shell, restore, &err) < 0) {
        fprintf(stderr, "kernel: %s\n", err.msg);
        exit(1);
    }
    k->doing = STARTING;
    k->unsettled = false;
}

/* The shell is gone: the cell ends with its status, and the next shell goes on where it could save what it knew. */
static void on_shell_end(struct kernel *k, int wstatus)
{
    bool saved = shell_saved(&k->shell);
    int status = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : 128 + WTERMSIG(wstatus);
    char why[128];

    on_messages(k);
    if (k->doing == STARTING && status == 127) {
        fprintf(stderr, "kernel: bash could not be started\n");
        exit(1);
    }
    k->shell.pid = 0;
    if (k->doing == EXECUTING && saved) {
        end_execution(k, status);
    } else if (k->doing == EXECUTING) {
        snprintf(why, sizeof(why), "the shell ended with status %d and could not save its variables", status);
        send_error(k, "ShellEnded", why);
        send_status(k, k->interrupted ? "interrupted" : "error");
    } else if (k->doing == COMPLETING) {
        send_completions(k);
    } else if (k->doing == INSPECTING) {
        send_inspection(k);
    }
    become_idle(k);
    start_shell(k, saved);
    k->shell.last = saved ? status : 0;
}

/* --- requests --- */

static size_t points(const char *text, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes && text[i]; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* Byte offset of a place that counts code points, or -1. */
static ssize_t byte_of(const char *text, uint64_t cursor)
{
    size_t i = 0;

    for (; cursor > 0; cursor--) {
        if (!text[i])
            return -1;
        do
            i++;
        while (((unsigned char)text[i] & 0xc0) == 0x80);
    }
    return (ssize_t)i;
}

static void execute(struct kernel *k, const char *code)
{
    auto_buf out = { 0 };
    struct jsonw w;

    k->doing = EXECUTING;
    k->interrupted = false;
    k->count++;
    begin(&w, &out, "started", k->id);
    jsonw_ku64(&w, "count", k->count);
    finish(&w);
    shell_run(&k->shell, code);
}

/* The word before the cursor, and what kind of thing could stand there. */
static void complete(struct kernel *k, const char *code, uint64_t cursor, size_t at)
{
    static const char breaks[] = " \t\n;|&()<>\"'`=";
    size_t from = at, before;
    const char *command = SHELL_FILES;

    while (from > 0 && !strchr(breaks, code[from - 1]))
        from--;
    before = from;
    while (before > 0 && (code[before - 1] == ' ' || code[before - 1] == '\t'))
        before--;
    if (before == 0 || strchr("\n;|&(`", code[before - 1]))
        command = SHELL_COMMANDS;
    if (from < at && code[from] == '$') {
        command = SHELL_VARIABLES;
        from += 1 + (code[from + 1] == '{');
        if (from > at)
            from = at;
    }
    auto_buf word = { 0 };
    buf_add(&word, code + from, at - from);
    k->doing = COMPLETING;
    k->start = cursor - points(code + from, at - from);
    k->end = cursor;
    buf_clear(&k->looked);
    shell_look(&k->shell, command, word.data ? word.data : "");
}

static void inspect(struct kernel *k, const char *code, size_t at)
{
    static const char breaks[] = " \t\n;|&()<>\"'`={}";
    size_t from = at, to = at;

    while (from > 0 && !strchr(breaks, code[from - 1]))
        from--;
    while (code[to] && !strchr(breaks, code[to]))
        to++;
    bool variable = code[from] == '$' || (from > 1 && code[from - 1] == '{' && code[from - 2] == '$');
    if (code[from] == '$')
        from++;
    auto_buf word = { 0 };
    if (to > from)
        buf_add(&word, code + from, to - from);
    k->doing = INSPECTING;
    buf_clear(&k->looked);
    shell_look(&k->shell, variable ? SHELL_VALUE : SHELL_TYPE, word.data ? word.data : "");
}

static void reset(struct kernel *k)
{
    k->count = 0;
    if (ftruncate(k->shell.state, 0) < 0)
        abort();
    send_status(k, "ok");
    become_idle(k);
    start_shell(k, false);
}

static void answer(struct kernel *k, const char *id, const struct json *root)
{
    const char *text = json_text(json_get(root, "text"));
    const struct json *eof = json_get(root, "eof");

    if (!k->asking || strcmp(id, k->id) != 0) {
        refuse(id, "no execution waits for input");
    } else if (eof && eof->kind == JSON_TRUE) {
        k->asking = false;
        shell_answer(&k->shell, NULL);
    } else if (!text) {
        refuse(id, "text is not a string");
    } else if (strlen(text) > ANSWER_MAX) {
        refuse(id, "text is longer than 60000 bytes");
    } else {
        k->asking = false;
        shell_answer(&k->shell, text);
    }
}

/* Serves a request whose id is good. */
static void serve(struct kernel *k, const char *id, const struct json *root)
{
    const char *op = json_text(json_get(root, "op")), *code = json_text(json_get(root, "code"));
    uint64_t cursor = 0;
    ssize_t at = -1;

    if (!op || (strcmp(op, "execute") != 0 && strcmp(op, "complete") != 0 && strcmp(op, "inspect") != 0 &&
                strcmp(op, "reset") != 0)) {
        refuse(id, "no such op");
        return;
    }
    if (strcmp(op, "reset") != 0 && !code) {
        refuse(id, "code is not a string");
        return;
    }
    bool looks = op[0] == 'c' || op[0] == 'i';
    if (looks && json_u64(json_get(root, "cursor"), &cursor))
        at = byte_of(code, cursor);
    if (looks && at < 0) {
        refuse(id, "cursor is not a place in the code");
        return;
    }
    k->id = mem_copy(id, strlen(id) + 1);
    if (op[0] == 'e')
        execute(k, code);
    else if (op[0] == 'c')
        complete(k, code, cursor, (size_t)at);
    else if (op[0] == 'i')
        inspect(k, code, (size_t)at);
    else
        reset(k);
}

/* True when the line was dealt with; false when it must wait. */
static bool take_line(struct kernel *k, const char *line, size_t len)
{
    struct json_doc doc = { 0 };
    struct err err = { 0 };

    if (json_read(line, len, &doc, &err) < 0) {
        refuse(NULL, err.msg);
        return true;
    }
    const char *id = json_text(json_get(doc.root, "id")), *op = json_text(json_get(doc.root, "op"));
    bool done = true;
    if (doc.root->kind != JSON_OBJECT)
        refuse(NULL, "not an object");
    else if (!id || points(id, strlen(id)) < 1 || points(id, strlen(id)) > ID_MAX)
        refuse(NULL, "id is not a string of 1 to 64 characters");
    else if (op && strcmp(op, "input") == 0)
        answer(k, id, doc.root);
    else if (k->doing == IDLE)
        serve(k, id, doc.root);
    else if (k->queued == QUEUE_MAX)
        refuse(id, "too many requests wait");
    else
        done = false;
    json_doc_done(&doc);
    return done;
}

static void on_line(struct kernel *k, const char *line, size_t len)
{
    if (len > 0 && !take_line(k, line, len))
        k->queue[k->queued++] = mem_copy(line, len + 1);
}

static void serve_queue(struct kernel *k)
{
    while (k->doing == IDLE && k->queued > 0) {
        auto_free char *line = k->queue[0];

        memmove(k->queue, k->queue + 1, --k->queued * sizeof(k->queue[0]));
        take_line(k, line, strlen(line));
    }
}

static void on_socket(struct kernel *k)
{
    char part[65536];
    ssize_t n = read(SOCKET_FD, part, sizeof(part));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        shell_done(&k->shell);
        exit(0);
    }
    for (const char *p = part, *end = part + n; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);

        if (!k->dropping)
            buf_add(&k->in, p, len);
        if (k->in.len >= LINE_MAX_BYTES) {
            buf_clear(&k->in);
            k->dropping = true;
        }
        p += len + (nl ? 1 : 0);
        if (!nl)
            continue;
        if (k->dropping)
            refuse(NULL, "a line is longer than 1048576 bytes");
        else if (memchr(k->in.data ? k->in.data : "", '\0', k->in.len))
            refuse(NULL, "a NUL in a line");
        else
            on_line(k, k->in.data ? k->in.data : "", k->in.len);
        buf_clear(&k->in);
        k->dropping = false;
    }
}

static void on_signal(struct kernel *k, int signals)
{
    struct signalfd_siginfo info;
    int wstatus;

    while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT && k->doing != IDLE && k->doing != STARTING && k->doing != SETTLING &&
            k->shell.pid > 0) {
            k->interrupted = k->unsettled = true;
            shell_interrupt(&k->shell);
        }
    }
    if (k->shell.pid > 0 && waitpid(k->shell.pid, &wstatus, WNOHANG) == k->shell.pid)
        on_shell_end(k, wstatus);
}

int main(void)
{
    struct kernel k = { 0 };
    struct err err = { 0 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || shell_init(&k.shell, &err) < 0)
        return 1;
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        return 1;
    start_shell(&k, false);
    for (;;) {
        struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
                                { .fd = k.shell.control, .events = POLLIN },
                                { .fd = SOCKET_FD, .events = POLLIN } };

        serve_queue(&k);
        fds[1].fd = k.shell.control;
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents) /* first: an interrupt that came before a request does not concern it */
            on_signal(&k, signals);
        on_messages(&k);
        if (fds[2].revents)
            on_socket(&k);
    }
}
