/* `cove doctor`: makes real sandboxes, attacks them from inside, and reports which walls and limits
 * held.
 *
 * The sandboxes are made in the same way as by `cove run`, with limits small enough to be reached
 * quickly. Before that, objects are planted that a leak would expose (doctor_bait.c).
 *
 *   sandbox 1: walls, limits, memory
 *   sandbox 2: checks that its uid differs; four processes on 0.05 processors until timeout
 *   sandbox 3: too much output, too much processor time
 *   sandbox 4: runs until its lifetime is over
 *   sandbox 5: idle until the idle timeout ends it
 *   sandbox 6: writes and reads a file on a disk of the host, if disk rates can be limited
 *   sandbox 7: has a network whose rules allow nothing, if the driver has networks
 *
 * Output of a sandbox is hostile input: doctor_report_read checks its format, and the
 * engine its length. */
#include "client/cli/verbs.h"

#include "client/cli/doctor_bait.h"
#include "client/cli/policy_select.h"
#include "client/cli/doctor_network.h"
#include "client/cli/doctor_report.h"
#include "client/cli/host_facts.h"
#include "client/cli/doctor_rates.h"
#include "client/cli/report.h"
#include "client/cli/state_dir.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "sandbox/engine.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROBE_INSIDE "/mnt/cove-probe"
#define HOSTNAME "cove-doctor"
#define WORDS_MAX 24
#define WORD_MAX 160
#define STEP_MS 15000u
#define BURN_MS 600u
#define SPEND_MS 5000u /* time to use CPU_MS; for an unprivileged user the kernel counts whole seconds per process */
#define CPU_MS 60u
#define IDLE_MS 80u
#define LIFE_MS 250u
#define LATE_MS 3000u /* grace after the expected end; later counts as not ended */
#define DOCTOR_SANDBOXES 7
#define DOCTOR_RATES_SANDBOX 5
#define DOCTOR_NETWORK_SANDBOX 6
#define BURN_MILLICPU 50u
#define BURN_SHARE_MAX                                                                            \
    4 /* a quarter of one processor is far above the limit and far below what four processes take \
       */

enum doctor_step_kind {
    DOCTOR_STEP_WALLS,
    DOCTOR_STEP_LIMITS,
    DOCTOR_STEP_MEMORY,
    DOCTOR_STEP_UID,
    DOCTOR_STEP_BURN,
    DOCTOR_STEP_OUTPUT,
    DOCTOR_STEP_CPU,
    DOCTOR_STEP_IDLE,
    DOCTOR_STEP_LIFETIME,
    DOCTOR_STEP_RATES,
    DOCTOR_STEP_NETWORK
};

static const struct doctor_step {
    enum doctor_step_kind kind;
    const char *probe_command; /* argument of the probe; NULL: no execution */
    int sandbox;
    uint64_t wall_ms, cpu_ms;
} doctor_steps[] = {
    { DOCTOR_STEP_WALLS, "walls", 0, STEP_MS, 0 },
    { DOCTOR_STEP_LIMITS, "limits", 0, STEP_MS, 0 },
    { DOCTOR_STEP_MEMORY, "memory", 0, STEP_MS, 0 },
    { DOCTOR_STEP_UID, "uid", 1, STEP_MS, 0 },
    { DOCTOR_STEP_BURN, "burn", 1, BURN_MS, 0 },
    { DOCTOR_STEP_OUTPUT, "shout", 2, STEP_MS, 0 },
    { DOCTOR_STEP_CPU, "burn", 2, SPEND_MS, CPU_MS },
    { DOCTOR_STEP_LIFETIME, "burn", 3, LATE_MS, 0 },
    { DOCTOR_STEP_IDLE, NULL, 4, 0, 0 },
    /* last, because they may be skipped */
    { DOCTOR_STEP_RATES, "rates", DOCTOR_RATES_SANDBOX, STEP_MS, 0 },
    { DOCTOR_STEP_NETWORK, "egress", DOCTOR_NETWORK_SANDBOX, STEP_MS, 0 },
};

