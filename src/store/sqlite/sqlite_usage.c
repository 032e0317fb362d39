/* Usage in SQLite: adding to one row, and sums over rows. */
#include "store/sqlite/sqlite.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#define KEY_COLUMNS 4u /* of row_usage: the columns that a report can be grouped by */

static char *sql_add_usage(void)
{
    struct sql_builder s = { 0 };

    sql_insert(&s, &row_usage);
    buf_addf(&s.text, " ON CONFLICT (%s) DO UPDATE SET ", row_usage.primary_key);
    for (size_t i = KEY_COLUMNS; i < row_usage.n; i++) {
        const char *column = row_usage.columns[i].name;

        if (str_eq(column, "memory_peak"))
            buf_addf(&s.text, "%s = max(%s, excluded.%s)", column, column, column);
        else
            buf_addf(&s.text, "%s = %s + excluded.%s, ", column, column, column);
    }
    return s.text.data;
}

int db_add_usage(struct store_db *base, const struct store_usage *u, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);

    if (!db->add_usage_sql)
        db->add_usage_sql = sql_add_usage();
    sqlite3_stmt *st = db_statement(db, db->add_usage_sql, err);
    if (!st)
        return -1;
    db_bind_row(st, &row_usage, u);
    return db_step(db, st, "counting usage", err);
}

/* Over many years a sum may exceed an INTEGER; total() is then accurate to 15 digits, and not an
 * error. */
static void sql_usage_columns(struct buf *out, const struct usage_filter *f)
{
    static const struct {
        unsigned bit;
        const char *none;
    } keys[KEY_COLUMNS] = { { STORE_USAGE_BY_HOUR, "0" },
                            { STORE_USAGE_BY_TENANT, "''" },
                            { STORE_USAGE_BY_USER, "''" },
                            { STORE_USAGE_BY_SANDBOX, "''" } };

    for (size_t i = 0; i < row_usage.n; i++) {
        const char *column = row_usage.columns[i].name;

        if (i < KEY_COLUMNS)
            buf_addf(out, "%s, ", f->by & keys[i].bit ? column : keys[i].none);
        else if (str_eq(column, "memory_peak"))
            buf_addf(out, "coalesce(max(%s), 0)", column);
        else
            buf_addf(out, "CAST(total(%s) AS INTEGER), ", column);
    }
    buf_adds(out, " FROM usage WHERE hour_ms >= ?1 AND hour_ms < ?2 AND (?3 IS NULL OR owner = ?3)"
                  " AND (?4 IS NULL OR sandbox = ?4) AND (?5 IS NULL OR created_by = ?5)");
    for (size_t i = 0, n = 0; i < KEY_COLUMNS; i++)
        if (f->by & keys[i].bit)
            buf_addf(out, "%s%s", n++ ? ", " : " GROUP BY ", row_usage.columns[i].name);
}

int db_sum_usage(struct store_db *base, const struct usage_filter *f, uint32_t limit, struct row_list *ret,
                 struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    auto_buf sql = { 0 };

    buf_adds(&sql, "SELECT ");
    sql_usage_columns(&sql, f);
    buf_adds(&sql, f->by ? " ORDER BY 1, 2, 3, 4 LIMIT ?6" : " LIMIT ?6");
    sqlite3_stmt *st = db_statement(db, sql.data, err);
    if (!st)
        return -1;
    db_bind_u64(st, 1, f->from_ms);
    db_bind_u64(st, 2, f->to_ms);
    db_bind_text(st, 3, str_eq(f->owner, STORE_ANY_OWNER) ? NULL : f->owner);
    db_bind_text(st, 4, f->sandbox[0] ? f->sandbox : NULL);
    db_bind_text(st, 5, f->created_by[0] ? f->created_by : NULL);
    db_bind_u64(st, 6, limit);
    return db_read_rows(db, &row_usage, st, "reading usage", ret, err);
}
