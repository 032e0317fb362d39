/* OpenSSL over the descriptor itself, without a copy in between. Invariants:
 *
 * 1. The owner is called from the loop only, and the call is the last step: it may free the
 *    connection.
 * 2. Decrypted bytes that OpenSSL holds are not seen by epoll, so a deferred call stands in for it
 *    as long as there are some and the owner wants to read. OpenSSL does not read ahead, so there
 *    are never undecrypted ones besides a part of a record.
 * 3. After an error of OpenSSL no function of it is called any more for this connection
 *    (SSL_get_error(3) requires it); `is_broken`.
 *
 * No session is resumed: a secret way keeps its connections open, and tickets of one sandbox must
 * not be used for another.
 *
 * OpenSSL needs a millisecond to begin and 25 ms to read the system's authorities, which a proxy
 * without secrets must not pay when it starts. By the time of the first connection the proxy cannot
 * open files any more. So the list is opened at the start and read later, and OpenSSL never reads a
 * configuration or a directory. */
#include "host/egress/tls_upstream.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/hostname.h"
#include "policy/ip_address.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define BUNDLE_MAX (4 * MIB)

struct tls_authorities {
    SSL_CTX *ctx;  /* NULL: no connection was made, and no file was named */
    int system_fd; /* -1: read, or not found */
};

enum tls_upstream_state { TLS_UPSTREAM_HANDSHAKE, TLS_UPSTREAM_ESTABLISHED, TLS_UPSTREAM_REFUSED };

struct tls_upstream {
    struct ev *ev;
    SSL *ssl;
    int fd;
    struct ev_io io;
    struct ev_defer pending;
    tls_upstream_fn *fn;
    void *arg;
    enum tls_upstream_state state;
    unsigned wanted;       /* READABLE, WRITABLE */
    bool read_needs_write; /* the last read has to send first (a key update) */
    bool write_needs_read;
    bool shutdown_waits; /* close_notify could not be sent yet */
    bool is_broken;
    struct err failure;
    char host[HOSTNAME_MAX + 1];
};

/* --- authorities --- */

static int authorities_error(struct err *err, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return err_set(err, ERR_TLS_FILES, "%.150s: %.60s", what, why ? why : "OpenSSL refuses it");
}

