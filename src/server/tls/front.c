/* TLS runs in a thread with its own event loop. So clients that only start handshakes, at a
 * millisecond of CPU each, delay neither the loop of the server nor the owner at the Unix socket,
 * and the encryption of large files has its own core. A pool of threads would run handshakes in
 * parallel, but would need every list here per thread; one thread is enough for a thousand
 * handshakes per second.
 *
 * Why not TLS of libmicrohttpd: its connections used twice the CPU time of OpenSSL's, answers that
 * are sent without the daemon (src/server/http/mhd_response.c) could not reach the client, and an
 * upgraded connection needs a socket pair there too. Why not TLS in Linux: few kernels have it, and
 * this OpenSSL cannot use it to receive TLS 1.3.
 *
 * 1. The thread owns relays, listeners and the current identity; the server's loop owns the rest of
 *    `struct tls_front`. Both use only `mailbox`, under its lock, and the counters, which are
 *    atomic.
 * 2. A completed handshake is passed to the server's loop through a pipe with atomic writes. A
 *    connection that does not fit is closed by the thread; a connection that is in the pipe at the
 *    end is closed by tls_front_free().
 * 3. Accepting pauses instead of failing, as in src/server/http/listen.c. */
#include "server/tls/tls_internal.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#define ACCEPTS_PER_TURN 64
#define FD_SHORTAGE_PAUSE_MS 100
#define FINISH_MS 2000
#define TICKET_KEY_ROTATE_NS (3600 * NS_PER_S) /* lifetime of a ticket key */
#define SPARE 64                               /* lingering connections in addition to conns_max */

struct tls_listener {
    struct tls_front *f;
    struct ev_io io;
};

struct tls_front {
    struct ev *ev;
    struct tls_front_settings set;
    struct tls_counters counters;
    struct ev_io handover_io; /* the server loop's end of the pipe */
    int handover_fd;
    pthread_t thread;
    bool thread_started;

    struct tls_front_mailbox {
        pthread_mutex_t lock;
        struct tls_identity *next;
        bool close, stop;
    } mailbox;
    int wake_fd;

    /* owned by the thread */
    struct tls_relay_set relays;
    struct ev_io wake_io;
    struct tls_identity *id;
    struct tls_listener *listeners;
    bool accepting, stopping;
    struct ev_timer unpause_timer, ticket_timer, finish_timer;
};

/* --- in the thread --- */

static void tls_front_set_accepting(struct tls_front *f, bool on)
{
    f->accepting = on;
    for (size_t i = 0; i < f->set.nlisteners; i++)
        ev_io_set(f->relays.ev, &f->listeners[i].io, on ? EPOLLIN : 0);
}

static bool tls_front_is_full(const struct tls_front *f)
{
    return f->counters.open >= (uint64_t)f->set.conns_max + f->set.handshakes_max + SPARE;
}

static void tls_front_on_unpause(void *arg)
{
    struct tls_front *f = arg;

    if (!tls_front_is_full(f))
        tls_front_set_accepting(f, true);
}

static void tls_front_on_relay_freed(void *arg)
{
    struct tls_front *f = arg;

    if (f->stopping && !f->relays.first)
        ev_stop(f->relays.ev);
    else if (!f->accepting && !f->unpause_timer.slot && !tls_front_is_full(f))
        tls_front_set_accepting(f, true);
}

static void tls_front_on_accept(void *arg, uint32_t events UNUSED)
{
    const struct tls_listener *l = arg;
    struct tls_front *f = l->f;

    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        union tls_addr from = { 0 };
        socklen_t len = sizeof(from);

        if (tls_front_is_full(f)) {
            tls_front_set_accepting(f, false);
            return;
        }
        int fd = accept4(l->io.fd, &from.any, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            tls_relay_start(&f->relays, fd, &from, f->id);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            tls_front_set_accepting(f, false);
            ev_timer_set(f->relays.ev, &f->unpause_timer, ev_now(f->relays.ev) + FD_SHORTAGE_PAUSE_MS * NS_PER_MS,
                         tls_front_on_unpause, f);
        }
        return;
    }
}

