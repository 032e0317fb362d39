/* Usage: what is counted, when, and in which hour. The rules are at the top of usage.h; this is
 * how they are kept.
 *
 * 1. An end is counted in the savepoint of the statement that makes it: the update must find the
 *    row live, or the insert must be of a row that has already ended.
 * 2. `cpu_us` of a sandbox is the part of its counter that is contained in usage. It only grows,
 *    and each increase is added to usage.
 * 3. The hours of a sandbox come from one function, usage_span_next(), both at its end and in a
 *    report on a live sandbox; so the final usage of a sandbox agrees with the reports made while
 *    it lived. */
#include "store/rules/rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_SPAN_MAX_MS (366 * 24 * STORE_HOUR_MS)
#define USAGE_FIGURE_MAX (INT64_MAX / 2) /* leaves room for a sum */
#define REPORT_UNSORTED_MAX (2 * STORE_USAGE_MAX)

/* --- spans --- */

static uint64_t hour_of(uint64_t ms)
{
    return ms / STORE_HOUR_MS * STORE_HOUR_MS;
}

struct usage_span usage_span_between(uint64_t from_ms, uint64_t to_ms)
{
    return (struct usage_span){ from_ms, min_u64(to_ms, from_ms + USAGE_SPAN_MAX_MS) };
}

bool usage_span_next(struct usage_span *s, uint64_t *ret_hour_ms, uint64_t *ret_ms)
{
    if (s->from_ms >= s->to_ms)
        return false;
    uint64_t hour = hour_of(s->from_ms), end = min_u64(hour + STORE_HOUR_MS, s->to_ms);
    *ret_hour_ms = hour;
    *ret_ms = end - s->from_ms;
    s->from_ms = end;
    return true;
}

static uint64_t figure_add(uint64_t a, uint64_t b)
{
    return min_u64(min_u64(a, INT64_MAX) + min_u64(b, INT64_MAX), INT64_MAX);
}

/* Milliseconds multiplied by whole MiB. */
static uint64_t figure_mib_ms(uint64_t bytes, uint64_t ms)
{
    uint64_t product;

    return __builtin_mul_overflow(bytes / MIB, ms, &product) ? INT64_MAX : min_u64(product, INT64_MAX);
}

static void usage_set_time(struct store_usage *u, uint64_t hour_ms, uint64_t ms, uint64_t memory, uint64_t storage)
{
    u->hour_ms = hour_ms;
    u->sandbox_ms = ms;
    u->memory_mib_ms = figure_mib_ms(memory, ms);
    u->storage_mib_ms = figure_mib_ms(storage, ms);
}

static void usage_set_created_by(struct store_usage *u, const char *created_by)
{
    snprintf(u->created_by, sizeof(u->created_by), "%.64s", created_by ? created_by : "");
}

/* --- adding --- */

static int usage_rules_add_row(struct store_db *db, const struct store_usage *u, struct err *err)
{
    struct store_usage row = *u;
    uint64_t *const figures[] = { &row.executions,    &row.failed,         &row.cpu_us,
                                  &row.execution_ms,  &row.output_bytes,   &row.sandbox_ms,
                                  &row.memory_mib_ms, &row.storage_mib_ms, &row.memory_peak };

    row.hour_ms = hour_of(u->hour_ms);
    for (size_t i = 0; i < ARRAY_LEN(figures); i++)
        *figures[i] = min_u64(*figures[i], USAGE_FIGURE_MAX);
    return db->ops->add_usage(db, &row, err);
}

/* Raises the counter of a sandbox. *ret: the part that is above the highest value so far. */
static int usage_rules_raise_cpu(struct store_db *db, const char *sandbox, uint64_t before, uint64_t cpu_us,
                                 uint64_t *ret, struct err *err)
{
    const struct row_query q = { .table = &row_charge, .where = { { "id", ROW_IS, sandbox, 0 } } };
    const struct store_charge row = { .cpu_us = min_u64(cpu_us, USAGE_FIGURE_MAX) };
    uint64_t n = 0;

    *ret = row.cpu_us > before ? row.cpu_us - before : 0;
    return *ret ? db->ops->update(db, &q, &row, STORE_CHARGE_SET_CPU, NULL, &n, err) : 0;
}

/* Sets u->cpu_us to the growth of the counter; 0 if the sandbox does not exist, or has ended and
 * `ended` is false. Sets u->owner, and u->created_by unless it is set. */
