/* Lists in SQLite: one page of rows, built from the filters of a call, and the parts of a statement
 * that other statements on rows use too. */
#include "store/sqlite/sqlite.h"

#include "core/base/buf.h"
#include "core/base/str.h"
#include "policy/outcome.h"

/* --- parts of a statement --- */

void sql_columns(struct sql_builder *s, const struct row_table *t)
{
    for (size_t i = 0; i < t->n; i++) {
        buf_adds(&s->text, i ? ", " : "");
        buf_adds(&s->text, t->columns[i].name);
    }
}

int sql_param(struct sql_builder *s, const char *before)
{
    buf_addf(&s->text, "%s?%d", before, ++s->params);
    return s->params;
}

/* Returns the parameter's number, or 0 for any owner. */
static int sql_where_owner(struct sql_builder *s, const struct row_table *t, const char *owner)
{
    if (!t->owned || str_eq(owner, STORE_ANY_OWNER))
        return 0;
    return sql_param(s, " AND owner = ");
}

void sql_state_in(struct sql_builder *s, const struct row_table *t, uint32_t states)
{
    const char *comma = "";

    buf_adds(&s->text, "state IN (");
    for (unsigned i = 0; i < t->nstates; i++)
        if (states & STORE_BIT(i)) {
            buf_addf(&s->text, "%s'%s'", comma, t->states[i]);
            comma = ", ";
        }
    buf_adds(&s->text, ")");
}

static void sql_where_states(struct sql_builder *s, const struct row_table *t, uint32_t states)
{
    if (states == STORE_NO_STATE)
        buf_adds(&s->text, " AND 0");
    if (!states || !t->states || states == STORE_NO_STATE)
        return;
    buf_adds(&s->text, " AND ");
    sql_state_in(s, t, states);
}

static void sql_where_outcomes(struct sql_builder *s, uint32_t outcomes)
{
    const char *comma = "";

    if (outcomes == STORE_NO_STATE)
        buf_adds(&s->text, " AND 0");
    if (!outcomes || outcomes == STORE_NO_STATE)
        return;
    buf_adds(&s->text, " AND outcome IN (");
    for (unsigned i = 0; i < OUTCOME_COUNT; i++)
        if (outcomes & STORE_BIT(i)) {
            buf_addf(&s->text, "%s'%s'", comma, outcome_name((enum outcome)i));
            comma = ", ";
        }
    buf_adds(&s->text, ")");
}

/* --- list --- */

/* A list of one owner that is filtered by metadata reads the index of its first pair, which is in
 * the order of the list: a page costs the same however rare the pair is. Other pairs are looked up
 * for each sandbox. */
static bool sql_is_by_metadata(const struct row_page *page)
{
    return page->meta && page->meta[0] && !str_eq(page->owner, STORE_ANY_OWNER);
}

/* owner: the number of the owner's parameter. */
static void sql_where_metadata(struct sql_builder *s, const struct row_page *page, int owner)
{
    for (size_t i = 0; page->meta && page->meta[i]; i += 2) {
        if (i == 0 && sql_is_by_metadata(page)) {
            buf_addf(&s->text, " AND pair.sandbox_owner = ?%d", owner);
            sql_param(s, " AND pair.key = ");
            sql_param(s, " AND pair.value = ");
        } else {
            sql_param(s, " AND EXISTS (SELECT 1 FROM sandbox_metadata AS m WHERE m.sandbox = id AND m.key = ");
            sql_param(s, " AND m.value = ");
            buf_adds(&s->text, ")");
        }
    }
}

/* The columns that a list by creation is ordered by. */
static const char *sql_order_columns(const struct row_page *page, bool second)
{
    if (sql_is_by_metadata(page))
        return second ? "pair.sandbox" : "pair.sandbox_created_ms";
    return second ? "id" : "created_ms";
}

/* Rows after the cursor, in the order of the list: by name, by creation, or for events by
 * number. */
static void sql_where_after(struct sql_builder *s, const struct row_page *page)
{
    if (page->table == &row_event) {
        sql_param(s, " AND seq > ");
    } else if (page->has_cursor && page->table->by_name) {
        sql_param(s, " AND name > ");
    } else if (page->has_cursor) {
        buf_addf(&s->text, " AND (%s, %s) %s ", sql_order_columns(page, false), sql_order_columns(page, true),
                 page->oldest_first ? ">" : "<");
        sql_param(s, "(");
        sql_param(s, ", ");
        buf_adds(&s->text, ")");
    }
}

