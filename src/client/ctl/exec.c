/* cove exec and cove shell: run a program in a sandbox of a server as if it ran locally. Standard
 * input of a command is streamed (stdin_feed.c) by the rule of `cove run`: a terminal only with -i.
 * Code, and a command in the background, get their input with the request (code_input.c). Ctrl-C
 * ends the execution; a second Ctrl-C ends only this process. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"
#include "client/cli/report.h"
#include "client/cli/term.h"
#include "policy/languages.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const exec_shell[] = { "/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh", NULL };

static volatile int exec_signal; /* that interrupted us; 0: none */

static void ctl_exec_on_signal(void *arg, int signo)
{
    struct ctl *c = arg;

    if (exec_signal)
        _exit(128 + signo);
    exec_signal = signo;
    client_interrupt(c->client);
}

static int ctl_exec_catch_signals(struct ctl *c, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return ev_signals(c->ev, &set, ctl_exec_on_signal, c, err);
}

static bool ctl_exec_has_input(const struct ctl *c)
{
    struct stat st;

    if (args_find(&c->args, OPT_STDIN))
        return true;
    if (fstat(STDIN_FILENO, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)))
        return false; /* closed, or /dev/null */
    return !isatty(STDIN_FILENO);
}

/* Code and a background execution get their input with the request, a command while it runs. */
static int ctl_exec_put_input(const struct ctl *c, json_t *body, struct err *err)
{
    if (json_object_get(body, "code") || args_find(&c->args, OPT_BACKGROUND))
        return ctl_put_stdin(c, body, err);
    if (ctl_exec_has_input(c))
        json_object_set_new(body, "stdinOpen", json_true());
    return 0;
}

static int ctl_exec_put_command(const struct ctl *c, json_t *body, struct err *err)
{
    json_t *command = json_array();

    json_object_set_new(body, "command", command);
    for (int i = 1; i < c->args.nrest; i++)
        json_array_append_new(command, json_string(c->args.rest[i]));
    if (json_array_size(command) != (size_t)(c->args.nrest - 1))
        return err_set(err, ERR_USAGE, "an argument of the command is not UTF-8");
    return 0;
}

/* As in `cove run`, a file of ours with the extension of a language is a script. */
static bool ctl_exec_is_script(const struct ctl *c)
{
    const char *word = c->args.nrest > 1 && !c->args.after_dashes ? c->args.rest[1] : NULL;

    return word && (str_eq(word, "-") || (language_by_extension(word) && access(word, F_OK) == 0));
}

static int ctl_exec_make_body(struct ctl *c, json_t *body, struct err *err)
{
    bool tty = args_find(&c->args, OPT_TTY) != NULL, script = ctl_exec_is_script(c);
    bool code = args_find(&c->args, OPT_CODE) || script;
    int bad = 0;

    if (ctl_require_args(c, code || tty ? 1 : 2, 1025, "exec [FLAGS] SANDBOX -- COMMAND...", err) < 0)
        return -1;
    if (script && c->args.nrest > 2)
        return err_set(err, ERR_USAGE,
                       "%.100s: a script of this host has no arguments here; copy it with 'cove cp' and run it in the "
                       "sandbox",
                       c->args.rest[1]);
    if (code)
        bad = ctl_put_code(c, c->args.nrest > 1 ? c->args.rest[1] : NULL, body, err);
    else if (c->args.nrest > 1)
        bad = ctl_exec_put_command(c, body, err);
    if (args_find(&c->args, OPT_ISOLATED) && !code)
        return err_set(err, ERR_USAGE,
                       "--isolated: only code has a context to be isolated from; omit it for a command");
    if (args_find(&c->args, OPT_ISOLATED))
        json_object_set_new(body, "isolated", json_true());
    ctl_set_text(c, OPT_CWD, body, "cwd");
    if (bad || ctl_set_run_limits(c, body, err) < 0 || ctl_set_pairs(c, OPT_ENV, true, body, "env", err) < 0)
        return -1;
    return tty ? 0 : ctl_exec_put_input(c, body, err);
}

static int ctl_exec_in_background(struct ctl *c, const char *path, json_t *body, struct err *err)
{
    AUTO_JSON *answer = NULL;

    json_object_set_new(body, "background", json_true());
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", path, text, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_printf("%s", ctl_field_text(answer, "id"));
    return 0;
}

