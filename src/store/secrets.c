/* Secrets as calls, and the layout of their rows. */
#include "store/secrets.h"

#include "store/requests.h"

#define COLUMN(member, kind, ...)                                                               \
    {                                                                                           \
        .name = #member, .type = kind, .at = offsetof(struct store_secret, member), __VA_ARGS__ \
    }
#define FIXED(member) COLUMN(member, ROW_FIXED, .cap = sizeof(((struct store_secret *)0)->member))

static const struct row_column secret_columns[] = {
    FIXED(id),
    FIXED(owner),
    FIXED(name),
    COLUMN(sealed, ROW_TEXT, .set = STORE_SECRET_SET_VALUE),
    COLUMN(hosts, ROW_TEXT, .set = STORE_SECRET_SET_HOSTS),
    COLUMN(generation, ROW_U64, .is_generated = true),
    COLUMN(created_ms, ROW_U64),
    COLUMN(updated_ms, ROW_U64, .set = STORE_SECRET_SET_VALUE),
    COLUMN(last_used_ms, ROW_U64, .set = STORE_SECRET_SET_USE),
    COLUMN(uses, ROW_U64, .set = STORE_SECRET_SET_USE),
    COLUMN(created_by, ROW_TEXT, .set = STORE_SECRET_SET_VALUE),
};

const struct row_table row_secret = { .name = "secrets",
                                      .display_name = "secret",
                                      .size = sizeof(struct store_secret),
                                      .key = "id",
                                      .owned = true,
                                      .has_generation = true,
                                      .columns = secret_columns,
                                      .n = ARRAY_LEN(secret_columns) };

static struct store_request *store_secret_request(enum store_op op, const struct store_secret *row,
                                                  store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_row_request(op, &row_secret, row, done, arg);
    struct err err = { 0 };

    if (!c->rejected && !store_owner_valid(row->name)) {
        err_set(&err, ERR_INVALID, "name: only letters, digits, '-', '_' and '.' are allowed");
        store_request_reject(c, &err);
    }
    if (!c->rejected && (row_check_text("sealed", row->sealed, STORE_SECRET_SEALED_MAX, &err) < 0 ||
                         row_check_text("hosts", row->hosts, STORE_SECRET_HOSTS_MAX, &err) < 0))
        store_request_reject(c, &err);
    return c;
}

struct store_request *store_secret_put(struct store *st, const struct store_secret *row, uint64_t max,
                                       store_secret_put_fn *done, void *arg)
{
    struct store_request *c = store_secret_request(STORE_OP_SECRET_PUT, row, ANY(done), arg);

    c->secret_max = max;
    return store_request_submit(st, c);
}

struct store_request *store_secret_add_use(struct store *st, const char *owner, const char *name, uint64_t uses,
                                           uint64_t last_used_ms, store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_SECRET_ADD_USE, &row_secret, owner, name, ANY(done), arg);

    c->secret_uses = uses;
    c->secret_used_ms = last_used_ms;
    return store_request_submit(st, c);
}

struct store_request *store_secret_delete(struct store *st, const char *owner, const char *name, store_done_fn *done,
                                          void *arg)
{
    return store_request_submit(st,
                                store_get_request(STORE_OP_SECRET_DELETE, &row_secret, owner, name, ANY(done), arg));
}

struct store_request *store_secret_list(struct store *st, const struct store_list *q, store_secrets_fn *done, void *arg)
{
    return store_list_request(st, &row_secret, q, NULL, ANY(done), arg);
}
