#include "tests/unit/test.h"

#include "client/cli/args.h"
#include "core/base/suggest.h"

#include "core/base/str.h"

static int parse(const char *verb, const char *const *words, struct args *ret, struct err *err)
{
    int n = 0;

    while (words[n])
        n++;
    return args_parse(cli_verb_find(verb), n, (char **)(uintptr_t)words, ret, err);
}
#define PARSE(verb, ret, err, ...) parse(verb, (const char *const[]){ verb, __VA_ARGS__, NULL }, ret, err)

TEST(flags_take_their_value_joined_or_apart_and_letters_may_cluster)
{
    struct args a;
    struct err err = { 0 };

    assert_int_equal(
        PARSE("run", &a, &err, "--memory=64M", "--pids", "9", "-it", "-e", "A=1", "-cprint(1)", "x", "--json"), 0);
    assert_int_equal(a.n, 6);
    assert_string_equal(args_find(&a, OPT_LIMIT + LIMIT_MEMORY)->value, "64M");
    assert_string_equal(args_find(&a, OPT_LIMIT + LIMIT_PIDS)->value, "9");
    assert_non_null(args_find(&a, OPT_STDIN));
    assert_non_null(args_find(&a, OPT_TTY));
    assert_string_equal(args_find(&a, OPT_ENV)->value, "A=1");
    assert_string_equal(args_find(&a, OPT_CODE)->value, "print(1)");
    assert_null(args_find(&a, OPT_JSON)); /* after the program, so it belongs to the program */
    assert_int_equal(a.nrest, 2);
    assert_string_equal(a.rest[0], "x");
    assert_false(a.after_dashes);
    args_done(&a);
}

TEST(two_dashes_end_the_flags_and_a_single_dash_is_an_argument)
{
    struct args a;
    struct err err = { 0 };

    assert_int_equal(PARSE("run", &a, &err, "-q", "--", "-t", "--", "x"), 0);
    assert_true(a.after_dashes);
    assert_int_equal(a.nrest, 3);
    assert_string_equal(a.rest[0], "-t");
    args_done(&a);
    assert_int_equal(PARSE("run", &a, &err, "--runtime", "node", "-", "-t"), 0);
    assert_false(a.after_dashes);
    assert_string_equal(a.rest[0], "-");
    assert_null(args_find(&a, OPT_TTY));
    args_done(&a);
}

TEST(flags_are_accepted_between_arguments_until_a_program_begins)
{
    struct args a;
    struct err err = { 0 };

    assert_int_equal(PARSE("sandbox", &a, &err, "sbx", "--json", "sby", "-q", "--", "--url"), 0);
    assert_int_equal(a.nrest, 3);
    assert_string_equal(a.rest[0], "sbx");
    assert_string_equal(a.rest[1], "sby");
    assert_string_equal(a.rest[2], "--url");
    assert_null(a.rest[3]);
    assert_non_null(args_find(&a, OPT_JSON));
    assert_non_null(args_find(&a, OPT_QUIET));
    args_done(&a);
    assert_int_equal(PARSE("exec", &a, &err, "-q", "sbx", "--timeout", "1s", "ls", "--json"), 0);
    assert_int_equal(a.nrest, 3); /* flags after the program belong to it */
    assert_string_equal(a.rest[1], "ls");
    assert_string_equal(args_find(&a, OPT_LIMIT + LIMIT_WALL)->value, "1s");
    assert_null(args_find(&a, OPT_JSON));
    args_done(&a);
    assert_int_equal(PARSE("shell", &a, &err, "sbx", "--", "-l"), 0);
    assert_int_equal(a.nrest, 2);
    assert_string_equal(a.rest[1], "-l");
    args_done(&a);
}

TEST(the_last_of_two_equal_flags_wins)
{
    struct args a;
    struct err err = { 0 };

    assert_int_equal(PARSE("run", &a, &err, "--cwd", "/a", "--cwd=/b"), 0);
    assert_string_equal(args_find(&a, OPT_CWD)->value, "/b");
    args_done(&a);
}

