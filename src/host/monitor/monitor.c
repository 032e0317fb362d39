/* One event loop over all seccomp listeners. A denied call is received, counted and answered, in
 * this order and without interruption, so a caller that got its EPERM is already in the tally: a
 * query after the end of a program returns all its denials.
 *
 * Floods are limited by back-pressure. The caller sleeps until it is answered; a sandbox that has
 * used up its tick is ignored until the next tick, and neither side uses CPU time meanwhile. A call
 * that is not received yet can still be interrupted, frozen and killed.
 *
 * Invariants
 * 1. The only answer is -EPERM, with no flags.
 * 2. A received call is answered before the loop continues; nothing here blocks.
 * 3. A record exists while it has a listener, or while a client may still query it.
 * 4. A query is answered after all listeners sent before it are registered. In a service, listeners
 *    come through the jailer, so a query about an unknown sandbox waits up to QUERY_WAIT_NS.
 * 5. Clients get a notice of a denial before the call returns, unless they already got one since
 *    the last query. While a client does not read, calls that need a notice wait, as in a flood. In
 *    a service that would delay the calls of all clients, so a client that has not read for
 *    PATIENCE_NS is disconnected. It may reconnect. */
#include "host/monitor/monitor.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/ev/ev.h"
#include "host/monitor/seccomp_notif.h"
#include "host/monitor/process.h"
#include "host/monitor/denial_tally.h"
#include "core/wire/chan.h"
#include "core/wire/unix_listener.h"
#include "core/wire/jail.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>

#define RECORDS_MAX 20000u
#define MONITOR_CLIENTS_MAX 32u
#define CLIENT_RECHECK_NS (5 * NS_PER_MS) /* interval at which a client that does not read is checked */
#define PATIENCE_NS (2 * NS_PER_S)
#define LINGER_NS (600 * NS_PER_S)   /* service: time in which a restarted client can query ended sandboxes */
#define QUERY_WAIT_NS (2 * NS_PER_S) /* service: how long a query waits for a listener that has not arrived */

struct monitor_client { /* a client, or a jailer that forwards listeners */
    struct monitor_client *next;
    struct monitor *monitor;
    struct chan chan;
    bool is_jailer; /* sends listeners and clients, and gets no notices */
    /* behind_since: since when it has not read its notices. checked_at: when that was last checked;
     * 0: it is not behind. */
    uint64_t behind_since, checked_at;
    struct ev_defer free_later;
};

struct monitor_query { /* about a sandbox that is not known yet */
    struct monitor_query *next;
    struct monitor_client *client;
    uint32_t stream;
    char id[ID_SIZE];
    struct ev_timer deadline_timer;
};

struct monitor_listener { /* of one filter; a sandbox may have several */
    struct monitor_listener *next;
    struct monitor_record *record;
    const struct monitor_client *client; /* jailer that sends it again after a lost connection; NULL: from the intake */
    struct ev_io io;
};

struct monitor_record { /* one sandbox */
    struct monitor_record *next;
    struct monitor *monitor;
    char id[ID_SIZE];
    int32_t sys; /* errno: why there is no listener; 0: none failed */
    bool unwatched;
    bool denial_reported; /* clients got a notice since the last query */
    struct denial_tally tally;
    struct denial_pace pace;
    struct ev_timer resume_timer; /* set while its tick is used up */
    struct ev_timer linger_timer; /* service: set when it has ended */
    struct monitor_listener *listeners;
};

struct monitor {
    struct ev *ev;
    const struct monitor_settings *settings;
    struct monitor_record *records;
    size_t nrecords, nlisteners;
    struct ev_io intake;
    struct monitor_client *clients;
    struct monitor_query *queries;
    struct unix_listener listener; /* service only */
    uid_t own_uid;                 /* before it dropped its privileges */
};

/* --- records --- */

static void monitor_stop_if_idle(struct monitor *m)
{
    if (!m->listener.path && !m->clients && !m->intake.on && m->nlisteners == 0)
        ev_stop(m->ev);
}

static struct monitor_record *monitor_find_record(struct monitor *m, const char *id)
{
    struct monitor_record *r = m->records;

    while (r && !str_eq(r->id, id))
        r = r->next;
    return r;
}

