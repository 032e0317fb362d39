#include "fake.h"

#include "sandbox/files.h"

struct seen {
    struct fake *k;
    struct files_job *job;
    int done, failed, writable;
    struct files_done result;
    struct err err;
    struct buf data, names;
    bool free_in_callback, hold;
};

static void give_up(struct seen *s)
{
    if (!s->free_in_callback)
        return;
    files_free(s->job);
    s->job = NULL;
}

static void see_entry(void *arg, const struct files_entry *e)
{
    struct seen *s = arg;

    buf_addf(&s->names, "%c %s %o %" PRIu64 ">%s\n", e->kind, e->name, e->mode, e->size, e->target);
    give_up(s);
}

static void see_event(void *arg, const struct files_event *e)
{
    struct seen *s = arg;

    assert_true(!e->from == (e->kind != FILES_MOVED));
    buf_addf(&s->names, "%d%s %s%s%s\n", (int)e->kind, e->is_directory ? "d" : "", e->from ? e->from : "",
             e->from ? ">" : "", e->path);
    if (s->hold)
        files_hold_credit(s->job, true);
    give_up(s);
}

static void see_data(void *arg, const void *data, size_t len)
{
    struct seen *s = arg;

    buf_add(&s->data, data, len);
    if (s->hold)
        files_hold_credit(s->job, true);
    give_up(s);
}

static void see_writable(void *arg)
{
    ((struct seen *)arg)->writable++;
}

static void see_done(void *arg, const struct files_done *d, const struct err *err)
{
    struct seen *s = arg;

    assert_true(!d != !err);
    if (d) {
        s->done++;
        s->result = *d;
    } else {
        s->failed++;
        s->err = *err;
    }
    give_up(s);
}

static const struct files_ops ops = {
    .on_entry = see_entry, .on_event = see_event, .on_data = see_data, .on_writable = see_writable, .on_done = see_done
};

static void scene_over(struct fake *k, struct seen *s)
{
    files_free(s->job);
    buf_done(&s->data);
    buf_done(&s->names);
    scene_end(k);
}

static void put_entry(struct fake *k, uint8_t type, uint32_t stream, char kind, const char *name)
{
    static struct rt_entry e;
    uint8_t out[9000];
    struct pack p;

    e = (struct rt_entry){ .kind = kind, .mode = 0644, .size = 5 };
    str_copy(e.name, sizeof(e.name), name);
    if (kind == 'l')
        str_copy(e.target, sizeof(e.target), "there");
    pack_init(&p, out, sizeof(out));
    rt_entry_pack(&p, &e);
    runtime_says(k, type, 0, stream, out, p.len);
}

TEST(read_delivers_bytes_then_the_entry_then_done)
{
    struct fake k;
    struct seen s = { 0 };
    struct rt_path m;

    scene_ready(&k);
    assert_int_equal(files_open(k.box,
                                &(struct files_request){ FILES_OP_READ, "/workspace/a", .offset = 3, .length = 9 },
                                &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_READ);
    uint32_t stream = got.f.stream;
    assert_int_equal(rt_path_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.path, "/workspace/a");
    assert_int_equal(m.offset, 3);
    assert_int_equal(m.length, 9);
    runtime_says(&k, FRAME_DATA, 0, stream, "hello", 5);
    runtime_says(&k, FRAME_DATA, RT_END, stream, NULL, 0);
    assert_int_equal(s.done, 0);
    put_entry(&k, FRAME_DONE, stream, 'f', "/workspace/a");
    assert_int_equal(s.done, 1);
    assert_int_equal(s.result.bytes, 5);
    assert_string_equal(s.data.data, "hello");
    assert_string_equal(s.names.data, "f /workspace/a 644 5>\n");
    runtime_takes(&k, FRAME_CLOSE);
    scene_over(&k, &s);
}

TEST(held_bytes_are_not_credited)
{
    struct fake k;
    struct seen s = { .hold = true };
    static uint8_t chunk[65536];

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_TAR_OUT, "/workspace" }, &ops, &s, &s.job, NULL), 0);
    runtime_takes(&k, FRAME_TAR_OUT);
    uint32_t stream = got.f.stream;
    for (int i = 0; i < 16; i++)
        runtime_says(&k, FRAME_DATA, 0, stream, chunk, sizeof(chunk));
    silent(&k, k.runtime);
    s.hold = false;
    files_hold_credit(s.job, false);
    runtime_takes(&k, FRAME_CREDIT);
    scene_over(&k, &s);
}

