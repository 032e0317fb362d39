/* Files, changes and adoption through the engine, with the real runtime at the other end. */
#include "world.h"

#include "core/base/mem.h"
#include "sandbox/files.h"

struct seen {
    struct files_job *job;
    int done, failed;
    struct files_done result;
    struct err err;
    struct buf data, names;
    const uint8_t *send;
    size_t send_len, sent;
};

static void push(struct seen *s)
{
    s->sent += files_send(s->job, s->send + s->sent, s->send_len - s->sent);
    if (s->sent == s->send_len)
        files_send_end(s->job);
}

static void see_entry(void *arg, const struct files_entry *e)
{
    struct seen *s = arg;

    buf_addf(&s->names, "%c:%s:%" PRIu64 " ", e->kind, e->name, e->size);
}

static void see_data(void *arg, const void *data, size_t len)
{
    buf_add(&((struct seen *)arg)->data, data, len);
}

static void see_writable(void *arg)
{
    push(arg);
}

static void see_done(void *arg, const struct files_done *d, const struct err *err)
{
    struct seen *s = arg;

    if (d) {
        s->done++;
        s->result = *d;
    } else {
        s->failed++;
        s->err = *err;
    }
}

static const struct files_ops ops = {
    .on_entry = see_entry, .on_data = see_data, .on_writable = see_writable, .on_done = see_done
};

static void await(struct world *w, struct seen *s)
{
    for (int i = 0; i < 300 && !s->done && !s->failed; i++)
        ev_turn(w->ev, 100);
    assert_int_equal(s->done + s->failed, 1);
    files_free(s->job);
    s->job = NULL;
}

static void reset(struct seen *s)
{
    buf_done(&s->data);
    buf_done(&s->names);
    *s = (struct seen){ 0 };
}

static void ready_world(struct world *w)
{
    struct sandbox_spec box = plain_spec();

    begin(w, &box, NULL);
    turn_until(w, &w->ready, 30);
}

static void put_file(struct world *w, const char *path, const void *data, size_t len)
{
    struct seen s = { .send = data, .send_len = len };
    struct err err = { 0 };

    if (files_open(w->box, &(struct files_request){ FILES_OP_WRITE, path, .flags = FILES_PARENTS }, &ops, &s, &s.job,
                   &err) < 0)
        fail_msg("%s", err.msg);
    push(&s);
    await(w, &s);
    if (!s.done)
        fail_msg("writing %s: %s", path, s.err.msg);
    assert_int_equal(s.result.bytes, len);
    reset(&s);
}

TEST(a_file_of_many_windows_is_read_back_unchanged)
{
    struct world w;
    struct seen s = { 0 };
    size_t len = 5 * MIB + 17;
    auto_free uint8_t *bytes = mem_alloc(len);

    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 4096);
    ready_world(&w);
    put_file(&w, "/workspace/sub/big", bytes, len);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_READ, "/workspace/sub/big" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_int_equal(s.done, 1);
    assert_int_equal(s.data.len, len);
    assert_memory_equal(s.data.data, bytes, len);
    assert_string_equal(s.names.data, "f:/workspace/sub/big:5242897 ");
    reset(&s);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_READ, "/workspace/sub/big", .offset = 5, .length = 3 },
                   &ops, &s, &s.job, NULL),
        0);
    await(&w, &s);
    assert_int_equal(s.data.len, 3);
    assert_memory_equal(s.data.data, bytes + 5, 3);
    reset(&s);
    destroy(&w);
    close_world(&w);
}

TEST(directories_are_made_listed_moved_and_removed)
{
    struct world w;
    struct seen s = { 0 };

    ready_world(&w);
    assert_int_equal(files_open(w.box,
                                &(struct files_request){ FILES_OP_MKDIR, "/workspace/a/b", .flags = FILES_PARENTS },
                                &ops, &s, &s.job, NULL),
                     0);
    await(&w, &s);
    assert_int_equal(s.done, 1);
    reset(&s);
    put_file(&w, "/workspace/a/f", "12345", 5);
    assert_int_equal(files_open(w.box,
                                &(struct files_request){ FILES_OP_MOVE, "/workspace/a/f", .move_to = "/workspace/a/g" },
                                &ops, &s, &s.job, NULL),
                     0);
    await(&w, &s);
    assert_int_equal(s.done, 1);
    reset(&s);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_LIST, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_int_equal(s.result.files, 2);
    assert_non_null(strstr(s.names.data, "d:b:"));
    assert_non_null(strstr(s.names.data, "f:g:5 "));
    reset(&s);
    assert_int_equal(files_open(w.box,
                                &(struct files_request){ FILES_OP_REMOVE, "/workspace/a", .flags = FILES_RECURSIVE },
                                &ops, &s, &s.job, NULL),
                     0);
    await(&w, &s);
    assert_int_equal(s.done, 1);
    reset(&s);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_STAT, "/workspace/a" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_int_equal(s.failed, 1);
    assert_int_equal(s.err.id, ERR_MISSING);
    reset(&s);
    destroy(&w);
    close_world(&w);
}

