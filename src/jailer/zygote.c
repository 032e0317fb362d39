/* Zygotes: who is forked into sandboxes. The jailer starts one per template when a host asks for it, and hands sandbox
 * and descriptors over for each fork; the rest happens without privilege, in the zygote.
 *
 * Invariants
 * 1. A zygote runs code of others. What it says is checked like the word of a stranger, and costs its own template at
 *    most.
 * 2. Nothing here waits for it: an order is taken by its socket or refused, and every order is answered once, at the
 *    latest when the socket closes.
 * 3. A new generation takes over when it is ready; the one before goes when its last order is answered. Its record
 * stays until the last of its members has announced the listener of its refused calls, or is gone. */
#include "jailer/zygote.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "isolate/sys.h"
#include "zygote/orders.h"

#include <errno.h>
#include <fcntl.h>

#define JOINS_MAX 64 /* that one zygote has not answered yet */

struct join_wait {
    struct join_wait *next;
    struct conn *c; /* NULL: whoever asked is gone */
    uint32_t stream;
    uint64_t token;
    int ours[3]; /* the host's ends of kernel socket, output and errors */
};

struct zygote {
    struct zygote *next;
    struct jailer *j;
    const struct spawner *spawner;
    struct ev_io io;   /* off: it has ended */
    struct ev_io door; /* where its members announce their listeners */
    int out;           /* the other end of it, for them; -1: nobody watches */
    bool ready, retired;
    struct conn *c; /* who asked for it, until it is ready */
    uint32_t stream;
    struct join_wait *joins;
    size_t njoins;
    struct ev_defer free_later;
};

/* --- the end --- */

static void answer_join(struct zygote *z, struct join_wait *w, const struct err *err)
{
    struct join_wait **p = &z->joins;

    while (*p != w)
        p = &(*p)->next;
    *p = w->next;
    z->njoins--;
    if (err)
        reply_error(w->c, w->stream, err);
    else if (w->c)
        chan_send_fds(&w->c->chan, &(struct frame){ .type = FRAME_J_OK, .stream = w->stream }, w->ours, 3);
    for (size_t i = 0; i < ARRAY_LEN(w->ours); i++)
        fd_close(&w->ours[i]);
    free(w);
}

static void zygote_free(struct zygote *z)
{
    struct zygote **p = &z->j->zygotes;

    while (*p != z)
        p = &(*p)->next;
    *p = z->next;
    if (z->door.on) {
        ev_io_del(z->j->ev, &z->door);
        fd_hang_up(z->door.fd);
    }
    ev_defer(z->j->ev, &z->free_later, free, z);
}

/* Closing the socket ends it; the spawner reaps it. */
static void zygote_end(struct zygote *z, const struct err *why)
{
    if (!z->io.on)
        return;
    z->retired = true;
    reply_error(z->c, z->stream, why);
    while (z->joins)
        answer_join(z, z->joins, why);
    ev_io_del(z->j->ev, &z->io);
    fd_hang_up(z->io.fd);
    fd_close(&z->out);
    if (!z->door.on)
        zygote_free(z);
}

static void maybe_end(struct zygote *z)
{
    static const struct err unwanted = { .id = ERR_LOST, .msg = "the zygote is not wanted any more" };

    if (z->retired && !z->joins)
        zygote_end(z, &unwanted);
}

/* All that are forked from s but one, or, without it, those too that are not ready yet. */
static void retire(struct jailer *j, const struct spawner *s, const struct zygote *but)
{
    for (struct zygote *z = j->zygotes, *next; z; z = next) {
        next = z->next;
        if (z == but || z->spawner != s || (but && !z->ready))
            continue;
        z->retired = true;
        maybe_end(z);
    }
}

static void on_announced(void *arg, uint32_t events UNUSED)
{
    struct zygote *z = arg;
    struct err why;

    if (relay_read(z->j, z->door.fd, z->spawner))
        return;
    err_set(&why, ERR_LOST, "the zygote of template %s announced what is not of its making",
            spawner_kind(z->spawner)->name);
    zygote_end(z, &why);
    zygote_free(z);
}

/* --- what it says --- */

