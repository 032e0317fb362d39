/* The names of output files, with a real store. */
#include "store_scene.h"

#include "service/output_dir.h"

#include <errno.h>

static const char kept[] = "exaaaaaaaaaaaaaaaaaaab", lost[] = "exaaaaaaaaaaaaaaaaaaac";

TEST(only_final_names_of_executions_are_output_files)
{
    static const struct {
        const char *name;
        bool is_output;
    } names[] = {
        { "exaaaaaaaaaaaaaaaaaaaa.1", true },   { "exaaaaaaaaaaaaaaaaaaaa.3", true },
        { "exaaaaaaaaaaaaaaaaaaaa.4", false },  { "exaaaaaaaaaaaaaaaaaaaa.1.new", false },
        { "exaaaaaaaaaaaaaaaaaaaa", false },    { "sbaaaaaaaaaaaaaaaaaaaa.1", false },
        { "exAAAAAAAAAAAAAAAAAAAA.1", false },  { "ends", false },
        { "exaaaaaaaaaaaaaaaaaaaaa.1", false }, { ".", false },
    };
    char id[ID_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (output_dir_parse_name(names[i].name, id) != names[i].is_output)
            fail_msg("%s", names[i].name);
}

TEST(a_file_is_found_under_either_name_and_an_id_is_never_a_path)
{
    struct output_dir *d;
    struct store_scene s;
    uint64_t sizes[OUTPUT_CHANNELS];

    store_scene_open(&s);
    assert_int_equal(output_dir_new(s.dir, &d, NULL), 0);
    store_scene_write(&s, "exaaaaaaaaaaaaaaaaaaab.1.new", "abc");
    int fd = output_dir_open_for_read(d, kept, 1);
    assert_true(fd >= 0);
    close(fd);
    output_dir_file_sizes(d, kept, sizes);
    assert_int_equal(sizes[0], 3);
    assert_int_equal(sizes[1], 0);
    assert_int_equal(store_scene_file_size(&s, "exaaaaaaaaaaaaaaaaaaab.1"), 3);
    assert_int_equal(output_dir_open_for_read(d, kept, 2), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(output_dir_open_for_read(d, "../../etc/passwd", 1), -1);
    assert_int_equal(errno, ENOENT);
    output_dir_remove(d, kept);
    assert_int_equal(store_scene_file_size(&s, "exaaaaaaaaaaaaaaaaaaab.1"), -1);
    output_dir_free(d);
    store_scene_close(&s);
}

TEST(after_a_kill_a_temporary_name_is_resolved_by_its_row)
{
    struct store_execution row = { .id = "exaaaaaaaaaaaaaaaaaaab", .sandbox = "sbaaaaaaaaaaaaaaaaaaaa", .owner = "me" };
    struct output_dir *d;
    struct store_scene s;

    store_scene_open(&s);
    assert_int_equal(output_dir_new(s.dir, &d, NULL), 0);
    store_scene_insert_sandbox(&s, row.sandbox);
    row.created_ms = 1;
    store_execution_insert(s.store, &row, NULL, NULL);
    store_scene_write(&s, "exaaaaaaaaaaaaaaaaaaab.2.new", "kept");
    store_scene_write(&s, "exaaaaaaaaaaaaaaaaaaac.1.new", "lost");
    store_scene_write(&s, "notes.new", "other");
    output_dir_resolve_temp_files(d, s.store);
    store_scene_settle(&s);
    assert_int_equal(store_scene_file_size(&s, "exaaaaaaaaaaaaaaaaaaab.2"), 4);
    assert_int_equal(store_scene_file_size(&s, "exaaaaaaaaaaaaaaaaaaac.1.new"), -1);
    assert_int_equal(output_dir_open_for_read(d, lost, 1), -1);
    assert_int_equal(store_scene_file_size(&s, "notes.new"), 5);
    output_dir_free(d);
    store_scene_close(&s);
}

TEST(a_directory_that_does_not_exist_is_an_error)
{
    struct err err = { 0 };
    struct output_dir *d;

    assert_int_equal(output_dir_new("/nowhere/at/all", &d, &err), -1);
    assert_int_equal(err.id, ERR_SYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(only_final_names_of_executions_are_output_files),
        RUN(a_file_is_found_under_either_name_and_an_id_is_never_a_path),
        RUN(after_a_kill_a_temporary_name_is_resolved_by_its_row),
        RUN(a_directory_that_does_not_exist_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
