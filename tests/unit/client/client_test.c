/* Tests the client against a server in a thread that sends the bytes of the test, one connection
 * after another. */
#include "client/client.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/oauth.h"
#include "remote/fetch/fetch.h"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct scene {
    struct ev *ev;
    struct client *c;
    int listener;
    pthread_t thread;
    const char *const *pieces; /* the answer, sent piece by piece with a pause in between */
    bool drop;                 /* closes the connection in the middle */
    struct buf heard;
};

static bool whole(const struct buf *b)
{
    const char *body = b->data ? strstr(b->data, "\r\n\r\n") : NULL;
    const char *len = b->data ? strcasestr(b->data, "\r\nContent-Length: ") : NULL;

    if (!body)
        return false;
    if (strcasestr(b->data, "\r\nTransfer-Encoding: chunked"))
        return strstr(body, "\r\n0\r\n\r\n") != NULL;
    return !len || b->len - (size_t)(body + 4 - b->data) >= strtoul(len + 18, NULL, 10);
}

static void *serve(void *arg)
{
    struct scene *s = arg;
    auto_fd int fd = accept(s->listener, NULL, NULL);
    char piece[4096];
    ssize_t n;

    while (!whole(&s->heard) && (n = read(fd, piece, sizeof(piece))) > 0)
        buf_add(&s->heard, piece, (size_t)n);
    for (const char *const *p = s->pieces; p && *p; p++) {
        (void)!write(fd, *p, strlen(*p));
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    }
    if (!s->drop)
        (void)!read(fd, piece, 1); /* until the client has closed */
    return NULL;
}

static void start(struct scene *s, const char *const *pieces, const char *key)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    char url[64];
    struct err err = { 0 };

    *s = (struct scene){ .pieces = pieces };
    unsetenv("COVE_API_KEY");
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &len), 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/", ntohs(a.sin_port));
    assert_int_equal(ev_new(&s->ev, &err), 0);
    struct client_settings set = { .url = url, .key = key };
    assert_int_equal(client_new(s->ev, &set, &s->c, &err), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct scene *s)
{
    client_free(s->c);
    pthread_join(s->thread, NULL);
    ev_free(s->ev);
    close(s->listener);
    buf_done(&s->heard);
}

#define PIECES(...) ((const char *const[]){ __VA_ARGS__, NULL })

TEST(a_request_sends_key_and_body_and_returns_json)
{
    struct scene s;
    struct err err = { 0 };
    json_t *got = NULL;

    start(&s,
          PIECES("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n",
                 "{\"id\":", "\"x\"}"),
          "cove_1234");
    assert_int_equal(client_json(s.c, "POST", "/v1/sandboxes", "{\"runtime\":\"sh\"}", &got, &err), 0);
    assert_string_equal(json_string_value(json_object_get(got, "id")), "x");
    json_decref(got);
    stop(&s);
}

TEST(the_request_matches_the_contract)
{
    struct scene s;
    struct err err = { 0 };

    start(&s, PIECES("HTTP/1.1 204 No Content\r\n\r\n"), "cove_1234");
    assert_int_equal(client_json(s.c, "DELETE", "/v1/x", NULL, NULL, &err), 0);
    client_free(s.c);
    s.c = NULL;
    pthread_join(s.thread, NULL);
    assert_true(str_starts(s.heard.data, "DELETE /v1/x HTTP/1.1\r\n"));
    assert_non_null(strstr(s.heard.data, "\r\nAuthorization: Bearer cove_1234\r\n"));
    assert_null(strcasestr(s.heard.data, "\r\nExpect:"));
    ev_free(s.ev);
    close(s.listener);
    buf_done(&s.heard);
}

