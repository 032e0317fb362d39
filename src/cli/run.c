/* `cove run`: from a request to an exit status.
 *
 *   request_build -> program_resolve -> open mounts -> start the jailer -> engine -> box -> session -> destroy or keep
 *
 * Everything that can be refused without a sandbox is refused before the jailer is started. The jailer is forked before
 * the loop is made, so that it works while we set up, and before signals are blocked, so that it starts with a clean
 * mask. The monitor is forked when the jailer has answered: until then all processors are busy with what we wait for.
 *
 * The result is there when the program has ended, and the jailer needs a millisecond more to remove every trace. We
 * wait for that only where a caller could tell the difference: when a receipt wants its final figures, and when the
 * sandbox holds a directory of the caller, which nothing may touch after we returned. */
#include "cli/verbs.h"

#include "cli/choose.h"
#include "cli/host.h"
#include "cli/plan.h"
#include "cli/program.h"
#include "cli/refused.h"
#include "cli/report.h"
#include "cli/request.h"
#include "engine/runtimes.h"
#include "cli/session.h"
#include "cli/state.h"
#include "cli/term.h"

#include "base/fd.h"
#include "base/jsonw.h"
#include "base/mem.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/files.h"
#include "engine/hide.h"
#include "engine/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define STATUS_PIPE (128 + SIGPIPE)

struct run {
    const struct cli_settings *settings;
    struct policy policy;
    struct floor floor;
    struct request req;
    struct program prog;
    bool input;    /* pass on standard input */
    bool terminal; /* standard input is one */
    struct box_mount mounts[REQUEST_BINDS_MAX + 3];
    char hidden[REQUEST_BINDS_MAX][POLICY_TARGET_TEXT + 1]; /* where those of the mounts go that hide something */
    size_t nmounts;
    uid_t owner_uid;
    gid_t owner_gid;
    int receipt_fd;

    struct ev *ev;
    struct engine *engine;
    struct box *box;
    struct files_job *code_job; /* a long text on its way into the sandbox */
    size_t code_sent;
    struct session session;
    bool begun; /* the session was started */
    bool kept;
    bool failed;
    struct err why;
    int signaled; /* a signal ended us before the program was started */
};

/* --- before anything is started --- */

/* Standard input is passed on unless it is a terminal nobody asked for, or nothing at all. */
static void look_at_stdin(struct run *r)
{
    struct stat st;
    bool null = fstat(STDIN_FILENO, &st) < 0 || (S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));

    r->terminal = !null && S_ISCHR(st.st_mode) && isatty(STDIN_FILENO);
    r->input = !null && (!r->terminal || r->req.interactive || r->req.tty);
}

static int open_source(const char *path, const char *what, bool directory, struct stat *st, int *ret, struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum err_id id = directory ? ERR_WORKSPACE_REFUSED : ERR_BIND_SOURCE;

    if (fd < 0)
        return err_sys(err, ERR_BIND_SOURCE, "%s %.120s", what, path);
    if (fstat(fd, st) < 0)
        return err_sys(err, ERR_SYS, "%s %.120s", what, path);
    if (directory && !S_ISDIR(st->st_mode))
        return err_set(err, id, "%s %.120s: it is not a directory", what, path);
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
        return err_set(err, id, "%s %.120s: only files and directories can be shown to a sandbox", what, path);
    *ret = take_fd(&fd);
    return 0;
}

static int open_hidden(struct run *r, size_t i, struct err *err)
{
    char buf[STATE_DIR_MAX];
    const char *state = state_dir(r->req.state_dir, buf);
    int fd = -1;

    (void)mkdir(state, 0700);
    auto_fd int dir = open(state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, ERR_SYS, "%.100s", state);
    if (hide_open(dir, r->req.workspace, r->req.binds[i].dst, r->hidden[i], &fd, err) < 0)
        return -1;
    if (fd >= 0)
        r->mounts[r->nmounts++] = (struct box_mount){ BOX_BIND_RO, fd, r->hidden[i] };
    return 0;
}

