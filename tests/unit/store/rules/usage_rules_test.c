/* Usage without a database: hours of a span, figures of an end, rows of a report, and the number of
 * statements that the end of an execution costs. */
#include "memory_db.h"

#define HOUR STORE_HOUR_MS
#define NOON (UINT64_C(490000) * HOUR)
#define YEAR (366 * 24 * HOUR)

static struct memory_db db;

static int setup(void **state UNUSED)
{
    memory_db_init(&db);
    return 0;
}

static int teardown(void **state UNUSED)
{
    memory_db_done(&db);
    return 0;
}

static const struct store_usage *usage(size_t i)
{
    return (const struct store_usage *)(const void *)db.rows[memory_db_home(&row_usage)].rows + i;
}

TEST(a_span_is_split_at_full_hours_and_its_parts_add_up)
{
    static const struct {
        uint64_t from, to;
        size_t parts;
        uint64_t first_hour, first_ms, last_ms, sum;
    } cases[] = {
        { NOON, NOON, 0, 0, 0, 0, 0 },
        { NOON + 5, NOON, 0, 0, 0, 0, 0 }, /* a wall clock that was set back */
        { NOON, NOON + 1, 1, NOON, 1, 1, 1 },
        { NOON, NOON + HOUR, 1, NOON, HOUR, HOUR, HOUR },
        { NOON - 1, NOON + 1, 2, NOON - HOUR, 1, 1, 2 },
        { NOON + HOUR / 2, NOON + 3 * HOUR, 3, NOON, HOUR / 2, HOUR, 5 * HOUR / 2 },
        { NOON, NOON + 2 * YEAR, 366 * 24, NOON, HOUR, HOUR, YEAR },
        { 0, INT64_MAX, 366 * 24, 0, HOUR, HOUR, YEAR },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct usage_span s = usage_span_between(cases[i].from, cases[i].to);
        uint64_t hour = 0, ms = 0, sum = 0, first_hour = 0, first_ms = 0;
        size_t n = 0;

        while (usage_span_next(&s, &hour, &ms)) {
            assert_int_equal(hour % HOUR, 0);
            if (n++ == 0) {
                first_hour = hour;
                first_ms = ms;
            }
            sum += ms;
        }
        if (n != cases[i].parts || first_hour != cases[i].first_hour || first_ms != cases[i].first_ms ||
            ms != cases[i].last_ms || sum != cases[i].sum)
            fail_msg("case %zu: %zu parts, %" PRIu64 " ms", i, n, sum);
    }
}

TEST(a_report_merges_equal_rows_in_order_and_keeps_the_first_ones)
{
    static const struct {
        uint64_t hour;
        const char *owner, *created_by;
    } keys[] = { { 2, "a", "" }, { 1, "b", "" }, { 1, "a", "z" }, { 2, "a", "" }, { 1, "a", "" }, { 1, "b", "" } };
    struct row_list report = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        struct store_usage u = { .hour_ms = keys[i].hour, .executions = 1, .memory_peak = i, .sandbox_ms = INT64_MAX };

        strcpy(u.owner, keys[i].owner);
        strcpy(u.created_by, keys[i].created_by);
        usage_report_add(&report, &u);
    }
    usage_report_finish(&report, 3);
    const struct store_usage *rows = (const void *)report.rows;
    assert_int_equal(report.n, 3);
    assert_string_equal(rows[0].owner, "a");
    assert_string_equal(rows[0].created_by, "");
    assert_string_equal(rows[1].created_by, "z");
    assert_string_equal(rows[2].owner, "b");
    assert_int_equal(rows[2].executions, 2);
    assert_int_equal(rows[2].memory_peak, 5);
    assert_int_equal(rows[2].sandbox_ms, INT64_MAX); /* a sum saturates */
    row_list_done(&row_usage, &report);
}

TEST(a_report_of_more_rows_than_it_can_hold_keeps_the_first_ones)
{
    struct row_list report = { 0 };

    for (uint64_t i = 5 * STORE_USAGE_MAX; i-- > 0;)
        usage_report_add(&report, &(struct store_usage){ .owner = "a", .hour_ms = i * HOUR, .executions = 1 });
    usage_report_finish(&report, STORE_USAGE_MAX + 1);
    const struct store_usage *rows = (const void *)report.rows;
    assert_int_equal(report.n, STORE_USAGE_MAX + 1);
    assert_int_equal(rows[0].hour_ms, 0);
    assert_int_equal(rows[STORE_USAGE_MAX].hour_ms, STORE_USAGE_MAX * HOUR);
    row_list_done(&row_usage, &report);
}

static enum err_id insert(const struct row_table *t, void *row)
{
    struct store_request c = { .op = STORE_OP_INSERT, .table = t, .row = row };

    return memory_db_run(&db, &c);
}

static enum err_id update(const struct row_table *t, void *row, uint32_t set, uint32_t states)
{
    struct store_request c = {
        .op = STORE_OP_UPDATE, .table = t, .row = row, .set = set, .owner = "anna", .condition = { .states = states }
    };

    c.id = row; /* the first member of every row is its id */
    enum err_id id = memory_db_run(&db, &c);
    row_list_done(t, &c.rows);
    return id;
}

static struct store_sandbox new_sandbox(void)
{
    struct store_sandbox sb = { .owner = "anna",
                                .state = STORE_SANDBOX_RUNNING,
                                .created_ms = NOON - HOUR / 4,
                                .created_by = (char *)"usanna",
                                .memory_bytes = 512 * MIB,
                                .storage_bytes = 3 * MIB / 2 };

    id_new("sb", sb.id);
    assert_int_equal(insert(&row_sandbox, &sb), 0);
    return sb;
}

