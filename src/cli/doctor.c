/* `cove doctor`: makes real sandboxes, attacks them from inside, and says what held.
 *
 * The sandboxes are made as `cove run` makes its own, with limits small enough to be reached at once. Before that we
 * plant things that a leak would carry along (canary.c).
 *
 *   sandbox 1: walls, limits, memory
 *   sandbox 2: its uid against that of the first; four processes on a twentieth of a processor, until the clock ends it
 *   sandbox 3: too much output, too much processor time
 *   sandbox 4: lives until its lifetime is over
 *   sandbox 5: has nothing to do, until that ends it
 *   sandbox 6: writes and reads a file on a disk of the host, where rates of disks can be had
 *
 * What comes out of a sandbox is hostile: findings_read holds it to its form, and the engine to its length. */
#include "cli/verbs.h"

#include "cli/canary.h"
#include "cli/choose.h"
#include "cli/findings.h"
#include "cli/host.h"
#include "cli/rates.h"
#include "cli/report.h"
#include "cli/state.h"

#include "base/fd.h"
#include "base/str.h"
#include "engine/engine.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define PROBE_INSIDE "/mnt/cove-probe"
#define HOSTNAME "cove-doctor"
#define WORDS_MAX 24
#define WORD_MAX 160
#define STEP_MS 15000u
#define BURN_MS 600u
#define SPEND_MS 5000u /* for CPU_MS; a plain user's kernel counts in whole seconds and for each process by itself */
#define CPU_MS 60u
#define IDLE_MS 80u
#define LIFE_MS 250u
#define LATE_MS 3000u /* an end that has not come by then does not come */
#define BOXES 6
#define RATES_BOX 5
#define BURN_MILLICPU 50u
#define BURN_SHARE_MAX                                                                            \
    4 /* a quarter of one processor is far above the limit and far below what four processes take \
       */

enum look {
    LOOK_WALLS,
    LOOK_LIMITS,
    LOOK_MEMORY,
    LOOK_UID,
    LOOK_BURN,
    LOOK_OUTPUT,
    LOOK_CPU,
    LOOK_IDLE,
    LOOK_LIFE,
    LOOK_RATES
};

static const struct step {
    enum look look;
    const char *word; /* to the probe; NULL: nothing is run */
    int box;
    uint64_t wall_ms, cpu_ms;
} steps[] = {
    { LOOK_WALLS, "walls", 0, STEP_MS, 0 },
    { LOOK_LIMITS, "limits", 0, STEP_MS, 0 },
    { LOOK_MEMORY, "memory", 0, STEP_MS, 0 },
    { LOOK_UID, "uid", 1, STEP_MS, 0 },
    { LOOK_BURN, "burn", 1, BURN_MS, 0 },
    { LOOK_OUTPUT, "shout", 2, STEP_MS, 0 },
    { LOOK_CPU, "burn", 2, SPEND_MS, CPU_MS },
    { LOOK_LIFE, "burn", 3, LATE_MS, 0 },
    { LOOK_IDLE, NULL, 4, 0, 0 },
    { LOOK_RATES, "rates", RATES_BOX, STEP_MS, 0 }, /* the last: it may be left out */
};

struct ward { /* whose sandbox something happened to */
    struct doctor *d;
    int which;
};

struct doctor {
    struct ev *ev;
    struct engine *engine;
    struct box *box[BOXES];
    struct ward ward[BOXES];
    struct exec *exec[ARRAY_LEN(steps)];
    struct limits limits[BOXES];
    struct box_mount mounts[2]; /* the probe; the place for rates */
    struct stat probe_st;
    size_t step;
    struct buf said;
    struct ev_defer next;
    struct ev_timer late; /* for an end that is waited for */
    struct policy policy;
    struct floor floor;
    struct findings findings;
    struct rates rates;
    bool failed;
    struct err why;
    int signaled;

    struct canary canary;
    char words[WORDS_MAX][WORD_MAX];
    const char *argv[WORDS_MAX + 1];
};

/* --- what the probe is told --- */

static void PRINTF_LIKE(3, 4) tell(struct doctor *d, size_t *n, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(d->words[*n], WORD_MAX, fmt, ap);
    va_end(ap);
    d->argv[*n] = d->words[*n];
    d->argv[++*n] = NULL;
}