static void tls_front_close_listeners(struct tls_front *f)
{
    ev_timer_clear(f->relays.ev, &f->unpause_timer);
    for (size_t i = 0; i < f->set.nlisteners; i++)
        ev_io_del(f->relays.ev, &f->listeners[i].io);
}

static void tls_front_on_ticket_timer(void *arg)
{
    struct tls_front *f = arg;

    tls_identity_rotate_ticket_key(f->id);
    ev_timer_set(f->relays.ev, &f->ticket_timer, ev_now(f->relays.ev) + TICKET_KEY_ROTATE_NS, tls_front_on_ticket_timer,
                 f);
}

static void tls_front_on_finish_timeout(void *arg)
{
    struct tls_front *f = arg;

    ev_stop(f->relays.ev);
}

/* The server has closed its sockets by now; bytes that it wrote may still be on the way to the
 * clients. */
static void tls_front_stop(struct tls_front *f)
{
    f->stopping = true;
    while (f->relays.oldest)
        tls_relay_abort(f->relays.oldest);
    ev_timer_set(f->relays.ev, &f->finish_timer, ev_now(f->relays.ev) + FINISH_MS * NS_PER_MS,
                 tls_front_on_finish_timeout, f);
    if (!f->relays.first)
        ev_stop(f->relays.ev);
}

static void tls_front_on_wake(void *arg, uint32_t events UNUSED)
{
    struct tls_front *f = arg;
    uint64_t n;

    (void)!read(f->wake_fd, &n, sizeof(n));
    pthread_mutex_lock(&f->mailbox.lock);
    struct tls_identity *next = f->mailbox.next;
    bool closing = f->mailbox.close, stopping = f->mailbox.stop;
    f->mailbox.next = NULL;
    pthread_mutex_unlock(&f->mailbox.lock);
    if (next) {
        tls_identity_free(f->id);
        f->id = next;
    }
    if (closing || stopping)
        tls_front_close_listeners(f);
    if (stopping && !f->stopping)
        tls_front_stop(f);
}

static void *tls_front_thread_main(void *arg)
{
    struct tls_front *f = arg;

    prctl(PR_SET_NAME, "coved-tls");
    ev_run(f->relays.ev);
    while (f->relays.first)
        tls_relay_abort(f->relays.first);
    OPENSSL_thread_stop();
    return NULL;
}

/* --- in the server's loop --- */

static void tls_front_on_handover(void *arg, uint32_t events UNUSED)
{
    struct tls_front *f = arg;
    struct tls_handover h[32];
    ssize_t n = read(f->handover_fd, h, sizeof(h));

    for (size_t i = 0; n > 0 && i < (size_t)n / sizeof(h[0]); i++)
        f->set.on_conn(f->set.arg, h[i].fd, &h[i].from);
}

static int tls_front_open_channels(struct tls_front *f, struct err *err)
{
    int pair[2];

    if (pipe2(pair, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    f->handover_fd = pair[0];
    f->relays.handover_fd = pair[1];
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->wake_fd < 0)
        return err_sys(err, ERR_SYS, "eventfd");
    if (ev_new(&f->relays.ev, err) < 0 ||
        ev_io_add(f->ev, &f->handover_io, f->handover_fd, EPOLLIN, tls_front_on_handover, f, err) < 0)
        return -1;
    return ev_io_add(f->relays.ev, &f->wake_io, f->wake_fd, EPOLLIN, tls_front_on_wake, f, err);
}

static int tls_front_open_listeners(struct tls_front *f, struct err *err)
{
    f->listeners = mem_alloc((f->set.nlisteners + 1) * sizeof(*f->listeners));
    f->accepting = true;
    for (size_t i = 0; i < f->set.nlisteners; i++) {
        struct tls_listener *l = &f->listeners[i];

        l->f = f;
        if (fd_nonblock(f->set.listeners[i], true) < 0)
            return err_sys(err, ERR_SYS, "descriptor %d", f->set.listeners[i]);
        if (ev_io_add(f->relays.ev, &l->io, f->set.listeners[i], EPOLLIN, tls_front_on_accept, l, err) < 0)
            return -1;
    }
    return 0;
}

/* Signals are blocked in the thread: the server's loop handles them. */
static int tls_front_start_thread(struct tls_front *f, struct err *err)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int bad = pthread_create(&f->thread, NULL, tls_front_thread_main, f);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->thread_started = bad == 0;
    errno = bad;
    return bad ? err_sys(err, ERR_SYS, "cannot start the TLS thread") : 0;
}

