/* A socket file outlives its process, so an existing file may be stale: connect is tried, and only
 * ECONNREFUSED means that the file is stale. Two processes must not open the same path at the same
 * time; their parent prevents that with a lock on the directory. */
#include "core/wire/unix_listener.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 64

static int unix_listener_address(const char *path, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (!str_copy(ret->sun_path, sizeof(ret->sun_path), path))
        return err_set(err, ERR_INVALID, "%.160s: the path is too long for a socket", path);
    return 0;
}

static void unix_listener_on_readable(void *arg, uint32_t events UNUSED)
{
    struct unix_listener *d = arg;
    auto_fd int sock = accept4(d->io.fd, NULL, NULL, SOCK_CLOEXEC);
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (sock >= 0 && getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0)
        d->on_connection(d->arg, take_fd(&sock), &peer);
}

/* True if the path is free, or was a stale socket and is free now. */
static bool unix_listener_remove_stale(const char *path, struct err *err)
{
    auto_fd int sock = -1;
    struct stat st;

    if (lstat(path, &st) < 0 && errno == ENOENT)
        return true;
    if (unix_connect(path, &sock, NULL, err) == 0)
        err_set(err, ERR_EXISTS, "%.160s: another process already listens on this socket", path);
    else if (err && err->id == ERR_MISSING && S_ISSOCK(st.st_mode) && unlink(path) == 0)
        return true;
    return false;
}

int unix_listener_open(struct unix_listener *d, struct ev *ev, const char *path, uid_t owner,
                       void (*on_connection)(void *arg, int sock, const struct ucred *peer), void *arg, struct err *err)
{
    struct sockaddr_un addr;
    struct err why = { 0 };

    if (unix_listener_address(path, &addr, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (!unix_listener_remove_stale(path, &why)) {
        if (err)
            *err = why;
        return -1;
    }
    mode_t mask = umask(0177);
    int bad = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    if (bad < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "%.160s", path);
    if (lchown(path, owner, (gid_t)-1) < 0 || listen(fd, BACKLOG) < 0) {
        err_sys(err, ERR_SYS, "%.160s", path);
        (void)unlink(path);
        return -1;
    }
    *d = (struct unix_listener){ .ev = ev, .on_connection = on_connection, .arg = arg };
    if (ev_io_add(ev, &d->io, fd, EPOLLIN, unix_listener_on_readable, d, err) < 0) {
        (void)unlink(path);
        return -1;
    }
    (void)take_fd(&fd);
    d->path = str_dup(path);
    return 0;
}

void unix_listener_close(struct unix_listener *d)
{
    if (!d->path)
        return;
    (void)unlink(d->path);
    free(take_ptr(&d->path));
    ev_io_del(d->ev, &d->io);
    close(d->io.fd);
}

int unix_connect(const char *path, int *ret_sock, struct ucred *ret_peer, struct err *err)
{
    struct sockaddr_un addr;
    struct ucred peer;
    socklen_t len = sizeof(peer);

    if (unix_listener_address(path, &addr, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno == ECONNREFUSED || errno == ENOENT)
            return err_set(err, ERR_MISSING, "%.160s: no process listens on this socket", path);
        return err_sys(err, errno == EACCES ? ERR_DENIED : errno == EAGAIN ? ERR_BUSY : ERR_SYS, "%.160s", path);
    }
    if (fd_nonblock(fd, false) < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return err_sys(err, ERR_SYS, "%.160s", path);
    if (ret_peer)
        *ret_peer = peer;
    *ret_sock = take_fd(&fd);
    return 0;
}