struct doctor_sandbox { /* callback argument: the doctor and the index of the sandbox */
    struct doctor *d;
    int index;
};

struct doctor {
    struct ev *ev;
    struct engine *engine;
    struct sandbox_handle *handles[DOCTOR_SANDBOXES];
    struct doctor_sandbox sandboxes[DOCTOR_SANDBOXES];
    struct exec_handle *exec[ARRAY_LEN(doctor_steps)];
    struct limits limits[DOCTOR_SANDBOXES];
    struct sandbox_mount mounts[2]; /* the probe; the directory for disk rates */
    struct stat probe_st;
    size_t step;
    struct buf probe_output;
    struct ev_defer next_step;
    struct ev_timer end_timer; /* waits for an expected end */
    struct policy policy;
    struct operator_limits operator_limits;
    struct doctor_report report;
    struct doctor_rates rates;
    bool has_network; /* an egress proxy was started */
    bool failed;
    struct err why;
    int signaled;

    struct doctor_bait bait;
    char probe_args[WORDS_MAX][WORD_MAX];
    const char *argv[WORDS_MAX + 1];
};

/* --- arguments of the probe --- */

static void PRINTF_LIKE(3, 4) doctor_add_probe_arg(struct doctor *d, size_t *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(d->probe_args[*n], WORD_MAX, fmt, ap);
    va_end(ap);
    d->argv[*n] = d->probe_args[*n];
    d->argv[++*n] = NULL;
}

static void doctor_set_probe_args(struct doctor *d, const struct doctor_step *s)
{
    static const enum limit tested_limits[] = { LIMIT_MEMORY, LIMIT_PIDS,       LIMIT_NOFILE,
                                                LIMIT_FSIZE,  LIMIT_WORKSPACE,  LIMIT_WORKSPACE_INODES,
                                                LIMIT_TMP,    LIMIT_TMP_INODES, LIMIT_SHM,
                                                LIMIT_OUTPUT };
    char names[WORD_MAX - 16] = "";
    size_t n = 0;

    for (const char *const *e = level_environment(LEVEL_STANDARD, NETWORK_NONE); *e; e++) {
        size_t len = strlen(names);

        snprintf(names + len, sizeof(names) - len, "%.*s,", (int)strcspn(*e, "="), *e);
    }
    doctor_add_probe_arg(d, &n, "%s", PROBE_INSIDE);
    doctor_add_probe_arg(d, &n, "%s", s->probe_command);
    doctor_add_probe_arg(d, &n, "environment=%s", names);
    doctor_add_probe_arg(d, &n, "hostname=%s", HOSTNAME);
    doctor_add_probe_arg(d, &n, "pid=%d", (int)getpid());
    doctor_add_probe_arg(d, &n, "uid=%u", (unsigned)getuid());
    doctor_add_probe_arg(d, &n, "port=%u", d->bait.port);
    doctor_add_probe_arg(d, &n, "socket=%s", d->bait.socket);
    doctor_add_probe_arg(d, &n, "rateBytes=%u", (unsigned)DOCTOR_RATES_BYTES);
    doctor_add_probe_arg(d, &n, "rateMs=%u", (unsigned)(DOCTOR_RATES_BYTES * 1000 / DOCTOR_RATES_PER_SECOND / 2));
    for (size_t i = 0; i < ARRAY_LEN(tested_limits); i++)
        doctor_add_probe_arg(d, &n, "%s=%" PRIu64, limit_info(tested_limits[i])->name,
                             d->limits[s->sandbox].v[tested_limits[i]]);
}

