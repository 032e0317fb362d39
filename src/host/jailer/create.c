/* Creation of a sandbox from a client's J_CREATE. The jailer checks every field again, regardless
 * of the sender; then it allocates a uid, makes cgroups, sockets and mounts, and sends an order to
 * the template's spawner. A failure undoes these steps in reverse order.
 *
 * A spawner accepts a few orders at a time. Further requests are queued here unchanged, before
 * anything is made for them: a thousand queued requests cost a thousand small buffers and only
 * their lent descriptors. */
#include "host/jailer/jailer_internal.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/isolate/io_limits.h"
#include "host/isolate/sys.h"
#include "policy/network.h"
#include "host/jailer/mounts.h"
#include "host/jailer/jailed_zygote.h"

#include <fcntl.h>
#include <signal.h>

static struct jailed_sandbox *create_find_by_token(struct jailer *j, uint64_t token)
{
    for (struct jailed_sandbox *c = j->sandboxes; c; c = c->next)
        if (c->token == token)
            return c;
    return NULL;
}

static void create_start_all_queued(struct jailer *j, const struct spawner *s);

static void create_on_spawned(void *arg, uint64_t token, pid_t pid, int pidfd, struct egress_net *listeners,
                              const struct err *err)
{
    struct jailer *j = arg;
    struct jailed_sandbox *sandbox = create_find_by_token(j, token);

    if (!sandbox) { /* cannot happen while sandboxes wait for this answer; if it does, do not leak the process */
        if (pidfd >= 0)
            (void)sys_pidfd_send_signal(pidfd, SIGKILL);
        fd_close(&pidfd);
        egress_net_close(listeners);
        return;
    }
    create_start_all_queued(j, sandbox->spawner);
    fd_close(&sandbox->runtime_socket);
    if (err) {
        reply_error(sandbox->owner, sandbox->create_stream, err);
        sandbox->create_stream = 0;
        sandbox->state = JAILED_SANDBOX_DEAD;
        jailed_sandbox_destroy(sandbox);
        return;
    }
    sandbox->pidfd = pidfd;
    sandbox->created.pid = (uint32_t)pid;
    egress_relay_add(sandbox,
                     listeners); /* before J_CREATED, so that the proxy knows the sandbox before its client does */
    sandbox->state = JAILED_SANDBOX_LIVE;
    if (sandbox->destroy_requested || !sandbox->owner) {
        struct err gone;

        err_set(&gone, ERR_LOST, "sandbox %s was destroyed before it was ready", sandbox->id);
        reply_error(sandbox->owner, sandbox->create_stream, &gone);
        sandbox->create_stream = 0;
        jailed_sandbox_destroy(sandbox);
        return;
    }
    reply_created(sandbox, sandbox->create_stream);
    sandbox->create_stream = 0;
    jailed_sandbox_watch_memory(sandbox);
}

static void create_on_sandbox_ended(void *arg, uint64_t token, int status)
{
    struct jailed_sandbox *sandbox = create_find_by_token(arg, token);

    if (sandbox)
        jailed_sandbox_on_death(sandbox, status);
}

/* The list of spawners is ordered by last use. */
static void create_unlist_spawner(struct jailer *j, const struct spawner *s)
{
    size_t n = 0;

    for (size_t i = 0; i < j->nspawners; i++)
        if (j->spawners[i] != s)
            j->spawners[n++] = j->spawners[i];
    j->nspawners = n;
}

static void create_mark_spawner_used(struct jailer *j, struct spawner *s)
{
    create_unlist_spawner(j, s);
    j->spawners[j->nspawners++] = s;
}

static void create_drop_spawner(struct jailer *j, struct spawner *s)
{
    create_unlist_spawner(j, s);
    jailed_zygote_forget_spawner(j, s);
    if (j->spare_spawner == s)
        j->spare_spawner = NULL;
    uids_release(&j->uids, spawner_get_template(s)->owner);
    spawner_free(s);
}

static bool create_spawner_has_sandboxes(const struct jailer *j, const struct spawner *s)
{
    const struct jailed_sandbox *c = j->sandboxes;

    while (c && c->spawner != s)
        c = c->next;
    return c != NULL;
}

/* Makes a free slot for another template: drops the least recently used spawner without
 * sandboxes. */
