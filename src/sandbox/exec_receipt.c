/* The receipt of an execution, from its start to the final totals.
 *
 * COLLECTING exists for two questions that can only be asked after the end. Did memory run out?
 * A program whose child was killed for lack of memory may exit with any code, so every exit
 * except 0 is checked against the kernel's own count. And what changed under /workspace?
 *
 * Invariants:
 * 1. ended_by is written once, by exec_handle_decide_end().
 * 2. Either on_exit or on_failed is called, exactly once; neither after exec_handle_free.
 * 3. A figure is known or carries a reason. Counters of the whole sandbox belong to an execution
 *    only when it was the only one that the sandbox ever ran. */
#include "sandbox/engine_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <signal.h>

#define STEP_NS (10 * NS_PER_S) /* for counters and CHANGES together */
#define CHANGES_MAX 1000u

/* --- the receipt --- */

static struct receipt_figure receipt_figure_known(uint64_t v)
{
    return (struct receipt_figure){ .v = v };
}

static struct receipt_figure receipt_figure_absent(const char *why)
{
    return (struct receipt_figure){ .why = why };
}

const char exec_receipt_resumed_why[] =
    "the server was restarted while it ran, and the counters' values at its start are lost";

static struct receipt_figure receipt_figure_counted(uint64_t v, uint64_t unknown, const char *why)
{
    return v == unknown ? receipt_figure_absent(why) : receipt_figure_known(v);
}

void exec_receipt_set_walls(struct exec_handle *x)
{
    x->receipt.inside_walls = x->sandbox->runtime_report.walls;
    x->receipt.landlock_abi = x->sandbox->runtime_report.landlock_abi;
}

void exec_receipt_begin(struct exec_handle *x, const struct sandbox_handle *b, const struct exec_spec *spec)
{
    static const char later[] = "counted until the sandbox is destroyed";
    static const char unstarted[] = "the program was never started";
    struct receipt *r = &x->receipt;

    memcpy(r->sandbox, b->id, sizeof(r->sandbox));
    if (spec->id)
        memcpy(r->execution, spec->id, sizeof(r->execution));
    else
        id_new("ex", r->execution);
    (void)str_copy(r->request, sizeof(r->request), spec->request ? spec->request : "");
    r->exit_code = -1;
    r->level = b->level;
    network_policy_copy(&r->network, &b->network);
    r->egress.carrier = b->created.carrier;
    if (b->network.mode != NETWORK_NONE)
        r->egress.absent_why = unstarted;
    str_copy(r->policy, sizeof(r->policy), b->policy);
    r->limits = b->limits;
    r->limits.v[LIMIT_WALL] = spec->wall_ms;
    r->limits.v[LIMIT_CPU_TIME] = spec->cpu_ms;
    r->limits.v[LIMIT_OUTPUT] = spec->output_max;
    str_copy(r->profile, sizeof(r->profile), profile_name(b->kind.filter.profile));
    str_copy(r->driver, sizeof(r->driver), driver_name(b->kind.driver));
    str_copy(r->cgroup, sizeof(r->cgroup), b->created.cgroup);
    memcpy(r->enforced, b->created.limits.enforcement, sizeof(r->enforced));
    memcpy(r->enforced_why, b->created.limits.reason, sizeof(r->enforced_why));
    r->host_walls = b->created.walls;
    r->rootless = b->created.rootless;
    exec_receipt_set_walls(x);
    r->wall_ns = r->cpu_ns = r->read_bytes = r->write_bytes = r->tasks_started = receipt_figure_absent(unstarted);
    r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = receipt_figure_absent(later);
    r->denials_why = r->full_filesystems_why = unstarted;
    if (!spec->changes)
        r->changes_why = "not requested";
}

/* Figures from the clocks at the end; the figures of EXIT are set when it arrives. */
static void exec_receipt_measure(struct exec_handle *x)
{
    struct receipt *r = &x->receipt;

    if (x->started_ns == 0)
        return;
    r->wall_ns = receipt_figure_known(clock_mono_ns() - x->started_ns); /* not ev_now: one turn may hold both times */
    if (x->unmetered) {
        r->cpu_ns = receipt_figure_absent("not requested");
        return;
    }
    struct cpu_sample cpu = sandbox_cpu_read(x->sandbox);
    if (x->is_resumed)
        r->cpu_ns = receipt_figure_absent(exec_receipt_resumed_why);
    else if (x->ran_concurrently)
        r->cpu_ns = receipt_figure_absent("other executions ran in the sandbox at the same time");
    else if (cpu.ns == CPU_UNKNOWN || x->cpu_base == CPU_UNKNOWN || cpu.ns < x->cpu_base)
        r->cpu_ns = receipt_figure_absent("this host has no CPU counter for the sandbox");
    else if (cpu.at != ev_now(x->ev))
        r->cpu_ns = receipt_figure_absent("the driver reports it later");
    else
        r->cpu_ns = receipt_figure_known(cpu.ns - x->cpu_base);
}