static void tell_all(struct doctor *d, const struct step *s)
{
    static const enum limit told[] = { LIMIT_MEMORY, LIMIT_PIDS,       LIMIT_NOFILE,
                                       LIMIT_FSIZE,  LIMIT_WORKSPACE,  LIMIT_WORKSPACE_INODES,
                                       LIMIT_TMP,    LIMIT_TMP_INODES, LIMIT_SHM,
                                       LIMIT_OUTPUT };
    char names[WORD_MAX - 16] = "";
    size_t n = 0;

    for (const char *const *e = level_environment(LEVEL_STANDARD); *e; e++) {
        size_t len = strlen(names);

        snprintf(names + len, sizeof(names) - len, "%.*s,", (int)strcspn(*e, "="), *e);
    }
    tell(d, &n, "%s", PROBE_INSIDE);
    tell(d, &n, "%s", s->word);
    tell(d, &n, "environment=%s", names);
    tell(d, &n, "hostname=%s", HOSTNAME);
    tell(d, &n, "pid=%d", (int)getpid());
    tell(d, &n, "uid=%u", (unsigned)getuid());
    tell(d, &n, "port=%u", d->canary.port);
    tell(d, &n, "socket=%s", d->canary.socket);
    tell(d, &n, "rateBytes=%u", (unsigned)RATES_BYTES);
    tell(d, &n, "rateMs=%u", (unsigned)(RATES_BYTES * 1000 / RATES_PER_SECOND / 2));
    for (size_t i = 0; i < ARRAY_LEN(told); i++)
        tell(d, &n, "%s=%" PRIu64, limit_info(told[i])->name, d->limits[s->box].v[told[i]]);
}

static void choose_limits(struct doctor *d)
{
    static const struct {
        enum limit limit;
        uint64_t value;
    } small[] = {
        { LIMIT_MEMORY, 32 * MIB }, { LIMIT_PIDS, 16 },
        { LIMIT_NOFILE, 32 },       { LIMIT_FSIZE, 256 * KIB },
        { LIMIT_WORKSPACE, MIB },   { LIMIT_WORKSPACE_INODES, 64 },
        { LIMIT_TMP, MIB },         { LIMIT_TMP_INODES, 64 },
        { LIMIT_SHM, MIB },         { LIMIT_OUTPUT, FINDINGS_TEXT },
        { LIMIT_WALL, STEP_MS },
    };

    limits_default(&d->limits[0]);
    for (size_t i = 0; i < ARRAY_LEN(small); i++)
        d->limits[0].v[small[i].limit] = small[i].value;
    d->limits[1] = d->limits[0];
    d->limits[1].v[LIMIT_CPU] = BURN_MILLICPU;
    d->limits[1].v[LIMIT_WALL] = BURN_MS;
    d->limits[2] = d->limits[3] = d->limits[4] = d->limits[RATES_BOX] = d->limits[0];
    d->limits[2].v[LIMIT_CPU_TIME] = CPU_MS; /* for hosts where only the kernel's own clocks hold it */
    d->limits[3].v[LIMIT_WALL] = 1;
    d->limits[3].v[LIMIT_LIFETIME] = LIFE_MS;
    d->limits[4].v[LIMIT_IDLE] = IDLE_MS;
    d->limits[RATES_BOX].v[LIMIT_IO_READ] = d->limits[RATES_BOX].v[LIMIT_IO_WRITE] = RATES_PER_SECOND;
    d->limits[RATES_BOX].v[LIMIT_FSIZE] = MIB;
}

/* --- the steps --- */

static void fail(struct doctor *d, const struct err *why)
{
    if (!d->failed)
        d->why = *why;
    d->failed = true;
    ev_stop(d->ev);
}

static void on_output(void *arg, int channel, const void *data, size_t len)
{
    struct doctor *d = arg;

    if (channel == 1 && d->said.len + len <= FINDINGS_TEXT + 1)
        buf_add(&d->said, data, len);
}

/* The clock and the processors, by what the receipt measured. On a busy host little time was used by anybody, so being
 * held back must have been counted too, where it is counted. */
