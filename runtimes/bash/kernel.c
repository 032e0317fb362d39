/* The bash kernel of a context: requests on fd 3, a shell that keeps its state, events on fd 3.
 *
 * It is a C program and not a script: a script would have to parse JSON in bash, or need another
 * interpreter, which a sandbox may not have. It is static and needs only bash. One loop handles the
 * socket, the shell's messages and two signals. While a cell runs, requests wait in order, except
 * answers to its input requests.
 *
 * 1. Every `execute` and `reset` gets one `finished`, also if the shell ends during it.
 * 2. Messages of the shell are as untrusted as the code in it: their size is bounded, and messages
 *    that do not fit are ignored.
 * 3. A line is ASCII, of at most LINE_MAX_BYTES. */
#include "bash_process.h"

#include "core/base/fd.h"
#include "core/base/jsonr.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"

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
#define ANSWER_MAX 60000u /* bytes that a pipe accepts at once */

enum bash_kernel_state { IDLE, STARTING, EXECUTING, COMPLETING, INSPECTING, SETTLING };

struct bash_kernel {
    struct bash_process bash;
    struct buf in;
    bool ready;             /* the first shell has started */
    bool dropping_line;     /* inside a line that is too long */
    char *queue[QUEUE_MAX]; /* waiting lines */
    size_t queued;
    enum bash_kernel_state state;
    char *id; /* of the current request */
    uint64_t count;
    bool interrupted;
    bool interrupt_pending; /* the shell has not yet handled an interrupt */
    bool waiting_for_input;
    uint64_t start, end; /* of the word to complete */
    struct buf query_result;
};

/* Events. */

static void bash_kernel_escape_non_ascii(const char *utf8, size_t len, struct buf *out)
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

static void bash_kernel_begin_event(struct jsonw *w, struct buf *out, const char *event, const char *id)
{
    jsonw_init(w, out, 0);
    jsonw_object(w);
    jsonw_kstr(w, "event", event);
    if (id)
        jsonw_kstr(w, "id", id);
}

static void bash_kernel_send_event(struct jsonw *w)
{
    auto_buf line = { 0 };

    jsonw_end_object(w);
    bash_kernel_escape_non_ascii(w->out->data, w->out->len, &line);
    buf_adds(&line, "\n");
    if (line.len <= LINE_MAX_BYTES && fd_write_all(SOCKET_FD, line.data, line.len) < 0)
        exit(0); /* no reader is left */
}

static void bash_kernel_send_refusal(const char *id, const char *why)
{
    auto_buf out = { 0 };
    struct jsonw w;

    bash_kernel_begin_event(&w, &out, "refused", id);
    if (!id) {
        jsonw_key(&w, "id");
        jsonw_null(&w);
    }
    jsonw_kstr(&w, "why", why);
    bash_kernel_send_event(&w);
}

static void bash_kernel_send_error(struct bash_kernel *k, const char *name, const char *value)
{
    auto_buf out = { 0 };
    struct jsonw w;

    bash_kernel_begin_event(&w, &out, "error", k->id);
    jsonw_kstr(&w, "name", name);
    jsonw_kstr(&w, "value", value);
    jsonw_key(&w, "traceback");
    jsonw_array(&w);
    jsonw_end_array(&w);
    bash_kernel_send_event(&w);
}

static void bash_kernel_send_status(struct bash_kernel *k, const char *status)
{
    auto_buf out = { 0 };
    struct jsonw w;

    bash_kernel_begin_event(&w, &out, "finished", k->id);
    jsonw_kstr(&w, "status", status);
    bash_kernel_send_event(&w);
}

static void bash_kernel_send_ready(const char *version)
{
    auto_buf out = { 0 };
    struct jsonw w;

    bash_kernel_begin_event(&w, &out, "ready", NULL);
    jsonw_kstr(&w, "language", "bash");
    jsonw_key(&w, "version");
    jsonw_strn(&w, version, strspn(version, "0123456789."));
    jsonw_ku64(&w, "protocol", 1);
    bash_kernel_send_event(&w);
}

/* Messages of the shell. */

