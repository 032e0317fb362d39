/* Usage, as every store must record it: once per end, by the hour, whatever crashes in between. */
#include "store_host.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define HOUR STORE_HOUR_MS
#define NOON (UINT64_C(490000) * HOUR)

static struct store_usage rows[64];
static size_t nrows;
static bool more_rows;
static struct store_budget budgets[4];
static size_t nbudgets;

static void on_usage(void *arg UNUSED, const struct err *err, const struct store_usage *u, size_t n, bool more)
{
    assert_true(n <= ARRAY_LEN(rows));
    if (n)
        memcpy(rows, u, n * sizeof(*u));
    nrows = n;
    more_rows = more;
    on_done(NULL, err);
}

static void on_budgets(void *arg UNUSED, const struct err *err, const struct store_budget *b, size_t n)
{
    assert_true(n <= ARRAY_LEN(budgets));
    if (n)
        memcpy(budgets, b, n * sizeof(*b));
    nbudgets = n;
    on_done(NULL, err);
}

static void ask(const char *owner, unsigned by, uint64_t now)
{
    struct store_usage_query q = { .owner = owner, .from_ms = NOON - 100 * HOUR, .to_ms = NOON + 100 * HOUR };

    q.by = by;
    q.now_ms = now;
    OK(store_usage_list(store, &q, on_usage, NULL));
}

static struct store_sandbox make(const char *owner, char *by, uint64_t at)
{
    struct store_sandbox sb = { .state = STORE_SANDBOX_RUNNING,
                                .created_ms = at,
                                .memory_bytes = 512 * MIB,
                                .storage_bytes = 256 * MIB,
                                .created_by = by };

    id_new("sb", sb.id);
    strcpy(sb.owner, owner);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    return sb;
}

static void end(struct store_sandbox *sb, uint64_t at, uint64_t cpu_us)
{
    sb->state = STORE_SANDBOX_ENDED;
    sb->ended_ms = at;
    sb->ended_by = (char *)"killed";
    sb->cpu_us = cpu_us;
    sb->usage_memory_peak = cpu_us * 1000;
    OK(store_sandbox_update(store, sb->owner, sb, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED,
                            &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, on_sandbox, NULL));
}

static struct store_execution run(const struct store_sandbox *sb, char *by, uint64_t at)
{
    struct store_execution ex = {
        .state = STORE_EXECUTION_RUNNING, .created_ms = at, .started_ms = at, .created_by = by
    };

    id_new("ex", ex.id);
    strcpy(ex.sandbox, sb->id);
    strcpy(ex.owner, sb->owner);
    OK(store_execution_insert(store, &ex, on_done, NULL));
    return ex;
}

#define EX_END \
    (STORE_EXECUTION_SET_STATE | STORE_EXECUTION_SET_END | STORE_EXECUTION_SET_OUTPUT | STORE_EXECUTION_SET_STARTED)

static void fill_end(struct store_execution *ex, uint64_t at, uint64_t cpu_us)
{
    ex->state = STORE_EXECUTION_ENDED;
    ex->ended_ms = at;
    ex->out_bytes[0] = 100;
    ex->out_bytes[1] = 10;
    ex->dropped[0] = 30;
    ex->usage_cpu_us = cpu_us;
}

static const struct store_condition alive = { .states = STORE_EXECUTION_LIVE };

