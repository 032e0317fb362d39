/* Pools as calls, and the layout of their rows. */
#include "store/pools.h"

#include "store/requests.h"

#define COLUMN(member, kind, ...)                                                             \
    {                                                                                         \
        .name = #member, .type = kind, .at = offsetof(struct store_pool, member), __VA_ARGS__ \
    }
#define FIXED(member) COLUMN(member, ROW_FIXED, .cap = sizeof(((struct store_pool *)0)->member))

static const struct row_column pool_columns[] = {
    FIXED(name),
    FIXED(template),
    COLUMN(min, ROW_U64),
    COLUMN(max, ROW_U64),
    COLUMN(ttl_ms, ROW_U64),
    COLUMN(max_age_ms, ROW_U64),
    COLUMN(autoscale, ROW_BOOL),
    COLUMN(hit_permille, ROW_U64),
    COLUMN(scale_down_ms, ROW_U64),
    COLUMN(zygote_max_age_ms, ROW_U64),
    COLUMN(zygote_max_members, ROW_U64),
    COLUMN(recycle, ROW_BOOL),
    COLUMN(generation, ROW_U64, .is_generated = true),
    COLUMN(created_ms, ROW_U64),
    COLUMN(updated_ms, ROW_U64),
};

const struct row_table row_pool = { .name = "pools",
                                    .display_name = "pool",
                                    .size = sizeof(struct store_pool),
                                    .key = "name",
                                    .by_name = true,
                                    .has_generation = true,
                                    .columns = pool_columns,
                                    .n = ARRAY_LEN(pool_columns) };

static int store_pool_check(const struct store_pool *row, struct err *err)
{
    if (!store_owner_valid(row->name) || !store_owner_valid(row->template))
        return err_set(err, ERR_INVALID, "name, template: only letters, digits, '-', '_' and '.' are allowed");
    if (row->min > row->max)
        return err_set(err, ERR_INVALID, "min: must not be larger than max");
    return 0;
}

static struct store_request *store_pool_row_request(enum store_op op, const struct store_pool *row,
                                                    store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_row_request(op, &row_pool, row, done, arg);
    struct err err = { 0 };

    if (!c->rejected && store_pool_check(row, &err) < 0)
        store_request_reject(c, &err);
    return c;
}

struct store_request *store_pool_insert(struct store *st, const struct store_pool *row, store_done_fn *done, void *arg)
{
    return store_request_submit(st, store_pool_row_request(STORE_OP_INSERT, row, ANY(done), arg));
}

struct store_request *store_pool_put(struct store *st, const struct store_pool *row, const struct store_condition *when,
                                     store_pool_fn *done, void *arg)
{
    struct store_request *c = store_pool_row_request(STORE_OP_PUT, row, ANY(done), arg);

    if (when)
        c->condition = *when;
    return store_request_submit(st, c);
}

struct store_request *store_pool_get(struct store *st, const char *name, store_pool_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_pool, NULL, name, ANY(done), arg));
}

struct store_request *store_pool_delete(struct store *st, const char *name, store_done_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_DELETE, &row_pool, NULL, name, ANY(done), arg));
}

struct store_request *store_pool_list(struct store *st, const struct store_list *q, store_pools_fn *done, void *arg)
{
    const struct store_list by_name = { .cursor = q->cursor, .limit = q->limit, .oldest_first = true };

    return store_list_request(st, &row_pool, &by_name, NULL, ANY(done), arg);
}
