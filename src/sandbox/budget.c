/* What tenants may use in a day and in a month, held against what they use.
 *
 * Only tenants with a bound are known here. What has ended comes from the store, once, and is added to as things end;
 * what lives is added up when somebody asks: the time of sandboxes from their beginnings, processor time from their
 * counters. Work that would begin is refused when a bound is reached. Once a second those that have living sandboxes
 * are looked at: executions that use up processor time are killed, and sandboxes end when their time is used up.
 *
 * What all tenants used since this process began is counted beside it, for those who draw curves. */
#include "sandbox/inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "sandbox/allowance.h"
#include "sandbox/guest.h"

#define TICK_NS (1 * NS_PER_S)
#define STRAY_US (100 * 1000u)  /* in a tick, without an execution: something was left running */
#define STRAYS_US (500 * 1000u) /* and in all ticks together: something that works slowly */

struct budget {
    struct budget *next;
    struct manager *m;
    struct allowance a; /* used: by what has ended, and processor time that was seen */
    size_t loading;     /* answers of the store that are awaited */
    bool failed;        /* one of them was an error; asked again, and refused until then */
    struct store_call *calls[STORE_PERIODS];
};

/* --- sums --- */

static struct budget *find(const struct manager *m, const char *owner)
{
    struct budget *b = m->budgets;

    while (b && !str_eq(b->a.owner, owner))
        b = b->next;
    return b;
}

/* Until when it is to be counted, of those that are not in the sums yet. */
static uint64_t alive_until(const struct sb *sb, uint64_t now)
{
    return sb->state == SB_ENDING ? sb->ended_ms : now;
}

static bool theirs(const struct budget *b, const struct sb *sb)
{
    return !sb->counted && !sb->unmade && str_eq(sb->owner, b->a.owner);
}

/* All that is used by now, with what lives. */
static void sum_up(struct budget *b, uint64_t now, uint64_t ret[STORE_PERIODS][STORE_BUDGETED])
{
    struct allowance all;
    uint64_t running = 0;

    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next)
            if (theirs(b, sb))
                (void)meter_read(sb); /* which adds it */
    for (struct guest *g = b->m->guests; g; g = g->next)
        if (str_eq(g->share->name, b->a.owner))
            (void)guest_meter(g);
    allowance_turn(&b->a, now);
    all = b->a;
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next) {
            if (!theirs(b, sb))
                continue;
            for (const struct ex *ex = sb->execs; ex; ex = ex->next)
                running += !ex->ended;
            allowance_add_span(&all, sb->created_ms, alive_until(sb, now), now);
        }
    for (const struct guest *g = b->m->guests; g; g = g->next) {
        if (!str_eq(g->share->name, b->a.owner))
            continue;
        running += !g->ran;
        if (g->begun)
            allowance_add_span(&all, g->created_ms, g->over ? g->over_ms : now, now);
    }
    allowance_add(&all, STORE_EXECUTIONS, running, now);
    memcpy(ret, all.used, sizeof(all.used));
}

int budget_check(struct manager *m, const char *owner, bool execution, struct err *err)
{
    struct budget *b = find(m, owner);
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms();
    enum store_period p;

    if (!m->budgets_known || (b && (b->loading || b->failed)))
        return err_set(err, ERR_BUSY, "the server has just begun to read what %s used", owner);
    if (!b)
        return 0;
    sum_up(b, now, sums);
    for (int what = 0; what < STORE_BUDGETED; what++)
        if ((what != STORE_EXECUTIONS || execution) && allowance_reached(&b->a, sums, (enum store_budgeted)what, &p)) {
            m->budget_refused++;
            return allowance_explain(&b->a, sums, (enum store_budgeted)what, p, now, err);
        }
    return 0;
}

/* --- what ends, and what is seen of counters --- */

void budget_add_cpu(struct manager *m, const char *owner, uint64_t us)
{
    struct budget *b = find(m, owner);

    m->spent[STORE_CPU_S] += us;
    if (b)
        allowance_add(&b->a, STORE_CPU_S, us, now_ms());
}

void budget_add_execution(struct manager *m, const char *owner)
{
    struct budget *b = find(m, owner);

    m->spent[STORE_EXECUTIONS]++;
    if (b)
        allowance_add(&b->a, STORE_EXECUTIONS, 1, now_ms());
}

void budget_add_span(struct manager *m, const char *owner, uint64_t from_ms, uint64_t to_ms)
{
    struct budget *b = find(m, owner);

    m->spent[STORE_SANDBOX_S] += to_ms > from_ms ? to_ms - from_ms : 0;
    if (b)
        allowance_add_span(&b->a, from_ms, to_ms, now_ms());
}

void budget_cpu(const struct sb *sb, uint64_t us)
{
    budget_add_cpu(sb->m, sb->owner, us);
}

void budget_execution(const struct sb *sb)
{
    budget_add_execution(sb->m, sb->owner);
}

/* Of its life, what this process has seen. */
static uint64_t seen_ms(const struct sb *sb, uint64_t until)
{
    uint64_t from = max_u64(sb->created_ms, sb->m->began_ms);

    return until > from ? until - from : 0;
}

void budget_sandbox(struct sb *sb)
{
    struct budget *b = find(sb->m, sb->owner);

    sb->counted = true;
    sb->m->spent[STORE_SANDBOX_S] += seen_ms(sb, sb->ended_ms);
    if (b)
        allowance_add_span(&b->a, sb->created_ms, sb->ended_ms, now_ms());
}

