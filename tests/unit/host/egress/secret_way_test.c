/* Requests on the way of a secret, and responses of servers that send the secret back. */
#include "host/egress/secret_way.h"

#include "tests/unit/test.h"

#include "core/base/str.h"

#define VALUE "sk-test+Aa/9=\"<x'&\\7q"

static struct secret_way *make_way(const char *header, const char *format, uint16_t port, const char *value)
{
    struct egress_secret_rule rule = { .name = "openai", .host = "api.example.org", .port = port };
    struct secret_way *w = NULL;
    struct err err = { 0 };

    str_copy(rule.header, sizeof(rule.header), header);
    str_copy(rule.format, sizeof(rule.format), format);
    if (secret_way_new(&rule, value, &w, &err) < 0)
        fail_msg("%s", err.msg);
    return w;
}

static struct http1_request *read_request(const char *text)
{
    static struct http1_request r;
    struct err err = { 0 };
    size_t seen = 0, len;

    if (http1_read_request(text, strlen(text), &seen, &r, &len, &err) != HTTP1_DONE)
        fail_msg("%s: %s", err.msg, text);
    return &r;
}

static struct http1_response *read_response(const char *text, bool is_head)
{
    static struct http1_response r;
    struct err err = { 0 };
    size_t seen = 0, len;

    if (http1_read_response(text, strlen(text), &seen, is_head, false, &r, &len, &err) != HTTP1_DONE)
        fail_msg("%s: %s", err.msg, text);
    return &r;
}

#define GET "GET /v1/x HTTP/1.1\r\nHost: openai.secret.cove\r\n\r\n"

TEST(EG15_the_field_of_the_secret_is_the_only_one_of_its_name)
{
    static const struct {
        const char *header, *format;
        uint16_t port;
        bool close;
        const char *in, *out;
    } cases[] = {
        { "Authorization", "Bearer {}", 443, false,
          "POST /v1/chat?x=y HTTP/1.1\r\nHost: openai.secret.cove\r\nauthorization: Bearer mine\r\n"
          "Authorization: Basic eA==\r\nAccept-Encoding: gzip, br\r\nRange: bytes=0-5\r\nIf-Range: \"x\"\r\n"
          "Connection: keep-alive, X-Mine\r\nX-Mine: y\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n",
          "POST /v1/chat?x=y HTTP/1.1\r\nHost: api.example.org\r\nContent-Type: application/json\r\n"
          "Content-Length: 2\r\nAccept-Encoding: identity\r\nAuthorization: Bearer s3cret-value\r\n\r\n" },
        { "X-Api-Key", "{}", 8443, true, "GET http://openai.secret.cove/a HTTP/1.1\r\nHost: evil.example\r\n\r\n",
          "GET /a HTTP/1.1\r\nHost: api.example.org:8443\r\nAccept-Encoding: identity\r\nX-Api-Key: s3cret-value\r\n"
          "Connection: close\r\n\r\n" },
        { "Authorization", "token={}; v=1", 443, false,
          "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nAuthorization:\r\n\r\n",
          "GET / HTTP/1.1\r\nHost: api.example.org\r\nAccept-Encoding: identity\r\n"
          "Authorization: token=s3cret-value; v=1\r\n\r\n" },
        { "Authorization", "{}", 443, false,
          "PUT / HTTP/1.1\r\nHost: a\r\nConnection: authorization, host\r\nTransfer-Encoding: chunked\r\n\r\n",
          "PUT / HTTP/1.1\r\nHost: api.example.org\r\nTransfer-Encoding: chunked\r\nAccept-Encoding: identity\r\n"
          "Authorization: s3cret-value\r\n\r\n" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(secret_way) w = make_way(cases[i].header, cases[i].format, cases[i].port, "s3cret-value");
        struct err err = { 0 };
        struct buf out = { 0 };

        assert_int_equal(secret_way_write_request(w, read_request(cases[i].in), cases[i].close, &out, &err), 0);
        assert_string_equal(out.data, cases[i].out);
        secret_way_wipe(&out);
        assert_null(out.data);
    }
}

TEST(EG15_methods_that_echo_a_request_are_refused)
{
    static const char *const cases[] = { "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", "trace / HTTP/1.1\r\nHost: a\r\n\r\n",
                                         "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n" };
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "s3cret-value");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = { 0 };
        struct buf out = { 0 };

        assert_int_equal(secret_way_write_request(w, read_request(cases[i]), false, &out, &err), -1);
        assert_int_equal(out.len, 0);
    }
}