/* Linux reports the shortage before it kills, and our own kill may come first. "Ended by memory,
 * 0 processes killed for memory" would be true, but look like a mistake. */
static void exec_receipt_explain_no_kills(struct receipt *r)
{
    if (r->ended_by == ENDED_MEMORY && !r->oom_kills.why && r->oom_kills.v == 0)
        r->oom_kills = receipt_figure_absent(
            "the sandbox was ended at its memory limit before the kernel killed a process");
}

static void exec_receipt_fill_counters(struct receipt *r, const struct sandbox_handle_usage *st, bool alone)
{
    static const char shared[] = "counted for the whole sandbox, in which other executions ran";
    static const char unknown[] = "this host's cgroups do not count it";

    if (!alone) {
        r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = receipt_figure_absent(
            shared);
        return;
    }
    r->memory_peak = receipt_figure_counted(st->memory_peak, SANDBOX_USAGE_UNKNOWN, unknown);
    r->pids_peak = receipt_figure_counted(st->pids_peak, SANDBOX_USAGE_UNKNOWN, unknown);
    r->pids_refused = receipt_figure_counted(st->pids_refused, SANDBOX_USAGE_UNKNOWN, unknown);
    r->oom_kills = receipt_figure_counted(st->oom_kills, SANDBOX_USAGE_UNKNOWN, unknown);
    r->throttled_ns = receipt_figure_counted(st->throttled_ns, SANDBOX_USAGE_UNKNOWN, unknown);
    exec_receipt_explain_no_kills(r);
}

void exec_handle_set_final_usage(struct exec_handle *x, const struct sandbox_handle_usage *st, bool alone)
{
    struct receipt *r = &x->receipt;

    if (!st) {
        r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = receipt_figure_absent(
            "the driver could not count it");
        return;
    }
    exec_receipt_fill_counters(r, st, alone);
    if (alone && st->cpu_ns != SANDBOX_USAGE_UNKNOWN && x->cpu_base != CPU_UNKNOWN && x->started_ns != 0 &&
        st->cpu_ns >= x->cpu_base)
        r->cpu_ns = receipt_figure_known(st->cpu_ns - x->cpu_base);
    if (alone)
        exec_network_fill_final(x);
    r->final = true;
}

void exec_handle_decide_end(struct exec_handle *x, enum ended_by cause)
{
    if (x->end_decided || x->state == EXEC_ENDED)
        return;
    x->end_decided = true;
    x->receipt.ended_by = cause;
}

/* Without a counter for the process tree, Linux's CPU limit per process replaces ours. */
static void exec_receipt_decide_by_exit(struct exec_handle *x)
{
    if (x->receipt.signal == SIGXCPU && x->cpu_ms && x->cpu_base == CPU_UNKNOWN)
        exec_handle_decide_end(x, ENDED_CPU);
    exec_handle_decide_end(x, x->receipt.signal ? ENDED_SIGNAL : ENDED_EXIT);
}

/* --- ended --- */

static void exec_handle_enter_ended(struct exec_handle *x)
{
    struct sandbox_handle *b = x->sandbox;

    denials_end_collection(x);
    x->state = EXEC_ENDED;
    exec_handle_set_timer(x, CLOCKS_NEVER);
    exec_handle_drop_stream(x);
    free(take_ptr(&x->request));
    if (b->engine)
        b->link->ops->forget(b->link, x);
    exec_network_drop_collection(x);
    if (!x->ops) {
        exec_handle_release(x);
    }
    sandbox_handle_exec_ended(b);
}

/* Totals of the whole sandbox never become those of an execution that was not its only one, so
 * the receipt is final now. */
static void exec_receipt_finalize_shared(struct exec_handle *x)
{
    if (x->sandbox->launched_execs > 1) {
        exec_receipt_fill_counters(&x->receipt, &(struct sandbox_handle_usage){ 0 }, false);
        x->receipt.final = true;
    }
}

void exec_handle_finish(struct exec_handle *x)
{
    const struct exec_handle_ops *ops = x->ops;

    exec_receipt_finalize_shared(x);
    exec_handle_enter_ended(x);
    if (ops && ops->on_exit)
        ops->on_exit(x->arg, &x->receipt);
}

