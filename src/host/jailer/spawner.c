/* Jailer and spawner are one program and trust each other, so their messages are plain structs. A
 * spawner that could not build its root stays and answers every order with that error, so that the
 * client that requested a sandbox gets it. */
#include "host/jailer/spawner.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "host/bwrap/bwrap.h"
#include "host/rootless/rootless.h"
#include "host/isolate/sys.h"
#include "host/isolate/zygote_start.h"
#include "core/wire/early_error.h"
#include "core/wire/jail.h"
#include "core/wire/seccomp_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum spawner_order_kind { SPAWNER_ORDER_NETNS, SPAWNER_ORDER_TEMPLATE, SPAWNER_ORDER_SANDBOX, SPAWNER_ORDER_ZYGOTE };
/* To the spawner. Descriptors: a network namespace; the uid locks; or control socket, cgroup
 * entries and mounts. */
struct spawner_order {
    enum spawner_order_kind kind;
    struct spawner_template template; /* SPAWNER_ORDER_TEMPLATE */
    uint64_t token;                   /* SPAWNER_ORDER_SANDBOX */
    struct native_spec spec;
    char language[16], preload[JAIL_PRELOAD_MAX]; /* SPAWNER_ORDER_ZYGOTE */
};

enum spawner_event_kind { SPAWNER_EVENT_SPAWNED, SPAWNER_EVENT_FAILED, SPAWNER_EVENT_ENDED };
struct spawner_event { /* from the spawner; SPAWNER_EVENT_SPAWNED carries a pidfd and the listeners */
    enum spawner_event_kind kind;
    uint64_t token;
    int status;
    struct err err;
};

struct spawner {
    struct ev *ev;
    struct ev_io io;
    const struct spawner_ops *ops;
    void *arg;
    struct spawner_template template;
    pid_t pid;
    size_t pending_orders; /* sandbox orders without an answer */
};

#define SPAWNED_FDS (1 + EGRESS_NET_SOCKETS)
#define ORDERS_MAX 16 /* the default socket buffer holds a few dozen */

/* --- in the spawner --- */

/* The differences between the drivers, in the process that raises the walls. */
static int spawner_no_preparation(struct native_template *t UNUSED, struct err *err UNUSED)
{
    return 0;
}

static int spawner_same_status(int status)
{
    return status;
}

static const struct spawner_driver {
    int (*set_template)(struct native_template *t, struct err *err); /* after native_set_template */
    int (*spawn)(struct native_template *t, const struct native_spec *spec, struct native_process *ret,
                 struct err *err);
    int (*wait_status)(int status); /* wait status of PID 1 from that of the process that was spawned */
} spawner_drivers[DRIVER_COUNT] = {
    [DRIVER_NATIVE] = { spawner_no_preparation, native_spawn, spawner_same_status },
    [DRIVER_BWRAP] = { bwrap_set_template, bwrap_spawn, bwrap_wait_status },
};

struct spawner_child {
    pid_t pid;
    uint64_t token; /* the jailer's */
    int messages;   /* as in native_process; -1: none */
    int control;    /* with messages: a duplicate, to report a failure */
};

struct spawner_children {
    struct spawner_child *entries;
    size_t n, cap;
};

static void spawner_children_add(struct spawner_children *b, struct spawner_child child)
{
    if (b->n == b->cap) {
        b->cap = b->cap ? b->cap * 2 : 64;
        b->entries = mem_resize(b->entries, b->cap, sizeof(*b->entries));
    }
    b->entries[b->n++] = child;
}

static bool spawner_children_remove(struct spawner_children *b, pid_t pid, struct spawner_child *ret)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->entries[i].pid == pid) {
            *ret = b->entries[i];
            b->entries[i] = b->entries[--b->n];
            return true;
        }
    return false;
}

static void spawner_send_event(int sock, const struct spawner_event *n, const int *fds, size_t nfds)
{
    /* A full socket means that the jailer is overloaded; waiting here slows only this template. If
     * the event cannot be sent at all, exit: the jailer would wait for the event forever, but it
     * notices the exit. */
    if (fd_send(sock, n, sizeof(*n), fds, nfds, 0) < 0)
        _exit(125);
}

