/* The records are walked from the start in each call, and the handshake message is copied together
 * out of them. A call costs at most 16 KiB of copying, and needs no state.
 *
 * The message is read once, when it is complete, and strictly: an extension that does not fill its
 * length could be read as another name by the server. Two names are refused, as is a name that
 * policy/hostname.h refuses; an address in place of a name is one of these. */
#include "host/egress/client_hello.h"

#define RECORD_HEADER 5u
#define RECORD_MAX 16384u
#define RECORD_HANDSHAKE 22
#define MESSAGE_HEADER 4u
#define MESSAGE_CLIENT_HELLO 1
#define EXTENSION_SERVER_NAME 0
#define EXTENSION_ENCRYPTED_CLIENT_HELLO 0xfe0d
#define SERVER_NAME_HOST 0

struct hello_reader {
    const uint8_t *at;
    size_t left;
    bool is_short; /* a read went past the end */
};

static uint32_t hello_number(struct hello_reader *r, size_t bytes)
{
    uint32_t n = 0;

    if (r->left < bytes) {
        r->is_short = true;
        r->left = 0;
        return 0;
    }
    for (size_t i = 0; i < bytes; i++)
        n = n << 8 | r->at[i];
    r->at += bytes;
    r->left -= bytes;
    return n;
}

/* The next n bytes, as a reader of their own. */
static struct hello_reader hello_part(struct hello_reader *r, size_t n)
{
    struct hello_reader part = { r->at, n, false };

    if (r->left < n) {
        r->is_short = true;
        r->left = 0;
        return (struct hello_reader){ r->at, 0, true };
    }
    r->at += n;
    r->left -= n;
    return part;
}

/* --- the message --- */

static int hello_bad(struct err *err, const char *what)
{
    return err_set(err, ERR_PROTOCOL, "TLS ClientHello: %s", what);
}

static int hello_server_name(struct hello_reader ext, struct client_hello *ret, struct err *err)
{
    struct hello_reader list = hello_part(&ext, hello_number(&ext, 2));
    uint32_t type = hello_number(&list, 1);
    struct hello_reader name = hello_part(&list, hello_number(&list, 2));

    if (ext.is_short || ext.left > 0 || list.is_short || list.left > 0)
        return hello_bad(err, "the extension server_name is not one name");
    if (type != SERVER_NAME_HOST || name.left == 0)
        return hello_bad(err, "the extension server_name has no host name");
    if (name.at[name.left - 1] == '.')
        return hello_bad(err, "the server name ends with a dot");
    if (hostname_normalize((const char *)name.at, name.left, ret->name, err) < 0)
        return err_wrap(err, "TLS server name");
    return 0;
}

static int hello_extensions(struct hello_reader all, struct client_hello *ret, struct err *err)
{
    bool has_name = false;

    while (all.left > 0) {
        uint32_t type = hello_number(&all, 2);
        struct hello_reader ext = hello_part(&all, hello_number(&all, 2));

        if (all.is_short)
            return hello_bad(err, "an extension is longer than the message");
        if (type == EXTENSION_ENCRYPTED_CLIENT_HELLO)
            ret->is_encrypted_hello = true;
        if (type != EXTENSION_SERVER_NAME)
            continue;
        if (has_name)
            return hello_bad(err, "the extension server_name occurs more than once");
        has_name = true;
        if (hello_server_name(ext, ret, err) < 0)
            return -1;
    }
    return 0;
}

static int hello_read_message(struct hello_reader m, struct client_hello *ret, struct err *err)
{
    uint32_t version = hello_number(&m, 2);
    hello_part(&m, 32); /* random */
    struct hello_reader id = hello_part(&m, hello_number(&m, 1));
    struct hello_reader ciphers = hello_part(&m, hello_number(&m, 2));
    struct hello_reader compressions = hello_part(&m, hello_number(&m, 1));

    if (m.is_short || version >> 8 != 3 || id.left > 32 || ciphers.left == 0 || ciphers.left % 2 != 0 ||
        compressions.left == 0)
        return hello_bad(err, "it is malformed");
    if (m.left == 0)
        return 0; /* an old client, without extensions */
    struct hello_reader extensions = hello_part(&m, hello_number(&m, 2));
    if (m.is_short || m.left > 0)
        return hello_bad(err, "the extensions do not end with the message");
    return hello_extensions(extensions, ret, err);
}

/* --- records --- */

/* Whether the bytes may begin a record of a handshake. */
static bool hello_is_tls(const uint8_t *data, size_t len)
{
    return (len < 1 || data[0] == RECORD_HANDSHAKE) && (len < 2 || data[1] == 3) && (len < 3 || data[2] <= 4);
}

/* Whether `n` bytes of the message, of `announced` in all records so far, are all of it.
 * CLIENT_HELLO_READ: *ret_len is its length with the header. */
static enum client_hello_result hello_check_message(const uint8_t *message, size_t n, size_t announced, size_t *ret_len,
                                                    struct err *err)
{
    if (n > 0 && message[0] != MESSAGE_CLIENT_HELLO)
        return (enum client_hello_result)hello_bad(err, "the first message is another one");
    if (n < MESSAGE_HEADER)
        return CLIENT_HELLO_MORE;
    size_t len = MESSAGE_HEADER + ((size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3]);
    if (len > CLIENT_HELLO_MAX)
        return (enum client_hello_result)hello_bad(err, "it is larger than 16 KiB");
    if (announced > len)
        return (enum client_hello_result)hello_bad(err, "another message follows in its record");
    *ret_len = len;
    return n < len ? CLIENT_HELLO_MORE : CLIENT_HELLO_READ;
}

enum client_hello_result client_hello_read(const void *data, size_t len, struct client_hello *ret, struct err *err)
{
    const uint8_t *bytes = data;
    uint8_t message[CLIENT_HELLO_MAX];
    size_t n = 0, max = min_size(len, CLIENT_HELLO_MAX), message_len = 0;
    struct client_hello hello = { 0 };

    if (!hello_is_tls(bytes, len))
        return CLIENT_HELLO_NOT_TLS;
    for (size_t at = 0; at + RECORD_HEADER <= max;) {
        size_t record = (size_t)bytes[at + 3] << 8 | bytes[at + 4];

        if (!hello_is_tls(bytes + at, 3) || record == 0 || record > RECORD_MAX)
            return (enum client_hello_result)hello_bad(err, "it is not in well-formed records");
        at += RECORD_HEADER;
        size_t arrived = min_size(record, max - at);
        memcpy(message + n, bytes + at, arrived);
        enum client_hello_result result = hello_check_message(message, n + arrived, n + record, &message_len, err);
        if (result == CLIENT_HELLO_BAD)
            return CLIENT_HELLO_BAD;
        if (result == CLIENT_HELLO_READ) {
            struct hello_reader m = { message + MESSAGE_HEADER, message_len - MESSAGE_HEADER, false };

            if (hello_read_message(m, &hello, err) < 0)
                return CLIENT_HELLO_BAD;
            *ret = hello;
            return CLIENT_HELLO_READ;
        }
        n += arrived;
        at += arrived;
    }
    if (len >= CLIENT_HELLO_MAX)
        return (enum client_hello_result)hello_bad(err, "it is larger than 16 KiB");
    return CLIENT_HELLO_MORE;
}

void tls_alert_write(enum tls_alert alert, uint8_t ret[TLS_ALERT_SIZE])
{
    const uint8_t bytes[TLS_ALERT_SIZE] = { 21, 3, 3, 0, 2, 2 /* fatal */, (uint8_t)alert };

    memcpy(ret, bytes, sizeof(bytes));
}
