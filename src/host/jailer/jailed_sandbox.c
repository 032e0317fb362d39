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
    struct jailed_sandbox *sandbox = j->sandboxes;

    while (sandbox && !str_eq(sandbox->id, id))
        sandbox = sandbox->next;
    return sandbox;
}

static void jailed_sandbox_close_fds(struct jailer *j, struct jailed_sandbox *sandbox)
{
    ev_io_del(j->ev, &sandbox->oom_io);
    fd_close(&sandbox->oom_fd);
    for (size_t i = 0; i < JAILED_SANDBOX_LISTENERS; i++)
        fd_close(&sandbox->listeners[i]);
    egress_relay_remove(sandbox);
    fd_close(&sandbox->pidfd);
    if (sandbox->control >= 0)
        fd_drain(sandbox->control);
    fd_close(&sandbox->control);
    fd_close(&sandbox->runtime_socket);
}

void jailed_sandbox_remove(struct jailed_sandbox *sandbox)
{
    struct jailer *j = sandbox->jailer;
    list_remove(&j->sandboxes, sandbox);
    j->nsandboxes--;
    j->nkept -= sandbox->kept;
    j->negress -= sandbox->has_egress;
    create_dequeue(sandbox);
    ev_timer_clear(j->ev, &sandbox->step_timer);
    ev_timer_clear(j->ev, &sandbox->lifetime_timer);
    jailed_sandbox_close_fds(j, sandbox);
    uids_release(&j->uids, sandbox->uid);
    if (sandbox->kept && j->kept_listeners)
        kept_listeners_remove(j->kept_listeners, sandbox->id);
    free(sandbox);
    jailer_maybe_stop(j);
}

static void jailed_sandbox_remove_step(void *arg)
{
    struct jailed_sandbox *sandbox = arg;
    struct jailer *j = sandbox->jailer;

    ev_io_del(j->ev, &sandbox->oom_io); /* removing the cgroup would trigger an event on it */
    if (sandbox->rounds == 0 && sandbox->destroy_stream)
        cgroup_read_stats(&j->cgroups, sandbox->id, true, &sandbox->final_stats);
    if (cgroup_remove(&j->cgroups, sandbox->id) < 0) {
        if (sandbox->rounds++ < REMOVE_ROUNDS) {
            ev_timer_set(j->ev, &sandbox->step_timer, ev_now(j->ev) + STEP_NS, jailed_sandbox_remove_step, sandbox);
            return;
        }
        log_error("sandbox %s: cannot remove its cgroup", sandbox->id);
        sandbox->uid = 0; /* not released: processes that still live in the cgroup have this uid */
    }
    struct jailer_client *owner = sandbox->owner;
    uint32_t stream = sandbox->destroy_stream;
    struct cgroup_stats last = sandbox->final_stats;
    /* Remove first: a client that has the answer must find nothing left, and no listening
     * socket. */
    jailed_sandbox_remove(sandbox);
    reply_stats(owner, stream, &last);
}

static void jailed_sandbox_kill_step(void *arg)
{
    struct jailed_sandbox *sandbox = arg;
    struct jailer *j = sandbox->jailer;
    bool alone = sandbox->rounds++ == 0 && sandbox->state != JAILED_SANDBOX_FROZEN &&
                 cgroup_pids_current(&j->cgroups, sandbox->id) <= 1;

    if (!alone)
        cgroup_kill(&j->cgroups, sandbox->id);
    (void)sys_pidfd_send_signal(sandbox->pidfd, SIGKILL);
    sandbox->state = JAILED_SANDBOX_ENDING;
    ev_timer_set(j->ev, &sandbox->step_timer, ev_now(j->ev) + KILL_AGAIN_NS, jailed_sandbox_kill_step, sandbox);
}

void jailed_sandbox_kill(struct jailed_sandbox *sandbox)
{
    if (sandbox->state == JAILED_SANDBOX_ENDING)
        return;
    sandbox->rounds = 0;
    jailed_sandbox_kill_step(sandbox);
}

void jailed_sandbox_destroy(struct jailed_sandbox *sandbox)
{
    sandbox->destroy_requested = true;
    if (sandbox->request) { /* still queued: nothing was made for it */
        struct err gone;

        err_set(&gone, ERR_LOST, "sandbox %s was destroyed before it was made", sandbox->id);
        reply_error(sandbox->owner, sandbox->create_stream, &gone);
        sandbox->create_stream = 0;
        sandbox->state = JAILED_SANDBOX_DEAD;
    }
    if (sandbox->state == JAILED_SANDBOX_DEAD) {
        sandbox->rounds = 0;
        jailed_sandbox_remove_step(sandbox);
    } else if (sandbox->state == JAILED_SANDBOX_LIVE || sandbox->state == JAILED_SANDBOX_FROZEN) {
        jailed_sandbox_kill(sandbox);
    } /* MAKING: continues when the spawner answers. ENDING: continues when PID 1 is reaped. */
}

static void jailed_sandbox_fail_freeze(struct jailed_sandbox *sandbox, const char *why)
{
    struct err err;

    if (!sandbox->freeze_stream)
        return;
    err_set(&err, ERR_LOST, "%s", why);
    reply_error(sandbox->owner, sandbox->freeze_stream, &err);
    sandbox->freeze_stream = 0;
}

