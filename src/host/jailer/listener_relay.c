/* If the monitor dies between receiving a system call and
 * answering it, that call keeps waiting, because the listener is still open here; the time limits
 * of its sandbox end it.
 *
 * Spawners are trusted with any sandbox. A zygote announces listeners on its own socket, only for
 * sandboxes of its own template, and one for each interpreter that it was asked to fork: the
 * monitor's capacity is limited. */
#include "host/jailer/listener_relay.h"

#include "core/base/fd.h"
#include "host/jailer/jailer_internal.h"
#include "core/wire/jail.h"

#include <errno.h>
#include <poll.h>
#include <sys/time.h>

/* Children of the spawners send their listeners before they become a sandbox. If the socket is full
 * and the reader does not read, the send must fail instead of blocking forever: no time limit of
 * the sandbox runs yet. */
static void listener_relay_set_send_timeout(int sock)
{
    struct timeval most = { .tv_sec = 2 };

    if (sock > 0)
        (void)setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

int listener_relay_pair(int sv[2], struct err *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    listener_relay_set_send_timeout(sv[1]);
    return 0;
}

/* --- to the monitor --- */

static void listener_relay_forward(struct jailer *j, const char *id, int listener, int32_t sys)
{
    uint8_t packet[FRAME_HEADER + 128];
    struct jail_watch w = { .sys = sys };

    memcpy(w.id, id, sizeof(w.id));
    int len = jail_watch_encode(&w, packet + FRAME_HEADER, NULL);
    if (len < 0)
        return;
    struct frame f = { .type = FRAME_J_WATCH, .len = (uint32_t)len, .data = packet + FRAME_HEADER };
    frame_header(packet, &f);
    if (!j->settings->monitor)
        (void)fd_send(j->listener_relay.sender_socket, packet, FRAME_HEADER + f.len, &listener, listener >= 0 ? 1 : 0,
                      MSG_DONTWAIT);
    else
        helper_link_send(&j->listener_relay.monitor, &f, &listener, listener >= 0 ? 1 : 0);
}

static void listener_relay_announce(struct jailed_sandbox *sandbox)
{
    for (size_t i = 0; i < JAILED_SANDBOX_LISTENERS; i++)
        if (sandbox->listeners[i] >= 0)
            listener_relay_forward(sandbox->jailer, sandbox->id, sandbox->listeners[i], 0);
}

static void listener_relay_close_duplicates(struct jailer *j)
{
    for (struct jailed_sandbox *sandbox = j->sandboxes; sandbox; sandbox = sandbox->next)
        for (size_t i = 0; i < JAILED_SANDBOX_LISTENERS; i++)
            fd_close(&sandbox->listeners[i]);
}

static const struct helper_link_ops listener_relay_monitor_ops = {
    .loss = "the monitor ended; denied system calls wait until it restarts",
    .announce = listener_relay_announce,
    .on_absent = listener_relay_close_duplicates,
};

/* --- from the sandboxes --- */

/* Uses an empty slot, or the slot of a filter that has no processes left. */
static void listener_relay_keep_duplicate(struct jailed_sandbox *sandbox, int *fd)
{
    for (size_t i = 0; i < JAILED_SANDBOX_LISTENERS && *fd >= 0; i++) {
        struct pollfd p = { .fd = sandbox->listeners[i] };

        if (p.fd >= 0 && (poll(&p, 1, 0) != 1 || !(p.revents & POLLHUP)))
            continue;
        fd_close(&sandbox->listeners[i]);
        sandbox->listeners[i] = take_fd(fd);
    }
}

/* False: the sender may not announce this listener. A sandbox that has ended meanwhile is not an
 * error. */
static bool listener_relay_on_watch(struct jailer *j, const struct spawner *of, const struct frame *f, int *fd)
{
    struct jail_watch w;

    if (f->type != FRAME_J_WATCH || jail_watch_decode(f, &w, NULL) < 0)
        return false;
    struct jailed_sandbox *sandbox = jailed_sandbox_find(j, w.id);
    if (!sandbox)
        return true;
    if (of && (sandbox->spawner != of || sandbox->awaited_listeners == 0 || fd_is_socket(*fd)))
        return false;
    sandbox->awaited_listeners -= of ? 1 : 0;
    listener_relay_forward(j, w.id, *fd, w.sys);
    if (j->settings->monitor && helper_link_expected(&j->listener_relay.monitor))
        listener_relay_keep_duplicate(sandbox, fd);
    return true;
}

bool listener_relay_read(struct jailer *j, int sock, const struct spawner *of)
{
    uint8_t packet[FRAME_HEADER + 128];

    for (int turn = 0; turn < 64; turn++) {
        auto_fd int fd = -1;
        size_t nfds = 1;
        struct frame f;
        ssize_t n = fd_recv(sock, packet, sizeof(packet), &fd, &nfds, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        bool good = n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && listener_relay_on_watch(j, of, &f, &fd);
        if (!good && (of || n == 0))
            return false;
    }
    return true;
}

static void listener_relay_on_readable(void *arg, uint32_t events UNUSED)
{
    struct jailer *j = arg;

    if (!listener_relay_read(j, j->listener_relay.receiver_io.fd, NULL))
        ev_io_del(j->ev, &j->listener_relay.receiver_io);
}

int listener_relay_start(struct jailer *j, struct err *err)
{
    struct listener_relay *r = &j->listener_relay;
    int sv[2];

    r->sender_socket = j->settings->monitor_fd;
    if (j->settings->monitor) {
        if (listener_relay_pair(sv, err) < 0)
            return -1;
        r->sender_socket = sv[1];
        if (ev_io_add(j->ev, &r->receiver_io, sv[0], EPOLLIN, listener_relay_on_readable, j, err) < 0) {
            close(sv[0]);
            return -1;
        }
        helper_link_start(&r->monitor, j, j->settings->monitor, &listener_relay_monitor_ops);
    }
    listener_relay_set_send_timeout(r->sender_socket);
    return 0;
}

void listener_relay_end(struct jailer *j)
{
    struct listener_relay *r = &j->listener_relay;

    if (!j->settings->monitor)
        return;
    helper_link_end(&r->monitor);
    ev_io_del(j->ev, &r->receiver_io);
    close(r->receiver_io.fd);
    close(r->sender_socket);
}

int listener_relay_add_client(struct jailer *j, int sock, struct err *err)
{
    uint8_t packet[FRAME_HEADER];
    struct frame f = { .type = FRAME_J_NEW_CLIENT };

    if (j->settings->monitor ? !j->listener_relay.monitor.connected : j->listener_relay.sender_socket <= 0)
        return err_set(err, ERR_MISSING, "no monitor is connected to this jailer%s",
                       j->settings->monitor ? " at the moment" : "");
    if (j->settings->monitor) {
        helper_link_send(&j->listener_relay.monitor, &f, &sock, 1);
        return 0;
    }
    frame_header(packet, &f);
    if (fd_send(j->listener_relay.sender_socket, packet, sizeof(packet), &sock, 1, MSG_DONTWAIT) < 0)
        return err_sys(err, ERR_LOST, "cannot reach the monitor");
    return 0;
}
