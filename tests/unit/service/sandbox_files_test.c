/* Jobs on the files of a sandbox: when they hold it, and how a file that changes is read. The
 * manager has a scripted jailer and runtime and a real store. */
#include "tests/unit/sandbox/fake.h"

#include "service/sandbox_files.h"
#include "service/execution_internal.h"

#define BOX "sbaaaaaaaaaaaaaaaaaaaa"
#define ME "me"
#define PATH "/workspace/f"

static char dir[64], db[96];

/* --- the scene --- */

struct scene {
    struct fake k; /* its ev, jailer and runtime are used */
    struct store *store;
    struct manager *m;
    int answers; /* of the manager */
};

static int connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err UNUSED)
{
    struct scene *s = arg;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s->k.jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    return 0;
}

static void expect(struct scene *s, const int *socket, uint8_t type)
{
    uint64_t end = now_ms() + 5000 * slow_factor();

    while (now_ms() < end) {
        ev_turn(s->k.ev, 5);
        while (take_any(*socket))
            if (got.f.type == type)
                return;
    }
    fail_msg("%s was never sent", frame_name(type));
}

static void on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    assert_null(err);
    ((struct scene *)arg)->answers++;
}

static void answered(struct scene *s)
{
    turn_until(&s->k, &s->answers);
    s->answers = 0;
}

/* Starts a manager and creates the sandbox BOX. */
static void scene_open(struct scene *s)
{
    struct manager_settings set = { .output_dir = dir,
                                    .connect = connect_jailer,
                                    .arg = s,
                                    .executions_max = 8,
                                    .creating_max = 8,
                                    .starting_max = 8 };
    struct rt_hello hello;
    struct spec spec;

    *s = (struct scene){ .k = { .jailer = -1, .runtime = -1, .cpu = -1, .oom = -1 } };
    assert_int_equal(ev_new(&s->k.ev, NULL), 0);
    assert_int_equal(store_open(s->k.ev, &(struct store_settings){ .url.file = db }, &s->store, NULL), 0);
    set.store = s->store;
    assert_int_equal(manager_new(s->k.ev, &set, &s->m, NULL), 0);
    while (!manager_ready(s->m, NULL))
        ev_turn(s->k.ev, 5);
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "sh");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    manager_create(s->m, ME, BOX, &spec, NULL, NULL, on_sandbox, s);
    expect(s, &s->k.jailer, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
    expect(s, &s->k.jailer, FRAME_J_CREATE);
    jailer_created(&s->k, ALL_OUTSIDE);
    expect(s, &s->k.runtime, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&s->k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    expect(s, &s->k.jailer, FRAME_J_KEEP);
    jailer_ok(&s->k);
    answered(s);
}

static void scene_close(struct scene *s)
{
    manager_free(s->m);
    store_close(s->store);
    turn(&s->k);
    ev_free(s->k.ev);
    fd_close(&s->k.jailer);
    fd_close(&s->k.runtime);
    fd_close(&s->k.cpu);
    fd_close(&s->k.oom);
    (void)take_any(-1);
    unlink(db);
}

static unsigned uses(const struct scene *s)
{
    return registry_find(manager_sandbox_services(s->m)->registry, ME, BOX)->use_count;
}

/* --- the caller of a job --- */

struct caller {
    struct sandbox_files_job *job;
    int starts, entries, changing, done;
    uint64_t length; /* to read after on_entry */
    bool reads_changing_file;
    struct files_entry entry; /* name and target are borrowed in on_entry only */
    struct buf data;
    struct err err; /* id 0: success */
};

static void on_start(void *arg)
{
    struct caller *c = arg;

    assert_non_null(c->job);
    c->starts++;
}

static void on_entry(void *arg, const struct files_entry *e)
{
    struct caller *c = arg;

    c->entries++;
    c->entry = *e;
    if (c->length)
        sandbox_files_read(c->job, 2, c->length);
}

static bool on_changing(void *arg)
{
    struct caller *c = arg;

    c->changing++;
    return c->reads_changing_file;
}

static void on_data(void *arg, const void *data, size_t len)
{
    buf_add(&((struct caller *)arg)->data, data, len);
}

static void on_files_done(void *arg, const struct files_done *d, const struct err *err)
{
    struct caller *c = arg;

    assert_true(!d != !err);
    c->done++;
    c->err = err ? *err : (struct err){ 0 };
    sandbox_files_free(take_ptr(&c->job));
}

static void open_job(struct scene *s, enum files_operation operation, struct caller *c)
{
    static const struct sandbox_files_ops ops = {
        .files.on_entry = on_entry, .files.on_data = on_data, .files.on_done = on_files_done, .on_changing = on_changing
    };
    static const struct sandbox_files_ops write_ops = { .files.on_done = on_files_done, .on_start = on_start };
    struct sandbox_files_request r = { ME, BOX, { operation, PATH } };

    sandbox_files_open(s->m, &r, operation == FILES_OP_WRITE ? &write_ops : &ops, c, &c->job);
    ev_turn(s->k.ev, 0); /* the sandbox is acquired after the call */
}

static void answer_entry(struct scene *s, uint64_t version, bool settled)
{
    static struct rt_entry e;
    uint8_t out[9000];
    struct pack p;

    e = (struct rt_entry){ .kind = 'f', .mode = 0644, .size = 5, .version = version, .settled = settled, .name = PATH };
    pack_init(&p, out, sizeof(out));
    rt_entry_pack(&p, &e);
    runtime_says(&s->k, FRAME_DONE, 0, got.f.stream, out, p.len);
}

/* Takes the READ and checks which part of which version it accepts; version 0: any. */
static void expect_read(struct scene *s, uint64_t version, uint64_t offset, uint64_t length)
{
    struct rt_path m;

    expect(s, &s->k.runtime, FRAME_READ);
    assert_int_equal(rt_path_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.flags, version ? rt_file_version_check(version) : 0);
    assert_int_equal(m.offset, offset);
    assert_int_equal(m.length, length);
}

/* A READ finds another version of the file, `times` times. */
static void change_file(struct scene *s, int times)
{
    for (int i = 1; i <= times; i++) {
        expect(s, &s->k.runtime, FRAME_STAT);
        answer_entry(s, (uint64_t)i << 32, true);
        expect_read(s, (uint64_t)i << 32, 2, 3);
        runtime_error(&s->k, got.f.stream, ERR_BUSY, "the file changed");
    }
}

/* --- tests --- */

TEST(a_job_holds_its_sandbox_until_it_is_freed)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    open_job(&s, FILES_OP_STAT, &c);
    assert_int_equal(uses(&s), 1);
    expect(&s, &s.k.runtime, FRAME_STAT);
    answer_entry(&s, 7, true);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, 0);
    assert_int_equal(c.entry.size, 5);
    assert_int_equal(uses(&s), 0);
    open_job(&s, FILES_OP_TAR_OUT, &c);
    assert_int_equal(uses(&s), 1);
    sandbox_files_free(c.job);
    assert_int_equal(uses(&s), 0);
    assert_int_equal(c.done, 1);
    scene_close(&s);
}

