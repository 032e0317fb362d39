/* What tenants may use in a day and in a month, held against what they use.
 *
 * Only tenants with a bound are known here. What has ended comes from the store, once, and is added to as things end;
 * what lives is added up when somebody asks: the time of sandboxes from their beginnings, processor time from their
 * counters. Work that would begin is refused when a bound is reached. Once a second those that have living sandboxes
 * are looked at: executions that use up processor time are killed, and sandboxes end when their time is used up.
 *
 * Days and months are those of UTC. A calendar that is set back makes the period before count again from nothing, never
 * against anybody. */
#include "sandbox/inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/usage.h"

#include <stdio.h>
#include <time.h>

#define TICK_NS (1 * NS_PER_S)
#define STRAY_US (100 * 1000u) /* in a tick, without an execution: something was left running */

static const char *const names[STORE_BUDGETED] = { "cpuSeconds", "sandboxSeconds", "executions" };
static const uint64_t units[STORE_BUDGETED] = { 1000000, 1000, 1 }; /* us, ms, one */

struct budget {
    struct budget *next;
    struct manager *m;
    struct store_budget row;
    uint64_t begin_ms[STORE_PERIODS];
    uint64_t used[STORE_PERIODS][STORE_BUDGETED]; /* by what has ended, and processor time that was seen; in units */
    size_t loading;                               /* answers of the store that are awaited */
    bool failed;                                  /* one of them was an error; asked again, and refused until then */
    struct store_call *calls[STORE_PERIODS];
};

/* --- time --- */

static uint64_t period_begin(enum store_period p, uint64_t now, bool next)
{
    time_t t = (time_t)(now / 1000);
    struct tm tm;

    gmtime_r(&t, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    if (p == STORE_MONTH)
        tm.tm_mday = 1;
    if (next && p == STORE_MONTH)
        tm.tm_mon++;
    else if (next)
        tm.tm_mday++;
    return (uint64_t)timegm(&tm) * 1000;
}

/* A period that is over takes its sums with it. */
static void turn_over(struct budget *b, uint64_t now)
{
    for (int p = 0; p < STORE_PERIODS; p++) {
        uint64_t begin = period_begin((enum store_period)p, now, false);

        if (begin == b->begin_ms[p])
            continue;
        b->begin_ms[p] = begin;
        memset(b->used[p], 0, sizeof(b->used[p]));
    }
}

/* --- sums --- */

static struct budget *find(const struct manager *m, const char *owner)
{
    struct budget *b = m->budgets;

    while (b && !str_eq(b->row.owner, owner))
        b = b->next;
    return b;
}

static bool lives(const struct sb *sb)
{
    return sb->state != SB_ENDING;
}

static uint64_t since(uint64_t from, uint64_t begin, uint64_t to)
{
    from = max_u64(from, begin);
    return to > from ? to - from : 0;
}

/* All that is used by now, with what lives. */
static void sum_up(struct budget *b, uint64_t now, uint64_t ret[STORE_PERIODS][STORE_BUDGETED])
{
    uint64_t alive[STORE_PERIODS] = { 0 }, running = 0;

    turn_over(b, now);
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next) {
            if (!str_eq(sb->owner, b->row.owner) || !lives(sb))
                continue;
            (void)meter_read(sb); /* which adds it */
            for (const struct ex *ex = sb->execs; ex; ex = ex->next)
                running += !ex->ended;
            for (int p = 0; p < STORE_PERIODS; p++)
                alive[p] += since(sb->created_ms, b->begin_ms[p], now);
        }
    memcpy(ret, b->used, sizeof(b->used));
    for (int p = 0; p < STORE_PERIODS; p++) {
        ret[p][STORE_SANDBOX_S] += alive[p];
        ret[p][STORE_EXECUTIONS] += running;
    }
}

static bool reached(const struct budget *b, uint64_t sums[STORE_PERIODS][STORE_BUDGETED], enum store_budgeted what,
                    int *ret_period)
{
    for (int p = 0; p < STORE_PERIODS; p++)
        if (b->row.max[p][what] && sums[p][what] / units[what] >= b->row.max[p][what]) {
            *ret_period = p;
            return true;
        }
    return false;
}

