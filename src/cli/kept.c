/* Kept sandboxes: `cove enter`, `cove ls`, `cove rm`.
 *
 * A kept sandbox is held by the jailer that made it, which outlives the `cove run` that started it. We connect to that
 * jailer, take the sandbox over, do one thing, and leave it frozen again; two at the same time would thaw and freeze it
 * under each other's feet, so the jailer takes one connection. */
#include "cli/verbs.h"

#include "cli/refused.h"
#include "cli/report.h"
#include "cli/request.h"
#include "cli/session.h"
#include "cli/state.h"
#include "cli/term.h"

#include "base/clock.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/receipt.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- which ones there are --- */

struct found {
    const char *prefix;
    char id[ID_SIZE];
    unsigned count;
};

static void match(void *arg, const char *id, uint64_t since UNUSED)
{
    struct found *f = arg;

    if (!str_starts(id, f->prefix) || strlen(id) >= ID_SIZE)
        return;
    memcpy(f->id, id, strlen(id) + 1);
    f->count++;
}

static int find_one(const struct cli_settings *settings, const char *dir, const char *prefix, char ret[ID_SIZE],
                    struct err *err)
{
    struct found f = { .prefix = prefix };

    if (!*prefix)
        return err_set(err, ERR_USAGE, "the name of a sandbox is empty");
    if (settings->list_kept(dir, match, &f, err) < 0)
        return -1;
    if (f.count == 0)
        return err_set(err, ERR_MISSING, "no kept sandbox begins with '%.40s'; 'cove ls' lists them", prefix);
    if (f.count > 1)
        return err_set(err, ERR_INVALID, "%u kept sandboxes begin with '%.40s'; write more of the name", f.count,
                       prefix);
    memcpy(ret, f.id, ID_SIZE);
    return 0;
}

struct listing {
    struct buf out;
    struct jsonw w;
    bool json;
    uint64_t now;
};