TEST(an_optional_value_is_taken_only_after_an_equals_sign)
{
    struct args a;
    struct err err = { 0 };

    assert_int_equal(PARSE("run", &a, &err, "--receipt", "prog"), 0);
    assert_null(args_find(&a, OPT_RECEIPT)->value);
    assert_int_equal(a.nrest, 1);
    args_done(&a);
    assert_int_equal(PARSE("run", &a, &err, "--receipt=f", "prog"), 0);
    assert_string_equal(args_find(&a, OPT_RECEIPT)->value, "f");
    args_done(&a);
}

TEST(names_and_letters_of_similar_tools_are_accepted)
{
    static const struct {
        const char *const words[4];
        int id;
        const char *value;
    } cases[] = {
        { { "run", "-m", "1g" }, OPT_LIMIT + LIMIT_MEMORY, "1g" },
        { { "run", "--mem=1g" }, OPT_LIMIT + LIMIT_MEMORY, "1g" },
        { { "run", "--language", "js" }, OPT_RUNTIME, "js" },
        { { "execute", "--language=js" }, OPT_RUNTIME, "js" },
        { { "run", "-v", "/a:/b:ro" }, OPT_VOLUME, "/a:/b:ro" },
        { { "run", "--network", "none" }, OPT_NET, "none" },
        { { "run", "--interactive" }, OPT_STDIN, NULL },
        { { "exec", "--detach", "sbq7" }, OPT_BACKGROUND, NULL },
        { { "sandbox", "-m", "a=b" }, OPT_METADATA, "a=b" }, /* a letter of its own comes first */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = { 0 };
        struct args a;
        int argc = 0;

        while (argc < 4 && cases[i].words[argc])
            argc++;
        assert_int_equal(
            args_parse(cli_verb_find(cases[i].words[0]), argc, (char **)(uintptr_t)cases[i].words, &a, &err), 0);
        const struct arg *found = args_find(&a, cases[i].id);
        assert_non_null(found);
        if (cases[i].value)
            assert_string_equal(found->value, cases[i].value);
        args_done(&a);
    }
}

TEST(a_flag_that_states_the_default_is_accepted)
{
    struct err err = { 0 };
    struct args a;

    assert_int_equal(PARSE("run", &a, &err, "--rm", "--", "true"), 0);
    assert_int_equal(a.n, 0);
    assert_int_equal(a.nrest, 1);
    args_done(&a);
}

