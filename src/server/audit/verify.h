/* verify.h - verifies an audit trail offline, from its files and a public key alone.
 *
 * Pass the files in the order in which they were written. Verification stops at the first fault:
 * records after a broken one prove nothing. */
#pragma once

#include "server/audit/chain.h"
#include "server/audit/sign.h"

struct verify;

enum verify_fault {
    VERIFY_FINE,
    VERIFY_UNREADABLE, /* not an audit record */
    VERIFY_EDITED,     /* its hash does not match, or `prev` differs from the previous record's hash */
    VERIFY_MISSING,    /* records between it and the previous one are missing */
    VERIFY_REORDERED,  /* the record is in the wrong place, or a duplicate */
    VERIFY_SIGNATURE,  /* a checkpoint without a valid signature of this key */
    VERIFY_TRUNCATED,  /* records after the last one are missing */
};
const char *verify_fault_name(enum verify_fault f);

struct verify_report {
    uint64_t files, records, checkpoints;
    uint64_t first, last;    /* numbers of records */
    uint64_t signed_to;      /* number of the last checkpoint with a verified signature; 0: none */
    struct chain_link head;  /* the last record */
    enum verify_fault fault; /* at `file`, `line` and `seq` */
    char file[240];
    uint64_t line, seq; /* line in the file; number of the record, as far as it is readable */
    char why[240];
};

/* keys: a signature of any of them is valid. Without keys, signatures are not checked and signed_to
 * stays 0. expect: a record that is known to have been written, or NULL. */
struct verify *verify_new(const struct sign_key *const *keys, size_t nkeys, const struct chain_link *expect);
void verify_free(struct verify *v);
DEFINE_AUTO(verify, verify_free);

/* Verifies one more file to its end. -1: it cannot be read. A broken trail is not an error; the
 * report describes it. */
int verify_file(struct verify *v, const char *name, int fd, struct err *err);
void verify_finish(struct verify *v); /* call it after the last file */
const struct verify_report *verify_report(const struct verify *v);
