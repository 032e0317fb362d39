/* Invariant: `flushing` holds the rows of the pending store call; it is not changed until the call
 * is answered. */
#include "service/usage_batch.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define FLUSH_NS (1 * NS_PER_S)
/* Tenants and users per second; beyond it, amounts of a user are recorded without the user. */
#define ROWS_MAX 4096u

struct usage_batch {
    struct ev *ev;
    struct store *store;
    struct store_usage *rows, *flushing;
    size_t n, nflushing;
    struct store_request *request;
    struct ev_timer timer;
};

struct usage_batch *usage_batch_new(struct ev *ev, struct store *store)
{
    struct usage_batch *b = mem_new(struct usage_batch);

    b->ev = ev;
    b->store = store;
    return b;
}

void usage_batch_free(struct usage_batch *b)
{
    if (!b)
        return;
    ev_timer_clear(b->ev, &b->timer);
    if (b->request)
        store_request_detach(b->request);
    free(b->rows);
    free(b->flushing);
    free(b);
}

static void usage_batch_on_timer(void *arg)
{
    usage_batch_flush(arg);
}

static void usage_batch_set_timer(struct usage_batch *b)
{
    if (b->n && !b->timer.slot && !b->request)
        ev_timer_set(b->ev, &b->timer, ev_now(b->ev) + FLUSH_NS, usage_batch_on_timer, b);
}

struct store_usage *usage_batch_row(struct usage_batch *b, const char *owner, const char *created_by, uint64_t at_ms)
{
    uint64_t hour = at_ms / STORE_HOUR_MS * STORE_HOUR_MS;

    for (size_t i = 0; i < b->n; i++)
        if (b->rows[i].hour_ms == hour && str_eq(b->rows[i].owner, owner) && str_eq(b->rows[i].created_by, created_by))
            return &b->rows[i];
    if (b->n >= ROWS_MAX && *created_by)
        return usage_batch_row(b, owner, "", at_ms);
    b->rows = mem_resize(b->rows, b->n + 1, sizeof(*b->rows));
    struct store_usage *u = &b->rows[b->n++];
    *u = (struct store_usage){ .hour_ms = hour };
    (void)str_copy(u->owner, sizeof(u->owner), owner);
    (void)str_copy(u->created_by, sizeof(u->created_by), created_by);
    usage_batch_set_timer(b);
    return u;
}

static void usage_batch_put_back(struct usage_batch *b, const struct store_usage *from)
{
    struct store_usage *to = usage_batch_row(b, from->owner, from->created_by, from->hour_ms);

    to->executions += from->executions;
    to->failed += from->failed;
    to->cpu_us += from->cpu_us;
    to->execution_ms += from->execution_ms;
    to->output_bytes += from->output_bytes;
    to->sandbox_ms += from->sandbox_ms;
    to->memory_mib_ms += from->memory_mib_ms;
    to->storage_mib_ms += from->storage_mib_ms;
    to->memory_peak = max_u64(to->memory_peak, from->memory_peak);
}

static void usage_batch_on_flushed(void *arg, const struct err *err)
{
    struct usage_batch *b = arg;

    b->request = NULL;
    if (err) {
        log_warn("cannot store usage, will retry: %s", err->msg);
        for (size_t i = 0; i < b->nflushing; i++)
            usage_batch_put_back(b, &b->flushing[i]);
    }
    free(take_ptr(&b->flushing));
    b->nflushing = 0;
    usage_batch_set_timer(b); /* for rows that were added meanwhile */
}

void usage_batch_flush(struct usage_batch *b)
{
    ev_timer_clear(b->ev, &b->timer);
    if (!b->n || b->request)
        return;
    b->flushing = take_ptr(&b->rows);
    b->nflushing = b->n;
    b->n = 0;
    b->request = store_usage_add(b->store, b->flushing, b->nflushing, usage_batch_on_flushed, b);
}

static void usage_batch_on_last_flushed(void *arg UNUSED, const struct err *err)
{
    if (err)
        log_warn("cannot store the usage of the last second: %s", err->msg);
}

void usage_batch_flush_last(struct usage_batch *b)
{
    ev_timer_clear(b->ev, &b->timer);
    if (b->n)
        store_usage_add(b->store, b->rows, b->n, usage_batch_on_last_flushed, NULL);
    b->n = 0;
}
