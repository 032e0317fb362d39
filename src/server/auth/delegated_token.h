/* delegated_token.h - a delegated part of a principal's permissions: a sandbox token, a ticket, a
 * signed URL of a file.
 *
 * A delegated token names its delegator, and grants no more than the delegator has at the time of
 * use: if a key is revoked, rotated or expired, or a user is disabled, their delegated tokens end
 * too. All kinds but tickets are text with a MAC, and the server stores nothing of them:
 *
 *     PAYLOAD.MAC       both in base64url; the payload is a JSON object
 *
 * `bound` is additional input of the MAC that is not in the text: a method and a path. With a
 * different one the MAC does not match. */
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
    uint8_t key_hash[STORE_HASH_LEN]; /* DELEGATOR_KEY: the hash of the key, its identity in the store */
    char user[ID_SIZE];               /* DELEGATOR_USER: the user, found in the store by `name` */
    char name[STORE_NAME_MAX + 1];
    char owner[STORE_OWNER_MAX + 1];
    char sandbox[ID_SIZE]; /* "": any (tickets) */
    uint32_t scopes;
    uint16_t port; /* 0: any */
    uint64_t expires_ms;
};

enum delegated_token_kind { DELEGATED_SANDBOX_TOKEN, DELEGATED_FILE_URL };

/* Appends the text; a sandbox token includes its prefix. */
void delegated_token_write(const struct mac_key *s, enum delegated_token_kind kind, const char *bound,
                           const struct delegated_token *g, struct buf *out);
/* Returns false if the text was not created by this server, for any reason. The caller must check
 * expires_ms. */
bool delegated_token_read(const struct mac_key *s, enum delegated_token_kind kind, const char *bound, const char *text,
                          struct delegated_token *ret);

/* The `bound` value of a file URL. The caller frees it. */
char *delegated_token_url_binding(const char *method, const char *path) MUST_USE;
