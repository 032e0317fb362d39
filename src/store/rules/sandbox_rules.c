/* Sandboxes and what refers to them: names of living sandboxes, their number, executions of an
 * existing sandbox, metadata, templates of pools. */
#include "store/rules/rules.h"

#include "core/base/jsonr.h"

#include <string.h>

/* The database enforces the rule with a unique index; this gives the message. It does not contain
 * the id, because the token of one sandbox may ask for the name of another. */
int sandbox_rules_check_name(struct store_db *db, const struct store_request *c, const char *owner, struct err *err)
{
    const struct store_sandbox *sb = c->row;
    const struct row_query others = { .table = &row_sandbox,
                                      .where = { { "owner", ROW_IS, owner, 0 },
                                                 { "name", ROW_IS, sb->name, 0 },
                                                 { "state", ROW_IS_NOT, NULL, STORE_SANDBOX_ENDED },
                                                 { "id", ROW_IS_NOT, sb->id, 0 } } };
    uint64_t n = 0;

    if (!sb->name || sb->state == STORE_SANDBOX_ENDED)
        return 0;
    if (db->ops->count(db, &others, &n, err) < 0)
        return -1;
    return n ? err_set(err, ERR_EXISTS,
                       "name '%.63s': another living sandbox has it; choose another, or end that sandbox", sb->name)
             : 0;
}

static int sandbox_rules_check_live_max(struct store_db *db, const struct store_request *c, struct err *err)
{
    const struct row_query live = { .table = &row_sandbox,
                                    .where = { { "owner", ROW_IS, ((const struct store_sandbox *)c->row)->owner, 0 },
                                               { "state", ROW_IS_NOT, NULL, STORE_SANDBOX_ENDED } } };
    uint64_t n = 0;

    if (!c->live_max)
        return 0;
    if (db->ops->count(db, &live, &n, err) < 0)
        return -1;
    return n < c->live_max ? 0
                           : err_set(err, ERR_LIMIT, "there are %" PRIu64 " sandboxes already, and the limit is %u", n,
                                     c->live_max);
}

static int sandbox_rules_check_execution(struct store_db *db, const struct store_execution *ex, struct err *err)
{
    const struct row_query sandbox = {
        .table = &row_sandbox, .where = { { "id", ROW_IS, ex->sandbox, 0 }, { "owner", ROW_IS, ex->owner, 0 } }
    };
    uint64_t n = 0;

    if (db->ops->count(db, &sandbox, &n, err) < 0)
        return -1;
    return n ? 0 : err_set(err, ERR_MISSING, "there is no sandbox %s", ex->sandbox);
}

int sandbox_rules_check_insert(struct store_db *db, const struct store_request *c, struct err *err)
{
    if (c->table == &row_execution)
        return sandbox_rules_check_execution(db, c->row, err);
    if (c->table != &row_sandbox)
        return 0;
    if (sandbox_rules_check_name(db, c, ((const struct store_sandbox *)c->row)->owner, err) < 0)
        return -1;
    return sandbox_rules_check_live_max(db, c, err);
}

bool sandbox_rules_has_metadata(const struct store_request *c)
{
    if (c->table != &row_sandbox)
        return false;
    return c->op == STORE_OP_INSERT ? ((const struct store_sandbox *)c->row)->metadata_json != NULL
                                    : c->set & STORE_SANDBOX_SET_METADATA;
}

static int sandbox_rules_insert_metadata(struct store_db *db, const struct store_sandbox *row, struct err *err)
{
    struct store_metadata pair = { .sandbox_created_ms = row->created_ms };
    struct json_doc doc;
    int rc = 0;

    if (json_read(row->metadata_json, strlen(row->metadata_json), &doc, err) < 0)
        return -1;
    memcpy(pair.sandbox, row->id, sizeof(pair.sandbox));
    memcpy(pair.sandbox_owner, row->owner, sizeof(pair.sandbox_owner));
    for (const struct json *j = doc.root->child; j && rc == 0; j = j->next) {
        pair.key = (char *)j->key;
        pair.value = (char *)j->text;
        rc = db->ops->replace(db, &row_metadata, &pair, NULL, err); /* of a repeated key the last value counts */
    }
    json_doc_done(&doc);
    return rc;
}

int sandbox_rules_write_metadata(struct store_db *db, const struct store_request *c, const struct store_sandbox *row,
                                 struct err *err)
{
    const struct row_query old = { .table = &row_metadata, .where = { { "sandbox", ROW_IS, row->id, 0 } } };
    uint64_t n = 0;

    if (c->op != STORE_OP_INSERT && db->ops->remove(db, &old, &n, err) < 0)
        return -1;
    return row->metadata_json ? sandbox_rules_insert_metadata(db, row, err) : 0;
}

int sandbox_rules_check_template_unused(struct store_db *db, const char *name, struct err *err)
{
    const struct row_query q = { .table = &row_pool, .where = { { "template", ROW_IS, name, 0 } }, .ordered = true };
    struct row_list pools = { 0 };

    if (db->ops->select(db, &q, &pools, err) < 0)
        return -1;
    if (pools.n)
        err_set(err, ERR_TEMPLATE_USED, "the template %s is used by the pool %s", name,
                ((const struct store_pool *)(const void *)pools.rows)->name);
    bool used = pools.n > 0;
    row_list_done(&row_pool, &pools);
    return used ? -1 : 0;
}