static void doctor_choose_limits(struct doctor *d)
{
    static const struct {
        enum limit limit;
        uint64_t value;
    } small[] = {
        { LIMIT_MEMORY, 32 * MIB }, { LIMIT_PIDS, 16 },
        { LIMIT_NOFILE, 32 },       { LIMIT_FSIZE, 256 * KIB },
        { LIMIT_WORKSPACE, MIB },   { LIMIT_WORKSPACE_INODES, 64 },
        { LIMIT_TMP, MIB },         { LIMIT_TMP_INODES, 64 },
        { LIMIT_SHM, MIB },         { LIMIT_OUTPUT, DOCTOR_PROBE_TEXT_MAX },
        { LIMIT_WALL, STEP_MS },
    };

    limits_default(&d->limits[0]);
    for (size_t i = 0; i < ARRAY_LEN(small); i++)
        d->limits[0].v[small[i].limit] = small[i].value;
    d->limits[1] = d->limits[0];
    d->limits[1].v[LIMIT_CPU] = BURN_MILLICPU;
    d->limits[1].v[LIMIT_WALL] = BURN_MS;
    d->limits[2] = d->limits[3] = d->limits[4] = d->limits[DOCTOR_RATES_SANDBOX] = d->limits[DOCTOR_NETWORK_SANDBOX] =
        d->limits[0];
    d->limits[2].v[LIMIT_CPU_TIME] = CPU_MS; /* for hosts where only the kernel's per-process clock enforces it */
    d->limits[3].v[LIMIT_WALL] = 1;
    d->limits[3].v[LIMIT_LIFETIME] = LIFE_MS;
    d->limits[4].v[LIMIT_IDLE] = IDLE_MS;
    d->limits[DOCTOR_RATES_SANDBOX].v[LIMIT_IO_READ] = d->limits[DOCTOR_RATES_SANDBOX].v[LIMIT_IO_WRITE] =
        DOCTOR_RATES_PER_SECOND;
    d->limits[DOCTOR_RATES_SANDBOX].v[LIMIT_FSIZE] = MIB;
}

/* --- the steps --- */

static void doctor_fail(struct doctor *d, const struct err *why)
{
    if (!d->failed)
        d->why = *why;
    d->failed = true;
    ev_stop(d->ev);
}

static void doctor_on_output(void *arg, int channel, const void *data, size_t len)
{
    struct doctor *d = arg;

    if (channel == 1 && d->probe_output.len + len <= DOCTOR_PROBE_TEXT_MAX + 1)
        buf_add(&d->probe_output, data, len);
}

/* Judges timeout and processor limit by the receipt. On a busy host all processes get little time,
 * so throttling must have been counted too, if the host counts it. */
static void doctor_judge_burn(struct doctor *d, const struct receipt *r, uint64_t throttled_ns)
{
    uint64_t wall = r->wall_ns.v, cpu = r->cpu_ns.v;
    bool held_back = throttled_ns > 0; /* SANDBOX_USAGE_UNKNOWN too */

    doctor_report_apply_receipt(&d->report, r, LIMIT_BIT(CPU) | LIMIT_BIT(WALL));
    doctor_report_set_answer(&d->report, "timeoutMs", r->ended_by == ENDED_TIMEOUT, "ended by %s after %llu ms",
                             ended_by_name(r->ended_by), wall / NS_PER_MS);
    if (r->cpu_ns.why)
        doctor_report_set_answer(&d->report, "cpuMillis", false, "processor time could not be measured: %s",
                                 r->cpu_ns.why);
    else
        doctor_report_set_answer(&d->report, "cpuMillis", held_back && cpu * BURN_SHARE_MAX < wall,
                                 "%llu ms of processor time in %llu ms", cpu / NS_PER_MS, wall / NS_PER_MS);
}

/* Both sandboxes are alive, so their host uids must differ. */
static int doctor_compare_uids(struct doctor *d, struct err *err)
{
    const struct doctor_finding *one = doctor_report_find(&d->report, "unique_uid"), *two;
    struct doctor_report second;

    doctor_report_init(&second);
    if (doctor_report_read(&second, d->probe_output.data ? d->probe_output.data : "", d->probe_output.len, err) < 0)
        return -1;
    two = doctor_report_find(&second, "unique_uid");
    if (!one->broken && (!two->answered || two->broken || str_eq(one->seen, two->seen)))
        doctor_report_set_answer(&d->report, "unique_uid", false,
                                 "another sandbox has the same uid, or did not report it");
    return 0;
}

