/* verify.h - whether a log is as it was written: offline, from its files and a public key alone.
 *
 * Files are given in the order in which they were written. The first thing that is wrong ends it: everything behind a
 * broken record is worth no more than the word of whoever wrote it last. */
#pragma once

#include "server/audit/chain.h"
#include "server/audit/sign.h"

struct verify;

enum verify_fault {
    VERIFY_FINE,
    VERIFY_UNREADABLE, /* no record of an audit log */
    VERIFY_EDITED,     /* it is not what it was when its hash was made, or the one before it is not */
    VERIFY_MISSING,    /* records between it and the one before it are not there */
    VERIFY_REORDERED,  /* it stands in the wrong place, or twice */
    VERIFY_SIGNATURE,  /* a checkpoint that this key did not sign */
    VERIFY_TRUNCATED,  /* records behind the last one are not there */
};
const char *verify_fault_name(enum verify_fault f);

struct verify_report {
    uint64_t files, records, checkpoints;
    uint64_t first, last;    /* numbers of records */
    uint64_t signed_to;      /* the last checkpoint whose signature was checked; 0: none */
    struct chain_link head;  /* the last record */
    enum verify_fault fault; /* and where: */
    char file[240];
    uint64_t line, seq; /* of the file; of the record, as far as it can be read */
    char why[240];
};

/* keys: any of them may have signed; without one, signatures are not checked and nothing counts as signed. expect: a
 * record that is known to have been written, or NULL. */
struct verify *verify_new(const struct sign_key *const *keys, size_t nkeys, const struct chain_link *expect);
void verify_free(struct verify *v);
DEFINE_AUTO(verify, verify_free);

/* One more file, read to its end. -1: it cannot be read; a log that is broken is in the report. */
int verify_file(struct verify *v, const char *name, int fd, struct err *err);
void verify_finish(struct verify *v); /* all files were given */
const struct verify_report *verify_report(const struct verify *v);
