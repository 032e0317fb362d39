/* One loop serves hosts, spawners and timers. What a host may ask is one table: the request, the states of the cell in
 * which it is legal, and the function that carries it out. Nothing here waits: a sandbox is made, killed, frozen and
 * removed in steps that the loop takes when they are due.
 *
 * Invariants
 * 1. A cell owns its uid, its cgroups and its descriptors until cell_remove; nothing else frees them.
 * 2. The uid is given back only after the cgroups are gone, and they go only when nothing lives in them.
 * 3. Every request is answered exactly once on its stream, or its connection is gone.
 * 4. When a host goes, its cells go, unless it asked to keep them; when the last host and the last kept cell are gone,
 *    the jailer ends. */
#include "jailer/jailer.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "isolate/sys.h"
#include "jailer/cell.h"
#include "jailer/kept.h"
#include "jailer/mounts.h"
#include "jailer/spawner.h"
#include "jailer/sweep.h"
#include "wire/chan.h"
#include "wire/rt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KILL_AGAIN_NS (100 * NS_PER_MS)
#define STEP_NS (1 * NS_PER_MS)
#define REMOVE_ROUNDS 2000 /* of STEP_NS: then the leak is reported */
#define TEMPLATES_MAX 64
#define CELLS_MAX 16384

struct conn {
    struct conn *next;
    struct jailer *j;
    struct chan chan;
    struct ev_defer free_later;
};

struct jailer {
    struct ev *ev;
    const struct jailer_settings *settings;
    int state_dir;
    struct cgroup_forest forest;
    struct uids uids;
    struct spawner *spawners[TEMPLATES_MAX];
    size_t nspawners;
    struct cell *cells;
    size_t ncells;
    struct conn *conns;
    struct kept *kept;
    uint64_t last_token;
};

static const struct chan_ops conn_ops;

/* --- answering --- */

static void answer(struct conn *c, uint32_t stream, uint8_t type, const void *data, int len)
{
    if (!c || !stream || len < 0)
        return;
    chan_send(&c->chan, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len, .data = data });
}

static void answer_ok(struct conn *c, uint32_t stream)
{
    answer(c, stream, FRAME_J_OK, NULL, 0);
}

static void answer_error(struct conn *c, uint32_t stream, const struct err *err)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct rt_error e = { .id = (uint32_t)err->id, .sys = err->sys };
    struct err ignored;

    (void)snprintf(e.msg, sizeof(e.msg), "%s", err->msg);
    answer(c, stream, FRAME_J_ERROR, out, rt_error_encode(&e, out, &ignored));
}

static void answer_stats(struct conn *c, uint32_t stream, const struct cell *cell)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct cgroup_stats s;
    struct err ignored;

    cgroup_read(&c->j->forest, cell->id, &s);
    struct jail_stats m = {
        .cpu_ns = s.cpu_ns,
        .memory = s.memory,
        .memory_peak = s.memory_peak,
        .oom_kills = s.oom_kills,
        .pids = s.pids,
        .pids_peak = s.pids_peak,
        .pids_refused = s.pids_refused,
        .throttled_ns = s.throttled_ns,
        .io_read = JAIL_UNKNOWN,
        .io_write = JAIL_UNKNOWN,
    };
    answer(c, stream, FRAME_DONE, out, jail_stats_encode(&m, out, &ignored));
}

static void send_event(const struct cell *cell, enum jail_event_kind kind)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_event e = { .kind = (uint8_t)kind, .status = cell->status };
    struct err ignored;

    if (!cell->owner)
        return;
    memcpy(e.id, cell->id, sizeof(e.id));
    int len = jail_event_encode(&e, out, &ignored);
    if (len >= 0)
        chan_send(&cell->owner->chan, &(struct frame){ .type = FRAME_J_EVENT, .len = (uint32_t)len, .data = out });
}

/* --- the end of a cell --- */

static void maybe_stop(struct jailer *j)
{
    if (!j->conns && !j->cells)
        ev_stop(j->ev);
}

static void close_fds(struct jailer *j, struct cell *cell)
{
    ev_io_del(j->ev, &cell->oom_io);
    fd_close(&cell->oom);
    fd_close(&cell->pidfd);
    fd_close(&cell->control);
    fd_close(&cell->runtime_end);
}

