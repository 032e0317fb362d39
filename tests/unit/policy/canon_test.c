#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/policy.h"

static const char full[] = "cove-policy 3\n"
                           "policy build standard dir/my%20policy.yaml\n"
                           "profile 4 python\n"
                           "driver 5 bwrap\n"
                           "network 6 egress\n"
                           "rule deny%20files.example.org:*\n"
                           "rule allow%20api.example.org:80%20path=/a%2520b\n"
                           "rule secret%20k%20a.example:443%20header=Authorization%20format=Bearer%2520{}\n"
                           "workspace 7 copyOnWrite /srv/%C3%A4\n"
                           "bind 9 /usr/share /mnt/share\n"
                           "hide 12 /usr/bin/gcc\n"
                           "env 20 A=b%20c%25\n"
                           "pass 21 HOME\n"
                           "grant 15 debug\n"
                           "deny 14 inotify_init1\n"
                           "limit 16 memoryBytes 268435456\n"
                           "limit 17 timeoutMs 1500\n"
                           "floor /etc/cove/floor.yaml standard\n"
                           "floor-walls all\n"
                           "floor-enforce memoryBytes\n"
                           "floor-enforce pids\n"
                           "floor-workspace memory\n"
                           "floor-forbid debug\n"
                           "floor-forbid-driver native\n"
                           "floor-deny ptrace\n"
                           "floor-limit memoryBytes 1073741824\n"
                           "floor-network none\n"
                           "floor-network-deny deny%20b.example:*\n"
                           "floor-network-open 10.1.0.0/16\n"
                           "floor-network-open fd00:1::/32\n"
                           "end\n";

