/* One SSL_CTX per certificate that was loaded.
 *
 * 1. Session tickets make a second connection cheap. They are encrypted with a key that only this
 *    context has, so they expire with it. An attacker with that key could read the TLS 1.2
 *    connections that were resumed with it; the front gives each context a new key every hour
 *    (tls_identity_rotate_ticket_key) to limit the damage.
 * 2. Renegotiation, compression and early data are off: the first two have known attacks, and early
 *    data can be replayed by an eavesdropper.
 * 3. OpenSSL never prompts for a passphrase: a server has no user at its terminal. */
#include "server/tls/tls_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <time.h>

#define TICKET_S 3600
#define TICKET_KEY 80 /* bytes that OpenSSL needs for name, cipher and checksum */
#define CHAIN_MAX 16
#define CIPHERS_12 "ECDHE+AESGCM:ECDHE+CHACHA20"
#define CIPHERS_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS "X25519:P-256:P-384"

struct tls_identity {
    SSL_CTX *ctx;
    struct tls_facts facts;
};

static int tls_identity_openssl_error(struct err *err, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return err_set(err, ERR_TLS_FILES, "%s%s%.120s", what, why ? ": " : "", why ? why : "");
}

static int tls_identity_no_password(char *to UNUSED, int room UNUSED, int writing UNUSED, void *arg)
{
    *(bool *)arg = true;
    return -1;
}

static BIO *tls_identity_bio(const struct buf *b)
{
    BIO *bio = BIO_new_mem_buf(b->data ? b->data : "", (int)b->len);

    if (!bio)
        abort();
    return bio;
}

static bool tls_identity_pem_at_end(void)
{
    unsigned long code = ERR_peek_last_error();
    bool end = ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;

    if (end)
        ERR_clear_error();
    return end;
}

/* --- content of the files --- */

static int tls_identity_use_chain(SSL_CTX *ctx, BIO *bio, struct err *err)
{
    bool asked = false;

    for (int n = 0;; n++) {
        X509 *more = PEM_read_bio_X509(bio, NULL, tls_identity_no_password, &asked);

        if (!more)
            return tls_identity_pem_at_end()
                       ? 0
                       : tls_identity_openssl_error(err, "tls.certificate: a certificate of the chain cannot be read");
        if (n == CHAIN_MAX || SSL_CTX_add0_chain_cert(ctx, more) != 1) {
            X509_free(more);
            return tls_identity_openssl_error(err, "tls.certificate: the chain cannot be used");
        }
    }
}

static int tls_identity_use_certificate(SSL_CTX *ctx, const struct pem *pem, struct err *err)
{
    BIO *bio = tls_identity_bio(&pem->part[PEM_CERTIFICATE]);
    bool asked = false;
    X509 *own = PEM_read_bio_X509_AUX(bio, NULL, tls_identity_no_password, &asked);
    int rc = -1;

    if (!own)
        tls_identity_openssl_error(err, "tls.certificate: no certificate in PEM format");
    else if (SSL_CTX_use_certificate(ctx, own) != 1)
        tls_identity_openssl_error(err, "tls.certificate: the certificate cannot be used");
    else
        rc = tls_identity_use_chain(ctx, bio, err);
    X509_free(own);
    BIO_free(bio);
    return rc;
}

static int tls_identity_use_key(SSL_CTX *ctx, const struct pem *pem, struct err *err)
{
    BIO *bio = tls_identity_bio(&pem->part[PEM_KEY]);
    bool asked = false;
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, tls_identity_no_password, &asked);
    int rc = 0;

    if (!key && asked)
        rc = err_set(err, ERR_TLS_FILES,
                     "tls.key: the key has a passphrase, which the server cannot ask for; remove it");
    else if (!key)
        rc = tls_identity_openssl_error(err, "tls.key: no private key in PEM format");
    else if (SSL_CTX_use_PrivateKey(ctx, key) != 1 || SSL_CTX_check_private_key(ctx) != 1)
        rc = tls_identity_openssl_error(err, "tls.key: the key does not belong to the certificate");
    EVP_PKEY_free(key);
    BIO_free(bio);
    ERR_clear_error();
    return rc;
}

/* If client authorities are set, a client without a certificate signed by one of them is
 * refused. */
