/* Decisions about quotas, budgets and suspended tenants, for sandboxes, executions, contexts and
 * runs. */
#include "tests/unit/service/context_scene.h"
#include "tests/unit/service/execute/run_scene.h"

static void execute_refused(struct scene *s, const char *id, enum err_id id_of_error)
{
    struct execution_answer a = { 0 };

    manager_execute(s->m, ME, BOX, id, &(struct execution_spec){ .argv = true_argv }, on_execution, &a);
    answered(s, &a.n);
    if (a.err.id != id_of_error)
        fail_msg("error %d: %s", (int)a.err.id, a.err.msg);
}

/* --- quotas --- */

TEST(amounts_of_a_sandbox_are_reserved_at_its_creation_and_released_at_its_end)
{
    struct scene s;
    struct sandbox_answer a;
    struct spec spec;

    scene_open(&s);
    scene_spec(&spec);
    const uint64_t expected[STORE_QUOTA_COUNT] = { 1, spec.limits.v[LIMIT_CPU], spec.limits.v[LIMIT_MEMORY],
                                                   spec.limits.v[LIMIT_WORKSPACE], 0 };
    spec_done(&spec);
    create_to(&s, CREATE_ASKED, &a);
    for (int q = 0; q < STORE_QUOTA_COUNT; q++)
        assert_int_equal(quota_used(&s, ME, (enum store_quota)q), expected[q]);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &a.n);
    delete_sandbox(&s, BOX);
    for (int q = 0; q < STORE_QUOTA_COUNT; q++)
        assert_int_equal(quota_used(&s, ME, (enum store_quota)q), 0);
    scene_close(&s);
}

TEST(a_sandbox_beyond_any_quota_is_refused_before_anything_is_created)
{
    static const struct {
        enum store_quota quota;
        uint64_t limit; /* enough for one sandbox, not for two */
        const char *name;
    } rows[] = { { STORE_QUOTA_SANDBOXES, 1, "sandboxes" },
                 { STORE_QUOTA_CPU, 1500, "cpuMillis" },
                 { STORE_QUOTA_MEMORY, 600 * MIB, "memoryBytes" },
                 { STORE_QUOTA_STORAGE, 300 * MIB, "storageBytes" } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;
        struct sandbox_answer a;
        struct client run;

        scene_open(&s);
        set_quota(&s, ME, rows[i].quota, rows[i].limit);
        create_running(&s);
        uint64_t used = quota_used(&s, ME, rows[i].quota);
        create_as(&s, ME, OTHER_BOX, &a);
        answered(&s, &a.n);
        assert_int_equal(a.err.id, ERR_QUOTA);
        assert_string_equal(a.err.limit.name, rows[i].name);
        assert_int_equal(a.err.limit.max, rows[i].limit);
        assert_int_equal(a.err.limit.used, used);
        assert_int_equal(submit(&s, &run, &plain_command), 0); /* a run needs a sandbox too */
        run_ended(&s, &run);
        assert_int_equal(run.err.id, ERR_QUOTA);
        expect_no(&s, FRAME_J_CREATE);
        assert_int_equal(quota_used(&s, ME, rows[i].quota), used);
        read_sandbox(&s, OTHER_BOX, &a);
        assert_int_equal(a.err.id, ERR_MISSING);
        create_as(&s, "other", OTHER_BOX, &a); /* another tenant is not affected */
        int runtime = take_fd(&s.k.runtime);
        expect(&s, FRAME_J_CREATE);
        create_continue(&s, CREATE_RUNNING);
        answered(&s, &a.n);
        assert_int_equal(a.err.id, 0);
        delete_sandbox(&s, BOX);
        assert_int_equal(quota_used(&s, ME, rows[i].quota), 0);
        fd_close(&runtime);
        scene_close(&s);
    }
}

