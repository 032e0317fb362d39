/* memory_db.h - a backend of the store in memory, with the statements that the rules on tenants and
 * usage need. It shows how little a backend has to know, and counts the statements that run. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/rules/rules.h"

static const struct row_table *const memory_db_tables[] = { &row_sandbox, &row_execution, &row_key,   &row_tenant,
                                                            &row_user,    &row_role,      &row_usage, &row_removed_user,
                                                            &row_script,  &row_secret };

struct memory_db {
    struct store_db base;
    struct row_list rows[ARRAY_LEN(memory_db_tables)];
    size_t statements;
    bool undone; /* a savepoint was reverted; the rows stay, so such a test must not read them */
};

/* The number of the table that holds the rows of t, which may have fewer columns. */
static inline size_t memory_db_home(const struct row_table *t)
{
    for (size_t i = 0; i < ARRAY_LEN(memory_db_tables); i++)
        if (str_eq(memory_db_tables[i]->name, t->name))
            return i;
    fail_msg("no table %s", t->name);
    return 0;
}

static inline void memory_db_copy_column(const struct row_column *to, void *dst, const struct row_column *from,
                                         const void *src)
{
    switch (to->type) {
    case ROW_FIXED:
        assert_true(str_copy(ROW_AT(char, dst, to), to->cap, ROW_CONST_AT(char, src, from)));
        break;
    case ROW_TEXT: {
        const char *text = *ROW_CONST_AT(char *, src, from);

        free(*ROW_AT(char *, dst, to));
        *ROW_AT(char *, dst, to) = text ? str_dup(text) : NULL;
        break;
    }
    case ROW_U64:
        *ROW_AT(uint64_t, dst, to) = *ROW_CONST_AT(uint64_t, src, from);
        break;
    case ROW_BOOL:
        *ROW_AT(bool, dst, to) = *ROW_CONST_AT(bool, src, from);
        break;
    case ROW_HASH:
        memcpy(ROW_AT(char, dst, to), ROW_CONST_AT(char, src, from), STORE_HASH_LEN);
        break;
    default:
        *ROW_AT(int32_t, dst, to) = *ROW_CONST_AT(int32_t, src, from);
    }
}

/* Copies the columns that both tables have; set: only those that it names. */
static inline void memory_db_copy(const struct row_table *to, void *dst, const struct row_table *from, const void *src,
                                  uint32_t set)
{
    for (size_t i = 0; i < from->n; i++) {
        const struct row_column *c = row_column(to, from->columns[i].name);

        if (c && (!set || from->columns[i].set & set))
            memory_db_copy_column(c, dst, &from->columns[i], src);
    }
}

static inline uint64_t memory_db_number(const struct row_column *c, const void *row)
{
    return c->type == ROW_U64    ? *ROW_CONST_AT(uint64_t, row, c)
           : c->type == ROW_BOOL ? *ROW_CONST_AT(bool, row, c)
                                 : *ROW_CONST_AT(uint32_t, row, c);
}

static inline bool memory_db_is(const struct row_column *c, const struct row_condition *cond, const void *row)
{
    const char *text = c->type == ROW_FIXED ? ROW_CONST_AT(char, row, c) : NULL;

    if (c->type == ROW_HASH)
        return memcmp(ROW_CONST_AT(char, row, c), cond->value, STORE_HASH_LEN) == 0;
    if (c->type == ROW_TEXT)
        text = *ROW_CONST_AT(char *, row, c);
    return c->type == ROW_FIXED || c->type == ROW_TEXT ? text && str_eq(text, cond->value)
                                                       : memory_db_number(c, row) == cond->number;
}

static inline bool memory_db_matches(const struct row_query *q, size_t home, const void *row)
{
    for (const struct row_condition *cond = q->where; cond->column; cond++) {
        const struct row_column *c = row_column(memory_db_tables[home], cond->column);
        bool good = true;

        if (cond->test == ROW_IS || (cond->test == ROW_OWNED_BY && !str_eq(cond->value, STORE_ANY_OWNER)))
            good = memory_db_is(c, cond, row);
        else if (cond->test == ROW_IS_NOT)
            good = !memory_db_is(c, cond, row);
        else if (cond->test == ROW_BELOW)
            good = memory_db_number(c, row) < cond->number;
        else if (cond->test == ROW_STATE_IN)
            good = !cond->number || cond->number & STORE_BIT(memory_db_number(c, row));
        if (!good)
            return false;
    }
    return true;
}

static inline int memory_db_insert(struct store_db *base, const struct row_table *t, const void *row,
                                   uint64_t *ret_seq UNUSED, struct err *err UNUSED)
{
    struct memory_db *db = (struct memory_db *)(void *)base;
    size_t home = memory_db_home(t);

    db->statements++;
    memory_db_copy(memory_db_tables[home], row_list_add(memory_db_tables[home], &db->rows[home]), t, row, 0);
    return 0;
}

/* No test replaces a row twice, so the row is inserted. */
static inline int memory_db_replace(struct store_db *base, const struct row_table *t, const void *row,
                                    struct row_list *ret UNUSED, struct err *err)
{
    return memory_db_insert(base, t, row, NULL, err);
}

