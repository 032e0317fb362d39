/* store.h - the persistent state of a server: sandboxes, executions, keys, templates, events,
 * stored responses.
 *
 * Calls. Everything after store_open is asynchronous: a call copies its arguments, and its
 * `done` (NULL: no callback) runs later, in the loop, exactly once and never from inside the
 * call. err is NULL on success, and then the change is committed: it survives kill -9 of this
 * process (and power loss, with sync_full). With an error the call changed nothing. Calls take
 * effect, and are answered, in the order in which they were made (except store_check,
 * store_backup and store_script_search, which run in steps between other calls and are answered
 * when they are done). Calls made
 * while the store is busy are committed together, so a hundred at once cost little more than
 * one.
 *
 * Rows. A row passed to `done` is borrowed: it is freed when `done` returns. Texts are UTF-8 and
 * at most STORE_TEXT_MAX bytes; NULL means "none" and is returned as NULL. Times are
 * milliseconds since 1970; 0 means "not yet" or "never".
 *
 * Owners. Every row that belongs to a tenant carries an owner, and every call that reads or
 * changes such a row names an owner and sees only its rows: the id of another owner's row is
 * ERR_MISSING, as if it did not exist. STORE_ANY_OWNER lifts this restriction, for the server's
 * own work (recovery, clocks, retention) and for operators; it is never taken from the text of a
 * request.
 *
 * Errors a caller may branch on: ERR_MISSING (no such row for this owner), ERR_EXISTS (the id or
 * name is taken, or the row is not in a state that `when` names), ERR_LIMIT (a count given with
 * the call is reached), ERR_INVALID (a text too long or not UTF-8, a bad cursor), ERR_BUSY (too
 * many calls are waiting, or the store is closing), ERR_STORE_FULL (inserts are refused; updates
 * and retention still work), ERR_STORE_CORRUPT, ERR_STORE_FAILED. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "core/ev/ev.h"
#include "store/store_url.h"

struct store;
struct store_request; /* a call that is not answered yet */

#define STORE_OWNER_MAX 64 /* letters, digits, '-', '_' and '.' */
#define STORE_ANY_OWNER "*"
#define STORE_NAME_MAX 64
#define STORE_TEXT_MAX (4 * MIB)
#define STORE_LIST_MAX 1000u /* rows in one page */
#define STORE_LIST_DEFAULT 100u
#define STORE_CURSOR_SIZE 80

struct store_settings {
    struct store_url url; /* the directory of url.file is created (0700) if it does not exist */
    bool sync_full;       /* an acknowledged change also survives power loss */
};

/* Opens the store, and creates or migrates the schema. Blocks, so call it before the loop runs.
 * ERR_STORE_IN_USE: another process has the store open. ERR_STORE_NEWER: a newer cove wrote it.
 * ERR_STORE_CORRUPT: the file is not a cove database, or it is damaged. */
int store_open(struct ev *ev, const struct store_settings *set, struct store **ret, struct err *err);
/* Completes and answers all pending calls; blocks until that is done. Calls that a `done` makes
 * meanwhile fail with ERR_BUSY; later calls are carried out by store_close without an answer,
 * because their callers are being freed. Must not be called from inside a `done`. Shutdown
 * order: store_finish(), then free the callers, then store_close(); so every caller receives its
 * answers and can still write its final state. */
void store_finish(struct store *st);
void store_close(struct store *st); /* calls store_finish unless that was done */
DEFINE_AUTO(store, store_close);

/* The call still takes effect, but `done` is not called: for a caller that is freed first. */
void store_request_detach(struct store_request *call);

bool store_owner_valid(const char *owner); /* false for STORE_ANY_OWNER */

/* `done` of calls that return no row. */
typedef void store_done_fn(void *arg, const struct err *err);

/* Condition for a change. Zeroed: always. */
struct store_condition {
    uint32_t states;     /* set of STORE_BIT(state): the row must be in one of these; 0: any */
    uint64_t generation; /* the row must have this generation; 0: any */
};
#define STORE_BIT(state) (1u << (unsigned)(state))
#define STORE_NO_STATE (1u << 31) /* an empty set of states or outcomes, for lists: selects no row */

/* Lists are ordered by creation, newest first unless oldest_first, and read page by page:
 * `cursor` is the `next` of the previous page, or NULL. If rows are created or removed between
 * pages, no other row is repeated or skipped. A cursor grants no access: with a cursor of
 * another owner a list still shows only rows of its own owner. */
