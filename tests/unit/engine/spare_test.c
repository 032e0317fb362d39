#include "fake.h"

static void forget_runtime(struct fake *k)
{
    fd_close(&k->runtime);
    fd_close(&k->cpu);
    fd_close(&k->oom);
}

/* The answer to J_CREATE, which was asked on this stream. */
static void jailer_made(struct fake *k, uint32_t stream, uint32_t walls)
{
    struct rt_hello hello;

    forget_runtime(k);
    got.f.stream = stream;
    jailer_created(k, walls);
    runtime_takes(k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    k->epoch = hello.epoch;
}

static void jailer_makes(struct fake *k, uint32_t walls)
{
    jailer_takes(k, FRAME_J_CREATE);
    jailer_made(k, got.f.stream, walls);
}

static void runtime_claims(struct fake *k)
{
    int before = k->ready;

    runtime_takes(k, FRAME_CLAIM);
    runtime_claimed(k, ALL_INSIDE, 3);
    assert_int_equal(k->ready, before + 1);
}

static void one_life(struct fake *k, const struct box_spec *spec)
{
    scene_asked(k, spec);
    jailer_makes(k, ALL_OUTSIDE);
    runtime_hello(k, WIRE_VERSION, k->epoch);
    runtime_claims(k);
}

static void the_end(struct fake *k)
{
    box_free(k->box);
    k->box = NULL;
    jailer_takes(k, FRAME_J_DESTROY);
}

static void scene_ahead(struct fake *k)
{
    struct box_spec spec = plain_spec();

    scene_engine(k);
    engine_make_ahead(k->engine);
    scene_asked(k, &spec);
    jailer_takes(k, FRAME_J_TEMPLATE);
    jailer_ok(k);
    jailer_makes(k, ALL_OUTSIDE);
    runtime_hello(k, WIRE_VERSION, k->epoch);
    runtime_claims(k);
}

/* Two of a kind were made; the third is made ahead with these walls, and the second is gone. */
static void scene_spare(struct fake *k, uint32_t walls)
{
    struct box_spec spec = plain_spec();

    scene_ahead(k);
    the_end(k);
    one_life(k, &spec);
    jailer_takes(k, FRAME_J_CREATE);
    uint32_t stream = got.f.stream;
    the_end(k);
    jailer_made(k, stream, walls);
    runtime_hello(k, WIRE_VERSION, k->epoch);
}

TEST(who_asked_once_gets_nothing_ahead)
{
    struct fake k;

    scene_ahead(&k);
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(an_engine_that_was_not_told_to_makes_nothing_ahead)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_ready(&k);
    the_end(&k);
    one_life(&k, &spec);
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(a_spare_is_claimed_by_nobody_until_somebody_asks)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    silent(&k, k.runtime);
    const char *id = engine_made_ahead(k.engine, &spec);
    assert_non_null(id);
    scene_asked(&k, &spec);
    assert_string_equal(box_id(k.box), id);
    assert_null(engine_made_ahead(k.engine, &spec));
    runtime_claims(&k);
    jailer_takes(&k, FRAME_J_CREATE); /* the next one, and no other was asked for */
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(the_claim_of_a_spare_is_its_taker_s)
{
    static const char *const env[] = { "WHOSE=mine", NULL };
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    spec.env = env;
    scene_asked(&k, &spec);
    runtime_takes(&k, FRAME_CLAIM);
    struct rt_claim claim;
    auto_free void *strings = NULL;
    assert_int_equal(rt_claim_decode(&got.f, &claim, &strings, NULL), 0);
    assert_string_equal(claim.id, k.id);
    bool found = false;
    for (const char *const *e = claim.env; *e; e++)
        found = found || strcmp(*e, env[0]) == 0;
    assert_true(found);
    scene_end(&k);
}

TEST(a_spare_that_is_still_being_made_can_be_taken)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_ahead(&k);
    the_end(&k);
    one_life(&k, &spec);
    jailer_takes(&k, FRAME_J_CREATE);
    uint32_t stream = got.f.stream;
    the_end(&k);
    scene_asked(&k, &spec);
    silent(&k, k.jailer);
    jailer_made(&k, stream, ALL_OUTSIDE);
    runtime_hello(&k, WIRE_VERSION, k.epoch);
    runtime_claims(&k);
    scene_end(&k);
}

TEST(what_differs_for_the_jailer_gets_one_of_its_own)
{
    static const struct box_mount mount = { .kind = BOX_BIND_RO, .fd = 0, .dst = "/mnt/x" };
    struct box_spec specs[5];
    struct fake k;

    for (size_t i = 0; i < ARRAY_LEN(specs); i++)
        specs[i] = plain_spec();
    specs[0].limits.v[LIMIT_MEMORY] -= 4096;
    specs[1].hostname = "elsewhere";
    specs[2].mounts = &mount;
    specs[2].nmounts = 1;
    specs[3].id = "sbaaaaaaaaaaaaaaaaaaaa";
    specs[4].grants = GRANT_BIT(DEBUG);
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        scene_spare(&k, ALL_OUTSIDE);
        if (!specs[i].id)
            assert_null(engine_made_ahead(k.engine, &specs[i]));
        scene_asked(&k, &specs[i]);
        if (specs[i].grants)
            jailer_takes(&k, FRAME_J_TEMPLATE);
        jailer_takes(&k, FRAME_J_CREATE);
        silent(&k, k.runtime);
        scene_end(&k);
    }
}

