/* The manager with a fake jailer and a real store: what it reports, and when. */
#include "tests/unit/sandbox/fake.h"

#include "service/manager.h"

#include <sys/stat.h>

static char dir[64], db[96];
static int connects;

struct scene {
    struct fake k; /* its ev, jailer and runtime are used */
    struct store *store;
    struct manager *m;
    int answers;
    struct err err;
    bool failed;
    enum store_sandbox_state state;
    char ended_by[16];
};

static int connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err UNUSED)
{
    struct scene *s = arg;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->k.jailer);
    s->k.jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    connects++;
    return 0;
}

static void on_row(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct scene *s = arg;

    s->answers++;
    s->failed = err != NULL;
    if (err) {
        s->err = *err;
        return;
    }
    s->state = row->state;
    str_copy(s->ended_by, sizeof(s->ended_by), row->ended_by ? row->ended_by : "");
}

/* Waits for the next request of this type to the jailer; skips others (the monitor's socket, the
 * list). */
static void expect(struct scene *s, uint8_t type)
{
    uint64_t end = now_ms() + 5000;

    while (now_ms() < end) {
        ev_turn(s->k.ev, 5);
        while (take_any(s->k.jailer))
            if (got.f.type == type)
                return;
    }
    fail_msg("%s was never requested", frame_name(type));
}

static void answered(struct scene *s)
{
    turn_until(&s->k, &s->answers);
    s->answers = 0;
}

static void scene_open(struct scene *s, uint32_t live_max)
{
    struct store_settings store = { .path = db };
    struct manager_settings set = { .output_dir = dir,
                                    .connect = connect_jailer,
                                    .arg = s,
                                    .live_max = live_max,
                                    .executions_max = 64,
                                    .creating_max = 16,
                                    .starting_max = 64 };
    struct err err = { 0 };

    *s = (struct scene){ .k = { .jailer = -1, .runtime = -1, .cpu = -1 } };
    assert_int_equal(ev_new(&s->k.ev, &err), 0);
    if (store_open(s->k.ev, &store, &s->store, &err) < 0)
        fail_msg("%s", err.msg);
    set.store = s->store;
    assert_int_equal(manager_new(s->k.ev, &set, &s->m, &err), 0);
    uint64_t end = now_ms() + 5000;
    while (!manager_ready(s->m, NULL) && now_ms() < end)
        ev_turn(s->k.ev, 5);
    assert_true(manager_ready(s->m, NULL));
}

static void scene_close(struct scene *s)
{
    manager_free(s->m);
    store_close(s->store);
    ev_turn(s->k.ev, 0);
    ev_free(s->k.ev);
    fd_close(&s->k.jailer);
    fd_close(&s->k.runtime);
    fd_close(&s->k.cpu);
    (void)take_any(-1);
    unlink(db);
}

static const char name[] = "sbaaaaaaaaaaaaaaaaaaaa";

static void create(struct scene *s, const char *id)
{
    struct spec spec;

    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "sh");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    manager_create(s->m, "me", id, &spec, NULL, NULL, on_row, s);
}