TEST(the_quota_of_a_run_is_free_when_its_result_is_delivered)
{
    struct scene s;
    struct client first, second;

    scene_open(&s);
    set_quota(&s, ME, STORE_QUOTA_SANDBOXES, 1);
    run_to(&s, &first, &plain_command, STEP_RUNNING, NULL);
    assert_int_equal(submit(&s, &second, &plain_command), 0);
    run_ended(&s, &second);
    assert_int_equal(second.err.id, ERR_QUOTA);
    runtime_exit(&s.k, 0, 0);
    run_ended(&s, &first);
    assert_int_equal(submit(&s, &second, &plain_command), 0); /* before the sandbox is removed */
    expect(&s, FRAME_J_CREATE);
    assert_int_equal(second.ends, 0);
    scene_close(&s);
}

TEST(executions_of_all_kinds_count_against_the_same_hour)
{
    struct scene s;
    struct execution_answer a;
    struct client run;

    context_open(&s);
    set_quota(&s, ME, STORE_QUOTA_EXECUTIONS, 3);
    context_run_begin(&s, "one", 0);
    execute(&s, OTHER_EXECUTION, &(struct execution_spec){ 0 }, &a);
    answered(&s, &a.n);
    assert_int_equal(submit(&s, &run, &plain_command), 0);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 3);
    execute_refused(&s, NULL, ERR_QUOTA);
    context_run(&s, NULL, "two", 0, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_QUOTA);
    assert_string_equal(a.err.limit.name, "executionsPerHour");
    assert_true(a.err.limit.retry_ms > 0);
    run_cancel(run.run); /* it was started, so it counts */
    struct client late;
    assert_int_equal(submit(&s, &late, &plain_command), -1);
    assert_int_equal(late.err.id, ERR_QUOTA);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 3);
    late = (struct client){ 0 };
    struct run_request foreign = { .argv = true_argv, .owner = "other" };
    assert_int_equal(submit(&s, &late, &foreign), 0);
    advance(&s, 3600000 + 60000);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 0);
    scene_close(&s);
}

TEST(an_execution_that_is_refused_for_its_request_does_not_count)
{
    static char word[60 * KIB];
    const char *const long_argv[] = { word, NULL };
    struct scene s;
    struct execution_answer a = { 0 };

    memset(word, 'x', sizeof(word) - 1);
    scene_open(&s);
    create_running(&s);
    manager_execute(s.m, ME, BOX, NULL, &(struct execution_spec){ .argv = long_argv }, on_execution, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_INVALID);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 0);
    scene_close(&s);
}

/* --- suspended tenants --- */

TEST(a_suspended_tenant_starts_nothing_and_its_sandboxes_end)
{
    struct scene s;
    struct sandbox_answer a;
    struct client run;
    struct store_tenant resumed = { .name = ME };

    scene_open(&s);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    suspend(&s, "other");
    settle(&s);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    assert_false(tenant_quotas_get(manager_quotas(s.m), ME)->is_suspended);
    suspend(&s, ME);
    assert_true(tenant_quotas_get(manager_quotas(s.m), ME)->is_suspended);
    assert_int_equal(obey_until(&s, &s.ends), 1);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "killed");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "killed");
    create_as(&s, ME, OTHER_BOX, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_TENANT_SUSPENDED);
    assert_int_equal(submit(&s, &run, &plain_command), -1);
    assert_int_equal(run.err.id, ERR_TENANT_SUSPENDED);
    tenant_quotas_set(manager_quotas(s.m), &resumed);
    create_as(&s, ME, OTHER_BOX, &a);
    expect(&s, FRAME_J_CREATE);
    create_continue(&s, CREATE_RUNNING);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, 0);
    scene_close(&s);
}

/* --- budgets --- */

static void set_budget(struct scene *s, const char *tenant, enum store_budget_resource resource, uint64_t max)
{
    struct store_budget row = { 0 };
    struct manager_budget used;

    str_copy(row.owner, sizeof(row.owner), tenant);
    row.max[STORE_PERIOD_MONTH][resource] = max;
    budgets_set(manager_budgets(s->m), &row);
    settle(s); /* the usage so far is read */
    assert_true(budgets_get(manager_budgets(s->m), tenant, &used));
}

