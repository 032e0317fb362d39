/* The client of one MCP server over HTTP: a scripted server on a Unix socket, in the same loop. The
 * script writes whole responses, and each closes its connection unless the script keeps it. */
#include "tests/unit/remote/mcp/mcp_scene.h"

#include <sys/un.h>

struct http_scene {
    struct scene s; /* its descriptor is not used */
    int listener;
    struct ev_io listener_io;
    struct sockaddr_un address;
    void (*script)(struct http_scene *h, int fd, const char *head, json_t *message);
    struct {
        struct ev_io io;
        struct buf input;
        struct http_scene *scene;
        int fd;
    } peers[64];
    unsigned count;
};

#define JSON_HEAD "HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nConnection: close\r\n\r\n"
#define EVENTS_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"

static void http_write(int fd, const char *text)
{
    (void)fd_write_all(fd, text, strlen(text));
}

static char *http_answer_text(const json_t *message, const char *result)
{
    return str_printf("{\"jsonrpc\":\"2.0\",\"id\":%" JSON_INTEGER_FORMAT ",\"result\":%s}", scene_id(message), result);
}

static void http_result(int fd, const json_t *message, const char *result)
{
    auto_free char *text = http_answer_text(message, result);

    http_write(fd, JSON_HEAD);
    http_write(fd, text);
}

static const char *http_method(const json_t *message)
{
    const char *method = json_string_value(json_object_get(message, "method"));

    return method ? method : message ? "=" : "GET";
}

/* The handshake and the list of tools. */
static bool http_answer(struct http_scene *h, int fd, json_t *message)
{
    const char *method = http_method(message);

    if (str_eq(method, "server/discover") && h->s.is_modern)
        http_result(fd, message, DISCOVERED);
    else if (str_eq(method, "server/discover"))
        http_write(fd, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nno session");
    else if (str_eq(method, "initialize"))
        http_result(fd, message, INITIALIZED);
    else if (str_eq(method, "tools/list"))
        http_result(fd, message, "{\"tools\":[" ONE_TOOL "]}");
    else if (str_eq(method, "notifications/initialized"))
        http_write(fd, "HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n");
    else
        return false;
    return true;
}

static void http_on_input(void *arg, uint32_t events UNUSED)
{
    __typeof__(((struct http_scene *)NULL)->peers[0]) *p = arg;
    struct http_scene *h = p->scene;
    char data[65536];
    ssize_t n = read(p->fd, data, sizeof(data));
    size_t want = 0;

    if (n <= 0) {
        ev_io_del(h->s.ev, &p->io);
        fd_close(&p->fd);
        return;
    }
    buf_add(&p->input, data, (size_t)n);
    char *end = strstr(p->input.data, "\r\n\r\n"), *length = strcasestr(p->input.data, "content-length:");
    if (!end)
        return;
    if (length && length < end)
        want = (size_t)atoi(length + 15);
    if (p->input.len < (size_t)(end + 4 - p->input.data) + want)
        return;
    json_t *message = want ? json_loads(end + 4, 0, NULL) : NULL;
    end[2] = '\0';
    buf_addf(&h->s.log, "%s ", http_method(message));
    ev_io_del(h->s.ev, &p->io);
    h->script(h, p->fd, p->input.data, message);
    json_decref(message);
    p->fd = -1; /* closed below, or kept by the script */
}

/* Ends the response: the script calls it last. */
static void http_end(int fd)
{
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static void http_on_connect(void *arg, uint32_t events UNUSED)
{
    struct http_scene *h = arg;
    int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC);

    assert_in_range(h->count, 0, ARRAY_LEN(h->peers) - 1);
    h->peers[h->count].scene = h;
    h->peers[h->count].fd = fd;
    ev_io_add(h->s.ev, &h->peers[h->count].io, fd, EPOLLIN, http_on_input, &h->peers[h->count], NULL);
    h->count++;
}

static void http_start(struct http_scene *h, struct mcp_client_spec spec)
{
    struct err err = { 0 };

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(ev_new(&h->s.ev, &err), 0);
    h->s.fd = -1;
    h->address.sun_family = AF_UNIX;
    snprintf(h->address.sun_path, sizeof(h->address.sun_path), "/tmp/mcp-http-test-%d", getpid());
    unlink(h->address.sun_path);
    h->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(h->listener, (struct sockaddr *)&h->address, sizeof(h->address)), 0);
    assert_int_equal(listen(h->listener, 16), 0);
    assert_int_equal(ev_io_add(h->s.ev, &h->listener_io, h->listener, EPOLLIN, http_on_connect, h, &err), 0);
    spec.url = "http://localhost/mcp";
    spec.unix_socket = h->address.sun_path;
    assert_int_equal(mcp_client_new(h->s.ev, &spec, &scene_ops, &h->s, &h->s.client, &err), 0);
}

