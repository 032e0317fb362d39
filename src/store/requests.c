/* From the typed functions of store.h to struct store_request, and back to the typed answers.
 *
 * All arguments are copied here, and everything that can be refused without a database is
 * refused here, so a backend gets only bounded UTF-8 texts, well-formed owners and parsed
 * cursors. */
#include "store/requests.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/tenants.h"

#include <assert.h>

#define ID_TEXT_MAX 512u /* names, ids and keys that come from outside */
#define META_MAX 32u

struct store_request *store_request_new(enum store_op op, const struct row_table *t, store_untyped_fn *done, void *arg)
{
    struct store_request *c = mem_new(struct store_request);

    c->op = op;
    c->table = t;
    c->done = done;
    c->arg = arg;
    return c;
}

bool store_op_needs_space(enum store_op op)
{
    return op == STORE_OP_INSERT || op == STORE_OP_IDEM_CLAIM || op == STORE_OP_PUT || op == STORE_OP_META_PUT ||
           op == STORE_OP_USAGE_RECORD_CPU || op == STORE_OP_USAGE_ADD || op == STORE_OP_BUDGET_PUT ||
           op == STORE_OP_SCRIPT_KEEP || op == STORE_OP_SECRET_PUT;
}

void store_request_reset(struct store_request *c)
{
    if (c->table)
        row_list_done(c->table, &c->rows);
    free(c->value);
    free(c->removed);
    c->value = NULL;
    c->removed = NULL;
    c->more = c->row_created = c->failed = c->is_unfinished = false;
    c->total = 0;
    c->gc = (struct store_gc_report){ 0 };
    c->counts = (struct store_counts){ 0 };
    c->err = (struct err){ 0 };
}

void store_request_free(struct store_request *c)
{
    store_request_reset(c);
    if (c->row) {
        row_done(c->table, c->row);
        free(c->row);
    }
    for (size_t i = 0; c->page.meta && c->page.meta[i]; i++)
        free(c->page.meta[i]);
    free(c->page.meta);
    script_search_free(c->script_search);
    free(c->id);
    free(c->text);
    free(c->page.name);
    free(c->page.template);
    free(c->key_uses);
    free(c->cpu_readings);
    free(c->usage_sums);
    free(c);
}

void store_request_detach(struct store_request *call)
{
    call->done = NULL;
}

void store_request_reject(struct store_request *c, const struct err *err)
{
    c->rejected = c->failed = true;
    c->err = *err;
}

/* --- arguments --- */

static void store_request_set_owner(struct store_request *c, const char *owner)
{
    struct err err = { 0 };

    if (c->rejected)
        return;
    if (owner && (str_eq(owner, STORE_ANY_OWNER) || store_owner_valid(owner)) &&
        str_copy(c->owner, sizeof(c->owner), owner))
        return;
    err_set(&err, ERR_INVALID, "not a valid owner");
    store_request_reject(c, &err);
}

static void store_request_set_text(struct store_request *c, char **to, const char *what, const char *text, size_t max)
{
    struct err err = { 0 };

    if (c->rejected || !text)
        return;
    if (row_check_text(what, text, max, &err) < 0) {
        store_request_reject(c, &err);
        return;
    }
    *to = str_dup(text);
    c->bytes += strlen(text);
}

static void store_request_set_id(struct store_request *c, const char *id)
{
    store_request_set_text(c, &c->id, "the id", id, ID_TEXT_MAX);
}

static void store_request_set_row(struct store_request *c, const void *row)
{
    struct err err = { 0 };

    if (c->rejected)
        return;
    if (row_check(c->table, row, &err) < 0) {
        store_request_reject(c, &err);
        return;
    }
    c->row = mem_alloc(c->table->size);
    row_copy(c->table, c->row, row);
    c->bytes += row_bytes(c->table, row);
}

