#include "tests/unit/test.h"

#include "service/output_stream.h"

/* A sink that keeps everything in one buffer, up to `capacity` bytes. */
struct memory {
    struct buf kept;
    size_t capacity;
    uint64_t room;
};

static uint64_t memory_room(const void *arg)
{
    const struct memory *m = arg;

    return m->room;
}

static size_t memory_write(void *arg, int channel UNUSED, const void *data, size_t len)
{
    struct memory *m = arg;
    size_t n = min_size(len, m->capacity - m->kept.len);

    buf_add(&m->kept, data, n);
    return n;
}

static size_t memory_write_event(void *arg, const struct kernel_event *e UNUSED, const struct buf *json)
{
    return memory_write(arg, OUTPUT_EVENTS, json->data, json->len);
}

static const struct output_sink memory_sink = {
    .event_end = "\n", .room = memory_room, .write = memory_write, .write_event = memory_write_event
};

static void write_text(struct output_stream *s, int channel, const char *text)
{
    output_stream_write(s, channel, text, strlen(text));
}

static void write_event(struct output_stream *s)
{
    static const char line[] = "{\"event\":\"display\",\"id\":\"ex1\",\"data\":{\"text/plain\":\"1\"},\"metadata\":{}}";
    struct kernel_event e;
    struct err err = { 0 };

    if (kernel_event_parse(line, strlen(line), &e, &err) < 0)
        fail_msg("%s", err.msg);
    output_stream_write_event(s, &e);
    kernel_event_done(&e);
}

TEST(all_channels_share_one_limit)
{
    struct memory m = { .capacity = SIZE_MAX, .room = OUTPUT_UNLIMITED };
    struct output_stream s = { .sink = &memory_sink, .arg = &m, .limit = 8 };

    write_text(&s, 1, "12345");
    write_text(&s, 2, "12345");
    write_text(&s, 1, "1");
    assert_string_equal(m.kept.data, "12345123");
    assert_int_equal(s.kept[0], 5);
    assert_int_equal(s.kept[1], 3);
    assert_int_equal(s.dropped[0], 1);
    assert_int_equal(s.dropped[1], 2);
    assert_int_equal(output_stream_kept(&s), 8);
    buf_done(&m.kept);
}

TEST(an_event_beyond_the_limit_is_dropped_as_a_whole)
{
    struct memory m = { .capacity = SIZE_MAX, .room = OUTPUT_UNLIMITED };
    struct output_stream s = { .sink = &memory_sink, .arg = &m, .limit = OUTPUT_UNLIMITED };

    write_event(&s);
    uint64_t size = s.kept[2];
    assert_true(size > 1 && m.kept.data[m.kept.len - 1] == '\n');
    s.limit = 2 * size - 1;
    write_event(&s);
    assert_int_equal(s.kept[2], size);
    assert_int_equal(s.dropped[2], size);
    write_text(&s, 1, "1");
    assert_int_equal(s.kept[0], 1);
    buf_done(&m.kept);
}

TEST(room_of_the_sink_limits_the_stream)
{
    struct memory m = { .capacity = SIZE_MAX, .room = 3 };
    struct output_stream s = { .sink = &memory_sink, .arg = &m, .limit = OUTPUT_UNLIMITED };

    write_text(&s, 2, "12345");
    assert_int_equal(s.kept[1], 3);
    assert_int_equal(s.dropped[1], 2);
    buf_done(&m.kept);
}

TEST(bytes_that_the_sink_refuses_are_lost_and_use_no_limit)
{
    struct memory m = { .capacity = 2, .room = OUTPUT_UNLIMITED };
    struct output_stream s = { .sink = &memory_sink, .arg = &m, .limit = 4 };

    write_text(&s, 1, "123");
    assert_int_equal(s.kept[0], 2);
    assert_int_equal(s.lost[0], 1);
    m.capacity = SIZE_MAX;
    write_text(&s, 1, "123");
    assert_int_equal(s.kept[0], 4);
    assert_int_equal(s.dropped[0], 1);
    buf_done(&m.kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_channels_share_one_limit),
        cmocka_unit_test(an_event_beyond_the_limit_is_dropped_as_a_whole),
        cmocka_unit_test(room_of_the_sink_limits_the_stream),
        cmocka_unit_test(bytes_that_the_sink_refuses_are_lost_and_use_no_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
