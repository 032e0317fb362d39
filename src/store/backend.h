/* backend.h - the interface between the store and a database. Only src/store includes it.
 *
 * A backend is a set of primitive statements on rows. It knows no rule about tenants, usage or
 * retention: those are in store/rules/, in C, and are the same for every backend. A statement
 * that a backend cannot build from a row table has a function of its own here, which says
 * completely what it reads or changes.
 *
 * store.c owns the queue, the thread and the answers. A backend is a blocking handle that only one
 * thread uses at a time. */
#pragma once

#include "store/cursor.h"
#include "store/rows.h"

struct store_request;

enum row_test {
    ROW_IS,       /* the column has this value */
    ROW_IS_NOT,   /* it has another value */
    ROW_BELOW,    /* a number: it is below this one */
    ROW_OWNED_BY, /* it is this owner; STORE_ANY_OWNER, or a table without owners: any row */
    ROW_STATE_IN, /* the state is in this set of STORE_BIT(); 0: any state */
};

/* `value` is the text or the hash that a column is compared with; `number` the number, the state
 * or the set of states. */
struct row_condition {
    const char *column;
    enum row_test test;
    const void *value;
    uint64_t number;
};

#define ROW_CONDITIONS_MAX 5

/* The rows of a table that meet every condition. */
struct row_query {
    const struct row_table *table;
    struct row_condition where[ROW_CONDITIONS_MAX + 1]; /* ends with a condition without a column */
    bool ordered;                                       /* select: by key */
};

/* A page of a list, with its filters. */
struct row_page {
    const struct row_table *table;
    char owner[STORE_OWNER_MAX + 1]; /* STORE_ANY_OWNER: all */
    uint32_t states, outcomes;
    char id[ID_SIZE]; /* rows of this sandbox; keys: of this user; "": all */
    char *name;       /* sandboxes with this name */
    char *template;   /* sandboxes of this template */
    char **meta;      /* key, value, ..., NULL */
    struct store_cursor cursor;
    bool has_cursor, oldest_first;
    uint64_t after; /* events with a higher number */
    uint32_t limit;
};

/* Usage of whole hours. */
struct usage_filter {
    char owner[STORE_OWNER_MAX + 1];      /* STORE_ANY_OWNER: all */
    char sandbox[ID_SIZE];                /* "": all */
    char created_by[STORE_OWNER_MAX + 1]; /* "": all */
    uint64_t from_ms, to_ms;
    unsigned by; /* set of STORE_USAGE_BY_ */
};

/* Rows that retention removes, the oldest first. */
enum store_old {
    STORE_OLD_EXECUTIONS,    /* that have ended, by the later one of end and creation */
    STORE_OLD_SANDBOXES,     /* that have ended and have no execution left, by their end; with their events */
    STORE_OLD_EVENTS,        /* by time */
    STORE_OLD_FIRST_EVENTS,  /* by number, whatever their time */
    STORE_OLD_IDEMPOTENCY,   /* by time */
    STORE_OLD_USAGE,         /* by hour */
    STORE_OLD_SANDBOX_USAGE, /* usage of single sandboxes, by hour */
    STORE_OLD_SCRIPTS,       /* by the last use */
};

/* An open database; the first member of the handle of every backend. */
struct store_db {
    const struct store_backend *ops;
};

struct store_backend {
    const char *name; /* for messages */
    int (*open)(const struct store_settings *set, struct store_db **ret, struct err *err);
    void (*close)(struct store_db *db);
    int (*check_exists)(const struct store_settings *set, struct err *err);

    /* --- transactions; every statement below runs in one --- */
    int (*begin)(struct store_db *db, struct err *err);
    int (*commit)(struct store_db *db, struct err *err);
    void (*rollback)(struct store_db *db);       /* may be called without a transaction */
    bool (*in_transaction)(struct store_db *db); /* false after begin: the database rolled it back by itself */
    /* One savepoint at a time: `undo` reverts what changed since it, and removes it; `release` only
     * removes it. */
    int (*savepoint)(struct store_db *db, struct err *err);
    int (*release)(struct store_db *db, struct err *err);
    void (*undo)(struct store_db *db);