static int explain(const struct budget *b, uint64_t sums[STORE_PERIODS][STORE_BUDGETED], enum store_budgeted what,
                   int p, uint64_t now, struct err *err)
{
    char at[32];

    return err_set(err, ERR_BUDGET,
                   "the budget of %s is used up: %" PRIu64 " of %" PRIu64 " %s this %s; it renews at %s", b->row.owner,
                   sums[p][what] / units[what], b->row.max[p][what], names[what], p == STORE_DAY ? "day" : "month",
                   clock_rfc3339(period_begin((enum store_period)p, now, true) * NS_PER_MS, at));
}

int budget_check(struct manager *m, const char *owner, bool execution, struct err *err)
{
    struct budget *b = find(m, owner);
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms();
    int p;

    if (!m->budgets_known || (b && (b->loading || b->failed)))
        return err_set(err, ERR_BUSY, "the server has just begun to read what %s used", owner);
    if (!b)
        return 0;
    sum_up(b, now, sums);
    for (int what = 0; what < STORE_BUDGETED; what++)
        if ((what != STORE_EXECUTIONS || execution) && reached(b, sums, (enum store_budgeted)what, &p))
            return explain(b, sums, (enum store_budgeted)what, p, now, err);
    return 0;
}

/* --- what ends, and what is seen of counters --- */

void budget_cpu(const struct sb *sb, uint64_t us)
{
    struct budget *b = find(sb->m, sb->owner);

    if (!b)
        return;
    turn_over(b, now_ms());
    for (int p = 0; p < STORE_PERIODS; p++)
        b->used[p][STORE_CPU_S] += us;
}

void budget_execution(const struct sb *sb)
{
    struct budget *b = find(sb->m, sb->owner);

    if (!b)
        return;
    turn_over(b, now_ms());
    for (int p = 0; p < STORE_PERIODS; p++)
        b->used[p][STORE_EXECUTIONS]++;
}

void budget_sandbox(const struct sb *sb)
{
    struct budget *b = find(sb->m, sb->owner);

    if (!b)
        return;
    turn_over(b, now_ms());
    for (int p = 0; p < STORE_PERIODS; p++)
        b->used[p][STORE_SANDBOX_S] += since(sb->created_ms, b->begin_ms[p], sb->ended_ms);
}

/* --- the boundary --- */

static void stop_executions(struct sb *sb, const struct err *why)
{
    if (sb->budget_cpu_us && !sb->nexecs && sb->cpu_us > sb->budget_cpu_us + STRAY_US) {
        sb_end(sb, ENDED_BUDGET, why);
        return;
    }
    sb->budget_cpu_us = sb->cpu_us + 1;
    for (struct ex *ex = sb->execs; ex; ex = ex->next)
        if (ex->exec && !ex->ended && !ex->over_budget) {
            ex->over_budget = true;
            exec_kill(ex->exec);
        }
}

static void load(struct budget *b);

static void enforce(struct budget *b)
{
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms();
    struct err why = { 0 };
    size_t n = 0;
    int p;

    if (b->failed && !b->loading)
        load(b);
    if (b->loading)
        return;
    sum_up(b, now, sums);
    bool over = reached(b, sums, STORE_SANDBOX_S, &p);
    if (over)
        (void)explain(b, sums, STORE_SANDBOX_S, p, now, &why);
    else if (reached(b, sums, STORE_CPU_S, &p))
        (void)explain(b, sums, STORE_CPU_S, p, now, &why);
    else
        return;
    struct sb **all = mem_new_array(struct sb *, b->m->nsbs + 1);
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next)
            if (str_eq(sb->owner, b->row.owner) && (sb->state == SB_RUNNING || sb->state == SB_PAUSED))
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* each may be gone when this returns, but only itself */
        if (over)
            sb_end(all[i], ENDED_BUDGET, &why);
        else
            stop_executions(all[i], &why);
    free(all);
}

static void on_tick(void *arg)
{
    struct manager *m = arg;

    for (struct budget *b = m->budgets; b; b = b->next)
        if (m->nsbs > 0 || b->failed)
            enforce(b);
    if (m->budgets)
        ev_timer_set(m->ev, &m->budget_tick, ev_now(m->ev) + TICK_NS, on_tick, m);
}

