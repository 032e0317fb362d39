/* A jailer and an engine that send anything: each message of the input is a byte for the type, a
 * byte for the link and the number of descriptors, two bytes of length, and the payload. */
#include "core/base/fd.h"
#include "host/egress/egress_control.h"
#include "host/egress/egress_sandbox.h"
#include "core/wire/frame.h"

#include <netinet/in.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void send_message(const int links[2], const int listeners[7], const uint8_t *head, const uint8_t *payload,
                         size_t n)
{
    static uint8_t packet[FRAME_MAX];
    struct frame f = { .type = head[0], .stream = 2, .len = (uint32_t)n };

    frame_header(packet, &f);
    memcpy(packet + FRAME_HEADER, payload, n);
    (void)fd_send(links[head[1] & 1], packet, FRAME_HEADER + n, listeners, head[1] >> 1 & 7,
                  MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int make_listener(int type)
{
    struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    must(fd >= 0 && bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0);
    must(type == SOCK_DGRAM || listen(fd, 4) == 0);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct egress_proxy proxy;
    static struct egress_control control;
    static struct egress_settings settings;
    int jailer[2], engine[2], before = dup(STDERR_FILENO), after;
    int listeners[7];
    uint8_t answer[64];
    struct ev *ev = NULL;
    struct err err = { 0 };

    close(before);
    for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
        listeners[i] = make_listener(i ? SOCK_STREAM : SOCK_DGRAM);
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, jailer) == 0 &&
         socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, engine) == 0 && ev_new(&ev, &err) == 0);
    settings = (struct egress_settings){ .jailer_fd = jailer[0],
                                         .engine_fd = engine[0],
                                         .sandbox_connections = 16,
                                         .tenant_connections = 16,
                                         .upstream.resolvers = "127.0.0.1:9" };
    must(egress_proxy_init(&proxy, ev, &settings, &err) == 0 && egress_control_init(&control, &proxy, &err) == 0);
    int links[2] = { jailer[1], engine[1] };
    for (size_t at = 0; size - at >= 4;) {
        size_t n = min_size((size_t)data[at + 2] | (size_t)data[at + 3] << 8, size - at - 4);

        send_message(links, listeners, data + at, data + at + 4, n);
        ev_turn(ev, 0);
        while (recv(engine[1], answer, sizeof(answer), MSG_DONTWAIT) > 0)
            ;
        at += 4 + n;
    }
    fd_close(&jailer[1]);
    fd_close(&engine[1]);
    for (int i = 0; i < 4; i++)
        ev_turn(ev, 0);
    must(proxy.nsandboxes == 0 && control.nlinks == 0); /* nothing stays after the links have ended */
    egress_control_done(&control);
    egress_proxy_done(&proxy);
    ev_free(ev);
    for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
        close(listeners[i]);
    after = dup(STDERR_FILENO);
    close(after);
    must(after == before); /* no descriptor was leaked */
    return 0;
}