/* The last step: everything the cell owned goes back. */
static void cell_remove(struct jailer *j, struct cell *cell)
{
    struct cell **p = &j->cells;

    while (*p != cell)
        p = &(*p)->next;
    *p = cell->next;
    j->ncells--;
    ev_timer_clear(j->ev, &cell->timer);
    ev_timer_clear(j->ev, &cell->lifetime);
    close_fds(j, cell);
    uids_give(&j->uids, cell->uid);
    if (cell->kept)
        kept_remove(j->kept, cell->id);
    free(cell);
    maybe_stop(j);
}

static void remove_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;

    ev_io_del(j->ev, &cell->oom_io); /* removing the cgroup would ring it */
    if (cell->rounds == 0 && cell->destroy_stream && cell->owner)
        answer_stats(cell->owner, cell->destroy_stream, cell);
    if (cgroup_remove(&j->forest, cell->id) < 0 && errno == EBUSY && cell->rounds++ < REMOVE_ROUNDS) {
        ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + STEP_NS, remove_step, cell);
        return;
    }
    if (cell->rounds >= REMOVE_ROUNDS)
        log_error("sandbox %s: its cgroup could not be removed", cell->id);
    cell_remove(j, cell);
}

static void kill_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;
    struct cgroup_stats s;

    /* Alone in there, PID 1 needs no ceremony. */
    if (cell->rounds++ == 0 && cell->state != CELL_FROZEN) {
        cgroup_read(&j->forest, cell->id, &s);
        if (s.pids <= 1 && sys_pidfd_send_signal(cell->pidfd, SIGKILL) == 0)
            goto again;
    }
    (void)cgroup_kill(&j->forest, cell->id);
    (void)sys_pidfd_send_signal(cell->pidfd, SIGKILL);
again:
    cell->state = CELL_ENDING;
    ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + KILL_AGAIN_NS, kill_step, cell);
}

/* Ends the cell and, when it is dead, removes it. */
static void cell_destroy(struct cell *cell)
{
    cell->destroy = true;
    if (cell->state == CELL_DEAD) {
        cell->rounds = 0;
        remove_step(cell);
    } else if (cell->state == CELL_LIVE || cell->state == CELL_FROZEN) {
        cell->rounds = 0;
        kill_step(cell);
    } /* MAKING: when the spawner answers. ENDING: when it is reaped. */
}

static void cell_died(struct cell *cell, int status)
{
    struct jailer *j = cell->j;

    cell->state = CELL_DEAD;
    cell->status = status;
    cell->rounds = 0;
    ev_timer_clear(j->ev, &cell->timer);
    send_event(cell, JAIL_EVENT_ENDED);
    answer_ok(cell->owner, cell->kill_stream);
    cell->kill_stream = 0;
    if (cell->freeze_stream) {
        struct err err;

        err_set(&err, ERR_LOST, "the sandbox ended");
        answer_error(cell->owner, cell->freeze_stream, &err);
        cell->freeze_stream = 0;
    }
    if (cell->destroy || !cell->owner)
        cell_destroy(cell);
}

static struct cell *by_token(struct jailer *j, uint64_t token)
{
    for (struct cell *c = j->cells; c; c = c->next)
        if (c->token == token)
            return c;
    return NULL;
}

/* --- making --- */

static void on_oom(void *arg, uint32_t events UNUSED)
{
    struct cell *cell = arg;
    char drain[4096];

    while (read(cell->oom, drain, sizeof(drain)) > 0)
        ;
    if (cell->made.cgroup[1] == '2') { /* v2 tells of every change of memory.events */
        struct cgroup_stats s;

        cgroup_read(&cell->j->forest, cell->id, &s);
        if (s.oom_kills == 0 || s.oom_kills == CGROUP_UNKNOWN)
            return;
    }
    send_event(cell, JAIL_EVENT_OOM);
}

static void on_lifetime(void *arg)
{
    cell_destroy(arg);
}

