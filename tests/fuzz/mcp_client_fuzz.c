/* Everything that an MCP server sends: to the client of cove, over descriptors or through libcurl
 * and a real socket.
 *
 * The first byte selects the transport, 'p' for descriptors. The records after it are separated by
 * NULs. Over descriptors each is one piece of output, sent when the client waits. Over HTTP each
 * is one response: its first byte selects the head, the rest is the body, and a record that begins
 * with 'r' is a response with its own head.
 *
 * Checked in addition to memory errors: a call ends at most once, with a result or an error; text
 * of errors, logs and progress has no control characters; a listed tool has a valid name. */
#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_client.h"
#include "remote/mcp/mcp_elicit.h"
#include "remote/mcp/mcp_tool.h"

#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define PEERS_MAX 64u
#define TURNS_PER_RECORD 6
#define TURNS_HTTP_MAX 400

struct peer {
    struct ev_io io;
    int fd;
    struct buf input;
};

static struct ev *loop;
static struct sockaddr_un address = { .sun_family = AF_UNIX };
static int listener;
static struct ev_io listener_io;
static struct peer peers[PEERS_MAX];
static size_t peer_count;
static const char *next, *end; /* the records that were not sent yet */
static unsigned ended[4];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_text(const char *text)
{
    for (const char *p = text; *p; p++)
        must((unsigned char)*p >= 0x20 || *p == '\n' || *p == '\t');
}

/* --- the caller --- */

static void on_done(void *arg, const json_t *result, const struct err *err)
{
    const json_t *tool;
    size_t i;

    must(++*(unsigned *)arg == 1);
    must((result != NULL) != (err != NULL));
    if (err) {
        must(err->id != ERR_NONE);
        check_text(err->msg);
    }
    json_array_foreach(json_object_get(result, "tools"), i, tool)
        must(arg != &ended[0] || mcp_tool_name_valid(json_string_value(json_object_get(tool, "name"))));
}

static void on_progress(void *arg UNUSED, const struct mcp_progress *p)
{
    check_text(p->message);
}

static void on_log(void *arg UNUSED, const char *level, const char *text)
{
    check_text(level);
    check_text(text);
}

static void on_question(void *arg UNUSED, struct mcp_question *q)
{
    json_t *content = NULL;

    if (mcp_elicit_defaults(mcp_question_params(q), &content, NULL) < 0)
        mcp_question_refuse(q);
    else
        mcp_question_answer(q, json_pack("{s:s, s:o}", "action", "accept", "content", content));
}

static void start_calls(struct mcp_client *c)
{
    static const struct fuzz_call { /* in the order of ended[] */
        enum mcp_client_call_kind kind;
        const char *name;
    } calls[] = {
        { MCP_LIST_TOOLS, NULL }, { MCP_CALL_TOOL, "add" }, { MCP_READ_RESOURCE, "a:b" }, { MCP_GET_PROMPT, "p" }
    };
    static const struct mcp_client_call_ops ops = { on_progress, on_done };
    json_t *arguments = json_pack("{s:s, s:i}", "s", "a\nb", "i", 7);

    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        const struct mcp_client_call_spec spec = { calls[i].kind, calls[i].name, arguments, 3600000 };
        struct mcp_client_call *call;

        (void)mcp_client_call_start(c, &spec, &ops, &ended[i], &call, NULL);
    }
    json_decref(arguments);
}

/* --- the server --- */

static size_t take_record(const char **ret)
{
    const char *nul = next < end ? memchr(next, '\0', (size_t)(end - next)) : NULL;
    size_t len = (size_t)((nul ? nul : end) - next);

    *ret = next;
    next += len + (nul != NULL);
    return len;
}

static void respond(int fd)
{
    const char *head = "HTTP/1.1 410 Gone\r\n", *record = "";
    size_t len = next < end ? take_record(&record) : 0;

    switch (len ? *record : 0) {
    case 'j':
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n";
        break;
    case 'e':
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        break;
    case 'a':
        head = "HTTP/1.1 202 Accepted\r\n";
        break;
    case '4':
        head = "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n";
        break;
    default:
        break;
    }
    if (len == 0 || *record != 'r') {
        (void)fd_write_all(fd, head, strlen(head));
        (void)fd_write_all(fd, "Connection: close\r\n\r\n", 21);
    }
    if (len > 1)
        (void)fd_write_all(fd, record + 1, len - 1);
    shutdown(fd, SHUT_RDWR);
}

