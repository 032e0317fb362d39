/* A receipt in JSON is flat for the values that a reader looks at first (why, how long, how
 * much) and nested for lists. An unknown figure is omitted: its name stands in "absent" with the
 * reason, so that a zero is always a measured zero. Durations are in milliseconds with decimals,
 * because a whole execution may take less than one. */
#include "sandbox/receipt.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/limit_hits.h"
#include "sandbox/receipt_network.h"
#include "sandbox/walls.h"
#include "core/wire/jail.h"

#include <signal.h>

int receipt_exit_code(const struct receipt *r)
{
    switch (r->ended_by) {
    case ENDED_EXIT:
        return r->exit_code >= 0 ? r->exit_code : 125;
    case ENDED_SIGNAL:
        return 128 + r->signal;
    case ENDED_LIFETIME:
    case ENDED_IDLE:
    case ENDED_TIMEOUT:
    case ENDED_CPU:
        return 124;
    case ENDED_MEMORY:
        return 123;
    case ENDED_KILLED:
        return 128 + SIGKILL;
    case ENDED_LOST:
    case ENDED_BUDGET:
        break;
    }
    return 125;
}

/* --- JSON --- */

struct receipt_named_figure {
    const char *name;
    struct receipt_figure figure;
    bool is_time; /* in nanoseconds */
};

#define RECEIPT_FIGURE_COUNT 10
#define RECEIPT_SUMMARY_COUNT 3 /* the first figures are those of the summary */

static void receipt_figures(const struct receipt *r, struct receipt_named_figure out[RECEIPT_FIGURE_COUNT])
{
    const struct receipt_named_figure all[RECEIPT_FIGURE_COUNT] = {
        { "wallMs", r->wall_ns, true },
        { "cpuMs", r->cpu_ns, true },
        { "memoryPeakBytes", r->memory_peak, false },
        { "readBytes", r->read_bytes, false },
        { "writtenBytes", r->write_bytes, false },
        { "tasksStarted", r->tasks_started, false },
        { "pidsPeak", r->pids_peak, false },
        { "pidsRefused", r->pids_refused, false },
        { "oomKills", r->oom_kills, false },
        { "throttledMs", r->throttled_ns, true },
    };

    memcpy(out, all, sizeof(all));
}

static void receipt_json_used(const struct receipt_named_figure *f, size_t n, struct jsonw *w)
{
    jsonw_kobject(w, "used");
    for (size_t i = 0; i < n; i++) {
        if (f[i].figure.why)
            continue;
        if (f[i].is_time)
            jsonw_kms(w, f[i].name, f[i].figure.v);
        else
            jsonw_ku64(w, f[i].name, f[i].figure.v);
    }
    jsonw_end_object(w);
}

static void receipt_json_walls(const char *key, bool inside, uint32_t found, struct jsonw *w)
{
    size_t n;
    const struct wall *walls = walls_all(&n);

    jsonw_key(w, key);
    jsonw_array(w);
    for (size_t i = 0; i < n; i++)
        if (found & (inside ? walls[i].inside : walls[i].outside))
            jsonw_str(w, walls[i].name);
    jsonw_end_array(w);
}

static enum driver_id receipt_driver(const struct receipt *r)
{
    enum driver_id d = DRIVER_NATIVE;

    (void)driver_parse(r->driver, &d);
    return d;
}

