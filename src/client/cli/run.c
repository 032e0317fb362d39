/* `cove run`: from options to an exit status.
 *
 *   run_options_build -> program_resolve -> open mounts -> start the egress proxy, if the policy
 *   names a network -> start the jailer -> engine -> sandbox -> session -> destroy or keep
 *
 * Everything that can be refused without a sandbox is refused before the jailer is started. The
 * jailer is forked before the loop is made, so that it works in parallel with our setup, and before
 * signals are blocked, so that it starts with an empty signal mask. The monitor is forked only
 * after the jailer has answered, so that it does not compete for processors before that.
 *
 * When the program has ended the result is complete, but the jailer needs about a millisecond
 * more for the teardown. We wait for it only if the caller could notice: if a receipt needs
 * the final figures, and if a directory of the caller is mounted, which must not be accessed
 * after we return. */
#include "client/cli/verbs.h"

#include "client/cli/policy_select.h"
#include "client/cli/plan.h"
#include "client/cli/program.h"
#include "client/cli/report.h"
#include "client/cli/run_notes.h"
#include "client/cli/run_options.h"
#include "client/cli/session.h"
#include "client/cli/state_dir.h"
#include "client/cli/term.h"

#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/languages.h"
#include "policy/operator_network.h"
#include "sandbox/engine.h"
#include "sandbox/files.h"
#include "sandbox/hide.h"
#include "sandbox/hint.h"
#include "sandbox/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define STATUS_PIPE (128 + SIGPIPE)

struct cli_run {
    const struct cli_settings *settings;
    struct policy policy;
    struct operator_limits operator_limits;
    struct run_options options;
    struct program program;
    bool input;    /* send standard input */
    bool terminal; /* standard input is a terminal */
    struct sandbox_mount mounts[RUN_OPTIONS_BINDS_MAX + 3];
    char hidden[RUN_OPTIONS_BINDS_MAX][POLICY_TARGET_TEXT + 1]; /* targets of the mounts that hide a path */
    size_t nmounts;
    uid_t owner_uid;
    gid_t owner_gid;
    int receipt_fd;

    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *sandbox;
    struct files_job *code_job; /* transfer of long code into the sandbox */
    size_t code_sent;
    struct session session;
    bool session_started; /* session_start succeeded */
    bool is_kept;
    bool failed;
    struct err why;
    int signaled; /* signal that ended this process before the program was started; 0: none */
};

/* --- before the start --- */

/* Standard input is sent unless it is closed, or a terminal without -i or -t. */
static void cli_run_inspect_stdin(struct cli_run *r)
{
    struct stat st;
    bool null = fstat(STDIN_FILENO, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));

    r->terminal = !null && S_ISCHR(st.st_mode) && isatty(STDIN_FILENO);
    r->input = !null && (!r->terminal || r->options.interactive || r->options.tty);
}

static int cli_run_open_source(const char *path, const char *what, bool directory, struct stat *st, int *ret,
                               struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum err_id id = directory ? ERR_WORKSPACE_REFUSED : ERR_BIND_SOURCE;

    if (fd < 0)
        return err_sys(err, ERR_BIND_SOURCE, "%s %.120s", what, path);
    if (fstat(fd, st) < 0)
        return err_sys(err, ERR_SYS, "%s %.120s", what, path);
    if (directory && !S_ISDIR(st->st_mode))
        return err_set(err, id, "%s %.120s: not a directory", what, path);
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
        return err_set(err, id, "%s %.120s: only files and directories can be mounted in a sandbox", what, path);
    *ret = take_fd(&fd);
    return 0;
}

static int cli_run_open_hidden(struct cli_run *r, size_t i, struct err *err)
{
    char buf[STATE_DIR_MAX];
    const char *state = state_dir(r->options.state_dir, buf);
    int fd = -1;

    (void)mkdir(state, 0700);
    auto_fd int dir = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, ERR_SYS, "%.100s", state);
    if (hide_open(dir, r->options.workspace, r->options.binds[i].dst, r->hidden[i], &fd, err) < 0)
        return -1;
    if (fd >= 0)
        r->mounts[r->nmounts++] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, fd, r->hidden[i] };
    return 0;
}

