/* Requests that a client may not send, sends twice, or sends at the wrong moment: each gets exactly
 * one correct answer. Also the state that a jailer may find when it starts. */
#include "jail_host.h"

#include "core/base/clock.h"

#include <sys/socket.h>
#include <sys/un.h>

/* The answers to the last two requests, in any order; events are skipped. */
static void expect_both(struct host *h, uint8_t types[2], enum err_id ids[2])
{
    bool seen[2] = { false, false };

    for (int n = 0; n < 2;) {
        struct reply r;
        struct rt_error e = { 0 };

        receive(h, &r);
        if (r.f.type == FRAME_J_EVENT)
            continue;
        size_t which = r.f.stream == h->stream;
        assert_true(r.f.stream == h->stream || r.f.stream == h->stream - 2);
        assert_false(seen[which]);
        seen[which] = true;
        types[which] = r.f.type;
        if (r.f.type == FRAME_J_ERROR)
            assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
        ids[which] = (enum err_id)e.id;
        n++;
    }
}

TEST(the_list_names_exactly_the_live_sandboxes)
{
    struct host h;
    struct reply r, l;
    static struct jail_list m;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    send_frame(&h, FRAME_J_LIST, NULL, 0, NULL, 0);
    answer_of(&h, &l);
    assert_int_equal(l.f.type, FRAME_DONE);
    assert_int_equal(jail_list_decode(&l.f, &m, NULL), 0);
    assert_int_equal(m.n, 1);
    assert_string_equal(m.ids[0], id);
    ask(&h, FRAME_J_KILL, id);
    expect(&h, FRAME_J_OK);
    send_frame(&h, FRAME_J_LIST, NULL, 0, NULL, 0);
    answer_of(&h, &l);
    assert_int_equal(jail_list_decode(&l.f, &m, NULL), 0);
    assert_int_equal(m.n, 0);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_second_kill_and_a_kill_of_an_ended_sandbox_succeed)
{
    struct host h;
    struct reply r;
    uint8_t types[2];
    enum err_id ids[2];
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_KILL, id);
    ask(&h, FRAME_J_KILL, id);
    expect_both(&h, types, ids);
    assert_int_equal(types[0], FRAME_J_OK);
    assert_true(types[1] == FRAME_J_OK || ids[1] == ERR_EXISTS);
    ask(&h, FRAME_J_KILL, id);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_STATS, id); /* its counters still exist */
    expect(&h, FRAME_DONE);
    ask(&h, FRAME_J_FREEZE, id);
    expect_error(&h, ERR_EXISTS);
    ask_keep(&h, id, r.fds[0]);
    expect_error(&h, ERR_EXISTS);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(a_destroy_requested_twice_is_answered_twice)
{
    struct host h;
    struct reply r;
    uint8_t types[2];
    enum err_id ids[2];
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_DESTROY, id);
    ask(&h, FRAME_J_DESTROY, id);
    expect_both(&h, types, ids);
    assert_int_equal(types[0], FRAME_DONE);
    assert_true(ids[1] == ERR_EXISTS || ids[1] == ERR_MISSING);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

/* A freeze in progress and a kill share one timer. */
TEST(a_kill_during_a_freeze_answers_both)
{
    struct host h;
    struct reply r;
    uint8_t types[2];
    enum err_id ids[2];
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_FREEZE, id);
    ask(&h, FRAME_J_KILL, id);
    expect_both(&h, types, ids);
    assert_true(types[0] == FRAME_J_OK || ids[0] == ERR_LOST);
    assert_int_equal(types[1], FRAME_J_OK);
    assert_true(readable_within(r.fds[1], 0));
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(a_sandbox_id_cannot_be_used_twice)
{
    struct host h;
    struct reply r;
    struct jail_create c = a_request();
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    memcpy(c.id, id, sizeof(c.id));
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_EXISTS);
    ask(&h, FRAME_J_STATS, id);
    expect(&h, FRAME_DONE);
    drop_fds(&r);
    host_stop(&h);
}

