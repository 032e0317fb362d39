/* ev.h - the loop of a process: descriptors, timers, signals, and work put off to the end of a turn.
 *
 * Sources are structs that the caller keeps by value inside its own object, zeroed at first, and must remove before
 * freeing it; removing is safe at any time, also from inside a callback of the same turn. An object that wants to free
 * itself from its own callback asks ev_defer.
 *
 * A turn waits, reads the clock (ev_now() is that reading until the next turn), and then calls, in this order, what is
 * ready, the timers that are due, and what was deferred. So a program that ended in time is seen before the clock that
 * would have ended it. Turns do not nest: a callback never calls ev_run or ev_turn. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <signal.h>
#include <sys/epoll.h>

struct ev;

int ev_new(struct ev **ret, struct err *err);
void ev_free(struct ev *ev); /* calls nothing, not even what is deferred */
DEFINE_AUTO(ev, ev_free);

void ev_run(struct ev *ev); /* until ev_stop, or until nothing is left to wait for; signals are something to wait for */
void ev_turn(struct ev *ev, int max_wait_ms); /* one turn; -1 waits for as long as it takes */
void ev_stop(struct ev *ev);                  /* ev_run returns when this turn is over */
uint64_t ev_now(const struct ev *ev);         /* monotonic ns */

/* After fork() the child must not touch the parent's epoll set: this closes the copy without removing anything there.
 * The child can still remove its sources, which then costs nothing, and must still call ev_free. */
void ev_close_after_fork(struct ev *ev);

struct ev_io {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT; 0 keeps it registered for HUP and ERR only, each told once */
    void (*fn)(void *arg, uint32_t events);
    void *arg;
    bool on;
};
int ev_io_add(struct ev *ev, struct ev_io *io, int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg,
              struct err *err);
void ev_io_set(struct ev *ev, struct ev_io *io, uint32_t events);
void ev_io_del(struct ev *ev, struct ev_io *io); /* before the fd is closed; nothing when not on */

struct ev_timer {
    uint64_t at; /* monotonic ns */
    void (*fn)(void *arg);
    void *arg;
    size_t slot; /* index in the heap + 1; 0 when not set */
};
void ev_timer_set(struct ev *ev, struct ev_timer *t, uint64_t at, void (*fn)(void *), void *arg); /* moves it if set */
void ev_timer_clear(struct ev *ev, struct ev_timer *t);

struct ev_defer {
    struct ev_defer *next;
    void (*fn)(void *arg);
    void *arg;
    bool on;
};
void ev_defer(struct ev *ev, struct ev_defer *d, void (*fn)(void *), void *arg); /* once, at the end of this turn */
void ev_defer_clear(struct ev *ev, struct ev_defer *d);

/* Blocks the signals of `set` in this process and delivers them as calls. One per loop. They stay blocked after
 * ev_free, and across fork and exec: a child that runs a program resets its mask first. */
int ev_signals(struct ev *ev, const sigset_t *set, void (*fn)(void *arg, int signo), void *arg, struct err *err);
