/* The journal of ends with a real store: what a kill leaves, and how the next start applies it. */
#include "store_scene.h"

#include "service/end_journal.h"

static const char sandbox[] = "sbaaaaaaaaaaaaaaaaaaaa";
static const char one[] = "exaaaaaaaaaaaaaaaaaaab", two[] = "exaaaaaaaaaaaaaaaaaaac";

static struct store_execution ended_row(const char *id)
{
    struct store_execution row = { .owner = "me",
                                   .state = STORE_EXECUTION_ENDED,
                                   .created_ms = 1000,
                                   .started_ms = 1100,
                                   .ended_ms = 1500,
                                   .out_bytes = { 7, 0, 0 },
                                   .has_exit_code = true,
                                   .exit_code = 3,
                                   .ended_by = (char *)"exit",
                                   .hint = (char *)"raise \"memory\"",
                                   .context_reset = true,
                                   .receipt_json = (char *)"{\"final\":false}" };

    str_copy(row.id, sizeof(row.id), id);
    str_copy(row.sandbox, sizeof(row.sandbox), sandbox);
    return row;
}

/* Appends an end and frees the journal before the commit, as a kill does. */
static void append_and_die(struct store_scene *s, const char *id)
{
    auto_(end_journal) j = end_journal_new(s->ev, s->store, s->dir_fd);
    struct store_execution row = ended_row(id);

    assert_true(end_journal_append(j, &row));
}

static void reopen(struct store_scene *s)
{
    struct end_journal *j = end_journal_new(s->ev, s->store, s->dir_fd);

    store_scene_settle(s);
    end_journal_free(j);
}

static void on_row_with_hint(void *arg, const struct err *err, const struct store_execution *row)
{
    char **ret = arg;

    *ret = str_dup(!err && row->hint ? row->hint : "");
}

static void check_hint(struct store_scene *s, const char *id, const char *expected)
{
    auto_free char *hint = NULL;

    store_execution_get(s->store, "me", id, on_row_with_hint, &hint);
    while (!hint)
        ev_turn(s->ev, 1000);
    assert_string_equal(hint, expected);
}

TEST(an_end_that_was_not_committed_is_restored_once)
{
    struct store_execution row;
    struct store_scene s;

    store_scene_open(&s);
    store_scene_insert_sandbox(&s, sandbox);
    append_and_die(&s, one);
    assert_false(store_scene_has_execution(&s, one, NULL));
    reopen(&s);
    assert_true(store_scene_has_execution(&s, one, &row));
    assert_int_equal(row.state, STORE_EXECUTION_ENDED);
    assert_int_equal(row.ended_ms, 1500);
    assert_int_equal(row.exit_code, 3);
    assert_int_equal(row.out_bytes[0], 7);
    assert_true(row.context_reset);
    check_hint(&s, one, "raise \"memory\"");
    reopen(&s); /* the line is still there, and changes nothing */
    assert_true(store_scene_has_execution(&s, one, &row));
    assert_int_equal(row.ended_ms, 1500);
    store_scene_close(&s);
}

TEST(the_journal_ends_a_row_that_is_still_live)
{
    struct store_execution row = ended_row(one);
    struct store_scene s;

    store_scene_open(&s);
    store_scene_insert_sandbox(&s, sandbox);
    row.state = STORE_EXECUTION_RUNNING;
    row.ended_ms = 0;
    row.has_exit_code = false;
    row.ended_by = row.receipt_json = row.hint = NULL;
    row.context_reset = false;
    store_execution_insert(s.store, &row, NULL, NULL);
    append_and_die(&s, one);
    reopen(&s);
    assert_true(store_scene_has_execution(&s, one, &row));
    assert_int_equal(row.state, STORE_EXECUTION_ENDED);
    assert_int_equal(row.exit_code, 3);
    store_scene_close(&s);
}

