/* backend.h - what a database has to do for the store. Only src/store includes this.
 *
 * store.c owns the queue, the thread and the answers; a backend is a handle that one thread at a time uses, and that
 * blocks. `run` happens inside a transaction that may hold many calls: a call that fails must leave nothing behind in
 * it. The results go into the call. */
#pragma once

#include "store/cursor.h"
#include "store/rows.h"

enum store_op {
    STORE_OP_INSERT,
    STORE_OP_GET,
    STORE_OP_UPDATE,
    STORE_OP_LIST,
    STORE_OP_LOGIN,
    STORE_OP_REMOVE, /* of tenants, users and roles */
    STORE_OP_EXECUTION_AGES,
    STORE_OP_KEY_TOUCH,
    STORE_OP_PUT, /* of templates and pools: makes or replaces */
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
    STORE_OP_CHECK, /* from here on: in steps, outside a transaction */
    STORE_OP_BACKUP,
};

struct store_request {
    struct store_request *next;
    enum store_op op;
    const struct row_table *table; /* of row and of rows; NULL for ops that have neither */

    /* what was asked */
    void *row;
    char owner[STORE_OWNER_MAX + 1]; /* STORE_ANY_OWNER lifts the WHERE */
    char *id;                        /* also a template's name, a meta name, a client's key, a path */
    char *text;
    int32_t status;
    uint32_t set;
    struct store_condition condition;
    uint32_t live_max;
    bool only_if_no_keys, keep_admin, from_identity_provider;
    uint32_t states;
    char filter_id[ID_SIZE]; /* LIST: of this sandbox; keys: of this user */
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
    char usage_sandbox[ID_SIZE];          /* usage of this sandbox */
    char usage_user[STORE_OWNER_MAX + 1]; /* usage of this user */

    /* what came of it */
    struct row_list rows;
    bool more;
    bool row_created;
    uint64_t seq;
    uint64_t first; /* of a range that ends at seq */
    char *value;
    struct store_counts counts;
    char (*removed)[ID_SIZE];
    struct store_gc_report gc;
    bool failed;
    struct err err;

    /* the answer */
    void (*done)(void);
    void *arg;
    size_t bytes;   /* held by what was asked */
    bool rejected;  /* failed before it reached the backend */
    void *progress; /* the backend's, of a call in steps */
};

struct store_backend {
    const char *name;
    int (*open)(const struct store_settings *set, void **ret, struct err *err);
    void (*close)(void *db);
    int (*begin)(void *db, struct err *err);
    int (*commit)(void *db, struct err *err);
    void (*rollback)(void *db);       /* also when there is nothing to roll back */
    bool (*in_transaction)(void *db); /* false after begin: the database gave it up by itself */
    int (*run)(void *db, struct store_request *c, struct err *err);
    /* The disk is full: gives up a reserve that was kept for calls which end or forget something, and what else it can
     * spare. False: nothing was left to give. While the reserve is spent, calls that bring something new are refused
     * with ERR_STORE_FULL. */
    bool (*make_room)(void *db);
    int (*step)(void *db, struct store_request *c, struct err *err); /* 1: there is more to do */
    void (*abandon)(void *db, struct store_request *c);              /* ends a call in steps before its time */
    int (*restore)(const struct store_settings *set, const char *backup, struct err *err);
};

extern const struct store_backend store_sqlite;

/* Brings something new into the store, and may wait when its disk is full. */
bool store_op_needs_space(enum store_op op);

/* Forgets results of a run whose transaction was lost. */
void store_request_reset(struct store_request *c);