TEST(an_execution_is_counted_once_however_often_its_end_is_written)
{
    struct store_sandbox sb = make("anna", NULL, NOON);
    struct store_execution ex = run(&sb, (char *)"kyone", NOON), noted = ex;

    fill_end(&ex, NOON + 2500, 900000);
    OK(store_execution_update(store, "anna", &ex, EX_END, &alive, on_execution, NULL));
    FAILS(ERR_EXISTS, store_execution_update(store, "anna", &ex, EX_END, &alive, on_execution, NULL));
    OK(store_execution_update(store, "anna", &ex, EX_END, NULL, on_execution,
                              NULL)); /* unchanged, without a condition */
    FAILS(ERR_EXISTS, store_execution_insert(store, &ex, on_done, NULL));
    host_reopen();
    FAILS(ERR_EXISTS, store_execution_update(store, "anna", &ex, EX_END, &alive, on_execution, NULL));
    ask("anna", STORE_USAGE_BY_USER, 0);
    assert_int_equal(nrows, 1);
    assert_string_equal(rows[0].created_by, "kyone");
    assert_int_equal(rows[0].executions, 1);
    assert_int_equal(rows[0].failed, 0);
    assert_int_equal(rows[0].cpu_us, 900000);
    assert_int_equal(rows[0].execution_ms, 2500);
    assert_int_equal(rows[0].output_bytes, 80);
    /* an end of which only the journal survived a kill is inserted as an ended row */
    id_new("ex", noted.id);
    fill_end(&noted, NOON + HOUR, 1000000);
    noted.state = STORE_EXECUTION_FAILED;
    OK(store_execution_insert(store, &noted, on_done, NULL));
    FAILS(ERR_EXISTS, store_execution_insert(store, &noted, on_done, NULL));
    ask("anna", STORE_USAGE_BY_HOUR, 0);
    assert_int_equal(nrows, 2);
    assert_int_equal(rows[1].hour_ms, NOON + HOUR);
    assert_int_equal(rows[1].executions, 1);
    assert_int_equal(rows[1].failed, 1);
    assert_int_equal(rows[1].cpu_us, 100000); /* the growth of the counter */
}

TEST(cpu_time_is_the_growth_of_the_counter_however_often_it_is_reported)
{
    struct store_sandbox sb = make("anna", (char *)"usanna", NOON);
    struct store_execution ex = run(&sb, (char *)"kyone", NOON);
    struct store_cpu_reading notes[3] = { { .cpu_us = 500, .at_ms = NOON + HOUR },
                                          { .cpu_us = 400, .at_ms = NOON + HOUR },
                                          { .cpu_us = 900, .at_ms = NOON + HOUR } };

    strcpy(notes[0].sandbox, sb.id);
    strcpy(notes[1].sandbox, sb.id);
    strcpy(notes[1].created_by, "kyone");
    strcpy(notes[2].sandbox, "sbaaaaaaaaaaaaaaaaaaaa"); /* which does not exist */
    for (int i = 0; i < 3; i++)
        OK(store_usage_record_cpu(store, notes, 3, on_done, NULL));
    fill_end(&ex, NOON + 2 * HOUR, 800);
    OK(store_execution_update(store, "anna", &ex, EX_END, &alive, on_execution, NULL));
    end(&sb, NOON + 3 * HOUR, 1000);
    OK(store_usage_record_cpu(store, notes, 1, on_done, NULL));
    notes[0].cpu_us = 5000; /* late, and of an ended sandbox: ignored */
    OK(store_usage_record_cpu(store, notes, 1, on_done, NULL));
    ask("anna", STORE_USAGE_BY_HOUR | STORE_USAGE_BY_USER, 0);
    uint64_t by_hour[4] = { 0 }, sum = 0;
    for (size_t i = 0; i < nrows; i++) {
        by_hour[(rows[i].hour_ms - NOON) / HOUR] += rows[i].cpu_us;
        sum += rows[i].cpu_us;
    }
    assert_int_equal(by_hour[0], 0);
    assert_int_equal(by_hour[1], 500);
    assert_int_equal(by_hour[2], 300);
    assert_int_equal(by_hour[3], 200);
    assert_int_equal(sum, 1000);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
    assert_int_equal(((struct store_sandbox *)(void *)got.rows.rows)->cpu_us, 1000);
}

TEST(usage_of_ephemeral_sandboxes_is_added_all_or_none)
{
    struct store_usage sums[2] = {
        { .hour_ms = NOON + 5, .executions = 3, .failed = 1, .cpu_us = 70, .sandbox_ms = 9, .memory_peak = 5 },
        { .hour_ms = NOON + HOUR, .executions = 1, .cpu_us = 4, .memory_peak = 6 }
    };

    strcpy(sums[0].owner, "anna");
    strcpy(sums[0].created_by, "kyone");
    FAILS(ERR_INVALID, store_usage_add(store, sums, 2, on_done, NULL)); /* the second has no owner */
    ask("anna", STORE_USAGE_BY_HOUR, 0);
    assert_int_equal(nrows, 0);
    strcpy(sums[1].owner, "anna");
    OK(store_usage_add(store, sums, 2, on_done, NULL));
    OK(store_usage_add(store, sums, 1, on_done, NULL));
    ask("anna", STORE_USAGE_BY_HOUR | STORE_USAGE_BY_USER, 0);
    assert_int_equal(nrows, 2);
    assert_int_equal(rows[0].hour_ms, NOON);
    assert_string_equal(rows[0].created_by, "kyone");
    assert_int_equal(rows[0].executions, 6);
    assert_int_equal(rows[0].failed, 2);
    assert_int_equal(rows[0].cpu_us, 140);
    assert_int_equal(rows[0].sandbox_ms, 18);
    assert_int_equal(rows[0].memory_peak, 5);
    assert_int_equal(rows[1].executions, 1);
}

