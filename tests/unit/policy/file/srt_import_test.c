#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/file/policy_file.h"
#include "policy/file/srt_import.h"

static struct problems pr;

static int import(const char *text, struct buf *out, struct buf *said)
{
    pr = (struct problems){ .file = "s.json" };
    return srt_import(text, strlen(text), "s.json", out, said, &pr);
}

TEST(every_setting_gets_one_remark_in_file_order)
{
    static const char *const lines[] = {
        "s.json:2: network.allowedDomains 'github.com': kept: allowed on ports 80 and 443",
        "s.json:3: network.deniedDomains 'evil.com': kept: denied on every port",
        "s.json:4: network.allowUnixSockets '/var/run/docker.sock': no equivalent",
        "s.json:5: filesystem.denyRead '~/.ssh': already holds",
        "s.json:5: filesystem.denyRead 'secrets': kept: hidden in the workspace",
        "s.json:5: filesystem.denyRead '/usr/bin/sudo': kept: hidden",
        "s.json:6: filesystem.allowWrite '.': kept",
        "s.json:6: filesystem.allowWrite '/tmp': already holds",
        "s.json:6: filesystem.allowWrite '/data': no equivalent",
        "s.json:7: filesystem.denyWrite '.env': kept",
        "s.json:7: filesystem.denyWrite '*.pem': no equivalent",
        "s.json:8: ignoreViolations: no equivalent",
        "s.json:9: enableWeakerNestedSandbox 'true': no equivalent",
        "s.json:10: somethingNew '1': no equivalent: unknown setting",
    };
    auto_buf out = { 0 }, said = { 0 };
    const char *at;

    int lost = import("{\n \"network\": {\"allowedDomains\": [\"github.com\"],\n  \"deniedDomains\": [\"evil.com\"],\n"
                      "  \"allowUnixSockets\": [\"/var/run/docker.sock\"]},\n"
                      " \"filesystem\": {\"denyRead\": [\"~/.ssh\", \"secrets\", \"/usr/bin/sudo\"],\n"
                      "  \"allowWrite\": [\".\", \"/tmp\", \"/data\"],\n  \"denyWrite\": [\".env\", \"*.pem\"]},\n"
                      " \"ignoreViolations\": {\"*\": [\"/a\"]},\n \"enableWeakerNestedSandbox\": true,\n"
                      " \"somethingNew\": 1\n}\n",
                      &out, &said);
    assert_int_equal(lost, 6);
    at = said.data;
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        if (!str_starts(at, lines[i]))
            fail_msg("expected %s, got %s", lines[i], at);
        at = strchr(at, '\n') + 1;
    }
    assert_string_equal(at, "");
}

TEST(the_imported_text_is_a_valid_policy)
{
    auto_buf out = { 0 }, said = { 0 };
    struct policy p;

    assert_int_equal(import("{\"filesystem\": {\"allowWrite\": [\"./it's\"], \"denyWrite\": [\"a\"], "
                            "\"denyRead\": [\"./b\"], \"allowRead\": [\"/srv/data\"]}}",
                            &out, &said),
                     0);
    if (policy_file_read(out.data, out.len, "p.yaml", "/d", &p, &pr) < 0)
        fail_msg("%s\n%s", pr.list[0].msg, out.data);
    assert_int_equal(p.workspace, POLICY_READ_WRITE);
    assert_string_equal(p.workspace_dir, "/d/it's");
    assert_int_equal(p.npaths, 3);
    assert_string_equal(p.paths[0].dst, "/workspace/a");
    assert_string_equal(p.paths[1].src, "/srv/data");
    assert_string_equal(p.paths[2].dst, "/workspace/b");
    assert_null(p.paths[2].src);
    policy_done(&p);
}

TEST(domains_become_rules_in_which_denials_come_first)
{
    auto_buf out = { 0 }, said = { 0 }, none = { 0 }, said_none = { 0 };
    struct policy p;

    assert_int_equal(import("{\"network\": {\"allowedDomains\": [\"*.Example.org\", \"127.0.0.1\", \"a b\"], "
                            "\"deniedDomains\": [\"files.example.org\"]}}",
                            &out, &said),
                     2);
    assert_non_null(strstr(said.data, "'127.0.0.1': no equivalent: addresses of the range loopback are closed"));
    if (policy_file_read(out.data, out.len, "p.yaml", "/d", &p, &pr) < 0)
        fail_msg("%s\n%s", pr.list[0].msg, out.data);
    assert_int_equal(p.network.mode, NETWORK_EGRESS);
    assert_string_equal(p.network.rules, "deny files.example.org:*\nallow *.example.org");
    policy_done(&p);

    assert_int_equal(import("{\"network\": {\"deniedDomains\": [\"evil.com\"]}}", &none, &said_none), 0);
    assert_non_null(strstr(said_none.data, "already holds: no domain can be reached"));
    assert_non_null(strstr(none.data, "network: none\n"));
}

TEST(settings_of_the_wrong_kind_are_reported_and_ignored)
{
    auto_buf out = { 0 }, said = { 0 };

    assert_int_equal(
        import("{\"network\": {\"allowedDomains\": \"x\"}, \"filesystem\": {\"denyRead\": [[1]]}}", &out, &said), 2);
    assert_non_null(strstr(said.data, "it is not a list"));
    assert_non_null(strstr(said.data, "it is not a text"));
}

TEST(settings_that_are_not_a_mapping_are_refused)
{
    auto_buf out = { 0 }, said = { 0 };

    assert_int_equal(import("[]", &out, &said), -1);
    assert_int_equal(import("{", &out, &said), -1);
    assert_int_equal(pr.list[0].id, ERR_POLICY_SYNTAX);
    assert_int_equal(out.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_setting_gets_one_remark_in_file_order),      RUN(the_imported_text_is_a_valid_policy),
        RUN(domains_become_rules_in_which_denials_come_first), RUN(settings_of_the_wrong_kind_are_reported_and_ignored),
        RUN(settings_that_are_not_a_mapping_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
