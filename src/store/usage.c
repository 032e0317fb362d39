/* The calls of usage.h, like those of store.h in requests.c: arguments copied and checked,
 * answers typed. */
#include "store/usage.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/requests.h"

#define ANY(fn) ((store_untyped_fn *)(fn))
#define AT_MAX (INT64_MAX / 2)

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
    store_usage_set_filter(c, c->usage_sandbox, sizeof(c->usage_sandbox), q->sandbox, "sandbox");
    store_usage_set_filter(c, c->usage_user, sizeof(c->usage_user), q->created_by, "user");
    c->from = min_u64(q->from_ms, AT_MAX) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->to = (min_u64(q->to_ms, AT_MAX) + STORE_HOUR_MS - 1) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->now = min_u64(q->now_ms, AT_MAX);
    c->set = q->by;
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
