/* One loop over all listeners. A refused call is received, counted, answered, in this order and without anything in
 * between, so a caller that got its EPERM is in the tally already: a question that is put after a program ended is
 * answered with everything the program was refused.
 *
 * Floods are bounded by back-pressure. The caller sleeps until it is answered; a sandbox that has spent its tick is
 * simply not looked at before the next one, and neither it nor we use any time meanwhile. What is not received yet can
 * still be interrupted, frozen and killed.
 *
 * Invariants
 * 1. The only answer is -EPERM, with no flags.
 * 2. What was received is answered before the loop goes on; nothing here waits for anybody.
 * 3. A record lives while it has a listener, or while a host may still ask for it.
 * 4. A question is answered after all listeners that were sent before it have been taken in. In a service they come
 *    through the jailer, so a question about a sandbox that is not known waits for a moment.
 * 5. Hosts are told of a refusal before the call returns, unless they were told since one of them last asked. While one
 *    does not read, calls that it would have to be told of wait, as in a flood; in a service, where that would be the
 *    calls of all hosts, one that has not read for PATIENCE_NS is sent away. It may come again. */
#include "monitor/monitor.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "monitor/notif.h"
#include "monitor/process.h"
#include "monitor/tally.h"
#include "wire/chan.h"
#include "wire/door.h"
#include "wire/jail.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>

#define RECORDS_MAX 20000u
#define GUESTS_MAX 32u
#define HOST_READS_NS (5 * NS_PER_MS) /* until we look again whether a host that is behind has read */
#define PATIENCE_NS (2 * NS_PER_S)
#define LINGER_NS (600 * NS_PER_S) /* a service: for a host that was restarted to ask for what has ended */
#define NEWCOMER_NS (2 * NS_PER_S) /* a service: for a listener that is still on its way */

struct guest { /* a host; or a jailer that hands on its listeners */
    struct guest *next;
    struct monitor *m;
    struct chan chan;
    bool jailer;                 /* sends listeners and hosts, and wants no news */
    uint64_t behind_at, seen_at; /* since when it has not read what it was told; when that was last looked at */
    struct ev_defer free_later;
};

struct question { /* about a sandbox that we have not heard of yet */
    struct question *next;
    struct guest *from;
    uint32_t stream;
    char id[ID_SIZE];
    struct ev_timer late;
};

struct listener { /* of one filter; a sandbox may have several */
    struct listener *next;
    struct record *record;
    const struct guest *from; /* who sends it again when the connection was lost; NULL: the intake */
    struct ev_io io;
};

struct record { /* one sandbox */
    struct record *next;
    struct monitor *m;
    char id[ID_SIZE];
    int32_t sys; /* why there is no listener, or 0 */
    bool forgotten;
    bool told; /* the host knows that there is something to ask for */
    struct tally tally;
    struct pace pace;
    struct ev_timer again;  /* set while its tick is spent */
    struct ev_timer linger; /* a service: set when it has ended */
    struct listener *listeners;
};

struct monitor {
    struct ev *ev;
    const struct monitor_settings *settings;
    struct record *records;
    size_t nrecords, nlisteners;
    struct ev_io intake;
    struct guest *guests;
    struct question *questions;
    struct door door; /* a service */
    uid_t self;       /* before it gave that up */
};

/* --- records --- */

static void maybe_stop(struct monitor *m)
{
    if (!m->door.path && !m->guests && !m->intake.on && m->nlisteners == 0)
        ev_stop(m->ev);
}

static struct record *find_record(struct monitor *m, const char *id)
{
    struct record *r = m->records;

    while (r && !str_eq(r->id, id))
        r = r->next;
    return r;
}

static void record_free(void *arg)
{
    struct record *r = arg;
    struct monitor *m = r->m;
    struct record **p = &m->records;

    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    m->nrecords--;
    ev_timer_clear(m->ev, &r->again);
    ev_timer_clear(m->ev, &r->linger);
    free(r);
}

static void maybe_free(struct record *r)
{
    struct monitor *m = r->m;

    if (r->listeners)
        ev_timer_clear(m->ev, &r->linger);
    else if (r->forgotten || (!m->door.path && !m->guests))
        record_free(r);
    else if (m->door.path && !r->linger.slot)
        ev_timer_set(m->ev, &r->linger, ev_now(m->ev) + LINGER_NS, record_free, r);
}

static void listener_end(struct listener *l)
{
    struct record *r = l->record;
    struct monitor *m = r->m;
    struct listener **p = &r->listeners;

    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    m->nlisteners--;
    ev_io_del(m->ev, &l->io);
    close(l->io.fd);
    free(l);
    maybe_free(r);
    maybe_stop(m);
}

