/* One event loop serves clients, spawners and timers. The legal requests are one table: the
 * request, the states of the sandbox in which it is legal, and its function. Nothing here blocks: a
 * sandbox is made, killed, frozen and removed in steps that the loop runs when they are due.
 *
 * Invariants
 * 1. A sandbox owns its uid, cgroups and descriptors until jailed_sandbox_remove; nothing else
 *    frees them.
 * 2. The uid is released only after the cgroups are removed, and they are removed only when empty.
 * 3. Every request is answered exactly once on its stream, or its connection is closed.
 * 4. When a client disconnects, its sandboxes are destroyed, unless it asked to keep them. When the
 *    last client and the last kept sandbox are gone, the jailer exits. A service instead exits on a
 *    signal, after it has destroyed its sandboxes. */
#include "host/jailer/jailer_internal.h"
#include "host/jailer/jailed_zygote.h"

#include "core/base/child.h"
#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/rootless/delegate.h"
#include "host/rootless/rootless.h"
#include "host/isolate/sys.h"
#include "host/jailer/sweep.h"
#include "core/wire/rt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>

#define SWEEP_AFTER_NS (20 * NS_PER_MS)
#define SWEEPS_MAX 100
/* A spawner that was killed with its jailer holds its uids until it is dead, which takes long on
 * a loaded host. So leaves with locked uids are tried again, for half a minute: longer than a
 * process dies, and not as long as the sandboxes of a living neighbour stay. */
#define HELD_SWEEPS_MAX 14
#define HELD_SWEEP_MIN_NS SWEEP_AFTER_NS
#define HELD_SWEEP_MAX_NS (5 * NS_PER_S)

static int jailer_do_kill(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream, struct err *err)
{
    if (sandbox->state == JAILED_SANDBOX_DEAD) {
        reply_ok(c, stream);
        return 0;
    }
    if (sandbox->kill_stream)
        return err_set(err, ERR_EXISTS, "sandbox %s is being killed already", sandbox->id);
    sandbox->kill_stream = stream;
    jailed_sandbox_kill(sandbox);
    return 0;
}

static int jailer_do_freeze(struct jailer_client *c UNUSED, struct jailed_sandbox *sandbox, uint32_t stream,
                            struct err *err)
{
    return jailed_sandbox_freeze(sandbox, stream, err);
}

static int jailer_do_thaw(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream, struct err *err)
{
    return jailed_sandbox_thaw(sandbox, err) < 0 ? -1 : (reply_ok(c, stream), 0);
}

static int jailer_do_stats(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream,
                           struct err *err UNUSED)
{
    struct cgroup_stats s;

    cgroup_read_stats(&c->jailer->cgroups, sandbox->id, false, &s);
    reply_stats(c, stream, &s);
    return 0;
}

static int jailer_do_destroy(struct jailer_client *c UNUSED, struct jailed_sandbox *sandbox, uint32_t stream,
                             struct err *err)
{
    if (sandbox->destroy_requested)
        return err_set(err, ERR_EXISTS, "sandbox %s is being destroyed already", sandbox->id);
    sandbox->destroy_stream = stream;
    jailed_sandbox_destroy(sandbox);
    return 0;
}

static int jailer_do_adopt(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream, struct err *err)
{
    if (sandbox->owner && sandbox->owner != c)
        return err_set(err, ERR_BUSY, "sandbox %s is in use by another process", sandbox->id);
    if (!sandbox->kept)
        return err_set(err, ERR_INVALID, "sandbox %s is not kept, so another client cannot adopt it", sandbox->id);
    sandbox->owner = c;
    reply_created(sandbox, stream);
    return 0;
}

static int jailer_do_keep(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream, struct err *err)
{
    if (c->nlent_fds != 1 || !fd_is_socket(c->lent_fds[0]))
        return err_set(err, ERR_INVALID, "keeping sandbox %s requires its control socket as the only descriptor",
                       sandbox->id);
    if (jailed_sandbox_keep(sandbox, c->lent_fds, err) < 0)
        return -1;
    reply_ok(c, stream);
    return 0;
}