TEST(usage_errors_suggest_the_nearest_flag)
{
    static const struct {
        const char *const words[4];
        const char *says;
    } cases[] = {
        { { "run", "--memroy=1" }, "did you mean '--memory'?" },
        { { "run", "--time-out=1s" }, "did you mean '--timeout'?" },
        { { "run", "--publish=80" }, "no connections from outside" },
        { { "run", "-p", "80:80" }, "no connections from outside" },
        { { "run", "--allow-net=pypi.org" }, "write --allow HOST" },
        { { "run", "--alow", "pypi.org" }, "did you mean '--allow'?" },
        { { "run", "-d", "true" }, "'cove exec -d' leave one running" },
        { { "run", "--detach" }, "'cove exec -d' leave one running" },
        { { "token", "--port", "8000" }, "no ports to reach" },
        { { "run", "--gpus", "all" }, "no devices" },
        { { "run", "--env-file", "x" }, "-e NAME=VALUE" },
        { { "run", "--read-only" }, "always read-only" },
        { { "run", "--name", "x" }, "'cove sandbox create --name NAME'" },
        { { "exec", "-m", "1g" }, "'cove sandbox create --memory SIZE'" },
        { { "sandbox", "-v", "/a:/b" }, "'cove cp FILE SANDBOX:'" },
        { { "run", "--zzzzzzzz" }, "'cove run' has no flag '--zzzzzzzz'" },
        { { "run", "--memory" }, "needs a value: --memory SIZE" },
        { { "run", "-c" }, "needs a value: -c CODE" },
        { { "run", "--allow", "--", "true" }, "needs a value: --allow TARGET" },
        { { "run", "--tty=yes" }, "takes no value" },
        { { "run", "-tz" }, "'cove run' has no flag '-z'" },
        { { "run", "-\x01" }, "unknown flag" },
        { { "run", "--=x" }, "has no flag '--'" },
        { { "ls", "--tty" }, "'cove ls' has no flag '--tty'" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct args a;
        struct err err = { 0 };

        assert_int_equal(parse(cases[i].words[0], cases[i].words, &a, &err), -1);
        assert_int_equal(err.id, ERR_USAGE);
        if (!strstr(err.msg, cases[i].says))
            fail_msg("%s: '%s'", cases[i].words[1], err.msg);
    }
}

TEST(a_long_unknown_flag_is_truncated_in_its_message)
{
    char word[5000] = "--";
    struct args a;
    struct err err = { 0 };

    memset(word + 2, 'a', sizeof(word) - 3);
    assert_int_equal(PARSE("run", &a, &err, word), -1);
    assert_true(strlen(err.msg) < 120);
}

TEST(args_has_flag_finds_flags_of_a_bad_line_but_not_of_the_program)
{
    char *bad[] = { (char *)(uintptr_t) "cove", (char *)(uintptr_t) "run", (char *)(uintptr_t) "--nope",
                    (char *)(uintptr_t) "--json", NULL };
    char *program[] = { (char *)(uintptr_t) "cove", (char *)(uintptr_t) "run", (char *)(uintptr_t) "--",
                        (char *)(uintptr_t) "--json", NULL };

    assert_true(args_has_flag(4, bad, "--json"));
    assert_false(args_has_flag(4, program, "--json"));
}

TEST(distance_counts_single_edits_and_swaps)
{
    static const struct {
        const char *a, *b;
        unsigned n;
    } cases[] = {
        { "", "", 0 },
        { "abc", "abc", 0 },
        { "memroy", "memory", 1 },
        { "run", "rnu", 1 },
        { "timeout", "timout", 1 },
        { "abc", "", 3 },
        { "kitten", "sitting", 3 },
        { "ca", "abc", 3 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(suggest_distance(cases[i].a, cases[i].b), cases[i].n);
        assert_int_equal(suggest_distance(cases[i].b, cases[i].a), cases[i].n);
    }
    assert_true(suggest_distance("a", "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz") > 1000);
}

TEST(no_suggestion_for_a_word_that_is_far_from_all)
{
    struct suggest s;

    suggest_init(&s, "ls");
    suggest_offer(&s, "run");
    suggest_offer(&s, "rm");
    assert_null(s.best);
    suggest_init(&s, "she");
    suggest_offer(&s, "shell");
    assert_string_equal(s.best, "shell");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(flags_take_their_value_joined_or_apart_and_letters_may_cluster),
        RUN(two_dashes_end_the_flags_and_a_single_dash_is_an_argument),
        RUN(flags_are_accepted_between_arguments_until_a_program_begins),
        RUN(the_last_of_two_equal_flags_wins),
        RUN(an_optional_value_is_taken_only_after_an_equals_sign),
        RUN(names_and_letters_of_similar_tools_are_accepted),
        RUN(a_flag_that_states_the_default_is_accepted),
        RUN(usage_errors_suggest_the_nearest_flag),
        RUN(a_long_unknown_flag_is_truncated_in_its_message),
        RUN(args_has_flag_finds_flags_of_a_bad_line_but_not_of_the_program),
        RUN(distance_counts_single_edits_and_swaps),
        RUN(no_suggestion_for_a_word_that_is_far_from_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
