/* Streams of server-sent events. */
#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/sse.h"

static struct buf events; /* "type|data|id;" of each */
static unsigned stop_after;
static struct err last;

static bool on_event(void *arg UNUSED, const struct sse_event *e)
{
    buf_addf(&events, "%s|", e->type);
    buf_add(&events, e->data, e->len);
    buf_addf(&events, "|%s;", e->id);
    return stop_after == 0 || --stop_after > 0;
}

static const char *read_in_pieces(struct sse *s, const char *stream, size_t len, size_t piece)
{
    buf_clear(&events);
    buf_adds(&events, "");
    last = (struct err){ 0 };
    for (size_t at = 0; at < len; at += piece)
        if (sse_feed(s, stream + at, min_size(piece, len - at), &last) < 0)
            return "error";
    return events.data;
}

TEST(events_are_the_same_however_the_stream_is_cut)
{
    static const struct {
        const char *stream, *events;
    } rows[] = {
        { "data: {\"a\":1}\n\n", "message|{\"a\":1}|;" },
        { "event: ping\rdata:x\r\rdata:y\r\n\r\n", "ping|x|;message|y|;" },
        { "data: 1\ndata:  2\ndata\n\n", "message|1\n 2\n|;" },
        { "\xef\xbb\xbf"
          "data: bom\n\n\xef\xbb\xbf"
          "data: not a field\n\n",
          "message|bom|;" },
        { ": keep-alive\n\nid: 7\ndata:\n\ndata: z\n\n", "message||7;message|z|7;" },
        { "id: 7\n\nid\ndata: no id\n\n", "message|no id|;" },
        { "event: dropped\n\ndata: plain\n\n", "message|plain|;" },
        { "DATA: case\ndatax: y\nfoo: bar\n: data: z\n\n", "" },
        { "data: incomplete\n", "" },
        { "\n\r\n\r\rdata: a\r\n\r\n\r\n", "message|a|;" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t piece = 1; piece <= 8; piece++) {
            auto_(sse) s = sse_new(100, on_event, NULL);
            const char *got = read_in_pieces(s, rows[i].stream, strlen(rows[i].stream), piece);

            if (!str_eq(got, rows[i].events))
                fail_msg("row %zu, pieces of %zu: %s", i, piece, got);
        }
}

TEST(an_id_with_nul_is_ignored_and_data_with_nul_is_kept)
{
    static const char stream[] = "id: a\nid: b\0c\ndata: x\0y\n\n";
    auto_(sse) s = sse_new(100, on_event, NULL);

    read_in_pieces(s, stream, sizeof(stream) - 1, 5);
    assert_int_equal(events.len, strlen("message|x.y|a;"));
    assert_memory_equal(events.data, "message|x\0y|a;", events.len);
    assert_string_equal(sse_last_id(s), "a");
}

TEST(an_id_counts_from_the_end_of_its_event)
{
    auto_(sse) s = sse_new(100, on_event, NULL);
    uint32_t ms = 1;

    read_in_pieces(s, "id: 1\nretry: 500\n", 17, 100);
    assert_string_equal(sse_last_id(s), "");
    read_in_pieces(s, "\nid: 2\ndata: x", 14, 100);
    assert_string_equal(sse_last_id(s), "1");
    assert_true(sse_retry_ms(s, &ms));
    assert_int_equal(ms, 500);
}

TEST(a_retry_time_is_digits_only_and_at_most_an_hour)
{
    static const struct {
        const char *stream;
        bool named;
        uint32_t ms;
    } rows[] = {
        { "retry: 0\n", true, 0 },
        { "retry:\n", false, 0 },
        { "retry: 5s\n", false, 0 },
        { "retry: -1\n", false, 0 },
        { "retry: 99999999999999999999999\n", true, 3600000 },
        { "retry: 7\nretry: x\n", true, 7 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_(sse) s = sse_new(100, on_event, NULL);
        uint32_t ms = 0;

        read_in_pieces(s, rows[i].stream, strlen(rows[i].stream), 100);
        if (sse_retry_ms(s, &ms) != rows[i].named || ms != rows[i].ms)
            fail_msg("%s: %u", rows[i].stream, ms);
    }
}

TEST(an_event_beyond_its_bound_is_refused)
{
    auto_buf stream = { 0 };

    for (size_t n = 99; n <= 101; n++) { /* 50 bytes, a line feed, and the rest */
        auto_(sse) s = sse_new(100, on_event, NULL);

        buf_clear(&stream);
        buf_addf(&stream, "data: %050d\ndata: %0*d\n\n", 0, (int)n - 51, 0);
        if (str_eq(read_in_pieces(s, stream.data, stream.len, 7), "error") != (n > 100))
            fail_msg("%zu bytes", n);
        assert_true(n <= 100 || last.id == ERR_PROTOCOL);
    }
    static const char *const heads[] = { "data: ", ": ", "id: ", "event: ", "" };
    for (size_t i = 0; i < ARRAY_LEN(heads); i++) { /* a line that never ends is not stored for ever */
        auto_(sse) s = sse_new(100, on_event, NULL);

        buf_clear(&stream);
        buf_addf(&stream, "%s%02000d", heads[i], 0);
        assert_string_equal(read_in_pieces(s, stream.data, stream.len, 50), "error");
    }
    auto_(sse) s = sse_new(10000, on_event, NULL);
    buf_clear(&stream);
    buf_addf(&stream, "id: %0*d\n", (int)SSE_ID_MAX + 1, 0);
    assert_string_equal(read_in_pieces(s, stream.data, stream.len, stream.len), "error");
}

TEST(the_receiver_can_stop_between_two_events_of_one_piece)
{
    static const char stream[] = "data: 1\n\ndata: 2\n\ndata: 3\n\n";
    auto_(sse) s = sse_new(100, on_event, NULL);

    stop_after = 2;
    assert_string_equal(read_in_pieces(s, stream, strlen(stream), 100), "message|1|;message|2|;");
    stop_after = 0;
    assert_string_equal(read_in_pieces(s, stream, strlen(stream), 100), "");
}

static int forget_events(void **state UNUSED)
{
    buf_done(&events);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(events_are_the_same_however_the_stream_is_cut), RUN(an_id_with_nul_is_ignored_and_data_with_nul_is_kept),
        RUN(an_id_counts_from_the_end_of_its_event),        RUN(a_retry_time_is_digits_only_and_at_most_an_hour),
        RUN(an_event_beyond_its_bound_is_refused),          RUN(the_receiver_can_stop_between_two_events_of_one_piece),
    };

    return cmocka_run_group_tests(tests, NULL, forget_events);
}