static void judge_burn(struct doctor *d, const struct receipt *r, uint64_t throttled_ns)
{
    uint64_t wall = r->wall_ns.v, cpu = r->cpu_ns.v;
    bool held_back = throttled_ns > 0; /* BOX_UNKNOWN too */

    findings_weigh(&d->findings, r, LIMIT_BIT(CPU) | LIMIT_BIT(WALL));
    findings_answer(&d->findings, "timeoutMs", r->ended_by == ENDED_WALL, "ended by %s after %llu ms",
                    ended_by_name(r->ended_by), wall / NS_PER_MS);
    if (r->cpu_ns.why)
        findings_answer(&d->findings, "cpuMillis", false, "processor time could not be measured: %s", r->cpu_ns.why);
    else
        findings_answer(&d->findings, "cpuMillis", held_back && cpu * BURN_SHARE_MAX < wall,
                        "%llu ms of processor time in %llu ms", cpu / NS_PER_MS, wall / NS_PER_MS);
}

/* Both sandboxes live: the same user of the host twice is nobody's own. */
static int compare_uids(struct doctor *d, struct err *err)
{
    const struct finding *one = findings_find(&d->findings, "unique_uid"), *two;
    struct findings second;

    findings_init(&second);
    if (findings_read(&second, d->said.data ? d->said.data : "", d->said.len, err) < 0)
        return -1;
    two = findings_find(&second, "unique_uid");
    if (!one->broken && (!two->answered || two->broken || str_eq(one->seen, two->seen)))
        findings_answer(&d->findings, "unique_uid", false, "another sandbox is the same user, or does not say");
    return 0;
}

static void judge_output(struct doctor *d, const struct receipt *r)
{
    uint64_t most = r->limits.v[LIMIT_OUTPUT], came = r->stdout_bytes - r->dropped_bytes;

    findings_weigh(&d->findings, r, LIMIT_BIT(OUTPUT));
    findings_answer(&d->findings, "outputBytes", r->dropped_bytes > 0 && came <= most && d->said.len <= most,
                    "%" PRIu64 " of %" PRIu64 " bytes came out", came, r->stdout_bytes);
}

static void judge_end(struct doctor *d, const struct receipt *r, enum limit limit, enum ended_by by)
{
    findings_weigh(&d->findings, r, 1ull << limit);
    findings_answer(&d->findings, limit_info(limit)->name, r->ended_by == by, "ended by %s after %llu ms",
                    ended_by_name(r->ended_by), r->wall_ns.v / NS_PER_MS);
}

static int judge_rates(struct doctor *d, const struct receipt *r, struct err *err)
{
    struct findings rates;

    findings_rates_init(&rates);
    if (findings_read(&rates, d->said.data ? d->said.data : "", d->said.len, err) < 0)
        return -1;
    findings_weigh(&rates, r, LIMIT_BIT(IO_READ) | LIMIT_BIT(IO_WRITE));
    findings_rates(&d->findings, &rates);
    return 0;
}

static int judge_said(struct doctor *d, const struct receipt *r, struct err *err)
{
    if (r->dropped_bytes)
        return err_set(err, ERR_PROTOCOL, "cove-probe said more than it has to say");
    return findings_read(&d->findings, d->said.data ? d->said.data : "", d->said.len, err);
}

static int judge(struct doctor *d, const struct receipt *r, struct err *err)
{
    switch (steps[d->step].look) {
    case LOOK_WALLS:
        findings_weigh(&d->findings, r, ~(LIMIT_BIT(CPU) | LIMIT_BIT(WALL)));
        findings_floor(&d->findings, &d->floor, r, &d->limits[0]);
        return judge_said(d, r, err);
    case LOOK_LIMITS:
        return judge_said(d, r, err);
    case LOOK_MEMORY:
        if (r->ended_by != ENDED_MEMORY)
            return judge_said(d, r, err);
        findings_answer(&d->findings, "memoryBytes", true, "the memory limit ended it");
        break;
    case LOOK_UID:
        return compare_uids(d, err);
    case LOOK_BURN: /* on_burnt */
        break;
    case LOOK_OUTPUT:
        judge_output(d, r);
        break;
    case LOOK_CPU:
        judge_end(d, r, LIMIT_CPU_TIME, ENDED_CPU);
        break;
    case LOOK_LIFE:
        judge_end(d, r, LIMIT_LIFETIME, ENDED_LIFETIME);
        break;
    case LOOK_RATES:
        return judge_rates(d, r, err);
    case LOOK_IDLE: /* has no execution */
        break;
    }
    return 0;
}

static void begin_step(void *arg);