static void http_stop(struct http_scene *h)
{
    for (unsigned i = 0; i < h->count; i++) {
        ev_io_del(h->s.ev, &h->peers[i].io);
        fd_close(&h->peers[i].fd);
        buf_done(&h->peers[i].input);
    }
    ev_io_del(h->s.ev, &h->listener_io);
    close(h->listener);
    unlink(h->address.sun_path);
    scene_stop(&h->s);
}

/* One response for every tools/call. */
static const char *call_response;

static void respond_to_calls(struct http_scene *h, int fd, const char *head UNUSED, json_t *message)
{
    if (!http_answer(h, fd, message))
        http_write(fd, call_response);
    http_end(fd);
}

TEST(responses_that_are_not_of_the_protocol_are_refused)
{
    static const struct {
        const char *response;
        enum err_id id;
        const char *part;
    } rows[] = {
        { "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Type: application/json\r\n"
          "Connection: close\r\n\r\n{}",
          ERR_MCP_REFUSED, "redirect" },
        { "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<html>", ERR_MCP_PROTOCOL,
          "text/html" },
        { "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", ERR_MCP_PROTOCOL, "no content type" },
        { "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ERR_MCP_REFUSED,
          "credential" },
        { "HTTP/1.1 500 Oops\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nsecret", ERR_MCP_REFUSED, "500" },
        { "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ERR_MCP_ENDED, NULL },
        { "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n", ERR_MCP_ENDED, NULL },
        { JSON_HEAD "not json", ERR_MCP_PROTOCOL, "not valid" },
        { JSON_HEAD "[{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}]", ERR_MCP_PROTOCOL, "batch" },
        { JSON_HEAD "{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{\"content\":[]}}", ERR_MCP_ENDED, NULL },
        { EVENTS_HEAD "data: {\"jsonrpc\"\n\n", ERR_MCP_PROTOCOL, "not valid" },
        { EVENTS_HEAD ": nothing\n\n", ERR_MCP_ENDED, NULL },
        { "HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
          "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32602,\"message\":\"wrong\"}}",
          ERR_MCP_REFUSED, "-32602: wrong" },
    };
    struct http_scene h = { .script = respond_to_calls, .s.is_modern = true };

    http_start(&h, (struct mcp_client_spec){ 0 });
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        call_response = rows[i].response;
        scene_call(&h.s, MCP_CALL_TOOL, "add");
        if (h.s.err.id != rows[i].id || (rows[i].part && !strstr(h.s.err.msg, rows[i].part)))
            fail_msg("row %zu: %s: %s", i, err_info(h.s.err.id)->code, h.s.err.msg);
    }
    http_stop(&h);
}

static void check_headers(struct http_scene *h, int fd, const char *head, json_t *message)
{
    if (str_eq(http_method(message), "tools/call")) {
        assert_non_null(strcasestr(head, "\r\nMcp-Method: tools/call\r\n"));
        assert_non_null(strcasestr(head, "\r\nMcp-Name: add\r\n"));
        assert_non_null(strcasestr(head, "\r\nMCP-Protocol-Version: 2026-07-28\r\n"));
        assert_non_null(strcasestr(head, "\r\nX-Own: yes\r\n"));
        http_result(fd, message, TEXT_RESULT);
    } else {
        http_answer(h, fd, message);
    }
    http_end(fd);
}

TEST(a_modern_request_repeats_its_method_and_name_in_headers)
{
    struct http_scene h = { .script = check_headers, .s.is_modern = true };

    http_start(&h, (struct mcp_client_spec){ .headers = (const char *const[]){ "X-Own: yes", NULL } });
    scene_call(&h.s, MCP_CALL_TOOL, "add");
    assert_string_equal(scene_text(&h.s), "5");
    http_stop(&h);
}

/* The session ends after the first call. */
static void expire_session(struct http_scene *h, int fd, const char *head, json_t *message)
{
    const char *method = http_method(message);

    if (!message) { /* DELETE */
        assert_true(str_starts(head, "DELETE ") && strcasestr(head, "\r\nMcp-Session-Id: s2\r\n"));
        h->s.questions++;
        http_write(fd, "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n");
    } else if (str_eq(method, "initialize")) {
        auto_free char *body = http_answer_text(message, INITIALIZED);
        auto_free char *text = str_printf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s%u\r\n"
                                          "Connection: close\r\n\r\n%s",
                                          ++h->s.count, body);
        http_write(fd, text);
    } else if (str_eq(method, "tools/call") && h->s.tools && strcasestr(head, "mcp-session-id: s1\r\n")) {
        http_write(fd, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
                       "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32001,\"message\":\"no session\"},\"id\":null}");
    } else if (str_eq(method, "tools/call")) {
        assert_non_null(strcasestr(head, "\r\nMCP-Protocol-Version: 2025-11-25\r\n"));
        http_result(fd, message, TEXT_RESULT);
    } else {
        http_answer(h, fd, message);
    }
    http_end(fd);
}

