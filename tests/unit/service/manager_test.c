/* The manager with a fake jailer and a real store: what it reports, and when. */
#include "tests/unit/sandbox/fake.h"

#include "sandbox/pool/pool_internal.h"
#include "service/execution_internal.h"
#include "service/ephemeral_sandbox.h"

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
    struct store_settings store = { .url.file = db };
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

static struct sandbox *only_sandbox(const struct scene *s)
{
    assert_int_equal(registry_count(manager_sandbox_services(s->m)->registry), 1);
    return registry_next(manager_sandbox_services(s->m)->registry, NULL);
}

TEST(a_sandbox_that_is_deleted_while_it_is_created_ends_its_claim)
{
    struct scene s;

    scene_open(&s, 0);
    create(&s, NULL);
    expect(&s, FRAME_J_CREATE);
    assert_int_equal(manager_sandbox_services(s.m)->supply->pools->claims_in_flight, 1);
    manager_delete(s.m, "me", only_sandbox(&s)->id, on_row, &s);
    assert_int_equal(manager_sandbox_services(s.m)->supply->pools->claims_in_flight, 0);
    fd_close(&s.k.runtime);
    fd_close(&s.k.cpu);
    jailer_created(&s.k, ALL_OUTSIDE);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    assert_int_equal(s.state, STORE_SANDBOX_ENDED);
    assert_int_equal(manager_sandbox_services(s.m)->supply->pools->claims_in_flight, 0);
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

static void on_usage_refused(void *arg, const struct sandbox_handle_usage *u, const struct err *err)
{
    assert_null(u);
    on_row(arg, err, NULL);
}

static void on_acquire_refused(void *arg, struct sandbox_handle *sandbox, const struct err *err)
{
    assert_null(sandbox);
    on_row(arg, err, NULL);
}

static void on_acquired(void *arg, struct sandbox_handle *sandbox, const struct err *err)
{
    struct scene *s = arg;

    assert_non_null(sandbox);
    assert_null(err);
    s->answers++;
}

/* Every request that can be refused at once, for the id of no sandbox. */
static int refuse_all(struct scene *s)
{
    static const char none[] = "sb";
    struct spec spec;

    manager_pause(s->m, "me", none, on_row, s);
    manager_resume(s->m, "me", none, on_row, s);
    manager_update(s->m, "me", none, &(struct sandbox_update){ .lifetime_ms = 60000 }, on_row, s);
    manager_delete(s->m, "me", none, on_row, s);
    manager_sandbox_usage(s->m, "me", none, on_usage_refused, s);
    manager_acquire_sandbox(s->m, "me", none, on_acquire_refused, s);
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "cobol");
    manager_create(s->m, "me", NULL, &spec, NULL, NULL, on_row, s);
    return 7;
}

TEST(a_request_is_answered_after_the_call_has_returned)
{
    struct scene s;
    int n;

    scene_open(&s, 0);
    n = refuse_all(&s);
    assert_int_equal(s.answers, 0);
    ev_turn(s.k.ev, 0);
    assert_int_equal(s.answers, n);
    assert_true(s.failed);
    s.answers = 0;
    create_ready(&s);
    jailer_ok(&s.k);
    answered(&s);
    manager_acquire_sandbox(s.m, "me", name, on_acquired, &s);
    assert_int_equal(s.answers, 0);
    ev_turn(s.k.ev, 0);
    assert_int_equal(s.answers, 1);
    manager_release_sandbox(s.m, name);
    scene_close(&s);
}

TEST(a_server_that_stops_answers_refused_requests_first)
{
    struct scene s;
    int n;

    scene_open(&s, 0);
    n = refuse_all(&s);
    manager_finish(s.m);
    assert_int_equal(s.answers, n);
    refuse_all(&s); /* these are not answered, and not leaked */
    scene_close(&s);
    assert_int_equal(s.answers, n);
}

/* --- executions and budgets --- */

/* Waits for the next frame of this type to the runtime. */
static void expect_runtime(struct scene *s, uint8_t type)
{
    uint64_t end = now_ms() + 5000;

    while (now_ms() < end) {
        ev_turn(s->k.ev, 5);
        while (take_any(s->k.runtime))
            if (got.f.type == type)
                return;
    }
    fail_msg("%s was never sent", frame_name(type));
}

struct execution_row {
    int answers;
    enum store_execution_state state;
    char id[ID_SIZE], ended_by[16];
    char receipt_ended_by[48]; /* the member endedBy of the receipt, with its name */
    bool receipt_final;
};