static int cli_run_open_mounts(struct cli_run *r, struct err *err)
{
    const struct run_options *q = &r->options;
    struct stat st = { 0 };
    int fd = -1;

    r->owner_uid = getuid();
    r->owner_gid = getgid();
    if (q->workspace) {
        if (cli_run_open_source(q->workspace, "--workspace", true, &st, &fd, err) < 0)
            return -1;
        r->owner_uid = st.st_uid;
        r->owner_gid = st.st_gid;
        r->mounts[r->nmounts++] = (struct sandbox_mount){ q->cow ? SANDBOX_MOUNT_WORKSPACE_COW
                                                                 : SANDBOX_MOUNT_WORKSPACE,
                                                          fd, "/workspace" };
    }
    for (size_t i = 0; i < q->nbinds; i++) {
        bool skills = str_eq(q->binds[i].dst, "/skills");

        if (!q->binds[i].src) {
            if (cli_run_open_hidden(r, i, err) < 0)
                return -1;
            continue;
        }
        if (cli_run_open_source(q->binds[i].src, skills ? "--skills" : "--bind-ro", skills, &st, &fd, err) < 0)
            return -1;
        r->mounts[r->nmounts++] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, fd, q->binds[i].dst };
    }
    if (r->program.script_fd >= 0 && !q->workspace && fstat(r->program.script_fd, &st) == 0) {
        r->owner_uid = st.st_uid; /* so that a script that only its owner may read is readable inside */
        r->owner_gid = st.st_gid;
    }
    if (r->program.script_fd >= 0)
        r->mounts[r->nmounts++] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, take_fd(&r->program.script_fd),
                                                          r->program.script_dst };
    return 0;
}

/* Opened before the run, so that an unwritable path fails before anything is started; truncated
 * only when the receipt is written. */
