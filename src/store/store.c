/* The queue, the thread and the group commit.
 *
 * Calls wait in a list that only the loop touches. When the thread is free, it gets all of them at once as a batch: one
 * transaction, each call in its order, one commit; then the loop answers them. While the batch runs, the next one
 * gathers. So the store commits as often as the disk lets it and never more often than there is something to commit,
 * without a timer and without a setting.
 *
 * A batch that cannot be committed (no room, a transaction that the database gave up) is taken back whole and its calls
 * are tried one by one: one that does not fit takes no other down with it.
 *
 * Calls in steps (backup, check) must not run inside a transaction and may take minutes. They stand in a list of their
 * own; after each batch the first of them gets one step.
 *
 * 1. A call is either in `waiting`, in `batch` or in `slow`. The thread touches `batch` and the first of `slow` while
 *    `work.on`, and nothing else; the loop touches these two only while it is not.
 * 2. A call is answered only after the commit of its batch. */
#include "store/queue.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/work.h"

#define BATCH_MAX 512u       /* calls in one transaction: bounds how long the first waits for the last */
#define WAITING_MAX 8192u    /* beyond these two a call is refused */
#define BYTES_MAX (64 * MIB) /* of texts waiting */

struct list {
    struct store_call *first, **last;
    size_t n;
};

struct store {
    struct ev *ev;
    struct work_pool *pool;
    struct work work;
    struct ev_defer start;
    const struct store_backend *backend;
    void *db;
    struct list waiting, batch, slow;
    size_t bytes;
    bool stepped; /* the first of `slow` had its last step */
    bool closing;
    bool finished; /* all was answered; what comes now is written, and nobody is told */
    struct store_stats stats;
    uint64_t batch_commits, batch_commit_ns; /* of the thread, added to stats afterwards */
    store_event_seen_fn *on_event;
    void *event_arg;
};

static const struct store_backend *const backends[] = { &store_sqlite };

static void list_init(struct list *l)
{
    l->first = NULL;
    l->last = &l->first;
    l->n = 0;
}

static void list_push(struct list *l, struct store_call *c)
{
    c->next = NULL;
    *l->last = c;
    l->last = &c->next;
    l->n++;
}

static struct store_call *list_pop(struct list *l)
{
    struct store_call *c = l->first;

    if (c) {
        l->n--;
        if (!(l->first = c->next))
            l->last = &l->first;
    }
    return c;
}

/* in the thread */

static int commit(struct store *st, struct err *err)
{
    uint64_t began = clock_mono_ns();
    int rc = st->backend->commit(st->db, err);

    st->batch_commit_ns += clock_mono_ns() - began;
    st->batch_commits++;
    if (rc < 0)
        st->backend->rollback(st->db);
    return rc;
}

static void run_one(struct store *st, struct store_call *c)
{
    store_call_reset(c);
    if (st->backend->run(st->db, c, &c->err) < 0)
        c->failed = true;
}

static void try_alone(struct store *st, struct store_call *c)
{
    store_call_reset(c);
    c->failed = true;
    if (st->backend->begin(st->db, &c->err) < 0)
        return;
    run_one(st, c);
    if (c->failed)
        st->backend->rollback(st->db);
    else if (commit(st, &c->err) < 0)
        c->failed = true;
}

/* A call that should have had the last room on the disk. */
static bool deserved_room(const struct store_call *c)
{
    return c->failed && c->err.id == ERR_STORE_FULL && !c->refused && !store_op_grows(c->op);
}

/* On a full disk the calls that end or forget something get the last room: without them there would never be more. */
static void run_alone(struct store *st, struct store_call *c)
{
    try_alone(st, c);
    if (deserved_room(c) && st->backend->make_room(st->db))
        try_alone(st, c);
}

static bool run_together(struct store *st)
{
    struct err err = { 0 };

    if (st->backend->begin(st->db, &err) < 0)
        return false;
    for (struct store_call *c = st->batch.first; c; c = c->next) {
        if (!c->refused)
            run_one(st, c);
        if (deserved_room(c))
            st->backend->rollback(st->db);
        if (!st->backend->in_transaction(st->db))
            return false;
    }
    return commit(st, &err) == 0;
}

static void thread_run(void *arg)
{
    struct store *st = arg;
    struct store_call *slow = st->slow.first;

    if (st->batch.n == 1 || (st->batch.first && !run_together(st)))
        for (struct store_call *c = st->batch.first; c; c = c->next)
            if (!c->refused)
                run_alone(st, c);
    st->stepped = false;
    if (slow) {
        int rc = slow->refused ? 0 : st->backend->step(st->db, slow, &slow->err);

        slow->failed = slow->refused || rc < 0;
        st->stepped = rc <= 0;
    }
}

/* in the loop */