static void on_execution(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution_row *r = arg;
    const char *at;

    if (err)
        fail_msg("%s", err->msg);
    r->answers++;
    r->state = row->state;
    memcpy(r->id, row->id, sizeof(r->id));
    str_copy(r->ended_by, sizeof(r->ended_by), row->ended_by ? row->ended_by : "");
    if (row->receipt_json && (at = strstr(row->receipt_json, "\"endedBy\""))) {
        snprintf(r->receipt_ended_by, sizeof(r->receipt_ended_by), "%.*s", (int)strcspn(at, ","), at);
        r->receipt_final = strstr(row->receipt_json, "\"final\":true") != NULL;
    }
}

/* Creates a sandbox of a tenant with this budget, and starts an execution in it. */
static void run_with_budget(struct scene *s, enum store_budget_resource resource, uint64_t max,
                            struct execution_row *row)
{
    static const char *const argv[] = { "true", NULL };
    struct store_budget budget = { .owner = "me" };
    struct manager_budget used;

    create_ready(s);
    jailer_ok(&s->k);
    answered(s);
    budget.max[STORE_PERIOD_MONTH][resource] = max;
    budgets_set(manager_budgets(s->m), &budget);
    for (uint64_t end = now_ms() + 5000; !budgets_get(manager_budgets(s->m), "me", &used);) {
        assert_true(now_ms() < end);
        ev_turn(s->k.ev, 5);
    }
    *row = (struct execution_row){ 0 };
    manager_execute(s->m, "me", name, NULL, &(struct execution_spec){ .argv = argv }, on_execution, row);
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
    runtime_started(&s->k);
    turn_until(&s->k, &row->answers);
}

static void get_execution(struct scene *s, struct execution_row *row)
{
    row->answers = 0;
    store_execution_get(s->store, "me", row->id, on_execution, row);
    turn_until(&s->k, &row->answers);
}

static void wait_until_ended(struct scene *s, struct execution_row *row)
{
    uint64_t end = now_ms() + 5000;

    do
        get_execution(s, row);
    while (row->state != STORE_EXECUTION_ENDED && row->state != STORE_EXECUTION_FAILED && now_ms() < end);
}

TEST(an_execution_killed_for_the_budget_says_budget_in_its_final_receipt_too)
{
    struct scene s;
    struct execution_row row;

    scene_open(&s, 0);
    run_with_budget(&s, STORE_BUDGET_CPU_TIME, 1000, &row);
    set_cpu(&s.k, "5000000000\n");
    expect_runtime(&s, FRAME_SIGNAL);
    runtime_exit(&s.k, -1, 9);
    wait_until_ended(&s, &row);
    assert_string_equal(row.ended_by, "budget");
    assert_string_equal(row.receipt_ended_by, "\"endedBy\":\"budget\"");
    assert_false(row.receipt_final);
    manager_delete(s.m, "me", name, on_row, &s);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    get_execution(&s, &row);
    assert_true(row.receipt_final);
    assert_string_equal(row.ended_by, "budget");
    assert_string_equal(row.receipt_ended_by, "\"endedBy\":\"budget\"");
    scene_close(&s);
}

TEST(an_execution_whose_sandbox_the_budget_ends_says_budget)
{
    struct scene s;
    struct execution_row row;

    scene_open(&s, 0);
    run_with_budget(&s, STORE_BUDGET_SANDBOX_TIME, 1000, &row);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    wait_until_ended(&s, &row);
    assert_string_equal(row.ended_by, "budget");
    assert_string_equal(row.receipt_ended_by, "\"endedBy\":\"budget\"");
    get(&s);
    assert_string_equal(s.ended_by, "budget");
    scene_close(&s);
}

