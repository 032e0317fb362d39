/* store.h - what a server remembers: sandboxes, executions, keys, templates, events, answers already given.
 *
 * Calls. Everything after store_open is asynchronous: a call copies what it is given, and its `done` (NULL: nobody
 * needs to be told) runs later, in the loop, exactly once and never from inside the call. err is NULL on success, and
 * then the change is committed: it survives kill -9 of this process (and power loss, with sync_full). With an error
 * nothing of that call happened. Calls take effect, and are answered, in the order in which they were made (store_check
 * and store_backup go on beside the others and are answered when they are done); those that are made while the store is
 * busy are committed together, so a hundred at once cost little more than one.
 *
 * Rows. A row handed to `done` is borrowed: it is gone when `done` returns. Texts are UTF-8 and at most STORE_TEXT_MAX
 * bytes; NULL is "none" and comes back as NULL. Times are milliseconds since 1970, 0 is "not yet" or "never".
 *
 * Owners. Every row that belongs to somebody carries an owner, and every call that reads or changes such a row names
 * one and sees nothing else: the id of another owner is ERR_MISSING, as if it did not exist. STORE_ANY_OWNER lifts
 * this, for the server's own work (recovery, clocks, retention) and for operators; it is never made from a request's
 * text.
 *
 * Errors a caller may branch on: ERR_MISSING (no such row for this owner), ERR_EXISTS (the id or name is taken, or the
 * row is not in a state that `when` names), ERR_LIMIT (a count given with the call is reached), ERR_INVALID (a text too
 * long or not UTF-8, a bad cursor), ERR_BUSY (too many calls are waiting, or the store is closing), ERR_STORE_FULL
 * (nothing new is taken; updates and retention still work), ERR_STORE_CORRUPT, ERR_STORE_FAILED. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "core/ev/ev.h"

struct store;
struct store_request; /* one call that was not answered yet */

#define STORE_OWNER_MAX 64 /* letters, digits, '-', '_' and '.' */
#define STORE_ANY_OWNER "*"
#define STORE_NAME_MAX 64
#define STORE_TEXT_MAX (4 * MIB)
#define STORE_LIST_MAX 1000u /* rows in one answer */
#define STORE_CURSOR_SIZE 80

struct store_settings {
    const char *backend; /* NULL is "sqlite" */
    const char *path;    /* the database file; its directory is made (0700) when it is not there */
    bool sync_full;      /* acknowledged also survives power loss */
};

/* Opens, and creates or migrates the schema; blocks, so it belongs before the loop. ERR_STORE_IN_USE: another process
 * has it open. ERR_STORE_NEWER: a newer cove wrote it. ERR_STORE_CORRUPT: it is no database of cove, or a damaged one.
 */
int store_open(struct ev *ev, const struct store_settings *set, struct store **ret, struct err *err);
/* Finishes and answers what was asked; blocks for as long as that takes. Calls that a `done` makes meanwhile fail with
 * ERR_BUSY; calls that are made afterwards are carried out by store_close without an answer, because whoever makes them
 * is about to go. Never from inside a `done`. So callers that die before the store live to see every answer, and can
 * still leave their last words: first this, then they, then store_close(). */
void store_finish(struct store *st);
void store_close(struct store *st); /* finishes first, unless that was done */
DEFINE_AUTO(store, store_close);

/* The call takes effect all the same, but `done` is not called: for a caller that dies first. */
void store_request_detach(struct store_request *call);

bool store_owner_valid(const char *owner); /* not STORE_ANY_OWNER */

/* done: for calls that bring nothing back. */
typedef void store_done_fn(void *arg, const struct err *err);

/* When a change may happen. Zeroed: always. */
struct store_condition {
    uint32_t states;     /* set of STORE_BIT(state) the row must be in; 0 is any */
    uint64_t generation; /* the row must have this one; 0 is any */
};
#define STORE_BIT(state) (1u << (unsigned)(state))

/* Lists are in the order of creation, newest first unless told otherwise, and read page by page: `cursor` is what the
 * page before gave as `next`, or NULL. Rows that come and go between pages are neither told twice nor make others be
 * skipped. A cursor carries no right: another owner's leads nowhere else. */
