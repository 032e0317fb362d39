#include "tests/unit/test.h"

#include "inside/runtime/procs.h"
#include "inside/runtime/runtime_walls.h"

#include <stdio.h>

TEST(a_stat_line_is_parsed_with_any_process_name)
{
    char st;
    pid_t ppid, session;

    assert_true(procs_parse_stat("42 (sh) S 7 42 41 0 -1 4194560", &st, &ppid, &session));
    assert_int_equal(st, 'S');
    assert_int_equal(ppid, 7);
    assert_int_equal(session, 41);
    assert_true(procs_parse_stat("42 (x) R 1 1 1 (y) Z 9 8 6 0", &st, &ppid, &session));
    assert_int_equal(st, 'Z');
    assert_int_equal(ppid, 9);
    assert_int_equal(session, 6);
}

TEST(malformed_stat_lines_are_refused)
{
    static const char *const bad[] = {
        "", "42", "42 (sh)", "42 (sh) ", "42 (sh) S", "42 (sh) S x 1 1", "42 (sh) S 1 1"
    };
    char st;
    pid_t ppid, session;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (procs_parse_stat(bad[i], &st, &ppid, &session))
            fail_msg("'%s'", bad[i]);
}

TEST(io_counters_are_read_by_name)
{
    uint64_t r, w;

    assert_true(procs_parse_io("rchar: 12\nwchar: 18446744073709551615\nsyscr: 1\n", &r, &w));
    assert_int_equal(r, 12);
    assert_int_equal(w, UINT64_MAX);
    assert_false(procs_parse_io("wchar: 1\nrchar: 2\n", &r, &w));
    assert_false(procs_parse_io("rchar: 1\n", &r, &w));
    assert_false(procs_parse_io("rchar: x\nwchar: 1\n", &r, &w));
}

TEST(this_process_can_be_counted_and_read)
{
    struct procs p;
    struct procs_io io;
    uint64_t pid;

    procs_init(&p);
    assert_true(procs_io(&p, &io));
    assert_true(io.cost > 20);
    assert_true(procs_last_pid(&p, &pid));
    assert_true(pid > 0);
    assert_true(procs_count() > 0);
    procs_done(&p);
}

TEST(only_a_lone_loopback_counts_as_no_network)
{
    static const char head[] = "Inter-|   Receive                |  Transmit\n face |bytes packets|bytes packets\n";
    char text[512];
    static const struct {
        const char *lines;
        bool alone;
    } cases[] = {
        { "    lo:       0       0\n", true },
        { "    lo:       0       0", true },
        { "    lo:       0       0\n  eth0: 1 1\n", false },
        { "  eth0: 1 1\n    lo: 0 0\n", false },
        { "   lo2: 1 1\n", false },
        { "", false }, /* every namespace has lo, so it is hidden */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        snprintf(text, sizeof(text), "%s%s", head, cases[i].lines);
        if (runtime_walls_only_loopback(text) != cases[i].alone)
            fail_msg("case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_stat_line_is_parsed_with_any_process_name),
        RUN(malformed_stat_lines_are_refused),
        RUN(io_counters_are_read_by_name),
        RUN(this_process_can_be_counted_and_read),
        RUN(only_a_lone_loopback_counts_as_no_network),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