static void bash_kernel_send_completions(struct bash_kernel *k)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t n = 0;

    bash_kernel_begin_event(&w, &out, "completions", k->id);
    jsonw_key(&w, "matches");
    jsonw_array(&w);
    for (char *p = k->query_result.data, *next; p && *p && n < MATCHES_MAX && out.len < LINE_MAX_BYTES / 8; p = next) {
        size_t len = strcspn(p, "\n");

        next = p + len + (p[len] == '\n');
        const char *seen = k->query_result.data; /* the lists of commands, functions and builtins overlap */
        while (seen < p && (strncmp(seen, p, len) != 0 || seen[len] != '\n'))
            seen += strcspn(seen, "\n") + 1;
        bool ours = strncmp(p, "__cove", 6) == 0 ||
                    (len == 8 && (strncmp(p, "covecode", 8) == 0 || strncmp(p, "coveeval", 8) == 0)) ||
                    (len == 11 && strncmp(p, "coverestore", 11) == 0);
        if (ours || seen < p || len == 0 || len > 1000)
            continue;
        jsonw_strn(&w, p, len);
        n++;
    }
    jsonw_end_array(&w);
    jsonw_ku64(&w, "start", k->start);
    jsonw_ku64(&w, "end", k->end);
    bash_kernel_send_event(&w);
}

static void bash_kernel_send_inspection(struct bash_kernel *k)
{
    auto_buf out = { 0 };
    struct jsonw w;
    size_t len = k->query_result.len < TEXT_MAX ? k->query_result.len : TEXT_MAX;

    bash_kernel_begin_event(&w, &out, "inspection", k->id);
    jsonw_kbool(&w, "found", len > 0);
    jsonw_key(&w, "data");
    jsonw_object(&w);
    if (len > 0) {
        jsonw_key(&w, "text/plain");
        jsonw_strn(&w, k->query_result.data, len);
    }
    jsonw_end_object(&w);
    bash_kernel_send_event(&w);
}

static void bash_kernel_end_execution(struct bash_kernel *k, int status)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", status);
    if (k->interrupted && status == 128 + SIGINT) {
        bash_kernel_send_error(k, "Interrupted", "the cell was interrupted");
        bash_kernel_send_status(k, "interrupted");
    } else if (status != 0) {
        bash_kernel_send_error(k, "ExitStatus", text);
        bash_kernel_send_status(k, "error");
    } else {
        bash_kernel_send_status(k, "ok");
    }
}

static void bash_kernel_become_idle(struct bash_kernel *k)
{
    bash_process_drop_input(&k->bash);
    k->state = k->interrupt_pending ? SETTLING : IDLE;
    k->waiting_for_input = false;
    free(k->id);
    k->id = NULL;
}

static void bash_kernel_end_request(struct bash_kernel *k, int status)
{
    if (k->state == EXECUTING) {
        k->bash.last_status = status;
        bash_kernel_end_execution(k, status);
    } else if (k->state == COMPLETING) {
        bash_kernel_send_completions(k);
    } else if (k->state == INSPECTING) {
        bash_kernel_send_inspection(k);
    }
    bash_kernel_become_idle(k);
}

static bool bash_kernel_parse_numbers(const char *text, uint32_t *ret_seq, uint32_t *ret_status)
{
    return str_eat_u32(&text, UINT32_MAX, ret_seq) && str_eat(&text, " ") && str_eat_u32(&text, 255, ret_status) &&
           !*text;
}

static void bash_kernel_on_done(struct bash_kernel *k, const char *text)
{
    uint32_t seq, status;

    if (!bash_kernel_parse_numbers(text, &seq, &status))
        return;
    if (k->state == STARTING && seq == 0)
        bash_kernel_become_idle(k);
    else if (seq == k->bash.seq && k->state != IDLE && k->state != STARTING && k->state != SETTLING)
        bash_kernel_end_request(k, (int)status);
}

/* The shell has handled the last interrupt. If it did not report how the cell ended, the interrupt
 * ended it. */
static void bash_kernel_on_interrupt_done(struct bash_kernel *k, const char *text)
{
    uint32_t poke, status;

    if (!bash_kernel_parse_numbers(text, &poke, &status) || poke != k->bash.interrupts_sent || !k->interrupt_pending)
        return;
    k->interrupt_pending = false;
    if (k->state != STARTING)
        bash_kernel_end_request(k, 128 + SIGINT);
}

