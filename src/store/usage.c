/* The calls of usage.h, like those of store.h in requests.c: arguments copied and checked,
 * answers typed. */
#include "store/usage.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/requests.h"

#define AT_MAX (INT64_MAX / 2)

#define COLUMN(s, member, kind, ...)                                                 \
    {                                                                                \
        .name = #member, .type = kind, .at = offsetof(struct s, member), __VA_ARGS__ \
    }
#define FIXED(s, member) COLUMN(s, member, ROW_FIXED, .cap = sizeof(((struct s *)0)->member))
#define MAXIMUM(period, resource, column)                                                                            \
    {                                                                                                                \
        .name = column, .type = ROW_U64,                                                                             \
        .at = offsetof(struct store_budget, max) + ((period)*STORE_BUDGET_RESOURCES + (resource)) * sizeof(uint64_t) \
    }

static const struct row_column usage_columns[] = {
    COLUMN(store_usage, hour_ms, ROW_U64),
    FIXED(store_usage, owner),
    FIXED(store_usage, created_by),
    FIXED(store_usage, sandbox),
    COLUMN(store_usage, executions, ROW_U64),
    COLUMN(store_usage, failed, ROW_U64),
    COLUMN(store_usage, cpu_us, ROW_U64),
    COLUMN(store_usage, execution_ms, ROW_U64),
    COLUMN(store_usage, output_bytes, ROW_U64),
    COLUMN(store_usage, sandbox_ms, ROW_U64),
    COLUMN(store_usage, memory_mib_ms, ROW_U64),
    COLUMN(store_usage, storage_mib_ms, ROW_U64),
    COLUMN(store_usage, memory_peak, ROW_U64),
};

static const struct row_column budget_columns[] = {
    FIXED(store_budget, owner),
    MAXIMUM(STORE_PERIOD_DAY, STORE_BUDGET_CPU_TIME, "day_cpu_ms"),
    MAXIMUM(STORE_PERIOD_DAY, STORE_BUDGET_SANDBOX_TIME, "day_sandbox_ms"),
    MAXIMUM(STORE_PERIOD_DAY, STORE_BUDGET_EXECUTIONS, "day_executions"),
    MAXIMUM(STORE_PERIOD_MONTH, STORE_BUDGET_CPU_TIME, "month_cpu_ms"),
    MAXIMUM(STORE_PERIOD_MONTH, STORE_BUDGET_SANDBOX_TIME, "month_sandbox_ms"),
    MAXIMUM(STORE_PERIOD_MONTH, STORE_BUDGET_EXECUTIONS, "month_executions"),
    COLUMN(store_budget, updated_ms, ROW_U64),
};

const struct row_table row_usage = { .name = "usage",
                                     .display_name = "usage",
                                     .size = sizeof(struct store_usage),
                                     .key = "sandbox",
                                     .primary_key = "owner, hour_ms, created_by, sandbox",
                                     .owned = true,
                                     .columns = usage_columns,
                                     .n = ARRAY_LEN(usage_columns) };
const struct row_table row_budget = { .name = "budgets",
                                      .display_name = "budget",
                                      .size = sizeof(struct store_budget),
                                      .key = "owner",
                                      .owned = true,
                                      .columns = budget_columns,
                                      .n = ARRAY_LEN(budget_columns) };

static void store_usage_set_owner(struct store_request *c, const char *owner, bool any)
{
    struct err err = { 0 };

    if ((any && str_eq(owner, STORE_ANY_OWNER)) || store_owner_valid(owner)) {
        (void)str_copy(c->owner, sizeof(c->owner), owner);
        return;
    }
    err_set(&err, ERR_INVALID, "not a valid tenant name");
    store_request_reject(c, &err);
}

static void store_usage_set_filter(struct store_request *c, char *to, size_t cap, const char *word, const char *what)
{
    struct err err = { 0 };

    if (!word || (row_check_text(what, word, cap - 1, &err) == 0 && str_copy(to, cap, word)))
        return;
    err_set(&err, ERR_MISSING, "there is no such %s", what);
    store_request_reject(c, &err);
}

struct store_request *store_usage_list(struct store *st, const struct store_usage_query *q, store_usage_fn *done,
                                       void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_USAGE_LIST, &row_usage, ANY(done), arg);

    store_usage_set_owner(c, q->owner, true);
    store_usage_set_filter(c, c->usage.sandbox, sizeof(c->usage.sandbox), q->sandbox, "sandbox");
    store_usage_set_filter(c, c->usage.created_by, sizeof(c->usage.created_by), q->created_by, "user");
    memcpy(c->usage.owner, c->owner, sizeof(c->owner));
    c->usage.from_ms = min_u64(q->from_ms, AT_MAX) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->usage.to_ms = (min_u64(q->to_ms, AT_MAX) + STORE_HOUR_MS - 1) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->now_ms = min_u64(q->now_ms, AT_MAX);
    c->usage.by = q->by;
    return store_request_submit(st, c);
}

struct store_request *store_usage_record_cpu(struct store *st, const struct store_cpu_reading *notes, size_t n,
                                             store_done_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_USAGE_RECORD_CPU, NULL, ANY(done), arg);

    c->cpu_readings = n ? mem_copy(notes, n * sizeof(*notes)) : NULL;
    c->nusage = n;
    c->bytes = n * sizeof(*notes);
    return store_request_submit(st, c);
}

struct store_request *store_usage_add(struct store *st, const struct store_usage *sums, size_t n, store_done_fn *done,
                                      void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_USAGE_ADD, NULL, ANY(done), arg);
    struct err err = { 0 };

    for (size_t i = 0; i < n && !c->rejected; i++)
        if (!store_owner_valid(sums[i].owner) || sums[i].hour_ms > AT_MAX) {
            err_set(&err, ERR_INVALID, "usage: invalid owner or hour");
            store_request_reject(c, &err);
        }
    c->usage_sums = n ? mem_copy(sums, n * sizeof(*sums)) : NULL;
    c->nusage = n;
    c->bytes = n * sizeof(*sums);
    return store_request_submit(st, c);
}

struct store_request *store_budget_put(struct store *st, const struct store_budget *row, store_done_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_BUDGET_PUT, &row_budget, ANY(done), arg);
    struct err err = { 0 };

    store_usage_set_owner(c, row->owner, false);
    for (size_t i = 0; !c->rejected && i < STORE_PERIOD_COUNT; i++)
        for (size_t k = 0; k < STORE_BUDGET_RESOURCES; k++)
            if (row->max[i][k] > INT64_MAX) {
                err_set(&err, ERR_INVALID, "budget: out of range");
                store_request_reject(c, &err);
            }
    c->row = mem_copy(row, sizeof(*row));
    return store_request_submit(st, c);
}

struct store_request *store_budget_list(struct store *st, const char *owner, store_budgets_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_BUDGET_LIST, &row_budget, ANY(done), arg);

    store_usage_set_owner(c, owner, true);
    return store_request_submit(st, c);
}

void store_usage_request_answer(struct store_request *c, const struct err *err)
{
    const void *rows = err ? NULL : c->rows.rows;
    size_t n = err ? 0 : c->rows.n;

    if (c->op == STORE_OP_USAGE_LIST)
        ((store_usage_fn *)c->done)(c->arg, err, rows, n, !err && c->more);
    else
        ((store_budgets_fn *)c->done)(c->arg, err, rows, n);
}
