/* The jailer and zygotes: two requests put an interpreter into a sandbox, and a misbehaving zygote
 * affects only the clients of its own template. */
#include "zygote_host.h"

#include <errno.h>

static void begin(struct host *h, const char *how, char id[ID_SIZE], struct reply *r)
{
    start_with_kernels(h, "COVE_TEST_KERNELS");
    ask_joinable(h, "t", true);
    ask_zygote(h, "t", "test", how);
    expect(h, FRAME_J_OK);
    sandbox(h, id, r);
}

/* One line from a descriptor. */
static const char *line(int fd)
{
    static char text[16384];
    size_t n = 0;

    while (n < sizeof(text) - 1) {
        assert_true(readable_within(fd, 60000));
        if (read(fd, text + n, 1) != 1)
            break;
        if (text[n++] == '\n')
            break;
    }
    text[n] = '\0';
    return text;
}

static void put(int fd, const char *what)
{
    assert_int_equal(write(fd, what, strlen(what)), (int)strlen(what));
}

TEST(an_interpreter_joins_and_answers_over_its_own_descriptors)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    put(m.fds[0], "u");
    assert_string_equal(line(m.fds[0]), "uid 1000\n");
    put(m.fds[0], "m");
    assert_string_equal(line(m.fds[0]), "mount -1\n");
    put(m.fds[0], "p");
    assert_string_equal(line(m.fds[1]), "printed\n");
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(many_interpreters_of_one_zygote_live_in_one_sandbox_and_in_several)
{
    struct host h;
    struct reply r[3], m[6];
    char id[3][ID_SIZE];

    begin(&h, "plain", id[0], &r[0]);
    sandbox(&h, id[1], &r[1]);
    sandbox(&h, id[2], &r[2]);
    for (int i = 0; i < 6; i++)
        join(&h, id[i % 3], &m[i]);
    for (int i = 0; i < 6; i++) {
        assert_true(str_starts(line(m[i].fds[0]), "ready "));
        put(m[i].fds[0], "u");
    }
    for (int i = 0; i < 6; i++) {
        assert_string_equal(line(m[i].fds[0]), "uid 1000\n");
        drop_fds(&m[i]);
    }
    for (int i = 0; i < 3; i++)
        drop_fds(&r[i]);
    host_stop(&h);
}

/* The kernel counts keyrings, and more, per user, and the limit of some is 200. */
#define CROWD 210

TEST(one_zygote_has_more_interpreters_than_one_user_may_have_keyrings)
{
    static struct reply r[CROWD], m[CROWD];
    static char id[CROWD][ID_SIZE];
    struct host h;

    begin(&h, "plain", id[0], &r[0]);
    for (int i = 0; i < CROWD; i++) {
        if (i > 0)
            sandbox(&h, id[i], &r[i]);
        join(&h, id[i], &m[i]);
        assert_true(str_starts(line(m[i].fds[0]), "ready "));
        for (size_t n = 1; n < r[i].nfds; n++) /* the descriptors that keep them alive are enough */
            fd_close(&r[i].fds[n]);
        fd_close(&m[i].fds[1]);
        fd_close(&m[i].fds[2]);
    }
    for (int i = 0; i < CROWD; i++) {
        put(m[i].fds[0], "u");
        assert_string_equal(line(m[i].fds[0]), "uid 1000\n");
    }
    for (int i = 0; i < CROWD; i++) {
        fd_close(&m[i].fds[0]);
        fd_close(&r[i].fds[0]);
    }
    host_stop(&h);
    assert_int_equal(leaves(id[CROWD - 1]), 0);
}

TEST(interpreters_end_with_their_sandbox)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE], c;

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    ask(&h, FRAME_J_DESTROY, id);
    expect(&h, FRAME_DONE);
    assert_int_equal(read(m.fds[1], &c, 1), 0);
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(a_failed_preload_is_reported_in_the_words_of_the_zygote)
{
    struct host h;
    struct reply r;
    struct rt_error e;

    start_with_kernels(&h, "COVE_TEST_KERNELS");
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "fails");
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    assert_string_equal(e.msg, "no module named 'nonsense'");
    ask_zygote(&h, "t", "test", "dies");
    expect_error(&h, ERR_LOST);
    ask_zygote(&h, "t", "none", "plain"); /* no such program */
    expect_error(&h, ERR_LOST);
    host_stop(&h);
}