static void list_one(void *arg, const char *id, uint64_t since)
{
    struct listing *l = arg;
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

static const char *dir_of(const struct args *a, char buf[STATE_DIR_MAX])
{
    const struct arg *given = args_find(a, OPT_STATE_DIR);

    return state_dir(given ? given->value : NULL, buf);
}

int verb_ls(const struct args *a, const struct cli_settings *settings)
{
    struct listing l = { .json = args_find(a, OPT_JSON) != NULL, .now = clock_real_ns() };
    char dir[STATE_DIR_MAX];
    struct err err = { 0 };

    if (a->nrest > 0) {
        err_set(&err, ERR_USAGE, "'cove ls' takes no names");
        return report_error(&err, l.json);
    }
    jsonw_init(&l.w, &l.out, 0);
    if (l.json) {
        jsonw_object(&l.w);
        jsonw_key(&l.w, "sandboxes");
        jsonw_array(&l.w);
    }
    if (settings->list_kept(dir_of(a, dir), list_one, &l, &err) < 0) {
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

/* --- taking one over --- */

struct visit {
    struct ev *ev;
    struct engine *engine;
    struct box *box;
    struct session session;
    bool begun;
    bool remove; /* for `rm`: end it as soon as we have it */
    bool failed;
    struct err why;
    int signaled;

    const char *const *argv; /* for `enter` */
    const char *cwd;
    const char *const *env;
    uint64_t wall_ms;
    bool tty, input, terminal, quiet;
};

static void visit_fail(void *arg, const struct err *why)
{
    struct visit *v = arg;

    if (!v->failed)
        v->why = *why;
    v->failed = true;
    ev_stop(v->ev);
}

static void on_left(void *arg, const struct err *err)
{
    struct visit *v = arg;

    if (err)
        visit_fail(v, err);
    ev_stop(v->ev);
}

static void on_refrozen(void *arg, const struct err *err)
{
    struct visit *v = arg;

    if (err)
        visit_fail(v, err);
    else
        box_keep(v->box, on_left, v);
}

static void on_session_end(void *arg)
{
    struct visit *v = arg;

    if (v->session.failed && !v->failed) {
        v->why = v->session.why;
        v->failed = true;
    }
    box_freeze(v->box, on_refrozen, v);
}

/* A sandbox that is not frozen (its last visitor was killed) cannot be thawed, and need not be. */
static void on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void on_adopted(void *arg)
{
    struct visit *v = arg;
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
    v->begun = true;
    if (session_start(&v->session, v->ev, v->box, &spec, on_session_end, v, &why) < 0)
        visit_fail(v, &why);
}

static void on_box_ended(void *arg, const struct err *why)
{
    struct visit *v = arg;

    if (v->remove)
        ev_stop(v->ev);
    else
        visit_fail(v, why);
}

static void on_signal(void *arg, int signo)
{
    struct visit *v = arg;

    if (v->begun)
        session_signal(&v->session, signo);
    else if (signo != SIGWINCH && signo != SIGTSTP && !v->remove) {
        v->signaled = signo;
        ev_stop(v->ev);
    }
}

static int visit_run(struct visit *v, const struct cli_settings *settings, const char *dir, const char *id,
                     struct err *err)
{
    static const struct engine_ops engine_ops = { visit_fail };
    static const struct box_ops box_ops = { on_adopted, visit_fail, on_box_ended };
    struct box_spec spec = { .level = LEVEL_STANDARD };
    int sock;

    limits_default(&spec.limits);
    spec.limits.v[LIMIT_LIFETIME] = limit_info(LIMIT_LIFETIME)->max;
    if (settings->connect_kept(dir, id, &sock, err) < 0)
        return -1;
    if (ev_new(&v->ev, err) < 0) {
        close(sock);
        return -1;
    }
    if (engine_new(v->ev, sock, &engine_ops, v, &v->engine, err) < 0 || session_signals(v->ev, on_signal, v, err) < 0)
        return -1;
    if (!v->remove)
        engine_watch_kept(v->engine);
    if (box_adopt(v->engine, id, &spec, &box_ops, v, &v->box, err) < 0)
        return -1;
    if (v->remove) /* asked for before it answers: nobody in there needs to wake up for this */
        box_destroy(v->box, on_left, v);
    else
        box_thaw(v->box, on_thawed, v);
    ev_run(v->ev);
    if (v->failed) {
        *err = v->why;
        return -1;
    }
    return 0;
}

static void visit_done(struct visit *v)
{
    if (v->begun)
        session_done(&v->session);
    box_free(v->box);
    engine_free(v->engine);
    ev_free(v->ev);
}

/* --- the verbs --- */

static int remove_one(const struct cli_settings *settings, const char *dir, const char *id, bool quiet, struct err *err)
{
    struct visit v = { .remove = true };
    int rc = visit_run(&v, settings, dir, id, err);

    visit_done(&v);
    if (rc < 0)
        return err_wrap(err, "%s", id);
    auto_buf out = { 0 };
    buf_addf(&out, "%s\n", id);
    return quiet ? 0 : report_text(&out);
}

struct names {
    char (*ids)[ID_SIZE];
    size_t n;
};

static void collect(void *arg, const char *id, uint64_t since UNUSED)
{
    struct names *names = arg;

    if (strlen(id) >= ID_SIZE)
        return;
    names->ids = mem_resize(names->ids, names->n + 1, ID_SIZE);
    memcpy(names->ids[names->n++], id, strlen(id) + 1);
}

int verb_rm(const struct args *a, const struct cli_settings *settings)
{
    bool all = args_find(a, OPT_ALL) != NULL, quiet = args_find(a, OPT_QUIET) != NULL;
    char dirbuf[STATE_DIR_MAX], id[ID_SIZE];
    const char *dir = dir_of(a, dirbuf);
    struct names names = { 0 };
    struct err err = { 0 };
    int status = 0;

    if (all == (a->nrest > 0)) {
        err_set(&err, ERR_USAGE, "say which: 'cove rm ID...' or 'cove rm --all'");
        return report_error(&err, false);
    }
    if (all && settings->list_kept(dir, collect, &names, &err) < 0)
        status = report_error(&err, false);
    for (int i = 0; i < a->nrest; i++) {
        if (find_one(settings, dir, a->rest[i], id, &err) < 0)
            status = report_error(&err, false);
        else
            collect(&names, id, 0);
    }
    for (size_t i = 0; i < names.n; i++)
        if (remove_one(settings, dir, names.ids[i], quiet, &err) < 0)
            status = report_error(&err, false);
    free(names.ids);
    return status;
}

static int read_enter(const struct args *a, struct visit *v, struct request *hold, struct err *err)
{
    static const char *const shell[] = { "/bin/sh", "-c", "command -v bash >/dev/null && exec bash -i; exec sh -i",
                                         NULL };
    struct stat st;

    for (size_t i = 0; i < a->n; i++) {
        const char *value = a->items[i].value;
        char *text = NULL;

        if (a->items[i].opt->id == OPT_ENV) {
            if (request_env(value, &text, err) < 0)
                return -1;
            hold->env = mem_resize(hold->env, hold->nenv + 2, sizeof(char *));
            hold->env[hold->nenv++] = text;
            hold->env[hold->nenv] = NULL;
        } else if (a->items[i].opt->id == OPT_CWD) {
            free(hold->cwd);
            hold->cwd = NULL;
            if (request_cwd(value, &hold->cwd, err) < 0)
                return -1;
        } else if (a->items[i].opt->id == OPT_TIMEOUT && limit_parse(LIMIT_WALL, value, &v->wall_ms, err) < 0) {
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

static int visit_status(const struct visit *v)
{
    const struct receipt *rc = v->session.receipt;

    if (v->signaled)
        return 128 + v->signaled;
    if (v->session.broken)
        return 128 + SIGPIPE;
    if (!v->quiet && rc && rc->ended_by == ENDED_WALL)
        report_note("ended: it ran longer than --timeout allows");
    if (!v->quiet && rc && receipt_exit_code(rc) != 0) {
        refused_limits(rc);
        refused_calls(rc, true);
    }
    return rc ? receipt_exit_code(rc) : 125;
}

int verb_enter(const struct args *a, const struct cli_settings *settings)
{
    struct visit v = { .wall_ms = 3600000 };
    struct request hold = { 0 };
    char dirbuf[STATE_DIR_MAX], id[ID_SIZE];
    const char *dir = dir_of(a, dirbuf);
    struct err err = { 0 };
    int status;

    if (a->nrest == 0)
        err_set(&err, ERR_USAGE, "which sandbox? write 'cove enter ID'; 'cove ls' lists them");
    if (a->nrest == 0 || read_enter(a, &v, &hold, &err) < 0 || find_one(settings, dir, a->rest[0], id, &err) < 0 ||
        visit_run(&v, settings, dir, id, &err) < 0)
        status = report_error(&err, false);
    else
        status = visit_status(&v);
    visit_done(&v);
    request_done(&hold);
    return status;
}