static void doctor_judge_output(struct doctor *d, const struct receipt *r)
{
    uint64_t most = r->limits.v[LIMIT_OUTPUT], came = r->stdout_bytes - r->dropped_bytes;

    doctor_report_apply_receipt(&d->report, r, LIMIT_BIT(OUTPUT));
    doctor_report_set_answer(&d->report, "outputBytes",
                             r->dropped_bytes > 0 && came <= most && d->probe_output.len <= most,
                             "%" PRIu64 " of %" PRIu64 " bytes were delivered", came, r->stdout_bytes);
}

static void doctor_judge_end(struct doctor *d, const struct receipt *r, enum limit limit, enum ended_by by)
{
    doctor_report_apply_receipt(&d->report, r, 1ull << limit);
    doctor_report_set_answer(&d->report, limit_info(limit)->name, r->ended_by == by, "ended by %s after %llu ms",
                             ended_by_name(r->ended_by), r->wall_ns.v / NS_PER_MS);
}

static int doctor_judge_rates(struct doctor *d, const struct receipt *r, struct err *err)
{
    struct doctor_report rates;

    doctor_report_rates_init(&rates);
    if (doctor_report_read(&rates, d->probe_output.data ? d->probe_output.data : "", d->probe_output.len, err) < 0)
        return -1;
    doctor_report_apply_receipt(&rates, r, LIMIT_BIT(IO_READ) | LIMIT_BIT(IO_WRITE));
    doctor_report_add_rates(&d->report, &rates);
    return 0;
}

static int doctor_judge_probe_output(struct doctor *d, const struct receipt *r, struct err *err)
{
    if (r->dropped_bytes)
        return err_set(err, ERR_PROTOCOL, "cove-probe printed more than expected");
    return doctor_report_read(&d->report, d->probe_output.data ? d->probe_output.data : "", d->probe_output.len, err);
}

static int doctor_judge_step(struct doctor *d, const struct receipt *r, struct err *err)
{
    switch (doctor_steps[d->step].kind) {
    case DOCTOR_STEP_WALLS:
        doctor_report_apply_receipt(&d->report, r, ~(LIMIT_BIT(CPU) | LIMIT_BIT(WALL)));
        doctor_report_check_operator_limits(&d->report, &d->operator_limits, r, &d->limits[0]);
        return doctor_judge_probe_output(d, r, err);
    case DOCTOR_STEP_LIMITS:
        return doctor_judge_probe_output(d, r, err);
    case DOCTOR_STEP_MEMORY:
        if (r->ended_by != ENDED_MEMORY)
            return doctor_judge_probe_output(d, r, err);
        doctor_report_set_answer(&d->report, "memoryBytes", true, "the memory limit ended it");
        break;
    case DOCTOR_STEP_UID:
        return doctor_compare_uids(d, err);
    case DOCTOR_STEP_BURN: /* handled by doctor_on_burn_usage */
        break;
    case DOCTOR_STEP_OUTPUT:
        doctor_judge_output(d, r);
        break;
    case DOCTOR_STEP_CPU:
        doctor_judge_end(d, r, LIMIT_CPU_TIME, ENDED_CPU);
        break;
    case DOCTOR_STEP_LIFETIME:
        doctor_judge_end(d, r, LIMIT_LIFETIME, ENDED_LIFETIME);
        break;
    case DOCTOR_STEP_RATES:
        return doctor_judge_rates(d, r, err);
    case DOCTOR_STEP_NETWORK:
        return doctor_network_judge(&d->report, receipt_network_carrier(r->egress.carrier),
                                    d->probe_output.data ? d->probe_output.data : "", d->probe_output.len, err);
    case DOCTOR_STEP_IDLE: /* no execution */
        break;
    }
    return 0;
}

static void doctor_begin_step(void *arg);

static bool doctor_must_skip_step(const struct doctor *d)
{
    enum doctor_step_kind kind = doctor_steps[d->step].kind;

    return (kind == DOCTOR_STEP_RATES && d->rates.dir < 0) || (kind == DOCTOR_STEP_NETWORK && !d->has_network);
}

