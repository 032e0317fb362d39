/* ev.h - the event loop of a process: descriptors, timers, signals, and work deferred to the end of
 * an iteration.
 *
 * Event sources are structs that the caller embeds in its own object, initially zeroed, and removes
 * before it frees the object. Removal is safe at any time, also from a callback of the same
 * iteration. An object that must free itself in its own callback uses ev_defer.
 *
 * An iteration waits, reads the clock (ev_now() returns that value until the next iteration), and
 * then calls in this order: ready descriptors, due timers, deferred work. So a program that ended
 * in time is seen before the timer that would have killed it. Iterations do not nest: a callback
 * never calls ev_run or ev_turn. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <signal.h>
#include <sys/epoll.h>

struct ev;

int ev_new(struct ev **ret, struct err *err);
void ev_free(struct ev *ev); /* calls no callback, not even a deferred one */
DEFINE_AUTO(ev, ev_free);

void ev_run(struct ev *ev);                   /* until ev_stop, or until no source is left; signals count as a source */
void ev_turn(struct ev *ev, int max_wait_ms); /* one iteration; -1 waits without a time limit */
void ev_stop(struct ev *ev);                  /* ev_run returns at the end of this iteration */
uint64_t ev_now(const struct ev *ev);         /* monotonic ns */

/* After fork() the child must not modify the parent's epoll set: this closes the child's copy
 * without removing the registrations. The child can still remove its sources, which then makes no
 * system call, and must still call ev_free. */
void ev_close_after_fork(struct ev *ev);

struct ev_io {
    int fd;
    uint32_t events; /* EPOLLIN, EPOLLOUT; 0 reports only HUP and ERR, each once */
    void (*fn)(void *arg, uint32_t events);
    void *arg;
    bool on;
};
int ev_io_add(struct ev *ev, struct ev_io *io, int fd, uint32_t events, void (*fn)(void *, uint32_t), void *arg,
              struct err *err);
void ev_io_set(struct ev *ev, struct ev_io *io, uint32_t events);
void ev_io_del(struct ev *ev, struct ev_io *io); /* call it before closing the fd; does nothing if not on */

struct ev_timer {
    uint64_t at; /* monotonic ns */
    void (*fn)(void *arg);
    void *arg;
    size_t slot; /* index in the heap + 1; 0 when not set */
};
/* moves the timer if it is set */
void ev_timer_set(struct ev *ev, struct ev_timer *t, uint64_t at, void (*fn)(void *), void *arg);
void ev_timer_clear(struct ev *ev, struct ev_timer *t);

struct ev_defer {
    struct ev_defer *next;
    void (*fn)(void *arg);
    void *arg;
    bool on;
};
/* runs once, at the end of this iteration */
void ev_defer(struct ev *ev, struct ev_defer *d, void (*fn)(void *), void *arg);
void ev_defer_clear(struct ev *ev, struct ev_defer *d);

/* Blocks the signals of `set` in this process and delivers them as calls. One set per loop. The
 * signals stay blocked after ev_free, and across fork and exec: a child that runs a program resets
 * its mask first. */
int ev_signals(struct ev *ev, const sigset_t *set, void (*fn)(void *arg, int signo), void *arg, struct err *err);
