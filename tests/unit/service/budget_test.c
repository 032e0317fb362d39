/* Budgets with a real store, a clock of the test, and no sandbox. */
#include "store_scene.h"

#include "service/budget.h"

#define DAY UINT64_C(86400000)
#define NOON (UINT64_C(20000) * DAY + DAY / 2) /* of some day in 2024, not the last of its month */

static uint64_t now;

static uint64_t get_now(void)
{
    return now;
}

struct scene {
    struct store_scene base;
    struct tenant_quotas *quotas;
    struct budgets *budgets;
    struct tenant_quota *me;
    uint64_t cpu_growth_us; /* passed to budget_add_cpu at the next reading */
    int readings, commits, stops, renewals;
    bool end_sandboxes;
    struct err why;
};

static void read_cpu(void *arg, const struct tenant_quota *q)
{
    struct scene *s = arg;

    s->readings++;
    if (s->cpu_growth_us && (!q || q == s->me))
        budget_add_cpu(s->budgets, s->me, s->cpu_growth_us);
    s->cpu_growth_us = 0;
}

static void commit_usage(void *arg, const struct tenant_quota *q UNUSED)
{
    struct scene *s = arg;

    s->commits++;
}

static void stop(void *arg, const struct tenant_quota *q, bool end_sandboxes, const struct err *why)
{
    struct scene *s = arg;

    assert_ptr_equal(q, s->me);
    s->stops++;
    s->end_sandboxes = end_sandboxes;
    s->why = *why;
}

static void on_renewed(void *arg, const struct tenant_quota *q)
{
    struct scene *s = arg;

    assert_ptr_equal(q, s->me);
    s->renewals++;
}

static void on_suspended(void *arg UNUSED, const struct tenant_quota *q UNUSED)
{
}

static const struct budgets_ops ops = { read_cpu, commit_usage, stop, on_renewed, get_now };

static void open_scene(struct scene *s)
{
    *s = (struct scene){ 0 };
    now = NOON;
    store_scene_open(&s->base);
    s->quotas = tenant_quotas_new(s->base.ev, s->base.store, on_suspended, NULL);
    s->me = tenant_quotas_get(s->quotas, "me");
    s->budgets = budgets_new(s->base.ev, s->base.store, s->quotas, &ops, s);
}

static void close_scene(struct scene *s)
{
    budgets_free(s->budgets);
    tenant_quotas_free(s->quotas);
    store_scene_close(&s->base);
}

static void set_budget(struct scene *s, enum store_period p, enum store_budget_resource what, uint64_t max)
{
    struct store_budget row = { .owner = "me" };

    row.max[p][what] = max;
    budgets_set(s->budgets, &row);
    store_scene_settle(&s->base);
}

static uint64_t used(struct scene *s, enum store_period p, enum store_budget_resource what)
{
    struct manager_budget b;

    assert_true(budgets_get(s->budgets, "me", &b));
    return b.used[p][what];
}

static enum err_id check(struct scene *s, const char *tenant, bool execution)
{
    struct err err = { 0 };

    return budget_check(s->budgets, tenant_quotas_get(s->quotas, tenant), execution, &err) < 0 ? err.id : ERR_NONE;
}

TEST(nothing_begins_before_the_budgets_are_read)
{
    struct store_budget row = { .owner = "me", .max[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS] = 1 };
    struct scene s;

    open_scene(&s);
    assert_int_equal(check(&s, "bert", true), ERR_BUSY);
    store_scene_settle(&s.base);
    assert_int_equal(check(&s, "bert", true), ERR_NONE);
    budgets_set(s.budgets, &row);
    assert_int_equal(check(&s, "me", true), ERR_BUSY); /* its usage is being read */
    assert_int_equal(check(&s, "bert", true), ERR_NONE);
    store_scene_settle(&s.base);
    assert_int_equal(check(&s, "me", true), ERR_NONE);
    assert_int_equal(s.commits, 1);
    close_scene(&s);
}

TEST(executions_are_refused_from_the_limit_on_whether_they_run_or_have_ended)
{
    struct manager_usage_totals totals;
    struct scene s;

    open_scene(&s);
    store_scene_settle(&s.base);
    budget_execution_begin(s.me); /* before there is a budget */
    set_budget(&s, STORE_PERIOD_MONTH, STORE_BUDGET_EXECUTIONS, 2);
    assert_int_equal(check(&s, "me", true), ERR_NONE);
    budget_execution_begin(s.me);
    assert_int_equal(check(&s, "me", true), ERR_BUDGET);
    assert_int_equal(check(&s, "me", false), ERR_NONE); /* a sandbox is not an execution */
    assert_int_equal(check(&s, "bert", true), ERR_NONE);
    budget_execution_end(s.budgets, s.me);
    assert_int_equal(check(&s, "me", true), ERR_BUDGET);
    budget_execution_cancel(s.me);
    assert_int_equal(check(&s, "me", true), ERR_NONE);
    assert_int_equal(used(&s, STORE_PERIOD_MONTH, STORE_BUDGET_EXECUTIONS), 1);
    budgets_totals(s.budgets, &totals);
    assert_int_equal(totals.used[STORE_BUDGET_EXECUTIONS], 1);
    assert_int_equal(totals.refused, 2);
    assert_int_equal(totals.bounds[STORE_PERIOD_MONTH][STORE_BUDGET_EXECUTIONS][BUDGET_LIMIT_OPEN], 1);
    now += 40 * DAY;
    assert_int_equal(used(&s, STORE_PERIOD_MONTH, STORE_BUDGET_EXECUTIONS), 0);
    close_scene(&s);
}

