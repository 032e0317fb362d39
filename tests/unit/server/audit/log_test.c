/* The audit trail on real files: when records are written, the state after a kill, and modified
 * files. */
#include "tests/unit/test.h"

#include "server/audit/audit.h"
#include "server/audit/verify.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct ev *loop;
static char dir[64];
static struct audit *a;
static struct audit_open_report found;
static struct chain_link signed_at;
static struct audit_settings set;

static void remember(void *arg UNUSED, const struct chain_link *at)
{
    signed_at = *at;
}

static void open_log(void)
{
    struct err err = { 0 };

    set.dir = dir;
    set.on_checkpoint = remember;
    if (audit_open(loop, &set, &a, &found, &err) < 0)
        fail_msg("%s", err.msg);
}

static void close_log(void)
{
    audit_close(a);
    a = NULL;
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, "/tmp/audit-log-XXXXXX");
    set = (struct audit_settings){ 0 };
    signed_at = (struct chain_link){ 0 };
    return mkdtemp(dir) && ev_new(&loop, &err) == 0 ? 0 : -1;
}

static int teardown(void **state UNUSED)
{
    auto_free char *command = str_printf("rm -rf %s", dir);

    close_log();
    ev_free(loop);
    (void)umount2(dir, MNT_DETACH);
    return system(command);
}

static uint64_t add(const char *tenant, const char *action)
{
    return audit_append(a, &(struct audit_record){ .tenant = tenant, .action = action, .outcome = "success" }, false);
}

static void count(void *arg)
{
    ++*(unsigned *)arg;
}

static void settle(void)
{
    struct audit_stats s;

    for (audit_stats(a, &s); s.waiting; audit_stats(a, &s))
        ev_turn(loop, 100);
}

static char *file(unsigned no)
{
    return str_printf("%s/%06u.jsonl", dir, no);
}

static char *slurp(const char *path)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    auto_buf text = { 0 };
    char piece[65536];
    ssize_t n;

    assert_true(fd >= 0);
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        buf_add(&text, piece, (size_t)n);
    return text.data ? take_ptr(&text.data) : str_dup("");
}

static struct verify_report check(void)
{
    const struct sign_key *keys[1];
    auto_free char *path = str_printf("%s/key.pub", dir), *pem = slurp(path);
    auto_(sign_key) key = NULL;
    struct err err = { 0 };

    assert_int_equal(sign_read(pem, strlen(pem), &key, &err), 0);
    keys[0] = key;
    auto_(verify) v = verify_new(keys, 1, NULL);
    for (unsigned no = 1;; no++) {
        auto_free char *name = file(no);
        auto_fd int fd = open(name, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
            break;
        assert_int_equal(verify_file(v, name, fd, &err), 0);
    }
    verify_finish(v);
    return *verify_report(v);
}

static void holds(void)
{
    struct verify_report r = check();

    if (r.fault)
        fail_msg("%s:%" PRIu64 ": %s", r.file, r.line, r.why);
}

TEST(a_wait_ends_only_after_the_record_is_in_the_file)
{
    struct audit_wait w = { 0 };
    unsigned called = 0;

    open_log();
    assert_true(found.is_new && found.new_key);
    uint64_t seq = add("t", "sandbox.create");
    assert_false(audit_wait(a, &w, seq, count, &called));
    assert_int_equal(called, 0);
    while (!called)
        ev_turn(loop, 100);
    auto_free char *name = file(1), *text = slurp(name);
    assert_non_null(strstr(text, "sandbox.create"));
    assert_true(audit_wait(a, &w, seq, count, &called)); /* already written */
    assert_int_equal(called, 1);
}

struct waiting_caller {
    struct audit_wait wait;
    unsigned *called, turn;
};

static void take_turn(void *arg)
{
    struct waiting_caller *c = arg;

    c->turn = ++*c->called;
}

TEST(waits_for_one_write_end_in_the_order_in_which_they_began)
{
    unsigned called = 0;
    struct waiting_caller callers[4] = { 0 };

    open_log();
    for (size_t i = 0; i < 4; i++) {
        callers[i].called = &called;
        assert_false(audit_wait(a, &callers[i].wait, add("t", "sandbox.create"), take_turn, &callers[i]));
    }
    audit_wait_clear(a, &callers[3].wait);
    audit_wait_clear(a, &callers[1].wait);
    assert_false(audit_wait(a, &callers[1].wait, add("t", "sandbox.create"), take_turn, &callers[1]));
    while (called < 3)
        ev_turn(loop, 100);
    assert_int_equal(callers[0].turn, 1);
    assert_int_equal(callers[2].turn, 2);
    assert_int_equal(callers[1].turn, 3);
    assert_int_equal(callers[3].turn, 0);
}

TEST(a_lazy_record_is_written_soon_and_immediately_on_a_wait)
{
    struct audit_wait w = { 0 };
    unsigned called = 0;

    open_log();
    settle();
    audit_append(a, &(struct audit_record){ .action = "a.lazy", .outcome = "success" }, true);
    settle();
    uint64_t seq = audit_append(a, &(struct audit_record){ .action = "a.lazier", .outcome = "success" }, true);
    assert_false(audit_wait(a, &w, seq, count, &called));
    while (!called)
        ev_turn(loop, 100);
}

TEST(records_of_one_loop_turn_are_one_batch)
{
    struct audit_stats before, after;

    open_log();
    settle();
    audit_stats(a, &before);
    for (int i = 0; i < 200; i++)
        add("t", "sandbox.create");
    settle();
    audit_stats(a, &after);
    assert_int_equal(after.records - before.records, 200);
    assert_int_equal(after.batches - before.batches, 1);
}

TEST(AL10_numbers_continue_across_files_restarts_and_clock_changes)
{
    set.segment_max = 4096;
    set.sign_records = 5;
    for (int round = 0; round < 3; round++) {
        open_log();
        assert_false(found.torn_bytes || found.shortened || found.replaced);
        for (int i = 0; i < 20; i++) {
            add("t", "sandbox.create");
            settle();
        }
        close_log();
    }
    struct verify_report r = check();
    assert_int_equal(r.fault, VERIFY_FINE);
    assert_int_equal(r.first, 1);
    assert_true(r.files > 3);
    assert_true(r.checkpoints >= 12);
    assert_int_equal(r.signed_to, r.last); /* closing the trail signs it */
    assert_int_equal(signed_at.seq, r.last);
    assert_int_equal(r.records, r.last);
}

TEST(a_quiet_trail_is_signed_and_leaves_no_timer)
{
    open_log();
    uint64_t seq = add("t", "sandbox.create");
    while (signed_at.seq == 0)
        ev_turn(loop, 1000);
    assert_int_equal(signed_at.seq, seq + 1);
    uint64_t from = clock_mono_ns();
    ev_turn(loop, 300); /* no timer is left that would end the wait early */
    assert_true(clock_mono_ns() - from >= 300 * NS_PER_MS);
    holds();
}

static void append_raw(unsigned no, const char *text, size_t len)
{
    auto_free char *name = file(no);
    auto_fd int fd = open(name, O_WRONLY | O_APPEND | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, len), 0);
}