TEST(the_jailer_refuses_requests_that_belong_to_the_monitor)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_DENIALS, id);
    expect_error(&h, ERR_PROTOCOL);
    ask(&h, FRAME_J_UNWATCH, id);
    expect_error(&h, ERR_PROTOCOL);
    send_frame(&h, FRAME_J_MONITOR, NULL, 0, NULL, 0); /* there is no monitor here */
    expect_error(&h, ERR_MISSING);
    send_frame(&h, FRAME_J_MONITOR, (const uint8_t *)"junk", 4, NULL, 0);
    expect_error(&h, ERR_PROTOCOL);
    send_frame(&h, FRAME_J_STATS, (const uint8_t *)"junk", 4, NULL, 0);
    expect_error(&h, ERR_PROTOCOL);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_sandbox_has_one_workspace)
{
    struct host h;
    struct jail_create c = a_request();
    char dir[] = "/tmp/cove-test-XXXXXX";

    assert_non_null(mkdtemp(dir));
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    c.nmounts = 2;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_WORKSPACE, .fd = 0 };
    c.mounts[1] = (struct jail_mount){ .kind = JAIL_WORKSPACE, .fd = 0 };
    ask_create(&h, &c, &fd, 1);
    expect_error(&h, ERR_INVALID);
    close(fd);
    host_stop(&h);
    assert_int_equal(leaves(c.id), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void create_from(struct host *h, const char *template, uint8_t answer)
{
    struct jail_create c = a_request();
    struct reply r;

    id_new("sb", c.id);
    strcpy(c.template, template);
    ask_create(h, &c, NULL, 0);
    answer_of(h, &r);
    assert_int_equal(r.f.type, answer);
    drop_fds(&r);
}

TEST(the_least_recently_used_template_is_evicted_and_none_in_use)
{
    struct host h;
    char name[16];

    host_start(&h);
    for (unsigned i = 0; i < 64; i++) {
        snprintf(name, sizeof(name), "t%u", i);
        ask_template(&h, name);
        expect(&h, FRAME_J_OK);
    }
    create_from(&h, "t0", FRAME_J_CREATED); /* the oldest, and in use */
    ask_template(&h, "t1");                 /* requested again, so it is about to be used */
    expect_error(&h, ERR_EXISTS);
    ask_template(&h, "t64");
    expect(&h, FRAME_J_OK);
    create_from(&h, "t2", FRAME_J_ERROR);
    create_from(&h, "t0", FRAME_J_CREATED);
    create_from(&h, "t1", FRAME_J_CREATED);
    create_from(&h, "t64", FRAME_J_CREATED);
    host_stop(&h);
}

/* Only the jailer measures the lifetime of a sandbox whose client is gone. */
static void ask_extend(struct host *h, const char *id, uint64_t lifetime_ms)
{
    struct jail_set_limits m = { .lifetime_ms = lifetime_ms };
    uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(m.id, id, sizeof(m.id));
    int len = jail_set_limits_encode(&m, out, NULL);
    send_frame(h, FRAME_J_SET_LIMITS, out, len, NULL, 0);
}

static void ask_limits(struct host *h, const struct jail_create *c)
{
    struct jail_set_limits m = { .lifetime_ms = 60000,
                                 .memory = c->limits[LIMIT_MEMORY],
                                 .swap = c->limits[LIMIT_SWAP],
                                 .cpu = c->limits[LIMIT_CPU],
                                 .pids = c->limits[LIMIT_PIDS] };
    uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(m.id, c->id, sizeof(m.id));
    send_frame(h, FRAME_J_SET_LIMITS, out, jail_set_limits_encode(&m, out, NULL), NULL, 0);
}

/* The number in a file of the leaf, in v1 or v2. */
static uint64_t leaf_number(const char *id, const char *v1_tree, const char *v1_file, const char *v2_file)
{
    char path[256];
    unsigned long long n = 0;

    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s/%s/%s", v1_tree, cgroup_parent(), id, v1_file);
    FILE *f = fopen(path, "re");
    if (!f) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s/%s", cgroup_parent(), id, v2_file);
        f = fopen(path, "re");
    }
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &n), 1);
    fclose(f);
    return n;
}

TEST(limits_of_a_live_sandbox_can_be_changed_and_processes_only_lowered)
{
    struct host h;
    struct reply r;
    struct jail_create c = a_request();

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    ask_create(&h, &c, NULL, 0);
    answer_of(&h, &r);
    greet(r.fds[0]);
    for (int i = 0; i < 3; i++) { /* more, less, more */
        c.limits[LIMIT_MEMORY] = (i == 1 ? 400 : 1024) * MIB;
        c.limits[LIMIT_PIDS] = 60 - (uint64_t)i;
        c.limits[LIMIT_CPU] = 500;
        ask_limits(&h, &c);
        expect(&h, FRAME_J_OK);
        assert_int_equal(leaf_number(c.id, "memory", "memory.limit_in_bytes", "memory.max"), c.limits[LIMIT_MEMORY]);
        assert_int_equal(leaf_number(c.id, "pids", "pids.max", "pids.max"), 60 - i);
        assert_int_equal(leaf_number(c.id, "cpu", "cpu.cfs_quota_us", "cpu.max"), 50000);
    }
    c.limits[LIMIT_PIDS] = 59;
    ask_limits(&h, &c);
    expect_error(&h, ERR_INVALID);
    c.limits[LIMIT_PIDS] = 50;
    c.limits[LIMIT_MEMORY] = 100 * MIB; /* less than its file systems may hold */
    ask_limits(&h, &c);
    expect_error(&h, ERR_INVALID);
    assert_int_equal(leaf_number(c.id, "memory", "memory.limit_in_bytes", "memory.max"), 1024 * MIB);
    assert_int_equal(leaf_number(c.id, "pids", "pids.max", "pids.max"), 58);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_kept_sandbox_lives_until_the_last_lifetime_that_was_set)
{
    struct host h;
    struct reply r;
    struct jail_create c = a_request();

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    c.limits[LIMIT_WALL] = 1;
    c.limits[LIMIT_LIFETIME] = 200;
    ask_create(&h, &c, NULL, 0);
    answer_of(&h, &r);
    greet(r.fds[0]);
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    ask_extend(&h, c.id, 60000);
    expect(&h, FRAME_J_OK);
    assert_false(readable_within(r.fds[1], 400)); /* it outlives its first lifetime */
    ask_extend(&h, c.id, 0);
    expect_error(&h, ERR_INVALID);
    ask_extend(&h, c.id, UINT64_MAX);
    expect_error(&h, ERR_INVALID);
    ask_extend(&h, c.id, 50);
    expect(&h, FRAME_J_OK);
    assert_true(readable_within(r.fds[1], 5000));
    ask_extend(&h, "sbaaaaaaaaaaaaaaaaaaaa", 1000);
    expect_error(&h, ERR_MISSING);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_kept_sandbox_ends_with_its_lifetime)
{
    struct host h;
    struct reply r;
    struct jail_create c = a_request();
    int status;

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    c.limits[LIMIT_WALL] = 1;
    c.limits[LIMIT_LIFETIME] = 300;
    ask_create(&h, &c, NULL, 0);
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_CREATED);
    greet(r.fds[0]);
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, c.id); /* as after a crash of cove; frozen processes die too */
    expect(&h, FRAME_J_OK);
    close(h.sock);
    assert_true(readable_within(r.fds[1], 5000));
    drop_fds(&r);
    assert_int_equal(waitpid(h.jailer, &status, 0), h.jailer);
    assert_int_equal(status, 0);
    assert_int_equal(leaves(c.id), 0);
}

