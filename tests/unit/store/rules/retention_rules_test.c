/* The order and the limits of retention, with a backend that only counts rows of each kind. */
#include "tests/unit/test.h"

#include "store/rules/rules.h"

#include <stdio.h>

static const char *const kind_names[] = {
    [STORE_OLD_EXECUTIONS] = "executions",       [STORE_OLD_SANDBOXES] = "sandboxes",     [STORE_OLD_EVENTS] = "events",
    [STORE_OLD_FIRST_EVENTS] = "first_events",   [STORE_OLD_IDEMPOTENCY] = "idempotency", [STORE_OLD_USAGE] = "usage",
    [STORE_OLD_SANDBOX_USAGE] = "sandbox_usage", [STORE_OLD_SCRIPTS] = "scripts",
};

static struct {
    uint64_t rows[ARRAY_LEN(kind_names)]; /* of each kind */
    uint64_t used_bytes;                  /* each row that is removed frees 1 byte */
    uint64_t output_bytes;                /* each execution has 10 bytes of output */
    bool has_space, fails;
    char log[4096];
    const char *savepoint;
} fake;

static void note(const char *text, uint64_t n)
{
    size_t len = strlen(fake.log);

    snprintf(fake.log + len, sizeof(fake.log) - len, "%s%s:%" PRIu64, len ? " " : "", text, n);
}

static int fake_remove_oldest(struct store_db *db UNUSED, enum store_old kind, uint64_t before_ms UNUSED,
                              uint32_t limit, struct row_list *ret, uint64_t *ret_n, struct err *err)
{
    *ret_n = min_u64(fake.rows[kind], limit);
    note(kind_names[kind], *ret_n);
    if (fake.fails && kind == STORE_OLD_EVENTS)
        return err_set(err, ERR_STORE_FAILED, "injected");
    fake.rows[kind] -= *ret_n;
    fake.used_bytes -= min_u64(fake.used_bytes, *ret_n);
    for (uint64_t i = 0; kind == STORE_OLD_EXECUTIONS && i < *ret_n; i++) {
        struct store_removed *row = row_list_add(&row_removed, ret);

        snprintf(row->id, sizeof(row->id), "ex%" PRIu64, i);
        row->output_bytes = 10;
        fake.output_bytes -= 10;
    }
    return 0;
}

static int fake_output_bytes(struct store_db *db UNUSED, const char *owner UNUSED, uint64_t *ret,
                             struct err *err UNUSED)
{
    *ret = fake.output_bytes;
    return 0;
}

static int fake_used_bytes(struct store_db *db UNUSED, uint64_t *ret, struct err *err UNUSED)
{
    *ret = fake.used_bytes;
    return 0;
}

static int fake_reclaim(struct store_db *db UNUSED, bool *ret_more, struct err *err UNUSED)
{
    *ret_more = !fake.has_space;
    return 0;
}

static int fake_savepoint(struct store_db *db UNUSED, struct err *err UNUSED)
{
    fake.savepoint = "open";
    return 0;
}

static int fake_release(struct store_db *db UNUSED, struct err *err UNUSED)
{
    fake.savepoint = "released";
    return 0;
}

static void fake_undo(struct store_db *db UNUSED)
{
    fake.savepoint = "undone";
}

static bool fake_has_space(struct store_db *db UNUSED)
{
    return fake.has_space;
}

static const struct store_backend fake_backend = { .savepoint = fake_savepoint,
                                                   .release = fake_release,
                                                   .undo = fake_undo,
                                                   .has_space = fake_has_space,
                                                   .remove_oldest = fake_remove_oldest,
                                                   .reclaim = fake_reclaim,
                                                   .output_bytes = fake_output_bytes,
                                                   .used_bytes = fake_used_bytes };

static struct store_gc_report collect(const struct store_retention *keep, int expected)
{
    struct store_db db = { &fake_backend };
    struct store_request c = { .op = STORE_OP_GC, .retention = *keep };
    struct err err = { 0 };

    fake.log[0] = '\0';
    assert_int_equal(store_run(&db, &c, &err), expected);
    free(c.removed);
    return c.gc;
}

static int setup(void **state UNUSED)
{
    memset(&fake, 0, sizeof(fake));
    fake.has_space = true;
    for (size_t i = 0; i < ARRAY_LEN(fake.rows); i++)
        fake.rows[i] = 3;
    fake.rows[STORE_OLD_SANDBOX_USAGE] = 0;
    fake.output_bytes = 30;
    return 0;
}