static int cli_run_open_receipt(struct cli_run *r, struct err *err)
{
    if (!r->options.receipt_file)
        return 0;
    r->receipt_fd = open(r->options.receipt_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (r->receipt_fd < 0)
        return err_sys(err, ERR_INVALID, "--receipt=%.120s", r->options.receipt_file);
    return 0;
}

/* A kept sandbox would outlive its proxy. */
static int cli_run_check_network(const struct run_options *o, struct err *err)
{
    if (o->network.mode == NETWORK_NONE || !o->keep)
        return 0;
    return err_set(err, ERR_NOT_SUPPORTED_YET,
                   "--keep: the egress proxy of the sandbox ends with this command; use --net none, or a sandbox of a "
                   "server (cove sandbox create)");
}

/* Returns 0; -1 with err; or an exit status if the error has already been printed. */
static int cli_run_prepare(struct cli_run *r, const struct args *a, const struct cli_settings *settings,
                           struct err *err)
{
    int rc = policy_select(a, settings, &r->policy, &r->operator_limits, err);

    if (rc != 0)
        return rc;
    if (run_options_build(a, &r->policy, &r->operator_limits, &r->options, err) < 0 ||
        cli_run_check_network(&r->options, err) < 0)
        return -1;
    cli_run_inspect_stdin(r);
    struct program_search place = { .driver = r->options.driver, .stdin_open = r->input };
    if (program_resolve(&r->options, &place, &r->program, err) < 0)
        return -1;
    if (r->policy.has_profile)
        r->program.profile = r->policy.profile;
    return 0;
}

static int cli_run_print_plan(const struct cli_run *r)
{
    auto_buf out = { 0 };

    if (r->options.json)
        plan_json(&r->options, &r->program, &out);
    else
        plan_print(&r->options, &r->program, &out);
    return report_text(&out);
}

/* --- while it runs --- */

/* The jailer knows only the target of a mount: replaces a leading "/workspace: " with the flag and
 * the directory that the user gave. */
static void cli_run_name_source(const struct run_options *o, struct err *err)
{
    struct err inner = *err;
    const char *text = inner.msg, *src = NULL, *flag = "--bind-ro";

    if (o->workspace && str_eat(&text, "/workspace: ")) {
        flag = "--workspace";
        src = o->workspace;
    }
    for (size_t i = 0; i < o->nbinds && !src; i++) {
        text = inner.msg;
        if (o->binds[i].src && str_eat(&text, o->binds[i].dst) && str_eat(&text, ": "))
            src = o->binds[i].src;
        if (src && str_eq(o->binds[i].dst, "/skills"))
            flag = "--skills";
    }
    if (!src)
        return;
    err_set(err, inner.id, "%s %.100s: %.120s", flag, src, text);
    err->sys = inner.sys;
}

static void cli_run_fail(struct cli_run *r, const struct err *why)
{
    if (!r->failed) {
        r->why = *why;
        cli_run_name_source(&r->options, &r->why);
    }
    r->failed = true;
    ev_stop(r->ev);
}

static void cli_run_on_destroyed(void *arg, const struct err *err)
{
    struct cli_run *r = arg;

    if (err)
        cli_run_fail(r, err);
    ev_stop(r->ev);
}

static void cli_run_on_kept(void *arg, const struct err *err)
{
    struct cli_run *r = arg;

    r->is_kept = !err;
    cli_run_on_destroyed(r, err);
}

static void cli_run_on_frozen(void *arg, const struct err *err)
{
    struct cli_run *r = arg;

    if (err)
        cli_run_fail(r, err);
    else
        sandbox_handle_keep(r->sandbox, cli_run_on_kept, r);
}

static void cli_run_on_session_end(void *arg)
{
    struct cli_run *r = arg;

    if (r->session.failed)
        cli_run_fail(r, &r->session.failure);
    if (r->options.keep && !r->session.failed)
        sandbox_handle_freeze(r->sandbox, cli_run_on_frozen, r);
    else if (r->options.json || r->options.receipt || r->options.workspace)
        sandbox_handle_destroy(r->sandbox, cli_run_on_destroyed, r);
    else
        ev_stop(r->ev); /* our exit closes the connection, and the jailer destroys the sandbox */
}

static void cli_run_start_program(struct cli_run *r)
{
    const uint64_t *limits = r->options.limits.v;
    struct exec_spec exec = {
        .argv = (const char *const *)r->program.argv,
        .cwd = r->options.cwd,
        .tty = r->options.tty,
        .rows = 24,
        .cols = 80,
        .stdin_open = r->input,
        .wall_ms = limits[LIMIT_WALL],
        .cpu_ms = limits[LIMIT_CPU_TIME],
        .output_max = r->options.output_capped ? limits[LIMIT_OUTPUT] : 0,
        .changes = r->options.json || r->options.receipt,
        .unmetered = !r->options.json && !r->options.receipt,
    };
    struct session_spec spec = { &exec, r->input, r->options.tty && r->terminal, r->options.json, r->options.quiet };
    struct err err = { 0 };

    if (spec.raw)
        term_size(STDIN_FILENO, &exec.rows, &exec.cols);
    r->session_started = true;
    if (session_start(&r->session, r->ev, r->sandbox, &spec, cli_run_on_session_end, r, &err) < 0)
        cli_run_fail(r, &err);
}

static void cli_run_send_code(void *arg)
{
    struct cli_run *r = arg;
    size_t len = strlen(r->program.code);

    r->code_sent += files_send(r->code_job, r->program.code + r->code_sent, len - r->code_sent);
    if (r->code_sent == len)
        files_send_end(r->code_job);
}

static void cli_run_on_code_written(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct cli_run *r = arg;

    if (err)
        cli_run_fail(r, err);
    else
        cli_run_start_program(r);
}

static void cli_run_on_ready(void *arg)
{
    static const struct files_ops ops = { .on_writable = cli_run_send_code, .on_done = cli_run_on_code_written };
    struct cli_run *r = arg;
    struct err err = { 0 };

    if (r->options.keep && !sandbox_handle_can_freeze(r->sandbox)) { /* checked before the start, so no work is lost */
        err_set(&err, ERR_NO_CGROUP,
                "--keep needs a cgroup to freeze the sandbox, and this user has none; log in through systemd on a host "
                "with cgroup v2 (or run loginctl enable-linger), or run as root");
        cli_run_fail(r, &err);
    } else if (!r->program.code)
        cli_run_start_program(r);
    else if (files_open(r->sandbox, &(struct files_request){ FILES_OP_WRITE, LANGUAGE_CODE_FILE, .mode = 0644 }, &ops,
                        r, &r->code_job, &err) < 0)
        cli_run_fail(r, &err);
    else
        cli_run_send_code(r);
}

static void cli_run_on_failed(void *arg, const struct err *err)
{
    cli_run_fail(arg, err);
}

static void cli_run_on_sandbox_ended(void *arg, const struct err *why)
{
    struct cli_run *r = arg;

    if (!r->session.ended)
        cli_run_fail(r, why);
    /* Else the last output may still wait for a slow reader; on_end removes the rest when
     * it is written. */
}

/* While the sandbox raises its walls, this process and the jailer are idle: a processor is free. */
static void cli_run_on_sandbox_created(void *arg)
{
    struct cli_run *r = arg;
    struct err err = { 0 };
    int monitor;

    if (r->settings->start_monitor(&monitor, &err) < 0 || engine_set_monitor(r->engine, monitor, &err) < 0)
        cli_run_fail(r, &err);
}

static void cli_run_on_signal(void *arg, int signo)
{
    struct cli_run *r = arg;

    if (r->session_started) {
        session_on_signal(&r->session, signo);
        return;
    }
    if (signo == SIGWINCH || signo == SIGTSTP)
        return;
    r->signaled = signo;
    ev_stop(r->ev);
}

/* *ret_egress is -1 without a network. */
static int cli_run_start_jailer(struct cli_run *r, int *ret_egress, int *ret_jailer, struct err *err)
{
    char dir[STATE_DIR_MAX];

    *ret_egress = -1;
    auto_free char *open_ranges = operator_network_open_ranges(&r->operator_limits);
    if (r->options.network.mode != NETWORK_NONE && r->settings->start_egress(open_ranges, ret_egress, err) < 0)
        return -1;
    return r->settings->start_jailer(state_dir(r->options.state_dir, dir), r->options.keep, ret_jailer, err);
}

static int cli_run_start(struct cli_run *r, const struct cli_settings *settings, struct err *err)
{
    static const struct engine_ops engine_ops = { cli_run_on_failed };
    static const struct sandbox_handle_ops box_ops = { cli_run_on_ready, cli_run_on_failed, cli_run_on_sandbox_ended,
                                                       cli_run_on_sandbox_created };
    int jailer, egress;
    struct sandbox_spec spec = {
        .driver = r->options.driver,
        .network = r->options.network,
        .secrets = r->options.secrets,
        .nsecrets = r->options.nsecrets,
        .level = r->options.level,
        .policy = r->policy.name,
        .profile = r->program.profile,
        .grants = r->options.grants,
        .require_all_walls = r->operator_limits.requires_every_wall,
        .require_enforced = r->operator_limits.must_enforce,
        .limits = r->options.limits,
        .env = (const char *const *)r->options.env,
        .mounts = r->mounts,
        .nmounts = r->nmounts,
        .owner_uid = r->owner_uid,
        .owner_gid = r->owner_gid,
    };

    memcpy(spec.deny, r->options.deny, sizeof(spec.deny));
    r->settings = settings;
    if (cli_run_start_jailer(r, &egress, &jailer, err) < 0)
        return -1;
    if (ev_new(&r->ev, err) < 0 || engine_new(r->ev, jailer, &engine_ops, r, &r->engine, err) < 0)
        return -1; /* the exit of the process closes the descriptors */
    if (egress >= 0 && engine_set_egress(r->engine, egress, err) < 0)
        return -1;
    if (session_catch_signals(r->ev, cli_run_on_signal, r, err) < 0)
        return -1;
    return sandbox_handle_new(r->engine, &spec, &box_ops, r, &r->sandbox, err);
}

/* --- the result --- */

static void cli_run_print_json(const struct cli_run *r, const struct receipt *rc)
{
    auto_buf out = { 0 };
    char hint[HINT_MAX];
    struct jsonw w;

    jsonw_init(&w, &out, report_json_indent());
    jsonw_object(&w);
    session_json(&r->session, r->failed, &w);
    jsonw_kstr(&w, "sandboxId", sandbox_handle_id(r->sandbox));
    jsonw_kbool(&w, "kept", r->is_kept);
    if (run_notes_write_hint(rc, &r->session.failure_texts, hint))
        jsonw_kstr(&w, "hint", hint);
    if (r->failed)
        report_error_json(&w, &r->why);
    jsonw_key(&w, "receipt");
    receipt_json(rc, &w);
    jsonw_end_object(&w);
    buf_adds(&out, "\n");
    fd_write_all(STDOUT_FILENO, out.data, out.len);
}

static int cli_run_write_receipt(const struct cli_run *r, const struct receipt *rc, struct err *err)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (r->receipt_fd < 0) {
        receipt_print(rc, &out);
        fd_write_all(STDERR_FILENO, out.data, out.len);
        return 0;
    }
    jsonw_init(&w, &out, 2);
    receipt_json(rc, &w);
    buf_adds(&out, "\n");
    if (ftruncate(r->receipt_fd, 0) < 0 && errno != EINVAL) /* EINVAL: a pipe or a device cannot be truncated */
        return err_sys(err, ERR_SYS, "--receipt=%.120s", r->options.receipt_file);
    if (fd_write_all(r->receipt_fd, out.data, out.len) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "--receipt=%.120s", r->options.receipt_file);
    return 0;
}

