/* delegated_token.h - a part of somebody's rights that they hand on: a sandbox token, a ticket, a signed URL of a file.
 *
 * A pass names who made it, and is worth no more than its maker is at the moment it is used: a key that is revoked,
 * rotated or expired, and a user who is disabled, take their passes along. Written down (all but tickets) it is text
 * that the server sealed and keeps nothing of:
 *
 *     PAYLOAD.MAC       both in base64url; the payload is a JSON object
 *
 * `bound` is what the text was made for besides, and is not in it: a method and a path. With another one the seal does
 * not hold. */
#pragma once

#include "server/auth/scope.h"
#include "server/auth/mac.h"
#include "core/base/id.h"
#include "store/store.h"

#define DELEGATED_TOKEN_PREFIX "cove_sb_"
#define DELEGATED_TOKEN_TEXT_MAX 1024u

enum delegator_kind { DELEGATOR_LOCAL, DELEGATOR_KEY, DELEGATOR_USER };

struct delegated_token {
    char id[ID_SIZE]; /* tk... */
    enum delegator_kind delegator;
    uint8_t key_hash[STORE_HASH_LEN]; /* DELEGATOR_KEY: the hash of the key, which is how the store knows it */
    char user[ID_SIZE];               /* DELEGATOR_USER, with the name by which the store is asked */
    char name[STORE_NAME_MAX + 1];
    char owner[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE]; /* "": any (tickets) */
    uint32_t scopes;
    uint16_t port; /* 0: any */
    uint64_t expires_ms;
};

enum delegated_token_kind { DELEGATED_SANDBOX_TOKEN, DELEGATED_FILE_URL };

/* Adds the text; a sandbox token comes with its prefix. */
void delegated_token_write(const struct mac_key *s, enum delegated_token_kind kind, const char *bound,
                           const struct delegated_token *g, struct buf *out);
/* False: it is none that this server sealed, for whatever reason. Whether it has expired is the caller's to ask. */
bool delegated_token_read(const struct mac_key *s, enum delegated_token_kind kind, const char *bound, const char *text,
                          struct delegated_token *ret);

/* What a file URL is bound to. The caller frees it. */
char *delegated_token_url_binding(const char *method, const char *path) MUST_USE;