TEST(the_end_of_an_execution_costs_six_statements_and_is_counted_once)
{
    struct store_sandbox sb = new_sandbox();
    struct store_execution ex = { .owner = "anna", .state = STORE_EXECUTION_RUNNING, .started_ms = NOON };

    id_new("ex", ex.id);
    strcpy(ex.sandbox, sb.id);
    assert_int_equal(insert(&row_execution, &ex), 0);
    ex.state = STORE_EXECUTION_FAILED;
    ex.ended_ms = NOON + 1500;
    ex.out_bytes[1] = 50;
    ex.dropped[1] = 60;
    ex.usage_cpu_us = 700;
    db.statements = 0;
    assert_int_equal(update(&row_execution, &ex, 31, STORE_EXECUTION_LIVE), 0);
    assert_int_equal(db.statements, 6);
    assert_int_equal(update(&row_execution, &ex, 31, STORE_EXECUTION_LIVE), ERR_EXISTS);
    assert_int_equal(update(&row_execution, &ex, 31, 0), 0); /* unchanged, without a condition */
    assert_int_equal(memory_db_size(&db, &row_usage), 1);
    assert_int_equal(usage(0)->executions, 1);
    assert_int_equal(usage(0)->failed, 1);
    assert_int_equal(usage(0)->execution_ms, 1500);
    assert_int_equal(usage(0)->output_bytes, 0); /* never below 0 */
    assert_int_equal(usage(0)->cpu_us, 700);
    assert_string_equal(usage(0)->created_by, "usanna"); /* the execution does not name a user */
}

TEST(the_end_of_a_sandbox_adds_one_row_per_hour_with_its_cpu_time_in_the_last)
{
    struct store_sandbox sb = new_sandbox();

    sb.state = STORE_SANDBOX_ENDED;
    sb.ended_ms = NOON + HOUR + 1000;
    sb.ended_by = (char *)"killed";
    sb.cpu_us = 900;
    sb.usage_memory_peak = 77;
    db.statements = 0;
    assert_int_equal(update(&row_sandbox, &sb, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, STORE_SANDBOX_LIVE),
                     0);
    assert_int_equal(db.statements, 7); /* savepoint, update, counter, three hours, release */
    assert_int_equal(memory_db_size(&db, &row_usage), 3);
    assert_int_equal(usage(0)->sandbox_ms, HOUR / 4);
    assert_int_equal(usage(0)->cpu_us, 0);
    assert_int_equal(usage(1)->sandbox_ms, HOUR);
    assert_int_equal(usage(2)->sandbox_ms, 1000);
    assert_int_equal(usage(2)->memory_mib_ms, 512 * 1000);
    assert_int_equal(usage(2)->storage_mib_ms, 1000); /* whole MiB */
    assert_int_equal(usage(2)->cpu_us, 900);
    assert_int_equal(usage(2)->memory_peak, 77);
}

TEST(an_end_on_the_hour_has_its_cpu_time_in_the_hour_that_begins)
{
    struct store_sandbox sb = new_sandbox();

    sb.state = STORE_SANDBOX_ENDED;
    sb.ended_ms = NOON;
    sb.ended_by = (char *)"killed";
    sb.cpu_us = 900;
    assert_int_equal(update(&row_sandbox, &sb, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, STORE_SANDBOX_LIVE),
                     0);
    assert_int_equal(memory_db_size(&db, &row_usage), 2);
    assert_int_equal(usage(0)->sandbox_ms, HOUR / 4);
    assert_int_equal(usage(1)->hour_ms, NOON);
    assert_int_equal(usage(1)->sandbox_ms, 0);
    assert_int_equal(usage(1)->cpu_us, 900);
}

TEST(a_live_sandbox_is_reported_as_its_end_will_be_counted)
{
    struct store_request c = { .op = STORE_OP_USAGE_LIST,
                               .table = &row_usage,
                               .now_ms = NOON + HOUR + 1000,
                               .usage = { .owner = "anna",
                                          .to_ms = NOON + 9 * HOUR,
                                          .by = STORE_USAGE_BY_HOUR | STORE_USAGE_BY_TENANT | STORE_USAGE_BY_USER |
                                                STORE_USAGE_BY_SANDBOX } };
    struct store_sandbox sb = new_sandbox();

    assert_int_equal(memory_db_run(&db, &c), 0);
    sb.state = STORE_SANDBOX_ENDED;
    sb.ended_ms = c.now_ms;
    sb.ended_by = (char *)"killed";
    assert_int_equal(update(&row_sandbox, &sb, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, STORE_SANDBOX_LIVE),
                     0);
    assert_int_equal(c.rows.n, 3);
    assert_memory_equal(c.rows.rows, usage(0), 3 * sizeof(struct store_usage));
    row_list_done(&row_usage, &c.rows);
    c.usage.by = 0;
    strcpy(c.usage.created_by, "another");
    sb = new_sandbox();
    db.rows[memory_db_home(&row_usage)].n = 0;
    assert_int_equal(memory_db_run(&db, &c), 0);
    assert_int_equal(c.rows.n, 0);
}

#define RUN_RULES(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_RULES(a_span_is_split_at_full_hours_and_its_parts_add_up),
        RUN_RULES(a_report_merges_equal_rows_in_order_and_keeps_the_first_ones),
        RUN_RULES(a_report_of_more_rows_than_it_can_hold_keeps_the_first_ones),
        RUN_RULES(the_end_of_an_execution_costs_six_statements_and_is_counted_once),
        RUN_RULES(the_end_of_a_sandbox_adds_one_row_per_hour_with_its_cpu_time_in_the_last),
        RUN_RULES(an_end_on_the_hour_has_its_cpu_time_in_the_hour_that_begins),
        RUN_RULES(a_live_sandbox_is_reported_as_its_end_will_be_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
