#include "tests/unit/test.h"

#include "client/cli/run_options.h"

#include "core/base/str.h"

static struct policy under_policy;
static struct operator_limits over_limits;

static int build(const char *const *words, struct run_options *ret, struct err *err)
{
    struct args a;
    int n = 0;

    while (words[n])
        n++;
    if (args_parse(cli_verb_find("run"), n, (char **)(uintptr_t)words, &a, err) < 0)
        return -1;
    int rc = run_options_build(&a, &under_policy, &over_limits, ret, err);
    args_done(&a);
    return rc;
}
#define BUILD(ret, err, ...) build((const char *const[]){ "run", __VA_ARGS__, "true", NULL }, ret, err)

static int set_up(void **state UNUSED)
{
    assert_true(policy_builtin("standard", &under_policy));
    over_limits = (struct operator_limits){ 0 };
    setenv("COVE_TEST_KEY", "sk-value 1", 1);
    setenv("COVE_TEST_LINES", "a\nb", 1);
    setenv("COVE_TEST_EMPTY", "", 1);
    unsetenv("COVE_TEST_UNSET");
    return 0;
}

static void must_build_rules(const char *const *words, const char *rules)
{
    struct run_options r;
    struct err err = { 0 };

    if (build(words, &r, &err) < 0)
        fail_msg("%s: %s", words[1], err.msg);
    assert_int_equal(r.network.mode, NETWORK_EGRESS);
    assert_string_equal(r.network.rules ? r.network.rules : "", rules);
    run_options_done(&r);
}
#define MUST_BUILD(rules, ...) must_build_rules((const char *const[]){ "run", __VA_ARGS__, "true", NULL }, rules)

TEST(allow_and_deny_keep_their_order)
{
    MUST_BUILD("deny files.example.org:*\nallow *.example.org\ndeny *", "--deny", "files.example.org:*", "--allow",
               "*.Example.org", "--deny=*");
    MUST_BUILD("allow preset:pypi", "--allow", "preset:pypi");
    MUST_BUILD("", "--net", "egress");
}

TEST(a_rule_may_have_methods_and_a_path)
{
    MUST_BUILD("allow api.example.org:80 methods=GET,HEAD path=/v1/*\ndeny b.example:80 path=/x", "--allow",
               "api.example.org:80 path=/v1/* methods=head,GET", "--deny", "b.example:80 path=/x");
}

TEST(an_address_of_a_closed_range_is_allowed_only_if_the_operator_opened_it)
{
    struct run_options r;
    struct err err = { 0 };
    struct ip_prefix open;

    assert_int_equal(BUILD(&r, &err, "--allow", "10.1.2.3:80"), -1);
    assert_int_equal(err.id, ERR_EGRESS_RULE);
    assert_string_equal(err.msg, "--allow: allow 10.1.2.3/32: the address range is closed (private); only the operator "
                                 "can open it, with network.openRanges in /etc/cove/floor.yaml");
    assert_true(ip_prefix_parse("10.1.0.0/16", 11, &open));
    over_limits = (struct operator_limits){ .open_ranges = &open, .nopen_ranges = 1 };
    MUST_BUILD("allow 10.1.2.3:80", "--allow", "10.1.2.3:80");
    assert_int_equal(BUILD(&r, &err, "--allow", "localhost"), -1);
    assert_true(ip_prefix_parse("127.0.0.0/8", 11, &open));
    MUST_BUILD("allow localhost", "--allow", "localhost");
}

TEST(rules_of_flags_come_before_those_of_the_policy)
{
    static char rules[] = "deny a\nallow *\nsecret k b:443 header=X-Key format={}";

    under_policy.network = (struct network_policy){ NETWORK_EGRESS, rules };
    MUST_BUILD("allow a\ndeny a\nallow *\nsecret k b:443 header=X-Key format={}", "--allow", "a", "--secret",
               "k=COVE_TEST_KEY");

    struct run_options r;
    struct err err = { 0 };
    assert_int_equal(BUILD(&r, &err, "--net", "none"), 0);
    assert_int_equal(r.network.mode, NETWORK_NONE);
    assert_null(r.network.rules);
    run_options_done(&r);
    assert_int_equal(BUILD(&r, &err, "--allow", "a"), -1);
    assert_string_equal(err.msg, "secret k: the policy binds it to b, but it has no value; write --secret k=ENVVAR");
}

