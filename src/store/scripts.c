/* Scripts as calls, and the layout of their rows. A second layout of the same table omits the code,
 * which most answers do not need. */
#include "store/scripts.h"

#include "core/base/str.h"
#include "store/requests.h"

#include <stdio.h>

#define COLUMN(member, kind, ...)                                                               \
    {                                                                                           \
        .name = #member, .type = kind, .at = offsetof(struct store_script, member), __VA_ARGS__ \
    }
#define FIXED(member, ...) COLUMN(member, ROW_FIXED, .cap = sizeof(((struct store_script *)0)->member), __VA_ARGS__)
#define HEAD_COLUMNS                                                                                                  \
    FIXED(id), FIXED(owner), COLUMN(digest, ROW_HASH), COLUMN(language, ROW_TEXT), COLUMN(description, ROW_TEXT),     \
        COLUMN(size_bytes, ROW_U64), COLUMN(uses, ROW_U64, .set = STORE_SCRIPT_SET_USE), COLUMN(created_ms, ROW_U64), \
        COLUMN(last_used_ms, ROW_U64, .set = STORE_SCRIPT_SET_USE),                                                   \
        FIXED(last_execution, .optional = true, .set = STORE_SCRIPT_SET_USE), COLUMN(created_by, ROW_TEXT)

static const struct row_column script_head_columns[] = { HEAD_COLUMNS };
static const struct row_column script_columns[] = { HEAD_COLUMNS, COLUMN(code, ROW_TEXT) };

#define TABLE(c)                                                                                                      \
    {                                                                                                                 \
        .name = "scripts", .display_name = "script", .size = sizeof(struct store_script), .key = "id", .owned = true, \
        .columns = (c), .n = ARRAY_LEN(c)                                                                             \
    }

const struct row_table row_script = TABLE(script_columns);
const struct row_table row_script_head = TABLE(script_head_columns);

static int store_script_check(const struct store_script *row, struct err *err)
{
    if (!row->language || !row->code)
        return err_set(err, ERR_INVALID, "script: a script has a language and code");
    return row_check_text("description", row->description, STORE_SCRIPT_DESCRIPTION_MAX, err);
}

struct store_request *store_script_keep(struct store *st, const struct store_script *row,
                                        const struct store_script_quota *quota, store_script_kept_fn *done, void *arg)
{
    struct store_request *c = store_row_request(STORE_OP_SCRIPT_KEEP, &row_script, row, ANY(done), arg);
    struct err err = { 0 };

    if (!c->rejected && store_script_check(row, &err) < 0)
        store_request_reject(c, &err);
    c->script_quota = *quota;
    return store_request_submit(st, c);
}

struct store_request *store_script_get(struct store *st, const char *owner, const char *id, store_script_fn *done,
                                       void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_GET, &row_script, owner, id, ANY(done), arg));
}

struct store_request *store_script_find(struct store *st, const char *owner, const uint8_t digest[STORE_HASH_LEN],
                                        store_script_fn *done, void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_SCRIPT_FIND, &row_script, owner, "", ANY(done), arg);

    memcpy(c->hash, digest, sizeof(c->hash));
    return store_request_submit(st, c);
}

struct store_request *store_script_delete(struct store *st, const char *owner, const char *id, store_done_fn *done,
                                          void *arg)
{
    return store_request_submit(st, store_get_request(STORE_OP_DELETE, &row_script, owner, id, ANY(done), arg));
}

/* --- search --- */

/* 4 hexadecimal digits of matches, 12 of the last use, and the id. */
#define MATCHES_DIGITS 4
#define TIME_DIGITS 12
#define CURSOR_DIGITS (MATCHES_DIGITS + TIME_DIGITS)

static void script_cursor_format(const struct script_cursor *c, char ret[STORE_CURSOR_SIZE])
{
    snprintf(ret, STORE_CURSOR_SIZE, "%0*" PRIx64 "%0*" PRIx64 "%s", MATCHES_DIGITS, c->matches, TIME_DIGITS,
             c->last_used_ms & ((UINT64_C(1) << 48) - 1), c->id);
}

static int script_cursor_parse(const char *text, struct script_cursor *ret, struct err *err)
{
    static const char digits[] = "0123456789abcdef";
    struct script_cursor c = { 0 };

    for (size_t i = 0; i < CURSOR_DIGITS; i++) {
        const char *d = text[i] ? strchr(digits, text[i]) : NULL;
        uint64_t *number = i < MATCHES_DIGITS ? &c.matches : &c.last_used_ms;

        if (!d)
            return err_set(err, ERR_INVALID, "cursor: not a cursor; use the nextCursor of the previous page");
        *number = *number << 4 | (uint64_t)(d - digits);
    }
    if (!str_copy(c.id, sizeof(c.id), text + CURSOR_DIGITS) || !id_valid(c.id, "sc"))
        return err_set(err, ERR_INVALID, "cursor: not a cursor of this list; use the nextCursor of the previous page");
    *ret = c;
    return 0;
}

struct store_request *store_script_search(struct store *st, const struct store_script_search *q, store_scripts_fn *done,
                                          void *arg)
{
    struct store_request *c = store_get_request(STORE_OP_SCRIPT_SEARCH, &row_script_head, q->owner,
                                                q->language ? q->language : "", ANY(done), arg);
    struct err err = { 0 };

    if (!c->rejected && (row_check_text("search", q->text, STORE_SCRIPT_SEARCH_MAX, &err) < 0 ||
                         (q->cursor && script_cursor_parse(q->cursor, &c->script_cursor, &err) < 0)))
        store_request_reject(c, &err);
    if (!c->rejected)
        c->text = str_dup(q->text ? q->text : "");
    c->page.limit = q->limit == 0 ? STORE_LIST_DEFAULT : (uint32_t)min_u64(q->limit, STORE_LIST_MAX);
    return store_request_submit(st, c);
}

void store_script_request_answer(struct store_request *c, const struct err *err)
{
    const void *rows = err ? NULL : c->rows.rows;
    char next[STORE_CURSOR_SIZE];

    if (c->op == STORE_OP_SCRIPT_KEEP) {
        ((store_script_kept_fn *)c->done)(c->arg, err, rows, !err && c->row_created, err ? 0 : c->total);
        return;
    }
    if (!err && c->more)
        script_cursor_format(&c->script_next, next);
    ((store_scripts_fn *)c->done)(c->arg, err, rows, err ? 0 : c->rows.n, err ? 0 : c->total,
                                  !err && c->more ? next : NULL);
}
