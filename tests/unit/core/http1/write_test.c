/* Heads in, heads out: which fields reach the next hop. */
#include "core/http1/write.h"

#include "tests/unit/test.h"

static void assert_request(const char *in, const struct http1_rewrite *w, const char *out)
{
    struct http1_request r;
    struct err err = { 0 };
    size_t seen = 0, len;
    struct buf b = { 0 };

    if (http1_read_request(in, strlen(in), &seen, &r, &len, &err) != HTTP1_DONE)
        fail_msg("%s: %s", err.msg, in);
    http1_write_request(&r, w, &b);
    assert_string_equal(b.data, out);
    /* The written head is read as the same request. */
    struct http1_request again;
    seen = 0;
    assert_int_equal(http1_read_request(b.data, b.len, &seen, &again, &len, &err), HTTP1_DONE);
    assert_int_equal(again.framing, r.framing);
    assert_int_equal(again.length, r.length);
    buf_done(&b);
}

TEST(EG08_fields_of_one_hop_are_not_passed_on)
{
    const struct http1_rewrite plain = { 0 };

    assert_request("GET http://a.example:8080/p?q HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\n"
                   "Proxy-Connection: keep-alive\r\nConnection: X-Mine, close\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n"
                   "TE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nAccept: */*\r\n\r\n",
                   &plain, "GET /p?q HTTP/1.1\r\nHost: a.example:8080\r\nAccept: */*\r\n\r\n");
    assert_request("POST / HTTP/1.1\r\nHost: a\r\nConnection: host, content-length\r\nContent-Length: 003\r\n\r\n",
                   &plain, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n");
    assert_request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", &plain,
                   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    assert_request("PUT / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n", &plain,
                   "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
}

TEST(a_request_is_written_in_origin_form)
{
    const struct http1_rewrite plain = { 0 }, closing = { .close = true };

    assert_request("GET http://[2001:db8::1]:81?x HTTP/1.1\r\nHost: a\r\n\r\n", &plain,
                   "GET /?x HTTP/1.1\r\nHost: [2001:db8::1]:81\r\n\r\n");
    assert_request("OPTIONS * HTTP/1.1\r\nHost: a:1\r\n\r\n", &closing,
                   "OPTIONS * HTTP/1.1\r\nHost: a:1\r\nConnection: close\r\n\r\n");
    assert_request("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &plain,
                   "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_request("GET / HTTP/1.0\r\n\r\n", &closing, "GET / HTTP/1.0\r\nConnection: close\r\n\r\n");
}

TEST(host_and_fields_of_the_caller_replace_those_of_the_client)
{
    static const char *const drop[] = { "Authorization", "Cookie", NULL };
    const struct http1_added_field added[] = { { "Authorization", http1_text_of("Bearer x") } };
    const struct http1_rewrite w = {
        .host = http1_text_of("b.example"), .drop = drop, .added = added, .nadded = 1, .drop_expect = true
    };

    assert_request("GET / HTTP/1.1\r\nHost: a\r\nauthorization: mine\r\nAUTHORIZATION: again\r\ncookie: x\r\n"
                   "Expect: 100-continue\r\nX: y\r\n\r\n",
                   &w, "GET / HTTP/1.1\r\nHost: b.example\r\nX: y\r\nAuthorization: Bearer x\r\n\r\n");
}

TEST(an_upgrade_is_passed_on_only_if_asked_for)
{
    static const char in[] = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n";
    const struct http1_rewrite keep = { .keep_upgrade = true }, plain = { 0 };

    assert_request(in, &keep, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nX: y\r\nConnection: upgrade\r\n\r\n");
    assert_request(in, &plain, "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n");
}

TEST(responses_keep_their_framing)
{
    static const struct {
        const char *in;
        bool is_head, close, to_http10;
        const char *out;
    } cases[] = {
        { "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: x\r\nX: 1\r\nServer: s\r\n\r\n", false, false, false,
          "HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 5\r\n\r\n" },
        { "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n", false, true, false,
          "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" },
        { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, false, true,
          "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n" },
        { "HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", false, false, false, "HTTP/1.1 204 No\r\n\r\n" },
        { "HTTP/1.1 100 Continue\r\nProxy-Status: x\r\n\r\n", false, false, false, "HTTP/1.1 100 Continue\r\n\r\n" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_response r;
        struct err err = { 0 };
        size_t seen = 0, len;
        struct buf b = { 0 };
        const struct http1_rewrite w = { .close = cases[i].close };

        assert_int_equal(
            http1_read_response(cases[i].in, strlen(cases[i].in), &seen, cases[i].is_head, false, &r, &len, &err),
            HTTP1_DONE);
        http1_write_response(&r, &w, cases[i].to_http10, &b);
        assert_string_equal(b.data, cases[i].out);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(EG08_fields_of_one_hop_are_not_passed_on),
        RUN(a_request_is_written_in_origin_form),
        RUN(host_and_fields_of_the_caller_replace_those_of_the_client),
        RUN(an_upgrade_is_passed_on_only_if_asked_for),
        RUN(responses_keep_their_framing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