/* --- news for the host --- */

static void send_to(struct guest *g, uint8_t type, uint32_t stream, const uint8_t *data, int len)
{
    if (len > 0)
        chan_send(&g->chan, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

/* A host that hears nothing need not ask: most programs are refused nothing, and end without waiting for us. */
static void tell_news(struct record *r, bool refused)
{
    struct jail_news news = { .watched = r->sys ? JAIL_UNWATCHABLE : JAIL_WATCHED, .refused = refused };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(news.id, r->id, sizeof(news.id));
    int len = jail_news_encode(&news, out, NULL);
    for (struct guest *g = r->m->guests; g; g = g->next)
        if (!g->jailer)
            send_to(g, FRAME_J_NEWS, 0, out, len);
}

/* --- refused calls --- */

static void look_again(void *arg)
{
    struct record *r = arg;

    for (struct listener *l = r->listeners; l; l = l->next)
        ev_io_set(r->m->ev, &l->io, EPOLLIN);
}

static void look_away(struct record *r, uint64_t until)
{
    for (struct listener *l = r->listeners; l; l = l->next)
        ev_io_set(r->m->ev, &l->io, 0);
    ev_timer_set(r->m->ev, &r->again, until, look_again, r);
}

static void count(struct record *r, const struct seccomp_data *call)
{
    uint32_t args[JAIL_DENIAL_ARGS] = { 0 };
    unsigned told = r->m->settings->args ? r->m->settings->args((unsigned)call->nr) : 0;

    for (unsigned i = 0; i < ARRAY_LEN(args); i++)
        if (told >> i & 1)
            args[i] = (uint32_t)call->args[i];
    tally_add(&r->tally, (uint32_t)call->nr, args);
    if (!r->told)
        tell_news(r, true);
    r->told = true;
}

/* A call that was not received is still there in the next turn. */
static int refuse_one(struct listener *l)
{
    struct seccomp_data call;
    uint64_t id;

    if (!notif_take(l->io.fd, &call, &id))
        return 0;
    count(l->record, &call);
    return notif_refuse(l->io.fd, id);
}

static void on_end(void *arg, const struct err *why);

static bool out_of_patience(struct guest *g, uint64_t now)
{
    if (now - g->seen_at > PATIENCE_NS) /* nobody had to wait for it meanwhile, so nobody looked */
        g->behind_at = now;
    g->seen_at = now;
    return g->m->door.path && now - g->behind_at >= PATIENCE_NS;
}

/* What waits in our queue has not been told yet. */
static bool host_is_behind(struct monitor *m)
{
    bool behind = false;

    for (struct guest *g = m->guests, *next; g; g = next) {
        next = g->next;
        if (g->jailer || chan_idle(&g->chan)) {
            g->seen_at = 0;
        } else if (out_of_patience(g, ev_now(m->ev))) {
            log_warn("a host does not read what it is told of refused calls, and is sent away");
            on_end(g, NULL);
        } else {
            behind = true;
        }
    }
    return behind;
}

/* One call a turn, however many wait, so that every sandbox has its turn. */
static void on_call(void *arg, uint32_t events)
{
    struct listener *l = arg;
    struct record *r = l->record;
    uint64_t again;

    if (!(events & EPOLLIN)) { /* the last task under the filter is gone */
        listener_end(l);
        return;
    }
    if (!r->told && host_is_behind(r->m)) {
        look_away(r, ev_now(r->m->ev) + HOST_READS_NS);
    } else if (!pace_take(&r->pace, ev_now(r->m->ev), &again)) {
        look_away(r, again);
    } else if (refuse_one(l) < 0) { /* a listener that does not listen: closed, its calls answer ENOSYS */
        r->sys = errno;
        tell_news(r, true);
        listener_end(l);
    }
}

static void reply_denied(struct guest *g, uint32_t stream, struct record *r)
{
    static struct jail_denied d;
    static uint8_t out[FRAME_PAYLOAD_MAX];

    d = (struct jail_denied){ .watched = JAIL_UNWATCHED };
    if (r) {
        d.watched = r->sys ? JAIL_UNWATCHABLE : JAIL_WATCHED;
        d.sys = r->sys;
        r->told = false;
        d.more = r->tally.more;
        d.n = r->tally.n;
        memcpy(d.each, r->tally.each, sizeof(d.each));
    }
    send_to(g, FRAME_J_DENIED, stream, out, jail_denied_encode(&d, out, NULL));
}

/* --- questions that wait --- */

static void question_free(struct question *q)
{
    struct monitor *m = q->from->m;
    struct question **p = &m->questions;

    while (*p != q)
        p = &(*p)->next;
    *p = q->next;
    ev_timer_clear(m->ev, &q->late);
    free(q);
}

static void on_late(void *arg)
{
    struct question *q = arg;

    reply_denied(q->from, q->stream, NULL);
    question_free(q);
}

static void question_wait(struct guest *g, uint32_t stream, const char *id)
{
    struct question *q = mem_new(struct question);

    q->from = g;
    q->stream = stream;
    memcpy(q->id, id, sizeof(q->id));
    q->next = g->m->questions;
    g->m->questions = q;
    ev_timer_set(g->m->ev, &q->late, ev_now(g->m->ev) + NEWCOMER_NS, on_late, q);
}

static void answer_waiting(struct record *r)
{
    for (struct question *q = r->m->questions, *next; q; q = next) {
        next = q->next;
        if (!str_eq(q->id, r->id))
            continue;
        reply_denied(q->from, q->stream, r);
        question_free(q);
    }
}

/* --- new sandboxes, new hosts --- */

static int guest_add(struct monitor *m, int sock, bool jailer, struct err *err);
static void guest_end(struct guest *g);

static int listener_add(struct record *r, int fd, const struct guest *from)
{
    struct listener *l = mem_new(struct listener);

    notif_take_turns(fd);
    l->record = r;
    l->from = from;
    if (ev_io_add(r->m->ev, &l->io, fd, r->again.slot ? 0 : EPOLLIN, on_call, l, NULL) < 0) {
        free(l);
        return -1;
    }
    l->next = r->listeners;
    r->listeners = l;
    r->m->nlisteners++;
    return 0;
}

/* Takes the descriptor when it returns 0. */
static int watch(struct monitor *m, const struct jail_watch *w, int fd, const struct guest *from)
{
    struct record *r = find_record(m, w->id);

    if (!r) {
        if (m->nrecords == RECORDS_MAX)
            return -1;
        r = mem_new(struct record);
        r->m = m;
        memcpy(r->id, w->id, sizeof(r->id));
        r->next = m->records;
        m->records = r;
        m->nrecords++;
    }
    int rc = fd < 0 ? -1 : listener_add(r, fd, from);
    if (rc < 0)
        r->sys = w->sys ? w->sys : EMFILE;
    r->told = false; /* a host that came later hears of this sandbox for the first time, and of no refusal */
    tell_news(r, false);
    answer_waiting(r);
    maybe_free(r);
    return rc;
}

/* Who asks now was not there before: what it hears is what happens from here on. Beside `cove run` there is one host at
 * a time, and the new one takes the place of the one before. A service may have others, whose counts must go on. */
static void new_host(struct monitor *m, int fd)
{
    bool alone = true;

    for (struct guest *g = m->guests, *next; g; g = next) {
        next = g->next;
        if (!m->door.path)
            guest_end(g);
        else
            alone = alone && g->jailer;
    }
    if (guest_add(m, fd, false, NULL) < 0)
        return;
    for (struct record *r = m->records; r && alone; r = r->next) {
        r->tally = (struct tally){ 0 };
        r->told = r->forgotten = false;
        tell_news(r, false);
    }
}

static void intake_end(struct monitor *m)
{
    ev_io_del(m->ev, &m->intake);
    close(m->intake.fd);
    maybe_stop(m);
}

static void drain_intake(struct monitor *m)
{
    uint8_t packet[FRAME_HEADER + 128];

    while (m->intake.on) {
        int fd = -1;
        size_t nfds = 1;
        struct frame f;
        struct jail_watch w;
        ssize_t n = fd_recv(m->intake.fd, packet, sizeof(packet), &fd, &nfds, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno == ECONNRESET))
            intake_end(m);
        if (n == 0 || (n < 0 && errno != EPROTO)) /* that is a packet which was thrown away, and the next may be good */
            return;
        if (n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && f.type == FRAME_J_WATCH &&
            jail_watch_decode(&f, &w, NULL) == 0 && watch(m, &w, fd, NULL) == 0)
            continue;
        if (n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && f.type == FRAME_J_HOST && fd >= 0)
            new_host(m, take_fd(&fd));
        fd_close(&fd);
    }
}

static void on_intake(void *arg, uint32_t events UNUSED)
{
    drain_intake(arg);
}

/* --- hosts and jailers --- */

static void on_watch(struct guest *g, const struct frame *f, int *fds, size_t nfds)
{
    struct jail_watch w;

    if (!g->jailer || nfds > 1 || jail_watch_decode(f, &w, NULL) < 0)
        return;
    if (watch(g->m, &w, nfds ? fds[0] : -1, g) == 0 && nfds)
        fds[0] = -1;
}

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct guest *g = arg;
    struct monitor *m = g->m;
    struct jail_id q;

    if (f->type == FRAME_J_WATCH)
        on_watch(g, f, fds, nfds);
    else if (f->type == FRAME_J_HOST && g->jailer && nfds == 1)
        new_host(m, take_fd(&fds[0]));
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
    if ((f->type != FRAME_J_DENIALS && f->type != FRAME_J_FORGET) || jail_id_decode(f, &q, NULL) < 0)
        return;
    uint32_t stream = f->stream;
    uint8_t type = f->type;
    drain_intake(m);
    if (g->chan.dead) /* a new host took its place */
        return;
    struct record *r = find_record(m, q.id);
    if (type == FRAME_J_DENIALS && !r && m->door.path && m->nrecords < RECORDS_MAX) {
        question_wait(g, stream, q.id);
    } else if (type == FRAME_J_DENIALS) {
        reply_denied(g, stream, r);
    } else if (r) {
        r->forgotten = true;
        maybe_free(r);
    }
}