static void bash_kernel_on_question(struct bash_kernel *k, const char *text)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (k->state != EXECUTING || k->waiting_for_input || (text[0] != '0' && text[0] != '1'))
        return;
    k->waiting_for_input = true;
    bash_kernel_begin_event(&w, &out, "input", k->id);
    jsonw_key(&w, "prompt");
    jsonw_strn(&w, text + 1, strnlen(text + 1, TEXT_MAX));
    jsonw_kbool(&w, "password", text[0] == '1');
    bash_kernel_send_event(&w);
}

static void bash_kernel_on_messages(struct bash_kernel *k)
{
    auto_buf message = { 0 };

    bash_process_receive(&k->bash);
    while (bash_process_next_message(&k->bash, &message)) {
        const char *text = message.len ? message.data + 1 : "";

        switch (message.len ? message.data[0] : 0) {
        case 'D':
            bash_kernel_on_done(k, text);
            break;
        case 'X':
            bash_kernel_on_interrupt_done(k, text);
            break;
        case 'I':
            bash_kernel_on_question(k, text);
            break;
        case 'V':
            if (!k->ready)
                bash_kernel_send_ready(text);
            k->ready = true;
            break;
        case 'L':
            buf_clear(&k->query_result);
            buf_adds(&k->query_result, text);
            break;
        default:
            break;
        }
    }
}

static void bash_kernel_start_bash(struct bash_kernel *k, bool restore)
{
    struct err err = { 0 };

    if (bash_process_start(&k->bash, restore, &err) < 0) {
        fprintf(stderr, "kernel: %s\n", err.msg);
        exit(1);
    }
    k->state = STARTING;
    k->interrupt_pending = false;
}

/* The shell has ended: the cell ends with its status, and the next shell restores the state that
 * was saved. */
static void bash_kernel_on_bash_end(struct bash_kernel *k, int wstatus)
{
    bool saved = bash_process_has_saved_state(&k->bash);
    int status = WIFEXITED(wstatus) ? WEXITSTATUS(wstatus) : 128 + WTERMSIG(wstatus);
    char why[128];

    bash_kernel_on_messages(k);
    if (k->state == STARTING && status == 127) {
        fprintf(stderr, "kernel: cannot start bash\n");
        exit(1);
    }
    k->bash.pid = 0;
    if (k->state == EXECUTING && saved) {
        bash_kernel_end_execution(k, status);
    } else if (k->state == EXECUTING) {
        snprintf(why, sizeof(why), "the shell ended with status %d and could not save its variables", status);
        bash_kernel_send_error(k, "ShellEnded", why);
        bash_kernel_send_status(k, k->interrupted ? "interrupted" : "error");
    } else if (k->state == COMPLETING) {
        bash_kernel_send_completions(k);
    } else if (k->state == INSPECTING) {
        bash_kernel_send_inspection(k);
    }
    bash_kernel_become_idle(k);
    bash_kernel_start_bash(k, saved);
    k->bash.last_status = saved ? status : 0;
}

/* Requests. */

static size_t bash_kernel_count_code_points(const char *text, size_t bytes)
{
    size_t n = 0;

    for (size_t i = 0; i < bytes && text[i]; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

/* Converts an offset in code points to bytes, or -1. */
static ssize_t bash_kernel_byte_offset(const char *text, uint64_t cursor)
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

static bool bash_kernel_is_name(const char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

    return *name && (*name < '0' || *name > '9') && name[strspn(name, letters)] == '\0';
}

/* Reads env and cwd of a request to execute into the commands that set them; without either, `out`
 * stays empty. False: the request was refused. A name that bash has no variable for is ignored. */
static bool bash_kernel_read_overrides(const char *id, const struct json *root, struct buf *out)
{
    const struct json *env = json_get(root, "env"), *cwd = json_get(root, "cwd");
    auto_free struct bash_variable *variables = NULL;
    size_t n = 0;

    if (cwd && !json_text(cwd)) {
        bash_kernel_send_refusal(id, "cwd is not a string");
        return false;
    }
    bool map = !env || env->kind == JSON_OBJECT;
    for (const struct json *v = map && env ? env->child : NULL; v; v = v->next) {
        map = map && json_text(v);
        n++;
    }
    if (!map) {
        bash_kernel_send_refusal(id, "env is not a map of strings");
        return false;
    }
    variables = mem_new_array(struct bash_variable, n + 1);
    n = 0;
    for (const struct json *v = env ? env->child : NULL; v; v = v->next)
        if (bash_kernel_is_name(v->key))
            variables[n++] = (struct bash_variable){ v->key, json_text(v) };
    if (n > 0 || cwd)
        bash_process_write_overrides(variables, n, json_text(cwd), out);
    return true;
}

static void bash_kernel_execute(struct bash_kernel *k, const char *overrides, const char *code)
{
    auto_buf out = { 0 };
    struct jsonw w;

    k->state = EXECUTING;
    k->interrupted = false;
    k->count++;
    bash_kernel_begin_event(&w, &out, "started", k->id);
    jsonw_ku64(&w, "count", k->count);
    bash_kernel_send_event(&w);
    bash_process_run(&k->bash, overrides, code);
}

/* Completes the word before the cursor by the kind of word that is possible there. */
static void bash_kernel_complete(struct bash_kernel *k, const char *code, uint64_t cursor, size_t at)
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
    k->state = COMPLETING;
    k->start = cursor - bash_kernel_count_code_points(code + from, at - from);
    k->end = cursor;
    buf_clear(&k->query_result);
    bash_process_query(&k->bash, command, word.data ? word.data : "");
}

static void bash_kernel_inspect(struct bash_kernel *k, const char *code, size_t at)
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
    k->state = INSPECTING;
    buf_clear(&k->query_result);
    bash_process_query(&k->bash, variable ? SHELL_VALUE : SHELL_TYPE, word.data ? word.data : "");
}