static void on_ready(struct zygote *z)
{
    z->ready = true;
    reply_ok(z->c, z->stream);
    z->c = NULL;
    retire(z->j, z->spawner, z);
}

static bool believable(struct zygote_note *n, ssize_t len)
{
    if (len != (ssize_t)sizeof(*n) || (unsigned)n->err.id >= ERR_COUNT)
        return false;
    n->err.msg[sizeof(n->err.msg) - 1] = '\0';
    if ((n->kind == ZYGOTE_FAILED || n->kind == ZYGOTE_REFUSED) && n->err.id == ERR_NONE)
        return false;
    return n->kind == ZYGOTE_READY || n->kind == ZYGOTE_FAILED || n->kind == ZYGOTE_JOINED || n->kind == ZYGOTE_REFUSED;
}

static bool on_word(struct zygote *z, struct zygote_note *n)
{
    struct join_wait *w = z->joins;

    if (n->kind == ZYGOTE_FAILED && !z->ready) {
        zygote_end(z, &n->err);
        return true;
    }
    if (n->kind == ZYGOTE_READY && !z->ready) {
        on_ready(z);
        return true;
    }
    while (w && w->token != n->token)
        w = w->next;
    if (!w || n->kind == ZYGOTE_READY || n->kind == ZYGOTE_FAILED)
        return false;
    answer_join(z, w, n->kind == ZYGOTE_REFUSED ? &n->err : NULL);
    maybe_end(z);
    return true;
}

static void on_note(void *arg, uint32_t events UNUSED)
{
    struct zygote *z = arg;
    struct zygote_note n;
    struct err why;
    ssize_t got = fd_recv(z->io.fd, &n, sizeof(n), NULL, NULL, MSG_DONTWAIT);

    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got > 0 && believable(&n, got) && on_word(z, &n))
        return;
    err_set(&why, ERR_LOST, "the zygote of template %s %s", spawner_kind(z->spawner)->name,
            got > 0 ? "does not keep to the protocol" : "ended");
    zygote_end(z, &why);
}

/* --- requests --- */

static bool plain_word(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n > 0 && s[n] == '\0';
}

static int open_door(struct zygote *z, struct err *err)
{
    int sv[2];

    z->out = -1;
    if (z->j->relay.out <= 0)
        return 0;
    if (relay_pair(sv, err) < 0)
        return -1;
    z->out = sv[1];
    if (ev_io_add(z->j->ev, &z->door, sv[0], EPOLLIN, on_announced, z, err) == 0)
        return 0;
    close(sv[0]);
    return -1;
}

int zygote_begin(struct conn *c, const struct frame *f, struct err *err)
{
    struct jail_zygote m;
    int sv[2];

    if (jail_zygote_decode(f, &m, err) < 0)
        return -1;
    struct spawner *s = create_find_template(c->j, m.template);
    if (!s)
        return err_set(err, ERR_MISSING, "template '%s' does not exist", m.template);
    if (c->j->rootless || !spawner_kind(s)->joinable)
        return err_set(err, ERR_INVALID, "template '%s' is not joinable%s", m.template,
                       c->j->rootless ? ": a plain user's server forks no interpreters" : "");
    if (!m.language[0] && !m.preload[0]) {
        retire(c->j, s, NULL);
        reply_ok(c, f->stream);
        return 0;
    }
    if (!plain_word(m.language))
        return err_set(err, ERR_INVALID, "'%s' is no language", m.language);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socket for a zygote");
    auto_fd int near = sv[0], far = sv[1];
    if (spawner_zygote(s, m.language, m.preload, far, err) < 0)
        return -1;
    struct zygote *z = mem_new(struct zygote);
    z->j = c->j;
    z->spawner = s;
    z->next = c->j->zygotes;
    c->j->zygotes = z;
    if (open_door(z, err) < 0 || ev_io_add(c->j->ev, &z->io, near, EPOLLIN, on_note, z, err) < 0) {
        fd_close(&z->out);
        zygote_free(z);
        return -1;
    }
    (void)take_fd(&near);
    z->c = c;
    z->stream = f->stream;
    return 0;
}