static void doctor_end_step(struct doctor *d)
{
    buf_clear(&d->probe_output);
    do
        d->step++;
    while (d->step < ARRAY_LEN(doctor_steps) && doctor_must_skip_step(d));
    if (d->step == ARRAY_LEN(doctor_steps))
        ev_stop(d->ev);
    else
        ev_defer(d->ev, &d->next_step, doctor_begin_step, d);
}

/* The receipt gets this figure only when the sandbox has ended, and this sandbox
 * is still needed. */
static void doctor_on_burn_usage(void *arg, const struct sandbox_handle_usage *u, const struct err *err UNUSED)
{
    struct doctor *d = arg;

    doctor_judge_burn(d, exec_handle_receipt(d->exec[d->step]), u ? u->throttled_ns : SANDBOX_USAGE_UNKNOWN);
    doctor_end_step(d);
}

static void doctor_on_probe_exit(void *arg, const struct receipt *r)
{
    struct doctor *d = arg;
    struct err err = { 0 };

    if (doctor_steps[d->step].kind == DOCTOR_STEP_BURN)
        sandbox_handle_usage(d->handles[doctor_steps[d->step].sandbox], doctor_on_burn_usage, d);
    else if (doctor_judge_step(d, r, &err) < 0)
        doctor_fail(d, &err);
    else
        doctor_end_step(d);
}

static void doctor_on_engine_failed(void *arg, const struct err *err)
{
    doctor_fail(arg, err);
}

/* The lifetime or idle timeout may end the sandbox before an execution starts: on a slow host, or
 * because none is planned. */
static bool doctor_ended_by_clock(struct doctor *d, const struct err *why)
{
    enum doctor_step_kind look = doctor_steps[d->step].kind;

    if (why->id != ERR_TIMEOUT || (look != DOCTOR_STEP_IDLE && look != DOCTOR_STEP_LIFETIME))
        return false;
    ev_timer_clear(d->ev, &d->end_timer);
    doctor_report_set_answer(&d->report, limit_info(look == DOCTOR_STEP_IDLE ? LIMIT_IDLE : LIMIT_LIFETIME)->name, true,
                             "%s", why->msg);
    doctor_end_step(d);
    return true;
}

static void doctor_on_exec_failed(void *arg, const struct err *err)
{
    if (!doctor_ended_by_clock(arg, err))
        doctor_fail(arg, err);
}

static void doctor_on_end_timeout(void *arg)
{
    struct doctor *d = arg;

    doctor_report_set_answer(&d->report, "idleTimeoutMs", false, "the sandbox was still alive after %u ms", LATE_MS);
    doctor_end_step(d);
}

static void doctor_start_probe(struct doctor *d)
{
    static const struct exec_handle_ops ops = { .on_output = doctor_on_output,
                                                .on_exit = doctor_on_probe_exit,
                                                .on_failed = doctor_on_exec_failed };
    const struct doctor_step *s = &doctor_steps[d->step];
    struct exec_spec spec = {
        .argv = d->argv,
        .wall_ms = s->wall_ms,
        .cpu_ms = s->cpu_ms,
        .output_max = DOCTOR_PROBE_TEXT_MAX,
    };
    struct err err = { 0 };

    if (!s->probe_command) {
        ev_timer_set(d->ev, &d->end_timer, ev_now(d->ev) + LATE_MS * NS_PER_MS, doctor_on_end_timeout, d);
        return;
    }
    doctor_set_probe_args(d, s);
    if (sandbox_handle_exec(d->handles[s->sandbox], &spec, &ops, d, &d->exec[d->step], &err) < 0)
        doctor_on_exec_failed(d, &err);
}

static void doctor_on_ready(void *arg)
{
    doctor_start_probe(((struct doctor_sandbox *)arg)->d);
}

static void doctor_on_sandbox_failed(void *arg, const struct err *err)
{
    struct doctor_sandbox *w = arg;

    if (w->index != DOCTOR_NETWORK_SANDBOX || err->id != ERR_NETWORK_UNAVAILABLE) {
        doctor_fail(w->d, err);
        return;
    }
    doctor_network_set_missing(&w->d->report, err->msg);
    doctor_end_step(w->d);
}

