/* work.h - a thread pool for blocking calls, attached to an event loop.
 *
 * `fn` runs in a thread of the pool; `on_done` runs in the loop afterwards. Items start in the
 * order of submission. In a pool with one thread they also end in that order, so such a pool can
 * own a resource that only one thread may use. Only the loop's thread may call the functions here.
 * The pool's threads block every signal, and access neither the loop nor the data of its callbacks:
 * `fn` owns only the object that `arg` points to, until it returns. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct work_pool;

/* Embedded in an object of the caller, initially zeroed; must stay alive until on_done or
 * work_pool_free. */
struct work_item {
    struct work_item *next;
    void (*fn)(void *arg);
    void (*on_done)(void *arg);
    void *arg;
    bool on; /* submitted, and on_done was not called yet */
};

/* `name` (at most 15 characters) is the name of the threads in ps. */
int work_pool_new(struct ev *ev, const char *name, unsigned threads, struct work_pool **ret, struct err *err);
/* Waits for running items, discards waiting items, calls no on_done, and ends the threads. */
void work_pool_free(struct work_pool *pool);
DEFINE_AUTO(work_pool, work_pool_free);

void ev_work(struct work_pool *pool, struct work_item *w, void (*fn)(void *), void (*on_done)(void *), void *arg);
/* Runs every submitted item and its on_done before it returns, including items that an on_done
 * submits meanwhile. */
void work_pool_drain(struct work_pool *pool);