static struct zygote *find(const struct jailer *j, const struct spawner *s)
{
    struct zygote *z = j->zygotes;

    while (z && (z->spawner != s || !z->ready || z->retired))
        z = z->next;
    return z;
}

/* far: its ends, in the order of zygote_order. */
static int make_ends(int far[3], int ours[3], struct err *err)
{
    int sv[2] = { -1, -1 };

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "kernel socket");
    for (size_t i = 0; i < 3; i++) {
        if (i > 0 && pipe2(sv, O_CLOEXEC) < 0)
            return err_sys(err, ERR_SYS, "pipe");
        ours[i] = sv[0];
        far[i] = sv[1];
    }
    return 0;
}

static int send_join(struct zygote *z, struct cell *cell, uint64_t token, const int far[3], struct err *err)
{
    struct jailer *j = z->j;
    struct zygote_order o = { .token = token, .limits = cell->limits, .calls = spawner_kind(cell->spawner)->filter };
    struct cgroup_entry entry;
    int fds[4 + CGROUP_TREES + 1] = { cell->pidfd, far[0], far[1], far[2] };
    size_t n = 4;

    if (cgroup_enter_open(&j->forest, cell->id, &cell->limits, true, &entry, err) < 0)
        return -1;
    memcpy(o.id, cell->id, sizeof(o.id));
    o.nprocs = (uint8_t)entry.nprocs;
    for (size_t i = 0; i < entry.nprocs; i++)
        fds[n++] = entry.procs[i];
    if (z->out >= 0) {
        o.watched = true;
        fds[n++] = z->out;
        cell->awaited++;
    }
    ssize_t sent = fd_send(z->io.fd, &o, sizeof(o), fds, n, MSG_DONTWAIT);
    int saved = errno;
    cgroup_enter_close(&entry);
    errno = saved;
    return sent < 0 ? err_sys(err, errno == EAGAIN ? ERR_BUSY : ERR_LOST, "zygote") : 0;
}

int zygote_join(struct conn *c, struct cell *cell, uint32_t stream, struct err *err)
{
    struct zygote *z = find(c->j, cell->spawner);
    int far[3] = { -1, -1, -1 };

    if (!z)
        return err_set(err, ERR_MISSING, "template '%s' has no zygote that is ready",
                       spawner_kind(cell->spawner)->name);
    if (z->njoins == JOINS_MAX)
        return err_set(err, ERR_BUSY, "the zygote of template '%s' has %d forks to make",
                       spawner_kind(cell->spawner)->name, JOINS_MAX);
    struct join_wait *w = mem_new(struct join_wait);
    w->c = c;
    w->stream = stream;
    w->token = ++c->j->last_token;
    for (size_t i = 0; i < 3; i++)
        w->ours[i] = -1;
    int bad = make_ends(far, w->ours, err);
    if (!bad)
        bad = send_join(z, cell, w->token, far, err);
    for (size_t i = 0; i < 3; i++)
        fd_close(&far[i]);
    if (bad) {
        for (size_t i = 0; i < 3; i++)
            fd_close(&w->ours[i]);
        free(w);
        return -1;
    }
    w->next = z->joins;
    z->joins = w;
    z->njoins++;
    return 0;
}

/* --- others that end --- */

void zygote_forget_host(struct jailer *j, const struct conn *c)
{
    for (struct zygote *z = j->zygotes; z; z = z->next) {
        if (z->c == c)
            z->c = NULL;
        for (struct join_wait *w = z->joins; w; w = w->next)
            if (w->c == c)
                w->c = NULL;
    }
}

void zygote_forget_spawner(struct jailer *j, const struct spawner *s)
{
    struct err why;

    err_set(&why, ERR_LOST, "the template is gone");
    for (struct zygote *z = j->zygotes, *next; z; z = next) {
        next = z->next;
        if (z->spawner != s)
            continue;
        bool watched = z->door.on;
        zygote_end(z, &why);
        if (watched)
            zygote_free(z);
        ev_defer_clear(j->ev, &z->free_later); /* this is no callback of its own, and there may be no later */
        free(z);
    }
}
