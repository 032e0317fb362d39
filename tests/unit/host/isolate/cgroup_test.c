/* A directory with files imitates a leaf of cgroup v2: which file is read in which unit, and what
 * is written where. tests/contract runs the same functions against the kernel, as far as the host
 * allows. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/isolate/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ID "sbaaaaaaaaaaaaaaaaaaaa"

struct world {
    char dir[64];
    int leaf;
    struct cgroup_hierarchies forest;
};

static void begin(struct world *w)
{
    *w = (struct world){ .dir = "/tmp/cove-leaf-XXXXXX" };
    assert_non_null(mkdtemp(w->dir));
    cgroup_init_none(&w->forest);
    w->forest.trees[0] = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    w->forest.v2[0] = w->forest.has_cgroup_kill = true;
    w->forest.ntrees = 1;
    for (size_t i = 0; i < CGROUP_JOBS; i++)
        w->forest.job[i] = 0;
    assert_int_equal(mkdirat(w->forest.trees[0], ID, 0755), 0);
    w->leaf = openat(w->forest.trees[0], ID, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(w->leaf >= 0);
}

static void end(struct world *w)
{
    auto_free char *command = str_printf("rm -rf %s", w->dir);

    close(w->leaf);
    cgroup_close_hierarchies(&w->forest);
    assert_int_equal(system(command), 0);
}

static void put(struct world *w, const char *name, const char *text)
{
    auto_fd int fd = openat(w->leaf, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void has(struct world *w, const char *name, const char *text)
{
    char got[256] = "";

    assert_true(fd_get_at(w->leaf, name, got, sizeof(got)) >= 0);
    assert_string_equal(got, text);
}

TEST(v2_counters_are_converted_to_common_units)
{
    struct world w;
    struct cgroup_stats s;

    begin(&w);
    put(&w, "cpu.stat", "usage_usec 1500\nuser_usec 1000\nnr_throttled 4\nthrottled_usec 7\n");
    put(&w, "memory.current", "4096\n");
    put(&w, "memory.peak", "8192\n");
    put(&w, "memory.events", "low 0\noom 9\noom_kill 2\noom_group_kill 1\n");
    put(&w, "pids.current", "3\n");
    put(&w, "pids.peak", "5\n");
    put(&w, "pids.events", "max 6\n");
    cgroup_read_stats(&w.forest, ID, false, &s);
    assert_int_equal(s.cpu_ns, 1500000);
    assert_int_equal(s.throttled_ns, 7000);
    assert_int_equal(s.memory, 4096);
    assert_int_equal(s.memory_peak, 8192);
    assert_int_equal(s.oom_kills, 2);
    assert_int_equal(s.pids, 3);
    assert_int_equal(s.pids_peak, 5);
    assert_int_equal(s.pids_refused, 6);
    cgroup_read_stats(&w.forest, ID, true, &s); /* an ended sandbox has no current use */
    assert_int_equal(s.cpu_ns, 1500000);
    assert_int_equal(s.memory, CGROUP_UNKNOWN);
    assert_int_equal(s.memory_peak, 8192);
    assert_int_equal(s.pids, 0);
    assert_int_equal(s.pids_peak, 5);
    end(&w);
}

TEST(a_missing_counter_is_unknown_instead_of_0)
{
    struct world w;
    struct cgroup_stats s;

    begin(&w);
    put(&w, "cpu.stat", "usage_usec 1\n");
    put(&w, "memory.events", "low 0\n");
    put(&w, "pids.current", "many\n");
    cgroup_read_stats(&w.forest, ID, false, &s);
    assert_int_equal(s.cpu_ns, 1000);
    assert_int_equal(s.throttled_ns, CGROUP_UNKNOWN);
    assert_int_equal(s.memory_peak, CGROUP_UNKNOWN);
    assert_int_equal(s.oom_kills, CGROUP_UNKNOWN);
    assert_int_equal(s.pids, CGROUP_UNKNOWN);
    end(&w);
}

TEST(the_cpu_time_file_is_returned_with_its_format)
{
    struct world w;
    bool v2 = false;

    begin(&w);
    assert_int_equal(cgroup_usage_fd(&w.forest, ID, &v2), -1);
    put(&w, "cpu.stat", "usage_usec 1\n");
    put(&w, "memory.events", "oom_kill 0\n");
    auto_fd int usage = cgroup_usage_fd(&w.forest, ID, &v2), memory = cgroup_memory_fd(&w.forest, ID);
    assert_true(usage >= 0 && v2 && memory >= 0);
    end(&w);
}

TEST(running_out_of_memory_makes_the_descriptor_readable)
{
    struct world w;

    begin(&w);
    assert_int_equal(cgroup_oom_fd(&w.forest, ID), -1); /* nothing to watch */
    put(&w, "memory.events", "oom_kill 0\n");
    auto_fd int bell = cgroup_oom_fd(&w.forest, ID);
    assert_true(bell >= 0);
    assert_int_equal(poll(&(struct pollfd){ .fd = bell, .events = POLLIN }, 1, 0), 0);
    put(&w, "memory.events", "oom_kill 1\n");
    assert_int_equal(poll(&(struct pollfd){ .fd = bell, .events = POLLIN }, 1, 0), 1);
    end(&w);
}