TEST(EG15_values_that_would_add_lines_are_refused)
{
    const struct egress_secret_rule rule = { .name = "x", .host = "a.b", .format = "{}", .port = 443 };
    static const char *const values[] = { "", "a\r\nX: y", "a\nb", "a\tb", "a\x7f" };
    struct secret_way *w = NULL;
    char large[SECRET_WAY_VALUE_MAX + 2];
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_int_equal(secret_way_new(&rule, values[i], &w, &err), -1);
    memset(large, 'x', sizeof(large) - 1);
    large[sizeof(large) - 1] = '\0';
    assert_int_equal(secret_way_new(&rule, large, &w, &err), -1);
    assert_null(w);
}

TEST(EG15_responses_that_could_hide_the_secret_are_refused)
{
    static const struct {
        const char *text;
        bool is_head, is_http10;
        int result;
    } cases[] = {
        { "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", false, false, -1 },
        { "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\ncontent-encoding: br\r\n\r\n", false, false, -1 },
        { "HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 5\r\n\r\n", false, false, 0 },
        { "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n", true, false, 0 },
        { "HTTP/1.1 304 Not Modified\r\nContent-Encoding: gzip\r\n\r\n", false, false, 0 },
        { "HTTP/1.1 206 Partial\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/9\r\n\r\n", false, false, -1 },
        { "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false, false, -1 },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, false, 0 },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, true, -1 },
        { "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", false, false, 0 },
    };
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "s3cret-value");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_request request = { .is_http10 = cases[i].is_http10 };
        struct err err = { 0 };
        struct buf out = { 0 };

        if (secret_way_write_response(w, &request, read_response(cases[i].text, cases[i].is_head), false, &out, &err) !=
            cases[i].result)
            fail_msg("%s%s", cases[i].text, err.msg);
        assert_true((out.len > 0) == (cases[i].result == 0));
        buf_done(&out);
    }
}

TEST(EG15_the_head_of_a_response_is_searched)
{
    static const char in[] = "HTTP/1.1 200 key s3cret-value\r\nX-Echo: Bearer s3cret-value, s3cret-value\r\n"
                             "s3cret-value: x\r\nSet-Cookie: a=s3cret%2Dvalue\r\nX-Basic: Basic czNjcmV0LXZhbHVl\r\n"
                             "X-Basic-User: Basic dXNlcjpzM2NyZXQtdmFsdWU=\r\nX-Hex: 7333637265742d76616c7565\r\n"
                             "Alt-Svc: h3=\":443\"\r\nContent-Length: 5\r\n\r\n";
    auto_(secret_way) w = make_way("Authorization", "Bearer {}", 443, "s3cret-value");
    struct err err = { 0 };
    struct buf out = { 0 };

    assert_int_equal(secret_way_write_response(w, read_request(GET), read_response(in, false), false, &out, &err), 0);
    assert_string_equal(out.data,
                        "HTTP/1.1 200 key ************\r\nX-Echo: Bearer ************, ************\r\n"
                        "************: x\r\nSet-Cookie: a=s3cret%2Dvalue\r\nX-Basic: Basic ****************\r\n"
                        "X-Basic-User: Basic dXNlcjp***************U=\r\nX-Hex: ************************\r\n"
                        "Content-Length: 5\r\n\r\n");
    buf_done(&out);
}

