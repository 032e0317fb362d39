#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/ev/work.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

static struct ev *loop;
static struct work_pool *pool;
static char done[4096]; /* the names of the jobs whose on_done ran, in order */
static sem_t gate;      /* a waiting job continues when the test posts */
static sem_t inside;    /* posted by a job that has started to wait */

struct job {
    struct work_item w;
    char name;
    bool waits;
    bool ran;
    pthread_t thread;
    sigset_t blocked;
    char comm[16];
    struct job *again; /* submitted by on_done */
};

static void job_run(void *arg)
{
    struct job *j = arg;

    if (j->waits) {
        sem_post(&inside);
        while (sem_wait(&gate) < 0) {
        }
    }
    j->ran = true;
    j->thread = pthread_self();
    pthread_sigmask(SIG_BLOCK, NULL, &j->blocked);
    prctl(PR_GET_NAME, j->comm);
}

static void job_give(struct job *j);

static void on_job(void *arg)
{
    struct job *j = arg;
    size_t n = strlen(done);

    assert_true(j->ran);
    assert_true(n + 1 < sizeof(done));
    done[n] = j->name;
    if (j->again) {
        struct job *next = j->again;

        j->again = NULL;
        job_give(next);
    }
}

static void job_give(struct job *j)
{
    ev_work(pool, &j->w, job_run, on_job, j);
}

static void turn_until(size_t n)
{
    uint64_t end = clock_mono_ns() + 10 * NS_PER_S;

    while (strlen(done) < n && clock_mono_ns() < end)
        ev_turn(loop, 1000);
    assert_int_equal(strlen(done), n);
}

static void start(unsigned threads)
{
    struct err err = { 0 };

    assert_int_equal(work_pool_new(loop, "test-work", threads, &pool, &err), 0);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    memset(done, 0, sizeof(done));
    sem_init(&gate, 0, 0);
    sem_init(&inside, 0, 0);
    pool = NULL;
    return ev_new(&loop, &err);
}

static int teardown(void **state UNUSED)
{
    work_pool_free(pool);
    ev_free(loop);
    return 0;
}

TEST(work_runs_in_another_thread_and_on_done_in_the_loop)
{
    struct job j = { .name = 'a' };

    start(2);
    job_give(&j);
    assert_true(j.w.on);
    turn_until(1);
    assert_false(j.w.on);
    assert_false(pthread_equal(j.thread, pthread_self()));
    assert_string_equal(j.comm, "test-work");
}

TEST(threads_block_every_signal_and_the_caller_keeps_its_mask)
{
    struct job j = { .name = 'a' };
    sigset_t mine;

    start(1);
    job_give(&j);
    turn_until(1);
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP && sigismember(&j.blocked, s) != 1)
            fail_msg("signal %d reaches a thread of the pool", s);
    pthread_sigmask(SIG_BLOCK, NULL, &mine);
    assert_int_equal(sigismember(&mine, SIGTERM), 0);
}

TEST(one_thread_ends_items_in_the_order_of_submission)
{
    static const char names[] = "abcdefghijklmnopqrstuvwxyz";
    struct job j[26];

    start(1);
    for (size_t i = 0; i < 26; i++) {
        j[i] = (struct job){ .name = names[i], .waits = i == 0 };
        job_give(&j[i]);
    }
    sem_wait(&inside); /* all others are queued after the first */
    sem_post(&gate);
    turn_until(26);
    assert_string_equal(done, names);
}

TEST(with_two_threads_a_slow_item_does_not_delay_a_quick_one)
{
    struct job slow = { .name = 's', .waits = true }, quick = { .name = 'q' };

    start(2);
    job_give(&slow);
    job_give(&quick);
    turn_until(1);
    assert_string_equal(done, "q");
    sem_post(&gate);
    turn_until(2);
    assert_string_equal(done, "qs");
}

TEST(on_done_may_submit_its_own_item_again)
{
    struct job j = { .name = 'a' };

    start(1);
    j.again = &j;
    job_give(&j);
    turn_until(2);
    assert_string_equal(done, "aa");
}

TEST(drain_runs_all_items_and_those_that_on_done_submits)
{
    struct job j[4] = { { .name = 'a' }, { .name = 'b' }, { .name = 'c' }, { .name = 'd' } };

    start(1);
    work_pool_drain(pool); /* nothing to do */
    j[0].again = &j[3];
    for (size_t i = 0; i < 3; i++)
        job_give(&j[i]);
    work_pool_drain(pool);
    assert_int_equal(strlen(done), 4);
    assert_int_equal(strspn(done, "abcd"), 4);
    ev_turn(loop, 0); /* a wake-up that was already handled has no effect */
    assert_int_equal(strlen(done), 4);
}

static void *open_gate_late(void *arg UNUSED)
{
    usleep(20000); /* gives work_pool_free time to start waiting; without that the test would pass as well */
    sem_post(&gate);
    return NULL;
}

TEST(free_waits_for_running_items_and_drops_queued_ones)
{
    struct job running = { .name = 'r', .waits = true }, queued[3] = { 0 };
    pthread_t opener;

    start(1);
    job_give(&running);
    for (size_t i = 0; i < 3; i++)
        job_give(&queued[i]);
    sem_wait(&inside);
    assert_int_equal(pthread_create(&opener, NULL, open_gate_late, NULL), 0);
    work_pool_free(pool);
    pool = NULL;
    pthread_join(opener, NULL);
    assert_true(running.ran);
    for (size_t i = 0; i < 3; i++)
        assert_false(queued[i].ran);
    assert_string_equal(done, ""); /* and no on_done is called */
}

TEST(thousands_of_items_on_four_threads_all_complete)
{
    static struct job j[2000];

    start(4);
    for (size_t i = 0; i < ARRAY_LEN(j); i++) {
        j[i] = (struct job){ .name = '.' };
        job_give(&j[i]);
        if (i % 100 == 0)
            ev_turn(loop, 0);
    }
    turn_until(ARRAY_LEN(j));
    for (size_t i = 0; i < ARRAY_LEN(j); i++)
        assert_true(j[i].ran && !j[i].w.on);
}

#define RUN_WORK(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_WORK(work_runs_in_another_thread_and_on_done_in_the_loop),
        RUN_WORK(threads_block_every_signal_and_the_caller_keeps_its_mask),
        RUN_WORK(one_thread_ends_items_in_the_order_of_submission),
        RUN_WORK(with_two_threads_a_slow_item_does_not_delay_a_quick_one),
        RUN_WORK(on_done_may_submit_its_own_item_again),
        RUN_WORK(drain_runs_all_items_and_those_that_on_done_submits),
        RUN_WORK(free_waits_for_running_items_and_drops_queued_ones),
        RUN_WORK(thousands_of_items_on_four_threads_all_complete),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