static void monitor_record_free(void *arg)
{
    struct monitor_record *r = arg;
    struct monitor *m = r->monitor;
    list_remove(&m->records, r);
    m->nrecords--;
    ev_timer_clear(m->ev, &r->resume_timer);
    ev_timer_clear(m->ev, &r->linger_timer);
    free(r);
}

static void monitor_record_free_if_unused(struct monitor_record *r)
{
    struct monitor *m = r->monitor;

    if (r->listeners)
        ev_timer_clear(m->ev, &r->linger_timer);
    else if (r->unwatched || (!m->listener.path && !m->clients))
        monitor_record_free(r);
    else if (m->listener.path && !r->linger_timer.slot)
        ev_timer_set(m->ev, &r->linger_timer, ev_now(m->ev) + LINGER_NS, monitor_record_free, r);
}

static void monitor_listener_free(struct monitor_listener *l)
{
    struct monitor_record *r = l->record;
    struct monitor *m = r->monitor;
    list_remove(&r->listeners, l);
    m->nlisteners--;
    ev_io_del(m->ev, &l->io);
    close(l->io.fd);
    free(l);
    monitor_record_free_if_unused(r);
    monitor_stop_if_idle(m);
}

/* --- notices to clients --- */

static void monitor_send(struct monitor_client *g, uint8_t type, uint32_t stream, const uint8_t *data, int len)
{
    if (len > 0)
        chan_send(&g->chan, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

/* A client that gets no notice need not query: most programs have no denials and end without
 * waiting for the monitor. */
static void monitor_send_notice(struct monitor_record *r, bool refused)
{
    struct jail_denial_notice news = { .watched = r->sys ? JAIL_UNWATCHABLE : JAIL_WATCHED, .refused = refused };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(news.id, r->id, sizeof(news.id));
    int len = jail_denial_notice_encode(&news, out, NULL);
    for (struct monitor_client *g = r->monitor->clients; g; g = g->next)
        if (!g->is_jailer)
            monitor_send(g, FRAME_J_DENIAL_NOTICE, 0, out, len);
}

/* --- denied calls --- */

static void monitor_resume_listeners(void *arg)
{
    struct monitor_record *r = arg;

    for (struct monitor_listener *l = r->listeners; l; l = l->next)
        ev_io_set(r->monitor->ev, &l->io, EPOLLIN);
}

static void monitor_pause_listeners(struct monitor_record *r, uint64_t until)
{
    for (struct monitor_listener *l = r->listeners; l; l = l->next)
        ev_io_set(r->monitor->ev, &l->io, 0);
    ev_timer_set(r->monitor->ev, &r->resume_timer, until, monitor_resume_listeners, r);
}

static void monitor_count_denial(struct monitor_record *r, const struct seccomp_data *call)
{
    uint32_t args[JAIL_DENIAL_ARGS] = { 0 };
    unsigned significant = r->monitor->settings->significant_args
                               ? r->monitor->settings->significant_args((unsigned)call->nr)
                               : 0;

    for (unsigned i = 0; i < ARRAY_LEN(args); i++)
        if (significant >> i & 1)
            args[i] = (uint32_t)call->args[i];
    denial_tally_add(&r->tally, (uint32_t)call->nr, args);
    if (!r->denial_reported)
        monitor_send_notice(r, true);
    r->denial_reported = true;
}

/* A call that was not received is still pending in the next round of the loop. */
static int monitor_refuse_call(struct monitor_listener *l)
{
    struct seccomp_data call;
    uint64_t id;

    if (!seccomp_notif_receive(l->io.fd, &call, &id))
        return 0;
    monitor_count_denial(l->record, &call);
    return seccomp_notif_refuse(l->io.fd, id);
}

static void monitor_on_client_end(void *arg, const struct err *why);

static bool monitor_client_stalled(struct monitor_client *g, uint64_t now)
{
    if (now - g->checked_at > PATIENCE_NS) /* no call had to wait for this client meanwhile, so it was not checked */
        g->behind_since = now;
    g->checked_at = now;
    return g->monitor->listener.path && now - g->behind_since >= PATIENCE_NS;
}

/* A client is behind while a notice is still in our send queue. */
static bool monitor_client_is_behind(struct monitor *m)
{
    bool behind = false;

    for (struct monitor_client *g = m->clients, *next; g; g = next) {
        next = g->next;
        if (g->is_jailer || chan_idle(&g->chan)) {
            g->checked_at = 0;
        } else if (monitor_client_stalled(g, ev_now(m->ev))) {
            log_warn("disconnecting a client that does not read its denial notices");
            monitor_on_client_end(g, NULL);
        } else {
            behind = true;
        }
    }
    return behind;
}

/* Answers one call per round of the loop, so that every sandbox is served. */
static void monitor_on_call(void *arg, uint32_t events)
{
    struct monitor_listener *l = arg;
    struct monitor_record *r = l->record;
    uint64_t again;

    if (!(events & EPOLLIN)) { /* the last task under the filter has ended */
        monitor_listener_free(l);
        return;
    }
    if (!r->denial_reported && monitor_client_is_behind(r->monitor)) {
        monitor_pause_listeners(r, ev_now(r->monitor->ev) + CLIENT_RECHECK_NS);
    } else if (!denial_pace_take(&r->pace, ev_now(r->monitor->ev), &again)) {
        monitor_pause_listeners(r, again);
        /* A failed answer: closes the listener, so its calls return ENOSYS. */
    } else if (monitor_refuse_call(l) < 0) {
        r->sys = errno;
        monitor_send_notice(r, true);
        monitor_listener_free(l);
    }
}

static void monitor_reply_denials(struct monitor_client *g, uint32_t stream, struct monitor_record *r)
{
    static struct jail_denied d;
    static uint8_t out[FRAME_PAYLOAD_MAX];

    d = (struct jail_denied){ .watched = JAIL_UNWATCHED };
    if (r) {
        d.watched = r->sys ? JAIL_UNWATCHABLE : JAIL_WATCHED;
        d.sys = r->sys;
        r->denial_reported = false;
        d.overflow_count = r->tally.overflow_count;
        d.n = r->tally.n;
        memcpy(d.entries, r->tally.entries, sizeof(d.entries));
    }
    monitor_send(g, FRAME_J_DENIED, stream, out, jail_denied_encode(&d, out, NULL));
}

/* --- waiting queries --- */

static void monitor_query_free(struct monitor_query *q)
{
    struct monitor *m = q->client->monitor;
    list_remove(&m->queries, q);
    ev_timer_clear(m->ev, &q->deadline_timer);
    free(q);
}

static void monitor_query_on_deadline(void *arg)
{
    struct monitor_query *q = arg;

    monitor_reply_denials(q->client, q->stream, NULL);
    monitor_query_free(q);
}

static void monitor_query_wait(struct monitor_client *g, uint32_t stream, const char *id)
{
    struct monitor_query *q = mem_new(struct monitor_query);

    q->client = g;
    q->stream = stream;
    memcpy(q->id, id, sizeof(q->id));
    q->next = g->monitor->queries;
    g->monitor->queries = q;
    ev_timer_set(g->monitor->ev, &q->deadline_timer, ev_now(g->monitor->ev) + QUERY_WAIT_NS, monitor_query_on_deadline,
                 q);
}

static void monitor_answer_queries(struct monitor_record *r)
{
    for (struct monitor_query *q = r->monitor->queries, *next; q; q = next) {
        next = q->next;
        if (!str_eq(q->id, r->id))
            continue;
        monitor_reply_denials(q->client, q->stream, r);
        monitor_query_free(q);
    }
}

/* --- new sandboxes and clients --- */

static int monitor_client_add(struct monitor *m, int sock, bool jailer, struct err *err);
static void monitor_client_end(struct monitor_client *g);

static int monitor_listener_add(struct monitor_record *r, int fd, const struct monitor_client *from)
{
    struct monitor_listener *l = mem_new(struct monitor_listener);

    seccomp_notif_set_sync_wakeup(fd);
    l->record = r;
    l->client = from;
    if (ev_io_add(r->monitor->ev, &l->io, fd, r->resume_timer.slot ? 0 : EPOLLIN, monitor_on_call, l, NULL) < 0) {
        free(l);
        return -1;
    }
    l->next = r->listeners;
    r->listeners = l;
    r->monitor->nlisteners++;
    return 0;
}

/* Takes the descriptor if it returns 0. */
static int monitor_watch_sandbox(struct monitor *m, const struct jail_watch *w, int fd,
                                 const struct monitor_client *from)
{
    struct monitor_record *r = monitor_find_record(m, w->id);

    if (!r) {
        if (m->nrecords == RECORDS_MAX)
            return -1;
        r = mem_new(struct monitor_record);
        r->monitor = m;
        memcpy(r->id, w->id, sizeof(r->id));
        r->next = m->records;
        m->records = r;
        m->nrecords++;
    }
    int rc = fd < 0 ? -1 : monitor_listener_add(r, fd, from);
    if (rc < 0)
        r->sys = w->sys ? w->sys : EMFILE;
    /* A client that connected later gets its first notice of this sandbox, without a denial. */
    r->denial_reported = false;
    monitor_send_notice(r, false);
    monitor_answer_queries(r);
    monitor_record_free_if_unused(r);
    return rc;
}

/* A new client gets only denials from now on. The monitor of `cove run` has one client at a time,
 * and the new one replaces the previous one. A service may have other clients, whose counts must
 * continue. */
static void monitor_add_host(struct monitor *m, int fd)
{
    bool alone = true;

    for (struct monitor_client *g = m->clients, *next; g; g = next) {
        next = g->next;
        if (!m->listener.path)
            monitor_client_end(g);
        else
            alone = alone && g->is_jailer;
    }
    if (monitor_client_add(m, fd, false, NULL) < 0)
        return;
    for (struct monitor_record *r = m->records; r && alone; r = r->next) {
        r->tally = (struct denial_tally){ 0 };
        r->denial_reported = r->unwatched = false;
        monitor_send_notice(r, false);
    }
}

static void monitor_intake_end(struct monitor *m)
{
    ev_io_del(m->ev, &m->intake);
    close(m->intake.fd);
    monitor_stop_if_idle(m);
}

static void monitor_drain_intake(struct monitor *m)
{
    uint8_t packet[FRAME_HEADER + 128];

    while (m->intake.on) {
        int fd = -1;
        size_t nfds = 1;
        struct frame f;
        struct jail_watch w;
        ssize_t n = fd_recv(m->intake.fd, packet, sizeof(packet), &fd, &nfds, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno == ECONNRESET))
            monitor_intake_end(m);
        if (n == 0 || (n < 0 && errno != EPROTO)) /* EPROTO: one packet was discarded; the next may be valid */
            return;
        if (n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && f.type == FRAME_J_WATCH &&
            jail_watch_decode(&f, &w, NULL) == 0 && monitor_watch_sandbox(m, &w, fd, NULL) == 0)
            continue;
        if (n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && f.type == FRAME_J_NEW_CLIENT && fd >= 0)
            monitor_add_host(m, take_fd(&fd));
        fd_close(&fd);
    }
}

static void monitor_on_intake(void *arg, uint32_t events UNUSED)
{
    monitor_drain_intake(arg);
}

/* --- clients and jailers --- */

static void monitor_on_watch(struct monitor_client *g, const struct frame *f, int *fds, size_t nfds)
{
    struct jail_watch w;

    if (!g->is_jailer || nfds > 1 || jail_watch_decode(f, &w, NULL) < 0)
        return;
    if (monitor_watch_sandbox(g->monitor, &w, nfds ? fds[0] : -1, g) == 0 && nfds)
        fds[0] = -1;
}

static void monitor_on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct monitor_client *g = arg;
    struct monitor *m = g->monitor;
    struct jail_id q;

    if (f->type == FRAME_J_WATCH)
        monitor_on_watch(g, f, fds, nfds);
    else if (f->type == FRAME_J_NEW_CLIENT && g->is_jailer && nfds == 1)
        monitor_add_host(m, take_fd(&fds[0]));
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if ((f->type != FRAME_J_DENIALS && f->type != FRAME_J_UNWATCH) || jail_id_decode(f, &q, NULL) < 0)
        return;
    uint32_t stream = f->stream;
    uint8_t type = f->type;
    monitor_drain_intake(m);
    if (g->chan.dead) /* a new client replaced it */
        return;
    struct monitor_record *r = monitor_find_record(m, q.id);
    if (type == FRAME_J_DENIALS && !r && m->listener.path && m->nrecords < RECORDS_MAX) {
        monitor_query_wait(g, stream, q.id);
    } else if (type == FRAME_J_DENIALS) {
        monitor_reply_denials(g, stream, r);
    } else if (r) {
        r->unwatched = true;
        monitor_record_free_if_unused(r);
    }
}

