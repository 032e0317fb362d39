#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "sandbox/receipt.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"

#include <signal.h>

static struct receipt plain(void)
{
    struct receipt r = { .sandbox = "sbaaaaaaaaaaaaaaaaaaaa", .execution = "exbbbbbbbbbbbbbbbbbbbb", .final = true };

    r.started_real_ns = 1700000000123000000;
    r.wall_ns.v = 1234567;
    r.cpu_ns.v = 2000;
    r.memory_peak.v = 5 * MIB;
    str_copy(r.driver, sizeof(r.driver), "bwrap");
    str_copy(r.profile, sizeof(r.profile), "shell");
    str_copy(r.cgroup, sizeof(r.cgroup), "v1");
    r.host_walls = JAIL_WALL_SECCOMP | JAIL_WALL_USER_NS;
    r.inside_walls = RT_WALL_LANDLOCK;
    r.landlock_abi = 3;
    limits_default(&r.limits);
    memset(r.enforced, JAIL_ENFORCED, sizeof(r.enforced));
    return r;
}

static void expect_json(const struct receipt *r, const char *const *with, const char *const *without)
{
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    receipt_json(r, &w);
    for (; *with; with++)
        if (!strstr(out.data, *with))
            fail_msg("%s is not in %s", *with, out.data);
    for (; *without; without++)
        if (strstr(out.data, *without))
            fail_msg("%s is in %s", *without, out.data);
}

