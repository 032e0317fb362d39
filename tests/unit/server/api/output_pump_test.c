/* The pump of output with a client that records its messages. Stored output is in files of the
 * test; running executions belong to a manager with a fake runtime. */
#include "tests/unit/sandbox/fake.h"

#include "server/api/output_pump.h"
#include "service/manager.h"

#include <fcntl.h>
#include <stdio.h>

static char dir[64], db[96];
static const char sandbox_id[] = "sbaaaaaaaaaaaaaaaaaaaa", execution_id[] = "exaaaaaaaaaaaaaaaaaaaa";

/* --- the client --- */

struct client {
    struct output_pump pump;
    int room;       /* messages that it accepts */
    struct buf log; /* one line per message: channel @ offset, ':' and text or '#' and other bytes */
    int progress;   /* calls of on_progress */
};

static bool client_has_room(void *client)
{
    return ((struct client *)client)->room > 0;
}

static void client_send_output(void *client, const struct output_piece *piece)
{
    struct client *c = client;

    c->room--;
    assert_int_equal(c->pump.offset[piece->channel - 1], piece->offset + piece->len);
    buf_addf(&c->log, "%d@%" PRIu64 "%c", piece->channel, piece->offset, piece->is_text ? ':' : '#');
    buf_add(&c->log, piece->data, piece->len);
    buf_adds(&c->log, "\n");
}

static void client_send_event(void *client, const char *type, const struct buf *json UNUSED)
{
    struct client *c = client;

    c->room--;
    buf_addf(&c->log, "%s@%" PRIu64 "\n", type, c->pump.offset[2]);
}

static void client_send_end(void *client, const char *execution_json)
{
    struct client *c = client;

    assert_non_null(strstr(execution_json, "\"state\":\"ended\""));
    buf_adds(&c->log, "end\n");
}

static void client_on_progress(void *arg)
{
    ((struct client *)arg)->progress++;
}

#define CLIENT(...)                                                                                      \
    {                                                                                                    \
        .has_room = client_has_room, .send_output = client_send_output, .send_event = client_send_event, \
        .send_end = client_send_end, __VA_ARGS__                                                         \
    }
static const struct output_client_ops plain_ops = CLIENT(.piece_max = 1024, .turn_max = 4096);
static const struct output_client_ops small_ops = CLIENT(.piece_max = 4, .turn_max = 8);
static const struct output_client_ops raw_ops = CLIENT(.piece_max = 4, .turn_max = 4096, .is_raw = true);

static void client_init(struct client *c, struct manager *m, const struct output_client_ops *ops)
{
    *c = (struct client){ .room = 1000 };
    output_pump_init(&c->pump, m, ops, c, client_on_progress, c);
}

static void client_done(struct client *c)
{
    output_pump_done(&c->pump);
    buf_done(&c->log);
}

static enum output_pump_result client_run(struct client *c)
{
    struct err err = { 0 };

    return output_pump_run(&c->pump, &err);
}

/* Compares the messages since the last call. */
static void assert_sent(struct client *c, const char *lines)
{
    assert_string_equal(c->log.data ? c->log.data : "", lines);
    buf_clear(&c->log);
}

/* --- the manager --- */

struct scene {
    struct fake k; /* its ev, jailer and runtime are used */
    struct store *store;
    struct manager *m;
    int answers;
    struct client client;
};

static int scene_connect(void *arg, int *ret_jailer, int *ret_monitor, struct err *err UNUSED)
{
    struct scene *s = arg;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    s->k.jailer = pair[1];
    *ret_jailer = pair[0];
    *ret_monitor = -1;
    return 0;
}

static void scene_open(struct scene *s)
{
    struct store_settings store = { .url.file = db };
    struct manager_settings set = { .output_dir = dir,
                                    .connect = scene_connect,
                                    .arg = s,
                                    .executions_max = 64,
                                    .creating_max = 16,
                                    .starting_max = 64 };
    struct err err = { 0 };

    *s = (struct scene){ .k = { .jailer = -1, .runtime = -1, .cpu = -1 } };
    assert_int_equal(ev_new(&s->k.ev, &err), 0);
    assert_int_equal(store_open(s->k.ev, &store, &s->store, &err), 0);
    set.store = s->store;
    assert_int_equal(manager_new(s->k.ev, &set, &s->m, &err), 0);
    for (uint64_t end = now_ms() + 5000; !manager_ready(s->m, NULL) && now_ms() < end;)
        ev_turn(s->k.ev, 5);
    assert_true(manager_ready(s->m, NULL));
}

