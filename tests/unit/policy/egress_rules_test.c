#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/egress_rules.h"

static struct egress_rules *rules_of(const char *text)
{
    struct egress_rules *r = NULL;
    struct err err = { 0 };

    if (egress_rules_parse(text, strlen(text), &r, &err) < 0)
        fail_msg("%s: %s", text, err.msg);
    return r;
}

/* "example.org:443", "192.0.2.1:443", "[2001:db8::1]:443" */
static struct egress_target target_of(const char *text)
{
    static char host[HOSTNAME_MAX + 1];
    struct egress_target t = { .host = "" };
    const char *colon = strrchr(text, ':');
    bool six = text[0] == '[';

    t.port = (uint16_t)atoi(colon + 1);
    size_t n = (size_t)(colon - text);
    if (!ip_address_parse(text + six, n - 2 * six, &t.address)) {
        memcpy(host, text, n);
        host[n] = '\0';
        t.host = host;
    }
    return t;
}

static char verdict(const struct egress_rules *r, const char *target, const char *method, const char *path)
{
    struct egress_target t = target_of(target);

    return "-+?"[egress_rules_decide(r, &t, method, path).verdict];
}

TEST(each_rule_has_one_canonical_text)
{
    static const struct {
        const char *text, *canonical; /* NULL: refused */
    } cases[] = {
        { "allow pypi.org", "allow pypi.org" },
        { "  ALLOW\tPyPI.org.  ", "allow pypi.org" },
        { "allow *.example.org:443", "allow *.example.org:443" },
        { "deny files.example.org:*", "deny files.example.org:*" },
        { "deny *", "deny *" },
        { "allow a.example:443,80", "allow a.example" },
        { "allow a.example:80,80,443-443", "allow a.example" },
        { "allow a.example:8001-8100,8000,443", "allow a.example:443,8000-8100" },
        { "allow a.example:1-65535", "allow a.example:*" },
        { "allow a.example:65535,1-65534", "allow a.example:*" },
        { "allow api.example.org:80 path=/v1/images methods=head,GET",
          "allow api.example.org:80 methods=GET,HEAD path=/v1/images" },
        { "allow a.example:8080 path=/v1/*", "allow a.example:8080 path=/v1/*" },
        { "allow a.example:8080 path=/a%20b%25", "allow a.example:8080 path=/a%20b%25" },
        { "allow a.example:8080 path=/%41", "allow a.example:8080 path=/A" },
        { "allow a.example:8080 path=/caf%c3%a9%3Fx/...", "allow a.example:8080 path=/caf%C3%A9%3Fx/..." },
        { "allow 192.0.2.0/24:5432", "allow 192.0.2.0/24:5432" },
        { "allow 192.0.2.1/32", "allow 192.0.2.1" },
        { "allow [2001:DB8::/32]:443", "allow [2001:db8::/32]:443" },
        { "allow [2001:db8::1]", "allow [2001:db8::1]" },
        { "allow preset:pypi", "allow preset:pypi" },
        { "allow Preset:PyPI", "allow preset:pypi" },
        { "allow preset:443", "allow preset:443" }, /* a host of this name */
        { "allow preset:*", "allow preset:*" },
        { "deny preset:github\nallow preset:github", "deny preset:github\nallow preset:github" },
        { "secret openai api.openai.com", "secret openai api.openai.com:443 header=Authorization format=Bearer%20{}" },
        { "secret OpenAI API.openai.com:8443 format={} header=x-api-KEY",
          "secret openai api.openai.com:8443 header=X-Api-Key format={}" },
        { "secret k a.example header=X-Key", "secret k a.example:443 header=X-Key format={}" },
        { "secret k a.example path=/v1/* methods=POST",
          "secret k a.example:443 header=Authorization format=Bearer%20{} methods=POST path=/v1/*" },
        { "secret k a.example\nallow b.example\n\n", "allow b.example\nsecret k a.example:443 header=Authorization "
                                                     "format=Bearer%20{}" },
        { "", "" },
        { "\n \n", "" },

        { "pypi.org", NULL },
        { "allow", NULL },
        { "permit pypi.org", NULL },
        { "allow pypi.org extra", NULL },
        { "allow pypi.org:0", NULL },
        { "allow pypi.org:65536", NULL },
        { "allow pypi.org:99999999999999999999", NULL },
        { "allow pypi.org:080", NULL },
        { "allow pypi.org:", NULL },
        { "allow pypi.org:80,", NULL },
        { "allow pypi.org:90-80", NULL },
        { "allow pypi.org:80-", NULL },
        { "allow pypi.org:*,80", NULL },
        { "allow pypi.org:1,3,5,7,9,11,13,15,17", NULL },
        { "allow :443", NULL },
        { "allow https://pypi.org", NULL },
        { "allow pypi.org/simple", NULL },
        { "allow user@pypi.org", NULL },
        { "allow ex*mple.org", NULL },
        { "allow 10.0.0.1/8", NULL },
        { "allow 127.1", NULL },
        { "allow 0x7f000001", NULL },
        { "allow 2130706433:80", NULL },
        { "allow ::1", NULL },
        { "allow 2001:db8::/32", NULL },
        { "allow [::1", NULL },
        { "allow [::1]443", NULL },
        { "allow [127.0.0.1]:80", NULL },
        { "allow [::1%lo]:80", NULL },
        { "allow preset:nothing", NULL },
        { "allow preset:", NULL },
        { "allow preset:pypi methods=GET", NULL },
        { "allow a.example methods=GET", NULL }, /* 443 is among the default ports */
        { "allow a.example:* path=/x", NULL },
        { "allow a.example:400-500 path=/x", NULL },
        { "allow a.example:80 methods=", NULL },
        { "allow a.example:80 methods=GET,", NULL },
        { "allow a.example:80 methods=CONNECT", NULL },
        { "allow a.example:80 methods=GET methods=POST", NULL },
        { "allow a.example:80 path=", NULL },
        { "allow a.example:80 path=v1", NULL },
        { "allow a.example:80 path=/v1/../x", NULL },
        { "allow a.example:80 path=/v1/%2e%2e/x", NULL },
        { "allow a.example:80 path=/v1//x", NULL },
        { "allow a.example:80 path=/*/x", NULL },
        { "allow a.example:80 path=/x%2A", NULL },
        { "allow a.example:80 path=/x?y=1", NULL },
        { "allow a.example:80 path=/x#y", NULL },
        { "allow a.example:80 path=/x/.", NULL },
        { "allow a.example:80 path=/x/..", NULL },
        { "allow a.example:80 path=/x%2fy", NULL },
        { "allow a.example:80 path=/x%5cy", NULL },
        { "allow a.example:80 path=/x\\y", NULL },
        { "allow a.example:80 path=/x%00", NULL },
        { "allow a.example:80 path=/x%0a", NULL },
        { "allow a.example:80 path=/x%", NULL },
        { "allow a.example:80 path=/x%4", NULL },
        { "allow a.example:80 path=/x%4g", NULL },
        { "allow x.secret.cove", NULL },
        { "allow *.secret.cove:80", NULL },
        { "allow a.example\x01", NULL },
        { "secret", NULL },
        { "secret openai", NULL },
        { "secret open.ai a.example", NULL },
        { "secret -a a.example", NULL },
        { "secret k *.example", NULL },
        { "secret k 192.0.2.1", NULL },
        { "secret k a.example:*", NULL },
        { "secret k a.example:443,444", NULL },
        { "secret k x.secret.cove", NULL },
        { "secret k a.example header=Host", NULL },
        { "secret k a.example header=proxy-authorization", NULL },
        { "secret k a.example header=a:b", NULL },
        { "secret k a.example format=Bearer", NULL },
        { "secret k a.example format={}{}", NULL },
        { "secret k a.example format=%20{}", NULL },
        { "secret k a.example format=%0a{}", NULL },
        { "secret k a.example\nsecret K b.example", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = NULL;
        auto_(egress_rules) again = NULL;
        auto_buf text = { 0 }, text_again = { 0 };
        struct err err = { 0 };
        int rc = egress_rules_parse(cases[i].text, strlen(cases[i].text), &r, &err);

        if ((rc == 0) != (cases[i].canonical != NULL))
            fail_msg("'%s': %d %s", cases[i].text, rc, err.msg);
        if (rc < 0) {
            assert_int_equal(err.id, ERR_EGRESS_RULE);
            assert_true(str_starts(err.msg, "rule "));
            continue;
        }
        egress_rules_write(r, &text);
        assert_string_equal(text.data ? text.data : "", cases[i].canonical);
        again = rules_of(cases[i].canonical);
        egress_rules_write(again, &text_again);
        assert_string_equal(text_again.data ? text_again.data : "", cases[i].canonical);
    }
}

TEST(errors_name_the_line_and_the_fix)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "allow a.example\nallow https://pypi.org/simple",
          "rule 2: 'https://pypi.org/simple' is a URL; give only 'pypi.org'" },
        { "allow pypi.org/simple", "give only 'pypi.org'" },
        { "allow 2001:db8::1", "[2001:db8::1]:443" },
        { "allow api.example.org methods=GET", "api.example.org:80" },
        { "allow preset:pip", "pypi, npm, github" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct egress_rules *r = NULL;
        struct err err = { 0 };

        assert_int_equal(egress_rules_parse(cases[i].text, strlen(cases[i].text), &r, &err), -1);
        if (!strstr(err.msg, cases[i].part))
            fail_msg("%s: %s", cases[i].text, err.msg);
    }
}