/* For a client that did not start the monitor: one of a service, or one that adopts a kept sandbox
 * after its first client disconnected. */
static int jailer_do_monitor(struct jailer_client *c, const struct frame *f, struct err *err)
{
    int sv[2];

    if (f->len != 0)
        return err_set(err, ERR_PROTOCOL, "J_MONITOR has no payload");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "cannot make a socket for the monitor");
    auto_fd int near = sv[0], far = sv[1];
    if (listener_relay_add_client(c->jailer, far, err) < 0)
        return -1;
    chan_send_fds(&c->chan, &(struct frame){ .type = FRAME_J_OK, .stream = f->stream }, &near, 1);
    return 0;
}

static int jailer_compare_ids(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A client before a restart and a client after it count as the same client if their uids are
 * equal. */
static bool jailer_client_may_see(const struct jailer_client *c, const struct jailed_sandbox *sandbox)
{
    return c->uid == 0 || c->uid == sandbox->host_uid;
}

#define IN(s) (1u << (s))
#define ALIVE (IN(JAILED_SANDBOX_LIVE) | IN(JAILED_SANDBOX_FROZEN))

static int jailer_do_list(struct jailer_client *c, const struct frame *f, struct err *err)
{
    static struct jail_list m;
    static uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_id after = { "" };
    const char **ids = NULL;
    size_t n = 0;

    if (f->len && jail_id_decode(f, &after, err) < 0)
        return -1;
    ids = mem_resize(NULL, c->jailer->nsandboxes + 1, sizeof(*ids));
    for (struct jailed_sandbox *sandbox = c->jailer->sandboxes; sandbox; sandbox = sandbox->next)
        if ((IN(sandbox->state) & ALIVE) && jailer_client_may_see(c, sandbox) && strcmp(sandbox->id, after.id) > 0)
            ids[n++] = sandbox->id;
    qsort(ids, n, sizeof(*ids), jailer_compare_ids);
    m.n = (uint32_t)min_u64(n, JAIL_LIST_MAX);
    for (size_t i = 0; i < m.n; i++)
        memcpy(m.ids[i], ids[i], ID_SIZE);
    free(ids);
    int len = jail_list_encode(&m, out, err);
    if (len < 0)
        return -1;
    reply_frame(c, f->stream, FRAME_DONE, out, len);
    return 0;
}

static const struct {
    uint8_t type;
    unsigned legal; /* set of sandbox states */
    int (*fn)(struct jailer_client *c, struct jailed_sandbox *sandbox, uint32_t stream, struct err *err);
} jailer_requests[] = {
    { FRAME_J_KILL, ALIVE | IN(JAILED_SANDBOX_ENDING) | IN(JAILED_SANDBOX_DEAD), jailer_do_kill },
    { FRAME_J_FREEZE, IN(JAILED_SANDBOX_LIVE), jailer_do_freeze },
    { FRAME_J_THAW, ALIVE, jailer_do_thaw },
    { FRAME_J_STATS, ALIVE | IN(JAILED_SANDBOX_ENDING) | IN(JAILED_SANDBOX_DEAD), jailer_do_stats },
    { FRAME_J_DESTROY, IN(JAILED_SANDBOX_MAKING) | ALIVE | IN(JAILED_SANDBOX_ENDING) | IN(JAILED_SANDBOX_DEAD),
      jailer_do_destroy },
    { FRAME_J_ADOPT, ALIVE, jailer_do_adopt },
    { FRAME_J_KEEP, ALIVE, jailer_do_keep },
    { FRAME_J_JOIN, IN(JAILED_SANDBOX_LIVE), jailed_zygote_request_join },
};

static struct jailed_sandbox *jailer_find_visible(struct jailer_client *c, const char *id, bool adopt, struct err *err)
{
    struct jailed_sandbox *sandbox = jailed_sandbox_find(c->jailer, id);

    if (sandbox && jailer_client_may_see(c, sandbox) && (!sandbox->owner || sandbox->owner == c || adopt))
        return sandbox;
    err_set(err, ERR_MISSING, "sandbox %s does not exist", id);
    return NULL;
}

/* Limits can only be raised where a cgroup enforces them. The process limit cannot be raised: an
 * rlimit of PID 1 also enforces it, and an rlimit cannot be raised later. */
static int jailer_change_limits(struct jailed_sandbox *sandbox, const struct jail_set_limits *m, struct err *err)
{
    struct limits lim = sandbox->limits;
    struct limit_enforcements held = { 0 };

    lim.v[LIMIT_MEMORY] = m->memory;
    lim.v[LIMIT_SWAP] = m->swap;
    lim.v[LIMIT_CPU] = m->cpu;
    lim.v[LIMIT_PIDS] = m->pids;
    if (!sandbox->jailer->cgroups.ntrees || m->pids > sandbox->limits.v[LIMIT_PIDS])
        return err_set(err, ERR_INVALID, "sandbox %s: these limits cannot be changed after creation", sandbox->id);
    if (limits_check(&lim, err) < 0 || cgroup_set_limits(&sandbox->jailer->cgroups, sandbox->id, &lim, &held, err) < 0)
        return -1;
    sandbox->limits = lim;
    return 0;
}

static int jailer_do_set_limits(struct jailer_client *c, const struct frame *f, struct err *err)
{
    struct jail_set_limits m;

    if (jail_set_limits_decode(f, &m, err) < 0)
        return -1;
    struct jailed_sandbox *sandbox = jailer_find_visible(c, m.id, false, err);
    if (!sandbox)
        return -1;
    if (!(ALIVE & IN(sandbox->state)))
        return err_set(err, ERR_EXISTS, "sandbox %s has ended", m.id);
    if (m.lifetime_ms == 0 || m.lifetime_ms > limit_info(LIMIT_LIFETIME)->max)
        return err_set(err, ERR_INVALID, "lifetime of %" PRIu64 " ms: out of range", m.lifetime_ms);
    if (m.memory && jailer_change_limits(sandbox, &m, err) < 0)
        return -1;
    jailed_sandbox_set_lifetime(sandbox, m.lifetime_ms);
    reply_ok(c, f->stream);
    return 0;
}

static int jailer_on_sandbox_request(struct jailer_client *c, const struct frame *f, struct err *err)
{
    struct jail_id m;

    if (jail_id_decode(f, &m, err) < 0)
        return -1;
    struct jailed_sandbox *sandbox = jailer_find_visible(c, m.id, f->type == FRAME_J_ADOPT, err);
    if (!sandbox)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(jailer_requests); i++) {
        if (jailer_requests[i].type != f->type)
            continue;
        if (!(jailer_requests[i].legal & IN(sandbox->state)))
            return err_set(err, ERR_EXISTS, "%s is not possible in the current state of the sandbox",
                           frame_name(f->type));
        return jailer_requests[i].fn(c, sandbox, f->stream, err);
    }
    return err_set(err, ERR_PROTOCOL, "%s is not a request to the jailer", frame_name(f->type));
}