static uint64_t budget_used(struct scene *s, const char *tenant, enum store_budget_resource resource)
{
    struct manager_budget used;

    assert_true(budgets_get(manager_budgets(s->m), tenant, &used));
    return used.used[STORE_PERIOD_MONTH][resource];
}

TEST(executions_of_all_kinds_use_the_same_budget)
{
    struct scene s;
    struct execution_answer a;
    struct client run;
    struct manager_usage_totals totals;

    context_open(&s);
    set_budget(&s, ME, STORE_BUDGET_EXECUTIONS, 3);
    context_run_begin(&s, "one", 0);
    execute(&s, OTHER_EXECUTION, &(struct execution_spec){ 0 }, &a);
    answered(&s, &a.n);
    assert_int_equal(submit(&s, &run, &plain_command), 0);
    assert_int_equal(budget_used(&s, ME, STORE_BUDGET_EXECUTIONS), 3);
    execute_refused(&s, NULL, ERR_BUDGET);
    context_run(&s, NULL, "two", 0, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_BUDGET);
    struct client late;
    assert_int_equal(submit(&s, &late, &plain_command), -1);
    assert_int_equal(late.err.id, ERR_BUDGET);
    live_sandboxes_usage_totals(manager_live_sandboxes(s.m), &totals);
    assert_int_equal(totals.refused, 3);
    assert_int_equal(quota_used(&s, ME, STORE_QUOTA_EXECUTIONS), 3); /* a refused one is not counted */
    struct run_request foreign = { .argv = true_argv, .owner = "other" };
    assert_int_equal(submit(&s, &late, &foreign), 0);
    scene_close(&s);
}

TEST(an_execution_that_never_started_gives_its_budget_back)
{
    struct scene s;
    struct client run;

    scene_open_with(&s, &(struct scene_settings){ .running_max = 1 });
    struct client first;
    struct run_request foreign = { .argv = true_argv, .owner = "other" };
    set_budget(&s, ME, STORE_BUDGET_EXECUTIONS, 1);
    assert_int_equal(submit(&s, &first, &foreign), 0);
    assert_int_equal(submit(&s, &run, &plain_command), 0); /* waits */
    assert_int_equal(budget_used(&s, ME, STORE_BUDGET_EXECUTIONS), 1);
    run_cancel(run.run);
    settle(&s);
    assert_int_equal(budget_used(&s, ME, STORE_BUDGET_EXECUTIONS), 0);
    scene_close(&s);
}

TEST(a_used_budget_of_sandbox_time_refuses_sandboxes_and_ends_those_that_run)
{
    struct scene s;
    struct sandbox_answer a;

    scene_open(&s);
    set_budget(&s, ME, STORE_BUDGET_SANDBOX_TIME, 1000);
    create_running(&s);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    for (uint64_t end = now_ms() + 5000; manager_sandbox_is_live(s.m, ME, BOX) && now_ms() < end;)
        ev_turn(s.k.ev, 50); /* the budget is measured by the wall clock */
    assert_int_equal(obey_until(&s, &s.ends), 1);
    settle(&s);
    assert_int_equal(s.end_cause, ENDED_BUDGET);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "budget");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "budget");
    create_as(&s, ME, OTHER_BOX, &a);
    answered(&s, &a.n);
    assert_int_equal(a.err.id, ERR_BUDGET);
    create_as(&s, "other", OTHER_BOX, &a);
    expect(&s, FRAME_J_CREATE);
    assert_int_equal(a.n, 0);
    scene_close(&s);
}

TEST(a_used_budget_of_cpu_time_kills_executions_of_all_kinds)
{
    struct scene s;

    context_open(&s);
    context_run_begin(&s, "loop", 0);
    uint32_t kernel = s.k.stream;
    execute_running(&s, OTHER_EXECUTION, &(struct execution_spec){ 0 });
    uint32_t program = s.k.stream;
    set_budget(&s, ME, STORE_BUDGET_CPU_TIME, 1000);
    set_cpu(&s.k, "5000000000\n");
    advance(&s, 1000);
    bool interrupted = false, killed = false;
    for (int i = 0; i < 2; i++) {
        expect_runtime(&s, FRAME_SIGNAL);
        interrupted |= got.f.stream == kernel;
        killed |= got.f.stream == program;
    }
    assert_true(interrupted);
    assert_true(killed);
    runtime_exit(&s.k, -1, SIGKILL);
    s.k.stream = kernel;
    kernel_finishes(&s, EXECUTION, "interrupted");
    settle(&s);
    assert_execution(&s, OTHER_EXECUTION, STORE_EXECUTION_ENDED, "budget");
    assert_execution(&s, EXECUTION, STORE_EXECUTION_ENDED, "budget");
    execute_refused(&s, NULL, ERR_BUDGET);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    scene_close(&s);
}

