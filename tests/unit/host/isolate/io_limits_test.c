/* Uses directories that imitate /sys/block and a cgroup leaf. The files of the leaf are pipes, so
 * that every written line can be read back. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "host/isolate/io_limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ID "sbaaaaaaaaaaaaaaaaaaaa"

struct world {
    char dir[64];
    int disks, tree;
    int pipe[3]; /* io.max, read_bps, write_bps */
    struct cgroup_hierarchies forest;
    struct limits lim;
    struct limit_enforcements held;
};

static const char *const files[] = { "io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device" };

static void put(int at, const char *name, const char *text)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void disk(struct world *w, const char *name, const char *size, const char *dev)
{
    char path[64];

    assert_int_equal(mkdirat(w->disks, name, 0700), 0);
    snprintf(path, sizeof(path), "%s/size", name);
    put(w->disks, path, size);
    if (!dev)
        return;
    snprintf(path, sizeof(path), "%s/dev", name);
    put(w->disks, path, dev);
}

static int sub(const struct world *w, const char *name)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void begin(struct world *w, bool v2)
{
    *w = (struct world){ .dir = "/tmp/cove-io-XXXXXX", .pipe = { -1, -1, -1 } };
    assert_non_null(mkdtemp(w->dir));
    w->disks = sub(w, "block");
    w->tree = sub(w, "tree");
    assert_int_equal(mkdirat(w->tree, ID, 0700), 0);
    for (size_t i = v2 ? 0 : 1; i < (v2 ? 1 : ARRAY_LEN(files)); i++) {
        char path[96];

        snprintf(path, sizeof(path), "%s/%s", ID, files[i]);
        assert_int_equal(mkfifoat(w->tree, path, 0600), 0);
        w->pipe[i] = openat(w->tree, path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        assert_true(w->pipe[i] >= 0);
    }
    cgroup_init_none(&w->forest);
    w->forest.trees[0] = w->tree;
    w->forest.v2[0] = v2;
    w->forest.ntrees = 1;
    w->forest.job[CGROUP_IO] = w->forest.job[CGROUP_MEMORY] = 0;
    limits_default(&w->lim);
    disk(w, "sda", "2000\n", "8:0\n");
    disk(w, "loop0", "0\n", "7:0\n");     /* empty */
    disk(w, "nvme0c0n1", "2000\n", NULL); /* a path of another disk, without a number */
    disk(w, "odd", "2000\n", "not a number\n");
}

static void end(struct world *w)
{
    char command[96];

    for (size_t i = 0; i < ARRAY_LEN(w->pipe); i++)
        fd_close(&w->pipe[i]);
    close(w->disks);
    close(w->tree);
    snprintf(command, sizeof(command), "rm -rf %s", w->dir);
    assert_int_equal(system(command), 0);
}

static void wrote(struct world *w, size_t file, const char *text)
{
    char got[512] = "";
    ssize_t n = read(w->pipe[file], got, sizeof(got) - 1);

    assert_string_equal(n > 0 ? got : "", text);
}

static void holds(const struct world *w, enum limit l, enum limit_enforcement hold, enum limit_reason why)
{
    assert_int_equal(w->held.enforcement[l], hold);
    assert_int_equal(w->held.reason[l], why);
}

TEST(v2_limits_every_disk_with_a_size_and_no_other)
{
    struct world w;

    begin(&w, true);
    w.lim.v[LIMIT_IO_READ] = 1000;
    w.lim.v[LIMIT_IO_WRITE] = 500;
    io_limits_apply(&w.forest, ID, w.disks, &(struct io_limits_reach){ .writes_on_disk = true }, &w.lim, &w.held);
    wrote(&w, 0, "8:0 rbps=10008:0 wbps=500"); /* two writes, each a separate line for the kernel */
    holds(&w, LIMIT_IO_READ, ENFORCEMENT_FULL, REASON_NONE);
    holds(&w, LIMIT_IO_WRITE, ENFORCEMENT_FULL, REASON_NONE);
    end(&w);
}

TEST(v1_limits_both_directions_and_reports_delayed_writes)
{
    struct world w;

    begin(&w, false);
    w.lim.v[LIMIT_IO_READ] = 1000;
    w.lim.v[LIMIT_IO_WRITE] = 500;
    io_limits_apply(&w.forest, ID, w.disks, &(struct io_limits_reach){ .writes_on_disk = true }, &w.lim, &w.held);
    wrote(&w, 1, "8:0 1000");
    wrote(&w, 2, "8:0 500");
    holds(&w, LIMIT_IO_READ, ENFORCEMENT_FULL, REASON_NONE);
    holds(&w, LIMIT_IO_WRITE, ENFORCEMENT_PARTIAL, REASON_LATE_WRITES);
    end(&w);
}

TEST(a_limit_that_is_not_requested_is_not_written)
{
    struct world w;

    begin(&w, false);
    w.lim.v[LIMIT_IO_WRITE] = 500;
    io_limits_apply(&w.forest, ID, w.disks, &(struct io_limits_reach){ 0 }, &w.lim, &w.held);
    wrote(&w, 1, "");
    wrote(&w, 2, "8:0 500");
    holds(&w, LIMIT_IO_WRITE, ENFORCEMENT_FULL, REASON_NONE); /* no directory that it can write is on a disk */
    end(&w);
}

TEST(the_reported_enforcement_is_that_of_the_worst_directory)
{
    static const struct {
        struct io_limits_reach reach;
        bool memory_elsewhere;
        enum limit_enforcement read;
        enum limit_reason read_why;
        enum limit_enforcement write;
        enum limit_reason write_why;
    } cases[] = {
        { { .reads_off_disk = true }, false, ENFORCEMENT_PARTIAL, REASON_NO_DISK, ENFORCEMENT_FULL, REASON_NONE },
        { { .reads_off_disk = true, .writes_off_disk = true },
          false,
          ENFORCEMENT_PARTIAL,
          REASON_NO_DISK,
          ENFORCEMENT_PARTIAL,
          REASON_NO_DISK },
        { { .writes_on_disk = true, .writes_unattributed = true },
          false,
          ENFORCEMENT_FULL,
          REASON_NONE,
          ENFORCEMENT_PARTIAL,
          REASON_LATE_WRITES },
        { { .writes_on_disk = true }, true, ENFORCEMENT_FULL, REASON_NONE, ENFORCEMENT_PARTIAL, REASON_LATE_WRITES },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct world w;

        begin(&w, true);
        w.lim.v[LIMIT_IO_READ] = w.lim.v[LIMIT_IO_WRITE] = 1000;
        if (cases[i].memory_elsewhere)
            w.forest.job[CGROUP_MEMORY] = -1;
        io_limits_apply(&w.forest, ID, w.disks, &cases[i].reach, &w.lim, &w.held);
        holds(&w, LIMIT_IO_READ, cases[i].read, cases[i].read_why);
        holds(&w, LIMIT_IO_WRITE, cases[i].write, cases[i].write_why);
        end(&w);
    }
}

TEST(a_limit_that_cannot_be_set_is_reported_as_not_enforced)
{
    struct world w;

    begin(&w, true);
    w.lim.v[LIMIT_IO_READ] = w.lim.v[LIMIT_IO_WRITE] = 1000;
    io_limits_apply(&w.forest, ID, -1, &(struct io_limits_reach){ 0 }, &w.lim, &w.held);
    holds(&w, LIMIT_IO_READ, ENFORCEMENT_NONE, REASON_DISK_REFUSED);
    io_limits_apply(&w.forest, "sbbbbbbbbbbbbbbbbbbbbb", w.disks, &(struct io_limits_reach){ 0 }, &w.lim, &w.held);
    holds(&w, LIMIT_IO_WRITE, ENFORCEMENT_NONE, REASON_DISK_REFUSED);
    w.forest.job[CGROUP_IO] = -1;
    io_limits_apply(&w.forest, ID, w.disks, &(struct io_limits_reach){ 0 }, &w.lim, &w.held);
    holds(&w, LIMIT_IO_READ, ENFORCEMENT_NONE, REASON_NO_CONTROLLER);
    holds(&w, LIMIT_IO_WRITE, ENFORCEMENT_NONE, REASON_NO_CONTROLLER);
    end(&w);
}

TEST(memory_and_unreadable_file_systems_do_not_count_as_disks)
{
    struct io_limits_reach r = { 0 };
    int shm = open("/dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(shm >= 0 && proc >= 0);
    io_limits_reach_add(&r, shm, true);
    assert_false(r.reads_off_disk || r.writes_on_disk || r.writes_off_disk || r.writes_unattributed);
    io_limits_reach_add(&r, proc, false);
    assert_true(r.reads_off_disk);
    assert_false(r.writes_off_disk);
    io_limits_reach_add(&r, -1, true);
    assert_true(r.writes_off_disk);
    assert_false(r.writes_on_disk);
    close(shm);
    close(proc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(v2_limits_every_disk_with_a_size_and_no_other),
        RUN(v1_limits_both_directions_and_reports_delayed_writes),
        RUN(a_limit_that_is_not_requested_is_not_written),
        RUN(the_reported_enforcement_is_that_of_the_worst_directory),
        RUN(a_limit_that_cannot_be_set_is_reported_as_not_enforced),
        RUN(memory_and_unreadable_file_systems_do_not_count_as_disks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