static void end_step(struct doctor *d)
{
    buf_clear(&d->said);
    if (++d->step == ARRAY_LEN(steps) || (steps[d->step].look == LOOK_RATES && d->rates.dir < 0))
        ev_stop(d->ev);
    else
        ev_defer(d->ev, &d->next, begin_step, d);
}

/* The receipt has this figure only when its sandbox has ended, and this one is still needed. */
static void on_burnt(void *arg, const struct box_usage *u, const struct err *err UNUSED)
{
    struct doctor *d = arg;

    judge_burn(d, exec_receipt(d->exec[d->step]), u ? u->throttled_ns : BOX_UNKNOWN);
    end_step(d);
}

static void on_probe_exit(void *arg, const struct receipt *r)
{
    struct doctor *d = arg;
    struct err err = { 0 };

    if (steps[d->step].look == LOOK_BURN)
        box_usage(d->box[steps[d->step].box], on_burnt, d);
    else if (judge(d, r, &err) < 0)
        fail(d, &err);
    else
        end_step(d);
}

static void on_failed(void *arg, const struct err *err)
{
    fail(arg, err);
}

/* An end for its age may come before there is a program to end: on a slow host, or because there is to be none. */
static bool ended_of_age(struct doctor *d, const struct err *why)
{
    enum look look = steps[d->step].look;

    if (why->id != ERR_TIMEOUT || (look != LOOK_IDLE && look != LOOK_LIFE))
        return false;
    ev_timer_clear(d->ev, &d->late);
    findings_answer(&d->findings, limit_info(look == LOOK_IDLE ? LIMIT_IDLE : LIMIT_LIFETIME)->name, true, "%s",
                    why->msg);
    end_step(d);
    return true;
}

static void on_exec_failed(void *arg, const struct err *err)
{
    if (!ended_of_age(arg, err))
        fail(arg, err);
}

static void on_late(void *arg)
{
    struct doctor *d = arg;

    findings_answer(&d->findings, "idleTimeoutMs", false, "the sandbox was still there after %u ms", LATE_MS);
    end_step(d);
}

static void attack(struct doctor *d)
{
    static const struct exec_ops ops = { .on_output = on_output,
                                         .on_exit = on_probe_exit,
                                         .on_failed = on_exec_failed };
    const struct step *s = &steps[d->step];
    struct exec_spec spec = {
        .argv = d->argv,
        .wall_ms = s->wall_ms,
        .cpu_ms = s->cpu_ms,
        .output_max = FINDINGS_TEXT,
    };
    struct err err = { 0 };

    if (!s->word) {
        ev_timer_set(d->ev, &d->late, ev_now(d->ev) + LATE_MS * NS_PER_MS, on_late, d);
        return;
    }
    tell_all(d, s);
    if (box_exec(d->box[s->box], &spec, &ops, d, &d->exec[d->step], &err) < 0)
        on_exec_failed(d, &err);
}

static void on_ready(void *arg)
{
    attack(((struct ward *)arg)->d);
}

static void on_box_failed(void *arg, const struct err *err)
{
    fail(((struct ward *)arg)->d, err);
}

/* The end of a sandbox ends its execution too, and that tells more. One that was used before may end when it likes: a
 * clock that ran out on a busy host takes the sandbox along. */
static void on_ended(void *arg, const struct err *why)
{
    struct ward *w = arg;
    struct doctor *d = w->d;

    if (d->step == ARRAY_LEN(steps) || steps[d->step].box != w->which || d->exec[d->step])
        return;
    if (!ended_of_age(d, why))
        fail(d, why);
}

static void begin_step(void *arg)
{
    static const struct box_ops ops = { on_ready, on_box_failed, on_ended };
    struct doctor *d = arg;
    int which = steps[d->step].box;
    struct box_spec spec = {
        .level = LEVEL_STANDARD,
        .profile = PROFILE_BASE,
        .limits = d->limits[which],
        .hostname = HOSTNAME,
        .mounts = d->mounts,
        .nmounts = which == RATES_BOX ? 2 : 1,
        .owner_uid = d->probe_st.st_uid, /* so that it can be read inside whatever its mode is */
        .owner_gid = d->probe_st.st_gid,
    };
    struct err err = { 0 };

    d->ward[which] = (struct ward){ d, which };
    if (d->box[which])
        attack(d);
    else if (box_new(d->engine, &spec, &ops, &d->ward[which], &d->box[which], &err) < 0)
        fail(d, &err);
}