int tls_front_new(struct ev *ev, const struct tls_front_settings *set, struct tls_identity *id, struct tls_front **ret,
                  struct err *err)
{
    struct tls_front *f = mem_new(struct tls_front);

    f->ev = ev;
    f->set = *set;
    f->id = id;
    f->handover_fd = f->relays.handover_fd = f->wake_fd = -1;
    f->relays.set = &f->set;
    f->relays.counters = &f->counters;
    f->relays.on_relay_freed = tls_front_on_relay_freed;
    f->relays.arg = f;
    pthread_mutex_init(&f->mailbox.lock, NULL);
    if (tls_front_open_channels(f, err) < 0 || tls_front_open_listeners(f, err) < 0) {
        tls_front_free(f);
        return -1;
    }
    ev_timer_set(f->relays.ev, &f->ticket_timer, ev_now(f->relays.ev) + TICKET_KEY_ROTATE_NS, tls_front_on_ticket_timer,
                 f);
    if (tls_front_start_thread(f, err) < 0) {
        tls_front_free(f);
        return -1;
    }
    *ret = f;
    return 0;
}

static void tls_front_wake(struct tls_front *f)
{
    const uint64_t one = 1;

    (void)!write(f->wake_fd, &one, sizeof(one));
}

void tls_front_set_identity(struct tls_front *f, struct tls_identity *id)
{
    pthread_mutex_lock(&f->mailbox.lock);
    struct tls_identity *unused = f->mailbox.next;
    f->mailbox.next = id;
    pthread_mutex_unlock(&f->mailbox.lock);
    tls_identity_free(unused);
    tls_front_wake(f);
}

void tls_front_stop_accepting(struct tls_front *f)
{
    pthread_mutex_lock(&f->mailbox.lock);
    f->mailbox.close = true;
    pthread_mutex_unlock(&f->mailbox.lock);
    tls_front_wake(f);
}

static void tls_front_close_handovers(struct tls_front *f)
{
    struct tls_handover h;

    while (f->handover_fd >= 0 && read(f->handover_fd, &h, sizeof(h)) == (ssize_t)sizeof(h))
        close(h.fd);
}

void tls_front_free(struct tls_front *f)
{
    if (!f)
        return;
    if (f->thread_started) {
        tls_front_close_handovers(f);
        pthread_mutex_lock(&f->mailbox.lock);
        f->mailbox.stop = true;
        pthread_mutex_unlock(&f->mailbox.lock);
        tls_front_wake(f);
        pthread_join(f->thread, NULL);
    }
    tls_front_close_handovers(f);
    ev_io_del(f->ev, &f->handover_io);
    ev_free(f->relays.ev);
    fd_close(&f->handover_fd);
    fd_close(&f->relays.handover_fd);
    fd_close(&f->wake_fd);
    pthread_mutex_destroy(&f->mailbox.lock);
    tls_identity_free(f->mailbox.next);
    tls_identity_free(f->id);
    free(f->listeners);
    free(f);
}

void tls_front_stats(const struct tls_front *f, struct tls_front_stats *ret)
{
    *ret = (struct tls_front_stats){ .accepted = f->counters.accepted,
                                     .handshakes = f->counters.handshakes,
                                     .resumed = f->counters.resumed,
                                     .failed = f->counters.failed,
                                     .timed_out = f->counters.timed_out,
                                     .plain = f->counters.plain,
                                     .open = f->counters.open };
}