/* The file of all authorities, where distributions put it; -1: none. */
static int authorities_open_system(void)
{
    static const char *const files[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                         "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };
    const char *named = getenv("SSL_CERT_FILE");
    int fd = named && *named ? open(named, O_RDONLY | O_CLOEXEC) : -1;

    for (size_t i = 0; i < ARRAY_LEN(files) && fd < 0; i++)
        fd = open(files[i], O_RDONLY | O_CLOEXEC);
    return fd;
}

static int authorities_read_system(struct tls_authorities *a, struct err *err)
{
    auto_buf pem = { 0 };
    X509 *cert;

    ssize_t n = fd_read_full(a->system_fd, buf_room(&pem, BUNDLE_MAX), BUNDLE_MAX);
    if (n < 0)
        return err_sys(err, ERR_TLS_FILES, "the system's list of certificate authorities");
    BIO *bio = BIO_new_mem_buf(pem.data, (int)n);
    if (!bio)
        abort();
    while ((cert = PEM_read_bio_X509_AUX(bio, NULL, NULL, NULL))) {
        X509_STORE_add_cert(SSL_CTX_get_cert_store(a->ctx), cert);
        X509_free(cert);
    }
    BIO_free(bio);
    ERR_clear_error(); /* the end of the file, or a certificate that is listed twice */
    return 0;
}

static int authorities_make_context(struct tls_authorities *a, struct err *err)
{
    static const unsigned char alpn[] = "\x08http/1.1";

    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    ERR_clear_error();
    a->ctx = SSL_CTX_new(TLS_client_method());
    if (!a->ctx)
        return authorities_error(err, "TLS cannot be set up with the OpenSSL of this host");
    SSL_CTX_set_verify(a->ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_options(a->ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(a->ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(a->ctx, SSL_SESS_CACHE_OFF);
    if (SSL_CTX_set_min_proto_version(a->ctx, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_alpn_protos(a->ctx, alpn, sizeof(alpn) - 1) != 0)
        return authorities_error(err, "TLS cannot be set up with the OpenSSL of this host");
    return 0;
}

/* Before the first connection. */
static int authorities_complete(struct tls_authorities *a, struct err *err)
{
    if (!a->ctx && authorities_make_context(a, err) < 0)
        return -1;
    if (a->system_fd >= 0 && authorities_read_system(a, err) < 0)
        return -1;
    fd_close(&a->system_fd);
    return 0;
}

int tls_authorities_new(const char *ca_file, struct tls_authorities **ret, struct err *err)
{
    auto_(tls_authorities) a = mem_new(struct tls_authorities);

    a->system_fd = authorities_open_system();
    if (ca_file && *ca_file) {
        if (authorities_make_context(a, err) < 0)
            return -1;
        if (SSL_CTX_load_verify_file(a->ctx, ca_file) != 1)
            return authorities_error(err, ca_file);
    }
    *ret = take_ptr(&a);
    return 0;
}

void tls_authorities_free(struct tls_authorities *a)
{
    if (!a)
        return;
    fd_close(&a->system_fd);
    SSL_CTX_free(a->ctx);
    free(a);
}

/* --- errors in words --- */

static int upstream_refuse_certificate(struct err *err, const char *host, long code)
{
    const char *why;

    switch (code) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        why = "its certificate is for another name";
        break;
    case X509_V_ERR_CERT_HAS_EXPIRED:
        why = "its certificate has expired";
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        why = "its certificate is not valid yet";
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE: /* an authority with the name of a known one */
        why = "its certificate is signed by an unknown authority";
        break;
    default:
        why = X509_verify_cert_error_string(code);
    }
    return err_set(err, ERR_TLS_UNTRUSTED, "%.150s is not trusted: %.60s", host, why);
}

/* After a call returned `result`, which is SSL_ERROR_SSL or SSL_ERROR_SYSCALL. */
static int upstream_tls_error(struct tls_upstream *u, int result, int saved_errno, struct err *err)
{
    unsigned long code = ERR_peek_last_error();
    long verified = SSL_get_verify_result(u->ssl);
    const char *why = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    u->is_broken = true;
    if (u->state == TLS_UPSTREAM_HANDSHAKE && result == SSL_ERROR_SSL && verified != X509_V_OK)
        return upstream_refuse_certificate(err, u->host, verified);
    if (ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING ||
        (result == SSL_ERROR_SYSCALL && (saved_errno == 0 || saved_errno == ECONNRESET || saved_errno == EPIPE)))
        return err_set(err, ERR_CUT_OFF, "%.150s closed the connection", u->host);
    if (result == SSL_ERROR_SYSCALL) {
        errno = saved_errno;
        return err_sys(err, ERR_CUT_OFF, "%.150s", u->host);
    }
    if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        return err_set(err, ERR_PROTOCOL, "%.150s does not speak TLS on this port", u->host);
    return err_set(err, ERR_PROTOCOL, "TLS with %.150s failed: %.60s", u->host, why ? why : "unknown reason");
}

/* --- the loop --- */

static void upstream_on_pending(void *arg);

static bool upstream_has_pending(const struct tls_upstream *u)
{
    return u->state == TLS_UPSTREAM_ESTABLISHED && u->wanted & TLS_UPSTREAM_READABLE &&
           (u->is_broken || SSL_pending(u->ssl) > 0);
}

static void upstream_update(struct tls_upstream *u)
{
    uint32_t events = u->shutdown_waits ? EPOLLOUT : 0;

    if (u->state != TLS_UPSTREAM_ESTABLISHED)
        return;
    if (u->wanted & TLS_UPSTREAM_READABLE)
        events |= u->read_needs_write ? EPOLLOUT : EPOLLIN;
    if (u->wanted & TLS_UPSTREAM_WRITABLE)
        events |= u->write_needs_read ? EPOLLIN : EPOLLOUT;
    ev_io_set(u->ev, &u->io, events);
    if (!upstream_has_pending(u))
        ev_defer_clear(u->ev, &u->pending);
    else if (!u->pending.on)
        ev_defer(u->ev, &u->pending, upstream_on_pending, u);
}

static void upstream_on_pending(void *arg)
{
    struct tls_upstream *u = arg;

    if (!upstream_has_pending(u))
        return;
    ev_defer(u->ev, &u->pending, upstream_on_pending, u); /* until the owner has read all of them */
    u->fn(u->arg, TLS_UPSTREAM_READABLE);
}

static void upstream_fail(struct tls_upstream *u)
{
    u->state = TLS_UPSTREAM_REFUSED;
    ev_io_del(u->ev, &u->io);
    u->fn(u->arg, TLS_UPSTREAM_FAILED);
}

static void upstream_handshake(struct tls_upstream *u)
{
    ERR_clear_error();
    errno = 0;
    int rc = SSL_connect(u->ssl), saved_errno = errno;
    int result = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(u->ssl, rc);

    if (result == SSL_ERROR_NONE) {
        u->state = TLS_UPSTREAM_ESTABLISHED;
        upstream_update(u);
        u->fn(u->arg, TLS_UPSTREAM_OPEN);
    } else if (result == SSL_ERROR_WANT_READ || result == SSL_ERROR_WANT_WRITE) {
        ev_io_set(u->ev, &u->io, result == SSL_ERROR_WANT_READ ? EPOLLIN : EPOLLOUT);
    } else {
        upstream_tls_error(u, result, saved_errno, &u->failure);
        upstream_fail(u);
    }
}

static void upstream_try_shutdown(struct tls_upstream *u)
{
    ERR_clear_error();
    int rc = SSL_shutdown(u->ssl), result = rc < 0 ? SSL_get_error(u->ssl, rc) : SSL_ERROR_NONE;

    u->shutdown_waits = result == SSL_ERROR_WANT_WRITE;
    u->is_broken = result == SSL_ERROR_SSL || result == SSL_ERROR_SYSCALL;
    ERR_clear_error();
}

static void upstream_on_io(void *arg, uint32_t events)
{
    struct tls_upstream *u = arg;
    bool in = events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP), out = events & (EPOLLOUT | EPOLLHUP | EPOLLERR);
    unsigned ready = 0;

    if (u->state == TLS_UPSTREAM_HANDSHAKE) {
        upstream_handshake(u);
        return;
    }
    if (u->shutdown_waits && out && !u->is_broken) {
        upstream_try_shutdown(u);
        upstream_update(u);
    }
    if (u->wanted & TLS_UPSTREAM_READABLE && (u->read_needs_write ? out : in))
        ready |= TLS_UPSTREAM_READABLE;
    if (u->wanted & TLS_UPSTREAM_WRITABLE && (u->write_needs_read ? in : out))
        ready |= TLS_UPSTREAM_WRITABLE;
    if (ready)
        u->fn(u->arg, ready);
}

/* --- for the owner --- */

static int upstream_set_name(SSL *ssl, const char *host)
{
    struct ip_address address;

    if (ip_address_parse(host, strlen(host), &address))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

int tls_upstream_new(struct ev *ev, struct tls_authorities *a, int fd, const char *host, tls_upstream_fn *fn, void *arg,
                     struct tls_upstream **ret, struct err *err)
{
    auto_(tls_upstream) u = mem_new(struct tls_upstream);

    u->ev = ev;
    u->fd = fd;
    u->fn = fn;
    u->arg = arg;
    if (authorities_complete(a, err) < 0)
        return -1;
    u->ssl = SSL_new(a->ctx);
    if (!u->ssl)
        abort();
    if (!str_copy(u->host, sizeof(u->host), host) || upstream_set_name(u->ssl, host) != 1 ||
        SSL_set_fd(u->ssl, fd) != 1)
        return err_set(err, ERR_INVALID, "TLS: '%.150s' is not a host name", host);
    if (ev_io_add(ev, &u->io, fd, EPOLLOUT, upstream_on_io, u, err) < 0)
        return -1;
    *ret = take_ptr(&u);
    return 0;
}

void tls_upstream_free(struct tls_upstream *u)
{
    if (!u)
        return;
    ev_io_del(u->ev, &u->io);
    ev_defer_clear(u->ev, &u->pending);
    if (u->state == TLS_UPSTREAM_ESTABLISHED && !u->is_broken) {
        ERR_clear_error();
        SSL_shutdown(u->ssl); /* if there is room for it */
        ERR_clear_error();
    }
    SSL_free(u->ssl);
    fd_close(&u->fd);
    free(u);
}

void tls_upstream_want(struct tls_upstream *u, unsigned events)
{
    u->wanted = events & (TLS_UPSTREAM_READABLE | TLS_UPSTREAM_WRITABLE);
    upstream_update(u);
}

/* The common end of read and write. */
static enum tls_upstream_io upstream_io_result(struct tls_upstream *u, int rc, int saved_errno, bool *needs_other,
                                               int other, struct err *err)
{
    int result = rc == 1 ? SSL_ERROR_NONE : SSL_get_error(u->ssl, rc);
    enum tls_upstream_io io = TLS_UPSTREAM_AGAIN;

    *needs_other = result == other;
    if (result == SSL_ERROR_NONE)
        io = TLS_UPSTREAM_OK;
    else if (result == SSL_ERROR_ZERO_RETURN)
        io = TLS_UPSTREAM_END;
    else if (result != SSL_ERROR_WANT_READ && result != SSL_ERROR_WANT_WRITE)
        io = (enum tls_upstream_io)upstream_tls_error(u, result, saved_errno, err);
    upstream_update(u);
    return io;
}

enum tls_upstream_io tls_upstream_read(struct tls_upstream *u, void *to, size_t room, size_t *ret_n, struct err *err)
{
    if (u->is_broken || u->state != TLS_UPSTREAM_ESTABLISHED)
        return (enum tls_upstream_io)err_set(err, ERR_CUT_OFF, "%.150s closed the connection", u->host);
    ERR_clear_error();
    errno = 0;
    int rc = SSL_read_ex(u->ssl, to, room, ret_n);
    return upstream_io_result(u, rc, errno, &u->read_needs_write, SSL_ERROR_WANT_WRITE, err);
}

enum tls_upstream_io tls_upstream_write(struct tls_upstream *u, const void *data, size_t n, size_t *ret_n,
                                        struct err *err)
{
    if (u->is_broken || u->state != TLS_UPSTREAM_ESTABLISHED)
        return (enum tls_upstream_io)err_set(err, ERR_CUT_OFF, "%.150s closed the connection", u->host);
    ERR_clear_error();
    errno = 0;
    int rc = SSL_write_ex(u->ssl, data, n, ret_n);
    return upstream_io_result(u, rc, errno, &u->write_needs_read, SSL_ERROR_WANT_READ, err);
}

void tls_upstream_shutdown(struct tls_upstream *u)
{
    if (u->state != TLS_UPSTREAM_ESTABLISHED || u->is_broken)
        return;
    upstream_try_shutdown(u);
    upstream_update(u);
}

const struct err *tls_upstream_failure(const struct tls_upstream *u)
{
    return &u->failure;
}