TEST(a_line_that_cannot_be_read_is_skipped)
{
    static const char *const bad[] = { "no JSON", "{}", "{\"id\":\"../etc\",\"sandbox\":\"sb\",\"owner\":\"me\"}", "" };
    auto_free char *good = NULL;
    struct store_scene s;

    store_scene_open(&s);
    store_scene_insert_sandbox(&s, sandbox);
    good = str_printf("{\"id\":\"%s\",\"sandbox\":\"%s\",\"owner\":\"me\",\"createdMs\":1,\"startedMs\":1,"
                      "\"endedMs\":2,\"signal\":0}\t\n",
                      one, sandbox);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        auto_free char *text = str_printf("%s\n%s", bad[i], i == 0 ? good : "");

        store_scene_write(&s, "ends", text);
        reopen(&s);
        assert_true(store_scene_has_execution(&s, one, NULL));
    }
    store_scene_close(&s);
}

TEST(a_line_without_its_end_is_dropped_and_does_not_damage_the_next_one)
{
    auto_free char *text = NULL;
    struct store_scene s;

    store_scene_open(&s);
    store_scene_insert_sandbox(&s, sandbox);
    text = str_printf("{\"id\":\"%s\",\"sandbox\":\"%s\",\"owner\":\"me\",\"createdMs\":1,\"startedMs\":1,"
                      "\"endedMs\":2,\"signal\":0}\t\n{\"id\":\"exaaaaaaaa",
                      one, sandbox);
    store_scene_write(&s, "ends", text);
    append_and_die(&s, two); /* before the first line is committed */
    reopen(&s);
    assert_true(store_scene_has_execution(&s, one, NULL));
    assert_true(store_scene_has_execution(&s, two, NULL));
    store_scene_close(&s);
}

TEST(the_file_is_emptied_when_all_ends_are_committed)
{
    struct store_execution first = ended_row(one), second = ended_row(two);
    struct store_scene s;

    store_scene_open(&s);
    auto_(end_journal) j = end_journal_new(s.ev, s.store, s.dir_fd);
    assert_true(end_journal_append(j, &first));
    assert_true(end_journal_append(j, &second));
    long size = store_scene_file_size(&s, "ends");
    assert_true(size > 0);
    end_journal_committed(j);
    for (uint64_t end = clock_mono_ns() + 1200 * NS_PER_MS; clock_mono_ns() < end;)
        ev_turn(s.ev, 20);
    assert_int_equal(store_scene_file_size(&s, "ends"), size);
    end_journal_committed(j);
    for (uint64_t end = clock_mono_ns() + 5 * NS_PER_S; store_scene_file_size(&s, "ends") > 0 && clock_mono_ns() < end;)
        ev_turn(s.ev, 20);
    assert_int_equal(store_scene_file_size(&s, "ends"), 0);
    end_journal_free(take_ptr(&j));
    store_scene_close(&s);
}

TEST(more_ends_than_the_store_lets_wait_are_all_restored)
{
    struct store_scene s;
    char last[ID_SIZE];

    store_scene_open(&s);
    struct end_journal *j = end_journal_new(s.ev, s.store, s.dir_fd);
    for (int i = 0; i < 4200; i++) {
        struct store_execution row = ended_row(one);

        id_new("ex", row.id);
        memcpy(last, row.id, sizeof(last));
        assert_true(end_journal_append(j, &row));
    }
    end_journal_free(j);
    j = end_journal_new(s.ev, s.store, s.dir_fd);
    for (uint64_t end = clock_mono_ns() + 60 * NS_PER_S;
         store_scene_file_size(&s, "ends") > 0 && clock_mono_ns() < end;)
        ev_turn(s.ev, 20);
    assert_int_equal(store_scene_file_size(&s, "ends"), 0);
    check_hint(&s, last, "");
    end_journal_free(j);
    store_scene_close(&s);
}

TEST(without_a_directory_no_end_may_be_acknowledged)
{
    struct store_execution row = ended_row(one);
    struct store_scene s;

    store_scene_open(&s);
    auto_(end_journal) j = end_journal_new(s.ev, s.store, -1);
    assert_false(end_journal_append(j, &row));
    end_journal_free(take_ptr(&j));
    store_scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(an_end_that_was_not_committed_is_restored_once),
        RUN(the_journal_ends_a_row_that_is_still_live),
        RUN(a_line_that_cannot_be_read_is_skipped),
        RUN(a_line_without_its_end_is_dropped_and_does_not_damage_the_next_one),
        RUN(the_file_is_emptied_when_all_ends_are_committed),
        RUN(more_ends_than_the_store_lets_wait_are_all_restored),
        RUN(without_a_directory_no_end_may_be_acknowledged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
