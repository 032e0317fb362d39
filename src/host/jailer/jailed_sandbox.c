/* Life cycle of a sandbox in the jailer, as steps that the event loop runs on timers: killing
 * repeats until PID 1 is reaped, freezing until every process is frozen, removal until the cgroups
 * are empty.
 *
 * A sandbox that contains only PID 1 is killed through its pidfd. Otherwise every process in its
 * cgroup is killed individually: PID 1 of a fork bomb is one of a thousand runnable processes, and
 * seconds may pass before it is scheduled and dies. */
#include "host/jailer/jailer_internal.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <signal.h>

#define KILL_AGAIN_NS (100 * NS_PER_MS)
#define STEP_NS (1 * NS_PER_MS)
#define REMOVE_ROUNDS 2000 /* rounds of STEP_NS; then the leaked cgroup is logged */
#define FREEZE_ROUNDS 2000 /* rounds of STEP_NS; then the sandbox is thawed and the client gets an error */

void jailer_maybe_stop(struct jailer *j)
{
    if (!j->sandboxes && (j->stopping || (!j->clients && !j->listener.path)))
        ev_stop(j->ev);
}

struct jailed_sandbox *jailed_sandbox_find(struct jailer *j, const char *id)
{
    struct jailed_sandbox *cell = j->sandboxes;

    while (cell && !str_eq(cell->id, id))
        cell = cell->next;
    return cell;
}

static void jailed_sandbox_close_fds(struct jailer *j, struct jailed_sandbox *cell)
{
    ev_io_del(j->ev, &cell->oom_io);
    fd_close(&cell->oom_fd);
    for (size_t i = 0; i < JAILED_SANDBOX_LISTENERS; i++)
        fd_close(&cell->listeners[i]);
    fd_close(&cell->pidfd);
    if (cell->control >= 0)
        fd_drain(cell->control);
    fd_close(&cell->control);
    fd_close(&cell->runtime_socket);
}

void jailed_sandbox_remove(struct jailed_sandbox *cell)
{
    struct jailer *j = cell->jailer;
    list_remove(&j->sandboxes, cell);
    j->nsandboxes--;
    j->nkept -= cell->kept;
    create_dequeue(cell);
    ev_timer_clear(j->ev, &cell->step_timer);
    ev_timer_clear(j->ev, &cell->lifetime_timer);
    jailed_sandbox_close_fds(j, cell);
    uids_release(&j->uids, cell->uid);
    if (cell->kept && j->kept_listeners)
        kept_listeners_remove(j->kept_listeners, cell->id);
    free(cell);
    jailer_maybe_stop(j);
}

static void jailed_sandbox_remove_step(void *arg)
{
    struct jailed_sandbox *cell = arg;
    struct jailer *j = cell->jailer;

    ev_io_del(j->ev, &cell->oom_io); /* removing the cgroup would trigger an event on it */
    if (cell->rounds == 0 && cell->destroy_stream)
        cgroup_read_stats(&j->cgroups, cell->id, true, &cell->final_stats);
    if (cgroup_remove(&j->cgroups, cell->id) < 0) {
        if (cell->rounds++ < REMOVE_ROUNDS) {
            ev_timer_set(j->ev, &cell->step_timer, ev_now(j->ev) + STEP_NS, jailed_sandbox_remove_step, cell);
            return;
        }
        log_error("sandbox %s: cannot remove its cgroup", cell->id);
        cell->uid = 0; /* not released: processes that still live in the cgroup have this uid */
    }
    struct jailer_client *owner = cell->owner;
    uint32_t stream = cell->destroy_stream;
    struct cgroup_stats last = cell->final_stats;
    /* Remove first: a client that has the answer must find nothing left, and no listening
     * socket. */
    jailed_sandbox_remove(cell);
    reply_stats(owner, stream, &last);
}

static void jailed_sandbox_kill_step(void *arg)
{
    struct jailed_sandbox *cell = arg;
    struct jailer *j = cell->jailer;
    bool alone = cell->rounds++ == 0 && cell->state != JAILED_SANDBOX_FROZEN &&
                 cgroup_pids_current(&j->cgroups, cell->id) <= 1;

    if (!alone)
        cgroup_kill(&j->cgroups, cell->id);
    (void)sys_pidfd_send_signal(cell->pidfd, SIGKILL);
    cell->state = JAILED_SANDBOX_ENDING;
    ev_timer_set(j->ev, &cell->step_timer, ev_now(j->ev) + KILL_AGAIN_NS, jailed_sandbox_kill_step, cell);
}

void jailed_sandbox_kill(struct jailed_sandbox *cell)
{
    if (cell->state == JAILED_SANDBOX_ENDING)
        return;
    cell->rounds = 0;
    jailed_sandbox_kill_step(cell);
}

void jailed_sandbox_destroy(struct jailed_sandbox *cell)
{
    cell->destroy_requested = true;
    if (cell->request) { /* still queued: nothing was made for it */
        struct err gone;

        err_set(&gone, ERR_LOST, "sandbox %s was destroyed before it was made", cell->id);
        reply_error(cell->owner, cell->create_stream, &gone);
        cell->create_stream = 0;
        cell->state = JAILED_SANDBOX_DEAD;
    }
    if (cell->state == JAILED_SANDBOX_DEAD) {
        cell->rounds = 0;
        jailed_sandbox_remove_step(cell);
    } else if (cell->state == JAILED_SANDBOX_LIVE || cell->state == JAILED_SANDBOX_FROZEN) {
        jailed_sandbox_kill(cell);
    } /* MAKING: continues when the spawner answers. ENDING: continues when PID 1 is reaped. */
}