static void store_request_set_metadata_filter(struct store_request *c, const char *const *meta)
{
    struct err err = { 0 };
    size_t n = 0;

    while (meta && meta[n])
        n++;
    if (c->rejected || n == 0)
        return;
    if (n % 2 != 0 || n / 2 > META_MAX) {
        err_set(&err, ERR_INVALID, "metadata: at most %u pairs can be used as a filter", META_MAX);
        store_request_reject(c, &err);
        return;
    }
    c->page.meta = mem_alloc((n + 1) * sizeof(char *));
    for (size_t i = 0; i < n && !c->rejected; i++)
        store_request_set_text(c, &c->page.meta[i], "the filter", meta[i], 4096);
}

static void store_request_set_list(struct store_request *c, const struct store_list *q, const char *kind)
{
    struct err err = { 0 };

    if (c->table->owned)
        store_request_set_owner(c, q->owner);
    c->page.table = c->table;
    memcpy(c->page.owner, c->owner, sizeof(c->owner));
    store_request_set_metadata_filter(c, q->meta);
    store_request_set_text(c, &c->page.name, "name", q->name, ID_TEXT_MAX);
    store_request_set_text(c, &c->page.template, "template", q->template, ID_TEXT_MAX);
    c->page.states = q->states;
    c->page.outcomes = q->outcomes;
    c->page.oldest_first = q->oldest_first;
    c->page.limit = q->limit == 0 ? STORE_LIST_DEFAULT : q->limit > STORE_LIST_MAX ? STORE_LIST_MAX : q->limit;
    if (!c->rejected && q->sandbox && !id_valid(q->sandbox, "sb")) {
        err_set(&err, ERR_MISSING, "there is no such sandbox");
        store_request_reject(c, &err);
    } else if (q->sandbox) {
        str_copy(c->page.id, sizeof(c->page.id), q->sandbox);
    } else if (q->user) {
        str_copy(c->page.id, sizeof(c->page.id), q->user);
    }
    if (!c->rejected && q->cursor && store_cursor_parse(q->cursor, kind, &c->page.cursor, &err) < 0)
        store_request_reject(c, &err);
    c->page.has_cursor = q->cursor != NULL;
}

struct store_request *store_get_request(enum store_op op, const struct row_table *t, const char *owner, const char *id,
                                        store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_request_new(op, t, done, arg);

    if (owner)
        store_request_set_owner(c, owner);
    store_request_set_id(c, id);
    return c;
}

struct store_request *store_row_request(enum store_op op, const struct row_table *t, const void *row,
                                        store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_request_new(op, t, done, arg);

    store_request_set_row(c, row);
    return c;
}

/* For an update, only the columns in `set` and the id are used: the others may be empty. */
struct store_request *store_update_request(const struct row_table *t, const char *owner, const void *row, uint32_t set,
                                           const struct store_condition *when, store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_UPDATE, t, done, arg);
    struct err err = { 0 };
    auto_free char *full = mem_copy(row, t->size);

    store_request_set_owner(c, owner);
    store_request_set_id(c, ROW_CONST_AT(char, row, row_column(t, t->key)));
    for (size_t i = 0; i < t->n; i++) {
        const struct row_column *col = &t->columns[i];

        if (col->set & set) {
            if (!c->rejected && row_check_column(t, col, row, &err) < 0)
                store_request_reject(c, &err);
        } else if (col->type == ROW_TEXT) {
            *ROW_AT(char *, full, col) = NULL;
        }
    }
    if (!c->rejected) {
        c->row = mem_alloc(t->size);
        row_copy(t, c->row, full);
        c->bytes += row_bytes(t, full);
    }
    c->set = set;
    if (when)
        c->condition = *when;
    if (!t->has_generation)
        c->condition.generation = 0;
    return c;
}

/* --- sandboxes --- */

struct store_request *store_sandbox_insert(struct store *st, const struct store_sandbox *row, uint32_t live_max,
                                           store_done_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_INSERT, &row_sandbox, row, ANY(done), arg);

    c->live_max = live_max;
    return store_request_submit(st, c);
}

struct store_request *store_sandbox_get(struct store *st, const char *owner, const char *id, store_sandbox_fn *done,
                                        void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_sandbox, owner, id, ANY(done), arg));
}

struct store_request *store_sandbox_update(struct store *st, const char *owner, const struct store_sandbox *row,
                                           uint32_t set, const struct store_condition *when, store_sandbox_fn *done,
                                           void *arg)
{
    return store_request_submit(st, store_update_request(&row_sandbox, owner, row, set, when, ANY(done), arg));
}

