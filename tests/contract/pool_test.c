/* Pools with a real jailer and real Python zygotes: a taken member is used immediately, and a dead
 * one is replaced. */
#include "world.h"

#include "sandbox/drivers.h"
#include "sandbox/pool/pools.h"

#include <dirent.h>

static struct buf said; /* sent by the language kernel */

static void on_kernel(void *arg UNUSED, const void *data, size_t len)
{
    buf_add(&said, data, len);
}

static const struct exec_handle_ops kernel_ops = { .on_started = on_started,
                                                   .on_output = on_output,
                                                   .on_exit = on_exit_,
                                                   .on_failed = on_exec_failed,
                                                   .on_language_kernel_data = on_kernel };
static const char *const python[] = { "python3", NULL };
static const struct exec_spec taken = {
    .argv = python, .is_language_kernel = true, .use_waiting_interpreter = true, .wall_ms = 60000
};

struct scene {
    struct world w;
    struct pools *pools;
    struct zygote_spec zygote;
    struct sandbox_spec spec;
};

static struct pool_info info(const struct scene *s)
{
    struct pool_info ret;

    assert_true(pools_get(s->pools, "p", &ret));
    return ret;
}

static bool full(const struct scene *s)
{
    struct pool_info i = info(s);

    return i.size == i.target && i.without_interpreter == 0 && i.starting == 0;
}

static bool full_without(const struct scene *s)
{
    struct pool_info i = info(s);

    return i.size == i.target && i.starting == 0 && i.zygote == POOL_ZYGOTE_FAILED;
}

static void turn_to(struct scene *s, bool (*there)(const struct scene *s))
{
    uint64_t until = clock_mono_ns() + 240 * NS_PER_S;

    while (!there(s) && clock_mono_ns() < until)
        ev_turn(s->w.ev, 100);
    if (!there(s)) {
        struct pool_info i = info(s);

        fail_msg("size %u of %u, %u starting, %u bare, zygote %s %s", i.size, i.target, i.starting,
                 i.without_interpreter, pool_zygote_names[i.zygote], i.zygote_error);
    }
}

