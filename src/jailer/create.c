/* From a host's request to a sandbox: every field is checked again, whoever sent it, then uid, cgroups, streams and
 * mounts are made and the spawner of the template is asked. What fails on the way goes back in the reverse order.
 *
 * A spawner takes a few orders at a time. Requests beyond that wait here as they came, before anything was made for
 * them, so that a thousand of them cost a thousand small buffers and no descriptors but those that were lent. */
#include "jailer/inside.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"
#include "isolate/io.h"
#include "isolate/sys.h"
#include "jailer/mounts.h"
#include "jailer/zygote.h"

#include <fcntl.h>
#include <signal.h>

static struct cell *by_token(struct jailer *j, uint64_t token)
{
    for (struct cell *c = j->cells; c; c = c->next)
        if (c->token == token)
            return c;
    return NULL;
}

static void start_waiting(struct jailer *j, const struct spawner *s);

static void on_spawned(void *arg, uint64_t token, pid_t pid, int pidfd, const struct err *err)
{
    struct jailer *j = arg;
    struct cell *cell = by_token(j, token);

    if (!cell) { /* cannot happen while cells wait for this answer; do not leak it if it does */
        if (pidfd >= 0)
            (void)sys_pidfd_send_signal(pidfd, SIGKILL);
        fd_close(&pidfd);
        return;
    }
    start_waiting(j, cell->spawner);
    fd_close(&cell->runtime_end);
    if (err) {
        reply_error(cell->owner, cell->create_stream, err);
        cell->create_stream = 0;
        cell->state = CELL_DEAD;
        cell_destroy(cell);
        return;
    }
    cell->pidfd = pidfd;
    cell->made.pid = (uint32_t)pid;
    cell->state = CELL_LIVE;
    if (cell->destroy || !cell->owner) {
        struct err gone;

        err_set(&gone, ERR_LOST, "sandbox %s was destroyed before it was ready", cell->id);
        reply_error(cell->owner, cell->create_stream, &gone);
        cell->create_stream = 0;
        cell_destroy(cell);
        return;
    }
    reply_created(cell, cell->create_stream);
    cell->create_stream = 0;
    cell_watch_memory(cell);
}

static void on_spawn_ended(void *arg, uint64_t token, int status)
{
    struct cell *cell = by_token(arg, token);

    if (cell)
        cell_died(cell, status);
}

/* In the order of their last use. */
static void take_out(struct jailer *j, const struct spawner *s)
{
    size_t n = 0;

    for (size_t i = 0; i < j->nspawners; i++)
        if (j->spawners[i] != s)
            j->spawners[n++] = j->spawners[i];
    j->nspawners = n;
}

static void used_now(struct jailer *j, struct spawner *s)
{
    take_out(j, s);
    j->spawners[j->nspawners++] = s;
}

static void drop_spawner(struct jailer *j, struct spawner *s)
{
    take_out(j, s);
    zygote_forget_spawner(j, s);
    if (j->spare == s)
        j->spare = NULL;
    uids_give(&j->uids, spawner_kind(s)->owner);
    spawner_free(s);
}

static bool has_cells(const struct jailer *j, const struct spawner *s)
{
    const struct cell *c = j->cells;

    while (c && c->spawner != s)
        c = c->next;
    return c != NULL;
}

/* Room for another template: the one goes that is in no use, and has been for the longest time. */
static void drop_idle(struct jailer *j)
{
    for (size_t i = 0; i < j->nspawners; i++)
        if (!has_cells(j, j->spawners[i])) {
            drop_spawner(j, j->spawners[i]);
            return;
        }
}

static void on_spawner_lost(void *arg, struct spawner *s)
{
    struct jailer *j = arg;

    for (struct cell *c = j->cells, *next; c; c = next) {
        next = c->next;
        if (c->spawner != s || c->state == CELL_DEAD)
            continue;
        if (c->create_stream) {
            struct err err;

            err_set(&err, ERR_LOST, "the spawner of this template died");
            reply_error(c->owner, c->create_stream, &err);
            c->create_stream = 0;
            c->destroy = true;
        }
        /* The kernel ends them all with the spawner, but a v1 freezer holds even the dying, and spawner_free waits. */
        cgroup_kill(&j->forest, c->id);
        cell_died(c, SIGKILL);
    }
    drop_spawner(j, s);
}

const struct spawner_ops create_spawner_ops = { on_spawned, on_spawn_ended, on_spawner_lost };

