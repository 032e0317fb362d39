/* Kept sandboxes: `cove enter`, `cove ls`, `cove rm`.
 *
 * The jailer that made a kept sandbox holds it and outlives the `cove run` that started it. We
 * connect to that jailer, take over the sandbox, do one operation, and leave it frozen again.
 * Two clients would thaw and freeze it against each other, so the jailer accepts one connection
 * at a time. */
#include "client/cli/verbs.h"

#include "client/cli/denial_notes.h"
#include "client/cli/report.h"
#include "client/cli/run_options.h"
#include "client/cli/session.h"
#include "client/cli/state_dir.h"
#include "client/cli/term.h"

#include "core/base/clock.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- listing --- */

struct kept_match {
    const char *prefix;
    char id[ID_SIZE];
    unsigned count;
};

static void kept_match_prefix(void *arg, const char *id, uint64_t since UNUSED)
{
    struct kept_match *f = arg;

    if (!str_starts(id, f->prefix) || strlen(id) >= ID_SIZE)
        return;
    memcpy(f->id, id, strlen(id) + 1);
    f->count++;
}

static int kept_find_one(const struct cli_settings *settings, const char *dir, const char *prefix, char ret[ID_SIZE],
                         struct err *err)
{
    struct kept_match f = { .prefix = prefix };

    if (!*prefix)
        return err_set(err, ERR_USAGE, "the ID of a sandbox is empty; 'cove ls' lists the kept sandboxes");
    if (settings->list_kept(dir, kept_match_prefix, &f, err) < 0)
        return -1;
    if (f.count == 0)
        return err_set(err, ERR_MISSING, "no kept sandbox begins with '%.40s'; 'cove ls' lists the kept sandboxes",
                       prefix);
    if (f.count > 1)
        return err_set(err, ERR_INVALID, "%u kept sandboxes begin with '%.40s'; write more of the ID", f.count, prefix);
    memcpy(ret, f.id, ID_SIZE);
    return 0;
}

struct kept_listing {
    struct buf out;
    struct jsonw w;
    bool json;
    uint64_t now;
};

static void kept_list_one(void *arg, const char *id, uint64_t since)
{
    struct kept_listing *l = arg;
    char stamp[32], ago[32];
    uint64_t ms = l->now > since ? (l->now - since) / NS_PER_MS : 0;

    if (!l->json) {
        buf_addf(&l->out, "%s  kept %s ago\n", id, str_ms(ms < 1000 ? ms : ms / 1000 * 1000, ago));
        return;
    }
    jsonw_object(&l->w);
    jsonw_kstr(&l->w, "id", id);
    jsonw_kstr(&l->w, "keptSince", clock_rfc3339(since, stamp));
    jsonw_end_object(&l->w);
}

static const char *kept_state_dir(const struct args *a, char buf[STATE_DIR_MAX])
{
    const struct arg *given = args_find(a, OPT_STATE_DIR);

    return state_dir(given ? given->value : NULL, buf);
}

int verb_ls(const struct args *a, const struct cli_settings *settings)
{
    struct kept_listing l = { .json = args_find(a, OPT_JSON) != NULL, .now = clock_real_ns() };
    char dir[STATE_DIR_MAX];
    struct err err = { 0 };

    if (a->nrest > 0) {
        err_set(&err, ERR_USAGE, "'cove ls' takes no arguments; 'cove sandbox ls' lists the sandboxes of a server");
        return report_error(&err, l.json);
    }
    jsonw_init(&l.w, &l.out, 0);
    if (l.json) {
        jsonw_object(&l.w);
        jsonw_key(&l.w, "sandboxes");
        jsonw_array(&l.w);
    }
    if (settings->list_kept(kept_state_dir(a, dir), kept_list_one, &l, &err) < 0) {
        buf_done(&l.out);
        return report_error(&err, l.json);
    }
    if (l.json) {
        jsonw_end_array(&l.w);
        jsonw_end_object(&l.w);
        buf_adds(&l.out, "\n");
    }
    int rc = report_text(&l.out);
    buf_done(&l.out);
    return rc;
}

/* --- connecting to one --- */

struct kept_visit {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *sandbox;
    struct session session;
    bool session_started;
    bool remove; /* for `rm`: end the sandbox as soon as we are connected */
    bool failed;
    struct err why;
    int signaled;