TEST(a_call_in_an_expired_session_is_repeated_in_a_new_one_which_is_ended)
{
    struct http_scene h = { .script = expire_session };

    http_start(&h, (struct mcp_client_spec){ 0 });
    scene_call(&h.s, MCP_CALL_TOOL, "add");
    h.s.tools = "expired";
    scene_call(&h.s, MCP_CALL_TOOL, "add");
    assert_string_equal(scene_text(&h.s), "5");
    assert_int_equal(h.s.count, 2);
    mcp_client_end_session(h.s.client);
    for (int i = 0; i < 100 && mcp_client_is_sending(h.s.client); i++)
        ev_turn(h.s.ev, 20);
    assert_int_equal(h.s.questions, 1);
    http_stop(&h);
}

static void break_stream(struct http_scene *h, int fd, const char *head, json_t *message)
{
    static json_int_t id;

    if (str_eq(http_method(message), "tools/call")) {
        id = scene_id(message);
        http_write(fd, EVENTS_HEAD "id: e1\nretry: 20\ndata: \n\n");
    } else if (!message) {
        assert_non_null(strcasestr(head, h->s.count == 0 ? "\r\nLast-Event-ID: e1\r\n" : "\r\nLast-Event-ID: e2\r\n"));
        http_write(fd, EVENTS_HEAD "id: e2\nretry: 1\ndata: \n\n");
        auto_free char *event = str_printf(
            "id: e3\ndata: {\"jsonrpc\":\"2.0\",\"id\":%" JSON_INTEGER_FORMAT ",\"result\":" TEXT_RESULT "}\n\n", id);
        if (h->s.count++ == 1)
            http_write(fd, event);
    } else {
        http_answer(h, fd, message);
    }
    http_end(fd);
}

TEST(a_stream_that_breaks_is_resumed_after_its_last_event)
{
    struct http_scene h = { .script = break_stream };

    http_start(&h, (struct mcp_client_spec){ 0 });
    scene_call(&h.s, MCP_CALL_TOOL, "add");
    assert_string_equal(scene_text(&h.s), "5");
    assert_int_equal(h.s.count, 2);
    http_stop(&h);
}

static void never_answer_stream(struct http_scene *h, int fd, const char *head UNUSED, json_t *message)
{
    if (str_eq(http_method(message), "tools/call") || !message) {
        h->s.progress++;
        http_write(fd, EVENTS_HEAD "id: same\nretry: 1\ndata: \n\n");
    } else {
        http_answer(h, fd, message);
    }
    http_end(fd);
}

TEST(a_stream_that_never_delivers_is_not_resumed_for_ever)
{
    struct http_scene h = { .script = never_answer_stream };

    http_start(&h, (struct mcp_client_spec){ 0 });
    scene_call(&h.s, MCP_CALL_TOOL, "add");
    scene_expect(&h.s, ERR_MCP_ENDED, NULL);
    assert_int_equal(h.s.progress, 6);
    http_stop(&h);
}

/* Streams what never becomes an event; the test writes the rest. */
static int open_stream = -1;

static void keep_stream(struct http_scene *h, int fd, const char *head UNUSED, json_t *message)
{
    if (str_eq(http_method(message), "tools/call")) {
        http_write(fd, EVENTS_HEAD);
        open_stream = fd;
        fd_nonblock(fd, true);
        return;
    }
    http_answer(h, fd, message);
    http_end(fd);
}

static void flood_stream(const char *piece, enum err_id id, const char *part)
{
    struct http_scene h = { .script = keep_stream, .s.is_modern = true };
    size_t len = strlen(piece), sent = 0;

    http_start(&h, (struct mcp_client_spec){ 0 });
    scene_begin(&h.s, MCP_CALL_TOOL, "add", 20000);
    while (!h.s.is_done && sent < 100 * MIB) {
        ev_turn(h.s.ev, open_stream >= 0 ? 0 : 20);
        for (unsigned i = 0; open_stream >= 0 && i < 8; i++) {
            ssize_t n = write(open_stream, piece + sent % len, len - sent % len);
            sent += n > 0 ? (size_t)n : 0;
        }
    }
    assert_true(h.s.is_done);
    scene_expect(&h.s, id, part);
    fd_close(&open_stream);
    http_stop(&h);
}