TEST(leftovers_of_a_killed_jailer_can_be_removed_without_starting_one)
{
    struct host h;
    struct reply r;
    struct err err = { 0 };
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    kill(h.jailer, SIGKILL);
    waitpid(h.jailer, NULL, 0);
    close(h.sock);
    assert_true(readable_within(r.fds[1], 5000));
    drop_fds(&r);
    assert_true(leaves(id) > 0);
    /* Its spawner may still be ending, and until then the sandbox has an owner. */
    for (int i = 0; i < 100 && leaves(id) > 0; i++) {
        assert_true(jailer_sweep(state_dir, &err) >= 0);
        poll(NULL, 0, 20);
    }
    assert_int_equal(leaves(id), 0);
}

TEST(a_state_directory_writable_by_others_is_refused_on_every_request)
{
    char dir[] = "/tmp/cove-test-XXXXXX", kept[sizeof(state_dir)];
    struct host h;
    struct err err = { 0 };
    int status;

    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(jailer_sweep(dir, &err), -1);
    assert_int_equal(err.id, ERR_DENIED);
    memcpy(kept, state_dir, sizeof(kept));
    strcpy(state_dir, dir);
    host_start(&h);
    memcpy(state_dir, kept, sizeof(kept));
    ask_template(&h, "t");
    expect_error(&h, ERR_DENIED);
    ask_template(&h, "t");
    expect_error(&h, ERR_DENIED);
    close(h.sock);
    assert_int_equal(waitpid(h.jailer, &status, 0), h.jailer);
    assert_true(WIFEXITED(status));
    assert_int_equal(rmdir(dir), 0);
}

TEST(a_stale_socket_of_a_kept_sandbox_is_removed)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    struct err err = { 0 };
    char id[ID_SIZE], kept[128], deep[128];
    int sock = -1;

    id_new("sb", id);
    snprintf(kept, sizeof(kept), "%s/kept", state_dir);
    assert_true(mkdir(kept, 0700) == 0 || access(kept, F_OK) == 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/%s", kept, id);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(s);
    assert_int_equal(jailer_connect_kept(state_dir, id, &sock, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    assert_int_not_equal(access(addr.sun_path, F_OK), 0);
    assert_int_equal(jailer_connect_kept(state_dir, "sb/../../etc/passwd", &sock, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    memset(deep, 'd', sizeof(deep) - 1); /* longer than the path of a socket may be */
    deep[0] = '/';
    deep[sizeof(deep) - 1] = '\0';
    assert_int_equal(jailer_connect_kept(deep, id, &sock, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(sock, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_list_names_exactly_the_live_sandboxes),
        RUN(a_second_kill_and_a_kill_of_an_ended_sandbox_succeed),
        RUN(a_destroy_requested_twice_is_answered_twice),
        RUN(a_kill_during_a_freeze_answers_both),
        RUN(a_sandbox_id_cannot_be_used_twice),
        RUN(the_jailer_refuses_requests_that_belong_to_the_monitor),
        RUN(a_sandbox_has_one_workspace),
        RUN(the_least_recently_used_template_is_evicted_and_none_in_use),
        RUN(a_kept_sandbox_lives_until_the_last_lifetime_that_was_set),
        RUN(limits_of_a_live_sandbox_can_be_changed_and_processes_only_lowered),
        RUN(a_kept_sandbox_ends_with_its_lifetime),
        RUN(leftovers_of_a_killed_jailer_can_be_removed_without_starting_one),
        RUN(a_state_directory_writable_by_others_is_refused_on_every_request),
        RUN(a_stale_socket_of_a_kept_sandbox_is_removed),
    };

    if (geteuid() != 0) {
        printf("1..0 # SKIP the native driver requires root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