static void answer(struct store *st, struct store_call *c)
{
    st->stats.errors += c->failed;
    st->stats.waiting--;
    st->bytes -= c->bytes;
    store_answer(c);
    if (st->on_event && c->op == STORE_OP_INSERT && c->table == &row_event && !c->failed) {
        struct store_event *row = c->row;

        row->seq = c->seq;
        st->on_event(st->event_arg, row);
    }
    store_call_free(c);
}

/* Calls in steps are given up at the end: a server that is told to stop does not wait for its own backup. */
static void give_up_slow(struct store *st)
{
    struct store_call *c;
    struct err err = { 0 };

    err_set(&err, ERR_BUSY, "the store is closing");
    while ((c = list_pop(&st->slow))) {
        st->backend->abandon(st->db, c);
        store_refuse(c, &err);
        answer(st, c);
    }
}

static void on_ran(void *arg);

static void start(void *arg)
{
    struct store *st = arg;

    if (st->work.on)
        return;
    while (st->waiting.first && st->batch.n < BATCH_MAX) {
        struct store_call *c = list_pop(&st->waiting);

        list_push(c->op >= STORE_OP_CHECK ? &st->slow : &st->batch, c);
    }
    if (st->closing)
        give_up_slow(st);
    if (st->batch.first || st->slow.first)
        ev_work(st->pool, &st->work, thread_run, on_ran, st);
}

static void on_ran(void *arg)
{
    struct store *st = arg;
    struct store_call *first = st->batch.first, *c;

    st->stats.commits += st->batch_commits;
    st->stats.commit_ns += st->batch_commit_ns;
    st->batch_commits = st->batch_commit_ns = 0;
    list_init(&st->batch);
    while ((c = first)) {
        first = c->next;
        answer(st, c);
    }
    if (st->stepped)
        answer(st, list_pop(&st->slow));
    start(st);
}

struct store_call *store_submit(struct store *st, struct store_call *c)
{
    struct err err = { 0 };

    if (st->finished) {
        store_forget(c);
    } else if (!c->refused && st->closing) {
        err_set(&err, ERR_BUSY, "the store is closing");
        store_refuse(c, &err);
    } else if (!c->refused && (st->stats.waiting >= WAITING_MAX || st->bytes + c->bytes > BYTES_MAX)) {
        err_set(&err, ERR_BUSY, "too many calls wait for the store");
        store_refuse(c, &err);
    }
    st->stats.calls++;
    st->stats.waiting++;
    st->bytes += c->bytes;
    list_push(&st->waiting, c);
    if (!st->work.on && !st->finished)
        ev_defer(st->ev, &st->start, start, st); /* what this turn still brings goes along */
    return c;
}

void store_on_event(struct store *st, store_event_seen_fn *fn, void *arg)
{
    st->on_event = fn;
    st->event_arg = arg;
}

void store_stats(const struct store *st, struct store_stats *ret)
{
    *ret = st->stats;
}

static int find_backend(const struct store_settings *set, const struct store_backend **ret, struct err *err)
{
    const char *name = set->backend ? set->backend : "sqlite";

    for (size_t i = 0; i < ARRAY_LEN(backends); i++)
        if (str_eq(backends[i]->name, name)) {
            *ret = backends[i];
            return 0;
        }
    return err_set(err, ERR_INVALID, "no store is called '%s'; there is sqlite", name);
}

int store_open(struct ev *ev, const struct store_settings *set, struct store **ret, struct err *err)
{
    const struct store_backend *backend;
    void *db;

    if (find_backend(set, &backend, err) < 0 || backend->open(set, &db, err) < 0)
        return -1;
    struct store *st = mem_new(struct store);
    st->ev = ev;
    st->backend = backend;
    st->db = db;
    list_init(&st->waiting);
    list_init(&st->batch);
    list_init(&st->slow);
    if (work_pool_new(ev, "store", 1, &st->pool, err) < 0) {
        backend->close(db);
        free(st);
        return -1;
    }
    *ret = st;
    return 0;
}

static void drain(struct store *st)
{
    while (st->stats.waiting > 0) {
        start(st);
        work_pool_drain(st->pool); /* all batches: the end of one starts the next */
    }
}

void store_finish(struct store *st)
{
    if (!st || st->finished)
        return;
    st->closing = true;
    drain(st);
    ev_defer_clear(st->ev, &st->start);
    st->finished = true;
    st->on_event = NULL;
}

void store_close(struct store *st)
{
    if (!st)
        return;
    store_finish(st);
    drain(st);
    work_pool_free(st->pool);
    st->backend->close(st->db);
    free(st);
}

int store_restore(const struct store_settings *set, const char *backup, struct err *err)
{
    const struct store_backend *backend;

    if (find_backend(set, &backend, err) < 0)
        return -1;
    return backend->restore(set, backup, err);
}
