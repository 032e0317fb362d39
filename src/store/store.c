/* The queue, the thread and the group commit.
 *
 * Calls wait in a list that only the loop touches. When the thread is free, it gets all of them
 * at once as a batch: one transaction, each call in order, one commit; then the loop answers
 * them. While the batch runs, the next one is collected. So the store commits as often as the
 * disk allows and never without a change, without a timer and without a setting.
 *
 * A batch that cannot be committed (disk full, or the database rolled the transaction back) is
 * rolled back as a whole and its calls are tried one by one: a call that does not fit does not
 * fail the others.
 *
 * Calls in steps (backup, check) must not run inside a transaction and may take minutes. They
 * have a list of their own; after each batch the first of them gets one step.
 *
 * A search of scripts may read much. It runs in steps too, but each step is one call of a batch:
 * after it, the search waits again behind all other calls.
 *
 * Invariants:
 * 1. A call is in one of `waiting`, `batch` and `stepwise`. While `work.on`, the thread touches
 *    only `batch` and the first of `stepwise`; otherwise the loop owns these two.
 * 2. A call is answered only after the commit of its batch. */
#include "store/requests.h"
#include "store/stores.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/ev/work.h"
#include "store/rules/rules.h"

#define BATCH_MAX 512u       /* calls in one transaction: limits how long the first waits for the last */
#define WAITING_MAX 8192u    /* waiting calls; more are refused with ERR_BUSY */
#define BYTES_MAX (64 * MIB) /* texts of waiting calls; more are refused with ERR_BUSY */

struct store_request_list {
    struct store_request *first, **last;
    size_t n;
};

struct store {
    struct ev *ev;
    struct work_pool *pool;
    struct work_item work;
    struct ev_defer start_defer;
    const struct store_backend *backend;
    struct store_db *db;
    struct store_request_list waiting, batch, stepwise;
    size_t bytes;
    bool stepwise_finished; /* the first of `stepwise` had its last step */
    bool is_closing;
    bool is_finished; /* all calls were answered; later calls are executed without an answer */
    struct store_stats stats;
    uint64_t batch_commits, batch_commit_ns; /* counted by the thread, added to stats afterwards */
    store_event_listener_fn *on_event;
    void *event_arg;
};

static void store_request_list_init(struct store_request_list *l)
{
    l->first = NULL;
    l->last = &l->first;
    l->n = 0;
}

static void store_request_list_push(struct store_request_list *l, struct store_request *c)
{
    c->next = NULL;
    *l->last = c;
    l->last = &c->next;
    l->n++;
}

static struct store_request *store_request_list_pop(struct store_request_list *l)
{
    struct store_request *c = l->first;

    if (c) {
        l->n--;
        if (!(l->first = c->next))
            l->last = &l->first;
    }
    return c;
}

/* --- in the thread --- */

static int store_commit_batch(struct store *st, struct err *err)
{
    uint64_t began = clock_mono_ns();
    int rc = st->backend->commit(st->db, err);

    st->batch_commit_ns += clock_mono_ns() - began;
    st->batch_commits++;
    if (rc < 0)
        st->backend->rollback(st->db);
    return rc;
}

static void store_run_request(struct store *st, struct store_request *c)
{
    store_request_reset(c);
    if (store_run(st->db, c, &c->err) < 0)
        c->failed = true;
}

static void store_try_request_alone(struct store *st, struct store_request *c)
{
    store_request_reset(c);
    c->failed = true;
    if (st->backend->begin(st->db, &c->err) < 0)
        return;
    store_run_request(st, c);
    if (c->failed)
        st->backend->rollback(st->db);
    else if (store_commit_batch(st, &c->err) < 0)
        c->failed = true;
}

/* A call that may use the last space on the disk. */
static bool store_request_deserves_reserve(const struct store_request *c)
{
    return c->failed && c->err.id == ERR_STORE_FULL && !c->rejected && !store_op_needs_space(c->op);
}

/* On a full disk, calls that end or remove rows get the last space: without them no space would
 * ever become free. */
static void store_run_request_alone(struct store *st, struct store_request *c)
{
    store_try_request_alone(st, c);
    if (store_request_deserves_reserve(c) && st->backend->make_room(st->db))
        store_try_request_alone(st, c);
}

static bool store_run_batch(struct store *st)
{
    struct err err = { 0 };

    if (st->backend->begin(st->db, &err) < 0)
        return false;
    for (struct store_request *c = st->batch.first; c; c = c->next) {
        if (!c->rejected)
            store_run_request(st, c);
        if (store_request_deserves_reserve(c))
            st->backend->rollback(st->db);
        if (!st->backend->in_transaction(st->db))
            return false;
    }
    return store_commit_batch(st, &err) == 0;
}

static int store_run_step(struct store *st, struct store_request *c)
{
    return c->op == STORE_OP_CHECK ? st->backend->check(st->db, c, &c->err) : st->backend->backup(st->db, c, &c->err);
}

static void store_thread_run(void *arg)
{
    struct store *st = arg;
    struct store_request *slow = st->stepwise.first;

    if (st->batch.n == 1 || (st->batch.first && !store_run_batch(st)))
        for (struct store_request *c = st->batch.first; c; c = c->next)
            if (!c->rejected)
                store_run_request_alone(st, c);
    st->stepwise_finished = false;
    if (slow) {
        int rc = slow->rejected ? 0 : store_run_step(st, slow);

        slow->failed = slow->rejected || rc < 0;
        st->stepwise_finished = rc <= 0;
    }
}

/* --- in the loop --- */