static int ctl_exec_cancel(struct ctl_follow *f, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions/%s/cancel", f->sandbox, f->execution);

    return client_json(f->c->client, "POST", path, NULL, NULL, err);
}

/* Prints the execution as JSON with its output, which the stream did not print. */
static int ctl_exec_print_execution(const struct ctl_follow *f, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions/%s", f->sandbox, f->execution);
    AUTO_JSON *answer = NULL;

    if (client_json(f->c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    return ctl_print_json(answer);
}

static int ctl_exec_write_receipt(const struct ctl_follow *f, struct err *err)
{
    AUTO_JSON *receipt = NULL;

    if (ctl_receipt_fetch(f->c, f->sandbox, f->execution, &receipt, err) < 0)
        return -1;
    return ctl_receipt_write(f->c, receipt, err);
}

static int ctl_exec_streamed(struct ctl *c, char *sandbox, const char *path, json_t *body, struct err *err)
{
    struct ctl_follow f = {
        .c = c, .sandbox = sandbox, .is_muted = c->json, .forwards_stdin = json_object_get(body, "stdinOpen") != NULL
    };
    auto_free char *text = json_dumps(body, JSON_COMPACT);

    int bad = client_json_lines(c->client, "POST", path, text, ctl_follow_line, &f, err);
    if (!bad && f.err.id != ERR_NONE) {
        *err = f.err;
        bad = -1;
    }
    if (exec_signal && f.execution) {
        if (!c->quiet)
            report_note("ending %s; press Ctrl-C again to detach without waiting", f.execution);
        bad = ctl_exec_cancel(&f, err) < 0 ? -1 : 0;
    }
    /* The execution has started, so it survives the loss of the connection. */
    if (f.execution && !f.ended_execution && f.err.id == ERR_NONE && !ctl_stdin_feed_error(f.feed) &&
        (!bad || err->id == ERR_CUT_OFF))
        bad = ctl_follow(&f, err);
    if (!f.ended_execution && ctl_stdin_feed_error(f.feed)) { /* kill it: incomplete input is worse than none */
        struct err ignored = { 0 };

        (void)ctl_exec_cancel(&f, &ignored);
        *err = *ctl_stdin_feed_error(f.feed);
        bad = -1;
    }
    ctl_stdin_feed_free(f.feed);
    int status = exec_signal ? 128 + exec_signal : f.ended_execution ? ctl_exit_status(f.ended_execution) : 130;
    const json_t *why = json_object_get(f.ended_execution, "error");
    if (!bad && f.ended_execution && c->json)
        bad = ctl_exec_print_execution(&f, err);
    if (!bad && why) {
        enum err_id id = err_by_code(ctl_field_text(why, "code"));

        err_set(err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
        status = err_info(err->id)->exit;
        bad = c->json ? 0 : -1; /* the error is in the object */
    }
    if (!bad && f.ended_execution && !exec_signal && !c->json)
        ctl_note_end(c, f.ended_execution);
    if (!bad && f.ended_execution && !c->json)
        ctl_show_end(&f.show);
    if (!bad && f.ended_execution && args_find(&c->args, OPT_RECEIPT))
        bad = ctl_exec_write_receipt(&f, err);
    free(f.execution);
    json_decref(f.ended_execution);
    return bad ? -1 : status;
}

/* The execution is created first, so that it exists whatever happens to the connection. */
static int ctl_exec_on_terminal(struct ctl *c, const char *sandbox, const char *path, json_t *body, struct err *err)
{
    const char *term = getenv("TERM");
    json_t *env = json_object_get(body, "env");
    AUTO_JSON *answer = NULL;
    uint16_t rows, cols;

    if (c->json)
        return err_set(err, ERR_USAGE,
                       "--tty and --json exclude each other: terminal output cannot be captured as text");
    if (!args_find(&c->args, OPT_BACKGROUND) && ctl_require_terminal("cove exec -t", "omit -t", err) < 0)
        return -1;
    json_object_set_new(body, "tty", json_true());
    json_object_set_new(body, "background", json_true());
    if (term_size(STDIN_FILENO, &rows, &cols)) {
        json_object_set_new(body, "rows", json_integer(rows < 4096 ? rows : 4096));
        json_object_set_new(body, "cols", json_integer(cols < 4096 ? cols : 4096));
    }
    if (term && *term && !json_object_get(env, "TERM")) {
        if (!env)
            json_object_set_new(body, "env", env = json_object());
        json_object_set_new(env, "TERM", json_string(term));
    }
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", path, text, &answer, err) < 0)
        return -1;
    if (!args_find(&c->args, OPT_BACKGROUND))
        return ctl_terminal(c, sandbox, ctl_field_text(answer, "id"), err);
    ctl_printf("%s", ctl_field_text(answer, "id"));
    return 0;
}

/* A kept sandbox has no server that runs code, keeps executions or returns receipts. */
static int ctl_exec_in_kept(struct ctl *c, const char *sandbox, struct err *err)
{
    static const int unavailable[] = { OPT_RUNTIME,
                                       OPT_CODE,
                                       OPT_BACKGROUND,
                                       OPT_JSON,
                                       OPT_RECEIPT,
                                       OPT_LIMIT + (int)LIMIT_CPU_TIME,
                                       OPT_LIMIT + (int)LIMIT_OUTPUT };
    bool tty = args_find(&c->args, OPT_TTY) != NULL;

    for (size_t i = 0; i < ARRAY_LEN(unavailable); i++) {
        const struct arg *a = args_find(&c->args, unavailable[i]);

        if (a)
            return err_set(err, ERR_USAGE, "--%s needs a sandbox of a server; %s is kept on this host", a->opt->name,
                           sandbox);
    }
    return ctl_kept_exec(c, sandbox, c->args.nrest > 1 ? (const char *const *)(c->args.rest + 1) : exec_shell, tty,
                         tty || ctl_exec_has_input(c), err);
}

int ctl_exec(struct ctl *c, struct err *err)
{
    struct ctl_sandbox_name name = { 0 };
    AUTO_JSON *body = json_object();

    if (ctl_exec_make_body(c, body, err) < 0 || ctl_find_sandbox(c, c->args.rest[0], &name, err) < 0)
        return -1;
    auto_free char *sandbox = name.id;
    if (name.kept)
        return ctl_exec_in_kept(c, sandbox, err);
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions", sandbox);
    if (args_find(&c->args, OPT_TTY))
        return ctl_exec_on_terminal(c, sandbox, path, body, err);
    if (args_find(&c->args, OPT_BACKGROUND))
        return ctl_exec_in_background(c, path, body, err);
    if (ctl_exec_catch_signals(c, err) < 0)
        return -1;
    return ctl_exec_streamed(c, sandbox, path, body, err);
}

/* --- cove shell --- */

/* The server's terminal starts a shell by itself; piped input needs one by name. */
static int ctl_shell_on_server(struct ctl *c, char *sandbox, bool terminal, struct err *err)
{
    AUTO_JSON *body = json_object();
    int bad = 0;

    if (c->args.nrest > 1)
        bad = ctl_exec_put_command(c, body, err);
    else if (!terminal)
        json_object_set_new(body, "command", json_pack("[s,s,s]", exec_shell[0], exec_shell[1], exec_shell[2]));
    ctl_set_text(c, OPT_CWD, body, "cwd");
    if (bad || ctl_set_run_limits(c, body, err) < 0 || ctl_set_pairs(c, OPT_ENV, true, body, "env", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions", sandbox);
    if (terminal)
        return ctl_exec_on_terminal(c, sandbox, path, body, err);
    json_object_set_new(body, "stdinOpen", json_true());
    return ctl_exec_catch_signals(c, err) < 0 ? -1 : ctl_exec_streamed(c, sandbox, path, body, err);
}

int ctl_shell(struct ctl *c, struct err *err)
{
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    struct ctl_sandbox_name name = { 0 };

    if (ctl_require_args(c, 1, 1025, "shell [FLAGS] SANDBOX [COMMAND...]", err) < 0 ||
        ctl_find_sandbox(c, c->args.rest[0], &name, err) < 0)
        return -1;
    auto_free char *sandbox = name.id;
    if (!name.kept)
        return ctl_shell_on_server(c, sandbox, terminal, err);
    return ctl_kept_exec(c, sandbox, c->args.nrest > 1 ? (const char *const *)(c->args.rest + 1) : exec_shell, terminal,
                         true, err);
}