void exec_handle_fail(struct exec_handle *x, const struct err *err)
{
    const struct exec_handle_ops *ops = x->ops;

    exec_handle_enter_ended(x);
    if (ops && ops->on_failed)
        ops->on_failed(x->arg, err);
}

void exec_handle_sandbox_gone(struct exec_handle *x, const struct err *why, bool memory)
{
    struct receipt *r = &x->receipt;
    bool running = x->state == EXEC_STARTING || x->state == EXEC_RUNNING;

    if (x->state == EXEC_ENDED)
        return;
    if (!x->end_decided && (x->state == EXEC_PREPARING || (x->state == EXEC_STARTING && !memory))) {
        exec_handle_fail(x, why);
        return;
    }
    if (running) {
        exec_receipt_measure(x);
        r->full_filesystems_why = "the sandbox ended before it could report this";
        r->read_bytes = r->write_bytes = r->tasks_started = receipt_figure_absent(r->full_filesystems_why);
        exec_handle_decide_end(x, memory ? ENDED_MEMORY : ENDED_LOST);
        if (r->ended_by != ENDED_LOST)
            r->signal = SIGKILL;
    } else if (memory) {
        exec_handle_decide_end(x, ENDED_MEMORY);
    }
    exec_receipt_explain_no_kills(r);
    if (x->exit_received)
        exec_receipt_decide_by_exit(x);
    if (!r->changes_why)
        r->changes_why = "the sandbox ended before its files could be compared";
    exec_network_fill_receipt(x);
    denials_fill_receipt(x);
    exec_handle_finish(x);
}

/* --- collecting --- */

static bool exec_receipt_on_changes_data(struct exec_handle *x, const struct frame *f)
{
    struct receipt *r = &x->receipt;
    struct unpack u;
    struct rt_change c;

    unpack_init(&u, f->data, f->len);
    while (u.pos < u.len) {
        if (!rt_change_unpack(&u, &c) || r->nchanges == CHANGES_MAX)
            return false;
        if (c.kind != RT_ADDED && c.kind != RT_MODIFIED && c.kind != RT_DELETED)
            return false;
        if (!r->changes)
            r->changes = mem_new_array(struct receipt_change, CHANGES_MAX);
        r->changes[r->nchanges++] = (struct receipt_change){
            .kind = c.kind, .file_kind = c.file, .size = c.size, .path = str_dup(c.path)
        };
    }
    sandbox_stream_consumed(x->stream, f->len);
    return true;
}

static bool exec_receipt_on_changes_frame(void *arg, const struct frame *f)
{
    struct exec_handle *x = arg;
    struct receipt *r = &x->receipt;
    struct rt_done m;

    if (f->type == FRAME_DATA)
        return exec_receipt_on_changes_data(x, f);
    if (f->type == FRAME_STARTED)
        return false;
    x->stream = NULL;
    if (f->type == FRAME_DONE) {
        if (rt_done_decode(f, &m, NULL) < 0)
            return false;
        r->added = m.added;
        r->modified = m.modified;
        r->deleted = m.deleted;
        r->changes_truncated = m.truncated;
    } else if (f->type == FRAME_ERROR) {
        r->changes_why = "the sandbox could not compare its files";
    } else {
        return false;
    }
    exec_handle_finish(x);
    return true;
}

void exec_handle_on_stream_gone(void *arg, const struct err *why UNUSED)
{
    struct exec_handle *x = arg;

    x->stream = NULL;
}

static const struct sandbox_stream_ops exec_receipt_changes_ops = { .on_frame = exec_receipt_on_changes_frame,
                                                                    .on_gone = exec_handle_on_stream_gone };

struct sandbox_stream *exec_handle_open_path_request(struct exec_handle *x, uint8_t type,
                                                     const struct sandbox_stream_ops *ops)
{
    struct rt_path m = { .path = "/workspace", .length = CHANGES_MAX };
    PAYLOAD(payload);
    int len = rt_path_encode(&m, payload, NULL);

    return sandbox_stream_open(x->sandbox, type, payload, len > 0 ? (uint32_t)len : 0, ops, x);
}

static void exec_receipt_request_changes(struct exec_handle *x)
{
    exec_receipt_decide_by_exit(x);
    if (x->receipt.changes_why || !x->ops)
        exec_handle_finish(x);
    else
        x->stream = exec_handle_open_path_request(x, FRAME_CHANGES, &exec_receipt_changes_ops);
}