TEST(write_sends_within_the_window_and_ends)
{
    struct fake k;
    struct seen s = { 0 };
    static uint8_t big[WIRE_WINDOW_BULK + 10];
    struct rt_path m;
    struct rt_done counts = { .bytes = WIRE_WINDOW_BULK, .files = 1 };
    uint8_t credit[4] = { 10 };

    scene_ready(&k);
    assert_int_equal(files_open(k.box,
                                &(struct files_request){ FILES_OP_WRITE, "/workspace/b", .mode = 0600,
                                                         .flags = FILES_PARENTS | FILES_EXCL },
                                &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_WRITE);
    uint32_t stream = got.f.stream;
    assert_int_equal(rt_path_decode(&got.f, &m, NULL), 0);
    assert_int_equal(m.mode, 0600);
    assert_int_equal(m.flags, RT_PATH_PARENTS | RT_PATH_EXCL);
    size_t sent = files_send(s.job, big, sizeof(big));
    for (int i = 0; sent < WIRE_WINDOW_BULK && i < 100; i++) { /* a full socket queue also stops it, for a while */
        while (take_any(k.runtime))
            assert_int_equal(got.f.type, FRAME_DATA);
        turn(&k);
        sent += files_send(s.job, big + sent, sizeof(big) - sent);
    }
    assert_int_equal(sent, WIRE_WINDOW_BULK);
    turn(&k);
    while (take_any(k.runtime))
        turn(&k);
    s.writable = 0;
    runtime_says(&k, FRAME_CREDIT, 0, stream, credit, 4);
    assert_int_equal(s.writable, 1);
    assert_int_equal(files_send(s.job, big, 10), 10);
    files_send_end(s.job);
    files_send_end(s.job);
    runtime_takes(&k, FRAME_DATA);
    runtime_takes(&k, FRAME_DATA);
    assert_int_equal(got.f.flags, RT_END);
    silent(&k, k.runtime);
    runtime_done(&k, stream, &counts);
    assert_int_equal(s.done, 1);
    assert_int_equal(s.result.bytes, WIRE_WINDOW_BULK);
    scene_over(&k, &s);
}

TEST(a_read_takes_no_bytes)
{
    struct fake k;
    struct seen s = { 0 };

    scene_ready(&k);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_STAT);
    assert_int_equal(files_send(s.job, "x", 1), 0);
    files_send_end(s.job);
    silent(&k, k.runtime);
    scene_over(&k, &s);
}

TEST(list_gives_each_entry)
{
    struct fake k;
    struct seen s = { 0 };
    struct rt_done counts = { .files = 2, .truncated = 1 };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_LIST, "/workspace", .length = 2 }, &ops, &s, &s.job, NULL),
        0);
    runtime_takes(&k, FRAME_LIST);
    uint32_t stream = got.f.stream;
    put_entry(&k, FRAME_DATA, stream, 'd', "dir");
    put_entry(&k, FRAME_DATA, stream, 'l', "link");
    runtime_done(&k, stream, &counts);
    assert_int_equal(s.done, 1);
    assert_int_equal(s.result.files, 2);
    assert_true(s.result.truncated);
    assert_string_equal(s.names.data, "d dir 644 5>\nl link 644 5>there\n");
    scene_over(&k, &s);
}

TEST(names_that_lead_out_of_the_directory_kill_the_sandbox)
{
    static const char *const names[] = { "", ".", "..", "a/b", "/etc" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct fake k;
        struct seen s = { 0 };

        scene_ready(&k);
        assert_int_equal(
            files_open(k.box, &(struct files_request){ FILES_OP_LIST, "/workspace" }, &ops, &s, &s.job, NULL), 0);
        runtime_takes(&k, FRAME_LIST);
        put_entry(&k, FRAME_DATA, got.f.stream, 'f', names[i]);
        jailer_ends(&k);
        assert_int_equal(k.err.id, ERR_PROTOCOL);
        assert_int_equal(s.failed, 1);
        assert_int_equal(s.names.len, 0);
        scene_over(&k, &s);
    }
}

static void put_event(struct fake *k, uint32_t stream, char kind, bool dir, const char *from, const char *path)
{
    static struct rt_event e;
    uint8_t out[9000];
    struct pack p;

    e = (struct rt_event){ .kind = kind, .dir = dir };
    str_copy(e.path, sizeof(e.path), path);
    str_copy(e.from, sizeof(e.from), from);
    pack_init(&p, out, sizeof(out));
    rt_event_pack(&p, &e);
    assert_false(p.bad);
    runtime_says(k, FRAME_DATA, 0, stream, out, p.len);
}

