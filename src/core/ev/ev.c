/* One epoll set, one binary heap of timers, one list of deferred calls. Invariants, which define
 * what a callback may do:
 *
 * 1. `ready` holds the events of this iteration. Removing a source clears its pending event, so a
 *    source is never called after its removal; changing the interest of a source masks events that
 *    were already fetched.
 * 2. A timer or deferred call that is added while callbacks of the same kind run waits for the next
 *    iteration, which does not sleep: a callback that re-arms itself cannot starve descriptors.
 * 3. A sleep is rounded up to whole milliseconds. So a timer is never early, and the loop does not
 *    spin during the last fraction of a millisecond.
 * 4. A source without interest is registered edge-triggered. The kernel always reports HUP and ERR;
 *    level-triggered, a paused source whose peer is gone would wake the loop forever. */
#include "core/ev/ev.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <sys/signalfd.h>

#define READY_MAX 64

struct ev {
    int epfd;
    bool stopped;
    bool in_turn;
    uint64_t now;
    size_t nios;

    struct epoll_event ready[READY_MAX];
    size_t nready;

    struct ev_timer **heap; /* heap[0] is due first; heap[i] is not due before heap[(i - 1) / 2] */
    size_t ntimers, heap_cap;

    struct ev_defer *first_deferred, **last_deferred; /* in the order of ev_defer */

    struct ev_io signals;
    void (*on_signal)(void *arg, int signo);
    void *signal_arg;
};

int ev_new(struct ev **ret, struct err *err)
{
    int epfd = epoll_create1(EPOLL_CLOEXEC);

    if (epfd < 0)
        return err_sys(err, ERR_SYS, "epoll_create1");
    struct ev *ev = mem_new(struct ev);
    ev->epfd = epfd;
    ev->now = clock_mono_ns();
    ev->last_deferred = &ev->first_deferred;
    *ret = ev;
    return 0;
}

static void ev_close_fds(struct ev *ev)
{
    if (ev->signals.on)
        close(ev->signals.fd);
    ev->signals.on = false;
    fd_close(&ev->epfd);
}

void ev_free(struct ev *ev)
{
    if (!ev)
        return;
    ev_close_fds(ev);
    free(ev->heap);
    free(ev);
}

void ev_close_after_fork(struct ev *ev)
{
    ev_close_fds(ev);
    ev->nios = 0;
    ev->nready = 0;
}

void ev_stop(struct ev *ev)
{
    ev->stopped = true;
}

uint64_t ev_now(const struct ev *ev)
{
    return ev->now;
}

/* Descriptors. */

static uint32_t ev_epoll_events(uint32_t events)
{
    return events ? events : EPOLLET;
}

int ev_io_add(struct ev *ev, struct ev_io *io, int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg,
              struct err *err)
{
    struct epoll_event e = { .events = ev_epoll_events(events), .data.ptr = io };

    assert(!io->on);
    if (epoll_ctl(ev->epfd, EPOLL_CTL_ADD, fd, &e) < 0)
        return err_sys(err, ERR_SYS, "cannot watch descriptor %d", fd);
    *io = (struct ev_io){ .fd = fd, .events = events, .fn = fn, .arg = arg, .on = true };
    ev->nios++;
    return 0;
}

void ev_io_set(struct ev *ev, struct ev_io *io, uint32_t events)
{
    struct epoll_event e = { .events = ev_epoll_events(events), .data.ptr = io };

    if (!io->on || io->events == events)
        return;
    io->events = events;
    if (ev->epfd >= 0 && epoll_ctl(ev->epfd, EPOLL_CTL_MOD, io->fd, &e) < 0)
        abort(); /* happens only if the descriptor was closed without ev_io_del; the loop would never wake for it */
}

void ev_io_del(struct ev *ev, struct ev_io *io)
{
    if (!io->on)
        return;
    io->on = false;
    if (ev->epfd < 0)
        return;
    epoll_ctl(ev->epfd, EPOLL_CTL_DEL, io->fd, NULL);
    ev->nios--;
    for (size_t i = 0; i < ev->nready; i++)
        if (ev->ready[i].data.ptr == io)
            ev->ready[i].data.ptr = NULL;
}

static void ev_call_ready(struct ev *ev)
{
    for (size_t i = 0; i < ev->nready; i++) {
        struct ev_io *io = ev->ready[i].data.ptr;

        if (!io)
            continue;
        uint32_t events = ev->ready[i].events & (io->events | EPOLLHUP | EPOLLERR);
        if (events)
            io->fn(io->arg, events);
    }
    ev->nready = 0;
}

/* Timers. */

static void ev_heap_put(struct ev *ev, size_t i, struct ev_timer *t)
{
    ev->heap[i] = t;
    t->slot = i + 1;
}