TEST(EG15_a_secret_is_read_from_the_environment_and_bound_to_one_host)
{
    struct run_options r;
    struct err err = { 0 };

    assert_int_equal(BUILD(&r, &err, "--secret", "OpenAI=COVE_TEST_KEY@API.openai.com", "--secret",
                           "other=COVE_TEST_KEY@b.example:8443,header=x-api-key,format=a,{}", "--allow", "pypi.org"),
                     0);
    assert_string_equal(r.network.rules,
                        "allow pypi.org\nsecret openai api.openai.com:443 header=Authorization "
                        "format=Bearer%20{}\nsecret other b.example:8443 header=X-Api-Key format=a,{}");
    assert_int_equal(r.nsecrets, 2);
    assert_string_equal(r.secrets[0].name, "openai");
    assert_string_equal(r.secrets[0].value, "sk-value 1");
    assert_string_equal(r.secrets[1].name, "other");
    assert_int_equal(r.nenv, 0);
    run_options_done(&r);
    assert_null(r.secrets);
    assert_int_equal(BUILD(&r, &err, "--secret", "k=COVE_TEST_KEY@b.example header=x-key methods=get path=/v1/*"), 0);
    assert_string_equal(r.network.rules, "secret k b.example:443 header=X-Key format={} methods=GET path=/v1/*");
    assert_string_equal(r.secrets[0].value, "sk-value 1");
    run_options_done(&r);
}

