/* Zygotes: processes that fork themselves into sandboxes. The jailer starts one per template when a
 * client requests it, and sends it the sandbox and its descriptors for each fork. The zygote does
 * the rest without privilege.
 *
 * Invariants
 * 1. A zygote runs untrusted code. Its messages are validated like input from an attacker, and can
 *    harm its own template at most.
 * 2. The jailer never waits for a zygote: its socket accepts an order or the order fails, and every
 *    order is answered once, at the latest when the socket closes.
 * 3. A new zygote replaces the old one when it is ready; the old one ends when its last order is
 *    answered. The record of the old one stays until each of its interpreters has announced its
 *    seccomp listener or has ended. */
#include "host/jailer/jailed_zygote.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/isolate/sys.h"
#include "host/zygote/zygote_protocol.h"

#include <errno.h>
#include <fcntl.h>

#define JOINS_MAX 64 /* unanswered orders of one zygote */

struct jailed_zygote_join {
    struct jailed_zygote_join *next;
    struct jailer_client *client; /* NULL: the client that asked has disconnected */
    uint32_t stream;
    uint64_t token;
    int host_fds[3]; /* client's ends: kernel socket, stdout, stderr */
};

struct jailed_zygote {
    struct jailed_zygote *next;
    struct jailer *jailer;
    const struct spawner *spawner;
    struct ev_io io;          /* off: the zygote has ended */
    struct ev_io listener_io; /* interpreters announce their listeners here */
    int listener_socket;      /* other end of listener_io, for interpreters; -1: no monitor */
    bool ready, retired;
    struct jailer_client *client; /* client that requested it; NULL once ready */
    uint32_t stream;
    struct jailed_zygote_join *joins;
    size_t njoins;
    struct ev_defer free_later;
};

/* --- end --- */

static void jailed_zygote_answer_join(struct jailed_zygote *z, struct jailed_zygote_join *w, const struct err *err)
{
    list_remove(&z->joins, w);
    z->njoins--;
    if (err)
        reply_error(w->client, w->stream, err);
    else if (w->client)
        chan_send_fds(&w->client->chan, &(struct frame){ .type = FRAME_J_OK, .stream = w->stream }, w->host_fds, 3);
    for (size_t i = 0; i < ARRAY_LEN(w->host_fds); i++)
        fd_close(&w->host_fds[i]);
    free(w);
}

static void jailed_zygote_free(struct jailed_zygote *z)
{
    list_remove(&z->jailer->zygotes, z);
    if (z->listener_io.on) {
        ev_io_del(z->jailer->ev, &z->listener_io);
        fd_hang_up(z->listener_io.fd);
    }
    ev_defer(z->jailer->ev, &z->free_later, free, z);
}

/* Closing the socket ends the zygote; the spawner reaps it. */
static void jailed_zygote_end(struct jailed_zygote *z, const struct err *why)
{
    if (!z->io.on)
        return;
    z->retired = true;
    reply_error(z->client, z->stream, why);
    while (z->joins)
        jailed_zygote_answer_join(z, z->joins, why);
    ev_io_del(z->jailer->ev, &z->io);
    fd_hang_up(z->io.fd);
    fd_close(&z->listener_socket);
    if (!z->listener_io.on)
        jailed_zygote_free(z);
}

static void jailed_zygote_end_if_idle(struct jailed_zygote *z)
{
    static const struct err unwanted = { .id = ERR_LOST, .msg = "the zygote was replaced or stopped" };

    if (z->retired && !z->joins)
        jailed_zygote_end(z, &unwanted);
}

/* Retires all ready zygotes of s except `but`. If `but` is NULL, retires those that are not ready
 * too. */
static void jailed_zygote_retire_others(struct jailer *j, const struct spawner *s, const struct jailed_zygote *but)
{
    for (struct jailed_zygote *z = j->zygotes, *next; z; z = next) {
        next = z->next;
        if (z == but || z->spawner != s || (but && !z->ready))
            continue;
        z->retired = true;
        jailed_zygote_end_if_idle(z);
    }
}

static void jailed_zygote_on_listener(void *arg, uint32_t events UNUSED)
{
    struct jailed_zygote *z = arg;
    struct err why;

    if (listener_relay_read(z->jailer, z->listener_io.fd, z->spawner))
        return;
    err_set(&why, ERR_LOST, "the zygote of template %s announced a listener that is not its own",
            spawner_get_template(z->spawner)->name);
    jailed_zygote_end(z, &why);
    jailed_zygote_free(z);
}

/* --- events of the zygote --- */

