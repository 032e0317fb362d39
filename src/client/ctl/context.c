/* cove context: create, ls, exec, interrupt, restart, fork, rm.
 *
 * exec prints output as it arrives, results and displays as text, and an exception with its
 * traceback. When the code requests a line of input, the stream is closed, the line is read and
 * sent, and the stream is resumed after the last printed event. Ctrl-C interrupts the code and
 * keeps the context. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/ctl/show.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define CODE_MAX (512 * KIB)
#define LINE_MAX_ (64 * KIB)

/* --- resolving the context --- */

struct ctl_context_choice {
    const char *word;   /* ID or prefix; NULL: the only context that was created by request */
    bool has_requested; /* without a word, default contexts count only if there is no other */
    char id[ID_SIZE];
    size_t found;
};

static bool ctl_context_is_default(const json_t *context)
{
    return json_is_true(json_object_get(context, "default"));
}

static void ctl_context_choice_add(struct ctl_context_choice *ch, const json_t *context)
{
    const char *id = ctl_field_text(context, "id");

    if (ch->word ? !str_starts(id, ch->word) : ch->has_requested && ctl_context_is_default(context))
        return;
    ch->found++;
    snprintf(ch->id, sizeof(ch->id), "%s", id);
}

static int ctl_context_find(struct ctl *c, const char *sandbox, const char *word, char ret[ID_SIZE], struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts", sandbox);
    struct ctl_context_choice ch = { .word = word };
    AUTO_JSON *answer = NULL;

    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    const json_t *all = json_object_get(answer, "items");
    for (size_t i = 0; i < json_array_size(all); i++)
        ch.has_requested |= !ctl_context_is_default(json_array_get(all, i));
    for (size_t i = 0; i < json_array_size(all); i++)
        ctl_context_choice_add(&ch, json_array_get(all, i));
    if (ch.found == 1) {
        memcpy(ret, ch.id, sizeof(ch.id));
        return 0;
    }
    if (ch.found == 0 && word)
        return err_set(err, ERR_MISSING, "sandbox %s has no context %.40s; 'cove context ls' lists its contexts",
                       sandbox, word);
    if (ch.found == 0)
        return err_set(err, ERR_MISSING, "sandbox %s has no context; 'cove context create %s' creates one", sandbox,
                       sandbox);
    return err_set(err, ERR_USAGE, "sandbox %s has %zu contexts that match; name one: 'cove context ls %s' lists them",
                   sandbox, ch.found, sandbox);
}

static int ctl_context_read_names(struct ctl *c, const char *usage, char **sandbox, char ret[ID_SIZE], struct err *err)
{
    if (ctl_require_args(c, 1, 2, usage, err) < 0 || ctl_resolve_sandbox(c, c->args.rest[0], sandbox, err) < 0)
        return -1;
    return ctl_context_find(c, *sandbox, c->args.nrest > 1 ? c->args.rest[1] : NULL, ret, err);
}

/* --- create, ls, and the simple commands --- */