/* J_CREATED with the descriptors that make the sandbox the host's. */
static void hand_over(struct cell *cell, uint32_t stream)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    bool v2 = false;
    auto_fd int usage = cgroup_usage_fd(&cell->j->forest, cell->id, &v2);
    int fds[3] = { cell->control, cell->pidfd, usage };
    struct err err;

    cell->made.cpu_fd = usage >= 0;
    cell->made.cpu_unit = v2;
    int len = jail_created_encode(&cell->made, out, &err);
    if (len < 0) {
        answer_error(cell->owner, stream, &err);
        return;
    }
    chan_send_fds(&cell->owner->chan,
                  &(struct frame){ .type = FRAME_J_CREATED, .stream = stream, .len = (uint32_t)len, .data = out }, fds,
                  usage >= 0 ? 3 : 2);
}

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
    fd_close(&cell->runtime_end);
    if (err) {
        answer_error(cell->owner, cell->create_stream, err);
        cell->create_stream = 0;
        cell->owner = NULL;
        cell->state = CELL_DEAD;
        cell_destroy(cell);
        return;
    }
    cell->pidfd = pidfd;
    cell->made.pid = (uint32_t)pid;
    cell->state = CELL_LIVE;
    if (cell->destroy || !cell->owner) {
        cell_destroy(cell);
        return;
    }
    hand_over(cell, cell->create_stream);
    cell->create_stream = 0;
    cell->oom = cgroup_oom_fd(&j->forest, cell->id);
    if (cell->oom >= 0)
        (void)ev_io_add(j->ev, &cell->oom_io, cell->oom, EPOLLIN, on_oom, cell, NULL);
}

static void on_spawn_ended(void *arg, uint64_t token, int status)
{
    struct cell *cell = by_token(arg, token);

    if (cell)
        cell_died(cell, status);
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
            answer_error(c->owner, c->create_stream, &err);
            c->create_stream = 0;
            c->destroy = true;
        }
        cell_died(c, SIGKILL);
    }
    for (size_t i = 0; i < j->nspawners; i++)
        if (j->spawners[i] == s)
            j->spawners[i] = j->spawners[--j->nspawners];
    spawner_free(s);
}

static const struct spawner_ops spawner_ops = { on_spawned, on_spawn_ended, on_spawner_lost };

static bool name_ok(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '-' || *s == '.'))
            return false;
    return true;
}

static struct spawner *find_template(struct jailer *j, const char *name)
{
    for (size_t i = 0; i < j->nspawners; i++)
        if (str_eq(spawner_name(j->spawners[i]), name))
            return j->spawners[i];
    return NULL;
}

static int do_template(struct conn *c, const struct frame *f, struct err *err)
{
    struct jailer *j = c->j;
    struct jail_template m;
    uid_t owner;

    if (jail_template_decode(f, &m, err) < 0)
        return -1;
    if (!name_ok(m.name) || m.profile >= PROFILE_COUNT)
        return err_set(err, ERR_INVALID, "template '%s' has a bad name or profile", m.name);
    if (find_template(j, m.name))
        return err_set(err, ERR_EXISTS, "template '%s' exists", m.name);
    if (j->nspawners == TEMPLATES_MAX)
        return err_set(err, ERR_LIMIT, "more than %d templates", TEMPLATES_MAX);
    if (uids_take_owner(&j->uids, &owner, err) < 0)
        return -1;
    struct spawner_settings s = { .name = m.name,
                                  .profile = (enum profile)m.profile,
                                  .owner = owner,
                                  .scratch = j->settings->state_dir,
                                  .runtime_fd = j->settings->runtime_fd,
                                  .uids_fd = j->uids.fd };
    if (spawner_new(j->ev, &s, &spawner_ops, j, &j->spawners[j->nspawners], err) < 0)
        return -1;
    j->nspawners++;
    answer_ok(c, f->stream);
    return 0;
}