/* Writes the received descriptors into the spec. */
static bool spawner_place_fds(struct native_spec *spec, int *fds, size_t nfds)
{
    size_t want = 1 + spec->cgroup.nprocs + (spec->cgroup.v2_dir >= 0 ? 1u : 0u) + spec->nmounts;
    size_t i = 0;

    if (spec->cgroup.nprocs > CGROUP_TREES || spec->nmounts > NATIVE_MOUNTS || nfds != want)
        return false;
    spec->control = fds[i++];
    for (size_t j = 0; j < spec->cgroup.nprocs; j++)
        spec->cgroup.procs[j] = fds[i++];
    if (spec->cgroup.v2_dir >= 0)
        spec->cgroup.v2_dir = fds[i++];
    for (size_t j = 0; j < spec->nmounts; j++)
        spec->mounts[j].fd = fds[i++];
    return true;
}

static void spawner_make_sandbox(int sock, struct native_template *t, const struct spawner_driver *driver,
                                 const struct err *broken, struct spawner_children *children, struct spawner_order *o,
                                 int *fds, size_t nfds)
{
    struct spawner_event note = { .kind = SPAWNER_EVENT_FAILED, .token = o->token };
    struct native_process p = { .pidfd = -1, .messages = -1 };

    o->spec.report_failure = early_error_send;
    o->spec.send_listener = seccomp_listener_send;
    if (broken->id != ERR_NONE)
        note.err = *broken;
    else if (!spawner_place_fds(&o->spec, fds, nfds))
        err_set(&note.err, ERR_BUG, "the spawner received %zu descriptors", nfds);
    else if (driver->spawn(t, &o->spec, &p, &note.err) == 0) {
        note.kind = SPAWNER_EVENT_SPAWNED;
        spawner_children_add(children, (struct spawner_child){ .pid = p.pid,
                                                               .token = o->token,
                                                               .messages = p.messages,
                                                               .control = p.messages >= 0 ? take_fd(&fds[0]) : -1 });
    }
    int sent[SPAWNED_FDS] = { p.pidfd };
    memcpy(sent + 1, p.listeners.fds, p.listeners.n * sizeof(*sent));
    spawner_send_event(sock, &note, sent, p.pidfd >= 0 ? 1 + p.listeners.n : 0);
    fd_close(&p.pidfd);
    egress_net_close(&p.listeners);
    for (size_t i = 0; i < nfds; i++)
        fd_close(&fds[i]);
}

/* The received descriptor stays open on purpose: its uid locks last as long as this process. */
static void spawner_apply_template(struct native_template *t, struct err *broken, const struct spawner_order *o)
{
    if (broken->id == ERR_NONE && native_set_template(t, &o->template.filter, o->template.owner, o->template.joinable,
                                                      o->template.egress, broken) == 0)
        (void)spawner_drivers[o->template.driver].set_template(t, broken);
}

/* On failure, a network namespace is made with the next sandbox, and its requester gets the
 * error. */
static void spawner_enter_netns(struct native_template *t, const struct err *broken, int *fds, size_t nfds)
{
    struct err later;

    if (nfds == 1 && broken->id == ERR_NONE)
        (void)native_enter_netns(t, fds[0], &later);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
}

/* If the zygote fails to start or dies, its socket closes, which the jailer notices. */
static void spawner_start_zygote(const struct native_template *t, const struct err *broken,
                                 const struct spawner_order *o, int *fds, size_t nfds)
{
    if (nfds == 1 && broken->id == ERR_NONE)
        (void)zygote_start(t->owner, o->language, o->preload, fds[0], NULL);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
}

/* The runtime closes its end of the pipe when it starts, so the pipe holds only messages from
 * before PID 1 existed. */
static void spawner_report_messages(struct spawner_child *child)
{
    struct err err;

    if (child->messages >= 0 && bwrap_read_failure(child->messages, &err))
        early_error_send(child->control, &err);
    fd_close(&child->messages);
    fd_close(&child->control);
}

static void spawner_reap(int sock, const struct spawner_driver *driver, struct spawner_children *children)
{
    struct spawner_event note = { .kind = SPAWNER_EVENT_ENDED };
    struct spawner_child child;
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (spawner_children_remove(children, pid, &child)) {
            spawner_report_messages(&child);
            note.token = child.token;
            note.status = driver->wait_status(status);
            spawner_send_event(sock, &note, NULL, 0);
        }
}

/* While no order is pending, prepares the next network namespace, unless the jailer has promised
 * one: before the first sandbox, and again from the second on. A single sandbox may be all that
 * `cove run` needs; after a second one, more are likely. */
static int spawner_wait_for_order(struct pollfd p[2], struct native_template *t, const struct err *broken,
                                  bool promised, size_t made)
{
    struct err later; /* ignored: the next sandbox order reports it */
    int n = poll(p, 2, 0);

    if (n == 0 && !promised && made != 1 && broken->id == ERR_NONE)
        (void)native_prepare_netns(t, &later);
    if (n == 0)
        n = poll(p, 2, -1);
    return n < 0 && errno != EINTR ? -1 : 0;
}

