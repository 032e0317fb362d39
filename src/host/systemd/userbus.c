/* One D-Bus call, encoded by hand: the format has been stable for twenty years, the arguments never
 * vary, and only the kind of the reply matters. The alternatives were a library that `cove` would
 * have to link, and running busctl, which costs more than the sandbox and needs a bus daemon that
 * servers often do not have.
 *
 * systemd's user manager listens on its own socket (systemctl uses it), which needs no Hello; the
 * bus daemon requires one first. Everything is little-endian, as the first byte declares, and the
 * reply must be too.
 *
 * This is not privileged code: it runs in the jailer of an unprivileged user, which has no more
 * rights on the host than that user, and it talks only to that user's systemd. It does nothing for
 * root, which owns the whole tree. */
#include "host/systemd/userbus.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define WAIT_S 3
#define MESSAGES_MAX 64 /* signals of the bus that may precede our reply */
#define HELLO_SERIAL 1u
#define CALL_SERIAL 2u

enum { FIELD_PATH = 1, FIELD_INTERFACE, FIELD_MEMBER, FIELD_ERROR, FIELD_REPLY_SERIAL, FIELD_DESTINATION };
enum { FIELD_SIGNATURE = 8 };
enum { TYPE_CALL = 1, TYPE_RETURN, TYPE_ERROR };

/* --- encoding --- */

struct dbus_writer {
    uint8_t *buf;
    size_t len, cap; /* len > cap: it did not fit */
};

static void dbus_put_bytes(struct dbus_writer *p, const void *data, size_t n)
{
    if (p->len <= p->cap && n <= p->cap - p->len)
        memcpy(p->buf + p->len, data, n);
    else
        n += p->cap; /* keeps len above cap from now on */
    p->len += n;
}

static void dbus_put_byte(struct dbus_writer *p, uint8_t v)
{
    dbus_put_bytes(p, &v, 1);
}

static void dbus_align(struct dbus_writer *p, size_t to)
{
    while (p->len <= p->cap && p->len % to)
        dbus_put_byte(p, 0);
}

static void dbus_store_u32(uint8_t *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(v >> (8 * i));
}

static void dbus_put_u32(struct dbus_writer *p, uint32_t v)
{
    uint8_t raw[4];

    dbus_align(p, 4);
    dbus_store_u32(raw, v);
    dbus_put_bytes(p, raw, sizeof(raw));
}

static void dbus_put_str(struct dbus_writer *p, const char *s)
{
    dbus_put_u32(p, (uint32_t)strlen(s));
    dbus_put_bytes(p, s, strlen(s) + 1);
}

static void dbus_put_signature(struct dbus_writer *p, const char *s)
{
    dbus_put_byte(p, (uint8_t)strlen(s));
    dbus_put_bytes(p, s, strlen(s) + 1);
}

static void dbus_put_field(struct dbus_writer *p, uint8_t code, const char *sig, const char *value)
{
    dbus_align(p, 8);
    dbus_put_byte(p, code);
    dbus_put_signature(p, sig);
    if (sig[0] == 'g')
        dbus_put_signature(p, value);
    else
        dbus_put_str(p, value);
}

/* The length of an array is known only after its items are written, so it is filled in
 * afterwards. */
static size_t dbus_array_begin(struct dbus_writer *p, size_t item)
{
    dbus_put_u32(p, 0);
    size_t at = p->len - 4;
    dbus_align(p, item);
    return at;
}

static void dbus_array_end(struct dbus_writer *p, size_t at, size_t item)
{
    size_t first = (at + 4 + item - 1) / item * item;

    if (p->len <= p->cap)
        dbus_store_u32(p->buf + at, (uint32_t)(p->len - first));
}

static size_t dbus_put_header(struct dbus_writer *p, uint32_t serial, const char *to, const char *path,
                              const char *member, const char *signature)
{
    static const uint8_t start[] = { 'l', TYPE_CALL, 0, 1 };

    dbus_put_bytes(p, start, sizeof(start));
    dbus_put_u32(p, 0); /* length of the body; filled in later */
    dbus_put_u32(p, serial);
    size_t fields = dbus_array_begin(p, 8);
    dbus_put_field(p, FIELD_PATH, "o", path);
    dbus_put_field(p, FIELD_INTERFACE, "s",
                   str_eq(member, "Hello") ? "org.freedesktop.DBus" : "org.freedesktop.systemd1.Manager");
    dbus_put_field(p, FIELD_MEMBER, "s", member);
    dbus_put_field(p, FIELD_DESTINATION, "s", to);
    if (signature)
        dbus_put_field(p, FIELD_SIGNATURE, "g", signature);
    dbus_array_end(p, fields, 8);
    dbus_align(p, 8);
    return p->len;
}

