/* The jailer that made a kept sandbox holds it and outlives the `cove run` that started it. We
 * connect to that jailer, take over the sandbox, do one operation, and leave it frozen again.
 * Two clients would thaw and freeze it against each other, so the jailer accepts one connection
 * at a time. */
#include "client/cli/kept_sandboxes.h"

#include "client/cli/denial_notes.h"
#include "client/cli/report.h"
#include "client/cli/run_options.h"
#include "client/cli/session.h"
#include "client/cli/term.h"

#include "core/base/mem.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"

#include <signal.h>
#include <unistd.h>

struct kept_visit {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *sandbox;
    struct session session;
    bool session_started;
    bool remove; /* end the sandbox as soon as we are connected */
    bool failed;
    struct err why;
    int signaled;

    const struct kept_command *command; /* NULL with `remove` */
};

static void kept_visit_fail(void *arg, const struct err *why)
{
    struct kept_visit *v = arg;

    if (!v->failed)
        v->why = *why;
    v->failed = true;
    ev_stop(v->ev);
}

static void kept_visit_on_released(void *arg, const struct err *err)
{
    struct kept_visit *v = arg;

    if (err)
        kept_visit_fail(v, err);
    ev_stop(v->ev);
}

static void kept_visit_on_refrozen(void *arg, const struct err *err)
{
    struct kept_visit *v = arg;

    if (err)
        kept_visit_fail(v, err);
    else
        sandbox_handle_keep(v->sandbox, kept_visit_on_released, v);
}

static void kept_visit_on_session_end(void *arg)
{
    struct kept_visit *v = arg;

    if (v->session.failed && !v->failed) {
        v->why = v->session.failure;
        v->failed = true;
    }
    sandbox_handle_freeze(v->sandbox, kept_visit_on_refrozen, v);
}

/* A sandbox that is not frozen, because its last client was killed, cannot be thawed; that is
 * not an error. */
static void kept_visit_on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void kept_visit_on_adopted(void *arg)
{
    struct kept_visit *v = arg;
    const struct kept_command *command = v->command;
    struct exec_spec exec = {
        .argv = command->argv,
        .env = (const char *const *)command->env,
        .cwd = command->cwd,
        .tty = command->tty,
        .rows = 24,
        .cols = 80,
        .stdin_open = command->input,
        .wall_ms = command->wall_ms,
    };
    struct session_spec spec = { &exec, command->input, command->tty && isatty(STDIN_FILENO), false, command->quiet };
    struct err why = { 0 };

    if (spec.raw)
        term_size(STDIN_FILENO, &exec.rows, &exec.cols);
    v->session_started = true;
    if (session_start(&v->session, v->ev, v->sandbox, &spec, kept_visit_on_session_end, v, &why) < 0)
        kept_visit_fail(v, &why);
}

static void kept_visit_on_sandbox_ended(void *arg, const struct err *why)
{
    struct kept_visit *v = arg;

    if (v->remove)
        ev_stop(v->ev);
    else
        kept_visit_fail(v, why);
}

static void kept_visit_on_signal(void *arg, int signo)
{
    struct kept_visit *v = arg;

    if (v->session_started)
        session_on_signal(&v->session, signo);
    else if (signo != SIGWINCH && signo != SIGTSTP && !v->remove) {
        v->signaled = signo;
        ev_stop(v->ev);
    }
}

static int kept_visit_run(struct kept_visit *v, const struct kept_access *access, const char *dir, const char *id,
                          struct err *err)
{
    static const struct engine_ops engine_ops = { kept_visit_fail };
    static const struct sandbox_handle_ops box_ops = { kept_visit_on_adopted, kept_visit_fail,
                                                       kept_visit_on_sandbox_ended };
    struct sandbox_spec spec = { .level = LEVEL_STANDARD };
    int sock;

    limits_default(&spec.limits);
    spec.limits.v[LIMIT_LIFETIME] = limit_info(LIMIT_LIFETIME)->max;
    if (access->connect(dir, id, &sock, err) < 0)
        return -1;
    if (ev_new(&v->ev, err) < 0) {
        close(sock);
        return -1;
    }
    if (engine_new(v->ev, sock, &engine_ops, v, &v->engine, err) < 0 ||
        session_catch_signals(v->ev, kept_visit_on_signal, v, err) < 0)
        return -1;
    if (!v->remove)
        engine_connect_monitor(v->engine);
    if (sandbox_handle_adopt(v->engine, id, &spec, &box_ops, v, &v->sandbox, err) < 0)
        return -1;
    if (v->remove) /* sent before the sandbox answers: it need not thaw to be ended */
        sandbox_handle_destroy(v->sandbox, kept_visit_on_released, v);
    else
        sandbox_handle_thaw(v->sandbox, kept_visit_on_thawed, v);
    ev_run(v->ev);
    if (v->failed) {
        *err = v->why;
        return -1;
    }
    return 0;
}

static void kept_visit_done(struct kept_visit *v)
{
    if (v->session_started)
        session_done(&v->session);
    sandbox_handle_free(v->sandbox);
    engine_free(v->engine);
    ev_free(v->ev);
}

int kept_sandbox_remove(const struct kept_access *access, const char *dir, const char *id, struct err *err)
{
    struct kept_visit v = { .remove = true };
    int rc = kept_visit_run(&v, access, dir, id, err);

    kept_visit_done(&v);
    return rc < 0 ? err_wrap(err, "%s", id) : 0;
}

int kept_command_read(const struct args *a, struct kept_command *ret, struct err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < a->n; i++) {
        const char *value = a->items[i].value;

        if (a->items[i].opt->id == OPT_ENV) {
            char *text = NULL;

            if (run_options_parse_env(value, &text, err) < 0)
                return -1;
            ret->env = mem_resize(ret->env, n + 2, sizeof(char *));
            ret->env[n++] = text;
            ret->env[n] = NULL;
        } else if (a->items[i].opt->id == OPT_CWD) {
            free(ret->cwd);
            ret->cwd = NULL;
            if (run_options_parse_cwd(value, &ret->cwd, err) < 0)
                return -1;
        } else if (a->items[i].opt->id == OPT_LIMIT + LIMIT_WALL &&
                   limit_parse_flag(LIMIT_WALL, value, &ret->wall_ms, err) < 0) {
            return err_wrap(err, "--timeout");
        }
    }
    ret->quiet = args_find(a, OPT_QUIET) != NULL;
    return 0;
}

void kept_command_done(struct kept_command *command)
{
    for (size_t i = 0; command->env && command->env[i]; i++)
        free(command->env[i]);
    free(command->env);
    free(command->cwd);
}

static int kept_visit_status(const struct kept_visit *v)
{
    const struct receipt *rc = v->session.receipt;
    bool quiet = v->command->quiet;

    if (v->signaled)
        return 128 + v->signaled;
    if (v->session.output_errno)
        return 128 + SIGPIPE;
    if (!quiet && rc && rc->ended_by == ENDED_TIMEOUT)
        report_note("ended: timeout (--timeout)");
    if (!quiet && rc && receipt_exit_code(rc) != 0) {
        denial_notes_limits(rc, NULL);
        denial_notes_calls(rc, true, NULL);
    }
    return rc ? receipt_exit_code(rc) : 125;
}

int kept_sandbox_exec(const struct kept_access *access, const char *dir, const char *id,
                      const struct kept_command *command, struct err *err)
{
    struct kept_visit v = { .command = command };
    int rc = kept_visit_run(&v, access, dir, id, err);
    int status = rc < 0 ? -1 : kept_visit_status(&v);

    kept_visit_done(&v);
    return status;
}
