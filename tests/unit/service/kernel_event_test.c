#include "test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/kernel_event.h"

static void accepted(const char *line, enum kernel_event_kind kind, const char *told)
{
    struct kernel_event e;
    struct err err = { 0 };
    auto_buf out = { 0 };

    if (kernel_event_parse(line, strlen(line), &e, &err) < 0)
        fail_msg("%s: %s", line, err.msg);
    assert_int_equal(e.kind, kind);
    kernel_event_json(&e, &out);
    assert_string_equal(out.data, told);
    kernel_event_done(&e);
}

TEST(every_kind_of_event_is_parsed_and_written_from_its_known_fields)
{
    accepted("{\"event\":\"ready\",\"language\":\"node\",\"version\":\"18\",\"protocol\":1,\"note\":\"slow\"}",
             KERNEL_EVENT_READY,
             "{\"type\":\"ready\",\"language\":\"node\",\"version\":\"18\",\"protocol\":1,\"note\":\"slow\"}");
    accepted("{\"event\":\"ready\",\"language\":\"python\",\"version\":\"3.11\",\"protocol\":1,\"more\":[1]}",
             KERNEL_EVENT_READY, "{\"type\":\"ready\",\"language\":\"python\",\"version\":\"3.11\",\"protocol\":1}");
    accepted("{\"event\":\"started\",\"id\":\"x\",\"count\":7}", KERNEL_EVENT_STARTED,
             "{\"type\":\"running\",\"count\":7}");
    accepted("{\"event\":\"display\",\"id\":\"x\",\"data\":{\"text/plain\":\"1\"},\"sly\":2}", KERNEL_EVENT_DISPLAY,
             "{\"type\":\"display\",\"data\":{\"text/plain\":\"1\"}}");
    accepted("{\"event\":\"result\",\"id\":\"x\",\"count\":1,\"data\":{},\"omitted\":{\"image/png\":\"large\"}}",
             KERNEL_EVENT_RESULT,
             "{\"type\":\"result\",\"count\":1,\"data\":{},\"omitted\":{\"image/png\":\"large\"}}");
    accepted("{\"event\":\"error\",\"id\":\"x\",\"name\":\"E\",\"value\":\"v\",\"traceback\":[\"a\",\"b\"]}",
             KERNEL_EVENT_ERROR, "{\"type\":\"exception\",\"name\":\"E\",\"value\":\"v\",\"traceback\":\"a\\nb\"}");
    accepted("{\"event\":\"input\",\"id\":\"x\",\"prompt\":\"? \",\"password\":false}", KERNEL_EVENT_INPUT,
             "{\"type\":\"input\",\"prompt\":\"? \",\"password\":false}");
    accepted("{\"event\":\"finished\",\"id\":\"x\",\"status\":\"error\"}", KERNEL_EVENT_FINISHED,
             "{\"type\":\"finished\",\"status\":\"error\"}");
    accepted("{\"event\":\"completions\",\"id\":\"x\",\"matches\":[\"a\"],\"start\":0,\"end\":1}",
             KERNEL_EVENT_COMPLETIONS, "{\"type\":\"completions\",\"matches\":[\"a\"],\"start\":0,\"end\":1}");
    accepted("{\"event\":\"inspection\",\"id\":\"x\",\"found\":true,\"data\":{}}", KERNEL_EVENT_INSPECTION,
             "{\"type\":\"inspection\",\"found\":true,\"data\":{}}");
    accepted("{\"event\":\"refused\",\"id\":null,\"why\":\"w\"}", KERNEL_EVENT_REFUSED,
             "{\"type\":\"refused\",\"why\":\"w\"}");
}

#define X16 "xxxxxxxxxxxxxxxx"

TEST(an_invalid_event_is_rejected)
{
    static const char *const bad[] = {
        "",
        "1",
        "[]",
        "{}",
        "{\"event\":\"boom\"}",
        "{\"event\":7}",
        "{\"event\":\"started\",\"id\":\"x\"}",
        "{\"event\":\"started\",\"id\":\"x\",\"count\":-1}",
        "{\"event\":\"started\",\"id\":7,\"count\":1}",
        "{\"event\":\"started\",\"id\":\"x\",\"count\":1.5}",
        "{\"event\":\"started\",\"id\":\"x\",\"id\":\"y\",\"count\":1}",
        "{\"event\":\"display\",\"id\":\"x\",\"data\":[]}",
        "{\"event\":\"error\",\"id\":\"x\",\"name\":\"E\",\"value\":\"v\",\"traceback\":[1]}",
        "{\"event\":\"finished\",\"id\":\"x\",\"status\":\"fine\"}",
        "{\"event\":\"ready\",\"language\":\"python\",\"version\":\"3\",\"protocol\":2}",
        "{\"event\":\"ready\",\"language\":\"python\",\"version\":\"3\",\"protocol\":1,\"note\":[]}",
        ("{\"event\":\"started\",\"count\":1,\"id\":\"" X16 X16 X16 X16 "x\"}"),
        "{\"event\":\"finished\",\"id\":\"x\",\"status\":\"ok\"} more",
        "{\"event\":\"refused\",\"id\":null,\"why\":\"\xff\"}",
    };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct kernel_event e;
        struct err err = { 0 };

        if (kernel_event_parse(bad[i], strlen(bad[i]), &e, &err) == 0)
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(err.id, ERR_PROTOCOL);
    }
}