struct store_list {
    const char *owner;
    uint32_t states;         /* set of STORE_BIT; 0: any */
    uint32_t outcomes;       /* set of STORE_BIT(enum outcome): executions that ended so; 0: any */
    const char *sandbox;     /* executions and events of this sandbox; NULL: any */
    const char *user;        /* keys of this user; NULL: any */
    const char *name;        /* sandboxes with this name; NULL: any */
    const char *template;    /* sandboxes of this template; NULL: any */
    const char *const *meta; /* sandboxes whose metadata contain every pair: key, value, key, value, ..., NULL */
    const char *cursor;
    uint32_t limit; /* 0: 100; values above STORE_LIST_MAX count as STORE_LIST_MAX */
    bool oldest_first;
};

/* --- sandboxes; an ended sandbox stays as a tombstone until retention removes it --- */

enum store_sandbox_state { STORE_SANDBOX_CREATING, STORE_SANDBOX_RUNNING, STORE_SANDBOX_PAUSED, STORE_SANDBOX_ENDED };
#define STORE_SANDBOX_STATES 4u
#define STORE_SANDBOX_LIVE \
    (STORE_BIT(STORE_SANDBOX_CREATING) | STORE_BIT(STORE_SANDBOX_RUNNING) | STORE_BIT(STORE_SANDBOX_PAUSED))

struct store_sandbox {
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1]; /* the tenant */
    enum store_sandbox_state state;
    char *name; /* unique among the sandboxes of the owner that have not ended; NULL: none */
    char *template;
    char *runtime;
    char *level;
    char *spec_json;
    uint64_t memory_bytes, storage_bytes; /* its limits, for usage.h; 0: unknown */
    char *created_by;                     /* the user or the key that created it, for records; NULL: the local owner */
    char *metadata_json;                  /* an object with string values; NULL: {} */
    uint64_t created_ms;
    uint64_t expires_ms;
    uint64_t ended_ms;
    char *ended_by;
    char *why_json;
    char *receipt_json;
    uint64_t cpu_us; /* stored: the CPU time already counted in usage (usage.h); in an update: the counter's value */
    uint64_t usage_memory_peak; /* set with the end, for usage.h; not stored; 0: unknown */
    uint64_t generation;        /* starts at 1; every update increments it */
};

/* Columns that an update may set. */
#define STORE_SANDBOX_SET_STATE (1u << 0)
#define STORE_SANDBOX_SET_NAME (1u << 1)
#define STORE_SANDBOX_SET_METADATA (1u << 2)
#define STORE_SANDBOX_SET_SPEC (1u << 3) /* spec_json, memory_bytes and storage_bytes */
#define STORE_SANDBOX_SET_EXPIRES (1u << 4)
#define STORE_SANDBOX_SET_ENDED (1u << 5) /* ended_ms, ended_by and why_json */
#define STORE_SANDBOX_SET_RECEIPT (1u << 6)

typedef void store_sandbox_fn(void *arg, const struct err *err, const struct store_sandbox *row);
typedef void store_sandboxes_fn(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n,
                                const char *next /* NULL: this is the last page */);

/* ERR_EXISTS: another sandbox of the owner that has not ended has the name; also for an update.
 * live_max: fail with ERR_LIMIT when the owner has that many sandboxes that have not ended; 0:
 * no limit. */
struct store_request *store_sandbox_insert(struct store *st, const struct store_sandbox *row, uint32_t live_max,
                                           store_done_fn *done, void *arg);
struct store_request *store_sandbox_get(struct store *st, const char *owner, const char *id, store_sandbox_fn *done,
                                        void *arg);
/* Sets the columns `set` of the row row->id to the values in row, and returns the updated row. */
struct store_request *store_sandbox_update(struct store *st, const char *owner, const struct store_sandbox *row,
                                           uint32_t set, const struct store_condition *when, store_sandbox_fn *done,
                                           void *arg);
struct store_request *store_sandbox_list(struct store *st, const struct store_list *q, store_sandboxes_fn *done,
                                         void *arg);

/* --- executions --- */