/* A jailer that lost its connection but still lives sends its listeners again over the next
 * connection. Two listeners on one filter must not coexist: the second would wait for a call that
 * the first has received. */
static void monitor_drop_listeners(struct monitor *m, const struct monitor_client *g)
{
    for (struct monitor_record *r = m->records, *next; r; r = next) {
        next = r->next; /* freeing its last listener may free it */
        for (struct monitor_listener *l = r->listeners, *after; l; l = after) {
            after = l->next;
            if (l->client == g)
                monitor_listener_free(l);
        }
    }
}

static void monitor_client_end(struct monitor_client *g)
{
    struct monitor *m = g->monitor;
    for (struct monitor_query *q = m->queries, *next; q; q = next) {
        next = q->next;
        if (q->client == g)
            monitor_query_free(q);
    }
    list_remove(&m->clients, g);
    chan_done(&g->chan);
    if (g->is_jailer)
        monitor_drop_listeners(m, g);
    ev_defer(m->ev, &g->free_later, free, g);
}

static void monitor_on_client_end(void *arg, const struct err *why UNUSED)
{
    struct monitor_client *g = arg;
    struct monitor *m = g->monitor;

    monitor_client_end(g);
    for (struct monitor_record *r = m->records, *next; r; r = next) {
        next = r->next;
        monitor_record_free_if_unused(r);
    }
    monitor_stop_if_idle(m);
}