/* Checks a request again, field by field. */
static int check_create(struct jailer *j, const struct jail_create *m, struct limits *lim, struct err *err)
{
    if (!id_valid(m->id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is no sandbox id", m->id);
    if (!name_ok(m->hostname))
        return err_set(err, ERR_INVALID, "host name '%s' has letters that host names cannot have", m->hostname);
    for (struct cell *c = j->cells; c; c = c->next)
        if (str_eq(c->id, m->id))
            return err_set(err, ERR_EXISTS, "sandbox %s exists", m->id);
    if (j->ncells >= CELLS_MAX)
        return err_set(err, ERR_LIMIT, "more than %d sandboxes", CELLS_MAX);
    if (m->nlimits != LIMIT_COUNT)
        return err_set(err, ERR_VERSION, "%u limits instead of %d", m->nlimits, LIMIT_COUNT);
    memcpy(lim->v, m->limits, sizeof(lim->v));
    return limits_check(lim, err);
}

/* What the spawner's child will enforce by itself. */
static void enforced_by_mounts(const struct jail_create *m, uint8_t enforced[LIMIT_COUNT])
{
    static const enum limit always[] = { LIMIT_NOFILE, LIMIT_FSIZE,      LIMIT_WORKSPACE, LIMIT_WORKSPACE_INODES,
                                         LIMIT_TMP,    LIMIT_TMP_INODES, LIMIT_SHM };

    for (size_t i = 0; i < ARRAY_LEN(always); i++)
        enforced[always[i]] = JAIL_ENFORCED;
    for (size_t i = 0; i < m->nmounts; i++)
        if (m->mounts[i].kind == JAIL_WORKSPACE) /* somebody's own directory: the disk it lies on is the limit */
            enforced[LIMIT_WORKSPACE] = enforced[LIMIT_WORKSPACE_INODES] = JAIL_NONE;
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
    uint8_t enforced[LIMIT_COUNT] = { 0 };
    int sv[2];

    if (uids_take(&j->uids, &cell->uid, err) < 0 ||
        cgroup_make(&j->forest, cell->id, cell->uid, &cell->limits, enforced, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "control stream");
    cell->control = sv[0];
    cell->runtime_end = sv[1];
    spec = (struct native_spec){
        .host_uid = cell->uid, .limits = cell->limits, .control = cell->runtime_end, .nmounts = m->nmounts
    };
    (void)str_copy(spec.hostname, sizeof(spec.hostname), m->hostname);
    if (mounts_prepare(m, fds, nfds, cell->uid, &cell->limits, spec.mounts, err) < 0)
        return -1;
    int bad = cgroup_enter_open(&j->forest, cell->id, &spec.cgroup, err);
    if (!bad) {
        bad = spawner_make(cell->spawner, cell->token, &spec, err);
        cgroup_enter_close(&spec.cgroup);
    }
    mounts_close(spec.mounts, spec.nmounts);
    if (bad)
        return -1;
    enforced_by_mounts(m, enforced);
    cell->made = (struct jail_created){ .host_uid = cell->uid, .walls = ALL_WALLS, .nlimits = LIMIT_COUNT };
    memcpy(cell->made.enforced, enforced, sizeof(enforced));
    (void)str_copy(cell->made.cgroup, sizeof(cell->made.cgroup), j->forest.kind);
    return 0;
}

static int do_create(struct conn *c, const struct frame *f, int *fds, size_t nfds, struct err *err)
{
    struct jailer *j = c->j;
    static struct jail_create m;
    struct limits lim;

    if (jail_create_decode(f, &m, err) < 0 || check_create(j, &m, &lim, err) < 0)
        return -1;
    struct spawner *s = find_template(j, m.template);
    if (!s)
        return err_set(err, ERR_MISSING, "template '%s' does not exist", m.template);
    struct cell *cell = mem_new(struct cell);
    cell->j = j;
    memcpy(cell->id, m.id, sizeof(cell->id));
    cell->token = ++j->last_token;
    cell->spawner = s;
    cell->limits = lim;
    cell->pidfd = cell->control = cell->runtime_end = cell->oom = -1;
    cell->next = j->cells;
    j->cells = cell;
    j->ncells++;
    if (cell_start(j, cell, &m, fds, nfds, err) < 0) {
        (void)cgroup_remove(&j->forest, cell->id);
        cell_remove(j, cell);
        return -1;
    }
    cell->owner = c;
    cell->create_stream = f->stream;
    return 0;
}

/* --- the other requests --- */

static int do_kill(struct conn *c, struct cell *cell, uint32_t stream, struct err *err UNUSED)
{
    if (cell->state == CELL_DEAD) {
        answer_ok(c, stream);
        return 0;
    }
    cell->kill_stream = stream;
    if (cell->state != CELL_ENDING) {
        cell->rounds = 0;
        kill_step(cell);
    }
    return 0;
}

/* Freezing is not at once: a task in the middle of a system call stops when it comes back. */
static void freeze_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;

    if (!cgroup_is_frozen(&j->forest, cell->id) && cell->rounds++ < REMOVE_ROUNDS) {
        ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + STEP_NS, freeze_step, cell);
        return;
    }
    cell->state = CELL_FROZEN;
    answer_ok(cell->owner, cell->freeze_stream);
    cell->freeze_stream = 0;
}

static int do_freeze(struct conn *c UNUSED, struct cell *cell, uint32_t stream, struct err *err)
{
    if (cgroup_freeze(&cell->j->forest, cell->id, true, err) < 0)
        return -1;
    cell->freeze_stream = stream;
    cell->rounds = 0;
    freeze_step(cell);
    return 0;
}

static int do_thaw(struct conn *c, struct cell *cell, uint32_t stream, struct err *err)
{
    if (cgroup_freeze(&cell->j->forest, cell->id, false, err) < 0)
        return -1;
    cell->state = CELL_LIVE;
    answer_ok(c, stream);
    return 0;
}

static int do_stats(struct conn *c, struct cell *cell, uint32_t stream, struct err *err UNUSED)
{
    answer_stats(c, stream, cell);
    return 0;
}

static int do_destroy(struct conn *c UNUSED, struct cell *cell, uint32_t stream, struct err *err)
{
    if (cell->destroy)
        return err_set(err, ERR_EXISTS, "sandbox %s is being destroyed already", cell->id);
    cell->destroy_stream = stream;
    cell_destroy(cell);
    return 0;
}

static int do_adopt(struct conn *c, struct cell *cell, uint32_t stream, struct err *err)
{
    if (cell->owner && cell->owner != c)
        return err_set(err, ERR_BUSY, "sandbox %s is in use by another process", cell->id);
    cell->owner = c;
    hand_over(cell, stream);
    return 0;
}

static int do_keep(struct conn *c, struct cell *cell, uint32_t stream, struct err *err)
{
    struct jailer *j = c->j;

    if (!cell->kept && kept_add(j->kept, cell->id, err) < 0)
        return -1;
    cell->kept = true;
    /* Nobody may be there to run this clock from now on. */
    ev_timer_set(j->ev, &cell->lifetime, ev_now(j->ev) + cell->limits.v[LIMIT_LIFETIME] * NS_PER_MS, on_lifetime, cell);
    answer_ok(c, stream);
    return 0;
}

static int do_list(struct conn *c, const struct frame *f, struct err *err)
{
    static struct jail_list m;
    uint8_t out[FRAME_PAYLOAD_MAX];

    m.n = 0;
    for (struct cell *cell = c->j->cells; cell && m.n < JAIL_LIST_MAX; cell = cell->next)
        if (cell->state == CELL_LIVE || cell->state == CELL_FROZEN)
            memcpy(m.ids[m.n++], cell->id, ID_SIZE);
    int len = jail_list_encode(&m, out, err);
    if (len < 0)
        return -1;
    answer(c, f->stream, FRAME_DONE, out, len);
    return 0;
}

#define IN(s) (1u << (s))
#define ALIVE (IN(CELL_LIVE) | IN(CELL_FROZEN))

static const struct {
    uint8_t type;
    unsigned legal; /* states of the cell */
    int (*fn)(struct conn *c, struct cell *cell, uint32_t stream, struct err *err);
} requests[] = {
    { FRAME_J_KILL, ALIVE | IN(CELL_ENDING) | IN(CELL_DEAD), do_kill },
    { FRAME_J_FREEZE, IN(CELL_LIVE), do_freeze },
    { FRAME_J_THAW, IN(CELL_FROZEN), do_thaw },
    { FRAME_J_STATS, ALIVE | IN(CELL_ENDING) | IN(CELL_DEAD), do_stats },
    { FRAME_J_DESTROY, IN(CELL_MAKING) | ALIVE | IN(CELL_ENDING) | IN(CELL_DEAD), do_destroy },
    { FRAME_J_ADOPT, ALIVE, do_adopt },
    { FRAME_J_KEEP, ALIVE, do_keep },
};

static int on_cell(struct conn *c, const struct frame *f, struct err *err)
{
    struct jail_id m;
    struct cell *cell;

    if (jail_id_decode(f, &m, err) < 0)
        return -1;
    for (cell = c->j->cells; cell && !str_eq(cell->id, m.id); cell = cell->next)
        ;
    if (!cell || (cell->owner && cell->owner != c && f->type != FRAME_J_ADOPT))
        return err_set(err, ERR_MISSING, "no sandbox %s here", m.id);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        if (requests[i].type != f->type)
            continue;
        if (!(requests[i].legal & IN(cell->state)))
            return err_set(err, ERR_EXISTS, "%s is not possible in the sandbox's present state", frame_name(f->type));
        return requests[i].fn(c, cell, f->stream, err);
    }
    return err_set(err, ERR_PROTOCOL, "a jailer does not take %s", frame_name(f->type));
}