/* Walls that the sandbox was allowed to lack, and lacks. */
static void receipt_json_missing_walls(const struct receipt *r, struct jsonw *w)
{
    struct wall_demand demand = { .level = r->level, .driver = receipt_driver(r), .rootless = r->rootless };
    size_t n;
    const struct wall *walls = walls_all(&n);

    jsonw_key(w, "missing");
    jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        const char *why = walls_exception_reason(&demand, &walls[i]);

        if (!why || !((walls[i].outside & ~r->host_walls) | (walls[i].inside & ~r->inside_walls)))
            continue;
        jsonw_object(w);
        jsonw_kstr(w, "name", walls[i].name);
        jsonw_kstr(w, "reason", why);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void receipt_json_all_walls(const struct receipt *r, struct jsonw *w)
{
    jsonw_key(w, "walls");
    jsonw_object(w);
    receipt_json_walls("outside", false, r->host_walls, w);
    receipt_json_walls("inside", true, r->inside_walls, w);
    jsonw_ku64(w, "landlockAbi", r->landlock_abi);
    jsonw_kbool(w, "rootless", r->rootless);
    receipt_json_missing_walls(r, w);
    jsonw_end_object(w);
}

static const char *receipt_enforced_name(uint8_t e)
{
    return e == 2 ? "enforced" : e == 1 ? "partial" : "none";
}

/* A limit that is not set is omitted. An execution without a cap on its output has 0 there. */
static bool receipt_limit_is_set(const struct receipt *r, enum limit l)
{
    return !limit_is_unlimited(l, r->limits.v[l]) && (l != LIMIT_OUTPUT || r->limits.v[l] != 0);
}

static void receipt_json_limits(const struct receipt *r, struct jsonw *w)
{
    char text[LIMIT_TEXT];

    jsonw_key(w, "limits");
    jsonw_object(w);
    for (int i = 0; i < LIMIT_COUNT; i++) {
        const struct limit_info *info = limit_info((enum limit)i);

        if (!receipt_limit_is_set(r, (enum limit)i))
            continue;
        jsonw_key(w, info->name);
        jsonw_object(w);
        if (info->unit == UNIT_CPUSET)
            jsonw_kstr(w, "value", limit_print((enum limit)i, r->limits.v[i], text));
        else
            jsonw_ku64(w, "value", r->limits.v[i]);
        jsonw_kstr(w, "state", receipt_enforced_name(r->enforced[i]));
        const char *unseen = limit_hit_unobservable(r, (enum limit)i);
        if (unseen)
            jsonw_kstr(w, "unseen", unseen);
        if (r->enforced[i] < 2 && limit_reason_text(r->enforced_why[i]))
            jsonw_kstr(w, "why", limit_reason_text(r->enforced_why[i]));
        jsonw_end_object(w);
    }
    jsonw_end_object(w);
}

static void receipt_json_limit_hits(const struct limit_hit *met, size_t n, struct jsonw *w)
{
    jsonw_key(w, "limitHits");
    jsonw_array(w);
    for (size_t i = 0; i < n; i++) {
        jsonw_object(w);
        jsonw_kstr(w, "limit", limit_info(met[i].limit)->name);
        if (met[i].count)
            jsonw_ku64(w, "count", met[i].count);
        jsonw_kstr(w, "how", met[i].how);
        jsonw_kstr(w, "fix", met[i].fix);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static const char *receipt_change_name(char kind)
{
    return kind == 'A' ? "added" : kind == 'D' ? "deleted" : "modified";
}

static const char *receipt_file_kind_name(char file)
{
    switch (file) {
    case 'f':
        return "file";
    case 'd':
        return "directory";
    case 'l':
        return "link";
    case 'p':
        return "fifo";
    case 's':
        return "socket";
    default:
        return "other";
    }
}

static void receipt_json_changes(const struct receipt *r, struct jsonw *w)
{
    jsonw_key(w, "changes");
    jsonw_object(w);
    jsonw_ku64(w, "added", r->added);
    jsonw_ku64(w, "modified", r->modified);
    jsonw_ku64(w, "deleted", r->deleted);
    jsonw_kbool(w, "truncated", r->changes_truncated);
    jsonw_key(w, "files");
    jsonw_array(w);
    for (size_t i = 0; i < r->nchanges; i++) {
        const struct receipt_change *c = &r->changes[i];

        jsonw_object(w);
        jsonw_kstr(w, "path", c->path);
        jsonw_kstr(w, "change", receipt_change_name(c->kind));
        jsonw_kstr(w, "kind", receipt_file_kind_name(c->file_kind));
        if (c->kind != 'D')
            jsonw_ku64(w, "sizeBytes", c->size);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
    jsonw_end_object(w);
}

static void receipt_json_denials(const struct receipt *r, struct jsonw *w)
{
    jsonw_key(w, "denials");
    jsonw_array(w);
    for (size_t i = 0; i < r->ndenials; i++) {
        const struct denial_count *d = &r->denials[i];

        jsonw_object(w);
        jsonw_kstr(w, "syscall", d->denial.name);
        jsonw_kstr(w, "call", d->denial.call);
        jsonw_ku64(w, "count", d->count);
        jsonw_kstr(w, "rule", d->denial.rule);
        jsonw_kstr(w, "fix", d->denial.fix);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void receipt_json_absent(const struct receipt *r, const struct receipt_named_figure f[RECEIPT_FIGURE_COUNT],
                                struct jsonw *w)
{
    jsonw_key(w, "absent");
    jsonw_object(w);
    for (size_t i = 0; i < RECEIPT_FIGURE_COUNT; i++)
        if (f[i].figure.why)
            jsonw_kstr(w, f[i].name, f[i].figure.why);
    if (r->changes_why)
        jsonw_kstr(w, "changes", r->changes_why);
    if (r->denials_why)
        jsonw_kstr(w, "denials", r->denials_why);
    jsonw_end_object(w);
}

void receipt_json_end(const struct receipt *r, struct jsonw *w)
{
    jsonw_key(w, "exitCode");
    if (r->exit_code >= 0)
        jsonw_i64(w, r->exit_code);
    else
        jsonw_null(w);
    jsonw_key(w, "signal");
    if (r->signal)
        jsonw_i64(w, r->signal);
    else
        jsonw_null(w);
    jsonw_kstr(w, "endedBy", ended_by_name(r->ended_by));
}

void receipt_json(const struct receipt *r, struct jsonw *w)
{
    struct receipt_named_figure f[RECEIPT_FIGURE_COUNT];
    struct limit_hit met[LIMIT_COUNT];
    char stamp[32];

    receipt_figures(r, f);
    jsonw_object(w);
    jsonw_kstr(w, "sandbox", r->sandbox);
    jsonw_kstr(w, "execution", r->execution);
    if (r->request[0])
        jsonw_kstr(w, "requestId", r->request);
    jsonw_kbool(w, "final", r->final);
    if (r->hint)
        jsonw_kstr(w, "hint", r->hint);
    if (r->context_reset)
        jsonw_kbool(w, "contextReset", true);
    receipt_json_end(r, w);
    if (r->started_real_ns)
        jsonw_kstr(w, "startedAt", clock_rfc3339(r->started_real_ns, stamp));
    receipt_json_used(f, RECEIPT_FIGURE_COUNT, w);
    jsonw_ku64(w, "stdoutBytes", r->stdout_bytes);
    jsonw_ku64(w, "stderrBytes", r->stderr_bytes);
    jsonw_ku64(w, "droppedBytes", r->dropped_bytes);
    jsonw_kstr(w, "level", level_name(r->level));
    if (r->policy[0])
        jsonw_kstr(w, "policy", r->policy);
    jsonw_kstr(w, "profile", r->profile);
    jsonw_kstr(w, "driver", r->driver);
    driver_weaknesses_json(receipt_driver(r), w);
    jsonw_key(w, "network");
    if (r->network.mode == NETWORK_NONE)
        jsonw_str(w, network_mode_name(r->network.mode));
    else
        receipt_network_json(r, true, w);
    jsonw_kstr(w, "cgroup", r->cgroup);
    receipt_json_all_walls(r, w);
    receipt_json_limits(r, w);
    receipt_json_limit_hits(met, limit_hits_list(r, met), w);
    if (!r->changes_why)
        receipt_json_changes(r, w);
    if (!r->denials_why) {
        receipt_json_denials(r, w);
        jsonw_ku64(w, "denialsMore", r->denials_more);
    }
    receipt_json_absent(r, f, w);
    jsonw_end_object(w);
}

void receipt_json_summary(const struct receipt *r, struct jsonw *w)
{
    struct receipt_named_figure f[RECEIPT_FIGURE_COUNT];
    struct limit_hit met[LIMIT_COUNT];
    size_t nmet = limit_hits_list(r, met);

    receipt_figures(r, f);
    jsonw_object(w);
    receipt_json_used(f, RECEIPT_SUMMARY_COUNT, w);
    if (nmet)
        receipt_json_limit_hits(met, nmet, w);
    if (!r->changes_why && r->added + r->modified + r->deleted > 0)
        receipt_json_changes(r, w);
    if (!r->denials_why && r->ndenials)
        receipt_json_denials(r, w);
    if (receipt_network_is_used(r)) {
        jsonw_key(w, "network");
        receipt_network_json(r, false, w);
    }
    jsonw_end_object(w);
}

/* --- for a person --- */

/* File names come from the sandbox. */
static void receipt_add_sanitized(struct buf *out, const char *s)
{
    auto_free char *tame = str_dup(s);

    str_strip_control_chars(tame);
    buf_adds(out, tame);
}

static void receipt_print_time(struct buf *out, uint64_t ns)
{
    char text[32];

    if (ns < 10 * NS_PER_MS)
        buf_addf(out, "%u.%02u ms", (unsigned)(ns / NS_PER_MS), (unsigned)(ns % NS_PER_MS / (NS_PER_MS / 100)));
    else
        buf_adds(out, str_ms(ns / NS_PER_MS, text));
}

static void receipt_print_limit(const struct receipt *r, enum limit l, struct buf *out)
{
    char text[LIMIT_TEXT];

    buf_addf(out, " (limit %s)", limit_print(l, r->limits.v[l], text));
}

static void receipt_print_end(const struct receipt *r, struct buf *out)
{
    static const char *const said[] = {
        [ENDED_LIFETIME] = "the lifetime of the sandbox expired",
        [ENDED_IDLE] = "the sandbox was idle for too long",
        [ENDED_TIMEOUT] = "the execution timeout expired",
        [ENDED_CPU] = "its CPU time was used up",
        [ENDED_MEMORY] = "the sandbox ran out of memory",
        [ENDED_KILLED] = "it was killed on request",
        [ENDED_LOST] = "the sandbox was lost",
        [ENDED_BUDGET] = "the budget of its tenant was used up",
    };
    static const int limits[] = { [ENDED_LIFETIME] = LIMIT_LIFETIME + 1,
                                  [ENDED_IDLE] = LIMIT_IDLE + 1,
                                  [ENDED_TIMEOUT] = LIMIT_WALL + 1,
                                  [ENDED_CPU] = LIMIT_CPU_TIME + 1,
                                  [ENDED_MEMORY] = LIMIT_MEMORY + 1,
                                  [ENDED_LOST] = 0,
                                  [ENDED_BUDGET] = 0 };

    buf_addf(out, "ended    %s: ", ended_by_name(r->ended_by));
    if (r->ended_by == ENDED_EXIT)
        buf_addf(out, "exit code %d", r->exit_code);
    else if (r->ended_by == ENDED_SIGNAL)
        buf_addf(out, "signal %d (%s)", r->signal, strsignal(r->signal));
    else
        buf_adds(out, said[r->ended_by]);
    if (limits[r->ended_by])
        receipt_print_limit(r, (enum limit)(limits[r->ended_by] - 1), out);
    buf_adds(out, "\n");
}

static void receipt_print_usage(const struct receipt *r, struct buf *out)
{
    const struct {
        const char *name;
        const struct receipt_figure *f;
        enum { TIME, BYTES, COUNT } unit;
        bool quiet; /* omitted when zero */
    } used[] = {
        { "wall", &r->wall_ns, TIME, false },
        { "cpu", &r->cpu_ns, TIME, false },
        { "memory peak", &r->memory_peak, BYTES, false },
        { "read", &r->read_bytes, BYTES, false },
        { "written", &r->write_bytes, BYTES, false },
        { "tasks", &r->tasks_started, COUNT, false },
        { "throttled", &r->throttled_ns, TIME, true },
        { "oom kills", &r->oom_kills, COUNT, true },
    };
    const char *comma = "used     ";
    char text[32];

    for (size_t i = 0; i < ARRAY_LEN(used); i++) {
        if (used[i].f->why || (used[i].quiet && used[i].f->v == 0))
            continue;
        buf_addf(out, "%s%s ", comma, used[i].name);
        if (used[i].unit == TIME)
            receipt_print_time(out, used[i].f->v);
        else if (used[i].unit == BYTES)
            buf_adds(out, str_size(used[i].f->v, text));
        else
            buf_addf(out, "%" PRIu64, used[i].f->v);
        comma = ", ";
    }
    buf_adds(out, comma[0] == ',' ? "\n" : "");
}

static void receipt_print_output(const struct receipt *r, struct buf *out)
{
    char a[32], b[32];

    buf_addf(out, "output   %s on standard output, %s on standard error", str_size(r->stdout_bytes, a),
             str_size(r->stderr_bytes, b));
    if (r->dropped_bytes) {
        buf_addf(out, "; %s beyond the cap were dropped", str_size(r->dropped_bytes, a));
        receipt_print_limit(r, LIMIT_OUTPUT, out);
    }
    buf_adds(out, "\n");
}

#define RECEIPT_PRINTED_CHANGES 5

static void receipt_print_changes(const struct receipt *r, struct buf *out)
{
    if (r->changes_why)
        return;
    buf_addf(out, "changed  %" PRIu64 " added, %" PRIu64 " modified, %" PRIu64 " deleted", r->added, r->modified,
             r->deleted);
    for (size_t i = 0; i < r->nchanges && i < RECEIPT_PRINTED_CHANGES; i++) {
        buf_adds(out, i == 0 ? ": " : ", ");
        receipt_add_sanitized(out, r->changes[i].path);
    }
    if (r->nchanges > RECEIPT_PRINTED_CHANGES || (r->changes_truncated && r->nchanges > 0))
        buf_adds(out, ", ...");
    buf_adds(out, "\n");
}

/* Dropped output is reported by receipt_print_output. */
static void receipt_print_limit_hits(const struct receipt *r, struct buf *out)
{
    struct limit_hit met[LIMIT_COUNT];
    size_t n = limit_hits_list(r, met);

    for (size_t i = 0; i < n; i++) {
        if (met[i].limit == LIMIT_OUTPUT)
            continue;
        buf_addf(out, "limit    %s: %s", limit_info(met[i].limit)->name, met[i].how);
        if (met[i].count)
            buf_addf(out, " %" PRIu64 " times", met[i].count);
        receipt_print_limit(r, met[i].limit, out);
        buf_addf(out, "; %s\n", met[i].fix);
    }
}

#define RECEIPT_PRINTED_DENIALS 8

/* "mount (1): not allowed (profile python); there is no way to allow it": the reason for the
 * rule is only in the JSON. */
static void receipt_print_denials(const struct receipt *r, struct buf *out)
{
    uint64_t rest = r->denials_more;

    for (size_t i = 0; i < r->ndenials; i++) {
        const struct denial *d = &r->denials[i].denial;

        if (i >= RECEIPT_PRINTED_DENIALS)
            rest += r->denials[i].count;
        else
            buf_addf(out, "denied   %s (%" PRIu64 "): %.*s; %s\n", str_ends(d->call, "(...)") ? d->name : d->call,
                     r->denials[i].count, (int)strcspn(d->rule, ":"), d->rule, d->fix);
    }
    if (rest)
        buf_addf(out, "denied   and %" PRIu64 " more\n", rest);
    if (r->denials_why)
        buf_addf(out, "unknown  %s: denials\n", r->denials_why);
}

static unsigned receipt_count_bits(uint32_t v)
{
    return (unsigned)__builtin_popcount(v);
}

static void receipt_print_walls(const struct receipt *r, struct buf *out)
{
    bool named = r->level == LEVEL_CUSTOM && r->policy[0];

    buf_addf(
        out,
        "walls    level %s%s%s, driver %s, network %s, %u raised outside, %u seen inside, Landlock ABI %u, cgroup %s",
        level_name(r->level), named ? " by policy " : "", named ? r->policy : "", r->driver,
        network_mode_name(r->network.mode), receipt_count_bits(r->host_walls), receipt_count_bits(r->inside_walls),
        r->landlock_abi, r->cgroup);
    buf_adds(out, r->rootless ? ", rootless\n" : "\n");
    driver_weaknesses_print(receipt_driver(r), "weaker   ", out);
}

static bool receipt_limit_is_weak(const struct receipt *r, int i)
{
    return receipt_limit_is_set(r, (enum limit)i) && r->enforced[i] < 2;
}

/* Limits that are not fully enforced, one line for each combination of state and reason. */
static void receipt_print_weak_limits(const struct receipt *r, struct buf *out)
{
    uint64_t printed = 0;

    for (int i = 0; i < LIMIT_COUNT; i++) {
        const char *why = limit_reason_text(r->enforced_why[i]);

        if (!receipt_limit_is_weak(r, i) || printed >> i & 1)
            continue;
        buf_addf(out, "limits   %s: %s", receipt_enforced_name(r->enforced[i]), limit_info((enum limit)i)->name);
        for (int k = i + 1; k < LIMIT_COUNT; k++)
            if (receipt_limit_is_weak(r, k) && r->enforced[k] == r->enforced[i] &&
                r->enforced_why[k] == r->enforced_why[i]) {
                buf_addf(out, ", %s", limit_info((enum limit)k)->name);
                printed |= 1ull << k;
            }
        buf_addf(out, why ? " (%s)\n" : "\n", why);
    }
}

static void receipt_print_absent(const struct receipt *r, struct buf *out)
{
    struct receipt_named_figure f[RECEIPT_FIGURE_COUNT];
    const char *last = NULL;

    receipt_figures(r, f);
    for (size_t i = 0; i < RECEIPT_FIGURE_COUNT; i++) {
        if (!f[i].figure.why)
            continue;
        if (last && str_eq(last, f[i].figure.why)) {
            buf_addf(out, ", %s", f[i].name);
        } else {
            buf_addf(out, "%sunknown  %s: %s", last ? "\n" : "", f[i].figure.why, f[i].name);
            last = f[i].figure.why;
        }
    }
    buf_adds(out, last ? "\n" : "");
}

void receipt_print(const struct receipt *r, struct buf *out)
{
    buf_addf(out, "sandbox  %s, execution %s%s\n", r->sandbox, r->execution, r->final ? "" : " (totals pending)");
    receipt_print_end(r, out);
    receipt_print_usage(r, out);
    receipt_print_output(r, out);
    receipt_print_changes(r, out);
    receipt_print_limit_hits(r, out);
    receipt_print_denials(r, out);
    receipt_network_print(r, out);
    receipt_print_walls(r, out);
    receipt_print_weak_limits(r, out);
    receipt_print_absent(r, out);
}

void receipt_done(struct receipt *r)
{
    for (size_t i = 0; i < r->nchanges; i++)
        free(r->changes[i].path);
    free(r->changes);
    free(r->denials);
    free(r->egress.destinations);
    network_policy_done(&r->network);
    r->changes = NULL;
    r->denials = NULL;
    r->egress.destinations = NULL;
    r->nchanges = 0;
}
