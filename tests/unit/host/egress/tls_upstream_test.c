/* A TLS server of OpenSSL in a thread, with certificates that the test makes, and the client in the
 * loop of the test. */
#include "host/egress/tls_upstream.h"

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/egress/egress_filter.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST "api.example.org"
#define BULK (3u * 1024 * 1024)

/* --- certificates --- */

struct identity {
    EVP_PKEY *key;
    X509 *cert;
};

static struct identity authority, other_authority;
static char authority_file[] = "/tmp/cove-tls-XXXXXX";

static struct identity make_identity(const char *names, const struct identity *signer, long valid_s)
{
    struct identity id = { EVP_EC_gen("P-256"), X509_new() };
    X509_NAME *subject = X509_get_subject_name(id.cert);
    X509V3_CTX ctx;

    X509_set_version(id.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(id.cert), 1 + random() % 1000000);
    X509_gmtime_adj(X509_getm_notBefore(id.cert), -7200);
    X509_gmtime_adj(X509_getm_notAfter(id.cert), valid_s);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)(names ? "leaf" : "authority"), -1,
                               -1, 0);
    X509_set_issuer_name(id.cert, signer ? X509_get_subject_name(signer->cert) : subject);
    X509_set_pubkey(id.cert, id.key);
    X509V3_set_ctx(&ctx, signer ? signer->cert : id.cert, id.cert, NULL, NULL, 0);
    X509_EXTENSION *ext = names ? X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, names)
                                : X509V3_EXT_conf_nid(NULL, &ctx, NID_basic_constraints, "critical,CA:TRUE");
    assert_non_null(ext);
    X509_add_ext(id.cert, ext, -1);
    X509_EXTENSION_free(ext);
    assert_true(X509_sign(id.cert, signer ? signer->key : id.key, EVP_sha256()) > 0);
    return id;
}

static void free_identity(struct identity *id)
{
    EVP_PKEY_free(id->key);
    X509_free(id->cert);
}

static int set_up(void **state UNUSED)
{
    int fd = mkstemp(authority_file);
    FILE *f = fdopen(fd, "w");

    signal(SIGPIPE, SIG_IGN);
    authority = make_identity(NULL, NULL, 3600);
    other_authority = make_identity(NULL, NULL, 3600);
    PEM_write_X509(f, authority.cert);
    return fclose(f);
}

static int tear_down(void **state UNUSED)
{
    free_identity(&authority);
    free_identity(&other_authority);
    return unlink(authority_file);
}

/* --- the server --- */

struct server {
    pthread_t thread;
    int fd;
    struct identity id;
    int max_version;
    bool drops_close_notify;
    void (*serve)(struct server *s, SSL *ssl);
    /* observed */
    char name[64], alpn[16];
    int version;
    size_t received;
    bool got_close_notify;
};

static int select_alpn(SSL *ssl UNUSED, const unsigned char **ret, unsigned char *ret_len, const unsigned char *in,
                       unsigned in_len, void *arg)
{
    struct server *s = arg;

    snprintf(s->alpn, sizeof(s->alpn), "%.*s", (int)in_len - 1, (const char *)in + 1);
    *ret = in + 1;
    *ret_len = in[0];
    return SSL_TLSEXT_ERR_OK;
}

static void *server_main(void *arg)
{
    struct server *s = arg;
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    SSL *ssl;

    SSL_CTX_use_certificate(ctx, s->id.cert);
    SSL_CTX_use_PrivateKey(ctx, s->id.key);
    SSL_CTX_set_alpn_select_cb(ctx, select_alpn, s);
    if (s->max_version) {
        SSL_CTX_set_security_level(ctx, 0);
        SSL_CTX_set_min_proto_version(ctx, 0);
        SSL_CTX_set_max_proto_version(ctx, s->max_version);
    }
    ssl = SSL_new(ctx);
    SSL_set_fd(ssl, s->fd);
    if (SSL_accept(ssl) == 1) {
        const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);

        snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
        s->version = SSL_version(ssl);
        s->serve(s, ssl);
        if (!s->drops_close_notify)
            SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    SSL_CTX_free(ctx);
    close(s->fd);
    ERR_clear_error();
    OPENSSL_thread_stop();
    return NULL;
}