TEST(old_executions_go_before_their_sandboxes_and_usage_goes_last)
{
    struct store_retention all = { .executions_before_ms = 9,
                                   .sandboxes_before_ms = 9,
                                   .events_before_ms = 9,
                                   .idem_before_ms = 9,
                                   .scripts_before_ms = 9,
                                   .usage_before_ms = 9 };
    struct store_gc_report report = collect(&all, 0);

    assert_string_equal(fake.log, "executions:3 sandboxes:3 events:3 idempotency:3 scripts:3 usage:3 sandbox_usage:0");
    assert_string_equal(fake.savepoint, "released");
    assert_int_equal(report.nexecutions, 3);
    assert_int_equal(report.output_bytes, 30);
    assert_int_equal(report.sandboxes, 3);
    assert_int_equal(report.scripts, 3);
    assert_int_equal(report.usage, 3);
    assert_false(report.more);
}

TEST(without_an_age_nothing_is_removed)
{
    struct store_gc_report report = collect(&(struct store_retention){ .executions_before_ms = 9 }, 0);

    assert_string_equal(fake.log, "executions:3");
    assert_int_equal(report.nexecutions, 3);
    report = collect(&(struct store_retention){ 0 }, 0);
    assert_string_equal(fake.log, "");
}

TEST(a_batch_ends_after_its_number_of_rows_and_is_smaller_on_a_full_disk)
{
    struct store_retention keep = { .executions_before_ms = 9, .events_before_ms = 9 };

    fake.rows[STORE_OLD_EXECUTIONS] = STORE_GC_BATCH - 1;
    fake.output_bytes = 10 * STORE_GC_BATCH;
    assert_true(collect(&keep, 0).more);
    assert_string_equal(fake.log, "executions:199 events:1");
    fake.has_space = false;
    fake.rows[STORE_OLD_EVENTS] = STORE_GC_BATCH;
    assert_true(collect(&keep, 0).more);
    assert_string_equal(fake.log, "executions:0 events:20");
}

TEST(too_much_output_removes_one_execution_at_a_time_until_it_fits)
{
    collect(&(struct store_retention){ .output_bytes_max = 15 }, 0);
    assert_string_equal(fake.log, "executions:1 executions:1");
    collect(&(struct store_retention){ .output_bytes_max = 1 }, 0);
    assert_string_equal(fake.log, "executions:1");
    fake.output_bytes = 100; /* of live executions */
    collect(&(struct store_retention){ .output_bytes_max = 1 }, 0);
    assert_string_equal(fake.log, "executions:0");
}

TEST(a_large_database_loses_executions_then_events_then_sandboxes_and_nothing_else)
{
    fake.used_bytes = 100;
    struct store_gc_report report = collect(&(struct store_retention){ .db_bytes_max = 1 }, 0);

    assert_string_equal(fake.log, "executions:3 executions:0 first_events:3 executions:0 first_events:0 sandboxes:3 "
                                  "executions:0 first_events:0 sandboxes:0");
    assert_int_equal(report.events, 3);
    assert_false(report.more);
    fake.rows[STORE_OLD_EXECUTIONS] = 50;
    fake.output_bytes = 500;
    fake.used_bytes = 100;
    collect(&(struct store_retention){ .db_bytes_max = 85 }, 0);
    assert_string_equal(fake.log, "executions:10 executions:10"); /* it stops as soon as it fits */
}

TEST(a_dry_run_and_a_failure_are_reverted)
{
    struct store_retention keep = { .executions_before_ms = 9, .events_before_ms = 9, .dry_run = true };

    fake.rows[STORE_OLD_EXECUTIONS] = STORE_GC_BATCH + 5;
    fake.output_bytes = 10 * (STORE_GC_BATCH + 5);
    struct store_gc_report report = collect(&keep, 0);
    assert_string_equal(fake.savepoint, "undone");
    assert_int_equal(report.nexecutions, STORE_GC_BATCH + 5); /* all batches together */
    assert_int_equal(report.events, 3);
    keep.dry_run = false;
    fake.fails = true;
    collect(&keep, -1);
    assert_string_equal(fake.savepoint, "undone");
}

#define RUN_RULES(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_RULES(old_executions_go_before_their_sandboxes_and_usage_goes_last),
        RUN_RULES(without_an_age_nothing_is_removed),
        RUN_RULES(a_batch_ends_after_its_number_of_rows_and_is_smaller_on_a_full_disk),
        RUN_RULES(too_much_output_removes_one_execution_at_a_time_until_it_fits),
        RUN_RULES(a_large_database_loses_executions_then_events_then_sandboxes_and_nothing_else),
        RUN_RULES(a_dry_run_and_a_failure_are_reverted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
