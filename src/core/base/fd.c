#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

int fd_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t fd_read_full(int fd, void *buf, size_t cap)
{
    char *p = buf;
    size_t got = 0;

    while (got < cap) {
        ssize_t n = read(fd, p + got, cap - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

ssize_t fd_pread_full(int fd, void *buf, size_t cap, uint64_t at)
{
    char *p = buf;
    size_t got = 0;

    while (got < cap) {
        ssize_t n = pread(fd, p + got, cap - got, (off_t)(at + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int fd_put_at(int dirfd, const char *name, const char *text)
{
    auto_fd int fd = openat(dirfd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    size_t len = strlen(text);

    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, len); /* one write: kernel files accept a value as a whole or refuse it */
    if (n >= 0 && (size_t)n != len) {
        errno = EIO;
        return -1;
    }
    return n < 0 ? -1 : 0;
}

ssize_t fd_get_at(int dirfd, const char *name, char *buf, size_t cap)
{
    auto_fd int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return -1;
    ssize_t n = fd_read_full(fd, buf, cap - 1);
    if (n < 0)
        return -1;
    buf[n] = '\0';
    return n;
}

int fd_get_u64_at(int dirfd, const char *name, uint64_t *ret)
{
    char text[64];

    if (fd_get_at(dirfd, name, text, sizeof(text)) < 0)
        return -1;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end == text || errno) {
        errno = EINVAL;
        return -1;
    }
    *ret = v;
    return 0;
}

int fd_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -1;
    return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

int fd_keep_only(int *fds, size_t n)
{
    int first = STDERR_FILENO + 1;

    for (size_t i = 0; i < n; i++) /* first to numbers above the range, then into place */
        if ((fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, first + (int)n)) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        if ((fds[i] = dup3(fds[i], first + (int)i, O_CLOEXEC)) < 0)
            return -1;
    return (int)syscall(SYS_close_range, (unsigned)first + (unsigned)n, ~0u, 0u);
}

union fd_send_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
};

void fd_set_send_buffer(int sock, int bytes)
{
    if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) < 0)
        (void)setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

ssize_t fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds, int flags)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };

    return fd_sendv(sock, &iov, 1, fds, nfds, flags);
}

ssize_t fd_sendv(int sock, struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags)
{
    union fd_send_control ctl = { 0 };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = niov };

    if (nfds > FD_PASS_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (nfds) {
        msg.msg_control = ctl.bytes;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n;
}

/* space for everything that one message can carry: the kernel closes descriptors that do not fit */
union fd_recv_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(253 * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

/* With SO_LINGER a sender can make the last close of a socket block until its peer has read
 * everything. Sockets received from others must close immediately. */
static int fd_clear_linger(int fd)
{
    static const struct linger off;

    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
    return fd;
}

/* Collects the descriptors of one message; descriptors beyond the capacity are closed. Returns the
 * number received, including the closed ones. */
static size_t fd_collect_passed(struct msghdr *msg, int *fds, size_t room)
{
    size_t seen = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (seen < room)
                fds[seen] = fd_clear_linger(fd);
            else
                close(fd_clear_linger(fd));
            seen++;
        }
    }
    return seen;
}

ssize_t fd_recv(int sock, void *buf, size_t cap, int *fds, size_t *nfds, int flags)
{
    union fd_recv_control ctl;
    struct iovec iov = { .iov_base = buf, .iov_len = cap };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.bytes, .msg_controllen = sizeof(ctl) };
    size_t room = nfds ? *nfds : 0;
    ssize_t n;

    if (nfds)
        *nfds = 0;
    do
        n = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -1;
    size_t seen = fd_collect_passed(&msg, fds, room);
    if (seen > room || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        for (size_t i = 0; i < (seen < room ? seen : room); i++)
            close(fds[i]);
        errno = EPROTO;
        return -1;
    }
    if (nfds)
        *nfds = seen;
    return n;
}

bool fd_is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

/* An empty packet and end of file both return 0, but only a packet carries the sender's
 * credentials. */
void fd_drain(int sock)
{
    union fd_recv_control ctl;
    int on = 1;

    (void)setsockopt(sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    for (;;) {
        struct msghdr msg = { .msg_control = ctl.bytes, .msg_controllen = sizeof(ctl) };
        ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if ((n < 0 && errno != EINTR) || (n == 0 && msg.msg_controllen == 0))
            return;
        if (n >= 0)
            (void)fd_collect_passed(&msg, NULL, 0);
    }
}

void fd_hang_up(int sock)
{
    (void)shutdown(sock, SHUT_RDWR);
    fd_drain(sock);
    close(sock);
}