static int usage_rules_advance_cpu(struct store_db *db, const char *sandbox, uint64_t cpu_us, bool ended,
                                   struct store_usage *u, struct err *err)
{
    const struct row_query q = { .table = &row_charge, .where = { { "id", ROW_IS, sandbox, 0 } } };
    struct row_list found = { 0 };
    int rc = 0;

    if (cpu_us == 0)
        return 0;
    if (db->ops->select(db, &q, &found, err) < 0)
        return -1;
    if (found.n) {
        const struct store_charge *charge = (const void *)found.rows;

        memcpy(u->owner, charge->owner, sizeof(u->owner));
        if (!u->created_by[0])
            usage_set_created_by(u, charge->created_by);
        if (ended || charge->state != STORE_SANDBOX_ENDED)
            rc = usage_rules_raise_cpu(db, sandbox, charge->cpu_us, cpu_us, &u->cpu_us, err);
    }
    row_list_done(&row_charge, &found);
    return rc;
}

static int usage_rules_count_execution(struct store_db *db, const struct store_execution *row,
                                       const struct store_execution *said, struct err *err)
{
    struct store_usage u = { .hour_ms = row->ended_ms,
                             .executions = 1,
                             .failed = row->state == STORE_EXECUTION_FAILED };

    memcpy(u.sandbox, row->sandbox, sizeof(u.sandbox));
    usage_set_created_by(&u, row->created_by);
    for (int i = 0; i < 3; i++)
        u.output_bytes += row->out_bytes[i] - min_u64(row->dropped[i], row->out_bytes[i]);
    if (row->started_ms && row->ended_ms > row->started_ms)
        u.execution_ms = row->ended_ms - row->started_ms;
    if (usage_rules_advance_cpu(db, row->sandbox, said->usage_cpu_us, true, &u, err) < 0)
        return -1;
    memcpy(u.owner, row->owner, sizeof(u.owner));
    return usage_rules_add_row(db, &u, err);
}

/* A sandbox whose creation failed has no lifetime and no endedBy. CPU time and peak memory belong
 * to the hour of the end; they are added with its time if it has time in that hour. */
static int usage_rules_count_sandbox(struct store_db *db, const struct store_sandbox *row, bool inserted,
                                     const struct store_sandbox *said, struct err *err)
{
    struct usage_span span = row->ended_by ? usage_span_between(row->created_ms, row->ended_ms)
                                           : (struct usage_span){ 0 };
    struct store_usage u = { .hour_ms = hour_of(row->ended_ms), .memory_peak = said->usage_memory_peak };
    uint64_t hour, ms;

    memcpy(u.owner, row->owner, sizeof(u.owner));
    memcpy(u.sandbox, row->id, sizeof(u.sandbox));
    usage_set_created_by(&u, row->created_by);
    if (usage_rules_raise_cpu(db, row->id, inserted ? 0 : row->cpu_us, said->cpu_us, &u.cpu_us, err) < 0)
        return -1;
    while (usage_span_next(&span, &hour, &ms)) {
        struct store_usage part = { 0 };

        if (hour == u.hour_ms) {
            usage_set_time(&u, hour, ms, row->memory_bytes, row->storage_bytes);
            continue;
        }
        memcpy(part.owner, u.owner, sizeof(part.owner));
        memcpy(part.sandbox, u.sandbox, sizeof(part.sandbox));
        memcpy(part.created_by, u.created_by, sizeof(part.created_by));
        usage_set_time(&part, hour, ms, row->memory_bytes, row->storage_bytes);
        if (usage_rules_add_row(db, &part, err) < 0)
            return -1;
    }
    return u.cpu_us || u.memory_peak || u.sandbox_ms ? usage_rules_add_row(db, &u, err) : 0;
}

/* --- ends --- */

bool usage_rules_is_end(const struct store_request *c)
{
    bool insert = c->op == STORE_OP_INSERT;

    if (c->table == &row_sandbox)
        return (insert || c->set & STORE_SANDBOX_SET_STATE) &&
               ((const struct store_sandbox *)c->row)->state == STORE_SANDBOX_ENDED;
    return c->table == &row_execution && (insert || c->set & STORE_EXECUTION_SET_STATE) &&
           !(STORE_BIT(((const struct store_execution *)c->row)->state) & STORE_EXECUTION_LIVE);
}

