/* sign.h - the Ed25519 key that signs checkpoints.
 *
 * The private half is a PEM file of the server's user alone; the public half is what a reader needs, and what has to be
 * kept where whoever could change the log cannot reach. */
#pragma once

#include "server/audit/chain.h"

struct sign_key;

/* The key in the directory, made when there is none (*ret_new). Its public half is kept beside it, as key.pub. */
int sign_open(int dir, struct sign_key **ret, bool *ret_new, struct err *err);
/* A public key from PEM text. */
int sign_read(const char *pem, size_t len, struct sign_key **ret, struct err *err);
void sign_free(struct sign_key *k);
DEFINE_AUTO(sign_key, sign_free);

const char *sign_id(const struct sign_key *k);  /* CHAIN_KEY_ID hex digits: the beginning of the hash of its bytes */
const char *sign_pem(const struct sign_key *k); /* its public half */

void sign_checkpoint(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                     uint8_t ret[CHAIN_SIGNATURE]);
bool sign_check(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                const uint8_t signature[CHAIN_SIGNATURE]);
