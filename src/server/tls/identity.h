/* identity.h - who the server is to its TLS clients: a certificate with its chain, the key to it, and what is spoken.
 *
 * TLS 1.2 and 1.3 with forward secrecy and authenticated encryption, nothing else; HTTP/1.1 by ALPN. Connections keep
 * what they were made with, so an identity may be freed while they live. */
#pragma once

#include "server/tls/pem.h"

struct tls_identity;

struct tls_facts {
    uint64_t not_before_ms, not_after_ms; /* of the certificate; since 1970 */
    char subject[128];
    char fingerprint[96]; /* SHA-256 of the certificate, as "ab:cd:..." */
};

/* Refuses what no client could accept: a key that belongs to another certificate, a key with a password, no certificate
 * at all. One that is out of date is for the caller to judge. */
int tls_identity_new(const struct pem *pem, struct tls_identity **ret, struct err *err);
void tls_identity_free(struct tls_identity *id);
DEFINE_AUTO(tls_identity, tls_identity_free);

const struct tls_facts *tls_identity_facts(const struct tls_identity *id);