static void serve_echo(struct server *s, SSL *ssl)
{
    char text[64];
    int n = SSL_read(ssl, text, sizeof(text));

    s->received = n > 0 ? (size_t)n : 0;
    SSL_write(ssl, text, n);
}

static void serve_bulk(struct server *s UNUSED, SSL *ssl)
{
    static char bytes[50000];

    memset(bytes, 'b', sizeof(bytes));
    for (size_t at = 0; at < BULK; at += sizeof(bytes))
        SSL_write(ssl, bytes, (int)min_size(sizeof(bytes), BULK - at));
}

static void serve_late_sink(struct server *s, SSL *ssl)
{
    char bytes[16384];
    int n;

    usleep(50000); /* the client's buffers fill up meanwhile */
    while ((n = SSL_read(ssl, bytes, sizeof(bytes))) > 0)
        s->received += (size_t)n;
    s->got_close_notify = SSL_get_error(ssl, n) == SSL_ERROR_ZERO_RETURN;
}

static void serve_nothing(struct server *s UNUSED, SSL *ssl UNUSED)
{
}

/* --- the client --- */

struct client {
    struct ev *ev;
    struct tls_authorities *authorities;
    struct tls_upstream *tls;
    unsigned seen;
    struct buf received;
    size_t room, sent, to_send, longest_burst;
    enum tls_upstream_io last;
    struct err err;
    bool shuts_down;
};

static void client_read(struct client *c)
{
    char bytes[4096];
    size_t n;

    c->last = tls_upstream_read(c->tls, bytes, min_size(c->room, sizeof(bytes)), &n, &c->err);
    if (c->last == TLS_UPSTREAM_OK)
        buf_add(&c->received, bytes, n);
    else if (c->last != TLS_UPSTREAM_AGAIN)
        ev_stop(c->ev);
}

static void client_write(struct client *c)
{
    static char bytes[100000];
    size_t n;

    memset(bytes, 'w', sizeof(bytes));
    while (c->sent < c->to_send) {
        enum tls_upstream_io io = tls_upstream_write(c->tls, bytes, min_size(sizeof(bytes), c->to_send - c->sent), &n,
                                                     &c->err);

        if (io == TLS_UPSTREAM_AGAIN)
            return;
        assert_int_equal(io, TLS_UPSTREAM_OK);
        c->sent += n;
    }
    tls_upstream_want(c->tls, TLS_UPSTREAM_READABLE);
    if (c->shuts_down)
        tls_upstream_shutdown(c->tls);
}

static void client_on_event(void *arg, unsigned events)
{
    struct client *c = arg;

    c->seen |= events;
    if (events & TLS_UPSTREAM_FAILED)
        ev_stop(c->ev);
    if (events & TLS_UPSTREAM_OPEN)
        tls_upstream_want(c->tls, TLS_UPSTREAM_READABLE | (c->to_send ? TLS_UPSTREAM_WRITABLE : 0));
    if (events & TLS_UPSTREAM_WRITABLE)
        client_write(c);
    if (events & TLS_UPSTREAM_READABLE)
        client_read(c);
}

static void start(struct server *s, struct client *c, const char *host)
{
    struct err err = { 0 };
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    s->fd = pair[0];
    if (!s->serve)
        s->serve = serve_nothing;
    assert_int_equal(pthread_create(&s->thread, NULL, server_main, s), 0);
    fd_nonblock(pair[1], true);
    assert_int_equal(ev_new(&c->ev, &err), 0);
    if (tls_authorities_new(authority_file, &c->authorities, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(tls_upstream_new(c->ev, c->authorities, pair[1], host, client_on_event, c, &c->tls, &err), 0);
    c->room = c->room ? c->room : 4096;
}

static void finish(struct server *s, struct client *c)
{
    tls_upstream_free(c->tls);
    pthread_join(s->thread, NULL);
    tls_authorities_free(c->authorities);
    ev_free(c->ev);
    free_identity(&s->id);
    buf_done(&c->received);
}

TEST(bytes_pass_both_ways_and_the_name_is_sent)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600), .serve = serve_echo };
    struct client c = { .to_send = 10 };

    start(&s, &c, HOST);
    ev_run(c.ev);
    assert_int_equal(c.last, TLS_UPSTREAM_END);
    assert_string_equal(c.received.data, "wwwwwwwwww");
    assert_true(c.seen & TLS_UPSTREAM_OPEN);
    assert_false(c.seen & TLS_UPSTREAM_FAILED);
    assert_string_equal(s.name, HOST);
    assert_string_equal(s.alpn, "http/1.1");
    assert_true(s.version >= TLS1_2_VERSION);
    finish(&s, &c);
}

