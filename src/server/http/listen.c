/* Accepts sockets and passes them to the daemon one by one.
 *
 * 1. Accepting pauses instead of failing. When the server is full, it evicts the connection that
 *    has been idle longest and otherwise waits until a connection closes; when the process has no
 *    descriptor left, it also waits for a short time. Meanwhile new connections wait in the backlog
 *    of the socket, and the loop does not wake up for them.
 * 2. Connections of one address are counted by iterating over all connections. There are a thousand
 *    at most, and a separate table would have to agree with the list. */
#include "server/http/mhd_callbacks.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ACCEPTS_PER_TURN 64
#define FD_SHORTAGE_PAUSE_MS 100
#define IDLE_GRACE_MS 100 /* time in which a new or just answered connection is not evicted */
#define BACKLOG 512

union http_sockaddr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
    struct sockaddr_storage storage;
};

static bool http_conn_set_peer(struct http_conn *c, bool local, const union http_sockaddr *from)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    c->peer.is_unix = local;
    if (local) {
        if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
            return false;
        c->peer.uid = cred.uid;
        c->peer.gid = cred.gid;
        c->peer.pid = cred.pid;
        return true;
    }
    if (from->sa.sa_family == AF_INET)
        memcpy(c->addr, &from->in.sin_addr, 4);
    else
        memcpy(c->addr, &from->in6.sin6_addr, 8); /* one customer has a whole /64 */
    const void *addr = from->sa.sa_family == AF_INET ? (const void *)&from->in.sin_addr : &from->in6.sin6_addr;
    return inet_ntop(from->sa.sa_family, addr, c->peer.addr, sizeof(c->peer.addr)) != NULL;
}

static bool http_conn_exceeds_addr_limit(const struct http_conn *c)
{
    unsigned n = 0;

    if (c->peer.is_unix)
        return false;
    for (const struct http_conn *other = c->s->conns; other; other = other->next)
        n += !other->peer.is_unix && memcmp(other->addr, c->addr, sizeof(c->addr)) == 0;
    return n > c->s->settings.limits.conns_per_addr;
}

static void http_accept_connection(struct http_server *s, int fd, bool local, bool tls, const union http_sockaddr *from)
{
    struct http_conn *c = http_conn_new(s, fd);
    int yes = 1;

    c->peer.is_tls = tls;
    if (!http_conn_set_peer(c, local, from) || http_conn_exceeds_addr_limit(c)) {
        s->stats.refused_per_addr++;
        close(fd);
        http_conn_free(c);
        return;
    }
    if (!local && !tls)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    s->conn_being_added = c;
    /* The daemon does not need the address; it gets a constant one, which it can neither count nor
     * reject. */
    struct sockaddr_in nobody = { .sin_family = AF_INET };
    bool added = MHD_add_connection(s->mhd, fd, (struct sockaddr *)&nobody, sizeof(nobody)) == MHD_YES;
    s->conn_being_added = NULL;
    if (!added) { /* the daemon has closed the descriptor */
        s->stats.refused_per_addr++;
        if (!c->mhd)
            http_conn_free(c);
        return;
    }
    s->stats.accepted++;
    http_conn_watch_eof(c);
    http_conn_set_phase(c, CONN_HEAD);
}

/* Evicts the connection that has been idle longest. A connection that is new or was just
 * answered is spared for IDLE_GRACE_MS: its request may be on the way, and if all others are
 * busy with slow heads it would be the first to go. Returns the time until there is a connection
 * to evict, or 0. */
static uint64_t http_evict_idle_connection(struct http_server *s)
{
    uint64_t now = ev_now(s->ev),
             due = s->idle_first ? s->idle_first->last_progress_ns + IDLE_GRACE_MS * NS_PER_MS : now;

    if (s->idle_first && due <= now)
        http_conn_shut_down(s->idle_first);
    return due > now ? (due - now) / NS_PER_MS + 1 : 0;
}

static bool http_server_is_full(struct http_server *s)
{
    if (s->stats.open < s->settings.limits.conns_max)
        return false;
    http_listeners_pause(s, http_evict_idle_connection(s));
    return true;
}

static void http_listener_on_accept(void *arg, uint32_t events UNUSED)
{
    struct http_listener *l = arg;

    for (int i = 0; i < ACCEPTS_PER_TURN && !http_server_is_full(l->s); i++) {
        union http_sockaddr from = { 0 };
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, &from.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                (void)http_evict_idle_connection(l->s);
                http_listeners_pause(l->s, FD_SHORTAGE_PAUSE_MS);
            }
            return;
        }
        http_accept_connection(l->s, fd, l->is_unix, false, &from);
    }
}

/* The connection is already accepted, so it cannot wait in the backlog. If the server is full, an
 * idle connection is evicted, or else this one is closed. */
void http_add_tls_connection(struct http_server *s, int fd, const struct sockaddr *from)
{
    union http_sockaddr addr = { 0 };
    bool crowded = s->stats.open >= s->settings.limits.conns_max;

    if (s->draining || (crowded && !s->idle_first)) {
        s->stats.refused_per_addr += !s->draining;
        close(fd);
        return;
    }
    if (crowded)
        http_conn_shut_down(s->idle_first);
    memcpy(&addr, from, from->sa_family == AF_INET ? sizeof(addr.in) : sizeof(addr.in6));
    http_accept_connection(s, fd, false, true, &addr);
}

static void http_listeners_on_resume(void *arg)
{
    http_listeners_resume(arg);
}

