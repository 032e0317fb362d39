#include "tests/unit/test.h"

#include "core/base/str.h"
#include "host/egress/http_target.h"

static struct http1_request parse(const char *text)
{
    static struct http1_request r;
    size_t seen = 0, len;
    struct err err = { 0 };

    if (http1_read_request(text, strlen(text), &seen, &r, &len, &err) != HTTP1_DONE)
        fail_msg("%s: %s", text, err.msg);
    return r;
}

TEST(a_request_to_the_proxy_names_its_target)
{
    static const struct {
        const char *text, *host;
        uint16_t port; /* 0: refused */
    } cases[] = {
        { "GET http://Origin.TEST./a HTTP/1.1\r\nHost: Origin.TEST.\r\n\r\n", "origin.test", 80 },
        { "GET http://origin.test:8080/a HTTP/1.1\r\nHost: origin.test:8080\r\n\r\n", "origin.test", 8080 },
        { "CONNECT origin.test:443 HTTP/1.1\r\nHost: origin.test:443\r\n\r\n", "origin.test", 443 },
        { "GET http://192.0.2.7/a HTTP/1.1\r\nHost: 192.0.2.7\r\n\r\n", "", 80 },
        { "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n", "", 443 },
        { "GET http://127.1/a HTTP/1.1\r\nHost: 127.1\r\n\r\n", NULL, 0 },
        { "GET http://0x7f000001/a HTTP/1.1\r\nHost: 0x7f000001\r\n\r\n", NULL, 0 },
        { "GET http://2130706433/a HTTP/1.1\r\nHost: 2130706433\r\n\r\n", NULL, 0 },
        { "GET http://0177.0.0.1/a HTTP/1.1\r\nHost: 0177.0.0.1\r\n\r\n", NULL, 0 },
        { "GET https://origin.test/a HTTP/1.1\r\nHost: origin.test\r\n\r\n", NULL, 0 },
        { "GET /a HTTP/1.1\r\nHost: origin.test\r\n\r\n", NULL, 0 },
        { "GET http://origin.test/a HTTP/1.1\r\nHost: other.test\r\n\r\n", NULL, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_request r = parse(cases[i].text);
        struct http_target t;
        struct err err = { 0 };
        int rc = http_target_of_proxy_request(&r, &t, &err);

        if ((rc == 0) != (cases[i].port != 0) ||
            (rc == 0 && (t.port != cases[i].port || !str_eq(t.host, cases[i].host))) || (rc < 0 && !*err.msg))
            fail_msg("%s", cases[i].text);
    }
}

TEST(a_request_on_a_bound_connection_may_not_name_another_target)
{
    static const struct {
        const char *text;
        bool accepted;
    } cases[] = {
        { "GET /a HTTP/1.1\r\nHost: origin.test\r\n\r\n", true },
        { "GET /a HTTP/1.1\r\nHost: ORIGIN.test.:8080\r\n\r\n", true },
        { "OPTIONS * HTTP/1.1\r\nHost: origin.test\r\n\r\n", true },
        { "GET /a HTTP/1.0\r\n\r\n", true },
        { "GET /a HTTP/1.0\r\nHost: other.test\r\n\r\n", false },
        { "GET /a HTTP/1.1\r\nHost: origin.test:80\r\n\r\n", false },
        { "GET /a HTTP/1.1\r\nHost: other.test\r\n\r\n", false },
        { "GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", false },
        { "GET http://origin.test:8080/a HTTP/1.1\r\nHost: origin.test:8080\r\n\r\n", false },
        { "CONNECT origin.test:8080 HTTP/1.1\r\nHost: origin.test:8080\r\n\r\n", false },
    };
    const struct http_target bound = { .host = "origin.test", .port = 8080 };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http1_request r = parse(cases[i].text);

        if ((http_target_check_bound(&r, &bound, NULL) == 0) != cases[i].accepted)
            fail_msg("%s", cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_request_to_the_proxy_names_its_target),
        RUN(a_request_on_a_bound_connection_may_not_name_another_target),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
