/* The end of an execution, told truthfully: its receipt from the first line to the final sums.
 *
 * SETTLING exists for two questions that can only be put after the end. Was it the memory? A program whose child was
 * killed for memory exits as it likes, so every exit but 0 is checked against the kernel's own count. And what changed
 * under /workspace?
 *
 * Invariants:
 * 1. ended_by is written once, by exec_decide().
 * 2. on_exit or on_failed, exactly one of them, exactly once; none after exec_free.
 * 3. A figure is known or carries its reason; counters of the whole sandbox are an execution's own only when it was the
 *    only one the sandbox ever ran. */
#include "engine/inside.h"

#include "base/mem.h"
#include "base/str.h"
#include "policy/denial.h"

#include <errno.h>
#include <signal.h>

#define STEP_NS (10 * NS_PER_S) /* for counters and CHANGES together */
#define CHANGES_MAX 1000u

/* --- the receipt --- */

static struct figure known(uint64_t v)
{
    return (struct figure){ .v = v };
}

static struct figure absent(const char *why)
{
    return (struct figure){ .why = why };
}

static const char resumed_why[] = "the host that started it is gone, and with it where the counting began";

static struct figure counted(uint64_t v, uint64_t unknown, const char *why)
{
    return v == unknown ? absent(why) : known(v);
}

void settle_walls(struct exec *x)
{
    x->receipt.inside_walls = x->box->inside.walls;
    x->receipt.landlock_abi = x->box->inside.landlock_abi;
}

void settle_begin(struct exec *x, const struct box *b, const struct exec_spec *spec)
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
    str_copy(r->policy, sizeof(r->policy), b->policy);
    r->limits = b->limits;
    r->limits.v[LIMIT_WALL] = spec->wall_ms;
    r->limits.v[LIMIT_CPU_TIME] = spec->cpu_ms;
    r->limits.v[LIMIT_OUTPUT] = spec->output_max;
    str_copy(r->profile, sizeof(r->profile), profile_name(b->kind.filter.profile));
    str_copy(r->driver, sizeof(r->driver), "native");
    str_copy(r->cgroup, sizeof(r->cgroup), b->outside.cgroup);
    memcpy(r->enforced, b->outside.enforced, sizeof(r->enforced));
    memcpy(r->enforced_why, b->outside.why, sizeof(r->enforced_why));
    r->host_walls = b->outside.walls;
    settle_walls(x);
    r->wall_ns = r->cpu_ns = r->read_bytes = r->write_bytes = r->tasks_started = absent(unstarted);
    r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = absent(later);
    r->denials_why = r->full_why = unstarted;
    if (!spec->changes)
        r->changes_why = "not asked for";
}

/* The clocks' view at the end; what EXIT says is filled in where it arrives. */
static void measure(struct exec *x)
{
    struct receipt *r = &x->receipt;

    if (x->started_ns == 0)
        return;
    r->wall_ns = known(ev_now(x->ev) - x->started_ns);
    if (x->unmetered) {
        r->cpu_ns = absent("not asked for");
        return;
    }
    uint64_t cpu = box_cpu_look(x->box);
    if (x->resumed)
        r->cpu_ns = absent(resumed_why);
    else if (x->shared)
        r->cpu_ns = absent("other executions ran in the sandbox at the same time");
    else if (cpu == CPU_UNKNOWN || x->cpu_base == CPU_UNKNOWN || cpu < x->cpu_base)
        r->cpu_ns = absent("this host has no CPU counter for the sandbox");
    else
        r->cpu_ns = known(cpu - x->cpu_base);
}

/* The kernel tells of its shortage before it kills, and our own kill may come first. "Ended by memory, 0 processes
 * killed for memory" would be true and read like a mistake. */
static void explain_no_kills(struct receipt *r)
{
    if (r->ended_by == ENDED_MEMORY && !r->oom_kills.why && r->oom_kills.v == 0)
        r->oom_kills = absent("the sandbox was ended at its memory limit before the kernel had chosen a process");
}

