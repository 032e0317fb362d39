/* Secrets: one for each name of a tenant, within a quota. A new value keeps the figures of use. */
#include "store/rules/rules.h"

static struct row_query secret_query(const char *owner, const char *name)
{
    return (struct row_query){ .table = &row_secret,
                               .where = { { "owner", ROW_IS, owner, 0 }, { "name", ROW_IS, name, 0 } } };
}

static int secret_rules_insert(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_secret *row = c->row;
    const struct row_query all = { .table = &row_secret, .where = { { "owner", ROW_IS, row->owner, 0 } } };
    uint64_t n = 0;

    if (db->ops->count(db, &all, &n, err) < 0)
        return -1;
    if (n >= c->secret_max)
        return err_set(err, ERR_QUOTA,
                       "secrets: %" PRIu64 " of at most %" PRIu64 " exist; remove one with 'cove secret rm'", n,
                       c->secret_max);
    if (db->ops->insert(db, &row_secret, row, NULL, err) < 0)
        return -1;
    row_copy(&row_secret, row_list_add(&row_secret, &c->rows), row);
    ((struct store_secret *)(void *)c->rows.rows)->generation = 1;
    c->row_created = true;
    return 0;
}

int secret_rules_put(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_secret *row = c->row;
    const struct row_query q = secret_query(row->owner, row->name);
    uint64_t n = 0;

    uint32_t set = STORE_SECRET_SET_VALUE | (row->hosts ? STORE_SECRET_SET_HOSTS : 0);

    if (db->ops->update(db, &q, row, set, &c->rows, &n, err) < 0)
        return -1;
    return n ? 0 : secret_rules_insert(db, c, err);
}

int secret_rules_add_use(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = secret_query(c->owner, c->id);
    struct row_list known = { 0 };
    uint64_t n = 0;
    int rc = db->ops->select(db, &q, &known, err);

    if (rc == 0 && known.n) {
        const struct store_secret *row = (const struct store_secret *)(const void *)known.rows;
        const struct store_secret use = { .uses = row->uses + c->secret_uses,
                                          .last_used_ms = max_u64(row->last_used_ms, c->secret_used_ms) };

        rc = db->ops->update(db, &q, &use, STORE_SECRET_SET_USE, NULL, &n, err);
    }
    row_list_done(&row_secret, &known);
    return rc;
}

int secret_rules_delete(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = { .table = &row_secret,
                                 .where = { { "owner", ROW_OWNED_BY, c->owner, 0 }, { "name", ROW_IS, c->id, 0 } } };
    uint64_t n = 0;

    if (db->ops->remove(db, &q, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_SECRET_MISSING, "there is no secret '%.64s'; 'cove secret ls' lists them", c->id);
}