TEST(a_torn_end_is_removed_and_reported)
{
    static const char zeros[5000];
    static const struct {
        const char *text;
        size_t len;
    } ends[] = { { "{\"seq\":", 7 }, { zeros, sizeof(zeros) }, { "{\"seq\":4,\"at\":\"x\"}\n", 19 }, { "\n\n", 2 } };

    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        open_log();
        add("t", "sandbox.create");
        settle();
        close_log();
        append_raw(1, ends[i].text, ends[i].len);
        open_log();
        assert_int_equal(found.torn_bytes, ends[i].len);
        close_log();
        holds();
        auto_free char *name = file(1), *text = slurp(name);
        auto_free char *record = str_printf(
            "\"action\":\"audit.torn\",\"outcome\":\"failed\",\"actor\":{\"kind\":\"server\"},"
            "\"details\":{\"bytes\":%zu,",
            ends[i].len);
        assert_non_null(strstr(text, record));
    }
}

TEST(a_kill_loses_no_record_that_was_waited_for)
{
    for (int round = 0; round < 5; round++) {
        int reports[2];

        assert_int_equal(pipe(reports), 0);
        pid_t pid = fork();
        if (pid == 0) {
            struct ev *own = NULL;
            struct audit_wait w = { 0 };
            struct err err = { 0 };

            if (ev_new(&own, &err) < 0 ||
                audit_open(own, &(struct audit_settings){ .dir = dir, .segment_max = 8192 }, &a, &found, &err) < 0)
                _exit(1);
            for (;;) {
                unsigned called = 0;
                uint64_t seq = audit_append(
                    a, &(struct audit_record){ .tenant = "t", .action = "sandbox.create", .outcome = "success" },
                    false);

                if (!audit_wait(a, &w, seq, count, &called))
                    while (!called)
                        ev_turn(own, 100);
                if (fd_write_all(reports[1], &seq, sizeof(seq)) < 0)
                    _exit(1);
            }
        }
        close(reports[1]);
        uint64_t last = 0, seq;
        for (int i = 0; i < 100 + 37 * round; i++) {
            assert_int_equal(fd_read_full(reports[0], &seq, sizeof(seq)), sizeof(seq));
            last = seq;
        }
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        while (fd_read_full(reports[0], &seq, sizeof(seq)) == sizeof(seq))
            last = seq;
        close(reports[0]);
        set.segment_max = 8192;
        open_log();
        struct audit_stats s;
        audit_stats(a, &s);
        assert_true(s.head.seq >= last);
        close_log();
        holds();
    }
}