enum store_execution_state {
    STORE_EXECUTION_STARTING,
    STORE_EXECUTION_RUNNING,
    STORE_EXECUTION_ENDED,
    STORE_EXECUTION_FAILED
};
#define STORE_EXECUTION_STATES 4u
#define STORE_EXECUTION_LIVE (STORE_BIT(STORE_EXECUTION_STARTING) | STORE_BIT(STORE_EXECUTION_RUNNING))

struct store_execution {
    char id[ID_SIZE];
    char sandbox[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
    enum store_execution_state state;
    char *request_json;
    bool background;
    bool tty;              /* the execution is a terminal */
    char context[ID_SIZE]; /* the context that runs it; "": none */
    uint64_t created_ms;
    uint64_t started_ms;
    uint64_t ended_ms;
    uint64_t out_bytes[3]; /* bytes written by the program to 1 and 2; events of a context */
    uint64_t dropped[3];   /* part of out_bytes that is not stored */
    bool has_exit_code;
    int32_t exit_code;
    int32_t signal; /* 0: none */
    char *ended_by;
    char *outcome;      /* a name of enum outcome; NULL: it has not ended */
    char *hint;         /* why it failed, for the user; NULL: none */
    bool context_reset; /* the state of its context was lost with it */
    char *receipt_json;
    char *error_json;
    char *idempotency; /* the Idempotency-Key of its request, or NULL */
    char *created_by;  /* like store_sandbox.created_by */
    /* Set with the end, for usage.h; not stored: the sandbox's CPU counter at that time; 0:
     * unknown. */
    uint64_t usage_cpu_us;
};

#define STORE_EXECUTION_SET_STATE (1u << 0)
#define STORE_EXECUTION_SET_STARTED (1u << 1)
#define STORE_EXECUTION_SET_OUTPUT (1u << 2) /* out_bytes and dropped */
#define STORE_EXECUTION_SET_END \
    (1u << 3) /* ended_ms, exit_code, signal, ended_by, outcome, hint, context_reset, error_json */
#define STORE_EXECUTION_SET_RECEIPT (1u << 4)

typedef void store_execution_fn(void *arg, const struct err *err, const struct store_execution *row);
typedef void store_executions_fn(void *arg, const struct err *err, const struct store_execution *rows, size_t n,
                                 const char *next);

/* ERR_MISSING: this owner has no such sandbox. */
struct store_request *store_execution_insert(struct store *st, const struct store_execution *row, store_done_fn *done,
                                             void *arg);
struct store_request *store_execution_get(struct store *st, const char *owner, const char *id, store_execution_fn *done,
                                          void *arg);
struct store_request *store_execution_update(struct store *st, const char *owner, const struct store_execution *row,
                                             uint32_t set, const struct store_condition *when /* states only */,
                                             store_execution_fn *done, void *arg);
struct store_request *store_execution_list(struct store *st, const struct store_list *q, store_executions_fn *done,
                                           void *arg);

/* --- keys: the store never has the secret itself; only src/server/auth calls these. Lookup by
 * hash: tenants.h --- */

#define STORE_HASH_LEN 32
#define STORE_PREFIX_SIZE 16

struct store_key {
    char id[ID_SIZE]; /* ky... */
    char owner[STORE_OWNER_MAX + 1];
    char user[ID_SIZE]; /* the user that owns the key; "": none */
    char *name;
    char prefix[STORE_PREFIX_SIZE]; /* the beginning of the key, for display */
    uint8_t hash[STORE_HASH_LEN];
    char *scopes; /* separated by spaces */
    uint64_t created_ms;
    uint64_t expires_ms;
    uint64_t last_used_ms;
    uint64_t revoked_ms;
};

#define STORE_KEY_SET_NAME (1u << 0)
#define STORE_KEY_SET_SECRET (1u << 1) /* prefix and hash */
#define STORE_KEY_SET_EXPIRES (1u << 2)
#define STORE_KEY_SET_REVOKED (1u << 3)
#define STORE_KEY_SET_LAST_USED (1u << 4) /* only store_key_touch() sets it */

typedef void store_key_fn(void *arg, const struct err *err, const struct store_key *row);
typedef void store_keys_fn(void *arg, const struct err *err, const struct store_key *rows, size_t n, const char *next);

/* only_first: ERR_EXISTS when any key exists already, including revoked ones. ERR_MISSING: the
 * tenant, or the user in it, does not exist. */
struct store_request *store_key_insert(struct store *st, const struct store_key *row, bool only_first,
                                       store_done_fn *done, void *arg);
struct store_request *store_key_get(struct store *st, const char *owner, const char *id, store_key_fn *done, void *arg);
struct store_request *store_key_update(struct store *st, const char *owner, const struct store_key *row, uint32_t set,
                                       store_key_fn *done, void *arg);
struct store_request *store_key_list(struct store *st, const struct store_list *q, store_keys_fn *done, void *arg);
/* Sets last_used_ms of many keys at once, never backwards; keys that no longer exist are
 * skipped. */
struct store_key_use {
    char id[ID_SIZE];
    uint64_t at_ms;
};
struct store_request *store_key_touch(struct store *st, const struct store_key_use *uses, size_t n, store_done_fn *done,
                                      void *arg);

/* --- templates, shared by the whole server; their pools: pools.h --- */

struct store_template {
    char name[STORE_NAME_MAX + 1];
    char *spec_json;
    uint64_t generation;
    uint64_t created_ms;
    uint64_t updated_ms;
};

typedef void store_template_fn(void *arg, const struct err *err, const struct store_template *row);
typedef void store_templates_fn(void *arg, const struct err *err, const struct store_template *rows, size_t n,
                                const char *next);

/* Creates the template or replaces its spec, and returns the row. If `when` names a generation,
 * the template must exist and have it. created_ms is set only at creation. */
struct store_request *store_template_put(struct store *st, const struct store_template *row,
                                         const struct store_condition *when, store_template_fn *done, void *arg);
struct store_request *store_template_get(struct store *st, const char *name, store_template_fn *done, void *arg);
/* ERR_TEMPLATE_USED: a pool uses it. */
struct store_request *store_template_delete(struct store *st, const char *name, const struct store_condition *when,
                                            store_done_fn *done, void *arg);
/* Ordered by name; only cursor and limit of q are used. */
struct store_request *store_template_list(struct store *st, const struct store_list *q, store_templates_fn *done,
                                          void *arg);

/* --- events: a later event has a larger seq, whatever the wall clock did --- */

struct store_event {
    uint64_t seq; /* assigned by the store */
    uint64_t at_ms;
    char owner[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE]; /* "" for an event without a sandbox */
    char *kind;
    char *body_json;
};

typedef void store_event_fn(void *arg, const struct err *err, uint64_t seq);
typedef void store_events_fn(void *arg, const struct err *err, const struct store_event *rows, size_t n);

struct store_request *store_event_append(struct store *st, const struct store_event *row, store_event_fn *done,
                                         void *arg);
/* Events with seq > after, oldest first. sandbox NULL: all events of the owner. */
struct store_request *store_event_list(struct store *st, const char *owner, const char *sandbox, uint64_t after,
                                       uint32_t limit, store_events_fn *done, void *arg);
/* first: the oldest event that is still stored, of any owner, or last + 1; last: the newest
 * event ever appended. */
typedef void store_event_range_fn(void *arg, const struct err *err, uint64_t first, uint64_t last);
struct store_request *store_event_range(struct store *st, store_event_range_fn *done, void *arg);
/* Called for every committed event, in the order of seq, after the call that appended it was
 * answered. One listener; NULL: none. */
typedef void store_event_listener_fn(void *arg, const struct store_event *row);
void store_on_event(struct store *st, store_event_listener_fn *fn, void *arg);

/* --- idempotency: stored responses to requests that a client may send again --- */

struct store_idem {
    char owner[STORE_OWNER_MAX + 1];
    char *key; /* the Idempotency-Key of the client */
    uint8_t request_hash[STORE_HASH_LEN];
    char resource[ID_SIZE]; /* id of the object that the request creates; chosen before the claim */
    int32_t status;         /* HTTP status; 0 while the request is in progress */
    char *body;
    uint64_t at_ms;
};

/* fresh: the key was unknown, and row is now stored under it. Otherwise row is the one of the
 * first request: the caller compares request_hash, and if status is 0, checks whether `resource`
 * exists. */
typedef void store_idem_fn(void *arg, const struct err *err, bool fresh, const struct store_idem *row);

struct store_request *store_idem_claim(struct store *st, const struct store_idem *row, store_idem_fn *done, void *arg);
struct store_request *store_idem_finish(struct store *st, const char *owner, const char *key, int32_t status,
                                        const char *body, store_done_fn *done, void *arg);
/* Changes the resource id of the key from `from` to `to`. If the key has another resource by
 * now, nothing changes and that is not an error. */
struct store_request *store_idem_rename(struct store *st, const char *owner, const char *key, const char *from,
                                        const char *to, store_done_fn *done, void *arg);
/* resource: drop only while the key has this resource; NULL: in any case. A missing key is not
 * an error. */
struct store_request *store_idem_drop(struct store *st, const char *owner, const char *key, const char *resource,
                                      store_done_fn *done, void *arg);

/* --- meta: texts of the server itself, by name --- */

typedef void store_text_fn(void *arg, const struct err *err, const char *value /* NULL: not set */);
struct store_request *store_meta_get(struct store *st, const char *name, store_text_fn *done, void *arg);
struct store_request *store_meta_put(struct store *st, const char *name, const char *value, store_done_fn *done,
                                     void *arg);

/* --- the whole store --- */

struct store_counts {
    uint64_t sandboxes[STORE_SANDBOX_STATES];
    uint64_t executions[STORE_EXECUTION_STATES];
    uint64_t keys; /* not revoked; includes expired keys */
    uint64_t templates;
    uint64_t scripts;
    uint64_t script_bytes; /* code of all scripts */
    uint64_t events;
    uint64_t output_bytes; /* stored output of all executions */
    uint64_t db_bytes;     /* in use; without free pages */
};
typedef void store_counts_fn(void *arg, const struct err *err, const struct store_counts *counts);
struct store_request *store_count(struct store *st, const char *owner, store_counts_fn *done, void *arg);

/* Retention. Removes rows that ended before the given times (0: no age limit), then the oldest
 * ended executions and events while the totals exceed the limits (0: no limit). A sandbox is
 * removed after the last of its executions, together with its events. Live rows are never
 * removed. One call removes at most STORE_GC_BATCH rows, so that other calls do not wait long;
 * call again while `more`. */
#define STORE_GC_BATCH 200u
struct store_retention {
    uint64_t executions_before_ms;
    uint64_t sandboxes_before_ms;
    uint64_t events_before_ms;
    uint64_t idem_before_ms;
    uint64_t scripts_before_ms; /* by the last use */
    /* Age limit of usage; usage of removed sandboxes is first summed up by tenant and user. */
    uint64_t usage_before_ms;
    uint64_t output_bytes_max; /* stored output of all executions */
    uint64_t db_bytes_max;     /* executions go first, then events, then ended sandboxes; nothing else */
    /* Remove nothing, and return in one report the result of all calls together; other calls
     * wait meanwhile. */
    bool dry_run;
};
struct store_gc_report {
    /* Removed ones, whose output files may be deleted; borrowed. NULL in a dry run. */
    const char (*executions)[ID_SIZE];
    size_t nexecutions;
    uint64_t output_bytes; /* stored output of the removed executions */
    uint64_t sandboxes, events, idem, scripts;
    uint64_t usage; /* rows that were removed or merged into another row */
    bool more;
};
typedef void store_gc_fn(void *arg, const struct err *err, const struct store_gc_report *report);
struct store_request *store_gc(struct store *st, const struct store_retention *keep, store_gc_fn *done, void *arg);

/* Reads the whole store once and checks its structure, table by table between other calls.
 * ERR_STORE_CORRUPT names the first defect. */
struct store_request *store_check(struct store *st, store_done_fn *done, void *arg);

/* Writes a consistent copy of the store while the store goes on working. The file is created
 * with mode 0600 and appears under its name only when it is complete; ERR_EXISTS when the path
 * exists. ERR_NOT_SUPPORTED_YET: not with a store of this scheme. */
struct store_request *store_backup(struct store *st, const char *path, store_done_fn *done, void *arg);
/* Replaces the store by a backup; the store must not be open (ERR_STORE_IN_USE). The backup is
 * checked first. The previous store is kept: *ret_kept is its new name, which the caller frees;
 * NULL: there was none. Blocks. ERR_NOT_SUPPORTED_YET: not with a store of this scheme. */
int store_restore(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err);
/* ERR_MISSING: store_open would create a new store. */
int store_check_exists(const struct store_settings *set, struct err *err);

struct store_stats {
    uint64_t calls, commits, errors; /* since the start */
    uint64_t waiting;                /* calls that are not answered yet */
    uint64_t commit_ns;              /* time spent in commits */
};
void store_stats(const struct store *st, struct store_stats *ret);