static void create_drop_idle_spawner(struct jailer *j)
{
    for (size_t i = 0; i < j->nspawners; i++)
        if (!create_spawner_has_sandboxes(j, j->spawners[i])) {
            create_drop_spawner(j, j->spawners[i]);
            return;
        }
}

static void create_on_spawner_lost(void *arg, struct spawner *s)
{
    struct jailer *j = arg;

    for (struct jailed_sandbox *c = j->sandboxes, *next; c; c = next) {
        next = c->next;
        if (c->spawner != s || c->state == JAILED_SANDBOX_DEAD)
            continue;
        if (c->create_stream) {
            struct err err;

            err_set(&err, ERR_LOST, "the spawner of this template died");
            reply_error(c->owner, c->create_stream, &err);
            c->create_stream = 0;
            c->destroy_requested = true;
        }
        /* The kernel kills all sandboxes with the spawner, but a v1 freezer also holds dying
         * processes, and spawner_free waits for them. */
        cgroup_kill(&j->cgroups, c->id);
        jailed_sandbox_on_death(c, SIGKILL);
    }
    create_drop_spawner(j, s);
}

const struct spawner_ops create_spawner_ops = { create_on_spawned, create_on_sandbox_ended, create_on_spawner_lost };

static bool create_name_valid(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '-' || *s == '.'))
            return false;
    return true;
}

struct spawner *create_find_template(const struct jailer *j, const char *name)
{
    for (size_t i = 0; i < j->nspawners; i++)
        if (str_eq(spawner_get_template(j->spawners[i])->name, name))
            return j->spawners[i];
    return NULL;
}

/* System calls that no policy may deny are checked when policies are read; a filter that denies one
 * of them harms only its own sandbox. */
static int create_read_template(const struct jail_template *m, struct spawner_template *ret, struct err *err)
{
    _Static_assert(JAIL_DENY_WORDS == FILTER_DENY_WORDS, "the whole set is sent");
    if (!create_name_valid(m->name) || !str_copy(ret->name, sizeof(ret->name), m->name))
        return err_set(err, ERR_INVALID, "template '%s' has an invalid name; use a-z, 0-9, '-' and '.'", m->name);
    if (m->profile >= PROFILE_COUNT || m->grants & ~GRANTS_ALL)
        return err_set(err, ERR_INVALID, "template '%s' has an unknown profile or grant", m->name);
    if (m->driver >= DRIVER_COUNT)
        return err_set(err, ERR_INVALID, "template '%s' has an unknown driver", m->name);
    ret->driver = (enum driver_id)m->driver;
    ret->filter.profile = (enum profile)m->profile;
    ret->filter.grants = m->grants;
    memcpy(ret->filter.deny, m->deny, sizeof(m->deny));
    ret->joinable = m->joinable;
    ret->egress = m->egress;
    if (ret->egress && ret->driver != DRIVER_NATIVE)
        return err_set(err, ERR_DRIVER_UNSUPPORTED, "driver %s has no network; use native, or network none",
                       driver_name(ret->driver));
    return 0;
}

static bool create_same_template(const struct spawner_template *a, const struct spawner_template *b)
{
    return a->driver == b->driver && a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && a->joinable == b->joinable &&
           a->egress == b->egress;
}

int create_template(struct jailer_client *c, const struct frame *f, struct err *err)
{
    struct jailer *j = c->jailer;
    struct jail_template m;
    struct spawner_template kind = { 0 };

    if (jail_template_decode(f, &m, err) < 0 || create_read_template(&m, &kind, err) < 0)
        return -1;
    kind.joinable = kind.joinable && !j->rootless; /* a rootless jailer has no zygotes */
    struct spawner *known = create_find_template(j, kind.name);
    /* ERR_EXISTS would let the client continue with the wrong template. */
    if (known && !create_same_template(spawner_get_template(known), &kind))
        return err_set(err, ERR_INVALID,
                       "template '%s' exists with another filter, or another joinable or egress flag; use another name",
                       m.name);
    if (known) {
        create_mark_spawner_used(j, known);
        return err_set(err, ERR_EXISTS, "template '%s' exists", m.name);
    }
    if (j->nspawners == TEMPLATES_MAX)
        create_drop_idle_spawner(j);
    if (j->nspawners == TEMPLATES_MAX)
        return err_set(err, ERR_LIMIT,
                       "%d templates have sandboxes, which is the maximum; destroy the sandboxes of one of them",
                       TEMPLATES_MAX);
    if (!j->spare_spawner &&
        spawner_new(j->ev, j->rootless, j->settings->state_dir, &j->files, j->listener_relay.sender_socket,
                    &create_spawner_ops, j, &j->spare_spawner, err) < 0)
        return -1;
    if (!j->rootless && uids_take_owner(&j->uids, &kind.owner, err) < 0)
        return -1;
    if (spawner_set_template(j->spare_spawner, &kind, j->uids.fd, err) < 0)
        return -1;
    j->spawners[j->nspawners++] = take_ptr(&j->spare_spawner);
    reply_ok(c, f->stream);
    return 0;
}