TEST(EG06_servers_that_do_not_prove_the_name_are_refused)
{
    static const struct {
        const char *names;
        const struct identity *signer;
        long valid_s;
        const char *host;
        enum err_id id;
        const char *message;
    } cases[] = {
        { "DNS:api.example.org", &authority, 3600, HOST, ERR_NONE, "" },
        { "DNS:*.example.org", &authority, 3600, HOST, ERR_NONE, "" },
        { "DNS:other.example.org", &authority, 3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate is for another name" },
        { "DNS:*.org", &authority, 3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate is for another name" },
        { "DNS:a*.example.org", &authority, 3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate is for another name" },
        { "DNS:api.example.org", &authority, -3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate has expired" },
        { "DNS:api.example.org", &other_authority, 3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate is signed by an unknown authority" },
        { "DNS:api.example.org", NULL, 3600, HOST, ERR_TLS_UNTRUSTED,
          "api.example.org is not trusted: its certificate is signed by an unknown authority" },
        { "IP:192.0.2.1", &authority, 3600, "192.0.2.1", ERR_NONE, "" },
        { "DNS:192.0.2.1", &authority, 3600, "192.0.2.1", ERR_TLS_UNTRUSTED,
          "192.0.2.1 is not trusted: its certificate is for another name" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct server s = { .id = make_identity(cases[i].names, cases[i].signer, cases[i].valid_s) };
        struct client c = { 0 };

        start(&s, &c, cases[i].host);
        ev_run(c.ev);
        const struct err *why = tls_upstream_failure(c.tls);
        if (why->id != cases[i].id || !str_eq(why->msg, cases[i].message))
            fail_msg("%s: %s", cases[i].names, why->msg);
        assert_int_equal(c.seen & (TLS_UPSTREAM_OPEN | TLS_UPSTREAM_FAILED),
                         cases[i].id ? TLS_UPSTREAM_FAILED : TLS_UPSTREAM_OPEN);
        finish(&s, &c);
    }
}

TEST(old_versions_of_TLS_are_refused)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600), .max_version = TLS1_1_VERSION };
    struct client c = { 0 };

    start(&s, &c, HOST);
    ev_run(c.ev);
    assert_int_equal(c.seen, TLS_UPSTREAM_FAILED);
    assert_int_equal(tls_upstream_failure(c.tls)->id, ERR_PROTOCOL);
    finish(&s, &c);
}

TEST(servers_without_TLS_are_described)
{
    static const struct {
        const char *says;
        const char *message;
    } cases[] = {
        { "HTTP/1.1 400 Bad Request\r\n\r\n", "api.example.org does not speak TLS on this port" },
        { "", "api.example.org closed the connection" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct client c = { 0 };
        struct err err = { 0 };
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        assert_true(write(pair[0], cases[i].says, strlen(cases[i].says)) >= 0);
        shutdown(pair[0], SHUT_WR);
        assert_int_equal(ev_new(&c.ev, &err), 0);
        assert_int_equal(tls_authorities_new(NULL, &c.authorities, &err), 0);
        assert_int_equal(tls_upstream_new(c.ev, c.authorities, pair[1], HOST, client_on_event, &c, &c.tls, &err), 0);
        assert_int_equal(c.seen, 0); /* nothing is reported inside of the call */
        ev_run(c.ev);
        assert_int_equal(c.seen, TLS_UPSTREAM_FAILED);
        assert_string_equal(tls_upstream_failure(c.tls)->msg, cases[i].message);
        tls_upstream_free(c.tls);
        tls_authorities_free(c.authorities);
        ev_free(c.ev);
        close(pair[0]);
    }
}

TEST(EG13_bytes_wait_in_the_server_while_the_owner_does_not_read)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600), .serve = serve_bulk };
    struct client c = { .room = 700 };

    start(&s, &c, HOST);
    while (!(c.seen & TLS_UPSTREAM_OPEN))
        ev_turn(c.ev, -1);
    tls_upstream_want(c.tls, 0);
    for (int i = 0; i < 20; i++)
        ev_turn(c.ev, 5);
    assert_int_equal(c.received.len, 0);
    tls_upstream_want(c.tls, TLS_UPSTREAM_READABLE);
    while (c.received.len < 5000)
        ev_turn(c.ev, -1); /* also for the bytes that OpenSSL holds, of which epoll knows nothing */
    tls_upstream_want(c.tls, 0);
    size_t before = c.received.len;
    for (int i = 0; i < 5; i++)
        ev_turn(c.ev, 5);
    assert_int_equal(c.received.len, before);
    tls_upstream_want(c.tls, TLS_UPSTREAM_READABLE);
    c.room = 4096;
    ev_run(c.ev);
    assert_int_equal(c.last, TLS_UPSTREAM_END);
    assert_int_equal(c.received.len, BULK);
    finish(&s, &c);
}

TEST(writes_wait_for_room_and_end_with_close_notify)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600), .serve = serve_late_sink };
    struct client c = { .to_send = BULK, .shuts_down = true };

    start(&s, &c, HOST);
    ev_run(c.ev);
    assert_int_equal(c.last, TLS_UPSTREAM_END);
    finish(&s, &c);
    assert_int_equal(s.received, BULK);
    assert_true(s.got_close_notify);
}