TEST(a_watch_does_not_hold_its_sandbox)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    open_job(&s, FILES_OP_WATCH, &c);
    expect(&s, &s.k.runtime, FRAME_WATCH);
    assert_int_equal(uses(&s), 0);
    sandbox_files_free(c.job);
    assert_int_equal(uses(&s), 0);
    scene_close(&s);
}

TEST(a_write_starts_when_the_sandbox_is_acquired_and_sends_its_bytes)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    open_job(&s, FILES_OP_WRITE, &c);
    assert_int_equal(c.starts, 1);
    assert_int_equal(sandbox_files_send(c.job, "bytes", 5), 5);
    sandbox_files_send_end(c.job);
    expect(&s, &s.k.runtime, FRAME_WRITE);
    uint32_t stream = got.f.stream;
    expect(&s, &s.k.runtime, FRAME_DATA);
    assert_memory_equal(got.f.data, "bytes", 5);
    runtime_done(&s.k, stream, &(struct rt_done){ .bytes = 5, .files = 1 });
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, 0);
    scene_close(&s);
}

TEST(a_sandbox_that_cannot_be_used_fails_the_job_without_a_start)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    manager_pause(s.m, ME, BOX, on_sandbox, &s);
    expect(&s, &s.k.jailer, FRAME_J_FREEZE);
    jailer_ok(&s.k);
    answered(&s);
    open_job(&s, FILES_OP_WRITE, &c); /* may be freed before the call returns */
    assert_int_equal(c.done, 1);
    assert_int_equal(c.starts, 0);
    assert_int_equal(c.err.id, ERR_SANDBOX_PAUSED);
    assert_int_equal(uses(&s), 0);
    scene_close(&s);
}

