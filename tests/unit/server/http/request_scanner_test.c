/* Requests as bytes, in one piece and split at every position: which bytes pass, and which requests
 * are refused with which error. */
#include "tests/support/http_limits.h"
#include "tests/unit/test.h"

#include "server/http/request_scanner.h"

struct outcome {
    enum err_id err;
    uint64_t ended;
    size_t let; /* bytes that the server may read */
};

static struct http_limits small(void)
{
    struct http_limits lim;

    lim = http_limits_for_tests();
    lim.line_max = 40;
    lim.head_max = 120;
    lim.headers_max = 4;
    return lim;
}

/* Scans in two pieces, the first of `cut` bytes. */
static struct outcome scan(const char *data, size_t n, size_t cut)
{
    struct http_limits lim = small();
    struct outcome out = { 0 };
    struct err err = { 0 };
    struct request_scanner f;
    size_t got = 0;

    request_scanner_init(&f, &lim);
    if (request_scanner_scan(&f, data, cut, &got, &err) == 0) {
        out.let = got;
        request_scanner_scan(&f, data + cut, n - cut, &got, &err);
    }
    out.let += got;
    out.ended = f.requests_ended;
    out.err = err.id;
    request_scanner_done(&f);
    return out;
}

#define HEAD(line, headers) line " HTTP/1.1\r\n" headers "\r\n"
#define GET HEAD("GET /", "")
#define CHUNKED HEAD("PUT /", "Transfer-Encoding: chunked\r\n")
#define TEXT(s) s, sizeof(s) - 1

TEST(request_boundaries_do_not_depend_on_how_the_bytes_are_split)
{
    static const struct {
        const char *data;
        size_t n;
        uint64_t ended;
    } cases[] = {
        { TEXT(""), 0 },
        { TEXT("GET / HT"), 0 },
        { TEXT(GET), 1 },
        { TEXT(GET GET GET), 3 },
        { TEXT("\r\n\r\n" GET), 1 },
        { TEXT(HEAD("GET /", "A:\r\nb: c \r\nC:\t;\xe9\r\n")), 1 },
        { TEXT(HEAD("PUT /", "content-length:5\r\n") "a\nb\r\n" GET), 2 },
        { TEXT(HEAD("PUT /", "Content-Length: 0\r\n") GET), 2 },
        { TEXT(HEAD("PUT /", "Content-Length: 5\r\n") "abcd"), 0 },
        { TEXT(CHUNKED "5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\n" GET), 2 },
        { TEXT(CHUNKED "0\r\nX: y\r\n\r\n" GET), 2 },
        { TEXT(CHUNKED "5\r\nhel"), 0 },
        { TEXT("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" GET), 2 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t cut = 0; cut <= cases[i].n; cut++) {
            struct outcome out = scan(cases[i].data, cases[i].n, cut);

            if (out.err != ERR_NONE || out.ended != cases[i].ended || out.let != cases[i].n)
                fail_msg("case %zu cut at %zu: error %d, %" PRIu64 " requests, %zu bytes", i, cut, out.err, out.ended,
                         out.let);
        }
}

TEST(ambiguous_requests_are_refused_and_hidden_from_their_first_byte)
{
    static const struct {
        const char *data;
        size_t n;
        enum err_id err;
    } cases[] = {
        { TEXT("GET / HTTP/1.1\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\0\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\n\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET /\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET  / HTTP/1.1\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(" GET / HTTP/1.1\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.2\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1 \r\n"), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("GET /", "A\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("GET /", "A : b\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("GET /", " A: b\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("GET /", "A: b\0c\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("GET /", "A: b\rc\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Content-Length: 1\r\nContent-Length: 1\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Content-Length: +1\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Content-Length: 9223372036854775808\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(HEAD("PUT /", "Transfer-Encoding: gzip\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "5\nhello"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "5\0\nhello"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "5\r\nhello\n0"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "5\r\nhello!\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "5 \r\nhello"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "-1\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "8000000000000000\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "0\r\n\n"), ERR_HTTP_MALFORMED },
        { TEXT(CHUNKED "0\r\nX y: z\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET /0123456789012345678901234567890123456789"), ERR_HTTP_URI_LONG },
        { TEXT(HEAD("GET /", "A: 01234567890123456789012345678901234567890123456789012345678901234567890123456789"
                             "01234567890123456789\r\n")),
          ERR_HTTP_HEADERS },
        { TEXT(HEAD("GET /", "A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n")), ERR_HTTP_HEADERS },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf two = { 0 };

        buf_adds(&two, GET);
        buf_add(&two, cases[i].data, cases[i].n);
        for (size_t cut = 0; cut <= two.len; cut++) {
            struct outcome out = scan(two.data, two.len, cut);
            size_t seen = cut > strlen(GET) ? cut
                                            : strlen(GET); /* valid bytes of the first piece were already passed on */

            if (out.err != cases[i].err || out.ended != 1 || out.let > seen)
                fail_msg("case %zu cut at %zu: error %d, %" PRIu64 " requests, %zu bytes", i, cut, out.err, out.ended,
                         out.let);
        }
    }
}

TEST(no_bytes_pass_after_the_last_request)
{
    static const char *const last[] = { HEAD("GET /", "Connection: x, Close\r\n"), "GET / HTTP/1.0\r\n\r\n" };

    for (size_t i = 0; i < ARRAY_LEN(last); i++) {
        auto_buf data = { 0 };

        buf_adds(&data, last[i]);
        buf_adds(&data, "GET / nonsense\n");
        struct outcome out = scan(data.data, data.len, 0);
        assert_int_equal(out.err, ERR_NONE);
        assert_int_equal(out.ended, 1);
        assert_int_equal(out.let, strlen(last[i]));
    }
}

TEST(any_bytes_may_follow_a_request_to_upgrade)
{
    static const char offer[] = HEAD("GET /", "Connection: upgrade\r\nUpgrade: websocket\r\n");
    struct http_limits lim = small();
    struct err err = { 0 };
    struct request_scanner f;
    size_t got;

    request_scanner_init(&f, &lim);
    assert_int_equal(request_scanner_scan(&f, TEXT(offer), &got, &err), 0);
    assert_true(request_scanner_upgrade_declined(&f));
    assert_int_equal(request_scanner_scan(&f, TEXT(GET), &got, &err), 0); /* parsed as a request again */
    assert_int_equal(f.requests_ended, 2);
    assert_int_equal(request_scanner_scan(&f, TEXT(offer), &got, &err), 0);
    assert_int_equal(request_scanner_scan(&f, TEXT("\x81\x80\0\0\n"), &got, &err), 0);
    assert_int_equal(got, 5);
    assert_false(request_scanner_upgrade_declined(&f));
    assert_int_equal(request_scanner_scan(&f, TEXT(GET), &got, &err), 0);
    assert_int_equal(got, 0);
    request_scanner_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(request_boundaries_do_not_depend_on_how_the_bytes_are_split),
        RUN(ambiguous_requests_are_refused_and_hidden_from_their_first_byte),
        RUN(no_bytes_pass_after_the_last_request),
        RUN(any_bytes_may_follow_a_request_to_upgrade),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