TEST(a_sandbox_is_counted_in_every_hour_of_its_life_the_same_before_and_after_its_end)
{
    struct store_sandbox sb = make("anna", (char *)"usanna", NOON - HOUR / 4);
    struct store_usage living[4];

    ask("anna", STORE_USAGE_BY_HOUR | STORE_USAGE_BY_SANDBOX, NOON + 2 * HOUR + 1000);
    assert_int_equal(nrows, 4);
    memcpy(living, rows, sizeof(living));
    assert_int_equal(rows[0].sandbox_ms, HOUR / 4);
    assert_int_equal(rows[1].sandbox_ms, HOUR);
    assert_int_equal(rows[2].sandbox_ms, HOUR);
    assert_int_equal(rows[3].sandbox_ms, 1000);
    assert_int_equal(rows[3].memory_mib_ms, 512 * 1000);
    assert_int_equal(rows[3].storage_mib_ms, 256 * 1000);
    assert_string_equal(rows[3].sandbox, sb.id);
    ask("anna", 0, 0);
    assert_int_equal(nrows, 1);
    assert_int_equal(rows[0].sandbox_ms, 0); /* ended sandboxes only */
    end(&sb, NOON + 2 * HOUR + 1000, 0);
    FAILS(ERR_EXISTS,
          store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED,
                               &(struct store_condition){ .states = STORE_SANDBOX_LIVE }, on_sandbox, NULL));
    ask("anna", STORE_USAGE_BY_HOUR | STORE_USAGE_BY_SANDBOX, NOON + 50 * HOUR);
    assert_int_equal(nrows, 4);
    assert_memory_equal(rows, living, sizeof(living));
}

TEST(a_failed_creation_has_no_lifetime_and_a_wrong_wall_clock_is_bounded)
{
    struct store_sandbox unmade = make("anna", NULL, NOON), back = make("anna", NULL, NOON),
                         ahead = make("bert", NULL, 1000);
    struct store_usage_query all = { .owner = "bert", .to_ms = INT64_MAX };

    unmade.state = STORE_SANDBOX_ENDED;
    unmade.ended_ms = NOON + HOUR;
    OK(store_sandbox_update(store, "anna", &unmade, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, NULL, on_sandbox,
                            NULL));
    end(&back, NOON - HOUR, 0);
    ask("anna", 0, NOON + HOUR);
    assert_int_equal(rows[0].sandbox_ms, 0);
    end(&ahead, INT64_MAX / 4, 0);
    OK(store_usage_list(store, &all, on_usage, NULL));
    assert_int_equal(rows[0].sandbox_ms, UINT64_C(366) * 24 * HOUR);
}

TEST(AU03_usage_of_another_tenant_is_never_seen)
{
    struct store_sandbox mine = make("anna", (char *)"usanna", NOON), theirs = make("bert", (char *)"usbert", NOON);
    struct store_usage_query q = { .owner = "anna", .from_ms = NOON, .to_ms = NOON + 9 * HOUR, .now_ms = NOON + HOUR };

    end(&mine, NOON + 1000, 10);
    end(&theirs, NOON + 1000, 10);
    make("bert", NULL, NOON);
    ask("anna", STORE_USAGE_BY_TENANT | STORE_USAGE_BY_SANDBOX | STORE_USAGE_BY_USER, NOON + HOUR);
    assert_int_equal(nrows, 1);
    assert_string_equal(rows[0].owner, "anna");
    assert_string_equal(rows[0].sandbox, mine.id);
    q.sandbox = theirs.id;
    OK(store_usage_list(store, &q, on_usage, NULL));
    assert_int_equal(rows[0].sandbox_ms, 0);
    q.sandbox = NULL;
    q.created_by = "usbert";
    OK(store_usage_list(store, &q, on_usage, NULL));
    assert_int_equal(rows[0].sandbox_ms, 0);
    ask(STORE_ANY_OWNER, STORE_USAGE_BY_TENANT, NOON + HOUR);
    assert_int_equal(nrows, 2);
    q.owner = "no such'; --";
    FAILS(ERR_INVALID, store_usage_list(store, &q, on_usage, NULL));
    q.owner = "anna";
    q.created_by = "\xff";
    FAILS(ERR_MISSING, store_usage_list(store, &q, on_usage, NULL));
}

