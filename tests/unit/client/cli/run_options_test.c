#include "tests/unit/test.h"

#include "client/cli/run_options.h"

#include "core/base/str.h"

static const struct policy *under_policy;
static const struct operator_limits *over_floor;

static int build(const char *const *words, struct run_options *ret, struct err *err)
{
    struct args a;
    int n = 0;

    while (words[n])
        n++;
    if (args_parse(cli_verb_find("run"), n, (char **)(uintptr_t)words, &a, err) < 0)
        return -1;
    int rc = run_options_build(&a, under_policy, over_floor, ret, err);
    args_done(&a);
    return rc;
}
#define BUILD(ret, err, ...) build((const char *const[]){ "run", __VA_ARGS__, NULL }, ret, err)

TEST(options_without_flags_have_the_defaults_of_the_tables)
{
    struct run_options r;
    struct err err = { 0 };

    assert_int_equal(BUILD(&r, &err, "--", "true"), 0);
    assert_int_equal(r.level, LEVEL_STANDARD);
    assert_int_equal(r.driver, DRIVER_NATIVE);
    assert_int_equal(r.network.mode, NETWORK_NONE);
    assert_int_equal(r.limits.v[LIMIT_MEMORY], 512 * MIB);
    assert_int_equal(r.limits.v[LIMIT_WALL], 30000);
    assert_string_equal(r.cwd, "/workspace");
    assert_false(r.output_capped);
    assert_true(r.after_dashes);
    assert_int_equal(r.nwords, 1);
    run_options_done(&r);
}

TEST(every_flag_sets_its_option)
{
    struct run_options r;
    struct err err = { 0 };

    assert_int_equal(BUILD(&r, &err, "--level", "standard", "--memory", "600M", "--cpus=0.5", "--pids", "50",
                           "--timeout", "2s", "--cpu-time", "1s", "--env", "A=b", "--bind-ro", "/usr/share:/mnt/share",
                           "--workspace", "/tmp:cow", "--skills", "/opt/s/", "--net", "none", "--driver", "bwrap", "-i",
                           "--json", "--receipt=/tmp/r", "--keep", "--dry-run", "--cwd", "sub/dir", "--quiet",
                           "--state-dir", "/run/x", "--max-output", "1M", "a", "b"),
                     0);
    assert_int_equal(r.limits.v[LIMIT_MEMORY], 600 * MIB);
    assert_int_equal(r.limits.v[LIMIT_CPU], 500);
    assert_int_equal(r.driver, DRIVER_BWRAP);
    assert_int_equal(r.driver_source, RUN_OPTION_FROM_FLAG);
    assert_true(r.network_flag);
    assert_int_equal(r.limits.v[LIMIT_PIDS], 50);
    assert_int_equal(r.limits.v[LIMIT_WALL], 2000);
    assert_int_equal(r.limits.v[LIMIT_CPU_TIME], 1000);
    assert_int_equal(r.limits.v[LIMIT_OUTPUT], 1 * MIB);
    assert_string_equal(r.env[0], "A=b");
    assert_null(r.env[1]);
    assert_int_equal(r.nbinds, 2);
    assert_string_equal(r.binds[0].src, "/usr/share");
    assert_string_equal(r.binds[0].dst, "/mnt/share");
    assert_string_equal(r.binds[1].dst, "/skills");
    assert_string_equal(r.workspace, "/tmp");
    assert_true(r.cow && r.interactive && r.json && r.keep && r.dry_run && r.quiet && r.receipt && r.output_capped);
    assert_string_equal(r.receipt_file, "/tmp/r");
    assert_string_equal(r.cwd, "/workspace/sub/dir");
    assert_string_equal(r.state_dir, "/run/x");
    assert_int_equal(r.nwords, 2);
    run_options_done(&r);
}

TEST(unset_limits_are_derived_from_given_limits)
{
    struct run_options r;
    struct err err = { 0 };

    assert_int_equal(BUILD(&r, &err, "--timeout", "20m", "x"), 0);
    assert_int_equal(r.limits.v[LIMIT_LIFETIME], 21 * 60000);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "-t", "x"), 0);
    assert_int_equal(r.limits.v[LIMIT_WALL], 3600000);
    assert_true(r.limits.v[LIMIT_LIFETIME] > 3600000);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--memory", "32M", "x"), 0);
    assert_true(r.limits.v[LIMIT_WORKSPACE] < 32 * MIB);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--json", "x"), 0);
    assert_true(r.output_capped);
    assert_int_equal(r.limits.v[LIMIT_OUTPUT], 8 * MIB);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--keep", "--lifetime", "10m", "x"), 0);
    assert_int_equal(r.limits.v[LIMIT_LIFETIME], 600000);
    run_options_done(&r);
}

