/* The calls of usage.h, as calls.c makes those of store.h: copied, checked, and answered by their type. */
#include "store/usage.h"

#include "base/mem.h"
#include "base/str.h"
#include "store/queue.h"

#define ANY(fn) ((store_any_fn *)(fn))
#define AT_MAX (INT64_MAX / 2)

static void give_owner(struct store_call *c, const char *owner, bool any)
{
    struct err err = { 0 };

    if ((any && str_eq(owner, STORE_ANY_OWNER)) || store_owner_valid(owner)) {
        (void)str_copy(c->owner, sizeof(c->owner), owner);
        return;
    }
    err_set(&err, ERR_INVALID, "that cannot be a tenant");
    store_refuse(c, &err);
}

static void give_word(struct store_call *c, char *to, size_t cap, const char *word, const char *what)
{
    struct err err = { 0 };

    if (!word || (row_check_text(what, word, cap - 1, &err) == 0 && str_copy(to, cap, word)))
        return;
    err_set(&err, ERR_MISSING, "there is no such %s", what);
    store_refuse(c, &err);
}

struct store_call *store_usage_list(struct store *st, const struct store_usage_query *q, store_usage_fn *done,
                                    void *arg)
{
    struct store_call *c = store_call_new(STORE_OP_USAGE_LIST, &row_usage, ANY(done), arg);

    give_owner(c, q->owner, true);
    give_word(c, c->about, sizeof(c->about), q->sandbox, "sandbox");
    give_word(c, c->by_whom, sizeof(c->by_whom), q->created_by, "user");
    c->from = min_u64(q->from_ms, AT_MAX) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->to = (min_u64(q->to_ms, AT_MAX) + STORE_HOUR_MS - 1) / STORE_HOUR_MS * STORE_HOUR_MS;
    c->now = min_u64(q->now_ms, AT_MAX);
    c->set = q->by;
    return store_submit(st, c);
}

struct store_call *store_usage_note(struct store *st, const struct store_usage_note *notes, size_t n,
                                    store_done_fn *done, void *arg)
{
    struct store_call *c = store_call_new(STORE_OP_USAGE_NOTE, NULL, ANY(done), arg);

    c->notes = n ? mem_copy(notes, n * sizeof(*notes)) : NULL;
    c->nnotes = n;
    c->bytes = n * sizeof(*notes);
    return store_submit(st, c);
}

struct store_call *store_usage_add(struct store *st, const struct store_usage *sums, size_t n, store_done_fn *done,
                                   void *arg)
{
    struct store_call *c = store_call_new(STORE_OP_USAGE_ADD, NULL, ANY(done), arg);
    struct err err = { 0 };

    for (size_t i = 0; i < n && !c->refused; i++)
        if (!store_owner_valid(sums[i].owner) || sums[i].hour_ms > AT_MAX) {
            err_set(&err, ERR_INVALID, "usage of nobody, or of no time");
            store_refuse(c, &err);
        }
    c->sums = n ? mem_copy(sums, n * sizeof(*sums)) : NULL;
    c->nnotes = n;
    c->bytes = n * sizeof(*sums);
    return store_submit(st, c);
}

struct store_call *store_budget_put(struct store *st, const struct store_budget *row, store_done_fn *done, void *arg)
{
    struct store_call *c = store_call_new(STORE_OP_BUDGET_PUT, &row_budget, ANY(done), arg);
    struct err err = { 0 };

    give_owner(c, row->owner, false);
    for (size_t i = 0; !c->refused && i < STORE_PERIODS; i++)
        for (size_t k = 0; k < STORE_BUDGETED; k++)
            if (row->max[i][k] > INT64_MAX) {
                err_set(&err, ERR_INVALID, "a budget is out of range");
                store_refuse(c, &err);
            }
    c->row = mem_copy(row, sizeof(*row));
    return store_submit(st, c);
}

struct store_call *store_budget_list(struct store *st, const char *owner, store_budgets_fn *done, void *arg)
{
    struct store_call *c = store_call_new(STORE_OP_BUDGET_LIST, &row_budget, ANY(done), arg);

    give_owner(c, owner, true);
    return store_submit(st, c);
}

void store_usage_answer(struct store_call *c, const struct err *err)
{
    const void *rows = err ? NULL : c->rows.rows;
    size_t n = err ? 0 : c->rows.n;

    if (c->op == STORE_OP_USAGE_LIST)
        ((store_usage_fn *)c->done)(c->arg, err, rows, n, !err && c->more);
    else
        ((store_budgets_fn *)c->done)(c->arg, err, rows, n);
}