TEST(the_first_rule_that_matches_decides)
{
    static const struct {
        const char *rules, *target;
        char verdict;
    } cases[] = {
        { "", "example.org:443", '-' },
        { "allow example.org", "example.org:443", '+' },
        { "allow example.org", "example.org:80", '+' },
        { "allow example.org", "example.org:8080", '-' },
        { "allow example.org", "a.example.org:443", '-' },
        { "allow example.org:8000-8100", "example.org:8050", '+' },
        { "allow example.org:8000-8100", "example.org:443", '-' },
        { "allow example.org:*", "example.org:22", '+' },
        { "allow *.example.org", "example.org:443", '-' },
        { "allow *.example.org", "evilexample.org:443", '-' },
        { "allow *.example.org", "a.b.example.org:443", '+' },
        { "deny files.example.org:*\nallow *.example.org:*", "files.example.org:22", '-' },
        { "deny files.example.org:*\nallow *.example.org:*", "a.example.org:22", '+' },
        { "allow *.example.org:*\ndeny files.example.org:*", "files.example.org:22", '+' },
        { "deny files.example.org\nallow *:*", "files.example.org:443", '-' },
        { "deny files.example.org\nallow *:*", "files.example.org:22", '+' },
        { "allow *", "anything:443", '+' },
        { "allow *:*", "192.0.2.1:443", '-' }, /* a pattern is for names */
        { "allow 192.0.2.0/24", "192.0.2.1:443", '+' },
        { "allow 192.0.2.0/24", "192.0.3.1:443", '-' },
        { "allow 192.0.2.0/24", "[::ffff:192.0.2.1]:443", '-' },
        { "allow 0.0.0.0/0:*", "example.org:443", '-' }, /* a prefix is for addresses */
        { "deny 192.0.2.7\nallow 192.0.2.0/24", "192.0.2.7:443", '-' },
        { "allow [2001:db8::/32]:443", "[2001:db8::1]:443", '+' },
        { "allow [2001:db8::/32]:443", "[2001:db9::1]:443", '-' },
        { "allow preset:pypi", "files.pythonhosted.org:443", '+' },
        { "allow preset:pypi", "pypi.org:80", '-' },
        { "allow preset:pypi", "registry.npmjs.org:443", '-' },
        { "allow *:*", "openai.secret.cove:80", '-' },
        { "secret openai api.openai.com", "openai.secret.cove:80", '+' },
        { "secret openai api.openai.com", "openai.secret.cove:443", '-' },
        { "secret openai api.openai.com", "a.openai.secret.cove:80", '-' },
        { "allow *.cove", "secret.cove:80", '-' },
        { "secret openai api.openai.com", "api.openai.com:443", '-' },
        { "secret openai api.openai.com path=/v1/*", "openai.secret.cove:80", '?' },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = rules_of(cases[i].rules);
        char found = verdict(r, cases[i].target, NULL, NULL);

        if (found != cases[i].verdict)
            fail_msg("'%s', %s: %c", cases[i].rules, cases[i].target, found);
    }
}