static bool name_ok(const char *s)
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
        if (str_eq(spawner_kind(j->spawners[i])->name, name))
            return j->spawners[i];
    return NULL;
}

/* Names of calls that no policy may deny are checked where policies are read; a filter that denies one only ends its
 * own sandbox. */
static int read_kind(const struct jail_template *m, struct spawner_kind *ret, struct err *err)
{
    _Static_assert(JAIL_DENY_WORDS == FILTER_DENY_WORDS, "the set travels whole");
    if (!name_ok(m->name) || !str_copy(ret->name, sizeof(ret->name), m->name))
        return err_set(err, ERR_INVALID, "template '%s' has a bad name", m->name);
    if (m->profile >= PROFILE_COUNT || m->grants & ~GRANTS_ALL)
        return err_set(err, ERR_INVALID, "template '%s' has a bad profile or grant", m->name);
    ret->filter.profile = (enum profile)m->profile;
    ret->filter.grants = m->grants;
    memcpy(ret->filter.deny, m->deny, sizeof(m->deny));
    ret->joinable = m->joinable;
    return 0;
}

static bool same_kind(const struct spawner_kind *a, const struct spawner_kind *b)
{
    return a->filter.profile == b->filter.profile && a->filter.grants == b->filter.grants &&
           memcmp(a->filter.deny, b->filter.deny, sizeof(a->filter.deny)) == 0 && a->joinable == b->joinable;
}

int create_template(struct conn *c, const struct frame *f, struct err *err)
{
    struct jailer *j = c->j;
    struct jail_template m;
    struct spawner_kind kind = { 0 };

    if (jail_template_decode(f, &m, err) < 0 || read_kind(&m, &kind, err) < 0)
        return -1;
    kind.joinable = kind.joinable && !j->rootless; /* there are no zygotes there */
    struct spawner *known = create_find_template(j, kind.name);
    if (known && !same_kind(spawner_kind(known), &kind)) /* EXISTS would let the host go on with the wrong one */
        return err_set(err, ERR_INVALID, "template '%s' exists with another filter, or is not joinable alike", m.name);
    if (known) {
        used_now(j, known);
        return err_set(err, ERR_EXISTS, "template '%s' exists", m.name);
    }
    if (j->nspawners == TEMPLATES_MAX)
        drop_idle(j);
    if (j->nspawners == TEMPLATES_MAX)
        return err_set(err, ERR_LIMIT, "more than %d templates with sandboxes", TEMPLATES_MAX);
    if (!j->spare && spawner_new(j->ev, j->rootless, j->settings->state_dir, &j->files, j->relay.out,
                                 &create_spawner_ops, j, &j->spare, err) < 0)
        return -1;
    if (!j->rootless && uids_take_owner(&j->uids, &kind.owner, err) < 0)
        return -1;
    if (spawner_choose(j->spare, &kind, j->uids.fd, err) < 0)
        return -1;
    j->spawners[j->nspawners++] = take_ptr(&j->spare);
    reply_ok(c, f->stream);
    return 0;
}