TEST(usage_outlives_its_sandbox_and_is_removed_by_its_own_age)
{
    struct store_retention keep = { .executions_before_ms = NOON, .sandboxes_before_ms = NOON };
    struct store_sandbox sb = make("anna", (char *)"usanna", NOON - 5 * HOUR),
                         other = make("anna", (char *)"usanna", NOON - 5 * HOUR);

    end(&sb, NOON - 4 * HOUR, 11);
    end(&other, NOON - 3 * HOUR, 31);
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.sandboxes, 2);
    assert_int_equal(got.gc.usage, 5); /* two hours with CPU time, and one of these hours twice */
    ask("anna", STORE_USAGE_BY_SANDBOX | STORE_USAGE_BY_USER, NOON);
    assert_int_equal(nrows, 1);
    assert_string_equal(rows[0].sandbox, "");
    assert_string_equal(rows[0].created_by, "usanna");
    assert_int_equal(rows[0].cpu_us, 42);
    assert_int_equal(rows[0].memory_peak, 31000); /* the maximum, not the sum */
    assert_int_equal(rows[0].sandbox_ms, 3 * HOUR);
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.usage, 0);
    keep.usage_before_ms = NOON - 4 * HOUR;
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.usage, 1);
    keep.usage_before_ms = NOON;
    OK(store_gc(store, &keep, on_gc, NULL));
    ask("anna", STORE_USAGE_BY_USER, NOON);
    assert_int_equal(nrows, 0);
}

TEST(a_budget_is_kept_replaced_and_removed)
{
    struct store_budget b = { .owner = "anna", .max = { { 1, 2, 3 }, { 4, 5, 6 } }, .updated_ms = 77 };

    OK(store_budget_put(store, &b, on_done, NULL));
    strcpy(b.owner, "bert");
    OK(store_budget_put(store, &b, on_done, NULL));
    host_reopen();
    OK(store_budget_list(store, "anna", on_budgets, NULL));
    assert_int_equal(nbudgets, 1);
    assert_string_equal(budgets[0].owner, "anna");
    assert_memory_equal(budgets[0].max, b.max, sizeof(b.max));
    assert_int_equal(budgets[0].updated_ms, 77);
    memset(b.max, 0, sizeof(b.max));
    OK(store_budget_put(store, &b, on_done, NULL));
    OK(store_budget_list(store, STORE_ANY_OWNER, on_budgets, NULL));
    assert_int_equal(nbudgets, 1);
    b.max[0][0] = UINT64_MAX;
    FAILS(ERR_INVALID, store_budget_put(store, &b, on_done, NULL));
    strcpy(b.owner, "*");
    FAILS(ERR_INVALID, store_budget_put(store, &b, on_done, NULL));
}

#define RUN_STORE(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(an_execution_is_counted_once_however_often_its_end_is_written),
        RUN_STORE(cpu_time_is_the_growth_of_the_counter_however_often_it_is_reported),
        RUN_STORE(usage_of_ephemeral_sandboxes_is_added_all_or_none),
        RUN_STORE(a_sandbox_is_counted_in_every_hour_of_its_life_the_same_before_and_after_its_end),
        RUN_STORE(a_failed_creation_has_no_lifetime_and_a_wrong_wall_clock_is_bounded),
        RUN_STORE(AU03_usage_of_another_tenant_is_never_seen),
        RUN_STORE(usage_outlives_its_sandbox_and_is_removed_by_its_own_age),
        RUN_STORE(a_budget_is_kept_replaced_and_removed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
