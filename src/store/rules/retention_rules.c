/* Retention: which rows are removed, and in which order.
 *
 * 1. Executions that are too old are removed first. While the totals exceed their limits, the
 *    oldest executions, events and sandboxes follow. Sandboxes, events, idempotency keys and
 *    usage that are too old are removed last.
 * 2. A sandbox is removed after the last of its executions.
 * 3. One call removes at most STORE_GC_BATCH rows, so other calls never wait long. When the disk
 *    is full it removes fewer, because removing needs space too.
 * 4. A call runs in one savepoint: if it failed halfway, executions would be removed without a
 *    report of their output files. A dry run reverts the same savepoint. */
#include "store/rules/rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <string.h>

#define SIZE_STEP 10u /* rows between two looks at the size of the database */

struct retention_run {
    struct store_db *db;
    const struct store_retention *keep;
    struct store_gc_report *report;
    char (*removed)[ID_SIZE]; /* the ids of report->nexecutions executions */
    uint32_t batch;
};

static uint32_t retention_rows_left(const struct retention_run *r)
{
    const struct store_gc_report *n = r->report;
    uint64_t gone = n->nexecutions + n->sandboxes + n->events + n->idem + n->usage + n->scripts;

    return gone >= r->batch ? 0 : (uint32_t)(r->batch - gone);
}

/* before_ms 0: no age limit, so nothing is removed. */
static int retention_remove(struct retention_run *r, enum store_old kind, uint64_t before_ms, uint32_t limit,
                            uint64_t *count, struct err *err)
{
    uint64_t n = 0;

    if (before_ms == 0 || limit == 0)
        return 0;
    if (r->db->ops->remove_oldest(r->db, kind, min_u64(before_ms, INT64_MAX), limit, NULL, &n, err) < 0)
        return -1;
    *count += n;
    return 0;
}

static int retention_remove_executions(struct retention_run *r, uint64_t before_ms, uint32_t limit, struct err *err)
{
    struct row_list found = { 0 };
    uint64_t n = 0;

    if (before_ms == 0 || limit == 0)
        return 0;
    int rc = r->db->ops->remove_oldest(r->db, STORE_OLD_EXECUTIONS, min_u64(before_ms, INT64_MAX), limit, &found, &n,
                                       err);
    for (size_t i = 0; rc == 0 && i < found.n; i++) {
        const struct store_removed *row = (const struct store_removed *)(const void *)found.rows + i;

        memcpy(r->removed[r->report->nexecutions++], row->id, ID_SIZE);
        r->report->output_bytes += row->output_bytes;
    }
    row_list_done(&row_removed, &found);
    return rc;
}

static int retention_bound_output(struct retention_run *r, struct err *err)
{
    uint64_t sum = 0;

    if (r->keep->output_bytes_max == 0)
        return 0;
    if (r->db->ops->output_bytes(r->db, STORE_ANY_OWNER, &sum, err) < 0)
        return -1;
    while (sum > r->keep->output_bytes_max && retention_rows_left(r) > 0) {
        uint64_t before = r->report->output_bytes;
        size_t n = r->report->nexecutions;

        if (retention_remove_executions(r, INT64_MAX, 1, err) < 0)
            return -1;
        if (r->report->nexecutions == n)
            return 0; /* the other executions are live */
        sum -= min_u64(sum, r->report->output_bytes - before);
    }
    return 0;
}

/* Executions first, then events, then sandboxes. */
static int retention_remove_any(struct retention_run *r, uint32_t limit, struct err *err)
{
    uint32_t left = retention_rows_left(r);

    if (retention_remove_executions(r, INT64_MAX, limit, err) < 0)
        return -1;
    if (retention_rows_left(r) == left &&
        retention_remove(r, STORE_OLD_FIRST_EVENTS, INT64_MAX, limit, &r->report->events, err) < 0)
        return -1;
    return retention_rows_left(r) < left
               ? 0
               : retention_remove(r, STORE_OLD_SANDBOXES, INT64_MAX, limit, &r->report->sandboxes, err);
}

static int retention_bound_size(struct retention_run *r, struct err *err)
{
    for (uint32_t left; r->keep->db_bytes_max && (left = retention_rows_left(r)) > 0;) {
        uint64_t used = 0;

        if (r->db->ops->used_bytes(r->db, &used, err) < 0)
            return -1;
        if (used <= r->keep->db_bytes_max)
            return 0;
        if (retention_remove_any(r, left < SIZE_STEP ? left : SIZE_STEP, err) < 0)
            return -1;
        if (retention_rows_left(r) == left)
            return 0; /* the other rows are live, or needed */
    }
    return 0;
}

static int retention_run_batch(struct retention_run *r, struct err *err)
{
    const struct store_retention *k = r->keep;
    struct store_gc_report *n = r->report;

    if (retention_remove_executions(r, k->executions_before_ms, retention_rows_left(r), err) < 0 ||
        retention_bound_output(r, err) < 0 || retention_bound_size(r, err) < 0 ||
        retention_remove(r, STORE_OLD_SANDBOXES, k->sandboxes_before_ms, retention_rows_left(r), &n->sandboxes, err) <
            0 ||
        retention_remove(r, STORE_OLD_EVENTS, k->events_before_ms, retention_rows_left(r), &n->events, err) < 0 ||
        retention_remove(r, STORE_OLD_IDEMPOTENCY, k->idem_before_ms, retention_rows_left(r), &n->idem, err) < 0 ||
        retention_remove(r, STORE_OLD_SCRIPTS, k->scripts_before_ms, retention_rows_left(r), &n->scripts, err) < 0 ||
        retention_remove(r, STORE_OLD_USAGE, k->usage_before_ms, retention_rows_left(r), &n->usage, err) < 0 ||
        usage_rules_merge_old(r->db, k->sandboxes_before_ms, retention_rows_left(r), &n->usage, err) < 0)
        return -1;
    n->more = retention_rows_left(r) == 0;
    return 0;
}

/* All batches one after the other, summed up. */
static int retention_run_dry(struct retention_run *r, struct err *err)
{
    struct store_gc_report sum = { 0 };
    int rc;

    do {
        *r->report = (struct store_gc_report){ 0 };
        rc = retention_run_batch(r, err);
        sum.nexecutions += r->report->nexecutions;
        sum.output_bytes += r->report->output_bytes;
        sum.sandboxes += r->report->sandboxes;
        sum.events += r->report->events;
        sum.idem += r->report->idem;
        sum.usage += r->report->usage;
        sum.scripts += r->report->scripts;
    } while (rc == 0 && r->report->more);
    *r->report = sum;
    return rc;
}

static int retention_run_and_reclaim(struct retention_run *r, struct err *err)
{
    bool more = false;

    if (retention_run_batch(r, err) < 0 || r->db->ops->reclaim(r->db, &more, err) < 0)
        return -1;
    r->report->more = r->report->more || more;
    return 0;
}

int retention_rules_collect(struct store_db *db, struct store_request *c, struct err *err)
{
    struct retention_run r = { .db = db,
                               .keep = &c->retention,
                               .report = &c->gc,
                               .batch = db->ops->has_space(db) ? STORE_GC_BATCH : STORE_GC_BATCH / 10 };

    r.removed = c->removed = mem_alloc((size_t)STORE_GC_BATCH * ID_SIZE);
    if (db->ops->savepoint(db, err) < 0)
        return -1;
    int rc = c->retention.dry_run ? retention_run_dry(&r, err) : retention_run_and_reclaim(&r, err);
    if (rc < 0 || c->retention.dry_run) {
        db->ops->undo(db);
        return rc;
    }
    return db->ops->release(db, err);
}