TEST(freezing_is_requested_and_then_checked)
{
    struct world w;
    struct err err = { 0 };

    begin(&w);
    assert_int_equal(cgroup_freeze(&w.forest, ID, true, &err), -1);
    assert_int_equal(err.sys, ENOENT);
    assert_false(cgroup_is_frozen(&w.forest, ID));
    put(&w, "cgroup.freeze", "");
    put(&w, "cgroup.events", "populated 1\nfrozen 0\n");
    assert_int_equal(cgroup_freeze(&w.forest, ID, true, &err), 0);
    has(&w, "cgroup.freeze", "1");
    assert_false(cgroup_is_frozen(&w.forest, ID)); /* the kernel takes its time */
    put(&w, "cgroup.events", "populated 1\nfrozen 1\n");
    assert_true(cgroup_is_frozen(&w.forest, ID));
    assert_int_equal(cgroup_freeze(&w.forest, ID, false, &err), 0);
    has(&w, "cgroup.freeze", "0");
    end(&w);
}

static void put_what_holds_back(struct world *w)
{
    put(w, "pids.max", "");
    put(w, "cpu.max", "");
    put(w, "io.max", "254:0 rbps=77 wbps=7777");
    put(w, "cgroup.freeze", "");
}

TEST(killing_lifts_throttling_and_uses_cgroup_kill)
{
    struct world w;

    begin(&w);
    put_what_holds_back(&w);
    put(&w, "cgroup.kill", "");
    cgroup_kill(&w.forest, ID);
    has(&w, "pids.max", "0");
    has(&w, "cpu.max", "max");
    has(&w, "io.max", "254:0 rbps=max wbps=max"); /* as long as the old text, so nothing of it remains */
    has(&w, "cgroup.kill", "1");
    has(&w, "cgroup.freeze", ""); /* not needed, and a frozen process would die later */
    end(&w);
}

TEST(without_cgroup_kill_every_listed_process_is_killed_while_frozen)
{
    struct world w;
    int status;
    pid_t pid = fork();

    while (pid == 0)
        pause();
    auto_free char *procs = str_printf("%d\n", pid);
    begin(&w);
    w.forest.has_cgroup_kill = false;
    put_what_holds_back(&w);
    put(&w, "cgroup.events", "frozen 1\n");
    put(&w, "cgroup.procs", procs);
    cgroup_kill(&w.forest, ID);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    has(&w, "cgroup.freeze", "0"); /* thawed again, otherwise no process could die */
    end(&w);
}

TEST(a_failed_creation_removes_the_leaf)
{
    struct world w;
    struct limits lim;
    struct limit_enforcements held = { 0 };
    struct err err = { 0 };
    static const char other[] = "sbbbbbbbbbbbbbbbbbbbbb";

    begin(&w);
    limits_default(&lim);
    /* A plain directory has no memory.max. */
    assert_int_equal(cgroup_make(&w.forest, other, getgid(), &lim, &held, &err), -1);
    assert_int_equal(err.id, ERR_NO_CGROUP);
    assert_non_null(strstr(err.msg, "memory limit"));
    assert_int_equal(faccessat(w.forest.trees[0], other, F_OK, 0), -1);
    end(&w);
}

static void count(void *arg, const char *id, gid_t gid)
{
    assert_string_equal(id, ID);
    assert_int_equal(gid, getgid());
    ++*(int *)arg;
}

TEST(only_directories_named_by_a_sandbox_id_are_leaves)
{
    struct world w;
    int n = 0;

    begin(&w);
    assert_int_equal(mkdirat(w.forest.trees[0], "host", 0755), 0);
    assert_int_equal(mkdirat(w.forest.trees[0], "sbshort", 0755), 0);
    cgroup_each_leaf(&w.forest, count, &n);
    assert_int_equal(n, 1);
    end(&w);
}

TEST(without_hierarchies_nothing_is_limited_and_this_is_reported)
{
    struct cgroup_hierarchies f;
    struct limits lim;
    struct limit_enforcements held = { 0 };
    struct cgroup_entry e;
    struct cgroup_stats s;
    struct err err = { 0 };
    bool v2;

    cgroup_init_none(&f);
    limits_default(&lim);
    assert_int_equal(cgroup_make(&f, ID, 0, &lim, &held, &err), 0);
    for (size_t i = 0; i < LIMIT_COUNT; i++)
        assert_int_equal(held.enforcement[i], 0);
    assert_int_equal(cgroup_enter_open(&f, ID, &lim, false, &e, &err), 0);
    assert_int_equal(e.nprocs, 0);
    assert_int_equal(e.v2_dir, -1);
    assert_int_equal(cgroup_freeze(&f, ID, true, &err), -1);
    assert_int_equal(err.id, ERR_NO_CGROUP);
    cgroup_kill(&f, ID);
    cgroup_read_stats(&f, ID, false, &s);
    assert_int_equal(s.memory, CGROUP_UNKNOWN);
    assert_int_equal(cgroup_usage_fd(&f, ID, &v2), -1);
    assert_int_equal(cgroup_memory_fd(&f, ID), -1);
    assert_int_equal(cgroup_lock_file(&f), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(cgroup_remove(&f, ID), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(v2_counters_are_converted_to_common_units),
        RUN(a_missing_counter_is_unknown_instead_of_0),
        RUN(the_cpu_time_file_is_returned_with_its_format),
        RUN(running_out_of_memory_makes_the_descriptor_readable),
        RUN(freezing_is_requested_and_then_checked),
        RUN(killing_lifts_throttling_and_uses_cgroup_kill),
        RUN(without_cgroup_kill_every_listed_process_is_killed_while_frozen),
        RUN(a_failed_creation_removes_the_leaf),
        RUN(only_directories_named_by_a_sandbox_id_are_leaves),
        RUN(without_hierarchies_nothing_is_limited_and_this_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
