/* Rows of any kind: the conditions of a change, and the text of a refusal. A conditional update
 * is one statement that returns the updated row; only when it returned nothing does a second
 * statement find out why. */
#include "store/rules/rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>
#include <stdio.h>

struct row_query row_rules_query(const struct store_request *c)
{
    return (struct row_query){
        .table = c->table, .where = { { c->table->key, ROW_IS, c->id, 0 }, { "owner", ROW_OWNED_BY, c->owner, 0 } }
    };
}

static void row_query_add(struct row_query *q, const char *column, enum row_test test, const void *value,
                          uint64_t number)
{
    size_t n = 0;

    while (q->where[n].column)
        n++;
    assert(n < ROW_CONDITIONS_MAX);
    q->where[n] = (struct row_condition){ column, test, value, number };
}

/* --- insert, get, list --- */

static int row_rules_check_first_key(struct store_db *db, struct err *err)
{
    const struct row_query keys = { .table = &row_key };
    uint64_t n = 0;

    if (db->ops->count(db, &keys, &n, err) < 0)
        return -1;
    return n ? err_set(err, ERR_EXISTS, "there is a key already") : 0;
}

int row_rules_insert(struct store_db *db, struct store_request *c, struct err *err)
{
    if (tenant_rules_check_insert(db, c, err) < 0 || sandbox_rules_check_insert(db, c, err) < 0 ||
        (c->only_if_no_keys && row_rules_check_first_key(db, err) < 0) ||
        db->ops->insert(db, c->table, c->row, &c->seq, err) < 0 ||
        (sandbox_rules_has_metadata(c) && sandbox_rules_write_metadata(db, c, c->row, err) < 0))
        return -1;
    return usage_rules_is_end(c) ? usage_rules_count_end(db, c, c->row, err) : 0;
}

static int row_rules_missing_error(const struct store_request *c, struct err *err)
{
    char name[64];

    snprintf(name, sizeof(name), "%s", c->id ? c->id : "");
    str_strip_control_chars(name);
    return err_set(err, ERR_MISSING, "there is no %s '%s'", c->table->display_name, name);
}

int row_rules_get(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = row_rules_query(c);

    if (db->ops->select(db, &q, &c->rows, err) < 0)
        return -1;
    return c->rows.n ? 0 : row_rules_missing_error(c, err);
}

int row_rules_list(struct store_db *db, struct store_request *c, struct err *err)
{
    if (db->ops->list(db, &c->page, &c->rows, err) < 0)
        return -1;
    c->more = c->rows.n > c->page.limit;
    if (c->more)
        row_list_drop(c->table, &c->rows);
    return 0;
}

/* --- update --- */

/* Nothing was changed: either the row does not exist, or it does not meet `when`. */
static int row_rules_unchanged_error(struct store_db *db, struct store_request *c, struct err *err)
{
    if (row_rules_get(db, c, err) < 0)
        return -1;
    const struct row_column *state = row_column(c->table, "state");
    unsigned now = state ? *ROW_CONST_AT(unsigned, c->rows.rows, state) : 0;
    if (state && c->condition.states && !(c->condition.states & STORE_BIT(now)))
        return err_set(err, ERR_EXISTS, "the %s %s is %s", c->table->display_name, c->id, c->table->states[now]);
    return err_set(err, ERR_EXISTS, "the %s %s was changed meanwhile; read it again", c->table->display_name, c->id);
}

int row_rules_update(struct store_db *db, struct store_request *c, struct err *err)
{
    struct row_query q = row_rules_query(c);
    bool alive = false;
    uint64_t n = 0;

    if (!c->set)
        return err_set(err, ERR_BUG, "an update without columns");
    if (c->table == &row_user && tenant_rules_check_user_update(db, c, err) < 0)
        return -1;
    if (c->table == &row_sandbox && c->set & STORE_SANDBOX_SET_NAME &&
        sandbox_rules_check_name(db, c, c->owner, err) < 0)
        return -1;
    if (usage_rules_is_end(c) && usage_rules_was_alive(db, c, &alive, err) < 0)
        return -1;
    if (c->condition.states)
        row_query_add(&q, "state", ROW_STATE_IN, NULL, c->condition.states);
    if (c->condition.generation)
        row_query_add(&q, "generation", ROW_IS, NULL, c->condition.generation);
    if (db->ops->update(db, &q, c->row, c->set, &c->rows, &n, err) < 0)
        return -1;
    if (n == 0)
        return row_rules_unchanged_error(db, c, err);
    if (sandbox_rules_has_metadata(c) &&
        sandbox_rules_write_metadata(db, c, (const struct store_sandbox *)(const void *)c->rows.rows, err) < 0)
        return -1;
    return alive ? usage_rules_count_end(db, c, c->rows.rows, err) : 0;
}