struct store_list {
    const char *owner;
    uint32_t states;         /* set of STORE_BIT; 0 is any */
    const char *sandbox;     /* executions and events: of this sandbox; NULL is any */
    const char *user;        /* keys: of this user; NULL is any */
    const char *const *meta; /* sandboxes: key, value, key, value, ..., NULL; every pair must be in its metadata */
    const char *cursor;
    uint32_t limit; /* 0 is 100; more than STORE_LIST_MAX is STORE_LIST_MAX */
    bool oldest_first;
};

/* --- sandboxes; an ended one stays as a tombstone until retention removes it --- */

enum store_sandbox_state { STORE_SANDBOX_CREATING, STORE_SANDBOX_RUNNING, STORE_SANDBOX_PAUSED, STORE_SANDBOX_ENDED };
#define STORE_SANDBOX_STATES 4u
#define STORE_SANDBOX_LIVE \
    (STORE_BIT(STORE_SANDBOX_CREATING) | STORE_BIT(STORE_SANDBOX_RUNNING) | STORE_BIT(STORE_SANDBOX_PAUSED))

struct store_sandbox {
    char id[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1]; /* the tenant */
    enum store_sandbox_state state;
    char *name;
    char *template;
    char *runtime;
    char *level;
    char *spec_json;
    char *created_by;    /* the user or the key that asked for it, for records; NULL: the local owner */
    char *metadata_json; /* an object of strings; NULL is {} */
    uint64_t created_ms;
    uint64_t expires_ms;
    uint64_t ended_ms;
    char *ended_by;
    char *why_json;
    char *receipt_json;
    uint64_t cpu_us; /* of its processor counter, what is in its usage (usage.h); of an update, the counter */
    uint64_t usage_memory_peak; /* with the end, for usage.h, and not kept; 0: unknown */
    uint64_t generation;        /* 1 at first; every update adds one, by itself */
};

/* Columns that an update may set. */
#define STORE_SANDBOX_SET_STATE (1u << 0)
#define STORE_SANDBOX_SET_NAME (1u << 1)
#define STORE_SANDBOX_SET_METADATA (1u << 2)
#define STORE_SANDBOX_SET_SPEC (1u << 3)
#define STORE_SANDBOX_SET_EXPIRES (1u << 4)
#define STORE_SANDBOX_SET_ENDED (1u << 5) /* ended_ms, ended_by and why_json */
#define STORE_SANDBOX_SET_RECEIPT (1u << 6)

typedef void store_sandbox_fn(void *arg, const struct err *err, const struct store_sandbox *row);
typedef void store_sandboxes_fn(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n,
                                const char *next /* NULL: that was the last page */);

/* live_max: refuse with ERR_LIMIT when the owner has that many that did not end; 0 is no bound. */
struct store_request *store_sandbox_insert(struct store *st, const struct store_sandbox *row, uint32_t live_max,
                                           store_done_fn *done, void *arg);
struct store_request *store_sandbox_get(struct store *st, const char *owner, const char *id, store_sandbox_fn *done,
                                        void *arg);
/* Sets the columns `set` of the row row->id to the values in row, and brings the row back as it is then. */
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
    bool tty;              /* it has a terminal */
    char context[ID_SIZE]; /* the context that runs it; "": none */
    uint64_t created_ms;
    uint64_t started_ms;
    uint64_t ended_ms;
    uint64_t out_bytes[3]; /* written by the program on 1 and 2; events of a context */
    uint64_t dropped[3];   /* of these, not kept */
    bool has_exit_code;
    int32_t exit_code;
    int32_t signal; /* 0: none */
    char *ended_by;
    char *receipt_json;
    char *error_json;
    char *idempotency;     /* the key it was made under, or NULL */
    char *created_by;      /* as of a sandbox */
    uint64_t usage_cpu_us; /* with the end, for usage.h, and not kept: its sandbox's counter by then; 0: unknown */
};

#define STORE_EXECUTION_SET_STATE (1u << 0)
#define STORE_EXECUTION_SET_STARTED (1u << 1)
#define STORE_EXECUTION_SET_OUTPUT (1u << 2) /* out_bytes and dropped */
#define STORE_EXECUTION_SET_END (1u << 3)    /* ended_ms, exit_code, signal, ended_by, error_json */
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

/* --- keys: the secret itself is never here; src/server/auth is the only caller. By their hash: tenants.h --- */

