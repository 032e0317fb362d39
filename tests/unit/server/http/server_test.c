/* A server and its client in one thread: listeners, and the parts of a request that handlers read.
 * tests/contract/http_test.py covers hostile input. */
#include "tests/support/http_limits.h"
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

static struct ev *loop;
static struct http_server *server;
static char dir[] = "/tmp/http-test-XXXXXX", path[64];
static void (*handler)(struct http_req *req);
static unsigned freed;

static void handle(struct http_req *req, void *ctx)
{
    assert_ptr_equal(ctx, &server);
    handler(req);
}

static const struct http_route routes[] = {
    { "GET", "/x/{id}", handle },
    { "POST", "/x", handle, HTTP_BODY_BUFFERED },
    { "PUT", "/x", handle, HTTP_BODY_STREAMED },
    { 0 },
};

static void start(void)
{
    static const struct http_route *const tables[] = { routes, NULL };
    struct http_settings set = { .tables = (const struct http_tables[]){ { tables, &server }, { 0 } } };
    struct err err = { 0 };

    set.limits = http_limits_for_tests();
    assert_int_equal(ev_new(&loop, &err), 0);
    assert_int_equal(http_server_new(loop, &set, &server, &err), 0);
}

static void stop(void)
{
    http_server_free(server);
    ev_free(loop);
    server = NULL;
}

static int dial_unix(void)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(str_copy(un.sun_path, sizeof(un.sun_path), path));
    assert_int_equal(connect(fd, (struct sockaddr *)&un, sizeof(un)), 0);
    return fd;
}

static int dial_tcp(int family, uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int ret = family == AF_INET ? connect(fd, (struct sockaddr *)&in, sizeof(in))
                                : connect(fd, (struct sockaddr *)&in6, sizeof(in6));

    assert_int_equal(ret, 0);
    return fd;
}

/* Sends a request, runs the loop, and returns everything received until the server closed. */
static const char *ask(int fd, const char *request)
{
    static char answer[65536];
    size_t n = 0;

    assert_int_equal(fd_write_all(fd, request, strlen(request)), 0);
    fd_nonblock(fd, true);
    for (int i = 0; i < 2000; i++) {
        ev_turn(loop, 2);
        ssize_t got = read(fd, answer + n, sizeof(answer) - 1 - n);
        if (got == 0)
            break;
        if (got > 0)
            n += (size_t)got;
        else if (errno != EAGAIN)
            break;
    }
    close(fd);
    answer[n] = '\0';
    return answer;
}

static const char *get(const char *target, const char *headers)
{
    auto_free char *text = str_printf("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", target,
                                      headers);

    return ask(dial_unix(), text);
}

static void listen_here(void)
{
    struct err err = { 0 };

    start();
    if (http_listen_unix(server, path, 0600, &err) < 0)
        fail_msg("%s", err.msg);
}

static void say_ok(struct http_req *req)
{
    http_answer(req, 200, "text/plain", "ok", 2);
}

TEST(a_unix_socket_has_its_mode_and_is_removed_with_the_server)
{
    struct stat st;

    listen_here();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    handler = say_ok;
    assert_non_null(strstr(get("/x/1", ""), "200 OK"));
    stop();
    assert_int_equal(stat(path, &st), -1);
}