TEST(errors_name_the_flag_and_have_the_right_code)
{
    static const struct {
        const char *const words[6];
        enum err_id id;
        const char *says;
    } cases[] = {
        { { "run", "--level", "high", "x" }, ERR_LEVEL_UNAVAILABLE, "second kernel" },
        { { "run", "--level", "custom", "x" }, ERR_USAGE, "--policy FILE" },
        { { "run", "--level", "extreme", "x" }, ERR_INVALID, "standard, high or custom" },
        { { "run", "--driver", "bwarp", "x" },
          ERR_DRIVER_MISSING,
          "--driver: unknown driver 'bwarp'; did you mean bwrap?" },
        { { "run", "--net", "host", "x" }, ERR_INVALID, "write --allow HOST" },
        { { "run", "--memory", "lots", "x" }, ERR_INVALID, "--memory lots" },
        { { "run", "--memory", "1", "x" }, ERR_INVALID, "--memory 1" },
        { { "run", "--timeout", "soon", "x" }, ERR_INVALID, "--timeout soon" },
        { { "run", "--memory=32M", "--disk=64M", "x" }, ERR_INVALID, "memory" },
        { { "run", "--max-output", "0", "x" }, ERR_INVALID, "/dev/null" },
        { { "run", "--env", "=x", "x" }, ERR_INVALID, "begins with a letter" },
        { { "run", "--env", "1A=x", "x" }, ERR_INVALID, "begins with a letter" },
        { { "run", "--env", "A-B=x", "x" }, ERR_INVALID, "letters, digits" },
        { { "run", "--env", "A\nB=x", "x" }, ERR_INVALID, "letters, digits" },
        { { "run", "--env", "COVE_TEST_NOT_SET", "x" }, ERR_INVALID, "not set in your environment" },
        { { "run", "--bind-ro", "/usr", "x" }, ERR_INVALID, "SRC:DST" },
        { { "run", "--bind-ro", "/usr:relative", "x" }, ERR_INVALID, "SRC:DST" },
        { { "run", "--bind-ro", "/usr:/mnt/../etc", "x" }, ERR_BIND_TARGET, "plain absolute path" },
        { { "run", "--bind-ro", "/usr:/mnt//a", "x" }, ERR_BIND_TARGET, "plain absolute path" },
        { { "run", "--bind-ro", "/usr:/mnt/a\nb", "x" }, ERR_BIND_TARGET, "plain absolute path" },
        { { "run", "--bind-ro", ":/mnt/a", "x" }, ERR_INVALID, "source is empty" },
        { { "run", "--workspace", ":cow", "x" }, ERR_INVALID, "empty" },
        { { "run", "--cwd", "", "x" }, ERR_INVALID, "empty" },
        { { "run", "--state-dir", "here", "x" }, ERR_INVALID, "absolute" },
        { { "run", "--memory", "64", "true" }, ERR_INVALID, "did you mean 64M?" },
        { { "run", "-v", "/data:/data", "true" }, ERR_INVALID, "/data:/workspace, or add ':ro'" },
        { { "run", "-v", "/data", "true" }, ERR_INVALID, "SRC:DST:ro" },
        { { "run", "--tty", "--json", "x" }, ERR_USAGE, "exclude each other" },
    };

    unsetenv("COVE_TEST_NOT_SET");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_options r;
        struct err err = { 0 };

        if (build(cases[i].words, &r, &err) == 0)
            fail_msg("%s %s was accepted", cases[i].words[1], cases[i].words[2]);
        if (err.id != cases[i].id || !strstr(err.msg, cases[i].says))
            fail_msg("%s %s: %d '%s'", cases[i].words[1], cases[i].words[2], err.id, err.msg);
    }
}

TEST(a_bare_name_passes_the_value_of_this_process)
{
    struct run_options r;
    struct err err = { 0 };

    setenv("COVE_TEST_SET", "a=b c", 1);
    assert_int_equal(BUILD(&r, &err, "--env", "COVE_TEST_SET", "-e", "EMPTY=", "x"), 0);
    assert_string_equal(r.env[0], "COVE_TEST_SET=a=b c");
    assert_string_equal(r.env[1], "EMPTY=");
    run_options_done(&r);
}