/* A jailer whose connection was lost, and not its life, sends its listeners again over the next; the same filter must
 * not be listened to twice, since the second would wait for a call that the first has taken. */
static void drop_listeners(struct monitor *m, const struct guest *g)
{
    for (struct record *r = m->records, *next; r; r = next) {
        next = r->next; /* ending its last listener may free it */
        for (struct listener *l = r->listeners, *after; l; l = after) {
            after = l->next;
            if (l->from == g)
                listener_end(l);
        }
    }
}

static void guest_end(struct guest *g)
{
    struct monitor *m = g->m;
    struct guest **p = &m->guests;

    for (struct question *q = m->questions, *next; q; q = next) {
        next = q->next;
        if (q->from == g)
            question_free(q);
    }
    while (*p != g)
        p = &(*p)->next;
    *p = g->next;
    chan_done(&g->chan);
    if (g->jailer)
        drop_listeners(m, g);
    ev_defer(m->ev, &g->free_later, free, g);
}

static void on_end(void *arg, const struct err *why UNUSED)
{
    struct guest *g = arg;
    struct monitor *m = g->m;

    guest_end(g);
    for (struct record *r = m->records, *next; r; r = next) {
        next = r->next;
        maybe_free(r);
    }
    maybe_stop(m);
}

static int guest_add(struct monitor *m, int sock, bool jailer, struct err *err)
{
    static const struct chan_ops ops = { .on_frame = on_frame, .on_end = on_end };
    struct guest *g = mem_new(struct guest);

    g->m = m;
    g->jailer = jailer;
    if (chan_init(&g->chan, m->ev, sock, jailer, &ops, g, err) < 0) {
        free(g);
        return -1;
    }
    g->next = m->guests;
    m->guests = g;
    return 0;
}

