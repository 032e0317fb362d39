/* Runs of an executor with a real manager and store, and a jailer that never answers. */
#include "tests/unit/sandbox/fake.h"

#include "service/execute/executor_internal.h"
#include "service/tenant_quotas.h"

#include <sys/stat.h>

static char dir[64], db[96];

struct scene {
    struct ev *ev;
    int jailer;
    struct store *store;
    struct manager *manager;
    struct executor *executor;
};

/* One request: the run and how it ended. */
struct client {
    struct scene *scene;
    struct run *run;
    int ends;
    struct err err;
};

static int connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err UNUSED)
{
    struct scene *s = arg;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->jailer);
    s->jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    return 0;
}

static void scene_open(struct scene *s, uint32_t running_max, uint32_t waiting_max)
{
    struct store_settings store = { .url.file = db };
    struct manager_settings set = { .output_dir = dir,
                                    .connect = connect_jailer,
                                    .arg = s,
                                    .executions_max = 64,
                                    .creating_max = 16,
                                    .starting_max = 64 };
    struct err err = { 0 };

    *s = (struct scene){ .jailer = -1 };
    assert_int_equal(ev_new(&s->ev, &err), 0);
    if (store_open(s->ev, &store, &s->store, &err) < 0)
        fail_msg("%s", err.msg);
    set.store = s->store;
    assert_int_equal(manager_new(s->ev, &set, &s->manager, &err), 0);
    uint64_t end = now_ms() + 5000;
    while (!manager_ready(s->manager, NULL) && now_ms() < end)
        ev_turn(s->ev, 5);
    assert_true(manager_ready(s->manager, NULL));
    s->executor = executor_new(&(struct executor_settings){ .ev = s->ev,
                                                            .ephemerals = manager_ephemerals(s->manager),
                                                            .running_max = running_max,
                                                            .waiting_max = waiting_max,
                                                            .wait_ms = 30000,
                                                            .output_bytes = 256 * MIB,
                                                            .cache_age_ms = 3600000 });
}

static void scene_close(struct scene *s)
{
    executor_finish(s->executor);
    executor_free(s->executor);
    manager_free(s->manager);
    store_close(s->store);
    ev_turn(s->ev, 0);
    ev_free(s->ev);
    fd_close(&s->jailer);
    unlink(db);
}

static void set_quota(struct scene *s, const char *tenant, enum store_quota quota, uint64_t limit)
{
    struct store_tenant row = { 0 };

    str_copy(row.name, sizeof(row.name), tenant);
    row.quota[quota] = limit;
    tenant_quotas_set(manager_quotas(s->manager), &row);
}

static void on_end(void *arg, const struct err *err, const struct run_result *r UNUSED)
{
    struct client *c = arg;

    c->ends++;
    c->run = NULL;
    if (err)
        c->err = *err;
}

static int submit(struct scene *s, struct client *c, const char *tenant)
{
    static const struct run_ops ops = { .on_end = on_end };
    static const char *const argv[] = { "/bin/true", NULL };
    struct spec spec;
    struct run_request req = { .owner = tenant, .spec = &spec, .argv = argv, .timeout_ms = 1000 };

    *c = (struct client){ .scene = s };
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "sh");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    int rc = executor_run(s->executor, &req, &ops, c, &c->run, &c->err);
    spec_done(&spec);
    return rc;
}

TEST(tenants_refused_in_one_turn_get_the_figures_of_their_own_quota)
{
    struct scene s;
    struct client red, blue;

    scene_open(&s, 64, 512);
    set_quota(&s, "red", STORE_QUOTA_CPU, 7);
    set_quota(&s, "blue", STORE_QUOTA_MEMORY, 9);
    assert_int_equal(submit(&s, &red, "red"), 0);
    assert_int_equal(submit(&s, &blue, "blue"), 0);
    assert_int_equal(red.ends + blue.ends, 0);
    ev_turn(s.ev, 0);
    assert_int_equal(red.ends, 1);
    assert_int_equal(blue.ends, 1);
    assert_int_equal(red.err.id, ERR_QUOTA);
    assert_string_equal(red.err.limit.name, "cpuMillis");
    assert_int_equal(red.err.limit.max, 7);
    assert_int_equal(blue.err.id, ERR_QUOTA);
    assert_string_equal(blue.err.limit.name, "memoryBytes");
    assert_int_equal(blue.err.limit.max, 9);
    scene_close(&s);
}