int usage_rules_was_alive(struct store_db *db, const struct store_request *c, bool *ret, struct err *err)
{
    uint32_t live = c->table == &row_sandbox ? STORE_SANDBOX_LIVE : STORE_EXECUTION_LIVE;
    const struct row_query q = { .table = c->table,
                                 .where = { { "id", ROW_IS, c->id, 0 }, { "state", ROW_STATE_IN, NULL, live } } };
    uint64_t n = 0;

    if (c->condition.states && !(c->condition.states & ~live)) {
        *ret = true; /* the update itself ensures it */
        return 0;
    }
    if (db->ops->count(db, &q, &n, err) < 0)
        return -1;
    *ret = n > 0;
    return 0;
}

int usage_rules_count_end(struct store_db *db, const struct store_request *c, const void *row, struct err *err)
{
    if (c->table == &row_sandbox)
        return usage_rules_count_sandbox(db, row, c->op == STORE_OP_INSERT, c->row, err);
    return usage_rules_count_execution(db, row, c->row, err);
}

/* --- between ends --- */

int usage_rules_record_cpu(struct store_db *db, struct store_request *c, struct err *err)
{
    for (size_t i = 0; i < c->nusage; i++) {
        const struct store_cpu_reading *n = &c->cpu_readings[i];
        struct store_usage u = { .hour_ms = min_u64(n->at_ms, USAGE_FIGURE_MAX) };

        memcpy(u.sandbox, n->sandbox, sizeof(u.sandbox));
        memcpy(u.created_by, n->created_by, sizeof(u.created_by));
        if (usage_rules_advance_cpu(db, n->sandbox, n->cpu_us, false, &u, err) < 0 ||
            (u.cpu_us && usage_rules_add_row(db, &u, err) < 0))
            return -1;
    }
    return 0;
}

int usage_rules_add(struct store_db *db, struct store_request *c, struct err *err)
{
    for (size_t i = 0; i < c->nusage; i++)
        if (usage_rules_add_row(db, &c->usage_sums[i], err) < 0)
            return -1;
    return 0;
}

/* A server creates many sandboxes, and queries never name one that retention has removed: its hours
 * are added to those of its user. */
int usage_rules_merge_old(struct store_db *db, uint64_t before_ms, uint32_t limit, uint64_t *count, struct err *err)
{
    struct row_list old = { 0 };
    uint64_t n = 0;
    int rc = 0;

    if (before_ms == 0 || limit == 0)
        return 0;
    if (db->ops->remove_oldest(db, STORE_OLD_SANDBOX_USAGE, min_u64(before_ms, INT64_MAX), limit, &old, &n, err) < 0)
        rc = -1;
    struct store_usage *rows = (void *)old.rows;
    for (size_t i = 0; rc == 0 && i < old.n; i++)
        memset(rows[i].sandbox, 0, sizeof(rows[i].sandbox));
    usage_report_finish(&old, old.n);
    rows = (void *)old.rows;
    for (size_t i = 0; rc == 0 && i < old.n; i++)
        rc = usage_rules_add_row(db, &rows[i], err);
    row_list_done(&row_usage, &old);
    *count += n;
    return rc;
}

/* --- reports --- */

static int usage_compare(const void *a, const void *b)
{
    const struct store_usage *x = a, *y = b;
    int c = (x->hour_ms > y->hour_ms) - (x->hour_ms < y->hour_ms);

    if (c == 0)
        c = strcmp(x->owner, y->owner);
    if (c == 0)
        c = strcmp(x->created_by, y->created_by);
    return c ? c : strcmp(x->sandbox, y->sandbox);
}

static void usage_merge(struct store_usage *to, const struct store_usage *u)
{
    to->executions = figure_add(to->executions, u->executions);
    to->failed = figure_add(to->failed, u->failed);
    to->cpu_us = figure_add(to->cpu_us, u->cpu_us);
    to->execution_ms = figure_add(to->execution_ms, u->execution_ms);
    to->output_bytes = figure_add(to->output_bytes, u->output_bytes);
    to->sandbox_ms = figure_add(to->sandbox_ms, u->sandbox_ms);
    to->memory_mib_ms = figure_add(to->memory_mib_ms, u->memory_mib_ms);
    to->storage_mib_ms = figure_add(to->storage_mib_ms, u->storage_mib_ms);
    to->memory_peak = max_u64(to->memory_peak, u->memory_peak);
}

void usage_report_finish(struct row_list *report, size_t limit)
{
    struct store_usage *rows = (void *)report->rows;
    size_t n = 0;

    if (report->n == 0)
        return;
    qsort(rows, report->n, sizeof(*rows), usage_compare);
    for (size_t i = 1; i < report->n; i++)
        if (usage_compare(&rows[n], &rows[i]) == 0)
            usage_merge(&rows[n], &rows[i]);
        else
            rows[++n] = rows[i];
    report->n = n + 1 < limit ? n + 1 : limit;
}