static void scene_close(struct scene *s)
{
    client_done(&s->client);
    manager_free(s->m);
    store_close(s->store);
    ev_turn(s->k.ev, 0);
    ev_free(s->k.ev);
    fd_close(&s->k.jailer);
    fd_close(&s->k.runtime);
    fd_close(&s->k.cpu);
    (void)take_any(-1);
    unlink(db);
}

/* Waits for the next frame of this type; skips others. */
static void scene_expect(struct scene *s, const int *sock, uint8_t type)
{
    uint64_t end = now_ms() + 5000;

    while (now_ms() < end) {
        ev_turn(s->k.ev, 5);
        while (take_any(*sock))
            if (got.f.type == type)
                return;
    }
    fail_msg("%s was never sent", frame_name(type));
}

static void scene_on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row UNUSED)
{
    assert_null(err);
    ((struct scene *)arg)->answers++;
}

static void scene_on_execution(void *arg, const struct err *err, const struct store_execution *row)
{
    struct scene *s = arg;
    struct output_join join = { .owner = "me", .sandbox = sandbox_id, .channels = OUTPUT_ALL_CHANNELS };
    struct err why = { 0 };

    assert_null(err);
    client_init(&s->client, s->m, &plain_ops);
    assert_int_equal(output_pump_join(&s->client.pump, &join, row, &why), 0);
    s->answers++;
}

/* Starts an execution that the client joins before its first output. */
static void scene_start_execution(struct scene *s)
{
    static const char *const argv[] = { "true", NULL };
    struct rt_hello hello;
    struct spec spec;

    scene_open(s);
    spec_init(&spec);
    str_copy(spec.runtime, sizeof(spec.runtime), "sh");
    assert_int_equal(spec_finish(&spec, NULL), 0);
    manager_create(s->m, "me", sandbox_id, &spec, NULL, NULL, scene_on_sandbox, s);
    scene_expect(s, &s->k.jailer, FRAME_J_TEMPLATE);
    jailer_ok(&s->k);
    scene_expect(s, &s->k.jailer, FRAME_J_CREATE);
    jailer_created(&s->k, ALL_OUTSIDE);
    turn(&s->k);
    take(s->k.runtime, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&s->k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
    scene_expect(s, &s->k.jailer, FRAME_J_KEEP);
    jailer_ok(&s->k);
    turn_until(&s->k, &s->answers);
    s->answers = 0;
    manager_execute(s->m, "me", sandbox_id, NULL, &(struct execution_spec){ .argv = argv }, scene_on_execution, s);
    scene_expect(s, &s->k.runtime, FRAME_EXEC);
    s->k.stream = got.f.stream;
    runtime_started(&s->k);
    turn_until(&s->k, &s->answers);
}

static void scene_write(struct scene *s, uint8_t channel, const char *text)
{
    s->client.progress = 0;
    runtime_says(&s->k, FRAME_DATA, channel, s->k.stream, text, strlen(text));
    turn_until(&s->k, &s->client.progress);
}

static void scene_exit(struct scene *s)
{
    runtime_exit(&s->k, 0, 0);
    for (uint64_t end = now_ms() + 5000; s->client.pump.watch && now_ms() < end;)
        ev_turn(s->k.ev, 5);
    assert_null(s->client.pump.watch);
}

TEST(output_of_a_file_that_did_not_exist_at_the_join_is_sent)
{
    struct scene s;

    scene_start_execution(&s);
    assert_int_equal(s.client.pump.fd[0], -1);
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "");
    scene_write(&s, RT_STDERR, "err");
    scene_write(&s, RT_STDOUT, "out");
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "1@0:out\n2@0:err\n");
    scene_close(&s);
}