TEST(a_request_is_needed_only_if_it_can_change_the_verdict)
{
    static const struct {
        const char *rules, *target;
        char verdict;
    } cases[] = {
        { "allow a.example:80 methods=GET", "a.example:80", '?' },
        { "allow a.example:80 methods=GET", "a.example:81", '-' },
        { "allow a.example:80 methods=GET\nallow a.example:80", "a.example:80", '+' },
        { "allow a.example:80 methods=GET\ndeny a.example:80", "a.example:80", '?' },
        { "deny a.example:80 path=/admin/*", "a.example:80", '-' },
        { "deny a.example:80 path=/admin/*\nallow a.example", "a.example:80", '?' },
        { "deny a.example:80 path=/admin/*\nallow a.example", "a.example:443", '+' },
        { "deny a.example\nallow a.example:80 methods=GET", "a.example:80", '-' },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = rules_of(cases[i].rules);
        char found = verdict(r, cases[i].target, NULL, NULL);

        if (found != cases[i].verdict)
            fail_msg("'%s', %s: %c", cases[i].rules, cases[i].target, found);
    }
}

TEST(EG11_methods_and_paths_narrow_a_rule)
{
    static const struct {
        const char *rules, *method, *path;
        char verdict;
    } cases[] = {
        { "allow a.example:80 methods=GET,HEAD", "GET", "/", '+' },
        { "allow a.example:80 methods=GET,HEAD", "POST", "/", '-' },
        { "allow a.example:80 methods=GET", "PROPFIND", "/", '-' },
        { "allow a.example:80", "PROPFIND", "/", '+' },
        { "deny a.example:80 methods=POST\nallow a.example:80", "post", "/", '-' },
        { "allow a.example:80 path=/v1", "GET", "/v1", '+' },
        { "allow a.example:80 path=/v1", "GET", "/v1/", '-' },
        { "allow a.example:80 path=/v1", "GET", "/v10", '-' },
        { "allow a.example:80 path=/v1/*", "GET", "/v1/images", '+' },
        { "allow a.example:80 path=/v1/*", "GET", "/v1/", '+' },
        { "allow a.example:80 path=/v1/*", "GET", "/v1", '-' },
        { "allow a.example:80 path=/v1/*", "GET", "/v2/v1/", '-' },
        { "allow a.example:80 path=/*", "GET", "/", '+' },
        { "allow a.example:80 path=/a%20b", "GET", "/a b", '+' },
        { "deny a.example:80 path=/admin*\nallow a.example:80", "GET", "/admin/x", '-' },
        { "deny a.example:80 path=/admin*\nallow a.example:80", "GET", "/Admin", '+' },
        { "allow a.example:80 methods=GET path=/a\nallow a.example:80 methods=POST path=/b", "POST", "/a", '-' },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = rules_of(cases[i].rules);
        char found = verdict(r, "a.example:80", cases[i].method, cases[i].path);

        if (found != cases[i].verdict)
            fail_msg("'%s', %s %s: %c", cases[i].rules, cases[i].method, cases[i].path, found);
    }
    auto_(egress_rules) r = rules_of("secret k a.example methods=POST path=/v1/*");
    assert_int_equal(verdict(r, "k.secret.cove:80", "POST", "/v1/x"), '+');
    assert_int_equal(verdict(r, "k.secret.cove:80", "GET", "/v1/x"), '-');
}

