/* chain.h - a record of the audit log as one line of JSON, and how each line holds the one before it.
 *
 *     {"seq":7,"at":"...","tenant":"...","action":"sandbox.create",...,"prev":"<hash of 6>","hash":"<hash of 7>"}
 *
 * The hash of a record is SHA-256 over the 32 bytes of `prev` and then the line as it stands without its `hash` member
 * (and without the line end). So whoever changes, removes or moves a line changes every hash behind it, and cannot
 * change those that were signed: a checkpoint is a record with an Ed25519 signature over its own number and `prev`. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#define CHAIN_HASH 32u
#define CHAIN_SIGNATURE 64u
#define CHAIN_KEY_ID 16u                  /* hex digits by which a checkpoint names its key */
#define CHAIN_LINE_MAX (1u * 1024 * 1024) /* bytes, with the line end */
#define CHAIN_CHECKPOINT "audit.checkpoint"

/* The end of a chain: its last record. All zero before the first one. */
struct chain_link {
    uint64_t seq;
    uint8_t hash[CHAIN_HASH];
};

struct audit_pair {
    const char *name, *value;
};

struct audit_record {       /* texts are escaped, so they may be anybody's; NULL and "" are left out */
    const char *tenant;     /* whose; "" is the server's own */
    const char *action;     /* "sandbox.create" */
    const char *outcome;    /* accepted, success, refused, failed */
    int status;             /* of the answer; 0 is none */
    const char *error;      /* a code of errors.def */
    const char *kind;       /* of the actor: key, local, server, ... */
    const char *key, *user; /* their ids */
    const char *address;    /* where from */
    const struct audit_pair *target;
    size_t ntarget;
    const char *request, *client_request;
    const char *details; /* a JSON object in text, trusted */
};

/* Adds the line of the next record to `out` and moves the link on to it. */
void chain_append(struct chain_link *at, const struct audit_record *r, uint64_t now_ms, struct buf *out);

struct sign_key;
/* The same for a checkpoint; last: no record follows in this file. */
void chain_sign(struct chain_link *at, const struct sign_key *key, bool last, uint64_t now_ms, struct buf *out);

struct chain_text {
    const char *p;
    size_t n;
};

struct chain_line { /* texts point into the line */
    uint64_t seq, at_ms;
    struct chain_text tenant, action;
    uint8_t prev[CHAIN_HASH], hash[CHAIN_HASH];
    bool checkpoint, last;
    char key[CHAIN_KEY_ID + 1];
    uint8_t signature[CHAIN_SIGNATURE];
};

/* Reads a line, without its end, that may come from anybody. What is not of the form above is ERR_INVALID. */
int chain_parse_line(const char *line, size_t len, struct chain_line *ret, struct err *err);
/* Only its number, time, tenant and action: for who looks for something in a log that is its own. */
bool chain_peek(const char *line, size_t len, struct chain_line *ret);
/* Whether the hash in the line is that of the line. */
bool chain_hash_matches(const char *line, size_t len, const struct chain_line *l);

void chain_hex(const uint8_t *data, size_t len, char *ret);   /* 2 * len digits and a NUL */
bool chain_unhex(const char *text, size_t len, uint8_t *ret); /* exactly len bytes from 2 * len digits */
void chain_sha256(const void *data, size_t len, uint8_t ret[CHAIN_HASH]);