static void jailer_on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct jailer_client *c = arg;
    struct err err = { 0 };
    int bad;

    c->lent_fds = fds;
    c->nlent_fds = nfds;
    if (f->type == FRAME_J_TEMPLATE)
        bad = create_template(c, f, &err);
    else if (f->type == FRAME_J_CREATE)
        bad = create_jailed_sandbox(c, f, fds, nfds, &err);
    else if (f->type == FRAME_J_LIST)
        bad = jailer_do_list(c, f, &err);
    else if (f->type == FRAME_J_MONITOR)
        bad = jailer_do_monitor(c, f, &err);
    else if (f->type == FRAME_J_ZYGOTE)
        bad = jailed_zygote_start(c, f, &err);
    else if (f->type == FRAME_J_SET_LIMITS)
        bad = jailer_do_set_limits(c, f, &err);
    else
        bad = jailer_on_sandbox_request(c, f, &err);
    if (bad)
        reply_error(c, f->stream, &err);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
}

/* --- clients --- */

static void jailer_on_client_end(void *arg, const struct err *why UNUSED)
{
    struct jailer_client *c = arg;
    struct jailer *j = c->jailer;
    list_remove(&j->clients, c);
    jailed_zygote_forget_client(j, c);
    for (struct jailed_sandbox *sandbox = j->sandboxes, *next; sandbox; sandbox = next) {
        next = sandbox->next;
        if (sandbox->owner != c)
            continue;
        sandbox->owner = NULL;
        sandbox->kill_stream = sandbox->freeze_stream = sandbox->destroy_stream = sandbox->create_stream = 0;
        if (!sandbox->kept || sandbox->state == JAILED_SANDBOX_DEAD)
            jailed_sandbox_destroy(sandbox);
    }
    chan_done(&c->chan);
    ev_defer(j->ev, &c->free_later, free, c);
    jailer_maybe_stop(j);
}