/* Compares the counters of the tenant with its live sandboxes and executions. */
static void check_counters(const struct scene *s, uint64_t spans, uint64_t executions)
{
    const struct tenant_quota *q = tenant_quotas_get(manager_quotas(s->m), "me");
    uint64_t nspans = 0, nexecutions = 0, nrunning = 0;

    for (const struct sandbox *sb = NULL; (sb = registry_next(manager_sandbox_services(s->m)->registry, sb));) {
        bool lives = sb->state != SANDBOX_STATE_ENDING;

        assert_ptr_equal(sb->quota, q);
        for (const struct execution *ex = sb->executions; ex; ex = ex->next)
            nexecutions += ex->state != EXECUTION_ENDED;
        assert_int_equal(budget_span_is_running(&sb->span), lives);
        assert_int_equal(sb->span.from_ms, sb->created_ms);
        nspans += lives;
    }
    for (const struct ephemeral_sandbox *g = manager_ephemerals(s->m)->list; g; g = g->next) {
        bool lives = g->state == EPHEMERAL_LIVE;

        nexecutions += g->quota == q && !g->execution_counted;
        assert_int_equal(budget_span_is_running(&g->span), lives);
        nspans += g->quota == q && lives;
    }
    for (const struct budget_span *a = q->spans; a; a = a->next)
        nrunning += budget_span_is_running(a);
    assert_int_equal(nrunning, nspans);
    assert_int_equal(nspans, spans);
    assert_int_equal(q->nexecutions, nexecutions);
    assert_int_equal(nexecutions, executions);
}

TEST(counters_of_a_budget_follow_sandboxes_and_executions_to_their_ends)
{
    static const char *const argv[] = { "true", NULL };
    struct scene s;
    struct execution_row row, refused = { 0 };
    struct store_budget none = { .owner = "me" };
    struct manager_budget budget;

    scene_open(&s, 0);
    run_with_budget(&s, STORE_BUDGET_EXECUTIONS, 2, &row);
    check_counters(&s, 1, 1);
    manager_execute(s.m, "me", name, NULL, &(struct execution_spec){ .argv = argv }, on_execution, &refused);
    check_counters(&s, 1, 2);
    runtime_exit(&s.k, 0, 0);
    check_counters(&s, 1, 1);
    assert_true(budgets_get(manager_budgets(s.m), "me", &budget));
    assert_int_equal(budget.used[STORE_PERIOD_MONTH][STORE_BUDGET_EXECUTIONS], 2);
    manager_delete(s.m, "me", name, on_row, &s);
    check_counters(&s, 0, 1);
    expect(&s, FRAME_J_DESTROY);
    jailer_stats(&s.k, &(struct jail_stats){ 0 });
    answered(&s);
    check_counters(&s, 0, 0);
    budgets_set(manager_budgets(s.m), &none);
    assert_null(tenant_quotas_get(manager_quotas(s.m), "me")->budget);
    assert_null(tenant_quotas_get(manager_quotas(s.m), "me")->spans);
    create(&s, NULL);
    none.max[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS] = 1;
    budgets_set(manager_budgets(s.m), &none); /* counts the sandbox that exists already */
    check_counters(&s, 1, 0);
    for (struct store_stats st = { .waiting = 1 }; st.waiting > 0; store_stats(s.store, &st))
        ev_turn(s.k.ev, 5); /* the insertion of its row must be answered before it is freed */
    scene_close(&s);
}

TEST(counters_of_a_budget_follow_ephemeral_sandboxes)
{
    struct store_budget bound = { .owner = "me", .max[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS] = 9 };
    struct ephemeral_sandbox one, two, three;
    struct sandbox_handle_ops ops = { 0 };
    struct manager_budget budget;
    struct scene s;
    struct spec spec;
    struct err err;

    scene_open(&s, 0);
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "sh");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    ephemeral_sandbox_init(&one, manager_ephemerals(s.m), "me", NULL);
    assert_int_equal(ephemeral_sandbox_admit(&one, &err), 0);
    budgets_set(manager_budgets(s.m), &bound);
    check_counters(&s, 0, 1); /* it was admitted before the budget was set */
    while (!budgets_get(manager_budgets(s.m), "me", &budget))
        ev_turn(s.k.ev, 5);
    ephemeral_sandbox_init(&two, manager_ephemerals(s.m), "me", NULL);
    ephemeral_sandbox_init(&three, manager_ephemerals(s.m), "other", NULL);
    assert_int_equal(ephemeral_sandbox_admit(&two, &err), 0);
    assert_int_equal(ephemeral_sandbox_admit(&three, &err), 0);
    check_counters(&s, 0, 2);
    assert_int_equal(ephemeral_sandbox_create(&two, &spec, &ops, NULL, &err), 0);
    check_counters(&s, 1, 2);
    ephemeral_sandbox_count_execution(&two, &(struct ephemeral_run_usage){ .wall_ms = 1 });
    check_counters(&s, 1, 1);
    ephemeral_sandbox_release_quota(&two);
    check_counters(&s, 0, 1);
    assert_true(budgets_get(manager_budgets(s.m), "me", &budget));
    assert_int_equal(budget.used[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS], 2);
    ephemeral_sandbox_end(&two);
    check_counters(&s, 0, 1);
    ephemeral_sandbox_end(&one); /* its execution never ran */
    ephemeral_sandbox_end(&three);
    check_counters(&s, 0, 0);
    assert_true(budgets_get(manager_budgets(s.m), "me", &budget));
    assert_int_equal(budget.used[STORE_PERIOD_DAY][STORE_BUDGET_EXECUTIONS], 1);
    sandbox_handle_free(two.handle);
    spec_done(&spec);
    scene_close(&s);
}