static void dbus_put_property(struct dbus_writer *p, const char *name, const char *sig)
{
    dbus_align(p, 8);
    dbus_put_str(p, name);
    dbus_put_signature(p, sig);
}

size_t userbus_encode_scope_call(uint8_t buf[USERBUS_CALL_MAX], uint32_t serial, const char *scope, const pid_t *pids,
                                 size_t npids)
{
    struct dbus_writer p = { .buf = buf, .cap = USERBUS_CALL_MAX };
    size_t body = dbus_put_header(&p, serial, "org.freedesktop.systemd1", "/org/freedesktop/systemd1",
                                  "StartTransientUnit", "ssa(sv)a(sa(sv))");

    dbus_put_str(&p, scope);
    dbus_put_str(&p, "fail"); /* mode: do not replace an existing unit of that name */
    size_t properties = dbus_array_begin(&p, 8);
    dbus_put_property(&p, "Description", "s");
    dbus_put_str(&p, "cove sandbox");
    dbus_put_property(&p, "Delegate", "b");
    dbus_put_u32(&p, 1);
    dbus_put_property(&p, "CollectMode", "s");
    dbus_put_str(&p, "inactive-or-failed");
    dbus_put_property(&p, "PIDs", "au");
    size_t list = dbus_array_begin(&p, 4);
    for (size_t i = 0; i < npids; i++)
        dbus_put_u32(&p, (uint32_t)pids[i]);
    dbus_array_end(&p, list, 4);
    dbus_array_end(&p, properties, 8);
    size_t aux = dbus_array_begin(&p, 8);
    dbus_array_end(&p, aux, 8);
    if (p.len > p.cap)
        return 0;
    dbus_store_u32(buf + 4, (uint32_t)(p.len - body));
    return p.len;
}

/* --- decoding --- */

static uint32_t dbus_load_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static size_t dbus_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

size_t userbus_message_length(const uint8_t head[16])
{
    uint64_t fields = dbus_load_u32(head + 12), body = dbus_load_u32(head + 4);

    if (head[0] != 'l' || head[3] != 1 || fields > USERBUS_ANSWER_MAX || body > USERBUS_ANSWER_MAX)
        return 0;
    size_t n = 16 + dbus_round_up((size_t)fields, 8) + (size_t)body;
    return n <= USERBUS_ANSWER_MAX ? n : 0;
}

/* Reads the value of one header field: 4 aligned bytes, or a string after its length. Advances
 * *at. */
static bool dbus_read_field(const uint8_t *msg, size_t end, char sig, size_t *at, const uint8_t **ret, size_t *ret_len)
{
    size_t head = sig == 'g' ? 1 : 4, start = dbus_round_up(*at, head);

    if (start + head > end)
        return false;
    uint32_t v = sig == 'g' ? msg[start] : dbus_load_u32(msg + start);
    *ret = msg + start;
    *ret_len = 4;
    *at = start + head;
    if (sig == 'u')
        return true;
    if (sig != 's' && sig != 'o' && sig != 'g')
        return false;
    if (v >= end - *at || msg[*at + v] != '\0') /* including its NUL */
        return false;
    *ret = msg + *at;
    *ret_len = v;
    *at += v + 1;
    return true;
}

enum userbus_answer userbus_decode_reply(const uint8_t *msg, size_t len, uint32_t serial, char why[128])
{
    uint32_t answers = 0;

    if (len < 16 || userbus_message_length(msg) != len)
        return USERBUS_MALFORMED;
    (void)str_copy(why, 128, "no reason given");
    size_t at = 16, end = 16 + dbus_load_u32(msg + 12);
    while ((at = dbus_round_up(at, 8)) < end) {
        const uint8_t *value;
        size_t n;

        if (at + 4 > end || msg[at + 1] != 1 || msg[at + 3] != 0)
            return USERBUS_MALFORMED;
        uint8_t code = msg[at];
        char sig = (char)msg[at + 2];
        at += 4;
        if (!dbus_read_field(msg, end, sig, &at, &value, &n))
            return USERBUS_MALFORMED;
        if (code == FIELD_REPLY_SERIAL && sig == 'u')
            answers = dbus_load_u32(value);
        if (code == FIELD_ERROR && sig == 's')
            snprintf(why, 128, "%.*s", (int)min_u64(n, 127), (const char *)value);
    }
    if (answers != serial)
        return USERBUS_OTHER;
    return msg[1] == TYPE_RETURN ? USERBUS_DONE : msg[1] == TYPE_ERROR ? USERBUS_REFUSED : USERBUS_OTHER;
}

/* --- connection --- */

