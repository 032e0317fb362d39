/* Every field of a spec decides whether a prepared sandbox serves it, or is set by the claim. */
#include "fake.h"

#include "sandbox/engine_internal.h"

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
CHANGE(limits, s->limits.v[LIMIT_MEMORY] *= 2)
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

/* One value for each field, in order. A new field is a missing value here and does not compile,
 * also where it fits into the padding between others. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wmissing-field-initializers"
static const struct sandbox_spec every_field = {
    "sbaaaaaaaaaaaaaaaaaaaa", /* id */
    DRIVER_NATIVE,            /* driver */
    LEVEL_STANDARD,           /* level */
    "strict",                 /* policy */
    PROFILE_PYTHON,           /* profile */
    0,                        /* grants */
    { 0 },                    /* deny */
    { { 0 } },                /* limits */
    { NETWORK_EGRESS, "" },   /* network: its rules belong to the claim */
    &secret,                  /* secrets */
    1,                        /* nsecrets */
    "acme",                   /* tenant */
    { 1, 1, 1 },              /* share */
    true,                     /* require_all_walls */
    &python,                  /* zygote */
    1,                        /* require_enforced */
    "other",                  /* hostname */
    env,                      /* env */
    &mount,                   /* mounts */
    1,                        /* nmounts */
    7,                        /* owner_uid */
    7,                        /* owner_gid */
};
#pragma GCC diagnostic pop

TEST(a_stored_spec_owns_what_separates_sandboxes_and_has_nothing_of_the_claim)
{
    struct sandbox_spec spec = every_field, none = { 0 };
    char hostname[] = "other", language[] = "python", preload[] = "json";
    struct zygote_spec zygote = { language, preload };
    struct owned_spec owned = { 0 };

    limits_default(&spec.limits);
    spec.hostname = hostname;
    spec.zygote = &zygote;
    owned_spec_set(&owned, &spec);
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        const char *at = (const char *)&owned.spec + fields[i].at;

        if (fields[i].effect == CLAIMED && memcmp(at, (const char *)&none + fields[i].at, fields[i].size) != 0)
            fail_msg("%s: belongs to the claim", fields[i].name);
    }
    assert_null(owned.spec.network.rules);
    spec.mounts = NULL;
    spec.nmounts = 0;
    assert_true(sandbox_spec_equal(&owned.spec, &spec));
    memset(hostname, 'x', 1);
    memset(preload, 'x', 1);
    assert_string_equal(owned.spec.hostname, "other");
    assert_string_equal(owned.spec.zygote->preload, "json");
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) { /* one field at a time */
        struct sandbox_spec one = plain_spec();

        fields[i].change(&one);
        if (one.nmounts)
            continue; /* never stored */
        owned_spec_set(&owned, &one);
        if (!sandbox_spec_equal(&owned.spec, &one))
            fail_msg("%s: was lost from the stored spec", fields[i].name);
    }
    owned_spec_done(&owned);
}

/* The engine does not rely on the pool: the claim itself compares what was made. */
TEST(a_claim_is_refused_unless_the_sandbox_was_made_for_its_spec)
{
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        struct sandbox_spec like = plain_spec(), want = plain_spec();
        struct err err = { 0 };
        struct fake k;

        fields[i].change(&want);
        want.id = NULL; /* a claim has the id of the sandbox, or none */
        scene_engine(&k);
        assert_int_equal(sandbox_handle_prepare(k.engine, &like, &fake_box_ops, &k, &k.box, &err), 0);
        int rc = sandbox_handle_claim(k.box, &want, &fake_box_ops, &k, &err);
        if ((rc < 0) != (fields[i].effect == SEPARATES))
            fail_msg("%s: claim %d %s", fields[i].name, rc, err.msg);
        scene_end(&k);
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
        RUN(a_stored_spec_owns_what_separates_sandboxes_and_has_nothing_of_the_claim),
        RUN(a_claim_is_refused_unless_the_sandbox_was_made_for_its_spec),
        RUN(a_changed_field_has_its_effect_on_both_comparisons),
        RUN(a_prepared_sandbox_serves_every_rule_of_its_network_mode),
        RUN(a_zygote_does_not_separate_sandboxes_of_a_driver_without_zygotes),
        RUN(a_claim_lowers_the_limit_of_processes_and_never_raises_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
