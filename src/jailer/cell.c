/* The life of a sandbox in the jailer, as steps that the loop takes when they are due: killing goes on until PID 1 was
 * reaped, freezing until everything stands still, removing until the cgroups are empty.
 *
 * A sandbox whose PID 1 is alone in it is killed by its pidfd. Otherwise everything in its cgroup is killed one by one:
 * PID 1 of a fork bomb is one of a thousand runnable processes and may take seconds to get its turn to die. */
#include "jailer/inside.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "isolate/sys.h"

#include <errno.h>
#include <signal.h>

#define KILL_AGAIN_NS (100 * NS_PER_MS)
#define STEP_NS (1 * NS_PER_MS)
#define REMOVE_ROUNDS 2000 /* of STEP_NS: then the leak is reported */
#define FREEZE_ROUNDS 2000 /* of STEP_NS: then it runs on, and whoever asked hears so */

void jailer_maybe_stop(struct jailer *j)
{
    if (!j->cells && (j->stopping || (!j->conns && !j->door.path)))
        ev_stop(j->ev);
}

struct cell *cell_find(struct jailer *j, const char *id)
{
    struct cell *cell = j->cells;

    while (cell && !str_eq(cell->id, id))
        cell = cell->next;
    return cell;
}

static void close_fds(struct jailer *j, struct cell *cell)
{
    ev_io_del(j->ev, &cell->oom_io);
    fd_close(&cell->oom);
    for (size_t i = 0; i < CELL_LISTENERS; i++)
        fd_close(&cell->listeners[i]);
    fd_close(&cell->pidfd);
    if (cell->control >= 0)
        fd_drain(cell->control);
    fd_close(&cell->control);
    fd_close(&cell->runtime_end);
}

void cell_remove(struct cell *cell)
{
    struct jailer *j = cell->j;
    struct cell **p = &j->cells;

    while (*p != cell)
        p = &(*p)->next;
    *p = cell->next;
    j->ncells--;
    j->nkept -= cell->kept;
    create_withdraw(cell);
    ev_timer_clear(j->ev, &cell->timer);
    ev_timer_clear(j->ev, &cell->lifetime);
    close_fds(j, cell);
    uids_give(&j->uids, cell->uid);
    if (cell->kept && j->kept)
        kept_remove(j->kept, cell->id);
    free(cell);
    jailer_maybe_stop(j);
}

static void remove_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;

    ev_io_del(j->ev, &cell->oom_io); /* removing the cgroup would ring it */
    if (cell->rounds == 0 && cell->destroy_stream)
        cgroup_read(&j->forest, cell->id, true, &cell->last);
    if (cgroup_remove(&j->forest, cell->id) < 0) {
        if (cell->rounds++ < REMOVE_ROUNDS) {
            ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + STEP_NS, remove_step, cell);
            return;
        }
        log_error("sandbox %s: its cgroup could not be removed", cell->id);
        cell->uid = 0; /* whatever still lives there has it */
    }
    struct conn *owner = cell->owner;
    uint32_t stream = cell->destroy_stream;
    struct cgroup_stats last = cell->last;
    cell_remove(cell); /* first: whoever has the answer must find nothing left, no door either */
    reply_stats(owner, stream, &last);
}

static void kill_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;
    bool alone = cell->rounds++ == 0 && cell->state != CELL_FROZEN && cgroup_pids(&j->forest, cell->id) <= 1;

    if (!alone)
        cgroup_kill(&j->forest, cell->id);
    (void)sys_pidfd_send_signal(cell->pidfd, SIGKILL);
    cell->state = CELL_ENDING;
    ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + KILL_AGAIN_NS, kill_step, cell);
}

void cell_kill(struct cell *cell)
{
    if (cell->state == CELL_ENDING)
        return;
    cell->rounds = 0;
    kill_step(cell);
}

void cell_destroy(struct cell *cell)
{
    cell->destroy = true;
    if (cell->request) { /* nobody has begun it */
        struct err gone;

        err_set(&gone, ERR_LOST, "sandbox %s was destroyed before it was made", cell->id);
        reply_error(cell->owner, cell->create_stream, &gone);
        cell->create_stream = 0;
        cell->state = CELL_DEAD;
    }
    if (cell->state == CELL_DEAD) {
        cell->rounds = 0;
        remove_step(cell);
    } else if (cell->state == CELL_LIVE || cell->state == CELL_FROZEN) {
        cell_kill(cell);
    } /* MAKING: when the spawner answers. ENDING: when it is reaped. */
}

static void freeze_fails(struct cell *cell, const char *why)
{
    struct err err;

    if (!cell->freeze_stream)
        return;
    err_set(&err, ERR_LOST, "%s", why);
    reply_error(cell->owner, cell->freeze_stream, &err);
    cell->freeze_stream = 0;
}

