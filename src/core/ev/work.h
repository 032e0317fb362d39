/* work.h - threads for calls that block, tied to a loop.
 *
 * `fn` runs in one of the pool's threads; `on_done` runs in the loop afterwards. Works are started in the order in
 * which they were given; those of a pool with one thread also end in it, so such a pool may own what only one thread
 * may use. All functions here belong to the loop's thread. The pool's threads block every signal, and touch neither the
 * loop nor what its callbacks touch: `fn` has only what `arg` points at, and hands it back by ending. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

struct work_pool;

/* Kept by the caller inside its own object, zeroed at first, and alive until on_done or work_pool_free. */
struct work_item {
    struct work_item *next;
    void (*fn)(void *arg);
    void (*on_done)(void *arg);
    void *arg;
    bool on; /* given, and on_done was not called yet */
};

/* `name` (at most 15 letters) is what the threads are called in ps. */
int work_pool_new(struct ev *ev, const char *name, unsigned threads, struct work_pool **ret, struct err *err);
/* Waits for the works that run, calls neither fn of those that still wait nor any on_done, and ends the threads. */
void work_pool_free(struct work_pool *pool);
DEFINE_AUTO(work_pool, work_pool_free);

void ev_work(struct work_pool *pool, struct work_item *w, void (*fn)(void *), void (*on_done)(void *), void *arg);
/* Runs every work that was given, and the on_done of each, before it returns; also what an on_done gives meanwhile. */
void work_pool_drain(struct work_pool *pool);
