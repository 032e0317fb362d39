/* client_hello.h - the host name in the first message of a TLS client.
 *
 * The message may be cut into TCP segments and TLS records of any size. Its encrypted parts stay
 * unread: with Encrypted ClientHello the outer name is the one that is found. */
#pragma once

#include "core/base/err.h"
#include "policy/hostname.h"

#define CLIENT_HELLO_MAX (16 * KIB) /* all records together */

enum client_hello_result {
    CLIENT_HELLO_BAD = -1,    /* TLS, but malformed or too long; `err` says why */
    CLIENT_HELLO_MORE = 0,    /* call again with more bytes */
    CLIENT_HELLO_READ = 1,    /* complete */
    CLIENT_HELLO_NOT_TLS = 2, /* the first bytes do not begin a TLS handshake */
};

struct client_hello {
    char name[HOSTNAME_MAX + 1]; /* normalised; "": the client names no host */
    bool is_encrypted_hello;     /* has the extension encrypted_client_hello */
};

/* `data` is everything that has arrived on the connection; the caller stores up to CLIENT_HELLO_MAX
 * bytes and sends them on itself. */
enum client_hello_result client_hello_read(const void *data, size_t len, struct client_hello *ret, struct err *err);

/* Alerts that a TLS client reports in words of its own. */
#define TLS_ALERT_SIZE 7
enum tls_alert { TLS_ALERT_ACCESS_DENIED = 49, TLS_ALERT_INTERNAL_ERROR = 80, TLS_ALERT_UNRECOGNIZED_NAME = 112 };
void tls_alert_write(enum tls_alert alert, uint8_t ret[TLS_ALERT_SIZE]);