void http_listeners_pause(struct http_server *s, uint64_t ms)
{
    s->accept_paused = true;
    for (struct http_listener *l = s->listeners; l; l = l->next)
        ev_io_set(s->ev, &l->io, 0);
    if (ms)
        ev_timer_set(s->ev, &s->accept_resume_timer, ev_now(s->ev) + ms * NS_PER_MS, http_listeners_on_resume, s);
}

void http_listeners_resume(struct http_server *s)
{
    s->accept_paused = false;
    ev_timer_clear(s->ev, &s->accept_resume_timer);
    for (struct http_listener *l = s->listeners; l; l = l->next)
        ev_io_set(s->ev, &l->io, EPOLLIN);
}

void http_listeners_close(struct http_server *s)
{
    ev_timer_clear(s->ev, &s->accept_resume_timer);
    while (s->listeners) {
        struct http_listener *l = s->listeners;

        s->listeners = l->next;
        ev_io_del(s->ev, &l->io);
        if (l->path)
            unlink(l->path);
        free(l->path);
        close(l->fd);
        free(l);
    }
}

static int http_listener_add(struct http_server *s, int *fd, bool local, struct err *err)
{
    struct http_listener *l = mem_new(struct http_listener);

    if (ev_io_add(s->ev, &l->io, *fd, EPOLLIN, http_listener_on_accept, l, err) < 0) {
        free(l);
        return -1;
    }
    l->s = s;
    l->fd = take_fd(fd);
    l->is_unix = local;
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

/* Only "127.0.0.1:8700" or "[::1]:8700": no host names, so that no lookup is necessary. */
static int http_listener_parse_addr(const char *text, union http_sockaddr *ret, socklen_t *ret_len, struct err *err)
{
    const char *colon = strrchr(text, ':');
    char host[64] = "";
    uint64_t port = 0;
    size_t n = colon ? (size_t)(colon - text) : 0;

    *ret = (union http_sockaddr){ 0 };
    if (n > 0 && n < sizeof(host) && str_to_u64(colon + 1, 65535, &port)) {
        memcpy(host, text, n);
        if (host[0] == '[' && host[n - 1] == ']') {
            host[n - 1] = '\0';
            ret->in6 = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
            *ret_len = sizeof(ret->in6);
            if (inet_pton(AF_INET6, host + 1, &ret->in6.sin6_addr) == 1)
                return 0;
        }
        ret->in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        *ret_len = sizeof(ret->in);
        if (inet_pton(AF_INET, host, &ret->in.sin_addr) == 1)
            return 0;
    }
    return err_set(err, ERR_INVALID, "'%.80s' is not an address to listen on; write ADDRESS:PORT or [ADDRESS]:PORT",
                   text);
}

int http_listen_tcp(struct http_server *s, const char *addr, uint16_t *ret_port, struct err *err)
{
    union http_sockaddr a;
    socklen_t len;
    int yes = 1;

    if (http_listener_parse_addr(addr, &a, &len, err) < 0)
        return -1;
    auto_fd int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (a.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, &a.sa, len) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno == EADDRINUSE ? ERR_EXISTS : ERR_SYS, "cannot listen on %s", addr);
    len = sizeof(a);
    if (getsockname(fd, &a.sa, &len) < 0)
        return err_sys(err, ERR_SYS, "getsockname");
    if (http_listener_add(s, &fd, false, err) < 0)
        return -1;
    if (ret_port)
        *ret_port = ntohs(a.sa.sa_family == AF_INET ? a.in.sin_port : a.in6.sin6_port);
    return 0;
}

/* A socket file without a listener refuses connections: its server died without removing it. */
static int http_listener_remove_stale(const char *path, const struct sockaddr_un *un, struct err *err)
{
    struct stat st;
    auto_fd int probe = -1;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, ERR_SYS, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_EXISTS, "%s exists and is not a socket", path);
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (connect(probe, (const struct sockaddr *)un, sizeof(*un)) == 0 || errno != ECONNREFUSED)
        return err_set(err, ERR_EXISTS, "another server already listens on %s", path);
    return unlink(path) < 0 ? err_sys(err, ERR_SYS, "cannot remove %s", path) : 0;
}

int http_listen_unix(struct http_server *s, const char *path, mode_t mode, struct err *err)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    if (!str_copy(un.sun_path, sizeof(un.sun_path), path))
        return err_set(err, ERR_INVALID, "the socket's path is longer than %zu bytes", sizeof(un.sun_path) - 1);
    if (http_listener_remove_stale(path, &un, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    /* Clients cannot connect before listen(), so the mode is set in time. */
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, ERR_SYS, "cannot listen on %s", path);
    if (http_listener_add(s, &fd, true, err) < 0)
        return -1;
    s->listeners->path = str_dup(path);
    return 0;
}

int http_listen_fd(struct http_server *s, int fd, struct err *err)
{
    auto_fd int mine = fd;
    union http_sockaddr a = { 0 };
    socklen_t len = sizeof(a);
    int listening = 0;
    socklen_t size = sizeof(listening);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening ||
        getsockname(fd, &a.sa, &len) < 0)
        return err_set(err, ERR_INVALID, "descriptor %d is not a listening socket", fd);
    if (fd_nonblock(fd, true) < 0)
        return err_sys(err, ERR_SYS, "descriptor %d", fd);
    return http_listener_add(s, &mine, a.sa.sa_family == AF_UNIX, err);
}