static void on_frame(void *arg, const struct frame *f, int *fds, size_t nfds)
{
    struct conn *c = arg;
    struct err err = { 0 };
    int bad;

    if (f->type == FRAME_J_TEMPLATE)
        bad = do_template(c, f, &err);
    else if (f->type == FRAME_J_CREATE)
        bad = do_create(c, f, fds, nfds, &err);
    else if (f->type == FRAME_J_LIST)
        bad = do_list(c, f, &err);
    else
        bad = on_cell(c, f, &err);
    if (bad)
        answer_error(c, f->stream, &err);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
}

/* --- hosts --- */

static void conn_free(void *arg)
{
    free(arg);
}

static void on_end(void *arg, const struct err *why UNUSED)
{
    struct conn *c = arg;
    struct jailer *j = c->j;
    struct conn **p = &j->conns;

    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    for (struct cell *cell = j->cells, *next; cell; cell = next) {
        next = cell->next;
        if (cell->owner != c)
            continue;
        cell->owner = NULL;
        cell->kill_stream = cell->freeze_stream = cell->destroy_stream = cell->create_stream = 0;
        if (!cell->kept || cell->state == CELL_DEAD)
            cell_destroy(cell);
    }
    chan_done(&c->chan);
    ev_defer(j->ev, &c->free_later, conn_free, c);
    maybe_stop(j);
}