static void fill_counters(struct receipt *r, const struct jail_stats *st, bool alone)
{
    static const char shared[] = "counted for the whole sandbox, in which other executions ran";
    static const char unknown[] = "this host's cgroups do not count it";

    if (!alone) {
        r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = absent(shared);
        return;
    }
    r->memory_peak = counted(st->memory_peak, JAIL_UNKNOWN, unknown);
    r->pids_peak = counted(st->pids_peak, JAIL_UNKNOWN, unknown);
    r->pids_refused = counted(st->pids_refused, JAIL_UNKNOWN, unknown);
    r->oom_kills = counted(st->oom_kills, JAIL_UNKNOWN, unknown);
    r->throttled_ns = counted(st->throttled_ns, JAIL_UNKNOWN, unknown);
    explain_no_kills(r);
}

void exec_complete(struct exec *x, const struct jail_stats *st, bool alone)
{
    struct receipt *r = &x->receipt;

    if (!st) {
        r->memory_peak = r->pids_peak = r->pids_refused = r->oom_kills = r->throttled_ns = absent(
            "the jailer could not count it");
        return;
    }
    fill_counters(r, st, alone);
    if (alone && st->cpu_ns != JAIL_UNKNOWN && x->cpu_base != CPU_UNKNOWN && x->started_ns != 0 &&
        st->cpu_ns >= x->cpu_base)
        r->cpu_ns = known(st->cpu_ns - x->cpu_base);
    r->final = true;
}

void exec_decide(struct exec *x, enum ended_by cause)
{
    if (x->decided || x->state == EXEC_OVER)
        return;
    x->decided = true;
    x->receipt.ended_by = cause;
}

/* Where no counter covers the tree, the kernel's own clock for one process stands in for ours. */
static void decide_by_exit(struct exec *x)
{
    if (x->receipt.signal == SIGXCPU && x->cpu_ms && x->cpu_base == CPU_UNKNOWN)
        exec_decide(x, ENDED_CPU);
    exec_decide(x, x->receipt.signal ? ENDED_SIGNAL : ENDED_EXIT);
}

/* --- what was refused --- */

void denials_take(struct box *b, const struct answer *a, const struct err *err)
{
    b->asks_monitor = false;
    if (err && b->e->unwatched)
        b->denied_why = b->e->unwatched;
    else if (!a || jail_denied_decode(a->f, &b->denied, NULL) < 0)
        b->denied_why = "the monitor did not answer";
    else if (b->denied.watched == JAIL_UNWATCHABLE && b->denied.sys == EBUSY)
        b->denied_why = "something outside cove listens to refused calls already, and the kernel allows one listener";
    else if (b->denied.watched == JAIL_UNWATCHED || b->denied.sys == EMFILE)
        b->denied_why = "the monitor watches as many sandboxes as it can, and this is not one of them";
    else if (b->denied.watched != JAIL_WATCHED)
        b->denied_why = "this kernel lets nobody listen to refused calls";
    else
        b->denied_why = NULL;
    b->refused = b->denied_why != NULL; /* what was not told is asked for again */
}

void denials_lost(struct box *b)
{
    b->watched = b->refused = false;
    b->denied = (struct jail_denied){ 0 };
    memset(b->denied_told, 0, sizeof(b->denied_told));
    for (struct exec *x = b->execs; x; x = x->next) {
        x->uncounted = x->uncounted || x->state != EXEC_OVER;
        memset(x->denied_base, 0, sizeof(x->denied_base));
    }
}

void denials_base(struct exec *x)
{
    const struct jail_denied *d = &x->box->denied;

    x->uncounted = x->box->e->unwatched != NULL; /* a monitor that is found later does not know what was before it */
    for (uint32_t i = 0; i < d->n; i++)
        x->denied_base[i] = d->each[i].count;
    x->denied_base[JAIL_DENIALS_MAX] = d->more;
}

/* How often it was refused something of this row of the list. A kernel lives beside executions with receipts of their
 * own, and what one of these has told is not told again. */
static uint64_t denied_since(struct exec *x, size_t row, uint64_t count)
{
    uint64_t *told = &x->box->denied_told[row];
    uint64_t from = x->kernel ? max_u64(x->denied_base[row], *told) : x->denied_base[row];

    *told = max_u64(*told, count);
    return count > from ? count - from : 0; /* whatever the monitor says, a count has no less than none */
}