static const struct chan_ops jailer_client_ops = { .on_frame = jailer_on_frame, .on_end = jailer_on_client_end };

static int jailer_client_add(struct jailer *j, int sock, const struct ucred *peer, struct err *err)
{
    struct jailer_client *c = mem_new(struct jailer_client);

    c->jailer = j;
    c->uid = peer->uid;
    c->gid = peer->gid;
    if (chan_init(&c->chan, j->ev, sock, true, &jailer_client_ops, c, err) < 0) {
        free(c);
        return -1;
    }
    c->next = j->clients;
    j->clients = c;
    return 0;
}

static void jailer_on_connection(void *arg, int sock, const struct ucred *peer)
{
    struct jailer *j = arg;
    size_t n = 0;

    for (const struct jailer_client *c = j->clients; c; c = c->next)
        n++;
    if (n < JAILER_CLIENTS_MAX && (peer->uid == geteuid() || (j->listener.path && peer->uid == j->settings->host_uid)))
        (void)jailer_client_add(j, sock, peer, NULL);
    else
        close(sock);
}

/* --- process --- */

/* If descriptors ran out in the middle of a message, the whole connection would be lost. The jailer
 * therefore raises RLIMIT_NOFILE to its maximum and accepts only as many sandboxes as fit. */
static size_t jailer_fds_for_sandboxes(void)
{
    struct rlimit l;

    if (sys_prlimit(RLIMIT_NOFILE, NULL, &l) < 0)
        return 0;
    l.rlim_cur = l.rlim_max;
    if (sys_prlimit(RLIMIT_NOFILE, &l, NULL) < 0)
        return 0;
    return (size_t)min_u64(jailer_sandbox_capacity(l.rlim_cur), JAILED_SANDBOXES_MAX) * FDS_PER_SANDBOX;
}

uint64_t jailer_sandbox_capacity(uint64_t nofile)
{
    /* A low limit means few sandboxes, which need fewer of the other descriptors. */
    return (nofile - min_u64(OTHER_FDS, nofile / 2)) / FDS_PER_SANDBOX;
}

/* Leftovers of dead jailers are not urgent: they are removed after the first sandbox is under way,
 * or when the jailer exits, whichever comes first. */
static void jailer_on_sweep(void *arg)
{
    struct jailer *j = arg;

    struct sweep_count n = sweep_once(&j->cgroups, &j->uids);
    uint64_t wait_ns = 0;

    j->only_held = n.busy == 0;
    if (n.busy > 0 && ++j->sweep_count < SWEEPS_MAX)
        wait_ns = SWEEP_AFTER_NS;
    else if (n.held > 0 && ++j->held_sweep_count < HELD_SWEEPS_MAX)
        wait_ns = backoff_next(&j->sweep_backoff);
    if (wait_ns)
        ev_timer_set(j->ev, &j->sweep_timer, ev_now(j->ev) + wait_ns, jailer_on_sweep, j);
}