static const struct chan_ops conn_ops = { .on_frame = on_frame, .on_end = on_end };

static int conn_add(struct jailer *j, int sock, struct err *err)
{
    struct conn *c = mem_new(struct conn);

    c->j = j;
    if (chan_init(&c->chan, j->ev, sock, true, &conn_ops, c, err) < 0) {
        free(c);
        return -1;
    }
    c->next = j->conns;
    j->conns = c;
    return 0;
}

static void on_visitor(void *arg, int sock)
{
    (void)conn_add(arg, sock, NULL);
}

/* --- the process --- */

static int jailer_start(struct jailer *j, const struct jailer_settings *settings, struct err *err)
{
    j->settings = settings;
    if (sweep_open(settings->state_dir, &j->state_dir, &j->forest, &j->uids, err) < 0)
        return -1;
    (void)sweep(&j->forest, &j->uids);
    return ev_new(&j->ev, err);
}

/* Says on every request why there is no jailer, until the host goes away. */
static int refuse_all(int sock, const struct err *why)
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
        f.len = (uint32_t)len;
        frame_header(packet, &f);
        if (len < 0 || fd_send(sock, packet, FRAME_HEADER + f.len, NULL, 0, 0) < 0)
            return 125;
    }
}

int jailer_serve(int sock, const struct jailer_settings *settings)
{
    static struct jailer j = { .state_dir = -1, .uids = { .fd = -1 } };
    struct err err = { 0 };

    log_setup("cove-jailer", settings->keep_log ? LOG_INFO : LOG_ERROR);
    if (jailer_start(&j, settings, &err) < 0 || kept_new(j.ev, settings->state_dir, on_visitor, &j, &j.kept, &err) < 0)
        return refuse_all(sock, &err);
    if (conn_add(&j, sock, &err) < 0)
        return 125;
    ev_run(j.ev);
    for (size_t i = 0; i < j.nspawners; i++)
        spawner_free(j.spawners[i]);
    kept_free(j.kept);
    ev_free(j.ev);
    cgroup_forget(&j.forest);
    uids_done(&j.uids);
    fd_close(&j.state_dir);
    return 0;
}

static NORETURN void jailer_child(int sock, const struct jailer_settings *settings)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t none;

    setsid();
    prctl(PR_SET_NAME, "cove-jailer");
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    /* The host's streams are not ours to hold open: a reader of its output waits for the last writer. */
    int nul = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i <= (settings->keep_log ? 1 : 2); i++)
        if (nul < 0 || dup2(nul, i) < 0)
            _exit(125);
    close(nul);
    _exit(jailer_serve(sock, settings));
}

int jailer_fork(const struct jailer_settings *settings, int *ret_sock, pid_t *ret_pid, struct err *err)
{
    int sv[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    auto_fd int near = sv[0], far = sv[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, ERR_LIMIT, "start the jailer");
    if (pid == 0) {
        fd_close(&near);
        jailer_child(far, settings);
    }
    *ret_pid = pid;
    *ret_sock = take_fd(&near);
    return 0;
}
