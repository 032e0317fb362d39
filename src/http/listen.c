/* Sockets are accepted here and handed to the daemon one by one.
 *
 * 1. Accepting pauses instead of failing: when the server is full it waits for a connection to end, and it helps by
 *    cutting the one that has been idle longest; when the process has no descriptor left it waits for a moment as well.
 *    Connections wait in the kernel meanwhile, and the loop does not turn for them.
 * 2. Connections of one address are counted by walking over all of them. There are a thousand at most, and a table that
 *    must agree with the list would be one more thing to get wrong. */
#include "http/daemon.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define ACCEPTS_PER_TURN 64
#define SHORTAGE_MS 100
#define CHANCE_MS 100 /* for a connection to show what it wants */
#define BACKLOG 512

union any_addr {
    struct sockaddr sa;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
    struct sockaddr_storage storage;
};

static bool tell_peer(struct conn *c, bool local, const union any_addr *from)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    c->peer.local = local;
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

static bool too_many(const struct conn *c)
{
    unsigned n = 0;

    if (c->peer.local)
        return false;
    for (const struct conn *other = c->s->conns; other; other = other->next)
        n += !other->peer.local && memcmp(other->addr, c->addr, sizeof(c->addr)) == 0;
    return n > c->s->set.limits.conns_per_addr;
}

static void take(struct http_server *s, int fd, bool local, bool tls, const union any_addr *from)
{
    struct conn *c = conn_new(s, fd);
    int yes = 1;

    c->peer.tls = tls;
    if (!tell_peer(c, local, from) || too_many(c)) {
        s->stats.refused++;
        close(fd);
        conn_free(c);
        return;
    }
    if (!local && !tls)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    s->adding = c;
    /* The address is of no use to the daemon, which is told none that could be counted or be too long for it. */
    struct sockaddr_in nobody = { .sin_family = AF_INET };
    bool added = MHD_add_connection(s->mhd, fd, (struct sockaddr *)&nobody, sizeof(nobody)) == MHD_YES;
    s->adding = NULL;
    if (!added) { /* it closed the descriptor */
        s->stats.refused++;
        if (!c->mhd)
            conn_free(c);
        return;
    }
    s->stats.accepted++;
    conn_watch(c);
    conn_phase(c, CONN_HEAD);
}

/* Cuts what is idle longest. One that has only just come, or has only just been answered, is left: its request may be
 * under way, and where all others are busy with slow heads it is the first of the idle. The time until there is one to
 * cut, or 0. */
static uint64_t make_room(struct http_server *s)
{
    uint64_t now = ev_now(s->ev), due = s->idle_first ? s->idle_first->since + CHANCE_MS * NS_PER_MS : now;

    if (s->idle_first && due <= now)
        conn_cut(s->idle_first);
    return due > now ? (due - now) / NS_PER_MS + 1 : 0;
}

static bool full(struct http_server *s)
{
    if (s->stats.open < s->set.limits.conns_max)
        return false;
    listen_pause(s, make_room(s));
    return true;
}

static void on_accept(void *arg, uint32_t events UNUSED)
{
    struct listener *l = arg;

    for (int i = 0; i < ACCEPTS_PER_TURN && !full(l->s); i++) {
        union any_addr from = { 0 };
        socklen_t len = sizeof(from);
        int fd = accept4(l->fd, &from.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                (void)make_room(l->s);
                listen_pause(l->s, SHORTAGE_MS);
            }
            return;
        }
        take(l->s, fd, l->local, false, &from);
    }
}

/* Whoever hands it over has accepted it already, so it cannot wait in the kernel's queue: without room, one that does
 * nothing makes some, or this one goes. */
void http_adopt(struct http_server *s, int fd, const struct sockaddr *from)
{
    union any_addr addr = { 0 };
    bool crowded = s->stats.open >= s->set.limits.conns_max;

    if (s->draining || (crowded && !s->idle_first)) {
        s->stats.refused += !s->draining;
        close(fd);
        return;
    }
    if (crowded)
        conn_cut(s->idle_first);
    memcpy(&addr, from, from->sa_family == AF_INET ? sizeof(addr.in) : sizeof(addr.in6));
    take(s, fd, false, true, &addr);
}

static void on_unpause(void *arg)
{
    listen_resume(arg);
}

