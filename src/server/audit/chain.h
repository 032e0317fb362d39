/* chain.h - an audit record as one line of JSON, and how each line is chained to the previous one.
 *
 *     {"seq":7,"at":"...","tenant":"...","action":"sandbox.create",...,
 *      "prev":"<hash of 6>","hash":"<hash of 7>"}
 *
 * The hash of a record is SHA-256 over the 32 bytes of `prev`, followed by the line without its
 * `hash` member and without its newline. A changed, removed or moved line therefore changes every
 * later hash. Signed hashes cannot be forged: a checkpoint is a record with an Ed25519 signature
 * over its own number and `prev`. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#define CHAIN_HASH 32u
#define CHAIN_SIGNATURE 64u
#define CHAIN_KEY_ID 16u                  /* hex digits of the key id in a checkpoint */
#define CHAIN_LINE_MAX (1u * 1024 * 1024) /* bytes, including the newline */
#define CHAIN_CHECKPOINT "audit.checkpoint"

/* The end of a chain: its last record. All zero before the first record. */
struct chain_link {
    uint64_t seq;
    uint8_t hash[CHAIN_HASH];
};

struct audit_pair {
    const char *name, *value;
};

struct audit_record {       /* untrusted text is escaped; NULL and "" are omitted */
    const char *tenant;     /* "": the server itself */
    const char *action;     /* "sandbox.create" */
    const char *outcome;    /* accepted, success, refused, failed */
    int status;             /* of the response; 0: none */
    const char *error;      /* a code of errors.def */
    const char *kind;       /* of the principal: key, local, server, ... */
    const char *key, *user; /* ids */
    const char *address;    /* client address */
    const struct audit_pair *target;
    size_t ntarget;
    const char *request, *client_request;
    const char *details; /* a JSON object as text; trusted, not escaped */
};

/* Appends the line of the next record to `out` and advances the link. */
void chain_append(struct chain_link *at, const struct audit_record *r, uint64_t now_ms, struct buf *out);

struct sign_key;
/* The same for a checkpoint. last: no record follows in this file. */
void chain_sign(struct chain_link *at, const struct sign_key *key, bool last, uint64_t now_ms, struct buf *out);

struct chain_text {
    const char *p;
    size_t n;
};

struct chain_line { /* strings point into the line */
    uint64_t seq, at_ms;
    struct chain_text tenant, action;
    uint8_t prev[CHAIN_HASH], hash[CHAIN_HASH];
    bool checkpoint, last;
    char key[CHAIN_KEY_ID + 1];
    uint8_t signature[CHAIN_SIGNATURE];
};

/* Parses an untrusted line without its newline. ERR_INVALID: the line does not have the form
 * above. */
int chain_parse_line(const char *line, size_t len, struct chain_line *ret, struct err *err);
/* Parses only the number, time, tenant and action, for a search in a trusted trail. */
bool chain_peek(const char *line, size_t len, struct chain_line *ret);
/* Whether the `hash` in the line is the hash of the line. */
bool chain_hash_matches(const char *line, size_t len, const struct chain_line *l);

void chain_hex(const uint8_t *data, size_t len, char *ret);   /* 2 * len digits and a NUL */
bool chain_unhex(const char *text, size_t len, uint8_t *ret); /* exactly len bytes from 2 * len digits */
void chain_sha256(const void *data, size_t len, uint8_t ret[CHAIN_HASH]);