TEST(a_redirect_on_the_bound_host_stays_on_the_way)
{
    static const struct {
        uint16_t port;
        const char *in, *out;
    } cases[] = {
        { 443, "https://api.example.org/a?b#c", "http://openai.secret.cove/a?b#c" },
        { 443, "HTTPS://API.example.org:443", "http://openai.secret.cove/" },
        { 443, "https://api.example.org?x", "http://openai.secret.cove/?x" },
        { 443, "https://api.example.org:8443/", "https://api.example.org:8443/" },
        { 8443, "https://api.example.org:8443/", "http://openai.secret.cove/" },
        { 443, "https://api.example.org.evil.example/", "https://api.example.org.evil.example/" },
        { 443, "https://api.example.org@evil.example/", "https://api.example.org@evil.example/" },
        { 443, "http://api.example.org/", "http://api.example.org/" },
        { 443, "/relative", "/relative" },
        { 443, "https://api.example.org/s3cret-value", "http://openai.secret.cove/************" },
        { 443, "", "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_(secret_way) w = make_way("Authorization", "{}", cases[i].port, "s3cret-value");
        auto_free char *in = str_printf("HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", cases[i].in);
        auto_free char *expected = str_printf("HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
                                              cases[i].out);
        struct err err = { 0 };
        struct buf out = { 0 };

        assert_int_equal(secret_way_write_response(w, read_request(GET), read_response(in, false), false, &out, &err),
                         0);
        assert_string_equal(out.data, expected);
        buf_done(&out);
    }
}

/* Feeds in pieces and returns everything that came out. */
static struct buf feed_body(const struct secret_way *w, const char *head, const char *data, size_t n, size_t piece,
                            enum http1_result *ret, size_t *ret_used)
{
    struct secret_body b;
    struct buf out = { 0 };
    struct err err = { 0 };

    *ret = HTTP1_MORE;
    *ret_used = 0;
    secret_body_init(&b, w, read_response(head, false));
    while (*ret == HTTP1_MORE && *ret_used < n) {
        size_t used;

        *ret = secret_body_feed(&b, data + *ret_used, min_size(piece, n - *ret_used), &used, &out, &err);
        *ret_used += used;
    }
    if (*ret == HTTP1_MORE && secret_body_close(&b, &out, &err) < 0)
        *ret = HTTP1_BAD;
    secret_body_done(&b);
    return out;
}

TEST(EG15_every_form_is_found_across_pieces)
{
    static const char *const forms[] = {
        VALUE,
        "sk-test%2BAa%2F9%3D%22%3Cx%27%26%5C7q",
        "sk-test%2bAa%2f9%3d%22%3cx%27%26%5c7q",
        "sk-test%2BAa/9%3D%22%3Cx%27%26%5C7q",
        "sk-test%2BAa%2F9%3D%22%3Cx'%26%5C7q",
        "sk-test+Aa/9=\\\"<x'&\\\\7q",
        "sk-test+Aa\\/9=\\\"<x'&\\\\7q",
        "sk-test+Aa/9=\\\"\\u003cx'\\u0026\\\\7q",
        "sk-test+Aa/9=&quot;&lt;x&#39;&amp;\\7q",
        "736b2d746573742b41612f393d223c7827265c3771",
        "736B2D746573742B41612F393D223C7827265C3771",
        "c2stdGVzdCtBYS85PSI8eCcmXDdx",
    };
    auto_(secret_way) w = make_way("Authorization", "{}", 443, VALUE);

    for (size_t i = 0; i < ARRAY_LEN(forms); i++)
        for (size_t piece = 1; piece < 50; piece += piece < 20 ? 1 : 7) {
            auto_free char *data = str_printf("a %ssk-%s.", forms[i], forms[i]);
            enum http1_result result;
            size_t used;
            struct buf out = feed_body(w, "HTTP/1.1 200 OK\r\n\r\n", data, strlen(data), piece, &result, &used),
                       expected = { 0 };

            buf_adds(&expected, data);
            memset(expected.data + 2, '*', strlen(forms[i]));
            memset(expected.data + 5 + strlen(forms[i]), '*', strlen(forms[i]));
            if (!out.data || !str_eq(out.data, expected.data))
                fail_msg("pieces of %zu: %s became %s", piece, data, out.data);
            buf_done(&out);
            buf_done(&expected);
        }
}

TEST(EG15_base64_is_found_at_every_offset_in_both_alphabets)
{
    /* base64 of "", "x", "xy", "xyz" before the value and "!" after it */
    static const struct {
        const char *text, *clean;
    } cases[] = {
        { "Pz8/Pj4+Pz8/IQ==", "************IQ==" },         { "eD8/Pz4+Pj8/PyE=", "eD***********yE=" },
        { "eHk/Pz8+Pj4/Pz8h", "eHk***********8h" },         { "eHl6Pz8/Pj4+Pz8/IQ==", "eHl6************IQ==" },
        { "eHl6Pz8_Pj4-Pz8_IQ==", "eHl6************IQ==" },
    };
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "\?\?\?>>>\?\?\?");

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum http1_result result;
        size_t used;
        struct buf out = feed_body(w, "HTTP/1.1 200 OK\r\n\r\n", cases[i].text, strlen(cases[i].text), 3, &result,
                                   &used);

        assert_string_equal(out.data, cases[i].clean);
        buf_done(&out);
    }
}