static void on_input(void *arg, uint32_t events UNUSED)
{
    struct peer *p = arg;
    char data[4096];
    ssize_t n = read(p->fd, data, sizeof(data));

    if (n > 0)
        buf_add(&p->input, data, (size_t)n);
    const char *body = p->input.data ? strstr(p->input.data, "\r\n\r\n") : NULL;
    const char *length = p->input.data ? strcasestr(p->input.data, "content-length:") : NULL;
    if (n > 0 && (!body || (length && p->input.len < (size_t)(body + 4 - p->input.data) + (size_t)atoi(length + 15))))
        return;
    ev_io_del(loop, &p->io);
    if (n > 0)
        respond(p->fd);
    fd_close(&p->fd);
}

static void on_connect(void *arg UNUSED, uint32_t events UNUSED)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

    if (peer_count == PEERS_MAX) {
        close(fd);
        return;
    }
    struct peer *p = &peers[peer_count++];
    p->fd = fd;
    must(ev_io_add(loop, &p->io, fd, EPOLLIN, on_input, p, NULL) == 0);
}

static void close_peers(void)
{
    for (size_t i = 0; i < peer_count; i++) {
        ev_io_del(loop, &peers[i].io);
        fd_close(&peers[i].fd);
        buf_done(&peers[i].input);
    }
    memset(peers, 0, sizeof(peers));
    peer_count = 0;
}

/* --- one input --- */

static void run_http(const struct mcp_client_ops *ops, struct mcp_client_spec spec)
{
    struct mcp_client *c = NULL;

    spec.url = "http://localhost/mcp";
    spec.unix_socket = address.sun_path;
    must(mcp_client_new(loop, &spec, ops, NULL, &c, NULL) == 0);
    start_calls(c);
    for (int i = 0; i < TURNS_HTTP_MAX && !(ended[0] && ended[1] && ended[2] && ended[3]); i++)
        ev_turn(loop, i % 8 ? 0 : 1);
    mcp_client_free(c);
    close_peers();
}

static void run_pipe(const struct mcp_client_ops *ops, struct mcp_client_spec spec)
{
    struct mcp_client *c = NULL;
    char sink[65536];
    int fds[2];

    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    spec.in_fd = spec.out_fd = fds[1];
    must(mcp_client_new(loop, &spec, ops, NULL, &c, NULL) == 0);
    start_calls(c);
    while (next < end) {
        const char *record;
        size_t len = take_record(&record);

        (void)send(fds[0], record, len < 65536 ? len : 65536, MSG_DONTWAIT | MSG_NOSIGNAL);
        for (int i = 0; i < TURNS_PER_RECORD; i++)
            ev_turn(loop, 0);
        while (recv(fds[0], sink, sizeof(sink), MSG_DONTWAIT) > 0)
            ;
    }
    close(fds[0]);
    for (int i = 0; i < TURNS_PER_RECORD; i++)
        ev_turn(loop, 0);
    must(ended[0] && ended[1] && ended[2] && ended[3]); /* the server has ended */
    mcp_client_free(c);
}

static void stop(void)
{
    ev_io_del(loop, &listener_io);
    ev_free(loop);
    close(listener);
    unlink(address.sun_path);
}

static void start(void)
{
    signal(SIGPIPE, SIG_IGN);
    must(ev_new(&loop, NULL) == 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/mcp-fuzz-%d", getpid());
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    must(listen(listener, 16) == 0);
    must(ev_io_add(loop, &listener_io, listener, EPOLLIN, on_connect, NULL, NULL) == 0);
    atexit(stop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mcp_client_ops ops = { .on_log = on_log, .on_question = on_question };
    const struct mcp_client_spec spec = { .answers_elicitation = true };

    if (size == 0)
        return 0;
    if (!loop)
        start();
    auto_free char *copy = mem_copy(data + 1, size - 1);
    next = copy;
    end = copy + size - 1;
    memset(ended, 0, sizeof(ended));
    if (data[0] == 'p')
        run_pipe(&ops, spec);
    else
        run_http(&ops, spec);
    return 0;
}