static int open_mounts(struct run *r, struct err *err)
{
    const struct request *q = &r->req;
    struct stat st = { 0 };
    int fd = -1;

    r->owner_uid = getuid();
    r->owner_gid = getgid();
    if (q->workspace) {
        if (open_source(q->workspace, "--workspace", true, &st, &fd, err) < 0)
            return -1;
        r->owner_uid = st.st_uid;
        r->owner_gid = st.st_gid;
        r->mounts[r->nmounts++] = (struct box_mount){ q->cow ? BOX_WORKSPACE_COW : BOX_WORKSPACE, fd, "/workspace" };
    }
    for (size_t i = 0; i < q->nbinds; i++) {
        bool skills = str_eq(q->binds[i].dst, "/skills");

        if (!q->binds[i].src) {
            if (open_hidden(r, i, err) < 0)
                return -1;
            continue;
        }
        if (open_source(q->binds[i].src, skills ? "--skills" : "--bind-ro", skills, &st, &fd, err) < 0)
            return -1;
        r->mounts[r->nmounts++] = (struct box_mount){ BOX_BIND_RO, fd, q->binds[i].dst };
    }
    if (r->prog.script_fd >= 0 && !q->workspace && fstat(r->prog.script_fd, &st) == 0) {
        r->owner_uid = st.st_uid; /* so that a script which only its owner may read can be read inside */
        r->owner_gid = st.st_gid;
    }
    if (r->prog.script_fd >= 0)
        r->mounts[r->nmounts++] = (struct box_mount){ BOX_BIND_RO, take_fd(&r->prog.script_fd), r->prog.script_dst };
    return 0;
}

/* Opened before the run, so that a place that cannot be written is known before anything happens; emptied only when
 * there is something to put into it. */