static void on_guest(void *arg, int sock, const struct ucred *who)
{
    struct monitor *m = arg;
    size_t n = 0;

    for (const struct guest *g = m->guests; g; g = g->next)
        n++;
    if (n < GUESTS_MAX && (who->uid == 0 || who->uid == m->self))
        (void)guest_add(m, sock, true, NULL);
    else
        close(sock);
}

/* --- the process --- */

int monitor_serve(int intake, int host, const struct monitor_settings *settings)
{
    static struct monitor m;
    struct err err = { 0 };

    log_setup("cove-monitor", LOG_ERROR);
    m = (struct monitor){ .settings = settings };
    if (!notif_known() || ev_new(&m.ev, &err) < 0 || guest_add(&m, host, false, &err) < 0 ||
        ev_io_add(m.ev, &m.intake, intake, EPOLLIN, on_intake, &m, &err) < 0)
        return 125;
    ev_run(m.ev);
    ev_free(m.ev);
    return 0;
}

int monitor_service(const struct monitor_settings *settings, pid_t parent)
{
    static struct monitor m;
    struct err err = { 0 };

    m = (struct monitor){ .settings = settings, .self = geteuid() };
    signal(SIGPIPE, SIG_IGN);
    if (!notif_known())
        err_set(&err, ERR_SYS, "this kernel tells of refused calls in a form that cove does not know");
    else if (ev_new(&m.ev, &err) == 0 && door_open(&m.door, m.ev, settings->socket, m.self, on_guest, &m, &err) == 0 &&
             process_give_up(settings->outlive, parent) < 0)
        err_sys(&err, ERR_SYS, "give up privileges");
    if (err.id) {
        log_error("%s", err.msg);
        return err_info(err.id)->exit;
    }
    ev_run(m.ev);
    return 0;
}