TEST(AL06_records_removed_from_the_end_are_detected_by_the_known_checkpoint)
{
    open_log();
    for (int i = 0; i < 10; i++)
        add("t", "sandbox.create");
    close_log();
    struct chain_link last = signed_at;
    auto_free char *name = file(1), *text = slurp(name);
    char *cut = text;
    for (int i = 0; i < 4; i++)
        cut = strchr(cut, '\n') + 1;
    assert_int_equal(truncate(name, cut - text), 0);
    holds(); /* the file alone does not reveal it */

    set.known_checkpoint = last;
    open_log();
    assert_true(found.shortened && !found.replaced);
    struct audit_stats s;
    audit_stats(a, &s);
    assert_true(s.head.seq > last.seq); /* no number is used twice */
    close_log();
    struct verify_report r = check();
    assert_int_equal(r.fault, VERIFY_MISSING);
    assert_int_equal(r.line, 5);
}

TEST(AL06_a_rewritten_trail_is_reported)
{
    open_log();
    add("t", "sandbox.create");
    close_log();
    struct chain_link last = signed_at;
    auto_free char *name = file(1);
    assert_int_equal(unlink(name), 0);
    open_log();
    for (int i = 0; i < 5; i++)
        add("t", "sandbox.delete");
    close_log();
    set.known_checkpoint = last;
    open_log();
    assert_true(found.replaced);
    close_log();
    auto_free char *text = slurp(name);
    assert_non_null(strstr(text, "security.audit_damaged"));
}

TEST(the_oldest_files_are_trimmed_and_the_trim_is_recorded)
{
    set.segment_max = 4096;
    set.keep_max = 20000;
    open_log();
    for (int i = 0; i < 300; i++) {
        add("t", "sandbox.create");
        settle();
    }
    close_log();
    auto_free char *first = file(1);
    assert_int_equal(access(first, F_OK), -1);
    auto_free char *command = str_printf("cat %s/*.jsonl | grep -q audit.trim", dir);
    assert_int_equal(system(command), 0);
    auto_free char *size = str_printf("test $(cat %s/*.jsonl | wc -c) -lt 30000", dir);
    assert_int_equal(system(size), 0);
}

/* Mounts a file system of a few pages, if the test has the permission. */
static bool small_disk(const char *options)
{
    return geteuid() == 0 && mount("audit", dir, "tmpfs", 0, options) == 0;
}

TEST(AL02_a_full_disk_accepts_removals_then_closes_and_reopens_with_space)
{
    struct audit_wait w = { 0 };
    unsigned called = 0;
    const char *why;

    if (!small_disk("size=24m"))
        skip();
    auto_free char *ballast = str_printf("%s/ballast", dir);
    open_log();
    settle();
    assert_int_equal(audit_state(a, &why), AUDIT_OPEN);
    int fd = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (posix_fallocate(fd, 0, lseek(fd, 0, SEEK_END) + 4096) == 0 && lseek(fd, 0, SEEK_END) < 24 << 20)
        continue;
    auto_free char *big = str_printf("{\"text\":\"%0*d\"}", 60000, 0);
    struct audit_record r = { .tenant = "t", .action = "sandbox.delete", .outcome = "success", .details = big };
    int n = 0;
    for (; audit_state(a, &why) == AUDIT_OPEN && n < 200; n++) {
        audit_append(a, &r, false);
        settle();
    }
    assert_int_equal(audit_state(a, &why), AUDIT_FULL);
    for (n = 0; audit_state(a, &why) == AUDIT_FULL && n < 200; n++) {
        audit_append(a, &r, false); /* these still fit into the reserved space */
        settle();
    }
    assert_true(n > 3);
    assert_int_equal(audit_state(a, &why), AUDIT_CLOSED);
    assert_non_null(strstr(why, "cannot be written"));
    uint64_t seq = 0;
    for (int i = 0; i < 10; i++) /* these do not fit */
        seq = audit_append(a, &r, false);
    assert_false(audit_wait(a, &w, seq, count, &called));
    for (int i = 0; i < 20; i++)
        ev_turn(loop, 10);
    assert_int_equal(called, 0);
    close(fd);
    assert_int_equal(unlink(ballast), 0);
    while (!called)
        ev_turn(loop, 100);
    while (audit_state(a, &why) != AUDIT_OPEN)
        ev_turn(loop, 100);
    close_log();
    holds();
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
}

/* --- pages --- */

static struct audit_page page;
static unsigned pages;

static void on_page(void *arg UNUSED, const struct err *err, const struct audit_page *p)
{
    assert_null(err);
    buf_done(&page.lines);
    page = *p;
    page.lines = (struct buf){ 0 };
    buf_add(&page.lines, p->lines.data, p->lines.len);
    pages++;
}