    const char *const *argv; /* for `enter` */
    const char *cwd;
    const char *const *env;
    uint64_t wall_ms;
    bool tty, input, terminal, quiet;
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

/* A sandbox that is not frozen, because the last `cove enter` was killed, cannot be thawed; that is
 * not an error. */
static void kept_visit_on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void kept_visit_on_adopted(void *arg)
{
    struct kept_visit *v = arg;
    struct exec_spec exec = {
        .argv = v->argv,
        .env = v->env,
        .cwd = v->cwd,
        .tty = v->tty,
        .rows = 24,
        .cols = 80,
        .stdin_open = v->input,
        .wall_ms = v->wall_ms,
    };
    struct session_spec spec = { &exec, v->input, v->tty && v->terminal, false, v->quiet };
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

static int kept_visit_run(struct kept_visit *v, const struct cli_settings *settings, const char *dir, const char *id,
                          struct err *err)
{
    static const struct engine_ops engine_ops = { kept_visit_fail };
    static const struct sandbox_handle_ops box_ops = { kept_visit_on_adopted, kept_visit_fail,
                                                       kept_visit_on_sandbox_ended };
    struct sandbox_spec spec = { .level = LEVEL_STANDARD };
    int sock;

    limits_default(&spec.limits);
    spec.limits.v[LIMIT_LIFETIME] = limit_info(LIMIT_LIFETIME)->max;
    if (settings->connect_kept(dir, id, &sock, err) < 0)
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

/* --- the verbs --- */

static int kept_remove_one(const struct cli_settings *settings, const char *dir, const char *id, bool quiet,
                           struct err *err)
{
    struct kept_visit v = { .remove = true };
    int rc = kept_visit_run(&v, settings, dir, id, err);

    kept_visit_done(&v);
    if (rc < 0)
        return err_wrap(err, "%s", id);
    auto_buf out = { 0 };
    buf_addf(&out, "%s\n", id);
    return quiet ? 0 : report_text(&out);
}

struct kept_ids {
    char (*ids)[ID_SIZE];
    size_t n;
};

static void kept_collect_id(void *arg, const char *id, uint64_t since UNUSED)
{
    struct kept_ids *names = arg;

    if (strlen(id) >= ID_SIZE)
        return;
    names->ids = mem_resize(names->ids, names->n + 1, ID_SIZE);
    memcpy(names->ids[names->n++], id, strlen(id) + 1);
}

int verb_rm(const struct args *a, const struct cli_settings *settings)
{
    bool all = args_find(a, OPT_ALL) != NULL, quiet = args_find(a, OPT_QUIET) != NULL;
    char dirbuf[STATE_DIR_MAX], id[ID_SIZE];
    const char *dir = kept_state_dir(a, dirbuf);
    struct kept_ids names = { 0 };
    struct err err = { 0 };
    int status = 0;

    if (all == (a->nrest > 0)) {
        err_set(&err, ERR_USAGE, "usage: cove rm ID..., or cove rm --all");
        return report_error(&err, false);
    }
    if (all && settings->list_kept(dir, kept_collect_id, &names, &err) < 0)
        status = report_error(&err, false);
    for (int i = 0; i < a->nrest; i++) {
        if (kept_find_one(settings, dir, a->rest[i], id, &err) < 0)
            status = report_error(&err, false);
        else
            kept_collect_id(&names, id, 0);
    }
    for (size_t i = 0; i < names.n; i++)
        if (kept_remove_one(settings, dir, names.ids[i], quiet, &err) < 0)
            status = report_error(&err, false);
    free(names.ids);
    return status;
}

static int kept_read_enter_args(const struct args *a, struct kept_visit *v, struct run_options *hold, struct err *err)
{
    static const char *const shell[] = { "/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i",
                                         NULL };
    struct stat st;

    for (size_t i = 0; i < a->n; i++) {
        const char *value = a->items[i].value;
        char *text = NULL;

        if (a->items[i].opt->id == OPT_ENV) {
            if (run_options_parse_env(value, &text, err) < 0)
                return -1;
            hold->env = mem_resize(hold->env, hold->nenv + 2, sizeof(char *));
            hold->env[hold->nenv++] = text;
            hold->env[hold->nenv] = NULL;
        } else if (a->items[i].opt->id == OPT_CWD) {
            free(hold->cwd);
            hold->cwd = NULL;
            if (run_options_parse_cwd(value, &hold->cwd, err) < 0)
                return -1;
        } else if (a->items[i].opt->id == OPT_LIMIT + LIMIT_WALL && limit_parse_flag(LIMIT_WALL, value, &v->wall_ms, err) < 0) {
            return err_wrap(err, "--timeout");
        }
    }
    v->argv = a->nrest > 1 ? (const char *const *)(a->rest + 1) : shell;
    v->env = (const char *const *)hold->env;
    v->cwd = hold->cwd;
    v->quiet = args_find(a, OPT_QUIET) != NULL;
    v->terminal = fstat(STDIN_FILENO, &st) == 0 && S_ISCHR(st.st_mode) && isatty(STDIN_FILENO);
    v->tty = args_find(a, OPT_TTY) || (v->terminal && isatty(STDOUT_FILENO));
    v->input = !v->terminal || v->tty;
    return 0;
}

static int kept_visit_status(const struct kept_visit *v)
{
    const struct receipt *rc = v->session.receipt;

    if (v->signaled)
        return 128 + v->signaled;
    if (v->session.output_errno)
        return 128 + SIGPIPE;
    if (!v->quiet && rc && rc->ended_by == ENDED_TIMEOUT)
        report_note("ended: timeout (--timeout)");
    if (!v->quiet && rc && receipt_exit_code(rc) != 0) {
        denial_notes_limits(rc);
        denial_notes_calls(rc, true);
    }
    return rc ? receipt_exit_code(rc) : 125;
}

int verb_enter(const struct args *a, const struct cli_settings *settings)
{
    struct kept_visit v = { .wall_ms = 3600000 };
    struct run_options hold = { 0 };
    char dirbuf[STATE_DIR_MAX], id[ID_SIZE];
    const char *dir = kept_state_dir(a, dirbuf);
    struct err err = { 0 };
    int status;

    if (a->nrest == 0)
        err_set(&err, ERR_USAGE, "usage: cove enter ID; 'cove ls' lists the kept sandboxes");
    if (a->nrest == 0 || kept_read_enter_args(a, &v, &hold, &err) < 0 ||
        kept_find_one(settings, dir, a->rest[0], id, &err) < 0 || kept_visit_run(&v, settings, dir, id, &err) < 0)
        status = report_error(&err, false);
    else
        status = kept_visit_status(&v);
    kept_visit_done(&v);
    run_options_done(&hold);
    return status;
}
