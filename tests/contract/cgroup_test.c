/* Cgroups on the real kernel, once with everything that the host has and once as if it had no v2: a
 * hybrid machine would never use the code paths of a plain v1 host by itself. */
#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/id.h"
#include "host/isolate/cgroup.h"
#include "host/isolate/io_limits.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define OWNER_GID 1900000042u

struct world {
    struct limits lim;
    struct cgroup_hierarchies forest;
    char id[ID_SIZE];
    struct limit_enforcements held;
};

static bool find_below(struct cgroup_hierarchies *f, const char *parent, bool ignore_v2)
{
    static char text[1 << 20];
    auto_fd int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    struct err err = { 0 };
    ssize_t n = fd_read_full(fd, text, sizeof(text) - 1);

    assert_true(n > 0);
    text[n] = '\0';
    if (cgroup_find_hierarchies(f, text, parent, ignore_v2, &err) == 0)
        return true;
    print_message("# %s\n", err.msg);
    return false;
}

static bool find(struct cgroup_hierarchies *f, bool ignore_v2)
{
    return find_below(f, "cove-test", ignore_v2);
}

static void slow(struct world *w, const struct limits *lim)
{
    auto_fd int disks = open("/sys/block", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct io_limits_reach reach = { 0 };

    io_limits_reach_add(&reach, here, true);
    io_limits_apply(&w->forest, w->id, disks, &reach, lim, &w->held);
}

/* Runs in both modes where both exist. A host with neither, or without root, cannot run this.
 * With a rate, only modes that have a controller for disk rates. */
static void each_world_at(void (*fn)(struct world *w), uint64_t rate)
{
    int ran = 0;

    for (int ignore_v2 = 0; ignore_v2 <= 1; ignore_v2++) {
        struct world w = { 0 };
        struct err err = { 0 };

        if (geteuid() != 0 || !find(&w.forest, ignore_v2))
            continue;
        if (rate && w.forest.job[CGROUP_IO] < 0) {
            cgroup_close_hierarchies(&w.forest);
            continue;
        }
        ran++;
        limits_default(&w.lim);
        w.lim.v[LIMIT_MEMORY] = 32 * MIB;
        w.lim.v[LIMIT_PIDS] = 20;
        w.lim.v[LIMIT_IO_READ] = w.lim.v[LIMIT_IO_WRITE] = rate;
        id_new("sb", w.id);
        if (cgroup_make(&w.forest, w.id, OWNER_GID, &w.lim, &w.held, &err) < 0)
            fail_msg("%s", err.msg);
        if (rate)
            slow(&w, &w.lim);
        fn(&w);
        for (int i = 0; i < 200 && cgroup_remove(&w.forest, w.id) < 0; i++)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        assert_int_equal(cgroup_remove(&w.forest, w.id), 0);
        cgroup_close_hierarchies(&w.forest);
    }
    if (!ran)
        skip();
}

static void each_world(void (*fn)(struct world *w))
{
    each_world_at(fn, 0);
}

/* A child that has joined the leaf and then does `work`. */
static pid_t child_in(struct world *w, void (*work)(void))
{
    struct cgroup_entry e;
    struct err err = { 0 };

    if (cgroup_enter_open(&w->forest, w->id, &w->lim, false, &e, &err) < 0)
        fail_msg("%s", err.msg);
    pid_t pid = fork();
    if (pid == 0) {
        for (size_t i = 0; i < e.nprocs; i++)
            if (write(e.procs[i], "0", 1) != 1)
                _exit(99);
        if (e.v2_dir >= 0 && fd_put_at(e.v2_dir, "cgroup.procs", "0") < 0)
            _exit(98);
        work();
        _exit(0);
    }
    cgroup_enter_close(&e);
    return pid;
}

static void wait_until_inside(struct world *w, uint64_t n)
{
    struct cgroup_stats s;

    for (int i = 0; i < 1000; i++) {
        cgroup_read_stats(&w->forest, w->id, false, &s);
        if (s.pids >= n)
            return;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    fail_msg("only %" PRIu64 " processes started", s.pids);
}

static void sleep_on(void)
{
    for (;;)
        pause();
}

static void limits_are_there(struct world *w)
{
    assert_int_equal(w->held.enforcement[LIMIT_MEMORY], 2);
    assert_int_equal(w->held.enforcement[LIMIT_PIDS], 2);
    assert_int_equal(w->held.enforcement[LIMIT_CPU], 2);
    assert_int_equal(w->held.enforcement[LIMIT_CPU_TIME], 2);
}

TEST(the_leaf_carries_memory_pids_and_cpu)
{
    each_world(limits_are_there);
}

static void seen(void *arg, const char *id, gid_t gid)
{
    struct world *w = arg;

    if (strcmp(id, w->id) == 0) {
        assert_int_equal(gid, OWNER_GID);
        w->held.enforcement[0] = 77;
    }
}

static void owner_is_marked(struct world *w)
{
    cgroup_each_leaf(&w->forest, seen, w);
    assert_int_equal(w->held.enforcement[0], 77);
}

TEST(the_group_of_a_leaf_names_its_owner_from_its_creation)
{
    each_world(owner_is_marked);
}

static void not_bare(struct world *w)
{
    struct cgroup_hierarchies again;

    assert_true(find(&again, !w->forest.v2[0]));
    assert_false(again.found_empty);
    cgroup_close_hierarchies(&again);
}

TEST(a_later_process_sees_an_existing_leaf)
{
    each_world(not_bare);
}

TEST(empty_trees_are_recognized)
{
    char parent[32];
    struct cgroup_hierarchies f;

    snprintf(parent, sizeof(parent), "cove-test-%d", getpid()); /* a directory that only this test uses */
    if (geteuid() != 0 || !find_below(&f, parent, false))
        skip();
    assert_true(f.found_empty);
    for (size_t i = 0; i < f.ntrees; i++) {
        auto_fd int above = openat(f.trees[i], "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        assert_int_equal(unlinkat(above, parent, AT_REMOVEDIR), 0);
    }
    cgroup_close_hierarchies(&f);
}

static void a_missing_leaf_is_refused(struct world *w)
{
    struct cgroup_entry e;
    struct err err = { 0 };
    int pids = w->forest.trees[w->forest.job[CGROUP_PIDS]];

    assert_int_equal(unlinkat(pids, w->id, AT_REMOVEDIR), 0);
    assert_int_equal(cgroup_enter_open(&w->forest, w->id, &w->lim, false, &e, &err), -1);
    assert_int_equal(err.id, ERR_NO_CGROUP);
}

TEST(entering_fails_when_one_of_the_leaves_is_gone)
{
    each_world(a_missing_leaf_is_refused);
}

static void fork_until_refused(void)
{
    for (int i = 0; i < 100; i++)
        if (fork() == 0)
            sleep_on();
    sleep_on();
}

static void pids_hold_and_kill_ends_all(struct world *w)
{
    struct cgroup_stats s;
    pid_t pid = child_in(w, fork_until_refused);
    int status, rounds = 0;

    wait_until_inside(w, 20);
    uint64_t most = 0;
    for (int i = 0; i < 1000; i++) { /* the refused fork comes a moment after the one that reaches the limit */
        cgroup_read_stats(&w->forest, w->id, false, &s);
        most = max_u64(most, s.pids);
        if (s.pids_refused != CGROUP_UNKNOWN && s.pids_refused > 0)
            break;
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    uint64_t refused = s.pids_refused;
    do {
        cgroup_kill(&w->forest, w->id);
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        cgroup_read_stats(&w->forest, w->id, false, &s);
    } while (s.pids > 1 && rounds++ < 500); /* the last process waits for us to reap it */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(most, 20); /* checked only now, so that a failure leaves no sleeping process */
    assert_true(refused != CGROUP_UNKNOWN && refused > 0);
}

TEST(the_pids_limit_holds_and_killing_ends_every_process)
{
    each_world(pids_hold_and_kill_ends_all);
}

static volatile unsigned *ticks; /* shared with the child */

static void tick_on(void)
{
    for (;; ++*ticks)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void frozen_stands_still_and_still_dies(struct world *w)
{
    struct err err = { 0 };
    int status;

    ticks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = child_in(w, tick_on);
    while (*ticks < 3)
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    assert_int_equal(cgroup_freeze(&w->forest, w->id, true, &err), 0);
    for (int i = 0; i < 1000 && !cgroup_is_frozen(&w->forest, w->id); i++)
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    assert_true(cgroup_is_frozen(&w->forest, w->id));
    unsigned then = *ticks;
    nanosleep(&(struct timespec){ .tv_nsec = 30000000 }, NULL);
    assert_int_equal(*ticks, then);
    cgroup_kill(&w->forest, w->id);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    munmap((void *)(uintptr_t)ticks, 4096);
}

TEST(a_frozen_leaf_does_not_run_and_can_be_killed)
{
    each_world(frozen_stands_still_and_still_dies);
}

static void eat(void)
{
    for (;;) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            _exit(1);
        memset(p, 1, 1 << 20);
    }
}

static void memory_is_bounded_and_told(struct world *w)
{
    auto_fd int bell = cgroup_oom_fd(&w->forest, w->id);
    struct cgroup_stats s;
    int status;

    assert_true(bell >= 0);
    pid_t pid = child_in(w, eat);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    struct pollfd p = { .fd = bell, .events = POLLIN };
    assert_int_equal(poll(&p, 1, 5000), 1);
    cgroup_read_stats(&w->forest, w->id, false, &s);
    assert_true(s.oom_kills != CGROUP_UNKNOWN && s.oom_kills >= 1);
    assert_true(s.memory_peak <= 32 * MIB);
}

TEST(memory_beyond_the_limit_kills_and_notifies)
{
    each_world(memory_is_bounded_and_told);
}

static void burn(void)
{
    struct timespec t;

    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    while (t.tv_sec == 0 && t.tv_nsec < 60000000);
}

static void cpu_time_is_counted(struct world *w)
{
    struct cgroup_stats s;
    struct rusage used;
    bool v2;
    char text[128];
    pid_t pid = child_in(w, burn);

    assert_int_equal(wait4(pid, NULL, 0, &used), pid);
    cgroup_read_stats(&w->forest, w->id, false, &s);
    /* The limit is the kernel's own measurement: an emulated machine also counts time that its host
     * took. */
    uint64_t most = ((uint64_t)used.ru_utime.tv_sec + (uint64_t)used.ru_stime.tv_sec + 2) * NS_PER_S;
    if (s.cpu_ns < 50 * NS_PER_MS || s.cpu_ns > most)
        fail_msg("%" PRIu64 " ns counted, at most %" PRIu64 " used", s.cpu_ns, most);
    auto_fd int fd = cgroup_usage_fd(&w->forest, w->id, &v2);
    assert_true(fd >= 0);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(strncmp(text, "usage_usec ", 11) == 0, v2);
}

TEST(cpu_time_of_ended_processes_is_still_counted)
{
    each_world(cpu_time_is_counted);
}

static int on_disk = -1;

/* Opens a file of the current directory without caches; false if the directory is not on a disk. */
static bool open_on_disk(void)
{
    on_disk = open(".", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    return on_disk >= 0;
}

#define RATE (1 * MIB)

static void write_as_much_as_a_second_allows(void)
{
    static _Alignas(4096) char block[64 * KIB];

    for (size_t n = 0; n < RATE; n += sizeof(block))
        if (pwrite(on_disk, block, sizeof(block), (off_t)n) != sizeof(block))
            _exit(1);
    for (size_t n = 0; n < RATE; n += sizeof(block))
        if (pread(on_disk, block, sizeof(block), (off_t)n) != sizeof(block))
            _exit(1);
}

static void both_ways_take_their_time(struct world *w)
{
    uint64_t start = clock_mono_ns();
    int status;
    pid_t pid = child_in(w, write_as_much_as_a_second_allows);

    assert_int_equal(waitpid(pid, &status, 0), pid);
    uint64_t took = clock_mono_ns() - start;
    assert_int_equal(status, 0);
    assert_true(took >= 1500 * NS_PER_MS); /* one second each way, less the first time slice */
    assert_int_equal(w->held.enforcement[LIMIT_IO_READ], ENFORCEMENT_FULL);
    if (!w->forest.v2[w->forest.job[CGROUP_IO]])
        assert_int_equal(w->held.reason[LIMIT_IO_WRITE], REASON_LATE_WRITES);
}

TEST(disks_are_no_faster_than_their_limit)
{
    if (!open_on_disk())
        skip();
    each_world_at(both_ways_take_their_time, RATE);
    close(on_disk);
}

static void write_for_minutes(void)
{
    static _Alignas(4096) char block[4 * MIB];

    (void)!pwrite(on_disk, block, sizeof(block), 0);
}

static void the_slowed_die_at_once(struct world *w)
{
    int status;
    uint64_t start;
    pid_t pid = child_in(w, write_for_minutes);

    wait_until_inside(w, 1);
    /* Until it waits for the disk, which cannot be observed. */
    nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    start = clock_mono_ns();
    cgroup_kill(&w->forest, w->id);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(clock_mono_ns() - start < 10 * NS_PER_S);
}

TEST(a_process_that_waits_for_a_slow_disk_can_be_killed)
{
    if (!open_on_disk())
        skip();
    each_world_at(the_slowed_die_at_once, 32 * KIB);
    close(on_disk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_leaf_carries_memory_pids_and_cpu),
        RUN(the_group_of_a_leaf_names_its_owner_from_its_creation),
        RUN(a_later_process_sees_an_existing_leaf),
        RUN(empty_trees_are_recognized),
        RUN(entering_fails_when_one_of_the_leaves_is_gone),
        RUN(the_pids_limit_holds_and_killing_ends_every_process),
        RUN(a_frozen_leaf_does_not_run_and_can_be_killed),
        RUN(memory_beyond_the_limit_kills_and_notifies),
        RUN(cpu_time_of_ended_processes_is_still_counted),
        RUN(disks_are_no_faster_than_their_limit),
        RUN(a_process_that_waits_for_a_slow_disk_can_be_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