struct store_request *store_list_request(struct store *st, const struct row_table *t, const struct store_list *q,
                                         const char *kind, store_untyped_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_LIST, t, done, arg);

    store_request_set_list(c, q, kind);
    return store_request_submit(st, c);
}

struct store_request *store_sandbox_list(struct store *st, const struct store_list *q, store_sandboxes_fn *done,
                                         void *arg)
{
    return store_list_request(st, &row_sandbox, q, "sb", ANY(done), arg);
}

/* --- executions --- */

struct store_request *store_execution_insert(struct store *st, const struct store_execution *row, store_done_fn *done,
                                             void *arg)
{
    return store_request_submit(st, store_row_request(STORE_OP_INSERT, &row_execution, row, ANY(done), arg));
}

struct store_request *store_execution_get(struct store *st, const char *owner, const char *id, store_execution_fn *done,
                                          void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_execution, owner, id, ANY(done), arg));
}

struct store_request *store_execution_update(struct store *st, const char *owner, const struct store_execution *row,
                                             uint32_t set, const struct store_condition *when, store_execution_fn *done,
                                             void *arg)
{
    return store_request_submit(st, store_update_request(&row_execution, owner, row, set, when, ANY(done), arg));
}

struct store_request *store_execution_list(struct store *st, const struct store_list *q, store_executions_fn *done,
                                           void *arg)
{
    return store_list_request(st, &row_execution, q, "ex", ANY(done), arg);
}

/* --- keys --- */

struct store_request *store_key_insert(struct store *st, const struct store_key *row, bool only_first,
                                       store_done_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_INSERT, &row_key, row, ANY(done), arg);

    c->only_if_no_keys = only_first;
    return store_request_submit(st, c);
}

struct store_request *store_key_get(struct store *st, const char *owner, const char *id, store_key_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_key, owner, id, ANY(done), arg));
}

struct store_request *store_key_update(struct store *st, const char *owner, const struct store_key *row, uint32_t set,
                                       store_key_fn *done, void *arg)
{
    return store_request_submit(st, store_update_request(&row_key, owner, row, set, NULL, ANY(done), arg));
}

struct store_request *store_key_list(struct store *st, const struct store_list *q, store_keys_fn *done, void *arg)
{
    return store_list_request(st, &row_key, q, "ky", ANY(done), arg);
}

struct store_request *store_key_touch(struct store *st, const struct store_key_use *uses, size_t n, store_done_fn *done,
                                      void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_KEY_TOUCH, NULL, ANY(done), arg);

    c->key_uses = n ? mem_copy(uses, n * sizeof(*uses)) : NULL;
    c->nkey_uses = n;
    c->bytes = n * sizeof(*uses);
    return store_request_submit(st, c);
}

/* --- templates --- */

struct store_request *store_template_put(struct store *st, const struct store_template *row,
                                         const struct store_condition *when, store_template_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_PUT, &row_template, row, ANY(done), arg);
    struct err err = { 0 };

    if (!c->rejected && !store_owner_valid(row->name)) {
        err_set(&err, ERR_INVALID, "name: only letters, digits, '-', '_' and '.' are allowed");
        store_request_reject(c, &err);
    }
    if (when)
        c->condition = *when;
    return store_request_submit(st, c);
}

struct store_request *store_template_get(struct store *st, const char *name, store_template_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_template, NULL, name, ANY(done), arg));
}

struct store_request *store_template_delete(struct store *st, const char *name, const struct store_condition *when,
                                            store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_DELETE, &row_template, NULL, name, ANY(done), arg);

    if (when)
        c->condition = *when;
    return store_request_submit(st, c);
}

struct store_request *store_template_list(struct store *st, const struct store_list *q, store_templates_fn *done,
                                          void *arg)
{
    const struct store_list by_name = { .cursor = q->cursor, .limit = q->limit, .oldest_first = true };

    return store_list_request(st, &row_template, &by_name, NULL, ANY(done), arg);
}

/* --- events --- */