static int ctl_context_create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    auto_free char *sandbox = NULL;

    if (ctl_require_args(c, 1, 1, "context create [FLAGS] SANDBOX", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    ctl_set_text(c, OPT_RUNTIME, body, "language");
    ctl_set_text(c, OPT_CWD, body, "cwd");
    if (ctl_set_pairs(c, OPT_ENV, true, body, "env", err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts", sandbox);
    if (client_json(c->client, "POST", path, text, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    printf("%s\n", ctl_field_text(answer, "id"));
    return 0;
}

static int ctl_context_list(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 1, 1, "context ls [FLAGS] SANDBOX", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts", sandbox);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_table_row(&table, "id", "language", "state", "executions", "status");
    const json_t *all = json_object_get(answer, "items");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *x = json_array_get(all, i), *why = json_object_get(x, "reason");
        auto_free char *version = str_printf("%s %s", ctl_field_text(x, "language"), ctl_field_text(x, "version"));
        auto_free char *n = str_printf("%" PRIu64, ctl_field_number(x, "executions"));

        ctl_table_row(&table, ctl_field_text(x, "id"), version, ctl_field_text(x, "state"), n,
                      why ? ctl_field_text(why, "message") : ctl_field_text(x, "executionId"));
    }
    return ctl_table_print(&table);
}

static int ctl_context_send_command(struct ctl *c, const char *verb, struct err *err)
{
    bool rm = str_eq(verb, "rm");
    auto_free char *usage = str_printf("context %s [FLAGS] SANDBOX [CONTEXT]", verb);
    auto_free char *sandbox = NULL;
    AUTO_JSON *answer = NULL;
    char id[ID_SIZE];

    if (ctl_context_read_names(c, usage, &sandbox, id, err) < 0)
        return -1;
    auto_free char *path = ctl_api_path(rm ? "/v1/sandboxes/%s/contexts/%s" : "/v1/sandboxes/%s/contexts/%s/%s",
                                        sandbox, id, verb);
    if (client_json(c->client, rm ? "DELETE" : "POST", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    const char *outcome = ctl_field_text(answer, "outcome");
    if (*outcome && !c->quiet)
        report_note("%s", str_eq(outcome, "killed") ? "the interpreter had to be killed: its variables are lost"
                          : str_eq(outcome, "idle") ? "the context is idle: nothing to interrupt"
                                                    : "interrupted; its variables are kept");
    printf("%s\n", ctl_field_text(answer, "id")); /* for a fork, the new context */
    return 0;
}

/* --- exec --- */

struct ctl_context_run {
    struct ctl *c;
    struct ctl_show show;
    char *execution;
    size_t events_shown, events_to_skip; /* events printed so far; repeated events to skip after a resume */
    bool input_requested;
    char *prompt;
    json_t *ended_execution;
};

static volatile bool context_interrupted;
static bool context_at_prompt; /* no code runs, so SIGTERM ends the process */

static void ctl_context_on_signal(void *arg, int signo)
{
    struct ctl *c = arg;

    if (context_interrupted || (context_at_prompt && signo == SIGTERM))
        _exit(128 + signo);
    context_interrupted = true;
    client_interrupt(c->client);
}

static bool ctl_context_show_event(struct ctl_context_run *s, const char *type, const json_t *line)
{
    if (s->events_to_skip > 0) {
        s->events_to_skip--;
        return true;
    }
    s->events_shown++;
    if (str_eq(type, "display") || str_eq(type, "result"))
        return ctl_show_data(&s->show, json_object_get(line, "data"));
    if (str_eq(type, "exception"))
        return ctl_show_exception(&s->show, line);
    s->input_requested = true;
    free(s->prompt);
    s->prompt = str_dup(ctl_field_text(line, "prompt"));
    return false;
}

static bool ctl_context_on_line(void *arg, const json_t *line)
{
    static const char *const events[] = { "display", "result", "exception", "input" };
    struct ctl_context_run *s = arg;
    const char *type = ctl_field_text(line, "type");
    json_t *execution = json_object_get(line, "execution");

    if (str_eq(type, "started") && !s->execution)
        s->show.name = s->execution = str_dup(ctl_field_text(execution, "id"));
    if (str_eq(type, "output"))
        return ctl_show_output(&s->show, line);
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (str_eq(type, events[i]))
            return ctl_context_show_event(s, type, line);
    if (!str_eq(type, "end"))
        return true;
    json_decref(s->ended_execution);
    s->ended_execution = json_incref(execution);
    return false;
}

/* Sends one line of our standard input to code that requests it; the end of our input is sent as
 * end of file. */
static int ctl_context_send_input_line(struct ctl_context_run *s, const char *sandbox, struct err *err)
{
    AUTO_JSON *body = json_object();
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions/%s/input", sandbox, s->execution);
    char line[LINE_MAX_];

    s->input_requested = false;
    fprintf(stderr, "%s", s->prompt);
    fflush(stderr);
    if (!fgets(line, sizeof(line), stdin)) {
        json_object_set_new(body, "eof", json_true());
    } else {
        line[strcspn(line, "\n")] = '\0';
        json_t *text = json_string(line);
        if (!text)
            return err_set(err, ERR_INVALID, "the input line is not UTF-8");
        json_object_set_new(body, "text", text);
    }
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    return client_json(s->c->client, "POST", path, text, NULL, err);
}

static int ctl_context_resume_stream(struct ctl_context_run *s, const char *sandbox, struct err *err)
{
    auto_free char *base = ctl_api_path("/v1/sandboxes/%s/executions/%s/stream", sandbox, s->execution);
    auto_free char *path = str_printf("%s?stdoutOffset=%" PRIu64 "&stderrOffset=%" PRIu64, base, s->show.offset[0],
                                      s->show.offset[1]);

    s->events_to_skip = s->events_shown;
    return client_json_lines(s->c->client, "GET", path, NULL, ctl_context_on_line, s, err);
}

static int ctl_context_interrupt(struct ctl_context_run *s, const char *sandbox, const char *context, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts/%s/interrupt", sandbox, context);
    AUTO_JSON *answer = NULL;

    if (client_json(s->c->client, "POST", path, NULL, &answer, err) < 0)
        return -1;
    if (str_eq(ctl_field_text(answer, "outcome"), "killed") && !s->c->quiet)
        report_note("the interpreter had to be killed: its variables are lost");
    return ctl_context_resume_stream(s, sandbox, err);
}

static int ctl_context_execute_streamed(struct ctl_context_run *s, const char *sandbox, const char *context,
                                        const char *body, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts/%s/execute", sandbox, context);
    int bad = client_json_lines(s->c->client, "POST", path, body, ctl_context_on_line, s, err);

    while (!bad && !s->ended_execution && s->execution && s->show.err.id == ERR_NONE && !context_interrupted) {
        if (!s->input_requested)
            return err_set(err, ERR_CUT_OFF, "the connection was lost; 'cove logs' prints the output of execution %s",
                           s->execution);
        bad = ctl_context_send_input_line(s, sandbox, err) < 0 || ctl_context_resume_stream(s, sandbox, err) < 0 ? -1
                                                                                                                 : 0;
    }
    if (context_interrupted && s->execution)
        bad = ctl_context_interrupt(s, sandbox, context, err);
    if (s->show.err.id != ERR_NONE) {
        *err = s->show.err;
        return -1;
    }
    return bad;
}

static int ctl_context_exit_status(const struct ctl_context_run *s, struct err *err)
{
    const json_t *why = json_object_get(s->ended_execution, "error");

    if (!s->ended_execution)
        return 130;
    if (why) {
        enum err_id id = err_by_code(ctl_field_text(why, "code"));

        return err_set(err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
    }
    if (!context_interrupted)
        ctl_note_end(s->c, s->ended_execution);
    ctl_show_end(&s->show);
    return ctl_exit_status(s->ended_execution);
}

static int ctl_context_read_code(struct buf *ret, struct err *err)
{
    char piece[65536];
    ssize_t n;

    if (isatty(STDIN_FILENO))
        return err_set(err, ERR_USAGE, "no code; give it with -c, or on standard input");
    while ((n = read(STDIN_FILENO, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0)
            buf_add(ret, piece, (size_t)n);
        if (ret->len > CODE_MAX)
            return err_set(err, ERR_LIMIT,
                           "the code is larger than 512K; copy it with 'cove cp' and load it in the sandbox");
    }
    return n < 0 ? err_sys(err, ERR_SYS, "standard input") : 0;
}

static int ctl_context_make_body(struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *code = args_find(&c->args, OPT_CODE);
    auto_buf in = { 0 };

    if (!code && ctl_context_read_code(&in, err) < 0)
        return -1;
    json_t *text = code ? json_string(code->value) : json_stringn(in.data ? in.data : "", in.len);
    if (!text)
        return err_set(err, ERR_INVALID, "the code is not UTF-8");
    json_object_set_new(body, "code", text);
    return ctl_set_limit(c, LIMIT_WALL, body, "timeoutMs", err);
}

static int ctl_context_execute_unstreamed(struct ctl *c, const char *sandbox, const char *context, json_t *body,
                                          struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/contexts/%s/execute", sandbox, context);
    AUTO_JSON *answer = NULL;

    if (args_find(&c->args, OPT_BACKGROUND))
        json_object_set_new(body, "background", json_true());
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", path, text, &answer, err) < 0)
        return -1;
    if (c->json && ctl_print_json(answer) < 0)
        return -1;
    if (!c->json)
        printf("%s\n", ctl_field_text(answer, "id"));
    return args_find(&c->args, OPT_BACKGROUND) ? 0 : ctl_exit_status(answer);
}

/* --- exec on a terminal without code: one cell after the other --- */

static void ctl_repl_on_readable(void *arg, uint32_t events UNUSED)
{
    *(bool *)arg = true;
}

/* Appends one line. Returns its length, 0 at the end of input, -1 after Ctrl-C. The terminal
 * collects the line; the loop runs meanwhile, because Ctrl-C arrives there. */
static ssize_t ctl_repl_read_line(struct ctl *c, struct ev_io *in, const bool *readable, const char *prompt,
                                  struct buf *cell)
{
    char line[4096];

    printf("%s", prompt);
    fflush(stdout);
    ev_io_set(c->ev, in, EPOLLIN);
    context_at_prompt = true;
    while (!*readable && !context_interrupted)
        ev_turn(c->ev, -1);
    context_at_prompt = false;
    ev_io_set(c->ev, in, 0);
    if (context_interrupted)
        return -1;
    ssize_t n = read(STDIN_FILENO, line, sizeof(line));
    if (n > 0)
        buf_add(cell, line, (size_t)n);
    return n > 0 ? n : 0;
}

/* Whether more lines follow, up to an empty one: the line opens a block or a bracket. */
static bool ctl_repl_is_open(const struct buf *cell)
{
    size_t n = cell->len;

    while (n > 0 && strchr(" \t\n", cell->data[n - 1]))
        n--;
    return n > 0 && (strchr(":([{\\,", cell->data[n - 1]) || cell->data[0] == '@');
}

/* Returns -1 after Ctrl-C, 0 at the end of input, 1 with a cell. */
static int ctl_repl_read_cell(struct ctl *c, struct ev_io *in, bool *readable, struct buf *cell)
{
    bool open = false;
    ssize_t n;

    do {
        *readable = false;
        n = ctl_repl_read_line(c, in, readable, open ? "... " : ">>> ", cell);
        open = open || (n > 0 && ctl_repl_is_open(cell));
    } while (n > 1 && open && cell->len < CODE_MAX);
    return n < 0 ? -1 : n > 0 || cell->len > 0;
}

static int ctl_repl_execute(struct ctl *c, const char *sandbox, const char *context, const struct buf *cell,
                            struct err *err)
{
    const struct arg *dir = args_find(&c->args, OPT_SAVE);
    struct ctl_context_run s = { .c = c, .show = { .quiet = c->quiet, .save = dir ? dir->value : NULL } };
    AUTO_JSON *body = json_object();
    json_t *code = json_stringn(cell->data, cell->len);

    if (!code)
        return err_set(err, ERR_INVALID, "the code is not UTF-8");
    json_object_set_new(body, "code", code);
    if (ctl_set_limit(c, LIMIT_WALL, body, "timeoutMs", err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    int bad = ctl_context_execute_streamed(&s, sandbox, context, text, err);
    if (!bad && s.ended_execution)
        bad = ctl_context_exit_status(&s, err) < 0 ? -1 : 0;
    free(s.execution);
    free(s.prompt);
    json_decref(s.ended_execution);
    return bad;
}

/* An error of one cell is printed; a sandbox or server that is gone ends the loop. */
static int ctl_context_repl(struct ctl *c, const char *sandbox, const char *context, struct err *err)
{
    bool readable = false;
    struct ev_io in = { 0 };
    int got;

    if (ev_io_add(c->ev, &in, STDIN_FILENO, 0, ctl_repl_on_readable, &readable, err) < 0)
        return -1;
    if (!c->quiet)
        report_note("Ctrl-C interrupts, Ctrl-D leaves; variables stay in context %s", context);
    for (;;) {
        auto_buf cell = { 0 };

        context_interrupted = false;
        got = ctl_repl_read_cell(c, &in, &readable, &cell);
        if (got <= 0)
            printf("\n");
        if (got == 0)
            break;
        if (got < 0 || strspn(cell.data, " \t\n") == cell.len)
            continue;
        if (ctl_repl_execute(c, sandbox, context, &cell, err) < 0) {
            if (err->id == ERR_SANDBOX_ENDED || err->id == ERR_MISSING || err->id == ERR_UNREACHABLE)
                break;
            (void)report_error(err, false);
            *err = (struct err){ 0 };
        }
    }
    ev_io_del(c->ev, &in);
    return got == 0 ? 0 : -1;
}

static int ctl_context_catch_signals(struct ctl *c, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return ev_signals(c->ev, &set, ctl_context_on_signal, c, err);
}

static int ctl_context_execute(struct ctl *c, struct err *err)
{
    bool at_once = c->json || args_find(&c->args, OPT_BACKGROUND);
    const struct arg *dir = args_find(&c->args, OPT_SAVE);
    struct ctl_context_run s = { .c = c, .show = { .quiet = c->quiet, .save = dir ? dir->value : NULL } };
    AUTO_JSON *body = json_object();
    auto_free char *sandbox = NULL;
    char id[ID_SIZE];

    if (ctl_context_read_names(c, "context exec [FLAGS] SANDBOX [CONTEXT]", &sandbox, id, err) < 0)
        return -1;
    if (dir && mkdir(dir->value, 0777) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%.160s", dir->value);
    if (!at_once && !args_find(&c->args, OPT_CODE) && isatty(STDIN_FILENO))
        return ctl_context_catch_signals(c, err) < 0 ? -1 : ctl_context_repl(c, sandbox, id, err);
    if (ctl_context_make_body(c, body, err) < 0)
        return -1;
    if (at_once)
        return ctl_context_execute_unstreamed(c, sandbox, id, body, err);
    if (ctl_context_catch_signals(c, err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    int bad = ctl_context_execute_streamed(&s, sandbox, id, text, err);
    int status = bad ? -1 : ctl_context_exit_status(&s, err);
    free(s.execution);
    free(s.prompt);
    json_decref(s.ended_execution);
    return status;
}

int ctl_context(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "create"))
        return ctl_context_create(c, err);
    if (str_eq(what, "ls"))
        return ctl_context_list(c, err);
    if (str_eq(what, "exec"))
        return ctl_context_execute(c, err);
    return ctl_context_send_command(c, what, err);
}