TEST(errors_about_the_network_say_what_to_write)
{
    static const struct {
        const char *const words[6];
        enum err_id id;
        const char *says;
    } cases[] = {
        { { "run", "--allow", "https://pypi.org/x", "true" },
          ERR_EGRESS_RULE,
          "--allow: 'https://pypi.org/x' is a URL" },
        { { "run", "--allow", "pypi", "true" }, ERR_EGRESS_RULE, "write --allow preset:pypi" },
        { { "run", "--allow", "a.example,b.example", "true" }, ERR_EGRESS_RULE, "write a rule for each" },
        { { "run", "--allow", "localhost:8080", "true" }, ERR_EGRESS_RULE, "inside it is the sandbox itself" },
        { { "run", "--allow", "a.example:443 methods=GET", "true" }, ERR_EGRESS_RULE, "not visible in HTTPS" },
        { { "run", "--allow", "a.example:80 method=GET", "true" }, ERR_EGRESS_RULE, "method" },
        { { "run", "--allow", "a.example\ndeny b", "true" }, ERR_EGRESS_RULE, "not printable" },
        { { "run", "--driver=bwrap", "--allow", "a", "true" }, ERR_DRIVER_UNSUPPORTED, "driver bwrap has no network" },
        { { "run", "--deny", "a:0", "true" }, ERR_EGRESS_RULE, "--deny: ports '0'" },
        { { "run", "--net", "host", "true" }, ERR_INVALID, "write --allow HOST" },
        { { "run", "--net=none", "--allow", "a", "true" }, ERR_USAGE, "exclude each other" },
        { { "run", "--secret", "k", "true" }, ERR_INVALID, "NAME=ENVVAR@HOST" },
        { { "run", "--secret", "k=COVE_TEST_UNSET@a", "true" }, ERR_INVALID, "COVE_TEST_UNSET is not set" },
        { { "run", "--secret", "k=COVE_TEST_EMPTY@a", "true" }, ERR_INVALID, "COVE_TEST_EMPTY is empty" },
        { { "run", "--secret", "k=COVE_TEST_LINES@a", "true" }, ERR_INVALID, "line feed" },
        { { "run", "--secret", "k=COVE_TEST_KEY@a b", "true" },
          ERR_EGRESS_RULE,
          "header=, format=, methods= and path=" },
        { { "run", "--secret", "k=COVE_TEST_KEY@a path=/x\nsecret l b", "true" }, ERR_EGRESS_RULE, "one line" },
        { { "run", "--secret", "k=COVE_TEST_KEY@*.a", "true" }, ERR_EGRESS_RULE, "secret k" },
        { { "run", "--secret", "k=COVE_TEST_KEY@a,head=x", "true" }, ERR_INVALID, "header= and format=" },
        { { "run", "--secret", "k=COVE_TEST_KEY@a,header=Host", "true" }, ERR_EGRESS_RULE, "header Host" },
        { { "run", "--secret", "k=COVE_TEST_KEY", "true" }, ERR_INVALID, "--secret k=ENVVAR@HOST" },
        { { "run", "--secret", "k=COVE_TEST_KEY,header=x", "true" }, ERR_INVALID, "attributes need a host" },
        { { "run", "--secret=k=COVE_TEST_KEY@a", "--secret=K=COVE_TEST_KEY@b", "true" },
          ERR_EGRESS_RULE,
          "bound twice" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct run_options r;
        struct err err = { 0 };

        if (build(cases[i].words, &r, &err) == 0)
            fail_msg("%s %s was accepted", cases[i].words[1], cases[i].words[2]);
        if (err.id != cases[i].id || !strstr(err.msg, cases[i].says))
            fail_msg("%s %s: %d '%s'", cases[i].words[1], cases[i].words[2], err.id, err.msg);
    }
}

TEST(EG15_a_value_that_is_given_by_mistake_is_not_repeated)
{
    static const char *const words[] = { "k=sk-abc123@a", "k=ghp_Abc123@a", "k=sk-abc123" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        struct run_options r;
        struct err err = { 0 };

        assert_int_equal(BUILD(&r, &err, "--secret", words[i]), -1);
        assert_null(strstr(err.msg, "bc123"));
    }
}

TEST(the_operator_forbids_a_network_or_denies_hosts_before_all_rules)
{
    static char file[] = "floor.yaml", denials[] = "deny *.internal:*";
    struct run_options r;
    struct err err = { 0 };

    over_limits = (struct operator_limits){ .file = file, .network_denials = denials };
    MUST_BUILD("deny *.internal:*\nallow a.internal", "--allow", "a.internal");
    assert_int_equal(BUILD(&r, &err, "--secret", "k=COVE_TEST_KEY@a.internal"), -1);
    assert_string_equal(err.msg, "--secret: secret k: floor.yaml denies the host a.internal");

    over_limits.forbids_network = true;
    assert_int_equal(BUILD(&r, &err, "--allow", "a"), -1);
    assert_int_equal(err.id, ERR_POLICY_OPERATOR_LIMIT);
    assert_string_equal(err.msg, "--allow: floor.yaml forbids a network");
    assert_int_equal(BUILD(&r, &err, "--net", "none"), 0);
    run_options_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(allow_and_deny_keep_their_order, set_up),
        cmocka_unit_test_setup(a_rule_may_have_methods_and_a_path, set_up),
        cmocka_unit_test_setup(an_address_of_a_closed_range_is_allowed_only_if_the_operator_opened_it, set_up),
        cmocka_unit_test_setup(rules_of_flags_come_before_those_of_the_policy, set_up),
        cmocka_unit_test_setup(EG15_a_secret_is_read_from_the_environment_and_bound_to_one_host, set_up),
        cmocka_unit_test_setup(errors_about_the_network_say_what_to_write, set_up),
        cmocka_unit_test_setup(EG15_a_value_that_is_given_by_mistake_is_not_repeated, set_up),
        cmocka_unit_test_setup(the_operator_forbids_a_network_or_denies_hosts_before_all_rules, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