TEST(a_watch_reports_absolute_paths_in_order)
{
    static const struct {
        const char *path;
        bool dir;
        const char *told;
    } cases[] = {
        { "/workspace//", true,
          "0d /workspace\n1d /workspace/a\n4 /workspace/a/b>/workspace/c\n3 /workspace\n5 /workspace\n" },
        { "/", true, "0d /\n1d /a\n4 /a/b>/c\n3 /\n5 /\n" },
        { "/workspace/f", false,
          "0 /workspace/f\n1d /workspace/a\n4 /workspace/a/b>/workspace/c\n3 /workspace\n5 /workspace\n" },
        { "/f", false, "0 /f\n1d /a\n4 /a/b>/c\n3 /\n5 /\n" },
    };
    struct rt_done nothing = { 0 };
    struct rt_path m;

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct fake k;
        struct seen s = { 0 };

        scene_ready(&k);
        assert_int_equal(files_open(k.box,
                                    &(struct files_request){ FILES_OP_WATCH, cases[i].path, .flags = FILES_RECURSIVE },
                                    &ops, &s, &s.job, NULL),
                         0);
        runtime_takes(&k, FRAME_WATCH);
        uint32_t stream = got.f.stream;
        assert_int_equal(rt_path_decode(&got.f, &m, NULL), 0);
        assert_string_equal(m.path, cases[i].path);
        assert_int_equal(m.flags, RT_PATH_RECURSIVE);
        put_event(&k, stream, RT_WATCHING, cases[i].dir, "", "");
        put_event(&k, stream, RT_CREATED, true, "", "a");
        put_event(&k, stream, RT_MOVED, false, "a/b", "c");
        put_event(&k, stream, RT_REMOVED, false, "", "");
        put_event(&k, stream, RT_OVERFLOW, false, "", "");
        runtime_done(&k, stream, &nothing);
        assert_string_equal(s.names.data, cases[i].told);
        assert_int_equal(s.done, 1);
        scene_over(&k, &s);
    }
}

TEST(a_watch_that_is_held_credits_nothing)
{
    struct fake k;
    struct seen s = { .hold = true };

    scene_ready(&k);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_WATCH, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_WATCH);
    uint32_t stream = got.f.stream;
    put_event(&k, stream, RT_WATCHING, true, "", "");
    for (int i = 0; i < 5000; i++)
        put_event(&k, stream, RT_CREATED, false, "", "a name that is long enough");
    silent(&k, k.runtime);
    s.hold = false;
    files_hold_credit(s.job, false);
    runtime_takes(&k, FRAME_CREDIT);
    scene_over(&k, &s);
}

TEST(invalid_events_and_paths_that_lead_out_kill_the_sandbox)
{
    static const struct {
        bool watching;
        char kind;
        const char *bytes; /* the two paths: each a length of one byte, then the path */
    } lies[] = {
        { false, RT_CREATED, "\1a\0" },   { true, RT_WATCHING, "\0\0" },  { true, RT_CREATED, "\2..\0" },
        { true, RT_CREATED, "\4a/..\0" }, { true, RT_CREATED, "\2/a\0" }, { true, RT_CREATED, "\2a/\0" },
        { true, RT_CREATED, "\1a\1b" },   { true, RT_MOVED, "\1a\0" },    { true, RT_MOVED, "\1a\4b//c" },
        { true, 'X', "\1a\0" },
    };

    for (size_t i = 0; i < ARRAY_LEN(lies); i++) {
        uint8_t out[64] = { (uint8_t)lies[i].kind };
        const char *p = lies[i].bytes;
        size_t len = 2;
        struct fake k;
        struct seen s = { 0 };

        for (int n = 0; n < 2; n++, len += 4 + (size_t)*p, p += 1 + *p) {
            out[len] = (uint8_t)*p;
            memcpy(out + len + 4, p + 1, (size_t)*p);
        }
        scene_ready(&k);
        assert_int_equal(
            files_open(k.box, &(struct files_request){ FILES_OP_WATCH, "/workspace" }, &ops, &s, &s.job, NULL), 0);
        runtime_takes(&k, FRAME_WATCH);
        uint32_t stream = got.f.stream;
        if (lies[i].watching)
            put_event(&k, stream, RT_WATCHING, true, "", "");
        runtime_says(&k, FRAME_DATA, 0, stream, out, len);
        jailer_ends(&k);
        if (k.err.id != ERR_PROTOCOL || s.failed != 1 || s.names.len > sizeof("0d /workspace\n"))
            fail_msg("invalid event %zu was accepted", i);
        scene_over(&k, &s);
    }
}