/* The monitor counts for a sandbox from its beginning, in a list that only grows. What is new since the launch is this
 * execution's, or that of others which ran beside it. */
static void denials_fill(struct exec *x)
{
    const struct box *b = x->box;
    struct receipt *r = &x->receipt;

    r->denials_why = x->resumed ? resumed_why : b->denied_why;
    if (!r->denials_why && x->uncounted)
        r->denials_why = "the monitor was away for a part of its run; what was refused meanwhile is not known";
    if (r->denials_why)
        return;
    for (uint32_t i = 0; i < b->denied.n; i++) {
        const struct jail_denial *d = &b->denied.each[i];
        uint64_t args[6] = { 0 }, count = denied_since(x, i, d->count);

        if (count == 0)
            continue;
        for (size_t a = 0; a < JAIL_DENIAL_ARGS; a++)
            args[a] = d->args[a];
        if (!r->denials)
            r->denials = mem_new_array(struct receipt_denial, JAIL_DENIALS_MAX);
        struct receipt_denial *to = &r->denials[r->ndenials++];
        denial_describe(&b->kind.filter, d->nr, args, &to->what);
        to->count = count;
    }
    r->denials_more = denied_since(x, JAIL_DENIALS_MAX, b->denied.more);
}

/* --- over --- */

static void over(struct exec *x)
{
    struct box *b = x->box;

    x->state = EXEC_OVER;
    exec_set_timer(x, CLOCKS_NEVER);
    exec_drop_stream(x);
    free(take_ptr(&x->request));
    if (b->e)
        engine_forget(b->e, x);
    if (!x->ops) {
        exec_release(x);
    }
    box_exec_over(b);
}

/* Of sums that are the whole sandbox's, an execution that is not its only one has none to wait for. */
static void nothing_to_come(struct exec *x)
{
    if (x->box->launched > 1) {
        fill_counters(&x->receipt, &(struct jail_stats){ 0 }, false);
        x->receipt.final = true;
    }
}

void exec_finish(struct exec *x)
{
    const struct exec_ops *ops = x->ops;

    nothing_to_come(x);
    over(x);
    if (ops && ops->on_exit)
        ops->on_exit(x->arg, &x->receipt);
}

void exec_fail(struct exec *x, const struct err *err)
{
    const struct exec_ops *ops = x->ops;

    over(x);
    if (ops && ops->on_failed)
        ops->on_failed(x->arg, err);
}

void exec_gone(struct exec *x, const struct err *why, bool memory)
{
    struct receipt *r = &x->receipt;
    bool running = x->state == EXEC_STARTING || x->state == EXEC_RUNNING;

    if (x->state == EXEC_OVER)
        return;
    if (!x->decided && (x->state == EXEC_MARKING || (x->state == EXEC_STARTING && !memory))) {
        exec_fail(x, why);
        return;
    }
    if (running) {
        measure(x);
        r->full_why = "the sandbox ended before it could be asked";
        r->read_bytes = r->write_bytes = r->tasks_started = absent(r->full_why);
        exec_decide(x, memory ? ENDED_MEMORY : ENDED_LOST);
        if (r->ended_by != ENDED_LOST)
            r->signal = SIGKILL;
    } else if (memory) {
        exec_decide(x, ENDED_MEMORY);
    }
    explain_no_kills(r);
    if (x->exited)
        decide_by_exit(x);
    if (!r->changes_why)
        r->changes_why = "the sandbox ended before its files could be compared";
    denials_fill(x);
    exec_finish(x);
}

/* --- settling --- */

static bool on_changes_data(struct exec *x, const struct frame *f)
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
            .kind = c.kind, .file = c.file, .size = c.size, .path = str_dup(c.path)
        };
    }
    stream_consumed(x->stream, f->len);
    return true;
}

static bool on_changes_frame(void *arg, const struct frame *f)
{
    struct exec *x = arg;
    struct receipt *r = &x->receipt;
    struct rt_done m;

    if (f->type == FRAME_DATA)
        return on_changes_data(x, f);
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
    exec_finish(x);
    return true;
}

void exec_stream_gone(void *arg, const struct err *why UNUSED)
{
    struct exec *x = arg;

    x->stream = NULL;
}

