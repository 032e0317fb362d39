/* fd.h - descriptors: ownership by scope, complete reads and writes, and passing between processes.
 */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static inline void auto_fd_(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}
#define auto_fd __attribute__((cleanup(auto_fd_)))

static inline int take_fd(int *fd)
{
    int n = *fd;

    *fd = -1;
    return n;
}

static inline void fd_close(int *fd) /* closes once; -1 is accepted */
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int fd_write_all(int fd, const void *data, size_t len); /* 0, or -1 with errno; retries EINTR and short writes */
ssize_t fd_read_full(int fd, void *buf, size_t cap);    /* reads to the end of file or cap; bytes read or -1 */
/* as fd_read_full, from offset `at`; the file offset stays */
ssize_t fd_pread_full(int fd, void *buf, size_t cap, uint64_t at);

/* Small files below a directory descriptor (cgroupfs, procfs): no allocation, no stdio. */
int fd_put_at(int dirfd, const char *name, const char *text);          /* open, one write, close; -1 + errno */
ssize_t fd_get_at(int dirfd, const char *name, char *buf, size_t cap); /* NUL-terminated; length or -1 */
/* parses the number at the start of the file; -1 + errno */
int fd_get_u64_at(int dirfd, const char *name, uint64_t *ret);

int fd_nonblock(int fd, bool on);

/* For a newly forked process: closes all descriptors above standard error except these, which get
 * new numbers (written back) and close-on-exec. Returns -1 with errno; then any of them may be
 * closed. */
int fd_keep_only(int *fds, size_t n);

/* One SEQPACKET message with up to FD_PASS_MAX descriptors. fd_recv closes descriptors that do not
 * fit and fails, so a hostile peer cannot leak descriptors into this process. Closing a received
 * descriptor never blocks. */
#define FD_PASS_MAX 32
/* Requests a send buffer for this many bytes. If the kernel grants less, only speed suffers. */
void fd_set_send_buffer(int sock, int bytes);
ssize_t fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds, int flags);
ssize_t fd_sendv(int sock, struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags); /* gathered */
ssize_t fd_recv(int sock, void *buf, size_t cap, int *fds, size_t *nfds /* in: capacity, out: received */, int flags);
/* Call it before closing the last descriptor of a socket: receives the unread messages and closes
 * the descriptors in them. */
void fd_drain(int sock);
bool fd_is_socket(int fd);
void fd_hang_up(int sock); /* fd_drain while senders are still alive: shuts the socket down first, then closes it */