    /* --- rows. Results are appended to *ret, which may be NULL for no rows --- */
    /* ret_seq: the generated number of the row, or NULL. ERR_EXISTS: its key is taken. */
    int (*insert)(struct store_db *db, const struct row_table *t, const void *row, uint64_t *ret_seq, struct err *err);
    /* Does nothing if the key is taken. */
    int (*insert_missing)(struct store_db *db, const struct row_table *t, const void *row, bool *ret_inserted,
                          struct err *err);
    /* Inserts the row, or replaces all columns of the row with its key except created_ms, and
     * increments its generation. */
    int (*replace)(struct store_db *db, const struct row_table *t, const void *row, struct row_list *ret,
                   struct err *err);
    int (*select)(struct store_db *db, const struct row_query *q, struct row_list *ret, struct err *err);
    int (*count)(struct store_db *db, const struct row_query *q, uint64_t *ret, struct err *err);
    /* Sets the columns `set` to the values in row. *ret_n: number of updated rows. */
    int (*update)(struct store_db *db, const struct row_query *q, const void *row, uint32_t set, struct row_list *ret,
                  uint64_t *ret_n, struct err *err);
    int (*remove)(struct store_db *db, const struct row_query *q, uint64_t *ret_n, struct err *err);
    /* At most page->limit + 1 rows, so that the caller knows whether there is a next page. */
    int (*list)(struct store_db *db, const struct row_page *page, struct row_list *ret, struct err *err);

    /* --- usage --- */
    /* Adds the figures to the row of the same hour, tenant, user and sandbox; memory_peak becomes
     * the higher one. */
    int (*add_usage)(struct store_db *db, const struct store_usage *u, struct err *err);
    /* Sums, ordered by hour, tenant, user, sandbox; the columns that `by` does not name are "" or
     * 0. At most `limit` rows. */
    int (*sum_usage)(struct store_db *db, const struct usage_filter *f, uint32_t limit, struct row_list *ret,
                     struct err *err);

    /* --- scripts --- */
    /* The number of scripts, and the bytes of their code. */
    int (*sum_scripts)(struct store_db *db, const char *owner, uint64_t *ret_count, uint64_t *ret_bytes,
                       struct err *err);
    /* Removes the script of the owner whose last use is the oldest, other than `keep`. *ret_bytes:
     * size of its code. *ret_n: 0 if there is no other script. */
    int (*remove_unused_script)(struct store_db *db, const char *owner, const char *keep, uint64_t *ret_bytes,
                                uint64_t *ret_n, struct err *err);

    /* --- retention --- */
    /* Removes at most `limit` rows from before a time. *ret: what is known of them afterwards, as
     * row_removed for executions, row_usage for usage of single sandboxes; NULL for all others. */
    int (*remove_oldest)(struct store_db *db, enum store_old kind, uint64_t before_ms, uint32_t limit,
                         struct row_list *ret, uint64_t *ret_n, struct err *err);
    /* Returns some free space to the file system. *ret_more: it should be called again. */
    int (*reclaim)(struct store_db *db, bool *ret_more, struct err *err);

    /* --- figures --- */
    int (*count_by_state)(struct store_db *db, const struct row_table *t, const char *owner, uint64_t *counts,
                          struct err *err);
    int (*output_bytes)(struct store_db *db, const char *owner, uint64_t *ret, struct err *err);
    int (*used_bytes)(struct store_db *db, uint64_t *ret, struct err *err);
    /* row_age: executions of the hour before now_ms, by tenant and age in minutes. */
    int (*execution_ages)(struct store_db *db, uint64_t now_ms, struct row_list *ret, struct err *err);
    /* *first: of the events that are stored; 0: none. *last: ever assigned, never again. */
    int (*event_range)(struct store_db *db, uint64_t *first, uint64_t *last, struct err *err);

    /* --- space --- */
    /* False: only calls that end or remove rows are accepted (ERR_STORE_FULL). */
    bool (*has_space)(struct store_db *db);
    /* The disk is full: releases a reserve that is kept for calls which end or remove rows, and
     * any other space it can. False: nothing was left to release. */
    bool (*make_room)(struct store_db *db);

    /* --- calls in steps, outside of a transaction --- */
    int (*check)(struct store_db *db, struct store_request *c, struct err *err); /* one step; 1: there is more to do */

    /* Optional; NULL: this database has tools of its own for backups. */
    int (*backup)(struct store_db *db, struct store_request *c, struct err *err); /* one step; 1: there is more to do */
    void (*abandon_backup)(struct store_db *db, struct store_request *c); /* may be called before the first step */
    int (*restore)(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err);
};

extern const struct store_backend store_sqlite;