TEST(a_tree_is_exported_as_tar_and_imported_again)
{
    struct world w;
    struct seen s = { 0 }, in = { 0 };

    ready_world(&w);
    put_file(&w, "/workspace/t/x/one", "1", 1);
    put_file(&w, "/workspace/t/two", "22", 2);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_TAR_OUT, "/workspace/t" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_int_equal(s.done, 1);
    assert_true(s.data.len >= 1024);
    put_file(&w, "/workspace/u/.keep", "", 0);
    in.send = (const uint8_t *)s.data.data;
    in.send_len = s.data.len;
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_TAR_IN, "/workspace/u" }, &ops, &in, &in.job, NULL), 0);
    push(&in);
    await(&w, &in);
    if (!in.done)
        fail_msg("tar in: %s", in.err.msg);
    reset(&in);
    reset(&s);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_LIST, "/workspace/u" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_non_null(strstr(s.names.data, "f:two:2 "));
    reset(&s);
    destroy(&w);
    close_world(&w);
}

TEST(an_aborted_write_keeps_the_old_file)
{
    struct world w;
    struct seen s = { 0 };

    ready_world(&w);
    put_file(&w, "/workspace/f", "old", 3);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_WRITE, "/workspace/f" }, &ops, &s, &s.job, NULL), 0);
    assert_int_equal(files_send(s.job, "new and longer", 14), 14);
    files_free(s.job);
    reset(&s);
    assert_int_equal(
        files_open(w.box, &(struct files_request){ FILES_OP_READ, "/workspace/f" }, &ops, &s, &s.job, NULL), 0);
    await(&w, &s);
    assert_string_equal(s.data.data, "old");
    reset(&s);
    assert_int_equal(files_open(w.box, &(struct files_request){ FILES_OP_LIST, "/workspace" }, &ops, &s, &s.job, NULL),
                     0);
    await(&w, &s);
    assert_int_equal(s.result.files, 1); /* no partial file remains */
    reset(&s);
    destroy(&w);
    close_world(&w);
}

TEST(a_receipt_lists_what_the_program_changed)
{
    struct world w;
    struct exec_spec spec = { .argv = SH("echo 1 > new; echo 22 >> old; rm gone; mkdir dir"),
                              .changes = true,
                              .wall_ms = 20000 };
    struct err err = { 0 };

    ready_world(&w);
    put_file(&w, "/workspace/old", "x", 1);
    put_file(&w, "/workspace/gone", "x", 1);
    put_file(&w, "/workspace/same", "x", 1);
    assert_int_equal(sandbox_handle_exec(w.box, &spec, &exec_ops, &w, &w.exec, &err), 0);
    turn_until(&w, &w.exited, 30);
    expect_end(&w, ENDED_EXIT);
    const struct receipt *r = exec_handle_receipt(w.exec);
    if (r->changes_why)
        fail_msg("%s", r->changes_why);
    assert_int_equal(r->added, 2);
    assert_int_equal(r->modified, 1);
    assert_int_equal(r->deleted, 1);
    assert_int_equal(r->nchanges, 4);
    destroy(&w);
    close_world(&w);
}

TEST(a_kept_sandbox_is_adopted_with_its_files_and_walls)
{
    struct world w, next = { 0 };
    struct sandbox_spec box = plain_spec();
    struct err err = { 0 };
    struct exec_spec spec = { .argv = SH("cat note"), .wall_ms = 20000 };
    char id[ID_SIZE];
    int sock;

    ready_world(&w);
    put_file(&w, "/workspace/note", "remember", 8);
    str_copy(id, sizeof(id), sandbox_handle_id(w.box));
    sandbox_handle_keep(w.box, on_done, &w);
    turn_until(&w, &w.done, 10);
    if (!w.done_ok)
        fail_msg("keep: %s", w.err.msg);
    sandbox_handle_free(w.box);
    engine_free(w.engine);

    next.ev = w.ev;
    next.spec = &spec;
    next.jailer = w.jailer;
    if (jailer_connect_kept(state_dir, id, &sock, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(engine_new(w.ev, sock, &engine_ops, &next, &next.engine, &err), 0);
    assert_int_equal(sandbox_handle_adopt(next.engine, id, &box, &box_ops, &next, &next.box, &err), 0);
    turn_until(&next, &next.exited, 30);
    expect_end(&next, ENDED_EXIT);
    assert_string_equal(next.out.data, "remember");
    assert_int_not_equal(exec_handle_receipt(next.exec)->inside_walls, 0);
    destroy(&next);
    close_world(&next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_file_of_many_windows_is_read_back_unchanged), RUN(directories_are_made_listed_moved_and_removed),
        RUN(a_tree_is_exported_as_tar_and_imported_again),  RUN(an_aborted_write_keeps_the_old_file),
        RUN(a_receipt_lists_what_the_program_changed),      RUN(a_kept_sandbox_is_adopted_with_its_files_and_walls),
    };

    return cmocka_run_group_tests(tests, make_state_dir, remove_state_dir);
}