static NORETURN void spawner_main(int sock, bool rootless, const struct template_root_files *files, int monitor_fd,
                                  const char *scratch)
{
    static struct native_template t;
    static struct spawner_order order;
    struct err broken = { 0 };
    struct spawner_children children = { 0 };
    const struct spawner_driver *driver = &spawner_drivers[DRIVER_NATIVE]; /* until the template is known */
    bool promised = !rootless; /* the jailer will send a network namespace */
    size_t made = 0;
    sigset_t chld;

    prctl(PR_SET_NAME, "cove-spawner");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigfillset(&chld);
    sigprocmask(SIG_SETMASK, &chld, NULL);
    sigemptyset(&chld);
    sigaddset(&chld, SIGCHLD);
    int kids = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
    if (kids < 0)
        _exit(125);
    t.monitor = monitor_fd;
    if (sys_reset_priorities() < 0)
        _exit(125);
    /* The copy of standard error is closed too: every file that a sandbox inherits must come from
     * its own root. */
    if (native_prepare(&t, rootless, scratch, files, &broken) == 0) {
        int nul = open("/dev/null", O_RDWR | O_CLOEXEC);

        for (int i = 0; i <= 2; i++)
            if (dup2(nul, i) < 0)
                err_sys(&broken, ERR_SYS, "/dev/null");
        close(nul);
    }
    for (;;) {
        struct pollfd p[] = { { .fd = sock, .events = POLLIN }, { .fd = kids, .events = POLLIN } };
        int fds[FD_PASS_MAX];
        size_t nfds = FD_PASS_MAX;

        if (spawner_wait_for_order(p, &t, &broken, promised, made) < 0)
            _exit(125);
        if (p[1].revents) {
            struct signalfd_siginfo si[16];

            while (read(kids, si, sizeof(si)) > 0)
                ;
            spawner_reap(sock, driver, &children);
        }
        if (!p[0].revents)
            continue;
        ssize_t n = fd_recv(sock, &order, sizeof(order), fds, &nfds, 0);
        if (n != (ssize_t)sizeof(order))
            _exit(n == 0 ? 0 : 125); /* the jailer has exited */
        if (order.kind == SPAWNER_ORDER_NETNS) {
            promised = false;
            spawner_enter_netns(&t, &broken, fds, nfds);
            continue;
        }
        if (order.kind == SPAWNER_ORDER_ZYGOTE) {
            spawner_start_zygote(&t, &broken, &order, fds, nfds);
            continue;
        }
        if (order.kind == SPAWNER_ORDER_TEMPLATE) {
            driver = &spawner_drivers[order.template.driver];
            spawner_apply_template(&t, &broken, &order);
            continue;
        }
        spawner_make_sandbox(sock, &t, driver, &broken, &children, &order, fds, nfds);
        made++;
    }
}

/* Keeps only the descriptors that the spawner needs and closes all others of the jailer. */
static NORETURN void spawner_child_main(int sock, bool rootless, const struct template_root_files *files,
                                        int monitor_fd, const char *scratch)
{
    int keep[] = { sock, files->runtime, files->kernels, monitor_fd };

    if (fd_keep_only(keep, monitor_fd > 0 ? 4 : 3) < 0)
        _exit(125);
    struct template_root_files ours = { .runtime = keep[1], .kernels = keep[2] };
    spawner_main(keep[0], rootless, &ours, monitor_fd > 0 ? keep[3] : -1, scratch);
}

/* --- in the jailer --- */

static void spawner_on_event(void *arg, uint32_t events UNUSED)
{
    struct spawner *s = arg;

    for (int turn = 0; turn < 64 && s->io.on; turn++) {
        struct spawner_event n;
        struct egress_net listeners = { .n = 0 };
        int fds[SPAWNED_FDS] = { -1 };
        size_t nfds = SPAWNED_FDS;
        ssize_t got = fd_recv(s->io.fd, &n, sizeof(n), fds, &nfds, MSG_DONTWAIT);

        if (got < 0 && errno == EAGAIN)
            return;
        if (got != (ssize_t)sizeof(n)) {
            ev_io_del(s->ev, &s->io);
            s->ops->on_lost(s->arg, s);
            return;
        }
        if (n.kind == SPAWNER_EVENT_ENDED) {
            s->ops->on_ended(s->arg, n.token, n.status);
            continue;
        }
        s->pending_orders--;
        if (nfds > 1)
            listeners.n = nfds - 1;
        memcpy(listeners.fds, fds + 1, listeners.n * sizeof(*fds));
        s->ops->on_spawned(s->arg, n.token, 0, nfds ? fds[0] : -1, &listeners,
                           n.kind == SPAWNER_EVENT_FAILED ? &n.err : NULL);
    }
}

