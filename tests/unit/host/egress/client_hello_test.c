/* The first message of TLS clients: real ones, made by OpenSSL, in pieces and records of every
 * size, and ones that a client would not send. */
#include "host/egress/client_hello.h"

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/str.h"

#include <openssl/ssl.h>

/* A ClientHello of OpenSSL; name: NULL for none. */
static void real_hello(const char *name, struct buf *ret)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    char bytes[4096];

    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    SSL_connect(ssl);
    int n = BIO_read(SSL_get_wbio(ssl), bytes, sizeof(bytes));
    assert_true(n > 100);
    buf_add(ret, bytes, (size_t)n);
    SSL_free(ssl);
    SSL_CTX_free(ctx);
}

static enum client_hello_result read_hello(const struct buf *b, struct client_hello *ret)
{
    struct err err = { 0 };
    enum client_hello_result result = client_hello_read(b->data, b->len, ret, &err);

    if (result == CLIENT_HELLO_BAD)
        assert_true(err.msg[0]);
    return result;
}

TEST(a_hello_is_read_when_its_last_byte_has_arrived)
{
    struct buf b = { 0 };
    struct client_hello hello;

    real_hello("Files.Example.ORG", &b);
    size_t whole = b.len;
    for (b.len = 0; b.len < whole; b.len++)
        if (read_hello(&b, &hello) != CLIENT_HELLO_MORE)
            fail_msg("complete after %zu of %zu bytes", b.len, whole);
    assert_int_equal(read_hello(&b, &hello), CLIENT_HELLO_READ);
    assert_string_equal(hello.name, "files.example.org");
    assert_false(hello.is_encrypted_hello);
    buf_add(&b, "\x17\x03\x03\x00\x01x", 6); /* early data */
    assert_int_equal(read_hello(&b, &hello), CLIENT_HELLO_READ);
    buf_done(&b);
}

TEST(a_hello_without_a_name_is_read)
{
    struct buf b = { 0 };
    struct client_hello hello;

    real_hello(NULL, &b);
    assert_int_equal(read_hello(&b, &hello), CLIENT_HELLO_READ);
    assert_string_equal(hello.name, "");
    buf_done(&b);
}

TEST(EG06_records_of_any_size_hide_no_name)
{
    struct buf b = { 0 };

    real_hello("files.example.org", &b);
    for (size_t size = 1; size < b.len; size += size < 40 ? 1 : 37) {
        struct buf cut = { 0 };
        struct client_hello hello = { 0 };

        for (size_t at = 5; at < b.len; at += size) {
            size_t n = min_size(size, b.len - at);
            uint8_t header[5] = { 22, 3, 1, (uint8_t)(n >> 8), (uint8_t)n };

            buf_add(&cut, header, 5);
            buf_add(&cut, b.data + at, n);
        }
        if (read_hello(&cut, &hello) != CLIENT_HELLO_READ || !str_eq(hello.name, "files.example.org"))
            fail_msg("records of %zu bytes: '%s'", size, hello.name);
        cut.len--;
        assert_int_equal(read_hello(&cut, &hello), CLIENT_HELLO_MORE);
        buf_done(&cut);
    }
    buf_done(&b);
}

/* A hello of hand-made extensions. */
static void made_hello(const char *extensions, size_t n, struct buf *ret)
{
    struct buf m = { 0 };
    uint8_t len[2] = { (uint8_t)(n >> 8), (uint8_t)n };

    buf_add(&m, "\x03\x03", 2);
    for (int i = 0; i < 32; i++)
        buf_add(&m, "r", 1);
    buf_add(&m, "\0\0\2\x13\x01\1\0", 7); /* no session, one cipher, no compression */
    buf_add(&m, len, 2);
    buf_add(&m, extensions, n);
    uint8_t header[9] = {
        22, 3, 1, (uint8_t)((m.len + 4) >> 8), (uint8_t)(m.len + 4), 1, 0, (uint8_t)(m.len >> 8), (uint8_t)m.len
    };
    buf_add(ret, header, 9);
    buf_add(ret, m.data, m.len);
    buf_done(&m);
}

#define EXT(s) s, sizeof(s) - 1