static int cli_run_conclude(struct cli_run *r)
{
    const struct receipt *rc = r->session_started && r->session.exec && r->session.receipt
                                   ? exec_handle_receipt(r->session.exec)
                                   : NULL;
    struct err err = { 0 };

    if (r->signaled)
        return 128 + r->signaled;
    if (!rc)
        return report_error(&r->why, r->options.json);
    if (r->session.output_errno && r->session.output_errno != EPIPE) {
        errno = r->session.output_errno;
        err_sys(&err, errno == ENOSPC || errno == EDQUOT ? ERR_DISK_FULL : ERR_SYS, "writing to standard output");
        return report_error(&err, false);
    }
    if (r->options.json)
        cli_run_print_json(r, rc);
    else if (!r->options.quiet)
        run_notes_print(&r->options, rc, &r->session.failure_texts, r->session.output_errno == 0);
    if (r->options.receipt && cli_run_write_receipt(r, rc, &err) < 0)
        return report_error(&err, false);
    if (r->is_kept && !r->options.json && !r->options.quiet)
        run_notes_kept(sandbox_handle_id(r->sandbox));
    if (r->failed)
        return r->options.json ? err_info(r->why.id)->exit : report_error(&r->why, false);
    return r->session.output_errno ? STATUS_PIPE : receipt_exit_code(rc);
}

