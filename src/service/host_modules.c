/* One scan at a time. A request that needs modules which the last scan has seen is never
 * delayed: an old list is renewed beside it. Only a request that would be refused waits for a
 * new scan. */
#include "service/host_modules.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/ev/work.h"

struct host_modules_waiter {
    struct host_modules_waiter *next;
    host_modules_fn *done;
    void *arg;
};

struct host_modules {
    struct ev *ev;
    struct python_modules *(*scan)(void);
    struct work_pool *pool; /* NULL until the first scan */
    struct work_item work;
    struct python_modules *scanned; /* by the thread, while work.on */
    struct python_modules *modules; /* NULL: there was no scan */
    uint64_t scanned_ns;            /* when the last scan began */
    struct host_modules_waiter *waiters, **waiters_end;
};

struct host_modules *host_modules_new(struct ev *ev, struct python_modules *(*scan)(void))
{
    struct host_modules *h = mem_new(struct host_modules);

    h->ev = ev;
    h->scan = scan ? scan : python_modules_scan;
    h->waiters_end = &h->waiters;
    return h;
}

void host_modules_free(struct host_modules *h)
{
    if (!h)
        return;
    work_pool_free(h->pool);
    for (struct host_modules_waiter *w = h->waiters, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    python_modules_free(h->scanned);
    python_modules_free(h->modules);
    free(h);
}

static void host_modules_scan(void *arg)
{
    struct host_modules *h = arg;

    h->scanned = h->scan();
}

static void host_modules_on_scanned(void *arg)
{
    struct host_modules *h = arg;
    struct host_modules_waiter *w = h->waiters;

    python_modules_free(h->modules);
    h->modules = take_ptr(&h->scanned);
    h->waiters = NULL;
    h->waiters_end = &h->waiters;
    while (w) {
        auto_free struct host_modules_waiter *ended = w;

        w = w->next;
        ended->done(ended->arg, h->modules);
    }
}

static bool host_modules_start_scan(struct host_modules *h, uint64_t now_ns)
{
    struct err err = { 0 };

    if (h->work.on)
        return true;
    if (!h->pool && work_pool_new(h->ev, "modules", 1, &h->pool, &err) < 0) {
        log_warn("the Python modules of this host cannot be listed: %s", err.msg);
        return false;
    }
    h->scanned_ns = now_ns;
    ev_work(h->pool, &h->work, host_modules_scan, host_modules_on_scanned, h);
    return true;
}

static bool host_modules_has_all(const struct host_modules *h, const char *preload)
{
    auto_buf missing = { 0 };

    return h->modules && preload && python_modules_missing(h->modules, preload, &missing) == 0;
}

void host_modules_get(struct host_modules *h, const char *preload, uint64_t now_ns, host_modules_fn *done, void *arg)
{
    bool fresh = h->modules && !h->work.on && now_ns - h->scanned_ns < HOST_MODULES_TTL_NS;

    if (fresh || !host_modules_start_scan(h, now_ns) || host_modules_has_all(h, preload)) {
        done(arg, h->modules);
        return;
    }
    struct host_modules_waiter *w = mem_new(struct host_modules_waiter);
    w->done = done;
    w->arg = arg;
    *h->waiters_end = w;
    h->waiters_end = &w->next;
}

const struct python_modules *host_modules_last(const struct host_modules *h)
{
    return h->modules;
}