static void jailed_zygote_on_ready(struct jailed_zygote *z)
{
    z->ready = true;
    reply_ok(z->client, z->stream);
    z->client = NULL;
    jailed_zygote_retire_others(z->jailer, z->spawner, z);
}

static bool jailed_zygote_event_valid(struct zygote_event *n, ssize_t len)
{
    if (len != (ssize_t)sizeof(*n) || (unsigned)n->err.id >= ERR_COUNT)
        return false;
    n->err.msg[sizeof(n->err.msg) - 1] = '\0';
    if ((n->kind == ZYGOTE_FAILED || n->kind == ZYGOTE_REFUSED) && n->err.id == ERR_NONE)
        return false;
    return n->kind == ZYGOTE_READY || n->kind == ZYGOTE_FAILED || n->kind == ZYGOTE_JOINED || n->kind == ZYGOTE_REFUSED;
}

static bool jailed_zygote_apply_event(struct jailed_zygote *z, struct zygote_event *n)
{
    struct jailed_zygote_join *w = z->joins;

    if (n->kind == ZYGOTE_FAILED && !z->ready) {
        jailed_zygote_end(z, &n->err);
        return true;
    }
    if (n->kind == ZYGOTE_READY && !z->ready) {
        jailed_zygote_on_ready(z);
        return true;
    }
    while (w && w->token != n->token)
        w = w->next;
    if (!w || n->kind == ZYGOTE_READY || n->kind == ZYGOTE_FAILED)
        return false;
    jailed_zygote_answer_join(z, w, n->kind == ZYGOTE_REFUSED ? &n->err : NULL);
    jailed_zygote_end_if_idle(z);
    return true;
}

static void jailed_zygote_on_event(void *arg, uint32_t events UNUSED)
{
    struct jailed_zygote *z = arg;
    struct zygote_event n;
    struct err why;
    ssize_t got = fd_recv(z->io.fd, &n, sizeof(n), NULL, NULL, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0 && jailed_zygote_event_valid(&n, got) && jailed_zygote_apply_event(z, &n))
        return;
    err_set(&why, ERR_LOST, "the zygote of template %s %s", spawner_get_template(z->spawner)->name,
            got > 0 ? "violated the protocol" : "ended");
    jailed_zygote_end(z, &why);
}

/* --- requests --- */

static bool jailed_zygote_language_valid(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n > 0 && s[n] == '\0';
}

static int jailed_zygote_open_listener(struct jailed_zygote *z, struct err *err)
{
    int sv[2];

    z->listener_socket = -1;
    if (z->jailer->listener_relay.sender_socket <= 0)
        return 0;
    if (listener_relay_pair(sv, err) < 0)
        return -1;
    z->listener_socket = sv[1];
    if (ev_io_add(z->jailer->ev, &z->listener_io, sv[0], EPOLLIN, jailed_zygote_on_listener, z, err) == 0)
        return 0;
    close(sv[0]);
    return -1;
}

int jailed_zygote_start(struct jailer_client *c, const struct frame *f, struct err *err)
{
    struct jail_zygote m;
    int sv[2];

    if (jail_zygote_decode(f, &m, err) < 0)
        return -1;
    struct spawner *s = create_find_template(c->jailer, m.template);
    if (!s)
        return err_set(err, ERR_MISSING, "template '%s' does not exist", m.template);
    if (c->jailer->rootless || !spawner_get_template(s)->joinable)
        return err_set(err, ERR_INVALID, "template '%s' is not joinable%s", m.template,
                       c->jailer->rootless ? ": an unprivileged server does not fork interpreters" : "");
    if (!m.language[0] && !m.preload[0]) {
        jailed_zygote_retire_others(c->jailer, s, NULL);
        reply_ok(c, f->stream);
        return 0;
    }
    if (!jailed_zygote_language_valid(m.language))
        return err_set(err, ERR_INVALID, "'%s' is not a language", m.language);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "cannot make a socket for the zygote");
    auto_fd int near = sv[0], far = sv[1];
    if (spawner_order_zygote(s, m.language, m.preload, far, err) < 0)
        return -1;
    struct jailed_zygote *z = mem_new(struct jailed_zygote);
    z->jailer = c->jailer;
    z->spawner = s;
    z->next = c->jailer->zygotes;
    c->jailer->zygotes = z;
    if (jailed_zygote_open_listener(z, err) < 0 ||
        ev_io_add(c->jailer->ev, &z->io, near, EPOLLIN, jailed_zygote_on_event, z, err) < 0) {
        fd_close(&z->listener_socket);
        jailed_zygote_free(z);
        return -1;
    }
    (void)take_fd(&near);
    z->client = c;
    z->stream = f->stream;
    return 0;
}

