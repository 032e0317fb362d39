#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/file/policy_file.h"
#include "policy/file/policy_rows.h"

static void rows_for(const char *text, const struct operator_limits *f, struct policy *p, struct policy_rows *ret)
{
    struct problems pr = { .file = "p.yaml" };

    if (policy_file_read(text, strlen(text), "p.yaml", "/d", p, &pr) < 0)
        fail_msg("%s", pr.list[0].msg);
    policy_rows_build(p, f, ret);
}

static const struct policy_row *row(const struct policy_rows *r, const char *key)
{
    for (size_t i = 0; i < r->n; i++)
        if (str_eq(r->list[i].key, key))
            return &r->list[i];
    fail_msg("no row %s", key);
    return NULL;
}

TEST(a_policy_is_shown_completely_and_each_value_with_its_source)
{
    static char file[] = "f.yaml";
    struct operator_limits f = { .file = file, .has_max = LIMIT_BIT(PIDS), .max = { [LIMIT_PIDS] = 50 } };
    struct policy p;
    struct policy_rows r;

    policy_deny(f.deny, 101);
    rows_for("version: 1\nlimits: {memoryBytes: 64M}\nenvironment: {set: {HOME: /tmp}}\n", &f, &p, &r);
    assert_string_equal(row(&r, "limits.memoryBytes")->source, "p.yaml:2");
    assert_string_equal(row(&r, "limits.tmpBytes")->source, "follows from others");
    assert_string_equal(row(&r, "limits.timeoutMs")->source, "standard");
    assert_string_equal(row(&r, "limits.pids")->value, "50");
    assert_string_equal(row(&r, "limits.pids")->source, "f.yaml");
    assert_string_equal(row(&r, "syscalls.deny.ptrace")->source, "f.yaml");
    assert_string_equal(row(&r, "environment.set.HOME")->value, "/tmp");
    assert_string_equal(row(&r, "environment.set.USER")->source, "standard");
    assert_string_equal(row(&r, "network")->value, "none");
    assert_string_equal(row(&r, "driver")->value, "native");
    assert_string_equal(row(&r, "driver")->source, "standard");
    for (unsigned i = 0; i < LIMIT_COUNT; i++) {
        auto_free char *key = str_printf("limits.%s", limit_info((enum limit)i)->name);

        (void)row(&r, key);
    }
    policy_rows_done(&r);
    policy_done(&p);
}

TEST(the_driver_of_a_policy_is_its_own_or_the_first_that_the_operator_allows)
{
    static char file[] = "f.yaml";
    struct operator_limits f = { .file = file, .forbidden_drivers = DRIVER_BIT(DRIVER_NATIVE) };
    struct policy p;
    struct policy_rows r;

    rows_for("version: 1\n", &f, &p, &r);
    assert_string_equal(row(&r, "driver")->value, "bwrap");
    assert_string_equal(row(&r, "driver")->source, "f.yaml");
    policy_rows_done(&r);
    policy_done(&p);
    rows_for("version: 1\nnetwork: none\ndriver: bwrap\n", &f, &p, &r);
    assert_string_equal(row(&r, "driver")->value, "bwrap");
    assert_string_equal(row(&r, "driver")->source, "p.yaml:3");
    assert_string_equal(row(&r, "network")->source, "p.yaml:2");
    policy_rows_done(&r);
    policy_done(&p);
}

