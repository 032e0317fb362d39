/* backend.h - the interface between the store and a database. Only src/store includes it.
 *
 * store.c owns the queue, the thread and the answers. A backend is a blocking handle that only
 * one thread uses at a time. `run` happens inside a transaction that may hold many calls: a call
 * that fails must leave no change in the transaction. Results are written into the request. */
#pragma once

#include "store/cursor.h"
#include "store/rows.h"

enum store_op {
    STORE_OP_INSERT,
    STORE_OP_GET,
    STORE_OP_UPDATE,
    STORE_OP_LIST,
    STORE_OP_LOGIN,
    STORE_OP_REMOVE, /* tenants, users and roles */
    STORE_OP_EXECUTION_AGES,
    STORE_OP_KEY_TOUCH,
    STORE_OP_PUT, /* templates and pools: creates or replaces */
    STORE_OP_DELETE,
    STORE_OP_IDEM_CLAIM,
    STORE_OP_IDEM_FINISH,
    STORE_OP_IDEM_RENAME,
    STORE_OP_IDEM_DROP,
    STORE_OP_META_GET,
    STORE_OP_META_PUT,
    STORE_OP_EVENT_RANGE,
    STORE_OP_USAGE_RECORD_CPU,
    STORE_OP_USAGE_ADD,
    STORE_OP_USAGE_LIST,
    STORE_OP_BUDGET_PUT,
    STORE_OP_BUDGET_LIST,
    STORE_OP_COUNT,
    STORE_OP_GC,
    STORE_OP_CHECK, /* from here on: in steps, outside of a transaction */
    STORE_OP_BACKUP,
};

struct store_request {
    struct store_request *next;
    enum store_op op;
    const struct row_table *table; /* describes row and rows; NULL for operations without rows */

    /* Arguments. */
    void *row;
    char owner[STORE_OWNER_MAX + 1]; /* STORE_ANY_OWNER: no owner condition in WHERE */
    char *id;                        /* also the name of a template or meta text, a client's key, or a path */
    char *text;
    int32_t status;
    uint32_t set;
    struct store_condition condition;
    uint32_t live_max;
    bool only_if_no_keys, keep_admin, from_identity_provider;
    uint32_t states, outcomes;
    char filter_id[ID_SIZE]; /* LIST: rows of this sandbox; keys: of this user */
    char *filter_name;       /* LIST: sandboxes with this name */
    char *filter_template;   /* LIST: sandboxes of this template */
    char **meta;             /* key, value, ..., NULL */
    struct store_cursor cursor;
    bool has_cursor, oldest_first;
    uint32_t limit;
    uint64_t after;
    uint8_t hash[STORE_HASH_LEN];
    struct store_key_use *key_uses;
    size_t nkey_uses;
    struct store_retention retention;
    struct store_cpu_reading *cpu_readings;
    struct store_usage *usage_sums;
    size_t nusage;
    uint64_t from, to, now;
    char usage_sandbox[ID_SIZE];          /* only usage of this sandbox */
    char usage_user[STORE_OWNER_MAX + 1]; /* only usage of this user */

    /* Results. */
    struct row_list rows;
    bool more;
    bool row_created;
    uint64_t seq;
    uint64_t first; /* start of the range that ends at seq */
    char *value;
    struct store_counts counts;
    char (*removed)[ID_SIZE];
    struct store_gc_report gc;
    bool failed;
    struct err err;

    /* The callback. */
    void (*done)(void);
    void *arg;
    size_t bytes;   /* memory held by the arguments */
    bool rejected;  /* failed before it reached the backend */
    void *progress; /* owned by the backend, for calls in steps */
};

struct store_backend {
    const char *name; /* for messages */
    int (*open)(const struct store_settings *set, void **ret, struct err *err);
    void (*close)(void *db);
    int (*begin)(void *db, struct err *err);
    int (*commit)(void *db, struct err *err);
    void (*rollback)(void *db);       /* may be called without a transaction */
    bool (*in_transaction)(void *db); /* false after begin: the database rolled it back by itself */
    int (*run)(void *db, struct store_request *c, struct err *err);
    /* The disk is full: releases a reserve that is kept for calls which end or remove rows, and
     * any other space it can. False: nothing was left to release. While the reserve is used up,
     * calls that insert rows are refused with ERR_STORE_FULL. */
    bool (*make_room)(void *db);
    int (*check)(void *db, struct store_request *c, struct err *err); /* one step; 1: there is more to do */
    int (*check_exists)(const struct store_settings *set, struct err *err);

    /* Optional; NULL: this database has tools of its own for backups. */
    int (*backup)(void *db, struct store_request *c, struct err *err); /* one step; 1: there is more to do */
    void (*abandon_backup)(void *db, struct store_request *c);         /* may be called before the first step */
    int (*restore)(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err);
};

extern const struct store_backend store_sqlite;

/* The operation inserts rows, and is refused when the disk is full. */
bool store_op_needs_space(enum store_op op);

/* Drops the results of a run whose transaction was lost. */
void store_request_reset(struct store_request *c);
