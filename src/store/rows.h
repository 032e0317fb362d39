/* rows.h - the layout of each kind of row: which struct member is which column.
 *
 * One table for each kind of row lets one function copy, free, check, bind or read any of them,
 * and lets a backend build its statements from the same list that the schema was written from. */
#pragma once

#include "store/pools.h"
#include "store/scripts.h"
#include "store/secrets.h"
#include "store/store.h"
#include "store/usage.h"

enum row_type {
    ROW_FIXED, /* char[] inside the struct; "" is NULL in the database when the column is `optional` */
    ROW_TEXT,  /* char *, NULL is NULL */
    ROW_U64,
    ROW_I32,
    ROW_I32_OPT, /* int32_t with a separate bool at flag_at */
    ROW_BOOL,
    ROW_STATE, /* an enum; stored as its name */
    ROW_HASH,  /* uint8_t[STORE_HASH_LEN] */
};

struct row_column {
    const char *name;
    enum row_type type;
    size_t at;          /* offset in the struct */
    size_t cap;         /* ROW_FIXED: size in bytes */
    size_t flag_at;     /* ROW_I32_OPT: offset of its bool */
    uint32_t set;       /* bit of STORE_..._SET_ with which an update writes the column; 0: never */
    bool optional;      /* ROW_FIXED: "" is stored as NULL */
    bool is_string_map; /* ROW_TEXT: a JSON object whose values are strings, so that lists can be filtered by it */
    bool is_generated;  /* the database generates the value; an insert omits it */
};

struct row_table {
    const char *name;         /* name in the database */
    const char *display_name; /* for messages, for example "sandbox" */
    size_t size;
    const char *key;         /* the column that identifies a row, among those of its owner */
    const char *primary_key; /* columns, separated by commas; NULL: key */
    bool owned;
    bool by_name;        /* lists are ordered by name; otherwise by creation */
    bool has_generation; /* has a generation that every update increments */
    const char *const *states;
    unsigned nstates;
    const struct row_column *columns;
    size_t n;
};

extern const struct row_table row_sandbox, row_execution, row_key, row_template, row_event, row_idem;
/* pools.c */
extern const struct row_table row_pool;
/* scripts.c; the head is a script without its code */
extern const struct row_table row_script, row_script_head;
/* secrets.c */
extern const struct row_table row_secret;
/* tenants.c */
extern const struct row_table row_tenant, row_user, row_role, row_login, row_age;
/* usage.c */
extern const struct row_table row_usage, row_budget;

/* --- rows that only the rules of the store use --- */

struct store_charge { /* the columns of a sandbox that its usage is computed from */
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    char *created_by;
    enum store_sandbox_state state;
    uint64_t created_ms;
    uint64_t cpu_us;
    uint64_t memory_bytes, storage_bytes;
};
#define STORE_CHARGE_SET_CPU (1u << 0)

struct store_removed { /* an execution that retention removed */
    char id[ID_SIZE];
    uint64_t output_bytes;
};

struct store_removed_user { /* a name that an identity provider cannot bring back */
    char owner[STORE_OWNER_MAX + 1];
    char name[STORE_NAME_MAX + 1];
    uint64_t removed_ms;
};

struct store_meta {
    char *name, *value;
};

struct store_metadata { /* one pair of the metadata of a sandbox, by which lists are filtered */
    char sandbox[ID_SIZE];
    char *key, *value;
    char sandbox_owner[STORE_OWNER_MAX + 1];
    uint64_t sandbox_created_ms;
};

#define STORE_IDEM_SET_RESPONSE (1u << 0) /* status and body */
#define STORE_IDEM_SET_RESOURCE (1u << 1)

extern const struct row_table row_charge, row_removed, row_removed_user, row_meta, row_metadata;

/* Whether the store accepts the row: owner, texts, numbers. */
int row_check(const struct row_table *t, const void *row, struct err *err);
int row_check_column(const struct row_table *t, const struct row_column *c, const void *row, struct err *err);
int row_check_text(const char *what, const char *text, size_t max, struct err *err); /* NULL passes */
void row_copy(const struct row_table *t, void *dst, const void *src);                /* deep */
void row_done(const struct row_table *t, void *row);
size_t row_bytes(const struct row_table *t, const void *row); /* memory of its texts */
const struct row_column *row_column(const struct row_table *t, const char *name);

/* A growing array of rows of one kind. */
struct row_list {
    char *rows;
    size_t n, cap;
};
void *row_list_add(const struct row_table *t, struct row_list *l); /* appends a zeroed row */
void row_list_drop(const struct row_table *t, struct row_list *l); /* removes the last row */
void row_list_done(const struct row_table *t, struct row_list *l);

#define ROW_AT(type, row, column) ((type *)(void *)((char *)(row) + (column)->at))
#define ROW_CONST_AT(type, row, column) ((const type *)(const void *)((const char *)(row) + (column)->at))