static void bash_kernel_reset(struct bash_kernel *k)
{
    k->count = 0;
    if (ftruncate(k->bash.state_fd, 0) < 0)
        abort();
    bash_kernel_send_status(k, "ok");
    bash_kernel_become_idle(k);
    bash_kernel_start_bash(k, false);
}

static void bash_kernel_input(struct bash_kernel *k, const char *id, const struct json *root)
{
    const char *text = json_text(json_get(root, "text"));
    const struct json *eof = json_get(root, "eof"), *more = json_get(root, "more");

    if (!k->waiting_for_input || strcmp(id, k->id) != 0) {
        bash_kernel_send_refusal(id, "no execution waits for input");
    } else if (eof && eof->kind == JSON_TRUE) {
        k->waiting_for_input = false;
        bash_process_send_input(&k->bash, NULL, false);
    } else if (!text) {
        bash_kernel_send_refusal(id, "text is not a string");
    } else if (strlen(text) > ANSWER_MAX) {
        bash_kernel_send_refusal(id, "text is longer than 60000 bytes");
    } else {
        k->waiting_for_input = false;
        bash_process_send_input(&k->bash, text, more && more->kind == JSON_TRUE);
    }
}

/* Handles a request with a valid id. */
static void bash_kernel_serve_request(struct bash_kernel *k, const char *id, const struct json *root)
{
    const char *op = json_text(json_get(root, "op")), *code = json_text(json_get(root, "code"));
    uint64_t cursor = 0;
    ssize_t at = -1;

    if (!op || (strcmp(op, "execute") != 0 && strcmp(op, "complete") != 0 && strcmp(op, "inspect") != 0 &&
                strcmp(op, "reset") != 0)) {
        bash_kernel_send_refusal(id, "no such op");
        return;
    }
    if (strcmp(op, "reset") != 0 && !code) {
        bash_kernel_send_refusal(id, "code is not a string");
        return;
    }
    bool looks = op[0] == 'c' || op[0] == 'i';
    if (looks && json_u64(json_get(root, "cursor"), &cursor))
        at = bash_kernel_byte_offset(code, cursor);
    if (looks && at < 0) {
        bash_kernel_send_refusal(id, "cursor is not a place in the code");
        return;
    }
    auto_buf overrides = { 0 };
    if (op[0] == 'e' && !bash_kernel_read_overrides(id, root, &overrides))
        return;
    k->id = mem_copy(id, strlen(id) + 1);
    if (op[0] == 'e')
        bash_kernel_execute(k, overrides.data, code);
    else if (op[0] == 'c')
        bash_kernel_complete(k, code, cursor, (size_t)at);
    else if (op[0] == 'i')
        bash_kernel_inspect(k, code, (size_t)at);
    else
        bash_kernel_reset(k);
}

