/* Retention with a real store and real files. */
#include "store_scene.h"

#include "service/retention.h"

static const char sandbox[] = "sbaaaaaaaaaaaaaaaaaaaa";
static const char old[] = "exaaaaaaaaaaaaaaaaaaab", new[] = "exaaaaaaaaaaaaaaaaaaac";
static const char stray[] = "exaaaaaaaaaaaaaaaaaaad";

struct scene {
    struct store_scene base;
    struct output_dir *output;
    struct retention *retention;
    int answers;
    enum err_id failed;
    struct manager_gc removed;
};

static void insert_ended(struct scene *s, const char *id, uint64_t ended_ms)
{
    struct store_execution row = { .owner = "me",
                                   .state = STORE_EXECUTION_ENDED,
                                   .created_ms = 1000,
                                   .ended_ms = ended_ms,
                                   .out_bytes = { 3, 4, 0 } };

    str_copy(row.id, sizeof(row.id), id);
    str_copy(row.sandbox, sizeof(row.sandbox), sandbox);
    store_execution_insert(s->base.store, &row, NULL, NULL);
}

static void write_output(struct scene *s, const char *id)
{
    auto_free char *out = str_printf("%s.1", id), *err = str_printf("%s.2", id);

    store_scene_write(&s->base, out, "out");
    store_scene_write(&s->base, err, "four");
}

static long output_size(struct scene *s, const char *id)
{
    auto_free char *name = str_printf("%s.1", id);

    return store_scene_file_size(&s->base, name);
}

static void open_scene(struct scene *s)
{
    *s = (struct scene){ 0 };
    store_scene_open(&s->base);
    assert_int_equal(output_dir_new(s->base.dir, &s->output, NULL), 0);
    s->retention = retention_new(s->base.store, s->output);
    store_scene_insert_sandbox(&s->base, sandbox);
    insert_ended(s, old, 2000);
    insert_ended(s, new, 9000);
    write_output(s, old);
    write_output(s, new);
    write_output(s, stray);
    store_scene_write(&s->base, "ends", "not an output file");
}

static void close_scene(struct scene *s)
{
    retention_free(s->retention);
    output_dir_free(s->output);
    store_scene_close(&s->base);
}

static void on_done(void *arg, const struct err *err, const struct manager_gc *removed)
{
    struct scene *s = arg;

    s->answers++;
    s->failed = err ? err->id : ERR_NONE;
    if (removed)
        s->removed = *removed;
}

static void run(struct scene *s, bool strays, bool dry_run)
{
    struct store_retention keep = { .executions_before_ms = 5000, .dry_run = dry_run };

    s->answers = 0;
    retention_run(s->retention, &keep, strays, on_done, s);
    store_scene_wait(&s->base, &s->answers);
    assert_int_equal(s->failed, ERR_NONE);
}

TEST(rows_that_are_too_old_go_with_their_files_and_others_stay)
{
    struct scene s;

    open_scene(&s);
    run(&s, false, false);
    assert_int_equal(s.removed.executions, 1);
    assert_int_equal(s.removed.output_bytes, 7);
    assert_int_equal(s.removed.stray_files, 0);
    assert_int_equal(output_size(&s, old), -1);
    assert_int_equal(output_size(&s, new), 3);
    assert_int_equal(output_size(&s, stray), 3);
    assert_false(store_scene_has_execution(&s.base, old, NULL));
    assert_true(store_scene_has_execution(&s.base, new, NULL));
    run(&s, false, false);
    assert_int_equal(s.removed.executions, 0); /* of the second run alone */
    close_scene(&s);
}

TEST(a_dry_run_counts_and_removes_nothing)
{
    struct scene s;

    open_scene(&s);
    run(&s, true, true);
    assert_int_equal(s.removed.executions, 1);
    assert_int_equal(s.removed.output_bytes, 7);
    assert_int_equal(s.removed.stray_files, 2);
    assert_int_equal(s.removed.stray_bytes, 7);
    assert_int_equal(output_size(&s, old), 3);
    assert_int_equal(output_size(&s, stray), 3);
    assert_true(store_scene_has_execution(&s.base, old, NULL));
    close_scene(&s);
}

TEST(files_without_a_row_are_removed_on_request)
{
    struct scene s;

    open_scene(&s);
    run(&s, true, false);
    assert_int_equal(s.removed.stray_files, 2);
    assert_int_equal(output_size(&s, stray), -1);
    assert_int_equal(output_size(&s, new), 3);
    assert_true(store_scene_file_size(&s.base, "ends") > 0);
    assert_true(store_scene_file_size(&s.base, "cove.db") > 0);
    close_scene(&s);
}

TEST(a_second_run_is_refused_until_the_first_is_done)
{
    struct store_retention keep = { .executions_before_ms = 5000 };
    struct scene s;

    open_scene(&s);
    retention_run(s.retention, &keep, true, on_done, &s);
    retention_run(s.retention, &keep, true, on_done, &s);
    assert_int_equal(s.answers, 1);
    assert_int_equal(s.failed, ERR_BUSY);
    s.answers = 0;
    store_scene_wait(&s.base, &s.answers);
    assert_int_equal(s.failed, ERR_NONE);
    assert_int_equal(s.removed.executions, 1);
    run(&s, true, false);
    close_scene(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(rows_that_are_too_old_go_with_their_files_and_others_stay),
        RUN(a_dry_run_counts_and_removes_nothing),
        RUN(files_without_a_row_are_removed_on_request),
        RUN(a_second_run_is_refused_until_the_first_is_done),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