/* Static, because memory that was touched before costs no page faults. Each order is written
 * completely. */
static struct spawner_order spawner_next_order;

static int spawner_send_order(struct spawner *s, const int *fds, size_t n, struct err *err)
{
    if (fd_send(s->io.fd, &spawner_next_order, sizeof(spawner_next_order), fds, n, MSG_DONTWAIT) < 0)
        return err_sys(err, errno == EAGAIN ? ERR_BUSY : ERR_LOST, "spawner of template %s", s->template.name);
    return 0;
}

/* Runs on this processor while the spawner builds its root on another. The loss of the spawner is
 * noticed by spawner_on_event. */
static void spawner_send_netns(struct spawner *s)
{
    auto_fd int network = native_new_netns();

    spawner_next_order = (struct spawner_order){ .kind = SPAWNER_ORDER_NETNS };
    (void)spawner_send_order(s, &network, network >= 0 ? 1 : 0, NULL);
}

int spawner_new(struct ev *ev, bool rootless, const char *scratch, const struct template_root_files *files,
                int monitor_fd, const struct spawner_ops *ops, void *arg, struct spawner **ret, struct err *err)
{
    int sv[2];
    struct sys_clone args = { .flags = CLONE_NEWPID | CLONE_NEWNS, .cgroup = -1 };

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    auto_fd int near = sv[0], far = sv[1];
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        spawner_child_main(far, rootless, files, monitor_fd, scratch);
    if (pid < 0)
        return errno == EPERM ? rootless_explain_refusal(!rootless, EPERM, err)
                              : err_sys(err, ERR_SYS, "cannot start the spawner");
    struct spawner *s = mem_new(struct spawner);
    s->ev = ev;
    s->ops = ops;
    s->arg = arg;
    s->pid = pid;
    if (ev_io_add(ev, &s->io, near, EPOLLIN, spawner_on_event, s, err) < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        free(s);
        return -1;
    }
    (void)take_fd(&near);
    if (!rootless)
        spawner_send_netns(s);
    *ret = s;
    return 0;
}

void spawner_free(struct spawner *s)
{
    if (!s)
        return;
    ev_io_del(s->ev, &s->io);
    close(s->io.fd);
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0); /* returns when its whole pid namespace has ended */
    free(s);
}

pid_t spawner_pid(const struct spawner *s)
{
    return s->pid;
}

const struct spawner_template *spawner_get_template(const struct spawner *s)
{
    return &s->template;
}

bool spawner_is_full(const struct spawner *s)
{
    return s->pending_orders >= ORDERS_MAX;
}

int spawner_set_template(struct spawner *s, const struct spawner_template *kind, int uids_fd, struct err *err)
{
    s->template = *kind;
    spawner_next_order = (struct spawner_order){ .kind = SPAWNER_ORDER_TEMPLATE, .template = *kind };
    return spawner_send_order(s, &uids_fd, uids_fd >= 0 ? 1 : 0, err);
}

int spawner_order_zygote(struct spawner *s, const char *language, const char *preload, int sock, struct err *err)
{
    spawner_next_order = (struct spawner_order){ .kind = SPAWNER_ORDER_ZYGOTE };
    (void)snprintf(spawner_next_order.language, sizeof(spawner_next_order.language), "%s", language);
    (void)snprintf(spawner_next_order.preload, sizeof(spawner_next_order.preload), "%s", preload);
    return spawner_send_order(s, &sock, 1, err);
}

int spawner_order_sandbox(struct spawner *s, uint64_t token, const struct native_spec *spec, struct err *err)
{
    int fds[FD_PASS_MAX];
    size_t n = 0;

    spawner_next_order = (struct spawner_order){ .kind = SPAWNER_ORDER_SANDBOX, .token = token, .spec = *spec };
    fds[n++] = spec->control;
    for (size_t i = 0; i < spec->cgroup.nprocs; i++)
        fds[n++] = spec->cgroup.procs[i];
    if (spec->cgroup.v2_dir >= 0)
        fds[n++] = spec->cgroup.v2_dir;
    for (size_t i = 0; i < spec->nmounts; i++)
        fds[n++] = spec->mounts[i].fd;
    if (spawner_send_order(s, fds, n, err) < 0)
        return -1;
    s->pending_orders++;
    return 0;
}
