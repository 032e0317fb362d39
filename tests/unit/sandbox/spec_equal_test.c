/* Every field of a spec decides whether a prepared sandbox serves it, or is set by the claim. */
#include "fake.h"

static const struct zygote_spec python = { "python", "json" };
static const struct sandbox_mount mount = { .kind = SANDBOX_MOUNT_WORKSPACE, .fd = 0 };
static const struct sandbox_secret secret = { "openai", "key" };
static const char *const env[] = { "A=b", NULL };

enum effect {
    SEPARATES, /* a sandbox prepared for one spec never serves the other */
    CLAIMED,   /* the claim sets it */
    TUNED,     /* the claim can change it, but equal specs have the same value */
};

struct spec_field {
    const char *name;
    size_t at, size;
    enum effect effect;
    void (*change)(struct sandbox_spec *s);
};

#define CHANGE(name, statement)                       \
    static void change_##name(struct sandbox_spec *s) \
    {                                                 \
        statement;                                    \
    }
CHANGE(id, s->id = "sbaaaaaaaaaaaaaaaaaaaa")
CHANGE(driver, s->driver = DRIVER_BWRAP)
CHANGE(level, s->level = LEVEL_CUSTOM)
CHANGE(policy, s->policy = "strict")
CHANGE(profile, s->profile = PROFILE_PYTHON + 1)
CHANGE(grants, s->grants = 1)
CHANGE(deny, s->deny[FILTER_DENY_WORDS - 1] = 1)
CHANGE(limits, s->limits.v[LIMIT_MEMORY] /= 2)
CHANGE(network, s->network.mode = NETWORK_EGRESS)
CHANGE(secrets, (s->secrets = &secret, s->nsecrets = 1))
CHANGE(tenant, s->tenant = "acme")
CHANGE(share, s->share.connections_max = 1)
CHANGE(require_all_walls, s->require_all_walls = true)
CHANGE(zygote, s->zygote = &python)
CHANGE(require_enforced, s->require_enforced = 1)
CHANGE(hostname, s->hostname = "other")
CHANGE(env, s->env = env)
CHANGE(mounts, (s->mounts = &mount, s->nmounts = 1))
CHANGE(owner_uid, s->owner_uid = 7)
CHANGE(owner_gid, s->owner_gid = 7)

#define FIELD(name, effect)                                                                                         \
    {                                                                                                               \
#name, offsetof(struct sandbox_spec, name), sizeof(((struct sandbox_spec *)0)->name), effect, change_##name \
    }
static const struct spec_field fields[] = {
    FIELD(id, CLAIMED),
    FIELD(driver, SEPARATES),
    FIELD(level, SEPARATES),
    FIELD(policy, CLAIMED),
    FIELD(profile, SEPARATES),
    FIELD(grants, SEPARATES),
    FIELD(deny, SEPARATES),
    FIELD(limits, TUNED),
    FIELD(network, SEPARATES),
    FIELD(secrets, CLAIMED),
    { "nsecrets", offsetof(struct sandbox_spec, nsecrets), sizeof(size_t), CLAIMED, change_secrets },
    FIELD(tenant, CLAIMED),
    FIELD(share, CLAIMED),
    FIELD(require_all_walls, CLAIMED),
    FIELD(zygote, SEPARATES),
    FIELD(require_enforced, CLAIMED),
    FIELD(hostname, SEPARATES),
    FIELD(env, CLAIMED),
    FIELD(mounts, SEPARATES),
    { "nmounts", offsetof(struct sandbox_spec, nmounts), sizeof(size_t), SEPARATES, change_mounts },
    FIELD(owner_uid, CLAIMED), /* of files in a mount */
    FIELD(owner_gid, CLAIMED),
};

TEST(every_field_of_a_spec_is_in_the_table)
{
    size_t end = 0;

    for (size_t i = 0; i <= ARRAY_LEN(fields); i++) {
        size_t at = i < ARRAY_LEN(fields) ? fields[i].at : sizeof(struct sandbox_spec);

        /* Only padding lies between two fields. */
        if (at < end || at - end >= sizeof(void *))
            fail_msg("struct sandbox_spec: an unknown field lies between bytes %zu and %zu, or the order has "
                     "changed; decide in src/sandbox/spec_equal.c whether it separates sandboxes, and add it here",
                     end, at);
        end = i < ARRAY_LEN(fields) ? at + fields[i].size : at;
    }
}

TEST(a_changed_field_has_its_effect_on_both_comparisons)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        struct sandbox_spec made = plain_spec(), want = plain_spec();

        assert_true(sandbox_spec_equal(&made, &want) && sandbox_spec_fits_claim(&made, &want));
        fields[i].change(&want);
        if (sandbox_spec_equal(&made, &want) != (fields[i].effect == CLAIMED))
            fail_msg("%s: sandbox_spec_equal", fields[i].name);
        if (sandbox_spec_fits_claim(&made, &want) != (fields[i].effect != SEPARATES))
            fail_msg("%s: sandbox_spec_fits_claim", fields[i].name);
    }
}

TEST(a_prepared_sandbox_serves_every_rule_of_its_network_mode)
{
    struct sandbox_spec made = plain_spec(), want = plain_spec();

    made.network.mode = want.network.mode = NETWORK_EGRESS;
    want.network.rules = "allow pypi.org";
    assert_true(sandbox_spec_equal(&made, &want));
    assert_true(sandbox_spec_fits_claim(&made, &want));
    assert_true(sandbox_spec_same_kind(&made, &want));
    made.network.mode = NETWORK_NONE;
    assert_false(sandbox_spec_same_kind(&made, &want));
}

TEST(a_zygote_does_not_separate_sandboxes_of_a_driver_without_zygotes)
{
    struct sandbox_spec made = plain_spec(), want = plain_spec();

    made.driver = want.driver = DRIVER_BWRAP;
    want.zygote = &python;
    assert_false(sandbox_spec_supports_zygote(&want));
    assert_true(sandbox_spec_equal(&made, &want));
    assert_true(sandbox_spec_same_kind(&made, &want));
}

TEST(a_claim_lowers_the_limit_of_processes_and_never_raises_it)
{
    struct sandbox_spec made = plain_spec(), want = plain_spec();

    want.limits.v[LIMIT_PIDS]--;
    assert_true(sandbox_spec_fits_claim(&made, &want));
    want.limits.v[LIMIT_PIDS] += 2;
    assert_false(sandbox_spec_fits_claim(&made, &want));
    want = plain_spec();
    want.limits.v[LIMIT_WORKSPACE]--;
    assert_false(sandbox_spec_fits_claim(&made, &want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_field_of_a_spec_is_in_the_table),
        RUN(a_changed_field_has_its_effect_on_both_comparisons),
        RUN(a_prepared_sandbox_serves_every_rule_of_its_network_mode),
        RUN(a_zygote_does_not_separate_sandboxes_of_a_driver_without_zygotes),
        RUN(a_claim_lowers_the_limit_of_processes_and_never_raises_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