static const struct stream_ops changes_ops = { .on_frame = on_changes_frame, .on_gone = exec_stream_gone };

struct stream *exec_open_path(struct exec *x, uint8_t type, const struct stream_ops *ops)
{
    struct rt_path m = { .path = "/workspace", .length = CHANGES_MAX };
    PAYLOAD(payload);
    int len = rt_path_encode(&m, payload, NULL);

    return stream_open(x->box, type, payload, len > 0 ? (uint32_t)len : 0, ops, x);
}

static void settle_changes(struct exec *x)
{
    decide_by_exit(x);
    if (x->receipt.changes_why || !x->ops)
        exec_finish(x);
    else
        x->stream = exec_open_path(x, FRAME_CHANGES, &changes_ops);
}

static void on_denials(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct exec *x = ask->owner;

    if (x->state != EXEC_SETTLING || !x->asks_monitor)
        return;
    x->asks_monitor = false;
    denials_take(x->box, a, err);
    denials_fill(x);
    exec_set_timer(x, ev_now(x->ev) + STEP_NS);
    settle_changes(x);
}

static void settle_denials(struct exec *x)
{
    struct engine *e = x->box->e;

    if (e->unwatched || !x->ops) {
        x->receipt.denials_why = e->unwatched;
        settle_changes(x);
        return;
    }
    if (!x->decided && engine_nothing_refused(x->box)) { /* one that was cut off may still wait for an answer */
        x->box->denied_why = NULL;
        denials_fill(x);
        settle_changes(x);
        return;
    }
    x->asks_monitor = true;
    exec_set_timer(x, ev_now(x->ev) + MONITOR_NS);
    engine_ask_denials(e, x->box->id, on_denials, x);
}

static void on_settle_stats(struct ask *ask, const struct answer *a, const struct err *err)
{
    struct exec *x = ask->owner;
    struct box *b = x->box;
    struct jail_stats st;

    if (x->state != EXEC_SETTLING || x->stream || x->asks_monitor)
        return;
    if (!err && jail_stats_decode(a->f, &st, NULL) == 0) {
        if (st.oom_kills != JAIL_UNKNOWN && st.oom_kills > b->oom_seen) {
            b->oom_seen = st.oom_kills;
            exec_decide(x, ENDED_MEMORY);
        }
        fill_counters(&x->receipt, &st, b->launched == 1);
    }
    settle_denials(x);
}

static void settle(struct exec *x)
{
    const struct receipt *r = &x->receipt;
    struct box *b = x->box;
    bool by_itself = !x->decided && (r->exit_code != 0 || r->signal != 0);
    uint64_t kills = oom_read(b->oom_fd);

    x->state = EXEC_SETTLING;
    /* The jailer tells of it too, but a program that loses a child and exits at once is faster. */
    if (kills > b->oom_seen) {
        b->oom_seen = kills;
        exec_decide(x, ENDED_MEMORY);
    }
    exec_set_timer(x, ev_now(x->ev) + STEP_NS);
    if (x->ops && (by_itself || (x->decided && r->ended_by == ENDED_MEMORY)))
        engine_ask_id(x->box->e, FRAME_J_STATS, x->box->id, on_settle_stats, x);
    else
        settle_denials(x);
}

void settle_exit(struct exec *x, const struct rt_exit *m)
{
    static const char unreadable[] = "not readable inside the sandbox";
    struct receipt *r = &x->receipt;

    x->exited = true;
    measure(x);
    r->exit_code = m->code;
    r->signal = m->signal;
    r->read_bytes = counted(m->read_bytes, RT_UNKNOWN, unreadable);
    r->write_bytes = counted(m->write_bytes, RT_UNKNOWN, unreadable);
    r->tasks_started = counted(m->tasks_started, RT_UNKNOWN, unreadable);
    r->full = (uint32_t)m->full;
    r->full_why = NULL;
    settle(x);
}

void settle_late(struct exec *x)
{
    if (x->asks_monitor) {
        on_denials(&(struct ask){ .owner = x }, NULL, NULL);
        return;
    }
    decide_by_exit(x);
    if (!x->receipt.changes_why)
        x->receipt.changes_why = "comparing the files took too long";
    exec_finish(x);
}