/* True if the line was handled; false if it must wait. */
static bool bash_kernel_take_line(struct bash_kernel *k, const char *line, size_t len)
{
    struct json_doc doc = { 0 };
    struct err err = { 0 };

    if (json_read(line, len, &doc, &err) < 0) {
        bash_kernel_send_refusal(NULL, err.msg);
        return true;
    }
    const char *id = json_text(json_get(doc.root, "id")), *op = json_text(json_get(doc.root, "op"));
    bool done = true;
    if (doc.root->kind != JSON_OBJECT)
        bash_kernel_send_refusal(NULL, "not an object");
    else if (!id || bash_kernel_count_code_points(id, strlen(id)) < 1 ||
             bash_kernel_count_code_points(id, strlen(id)) > ID_MAX)
        bash_kernel_send_refusal(NULL, "id is not a string of 1 to 64 characters");
    else if (op && strcmp(op, "input") == 0)
        bash_kernel_input(k, id, doc.root);
    else if (k->state == IDLE)
        bash_kernel_serve_request(k, id, doc.root);
    else if (k->queued == QUEUE_MAX)
        bash_kernel_send_refusal(id, "too many requests wait");
    else
        done = false;
    json_doc_done(&doc);
    return done;
}

static void bash_kernel_on_line(struct bash_kernel *k, const char *line, size_t len)
{
    if (len > 0 && !bash_kernel_take_line(k, line, len))
        k->queue[k->queued++] = mem_copy(line, len + 1);
}

static void bash_kernel_serve_queue(struct bash_kernel *k)
{
    while (k->state == IDLE && k->queued > 0) {
        auto_free char *line = k->queue[0];

        memmove(k->queue, k->queue + 1, --k->queued * sizeof(k->queue[0]));
        bash_kernel_take_line(k, line, strlen(line));
    }
}

static void bash_kernel_on_socket(struct bash_kernel *k)
{
    char part[65536];
    ssize_t n = read(SOCKET_FD, part, sizeof(part));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        bash_process_done(&k->bash);
        exit(0);
    }
    for (const char *p = part, *end = part + n; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((nl ? nl : end) - p);

        if (!k->dropping_line)
            buf_add(&k->in, p, len);
        if (k->in.len >= LINE_MAX_BYTES) {
            buf_clear(&k->in);
            k->dropping_line = true;
        }
        p += len + (nl ? 1 : 0);
        if (!nl)
            continue;
        if (k->dropping_line)
            bash_kernel_send_refusal(NULL, "a line is longer than 1048576 bytes");
        else if (memchr(k->in.data ? k->in.data : "", '\0', k->in.len))
            bash_kernel_send_refusal(NULL, "a NUL in a line");
        else
            bash_kernel_on_line(k, k->in.data ? k->in.data : "", k->in.len);
        buf_clear(&k->in);
        k->dropping_line = false;
    }
}

static void bash_kernel_on_signal(struct bash_kernel *k, int signals)
{
    struct signalfd_siginfo info;
    int wstatus;

    while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGINT && k->state != IDLE && k->state != STARTING && k->state != SETTLING &&
            k->bash.pid > 0) {
            k->interrupted = k->interrupt_pending = true;
            bash_process_interrupt(&k->bash);
        }
    }
    if (k->bash.pid > 0 && waitpid(k->bash.pid, &wstatus, WNOHANG) == k->bash.pid)
        bash_kernel_on_bash_end(k, wstatus);
}

int main(void)
{
    struct bash_kernel k = { 0 };
    struct err err = { 0 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    signal(SIGPIPE, SIG_IGN);
    fcntl(SOCKET_FD, F_SETFD, FD_CLOEXEC);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || bash_process_init(&k.bash, &err) < 0)
        return 1;
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0)
        return 1;
    bash_kernel_start_bash(&k, false);
    for (;;) {
        struct pollfd fds[] = { { .fd = signals, .events = POLLIN },
                                { .fd = k.bash.message_fd, .events = POLLIN },
                                { .fd = SOCKET_FD, .events = POLLIN } };

        bash_kernel_serve_queue(&k);
        fds[1].fd = k.bash.message_fd;
        if (poll(fds, ARRAY_LEN(fds), -1) < 0 && errno != EINTR)
            return 1;
        if (fds[0].revents) /* first: an interrupt that came before a request does not apply to that request */
            bash_kernel_on_signal(&k, signals);
        bash_kernel_on_messages(&k);
        if (fds[2].revents)
            bash_kernel_on_socket(&k);
    }
}