static int monitor_client_add(struct monitor *m, int sock, bool jailer, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = monitor_on_frame, .on_end = monitor_on_client_end };
    struct monitor_client *g = mem_new(struct monitor_client);

    g->monitor = m;
    g->is_jailer = jailer;
    if (chan_init(&g->chan, m->ev, sock, jailer, &ops, g, err) < 0) {
        free(g);
        return -1;
    }
    g->next = m->clients;
    m->clients = g;
    return 0;
}

static void monitor_on_connection(void *arg, int sock, const struct ucred *peer)
{
    struct monitor *m = arg;
    size_t n = 0;

    for (const struct monitor_client *g = m->clients; g; g = g->next)
        n++;
    if (n < MONITOR_CLIENTS_MAX && (peer->uid == 0 || peer->uid == m->own_uid))
        (void)monitor_client_add(m, sock, true, NULL);
    else
        close(sock);
}

/* --- process --- */

int monitor_serve(int intake, int host, const struct monitor_settings *settings)
{
    static struct monitor m;
    struct err err = { 0 };

    log_setup("cove-monitor", LOG_ERROR);
    m = (struct monitor){ .settings = settings };
    if (!seccomp_notif_supported() || ev_new(&m.ev, &err) < 0 || monitor_client_add(&m, host, false, &err) < 0 ||
        ev_io_add(m.ev, &m.intake, intake, EPOLLIN, monitor_on_intake, &m, &err) < 0)
        return 125;
    ev_run(m.ev);
    ev_free(m.ev);
    return 0;
}

int monitor_service(const struct monitor_settings *settings, pid_t parent)
{
    static struct monitor m;
    struct err err = { 0 };

    m = (struct monitor){ .settings = settings, .own_uid = geteuid() };
    signal(SIGPIPE, SIG_IGN);
    if (!seccomp_notif_supported())
        err_set(&err, ERR_SYS, "the seccomp notifications of this kernel are larger than cove supports");
    else if (ev_new(&m.ev, &err) == 0 &&
             unix_listener_open(&m.listener, m.ev, settings->socket, m.own_uid, monitor_on_connection, &m, &err) == 0 &&
             process_drop_privileges(settings->may_outlive_parent, parent) < 0)
        err_sys(&err, ERR_SYS, "cannot drop privileges");
    if (err.id) {
        log_error("%s", err.msg);
        return err_info(err.id)->exit;
    }
    ev_run(m.ev);
    return 0;
}