/* Checks a request again, field by field. */
static int check_create(const struct conn *c, const struct jail_create *m, struct limits *lim, struct err *err)
{
    struct jailer *j = c->j;

    if (j->stopping)
        return err_set(err, ERR_BUSY, "the jailer is going down");
    if (!id_valid(m->id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is no sandbox id", m->id);
    if (!name_ok(m->hostname))
        return err_set(err, ERR_INVALID, "host name '%s' has letters that host names cannot have", m->hostname);
    if (cell_find(j, m->id))
        return err_set(err, ERR_EXISTS, "sandbox %s exists", m->id);
    if (cell_room(j, CELL_FDS, err) < 0)
        return -1;
    if (m->nlimits != LIMIT_COUNT)
        return err_set(err, ERR_VERSION, "%u limits instead of %d", m->nlimits, LIMIT_COUNT);
    /* Otherwise it could read and write through a sandbox what belongs to somebody else. */
    if (m->nmounts && c->uid != 0 && (m->owner_uid != c->uid || m->owner_gid != c->gid))
        return err_set(err, ERR_DENIED, "a host of uid %u lends files of its own only, not of %u:%u", c->uid,
                       m->owner_uid, m->owner_gid);
    memcpy(lim->v, m->limits, sizeof(lim->v));
    return limits_check(lim, err);
}

/* What the spawner's child will enforce by itself. */
static void held_by_mounts(const struct jail_create *m, struct limit_states *held)
{
    static const enum limit always[] = { LIMIT_NOFILE, LIMIT_FSIZE,      LIMIT_WORKSPACE, LIMIT_WORKSPACE_INODES,
                                         LIMIT_TMP,    LIMIT_TMP_INODES, LIMIT_SHM };

    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        limit_held(held, always[i], HOLD_WHOLE, WHY_UNSAID);
    for (size_t i = 0; i < m->nmounts; i++)
        if (m->mounts[i].kind == JAIL_WORKSPACE) { /* somebody's own directory: the disk it lies on is the limit */
            limit_held(held, LIMIT_WORKSPACE, HOLD_NONE, WHY_LENT_DIRECTORY);
            limit_held(held, LIMIT_WORKSPACE_INODES, HOLD_NONE, WHY_LENT_DIRECTORY);
        }
}

/* Without cgroups: one process at a time is held, not all of them together. */
static void held_by_rlimits(struct limit_states *held)
{
    static const enum limit partly[] = { LIMIT_MEMORY, LIMIT_PIDS, LIMIT_CPU_TIME };
    static const enum limit never[] = { LIMIT_CPUSET, LIMIT_CPU, LIMIT_SWAP, LIMIT_IO_READ, LIMIT_IO_WRITE };

    for (size_t i = 0; i < ARRAY_LEN(partly); i++)
        limit_held(held, partly[i], HOLD_PARTIAL, WHY_EACH_PROCESS);
    for (size_t i = 0; i < ARRAY_LEN(never); i++)
        limit_held(held, never[i], HOLD_NONE, WHY_NO_CGROUP);
}

/* What a sandbox reaches of the host's disks: the system's directories, and all that was lent to it. */
static void limit_disks(const struct jailer *j, const struct cell *cell, const struct jail_create *m, const int *fds,
                        struct limit_states *held)
{
    struct io_reach reach = { 0 };

    if (!cell->limits.v[LIMIT_IO_READ] && !cell->limits.v[LIMIT_IO_WRITE])
        return;
    auto_fd int disks = open("/sys/block", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd int usr = open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC);
    io_reach_add(&reach, usr, false);
    for (size_t i = 0; i < m->nmounts; i++)
        io_reach_add(&reach, fds[m->mounts[i].fd], m->mounts[i].kind == JAIL_WORKSPACE);
    io_limit(&j->forest, cell->id, disks, &reach, &cell->limits, held);
}

#define ALL_WALLS                                                                                                    \
    (JAIL_WALL_USER_NS | JAIL_WALL_MOUNT_NS | JAIL_WALL_PID_NS | JAIL_WALL_NET_NS | JAIL_WALL_IPC_NS |               \
     JAIL_WALL_UTS_NS | JAIL_WALL_CGROUP_NS | JAIL_WALL_ROOT | JAIL_WALL_PROC | JAIL_WALL_CAPS | JAIL_WALL_SECCOMP | \
     JAIL_WALL_KEYRING | JAIL_WALL_ROUTES | JAIL_WALL_UNIQUE_UID)

/* From the checked request to an order for the spawner. On failure the cell is left for cell_remove. */
static int cell_start(struct jailer *j, struct cell *cell, const struct jail_create *m, const int *fds, size_t nfds,
                      struct err *err)
{
    static struct native_spec spec;
    struct limit_states held = { 0 };
    int sv[2];

    if ((!j->rootless && uids_take(&j->uids, &cell->uid, err) < 0) ||
        cgroup_make(&j->forest, cell->id, cell->uid, &cell->limits, &held, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "control stream");
    cell->control = sv[0];
    cell->runtime_end = sv[1];
    fd_widen(sv[0], WIRE_WINDOW_BULK); /* a whole window in flight, so that neither side waits for every frame */
    fd_widen(sv[1], WIRE_WINDOW_BULK);
    spec = (struct native_spec){
        .host_uid = cell->uid, .limits = cell->limits, .control = cell->runtime_end, .nmounts = m->nmounts
    };
    memcpy(spec.id, cell->id, sizeof(spec.id));
    (void)str_copy(spec.hostname, sizeof(spec.hostname), m->hostname);
    if (mounts_prepare(m, fds, nfds, j->rootless, cell->uid, &cell->limits, spec.mounts, err) < 0)
        return -1;
    limit_disks(j, cell, m, fds, &held);
    int bad = cgroup_enter_open(&j->forest, cell->id, &cell->limits, false, &spec.cgroup, err);
    if (!bad) {
        bad = spawner_make(cell->spawner, cell->token, &spec, err);
        cgroup_enter_close(&spec.cgroup);
    }
    mounts_close(spec.mounts, spec.nmounts);
    if (bad)
        return -1;
    held_by_mounts(m, &held);
    if (!j->forest.ntrees)
        held_by_rlimits(&held);
    cell->made = (struct jail_created){ .host_uid = cell->uid, .walls = ALL_WALLS, .nlimits = LIMIT_COUNT };
    if (j->rootless)
        cell->made.walls = (cell->made.walls & ~JAIL_WALL_UNIQUE_UID) | JAIL_ROOTLESS;
    _Static_assert((int)JAIL_ENFORCED == (int)HOLD_WHOLE && (int)JAIL_PARTIAL == (int)HOLD_PARTIAL, "sent as they are");
    memcpy(cell->made.enforced, held.hold, sizeof(held.hold));
    memcpy(cell->made.why, held.why, sizeof(held.why));
    (void)str_copy(cell->made.cgroup, sizeof(cell->made.cgroup), j->forest.kind);
    return 0;
}

/* --- those that wait --- */

static int wait_for_turn(struct cell *cell, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct jailer *j = cell->j;
    struct cell **end = &j->waiting;

    if (j->lent + nfds > LENT_MAX)
        return err_set(err, ERR_BUSY, "too many sandboxes with lent directories wait to be made");
    cell->request = mem_alloc(f->len);
    memcpy(cell->request, f->data, f->len);
    cell->request_len = f->len;
    for (; cell->nlent < nfds; cell->nlent++)
        cell->lent[cell->nlent] = take_fd(&fds[cell->nlent]);
    j->lent += nfds;
    while (*end)
        end = &(*end)->behind;
    *end = cell;
    return 0;
}

void create_withdraw(struct cell *cell)
{
    struct cell **p = &cell->j->waiting;

    if (!cell->request)
        return;
    while (*p != cell)
        p = &(*p)->behind;
    *p = cell->behind;
    cell->j->lent -= cell->nlent;
    while (cell->nlent)
        fd_close(&cell->lent[--cell->nlent]);
    free(take_ptr(&cell->request));
}

static void start_one(struct jailer *j, struct cell *cell)
{
    static struct jail_create m;
    struct frame f = { .type = FRAME_J_CREATE, .len = cell->request_len, .data = cell->request };
    struct err err = { 0 };

    int bad = jail_create_decode(&f, &m, &err) < 0 || cell_start(j, cell, &m, cell->lent, cell->nlent, &err) < 0;
    create_withdraw(cell);
    if (!bad)
        return;
    reply_error(cell->owner, cell->create_stream, &err);
    (void)cgroup_remove(&j->forest, cell->id);
    cell_remove(cell);
}

static void start_waiting(struct jailer *j, const struct spawner *s)
{
    for (struct cell *cell = j->waiting, *next; cell && !spawner_full(s); cell = next) {
        next = cell->behind;
        if (cell->spawner == s)
            start_one(j, cell);
    }
}

int create_cell(struct conn *c, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct jailer *j = c->j;
    static struct jail_create m;
    struct limits lim;

    if (jail_create_decode(f, &m, err) < 0 || check_create(c, &m, &lim, err) < 0)
        return -1;
    for (size_t i = 0; c->uid != 0 && i < nfds; i++)
        if (mounts_check_prompt(fds[i], err) < 0)
            return -1;
    struct spawner *s = create_find_template(j, m.template);
    if (!s)
        return err_set(err, ERR_MISSING, "template '%s' does not exist", m.template);
    used_now(j, s);
    struct cell *cell = mem_new(struct cell);
    cell->j = j;
    memcpy(cell->id, m.id, sizeof(cell->id));
    cell->token = ++j->last_token;
    cell->spawner = s;
    cell->limits = lim;
    cell->pidfd = cell->control = cell->runtime_end = cell->oom = cell->listeners[0] = cell->listeners[1] = -1;
    cell->host = c->uid;
    cell->next = j->cells;
    j->cells = cell;
    j->ncells++;
    int bad = spawner_full(s) ? wait_for_turn(cell, f, fds, nfds, err) : cell_start(j, cell, &m, fds, nfds, err);
    if (bad) {
        (void)cgroup_remove(&j->forest, cell->id);
        cell_remove(cell);
        return -1;
    }
    cell->owner = c;
    cell->create_stream = f->stream;
    return 0;
}