/* --- put and delete --- */

int row_rules_put(struct store_db *db, struct store_request *c, struct err *err)
{
    free(c->id);
    c->id = str_dup(ROW_CONST_AT(char, c->row, row_column(c->table, c->table->key)));
    if (c->condition.generation) { /* the row must exist and have this generation */
        if (row_rules_get(db, c, err) < 0)
            return -1;
        if (*ROW_CONST_AT(uint64_t, c->rows.rows, row_column(c->table, "generation")) != c->condition.generation)
            return err_set(err, ERR_EXISTS, "the %s %s was changed meanwhile; read it again", c->table->display_name,
                           c->id);
        row_list_done(c->table, &c->rows);
    }
    return db->ops->replace(db, c->table, c->row, &c->rows, err);
}

int row_rules_delete(struct store_db *db, struct store_request *c, struct err *err)
{
    struct row_query q = row_rules_query(c);
    uint64_t n = 0;

    if (c->table == &row_template && sandbox_rules_check_template_unused(db, c->id, err) < 0)
        return -1;
    if (c->condition.generation)
        row_query_add(&q, "generation", ROW_IS, NULL, c->condition.generation);
    if (db->ops->remove(db, &q, &n, err) < 0)
        return -1;
    return n ? 0 : row_rules_unchanged_error(db, c, err);
}

/* --- idempotency --- */

/* The first row stays; a repeated request gets that row. */
int row_rules_idem_claim(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_idem *row = c->row;

    if (db->ops->insert_missing(db, c->table, row, &c->row_created, err) < 0)
        return -1;
    free(c->id);
    c->id = str_dup(row->key);
    memcpy(c->owner, row->owner, sizeof(c->owner));
    return row_rules_get(db, c, err);
}

/* The key of one owner: an idempotency key is never that of any owner. */
static struct row_query row_rules_idem_query(const struct store_request *c)
{
    return (struct row_query){ .table = &row_idem,
                               .where = { { "owner", ROW_IS, c->owner, 0 }, { "key", ROW_IS, c->id, 0 } } };
}

int row_rules_idem_finish(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = row_rules_idem_query(c);
    const struct store_idem row = { .status = c->status, .body = c->text };
    uint64_t n = 0;

    if (db->ops->update(db, &q, &row, STORE_IDEM_SET_RESPONSE, NULL, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no such idempotency key");
}

int row_rules_idem_rename(struct store_db *db, struct store_request *c, struct err *err)
{
    struct row_query q = row_rules_idem_query(c);
    struct store_idem row = { 0 };
    uint64_t n = 0;

    memcpy(row.resource, c->resource, sizeof(row.resource));
    row_query_add(&q, "resource", ROW_IS, c->text, 0);
    return db->ops->update(db, &q, &row, STORE_IDEM_SET_RESOURCE, NULL, &n, err);
}

int row_rules_idem_drop(struct store_db *db, struct store_request *c, struct err *err)
{
    struct row_query q = row_rules_idem_query(c);
    uint64_t n = 0;

    if (c->text)
        row_query_add(&q, "resource", ROW_IS, c->text, 0);
    return db->ops->remove(db, &q, &n, err);
}

/* --- texts of the server, and the use of keys --- */

int row_rules_meta_get(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = { .table = &row_meta, .where = { { "name", ROW_IS, c->id, 0 } } };
    struct row_list found = { 0 };

    if (db->ops->select(db, &q, &found, err) < 0)
        return -1;
    if (found.n)
        c->value = take_ptr(&((struct store_meta *)(void *)found.rows)->value);
    row_list_done(&row_meta, &found);
    return 0;
}

int row_rules_meta_put(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_meta row = { .name = c->id, .value = c->text };

    return db->ops->replace(db, &row_meta, &row, NULL, err);
}

/* The time never goes backwards; a key that no longer exists is skipped. */
int row_rules_key_touch(struct store_db *db, struct store_request *c, struct err *err)
{
    for (size_t i = 0; i < c->nkey_uses; i++) {
        const struct store_key row = { .last_used_ms = min_u64(c->key_uses[i].at_ms, INT64_MAX) };
        const struct row_query q = { .table = &row_key,
                                     .where = { { "id", ROW_IS, c->key_uses[i].id, 0 },
                                                { "last_used_ms", ROW_BELOW, NULL, row.last_used_ms } } };
        uint64_t n = 0;

        if (db->ops->update(db, &q, &row, STORE_KEY_SET_LAST_USED, NULL, &n, err) < 0)
            return -1;
    }
    return 0;
}
