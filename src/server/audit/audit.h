/* audit.h - what was done on this server, by whom and with what outcome: a log that nobody can quietly change.
 *
 * Records are numbered, chained and signed (chain.h) in files of a directory of its own. audit_append never blocks: the
 * line is made at once, and a thread writes all lines that have gathered with one call. What must not be told before it
 * is recorded waits for its number with audit_wait; a record that was written survives kill -9 of the server (and the
 * loss of power, with sync_full).
 *
 * A log that cannot be written closes the server to changes. While AUDIT_OPEN, anything goes. When the disk has no room
 * for more than what is set aside for it, AUDIT_FULL: what ends or removes things is still recorded there, nothing else
 * may begin. AUDIT_CLOSED: nothing that would need a record may be done. It opens again by itself. */
#pragma once

#include "server/audit/chain.h"
#include "core/ev/ev.h"

struct audit;

struct audit_settings {
    const char *dir;                    /* made when it is not there, 0700 */
    bool sync_full;                     /* a record that was written survives the loss of power */
    uint64_t segment_max;               /* bytes after which another file is begun; 0: never */
    uint64_t keep_max;                  /* bytes of all files; the oldest go first; 0 is no bound */
    unsigned sign_records;              /* a checkpoint after so many; 0 is 1000 */
    uint64_t sign_ns;                   /* and after so long at the latest, sooner when it is quiet; 0 is 60 s */
    struct chain_link known_checkpoint; /* the last checkpoint that somebody else remembers; zero: none */
    /* A checkpoint was written: for somebody else to remember. May be NULL. */
    void (*on_checkpoint)(void *arg, const struct chain_link *at);
    void *arg;
};

/* What audit_open found; each has a record of its own by then. */
struct audit_open_report {
    bool is_new, new_key; /* there was no log; no key */
    uint64_t torn_bytes;  /* bytes of a record that a kill cut off; they were removed */
    bool shortened;       /* the log ends before `known`: somebody took records away */
    bool replaced;        /* it has another record where `known` was */
};

int audit_open(struct ev *ev, const struct audit_settings *set, struct audit **ret, struct audit_open_report *found,
               struct err *err);
/* Signs and writes what is left, as far as the disk lets it; calls every wait that is left. */
void audit_close(struct audit *a);
DEFINE_AUTO(audit, audit_close);

/* Returns its number. lazy: nobody waits for it, so it may stay in memory for a moment. */
uint64_t audit_append(struct audit *a, const struct audit_record *r, bool lazy);

struct audit_wait { /* kept by the caller, zeroed at first */
    struct audit_wait *prev, *next;
    uint64_t seq;
    void (*fn)(void *arg);
    void *arg;
    bool is_waiting;
};
/* True: it is written already. Otherwise fn comes later, from the loop. */
bool audit_wait(struct audit *a, struct audit_wait *w, uint64_t seq, void (*fn)(void *arg), void *arg);
void audit_wait_clear(struct audit *a, struct audit_wait *w);

enum audit_state { AUDIT_OPEN, AUDIT_FULL, AUDIT_CLOSED };
enum audit_state audit_state(const struct audit *a, const char **ret_why); /* why: for people; may be NULL */

struct audit_stats {
    uint64_t records, bytes, batches, errors; /* since the start; errors: of the disk */
    uint64_t write_ns;
    uint64_t waiting; /* records that are not written yet */
    struct chain_link head;
};
void audit_stats(const struct audit *a, struct audit_stats *ret);
const char *audit_key_pem(const struct audit *a);
const char *audit_key_id(const struct audit *a);

/* --- reading --- */

#define AUDIT_PAGE_MAX 1000u

struct audit_query {
    const char *tenant;          /* only theirs; NULL is everybody's */
    const char *action;          /* this one, or with a dot at its end all that begin so; NULL is any */
    uint64_t after;              /* records behind this number */
    uint64_t since_ms, until_ms; /* 0: no bound */
    uint32_t limit;              /* 0 is 100 */
    bool latest;                 /* the last ones there are, instead of the first behind `after` */
};
struct audit_page {
    struct buf lines; /* each with its end, as it stands in the log */
    size_t n;
    uint64_t last; /* the last record that was looked at: `after` for the next page */
    bool more;     /* something lies behind it */
};
typedef void audit_page_fn(void *arg, const struct err *err, const struct audit_page *page);
/* A page may hold less than the limit, even nothing, with more to come: a look has its bounds. */
void audit_read(struct audit *a, const struct audit_query *q, audit_page_fn *done, void *arg);