TEST(simple_requests_carry_their_arguments)
{
    struct fake k;
    struct seen s = { 0 };
    struct rt_path path;
    static struct rt_move move;
    struct rt_done nothing = { 0 };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box,
                   &(struct files_request){ FILES_OP_MKDIR, "/workspace/d", .mode = 0700, .flags = FILES_PARENTS },
                   &ops, &s, &s.job, NULL),
        0);
    runtime_takes(&k, FRAME_MKDIR);
    assert_int_equal(rt_path_decode(&got.f, &path, NULL), 0);
    assert_int_equal(path.mode, 0700);
    runtime_done(&k, got.f.stream, &nothing);
    runtime_takes(&k, FRAME_CLOSE);
    files_free(s.job);

    assert_int_equal(files_open(k.box,
                                &(struct files_request){ FILES_OP_MOVE, "/workspace/d", .move_to = "/workspace/e",
                                                         .flags = FILES_EXCL },
                                &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_MOVE);
    assert_int_equal(rt_move_decode(&got.f, &move, NULL), 0);
    assert_string_equal(move.to, "/workspace/e");
    runtime_done(&k, got.f.stream, &nothing);
    runtime_takes(&k, FRAME_CLOSE);
    files_free(s.job);

    assert_int_equal(files_open(k.box,
                                &(struct files_request){ FILES_OP_REMOVE, "/workspace/e", .flags = FILES_RECURSIVE },
                                &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_REMOVE);
    assert_int_equal(rt_path_decode(&got.f, &path, NULL), 0);
    assert_int_equal(path.flags, RT_PATH_RECURSIVE);
    runtime_error(&k, got.f.stream, ERR_MISSING, "removing /workspace/e: No such file or directory");
    assert_int_equal(s.done, 2);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.err.id, ERR_MISSING);
    scene_over(&k, &s);
}

TEST(bad_paths_are_refused_before_anything_is_sent)
{
    static char longpath[RT_PATH_MAX + 2];
    struct fake k;
    struct seen s = { 0 };
    struct err err = { 0 };

    memset(longpath, 'a', sizeof(longpath) - 1);
    longpath[0] = '/';
    scene_ready(&k);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_READ, "relative" }, &ops, &s, &s.job, &err),
                     -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_STAT, longpath }, &ops, &s, &s.job, &err), -1);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_MOVE, "/a", .move_to = "b" }, &ops, &s, &s.job, &err), -1);
    silent(&k, k.runtime);
    scene_over(&k, &s);
}

TEST(late_frames_of_a_cancelled_job_are_discarded)
{
    struct fake k;
    struct seen s = { 0 };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_READ, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    runtime_takes(&k, FRAME_READ);
    uint32_t stream = got.f.stream;
    files_free(s.job);
    s.job = NULL;
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_STATS);
    uint32_t fence = got.f.stream;
    runtime_says(&k, FRAME_DATA, 0, stream, "late", 4); /* was under way */
    runtime_says(&k, FRAME_DONE, 0, fence, "numbers", 7);
    runtime_takes(&k, FRAME_CLOSE);
    assert_int_equal(got.f.stream, fence);
    assert_int_equal(s.done + s.failed, 0);
    silent(&k, k.jailer);
    runtime_says(&k, FRAME_DATA, 0, stream, "too late", 8); /* after the fence nothing may come */
    jailer_takes(&k, FRAME_J_KILL);
    scene_over(&k, &s);
}

TEST(a_cancelled_job_accepts_a_last_frame_that_was_already_sent)
{
    struct fake k;
    struct seen s = { 0 };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    runtime_takes(&k, FRAME_STAT);
    uint32_t stream = got.f.stream;
    files_free(s.job);
    s.job = NULL;
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_STATS);
    uint32_t fence = got.f.stream;
    runtime_error(&k, stream, ERR_MISSING, "gone");
    runtime_error(&k, fence, ERR_LIMIT, "busy"); /* an error is an answer in order too */
    runtime_takes(&k, FRAME_CLOSE);
    silent(&k, k.runtime);
    silent(&k, k.jailer);
    assert_int_equal(s.done + s.failed, 0);
    scene_over(&k, &s);
}

TEST(a_job_may_be_freed_in_any_of_its_callbacks)
{
    struct fake k;
    struct seen s = { .free_in_callback = true };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_READ, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    runtime_takes(&k, FRAME_READ);
    runtime_says(&k, FRAME_DATA, 0, got.f.stream, "x", 1);
    assert_null(s.job);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_STATS);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_LIST, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_LIST);
    put_entry(&k, FRAME_DATA, got.f.stream, 'f', "one");
    assert_null(s.job);
    runtime_takes(&k, FRAME_CLOSE);
    runtime_takes(&k, FRAME_STATS);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_STAT);
    runtime_error(&k, got.f.stream, ERR_DENIED, "no");
    assert_null(s.job);
    assert_int_equal(s.failed, 1);
    silent(&k, k.jailer);
    scene_over(&k, &s);
}