TEST(a_spare_with_a_wall_too_few_fails_its_taker)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE & ~JAIL_WALL_SECCOMP);
    scene_asked(&k, &spec);
    assert_int_equal(k.failed, 0);
    jailer_removes(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_WALL_MISSING);
    scene_end(&k);
}

TEST(a_spare_whose_taker_is_refused_is_given_to_nobody_else)
{
    static const char *const bad[] = { "=x", NULL };
    struct box_spec specs[2] = { plain_spec(), plain_spec() };
    struct err err = { 0 };
    struct fake k;

    specs[0].env = bad;
    specs[1].level = LEVEL_HIGH;
    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        scene_spare(&k, ALL_OUTSIDE);
        specs[i].id = engine_made_ahead(k.engine, &specs[i]);
        assert_non_null(specs[i].id);
        assert_int_equal(box_new(k.engine, &specs[i], &fake_box_ops, &k, &k.box, &err), -1);
        specs[i].id = NULL;
        assert_null(engine_made_ahead(k.engine, &specs[i]));
        jailer_takes(&k, FRAME_J_DESTROY);
        scene_end(&k);
    }
}

TEST(a_spare_that_died_is_given_to_nobody)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    fd_close(&k.runtime);
    jailer_removes(&k);
    assert_null(engine_made_ahead(k.engine, &spec));
    one_life(&k, &spec);
    assert_int_equal(k.failed, 0);
    scene_end(&k);
}

TEST(a_spare_that_says_claimed_by_itself_is_ended)
{
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    runtime_claimed(&k, ALL_INSIDE, 3);
    jailer_takes(&k, FRAME_J_DESTROY);
    scene_end(&k);
}

TEST(a_spare_of_another_kind_makes_room_when_that_was_asked_for_twice)
{
    struct box_spec spec = plain_spec();
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    spec.limits.v[LIMIT_MEMORY] -= 4096;
    int spare = take_fd(&k.runtime);
    one_life(&k, &spec);
    silent(&k, k.jailer);
    the_end(&k);
    one_life(&k, &spec);
    jailer_takes(&k, FRAME_J_DESTROY);
    jailer_takes(&k, FRAME_J_CREATE);
    close(spare);
    scene_end(&k);
}

TEST(a_spare_does_not_keep_back_the_news_that_the_jailer_is_lost)
{
    struct fake k;

    scene_spare(&k, ALL_OUTSIDE);
    fd_close(&k.jailer);
    turn_until(&k, &k.lost);
    scene_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(who_asked_once_gets_nothing_ahead),
        RUN(an_engine_that_was_not_told_to_makes_nothing_ahead),
        RUN(a_spare_is_claimed_by_nobody_until_somebody_asks),
        RUN(the_claim_of_a_spare_is_its_taker_s),
        RUN(a_spare_that_is_still_being_made_can_be_taken),
        RUN(what_differs_for_the_jailer_gets_one_of_its_own),
        RUN(a_spare_with_a_wall_too_few_fails_its_taker),
        RUN(a_spare_whose_taker_is_refused_is_given_to_nobody_else),
        RUN(a_spare_that_died_is_given_to_nobody),
        RUN(a_spare_that_says_claimed_by_itself_is_ended),
        RUN(a_spare_of_another_kind_makes_room_when_that_was_asked_for_twice),
        RUN(a_spare_does_not_keep_back_the_news_that_the_jailer_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