TEST(invalid_requests_are_refused)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    start_with_kernels(&h, "COVE_TEST_KERNELS");
    ask_joinable(&h, "t", true);
    ask_joinable(&h, "other", false);
    ask_zygote(&h, "missing", "test", "plain");
    expect_error(&h, ERR_MISSING);
    ask_zygote(&h, "other", "test", "plain");
    expect_error(&h, ERR_INVALID);
    ask_zygote(&h, "t", "../test", "plain");
    expect_error(&h, ERR_INVALID);
    ask_zygote(&h, "t", "", "plain");
    expect_error(&h, ERR_INVALID);
    sandbox(&h, id, &r);
    ask(&h, FRAME_J_JOIN, id); /* no zygote yet */
    expect_error(&h, ERR_MISSING);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_zygote_that_violates_the_protocol_is_ended_and_the_next_one_works)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "lies", id, &r);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_LOST);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_MISSING);
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_new_generation_takes_over_and_old_interpreters_live_on)
{
    struct host h;
    struct reply r, old, new;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &old);
    assert_true(str_starts(line(old.fds[0]), "ready "));
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    join(&h, id, &new);
    assert_true(str_starts(line(new.fds[0]), "ready "));
    put(old.fds[0], "u");
    assert_string_equal(line(old.fds[0]), "uid 1000\n");
    drop_fds(&old);
    drop_fds(&new);
    drop_fds(&r);
    host_stop(&h);
}

TEST(an_unused_zygote_ends_and_its_interpreters_live_on)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    ask_zygote(&h, "t", "", "");
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_MISSING);
    put(m.fds[0], "u");
    assert_string_equal(line(m.fds[0]), "uid 1000\n");
    drop_fds(&m);
    ask_zygote(&h, "t", "test", "plain"); /* a new zygote starts on request */
    expect(&h, FRAME_J_OK);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
}

/* In another sandbox, for which nothing has changed. */
static void works(struct host *h)
{
    struct reply r, m;
    char id[ID_SIZE];

    sandbox(h, id, &r);
    join(h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    drop_fds(&m);
    ask(h, FRAME_J_DESTROY, id);
    expect(h, FRAME_DONE);
    drop_fds(&r);
}

TEST(a_sandbox_full_of_forking_processes_does_not_block_the_zygote)
{
    struct host h;
    struct reply r, m, a;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    put(m.fds[0], "f");
    assert_string_equal(line(m.fds[0]), "full\n");
    ask(&h, FRAME_J_JOIN, id); /* the answer may be a success or an error, but must arrive */
    answer_of(&h, &a);
    assert_true(a.f.type == FRAME_J_OK || a.f.type == FRAME_J_ERROR);
    drop_fds(&a);
    works(&h);
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(a_frozen_sandbox_does_not_block_the_zygote_and_its_interpreter_continues_later)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    ask(&h, FRAME_J_JOIN, id);
    answer_of(&h, &m);
    assert_int_equal(m.f.type, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, id);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_JOIN, id); /* it does not run now */
    expect_error(&h, ERR_EXISTS);
    works(&h);
    ask(&h, FRAME_J_THAW, id);
    expect(&h, FRAME_J_OK);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
}

TEST(sandboxes_that_end_during_a_join_leave_nothing_and_the_zygote_works)
{
    struct host h;
    struct reply r, a;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    for (int i = 0; i < 20; i++) {
        uint32_t asked;
        int answers = 0;

        if (i > 0)
            sandbox(&h, id, &r);
        if (i % 2) {
            ask(&h, FRAME_J_JOIN, id);
            asked = h.stream;
            ask(&h, FRAME_J_DESTROY, id);
        } else {
            ask(&h, FRAME_J_DESTROY, id);
            ask(&h, FRAME_J_JOIN, id);
            asked = h.stream - 2;
        }
        while (answers < 2) { /* in any order */
            receive(&h, &a);
            if (a.f.type == FRAME_J_EVENT)
                continue;
            assert_in_range(a.f.stream, asked, asked + 2);
            drop_fds(&a);
            answers++;
        }
        drop_fds(&r);
        assert_int_equal(leaves(id), 0);
    }
    works(&h);
    host_stop(&h);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        CASE(an_interpreter_joins_and_answers_over_its_own_descriptors),
        CASE(many_interpreters_of_one_zygote_live_in_one_sandbox_and_in_several),
        CASE(one_zygote_has_more_interpreters_than_one_user_may_have_keyrings),
        CASE(interpreters_end_with_their_sandbox),
        CASE(a_failed_preload_is_reported_in_the_words_of_the_zygote),
        CASE(invalid_requests_are_refused),
        CASE(a_zygote_that_violates_the_protocol_is_ended_and_the_next_one_works),
        CASE(a_new_generation_takes_over_and_old_interpreters_live_on),
        CASE(an_unused_zygote_ends_and_its_interpreters_live_on),
        CASE(a_sandbox_full_of_forking_processes_does_not_block_the_zygote),
        CASE(a_frozen_sandbox_does_not_block_the_zygote_and_its_interpreter_continues_later),
        CASE(sandboxes_that_end_during_a_join_leave_nothing_and_the_zygote_works),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("zygotes", tests, NULL, NULL);
}