TEST(the_death_of_a_sandbox_fails_its_jobs)
{
    struct fake k;
    struct seen s = { 0 };

    scene_ready(&k);
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    runtime_takes(&k, FRAME_STAT);
    fd_close(&k.runtime);
    jailer_ends(&k);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.err.id, ERR_LOST);
    struct err err = { 0 };
    struct files_job *j;
    assert_int_equal(files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/workspace" }, &ops, &s, &j, &err), -1);
    assert_int_equal(err.id, ERR_BUSY);
    scene_over(&k, &s);
}

TEST(freeing_a_sandbox_handle_stops_the_callbacks_of_its_jobs)
{
    struct fake k;
    struct seen s = { 0 };

    scene_ready(&k);
    assert_int_equal(
        files_open(k.box, &(struct files_request){ FILES_OP_WRITE, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    sandbox_handle_free(k.box);
    k.box = NULL;
    assert_int_equal(files_send(s.job, "x", 1), 0);
    files_send_end(s.job);
    turn(&k);
    assert_int_equal(s.done + s.failed, 0);
    scene_over(&k, &s);
}

TEST(answers_of_the_wrong_kind_kill_the_sandbox_and_fail_the_job)
{
    static const struct {
        uint8_t request, type;
        uint8_t flags;
        uint32_t len;
    } rows[] = {
        { FRAME_STAT, FRAME_DATA, 0, 1 },  { FRAME_STAT, FRAME_DONE, 0, 3 },     { FRAME_MKDIR, FRAME_DONE, 0, 1 },
        { FRAME_MKDIR, FRAME_EXIT, 0, 8 }, { FRAME_MKDIR, FRAME_STARTED, 0, 4 }, { FRAME_READ, FRAME_DATA, 1, 1 },
        { FRAME_READ, FRAME_ERROR, 0, 2 }, { FRAME_LIST, FRAME_DATA, 0, 7 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;
        struct seen s = { 0 };
        int rc = -1;

        scene_ready(&k);
        if (rows[i].request == FRAME_STAT)
            rc = files_open(k.box, &(struct files_request){ FILES_OP_STAT, "/x" }, &ops, &s, &s.job, NULL);
        else if (rows[i].request == FRAME_MKDIR)
            rc = files_open(k.box, &(struct files_request){ FILES_OP_MKDIR, "/x" }, &ops, &s, &s.job, NULL);
        else if (rows[i].request == FRAME_READ)
            rc = files_open(k.box, &(struct files_request){ FILES_OP_READ, "/x" }, &ops, &s, &s.job, NULL);
        else
            rc = files_open(k.box, &(struct files_request){ FILES_OP_LIST, "/x" }, &ops, &s, &s.job, NULL);
        assert_int_equal(rc, 0);
        runtime_takes(&k, rows[i].request);
        runtime_says(&k, rows[i].type, rows[i].flags, got.f.stream, "zzzzzzzz", rows[i].len);
        jailer_ends(&k);
        if (k.ended != 1 || k.err.id != ERR_PROTOCOL || s.failed != 1)
            fail_msg("row %zu: ended %d, failed %d, %s", i, k.ended, s.failed, k.err.msg);
        scene_over(&k, &s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(read_delivers_bytes_then_the_entry_then_done),
        RUN(held_bytes_are_not_credited),
        RUN(write_sends_within_the_window_and_ends),
        RUN(a_read_takes_no_bytes),
        RUN(list_gives_each_entry),
        RUN(names_that_lead_out_of_the_directory_kill_the_sandbox),
        RUN(a_watch_reports_absolute_paths_in_order),
        RUN(a_watch_that_is_held_credits_nothing),
        RUN(invalid_events_and_paths_that_lead_out_kill_the_sandbox),
        RUN(simple_requests_carry_their_arguments),
        RUN(bad_paths_are_refused_before_anything_is_sent),
        RUN(late_frames_of_a_cancelled_job_are_discarded),
        RUN(a_cancelled_job_accepts_a_last_frame_that_was_already_sent),
        RUN(a_job_may_be_freed_in_any_of_its_callbacks),
        RUN(the_death_of_a_sandbox_fails_its_jobs),
        RUN(freeing_a_sandbox_handle_stops_the_callbacks_of_its_jobs),
        RUN(answers_of_the_wrong_kind_kill_the_sandbox_and_fail_the_job),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