/* Moves the hole at i to the place of t in the heap, and puts t there. */
static void ev_heap_place(struct ev *ev, size_t i, struct ev_timer *t)
{
    while (i > 0 && t->at < ev->heap[(i - 1) / 2]->at) {
        ev_heap_put(ev, i, ev->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (size_t child; (child = 2 * i + 1) < ev->ntimers; i = child) {
        if (child + 1 < ev->ntimers && ev->heap[child + 1]->at < ev->heap[child]->at)
            child++;
        if (t->at <= ev->heap[child]->at)
            break;
        ev_heap_put(ev, i, ev->heap[child]);
    }
    ev_heap_put(ev, i, t);
}

void ev_timer_set(struct ev *ev, struct ev_timer *t, uint64_t at, void (*fn)(void *), void *arg)
{
    size_t i = t->slot ? t->slot - 1 : ev->ntimers++;

    if (ev->ntimers > ev->heap_cap) {
        ev->heap_cap = ev->heap_cap ? 2 * ev->heap_cap : 16;
        ev->heap = mem_resize(ev->heap, ev->heap_cap, sizeof(struct ev_timer *));
    }
    t->at = at;
    t->fn = fn;
    t->arg = arg;
    ev_heap_place(ev, i, t);
}

void ev_timer_clear(struct ev *ev, struct ev_timer *t)
{
    if (!t->slot)
        return;
    size_t hole = t->slot - 1;
    struct ev_timer *end = ev->heap[--ev->ntimers];
    t->slot = 0;
    if (end != t)
        ev_heap_place(ev, hole, end);
}

static void ev_call_timers(struct ev *ev)
{
    for (size_t n = ev->ntimers; n > 0 && ev->ntimers > 0; n--) {
        struct ev_timer *t = ev->heap[0];

        if (t->at > ev->now)
            break;
        ev_timer_clear(ev, t);
        t->fn(t->arg);
    }
}

/* Deferred calls. */

void ev_defer(struct ev *ev, struct ev_defer *d, void (*fn)(void *), void *arg)
{
    if (d->on)
        return;
    *d = (struct ev_defer){ .fn = fn, .arg = arg, .on = true };
    *ev->last_deferred = d;
    ev->last_deferred = &d->next;
}

void ev_defer_clear(struct ev *ev, struct ev_defer *d)
{
    if (!d->on)
        return;
    struct ev_defer **at = &ev->first_deferred;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    if (ev->last_deferred == &d->next)
        ev->last_deferred = at;
    d->on = false;
}

static void ev_call_deferred(struct ev *ev)
{
    size_t n = 0;

    for (struct ev_defer *d = ev->first_deferred; d; d = d->next)
        n++;
    for (; n > 0 && ev->first_deferred; n--) {
        struct ev_defer *d = ev->first_deferred;

        ev_defer_clear(ev, d);
        d->fn(d->arg);
    }
}

/* Signals. */

static void ev_on_signals(void *arg, uint32_t events UNUSED)
{
    struct ev *ev = arg;
    struct signalfd_siginfo infos[8];
    ssize_t n = read(ev->signals.fd, infos, sizeof(infos));

    for (ssize_t i = 0; i < n / (ssize_t)sizeof(infos[0]); i++)
        ev->on_signal(ev->signal_arg, (int)infos[i].ssi_signo);
}

int ev_signals(struct ev *ev, const sigset_t *set, void (*fn)(void *arg, int signo), void *arg, struct err *err)
{
    assert(!ev->signals.on);
    if (sigprocmask(SIG_BLOCK, set, NULL) < 0)
        return err_sys(err, ERR_SYS, "sigprocmask");
    auto_fd int fd = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "signalfd");
    if (ev_io_add(ev, &ev->signals, fd, EPOLLIN, ev_on_signals, ev, err) < 0)
        return -1;
    take_fd(&fd);
    ev->on_signal = fn;
    ev->signal_arg = arg;
    return 0;
}

/* Iterations. */

static bool ev_has_work(const struct ev *ev)
{
    return ev->nios > 0 || ev->ntimers > 0 || ev->first_deferred;
}

/* Reads the clock instead of ev->now, because the callbacks since then may have taken a while. */
static int ev_wait_ms(const struct ev *ev, int max_ms)
{
    if (ev->first_deferred || !ev_has_work(ev) || max_ms == 0)
        return 0;
    uint64_t most = max_ms < 0 ? INT_MAX : (uint64_t)max_ms;
    if (ev->ntimers > 0) {
        uint64_t now = clock_mono_ns();
        uint64_t left = ev->heap[0]->at > now ? ev->heap[0]->at - now : 0;

        return (int)min_u64(most, left / NS_PER_MS + (left % NS_PER_MS != 0));
    }
    return max_ms < 0 ? -1 : max_ms;
}

void ev_turn(struct ev *ev, int max_wait_ms)
{
    assert(!ev->in_turn && ev->epfd >= 0);
    ev->in_turn = true;
    int n = epoll_wait(ev->epfd, ev->ready, READY_MAX, ev_wait_ms(ev, max_wait_ms));
    if (n < 0 && errno != EINTR)
        abort();
    ev->nready = n > 0 ? (size_t)n : 0;
    ev->now = clock_mono_ns();
    ev_call_ready(ev);
    ev_call_timers(ev);
    ev_call_deferred(ev);
    ev->in_turn = false;
}

void ev_run(struct ev *ev)
{
    while (!ev->stopped && ev_has_work(ev))
        ev_turn(ev, -1);
    ev->stopped = false;
}
