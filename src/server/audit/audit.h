/* audit.h - the audit trail: a tamper-evident record of requests, their principals and their
 * outcomes.
 *
 * Records are numbered, chained and signed (chain.h) in files of a directory of their own.
 * audit_append never blocks: it formats the line at once, and a thread writes all gathered lines
 * with one call. If a response must not be sent before its record is written, audit_wait waits for
 * the record's number. A written record survives kill -9 of the server (and, with sync_full, the
 * loss of power).
 *
 * If the trail cannot be written, the server refuses changes. AUDIT_OPEN: everything is allowed.
 * AUDIT_FULL: only the reserved disk space is left; requests that end or remove objects are still
 * recorded there, all other changes are refused. AUDIT_CLOSED: every request that needs a record is
 * refused. The state returns to AUDIT_OPEN by itself when the disk accepts writes again. */
#pragma once

#include "server/audit/chain.h"
#include "core/ev/ev.h"

struct audit;

struct audit_settings {
    const char *dir;       /* created with mode 0700 if missing */
    bool sync_full;        /* a written record survives the loss of power */
    uint64_t segment_max;  /* bytes per file before a new file begins; 0: unlimited */
    uint64_t keep_max;     /* bytes of all files, the oldest are removed first; 0: unlimited */
    unsigned sign_records; /* records per checkpoint; 0: 1000 */
    /* Longest time from a record to its checkpoint; a quiet trail is signed sooner. 0: 60 s. */
    uint64_t sign_ns;
    struct chain_link known_checkpoint; /* the last checkpoint that was saved elsewhere; zero: none */
    /* A checkpoint was written: save it elsewhere. May be NULL. */
    void (*on_checkpoint)(void *arg, const struct chain_link *at);
    void *arg;
};

/* Findings of audit_open; each has its own record when audit_open returns. */
struct audit_open_report {
    bool is_new, new_key; /* no files existed; no key existed */
    uint64_t torn_bytes;  /* bytes of an incomplete last record, removed */
    bool shortened;       /* the trail ends before `known_checkpoint`: records were removed */
    bool replaced;        /* another record has the number of `known_checkpoint` */
};

int audit_open(struct ev *ev, const struct audit_settings *set, struct audit **ret, struct audit_open_report *found,
               struct err *err);
/* Signs and writes the remaining records as far as the disk permits, then calls all remaining
 * waits. */
void audit_close(struct audit *a);
DEFINE_AUTO(audit, audit_close);

/* Returns the record's number. lazy: no response waits for it, so it may stay in memory briefly. */
uint64_t audit_append(struct audit *a, const struct audit_record *r, bool lazy);

struct audit_wait { /* owned by the caller, zeroed initially */
    struct audit_wait *prev, *next;
    uint64_t seq;
    void (*fn)(void *arg);
    void *arg;
    bool is_waiting;
};
/* True: the record is already written. Otherwise the loop calls fn later; callers that wait for the
 * same write are called in the order in which they began to wait. */
bool audit_wait(struct audit *a, struct audit_wait *w, uint64_t seq, void (*fn)(void *arg), void *arg);
void audit_wait_clear(struct audit *a, struct audit_wait *w);

enum audit_state { AUDIT_OPEN, AUDIT_FULL, AUDIT_CLOSED };
enum audit_state audit_state(const struct audit *a, const char **ret_why); /* why: readable reason; may be NULL */

struct audit_stats {
    uint64_t records, bytes, batches, errors; /* since the start; errors: failed disk writes */
    uint64_t write_ns;
    uint64_t waiting; /* records not written yet */
    struct chain_link head;
};
void audit_stats(const struct audit *a, struct audit_stats *ret);
const char *audit_key_pem(const struct audit *a);
const char *audit_key_id(const struct audit *a);

/* --- reading --- */

#define AUDIT_PAGE_MAX 1000u

struct audit_query {
    const char *tenant;          /* only this tenant; NULL: all */
    const char *action;          /* exact action, or a prefix that ends with a dot; NULL: all */
    uint64_t after;              /* only records with a greater number */
    uint64_t since_ms, until_ms; /* 0: no bound */
    uint32_t limit;              /* records per page; 0: 100 */
    bool latest;                 /* return the last records instead of the first after `after` */
};
struct audit_page {
    struct buf lines; /* as stored, each with its newline */
    size_t n;
    uint64_t last; /* last record examined: `after` for the next page */
    bool more;     /* records follow `last` */
};
typedef void audit_page_fn(void *arg, const struct err *err, const struct audit_page *page);
/* A page may hold fewer records than the limit, even none, although more follow: the work for one
 * page is bounded. */
void audit_read(struct audit *a, const struct audit_query *q, audit_page_fn *done, void *arg);