static void sql_order(struct sql_builder *s, const struct row_page *page)
{
    const char *direction = page->oldest_first ? "ASC" : "DESC";

    if (page->table == &row_event)
        buf_adds(&s->text, " ORDER BY seq");
    else if (page->table->by_name)
        buf_adds(&s->text, " ORDER BY name");
    else
        buf_addf(&s->text, " ORDER BY %s %s, %s %s", sql_order_columns(page, false), direction,
                 sql_order_columns(page, true), direction);
}

/* The phase of an execution is its outcome, or its state before the end. Lists of executions
 * with some phases only are merged from one ordered index range for each phase, so that a page
 * costs the same however rare its rows are. ret: names of the phases. 0: a list without phases;
 * that of one sandbox reads the rows of the sandbox instead. */
static size_t sql_list_phases(const struct row_page *page, const char *ret[OUTCOME_COUNT + STORE_EXECUTION_STATES])
{
    bool ended = !page->states || page->states & ~STORE_EXECUTION_LIVE;
    size_t n = 0;

    if (page->table != &row_execution || page->id[0] || !(page->states | page->outcomes) ||
        page->states == STORE_NO_STATE || page->outcomes == STORE_NO_STATE)
        return 0;
    for (unsigned i = 0; ended && i < OUTCOME_COUNT; i++)
        if (!page->outcomes || page->outcomes & STORE_BIT(i))
            ret[n++] = outcome_name((enum outcome)i);
    for (unsigned i = 0; !page->outcomes && i < STORE_EXECUTION_STATES; i++)
        if (page->states & STORE_EXECUTION_LIVE & STORE_BIT(i))
            ret[n++] = page->table->states[i];
    return n;
}

/* The parts of a merged list have the same parameters. Returns the one of the owner, or 0. */
static int sql_list_part(struct sql_builder *s, const struct row_page *page, const char *phase)
{
    s->params = 0;
    buf_adds(&s->text, "SELECT ");
    sql_columns(s, page->table);
    buf_addf(&s->text, " FROM %s%s WHERE 1", sql_is_by_metadata(page) ? "sandbox_metadata AS pair CROSS JOIN " : "",
             page->table->name);
    if (sql_is_by_metadata(page))
        buf_adds(&s->text, " AND id = pair.sandbox");
    int owner = sql_where_owner(s, page->table, page->owner);
    if (phase)
        buf_addf(&s->text, " AND coalesce(outcome, state) = '%s'", phase);
    if (page->id[0])
        sql_param(s, page->table == &row_key ? " AND user = " : " AND sandbox = ");
    if (page->name)
        sql_param(s, " AND name = ");
    if (page->template)
        sql_param(s, " AND template = ");
    sql_where_states(s, page->table, page->states);
    sql_where_outcomes(s, page->outcomes);
    sql_where_metadata(s, page, owner);
    sql_where_after(s, page);
    return owner;
}

char *db_list_sql(const struct row_page *page, int *ret_owner)
{
    const char *phases[OUTCOME_COUNT + STORE_EXECUTION_STATES];
    size_t n = sql_list_phases(page, phases);
    struct sql_builder s = { 0 };

    *ret_owner = sql_list_part(&s, page, n ? phases[0] : NULL);
    for (size_t i = 1; i < n; i++) {
        buf_adds(&s.text, " UNION ALL ");
        sql_list_part(&s, page, phases[i]);
    }
    sql_order(&s, page);
    sql_param(&s, " LIMIT ");
    return s.text.data;
}

static void db_bind_list(sqlite3_stmt *st, const struct row_page *page, int i)
{
    if (page->id[0])
        db_bind_text(st, ++i, page->id);
    if (page->name)
        db_bind_text(st, ++i, page->name);
    if (page->template)
        db_bind_text(st, ++i, page->template);
    for (size_t k = 0; page->meta && page->meta[k]; k++)
        db_bind_text(st, ++i, page->meta[k]);
    if (page->table == &row_event)
        db_bind_u64(st, ++i, page->after);
    else if (page->has_cursor && !page->table->by_name)
        db_bind_u64(st, ++i, page->cursor.created_ms);
    if (page->has_cursor)
        db_bind_text(st, ++i, page->cursor.id);
    db_bind_u64(st, ++i, page->limit + 1);
}

int db_list(struct store_db *base, const struct row_page *page, struct row_list *ret, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    int owner;
    auto_free char *sql = db_list_sql(page, &owner);
    sqlite3_stmt *st = db_statement(db, sql, err);

    if (!st)
        return -1;
    if (owner)
        db_bind_text(st, owner, page->owner);
    db_bind_list(st, page, owner);
    return db_read_rows(db, page->table, st, "reading a list", ret, err);
}
