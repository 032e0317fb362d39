/* Bodies as bytes: where they end and what their content is, in one piece and in pieces. */
#include "core/http1/body.h"

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#define TEXT(s) s, sizeof(s) - 1

struct outcome {
    enum http1_result result;
    size_t used;
    struct buf content;
};

/* Reads in pieces of `piece` bytes. */
static struct outcome read_body(enum http1_framing framing, uint64_t length, const char *data, size_t n, size_t piece)
{
    struct outcome out = { HTTP1_MORE, 0, { 0 } };
    struct http1_body b;
    struct err err = { 0 };

    http1_body_init(&b, framing, length);
    while (out.result == HTTP1_MORE && out.used < n) {
        struct http1_text content;
        size_t used;

        out.result = http1_body_read(&b, data + out.used, min_size(piece, n - out.used), &used, &content, &err);
        buf_add(&out.content, content.data, content.len);
        out.used += used;
    }
    return out;
}

TEST(the_end_of_a_body_does_not_depend_on_pieces)
{
    static const struct {
        enum http1_framing framing;
        uint64_t length;
        const char *data, *content;
        size_t used;
        enum http1_result result;
    } cases[] = {
        { HTTP1_FRAMING_LENGTH, 3, "abcGET", "abc", 3, HTTP1_DONE },
        { HTTP1_FRAMING_LENGTH, 7, "abcGET", "abcGET", 6, HTTP1_MORE },
        { HTTP1_FRAMING_UNTIL_CLOSE, 0, "abcGET", "abcGET", 6, HTTP1_MORE },
        { HTTP1_FRAMING_CHUNKED, 0, "0\r\n\r\nGET", "", 5, HTTP1_DONE },
        { HTTP1_FRAMING_CHUNKED, 0, "3\r\nabc\r\n00a;x=\"y\"\r\n0123456789\r\n0\r\n\r\nGET", "abc0123456789", 36,
          HTTP1_DONE },
        { HTTP1_FRAMING_CHUNKED, 0, "1\r\na\r\n0\r\nX: y\r\nZ:\r\n\r\nGET", "a", 21, HTTP1_DONE },
        { HTTP1_FRAMING_CHUNKED, 0, "F\r\nabc", "abc", 6, HTTP1_MORE },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t piece = 1; piece < 50; piece++) {
            size_t n = strlen(cases[i].data);
            struct outcome out = read_body(cases[i].framing, cases[i].length, cases[i].data, n, piece);

            if (out.result != cases[i].result || out.used != cases[i].used ||
                out.content.len != strlen(cases[i].content) ||
                (out.content.len > 0 && !str_eq(out.content.data, cases[i].content)))
                fail_msg("%s in pieces of %zu: result %d, %zu bytes, '%s'", cases[i].data, piece, out.result, out.used,
                         out.content.data);
            buf_done(&out.content);
        }
}

TEST(EG08_chunks_that_programs_read_differently_are_refused)
{
    static const struct {
        const char *data;
        size_t n;
    } cases[] = {
        { TEXT("\r\n") },
        { TEXT(";x\r\n") },
        { TEXT("x\r\n") },
        { TEXT("0x3\r\nabc") },
        { TEXT("+3\r\nabc") },
        { TEXT("-1\r\n") },
        { TEXT(" 3\r\nabc") },
        { TEXT("3 \r\nabc") },
        { TEXT("3\nabc") },
        { TEXT("3\rabc") },
        { TEXT("3\r\r\nabc") },
        { TEXT("3;a\nb\r\nabc") },
        { TEXT("3;a\0b\r\nabc") },
        { TEXT("3\r\nabcd") },
        { TEXT("3\r\nabc\n") },
        { TEXT("3\r\nabc\r0") },
        { TEXT("8000000000000000\r\n") },
        { TEXT("10000000000000003\r\nabc\r\n") },
        { TEXT("0\r\n folded\r\n") },
        { TEXT("0\r\nX : y\r\n\r\n") },
        { TEXT("0\r\nno colon\r\n\r\n") },
        { TEXT("0\r\n: x\r\n\r\n") },
        { TEXT("0\r\nX: y\n\r\n") },
        { TEXT("0\r\n\n") },
        { TEXT("0\r\nX: \0\r\n\r\n") },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t piece = 1; piece <= cases[i].n; piece++) {
            struct outcome out = read_body(HTTP1_FRAMING_CHUNKED, 0, cases[i].data, cases[i].n, piece);

            if (out.result != HTTP1_BAD)
                fail_msg("accepted in pieces of %zu: %s", piece, cases[i].data);
            buf_done(&out.content);
        }
}

