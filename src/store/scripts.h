/* scripts.h - the script cache: code that ran successfully, kept for each tenant, so that it can be
 * found and run again. Calls and rows follow the rules of store.h. */
#pragma once

#include "store/store.h"

#define STORE_SCRIPT_SEARCH_MAX 256u      /* bytes of a search text */
#define STORE_SCRIPT_DESCRIPTION_MAX 200u /* bytes */

struct store_script {
    char id[ID_SIZE]; /* sc... */
    char owner[STORE_OWNER_MAX + 1];
    uint8_t digest[STORE_HASH_LEN]; /* SHA-256 of the language, a NUL byte and the code; unique for an owner */
    char *language;
    char *description; /* NULL: none */
    char *code;        /* NULL in a search, and in the answer of store_script_keep */
    uint64_t size_bytes;
    uint64_t uses; /* successful runs */
    uint64_t created_ms, last_used_ms;
    char last_execution[ID_SIZE]; /* the last successful one; "": none */
    char *created_by;             /* like store_sandbox.created_by */
};

#define STORE_SCRIPT_SET_USE (1u << 0) /* uses, last_used_ms and last_execution */

/* The scripts that a tenant may keep. */
struct store_script_quota {
    uint64_t count, bytes; /* 0: nothing is kept */
};

typedef void store_script_fn(void *arg, const struct err *err, const struct store_script *row);
/* evicted: scripts that were removed to make room for this one. */
typedef void store_script_kept_fn(void *arg, const struct err *err, const struct store_script *row, bool is_new,
                                  uint64_t evicted);

/* Counts one more use of the script with this digest, or inserts the row with one use. Then the
 * scripts of the owner that were not used for the longest time are removed until the quota is met.
 * ERR_LIMIT: the script alone exceeds the quota, and nothing changed. */
struct store_request *store_script_keep(struct store *st, const struct store_script *row,
                                        const struct store_script_quota *quota, store_script_kept_fn *done, void *arg);
struct store_request *store_script_get(struct store *st, const char *owner, const char *id, store_script_fn *done,
                                       void *arg);
struct store_request *store_script_find(struct store *st, const char *owner, const uint8_t digest[STORE_HASH_LEN],
                                        store_script_fn *done, void *arg);
struct store_request *store_script_delete(struct store *st, const char *owner, const char *id, store_done_fn *done,
                                          void *arg);

/* Scripts that contain every word of `text`, in the description or in the code, whatever the case
 * of ASCII letters: those with more occurrences first, then those used last. */
struct store_script_search {
    const char *owner;
    const char *text;     /* words separated by spaces; NULL or "": every script */
    const char *language; /* NULL: any */
    const char *cursor;   /* the `next` of the previous page, or NULL */
    uint32_t limit;       /* 0: 100; values above STORE_LIST_MAX count as STORE_LIST_MAX */
};
/* total: scripts on all pages together. A script that is used between two pages may move to a page
 * that was already read. */
typedef void store_scripts_fn(void *arg, const struct err *err, const struct store_script *rows, size_t n,
                              uint64_t total, const char *next);
struct store_request *store_script_search(struct store *st, const struct store_script_search *q, store_scripts_fn *done,
                                          void *arg);