TEST(the_start_of_a_character_waits_for_its_rest_while_the_execution_runs)
{
    struct scene s;

    scene_start_execution(&s);
    scene_write(&s, RT_STDOUT, "a\xe2\x82");
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "1@0:a\n");
    scene_write(&s, RT_STDOUT, "\xac\xc3");
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "1@1:\xe2\x82\xac\n");
    scene_exit(&s); /* the rest never comes */
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
    assert_sent(&s.client, "1@4#\xc3\nend\n");
    scene_close(&s);
}

TEST(an_execution_that_ends_before_its_last_byte_is_sent_ends_after_it)
{
    struct scene s;

    scene_start_execution(&s);
    s.client.room = 1;
    scene_write(&s, RT_STDOUT, "out");
    scene_write(&s, RT_STDERR, "err");
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "1@0:out\n");
    scene_exit(&s);
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
    assert_sent(&s.client, "");
    s.client.room = 1;
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
    assert_sent(&s.client, "2@0:err\nend\n");
    scene_close(&s);
}

/* --- an ended execution --- */

static void write_file(int channel, const char *text)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/%s.%d", dir, execution_id, channel);
    auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Files of an execution in a context. */
static struct store_execution ended_execution(const char *out, const char *err, const char *events)
{
    struct store_execution row = { .state = STORE_EXECUTION_ENDED, .ended_ms = 1 };

    str_copy(row.id, sizeof(row.id), execution_id);
    str_copy(row.sandbox, sizeof(row.sandbox), sandbox_id);
    str_copy(row.context, sizeof(row.context), "cxaaaaaaaaaaaaaaaaaaaa");
    write_file(1, out);
    write_file(2, err);
    write_file(3, events);
    return row;
}

TEST(a_character_at_the_end_of_a_piece_is_sent_with_the_next_piece)
{
    struct store_execution row = ended_execution("abc\xc3\xa9z", "\xff\xfe", "");
    struct output_join join = { .owner = "me", .sandbox = sandbox_id, .channels = OUTPUT_ALL_CHANNELS };
    struct scene s;

    scene_open(&s);
    client_init(&s.client, s.m, &small_ops);
    assert_int_equal(output_pump_join(&s.client.pump, &join, &row, NULL), 0);
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
    assert_sent(&s.client, "1@0:abc\n1@3:\xc3\xa9z\n2@0#\xff\xfe\nend\n");
    scene_close(&s);
}

TEST(a_client_without_room_gets_each_piece_once_and_in_order)
{
    struct store_execution row = ended_execution("0123456789", "err", "{\"type\":\"result\"}\n");
    struct output_join join = { .owner = "me", .sandbox = sandbox_id, .channels = OUTPUT_ALL_CHANNELS };
    static const char *const lines[] = { "1@0:0123\n", "1@4:4567\n", "1@8:89\n", "2@0:err\n" };
    struct scene s;

    scene_open(&s);
    client_init(&s.client, s.m, &small_ops);
    assert_int_equal(output_pump_join(&s.client.pump, &join, &row, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        s.client.room = 0;
        assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
        s.client.room = 1;
        assert_int_equal(client_run(&s.client), OUTPUT_PUMP_WAITING);
        assert_sent(&s.client, lines[i]);
    }
    s.client.room = 1; /* the end needs no room */
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
    assert_sent(&s.client, "result@18\nend\n");
    scene_close(&s);
}

TEST(a_turn_ends_when_its_bytes_are_sent)
{
    struct store_execution row = ended_execution("0123456789", "", "");
    struct output_join join = { .owner = "me", .sandbox = sandbox_id, .channels = OUTPUT_ALL_CHANNELS };
    struct scene s;

    scene_open(&s);
    client_init(&s.client, s.m, &small_ops);
    assert_int_equal(output_pump_join(&s.client.pump, &join, &row, NULL), 0);
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_MORE);
    assert_sent(&s.client, "1@0:0123\n1@4:4567\n");
    assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
    assert_sent(&s.client, "1@8:89\nend\n");
    scene_close(&s);
}

