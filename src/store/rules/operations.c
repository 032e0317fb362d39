/* One function for each kind of call. A call that changes more than one row runs in a savepoint, so
 * that a failure reverts all of its changes and none of the other calls of its batch. */
#include "store/rules/rules.h"

static int store_run_event_range(struct store_db *db, struct store_request *c, struct err *err)
{
    uint64_t first = 0, last = 0;

    if (db->ops->event_range(db, &first, &last, err) < 0)
        return -1;
    c->first = first ? first : last + 1;
    c->seq = last;
    return 0;
}

static int store_run_count(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query keys = { &row_key,
                                    { { "owner", ROW_OWNED_BY, c->owner, 0 }, { "revoked_ms", ROW_IS, NULL, 0 } },
                                    false };
    const struct row_query events = { &row_event, { { "owner", ROW_OWNED_BY, c->owner, 0 } }, false };
    const struct row_query templates = { .table = &row_template };
    struct store_counts *n = &c->counts;

    if (db->ops->count_by_state(db, &row_sandbox, c->owner, n->sandboxes, err) < 0 ||
        db->ops->count_by_state(db, &row_execution, c->owner, n->executions, err) < 0 ||
        db->ops->count(db, &keys, &n->keys, err) < 0 || db->ops->count(db, &events, &n->events, err) < 0 ||
        db->ops->count(db, &templates, &n->templates, err) < 0 ||
        db->ops->sum_scripts(db, c->owner, &n->scripts, &n->script_bytes, err) < 0 ||
        db->ops->output_bytes(db, c->owner, &n->output_bytes, err) < 0)
        return -1;
    return db->ops->used_bytes(db, &n->db_bytes, err);
}

static int store_run_operation(struct store_db *db, struct store_request *c, struct err *err)
{
    switch (c->op) {
    case STORE_OP_INSERT:
        return row_rules_insert(db, c, err);
    case STORE_OP_GET:
        return row_rules_get(db, c, err);
    case STORE_OP_UPDATE:
        return row_rules_update(db, c, err);
    case STORE_OP_LIST:
        return row_rules_list(db, c, err);
    case STORE_OP_LOGIN:
        return tenant_rules_login(db, c, err);
    case STORE_OP_REMOVE:
        return tenant_rules_remove(db, c, err);
    case STORE_OP_EXECUTION_AGES:
        return db->ops->execution_ages(db, c->now_ms, &c->rows, err);
    case STORE_OP_KEY_TOUCH:
        return row_rules_key_touch(db, c, err);
    case STORE_OP_PUT:
        return row_rules_put(db, c, err);
    case STORE_OP_DELETE:
        return row_rules_delete(db, c, err);
    case STORE_OP_IDEM_CLAIM:
        return row_rules_idem_claim(db, c, err);
    case STORE_OP_IDEM_FINISH:
        return row_rules_idem_finish(db, c, err);
    case STORE_OP_IDEM_RENAME:
        return row_rules_idem_rename(db, c, err);
    case STORE_OP_IDEM_DROP:
        return row_rules_idem_drop(db, c, err);
    case STORE_OP_META_GET:
        return row_rules_meta_get(db, c, err);
    case STORE_OP_META_PUT:
        return row_rules_meta_put(db, c, err);
    case STORE_OP_EVENT_RANGE:
        return store_run_event_range(db, c, err);
    case STORE_OP_USAGE_RECORD_CPU:
        return usage_rules_record_cpu(db, c, err);
    case STORE_OP_USAGE_ADD:
        return usage_rules_add(db, c, err);
    case STORE_OP_USAGE_LIST:
        return usage_rules_list(db, c, err);
    case STORE_OP_BUDGET_PUT:
        return usage_rules_budget_put(db, c, err);
    case STORE_OP_BUDGET_LIST:
        return usage_rules_budget_list(db, c, err);
    case STORE_OP_SCRIPT_KEEP:
        return script_rules_keep(db, c, err);
    case STORE_OP_SCRIPT_FIND:
        return script_rules_find(db, c, err);
    case STORE_OP_SCRIPT_SEARCH:
        return script_rules_search(db, c, err);
    case STORE_OP_SECRET_PUT:
        return secret_rules_put(db, c, err);
    case STORE_OP_SECRET_ADD_USE:
        return secret_rules_add_use(db, c, err);
    case STORE_OP_SECRET_DELETE:
        return secret_rules_delete(db, c, err);
    case STORE_OP_COUNT:
        return store_run_count(db, c, err);
    case STORE_OP_GC:
        return retention_rules_collect(db, c, err);
    default:
        return err_set(err, ERR_BUG, "a call in steps was run in a transaction");
    }
}

/* Retention has a savepoint of its own, because a dry run is reverted and succeeds. */
static bool store_request_changes_many_rows(const struct store_request *c)
{
    switch (c->op) {
    case STORE_OP_INSERT:
        return c->table == &row_user || usage_rules_is_end(c) || sandbox_rules_has_metadata(c);
    case STORE_OP_UPDATE:
        return usage_rules_is_end(c) || sandbox_rules_has_metadata(c);
    case STORE_OP_REMOVE:
    case STORE_OP_KEY_TOUCH:
    case STORE_OP_USAGE_RECORD_CPU:
    case STORE_OP_USAGE_ADD:
    case STORE_OP_SCRIPT_KEEP:
        return true;
    default:
        return false;
    }
}

int store_run(struct store_db *db, struct store_request *c, struct err *err)
{
    if (store_op_needs_space(c->op) && !db->ops->has_space(db))
        return err_set(err, ERR_STORE_FULL,
                       "the disk of the database is full; free some space (only ending and removing still work)");
    if (!store_request_changes_many_rows(c))
        return store_run_operation(db, c, err);
    if (db->ops->savepoint(db, err) < 0)
        return -1;
    if (store_run_operation(db, c, err) < 0) {
        db->ops->undo(db);
        return -1;
    }
    return db->ops->release(db, err);
}