static int open_probe(struct doctor *d, const struct cli_settings *settings, struct err *err)
{
    const char *dir = settings->find_libexec();
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/cove-probe", dir);
    int fd = *dir ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return err_set(err, ERR_PROBE_PROGRAM, "there is no cove-probe beside cove-runtime");
    d->mounts[0] = (struct box_mount){ BOX_BIND_RO, fd, PROBE_INSIDE };
    if (fstat(fd, &d->probe_st) < 0)
        return err_sys(err, ERR_SYS, "cove-probe");
    return 0;
}

/* What cannot be tried is said instead of what was seen. */
static void plant_rates(struct doctor *d)
{
    struct host_fact fact;
    char why[128];

    host_disk_rates(&fact);
    (void)str_copy(d->findings.disk_rates, sizeof(d->findings.disk_rates), fact.says);
    if (!fact.good)
        return;
    if (rates_plant(&d->rates, "/var/tmp", d->probe_st.st_uid, d->probe_st.st_gid, why, sizeof(why)))
        d->mounts[1] = (struct box_mount){ BOX_WORKSPACE, d->rates.dir, "/workspace" };
    else
        snprintf(d->findings.disk_rates, sizeof(d->findings.disk_rates), "%s; not tried: %s", fact.says, why);
}

static void on_signal(void *arg, int signo)
{
    struct doctor *d = arg;

    d->signaled = signo;
    ev_stop(d->ev);
}

static int await_signals(struct doctor *d, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return ev_signals(d->ev, &set, on_signal, d, err);
}

static int start(struct doctor *d, const struct args *a, const struct cli_settings *settings, struct err *err)
{
    static const struct engine_ops ops = { on_failed };
    const struct arg *given = args_find(a, OPT_STATE_DIR);
    char dir[STATE_DIR_MAX];
    int jailer, monitor;

    if (a->nrest > 0)
        return err_set(err, ERR_USAGE, "'cove doctor' does not know what to do with '%.60s'", a->rest[0]);
    int said = choose_policy(a, settings, &d->policy, &d->floor, err);
    if (said != 0)
        return said;
    if (open_probe(d, settings, err) < 0)
        return -1;
    findings_init(&d->findings);
    choose_limits(d);
    canary_plant(&d->canary);
    if (settings->start_jailer(state_dir(given ? given->value : NULL, dir), false, &jailer, err) < 0 ||
        settings->start_monitor(&monitor, err) < 0)
        return -1;
    canary_plant_memory();
    if (ev_new(&d->ev, err) < 0 || engine_new(d->ev, jailer, &ops, d, &d->engine, err) < 0 ||
        engine_watch(d->engine, monitor, err) < 0 || await_signals(d, err) < 0)
        return -1;
    plant_rates(d); /* the signals find it from here on */
    begin_step(d);
    return 0;
}

static void doctor_done(struct doctor *d)
{
    if (d->ev) {
        ev_defer_clear(d->ev, &d->next);
        ev_timer_clear(d->ev, &d->late);
    }
    for (size_t i = 0; i < ARRAY_LEN(d->exec); i++)
        exec_free(d->exec[i]);
    for (size_t i = 0; i < ARRAY_LEN(d->box); i++)
        box_free(d->box[i]);
    engine_free(d->engine);
    ev_free(d->ev);
    buf_done(&d->said);
    fd_close(&d->mounts[0].fd);
    rates_done(&d->rates);
    canary_done(&d->canary);
    policy_done(&d->policy);
    floor_done(&d->floor);
}

int verb_doctor(const struct args *a, const struct cli_settings *settings)
{
    struct doctor d = { .mounts[0].fd = -1, .rates.dir = -1, .canary = CANARY_NONE };
    bool json = args_find(a, OPT_JSON) != NULL;
    auto_buf out = { 0 };
    int status;

    status = start(&d, a, settings, &d.why);
    if (status < 0)
        d.failed = true;
    else if (status == 0 && !d.failed)
        ev_run(d.ev);
    if (d.signaled)
        status = 128 + d.signaled;
    if (status > 0) {
        /* said by who found it, or asked for */
    } else if (d.failed) {
        status = report_error(&d.why, json);
    } else {
        if (json)
            findings_json(&d.findings, &out);
        else
            findings_print(&d.findings, &out);
        status = report_text(&out);
        if (status == 0)
            status = findings_status(&d.findings);
    }
    doctor_done(&d);
    return status;
}
