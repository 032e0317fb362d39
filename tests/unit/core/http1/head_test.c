/* Heads as bytes: what is read, what is refused, and that pieces make no difference. */
#include "core/http1/head.h"

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#define TEXT(s) s, sizeof(s) - 1
#define GET(target, fields) "GET " target " HTTP/1.1\r\nHost: a.example\r\n" fields "\r\n"

static enum http1_result read_request(const char *data, size_t n, struct http1_request *r, size_t *ret_len,
                                      struct err *err)
{
    size_t seen = 0;

    *err = (struct err){ 0 };
    return http1_read_request(data, n, &seen, r, ret_len, err);
}

static enum http1_result read_response(const char *data, size_t n, bool is_head, struct http1_response *r)
{
    size_t seen = 0, len;
    struct err err = { 0 };

    return http1_read_response(data, n, &seen, is_head, false, r, &len, &err);
}

#define assert_text(t, s)                                                                       \
    do {                                                                                        \
        if (!http1_text_is(t, s))                                                               \
            fail_msg("'%.*s' instead of '%s', line %d", (int)(t).len, (t).data, (s), __LINE__); \
    } while (0)

TEST(a_target_is_split_into_its_parts)
{
    static const struct {
        const char *line, *host_field;
        enum http1_form form;
        const char *scheme, *host;
        uint16_t port;
        const char *path, *query;
        bool differs;
    } cases[] = {
        { "GET /", "a", HTTP1_FORM_ORIGIN, "", "", 0, "/", "", false },
        { "GET /p/q?x=/1?2", "a", HTTP1_FORM_ORIGIN, "", "", 0, "/p/q", "?x=/1?2", false },
        { "GET //b/", "a", HTTP1_FORM_ORIGIN, "", "", 0, "//b/", "", false },
        { "GET http://a/p?q", "a", HTTP1_FORM_ABSOLUTE, "http", "a", 0, "/p", "?q", false },
        { "GET http://a", "a", HTTP1_FORM_ABSOLUTE, "http", "a", 0, "", "", false },
        { "GET http://a?q", "a", HTTP1_FORM_ABSOLUTE, "http", "a", 0, "", "?q", false },
        { "GET HTTP://A.:80/", "a", HTTP1_FORM_ABSOLUTE, "HTTP", "A.", 80, "/", "", false },
        { "GET https://a/", "a:443", HTTP1_FORM_ABSOLUTE, "https", "a", 0, "/", "", false },
        { "GET https://a/", "a:80", HTTP1_FORM_ABSOLUTE, "https", "a", 0, "/", "", true },
        { "GET http://a:8080/", "a", HTTP1_FORM_ABSOLUTE, "http", "a", 8080, "/", "", true },
        { "GET http://a/", "b", HTTP1_FORM_ABSOLUTE, "http", "a", 0, "/", "", true },
        { "GET http://[2001:db8::1]:81/x", "[2001:DB8::1]:81", HTTP1_FORM_ABSOLUTE, "http", "2001:db8::1", 81, "/x", "",
          false },
        { "CONNECT a:443", "a:443", HTTP1_FORM_AUTHORITY, "", "a", 443, "", "", false },
        { "CONNECT a:443", "a", HTTP1_FORM_AUTHORITY, "", "a", 443, "", "", false },
        { "CONNECT a:443", "a:80", HTTP1_FORM_AUTHORITY, "", "a", 443, "", "", true },
        { "CONNECT a:443", "b:443", HTTP1_FORM_AUTHORITY, "", "a", 443, "", "", true },
        { "OPTIONS *", "a", HTTP1_FORM_ASTERISK, "", "", 0, "", "", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *data = str_printf("%s HTTP/1.1\r\nHost: %s\r\n\r\n", cases[i].line, cases[i].host_field);
        struct http1_request r;
        struct err err;
        size_t len;

        if (read_request(data, strlen(data), &r, &len, &err) != HTTP1_DONE || r.form != cases[i].form ||
            r.authority.port != cases[i].port || r.host_differs != cases[i].differs)
            fail_msg("%s: %s form %d port %u differs %d", cases[i].line, err.msg, r.form, r.authority.port,
                     r.host_differs);
        assert_int_equal(len, strlen(data));
        assert_text(r.scheme, cases[i].scheme);
        assert_text(r.authority.host, cases[i].host);
        assert_text(r.path, cases[i].path);
        assert_text(r.query, cases[i].query);
    }
}

TEST(EG08_ambiguous_requests_are_refused)
{
    static const struct {
        const char *data;
        size_t n;
        enum err_id id;
    } cases[] = {
        /* lines */
        { TEXT("GET / HTTP/1.1\nHost: a\n\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost: a\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost: a\r\rX: y\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost: a\r\nX: b\rTransfer-Encoding: chunked\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("\rGET / HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(" GET / HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET /  HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1 \r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET /\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.2\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / http/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("\x16\x03\x01\x02\x00"), ERR_HTTP_MALFORMED },
        /* fields */
        { TEXT(GET("/", " folded: x\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "X: a\r\n folded\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "X: a\r\n\tfolded\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length : 5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length\t: 5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", ": x\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "no colon\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "X: a\0b\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "X: a\x7f\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "X\0: a\r\n")), ERR_HTTP_MALFORMED },
        /* framing */
        { TEXT(GET("/", "Content-Length: 5\r\nContent-Length: 5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: 5, 5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: +5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: -1\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: 0x5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length:\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: 9999999999999999999\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Transfer-Encoding: chunked\r\ncontent-length: 5\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Transfer-Encoding: gzip, chunked\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT(GET("/", "Transfer-Encoding: xchunked\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT(GET("/", "Transfer-Encoding: identity\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT(GET("/", "Transfer-Encoding: \"chunked\"\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT(GET("/", "Transfer-Encoding:\r\n")), ERR_HTTP_METHOD_UNKNOWN },
        { TEXT("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), ERR_HTTP_MALFORMED },
        /* host and target */
        { TEXT("GET / HTTP/1.1\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "Host: b\r\n")), ERR_HTTP_MALFORMED },
        { TEXT(GET("/", "host: a.example\r\n")), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost:\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET http://a/#f HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET http:/a/ HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET a.example HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("GET * HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("CONNECT a:0 HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("CONNECT http://a:80/ HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
        { TEXT("CONNECT a:443/x HTTP/1.1\r\nHost: a\r\n\r\n"), ERR_HTTP_MALFORMED },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_request r;
        struct err err;
        size_t len;

        if (read_request(cases[i].data, cases[i].n, &r, &len, &err) != HTTP1_BAD || err.id != cases[i].id)
            fail_msg("not refused as expected (%d): %s", err.id, cases[i].data);
    }
}

TEST(EG07_hosts_that_programs_read_differently_are_refused)
{
    static const char *const hosts[] = {
        "allowed@evil.example",
        "allowed:80@evil.example",
        "a%00.example",
        "a%2eexample",
        "a\\.evil.example",
        "a/../b",
        "a_b\tc",
        "a:",
        "a:080",
        "a:65536",
        "a:99999999",
        "a:8x",
        "a:80:80",
        "[::1",
        "[::1]x",
        "[]",
        "[::1%25lo]",
        "::1",
        "\xc3\xa4.example",
        "a;b",
        "a*b",
        "[g::1]",
        "a,b",
        "'a'",
    };

    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        auto_free char *in_target = str_printf("GET http://%s/ HTTP/1.1\r\nHost: a\r\n\r\n", hosts[i]);
        auto_free char *in_field = str_printf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", hosts[i]);
        auto_free char *in_connect = str_printf("CONNECT %s:443 HTTP/1.1\r\nHost: a\r\n\r\n", hosts[i]);
        struct http1_request r;
        struct err err;
        size_t len;

        if (!strchr(hosts[i], '/')) {
            if (read_request(in_target, strlen(in_target), &r, &len, &err) != HTTP1_BAD)
                fail_msg("%s accepted in a target", hosts[i]);
            if (read_request(in_connect, strlen(in_connect), &r, &len, &err) != HTTP1_BAD)
                fail_msg("%s accepted by CONNECT", hosts[i]);
        }
        if (read_request(in_field, strlen(in_field), &r, &len, &err) != HTTP1_BAD)
            fail_msg("%s accepted in Host", hosts[i]);
    }
}

TEST(framing_and_connection_of_requests_are_found)
{
    static const struct {
        const char *data;
        enum http1_framing framing;
        uint64_t length;
        bool has_length, keep_alive, upgrade, expects;
    } cases[] = {
        { GET("/", ""), HTTP1_FRAMING_NONE, 0, false, true, false, false },
        { GET("/", "Content-Length: 0\r\n"), HTTP1_FRAMING_NONE, 0, true, true, false, false },
        { GET("/", "content-length:  0012 \r\n"), HTTP1_FRAMING_LENGTH, 12, true, true, false, false },
        { GET("/", "Transfer-Encoding:\tCHUNKED\t\r\n"), HTTP1_FRAMING_CHUNKED, 0, false, true, false, false },
        { GET("/", "Connection: close\r\n"), HTTP1_FRAMING_NONE, 0, false, false, false, false },
        { GET("/", "Connection: x ,\tClose\r\n"), HTTP1_FRAMING_NONE, 0, false, false, false, false },
        { GET("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n"), HTTP1_FRAMING_NONE, 0, false, true, true, false },
        { GET("/", "Upgrade: h2c\r\n"), HTTP1_FRAMING_NONE, 0, false, true, false, false },
        { GET("/", "Expect: 100-Continue\r\n"), HTTP1_FRAMING_NONE, 0, false, true, false, true },
        { "GET / HTTP/1.0\r\n\r\n", HTTP1_FRAMING_NONE, 0, false, false, false, false },
        { "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", HTTP1_FRAMING_NONE, 0, false, true, false, false },
        { "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", HTTP1_FRAMING_NONE, 0, false, true, false, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_request r;
        struct err err;
        size_t len;

        if (read_request(cases[i].data, strlen(cases[i].data), &r, &len, &err) != HTTP1_DONE ||
            r.framing != cases[i].framing || r.length != cases[i].length || r.has_length != cases[i].has_length ||
            r.keep_alive != cases[i].keep_alive || r.has_upgrade != cases[i].upgrade ||
            r.expects_continue != cases[i].expects)
            fail_msg("%s %s", err.msg, cases[i].data);
    }
}

TEST(a_head_in_pieces_is_read_as_in_one)
{
    static const char data[] = "\r\nPOST http://a:81/p HTTP/1.1\r\nHost: a:81\r\nX:\r\nContent-Length: 3\r\n\r\nabc";
    size_t seen = 0, len = 0, head = sizeof(data) - 1 - 3;
    struct http1_request r;
    struct err err = { 0 };

    for (size_t n = 0; n < head; n++)
        if (http1_read_request(data, n, &seen, &r, &len, &err) != HTTP1_MORE)
            fail_msg("complete after %zu bytes: %s", n, err.msg);
    assert_int_equal(http1_read_request(data, head, &seen, &r, &len, &err), HTTP1_DONE);
    assert_int_equal(len, head);
    assert_int_equal(r.length, 3);
    assert_int_equal(r.fields.count, 3);
    assert_text(r.fields.list[1].value, "");
    assert_non_null(http1_find(&r.fields, "content-LENGTH"));
    assert_null(http1_find(&r.fields, "Content"));
}

TEST(EG13_heads_are_bounded)
{
    struct buf b = { 0 };
    struct http1_request r;
    struct err err;
    size_t len;

    buf_adds(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 1; i < HTTP1_FIELDS_MAX; i++)
        buf_addf(&b, "X-%d: y\r\n", i);
    buf_adds(&b, "\r\n");
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_DONE);
    assert_int_equal(r.fields.count, HTTP1_FIELDS_MAX);
    b.len -= 2;
    buf_adds(&b, "One: more\r\n\r\n");
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_BAD);
    assert_int_equal(err.id, ERR_HTTP_HEADERS);

    buf_clear(&b);
    buf_adds(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    while (b.len < HTTP1_HEAD_MAX - 4)
        buf_adds(&b, "x");
    buf_adds(&b, "\r\n\r\n");
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_DONE);
    b.len -= 4;
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_MORE);
    buf_adds(&b, "x\r\n\r\n");
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_BAD);
    assert_int_equal(err.id, ERR_HTTP_HEADERS);

    buf_clear(&b);
    buf_adds(&b, "GET / HTTP/1.1\r\nHost: a\r\nConnection: a");
    for (int i = 0; i < 40; i++)
        buf_adds(&b, ",a");
    buf_adds(&b, "\r\n\r\n");
    assert_int_equal(read_request(b.data, b.len, &r, &len, &err), HTTP1_BAD);
    buf_done(&b);
}

TEST(framing_of_responses_follows_status_and_request)
{
    static const struct {
        const char *data;
        bool is_head;
        enum http1_framing framing;
        uint64_t length;
        bool keep_alive, interim, upgrade;
    } cases[] = {
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, HTTP1_FRAMING_LENGTH, 5, true, false, false },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, HTTP1_FRAMING_NONE, 5, true, false, false },
        { "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", false, HTTP1_FRAMING_NONE, 0, true, false, false },
        { "HTTP/1.1 200 \r\n\r\n", false, HTTP1_FRAMING_UNTIL_CLOSE, 0, false, false, false },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, HTTP1_FRAMING_CHUNKED, 0, true, false,
          false },
        { "HTTP/1.1 204 No\r\n\r\n", false, HTTP1_FRAMING_NONE, 0, true, false, false },
        { "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", false, HTTP1_FRAMING_NONE, 5, false, false, false },
        { "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", false, HTTP1_FRAMING_NONE, 5, true, false, false },
        { "HTTP/1.1 100 Continue\r\n\r\n", false, HTTP1_FRAMING_NONE, 0, true, true, false },
        { "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", false, HTTP1_FRAMING_NONE, 0, true, true, false },
        { "HTTP/1.1 101 Switching\r\n\r\n", false, HTTP1_FRAMING_NONE, 0, true, false, true },
        { "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", false, HTTP1_FRAMING_LENGTH, 5, false, false, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_response r;

        if (read_response(cases[i].data, strlen(cases[i].data), cases[i].is_head, &r) != HTTP1_DONE ||
            r.framing != cases[i].framing || r.length != cases[i].length || r.keep_alive != cases[i].keep_alive ||
            r.is_interim != cases[i].interim || r.is_upgrade != cases[i].upgrade)
            fail_msg("%s", cases[i].data);
    }
}

TEST(EG08_ambiguous_responses_are_refused)
{
    static const char *const cases[] = {
        "HTTP/1.1 200 OK\nContent-Length: 5\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 200 O\x01K\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "SSH-2.0-x",
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_response r;

        if (read_response(cases[i], strlen(cases[i]), false, &r) != HTTP1_BAD)
            fail_msg("accepted: %s", cases[i]);
    }
}

TEST(a_response_to_connect_has_no_body)
{
    static const char data[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    size_t seen = 0, len;
    struct http1_response r;
    struct err err = { 0 };

    assert_int_equal(http1_read_response(TEXT(data), &seen, false, true, &r, &len, &err), HTTP1_DONE);
    assert_int_equal(r.framing, HTTP1_FRAMING_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_target_is_split_into_its_parts),
        RUN(EG08_ambiguous_requests_are_refused),
        RUN(EG07_hosts_that_programs_read_differently_are_refused),
        RUN(framing_and_connection_of_requests_are_found),
        RUN(a_head_in_pieces_is_read_as_in_one),
        RUN(EG13_heads_are_bounded),
        RUN(framing_of_responses_follows_status_and_request),
        RUN(EG08_ambiguous_responses_are_refused),
        RUN(a_response_to_connect_has_no_body),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