static void store_finish_request(struct store *st, struct store_request *c)
{
    st->stats.errors += c->failed;
    st->stats.waiting--;
    st->bytes -= c->bytes;
    store_request_answer(c);
    if (st->on_event && c->op == STORE_OP_INSERT && c->table == &row_event && !c->failed) {
        struct store_event *row = c->row;

        row->seq = c->seq;
        st->on_event(st->event_arg, row);
    }
    store_request_free(c);
}

/* Calls in steps are given up at the end: a server that shuts down does not wait for its own
 * backup. */
static void store_abandon_stepwise(struct store *st)
{
    struct store_request *c;
    struct err err = { 0 };

    err_set(&err, ERR_BUSY, "the store is closing");
    while ((c = store_request_list_pop(&st->stepwise))) {
        if (c->op == STORE_OP_BACKUP && !c->rejected)
            st->backend->abandon_backup(st->db, c);
        store_request_reject(c, &err);
        store_finish_request(st, c);
    }
}

static void store_on_batch_done(void *arg);

static void store_start_batch(void *arg)
{
    struct store *st = arg;

    if (st->work.on)
        return;
    while (st->waiting.first && st->batch.n < BATCH_MAX) {
        struct store_request *c = store_request_list_pop(&st->waiting);

        store_request_list_push(c->op >= STORE_OP_CHECK ? &st->stepwise : &st->batch, c);
    }
    if (st->is_closing)
        store_abandon_stepwise(st);
    if (st->batch.first || st->stepwise.first)
        ev_work(st->pool, &st->work, store_thread_run, store_on_batch_done, st);
}

static void store_on_batch_done(void *arg)
{
    struct store *st = arg;
    struct store_request *first = st->batch.first, *c;

    st->stats.commits += st->batch_commits;
    st->stats.commit_ns += st->batch_commit_ns;
    st->batch_commits = st->batch_commit_ns = 0;
    store_request_list_init(&st->batch);
    while ((c = first)) {
        first = c->next;
        if (c->is_unfinished && !c->failed)
            store_request_list_push(&st->waiting, c);
        else
            store_finish_request(st, c);
    }
    if (st->stepwise_finished)
        store_finish_request(st, store_request_list_pop(&st->stepwise));
    store_start_batch(st);
}

static int store_set_no_backup(const struct store_backend *backend, struct err *err)
{
    return err_set(err, ERR_NOT_SUPPORTED_YET,
                   "cove has no backups of a %s database; use the backups of the database itself", backend->name);
}

struct store_request *store_request_submit(struct store *st, struct store_request *c)
{
    struct err err = { 0 };

    if (st->is_finished) {
        store_request_detach(c);
    } else if (!c->rejected && st->is_closing) {
        err_set(&err, ERR_BUSY, "the store is closing");
        store_request_reject(c, &err);
    } else if (!c->rejected && (st->stats.waiting >= WAITING_MAX || st->bytes + c->bytes > BYTES_MAX)) {
        err_set(&err, ERR_BUSY, "too many calls wait for the store; try again later");
        store_request_reject(c, &err);
    } else if (!c->rejected && c->op == STORE_OP_BACKUP && !st->backend->backup) {
        store_set_no_backup(st->backend, &err);
        store_request_reject(c, &err);
    }
    st->stats.calls++;
    st->stats.waiting++;
    st->bytes += c->bytes;
    store_request_list_push(&st->waiting, c);
    if (!st->work.on && !st->is_finished)
        /* Further calls of this loop iteration join the batch. */
        ev_defer(st->ev, &st->start_defer, store_start_batch, st);
    return c;
}

void store_on_event(struct store *st, store_event_listener_fn *fn, void *arg)
{
    st->on_event = fn;
    st->event_arg = arg;
}

void store_stats(const struct store *st, struct store_stats *ret)
{
    *ret = st->stats;
}

int store_open(struct ev *ev, const struct store_settings *set, struct store **ret, struct err *err)
{
    const struct store_backend *backend = stores_backend(set->url.scheme);
    struct store_db *db;

    if (backend->open(set, &db, err) < 0)
        return -1;
    struct store *st = mem_new(struct store);
    st->ev = ev;
    st->backend = backend;
    st->db = db;
    store_request_list_init(&st->waiting);
    store_request_list_init(&st->batch);
    store_request_list_init(&st->stepwise);
    if (work_pool_new(ev, "store", 1, &st->pool, err) < 0) {
        backend->close(db);
        free(st);
        return -1;
    }
    *ret = st;
    return 0;
}

static void store_drain(struct store *st)
{
    while (st->stats.waiting > 0) {
        store_start_batch(st);
        work_pool_drain(st->pool); /* runs all batches: the end of one starts the next */
    }
}

void store_finish(struct store *st)
{
    if (!st || st->is_finished)
        return;
    st->is_closing = true;
    store_drain(st);
    ev_defer_clear(st->ev, &st->start_defer);
    st->is_finished = true;
    st->on_event = NULL;
}

void store_close(struct store *st)
{
    if (!st)
        return;
    store_finish(st);
    store_drain(st);
    work_pool_free(st->pool);
    st->backend->close(st->db);
    free(st);
}

int store_restore(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err)
{
    const struct store_backend *backend = stores_backend(set->url.scheme);

    return backend->restore ? backend->restore(set, backup, ret_kept, err) : store_set_no_backup(backend, err);
}

int store_check_exists(const struct store_settings *set, struct err *err)
{
    return stores_backend(set->url.scheme)->check_exists(set, err);
}