TEST(every_field_survives_the_canonical_form)
{
    struct policy p;
    struct operator_limits f;
    struct err err = { 0 };

    if (canon_parse(full, strlen(full), &p, &f, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(p.name, "build");
    assert_string_equal(p.file, "dir/my policy.yaml");
    assert_int_equal(p.level, LEVEL_CUSTOM);
    assert_true(p.has_profile && p.profile == PROFILE_PYTHON);
    assert_int_equal(p.driver, DRIVER_BWRAP);
    assert_int_equal(p.driver_line, 5);
    assert_int_equal(p.network.mode, NETWORK_EGRESS);
    assert_string_equal(p.network.rules, "deny files.example.org:*\nallow api.example.org:80 path=/a%20b\n"
                                         "secret k a.example:443 header=Authorization format=Bearer%20{}");
    assert_true(f.forbids_network);
    assert_string_equal(f.network_denials, "deny b.example:*");
    assert_int_equal(f.nopen_ranges, 2);
    assert_int_equal(f.open_ranges[0].bits, 16);
    assert_int_equal(p.network_line, 6);
    assert_int_equal(p.workspace, POLICY_COPY_ON_WRITE);
    assert_string_equal(p.workspace_dir, "/srv/\xc3\xa4");
    assert_int_equal(p.npaths, 2);
    assert_string_equal(p.paths[0].src, "/usr/share");
    assert_null(p.paths[1].src);
    assert_string_equal(p.paths[1].dst, "/usr/bin/gcc");
    assert_int_equal(p.nenv, 2);
    assert_string_equal(p.env[0].text, "A=b c%");
    assert_true(p.env[1].is_pass_through);
    assert_int_equal(p.grants, GRANT_BIT(DEBUG));
    assert_true(policy_denies(p.deny, (unsigned)syscall_number("inotify_init1")));
    assert_int_equal(p.limits.v[LIMIT_MEMORY], 256 * MIB);
    assert_int_equal(p.limit_line[LIMIT_WALL], 17);
    assert_int_equal(p.limit_line[LIMIT_PIDS], 0);
    assert_string_equal(f.file, "/etc/cove/floor.yaml");
    assert_int_equal(f.forbidden_grants, GRANT_BIT(DEBUG));
    assert_int_equal(f.forbidden_drivers, DRIVER_BIT(DRIVER_NATIVE));
    assert_int_equal(f.allowed_workspaces, 1u << POLICY_MEMORY);
    assert_true(policy_denies(f.deny, 101));
    assert_int_equal(f.has_max, LIMIT_BIT(MEMORY));
    assert_true(f.requires_every_wall);
    assert_int_equal(f.must_enforce, LIMIT_BIT(MEMORY) | LIMIT_BIT(PIDS));
    policy_done(&p);
    operator_limits_done(&f);
}

TEST(built_in_policies_survive_the_canonical_form)
{
    const char *const *names = policy_builtins();

    for (size_t i = 0; names[i]; i++) {
        struct policy p, q;
        struct operator_limits none = { 0 }, f;
        struct err err = { 0 };
        auto_buf out = { 0 };

        assert_true(policy_builtin(names[i], &p));
        canon_write(&p, &none, &out);
        if (canon_parse(out.data, out.len, &q, &f, &err) < 0)
            fail_msg("%s: %s", names[i], err.msg);
        assert_memory_equal(&p, &q, sizeof(p));
        assert_null(f.file);
        policy_done(&q);
    }
}

/* Each case replaces one line of the whole text, or the whole text. */
TEST(any_other_form_is_refused)
{
    static const struct {
        const char *from, *to;
    } cases[] = {
        { "cove-policy 3\n", "" },
        { "cove-policy 3\n", "cove-policy 4\n" },
        { "cove-policy 3\n", "cove-policy 03\n" },
        { "end\n", "" },
        { "end\n", "end" },
        { "end\n", "end\nend\n" },
        { "end\n", "\nend\n" },
        { "end\n", "what is this\nend\n" },
        { "policy build standard dir/my%20policy.yaml\n", "" },
        { "policy build standard", "policy build nonsense" },
        { "policy build standard dir/my%20policy.yaml", "policy build standard dir/my%20policy.yaml more" },
        { "policy build", "policy %62uild" },
        { "policy build", "policy b%1B" },
        { "my%20policy", "my%2" },
        { "my%20policy", "my%zz" },
        { "my%20policy", "my%00" },
        { "profile 4 python", "profile 4 ruby" },
        { "profile 4 python", "profile four python" },
        { "profile 4 python", "profile 4  python" },
        { "profile 4 python\n", "profile 4 python\nprofile 5 python\n" },
        { "profile 4 python", "profile 100001 python" },
        { "copyOnWrite /srv/%C3%A4", "copyOnWrite -" },
        { "copyOnWrite /srv/%C3%A4", "memory /srv" },
        { "copyOnWrite /srv/%C3%A4", "copyOnWrite srv" },
        { "copyOnWrite /srv/%C3%A4", "copyOnWrite /srv/\xc3\xa4" },
        { "bind 9 /usr/share /mnt/share", "bind 9 /usr/share" },
        { "bind 9 /usr/share /mnt/share", "bind 9 usr/share /mnt/share" },
        { "bind 9 /usr/share /mnt/share", "bind 9 /usr/share /mnt/../share" },
        { "bind 9 /usr/share /mnt/share", "bind 0 /usr/share /mnt/share" },
        { "hide 12 /usr/bin/gcc", "hide 12 gcc" },
        { "env 20 A=b%20c%25", "env 20 A" },
        { "env 20 A=b%20c%25", "env 20 1=b" },
        { "pass 21 HOME", "pass 21 HOME=x" },
        { "grant 15 debug", "grant 15 root" },
        { "deny 14 inotify_init1", "deny 14 read" }, /* needed: no program could start */
        { "deny 14 inotify_init1", "deny 14 nothing" },
        { "deny 14 inotify_init1", "deny 14 ptrace\ndeny 14 inotify_init1" }, /* valid: 101 comes before 294 */
        { "deny 14 inotify_init1", "deny 14 inotify_init1\ndeny 14 ptrace" },
        { "limit 16 memoryBytes 268435456", "limit 16 memoryBytes 1" },
        { "limit 16 memoryBytes 268435456", "limit 16 memoryBytes 0268435456" },
        { "limit 16 memoryBytes 268435456", "limit 16 memory 268435456" },
        { "limit 17 timeoutMs 1500\n", "limit 17 timeoutMs 1500\nlimit 17 timeoutMs 1500\n" },
        { "floor /etc/cove/floor.yaml standard\n", "" },
        { "floor /etc/cove/floor.yaml standard", "floor /etc/cove/floor.yaml extreme" },
        { "floor-forbid debug", "floor-forbid root" },
        { "floor-forbid-driver native", "floor-forbid-driver docker" },
        { "driver 5 bwrap", "driver 5 docker" },
        { "driver 5 bwrap", "driver 0 bwrap" },
        { "network 6 egress", "network 6 all" },
        { "network 6 egress", "network 6 none" }, /* rules without a network */
        { "network 6 egress", "network 0 egress" },
        { "rule deny%20files.example.org:*", "rule deny%20Files.example.org:*" },
        { "rule deny%20files.example.org:*", "rule deny%20files.example.org:1-65535" },
        { "rule deny%20files.example.org:*", "rule allow%20https://a" },
        { "rule deny%20files.example.org:*", "rule allow%20a%0Aallow%20b" },
        { "rule deny%20files.example.org:*", "rule -" },
        { "rule deny%20files.example.org:*", "rule deny files.example.org:*" },
        { "rule deny%20files.example.org:*", "rule secret%20k%20b:443%20header=Authorization%20format={}" },
        { "floor-network none", "floor-network egress" },
        { "floor-network-deny deny%20b.example:*", "floor-network-deny allow%20b.example:*" },
        { "floor-network-open 10.1.0.0/16", "floor-network-open 10.1.0.1/16" },
        { "floor-network-open fd00:1::/32", "floor-network-open fd00:1:0::/32" },
        { "floor-walls all", "floor-walls some" },
        { "floor-enforce pids", "floor-enforce pid" },
        { "floor-deny ptrace", "floor-deny read" },
        { "floor-limit memoryBytes 1073741824", "floor-limit memoryBytes" },
        { "floor-limit memoryBytes 1073741824", "floor-limit memoryBytes 1 2 3 4 5 6 7" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *at = strstr(full, cases[i].from);
        bool fine = strstr(cases[i].to, "deny 14 ptrace\ndeny") != NULL;
        struct policy p;
        struct operator_limits f;
        struct err err = { 0 };
        auto_buf text = { 0 };

        assert_non_null(at);
        buf_add(&text, full, (size_t)(at - full));
        buf_adds(&text, cases[i].to);
        buf_adds(&text, at + strlen(cases[i].from));
        int rc = canon_parse(text.data, text.len, &p, &f, &err);
        if ((rc == 0) != fine)
            fail_msg("case %zu, '%s': %s", i, cases[i].to, rc ? err.msg : "accepted");
        if (rc == 0) {
            policy_done(&p);
            operator_limits_done(&f);
        } else {
            assert_true(err.id == ERR_PROTOCOL || err.id == ERR_VERSION);
        }
    }
}

TEST(another_version_is_reported_as_version_mismatch)
{
    static const char text[] = "cove-policy 7\nend\n";
    struct policy p;
    struct operator_limits f;
    struct err err = { 0 };

    assert_int_equal(canon_parse(text, strlen(text), &p, &f, &err), -1);
    assert_int_equal(err.id, ERR_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_field_survives_the_canonical_form),
        RUN(built_in_policies_survive_the_canonical_form),
        RUN(any_other_form_is_refused),
        RUN(another_version_is_reported_as_version_mismatch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