void cell_died(struct cell *cell, int status)
{
    struct jailer *j = cell->j;

    cell->state = CELL_DEAD;
    cell->status = status;
    cell->rounds = 0;
    ev_timer_clear(j->ev, &cell->timer);
    reply_event(cell, JAIL_EVENT_ENDED);
    reply_ok(cell->owner, cell->kill_stream);
    cell->kill_stream = 0;
    freeze_fails(cell, "the sandbox ended");
    if (cell->destroy || !cell->owner)
        cell_destroy(cell);
}

static void on_oom(void *arg, uint32_t events UNUSED)
{
    struct cell *cell = arg;
    char drain[4096];

    while (read(cell->oom, drain, sizeof(drain)) > 0)
        ;
    if (cell->made.cgroup[1] == '2') { /* v2 tells of every change of memory.events */
        struct cgroup_stats s;

        cgroup_read(&cell->j->forest, cell->id, false, &s);
        if (s.oom_kills == 0 || s.oom_kills == CGROUP_UNKNOWN)
            return;
    }
    reply_event(cell, JAIL_EVENT_OOM);
}

void cell_watch_memory(struct cell *cell)
{
    struct jailer *j = cell->j;

    cell->oom = cgroup_oom_fd(&j->forest, cell->id);
    if (cell->oom >= 0)
        (void)ev_io_add(j->ev, &cell->oom_io, cell->oom, EPOLLIN, on_oom, cell, NULL);
}

static void on_lifetime(void *arg)
{
    cell_destroy(arg);
}

/* Freezing is not at once: a task in the middle of a system call stops when it comes back. */
static void freeze_step(void *arg)
{
    struct cell *cell = arg;
    struct jailer *j = cell->j;

    bool frozen = cgroup_is_frozen(&j->forest, cell->id);
    struct err err;

    if (!frozen && cell->rounds++ < FREEZE_ROUNDS) {
        ev_timer_set(j->ev, &cell->timer, ev_now(j->ev) + STEP_NS, freeze_step, cell);
        return;
    }
    if (frozen) {
        cell->state = CELL_FROZEN;
        reply_ok(cell->owner, cell->freeze_stream);
    } else {
        (void)cgroup_freeze(&j->forest, cell->id, false, NULL);
        err_set(&err, ERR_TIMEOUT, "something in sandbox %s would not stand still", cell->id);
        reply_error(cell->owner, cell->freeze_stream, &err);
    }
    cell->freeze_stream = 0;
}

int cell_freeze(struct cell *cell, uint32_t stream, struct err *err)
{
    if (cell->freeze_stream)
        return err_set(err, ERR_EXISTS, "sandbox %s is being frozen already", cell->id);
    if (cgroup_freeze(&cell->j->forest, cell->id, true, err) < 0)
        return -1;
    cell->freeze_stream = stream;
    cell->rounds = 0;
    freeze_step(cell);
    return 0;
}

int cell_thaw(struct cell *cell, struct err *err)
{
    if (cgroup_freeze(&cell->j->forest, cell->id, false, err) < 0)
        return -1;
    ev_timer_clear(cell->j->ev, &cell->timer); /* in a cell that is alive it can only be a freeze under way */
    freeze_fails(cell, "the sandbox was thawed meanwhile");
    cell->state = CELL_LIVE;
    return 0;
}

int cell_room(const struct jailer *j, size_t fds, struct err *err)
{
    if (j->ncells * CELL_FDS + j->nkept + fds <= j->fds_max)
        return 0;
    return err_set(err, ERR_LIMIT, "more than %zu sandboxes, which the limit of open files allows", j->ncells);
}

int cell_keep(struct cell *cell, int *control, struct err *err)
{
    struct jailer *j = cell->j;

    if (!cell->kept && (cell_room(j, 1, err) < 0 || (j->kept && kept_add(j->kept, cell->id, err) < 0)))
        return -1;
    if (!cell->kept)
        cell->control = take_fd(control);
    j->nkept += !cell->kept;
    cell->kept = true;
    cell_extend(cell, cell->limits.v[LIMIT_LIFETIME]);
    return 0;
}

void cell_extend(struct cell *cell, uint64_t lifetime_ms)
{
    struct ev *ev = cell->j->ev;

    cell->limits.v[LIMIT_LIFETIME] = lifetime_ms;
    if (cell->kept) /* nobody else may be there to run this clock */
        ev_timer_set(ev, &cell->lifetime, ev_now(ev) + lifetime_ms * NS_PER_MS, on_lifetime, cell);
}