struct store_request *store_event_append(struct store *st, const struct store_event *row, store_event_fn *done,
                                         void *arg)
{
    return store_request_submit(st, store_row_request(STORE_OP_INSERT, &row_event, row, ANY(done), arg));
}

struct store_request *store_event_list(struct store *st, const char *owner, const char *sandbox, uint64_t after,
                                       uint32_t limit, store_events_fn *done, void *arg)
{
    const struct store_list q = { .owner = owner, .sandbox = sandbox, .limit = limit, .oldest_first = true };
    struct store_request *c = store_request_new(STORE_OP_LIST, &row_event, ANY(done), arg);

    store_request_set_list(c, &q, NULL);
    c->page.after = after > INT64_MAX ? INT64_MAX : after;
    return store_request_submit(st, c);
}

struct store_request *store_event_range(struct store *st, store_event_range_fn *done, void *arg)
{
    return store_request_submit(st, store_request_new(STORE_OP_EVENT_RANGE, NULL, ANY(done), arg));
}

/* --- idempotency, meta, the whole store --- */

struct store_request *store_idem_claim(struct store *st, const struct store_idem *row, store_idem_fn *done, void *arg)
{
    return store_request_submit(st, store_row_request(STORE_OP_IDEM_CLAIM, &row_idem, row, ANY(done), arg));
}

struct store_request *store_idem_finish(struct store *st, const char *owner, const char *key, int32_t status,
                                        const char *body, store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_IDEM_FINISH, &row_idem, owner, key, ANY(done), arg);

    store_request_set_text(c, &c->text, "the body", body, STORE_TEXT_MAX);
    c->status = status;
    return store_request_submit(st, c);
}

struct store_request *store_idem_rename(struct store *st, const char *owner, const char *key, const char *from,
                                        const char *to, store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_IDEM_RENAME, &row_idem, owner, key, ANY(done), arg);

    store_request_set_text(c, &c->text, "the resource", from, ID_SIZE - 1);
    str_copy(c->resource, sizeof(c->resource), to);
    return store_request_submit(st, c);
}

struct store_request *store_idem_drop(struct store *st, const char *owner, const char *key, const char *resource,
                                      store_done_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_IDEM_DROP, &row_idem, owner, key, ANY(done), arg);

    store_request_set_text(c, &c->text, "the resource", resource, ID_SIZE);
    return store_request_submit(st, c);
}

struct store_request *store_meta_get(struct store *st, const char *name, store_text_fn *done, void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_META_GET, NULL, NULL, name, ANY(done), arg));
}

struct store_request *store_meta_put(struct store *st, const char *name, const char *value, store_done_fn *done,
                                     void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_META_PUT, NULL, NULL, name, ANY(done), arg);

    store_request_set_text(c, &c->text, "the value", value, STORE_TEXT_MAX);
    return store_request_submit(st, c);
}

struct store_request *store_count(struct store *st, const char *owner, store_counts_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_COUNT, NULL, ANY(done), arg);

    store_request_set_owner(c, owner);
    return store_request_submit(st, c);
}

struct store_request *store_gc(struct store *st, const struct store_retention *keep, store_gc_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_GC, NULL, ANY(done), arg);

    c->retention = *keep;
    return store_request_submit(st, c);
}

struct store_request *store_check(struct store *st, store_done_fn *done, void *arg)
{
    return store_request_submit(st, store_request_new(STORE_OP_CHECK, NULL, ANY(done), arg));
}

struct store_request *store_backup(struct store *st, const char *path, store_done_fn *done, void *arg)
{
    struct store_request *c = store_request_new(STORE_OP_BACKUP, NULL, ANY(done), arg);

    c->id = str_dup(path);
    return store_request_submit(st, c);
}

/* --- answers --- */

