/* requests.h - a call to the store, from its arguments to its answer. */
#pragma once

#include "store/backend.h"

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
    STORE_OP_SCRIPT_KEEP,
    STORE_OP_SCRIPT_FIND,
    STORE_OP_SCRIPT_SEARCH,
    STORE_OP_SECRET_PUT,
    STORE_OP_SECRET_ADD_USE,
    STORE_OP_SECRET_DELETE,
    STORE_OP_COUNT,
    STORE_OP_GC,
    STORE_OP_CHECK, /* from here on: in steps, outside of a transaction */
    STORE_OP_BACKUP,
};

/* A position in the order of a search: matches, last use, id. */
struct script_cursor {
    uint64_t matches, last_used_ms;
    char id[ID_SIZE]; /* "": the beginning */
};

struct store_request {
    struct store_request *next;
    enum store_op op;
    const struct row_table *table; /* describes row and rows; NULL for operations without rows */

    /* Arguments. */
    void *row;
    char owner[STORE_OWNER_MAX + 1]; /* STORE_ANY_OWNER: rows of every owner */
    char *id;                        /* also the name of a template or meta text, a client's key, or a path */
    char *text;
    char resource[ID_SIZE];
    int32_t status;
    uint32_t set;
    struct store_condition condition;
    uint32_t live_max;
    bool only_if_no_keys, keep_admin, from_identity_provider;
    struct row_page page; /* LIST */
    uint8_t hash[STORE_HASH_LEN];
    struct store_key_use *key_uses;
    size_t nkey_uses;
    struct store_retention retention;
    struct store_cpu_reading *cpu_readings;
    struct store_usage *usage_sums;
    size_t nusage;
    struct usage_filter usage; /* USAGE_LIST */
    struct store_script_quota script_quota;
    uint64_t secret_max;                  /* SECRET_PUT: how many the owner may have */
    uint64_t secret_uses, secret_used_ms; /* SECRET_ADD_USE */
    struct script_cursor script_cursor;   /* SCRIPT_SEARCH, with page; text: the words, id: the language */
    uint64_t now_ms;

    /* Results. */
    struct row_list rows;
    bool more;
    bool row_created;
    uint64_t seq;
    uint64_t first;                      /* start of the range that ends at seq */
    uint64_t total;                      /* scripts found, or evicted */
    struct script_search *script_search; /* SCRIPT_SEARCH: the state between its steps */
    bool is_unfinished;                  /* it needs another step */
    struct script_cursor script_next;    /* with more */
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

typedef void store_untyped_fn(void); /* a `done` of any type; requests.c knows which */

struct store_request *store_request_new(enum store_op op, const struct row_table *t, store_untyped_fn *done, void *arg);
void store_request_free(struct store_request *c);
void store_request_reset(struct store_request *c); /* drops the results of a run whose transaction was lost */
#define ANY(fn) ((store_untyped_fn *)(fn))

/* The operation inserts rows, and is refused when the disk is full. */
bool store_op_needs_space(enum store_op op);

/* Common kinds of calls, with all arguments copied and checked. owner NULL: for a table without
 * owners. */
struct store_request *store_get_request(enum store_op op, const struct row_table *t, const char *owner, const char *id,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_row_request(enum store_op op, const struct row_table *t, const void *row,
                                        store_untyped_fn *done, void *arg);
struct store_request *store_update_request(const struct row_table *t, const char *owner, const void *row, uint32_t set,
                                           const struct store_condition *when, store_untyped_fn *done, void *arg);
/* Also submits the call. kind: the two-letter prefix of its ids; NULL for a list by name. */
struct store_request *store_list_request(struct store *st, const struct row_table *t, const struct store_list *q,
                                         const char *kind, store_untyped_fn *done, void *arg);

/* Marks a call as failed before it was tried; it is still answered in order. */
void store_request_reject(struct store_request *c, const struct err *err);
/* Takes ownership of the call, and returns it for a caller that may detach it later. */
struct store_request *store_request_submit(struct store *st, struct store_request *c);
void store_usage_request_answer(struct store_request *c, const struct err *err);
void script_search_free(struct script_search *s); /* script_rules.c */
void store_script_request_answer(struct store_request *c, const struct err *err);
/* Calls `done`. */
void store_request_answer(struct store_request *c);