TEST(EG06_extensions_that_servers_read_differently_are_refused)
{
    static const struct {
        const char *extensions;
        size_t n;
        enum client_hello_result result;
        const char *name;
    } cases[] = {
        { EXT("\0\0\0\6\0\4\0\0\1a"), CLIENT_HELLO_READ, "a" },
        { EXT("\0\x2b\0\1x\0\0\0\6\0\4\0\0\1A\xfe\x0d\0\0"), CLIENT_HELLO_READ, "a" },
        { EXT(""), CLIENT_HELLO_READ, "" },
        { EXT("\0\0\0\6\0\4\0\0\1a\0\0\0\6\0\4\0\0\1a"), CLIENT_HELLO_BAD, "" }, /* twice */
        { EXT("\0\0\0\6\0\4\0\0\1a\0\0\0\6\0\4\0\0\1b"), CLIENT_HELLO_BAD, "" }, /* two names */
        { EXT("\0\0\0\x0a\0\x08\0\0\1a\0\0\1b"), CLIENT_HELLO_BAD, "" },         /* two in one */
        { EXT("\0\0\0\6\0\4\1\0\1a"), CLIENT_HELLO_BAD, "" },                    /* another type of name */
        { EXT("\0\0\0\6\0\4\0\0\2a"), CLIENT_HELLO_BAD, "" },                    /* longer than its list */
        { EXT("\0\0\0\7\0\4\0\0\1ab"), CLIENT_HELLO_BAD, "" },                   /* a rest after the list */
        { EXT("\0\0\0\6\0\5\0\0\1a"), CLIENT_HELLO_BAD, "" },                    /* a list past its end */
        { EXT("\0\0\0\5\0\3\0\0\0"), CLIENT_HELLO_BAD, "" },                     /* an empty name */
        { EXT("\0\0\0\0"), CLIENT_HELLO_BAD, "" },                               /* no list */
        { EXT("\0\0\0\7\0\5\0\0\2a."), CLIENT_HELLO_BAD, "" },                   /* a final dot */
        { EXT("\0\0\0\x08\0\6\0\0\3a\0b"), CLIENT_HELLO_BAD, "" },               /* a NUL */
        { EXT("\0\0\0\x0e\0\x0c\0\0\x09"
              "127.0.0.1"),
          CLIENT_HELLO_BAD, "" }, /* an address */
        { EXT("\0\0\0\x08\0\6\0\0\3a@b"), CLIENT_HELLO_BAD, "" },
        { EXT("\0\0\0\7\0\5\0\0\2\xc3\xa4"), CLIENT_HELLO_BAD, "" },
        { EXT("\0\x2b\0\2x"), CLIENT_HELLO_BAD, "" }, /* past the end */
        { EXT("\0\x2b\0"), CLIENT_HELLO_BAD, "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        struct client_hello hello = { 0 };

        made_hello(cases[i].extensions, cases[i].n, &b);
        if (read_hello(&b, &hello) != cases[i].result || !str_eq(hello.name, cases[i].name))
            fail_msg("case %zu: '%s'", i, hello.name);
        assert_int_equal(hello.is_encrypted_hello, i == 1);
        buf_done(&b);
    }
}

TEST(other_protocols_are_recognised_by_their_first_bytes)
{
    static const struct {
        const char *data;
        size_t n;
        enum client_hello_result result;
    } cases[] = {
        { EXT(""), CLIENT_HELLO_MORE },
        { EXT("G"), CLIENT_HELLO_NOT_TLS },
        { EXT("\x16"), CLIENT_HELLO_MORE },
        { EXT("\x16\x02"), CLIENT_HELLO_NOT_TLS },
        { EXT("\x16\x03\x05"), CLIENT_HELLO_NOT_TLS },
        { EXT("\x80\x2e\x01\x03\x01"), CLIENT_HELLO_NOT_TLS }, /* SSL 2 */
        { EXT("\x15\x03\x01\x00\x02\x01\x00"), CLIENT_HELLO_NOT_TLS },
        { EXT("\x16\x03\x01\x00\x00"), CLIENT_HELLO_BAD },     /* an empty record */
        { EXT("\x16\x03\x01\x40\x01"), CLIENT_HELLO_BAD },     /* a record above the limit */
        { EXT("\x16\x03\x01\x00\x05\x02"), CLIENT_HELLO_BAD }, /* a ServerHello */
        { EXT("\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01"), CLIENT_HELLO_BAD },
        { EXT("\x16\x03\x01\x00\x06\x01\x00\x00\x01xx"), CLIENT_HELLO_BAD }, /* two messages in a record */
        { EXT("\x16\x03\x01\x00\x04\x01\x00\x40\x00"), CLIENT_HELLO_BAD },   /* announces more than 16 KiB */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        struct client_hello hello;

        buf_add(&b, cases[i].data, cases[i].n);
        if (read_hello(&b, &hello) != cases[i].result)
            fail_msg("case %zu", i);
        buf_done(&b);
    }
}

TEST(EG13_a_hello_of_tiny_records_ends_at_16_KiB)
{
    struct buf b = { 0 };
    struct client_hello hello;

    buf_add(&b, "\x16\x03\x01\x00\x04\x01\x00\x3f\x00", 9);
    while (b.len + 6 < CLIENT_HELLO_MAX) {
        assert_int_equal(read_hello(&b, &hello), CLIENT_HELLO_MORE);
        for (int i = 0; i < 100; i++)
            buf_add(&b, "\x16\x03\x01\x00\x01x", 6);
    }
    assert_int_equal(read_hello(&b, &hello), CLIENT_HELLO_BAD);
    buf_done(&b);
}

TEST(an_alert_has_the_bytes_that_clients_report)
{
    uint8_t alert[TLS_ALERT_SIZE];

    tls_alert_write(TLS_ALERT_ACCESS_DENIED, alert);
    assert_memory_equal(alert, "\x15\x03\x03\x00\x02\x02\x31", TLS_ALERT_SIZE);
    tls_alert_write(TLS_ALERT_UNRECOGNIZED_NAME, alert);
    assert_int_equal(alert[6], 112);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_hello_is_read_when_its_last_byte_has_arrived),
        RUN(a_hello_without_a_name_is_read),
        RUN(EG06_records_of_any_size_hide_no_name),
        RUN(EG06_extensions_that_servers_read_differently_are_refused),
        RUN(other_protocols_are_recognised_by_their_first_bytes),
        RUN(EG13_a_hello_of_tiny_records_ends_at_16_KiB),
        RUN(an_alert_has_the_bytes_that_clients_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