TEST(EG13_extensions_and_trailers_are_bounded)
{
    static const char *const begins[] = { "1;", "0000000000000000000000000000", "0\r\nX: ", "0\r\n" };
    static const char *const fills[] = { "x", "0", "y", "X: y\r\n" };

    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        struct buf b = { 0 };

        buf_adds(&b, begins[i]);
        while (b.len < HTTP1_TRAILER_MAX + 100)
            buf_adds(&b, fills[i]);
        struct outcome out = read_body(HTTP1_FRAMING_CHUNKED, 0, b.data, b.len, 1000);
        assert_int_equal(out.result, HTTP1_BAD);
        buf_done(&out.content);
        buf_done(&b);
    }
}

TEST(a_refused_body_stays_refused)
{
    struct http1_body b;
    struct err err = { 0 };
    size_t used = 99;

    http1_body_init(&b, HTTP1_FRAMING_CHUNKED, 0);
    assert_int_equal(http1_body_pass(&b, TEXT("3\r\nabcX"), &used, &err), HTTP1_BAD);
    assert_int_equal(http1_body_pass(&b, TEXT("\r\n0\r\n\r\n"), &used, &err), HTTP1_BAD);
    assert_int_equal(used, 0);
    assert_false(http1_body_may_close(&b));
}

TEST(a_connection_may_end_only_after_the_body)
{
    struct http1_body b;
    struct err err = { 0 };
    size_t used;

    http1_body_init(&b, HTTP1_FRAMING_NONE, 0);
    assert_true(http1_body_may_close(&b));
    assert_int_equal(http1_body_pass(&b, "x", 1, &used, &err), HTTP1_DONE);
    assert_int_equal(used, 0);
    http1_body_init(&b, HTTP1_FRAMING_LENGTH, 0);
    assert_int_equal(http1_body_pass(&b, NULL, 0, &used, &err), HTTP1_DONE);
    http1_body_init(&b, HTTP1_FRAMING_LENGTH, 2);
    assert_int_equal(http1_body_pass(&b, "x", 1, &used, &err), HTTP1_MORE);
    assert_false(http1_body_may_close(&b));
    assert_int_equal(http1_body_pass(&b, "yz", 2, &used, &err), HTTP1_DONE);
    assert_int_equal(used, 1);
    assert_true(http1_body_may_close(&b));
    http1_body_init(&b, HTTP1_FRAMING_UNTIL_CLOSE, 0);
    assert_true(http1_body_may_close(&b));
    http1_body_init(&b, HTTP1_FRAMING_CHUNKED, 0);
    assert_int_equal(http1_body_pass(&b, TEXT("0\r\n\r"), &used, &err), HTTP1_MORE);
    assert_false(http1_body_may_close(&b));
}

TEST(a_written_chunk_head_is_read_back)
{
    static const size_t sizes[] = { 1, 15, 16, 65536, INT64_MAX >> 1 };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char head[HTTP1_CHUNK_HEAD_MAX];
        struct http1_body b;
        struct err err = { 0 };
        size_t n = http1_chunk_head(sizes[i], head), used;

        http1_body_init(&b, HTTP1_FRAMING_CHUNKED, 0);
        assert_int_equal(http1_body_pass(&b, head, n, &used, &err), HTTP1_MORE);
        assert_int_equal(b.left, sizes[i]);
        assert_int_equal(b.state, HTTP1_BODY_CHUNK_DATA);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_end_of_a_body_does_not_depend_on_pieces), RUN(EG08_chunks_that_programs_read_differently_are_refused),
        RUN(EG13_extensions_and_trailers_are_bounded),    RUN(a_refused_body_stays_refused),
        RUN(a_connection_may_end_only_after_the_body),    RUN(a_written_chunk_head_is_read_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
