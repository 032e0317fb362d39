#include "tests/unit/test.h"

#include "core/base/str.h"
#include "core/doc/doc.h"
#include "policy/file/policy_file.h"

static struct problems pr;

static int read_text(const char *text, struct policy *p)
{
    pr = (struct problems){ .file = "p.yaml" };
    return policy_file_read(text, strlen(text), "p.yaml", "/home/u/proj", p, &pr);
}

static void must_read(const char *text, struct policy *p)
{
    auto_buf out = { 0 };

    if (read_text(text, p) == 0)
        return;
    problems_print(&pr, &out);
    fail_msg("%s", out.data);
}

TEST(every_key_is_read_with_its_line)
{
    struct policy p;

    must_read("version: 1\n"
              "name: build-it\n"
              "description: for builds\n"
              "extends: standard\n"
              "profile: node\n"
              "network: none\n"
              "driver: bwrap\n"
              "filesystem:\n"
              "  workspace: {mode: copyOnWrite, path: .}\n"
              "  readOnly:\n"
              "    - {source: data, target: /mnt/data/}\n"
              "    - /srv/models\n"
              "  skills: ./skills\n"
              "  hide: [/usr/bin/gcc]\n"
              "syscalls:\n"
              "  deny: [ptrace, inotify_init1]\n"
              "  grant: [debug]\n"
              "limits:\n"
              "  memoryBytes: 256M\n"
              "  pids: 64\n"
              "environment:\n"
              "  set:\n"
              "    A: 'b c'\n"
              "    EMPTY:\n"
              "  pass: [HOME]\n",
              &p);
    assert_string_equal(p.name, "build-it");
    assert_string_equal(p.base, "standard");
    assert_int_equal(p.level, LEVEL_CUSTOM);
    assert_true(p.has_profile && p.profile == PROFILE_NODE && p.profile_line == 5);
    assert_int_equal(p.network.mode, NETWORK_NONE);
    assert_int_equal(p.network_line, 6);
    assert_int_equal(p.driver, DRIVER_BWRAP);
    assert_int_equal(p.driver_line, 7);
    assert_int_equal(p.workspace, POLICY_COPY_ON_WRITE);
    assert_string_equal(p.workspace_dir, "/home/u/proj");
    assert_int_equal(p.npaths, 4);
    assert_string_equal(p.paths[0].src, "/home/u/proj/data");
    assert_string_equal(p.paths[0].dst, "/mnt/data");
    assert_int_equal(p.paths[0].line, 11);
    assert_string_equal(p.paths[1].src, "/srv/models");
    assert_string_equal(p.paths[1].dst, "/mnt/models");
    assert_string_equal(p.paths[2].src, "/home/u/proj/skills");
    assert_string_equal(p.paths[2].dst, "/skills");
    assert_null(p.paths[3].src);
    assert_true(policy_denies(p.deny, 101));
    assert_int_equal(p.deny_line[101], 16);
    assert_int_equal(p.grants, GRANT_BIT(DEBUG));
    assert_int_equal(p.limits.v[LIMIT_MEMORY], 256 * MIB);
    assert_int_equal(p.limit_line[LIMIT_MEMORY], 19);
    assert_int_equal(p.limit_line[LIMIT_SWAP], 0);
    assert_int_equal(p.nenv, 3);
    assert_string_equal(p.env[0].text, "A=b c");
    assert_string_equal(p.env[1].text, "EMPTY=");
    assert_true(p.env[2].is_pass_through);
    policy_done(&p);
}

TEST(json_and_yaml_give_the_same_policy)
{
    struct policy a, b;

    must_read("version: 1\nlimits: {memoryBytes: 268435456, timeoutMs: 1500}\nsyscalls: {deny: [ptrace]}\n", &a);
    must_read("{\n\t\"version\": 1,\n\t\"limits\": {\"memoryBytes\": 268435456, \"timeoutMs\": 1500},\n"
              "\t\"syscalls\": {\"deny\": [\"ptrace\"]}\n}\n",
              &b);
    assert_memory_equal(&a.limits, &b.limits, sizeof(a.limits));
    assert_memory_equal(a.deny, b.deny, sizeof(a.deny));
    assert_int_equal(b.limit_line[LIMIT_WALL], 3);
    policy_done(&a);
    policy_done(&b);
}