void jailed_sandbox_on_death(struct jailed_sandbox *sandbox, int status)
{
    struct jailer *j = sandbox->jailer;

    sandbox->state = JAILED_SANDBOX_DEAD;
    sandbox->status = status;
    sandbox->rounds = 0;
    ev_timer_clear(j->ev, &sandbox->step_timer);
    egress_relay_remove(sandbox);
    reply_event(sandbox, JAIL_EVENT_ENDED);
    reply_ok(sandbox->owner, sandbox->kill_stream);
    sandbox->kill_stream = 0;
    jailed_sandbox_fail_freeze(sandbox, "the sandbox ended");
    if (sandbox->destroy_requested || !sandbox->owner)
        jailed_sandbox_destroy(sandbox);
}

static void jailed_sandbox_on_oom(void *arg, uint32_t events UNUSED)
{
    struct jailed_sandbox *sandbox = arg;
    char drain[4096];

    while (read(sandbox->oom_fd, drain, sizeof(drain)) > 0)
        ;
    if (sandbox->created.cgroup[1] == '2') { /* v2 reports every change of memory.events */
        struct cgroup_stats s;

        cgroup_read_stats(&sandbox->jailer->cgroups, sandbox->id, false, &s);
        if (s.oom_kills == 0 || s.oom_kills == CGROUP_UNKNOWN)
            return;
    }
    reply_event(sandbox, JAIL_EVENT_OOM);
}

void jailed_sandbox_watch_memory(struct jailed_sandbox *sandbox)
{
    struct jailer *j = sandbox->jailer;

    sandbox->oom_fd = cgroup_oom_fd(&j->cgroups, sandbox->id);
    if (sandbox->oom_fd >= 0)
        (void)ev_io_add(j->ev, &sandbox->oom_io, sandbox->oom_fd, EPOLLIN, jailed_sandbox_on_oom, sandbox, NULL);
}

static void jailed_sandbox_on_lifetime(void *arg)
{
    jailed_sandbox_destroy(arg);
}

/* Freezing takes time: a task inside a system call stops only when it returns from the call. */
static void jailed_sandbox_freeze_step(void *arg)
{
    struct jailed_sandbox *sandbox = arg;
    struct jailer *j = sandbox->jailer;

    bool frozen = cgroup_is_frozen(&j->cgroups, sandbox->id);
    struct err err;

    if (!frozen && sandbox->rounds++ < FREEZE_ROUNDS) {
        ev_timer_set(j->ev, &sandbox->step_timer, ev_now(j->ev) + STEP_NS, jailed_sandbox_freeze_step, sandbox);
        return;
    }
    if (frozen) {
        sandbox->state = JAILED_SANDBOX_FROZEN;
        reply_ok(sandbox->owner, sandbox->freeze_stream);
    } else {
        (void)cgroup_freeze(&j->cgroups, sandbox->id, false, NULL);
        err_set(&err, ERR_TIMEOUT, "sandbox %s: a process could not be frozen in time", sandbox->id);
        reply_error(sandbox->owner, sandbox->freeze_stream, &err);
    }
    sandbox->freeze_stream = 0;
}

int jailed_sandbox_freeze(struct jailed_sandbox *sandbox, uint32_t stream, struct err *err)
{
    if (sandbox->freeze_stream)
        return err_set(err, ERR_EXISTS, "sandbox %s is being frozen already", sandbox->id);
    if (cgroup_freeze(&sandbox->jailer->cgroups, sandbox->id, true, err) < 0)
        return -1;
    sandbox->freeze_stream = stream;
    sandbox->rounds = 0;
    jailed_sandbox_freeze_step(sandbox);
    return 0;
}

int jailed_sandbox_thaw(struct jailed_sandbox *sandbox, struct err *err)
{
    if (cgroup_freeze(&sandbox->jailer->cgroups, sandbox->id, false, err) < 0)
        return -1;
    /* In a live sandbox, this timer can only belong to a freeze in progress. */
    ev_timer_clear(sandbox->jailer->ev, &sandbox->step_timer);
    jailed_sandbox_fail_freeze(sandbox, "the sandbox was thawed meanwhile");
    sandbox->state = JAILED_SANDBOX_LIVE;
    return 0;
}

int jailed_sandbox_check_room(const struct jailer *j, size_t fds, struct err *err)
{
    if (j->nsandboxes * FDS_PER_SANDBOX + j->negress * EGRESS_NET_SOCKETS + j->nkept + fds <= j->fds_max)
        return 0;
    return err_set(err, ERR_LIMIT,
                   "%zu sandboxes exist and the limit of open files allows no more; raise it or destroy sandboxes",
                   j->nsandboxes);
}

int jailed_sandbox_keep(struct jailed_sandbox *sandbox, int *control, struct err *err)
{
    struct jailer *j = sandbox->jailer;

    if (!sandbox->kept && (jailed_sandbox_check_room(j, 1, err) < 0 ||
                           (j->kept_listeners && kept_listeners_add(j->kept_listeners, sandbox->id, err) < 0)))
        return -1;
    if (!sandbox->kept)
        sandbox->control = take_fd(control);
    j->nkept += !sandbox->kept;
    sandbox->kept = true;
    jailed_sandbox_set_lifetime(sandbox, sandbox->limits.v[LIMIT_LIFETIME]);
    return 0;
}

void jailed_sandbox_set_lifetime(struct jailed_sandbox *sandbox, uint64_t lifetime_ms)
{
    struct ev *ev = sandbox->jailer->ev;

    sandbox->limits.v[LIMIT_LIFETIME] = lifetime_ms;
    if (sandbox->kept) /* a kept sandbox may have no client that enforces its lifetime */
        ev_timer_set(ev, &sandbox->lifetime_timer, ev_now(ev) + lifetime_ms * NS_PER_MS, jailed_sandbox_on_lifetime,
                     sandbox);
}