TEST(comments_without_end_are_cut)
{
    auto_buf piece = { 0 };

    while (piece.len < 100000)
        buf_adds(&piece, ": still here\n\n");
    flood_stream(piece.data, ERR_MCP_LIMIT, "without a complete event");
}

TEST(one_event_without_end_is_cut)
{
    auto_buf piece = { 0 };

    while (piece.len < 100000)
        buf_adds(&piece, "data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n");
    flood_stream(piece.data, ERR_MCP_LIMIT, NULL);
}

TEST(notifications_without_end_are_cut)
{
    auto_buf piece = { 0 };

    while (piece.len < 100000)
        buf_adds(&piece, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/anything\"}\n\n");
    flood_stream(piece.data, ERR_MCP_PROTOCOL, "answer no request");
}

/* Two calls at the same time; the first response has the answer to the second. */
static void answer_for_another(struct http_scene *h, int fd, const char *head UNUSED, json_t *message)
{
    static int waiting = -1;

    if (!str_eq(http_method(message), "tools/call")) {
        http_answer(h, fd, message);
    } else if (waiting < 0) {
        waiting = fd;
        return;
    } else {
        http_result(waiting, message, TEXT_RESULT);
        http_end(waiting);
        http_result(fd, message, "{\"content\":[]}");
        waiting = -1;
    }
    http_end(fd);
}

static void on_other_done(void *arg, const json_t *result, const struct err *err UNUSED)
{
    *(int *)arg = result ? 1 : -1;
}

TEST(an_answer_counts_only_in_the_response_to_its_own_request)
{
    static const struct mcp_client_call_ops ops = { .on_done = on_other_done };
    const struct mcp_client_call_spec spec = { .method = MCP_CALL_TOOL, .name = "add" };
    struct http_scene h = { .script = answer_for_another, .s.is_modern = true };
    struct mcp_client_call *call;
    struct err err = { 0 };
    int other = 0;

    http_start(&h, (struct mcp_client_spec){ 0 });
    scene_begin(&h.s, MCP_CALL_TOOL, "add", 10000);
    assert_int_equal(mcp_client_call_start(h.s.client, &spec, &ops, &other, &call, &err), 0);
    scene_turn_until(&h.s, &h.s.is_done);
    scene_expect(&h.s, ERR_MCP_ENDED, NULL);
    for (int i = 0; i < 100 && !other; i++)
        ev_turn(h.s.ev, 20);
    assert_int_equal(other, 1);
    http_stop(&h);
}

TEST(a_server_that_does_not_run_fails_the_calls_at_once)
{
    struct http_scene h = { .script = respond_to_calls };

    http_start(&h, (struct mcp_client_spec){ 0 });
    unlink(h.address.sun_path);
    scene_call(&h.s, MCP_LIST_TOOLS, NULL);
    scene_expect(&h.s, ERR_MCP_UNREACHABLE, NULL);
    assert_int_equal(h.s.ready_err.id, ERR_MCP_UNREACHABLE);
    http_stop(&h);
}

static void close_on_cancel(struct http_scene *h, int fd, const char *head UNUSED, json_t *message)
{
    if (str_eq(http_method(message), "tools/call")) {
        open_stream = fd;
        return;
    }
    http_answer(h, fd, message);
    http_end(fd);
}

TEST(closing_the_stream_cancels_a_call_of_a_modern_server)
{
    struct http_scene h = { .script = close_on_cancel, .s.is_modern = true };
    char byte;

    http_start(&h, (struct mcp_client_spec){ 0 });
    struct mcp_client_call *call = scene_begin(&h.s, MCP_CALL_TOOL, "add", 10000);
    for (int i = 0; i < 200 && open_stream < 0; i++)
        ev_turn(h.s.ev, 20);
    assert_true(open_stream >= 0);
    mcp_client_call_cancel(call);
    for (int i = 0; i < 5; i++)
        ev_turn(h.s.ev, 10);
    assert_int_equal(read(open_stream, &byte, 1), 0);
    assert_null(strstr(h.s.log.data, "cancelled"));
    fd_close(&open_stream);
    http_stop(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(responses_that_are_not_of_the_protocol_are_refused),
        RUN(a_modern_request_repeats_its_method_and_name_in_headers),
        RUN(a_call_in_an_expired_session_is_repeated_in_a_new_one_which_is_ended),
        RUN(a_stream_that_breaks_is_resumed_after_its_last_event),
        RUN(a_stream_that_never_delivers_is_not_resumed_for_ever),
        RUN(comments_without_end_are_cut),
        RUN(one_event_without_end_is_cut),
        RUN(notifications_without_end_are_cut),
        RUN(an_answer_counts_only_in_the_response_to_its_own_request),
        RUN(a_server_that_does_not_run_fails_the_calls_at_once),
        RUN(closing_the_stream_cancels_a_call_of_a_modern_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
