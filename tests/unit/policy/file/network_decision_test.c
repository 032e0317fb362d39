/* Decisions about URLs: the rule, the reason and the fix. */
#include "tests/unit/test.h"

#include "policy/file/network_decision.h"

static const struct network_policy policy = {
    NETWORK_EGRESS,
    "deny files.example.org:*\n"
    "allow *.example.org:443\n"
    "allow api.test:80 methods=GET,HEAD path=/v1/*\n"
    "allow preset:pypi\n"
    "allow 1.1.1.0/24:5432\n"
    "allow 10.0.0.0/8:80\n"
    "secret openai api.openai.com:443 header=Authorization format=Bearer%20{} methods=POST",
};

TEST(a_url_is_decided_as_the_proxy_decides_it)
{
    static const struct {
        const char *url, *method;
        bool allowed;
        const char *rule, *reason, *fix; /* parts; NULL: absent */
    } cases[] = {
        { "https://www.example.org/x?y", NULL, true, "allow *.example.org:443", NULL, NULL },
        { "https://WWW.Example.ORG./", NULL, true, "allow *.example.org:443", NULL, NULL },
        { "www.example.org", NULL, true, "allow *.example.org:443", NULL, NULL },
        { "www.example.org:443", NULL, true, "allow *.example.org:443", NULL, NULL },
        { "https://files.example.org/", NULL, false, "deny files.example.org:*", "", "before that rule" },
        { "http://169.254.169.254/latest", NULL, false, NULL, "closed (metadata)", "egress.openRanges" },
        { "http://www.example.org/", NULL, false, NULL, "www.example.org:80", "allow www.example.org" },
        { "https://example.com/", NULL, false, NULL, "example.com:443", "allow example.com:443" },
        { "https://pypi.org/simple/", NULL, true, "allow preset:pypi", NULL, NULL },
        { "http://api.test/v1/images", NULL, true, "allow api.test:80 methods=GET,HEAD path=/v1/*", NULL, NULL },
        { "http://api.test/v1/images", "POST", false, NULL, "", "" },
        { "http://api.test/v2", NULL, false, NULL, "", "" },
        { "http://api.test/v1/../v2", NULL, false, NULL, "", "" },
        { "http://api.test/v1/a%2Fb", NULL, false, "allow api.test:80", "path", "simplest form" },
        { "tcp://1.1.1.9:5432", NULL, true, "allow 1.1.1.0/24:5432", NULL, NULL },
        { "http://10.1.2.3/", NULL, false, "allow 10.0.0.0/8:80", "closed (private)", "egress.openRanges" },
        { "http://openai.secret.cove/v1/chat", "POST", true, "secret openai api.openai.com:443", NULL, NULL },
        { "http://openai.secret.cove/v1/chat", "GET", false, "secret openai", "", "" },
        { "https://openai.secret.cove/v1/chat", NULL, false, "secret openai", "port 80 only",
          "use http://openai.secret.cove/" },
        { "https://api.openai.com/v1/chat", NULL, false, NULL, "api.openai.com:443", "allow api.openai.com:443" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct network_decision d;
        struct err err = { 0 };

        if (network_decide(&policy, NULL, 0, cases[i].url, cases[i].method, &d, &err) < 0)
            fail_msg("%s: %s", cases[i].url, err.msg);
        const char *rule = d.rule.data, *reason = d.reason.data, *fix = d.fix.data;
        if (d.is_allowed != cases[i].allowed || !rule != !cases[i].rule || !reason != !cases[i].reason ||
            !fix != !cases[i].fix || (rule && !strstr(rule, cases[i].rule)) ||
            (reason && !strstr(reason, cases[i].reason)) || (fix && !strstr(fix, cases[i].fix)))
            fail_msg("%s: %s; rule '%s', reason '%s', fix '%s'", cases[i].url, d.is_allowed ? "allowed" : "refused",
                     rule ? rule : "", reason ? reason : "", fix ? fix : "");
        network_decision_done(&d);
    }
}

TEST(an_opened_range_is_not_closed)
{
    struct network_decision d;
    struct ip_prefix open;

    assert_true(ip_prefix_parse("10.1.0.0/16", 11, &open));
    assert_int_equal(network_decide(&policy, &open, 1, "http://10.1.2.3/", NULL, &d, NULL), 0);
    assert_true(d.is_allowed);
    network_decision_done(&d);
    assert_int_equal(network_decide(&policy, &open, 1, "http://10.2.2.3/", NULL, &d, NULL), 0);
    assert_false(d.is_allowed);
    assert_string_equal(d.closed_range, "private");
    network_decision_done(&d);
}

TEST(a_sandbox_without_a_network_says_how_to_get_one)
{
    struct network_policy none = { NETWORK_NONE, NULL };
    struct network_decision d;
    auto_buf out = { 0 };
    struct jsonw w;

    assert_int_equal(network_decide(&none, NULL, 0, "https://pypi.org/", NULL, &d, NULL), 0);
    jsonw_init(&w, &out, 0);
    network_decision_write(&d, "https://pypi.org/", &w);
    assert_string_equal(out.data, "{\"url\":\"https://pypi.org/\",\"host\":\"pypi.org\",\"port\":443,\"allowed\":false,"
                                  "\"reason\":\"the sandbox was created without a network\","
                                  "\"fix\":\"create a sandbox with the rule: allow pypi.org:443\"}");
    network_decision_done(&d);
}

TEST(a_malformed_url_is_refused)
{
    static const char *const urls[] = { "",
                                        "https://",
                                        "ftp://example.org/",
                                        "https://a:b@example.org/",
                                        "http://[::1",
                                        "http://[::1]x/",
                                        "https://example.org:0",
                                        "https://example.org:99999",
                                        "tcp://host",
                                        "http://127.1/",
                                        "http://a b/",
                                        "https://exa_mple..org/" };
    struct network_decision d;

    for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
        struct err err = { 0 };

        if (network_decide(&policy, NULL, 0, urls[i], NULL, &d, &err) == 0)
            fail_msg("'%s' was read", urls[i]);
        assert_memory_equal(err.msg, "url", 3);
        network_decision_done(&d);
    }
    assert_int_equal(network_decide(&policy, NULL, 0, "https://a.example/", "get", &d, NULL), -1);
    network_decision_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_url_is_decided_as_the_proxy_decides_it),
        RUN(an_opened_range_is_not_closed),
        RUN(a_sandbox_without_a_network_says_how_to_get_one),
        RUN(a_malformed_url_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