/* --- the boundary --- */

static void stop_executions(struct sb *sb, const struct err *why)
{
    bool left = sb->budget_cpu_us && !sb->nexecs;

    if (left && (sb->cpu_us > sb->budget_cpu_us + STRAY_US || sb->cpu_us > sb->budget_from_us + STRAYS_US)) {
        sb_end(sb, ENDED_BUDGET, why);
        return;
    }
    if (!left)
        sb->budget_from_us = sb->cpu_us;
    sb->budget_cpu_us = sb->cpu_us + 1;
    for (struct ex *ex = sb->execs; ex; ex = ex->next)
        if ((ex->exec || ex->cx) && !ex->ended && !ex->over_budget) {
            ex->over_budget = true;
            ex_kill(ex);
        }
}

/* There is room again: what was left running then is none of this. */
static void allow(const struct budget *b)
{
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next)
            if (str_eq(sb->owner, b->a.owner))
                sb->budget_cpu_us = 0;
}

static void load(struct budget *b);

static void enforce(struct budget *b)
{
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms();
    struct err why = { 0 };
    enum store_period p;
    size_t n = 0;

    if (b->failed && !b->loading)
        load(b);
    if (b->loading)
        return;
    sum_up(b, now, sums);
    bool over = allowance_reached(&b->a, sums, STORE_SANDBOX_S, &p);
    if (!over && !allowance_reached(&b->a, sums, STORE_CPU_S, &p)) {
        allow(b);
        return;
    }
    (void)allowance_explain(&b->a, sums, over ? STORE_SANDBOX_S : STORE_CPU_S, p, now, &why);
    struct sb **all = mem_new_array(struct sb *, b->m->nsbs + 1);
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = b->m->sbs[i]; sb; sb = sb->next)
            if (str_eq(sb->owner, b->a.owner) && (sb->state == SB_RUNNING || sb->state == SB_PAUSED))
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* each may be gone when this returns, but only itself */
        if (over)
            sb_end(all[i], ENDED_BUDGET, &why);
        else
            stop_executions(all[i], &why);
    free(all);
    guests_stop(b->m, b->a.owner, ENDED_BUDGET, &why);
}

static void on_tick(void *arg)
{
    struct manager *m = arg;

    for (struct budget *b = m->budgets; b; b = b->next)
        if (m->nsbs > 0 || m->guests || b->failed)
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
        log_error("what %s used cannot be read yet: %s", b->a.owner, err->msg);
        b->failed = true;
        return;
    }
    if (n == 0)
        return;
    b->a.used[p][STORE_CPU_S] += rows[0].cpu_us;
    b->a.used[p][STORE_SANDBOX_S] += rows[0].sandbox_ms;
    b->a.used[p][STORE_EXECUTIONS] += rows[0].executions;
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
    manager_note_usage(m, b->a.owner); /* so that the sums and the counters here meet without a gap */
    allowance_turn(&b->a, now);
    for (int p = 0; p < STORE_PERIODS; p++) {
        struct store_usage_query q = { .owner = b->a.owner, .from_ms = b->a.begin_ms[p], .to_ms = now + STORE_HOUR_MS };

        memset(b->a.used[p], 0, sizeof(b->a.used[p]));
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
        memcpy(b->a.owner, row->owner, sizeof(b->a.owner));
        b->next = m->budgets;
        m->budgets = b;
    }
    memcpy(b->a.max, row->max, sizeof(b->a.max));
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
        ret->renews_ms[p] = allowance_renews((enum store_period)p, now);
        for (int k = 0; k < STORE_BUDGETED; k++) {
            ret->max[p][k] = b->a.max[p][k];
            ret->used[p][k] = sums[p][k] / allowance_units[k];
        }
    }
    return true;
}

/* One that is being made may turn out to be none, and a counter never goes back. */
static bool is_made(const struct sb *sb)
{
    return !sb->counted && !sb->unmade && sb->state != SB_CREATING;
}

void manager_spending(struct manager *m, struct manager_spending *ret)
{
    uint64_t sums[STORE_PERIODS][STORE_BUDGETED], now = now_ms(), alive = 0;

    *ret = (struct manager_spending){ .refused = m->budget_refused };
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
            if (is_made(sb)) {
                (void)meter_read(sb); /* which adds it */
                alive += seen_ms(sb, alive_until(sb, now));
            }
    for (struct guest *g = m->guests; g; g = g->next) {
        uint64_t until = g->over ? g->over_ms : now;

        (void)guest_meter(g);
        alive += g->begun && until > g->created_ms ? until - g->created_ms : 0;
    }
    memcpy(ret->used, m->spent, sizeof(ret->used));
    ret->used[STORE_SANDBOX_S] += alive;
    for (struct budget *b = m->budgets; b; b = b->next) {
        if (b->loading || b->failed)
            continue;
        sum_up(b, now, sums);
        for (int p = 0; p < STORE_PERIODS; p++)
            for (int k = 0; k < STORE_BUDGETED; k++)
                if (b->a.max[p][k])
                    ret->bounds[p][k][allowance_state(&b->a, sums, (enum store_period)p, (enum store_budgeted)k)]++;
    }
}