/* Checks every field of a request again. */
static int create_check_request(const struct jailer_client *c, const struct jail_create *m, struct limits *lim,
                                struct err *err)
{
    struct jailer *j = c->jailer;

    if (j->stopping)
        return err_set(err, ERR_BUSY, "the jailer is shutting down");
    if (!id_valid(m->id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is not a sandbox id", m->id);
    if (!create_name_valid(m->hostname))
        return err_set(err, ERR_INVALID, "host name '%s': invalid; use a-z, 0-9, '-' and '.'", m->hostname);
    if (jailed_sandbox_find(j, m->id))
        return err_set(err, ERR_EXISTS, "sandbox %s exists", m->id);
    if (jailed_sandbox_check_room(j, FDS_PER_SANDBOX + (m->network ? EGRESS_NET_SOCKETS : 0), err) < 0)
        return -1;
    if (m->nlimits != LIMIT_COUNT)
        return err_set(err, ERR_VERSION, "the request has %u limits instead of %d", m->nlimits, LIMIT_COUNT);
    /* Otherwise a client could read and write other users' files through a sandbox. */
    if (m->nmounts && c->uid != 0 && (m->owner_uid != c->uid || m->owner_gid != c->gid))
        return err_set(err, ERR_DENIED, "a client with uid %u may lend only its own files, not those of %u:%u", c->uid,
                       m->owner_uid, m->owner_gid);
    memcpy(lim->v, m->limits, sizeof(lim->v));
    return limits_check(lim, err);
}

/* Limits that the child of the spawner enforces itself. */
static void create_limits_held_by_mounts(const struct jail_create *m, struct limit_enforcements *held)
{
    static const enum limit always[] = { LIMIT_NOFILE, LIMIT_FSIZE,      LIMIT_WORKSPACE, LIMIT_WORKSPACE_INODES,
                                         LIMIT_TMP,    LIMIT_TMP_INODES, LIMIT_SHM };

    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        limit_set_enforcement(held, always[i], ENFORCEMENT_FULL, REASON_NONE);
    for (size_t i = 0; i < m->nmounts; i++)
        if (m->mounts[i].kind == JAIL_WORKSPACE) { /* a directory of the caller: only its own disk limits it */
            limit_set_enforcement(held, LIMIT_WORKSPACE, ENFORCEMENT_NONE, REASON_LENT_DIRECTORY);
            limit_set_enforcement(held, LIMIT_WORKSPACE_INODES, ENFORCEMENT_NONE, REASON_LENT_DIRECTORY);
        }
}

/* Without cgroups, rlimits bound each process separately but not the sandbox as a whole. */
static void create_limits_held_by_rlimits(struct limit_enforcements *held)
{
    static const enum limit partly[] = { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPU_TIME };
    static const enum limit never[] = { LIMIT_CPUSET, LIMIT_CPU, LIMIT_SWAP, LIMIT_IO_READ, LIMIT_IO_WRITE };

    for (size_t i = 0; i < ARRAY_LEN(partly); i++)
        limit_set_enforcement(held, partly[i], ENFORCEMENT_PARTIAL, REASON_EACH_PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        limit_set_enforcement(held, never[i], ENFORCEMENT_NONE, REASON_NO_CGROUP);
}

/* Limits the disks that a sandbox can reach: the disk of the system directories and those of lent
 * directories. */
static void create_limit_disks(const struct jailer *j, const struct jailed_sandbox *sandbox,
                               const struct jail_create *m, const int *fds, struct limit_enforcements *held)
{
    struct io_limits_reach reach = { 0 };

    if (!sandbox->limits.v[LIMIT_IO_READ] && !sandbox->limits.v[LIMIT_IO_WRITE])
        return;
    auto_fd int disks = open("/sys/block", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd int usr = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    io_limits_reach_add(&reach, usr, false);
    for (size_t i = 0; i < m->nmounts; i++)
        io_limits_reach_add(&reach, fds[m->mounts[i].fd], m->mounts[i].kind == JAIL_WORKSPACE);
    io_limits_apply(&j->cgroups, sandbox->id, disks, &reach, &sandbox->limits, held);
}

#define WALL(name, outside, inside, needs_root, description, effect, attack) | (outside)
static const uint32_t create_all_walls = 0
#include "policy/walls.def"
    ;
#undef WALL

/* Turns the checked request into an order for the spawner. After a failure the caller removes the
 * sandbox with jailed_sandbox_remove. */
static int create_start(struct jailer *j, struct jailed_sandbox *sandbox, const struct jail_create *m, const int *fds,
                        size_t nfds, struct err *err)
{
    static struct native_spec spec;
    struct limit_enforcements held = { 0 };
    int sv[2];

    if ((!j->rootless && uids_take(&j->uids, &sandbox->uid, err) < 0) ||
        cgroup_make(&j->cgroups, sandbox->id, sandbox->uid, &sandbox->limits, &held, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "cannot make the control socket");
    sandbox->control = sv[0];
    sandbox->runtime_socket = sv[1];
    /* A whole window fits into the socket buffer, so neither side waits for each frame. */
    fd_set_send_buffer(sv[0], WIRE_WINDOW_BULK);
    fd_set_send_buffer(sv[1], WIRE_WINDOW_BULK);
    spec = (struct native_spec){
        .host_uid = sandbox->uid, .limits = sandbox->limits, .control = sandbox->runtime_socket, .nmounts = m->nmounts
    };
    memcpy(spec.id, sandbox->id, sizeof(spec.id));
    (void)str_copy(spec.hostname, sizeof(spec.hostname), m->hostname);
    if (mounts_prepare(m, fds, nfds, j->rootless, sandbox->uid, &sandbox->limits, spec.mounts, err) < 0)
        return -1;
    create_limit_disks(j, sandbox, m, fds, &held);
    int bad = cgroup_enter_open(&j->cgroups, sandbox->id, &sandbox->limits, false, &spec.cgroup, err);
    if (!bad) {
        bad = spawner_order_sandbox(sandbox->spawner, sandbox->token, &spec, err);
        cgroup_enter_close(&spec.cgroup);
    }
    mounts_close(spec.mounts, spec.nmounts);
    if (bad)
        return -1;
    create_limits_held_by_mounts(m, &held);
    if (!j->cgroups.ntrees)
        create_limits_held_by_rlimits(&held);
    sandbox->created = (struct jail_created){ .host_uid = sandbox->uid,
                                              .walls = create_all_walls,
                                              .nlimits = LIMIT_COUNT };
    if (j->rootless)
        sandbox->created.walls = (sandbox->created.walls & ~JAIL_WALL_UNIQUE_UID) | JAIL_ROOTLESS;
    _Static_assert((int)JAIL_ENFORCED == (int)ENFORCEMENT_FULL && (int)JAIL_PARTIAL == (int)ENFORCEMENT_PARTIAL,
                   "the values are sent unchanged");
    memcpy(sandbox->created.enforced, held.enforcement, sizeof(held.enforcement));
    memcpy(sandbox->created.why, held.reason, sizeof(held.reason));
    (void)str_copy(sandbox->created.cgroup, sizeof(sandbox->created.cgroup), j->cgroups.kind);
    return 0;
}

/* --- queue --- */

static int create_enqueue(struct jailed_sandbox *sandbox, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct jailer *j = sandbox->jailer;
    struct jailed_sandbox **end = &j->create_queue;

    if (j->nqueued_fds + nfds > QUEUED_FDS_MAX)
        return err_set(err, ERR_BUSY, "too many queued sandboxes have lent directories; try again later");
    sandbox->request = mem_alloc(f->len);
    memcpy(sandbox->request, f->data, f->len);
    sandbox->request_len = f->len;
    for (; sandbox->nlent_fds < nfds; sandbox->nlent_fds++)
        sandbox->lent_fds[sandbox->nlent_fds] = take_fd(&fds[sandbox->nlent_fds]);
    j->nqueued_fds += nfds;
    while (*end)
        end = &(*end)->next_waiting;
    *end = sandbox;
    return 0;
}

void create_dequeue(struct jailed_sandbox *sandbox)
{
    struct jailed_sandbox **p = &sandbox->jailer->create_queue;

    if (!sandbox->request)
        return;
    while (*p != sandbox)
        p = &(*p)->next_waiting;
    *p = sandbox->next_waiting;
    sandbox->jailer->nqueued_fds -= sandbox->nlent_fds;
    while (sandbox->nlent_fds)
        fd_close(&sandbox->lent_fds[--sandbox->nlent_fds]);
    free(take_ptr(&sandbox->request));
}

static void create_start_queued(struct jailer *j, struct jailed_sandbox *sandbox)
{
    static struct jail_create m;
    struct frame f = { .type = FRAME_J_CREATE, .len = sandbox->request_len, .data = sandbox->request };
    struct err err = { 0 };

    int bad = jail_create_decode(&f, &m, &err) < 0 ||
              create_start(j, sandbox, &m, sandbox->lent_fds, sandbox->nlent_fds, &err) < 0;
    create_dequeue(sandbox);
    if (!bad)
        return;
    reply_error(sandbox->owner, sandbox->create_stream, &err);
    (void)cgroup_remove(&j->cgroups, sandbox->id);
    jailed_sandbox_remove(sandbox);
}

static void create_start_all_queued(struct jailer *j, const struct spawner *s)
{
    for (struct jailed_sandbox *sandbox = j->create_queue, *next; sandbox && !spawner_is_full(s); sandbox = next) {
        next = sandbox->next_waiting;
        if (sandbox->spawner == s)
            create_start_queued(j, sandbox);
    }
}

int create_jailed_sandbox(struct jailer_client *c, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct jailer *j = c->jailer;
    static struct jail_create m;
    struct limits lim;

    if (jail_create_decode(f, &m, err) < 0 || create_check_request(c, &m, &lim, err) < 0)
        return -1;
    for (size_t i = 0; c->uid != 0 && i < nfds; i++)
        if (mounts_check_local_filesystem(fds[i], err) < 0)
            return -1;
    struct spawner *s = create_find_template(j, m.template);
    if (!s)
        return err_set(err, ERR_MISSING, "template '%s' does not exist", m.template);
    if (spawner_get_template(s)->egress != (m.network == NETWORK_EGRESS))
        return err_set(err, ERR_INVALID, "network mode %u: does not match template '%s'", m.network, m.template);
    if (m.network == NETWORK_EGRESS && egress_relay_check(j, err) < 0)
        return -1;
    create_mark_spawner_used(j, s);
    struct jailed_sandbox *sandbox = mem_new(struct jailed_sandbox);
    sandbox->jailer = j;
    memcpy(sandbox->id, m.id, sizeof(sandbox->id));
    sandbox->token = ++j->last_token;
    sandbox->spawner = s;
    sandbox->limits = lim;
    sandbox->pidfd = sandbox->control = sandbox->runtime_socket = sandbox->oom_fd = sandbox->listeners[0] =
        sandbox->listeners[1] = -1;
    sandbox->host_uid = c->uid;
    sandbox->next = j->sandboxes;
    j->sandboxes = sandbox;
    j->nsandboxes++;
    sandbox->has_egress = m.network == NETWORK_EGRESS;
    j->negress += sandbox->has_egress;
    int bad = spawner_is_full(s) ? create_enqueue(sandbox, f, fds, nfds, err)
                                 : create_start(j, sandbox, &m, fds, nfds, err);
    if (bad) {
        (void)cgroup_remove(&j->cgroups, sandbox->id);
        jailed_sandbox_remove(sandbox);
        return -1;
    }
    sandbox->owner = c;
    sandbox->create_stream = f->stream;
    return 0;
}