/* The spare spawner builds its root on another processor during this setup. */
static int jailer_start(struct jailer *j, const struct jailer_settings *settings, struct err *err)
{
    uid_t caller = geteuid();

    j->settings = settings;
    j->files.runtime = settings->runtime_fd;
    j->files.kernels = settings->kernels_fd > 0 ? settings->kernels_fd : settings->runtime_fd;
    j->fds_max = jailer_fds_for_sandboxes();
    j->rootless = caller != 0;
    j->sweep_backoff = (struct backoff){ .min_ns = HELD_SWEEP_MIN_NS, .max_ns = HELD_SWEEP_MAX_NS };
    if (j->rootless && rootless_enter(err) < 0)
        return -1;
    if (sweep_open_state(settings->state_dir, &j->state_dir, err) < 0 || ev_new(&j->ev, err) < 0 ||
        listener_relay_start(j, err) < 0 || egress_relay_start(j, err) < 0 ||
        spawner_new(j->ev, j->rootless, settings->state_dir, &j->files, j->listener_relay.sender_socket,
                    &create_spawner_ops, j, &j->spare_spawner, err) < 0 ||
        (!j->rootless && sweep_open_host(&j->cgroups, &j->uids, err) < 0))
        return -1;
    if (j->rootless) /* without a cgroup the limits are partial, and every J_CREATED reports that */
        (void)delegate_find_cgroup(&j->cgroups, caller, spawner_pid(j->spare_spawner), NULL);
    if (!j->cgroups.found_empty)
        ev_timer_set(j->ev, &j->sweep_timer, ev_now(j->ev) + SWEEP_AFTER_NS, jailer_on_sweep, j);
    return 0;
}

static void jailer_end(struct jailer *j)
{
    if (j->sweep_timer.slot && !j->only_held)
        (void)sweep_until_idle(&j->cgroups, &j->uids);
    ev_timer_clear(j->ev, &j->sweep_timer);
    for (size_t i = 0; i < j->nspawners; i++) {
        jailed_zygote_forget_spawner(j, j->spawners[i]);
        spawner_free(j->spawners[i]);
    }
    spawner_free(j->spare_spawner);
    kept_listeners_free(j->kept_listeners);
    listener_relay_end(j);
    helper_link_end(&j->egress);
    while (j->clients) {
        struct jailer_client *c = j->clients;

        j->clients = c->next;
        chan_done(&c->chan);
        free(c);
    }
    ev_free(j->ev);
    cgroup_close_hierarchies(&j->cgroups);
    uids_done(&j->uids);
    fd_close(&j->state_dir);
}

/* Answers every request with the reason why the jailer could not start, until the client
 * disconnects. */
static int jailer_refuse_all(int sock, const struct err *why)
{
    uint8_t packet[FRAME_MAX];
    struct frame f;

    for (;;) {
        int fds[FD_PASS_MAX];
        size_t nfds = FD_PASS_MAX;
        ssize_t n = fd_recv(sock, packet, sizeof(packet), fds, &nfds, 0);

        if (n <= 0 || frame_parse(packet, (size_t)n, &f, NULL) < 0)
            return 125;
        for (size_t i = 0; i < nfds; i++)
            close(fds[i]);
        struct rt_error e = { .id = (uint32_t)why->id, .sys = why->sys };
        (void)snprintf(e.msg, sizeof(e.msg), "%s", why->msg);
        f = (struct frame){ .type = FRAME_J_ERROR, .stream = f.stream };
        int len = rt_error_encode(&e, packet + FRAME_HEADER, NULL);
        if (len < 0)
            return 125;
        f.len = (uint32_t)len;
        frame_header(packet, &f);
        if (fd_send(sock, packet, FRAME_HEADER + f.len, NULL, 0, 0) < 0)
            return 125;
    }
}