/* Rows past the maximum are dropped early: a later one of the same key would be past it too. */
void usage_report_add(struct row_list *report, const struct store_usage *u)
{
    struct store_usage *rows = (void *)report->rows;

    if (report->n && usage_compare(&rows[report->n - 1], u) == 0) {
        usage_merge(&rows[report->n - 1], u);
        return;
    }
    if (report->n >= REPORT_UNSORTED_MAX)
        usage_report_finish(report, STORE_USAGE_MAX + 1);
    *(struct store_usage *)row_list_add(&row_usage, report) = *u;
}

/* The part of a live sandbox in the hours of a report. */
static void usage_report_add_live(struct row_list *report, const struct usage_filter *f, uint64_t now_ms,
                                  const struct store_charge *charge)
{
    struct usage_span span = usage_span_between(max_u64(charge->created_ms, f->from_ms), min_u64(now_ms, f->to_ms));
    struct store_usage u = { 0 };
    uint64_t hour = 0, ms = 0;

    usage_set_created_by(&u, charge->created_by);
    if (f->created_by[0] && !str_eq(u.created_by, f->created_by))
        return;
    if (f->by & STORE_USAGE_BY_TENANT)
        memcpy(u.owner, charge->owner, sizeof(u.owner));
    if (!(f->by & STORE_USAGE_BY_USER))
        memset(u.created_by, 0, sizeof(u.created_by));
    if (f->by & STORE_USAGE_BY_SANDBOX)
        memcpy(u.sandbox, charge->id, sizeof(u.sandbox));
    if (f->by & STORE_USAGE_BY_HOUR) {
        while (usage_span_next(&span, &hour, &ms)) {
            usage_set_time(&u, hour, ms, charge->memory_bytes, charge->storage_bytes);
            usage_report_add(report, &u);
        }
    } else if (span.from_ms < span.to_ms) {
        usage_set_time(&u, 0, span.to_ms - span.from_ms, charge->memory_bytes, charge->storage_bytes);
        usage_report_add(report, &u);
    }
}

static int usage_rules_list_live(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct usage_filter *f = &c->usage;
    const struct row_condition created = { "created_ms", ROW_BELOW, NULL, min_u64(c->now_ms, f->to_ms) };
    const struct row_query q = { .table = &row_charge,
                                 .where = { { "state", ROW_IS_NOT, NULL, STORE_SANDBOX_ENDED },
                                            created,
                                            { "owner", ROW_OWNED_BY, f->owner, 0 },
                                            { f->sandbox[0] ? "id" : NULL, ROW_IS, f->sandbox, 0 } } };
    struct row_list live = { 0 };
    int rc = db->ops->select(db, &q, &live, err);

    for (size_t i = 0; rc == 0 && i < live.n; i++)
        usage_report_add_live(&c->rows, f, c->now_ms, (const struct store_charge *)(const void *)live.rows + i);
    row_list_done(&row_charge, &live);
    return rc;
}

int usage_rules_list(struct store_db *db, struct store_request *c, struct err *err)
{
    if (db->ops->sum_usage(db, &c->usage, STORE_USAGE_MAX + 1, &c->rows, err) < 0 ||
        (c->now_ms && usage_rules_list_live(db, c, err) < 0))
        return -1;
    usage_report_finish(&c->rows, STORE_USAGE_MAX + 1);
    c->more = c->rows.n > STORE_USAGE_MAX;
    if (c->more)
        row_list_drop(c->table, &c->rows);
    return 0;
}

/* --- budgets --- */

/* A budget without a limit has no row. */
int usage_rules_budget_put(struct store_db *db, struct store_request *c, struct err *err)
{
    struct store_budget *row = c->row;
    const struct row_query q = { .table = &row_budget, .where = { { "owner", ROW_IS, row->owner, 0 } } };
    uint64_t n = 0;
    bool any = false;

    for (size_t i = 0; i < STORE_PERIOD_COUNT; i++)
        for (size_t k = 0; k < STORE_BUDGET_RESOURCES; k++)
            any = any || row->max[i][k];
    row->updated_ms = min_u64(row->updated_ms, INT64_MAX);
    return any ? db->ops->replace(db, &row_budget, row, NULL, err) : db->ops->remove(db, &q, &n, err);
}

int usage_rules_budget_list(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = { .table = &row_budget,
                                 .where = { { "owner", ROW_OWNED_BY, c->owner, 0 } },
                                 .ordered = true };

    return db->ops->select(db, &q, &c->rows, err);
}