static int open_receipt(struct run *r, struct err *err)
{
    if (!r->req.receipt_file)
        return 0;
    r->receipt_fd = open(r->req.receipt_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (r->receipt_fd < 0)
        return err_sys(err, ERR_INVALID, "--receipt=%.120s", r->req.receipt_file);
    return 0;
}

/* 0; -1 with err; or the exit status of one who has told the user already. */
static int prepare(struct run *r, const struct args *a, const struct cli_settings *settings, struct err *err)
{
    int rc = choose_policy(a, settings, &r->policy, &r->floor, err);

    if (rc != 0)
        return rc;
    if (request_build(a, &r->policy, &r->floor, &r->req, err) < 0)
        return -1;
    look_at_stdin(r);
    struct program_place place = { runtime_dirs, r->input };
    if (program_resolve(&r->req, &place, &r->prog, err) < 0)
        return -1;
    if (r->policy.has_profile)
        r->prog.profile = r->policy.profile;
    return 0;
}

static int dry_run(const struct run *r)
{
    auto_buf out = { 0 };

    if (r->req.json)
        plan_json(&r->req, &r->prog, &out);
    else
        plan_print(&r->req, &r->prog, &out);
    return report_text(&out);
}

/* --- while it runs --- */

static void fail(struct run *r, const struct err *why)
{
    if (!r->failed)
        r->why = *why;
    r->failed = true;
    ev_stop(r->ev);
}

static void on_destroyed(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (err)
        fail(r, err);
    ev_stop(r->ev);
}

static void on_kept(void *arg, const struct err *err)
{
    struct run *r = arg;

    r->kept = !err;
    on_destroyed(r, err);
}

static void on_frozen(void *arg, const struct err *err)
{
    struct run *r = arg;

    if (err)
        fail(r, err);
    else
        box_keep(r->box, on_kept, r);
}

static void on_end(void *arg)
{
    struct run *r = arg;

    if (r->session.failed)
        fail(r, &r->session.why);
    if (r->req.keep && !r->session.failed)
        box_freeze(r->box, on_frozen, r);
    else if (r->req.json || r->req.receipt || r->req.workspace)
        box_destroy(r->box, on_destroyed, r);
    else
        ev_stop(r->ev); /* our exit lets go of the sandbox, and its jailer destroys it */
}

static void start_program(struct run *r)
{
    const uint64_t *limits = r->req.limits.v;
    struct exec_spec exec = {
        .argv = (const char *const *)r->prog.argv,
        .cwd = r->req.cwd,
        .tty = r->req.tty,
        .rows = 24,
        .cols = 80,
        .stdin_open = r->input,
        .wall_ms = limits[LIMIT_WALL],
        .cpu_ms = limits[LIMIT_CPU_TIME],
        .output_max = r->req.output_capped ? limits[LIMIT_OUTPUT] : 0,
        .changes = r->req.json || r->req.receipt,
        .unmetered = !r->req.json && !r->req.receipt,
    };
    struct session_spec spec = { &exec, r->input, r->req.tty && r->terminal, r->req.json, r->req.quiet };
    struct err err = { 0 };

    if (spec.raw)
        term_size(STDIN_FILENO, &exec.rows, &exec.cols);
    r->begun = true;
    if (session_start(&r->session, r->ev, r->box, &spec, on_end, r, &err) < 0)
        fail(r, &err);
}

static void send_code(void *arg)
{
    struct run *r = arg;
    size_t len = strlen(r->prog.code);

    r->code_sent += files_send(r->code_job, r->prog.code + r->code_sent, len - r->code_sent);
    if (r->code_sent == len)
        files_send_end(r->code_job);
}

static void on_code_there(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct run *r = arg;

    if (err)
        fail(r, err);
    else
        start_program(r);
}

static void on_ready(void *arg)
{
    static const struct files_ops ops = { .on_writable = send_code, .on_done = on_code_there };
    struct run *r = arg;
    struct err err = { 0 };

    if (r->req.keep && !box_can_freeze(r->box)) { /* found out now, while no work can be lost */
        err_set(&err, ERR_NO_CGROUP,
                "--keep freezes the sandbox, and this user has no cgroup to freeze it in: log in through systemd on a "
                "host with cgroup v2 (or loginctl enable-linger), or run as root");
        fail(r, &err);
    } else if (!r->prog.code)
        start_program(r);
    else if (files_write(r->box, RUNTIME_CODE_FILE, 0644, 0, &ops, r, &r->code_job, &err) < 0)
        fail(r, &err);
    else
        send_code(r);
}

static void on_failed(void *arg, const struct err *err)
{
    fail(arg, err);
}

static void on_ended(void *arg, const struct err *why)
{
    struct run *r = arg;

    if (!r->session.ended)
        fail(r, why);
    /* Else its last output may still wait for a slow reader; when that is written on_end removes what is left. */
}

/* While the sandbox builds its walls we have nothing to do, and neither has the jailer: a processor is free. */
static void on_made(void *arg)
{
    struct run *r = arg;
    struct err err = { 0 };
    int monitor;

    if (r->settings->start_monitor(&monitor, &err) < 0 || engine_watch(r->engine, monitor, &err) < 0)
        fail(r, &err);
}

static void on_signal(void *arg, int signo)
{
    struct run *r = arg;

    if (r->begun) {
        session_signal(&r->session, signo);
        return;
    }
    if (signo == SIGWINCH || signo == SIGTSTP)
        return;
    r->signaled = signo;
    ev_stop(r->ev);
}

static int start(struct run *r, const struct cli_settings *settings, struct err *err)
{
    static const struct engine_ops engine_ops = { on_failed };
    static const struct box_ops box_ops = { on_ready, on_failed, on_ended, on_made };
    char dir[STATE_DIR_MAX];
    int jailer;
    struct box_spec spec = {
        .level = r->req.level,
        .policy = r->policy.name,
        .profile = r->prog.profile,
        .grants = r->req.grants,
        .every_wall = r->floor.every_wall,
        .enforce = r->floor.enforce,
        .limits = r->req.limits,
        .env = (const char *const *)r->req.env,
        .mounts = r->mounts,
        .nmounts = r->nmounts,
        .owner_uid = r->owner_uid,
        .owner_gid = r->owner_gid,
    };

    memcpy(spec.deny, r->req.deny, sizeof(spec.deny));
    r->settings = settings;
    if (settings->start_jailer(state_dir(r->req.state_dir, dir), r->req.keep, &jailer, err) < 0)
        return -1;
    if (ev_new(&r->ev, err) < 0 || engine_new(r->ev, jailer, &engine_ops, r, &r->engine, err) < 0)
        return -1; /* the descriptors go with the process */
    if (session_signals(r->ev, on_signal, r, err) < 0)
        return -1;
    return box_new(r->engine, &spec, &box_ops, r, &r->box, err);
}

/* --- what is said at the end --- */

static void explain_end(const struct run *r, const struct receipt *rc)
{
    char text[LIMIT_TEXT];
    const uint64_t *v = r->req.limits.v;

    switch (rc->ended_by) {
    case ENDED_WALL:
        report_note("ended: it ran longer than %s (--timeout)", limit_print(LIMIT_WALL, v[LIMIT_WALL], text));
        break;
    case ENDED_CPU:
        report_note("ended: it used more than %s of processor time (--cpu-time)",
                    limit_print(LIMIT_CPU_TIME, v[LIMIT_CPU_TIME], text));
        break;
    case ENDED_MEMORY:
        report_note("ended: it needed more than %s of memory (--memory)",
                    limit_print(LIMIT_MEMORY, v[LIMIT_MEMORY], text));
        break;
    case ENDED_LIFETIME:
        report_note("ended: the sandbox lived longer than %s (--lifetime)",
                    limit_print(LIMIT_LIFETIME, v[LIMIT_LIFETIME], text));
        break;
    case ENDED_LOST:
        report_note("the sandbox was lost before the program ended");
        break;
    default:
        break;
    }
    if (rc->dropped_bytes)
        report_note("%s of output past the limit were dropped (--max-output)", str_size(rc->dropped_bytes, text));
}

/* Walls refuse, limits report: what this host cannot enforce is said once, in one line. */
static void explain_limits(const struct run *r, const struct receipt *rc)
{
    auto_buf names = { 0 };

    for (int i = 0; i < LIMIT_COUNT; i++) {
        bool asked = r->req.chosen >> i & 1 || i == LIMIT_MEMORY || i == LIMIT_CPU || i == LIMIT_PIDS;

        if (asked && rc->enforced[i] < 2 && !limit_unlimited((enum limit)i, r->req.limits.v[i])) {
            const struct limit_info *info = limit_info((enum limit)i);

            buf_addf(&names, "%s%s%s (%s)", names.len ? ", " : "", info->flag ? "--" : "",
                     info->flag ? info->flag : info->name, rc->enforced[i] ? "in part" : "not at all");
        }
    }
    if (!names.len)
        return;
    /* The one cause that its reader can often do something about. */
    bool homeless = receipt_rootless(rc) && str_eq(rc->cgroup, "none");
    report_note("this host does not fully enforce: %s%s%s", names.data, homeless ? "; " : "",
                homeless ? host_cgroup_cure_here() : "");
}

static void print_json(const struct run *r, const struct receipt *rc)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    session_json(&r->session, &w);
    jsonw_kstr(&w, "sandbox", box_id(r->box));
    jsonw_kbool(&w, "kept", r->kept);
    if (r->failed)
        report_error_json(&w, &r->why);
    jsonw_key(&w, "receipt");
    receipt_json(rc, &w);
    jsonw_end_object(&w);
    buf_adds(&out, "\n");
    fd_write_all(STDOUT_FILENO, out.data, out.len);
}

