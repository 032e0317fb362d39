/* fd.h - descriptors: ownership by scope, whole reads and writes, and passing them between processes. */
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
ssize_t fd_pread_full(int fd, void *buf, size_t cap, uint64_t at); /* the same from there; the offset stays */

/* Small files below a directory descriptor (cgroupfs, procfs): no allocation, no stdio. */
int fd_put_at(int dirfd, const char *name, const char *text);          /* open, one write, close; -1 + errno */
ssize_t fd_get_at(int dirfd, const char *name, char *buf, size_t cap); /* NUL-terminated; length or -1 */
int fd_get_u64_at(int dirfd, const char *name, uint64_t *ret);         /* leading number of the file; -1 + errno */

int fd_nonblock(int fd, bool on);

/* For a process that was just forked: of all descriptors above standard error only these remain, close-on-exec and
 * under new numbers, which are written back. -1 + errno, and then anything may be closed. */
int fd_keep_only(int *fds, size_t n);

/* One SEQPACKET message with up to FD_PASS_MAX descriptors. fd_recv closes whatever does not fit and fails, so a
 * hostile peer cannot leave descriptors behind; and none that it sends holds us up when it is closed. */
#define FD_PASS_MAX 32
/* Asks for room for so many bytes that were sent and not yet received. A kernel that grants less costs speed only. */
void fd_set_send_buffer(int sock, int bytes);
ssize_t fd_send(int sock, const void *data, size_t len, const int *fds, size_t nfds, int flags);
ssize_t fd_sendv(int sock, struct iovec *iov, size_t niov, const int *fds, size_t nfds, int flags); /* gathered */
ssize_t fd_recv(int sock, void *buf, size_t cap, int *fds, size_t *nfds /* in: room, out: received */, int flags);
/* Before the last descriptor of a socket is closed to which others sent: with what is not received yet, theirs go. */
void fd_drain(int sock);
bool fd_is_socket(int fd);
void fd_hang_up(int sock); /* the same, while they still live: they can send no more; and closes it */