/* Runs `each` on every row that matches; true: the row is removed. */
static inline uint64_t memory_db_each(struct store_db *base, const struct row_query *q,
                                      bool (*each)(const struct row_table *home, void *row, void *arg), void *arg)
{
    struct memory_db *db = (struct memory_db *)(void *)base;
    size_t home = memory_db_home(q->table);
    const struct row_table *t = memory_db_tables[home];
    struct row_list *l = &db->rows[home];
    uint64_t n = 0;

    db->statements++;
    for (size_t i = 0; i < l->n; i++) {
        void *row = l->rows + i * t->size;

        if (!memory_db_matches(q, home, row))
            continue;
        n++;
        if (each && each(t, row, arg)) {
            row_done(t, row);
            memmove(row, (char *)row + t->size, (--l->n - i--) * t->size);
        }
    }
    return n;
}

struct memory_db_change {
    const struct row_table *t;
    const void *row;
    uint32_t set;
    struct row_list *ret;
};

static inline bool memory_db_change_row(const struct row_table *home, void *row, void *arg)
{
    struct memory_db_change *change = arg;

    if (change->row)
        memory_db_copy(home, row, change->t, change->row, change->set);
    if (change->ret)
        memory_db_copy(change->t, row_list_add(change->t, change->ret), home, row, 0);
    return false;
}

static inline int memory_db_select(struct store_db *base, const struct row_query *q, struct row_list *ret,
                                   struct err *err UNUSED)
{
    memory_db_each(base, q, memory_db_change_row, &(struct memory_db_change){ .t = q->table, .ret = ret });
    return 0;
}

static inline int memory_db_count(struct store_db *base, const struct row_query *q, uint64_t *ret,
                                  struct err *err UNUSED)
{
    *ret = memory_db_each(base, q, NULL, NULL);
    return 0;
}

static inline int memory_db_update(struct store_db *base, const struct row_query *q, const void *row, uint32_t set,
                                   struct row_list *ret, uint64_t *ret_n, struct err *err UNUSED)
{
    *ret_n = memory_db_each(base, q, memory_db_change_row, &(struct memory_db_change){ q->table, row, set, ret });
    return 0;
}

static inline bool memory_db_drop_row(const struct row_table *home UNUSED, void *row UNUSED, void *arg UNUSED)
{
    return true;
}

static inline int memory_db_remove(struct store_db *base, const struct row_query *q, uint64_t *ret_n,
                                   struct err *err UNUSED)
{
    *ret_n = memory_db_each(base, q, memory_db_drop_row, NULL);
    return 0;
}

static inline int memory_db_add_usage(struct store_db *base, const struct store_usage *u, struct err *err UNUSED)
{
    struct memory_db *db = (struct memory_db *)(void *)base;
    struct row_list *l = &db->rows[memory_db_home(&row_usage)];

    db->statements++;
    usage_report_add(l, u);
    usage_report_finish(l, SIZE_MAX);
    return 0;
}

/* The rows of a filter, without grouping. */
static inline int memory_db_sum_usage(struct store_db *base, const struct usage_filter *f UNUSED, uint32_t limit UNUSED,
                                      struct row_list *ret, struct err *err)
{
    return memory_db_select(base, &(struct row_query){ .table = &row_usage }, ret, err);
}

static inline int memory_db_savepoint(struct store_db *base, struct err *err UNUSED)
{
    ((struct memory_db *)(void *)base)->statements++;
    return 0;
}

static inline void memory_db_undo(struct store_db *base)
{
    ((struct memory_db *)(void *)base)->undone = true;
}

static inline bool memory_db_has_space(struct store_db *base UNUSED)
{
    return true;
}

static const struct store_backend memory_backend = { .savepoint = memory_db_savepoint,
                                                     .release = memory_db_savepoint,
                                                     .undo = memory_db_undo,
                                                     .insert = memory_db_insert,
                                                     .replace = memory_db_replace,
                                                     .select = memory_db_select,
                                                     .count = memory_db_count,
                                                     .update = memory_db_update,
                                                     .remove = memory_db_remove,
                                                     .add_usage = memory_db_add_usage,
                                                     .sum_usage = memory_db_sum_usage,
                                                     .has_space = memory_db_has_space };

static inline void memory_db_init(struct memory_db *db)
{
    *db = (struct memory_db){ .base = { &memory_backend } };
}

static inline void memory_db_done(struct memory_db *db)
{
    for (size_t i = 0; i < ARRAY_LEN(memory_db_tables); i++)
        row_list_done(memory_db_tables[i], &db->rows[i]);
}

static inline size_t memory_db_size(const struct memory_db *db, const struct row_table *t)
{
    return db->rows[memory_db_home(t)].n;
}

/* Runs a call whose arguments the caller owns; returns the error, or ERR_NONE. */
static inline enum err_id memory_db_run(struct memory_db *db, struct store_request *c)
{
    struct err err = { 0 };

    db->undone = false;
    return store_run(&db->base, c, &err) < 0 ? err.id : ERR_NONE;
}