TEST(lifetimes_count_while_they_last_and_in_the_day_in_which_they_are)
{
    struct budget_span one = { 0 }, two = { 0 };
    struct scene s;

    open_scene(&s);
    store_scene_settle(&s.base);
    budget_span_begin(s.me, &one, now - 4000); /* before there is a budget */
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, 1000000000);
    budget_span_begin(s.me, &two, now);
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 4000);
    now += 10000;
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 24000);
    budget_span_end(s.budgets, s.me, &one, now);
    budget_span_end(s.budgets, s.me, &one, now + 5000); /* no effect: it has ended */
    now += 1000;
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 25000);
    budget_span_stored(&one);
    now = NOON + DAY / 2 + 3000; /* three seconds after midnight */
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 3000);
    assert_int_equal(used(&s, STORE_PERIOD_MONTH, STORE_BUDGET_SANDBOX_TIME), 14000 + DAY / 2 + 3000);
    budget_span_end(s.budgets, s.me, &two, now);
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 3000);
    budget_span_stored(&two);
    assert_null(s.me->spans);
    close_scene(&s);
}

TEST(a_cancelled_lifetime_does_not_count)
{
    struct manager_usage_totals totals;
    struct budget_span span = { 0 };
    struct scene s;

    open_scene(&s);
    store_scene_settle(&s.base);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, 10000);
    budget_span_begin(s.me, &span, now);
    now += 20000;
    assert_int_equal(check(&s, "me", false), ERR_BUDGET);
    budget_span_cancel(s.me, &span);
    budget_span_cancel(s.me, &span); /* no effect */
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 0);
    assert_int_equal(check(&s, "me", false), ERR_NONE);
    budgets_totals(s.budgets, &totals);
    assert_int_equal(totals.used[STORE_BUDGET_SANDBOX_TIME], 0);
    close_scene(&s);
}

TEST(a_lifetime_that_ended_counts_for_a_new_budget_until_the_store_has_it)
{
    struct budget_span span = { 0 };
    struct scene s;

    open_scene(&s);
    store_scene_settle(&s.base);
    budget_span_begin(s.me, &span, now);
    now += 5000;
    budget_span_end(s.budgets, s.me, &span, now);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, 100000);
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 5000);
    budgets_set(s.budgets, &(struct store_budget){ .owner = "me" });
    assert_null(s.me->budget);
    budget_span_stored(&span);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, 100000);
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME), 0); /* this store was not given it */
    close_scene(&s);
}

TEST(usage_before_the_start_is_read_from_the_store)
{
    struct store_usage row = { .owner = "me", .hour_ms = NOON / STORE_HOUR_MS * STORE_HOUR_MS, .cpu_us = 3000000 };
    struct scene s;

    open_scene(&s);
    store_usage_add(s.base.store, &row, 1, NULL, NULL);
    store_scene_settle(&s.base);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME, 4000);
    assert_int_equal(check(&s, "me", true), ERR_NONE);
    s.cpu_growth_us = 1000000;
    assert_int_equal(used(&s, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME), 4000);
    assert_int_equal(check(&s, "me", true), ERR_BUDGET);
    close_scene(&s);
}

TEST(live_work_is_stopped_within_a_second_and_the_reason_is_the_limit)
{
    struct budget_span span = { 0 };
    struct scene s;

    open_scene(&s);
    store_scene_settle(&s.base);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME, 1000);
    budget_span_begin(s.me, &span, now);
    s.cpu_growth_us = 1000000;
    store_scene_wait(&s.base, &s.stops);
    assert_false(s.end_sandboxes);
    assert_int_equal(s.why.id, ERR_BUDGET);
    assert_non_null(strstr(s.why.msg, "cpuMs"));
    now += DAY; /* the budget is renewed */
    store_scene_wait(&s.base, &s.renewals);
    set_budget(&s, STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, 60000);
    s.stops = 0;
    store_scene_wait(&s.base, &s.stops); /* half a day has passed since midnight */
    assert_true(s.end_sandboxes);
    assert_non_null(strstr(s.why.msg, "sandboxMs"));
    budget_span_cancel(s.me, &span);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(nothing_begins_before_the_budgets_are_read),
        RUN(executions_are_refused_from_the_limit_on_whether_they_run_or_have_ended),
        RUN(lifetimes_count_while_they_last_and_in_the_day_in_which_they_are),
        RUN(a_cancelled_lifetime_does_not_count),
        RUN(a_lifetime_that_ended_counts_for_a_new_budget_until_the_store_has_it),
        RUN(usage_before_the_start_is_read_from_the_store),
        RUN(live_work_is_stopped_within_a_second_and_the_reason_is_the_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
