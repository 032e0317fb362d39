/* identity.h - the server's TLS identity: a certificate with its chain, its private key, and the
 * protocol settings.
 *
 * Only TLS 1.2 and 1.3 with forward secrecy and authenticated encryption; HTTP/1.1 by ALPN.
 * Connections keep the settings that they were created with, so an identity may be freed while they
 * exist. */
#pragma once

#include "server/tls/pem.h"

struct tls_identity;

struct tls_facts {
    uint64_t not_before_ms, not_after_ms; /* validity of the certificate, ms since 1970 */
    char subject[128];
    char fingerprint[96]; /* SHA-256 of the certificate, as "ab:cd:..." */
};

/* Refuses files that no client could accept: a key of another certificate, a key with a passphrase,
 * no certificate. The caller must check whether the certificate has expired. */
int tls_identity_new(const struct pem *pem, struct tls_identity **ret, struct err *err);
void tls_identity_free(struct tls_identity *id);
DEFINE_AUTO(tls_identity, tls_identity_free);

const struct tls_facts *tls_identity_facts(const struct tls_identity *id);