#define STORE_HASH_LEN 32
#define STORE_PREFIX_SIZE 16

struct store_key {
    char id[ID_SIZE]; /* ky... */
    char owner[STORE_OWNER_MAX + 1];
    char user[ID_SIZE]; /* whose it is; "": nobody's */
    char *name;
    char prefix[STORE_PREFIX_SIZE]; /* shown to people: the beginning of the key */
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

typedef void store_key_fn(void *arg, const struct err *err, const struct store_key *row);
typedef void store_keys_fn(void *arg, const struct err *err, const struct store_key *rows, size_t n, const char *next);

/* only_first: ERR_EXISTS when there is any key already, revoked ones included. ERR_MISSING: there is no such tenant,
 * or no such user in it. */
struct store_request *store_key_insert(struct store *st, const struct store_key *row, bool only_first,
                                       store_done_fn *done, void *arg);
struct store_request *store_key_get(struct store *st, const char *owner, const char *id, store_key_fn *done, void *arg);
struct store_request *store_key_update(struct store *st, const char *owner, const struct store_key *row, uint32_t set,
                                       store_key_fn *done, void *arg);
struct store_request *store_key_list(struct store *st, const struct store_list *q, store_keys_fn *done, void *arg);
/* Sets last_used_ms of many at once, never backwards; keys that are gone are passed over. */
struct store_key_use {
    char id[ID_SIZE];
    uint64_t at_ms;
};
struct store_request *store_key_touch(struct store *st, const struct store_key_use *uses, size_t n, store_done_fn *done,
                                      void *arg);

/* --- templates, of the whole server; pools of them: pools.h --- */

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

/* Makes it, or replaces its spec; brings the row back. When a generation is named, the template must exist and have it.
 * created_ms is kept from the first time. */
struct store_request *store_template_put(struct store *st, const struct store_template *row,
                                         const struct store_condition *when, store_template_fn *done, void *arg);
struct store_request *store_template_get(struct store *st, const char *name, store_template_fn *done, void *arg);
/* ERR_TEMPLATE_USED: a pool is made of it. */
struct store_request *store_template_delete(struct store *st, const char *name, const struct store_condition *when,
                                            store_done_fn *done, void *arg);
/* By name; of q only cursor and limit count. */
struct store_request *store_template_list(struct store *st, const struct store_list *q, store_templates_fn *done,
                                          void *arg);

/* --- events, numbered without gaps in time: a later one has a larger seq whatever the clock did --- */

struct store_event {
    uint64_t seq; /* given by the store */
    uint64_t at_ms;
    char owner[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE]; /* "" when it is about none */
    char *kind;
    char *body_json;
};

typedef void store_event_fn(void *arg, const struct err *err, uint64_t seq);
typedef void store_events_fn(void *arg, const struct err *err, const struct store_event *rows, size_t n);

struct store_request *store_event_append(struct store *st, const struct store_event *row, store_event_fn *done,
                                         void *arg);
/* Those with seq > after, oldest first. sandbox NULL: all of the owner's. */
struct store_request *store_event_list(struct store *st, const char *owner, const char *sandbox, uint64_t after,
                                       uint32_t limit, store_events_fn *done, void *arg);
/* first: the oldest that is still kept, of anybody, or last + 1; last: the newest that there ever was. */
typedef void store_event_range_fn(void *arg, const struct err *err, uint64_t first, uint64_t last);
struct store_request *store_event_range(struct store *st, store_event_range_fn *done, void *arg);
/* Told of every event that was committed, in the order of their numbers, after the call that appended it was answered.
 * One listener; NULL: none. */
typedef void store_event_listener_fn(void *arg, const struct store_event *row);
void store_on_event(struct store *st, store_event_listener_fn *fn, void *arg);

/* --- idempotency: what was answered to a request that the client may send again --- */

struct store_idem {
    char owner[STORE_OWNER_MAX + 1];
    char *key; /* the client's text */
    uint8_t request_hash[STORE_HASH_LEN];
    char resource[ID_SIZE]; /* what the request makes; its id is chosen before the claim */
    int32_t status;         /* HTTP; 0 while it is being worked on */
    char *body;
    uint64_t at_ms;
};

/* fresh: the key was not known, and is now this row. Otherwise row is what the first request left: the caller compares
 * request_hash, and with status 0 looks whether `resource` exists. */
typedef void store_idem_fn(void *arg, const struct err *err, bool fresh, const struct store_idem *row);

struct store_request *store_idem_claim(struct store *st, const struct store_idem *row, store_idem_fn *done, void *arg);
struct store_request *store_idem_finish(struct store *st, const char *owner, const char *key, int32_t status,
                                        const char *body, store_done_fn *done, void *arg);
/* What the key claims has another id than was thought. That the key claims something else by now is no error. */
struct store_request *store_idem_rename(struct store *st, const char *owner, const char *key, const char *from,
                                        const char *to, store_done_fn *done, void *arg);
/* resource: only while the key claims this one; NULL: whatever it claims. That there is none is no error. */
struct store_request *store_idem_drop(struct store *st, const char *owner, const char *key, const char *resource,
                                      store_done_fn *done, void *arg);

/* --- meta: a few texts of the server itself --- */

typedef void store_text_fn(void *arg, const struct err *err, const char *value /* NULL: not set */);
struct store_request *store_meta_get(struct store *st, const char *name, store_text_fn *done, void *arg);
struct store_request *store_meta_put(struct store *st, const char *name, const char *value, store_done_fn *done,
                                     void *arg);

/* --- the whole --- */

struct store_counts {
    uint64_t sandboxes[STORE_SANDBOX_STATES];
    uint64_t executions[STORE_EXECUTION_STATES];
    uint64_t keys; /* not revoked; expired ones included */
    uint64_t templates;
    uint64_t events;
    uint64_t output_bytes; /* kept output of all executions */
    uint64_t db_bytes;     /* in use; free pages not counted */
};
typedef void store_counts_fn(void *arg, const struct err *err, const struct store_counts *counts);
struct store_request *store_count(struct store *st, const char *owner, store_counts_fn *done, void *arg);

/* Retention. Removes what ended before the times given (0: nothing for its age), then the oldest ended executions and
 * events while their sums are above the bounds (0: none). A sandbox goes after the last of its executions, and with it
 * its events. What is alive is never touched. One call removes at most STORE_GC_BATCH rows, so that others are not kept
 * waiting; call again while `more`. */
#define STORE_GC_BATCH 200u
struct store_retention {
    uint64_t executions_before_ms;
    uint64_t sandboxes_before_ms;
    uint64_t events_before_ms;
    uint64_t idem_before_ms;
    uint64_t usage_before_ms;  /* usage; that of forgotten sandboxes is told by tenant and user before */
    uint64_t output_bytes_max; /* kept output of all executions */
    uint64_t db_bytes_max;     /* executions go first, then events, then ended sandboxes; no more than that */
    bool dry_run; /* remove nothing, and say in one report what all calls together would; others wait meanwhile */
};
struct store_gc_report {
    const char (*executions)[ID_SIZE]; /* removed: their output files may go; borrowed. NULL in a rehearsal */
    size_t nexecutions;
    uint64_t output_bytes; /* kept output of these */
    uint64_t sandboxes, events, idem;
    uint64_t usage; /* rows that were removed, or became part of another */
    bool more;
};
typedef void store_gc_fn(void *arg, const struct err *err, const struct store_gc_report *report);
struct store_request *store_gc(struct store *st, const struct store_retention *keep, store_gc_fn *done, void *arg);

/* Reads everything once and checks its structure, table by table between other calls. ERR_STORE_CORRUPT names the first
 * thing that is wrong. */
struct store_request *store_check(struct store *st, store_done_fn *done, void *arg);

/* A copy of the store as it is at one moment, while it goes on working. The file is made 0600 and appears under its
 * name only when it is complete; ERR_EXISTS when something is there already. */
struct store_request *store_backup(struct store *st, const char *path, store_done_fn *done, void *arg);
/* Puts a backup in the place of the store, which must not be open (ERR_STORE_IN_USE). The backup is checked first; what
 * was there is kept beside it with ".before-restore" at its name's end. Blocks. */
int store_restore(const struct store_settings *set, const char *backup, struct err *err);

struct store_stats {
    uint64_t calls, commits, errors; /* since the start */
    uint64_t waiting;                /* calls not answered yet */
    uint64_t commit_ns;              /* spent in commits */
};
void store_stats(const struct store *st, struct store_stats *ret);