TEST(a_job_freed_while_it_waits_for_its_sandbox_starts_nothing)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    for (int resume = 0; resume < 2; resume++) { /* the acquisition fails, then succeeds */
        (resume ? manager_resume : manager_pause)(s.m, ME, BOX, on_sandbox, &s);
        expect(&s, &s.k.jailer, resume ? FRAME_J_THAW : FRAME_J_FREEZE);
        uint32_t stream = got.f.stream;
        open_job(&s, FILES_OP_STAT, &c);
        sandbox_files_free(c.job);
        got.f.stream = stream;
        jailer_ok(&s.k);
        answered(&s);
        turn(&s.k);
        assert_int_equal(uses(&s), 0);
    }
    while (take_any(s.k.runtime))
        assert_int_not_equal(got.f.type, FRAME_STAT);
    assert_int_equal(c.done, 0);
    scene_close(&s);
}

TEST(a_file_is_described_when_its_version_is_settled)
{
    struct scene s;
    struct caller c = { 0 };

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c.entries, 0);
        expect(&s, &s.k.runtime, FRAME_STAT);
        answer_entry(&s, 7, i == 2);
        assert_int_equal(uses(&s), 1);
    }
    assert_int_equal(c.entries, 1);
    assert_true(c.entry.settled);
    sandbox_files_free(c.job);
    scene_close(&s);
}

TEST(a_file_that_is_written_all_the_time_is_described_as_not_settled)
{
    struct scene s;
    struct caller c = { 0 };
    int stats = 0;

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    for (; c.entries == 0; stats++) {
        expect(&s, &s.k.runtime, FRAME_STAT);
        answer_entry(&s, 7, false);
    }
    assert_int_equal(stats, 13);
    assert_false(c.entry.settled);
    sandbox_files_free(c.job);
    scene_close(&s);
}

TEST(a_file_that_changed_before_it_was_opened_is_described_again)
{
    struct scene s;
    struct caller c = { .length = 3 };

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    change_file(&s, 2);
    expect(&s, &s.k.runtime, FRAME_STAT);
    answer_entry(&s, 9, true);
    expect_read(&s, 9, 2, 3);
    uint32_t stream = got.f.stream;
    runtime_says(&s.k, FRAME_DATA, 0, stream, "abc", 3);
    got.f.stream = stream;
    answer_entry(&s, 9, true);
    assert_int_equal(c.entries, 3);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, 0);
    assert_string_equal(c.data.data, "abc");
    assert_int_equal(uses(&s), 0);
    buf_done(&c.data);
    scene_close(&s);
}

TEST(a_change_after_the_first_byte_is_an_error)
{
    struct scene s;
    struct caller c = { .length = 3 };

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    expect(&s, &s.k.runtime, FRAME_STAT);
    answer_entry(&s, 9, true);
    expect_read(&s, 9, 2, 3);
    uint32_t stream = got.f.stream;
    runtime_says(&s.k, FRAME_DATA, 0, stream, "a", 1);
    runtime_error(&s.k, stream, ERR_BUSY, "the file changed");
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, ERR_BUSY);
    assert_int_equal(c.entries, 1);
    buf_done(&c.data);
    scene_close(&s);
}

TEST(a_file_that_changes_all_the_time_is_read_as_it_is_if_the_caller_wants)
{
    struct scene s;
    struct caller c = { .length = 3, .reads_changing_file = true };

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    change_file(&s, 8);
    expect_read(&s, 0, 0, 0);
    assert_int_equal(c.changing, 1);
    runtime_error(&s.k, got.f.stream, ERR_BUSY, "not a change");
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, ERR_BUSY);
    scene_close(&s);
}

TEST(a_part_of_a_file_that_changes_all_the_time_is_not_read)
{
    struct scene s;
    struct caller c = { .length = 3 };

    scene_open(&s);
    open_job(&s, FILES_OP_READ, &c);
    change_file(&s, 8);
    assert_int_equal(c.changing, 1);
    assert_int_equal(c.done, 1);
    assert_int_equal(c.err.id, ERR_EXISTS);
    assert_int_equal(uses(&s), 0);
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
        RUN(a_job_holds_its_sandbox_until_it_is_freed),
        RUN(a_watch_does_not_hold_its_sandbox),
        RUN(a_write_starts_when_the_sandbox_is_acquired_and_sends_its_bytes),
        RUN(a_sandbox_that_cannot_be_used_fails_the_job_without_a_start),
        RUN(a_job_freed_while_it_waits_for_its_sandbox_starts_nothing),
        RUN(a_file_is_described_when_its_version_is_settled),
        RUN(a_file_that_is_written_all_the_time_is_described_as_not_settled),
        RUN(a_file_that_changed_before_it_was_opened_is_described_again),
        RUN(a_change_after_the_first_byte_is_an_error),
        RUN(a_file_that_changes_all_the_time_is_read_as_it_is_if_the_caller_wants),
        RUN(a_part_of_a_file_that_changes_all_the_time_is_not_read),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
