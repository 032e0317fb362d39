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
 * 4. A question is answered after all listeners that were sent before it have been taken in.
 * 5. The host is told of a refusal before the call returns, unless it was told since it last asked. While it does not
 *    read, calls that it would have to be told of wait, as in a flood. */
#include "monitor/monitor.h"

#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "ev/ev.h"
#include "monitor/tally.h"
#include "wire/chan.h"
#include "wire/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

#define RECORDS_MAX 20000u
#define MEMORY_MAX (128 * MIB) /* what as many records need, and as much again */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED /* their bookkeeping is larger than any limit that would mean something */
#undef MEMORY_MAX
#define MEMORY_MAX RLIM_INFINITY
#endif

#define UID_NOBODY 65534u
#define HOST_READS_NS (5 * NS_PER_MS) /* until we look again whether a host that is behind has read */

struct listener { /* of one filter; a sandbox may have several */
    struct listener *next;
    struct record *record;
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
    struct ev_timer again; /* set while its tick is spent */
    struct listener *listeners;
};

struct monitor {
    struct ev *ev;
    const struct monitor_settings *settings;
    struct record *records;
    size_t nrecords, nlisteners;
    struct ev_io intake;
    struct chan host;
    bool host_gone;
    unsigned hosts; /* how many there were before this one */
    /* Larger than the kernel's structs are today; monitor_serve checks that they fit. */
    union {
        struct seccomp_notif s;
        uint8_t room[512];
    } call;
    union {
        struct seccomp_notif_resp s;
        uint8_t room[512];
    } answer;
};

/* --- records --- */

static void maybe_stop(struct monitor *m)
{
    if (m->host_gone && !m->intake.on && m->nlisteners == 0)
        ev_stop(m->ev);
}

static struct record *find_record(struct monitor *m, const char *id)
{
    struct record *r = m->records;

    while (r && !str_eq(r->id, id))
        r = r->next;
    return r;
}