static struct jailed_zygote *jailed_zygote_find_ready(const struct jailer *j, const struct spawner *s)
{
    struct jailed_zygote *z = j->zygotes;

    while (z && (z->spawner != s || !z->ready || z->retired))
        z = z->next;
    return z;
}

/* `far` receives the zygote's ends, in the order of zygote_fork_order. */
static int jailed_zygote_make_streams(int far[3], int ours[3], struct err *err)
{
    int sv[2] = { -1, -1 };

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "cannot make the socket of the language kernel");
    for (size_t i = 0; i < 3; i++) {
        if (i > 0 && pipe2(sv, O_CLOEXEC) < 0)
            return err_sys(err, ERR_SYS, "pipe");
        ours[i] = sv[0];
        far[i] = sv[1];
    }
    return 0;
}

static int jailed_zygote_send_join(struct jailed_zygote *z, struct jailed_sandbox *sandbox, uint64_t token,
                                   const int far[3], struct err *err)
{
    struct jailer *j = z->jailer;
    struct zygote_fork_order o = { .token = token,
                                   .limits = sandbox->limits,
                                   .calls = spawner_get_template(sandbox->spawner)->filter };
    struct cgroup_entry entry;
    int fds[4 + CGROUP_TREES + 1] = { sandbox->pidfd, far[0], far[1], far[2] };
    size_t n = 4;

    if (cgroup_enter_open(&j->cgroups, sandbox->id, &sandbox->limits, true, &entry, err) < 0)
        return -1;
    memcpy(o.id, sandbox->id, sizeof(o.id));
    o.nprocs = (uint8_t)entry.nprocs;
    for (size_t i = 0; i < entry.nprocs; i++)
        fds[n++] = entry.procs[i];
    if (z->listener_socket >= 0) {
        o.has_monitor = true;
        fds[n++] = z->listener_socket;
        sandbox->awaited_listeners++;
    }
    ssize_t sent = fd_send(z->io.fd, &o, sizeof(o), fds, n, MSG_DONTWAIT);
    int saved = errno;
    cgroup_enter_close(&entry);
    errno = saved;
    return sent < 0 ? err_sys(err, errno == EAGAIN ? ERR_BUSY : ERR_LOST, "zygote") : 0;
}

int jailed_zygote_request_join(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream,
                               struct err *err)
{
    struct jailed_zygote *z = jailed_zygote_find_ready(c->jailer, sandbox->spawner);
    int far[3] = { -1, -1, -1 };

    if (!z)
        return err_set(err, ERR_MISSING, "template '%s' has no ready zygote",
                       spawner_get_template(sandbox->spawner)->name);
    if (z->njoins == JOINS_MAX)
        return err_set(err, ERR_BUSY, "the zygote of template '%s' already has %d pending forks; try again later",
                       spawner_get_template(sandbox->spawner)->name, JOINS_MAX);
    struct jailed_zygote_join *w = mem_new(struct jailed_zygote_join);
    w->client = c;
    w->stream = stream;
    w->token = ++c->jailer->last_token;
    for (size_t i = 0; i < 3; i++)
        w->host_fds[i] = -1;
    int bad = jailed_zygote_make_streams(far, w->host_fds, err);
    if (!bad)
        bad = jailed_zygote_send_join(z, sandbox, w->token, far, err);
    for (size_t i = 0; i < 3; i++)
        fd_close(&far[i]);
    if (bad) {
        for (size_t i = 0; i < 3; i++)
            fd_close(&w->host_fds[i]);
        free(w);
        return -1;
    }
    w->next = z->joins;
    z->joins = w;
    z->njoins++;
    return 0;
}

/* --- ends of clients and spawners --- */

void jailed_zygote_forget_client(struct jailer *j, const struct jailer_client *c)
{
    for (struct jailed_zygote *z = j->zygotes; z; z = z->next) {
        if (z->client == c)
            z->client = NULL;
        for (struct jailed_zygote_join *w = z->joins; w; w = w->next)
            if (w->client == c)
                w->client = NULL;
    }
}

void jailed_zygote_forget_spawner(struct jailer *j, const struct spawner *s)
{
    struct err why;

    err_set(&why, ERR_LOST, "the template is gone");
    for (struct jailed_zygote *z = j->zygotes, *next; z; z = next) {
        next = z->next;
        if (z->spawner != s)
            continue;
        bool watched = z->listener_io.on;
        jailed_zygote_end(z, &why);
        if (watched)
            jailed_zygote_free(z);
        /* This is not a callback of z, so freeing it now is safe; the loop may not run again. */
        ev_defer_clear(j->ev, &z->free_later);
        free(z);
    }
}