/* --- ends that were acknowledged before the server was killed --- */

/* Writes the journal of a server that was killed before it committed the rows of its executions. */
static void write_journal(const char *line)
{
    auto_free char *path = str_printf("%s/ends", dir);
    FILE *f = fopen(path, "we");

    assert_non_null(f);
    fputs(line, f);
    assert_int_equal(fclose(f), 0);
}

static void on_restored_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct store_execution *to = arg;

    if (err)
        fail_msg("%s", err->msg);
    *to = *row;
    to->receipt_json = row->receipt_json ? str_dup(row->receipt_json) : NULL;
}

/* Starts a manager with this journal entry and reads the row that it restores. The caller frees
 * receipt_json; the other strings of *ret are not valid. */
static void restore_row(const char *members, const char *receipt, struct store_execution *ret)
{
    static const char id[] = "exaaaaaaaaaaaaaaaaaaaa";
    struct scene s;
    struct store_sandbox sandbox = { .owner = "me", .state = STORE_SANDBOX_ENDED, .created_ms = 1, .ended_ms = 2 };
    auto_free char *line = str_printf("{\"id\":\"%s\",\"sandbox\":\"%s\",\"owner\":\"me\",\"createdMs\":1,"
                                      "\"startedMs\":1,\"endedMs\":2,\"signal\":0%s}\t%s\n",
                                      id, name, members, receipt);

    scene_open(&s, 0);
    memcpy(sandbox.id, name, sizeof(sandbox.id));
    store_sandbox_insert(s.store, &sandbox, 0, NULL, NULL);
    manager_free(s.m);
    store_close(s.store);
    ev_turn(s.k.ev, 0);
    ev_free(s.k.ev);
    fd_close(&s.k.jailer);
    write_journal(line);
    scene_open(&s, 0);
    *ret = (struct store_execution){ 0 };
    store_execution_get(s.store, "me", id, on_restored_row, ret);
    for (uint64_t end = now_ms() + 5000; !ret->id[0] && now_ms() < end;)
        ev_turn(s.k.ev, 5);
    assert_string_equal(ret->id, id);
    scene_close(&s);
    write_journal("");
}

TEST(an_execution_that_is_restored_from_the_journal_keeps_its_context_and_terminal)
{
    struct store_execution row;

    restore_row(",\"context\":\"cxaaaaaaaaaaaaaaaaaaaa\"", "", &row);
    assert_string_equal(row.context, "cxaaaaaaaaaaaaaaaaaaaa");
    assert_false(row.tty);
    restore_row(",\"tty\":true", "{\"final\":false}", &row);
    assert_string_equal(row.context, "");
    assert_true(row.tty);
    assert_string_equal(row.receipt_json, "{\"final\":false}");
    free(row.receipt_json);
}

TEST(the_receipt_of_a_journal_line_follows_its_tab_and_is_no_member)
{
    struct store_execution row;

    restore_row(",\"receipt\":\"{}\"", "", &row);
    assert_null(row.receipt_json);
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
        RUN(an_execution_killed_for_the_budget_says_budget_in_its_final_receipt_too),
        RUN(an_execution_whose_sandbox_the_budget_ends_says_budget),
        RUN(counters_of_a_budget_follow_sandboxes_and_executions_to_their_ends),
        RUN(counters_of_a_budget_follow_ephemeral_sandboxes),
        RUN(an_execution_that_is_restored_from_the_journal_keeps_its_context_and_terminal),
        RUN(the_receipt_of_a_journal_line_follows_its_tab_and_is_no_member),
        RUN(a_request_is_answered_after_the_call_has_returned),
        RUN(a_server_that_stops_answers_refused_requests_first),
        RUN(ending_all_sandboxes_waits_until_their_ends_are_committed),
        RUN(a_sandbox_beyond_the_limit_is_refused_and_destroyed),
        RUN(a_sandbox_that_is_deleted_while_it_is_created_ends_its_claim),
        RUN(a_lost_jailer_fails_pending_creations_and_is_reconnected),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