static void maybe_free(struct record *r)
{
    struct monitor *m = r->m;
    struct record **p = &m->records;

    if (r->listeners || !(r->forgotten || m->host_gone))
        return;
    while (*p != r)
        p = &(*p)->next;
    *p = r->next;
    m->nrecords--;
    ev_timer_clear(m->ev, &r->again);
    free(r);
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

static void send_to_host(struct monitor *m, uint8_t type, uint32_t stream, const uint8_t *data, int len)
{
    if (len > 0 && !m->host_gone)
        chan_send(&m->host, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

/* A host that hears nothing need not ask: most programs are refused nothing, and end without waiting for us. */
static void tell_news(struct record *r, bool refused)
{
    struct jail_news news = { .watched = r->sys ? JAIL_UNWATCHABLE : JAIL_WATCHED, .refused = refused };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    memcpy(news.id, r->id, sizeof(news.id));
    send_to_host(r->m, FRAME_J_NEWS, 0, out, jail_news_encode(&news, out, NULL));
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

/* ENOENT, here and there: the task died meanwhile. A call that was not received is still there in the next turn; one
 * that was received must not be left without an answer. */
static int refuse_one(struct listener *l)
{
    struct monitor *m = l->record->m;

    memset(&m->call, 0, sizeof(m->call));
    if (ioctl(l->io.fd, SECCOMP_IOCTL_NOTIF_RECV, &m->call) < 0)
        return 0;
    count(l->record, &m->call.s.data);
    memset(&m->answer, 0, sizeof(m->answer));
    m->answer.s.id = m->call.s.id;
    m->answer.s.error = -EPERM;
    for (int tries = 0; tries < 3; tries++)
        if (ioctl(l->io.fd, SECCOMP_IOCTL_NOTIF_SEND, &m->answer) == 0 || errno == ENOENT)
            return 0;
    return -1;
}

/* What waits in our queue has not been told yet. */
static bool host_is_behind(const struct monitor *m)
{
    return !m->host_gone && !chan_idle(&m->host);
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

/* --- new sandboxes, new hosts --- */

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds);
static void on_end(void *arg, const struct err *why);

static int listener_add(struct record *r, int fd)
{
    struct listener *l = mem_new(struct listener);

    /* The caller and we take turns, so one processor is as good as two, and spares the wake-up across. Linux 6.6. */
    (void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    l->record = r;
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
static int watch(struct monitor *m, const struct jail_watch *w, int fd)
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
    int rc = fd < 0 ? -1 : listener_add(r, fd);
    if (rc < 0)
        r->sys = w->sys ? w->sys : EMFILE;
    tell_news(r, false);
    maybe_free(r);
    return rc;
}

/* Who asks now was not there before: what it hears is what happens from here on. */
static int new_host(struct monitor *m, int fd)
{
    static const struct chan_ops ops = { .on_frame = on_frame, .on_end = on_end };

    if (fd < 0)
        return -1;
    chan_done(&m->host);
    m->hosts++;
    m->host_gone = chan_init(&m->host, m->ev, fd, false, &ops, m, NULL) < 0;
    for (struct record *r = m->records; r; r = r->next) {
        r->tally = (struct tally){ 0 };
        r->told = r->forgotten = false;
        tell_news(r, false);
    }
    return 0;
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
            jail_watch_decode(&f, &w, NULL) == 0 && watch(m, &w, fd) == 0)
            continue;
        if (n > 0 && frame_parse(packet, (size_t)n, &f, NULL) == 0 && f.type == FRAME_J_HOST && new_host(m, fd) == 0)
            continue;
        fd_close(&fd);
    }
}

static void on_intake(void *arg, uint32_t events UNUSED)
{
    drain_intake(arg);
}

/* --- the host --- */

static void reply_denied(struct monitor *m, uint32_t stream, struct record *r)
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
    send_to_host(m, FRAME_J_DENIED, stream, out, jail_denied_encode(&d, out, NULL));
}

static void on_frame(void *arg, const struct frame *f, int *fds UNUSED, size_t nfds UNUSED)
{
    struct monitor *m = arg;
    struct jail_id q;

    unsigned hosts = m->hosts;

    if (jail_id_decode(f, &q, NULL) < 0)
        return;
    drain_intake(m);
    if (m->hosts != hosts) /* who asked is gone, and f with it */
        return;
    struct record *r = find_record(m, q.id);
    if (f->type == FRAME_J_DENIALS) {
        reply_denied(m, f->stream, r);
    } else if (f->type == FRAME_J_FORGET && r) {
        r->forgotten = true;
        maybe_free(r);
    }
}

static void on_end(void *arg, const struct err *why UNUSED)
{
    struct monitor *m = arg;

    chan_done(&m->host);
    m->host_gone = true;
    for (struct record *r = m->records, *next; r; r = next) {
        next = r->next;
        maybe_free(r);
    }
    maybe_stop(m);
}

/* --- the process --- */

static bool structs_fit(void)
{
    struct seccomp_notif_sizes sizes = { 0 };
    const struct monitor *m = NULL;

    return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0 && sizes.seccomp_notif <= sizeof(m->call) &&
           sizes.seccomp_notif_resp <= sizeof(m->answer);
}

int monitor_serve(int intake, int host, const struct monitor_settings *settings)
{
    static const struct chan_ops host_ops = { .on_frame = on_frame, .on_end = on_end };
    static struct monitor m;
    struct err err = { 0 };

    log_setup("cove-monitor", LOG_ERROR);
    m = (struct monitor){ .settings = settings };
    if (!structs_fit() || ev_new(&m.ev, &err) < 0 || chan_init(&m.host, m.ev, host, false, &host_ops, &m, &err) < 0 ||
        ev_io_add(m.ev, &m.intake, intake, EPOLLIN, on_intake, &m, &err) < 0)
        return 125;
    ev_run(m.ev);
    ev_free(m.ev);
    return 0;
}

static int set_limit(unsigned what, rlim_t most)
{
    struct rlimit l;

    if (getrlimit(what, &l) < 0)
        return -1;
    l.rlim_max = l.rlim_max < most ? l.rlim_max : most;
    l.rlim_cur = l.rlim_max;
    return setrlimit(what, &l);
}

/* A process that was root becomes nobody in particular. Where the ids of cove do not exist (inside a container), the
 * traditional nobody does. Leaving uid 0 takes every capability along. */
static int drop_identity(void)
{
    static const uid_t ids[] = { MONITOR_UID, UID_NOBODY };

    if (geteuid() != 0)
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        if (setgroups(0, NULL) == 0 && setresgid(ids[i], ids[i], ids[i]) == 0 && setresuid(ids[i], ids[i], ids[i]) == 0)
            return 0;
    return -1;
}

static int give_up(bool outlive, pid_t parent)
{
    if (drop_identity() < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return -1;
    if (set_limit(RLIMIT_DATA, MEMORY_MAX) < 0 || set_limit(RLIMIT_CORE, 0) < 0 || set_limit(RLIMIT_FSIZE, 0) < 0 ||
        set_limit(RLIMIT_NPROC, 0) < 0 || set_limit(RLIMIT_NOFILE, RLIM_INFINITY) < 0)
        return -1;
    if (outlive)
        return 0;
    /* After the change of identity, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        return -1;
    return 0;
}

static NORETURN void child_main(int intake, int host, const struct monitor_settings *settings, pid_t parent)
{
    int keep[] = { open("/dev/null", O_RDWR | O_CLOEXEC), intake, host };

    setpgid(0, 0); /* out of reach of Ctrl-C; a session of its own would cost as much as all the rest of the start */
    if (chdir("/") < 0 || fd_keep_only(keep, ARRAY_LEN(keep)) < 0)
        _exit(125);
    for (int i = 0; i <= STDERR_FILENO; i++)
        if (dup2(keep[0], i) < 0)
            _exit(125);
    close(keep[0]);
    if (give_up(settings->outlive, parent) < 0)
        _exit(125);
    _exit(monitor_serve(keep[1], keep[2], settings));
}

int monitor_fork(int intake, const struct monitor_settings *settings, int *ret_host, pid_t *ret_pid, struct err *err)
{
    pid_t parent = getpid();

    if (child_fork("cove-monitor", ret_host, ret_pid, err) < 0)
        return -1;
    if (*ret_pid == 0)
        child_main(intake, *ret_host, settings, parent);
    return 0;
}
