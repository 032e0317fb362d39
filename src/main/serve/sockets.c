/* Only literal addresses are accepted: a name could resolve to another machine later, and resolving
 * it could take seconds. */
#include "main/serve/sockets.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 512

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int sockets_read_address(const char *text, union socket_address *ret, socklen_t *ret_len, struct err *err)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;

    *ret = (union socket_address){ 0 };
    if (colon && str_to_u64(colon + 1, UINT16_MAX, &port)) {
        bool v6 = text[0] == '[' && colon[-1] == ']';
        auto_free char *host = v6 ? str_dup_n(text + 1, (size_t)(colon - text - 2))
                                  : str_dup_n(text, (size_t)(colon - text));

        if (v6 && inet_pton(AF_INET6, host, &ret->v6.sin6_addr) == 1) {
            ret->v6.sin6_family = AF_INET6;
            ret->v6.sin6_port = htons((uint16_t)port);
            *ret_len = sizeof(ret->v6);
            return 0;
        }
        if (!v6 && inet_pton(AF_INET, str_eq(host, "localhost") ? "127.0.0.1" : host, &ret->v4.sin_addr) == 1) {
            ret->v4.sin_family = AF_INET;
            ret->v4.sin_port = htons((uint16_t)port);
            *ret_len = sizeof(ret->v4);
            return 0;
        }
    }
    return err_set(err, ERR_CONF_VALUE,
                   "listen: '%.80s' is not an address with a port; write for example 127.0.0.1:8700", text);
}

static int sockets_bind_error(const char *what, struct err *err)
{
    if (errno == EADDRINUSE)
        return err_sys(err, ERR_ADDRESS_USED, "%.120s", what);
    if (errno == EADDRNOTAVAIL)
        return err_set(err, ERR_CONF_VALUE,
                       "listen: this host does not have the address %.120s; use one of its own, or 0.0.0.0 for all",
                       what);
    if (errno == EACCES)
        return err_set(err, ERR_DENIED, "%.120s: only root may use this port; choose a port above 1023", what);
    return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "%.120s", what);
}

int sockets_check_address(const char *text, struct err *err)
{
    union socket_address addr;
    socklen_t len;

    return sockets_read_address(text, &addr, &len, err);
}

int sockets_listen_tcp(const char *text, int *ret_fd, struct err *err)
{
    union socket_address addr;
    socklen_t len = 0;
    int on = 1;

    if (sockets_read_address(text, &addr, &len, err) < 0)
        return -1;
    auto_fd int fd = socket(addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    /* Connections of the previous server may still be in TIME_WAIT. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, &addr.any, len) < 0 || listen(fd, BACKLOG) < 0)
        return sockets_bind_error(text, err);
    *ret_fd = take_fd(&fd);
    return 0;
}

/* The caller holds the lock of the run directory and is therefore the only server there, so a
 * socket at this path belongs to a dead server and is removed. */
int sockets_listen_unix(const char *path, mode_t mode, int *ret_fd, struct err *err)
{
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    struct stat st;

    if (!str_copy(addr.sun_path, sizeof(addr.sun_path), path))
        return err_set(err, ERR_CONF_VALUE, "the path is too long for a socket: %.160s", path);
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
        (void)unlink(path);
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    mode_t mask = umask(0777 & ~mode);
    int bad = bind(fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    if (bad < 0 || listen(fd, BACKLOG) < 0)
        return sockets_bind_error(path, err);
    *ret_fd = take_fd(&fd);
    return 0;
}

char *sockets_local_address(int fd)
{
    union socket_address addr = { 0 };
    socklen_t len = sizeof(addr);
    char host[INET6_ADDRSTRLEN] = "";

    if (getsockname(fd, &addr.any, &len) < 0)
        return str_dup("");
    if (addr.any.sa_family == AF_INET6)
        return str_printf("[%s]:%u", inet_ntop(AF_INET6, &addr.v6.sin6_addr, host, sizeof(host)),
                          ntohs(addr.v6.sin6_port));
    return str_printf("%s:%u", inet_ntop(AF_INET, &addr.v4.sin_addr, host, sizeof(host)), ntohs(addr.v4.sin_port));
}