static char *nested(unsigned depth)
{
    struct buf b = { 0 };

    buf_adds(&b, "{\"event\":\"display\",\"id\":\"x\",\"data\":{\"a\":");
    for (unsigned i = 2; i < depth; i++)
        buf_adds(&b, "[");
    for (unsigned i = 2; i < depth; i++)
        buf_adds(&b, "]");
    buf_adds(&b, "}}");
    return b.data;
}

TEST(nesting_depth_is_limited)
{
    auto_free char *most = nested(KERNEL_EVENT_DEPTH_MAX), *more = nested(KERNEL_EVENT_DEPTH_MAX + 1);
    struct kernel_event e;
    struct err err = { 0 };

    assert_int_equal(kernel_event_parse(most, strlen(most), &e, &err), 0);
    kernel_event_done(&e);
    assert_int_equal(kernel_event_parse(more, strlen(more), &e, &err), -1);
}

/* A display whose data is a list of n copies of the text. */
static char *listed(const char *text, size_t n)
{
    struct buf b = { 0 };

    buf_adds(&b, "{\"event\":\"display\",\"id\":\"x\",\"data\":{\"a\":[");
    for (size_t i = 0; i < n; i++)
        buf_addf(&b, "%s%s", i ? "," : "", text);
    buf_adds(&b, "]}}");
    return b.data;
}

TEST(values_that_cost_more_memory_than_text_are_limited_in_events)
{
    auto_free char *numbers = listed("1", 400000), *lists = listed("[]", 50000), *objects = listed("{}", 100000),
                   *quoted = listed("\"{[,{[,{[,{[,{[,\"", 50000);
    const char *const taken[] = { numbers, lists, quoted };
    struct kernel_event e;
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
        assert_int_equal(kernel_event_parse(taken[i], strlen(taken[i]), &e, &err), 0);
        kernel_event_done(&e);
    }
    assert_true(strlen(objects) < KERNEL_EVENT_LINE_MAX);
    assert_int_equal(kernel_event_parse(objects, strlen(objects), &e, &err), -1);
}

struct received {
    int events, refused;
    char ids[64];
};

static void on_event(void *arg, const struct kernel_event *e)
{
    struct received *h = arg;

    h->events += e != NULL;
    h->refused += e == NULL;
    if (e)
        strncat(h->ids, e->id, sizeof(h->ids) - strlen(h->ids) - 1);
}

TEST(lines_are_found_however_the_bytes_are_split)
{
    static const char bytes[] = "{\"event\":\"started\",\"id\":\"a\",\"count\":1}\n\nrubbish\n"
                                "{\"event\":\"finished\",\"id\":\"b\",\"status\":\"ok\"}\n{\"event\":";

    for (size_t cut = 1; cut < sizeof(bytes); cut++) {
        struct kernel_event_reader r = { 0 };
        struct received h = { 0 };

        for (size_t at = 0; at < sizeof(bytes) - 1; at += cut)
            kernel_event_reader_feed(&r, bytes + at, min_size(cut, sizeof(bytes) - 1 - at), on_event, &h);
        assert_int_equal(h.events, 2);
        assert_int_equal(h.refused, 1);
        assert_string_equal(h.ids, "ab");
        kernel_event_reader_reset(&r);
    }
}

TEST(a_line_that_is_too_long_is_rejected_once_and_the_next_is_read)
{
    auto_free char *x = mem_alloc(64 * KIB);
    struct kernel_event_reader r = { 0 };
    struct received h = { 0 };
    static const char next[] = "\n{\"event\":\"finished\",\"id\":\"b\",\"status\":\"ok\"}\n";

    memset(x, 'x', 64 * KIB);
    for (int i = 0; i < 40; i++) {
        kernel_event_reader_feed(&r, x, 64 * KIB, on_event, &h);
        assert_true(r.line.cap <= 4 * KERNEL_EVENT_LINE_MAX);
    }
    kernel_event_reader_feed(&r, next, sizeof(next) - 1, on_event, &h);
    assert_int_equal(h.refused, 1);
    assert_int_equal(h.events, 1);
    kernel_event_reader_reset(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_kind_of_event_is_parsed_and_written_from_its_known_fields),
        RUN(an_invalid_event_is_rejected),
        RUN(nesting_depth_is_limited),
        RUN(values_that_cost_more_memory_than_text_are_limited_in_events),
        RUN(lines_are_found_however_the_bytes_are_split),
        RUN(a_line_that_is_too_long_is_rejected_once_and_the_next_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
