/* cove context: create, ls, exec, interrupt, restart, fork, rm.
 *
 * exec shows what code shows: output as it comes, results and displays as text, an exception with its traceback. When
 * the code asks for a line the stream is left, the line is read here and sent, and the stream is taken up again behind
 * what was shown. Ctrl-C interrupts the code and keeps the context. */
#include "ctl/inside.h"

#include "base/fd.h"
#include "base/str.h"
#include "cli/report.h"
#include "ctl/show.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t
#define CODE_MAX (512 * KIB)
#define LINE_MAX_ (64 * KIB)

/* --- which one --- */

struct choice {
    const char *word; /* NULL: the only one */
    char id[ID_SIZE];
    size_t found;
};

static void choose(struct choice *ch, const char *id)
{
    if (ch->word && !str_starts(id, ch->word))
        return;
    ch->found++;
    snprintf(ch->id, sizeof(ch->id), "%s", id);
}

static int find(struct ctl *c, const char *sandbox, const char *word, char ret[ID_SIZE], struct err *err)
{
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts", sandbox);
    struct choice ch = { .word = word };
    AUTO_JSON *answer = NULL;

    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    const json_t *all = json_object_get(answer, "contexts");
    for (size_t i = 0; i < json_array_size(all); i++)
        choose(&ch, ctl_text(json_array_get(all, i), "id"));
    if (ch.found == 1) {
        memcpy(ret, ch.id, sizeof(ch.id));
        return 0;
    }
    if (ch.found == 0 && word)
        return err_set(err, ERR_MISSING, "sandbox %s has no context %.40s", sandbox, word);
    if (ch.found == 0)
        return err_set(err, ERR_MISSING, "sandbox %s has no context; 'cove context create %s' makes one", sandbox,
                       sandbox);
    return err_set(err, ERR_USAGE, "say which context: %s has %zu that could be meant; 'cove context ls %s' lists them",
                   sandbox, ch.found, sandbox);
}

static int names(struct ctl *c, const char *usage, char **sandbox, char ret[ID_SIZE], struct err *err)
{
    if (ctl_words(c, 1, 2, usage, err) < 0 || ctl_name(c, c->args.rest[0], sandbox, err) < 0)
        return -1;
    return find(c, *sandbox, c->args.nrest > 1 ? c->args.rest[1] : NULL, ret, err);
}

/* --- create, ls, and one word to it --- */