TEST(the_smallest_file_equals_standard)
{
    struct policy p, standard;

    must_read("version: 1\n", &p);
    assert_true(policy_builtin("standard", &standard));
    assert_string_equal(p.name, "p");
    assert_memory_equal(&p.limits, &standard.limits, sizeof(p.limits));
    assert_int_equal(p.grants, 0);
    policy_done(&p);
}

TEST(extending_debug_adds_its_grant)
{
    struct policy p;

    must_read("version: 1\nextends: debug\n", &p);
    assert_int_equal(p.grants, GRANT_BIT(DEBUG));
    assert_int_equal(p.grant_line[GRANT_DEBUG], 2);
    policy_done(&p);
}

TEST(numbers_use_the_unit_of_the_key_and_texts_carry_a_unit)
{
    static const struct {
        const char *key, *value;
        enum limit limit;
        uint64_t want;
    } cases[] = {
        { "memoryBytes", "268435456", LIMIT_MEMORY, 256 * MIB },
        { "memoryBytes", "1G", LIMIT_MEMORY, GIB },
        { "memoryBytes", "\"1G\"", LIMIT_MEMORY, GIB },
        { "timeoutMs", "1500", LIMIT_WALL, 1500 },
        { "timeoutMs", "30s", LIMIT_WALL, 30000 },
        { "cpuMillis", "500", LIMIT_CPU, 500 },
        { "cpuMillis", "0.5", LIMIT_CPU, 500 },
        { "cpuMillis", "2000", LIMIT_CPU, 2000 },
        { "cpuSet", "0-1,3", LIMIT_CPUSET, 11 },
        { "cpuSet", "3", LIMIT_CPUSET, 8 },
        { "cpuTimeMs", "unlimited", LIMIT_CPU_TIME, 0 },
        { "cpuTimeMs", "0", LIMIT_CPU_TIME, 0 },
        { "idleTimeoutMs", "5m", LIMIT_IDLE, 300000 },
        { "pids", "64", LIMIT_PIDS, 64 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *text = str_printf("version: 1\nlimits:\n  %s: %s\n", cases[i].key, cases[i].value);
        struct policy p;

        must_read(text, &p);
        if (p.limits.v[cases[i].limit] != cases[i].want)
            fail_msg("%s: %s is %" PRIu64, cases[i].key, cases[i].value, p.limits.v[cases[i].limit]);
        policy_done(&p);
    }
}

#define V "version: 1\n"

/* Each file has exactly one error. */
TEST(every_error_has_its_position_code_and_message)
{
    static const struct {
        const char *text;
        uint32_t line, col;
        enum err_id id;
        const char *says;
    } cases[] = {
        /* syntax */
        { "", 1, 1, ERR_POLICY_SYNTAX, "empty" },
        { "# only words\n", 1, 1, ERR_POLICY_SYNTAX, "empty" },
        { V "a: [1\n", 3, 1, ERR_POLICY_SYNTAX, "expected" },
        { V "\tname: x\n", 2, 1, ERR_POLICY_SYNTAX, "tab character" },
        { V "name: x\nname: y\n", 3, 1, ERR_POLICY_SYNTAX, "already given on line 2" },
        { V "name: &a x\n", 2, 7, ERR_POLICY_SYNTAX, "anchors" },
        { V "name: !!str x\n", 2, 7, ERR_POLICY_SYNTAX, "anchors" },
        { V "---\n" V, 2, 1, ERR_POLICY_SYNTAX, "more than one document" },
        { V "? [a]\n: b\n", 2, 3, ERR_POLICY_SYNTAX, "key is not a plain text" },
        { V "name: \"a\\0b\"\n", 2, 7, ERR_POLICY_SYNTAX, "NUL" },
        { V "name: \xff\n", 1, 1, ERR_POLICY_SYNTAX, "UTF-8" },
        { "[1, 2]\n", 1, 1, ERR_POLICY_VALUE, "must be a mapping" },
        /* version, name, extends, profile */
        { "name: x\n", 1, 1, ERR_POLICY_VALUE, "version" },
        { "version: 2\n", 1, 10, ERR_POLICY_VALUE, "reads version 1" },
        { "version: [1]\n", 1, 10, ERR_POLICY_VALUE, "single value" },
        { V "name: a b\n", 2, 7, ERR_POLICY_VALUE, "name" },
        { V "name:\n", 2, 6, ERR_POLICY_VALUE, "empty" },
        { V "extends: high\n", 2, 10, ERR_LEVEL_UNAVAILABLE, "second kernel" },
        { V "extends: other\n", 2, 10, ERR_POLICY_VALUE, "standard or debug" },
        { V "profile: ruby\n", 2, 10, ERR_POLICY_VALUE, "base, python, node or shell" },
        /* keys */
        { V "limit: {}\n", 2, 1, ERR_POLICY_KEY, "did you mean 'limits'" },
        { V "wall: {}\n", 2, 1, ERR_POLICY_KEY, "the keys are version, name" },
        { V "limits:\n  memryBytes: 1\n", 3, 3, ERR_POLICY_KEY, "did you mean 'memoryBytes'" },
        { V "limits:\n  disk: 1G\n", 3, 3, ERR_POLICY_KEY, "did you mean 'workspaceBytes'" },
        { V "filesystem:\n  readonly: []\n", 3, 3, ERR_POLICY_KEY, "in filesystem; did you mean 'readOnly'" },
        { V "environment:\n  sets: {}\n", 3, 3, ERR_POLICY_KEY, "did you mean 'set'" },
        { V "syscalls:\n  denied: []\n", 3, 3, ERR_POLICY_KEY, "the keys are deny, grant" },
        { V "syscalls:\n  dney: []\n", 3, 3, ERR_POLICY_KEY, "did you mean 'deny'" },
        { V "filesystem:\n  workspace: {mod: memory, mode: memory}\n", 3, 15, ERR_POLICY_KEY, "did you mean 'mode'" },
        /* network */
        { V "network: all\n", 2, 10, ERR_POLICY_VALUE, "must be none or a mapping" },
        { V "network: egress\n", 2, 10, ERR_POLICY_VALUE, "must be none or a mapping" },
        { V "network: [pypi.org]\n", 2, 10, ERR_POLICY_VALUE, "must be none or a mapping" },
        { V "network: {mode: none}\n", 2, 17, ERR_POLICY_VALUE, "'none' is not egress" },
        { V "network: {hosts: []}\n", 2, 11, ERR_POLICY_KEY, "the keys are egress, allow, deny, secrets, mode" },
        { V "network: {egress: ['allow a b']}\n", 2, 20, ERR_EGRESS_RULE, "'b' is not an attribute" },
        { V "network: {egress: ['secret k a']}\n", 2, 20, ERR_EGRESS_RULE, "must be one rule" },
        { V "network: {alow: [a]}\n", 2, 11, ERR_POLICY_KEY, "did you mean 'allow'" },
        { V "network: {allowedDomains: [a]}\n", 2, 11, ERR_POLICY_FEATURE, "sandbox-runtime" },
        { V "network: {allow: pypi.org}\n", 2, 18, ERR_POLICY_VALUE, "must be a list" },
        { V "network:\n  allow:\n    - pypi.org\n    - https://pypi.org/\n", 5, 7, ERR_EGRESS_RULE,
          "network.allow: 'https://pypi.org/' is a URL; give only 'pypi.org'" },
        { V "network:\n  egress: [{allow: a, deny: b}]\n", 3, 12, ERR_EGRESS_RULE, "either allow or deny" },
        { V "network:\n  egress: [{methods: [GET]}]\n", 3, 12, ERR_EGRESS_RULE, "either allow or deny" },
        { V "network:\n  egress: [{allow: a, path: /x}]\n", 3, 12, ERR_EGRESS_RULE, "a:80" },
        { V "network:\n  egress: [{allow: a:80, methods: []}]\n", 3, 35, ERR_EGRESS_RULE, "at least one" },
        { V "network:\n  egress: [{allow: a:80, methods: [BREW]}]\n", 3, 12, ERR_EGRESS_RULE, "'BREW'" },
        { V "network:\n  egress: [{permit: a}]\n", 3, 13, ERR_POLICY_KEY, "allow, deny, methods, path" },
        { V "network: {egress: [a], allow: [b]}\n", 2, 10, ERR_POLICY_VALUE, "egress excludes" },
        { V "network:\n  secrets: [{name: k}]\n", 3, 13, ERR_EGRESS_RULE, "a name and a host" },
        { V "network:\n  secrets: [{name: k, host: '*.a'}]\n", 3, 13, ERR_EGRESS_RULE, "secret k" },
        { V "network:\n  secrets: [{name: k, host: a, value: x}]\n", 3, 32, ERR_POLICY_KEY, "unknown key 'value'" },
        { V "network:\n  secrets: [{name: k, host: a}, {name: K, host: b}]\n", 3, 3, ERR_EGRESS_RULE,
          "secret k is bound twice" },
        /* driver */
        { V "driver: bwarp\n", 2, 9, ERR_DRIVER_MISSING, "driver: unknown driver 'bwarp'; did you mean bwrap?" },
        { V "driver: qemu\n", 2, 9, ERR_DRIVER_MISSING, "driver: unknown driver 'qemu'; use native, bwrap" },
        { V "driver: [native]\n", 2, 9, ERR_POLICY_VALUE, "single value" },
        /* limits */
        { V "limits: 5\n", 2, 9, ERR_POLICY_VALUE, "mapping" },
        { V "limits:\n  pids: many\n", 3, 9, ERR_POLICY_VALUE, "whole number" },
        { V "limits:\n  pids: 1\n", 3, 9, ERR_POLICY_VALUE, "less than 4" },
        { V "limits:\n  pids: [4]\n", 3, 9, ERR_POLICY_VALUE, "single value" },
        { V "limits:\n  timeoutMs: 0\n", 3, 14, ERR_POLICY_VALUE, "less than" },
        { V "limits:\n  cpuMillis: 2\n", 3, 14, ERR_POLICY_VALUE, "less than" },
        { V "limits:\n  memoryBytes: unlimited\n", 3, 16, ERR_POLICY_VALUE, "size" },
        { V "limits:\n  memoryBytes: -1\n", 3, 16, ERR_POLICY_VALUE, "size" },
        { V "limits:\n  pids: 99999999999999999999999\n", 3, 9, ERR_POLICY_VALUE, "whole number" },
        { V "limits:\n  memoryBytes: 32M\n  tmpBytes: 64M\n", 4, 1, ERR_POLICY_VALUE, "the memory limit is only 32M" },
        /* system calls */
        { V "syscalls: [a]\n", 2, 11, ERR_POLICY_VALUE, "mapping" },
        { V "syscalls:\n  deny: ptrace\n", 3, 9, ERR_POLICY_VALUE, "must be a list" },
        { V "syscalls:\n  deny: [ptrce]\n", 3, 10, ERR_POLICY_VALUE, "did you mean 'ptrace'" },
        { V "syscalls:\n  deny: [zzzzzzzzz]\n", 3, 10, ERR_POLICY_VALUE, "no system call" },
        { V "syscalls:\n  deny: [mmap]\n", 3, 10, ERR_POLICY_VALUE, "no program could start" },
        { V "syscalls:\n  allow: [mount]\n", 3, 3, ERR_POLICY_FEATURE, "single calls cannot be allowed" },
        { V "syscalls:\n  grant: [mount]\n", 3, 11, ERR_POLICY_VALUE, "the grants are: debug" },
        /* files */
        { V "filesystem:\n  workspace: disk\n", 3, 14, ERR_POLICY_VALUE, "memory, readWrite or copyOnWrite" },
        { V "filesystem:\n  workspace: readWrite\n", 3, 14, ERR_POLICY_VALUE, "needs a path" },
        { V "filesystem:\n  workspace: {mode: copyOnWrite}\n", 3, 14, ERR_POLICY_VALUE, "path is missing" },
        { V "filesystem:\n  workspace: {mode: memory, path: /a}\n", 3, 14, ERR_POLICY_VALUE, "memory has no path" },
        { V "filesystem:\n  workspace: {path: ~/a}\n", 3, 21, ERR_POLICY_VALUE, "'~' is not expanded" },
        { V "filesystem:\n  readOnly: /a\n", 3, 13, ERR_POLICY_VALUE, "must be a list" },
        { V "filesystem:\n  readOnly: [{target: /mnt/a}]\n", 3, 14, ERR_POLICY_VALUE, "source is missing" },
        { V "filesystem:\n  readOnly: [{source: /a, target: mnt}]\n", 3, 35, ERR_POLICY_VALUE, "plain absolute path" },
        { V "filesystem:\n  readOnly: [{source: /a, target: /mnt/../a}]\n", 3, 35, ERR_POLICY_VALUE, "plain absolute" },
        { V "filesystem:\n  readOnly: [/1, /2, /3, /4, /5, /6, /7, /8, /9, /10]\n", 3, 50, ERR_POLICY_VALUE,
          "more than 9" },
        { V "filesystem:\n  hide: [/proc/cpuinfo]\n", 3, 10, ERR_POLICY_VALUE, "is not below" },
        { V "filesystem:\n  hide: [/usr]\n", 3, 10, ERR_POLICY_VALUE, "is not below" },
        /* environment */
        { V "environment:\n  set: [A]\n", 3, 8, ERR_POLICY_VALUE, "mapping" },
        { V "environment:\n  set: {1A: x}\n", 3, 9, ERR_POLICY_VALUE, "not a variable's name" },
        { V "environment:\n  set: {A: [x]}\n", 3, 12, ERR_POLICY_VALUE, "single value" },
        { V "environment:\n  pass: [A=b]\n", 3, 10, ERR_POLICY_VALUE, "not a variable's name" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy p;
        auto_buf out = { 0 };

        if (read_text(cases[i].text, &p) == 0)
            fail_msg("accepted: %s", cases[i].text);
        problems_print(&pr, &out);
        const struct problem *q = &pr.list[0];
        if (pr.n != 1 || q->id != cases[i].id || q->line != cases[i].line || q->col != cases[i].col ||
            !strstr(q->msg, cases[i].says))
            fail_msg("case %zu, expected %" PRIu32 ":%" PRIu32 " %s '%s', got %zu:\n%s\n%s", i, cases[i].line,
                     cases[i].col, err_info(cases[i].id)->code, cases[i].says, pr.n, out.data, cases[i].text);
        assert_true(str_starts(out.data, "cove: p.yaml:"));
        assert_null(strstr(out.data, "  cause: ")); /* errors of a file explain themselves */
    }
}

TEST(both_forms_of_a_network_become_ordered_rules)
{
    static const struct {
        const char *text, *rules;
    } cases[] = {
        { V "network: {}\n", "" },
        { V "network: {egress: []}\n", "" },
        { V "network: {mode: egress, egress: ['deny *:22', 'allow a:80 path=/x']}\n", "deny *:22\nallow a:80 path=/x" },
        { V "network: {allow: [PyPI.org, 'preset:npm']}\n", "allow pypi.org\nallow preset:npm" },
        { V "network: {allow: ['*.a'], deny: ['b.a:*']}\n", "deny b.a:*\nallow *.a" },
        { V "network:\n  egress:\n    - a\n    - deny: '*.b:*'\n    - {allow: '*:80', methods: [post, GET], path: "
            "/v1/*}\n",
          "allow a\ndeny *.b:*\nallow *:80 methods=GET,POST path=/v1/*" },
        { V "network:\n  secrets: [{name: k, host: 'a:8443', header: x-key, path: /v1/*}]\n  egress: [b]\n",
          "allow b\nsecret k a:8443 header=X-Key format={} path=/v1/*" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct policy p;

        must_read(cases[i].text, &p);
        assert_int_equal(p.network.mode, NETWORK_EGRESS);
        assert_int_equal(p.network_line, strstr(cases[i].text, "\n  ") ? 3 : 2);
        assert_string_equal(p.network.rules ? p.network.rules : "", cases[i].rules);
        policy_done(&p);
    }
}

TEST(all_errors_of_a_file_are_reported_together_in_file_order)
{
    struct policy p;
    auto_buf out = { 0 };

    assert_int_equal(read_text("version: 1\nnme: x\nextends: other\nlimits:\n  pids: x\n  mem: 1\nnetwork: all\n", &p),
                     -1);
    problems_print(&pr, &out);
    assert_int_equal(pr.n, 5);
    static const uint32_t lines[] = { 2, 3, 5, 6, 7 };
    for (size_t i = 0; i < ARRAY_LEN(lines); i++)
        assert_int_equal(pr.list[i].line, lines[i]);
}

TEST(more_errors_than_fit_are_counted)
{
    auto_buf text = { 0 }, out = { 0 };
    struct policy p;

    buf_adds(&text, "version: 1\n");
    for (unsigned i = 0; i < PROBLEMS_MAX + 10; i++)
        buf_addf(&text, "zz%u: 1\n", i);
    assert_int_equal(read_text(text.data, &p), -1);
    assert_int_equal(pr.n, PROBLEMS_MAX);
    assert_int_equal(pr.overflow_count, 10);
    problems_print(&pr, &out);
    assert_non_null(strstr(out.data, "and 10 more"));
}

TEST(huge_and_deep_files_are_refused)
{
    auto_buf deep = { 0 }, large = { 0 };
    struct policy p;

    buf_adds(&deep, "version: 1\nname: ");
    for (unsigned i = 0; i < 5000; i++)
        buf_adds(&deep, "[");
    assert_int_equal(read_text(deep.data, &p), -1);
    assert_non_null(strstr(pr.list[0].msg, "deeply"));
    for (unsigned i = 0; i < DOC_BYTES_MAX / 8 + 1; i++)
        buf_adds(&large, "# 45678\n");
    assert_int_equal(read_text(large.data, &p), -1);
    assert_non_null(strstr(pr.list[0].msg, "larger than 256K"));
}

/* A policy that was read from a file survives the transfer to cove. */
TEST(a_policy_file_survives_the_canonical_form)
{
    struct policy p, q;
    struct operator_limits none = { 0 }, f;
    struct err err = { 0 };
    auto_buf out = { 0 };

    must_read("version: 1\nextends: debug\nfilesystem: {readOnly: ['/a b'], workspace: {path: '/%'}}\n"
              "environment: {set: {A: \"x\\ny\"}, pass: [B]}\nsyscalls: {deny: [kcmp]}\nlimits: {pids: 9}\n",
              &p);
    canon_write(&p, &none, &out);
    if (canon_parse(out.data, out.len, &q, &f, &err) < 0)
        fail_msg("%s\n%s", err.msg, out.data);
    assert_string_equal(q.paths[0].dst, "/mnt/a b");
    assert_string_equal(q.env[0].text, "A=x\ny");
    assert_memory_equal(&p.limits, &q.limits, sizeof(p.limits));
    assert_memory_equal(p.deny, q.deny, sizeof(p.deny));
    policy_done(&p);
    policy_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_key_is_read_with_its_line),
        RUN(json_and_yaml_give_the_same_policy),
        RUN(the_smallest_file_equals_standard),
        RUN(extending_debug_adds_its_grant),
        RUN(numbers_use_the_unit_of_the_key_and_texts_carry_a_unit),
        RUN(every_error_has_its_position_code_and_message),
        RUN(both_forms_of_a_network_become_ordered_rules),
        RUN(all_errors_of_a_file_are_reported_together_in_file_order),
        RUN(more_errors_than_fit_are_counted),
        RUN(huge_and_deep_files_are_refused),
        RUN(a_policy_file_survives_the_canonical_form),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