void listen_pause(struct http_server *s, uint64_t ms)
{
    s->paused = true;
    for (struct listener *l = s->listeners; l; l = l->next)
        ev_io_set(s->ev, &l->io, 0);
    if (ms)
        ev_timer_set(s->ev, &s->unpause, ev_now(s->ev) + ms * NS_PER_MS, on_unpause, s);
}

void listen_resume(struct http_server *s)
{
    s->paused = false;
    ev_timer_clear(s->ev, &s->unpause);
    for (struct listener *l = s->listeners; l; l = l->next)
        ev_io_set(s->ev, &l->io, EPOLLIN);
}

void listen_close(struct http_server *s)
{
    ev_timer_clear(s->ev, &s->unpause);
    while (s->listeners) {
        struct listener *l = s->listeners;

        s->listeners = l->next;
        ev_io_del(s->ev, &l->io);
        if (l->path)
            unlink(l->path);
        free(l->path);
        close(l->fd);
        free(l);
    }
}

static int add_listener(struct http_server *s, int *fd, bool local, struct err *err)
{
    struct listener *l = mem_new(struct listener);

    if (ev_io_add(s->ev, &l->io, *fd, EPOLLIN, on_accept, l, err) < 0) {
        free(l);
        return -1;
    }
    l->s = s;
    l->fd = take_fd(fd);
    l->local = local;
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

/* "127.0.0.1:8700" or "[::1]:8700": no names, so that nothing is looked up and nobody is surprised. */
static int parse_addr(const char *text, union any_addr *ret, socklen_t *ret_len, struct err *err)
{
    const char *colon = strrchr(text, ':');
    char host[64] = "";
    uint64_t port = 0;
    size_t n = colon ? (size_t)(colon - text) : 0;

    *ret = (union any_addr){ 0 };
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
    return err_set(err, ERR_INVALID, "'%.80s' is not an address to listen on (ADDRESS:PORT or [ADDRESS]:PORT)", text);
}

int http_listen_tcp(struct http_server *s, const char *addr, uint16_t *ret_port, struct err *err)
{
    union any_addr a;
    socklen_t len;
    int yes = 1;

    if (parse_addr(addr, &a, &len, err) < 0)
        return -1;
    auto_fd int fd = socket(a.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (a.sa.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof(yes));
    if (bind(fd, &a.sa, len) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno == EADDRINUSE ? ERR_EXISTS : ERR_SYS, "listening on %s", addr);
    len = sizeof(a);
    if (getsockname(fd, &a.sa, &len) < 0)
        return err_sys(err, ERR_SYS, "getsockname");
    if (add_listener(s, &fd, false, err) < 0)
        return -1;
    if (ret_port)
        *ret_port = ntohs(a.sa.sa_family == AF_INET ? a.in.sin_port : a.in6.sin6_port);
    return 0;
}

/* A socket file that nobody listens on refuses connections; then its server died without removing it. */
static int remove_stale(const char *path, const struct sockaddr_un *un, struct err *err)
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
        return err_set(err, ERR_EXISTS, "a server listens on %s already", path);
    return unlink(path) < 0 ? err_sys(err, ERR_SYS, "removing %s", path) : 0;
}

int http_listen_unix(struct http_server *s, const char *path, mode_t mode, struct err *err)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    if (!str_copy(un.sun_path, sizeof(un.sun_path), path))
        return err_set(err, ERR_INVALID, "the socket's path is longer than %zu bytes", sizeof(un.sun_path) - 1);
    if (remove_stale(path, &un, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    /* Nobody can connect before listen(), so the mode is there in time. */
    if (bind(fd, (struct sockaddr *)&un, sizeof(un)) < 0 || chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, ERR_SYS, "listening on %s", path);
    if (add_listener(s, &fd, true, err) < 0)
        return -1;
    s->listeners->path = str_dup(path);
    return 0;
}

int http_listen_fd(struct http_server *s, int fd, struct err *err)
{
    auto_fd int mine = fd;
    union any_addr a = { 0 };
    socklen_t len = sizeof(a);
    int listening = 0;
    socklen_t size = sizeof(listening);

    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening ||
        getsockname(fd, &a.sa, &len) < 0)
        return err_set(err, ERR_INVALID, "descriptor %d is not a listening socket", fd);
    if (fd_nonblock(fd, true) < 0)
        return err_sys(err, ERR_SYS, "descriptor %d", fd);
    return add_listener(s, &mine, a.sa.sa_family == AF_UNIX, err);
}