/* The end of a sandbox also ends its execution, whose result says more, so it is awaited. A sandbox
 * of an earlier step may end at any time: on a busy host its lifetime may run out. */
static void doctor_on_sandbox_ended(void *arg, const struct err *why)
{
    struct doctor_sandbox *w = arg;
    struct doctor *d = w->d;

    if (d->step == ARRAY_LEN(doctor_steps) || doctor_steps[d->step].sandbox != w->index || d->exec[d->step])
        return;
    if (!doctor_ended_by_clock(d, why))
        doctor_fail(d, why);
}

/* The tests take seconds, and the report is printed at their end. */
static void doctor_show_progress(const struct doctor *d, bool done)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (done)
        fputs("\r\033[K", stderr);
    else
        fprintf(stderr, "\rcove: test %zu of %zu", d->step + 1, ARRAY_LEN(doctor_steps));
    fflush(stderr);
}

static void doctor_begin_step(void *arg)
{
    static const struct sandbox_handle_ops ops = { doctor_on_ready, doctor_on_sandbox_failed, doctor_on_sandbox_ended };
    struct doctor *d = arg;
    int which = doctor_steps[d->step].sandbox;
    struct sandbox_spec spec = {
        .driver = d->report.drivers.tested,
        .level = LEVEL_STANDARD,
        .profile = PROFILE_BASE,
        .limits = d->limits[which],
        .hostname = HOSTNAME,
        .mounts = d->mounts,
        .nmounts = which == DOCTOR_RATES_SANDBOX ? 2 : 1,
        .owner_uid = d->probe_st.st_uid, /* so that it is readable inside, whatever its mode */
        .owner_gid = d->probe_st.st_gid,
        .network.mode = which == DOCTOR_NETWORK_SANDBOX ? NETWORK_EGRESS : NETWORK_NONE,
    };
    struct err err = { 0 };

    doctor_show_progress(d, false);
    d->sandboxes[which] = (struct doctor_sandbox){ d, which };
    if (d->handles[which])
        doctor_start_probe(d);
    else if (sandbox_handle_new(d->engine, &spec, &ops, &d->sandboxes[which], &d->handles[which], &err) < 0)
        doctor_fail(d, &err);
}

static int doctor_open_probe(struct doctor *d, const struct cli_settings *settings, struct err *err)
{
    const char *dir = settings->find_libexec();
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/cove-probe", dir);
    int fd = *dir ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return err_set(err, ERR_PROBE_PROGRAM, "cove-probe not found next to cove-runtime");
    d->mounts[0] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, fd, PROBE_INSIDE };
    if (fstat(fd, &d->probe_st) < 0)
        return err_sys(err, ERR_SYS, "cove-probe");
    return 0;
}

/* If the rates cannot be tested, the report gives the reason instead of a result. */
static void doctor_create_rates(struct doctor *d)
{
    struct host_fact fact;
    char why[128];

    host_facts_disk_rates(&fact);
    (void)str_copy(d->report.disk_rates, sizeof(d->report.disk_rates), fact.detail);
    if (!fact.good)
        return;
    if (doctor_rates_create(&d->rates, "/var/tmp", d->probe_st.st_uid, d->probe_st.st_gid, why, sizeof(why)))
        d->mounts[1] = (struct sandbox_mount){ SANDBOX_MOUNT_WORKSPACE, d->rates.dir, "/workspace" };
    else
        snprintf(d->report.disk_rates, sizeof(d->report.disk_rates), "%s; not tested: %s", fact.detail, why);
}

static void doctor_on_signal(void *arg, int signo)
{
    struct doctor *d = arg;

    d->signaled = signo;
    ev_stop(d->ev);
}

static int doctor_catch_signals(struct doctor *d, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return ev_signals(d->ev, &set, doctor_on_signal, d, err);
}

static int doctor_choose_driver(struct doctor *d, const struct arg *given, struct err *err)
{
    uint32_t forbidden = d->operator_limits.forbidden_drivers;
    enum driver_id driver = driver_default(forbidden);

    if (given && !driver_parse(given->value, &driver))
        return driver_unknown_error("--driver", given->value, err);
    if (driver_check_allowed(forbidden, driver, "--driver", d->operator_limits.file, err) < 0)
        return -1;
    doctor_drivers_collect(&d->report.drivers, driver, forbidden);
    return 0;
}