TEST(the_json_of_a_policy_is_a_valid_policy_file)
{
    struct operator_limits none = { 0 };
    struct policy p, q;
    struct policy_rows r;
    struct problems pr = { .file = "q.json" };
    auto_buf out = { 0 };

    rows_for(
        "version: 1\nname: x\nextends: debug\nprofile: node\ndriver: bwrap\nlimits: {memoryBytes: 64M, cpuSet: 0-1}\n"
        "filesystem: {readOnly: [/a], hide: [/usr/bin/gcc], workspace: {path: w}}\nsyscalls: {deny: [kcmp]}\n"
        "environment: {pass: [A]}\nnetwork:\n"
        "  egress: [deny: 'f.a:*', allow: '*.a:80,443-444', {allow: 'b:80', methods: [GET], path: /a%20b/*}, "
        "'preset:pypi']\n"
        "  secrets: [{name: k, host: 'c:8443', header: X-Key, format: 'Key {}'}, {name: l, host: d}]\n",
        &none, &p, &r);
    assert_string_equal(row(&r, "network")->value, "egress");
    assert_string_equal(row(&r, "network.rule.1")->value, "deny f.a:*");
    assert_string_equal(row(&r, "network.rule.4")->value, "allow preset:pypi");
    assert_string_equal(row(&r, "network.rule.4")->source, "p.yaml:11");
    policy_rows_json(&p, &none, &r, &out);
    const char *from = strstr(out.data, "\"policy\": ") + strlen("\"policy\": ");
    const char *to = strstr(out.data, "\"level\"");
    while (*to != '}')
        to--;
    if (policy_file_read(from, (size_t)(to - from) + 1, "q.json", "/", &q, &pr) < 0)
        fail_msg("%s\n%s", pr.list[0].msg, out.data);
    assert_memory_equal(p.deny, q.deny, sizeof(p.deny));
    assert_int_equal(p.grants, q.grants);
    assert_int_equal(q.driver, DRIVER_BWRAP);
    assert_int_equal(q.limits.v[LIMIT_MEMORY], 64 * MIB);
    assert_int_equal(q.limits.v[LIMIT_CPUSET], 3);
    assert_int_equal(q.npaths, 2);
    assert_string_equal(q.workspace_dir, "/d/w");
    assert_true(network_policy_equal(&p.network, &q.network));
    policy_rows_done(&r);
    policy_done(&p);
    policy_done(&q);
}

TEST(denials_of_the_operator_are_shown_before_the_rules_of_a_policy)
{
    static char file[] = "f.yaml", denials[] = "deny a:*";
    struct operator_limits f = { .file = file, .network_denials = denials };
    struct policy p;
    struct policy_rows r;

    rows_for("version: 1\nnetwork: {allow: [a]}\n", &f, &p, &r);
    assert_string_equal(row(&r, "network.rule.1")->value, "deny a:*");
    assert_string_equal(row(&r, "network.rule.1")->source, "f.yaml");
    assert_string_equal(row(&r, "network.rule.2")->value, "allow a");
    policy_rows_done(&r);
    policy_done(&p);
}

TEST(a_diff_shows_both_values_and_rows_of_only_one_policy)
{
    struct operator_limits none = { 0 };
    struct policy p, q;
    struct policy_rows a, b;
    auto_buf out = { 0 }, same = { 0 };

    rows_for("version: 1\nlimits: {pids: 10}\n", &none, &p, &a);
    rows_for("version: 1\nlimits: {pids: 20}\nsyscalls: {deny: [kcmp]}\n", &none, &q, &b);
    assert_int_equal(policy_rows_diff(&a, &b, &out), 2);
    assert_non_null(strstr(out.data, "- limits.pids                        10"));
    assert_non_null(strstr(out.data, "+ limits.pids                        20"));
    assert_non_null(strstr(out.data, "+ syscalls.deny.kcmp"));
    assert_int_equal(policy_rows_diff(&a, &a, &same), 0);
    assert_int_equal(same.len, 0);
    policy_rows_done(&a);
    policy_rows_done(&b);
    policy_done(&p);
    policy_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_policy_is_shown_completely_and_each_value_with_its_source),
        RUN(the_driver_of_a_policy_is_its_own_or_the_first_that_the_operator_allows),
        RUN(the_json_of_a_policy_is_a_valid_policy_file),
        RUN(denials_of_the_operator_are_shown_before_the_rules_of_a_policy),
        RUN(a_diff_shows_both_values_and_rows_of_only_one_policy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