static void begin_pool(struct scene *s, const char *preload, uint32_t min)
{
    struct pool_settings set = { .min = min, .max = min };
    struct err err = { 0 };

    *s = (struct scene){ .zygote = { "python", preload }, .spec = plain_spec() };
    s->spec.zygote = &s->zygote;
    world_kernels = open(getenv("COVE_KERNELS"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(world_kernels > 0);
    open_world(&s->w);
    close(world_kernels);
    world_kernels = 0;
    s->pools = pools_new(s->w.ev);
    pools_set_engine(s->pools, s->w.engine);
    if (pools_put(s->pools, "p", &s->spec, &set, &err) < 0)
        fail_msg("%s", err.msg);
}

static void end_pool(struct scene *s)
{
    pools_free(s->pools);
    close_world(&s->w);
    buf_done(&said);
}

static void await(struct world *w, const char *what)
{
    uint64_t until = clock_mono_ns() + 120 * NS_PER_S;

    while (!(said.len && memmem(said.data, said.len, what, strlen(what))) && !w->exec_failed && clock_mono_ns() < until)
        ev_turn(w->ev, 100);
    if (!said.len || !memmem(said.data, said.len, what, strlen(what)))
        fail_msg("no %s in: %.*s (%s)", what, (int)said.len, said.len ? said.data : "", w->err.msg);
}

static void take_one(struct scene *s)
{
    struct world *w = &s->w;
    struct err err = { 0 };

    w->ready = 0;
    w->box = pools_take(s->pools, &s->spec, NULL);
    assert_non_null(w->box);
    assert_int_equal(sandbox_handle_claim(w->box, &s->spec, &box_ops, w, &err), 0);
    turn_until(w, &w->ready, 30);
    pools_claim_finished(s->pools, &s->spec, 1);
}

static void run_in_it(struct scene *s)
{
    static const char line[] = "{\"op\":\"execute\",\"id\":\"a\",\"code\":\"6 * 7\"}\n";
    struct world *w = &s->w;
    struct err err = { 0 };

    buf_clear(&said);
    assert_int_equal(sandbox_handle_exec(w->box, &taken, &kernel_ops, w, &w->exec, &err), 0);
    await(w, "\"ready\"");
    assert_int_equal(exec_handle_write_language_kernel(w->exec, line, strlen(line)), strlen(line));
    await(w, "\"finished\"");
    assert_non_null(memmem(said.data, said.len, "\"42\"", 4));
}

static void leave(struct scene *s)
{
    exec_handle_free(take_ptr(&s->w.exec));
    sandbox_handle_free(take_ptr(&s->w.box));
}

TEST(a_taken_member_has_a_working_interpreter_and_the_pool_refills)
{
    struct scene s;
    uint64_t ready = UINT64_MAX, answer = UINT64_MAX;

    begin_pool(&s, "json", 2);
    turn_to(&s, full);
    for (int i = 0; i < 5; i++) {
        uint64_t began = clock_mono_ns();

        take_one(&s);
        ready = min_u64(ready, clock_mono_ns() - began);
        assert_true(sandbox_handle_has_interpreter(s.w.box));
        run_in_it(&s);
        answer = min_u64(answer, clock_mono_ns() - began);
        leave(&s);
        turn_to(&s, full);
    }
    printf("# at best: claimed after %" PRIu64 " us, answered after %" PRIu64 " us\n", ready / 1000, answer / 1000);
    assert_int_equal(info(&s).hits, 5);
    assert_int_equal(info(&s).zygotes_started, 1);
    end_pool(&s);
}

/* --- a zygote that dies --- */

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    int ppid = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *p = strrchr(text, ')');
    return p && sscanf(p, ") %*c %d", &ppid) == 1 ? ppid : 0;
}

static bool below(pid_t pid, pid_t ancestor)
{
    for (int i = 0; i < 16 && pid > 1; i++) {
        if (pid == ancestor)
            return true;
        pid = parent_of(pid);
    }
    return false;
}

/* A Python of this test's jailer: the child of a spawner, or one that was forked from it into a
 * sandbox. */
static pid_t find_python(pid_t jailer, bool zygote)
{
    DIR *d = opendir("/proc");
    pid_t found = 0;

    assert_non_null(d);
    for (const struct dirent *e; !found && (e = readdir(d));) {
        pid_t pid = (pid_t)atoi(e->d_name);
        char path[64], line[256] = "";

        if (pid <= 0 || !below(pid, jailer))
            continue;
        snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        FILE *f = fopen(path, "re");
        if (!f)
            continue;
        size_t n = fread(line, 1, sizeof(line) - 1, f);
        fclose(f);
        if (n && memmem(line, n, "/.cove/kernels/python/zygote", 28) && (parent_of(parent_of(pid)) == jailer) == zygote)
            found = pid;
    }
    closedir(d);
    return found;
}

static bool repaired(const struct scene *s)
{
    return full(s) && info(s).zygotes_started >= 2;
}

TEST(a_killed_zygote_costs_at_most_one_interpreter_and_is_restarted)
{
    struct scene s;

    begin_pool(&s, "", 2);
    turn_to(&s, full);
    pid_t zygote = find_python(s.w.jailer, true);
    assert_true(zygote > 1);
    assert_int_equal(kill(zygote, SIGKILL), 0);
    take_one(&s); /* it has its interpreter already */
    run_in_it(&s);
    leave(&s);
    turn_to(&s, repaired);
    assert_true(info(&s).joins_failed >= 1);
    take_one(&s);
    assert_true(sandbox_handle_has_interpreter(s.w.box));
    run_in_it(&s);
    leave(&s);
    end_pool(&s);
}

static bool repaired_member(const struct scene *s)
{
    return full(s) && info(s).lost == 1;
}

TEST(a_pool_member_that_dies_while_waiting_is_replaced)
{
    struct scene s;

    begin_pool(&s, "", 2);
    turn_to(&s, full);
    pid_t member = find_python(s.w.jailer, false);
    assert_true(member > 1);
    assert_int_equal(kill(member, SIGKILL), 0);
    turn_to(&s, repaired_member);
    for (int i = 0; i < 2; i++) {
        take_one(&s);
        assert_true(sandbox_handle_has_interpreter(s.w.box));
        run_in_it(&s);
        leave(&s);
    }
    end_pool(&s);
}

TEST(a_failed_preload_is_named_and_members_have_no_interpreter)
{
    struct exec_spec started = { .argv = PY("print(6 * 7)"), .wall_ms = 60000 };
    struct scene s;
    struct err err = { 0 };

    begin_pool(&s, "nosuchmodule", 2);
    turn_to(&s, full_without);
    assert_non_null(strstr(info(&s).zygote_error, "nosuchmodule"));
    take_one(&s);
    assert_false(sandbox_handle_has_interpreter(s.w.box));
    assert_int_equal(info(&s).cold, 1);
    assert_int_equal(sandbox_handle_exec(s.w.box, &started, &exec_ops, &s.w, &s.w.exec, &err), 0);
    turn_until(&s.w, &s.w.exited, 60);
    assert_string_equal(s.w.out.data, "42\n");
    leave(&s);
    end_pool(&s);
}

static size_t descriptors(pid_t pid)
{
    auto_free char *path = str_printf("/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    size_t n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* 20,000 is a usual limit; the jailer keeps two more per sandbox if a monitor may be restarted. */
TEST(four_thousand_members_can_wait_with_twenty_thousand_descriptors)
{
    static const struct pool_settings more = { .min = 10, .max = 10 };
    struct scene s;
    struct err err = { 0 };

    assert_true(jailer_sandbox_capacity(20000) >= 4000);
    assert_true(engine_max_sandboxes(20000) >= 4000);
    begin_pool(&s, "", 2);
    turn_to(&s, full);
    size_t ours = descriptors(getpid()), jailers = descriptors(s.w.jailer);
    if (pools_put(s.pools, "p", &s.spec, &more, &err) < 0)
        fail_msg("%s", err.msg);
    turn_to(&s, full);
    assert_int_equal(info(&s).size, 10);
    assert_true(descriptors(getpid()) <= ours + 8 * (20000 / engine_max_sandboxes(20000)));
    assert_true(descriptors(s.w.jailer) + 8 * 2 <= jailers + 8 * (20000 / jailer_sandbox_capacity(20000)));
    end_pool(&s);
}

/* --- tests for every driver --- */

static bool ready_or_bare(const struct scene *s)
{
    struct pool_info i = info(s);

    return i.size == i.target && i.starting == 0;
}

TEST(a_member_serves_only_requests_for_its_driver)
{
    struct exec_spec print = { .argv = PY("print(6 * 7)"), .wall_ms = 60000 };
    struct scene s;
    struct err err = { 0 };

    begin_pool(&s, "", 1);
    turn_to(&s, ready_or_bare);
    for (unsigned d = 0; d < DRIVER_COUNT; d++) {
        struct sandbox_spec other = s.spec;

        other.driver = (enum driver_id)d;
        if (other.driver != s.spec.driver)
            assert_null(pools_take(s.pools, &other, NULL));
    }
    s.w.box = pools_take(s.pools, &s.spec, NULL);
    assert_non_null(s.w.box);
    for (unsigned d = 0; d < DRIVER_COUNT; d++) {
        struct sandbox_spec other = s.spec;

        other.driver = (enum driver_id)d;
        if (other.driver != s.spec.driver)
            assert_int_equal(sandbox_handle_claim(s.w.box, &other, &box_ops, &s.w, &err), -1);
    }
    assert_int_equal(sandbox_handle_claim(s.w.box, &s.spec, &box_ops, &s.w, &err), 0);
    turn_until(&s.w, &s.w.ready, 30);
    assert_int_equal(sandbox_handle_exec(s.w.box, &print, &exec_ops, &s.w, &s.w.exec, &err), 0);
    turn_until(&s.w, &s.w.exited, 60);
    assert_string_equal(s.w.out.data, "42\n");
    assert_string_equal(exec_handle_receipt(s.w.exec)->driver, driver_name(driver_under_test()));
    leave(&s);
    turn_to(&s, ready_or_bare); /* the pool refills */
    end_pool(&s);
}

int main(void)
{
    static const struct CMUnitTest of_every_driver[] = {
        cmocka_unit_test_setup_teardown(a_member_serves_only_requests_for_its_driver, make_state_dir, remove_state_dir),
    };
    static const struct CMUnitTest of_zygotes[] = {
        cmocka_unit_test_setup_teardown(a_member_serves_only_requests_for_its_driver, make_state_dir, remove_state_dir),
        cmocka_unit_test_setup_teardown(a_taken_member_has_a_working_interpreter_and_the_pool_refills, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_killed_zygote_costs_at_most_one_interpreter_and_is_restarted, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_pool_member_that_dies_while_waiting_is_replaced, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(four_thousand_members_can_wait_with_twenty_thousand_descriptors, make_state_dir,
                                        remove_state_dir),
        cmocka_unit_test_setup_teardown(a_failed_preload_is_named_and_members_have_no_interpreter, make_state_dir,
                                        remove_state_dir),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    if (!drivers_caps(driver_under_test())->zygote)
        return cmocka_run_group_tests_name("pools", of_every_driver, NULL, NULL);
    return cmocka_run_group_tests_name("pools", of_zygotes, NULL, NULL);
}