static void jailed_sandbox_fail_freeze(struct jailed_sandbox *cell, const char *why)
{
    struct err err;

    if (!cell->freeze_stream)
        return;
    err_set(&err, ERR_LOST, "%s", why);
    reply_error(cell->owner, cell->freeze_stream, &err);
    cell->freeze_stream = 0;
}

void jailed_sandbox_on_death(struct jailed_sandbox *cell, int status)
{
    struct jailer *j = cell->jailer;

    cell->state = JAILED_SANDBOX_DEAD;
    cell->status = status;
    cell->rounds = 0;
    ev_timer_clear(j->ev, &cell->step_timer);
    reply_event(cell, JAIL_EVENT_ENDED);
    reply_ok(cell->owner, cell->kill_stream);
    cell->kill_stream = 0;
    jailed_sandbox_fail_freeze(cell, "the sandbox ended");
    if (cell->destroy_requested || !cell->owner)
        jailed_sandbox_destroy(cell);
}

static void jailed_sandbox_on_oom(void *arg, uint32_t events UNUSED)
{
    struct jailed_sandbox *cell = arg;
    char drain[4096];

    while (read(cell->oom_fd, drain, sizeof(drain)) > 0)
        ;
    if (cell->created.cgroup[1] == '2') { /* v2 reports every change of memory.events */
        struct cgroup_stats s;

        cgroup_read_stats(&cell->jailer->cgroups, cell->id, false, &s);
        if (s.oom_kills == 0 || s.oom_kills == CGROUP_UNKNOWN)
            return;
    }
    reply_event(cell, JAIL_EVENT_OOM);
}

void jailed_sandbox_watch_memory(struct jailed_sandbox *cell)
{
    struct jailer *j = cell->jailer;

    cell->oom_fd = cgroup_oom_fd(&j->cgroups, cell->id);
    if (cell->oom_fd >= 0)
        (void)ev_io_add(j->ev, &cell->oom_io, cell->oom_fd, EPOLLIN, jailed_sandbox_on_oom, cell, NULL);
}

static void jailed_sandbox_on_lifetime(void *arg)
{
    jailed_sandbox_destroy(arg);
}

/* Freezing takes time: a task inside a system call stops only when it returns from the call. */
static void jailed_sandbox_freeze_step(void *arg)
{
    struct jailed_sandbox *cell = arg;
    struct jailer *j = cell->jailer;

    bool frozen = cgroup_is_frozen(&j->cgroups, cell->id);
    struct err err;

    if (!frozen && cell->rounds++ < FREEZE_ROUNDS) {
        ev_timer_set(j->ev, &cell->step_timer, ev_now(j->ev) + STEP_NS, jailed_sandbox_freeze_step, cell);
        return;
    }
    if (frozen) {
        cell->state = JAILED_SANDBOX_FROZEN;
        reply_ok(cell->owner, cell->freeze_stream);
    } else {
        (void)cgroup_freeze(&j->cgroups, cell->id, false, NULL);
        err_set(&err, ERR_TIMEOUT, "sandbox %s: a process could not be frozen in time", cell->id);
        reply_error(cell->owner, cell->freeze_stream, &err);
    }
    cell->freeze_stream = 0;
}

int jailed_sandbox_freeze(struct jailed_sandbox *cell, uint32_t stream, struct err *err)
{
    if (cell->freeze_stream)
        return err_set(err, ERR_EXISTS, "sandbox %s is being frozen already", cell->id);
    if (cgroup_freeze(&cell->jailer->cgroups, cell->id, true, err) < 0)
        return -1;
    cell->freeze_stream = stream;
    cell->rounds = 0;
    jailed_sandbox_freeze_step(cell);
    return 0;
}

int jailed_sandbox_thaw(struct jailed_sandbox *cell, struct err *err)
{
    if (cgroup_freeze(&cell->jailer->cgroups, cell->id, false, err) < 0)
        return -1;
    /* In a live sandbox, this timer can only belong to a freeze in progress. */
    ev_timer_clear(cell->jailer->ev, &cell->step_timer);
    jailed_sandbox_fail_freeze(cell, "the sandbox was thawed meanwhile");
    cell->state = JAILED_SANDBOX_LIVE;
    return 0;
}

int jailed_sandbox_check_room(const struct jailer *j, size_t fds, struct err *err)
{
    if (j->nsandboxes * FDS_PER_SANDBOX + j->nkept + fds <= j->fds_max)
        return 0;
    return err_set(err, ERR_LIMIT,
                   "%zu sandboxes exist and the limit of open files allows no more; raise it or destroy sandboxes",
                   j->nsandboxes);
}

int jailed_sandbox_keep(struct jailed_sandbox *cell, int *control, struct err *err)
{
    struct jailer *j = cell->jailer;

    if (!cell->kept && (jailed_sandbox_check_room(j, 1, err) < 0 ||
                        (j->kept_listeners && kept_listeners_add(j->kept_listeners, cell->id, err) < 0)))
        return -1;
    if (!cell->kept)
        cell->control = take_fd(control);
    j->nkept += !cell->kept;
    cell->kept = true;
    jailed_sandbox_set_lifetime(cell, cell->limits.v[LIMIT_LIFETIME]);
    return 0;
}

void jailed_sandbox_set_lifetime(struct jailed_sandbox *cell, uint64_t lifetime_ms)
{
    struct ev *ev = cell->jailer->ev;

    cell->limits.v[LIMIT_LIFETIME] = lifetime_ms;
    if (cell->kept) /* a kept sandbox may have no client that enforces its lifetime */
        ev_timer_set(ev, &cell->lifetime_timer, ev_now(ev) + lifetime_ms * NS_PER_MS, jailed_sandbox_on_lifetime, cell);
}