TEST(each_cause_of_an_end_has_its_exit_code)
{
    static const struct {
        enum ended_by by;
        int code, signal, expected;
    } rows[] = {
        { ENDED_EXIT, 0, 0, 0 },        { ENDED_EXIT, 42, 0, 42 },    { ENDED_SIGNAL, -1, SIGSEGV, 139 },
        { ENDED_LIFETIME, -1, 9, 124 }, { ENDED_IDLE, -1, 9, 124 },   { ENDED_TIMEOUT, -1, 9, 124 },
        { ENDED_CPU, -1, 9, 124 },      { ENDED_MEMORY, -1, 9, 123 }, { ENDED_KILLED, -1, 9, 137 },
        { ENDED_LOST, -1, 0, 125 },     { ENDED_TIMEOUT, 0, 0, 124 }, { ENDED_EXIT, -1, 0, 125 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct receipt r = { .ended_by = rows[i].by, .exit_code = rows[i].code, .signal = rows[i].signal };

        if (receipt_exit_code(&r) != rows[i].expected)
            fail_msg("row %zu: %d", i, receipt_exit_code(&r));
    }
}

TEST(names_of_causes_match_the_api_contract)
{
    static const char *const expected[] = { "exit", "signal", "lifetime", "idle", "timeout",
                                            "cpu",  "memory", "killed",   "lost" };

    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_string_equal(ended_by_name((enum ended_by)i), expected[i]);
    assert_string_equal(ended_by_name((enum ended_by)99), "lost");
}

TEST(json_has_measured_figures_with_their_units)
{
    struct receipt r = plain();
    const char *const with[] = { "\"endedBy\":\"exit\"",
                                 "\"exitCode\":0",
                                 "\"signal\":null",
                                 "\"final\":true",
                                 "\"startedAt\":\"2023-11-14T22:13:20.123Z\"",
                                 "\"used\":{\"wallMs\":1.234,",
                                 "\"cpuMs\":0.002",
                                 "\"memoryPeakBytes\":5242880",
                                 "\"outside\":[\"user_namespace\",\"seccomp\"]",
                                 "\"inside\":[\"landlock\"]",
                                 "\"landlockAbi\":3",
                                 "\"memoryBytes\":{\"value\":536870912,\"state\":\"enforced\"}",
                                 "\"absent\":{}",
                                 NULL };
    const char *const without[] = { "\"cpuTimeMs\"", NULL }; /* not limited, so it is omitted */

    r.ended_by = ENDED_EXIT;
    expect_json(&r, with, without);
}

TEST(json_names_the_walls_that_a_plain_user_lacks_with_the_reason)
{
    const char *const none[] = { "\"missing\":[]", NULL };
    const char *const some[] = {
        "\"rootless\":true,\"missing\":[{\"name\":\"unique_uid\",\"reason\":\"an unprivileged user "
        "cannot raise it\"},{\"name\":\"no_groups\"",
        NULL
    };
    const char *const without[] = { NULL };
    struct receipt r = plain();

    expect_json(&r, none, without);
    r.rootless = true;
    expect_json(&r, some, without);
}

TEST(json_has_a_reason_instead_of_an_unknown_figure)
{
    struct receipt r = plain();
    const char *const with[] = { "\"absent\":{\"cpuMs\":\"no counter\",\"memoryPeakBytes\":\"later\","
                                 "\"changes\":\"not requested\"}",
                                 "\"exitCode\":null", "\"signal\":9", NULL };
    const char *const without[] = { "\"cpuMs\":0.002", "\"memoryPeakBytes\":5", "\"changes\":{", NULL };

    r.cpu_ns.why = "no counter";
    r.memory_peak.why = "later";
    r.changes_why = "not requested";
    r.exit_code = -1;
    r.signal = 9;
    expect_json(&r, with, without);
}

TEST(json_reports_how_each_limit_is_enforced)
{
    struct receipt r = plain();
    const char *const with[] = { "\"pids\":{\"value\":256,\"state\":\"none\"}",
                                 "\"cpuMillis\":{\"value\":1000,\"state\":\"partial\",\"why\":\"the host has no cgroup "
                                 "controller for it\"}",
                                 "\"cpuSet\":{\"value\":\"0-1\",\"state\":\"enforced\"}", NULL };
    const char *const without[] = { NULL };

    r.enforced[LIMIT_PIDS] = JAIL_NONE;
    r.enforced[LIMIT_CPU] = JAIL_PARTIAL;
    r.enforced_why[LIMIT_CPU] = REASON_NO_CONTROLLER;
    r.limits.v[LIMIT_CPUSET] = 3;
    expect_json(&r, with, without);
}

TEST(json_omits_unlimited_limits)
{
    struct receipt r = plain();
    const char *const with[] = { "\"swapBytes\":{\"value\":0", NULL }; /* no swap at all is a limit */
    const char *const without[] = { "\"outputBytes\"", "\"cpuTimeMs\"", "\"cpuSet\"", NULL };

    r.limits.v[LIMIT_OUTPUT] = 0;
    expect_json(&r, with, without);
}

static void add_denial(struct receipt *r, unsigned nr, uint64_t count)
{
    const struct filter_spec s = { .profile = PROFILE_SHELL };

    r->denials = mem_resize(r->denials, r->ndenials + 1, sizeof(*r->denials));
    denial_describe(&s, nr, (uint64_t[6]){ 16 }, &r->denials[r->ndenials].denial);
    r->denials[r->ndenials++].count = count;
}

TEST(denied_calls_are_listed_with_rule_and_fix)
{
    struct receipt r = plain();
    const char *const with[] = { "\"denials\":[{\"syscall\":\"mount\",\"call\":\"mount(...)\",\"count\":1,"
                                 "\"rule\":\"not allowed (profile shell): mounts and roots are the walls themselves\","
                                 "\"fix\":\"there is no way to allow it\"},{\"syscall\":\"ptrace\"",
                                 "\"denialsMore\":9", NULL };
    const char *const without[] = { NULL };
    auto_buf out = { 0 };

    add_denial(&r, 165, 1);
    add_denial(&r, 101, 40);
    r.denials_more = 9;
    expect_json(&r, with, without);
    receipt_print(&r, &out);
    assert_non_null(strstr(out.data,
                           "denied   mount (1): not allowed (profile shell); there is no way to allow it\n"
                           "denied   ptrace(16) (40): not allowed (profile shell); allow with --policy debug\n"
                           "denied   and 9 more\n"));
    receipt_done(&r);
    assert_null(r.denials);
}

/* "nothing was denied" and "unknown" are different. */
TEST(uncounted_denials_are_absent_and_not_empty)
{
    struct receipt r = plain();
    const char *const none[] = { "\"denials\":[]", NULL };
    const char *const unknown[] = { "\"absent\":{\"denials\":\"the monitor was lost\"}", NULL };
    const char *const list[] = { "\"denials\":[", "denialsMore", NULL };

    expect_json(&r, none, unknown);
    r.denials_why = "the monitor was lost";
    expect_json(&r, unknown, list);
}

static void use_network(struct receipt *r)
{
    static const struct egress_destination used[] = {
        { .host = "pypi.org", .port = 443, .connections = 1, .received = 12000, .sent = 288 },
        { .host = "example.org", .port = 443, .refused = 2, .reason = "no rule allows example.org:443" },
        { .host = "name.example", .refused = 1, .reason = "no rule" },
        { .host = "2001:db8::1", .port = 80, .failed = 1, .reason = "bad\033[2J" },
    };

    r->network = (struct network_policy){ .mode = NETWORK_EGRESS,
                                          .rules = str_dup("allow pypi.org\ndeny example.org\n") };
    r->egress = (struct receipt_egress){ .carrier = EGRESS_CARRIER_TPROXY,
                                         .connections = 1,
                                         .refused = 2,
                                         .failed = 1,
                                         .received_bytes = 12000,
                                         .sent_bytes = 288,
                                         .destinations = mem_copy(used, sizeof(used)),
                                         .ndestinations = ARRAY_LEN(used),
                                         .other_destinations = 4 };
}

TEST(connections_are_listed_with_rules_and_reasons)
{
    struct receipt r = plain();
    const char *const none[] = { "\"network\":\"none\"", NULL };
    const char *const with[] = {
        "\"network\":{\"mode\":\"egress\",\"carrier\":\"tproxy\",\"rules\":[\"allow pypi.org\",\"deny "
        "example.org\"],\"connections\":1,\"refused\":2,\"failed\":1,\"receivedBytes\":12000,\"sentBytes\":288,"
        "\"destinations\":[{\"host\":\"pypi.org\",\"port\":443,\"connections\":1,\"refused\":0,\"failed\":0,"
        "\"receivedBytes\":12000,\"sentBytes\":288},",
        "\"reason\":\"no rule allows example.org:443\"}", "],\"otherDestinations\":4}", NULL
    };
    const char *const without[] = { NULL };
    auto_buf out = { 0 };

    expect_json(&r, none, without);
    use_network(&r);
    expect_json(&r, with, without);
    receipt_print(&r, &out);
    if (!strstr(out.data,
                "network  reached pypi.org:443 (12K), refused example.org:443 (2 times): no rule allows "
                "example.org:443, refused name.example: no rule, failed [2001:db8::1]:80: bad?[2J, and 4 more\n"))
        fail_msg("%s", out.data);
    receipt_done(&r);
    assert_null(r.network.rules);
}

TEST(unknown_connections_have_a_reason_and_no_figure)
{
    struct receipt r = plain();
    const char *const with[] = { "\"absentWhy\":\"the proxy ended\"}", NULL };
    const char *const without[] = { "\"connections\"", "\"destinations\"", NULL };
    auto_buf out = { 0 };

    use_network(&r);
    r.egress.absent_why = "the proxy ended";
    expect_json(&r, with, without);
    receipt_print(&r, &out);
    assert_non_null(strstr(out.data, "unknown  the proxy ended: network\n"));
    receipt_done(&r);
}

TEST(the_summary_names_the_network_if_it_was_used)
{
    struct receipt r = plain();
    struct jsonw w;

    for (int used = 0; used < 2; used++) {
        auto_buf out = { 0 };

        if (used)
            use_network(&r);
        jsonw_init(&w, &out, 0);
        receipt_json_summary(&r, &w);
        assert_int_equal(strstr(out.data, "\"network\":{\"mode\":\"egress\"") != NULL, used);
        assert_null(strstr(out.data, "rules"));
    }
    receipt_done(&r);
}

TEST(changes_are_listed_and_hostile_names_stay_names)
{
    struct receipt r = plain();
    struct receipt_change *c = calloc(2, sizeof(*c));
    const char *const with[] = {
        "\"added\":1,\"modified\":0,\"deleted\":1,\"truncated\":false",
        "{\"path\":\"a\\u001b[2Jb\\n\",\"change\":\"added\",\"kind\":\"file\",\"sizeBytes\":7}",
        "{\"path\":\"gone\",\"change\":\"deleted\",\"kind\":\"directory\"}", NULL
    };
    const char *const without[] = { NULL };
    auto_buf out = { 0 };

    c[0] = (struct receipt_change){ 'A', 'f', 7, str_dup("a\033[2Jb\n") };
    c[1] = (struct receipt_change){ 'D', 'd', 0, str_dup("gone") };
    r.changes = c;
    r.nchanges = 2;
    r.added = r.deleted = 1;
    expect_json(&r, with, without);
    receipt_print(&r, &out);
    assert_null(strchr(out.data, '\033'));
    assert_non_null(strstr(out.data, "1 added, 0 modified, 1 deleted: a?[2Jb?, gone\n"));
    receipt_done(&r);
    assert_null(r.changes);
}

TEST(print_names_the_clock_and_its_limit)
{
    struct receipt r = plain();
    auto_buf out = { 0 };

    r.ended_by = ENDED_TIMEOUT;
    r.exit_code = -1;
    r.dropped_bytes = 10;
    receipt_print(&r, &out);
    assert_non_null(strstr(out.data, "ended    timeout: the execution timeout expired (limit 30s)\n"));
    assert_non_null(strstr(out.data, "wall 1.23 ms"));
    assert_non_null(strstr(out.data, "were dropped (limit 8M)"));
}

TEST(partly_enforced_limits_are_grouped_by_reason)
{
    struct receipt r = plain();
    auto_buf out = { 0 };

    r.enforced[LIMIT_MEMORY] = r.enforced[LIMIT_PIDS] = JAIL_PARTIAL;
    r.enforced_why[LIMIT_MEMORY] = r.enforced_why[LIMIT_PIDS] = REASON_EACH_PROCESS;
    r.enforced[LIMIT_WORKSPACE] = JAIL_NONE;
    r.enforced_why[LIMIT_WORKSPACE] = REASON_LENT_DIRECTORY;
    r.enforced[LIMIT_TMP] = JAIL_NONE;
    r.enforced_why[LIMIT_TMP] = 255;       /* from a newer jailer */
    r.enforced[LIMIT_IO_READ] = JAIL_NONE; /* not set, so it is not reported */
    receipt_print(&r, &out);
    assert_non_null(strstr(out.data,
                           "\nlimits   partial: memoryBytes, pids (without a cgroup it applies to each process "
                           "separately)\nlimits   none: workspaceBytes (the mounted directory has the "
                           "quota of its own file system)\nlimits   none: tmpBytes\n"));
    assert_null(strstr(out.data, "ioRead"));
}

TEST(print_groups_unknown_figures_by_reason)
{
    struct receipt r = plain();
    auto_buf out = { 0 };

    r.pids_peak.why = r.pids_refused.why = "because";
    receipt_print(&r, &out);
    assert_non_null(strstr(out.data, "unknown  because: pidsPeak, pidsRefused\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(json_names_the_walls_that_a_plain_user_lacks_with_the_reason),
        RUN(each_cause_of_an_end_has_its_exit_code),
        RUN(names_of_causes_match_the_api_contract),
        RUN(json_has_measured_figures_with_their_units),
        RUN(json_has_a_reason_instead_of_an_unknown_figure),
        RUN(json_reports_how_each_limit_is_enforced),
        RUN(json_omits_unlimited_limits),
        RUN(denied_calls_are_listed_with_rule_and_fix),
        RUN(uncounted_denials_are_absent_and_not_empty),
        RUN(connections_are_listed_with_rules_and_reasons),
        RUN(unknown_connections_have_a_reason_and_no_figure),
        RUN(the_summary_names_the_network_if_it_was_used),
        RUN(changes_are_listed_and_hostile_names_stay_names),
        RUN(print_names_the_clock_and_its_limit),
        RUN(partly_enforced_limits_are_grouped_by_reason),
        RUN(print_groups_unknown_figures_by_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