static const struct audit_page *ask(const struct audit_query *q)
{
    unsigned before = pages;

    audit_read(a, q, on_page, NULL);
    while (pages == before)
        ev_turn(loop, 100);
    return &page;
}

static void fill(void)
{
    set.segment_max = 8192;
    open_log();
    for (int i = 0; i < 300; i++) {
        add(i % 3 ? "red" : "blue", i % 2 ? "sandbox.create" : "execution.create");
        settle();
    }
}

TEST(AL09_a_page_has_only_one_tenants_records_and_each_once)
{
    unsigned n = 0, asked = 0;

    fill();
    for (uint64_t after = 0;; after = page.last) {
        const struct audit_page *p = ask(&(struct audit_query){ .tenant = "blue", .after = after, .limit = 7 });

        assert_null(strstr(p->lines.data ? p->lines.data : "", "\"tenant\":\"red\""));
        assert_null(strstr(p->lines.data ? p->lines.data : "", "\"tenant\":\"\""));
        assert_true(p->n <= 7);
        n += (unsigned)p->n;
        if (!p->more)
            break;
        assert_true(asked++ < 100);
    }
    assert_int_equal(n, 100);
    assert_int_equal(ask(&(struct audit_query){ .tenant = "unknown", .limit = 1000 })->n, 0);
    buf_done(&page.lines);
}

TEST(pages_filter_by_number_action_and_time)
{
    fill();
    assert_int_equal(ask(&(struct audit_query){ .action = "execution.create", .limit = 1000 })->n, 150);
    assert_int_equal(ask(&(struct audit_query){ .action = "sandbox.", .limit = 1000 })->n, 150);
    assert_int_equal(ask(&(struct audit_query){ .action = "sandbox", .limit = 1000 })->n, 0);
    uint64_t now = clock_real_ns() / NS_PER_MS;
    assert_int_equal(ask(&(struct audit_query){ .since_ms = now + 3600000, .limit = 1000 })->n, 0);
    assert_int_equal(ask(&(struct audit_query){ .until_ms = 1000, .limit = 1000 })->n, 0);
    assert_int_equal(
        ask(&(struct audit_query){ .tenant = "red", .since_ms = 1000, .until_ms = now + 3600000, .limit = 1000 })->n,
        200);
    for (uint64_t after = 1; after < 300; after += 13) {
        const struct audit_page *p = ask(&(struct audit_query){ .after = after, .limit = 1 });
        auto_free char *want = str_printf("{\"seq\":%" PRIu64 ",", after + 1);

        assert_true(p->n == 1 && p->more && p->last == after + 1);
        assert_true(str_starts(p->lines.data, want));
    }
    buf_done(&page.lines);
}

TEST(latest_returns_the_last_records_in_order)
{
    struct audit_stats s;

    fill();
    audit_stats(a, &s);
    const struct audit_page *p = ask(&(struct audit_query){ .latest = true, .limit = 50 });
    assert_int_equal(p->n, 50);
    assert_int_equal(p->last, s.head.seq);
    uint64_t seq = s.head.seq - 49;
    for (const char *line = p->lines.data; line && *line; line = strchr(line, '\n') + 1, seq++) {
        auto_free char *want = str_printf("{\"seq\":%" PRIu64 ",", seq);

        assert_true(str_starts(line, want));
    }
    assert_int_equal(seq, s.head.seq + 1);
    p = ask(&(struct audit_query){ .latest = true, .limit = 1000, .tenant = "blue" });
    assert_int_equal(p->n, 100);
    buf_done(&page.lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define EACH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        EACH(a_wait_ends_only_after_the_record_is_in_the_file),
        EACH(waits_for_one_write_end_in_the_order_in_which_they_began),
        EACH(a_lazy_record_is_written_soon_and_immediately_on_a_wait),
        EACH(records_of_one_loop_turn_are_one_batch),
        EACH(AL10_numbers_continue_across_files_restarts_and_clock_changes),
        EACH(a_quiet_trail_is_signed_and_leaves_no_timer),
        EACH(a_torn_end_is_removed_and_reported),
        EACH(a_kill_loses_no_record_that_was_waited_for),
        EACH(AL06_records_removed_from_the_end_are_detected_by_the_known_checkpoint),
        EACH(AL06_a_rewritten_trail_is_reported),
        EACH(the_oldest_files_are_trimmed_and_the_trim_is_recorded),
        EACH(AL02_a_full_disk_accepts_removals_then_closes_and_reopens_with_space),
        EACH(AL09_a_page_has_only_one_tenants_records_and_each_once),
        EACH(pages_filter_by_number_action_and_time),
        EACH(latest_returns_the_last_records_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