static void store_request_answer_rows(struct store_request *c, const struct err *err)
{
    char next[STORE_CURSOR_SIZE];
    const char *more = NULL;
    size_t n = err ? 0 : c->rows.n;

    if (!err && c->more && n > 0) {
        struct store_cursor at = { 0 };
        const char *last = c->rows.rows + (n - 1) * c->table->size;

        str_copy(at.id, sizeof(at.id), ROW_CONST_AT(char, last, row_column(c->table, c->table->key)));
        at.created_ms = *ROW_CONST_AT(uint64_t, last, row_column(c->table, "created_ms"));
        store_cursor_format(&at, next);
        more = next;
    }
    const void *rows = c->rows.rows;
    if (c->table == &row_sandbox)
        ((store_sandboxes_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_execution)
        ((store_executions_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_key)
        ((store_keys_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_tenant)
        ((store_tenants_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_user)
        ((store_users_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_role)
        ((store_roles_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_pool)
        ((store_pools_fn *)c->done)(c->arg, err, rows, n, more);
    else if (c->table == &row_secret)
        ((store_secrets_fn *)c->done)(c->arg, err, rows, n, more);
    else
        ((store_templates_fn *)c->done)(c->arg, err, rows, n, more);
}

static void store_request_answer_row(struct store_request *c, const struct err *err)
{
    const void *row = err ? NULL : c->rows.rows;

    assert(err || c->rows.n == 1);
    if (c->table == &row_sandbox)
        ((store_sandbox_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_execution)
        ((store_execution_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_key)
        ((store_key_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_login)
        ((store_login_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_tenant)
        ((store_tenant_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_user)
        ((store_user_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_role)
        ((store_role_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_pool)
        ((store_pool_fn *)c->done)(c->arg, err, row);
    else if (c->table == &row_script)
        ((store_script_fn *)c->done)(c->arg, err, row);
    else
        ((store_template_fn *)c->done)(c->arg, err, row);
}

void store_request_answer(struct store_request *c)
{
    const struct err *err = c->failed ? &c->err : NULL;

    if (!c->done)
        return;
    switch (c->op) {
    case STORE_OP_LIST:
        if (c->table == &row_event)
            ((store_events_fn *)c->done)(c->arg, err, (const void *)c->rows.rows, err ? 0 : c->rows.n);
        else
            store_request_answer_rows(c, err);
        break;
    case STORE_OP_EXECUTION_AGES:
        ((store_ages_fn *)c->done)(c->arg, err, (const void *)c->rows.rows, err ? 0 : c->rows.n);
        break;
    case STORE_OP_GET:
    case STORE_OP_UPDATE:
    case STORE_OP_LOGIN:
    case STORE_OP_PUT:
    case STORE_OP_SCRIPT_FIND:
        store_request_answer_row(c, err);
        break;
    case STORE_OP_INSERT:
        if (c->table == &row_event)
            ((store_event_fn *)c->done)(c->arg, err, err ? 0 : c->seq);
        else
            ((store_done_fn *)c->done)(c->arg, err);
        break;
    case STORE_OP_IDEM_CLAIM:
        ((store_idem_fn *)c->done)(c->arg, err, c->row_created, err ? NULL : (const void *)c->rows.rows);
        break;
    case STORE_OP_META_GET:
        ((store_text_fn *)c->done)(c->arg, err, err ? NULL : c->value);
        break;
    case STORE_OP_USAGE_LIST:
    case STORE_OP_BUDGET_LIST:
        store_usage_request_answer(c, err);
        break;
    case STORE_OP_SECRET_PUT:
        ((store_secret_put_fn *)c->done)(c->arg, err, err ? NULL : (const void *)c->rows.rows, !err && c->row_created);
        break;
    case STORE_OP_SCRIPT_KEEP:
    case STORE_OP_SCRIPT_SEARCH:
        store_script_request_answer(c, err);
        break;
    case STORE_OP_EVENT_RANGE:
        ((store_event_range_fn *)c->done)(c->arg, err, err ? 0 : c->first, err ? 0 : c->seq);
        break;
    case STORE_OP_COUNT:
        ((store_counts_fn *)c->done)(c->arg, err, err ? NULL : &c->counts);
        break;
    case STORE_OP_GC:
        c->gc.executions = c->retention.dry_run ? NULL : (const char(*)[ID_SIZE])c->removed;
        ((store_gc_fn *)c->done)(c->arg, err, err ? NULL : &c->gc);
        break;
    default:
        ((store_done_fn *)c->done)(c->arg, err);
    }
}