static int create(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;
    auto_free char *sandbox = NULL;
    json_t *env = NULL;

    if (ctl_words(c, 1, 1, "context create [FLAGS] SANDBOX", err) < 0 ||
        ctl_name(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    ctl_set_text(c, OPT_LANGUAGE, body, "language");
    ctl_set_text(c, OPT_CWD, body, "cwd");
    if (ctl_pairs(c, OPT_ENV, true, &env, err) < 0)
        return -1;
    if (env)
        json_object_set_new(body, "env", env);
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts", sandbox);
    if (client_json(c->client, "POST", path, text, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    printf("%s\n", ctl_text(answer, "id"));
    return 0;
}

static int list(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;

    if (ctl_words(c, 1, 1, "context ls [FLAGS] SANDBOX", err) < 0 || ctl_name(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts", sandbox);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_row(&table, "id", "language", "state", "executions", "running, or why it is dead");
    const json_t *all = json_object_get(answer, "contexts");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *x = json_array_get(all, i), *why = json_object_get(x, "reason");
        auto_free char *version = str_printf("%s %s", ctl_text(x, "language"), ctl_text(x, "version"));
        auto_free char *n = str_printf("%" PRIu64, ctl_number(x, "executions"));

        ctl_row(&table, ctl_text(x, "id"), version, ctl_text(x, "state"), n,
                why ? ctl_text(why, "message") : ctl_text(x, "executionId"));
    }
    return ctl_print_table(&table);
}

static int order(struct ctl *c, const char *verb, struct err *err)
{
    bool rm = str_eq(verb, "rm");
    auto_free char *usage = str_printf("context %s [FLAGS] SANDBOX [CONTEXT]", verb);
    auto_free char *sandbox = NULL;
    AUTO_JSON *answer = NULL;
    char id[ID_SIZE];

    if (names(c, usage, &sandbox, id, err) < 0)
        return -1;
    auto_free char *path = ctl_path(rm ? "/v1/sandboxes/%s/contexts/%s" : "/v1/sandboxes/%s/contexts/%s/%s", sandbox,
                                    id, verb);
    if (client_json(c->client, rm ? "DELETE" : "POST", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    const char *outcome = ctl_text(answer, "outcome");
    if (*outcome && !c->quiet)
        report_note("%s", str_eq(outcome, "killed") ? "it had to be killed: its variables are gone"
                          : str_eq(outcome, "idle") ? "nothing ran in it"
                                                    : "it has stopped, and its variables are kept");
    printf("%s\n", ctl_text(answer, "id")); /* of a fork, the new one */
    return 0;
}

/* --- exec --- */

struct show {
    struct ctl *c;
    struct ctl_show to;
    char *execution;
    size_t seen, skip; /* events that were shown; of those that come again, to be passed over */
    bool asks;
    char *prompt;
    json_t *end;
};

static volatile bool interrupted;

static void on_signal(void *arg, int signo UNUSED)
{
    struct ctl *c = arg;

    if (interrupted)
        _exit(130);
    interrupted = true;
    client_interrupt(c->client);
}

static bool event(struct show *s, const char *type, const json_t *line)
{
    if (s->skip > 0) {
        s->skip--;
        return true;
    }
    s->seen++;
    if (str_eq(type, "display") || str_eq(type, "result"))
        return ctl_show_data(&s->to, json_object_get(line, "data"));
    if (str_eq(type, "exception"))
        return ctl_show_exception(&s->to, line);
    s->asks = true;
    free(s->prompt);
    s->prompt = str_dup(ctl_text(line, "prompt"));
    return false;
}

static bool on_line(void *arg, const json_t *line)
{
    static const char *const events[] = { "display", "result", "exception", "input" };
    struct show *s = arg;
    const char *type = ctl_text(line, "type");
    json_t *execution = json_object_get(line, "execution");

    if (str_eq(type, "started") && !s->execution)
        s->to.name = s->execution = str_dup(ctl_text(execution, "id"));
    if (str_eq(type, "output"))
        return ctl_show_output(&s->to, line);
    for (size_t i = 0; i < ARRAY_LEN(events); i++)
        if (str_eq(type, events[i]))
            return event(s, type, line);
    if (!str_eq(type, "end"))
        return true;
    json_decref(s->end);
    s->end = json_incref(execution);
    return false;
}

/* One line of ours for code that asks; the end of our input is the end of its. */
static int answer(struct show *s, const char *sandbox, struct err *err)
{
    AUTO_JSON *body = json_object();
    auto_free char *path = ctl_path("/v1/sandboxes/%s/executions/%s/input", sandbox, s->execution);
    char line[LINE_MAX_];

    s->asks = false;
    fprintf(stderr, "%s", s->prompt);
    fflush(stderr);
    if (!fgets(line, sizeof(line), stdin)) {
        json_object_set_new(body, "eof", json_true());
    } else {
        line[strcspn(line, "\n")] = '\0';
        json_t *text = json_string(line);
        if (!text)
            return err_set(err, ERR_INVALID, "what was typed is no text");
        json_object_set_new(body, "text", text);
    }
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    return client_json(s->c->client, "POST", path, text, NULL, err);
}

static int go_on(struct show *s, const char *sandbox, struct err *err)
{
    auto_free char *base = ctl_path("/v1/sandboxes/%s/executions/%s/stream", sandbox, s->execution);
    auto_free char *path = str_printf("%s?stdoutOffset=%" PRIu64 "&stderrOffset=%" PRIu64, base, s->to.offset[0],
                                      s->to.offset[1]);

    s->skip = s->seen;
    return client_lines(s->c->client, "GET", path, NULL, on_line, s, err);
}

static int stop(struct show *s, const char *sandbox, const char *context, struct err *err)
{
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts/%s/interrupt", sandbox, context);
    AUTO_JSON *told = NULL;

    if (client_json(s->c->client, "POST", path, NULL, &told, err) < 0)
        return -1;
    if (str_eq(ctl_text(told, "outcome"), "killed") && !s->c->quiet)
        report_note("it had to be killed: its variables are gone");
    return go_on(s, sandbox, err);
}

static int streamed(struct show *s, const char *sandbox, const char *context, const char *body, struct err *err)
{
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts/%s/execute", sandbox, context);
    int bad = client_lines(s->c->client, "POST", path, body, on_line, s, err);

    while (!bad && !s->end && s->execution && s->to.err.id == ERR_NONE && !interrupted) {
        if (!s->asks)
            return err_set(err, ERR_CUT_OFF, "the connection was lost; 'cove logs' has what execution %s writes",
                           s->execution);
        bad = answer(s, sandbox, err) < 0 || go_on(s, sandbox, err) < 0 ? -1 : 0;
    }
    if (interrupted && s->execution)
        bad = stop(s, sandbox, context, err);
    if (s->to.err.id != ERR_NONE) {
        *err = s->to.err;
        return -1;
    }
    return bad;
}

static int verdict(const struct show *s, struct err *err)
{
    const json_t *why = json_object_get(s->end, "error");

    if (!s->end)
        return 130;
    if (why) {
        enum err_id id = err_by_code(ctl_text(why, "code"));

        return err_set(err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_text(why, "message"));
    }
    if (!interrupted)
        ctl_say_end(s->c, s->end);
    ctl_show_end(&s->to);
    return ctl_exit_status(s->end);
}

static int read_code(struct buf *ret, struct err *err)
{
    char piece[65536];
    ssize_t n;

    if (isatty(STDIN_FILENO))
        return err_set(err, ERR_USAGE, "there is no code: give it with -c, or on standard input");
    while ((n = read(STDIN_FILENO, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0)
            buf_add(ret, piece, (size_t)n);
        if (ret->len > CODE_MAX)
            return err_set(err, ERR_LIMIT, "the code is larger than 512K; copy it in with 'cove cp' and load it there");
    }
    return n < 0 ? err_sys(err, ERR_SYS, "standard input") : 0;
}

static int make_body(struct ctl *c, json_t *body, struct err *err)
{
    const struct arg *code = args_find(&c->args, OPT_CODE);
    auto_buf in = { 0 };

    if (!code && read_code(&in, err) < 0)
        return -1;
    json_t *text = code ? json_string(code->value) : json_stringn(in.data ? in.data : "", in.len);
    if (!text)
        return err_set(err, ERR_INVALID, "the code is no text");
    json_object_set_new(body, "code", text);
    return ctl_set_limit(c, OPT_TIMEOUT, LIMIT_WALL, body, "timeoutMs", err);
}

static int in_one(struct ctl *c, const char *sandbox, const char *context, json_t *body, struct err *err)
{
    auto_free char *path = ctl_path("/v1/sandboxes/%s/contexts/%s/execute", sandbox, context);
    AUTO_JSON *told = NULL;

    if (args_find(&c->args, OPT_BACKGROUND))
        json_object_set_new(body, "background", json_true());
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", path, text, &told, err) < 0)
        return -1;
    if (c->json && ctl_print_json(told) < 0)
        return -1;
    if (!c->json)
        printf("%s\n", ctl_text(told, "id"));
    return args_find(&c->args, OPT_BACKGROUND) ? 0 : ctl_exit_status(told);
}

static int exec(struct ctl *c, struct err *err)
{
    const struct arg *dir = args_find(&c->args, OPT_SAVE);
    struct show s = { .c = c, .to = { .quiet = c->quiet, .save = dir ? dir->value : NULL } };
    AUTO_JSON *body = json_object();
    auto_free char *sandbox = NULL;
    char id[ID_SIZE];
    sigset_t set;

    if (names(c, "context exec [FLAGS] SANDBOX [CONTEXT]", &sandbox, id, err) < 0 || make_body(c, body, err) < 0)
        return -1;
    if (dir && mkdir(dir->value, 0777) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%.160s", dir->value);
    if (c->json || args_find(&c->args, OPT_BACKGROUND))
        return in_one(c, sandbox, id, body, err);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (ev_signals(c->ev, &set, on_signal, c, err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    int bad = streamed(&s, sandbox, id, text, err);
    int status = bad ? -1 : verdict(&s, err);
    free(s.execution);
    free(s.prompt);
    json_decref(s.end);
    return status;
}

int ctl_context(struct ctl *c, const char *what, struct err *err)
{
    if (str_eq(what, "create"))
        return create(c, err);
    if (str_eq(what, "ls"))
        return list(c, err);
    if (str_eq(what, "exec"))
        return exec(c, err);
    return order(c, what, err);
}