TEST(a_source_with_colons_is_split_at_the_last_one)
{
    struct run_options r;
    struct err err = { 0 };

    assert_int_equal(BUILD(&r, &err, "--bind-ro", "/a:b:/mnt/c/", "x"), 0);
    assert_string_equal(r.binds[0].src, "/a:b");
    assert_string_equal(r.binds[0].dst, "/mnt/c");
    run_options_done(&r);
}

TEST(too_many_binds_are_refused)
{
    const char *words[2 + RUN_OPTIONS_BINDS_MAX + 2] = { "run" };
    struct run_options r;
    struct err err = { 0 };

    for (int i = 0; i < RUN_OPTIONS_BINDS_MAX; i++)
        words[1 + i] = "--bind-ro=/a:/mnt/a";
    assert_int_equal(build(words, &r, &err), 0);
    run_options_done(&r);
    words[1 + RUN_OPTIONS_BINDS_MAX] = "--bind-ro=/a:/mnt/a";
    assert_int_equal(build(words, &r, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

/* --- policies and operator limits --- */

static struct policy sample(void)
{
    static char file[] = "p.yaml";
    struct policy p;

    assert_true(policy_builtin("standard", &p));
    p.file = file;
    p.level = LEVEL_CUSTOM;
    p.limits.v[LIMIT_MEMORY] = 64 * MIB;
    p.limit_line[LIMIT_MEMORY] = 3;
    p.limits.v[LIMIT_PIDS] = 20;
    p.limit_line[LIMIT_PIDS] = 4;
    return p;
}

static const char *source(const struct run_options *r, enum limit l)
{
    static char text[RUN_OPTIONS_SOURCE_TEXT];

    return run_options_source_text(r, l, text);
}

TEST(flags_override_the_policy_and_the_policy_overrides_the_level)
{
    struct policy p = sample();
    struct run_options r;
    struct err err = { 0 };
    static char set[] = "A=1", pass[] = "COVE_TEST_UNSET_VARIABLE", dst[] = "/usr/bin/gcc", dir[] = "/srv";

    p.env[p.nenv++] = (struct policy_env){ set, false, 5 };
    p.env[p.nenv++] = (struct policy_env){ pass, true, 6 };
    p.paths[p.npaths++] = (struct policy_path){ NULL, dst, 7 };
    p.workspace = POLICY_COPY_ON_WRITE;
    p.workspace_dir = dir;
    p.driver = DRIVER_BWRAP;
    p.driver_line = 8;
    p.grants = GRANT_BIT(DEBUG);
    policy_deny(p.deny, 312);
    under_policy = &p;
    assert_int_equal(BUILD(&r, &err, "--pids", "9", "-e", "A=2", "--", "true"), 0);
    assert_int_equal(r.level, LEVEL_CUSTOM);
    assert_int_equal(r.limits.v[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(r.limits.v[LIMIT_PIDS], 9);
    assert_string_equal(source(&r, LIMIT_MEMORY), "p.yaml:3");
    assert_string_equal(source(&r, LIMIT_PIDS), "--pids");
    assert_string_equal(source(&r, LIMIT_TMP), "follows from others");
    assert_string_equal(source(&r, LIMIT_NOFILE), "standard");
    assert_int_equal(r.nenv, 2); /* a variable that is not set here is skipped */
    assert_string_equal(r.env[0], "A=1");
    assert_string_equal(r.env[1], "A=2"); /* the later value wins */
    assert_int_equal(r.nbinds, 1);
    assert_null(r.binds[0].src);
    assert_string_equal(r.workspace, "/srv");
    assert_true(r.cow);
    assert_int_equal(r.driver, DRIVER_BWRAP);
    assert_int_equal(r.driver_source, RUN_OPTION_FROM_POLICY);
    assert_int_equal(r.grants, GRANT_BIT(DEBUG));
    assert_true(policy_denies(r.deny, 312));
    run_options_done(&r);

    assert_int_equal(BUILD(&r, &err, "-w", "/tmp", "--driver", "native", "--", "true"), 0);
    assert_string_equal(r.workspace, "/tmp");
    assert_int_equal(r.driver, DRIVER_NATIVE);
    assert_int_equal(r.driver_source, RUN_OPTION_FROM_FLAG);
    assert_false(r.cow);
    run_options_done(&r);
    under_policy = NULL;
}

TEST(contradicting_level_and_policy_are_refused)
{
    struct policy p = sample(), high;
    struct run_options r;
    struct err err = { 0 };

    under_policy = &p;
    assert_int_equal(BUILD(&r, &err, "--level", "standard", "--", "true"), -1);
    assert_int_equal(err.id, ERR_USAGE);
    assert_int_equal(BUILD(&r, &err, "--level", "custom", "--", "true"), 0);
    run_options_done(&r);
    assert_true(policy_builtin("high", &high));
    under_policy = &high;
    assert_int_equal(BUILD(&r, &err, "--", "true"), -1);
    assert_int_equal(err.id, ERR_LEVEL_UNAVAILABLE);
    under_policy = NULL;
}

TEST(operator_limits_refuse_chosen_values_and_lower_defaults)
{
    static char file[] = "floor.yaml";
    struct operator_limits f = { .file = file,
                                 .has_max = LIMIT_BIT(MEMORY) | LIMIT_BIT(WALL) | LIMIT_BIT(OUTPUT),
                                 .max = { [LIMIT_MEMORY] = 128 * MIB, [LIMIT_WALL] = 5000, [LIMIT_OUTPUT] = 1000 },
                                 .forbidden_grants = GRANT_BIT(DEBUG),
                                 .allowed_workspaces = 1u << POLICY_MEMORY | 1u << POLICY_COPY_ON_WRITE };
    struct policy debug;
    struct run_options r;
    struct err err = { 0 };

    policy_deny(f.deny, 101);
    over_floor = &f;
    assert_int_equal(BUILD(&r, &err, "-t", "--", "true"), 0);
    assert_int_equal(r.limits.v[LIMIT_MEMORY], 128 * MIB);
    assert_int_equal(r.limits.v[LIMIT_WALL], 5000); /* not the default of a terminal, 1 h */
    assert_true(r.output_capped && r.limits.v[LIMIT_OUTPUT] == 1000);
    assert_string_equal(source(&r, LIMIT_MEMORY), "floor.yaml");
    assert_true(policy_denies(r.deny, 101));
    run_options_done(&r);

    assert_int_equal(BUILD(&r, &err, "--memory", "128M", "--", "true"), 0);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--memory", "129M", "--", "true"), -1);
    assert_int_equal(err.id, ERR_POLICY_OPERATOR_LIMIT);
    assert_non_null(strstr(err.msg, "--memory: memoryBytes 129M is more than the 128M"));
    assert_int_equal(BUILD(&r, &err, "-w", "/tmp", "--", "true"), -1);
    assert_int_equal(err.id, ERR_POLICY_OPERATOR_LIMIT);
    assert_int_equal(BUILD(&r, &err, "-w", "/tmp:cow", "--", "true"), 0);
    run_options_done(&r);
    assert_true(policy_builtin("debug", &debug));
    under_policy = &debug;
    assert_int_equal(BUILD(&r, &err, "--", "true"), -1);
    assert_non_null(strstr(err.msg, "forbids the grant 'debug'"));
    under_policy = NULL;
    f.forbidden_drivers = DRIVER_BIT(DRIVER_NATIVE);
    assert_int_equal(BUILD(&r, &err, "--", "true"), 0);
    assert_int_equal(r.driver, DRIVER_BWRAP); /* not chosen: the first that is allowed */
    assert_int_equal(r.driver_source, RUN_OPTION_FROM_OPERATOR_LIMITS);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--driver", "native", "--", "true"), -1);
    assert_int_equal(err.id, ERR_DRIVER_REFUSED);
    assert_string_equal(err.msg, "--driver: floor.yaml does not allow driver native; it allows bwrap");
    f.level = LEVEL_HIGH;
    assert_int_equal(BUILD(&r, &err, "--", "true"), -1);
    assert_non_null(strstr(err.msg, "requires level high"));
    over_floor = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(flags_override_the_policy_and_the_policy_overrides_the_level),
        RUN(contradicting_level_and_policy_are_refused),
        RUN(operator_limits_refuse_chosen_values_and_lower_defaults),
        RUN(options_without_flags_have_the_defaults_of_the_tables),
        RUN(every_flag_sets_its_option),
        RUN(unset_limits_are_derived_from_given_limits),
        RUN(errors_name_the_flag_and_have_the_right_code),
        RUN(a_bare_name_passes_the_value_of_this_process),
        RUN(a_source_with_colons_is_split_at_the_last_one),
        RUN(too_many_binds_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