static int write_receipt(const struct run *r, const struct receipt *rc, struct err *err)
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
    if (ftruncate(r->receipt_fd, 0) < 0 && errno != EINVAL) /* EINVAL: a pipe or a device has no length */
        return err_sys(err, ERR_SYS, "--receipt=%.120s", r->req.receipt_file);
    if (fd_write_all(r->receipt_fd, out.data, out.len) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "--receipt=%.120s", r->req.receipt_file);
    return 0;
}

static void say_kept(const struct run *r)
{
    const char *id = box_id(r->box);
    auto_buf more = { 0 };

    report_note("sandbox %s is kept, frozen", id);
    buf_addf(&more, "  cove enter %s   a shell in it\n  cove rm %s      end it\n", id, id);
    fd_write_all(STDERR_FILENO, more.data, more.len);
}

static int conclude(struct run *r)
{
    const struct receipt *rc = r->begun && r->session.exec && r->session.receipt ? exec_receipt(r->session.exec) : NULL;
    struct err err = { 0 };

    if (r->signaled)
        return 128 + r->signaled;
    if (!rc)
        return report_error(&r->why, r->req.json);
    if (r->session.broken && r->session.broken != EPIPE) {
        errno = r->session.broken;
        err_sys(&err, errno == ENOSPC || errno == EDQUOT ? ERR_DISK_FULL : ERR_SYS, "writing to standard output");
        return report_error(&err, false);
    }
    if (r->req.json)
        print_json(r, rc);
    else if (!r->req.quiet && !r->session.broken)
        explain_end(r, rc);
    if (!r->req.json && !r->req.quiet)
        explain_limits(r, rc);
    if (!r->req.json && !r->req.quiet && !r->req.receipt && receipt_exit_code(rc) != 0) {
        refused_limits(rc);
        refused_calls(rc, false);
    }
    if (r->req.receipt && write_receipt(r, rc, &err) < 0)
        return report_error(&err, false);
    if (r->kept && !r->req.json && !r->req.quiet)
        say_kept(r);
    if (r->failed)
        return r->req.json ? err_info(r->why.id)->exit : report_error(&r->why, false);
    return r->session.broken ? STATUS_PIPE : receipt_exit_code(rc);
}

/* Of one that did not begin. */
static void run_done(struct run *r)
{
    engine_free(r->engine);
    ev_free(r->ev);
    for (size_t i = 0; i < r->nmounts; i++)
        fd_close(&r->mounts[i].fd);
    fd_close(&r->receipt_fd);
    program_done(&r->prog);
    request_done(&r->req);
    policy_done(&r->policy);
    floor_done(&r->floor);
}

/* A run that began is not taken apart: the caller waits for our exit, which does the same at once. The jailer sees the
 * end of its socket and the monitor that of its own. */
int verb_run(const struct args *a, const struct cli_settings *settings)
{
    static struct run r = { .receipt_fd = -1, .prog.script_fd = -1 };
    bool json = args_find(a, OPT_JSON) != NULL;
    int status;

    status = prepare(&r, a, settings, &r.why);
    if (status < 0) {
        status = report_error(&r.why, json);
    } else if (status > 0) {
        /* said by who found it */
    } else if (r.req.dry_run) {
        status = dry_run(&r);
    } else if (open_mounts(&r, &r.why) < 0 || open_receipt(&r, &r.why) < 0 || start(&r, settings, &r.why) < 0) {
        status = report_error(&r.why, json);
    } else {
        ev_run(r.ev);
        return conclude(&r);
    }
    run_done(&r);
    return status;
}