TEST(the_wait_that_a_tenant_is_asked_for_is_not_passed_to_another)
{
    struct scene s;
    struct client first, red, blue;

    scene_open(&s, 64, 512);
    set_quota(&s, "red", STORE_QUOTA_EXECUTIONS, 1);
    set_quota(&s, "blue", STORE_QUOTA_MEMORY, 9);
    assert_int_equal(submit(&s, &first, "red"), 0);
    assert_int_equal(submit(&s, &blue, "blue"), 0);
    assert_int_equal(submit(&s, &red, "red"), -1);
    ev_turn(s.ev, 0);
    assert_int_equal(red.err.id, ERR_QUOTA);
    assert_string_equal(red.err.limit.name, "executionsPerHour");
    assert_true(red.err.limit.retry_ms > 0);
    assert_int_equal(blue.ends, 1);
    assert_string_equal(blue.err.limit.name, "memoryBytes");
    assert_int_equal(blue.err.limit.retry_ms, 0); /* waiting does not free memory */
    scene_close(&s);
}

/* --- the queue --- */

#define WAITING_MAX 4u

/* Compares the counter that admission uses with the runs themselves. */
static void check_waiting(const struct scene *s, uint32_t expected)
{
    struct executor_stats stats;
    uint32_t waiting = 0;

    for (const struct run *r = s->executor->runs; r; r = r->next)
        waiting += r->state == EXECUTION_WAITING && r->counted_waiting;
    assert_int_equal(s->executor->nwaiting, waiting);
    executor_stats(s->executor, &stats);
    assert_int_equal(stats.waiting, waiting);
    assert_int_equal(waiting, expected);
}

TEST(as_many_runs_wait_as_the_queue_has_places_and_the_next_is_refused)
{
    struct scene s;
    struct client running, waiting[WAITING_MAX], late;
    char tenant[16];

    scene_open(&s, 1, WAITING_MAX);
    check_waiting(&s, 0);
    assert_int_equal(submit(&s, &running, "first"), 0);
    check_waiting(&s, 0);
    for (unsigned i = 0; i < WAITING_MAX; i++) {
        snprintf(tenant, sizeof(tenant), "tenant%u", i);
        assert_int_equal(submit(&s, &waiting[i], tenant), 0);
        check_waiting(&s, i + 1);
    }
    assert_int_equal(submit(&s, &late, "late"), -1);
    assert_int_equal(late.err.id, ERR_EXECUTOR_FULL);
    check_waiting(&s, WAITING_MAX);
    run_cancel(waiting[1].run); /* its place in the queue is free at once */
    check_waiting(&s, WAITING_MAX - 1);
    assert_int_equal(submit(&s, &late, "late"), 0);
    check_waiting(&s, WAITING_MAX);
    run_cancel(running.run);
    for (int i = 0; i < 20; i++) {
        ev_turn(s.ev, 1);
        check_waiting(&s, s.executor->nwaiting);
    }
    scene_close(&s);
}

TEST(a_stopped_tenant_leaves_the_queue)
{
    struct scene s;
    struct client running, waiting[2];
    struct store_tenant row = { .name = "red", .suspended_ms = 1 };

    scene_open(&s, 1, WAITING_MAX);
    assert_int_equal(submit(&s, &running, "blue"), 0);
    assert_int_equal(submit(&s, &waiting[0], "red"), 0);
    assert_int_equal(submit(&s, &waiting[1], "blue"), 0);
    check_waiting(&s, 2);
    tenant_quotas_set(manager_quotas(s.manager), &row);
    check_waiting(&s, 1);
    ev_turn(s.ev, 0);
    check_waiting(&s, 1);
    assert_int_equal(waiting[0].ends, 1);
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
        RUN(tenants_refused_in_one_turn_get_the_figures_of_their_own_quota),
        RUN(the_wait_that_a_tenant_is_asked_for_is_not_passed_to_another),
        RUN(as_many_runs_wait_as_the_queue_has_places_and_the_next_is_refused),
        RUN(a_stopped_tenant_leaves_the_queue),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