static int userbus_connect(const char *path, uid_t uid, struct err *err)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    struct timeval wait = { .tv_sec = WAIT_S };
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char hello[64], hex[32], answer[128];
    size_t n = 0;

    if (!str_copy(sa.sun_path, sizeof(sa.sun_path), path))
        return err_set(err, ERR_INVALID, "%s: the path is too long for a socket", path);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
        connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    /* The kernel identifies us; the number only has to agree. It is sent as the hex codes of its
     * decimal digits. */
    n = (size_t)snprintf(answer, sizeof(answer), "%u", uid);
    for (size_t i = 0; i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned)answer[i]);
    int len = snprintf(hello, sizeof(hello), "%cAUTH EXTERNAL %s\r\n", '\0', hex);
    if (send(fd, hello, (size_t)len, MSG_NOSIGNAL) != len)
        return err_sys(err, ERR_SYS, "%s", path);
    for (n = 0; n < sizeof(answer) - 1 && !(n && answer[n - 1] == '\n'); n++)
        if (recv(fd, answer + n, 1, 0) != 1)
            return err_set(err, ERR_SYS, "%s does not answer", path);
    answer[n] = '\0';
    if (!str_starts(answer, "OK ") || send(fd, "BEGIN\r\n", 7, MSG_NOSIGNAL) != 7)
        return err_set(err, ERR_DENIED, "%s refuses authentication", path);
    return take_fd(&fd);
}

static int userbus_wait_for_reply(int fd, uint32_t serial, struct err *err)
{
    uint8_t msg[USERBUS_ANSWER_MAX];
    char why[128];

    for (int i = 0; i < MESSAGES_MAX; i++) {
        if (fd_read_full(fd, msg, 16) != 16)
            return err_set(err, ERR_TIMEOUT, "the user's systemd does not answer");
        size_t len = userbus_message_length(msg);
        if (!len || fd_read_full(fd, msg + 16, len - 16) != (ssize_t)(len - 16))
            return err_set(err, ERR_PROTOCOL, "the user's systemd sent a malformed reply");
        switch (userbus_decode_reply(msg, len, serial, why)) {
        case USERBUS_DONE:
            return 0;
        case USERBUS_REFUSED:
            return err_set(err, ERR_DENIED, "the user's systemd refuses: %s", why);
        case USERBUS_MALFORMED:
            return err_set(err, ERR_PROTOCOL, "the user's systemd sent a malformed reply");
        case USERBUS_OTHER:
            break;
        }
    }
    return err_set(err, ERR_PROTOCOL, "the user's systemd sent only unrelated messages");
}

static int userbus_call(int fd, const uint8_t *msg, size_t len, uint32_t serial, struct err *err)
{
    if (send(fd, msg, len, MSG_NOSIGNAL) != (ssize_t)len)
        return err_sys(err, ERR_SYS, "cannot send to the user's systemd");
    return userbus_wait_for_reply(fd, serial, err);
}

const char *userbus_runtime_dir(uid_t uid, char buf[USERBUS_DIR_MAX])
{
    const char *env = getenv("XDG_RUNTIME_DIR");

    if (env && env[0] == '/')
        return env;
    snprintf(buf, USERBUS_DIR_MAX, "/run/user/%u", uid);
    return buf;
}

bool userbus_is_available(const char *runtime_dir)
{
    auto_free char *own = str_printf("%s/systemd/private", runtime_dir);
    auto_free char *bus = str_printf("%s/bus", runtime_dir);

    return access(own, W_OK) == 0 || access(bus, W_OK) == 0;
}

int userbus_start_scope(const char *runtime_dir, uid_t uid, const char *scope, const pid_t *pids, size_t npids,
                        struct err *err)
{
    uint8_t call[USERBUS_CALL_MAX], hello[USERBUS_CALL_MAX];
    struct dbus_writer p = { .buf = hello, .cap = sizeof(hello) };
    auto_free char *own = str_printf("%s/systemd/private", runtime_dir);
    auto_free char *bus = str_printf("%s/bus", runtime_dir);
    size_t len = userbus_encode_scope_call(call, CALL_SERIAL, scope, pids, npids);

    if (uid == 0)
        return err_set(err, ERR_BUG, "root must not ask a user's systemd for a cgroup");
    if (!len)
        return err_set(err, ERR_BUG, "the call to systemd is too long");
    auto_fd int fd = userbus_connect(own, uid, err);
    if (fd >= 0)
        return userbus_call(fd, call, len, CALL_SERIAL, err);
    fd = userbus_connect(bus, uid, err);
    if (fd < 0)
        return -1;
    (void)dbus_put_header(&p, HELLO_SERIAL, "org.freedesktop.DBus", "/org/freedesktop/DBus", "Hello", NULL);
    if (userbus_call(fd, hello, p.len, HELLO_SERIAL, err) < 0)
        return -1;
    return userbus_call(fd, call, len, CALL_SERIAL, err);
}
