/* sign.h - the Ed25519 key that signs checkpoints.
 *
 * The private key is a PEM file that only the server's user can read. The public key is what a
 * verifier needs; keep a copy of it where an attacker with write access to the trail cannot replace
 * it. */
#pragma once

#include "server/audit/chain.h"

struct sign_key;

/* Opens the key in the directory, or creates one if it is missing (*ret_new). The public key is
 * kept next to it as key.pub. */
int sign_open(int dir, struct sign_key **ret, bool *ret_new, struct err *err);
/* Reads a public key from PEM text. */
int sign_read(const char *pem, size_t len, struct sign_key **ret, struct err *err);
void sign_free(struct sign_key *k);
DEFINE_AUTO(sign_key, sign_free);

const char *sign_id(const struct sign_key *k);  /* CHAIN_KEY_ID hex digits: the start of the hash of the public key */
const char *sign_pem(const struct sign_key *k); /* the public key */

void sign_checkpoint(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                     uint8_t ret[CHAIN_SIGNATURE]);
bool sign_check(const struct sign_key *k, uint64_t seq, const uint8_t prev[CHAIN_HASH],
                const uint8_t signature[CHAIN_SIGNATURE]);
