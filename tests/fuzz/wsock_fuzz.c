/* Bytes of any server after the handshake: to the WebSocket client of cove, through libcurl and
 * a real socket.
 *
 * Checked in addition to memory errors: a message ends in a NUL; nothing is reported after the
 * end; the end is reported once, at the latest when the server closes; and its close code is
 * valid. */
#include "remote/fetch/wsock.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/wskey.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#define TURNS_MAX 100000

static struct ev *loop;
static struct sockaddr_un un = { .sun_family = AF_UNIX };
static int listener;
static const uint8_t *input;
static size_t input_len;
static unsigned ends;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void shake_hands(int fd, const char *asked)
{
    const char *at = strstr(asked, "Sec-WebSocket-Key: ");
    char proof[WSKEY_ACCEPT];

    must(at != NULL);
    at += strlen("Sec-WebSocket-Key: ");
    auto_free char *key = str_dup_n(at, strcspn(at, "\r"));
    wskey_accept(key, proof);
    auto_free char *head = str_printf(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: cove.v1\r\n\r\n",
        proof);
    (void)fd_write_all(fd, head, strlen(head));
}

/* Sends its bytes, ends its side, and reads the other side to its end. */
static void *serve(void *arg UNUSED)
{
    auto_fd int fd = accept(listener, NULL, NULL);
    auto_buf heard = { 0 };
    char piece[4096];
    ssize_t n;

    while ((!heard.data || !strstr(heard.data, "\r\n\r\n")) && (n = read(fd, piece, sizeof(piece))) > 0)
        buf_add(&heard, piece, (size_t)n);
    must(heard.data != NULL);
    shake_hands(fd, heard.data);
    (void)fd_write_all(fd, input, input_len);
    shutdown(fd, SHUT_WR);
    while (read(fd, piece, sizeof(piece)) > 0)
        ;
    return NULL;
}

static void on_message(void *arg UNUSED, const char *text, size_t len)
{
    must(ends == 0 && text[len] == '\0');
}

static void on_closed(void *arg UNUSED, unsigned code, const char *reason)
{
    must(ends++ == 0 && reason && code >= 1000 && code < 5000);
}

static void stop(void)
{
    ev_free(loop);
    close(listener);
    unlink(un.sun_path);
}

static void start(void)
{
    struct err err = { 0 };

    signal(SIGPIPE, SIG_IGN);
    snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/wsock-fuzz-%d", getpid());
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(listener >= 0 && bind(listener, (struct sockaddr *)&un, sizeof(un)) == 0 && listen(listener, 1) == 0);
    must(ev_new(&loop, &err) == 0);
    atexit(stop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wsock_ops ops = { on_message, on_closed };
    struct wsock_spec spec = { .url = "http://localhost/v1", .unix_socket = un.sun_path, .protocol = "cove.v1" };
    struct err err = { 0 };
    auto_buf body = { 0 };
    struct wsock *ws;
    pthread_t server;
    int status;

    if (!loop)
        start();
    input = data;
    input_len = size;
    ends = 0;
    must(pthread_create(&server, NULL, serve, NULL) == 0);
    must(wsock_open(loop, &spec, &ops, NULL, &ws, &status, &body, &err) == 0);
    for (int turns = 0; ends == 0 && turns < TURNS_MAX; turns++)
        ev_turn(loop, 10);
    must(ends == 1);
    wsock_free(ws);
    pthread_join(server, NULL);
    return 0;
}