static void exec_receipt_request_network(struct exec_handle *x)
{
    if (!exec_network_collect(x))
        exec_receipt_request_changes(x);
}

void exec_receipt_on_network(struct exec_handle *x)
{
    exec_receipt_request_changes(x);
}

static void exec_receipt_on_denials(struct driver_request *r, const struct driver_denials *d, const struct err *err)
{
    struct exec_handle *x = r->owner;

    if (x->state != EXEC_COLLECTING || !x->waits_for_monitor)
        return;
    x->waits_for_monitor = false;
    denials_store_answer(x->sandbox, d, err);
    denials_fill_receipt(x);
    exec_handle_set_timer(x, ev_now(x->ev) + STEP_NS);
    exec_receipt_request_network(x);
}

static void exec_receipt_request_denials(struct exec_handle *x)
{
    struct driver_link *l = x->sandbox->link;

    if (l->denials_absent_why || !x->ops) {
        denials_set_absent(x, l->denials_absent_why);
        exec_receipt_request_network(x);
        return;
    }
    /* An execution that was cut off may still wait for the monitor's answer. */
    if (!x->end_decided && engine_has_no_new_denials(x->sandbox)) {
        x->sandbox->denials_absent_why = NULL;
        denials_fill_receipt(x);
        exec_receipt_request_network(x);
        return;
    }
    x->waits_for_monitor = true;
    exec_handle_set_timer(x, ev_now(x->ev) + MONITOR_ANSWER_NS);
    l->ops->denials(l, x->sandbox->id, exec_receipt_on_denials, x);
}

static void exec_receipt_on_stats(struct driver_request *r, const struct sandbox_handle_usage *st,
                                  const struct err *err UNUSED)
{
    struct exec_handle *x = r->owner;
    struct sandbox_handle *b = x->sandbox;

    if (x->state != EXEC_COLLECTING || x->stream || x->waits_for_monitor)
        return;
    if (st) {
        if (st->oom_kills != SANDBOX_USAGE_UNKNOWN && st->oom_kills > b->oom_kills_attributed) {
            b->oom_kills_attributed = st->oom_kills;
            exec_handle_decide_end(x, ENDED_MEMORY);
        }
        exec_receipt_fill_counters(&x->receipt, st, b->launched_execs == 1);
    }
    exec_receipt_request_denials(x);
}

static void exec_receipt_collect(struct exec_handle *x)
{
    const struct receipt *r = &x->receipt;
    struct sandbox_handle *b = x->sandbox;
    bool by_itself = !x->end_decided && (r->exit_code != 0 || r->signal != 0);
    uint64_t kills = oom_kills_read(b->oom_fd);

    x->state = EXEC_COLLECTING;
    /* The driver reports it too, but a program that loses a child and exits at once is faster. */
    if (kills > b->oom_kills_attributed) {
        b->oom_kills_attributed = kills;
        exec_handle_decide_end(x, ENDED_MEMORY);
    }
    exec_handle_set_timer(x, ev_now(x->ev) + STEP_NS);
    if (x->ops && (by_itself || (x->end_decided && r->ended_by == ENDED_MEMORY)))
        b->link->ops->stats(b->link, b->id, exec_receipt_on_stats, x);
    else
        exec_receipt_request_denials(x);
}

void exec_receipt_on_exit(struct exec_handle *x, const struct rt_exit *m)
{
    static const char unreadable[] = "not readable inside the sandbox";
    struct receipt *r = &x->receipt;

    x->exit_received = true;
    exec_receipt_measure(x);
    r->exit_code = m->code;
    r->signal = m->signal;
    r->read_bytes = receipt_figure_counted(m->read_bytes, RT_UNKNOWN, unreadable);
    r->write_bytes = receipt_figure_counted(m->write_bytes, RT_UNKNOWN, unreadable);
    r->tasks_started = receipt_figure_counted(m->tasks_started, RT_UNKNOWN, unreadable);
    r->full_filesystems = (uint32_t)m->full;
    r->full_filesystems_why = NULL;
    exec_receipt_collect(x);
}

void exec_receipt_timeout(struct exec_handle *x)
{
    if (x->waits_for_monitor) {
        exec_receipt_on_denials(&(struct driver_request){ .owner = x }, NULL, NULL);
        return;
    }
    exec_receipt_decide_by_exit(x);
    if (x->network_request)
        exec_network_fill_receipt(x);
    if (!x->receipt.changes_why)
        x->receipt.changes_why = "comparing the files took too long";
    exec_handle_finish(x);
}