/* --- loading --- */

static void on_used(struct budget *b, int p, const struct err *err, const struct store_usage *rows, size_t n)
{
    b->calls[p] = NULL;
    b->loading--;
    if (err) {
        log_error("what %s used cannot be read yet: %s", b->row.owner, err->msg);
        b->failed = true;
        return;
    }
    if (n == 0)
        return;
    b->used[p][STORE_CPU_S] += rows[0].cpu_us;
    b->used[p][STORE_SANDBOX_S] += rows[0].sandbox_ms;
    b->used[p][STORE_EXECUTIONS] += rows[0].executions;
}

static void on_day(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more UNUSED)
{
    on_used(arg, STORE_DAY, err, rows, n);
}

static void on_month(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more UNUSED)
{
    on_used(arg, STORE_MONTH, err, rows, n);
}

static void load(struct budget *b)
{
    struct manager *m = b->m;
    uint64_t now = now_ms();

    b->failed = false;
    manager_note_usage(m, b->row.owner); /* so that the sums and the counters here meet without a gap */
    turn_over(b, now);
    for (int p = 0; p < STORE_PERIODS; p++) {
        struct store_usage_query q = { .owner = b->row.owner, .from_ms = b->begin_ms[p], .to_ms = now + STORE_HOUR_MS };

        memset(b->used[p], 0, sizeof(b->used[p]));
        if (b->calls[p])
            store_forget(b->calls[p]);
        else
            b->loading++;
        b->calls[p] = store_usage_list(m->store, &q, p == STORE_DAY ? on_day : on_month, b);
    }
    if (!m->budget_tick.slot)
        ev_timer_set(m->ev, &m->budget_tick, ev_now(m->ev) + TICK_NS, on_tick, m);
}

static void budget_free(struct budget *b)
{
    for (int p = 0; p < STORE_PERIODS; p++)
        if (b->calls[p])
            store_forget(b->calls[p]);
    free(b);
}

void manager_budget(struct manager *m, const struct store_budget *row)
{
    static const uint64_t none[STORE_PERIODS][STORE_BUDGETED];
    struct budget *b = find(m, row->owner);
    bool fresh = !b;

    if (memcmp(row->max, none, sizeof(none)) == 0) {
        struct budget **at = &m->budgets;

        while (*at && *at != b)
            at = &(*at)->next;
        if (b && *at) {
            *at = b->next;
            budget_free(b);
        }
        return;
    }
    if (fresh) {
        b = mem_new(struct budget);
        b->m = m;
        b->next = m->budgets;
        m->budgets = b;
    }
    b->row = *row;
    if (fresh)
        load(b);
}

static void on_budgets(void *arg, const struct err *err, const struct store_budget *rows, size_t n)
{
    struct manager *m = arg;

    m->budgets_call = NULL;
    if (err) {
        log_error("budgets cannot be read, and nothing is begun: %s", err->msg);
        return;
    }
    m->budgets_known = true;
    for (size_t i = 0; i < n; i++)
        manager_budget(m, &rows[i]);
}

void budget_start(struct manager *m)
{
    m->budgets_call = store_budget_list(m->store, STORE_ANY_OWNER, on_budgets, m);
}

void budget_stop(struct manager *m)
{
    if (m->budgets_call)
        store_forget(m->budgets_call);
    while (m->budgets) {
        struct budget *b = m->budgets;

        m->budgets = b->next;
        budget_free(b);
    }
    ev_timer_clear(m->ev, &m->budget_tick);
}

bool manager_budget_used(struct manager *m, const char *owner, struct manager_budget *ret)
{
    struct budget *b = find(m, owner);
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms();

    if (!b || b->loading || b->failed)
        return false;
    sum_up(b, now, sums);
    for (int p = 0; p < STORE_PERIODS; p++) {
        ret->renews_ms[p] = period_begin((enum store_period)p, now, true);
        for (int k = 0; k < STORE_BUDGETED; k++) {
            ret->max[p][k] = b->row.max[p][k];
            ret->used[p][k] = sums[p][k] / units[k];
        }
    }
    return true;
}
