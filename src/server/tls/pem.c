/* The first byte of a message is its type: a request, the parts (one memfd for each, in the order
 * of enum pem_part) or the text of a failure. A request may be answered twice, and an answer may
 * come without a request: the receiver uses the last one. So neither side keeps state about the
 * other, and each may restart. */
#include "server/tls/pem.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const char *const pem_part_names[PEM_PARTS] = { "tls.certificate", "tls.key", "tls.clientCa" };

enum pem_message { PEM_MESSAGE_REQUEST = 'a', PEM_MESSAGE_PARTS = 'p', PEM_MESSAGE_FAILED = 'f' };

void pem_done(struct pem *p)
{
    for (int i = 0; i < PEM_PARTS; i++) {
        if (p->part[i].data)
            explicit_bzero(p->part[i].data, p->part[i].cap);
        buf_done(&p->part[i]);
    }
}

/* --- files --- */

static int pem_read_bytes(int fd, const char *name, struct buf *ret, struct err *err)
{
    auto_free char *text = mem_alloc(PEM_BYTES_MAX + 1);
    ssize_t n = fd_read_full(fd, text, PEM_BYTES_MAX + 1);

    if (n < 0)
        return err_sys(err, ERR_TLS_FILES, "%.160s", name);
    if (n > PEM_BYTES_MAX)
        return err_set(err, ERR_TLS_FILES, "%.160s is larger than 1 MiB, the maximum for a certificate or key", name);
    buf_add(ret, text, (size_t)n);
    explicit_bzero(text, (size_t)n);
    return 0;
}

static int pem_read_part(enum pem_part part, const char *path, struct buf *ret, struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, ERR_TLS_FILES, "%s: %.140s", pem_part_names[part], path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_TLS_FILES, "%s: %.140s is not a regular file", pem_part_names[part], path);
    if (part == PEM_KEY && st.st_mode & S_IROTH)
        log_warn("%s: every user of this host can read %.140s; run chmod o-r on it", pem_part_names[part], path);
    if (pem_read_bytes(fd, path, ret, err) < 0)
        return err_wrap(err, "%s", pem_part_names[part]);
    if (ret->len == 0)
        return err_set(err, ERR_TLS_FILES, "%s: %.140s is empty", pem_part_names[part], path);
    return 0;
}

int pem_read(const struct pem_paths *paths, struct pem *ret, struct err *err)
{
    struct pem p = { 0 };

    for (int i = 0; i < PEM_PARTS; i++)
        if (paths->part[i] && *paths->part[i] && pem_read_part((enum pem_part)i, paths->part[i], &p.part[i], err) < 0) {
            pem_done(&p);
            return -1;
        }
    *ret = p;
    return 0;
}

/* --- between processes --- */

int pem_request(int sock, struct err *err)
{
    const char ask = PEM_MESSAGE_REQUEST;

    if (fd_send(sock, &ask, 1, NULL, 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return err_sys(err, ERR_TLS_FILES, "cannot request the certificate from the supervisor");
    return 0;
}

static int pem_memory_file(const struct buf *b)
{
    auto_fd int fd = memfd_create("pem", MFD_CLOEXEC);

    if (fd < 0 || fd_write_all(fd, b->data ? b->data : "", b->len) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return -1;
    return take_fd(&fd);
}

int pem_send(int sock, const struct pem *p, struct err *err)
{
    const char parts = PEM_MESSAGE_PARTS;
    int fds[PEM_PARTS], n = 0, bad = 0;

    while (n < PEM_PARTS && !bad) {
        fds[n] = pem_memory_file(&p->part[n]);
        bad = fds[n] < 0;
        n += !bad;
    }
    if (!bad)
        bad = fd_send(sock, &parts, 1, fds, PEM_PARTS, MSG_NOSIGNAL | MSG_DONTWAIT) < 0;
    int saved = errno;
    while (n > 0)
        close(fds[--n]);
    errno = saved;
    return bad ? err_sys(err, ERR_TLS_FILES, "cannot send the certificate") : 0;
}

void pem_send_failure(int sock, const struct err *why)
{
    auto_free char *text = str_printf("%c%s", PEM_MESSAGE_FAILED, why->msg);

    if (fd_send(sock, text, strlen(text), NULL, 0, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_error("%s", why->msg);
}

static int pem_read_parts(const int *fds, size_t n, struct pem *ret, struct err *err)
{
    if (n != PEM_PARTS)
        return err_set(err, ERR_PROTOCOL, "the supervisor sent %zu files instead of %d", n, PEM_PARTS);
    for (size_t i = 0; i < n; i++)
        if (pem_read_bytes(fds[i], pem_part_names[i], &ret->part[i], err) < 0) {
            pem_done(ret);
            return -1;
        }
    return 0;
}

int pem_recv(int sock, struct pem *ret, struct err *err)
{
    char text[256];
    int fds[PEM_PARTS];
    size_t nfds = PEM_PARTS;
    ssize_t n = fd_recv(sock, text, sizeof(text) - 1, fds, &nfds, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return err_set(err, ERR_BUSY, "the supervisor has not answered");
    if (n <= 0)
        return n == 0 ? err_set(err, ERR_LOST, "the supervisor is gone")
                      : err_sys(err, ERR_TLS_FILES, "cannot read the supervisor's answer");
    text[n] = '\0';
    int rc = text[0] == PEM_MESSAGE_PARTS    ? pem_read_parts(fds, nfds, ret, err)
             : text[0] == PEM_MESSAGE_FAILED ? err_set(err, ERR_TLS_FILES, "%s", text + 1)
                                             : err_set(err, ERR_PROTOCOL, "the supervisor sent an unknown message");
    while (nfds > 0)
        close(fds[--nfds]);
    return rc;
}