/* Returns the socket of an egress proxy, or -1: without one, the report gives the reason. */
static int doctor_start_egress(struct doctor *d, const struct cli_settings *settings)
{
    struct err err = { 0 };
    int egress = -1;

    if (!drivers_caps(d->report.drivers.tested)->egress)
        return -1;
    if (settings->start_egress("", &egress, &err) < 0)
        doctor_network_set_missing(&d->report, err.msg);
    else
        d->has_network = true;
    return egress;
}

static int doctor_start(struct doctor *d, const struct args *a, const struct cli_settings *settings, struct err *err)
{
    static const struct engine_ops ops = { doctor_on_engine_failed };
    const struct arg *given = args_find(a, OPT_STATE_DIR);
    char dir[STATE_DIR_MAX];
    int jailer, monitor;

    if (a->nrest > 0)
        return err_set(err, ERR_USAGE, "'cove doctor': unexpected argument '%.60s'", a->rest[0]);
    int said = policy_select(a, settings, &d->policy, &d->operator_limits, err);
    if (said != 0)
        return said;
    if (doctor_open_probe(d, settings, err) < 0)
        return -1;
    doctor_report_init(&d->report);
    if (doctor_choose_driver(d, args_find(a, OPT_DRIVER), err) < 0)
        return -1;
    doctor_choose_limits(d);
    int egress = doctor_start_egress(d, settings);
    doctor_bait_create(&d->bait);
    if (settings->start_jailer(state_dir(given ? given->value : NULL, dir), false, &jailer, err) < 0 ||
        settings->start_monitor(&monitor, err) < 0)
        return -1;
    doctor_bait_create_memory();
    if (ev_new(&d->ev, err) < 0 || engine_new(d->ev, jailer, &ops, d, &d->engine, err) < 0 ||
        engine_set_monitor(d->engine, monitor, err) < 0 ||
        (egress >= 0 && engine_set_egress(d->engine, egress, err) < 0) || doctor_catch_signals(d, err) < 0)
        return -1;
    doctor_create_rates(d); /* from here on a signal removes it */
    doctor_begin_step(d);
    return 0;
}

static void doctor_done(struct doctor *d)
{
    if (d->ev) {
        ev_defer_clear(d->ev, &d->next_step);
        ev_timer_clear(d->ev, &d->end_timer);
    }
    for (size_t i = 0; i < ARRAY_LEN(d->exec); i++)
        exec_handle_free(d->exec[i]);
    for (size_t i = 0; i < ARRAY_LEN(d->handles); i++)
        sandbox_handle_free(d->handles[i]);
    engine_free(d->engine);
    ev_free(d->ev);
    buf_done(&d->probe_output);
    fd_close(&d->mounts[0].fd);
    doctor_rates_done(&d->rates);
    doctor_bait_done(&d->bait);
    policy_done(&d->policy);
    operator_limits_done(&d->operator_limits);
}

int verb_doctor(const struct args *a, const struct cli_settings *settings)
{
    struct doctor d = { .mounts[0].fd = -1, .rates.dir = -1, .bait = DOCTOR_BAIT_NONE };
    bool json = args_find(a, OPT_JSON) != NULL;
    auto_buf out = { 0 };
    int status;

    status = doctor_start(&d, a, settings, &d.why);
    if (status < 0)
        d.failed = true;
    else if (status == 0 && !d.failed)
        ev_run(d.ev);
    doctor_show_progress(&d, true);
    if (d.signaled)
        status = 128 + d.signaled;
    if (status > 0) {
        /* the error is already printed, or a signal ended us */
    } else if (d.failed) {
        status = report_error(&d.why, json);
    } else {
        if (json)
            doctor_report_json(&d.report, &out);
        else
            doctor_report_print(&d.report, &out);
        status = report_text(&out);
        if (status == 0)
            status = doctor_report_status(&d.report);
    }
    doctor_done(&d);
    return status;
}