int jailer_serve(int sock, const struct jailer_settings *settings)
{
    static struct jailer j = { .state_dir = -1, .uids = { .fd = -1 } };
    struct err err = { 0 };
    struct ucred peer;
    socklen_t len = sizeof(peer);

    log_setup("cove-jailer", settings->keep_log ? LOG_INFO : LOG_ERROR);
    if (jailer_start(&j, settings, &err) < 0 ||
        kept_listeners_new(j.ev, settings->state_dir, jailer_on_connection, &j, &j.kept_listeners, &err) < 0)
        return jailer_refuse_all(sock, &err);
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 || jailer_client_add(&j, sock, &peer, &err) < 0)
        return 125;
    ev_run(j.ev);
    jailer_end(&j);
    return 0;
}

/* --- service --- */

static void jailer_on_signal(void *arg, int signo)
{
    struct jailer *j = arg;

    if (j->stopping)
        return;
    log_info("%s: ending %zu sandboxes", signo == SIGTERM ? "SIGTERM" : "SIGINT", j->nsandboxes);
    j->stopping = true;
    unix_listener_close(&j->listener);
    for (struct jailed_sandbox *sandbox = j->sandboxes, *next; sandbox; sandbox = next) {
        next = sandbox->next;
        if (!sandbox->destroy_requested)
            jailed_sandbox_destroy(sandbox);
    }
    jailer_maybe_stop(j);
}

int jailer_service(const struct jailer_settings *settings)
{
    static struct jailer j = { .state_dir = -1, .uids = { .fd = -1 } };
    struct err err = { 0 };
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    if (jailer_start(&j, settings, &err) < 0 || ev_signals(j.ev, &set, jailer_on_signal, &j, &err) < 0 ||
        unix_listener_open(&j.listener, j.ev, settings->socket, j.rootless ? geteuid() : settings->host_uid,
                           jailer_on_connection, &j, &err) < 0) {
        log_error("%s", err.msg);
        return err_info(err.id)->exit;
    }
    log_info("capacity: %zu sandboxes; cgroups: %s", j.fds_max / FDS_PER_SANDBOX, j.cgroups.kind);
    ev_run(j.ev);
    jailer_end(&j);
    return 0;
}
static NORETURN void jailer_child(int sock, const struct jailer_settings *settings)
{
    /* Do not hold the client's standard streams open: a reader of its output waits for the last
     * writer. */
    int nul = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i <= (settings->keep_log ? 1 : 2); i++)
        if (nul < 0 || dup2(nul, i) < 0)
            _exit(125);
    /* Close all other inherited descriptors too: a kept sandbox would hold the client's files,
     * locks and directory for its whole life. */
    struct jailer_settings own = *settings;
    int keep[5] = { sock, own.runtime_fd, own.kernels_fd > 0 ? own.kernels_fd : own.runtime_fd };
    size_t n = 3, monitor = 0, egress = 0;
    if (own.monitor_fd > 0)
        keep[monitor = n++] = own.monitor_fd;
    if (own.egress_fd > 0)
        keep[egress = n++] = own.egress_fd;
    if (fd_keep_only(keep, n) < 0 || chdir("/") < 0)
        _exit(125);
    own.runtime_fd = keep[1];
    own.kernels_fd = keep[2];
    own.monitor_fd = monitor ? keep[monitor] : 0;
    own.egress_fd = egress ? keep[egress] : 0;
    _exit(jailer_serve(keep[0], &own));
}

int jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err)
{
    if (child_fork("cove-jailer", true, ret_sock, ret_pid, err) < 0)
        return -1;
    if (*ret_pid == 0)
        jailer_child(*ret_sock, settings);
    return 0;
}