TEST(an_end_without_close_notify_is_an_error)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600),
                        .serve = serve_echo,
                        .drops_close_notify = true };
    struct client c = { .to_send = 10 };

    start(&s, &c, HOST);
    ev_run(c.ev);
    assert_int_equal(c.last, TLS_UPSTREAM_BAD);
    assert_int_equal(c.err.id, ERR_CUT_OFF);
    assert_int_equal(c.received.len, 10);
    finish(&s, &c);
}

/* The client in a process of its own, with the filter of the proxy. */
TEST(a_confined_process_can_speak_TLS)
{
    struct server s = { .id = make_identity("DNS:" HOST, &authority, 3600), .serve = serve_echo };
    struct tls_authorities *system = NULL, *own = NULL;
    struct err err = { 0 };
    int pair[2], status;

    assert_int_equal(tls_authorities_new(authority_file, &own, &err), 0);
    assert_int_equal(tls_authorities_new(NULL, &system, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct client c = { .to_send = 10, .room = 4096, .authorities = own };
        struct tls_upstream *unused = NULL;

        fd_nonblock(pair[1], true);
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || egress_filter_install() < 0 || ev_new(&c.ev, &err) < 0)
            _exit(2);
        if (tls_upstream_new(c.ev, system, fcntl(pair[1], F_DUPFD, 3), HOST, client_on_event, &c, &unused, &err) < 0)
            _exit(3); /* the system's authorities are read now */
        tls_upstream_free(unused);
        if (tls_upstream_new(c.ev, own, pair[1], HOST, client_on_event, &c, &c.tls, &err) < 0)
            _exit(4);
        ev_run(c.ev);
        _exit(c.last == TLS_UPSTREAM_END && c.received.len == 10 ? 0 : 5);
    }
    close(pair[1]);
    s.fd = pair[0];
    assert_int_equal(pthread_create(&s.thread, NULL, server_main, &s), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    pthread_join(s.thread, NULL);
    assert_int_equal(status, 0);
    assert_int_equal(s.received, 10);
    tls_authorities_free(system);
    tls_authorities_free(own);
    free_identity(&s.id);
}

TEST(a_file_without_authorities_is_refused)
{
    struct tls_authorities *a = NULL;
    struct err err = { 0 };

    assert_int_equal(tls_authorities_new("/dev/null", &a, &err), -1);
    assert_int_equal(err.id, ERR_TLS_FILES);
    assert_non_null(strstr(err.msg, "/dev/null"));
    assert_int_equal(tls_authorities_new("/nonexistent/ca.pem", &a, &err), -1);
    assert_null(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(bytes_pass_both_ways_and_the_name_is_sent),
        RUN(EG06_servers_that_do_not_prove_the_name_are_refused),
        RUN(old_versions_of_TLS_are_refused),
        RUN(servers_without_TLS_are_described),
        RUN(EG13_bytes_wait_in_the_server_while_the_owner_does_not_read),
        RUN(writes_wait_for_room_and_end_with_close_notify),
        RUN(an_end_without_close_notify_is_an_error),
        RUN(a_confined_process_can_speak_TLS),
        RUN(a_file_without_authorities_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