TEST(EG04_a_name_resolves_only_if_some_port_of_it_is_allowed)
{
    static const struct {
        const char *rules, *host;
        bool resolves;
    } cases[] = {
        { "", "example.org", false },
        { "allow example.org:22", "example.org", true },
        { "allow *.example.org", "example.org", false },
        { "allow *.example.org", "a.example.org", true },
        { "deny example.org:*\nallow *", "example.org", false },
        { "deny example.org\nallow example.org", "example.org", false },
        { "deny example.org\nallow example.org:*", "example.org", true },
        { "deny example.org:80\ndeny *:443\nallow example.org", "example.org", false },
        { "deny example.org:1-1000\ndeny example.org:1001-65535\nallow *:*", "example.org", false },
        { "deny example.org:1-1000\ndeny example.org:1002-65535\nallow *:*", "example.org", true },
        { "deny example.org:1-63\ndeny example.org:65-65535\nallow *:*", "example.org", true },
        { "deny example.org:1-64\ndeny example.org:66-127,128-65535\nallow *:65", "example.org", true },
        { "deny example.org:1-64\ndeny example.org:65-127,128-65535\nallow *:65", "example.org", false },
        { "deny example.org:1-65534\nallow *:65535", "example.org", true },
        { "deny example.org:65535\nallow *:65535", "example.org", false },
        { "deny example.org:80 path=/x\nallow example.org:80", "example.org", true },
        { "allow example.org:80 methods=GET", "example.org", true },
        { "allow 0.0.0.0/0:*", "example.org", false },
        { "secret k example.org", "example.org", false },
        { "secret k example.org", "k.secret.cove", true },
        { "secret k example.org\nallow *", "kk.secret.cove", false },
        { "allow *.cove", "secret.cove", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = rules_of(cases[i].rules);

        if (egress_rules_may_resolve(r, cases[i].host) != cases[i].resolves)
            fail_msg("'%s', %s", cases[i].rules, cases[i].host);
    }
}

TEST(a_denied_prefix_holds_for_the_address_of_an_allowed_name)
{
    auto_(egress_rules) r = rules_of("deny 192.0.2.0/24:443\nallow *.example.org\ndeny 198.51.100.0/24");
    struct egress_target in = target_of("192.0.2.9:443"), after = target_of("198.51.100.1:443");
    struct egress_target t = target_of("a.example.org:443");

    assert_int_equal(egress_rules_deny_of_address(r, &t, &in.address), 0);
    assert_int_equal(egress_rules_deny_of_address(r, &t, &after.address), -1);
    t.port = 80;
    assert_int_equal(egress_rules_deny_of_address(r, &t, &in.address), -1);
    t = target_of("api.test:443"); /* of a secret: no rule allows it */
    assert_int_equal(egress_rules_deny_of_address(r, &t, &after.address), 2);
}

TEST(an_explanation_has_a_rule_that_would_allow_the_target)
{
    static const struct {
        const char *rules, *target, *reason, *fix;
    } cases[] = {
        { "", "example.org:443", "no rule allows example.org:443", "allow example.org:443" },
        { "allow *.example.org", "example.org:443",
          "no rule allows example.org:443 (*.example.org does not include it)", "allow example.org:443" },
        { "allow example.org", "example.org:22", "no rule allows example.org:22, only other ports",
          "allow example.org:22" },
        { "deny *.example.org:*\nallow *", "a.example.org:443", "denied by a rule: deny *.example.org:*",
          "allow a.example.org:443 before that rule" },
        { "", "1.1.1.1:80", "no rule allows 1.1.1.1:80", "allow 1.1.1.1:80" },
        { "", "192.0.2.1:80", "no rule allows 192.0.2.1:80",
          "allow 192.0.2.1:80, if the operator opened its range (documentation)" },
        { "", "[2001:db8::1]:443", "no rule allows [2001:db8::1]:443",
          "allow [2001:db8::1]:443, if the operator opened its range (documentation)" },
        { "", "k.secret.cove:80", "no secret is bound to the name k", "secret k HOST" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(egress_rules) r = rules_of(cases[i].rules);
        auto_(egress_rules) fixed = NULL;
        struct egress_target t = target_of(cases[i].target);
        auto_buf reason = { 0 }, fix = { 0 }, text = { 0 };

        egress_rules_explain(r, &t, egress_rules_decide(r, &t, NULL, NULL), &reason, &fix);
        assert_string_equal(reason.data, cases[i].reason);
        assert_string_equal(fix.data, cases[i].fix);
        if (strstr(fix.data, "HOST"))
            continue;
        size_t rule = strlen("allow ") + strcspn(fix.data + strlen("allow "), " ,");
        buf_addf(&text, "%.*s\n%s", (int)rule, fix.data, cases[i].rules);
        fixed = rules_of(text.data);
        assert_int_equal(verdict(fixed, cases[i].target, NULL, NULL), '+');
    }
    auto_(egress_rules) r = rules_of("allow a.example:80 methods=GET");
    struct egress_target t = target_of("a.example:80");
    auto_buf reason = { 0 }, fix = { 0 };
    egress_rules_explain(r, &t, egress_rules_decide(r, &t, "POST", "/"), &reason, &fix);
    assert_string_equal(reason.data, "no rule allows this method and path on a.example:80");
}

TEST(lines_are_made_from_fields)
{
    static const char *const methods[] = { "post", "GET", NULL };
    auto_buf text = { 0 };
    struct err err = { 0 };

    assert_int_equal(egress_rules_add_line(&text, EGRESS_ALLOW, "PyPI.org", NULL, NULL, &err), 0);
    assert_int_equal(egress_rules_add_line(&text, EGRESS_DENY, "*:*", NULL, NULL, &err), 0);
    assert_int_equal(egress_rules_add_line(&text, EGRESS_ALLOW, "a.example:80", methods, "/a b/*", &err), 0);
    assert_int_equal(
        egress_rules_add_secret(
            &text, &(struct egress_secret_fields){ .name = "k", .host = "a.example", .header = "x-key" }, &err),
        0);
    assert_string_equal(text.data, "allow pypi.org\ndeny *:*\nallow a.example:80 methods=GET,POST path=/a%20b/*\n"
                                   "secret k a.example:443 header=X-Key format={}");
    auto_(egress_rules) r = rules_of(text.data);
    assert_int_equal(r->nrules, 3);

    static const char *const bad[] = { "a b", "a\nallow *",
                                       ("b\xc3\xbc"
                                        "cher.example"),
                                       "a methods=GET", "" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (egress_rules_add_line(&text, EGRESS_ALLOW, bad[i], NULL, NULL, &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
    static const char *const bad_methods[] = { "GET\nallow *", NULL };
    assert_int_equal(egress_rules_add_line(&text, EGRESS_ALLOW, "a.example:80", bad_methods, NULL, &err), -1);
    assert_int_equal(egress_rules_add_line(&text, EGRESS_ALLOW, "a.example:80", NULL, "/a\n", &err), -1);
    assert_int_equal(
        egress_rules_add_secret(
            &text, &(struct egress_secret_fields){ .name = "k", .host = "a.example", .format = "{}\n" }, &err),
        -1);
    auto_(egress_rules) same = rules_of(text.data);
    assert_int_equal(same->nrules, 3);
}

TEST(the_number_of_rules_counts_the_hosts_of_presets)
{
    auto_buf text = { 0 };
    struct egress_rules *r = NULL;
    struct err err = { 0 };

    for (int i = 0; i < EGRESS_RULES_MAX; i++)
        buf_addf(&text, "allow a%d.example\n", i);
    egress_rules_free(rules_of(text.data));
    buf_adds(&text, "allow preset:npm");
    assert_int_equal(egress_rules_parse(text.data, text.len, &r, &err), -1);
    assert_non_null(strstr(err.msg, "more than 256 rules"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(each_rule_has_one_canonical_text),
        RUN(errors_name_the_line_and_the_fix),
        RUN(the_first_rule_that_matches_decides),
        RUN(a_request_is_needed_only_if_it_can_change_the_verdict),
        RUN(EG11_methods_and_paths_narrow_a_rule),
        RUN(EG04_a_name_resolves_only_if_some_port_of_it_is_allowed),
        RUN(a_denied_prefix_holds_for_the_address_of_an_allowed_name),
        RUN(an_explanation_has_a_rule_that_would_allow_the_target),
        RUN(lines_are_made_from_fields),
        RUN(the_number_of_rules_counts_the_hosts_of_presets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