/* Cleanup of a run that was not started. */
static void cli_run_done(struct cli_run *r)
{
    engine_free(r->engine);
    ev_free(r->ev);
    for (size_t i = 0; i < r->nmounts; i++)
        fd_close(&r->mounts[i].fd);
    fd_close(&r->receipt_fd);
    program_done(&r->program);
    run_options_done(&r->options);
    policy_done(&r->policy);
    operator_limits_done(&r->operator_limits);
}

/* A started run is not cleaned up step by step: the exit of this process does the same faster. The
 * jailer and the monitor each see the end of their sockets. */
int verb_run(const struct args *a, const struct cli_settings *settings)
{
    static struct cli_run r = { .receipt_fd = -1, .program.script_fd = -1 };
    bool json = args_find(a, OPT_JSON) != NULL;
    int status;

    status = cli_run_prepare(&r, a, settings, &r.why);
    if (status < 0) {
        status = report_error(&r.why, json);
    } else if (status > 0) {
        /* the error is already printed */
    } else if (r.options.dry_run) {
        status = cli_run_print_plan(&r);
    } else if (cli_run_open_mounts(&r, &r.why) < 0 || cli_run_open_receipt(&r, &r.why) < 0 ||
               cli_run_start(&r, settings, &r.why) < 0) {
        status = report_error(&r.why, json);
    } else {
        ev_run(r.ev);
        return cli_run_conclude(&r);
    }
    cli_run_done(&r);
    return status;
}
