/* Frames of a client after its handshake: through a real socket, libmicrohttpd's upgrade and
 * wslay, to an owner that echoes everything.
 *
 * Checked in addition to memory errors: text is UTF-8 and no message is longer than allowed; the
 * owner is notified of the end exactly once; and after the client has disconnected, no socket
 * and no counted byte is left. */
#include "tests/support/http_limits.h"
#include "core/base/text.h"
#include "server/http/ws.h"
#include "http_host.h"

#define MESSAGE_MAX 2000

static struct http_ws *ws;
static unsigned opened, closed;

static void on_message(void *arg UNUSED, bool text, const char *data, size_t len)
{
    must(len <= MESSAGE_MAX && (!text || text_is_utf8(data, len)));
    if (len == 3)
        ws_close(ws, WS_POLICY, "three");
    ws_send(ws, data, len);
}

static void on_room(void *arg UNUSED)
{
}

static void on_closed(void *arg UNUSED, unsigned code)
{
    must(code >= 1000 && code < 5000);
    closed++;
}

static void handle(struct http_req *req, void *ctx UNUSED)
{
    static const struct ws_ops ops = { on_message, on_room, on_closed };

    ws = http_answer_ws(req, NULL, &ops, NULL);
    must(ws != NULL);
    opened++;
}

static const struct http_route routes[] = { { "GET", "/", handle }, { 0 } };

static void start(void)
{
    static const struct http_route *const tables[] = { routes, NULL };
    struct http_settings set = { .tables = (const struct http_tables[]){ { tables }, { 0 } } };

    set.limits = http_limits_for_tests();
    set.limits.ws_message_max = MESSAGE_MAX;
    set.limits.ws_frames_per_second = 1000000;
    host_start(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char hello[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n";
    struct http_stats st;
    int turns = 0;

    if (!loop)
        start();
    if (size > 30000)
        return 0;
    opened = closed = 0;
    auto_fd int fd = host_connect();
    must(send(fd, hello, strlen(hello), MSG_NOSIGNAL) == (ssize_t)strlen(hello));
    if (size && data[0] & 1) /* a part together with the handshake, the rest when the socket is open */
        must(send(fd, data, size / 2, MSG_NOSIGNAL) >= 0);
    while (!opened && turns++ < 100)
        ev_turn(loop, 0);
    must(opened == 1);
    size_t from = size && data[0] & 1 ? size / 2 : 0;
    if (size > from)
        (void)send(fd, data + from, size - from, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    for (turns = 0; (closed == 0 || turns < 2) && turns < 2000; turns++)
        host_turn(fd, &st);
    ev_turn(loop, 0);
    http_server_stats(server, &st);
    must(closed == 1 && st.websockets == 0 && st.open == 0);
    return 0;
}
