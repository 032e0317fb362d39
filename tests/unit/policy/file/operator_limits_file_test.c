#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/file/policy_file.h"

static struct problems pr;

static int read_text(const char *text, struct operator_limits *f)
{
    pr = (struct problems){ .file = "floor.yaml" };
    return operator_limits_file_read(text, strlen(text), "floor.yaml", f, &pr);
}

TEST(operator_limits_have_maxima_prohibitions_and_modes)
{
    struct operator_limits f = { 0 };

    assert_int_equal(
        read_text("version: 1\n"
                  "level: standard\n"
                  "walls: all\n"
                  "enforce: [memoryBytes, pids]\n"
                  "network: none\n"
                  "drivers: {allowed: [bwrap]}\n"
                  "limits: {memoryBytes: 1G, cpuTimeMs: 60s, cpuSet: 0-3, pids: 100, idleTimeoutMs: unlimited}\n"
                  "syscalls: {forbid: [debug], deny: [inotify_init1]}\n"
                  "filesystem: {workspace: [copyOnWrite]}\n",
                  &f),
        0);
    assert_int_equal(f.max[LIMIT_MEMORY], GIB);
    assert_int_equal(f.has_max, LIMIT_BIT(MEMORY) | LIMIT_BIT(CPU_TIME) | LIMIT_BIT(CPUSET) | LIMIT_BIT(PIDS));
    assert_true(f.requires_every_wall && f.forbids_network);
    assert_int_equal(f.must_enforce, LIMIT_BIT(MEMORY) | LIMIT_BIT(PIDS));
    assert_int_equal(f.forbidden_grants, GRANT_BIT(DEBUG));
    assert_true(policy_denies(f.deny, (unsigned)syscall_number("inotify_init1")));
    assert_int_equal(f.forbidden_drivers, DRIVER_BIT(DRIVER_NATIVE));
    assert_int_equal(f.allowed_workspaces, 1u << POLICY_MEMORY | 1u << POLICY_COPY_ON_WRITE);
    operator_limits_done(&f);
}

TEST(of_two_files_the_stricter_applies_in_every_point)
{
    struct operator_limits f = { 0 };

    assert_int_equal(read_text("version: 1\nlimits: {memoryBytes: 1G, pids: 50, cpuSet: 0-3}\n"
                               "filesystem: {workspace: [copyOnWrite, readWrite]}\n"
                               "drivers: {allowed: [native]}\n",
                               &f),
                     0);
    assert_int_equal(read_text("version: 1\nlimits: {memoryBytes: 64M, pids: 100, cpuSet: 2-5}\n"
                               "syscalls: {forbid: [debug]}\nfilesystem: {workspace: [copyOnWrite]}\n"
                               "drivers: {allowed: [native, bwrap]}\n",
                               &f),
                     0);
    assert_int_equal(f.forbidden_drivers, DRIVER_BIT(DRIVER_BWRAP));
    assert_int_equal(f.max[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(f.max[LIMIT_PIDS], 50);
    assert_int_equal(f.max[LIMIT_CPUSET], 12);
    assert_int_equal(f.forbidden_grants, GRANT_BIT(DEBUG));
    assert_int_equal(f.allowed_workspaces, 1u << POLICY_MEMORY | 1u << POLICY_COPY_ON_WRITE);
    assert_string_equal(f.file, "floor.yaml and floor.yaml");
    assert_int_equal(read_text("version: 1\nlimits: {cpuSet: 7}\n", &f), 0);
    assert_int_equal(f.max[LIMIT_CPUSET], 12); /* no processor in common: the first set stays */
    operator_limits_done(&f);
}

TEST(a_second_file_adds_denials_and_only_narrows_open_ranges)
{
    struct operator_limits f = { 0 }, second = { 0 };

    assert_int_equal(
        read_text("version: 1\nnetwork: {openRanges: [10.1.0.0/16, 'fd00:1::/32'], deny: [a.example:*]}\n", &f), 0);
    assert_int_equal(f.nopen_ranges, 2);
    assert_int_equal(read_text("version: 1\nnetwork: {deny: [b.example]}\n", &f), 0);
    assert_int_equal(f.nopen_ranges, 2);
    assert_string_equal(f.network_denials, "deny a.example:*\ndeny b.example");
    assert_int_equal(read_text("version: 1\nnetwork: {openRanges: [10.1.2.0/24, 10.0.0.0/8, 127.0.0.1]}\n", &f), 0);
    assert_int_equal(f.nopen_ranges, 1);
    assert_int_equal(f.open_ranges[0].bits, 24);
    assert_false(f.forbids_network);
    operator_limits_done(&f);

    assert_int_equal(read_text("version: 1\n", &second), 0);
    assert_int_equal(read_text("version: 1\nnetwork: {openRanges: [127.0.0.1]}\n", &second), 0);
    assert_int_equal(second.nopen_ranges, 0); /* the first file opens nothing */
    operator_limits_done(&second);
}

TEST(errors_in_operator_limits_have_their_line)
{
    static const struct {
        const char *text;
        uint32_t line;
        enum err_id id;
    } cases[] = {
        { "limits: {}\n", 1, ERR_POLICY_VALUE },
        { "version: 1\nlevel: custom\n", 2, ERR_POLICY_VALUE },
        { "version: 1\nprofile: python\n", 2, ERR_POLICY_KEY },
        { "version: 1\nwalls: some\n", 2, ERR_POLICY_VALUE },
        { "version: 1\nenforce: [memory]\n", 2, ERR_POLICY_VALUE },
        { "version: 1\nlimits:\n  memory: 1G\n", 3, ERR_POLICY_KEY },
        { "version: 1\nsyscalls:\n  grant: [debug]\n", 3, ERR_POLICY_KEY },
        { "version: 1\nfilesystem:\n  workspace: copyOnWrite\n", 3, ERR_POLICY_VALUE },
        { "version: 1\ndrivers: [native]\n", 2, ERR_POLICY_VALUE },
        { "version: 1\ndrivers: {allowed: []}\n", 2, ERR_POLICY_VALUE },
        { "version: 1\ndrivers: {allowed: [docker]}\n", 2, ERR_DRIVER_MISSING },
        { "version: 1\ndriver: native\n", 2, ERR_POLICY_KEY },
        { "version: 1\nnetwork: all\n", 2, ERR_POLICY_VALUE },
        { "version: 1\nnetwork:\n  allow: [pypi.org]\n", 3, ERR_POLICY_KEY },
        { "version: 1\nnetwork:\n  deny: [127.1]\n", 3, ERR_EGRESS_RULE },
        { "version: 1\nnetwork:\n  openRanges: [10.0.0.1/8]\n", 3, ERR_POLICY_VALUE },
        { "version: 1\nnetwork:\n  openRanges: 10.0.0.0/8\n", 3, ERR_POLICY_VALUE },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct operator_limits f = { 0 };

        assert_int_equal(read_text(cases[i].text, &f), -1);
        assert_int_equal(pr.n, 1);
        assert_int_equal(pr.list[0].line, cases[i].line);
        assert_int_equal(pr.list[0].id, cases[i].id);
        operator_limits_done(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(operator_limits_have_maxima_prohibitions_and_modes),
        RUN(of_two_files_the_stricter_applies_in_every_point),
        RUN(a_second_file_adds_denials_and_only_narrows_open_ranges),
        RUN(errors_in_operator_limits_have_their_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