/* Creates a sandbox up to the point at which the jailer is asked to keep it. */
static void create_ready(struct scene *s)
{
    struct rt_hello hello;

    create(s, name);
    expect(s, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
    expect(s, FRAME_J_CREATE);
    jailer_created(&s->k, ALL_OUTSIDE);
    turn(&s->k);
    take(s->k.runtime, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&s->k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    expect(s, FRAME_J_KEEP);
}

static void get(struct scene *s)
{
    store_sandbox_get(s->store, "me", name, on_row, s);
    answered(s);
}

TEST(a_sandbox_is_reported_after_the_jailer_keeps_it_and_its_row_is_running)
{
    struct scene s;

    scene_open(&s, 0);
    create_ready(&s);
    for (int i = 0; i < 20; i++)
        ev_turn(s.k.ev, 1);
    assert_int_equal(s.answers, 0); /* the jailer has not promised to keep it yet */
    jailer_ok(&s.k);
    answered(&s);
    assert_false(s.failed);
    assert_int_equal(s.state, STORE_SANDBOX_RUNNING);
    get(&s);
    assert_int_equal(s.state, STORE_SANDBOX_RUNNING);
    scene_close(&s);
}

TEST(a_sandbox_that_cannot_be_kept_is_destroyed_and_its_row_says_why)
{
    struct scene s;

    scene_open(&s, 0);
    create_ready(&s);
    jailer_error(&s.k, ERR_SYS, "cannot keep it");
    expect(&s, FRAME_J_DESTROY);
    assert_int_equal(s.answers, 0);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    assert_true(s.failed);
    assert_int_equal(s.err.id, ERR_SYS);
    get(&s);
    assert_int_equal(s.state, STORE_SANDBOX_ENDED);
    assert_string_equal(s.ended_by, ""); /* a sandbox that was never created has no endedBy */
    scene_close(&s);
}

static void on_emptied(void *arg)
{
    struct scene *s = arg;

    s->answers++;
}

TEST(ending_all_sandboxes_waits_until_their_ends_are_committed)
{
    struct scene s;
    struct err why;

    scene_open(&s, 0);
    create_ready(&s);
    jailer_ok(&s.k);
    answered(&s);
    err_set(&why, ERR_SANDBOX_ENDED, "the server was stopped");
    manager_end_all(s.m, &why, on_emptied, &s);
    expect(&s, FRAME_J_DESTROY);
    assert_int_equal(s.answers, 0);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    get(&s);
    assert_int_equal(s.state, STORE_SANDBOX_ENDED);
    assert_string_equal(s.ended_by, "killed");
    manager_end_all(s.m, &why, on_emptied, &s); /* no sandbox is left */
    assert_int_equal(s.answers, 1);
    scene_close(&s);
}

TEST(a_sandbox_beyond_the_limit_is_refused_and_destroyed)
{
    struct scene s;

    scene_open(&s, 1);
    create_ready(&s);
    jailer_ok(&s.k);
    answered(&s);
    create(&s, NULL);
    expect(&s, FRAME_J_CREATE);
    struct store_stats st = { .waiting = 1 };
    while (st.waiting > 0) { /* until the store has reported that one exists already */
        ev_turn(s.k.ev, 5);
        store_stats(s.store, &st);
    }
    fd_close(&s.k.runtime);
    fd_close(&s.k.cpu);
    jailer_created(&s.k, ALL_OUTSIDE);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    assert_true(s.failed);
    assert_int_equal(s.err.id, ERR_LIMIT);
    scene_close(&s);
}

TEST(a_lost_jailer_fails_pending_creations_and_is_reconnected)
{
    struct scene s;

    connects = 0;
    scene_open(&s, 0);
    create(&s, name);
    expect(&s, FRAME_J_CREATE);
    fd_close(&s.k.jailer);
    answered(&s);
    assert_true(s.failed);
    get(&s);
    assert_int_equal(s.state, STORE_SANDBOX_ENDED);
    uint64_t end = now_ms() + 5000;
    while (connects < 2 && now_ms() < end)
        ev_turn(s.k.ev, 20);
    assert_int_equal(connects, 2);
    assert_true(manager_ready(s.m, NULL));
    scene_close(&s);
}

static int set_up(void **state UNUSED)
{
    str_copy(dir, sizeof(dir), "/tmp/cove-unit-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(db, sizeof(db), "%s/cove.db", dir);
    return 0;
}

static int tear_down(void **state UNUSED)
{
    char command[120];

    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_sandbox_is_reported_after_the_jailer_keeps_it_and_its_row_is_running),
        RUN(a_sandbox_that_cannot_be_kept_is_destroyed_and_its_row_says_why),
        RUN(ending_all_sandboxes_waits_until_their_ends_are_committed),
        RUN(a_sandbox_beyond_the_limit_is_refused_and_destroyed),
        RUN(a_lost_jailer_fails_pending_creations_and_is_reconnected),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