TEST(a_used_budget_of_cpu_time_stops_a_run)
{
    static const struct run_request *const requests[] = { &plain_command, &plain_code };

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct scene s;
        struct client run;

        scene_open(&s);
        set_budget(&s, ME, STORE_BUDGET_CPU_TIME, 1000);
        run_to(&s, &run, requests[i], STEP_RUNNING, NULL);
        set_cpu(&s.k, "5000000000\n");
        advance(&s, 1000);
        expect_runtime(&s, FRAME_SIGNAL);
        runtime_exit(&s.k, -1, SIGKILL);
        run_ended(&s, &run);
        assert_json(&run, "\"endedBy\":\"budget\"");
        assert_json(&run, "\"outcome\":\"killed\"");
        assert_int_equal(submit(&s, &run, requests[i]), -1);
        assert_int_equal(run.err.id, ERR_BUDGET);
        scene_close(&s);
    }
}

TEST(a_program_that_is_left_running_after_the_budget_ends_its_sandbox)
{
    struct scene s;

    scene_open(&s);
    create_running(&s);
    set_budget(&s, ME, STORE_BUDGET_CPU_TIME, 1000);
    set_cpu(&s.k, "5000000000\n");
    advance(&s, 1000);
    assert_true(manager_sandbox_is_live(s.m, ME, BOX));
    set_cpu(&s.k, "6000000000\n"); /* without an execution */
    advance(&s, 1000);
    assert_int_equal(obey_until(&s, &s.ends), 1);
    settle(&s);
    assert_sandbox(&s, BOX, STORE_SANDBOX_ENDED, "budget");
    scene_close(&s);
}

TEST(a_budget_that_is_removed_allows_executions_again)
{
    struct scene s;
    struct store_budget none = { .owner = ME };

    scene_open(&s);
    create_running(&s);
    set_budget(&s, ME, STORE_BUDGET_EXECUTIONS, 1);
    execute_running(&s, EXECUTION, &(struct execution_spec){ 0 });
    runtime_exit(&s.k, 0, 0);
    settle(&s);
    execute_refused(&s, NULL, ERR_BUDGET);
    budgets_set(manager_budgets(s.m), &none);
    execute_running(&s, OTHER_EXECUTION, &(struct execution_spec){ 0 });
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(amounts_of_a_sandbox_are_reserved_at_its_creation_and_released_at_its_end),
        RUN(a_sandbox_beyond_any_quota_is_refused_before_anything_is_created),
        RUN(the_quota_of_a_run_is_free_when_its_result_is_delivered),
        RUN(executions_of_all_kinds_count_against_the_same_hour),
        RUN(an_execution_that_is_refused_for_its_request_does_not_count),
        RUN(a_suspended_tenant_starts_nothing_and_its_sandboxes_end),
        RUN(executions_of_all_kinds_use_the_same_budget),
        RUN(an_execution_that_never_started_gives_its_budget_back),
        RUN(a_used_budget_of_sandbox_time_refuses_sandboxes_and_ends_those_that_run),
        RUN(a_used_budget_of_cpu_time_kills_executions_of_all_kinds),
        RUN(a_used_budget_of_cpu_time_stops_a_run),
        RUN(a_program_that_is_left_running_after_the_budget_ends_its_sandbox),
        RUN(a_budget_that_is_removed_allows_executions_again),
    };

    return cmocka_run_group_tests(tests, scene_set_up, scene_tear_down);
}