TEST(a_client_resumes_at_its_offsets)
{
    static const char events[] = "{\"type\":\"display\"}\n{\"type\":\"result\"}\n";
    const struct {
        struct output_join join;
        const struct output_client_ops *ops;
        const char *lines; /* NULL: refused */
    } rows[] = {
        { { .offset = { 2, 3, 19 } }, &plain_ops, "1@2:t\nresult@37\nend\n" },
        { { .offset = { 3, 3, 37 } }, &plain_ops, "end\n" },
        { { .offset = { 4 } }, &plain_ops, NULL },
        { { .offset = { 0, 4 } }, &plain_ops, NULL },
        { { .offset = { 0, 0, 38 } }, &plain_ops, NULL },
        { { .offset = { 0, 0, 37 }, .has_tail = true, .tail_bytes = 1 }, &plain_ops, "1@2:t\n2@2:r\nend\n" },
        { { .channels = OUTPUT_CHANNEL(2), .offset = { 0, 1 } }, &raw_ops, "2@1#rr\nend\n" },
    };
    struct store_execution row = ended_execution("out", "err", events);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct output_join join = rows[i].join;
        struct err err = { 0 };
        struct scene s;

        join.sandbox = sandbox_id;
        join.channels = join.channels ? join.channels : OUTPUT_ALL_CHANNELS;
        scene_open(&s);
        client_init(&s.client, s.m, rows[i].ops);
        if (rows[i].lines) {
            assert_int_equal(output_pump_join(&s.client.pump, &join, &row, &err), 0);
            assert_int_equal(client_run(&s.client), OUTPUT_PUMP_ENDED);
            assert_sent(&s.client, rows[i].lines);
        } else {
            assert_int_equal(output_pump_join(&s.client.pump, &join, &row, &err), -1);
            assert_int_equal(err.id, ERR_HTTP_RANGE);
            assert_non_null(strstr(err.msg, "bytes so far, none at offset"));
        }
        scene_close(&s);
    }
}

TEST(an_execution_of_another_sandbox_is_missing)
{
    struct store_execution row = ended_execution("", "", "");
    struct output_join join = { .owner = "me", .sandbox = "sbother", .channels = OUTPUT_ALL_CHANNELS };
    struct client c;
    struct err err = { 0 };

    client_init(&c, NULL, &plain_ops);
    assert_int_equal(output_pump_join(&c.pump, &join, &row, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    client_done(&c);
}

/* --- live output --- */

TEST(live_output_is_sent_at_once_except_the_start_of_a_character)
{
    struct client c;

    client_init(&c, NULL, &plain_ops);
    c.room = 0; /* the source is stopped by its owner */
    output_pump_add(&c.pump, 1, "a\xc3", 2);
    assert_sent(&c, "1@0:a\n");
    output_pump_add(&c.pump, 2, "\xe2", 1);
    output_pump_add(&c.pump, 2, "\x82", 1);
    assert_sent(&c, "");
    output_pump_add(&c.pump, 1, "\xa9z", 2);
    assert_sent(&c, "1@1:\xc3\xa9z\n");
    output_pump_flush(&c.pump);
    assert_sent(&c, "2@0#\xe2\x82\n");
    output_pump_flush(&c.pump);
    assert_sent(&c, "");
    client_done(&c);
}

static int set_up(void **state UNUSED)
{
    str_copy(dir, sizeof(dir), "/tmp/cove-output-pump-XXXXXX");
    assert_non_null(mkdtemp(dir));
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
        RUN(output_of_a_file_that_did_not_exist_at_the_join_is_sent),
        RUN(the_start_of_a_character_waits_for_its_rest_while_the_execution_runs),
        RUN(an_execution_that_ends_before_its_last_byte_is_sent_ends_after_it),
        RUN(a_character_at_the_end_of_a_piece_is_sent_with_the_next_piece),
        RUN(a_client_without_room_gets_each_piece_once_and_in_order),
        RUN(a_turn_ends_when_its_bytes_are_sent),
        RUN(a_client_resumes_at_its_offsets),
        RUN(an_execution_of_another_sandbox_is_missing),
        RUN(live_output_is_sent_at_once_except_the_start_of_a_character),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