TEST(an_error_answer_becomes_the_same_error)
{
    struct scene s;
    struct err err = { 0 };

    start(&s,
          PIECES("HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 60\r\n\r\n",
                 "{\"error\":{\"code\":\"not_found\",\"message\":\"no sandbox sbx\"}}    "),
          NULL);
    assert_int_equal(client_json(s.c, "GET", "/v1/sandboxes/sbx", NULL, NULL, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    assert_string_equal(err.msg, "no sandbox sbx");
    stop(&s);
}

TEST(answers_that_are_not_from_cove_are_protocol_errors)
{
    static const struct {
        const char *answer;
        enum err_id id;
    } rows[] = {
        { "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>", ERR_PROTOCOL },
        { "HTTP/1.1 400 Bad\r\nContent-Length: 57\r\n\r\n{\"error\":{\"code\":\"of_the_future\",\"message\":\"unheard "
          "of\"}}",
          ERR_VERSION },
        { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", ERR_PROTOCOL },
        { "SSH-2.0-OpenSSH\r\n", ERR_PROTOCOL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct scene s;
        struct err err = { 0 };
        json_t *got = NULL;

        start(&s, PIECES(rows[i].answer), NULL);
        assert_int_equal(client_json(s.c, "GET", "/v1/x", NULL, &got, &err), -1);
        if (err.id != rows[i].id)
            fail_msg("row %zu: %s: %s", i, err_info(err.id)->code, err.msg);
        stop(&s);
    }
}

struct lines {
    int n;
    int stop_after;
    char text[256];
};

static bool keep_line(void *arg, const json_t *line)
{
    struct lines *l = arg;

    strncat(l->text, json_string_value(json_object_get(line, "type")), sizeof(l->text) - strlen(l->text) - 1);
    return ++l->n != l->stop_after;
}

TEST(lines_are_delivered_one_by_one_however_they_were_split)
{
    struct scene s;
    struct err err = { 0 };
    struct lines l = { 0 };

    start(&s,
          PIECES("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"typ\r\n", "8\r\ne\":\"a\"}\n\r\n",
                 "1b\r\n{\"type\":\"b\"}\n\n{\"type\":\"c\"}\r\n", "1\r\n\n\r\n0\r\n\r\n"),
          NULL);
    assert_int_equal(client_json_lines(s.c, "GET", "/v1/x", NULL, keep_line, &l, &err), 0);
    assert_string_equal(l.text, "abc");
    stop(&s);
}

static bool slow_line(void *arg, const json_t *line)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL); /* the server has closed when this returns */
    return keep_line(arg, line);
}

TEST(an_abandoned_stream_may_break_at_the_same_time)
{
    struct scene s;
    struct err err = { 0 };
    struct lines l = { .stop_after = 1 };

    start(&s, PIECES("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{\"type\":\"a\"}\n\r\n"), NULL);
    s.drop = true;
    assert_int_equal(client_json_lines(s.c, "GET", "/v1/x", NULL, slow_line, &l, &err), 0);
    assert_string_equal(l.text, "a");
    stop(&s);
}

TEST(an_abandoned_stream_is_not_an_error_and_a_broken_stream_is)
{
    for (int i = 0; i < 2; i++) {
        struct scene s;
        struct err err = { 0 };
        struct lines l = { .stop_after = i == 0 ? 1 : 0 };

        start(&s,
              PIECES("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{\"type\":\"a\"}\n\r\n",
                     "d\r\n{\"type\":\"b\"}\n\r\n"),
              NULL);
        s.drop = true;
        int r = client_json_lines(s.c, "GET", "/v1/x", NULL, keep_line, &l, &err);
        assert_int_equal(r, i == 0 ? 0 : -1);
        assert_string_equal(l.text, i == 0 ? "a" : "ab");
        if (i == 1)
            assert_int_equal(err.id, ERR_CUT_OFF);
        stop(&s);
    }
}

static bool keep_bytes(void *arg, const void *data, size_t len)
{
    buf_add(arg, data, len);
    return true;
}

static ssize_t give_bytes(void *arg, void *to, size_t room)
{
    const char **p = arg;
    size_t n = min_size(min_size(strlen(*p), room), 3);

    memcpy(to, *p, n);
    *p += n;
    return (ssize_t)n;
}

TEST(uploads_and_downloads_keep_bytes_unchanged)
{
    struct scene s;
    struct err err = { 0 };
    auto_buf got = { 0 };
    const char *body = "hello there";

    start(&s, PIECES("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na", "\nb", "c"), NULL);
    assert_int_equal(client_download(s.c, "/v1/x", keep_bytes, &got, &err), 0);
    assert_string_equal(got.data, "a\nbc");
    stop(&s);

    start(&s, PIECES("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), NULL);
    assert_int_equal(client_upload(s.c, "/v1/x", "application/octet-stream", 11, give_bytes, &body, NULL, &err), 0);
    client_free(s.c);
    s.c = NULL;
    pthread_join(s.thread, NULL);
    assert_non_null(strstr(s.heard.data, "Content-Length: 11\r\n"));
    assert_true(str_ends(s.heard.data, "\r\n\r\nhello there"));
    ev_free(s.ev);
    close(s.listener);
    buf_done(&s.heard);
}

TEST(an_error_instead_of_bytes_is_an_error)
{
    struct scene s;
    struct err err = { 0 };
    auto_buf got = { 0 };

    start(&s,
          PIECES("HTTP/1.1 401 Unauthorized\r\nContent-Length: 52\r\n\r\n",
                 "{\"error\":{\"code\":\"unauthorized\",\"message\":\"no key\"}} "),
          NULL);
    assert_int_equal(client_download(s.c, "/v1/x", keep_bytes, &got, &err), -1);
    assert_int_equal(err.id, ERR_UNAUTHORIZED);
    assert_int_equal(got.len, 0);
    stop(&s);
}

TEST(an_endless_head_is_refused)
{
    struct scene s;
    struct err err = { 0 };
    auto_buf head = { 0 };

    buf_adds(&head, "HTTP/1.1 200 OK\r\n");
    for (int i = 0; i < 300; i++)
        buf_adds(&head, "X: y\r\n");
    buf_adds(&head, "\r\n");
    start(&s, PIECES(head.data), NULL);
    assert_int_equal(client_json(s.c, "GET", "/v1/x", NULL, NULL, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
    stop(&s);
}

TEST(an_unreachable_server_is_reported_with_its_address)
{
    struct err err = { 0 };
    auto_(ev) ev = NULL;
    auto_(client) c = NULL;
    struct client_settings set = { .url = "http://127.0.0.1:1" };

    assert_int_equal(ev_new(&ev, &err), 0);
    assert_int_equal(client_new(ev, &set, &c, &err), 0);
    assert_int_equal(client_json(c, "GET", "/health", NULL, NULL, &err), -1);
    assert_int_equal(err.id, ERR_UNREACHABLE);
    assert_non_null(strstr(err.msg, "http://127.0.0.1:1"));
    client_free(c);
    c = NULL;
}

TEST(a_key_is_never_sent_without_encryption)
{
    static const struct {
        const char *url, *key;
        bool ok;
    } rows[] = {
        { "http://example.org:8700", "cove_1", false },
        { "https://example.org", "cove_1", true },
        { "http://127.0.0.1:8700", "cove_1", true },
        { "http://localhost:8700", "cove_1", true },
        { "http://127.0.0.1.evil.org", "cove_1", false },
        { "ftp://x", NULL, false },
        { "http://127.0.0.1:1", "a\r\nX: b", false },
        { "http://example.org", NULL, true },
        { "http://localhost:8700@example.org", "cove_1", false },
        { "http://127.0.0.1:x@example.org:8700", "cove_1", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct err err = { 0 };
        auto_(ev) ev = NULL;
        struct client *c = NULL;
        struct client_settings set = { .url = rows[i].url, .key = rows[i].key };

        assert_int_equal(ev_new(&ev, &err), 0);
        if ((client_new(ev, &set, &c, &err) == 0) != rows[i].ok)
            fail_msg("row %zu: %s", i, err.msg);
        client_free(c);
    }
}

TEST(a_provider_without_a_page_causes_no_double_free)
{
    struct oauth_device d = { 0 };
    struct scene s;
    struct err err = { 0 };

    start(&s,
          PIECES("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 70\r\n\r\n",
                 "{\"device_code\":\"d\",\"user_code\":\"u\",\"verification_uri\":\"file:///etc/p\"}"),
          NULL);
    auto_free char *url = str_printf("%s/device", client_endpoint(s.c));
    struct oauth_provider place = { .device_url = url };
    assert_int_equal(oauth_device_begin(s.ev, &place, "cli", "cove", &d, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
    assert_non_null(strstr(err.msg, "lacks the code or the page"));
    oauth_device_done(&d); /* as the caller does in every case */
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_request_sends_key_and_body_and_returns_json),
        RUN(the_request_matches_the_contract),
        RUN(an_error_answer_becomes_the_same_error),
        RUN(answers_that_are_not_from_cove_are_protocol_errors),
        RUN(lines_are_delivered_one_by_one_however_they_were_split),
        RUN(an_abandoned_stream_may_break_at_the_same_time),
        RUN(an_abandoned_stream_is_not_an_error_and_a_broken_stream_is),
        RUN(uploads_and_downloads_keep_bytes_unchanged),
        RUN(an_error_instead_of_bytes_is_an_error),
        RUN(an_endless_head_is_refused),
        RUN(an_unreachable_server_is_reported_with_its_address),
        RUN(a_key_is_never_sent_without_encryption),
        RUN(a_provider_without_a_page_causes_no_double_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