TEST(a_dead_servers_socket_is_replaced_and_a_live_ones_is_not)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    struct err err = { 0 };
    int dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(str_copy(un.sun_path, sizeof(un.sun_path), path));
    assert_int_equal(bind(dead, (struct sockaddr *)&un, sizeof(un)), 0);
    close(dead);
    listen_here();
    assert_int_equal(http_listen_unix(server, path, 0600, &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    handler = say_ok;
    assert_non_null(strstr(get("/x/1", ""), "200 OK"));
    stop();
    FILE *f = fopen(path, "w");
    fclose(f);
    start();
    assert_int_equal(http_listen_unix(server, path, 0600, &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    stop();
    assert_int_equal(unlink(path), 0); /* a file that is not a socket is not replaced */
}

TEST(listen_addresses_must_be_literal)
{
    static const char *const bad[] = {
        "",       ":80",   "127.0.0.1",      "127.0.0.1:", "127.0.0.1:65536", "localhost:80",
        "::1:80", "[::1]", "[127.0.0.1]:80", "1.2.3:80"
    };
    struct err err = { 0 };
    uint16_t port = 0, again;

    start();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (http_listen_tcp(server, bad[i], NULL, &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
        assert_int_equal(err.id, ERR_INVALID);
    }
    assert_int_equal(http_listen_tcp(server, "127.0.0.1:0", &port, &err), 0);
    auto_free char *same = str_printf("127.0.0.1:%u", port);
    assert_int_equal(http_listen_tcp(server, same, &again, &err), -1);
    assert_int_equal(err.id, ERR_EXISTS);
    handler = say_ok;
    assert_non_null(strstr(ask(dial_tcp(AF_INET, port), "GET /x/1 HTTP/1.0\r\n\r\n"), "200 OK"));
    stop();
}

static void say_peer(struct http_req *req)
{
    const struct http_peer *p = http_peer(req);
    auto_free char *text = str_printf("<%d %u %d %s>", p->is_unix, p->uid, p->pid == getpid(), p->addr);

    http_answer(req, 200, "text/plain", text, strlen(text));
}

TEST(a_peer_is_a_process_or_an_address)
{
    struct err err = { 0 };
    uint16_t port;

    listen_here();
    handler = say_peer;
    auto_free char *local = str_printf("<1 %u 1 >", getuid());
    assert_non_null(strstr(get("/x/1", ""), local));
    assert_int_equal(http_listen_tcp(server, "127.0.0.1:0", &port, &err), 0);
    assert_non_null(strstr(ask(dial_tcp(AF_INET, port), "GET /x/1 HTTP/1.0\r\n\r\n"), "<0 0 0 127.0.0.1>"));
    if (http_listen_tcp(server, "[::1]:0", &port, &err) == 0)
        assert_non_null(strstr(ask(dial_tcp(AF_INET6, port), "GET /x/1 HTTP/1.0\r\n\r\n"), "<0 0 0 ::1>"));
    else
        print_message("# no IPv6 here: %s\n", err.msg);
    stop();
}

TEST(only_a_listening_socket_can_be_adopted)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(in);
    struct err err = { 0 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    start();
    assert_int_equal(http_listen_fd(server, dup(fd), &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(
        bind(fd, (struct sockaddr *)&in, len) | listen(fd, 5) | getsockname(fd, (struct sockaddr *)&in, &len), 0);
    assert_int_equal(http_listen_fd(server, fd, &err), 0);
    handler = say_ok;
    assert_non_null(strstr(ask(dial_tcp(AF_INET, ntohs(in.sin_port)), "GET /x/1 HTTP/1.0\r\n\r\n"), "200 OK"));
    stop();
}

static void read_query(struct http_req *req)
{
    static const char *const names[] = { "limit", "follow", NULL };
    struct err err = { 0 };
    uint64_t limit;
    bool follow;

    if (http_query_require_known(req, names, &err) < 0 || http_query_u64(req, "limit", 1, 100, 20, &limit, &err) < 0 ||
        http_query_bool(req, "follow", false, &follow, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    auto_free char *text = str_printf("<%" PRIu64 " %d>", limit, follow);
    http_answer(req, 200, "text/plain", text, strlen(text));
}

TEST(invalid_query_parameters_are_named_in_the_error)
{
    static const struct {
        const char *target, *want;
    } cases[] = {
        { "/x/1", "<20 0>" },
        { "/x/1?limit=100&follow=true", "<100 1>" },
        { "/x/1?follow=false", "<20 0>" },
        { "/x/1?limit=0", "limit must be a number from 1 to 100" },
        { "/x/1?limit=101", "limit must be a number from 1 to 100" },
        { "/x/1?limit=+5", "limit must be a number from 1 to 100" },
        { "/x/1?limit=", "limit must be a number from 1 to 100" },
        { "/x/1?follow=1", "follow must be true or false" },
        { "/x/1?limt=5", "'limt' is unknown; did you mean 'limit'?" },
        { "/x/1?colour=5", "'colour' is unknown\"" },
    };

    listen_here();
    handler = read_query;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (!strstr(get(cases[i].target, ""), cases[i].want))
            fail_msg("%s: %s", cases[i].target, get(cases[i].target, ""));
    stop();
}

static void say_wants(struct http_req *req)
{
    http_answer(req, 200, "text/plain", http_prefers_type(req, "text/event-stream") ? "<yes>" : "<no>", 5);
}

TEST(a_client_prefers_events_if_accept_names_them_before_json)
{
    static const struct {
        const char *header, *want;
    } cases[] = {
        { "", "<no>" },
        { "Accept: */*\r\n", "<no>" },
        { "Accept: text/event-stream\r\n", "<yes>" },
        { "Accept: text/html;q=0.9 , Text/Event-Stream;q=1\r\n", "<yes>" },
        { "Accept: application/json, text/event-stream\r\n", "<no>" },
        { "Accept: text/event-streams\r\n", "<no>" },
    };

    listen_here();
    handler = say_wants;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (!strstr(get("/x/1", cases[i].header), cases[i].want))
            fail_msg("%s", cases[i].header);
    stop();
}

static struct http_req *kept;

static void keep_it(struct http_req *req)
{
    kept = req;
}

static void count_free(void *p)
{
    assert_int_equal(*(unsigned *)p, freed);
    freed++;
}

TEST(a_request_outlives_its_client_and_its_server_until_it_is_answered)
{
    static unsigned first = 1, second = 0;

    listen_here();
    handler = keep_it;
    int fd = dial_unix();
    const char *text = "GET /x/abc HTTP/1.1\r\nHost: localhost\r\nA: b\r\n\r\n";
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    for (kept = NULL; !kept;)
        ev_turn(loop, 100);
    http_free_with_request(kept, &first, count_free); /* freed in reverse order */
    http_free_with_request(kept, &second, count_free);
    close(fd);
    for (int i = 0; i < 1000 && !http_client_is_gone(kept); i++)
        ev_turn(loop, 5);
    assert_true(http_client_is_gone(kept));
    http_server_free(server);
    assert_string_equal(http_param(kept, "id"), "abc");
    assert_string_equal(http_header(kept, "a"), "b");
    assert_int_equal(http_stream_room(kept), HTTP_STREAM_HIGH_WATER);
    freed = 0;
    http_answer_stream(kept, 200, "text/plain", HTTP_UNTIL_END);
    assert_true(http_stream_write(kept, "x", 1));
    assert_int_equal(freed, 0);
    http_stream_end(kept);
    assert_int_equal(freed, 2);
    ev_free(loop);
}

static size_t take_none(void *arg UNUSED, const void *data UNUSED, size_t len UNUSED)
{
    fail_msg("data arrived although the client is gone");
    return 0;
}

static void no_end(void *arg UNUSED)
{
    fail_msg("the body ended although it is incomplete");
}

static void see_fail(void *arg, const struct err *err)
{
    assert_int_equal(err->id, ERR_CLIENT_GONE);
    http_answer_err(arg, err);
    freed = 100;
}

TEST(reading_a_body_fails_at_once_if_the_client_is_gone)
{
    static const struct http_reader reader = { take_none, no_end, see_fail };

    listen_here();
    handler = keep_it;
    int fd = dial_unix();
    const char *text = "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nab";
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    for (kept = NULL; !kept;)
        ev_turn(loop, 100);
    close(fd);
    for (int i = 0; i < 1000 && !http_client_is_gone(kept); i++)
        ev_turn(loop, 5);
    assert_true(http_client_is_gone(kept));
    freed = 0;
    http_read_body(kept, &reader, kept);
    assert_int_equal(freed, 100);
    stop();
}

static unsigned looked;
static int looked_status;
static enum err_id looked_error;

static bool hold(struct http_req *req, void *arg)
{
    assert_ptr_equal(arg, &looked);
    looked++;
    looked_status = http_answer_status(req);
    looked_error = http_answer_error_id(req);
    kept = req;
    return false;
}

static void say_ok_held(struct http_req *req)
{
    http_on_answer(req, hold, &looked);
    say_ok(req);
}

static void refuse_held(struct http_req *req)
{
    struct err err = { 0 };

    http_on_answer(req, hold, &looked);
    err_set(&err, ERR_MISSING, "there is none");
    http_answer_err(req, &err);
}

static void stream_held(struct http_req *req)
{
    http_on_answer(req, hold, &looked);
    http_answer_stream(req, 200, "text/plain", HTTP_UNTIL_END);
    http_stream_write(req, "hello", 5);
    http_stream_end(req);
}

/* Runs the loop until the answer is held, and a little longer: no byte may arrive. */
static void held_and_silent(int fd, const char *request)
{
    char c;

    looked = 0;
    assert_int_equal(fd_write_all(fd, request, strlen(request)), 0);
    fd_nonblock(fd, true);
    for (int i = 0; i < 5000 && !looked; i++)
        ev_turn(loop, 2);
    assert_int_equal(looked, 1);
    for (int i = 0; i < 5; i++)
        ev_turn(loop, 2);
    assert_int_equal(read(fd, &c, 1), -1);
}

TEST(a_held_answer_is_sent_when_it_is_released_and_not_before)
{
    static const struct {
        void (*handler)(struct http_req *req);
        const char *request, *want;
        int status;
        enum err_id error;
    } cases[] = {
        { say_ok_held, "GET /x/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "200 OK", 200, ERR_NONE },
        { say_ok_held, "POST /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab",
          "200 OK", 200, ERR_NONE },
        { say_ok_held, "PUT /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 999999\r\n\r\nab",
          "200 OK", 200, ERR_NONE },
        { refuse_held, "GET /x/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "not_found", 404,
          ERR_MISSING },
        { stream_held, "GET /x/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "hello", 200, ERR_NONE },
    };

    listen_here();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int fd = dial_unix();

        handler = cases[i].handler;
        held_and_silent(fd, cases[i].request);
        assert_int_equal(looked_status, cases[i].status);
        assert_int_equal(looked_error, cases[i].error);
        http_release_answer(kept);
        if (!strstr(ask(fd, ""), cases[i].want))
            fail_msg("case %zu", i);
    }
    stop();
}

TEST(a_held_answer_is_freed_if_its_client_disconnects)
{
    static unsigned first = 0;

    listen_here();
    handler = say_ok_held;
    int fd = dial_unix();
    held_and_silent(fd, "GET /x/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    freed = 0;
    http_free_with_request(kept, &first, count_free);
    close(fd);
    for (int i = 0; i < 5000 && !http_client_is_gone(kept); i++)
        ev_turn(loop, 2);
    assert_true(http_client_is_gone(kept));
    assert_int_equal(freed, 0);
    http_release_answer(kept);
    assert_int_equal(freed, 1);
    stop();
}

static int make_dir(void **state UNUSED)
{
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/s", dir);
    return 0;
}

static int remove_dir(void **state UNUSED)
{
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_unix_socket_has_its_mode_and_is_removed_with_the_server),
        RUN(a_dead_servers_socket_is_replaced_and_a_live_ones_is_not),
        RUN(listen_addresses_must_be_literal),
        RUN(a_peer_is_a_process_or_an_address),
        RUN(only_a_listening_socket_can_be_adopted),
        RUN(invalid_query_parameters_are_named_in_the_error),
        RUN(a_client_prefers_events_if_accept_names_them_before_json),
        RUN(a_request_outlives_its_client_and_its_server_until_it_is_answered),
        RUN(reading_a_body_fails_at_once_if_the_client_is_gone),
        RUN(a_held_answer_is_sent_when_it_is_released_and_not_before),
        RUN(a_held_answer_is_freed_if_its_client_disconnects),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