TEST(EG15_overlapping_occurrences_are_all_replaced)
{
    static const struct {
        const char *value, *text, *clean;
    } cases[] = {
        { "abcabcabc", "xabcabcabcabcabcabx", "x***************abx" },
        { "aaaaaaaa", "aaaaaaaaaaaaabaaaaaaab", "*************baaaaaaab" },
        { "abababab", "ababababab.abababa", "**********.abababa" },
        { "x", "axxa", "a**a" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (size_t piece = 1; piece < 25; piece++) {
            auto_(secret_way) w = make_way("Authorization", "{}", 443, cases[i].value);
            enum http1_result result;
            size_t used;
            struct buf out = feed_body(w, "HTTP/1.1 200 OK\r\n\r\n", cases[i].text, strlen(cases[i].text), piece,
                                       &result, &used);

            assert_string_equal(out.data, cases[i].clean);
            buf_done(&out);
        }
}

TEST(EG15_a_secret_across_chunks_is_found_and_trailers_are_removed)
{
    static const char chunks[] = "4\r\nas3c\r\n1;ext=s3cret-value\r\nr\r\n9\r\net-valueb\r\n0\r\n"
                                 "X-Key: s3cret-value\r\n\r\nHTTP/1.1";
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "s3cret-value");

    for (size_t piece = 1; piece < sizeof(chunks); piece++) {
        enum http1_result result;
        size_t used, at;
        struct buf out = feed_body(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunks,
                                   sizeof(chunks) - 1, piece, &result, &used),
                   content = { 0 };
        struct http1_body again;
        struct http1_text part;
        struct err err = { 0 };

        assert_int_equal(result, HTTP1_DONE);
        assert_int_equal(used, sizeof(chunks) - 1 - 8);
        assert_null(strstr(out.data, "s3c"));
        assert_null(strstr(out.data, "X-Key"));
        http1_body_init(&again, HTTP1_FRAMING_CHUNKED, 0);
        for (at = 0, result = HTTP1_MORE; result == HTTP1_MORE && at < out.len; at += used) {
            result = http1_body_read(&again, out.data + at, out.len - at, &used, &part, &err);
            buf_add(&content, part.data, part.len);
        }
        assert_int_equal(result, HTTP1_DONE);
        assert_int_equal(at, out.len);
        assert_string_equal(content.data, "a************b");
        buf_done(&content);
        buf_done(&out);
    }
}

TEST(EG13_events_pass_at_once_and_little_is_held_back)
{
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "s3cret-value");
    struct secret_body b;
    struct buf out = { 0 };
    struct err err = { 0 };
    size_t used;

    secret_body_init(&b, w, read_response("HTTP/1.1 200 OK\r\n\r\n", false));
    secret_body_feed(&b, "data: {\"x\": 1}\n\n", 16, &used, &out, &err);
    assert_int_equal(out.len, 16); /* nothing waits for the next event */
    assert_null(b.scrub.raw.data);
    buf_clear(&out);
    secret_body_feed(&b, "data: s3cret", 12, &used, &out, &err);
    assert_int_equal(out.len, 6);
    assert_int_equal(b.scrub.raw.len, 6);
    secret_body_feed(&b, "-valu3", 6, &used, &out, &err);
    assert_string_equal(out.data, "data: s3cret-valu3");
    secret_body_feed(&b, "s3cret-value", 12, &used, &out, &err);
    assert_int_equal(b.scrub.found, 1);
    assert_int_equal(secret_body_close(&b, &out, &err), 0);
    assert_string_equal(out.data, "data: s3cret-valu3************");
    secret_body_done(&b);
    buf_done(&out);
}

TEST(a_body_that_ends_early_is_an_error)
{
    auto_(secret_way) w = make_way("Authorization", "{}", 443, "s3cret-value");
    static const struct {
        const char *head, *data;
        enum http1_result result;
        const char *out;
    } cases[] = {
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "ab", HTTP1_BAD, "ab" },
        { "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "s3", HTTP1_DONE, "s3" },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\nab\r\n", HTTP1_BAD, "2\r\nab\r\n" },
        { "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "2\r\nabX", HTTP1_BAD, "2\r\nab\r\n" },
        { "HTTP/1.1 200 OK\r\n\r\n", "s3cret", HTTP1_MORE, "s3cret" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        enum http1_result result;
        size_t used;
        struct buf out = feed_body(w, cases[i].head, cases[i].data, strlen(cases[i].data), 99, &result, &used);

        assert_int_equal(result, cases[i].result);
        assert_string_equal(out.data, cases[i].out);
        buf_done(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(EG15_the_field_of_the_secret_is_the_only_one_of_its_name),
        RUN(EG15_methods_that_echo_a_request_are_refused),
        RUN(EG15_values_that_would_add_lines_are_refused),
        RUN(EG15_responses_that_could_hide_the_secret_are_refused),
        RUN(EG15_the_head_of_a_response_is_searched),
        RUN(a_redirect_on_the_bound_host_stays_on_the_way),
        RUN(EG15_every_form_is_found_across_pieces),
        RUN(EG15_base64_is_found_at_every_offset_in_both_alphabets),
        RUN(EG15_overlapping_occurrences_are_all_replaced),
        RUN(EG15_a_secret_across_chunks_is_found_and_trailers_are_removed),
        RUN(EG13_events_pass_at_once_and_little_is_held_back),
        RUN(a_body_that_ends_early_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
