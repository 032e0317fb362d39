/* An input queue, an output queue, one mutex for both, and an eventfd that wakes the loop.
 *
 * There are few threads, and they live as long as the pool: blocking calls wait for a disk, for
 * which two threads do as well as two hundred. The condition is signalled once per item, so idle
 * threads stay asleep.
 *
 * 1. `waiting`, `running`, `finished` and `stop` are accessed only under `lock`; everything else
 *    only by the loop.
 * 2. The eventfd is written after the first item is put into an empty `finished`, and read before
 *    `finished` is emptied. So a wake-up is never lost; at worst one finds nothing, and items that
 *    end together cost one wake-up.
 * 3. on_done runs without the lock, and with `on` already cleared, so it may submit the same item
 *    again. */
#include "core/ev/work.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>

struct work_queue {
    struct work_item *first, **last;
};

struct work_pool {
    struct ev *ev;
    struct ev_io wake;
    int fd;

    pthread_mutex_t lock;
    pthread_cond_t work_available; /* an item waits, or stop is set */
    pthread_cond_t work_ended;     /* an item finished */
    struct work_queue waiting, finished;
    size_t running;
    bool stop;

    size_t nthreads;
    pthread_t threads[];
};

static void work_queue_init(struct work_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

static void work_queue_push(struct work_queue *q, struct work_item *w)
{
    w->next = NULL;
    *q->last = w;
    q->last = &w->next;
}

static struct work_item *work_queue_pop(struct work_queue *q)
{
    struct work_item *w = q->first;

    if (w && !(q->first = w->next))
        q->last = &q->first;
    return w;
}

static void work_pool_wake_loop(struct work_pool *pool)
{
    uint64_t one = 1;
    ssize_t n;

    do
        n = write(pool->fd, &one, sizeof(one));
    while (n < 0 && errno == EINTR);
}

static void *work_pool_thread_main(void *arg)
{
    struct work_pool *pool = arg;
    struct work_item *w;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && !pool->waiting.first)
            pthread_cond_wait(&pool->work_available, &pool->lock);
        if (pool->stop)
            break;
        w = work_queue_pop(&pool->waiting);
        pool->running++;
        pthread_mutex_unlock(&pool->lock);
        w->fn(w->arg);
        pthread_mutex_lock(&pool->lock);
        pool->running--;
        bool first = !pool->finished.first;
        work_queue_push(&pool->finished, w);
        pthread_cond_signal(&pool->work_ended);
        if (first) { /* without the lock, so that the loop does not block on it */
            pthread_mutex_unlock(&pool->lock);
            work_pool_wake_loop(pool);
            pthread_mutex_lock(&pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Calls on_done of the finished items, in the order in which they finished. The list is taken as a
 * whole: items that finish during the calls wake the loop again. */
static void work_pool_call_finished(struct work_pool *pool)
{
    uint64_t count;
    struct work_queue done;
    struct work_item *w;

    if (read(pool->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
        abort();
    pthread_mutex_lock(&pool->lock);
    done.first = pool->finished.first;
    work_queue_init(&pool->finished);
    pthread_mutex_unlock(&pool->lock);
    while ((w = done.first)) {
        done.first = w->next;
        w->on = false;
        w->on_done(w->arg);
    }
}

static void work_pool_on_wake(void *arg, uint32_t events UNUSED)
{
    work_pool_call_finished(arg);
}

void ev_work(struct work_pool *pool, struct work_item *w, void (*fn)(void *), void (*on_done)(void *), void *arg)
{
    assert(!w->on);
    *w = (struct work_item){ .fn = fn, .on_done = on_done, .arg = arg, .on = true };
    pthread_mutex_lock(&pool->lock);
    work_queue_push(&pool->waiting, w);
    pthread_mutex_unlock(&pool->lock);
    pthread_cond_signal(&pool->work_available);
}

void work_pool_drain(struct work_pool *pool)
{
    bool busy;

    do {
        pthread_mutex_lock(&pool->lock);
        while (!pool->finished.first && (pool->waiting.first || pool->running))
            pthread_cond_wait(&pool->work_ended, &pool->lock);
        busy = pool->finished.first;
        pthread_mutex_unlock(&pool->lock);
        work_pool_call_finished(pool);
    } while (busy);
}

static int work_pool_start_threads(struct work_pool *pool, const char *name, unsigned threads)
{
    sigset_t all, old;
    int rc = 0;

    sigfillset(&all);
    /* the threads inherit the mask, so they never run with signals unblocked */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (rc == 0 && pool->nthreads < threads) {
        rc = pthread_create(&pool->threads[pool->nthreads], NULL, work_pool_thread_main, pool);
        if (rc == 0)
            pthread_setname_np(pool->threads[pool->nthreads++], name);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

int work_pool_new(struct ev *ev, const char *name, unsigned threads, struct work_pool **ret, struct err *err)
{
    struct work_pool *pool = mem_alloc(sizeof(*pool) + threads * sizeof(pool->threads[0]));
    int rc;

    assert(threads > 0);
    pool->ev = ev;
    work_queue_init(&pool->waiting);
    work_queue_init(&pool->finished);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->work_available, NULL);
    pthread_cond_init(&pool->work_ended, NULL);
    pool->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pool->fd < 0) {
        err_sys(err, ERR_SYS, "eventfd");
        goto failed;
    }
    if (ev_io_add(ev, &pool->wake, pool->fd, EPOLLIN, work_pool_on_wake, pool, err) < 0)
        goto failed;
    if ((rc = work_pool_start_threads(pool, name, threads)) != 0) {
        errno = rc;
        err_sys(err, ERR_SYS, "cannot start a thread");
        goto failed;
    }
    *ret = pool;
    return 0;
failed:
    work_pool_free(pool);
    return -1;
}

void work_pool_free(struct work_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work_available);
    pthread_mutex_unlock(&pool->lock);
    for (size_t i = 0; i < pool->nthreads; i++)
        pthread_join(pool->threads[i], NULL);
    ev_io_del(pool->ev, &pool->wake);
    fd_close(&pool->fd);
    pthread_cond_destroy(&pool->work_ended);
    pthread_cond_destroy(&pool->work_available);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