static int tls_identity_use_client_ca(SSL_CTX *ctx, const struct pem *pem, struct err *err)
{
    X509_STORE *store = SSL_CTX_get_cert_store(ctx);
    BIO *bio = tls_identity_bio(&pem->part[PEM_CLIENT_CA]);
    bool asked = false;
    int n = 0, rc = 0;
    X509 *ca;

    while ((ca = PEM_read_bio_X509(bio, NULL, tls_identity_no_password, &asked))) {
        n += X509_STORE_add_cert(store, ca) == 1 && SSL_CTX_add_client_CA(ctx, ca) == 1;
        X509_free(ca);
    }
    if (!tls_identity_pem_at_end() || n == 0)
        rc = tls_identity_openssl_error(err, "tls.clientCa: no certificate in PEM format");
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    BIO_free(bio);
    return rc;
}

static uint64_t tls_identity_time_ms(const ASN1_TIME *t)
{
    struct tm tm;
    time_t s = ASN1_TIME_to_tm(t, &tm) == 1 ? timegm(&tm) : 0;

    return s > 0 ? (uint64_t)s * 1000 : 0;
}

static void tls_identity_read_facts(const SSL_CTX *ctx, struct tls_facts *ret)
{
    const X509 *own = SSL_CTX_get0_certificate(ctx);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    ret->not_before_ms = tls_identity_time_ms(X509_get0_notBefore(own));
    ret->not_after_ms = tls_identity_time_ms(X509_get0_notAfter(own));
    X509_NAME_oneline(X509_get_subject_name(own), ret->subject, (int)sizeof(ret->subject));
    str_strip_control_chars(ret->subject);
    if (X509_digest(own, EVP_sha256(), digest, &n) != 1)
        n = 0;
    for (unsigned i = 0; i < n; i++)
        snprintf(ret->fingerprint + 3 * (size_t)i, 4, i + 1 < n ? "%02x:" : "%02x", digest[i]);
}

/* --- protocol settings --- */

static int tls_identity_select_alpn(SSL *ssl UNUSED, const unsigned char **ret, unsigned char *ret_len,
                                    const unsigned char *in, unsigned in_len, void *arg UNUSED)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *found;

    if (SSL_select_next_proto(&found, ret_len, ours, sizeof(ours) - 1, in, in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = found;
    return SSL_TLSEXT_ERR_OK;
}

static int tls_identity_configure(SSL_CTX *ctx, struct err *err)
{
    static const unsigned char name[] = "cove";

    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                 SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_mode(ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets need no memory in the server */
    SSL_CTX_set_timeout(ctx, TICKET_S);
    SSL_CTX_set_num_tickets(ctx, 1);
    SSL_CTX_set_alpn_select_cb(ctx, tls_identity_select_alpn, NULL);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1 || SSL_CTX_set_cipher_list(ctx, CIPHERS_12) != 1 ||
        SSL_CTX_set_ciphersuites(ctx, CIPHERS_13) != 1 || SSL_CTX_set1_groups_list(ctx, GROUPS) != 1 ||
        SSL_CTX_set_session_id_context(ctx, name, sizeof(name) - 1) != 1)
        return tls_identity_openssl_error(err, "TLS cannot be set up with the OpenSSL of this host");
    return 0;
}

void tls_identity_rotate_ticket_key(struct tls_identity *id)
{
    unsigned char key[TICKET_KEY];

    if (RAND_bytes(key, sizeof(key)) == 1)
        SSL_CTX_set_tlsext_ticket_keys(id->ctx, key, sizeof(key));
    explicit_bzero(key, sizeof(key));
}

int tls_identity_new(const struct pem *pem, struct tls_identity **ret, struct err *err)
{
    struct tls_identity *id = mem_new(struct tls_identity);

    ERR_clear_error();
    id->ctx = SSL_CTX_new(TLS_server_method());
    if (!id->ctx)
        abort();
    if (tls_identity_configure(id->ctx, err) < 0 || tls_identity_use_certificate(id->ctx, pem, err) < 0 ||
        tls_identity_use_key(id->ctx, pem, err) < 0 ||
        (pem->part[PEM_CLIENT_CA].len > 0 && tls_identity_use_client_ca(id->ctx, pem, err) < 0)) {
        tls_identity_free(id);
        return -1;
    }
    tls_identity_read_facts(id->ctx, &id->facts);
    *ret = id;
    return 0;
}

void tls_identity_free(struct tls_identity *id)
{
    if (!id)
        return;
    SSL_CTX_free(id->ctx);
    free(id);
}

const struct tls_facts *tls_identity_facts(const struct tls_identity *id)
{
    return &id->facts;
}

SSL *tls_identity_session(const struct tls_identity *id)
{
    return SSL_new(id->ctx);
}
